"""Options that all commands share, and their output: text or one JSON object on stdout, everything else on stderr."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from ..support.addresses import shown_address
from ..support.jsonable import to_json

Force = Annotated[bool, typer.Option("--force", help="Overwrite existing output files.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout, everything else to stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")]


@dataclass(frozen=True, kw_only=True)
class Output:
    """Prints what --quiet and --json ask for."""

    quiet: bool = False
    json: bool = False

    def print(self, text: str = "") -> None:
        """A message: on stdout, or on stderr with --json; nothing with --quiet."""
        if not self.quiet:
            print(text, file=sys.stderr if self.json else sys.stdout, flush=True)

    def result(self, facts: Mapping[str, object], *, text: str = "", brief: str = "") -> None:
        """The result: `facts` with --json, `brief` (a path, say) with --quiet, else `text`."""
        shown = to_json(facts) if self.json else brief if self.quiet else text
        if shown:
            print(shown, flush=True)


def repeat_command(arguments: Sequence[str] | None = None) -> str:
    """The current command line, with --force, as its output now exists, and without passwords.

    >>> repeat_command(["video", "rtsp://me:secret@cam-2/live", "--out", "a b"])
    "lowsparse video 'rtsp://***@cam-2/live' --out 'a b' --force"
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "--force" not in words:
        words.insert(words.index("--") if "--" in words else len(words), "--force")
    return shlex.join(["lowsparse", *map(shown_address, words)])
