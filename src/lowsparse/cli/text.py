"""Plain text for terminals, pipes and files: aligned tables, and the one line with which a command fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import typer

__all__ = ["fail", "table"]


def fail(command: str, line: str, code: int = 1) -> NoReturn:
    """Say why a command fails, and leave."""
    typer.echo(f"lowsparse {command}: {line}", err=True)
    raise typer.Exit(code)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """Columns two spaces apart, flush right but for those named in `left`.

    >>> print(table(["method", "iterations"], [["manpg", "196"], ["amanpgc", "68"]]))
    method   iterations
    -------  ----------
    manpg           196
    amanpgc          68
    """
    widths = [max(len(row[k]) for row in [header, *rows]) for k in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        aligned = [c.ljust(w) if k in left else c.rjust(w) for k, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return "  ".join(aligned).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, rows)])
