"""Bands about predictions, calibrated on entries that were kept aside (split conformal prediction).

The errors of entries kept aside are divided by the usual size of an error in their group (a series, a column), shrunk
to that of all; within a class of entries (by distance to the next reading, by the number of entries of the row) the
quantile of these ratios is the half width of the band in units of that size. If the errors of other entries of the
class are drawn as these were, a band of level p holds the truth with probability p or a little more, whatever their
distribution and however wrong the model is: with n errors kept aside, the ⌈p (n + 1)⌉-th smallest is taken.

Errors of one piece, such as a gap, go together. They count as N ≤ n, the number of independent errors of which the
share beyond the quantile would vary as it does from piece to piece. Of the p / n that ⌈p (n + 1)⌉ adds to the share p,
1 / 2n is the half of an error that stands at the quantile itself, and the rest, (p - 1/2) / n, is for the quantile
being that of the errors seen, not of others; with pieces the latter is (p - 1/2) / N. And the error of a piece is
divided by the usual size of the other pieces, as that of a missing entry is: its own size would make it usual.

Where entries kept aside are not as those to be predicted, errors have weights: for how many of these each one stands.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..sweeps import Float

DAMPING = 20.0  # errors; the usual size of fewer in a group is mostly that of all
LARGEST = 10.0  # usual errors, as which a larger one counts in a usual size
LEAST = 100  # errors of a class; with fewer it has the quantiles of all classes together

Index = NDArray[np.intp]


class Sizes(NamedTuple):
    """Usual sizes of errors: of each group, and for each error that of its group without the piece of the error."""

    of_groups: Float
    of_errors: Float


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
    pieces: dict[int, Index]  # to which they belong, by class
    weights: dict[int, Float]  # of them, by class

    @classmethod
    def fit(
        cls,
        errors: Float,
        groups: Index,
        classes: Index,
        n_groups: int,
        pieces: Index | None = None,
        sizes: Sizes | None = None,
        weights: Float | None = None,
    ) -> Self:
        """From the errors of entries kept aside, the group of each (0 to n_groups - 1) and its class (0 or more).

        Errors of the same piece go together; each is by itself if pieces are not given. Their usual sizes are found by
        `usual_sizes` if they are not given. Weights say for how many of the entries to be predicted each error stands,
        relative to the others of its class; all weigh the same without.
        """
        if sizes is None:
            of_groups = usual_sizes(errors, groups, n_groups)
            sizes = Sizes(of_groups, of_groups[groups])
        ratios = np.abs(errors) / sizes.of_errors
        pieces = np.arange(len(errors)) if pieces is None else pieces
        weights = np.ones(len(errors)) if weights is None else weights
        order = np.argsort(ratios, kind="stable")
        own = {int(k): order[classes[order] == k] for k in np.unique(classes) if np.sum(classes == k) >= LEAST}
        own[-1] = order
        of_class = ({k: x[at] for k, at in own.items()} for x in (ratios, pieces, weights))
        return cls(sizes.of_groups, *of_class)

    def half_width(self, level: float, groups: Index, classes: Index) -> Float:
        """Half widths of bands of this level for entries of these groups and classes."""
        widths = np.zeros(len(groups))
        for k in np.unique(classes):
            own = int(k) if k in self.ratios else -1
            inside = classes == k
            widths[inside] = self.sizes[groups[inside]] * self._quantile(own, level)
        return widths

    def _quantile(self, k: int, level: float) -> float:
        return _quantile(self.ratios[k], level, self.pieces[k], self.weights[k])

    def share_smaller(self, errors: Float, groups: Index, classes: Index) -> Float:
        """The share of the errors kept aside, of the same class, that are smaller in units of their group."""
        shares = np.zeros(len(errors))
        for k in np.unique(classes):
            ratios = self.ratios.get(int(k), self.ratios[-1])
            inside = classes == k
            own = np.abs(errors[inside]) / self.sizes[groups[inside]]
            shares[inside] = np.searchsorted(ratios, own) / (len(ratios) + 1)
        return shares


def usual_sizes(errors: Float, groups: Index, n_groups: int) -> Float:
    """The mean magnitude of the errors of each group, drawn to that of all; 1 if it is 0.

    An entry kept aside may be wrong itself: errors count up to ten times the median of all.

    >>> usual_sizes(np.repeat([1.0, -3.0], 20), np.repeat([0, 1], 20), 2).tolist()
    [1.5, 2.5]
    """
    magnitudes = np.abs(errors)
    usual = float(np.median(magnitudes)) if magnitudes.size else 0.0
    return _drawn_means(np.minimum(magnitudes, LARGEST * usual), groups, n_groups, DAMPING)


def sizes_by_other_pieces(errors: Float, groups: Index, n_groups: int, pieces: Index, damping: float) -> Sizes:
    """As `usual_sizes`, and of each error by the other pieces; drawn to that of all by so many errors.

    Errors count up to ten times the median of their group if it is larger than that of all, for groups whose errors are
    many times those of others.

    >>> of_two = np.repeat([1.0, 50.0], [300, 100]), np.repeat([0, 1], [300, 100]), 2
    >>> usual_sizes(*of_two).round(2).tolist(), sizes_by_other_pieces(*of_two, np.arange(400), 0.0).of_groups.tolist()
    ([1.14, 8.88], [1.0, 50.0])
    >>> sizes_by_other_pieces(np.array([1.0, 3.0, 5.0]), np.zeros(3, int), 1, np.array([0, 0, 1]), 0.0).of_errors
    array([5., 5., 2.])
    """
    magnitudes = np.abs(errors)
    counts = np.bincount(groups, minlength=n_groups)
    usual = np.full(n_groups, float(np.median(magnitudes)) if magnitudes.size else 0.0)
    some = counts > 0
    middle = (np.cumsum(counts) - counts + counts // 2)[some]
    usual[some] = np.maximum(usual[some], magnitudes[np.lexsort((magnitudes, groups))[middle]])
    bounded = np.minimum(magnitudes, LARGEST * usual[groups])
    _, own = np.unique(pieces * n_groups + groups, return_inverse=True)  # errors of a group in a piece
    others = np.bincount(groups, bounded, n_groups)[groups] - np.bincount(own, bounded)[own]
    n_others = counts[groups] - np.bincount(own)[own]
    drawn = damping * (float(np.mean(bounded)) if bounded.size else 0.0)
    of_errors = (np.maximum(others, 0.0) + drawn) / np.maximum(n_others + damping, 1.0)
    return Sizes(_drawn_means(bounded, groups, n_groups, damping), np.where(of_errors > 0, of_errors, 1.0))


def _drawn_means(magnitudes: Float, groups: Index, n_groups: int, damping: float) -> Float:
    """The mean of each group, drawn to that of all by so many magnitudes; 1 if it is 0."""
    drawn = damping * (float(np.mean(magnitudes)) if magnitudes.size else 0.0)
    counts = np.bincount(groups, minlength=n_groups)
    means = (np.bincount(groups, magnitudes, n_groups) + drawn) / np.maximum(counts + damping, 1.0)
    return np.where(means > 0, means, 1.0)


def _quantile(ratios: Float, level: float, pieces: Index, weights: Float) -> float:
    """The smallest one up to which the share of the weights is level + (level - 1/2) / N + 1 / 2n, or the largest.

    Infinite if n is too small. Ratios are sorted.

    >>> _quantile(np.arange(1.0, 10.0), 0.9, np.arange(9), np.ones(9))
    9.0
    >>> _quantile(np.arange(1.0, 4.0), 0.9, np.arange(3), np.ones(3))
    inf
    >>> _quantile(np.arange(1.0, 101.0), 0.9, np.arange(100) // 10, np.ones(100))  # the largest are of one piece
    95.0
    >>> _quantile(np.arange(1.0, 101.0), 0.9, np.arange(100), np.repeat([4.0, 1.0], 50))  # n and N count as 73.5
    79.0
    """
    n = len(ratios)
    if math.ceil(level * (n + 1) - 1e-9) > n:
        return math.inf
    share = np.cumsum(weights) / weights.sum()
    N = _independent(share > level + 1e-9, pieces, weights)
    wanted = level + (level - 0.5) / N + 0.5 * float(weights @ weights) / float(weights.sum()) ** 2
    return float(ratios[min(n - 1, int(np.searchsorted(share, wanted - 1e-9)))])


def _independent(beyond: NDArray[np.bool_], pieces: Index, weights: Float) -> float:
    """N, at which p (1 - p) / N is the variance of the share p of errors beyond, by its sums over pieces.

    It is n if every error is a piece and weighs the same, and 1 if there is one piece, of which nothing is known.

    >>> last, one = np.arange(100) >= 90, np.ones(100)
    >>> [round(_independent(last, pieces, one), 6) for pieces in (np.arange(100), np.arange(100) // 10, np.zeros(100))]
    [100.0, 10.0, 1.0]
    """
    total, most = float(weights.sum()), float(weights.sum()) ** 2 / float(weights @ weights)
    share = float(weights @ beyond) / total
    found, piece = np.unique(pieces, return_inverse=True)
    sums = np.bincount(piece, weights * (beyond - share))
    if len(found) == 1:
        return 1.0
    varies = float(sums @ sums)
    return most if varies * most <= share * (1.0 - share) * total**2 else share * (1.0 - share) * total**2 / varies
