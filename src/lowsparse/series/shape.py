"""The usual shape of a period: what each series is at each phase of a day or of a week, by itself.

A week is learnt only from several of them. Of shorter data with times, days of rest (Saturdays and Sundays) have a
shape of their own: that of the other days, and a share of what they are apart from it. The share is what is more than
chance makes of it,

    1 - (mean square of the difference of days that differ as pairs of the other ones do) / (its mean square),

over all series, so one Sunday says what a missing Saturday was as far as one day can. If it is small, days of rest are
as the others: a few days of bad weather are apart, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import uniform_filter1d

from ..sweeps import Float
from .correlation import column_medians, column_scales
from .folding import CLIP, Folding
from .runs import Bool

CYCLES = 6  # of a period, from which its usual shape is taken
DAYS = 7  # of a week
WORKING = 3  # days beside those of rest, that say how much days of a kind differ
CERTAIN = 0.5  # least share of what days of rest are apart, that is more than chance makes of it
SMOOTHED = 24  # phases of a day, that are averaged in what days of rest are apart: an hour


@dataclass(frozen=True)
class Shape:
    """The mean of each series at each phase of a period, robust to single readings; 0 without a period.

    A phase that was never read has what is between those beside it.

    >>> days = np.where(np.arange(7) < 5, 1.0, 3.0)  # Monday to Sunday
    >>> Z = np.repeat(days, 24)[:, None] + 0.1 * np.random.default_rng(1).standard_normal((7 * 24, 4))
    >>> Z[6 * 24 :] = np.nan
    >>> shape = Shape.fit(Z, (24,), np.repeat(days > 2, 24))
    >>> bool(abs(shape.expect(Z)[6 * 24 :].mean() - 3.0) < 0.1)
    True
    """

    values: Float  # phases x series
    common: float  # share of the variance that is in a mean of so many cycles: what is left of each has lost it
    rest: Bool | None = None  # which moments of a week are of days of rest, from the first moment on; if it is known

    @classmethod
    def fit(cls, Z: Float, periods: tuple[int, ...], rest: Bool | None = None) -> Shape:
        """The shape of the longest period that the data have often enough; of a day, with days of rest if known."""
        often = [period for period in periods if len(Z) >= CYCLES * period]
        if not often:
            return cls(np.zeros((1, Z.shape[1])), 0.0, rest)
        period = often[-1]
        lines = Folding(period).fold(Z)
        if rest is not None and len(rest) == DAYS * period and len(Z) < CYCLES * len(rest):
            apart = _of_rest(lines, period, rest)
            if apart is not None:
                return cls(*apart, rest)
        values, counts = _means(_clipped(lines), period)
        return cls(_between_phases(values, counts > 0), 1.0 / max(1.0, float(np.median(counts))), rest)

    def expect(self, Z: Float, first: int = 0) -> Float:
        """The shape at the moments of Z, which begins `first` moments after the data that were fitted."""
        return self.values[(first + np.arange(len(Z))) % len(self.values)]


def _clipped(lines: Float) -> Float:
    """Lines with readings no farther from their column's median than they usually are."""
    middle = column_medians(lines)
    bound = CLIP * column_scales(lines - middle)
    return np.clip(lines, middle - bound, middle + bound)


def _means(lines: Float, period: int) -> tuple[Float, Float]:
    """The mean at each phase of each series, 0 where nothing was read, and of how many readings it is."""
    counts = np.sum(~np.isnan(lines), axis=0).reshape(period, -1)
    return np.nansum(lines, axis=0).reshape(period, -1) / np.maximum(counts, 1), counts


def _of_rest(lines: Float, period: int, rest: Bool) -> tuple[Float, float] | None:
    """The shape of a week of which some days are of rest, and its `common`; None if these are not apart."""
    n = lines.shape[1] // period
    resting = np.repeat(np.resize(rest, len(lines) * period), n).reshape(lines.shape)
    working = _clipped(np.where(resting, np.nan, lines))
    usual, counts = _means(working, period)
    other, other_counts = _means(_clipped(np.where(resting, lines, np.nan)), period)
    both = (counts >= WORKING) & (other_counts > 0)
    if not both.any():
        return None
    apart = _smoothed(np.where(both, other - usual, np.nan))
    days, rests = (float(np.median(count[both])) for count in (counts, other_counts))
    share = _share_beyond_chance(working.reshape(-1, period, n) - np.where(both, usual, np.nan), apart, days, rests)
    if share < CERTAIN:
        return None
    usual = np.where(counts > 0, usual, other)  # a phase at which only days of rest were read
    shape = _between_phases(usual, (counts > 0) | (other_counts > 0))
    week = np.tile(shape, (DAYS, 1)) + rest[:, None] * np.tile(share * np.nan_to_num(apart), (DAYS, 1))
    return week, 1.0 / days


def _share_beyond_chance(others: Float, apart: Float, days: float, rests: float) -> float:
    """Of the square of what days of rest are apart from the usual, the share that is more than chance makes of it.

    What each of the other days is apart is given, and how many days there are of each kind: those of rest in pairs, as
    days in succession go together.
    """
    pairs = (others[1:] + others[:-1]) / 2
    squares = [np.nanmean(_smoothed(pair) ** 2) for pair in pairs if not np.isnan(pair).all()]
    if not squares:
        return 0.0
    of_pair = float(np.mean(squares)) / (1.0 - 2.0 / days)  # they are a part of the usual
    by_chance = of_pair * (2.0 / days + 2.0 / rests)
    return 1.0 - by_chance / max(float(np.nanmean(apart**2)), np.finfo(float).tiny)


def _smoothed(x: Float) -> Float:
    """Means over some phases around the period, of what is known; NaN stays."""
    width = max(1, round(len(x) / SMOOTHED))
    known = ~np.isnan(x)
    sums = uniform_filter1d(np.where(known, x, 0.0), width, axis=0, mode="wrap")
    share = uniform_filter1d(known.astype(float), width, axis=0, mode="wrap")
    return np.where(known, sums / np.maximum(share, 1.0 / (2 * width)), np.nan)


def _between_phases(values: Float, read: Bool) -> Float:
    """Values with straight lines, around the period, over phases that were not read; 0 if none was.

    >>> _between_phases(np.array([[1.0], [0.0], [3.0], [0.0]]), np.array([[True], [False], [True], [False]])).ravel()
    array([1., 2., 3., 2.])
    """
    phases = np.arange(len(values))
    for j in np.flatnonzero(~read.all(axis=0) & read.any(axis=0)):
        known = phases[read[:, j]]
        values[:, j] = np.interp(phases, known, values[known, j], period=len(values))
    return values
