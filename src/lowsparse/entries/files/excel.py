"""Excel files: the first sheet, read as text; needs the extra `excel`."""

import csv
import datetime
import io
import zipfile
from dataclasses import replace
from itertools import takewhile
from typing import Any

from ...support.optional import import_optional
from ...support.sizes import TooLargeError, check_fits
from .columns import Name
from .labels import first_line
from .numbers import Markers
from .source import Source
from .table import Sheet
from .text import REMOVE_TITLE, TextFile


class ExcelFile(TextFile):
    """The first sheet of an Excel file, empty rows and columns around the table left out."""

    def __init__(self, source: Source, wanted: tuple[Name | None, ...], header: bool | None, markers: Markers) -> None:
        name, top, left, text = _first_sheet(source)
        super().__init__(replace(source, content=text), wanted, header, markers)
        rows_of_head = sum(1 for _ in csv.reader(io.StringIO(self.layout.head, newline="")))
        self.sheet = Sheet(source.bytes, name, top + rows_of_head, left)
        self.layout = replace(self.layout, sheet=self.sheet)

    def locate(self, row: int) -> str:
        """The row of the sheet."""
        return f"row {self.sheet.row + row} of the sheet {self.sheet.name!r}"


def import_openpyxl() -> Any:
    """Import openpyxl."""
    return import_optional("openpyxl", "excel", "Excel files")


def _first_sheet(source: Source) -> tuple[str, int, int, bytes]:
    """The name of the first sheet, the row and the column where its table begins, and the table in text."""
    openpyxl = import_openpyxl()
    try:
        with zipfile.ZipFile(io.BytesIO(source.bytes)) as archive:
            check_fits(source.path, "its content", sum(part.file_size for part in archive.infolist()))
        book = openpyxl.load_workbook(io.BytesIO(source.bytes), read_only=True, data_only=True)
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # what the file says may be wrong
        rows = [[_text(cell) for cell in row] for row in sheet.iter_rows(values_only=True)]
        book.close()
    except TooLargeError:
        raise
    except Exception as error:  # the reader raises anything on a damaged file
        raise ValueError(f"{source.path} is no .xlsx file, or it is damaged ({first_line(error)})") from error
    filled = [(i, j) for i, row in enumerate(rows) for j, cell in enumerate(row) if cell]
    if not filled:
        raise ValueError(f"{source.path} is empty: its first sheet, {sheet.title!r}, has no cell with a value")
    (top, bottom), (left, right) = ((min(side), max(side) + 1) for side in zip(*filled, strict=True))
    if _has_title(rows[top:bottom]):
        raise ValueError(f"{source.path}: row {top + 1} of the sheet {sheet.title!r} is a title: {REMOVE_TITLE}")
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows((row + [""] * right)[left:right] for row in rows[top:bottom])
    return sheet.title, top + 1, left + 1, file.getvalue().encode()


def _has_title(rows: list[list[str]]) -> bool:
    """Whether one cell of text stands alone above a row of several."""
    words = [sum(any(map(str.isalpha, cell)) for cell in row) for row in rows if any(row)]
    above = len(list(takewhile(lambda count: count == 1, words)))
    return sum(map(bool, rows[0])) == 1 and above > 0 and max(words[above : above + 1], default=0) > 1


def _text(cell: object) -> str:
    """A cell as text; a date is as in ISO 8601."""
    if cell is None:
        return ""
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        return cell.date().isoformat()
    return str(cell)
