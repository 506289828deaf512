"""`lowsparse bench`: time and accuracy of methods on this machine, on synthetic data or on a file."""

from __future__ import annotations

import importlib
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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
from .failure import advise, fail, require
from .output import Json, Output, Quiet
from .progress import Meter, show_progress
from .text import one_line, paragraph, table, width

METHODS = ("auto", "amanpgc", "lmafit")
SIDE, RANK, OBSERVED, OUTLIERS = 1000, 5, 0.3, 0.1
HELD_OUT = 0.1  # share of the entries of a file
PEERS = (
    "svds (SciPy) and TruncatedSVD (scikit-learn, if installed) treat missing entries as zeros and outliers as data."
)

Fit = Callable[[ObservedMatrix, int], tuple[LowRank, str]]  # L, and the status


def bench(
    file: Annotated[
        Path | None, typer.Argument(help="A wide table, as for lowsparse complete. [default: synthetic data]")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help=f"Rows of the synthetic data. [default: {SIDE}]")] = None,
    cols: Annotated[
        int | None, typer.Option(min=1, help="Columns of the synthetic data. [default: as many as rows]")
    ] = None,
    observed: Annotated[float | None, typer.Option(help=f"Fraction of observed entries. [default: {OBSERVED}]")] = None,
    outliers: Annotated[
        float | None, typer.Option(help=f"Fraction of outliers among them. [default: {OUTLIERS}]")
    ] = None,
    rank: Annotated[
        int | None, typer.Option(min=1, help=f"The rank. [default: {RANK}; chosen automatically for a file]")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help=f"A method of lowsparse; repeatable. [default: {', '.join(METHODS)}]", autocompletion=solvers.names
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each method; the median time counts.")] = 3,
    limit: Annotated[float, typer.Option(help="Time limit of each method of lowsparse, in seconds.")] = 60.0,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed of the data, or of the choice of held-out entries.")
    ] = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare the time and accuracy of methods on this machine.

    They are compared with a plain singular value decomposition by SciPy, and by scikit-learn if it is installed, which
    treats missing entries as zeros and outliers as data.

    \b
      lowsparse bench
      lowsparse bench --rows 300 --observed 0.5 --method auto --method rmc
      lowsparse bench air.npy --rank 3
    """
    output = Output(quiet=quiet, json=json)
    require(limit > 0, f"--limit must be a number of seconds above 0, not {limit:g}")
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
        contestants: dict[str, Fit] = {name: partial(_solve, method=name, limit=limit) for name in method or METHODS}
        contestants |= {"svds": _svds} | ({"TruncatedSVD": _truncated_svd} if installed("scikit-learn") else {})
        with show_progress(output, "running", total=len(contestants) * repeat, unit="runs") as meter:
            scores = [_score(name, fit, task, repeat, limit, meter) for name, fit in contestants.items()]
    facts = {"title": task.title, "shape": task.M.shape, "entries": task.M.nnz, "rank": task.rank, "runs": scores}
    text, brief = _report(task, scores)
    output.result(facts, text=text, brief=brief)


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
    bound = f"a {m} x {n} matrix has at most rank {min(m, n)}"
    require(rank <= min(m, n), f"--rank is {rank}, but {bound}: give a smaller --rank")
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
    m, n = M.shape
    split = holdout(M, HELD_OUT, np.random.default_rng([seed, 1]))
    if not split.values.size:
        fail(f"{file} has {pluralize(M.nnz, 'entry', 'entries')}, too few to hold some out")
    if rank is None:
        with show_progress(output, "choosing the rank", unit="iterations") as meter:
            rank = solve(split.M, "auto", callback=meter.watch).L.rank
    else:
        require(rank <= min(m, n), f"--rank is {rank}, but the data are {m} x {n}")
    medians = column_medians(split.M, empty=float(np.median(split.M.values)))
    spread = float(np.median(np.abs(split.values - medians[split.columns]))) or 1.0
    return Task(
        f"{file}: {m} x {n}, {percent(M.density)} observed; rank {rank}",
        split.M,
        rank,
        lambda L: float(np.median(np.abs(split.residual(L)))) / spread,
        "held-out error",
        f"held-out error: the median error on {split.values.size:,} entries that the methods have not seen, relative "
        "to that of the column's median; 1 or more means that low rank does not help.",
    )


def _solve(M: ObservedMatrix, rank: int, *, method: str, limit: float) -> tuple[LowRank, str]:
    result = solve(M, rank, method=method, max_time=limit, random_state=1)
    return result.L, result.status.value


# Truncated SVDs of A / p, where A is 0 at missing entries and p is the share of observed ones


def _filled(M: ObservedMatrix) -> sparse.csc_array[Any]:
    return sparse.csc_array((M.values.astype(np.float64) / M.density, M.rows, M.indptr), shape=M.shape)


def _svds(M: ObservedMatrix, rank: int) -> tuple[LowRank, str]:
    U, s, Vt = linalg.svds(_filled(M), k=rank, v0=np.random.default_rng(1).standard_normal(min(M.shape)))
    return LowRank(U * s, Vt), ""


def _truncated_svd(M: ObservedMatrix, rank: int) -> tuple[LowRank, str]:
    model = importlib.import_module("sklearn.decomposition").TruncatedSVD(rank, random_state=1)
    with np.errstate(invalid="ignore"):  # explained variance of constant data
        return LowRank(model.fit_transform(_filled(M)), model.components_), ""


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


def _report(task: Task, scores: list[Score]) -> tuple[str, str]:
    """The table, and below it what it means; the table alone. Times are compared with the first that could run."""
    first = next((score for score in scores if score.seconds > 0), None)
    unit = first.seconds if first else math.nan
    rows = []
    for score in scores:
        error = "" if math.isnan(score.error) else f"{score.error:.1e}"
        rows.append([score.name, _number(score.seconds), _number(score.seconds / unit), error, score.ended])
    brief = table(["method", "seconds", "ratio", task.heading, "status"], rows, left=(0, 4))
    ratio = f" ratio: the time over that of {first.name}." if first else ""
    reasons = [f"{score.name}: {score.reason}" for score in scores if score.reason]
    texts = [*reasons, f"{task.meaning}{ratio} {PEERS}"]
    return "\n\n".join([brief, *(paragraph(text, width()) for text in texts)]), brief


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2g}" if value < 100 else f"{value:.0f}"
