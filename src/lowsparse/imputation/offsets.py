"""Scales and offsets of a table, removed before a low-rank fit and restored after it: x_ij = s_j (b_j + a_i + y_ij).

Rows are samples, columns features. All estimates are shrunk according to the number of entries, so that the same method
serves tables of sensors (long columns, different units) and of ratings (one unit, few entries in most columns):

- s_j is the mean absolute deviation from the median, with deviations clipped at six times their median. Differences of
  log s_j between columns are shrunk by empirical Bayes: the variance due to chance is 1/n_j.
- b_j and a_i are normal random effects with unknown means and variances; the noise has the weights of the Cauchy loss.
  With W = Σ w over a row or column, its offset is Σ w (x - the other effects) / (W + σ²/τ²). The variance τ² follows by
  expectation maximisation: it is the mean of the squared offset + σ² / (W + σ²/τ²) over rows or columns. σ² is the
  weighted mean square of the residuals.

Offsets of the rows are essential where rows have few entries. Where they have many, a low-rank fit finds them better.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..entries.protocol import PartialMatrix, PerEntry, Resident
from ..entries.statistics import column_sums, row_sums
from ..linalg.scale import robust_scale
from ..robust.regression import EFFICIENT
from ..sweeps import Float, host_backend
from ..sweeps.losses import Kind, Loss

CLIP = 6.0  # bound on deviations, relative to the column's median deviation
FEW = 20  # entries; a column with fewer has the usual scale
# A column starts at its own median if that is more than FAR scales from those of others, and it has KNOWN entries.
FAR, KNOWN = 10.0, 5
LIKE = 10.0  # largest scale of a column relative to the smallest, where they are in like units
SLIGHT = 0.5  # usual level of a column, in units of its scale, below which there is hardly any
MAX_ITER = 30
CONVERGED = 0.01  # root mean square change of the offsets in the last iteration, relative to the noise
SAMPLE = 20_000  # entries by which the scale of the noise is estimated
NEGLIGIBLE = 1e-60  # relative to the largest number, or to the features' spread: smaller numbers count as 0


@dataclass(frozen=True)
class Preparation:
    """The scales and offsets of a table: x_ij = s_j (b_j + a_i + y_ij)."""

    scale: Float  # n: s
    level: Float  # n: b
    offset: Float  # m: a; zeros if rows have none
    damping: float  # σ²/τ² of the rows, which acts like as many entries of value 0; infinite if rows have no offsets

    @classmethod
    def fit(cls, M: PartialMatrix, *, rows: bool, backend: str = "auto") -> Self:
        """Estimate the scales and levels of M, and the offsets of its rows if asked for."""
        scale, median = feature_scales(M, backend)
        # a column far from all others would be taken for an outlier as a whole
        usual = _weighted_median(median / scale, np.maximum(M.column_counts, 0))
        far = np.where((np.abs(median / scale - usual) > FAR) & (M.column_counts >= KNOWN), median / scale, 0.0)
        near = M.with_values(M.values / M.spread_over_columns(scale) - M.spread_over_columns(far))
        level, offset, damping = _offsets(near, rows)
        return cls(scale, far + level, offset, damping)

    @property
    def hardly_has_levels(self) -> bool:
        """Whether a number at the level of its column is hardly anything else than zero."""
        return float(np.mean(self.level**2)) < SLIGHT**2

    def without_levels(self) -> Preparation:
        """The scales alone; one scale for all columns where they are in like units: the table as it is."""
        like = self.scale.max() <= LIKE * self.scale.min()
        scale = np.full_like(self.scale, math.exp(float(np.mean(np.log(self.scale))))) if like else self.scale
        return Preparation(scale, np.zeros_like(self.level), np.zeros_like(self.offset), math.inf)

    def without_offsets(self) -> Preparation:
        """The scales and levels."""
        return replace(self, offset=np.zeros_like(self.offset), damping=math.inf)

    def apply(self, M: PartialMatrix) -> PartialMatrix:
        """y_ij = x_ij / s_j - b_j - a_i, for the rows that were fitted."""
        scale, level = M.spread_over_columns(self.scale), M.spread_over_columns(self.level)
        y = M.values / scale - level - M.spread_over_rows(self.offset)
        return M.with_stored_values(y * (np.abs(y) >= NEGLIGIBLE))


def feature_scales(M: PartialMatrix, backend: str) -> tuple[Float, Float]:
    """The scale of each column, shrunk towards that of all columns, and its median."""
    n, counts = M.shape[1], M.column_counts
    sweep = M.open_sweep(host_backend(backend))
    half = (counts + 1) // 2
    x = M.values.astype(np.float64)
    # No median is larger than the median magnitude; clipped there, huge entries do not cost the median its digits.
    size = np.where(counts > 0, sweep.kth_largest(np.abs(x), half), 0.0)
    clip = M.spread_over_columns(size)
    median = sweep.kth_largest(np.minimum(np.maximum(x, -clip), clip) + clip, half) - size
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
    # variance between columns: the mean over the entries of (log s - usual)² - 1/n
    between = max(float(np.sum(weight * (log_scale - usual) ** 2 - 1) / np.sum(weight)), 0.0)
    shrunk = np.full(n, usual)
    shrunk[known] += between / (between + 1 / weight) * (log_scale - usual)
    return np.asarray(np.exp(shrunk), dtype=np.float64), median


def _weighted_median(x: Float, weight: NDArray[np.int64]) -> float:
    order = np.argsort(x)
    return float(x[order][np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)])


def _offsets(M: PartialMatrix, rows: bool) -> tuple[Float, Float, float]:
    """b, a and σ²/τ² of a, for M = b_j + a_i + noise."""
    sample = M.sample(SAMPLE)
    centre, b, a = float(np.median(sample.values)), np.zeros(M.shape[1]), np.zeros(M.shape[0])

    def residual(M: PartialMatrix) -> PerEntry:
        return M.values - M.spread_over_columns(centre + b) - M.spread_over_rows(a)

    e = residual(sample)
    spread = robust_scale(e) ** 2 or float(np.mean(e.astype(np.float64) ** 2)) or 1.0
    tau_b = tau_a = sigma2 = spread
    for _ in range(MAX_ITER):
        c = EFFICIENT * (robust_scale(residual(sample)) or 1e-8 * math.sqrt(spread))
        weight, first, second = M.reduce("+++", partial(_moments, c), residual(M))
        sigma2 = max(second / weight, 1e-16 * spread)
        centre += first / weight
        w, we = M.reduce("||", partial(_weighted_sums, c, column_sums), residual(M))
        b, tau_b, step = _new_offsets(w, we, b, sigma2, tau_b, M.column_counts)
        if rows:
            w, we = M.reduce("++", partial(_weighted_sums, c, row_sums), residual(M))
            a, tau_a, row_step = _new_offsets(w, we, a, sigma2, tau_a, M.row_counts)
            step = max(step, row_step)
        if step <= CONVERGED * math.sqrt(sigma2):
            break
    return centre + b, a, sigma2 / tau_a if rows else math.inf


def _weighted_sums(c: float, sums: Callable[..., tuple[Float, ...]], piece: Resident, e: Float) -> tuple[Float, ...]:
    """Σ w and Σ w e over the rows or columns of a piece."""
    w = _weights(e, c)
    return sums(piece, w, w * e)


def _moments(c: float, piece: Resident, e: Float) -> tuple[float, float, float]:
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
