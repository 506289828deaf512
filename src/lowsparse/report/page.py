"""The page around a report: title, facts, convergence, times, settings, the command; one file that needs no other."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from .._version import __version__
from ..diagnosis import Diagnosis
from ..support import files
from ..support.charts import convergence
from ..support.format import duration, number
from ..support.html import Markup, element, embedded
from .words import Remark, in_words

__all__ = ["Run", "card", "columns", "icon", "listed", "meters", "pane", "write"]

ICONS = {  # outlines on 24 x 24
    "first": "M6 5v14M19 5l-10 7 10 7z",
    "back": "M15 5l-8 7 8 7",
    "play": "M8 5l11 7-11 7z",
    "pause": "M8 5v14M16 5v14",
    "next": "M9 5l8 7-8 7",
    "last": "M18 5v14M5 5l10 7-10 7z",
    "enlarge": "M4 9V4h5M20 15v5h-5M15 4h5v5M9 20H4v-5",
    "theme": "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
    "good": "M5 12.5l4.5 4.5L19 7.5",
    "warning": "M12 4v10M12 18.5v.5",
    "plain": "M12 12v.01",
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """What every report tells of a run; all texts are data and shown as they are.

    >>> Run(title="Lobby", facts=[("10 %", "of the pixels were looked at")], command="lowsparse video lobby.avi").lead
    ''
    """

    title: str  # the name of the file, say
    lead: str = ""  # one sentence on what was done
    facts: Sequence[tuple[str, str]] = ()  # three to five: a figure, and the words it makes a sentence with
    command: str = ""  # to repeat it
    settings: Mapping[str, object] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)  # seconds by step
    trace: Mapping[str, ArrayLike] = field(default_factory=dict)  # of the solve
    diagnosis: Diagnosis | None = None
    remarks: Sequence[Remark] = ()  # further ones, or in place of a diagnosis
    notes: Sequence[str] = ()  # what went unusually: frames that were skipped, lines that were left empty


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
    """Write the page, as a whole or not at all: `body`, the key facts, `more`, `cards` and those about the run.

    `reading` says how to read the diagnosis, `data` are for the scripts.
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
    content = element(
        "main", _heading(run), body, _facts(run), *more, columns(*cards, *_about(run, reading)), id="main"
    )
    document = element(
        "html",
        element("head", *head),
        element(
            "body",
            element("a", "Skip to the report", class_="skip", href="#main"),
            _banner(kind),
            content,
            _footer(),
            embedded(data),
            element("script", Markup(script)),
        ),
        lang="en",
    )
    # Names of files may hold what UTF-8 cannot.
    files.write(path, f"<!doctype html>\n{document}\n".encode("utf-8", "replace"))


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text("utf-8")


def _policy(style: str, script: str) -> str:
    """Nothing is loaded; of styles and scripts only these two, by their hashes; pictures only from the page itself."""
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


# ---------------------------------------------------------------------- parts


def icon(name: str) -> Markup:
    """A small picture for the eye only."""
    drawn = element("path", d=ICONS[name])
    return element("svg", drawn, class_=f"icon icon-{name}", viewBox="0 0 24 24", aria_hidden="true")


def card(title: str, *content: object) -> Markup:
    """A part of the page with a heading."""
    name = "".join(letter for letter in title.lower() if letter.isalnum())
    heading = element("h2", title, id=name)
    return element("section", heading, *content, class_="card", aria_labelledby=name)


def columns(*cards: Markup) -> Markup | None:
    """Cards in two columns, or in one where there is little room."""
    return element("div", *cards, class_="columns") if cards else None


def pane(name: str, words: str, picture: Markup) -> Markup:
    """One of the pictures side by side, which a button enlarges."""
    button = element(
        "button", icon("enlarge"), type="button", class_="enlarge", aria_pressed="false", aria_label=f"Enlarge: {name}"
    )
    caption = element(
        "figcaption", element("span", element("strong", name), " ", element("span", words, class_="words")), button
    )
    return element("figure", picture, caption, class_="pane")


def listed(values: Mapping[str, object]) -> Markup:
    """Names and what they stand for."""
    pairs = [
        element("div", element("dt", name), element("dd", _told(value), dir="auto")) for name, value in values.items()
    ]
    return element("dl", *pairs, class_="settings")


def meters(rows: Sequence[tuple[object, float, str]]) -> Markup:
    """A table of names, bars as long as the numbers, and what to write behind them."""
    longest = max(length for _, length, _ in rows) or 1.0
    made = []
    for name, length, words in rows:
        bar = element("rect", width=f"{100 * length / longest:.4g}%", height="100%", class_="bar")
        made.append(
            element(
                "tr",
                element("th", name, scope="row"),
                element("td", element("svg", bar, class_="meter"), aria_hidden="true", class_="wide"),
                element("td", words, class_="figure"),
            )
        )
    return element("table", element("tbody", *made), class_="meters")


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
    listed = [element("li", element("strong", figure), " ", element("span", words)) for figure, words in run.facts]
    return element("ul", *listed, class_="facts", aria_label="Key facts")


def _about(run: Run, reading: str) -> list[Markup]:
    parts = (_trust(run, reading), _times(run), _command(run), _convergence(run), _settings(run))
    return [part for part in parts if part is not None]


def _trust(run: Run, reading: str) -> Markup | None:
    diagnosis = in_words(run.diagnosis) if run.diagnosis else []
    said = [*diagnosis, *run.remarks, *(Remark(note) for note in run.notes)]
    if not said:
        return None
    signs = {True: ("good", "Good: "), False: ("warning", "Take note: "), None: ("plain", "")}
    listed = [
        element("li", icon(signs[one.good][0]), element("span", signs[one.good][1], class_="unseen"), one.text)
        for one in said
    ]
    told = element("p", reading, class_="quiet") if reading else None
    return card("How far to trust it", told, element("ul", *listed, class_="remarks"))


def _convergence(run: Run) -> Markup | None:
    drawn = convergence(run.trace)
    if drawn is None:
        return None
    words, drawing = drawn
    return card("Convergence", element("p", words, class_="quiet"), drawing)


def _times(run: Run) -> Markup | None:
    if not run.timings:
        return None
    told = element("p", f"{duration(sum(run.timings.values()))} in all.", class_="quiet")
    return card(
        "Where the time went", told, meters([(step, time, duration(time)) for step, time in run.timings.items()])
    )


def _settings(run: Run) -> Markup | None:
    return card("Settings", listed(run.settings)) if run.settings else None


def _told(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value)
    return "–" if value is None else str(value)


def _command(run: Run) -> Markup | None:
    if not run.command:
        return None
    button = element("button", "Copy", type="button", id="copy", aria_label="Copy the command")
    words = [element("span", word) if word.strip() else word for word in re.split(r"(\s+)", run.command)]
    text = element("pre", element("code", *words, id="command"), tabindex="0", aria_label="The command")
    return card("Do it again", element("div", text, button, class_="command"))


def _footer() -> Markup:
    return element(
        "footer",
        element(
            "p",
            element("strong", f"lowsparse {__version__}"),
            " splits data with holes and gross errors into a matrix L of low rank and sparse errors S: M = L + S on "
            "the entries that were observed.",
        ),
        element("p", "This page is one file. It loads nothing and sends nothing."),
        element("p", role="status", aria_live="polite", class_="unseen", id="said"),
    )
