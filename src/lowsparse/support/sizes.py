"""How much memory may be used, as a number or in words."""

from __future__ import annotations

import math
import re
from numbers import Real
from typing import Any

__all__ = ["MEMORY", "bytes_of"]

MEMORY = 1 << 30  # bytes, if nothing is said
LEAST = 10**6
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def bytes_of(memory: int | str | None) -> int:
    """A size in bytes: a number, or a text such as "1GB" or "512MiB".

    >>> bytes_of("1.5 GB"), bytes_of(2_000_000), bytes_of("64MiB")
    (1500000000, 2000000, 67108864)
    """
    if memory is None:
        return MEMORY
    size: Any = memory
    if isinstance(memory, str):
        found = re.fullmatch(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([kmgt]i?|)b?\s*", memory.lower())
        size = None if found is None else float(found[1]) * UNITS[found[2]]
    if isinstance(size, bool) or not isinstance(size, Real) or not math.isfinite(size):
        raise ValueError(f"memory must be a number of bytes or a text such as '1GB', not {memory!r}")
    if float(size) < LEAST:
        raise ValueError(f"memory must be 1 MB or more, not {memory!r}")
    return int(float(size))
