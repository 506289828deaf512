"""Tables in text, such as CSV: encoding, separator, comments, header and decimal point are guessed."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ...support.format import pluralize
from ...support.optional import import_pyarrow
from ...support.sizes import check_fits
from .columns import ColumnFile, Name
from .encoding import to_utf8
from .header import has_header
from .labels import first_line, short_repr
from .numbers import Markers, is_number
from .source import Source
from .table import Layout

SAMPLE, LINES = 1 << 20, 1000  # bytes and lines from which the layout is guessed
COUNTED, CELLS = 20, 10_000  # lines in which numbers are counted, and cells in which decimal points are
PER_CELL = 60  # bytes that a cell takes beside its text: as text and number of its column, and in the matrix
COMMENT = "#"
REMOVE_TITLE = "remove what stands above the names of the columns"
GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}[.,][0-9]{3}$")  # one number with a decimal point, another with thousands


class TextFile(ColumnFile):
    """Values separated by commas, semicolons, tabs or bars."""

    text = True

    def __init__(self, source: Source, wanted: tuple[Name | None, ...], header: bool | None, markers: Markers) -> None:
        super().__init__(source.path, markers)
        self._content, encoding = self._decoded(source)
        lines = self._first_lines()
        start, separator, rows = self._split(lines, "\t" if source.ending == ".tsv" else "\t;|,")
        cells = self._content.count(separator.encode()) + self._content.count(b"\n")
        check_fits(self.path, "its table", len(self._content) + PER_CELL * cells)
        if header is not False:
            guessed = _header_is_needed(wanted, rows) if any(name is not None for name in wanted) else has_header(rows)
            start, rows, guessed = _commented_header(lines, start, separator, rows, guessed)
            header = header or guessed
        self.names = rows[0] if header else [str(k) for k in range(len(rows[0]))]
        if header and len(rows) > 1 and len(rows[1]) == len(rows[0]) + 1:  # R leaves out the name of the row labels
            self.names = ["", *rows[0]]
        head = lines[: start + (_length_of_first(lines[start:], separator) if header else 0)]
        self._head_lines, self._body = len(head), len("".join(head).encode())
        self.longest = max(map(len, lines))
        value = wanted[2]
        numbers = slice(1, None) if value is None else slice(self.find(value), self.find(value) + 1)
        sample = [cell for row in rows[int(header) :] for cell in row[numbers]]
        self.layout = Layout(
            header=header,
            separator=separator,
            encoding=encoding,
            decimal=_decimal(separator, sample),
            newline="\r\n" if lines[0].endswith("\r\n") else "\n",
            head="".join(head),
        )

    def _decoded(self, source: Source) -> tuple[bytes, str]:
        try:
            return to_utf8(source.bytes)
        except ValueError as error:
            raise ValueError(f"{self.path} is no text: {error}") from error

    def _first_lines(self) -> list[str]:
        end = self._content.find(b"\n", SAMPLE) + 1 or len(self._content)
        lines = io.StringIO(self._content[:end].decode(), newline="").readlines()[:LINES]
        if not any(line.strip() for line in lines):
            raise ValueError(f"{self.path} is empty")
        return lines

    def _split(self, lines: list[str], separators: str) -> tuple[int, str, list[list[str]]]:
        """Where the first line is that is neither blank nor a comment, the separator, and the cells from there."""
        content = [k for k, line in enumerate(lines) if line.strip() and not line.startswith(COMMENT)]
        start = content[0] if content else next(k for k, line in enumerate(lines) if line.strip())
        rest = [line for line in lines[start:] if not content or not line.startswith(COMMENT)]
        try:
            return start, *_best_split(rest, separators)
        except csv.Error as error:
            raise ValueError(f"{self.path} is no table in text: {error}") from error

    def read(self, positions: Sequence[int]) -> list[Any]:
        """The columns at these positions as text, comments left out."""
        pyarrow, text, layout = import_pyarrow(), import_pyarrow("csv"), self.layout
        commented = self._content.find(f"\n{COMMENT}".encode(), max(self._body - 1, 0)) >= 0
        commented = commented or self._content.startswith(COMMENT.encode(), self._body)
        names = [str(k) for k in range(len(self.names))]
        reading = text.ReadOptions(
            column_names=names,
            block_size=min(max(1 << 22, 16 * self.longest), (1 << 31) - 1),  # a line must not be longer
            use_threads=not commented,  # else rows have no numbers
        )
        parsing = text.ParseOptions(
            delimiter=layout.separator,
            newlines_in_values=True,
            ignore_empty_lines=len(names) > 1,  # else such a line is a missing value
            invalid_row_handler=self._skip_comment if commented else None,
        )
        converting = text.ConvertOptions(
            include_columns=[names[k] for k in positions], column_types=dict.fromkeys(names, pyarrow.string())
        )
        self.comments: list[tuple[int, str]] = []
        body = pyarrow.py_buffer(self._content).slice(self._body)
        if not body.size:
            return [pyarrow.chunked_array([], pyarrow.string())] * len(positions)
        try:
            table = text.read_csv(pyarrow.BufferReader(body), reading, parsing, converting)
        except pyarrow.ArrowInvalid as error:
            if "straddling" in str(error) and self.longest < len(self._content):  # a line longer than those before
                self.longest = len(self._content)
                return self.read(positions)
            raise self._explained(error) from error
        return [table[str(k)] for k in positions]

    def _skip_comment(self, row: Any) -> str:
        """Leave a comment out, and keep the number of the row before which it stands."""
        if not row.text.startswith(COMMENT):
            return "error"
        self.comments.append((row.number - 1 - len(self.comments), row.text))
        return "skip"

    def _explained(self, error: Exception) -> ValueError:
        for line, cells in self._lines():
            if len(cells) != len(self.names):
                counts = f"{pluralize(len(cells), 'cell')} where {len(self.names)} are expected"
                shown = short_repr(self.layout.separator.join(cells))
                titled = f"; {REMOVE_TITLE}" if len(self.names) == 1 < len(cells) else ""
                return ValueError(f"{self.path}: line {line}: {counts}: {shown}{titled}")
        return ValueError(f"{self.path} cannot be read as text ({first_line(error)})")

    def locate(self, row: int) -> str:
        """The line where a row of the data begins, counted from 1."""
        for k, (line, _) in enumerate(self._lines()):
            if k == row:
                return f"line {line}"
        return super().locate(row)

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """The number of the first line of each row, and its cells; without blank lines and comments."""
        text, width = self._content[self._body :].decode(), len(self.names)
        reader, line = csv.reader(io.StringIO(text, newline=""), delimiter=self.layout.separator), 0
        try:
            for cells in reader:
                first, line = line + 1, reader.line_num
                comment = len(cells) != width and cells and cells[0].startswith(COMMENT)
                if (cells or width == 1) and not comment:
                    yield self._head_lines + first, cells or [""]
        except csv.Error:  # a cell is longer than Python's limit
            return


def _header_is_needed(wanted: tuple[Name | None, ...], rows: list[list[str]]) -> bool:
    """Whether the first line names the columns, of which some were asked for."""
    if any(isinstance(name, str) for name in wanted):
        return True
    value = wanted[2]
    if value is None:
        return has_header(rows)
    return not all(is_number(cell) for cell in rows[0][int(value) :][:1] if cell.strip())


def _commented_header(
    lines: list[str], start: int, separator: str, rows: list[list[str]], header: bool
) -> tuple[int, list[list[str]], bool]:
    """Where the table begins, its lines and whether the first names the columns, as a comment before data may do."""
    if not header and start and lines[start - 1].startswith(COMMENT):
        named = _cells(lines[start - 1 : start], separator)[0]
        if len(named) == len(rows[0]) > 1:
            return start - 1, [named, *rows], True
    return start, rows, header


def _best_split(lines: list[str], separators: str) -> tuple[str, list[list[str]]]:
    """The separator that splits all lines into as many cells, and the cells; of several, that with most numbers.

    The first line may have one cell less, if no separator does better.
    """
    split = {mark: _cells(lines, mark) for mark in separators}
    for less in (0, 1):
        even = {}
        for mark, rows in split.items():
            widths = {len(row) for row in rows[1:]} or {len(rows[0])}
            if widths == {len(rows[0]) + less} and max(widths) > 1:
                even[mark] = sum(is_number(cell) for row in rows[:COUNTED] for cell in row)
        if even:
            best = max(even, key=lambda mark: even[mark])
            return best, split[best]
    often = max(reversed(separators), key=lines[0].count)
    return often, split[often]


def _cells(lines: list[str], separator: str) -> list[list[str]]:
    if not any(separator in line for line in lines[:2]):
        return [[line.strip("\r\n")] for line in lines]
    return [row for row in csv.reader(lines, delimiter=separator) if row]


def _length_of_first(lines: list[str], separator: str) -> int:
    """How many lines the first row takes: a cell in quotes may hold line breaks."""
    reader = csv.reader(lines, delimiter=separator)
    next(reader)
    return reader.line_num


def _decimal(separator: str, cells: list[str]) -> str:
    """The decimal point: what some cells must mean, else what is likelier."""
    marked = [cell.strip() for cell in cells[:: 1 + len(cells) // CELLS] if "," in cell or "." in cell]
    points, commas = (
        sum(is_number(cell, point) and not is_number(cell, other) for cell in marked) for point, other in (".,", ",.")
    )
    if points != commas:
        return "." if points > commas else ","
    grouped = [cell for cell in marked if GROUPED.match(cell)]
    if not grouped or separator == ",":
        return "," if separator == ";" and not grouped else "."
    mark = "," if "," in grouped[0] else "."
    if mark == "." and separator != ";":  # which goes with decimal commas
        return "."
    whole = [cell.strip() for cell in cells if cell.strip().isdecimal()]
    thousands = bool(whole) and max(map(len, whole)) <= 3  # as 999 and 1,234
    return mark if not thousands else "." if mark == "," else ","
