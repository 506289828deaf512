"""Heat maps of a table: given values, outliers, filled values, and the completed table."""

from __future__ import annotations

import base64
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..entries.observed import ObservedMatrix
from ..linalg.lowrank import LowRank
from ..linalg.tiling import Edges, block_edges, block_of_lines, block_sums

__all__ = ["HeatMap", "heat_map"]

Floats = NDArray[np.float64]
ROWS, COLUMNS = 160, 280  # maximum number of cells
EXACT = 2_000_000  # entries; beyond, L stands for the inliers of a cell as well
LEVELS = 65_534  # of a value in the page; the next one stands for a missing value


@dataclass(frozen=True)
class HeatMap:
    """Cells of one entry or of a block of entries, as arrays of the same shape."""

    given: Floats  # mean of the given entries; NaN if there are none
    completed: Floats  # mean of the inliers, and of L for all others; NaN if there are none
    wrong: Floats  # shares of the entries of the cell
    filled: Floats
    empty: Floats  # still missing
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
            "given": _encode_values(self.given, low, span),
            "completed": _encode_values(self.completed, low, span),
            "low": low,
            "span": span,
            "first": np.broadcast_to(first, low.shape),
            "last": np.broadcast_to(last, low.shape),
            "many": float(np.percentile(self.wrong[self.wrong > 0], 95)) if self.wrong.any() else 1.0,
            **{name: _encode_shares(getattr(self, name)) for name in ("wrong", "filled", "empty")},
        }


def heat_map(
    M: ObservedMatrix, L: LowRank, flagged: ArrayLike = (), *, empty_rows: ArrayLike = (), empty_columns: ArrayLike = ()
) -> HeatMap:
    """The heat map of a table with the entries M, of which those with the indices `flagged` are outliers.

    Missing entries and outliers are replaced by L, but not in `empty_rows` and `empty_columns`, where L is unknown.
    Tables of more than 160 x 280 entries are shown as blocks.
    """
    m, n = M.shape
    row_edges, column_edges = block_edges(m, ROWS), block_edges(n, COLUMNS)
    row_cell = block_of_lines(row_edges)
    known_row, known_column = np.ones(m, bool), np.ones(n, bool)
    known_row[np.asarray(empty_rows, dtype=np.intp)] = False
    known_column[np.asarray(empty_columns, dtype=np.intp)] = False
    known = LowRank(L.U * known_row[:, None], L.V * known_column)
    wrong = np.zeros(M.nnz, bool)
    wrong[np.asarray(flagged, dtype=np.intp)] = True
    fits = block_sums(known, row_edges, column_edges)
    rows_known = np.add.reduceat(known_row.astype(np.float64), row_edges[:-1])
    columns = M.columns_of_entries()
    parts = []
    for k, (start, stop) in enumerate(itertools.pairwise(column_edges)):
        entries = slice(int(M.indptr[start]), int(M.indptr[stop]))
        rows, at, values = M.rows[entries], columns[entries], M.values[entries].astype(np.float64)
        bad, cell = wrong[entries], row_cell[rows]
        covered = known_row[rows] & known_column[at]

        def summed(weights: NDArray[Any], cell: NDArray[np.intp] = cell) -> Floats:
            return np.asarray(np.bincount(cell, weights, minlength=row_edges.size - 1), dtype=np.float64)

        total = np.diff(row_edges) * float(stop - start)
        observed, good = summed(np.ones(cell.size)), summed(~bad)
        fillable = rows_known * float(np.count_nonzero(known_column[start:stop]))
        # replace L by the values of the inliers; for many entries their means agree
        fitted = known.at(rows, at) if M.nnz <= EXACT else np.where(covered, values, 0.0)
        completed = fits[:, k] - summed(np.where(bad, 0.0, fitted)) + summed(np.where(bad, 0.0, values))
        with np.errstate(invalid="ignore", divide="ignore"):
            parts.append(
                {
                    "given": summed(values) / observed,
                    "completed": completed / (fillable + good - summed(covered & ~bad)),
                    "wrong": (observed - good) / total,
                    "filled": (fillable - summed(covered)) / total,
                    "empty": (total - fillable - summed(~covered)) / total,
                }
            )
    stacked = {name: np.stack([part[name] for part in parts], axis=1) for name in parts[0]}
    return HeatMap(**stacked, row_edges=row_edges, column_edges=column_edges)


def _range(values: Floats, low: float, high: float) -> tuple[Floats, Floats]:
    """Percentiles of the finite values of each column."""
    found = np.zeros((2, values.shape[1]))
    for j, column in enumerate(values.T):
        finite = column[np.isfinite(column)]
        if finite.size:
            found[:, j] = np.percentile(finite, [low, high])
    return found[0], found[1]


def _encode_values(values: Floats, low: Floats, span: Floats) -> str:
    finite = np.isfinite(values)
    scaled = np.rint(LEVELS * (np.where(finite, values, low) - low) / span)
    return _base64(np.where(finite, scaled, LEVELS + 1).astype("<u2"))


def _encode_shares(shares: Floats) -> str:
    """Shares of 255, rounded up so that rare ones are visible."""
    return _base64(np.ceil(255 * np.clip(shares, 0, 1) - 1e-9).astype(np.uint8))


def _base64(numbers: NDArray[Any]) -> str:
    return base64.b64encode(numbers.tobytes()).decode("ascii")
