"""Files of columns: text with separators, Parquet, Arrow and Feather."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...support.optional import import_pyarrow
from ..containers import numbers_of
from .labels import INTEGER, Array, factorize, first_line, short_repr, to_bool
from .table import Layout

__all__ = ["PANDAS", "ArrowFile", "ColumnFile", "Name", "NoNumbersError", "TextFile"]

Name = str | int  # of a column: its name, or its position

INDEX = {"", "index", "id", "row", "unnamed: 0", "__index_level_0__"}  # names of a column of row labels
MISSING = {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA"}
MISSING |= {"NULL", "NaN", "n/a", "nan", "null"}
NUMBER = r"^[+-]?([0-9]+(POINT[0-9]*)?|POINT[0-9]+)([eE][+-]?[0-9]+)?$"
PANDAS = b"pandas"  # the key of pandas' metadata: which column is the index, above all
SAMPLE = 1 << 20  # characters of a text from which its separator is guessed


class NoNumbersError(ValueError):
    """A column that should hold numbers holds something else."""

    def __init__(self, line: str, column: str) -> None:
        super().__init__(f"{line}; if it holds labels, give it as row or keep")
        self.line, self.column = line, column


class ColumnFile(ABC):
    """A file whose columns can be read; `text` says that it has no types, only words."""

    text = False
    names: list[str]

    def __init__(self, path: Path) -> None:
        self.path, self.layout = path, Layout()

    @abstractmethod
    def read(self, positions: Sequence[int], labels: Sequence[int]) -> list[Any]:
        """The columns at these positions as `pyarrow.ChunkedArray`; those in `labels` are not parsed as numbers."""

    def index(self) -> int | None:
        """The position of the column of row labels, if the file itself declares one."""
        return None

    def find(self, name: Name | None) -> int:
        """The position of a column."""
        if isinstance(name, int) and 0 <= name < len(self.names):
            return name
        found = [k for k, known in enumerate(self.names) if known == name]
        if len(found) == 1:
            return found[0]
        if found:
            raise ValueError(f"{self.path} has {len(found)} columns {name!r}: give the position of one, from 0")
        listed = ", ".join(map(repr, self.names[:20])) + (", ..." if len(self.names) > 20 else "")
        raise ValueError(f"{self.path} has no column {name!r}; its columns are {listed}")

    def looks_like_index(self, column: Any) -> bool:
        """Whether the first column holds row labels: by its name, as text, or because it counts from 0 or 1."""
        if len(self.names) == 1:
            return False
        if self.layout.header and self.names[0].strip().lower() in INDEX:
            return True
        try:
            numbers = self.numbers(column, self.names[0])
        except ValueError:
            return True
        return numbers.size >= 3 and numbers[0] in (0, 1) and bool((np.diff(numbers) == 1).all())

    def is_blank(self, position: int, column: Any) -> bool:
        """Whether a column has neither name nor value, as a separator at the end of each line makes one."""
        return self.layout.header and not self.names[position].strip() and column.null_count == len(column)

    def numbers(self, column: Any, name: str) -> Array:
        """The numbers of a column, NaN where they are missing; text is parsed."""
        types = import_pyarrow().types
        kind = column.type.value_type if types.is_dictionary(column.type) else column.type
        if types.is_string(kind) or types.is_large_string(kind):
            return self._parse_numbers(column, name)
        try:
            return numbers_of(column)
        except TypeError as error:
            raise NoNumbersError(f"column {name!r} holds {column.type}, no numbers", name) from error

    def _parse_numbers(self, column: Any, name: str) -> Array:
        pyarrow, compute, point = import_pyarrow(), import_pyarrow("compute"), self.layout.decimal
        codes, words = factorize(column)
        trimmed = compute.utf8_trim_whitespace(words)
        number = compute.match_substring_regex(trimmed, NUMBER.replace("POINT", f"[{point}]"))
        missing = compute.is_in(trimmed, value_set=pyarrow.array(sorted(MISSING), words.type))
        bad = np.append(~(to_bool(number) | to_bool(missing)), False)[codes]  # the last is for null, -1
        if bad.any():
            k = int(bad.argmax())
            comma = " with a decimal comma" if point == "," else ""
            raise NoNumbersError(
                f"{short_repr(words[int(codes[k])].as_py())} in row {k + 1} of the data, column {name!r}, is not a "
                f"number{comma}; leave the cell empty if it is missing",
                name,
            )
        trimmed = compute.replace_substring(compute.if_else(number, trimmed, None), point, ".")
        numbers = trimmed.cast(pyarrow.float64()).to_numpy(zero_copy_only=False)
        return np.append(numbers, np.nan)[codes]


class TextFile(ColumnFile):
    """Comma-separated values, and their relatives; separator, decimal point, encoding and header are guessed."""

    text = True

    def __init__(self, path: Path, ending: str, wanted: tuple[Name | None, ...]) -> None:
        super().__init__(path)
        lines, encoding = _first_lines(path)
        self.blank_lines = next((k for k, line in enumerate(lines) if line.strip()), len(lines))
        lines = lines[self.blank_lines :]
        if not lines:
            raise ValueError(f"{path} is empty")
        self.longest = max(map(len, lines))
        try:
            separator, rows = _split(lines, "\t" if ending == ".tsv" else "\t;|,")
        except csv.Error as error:
            raise ValueError(f"{path} is no table in text: {error}") from error
        value = wanted[2]
        header = any(isinstance(name, str) for name in wanted)
        head = rows[0][value:][:1] if isinstance(value, int) else rows[0]  # of records: is the value a number?
        header = header or _is_header(head, by_position=any(name is not None for name in wanted))
        self.names = rows[0] if header else [str(k) for k in range(len(rows[0]))]
        if header and len(rows) > 1 and len(rows[1]) == len(rows[0]) + 1:  # R leaves out the name of the row labels
            self.names = ["", *rows[0]]
        numbers = slice(1, None) if value is None else slice(self.find(value), self.find(value) + 1)
        cells = [cell for row in rows[int(header) :] for cell in row[numbers]]
        self.layout = Layout(header=header, separator=separator, encoding=encoding, decimal=_decimal(separator, cells))

    def read(self, positions: Sequence[int], labels: Sequence[int]) -> list[Any]:
        """Labels as text, all else as numbers; if that fails, all else as what Arrow takes it for."""
        text, number = import_pyarrow().string(), import_pyarrow().float64()
        table = self._parse({k: text if k in labels else number for k in positions})
        if table is None:
            table = self._parse({k: text if k in labels else None for k in positions})
        return [table[str(k)] for k in positions]

    def _parse(self, types: dict[int, Any]) -> Any:
        """The columns at these positions, of these types (None: guessed); None if one is not of numbers."""
        pyarrow, text, layout = import_pyarrow(), import_pyarrow("csv"), self.layout
        reading = text.ReadOptions(
            column_names=[str(k) for k in range(len(self.names))],
            skip_rows=self.blank_lines,
            skip_rows_after_names=int(layout.header),
            encoding="utf8" if layout.encoding.startswith("utf-8") else layout.encoding,
            block_size=max(1 << 22, 16 * self.longest),  # a line must not be longer
        )
        parsing = text.ParseOptions(
            delimiter=layout.separator,
            newlines_in_values=True,
            ignore_empty_lines=len(self.names) > 1,  # else such a line is a missing value
        )
        converting = text.ConvertOptions(
            include_columns=[str(k) for k in types],
            column_types={str(k): kind for k, kind in types.items() if kind is not None},
            decimal_point=layout.decimal,
            null_values=sorted(MISSING),
        )
        try:
            return text.read_csv(str(self.path), reading, parsing, converting)
        except (pyarrow.ArrowInvalid, UnicodeError, OSError, EOFError) as error:
            if "conversion error to double" in str(error):
                return None
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> ValueError:
        if uneven := re.search(r"Expected (\d+) columns, got (\d+): (.*)", str(error), re.DOTALL):
            cells = f"{uneven[2]} cells where {uneven[1]} are expected"
            return ValueError(f"{self.path}: a line has {cells}: {short_repr(uneven[3])}")
        if "UTF8" in str(error) or isinstance(error, UnicodeError):
            return ValueError(f"{self.path} is not in UTF-8 ({first_line(error)}): save it as UTF-8")
        return ValueError(f"{self.path} cannot be read as text ({first_line(error)})")


class ArrowFile(ColumnFile):
    """Parquet, Arrow's own format and Feather."""

    def __init__(self, path: Path, ending: str, wanted: tuple[Name | None, ...]) -> None:
        super().__init__(path)
        try:
            self.table = None if ending in (".parquet", ".pq") else _arrow_table(path)
            self.schema = import_pyarrow("parquet").read_schema(path) if self.table is None else self.table.schema
        except (import_pyarrow().ArrowException, OSError) as error:
            raise ValueError(f"{path} is no {ending} file, or it is damaged ({first_line(error)})") from error
        self.names = list(self.schema.names)
        self.layout = Layout(pandas=(self.schema.metadata or {}).get(PANDAS))
        if not self.names:
            raise ValueError(f"{path} has no columns")

    def read(self, positions: Sequence[int], labels: Sequence[int]) -> list[Any]:
        """Only these columns are read from a Parquet file, unless names repeat."""
        by_name = len(set(self.names)) == len(self.names) > len(positions)
        try:
            if self.table is not None:
                columns = [self.table.column(k) for k in positions]
                for column in columns:
                    column.validate(full=True)  # else a wrong length in the file makes Arrow read outside of it
                return columns
            with import_pyarrow("parquet").ParquetFile(self.path) as file:
                table = file.read(columns=[self.names[k] for k in positions]) if by_name else file.read()
        except (import_pyarrow().ArrowException, OSError) as error:
            raise ValueError(f"{self.path} is damaged ({first_line(error)})") from error
        return [table[self.names[k]] if by_name else table.column(k) for k in positions]

    def index(self) -> int | None:
        """The index that pandas has written."""
        declared = (self.schema.pandas_metadata or {}).get("index_columns", [])
        found = [self.names.index(name) for name in declared if name in self.names]
        if len(found) > 1:
            listed = ", ".join(repr(self.names[k]) for k in found)
            raise ValueError(f"{self.path} has row labels of several levels ({listed}): make them one column first")
        return found[0] if found else None


