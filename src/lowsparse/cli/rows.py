"""Rows of a table that are wrong as a whole, and the cells that make them so, in words."""

from __future__ import annotations

import numpy as np

from ..imputation.model import Imputation
from ..linalg.lowrank import LowRank
from ..linalg.scale import OUTLIER
from ..report.rows import BadRow, Cell
from ..support.format import pluralize
from ..tables import Table
from ..tables.stream import LargeTable

LISTED = 5  # rows named in a note
CELLS = 3  # cells of each


def bad_rows(table: Table | LargeTable, model: Imputation, fit: LowRank) -> list[BadRow]:
    """The rows of a wide table that are off the low-rank fit of the others; none if that predicts nothing."""
    if not isinstance(table, Table) or table.positions is not None or not (model.rank and model.is_reliable):
        return []
    found = []
    by_row, unit, cases = table.M.T, model.prediction.tolerance / OUTLIER, model.row_outliers()
    for i in cases.indices:
        part = slice(by_row.indptr[i], by_row.indptr[i + 1])
        columns, values = by_row.rows[part], by_row.values[part]
        expected = fit.at(np.full(columns.size, i), columns)
        z = (values - expected) / unit[columns]
        worst = np.argsort(-np.abs(z), kind="stable")[:CELLS]
        found.append(
            BadRow(
                label=str(table.rows[i]),
                filled=table.M.shape[1] - columns.size,
                observed=columns.size,
                outliers=round(float(cases.cell_share[i]) * columns.size),
                many=bool(cases.cell_share[i] > cases.cell_cutoff[i]),
                distance=float(cases.orthogonal_distance[i]),
                usual=float(cases.orthogonal_cutoff[i]),
                cells=[
                    Cell(str(table.columns[columns[k]]), *map(float, (values[k], expected[k], z[k]))) for k in worst
                ],
            )
        )
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
