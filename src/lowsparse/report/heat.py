"""Heat maps of a table: given values, outliers, filled values, and the completed table."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..entries.observed import ObservedMatrix
from ..linalg.arrays import Float
from ..linalg.lowrank import LowRank
from ..linalg.tiling import Edges, block_edges, block_of_lines, block_sums
from .page import encode_values, to_base64

ROWS, COLUMNS = 160, 280  # maximum number of cells
EXACT = 2_000_000  # entries; with more, the inliers of a cell are replaced by L as well


@dataclass(frozen=True)
class HeatMap:
    """Cells of one entry or of a block of entries, as arrays of the same shape."""

    given: Float  # mean of the given entries; NaN if there are none
    completed: Float  # mean of the inliers, and of L for all others; NaN if there are none
    wrong: Float  # shares of the entries of the cell
    filled: Float
    empty: Float  # still missing
    row_edges: Edges
    column_edges: Edges

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the table."""
        return int(self.row_edges[-1]), int(self.column_edges[-1])

    def share(self, kind: str) -> float:
        """The share of all entries that were "wrong", "filled" or left "empty"."""
        sizes = np.outer(np.diff(self.row_edges), np.diff(self.column_edges))
        return float(np.sum(getattr(self, kind) * sizes) / sizes.sum())

    def packed(self, by_column: bool) -> dict[str, Any]:
        """The data of the page: values as 16 bits between minimum and maximum of their column, shares as 8 bits.

        Colours range from the 2nd to the 98th percentile of the completed table, or of each column; `many` is the 95th
        percentile of the share of outliers in cells that have any.
        """
        both = np.stack([self.given, self.completed])
        low, high = _range(both.reshape(-1, both.shape[2]), 0, 100)
        first, last = _range(self.completed, 2, 98) if by_column else _range(self.completed.reshape(-1, 1), 2, 98)
        span = np.where(high > low, high - low, 1.0)
        return {
            "rows": len(self.row_edges) - 1,
            "columns": len(self.column_edges) - 1,
            "given": encode_values(self.given, low, span),
            "completed": encode_values(self.completed, low, span),
            "low": low,
            "span": span,
            "first": np.broadcast_to(first, low.shape),
            "last": np.broadcast_to(last, low.shape),
            "many": float(np.percentile(self.wrong[self.wrong > 0], 95)) if self.wrong.any() else 1.0,
            **{name: _encode_shares(getattr(self, name)) for name in ("wrong", "filled", "empty")},
        }


def heat_map(M: ObservedMatrix, L: LowRank, flagged: ArrayLike = ()) -> HeatMap:
    """The heat map of a table with the entries M, of which those with the indices `flagged` are outliers.

    Missing entries and outliers are replaced by L, but not in rows and columns without any entry, where L is unknown.
    Tables of more than 160 x 280 entries are shown as blocks.
    """
    row_edges, column_edges = block_edges(M.shape[0], ROWS), block_edges(M.shape[1], COLUMNS)
    known_row, known_column = M.row_counts > 0, M.column_counts > 0
    known = LowRank(L.U * known_row[:, None], L.V * known_column)
    inlier = np.ones(M.nnz, bool)
    inlier[np.asarray(flagged, dtype=np.intp)] = False
    row_cell, columns = block_of_lines(row_edges), M.columns_of_entries()
    observed, given, inliers, corrections = np.zeros((4, row_edges.size - 1, column_edges.size - 1))
    for k, (start, stop) in enumerate(itertools.pairwise(column_edges)):
        entries = slice(int(M.indptr[start]), int(M.indptr[stop]))
        i, values, good = M.rows[entries], M.values[entries].astype(np.float64), inlier[entries]
        # of many inliers, the means of M and L agree
        correction = np.where(good, values - known.at(i, columns[entries]), 0.0) if M.nnz <= EXACT else np.zeros(i.size)
        sums = (observed, np.ones(i.size)), (given, values), (inliers, good), (corrections, correction)
        for total, weights in sums:
            total[:, k] = np.bincount(row_cell[i], weights, minlength=len(total))
    size = np.outer(np.diff(row_edges), np.diff(column_edges))
    sides = ((known_row, row_edges), (known_column, column_edges))
    fillable = np.outer(*(np.add.reduceat(known_lines.astype(np.float64), edges[:-1]) for known_lines, edges in sides))
    with np.errstate(invalid="ignore", divide="ignore"):
        return HeatMap(
            given=given / observed,
            completed=(block_sums(known, row_edges, column_edges) + corrections) / fillable,
            wrong=(observed - inliers) / size,
            filled=(fillable - observed) / size,
            empty=(size - fillable) / size,
            row_edges=row_edges,
            column_edges=column_edges,
        )


def _range(values: Float, low: float, high: float) -> tuple[Float, Float]:
    """Percentiles of the finite values of each column."""
    found = np.zeros((2, values.shape[1]))
    for j, column in enumerate(values.T):
        finite = column[np.isfinite(column)]
        if finite.size:
            found[:, j] = np.percentile(finite, [low, high])
    return found[0], found[1]


def _encode_shares(shares: Float) -> str:
    """Shares of 255, rounded up so that rare ones are visible."""
    return to_base64(np.ceil(255 * np.clip(shares, 0, 1) - 1e-9).astype(np.uint8))
