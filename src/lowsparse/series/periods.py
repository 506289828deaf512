"""The periods of many series: a day, a week, several or none, found from the correlation of the data with themselves.

The correlations of all series are averaged. The period is the first lag at which this average has a peak that
stands out from the lags half a period before and after it; a longer one (a week of days) is the multiple of it whose
peak stands out from the multiples beside it.
"""

from __future__ import annotations

import math

import numpy as np

from ..sweeps import Float
from .correlation import autocorrelation

SHORTEST = 4  # moments of a period
PEAK = 0.05  # correlation above those half a period before and after
CHANCE = 4.0  # the same, in standard deviations of the correlation of independent numbers
NEAR = 0.05  # distance of a usual period from the first peak, at which that is taken for it
MULTIPLES = range(2, 13)  # of the first period that may be another period
ABOVE = 0.01  # correlation above those at the multiples beside it


def find_periods(Z: Float, usual: tuple[int, ...] = ()) -> tuple[int, ...]:
    """The periods of the columns of Z, numbers about 0, NaN missing: none, one, or one and a multiple of it.

    A usual period that is near the one found is taken for it: where a day is known to have 288 moments, it has no 289.

    >>> t = np.arange(24 * 60)[:, None]
    >>> rng = np.random.default_rng(1)
    >>> Z = np.sin(2 * np.pi * t / 24) * (1 + (t // 24 % 7 < 5)) + 0.3 * rng.standard_normal((len(t), 5))
    >>> find_periods(Z), find_periods(rng.standard_normal((500, 5)))
    ((24, 168), ())
    """
    lags = len(Z) // 2
    if lags < 2 * SHORTEST or np.isnan(Z).all():
        return ()
    r = autocorrelation(Z, lags).mean(axis=1)
    first = _first_peak(r, max(PEAK, CHANCE / math.sqrt(len(Z))))
    if first is None:
        return ()
    first = next((p for p in usual if abs(p - first) <= NEAR * p), None) or _refine(r, first)
    multiple = _multiple(r, first)
    return (first,) if multiple is None else (first, multiple)


def _first_peak(r: Float, least: float) -> int | None:
    """The first lag h at which r(h) - (r(h/2) + r(3h/2)) / 2 is large; it is negative where r only decays."""
    lags = np.arange(len(r) * 2 // 3)
    above = r[lags] - (r[lags // 2] + r[np.minimum(lags + lags // 2, len(r) - 1)]) / 2
    above[:SHORTEST] = 0.0
    peaks = [h for h in lags[SHORTEST:] if r[h] >= r[h - max(1, h // 8) : h + max(1, h // 8) + 1].max()]
    enough = max(least, max((float(above[h]) for h in peaks), default=0.0) / 2)
    return next((int(h) for h in peaks if above[h] >= enough), None)


def _refine(r: Float, first: int) -> int:
    """The period near the peak whose multiples have the largest correlations."""
    near = max(1, round(NEAR * first))
    candidates = [p for p in range(first - near, first + near + 1) if p >= SHORTEST]
    last = (len(r) - 1) // max(candidates)
    return max(candidates, key=lambda p: float(r[p * np.arange(1, last + 1)].mean()))


def _multiple(r: Float, first: int) -> int | None:
    last = (len(r) - 1) // first
    above = {
        k: r[k * first] - (r[(k - 1) * first] + r[(k + 1) * first]) / 2
        for k in MULTIPLES
        if k + 1 <= last  # the multiple after it can be compared with
    }
    best = max(above, key=lambda k: float(above[k]), default=None)
    return best * first if best is not None and above[best] > ABOVE else None
