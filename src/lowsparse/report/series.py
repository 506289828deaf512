"""The report on series: a chart to pan and zoom with gaps, bands and anomalies by kind, and a list of the anomalies."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..linalg.arrays import Float
from ..series.anomalies import KINDS
from ..series.runs import Runs
from ..support.format import percent, pluralize
from ..support.html import Markup, element
from .page import Run, card, encode_values, entries, icon, to_base64, write

READ, FILLED, BAD, EMPTY = range(4)  # what a moment of a series is; the script has the same numbers
SHOWN = 6_000_000  # readings in the page, about; more series than that are left out
LISTED = 5000  # anomalies in the page, at most
LARGEST = 3e38  # bad reading, in numbers of 4 bytes
WIDEST = 1.0  # ranges of a series by which a band is drawn beyond it, at most
HEADINGS = (
    ("series", "Series", False),
    ("begin", "Begin", False),
    ("end", "End", False),
    ("kind", "Kind", False),
    ("observed", "Observed", True),
    ("expected", "Expected", True),
    ("sure", "Sure", True),
)
BUTTONS = {"back": "Previous anomaly", "next": "Next anomaly", "minus": "Zoom out", "plus": "Zoom in"}
KEYS = (
    "Drag to move, pinch to zoom; with the wheel after a click. Keys: ← → move, + − zoom, Home and End, 0 for all, "
    "↑ ↓ other series, Shift with ← → reads moment by moment."
)


@dataclass(frozen=True, kw_only=True)
class SeriesView:
    """What the report shows of series on a grid of moments (moments x series).

    The anomalies are columns: series, begin and end as numbers on the grid (the last one included), kind, observed,
    expected, sure; `labels` names the moments that are rows of the table.
    """

    names: Sequence[str]
    start: np.datetime64
    step: np.timedelta64 | int  # an int is a number of months
    given: Float  # NaN where nothing was read
    value: Float  # the good readings, predictions elsewhere; NaN where there is none
    lower: Float
    upper: Float
    level: float  # of the bands
    anomalies: Mapping[str, NDArray[Any]]
    labels: Mapping[int, str]

    def shown(self) -> NDArray[np.intp]:
        """The series in the page: all, or those with most readings that are bad or missing."""
        count = max(1, SHOWN // len(self.given))
        changed = np.sum(self.states() != READ, axis=0)
        return np.sort(np.argsort(-changed, kind="stable")[:count])

    def states(self) -> NDArray[np.uint8]:
        """Of each moment of each series: READ, FILLED, BAD or EMPTY."""
        missing = np.isnan(self.given)
        states = np.where(missing, FILLED, np.where(self.given == self.value, READ, BAD))
        return np.where(np.isnan(self.value), EMPTY, states).astype(np.uint8)

    def packed(self) -> dict[str, Any]:
        """The data of the chart."""
        start = float((self.start - np.datetime64(0, "s")) / np.timedelta64(1, "ms"))
        months = isinstance(self.step, int)
        states = self.states()
        return {
            "moments": len(self.given),
            "start": start,
            "months": self.step if months else 0,
            "step": 0.0 if isinstance(self.step, int) else float(self.step / np.timedelta64(1, "ms")),
            "level": self.level,
            "kinds": list(KINDS),
            "lines": [self._line(j, states[:, j]) for j in self.shown().tolist()],
        }

    def _line(self, j: int, states: NDArray[np.uint8]) -> dict[str, Any]:
        """A series: its values, the runs of moments that were not read, their bands, and the bad readings."""
        value = self.value[:, j]
        known = value[np.isfinite(value)]
        lowest, highest = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
        far = WIDEST * (highest - lowest)
        changed = np.isin(states, (FILLED, BAD))
        bands = [np.clip(limit[changed, j], lowest - far, highest + far) for limit in (self.lower, self.upper)]
        low = np.array(min([lowest, *bands[0].tolist()]))
        high = max([highest, *bands[1].tolist()])
        span = np.array(high - low if high > low else 1.0)
        runs = {state: Runs.of((states == state)[:, None]) for state in (FILLED, BAD, EMPTY)}
        return {
            "name": self.names[j],
            "low": float(low),
            "span": float(span),
            "values": encode_values(value, low, span),
            "runs": {
                str(state): to_base64(np.column_stack([found.begin, found.end]).astype("<u4"))
                for state, found in runs.items()
            },
            "lower": encode_values(bands[0], low, span),
            "upper": encode_values(bands[1], low, span),
            "bad": to_base64(np.clip(self.given[states == BAD, j], -LARGEST, LARGEST).astype("<f4")),
            "filled": int(np.sum(states == FILLED)),
        }

    def listed(self) -> dict[str, list[Any]]:
        """The anomalies of the series in the page, the surest first."""
        columns = self.anomalies
        number = {j: k for k, j in enumerate(self.shown().tolist())}
        order = [k for k in np.argsort(-columns["sure"], kind="stable") if columns["series"][k] in number][:LISTED]
        return {
            "number": [number[j] for j in columns["series"][order].tolist()],
            "series": [self.names[j] for j in columns["series"][order].tolist()],
            **{name: [self.labels[t] for t in columns[name][order].tolist()] for name in ("begin", "end")},
            **{f"{name}At": columns[name][order].tolist() for name in ("begin", "end")},
            **{name: columns[name][order].tolist() for name in ("kind", "observed", "expected", "sure")},
        }


def series_report(path: str | os.PathLike[str], run: Run, view: SeriesView) -> None:
    """Write the report on series."""
    write(
        Path(path),
        run,
        kind="series report",
        body=_chart(view),
        more=[_anomalies(view)],
        scripts=["series.js", "entries.js"],
        data={"series": view.packed(), "anomalies": view.listed()},
    )


# ---------------------------------------------------------------------- parts of the page


def _chart(view: SeriesView) -> Markup:
    counts = {kind: int(np.sum(view.anomalies["kind"] == kind)) for kind in KINDS}
    missing = percent(float(np.mean(np.isnan(view.given))))
    label = (
        f"{pluralize(len(view.names), 'series', 'series')}, {pluralize(len(view.given), 'moment')}, {missing} missing"
    )
    button = partial(element, "button", type="button")
    buttons = [button(icon(name), id=name, aria_label=text) for name, text in BUTTONS.items()]
    controls = [
        element("div", *buttons, button("All", id="whole", aria_label="Show all moments"), class_="buttons"),
        element("p", "", id="where"),
        element("label", element("input", type="checkbox", id="several", autocomplete="off"), " several series"),
    ]
    lines = {"read": "read", "filled": "filled", "band": f"band of {percent(view.level)}"}
    kinds = [
        button(
            element("i", class_=f"swatch kind-{k}"),
            f" {kind} ",
            element("small", f"{counts[kind]:,}"),
            class_="kind",
            aria_pressed="true",
        )
        for k, kind in enumerate(KINDS)
    ]
    legend = [element("span", element("i", class_=f"swatch {name}"), f" {text}") for name, text in lines.items()]
    chart = partial(element, "canvas", width=1, height=1)
    return element(
        "section",
        element("div", *controls, class_="controls"),
        element("div", id="chooser", class_="chooser", role="group", aria_label="Series to show"),
        chart(
            id="chart",
            tabindex="0",
            role="application",
            aria_roledescription="chart",
            aria_label=f"Series. {label}. {KEYS}",
        ),
        chart(id="overview", role="img", aria_label="All moments; drag to move what is in view"),
        element("div", *legend, *kinds, class_="legend", id="legend"),
        element("p", "Point at or tap a moment to read it.", id="cell", class_="quiet cell"),
        element("p", KEYS, class_="keys quiet"),
        element("noscript", element("p", "The chart and the list need JavaScript.", class_="quiet")),
        class_="player series",
        aria_label="Chart of the series",
    )


def _anomalies(view: SeriesView) -> Markup:
    total = len(view.anomalies["kind"])
    if not total:
        return card("Anomalies", element("p", "None: all readings fit."))
    text = "Runs of readings that do not fit: medians of what was observed and expected. Click a series to see it."
    if total > LISTED or len(view.shown()) < len(view.names):
        text += f" These are the surest of {total:,}, of the series in the chart."
    listed = entries("Anomalies", "Search series, times, kinds", HEADINGS)
    return card("Anomalies", element("p", text, class_="quiet"), listed)
