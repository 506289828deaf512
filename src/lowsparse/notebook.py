"""Cards for notebooks: a result and a diagnosis at a glance, on whatever colour the notebook has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .report.words import Remark, in_words
from .support.charts import convergence
from .support.format import duration, number, percent
from .support.html import Markup, element

if TYPE_CHECKING:
    from .diagnosis import Diagnosis
    from .result import Result

__all__ = ["diagnosis_card", "result_card"]

ENDINGS = {
    "converged": "Converged",
    "max_iter": "Stopped after max_iter iterations",
    "max_time": "Stopped after max_time seconds",
    "stalled": "Stalled",
    "diverged": "Diverged",
    "stopped_by_callback": "Stopped by the callback",
}
SIGNS = {True: "✓", False: "!", None: "·"}

# Letters and lines take the colour of the notebook's text, so that they are read on light and on dark ones; the two
# other colours have a contrast of 3 or more to white and to black.
STYLE = """
.lowsparse-card { max-width: 760px; padding: 12px 16px; border: 1px solid rgba(128,128,128,.4); border-radius: 10px;
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; font-variant-numeric: tabular-nums; }
.lowsparse-card p, .lowsparse-card ul, .lowsparse-card dl, .lowsparse-card dd { margin: 0; padding: 0; }
.lowsparse-card .title { font-weight: 640; font-size: 15px; }
.lowsparse-card .quiet, .lowsparse-card dt { opacity: .75; }
.lowsparse-card .ending { margin-top: 2px; overflow-wrap: anywhere; }
.lowsparse-card .good { color: #1f8a5b; font-weight: 640; }
.lowsparse-card .warning { color: #cf6a14; font-weight: 640; }
.lowsparse-card .parts { display: flex; flex-wrap: wrap; gap: 6px 28px; align-items: center; margin-top: 8px; }
.lowsparse-card dl { display: grid; grid-template-columns: auto auto; gap: 1px 14px; flex: none; font-size: 13px; }
.lowsparse-card dd { font-weight: 560; }
.lowsparse-card ul { list-style: none; margin-top: 6px; display: grid; gap: 3px; }
.lowsparse-card li { margin: 0; padding-left: 1.4em; text-indent: -1.4em; overflow-wrap: anywhere; }
.lowsparse-card li b { display: inline-block; width: 1.4em; text-indent: 0; }
.lowsparse-card .chart { flex: 1 1 280px; display: grid; gap: 3px 8px;
  grid-template: auto 84px auto auto / 36px minmax(0, 1fr); }
.lowsparse-card .chart svg { display: block; width: 100%; height: 100%; overflow: visible; }
.lowsparse-card .chart text { font-size: 11px; fill: currentColor; opacity: .75; }
.lowsparse-card .chart .power { font-size: 8px; }
.lowsparse-card .y-name, .lowsparse-card .x-name { font-size: 11px; opacity: .75; grid-column: 1 / -1; }
.lowsparse-card .x-name { text-align: right; }
.lowsparse-card .chart .x-axis { grid-column: 2; height: 14px; }
.lowsparse-card .grid { stroke: currentColor; opacity: .18; }
.lowsparse-card .line { fill: none; stroke: #3b82d0; stroke-width: 1.8; stroke-linejoin: round; }
.lowsparse-card .end { fill: #3b82d0; }
"""


def result_card(result: Result) -> str:
    """A result: what it is, how it ended, its figures, and how it settled.

    >>> import lowsparse as ls
    >>> shown = result_card(ls.solve([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]], rank=1))
    >>> "Converged" in shown, "<script" in shown
    (True, False)
    """
    m, n = result.L.shape
    title = f"{m:,} x {n:,} matrix of rank {result.L.rank}, by {result.method}"
    kind = "good" if result.converged else "warning"
    ended = element("span", ENDINGS.get(result.status.value, result.status.value), class_=kind)
    notes = [Remark(note, False) for note in result.notes]
    drawn = convergence(result.trace)
    return _card(
        element("p", title, class_="title"),
        element("p", ended, f": {result.message}" if result.message else None, class_="ending"),
        _list(notes) if notes else None,
        element("div", _figures(result), drawn[1] if drawn else None, class_="parts"),
    )


def diagnosis_card(diagnosis: Diagnosis) -> str:
    """A diagnosis in words, the advice last.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(90, 80, rank=2, density=0.6, outliers=0.1, random_state=1)
    >>> "Nothing speaks against this result." in diagnosis_card(ls.solve(problem.M, rank=2).diagnostics)
    True
    """
    m, n = diagnosis.shape
    title = f"{m:,} x {n:,}, {number(diagnosis.entries)} entries, rank {diagnosis.rank}"
    return _card(element("p", title, class_="title"), _list(in_words(diagnosis)))


def _card(*parts: Markup | None) -> str:
    return str(element("div", element("style", Markup(STYLE)), *parts, class_="lowsparse-card"))


def _list(remarks: Sequence[Remark]) -> Markup:
    kinds = {True: "good", False: "warning", None: "quiet"}
    return element(
        "ul", *(element("li", element("b", SIGNS[one.good], class_=kinds[one.good]), one.text) for one in remarks)
    )


def _figures(result: Result) -> Markup:
    entries, wrong = result.M.nnz, result.S.nnz
    figures = {
        "observed": f"{number(entries)} entries, {percent(result.M.density)}",
        "outliers": f"{number(wrong)}, {percent(wrong / entries)} of them",
        "noise": number(result.noise),
        "kept aside": None if result.held_out is None else f"predicted to within {number(result.held_out)}",
        "iterations": number(result.n_iter),
        "time": f"{duration(result.seconds)} on {result.backend}",
    }
    shown = ((element("dt", name), element("dd", text)) for name, text in figures.items() if text is not None)
    return element("dl", *(part for pair in shown for part in pair))
