"""A table: an observed matrix whose rows and columns have labels, and how its file holds it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from ..containers import numbers_of
from ..observed import ObservedMatrix
from .labels import Array, Codes, encode_labels, label_array, locate_record, short_repr, to_arrow


@dataclass(frozen=True)
class Sheet:
    """Where the data of a table begin in an Excel file; rows and columns are counted from 1, as Excel does."""

    content: bytes  # of the file
    name: str
    row: int
    column: int


@dataclass(frozen=True)
class Layout:
    """How a file holds a table.

    >>> Layout().held, Layout(names=("user", "film", "stars")).held
    ('wide', 'records')
    """

    names: tuple[str, str, str] | None = None  # of the columns of records; None: the table is wide
    order: tuple[int, int, int] = (0, 1, 2)  # the positions of these columns
    index: str | None = None  # of a wide table: the name of the column of row labels; None: there is none
    index_position: int = 0  # of that column
    header: bool = True  # of text: its first line names the columns
    separator: str = ","  # of text
    decimal: str = "."  # of text
    encoding: str = "utf-8"  # of text
    newline: str = "\n"  # of text
    head: str | None = None  # of text: everything before the data, as it stands in the file
    sheet: Sheet | None = None  # of an Excel file
    comments: tuple[tuple[int, str], ...] = ()  # of text: the row before which a comment stands, and the comment
    array: str = "values"  # the name of the matrix in a file of arrays
    pandas: bytes | None = None  # the metadata of pandas in an Arrow or Parquet file

    @property
    def held(self) -> str:
        """Either "wide" or "records"."""
        return "wide" if self.names is None else "records"


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """An observed matrix whose rows and columns have labels.

    Parameters
    ----------
    M : ObservedMatrix
    rows, columns : 1-D arrays
        The labels: numbers, text or times.
    layout : Layout
        How a file held it, so that `write_table` writes it in the same way.
    positions : (rows, columns), optional
        Of records: the row and column of M of each, in the order of the file, also of those without a value.
    values : 1-D array, optional
        Of records: the value of each, NaN where it has none.
    kept : (position, name, column), ...
        Further columns of the file, to be written again unchanged.
    cells : Arrow arrays, optional
        Of text: the cells of each column of M, or those of the values of records, as they stand in the file.
    truths : column numbers
        The columns of a wide table that hold True and False, 1 and 0 in M; they are written as such.

    Examples
    --------
    >>> M = ObservedMatrix.from_dense([[1.0, 2.0], [3.0, np.nan]])
    >>> Table(M, ["mon", "tue"], [2001, 2002])
    Table(2 rows x 2 columns, 3 values, wide)
    """

    M: ObservedMatrix
    rows: Array
    columns: Array
    layout: Layout = field(default_factory=Layout)
    positions: tuple[Codes, Codes] | None = None
    values: Array | None = None
    kept: tuple[tuple[int, str, Any], ...] = ()
    cells: tuple[Any, ...] | None = None
    truths: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, size in zip(("rows", "columns"), self.M.shape, strict=True):
            labels = label_array(getattr(self, name))
            if labels.shape != (size,):
                raise ValueError(f"{name} holds {labels.shape} labels, but the matrix has {size} {name}")
            object.__setattr__(self, name, labels)
        records = self.layout.names is not None
        if not records == (self.positions is not None) == (self.values is not None):
            raise ValueError("records need names in the layout, positions and values: use Table.from_records")

    @classmethod
    def from_records(
        cls, rows: Any, columns: Any, values: Any, *, names: tuple[str, str, str] = ("row", "column", "value")
    ) -> Self:
        """The table with ``values[k]`` in the row labelled ``rows[k]`` and the column labelled ``columns[k]``.

        Parameters
        ----------
        rows, columns
            Labels: NumPy arrays, lists, or columns of pandas, polars or pyarrow. The table has them in ascending order.
        values
            Numbers. A record whose value is missing is left out of M; `missing` counts these.
        names
            Of the three columns, for error messages and for writing.

        Returns
        -------
        Table
            The table.

        Raises
        ------
        ValueError
            If the three differ in length, are empty, or a pair of labels occurs twice: aggregate first.
        TypeError
            If the values are no numbers.

        Examples
        --------
        >>> table = Table.from_records(["bob", "ann", "bob"], [7, 7, 9], [1.0, 2.0, None])
        >>> table
        Table(2 rows x 2 columns, 2 values, 3 records)
        >>> table.rows.tolist(), table.columns.tolist(), table.missing
        (['ann', 'bob'], [7, 9], 1)
        """
        held = [to_arrow(data, name) for data, name in zip((rows, columns, values), names, strict=True)]
        sizes = [len(column) for column in held]
        if len(set(sizes)) > 1:
            raise ValueError(f"rows, columns and values must be of the same length, they are {sizes}")
        if not sizes[0]:
            raise ValueError("there is no record")
        try:
            numbers = numbers_of(held[2])
        except TypeError as error:
            raise TypeError(f"{names[2]!r} is the column of values, but {error}") from error
        codes = encode_labels(held[0], names[0]), encode_labels(held[1], names[1])
        return cls.from_codes(*codes, numbers, Layout(names))

    @classmethod
    def from_codes(
        cls,
        rows: tuple[Codes, Array],
        columns: tuple[Codes, Array],
        values: Array,
        layout: Layout,
        locate: Callable[[int], str] = locate_record,
    ) -> Self:
        """The table of records whose labels are given as codes and the labels that they point to.

        Parameters
        ----------
        rows, columns
            For each record the number of its label, and the labels.
        values
            Numbers, NaN where they are missing.
        layout
            How the table was given.
        locate
            Says where a record is, given its number, for messages.

        Returns
        -------
        Table
            The table.

        Raises
        ------
        ValueError
            If a value is infinite, all are missing, or a pair of labels occurs twice.
        """
        (i, row_labels), (j, column_labels) = rows, columns

        def record(k: int) -> str:
            return f"row {short_repr(row_labels[i[k]])}, column {short_repr(column_labels[j[k]])}"

        infinite = np.isinf(values)
        if infinite.any():
            k = int(infinite.argmax())
            raise ValueError(f"{locate(k)}: the value of {record(k)} is {values[k]}; leave it empty if it is missing")
        seen = ~np.isnan(values)
        if not seen.any():
            raise ValueError(f"none of {seen.size} records has a value: there is nothing to recover the matrix from")
        known = slice(None) if seen.all() else seen
        shape = (row_labels.size, column_labels.size)
        try:
            M = ObservedMatrix.from_coo(i[known], j[known], values[known], shape)
        except ValueError:
            # The error of the matrix names positions; name the labels.
            position = i.astype(np.int64) * shape[1] + j
            order = np.flatnonzero(seen)[np.argsort(position[seen], kind="stable")]
            repeated = np.flatnonzero(position[order][1:] == position[order][:-1])
            if not repeated.size:
                raise
            k, other = int(order[repeated[0]]), int(order[repeated[0] + 1])
            raise ValueError(
                f"{repeated.size} records repeat a pair of labels, the first {record(k)} ({locate(k)} and "
                f"{locate(other)}, with the values {values[k]} and {values[other]}): aggregate first (the mean, the "
                "last, ...)"
            ) from None
        return cls(M, row_labels, column_labels, layout, (i, j), values.astype(M.dtype, copy=False))

    @property
    def n_records(self) -> int | None:
        """The number of records, including those without a value; None if the table is wide."""
        return None if self.positions is None else int(self.positions[0].size)

    @property
    def missing(self) -> int:
        """The number of records without a value, or of empty cells of a wide table."""
        m, n = self.M.shape
        return (m * n if self.n_records is None else self.n_records) - self.M.nnz

    def __repr__(self) -> str:
        m, n = self.M.shape
        held = "wide" if self.n_records is None else f"{self.n_records} records"
        return f"Table({m} rows x {n} columns, {self.M.nnz} values, {held})"
