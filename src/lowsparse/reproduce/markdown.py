"""The reproduced experiments as Markdown: for a repository, without pictures of the videos."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from .claims import Claim
from .content import INTRODUCTION, VERDICTS, Picture, Pictures, Table, sections, warnings
from .results import Results

__all__ = ["markdown"]

WIDTH = 120


def markdown(results: Results, claims: Sequence[Claim], remark: str, pictures: Pictures) -> str:
    """The text; `remark` is shown below the claims."""
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
        "## Which claims hold",
        _prose(VERDICTS),
        "\n".join(_prose(f"- **{c.text}** {c.verdict.capitalize()}. {c.reason}", indent="  ") for c in claims),
        *([_prose(remark)] if remark else []),
    ]
    for section in sections(results, pictures):
        parts += [f"## {section.title}", *map(_block, section.blocks)]
    return "\n\n".join(parts) + "\n"


def _prose(text: str, indent: str = "") -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _block(block: str | Table | Picture) -> str:
    match block:
        case Table():
            return _table(block)
        case Picture():
            return f"![{block.description}]({block.path.name})"
    return _prose(block.replace("*", "\\*"))


def _table(table: Table) -> str:
    """
    >>> print(_table(Table(["case", "AManPGC\\nseconds"], [["of size 1"], ["1", "25"]])))
    | case | AManPGC seconds |
    |---|---|
    | **of size 1** |  |
    | 1 | 25 |
    """
    columns = len(table.header)
    rows = [[f"**{row[0]}**", *[""] * (columns - 1)] if len(row) == 1 else row for row in table.rows]
    cells = [[cell.replace("\n", " ").strip().replace("*", "\\*").replace("|", "\\|") for cell in table.header]]
    cells += [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * columns, *lines[1:]])
