"""HTML cards for notebooks: a result and a diagnosis at a glance, on light and dark themes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from .support.charts import convergence
from .support.format import duration, format_number, percent
from .support.html import Markup, element

if TYPE_CHECKING:
    from .diagnosis import Diagnosis
    from .result import Result

STATUS_TEXT = {
    "converged": "Converged",
    "max_iter": "Stopped after max_iter iterations",
    "max_time": "Stopped after max_time seconds",
    "stalled": "Stalled",
    "diverged": "Diverged",
    "stopped_by_callback": "Stopped by the callback",
}
NO_OBJECTION = "nothing speaks against this result"  # the advice of a diagnosis if there is none
SYMBOLS = {True: "✓", False: "!", None: "·"}
CLASSES = {True: "good", False: "warning", None: "quiet"}


@dataclass(frozen=True)
class Remark:
    """A sentence, and whether it is reassuring (True), a warning (False) or neither (None)."""

    text: str
    good: bool | None = None


def diagnosis_remarks(d: Diagnosis) -> list[Remark]:
    """A diagnosis in full sentences; the advice comes last."""
    converged = "converged" if d.recovered else "did not converge"
    enough = "plenty" if d.oversampling >= 4 else "enough" if d.oversampling >= 2 else "too few to rely on"
    oversampling = f"{format_number(d.oversampling)} entries per degree of freedom of a matrix of rank {d.rank}"
    (row_least, row_median), (column_least, column_median) = (
        map(format_number, counts[:2]) for counts in (d.entries_per_row, d.entries_per_column)
    )
    remarks = [
        Remark(f"The method {converged}: {d.message}.", d.recovered),
        Remark(f"There are {oversampling}: {enough}.", d.oversampling >= 2),
        Remark(
            f"Rows have a median of {row_median} entries and at least {row_least}; "
            f"columns a median of {column_median} and at least {column_least}."
        ),
        Remark(f"{percent(d.outlier_share)} of the entries were identified as outliers."),
    ]
    if d.signal > 0:
        size = percent(d.noise / d.signal)
        remarks.append(Remark(f"The noise of the others is {format_number(d.noise)}, {size} of their typical size."))
    if d.held_out is not None:
        remarks.append(Remark(f"The typical error on held-out entries is {format_number(d.held_out)}."))
    fine = d.advice == (NO_OBJECTION,)
    return remarks + [Remark(f"{advice[:1].upper()}{advice[1:].removesuffix('.')}.", fine) for advice in d.advice]


def result_card(result: Result) -> str:
    """A result: its size, status, notes, key figures and convergence."""
    m, n = result.L.shape
    title = f"{m:,} x {n:,} matrix of rank {result.L.rank}, by {result.method}"
    kind = "good" if result.converged else "warning"
    status = element("span", STATUS_TEXT.get(result.status.value, result.status.value), class_=kind)
    notes = [Remark(note, False) for note in result.notes]
    chart = convergence(result.trace)
    return _card(
        element("p", title, class_="title"),
        element("p", status, f": {result.message}" if result.message else None, class_="ending"),
        _list(notes) if notes else None,
        element("div", _figures(result), chart[1] if chart else None, class_="parts"),
    )


def diagnosis_card(diagnosis: Diagnosis) -> str:
    """A diagnosis in full sentences."""
    m, n = diagnosis.shape
    title = f"{m:,} x {n:,}, {format_number(diagnosis.entries)} entries, rank {diagnosis.rank}"
    return _card(element("p", title, class_="title"), _list(diagnosis_remarks(diagnosis)))


def _card(*parts: Markup | None) -> str:
    """A card; letters and lines take the colour of the notebook's text.

    The two other colours have a contrast of 3 or more to white and to black.
    """
    style = Markup("\n" + resources.files(__package__).joinpath("notebook.css").read_text("utf-8"))
    return str(element("div", element("style", style), *parts, class_="lowsparse-card"))


def _list(remarks: Sequence[Remark]) -> Markup:
    items = (element("li", element("b", SYMBOLS[r.good], class_=CLASSES[r.good]), r.text) for r in remarks)
    return element("ul", *items)


def _figures(result: Result) -> Markup:
    entries, outliers = result.M.nnz, result.S.nnz
    figures = {
        "observed": f"{format_number(entries)} entries, {percent(result.M.density)}",
        "outliers": f"{format_number(outliers)}, {percent(outliers / entries)} of them",
        "noise": format_number(result.noise),
        "held-out error": None if result.held_out is None else format_number(result.held_out),
        "iterations": format_number(result.n_iter),
        "time": f"{duration(result.seconds)} on {result.backend}",
    }
    pairs = ((element("dt", name), element("dd", text)) for name, text in figures.items() if text is not None)
    return element("dl", *(part for pair in pairs for part in pair))
