"""The outliers of a matrix in pieces, which stay where they are until they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .entries import Entries, Piece, Places

__all__ = ["StoredOutliers"]


@dataclass(frozen=True, eq=False, repr=False)
class StoredOutliers:
    """S: where it is not zero, and its values there."""

    M: Any  # the matrix in pieces
    places: Places
    values: Entries

    @property
    def nnz(self) -> int:
        """How many outliers there are."""
        return self.places.size

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix."""
        shape: tuple[int, int] = self.M.shape
        return shape

    def parts(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]]:
        """Rows, columns and values, piece by piece."""
        yield from self.M.over(_taken, self.places.mask.formula, self.values.formula)

    def to_scipy(self) -> sparse.csc_array:
        """All of them in memory."""
        rows, columns, values = (np.concatenate(part) for part in zip(*self.parts(), strict=True))
        return sparse.csc_array((values, (rows, columns)), shape=self.shape)

    def __repr__(self) -> str:
        return f"StoredOutliers({self.shape[0]} x {self.shape[1]}, {self.nnz} outliers)"


def _taken(
    piece: Piece, mask: NDArray[Any], values: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
    k = np.flatnonzero(mask)
    columns = np.searchsorted(piece.M.indptr, k, side="right") - 1 + piece.columns.start
    return piece.M.rows[k].astype(np.int64), columns, values[k]
