"""Memory that is free, and given back to the system."""

import ctypes
import sys


def release_memory() -> None:
    """Give free memory of the heap back to the system, where the C library keeps it and can be asked (glibc).

    After large arrays of many sizes it holds on to what they took, often more than the arrays that are left.
    """
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
