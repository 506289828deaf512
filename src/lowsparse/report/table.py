"""The report on a completed table: heat maps, outliers to search, and the rows and columns with most of them."""

import itertools
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..linalg.arrays import Float
from ..linalg.lowrank import LowRank
from ..result import Result
from ..support.charts import bars
from ..support.format import percent
from ..support.html import Markup, element
from .heat import heat_map
from .page import Run, card, columns, entries, meters, pane, write
from .rows import BadRow, bad_rows_card

Indices = NDArray[np.integer[Any]]
Labels = Sequence[object] | NDArray[Any]
WORST = 8  # rows and columns to name
LISTED = 2000  # outliers in the page, at most
MAX_DEVIATIONS = 1e6  # larger numbers are cut
SEARCHED = "Search rows, columns, values"
HEADINGS = (
    ("row", "Row", False),
    ("column", "Column", False),
    ("value", "Value", True),
    ("expected", "Expected", True),
    ("deviations", "Deviations", True),
)
PANES = {
    "As given": "missing values are blank, errors marked",
    "What was done": "kept, corrected, filled",
    "Completed": "errors and missing values replaced",
}


class Line(NamedTuple):
    """A row or a column, and how many of its entries are outliers."""

    label: str
    outliers: int
    observed: int


class TableView:
    """What the report shows of a completed table.

    Parameters
    ----------
    row_labels, column_labels
        Names of all rows and columns; by default their numbers, from 0.
    given, fit
        The entries and the fit in their own units, if `result` is of scaled and centred entries.
    by_column
        Columns have units of their own, and colours each on their own scale.
    panes
        Titles and captions of the three heat maps.
    """

    def __init__(
        self,
        result: Result,
        *,
        row_labels: Labels | None = None,
        column_labels: Labels | None = None,
        given: ObservedMatrix | None = None,
        fit: LowRank | None = None,
        by_column: bool = False,
        panes: Mapping[str, str] = PANES,
    ) -> None:
        M, L = given or result.M.to_host(), fit or result.L
        rows = range(M.shape[0]) if row_labels is None else row_labels
        columns = range(M.shape[1]) if column_labels is None else column_labels
        for name, labels, count in (("row", rows, M.shape[0]), ("column", columns, M.shape[1])):
            if len(labels) != count:
                raise ValueError(f"{name}_labels has {len(labels)} names, but the table has {count} {name}s")
        self.by_column, self.panes = by_column, panes
        self.heat = heat_map(M, L, result.flagged)
        self.row_names, self.column_names = _names(self.heat.row_edges, rows), _names(self.heat.column_edges, columns)
        self.singular_values = result.L.singular_values()
        self.total = int(result.flagged.size)  # number of outliers
        listed = {name: numbers[:LISTED].tolist() for name, numbers in list_outliers(result, M, L).items()}
        self.outliers: dict[str, list[Any]] = {
            **listed,
            "row": [str(rows[i]) for i in listed["row"]],
            "column": [str(columns[j]) for j in listed["column"]],
        }
        in_row, in_column = M.count_lines(result.flagged)
        self.worst_rows = _worst(rows, in_row, M.row_counts)
        self.worst_columns = _worst(columns, in_column, M.column_counts)


def list_outliers(result: Result, M: ObservedMatrix, L: LowRank) -> dict[str, NDArray[Any]]:
    """The outliers as columns, those with the largest deviations first; M and L are in their own units."""
    found = deviations(result)
    order = np.argsort(-found, kind="stable")
    at = result.flagged[order]
    i, j = M.rows[at], M.columns_of_entries()[at]
    return {
        "row": i,
        "column": j,
        "value": M.values[at],
        "expected": L.at(i, j),
        "deviations": np.minimum(found[order], MAX_DEVIATIONS),
    }


class Deviations:
    """How many standard deviations entries are from their expected values.

    A good entry differs from L by its noise and by the error of L. Averaged over a row with k inliers, the latter's
    variance is σ² r / k, and likewise for the column: |M - L| / (σ √(1 + r/k_i + r/k_j)). L is shrunk, the more the
    fewer entries there are: its error is typically no larger than L, and r/k is taken as at most the mean of L² / σ².
    """

    def __init__(self, result: Result) -> None:
        self.L, self.noise = result.L, result.noise
        counts = result.M.row_counts, result.M.column_counts
        outliers = result.M.count_lines(result.flagged)
        self.inliers = [total - wrong for total, wrong in zip(counts, outliers, strict=True)]
        m, n = result.M.shape
        self.bound = result.L.norm() ** 2 / (m * n) / result.noise**2 if result.noise else np.inf

    def __call__(self, rows: Indices, columns: Indices, values: NDArray[np.floating[Any]]) -> Float:
        """The deviations of entries by row, column and value."""
        distance = np.abs(np.asarray(values, np.float64) - self.L.at(rows, columns))
        with np.errstate(divide="ignore"):
            by_row, by_column = (self.L.rank / count[k] for count, k in zip(self.inliers, (rows, columns), strict=True))
            spread = np.sqrt(1 + np.minimum(by_row, self.bound) + np.minimum(by_column, self.bound))
            found = distance / (self.noise * spread) if self.noise else np.where(np.isinf(spread), 0.0, np.inf)
        return np.asarray(found, dtype=np.float64)


