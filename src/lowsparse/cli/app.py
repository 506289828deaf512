"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from .._version import __version__
from .bench import bench
from .complete import complete
from .demo import demo
from .doctor import doctor
from .failure import DEBUG, EXIT_CODES, framed
from .methods import methods
from .reproduce import reproduce
from .video import video

__all__ = ["app"]

ENDINGS = "\n".join(f"  {code:<4} {meaning}" for code, meaning in EXIT_CODES.items())
EPILOG = f"\b\nExit codes:\n{ENDINGS}\n\nWith {DEBUG}=1 in the environment a failure shows where it happened."

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None, epilog=EPILOG)
for command in (video, complete, demo, reproduce, bench, methods, doctor):
    app.command()(framed(command))


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"lowsparse {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def lowsparse(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """A low-rank matrix from data with holes and gross errors: robust PCA and robust matrix completion."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
