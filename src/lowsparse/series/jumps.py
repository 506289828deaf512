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

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..linalg.scale import CONSISTENT, median
from ..sweeps import Float
from .correlation import column_spreads, spread
from .runs import Bool, Index, medians

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
    """The readings z of all series and their residuals e, one series after the other."""

    z: Float
    e: Float
    series: Index  # of each
    moments: Index
    first: Index  # of each series, and the number of all

    @classmethod
    def of(cls, E: Float, Z: Float) -> _Readings:
        """The entries of which the residual is known."""
        series, moments = np.nonzero(~np.isnan(E.T))
        first = np.searchsorted(series, np.arange(E.shape[1] + 1))
        return cls(Z[moments, series], E[moments, series], series, moments, first)

    @property
    def counts(self) -> Index:
        """Of each series."""
        return np.diff(self.first)

    @cached_property
    def step(self) -> Float:
        """The spread of the steps of z, of each series."""
        return self._spreads_of_steps(self.z)

    @cached_property
    def residual_step(self) -> Float:
        """The spread of the steps of e, of each series."""
        return self._spreads_of_steps(self.e)

    @property
    def follows(self) -> Bool:
        """Whether the steps of a series are small, relative to those of its residual."""
        return np.asarray(self.step < FOLLOWS * self.residual_step)

    def of_series(self, x: Float) -> list[Float]:
        """The numbers x of the readings of each series."""
        return np.split(x, self.first[1:-1])

    def mask(self, marked: Bool, shape: tuple[int, ...]) -> Bool:
        """The moments x series mask of marked readings."""
        found = np.zeros(shape, bool)
        found[self.moments[marked], self.series[marked]] = True
        return found

    def _spreads_of_steps(self, x: Float) -> Float:
        return np.array([spread(np.diff(own), TAIL) for own in self.of_series(x)])


def jumping_runs(E: Float, caution: float = 1.0, spreads: Float | None = None, Z: Float | None = None) -> Bool:
    """Readings in runs of residuals that are far from 0, and begin and end with a jump; NaN is missing.

    With the readings Z, runs of series that follow their own readings must begin and end with a whole jump.

    >>> E = np.tile([0.1, -0.1, 0.2, -0.2], 10)
    >>> E[30:33] += 9
    >>> np.flatnonzero(jumping_runs(E[:, None])).tolist()
    [30, 31, 32]
    """
    own = _Readings.of(E, E if Z is None else Z)
    scales = usual_spreads(E) if spreads is None else spreads
    usual = caution * JUMP * np.maximum(own.residual_step, 0.1 * scales)
    steps = _steps(own)
    jumps = steps > np.append(usual[own.series], 0.0)
    follows = own.follows if Z is not None else np.zeros(len(scales), bool)
    sizes, bad = np.abs(own.e), np.zeros(len(own.e), bool)
    far, least = (caution * NEARER * FAR * scales)[own.series], LONG
    outside = np.flatnonzero((sizes > far) & (own.counts >= FEWEST)[own.series])
    while outside.size:
        begin, end = _between_jumps(outside, own, jumps, least)
        asked = follows[own.series[begin]]
        asked[asked] = ~_whole_jumps(own, steps, begin[asked], end[asked])
        bad[_between(begin[~asked], end[~asked])] = True
        far, least = 2 * far, 1
        outside = outside[sizes[outside] > far[outside]]
    return own.mask(bad, E.shape)


def _steps(own: _Readings) -> Float:
    """The size of the step of e to each reading, and after the last one; infinite where a series begins or ends."""
    steps = np.full(len(own.e) + 1, np.inf)
    steps[1:-1] = np.abs(np.diff(own.e))
    steps[own.first] = np.inf
    return steps


def _between(begin: Index, end: Index) -> Index:
    """All positions from each begin up to its end."""
    lengths = end - begin
    return np.repeat(end - np.cumsum(lengths), lengths) + np.arange(lengths.sum())


def _between_jumps(outside: Index, own: _Readings, jumps: Bool, least: int) -> tuple[Index, Index]:
    """The begins and ends of runs of one sign among the residuals outside, between jumps, that do not stay.

    They are not shorter than `least`; `jumps` says whether there is one before each residual, and after the last.
    """
    series = own.series[outside]
    edges = np.flatnonzero((np.diff(outside) > 1) | np.diff(own.e[outside] > 0) | np.diff(series).astype(bool)) + 1
    begin, end = outside[np.concatenate([[0], edges])], outside[np.concatenate([edges, [0]]) - 1] + 1
    length = end - begin
    stays = STAYS * own.counts[own.series[begin]]
    wrong = jumps[begin] & jumps[end] & (length < stays) & (length >= least)
    return begin[wrong], end[wrong]


