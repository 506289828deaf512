"""Real data with holes: the sets, the entries held out of them, and the gross errors injected into the rest.

Rows are samples, columns are sensors or items, and NaN is missing. The files are looked for in ../shared/data, beside
the repository, or where one says; they are not part of it.

- beijing: 12 stations x 6 pollutants = 72 columns, the first 8760 hours of four years; really missing values.
- loops: the speed at 207 loop detectors, every 5 minutes for a week.
- ngsim: the speed in 200 cells of a road, at 500 times.
- parking: 30 car parks, 77 days x 18 half hours, zeros missing; two car parks are hardly known at all.
- movielens: 671 users x 9066 films, 100 004 ratings from 0.5 to 5.
- flixster: 3000 users x 3000 films, the standard split: 23 556 ratings to learn from, 2617 to predict.
- synthetic: a stand-in of rank 3 for trials, made on the spot; columns differ in their level and unit.

Held out is a fifth of the known entries, drawn at random (flixster has its own split). The others are then spoilt:

- sensors: 2 % stuck (6 to 24 samples in a row stay at the value of the first), 2 % in the wrong unit (1 to 24 samples
  in a row times 10 or 0.1), 5 % spikes (plus or minus 5 to 10 standard deviations of the column);
- ratings: 10 % are wrong, half of them replaced by any of the scale, half of them turned round (5 becomes 0.5).

Errors are in units of the spread: the standard deviation of the column where columns are sensors, of all ratings where
they are items. The mean as a prediction has a root mean square error of 1 then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["FOLDER", "SETS", "Source", "Table", "Task", "make_task"]

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data"
HELD_OUT = 0.2
STUCK, UNITS, SPIKES = 0.02, 0.02, 0.05  # shares of the entries that are known
WRONG_RATINGS = 0.1
STUCK_RUN, UNIT_RUN = (6, 24), (1, 24)  # samples, from and to
SPIKE = (5.0, 10.0)  # spreads, from and to

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]


@dataclass(frozen=True)
class Table:
    """Clean data, and what of it is to be predicted."""

    X: Float  # NaN where nothing is known
    ratings: bool = False  # or else every column is a sensor
    split: Bool | None = None  # the entries to be predicted; None: some drawn at random

    def spread(self) -> Float:
        """Of every column: its own standard deviation, or that of all ratings."""
        overall = float(np.nanstd(self.X))
        if self.ratings:
            return np.full(self.X.shape[1], overall)
        own = np.array([np.std(x[~np.isnan(x)]) if not np.isnan(x).all() else 0.0 for x in self.X.T])
        return np.where(own > 0, own, overall)


@dataclass(frozen=True)
class Task:
    """What is given, and what is asked for."""

    X: Float  # with holes and gross errors; no row and no column is empty
    ratings: bool
    rows: NDArray[np.intp]  # where to predict; -1 stands for a row or column of which nothing is known
    cols: NDArray[np.intp]
    truth: Float
    spread: Float  # to measure each error by

    def errors(self, filled: Float) -> Float:
        """Of what was predicted, in units of the spread; the overall median where nothing is known."""
        known = (self.rows >= 0) & (self.cols >= 0)
        predicted = np.where(known, filled[self.rows, self.cols], np.nanmedian(self.X))
        return np.asarray((predicted - self.truth) / self.spread)


def make_task(table: Table, random_state: int) -> Task:
    """Hold entries out, spoil some of the others, and leave out the rows and columns that nothing is known of."""
    rng = np.random.default_rng(random_state)
    known, spread = ~np.isnan(table.X), table.spread()
    held = known & (rng.random(table.X.shape) < HELD_OUT) if table.split is None else table.split
    X = np.where(held, np.nan, table.X)
    (spoil_ratings if table.ratings else spoil_sensors)(X, spread, rng)
    left = ~np.isnan(X)
    row_left, col_left = (np.asarray(left.any(axis=axis)) for axis in (1, 0))
    rows, cols = np.nonzero(held)
    return Task(
        X=X[np.ix_(row_left, col_left)],
        ratings=table.ratings,
        rows=_renumbered(row_left)[rows],
        cols=_renumbered(col_left)[cols],
        truth=table.X[rows, cols],
        spread=spread[cols],
    )


def _renumbered(kept: Bool) -> NDArray[np.intp]:
    return np.where(kept, np.cumsum(kept) - 1, -1)


def spoil_sensors(X: Float, spread: Float, rng: np.random.Generator) -> None:
    """Stuck sensors, wrong units and spikes, at different entries of X."""
    clean = ~np.isnan(X)
    entries = int(clean.sum())
    for rows, j in _runs(clean, round(STUCK * entries), STUCK_RUN, rng):
        X[rows, j] = X[rows[0], j]
    for rows, j in _runs(clean, round(UNITS * entries), UNIT_RUN, rng):
        X[rows, j] *= rng.choice([10.0, 0.1])
    spikes = rng.permutation(np.argwhere(clean))[: round(SPIKES * entries)].T
    signs, sizes = rng.choice([-1.0, 1.0], spikes.shape[1]), rng.uniform(*SPIKE, spikes.shape[1])
    X[*spikes] += signs * sizes * spread[spikes[1]]


def _runs(
    clean: Bool, entries: int, length: tuple[int, int], rng: np.random.Generator
) -> list[tuple[NDArray[np.intp], int]]:
    """Rows and column of runs that have so many clean entries together; they are not clean any more."""
    found = []
    while entries > 0:
        j, first = int(rng.integers(clean.shape[1])), int(rng.integers(clean.shape[0]))
        rows = first + np.flatnonzero(clean[first : first + int(rng.integers(length[0], length[1] + 1)), j])
        if len(rows):
            clean[rows, j] = False
            found.append((rows, j))
            entries -= len(rows)
    return found


def spoil_ratings(X: Float, spread: Float, rng: np.random.Generator) -> None:
    """Some ratings of X replaced by any of the scale, as many turned round."""
    scale = np.unique(X[~np.isnan(X)])
    where = rng.permutation(np.flatnonzero(~np.isnan(X)))
    half = round(WRONG_RATINGS * len(where) / 2)
    X.flat[where[:half]] = rng.choice(scale, half)
    X.flat[where[half : 2 * half]] = scale[0] + scale[-1] - X.flat[where[half : 2 * half]]


def beijing(path: Path) -> Table:
    data = np.load(path)["data"]
    return Table(data.reshape(-1, data.shape[2])[:, :8760].T.astype(np.float64))


def loops(path: Path) -> Table:
    return Table(np.load(path)["speed"].T.astype(np.float64))


def ngsim(path: Path) -> Table:
    return Table(np.load(path)["speed"].T.astype(np.float64))


def parking(path: Path) -> Table:
    cars = np.load(path)["tensor"]
    X = cars.reshape(len(cars), -1).T.astype(np.float64)
    return Table(np.where(X > 0, X, np.nan))


def movielens(path: Path) -> Table:
    data = np.load(path)
    users, items = (np.unique(data[name], return_inverse=True)[1] for name in ("user", "item"))
    X = np.full((users.max() + 1, items.max() + 1), np.nan)
    X[users, items] = data["rating"]
    return Table(X, ratings=True)


def flixster(path: Path) -> Table:
    data = np.load(path)
    X = np.full(data["shape"], np.nan)
    split = np.zeros(X.shape, dtype=bool)
    for part in ("train", "test"):
        X[data[f"{part}_row"], data[f"{part}_col"]] = data[f"{part}_val"]
    split[data["test_row"], data["test_col"]] = True
    return Table(X, ratings=True, split=split)


def synthetic(path: Path | None = None) -> Table:
    rng = np.random.default_rng(42)
    rows, columns, rank = 300, 40, 3
    X = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, columns))
    X += 0.1 * rng.standard_normal(X.shape)
    X = 10.0 ** rng.uniform(-1, 2, columns) * (X + rng.uniform(5, 10, columns))
    return Table(np.where(rng.random(X.shape) < 0.05, np.nan, X))


@dataclass(frozen=True)
class Source:
    """Where a set comes from."""

    title: str
    load: Callable[[Path], Table]
    file: str = ""  # "": made on the spot

    def missing(self, folder: Path) -> bool:
        """Whether its file is not there."""
        return bool(self.file) and not (folder / self.file).is_file()


SETS = {
    "beijing": Source("Beijing air quality", beijing, "beijing_air.npz"),
    "loops": Source("Los Angeles loop detectors", loops, "los_loop_speed.npz"),
    "ngsim": Source("NGSIM speeds", ngsim, "ngsim_speed.npz"),
    "parking": Source("Birmingham parking", parking, "birmingham_parking.npz"),
    "movielens": Source("MovieLens small", movielens, "ml_latest_small.npz"),
    "flixster": Source("Flixster", flixster, "monti_flixster.npz"),
    "synthetic": Source("synthetic", synthetic),
}
