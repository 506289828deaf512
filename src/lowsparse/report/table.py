"""The report on a completed table: heat maps, outliers to search, and the rows and columns with most of them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..linalg.lowrank import LowRank
from ..result import Result
from ..support.charts import bars
from ..support.format import percent
from ..support.html import Markup, element
from .heat import HeatMap, heat_map
from .page import Run, card, columns, meters, pane, write

__all__ = ["Deviations", "Line", "TableView", "deviations", "table_report"]

Floats = NDArray[np.float64]
Labels = Sequence[object] | NDArray[Any]
WORST = 8  # rows and columns to name
LISTED = 2000  # outliers in the page, at most
MAX_DEVIATIONS = 1e6  # larger numbers are cut
COLUMNS = {"row": "Row", "column": "Column", "value": "Value", "expected": "Expected", "deviations": "Deviations"}
PANES = {
    "As given": "missing values are blank, errors marked",
    "What was done": "kept, corrected, filled",
    "Completed": "errors and missing values replaced",
}


@dataclass(frozen=True)
class Line:
    """A row or a column, and how many of its entries are outliers."""

    label: str
    outliers: int
    observed: int

    @property
    def share(self) -> float:
        """Of the observed entries."""
        return self.outliers / self.observed if self.observed else 0.0


@dataclass(frozen=True, kw_only=True)
class TableView:
    """What the report shows of a completed table; `TableView.of` makes one from a result."""

    heat: HeatMap
    row_names: Sequence[tuple[str, str]]  # of the first and the last row of each cell of the heat map
    column_names: Sequence[tuple[str, str]]
    outliers: Mapping[str, Sequence[Any]]  # columns: row, column, value, expected, deviations
    total: int  # outliers, also those not listed
    singular_values: Sequence[float]
    worst_rows: Sequence[Line]
    worst_columns: Sequence[Line]
    by_column: bool = False  # columns have units of their own, and colours each on their own scale
    panes: Mapping[str, str] = field(default_factory=lambda: PANES)  # titles and captions of the three heat maps

    @classmethod
    def of(
        cls,
        result: Result,
        *,
        row_labels: Labels | None = None,
        column_labels: Labels | None = None,
        given: ObservedMatrix | None = None,
        fit: LowRank | None = None,
        by_column: bool = False,
        panes: Mapping[str, str] = PANES,
    ) -> Self:
        """The table of a result.

        Parameters
        ----------
        row_labels, column_labels
            Names of all rows and columns; by default their numbers, from 0.
        given, fit
            The entries and the fit in their own units, if `result` is of scaled and centred entries.
        by_column, panes
            As above.
        """
        M, L = given or result.M.to_host(), fit or result.L
        row_labels = range(M.shape[0]) if row_labels is None else row_labels
        column_labels = range(M.shape[1]) if column_labels is None else column_labels
        for name, labels, count in (("row", row_labels, M.shape[0]), ("column", column_labels, M.shape[1])):
            if len(labels) != count:
                raise ValueError(f"{name}_labels has {len(labels)} names, but the table has {count} {name}s")
        heat = heat_map(M, L, result.flagged, empty_rows=M.empty_rows, empty_columns=M.empty_columns)
        i, j = M.rows[result.flagged], M.columns_of_entries()[result.flagged]
        return cls(
            heat=heat,
            row_names=_names(heat.row_edges, row_labels),
            column_names=_names(heat.column_edges, column_labels),
            outliers=_list_outliers(result, M, L, row_labels, column_labels),
            total=int(result.flagged.size),
            singular_values=result.L.singular_values().tolist(),
            worst_rows=_worst(row_labels, np.bincount(i, minlength=M.shape[0]), M.row_counts),
            worst_columns=_worst(column_labels, np.bincount(j, minlength=M.shape[1]), M.column_counts),
            by_column=by_column,
            panes=panes,
        )


def _list_outliers(
    result: Result, M: ObservedMatrix, L: LowRank, row_labels: Labels, column_labels: Labels
) -> dict[str, list[Any]]:
    """The outliers with the largest deviations, as columns."""
    found = deviations(result)
    order = np.argsort(-found, kind="stable")[:LISTED]
    at = result.flagged[order]
    i, j = M.rows[at], M.columns_of_entries()[at]
    return {
        "row": [str(row_labels[k]) for k in i],
        "column": [str(column_labels[k]) for k in j],
        "value": M.values[at].tolist(),
        "expected": L.at(i, j).tolist(),
        "deviations": np.minimum(found[order], MAX_DEVIATIONS).tolist(),
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

    def __call__(self, rows: Any, columns: Any, values: Any) -> Floats:
        """The deviations of entries by row, column and value."""
        distance = np.abs(np.asarray(values, np.float64) - self.L.at(rows, columns))
        with np.errstate(divide="ignore"):
            by_row, by_column = (self.L.rank / count[k] for count, k in zip(self.inliers, (rows, columns), strict=True))
            spread = np.sqrt(1 + np.minimum(by_row, self.bound) + np.minimum(by_column, self.bound))
            found = distance / (self.noise * spread) if self.noise else np.where(np.isinf(spread), 0.0, np.inf)
        return np.asarray(found, dtype=np.float64)


def deviations(result: Result) -> Floats:
    """The `Deviations` of the outliers of a matrix in memory."""
    M, flagged = result.M.to_host(), result.flagged
    return Deviations(result)(M.rows[flagged], M.columns_of_entries()[flagged], M.values[flagged])


def table_report(path: str | os.PathLike[str], run: Run, table: TableView, *, reading: str = "") -> None:
    """Write the report on a table; `reading` explains the diagnosis."""
    data = {
        "heat": table.heat.packed(table.by_column),
        "rowNames": table.row_names,
        "columnNames": table.column_names,
        "outliers": {name: table.outliers[name] for name in COLUMNS},
    }
    write(
        Path(path),
        run,
        kind="table report",
        body=_heat(table),
        more=[_outliers(table), columns(*_lines(table))],
        cards=[_spectrum(table)] if table.singular_values else (),
        reading=reading,
        scripts=["heat.js", "entries.js"],
        data=data,
    )


def _names(edges: NDArray[np.intp], labels: Labels) -> list[tuple[str, str]]:
    return [(str(labels[a]), str(labels[b - 1])) for a, b in itertools.pairwise(edges)]


def _worst(labels: Labels, outliers: NDArray[Any], observed: NDArray[Any]) -> list[Line]:
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
    panes = [
        pane(
            name,
            caption,
            element(
                "canvas",
                width=1,
                height=1,
                tabindex="0",
                role="application",
                aria_roledescription="heat map",
                aria_label=f"{name}. {description}. Arrow keys move from cell to cell.",
            ),
        )
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
    count = len(table.outliers["row"])
    if not table.total:
        return card("Outliers", element("p", "None: all entries fit."))
    text = "Entries that do not fit, by their distance from the expected value in standard deviations."
    if count < table.total:
        text += f" These are the first {count:,} of {table.total:,}."
    heads = [
        element(
            "th",
            element("button", title, type="button", data_column=name),
            scope="col",
            aria_sort="descending" if name == "deviations" else "none",
            class_="figure" if name in ("value", "expected", "deviations") else None,
        )
        for name, title in COLUMNS.items()
    ]
    search = element(
        "label",
        element("span", "Search", class_="unseen"),
        element("input", type="search", id="search", placeholder="Search rows, columns, values", autocomplete="off"),
    )
    sizes = [element("option", str(k), value=k, selected=k == 10) for k in (10, 25, 100)]
    pager = element(
        "div",
        element("button", "Previous", type="button", id="previous"),
        element("span", id="pages"),
        element("button", "Next", type="button", id="following"),
        element("label", "Rows ", element("select", *sizes, id="size", autocomplete="off")),
        class_="pager",
    )
    listed = element(
        "table",
        element("caption", "Outliers", class_="unseen"),
        element("thead", element("tr", *heads)),
        element("tbody", id="entries"),
        class_="entries",
    )
    return card(
        "Outliers",
        element("p", text, class_="quiet"),
        element("div", search, element("output", id="count", aria_live="polite"), class_="tools"),
        element("div", listed, class_="scroll", tabindex="0", role="region", aria_label="Outliers"),
        pager,
    )


def _lines(table: TableView) -> list[Markup]:
    complete = len(table.outliers["row"]) == table.total
    choose = "Click one to list them." if complete else "Click one to see its entries among those listed."
    parts = []
    for title, lines in (("Worst rows", table.worst_rows), ("Worst columns", table.worst_columns)):
        if not lines:
            continue
        text = element("p", f"Outliers among the observed entries. {choose}", class_="quiet")
        buttons = [element("button", line.label, type="button", class_="find", dir="auto") for line in lines]
        rows = [
            (button, line.share, f"{line.outliers:,} of {line.observed:,}")
            for button, line in zip(buttons, lines, strict=True)
        ]
        parts.append(card(title, text, meters(rows)))
    return parts


def _spectrum(table: TableView) -> Markup:
    sizes = np.asarray(table.singular_values, dtype=np.float64)
    if not sizes.any():
        return card("Singular values", element("p", "L is 0: no low-rank part predicts the entries."))
    share = percent(sizes[0] ** 2 / float(np.sum(sizes**2)))
    text = f"L has rank {np.count_nonzero(sizes)}; its first component accounts for {share} of its squared norm."
    names = [str(k + 1) for k in range(sizes.size)]
    chart = bars(sizes, names, x_name="component", y_name="singular value", label=text)
    return card("Singular values", element("p", text, class_="quiet"), chart)
