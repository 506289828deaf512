"""Compressed columns on disk from entries in any order, in bounded memory.

Entries are first dealt into buckets of consecutive columns, files of their own, each small enough to be sorted in
memory; then bucket after bucket is sorted and appended. Every entry is written twice and read twice, in long runs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...entries.observed import ObservedMatrix
from .reading import through
from .store import Side, Writer

__all__ = ["Chunk", "DuplicateError", "Told", "append_columns", "sort_into", "turn"]

Chunk = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # rows, columns, values
Told = Callable[[str, int, int], object]  # what is done, how much of it, of how much
WORK = 6  # times its bytes: what sorting a bucket takes
BLOCK = 4_000_000  # entries that have a checksum together, about
PER_ENTRY = 256  # bytes of memory for each entry of a chunk that is turned: a quarter of it, beside what else there is
MOST_BUCKETS = 512  # files open at a time


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
    told: Callable[[int, int], object] | None = None,
) -> None:
    """Write the side of an m x n matrix from its entries, which come in chunks and in any order.

    `counts` are those of its columns; `told` hears how many entries have been dealt and sorted, of how many.

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
        done = _deal(names, edges, chunks, kind, lambda many: told and told(many, 2 * total))
        if done != total:
            raise ValueError(f"{done} entries came, but {total} were counted: the source has changed meanwhile")
        with Writer(path, shape[0], dtype, source) as writer:
            for name, first, end in zip(names, edges[:-1], edges[1:], strict=True):
                dealt = np.fromfile(name, kind) if name.exists() else np.empty(0, kind)
                name.unlink(missing_ok=True)
                _append_bucket(writer, dealt, int(first), int(end))
                if told is not None:
                    told(total + writer.entries, 2 * total)


def _deal(
    names: list[Path],
    edges: NDArray[np.int64],
    chunks: Iterable[Chunk],
    kind: np.dtype[Any],
    told: Callable[[int], object],
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
        told(done)
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


def turn(folder: Path, side: str, memory: int, told: Told) -> None:
    """The other side of a matrix on disk: the same entries, sorted by the other lines."""
    have = Side.open(folder / side)
    m, n = have.shape
    pieces = have.ranges(max(1, memory // PER_ENTRY))
    parts = [slice(int(have.indptr[first]), int(have.indptr[end])) for first, end in pieces]
    counts = np.zeros(m, np.int64)
    for part in through([have.rows], parts):
        counts += np.bincount(have.rows[part], minlength=m)

    def chunks() -> Iterator[Chunk]:
        for (first, end), part in zip(pieces, through([have.rows, have.values], parts), strict=True):
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
        told=lambda done, of: told("sorting", done, of),
    )
