"""The `lowsparse` application with all its commands."""

from typing import Annotated

import typer

from .._version import __version__
from .bench import bench
from .complete import complete
from .demo import demo
from .doctor import doctor
from .failure import DEBUG, EXIT_CODES, handle_errors
from .methods import methods
from .reproduce import reproduce
from .video import video

CODES = "\n".join(f"  {code:<4} {meaning}" for code, meaning in EXIT_CODES.items())
WELCOME = f"""\
lowsparse {__version__}: data with holes and gross errors in, what is behind them out.

  lowsparse demo                  see it work, on a video that comes with it
  lowsparse complete table.csv    fill the holes of a table, list its errors
  lowsparse video street.mp4      the background of a video, and what moves
  lowsparse doctor                is it as it should be on this machine?

lowsparse --help lists all commands; COMMAND --help has options and examples.
lowsparse --install-completion lets TAB complete them.
In Python: import lowsparse as ls; ls.solve(X, rank=4)"""
EPILOG = f"\b\nExit codes:\n{CODES}\n\nSet {DEBUG}=1 in the environment to see a traceback on failure."

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None, epilog=EPILOG)
for command in (video, complete, demo, reproduce, bench, methods, doctor):
    app.command()(handle_errors(command))


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"lowsparse {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def lowsparse(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Robust PCA and robust matrix completion: a low-rank matrix from data with missing and wrong entries."""
    if context.invoked_subcommand is None:
        typer.echo(WELCOME)
