"""Fits of small dense blocks, and their growth: a block determines the rows and columns that share entries with it.

Where missing entries have structure (a corner that was never measured, columns that begin late, blocks that overlap),
the singular vectors of the zero-filled data are those of the pattern. In a dense block they are those of L. Its rows
and columns determine others, and these determine more. Lines with the most entries in the known part come first, and
only those that it explains are added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..linalg.grassmann import basis
from ..sweeps import Blocks, Float, Robust, min_support
from .regression import EFFICIENT, EXPLAINED, LineRegression

Index = NDArray[np.intp]

# Blocks to try: whether their lines are neighbours (errors in runs and patches are then all inside or all outside), and
# (a, b) for a block of about a rank + b lines.
SEEDS = (
    (*[(True, (3, 8))] * 3, (True, (5, 14)), *[(False, (3, 8))] * 2, (False, (6, 20))),
    (*[(True, (2, 6))] * 3, *[(True, (3, 8))] * 2, *[(False, (3, 8))] * 2),
)
WIDEST = 10  # lines of a window on either side, relative to the entries that each shall have
N_TEST_LINES = 100  # other rows, and other columns, that a block is tested on
TEST_REWEIGHT = 9  # reweightings in a regression of these
LARGEST = 1e12  # length of coefficients in units: those of a singular system are longer, or no numbers
EXACT = 1e-4  # c in units, below which hardly an entry is explained by chance
TRIED_FIRST = 0.5  # entries in the known part, relative to the line with most, for a line to be tried at once


@dataclass(frozen=True)
class Part:
    """The part of L that is known: its rows and columns, ascending, and L = U Vᵀ there."""

    rows: Index
    columns: Index
    U: Float
    V: Float

    def extended(self, rows: Index, U: Float, columns: Index, V: Float) -> Part:
        """The part with more rows and columns, and their factors."""
        all_rows, all_U = _merge(self.rows, self.U, rows, U)
        all_columns, all_V = _merge(self.columns, self.V, columns, V)
        return Part(all_rows, all_columns, all_U, all_V)


def _merge(known: Index, F: Float, new: Index, G: Float) -> tuple[Index, Float]:
    lines = np.concatenate([known, new])
    order = np.argsort(lines, kind="stable")
    return lines[order], np.vstack([F, G])[order]


def take_block(M: ObservedMatrix, rows: Index, columns: Index) -> ObservedMatrix:
    """Some rows and columns, both ascending."""
    some = M.take_columns(columns)
    if some is None:
        shape = rows.size, columns.size
        return ObservedMatrix.trusted(np.zeros(columns.size + 1, np.int64), M.rows[:0], M.values[:0], shape)
    return some if rows.size == M.shape[0] else some.take_rows(rows)


def seed_block(
    M: ObservedMatrix, rank: int, rng: np.random.Generator, size: tuple[int, int], *, near: bool
) -> tuple[Index, Index]:
    """Rows and columns of a block with many entries: those `near` a random one, or a dense block with its column.

    Where entries are so sparse that their neighbours are most of the matrix, it is a dense block in any case.
    """
    lines = size[0] * rank + size[1]
    entry = int(rng.integers(M.nnz))
    i, j = int(M.rows[entry]), int(np.searchsorted(M.indptr, entry, side="right")) - 1
    rows, columns = (_window(M, i, j, lines) if near else None) or _dense_block(M, j, lines, rng)
    block = take_block(M, rows, columns)
    in_row, in_column = block.row_counts, block.column_counts
    least = min(rank + 1, int(in_row.max()), int(in_column.max()))
    return rows[in_row >= least], columns[in_column >= least]


def _window(M: ObservedMatrix, i: int, j: int, size: int) -> tuple[Index, Index] | None:
    """Neighbouring rows and columns around (i, j), as many as leave about `size` entries in each of them.

    None if these are more than `WIDEST` times `size` rows and columns.
    """
    (m, n), wanted = M.shape, 0.8 * size
    height, width = min(size, m), min(size, n)
    while min(height, width) <= WIDEST * size:
        rows, columns = _interval(i, height, m), _interval(j, width, n)
        in_row, in_column = (float(np.median(counts)) for counts in _counts_within(M, rows, columns))
        wider, taller = in_row < wanted and width < n, in_column < wanted and height < m
        if not (wider or taller):
            return np.arange(*rows), np.arange(*columns)
        if wider:
            width = min(n, max(width + 1, int(width * min(2.0, wanted / max(in_row, 1.0)))))
        if taller:
            height = min(m, max(height + 1, int(height * min(2.0, wanted / max(in_column, 1.0)))))
    return None


def _interval(centre: int, size: int, total: int) -> tuple[int, int]:
    first = min(max(0, centre - size // 2), total - size)
    return first, first + size


def _counts_within(
    M: ObservedMatrix, rows: tuple[int, int], columns: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers of entries in each row and each column of a window; each pair is its first line and the end."""
    starts = M.indptr[columns[0] : columns[1] + 1]
    found = M.rows[starts[0] : starts[-1]]
    inside = (found >= rows[0]) & (found < rows[1])
    in_row = np.bincount(found[inside] - rows[0], minlength=rows[1] - rows[0])
    before = np.concatenate([[0], np.cumsum(inside)])
    return in_row, np.diff(before[starts - starts[0]])


