"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from .._version import __version__
from .demo import demo
from .reproduce import reproduce

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command()(demo)
app.command()(reproduce)


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
