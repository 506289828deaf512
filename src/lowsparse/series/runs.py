"""Runs: stretches of consecutive moments of one series, and how far each moment is from the next reading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..linalg.scale import median
from ..sweeps import Float, native

Bool = NDArray[np.bool_]
Index = NDArray[np.intp]


@dataclass(frozen=True)
class Runs:
    """Maximal runs of marked moments: series, first moment, and the moment after the last.

    >>> runs = Runs.of(np.array([[True, False], [True, False], [False, True]]))
    >>> runs.series.tolist(), runs.begin.tolist(), runs.end.tolist()
    ([0, 1], [0, 2], [2, 3])
    """

    series: Index
    begin: Index
    end: Index

    @classmethod
    def of(cls, marked: Bool) -> Runs:
        """The runs of a moments x series mask, ordered by series and time."""
        edges = np.zeros((marked.shape[1], marked.shape[0] + 2), np.int8)
        edges[:, 1:-1] = marked.T
        steps = np.diff(edges, axis=1)
        series, begin = np.nonzero(steps == 1)
        return cls(series, begin, np.nonzero(steps == -1)[1])

    def __len__(self) -> int:
        return len(self.series)

    @property
    def lengths(self) -> Index:
        """The number of moments of each run."""
        return self.end - self.begin

    def take(self, chosen: Bool | Index) -> Runs:
        """Some of the runs."""
        return Runs(self.series[chosen], self.begin[chosen], self.end[chosen])

    def mask(self, shape: tuple[int, int]) -> Bool:
        """The moments x series mask that is true in these runs, which do not overlap."""
        steps = np.zeros((shape[0] + 1, shape[1]), np.int32)
        steps[self.begin, self.series] += 1  # no two begin at the same entry, and none is named twice
        steps[self.end, self.series] -= 1
        return np.asarray(np.cumsum(steps[:-1], axis=0) > 0)

    def sums(self, X: Float | Bool) -> Float:
        """The sum of X over each run.

        >>> Runs(np.array([0]), np.array([1]), np.array([3])).sums(np.array([[5.0], [1.0], [2.0], [4.0]]))
        array([3.])
        """
        run, x = self._numbers(X)
        return np.asarray(np.bincount(run, x.astype(np.float64), len(self)))

    def _numbers(self, X: NDArray[Any]) -> tuple[Index, NDArray[Any]]:
        """The run and the number of X at each moment of the runs."""
        run = np.repeat(np.arange(len(self)), self.lengths)
        moment = np.arange(len(run)) - np.repeat(np.cumsum(self.lengths) - self.end, self.lengths)
        return run, X[moment, self.series[run]]

    def medians(self, X: Float) -> Float:
        """The median of X over each run, NaN left out; NaN for a run without a number.

        >>> X = np.array([[5.0], [1.0], [2.0], [np.nan]])
        >>> Runs(np.array([0, 0]), np.array([0, 3]), np.array([3, 4])).medians(X)
        array([ 2., nan])
        """
        run, x = self._numbers(X)
        known = ~np.isnan(x)
        count = np.bincount(run[known], minlength=len(self))
        last = np.cumsum(count)
        found = np.full(len(self), np.nan)
        some = count > 0
        found[some] = medians(x[known], (last - count)[some], last[some])
        return found


def distances_to_readings(read: Bool) -> tuple[Index, Index]:
    """The numbers of moments to the readings of the same series before and after, the smaller and the larger one.

    Both are 0 at a reading; huge where there is none.

    >>> nearer, farther = distances_to_readings(np.array([[True], [False], [False], [False], [True]]))
    >>> nearer.ravel().tolist(), farther.ravel().tolist()
    ([0, 1, 2, 1, 0], [0, 3, 2, 3, 0])
    """
    T = len(read)
    moment = np.arange(T)[:, None]
    before = moment - np.maximum.accumulate(np.where(read, moment, -(4 * T)), axis=0)
    after = np.minimum.accumulate(np.where(read, moment, 4 * T)[::-1], axis=0)[::-1] - moment
    return np.minimum(before, after), np.maximum(before, after)


def within(marked: Bool, moments: int) -> Bool:
    """Which moments are no more than so many from a marked one.

    >>> within(np.array([True, False, False, False, True]), 1).tolist()
    [True, True, False, True, True]
    """
    counts = np.concatenate([[0], np.cumsum(marked)])
    t = np.arange(len(marked))
    return np.asarray(counts[np.minimum(t + moments + 1, len(marked))] > counts[np.maximum(t - moments, 0)])


def distinct(rows: NDArray[Any]) -> tuple[Index, Index]:
    """The position of one of each kind of equal rows, and the kind of each row.

    >>> distinct(np.array([[1, 2], [3, 4], [1, 2]]))
    (array([0, 1]), array([0, 1, 0]))
    """
    rows = np.ascontiguousarray(rows)
    if not rows.size:
        return np.zeros(min(len(rows), 1), np.intp), np.zeros(len(rows), np.intp)
    whole = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, kind = np.unique(whole, return_index=True, return_inverse=True)
    return first, kind


def medians(x: Float, begin: Index, end: Index, about: Float | None = None) -> Float:
    """The median of each stretch x[begin:end], or of its distances from the number `about` has for it; without NaN.

    >>> medians(np.array([3.0, 1.0, 2.0, 9.0]), np.array([0, 1]), np.array([3, 4]))
    array([2., 2.])
    """
    return (_medians if native.reason_unavailable() else native.medians)(x, begin, end, about)


def _medians(x: Float, begin: Index, end: Index, about: Float | None) -> Float:
    """What the compiled core does."""
    stretches = [x[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)]
    if about is not None:
        stretches = [np.abs(own - centre) for own, centre in zip(stretches, about, strict=True)]
    return np.array([median(own) for own in stretches])
