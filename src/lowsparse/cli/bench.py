"""`lowsparse bench`: how long methods take on this machine and how well they do, on made-up data or on one's own."""

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
from ..linalg.lowrank import LowRank
from ..linalg.scale import column_medians
from ..solve import solve
from ..support.format import counted, percent
from ..tables import read_table
from ..validation import holdout
from .extras import installed
from .failure import advise, fail, one_line, require
from .output import Json, Quiet, Voice
from .progress import Step, step
from .text import paragraph, table, width

__all__ = ["bench"]

METHODS = ("auto", "amanpgc", "lmafit")
SIDE, RANK, OBSERVED, OUTLIERS = 1000, 5, 0.3, 0.1
ASIDE = 0.1  # of the entries of a file: they are kept from the methods, and predicted

Fit = Callable[[ObservedMatrix, int], tuple[LowRank, str]]  # L, and how it ended


def bench(
    file: Annotated[
        Path | None,
        typer.Argument(help="Data of your own: a wide table, as of lowsparse complete. [default: made up]"),
    ] = None,
    rows: Annotated[int | None, typer.Option(help=f"Rows of made-up data. [default: {SIDE}]")] = None,
    cols: Annotated[int | None, typer.Option(help="Their columns. [default: as the rows]")] = None,
    observed: Annotated[float | None, typer.Option(help=f"Share of them observed. [default: {OBSERVED}]")] = None,
    outliers: Annotated[float | None, typer.Option(help=f"Share of that grossly wrong. [default: {OUTLIERS}]")] = None,
    rank: Annotated[int | None, typer.Option(help=f"The rank. [default: {RANK}; of a file it is chosen]")] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help=f"One of ours; may be repeated. [default: {', '.join(METHODS)}]", autocompletion=solvers.names
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(help="Runs of each; their median counts.")] = 3,
    limit: Annotated[float, typer.Option(help="Seconds for each of our methods.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Of the data, or of the choice of entries kept aside.")] = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods on this machine: time, and how well they do.

    Ours are compared with a plain singular value decomposition by what is installed of SciPy and scikit-learn, which
    takes what is missing for zero and gross errors for data: what the simplest thing costs, and what it misses.
    """
    voice = Voice(quiet=quiet, json=json)
    for name, size in (("--rows", rows), ("--cols", cols), ("--rank", rank), ("--repeat", repeat)):
        require(size is None or size >= 1, f"{name} must be 1 or more, not {size}")
    require(limit > 0, f"--limit must be a number of seconds above 0, not {limit:g}")
    require(seed >= 0, f"--seed must be 0 or more, not {seed}")
    require(observed is None or 0 < observed <= 1, f"--observed must be a share above 0 and up to 1, not {observed}")
    require(outliers is None or 0 <= outliers < 1, f"--outliers must be a share from 0 to below 1, not {outliers}")
    made_up = {"--rows": rows, "--cols": cols, "--observed": observed, "--outliers": outliers}
    for name, value in made_up.items():
        require(file is None or value is None, f"{name} is for made-up data: leave it out, or leave out {file}")
    for name in method or ():
        require(name in ("auto", *solvers.names()), f"there is no method {name}: lowsparse methods lists them")
    with advise(memory="choose fewer rows and columns, or a smaller file"):
        if file is None:
            wrong = OUTLIERS if outliers is None else outliers
            m = rows or cols or SIDE
            task = _made_up(m, cols or m, rank or RANK, observed or OBSERVED, wrong, seed)
        else:
            task = _of_file(file, rank, seed, voice)
        voice.say(task.title)
        contestants = {**{name: _ours(name, limit) for name in method or METHODS}, **_peers()}
        with step(voice, "running", total=len(contestants) * repeat, unit="runs") as running:
            scores = [_score(name, fit, task, repeat, limit, running) for name, fit in contestants.items()]
    facts = {"title": task.title, "shape": task.M.shape, "entries": task.M.nnz, "rank": task.rank, "runs": scores}
    voice.result(facts, text=_report(task, scores), brief=_table(task, scores))


@dataclass(frozen=True)
class Task:
    """What everybody is given, and how well an answer to it is."""

    title: str
    M: ObservedMatrix
    rank: int
    error: Callable[[LowRank], float]
    measure: str  # what `error` is, for the head of a column
    meaning: str


@dataclass(frozen=True)
class Score:
    """How one of them did."""

    name: str
    seconds: float
    error: float
    ended: str
    reason: str = ""  # why it could not run


def _made_up(m: int, n: int, rank: int, observed: float, outliers: float, seed: int) -> Task:
    require(
        rank <= min(m, n),
        f"--rank is {rank}, but a {m} x {n} matrix has at most rank {min(m, n)}: give a smaller --rank",
    )
    problem = synthetic(m, n, rank=rank, density=observed, outliers=outliers, random_state=seed)
    return Task(
        f"A made-up {m} x {n} matrix of rank {rank}: {percent(observed)} observed, {percent(outliers)} of that wrong",
        problem.M,
        rank,
        lambda L: L.error(problem.L, relative=True),
        "error",
        "error: the relative distance to the truth.",
    )


def _of_file(file: Path, rank: int | None, seed: int, voice: Voice) -> Task:
    M = read_table(file).M
    split = holdout(M, ASIDE, np.random.default_rng([seed, 1]))
    rows, columns, aside, seen = split.rows, split.columns, split.values, split.M
    if not aside.size:
        fail(f"{file} has {counted(M.nnz, 'entry', 'entries')}, too few to keep some aside")
    if rank is None:
        with step(voice, "choosing the rank", unit="iterations") as choosing:
            rank = solve(seen, "auto", callback=choosing.watch).L.rank
    else:
        require(rank <= min(M.shape), f"--rank is {rank}, but the data are {M.shape[0]} x {M.shape[1]}")
    usual = column_medians(seen, empty=float(np.median(seen.values)))
    spread = float(np.median(np.abs(aside - usual[columns]))) or 1.0

    def error(L: LowRank) -> float:
        return float(np.median(np.abs(L.at(rows, columns) - aside))) / spread

    return Task(
        f"{file}: {M.shape[0]} x {M.shape[1]}, {percent(M.density)} observed; rank {rank}",
        seen,
        rank,
        error,
        "error aside",
        f"error aside: the median error on {aside.size:,} entries that the methods have not seen. 1 is that of "
        "the median of a column; no better means that low rank does not help here.",
    )


def _ours(name: str, limit: float) -> Fit:
    def fit(M: ObservedMatrix, rank: int) -> tuple[LowRank, str]:
        result = solve(M, rank, method=name, max_time=limit, random_state=1)
        return result.L, result.status.value

    return fit


def _peers() -> dict[str, Fit]:
    """A plain singular value decomposition of A / p: A has zeros where nothing is observed, p is the share that is."""

    def svds(M: ObservedMatrix, rank: int) -> tuple[LowRank, str]:
        U, s, Vt = linalg.svds(_filled(M), k=rank, v0=np.random.default_rng(1).standard_normal(min(M.shape)))
        return LowRank(U * s, Vt), ""

    def truncated(M: ObservedMatrix, rank: int) -> tuple[LowRank, str]:
        model = importlib.import_module("sklearn.decomposition").TruncatedSVD(rank, random_state=1)
        with np.errstate(invalid="ignore"):  # the variance it explains of nothing
            return LowRank(model.fit_transform(_filled(M)), model.components_), ""

    peers: dict[str, Fit] = {"svds": svds}
    if installed("scikit-learn"):
        peers["TruncatedSVD"] = truncated
    return peers


def _filled(M: ObservedMatrix) -> Any:
    return sparse.csc_array((M.values.astype(np.float64) / M.density, M.rows, M.indptr), shape=M.shape)


def _score(name: str, fit: Fit, task: Task, repeat: int, limit: float, running: Step) -> Score:
    """The median time of some runs after a tiny one, for what is loaded on first use; fewer if they take long."""
    seconds: list[float] = []
    try:
        fit(synthetic(30, 30, rank=1, density=1.0, outliers=0.0, random_state=1).M, 1)
        while len(seconds) < repeat and sum(seconds) < limit:
            began = time.perf_counter()
            L, ended = fit(task.M, task.rank)
            seconds.append(time.perf_counter() - began)
            running.advance(note=name)
    except (ValueError, RuntimeError) as error:
        return Score(name, math.nan, math.nan, "not possible", one_line(str(error)))
    return Score(name, statistics.median(seconds), task.error(L), ended)


def _report(task: Task, scores: list[Score]) -> str:
    words = [
        task.meaning,
        *([f"ratio: the time over that of {first.name}."] if (first := _first(scores)) else []),
        "svds (SciPy) and TruncatedSVD (scikit-learn, if it is installed) take what is missing for zero, and gross "
        "errors for data.",
    ]
    reasons = [f"{score.name}: {score.reason}" for score in scores if score.reason]
    parts = [_table(task, scores), *(paragraph(text, width()) for text in (*reasons, " ".join(words)))]
    return "\n\n".join(parts)


def _table(task: Task, scores: list[Score]) -> str:
    first = _first(scores)
    rows = [
        [score.name, _number(score.seconds), _number(score.seconds / first.seconds), _error(score.error), score.ended]
        for score in scores
        if first
    ]
    return table(["method", "seconds", "ratio", task.measure, "status"], rows, left=(0, 4))


def _first(scores: list[Score]) -> Score | None:
    """What the others are compared with: the first that could run."""
    return next((score for score in scores if score.seconds > 0), None)


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2g}" if value < 100 else f"{value:.0f}"


def _error(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.1e}"
