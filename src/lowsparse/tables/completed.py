"""A completed table: its entries as they were, and a fit wherever there was none."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ..entries.observed import ObservedMatrix
from ..linalg.lowrank import LowRank
from .labels import Array
from .table import Table

__all__ = ["Completed"]


class Completed:
    """The values of a table, for `write_table`; only those that are asked for are formed.

    Parameters
    ----------
    table : Table
    fit : LowRank
        What stands where nothing was observed. Rows and columns without any entry stay empty: nothing is known there.
    replaced : places among the entries of ``table.M``
        Entries that the fit replaces, too.

    Examples
    --------
    >>> table = Table(ObservedMatrix.from_dense([[1.0, 2.0], [2.0, np.nan]]), ["a", "b"], ["x", "y"])
    >>> Completed(table, LowRank([[1.5], [2.0]], [[1.0, 2.0]])).rows(slice(None)).tolist()
    [[1.0, 2.0], [2.0, 4.0]]
    """

    def __init__(self, table: Table, fit: LowRank, *, replaced: ArrayLike = ()) -> None:
        if fit.shape != table.M.shape:
            raise ValueError(f"the fit is {fit.shape}, but the table is {table.M.shape}")
        self.table, self.fit = table, fit
        self.replaced = np.asarray(replaced, np.intp)
        self.known = table.M.row_counts > 0, table.M.column_counts > 0
        self._rows: tuple[Array, Array, Array] | None = None  # the entries that stay, by row: indptr, columns, values
        self._given: Array | None = None

    def rows(self, part: slice) -> Array:
        """Whole rows."""
        if self._rows is None:
            stay = np.ones(self.table.M.nnz)
            stay[self.replaced] = 0.0
            by_row, staying = self.table.M.T, self.table.M.with_values(stay).T.values > 0
            before = np.concatenate(([0], np.cumsum(staying)))
            self._rows = before[by_row.indptr], by_row.rows[staying], by_row.values[staying]
        starts, columns, values = self._rows
        first, last, _ = part.indices(self.fit.shape[0])
        X = np.asarray(self.fit.rows(part), self.table.M.dtype)
        X[~self.known[0][part]] = np.nan
        X[:, ~self.known[1]] = np.nan
        entries = slice(starts[first], starts[last])
        X[np.repeat(np.arange(last - first), np.diff(starts[first : last + 1])), columns[entries]] = values[entries]
        return X

    def records(self, part: slice) -> Array:
        """Of records, in their order."""
        assert self.table.places is not None
        values = np.array(self._stay()[part])
        holes = np.flatnonzero(np.isnan(values))
        i, j = (place[part][holes] for place in self.table.places)
        values[holes] = np.where(self.known[0][i] & self.known[1][j], self.fit.at(i, j), np.nan)
        return values

    def _stay(self) -> Array:
        """The values of the records that stay, else NaN."""
        if self._given is None:
            assert self.table.places is not None
            assert self.table.given is not None
            self._given = self.table.given
            if self.replaced.size:
                seen = np.flatnonzero(~np.isnan(self._given))
                i, j = (place[seen] for place in self.table.places)
                record = ObservedMatrix.from_coo(i, j, seen, self.fit.shape).values  # of each entry, in their order
                self._given = self._given.copy()
                self._given[record[self.replaced].astype(np.intp)] = np.nan
        return self._given

    def left_empty(self, *, every: bool = False) -> int:
        """How many cells, or records, stay empty; of records, or of `every` pair.

        >>> table = Table(ObservedMatrix.from_dense([[1.0, np.nan], [2.0, np.nan]]), ["a", "b"], ["x", "y"])
        >>> Completed(table, LowRank([[1.0], [2.0]], [[1.0, 2.0]])).left_empty()
        2
        """
        places = self.table.places
        if places is not None and not every:
            return int(np.count_nonzero(~(self.known[0][places[0]] & self.known[1][places[1]])))
        m, n = self.fit.shape
        return m * n - int(self.known[0].sum()) * int(self.known[1].sum())
