"""The reproduced experiments as a page, built like the reports."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np
import scipy

from ..report.film import inline
from ..report.page import Run, card, write
from ..support.format import pluralize
from ..support.html import Markup, element, joined
from .claims import FAILS, HOLDS, PARTLY, Claim
from .content import INTRODUCTION, VERDICTS, Picture, Pictures, Table, sections, warnings
from .results import Results

__all__ = ["write_page"]

CLASSES = {HOLDS: "tag yes", PARTLY: "tag partly", FAILS: "tag no"}  # of verdicts


def write_page(path: Path, results: Results, claims: Sequence[Claim], remark: str, pictures: Pictures) -> None:
    """Write the page; `remark` is shown below the claims."""
    machine = results.machine
    run = Run(
        title="The numerical section, reproduced",
        lead=INTRODUCTION,
        command=results.command,
        settings={
            "Date": date.today().isoformat(),
            "lowsparse": machine["lowsparse"],
            "Backend": f"{machine['backend']}, {pluralize(machine['threads'], 'thread')}",
            "Python": f"{platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}",
            "Processor": f"{machine['processor']}, {machine['cores']} cores",
        },
    )
    notes = [element("p", text, class_="note") for text in warnings(results)]
    rows = [[claim.text, _verdict(claim.verdict), claim.reason] for claim in claims]
    verdicts = _table(Table(["The paper says", "Verdict", "Reason"], rows, left=3, wrapped=(0, 2)))
    body = joined(*notes, card("Which claims hold", _block(VERDICTS), verdicts, _block(remark) if remark else None))
    cards = [card(section.title, *map(_block, section.blocks)) for section in sections(results, pictures)]
    write(path, run, kind="the paper", body=body, more=cards, scripts=(), data={})


def _verdict(verdict: str) -> Markup:
    return element("span", verdict, class_=CLASSES.get(verdict, "tag"))


def _block(block: str | Table | Picture) -> Markup:
    match block:
        case Table():
            return _table(block)
        case Picture():
            return element("img", alt=block.description, src=inline(block.path.read_bytes()), class_="wide-picture")
    return element("p", block, class_="prose")


def _table(table: Table) -> Markup:
    def cells(tag: str, row: Sequence[str]) -> list[Markup]:
        made = []
        for k, cell in enumerate(row):
            classes = " ".join(
                name for name, used in (("left", k < table.left), ("wrapped", k in table.wrapped)) if used
            )
            lines = [cell] if isinstance(cell, Markup) else cell.split("\n")
            content = [part for line in lines for part in (element("br"), line)][1:]
            made.append(element(tag, *content, class_=classes or None))
        return made

    rows = [element("tr", *cells("th", table.header))]
    for row in table.rows:
        subheading = len(row) == 1
        rows.append(
            element("tr", element("th", row[0], class_="left", colspan=len(table.header)))
            if subheading
            else element("tr", *cells("td", row))
        )
    return element("div", element("table", *rows, class_="numbers"), class_="scroll")
