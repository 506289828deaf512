"""Bad readings, judged in runs: a stretch that is far from what is expected, and that begins and ends with a jump.

What begins and ends with a jump is sought in `jumps`. Numbers that are repeated exactly are stuck, if the series hardly
repeats any, or if they are far from what is expected; a number that a series is at again and again for some time is a
limit of it, such as the speed that is allowed. Of readings at moments that hardly any other series read nothing is
expected here: they are judged in `alone`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..entries.observed import ObservedMatrix
from ..imputation.model import Imputation, Prediction
from ..sweeps import Float
from .correlation import column_scales, column_spreads
from .jumps import TAIL, jumping_runs, shifted_runs, usual_spreads
from .normal import Normal
from .runs import Bool, Index, Runs, distinct

SHARED = 0.5  # residual by all readings, relative to that by good ones, in an event
UNUSUAL = 2.0  # spreads of what the others say about the usual shape, in an event
STUCK = 4  # equal readings in a row, at least
STUCK_FAR = 2.5  # spreads of the residual, on average, at which they are bad however often the series repeats numbers
LIMIT = 3  # runs of a number that are so long, by which it is a limit of the series
CHANCE = 1e-3  # expected number of stuck runs by chance in a series
RIDGE = 0.03  # of the covariances by which readings are judged
ROUNDS, CUT = 3, 3.0  # of cells that are left out, and from which distance on, in spreads
ROUGH = 120_000  # entries of the moments to which what is expected robustly is fitted


Repeats = tuple[Runs, Index]  # runs of one number, and how many of their moments were read


class Expectation(Protocol):
    """What is expected of each entry of Z, which begins `first` moments after the data that were fitted."""

    def expect(self, Z: Float, first: int = 0) -> Float:
        """NaN at entries that are not determined."""


@dataclass(frozen=True)
class LowRankMoments:
    """The low-rank part of moments x series, robust to bad readings: that of `lowsparse.imputation.model`."""

    prediction: Prediction

    @classmethod
    def fit(cls, Z: Float, rng: np.random.Generator) -> LowRankMoments:
        """Fit Z, NaN where missing, or some of its moments."""
        read = np.flatnonzero((~np.isnan(Z)).any(axis=1))
        chosen = rng.choice(read, min(len(read), max(1, ROUGH // Z.shape[1])), replace=False)
        return cls(Imputation.fit(ObservedMatrix.from_dense(Z[np.sort(chosen)]), searches=1).prediction)

    def expect(self, Z: Float, first: int = 0) -> Float:
        """Each moment's robust regression by its own readings; NaN at moments without any."""
        read = (~np.isnan(Z)).any(axis=1)
        expected = np.full(Z.shape, np.nan)
        if read.any():
            expected[read] = self.prediction.rows(ObservedMatrix.from_dense(Z[read]).T, int(read.sum()))
        return expected


@dataclass(frozen=True)
class KnownMoments(LowRankMoments):
    """The same, with what is expected of some data: of others like these, only moments that differ are regressed."""

    given: Float
    expected: Float

    @classmethod
    def of(cls, moments: LowRankMoments, Z: Float) -> KnownMoments:
        """What the moments say of Z is known then."""
        return cls(moments.prediction, Z, moments.expect(Z))

    def expect(self, Z: Float, first: int = 0) -> Float:
        """As of `LowRankMoments`, of data as many as are known."""
        differs = ((self.given != Z) & ~(np.isnan(Z) & np.isnan(self.given))).any(axis=1)
        expected = self.expected.copy()
        expected[differs] = super().expect(Z[differs], first)
        return expected


