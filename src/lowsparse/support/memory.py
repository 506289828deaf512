"""Memory that is free, and given back to the system."""

import ctypes
import sys

ARENA_MAX = -8  # the number of this option of `mallopt`


def release_memory() -> None:
    """Give free memory of the heap back to the system, where the C library keeps it and can be asked (glibc).

    After large arrays of many sizes it holds on to what they took, often more than the arrays that are left.
    """
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def share_heap() -> None:
    """Let all threads that begin from now on use one heap, where the C library can be asked to (glibc).

    Otherwise each has its own, and what one has freed, others cannot take. For a process of our own: it is for good.
    """
    if sys.platform.startswith("linux"):
        option = getattr(ctypes.CDLL(None), "mallopt", None)
        if option is not None:
            option(ARENA_MAX, 1)
