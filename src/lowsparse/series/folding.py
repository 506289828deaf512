"""The low-rank part of series: of moments x series, or folded to periods x (moments of the period, series).

The first sees what series have in common at a moment, the second also the shape of the period (a day). The fit is that
of `lowsparse.imputation.model`, which is robust to bad readings. Lines with few readings, such as a day that was missed
by all series, are not determined by it; they are bridged in time.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np

from ..entries.observed import ObservedMatrix
from ..imputation.model import Imputation, Prediction
from ..sweeps import Float
from .bridging import Bridge
from .runs import Bool

CYCLES = 6  # of a period, from which its usual shape is taken
FEW = 0.2  # readings of a line, relative to the usual number, that do not determine it


@dataclass(frozen=True)
class Folding:
    """Lines of `length` moments; the first line begins `shift` moments before the data."""

    length: int
    shift: int = 0

    def fold(self, Z: Float) -> Float:
        """Lines x (moments of a line, series); NaN before and after the data.

        >>> Folding(2, 1).fold(np.array([[1.0], [2.0], [3.0]])).tolist()
        [[nan, 1.0], [2.0, 3.0]]
        """
        T, n = Z.shape
        lines = -(-(self.shift + T) // self.length)
        padded = np.full((lines * self.length, n), np.nan)
        padded[self.shift : self.shift + T] = Z
        return padded.reshape(lines, self.length * n)

    def unfold(self, lines: Float, shape: tuple[int, int]) -> Float:
        """The moments x series of folded lines."""
        return lines.reshape(-1, shape[1])[self.shift : self.shift + shape[0]]


@dataclass(frozen=True)
class FoldedFit:
    """The low-rank part L of folded series, and the bridges of undetermined lines and of what L leaves over.

    Without a folding L is the usual shape of the period: the median of each series at each phase; 0 without a period.
    """

    folding: Folding | None
    shape: Float  # phases x series: L without a folding
    prediction: Prediction | None  # of the lines
    least: int  # readings that determine a line
    rank: int
    across: Bridge  # of L
    along: Bridge  # of Z - L

    @classmethod
    def fit(cls, Z: Float, folding: Folding | None, periods: tuple[int, ...]) -> FoldedFit:
        """Fit the low-rank part of series Z, NaN where missing; none without a folding."""
        nothing = Bridge(np.ones((1, Z.shape[1])), periods)
        if folding is None:
            return cls(None, _usual_shape(Z, periods), None, 0, 0, nothing, nothing)
        lines = folding.fold(Z)
        counts = np.sum(~np.isnan(lines), axis=1)
        model = Imputation.fit(ObservedMatrix.from_dense(lines[counts > 0]))
        least = int(FEW * np.median(counts[counts > 0]))
        fitted = cls(folding, np.zeros((1, Z.shape[1])), model.prediction, least, model.rank, nothing, nothing)
        return replace(fitted, across=Bridge.fit(fitted._determined(Z), periods))

    def bridged(self, Z: Float) -> FoldedFit:
        """With the correlations in time of what L leaves over of Z."""
        return replace(self, along=Bridge.fit(Z - self.lowrank(Z), self.across.periods))

    def shifted(self, moments: int) -> FoldedFit:
        """For data that begin so many moments after those that were fitted, or a number of lines later."""
        if self.folding is None:
            return replace(self, shape=np.roll(self.shape, -moments, axis=0))
        length, shift = self.folding.length, self.folding.shift
        return replace(self, folding=Folding(length, (shift + moments) % length))

    def lowrank(self, Z: Float) -> Float:
        """L, with undetermined lines bridged."""
        if self.folding is None:
            return self.shape[np.arange(len(Z)) % len(self.shape)]
        L = self._determined(Z)
        unknown = np.isnan(L)
        return self.across.fill(L, unknown) if unknown.any() else L

    def predict(self, Z: Float, wanted: Bool) -> Float:
        """Predictions of the wanted entries, in the order of `numpy.nonzero`: L, and what is bridged of Z - L."""
        L = self.lowrank(Z)
        t, j = np.nonzero(wanted)
        return np.asarray(L[t, j] + self.along.predict(Z - L, t, j))

    def _determined(self, Z: Float) -> Float:
        """L, NaN in lines with few readings; each line is regressed robustly by its own readings."""
        assert self.folding is not None
        assert self.prediction is not None
        lines = self.folding.fold(Z)
        counts = np.sum(~np.isnan(lines), axis=1)
        known = counts >= min(self.least, counts.max(initial=0))
        L = np.full(lines.shape, np.nan)
        if counts.max(initial=0) > 0:
            M = ObservedMatrix.from_dense(lines[known])
            L[known] = self.prediction.rows(M.T, int(known.sum()))
        return self.folding.unfold(L, (Z.shape[0], Z.shape[1]))


def _usual_shape(Z: Float, periods: tuple[int, ...]) -> Float:
    """The median of each series at each phase of the longest period that the data have often enough."""
    often = [period for period in periods if len(Z) >= CYCLES * period]
    if not often:
        return np.zeros((1, Z.shape[1]))
    lines = Folding(often[-1]).fold(Z)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a phase without a reading
        return np.nan_to_num(np.nanmedian(lines, axis=0)).reshape(often[-1], Z.shape[1])
