"""Distances of samples, some of which are wrong as a whole: within a subspace, and from it.

Within it, the distance is that of Mahalanobis with a robust centre and covariance of the scores. They start from the
half of the samples with the smallest outlyingness of Stahel and Donoho, the largest distance from the centre in units
of the scale over many directions, and concentrate as in the minimum covariance determinant (Rousseeuw and Van Driessen,
Technometrics 1999): the half closest to the centre gives the next centre and covariance, until it stays the same. The
directions are those through pairs of samples, of which many join a good and a bad one; centre and scale in a direction
are those of the shortest half (Hubert, Rousseeuw and Vanden Branden, Technometrics 2005, use similar ones).

From it, the distance is the root mean square of the residuals that are not gross errors, in units of the noise. Those
of samples that have a say are what they would be without it (`leverage`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, ndtr

from ..entries.statistics import usual_numbers
from ..linalg.scale import CONSISTENT
from ..sweeps import Float
from .majority import far_apart
from .mixture import two_groups, two_levels

DIRECTIONS = 500
TOGETHER = 2**17  # numbers at once, which stay in a cache
SAMPLE = 2000  # samples by which centre and covariance are found
MEASURED = 500  # samples by which centre and scale in a direction are
MAX_STEPS = 50  # of concentration
HALF_WIDTH = 0.6745  # of the central half of a standard normal distribution
USUAL = 0.999  # quantile of the distances of good samples that is the cut-off
SUSPECT = 1.5  # distance within the subspace, relative to its cut-off, of samples that may have turned the subspace
ONE_SIDED = 0.3  # length of the mean of a group, relative to the root mean square of its distances, by more than chance
ALIKE = 0.7  # tenth quantile of the distances of a group, relative to their median, above which they are alike
MANY_FAR = 0.1  # share of samples far out at all distances, above which these are usual
FEWEST = 3  # samples far out that may be part of a group
GAP = 0.15  # half of the gap in front of a group, relative to the distance of the group
LIKELY = 25.0, 4.0  # (a, b): 2 log of the likelihood ratio of two groups of k scores is at most a + b k by chance
SEPARATE = 5.0  # standard deviations between two groups; halves of uniform numbers have 3.5
GROUPED = 500  # samples by which two groups are found
APART = 0.1  # number of samples between the cut-off and suspects, relative to that of suspects, if they are a group
LEAST = 0.63  # cube root of the square of the distance of usual samples, at least: half of the noise
COST = 1.1  # variance of a fit without a group, relative to that of a fit in which it has a say, at most
UNUSUAL, RARE = 2.0, 3.0  # deviations that few usual samples exceed, and hardly any
SPOILT = 0.05  # share of samples off the subspace, above which they spoil a median and a spread
ALONE = 4.0  # deviations from the subspace, above the centre, that make a sample wrong by itself
STRICT = 3.5  # the cut-off along a direction, in robust standard deviations


def _chi_squared(quantile: float, k: int) -> float:
    """The quantile of the χ² distribution with k degrees of freedom; `scipy.stats` takes a second to import."""
    return 2 * float(gammaincinv(k / 2, quantile))


def score_cutoff(k: int) -> float:
    """The distance within a subspace of dimension k that one good sample in a thousand exceeds, if scores are normal.

    >>> round(score_cutoff(2), 2)
    3.72
    """
    return math.sqrt(_chi_squared(USUAL, k)) if k else math.inf


def usual_cutoff(distance: Float, cutoff: float) -> float:
    """The cut-off of the distances of good samples within a subspace; further out, where many are beyond it.

    Scores that are mostly zero, or very skew, put many samples far out, at all distances: those are no outliers. The
    samples of a group of their own are `apart`, and at about the same distance.

    >>> usual, tail, group = np.linspace(0, 3, 80), np.linspace(4, 90, 20), np.linspace(20, 22, 20)
    >>> [round(usual_cutoff(np.concatenate([usual, others]), 3.7)) for others in (tail, group)]
    [90, 4]
    """
    far = distance[distance > cutoff]
    if far.size <= MANY_FAR * distance.size or (apart(distance, cutoff).any() and are_alike(far)):
        return cutoff
    return float(np.quantile(distance, USUAL))


def apart(distance: Float, cutoff: float) -> NDArray[np.bool_]:
    """Which samples are far out within the subspace as a group of their own: hardly any is between them and the others.

    Without a gap, the scores merely have long tails, and those far out are samples like the others.

    >>> usual, group, tail = np.linspace(0, 3.5, 80), np.linspace(20, 22, 20), 3.5 / np.sqrt(np.linspace(1, 0.05, 20))
    >>> [int(apart(np.concatenate([usual, others]), 3.7).sum()) for others in (group, tail)]
    [20, 0]
    """
    far = distance > SUSPECT * cutoff
    between = np.count_nonzero((distance > cutoff) & ~far)
    expected = 1 + 2 * (1 - USUAL) * distance.size
    return far if between <= APART * np.count_nonzero(far) + expected else np.zeros_like(far)


@dataclass(frozen=True, eq=False)
class ScoreDistribution:
    """The centre and the covariance of scores, most of which are good."""

    centre: Float
    covariance: Float

    @classmethod
    def fit(cls, scores: Float, noise: float) -> Self:
        """Robust estimates; `noise` is the standard error of a score, or less, and no score has a smaller variance."""
        n, k = scores.shape
        Z = scores[:: -(-n // SAMPLE)]
        floor = (noise**2 + 1e-16 * float(np.median(np.sum(Z * Z, axis=1)))) * np.eye(k)
        half = (len(Z) + k + 1) // 2
        if k == 0 or n <= k + 1:
            return cls(np.zeros(k), np.diag(np.full(k, np.inf)))
        chosen = np.sort(np.argsort(_outlyingness(Z), kind="stable")[:half])
        found = cls._of(Z[chosen], floor)
        for _ in range(MAX_STEPS):
            last, chosen = chosen, np.sort(np.argsort(found.distances(Z), kind="stable")[:half])
            found = cls._of(Z[chosen], floor)
            if np.array_equal(last, chosen):
                break
        for _ in range(2):  # then by all that are not far
            usual = float(np.median(found.distances(Z) ** 2)) / _chi_squared(0.5, k)
            near = found.distances(Z) ** 2 <= usual * _chi_squared(0.975, k)
            found = cls._of(Z[near], floor) if np.count_nonzero(near) >= half else found
        return found

    def group(self, scores: Float) -> NDArray[np.bool_]:
        """Which samples are a group of their own, `apart` or one of two: there is a gap in front of them.

        The two may overlap in their distances, so they are looked at along the direction that tells them apart, if two
        groups are far more likely than one.
        """
        distance, cutoff = self.distances(scores), score_cutoff(scores.shape[1])
        found = apart(distance, cutoff)
        if not found.any():  # the gap may be further out, as the others have long tails
            found = far_apart(distance) & (distance > cutoff)
        if found.any() and on_all_sides(self.whitened(scores[found])):
            found = np.zeros_like(found)
        n, k = scores.shape
        part = scores[:: -(-n // GROUPED)]
        if len(part) <= 2 * k or not np.isfinite(self.covariance).all() or not np.ptp(part, axis=0).any():
            return found
        two = two_groups(part)
        if two.likelihood_ratio <= LIKELY[0] + LIKELY[1] * k or two.separation <= SEPARATE:
            return found
        x = (scores - two.first) @ two.axis
        beyond, gap = x > 0.5, np.abs(x - 0.5) < GAP
        expected = 1 + n * float(ndtr(two.separation * (GAP - 0.5)))
        return found if np.count_nonzero(gap) > APART * np.count_nonzero(beyond) + expected else found | beyond

    @classmethod
    def _of(cls, Z: Float, floor: Float) -> Self:
        centre = Z.mean(axis=0)
        return cls(centre, (Z - centre).T @ (Z - centre) / max(len(Z) - 1, 1) + floor)

    def along(self, axes: Float) -> ScoreDistribution:
        """That of the scores along some axes (k x j)."""
        return ScoreDistribution(self.centre @ axes, axes.T @ self.covariance @ axes)

    def whitened(self, scores: Float) -> Float:
        """Scores about the centre, turned and scaled such that their covariance is I."""
        if not np.isfinite(self.covariance).all():  # there are too few samples to know it
            return np.zeros_like(scores)
        sizes, axes = np.linalg.eigh(self.covariance)
        return np.asarray((scores - self.centre) @ axes / np.sqrt(np.maximum(sizes, np.finfo(float).tiny)))

    def distances(self, scores: Float) -> Float:
        """The distances of Mahalanobis from the centre."""
        with np.errstate(over="ignore"):  # most scores may be the same
            return np.asarray(np.linalg.norm(self.whitened(scores), axis=1))


def on_all_sides(away: Float) -> bool:
    """Whether samples are at all distances on all sides of a centre, as those with a component that others lack."""
    sizes = np.linalg.norm(away, axis=1)
    one_sided = np.linalg.norm(away.mean(axis=0)) > ONE_SIDED * math.sqrt(float(np.mean(sizes**2)))
    return not one_sided and not are_alike(sizes)


def are_alike(distance: Float) -> bool:
    """Whether samples are at about the same distance, but for some that are farther out."""
    return bool(np.quantile(distance, 0.1) >= ALIKE * np.median(distance))


def _outlyingness(Z: Float) -> Float:
    """The largest distance of each sample from the shortest half, in units of its scale, over many directions."""
    rng = np.random.default_rng(0x646972)
    i, j = rng.integers(len(Z), size=(2, DIRECTIONS if Z.shape[1] > 1 else 0))
    directions = np.vstack([Z[i] - Z[j], np.eye(Z.shape[1])])
    lengths = np.linalg.norm(directions, axis=1)
    directions = directions[lengths > 0] / lengths[lengths > 0, None]
    found = np.zeros(len(Z))
    step = -(-len(Z) // MEASURED)
    some = -(-len(Z) // step)
    half = some // 2 + 1
    for part in np.array_split(directions, max(1, len(Z) * len(directions) // TOGETHER)):
        x = part @ Z.T
        ordered = np.sort(x[:, ::step], axis=1)
        widths = ordered[:, half - 1 :] - ordered[:, : some - half + 1]
        first = np.argmin(widths, axis=1)[:, None]
        width = np.take_along_axis(widths, first, axis=1)
        x -= np.take_along_axis(ordered, first, axis=1) + width / 2
        x /= np.where(width > 0, width / (2 * HALF_WIDTH), np.inf)
        np.maximum(found, np.max(np.abs(x, out=x), axis=0), out=found)
    return found


@dataclass(frozen=True)
class OrthogonalLimit:
    """The largest usual distance from a subspace, of samples with any number of residuals.

    A distance is in units of the noise, and rests on `freedom` residuals more than scores. By Wilson and Hilferty the
    cube root of its square is about normal, with mean 1 - 2/(9 freedom) and variance 2/(9 freedom). How far these are
    from usual is measured by the median and the spread of the usual samples, as residuals may be correlated. Where many
    samples are off the subspace, these are spoilt by them, and the centre and spread of the densest samples are taken
    if there is a gap between them and the others; or the limit is `in_front_of_group`.
    """

    deviations: float  # of the cube root
    rare: float = math.inf  # fewer deviations, which hardly any usual sample exceeds

    @classmethod
    def fit(cls, distance: Float, freedom: NDArray[np.int64]) -> Self:
        """From usual samples."""
        z = _deviations(distance, freedom)
        if not z.size:
            return cls(math.inf)
        variance = _variance(freedom[freedom > 0])
        median = float(np.median(z))
        loose = max(median, 0.0) + ALONE * max(CONSISTENT * float(np.median(np.abs(z - median))), 1.0)
        middle, spread = usual_numbers(z)
        middle = max(middle, (LEAST - 1) / math.sqrt(float(np.median(variance))))
        spread = max(spread, 1.0) if math.isfinite(spread) else 1.0
        strict = middle + ALONE * spread
        beyond = z[z > strict]
        if strict >= loose or beyond.size < max(FEWEST, SPOILT * z.size):
            return cls(loose, middle + RARE * spread)
        end = strict + (float(np.median(beyond)) - strict) / 3  # of the gap
        apart = np.count_nonzero(beyond < end) <= APART * beyond.size + 1
        return cls(min(end, loose) if apart else loose, middle + RARE * spread)

    def in_front_of_group(self, distance: Float, freedom: NDArray[np.int64]) -> OrthogonalLimit:
        """The limit, or where a second group begins, if there are two: it widens what seems usual, and may hide there.

        It is only looked for if more samples are unusual than by chance. Samples that merely have some more noise, and
        of which a fit tells more with them than without, are no such group.
        """
        z = _deviations(distance, freedom)
        if not z.size:
            return self
        middle = float(np.median(z))
        unusual = middle + UNUSUAL / RARE * (self.rare - middle)
        if np.mean(z > unusual) <= SPOILT or not (begin := two_levels(z)) < self.deviations:
            return self
        limit, known = replace(self, deviations=begin), freedom > 0
        return limit if _spoils(distance[known] ** 2, (distance > limit.cutoff(freedom))[known]) else self

    def cutoff(self, freedom: NDArray[np.int64]) -> Float:
        """The largest usual distance; infinite if it rests on nothing.

        >>> OrthogonalLimit(3.5).cutoff(np.array([0, 10, 1000])).round(2).tolist()
        [inf, 1.84, 1.08]
        """
        return _distance(self.deviations, freedom)

    def rarely_exceeded(self, freedom: NDArray[np.int64]) -> Float:
        """A distance that is unusual, but no proof; infinite if it rests on nothing."""
        return _distance(self.rare, freedom)


def _deviations(distance: Float, freedom: NDArray[np.int64]) -> Float:
    """The cube roots of squares of distances, in standard deviations by chance, sorted; of those that rest on any."""
    known = freedom > 0
    variance = _variance(freedom[known])
    return np.sort((np.cbrt(distance[known] ** 2) - 1 + variance) / np.sqrt(variance))


def _spoils(squares: Float, group: NDArray[np.bool_]) -> bool:
    """Whether a fit is hardly worse without a group of samples, by the squares of all distances.

    Its variance is that of the noise over the number of samples. If a share p has r times the squares, it is
    1/((1 - p) (1 - p + p r)) times as large without them.

    >>> r = np.array([1.3, 1.5, 1.7, 2.0]) ** 2
    >>> [[_spoils(np.r_[np.ones(n), x], np.arange(n + 1) == n) for x in r] for n in (9, 4, 2)]
    [[True, True, True, True], [True, True, True, True], [False, True, True, True]]
    """
    p = float(np.mean(group))
    if not 0 < p < 1:
        return False
    return COST * (1 - p) * float(1 - p + p * np.mean(squares[group]) / np.mean(squares[~group])) >= 1


def _distance(deviations: float, freedom: NDArray[np.int64]) -> Float:
    variance = _variance(freedom)
    with np.errstate(invalid="ignore"):
        found = np.maximum(1 - variance + deviations * np.sqrt(variance), 0.0) ** 1.5
    return np.where(freedom > 0, found, np.inf)


def _variance(freedom: NDArray[np.int64]) -> Float:
    return np.asarray(2 / (9 * np.maximum(freedom, 1)))
