"""Long stretches in another unit: a power of ten between two jumps by it.

If a series is in another unit for a sixth of its readings or more, these make up its spread, and nothing is far off.
But then a stretch begins and ends with a step by the same power of ten, up and down or down and up; none of its
readings is where the others of the series are, and divided by that power they are. A stretch that has no end, or that
other series have too, is a change that stays, or an event.
"""

from __future__ import annotations

import numpy as np

from ..sweeps import Float
from .runs import Bool, medians

LEAST, FEWEST, MOST = 0.05, 6, 0.5  # readings of a stretch: share of those of the series, number, share
JUMP = 0.7  # of the decimal logarithm
EDGE, NEAR = 3, 0.15  # readings at each end whose median steps, and how far the step may be from a whole number
LEVEL = 0.35  # how far the median inside, divided by the power, may be from that of the rest, in decimal logarithms
RANGE = 0.02  # quantiles of the rest, beyond which the readings inside are
SHARED = 0.1  # series that have such stretches at a moment, in which case that is an event
TRIED = 4  # of the next jumps, that may be the end


def wrong_units(X: Float) -> Bool:
    """Which readings of series X, NaN where missing, are in long stretches in another unit.

    >>> x = np.linspace(50.0, 90.0, 60) + np.arange(60) % 5
    >>> x[20:35] *= 10
    >>> np.flatnonzero(wrong_units(x[:, None])).tolist() == list(range(20, 35))
    True
    """
    found = np.zeros(X.shape, bool)
    with np.errstate(invalid="ignore", divide="ignore"):
        logarithms = np.log10(X)
    usable = np.isfinite(logarithms)
    for j in np.flatnonzero(~(X < 0).any(axis=0)):
        moments = np.flatnonzero(usable[:, j])
        for begin, end in _stretches(logarithms[moments, j]):
            found[moments[begin:end], j] = True
    shared = np.count_nonzero(found, axis=1) > max(1.0, SHARED * X.shape[1])
    return np.asarray(found & ~shared[:, None])


def _stretches(y: Float) -> list[tuple[int, int]]:
    """The stretches y[begin:end] that stand whole numbers away from the rest, between opposite jumps."""
    steps = np.diff(y)
    jumps = np.flatnonzero(np.abs(steps) > JUMP)
    k = np.arange(len(jumps))[:, None] + np.arange(1, TRIED + 1)
    first, k = np.nonzero(k < len(jumps))[0], k[k < len(jumps)]
    begin, end = jumps[first] + 1, jumps[k] + 1
    length = end - begin
    enough = (length >= max(FEWEST, LEAST * len(y))) & (length < MOST * len(y))
    enough &= steps[begin - 1] * steps[end - 1] < 0
    begin, end = begin[enough], end[enough]
    return [(a, b) for a, b in zip(begin.tolist(), end.tolist(), strict=True) if _in_other_unit(y, a, b)]


def _in_other_unit(y: Float, begin: int, end: int) -> bool:
    inside, rest = y[begin:end], np.concatenate([y[:begin], y[end:]])
    ends = np.array([max(0, begin - EDGE), begin, end - EDGE, end])
    before, first, last, after = medians(y, ends, np.minimum(ends + EDGE, np.array([begin, end, end, len(y)])))
    up, down = first - before, last - after
    power = round((up + down) / 2)
    low, high = np.quantile(rest, [RANGE, 1 - RANGE])
    return bool(
        power
        and max(abs(up - power), abs(down - power)) < NEAR
        and abs(np.median(inside) - power - np.median(rest)) < LEVEL
        and (inside.min() > high if power > 0 else inside.max() < low)
    )
