"""Tables into Excel files: a new one, or a copy of that which was read, with the numbers that are new."""

import datetime
import io
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from ..entries.files.excel import import_openpyxl
from ..entries.files.labels import Array
from ..entries.files.table import Sheet
from ..support import files

MOST = 1_048_576, 16_384  # rows and columns of a sheet


def write_copy(path: Path, sheet: Sheet, changed: Iterator[tuple[Array, Array, Array]]) -> None:
    """Write the file of a sheet with other numbers, given by row and column of the table and by value."""
    book = import_openpyxl().load_workbook(io.BytesIO(sheet.content))
    cells = book[sheet.name]
    for rows, columns, numbers in changed:
        for i, j, number in zip(rows.tolist(), columns.tolist(), numbers.tolist(), strict=True):
            cells.cell(sheet.row + i, sheet.column + j).value = number
    with files.replacing(path) as temporary:
        book.save(temporary)


def write_new(path: Path, names: list[str], batches: Iterable[Any]) -> None:
    """Write Arrow record batches as an Excel file with one sheet."""
    book = import_openpyxl().Workbook(write_only=True)
    sheet = book.create_sheet("Table")
    rows = chain.from_iterable(zip(*(column.to_pylist() for column in batch.columns), strict=True) for batch in batches)
    if len(names) > MOST[1]:
        raise ValueError(f"{path}: {len(names):,} columns are more than Excel's {MOST[1]:,}: write .csv or .parquet")
    sheet.append(names)
    for count, row in enumerate(rows, start=2):
        if count > MOST[0]:
            raise ValueError(f"{path}: the table has more rows than Excel's {MOST[0]:,}: write .csv or .parquet")
        sheet.append([_cell(value) for value in row])
    with files.replacing(path) as temporary:
        book.save(temporary)


def _cell(value: object) -> object:
    """A value that Excel knows; it has no time zones."""
    known = isinstance(value, bool | int | float | datetime.date) and getattr(value, "tzinfo", None) is None
    return value if known or value is None else str(value)
