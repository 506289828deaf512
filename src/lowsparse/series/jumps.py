"""Stretches of readings that begin and end with a jump.

A single reading may be far off because the series has a heavy tail: a peak rises and falls. Errors (a spike, zeros,
another unit, a shifted stretch) begin and end from one moment to the next. So the residual e of a series is cut into
maximal runs of readings with |e| > FAR spreads, and a run is bad if e jumps, by more than JUMP times the usual step,
where it begins and where it ends; the first and last reading of a series count as jumps. The same with 2, 4, ...
times FAR: an error may stand on a peak; and with half of FAR, if the run is long: a shifted stretch is sure by its
length. A run that stays for very long is not bad: the level has shifted.

Where the others say little of a series, as of the speed at one place of a road, e is far off in real events too, and
noisy, while the series follows its own readings closely. There two more things are asked. An event takes two or three
readings to begin and to end, so each jump of an error must be most of the way (`_whole_jumps`). And a shifted stretch
that is not far off by e is found as one that is as steady as the readings beside it, between opposite jumps
(`shifted_runs`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..linalg.scale import CONSISTENT, median
from ..sweeps import Float
from .correlation import column_spreads, spread
from .runs import Bool, Index

FAR = 5.0  # spreads of the residual
JUMP = 6.0  # spreads of its steps from reading to reading
LEAST = 0.02  # spread of the residual, in units of the series: what is closer is no error
TAIL = 0.85  # of the residuals of a series, by which their spread is known: so many are not in a bad run
LONG, NEARER = 12, 0.5  # readings of a long run, and how far it must be relative to FAR
STAYS = 0.2  # share of the readings of a series that are no bad run
FEWEST = 4  # readings of a series that is judged
FOLLOWS = 1.5  # spread of the steps of a series that follows its own readings, relative to those of its residual
WHOLE, EDGE = 0.7, 3  # of the way to the median of so many residuals, that the first and last step of an error are
RANGE, MARGIN = 0.01, 0.5  # quantiles of a series, and how far beyond them, relative to their distance, is no event
# Of a steady stretch: its readings, at least; jumps in spreads of steps, in robust scales of the steps beside them,
# and of the smaller one relative to the other; how many of the next jumps may be its end.
STEADY, STEP, STEP_BESIDE, ALIKE, TRIED = 6, 2.0, 4.0, 0.4, 8
BESIDE = 12  # readings on each side
APART = 2.5  # height of the jumps, in spreads of the residual
HEIGHT = (0.55, 1.4)  # of the residual above those beside the stretch, relative to the jumps
ROUGH, ROUGH_BEYOND = 0.15, 0.25  # robust scale of the steps and residuals inside, relative to the jumps
BEYOND = 0.3  # distance beyond the quantiles RANGE, relative to theirs from the median, at which it may be rougher
USUAL = 0.25  # share of the readings of the series at about the level of the stretch


def usual_spreads(E: Float) -> Float:
    """The spread of each column of residuals, of most of it, and not too small."""
    return np.maximum(column_spreads(E, TAIL), LEAST)


@dataclass(frozen=True)
class _Readings:
    """The readings z of a series, and their residuals e."""

    z: Float
    e: Float

    @cached_property
    def step(self) -> float:
        """The spread of the steps of z."""
        return spread(np.diff(self.z), TAIL)

    @cached_property
    def residual_step(self) -> float:
        """The spread of the steps of e."""
        return spread(np.diff(self.e), TAIL)

    @property
    def follows(self) -> bool:
        """Whether the steps of the series are small, relative to those of its residual."""
        return self.step < FOLLOWS * self.residual_step


def jumping_runs(E: Float, caution: float = 1.0, spreads: Float | None = None, Z: Float | None = None) -> Bool:
    """Readings in runs of residuals that are far from 0, and begin and end with a jump; NaN is missing.

    With the readings Z, runs of series that follow their own readings must begin and end with a whole jump.

    >>> E = np.tile([0.1, -0.1, 0.2, -0.2], 10)
    >>> E[30:33] += 9
    >>> np.flatnonzero(jumping_runs(E[:, None])).tolist()
    [30, 31, 32]
    """
    bad = np.zeros(E.T.shape, bool)
    lines, numbers = np.ascontiguousarray(E.T), np.ascontiguousarray((E if Z is None else Z).T)
    for j, scale in enumerate(usual_spreads(E) if spreads is None else spreads):
        readings = np.flatnonzero(~np.isnan(lines[j]))
        if len(readings) < FEWEST:
            continue
        own = _Readings(numbers[j, readings], lines[j, readings])
        usual = caution * JUMP * max(own.residual_step, 0.1 * scale)
        jumps = np.concatenate([[True], np.abs(np.diff(own.e)) > usual, [True]])
        far, least = caution * NEARER * FAR * scale, LONG
        outside = np.flatnonzero(np.abs(own.e) > far)
        while outside.size:
            begin, end = _between_jumps(outside, own.e, jumps, least)
            if len(begin) and Z is not None and own.follows:
                whole = _whole_jumps(own, begin, end)
                begin, end = begin[whole], end[whole]
            bad[j, readings[_between(begin, end)]] = True
            far, least = 2 * far, 1
            outside = outside[np.abs(own.e[outside]) > far]
    return np.ascontiguousarray(bad.T)


def _between(begin: Index, end: Index) -> Index:
    """All positions from each begin up to its end."""
    lengths = end - begin
    return np.repeat(end - np.cumsum(lengths), lengths) + np.arange(lengths.sum())


def _between_jumps(outside: Index, e: Float, jumps: Bool, least: int) -> tuple[Index, Index]:
    """The begins and ends of runs of one sign among the residuals outside, between jumps, that do not stay.

    They are not shorter than `least`; `jumps` says whether there is one before each residual, and after the last.
    """
    edges = np.flatnonzero((np.diff(outside) > 1) | np.diff(e[outside] > 0)) + 1
    begin, end = outside[np.concatenate([[0], edges])], outside[np.concatenate([edges, [0]]) - 1] + 1
    length = end - begin
    wrong = jumps[begin] & jumps[end] & (length < STAYS * len(e)) & (length >= least)
    return begin[wrong], end[wrong]


def _whole_jumps(own: _Readings, begin: Index, end: Index) -> Bool:
    """Which runs begin and end with most of the way to their first and last residuals, or are at no usual level."""
    low, high = np.quantile(own.z, [RANGE, 1 - RANGE])
    margin = MARGIN * (high - low)
    steps = np.concatenate([[np.inf], np.abs(np.diff(own.e)), [np.inf]])
    found = np.zeros(len(begin), bool)
    for k, (a, b) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        first, last = median(own.e[a : min(b, a + EDGE)]), median(own.e[max(a, b - EDGE) : b])
        whole = steps[a] >= WHOLE * abs(first) and steps[b] >= WHOLE * abs(last)
        found[k] = whole or not low - margin <= median(own.z[a:b]) <= high + margin
    return found


def shifted_runs(Z: Float, E: Float, caution: float = 1.0) -> Bool:
    """Readings in steady stretches between opposite jumps, of series that follow their own readings; NaN is missing.

    >>> rng = np.random.default_rng(1)
    >>> z = 0.1 * rng.standard_normal(300)
    >>> z[100:120] += 3
    >>> E = z + 0.3 * rng.standard_normal(300)  # the others say little
    >>> np.flatnonzero(shifted_runs(z[:, None], E[:, None])).tolist() == list(range(100, 120))
    True
    """
    bad = np.zeros(Z.shape, bool)
    for j in range(Z.shape[1]):
        readings = np.flatnonzero(~np.isnan(E[:, j]))
        own = _Readings(Z[readings, j], E[readings, j])
        if len(readings) < 4 * BESIDE or not own.follows:
            continue
        stretch = _Stretches.of(own, caution)
        jumps = stretch.jumps().tolist()
        for k, a in enumerate(jumps):
            end = next((b for b in jumps[k + 1 : k + 1 + TRIED] if stretch.is_shifted(a, b)), a)
            bad[readings[a + 1 : end + 1], j] = True
    return bad


@dataclass(frozen=True)
class _Stretches:
    """The steps of the readings of a series, and what a stretch between two of them is compared with."""

    own: _Readings
    caution: float
    d: Float  # steps of z
    spread: float  # of the residual
    low: float  # a stretch below or above is at no usual level
    high: float

    @classmethod
    def of(cls, own: _Readings, caution: float) -> _Stretches:
        low, middle, high = np.quantile(own.z, [RANGE, 0.5, 1 - RANGE])
        low, high = low - BEYOND * (middle - low), high + BEYOND * (high - middle)
        return cls(own, caution, np.diff(own.z), max(spread(own.e, TAIL), LEAST), low, high)

    def jumps(self) -> Index:
        """Steps that are large, also relative to those on one of their sides."""
        sizes = np.abs(self.d)
        found = np.flatnonzero(sizes > self.caution * STEP * max(self.own.step, LEAST))
        mirrored, side = np.pad(sizes, BESIDE, mode="reflect"), np.arange(BESIDE)
        around = [mirrored[found[:, None] + first + side] for first in (0, BESIDE + 1)]
        beside = CONSISTENT * np.minimum(*(np.median(steps, axis=1) for steps in around))
        return np.asarray(found[sizes[found] > self.caution * STEP_BESIDE * beside])

    def is_shifted(self, a: int, b: int) -> bool:
        """Whether the readings after step a, up to step b, are a steady stretch that stands apart."""
        d, z, e = self.d, self.own.z, self.own.e
        smaller, larger = sorted((abs(d[a]), abs(d[b])))
        if d[a] * d[b] >= 0 or smaller < ALIKE * larger or not STEADY <= b - a < STAYS * len(z):
            return False
        height = (d[a] - d[b]) / 2
        inside = slice(a + 1, b + 1)
        level, middle = median(e[inside]), median(z[inside])
        beside = (median(e[max(0, a + 1 - BESIDE) : a + 1]) + median(e[b + 1 : b + 1 + BESIDE])) / 2
        if abs(height) < self.caution * APART * self.spread or not HEIGHT[0] < (level - beside) / height < HEIGHT[1]:
            return False
        rough = ROUGH if self.low <= middle <= self.high else ROUGH_BEYOND
        steady = CONSISTENT * median(np.abs(d[a + 1 : b])) <= rough * smaller and CONSISTENT * median(
            np.abs(e[inside] - level)
        ) <= rough * abs(height)
        return bool(steady and np.mean(np.abs(z - middle) < abs(height) / 2) <= USUAL)
