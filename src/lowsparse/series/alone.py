"""Bad readings at moments that hardly any other series read, where the others say nothing.

Such a reading is expected to be the usual shape of its period and what is bridged of the series' readings at other
moments. It is bad if it is far from that, for how uncertain this is: a lone reading on a day that nobody else read
would draw all that is filled beside it to itself.
"""

from __future__ import annotations

import numpy as np

from ..sweeps import Float
from .bridging import Bridge, Gaps
from .jumps import FAR, LEAST, STAYS
from .normal import FEW
from .runs import Bool


def read_alone(good: Bool) -> Bool:
    """The good readings at moments with few of them, by which the others are not determined.

    >>> good = np.ones((5, 8), bool)
    >>> good[2, 1:] = False
    >>> np.argwhere(read_alone(good)).tolist()
    [[2, 0]]
    """
    counts = good.sum(axis=1)
    usual = np.median(counts[counts > 0]) if counts.any() else 0.0
    return np.asarray(good & (counts < FEW * usual)[:, None])


def bad_alone(rest: Float, alone: Bool, bridge: Bridge, caution: float) -> Bool:
    """Of the readings alone, those far from what is bridged; `rest` is what the usual shape leaves of the good ones.

    A level that stays is not bad, however far it is.

    >>> rest = np.sin(np.arange(300.0) / 10)[:, None] + np.zeros(8)
    >>> rest[100:110, 1:] = np.nan
    >>> rest[105, 0] += 3
    >>> alone = read_alone(~np.isnan(rest))
    >>> np.argwhere(bad_alone(rest, alone, Bridge.fit(rest, ()), 1.0)).tolist()
    [[105, 0]]
    """
    others = np.where(alone, np.nan, rest)
    expected, spreads = bridge.predict_with_spreads(others, Gaps.of(~np.isnan(others), alone, bridge.periods))
    bad = np.zeros(alone.shape, bool)
    bad[alone] = np.abs(rest[alone] - expected) > caution * FAR * np.maximum(spreads, LEAST)
    return np.asarray(bad & (np.sum(bad, axis=0) < STAYS * np.sum(~np.isnan(rest), axis=0)))
