"""Two groups of samples, or of numbers: the mixture of two normal distributions that is most likely.

Those of samples have the same covariance, those of numbers standard deviations of their own.

After scores are turned so that their covariance is I, a mixture is given by the share p of the second group and the
difference D of the centres: within the groups the covariance is I - p (1 - p) D Dᵀ, so that each step of the
expectation-maximisation algorithm takes no more than sums, and many starts are iterated together.
"""

import math
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..sweeps import Float

STARTS = 64  # samples with those closest to them, which are the first second group
MEMBERS = 0.05  # share of the samples in it
STEPS = 25
SMALLEST = 1e-12  # variance along an axis, relative to the largest
FULL = 1 - 1e-6  # largest share of the variance between the groups
LEVELLED, LEVEL_STEPS, GRID = 500, 100, 1001  # numbers by which two groups are found; steps; points between them
SHARES = 0.05, 0.1, 0.2, 0.3, 0.4  # of the numbers in the first higher groups
NARROWEST = 0.5  # spread of a group of numbers relative to that of the other: some are close to each other by chance
# 2 log of the likelihood ratio to one group, and separation of two groups of numbers, that are not by chance: halves of
# uniform numbers hardly have them, nor has a long tail.
LIKELY, DISTINCT = 20.0, 3.5
ODDS = 4.0  # of the higher group, from which on a number is taken for one of it


class TwoGroups(NamedTuple):
    """The most likely mixture."""

    first: Float  # k: the centre of the larger group
    axis: Float  # k: the direction that tells them apart, along which the other centre is at 1
    separation: float  # of the centres, in standard deviations within the groups
    likelihood_ratio: float  # 2 log of the ratio to one normal distribution


def two_groups(scores: Float) -> TwoGroups:
    """The most likely mixture found from many starts; the second group is the smaller one.

    >>> rng = np.random.default_rng(1)
    >>> Z = rng.standard_normal((200, 4))
    >>> Z[:30] += 4.0
    >>> found = two_groups(Z)
    >>> int(np.sum(((Z - found.first) @ found.axis > 0.5) == (np.arange(200) < 30)))
    200
    """
    mean = scores.mean(axis=0)
    sizes, axes = np.linalg.eigh((scores - mean).T @ (scores - mean) / len(scores))
    root = axes * np.sqrt(np.maximum(sizes, SMALLEST * sizes[-1]))
    Y = np.linalg.solve(root, (scores - mean).T).T
    member = _starts(Y)
    for _ in range(STEPS):
        p, away, between = _parameters(Y, member)
        member = _posterior(Y, p, away, between)
    p, away, between = _parameters(Y, member)
    best = int(np.argmax(likelihood := _likelihood_ratio(Y, p, away, between)))
    D, share = away[best], float(p[best])
    if share > 0.5:
        D, share = -D, 1 - share
    q = float(D @ D)
    return TwoGroups(
        mean - share * root @ D, np.linalg.solve(root.T, D) / q, math.sqrt(q / (1 - between[best])), likelihood[best]
    )