def _whole_jumps(own: _Readings, steps: Float, begin: Index, end: Index) -> Bool:
    """Which runs begin and end with most of the way to their first and last residuals, or are at no usual level."""
    first = medians(own.e, begin, np.minimum(end, begin + EDGE))
    last = medians(own.e, np.maximum(begin, end - EDGE), end)
    found = (steps[begin] >= WHOLE * np.abs(first)) & (steps[end] >= WHOLE * np.abs(last))
    rest = np.flatnonzero(~found)
    levels, series = medians(own.z, begin[rest], end[rest]), own.series[begin[rest]]
    for j in np.unique(series):
        low, high = np.quantile(own.z[own.first[j] : own.first[j + 1]], [RANGE, 1 - RANGE])
        margin, here = MARGIN * (high - low), series == j
        found[rest[here]] = ~((low - margin <= levels[here]) & (levels[here] <= high + margin))
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
    own = _Readings.of(E, Z)
    bad = np.zeros(len(own.e), bool)
    for j in np.flatnonzero(own.follows & (own.counts >= 4 * BESIDE)):
        inside = slice(own.first[j], own.first[j + 1])
        stretch = _Stretches.of(own.z[inside], own.e[inside], float(own.step[j]), caution)
        for a, b in stretch.shifted():
            bad[inside][a + 1 : b + 1] = True
    return own.mask(bad, Z.shape)


@dataclass(frozen=True)
class _Stretches:
    """The readings z and residuals e of a series, and what a stretch between two of its steps is compared with."""

    z: Float
    e: Float
    d: Float  # steps of z
    step: float  # their spread
    caution: float
    spread: float  # of the residual
    low: float  # a stretch below or above is at no usual level
    high: float

    @classmethod
    def of(cls, z: Float, e: Float, step: float, caution: float) -> _Stretches:
        low, middle, high = np.quantile(z, [RANGE, 0.5, 1 - RANGE])
        low, high = low - BEYOND * (middle - low), high + BEYOND * (high - middle)
        return cls(z, e, np.diff(z), step, caution, max(spread(e, TAIL), LEAST), low, high)

    def jumps(self) -> Index:
        """Steps that are large, also relative to those on one of their sides."""
        sizes = np.abs(self.d)
        found = np.flatnonzero(sizes > self.caution * STEP * max(self.step, LEAST))
        mirrored, side = np.pad(sizes, BESIDE, mode="reflect"), np.arange(BESIDE)
        around = [mirrored[found[:, None] + first + side] for first in (0, BESIDE + 1)]
        beside = CONSISTENT * np.minimum(*(np.median(steps, axis=1) for steps in around))
        return np.asarray(found[sizes[found] > self.caution * STEP_BESIDE * beside])

    def shifted(self) -> Iterator[tuple[int, int]]:
        """The steps between which the readings are a steady stretch that stands apart; the first end of each begin."""
        jumps = self.jumps()
        k, after = np.nonzero(self._opposite(jumps))
        begin, end = self._standing_apart(jumps[k], jumps[k + 1 + after])
        last = -1
        for a, b in zip(begin.tolist(), end.tolist(), strict=True):
            height = abs(self.d[a] - self.d[b]) / 2
            if a != last and np.mean(np.abs(self.z - median(self.z[a + 1 : b + 1])) < height / 2) <= USUAL:
                last = a
                yield a, b

    def _opposite(self, jumps: Index) -> Bool:
        """Of each jump, and the next ones in columns, whether they are alike, opposite, high, and as far apart."""
        after = np.arange(len(jumps))[:, None] + 1 + np.arange(TRIED)
        there = after < len(jumps)
        first, second = self.d[jumps][:, None], self.d[jumps[np.where(there, after, 0)]]
        length = jumps[np.where(there, after, 0)] - jumps[:, None]
        smaller = np.minimum(np.abs(first), np.abs(second))
        alike = smaller >= ALIKE * np.maximum(np.abs(first), np.abs(second))
        high = np.abs(first - second) / 2 >= self.caution * APART * self.spread
        between = (length >= STEADY) & (length < STAYS * len(self.z))
        return np.asarray(there & (first * second < 0) & alike & high & between)

    def _standing_apart(self, begin: Index, end: Index) -> tuple[Index, Index]:
        """Of pairs of steps, those between which the readings are steady and stand apart from those beside them."""
        d, e = self.d, self.e
        level, height = medians(e, begin + 1, end + 1), (d[begin] - d[end]) / 2
        before = medians(e, np.maximum(0, begin + 1 - BESIDE), begin + 1)
        beside = (before + medians(e, end + 1, np.minimum(end + 1 + BESIDE, len(e)))) / 2
        apart = (HEIGHT[0] < (level - beside) / height) & ((level - beside) / height < HEIGHT[1])
        begin, end, level, height = begin[apart], end[apart], level[apart], height[apart]
        middle = medians(self.z, begin + 1, end + 1)
        rough = np.where((self.low <= middle) & (middle <= self.high), ROUGH, ROUGH_BEYOND)
        smaller = np.minimum(np.abs(d[begin]), np.abs(d[end]))
        steady = CONSISTENT * medians(np.abs(d), begin + 1, end) <= rough * smaller
        steady &= CONSISTENT * medians(e, begin + 1, end + 1, level) <= rough * np.abs(height)
        return begin[steady], end[steady]
