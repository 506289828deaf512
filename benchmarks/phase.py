"""Where recovery ends: how often each method finds the truth, over grids of ever harder problems without noise.

    python -m benchmarks.phase --trials 20 --jobs 2 --out results
    python -m benchmarks.phase --quick

L has rms 1 and singular values in geometric progression; a share of its entries is observed, uniformly at random, and a
share of those is wrong, by normal numbers of standard deviation 1 unless the grid says otherwise. A trial is a success
if the relative difference to the truth is at most 1e-4 on the rows and columns that the data determine: those with at
least rank + 5 correct entries in each other (others are lost for every method). All methods get the same problems, and
none of them the seed of the data.

Prints a table for every grid, and the cells where the default is beaten by more than chance.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

import lowsparse as ls
from lowsparse import plots
from lowsparse.cli.text import table
from lowsparse.support.files import write_csv

from .contenders import DEFAULT, contenders

SUCCESS = 1e-4  # relative difference
MARGIN = 5  # correct entries of a line beyond the rank, for it to be determined
MAX_ITER = 1000
SEED = 20  # of the data
FIXED = ("manpg", "amanpg")  # with their fixed γ they do not come as close as SUCCESS


@dataclass(frozen=True)
class Setting:
    """A kind of problem; sizes of outliers are in units of the signal's root mean square."""

    m: int = 300
    n: int = 300
    rank: int = 5
    density: float = 0.3
    outliers: float = 0.1  # share of the observed
    condition: float = 1.0
    size: float = 1.0  # of outliers
    kind: str = "normal"  # or "one-sided": all of the same size and sign
    asked: float = 1.0  # the rank asked for, in ranks of the truth

    @property
    def freedom(self) -> int:
        """The parameters of a matrix of this rank."""
        return self.rank * (self.m + self.n - self.rank)

    @property
    def rank_asked(self) -> int:
        """What the methods are told."""
        return math.ceil(self.asked * self.rank)


@dataclass(frozen=True)
class Grid:
    """Cells: values of one or two fields of a setting. "oversampling" is the density in parameters of L."""

    name: str
    base: Setting
    x: str
    xs: tuple[float, ...]
    y: str = ""
    ys: tuple[float, ...] = ()

    def cells(self) -> list[tuple[float, ...]]:
        """The coordinates of each."""
        return [(x, y) for y in self.ys for x in self.xs] if self.y else [(x,) for x in self.xs]

    def setting(self, cell: tuple[float, ...]) -> Setting:
        """The problems of a cell."""
        setting = self.base
        for name, value in zip((self.x, self.y), cell, strict=False):
            if name == "oversampling":
                setting = replace(setting, density=value * setting.freedom / (setting.m * setting.n))
            else:
                changed: dict[str, Any] = {name: int(value) if name == "rank" else value}
                setting = replace(setting, **changed)
        return setting


NAMES = {
    "density": "share observed",
    "outliers": "share of it wrong",
    "rank": "rank",
    "oversampling": "entries / parameters",
    "condition": "condition number",
    "size": "size of outliers / rms",
    "asked": "rank asked / rank",
}
LOGARITHMIC = ("condition", "size")
CORRUPTION = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
GRIDS = (
    Grid("sampling", Setting(), "density", (0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0), "outliers", CORRUPTION),
    Grid("rank", Setting(density=0.5), "rank", (2, 5, 10, 15, 20, 30, 40), "outliers", CORRUPTION),
    Grid("oversampling", Setting(m=400, n=400), "oversampling", (1.5, 2, 2.5, 3, 3.5, 4, 5, 6)),
    Grid("condition", Setting(), "condition", (1, 2, 5, 10, 20, 50, 100)),
    Grid("size", Setting(outliers=0.2), "size", (0.5, 1, 2, 5, 10, 30, 100, 300, 1000)),
    Grid("one-sided", Setting(outliers=0.2, kind="one-sided"), "size", (0.5, 1, 2, 5, 10, 30, 100, 300, 1000)),
    Grid("asked", Setting(), "asked", (1, 1.5, 2)),
)
SMALL = Setting(m=120, n=100, rank=3, density=0.5)
QUICK = (
    Grid("sampling", SMALL, "density", (0.15, 0.3, 0.6), "outliers", (0.0, 0.2, 0.4)),
    Grid("rank", SMALL, "rank", (2, 6, 12), "outliers", (0.1, 0.3)),
    Grid("oversampling", SMALL, "oversampling", (1.5, 3, 6)),
    Grid("condition", SMALL, "condition", (1, 10, 100)),
    Grid("size", replace(SMALL, outliers=0.2), "size", (0.5, 5, 1000)),
    Grid("one-sided", replace(SMALL, outliers=0.2, kind="one-sided"), "size", (0.5, 5, 1000)),
    Grid("asked", SMALL, "asked", (1, 1.5, 2)),
)


