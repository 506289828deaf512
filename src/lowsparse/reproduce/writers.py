"""The content as a page, built like the reports, and as Markdown for a repository."""

import platform
import textwrap
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np
import scipy

from ..report import page
from ..report.film import inline
from ..support.files import write
from ..support.format import pluralize
from ..support.html import Markup, element, joined
from .claims import FAILS, HOLDS, PARTLY
from .content import INTRODUCTION, Block, NumberTable, PictureFile, Section, warnings
from .results import Results

CLASSES = {HOLDS: "tag yes", PARTLY: "tag partly", FAILS: "tag no"}  # of verdicts
WIDTH = 120  # of the Markdown


def write_page(path: Path, results: Results, sections: Sequence[Section]) -> None:
    """Write the page."""
    machine = results.machine
    run = page.Run(
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
    cards = [page.card(section.title, *map(_html, section.blocks)) for section in sections]
    page.write(path, run, kind="the paper", body=joined(*notes, *cards), scripts=(), data={})


def _html(block: Block) -> Markup:
    match block:
        case NumberTable():
            return _html_table(block)
        case PictureFile():
            return element("img", alt=block.description, src=inline(block.path.read_bytes()), class_="wide-picture")
        case list():
            rows = [[c.text, element("span", c.verdict, class_=CLASSES.get(c.verdict, "tag")), c.reason] for c in block]
            return _html_table(NumberTable(["The paper says", "Verdict", "Reason"], rows, left=3, wrapped=(0, 2)))
    return element("p", block, class_="prose")


def _html_table(table: NumberTable) -> Markup:
    def cells(tag: str, row: Sequence[str]) -> list[Markup]:
        made = []
        for k, cell in enumerate(row):
            classes = [name for name, used in (("left", k < table.left), ("wrapped", k in table.wrapped)) if used]
            lines = [cell] if isinstance(cell, Markup) else cell.split("\n")
            content = [part for line in lines for part in (element("br"), line)][1:]
            made.append(element(tag, *content, class_=" ".join(classes) or None))
        return made

    rows = [cells("th", table.header)]
    for row in table.rows:
        subheading = [element("th", row[0], class_="left", colspan=len(table.header))]
        rows.append(subheading if len(row) == 1 else cells("td", row))
    body = element("table", *(element("tr", *row) for row in rows), class_="numbers")
    return element("div", body, class_="scroll")


def write_markdown(path: Path, results: Results, sections: Sequence[Section]) -> None:
    """Write the Markdown file."""
    machine = results.machine
    parts = [
        "# The paper's experiments, reproduced",
        _prose(f"{INTRODUCTION} This file is written by"),
        f"```sh\n{results.command}\n```",
        _prose(
            f"here with lowsparse {machine['lowsparse']}, the {machine['backend']} backend and {machine['threads']} "
            f"threads on {machine['processor']}. The command also writes a page with the backgrounds as pictures, and "
            "all numbers as CSV. The seconds depend on the machine."
        ),
        *map(_prose, warnings(results)),
    ]
    for section in sections:
        parts += [f"## {section.title}", *map(_markdown, section.blocks)]
    write(path, ("\n\n".join(parts) + "\n").encode())


def _prose(text: str, indent: str = "") -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _markdown(block: Block) -> str:
    match block:
        case NumberTable():
            return _markdown_table(block)
        case PictureFile():
            return f"![{block.description}]({block.path.name})"
        case list():
            items = [f"- **{c.text}** {c.verdict.capitalize()}. {c.reason}" for c in block]
            return "\n".join(_prose(item, indent="  ") for item in items)
    return _prose(block.replace("*", "\\*"))


def _markdown_table(table: NumberTable) -> str:
    """
    >>> print(_markdown_table(NumberTable(["case", "AManPGC\\nseconds"], [["of size 1"], ["1", "25"]])))
    | case | AManPGC seconds |
    |---|---|
    | **of size 1** |  |
    | 1 | 25 |
    """
    columns = len(table.header)
    header = [cell.replace("\n", " ").strip().replace("*", "\\*") for cell in table.header]
    rows = [[f"**{row[0]}**", *[""] * (columns - 1)] if len(row) == 1 else row for row in table.rows]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (header, *rows)]
    return "\n".join([lines[0], "|" + "---|" * columns, *lines[1:]])
