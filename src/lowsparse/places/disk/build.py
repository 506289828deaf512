"""Compressed columns on disk from entries in any order and from dense arrays, in bounded memory.

Entries are first dealt into buckets of consecutive columns, files of their own, each small enough to be sorted in
memory; then bucket after bucket is sorted and appended. Every entry is written twice and read twice, in long runs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...entries.compressed import float_dtype
from ...entries.observed import ObservedMatrix
from .store import Side, Writer, read_ahead

__all__ = ["Chunk", "DuplicateError", "OnProgress", "append_columns", "dense", "frames", "sort_into", "transpose"]

Chunk = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # rows, columns, values
OnProgress = Callable[[str, int, int], object]  # what is done, how much of it, of how much
WORK = 6  # times its bytes: what sorting a bucket takes
BLOCK = 4_000_000  # entries that have a checksum together, about
PER_ENTRY = 256  # bytes of memory for each entry of a chunk that is turned: a quarter of it, beside what else there is
MOST_BUCKETS = 512  # files open at a time
AT_ONCE = 24  # bytes for each number of a slab: itself, and what is picked from it


class DuplicateError(ValueError):
    """An entry that comes more than once.

    >>> str(DuplicateError(3, 4))
    'a duplicate: the entry in row 3, column 4 comes more than once'
    """

    def __init__(self, row: int, column: int) -> None:
        super().__init__(f"a duplicate: the entry in row {row}, column {column} comes more than once")
        self.row, self.column = row, column


def append_columns(writer: Writer, M: ObservedMatrix) -> None:
    """The columns of a matrix in memory, as the next ones."""
    counts, first = M.column_counts, 0
    while first < counts.size:
        end = max(int(np.searchsorted(M.indptr, M.indptr[first] + BLOCK, side="right")) - 1, first + 1)
        entries = slice(M.indptr[first], M.indptr[end])
        writer.append(counts[first:end], M.rows[entries], M.values[entries])
        first = end


def sort_into(
    path: Path,
    shape: tuple[int, int],
    counts: NDArray[np.int64],
    chunks: Iterable[Chunk],
    dtype: Any,
    *,
    memory: int,
    source: str = "",
    on_progress: Callable[[int, int], object] | None = None,
) -> None:
    """Write the side of an m x n matrix from its entries, which come in chunks and in any order.

    `counts` are those of its columns; `on_progress` hears how many entries have been dealt and sorted, of how many.

    >>> import tempfile
    >>> from lowsparse.places.disk.store import Side
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     chunks = [([1, 0], [1, 0], [5.0, 6.0]), ([0], [1], [7.0])]
    ...     sort_into(Path(folder, "columns"), (2, 2), np.array([1, 2]), chunks, np.float64, memory=10**6)
    ...     np.asarray(Side.open(Path(folder, "columns")).values).tolist()
    [6.0, 7.0, 5.0]
    """
    kind = np.dtype([("column", np.int32), ("row", np.int32), ("value", np.dtype(dtype))])
    indptr = np.concatenate([[0], np.cumsum(counts)])
    total = int(indptr[-1])
    each = max(memory // (WORK * kind.itemsize), -(-total // MOST_BUCKETS), 1)
    goals = np.arange(each, total, each)
    edges = np.unique(np.concatenate([[0], np.searchsorted(indptr, goals, side="right") - 1, [shape[1]]]))
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.dealt-") as folder:
        names = [Path(folder, str(k)) for k in range(edges.size - 1)]
        done = _deal(names, edges, chunks, kind, lambda many: on_progress and on_progress(many, 2 * total))
        if done != total:
            raise ValueError(f"{done} entries came, but {total} were counted: the source has changed meanwhile")
        with Writer(path, shape[0], dtype, source) as writer:
            for name, first, end in zip(names, edges[:-1], edges[1:], strict=True):
                dealt = np.fromfile(name, kind) if name.exists() else np.empty(0, kind)
                name.unlink(missing_ok=True)
                _append_bucket(writer, dealt, int(first), int(end))
                if on_progress is not None:
                    on_progress(total + writer.entries, 2 * total)


def _deal(
    names: list[Path],
    edges: NDArray[np.int64],
    chunks: Iterable[Chunk],
    kind: np.dtype[Any],
    on_progress: Callable[[int], object],
) -> int:
    """Append the entries of each chunk to the buckets they belong to; how many there were."""
    done = 0
    for rows, columns, values in chunks:
        bucket = np.searchsorted(edges, columns, side="right") - 1
        order = np.argsort(bucket, kind="stable")
        dealt = np.empty(order.size, kind)
        for field, numbers in (("column", columns), ("row", rows), ("value", values)):
            dealt[field] = np.asarray(numbers)[order]
        cuts = np.searchsorted(bucket[order], np.arange(len(names) + 1))
        for k in np.flatnonzero(np.diff(cuts)):
            with open(names[k], "ab") as file:
                file.write(dealt[cuts[k] : cuts[k + 1]].data)
        done += order.size
        on_progress(done)
    return done


def _append_bucket(writer: Writer, dealt: NDArray[Any], first: int, end: int) -> None:
    if not dealt.size:
        writer.append(np.zeros(end - first, np.int64), [], [])
        return
    try:
        M = ObservedMatrix.from_coo(dealt["row"], dealt["column"] - first, dealt["value"], (writer.height, end - first))
    except ValueError as error:
        place = np.sort(dealt["column"].astype(np.int64) * writer.height + dealt["row"])
        twice = place[1:][place[1:] == place[:-1]]
        if twice.size:
            column, row = divmod(int(twice[0]), writer.height)
            raise DuplicateError(row, column) from error
        raise ValueError(f"among the columns {first} to {end - 1} (counted there from 0): {error}") from error
    append_columns(writer, M)


def transpose(folder: Path, side: str, memory: int, on_progress: OnProgress) -> None:
    """The other side of a matrix on disk: the same entries, sorted by the other lines."""
    have = Side.open(folder / side)
    m, n = have.shape
    pieces = have.ranges(max(1, memory // PER_ENTRY))
    parts = [slice(int(have.indptr[first]), int(have.indptr[end])) for first, end in pieces]
    counts = np.zeros(m, np.int64)
    for part in read_ahead([have.rows], parts):
        counts += np.bincount(have.rows[part], minlength=m)

    def chunks() -> Iterator[Chunk]:
        for (first, end), part in zip(pieces, read_ahead([have.rows, have.values], parts), strict=True):
            columns = np.repeat(np.arange(first, end, dtype=np.int32), np.diff(have.indptr[first : end + 1]))
            yield columns, have.rows[part], have.values[part]

    other = folder / ("columns" if side == "rows" else "rows")
    sort_into(
        other,
        (n, m),
        counts,
        chunks(),
        have.values.dtype,
        memory=memory // 2,
        source=have.source,
        on_progress=lambda done, of: on_progress("sorting", done, of),
    )


def dense(X: Any, stamp: str, folder: Path, memory: int, on_progress: OnProgress) -> None:
    """An array. One whose rows are together, in memory or in chunks, is read by rows, and turned on disk."""
    if len(X.shape) != 2:
        raise ValueError(f"a matrix has two dimensions, not {len(X.shape)}")
    by_rows = _by_rows(X)
    lines, length = X.shape if by_rows else X.shape[::-1]
    kind = float_dtype(np.dtype(X.dtype))
    side = "rows" if by_rows else "columns"
    with Writer(folder / side, length, kind, stamp) as writer:
        for first, end in _slabs(_edges(X, 0 if by_rows else 1), max(1, memory // (AT_ONCE * length))):
            part = np.asarray(X[first:end] if by_rows else X[:, first:end])
            _append(writer, part.T if by_rows else part, kind, f"among the {side} {first} to {end - 1}")
            on_progress("reading", end, lines)
    if by_rows:
        transpose(folder, "rows", memory, on_progress)


def frames(film: Any, stamp: str, folder: Path, memory: int, on_progress: OnProgress) -> None:
    """A video: a column for each frame and a row for each pixel, grey levels from 0 to 1."""
    slabs = _gathered((frame.picture.luma.reshape(-1) for frame in film), memory)
    first = next(slabs, None)
    if first is None:
        raise ValueError(f"{film.name} has no frame")
    done = 0
    with Writer(folder / "columns", len(first), np.float32, stamp) as writer:
        for slab in chain([first], slabs):
            _append(writer, slab / np.float32(255), np.float32, film.name)
            done += slab.shape[1]
            on_progress("reading", done, film.length or done)


def _gathered(columns: Iterator[NDArray[Any]], memory: int) -> Iterator[NDArray[Any]]:
    """Columns side by side, as many as fit."""
    held: list[NDArray[Any]] = []
    for column in columns:
        held.append(column)
        if len(held) * column.size * AT_ONCE >= memory:
            yield np.stack(held, axis=1)
            held.clear()
    if held:
        yield np.stack(held, axis=1)


def _by_rows(X: Any) -> bool:
    if getattr(X, "chunks", None):
        rows, columns = (len(_edges(X, axis)) for axis in (0, 1))
        return rows > columns
    return isinstance(X, np.ndarray) and X.flags.c_contiguous and not X.flags.f_contiguous


def _edges(X: Any, axis: int) -> list[int]:
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


def _append(writer: Writer, X: NDArray[Any], kind: Any, where: str) -> None:
    X = np.asarray(X, dtype=kind)
    if np.isnan(X).all():
        writer.append(np.zeros(X.shape[1], np.int64), [], [])
        return
    try:
        M = ObservedMatrix.from_dense(X)
    except ValueError as error:
        raise ValueError(f"{where} (counted there from 0): {error}") from error
    append_columns(writer, M)
