"""`lowsparse doctor`: check the installation, its speed, and say what to do about problems."""

import typer

from .checkup import check, facts, is_healthy, problems, report
from .failure import FAILED
from .output import Json, Output, Quiet
from .probes import PROBES
from .progress import show_progress


def doctor(json: Json = False, quiet: Quiet = False) -> None:
    """Check the installation: versions, backend, threads, speed.

    The exit code is 1 if something is broken; the output says what to do about it.

    \b
      lowsparse doctor
      lowsparse doctor --json > machine.json
    """
    output = Output(quiet=quiet, json=json)
    with show_progress(output, "checking", total=len(PROBES)) as meter:
        found = check(meter.advance)
    output.result(facts(found), text=report(found), brief=problems(found))
    if not is_healthy(found):
        raise typer.Exit(FAILED)
