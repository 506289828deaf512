"""A table as a small heat map: what was given, what was wrong, what was filled, and what came out."""

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
ROWS, COLUMNS = 160, 280  # cells at most
ONE_BY_ONE = 2_000_000  # entries; beyond, L is taken for the good entries of a cell as well
LEVELS = 65_534  # of a value in the page; the next one says that there is none


@dataclass(frozen=True)
class HeatMap:
    """Cells, each of one entry or of a block of them, as arrays of the same shape.

    >>> heat_map(ObservedMatrix.from_dense([[1.0, 2.0], [2.0, np.nan]]), LowRank([[1.0], [2.0]], [[1.0, 2.0]])).filled
    array([[0., 0.],
           [0., 1.]])
    """

    given: Floats  # the mean of the entries that were given; NaN if there is none
    completed: Floats  # the mean of what came out: the good entries, and L for all others; NaN if there is none
    wrong: Floats  # shares of the entries of the cell
    filled: Floats
    empty: Floats  # missing still
    row_edges: Edges
    column_edges: Edges

    @property
    def shape(self) -> tuple[int, int]:
        """Of the table."""
        return int(self.row_edges[-1]), int(self.column_edges[-1])

    def share(self, kind: str) -> float:
        """The share of all entries that were "wrong", "filled" or left "empty"."""
        sizes = np.outer(np.diff(self.row_edges), np.diff(self.column_edges))
        return float(np.sum(getattr(self, kind) * sizes) / sizes.sum())

    def packed(self, by_column: bool) -> dict[str, Any]:
        """For the page: values as 16 bits between the least and the largest of their column, shares as 8 bits.

        Colours go from the 2nd to the 98th percentile of what came out, of the table or `by_column`; and `many` wrong
        entries are so many as in the worst twentieth of the cells that have any.
        """
        both = np.stack([self.given, self.completed])
        low, high = _range(both.reshape(-1, both.shape[2]), 0, 100)
        first, last = _range(self.completed, 2, 98) if by_column else _range(self.completed.reshape(-1, 1), 2, 98)
        span = np.where(high > low, high - low, 1.0)
        return {
            "rows": len(self.row_edges) - 1,
            "columns": len(self.column_edges) - 1,
            "given": _words(self.given, low, span),
            "completed": _words(self.completed, low, span),
            "low": low,
            "span": span,
            "first": np.broadcast_to(first, low.shape),
            "last": np.broadcast_to(last, low.shape),
            "many": float(np.percentile(self.wrong[self.wrong > 0], 95)) if self.wrong.any() else 1.0,
            **{name: _bytes(getattr(self, name)) for name in ("wrong", "filled", "empty")},
        }


def heat_map(
    M: ObservedMatrix,
    L: LowRank,
    flagged: ArrayLike = (),
    *,
    empty_rows: ArrayLike = (),
    empty_columns: ArrayLike = (),
) -> HeatMap:
    """The heat map of a table with the entries M, of which those at the places `flagged` are wrong.

    Where an entry is missing or wrong L stands in, but not in `empty_rows` and `empty_columns`, where it is not
    known. A table of more than 160 x 280 entries is shown as blocks.

    >>> M = ObservedMatrix.from_dense([[1.0, 2.0], [2.0, 40.0], [np.nan, 6.0]])
    >>> found = heat_map(M, LowRank([[1.0], [2.0], [3.0]], [[1.0, 2.0]]), [3])
    >>> found.completed.tolist(), found.share("wrong") == 1 / 6
    ([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]], True)
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
        sure = known_row[rows] & known_column[at]

        def summed(weights: NDArray[Any], cell: NDArray[np.intp] = cell) -> Floats:
            return np.asarray(np.bincount(cell, weights, minlength=row_edges.size - 1), dtype=np.float64)

        total = np.diff(row_edges) * float(stop - start)
        observed, good = summed(np.ones(cell.size)), summed(~bad)
        could = rows_known * float(np.count_nonzero(known_column[start:stop]))
        # L of the good entries is taken off again and their values put in its place; of many the means agree
        fitted = known.at(rows, at) if M.nnz <= ONE_BY_ONE else np.where(sure, values, 0.0)
        completed = fits[:, k] - summed(np.where(bad, 0.0, fitted)) + summed(np.where(bad, 0.0, values))
        with np.errstate(invalid="ignore", divide="ignore"):
            parts.append(
                {
                    "given": summed(values) / observed,
                    "completed": completed / (could + good - summed(sure & ~bad)),
                    "wrong": (observed - good) / total,
                    "filled": (could - summed(sure)) / total,
                    "empty": (total - could - summed(~sure)) / total,
                }
            )
    stacked = {name: np.stack([part[name] for part in parts], axis=1) for name in parts[0]}
    return HeatMap(**stacked, row_edges=row_edges, column_edges=column_edges)


def _range(values: Floats, low: float, high: float) -> tuple[Floats, Floats]:
    """Percentiles of each column, of what there is in it."""
    found = np.zeros((2, values.shape[1]))
    for j, column in enumerate(values.T):
        there = column[np.isfinite(column)]
        if there.size:
            found[:, j] = np.percentile(there, [low, high])
    return found[0], found[1]


def _words(values: Floats, low: Floats, span: Floats) -> str:
    there = np.isfinite(values)
    scaled = np.rint(LEVELS * (np.where(there, values, low) - low) / span)
    return _text(np.where(there, scaled, LEVELS + 1).astype("<u2"))


def _bytes(shares: Floats) -> str:
    """Shares of 255, rounded up: what is rare is seen."""
    return _text(np.ceil(255 * np.clip(shares, 0, 1) - 1e-9).astype(np.uint8))


def _text(numbers: NDArray[Any]) -> str:
    return base64.b64encode(numbers.tobytes()).decode("ascii")
