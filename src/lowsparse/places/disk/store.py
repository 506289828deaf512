"""Compressed columns on disk: three `.npy` files that can be mapped, and a manifest with checksums.

A side of a matrix is a folder:

    manifest.json   format, shape, nnz, dtype, source, and the blocks: [first column, end, checksum] each
    indptr.npy      n + 1 integers of 64 bits: where each column starts
    rows.npy        nnz integers of 32 bits, ascending inside each column
    values.npy      nnz numbers of 32 or 64 bits

This is the layout of `ObservedMatrix`; anything that reads `.npy` files can read it. The checksum of a block is the
CRC-32 of its rows followed by its values, as they are stored. The folder is written under another name and renamed when
it is complete.
"""

import json
import mmap
import operator
import sys
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ...entries.compressed import check_compressed, check_shape
from ...support.files import remove_at_once, replacing

FORMAT = 1
REBUILD = "remove it, and build it again"  # the advice for a damaged matrix on disk
HEADER = 128  # bytes of an .npy file before its numbers
ARRAYS = ("indptr", "rows", "values")


class CorruptStoreError(ValueError):
    """The files of a matrix on disk are damaged, incomplete or of another format."""


def split_columns(indptr: NDArray[np.int64], max_entries: int) -> list[tuple[int, int]]:
    """Split columns into ranges of similar size with about `max_entries` entries, or more in a single column.

    >>> split_columns(np.array([0, 2, 4, 6, 8]), 4)
    [(0, 2), (2, 4)]
    """
    nnz = int(indptr[-1])
    pieces = max(1, -(-nnz // max_entries))
    goals = np.arange(1, pieces) * (nnz / pieces)
    cuts = np.searchsorted(indptr, goals, side="right") - 1
    edges = np.unique(np.concatenate([[0], cuts, [indptr.size - 1]]))
    return list(pairwise(edges.tolist()))


# ---------------------------------------------------------------------- writing


class SideWriter:
    """Writes the arrays of a side, a few columns at a time; `write_side` opens one."""

    def __init__(self, n_rows: int, dtype: DTypeLike, files: tuple[BinaryIO, BinaryIO]) -> None:
        self.n_rows, self.dtype, self._files = n_rows, np.dtype(dtype), files
        self.counts: list[NDArray[np.int64]] = []
        self.blocks: list[tuple[int, int, int]] = []
        self.columns = self.entries = 0
        for file in files:
            file.write(bytes(HEADER))

    def append(self, counts: ArrayLike, rows: ArrayLike, values: ArrayLike) -> None:
        """Append columns: the number of entries of each, their rows, ascending in each column, and their values."""
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


@contextmanager
def write_side(path: Path, n_rows: int, dtype: DTypeLike, source: str = "") -> Iterator[SideWriter]:
    """Write a side, which replaces an earlier one when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.mkdir()
        with open(temporary / "rows.npy", "wb") as rows, open(temporary / "values.npy", "wb") as values:
            writer = SideWriter(n_rows, dtype, (rows, values))
            yield writer
            for file, kind in ((rows, np.dtype(np.int32)), (values, writer.dtype)):  # their lengths are known now
                file.seek(0)
                file.write(_header(kind, writer.entries))
        counts = np.concatenate([np.zeros(1, np.int64), *writer.counts])
        with open(temporary / "indptr.npy", "wb") as file:
            file.write(_header(np.dtype(np.int64), counts.size))
            file.write(np.cumsum(counts).data)
        manifest = {
            "format": FORMAT,
            "shape": [n_rows, writer.columns],
            "nnz": writer.entries,
            "dtype": writer.dtype.str,
            "source": source,
            "blocks": writer.blocks,
        }
        (temporary / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        remove_side(path)


def remove_side(path: Path) -> None:
    """Remove a side, if it is there; raise if the folder holds anything else."""
    if not path.exists():
        return
    own = {"manifest.json", *(f"{name}.npy" for name in ARRAYS)}
    others = sorted({one.name for one in path.iterdir()} - own) if path.is_dir() else [path.name]
    if others:
        raise FileExistsError(f"{path} holds {others[0]}, no part of a matrix on disk: choose another folder")
    remove_at_once(path)


def _header(dtype: np.dtype[Any], size: int) -> bytes:
    """The header of an `.npy` file, always of the same length, so that it can be written last."""
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({size},), }}"
    return b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little") + text.ljust(HEADER - 11).encode() + b"\n"


# ---------------------------------------------------------------------- reading


@dataclass(frozen=True, eq=False, repr=False)
class Side:
    """The compressed columns of a matrix, mapped from disk: those of the matrix itself, or of the transposed one."""

    path: Path
    shape: tuple[int, int]
    indptr: NDArray[np.int64]
    rows: NDArray[np.int32]
    values: NDArray[np.floating[Any]]
    source: str  # what it was made from
    blocks: list[tuple[int, int, int]]  # first column, end, checksum

    @classmethod
    def open(cls, path: Path) -> Self:
        """Map a side and check its sizes; `verify` checks its entries."""
        (m, n), nnz, dtype, source, blocks = _read_manifest(path)
        arrays = [_mapped(path / f"{name}.npy") for name in ARRAYS]
        expected = (n + 1, np.dtype(np.int64)), (nnz, np.dtype(np.int32)), (nnz, dtype)
        for name, array, (size, kind) in zip(ARRAYS, arrays, expected, strict=True):
            if array.shape != (size,) or array.dtype != kind:
                content = f"{array.shape} of {array.dtype}, not ({size},) of {kind}"
                raise CorruptStoreError(f"{path / name}.npy holds {content}: {REBUILD}")
        indptr = np.array(arrays[0])
        if indptr[0] or indptr[-1] != nnz or (np.diff(indptr) < 0).any():
            raise CorruptStoreError(f"{path / 'indptr.npy'} does not ascend from 0 to {nnz}: {REBUILD}")
        return cls(path, (m, n), indptr, arrays[1], arrays[2], source, blocks)

    @property
    def nnz(self) -> int:
        """The number of entries."""
        return int(self.indptr[-1])

    def verify(self, columns: slice = slice(0, None)) -> None:
        """Compare the blocks of these columns with their checksums; raise if one is damaged.

        Rows are compared with the shape, too: compiled code uses them as they are.
        """
        begin, stop, _ = columns.indices(self.shape[1])
        blocks = [block for block in self.blocks if block[1] > begin and block[0] < stop]
        parts = [slice(int(self.indptr[first]), int(self.indptr[end])) for first, end, _ in blocks]
        for (first, end, checksum), part in zip(blocks, read_ahead((self.rows, self.values), parts), strict=True):
            rows, values = self.rows[part], self.values[part]
            where = f"{self.path} is damaged: the block of the columns {first} to {end - 1}"
            if zlib.crc32(values.data, zlib.crc32(rows.data)) != checksum:
                raise CorruptStoreError(f"{where} is not what was written; {REBUILD}")
            try:
                check_compressed((self.indptr[first : end + 1] - part.start, rows, values), end - first, self.shape[0])
            except ValueError as error:
                raise CorruptStoreError(f"{where} is no part of a matrix ({error}); {REBUILD}") from error

    def __repr__(self) -> str:
        return f"Side({self.shape[0]} x {self.shape[1]}, {self.nnz} entries)"


def _read_manifest(path: Path) -> tuple[tuple[int, int], int, np.dtype[Any], str, list[tuple[int, int, int]]]:
    """Shape, number of entries, their type, what it was made from, and the blocks, which have every column once."""
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        if (known := manifest["format"]) != FORMAT:
            raise CorruptStoreError(
                f"{path} has format {known}; this version of lowsparse reads format {FORMAT}: {REBUILD}"
            )
        m, n = check_shape(tuple(manifest["shape"]))
        nnz, dtype = operator.index(manifest["nnz"]), np.dtype(str(manifest["dtype"]))
        blocks = [(operator.index(a), operator.index(b), operator.index(c)) for a, b, c in manifest["blocks"]]
        starts, ends = [first for first, _, _ in blocks], [end for _, end, _ in blocks]
        if [0, *ends] != [*starts, n] or ends != sorted(ends):
            raise ValueError("its blocks do not cover every column once")
        if dtype not in (np.float32, np.float64):
            raise ValueError(f"its numbers are {dtype}")
        return (m, n), nnz, dtype, str(manifest["source"]), blocks
    except CorruptStoreError:
        raise
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise CorruptStoreError(
            f"{path} is no matrix on disk: its manifest.json cannot be read ({error}); "
            "StoredMatrix.build(data, folder) makes one"
        ) from error


_one_header = Lock()  # of an .npy file is read at a time: Python before 3.11.8 may fail to read two in threads


def _mapped(path: Path) -> NDArray[Any]:
    try:
        with _one_header:
            array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy raises anything on a damaged file
        raise CorruptStoreError(f"{path} cannot be read: {error}; {REBUILD}") from error
    mapped: mmap.mmap | None = getattr(array, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # huge pages, where the system has them, halve the time to read the file
            mapped.madvise(mmap.MADV_HUGEPAGE)
    return array


AT_ONCE = 1 << 23  # bytes that one call reads, during which other threads of Python wait
POPULATE_READ = 22  # MADV_POPULATE_READ of Linux, which Python has no name for


def read_ahead(arrays: Sequence[NDArray[Any]], parts: Sequence[slice]) -> Iterator[slice]:
    """Iterate over the parts of mapped arrays; a thread reads the next part from disk, and past ones are released."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(_populate, arrays, parts[0])
        for k, part in enumerate(parts):
            coming.result()
            if k + 1 < len(parts):
                coming = thread.submit(_populate, arrays, parts[k + 1])
            try:
                yield part
            finally:
                if hasattr(mmap, "MADV_DONTNEED"):
                    for mapped, first, size in _pages(arrays, part):
                        mapped.madvise(mmap.MADV_DONTNEED, first, size)


def _populate(arrays: Sequence[NDArray[Any]], part: slice) -> None:
    """Read a part of mapped arrays from disk."""
    if sys.platform != "linux":
        return
    with suppress(OSError):  # before Linux 5.14; or it cannot be read, and whoever uses it gets an error
        for mapped, first, size in _pages(arrays, part):
            for done in range(0, size, AT_ONCE):
                mapped.madvise(POPULATE_READ, first + done, min(AT_ONCE, size - done))


def _pages(arrays: Sequence[NDArray[Any]], part: slice) -> Iterator[tuple[mmap.mmap, int, int]]:
    """The pages that hold a part of mapped arrays: the map, where they begin in it, and their bytes."""
    for array in arrays:
        mapped: mmap.mmap | None = getattr(array, "_mmap", None)
        if mapped is not None and part.stop > part.start:
            offset = array.offset % mmap.ALLOCATIONGRANULARITY  # type: ignore[attr-defined]
            first = (offset + part.start * array.itemsize) // mmap.PAGESIZE * mmap.PAGESIZE
            end = min(-(-(offset + part.stop * array.itemsize) // mmap.PAGESIZE) * mmap.PAGESIZE, len(mapped))
            yield mapped, first, end - first
