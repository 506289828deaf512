"""What matrices in pieces have in common, wherever the pieces are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..facts import Facts
from ..observed import ObservedMatrix
from .entries import Entries, Rows, Values

__all__ = ["InPieces", "check_entries"]


class InPieces(Facts):
    """A partly observed matrix whose values are `Entries`."""

    shape: tuple[int, int]
    nnz: int
    dtype: np.dtype[Any]
    indptr: NDArray[np.int64]

    @property
    def values(self: Any) -> Entries:
        """The observed values."""
        return Entries(self, Values())

    @property
    def column_counts(self) -> NDArray[np.int64]:
        """The number of entries in each column."""
        return np.diff(self.indptr)

    def sample(self: Any, size: int) -> ObservedMatrix:
        """About so many entries, evenly spread; all the rows and columns are there."""
        step = max(1, self.nnz // size)
        k = np.arange(0, self.nnz, step)
        rows = Entries(self, Rows())[::step]
        return ObservedMatrix(np.searchsorted(k, self.indptr), rows, self.values[::step], self.shape)

    def __repr__(self) -> str:
        m, n = self.shape
        share = 100 * self.density
        return f"{type(self).__name__}({m} x {n}, {self.nnz} entries observed ({share:.3g}%), {self.dtype})"


def check_entries(values: Any) -> None:
    """Raise unless these are numbers of the entries of a matrix in pieces.

    >>> check_entries(np.ones(3))
    Traceback (most recent call last):
    TypeError: a matrix in pieces takes a formula of its own values, such as 2 * M.values, and no ndarray
    """
    if not isinstance(values, Entries):
        kind = type(values).__name__
        raise TypeError(f"a matrix in pieces takes a formula of its own values, such as 2 * M.values, and no {kind}")
