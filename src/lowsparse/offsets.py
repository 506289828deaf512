"""Scales and offsets of a table, taken off before a low-rank fit and put on again: x_ij = s_j (b_j + a_i + y_ij).

Rows are samples, columns features. Each part is shrunk by as much as the number of its entries calls for, so that the
same recipe serves a table of sensors (long columns, units of their own) and one of ratings (one unit, hardly any entry
in most columns):

- s_j is the mean of |x - median|, each up to six times their median. Of log s_j, what differs more between columns than
  chance explains is kept: the variance between them, and 1/n_j for chance, give the share.
- b_j and a_i are normal with unknown means and variances, and the noise has the weights of the Cauchy loss. With
  W = Σ w over a line, its offset is Σ w (x - the rest) / (W + σ²/τ²). The variance τ² follows by expectation
  maximisation: it is the mean of the squared offset + σ² / (W + σ²/τ²) over the lines. σ² is the weighted mean square
  of what is left.

Offsets of the rows are essential where rows have few entries, and harm a little where they have many: a low-rank fit
has the same to say then, and says it better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .lines import EFFICIENT
from .observed import ObservedMatrix
from .scale import robust_scale
from .sweeps import Float, open_sweep

__all__ = ["Preparation"]

CLIP = 6.0  # a deviation counts up to so many of the column's median deviation
FEW = 20  # entries; a column with fewer has the usual scale
ROUNDS = 30
SETTLED = 0.01  # of the noise: offsets that change less, root mean square over the entries, are done
SAMPLE = 20_000  # entries the scale of the noise is taken from


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
    damping: float  # σ²/τ² of the rows: so many entries of value 0 an offset begins with; infinite if rows have none

    @classmethod
    def fit(cls, M: ObservedMatrix, *, rows: bool, backend: str = "auto") -> Self:
        """Scales and offsets of M, with offsets of the rows or without."""
        scale = _scales(M, backend)
        x = M.values / scale[M.columns_of_entries()]
        return cls(scale, *_offsets(M, x, rows))

    def apply(self, M: ObservedMatrix) -> ObservedMatrix:
        """What is left of M, which has the rows the offsets are of: y_ij = x_ij / s_j - b_j - a_i."""
        j = M.columns_of_entries()
        y = M.values / self.scale[j] - self.level[j] - self.offset[M.rows]
        return M.with_values(y.astype(M.dtype))


def _scales(M: ObservedMatrix, backend: str) -> Float:
    """Of each column: the mean of |x - median|, each up to six medians of it, shrunk towards that of all columns."""
    n, counts, j = M.shape[1], M.column_counts, M.columns_of_entries()
    sweep = open_sweep(M, backend)
    half = (counts + 1) // 2
    x = M.values.astype(np.float64)
    # No median is larger than the median size; what is may be wild, and would cost the median its digits.
    size = np.where(counts > 0, sweep.kth_largest(np.abs(x), half), 0.0)
    middle = sweep.kth_largest(np.clip(x, -size[j], size[j]) + size[j], half) - size
    deviation = np.abs(x - middle[j])
    bound = CLIP * sweep.kth_largest(deviation, half)
    bound[~(bound > 0)] = np.inf  # more than half of the column is the same number
    own = np.bincount(j, weights=np.minimum(deviation, bound[j]), minlength=n) / np.maximum(counts, 1)
    there = own > 0
    if not there.any():
        return np.ones(n)
    known = there & (counts >= FEW)
    if not known.any():
        return np.full(n, float(np.exp(_weighted_median(np.log(own[there]), counts[there]))))
    size, weight = np.log(own[known]), counts[known]
    usual = _weighted_median(size, weight)
    # the mean over the entries of (log s - usual)² - 1/n
    between = max(float(np.sum(weight * (size - usual) ** 2 - 1) / np.sum(weight)), 0.0)
    shrunk = np.full(n, usual)
    shrunk[known] += between / (between + 1 / weight) * (size - usual)
    return np.asarray(np.exp(shrunk), dtype=np.float64)


def _weighted_median(x: Float, weight: NDArray[np.int64]) -> float:
    order = np.argsort(x)
    return float(x[order][np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)])


def _offsets(M: ObservedMatrix, x: Float, rows: bool) -> tuple[Float, Float, float]:
    """b, a and σ²/τ² of a."""
    m, n = M.shape
    i, j = M.rows, M.columns_of_entries()
    sample = slice(None, None, max(1, M.nnz // SAMPLE))
    centre = float(np.median(x[sample]))
    b, a = np.zeros(n), np.zeros(m)
    e = x - centre
    spread = robust_scale(e[sample]) ** 2 or float(np.mean(e**2)) or 1.0
    tau_b = tau_a = spread
    sigma2 = spread
    for _ in range(ROUNDS):
        c = EFFICIENT * (robust_scale(e[sample]) or 1e-8 * math.sqrt(spread))
        w = _weights(e, c)
        sigma2 = max(float((w * e) @ e / w.sum()), 1e-16 * spread)  # e² alone may overflow
        shift = float(w @ e / w.sum())
        centre, e = centre + shift, e - shift
        moved, b, tau_b, e = _line_offsets(e, c, j, b, sigma2, tau_b)
        if rows:
            step, a, tau_a, e = _line_offsets(e, c, i, a, sigma2, tau_a)
            moved = max(moved, step)
        if moved <= SETTLED * math.sqrt(sigma2):
            break
    return centre + b, a, sigma2 / tau_a if rows else math.inf


def _weights(e: Float, c: float) -> Float:
    """Of the Cauchy loss."""
    with np.errstate(over="ignore"):  # the weight of what is wild is 0
        return np.asarray(1 / (1 + (e / c) ** 2), dtype=np.float64)


def _line_offsets(
    e: Float, c: float, line: NDArray[np.int32], offset: Float, sigma2: float, tau2: float
) -> tuple[float, Float, float, Float]:
    """The root mean square of the steps that the offsets make, the new ones, τ², and the residuals e they leave."""
    w = _weights(e, c)
    total = np.bincount(line, weights=w, minlength=offset.size)
    there = total > 0
    damped = total + sigma2 / tau2
    new = (np.bincount(line, weights=w * e, minlength=offset.size) + total * offset) / damped
    tau2 = max(float(np.mean((new**2 + sigma2 / damped)[there])), 1e-16 * sigma2)
    step = new - offset
    return float(np.sqrt(np.mean(step[line] ** 2))), new, tau2, e - step[line]
