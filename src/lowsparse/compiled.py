"""The compiled core, ``lowsparse._core``: whether it is there, and on how many threads it runs."""

from __future__ import annotations

import os

__all__ = ["THREADS", "instruction_set", "num_threads", "reason_unavailable"]

THREADS = ("LOWSPARSE_NUM_THREADS", "OMP_NUM_THREADS")  # what says how many, in the order in which they count

_reason: str | None = None
try:
    from lowsparse import _core
except ImportError as error:
    _reason = f"the compiled core is not there ({error}); install a C++17 compiler and reinstall lowsparse to build it"


def reason_unavailable() -> str | None:
    """None when the compiled core can be used, else why not."""
    return _reason


def num_threads() -> int:
    """Threads to use: LOWSPARSE_NUM_THREADS, else OMP_NUM_THREADS, else the cores this process may run on.

    >>> num_threads() >= 1
    True
    """
    for name in THREADS:
        text = os.environ.get(name, "").split(",")[0].strip()  # OpenMP allows a list, one number per level
        if text:
            if not text.isdecimal() or int(text) < 1:
                raise ValueError(f"{name}={text!r} is not a positive whole number")
            return min(int(text), 4096)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def instruction_set() -> str:
    """The instruction set in use: LOWSPARSE_ISA, else the best this processor has."""
    return os.environ.get("LOWSPARSE_ISA") or str(_core.instruction_sets()[0])
