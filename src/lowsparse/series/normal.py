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

from ..sweeps import Float
from .runs import Index

FREEDOM = 10.0  # ν
ITERATIONS, FURTHER = 10, 2  # from the beginning, and from another fit
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
    ) -> Normal:
        """Fit moments x series Z, NaN where missing.

        Parameters start from those of another fit, if given. Without `local` there is one window.
        """
        Y = _with_lags(Z, lags)
        counts = np.sum(~np.isnan(Y), axis=1)
        read = counts > 0
        mean, S = (np.zeros(Y.shape[1]), _first_covariance(Y)) if start is None else (start.mean, start.covariance)
        for _ in range(ITERATIONS if start is None else FURTHER):
            before = S
            K = _inverse(S, ridge)
            X, missing = _fill(Y[read] - mean, K, covariance=True)
            distance = np.einsum("ij,ij->i", X @ K, X)
            weights = (FREEDOM + counts[read]) / (FREEDOM + distance)
            S = ((X.T * weights) @ X + missing) / weights.sum()
            X += mean
            mean = weights @ X / weights.sum()
            if np.linalg.norm(S - before) <= CHANGE * np.linalg.norm(before):
                break
        step = WINDOW * len(mean) if local else len(Z)
        means, covariances = _windows(X, weights, np.flatnonzero(read), mean, S, step, len(Z))
        return cls(mean, S, step, means, covariances, ridge, lags, float(np.median(counts[read])))

    def lagged(self, Z: Float, lags: tuple[int, ...]) -> Normal:
        """A start of the fit with lags: the covariances of what is filled without."""
        read = (~np.isnan(Z)).any(axis=1)
        X = np.full(Z.shape, np.nan)
        X[read] = _fill(Z[read] - self.mean, _inverse(self.covariance, self.ridge))[0]
        return replace(self, mean=np.tile(self.mean, len(lags)), covariance=_first_covariance(_with_lags(X, lags)))

    def expect(self, Z: Float, first: int = 0) -> Float:
        """What the others say of each entry; NaN at moments with few readings.

        Z begins `first` moments after the data that were fitted. Between two windows their expectations are mixed.
        """
        n = Z.shape[1]
        Y = _with_lags(Z, self.lags)
        place = np.clip((first + np.arange(len(Z))) / self.step, 0, len(self.means) - 1)
        expected = np.zeros((len(Z), n))
        for k, (mean, S) in enumerate(zip(self.means, self.covariances, strict=True)):
            K = _inverse(S, self.ridge)
            share = 1.0 - np.abs(place - k)
            inside = np.flatnonzero(share > 0)
            X, _ = _fill(Y[inside] - mean, K)
            own = X[:, :n] - (X @ K[:, :n]) / np.diag(K)[:n] + mean[:n]
            expected[inside] += share[inside, None] * own
        expected[np.sum(~np.isnan(Y), axis=1) < FEW * self.usual] = np.nan
        return expected


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
    X: Float, weights: Float, at: Index, mean: Float, S: Float, step: int, moments: int
) -> tuple[Float, Float]:
    """Means and covariances of windows, `step` moments apart and twice as wide on either side.

    X are the filled moments, standing at times `at`. What is uncertain of missing entries counts as in the whole.
    """
    centred = X - mean
    uncertain = S - (centred.T * weights) @ centred / weights.sum()
    means, covariances = [], []
    for centre in range(0, moments + step - 1 if moments > step else 1, step):
        near = weights * (np.maximum(0.0, 1.0 - np.abs(at - centre) / (2.0 * step)) if moments > step else 1.0)
        total = near.sum()
        own = (near @ X + DRAWN_MEAN * len(mean) * mean) / (total + DRAWN_MEAN * len(mean))
        apart = X - own
        drawn = DRAWN_S * len(mean)
        covariances.append(((apart.T * near) @ apart + total * uncertain + drawn * S) / (total + drawn))
        means.append(own)
    return np.stack(means), np.stack(covariances)


def _fill(Y: Float, K: Float, covariance: bool = False) -> tuple[Float, Float]:
    """Y with conditional means where it is missing; and the sum of the conditional covariances, if asked for.

    Moments with as many missing entries are taken together.
    """
    missing = np.isnan(Y)
    X, n = np.where(missing, 0.0, Y), len(K)
    pull = X @ K
    total = np.zeros(n * n)
    counts = missing.sum(axis=1)
    for count in np.unique(counts[counts > 0]):
        rows = np.flatnonzero(counts == count)
        size = max(1, BATCH // (count * count))
        for first in range(0, len(rows), size):
            some = rows[first : first + size]
            at = np.nonzero(missing[some])[1].reshape(-1, count)
            own = K[at[:, :, None], at[:, None, :]]
            right = -np.take_along_axis(pull[some], at, axis=1)[:, :, None]
            if covariance:
                inverses = np.linalg.inv(own)
                X[some[:, None], at] = (inverses @ right)[:, :, 0]
                pairs = at[:, :, None] * n + at[:, None, :]
                total += np.bincount(pairs.ravel(), inverses.ravel(), n * n)
            else:
                X[some[:, None], at] = np.linalg.solve(own, right)[:, :, 0]
    return X, total.reshape(n, n)
