"""The report on a table: what was missing, wrong and filled, the worst lines, and the flagged entries to search."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..diagnosis import counted
from ..entries.observed import ObservedMatrix
from ..linalg.lowrank import LowRank
from ..result import Result
from ..support.charts import bars
from ..support.format import number, percent
from ..support.html import Markup, element
from .heat import HeatMap, heat_map
from .page import (
    Run,
    card,
    columns,
    meters,
    pane,
    write,
)

__all__ = ["Line", "Sureness", "TableView", "sureness", "table_report"]

Floats = NDArray[np.float64]
Labels = Sequence[object] | NDArray[Any]
WORST = 8  # lines to name
SUREST = 1e6  # larger figures say no more
COLUMNS = {"row": "Row", "column": "Column", "value": "Value", "expected": "Should be", "sure": "How sure"}
PANES = {
    "As given": "holes are blank, errors marked",
    "What was done": "kept, corrected, filled",
    "Completed": "errors and holes replaced",
}


@dataclass(frozen=True)
class Line:
    """A row or a column, and how many of its entries were wrong.

    >>> Line("sensor 7", wrong=3, observed=40).share
    0.075
    """

    label: str
    wrong: int
    observed: int

    @property
    def share(self) -> float:
        """Of the observed entries."""
        return self.wrong / self.observed if self.observed else 0.0


@dataclass(frozen=True, kw_only=True)
class TableView:
    """A completed table, as the report shows it; `TableView.of` makes one of a result.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 50, rank=1, density=0.5, outliers=0.1, random_state=1)
    >>> table = TableView.of(ls.solve(problem.M, rank=1))
    >>> table.total == int((problem.S != 0).sum()), table.worst_rows[0].wrong > 1
    (True, True)
    """

    heat: HeatMap
    row_names: Sequence[tuple[str, str]]  # of the first and the last row of each cell of the heat map
    column_names: Sequence[tuple[str, str]]
    flagged: Mapping[str, Sequence[Any]]  # columns: row, column, value, expected, sure (see `sureness`)
    total: int  # flagged entries, also those not listed
    singular_values: Sequence[float]
    worst_rows: Sequence[Line]
    worst_columns: Sequence[Line]
    by_rank: Mapping[int, float] = field(default_factory=dict)  # error of entries kept aside, of the ranks tried
    by_column: bool = False  # columns have units of their own, and colours each on their own scale
    panes: Mapping[str, str] = field(default_factory=lambda: PANES)  # names of the three heat maps, and words on them

    @classmethod
    def of(
        cls,
        result: Result,
        *,
        row_labels: Labels | None = None,
        column_labels: Labels | None = None,
        given: ObservedMatrix | None = None,
        fit: LowRank | None = None,
        empty_rows: ArrayLike | None = None,
        empty_columns: ArrayLike | None = None,
        by_rank: Mapping[int, float] | None = None,
        by_column: bool = False,
        panes: Mapping[str, str] = PANES,
        sure: Floats | None = None,
        most: int = 2000,
    ) -> Self:
        """The table of a result.

        Parameters
        ----------
        row_labels, column_labels
            The names of all rows and columns; their numbers, from 0, by default.
        given, fit
            The table and its fit in their own units, if `result` is of what is left after scales and offsets.
        empty_rows, empty_columns
            Lines in which missing entries were not filled; those without any entry by default.
        by_rank, by_column, panes
            As above.
        sure
            Of each flagged entry, in their order; its `sureness` by default.
        most
            Flagged entries to list; the surest come first.
        """
        M, L = given or result.M, fit or result.L
        row_labels = range(M.shape[0]) if row_labels is None else row_labels
        column_labels = range(M.shape[1]) if column_labels is None else column_labels
        for name, labels, count in (("row", row_labels, M.shape[0]), ("column", column_labels, M.shape[1])):
            if len(labels) != count:
                raise ValueError(f"{name}_labels has {len(labels)} names, but the table has {count} {name}s")
        heat = heat_map(
            M,
            L,
            result.flagged,
            empty_rows=M.empty_rows if empty_rows is None else empty_rows,
            empty_columns=M.empty_columns if empty_columns is None else empty_columns,
        )
        columns = M.columns_of_entries()
        sure = sureness(result) if sure is None else sure
        listed = np.argsort(-sure, kind="stable")[:most]
        at = result.flagged[listed]
        wrong_in = [
            np.bincount(where[result.flagged], minlength=count)
            for where, count in zip((M.rows, columns), M.shape, strict=True)
        ]
        return cls(
            heat=heat,
            row_names=_names(heat.row_edges, row_labels),
            column_names=_names(heat.column_edges, column_labels),
            flagged={
                "row": [str(row_labels[i]) for i in M.rows[at]],
                "column": [str(column_labels[j]) for j in columns[at]],
                "value": M.values[at].tolist(),
                "expected": L.at(M.rows[at], columns[at]).tolist(),
                "sure": np.minimum(sure[listed], SUREST).tolist(),
            },
            total=int(result.flagged.size),
            singular_values=result.L.singular_values().tolist(),
            worst_rows=_worst(row_labels, wrong_in[0], M.row_counts),
            worst_columns=_worst(column_labels, wrong_in[1], M.column_counts),
            by_rank=dict(by_rank or {}),
            by_column=by_column,
            panes=panes,
        )


class Sureness:
    """How many standard deviations entries are from what they should have been.

    A good entry differs from L by its noise and by the error of L. In the mean over a row with k entries that are no
    outliers the latter's variance is σ² r / k, and likewise for the column: |M - L| / (σ √(1 + r/k_i + r/k_j)). L is
    shrunk, and nearer to 0 the less a line has to say: its error is no larger than L, as a rule, and r/k is taken as
    at most the mean of L² / σ².
    """

    def __init__(self, result: Result) -> None:
        self.L, self.noise = result.L, result.noise
        counts = result.M.row_counts, result.M.column_counts
        wrong = counted(result.M, result.flagged)
        self.good = [have - lost for have, lost in zip(counts, wrong, strict=True)]
        m, n = result.M.shape
        self.usual = result.L.norm() ** 2 / (m * n) / result.noise**2 if result.noise else np.inf

    def __call__(self, rows: Any, columns: Any, values: Any) -> Floats:
        """Of entries in these rows and columns, with these values."""
        apart = np.abs(np.asarray(values, np.float64) - self.L.at(rows, columns))
        with np.errstate(divide="ignore"):
            by_row, by_column = (self.L.rank / good[k] for good, k in zip(self.good, (rows, columns), strict=True))
            spread = np.sqrt(1 + np.minimum(by_row, self.usual) + np.minimum(by_column, self.usual))
            found = apart / (self.noise * spread) if self.noise else np.where(np.isinf(spread), 0.0, np.inf)
        return np.asarray(found, dtype=np.float64)


def sureness(result: Result) -> Floats:
    """For each flagged entry of a matrix in memory, its `Sureness`.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(80, 70, rank=2, density=0.7, outliers=0.1, noise=0.1, random_state=1)
    >>> bool(sureness(ls.solve(problem.M, rank=2)).min() > 3.5)
    True
    """
    M, flagged = result.M, result.flagged
    return Sureness(result)(M.rows[flagged], M.columns_of_entries()[flagged], M.values[flagged])


def table_report(path: str | os.PathLike[str], run: Run, table: TableView, *, reading: str = "") -> None:
    """Write the report on a table, in the place of an earlier one; `reading` says how to read the diagnosis.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 50, rank=1, density=0.5, outliers=0.1, random_state=1)
    >>> result = ls.solve(problem.M, rank=1)
    >>> run = Run(title="numbers.csv", trace=result.trace, diagnosis=result.diagnostics)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = pathlib.Path(folder, "report.html")
    ...     table_report(page, run, TableView.of(result))
    ...     page.read_text("utf-8").count("<canvas")
    3
    """
    data = {
        "heat": table.heat.packed(table.by_column),
        "rowNames": table.row_names,
        "columnNames": table.column_names,
        "flagged": {name: table.flagged[name] for name in COLUMNS},
    }
    write(
        Path(path),
        run,
        kind="table report",
        body=_heat(table),
        more=[_flagged(table), columns(*_lines(table))],
        cards=_spectrum(table),
        reading=reading,
        scripts=["heat.js", "entries.js"],
        data=data,
    )


# ---------------------------------------------------------------------- what is counted


def _names(edges: NDArray[np.intp], labels: Labels) -> list[tuple[str, str]]:
    return [(str(labels[a]), str(labels[b - 1])) for a, b in itertools.pairwise(edges)]


def _worst(labels: Labels, wrong: NDArray[Any], observed: NDArray[Any]) -> list[Line]:
    """The lines with the largest lower bounds (Wilson, 95 %) of their shares of wrong entries.

    Of a line with few entries little is known: one wrong of one observed is no reason to come first.
    """
    z2, k = 1.96**2, np.maximum(observed, 1)
    share = wrong / k
    lower = (share + z2 / (2 * k) - np.sqrt(z2 * (share * (1 - share) / k + z2 / (4 * k**2)))) / (1 + z2 / k)
    order = np.argsort(-lower, kind="stable")[:WORST]
    return [Line(str(labels[i]), int(wrong[i]), int(observed[i])) for i in order if wrong[i]]


# ---------------------------------------------------------------------- what is shown


def _heat(table: TableView) -> Markup:
    m, n = table.heat.shape
    shares = {kind: table.heat.share(kind) for kind in ("wrong", "filled", "empty")}
    told = ", ".join(f"{percent(share)} {kind}" for kind, share in shares.items())
    words = f"{m:,} rows and {n:,} columns: {told}"
    panes = [
        pane(
            name,
            said,
            element(
                "canvas",
                width=1,
                height=1,
                tabindex="0",
                role="application",
                aria_roledescription="heat map",
                aria_label=f"{name}. {words}. Arrow keys go from cell to cell.",
            ),
        )
        for name, said in table.panes.items()
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
    blocks = "" if cells == (m, n) else f" A cell stands for {_block(m, n, cells)} entries."
    hint = element("p", f"Point at a cell, or tap it, to read it.{blocks}", id="cell", class_="quiet cell")
    script = element("noscript", element("p", "The pictures and the list need JavaScript.", class_="quiet"))
    return element(
        "section",
        element("div", *panes, class_="panes heat"),
        element("div", legend, hint, class_="transport"),
        script,
        class_="player",
        aria_label="Heat maps",
    )


def _block(m: int, n: int, cells: tuple[int, int]) -> str:
    return f"about {round(m * n / (cells[0] * cells[1])):,}"


def _flagged(table: TableView) -> Markup:
    count = len(table.flagged["row"])
    if not table.total:
        return card("Flagged entries", element("p", "None: every entry fits."))
    told = "Entries that do not fit, the surest first. “How sure” is the distance in standard deviations."
    if count < table.total:
        told += f" These are {count:,} of {table.total:,}."
    heads = [
        element(
            "th",
            element("button", title, type="button", data_column=name),
            scope="col",
            aria_sort="descending" if name == "sure" else "none",
            class_="figure" if name in ("value", "expected", "sure") else None,
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
        element("caption", "Flagged entries", class_="unseen"),
        element("thead", element("tr", *heads)),
        element("tbody", id="entries"),
        class_="entries",
    )
    return card(
        "Flagged entries",
        element("p", told, class_="quiet"),
        element("div", search, element("output", id="count", aria_live="polite"), class_="tools"),
        element("div", listed, class_="scroll", tabindex="0", role="region", aria_label="Flagged entries"),
        pager,
    )


def _lines(table: TableView) -> list[Markup]:
    every = len(table.flagged["row"]) == table.total
    choose = "Choose one to list them." if every else "Choose one to see its entries among those listed."
    parts = []
    for title, lines in (("Worst rows", table.worst_rows), ("Worst columns", table.worst_columns)):
        if not lines:
            continue
        told = element("p", f"Wrong entries of those observed. {choose}", class_="quiet")
        rows = [(_finder(line.label), line.share, f"{line.wrong:,} of {line.observed:,}") for line in lines]
        parts.append(card(title, told, meters(rows)))
    return parts


def _finder(label: str) -> Markup:
    return element("button", label, type="button", class_="find", dir="auto")


def _spectrum(table: TableView) -> list[Markup]:
    parts = []
    sizes = np.asarray(table.singular_values, dtype=np.float64)
    if sizes.size and not sizes.any():
        parts.append(card("Singular values", element("p", "L is 0: nothing of low rank predicts the entries.")))
    elif sizes.size:
        energy = sizes[0] ** 2 / max(float(np.sum(sizes**2)), 1e-300)
        said = f"L has rank {np.count_nonzero(sizes)}; its first component makes up {percent(energy)} of its squares."
        names = [str(k + 1) for k in range(sizes.size)]
        drawing = bars(sizes, names, x_name="component", y_name="singular value", words=said)
        parts.append(card("Singular values", element("p", said, class_="quiet"), drawing))
    if table.by_rank:
        best = min(table.by_rank, key=lambda rank: table.by_rank[rank])
        said = f"Entries kept aside were predicted best, to within {number(table.by_rank[best])}, with rank {best}."
        names = [str(rank) for rank in table.by_rank]
        drawing = bars(list(table.by_rank.values()), names, x_name="rank", y_name="held-out error", words=said)
        parts.append(card("Held-out error", element("p", said, class_="quiet"), drawing))
    return parts
