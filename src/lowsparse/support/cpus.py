"""The processors this process may use: those of the machine, less what affinity and its container leave out."""

import functools
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

MEMBERSHIP = Path("/proc/self/cgroup")  # the control groups of this process
CGROUPS = Path("/sys/fs/cgroup")


def available_cpus() -> int:
    """How many processors this process may keep busy.

    >>> 1 <= available_cpus() <= os.cpu_count()
    True
    """
    count: int | None
    if hasattr(os, "process_cpu_count"):  # from Python 3.13 on
        count = os.process_cpu_count()
    elif hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count()
    limit = cpu_limit()
    return (count or 1) if limit is None else min(count or 1, math.ceil(limit))


@functools.cache
def cpu_limit() -> float | None:
    """The CPU limit of the control groups this process is in (a container, a service), in processors, or None.

    It is looked for once, which takes part of a millisecond.
    """
    limits = (_limit_of(group) for group in _own_groups())
    return min((limit for limit in limits if limit), default=None)


def _own_groups() -> Iterator[Path]:
    """The folders of those groups; the limit of a parent counts too. Some may not exist, as in a container."""
    for controllers, path in re.findall(r"^\d+:([^:]*):(/.*)$", _read(MEMBERSHIP), re.MULTILINE):
        if not controllers:  # version 2, alone or beside version 1
            mounts = [CGROUPS, CGROUPS / "unified"]
        else:
            mounts = [CGROUPS / controllers] if "cpu" in controllers.split(",") else []
        group = PurePosixPath(path)
        for mount in mounts:
            yield from (mount / part.relative_to("/") for part in (group, *group.parents))


def _limit_of(group: Path) -> float:
    """Quota per period, 0 if there is none: in version 2 both are in one file."""
    both = _read(group / "cpu.max") or " ".join(_read(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    numbers = [float(text) for text in both.split() if text.isdecimal()]  # not "max", not "-1"
    return numbers[0] / numbers[1] if len(numbers) == 2 and numbers[1] else 0.0


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
