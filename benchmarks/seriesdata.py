"""Series with gaps: the sets, what is hidden of them and how, and the errors that are added to the rest.

Rows are moments, columns are series, NaN is missing. The files are looked for where `benchmarks.realdata` looks.

- eia: the electricity demand of 54 US authorities as it was reported, one of two years of hours (Ruggles, Farnham,
  Tong and Caldeira, Sci Data 2020, CC BY 4.0). It has errors; only readings that the published screening calls OKAY
  are hidden.
- loops: speeds at every other one of 207 loop detectors, every 5 minutes for a week.
- ngsim: speeds in 200 cells of a road, at 500 times; no day.
- parking: 30 car parks, 77 days x 18 half hours, zeros missing.
- beijing: 12 stations x 6 pollutants, a year of hours; really missing values.

Sets with a number come in two halves (years, or every other detector). What there was to choose in the model was
chosen on the first halves and on `parking`; `ngsim` was looked at for faults only.

A tenth is hidden: single readings at random; runs, with the lengths of the real gaps of eia up to an eighth of the
data; moments of all series; days of all series (24 moments where there is no day). Of a week (loops) each day is hidden
in turn, and errors are means over these: which one is drawn would decide.

Of what is left, a share is spoilt, a fifth of it by each of: stuck at a value for 6 to 24 moments, times 10 or 0.1
for 1 to 24, zero for 1 to 6, shifted by 2 to 4 standard deviations for 12 to 48, a spike of 5 to 10 of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from . import realdata

__all__ = ["FILES", "PATTERNS", "SETS", "Series", "SeriesTask", "make_series_tasks"]

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]

HIDDEN = 0.1
NO_DAY = 24  # moments of a "day" where there is none
YEAR = 8760
WEEK = 7
BEIJING, LOOPS = "2013-03-01", "2012-03-01"  # the first days of the data
PATTERNS = ("random", "runs", "moments", "days")
RUN_LENGTHS = (1, 1, 1, 1, 1, 1, 2, 2, 5, 12, 24, 24, 24, 48, 48, 120)  # quantiles of the real gaps of eia
STUCK, UNIT, ZERO, SHIFTED = (6, 24), (1, 24), (1, 6), (12, 48)  # moments, from and to
CUT = (0.001, 0.999)  # quantiles between which a standard deviation is taken


@dataclass(frozen=True)
class Series:
    """Data and what is known of them."""

    X: Float
    okay: Bool  # readings that may be hidden
    day: int  # moments; 0 if there is none
    step: str = ""  # from moment to moment, as pandas writes it; "" if they are not equally spaced
    start: str = ""  # the first moment, if there are steps


@dataclass(frozen=True)
class SeriesTask:
    """What is given, and what is asked for."""

    X: Float  # with what is hidden missing, and errors
    truth: Float
    hidden: Bool
    flags: Bool  # readings that are known to be wrong: by the screening, or because they were spoilt here
    day: int
    step: str = ""
    start: str = ""

    def errors(self, filled: Float) -> tuple[float, float]:
        """The mean over the series of the mean absolute error, in standard deviations, and of the percentage error."""
        spread = np.nanstd(np.clip(self.truth, *np.nanquantile(self.truth, CUT, axis=0)), axis=0)
        own, relative = [], []
        for j in np.flatnonzero(self.hidden.any(axis=0)):
            at = self.hidden[:, j]
            e = np.abs(filled[at, j] - self.truth[at, j])
            own.append(np.mean(e) / spread[j])
            relative.append(np.mean(e / np.maximum(np.abs(self.truth[at, j]), 1e-3 * spread[j])))
        return float(np.mean(own)), float(np.mean(relative))


def make_series_tasks(data: Series, pattern: str, spoilt: float, random_state: int) -> Iterator[SeriesTask]:
    """Hide readings in a pattern, and spoil a share of the others; of a week each day in turn."""
    rng = np.random.default_rng([11, random_state])
    if pattern != "days" or len(data.X) != WEEK * data.day:
        yield _make_task(data, hide(data.X.shape, pattern, data.day or NO_DAY, rng), spoilt, rng)
        return
    for day in range(WEEK):
        hidden = np.zeros(data.X.shape, bool)
        hidden[day * data.day : (day + 1) * data.day] = True
        yield _make_task(data, hidden, spoilt, rng)


def _make_task(data: Series, hidden: Bool, spoilt: float, rng: np.random.Generator) -> SeriesTask:
    hidden = hidden & data.okay
    given = np.where(hidden, np.nan, data.X)
    X = spoil(given, spoilt, rng)
    wrong = (given != X) & ~np.isnan(given)
    return SeriesTask(X, data.X, hidden, wrong | (~np.isnan(given) & ~data.okay), data.day, data.step, data.start)


def hide(shape: tuple[int, ...], pattern: str, day: int, rng: np.random.Generator) -> Bool:
    """The mask of a pattern."""
    T, n = shape
    hidden = np.zeros((T, n), bool)
    if pattern == "random":
        hidden = rng.random((T, n)) < HIDDEN
    elif pattern == "moments":
        hidden[rng.random(T) < HIDDEN] = True
    elif pattern == "days":
        days = T // day
        for k in rng.choice(days, max(1, round(HIDDEN * days)), replace=False):
            hidden[k * day : (k + 1) * day] = True
    else:
        left = HIDDEN * T * n
        while left > 0:
            first, length = rng.integers(T), min(int(rng.choice(RUN_LENGTHS)), T // 8)
            run = hidden[first : first + length, rng.integers(n)]
            left -= np.count_nonzero(~run)
            run[:] = True
    return hidden


def spoil(X: Float, share: float, rng: np.random.Generator) -> Float:
    """X with a share of its readings spoilt in five ways."""
    X, clean = X.copy(), ~np.isnan(X)
    spread = np.nanstd(np.clip(X, *np.nanquantile(X, CUT, axis=0)), axis=0)
    each = share * np.count_nonzero(clean) / 5

    def in_runs(lengths: tuple[int, int], change: Callable[[Float, int], Float]) -> None:
        left = each
        while left > 0:
            j, first = int(rng.integers(X.shape[1])), int(rng.integers(len(X)))
            rows = first + np.flatnonzero(clean[first : first + int(rng.integers(lengths[0], lengths[1] + 1)), j])
            if rows.size:
                X[rows, j], clean[rows, j] = change(X[rows, j], j), False
                left -= rows.size

    def sign() -> float:
        return float(rng.choice([-1.0, 1.0]))

    in_runs(STUCK, lambda x, j: np.full(len(x), x[0]))
    in_runs(UNIT, lambda x, j: x * rng.choice([10.0, 0.1]))
    in_runs(ZERO, lambda x, j: 0.0 * x)
    in_runs(SHIFTED, lambda x, j: x + sign() * rng.uniform(2, 4) * spread[j])
    in_runs((1, 1), lambda x, j: x + sign() * rng.uniform(5, 10) * spread[j])
    return X


def eia(folder: Path, half: int) -> Series:
    stored = np.load(folder / FILES["eia"])
    part = slice(YEAR * half, YEAR * (half + 1))
    okay = stored["category"] == list(stored["categories"]).index("OKAY")
    start = str(np.datetime64(str(stored["first_hour"]), "h") + YEAR * half)
    return Series(stored["demand"].T[part].astype(np.float64), okay.T[part], 24, "h", start)


def beijing(folder: Path, half: int) -> Series:
    data = np.load(folder / FILES["beijing"])["data"]
    X = data.reshape(-1, data.shape[2])[:, YEAR * half : YEAR * (half + 1)].T.astype(np.float64)
    return _all_okay(X, 24, "h", str(np.datetime64(BEIJING, "h") + YEAR * half))


def loops(folder: Path, half: int) -> Series:
    return _all_okay(realdata.loops(folder / FILES["loops"]).X[:, half::2], 288, "5min", LOOPS)


def ngsim(folder: Path, half: int) -> Series:
    return _all_okay(realdata.ngsim(folder / FILES["ngsim"]).X, 0)


def parking(folder: Path, half: int) -> Series:
    return _all_okay(realdata.parking(folder / FILES["parking"]).X, 18)


def made(folder: Path, half: int) -> Series:
    """A small stand-in for trials."""
    rng = np.random.default_rng([12, half])
    t = np.arange(24 * 30)[:, None]
    shared = np.cumsum(rng.standard_normal((len(t), 2)), axis=0) / 8 @ rng.uniform(0.5, 1, (2, 6))
    X = 50 + 5 * np.sin(2 * np.pi * t / 24) + shared + 0.3 * rng.standard_normal((len(t), 6))
    return _all_okay(X, 24)


def _all_okay(X: Float, day: int, step: str = "", start: str = "") -> Series:
    return Series(X, ~np.isnan(X), day, step, start)


FILES = {name: realdata.SETS[name].file for name in ("loops", "ngsim", "parking", "beijing")}
FILES |= {"eia": "eia930_demand.npz", "made": ""}
LOADERS = {"eia": eia, "loops": loops, "ngsim": ngsim, "parking": parking, "beijing": beijing, "made": made}
SETS = {
    "eia 1": ("eia", 0),
    "eia 2": ("eia", 1),
    "loops 1": ("loops", 0),
    "loops 2": ("loops", 1),
    "beijing 1": ("beijing", 0),
    "beijing 2": ("beijing", 1),
    "ngsim": ("ngsim", 0),
    "parking": ("parking", 0),
    "made": ("made", 0),
}
