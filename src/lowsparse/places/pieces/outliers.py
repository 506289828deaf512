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
        chosen = np.unique(columns)
        A = self.columns(chosen).tocoo()
        keys, wanted = chosen[A.col] * m + A.row, columns * m + rows  # the keys ascend
        k = np.minimum(np.searchsorted(keys, wanted), max(keys.size - 1, 0))
        found = np.where(keys[k] == wanted, A.data[k], 0.0) if keys.size else np.zeros(rows.shape)
        return found.astype(np.float64)[()]

    def columns(self, j: Any) -> sparse.csc_array:
        """The columns that the integer, slice or 1-D index j chooses."""
        chosen = np.atleast_1d(np.arange(self.shape[1])[j])
        return self._csc(self._iterate(partial(_take_columns, np.unique(chosen))))[:, chosen]

    def to_scipy(self) -> sparse.csc_array:
        """All of them in memory."""
        return self._csc(self.parts())

    def _csc(self, parts: Iterator[Records]) -> sparse.csc_array:
        rows, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
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


def _take_columns(chosen: NDArray[np.int64], piece: Piece, mask: NDArray[Any], values: NDArray[Any]) -> Records:
    """The outliers of a piece in the chosen columns."""
    i, j, found = _take(piece, mask, values)
    inside = np.isin(j, chosen)
    return i[inside], j[inside], found[inside]
