"""Whether the first line of a table in text names its columns, or is data."""

import itertools
from collections.abc import Iterable, Sequence

from .numbers import is_missing, is_number

INDEX = {"", "index", "id", "row", "unnamed: 0", "__index_level_0__"}  # names of a column of row labels
YEARS = range(1500, 2501)
SURE = 5  # ascending numbers are by chance in less than one of 100 lines
SURE_BESIDE_LABELS = 3  # where rows have labels, columns mostly have names
COMPARED = 20  # lines after the first


def has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first of these lines of cells holds names.

    It does if words stand over numbers. If numbers stand over numbers it does not, unless they are 0, 1, 2, ..., or
    ascending years, or several ascending numbers, or follow the name of an index, and the next lines are not alike.

    >>> has_header([["day", "x"], ["mon", "1.5"]]), has_header([["sun", "2.5"], ["mon", "1.5"]])
    (True, False)
    """
    first, body = rows[0], [row for row in rows[1 : COMPARED + 1] if len(row) == len(rows[0])]
    if not body:
        return len(rows) > 1 or not all(is_number(cell) or is_missing(cell) for cell in first)
    numeric = [k for k in range(len(first)) if _holds_numbers(row[k] for row in body)]
    over_numbers = [first[k] for k in numeric]
    if not numeric or any(not is_number(cell) and not is_missing(cell) for cell in over_numbers):
        return True
    if len(first) > 1 and first[0].strip().lower() in INDEX and len({row[0] for row in body} - {""}) == len(body):
        counted = all(is_number(row[0]) for row in body) and _ascending(first[1:])
        if counted or 0 not in numeric:
            return True
    sure = SURE if 0 in numeric else SURE_BESIDE_LABELS
    alike = sum(_are_names([row[k] for k in numeric], sure) for row in body)
    counted_on = _counts(over_numbers, 0) and _counts([body[0][k] for k in numeric], len(numeric))
    return _are_names(over_numbers, sure) and 2 * alike < len(body) and not counted_on


def _holds_numbers(cells: Iterable[str]) -> bool:
    """Whether most of the cells with a value are numbers."""
    known = [cell for cell in cells if not is_missing(cell)]
    return 2 * sum(map(is_number, known)) > len(known)


def _are_names(cells: Sequence[str], sure: int) -> bool:
    """Whether numbers are likelier to be the names of columns than a line of data."""
    if len(cells) < 2 or not _ascending(cells):
        return False
    if len(cells) >= sure or _counts(cells, 0):
        return True
    return all(cell.strip().isdecimal() and int(cell) in YEARS for cell in cells)


def _counts(cells: Sequence[str], start: int) -> bool:
    return [cell.strip() for cell in cells] == [str(start + k) for k in range(len(cells))]


def _ascending(cells: Sequence[str]) -> bool:
    if not all(is_number(cell, ".") and cell.strip()[-1].isdigit() for cell in cells):
        return False
    try:
        numbers = [float(cell) for cell in cells]
    except ValueError:
        return False
    return all(one < other for one, other in itertools.pairwise(numbers))