def two_levels(x: Float) -> float:
    """The number from which on sorted numbers are most likely of a higher group; infinite if they are not two groups.

    They are if that is far more likely and the two hardly overlap, in units of the spread of both. A long tail is no
    group: it is wide.

    >>> rng = np.random.default_rng(1)
    >>> one, other = rng.standard_normal((2, 200))
    >>> round(two_levels(np.sort(np.concatenate([one, 5 + other[:40]]))), 1)
    2.8
    >>> [two_levels(np.sort(y)) for y in (one, np.exp(one), rng.random(200))]
    [inf, inf, inf]
    """
    x = x[:: -(-x.size // LEVELLED)]
    if not x[-1] > x[0]:
        return math.inf
    higher: Float = (np.arange(x.size) >= (1 - np.array(SHARES)[:, None]) * x.size).astype(np.float64)
    for _ in range(LEVEL_STEPS):
        levels = _Levels.of(x, higher)
        one, other = levels.log_density(x)
        higher = np.exp(other - np.logaddexp(one, other))
    likely = np.where(levels.enough, np.logaddexp(one, other).sum(axis=1), -np.inf)
    best = int(np.argmax(likely))
    ratio = 2 * (float(likely[best]) + x.size * (math.log(x.std()) + 0.5))
    if not ratio > LIKELY or not levels.separation[best] > DISTINCT:
        return math.inf
    between = np.linspace(float(levels.middle[0, best]), float(levels.middle[1, best]), GRID)
    one, other = levels.log_density(between)[:, best]
    return float(np.min(between[other > one + math.log(ODDS)], initial=np.inf))


class _Levels(NamedTuple):
    """Some mixtures of two normal distributions of numbers; the first axis is that of the groups."""

    share: Float
    middle: Float
    spread: Float

    @classmethod
    def of(cls, x: Float, higher: Float) -> Self:
        """The most likely ones, given the probabilities that numbers are of the higher group (mixtures x numbers)."""
        weights = np.maximum(np.stack([1 - higher, higher]), SMALLEST)
        total = weights.sum(axis=2)
        middle = weights @ x / total
        square = (weights * (x - middle[:, :, None]) ** 2).sum(axis=2) / total
        spread = np.maximum(np.sqrt(square), SMALLEST * x.std())
        return cls(total / total.sum(axis=0), middle, np.maximum(spread, NARROWEST * spread.max(axis=0)))

    def log_density(self, x: Float) -> Float:
        """Of numbers, in either group (groups x mixtures x numbers), without a constant."""
        away = (x - self.middle[:, :, None]) / self.spread[:, :, None]
        return np.asarray(np.log(self.share / self.spread)[:, :, None] - away**2 / 2)

    @property
    def enough(self) -> NDArray[np.bool_]:
        """Whether the higher group is the smaller one, and more than a few numbers."""
        return np.asarray((self.share[1] >= MEMBERS) & (self.share[1] <= 0.5))

    @property
    def separation(self) -> Float:
        """Of the centres, in standard deviations within the groups."""
        return np.asarray((self.middle[1] - self.middle[0]) / np.sqrt((self.spread**2).mean(axis=0)))


def _starts(Y: Float) -> Float:
    """Second groups: samples at all distances, with those closest to each; and the ends of the principal axes.

    Those closest are a start if the group is small, axes if it is large: then it makes one of them.
    """
    n = len(Y)
    squares = np.sum(Y * Y, axis=1)
    order = np.argsort(squares, kind="stable")[:: -max(1, n // STARTS)]
    distance = squares - 2 * Y[order] @ Y.T
    closest = np.argpartition(distance, size := max(3, int(MEMBERS * n)), axis=1)[:, :size]
    near = np.zeros((len(order), n), bool)
    np.put_along_axis(near, closest, True, axis=1)
    return np.where(np.vstack([near, _ends(Y)]), 0.99, 0.01)


def _ends(X: Float) -> NDArray[np.bool_]:
    """The samples at one end of each column of X, of mean 0 and variance 1, cut where two groups are most likely."""
    n = len(X)
    size = np.arange(1, n)[:, None]
    share, order = size / n, np.argsort(X, axis=0)
    sums = np.cumsum(np.take_along_axis(X, order, axis=0), axis=0)[:-1]
    between = np.minimum(sums**2 / (size * (n - size)), FULL)
    likely = 2 * (share * np.log(share) + (1 - share) * np.log1p(-share)) - np.log1p(-between)
    ranks = np.argsort(order, axis=0).T
    return np.asarray(ranks > np.argmax(likely, axis=0)[:, None], dtype=np.bool_)


def _parameters(Y: Float, member: Float) -> tuple[Float, Float, Float]:
    """Of each mixture: the share p, the difference D of the centres, and the share p (1 - p) |D|² of the variance."""
    p = np.clip(member.mean(axis=1), 1e-6, 1 - 1e-6)
    away = member @ Y / (len(Y) * p * (1 - p))[:, None]  # as the mean of all is 0
    return p, away, np.minimum(p * (1 - p) * np.sum(away * away, axis=1), FULL)


def _log_odds(Y: Float, p: Float, away: Float, between: Float) -> Float:
    """Of each mixture and sample, that it is of the second group."""
    odds = np.log(p / (1 - p))[:, None]
    middle = (0.5 - p) * np.sum(away * away, axis=1)
    return np.asarray((away @ Y.T - middle[:, None]) / (1 - between)[:, None] + odds)


def _posterior(Y: Float, p: Float, away: Float, between: Float) -> Float:
    return 0.5 + 0.5 * np.tanh(0.5 * _log_odds(Y, p, away, between))


def _likelihood_ratio(Y: Float, p: Float, away: Float, between: Float) -> Float:
    """2 log of the ratio of the likelihood to that of one normal distribution.

    With y = D·x and q = |D|², the first group has |x + p D|² + p (1 - p) (y + p q)² / (1 - p (1 - p) q) in the
    exponent.
    """
    along, q = away @ Y.T, np.sum(away * away, axis=1)[:, None]
    p_, rest = p[:, None], (1 - between)[:, None]
    first = 2 * p_ * along + p_**2 * q + p_ * (1 - p_) * (along + p_ * q) ** 2 / rest
    log_density = -first / 2 + np.log1p(-p_) + np.logaddexp(0.0, _log_odds(Y, p, away, between))
    return np.asarray(2 * log_density.sum(axis=1) - len(Y) * np.log(rest[:, 0]))
