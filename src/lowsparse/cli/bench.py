"""`lowsparse bench`: time and accuracy of methods on this machine, on synthetic data or on a file."""

from __future__ import annotations

import importlib
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from scipy import sparse
from scipy.sparse import linalg

from .. import solvers
from ..datasets import synthetic
from ..entries.observed import ObservedMatrix
from ..entries.statistics import column_medians
from ..linalg.lowrank import LowRank
from ..solve import solve
from ..support.format import percent, pluralize
from ..tables import read_table
from ..validation import holdout
from .extras import installed
from .failure import advise, fail, one_line, require
from .output import Json, Output, Quiet
from .progress import Meter, show_progress
from .text import paragraph, table, width

__all__ = ["bench"]

METHODS = ("auto", "amanpgc", "lmafit")
SIDE, RANK, OBSERVED, OUTLIERS = 1000, 5, 0.3, 0.1
HELD_OUT = 0.1  # share of the entries of a file

Fit = Callable[[ObservedMatrix, int], tuple[LowRank, str]]  # L, and the status


File = Annotated[Path | None, typer.Argument(help="A wide table, as for lowsparse complete. [default: synthetic data]")]
Rows = Annotated[int | None, typer.Option(help=f"Rows of the synthetic data. [default: {SIDE}]")]
Cols = Annotated[int | None, typer.Option(help="Columns of the synthetic data. [default: as many as rows]")]
Observed = Annotated[float | None, typer.Option(help=f"Fraction of observed entries. [default: {OBSERVED}]")]
Outliers = Annotated[float | None, typer.Option(help=f"Fraction of outliers among them. [default: {OUTLIERS}]")]
Rank = Annotated[int | None, typer.Option(help=f"The rank. [default: {RANK}; chosen automatically for a file]")]
Method = Annotated[
    list[str] | None,
    typer.Option(
        help=f"A method of lowsparse; repeatable. [default: {', '.join(METHODS)}]", autocompletion=solvers.names
    ),
]
Repeat = Annotated[int, typer.Option(help="Runs of each method; the median time counts.")]
Limit = Annotated[float, typer.Option(help="Time limit of each method of lowsparse, in seconds.")]
Seed = Annotated[int, typer.Option(help="Random seed of the data, or of the choice of held-out entries.")]


