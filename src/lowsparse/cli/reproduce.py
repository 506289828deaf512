"""`lowsparse reproduce`: the whole numerical section of the paper, as a page with tables, pictures and verdicts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ..reproduce import PAGE, RUNS, Step, settings
from ..reproduce import reproduce as run
from .failure import advise, fail, require
from .folder import obstacle

__all__ = ["reproduce"]

NAMES = ", ".join(settings.VIDEOS)
FILES = ", ".join(known.file for known in settings.VIDEOS.values() if known.file)
FOLDER, QUICK_FOLDER = "lowsparse-paper", "lowsparse-paper-quick"


def reproduce(
    quick: Annotated[
        bool, typer.Option("--quick", help="Scaled down; with the compiled core less than two minutes.")
    ] = False,
    case: Annotated[
        list[int] | None, typer.Option(help="Synthetic case, 1 to 8; may be repeated. [default: all]")
    ] = None,
    video: Annotated[
        list[str] | None,
        typer.Option(
            help=f"{NAMES}, or a video file, array file or folder of pictures; may be repeated. [default: all]"
        ),
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(settings.METHODS)}; may be repeated. [default: all]")
    ] = None,
    only: Annotated[str, typer.Option(help="'synthetic' or 'video': leave the other half out.")] = "",
    data: Annotated[Path, typer.Option(help=f"Folder with the videos known by name: {FILES}.")] = Path(
        settings.DATA_FOLDER
    ),
    out: Annotated[
        Path | None,
        typer.Option(help=f"Folder for all that is written. [default: {FOLDER}; of a quick run {QUICK_FOLDER}]"),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run everything anew, whatever is in the folder.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the page's path and nothing else.")] = False,
) -> None:
    """Reproduce the paper: eight synthetic cases and background estimation in video, every method, one page.

    An interrupted run goes on when the same command is given again: runs that are in the folder are kept if their
    settings, the version of lowsparse and the machine are the same.
    """
    out = out or Path(QUICK_FOLDER if quick else FOLDER)
    require(only in ("", "synthetic", "video"), f"--only must be synthetic or video, not {only}")
    left_out = (only == "synthetic" and video) or (only == "video" and case)
    require(not left_out, f"--only {only} leaves out what {'--video' if video else '--case'} asks for")
    _check_output(out)
    go_on = f"what is done is kept in {out}: give the same command again to go on"
    smaller = "choose --quick, or smaller cases (--case 4 is the smallest)"
    with advise(stopped=go_on, memory=smaller), _reporter(quiet) as report:
        page = run(
            out,
            quick=quick,
            cases=[] if only == "video" else case or None,
            videos=[] if only == "synthetic" else video or None,
            methods=method or None,
            data=data,
            fresh=fresh,
            progress=report,
            notice=lambda sentence: typer.echo(f"lowsparse reproduce: {sentence}", err=True),
        )
    typer.echo(str(page) if quiet else f"page: {page}")


def _check_output(out: Path) -> None:
    """Find out before the work whether its result can be kept, and that it is nobody else's folder."""
    if why := obstacle(out):
        fail(why)
    if (out / RUNS).exists() and not (out / RUNS).is_dir():
        fail(f"{out / RUNS} is not a folder: choose another --out")
    if (out / PAGE).exists() and not (out / RUNS).is_dir():
        fail(f"{out / PAGE} is not from an earlier run: choose another --out")


@contextmanager
def _reporter(quiet: bool) -> Iterator[Callable[[Step], None] | None]:
    """What is shown: on a terminal a bar and the run that is under way, else a line for every run that has ended."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console()
    if quiet:
        yield None
        return
    if not console.is_terminal:

        def plain(step: Step) -> None:
            if step.state != "running":
                typer.echo(_line(step))
                sys.stdout.flush()

        yield plain
        return
    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def live(step: Step) -> None:
            if step.state == "running":
                detail = f"  iteration {step.iteration}, {step.figure:.1e}" if step.iteration else ""
                bar.update(task, total=step.total, completed=step.number - 1, description=step.title + detail)
            else:
                bar.update(task, total=step.total, completed=step.number)
                bar.console.print(_line(step), highlight=False, markup=False)

        yield live


def _line(step: Step) -> str:
    """
    >>> _line(Step(3, 49, "case 1, ladder", "kept"))
    ' 3 of 49  case 1, ladder: there from an earlier run'
    """
    said = f"{step.number:>{len(str(step.total))}} of {step.total}  {step.title}"
    return said + (": there from an earlier run" if step.state == "kept" else "")