def _arrow_table(path: Path) -> Any:
    """A file in Arrow's or Feather's format, memory-mapped; or an Arrow stream."""
    pyarrow = import_pyarrow()
    try:
        return import_pyarrow("feather").read_table(path, memory_map=True)
    except pyarrow.ArrowInvalid:
        with pyarrow.OSFile(str(path)) as stream:
            return pyarrow.ipc.open_stream(stream).read_all()


# ---------------------------------------------------------------------- the dialect of a text


def _first_lines(path: Path) -> tuple[list[str], str]:
    """The first lines of a text and its encoding."""
    lines, size = [], 0
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            mark = file.read(3)
            file.seek(0)
            encoding = "utf-8-sig" if mark == b"\xef\xbb\xbf" else "utf-8"
            if mark[:2] in (b"\xff\xfe", b"\xfe\xff"):
                encoding = "utf-16"
            with io.TextIOWrapper(file, encoding, errors="replace", newline="") as text:
                for line in text:
                    lines.append(line)
                    size += len(line)
                    if size > SAMPLE:
                        break
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read ({first_line(error)})") from error
    return lines, encoding


def _split(lines: list[str], separators: str) -> tuple[str, list[list[str]]]:
    """The separator that splits all lines into as many cells, and the cells; of several, that with most numbers.

    The first line may have one cell less, if no separator does better.
    """
    split = {mark: _cells(lines, mark) for mark in separators}
    for less in (0, 1):
        even = {}
        for mark, rows in split.items():
            widths = {len(row) for row in rows[1:]} or {len(rows[0])}
            if widths == {len(rows[0]) + less} and max(widths) > 1:
                even[mark] = sum(_is_number(cell) for row in rows for cell in row)
        if even:
            best = max(even, key=lambda mark: even[mark])
            return best, split[best]
    often = max(reversed(separators), key=lines[0].count)
    return often, split[often]