def deviations(result: Result) -> Float:
    """The `Deviations` of the outliers of a matrix in memory."""
    M, flagged = result.M.to_host(), result.flagged
    return Deviations(result)(M.rows[flagged], M.columns_of_entries()[flagged], M.values[flagged])


def table_report(
    path: str | os.PathLike[str], run: Run, table: TableView, *, reading: str = "", bad_rows: Sequence[BadRow] = ()
) -> None:
    """Write the report on a table; `reading` explains the remarks, `bad_rows` are those that are wrong as a whole."""
    data = {
        "heat": table.heat.packed(table.by_column),
        "rowNames": table.row_names,
        "columnNames": table.column_names,
        "outliers": table.outliers,
    }
    write(
        Path(path),
        run,
        kind="table report",
        body=_heat(table),
        more=[bad_rows_card(bad_rows, listed=table.total > 0), _outliers(table), columns(*_lines(table))],
        cards=[_spectrum(table.singular_values)] if table.singular_values.size else (),
        reading=reading,
        scripts=["heat.js", "entries.js"],
        data=data,
    )


def _names(edges: NDArray[np.intp], labels: Labels) -> list[tuple[str, str]]:
    return [(str(labels[a]), str(labels[b - 1])) for a, b in itertools.pairwise(edges)]


def _worst(labels: Labels, outliers: Indices, observed: Indices) -> list[Line]:
    """The lines with the largest lower bounds (Wilson, 95 %) of their shares of outliers.

    The bound keeps lines with few entries, one outlier of one observed, from coming first.
    """
    z2, k = 1.96**2, np.maximum(observed, 1)
    share = outliers / k
    lower = (share + z2 / (2 * k) - np.sqrt(z2 * (share * (1 - share) / k + z2 / (4 * k**2)))) / (1 + z2 / k)
    order = np.argsort(-lower, kind="stable")[:WORST]
    return [Line(str(labels[i]), int(outliers[i]), int(observed[i])) for i in order if outliers[i]]


# ---------------------------------------------------------------------- parts of the page


def _heat(table: TableView) -> Markup:
    m, n = table.heat.shape
    shares = {kind: table.heat.share(kind) for kind in ("wrong", "filled", "empty")}
    summary = ", ".join(f"{percent(share)} {kind}" for kind, share in shares.items())
    description = f"{m:,} rows and {n:,} columns: {summary}"
    canvas = partial(
        element, "canvas", width=1, height=1, tabindex="0", role="application", aria_roledescription="heat map"
    )
    panes = [
        pane(name, caption, canvas(aria_label=f"{name}. {description}. Arrow keys move from cell to cell."))
        for name, caption in table.panes.items()
    ]
    swatches = [element("i", class_=f"swatch scale-{k}") for k in range(5)]
    kinds = {"kept": "kept as given", "wrong": "wrong", "filled": "filled", "empty": "missing"}
    each = " (each column on its own scale)" if table.by_column else ""
    legend = element(
        "div",
        element("span", "low ", *swatches, f" high{each}", class_="scale"),
        *(element("span", element("i", class_=f"swatch {kind}"), f" {name}") for kind, name in kinds.items()),
        class_="legend",
        id="legend",
    )
    cells = len(table.row_names), len(table.column_names)
    size = round(m * n / (cells[0] * cells[1]))
    blocks = "" if cells == (m, n) else f" A cell stands for about {size:,} entries."
    hint = element("p", f"Point at or tap a cell to read it.{blocks}", id="cell", class_="quiet cell")
    script = element("noscript", element("p", "The pictures and the list need JavaScript.", class_="quiet"))
    return element(
        "section",
        element("div", *panes, class_="panes heat"),
        element("div", legend, hint, class_="transport"),
        script,
        class_="player",
        aria_label="Heat maps",
    )


def _outliers(table: TableView) -> Markup:
    if not table.total:
        return card("Outliers", element("p", "None: all entries fit."))
    count = len(table.outliers["row"])
    text = "Entries that do not fit, by their distance from the expected value in standard deviations."
    if count < table.total:
        text += f" These are the first {count:,} of {table.total:,}."
    return card("Outliers", element("p", text, class_="quiet"), entries("Outliers", SEARCHED, HEADINGS))


def _lines(table: TableView) -> list[Markup]:
    complete = len(table.outliers["row"]) == table.total
    choose = "Click one to list them." if complete else "Click one to see its entries among those listed."
    parts = []
    for title, lines in (("Worst rows", table.worst_rows), ("Worst columns", table.worst_columns)):
        if not lines:
            continue
        text = element("p", f"Outliers among the observed entries. {choose}", class_="quiet")
        button = partial(element, "button", type="button", class_="find", dir="auto")
        rows = [
            (button(line.label), line.outliers / line.observed, f"{line.outliers:,} of {line.observed:,}")
            for line in lines
        ]
        parts.append(card(title, text, meters(rows)))
    return parts


def _spectrum(sizes: Float) -> Markup:
    if not sizes.any():
        return card("Singular values", element("p", "L is 0: no low-rank part predicts the entries."))
    share = percent(sizes[0] ** 2 / float(np.sum(sizes**2)))
    text = f"L has rank {np.count_nonzero(sizes)}; its first component accounts for {share} of its squared norm."
    names = [str(k + 1) for k in range(sizes.size)]
    chart = bars(sizes, names, x_name="component", y_name="singular value", label=text)
    return card("Singular values", element("p", text, class_="quiet"), chart)
