"""`lowsparse reproduce`: the numerical section of the paper as a page with tables, figures and verdicts."""

from pathlib import Path
from typing import Annotated

import typer

from ..reproduce import PAGE, RUNS, RunProgress, settings
from ..reproduce import reproduce as run
from .failure import advise, fail, require
from .folder import reason_not_writable
from .output import Output
from .progress import show_progress

VIDEOS = ", ".join(settings.VIDEOS)
FILES = ", ".join(known.file for known in settings.VIDEOS.values() if known.file)
FOLDER, QUICK_FOLDER = "lowsparse-paper", "lowsparse-paper-quick"


def reproduce(
    quick: Annotated[
        bool, typer.Option("--quick", help="Scaled down: under two minutes with the compiled core.")
    ] = False,
    case: Annotated[list[int] | None, typer.Option(help="Synthetic case, 1 to 8; repeatable. [default: all]")] = None,
    video: Annotated[
        list[str] | None,
        typer.Option(help=f"{VIDEOS}, or a video file, array file or folder of pictures; repeatable. [default: all]"),
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(settings.METHODS)}; repeatable. [default: all]")
    ] = None,
    only: Annotated[str, typer.Option(help="'synthetic' or 'video': run only this half.")] = "",
    data: Annotated[Path, typer.Option(help=f"Folder with the videos known by name: {FILES}.")] = Path(
        settings.DATA_FOLDER
    ),
    out: Annotated[
        Path | None, typer.Option(help=f"Output folder. [default: {FOLDER}, or {QUICK_FOLDER} with --quick]")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ignore earlier runs in the output folder.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the path of the page.")] = False,
) -> None:
    """Reproduce the experiments of the paper.

    These are eight synthetic cases and background estimation in video; the result is a page with verdicts. Run the same
    command again to resume an interrupted run: runs in the output folder are reused if their settings, the version of
    lowsparse and the machine are the same.

    \b
      lowsparse reproduce --quick
      lowsparse reproduce --quick --only synthetic --case 4 --method ladder --out case-4
      lowsparse reproduce --only video --video street.avi
    """
    out = out or Path(QUICK_FOLDER if quick else FOLDER)
    require(only in ("", "synthetic", "video"), f"--only must be synthetic or video, not {only}")
    excluded = (only == "synthetic" and video) or (only == "video" and case)
    require(not excluded, f"--only {only} excludes what {'--video' if video else '--case'} asks for")
    _check_output(out)
    resume = f"finished runs are kept in {out}: run the same command again to resume"
    smaller = "choose --quick, or smaller cases (--case 4 is the smallest)"
    output = Output(quiet=quiet)
    with advise(stopped=resume, memory=smaller), show_progress(output, "running", unit="runs") as meter:

        def show(step: RunProgress) -> None:
            meter.total = step.total
            if step.state == "running":
                detail = f", iteration {step.iteration}, {step.figure:.1e}" if step.iteration else ""
                meter.reach(step.number - 1, step.title + detail)
            else:
                output.print(_line(step))
                meter.reach(step.number)

        page = run(
            out,
            quick=quick,
            cases=[] if only == "video" else case or None,
            videos=[] if only == "synthetic" else video or None,
            methods=method or None,
            data=data,
            fresh=fresh,
            progress=show,
            notice=lambda sentence: typer.echo(f"lowsparse reproduce: {sentence}", err=True),
        )
    typer.echo(str(page) if quiet else f"page: {page}")


def _check_output(out: Path) -> None:
    """Fail if the output folder cannot be written to, or holds something else."""
    if reason := reason_not_writable(out):
        fail(reason)
    if (out / RUNS).exists() and not (out / RUNS).is_dir():
        fail(f"{out / RUNS} is not a folder: choose another --out")
    if (out / PAGE).exists() and not (out / RUNS).is_dir():
        fail(f"{out / PAGE} is not from an earlier run: choose another --out")


def _line(step: RunProgress) -> str:
    reused = ": reused from an earlier run" if step.state == "kept" else ""
    return f"{step.number:>{len(str(step.total))}} of {step.total}  {step.title}{reused}"