def _cells(lines: list[str], separator: str) -> list[list[str]]:
    if not any(separator in line for line in lines[:2]):
        return [[line.strip("\r\n")] for line in lines]
    return [row for row in csv.reader(lines, delimiter=separator) if row]


def _is_number(cell: str, points: str = ".,") -> bool:
    """Whether a cell is a number with one of these as its decimal point."""
    return re.match(NUMBER.replace("POINT", f"[{points}]"), cell.strip()) is not None


def _decimal(separator: str, cells: list[str]) -> str:
    """The decimal point that more of the cells have; a comma only where the separator is another."""
    if separator == ",":
        return "."
    fractions = [cell for cell in cells if "," in cell or "." in cell]
    points, commas = (sum(_is_number(cell, point) for cell in fractions) for point in ".,")
    return "," if commas > points or (commas == points and separator == ";") else "."


def _is_header(cells: list[str], *, by_position: bool) -> bool:
    """Whether the first line names the columns and is not data."""
    if not all(_is_number(cell) for cell in cells if cell.strip() not in MISSING):
        return True
    if by_position:
        return False
    if not cells[0].strip():
        return True
    integers = len(cells) > 1 and all(re.match(INTEGER, cell) for cell in cells)
    return integers and all(int(one) < int(next_one) for one, next_one in itertools.pairwise(cells))
