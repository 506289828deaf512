"""Files that hold columns: text with separators, Parquet, Arrow and Feather."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..entries.containers import numbers_of
from .labels import (
    WHOLE,
    Array,
    brief,
    codes_of,
    flags,
    library,
    shown,
)
from .table import Layout

Name = str | int  # of a column: its name, or its place

INDEX = {"", "index", "id", "row", "unnamed: 0", "__index_level_0__"}  # names of a column of row labels
ABSENT = {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA"}
ABSENT |= {"NULL", "NaN", "n/a", "nan", "null"}
NUMBER = r"^[+-]?([0-9]+(POINT[0-9]*)?|POINT[0-9]+)([eE][+-]?[0-9]+)?$"
PANDAS = b"pandas"  # where pandas keeps what it knows of its columns, the index above all
SAMPLE = 1 << 20  # characters of a text by which its separators are told


class NoNumbersError(ValueError):
    """A column of which numbers are wanted holds something else."""

    def __init__(self, line: str, column: str) -> None:
        super().__init__(f"{line}; if it holds labels, name it as row, or beside")
        self.line, self.column = line, column


class Source(ABC):
    """A file whose columns can be read; `text` says that all it has are words."""

    text = False
    names: list[str]

    def __init__(self, path: Path) -> None:
        self.path, self.layout = path, Layout()

    @abstractmethod
    def read(self, places: Sequence[int], labels: Sequence[int]) -> list[Any]:
        """The columns at these places as `pyarrow.ChunkedArray`, some of them wanted as labels."""

    def find(self, name: Name | None) -> int:
        """The place of a column."""
        if isinstance(name, int) and 0 <= name < len(self.names):
            return name
        found = [k for k, known in enumerate(self.names) if known == name]
        if len(found) == 1:
            return found[0]
        if found:
            raise ValueError(f"{self.path} has {len(found)} columns {name!r}: give the place of one, counted from 0")
        listed = ", ".join(map(repr, self.names[:20])) + (", ..." if len(self.names) > 20 else "")
        raise ValueError(f"{self.path} has no column {name!r}; its columns are {listed}")

    def index(self) -> int | None:
        """The place of the column of row labels, where the file itself says so."""
        return None

    def is_index(self, column: Any) -> bool:
        """Whether the first column is evidently one of row labels."""
        if len(self.names) == 1:
            return False
        if self.layout.header and self.names[0].strip().lower() in INDEX:
            return True
        try:
            numbers = self.numbers(column, self.names[0])
        except ValueError:
            return True
        return numbers.size >= 3 and numbers[0] in (0, 1) and bool((np.diff(numbers) == 1).all())

    def is_spare(self, place: int, column: Any) -> bool:
        """Whether a column has neither a name nor a value: what a separator at the end of each line leaves."""
        return self.layout.header and not self.names[place].strip() and column.null_count == len(column)

    def numbers(self, column: Any, name: str) -> Array:
        """The numbers of a column, NaN where they are missing; words are read as numbers."""
        kinds = library().types
        words = column.type.value_type if kinds.is_dictionary(column.type) else column.type
        if kinds.is_string(words) or kinds.is_large_string(words):
            return self._parsed(column, name)
        try:
            return numbers_of(column)
        except TypeError as error:
            raise NoNumbersError(f"column {name!r} holds {column.type}, no numbers", name) from error

    def _parsed(self, column: Any, name: str) -> Array:
        compute, point = library("compute"), self.layout.decimal
        codes, words = codes_of(column)
        plain = compute.utf8_trim_whitespace(words)
        number = compute.match_substring_regex(plain, NUMBER.replace("POINT", f"[{point}]"))
        absent = compute.is_in(plain, value_set=library().array(sorted(ABSENT), words.type))
        bad = np.append(~(flags(number) | flags(absent)), False)[codes]  # the last is that of no word, -1
        if bad.any():
            k = int(bad.argmax())
            comma = " with a decimal comma" if point == "," else ""
            raise NoNumbersError(
                f"{shown(words[int(codes[k])].as_py())} in row {k + 1} of the data, column {name!r}, is not a number"
                f"{comma}; leave the cell empty if it is missing",
                name,
            )
        plain = compute.replace_substring(compute.if_else(number, plain, None), point, ".")
        numbers = plain.cast(library().float64()).to_numpy(zero_copy_only=False)
        return np.append(numbers, np.nan)[codes]


class TextFile(Source):
    """Comma-separated values, and what else goes by that name."""

    text = True

    def __init__(self, path: Path, ending: str, wanted: tuple[Name | None, ...]) -> None:
        super().__init__(path)
        lines, encoding = _first_lines(path)
        self.blank = next((k for k, line in enumerate(lines) if line.strip()), len(lines))
        lines = lines[self.blank :]
        if not lines:
            raise ValueError(f"{path} is empty")
        self.longest = max(map(len, lines))
        try:
            separator, rows = _split(lines, "\t" if ending == ".tsv" else "\t;|,")
        except csv.Error as error:
            raise ValueError(f"{path} is no table in text: {error}") from error
        header = any(isinstance(name, str) for name in wanted)
        head = rows[0][wanted[2] :][:1] if isinstance(wanted[2], int) else rows[0]  # of records: is the value a number?
        header = header or _is_header(head, by_place=any(name is not None for name in wanted))
        self.names = rows[0] if header else [str(k) for k in range(len(rows[0]))]
        if header and len(rows) > 1 and len(rows[1]) == len(rows[0]) + 1:  # R leaves out the name of the row labels
            self.names = ["", *rows[0]]
        self.layout = Layout(header=header, separator=separator, encoding=encoding)
        numbers = slice(1, None) if wanted[2] is None else slice(self.find(wanted[2]), self.find(wanted[2]) + 1)
        cells = [cell for row in rows[int(header) :] for cell in row[numbers]]
        self.layout = replace(self.layout, decimal=_decimal(separator, cells))

    def read(self, places: Sequence[int], labels: Sequence[int]) -> list[Any]:
        """Labels come as words, all else as numbers.

        A file in which something else is no number is read once more, with that column as what it is.
        """
        arrow = library()
        words = arrow.string()
        kinds = {k: words if k in labels else arrow.float64() for k in places}
        table = self._parse(kinds)
        if table is None:
            table = self._parse({k: words if k in labels else None for k in places})
        return [table[str(k)] for k in places]

    def _parse(self, kinds: dict[int, Any]) -> Any:
        """The columns at these places and of these types (None: of one that fits); None if one is no number."""
        arrow, text, layout = library(), library("csv"), self.layout
        reading = text.ReadOptions(
            column_names=[str(k) for k in range(len(self.names))],
            skip_rows=self.blank,
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
            include_columns=[str(k) for k in kinds],
            column_types={str(k): kind for k, kind in kinds.items() if kind is not None},
            decimal_point=layout.decimal,
            null_values=sorted(ABSENT),
        )
        try:
            return text.read_csv(str(self.path), reading, parsing, converting)
        except (arrow.ArrowInvalid, UnicodeError, OSError, EOFError) as error:
            if "conversion error to double" in str(error):
                return None
            if uneven := re.search(r"Expected (\d+) columns, got (\d+): (.*)", str(error), re.DOTALL):
                cells = f"{uneven[2]} cells where {uneven[1]} are expected"
                raise ValueError(f"{self.path}: a line has {cells}: {shown(uneven[3])}") from error
            if "UTF8" in str(error) or isinstance(error, UnicodeError):
                raise ValueError(f"{self.path} is not in UTF-8 ({brief(error)}): save it as UTF-8") from error
            raise ValueError(f"{self.path} cannot be read as text ({brief(error)})") from error


class ArrowFile(Source):
    """Parquet, Arrow's own format and Feather."""

    def __init__(self, path: Path, ending: str, wanted: tuple[Name | None, ...]) -> None:
        super().__init__(path)
        try:
            self.table = None if ending in (".parquet", ".pq") else _arrow_table(path)
            self.schema = library("parquet").read_schema(path) if self.table is None else self.table.schema
        except (library().ArrowException, OSError) as error:
            raise ValueError(f"{path} is no {ending} file, or it is damaged ({brief(error)})") from error
        self.names = list(self.schema.names)
        self.layout = Layout(pandas=(self.schema.metadata or {}).get(PANDAS))
        if not self.names:
            raise ValueError(f"{path} has no columns")

    def read(self, places: Sequence[int], labels: Sequence[int]) -> list[Any]:
        """Of Parquet, only what is asked for."""
        few = len(set(self.names)) == len(self.names) > len(places)
        try:
            if self.table is not None:
                columns = [self.table.column(k) for k in places]
                for column in columns:
                    column.validate(full=True)  # Arrow believes the lengths in a file, and reads outside of its memory
                return columns
            with library("parquet").ParquetFile(self.path) as file:
                table = file.read(columns=[self.names[k] for k in places]) if few else file.read()
        except (library().ArrowException, OSError) as error:
            raise ValueError(f"{self.path} is damaged ({brief(error)})") from error
        return [table[self.names[k]] if few else table.column(k) for k in places]

    def index(self) -> int | None:
        """The index that pandas has written."""
        said = (self.schema.pandas_metadata or {}).get("index_columns", [])
        found = [self.names.index(name) for name in said if name in self.names]
        if len(found) > 1:
            listed = ", ".join(repr(self.names[k]) for k in found)
            raise ValueError(f"{self.path} has row labels of several levels ({listed}): make them one column first")
        return found[0] if found else None


