"""A table: an observed matrix whose rows and columns have labels, and how it was held."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from ..entries.containers import numbers_of
from ..entries.observed import ObservedMatrix
from .labels import (
    Array,
    Codes,
    arrow_column,
    encode,
    label_array,
    shown,
)

__all__ = ["Layout", "Table"]


@dataclass(frozen=True)
class Layout:
    """How a table is held in a file.

    >>> Layout().held, Layout(names=("user", "film", "stars")).held
    ('wide', 'records')
    """

    names: tuple[str, str, str] | None = None  # of the columns of the records; None: the table is wide
    order: tuple[int, int, int] = (0, 1, 2)  # the places of these columns
    index: str | None = None  # of a wide table: the name of the column of row labels; None: there is none
    place: int = 0  # of that column
    header: bool = True  # of text: its first line names the columns
    separator: str = ","  # of text
    decimal: str = "."  # of text
    encoding: str = "utf-8"  # of text
    array: str = "values"  # the name of the matrix in a file of arrays
    pandas: bytes | None = None  # what pandas has written about the columns of an Arrow or Parquet file

    @property
    def held(self) -> str:
        """Either "wide" or "records".

        >>> Layout().held
        'wide'
        """
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
        How it was held, so that `write_table` writes it in the same shape.
    places : (row, column), optional
        The places of the records in M, in their order, those of records without a value too.
    given : 1-D array, optional
        The values of the records, in their order; NaN where there is none.
    beside : (place, name, column), ...
        Further columns of a file, which come back as they were.

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
    places: tuple[Codes, Codes] | None = None
    given: Array | None = None
    beside: tuple[tuple[int, str, Any], ...] = ()

    def __post_init__(self) -> None:
        for name, size in zip(("rows", "columns"), self.M.shape, strict=True):
            labels = label_array(getattr(self, name))
            if labels.shape != (size,):
                raise ValueError(f"{name} holds {labels.shape} labels, but the matrix has {size} {name}")
            object.__setattr__(self, name, labels)
        records = self.layout.held == "records"
        if not records == (self.places is not None) == (self.given is not None):
            raise ValueError("records have names in the layout, places and values: use Table.from_records")

    @classmethod
    def from_records(
        cls, rows: Any, columns: Any, values: Any, *, names: tuple[str, str, str] = ("row", "column", "value")
    ) -> Self:
        """The table with ``values[k]`` in the row labelled ``rows[k]`` and the column labelled ``columns[k]``.

        Parameters
        ----------
        rows, columns
            Labels: NumPy arrays, lists, or columns of pandas, polars or pyarrow. The labels of the table ascend,
            whatever the order of the records.
        values
            Numbers. A record whose value is missing is left out of M; `missing` counts them.
        names
            Of the three columns, for errors and when they are written.

        A pair of labels that comes twice is an error: aggregate first.

        Examples
        --------
        >>> table = Table.from_records(["bob", "ann", "bob"], [7, 7, 9], [1.0, 2.0, None])
        >>> table
        Table(2 rows x 2 columns, 2 values, 3 records)
        >>> table.rows.tolist(), table.columns.tolist(), table.missing
        (['ann', 'bob'], [7, 9], 1)
        """
        held = [arrow_column(data, name) for data, name in zip((rows, columns, values), names, strict=True)]
        sizes = [len(column) for column in held]
        if len(set(sizes)) > 1:
            raise ValueError(f"rows, columns and values must be of the same length, they are {sizes}")
        if not sizes[0]:
            raise ValueError("there is no record")
        try:
            data = numbers_of(held[2])
        except TypeError as error:
            raise TypeError(f"{names[2]!r} is the column of values, but {error}") from error
        return cls.from_codes(encode(held[0], names[0]), encode(held[1], names[1]), data, Layout(names))

    @classmethod
    def from_codes(cls, rows: tuple[Codes, Array], columns: tuple[Codes, Array], values: Array, layout: Layout) -> Self:
        """The table of records whose labels are given as places and the labels there.

        Examples
        --------
        >>> layout = Layout(names=("row", "column", "value"))
        >>> Table.from_codes(([0, 1], ["a", "b"]), ([0, 0], [7]), [1.0, 2.0], layout)
        Table(2 rows x 1 columns, 2 values, 2 records)
        """
        (i, row_labels), (j, column_labels) = ((np.asarray(k, np.int32), label_array(a)) for k, a in (rows, columns))
        values = np.asarray(values)

        def record(k: np.intp) -> str:
            return f"row {shown(row_labels[i[k]])}, column {shown(column_labels[j[k]])}"

        wild = np.isinf(values)
        if wild.any():
            k = wild.argmax()
            raise ValueError(f"the value of {record(k)} is {values[k]}; leave it empty if it is not known")
        seen = ~np.isnan(values)
        if not seen.any():
            raise ValueError(f"none of {seen.size} records has a value: there is nothing to recover the matrix from")
        known = slice(None) if seen.all() else seen
        shape = (row_labels.size, column_labels.size)
        try:
            M = ObservedMatrix.from_coo(i[known], j[known], values[known], shape)
        except ValueError:
            # From the matrix's own error come places; people want labels.
            place = i.astype(np.int64) * shape[1] + j
            order = np.flatnonzero(seen)[np.argsort(place[seen], kind="stable")]
            twice = np.flatnonzero(place[order][1:] == place[order][:-1])
            if not twice.size:
                raise
            k, again = order[twice[0]], order[twice[0] + 1]
            raise ValueError(
                f"{twice.size} records repeat a pair of labels, the first {record(k)} (records {k} and {again} from 0, "
                f"with the values {values[k]} and {values[again]}): aggregate first (the mean, the last, ...)"
            ) from None
        return cls(M, row_labels, column_labels, layout, (i, j), values.astype(M.dtype, copy=False))

    @property
    def n_records(self) -> int | None:
        """The number of records, those without a value too; None if the table is wide.

        >>> Table.from_records([1, 2], [1, 1], [5.0, float("nan")]).n_records
        2
        """
        return None if self.places is None else int(self.places[0].size)

    @property
    def missing(self) -> int:
        """The number of records without a value, or of empty cells of a wide table.

        >>> Table.from_records([1, 2], [1, 1], [5.0, float("nan")]).missing
        1
        """
        m, n = self.M.shape
        return (m * n if self.places is None else self.places[0].size) - self.M.nnz

    def __repr__(self) -> str:
        m, n = self.M.shape
        held = "wide" if self.places is None else f"{self.places[0].size} records"
        return f"Table({m} rows x {n} columns, {self.M.nnz} values, {held})"
