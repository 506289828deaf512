"""The outliers of a matrix in pieces: they stay with the pieces, and each access is a pass over these."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ...entries.protocol import Outliers
from ...linalg.arrays import host
from ...support.export import Records, records_to_parquet, records_to_zarr
from .formulas import Entries, FlaggedEntries, Piece

if TYPE_CHECKING:
    from .matrix import MatrixInPieces


@dataclass(frozen=True, eq=False, repr=False)
class StoredOutliers:
    """S: where it is not zero, and its values there; every access is a pass over the pieces.

    >>> import tempfile
    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 50, rank=1, density=0.5, outliers=0.1, random_state=1)
    >>> S = ls.solve(problem.M, rank=1, backend="outofcore").S
    >>> i, j, value = (part[0] for part in next(S.parts()))
    >>> bool(S.at(i, j) == value), S.columns(slice(0, 10)).shape
    (True, (60, 10))
    """

    M: MatrixInPieces
    flagged: FlaggedEntries
    values: Entries

    @property
    def nnz(self) -> int:
        """How many outliers there are."""
        return self.flagged.size

    @property
    def data(self) -> Any:
        """The values of the outliers, column by column."""
        return self.values[self.flagged]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.M.shape

    def _iterate(self, function: Callable[..., Any]) -> Iterator[Any]:
        return self.M.iterate_pieces(function, self.flagged.mask.formula, self.values.formula)

    def parts(self) -> Iterator[Records]:
        """Rows, columns and values, piece by piece."""
        return self._iterate(_take)

    def at(self, i: ArrayLike, j: ArrayLike) -> Any:
        """The entries (i, j): a number for two integers, else an array of the broadcast shape; 0 is no outlier."""
        m, n = self.shape
        rows, columns = np.broadcast_arrays(np.arange(m)[np.asarray(i)], np.arange(n)[np.asarray(j)])
        found = np.zeros(rows.size)
        for which, values in self._iterate(partial(_take_at, rows.ravel(), columns.ravel())):
            found[which] = values
        return found.reshape(rows.shape)[()]

    def columns(self, j: Any) -> sparse.csc_array:
        """The columns that the integer, slice or 1-D index j chooses."""
        chosen = np.atleast_1d(np.arange(self.shape[1])[j])
        order = np.argsort(chosen, kind="stable")
        parts = list(zip(*self._iterate(partial(_take_columns, chosen[order])), strict=True))
        rows, positions, values = (np.concatenate(part) for part in parts)
        return sparse.csc_array((values, (rows, order[positions])), shape=(self.shape[0], chosen.size))

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


def parts_of(S: Outliers) -> Iterator[Records]:
    """Rows, columns and values of outliers in pieces or in memory, column by column, some at a time."""
    if isinstance(S, StoredOutliers):
        return S.parts()
    A: Any = S
    A = A.tocoo()
    return iter([(A.row, A.col, A.data)])


# ---------------------------------------------------------------------- functions of a piece; they can be pickled


def _take(piece: Piece, mask: NDArray[Any], values: NDArray[Any]) -> Records:
    k = np.flatnonzero(mask)
    columns = np.searchsorted(piece.M.indptr, k, side="right") - 1 + piece.columns.start
    return host(piece.M.rows[k]).astype(np.int64), host(columns), host(values[k])


def _take_at(
    rows: NDArray[np.int64], columns: NDArray[np.int64], piece: Piece, mask: NDArray[Any], values: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Which of the positions (rows, columns) have an outlier in a piece, and their values."""
    m = piece.M.shape[0]
    i, j, found = _take(piece, mask, values)
    here = np.flatnonzero((columns >= piece.columns.start) & (columns < piece.columns.stop))
    keys, wanted = j * m + i, columns[here] * m + rows[here]  # the keys ascend, as entries are sorted by column and row
    k = np.minimum(np.searchsorted(keys, wanted), max(keys.size - 1, 0))
    hit = keys[k] == wanted if keys.size else np.zeros(wanted.size, bool)
    return here[hit], found[k[hit]]


def _take_columns(chosen: NDArray[np.int64], piece: Piece, mask: NDArray[Any], values: NDArray[Any]) -> Records:
    """The outliers of the ascending `chosen` columns in a piece: rows, positions in `chosen`, values."""
    i, j, found = _take(piece, mask, values)
    first, end = (np.searchsorted(chosen, j, side=side) for side in ("left", "right"))
    times = end - first  # a column may be chosen more than once
    positions = np.repeat(first, times) + np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    return np.repeat(i, times), positions, np.repeat(found, times)