def bench(
    file: File = None,
    rows: Rows = None,
    cols: Cols = None,
    observed: Observed = None,
    outliers: Outliers = None,
    rank: Rank = None,
    method: Method = None,
    repeat: Repeat = 3,
    limit: Limit = 60.0,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare the time and accuracy of methods on this machine.

    They are compared with a plain singular value decomposition by SciPy, and by scikit-learn if it is installed, which
    takes missing entries for zero and outliers for data.
    """
    output = Output(quiet=quiet, json=json)
    for name, size in (("--rows", rows), ("--cols", cols), ("--rank", rank), ("--repeat", repeat)):
        require(size is None or size >= 1, f"{name} must be 1 or more, not {size}")
    require(limit > 0, f"--limit must be a number of seconds above 0, not {limit:g}")
    require(seed >= 0, f"--seed must be 0 or more, not {seed}")
    require(observed is None or 0 < observed <= 1, f"--observed must be a share above 0 and up to 1, not {observed}")
    require(outliers is None or 0 <= outliers < 1, f"--outliers must be a share from 0 to below 1, not {outliers}")
    for name, value in {"--rows": rows, "--cols": cols, "--observed": observed, "--outliers": outliers}.items():
        require(file is None or value is None, f"{name} is for synthetic data: leave it out, or leave out {file}")
    for name in method or ():
        require(name in ("auto", *solvers.names()), f"there is no method {name}: lowsparse methods lists them")
    with advise(memory="choose fewer rows and columns, or a smaller file"):
        if file is None:
            m, wrong = rows or cols or SIDE, OUTLIERS if outliers is None else outliers
            task = _synthetic_task(m, cols or m, rank or RANK, observed or OBSERVED, wrong, seed)
        else:
            task = _file_task(file, rank, seed, output)
        output.print(task.title)
        contestants = {**{name: _own_method(name, limit) for name in method or METHODS}, **_peers()}
        with show_progress(output, "running", total=len(contestants) * repeat, unit="runs") as meter:
            scores = [_score(name, fit, task, repeat, limit, meter) for name, fit in contestants.items()]
    facts = {"title": task.title, "shape": task.M.shape, "entries": task.M.nnz, "rank": task.rank, "runs": scores}
    output.result(facts, text=_report(task, scores), brief=_table(task, scores))


@dataclass(frozen=True)
class Task:
    """The data for all methods, and the error of their answers."""

    title: str
    M: ObservedMatrix
    rank: int
    error: Callable[[LowRank], float]
    heading: str  # of the column of errors
    meaning: str  # of the error


@dataclass(frozen=True)
class Score:
    """The time and error of one method."""

    name: str
    seconds: float
    error: float
    ended: str
    reason: str = ""  # why it failed


def _synthetic_task(m: int, n: int, rank: int, observed: float, outliers: float, seed: int) -> Task:
    require(
        rank <= min(m, n),
        f"--rank is {rank}, but a {m} x {n} matrix has at most rank {min(m, n)}: give a smaller --rank",
    )
    problem = synthetic(m, n, rank=rank, density=observed, outliers=outliers, random_state=seed)
    return Task(
        f"A synthetic {m} x {n} matrix of rank {rank}, {percent(observed)} observed, {percent(outliers)} outliers",
        problem.M,
        rank,
        lambda L: L.error(problem.L, relative=True),
        "error",
        "error: the relative distance to the true matrix.",
    )


def _file_task(file: Path, rank: int | None, seed: int, output: Output) -> Task:
    M = read_table(file).M
    split = holdout(M, HELD_OUT, np.random.default_rng([seed, 1]))
    rows, columns, held_out, seen = split.rows, split.columns, split.values, split.M
    if not held_out.size:
        fail(f"{file} has {pluralize(M.nnz, 'entry', 'entries')}, too few to hold some out")
    if rank is None:
        with show_progress(output, "choosing the rank", unit="iterations") as meter:
            rank = solve(seen, "auto", callback=meter.watch).L.rank
    else:
        require(rank <= min(M.shape), f"--rank is {rank}, but the data are {M.shape[0]} x {M.shape[1]}")
    medians = column_medians(seen, empty=float(np.median(seen.values)))
    spread = float(np.median(np.abs(held_out - medians[columns]))) or 1.0

    def error(L: LowRank) -> float:
        return float(np.median(np.abs(L.at(rows, columns) - held_out))) / spread

    return Task(
        f"{file}: {M.shape[0]} x {M.shape[1]}, {percent(M.density)} observed; rank {rank}",
        seen,
        rank,
        error,
        "held-out error",
        f"held-out error: the median error on {held_out.size:,} entries that the methods have not seen, relative to "
        "that of the median of the column; 1 or more means that low rank does not help.",
    )


def _own_method(name: str, limit: float) -> Fit:
    def fit(M: ObservedMatrix, rank: int) -> tuple[LowRank, str]:
        result = solve(M, rank, method=name, max_time=limit, random_state=1)
        return result.L, result.status.value

    return fit


def _peers() -> dict[str, Fit]:
    """Truncated SVDs of A / p, where A is 0 at missing entries and p is the fraction of observed ones."""

    def svds(M: ObservedMatrix, rank: int) -> tuple[LowRank, str]:
        U, s, Vt = linalg.svds(_filled(M), k=rank, v0=np.random.default_rng(1).standard_normal(min(M.shape)))
        return LowRank(U * s, Vt), ""

    def truncated(M: ObservedMatrix, rank: int) -> tuple[LowRank, str]:
        model = importlib.import_module("sklearn.decomposition").TruncatedSVD(rank, random_state=1)
        with np.errstate(invalid="ignore"):  # explained variance of constant data
            return LowRank(model.fit_transform(_filled(M)), model.components_), ""

    peers: dict[str, Fit] = {"svds": svds}
    if installed("scikit-learn"):
        peers["TruncatedSVD"] = truncated
    return peers


def _filled(M: ObservedMatrix) -> Any:
    return sparse.csc_array((M.values.astype(np.float64) / M.density, M.rows, M.indptr), shape=M.shape)


def _score(name: str, fit: Fit, task: Task, repeat: int, limit: float, meter: Meter) -> Score:
    """The median time of a few runs, fewer if they take long, after a tiny warm-up run."""
    seconds: list[float] = []
    try:
        fit(synthetic(30, 30, rank=1, density=1.0, outliers=0.0, random_state=1).M, 1)
        while len(seconds) < repeat and sum(seconds) < limit:
            began = time.perf_counter()
            L, status = fit(task.M, task.rank)
            seconds.append(time.perf_counter() - began)
            meter.advance(note=name)
    except (ValueError, RuntimeError) as error:
        return Score(name, math.nan, math.nan, "not possible", one_line(str(error)))
    return Score(name, statistics.median(seconds), task.error(L), status)


def _report(task: Task, scores: list[Score]) -> str:
    legend = [
        task.meaning,
        *([f"ratio: the time over that of {first.name}."] if (first := _first(scores)) else []),
        "svds (SciPy) and TruncatedSVD (scikit-learn, if installed) take missing entries for zero and outliers for "
        "data.",
    ]
    reasons = [f"{score.name}: {score.reason}" for score in scores if score.reason]
    parts = [_table(task, scores), *(paragraph(text, width()) for text in (*reasons, " ".join(legend)))]
    return "\n\n".join(parts)


def _table(task: Task, scores: list[Score]) -> str:
    first = _first(scores)
    rows = [
        [score.name, _number(score.seconds), _number(score.seconds / first.seconds), _error(score.error), score.ended]
        for score in scores
        if first
    ]
    return table(["method", "seconds", "ratio", task.heading, "status"], rows, left=(0, 4))


def _first(scores: list[Score]) -> Score | None:
    """The first method that could run: the others are compared with it."""
    return next((score for score in scores if score.seconds > 0), None)


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2g}" if value < 100 else f"{value:.0f}"


def _error(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.1e}"
