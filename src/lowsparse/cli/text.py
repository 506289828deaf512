"""Plain text for terminals of any width and encoding: aligned columns, wrapped lines, ASCII for symbols."""

import codecs
import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Sequence

from ..support.addresses import hide_passwords

ASCII = {"‖": "||", "−": "-", "×": "x", "·": "*", "≤": "<=", "≥": ">=", "√": "sqrt ", "∇": "grad", "∂": "d", "∞": "inf"}
ASCII |= {"∈": "in", "→": "->", "⟨": "<", "⟩": ">", "∘": "o", "∖": "\\", "…": "...", "–": "-", "—": "-"}
ASCII |= {"⌊": "floor(", "⌋": ")", "⊥": "_|_", "²": "^2", "ᵀ": "^T", "⁻": "^-", "⁄": "/", "±": "+-", "λ": "lambda"}
ERRORS = "lowsparse.ascii"  # the name of the error handler
MIN_WIDTH = 20  # of wrapped text


def width() -> int:
    """Width of the terminal in characters; 80 if there is none, at most 100, as longer lines are hard to read."""
    return min(shutil.get_terminal_size((80, 24)).columns, 100)


def one_line(text: str) -> str:
    """The text with line breaks and repeated spaces replaced by single spaces, and without passwords."""
    return hide_passwords(" ".join(text.split()))


def paragraph(text: str, fit: int) -> str:
    """Wrap text to lines of at most `fit` characters."""
    return textwrap.fill(_as_shown(text), max(fit, MIN_WIDTH), break_long_words=False, break_on_hyphens=False)


def columns(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,), fit: int | None = None) -> str:
    """Align cells two spaces apart, to the right except for the columns in `left`.

    If the lines are longer than `fit`, the last column is wrapped.
    """
    shown = [[_as_shown(cell) for cell in row] for row in rows]
    *widths, last = (max(map(len, cells)) for cells in zip(*shown, strict=True))
    indent = sum(widths) + 2 * len(widths)
    if fit is not None and indent + last > fit:
        last = max(fit - indent, MIN_WIDTH)
    lines = []
    for row in shown:
        head, *more = paragraph(row[-1], last).split("\n") if len(row[-1]) > last else [row[-1]]
        sized = zip([*row[:-1], head], [*widths, last], strict=True)
        cells = [cell.ljust(size) if k in left else cell.rjust(size) for k, (cell, size) in enumerate(sized)]
        lines += ["  ".join(cells).rstrip(), *(" " * indent + line for line in more)]
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
    """The text as stdout will encode it, which may be longer."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, ERRORS).decode(encoding)


def replace_unencodable() -> None:
    """Let stdout and stderr write ASCII for characters that their encoding lacks, instead of failing.

    >>> replace_unencodable()
    >>> "γ‖P_Ω(S)‖₁ ≤ ½".encode("ascii", ERRORS).decode()
    'gamma||P_Omega(S)||1 <= 1/2'
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream := getattr(sys, name), "reconfigure"):
            stream.reconfigure(errors=ERRORS)


def flush_stdout() -> None:
    """Flush stdout, or discard its buffer if that fails: Python would try again at exit, with a traceback."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _to_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_in_ascii, error.object[error.start : error.end])), error.end


def _in_ascii(letter: str) -> str:
    if letter in ASCII:
        return ASCII[letter]
    parts = "".join(ASCII.get(part, part) for part in unicodedata.normalize("NFKD", letter))
    if plain := parts.encode("ascii", "ignore").decode():
        return plain
    name = unicodedata.name(parts[0], "")
    if name.startswith("GREEK"):
        word = name.split()[-1]
        return word.capitalize() if parts[0].isupper() else word.lower()
    return "" if unicodedata.combining(letter) else "?"


codecs.register_error(ERRORS, _to_ascii)
