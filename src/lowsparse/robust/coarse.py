"""Coarse columns: counts, ratings, 0/1, indicators of categories, many zeros, whose numbers are few or are repeated.

If more than half of the entries of a column are the same number, its median deviation is zero, and so is every robust
scale that rests on it: for a fit with outliers the repeated number is exact, and all others are errors. With a few
components, that happens to columns of some numbers too. Uniform noise, as wide as the usual step from one number to the
next, takes the ties away without moving means: the noise of the fit is then that of the column. It is added for the fit
alone; what is filled, replaced or called an error is measured against the numbers as they were given.

What is rare in such a column need not be wrong: a count of 4 among zeros and ones is no error, 500 is. Errors are those
that a wide gap separates from the others; all other numbers are usual.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..entries.protocol import PartialMatrix, PerEntry, Resident
from ..linalg.arrays import Flags
from ..linalg.scale import CONSISTENT, OUTLIER
from ..sweeps import Float

REPEATED = 3  # least number of times that a number other than the median occurs, where such numbers are few
RARE = 0.2  # share of entries off the median below which they count only if they are repeated: else they are errors
COMMON = 1 / 3  # share of the columns whose few numbers off the median are as far from it, if these are no errors
SEVERAL = 4  # repeated numbers, from which on a column is one of counts or ratings and not of categories
MOSTLY = 0.75  # share of entries with repeated numbers in a column that is coarse
WIDE = 3.0  # robust standard deviation, in steps from one number to the next, from which on a column is not coarse
ATOM = 0.2  # least share of a number that is repeated among others that all differ: zero, or an end of the column
FEWEST = 0.05  # share of entries that say nothing of where the others of a column are
SAMPLE, FEW = 64, 0.9  # entries by which a column is tested first; share of different ones in a coarse column, at most
GAP = 3.0  # least gap in front of errors, in steps or standard deviations, and no less than what is on this side of it


@dataclass(frozen=True, eq=False)
class CoarseColumns:
    """Which columns of a matrix are coarse, and how much.

    >>> from lowsparse import ObservedMatrix
    >>> X = np.zeros((100, 2))
    >>> X[::4, 0], X[7, 0], X[:, 1] = 1.0, 500.0, np.arange(100)
    >>> M = ObservedMatrix.from_dense(X)
    >>> coarse = CoarseColumns.of(M)
    >>> coarse.width.tolist(), coarse.reach.tolist()
    ([1.0, 0.0], [1.0, 0.0])
    >>> Y = coarse.spread(M).to_host().to_scipy().toarray()
    >>> bool(np.abs(Y - X)[:, 0].max() <= 0.5), bool(np.median(np.abs(Y[:, 0])) > 0.2), np.array_equal(X[:, 1], Y[:, 1])
    (True, True, True)
    """

    width: Float  # n: the step from one number to the next; 0 for the others
    reach: Float  # n: the largest distance between usual numbers; 0 for the others
    atoms: Flags  # n: which have one number that is repeated, beside others that all differ
    graded: Flags  # n: which have several numbers that are repeated, as counts and ratings do

    @classmethod
    def of(cls, M: PartialMatrix) -> Self | None:
        """Those of M; None if it has none."""
        width, reach, sure, atoms, graded = M.reduce("|||||", _steps_and_reaches)
        # one or two ones among zeros are no errors if other columns have such ones, too
        steps, counts = np.unique(width[width > 0], return_counts=True)
        usual = np.isin(steps, width[sure]) | (counts >= max(REPEATED, COMMON * width.size))
        coarse = sure | np.isin(width, steps[usual])
        return cls(width * coarse, reach * coarse, atoms, graded & coarse) if coarse.any() else None

    @property
    def categories(self) -> Flags:
        """Which columns have two or three numbers, or hardly any but one, so that samples are alike by them."""
        return (self.width > 0) & ~self.atoms & ~self.graded

    def spread(self, M: PartialMatrix) -> PartialMatrix:
        """M, or M minus any number for each column, with uniform noise in the coarse columns."""
        return M.with_stored_values(M.values + self._noise(M))

    def restore(self, M: PartialMatrix) -> PartialMatrix:
        """M without the noise that `spread` has added."""
        return M.with_stored_values(M.values - self._noise(M))

    def relative_noise(self, noise: float) -> Float:
        """The noise by which errors are told in each column, relative to that of all: four times it is the reach."""
        return np.maximum(1.0, self.reach / (OUTLIER * noise)) if noise > 0 else np.ones_like(self.reach)

    def _noise(self, M: PartialMatrix) -> PerEntry:
        rows, columns = (np.arange(size, dtype=np.float64) for size in M.shape)
        # a hash of the position: the same number for the same entry wherever the matrix is, and of no low rank
        mixed = 43758.5453 * np.sin(M.spread_over_rows(12.9898 * rows) + M.spread_over_columns(78.233 * columns))
        noise: PerEntry = M.spread_over_columns(self.width) * (mixed - np.floor(mixed) - 0.5)
        return noise


def _steps_and_reaches(M: Resident) -> tuple[Float, Float, Flags, Flags, Flags]:
    """Of each column: the step from one number to the next, the reach of usual ones, whether it is surely coarse.

    The step is 0 if it is not. And whether it is so by one number that is repeated among others; and whether several
    are.
    """
    (width, reach), (sure, atoms, graded) = np.zeros((2, M.shape[1])), np.zeros((3, M.shape[1]), bool)
    for j in np.flatnonzero(M.column_counts >= REPEATED):
        x = M.values[M.indptr[j] : M.indptr[j + 1]]
        some = x[:: max(1, x.size // SAMPLE)]
        if np.unique(some).size > FEW * some.size >= FEW * SAMPLE:  # hardly any ties: as fast a test as there is
            continue
        numbers, counts = np.unique(x.astype(np.float64), return_counts=True)
        middle = float(numbers[np.searchsorted(np.cumsum(counts), counts.sum() / 2)])
        away = np.abs(numbers - middle)
        width[j], sure[j] = _step(numbers, counts, away)
        if not width[j] and (atom := _atom(numbers, counts)) is not None:
            middle, away, sure[j], atoms[j] = atom, np.abs(numbers - atom), True, True
            width[j] = _weighted_median(away[away > 0], counts[away > 0])
        if width[j]:
            graded[j] = np.count_nonzero(counts >= REPEATED) >= SEVERAL
            scale = max(width[j], CONSISTENT * _weighted_median(away, counts))
            reach[j] = _last_usual(away[numbers >= middle], scale) + _last_usual(away[numbers <= middle][::-1], scale)
    return width, reach, sure, atoms, graded


def _step(numbers: Float, counts: NDArray[np.int64], away: Float) -> tuple[float, bool]:
    """The usual step from one number to the next, or from the repeated one to others, and whether that is sure.

    It is 0 if the column is not coarse. A few others that all differ from each other may be errors in a column that is
    constant otherwise.
    """
    total, others = counts.sum(), away > 0
    n_others = counts[others].sum()
    if 2 * n_others < total:
        if not n_others:
            return 0.0, False
        sure = bool(n_others >= RARE * total or counts[others].max() >= REPEATED)
        return _weighted_median(away[others], counts[others]), sure
    if counts[counts >= REPEATED].sum() < MOSTLY * total:
        return 0.0, False
    step = _weighted_median(np.diff(numbers), np.minimum(counts[1:], counts[:-1]))
    coarse = CONSISTENT * _weighted_median(away, counts) < WIDE * step
    return (step, True) if coarse else (0.0, False)


def _atom(numbers: Float, counts: NDArray[np.int64]) -> float | None:
    """The number that many entries of a column share, as days without rain do, though the others all differ.

    It is zero, or an end of the column, where measurements stop; elsewhere a sensor may be stuck. None if there is
    none, or if a wide gap separates it from the others: then one or the other is an error.
    """
    total, i = counts.sum(), int(np.argmax(counts))
    few = min(counts[:i].sum(), counts[i + 1 :].sum()) <= FEWEST * total
    if counts[i] < ATOM * total or counts[i] == total or not (few or numbers[i] == 0):
        return None
    others, times = np.delete(numbers, i), np.delete(counts, i)
    spread = CONSISTENT * _weighted_median(np.abs(others - _weighted_median(others, times)), times)
    nearest = _weighted_quantile(np.abs(others - numbers[i]), times, FEWEST)
    return float(numbers[i]) if nearest <= spread else None


def _last_usual(away: Float, scale: float) -> float:
    """The last of ascending distances, from 0, before the first wide gap."""
    wide = np.diff(away) > np.maximum(GAP * scale, away[:-1])
    return float(away[np.argmax(wide)] if wide.any() else away[-1])


def _weighted_median(x: Float, counts: NDArray[np.int64]) -> float:
    return _weighted_quantile(x, counts, 0.5)


def _weighted_quantile(x: Float, counts: NDArray[np.int64], share: float) -> float:
    order = np.argsort(x, kind="stable")
    return float(x[order][np.searchsorted(np.cumsum(counts[order]), share * counts.sum())])
