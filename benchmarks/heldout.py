"""The default on real data: how long it takes, and how well it predicts entries that were held out.

    python -m benchmarks.heldout --repeats 5 --out results
    python -m benchmarks.heldout --set hall-10 loops

A tenth of the observed entries is held out; nothing is added to the others. In turns, medians of the processor's
seconds (of all threads together), which other work on the machine hardly changes:

- the default as it is called, the whole of `lowsparse.solve`; its seconds also in passes: iterations of `irls`, in
  each of which it fits every column and every row once by a weighted regression;
- AManPGC to its own end, and as in the paper: until L changes by at most 1 % in an iteration, which verifies nothing;
- "there after": when the default was first as good on what was held out as AManPGC at that stop, in AManPGC's seconds.

The error is the mean absolute one: grey levels, miles per hour, stars; of Beijing's air in standard deviations.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import lowsparse as ls
from lowsparse.cli.text import table
from lowsparse.support.files import write_csv

from .realdata import FOLDER, beijing, loops, movielens

HELD_OUT = 0.1
PAPER_STOP = 0.01  # relative change of L
SEED = 18  # of what is observed and held out
PASSES = 5  # iterations of irls that are timed

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """A set, and what of it is observed."""

    title: str
    load: Callable[[Path], Float]  # NaN where nothing is known
    file: str
    rank: int
    observed: float = 1.0


def pictures(path: Path) -> Float:
    """Pixels x frames."""
    frames = np.load(path)["frames"]
    return np.asarray(frames.reshape(len(frames), -1).T, dtype=np.float64)


def standardised(path: Path) -> Float:
    X = beijing(path).X
    return np.asarray((X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0))


HALL, ESCALATOR, MALL = "i2r_hall100.npz", "i2r_escalator200.npz", "i2r_shoppingmall91.npz"
SETTINGS = {
    "hall-10": Setting("hall, 10 % observed", pictures, HALL, 2, 0.1),
    "hall-50": Setting("hall, 50 %", pictures, HALL, 2, 0.5),
    "hall": Setting("hall, all", pictures, HALL, 2),
    "escalator-10": Setting("escalator, 10 %", pictures, ESCALATOR, 2, 0.1),
    "escalator-50": Setting("escalator, 50 %", pictures, ESCALATOR, 2, 0.5),
    "mall-10": Setting("shopping mall, 10 %", pictures, MALL, 2, 0.1),
    "mall-50": Setting("shopping mall, 50 %", pictures, MALL, 2, 0.5),
    "yale": Setting("Yale face", pictures, "yaleB01_cropped.npz", 9),
    "beijing": Setting("Beijing air", standardised, "beijing_air.npz", 10),
    "loops": Setting("Los Angeles loops", lambda path: loops(path).X, "los_loop_speed.npz", 12),
    "movielens": Setting("MovieLens", lambda path: movielens(path).X, "ml_latest_small.npz", 3),
}


@dataclass(frozen=True)
class Task:
    """What is given, and what is asked for."""

    M: ls.ObservedMatrix
    rank: int
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    truth: Float

    def error(self, L: ls.LowRank) -> float:
        """The mean absolute error on what was held out."""
        return float(np.abs(L.at(self.rows, self.columns) - self.truth).mean())


def make_task(setting: Setting, folder: Path) -> Task:
    """Observe a share, hold some of it out, and leave out the lines of which nothing is left."""
    rng = np.random.default_rng(SEED)
    X = setting.load(folder / setting.file)
    X[rng.random(X.shape) > setting.observed] = np.nan
    held = ~np.isnan(X) & (rng.random(X.shape) < HELD_OUT)
    given = np.where(held, np.nan, X)
    left = np.ix_(*(~np.isnan(given).all(axis=axis) for axis in (1, 0)))
    rows, columns = np.nonzero(held[left])
    return Task(ls.ObservedMatrix.from_dense(given[left]), setting.rank, rows, columns, X[left][rows, columns])


def timed(run: Callable[[], ls.Result]) -> tuple[float, ls.Result]:
    began = time.process_time()
    result = run()
    return time.process_time() - began, result


def seconds_of_pass(task: Task) -> float:
    """The mean time of the first iterations of irls."""
    ends: list[float] = []

    def watch(progress: ls.Progress) -> bool:
        ends.append(time.process_time())
        return progress.iteration > PASSES

    ls.solve(task.M, task.rank, method="irls", callback=watch)
    return (ends[-1] - ends[0]) / (len(ends) - 1)


def at_paper_stop(progress: ls.Progress) -> bool:
    return progress.iteration > 1 and progress["change"] <= PAPER_STOP


def first_as_good(task: Task, error: float) -> float:
    """Seconds until the default has this error; infinite if it never does."""
    reached: list[float] = []
    watching, began = 0.0, time.process_time()

    def watch(progress: ls.Progress) -> bool:
        nonlocal watching
        now = time.process_time()
        if task.error(progress.lowrank()) <= error:
            reached.append(now - began - watching)
        watching += time.process_time() - now
        return bool(reached)

    ls.solve(task.M, task.rank, callback=watch)
    return reached[0] if reached else float("inf")


def measure(name: str, folder: Path, repeats: int) -> dict[str, object]:
    """Everybody in turns on one set."""
    setting = SETTINGS[name]
    task = make_task(setting, folder)
    solve = partial(ls.solve, task.M, task.rank)
    contestants: dict[str, Callable[[], ls.Result]] = {
        "default": solve,
        "amanpgc": partial(solve, method="amanpgc"),
        "paper": partial(solve, method="amanpgc", callback=at_paper_stop),
    }
    seconds: dict[str, list[float]] = {name: [] for name in (*contestants, "pass", "reached")}
    results: dict[str, ls.Result] = {}
    for _ in range(repeats):
        for contestant, run in contestants.items():
            taken, results[contestant] = timed(run)
            seconds[contestant].append(taken)
        seconds["pass"].append(seconds_of_pass(task))
        seconds["reached"].append(first_as_good(task, task.error(results["paper"].L)))
    median = {contestant: statistics.median(times) for contestant, times in seconds.items()}
    return {
        "set": setting.title,
        "rank": task.rank,
        "entries": task.M.nnz,
        "seconds": median["default"],
        "passes": median["default"] / median["pass"],
        "status": results["default"].status.value,
        "error": task.error(results["default"].L),
        "amanpgc_seconds": median["amanpgc"],
        "amanpgc_error": task.error(results["amanpgc"].L),
        "paper_seconds": median["paper"],
        "paper_error": task.error(results["paper"].L),
        "there_after": median["reached"] / median["paper"],
    }


def describe(rows: Sequence[dict[str, object]]) -> str:
    """A table for the terminal."""
    header = ["", "rank", "seconds", "passes", "", "error", "AManPGC", "error", "at 1 %", "error", "there after"]
    forms = {"rank": "d", "seconds": ".3f", "passes": ".0f", "status": "s", "error": ".4g"}
    forms |= {"amanpgc_seconds": ".3f", "amanpgc_error": ".4g", "paper_seconds": ".3f", "paper_error": ".4g"}
    body = [[str(row["set"]), *(format(row[key], form) for key, form in forms.items())] for row in rows]
    return table(
        header, [[*cells, f"{row['there_after']:.2f}"] for cells, row in zip(body, rows, strict=True)], left=(0, 4)
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.heldout", description="The default on real data.")
    parser.add_argument("--set", nargs="+", default=list(SETTINGS), choices=list(SETTINGS), help="default: all")
    parser.add_argument("--data", type=Path, default=FOLDER, help=f"folder of the files (default: {FOLDER.name})")
    parser.add_argument("--repeats", type=int, default=3, help="rounds; the median counts (default: 3)")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for heldout.csv")
    given = parser.parse_args()
    if given.repeats < 1:
        parser.error("--repeats must be 1 or more")
    missing = [name for name in given.set if not (given.data / SETTINGS[name].file).is_file()]
    if missing:
        parser.error(f"{given.data} lacks the files of {', '.join(missing)}: give their folder with --data")
    rows = []
    for name in given.set:
        rows.append(measure(name, given.data, given.repeats))
        print(describe(rows[-1:]) + "\n", flush=True)
    print(describe(rows))
    write_csv(given.out / "heldout.csv", rows)
    print(f"numbers: {given.out}")


if __name__ == "__main__":
    main()
