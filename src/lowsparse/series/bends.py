"""How far a reading is off the straight line between those beside it: by the moments around, and the other series.

With z_t the readings of a moment, all series, its bends are d_t = z_t - (z_{t-1} + z_{t+1}) / 2, and

    x_t = (d_t, z_{t-1}, z_{t+1}, z_{t-2}, z_{t+2}),   G = mean of x_t x_tᵀ / |d_t|,   K = (G + ridge)⁻¹.

The bend of series j is expected to be d_j - (K x)_j / K_jj: the ridge regression on all the rest of x, without d_t
where the others did not see the moment. What is missing in x is on the straight line, in the fit as in prediction.
With predictions in place of straight lines, the same once more follows gaps of some moments.

Where series are smooth, or move together, this is closer than what is expected of their levels: the level is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from ..sweeps import Float
from .correlation import column_spreads
from .runs import Bool, Index

BESIDE = (-1, 1, -2, 2)  # moments
CLIP = 3.0  # spreads of the bends of a series, at which a bend counts
USUAL = 0.5  # usual size of the bends of a moment, below which it has no more weight
RIDGE = 0.1  # of G relative to its diagonal, times numbers of x for each moment
LEAST = 1e-12  # variance
SAMPLE, LEAST_SAMPLE = 20, 2000  # moments for each number of x, and in all, by which G is found
SEEN = 0.5  # readings of a moment, relative to the usual number, by which the others saw it
ROUNDS = 3
REACH = (ROUNDS - 1) * max(BESIDE)  # moments from an entry, within which other bends change the one expected of it
BATCH = 1 << 20  # numbers of x that are held together


@dataclass(frozen=True)
class Bends:
    """Weights by which x says the bends of each series.

    >>> t = np.arange(400)[:, None]
    >>> Z = np.sin(t / 3 + np.arange(4))
    >>> gappy = np.where(t % 7 == 3, np.nan, Z)
    >>> lines = straight_lines(gappy)
    >>> filled = Bends.fit(gappy).expect(gappy, lines, np.isnan(gappy))
    >>> bool(np.abs(filled - Z).max() < 0.3 * np.abs(lines - Z).max())
    True
    """

    together: Float  # numbers of x x series; the bend of a series has weight 0 in its own
    alone: Float  # with weights 0 of all bends
    bounds: Float  # of the bends of each series
    usual: float  # readings of a moment

    @classmethod
    def fit(cls, Z: Float) -> Self:
        """Fit series Z, NaN where missing."""
        n = Z.shape[1]
        counts = np.count_nonzero(~np.isnan(Z), axis=1)
        usual = float(np.median(counts[counts > 0]))
        rows = np.flatnonzero(counts >= SEEN * usual)
        rows = rows[:: max(1, len(rows) // max(LEAST_SAMPLE, SAMPLE * n * (1 + len(BESIDE))))]
        X = _around(straight_lines(Z), rows)
        bounds = CLIP * column_spreads(X[:, :n])
        X[:, :n] = np.clip(X[:, :n], -bounds, bounds)
        size = np.sqrt(np.mean((X[:, :n] / bounds) ** 2, axis=1)) * CLIP
        X /= np.sqrt(np.maximum(size, USUAL))[:, None]
        G = X.T @ X
        scales = np.sqrt(np.maximum(np.diag(G), LEAST))
        G /= np.outer(scales, scales)
        G[np.diag_indices_from(G)] = 1.0 + RIDGE * len(G) / len(X)
        K = np.linalg.inv(G)[:, :n]
        together, alone = -K / np.diag(K), np.zeros_like(K)
        together[np.arange(n), np.arange(n)] = 0.0
        alone[n:] = np.linalg.solve(G[n:, n:], G[n:, :n])
        units = scales[:n] / scales[:, None]
        return cls(together * units, alone * units, bounds, usual)

    def expect(self, Z: Float, lines: Float, wanted: Bool) -> Float:
        """Z, filled by straight lines, with these and the expected bends where it is wanted."""
        n = Z.shape[1]
        rows = np.flatnonzero(wanted.any(axis=1))
        seen = np.count_nonzero(~np.isnan(Z[rows]), axis=1) >= SEEN * self.usual
        filled = lines
        for _ in range(ROUNDS):
            before, filled = filled, filled.copy()
            for own, weights in ((rows[seen], self.together), (rows[~seen], self.alone)):
                size = max(1, BATCH // len(weights))
                for some in (own[first : first + size] for first in range(0, len(own), size)):
                    X = _around(before, some)
                    straight = before[some] - X[:, :n]
                    X[:, :n] = np.clip(X[:, :n], -self.bounds, self.bounds)
                    filled[some] = np.where(wanted[some], straight + X @ weights, before[some])
        return filled


def straight_lines(Z: Float) -> Float:
    """Z with straight lines between readings where it is missing; beyond the last one its value; 0 without any.

    >>> straight_lines(np.array([[np.nan], [1.0], [np.nan], [3.0]])).ravel().tolist()
    [1.0, 1.0, 2.0, 3.0]
    """
    lines = np.zeros_like(Z)
    for j, z in enumerate(Z.T):
        known = np.flatnonzero(~np.isnan(z))
        if known.size:
            lines[:, j] = np.interp(np.arange(len(z)), known, z[known])
    return lines


def _around(filled: Float, rows: Index) -> Float:
    """The numbers x of some moments."""
    beside = [filled[np.clip(rows + lag, 0, len(filled) - 1)] for lag in BESIDE]
    return np.concatenate([filled[rows] - (beside[0] + beside[1]) / 2, *beside], axis=1)
