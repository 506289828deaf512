"""Pieces of a file, one after the other, the next one read while this one is used; in two buffers that stay.

Reading into memory that is there costs less than mapping the file does: a page that is mapped has to be looked up, put
into the tables of the process, and taken out again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .store import HEADER, Side

__all__ = ["Reader"]

AT_ONCE = 1 << 26  # bytes


class Reader:
    """Ranges of entries of a side, as arrays that are valid until the next but one is asked for.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from lowsparse.blocks.store import Writer
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Writer(Path(folder.name, "columns"), 3, np.float64) as writer:
    ...     writer.append([2, 1], [0, 2, 1], [1.0, 2.0, 3.0])
    >>> reader = Reader(Side.open(Path(folder.name, "columns")), [slice(0, 2), slice(2, 3)])
    >>> [(rows.tolist(), values.tolist()) for rows, values in reader.read()]
    [([0, 2], [1.0, 2.0]), ([1], [3.0])]
    >>> folder.cleanup()
    """

    def __init__(self, side: Side, ranges: Sequence[slice]) -> None:
        self.paths = [side.path / f"{name}.npy" for name in ("rows", "values")]
        self.kinds = side.rows.dtype, side.values.dtype
        self.ranges = list(ranges)
        self.largest = max(part.stop - part.start for part in self.ranges)
        self._buffers: list[list[NDArray[Any]]] = []

    def read(self) -> Iterator[tuple[NDArray[np.int32], NDArray[Any]]]:
        """Rows and values of each range."""
        if not self._buffers:
            several = min(2, len(self.ranges))
            self._buffers = [[np.empty(self.largest, kind) for kind in self.kinds] for _ in range(several)]
        files = [open(path, "rb", buffering=0) for path in self.paths]  # noqa: SIM115
        try:
            with ThreadPoolExecutor(1) as thread:
                coming = thread.submit(self._fill, files, 0)
                for k in range(len(self.ranges)):
                    rows, values = coming.result()
                    if k + 1 < len(self.ranges):
                        coming = thread.submit(self._fill, files, k + 1)
                    yield rows, values
        finally:
            for file in files:
                file.close()

    def _fill(self, files: list[Any], k: int) -> tuple[NDArray[Any], NDArray[Any]]:
        part = self.ranges[k]
        rows, values = (
            _read(file, buffer[: part.stop - part.start], part.start)
            for file, buffer in zip(files, self._buffers[k % len(self._buffers)], strict=True)
        )
        return rows, values


def _read(file: Any, out: NDArray[Any], first: int) -> NDArray[Any]:
    """Fill an array with the numbers of an `.npy` file from the place `first` on."""
    view, done = memoryview(out.data).cast("B") if out.size else memoryview(b""), 0
    file.seek(HEADER + first * out.itemsize)
    while done < len(view):
        got = file.readinto(view[done : done + AT_ONCE])
        if not got:
            raise OSError(f"{os.fspath(file.name)} ends too soon")
        done += got
    return out
