"""Parts of the data: rows and columns to learn a subspace from, entries kept aside to test it on, and samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..entries.protocol import HeldOut, PartialMatrix, Resident
from ..linalg.arrays import host, to_device_of
from ..sweeps import Float

__all__ = ["Sample", "Sketch", "draw"]

PER_LINE = (25, 10)  # entries left in a row or column that has as many, and for each rank as many again
HELD_OUT = (0.03, 0.1)  # least and largest share of the entries kept aside,
ENOUGH = 2000  # which are so many if the largest share allows


@dataclass(frozen=True)
class Sketch:
    """The block of some rows and columns: `M` to fit, and what was kept aside."""

    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    M: Resident
    held: HeldOut  # by rows and columns of M
    strip: Resident  # all rows of these columns

    @property
    def held_values(self) -> Float:
        """What was kept aside."""
        return self.held.values

    def held_residual(self, U: Float, V: Float) -> Float:
        """U Vᵀ - x where it was kept aside; U has a row for each row of the block, V for each column."""
        product = np.einsum("kr,kr->k", U[to_device_of(self.held.rows, U)], V[to_device_of(self.held.columns, V)])
        return np.asarray(host(product) - self.held.values, dtype=np.float64)


def draw(
    M: PartialMatrix, rank: int, rng: np.random.Generator, *, at_least: int = 500, generous: float = 1.0
) -> Sketch:
    """Draw a block from which a matrix of this rank can be learnt.

    Every line of it but the poorest is left with `PER_LINE` entries, times `generous`, or with all it has. If it has
    fewer than `at_least` entries, none is kept aside.

    >>> from lowsparse import ObservedMatrix
    >>> M = ObservedMatrix.from_dense(np.random.default_rng(1).standard_normal((300, 1000)))
    >>> sketch = draw(M, 1, np.random.default_rng(2))
    >>> max(sketch.M.shape) < 80, sketch.M.nnz + sketch.held_values.size == sketch.M.shape[0] * sketch.M.shape[1]
    (True, True)
    """
    m, n = M.shape
    wanted = generous * (PER_LINE[0] + PER_LINE[1] * rank)
    columns = _that_fit(M, _choose(n, M.row_counts, rank, wanted, rng), rng)
    strip = M.take_columns(columns)
    assert strip is not None  # there are enough of them
    rows = _choose(m, strip.column_counts, rank, wanted, rng)
    block = strip.take_rows(rows).to_host_if_small()
    held = np.sort(rng.choice(block.nnz, size=_how_many(block.nnz, at_least), replace=False))
    return Sketch(rows, columns, *block.split(held), strip)


def _how_many(entries: int, at_least: int) -> int:
    least, largest = HELD_OUT
    return int(min(largest * entries, max(ENOUGH, least * entries), 20_000)) if entries >= at_least else 0


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


def _that_fit(M: PartialMatrix, columns: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
    """As many of the columns as may be in memory."""
    entries = float(M.column_counts[columns].sum())
    if entries <= M.largest_part:
        return columns
    return np.sort(rng.permutation(columns)[: max(1, int(columns.size * M.largest_part / entries))])


class Sample:
    """Some of the entries, evenly spread over the columns; all of them if there are not too many.

    >>> from lowsparse import ObservedMatrix
    >>> M = ObservedMatrix.from_dense(np.ones((40, 30)))
    >>> Sample(M, "numpy", 100).residual(np.ones((40, 1)), np.full((30, 1), 1.5)).size
    100
    """

    def __init__(self, M: PartialMatrix, backend: str, size: int = 20_000) -> None:
        self.M = M.sample(size)
        self.sweep = self.M.open_sweep(backend)

    def residual(self, U: Float, V: Float) -> Float:
        """U Vᵀ - x there; V is n x r, and r may be 0."""
        return self.sweep.residual(U, V) if U.shape[1] else -self.M.values.astype(np.float64)