def _dense_block(M: ObservedMatrix, j: int, size: int, rng: np.random.Generator) -> tuple[Index, Index]:
    """The rows with the most entries in common with column j, the columns with the most in these, and so on."""
    columns, rows, wanted = np.array([j]), np.empty(0, np.intp), size
    for k in range(4):
        if k:
            wanted = int(size / max(take_block(M, rows, columns).density, 0.05))
        some = M.take_columns(columns)
        assert some is not None  # column j has an entry, and the others share one with it
        rows = _fullest(some.row_counts, wanted, rng)
        columns = _fullest(M.take_rows(rows).column_counts, wanted, rng)
    return rows, columns


def _fullest(counts: NDArray[np.int64], size: int, rng: np.random.Generator) -> Index:
    """The lines with the largest counts, up to random perturbations; none without an entry."""
    perturbed = counts + 0.2 * counts.max() * rng.random(counts.size)
    return np.sort(np.argsort(-perturbed, kind="stable")[: min(size, int(np.count_nonzero(counts)))])


class BlockFit(NamedTuple):
    """L = U Vᵀ of a block."""

    U: Float  # orthonormal
    V: Float
    noise: float  # robust scale of the residuals


def climb_blocks(
    blocks: list[ObservedMatrix], rank: int, unit: float, rng: np.random.Generator, backend: str = "auto"
) -> list[BlockFit]:
    """Robust fits of small blocks, all at once: rank 1, 2, ... until a fit is exact or has the given rank.

    The blocks, all taller and wider than the rank, are placed on the diagonal of one sparse matrix.
    """
    row_starts, column_starts = (np.cumsum([0, *(M.shape[axis] for M in blocks)]) for axis in (0, 1))
    ends = np.cumsum([0, *(M.nnz for M in blocks)])
    indptr = np.concatenate([[0], *(M.indptr[1:] + end for M, end in zip(blocks, ends, strict=False))])
    rows = np.concatenate([M.rows + first for M, first in zip(blocks, row_starts, strict=False)]).astype(np.int32)
    values = np.concatenate([M.values for M in blocks])
    diagonal = ObservedMatrix.trusted(indptr, rows, values, (int(row_starts[-1]), int(column_starts[-1])))
    begin = rng.standard_normal((rank, diagonal.shape[1]))
    fits = diagonal.open_sweep(backend).fit_blocks(Blocks(row_starts, column_starts, begin, unit))
    U, V = np.split(fits.U, row_starts[1:-1]), np.split(fits.V, column_starts[1:-1])
    return [BlockFit(u[:, :k], v[:, :k], float(e)) for u, v, k, e in zip(U, V, fits.ranks, fits.noise, strict=True)]


def grow_part(
    M: ObservedMatrix, transpose: ObservedMatrix, part: Part, c: float, unit: float, caution: int
) -> Part | None:
    """The part with the rows, then the columns, that it determines and explains; None if there are none.

    The larger `caution` (0, 1 or 2), the more entries of a line must be in the known part.
    """
    rank = part.U.shape[1]
    need = (rank + 2, min_support(rank) + 2, 2 * rank + 4)[caution]
    c = max(c, EXPLAINED * unit)
    share = 0.5 if caution or c <= EXACT * unit else 0.9  # of these entries that must be explained
    rows, U = _explained_columns(transpose, part.rows, part.columns, part.V, c, unit, need, share)
    taller = part.extended(rows, U, part.columns[:0], part.V[:0])
    columns, V = _explained_columns(M, part.columns, taller.rows, taller.U, c, unit, need, share)
    return taller.extended(rows[:0], U[:0], columns, V) if rows.size or columns.size else None


def _explained_columns(
    M: ObservedMatrix, known: Index, rows: Index, F: Float, c: float, unit: float, need: float, share: float
) -> tuple[Index, Float]:
    """Columns other than those known that F, given on some rows, determines and explains; and their coefficients."""
    there = M.take_rows(rows)
    counts = there.column_counts
    counts[known] = 0
    Q, R = basis(F)
    while True:
        which = np.flatnonzero(counts >= max(need, TRIED_FIRST * counts.max()))
        some = there.take_columns(which) if which.size else None
        if some is None:
            return np.empty(0, np.intp), np.empty((0, F.shape[1]))
        C, inside = LineRegression(some, some.open_sweep(), unit, learning=False).fit_with_subsets(Q, c)
        good = (inside >= need) & (inside >= share * counts[which]) & (np.linalg.norm(C, axis=1) < LARGEST * unit)
        if good.any():
            return which[good], np.asarray(np.linalg.lstsq(R, C[good].T, rcond=1e-12)[0].T, dtype=np.float64)
        counts[which] = 0  # these are wrong; others, with fewer entries there, need not be


def prediction_error(
    M: ObservedMatrix, transpose: ObservedMatrix, part: Part, noise: float, unit: float, backend: str
) -> float:
    """How well a part explains other lines, within its rows or columns: the median of |e|."""
    options = Robust(c=max(EFFICIENT * noise, EXPLAINED * unit), first_c=6 * unit, n_reweight=TEST_REWEIGHT)
    errors = []
    for A, known, rows, F in ((M, part.columns, part.rows, part.U), (transpose, part.rows, part.columns, part.V)):
        there = A.take_rows(rows)
        counts = there.column_counts
        counts[known] = 0
        which = np.flatnonzero(counts > F.shape[1] + 2)
        others = there.take_columns(which[:: -(-which.size // N_TEST_LINES) or 1])
        if others is not None:
            sweep, Q = others.open_sweep(backend), basis(F)[0]
            errors.append(np.abs(sweep.residual(Q, sweep.regress(Q, None, options).V)))
    return float(np.median(np.concatenate(errors))) if errors else np.inf
