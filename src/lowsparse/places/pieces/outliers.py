"""The outliers of a matrix in pieces, which stay where they are until they are asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ...linalg.arrays import host
from ...support.export import Records, records_to_parquet, records_to_zarr
from .formulas import Entries, FlaggedEntries, Piece, PiecewiseMatrix

__all__ = ["StoredOutliers"]


@dataclass(frozen=True, eq=False, repr=False)
class StoredOutliers:
    """S: where it is not zero, and its values there. What is asked for is computed in a pass over the pieces.

    >>> import tempfile
    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 50, rank=1, density=0.5, outliers=0.1, random_state=1)
    >>> S = ls.solve(problem.M, rank=1, backend="outofcore").S
    >>> i, j, value = (part[0] for part in next(S.parts()))
    >>> bool(S.at(i, j) == value), S.columns(slice(0, 10)).shape
    (True, (60, 10))
    """

    M: PiecewiseMatrix  # the matrix in pieces
    places: FlaggedEntries
    values: Entries

    @property
    def nnz(self) -> int:
        """How many outliers there are."""
        return self.places.size

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix."""
        return self.M.shape

    def _each(self, function: Any) -> Iterator[Any]:
        yield from self.M.iterate_pieces(function, self.places.mask.formula, self.values.formula)

    def parts(self) -> Iterator[Records]:
        """Rows, columns and values, piece by piece."""
        return self._each(_taken)

    def at(self, i: ArrayLike, j: ArrayLike) -> Any:
        """The entries (i, j): a number for two integers, else an array of the broadcast shape; 0 is no outlier."""
        m, n = self.shape
        rows, columns = np.broadcast_arrays(np.arange(m)[np.asarray(i)], np.arange(n)[np.asarray(j)])
        found = np.zeros(rows.size)
        for which, values in self._each(_At(rows.ravel(), columns.ravel())):
            found[which] = values
        return found.reshape(rows.shape)[()]

    def columns(self, j: Any) -> sparse.csc_array:
        """The columns that the integer, slice or 1-D index j chooses."""
        chosen = np.atleast_1d(np.arange(self.shape[1])[j])
        order = np.argsort(chosen, kind="stable")
        parts = list(zip(*self._each(_Chosen(chosen[order])), strict=True))
        rows, places, values = (np.concatenate(part) for part in parts)
        return sparse.csc_array((values, (rows, order[places])), shape=(self.shape[0], chosen.size))

    def to_scipy(self) -> sparse.csc_array:
        """All of them in memory."""
        rows, columns, values = (np.concatenate(part) for part in zip(*self.parts(), strict=True))
        return sparse.csc_array((values, (rows, columns)), shape=self.shape)

    def to_zarr(self, path: str | os.PathLike[str]) -> None:
        """Write them as a Zarr group of the arrays `row`, `column` and `value` (the extra `zarr`)."""
        records_to_zarr(path, self.parts(), self.shape, self.nnz)

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write them as records (row, column, value) (the extra `tables`)."""
        records_to_parquet(path, self.parts())

    def __repr__(self) -> str:
        return f"StoredOutliers({self.shape[0]} x {self.shape[1]}, {self.nnz} outliers)"


# ---------------------------------------------------------------------- what pieces do; to be sent, these have names


def _taken(piece: Piece, mask: NDArray[Any], values: NDArray[Any]) -> Records:
    k = np.flatnonzero(mask)
    columns = np.searchsorted(piece.M.indptr, k, side="right") - 1 + piece.columns.start
    return host(piece.M.rows[k]).astype(np.int64), host(columns), host(values[k])


@dataclass(frozen=True, eq=False)
class _At:
    """Which of the places asked for have an outlier in a piece, and their values."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]

    def __call__(self, piece: Piece, mask: NDArray[Any], values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        m = piece.M.shape[0]
        i, j, found = _taken(piece, mask, values)
        here = np.flatnonzero((self.columns >= piece.columns.start) & (self.columns < piece.columns.stop))
        keys, asked = j * m + i, self.columns[here] * m + self.rows[here]  # ascending, as entries are sorted so
        k = np.minimum(np.searchsorted(keys, asked), max(keys.size - 1, 0))
        hit = keys[k] == asked if keys.size else np.zeros(asked.size, bool)
        return here[hit], found[k[hit]]


@dataclass(frozen=True, eq=False)
class _Chosen:
    """The outliers of some columns as far as a piece has them: rows, places among those columns, values."""

    chosen: NDArray[np.int64]  # ascending

    def __call__(self, piece: Piece, mask: NDArray[Any], values: NDArray[Any]) -> Records:
        i, j, found = _taken(piece, mask, values)
        first, end = (np.searchsorted(self.chosen, j, side=side) for side in ("left", "right"))
        times = end - first  # a column may be asked for more than once
        places = np.repeat(first, times) + np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        return np.repeat(i, times), places, np.repeat(found, times)