@dataclass(frozen=True)
class GoodCells:
    """What the others say of a reading, without those of them that are far from what is expected of them in turn.

    Quicker than `LowRankMoments`, and less robust where there are few readings.
    """

    normal: Normal
    wide: Float  # spread of each series
    spreads: Float  # of what is left of it

    @classmethod
    def fit(cls, Z: Float) -> GoodCells:
        """Fit Z, NaN where missing, or some of its moments."""
        some = Z[:: max(1, Z.size // ROUGH)]
        wide = column_spreads(some, TAIL)
        given = _near(some, 0.0, wide)
        normal = Normal.fit(given, RIDGE, local=False)
        for _ in range(ROUNDS - 1):
            expected = normal.expect(given)
            given = _near(some, expected, column_spreads(some - expected, TAIL))
            normal = Normal.fit(given, RIDGE, local=False, start=normal)
        return cls(normal, wide, column_spreads(some - normal.expect(given), TAIL))

    def expect(self, Z: Float, first: int = 0) -> Float:
        """NaN at moments with few readings."""
        expected = self.normal.expect(_near(Z, 0.0, self.wide))
        for _ in range(ROUNDS - 1):
            expected = self.normal.expect(_near(Z, expected, self.spreads))
        return expected


def _near(Z: Float, expected: Float | float, spreads: Float) -> Float:
    """Z without readings that are far from what is expected."""
    return np.where(np.abs(Z - expected) > CUT * spreads, np.nan, Z)


@dataclass(frozen=True)
class Judge:
    """Says which readings are good: not in bad runs about a robust expectation, nor about those of the good ones."""

    robust: tuple[Expectation, ...]
    closer: Normal  # needs readings without errors
    caution: float

    @classmethod
    def fit(
        cls,
        Z: Float,
        expected: Float,
        robust: tuple[Expectation, ...],
        aside: Bool,
        caution: float,
        start: Normal | None,
    ) -> tuple[Judge, Bool]:
        """Learn from the readings of Z that were not kept aside, given what is expected robustly; the good readings."""
        repeats = find_repeats(Z)
        good = ~bad_runs(Z, expected, caution, repeats) & ~np.isnan(Z)
        closer = Normal.fit(np.where(good & ~aside, Z, np.nan), RIDGE, start=start)
        judge = cls(robust, closer, caution)
        return judge, judge._closer(Z, good, repeats)

    def good(self, Z: Float, first: int = 0) -> Bool:
        """The good readings of Z, which begins `first` moments after the data that were fitted."""
        repeats = find_repeats(Z)
        good = ~bad_runs(Z, closest(self.robust, Z, first), self.caution, repeats) & ~np.isnan(Z)
        return self._closer(Z, good, repeats, first)

    def _closer(self, Z: Float, good: Bool, repeats: Repeats, first: int = 0) -> Bool:
        read = ~np.isnan(Z)
        expected = self.closer.expect(np.where(good, Z, np.nan), first)
        bad = bad_runs(Z, expected, self.caution, repeats) & read
        rest = np.where(bad, np.nan, Z)
        bad |= shifted_runs(rest, rest - expected, self.caution)
        return np.asarray(read & (~bad | self._seen_by_others(Z, bad & ~stuck_runs(Z, repeats), bad, first)))

    def _seen_by_others(self, Z: Float, asked: Bool, bad: Bool, first: int) -> Bool:
        """Of the bad readings those asked for in runs that the other series saw too: events, as an error is of one.

        Others explain an event if their bad readings are taken as good, or the good ones are unusual in the same
        direction. It stays within what the good readings of the series have shown.
        """
        given = np.where(bad, np.nan, Z)
        expected = self.closer.expect(given, first)
        runs = Runs.of(asked)
        E, departs = Z - expected, expected - self.robust[-1].expect(Z, first)
        rest = runs.medians(np.abs(Z - self.closer.expect_at(np.flatnonzero(bad.any(axis=1)), Z, first)))
        far = UNUSUAL * usual_spreads(departs)[runs.series]
        explained = rest < SHARED * runs.medians(np.abs(E))
        unusual = np.sign(runs.medians(E)) * runs.medians(departs) > far
        z = runs.medians(Z)
        within = (np.fmin.reduce(given)[runs.series] <= z) & (z <= np.fmax.reduce(given)[runs.series])
        return runs.take(within & (explained | unusual)).mask((Z.shape[0], Z.shape[1]))


def closest(expectations: tuple[Expectation, ...], Z: Float, first: int = 0) -> Float:
    """Of each series, the expectation that is closest to its readings."""
    best, found = np.full(Z.shape[1], np.inf), np.full(Z.shape, np.nan)
    for expectation in expectations:
        expected = expectation.expect(Z, first)
        scales = column_scales(Z - expected)
        found = np.where(scales < best, expected, found)
        best = np.minimum(scales, best)
    return found


def bad_runs(Z: Float, expected: Float, caution: float = 1.0, repeats: Repeats | None = None) -> Bool:
    """Which readings of Z are in bad runs, given the expected values; FAR and JUMP are multiplied by the caution.

    Z are series about their medians; the runs of `find_repeats` are given if they are known.

    A series that is constant, 0 in units of its scale, has no bad reading.
    """
    E = Z - expected
    varies = (np.abs(Z) > 0).any(axis=0)
    spreads = np.maximum(usual_spreads(E), _spreads_apart(Z))
    repeats = repeats or find_repeats(Z)
    stuck = stuck_runs(Z, repeats) | _stuck_and_far(repeats, np.abs(E) / spreads, caution)
    return np.asarray((jumping_runs(E, caution, spreads, Z) | stuck) & varies)


def _spreads_apart(Z: Float) -> Float:
    """The spread of the readings apart from 0, of series that mostly are at 0, such as rain; 0 of others.

    What is usual of their residual says nothing of the readings that matter.

    >>> _spreads_apart(np.array([[0.0, 1.0], [0.0, 2.0], [1.0, 0.0], [0.0, -1.0]])).round(2).tolist()
    [1.48, 0.0]
    """
    mostly = 2 * np.sum(Z == 0, axis=0) > np.sum(~np.isnan(Z), axis=0)
    spreads = np.zeros(Z.shape[1])
    spreads[mostly] = column_spreads(np.where(Z == 0, np.nan, Z)[:, mostly], TAIL)
    return spreads


def stuck_runs(Z: Float, repeats: Repeats | None = None) -> Bool:
    """Readings in runs of one number that are too long to be by chance, given how often the series repeats a number.

    If they are known, the runs of `find_repeats` are given.

    >>> x = np.arange(40.0)
    >>> x[10:16] = 10.0
    >>> np.flatnonzero(stuck_runs(x[:, None])).tolist()
    [10, 11, 12, 13, 14, 15]
    """
    runs, lengths = repeats or find_repeats(Z)
    if not len(runs):
        return np.zeros(Z.shape, bool)
    readings = np.sum(~np.isnan(Z), axis=0)
    # how often a number is repeated, of the starts of runs: long runs do not count for more
    begins = np.bincount(runs.series, minlength=Z.shape[1])
    repeated = (begins + 1.0) / (readings + 2.0)
    again = np.bincount(runs.series, np.minimum(lengths - 1, 1), minlength=Z.shape[1])
    share = np.maximum(repeated, (again + 1.0) / (begins + 2.0) * (begins >= STUCK))
    expected = readings[runs.series] * share[runs.series] ** lengths
    long = lengths + 1 >= STUCK
    _, number = distinct(np.column_stack([runs.series, runs.medians(Z)]))
    limit = np.bincount(number, long)[number] >= LIMIT
    stuck = runs.take(long & (expected < CHANCE) & ~limit)
    return Runs(stuck.series, stuck.begin - 1, stuck.end).mask((Z.shape[0], Z.shape[1]))


def _stuck_and_far(repeats: Repeats, apart: Float, caution: float) -> Bool:
    """Readings in runs of one number that are far from what is expected on average, in spreads of the residual."""
    runs, lengths = repeats
    runs = runs.take(lengths + 1 >= STUCK)
    runs = Runs(runs.series, runs.begin - 1, runs.end)
    known = ~np.isnan(apart)
    far = runs.sums(np.where(known, apart, 0.0)) > caution * STUCK_FAR * runs.sums(known)
    return runs.take(far).mask((apart.shape[0], apart.shape[1]))


def find_repeats(Z: Float) -> Repeats:
    """Runs of moments at which a series has the number of the reading before, and how many of them were read.

    >>> runs, readings = find_repeats(np.array([[1.0], [1.0], [np.nan], [1.0], [2.0]]))
    >>> runs.begin.tolist(), runs.end.tolist(), readings.tolist()
    ([1], [4], [2])
    """
    read = ~np.isnan(Z)
    last = np.maximum.accumulate(np.where(read, np.arange(len(Z))[:, None], 0), axis=0)
    numbers = np.take_along_axis(Z, last, axis=0)
    same = np.zeros(Z.shape, bool)
    same[1:] = numbers[1:] == numbers[:-1]
    runs = Runs.of(same)
    readings = runs.sums(same & read).astype(np.intp)
    return runs.take(readings > 0), readings[readings > 0]
