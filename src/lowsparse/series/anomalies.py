"""Anomalies: bad runs of readings, by kind, with what was expected and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sweeps import Float
from .judging import CHANCE, stuck_runs
from .jumps import LONG, NEARER
from .model import Filled, SeriesModel
from .runs import Bool, Index, Runs

SURE = 0.9  # share of the errors kept aside that a reading's distance must exceed
FAR = 8.0  # usual errors of the model for the series; a long run may be nearer
SPIKE = 2  # moments of a spike, at most
UNIT = 0.1  # distance of the decimal logarithm of a ratio from a whole number

KINDS = ("spike", "zero or negative", "stuck", "wrong unit", "shift")


@dataclass(frozen=True)
class Anomalies:
    """Runs of bad readings: moments from `begin` to `end`, the last one included."""

    series: Index
    begin: Index
    end: Index
    kind: NDArray[np.str_]
    observed: Float  # median of the run
    expected: Float  # median of the run
    sure: Float  # share of the errors of readings kept aside that are smaller than the distance of these

    @classmethod
    def none(cls) -> Anomalies:
        """No run."""
        none = np.zeros(0)
        return cls(none.astype(np.intp), none.astype(np.intp), none.astype(np.intp), none.astype(str), none, none, none)

    def __len__(self) -> int:
        return len(self.series)

    def columns(self, names: Any, times: Any = None) -> dict[str, NDArray[Any]]:
        """The anomalies as columns, with names of the series and, if given, times of the moments."""
        begin, end = (self.begin, self.end) if times is None else (times[self.begin], times[self.end])
        return {
            "series": np.asarray(names, dtype=object)[self.series],
            "begin": begin,
            "end": end,
            "kind": self.kind,
            "observed": self.observed,
            "expected": self.expected,
            "sure": self.sure,
        }


def find_anomalies(model: SeriesModel, X: Float, filled: Filled) -> tuple[Anomalies, Bool]:
    """The anomalies of X, given how it was filled, and the mask of their readings.

    A run of bad readings is listed if it is stuck, or if its distance from the expected values is larger than most
    errors of the model, SURE of those kept aside, and many times the usual one of the series.
    """
    stuck = stuck_runs(X) & filled.bad
    distances, shares = _distances(model, X, filled)
    found = [_join(filled.bad & ~stuck, X), _join(stuck, X)]
    runs = Runs(*(np.concatenate([getattr(part, name) for part in found]) for name in ("series", "begin", "end")))
    is_stuck = np.repeat([False, True], [len(part) for part in found])
    observed, expected = runs.medians(np.where(filled.bad, X, np.nan)), runs.medians(filled.values)
    sure = np.where(is_stuck, np.maximum(runs.medians(shares), 1 - CHANCE), runs.medians(shares))
    kinds = _kinds(model, X, filled, runs, is_stuck)
    far = runs.medians(distances) >= FAR * np.where(runs.lengths < LONG, 1.0, NEARER)
    kept = np.flatnonzero((sure >= SURE) & (far | is_stuck) & ~np.isnan(observed))
    kept = kept[np.lexsort((runs.begin[kept], runs.series[kept]))]
    chosen = runs.take(kept)
    listed = Anomalies(
        chosen.series, chosen.begin, chosen.end - 1, kinds[kept], observed[kept], expected[kept], sure[kept]
    )
    return listed, chosen.mask((X.shape[0], X.shape[1])) & filled.bad


def _join(bad: Bool, X: Float) -> Runs:
    """Runs of bad readings; a gap between two of them does not divide a run, a good reading does."""
    runs = Runs.of(bad | np.isnan(X))
    _, t = np.nonzero(bad.T)
    # The bad readings of all runs, ordered as these: each run has those from one of these numbers up to the next.
    counts = runs.sums(bad).astype(np.intp)
    runs, last = runs.take(counts > 0), np.cumsum(counts[counts > 0]) - 1
    return Runs(runs.series, t[np.concatenate([[0], last[:-1] + 1])[: len(last)]], t[last] + 1)


def _distances(model: SeriesModel, X: Float, filled: Filled) -> tuple[Float, Float]:
    """Of bad readings from what is expected: in usual errors of the series, and the share of those kept aside below."""
    distances, shares = np.full(X.shape, np.nan), np.full(X.shape, np.nan)
    t, j = np.nonzero(filled.bad)
    errors = (X[t, j] - filled.values[t, j]) / np.where(model.scale > 0, model.scale, 1.0)[j]
    classes = filled.classes[t, j].astype(np.intp)
    group = model.group(j, classes)
    distances[t, j] = np.abs(errors) / model.calibration.sizes[group]
    shares[t, j] = model.calibration.share_smaller(errors, group, classes)
    return distances, shares


def _kinds(model: SeriesModel, X: Float, filled: Filled, runs: Runs, stuck: Bool) -> NDArray[np.str_]:
    """The kind of each run: stuck, zero or negative in a series that is positive, another unit, a spike, or shifted."""
    good = ~filled.bad & ~np.isnan(X)
    positive = np.min(np.where(good, X, np.inf), axis=0) > 0
    observed, expected = runs.medians(np.where(filled.bad, X, np.nan)), runs.medians(filled.values)
    with np.errstate(all="ignore"):
        power = np.log10(runs.medians(np.where(filled.bad, X, np.nan) / filled.values))
        unit = (np.abs(power - np.round(power)) < UNIT) & (np.round(power) != 0) & (observed * expected > 0)
    kinds = np.where(runs.lengths <= SPIKE, "spike", "shift")
    kinds = np.where(unit & (runs.lengths > 1), "wrong unit", kinds)
    kinds = np.where(positive[runs.series] & (observed <= 0), "zero or negative", kinds)
    return np.asarray(np.where(stuck & ~(observed == 0), "stuck", kinds), dtype=np.str_)
