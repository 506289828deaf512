"""Scales and offsets of a table, removed before a low-rank fit and restored after it: x_ij = s_j (b_j + a_i + y_ij).

Rows are samples, columns features. Each part is shrunk by as much as the number of its entries calls for, so that the
same recipe serves a table of sensors (long columns, different units) and one of ratings (one unit, hardly any entry in
most columns):

- s_j is the mean of |x - median|, each clipped at six times their median. Of log s_j, the differences between columns
  are kept that chance does not explain: the variance between them, and 1/n_j for chance, give the share.
- b_j and a_i are normal with unknown means and variances, and the noise has the weights of the Cauchy loss. With
  W = Σ w over a row or column, its offset is Σ w (x - the rest) / (W + σ²/τ²). The variance τ² follows by expectation
  maximisation: it is the mean of the squared offset + σ² / (W + σ²/τ²) over rows or columns. σ² is the weighted mean
  square of the residuals.

Offsets of the rows are essential where rows have few entries, and harm a little where they have many: a low-rank fit
then finds the same, and better.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..entries.statistics import column_sums, row_sums
from ..linalg.scale import robust_scale
from ..robust.regression import EFFICIENT
from ..sweeps import Float, host_backend
from ..sweeps.losses import Kind, Loss

__all__ = ["NEGLIGIBLE", "Preparation"]

CLIP = 6.0  # a deviation counts up to so many of the column's median deviation
FEW = 20  # entries; a column with fewer has the usual scale
FAR = 10.0  # scales: a column whose median is so far from that of the others starts from there,
KNOWN = 5  # if it has as many entries
MAX_ITER = 30
CONVERGED = 0.01  # of the noise: offsets that change less, root mean square over the entries, are final
SAMPLE = 20_000  # entries the scale of the noise is taken from
NEGLIGIBLE = 1e-60  # of the largest number, or of the features' spread: smaller numbers count as 0


@dataclass(frozen=True)
class Preparation:
    """The scales and offsets of a table: x_ij = s_j (b_j + a_i + y_ij).

    >>> rng = np.random.default_rng(2)
    >>> X = np.array([1.0, 10.0, 100.0]) * (rng.standard_normal((500, 3)) + [5.0, 0.0, 2.0])
    >>> M = ObservedMatrix.from_dense(X)
    >>> prepared = Preparation.fit(M, rows=False)
    >>> np.log10(prepared.scale).round(1).tolist(), prepared.apply(M).values.std().round(1).item()
    ([-0.1, 0.9, 1.9], 1.3)
    """

    scale: Float  # n: s
    level: Float  # n: b
    offset: Float  # m: a; zeros if rows have none
    damping: float  # σ²/τ² of the rows, which acts like so many entries of value 0; infinite if rows have no offsets

    @classmethod
    def fit(cls, M: ObservedMatrix, *, rows: bool, backend: str = "auto") -> Self:
        """The scales and levels of M, and the offsets of its rows if asked for."""
        scale, median = _scales(M, backend)
        # a column far from all others would be taken for an outlier as a whole
        usual = _weighted_median(median / scale, np.maximum(M.column_counts, 0))
        far = np.where((np.abs(median / scale - usual) > FAR) & (M.column_counts >= KNOWN), median / scale, 0.0)
        near = M.with_values(M.values / M.spread_over_columns(scale) - M.spread_over_columns(far))
        level, offset, damping = _offsets(near, rows)
        return cls(scale, far + level, offset, damping)

    def without_levels(self) -> Preparation:
        """The scales alone."""
        return Preparation(self.scale, np.zeros_like(self.level), np.zeros_like(self.offset), math.inf)

    def apply(self, M: ObservedMatrix) -> ObservedMatrix:
        """y_ij = x_ij / s_j - b_j - a_i, for the rows that the offsets are of."""
        scale, level = M.spread_over_columns(self.scale), M.spread_over_columns(self.level)
        y = M.values / scale - level - M.spread_over_rows(self.offset)
        new: ObservedMatrix = M.with_stored_values(y * (np.abs(y) >= NEGLIGIBLE))
        return new


def _scales(M: ObservedMatrix, backend: str) -> tuple[Float, Float]:
    """The scale of each column, shrunk towards that of all columns, and its median."""
    n, counts = M.shape[1], M.column_counts
    sweep = M.open_sweep(host_backend(backend))
    half = (counts + 1) // 2
    x: Any = M.values.astype(np.float64)
    # No median is larger than the median magnitude; clipped there, huge entries do not cost the median its digits.
    size = np.where(counts > 0, sweep.kth_largest(np.abs(x), half), 0.0)
    most = M.spread_over_columns(size)
    median = sweep.kth_largest(np.minimum(np.maximum(x, -most), most) + most, half) - size
    deviation = np.abs(x - M.spread_over_columns(median))
    bound = CLIP * sweep.kth_largest(deviation, half)
    bound[~(bound > 0)] = np.inf  # more than half of the column is the same number
    (own,) = M.reduce("|", column_sums, np.minimum(deviation, M.spread_over_columns(bound)))
    own /= np.maximum(counts, 1)
    positive = own > 0
    if not positive.any():
        return np.ones(n), median
    known = positive & (counts >= FEW)
    if not known.any():
        return np.full(n, float(np.exp(_weighted_median(np.log(own[positive]), counts[positive])))), median
    log_scale, weight = np.log(own[known]), counts[known]
    usual = _weighted_median(log_scale, weight)
    # the mean over the entries of (log s - usual)² - 1/n
    between = max(float(np.sum(weight * (log_scale - usual) ** 2 - 1) / np.sum(weight)), 0.0)
    shrunk = np.full(n, usual)
    shrunk[known] += between / (between + 1 / weight) * (log_scale - usual)
    return np.asarray(np.exp(shrunk), dtype=np.float64), median


def _weighted_median(x: Float, weight: NDArray[np.int64]) -> float:
    order = np.argsort(x)
    return float(x[order][np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)])


def _offsets(M: ObservedMatrix, rows: bool) -> tuple[Float, Float, float]:
    """b, a and σ²/τ² of a, for M = b_j + a_i + noise."""
    sample = M.sample(SAMPLE)
    fit = _OffsetFit(float(np.median(sample.values)), np.zeros(M.shape[1]), np.zeros(M.shape[0]))
    e = fit.residual(sample)
    spread = robust_scale(e) ** 2 or float(np.mean(e.astype(np.float64) ** 2)) or 1.0
    tau_b = tau_a = sigma2 = spread
    for _ in range(MAX_ITER):
        c = EFFICIENT * (robust_scale(fit.residual(sample)) or 1e-8 * math.sqrt(spread))
        weight, first, second = M.reduce("+++", partial(_moments, c), fit.residual(M))
        sigma2 = max(second / weight, 1e-16 * spread)
        fit.centre += first / weight
        w, we = M.reduce("||", partial(_weighted_sums, c, column_sums), fit.residual(M))
        fit.b, tau_b, step = _new_offsets(w, we, fit.b, sigma2, tau_b, M.column_counts)
        if rows:
            w, we = M.reduce("++", partial(_weighted_sums, c, row_sums), fit.residual(M))
            fit.a, tau_a, row_step = _new_offsets(w, we, fit.a, sigma2, tau_a, M.row_counts)
            step = max(step, row_step)
        if step <= CONVERGED * math.sqrt(sigma2):
            break
    return fit.centre + fit.b, fit.a, sigma2 / tau_a if rows else math.inf


@dataclass
class _OffsetFit:
    centre: float
    b: Float
    a: Float

    def residual(self, M: ObservedMatrix) -> Any:
        """e = x - centre - b_j - a_i at the entries of M; in pieces, a formula."""
        return M.values - M.spread_over_columns(self.centre + self.b) - M.spread_over_rows(self.a)


def _weighted_sums(c: float, sums: Callable[..., tuple[Any, ...]], piece: Any, e: Float) -> tuple[Any, ...]:
    """Σ w and Σ w e over the rows or columns of a piece."""
    w = _weights(e, c)
    return sums(piece, w, w * e)


def _moments(c: float, piece: Any, e: Float) -> tuple[float, float, float]:
    """Σ w, Σ w e and Σ w e² of a piece."""
    w = _weights(e, c)
    we = w * e
    return float(w.sum()), float(we.sum()), float(we @ e)  # e² alone may overflow


def _weights(e: Float, c: float) -> Float:
    with np.errstate(over="ignore"):  # the weight of a huge residual is 0
        return np.asarray(Loss(Kind.CAUCHY, c).weight(e), dtype=np.float64)


def _new_offsets(
    w: Float, we: Float, offset: Float, sigma2: float, tau2: float, counts: NDArray[np.int64]
) -> tuple[Float, float, float]:
    """The offsets of rows or columns with these Σ w and Σ w e, τ², and the root mean square step over the entries."""
    damped = w + sigma2 / tau2
    new = (we + w * offset) / damped
    tau2 = max(float(np.mean((new**2 + sigma2 / damped)[w > 0])), 1e-16 * sigma2)
    return new, tau2, math.sqrt(float(counts @ (new - offset) ** 2) / float(counts.sum()))
