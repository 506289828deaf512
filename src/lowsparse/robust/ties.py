"""Numbers that are repeated exactly though most are not: stuck instruments, clipped readings, copied rows, patches.

Measured numbers hardly ever agree to the last digit. Where some do, they may be errors, and of low rank at that, so
that a robust fit takes them for the truth. Where numbers are round (counts, ratings, pixels), it means nothing: there
others are repeated too, if not in the same row or column.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..sweeps import Float

__all__ = ["Ties"]

REPEATED = 3  # times that a number occurs in a row or column, at least
SUSPICIOUS = (0.01, 0.45)  # share of such entries: with fewer it does not matter, with more there is nothing else
ROUND = 0.05  # share of the others that occur elsewhere, from which on numbers are round
LOOKED_AT = 20  # lines by which it is seen whether there are any


class Ties:
    """Which numbers of a matrix are suspicious, if some are.

    >>> X = np.random.default_rng(1).standard_normal((30, 20))
    >>> X[:10, :5] = 2.0
    >>> M = ObservedMatrix.from_dense(X)
    >>> ties = Ties(M, M.T)
    >>> ties.suspicious, ties.left_out().nnz
    (True, 550)
    >>> ties.among(np.array([0, 20]), np.array([0, 0]), np.array([2.0, 2.0]))  # those that are such numbers, too
    array([ True,  True])
    >>> M = ObservedMatrix.from_dense(np.round(X))
    >>> Ties(M, M.T).suspicious
    False
    """

    def __init__(self, M: ObservedMatrix, turned: ObservedMatrix) -> None:
        self.M, self.turned = M, turned
        self.tied = np.zeros(M.nnz, bool)
        if any(_repeated(_some_columns(A)).mean() > SUSPICIOUS[0] / 4 for A in (M, turned)):
            self.tied = _repeated(M)
            self.tied[np.argsort(M.rows, kind="stable")] |= _repeated(turned)
        self.share = float(self.tied.mean()) if M.nnz else 0.0
        self.suspicious = SUSPICIOUS[0] < self.share < SUSPICIOUS[1] and not self._round_numbers()

    def _round_numbers(self) -> bool:
        others = self.M.values[~self.tied]
        return np.unique(others).size < (1 - ROUND) * others.size

    def left_out(self) -> ObservedMatrix:
        """The matrix without them."""
        kept = ~self.tied
        indptr = np.concatenate([[0], np.cumsum(kept)])[self.M.indptr]
        return ObservedMatrix.trusted(indptr, self.M.rows[kept], self.M.values[kept], self.M.shape)

    def among(self, rows: NDArray[np.int32], columns: NDArray[np.int32], values: Float) -> NDArray[np.bool_]:
        """Of other entries: whether their value is repeated in their row or column."""
        return _occur(self.M, columns, values) | _occur(self.turned, rows, values)


def _some_columns(M: ObservedMatrix) -> ObservedMatrix:
    filled = np.flatnonzero(M.column_counts)
    some = M.take_columns(filled[:: max(1, filled.size // LOOKED_AT)])
    assert some is not None  # each has an entry
    return some


def _repeated(M: ObservedMatrix) -> NDArray[np.bool_]:
    """Of each entry: whether its value occurs often in its column."""
    columns = M.columns_of_entries()
    order = np.lexsort((M.values, columns))
    value, column = M.values[order], columns[order]
    new = np.concatenate([[True], (value[1:] != value[:-1]) | (column[1:] != column[:-1])])
    group = np.cumsum(new) - 1
    found = np.empty(M.nnz, bool)
    found[order] = np.bincount(group)[group] >= REPEATED
    return found


def _occur(M: ObservedMatrix, columns: NDArray[np.int32], values: Float) -> NDArray[np.bool_]:
    """Of other entries of these columns: whether with them their value occurs often there."""
    known = np.sort(M.columns_of_entries() + 1j * M.values.astype(np.float64))  # by column, then by value
    asked = columns + 1j * values
    times = np.searchsorted(known, asked, side="right") - np.searchsorted(known, asked, side="left")
    return np.asarray(times >= REPEATED - 1)
