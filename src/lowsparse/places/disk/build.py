"""Compressed columns on disk from entries in any order and from dense arrays, in bounded memory.

Entries are first distributed to buckets of consecutive columns, one file each, small enough to be sorted in memory;
then bucket after bucket is sorted and appended. Every entry is written twice and read twice, sequentially.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...entries.compressed import float_dtype, offsets
from ...entries.observed import ObservedMatrix
from ...support.files import TemporaryFolder
from .store import Side, SideWriter, read_ahead, split_columns, write_side

Chunk = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # rows, columns, values
OnProgress = Callable[[str, int, int], object]  # the step, how much of it is done, of how much
WORK = 6  # memory for sorting a bucket, in multiples of its bytes
BLOCK = 4_000_000  # entries with one checksum, about
PER_ENTRY = 256  # bytes of memory allowed per entry of a chunk that is transposed; it takes a quarter of that
MAX_BUCKETS = 512  # files that are open at a time
PER_NUMBER = 24  # bytes of memory per number of a slab: itself, and what is picked from it


def ignore_progress(step: str, done: int, total: int) -> None:
    """Report nothing."""


class DuplicateError(ValueError):
    """An entry that comes more than once."""

    def __init__(self, row: int, column: int) -> None:
        super().__init__(f"a duplicate: the entry in row {row}, column {column} comes more than once")
        self.row, self.column = row, column


def append_columns(writer: SideWriter, M: ObservedMatrix) -> None:
    """Append the columns of a matrix in memory."""
    counts = M.column_counts
    for first, end in split_columns(M.indptr, BLOCK):
        entries = slice(M.indptr[first], M.indptr[end])
        writer.append(counts[first:end], M.rows[entries], M.values[entries])


def sort_into(
    path: Path,
    shape: tuple[int, int],
    counts: NDArray[np.int64],
    chunks: Iterable[Chunk],
    dtype: DTypeLike,
    *,
    memory: int,
    source: str = "",
    on_progress: OnProgress = ignore_progress,
) -> None:
    """Write the side of an m x n matrix, of which `counts` are the entries of each column, from chunks in any order."""
    kind = np.dtype([("column", np.int32), ("row", np.int32), ("value", np.dtype(dtype))])
    indptr = offsets(counts)
    total = int(indptr[-1])
    ranges = split_columns(indptr, max(memory // (WORK * kind.itemsize), -(-total // MAX_BUCKETS), 1))
    with TemporaryFolder(f".{path.name}.buckets-", path.parent) as folder:
        names = [folder / str(k) for k in range(len(ranges))]
        done = 0
        for chunk in chunks:
            done += _distribute(chunk, names, np.array([first for first, _ in ranges]), kind)
            on_progress("sorting", done, 2 * total)
        if done != total:
            raise ValueError(
                f"{done} entries were read, but {total} were counted before: the source has changed meanwhile"
            )
        with write_side(path, shape[0], dtype, source) as writer:
            for name, (first, end) in zip(names, ranges, strict=True):
                entries = np.fromfile(name, kind) if name.exists() else np.empty(0, kind)
                name.unlink(missing_ok=True)
                _append_bucket(writer, entries, first, end)
                on_progress("sorting", total + writer.entries, 2 * total)


def _distribute(chunk: Chunk, names: list[Path], firsts: NDArray[np.int64], kind: np.dtype[Any]) -> int:
    """Append the entries of a chunk to the buckets of their columns; returns how many there are."""
    rows, columns, values = chunk
    bucket = np.searchsorted(firsts, columns, side="right") - 1
    order = np.argsort(bucket, kind="stable")
    entries = np.empty(order.size, kind)
    for field, numbers in (("column", columns), ("row", rows), ("value", values)):
        entries[field] = np.asarray(numbers)[order]
    cuts = np.searchsorted(bucket[order], np.arange(len(names) + 1))
    for k in np.flatnonzero(np.diff(cuts)):
        with open(names[k], "ab") as file:
            file.write(entries[cuts[k] : cuts[k + 1]].data)
    return order.size


def _append_bucket(writer: SideWriter, entries: NDArray[Any], first: int, end: int) -> None:
    if not entries.size:
        writer.append(np.zeros(end - first, np.int64), [], [])
        return
    rows, columns, m = entries["row"], entries["column"], writer.n_rows
    try:
        M = ObservedMatrix.from_coo(rows, columns - first, entries["value"], (m, end - first))
    except ValueError as error:
        keys = np.sort(columns.astype(np.int64) * m + rows)
        duplicates = keys[1:][keys[1:] == keys[:-1]]
        if duplicates.size:
            column, row = divmod(int(duplicates[0]), m)
            raise DuplicateError(row, column) from error
        raise ValueError(f"among the columns {first} to {end - 1} (counted there from 0): {error}") from error
    append_columns(writer, M)


def transpose(folder: Path, side: str, memory: int, on_progress: OnProgress) -> None:
    """Write the other side of a matrix on disk: the transposed matrix."""
    origin = Side.open(folder / side)
    m, n = origin.shape
    ranges = split_columns(origin.indptr, max(1, memory // PER_ENTRY))
    parts = [slice(int(origin.indptr[first]), int(origin.indptr[end])) for first, end in ranges]
    counts = np.zeros(m, np.int64)
    for part in read_ahead([origin.rows], parts):
        counts += np.bincount(origin.rows[part], minlength=m)

    def chunks() -> Iterator[Chunk]:
        for (first, end), part in zip(ranges, read_ahead([origin.rows, origin.values], parts), strict=True):
            columns = np.repeat(np.arange(first, end, dtype=np.int32), np.diff(origin.indptr[first : end + 1]))
            yield columns, origin.rows[part], origin.values[part]

    other = folder / ("columns" if side == "rows" else "rows")
    dtype, source = origin.values.dtype, origin.source
    sort_into(other, (n, m), counts, chunks(), dtype, memory=memory // 2, source=source, on_progress=on_progress)


def write_dense(X: Any, stamp: str, folder: Path, memory: int, on_progress: OnProgress) -> None:
    """Write an array. One stored by rows, in memory or in chunks, is read by rows and transposed on disk."""
    if len(X.shape) != 2:
        raise ValueError(f"a matrix has two dimensions, not {len(X.shape)}")
    by_rows = _is_stored_by_rows(X)
    lines, length = X.shape if by_rows else X.shape[::-1]
    kind = float_dtype(np.dtype(X.dtype))
    side = "rows" if by_rows else "columns"
    with write_side(folder / side, length, kind, stamp) as writer:
        for first, end in _slabs(_chunk_edges(X, 0 if by_rows else 1), max(1, memory // (PER_NUMBER * length))):
            part = np.asarray(X[first:end] if by_rows else X[:, first:end])
            _append_dense(writer, part.T if by_rows else part, kind, f"among the {side} {first} to {end - 1}")
            on_progress("reading", end, lines)
    if by_rows:
        transpose(folder, "rows", memory, on_progress)


def write_frames(film: Any, stamp: str, folder: Path, memory: int, on_progress: OnProgress) -> None:
    """Write a video: a column for each frame and a row for each pixel, grey levels from 0 to 1."""
    slabs = _stack((frame.picture.luma.reshape(-1) for frame in film), memory)
    first = next(slabs, None)
    if first is None:
        raise ValueError(f"{film.name} has no frame")
    done = 0
    with write_side(folder / "columns", len(first), np.float32, stamp) as writer:
        for slab in chain([first], slabs):
            _append_dense(writer, slab / np.float32(255), np.float32, film.name)
            done += slab.shape[1]
            on_progress("reading", done, film.length or done)


def _stack(columns: Iterator[NDArray[Any]], memory: int) -> Iterator[NDArray[Any]]:
    """Stack columns, as many at a time as fit into the memory."""
    stack: list[NDArray[Any]] = []
    for column in columns:
        stack.append(column)
        if len(stack) * column.size * PER_NUMBER >= memory:
            yield np.stack(stack, axis=1)
            stack.clear()
    if stack:
        yield np.stack(stack, axis=1)


def _is_stored_by_rows(X: Any) -> bool:
    if getattr(X, "chunks", None):
        rows, columns = (len(_chunk_edges(X, axis)) for axis in (0, 1))
        return rows > columns
    return isinstance(X, np.ndarray) and X.flags.c_contiguous and not X.flags.f_contiguous


def _chunk_edges(X: Any, axis: int) -> list[int]:
    """Where the chunks of an array begin along an axis, and where the last one ends."""
    size, chunks = X.shape[axis], getattr(X, "chunks", None)
    if not chunks:
        return [0, size]
    own = chunks[axis]
    return [*range(0, size, own), size] if isinstance(own, int) else [0, *np.cumsum(own).tolist()]


def _slabs(edges: list[int], width: int) -> Iterator[tuple[int, int]]:
    """Ranges of up to `width` lines, of whole chunks if these are not larger.

    >>> list(_slabs([0, 4, 8, 20], 9))
    [(0, 8), (8, 17), (17, 20)]
    """
    begun = 0
    for first, end in pairwise(edges):
        if end - begun > width and first > begun:
            yield begun, first
            begun = first
        while end - begun > width:
            yield begun, begun + width
            begun += width
    if begun < edges[-1]:
        yield begun, edges[-1]


def _append_dense(writer: SideWriter, X: NDArray[Any], kind: DTypeLike, where: str) -> None:
    X = np.asarray(X, dtype=kind)
    if np.isnan(X).all():
        writer.append(np.zeros(X.shape[1], np.int64), [], [])
        return
    try:
        M = ObservedMatrix.from_dense(X)
    except ValueError as error:
        raise ValueError(f"{where} (counted there from 0): {error}") from error
    append_columns(writer, M)
