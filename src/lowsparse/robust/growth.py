"""Growth: from a dense block of rows and columns outwards, in the order in which what is known determines the rest.

Where holes have structure (a corner that was never measured, columns that begin late, blocks that overlap), singular
vectors of the data with zeros in the holes are those of the holes. In a dense block they are those of L. Its rows and
columns determine others, which have entries in common with it, and these others again: the lines with the most entries
in the known part come first, and only those that it explains are taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..linalg.grassmann import basis
from ..sweeps import Float, Robust, enough
from .regression import EFFICIENT, EXPLAINED, LineRegression

__all__ = ["SEEDS", "Part", "beyond", "grown", "seed_block", "take_block"]

Index = NDArray[np.intp]

# blocks that are tried, in turn: whether their lines are neighbours, so that errors in runs and patches are all in or
# all out, and how many lines they have, as a multiple of the rank and on top of that
SEEDS = (
    (*[(True, (3, 8))] * 3, (True, (5, 14)), *[(False, (3, 8))] * 2, (False, (6, 20))),
    (*[(True, (2, 6))] * 3, *[(True, (3, 8))] * 2, *[(False, (3, 8))] * 2),
)
SOME = 100  # other lines by which a block is judged, of its rows and of its columns;
TURNS = 9  # reweighted regressions of them
EXACTLY = 1e-4  # c, in units, of a part that is explained exactly
LIKED = 0.5  # of the largest number of entries in the known part that a line must have to be tried at once


@dataclass(frozen=True)
class Part:
    """The part of L that is known: its rows and columns, ascending, and L = U Vᵀ there."""

    rows: Index
    columns: Index
    U: Float
    V: Float

    def joined(self, other: Part) -> Part:
        """Both parts, which have no row and no column in common; what they say of each other is left open."""
        rows, U = _merged(self.rows, self.U, other.rows, other.U)
        columns, V = _merged(self.columns, self.V, other.columns, other.V)
        return Part(rows, columns, U, V)


def take_block(M: ObservedMatrix, rows: Index, columns: Index) -> ObservedMatrix:
    """Some rows and columns, both ascending.

    >>> M = ObservedMatrix.from_dense(np.arange(12.0).reshape(3, 4))
    >>> take_block(M, np.array([0, 2]), np.array([1, 3])).to_dense().tolist()
    [[1.0, 3.0], [9.0, 11.0]]
    """
    some = M.take_columns(columns)
    if some is None:
        return ObservedMatrix.trusted(
            np.zeros(columns.size + 1, np.int64), M.rows[:0], M.values[:0], (rows.size, columns.size)
        )
    return some if rows.size == M.shape[0] else some.take_rows(rows)


def seed_block(
    M: ObservedMatrix, rank: int, rng: np.random.Generator, size: tuple[int, int], *, near: bool
) -> tuple[Index, Index]:
    """Rows and columns of a block with many entries: `near` a random one, or as dense as can be had from there.

    >>> X = np.full((60, 60), np.nan)
    >>> X[:40, :40] = X[30:, 30:] = 1.0
    >>> M = ObservedMatrix.from_dense(X)
    >>> rows, columns = seed_block(M, 1, np.random.default_rng(1), (3, 8), near=False)
    >>> take_block(M, rows, columns).density > 0.9
    True
    """
    lines = size[0] * rank + size[1]
    entry = int(rng.integers(M.nnz))
    i, j = int(M.rows[entry]), int(np.searchsorted(M.indptr, entry, side="right")) - 1
    rows, columns = _window(M, i, j, lines) if near else _dense(M, j, lines, rng)
    block = take_block(M, rows, columns)
    in_row, in_column = block.row_counts, block.column_counts
    least = min(rank + 1, int(in_row.max()), int(in_column.max()))
    return rows[in_row >= least], columns[in_column >= least]


def _window(M: ObservedMatrix, i: int, j: int, size: int) -> tuple[Index, Index]:
    """Neighbouring rows and columns around (i, j), as many as leave about `size` entries in each of them."""
    (m, n), wanted = M.shape, 0.8 * size
    height, width = min(size, m), min(size, n)
    while True:
        rows, columns = _around(i, height, m), _around(j, width, n)
        block = take_block(M, rows, columns)
        in_row, in_column = float(np.median(block.row_counts)), float(np.median(block.column_counts))
        wider, taller = in_row < wanted and width < n, in_column < wanted and height < m
        if not (wider or taller):
            return rows, columns
        if wider:
            width = min(n, max(width + 1, int(width * min(2.0, wanted / max(in_row, 1.0)))))
        if taller:
            height = min(m, max(height + 1, int(height * min(2.0, wanted / max(in_column, 1.0)))))


def _around(k: int, size: int, total: int) -> Index:
    first = min(max(0, k - size // 2), total - size)
    return np.arange(first, first + size)


def _dense(M: ObservedMatrix, j: int, size: int, rng: np.random.Generator) -> tuple[Index, Index]:
    """The rows with the most entries in common with column j, the columns with the most in these, and so on."""
    columns, rows = np.array([j]), np.empty(0, np.intp)
    wanted = size
    for _ in range(4):
        some = M.take_columns(columns)
        assert some is not None  # column j has an entry, and the others share one with it
        rows = _most(some.row_counts, wanted, rng)
        columns = _most(M.take_rows(rows).column_counts, wanted, rng)
        density = take_block(M, rows, columns).density
        wanted = int(size / max(density, 0.05))
    return rows, columns


def _most(counts: NDArray[np.int64], size: int, rng: np.random.Generator) -> Index:
    """About those with the largest counts, with some chance; none without an entry."""
    shuffled = counts + 0.2 * counts.max() * rng.random(counts.size)
    best = np.argsort(-shuffled, kind="stable")[: min(size, int(np.count_nonzero(counts)))]
    return np.sort(best)


def grown(M: ObservedMatrix, turned: ObservedMatrix, part: Part, c: float, unit: float, careful: int) -> Part | None:
    """The part with the rows, then the columns, that it determines and explains; None if there are none.

    `turned` is M.T. The more `careful` (2, 1 or 0), the more entries of a line must be in the known part.
    """
    rank = part.U.shape[1]
    need = (rank + 2, enough(rank) + 2, 2 * rank + 4)[careful]
    c = max(c, EXPLAINED * unit)
    exact = c <= EXACTLY * unit  # then hardly an entry is explained by chance
    share = 0.5 if careful or exact else 0.9  # of these entries that must be explained
    rows, coefficients = _joining(turned, part.rows, part.columns, part.V, c, unit, need, share)
    more_rows, U = _merged(part.rows, part.U, rows, coefficients)
    columns, coefficients = _joining(M, part.columns, more_rows, U, c, unit, need, share)
    more_columns, V = _merged(part.columns, part.V, columns, coefficients)
    return Part(more_rows, more_columns, U, V) if rows.size or columns.size else None


def _joining(
    M: ObservedMatrix, known: Index, across: Index, F: Float, c: float, unit: float, need: float, share: float
) -> tuple[Index, Float]:
    """Columns of M, other than those known, that the known rows `across` determine by F: which, and coefficients."""
    there = M.take_rows(across)
    counts = there.column_counts
    counts[known] = 0
    Q, R = basis(F)
    while True:
        which = np.flatnonzero(counts >= max(need, LIKED * counts.max()))
        some = there.take_columns(which) if which.size else None
        if some is None:
            return np.empty(0, np.intp), np.empty((0, F.shape[1]))
        found, inside = LineRegression(some, some.open_sweep(), unit, learning=False).fit_thoroughly(Q, c)
        good = (inside >= need) & (inside >= share * counts[which])
        if good.any():
            coefficients = np.linalg.lstsq(R, found[good].T, rcond=1e-12)[0].T
            return which[good], np.asarray(coefficients, dtype=np.float64)
        counts[which] = 0  # they are wrong; others, with fewer entries there, need not be


def beyond(M: ObservedMatrix, turned: ObservedMatrix, part: Part, noise: float, unit: float, backend: str) -> float:
    """How well a part explains other lines, as far as they are in its rows or columns: the median of |e|."""
    rank = part.U.shape[1]
    options = Robust(c=max(EFFICIENT * noise, EXPLAINED * unit), first_c=6 * unit, turns=TURNS)
    left = []
    for A, known, across, F in ((M, part.columns, part.rows, part.U), (turned, part.rows, part.columns, part.V)):
        there = A.take_rows(across)
        counts = there.column_counts
        counts[known] = 0
        which = np.flatnonzero(counts > rank + 2)
        others = there.take_columns(which[:: -(-which.size // SOME) or 1])
        if others is not None:
            sweep, Q = others.open_sweep(backend), basis(F)[0]
            left.append(np.abs(sweep.residual(Q, sweep.regress(Q, None, options).V)))
    return float(np.median(np.concatenate(left))) if left else np.inf


def _merged(known: Index, F: Float, new: Index, coefficients: Float) -> tuple[Index, Float]:
    """Both, in ascending order."""
    lines = np.concatenate([known, new])
    order = np.argsort(lines, kind="stable")
    return lines[order], np.vstack([F, coefficients])[order]
