"""Rows of a table that are wrong as a whole, and the cells that make them so, in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..imputation.model import Imputation
from ..linalg.lowrank import LowRank
from ..linalg.scale import OUTLIER
from ..support.format import format_number, pluralize
from ..tables import Table
from ..tables.stream import LargeTable

LISTED = 5  # rows named in a note
CELLS = 3  # cells of each


@dataclass(frozen=True)
class BadRow:
    """A row that does not fit the others."""

    label: str
    filled: int  # missing values
    cells: list[tuple[str, float]]  # columns and deviations from the expected values, the largest first

    def __str__(self) -> str:
        cells = (f"{name} {format_number(abs(z))} too {'high' if z > 0 else 'low'}" for name, z in self.cells)
        return f"{self.label} ({', '.join(cells)})"


def bad_rows(table: Table | LargeTable, model: Imputation, fit: LowRank) -> list[BadRow]:
    """The rows of a wide table that are off the low-rank fit of the others; none if that predicts nothing."""
    if not isinstance(table, Table) or table.positions is not None or not (model.rank and model.is_reliable):
        return []
    found = []
    by_row, unit = table.M.T, model.prediction.tolerance / OUTLIER
    for i in model.row_outliers().indices:
        part = slice(by_row.indptr[i], by_row.indptr[i + 1])
        columns, values = by_row.rows[part], by_row.values[part]
        z = (values - fit.at(np.full(columns.size, i), columns)) / unit[columns]
        worst = np.argsort(-np.abs(z), kind="stable")[:CELLS]
        cells = [(str(table.columns[columns[k]]), float(z[k])) for k in worst]
        found.append(BadRow(str(table.rows[i]), table.M.shape[1] - columns.size, cells))
    return found


def note(found: list[BadRow]) -> str:
    """Which rows are wrong, why, and what becomes of their missing values."""
    listed = "; ".join(map(str, found[:LISTED])) + (f"; and {len(found) - LISTED} more" if len(found) > LISTED else "")
    filled = sum(row.filled for row in found)
    verb = "does" if len(found) == 1 else "do"
    text = f"{pluralize(len(found), 'row')} {verb} not fit the others as a whole: {listed} (in standard deviations)."
    if filled:
        text += f" Missing values there ({filled:,}) are filled by what fits the row itself, and are guesses."
    return text
