"""Bands about predictions, calibrated on entries that were kept aside (split conformal prediction).

The errors of entries kept aside are divided by the usual size of an error in their group (a series, a column), shrunk
to that of all; within a class of entries (by distance to the next reading, by the number of entries of the row) the
quantile of these ratios is the half width of the band in units of that size. If the errors of other entries of the
class are drawn as these were, a band of level p holds the truth with probability p or a little more, whatever their
distribution and however wrong the model is: with n errors kept aside, the ⌈p (n + 1)⌉-th smallest is taken. Errors that
go together, as those of one gap do, count as two, as they are not all the same: with k such pieces, 2 k < n, the
⌈p n (2 k + 1) / 2 k⌉-th smallest is.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..sweeps import Float

DAMPING = 20.0  # errors; the usual size of fewer in a group is mostly that of all
TOGETHER = 2  # errors, as which those of a piece count
LEAST = 100  # errors of a class; with fewer it has the quantiles of all classes together

Index = NDArray[np.intp]


class Interval(NamedTuple):
    """Values and the limits of their bands; both limits are the value itself at readings that are kept."""

    value: Any
    lower: Any
    upper: Any


@dataclass(frozen=True)
class Calibration:
    """Sizes of errors by group and class.

    >>> rng = np.random.default_rng(1)
    >>> group = rng.integers(2, size=4000)
    >>> error = rng.standard_t(3, 4000) * np.array([1.0, 10.0])[group]
    >>> found = Calibration.fit(error[:2000], group[:2000], np.zeros(2000, int), 2)
    >>> inside = np.abs(error[2000:]) <= found.half_width(0.9, group[2000:], np.zeros(2000, int))
    >>> bool(abs(inside.mean() - 0.9) < 0.02)
    True
    """

    sizes: Float  # of each group
    ratios: dict[int, Float]  # sorted, by class; -1: of all classes
    pieces: dict[int, int]  # of errors that go together, by class

    @classmethod
    def fit(
        cls,
        errors: Float,
        groups: Index,
        classes: Index,
        n_groups: int,
        pieces: Index | None = None,
        sizes: Float | None = None,
    ) -> Self:
        """From the errors of entries kept aside, the group of each (0 to n_groups - 1) and its class (0 or more).

        Errors of the same piece go together; each is by itself if pieces are not given. The usual sizes of the errors
        of groups are found by `usual_sizes` if they are not given.
        """
        sizes = usual_sizes(errors, groups, n_groups) if sizes is None else sizes
        ratios = np.abs(errors) / sizes[groups]
        pieces = np.arange(len(errors)) if pieces is None else pieces
        inside = {int(k): classes == k for k in np.unique(classes) if np.sum(classes == k) >= LEAST}
        inside[-1] = np.ones(len(errors), bool)
        return cls(
            sizes,
            {k: np.sort(ratios[own]) for k, own in inside.items()},
            {k: len(np.unique(pieces[own])) for k, own in inside.items()},
        )

    def half_width(self, level: float, groups: Index, classes: Index) -> Float:
        """Half widths of bands of this level for entries of these groups and classes."""
        widths = np.zeros(len(groups))
        for k in np.unique(classes):
            own = int(k) if k in self.ratios else -1
            inside = classes == k
            widths[inside] = self.sizes[groups[inside]] * _quantile(self.ratios[own], level, self.pieces[own])
        return widths

    def share_smaller(self, errors: Float, groups: Index, classes: Index) -> Float:
        """The share of the errors kept aside, of the same class, that are smaller in units of their group."""
        shares = np.zeros(len(errors))
        for k in np.unique(classes):
            ratios = self.ratios.get(int(k), self.ratios[-1])
            inside = classes == k
            own = np.abs(errors[inside]) / self.sizes[groups[inside]]
            shares[inside] = np.searchsorted(ratios, own) / (len(ratios) + 1)
        return shares


def usual_sizes(errors: Float, groups: Index, n_groups: int, damping: float = DAMPING, by_group: bool = False) -> Float:
    """The mean magnitude of the errors of each group, drawn to that of all by so many errors; 1 if it is 0.

    An entry kept aside may be wrong itself: errors count up to ten times the median of all; with `by_group`, up to ten
    times that of their group if it is larger, for groups whose errors are many times those of others.

    >>> usual_sizes(np.repeat([1.0, -3.0], 20), np.repeat([0, 1], 20), 2).tolist()
    [1.5, 2.5]
    >>> of_two = np.repeat([1.0, 50.0], [300, 100]), np.repeat([0, 1], [300, 100]), 2, 0.0
    >>> usual_sizes(*of_two).tolist(), usual_sizes(*of_two, by_group=True).tolist()
    ([1.0, 10.0], [1.0, 50.0])
    """
    magnitudes = np.abs(errors)
    counts = np.bincount(groups, minlength=n_groups)
    usual = np.full(n_groups, float(np.median(magnitudes)) if magnitudes.size else 0.0)
    if by_group:
        some = counts > 0
        middle = (np.cumsum(counts) - counts + counts // 2)[some]
        usual[some] = np.maximum(usual[some], magnitudes[np.lexsort((magnitudes, groups))[middle]])
    bounded = np.minimum(magnitudes, 10.0 * usual[groups])
    mean = float(np.mean(bounded)) if magnitudes.size else 0.0
    sizes = (np.bincount(groups, bounded, n_groups) + damping * mean) / np.maximum(counts + damping, 1.0)
    return np.where(sizes > 0, sizes, 1.0)


def _quantile(ratios: Float, level: float, pieces: int) -> float:
    """The ⌈level n (k + 1) / k⌉-th smallest, k = min(n, 2 pieces), or the largest; infinite if n is too small.

    >>> _quantile(np.arange(1.0, 10.0), 0.9, 9), _quantile(np.arange(1.0, 4.0), 0.9, 3)
    (9.0, inf)
    >>> _quantile(np.arange(1.0, 101.0), 0.9, 10)
    95.0
    """
    n = len(ratios)
    if math.ceil(level * (n + 1) - 1e-9) > n:
        return math.inf
    return float(ratios[min(n, math.ceil(level * n * (1 + 1 / min(n, TOGETHER * pieces)) - 1e-9)) - 1])
