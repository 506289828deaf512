"""The model of series: several predictions of every gap, mixed as what was kept aside asks for.

A series is x = centre + scale z. A part of the model expects L of z, and adds what is bridged of z - L (`bridging`):

- L is the usual shape of the period: the series by itself (`shape`);
- L is what the other series say at the moment (`normal`): once by covariances as they are, for series that determine
  each other, once by covariances with a ridge, and twice, with a small and a large ridge, by the moments before and
  after too;
- L is of low rank, moments x series, if there are few entries (`judging`); once without the bridge;
- L is of low rank, days x (hour of day, series), if there is a period: what the day and the others say (`folding`); and
  the same with days that begin at noon, whose errors at the ends of days are others.

Where L is not determined, as on a day that nobody read, it is the usual shape, with a bridge of what stands out from
it.

Three more predictions are straight lines between the readings at the ends of the gap: of z, of what the shape leaves,
and, in short gaps, with the bends that the moments around and the other series let expect (`bends`).

They are fitted to the data less some readings, which were kept aside in the pattern of those that are missing, and of
bad ones unless almost none are bad; on these the weights of the mixture are found, by how far the next reading is,
whether the moment was read by the others, and by series. Then they are fitted to all good readings. Which ones are good
is judged before (`judging`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..robust.calibration import Calibration, Sizes, sizes_by_other_pieces, usual_sizes
from ..support.threads import one_blas_thread
from ..sweeps import Float
from .alone import bad_alone, read_alone
from .bends import REACH, Bends, straight_lines
from .bridging import Bridge, Gaps
from .correlation import column_medians, column_scales, count_pairs, largest_lag
from .folding import Folding, Lines
from .judging import Expectation, GoodCells, Judge, KnownMoments, LowRankMoments, closest
from .keeping import keep_aside, keep_single_aside
from .lengths import gap_lengths, length_weights
from .mixing import Mixture
from .normal import FURTHER, Normal
from .runs import Bool, distances_to_readings, within
from .shape import Shape
from .units import wrong_units

SHARP, SMOOTH, LAGGED, LAGGED_SMOOTH = 1e-6, 0.03, 0.1, 1.0  # ridges of covariances
LAGS = (0, 1, -1)
STRAIGHT = 3  # predictions by straight lines, the last ones
SUCCESSION = 0.1  # share of the moments that were read after which the next one was too, that is enough for lags
SHRINKAGE = 0.1, 0.3  # of days from midnight, and from noon
SHORT = 2  # moments to the readings on both sides, at most, of entries in the first class
FARTHEST = 6  # log2 of the distance to the next reading, at which the classes of the others end
GROUP = FARTHEST + 2  # classes
SEEN = (0.85, 0.5)  # readings of a moment, relative to the usual number: bounds of the groups of classes
UNSEEN = GROUP * len(SEEN)  # the first class of moments that most of the series did not see
SMALL = 250_000  # entries of a table whose moments are also fitted by a low-rank part
LINES = 4  # periods that the data must have to be folded
CAUTIONS = (1.0, 2.0, 4.0)  # in judging readings: the one is taken with which what was kept aside is predicted best
# Entries of the stretch of time of a large table in which it is chosen, and its least moments.
STRETCH, SHORTEST = 150_000, 1000
LARGEST = 20.0  # error, in usual ones of the series, that counts in this choice: a reading kept aside may be bad
EQUAL = 0.002  # part by which means of errors differ that say nothing: of these judges the least cautious is taken
EVENTS = 0.003  # share of the readings that are real events, however unusual: so many doubtful readings may be good
ALMOST_NONE = 0.005  # share of bad readings that do not matter to a robust fit
ENOUGH, FOLDS = 15_000, 3  # readings kept aside are enough for the weights; times that some are, at most
ENOUGH_UNSEEN = 6  # stretches of time that nobody read are enough, if any are kept aside
DIVIDED = 6  # parts in which what was kept aside of small tables, or is not enough, is predicted with the others seen
STRETCHES, SPLITS, MORE_SPLITS = 18, 3, 9  # of time; every third one (ninth, of few) has the weights of the others
DAMPING = 10.0  # errors, by which the usual one of a series is drawn to that of all


@dataclass(frozen=True)
class SeriesModel:
    """A fitted model of series.

    >>> t = np.arange(24 * 40)[:, None]
    >>> rng = np.random.default_rng(1)
    >>> truth = 50 + (10 + rng.random(6)) * np.sin(2 * np.pi * t / 24) + 3 * np.sin(t / 100 + rng.random(6))
    >>> X = truth.copy()
    >>> X[100:110, 2] = np.nan
    >>> X[300:330] = np.nan
    >>> model, _ = SeriesModel.fit(X, (24,))
    >>> bool(np.abs(model.fill(X).values - truth).max() < 1.0)
    True
    """

    centre: Float
    scale: Float  # 0 of a constant series
    least: Float  # of each series: 0 if its readings are not negative, else minus infinity
    periods: tuple[int, ...]
    judge: Judge
    parts: Parts
    mixture: Mixture
    calibration: Calibration  # of the errors of z

    @classmethod
    def fit(
        cls,
        X: Float,
        periods: tuple[int, ...] = (),
        random_state: int | np.random.Generator | None = 0,
        rest: Bool | None = None,
    ) -> tuple[Self, Bool]:
        """Fit series X: moments x series, NaN missing, each with a reading; the model, and which readings are good.

        `rest` says which moments of a week are of days of rest, from the first moment of X on, if it is known.
        """
        rng = np.random.default_rng(random_state)
        X = np.where(wrong_units(X), np.nan, X)
        centre = column_medians(X)
        scale = column_scales(X - centre)
        Z = (X - centre) / scale
        scale[np.nanmax(X, axis=0) == np.nanmin(X, axis=0)] = 0.0
        with one_blas_thread:
            read, period = ~np.isnan(Z), periods[0] if periods else 1
            aside = keep_aside(read, period, rng)
            judge, good = _choose_judge(Z, periods, aside, rng, rest)
            good &= ~_bad_alone(Z, good, periods, judge)
            low_rank = _low_rank_of(judge)
            if not _almost_all(good, read):  # what is missing are bad readings too, in patterns of their own
                low_rank, read, aside = None, good, keep_aside(good, period, rng)
            folds = [_Fold.of(Z, good, aside, periods, rest, low_rank)]
            while len(folds) < FOLDS and not (_enough_readings(folds) and _enough_stretches(folds)):
                another = keep_aside(read, period, rng, aside)
                aside |= another
                low_rank = folds[0].parts.low_rank if _enough_readings(folds) else None
                folds.append(_Fold.of(Z, good, another, periods, rest, low_rank))
            mixture, calibration = _mix(folds, Z.shape, _classes(good, np.isnan(Z)), gap_lengths(good, np.isnan(Z)))
            parts = folds[0].parts.refit(np.where(good, Z, np.nan))
        least = np.where(np.nanmin(np.where(good, X, np.inf), axis=0) >= 0, 0.0, -np.inf)
        return cls(centre, scale, least, periods, judge, parts, mixture, calibration), good

    def fill(self, X: Float, first: int = 0, good: Bool | None = None) -> Filled:
        """Predict missing entries and bad readings of X, which begins `first` moments after the data that were fitted.

        Readings are judged, but for `fit` having said which are good.
        """
        Z = self.scaled(X)
        with one_blas_thread:
            good = self._good(np.where(wrong_units(X), np.nan, Z), first) if good is None else good
            classes = _classes(good, ~good)
            given = np.where(good, Z, np.nan)
            t, j = np.nonzero(~good)
            F = self.parts.predict(given, self.parts.expect(given, first), ~good, first)
            z = self.mixture.predict(F, classes, j)
        values = X.copy()
        values[t, j] = np.maximum(self.centre[j] + self.scale[j] * z, self.least[j])
        classes_of = np.full(X.shape, -1, np.int8)
        classes_of[t, j] = classes
        return Filled(values, ~good & ~np.isnan(X), classes_of)

    def _good(self, Z: Float, first: int) -> Bool:
        """The good readings of Z, judged as those that were fitted."""
        good = self.judge.good(Z, first)
        alone = read_alone(good)
        if alone.any():
            rest = np.where(good, Z - self.parts.expectations[0].expect(Z, first), np.nan)
            good &= ~bad_alone(rest, alone, self.parts.along[0], self.judge.caution)
        return good

    def group(self, series: NDArray[np.intp], classes: NDArray[np.intp]) -> NDArray[np.intp]:
        """The group of the calibration to which entries of these series and classes belong."""
        return _group(series, classes, len(self.scale))

    def scaled(self, X: Float) -> Float:
        """The series about 0, in units of their scales."""
        return np.asarray((X - self.centre) / np.where(self.scale > 0, self.scale, 1.0))

    def half_widths(self, classes: NDArray[np.int8], level: float) -> Float:
        """Of a band about each filled value that holds the truth with this probability; 0 at good readings.

        It is 0 in a constant series too.
        """
        widths = np.zeros(classes.shape)
        t, j = np.nonzero((classes >= 0) & (self.scale > 0))
        own = classes[t, j].astype(np.intp)
        widths[t, j] = self.scale[j] * self.calibration.half_width(level, self.group(j, own), own)
        return widths


@dataclass(frozen=True)
class Filled:
    """Series without gaps."""

    values: Float  # the good readings, and predictions elsewhere
    bad: Bool  # readings that are not good
    classes: NDArray[np.int8]  # of the predicted entries; -1 at good readings


@dataclass(frozen=True)
class Parts:
    """What is expected of the series in several ways, and the bridges of what each leaves over."""

    shape: Shape  # of the shortest period
    expectations: tuple[Expectation, ...]
    along: tuple[Bridge, ...]  # of z - L, for each expectation; the first is the usual shape
    bends: Bends

    @classmethod
    def fit(
        cls, Z: Float, periods: tuple[int, ...], rest: Bool | None = None, low_rank: LowRankMoments | None = None
    ) -> tuple[Parts, list[Float]]:
        """Fit series Z, NaN where missing; the parts, and what each expects of Z.

        If it was fitted before, the low-rank part of moments is given.
        """
        pairs = count_pairs(~np.isnan(Z), largest_lag(len(Z), periods))
        shape = Shape.fit(Z, periods, rest)
        usual = shape.expect(Z)
        about_usual = Bridge.fit(Z - usual, periods, pairs, shape.common)
        expectations = _expectations(Z, shape, about_usual, low_rank=low_rank)
        expected = list(_determined((part.expect(Z) for part in expectations), usual, about_usual))
        along = (about_usual, *(Bridge.fit(Z - L, periods, pairs) for L in expected[1:]))
        return cls(Shape.fit(Z, periods[:1], rest), expectations, along, Bends.fit(Z)), expected

    @property
    def count(self) -> int:
        """The number of predictions of an entry."""
        return len(self.expectations) + sum(isinstance(part, LowRankMoments) for part in self.expectations) + STRAIGHT

    @property
    def low_rank(self) -> LowRankMoments | None:
        """The low-rank part of moments, which says nothing of stretches of time that nobody read."""
        return next((part for part in self.expectations if isinstance(part, LowRankMoments)), None)

    def refit(self, Z: Float, quick: bool = False) -> Parts:
        """With expectations by other readings of the same series, and the same correlations.

        A quick fit keeps the low-rank part of moments too: it takes longer than all the others.
        """
        periods, rest = self.along[0].periods, self.shape.rest
        kept = self.low_rank if quick else None
        expectations = _expectations(Z, Shape.fit(Z, periods, rest), self.along[0], self.expectations, kept)
        return replace(self, shape=Shape.fit(Z, periods[:1], rest), expectations=expectations)

    def knowing(self, Z: Float) -> Parts:
        """With what the low-rank part of moments expects of Z, for data that differ from it at some moments."""
        known = (KnownMoments.of(part, Z) if isinstance(part, LowRankMoments) else part for part in self.expectations)
        return replace(self, expectations=tuple(known))

    def expect(self, Z: Float, first: int = 0) -> Iterator[Float]:
        """What each part expects of Z, which begins `first` moments after the data that were fitted."""
        usual = self.expectations[0].expect(Z, first)
        return _determined((part.expect(Z, first) for part in self.expectations), usual, self.along[0])

    def predict(self, Z: Float, expected: Iterable[Float], wanted: Bool, first: int = 0) -> Float:
        """Predictions of the wanted entries, in the order of `numpy.nonzero`, in columns, by what is expected of Z."""
        gaps = Gaps.of(~np.isnan(Z), wanted, self.along[0].periods)
        columns = []
        for part, L, bridge in zip(self.expectations, expected, self.along, strict=True):
            columns.append(L[wanted] + bridge.predict(Z - L, gaps))
            if isinstance(part, LowRankMoments):
                columns.append(L[wanted])
        usual, lines = self.shape.expect(Z, first), straight_lines(Z)
        columns += [lines[wanted], (usual + straight_lines(Z - usual))[wanted], self.bent(Z, lines, wanted)]
        return np.column_stack(columns)

    def bent(self, Z: Float, lines: Float, wanted: Bool) -> Float:
        """Predictions of the wanted entries by straight lines, the filled Z, with bends in short gaps.

        What is missing beside them gets its bends too: entries that are wanted alone are predicted as if all were.
        """
        missing, near = np.isnan(Z), within(np.asarray(wanted.any(axis=1)), REACH)
        short = missing & near[:, None] & (distances_to_readings(~missing)[1] <= SHORT)
        return self.bends.expect(Z, lines, short)[wanted]


def _determined(expected: Iterable[Float], usual: Float, about_usual: Bridge) -> Iterator[Float]:
    """What is expected, and where it is not determined the usual shape and a bridge of what stands out from this."""
    return (usual + filled for filled in about_usual.fill_each(L - usual for L in expected))


def _expectations(
    Z: Float,
    shape: Shape,
    about_usual: Bridge,
    before: tuple[Expectation, ...] = (),
    low_rank: LowRankMoments | None = None,
) -> tuple[Expectation, ...]:
    """What is fitted to Z; by steps from those before, if they are given; the low-rank part of moments may be kept."""
    start = {part.lags: part for part in before if isinstance(part, Normal)}
    further = FURTHER if Z.size <= SMALL else 1  # steps from the start: much data have been fitted well enough
    sharp = Normal.fit(Z, SHARP, start=start.get((0,)), further=further)
    found: tuple[Expectation, ...] = (shape, sharp, replace(sharp, ridge=SMOOTH))
    if (LAGS in start) if before else _in_succession(Z):
        first, further = (start[LAGS], further) if before else (sharp.lagged(Z, LAGS), FURTHER)
        lagged = Normal.fit(Z, LAGGED, LAGS, start=first, further=further)
        found = (*found[:2], lagged, found[2], replace(lagged, ridge=LAGGED_SMOOTH))
    if Z.size <= SMALL:
        found += (low_rank or LowRankMoments.fit(Z, np.random.default_rng(0)),)
    periods = about_usual.periods
    if periods and len(Z) >= LINES * periods[0]:
        guess = next(_determined([sharp.expect(Z)], shape.expect(Z), about_usual))
        shifts = (0, periods[0] // 2)
        found += tuple(
            Lines.fit(Z, Folding(periods[0], shift), shrinkage, guess)
            for shift, shrinkage in zip(shifts, SHRINKAGE, strict=True)
        )
    return found


def _in_succession(Z: Float) -> bool:
    """Whether moments that were read follow each other often enough to say what a moment says of the next one."""
    read = np.asarray((~np.isnan(Z)).any(axis=1))
    return bool(np.count_nonzero(read[1:] & read[:-1]) >= SUCCESSION * np.count_nonzero(read))


def _choose_judge(
    Z: Float, periods: tuple[int, ...], aside: Bool, rng: np.random.Generator, rest: Bool | None
) -> tuple[Judge, Bool]:
    """The caution with which what was kept aside is predicted best, in a stretch of time, and the good readings of all.

    Bad readings hardly matter to a day that nobody read: such moments do not count here, and single readings are kept
    aside besides. Errors are of the readings that the most cautious judge calls good: the same ones for all, and
    without gross errors. One that another judge calls bad is doubtful: an event, which is to be predicted as others
    are, or an error of which its neighbours are a part. Events are rare, so it counts the less the more of them there
    are.
    """
    aside = aside | keep_single_aside(~np.isnan(Z) & ~aside, rng.spawn(1)[0])
    given = np.where(aside, np.nan, Z)
    counted = aside.copy()
    counted[aside] = _classes(~np.isnan(given), aside) < UNSEEN
    moments = LowRankMoments.fit(given, rng) if Z.size <= SMALL else GoodCells.fit(given)
    shape = Shape.fit(given, periods, rest)
    robust = (moments, shape)
    expected = closest(robust, Z)
    length = len(Z) if Z.size <= SMALL else min(len(Z), max(STRETCH // Z.shape[1], SHORTEST))
    cycle = len(shape.values)
    first = (len(Z) - length) // 2 // cycle * cycle  # at the phase of the first moment
    own = slice(first, first + length)
    judged: list[tuple[Judge, Bool]] = []
    for caution in CAUTIONS:
        start = judged[-1][0].closer if judged else None
        judged.append(Judge.fit(Z[own], expected[own], robust, aside[own], caution, start))
    scored = counted[own] & judged[-1][1]
    errors = np.stack([_errors(judge, Z[own], good & ~aside[own], scored, periods) for judge, good in judged])
    series = np.nonzero(scored)[1]
    sizes = usual_sizes(errors.min(axis=0), series, Z.shape[1])[series]
    doubtful = ~np.all([good[scored] for _, good in judged], axis=0)
    means = np.minimum(errors / sizes, LARGEST) @ _doubt_weights(doubtful)
    judge, good = judged[int(np.argmax(means <= (1 + EQUAL) * means.min()))]
    return (judge, good) if length == len(Z) else Judge.fit(Z, expected, robust, aside, judge.caution, judge.closer)


def _bad_alone(Z: Float, good: Bool, periods: tuple[int, ...], judge: Judge) -> Bool:
    """Good readings that are bad at moments that hardly any other series read."""
    alone = read_alone(good)
    if not alone.any():
        return alone
    rest = np.where(good, Z - judge.robust[-1].expect(Z), np.nan)
    return bad_alone(rest, alone, Bridge.fit(rest, periods), judge.caution)


def _almost_all(good: Bool, read: Bool) -> bool:
    """Whether so many of the readings are good that the others do not matter to a robust fit."""
    return bool(np.count_nonzero(read & ~good) <= ALMOST_NONE * np.count_nonzero(read))


def _low_rank_of(judge: Judge) -> LowRankMoments | None:
    """The low-rank part by which readings were judged."""
    first = judge.robust[0]
    return first if isinstance(first, LowRankMoments) else None


def _doubt_weights(doubtful: Bool) -> Float:
    """1 of sure readings, and of doubtful ones the share that are events at most."""
    share = np.count_nonzero(doubtful) / max(1, doubtful.size)
    return np.where(doubtful, EVENTS / max(EVENTS, share), 1.0)


def _errors(judge: Judge, Z: Float, seen: Bool, wanted: Bool, periods: tuple[int, ...]) -> Float:
    """Magnitudes of the errors of the wanted readings, as those seen predict them."""
    given = np.where(seen, Z, np.nan)
    L = judge.closer.expect(given)
    L = np.where(np.isnan(L), judge.robust[-1].expect(given), L)
    bridged = Bridge.fit(given - L, periods).predict(given - L, Gaps.of(seen, wanted, periods))
    return np.abs((Z - L)[wanted] - bridged)


@dataclass(frozen=True)
class _Fold:
    """Predictions of readings that were kept aside, by parts fitted to the other good ones."""

    parts: Parts
    F: Float
    y: Float
    classes: NDArray[np.intp]
    moments: NDArray[np.intp]
    series: NDArray[np.intp]
    pieces: NDArray[np.intp]  # of errors that go together
    lengths: NDArray[np.intp]  # of the gaps

    @classmethod
    def of(
        cls,
        Z: Float,
        good: Bool,
        aside: Bool,
        periods: tuple[int, ...],
        rest: Bool | None = None,
        low_rank: LowRankMoments | None = None,
    ) -> Self:
        """Of a small table, or where little is kept aside, it is predicted in parts, by a fit to the other parts too.

        Then about as much is fitted and seen as for what is missing, and the errors are as large. Of larger tables the
        bends in short gaps, which rest on the moments beside, see as much.
        """
        seen, aside = good & ~aside, aside & good
        others = np.where(seen, Z, np.nan)
        parts, expected = Parts.fit(others, periods, rest, low_rank)
        moments, series = np.nonzero(aside)
        classes, lengths = _classes(seen, aside), gap_lengths(seen, aside)
        pieces = _pieces(aside, classes)
        enough = len(pieces) >= ENOUGH and Z.size > SMALL
        if enough:
            F = parts.predict(others, expected, aside)
        else:
            F, known = np.zeros((len(pieces), parts.count)), parts.knowing(np.where(good, Z, np.nan))
        for own in _divided(pieces):
            own = own[classes[own] % GROUP == 0] if enough else own  # a part of a longer gap would be a short one
            wanted = np.zeros(Z.shape, bool)
            wanted[moments[own], series[own]] = True
            given = np.where(good & ~wanted, Z, np.nan)
            if enough:
                F[own, -1] = parts.bent(given, straight_lines(given), wanted)
            else:
                again = known.refit(given, quick=True)
                F[own] = again.predict(given, again.expect(given), wanted)
                classes[own] = _classes(good & ~wanted, wanted)
                lengths[own] = gap_lengths(good & ~wanted, wanted)
        return cls(parts, F, Z[aside], classes, moments, series, pieces, lengths)


def _enough_readings(folds: list[_Fold]) -> bool:
    return sum(len(fold.y) for fold in folds) >= ENOUGH


def _enough_stretches(folds: list[_Fold]) -> bool:
    """Whether enough stretches of time that nobody read were kept aside, if any were."""
    unseen = sum(len(np.unique(fold.pieces[fold.classes >= UNSEEN])) for fold in folds)
    return unseen == 0 or unseen >= ENOUGH_UNSEEN


def _mix(
    folds: list[_Fold], shape: tuple[int, ...], missing_classes: NDArray[np.intp], missing_lengths: NDArray[np.intp]
) -> tuple[Mixture, Calibration]:
    """The weights that predict best what was kept aside, each series' errors in units of its usual one.

    Bands are calibrated by the errors on a third of it, in stretches of time, with the weights of the other two; if it
    is not much, on a ninth of it with the weights of the other eight, which are almost those of all. They count by how
    many missing entries, of which the classes and the lengths of the gaps are given, are in gaps as long (`lengths`).
    """
    F, y, classes, moments, series, lengths = (
        np.concatenate([getattr(fold, name) for fold in folds])
        for name in ("F", "y", "classes", "moments", "series", "lengths")
    )
    sizes = usual_sizes(y - F.mean(axis=1), series, shape[1])[series]
    G, u = F / sizes[:, None], y / sizes
    pieces = np.concatenate([fold.pieces + 2 * k * shape[0] * shape[1] for k, fold in enumerate(folds)])
    errors = np.zeros(len(y))
    splits = SPLITS if len(y) >= ENOUGH else MORE_SPLITS
    stretch = moments * STRETCHES // shape[0] % splits
    for k in range(splits):
        other, this = stretch != k, stretch == k
        mixture = Mixture.fit(G[other], u[other], classes[other], series[other], GROUP, pieces[other], STRAIGHT)
        errors[this] = y[this] - mixture.predict(F[this], classes[this], series[this])
    weights = length_weights(classes, lengths, missing_classes, missing_lengths)
    calibration = _calibrate(errors, series, classes, shape[1], pieces, weights)
    return Mixture.fit(G, u, classes, series, GROUP, pieces, STRAIGHT), calibration


def _calibrate(
    errors: Float,
    series: NDArray[np.intp],
    classes: NDArray[np.intp],
    n_series: int,
    pieces: NDArray[np.intp],
    weights: Float | None = None,
) -> Calibration:
    """Bands by the errors of what was kept aside.

    The usual error of a series is taken as if entries of all classes had been kept aside of it as of the others. What
    it is where the others were not read says nothing of what it is where they were: a series that copies another one
    is known exactly beside it, and not at all without it.
    """
    of_class = usual_sizes(errors, classes, int(classes.max(initial=0)) + 1)
    group = _group(series, classes, n_series)
    usual = usual_sizes(errors, np.zeros_like(classes), 1)
    # of a run, which is one of many of its series, only the error itself is left out
    apart = np.where(classes >= UNSEEN, pieces, pieces.max(initial=0) + 1 + np.arange(len(pieces)))
    relative = sizes_by_other_pieces(errors / of_class[classes], group, 2 * n_series, apart, DAMPING)
    sizes = Sizes(*(usual * part for part in relative))
    return Calibration.fit(errors, group, classes, 2 * n_series, pieces, sizes, weights)


def _group(series: NDArray[np.intp], classes: NDArray[np.intp], n_series: int) -> NDArray[np.intp]:
    """The series; after all of them, the series where most of the others did not see the moment."""
    return series + n_series * (classes >= UNSEEN)


def _divided(pieces: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """The entries of each of some parts of the pieces."""
    found, piece = np.unique(pieces, return_inverse=True)
    part = np.random.default_rng(0).permutation(len(found)) % DIVIDED
    return (own for k in range(DIVIDED) if (own := np.flatnonzero(part[piece] == k)).size)


def _pieces(aside: Bool, classes: NDArray[np.intp]) -> NDArray[np.intp]:
    """The run of each entry kept aside; where most of the others did not see the moment, the run of such moments."""
    shape = aside.shape
    t, j = np.nonzero(aside)
    unseen = np.zeros((shape[0], 1), bool)
    unseen[t[classes >= UNSEEN]] = True
    first, first_unseen = (
        np.maximum.accumulate(np.where(marked & ~np.roll(marked, 1, axis=0), np.arange(shape[0])[:, None], 0))
        for marked in (aside, unseen)
    )
    pieces = np.where(classes >= UNSEEN, shape[0] * shape[1] + first_unseen[t, 0], first[t, j] * shape[1] + j)
    return np.asarray(pieces)


def _classes(good: Bool, wanted: Bool) -> NDArray[np.intp]:
    """0 in short gaps, else from 1 by the distance to the next good reading; more where fewer others saw the moment."""
    nearer, farther = (distances[wanted] for distances in distances_to_readings(good))
    near = np.minimum(np.log2(np.maximum(nearer, 1)).astype(np.intp), FARTHEST) + 1
    near[farther <= SHORT] = 0
    counts = good.sum(axis=1)
    group = np.sum([counts < share * np.median(counts) for share in SEEN], axis=0)
    return np.asarray(near + GROUP * group[np.nonzero(wanted)[0]])
