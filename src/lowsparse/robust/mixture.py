"""Two groups of samples: the mixture of two normal distributions with the same covariance that is most likely.

After scores are turned so that their covariance is I, a mixture is given by the share p of the second group and the
difference D of the centres: within the groups the covariance is I - p (1 - p) D Dᵀ, so that each step of the
expectation-maximisation algorithm takes no more than sums, and many starts are iterated together.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..sweeps import Float

STARTS = 64  # samples with those closest to them, which are the first second group
MEMBERS = 0.05  # share of the samples in it
STEPS = 25
SMALLEST = 1e-12  # variance along an axis, relative to the largest
FULL = 1 - 1e-6  # largest share of the variance between the groups


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
