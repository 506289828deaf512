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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..linalg.scale import robust_scale
from ..places.pieces.along import along_columns, along_rows, column_sums, row_sums, total
from ..places.pieces.rewriting import rewritten
from ..robust.regression import EFFICIENT
from ..sweeps import Float, open_sweep

__all__ = ["Preparation"]

CLIP = 6.0  # a deviation counts up to so many of the column's median deviation
FEW = 20  # entries; a column with fewer has the usual scale
FAR = 10.0  # scales: a column whose median is so far from that of the others starts from there,
KNOWN = 5  # if it has as many entries
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
        scale, middle = _scales(M, backend)
        # a column far from all the others would be an outlier to them as a whole
        usual = _weighted_median(middle / scale, np.maximum(M.column_counts, 0))
        far = np.where((np.abs(middle / scale - usual) > FAR) & (M.column_counts >= KNOWN), middle / scale, 0.0)
        near = M.with_values(M.values / along_columns(M, scale) - along_columns(M, far))
        level, offset, damping = _offsets(near, rows)
        return cls(scale, far + level, offset, damping)

    def without_levels(self) -> Preparation:
        """The scales alone."""
        return Preparation(self.scale, np.zeros_like(self.level), np.zeros_like(self.offset), math.inf)

    def apply(self, M: ObservedMatrix) -> ObservedMatrix:
        """What is left of M, which has the rows the offsets are of: y_ij = x_ij / s_j - b_j - a_i."""
        new: ObservedMatrix = rewritten(M, self.rest(M))
        return new

    def rest(self, M: ObservedMatrix) -> Any:
        """The values of `apply`; of a matrix in pieces, a formula."""
        return M.values / along_columns(M, self.scale) - along_columns(M, self.level) - along_rows(M, self.offset)


def _scales(M: ObservedMatrix, backend: str) -> tuple[Float, Float]:
    """Of each column: the mean of |x - median|, each up to six medians of it, shrunk towards that of all columns.

    And the medians.
    """
    n, counts = M.shape[1], M.column_counts
    sweep = open_sweep(M, backend)
    half = (counts + 1) // 2
    x: Any = M.values.astype(np.float64)
    # No median is larger than the median size; what is may be wild, and would cost the median its digits.
    size = np.where(counts > 0, sweep.kth_largest(np.abs(x), half), 0.0)
    most = along_columns(M, size)
    middle = sweep.kth_largest(np.minimum(np.maximum(x, -most), most) + most, half) - size
    deviation = np.abs(x - along_columns(M, middle))
    bound = CLIP * sweep.kth_largest(deviation, half)
    bound[~(bound > 0)] = np.inf  # more than half of the column is the same number
    (own,) = total(M, "|", column_sums, np.minimum(deviation, along_columns(M, bound)))
    own /= np.maximum(counts, 1)
    there = own > 0
    if not there.any():
        return np.ones(n), middle
    known = there & (counts >= FEW)
    if not known.any():
        return np.full(n, float(np.exp(_weighted_median(np.log(own[there]), counts[there])))), middle
    size, weight = np.log(own[known]), counts[known]
    usual = _weighted_median(size, weight)
    # the mean over the entries of (log s - usual)² - 1/n
    between = max(float(np.sum(weight * (size - usual) ** 2 - 1) / np.sum(weight)), 0.0)
    shrunk = np.full(n, usual)
    shrunk[known] += between / (between + 1 / weight) * (size - usual)
    return np.asarray(np.exp(shrunk), dtype=np.float64), middle


def _weighted_median(x: Float, weight: NDArray[np.int64]) -> float:
    order = np.argsort(x)
    return float(x[order][np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)])


