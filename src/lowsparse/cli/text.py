"""Plain text for terminals, pipes and files of any width and encoding: aligned columns, and letters spelt out."""

from __future__ import annotations

import codecs
import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Sequence

__all__ = ["columns", "let_go", "paragraph", "spell_out", "table", "width"]

SPELT = {"‖": "||", "−": "-", "×": "x", "·": "*", "≤": "<=", "≥": ">=", "√": "sqrt ", "∇": "grad", "∂": "d", "∞": "inf"}
SPELT |= {"∈": "in", "→": "->", "⟨": "<", "⟩": ">", "∘": "o", "∖": "\\", "…": "...", "–": "-", "—": "-"}
SPELT |= {"⌊": "floor(", "⌋": ")", "⊥": "_|_", "²": "^2", "ᵀ": "^T", "⁻": "^-", "⁄": "/", "±": "+-", "λ": "lambda"}
ERRORS = "lowsparse.spelt"  # the name of the error handler
NARROWEST = 20  # columns of text that is wrapped


def width() -> int:
    """Characters in a line of the terminal; 80 where there is none, 100 at most: longer lines are hard to read.

    >>> 1 <= width() <= 100
    True
    """
    return min(shutil.get_terminal_size((80, 24)).columns, 100)


def paragraph(text: str, fit: int) -> str:
    """Text in lines that fit.

    >>> print(paragraph("how exactly the data are to be fitted", 25))
    how exactly the data are
    to be fitted
    """
    return textwrap.fill(_as_shown(text), max(fit, NARROWEST), break_long_words=False, break_on_hyphens=False)


def columns(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,), fit: int | None = None) -> str:
    """Cells two spaces apart, flush right but for the columns named in `left`.

    If that is wider than `fit`, the last column is wrapped.

    >>> print(columns([["tol", "how exactly the data are to be fitted"]], left=(0, 1), fit=30))
    tol  how exactly the data are
         to be fitted
    """
    shown = [[_as_shown(cell) for cell in row] for row in rows]
    *widths, last = (max(map(len, cells)) for cells in zip(*shown, strict=True))
    before = sum(widths) + 2 * len(widths)
    if fit is not None and before + last > fit:
        last = max(fit - before, NARROWEST)
    lines = []
    for row in shown:
        head, *more = paragraph(row[-1], last).split("\n") if len(row[-1]) > last else [row[-1]]
        sized = zip([*row[:-1], head], [*widths, last], strict=True)
        cells = [cell.ljust(size) if k in left else cell.rjust(size) for k, (cell, size) in enumerate(sized)]
        lines += ["  ".join(cells).rstrip(), *(" " * before + line for line in more)]
    return "\n".join(lines)


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,), fit: int | None = None
) -> str:
    """`columns` under a header.

    >>> print(table(["method", "iterations"], [["manpg", "196"], ["amanpgc", "68"]]))
    method   iterations
    -------  ----------
    manpg           196
    amanpgc          68
    """
    head, *body = columns([header, *rows], left, fit).split("\n")
    *sizes, _ = (max(len(_as_shown(cell)) for cell in cells) for cells in zip(header, *rows, strict=True))
    rule = ["-" * size for size in [*sizes, max(map(len, [head, *body])) - sum(sizes) - 2 * len(sizes)]]
    return "\n".join([head, "  ".join(rule), *body])


def _as_shown(text: str) -> str:
    """The text with what stdout has to spell out spelt out, which makes it longer."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, ERRORS).decode(encoding)


def spell_out() -> None:
    """Let stdout and stderr spell out what their encoding does not have, instead of failing.

    >>> spell_out()
    >>> "γ‖P_Ω(S)‖₁ ≤ ½".encode("ascii", ERRORS).decode()
    'gamma||P_Omega(S)||1 <= 1/2'
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who has started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream := getattr(sys, name), "reconfigure"):
            stream.reconfigure(errors=ERRORS)


def let_go() -> None:
    """Write what stdout still holds, or forget it: Python would try again at the end, and complain at length."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _spelt(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_in_ascii, error.object[error.start : error.end])), error.end


def _in_ascii(letter: str) -> str:
    if letter in SPELT:
        return SPELT[letter]
    parts = "".join(SPELT.get(part, part) for part in unicodedata.normalize("NFKD", letter))
    if plain := parts.encode("ascii", "ignore").decode():
        return plain
    name = unicodedata.name(parts[0], "")
    if name.startswith("GREEK"):
        word = name.split()[-1]
        return word.capitalize() if parts[0].isupper() else word.lower()
    return "" if unicodedata.combining(letter) else "?"


codecs.register_error(ERRORS, _spelt)
