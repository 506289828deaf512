"""Numbers as people write them, ``1.234,50``, ``$4,473.08``, ``43%``; and what they write where there is none."""

import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...support.optional import import_pyarrow
from .labels import Array, to_bool

# Cells without a value, in lower case: those of pandas, errors of Excel, and what people type.
MISSING = {"", "na", "n/a", "n.a.", "#n/a", "#n/a n/a", "#na", "<na>", "nan", "-nan", "null", "none", "missing", "\\n"}
MISSING |= {"1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan", "#div/0!", "#value!", "#ref!", "#num!", "#name?", "#null!"}
MISSING |= {"-", "--", "---", "–", "—", "?", ".", "..", "..."}
CURRENCIES = "$€£¥₹"
SPACES = " \u00a0\u202f"  # the last two do not break a line
MINUS = "\u2212"


@cache
def number_pattern(point: str) -> str:
    """The regular expression of a number with this decimal point; thousands may be grouped, and signs stand around it.

    >>> [bool(re.match(number_pattern("."), cell)) for cell in ("-1.5e3", "$4,473.08", "43 %", "4,47", "1.5.2024")]
    [True, True, True, False, False]
    """
    mark = "," if point == "." else "."
    whole = rf"([0-9]+|[0-9]{{1,3}}([{mark}'’{SPACES}][0-9]{{3}})+)"
    digits = rf"({whole}([{point}][0-9]*)?|[{point}][0-9]+)([eE][+-]?[0-9]+)?"
    sign, space = rf"[+\-{MINUS}]?", f"[{SPACES}]?"
    return rf"^{sign}([{CURRENCIES}]{space})?{sign}{digits}({space}[%{CURRENCIES}])?$"


def is_number(cell: str, points: str = ".,") -> bool:
    """Whether a cell is a number with one of these as its decimal point."""
    return any(re.match(number_pattern(point), cell.strip()) for point in points)


def is_missing(cell: str) -> bool:
    """Whether a cell says that there is no value."""
    return cell.strip().lower() in MISSING


class Markers:
    """What stands for a missing value beyond `MISSING`: words, and numbers that are codes, such as -9999."""

    def __init__(self, markers: Iterable[str | float]) -> None:
        if isinstance(markers, str):
            markers = [markers]
        words = [str(marker).strip() for marker in markers]
        self.words = MISSING | {word.lower() for word in words}
        codes = []
        for word in words:
            with suppress(ValueError):
                codes.append(float(word))
        self.codes = np.array(codes, np.float64)

    def without_codes(self, numbers: Array) -> Array:
        """The numbers, NaN instead of codes."""
        if not self.codes.size:
            return numbers
        return np.where(np.isin(numbers, self.codes.astype(numbers.dtype)), np.nan, numbers)


def parse_numbers(cells: Any, point: str, markers: Markers) -> tuple[Array, NDArray[np.bool_]]:
    """The numbers in a column of text, NaN where they are missing; and which cells are neither."""
    pyarrow, compute = import_pyarrow(), import_pyarrow("compute")
    if point == "." or not compute.any(compute.match_substring(cells, ".")).as_py():
        plain = cells if point == "." else compute.replace_substring(cells, point, ".")
        try:
            numbers = _to_numpy(compute.if_else(compute.equal(plain, ""), None, plain).cast(pyarrow.float64()))
            return markers.without_codes(numbers), np.zeros(numbers.size, bool)
        except pyarrow.ArrowInvalid:
            pass  # not all are plain numbers
    trimmed = compute.utf8_trim_whitespace(cells)
    number = compute.match_substring_regex(trimmed, number_pattern(point))
    words = pyarrow.array(sorted(markers.words), trimmed.type)
    missing = compute.or_kleene(compute.is_in(compute.utf8_lower(trimmed), value_set=words), compute.is_null(trimmed))
    number = compute.and_kleene(number, compute.invert(missing))
    digits = compute.replace_substring_regex(trimmed, rf"[^0-9eE+\-{MINUS}{point}]", "")
    digits = compute.replace_substring(compute.replace_substring(digits, MINUS, "-"), point, ".")
    numbers = _to_numpy(compute.if_else(number, digits, None).cast(pyarrow.float64()))
    return markers.without_codes(numbers), ~(to_bool(number) | to_bool(missing))


def parse_truths(cells: Any, markers: Markers) -> Array | None:
    """1 for True and 0 for False in a column of text, in any case, and NaN where missing; None if there is more."""
    pyarrow, compute = import_pyarrow(), import_pyarrow("compute")
    words = compute.utf8_lower(compute.utf8_trim_whitespace(cells))
    truths = _to_numpy(compute.index_in(words, value_set=pyarrow.array(["false", "true"], words.type)).cast("float64"))
    missing = compute.is_in(words, value_set=pyarrow.array([*sorted(markers.words), None], words.type))
    return truths if (~np.isnan(truths) | to_bool(missing)).all() and not np.isnan(truths).all() else None


def _to_numpy(column: Any) -> Array:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)


def format_like(numbers: Any, like: str, point: str) -> Any:
    """A column of numbers as text, with the decimal point, currency and percent sign of a cell that is one.

    >>> import pyarrow
    >>> format_like(pyarrow.array([2.5]), "43,1 %", ",").to_pylist()
    ['2,5 %']
    """
    compute = import_pyarrow("compute")
    before = re.match(rf"[+\-{MINUS}]?([{CURRENCIES}][{SPACES}]?)?", like.strip())
    after = re.search(rf"[{SPACES}]?[%{CURRENCIES}]$", like.strip())
    text = compute.replace_substring(numbers.cast(import_pyarrow().string()), ".", point)
    return compute.binary_join_element_wise((before and before[1]) or "", text, after[0] if after else "", "")
