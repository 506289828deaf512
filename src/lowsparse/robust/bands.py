"""Bands about the entries of a low-rank fit, calibrated on entries that it did not see.

An error at a held-out entry (i, j) is divided by what is to be expected there,

    s_ij = a_i b_j √(1 + q_ij²),

with the usual sizes a and b of the residuals in row i and column j, and the standard error q of L in units of the
noise: the evidence of the lines. The quantiles of these ratios, by class of q, are the half widths of bands in units of
s (`calibration`). Where hardly any of the entries held out had so little evidence, the band is infinite.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..linalg.lowrank import LowRank
from ..sweeps import Float
from .calibration import Calibration, Index
from .holdout import Holdout

GROSS = (
    18.0  # ratios, 12 standard deviations of normal noise; errors beyond are those of wrong entries, and do not count
)
LEAST, MOST = -6, 12  # log2 of q² between which classes are an octave wide
ALIKE, ALIKE_SHARE = 20, 0.05  # held-out entries with no more evidence than one has, or share of them, at least
CHANCE = 1.36  # variance of the logarithm of a median, times the number of magnitudes of normal noise
LEAST_SIZE = 1e-3  # of a line, relative to the usual one
FREE = 0.05  # least share of the variance that is left in residuals


@dataclass(frozen=True)
class EntryBands:
    """Half widths of bands about entries of L, by row, column and the standard error there."""

    by_row: Float
    by_column: Float
    calibration: Calibration
    count: int  # of the errors by which they are calibrated
    poorest: int  # class of the least evidence at which there are bands

    @classmethod
    def fit(cls, split: Holdout, L: LowRank, relative: Float) -> Self:
        """From a fit L to split.M, and the standard errors q at the held-out entries."""
        M = split.M
        i, j = M.rows, M.columns_of_entries()
        e = np.abs(M.values - L.at(i, j)).astype(np.float64)
        # residuals are smaller than errors: r / k of the variance of k entries is fitted
        free = np.maximum(1 - L.rank / M.row_counts[i] - L.rank / M.column_counts[j], FREE)
        e /= np.sqrt(free)
        by_row = _medians(e, i, M.shape[0])
        by_column = _medians(e / by_row[i], j, M.shape[1])
        ratios = np.abs(split.residual(L)) / _expected(by_row[split.rows] * by_column[split.columns], relative)
        fair = np.isfinite(relative) & (ratios <= GROSS)
        alone, classes = np.zeros(int(fair.sum()), np.intp), _classes(relative[fair])
        alike = max(1, min(ALIKE, int(ALIKE_SHARE * alone.size)))
        poorest = int(np.sort(classes)[-alike]) if alone.size else -1
        return cls(by_row, by_column, Calibration.fit(ratios[fair], alone, classes, 1), alone.size, poorest)

    def half_widths(self, i: Index, j: Index, relative: Float, level: float) -> Float:
        """Of the entries (i, j), with these standard errors q."""
        classes = _classes(relative)
        ratio = self.calibration.half_width(level, np.zeros(len(i), np.intp), classes)
        expected = _expected(self.by_row[i] * self.by_column[j], relative)
        return np.where((classes > self.poorest) | np.isinf(relative), np.inf, ratio * expected)


def _medians(magnitudes: Float, lines: NDArray[np.int32], count: int) -> Float:
    """The median magnitude in each line, shrunk to the usual one as far as chance explains that they differ.

    The logarithm of the median of k magnitudes of normal noise varies by `CHANCE` / k; what the logarithms vary beyond
    that is the variance τ² of the lines, and each keeps τ² / (τ² + CHANCE / k) of its distance from their mean.

    >>> rng = np.random.default_rng(1)
    >>> line = np.repeat(np.arange(50, dtype=np.int32), 30)
    >>> noise = np.abs(rng.standard_normal(1500))
    >>> alike, differing = _medians(noise, line, 50), _medians(noise * 2.0 ** (line % 4), line, 50)
    >>> bool(np.ptp(np.log2(alike)) < 0.5), np.round(np.log2(differing[:4] / differing[0])).tolist()
    (True, [0.0, 1.0, 2.0, 3.0])
    """
    usual = float(np.median(magnitudes))
    if not usual:
        return np.ones(count)
    order = np.lexsort((magnitudes, lines))
    counts = np.bincount(lines, minlength=count)
    middle = np.minimum(np.cumsum(counts) - counts + counts // 2, len(order) - 1)
    sizes = np.log(np.maximum(magnitudes[order][middle], LEAST_SIZE * usual))
    some = counts > 0
    chance = CHANCE / np.maximum(counts, 1)
    mean = float(np.average(sizes, weights=counts))
    spread = max(float(np.average((sizes - mean) ** 2 - chance, weights=counts)), 0.0)
    kept = np.where(some, spread / (spread + chance), 0.0)
    return np.asarray(np.exp(mean + kept * (sizes - mean)))


def _expected(sizes: Float, relative: Float) -> Float:
    return np.asarray(sizes * np.sqrt(1 + relative**2))


def _classes(relative: Float) -> Index:
    octaves = np.log2(np.clip(relative**2, 2.0**LEAST, 2.0**MOST))
    return np.floor(octaves).astype(np.intp) - LEAST