def _offsets(M: ObservedMatrix, rows: bool) -> tuple[Float, Float, float]:
    """b, a and σ²/τ² of a, for M = b_j + a_i + noise."""
    lines = _Lines(M)
    lines.centre = float(np.median(lines.sample.values))
    e = lines.sampled()
    spread = robust_scale(e) ** 2 or float(np.mean(e.astype(np.float64) ** 2)) or 1.0
    tau_b = tau_a = spread
    sigma2 = spread
    for _ in range(ROUNDS):
        c = EFFICIENT * (robust_scale(lines.sampled()) or 1e-8 * math.sqrt(spread))
        weight, first, second = lines.moments(c)
        sigma2 = max(second / weight, 1e-16 * spread)
        lines.centre += first / weight
        moved, tau_b = lines.level_columns(c, sigma2, tau_b)
        if rows:
            step, tau_a = lines.level_rows(c, sigma2, tau_a)
            moved = max(moved, step)
        if moved <= SETTLED * math.sqrt(sigma2):
            break
    return lines.centre + lines.b, lines.a, sigma2 / tau_a if rows else math.inf


class _Lines:
    """A centre, b and a, and what they leave of the entries: e = x - centre - b_j - a_i."""

    def __init__(self, M: ObservedMatrix) -> None:
        self.M, self.sample = M, M.sample(SAMPLE)
        self.centre, self.b, self.a = 0.0, np.zeros(M.shape[1]), np.zeros(M.shape[0])

    def residual(self) -> Any:
        """Of all entries; in pieces, a formula."""
        return self.M.values - along_columns(self.M, self.centre + self.b) - along_rows(self.M, self.a)

    def sampled(self) -> Float:
        """Of some."""
        at = self.sample
        return np.asarray(at.values - along_columns(at, self.centre + self.b) - along_rows(at, self.a))

    def moments(self, c: float) -> tuple[float, float, float]:
        """Σ w, Σ w e and Σ w e²."""
        weight, first, second = total(self.M, "+++", _Moments(c), self.residual())
        return weight, first, second

    def level_columns(self, c: float, sigma2: float, tau2: float) -> tuple[float, float]:
        """New b; the root mean square of their steps over the entries, and τ²."""
        before, (w, we) = self.b, total(self.M, "||", _Weighted(c, column_sums), self.residual())
        self.b, tau2 = _line_offsets(w, we, before, sigma2, tau2)
        return _step(self.b - before, self.M.column_counts), tau2

    def level_rows(self, c: float, sigma2: float, tau2: float) -> tuple[float, float]:
        """New a; the root mean square of their steps over the entries, and τ²."""
        before, (w, we) = self.a, total(self.M, "++", _Weighted(c, row_sums), self.residual())
        self.a, tau2 = _line_offsets(w, we, before, sigma2, tau2)
        return _step(self.a - before, self.M.row_counts), tau2


@dataclass(frozen=True)
class _Weighted:
    """Sums of w and w e in a piece, with the weights of the Cauchy loss."""

    c: float
    sums: Callable[..., tuple[Any, ...]]

    def __call__(self, piece: Any, e: Float) -> tuple[Any, ...]:
        w = _weights(e, self.c)
        return self.sums(piece, w, w * e)


@dataclass(frozen=True)
class _Moments:
    """Σ w, Σ w e and Σ w e² of a piece."""

    c: float

    def __call__(self, piece: Any, e: Float) -> tuple[float, float, float]:
        w = _weights(e, self.c)
        we = w * e
        return float(w.sum()), float(we.sum()), float(we @ e)  # e² alone may overflow


def _weights(e: Float, c: float) -> Float:
    """Of the Cauchy loss."""
    with np.errstate(over="ignore"):  # the weight of what is wild is 0
        return np.asarray(1 / (1 + (e / c) ** 2), dtype=np.float64)


def _line_offsets(total: Float, weighted: Float, offset: Float, sigma2: float, tau2: float) -> tuple[Float, float]:
    """The new offsets of lines with these Σ w and Σ w e, and τ²."""
    there = total > 0
    damped = total + sigma2 / tau2
    new = (weighted + total * offset) / damped
    return new, max(float(np.mean((new**2 + sigma2 / damped)[there])), 1e-16 * sigma2)


def _step(step: Float, counts: NDArray[np.int64]) -> float:
    """The root mean square over the entries of lines that have so many."""
    return math.sqrt(float(counts @ step**2) / float(counts.sum()))