def _arrow_table(path: Path) -> Any:
    """A file of Arrow or Feather, mapped; or a stream."""
    arrow = library()
    try:
        return library("feather").read_table(path, memory_map=True)
    except arrow.ArrowInvalid:
        with arrow.OSFile(str(path)) as stream:
            return arrow.ipc.open_stream(stream).read_all()


# ---------------------------------------------------------------------- how a text is written


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
        raise ValueError(f"{path} cannot be read ({brief(error)})") from error
    return lines, encoding


def _split(lines: list[str], separators: str) -> tuple[str, list[list[str]]]:
    """The separator that cuts all lines into as many cells, and of several the one that leaves most numbers; the cells.

    The first line may have one cell less, if nothing else does better.
    """
    cut = {mark: _cells(lines, mark) for mark in separators}
    for less in (0, 1):
        even = {}
        for mark, rows in cut.items():
            widths = {len(row) for row in rows[1:]} or {len(rows[0])}
            if widths == {len(rows[0]) + less} and max(widths) > 1:
                even[mark] = sum(_is_number(cell) for row in rows for cell in row)
        if even:
            best = max(even, key=lambda mark: even[mark])
            return best, cut[best]
    often = max(reversed(separators), key=lines[0].count)
    return often, cut[often]


def _cells(lines: list[str], separator: str) -> list[list[str]]:
    if not any(separator in line for line in lines[:2]):
        return [[line.strip("\r\n")] for line in lines]
    return [row for row in csv.reader(lines, delimiter=separator) if row]


def _is_number(cell: str, points: str = ".,") -> bool:
    """Whether a cell is a number with one of these for its point."""
    return re.match(NUMBER.replace("POINT", f"[{points}]"), cell.strip()) is not None


def _decimal(separator: str, cells: list[str]) -> str:
    """A point, or the comma that a table with another separator may have: what more of the cells have."""
    if separator == ",":
        return "."
    broken = [cell for cell in cells if "," in cell or "." in cell]
    points, commas = (sum(_is_number(cell, point) for cell in broken) for point in ".,")
    return "," if commas > points or (commas == points and separator == ";") else "."


def _is_header(cells: list[str], *, by_place: bool) -> bool:
    """Whether the first line names the columns, and is no data."""
    if not all(_is_number(cell) for cell in cells if cell.strip() not in ABSENT):
        return True
    if by_place:
        return False
    if not cells[0].strip():
        return True
    whole = len(cells) > 1 and all(re.match(WHOLE, cell) for cell in cells)
    return whole and all(int(one) < int(next_one) for one, next_one in itertools.pairwise(cells))
