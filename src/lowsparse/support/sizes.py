"""How much memory may be used, as a number or in words; and what a file may take."""

import math
import os
import re
from contextlib import suppress
from numbers import Real
from pathlib import Path

MEMORY = 1 << 30  # bytes, if nothing is said
LEAST = 10**6
LIMIT = "LOWSPARSE_READ_LIMIT"
UNKNOWN = 16 << 30  # bytes: the limit where the system does not say how much memory there is
CGROUPS = [Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")]
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def bytes_of(memory: int | str | None) -> int:
    """A size in bytes: a number, or a text such as "1GB" or "512MiB".

    >>> bytes_of("1.5 GB"), bytes_of(2_000_000), bytes_of("64MiB")
    (1500000000, 2000000, 67108864)
    """
    if memory is None:
        return MEMORY
    size: object = memory
    if isinstance(memory, str):
        found = re.fullmatch(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([kmgt]i?|)b?\s*", memory.lower())
        size = None if found is None else float(found[1]) * UNITS[found[2]]
    if isinstance(size, bool) or not isinstance(size, Real) or not math.isfinite(float(size)):
        raise ValueError(f"memory must be a number of bytes or a text such as '1GB', not {memory!r}")
    if float(size) < LEAST:
        raise ValueError(f"memory must be 1 MB or more, not {memory!r}")
    return int(float(size))


def read_limit() -> int:
    """Bytes that a file may take in memory: LOWSPARSE_READ_LIMIT, else half of what this machine or container has."""
    if asked := os.environ.get(LIMIT):
        try:
            return bytes_of(asked)
        except ValueError as error:
            raise ValueError(f"{LIMIT}={asked!r} is no size: {error}") from None
    total, limit = memory_of_machine() or UNKNOWN, memory_of_container()
    return (total if limit is None else min(total, limit)) // 2


def memory_of_machine() -> int | None:
    """Bytes; None if the system does not say it."""
    known = "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {})
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if known else None


def memory_of_container() -> int | None:
    """Bytes that the container of this process may use; None if there is no limit."""
    limits = []
    for path in CGROUPS:
        with suppress(OSError, ValueError):  # there is none, or it says "max"
            limits.append(int(path.read_text()))
    return min(limits, default=None)


class TooLargeError(ValueError):
    """A file that would take more memory than it may."""


def check_fits(path: object, what: str, size: int) -> None:
    """Raise an error if `size` bytes, which reading `what` of a file takes, are more than may be read."""
    if size > (limit := read_limit()):
        raise TooLargeError(
            f"{path}: {what} takes {_in_units(size)} of memory or more, and {_in_units(limit)} are allowed: if you "
            f"trust the file, set the environment variable {LIMIT}, to 64GB for example"
        )


def _in_units(size: int) -> str:
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"
