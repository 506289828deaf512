"""Compressed columns on disk: three `.npy` files that can be mapped, and a manifest with checksums.

A side of a matrix is a folder:

    manifest.json   format, shape, nnz, dtype, source, and the blocks: [first column, end, checksum] each
    indptr.npy      n + 1 integers of 64 bits: where each column starts
    rows.npy        nnz integers of 32 bits, ascending inside each column
    values.npy      nnz numbers of 32 or 64 bits

This is the layout of `ObservedMatrix`; anything that reads `.npy` files can read it. The checksum of a block is the
CRC-32 of its rows followed by its values, as they are stored. The folder is written under another name and renamed when
it is complete: what has its name is whole.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import secrets
import shutil
import sys
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["FORMAT", "CorruptStoreError", "Side", "Writer", "in_large_pages", "ranges", "read_ahead", "remove_side"]

FORMAT = 1
ANEW = "remove it, and make it anew"  # what to do with a matrix on disk that is not whole
HEADER = 128  # bytes of an .npy file before its numbers
ENDINGS = ("indptr", "rows", "values")


class CorruptStoreError(ValueError):
    """What is on disk is not what was written there."""


def ranges(indptr: NDArray[np.int64], most: int) -> list[tuple[int, int]]:
    """Consecutive columns with up to `most` entries together, or single ones with more; all about equally large.

    >>> ranges(np.array([0, 2, 4, 6, 8]), 4)
    [(0, 2), (2, 4)]
    """
    nnz = int(indptr[-1])
    pieces = max(1, -(-nnz // most))
    goals = np.arange(1, pieces) * (nnz / pieces)
    cuts = np.searchsorted(indptr, goals, side="right") - 1
    edges = np.unique(np.concatenate([[0], cuts, [indptr.size - 1]]))
    return list(pairwise(edges.tolist()))


# ---------------------------------------------------------------------- writing


class Writer:
    """A side to be written, a few columns at a time; it appears when the context is left.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Writer(Path(folder.name, "columns"), 3, np.float64) as writer:
    ...     writer.append([2, 0], [0, 2], [1.0, 2.0])
    ...     writer.append([1], [1], [3.0])
    >>> Side.open(Path(folder.name, "columns"))
    Side(3 x 3, 3 entries)
    >>> folder.cleanup()
    """

    def __init__(self, path: Path, rows: int, dtype: Any, source: str = "") -> None:
        self.path, self.height, self.dtype, self.source = path, rows, np.dtype(dtype), source
        self.temporary = path.with_name(f".{path.name}.part-{secrets.token_hex(4)}")
        self.counts: list[NDArray[np.int64]] = []
        self.blocks: list[tuple[int, int, int]] = []
        self.columns = self.entries = 0
        self._files: list[BinaryIO] = []

    def __enter__(self) -> Self:
        self.temporary.mkdir(parents=True)
        for name in ENDINGS[1:]:
            self._files.append(open(self.temporary / f"{name}.npy", "wb"))
            self._files[-1].write(bytes(HEADER))
        return self

    def append(self, counts: Any, rows: Any, values: Any) -> None:
        """The next columns: how many entries each has, their rows, which ascend in each, and values."""
        counts = np.asarray(counts, np.int64)
        parts = np.ascontiguousarray(rows, np.int32), np.ascontiguousarray(values, self.dtype)
        checksum = 0
        for file, part in zip(self._files, parts, strict=True):
            checksum = zlib.crc32(part.data, checksum)
            file.write(part.data)
        self.counts.append(counts)
        self.blocks.append((self.columns, self.columns + counts.size, checksum))
        self.columns += counts.size
        self.entries += parts[0].size

    def _complete(self) -> None:
        kinds = np.dtype(np.int32), self.dtype
        for file, kind in zip(self._files, kinds, strict=True):
            file.seek(0)
            file.write(_header(kind, self.entries))
            file.close()
        counts = np.concatenate([np.zeros(1, np.int64), *self.counts])
        with open(self.temporary / "indptr.npy", "wb") as file:
            file.write(_header(np.dtype(np.int64), counts.size))
            file.write(np.cumsum(counts).data)
        manifest = {
            "format": FORMAT,
            "shape": [self.height, self.columns],
            "nnz": self.entries,
            "dtype": self.dtype.str,
            "source": self.source,
            "blocks": self.blocks,
        }
        (self.temporary / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        remove_side(self.path)
        os.replace(self.temporary, self.path)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._complete()
        finally:
            for file in self._files:
                file.close()
            shutil.rmtree(self.temporary, ignore_errors=True)


def remove_side(path: Path) -> None:
    """Remove what a `Writer` has written, if it is there, and raise if there is anything else.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "mine.txt").write_text("not to be lost")
    ...     remove_side(Path(folder))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FileExistsError: ... holds mine.txt, no part of a matrix on disk: choose another folder
    """
    if not path.exists():
        return
    own = {"manifest.json", *(f"{name}.npy" for name in ENDINGS)}
    others = sorted({one.name for one in path.iterdir()} - own) if path.is_dir() else [path.name]
    if others:
        raise FileExistsError(f"{path} holds {others[0]}, no part of a matrix on disk: choose another folder")
    shutil.rmtree(path)


def _header(dtype: np.dtype[Any], size: int) -> bytes:
    """Of an `.npy` file, always of the same length."""
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({size},), }}"
    return b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little") + text.ljust(HEADER - 11).encode() + b"\n"


# ---------------------------------------------------------------------- reading


@dataclass(frozen=True, eq=False, repr=False)
class Side:
    """The compressed columns of a matrix, mapped from disk."""

    path: Path
    shape: tuple[int, int]
    indptr: NDArray[np.int64]
    rows: NDArray[np.int32]
    values: NDArray[np.floating[Any]]
    source: str  # what it was made from
    blocks: list[tuple[int, int, int]]  # first column, end, checksum

    @classmethod
    def open(cls, path: Path) -> Self:
        """Map a side; its size is checked, its entries are when `verify` is called."""
        try:
            manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
            known, (m, n), nnz = manifest["format"], manifest["shape"], manifest["nnz"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CorruptStoreError(
                f"{path} is no matrix on disk: its manifest.json cannot be read ({error}); "
                "StoredMatrix.build(data, folder) makes one"
            ) from error
        if known != FORMAT:
            raise CorruptStoreError(
                f"{path} has format {known}; this version of lowsparse reads format {FORMAT}: {ANEW}"
            )
        arrays = [_mapped(path / f"{name}.npy") for name in ENDINGS]
        expected = (n + 1, np.int64), (nnz, np.int32), (nnz, np.dtype(manifest["dtype"]))
        for name, array, (size, dtype) in zip(ENDINGS, arrays, expected, strict=True):
            if array.shape != (size,) or array.dtype != dtype:
                said = f"{array.shape} of {array.dtype}, not ({size},) of {np.dtype(dtype)}"
                raise CorruptStoreError(f"{path / name}.npy holds {said}: {ANEW}")
        indptr = np.array(arrays[0])
        if indptr[0] or indptr[-1] != nnz or (np.diff(indptr) < 0).any():
            raise CorruptStoreError(f"{path / 'indptr.npy'} does not ascend from 0 to {nnz}: {ANEW}")
        blocks = [(int(a), int(b), int(c)) for a, b, c in manifest["blocks"]]
        return cls(path, (m, n), indptr, arrays[1], arrays[2], str(manifest["source"]), blocks)

    @property
    def nnz(self) -> int:
        """Entries."""
        return int(self.indptr[-1])

    def verify(self, columns: slice = slice(0, None)) -> None:
        """Read the blocks that have these columns once; raise if one is not what was written."""
        begin, stop, _ = columns.indices(self.shape[1])
        blocks = [block for block in self.blocks if block[1] > begin and block[0] < stop]
        if not blocks:
            return
        parts = [slice(int(self.indptr[first]), int(self.indptr[end])) for first, end, _ in blocks]
        for (first, end, checksum), part in zip(blocks, read_ahead((self.rows, self.values), parts), strict=True):
            if zlib.crc32(self.values[part].data, zlib.crc32(self.rows[part].data)) != checksum:
                raise CorruptStoreError(
                    f"{self.path} is damaged: the block of the columns {first} to {end - 1} is not what was written; "
                    + ANEW
                )

    def ranges(self, most: int) -> list[tuple[int, int]]:
        """Its columns in ranges with up to `most` entries."""
        return ranges(self.indptr, most)

    def __repr__(self) -> str:
        return f"Side({self.shape[0]} x {self.shape[1]}, {self.nnz} entries)"


def _mapped(path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise CorruptStoreError(f"{path} cannot be read: {error}; {ANEW}") from error
    in_large_pages(array)
    return array


AT_ONCE = 1 << 23  # bytes that are brought in by one call, which keeps other threads of Python waiting
POPULATE_READ = 22  # of Linux; Python has no name for it


def read_ahead(arrays: Sequence[NDArray[Any]], parts: Sequence[slice]) -> Iterator[slice]:
    """The parts, one after the other, of mapped arrays.

    >>> import numpy as np
    >>> x = np.arange(5.0)  # of an array in memory nothing has to be brought in
    >>> [float(x[part].sum()) for part in read_ahead([x], [slice(0, 3), slice(3, 5)])]
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
