"""A completed table: the observed values where there are any, and a low-rank fit everywhere else."""

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from ..entries.compressed import offsets
from ..entries.files.labels import Array
from ..entries.files.table import Table
from ..entries.observed import ObservedMatrix
from ..linalg.lowrank import LowRank


def fitted(fit: LowRank, known: tuple[Array, Array], i: Array, j: Array) -> Array:
    """The entries (i, j) of the fit; NaN where the row or the column is not `known`, having no observed value."""
    return np.where(known[0][i] & known[1][j], fit.at(i, j), np.nan)


class Completed:
    """The values of a table, for `write_table`; formed only where they are asked for.

    Parameters
    ----------
    table : Table
    fit : LowRank
        The values of unobserved cells. Rows and columns without any observed value stay empty: nothing is known there.
    replaced : positions among the entries of ``table.M``
        Observed values that the fit replaces, too.

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

    def rows(self, part: slice) -> Array:
        """Whole rows.

        Parameters
        ----------
        part
            Which.

        Returns
        -------
        array
            NaN where nothing is known.
        """
        indptr, columns, values = self._observed_by_row
        first, last, _ = part.indices(self.fit.shape[0])
        X = np.asarray(self.fit.rows(part), self.table.M.dtype)
        X[~self.known[0][part]] = np.nan
        X[:, ~self.known[1]] = np.nan
        entries = slice(indptr[first], indptr[last])
        X[np.repeat(np.arange(last - first), np.diff(indptr[first : last + 1])), columns[entries]] = values[entries]
        return X

    @cached_property
    def _observed_by_row(self) -> tuple[Array, Array, Array]:
        """The observed values that are not replaced as compressed rows: indptr, columns, values."""
        M, stays = self.table.M, np.ones(self.table.M.nnz)
        stays[self.replaced] = 0.0
        by_row, staying = M.T, M.with_values(stays).T.values > 0
        return offsets(staying)[by_row.indptr], by_row.rows[staying], by_row.values[staying]

    def records(self, part: slice) -> Array:
        """The values of records, of a table that was given as such.

        Parameters
        ----------
        part
            Which, in the order in which they were given.

        Returns
        -------
        array
            NaN where nothing is known.
        """
        assert self.table.positions is not None
        values = np.array(self._observed_records[part])
        holes = np.flatnonzero(np.isnan(values))
        i, j = (index[part][holes] for index in self.table.positions)
        values[holes] = fitted(self.fit, self.known, i, j)
        return values

    @cached_property
    def _observed_records(self) -> Array:
        """The values of the records, NaN where the fit takes their place."""
        table = self.table
        assert table.positions is not None
        assert table.values is not None
        if not self.replaced.size:
            return table.values
        seen = np.flatnonzero(~np.isnan(table.values))
        i, j = (index[seen] for index in table.positions)
        record = ObservedMatrix.from_coo(i, j, seen, self.fit.shape).values  # of each entry of M
        values = table.values.copy()
        values[record[self.replaced].astype(np.intp)] = np.nan
        return values

    def left_empty(self, *, every: bool = False) -> int:
        """How many cells, or how many of the records, stay empty.

        Parameters
        ----------
        every
            Count all pairs of labels, not only those that are records.

        Returns
        -------
        int
            Those in rows or columns without any observed value.
        """
        positions = self.table.positions
        if positions is not None and not every:
            return int(np.count_nonzero(~(self.known[0][positions[0]] & self.known[1][positions[1]])))
        m, n = self.fit.shape
        return m * n - int(self.known[0].sum()) * int(self.known[1].sum())
