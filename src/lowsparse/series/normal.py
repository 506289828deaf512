"""What the other series say at a moment: the conditional mean of each reading, of a multivariate t distribution.

The readings x of a moment have mean μ and covariance S; entries are missing. With K = S⁻¹ and o, m the read and the
missing entries,

    E[x_m | x_o] = μ_m - K_mm⁻¹ K_mo (x_o - μ_o),   Cov[x_m | x_o] = K_mm⁻¹,

and a read entry is expected, by the others of its moment, to be x_j - (K (x - μ))_j / K_jj, with the missing ones at
their conditional means. μ and S are found by expectation and maximisation; a moment weighs (ν + |o|) / (ν + δ²), with
δ² its squared Mahalanobis distance, so that unusual moments have less say. Then every window of time has its own μ and
S, drawn to those of all: what series have in common in summer is not what they have in common in winter.

With lags, the readings of the moments before and after are entries of x too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..sweeps import Float, native
from .runs import Bool, Index

FREEDOM = 10.0  # ν
ITERATIONS, FURTHER = 10, 2  # from the beginning, and from another fit
SAMPLE, LEAST_SAMPLE = 20, 2000  # moments for each entry of x, and in all, from which μ and S are found first
CHANGE = 0.01  # of S, relative, at which the iterations end
LEAST = 1e-6  # variance of a series, at least
CLIPPED = 0.01  # smallest eigenvalue of the first S, relative to the largest
WINDOW = 25  # moments from window to window, for each entry of x
DRAWN_S, DRAWN_MEAN = 8, 1  # moments, for each entry of x, that draw a window's S and μ to those of all
FEW = 0.2  # readings of a moment, relative to the usual number, that do not determine it
BATCH = 1 << 20  # numbers in matrices that are inverted together


@dataclass(frozen=True)
class Normal:
    """Means and covariances of moments, of all and by windows.

    >>> rng = np.random.default_rng(1)
    >>> Z = rng.standard_normal((500, 2)) @ rng.standard_normal((2, 6))
    >>> gappy = np.where(rng.random(Z.shape) < 0.1, np.nan, Z)
    >>> expected = Normal.fit(gappy, 1e-4).expect(gappy)
    >>> bool(np.abs(expected - Z).max() < 0.3)
    True
    """

    mean: Float
    covariance: Float
    step: int  # moments from window to window
    means: Float  # windows x entries
    covariances: Float  # windows x entries x entries
    ridge: float  # of a covariance, relative to its diagonal
    lags: tuple[int, ...]
    usual: float  # readings of a moment

    @classmethod
    def fit(
        cls,
        Z: Float,
        ridge: float,
        lags: tuple[int, ...] = (0,),
        local: bool = True,
        start: Normal | None = None,
        further: int = FURTHER,
    ) -> Normal:
        """Fit moments x series Z, NaN where missing.

        Parameters start from those of another fit, if given, and so many steps follow. Without `local` there is one
        window.
        """
        Y = _with_lags(Z, lags)
        counts = np.sum(~np.isnan(Y), axis=1)
        read = np.flatnonzero(counts > 0)
        mean, S = (np.zeros(Y.shape[1]), _first_covariance(Y)) if start is None else (start.mean, start.covariance)
        some = read[:: max(1, len(read) // max(LEAST_SAMPLE, SAMPLE * Y.shape[1]))]
        mean, S, uncertain = _maximise(Y[some], mean, S, ridge, ITERATIONS if start is None else further)
        X, pull, _ = _fill(Y[read] - mean, _inverse(S, ridge))
        weights = _weights(X, pull, counts[read])
        X += mean
        mean = weights @ X / weights.sum()
        S = _covariance(X - mean, weights) + uncertain
        step = WINDOW * len(mean) if local else len(Z)
        means, covariances = _windows(X, weights, read, mean, S, uncertain, step, len(Z))
        return cls(mean, S, step, means, covariances, ridge, lags, float(np.median(counts[read])))

    def lagged(self, Z: Float, lags: tuple[int, ...]) -> Normal:
        """A start of the fit with lags: the covariances of what is filled without."""
        read = (~np.isnan(Z)).any(axis=1)
        X = np.full(Z.shape, np.nan)
        X[read] = _fill(Z[read] - self.mean, _inverse(self.covariance, self.ridge))[0]
        return replace(self, mean=np.tile(self.mean, len(lags)), covariance=_first_covariance(_with_lags(X, lags)))

    def expect(self, Z: Float, first: int = 0) -> Float:
        """What the others say of each entry, by the parameters of the nearest window; NaN at moments with few readings.

        Z begins `first` moments after the data that were fitted.
        """
        return self._expect(_with_lags(Z, self.lags), first + np.arange(len(Z)), Z.shape[1])

    def expect_at(self, at: Index, Z: Float, first: int = 0) -> Float:
        """As `expect`, at some moments; NaN at the others."""
        expected = np.full(Z.shape, np.nan)
        expected[at] = self._expect(_with_lags(Z, self.lags)[at], first + at, Z.shape[1])
        return expected

    def _expect(self, Y: Float, moments: Index, n: int) -> Float:
        expected = np.empty((len(Y), n))
        nearest = np.clip(np.round(moments / self.step), 0, len(self.means) - 1)
        for k, (mean, S) in enumerate(zip(self.means, self.covariances, strict=True)):
            inside = slice(*np.searchsorted(nearest, [k, k + 1]))
            K = _inverse(S, self.ridge)
            X = _fill(Y[inside] - mean, K)[0]
            expected[inside] = X[:, :n] - (X @ K[:, :n]) / np.diag(K)[:n] + mean[:n]
        expected[np.sum(~np.isnan(Y), axis=1) < FEW * self.usual] = np.nan
        return expected


def _maximise(Y: Float, mean: Float, S: Float, ridge: float, rounds: int) -> tuple[Float, Float, Float]:
    """μ and S after so many steps of expectation and maximisation, and the part of S by what is missing."""
    counts = np.sum(~np.isnan(Y), axis=1)
    for _ in range(rounds):
        before = S
        X, pull, missing = _fill(Y - mean, _inverse(S, ridge), covariance=True)
        weights = _weights(X, pull, counts)
        uncertain = missing / weights.sum()
        S = _covariance(X, weights) + uncertain
        mean = mean + weights @ X / weights.sum()
        if np.linalg.norm(S - before) <= CHANGE * np.linalg.norm(before):
            break
    return mean, S, uncertain


def _weights(X: Float, pull: Float, counts: Index) -> Float:
    """Of moments X, apart from the mean, of which so many entries were read.

    With x_o filled with 0 in place of what is missing, pull = K x_o, and K_mm x_m = -pull_m, so δ² = xᵀK x = xᵀpull.
    """
    return np.asarray((FREEDOM + counts) / (FREEDOM + np.einsum("ij,ij->i", X, pull)))


def _covariance(X: Float, weights: Float) -> Float:
    return np.asarray(_gram(X, weights) / weights.sum())


def _gram(X: Float, weights: Float) -> Float:
    """Xᵀ diag(weights) X, as a product with itself: half of the work."""
    rooted = X * np.sqrt(weights)[:, None]
    return np.asarray(rooted.T @ rooted)


def _with_lags(Z: Float, lags: tuple[int, ...]) -> Float:
    """Z beside itself moved by lags."""
    moved = np.full((len(Z), len(lags), Z.shape[1]), np.nan)
    for k, lag in enumerate(lags):
        moved[max(lag, 0) : len(Z) + min(lag, 0), k] = Z[max(-lag, 0) : len(Z) - max(lag, 0)]
    return moved.reshape(len(Z), -1)


def _first_covariance(Y: Float) -> Float:
    """Products of pairs of readings, averaged, with small and negative eigenvalues raised."""
    known = ~np.isnan(Y)
    X = np.where(known, Y, 0.0)
    pairs = known.astype(np.float64)
    values, U = np.linalg.eigh(X.T @ X / np.maximum(pairs.T @ pairs, 1.0))
    return np.asarray((U * np.maximum(values, max(CLIPPED * values[-1], LEAST))) @ U.T)


def _inverse(S: Float, ridge: float) -> Float:
    return np.asarray(np.linalg.inv(S + np.diag(ridge * np.diag(S) + LEAST)))


def _windows(
    X: Float, weights: Float, at: Index, mean: Float, S: Float, uncertain: Float, step: int, moments: int
) -> tuple[Float, Float]:
    """Means and covariances of windows, `step` moments apart and twice as wide on either side.

    X are the filled moments, standing at times `at`. What is uncertain of missing entries counts as in the whole.
    """
    if moments <= step:
        return mean[None], S[None]
    n, count = len(mean), -(-moments // step)
    # Sums of 1, x and x xᵀ over the moments between two centres, with weights as they are and rising from 0 to 1/2;
    # beyond the first and the last of them there are two without a moment.
    level, rise = np.zeros((2, count + 4, n + 1, n + 1))
    for k in range(count):
        inside = slice(*np.searchsorted(at, [k * step, (k + 1) * step]))
        rows = np.column_stack([np.ones(inside.stop - inside.start), X[inside] - mean])
        level[k + 2] = _gram(rows, weights[inside])
        rise[k + 2] = _gram(rows, weights[inside] * (at[inside] - k * step) / (2.0 * step))
    sums = rise[:-3] + (level[1:-2] / 2 + rise[1:-2]) + (level[2:-1] - rise[2:-1]) + (level[3:] / 2 - rise[3:])
    total, first, second = sums[:, 0, 0, None], sums[:, 0, 1:], sums[:, 1:, 1:]
    own = first / (total + DRAWN_MEAN * n)
    products = own[:, :, None] * (first - total / 2 * own)[:, None]
    total = total[:, None]
    covariances = second - products - products.transpose(0, 2, 1) + total * uncertain + DRAWN_S * n * S
    return mean + own, covariances / (total + DRAWN_S * n)


def _fill(Y: Float, K: Float, covariance: bool = False) -> tuple[Float, Float, Float]:
    """Y with conditional means where it is missing; K times what was read; the conditional covariances, if asked for.

    Of the covariances the sum.
    """
    missing = np.isnan(Y)
    X, n = np.where(missing, 0.0, Y), len(K)
    pull = X @ K
    total = np.zeros((n if covariance else 0, n))
    (_condition if native.reason_unavailable() else native.condition)(X, missing, K, pull, total)
    return X, pull, total


def _condition(X: Float, missing: Bool, K: Float, pull: Float, total: Float) -> None:
    """What the compiled core does; moments with as many missing entries are taken together."""
    counts = missing.sum(axis=1)
    for count in np.unique(counts[counts > 0]):
        rows = np.flatnonzero(counts == count)
        size = max(1, BATCH // (count * count))
        for first in range(0, len(rows), size):
            some = rows[first : first + size]
            at = np.nonzero(missing[some])[1].reshape(-1, count)
            own = K[at[:, :, None], at[:, None, :]]
            right = -np.take_along_axis(pull[some], at, axis=1)[:, :, None]
            X[some[:, None], at] = np.linalg.solve(own, right)[:, :, 0]
            if total.size:
                np.add.at(total, (at[:, :, None], at[:, None, :]), np.linalg.inv(own))
