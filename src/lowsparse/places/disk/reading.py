"""Mapped files gone through in pieces: the next piece is brought in while this one is used, and let go after it.

Of a file in the page cache nothing is copied: its pages are put into the tables of the process, many at a time, which
takes a quarter of the time of reading them. Where the system cannot do that ahead, they come as they are touched.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from numpy.typing import NDArray

__all__ = ["in_large_pages", "through"]

AT_ONCE = 1 << 23  # bytes that are brought in by one call, which keeps other threads of Python waiting
POPULATE_READ = 22  # of Linux; Python has no name for it


def through(arrays: Sequence[NDArray[Any]], parts: Sequence[slice]) -> Iterator[slice]:
    """The parts, one after the other, of mapped arrays.

    >>> import numpy as np
    >>> x = np.arange(5.0)  # of an array in memory nothing has to be brought in
    >>> [float(x[part].sum()) for part in through([x], [slice(0, 3), slice(3, 5)])]
    [3.0, 7.0]
    """

    def bring(part: slice) -> None:
        for array in arrays:
            _bring(array, part)

    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(bring, parts[0])
        for k, part in enumerate(parts):
            coming.result()
            if k + 1 < len(parts):
                coming = thread.submit(bring, parts[k + 1])
            try:
                yield part
            finally:
                for array in arrays:
                    _let_go(array, part)


def in_large_pages(array: NDArray[Any]) -> None:
    """Have a mapped array read from disk, and mapped, in pages of megabytes, where the system can.

    Such a file comes from disk in half the time, and mapping it costs next to nothing.
    """
    mapped: mmap.mmap | None = getattr(array, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without them
            mapped.madvise(mmap.MADV_HUGEPAGE)


def _let_go(array: NDArray[Any], part: slice) -> None:
    """A part of a mapped array need not be in the memory of the process any more."""
    found = _pages(array, part)
    if found is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped, first, size = found
        mapped.madvise(mmap.MADV_DONTNEED, first, size)


def _bring(array: NDArray[Any], part: slice) -> None:
    found = _pages(array, part)
    if found is None or sys.platform != "linux":
        return
    mapped, first, size = found
    for done in range(0, size, AT_ONCE):
        try:
            mapped.madvise(POPULATE_READ, first + done, min(AT_ONCE, size - done))
        except OSError:  # before Linux 5.14; or it cannot be read, which whoever touches it will hear
            return


def _pages(array: NDArray[Any], part: slice) -> tuple[mmap.mmap, int, int] | None:
    """The whole pages that hold a part, in the map of the array: where they begin, and their bytes."""
    mapped: mmap.mmap | None = getattr(array, "_mmap", None)
    if mapped is None or part.stop <= part.start:
        return None
    offset = array.offset % mmap.ALLOCATIONGRANULARITY  # type: ignore[attr-defined]
    first = (offset + part.start * array.itemsize) // mmap.PAGESIZE * mmap.PAGESIZE
    end = min(-(-(offset + part.stop * array.itemsize) // mmap.PAGESIZE) * mmap.PAGESIZE, len(mapped))
    return mapped, first, end - first
