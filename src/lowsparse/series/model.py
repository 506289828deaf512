"""The model of series: several predictions of every gap, mixed as what was kept aside asks for.

A series is x = centre + scale z. Every prediction of z is L plus what is bridged of z - L (`folding`, `bridging`):

- L is the usual shape of the period: the series by itself;
- L of low rank, moments x series: what the others say at the moment;
- L of low rank, days x (hour of day, series), if there is a period: what the day and the others say; and the same with
  days that begin at noon, whose errors at the ends of days are others;
- and the straight line between the readings at the ends of the gap.

They are fitted to the data less some readings, which were kept aside in the pattern of those that are missing; on these
the weights of the mixture are found, by how far the next reading is and whether the moment was read by the others. The
subspaces of the low-rank parts are fitted to all readings then where the table is small, and stay as they are else;
coefficients and correlations are found from all readings. Those in bad runs (`judging`) are left out, but for the first
fit of the subspaces, which is robust and finds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..robust.calibration import Calibration
from ..sweeps import Float
from .correlation import column_scales
from .folding import FoldedFit, Folding
from .judging import bad_runs
from .keeping import keep_aside
from .mixing import Mixture
from .periods import find_periods
from .runs import Bool, distance_to_reading

FARTHEST = 6  # log2 of the distance to the next reading, at which the classes of entries end
GROUP = FARTHEST + 1  # classes
SEEN = (0.85, 0.5)  # readings of a moment, relative to the usual number: bounds of the groups of classes
SMALL = 250_000  # entries of a table whose subspaces are fitted once more, to all good readings
LINES = 4  # periods that the data must have to be folded
CAUTIONS = (1.0, 3.0)  # in judging readings: the one is taken with which what was kept aside is predicted better
WORTH = 1.02  # error of less caution, relative to that of more, at which it is still taken
LARGEST = 10.0  # error, in scales, that counts in this choice: a reading kept aside may be bad
HALVES = 20  # stretches of time, every other one of which is in the same half


@dataclass(frozen=True)
class SeriesModel:
    """A fitted model of series.

    >>> t = np.arange(24 * 40)[:, None]
    >>> rng = np.random.default_rng(1)
    >>> truth = 50 + (10 + rng.random(6)) * np.sin(2 * np.pi * t / 24) + 3 * np.sin(t / 100 + rng.random(6))
    >>> X = truth.copy()
    >>> X[100:110, 2] = np.nan
    >>> X[300:330] = np.nan
    >>> model = SeriesModel.fit(X)
    >>> model.periods, bool(np.abs(model.fill(X).values - truth).max() < 1.0)
    ((24,), True)
    """

    centre: Float
    scale: Float  # 0 of a constant series
    least: Float  # of each series: 0 if its readings are not negative, else minus infinity
    periods: tuple[int, ...]
    parts: tuple[FoldedFit, ...]
    caution: float  # in judging readings
    mixture: Mixture
    calibration: Calibration  # of the errors of z

    @classmethod
    def fit(
        cls,
        X: Float,
        periods: tuple[int, ...] | None = None,
        random_state: int | np.random.Generator | None = 0,
        usual: tuple[int, ...] = (),
    ) -> Self:
        """Fit series X: moments x series, NaN missing, every series with a reading.

        Periods are found if they are not given; the usual ones, a day and a week, are preferred to those near them.
        """
        centre = np.nanmedian(X, axis=0)
        scale = column_scales(X - centre)
        Z = (X - centre) / scale
        scale[np.nanmax(X, axis=0) == np.nanmin(X, axis=0)] = 0.0
        periods = find_periods(Z, usual) if periods is None else periods
        read = ~np.isnan(Z)
        aside = keep_aside(read, periods[0] if periods else 1, np.random.default_rng(random_state))
        rest = np.where(aside, np.nan, Z)
        rough = tuple(FoldedFit.fit(rest, folding, periods) for folding in _foldings(len(Z), periods))
        expected = _expected(rough, Z)
        trials = [_Trial.run(rough, Z, expected, aside, caution) for caution in CAUTIONS]
        best = min(trials, key=lambda trial: trial.error * (1.0 if trial.caution == 1.0 else WORTH))
        good = best.good
        least = np.where(np.nanmin(np.where(good, X, np.inf), axis=0) >= 0, 0.0, -np.inf)
        cleaned = np.where(good, Z, np.nan)
        if Z.size <= SMALL:
            rough = tuple(FoldedFit.fit(cleaned, part.folding, periods) for part in rough)
        parts = tuple(part.bridged(cleaned) for part in rough)
        return cls(centre, scale, least, periods, parts, best.caution, best.mixture, best.calibration)

    def fill(self, X: Float, shift: int = 0) -> Filled:
        """Predict missing entries and bad readings of X, which begins `shift` moments after a period began."""
        Z = (X - self.centre) / np.where(self.scale > 0, self.scale, 1.0)
        parts = tuple(part.shifted(shift) for part in self.parts)
        read = ~np.isnan(Z)
        bad = read & bad_runs(Z, _expected(parts, Z), self.caution)
        good = read & ~bad
        z, classes = _predict(parts, self.mixture, Z, good, ~good)
        t, j = np.nonzero(~good)
        values = X.copy()
        values[t, j] = np.maximum(self.centre[j] + self.scale[j] * z, self.least[j])
        classes_of = np.full(X.shape, -1, np.int8)
        classes_of[t, j] = classes
        return Filled(values, bad, classes_of)

    def half_widths(self, classes: NDArray[np.int8], level: float) -> Float:
        """Of a band about each filled value that holds the truth with this probability; 0 at good readings."""
        widths = np.zeros(classes.shape)
        t, j = np.nonzero(classes >= 0)
        widths[t, j] = self.scale[j] * self.calibration.half_width(level, j, classes[t, j].astype(np.intp))
        return widths


@dataclass(frozen=True)
class Filled:
    """Series without gaps."""

    values: Float  # the good readings, and predictions elsewhere
    bad: Bool  # readings that are not good
    classes: NDArray[np.int8]  # of the predicted entries; -1 at good readings


def _foldings(moments: int, periods: tuple[int, ...]) -> list[Folding | None]:
    found: list[Folding | None] = [None, Folding(1)]
    if periods and moments >= LINES * periods[0]:
        found += [Folding(periods[0]), Folding(periods[0], periods[0] // 2)]
    return found


def _expected(parts: tuple[FoldedFit, ...], Z: Float) -> Float:
    """Of each series, the low-rank part that is closest to its readings."""
    best, found = np.full(Z.shape[1], np.inf), np.zeros_like(Z)
    for part in parts[1:]:
        L = part.lowrank(Z)
        scales = column_scales(Z - L)
        found = np.where(scales < best, L, found)
        best = np.minimum(scales, best)
    return found


def _predict(
    parts: tuple[FoldedFit, ...], mixture: Mixture, Z: Float, good: Bool, wanted: Bool
) -> tuple[Float, NDArray[np.intp]]:
    classes = _classes(good, wanted)
    return mixture.predict(_predictions(parts, Z, good, wanted), classes), classes


def _predictions(parts: tuple[FoldedFit, ...], Z: Float, good: Bool, wanted: Bool) -> Float:
    cleaned = np.where(good, Z, np.nan)
    return np.column_stack([part.predict(cleaned, wanted) for part in parts] + [_straight(cleaned, wanted)])


def _straight(Z: Float, wanted: Bool) -> Float:
    """The straight line between the nearest readings; beyond the last one its value."""
    lines = np.zeros_like(Z)
    for j, z in enumerate(Z.T):
        known = np.flatnonzero(~np.isnan(z))
        if known.size:
            lines[:, j] = np.interp(np.arange(len(z)), known, z[known])
    return lines[wanted]


def _classes(good: Bool, wanted: Bool) -> NDArray[np.intp]:
    """0 to FARTHEST by the distance to the next good reading; as many more where fewer of the others saw the moment."""
    distance = distance_to_reading(good)[wanted]
    near = np.minimum(np.log2(np.maximum(distance, 1)).astype(np.intp), FARTHEST)
    counts = good.sum(axis=1)
    group = np.sum([counts < share * np.median(counts) for share in SEEN], axis=0)
    return np.asarray(near + GROUP * group[np.nonzero(wanted)[0]])


@dataclass(frozen=True)
class _Trial:
    """How well what was kept aside is predicted if readings are judged with some caution."""

    caution: float
    good: Bool
    mixture: Mixture
    calibration: Calibration  # by the errors on a half of what was kept aside, with the weights of the other half
    error: float

    @classmethod
    def run(cls, rough: tuple[FoldedFit, ...], Z: Float, expected: Float, aside: Bool, caution: float) -> Self:
        good = ~np.isnan(Z) & ~bad_runs(Z, expected, caution)
        seen = good & ~aside
        parts = tuple(part.bridged(np.where(seen, Z, np.nan)) for part in rough)
        F, y, classes = _predictions(parts, Z, seen, aside), Z[aside], _classes(seen, aside)
        moments, series = np.nonzero(aside)
        fair = good[aside]
        errors = _halved_errors(F, y, classes, moments * HALVES // len(Z) % 2, fair)
        calibration = Calibration.fit(errors[fair], series[fair], classes[fair], Z.shape[1])
        mixture = Mixture.fit(F[fair], y[fair], classes[fair], GROUP)
        return cls(caution, good, mixture, calibration, float(np.mean(np.minimum(np.abs(errors), LARGEST))))


def _halved_errors(F: Float, y: Float, classes: NDArray[np.intp], half: NDArray[np.intp], fair: Bool) -> Float:
    """The errors on each half by the weights of the other one's fair entries."""
    errors = np.zeros(len(y))
    for k in (0, 1):
        other, this = (half != k) & fair, half == k
        errors[this] = y[this] - Mixture.fit(F[other], y[other], classes[other], GROUP).predict(F[this], classes[this])
    return errors