def make(setting: Setting, rng: np.random.Generator) -> ls.datasets.SyntheticProblem:
    """A problem: as many entries, and as many of them wrong, as the shares say, in random places."""
    m, n, r = setting.m, setting.n, setting.rank
    sigma = setting.condition ** -np.linspace(0, 1, r) if r > 1 else np.ones(1)
    sigma *= math.sqrt(m * n) / np.linalg.norm(sigma)
    U, V = (np.linalg.qr(rng.standard_normal((lines, r)))[0] for lines in (m, n))
    L = ls.LowRank(U * sigma, V.T)
    count = min(m * n, max(1, round(setting.density * m * n)))
    columns, rows = np.divmod(np.sort(rng.choice(m * n, count, replace=False)), m)
    S = np.zeros(count)
    wrong = rng.choice(count, round(setting.outliers * count), replace=False)
    S[wrong] = setting.size * (1.0 if setting.kind == "one-sided" else rng.standard_normal(wrong.size))
    indptr = np.searchsorted(columns, np.arange(n + 1))
    M = ls.ObservedMatrix(indptr, rows.astype(np.int32), L.at(rows, columns) + S, (m, n))
    return ls.datasets.SyntheticProblem(M, L, S)


def determined(problem: ls.datasets.SyntheticProblem, rank: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The rows and columns with enough correct entries in each other."""
    M = problem.M
    correct = np.zeros(M.shape, bool)
    correct[M.rows, M.columns_of_entries()] = problem.S == 0
    rows, columns = np.ones(M.shape[0], bool), np.ones(M.shape[1], bool)
    while True:
        enough_rows = rows & (correct[:, columns].sum(axis=1) >= rank + MARGIN)
        enough_columns = columns & (correct[enough_rows].sum(axis=0) >= rank + MARGIN)
        if (enough_rows == rows).all() and (enough_columns == columns).all():
            return rows, columns
        rows, columns = enough_rows, enough_columns


@dataclass(frozen=True)
class Trial:
    """What one method made of one problem."""

    error: float
    seconds: float

    @property
    def success(self) -> bool:
        """Whether it found the truth."""
        return self.error <= SUCCESS


def attempt(setting: Setting, seed: Sequence[int], methods: Sequence[str]) -> list[Trial]:
    """All methods on one problem."""
    problem = make(setting, np.random.default_rng(seed))
    rows, columns = determined(problem, setting.rank_asked)
    truth = problem.L.U[rows] @ problem.L.V[:, columns]
    size = float(np.linalg.norm(truth))
    trials = []
    for method in methods:
        began = time.perf_counter()
        result = ls.solve(problem.M, setting.rank_asked, method=method, max_iter=MAX_ITER)
        seconds = time.perf_counter() - began
        distance = float(np.linalg.norm(result.L.U[rows] @ result.L.V[:, columns] - truth))
        trials.append(Trial(distance / size if size else math.inf, seconds))
    return trials


@dataclass(frozen=True)
class Cell:
    """One method on all problems of a cell."""

    grid: Grid
    at: tuple[float, ...]
    method: str
    trials: tuple[Trial, ...]

    @property
    def successes(self) -> int:
        """How many."""
        return sum(trial.success for trial in self.trials)

    @property
    def rate(self) -> float:
        """The share of successes."""
        return self.successes / len(self.trials)

    def row(self) -> dict[str, object]:
        """Its numbers, for a table."""
        return {
            "grid": self.grid.name,
            "x": self.grid.x,
            "x_value": self.at[0],
            "y": self.grid.y,
            "y_value": self.at[1] if self.grid.y else "",
            "method": self.method,
            "trials": len(self.trials),
            "successes": self.successes,
            "median_error": f"{statistics.median(trial.error for trial in self.trials):.3g}",
            "median_seconds": f"{statistics.median(trial.seconds for trial in self.trials):.3g}",
        }


@contextmanager
def workers(jobs: int) -> Iterator[ProcessPoolExecutor | None]:
    """Processes that solve with one thread each; None for one job, which is done here."""
    if jobs == 1:
        yield None
        return
    # the sweeps and NumPy read these when they are loaded or opened: set before the processes start
    names = ("LOWSPARSE_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            yield pool
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def run(
    number: int, grid: Grid, methods: Sequence[str], trials: int, pool: ProcessPoolExecutor | None
) -> dict[str, list[Cell]]:
    """The cells of a grid, by method."""
    cells = grid.cells()
    settings = [grid.setting(cell) for cell in cells for _ in range(trials)]
    seeds = [(SEED, number, k, trial) for k in range(len(cells)) for trial in range(trials)]
    shared = [tuple(methods)] * len(seeds)
    done: Iterable[list[Trial]] = (pool.map if pool else map)(attempt, settings, seeds, shared)
    found = list(done)
    return {
        method: [
            Cell(grid, cell, method, tuple(found[k * trials + t][column] for t in range(trials)))
            for k, cell in enumerate(cells)
        ]
        for column, method in enumerate(methods)
    }


def describe(grid: Grid, found: dict[str, list[Cell]], seconds: float) -> str:
    """The table of a grid: successes / trials."""
    base = grid.base
    given = [f"{base.m} x {base.n}"]
    if grid.x != "rank":
        given.append(f"rank {base.rank}")
    if grid.x not in ("density", "oversampling"):
        given.append(f"{base.density:.0%} observed")
    if grid.y != "outliers":
        given.append(f"{base.outliers:.0%} of it wrong")
    if base.kind == "one-sided":
        given.append("all by the same")
    header = [NAMES[name] for name in (grid.x, grid.y) if name] + list(found)
    rows = []
    for k, cell in enumerate(grid.cells()):
        counts = [f"{cells[k].successes}/{len(cells[k].trials)}" for cells in found.values()]
        rows.append([f"{value:g}" for value in cell] + counts)
    return f"{grid.name}: {', '.join(given)} ({seconds:.0f} s)\n" + table(header, rows, left=())


def beaten(found: dict[str, list[Cell]]) -> list[list[str]]:
    """The cells where another method is better than the default by more than two standard errors of the counts."""
    rows = []
    if DEFAULT not in found:
        return []
    for k, own in enumerate(found[DEFAULT]):
        rivals = [cells[k] for method, cells in found.items() if method != DEFAULT]
        if not rivals:
            continue
        best = max(rivals, key=lambda cell: cell.rate)
        pooled = (own.rate + best.rate) / 2
        error = math.sqrt(2 * pooled * (1 - pooled) / len(own.trials))
        if best.rate - own.rate > 2 * error:
            where = ", ".join(
                f"{NAMES[name]} {value:g}" for name, value in zip((own.grid.x, own.grid.y), own.at, strict=False)
            )
            n = len(own.trials)
            rows.append([own.grid.name, where, f"{own.successes}/{n}", f"{best.successes}/{n}", best.method])
    return rows


def figure(method: str, everything: Sequence[dict[str, list[Cell]]]) -> Figure:
    """Heat maps of the grids with two coordinates above, curves of the others below (in grey: the other methods)."""
    maps = [found for found in everything if found[method][0].grid.y]
    curves = [found for found in everything if not found[method][0].grid.y]
    label, colour, _ = plots.STYLES.get(method) or (method, plots.OTHERS[0], "-")
    picture = Figure(figsize=(10.8, 6.6), dpi=140, layout="constrained")
    parts: Any = picture.subfigures(2, 1, height_ratios=(1.6, 1))
    above, below = parts
    panels = above.subplots(1, len(maps), squeeze=False)[0]
    for ax, found in zip(panels, maps, strict=True):
        image = _map(ax, found[method])
    above.colorbar(image, ax=panels, label="success rate", fraction=0.04)
    for ax, found in zip(below.subplots(1, len(curves), sharey=True, squeeze=False)[0], curves, strict=True):
        for other in found:
            _curve(ax, found[other], "#cccccc" if other != method else colour, 3 if other == method else 2)
    picture.suptitle(f"{label}: share of problems solved", x=0.014, ha="left", fontsize=12)
    return picture


def _map(ax: Axes, cells: list[Cell]) -> AxesImage:
    grid = cells[0].grid
    rates = np.array([cell.rate for cell in cells]).reshape(len(grid.ys), len(grid.xs))
    plots.phase(rates, grid.xs, grid.ys, x_name=NAMES[grid.x], y_name=NAMES[grid.y], bar=False, ax=ax)
    return ax.images[0]


def _curve(ax: Axes, cells: list[Cell], colour: str, order: int) -> None:
    grid = cells[0].grid
    ax.plot(grid.xs, [cell.rate for cell in cells], "o-", color=colour, markersize=3.5, linewidth=1.5, zorder=order)
    if grid.x in LOGARITHMIC:
        ax.set_xscale("log")
    ax.set_ylim(-0.04, 1.04)
    ax.set_xlabel(NAMES[grid.x], fontsize=9)
    ax.set_title(grid.name, fontsize=9)
    plots.plain_axes(ax)


def write(out: Path, everything: Sequence[dict[str, list[Cell]]]) -> None:
    """A picture for each method, and the numbers."""
    write_csv(out / "phase.csv", [cell.row() for found in everything for cells in found.values() for cell in cells])
    for method in everything[0]:
        figure(method, everything).savefig(out / f"phase_{method}.png")


def main() -> None:
    able = contenders()
    own = [name for name in able if name not in FIXED]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.phase", description="Where recovery ends.")
    parser.add_argument("--methods", nargs="+", default=own, choices=able, help="default: all but those with a fixed γ")
    parser.add_argument("--trials", type=int, help="problems in each cell (default: 10)")
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each (default: 1, all threads)")
    parser.add_argument(
        "--quick", action="store_true", help="small problems, few cells and trials: to see that it runs"
    )
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for phase.csv and the pictures")
    given = parser.parse_args()
    trials = given.trials if given.trials is not None else (3 if given.quick else 10)
    if trials < 1 or given.jobs < 1:
        parser.error("--trials and --jobs must be 1 or more")
    grids = QUICK if given.quick else GRIDS
    methods = list(dict.fromkeys(given.methods))
    everything: list[dict[str, list[Cell]]] = []
    print(f"lowsparse {ls.__version__}; successes of {trials} trials; the default is {DEFAULT}\n", flush=True)
    with workers(given.jobs) as pool:
        for number, grid in enumerate(grids):
            began = time.perf_counter()
            found = run(number, grid, methods, trials, pool)
            print(describe(grid, found, time.perf_counter() - began) + "\n", flush=True)
            everything.append(found)
    totals = []
    for method in methods:
        all_trials = [trial for found in everything for cell in found[method] for trial in cell.trials]
        successes = sum(trial.success for trial in all_trials)
        totals.append([method, f"{successes}/{len(all_trials)}", f"{sum(t.seconds for t in all_trials):.1f}"])
    print("all grids\n" + table(["method", "successes", "s"], totals) + "\n")
    worse = [row for found in everything for row in beaten(found)]
    if DEFAULT in methods and len(methods) > 1:
        print(f"cells where {DEFAULT} is beaten by more than two standard errors: {len(worse) or 'none'}")
    if worse:
        print(table(["grid", "cell", DEFAULT, "best", "by"], worse, left=(0, 1, 4)))
    write(given.out, everything)
    print(f"pictures and numbers: {given.out}")


if __name__ == "__main__":
    main()
