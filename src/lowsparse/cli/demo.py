"""`lowsparse demo`: a problem whose answer is known, solved by the paper's four methods, as a table and a picture."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import plots, sweeps
from .._version import __version__
from ..datasets import SyntheticProblem, synthetic
from ..files import write_csv
from ..observed import ObservedMatrix
from ..result import Result
from ..solve import Progress, solve
from ..sweeps.native import num_threads
from .failure import advise, require
from .folder import output_folder
from .output import Voice
from .text import percent, table

__all__ = ["demo"]

METHODS = ("manpg", "amanpg", "manpgc", "amanpgc")
PICTURE, NUMBERS = "convergence.png", "convergence.csv"
SIDE = {"native": 2000, "numpy": 400}  # of the matrix, where none was asked for: a few seconds on either backend
LOST = 0.1  # a relative error with which nobody would speak of recovery
CSV_COLUMNS = ("iteration", "seconds", "error", "objective", "gamma")


def demo(
    rows: Annotated[int | None, typer.Option(help="Rows of the matrix. [default: 2000; on NumPy 400]")] = None,
    cols: Annotated[int | None, typer.Option(help="Columns of the matrix. [default: as the rows]")] = None,
    rank: Annotated[int, typer.Option(help="Rank of the low-rank part L.")] = 5,
    observed: Annotated[float, typer.Option(help="Share of the entries that is observed.")] = 0.2,
    outliers: Annotated[float, typer.Option(help="Share of the observed entries that is grossly wrong.")] = 0.1,
    noise: Annotated[float, typer.Option(help="Standard deviation of noise on every entry.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the data; the solvers have seeds of their own.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the picture and the numbers.")] = Path("lowsparse-demo"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite an earlier picture there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the picture's path and nothing else.")] = False,
) -> None:
    """Solve a made-up problem by four methods: a table, a picture.

    A low-rank matrix is recovered from a share of its entries, some of them grossly wrong. Nothing is downloaded. The
    relative error against the truth is measured after every iteration, and drawn against time and iterations.
    """
    for name, size in (("--rows", rows), ("--cols", cols), ("--rank", rank)):
        require(size is None or size >= 1, f"{name} must be 1 or more, not {size}")
    require(0 < observed <= 1, f"--observed must be a share above 0 and up to 1 (0.2 is 20 %), not {observed:g}")
    require(0 <= outliers < 1, f"--outliers must be a share from 0 to below 1 (0.1 is 10 %), not {outliers:g}")
    require(0 <= noise < math.inf, f"--noise must be 0 or more, and finite, not {noise:g}")
    require(seed >= 0, f"--seed must be 0 or more, not {seed}")
    voice = Voice(quiet=quiet)
    with (
        advise(memory="choose fewer rows, columns or observed entries"),
        output_folder(out, (PICTURE, NUMBERS), force=force) as folder,
    ):
        backend, remark = _backend()
        m = rows or cols or SIDE[backend]
        n = cols or m
        require(rank <= min(m, n), f"--rank is {rank}, but a {m} x {n} matrix has at most rank {min(m, n)}")
        problem = synthetic(m, n, rank=rank, density=observed, outliers=outliers, noise=noise, random_state=seed)
        wrong = int((problem.S != 0).sum())
        voice.say(f"lowsparse {__version__}: a {m} x {n} matrix of rank {rank}")
        voice.say(
            f"  observed: {problem.M.nnz:,} entries ({percent(problem.M.density)}), {wrong:,} of them grossly wrong"
        )
        voice.say(f"  backend: {backend}{remark}")
        voice.say()
        solved: dict[str, tuple[Result, list[float]]] = {}
        with _reporter(quiet) as report:
            for method in METHODS:
                solved[method] = _watched(problem, rank, method, backend, seed + 1, report)
        traces = {method: {**result.trace, "error": errors} for method, (result, errors) in solved.items()}
        voice.say(_summary(solved))
        title = f"A {m} × {n} matrix of rank {rank}: {percent(observed)} observed, {percent(outliers)} of that wrong"
        _write(folder, traces, title + (f", noise {noise:g}" if noise else ""))
    picture = out / PICTURE
    typer.echo(str(picture) if quiet else f"picture: {picture}\nnumbers: {picture.with_name(NUMBERS)}")


def _backend() -> tuple[str, str]:
    """The backend a solve would run on, and a remark on it."""
    tiny = ObservedMatrix.from_dense([[1.0]])
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        name = sweeps.open_sweep(tiny).name
    if warned:  # a fallback that nobody asked for
        return name, f", which works but is many times slower: {sweeps.available()['native']}"
    if name == "native":
        threads = num_threads()
        return name, f", the compiled core, on {threads} thread{'s' if threads > 1 else ''}"
    return name, ", as LOWSPARSE_BACKEND says"


Report = Callable[[str, Progress | None, float], None]


@contextmanager
def _reporter(quiet: bool) -> Iterator[Report]:
    """What is shown while a method runs: a live line on a terminal, else a line when it has ended."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console()
    if quiet or not console.is_terminal:

        def plain(method: str, progress: Progress | None, error: float) -> None:
            if progress is None and not quiet:
                typer.echo(f"{method}: relative error {error:.2g}")
                sys.stdout.flush()

        yield plain
        if not quiet:
            typer.echo("")
        return
    columns = (
        TextColumn("{task.description:<8}"),
        BarColumn(bar_width=24),
        TextColumn("iteration {task.fields[iteration]:>3}  relative error {task.fields[error]:.1e}"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=console, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def live(method: str, progress: Progress | None, error: float) -> None:
            if method not in tasks:
                tasks[method] = bar.add_task(method, total=None, iteration=0, error=error)
            if progress is None:
                bar.update(tasks[method], total=1, completed=1, error=error)
            else:
                bar.update(tasks[method], iteration=progress.iteration, error=error)

        yield live


def _watched(
    problem: SyntheticProblem, rank: int, method: str, backend: str, seed: int, report: Report
) -> tuple[Result, list[float]]:
    """A solve, and the relative error of L after each of its iterations."""
    errors: list[float] = []

    def watch(progress: Progress) -> None:
        errors.append(progress.lowrank().error(problem.L, relative=True))
        report(method, progress, errors[-1])

    result = solve(problem.M, rank, method=method, backend=backend, random_state=seed, callback=watch)
    report(method, None, result.L.error(problem.L, relative=True))
    return result, errors


def _summary(solved: dict[str, tuple[Result, list[float]]]) -> str:
    """The convergence table, and what there is to say about it."""
    rows = []
    unfinished: dict[str, list[str]] = {}  # methods by what is said of them
    for method, (result, errors) in solved.items():
        gamma = result.trace["gamma"]
        fixed = gamma[0] == gamma[-1]
        how = f"{gamma[0]:.2g}, fixed" if fixed else f"{gamma[0]:.2g} down to {gamma[-1]:.2g}"
        row = [method, str(result.n_iter), f"{result.seconds:.2f}", f"{errors[-1]:.1e}", result.status.value, how]
        rows.append(row)
        if not result.converged:
            unfinished.setdefault(result.message, []).append(method)
    header = ["method", "iterations", "seconds", "relative error", "status", "gamma"]
    best = min(solved, key=lambda method: solved[method][1][-1])
    error = solved[best][1][-1]
    lines = [
        table(header, rows, left=(0, 4, 5)),
        "",
        "gamma is the threshold above which a deviation counts as an outlier, and sets the error a method ends at:",
        "manpg and amanpg keep it fixed, manpgc and amanpgc lower it in stages.",
        *(f"{', '.join(methods)}: {message}" for message, methods in unfinished.items()),
        *solved[best][0].notes,
        "",
        f"final relative error: {error:.1e} ({best})",
    ]
    if error > LOST:
        lines.append("the matrix was not recovered: too few entries are observed, or too many are wrong, for this rank")
    return "\n".join(lines)


def _write(folder: Path, traces: dict[str, dict[str, Any]], title: str) -> None:
    """Picture and numbers."""
    plots.convergence_figure(traces, title=title).savefig(folder / PICTURE)
    rows = [
        {"method": method, **dict(zip(CSV_COLUMNS, (int(values[0]), *map(float, values[1:])), strict=True))}
        for method, trace in traces.items()
        for values in zip(*(trace[name] for name in CSV_COLUMNS), strict=True)
    ]
    write_csv(folder / NUMBERS, rows, digits=6)
