"""Files of columns: what text (`text.py`), Parquet, Arrow and Feather have in common, and the latter three."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...support.optional import import_pyarrow
from ...support.sizes import check_fits
from ..containers import numbers_of
from .header import INDEX
from .labels import Array, first_line, short_repr
from .numbers import Markers, parse_numbers, parse_truths
from .source import Source
from .table import Layout

Name = str | int  # of a column: its name, or its position

PANDAS = b"pandas"  # the key of pandas' metadata: which column is the index, above all


class NoNumbersError(ValueError):
    """A column that should hold numbers holds something else; `typo` says that most of its cells are numbers."""

    def __init__(self, line: str, column: str, cell: str | None = None, *, typo: bool = False) -> None:
        absent = "" if cell is None else f"give missing=[{short_repr(cell)}] if it stands for a missing value; "
        super().__init__(f"{line}; {absent}if the column holds labels, give it as row or keep")
        self.line, self.column, self.cell, self.typo = line, column, cell, typo


class ColumnFile(ABC):
    """A file whose columns can be read; `text` says that it has no types, only words."""

    text = False
    names: list[str]
    comments: Sequence[tuple[int, str]] = ()  # in text: the row before which a comment stands, and the comment

    def __init__(self, path: Path, markers: Markers) -> None:
        self.path, self.markers, self.layout = path, markers, Layout()

    @abstractmethod
    def read(self, positions: Sequence[int]) -> list[Any]:
        """The columns at these positions as `pyarrow.ChunkedArray`."""

    def locate(self, row: int) -> str:
        """Where in the file a row is, for error messages; `row` is counted from 0, the message counts from 1."""
        return f"row {row + 1}"

    def index(self) -> int | None:
        """The position of the column of row labels, if the file itself declares one."""
        return None

    def find(self, name: Name | None) -> int:
        """The position of a column."""
        if isinstance(name, int) and 0 <= name < len(self.names):
            return name
        found = [k for k, known in enumerate(self.names) if known == name]
        found = found or [k for k, known in enumerate(self.names) if known.strip() == name]
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
        except NoNumbersError as error:
            return not error.typo
        return numbers.size >= 3 and numbers[0] in (0, 1) and bool((np.diff(numbers) == 1).all())

    def numbers(self, column: Any, name: str) -> Array:
        """The numbers of a column, NaN where they are missing; text is parsed."""
        types = import_pyarrow().types
        if types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if types.is_string(column.type) or types.is_large_string(column.type):
            numbers = self._parse(column, name)
        else:
            try:
                numbers = self.markers.without_codes(numbers_of(column))
            except TypeError as error:
                raise NoNumbersError(f"column {name!r} holds {column.type}, no numbers", name) from error
        infinite = np.isinf(numbers)
        if infinite.any():
            k = int(infinite.argmax())
            raise ValueError(
                f"{self.locate(k)}: {numbers[k]} in column {name!r}; leave the cell empty if it is missing"
            )
        return numbers

    def holds_truths(self, column: Any, numbers: Array) -> bool:
        """Whether a column, from which these numbers were read, holds True and False."""
        types = import_pyarrow().types
        if not ((numbers == 0) | (numbers == 1) | np.isnan(numbers)).all():
            return False
        if types.is_string(column.type) or types.is_large_string(column.type):
            return parse_truths(column, self.markers) is not None
        return bool(types.is_boolean(column.type))

    def _parse(self, column: Any, name: str) -> Array:
        numbers, bad = parse_numbers(column, self.layout.decimal, self.markers)
        if bad.any() and (truths := parse_truths(column, self.markers)) is not None:
            return truths
        if bad.any():
            k, cell = int(bad.argmax()), column[int(bad.argmax())].as_py()
            comma = " with a decimal comma" if self.layout.decimal == "," else ""
            line = f"{self.locate(k)}: {short_repr(cell)} in column {name!r} is not a number{comma}"
            raise NoNumbersError(line, name, cell.strip(), typo=np.count_nonzero(~np.isnan(numbers)) > bad.sum())
        return numbers


class ArrowFile(ColumnFile):
    """Parquet, Arrow's own format and Feather."""

    def __init__(self, source: Source, markers: Markers) -> None:
        super().__init__(source.path, markers)
        self.source, path, parquet = source, source.path, source.ending in (".parquet", ".pq")
        try:
            self.table = None if parquet else _arrow_table(source)
            read_schema = import_pyarrow("parquet").read_schema
            self.schema = read_schema(source.for_arrow) if self.table is None else self.table.schema
        except (import_pyarrow().ArrowException, OSError) as error:
            raise ValueError(f"{path} is no {source.ending} file, or it is damaged ({first_line(error)})") from error
        self.names = list(self.schema.names)
        self.layout = Layout(pandas=(self.schema.metadata or {}).get(PANDAS))
        if not self.names:
            raise ValueError(f"{path} has no columns")

    def read(self, positions: Sequence[int]) -> list[Any]:
        """Only these columns are read from a Parquet file, unless names repeat."""
        by_name = len(set(self.names)) == len(self.names) > len(positions)
        try:
            if self.table is not None:
                columns = [self.table.column(k) for k in positions]
                for column in columns:
                    column.validate(full=True)  # else a wrong length in the file makes Arrow read outside of it
                return columns
            with import_pyarrow("parquet").ParquetFile(self.source.for_arrow) as file:
                size = file.metadata.num_rows * 8 * (len(positions) if by_name else len(self.names))
                check_fits(self.path, "its table", size)
                table = file.read(columns=[self.names[k] for k in positions]) if by_name else file.read()
        except (import_pyarrow().ArrowException, OSError) as error:
            raise ValueError(f"{self.path} is damaged ({first_line(error)})") from error
        return [table[self.names[k]] if by_name else table.column(k) for k in positions]

    def index(self) -> int | None:
        """The index that pandas has written."""
        try:
            declared = (self.schema.pandas_metadata or {}).get("index_columns", [])
            found = [self.names.index(name) for name in declared if name in self.names]
        except (ValueError, TypeError, AttributeError) as error:  # it is no JSON, or of another form
            raise ValueError(f"{self.path} is damaged: the metadata of pandas cannot be read ({error})") from error
        if len(found) > 1:
            listed = ", ".join(repr(self.names[k]) for k in found)
            raise ValueError(f"{self.path} has row labels of several levels ({listed}): make them one column first")
        return found[0] if found else None


def _arrow_table(source: Source) -> Any:
    """A file in Arrow's or Feather's format, memory-mapped; or an Arrow stream."""
    pyarrow = import_pyarrow()
    try:
        return import_pyarrow("feather").read_table(source.for_arrow, memory_map=True)
    except pyarrow.ArrowInvalid:
        with pyarrow.input_stream(source.for_arrow) as stream:
            return pyarrow.ipc.open_stream(stream).read_all()
