"""What a command says and where: text or one JSON object on stdout, everything else on stderr."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ..support.jsonable import plain

__all__ = ["Force", "Json", "Quiet", "Voice", "to_json"]

Force = Annotated[bool, typer.Option("--force", help="Overwrite what an earlier run has written.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, everything else on stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="The result and nothing else.")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Voice:
    """What --quiet and --json make of the words of a command.

    >>> Voice().say("reading")
    reading
    >>> Voice(quiet=True).say("reading")
    >>> Voice(json=True).result({"error": float("nan")}, text="done")
    {"error": null}
    """

    quiet: bool = False
    json: bool = False

    def say(self, text: str = "") -> None:
        """Words for people: on stdout, or on stderr if a machine reads that."""
        if not self.quiet:
            print(text, file=sys.stderr if self.json else sys.stdout, flush=True)

    def result(self, facts: Mapping[str, Any], *, text: str = "", brief: str = "") -> None:
        """What the command was for: `facts` for --json, `brief` for --quiet (a path, say), else `text`."""
        said = to_json(facts) if self.json else brief if self.quiet else text
        if said:
            print(said, flush=True)


def to_json(facts: Any) -> str:
    """JSON in one line and in ASCII. What is not finite is null; arrays are lists, paths, dates and enums text.

    >>> to_json({"ranks": (0, 1), "error": float("inf")})
    '{"ranks": [0, 1], "error": null}'
    """
    return json.dumps(plain(facts), allow_nan=False)
