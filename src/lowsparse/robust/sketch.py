"""Parts of the data: rows and columns to learn a subspace from, entries kept aside to test it on, and samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..linalg.arrays import beside, host
from ..places.gpu.matrix import DeviceMatrix
from ..sweeps import Float, native, open_sweep

__all__ = ["Sample", "Sketch", "draw", "near", "rows_of"]

PER_LINE = (25, 10)  # entries left in a row or column that has as many, and for each rank as many again
HELD_OUT = (0.03, 0.1)  # least and largest share of the entries kept aside,
ENOUGH = 2000  # which are so many if the largest share allows
FEW = 200_000  # entries that the processor is done with before a GPU has been told what to do


@dataclass(frozen=True)
class Sketch:
    """The block of some rows and columns: `M` to fit, and what was kept aside (as rows, columns of M, and values)."""

    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    M: ObservedMatrix | Any
    strip: ObservedMatrix | Any  # all rows of these columns
    held_rows: NDArray[np.int32]
    held_columns: NDArray[np.int32]
    held_values: Float

    def held_residual(self, U: Float, V: Float) -> Float:
        """U Vᵀ - x where it was kept aside; U has a row for each row of the block, V for each column."""
        product = np.einsum("kr,kr->k", U[beside(self.held_rows, U)], V[beside(self.held_columns, V)])
        return np.asarray(host(product) - self.held_values, dtype=np.float64)


def draw(
    M: ObservedMatrix, rank: int, rng: np.random.Generator, *, at_least: int = 500, generous: float = 1.0
) -> Sketch:
    """Draw a block from which a matrix of this rank can be learnt.

    Every line of it but the poorest is left with `PER_LINE` entries, times `generous`, or with all it has. If it has
    fewer than `at_least` entries, none is kept aside.

    >>> M = ObservedMatrix.from_dense(np.random.default_rng(1).standard_normal((300, 1000)))
    >>> sketch = draw(M, 1, np.random.default_rng(2))
    >>> max(sketch.M.shape) < 80, sketch.M.nnz + sketch.held_values.size == sketch.M.shape[0] * sketch.M.shape[1]
    (True, True)
    """
    m, n = M.shape
    wanted = generous * (PER_LINE[0] + PER_LINE[1] * rank)
    columns = _that_fit(M, _choose(n, M.row_counts, rank, wanted, rng), rng)
    strip = M if len(columns) == n and isinstance(M, ObservedMatrix | DeviceMatrix) else M.take_columns(columns)
    assert strip is not None  # there are enough of them
    rows = _choose(m, strip.column_counts, rank, wanted, rng)
    if isinstance(strip, DeviceMatrix):
        return _on_device(strip, rows, columns, rng, at_least)
    return _put_aside(strip if len(rows) == m else rows_of(strip, rows), rows, columns, strip, rng, at_least)


def rows_of(M: ObservedMatrix, rows: NDArray[np.intp]) -> ObservedMatrix:
    """Some rows, ascending.

    >>> rows_of(ObservedMatrix.from_dense([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0]]), np.array([0, 2])).values.tolist()
    [1.0, 5.0, 2.0, 6.0]
    """
    place = np.full(M.shape[0], -1, np.int32)
    place[rows] = np.arange(len(rows))
    inside = np.flatnonzero(place[M.rows] >= 0)
    starts = np.searchsorted(inside, M.indptr)
    return ObservedMatrix.trusted(starts, place[M.rows[inside]], M.values[inside], (len(rows), M.shape[1]))


def _put_aside(
    A: ObservedMatrix,
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    strip: Any,
    rng: np.random.Generator,
    at_least: int,
) -> Sketch:
    held = np.sort(rng.choice(A.nnz, size=_how_many(A.nnz, at_least), replace=False))
    kept = np.ones(A.nnz, dtype=bool)
    kept[held] = False
    owner = (np.searchsorted(A.indptr, held, side="right") - 1).astype(np.int32)
    indptr = A.indptr - np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=A.shape[1]))))
    block = ObservedMatrix.trusted(indptr, A.rows[kept], A.values[kept], A.shape)
    return Sketch(rows, columns, block, strip, A.rows[held], owner, A.values[held].astype(np.float64))


def _how_many(entries: int, at_least: int) -> int:
    least, largest = HELD_OUT
    return int(min(largest * entries, max(ENOUGH, least * entries), 20_000)) if entries >= at_least else 0


def _on_device(
    strip: DeviceMatrix, rows: NDArray[np.intp], columns: NDArray[np.intp], rng: np.random.Generator, at_least: int
) -> Sketch:
    """The block of a matrix on a GPU; a small one is handed to the processor, if that has its compiled core."""
    block = strip if len(rows) == strip.shape[0] else strip.take_rows(rows)
    here = near(block)
    if here is not block:
        return _put_aside(here, rows, columns, strip, rng, at_least)
    held = np.sort(rng.choice(block.nnz, size=_how_many(block.nnz, at_least), replace=False))
    owner = (np.searchsorted(block.places.starts, held, side="right") - 1).astype(np.int32)
    at = beside(held, block.values)
    values = host(block.values[at]).astype(np.float64)
    return Sketch(rows, columns, block.without(held), strip, host(block.rows[at]), owner, values)


def near(M: ObservedMatrix | DeviceMatrix | Any) -> Any:
    """The matrix, or a copy for the processor of a small one on a GPU, if the processor has its compiled core.

    >>> M = ObservedMatrix.from_dense([[1.0]])
    >>> near(M) is M
    True
    """
    if isinstance(M, DeviceMatrix) and M.nnz <= FEW and native.reason_unavailable() is None:
        return M.to_host()
    return M


def _choose(
    lines: int, across: NDArray[np.int64], rank: int, wanted: float, rng: np.random.Generator
) -> NDArray[np.intp]:
    """So many of the lines that those across them, which have these counts of entries, keep enough; or all of them."""
    poor = _low_quantile(across)
    share = wanted / poor if poor > 0 else 1.0
    if share > 0.7 or lines * share < 8 * rank:
        return np.arange(lines)
    return np.sort(rng.permutation(lines)[: int(np.ceil(share * lines))])


def _low_quantile(counts: NDArray[np.int64]) -> float:
    """Five per cent are below it; np.quantile takes ten times as long."""
    place = 0.05 * (counts.size - 1)
    low, high = int(place), min(int(place) + 1, counts.size - 1)
    some = np.partition(counts, (low, high))
    return float(some[low] + (place - low) * (some[high] - some[low]))


def _that_fit(M: ObservedMatrix | Any, columns: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
    """As many of the columns as may be in memory, if the matrix says so."""
    entries = float(M.column_counts[columns].sum())
    most = getattr(M, "largest_part", entries)
    if entries <= most:
        return columns
    return np.sort(rng.permutation(columns)[: max(1, int(columns.size * most / entries))])


class Sample:
    """Some of the entries, evenly spread over the columns; all of them if there are not too many.

    >>> M = ObservedMatrix.from_dense(np.ones((40, 30)))
    >>> Sample(M, "numpy", 100).residual(np.ones((40, 1)), np.full((30, 1), 1.5)).size
    100
    """

    def __init__(self, M: ObservedMatrix, backend: str, size: int = 20_000) -> None:
        self.M = M.sample(size)
        self.sweep = open_sweep(self.M, backend)

    def residual(self, U: Float, V: Float) -> Float:
        """U Vᵀ - x there; V is n x r, and r may be 0."""
        return self.sweep.residual(U, V) if U.shape[1] else -self.M.values.astype(np.float64)
