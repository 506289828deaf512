"""The page of a report: title, key facts, convergence, times, settings, command; one self-contained file."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._version import __version__
from ..linalg.arrays import Float
from ..notebook import Remark
from ..support import files
from ..support.charts import convergence
from ..support.format import duration, format_number
from ..support.html import Markup, element, embedded, joined

LEVELS = 65_534  # of a value in the page; the next one stands for a missing value
ICONS = {  # outlines on 24 x 24
    "first": "M6 5v14M19 5l-10 7 10 7z",
    "back": "M15 5l-8 7 8 7",
    "play": "M8 5l11 7-11 7z",
    "pause": "M8 5v14M16 5v14",
    "next": "M9 5l8 7-8 7",
    "last": "M18 5v14M5 5l10 7-10 7z",
    "enlarge": "M4 9V4h5M20 15v5h-5M15 4h5v5M9 20H4v-5",
    "minus": "M6 12h12",
    "plus": "M12 6v12M6 12h12",
    "theme": "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
    "good": "M5 12.5l4.5 4.5L19 7.5",
    "warning": "M12 4v10M12 18.5v.5",
    "plain": "M12 12v.01",
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """The contents of every report; all texts are escaped."""

    title: str  # such as the name of the file
    lead: str = ""  # one sentence
    facts: Sequence[tuple[str, str]] = ()  # three to five: a number and its meaning
    command: str = ""  # to repeat the run
    settings: Mapping[str, object] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)  # seconds by step
    trace: Mapping[str, ArrayLike] = field(default_factory=dict)  # of the solve
    remarks: Sequence[Remark] = ()  # on how far to rely on the result
    notes: Sequence[str] = ()  # such as skipped frames


def write(
    path: Path,
    run: Run,
    *,
    kind: str,
    body: Markup,
    more: Sequence[Markup | None] = (),
    cards: Sequence[Markup] = (),
    reading: str = "",
    scripts: Sequence[str],
    data: Mapping[str, Any],
) -> None:
    """Write the page: `body`, the key facts, `more`, `cards` and those about the run.

    `reading` explains the remarks; `data` are for the scripts.
    """
    script = "".join(_asset(name) for name in ("page.js", *scripts))
    style = _asset("style.css")
    head = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="generator", content=f"lowsparse {__version__}"),
        element("title", f"{run.title} · lowsparse"),
        element("style", Markup(style)),
    ]
    about = (_reliability(run, reading), _times(run), _command(run), _convergence(run))
    settings = card("Settings", settings_list(run.settings)) if run.settings else None
    content = [
        element("a", "Skip to the report", class_="skip", href="#main"),
        _banner(kind),
        element("main", _heading(run), body, _facts(run), *more, columns(*cards, *about, settings), id="main"),
        _footer(),
        embedded(data),
        element("script", Markup(script)),
    ]
    document = element("html", element("head", *head), element("body", *content), lang="en")
    # file names need not be valid UTF-8
    files.write(path, f"<!doctype html>\n{document}\n".encode("utf-8", "replace"))


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text("utf-8")


def _policy(style: str, script: str) -> str:
    """Nothing is loaded: only this style and this script, by their hashes, and inline pictures are allowed."""
    allowed = {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": _hashed(style),
        "script-src": _hashed(script),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in allowed.items())


def _hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


def icon(name: str) -> Markup:
    """An icon, hidden from screen readers."""
    path = element("path", d=ICONS[name])
    return element("svg", path, class_=f"icon icon-{name}", viewBox="0 0 24 24", aria_hidden="true")


def card(title: str, *content: object) -> Markup:
    """A section of the page with a heading."""
    name = "".join(filter(str.isalnum, title.lower()))
    return element("section", element("h2", title, id=name), *content, class_="card", aria_labelledby=name)


def columns(*cards: Markup | None) -> Markup | None:
    """Cards in two columns, or in one on narrow screens."""
    return element("div", *cards, class_="columns") if any(cards) else None


def pane(name: str, text: str, picture: Markup) -> Markup:
    """One of several pictures side by side, with a button to enlarge it."""
    button = element(
        "button", icon("enlarge"), type="button", class_="enlarge", aria_pressed="false", aria_label=f"Enlarge: {name}"
    )
    caption = element("span", element("strong", name), " ", element("span", text, class_="words"))
    return element("figure", picture, element("figcaption", caption, button), class_="pane")


def entries(title: str, search: str, headings: Sequence[tuple[str, str, bool]]) -> Markup:
    """A list to search, sort and page through, which `entries.js` fills.

    Of each column: its name in the data, its heading, and whether it holds numbers. It is sorted by the last one.
    """
    last = headings[-1][0]
    heads = [
        element(
            "th",
            element("button", heading, type="button", data_column=name),
            scope="col",
            aria_sort="descending" if name == last else "none",
            class_="figure" if numbers else None,
        )
        for name, heading, numbers in headings
    ]
    field = element("input", type="search", id="search", placeholder=search, autocomplete="off")
    table = element(
        "table",
        element("caption", title, class_="unseen"),
        element("thead", element("tr", *heads)),
        element("tbody", id="entries"),
        class_="entries",
    )
    sizes = [element("option", count, value=count, selected=count == 10) for count in (10, 25, 100)]
    return joined(
        element(
            "div",
            element("label", element("span", "Search", class_="unseen"), field),
            element("output", id="count", aria_live="polite"),
            class_="tools",
        ),
        element("div", table, class_="scroll", tabindex="0", role="region", aria_label=title),
        element(
            "div",
            element("button", "Previous", type="button", id="previous"),
            element("span", id="pages"),
            element("button", "Next", type="button", id="following"),
            element("label", "Rows ", element("select", *sizes, id="size", autocomplete="off")),
            class_="pager",
        ),
    )


def settings_list(values: Mapping[str, object]) -> Markup:
    """A list of names and values."""
    pairs = ((element("dt", name), element("dd", _format(value), dir="auto")) for name, value in values.items())
    return element("dl", *(element("div", *pair) for pair in pairs), class_="settings")


def meters(rows: Sequence[tuple[object, float, str]]) -> Markup:
    """A bar chart as a table of names, lengths and texts."""
    longest = max(length for _, length, _ in rows) or 1.0
    lines = []
    for name, length, text in rows:
        bar = element("rect", width=f"{100 * length / longest:.4g}%", height="100%", class_="bar")
        chart = element("td", element("svg", bar, class_="meter"), aria_hidden="true", class_="wide")
        lines.append(element("tr", element("th", name, scope="row"), chart, element("td", text, class_="figure")))
    return element("table", element("tbody", *lines), class_="meters")


def encode_values(values: Float, low: Float, span: Float) -> str:
    """Values from low to low + span; what is not finite is missing.

    >>> text = encode_values(np.array([2.0, np.nan, 4.0]), np.array(2.0), np.array(2.0))
    >>> np.frombuffer(base64.b64decode(text), "<u2")
    array([    0, 65535, 65534], dtype=uint16)
    """
    finite = np.isfinite(values)
    scaled = np.rint(LEVELS * (np.where(finite, values, low) - low) / span)
    return to_base64(np.where(finite, scaled, LEVELS + 1).astype("<u2"))


def to_base64(numbers: NDArray[Any]) -> str:
    """The bytes of an array."""
    return base64.b64encode(numbers.tobytes()).decode("ascii")


def _banner(kind: str) -> Markup:
    label = element("span", "Dark", class_="theme-name")
    switch = element("button", icon("theme"), label, type="button", id="theme", aria_label="Switch to the dark theme")
    name = element("p", element("strong", "lowsparse"), element("span", kind), class_="brand")
    return element("header", name, switch, class_="banner")


def _heading(run: Run) -> Markup:
    lead = element("p", run.lead, class_="lead") if run.lead else None
    return element("div", element("h1", run.title), lead, class_="heading")


def _facts(run: Run) -> Markup | None:
    if not run.facts:
        return None
    items = [element("li", element("strong", number), " ", element("span", text)) for number, text in run.facts]
    return element("ul", *items, class_="facts", aria_label="Key facts")


def _reliability(run: Run, reading: str) -> Markup | None:
    remarks = [*run.remarks, *(Remark(note) for note in run.notes)]
    if not remarks:
        return None
    kinds = {True: ("good", "Good: "), False: ("warning", "Warning: "), None: ("plain", "")}
    items = []
    for remark in remarks:
        name, prefix = kinds[remark.good]
        items.append(element("li", icon(name), element("span", prefix, class_="unseen"), remark.text))
    explanation = element("p", reading, class_="quiet") if reading else None
    return card("Reliability", explanation, element("ul", *items, class_="remarks"))


def _convergence(run: Run) -> Markup | None:
    found = convergence(run.trace)
    return None if found is None else card("Convergence", element("p", found[0], class_="quiet"), found[1])


def _times(run: Run) -> Markup | None:
    if not run.timings:
        return None
    total = element("p", f"{duration(sum(run.timings.values()))} in total.", class_="quiet")
    return card("Time", total, meters([(step, time, duration(time)) for step, time in run.timings.items()]))


def _format(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return format_number(value)
    return "–" if value is None else str(value)


def _command(run: Run) -> Markup | None:
    if not run.command:
        return None
    button = element("button", "Copy", type="button", id="copy", aria_label="Copy the command")
    words = [element("span", word) if word.strip() else word for word in re.split(r"(\s+)", run.command)]
    text = element("pre", element("code", *words, id="command"), tabindex="0", aria_label="The command")
    return card("Repeat this run", element("div", text, button, class_="command"))


def _footer() -> Markup:
    text = (
        " splits data with missing and wrong entries into a low-rank matrix L and sparse errors S: M = L + S on the "
        "observed entries."
    )
    return element(
        "footer",
        element("p", element("strong", f"lowsparse {__version__}"), text),
        element("p", "This page is a single file that loads nothing from elsewhere."),
        element("p", role="status", aria_live="polite", class_="unseen", id="announcement"),
    )
