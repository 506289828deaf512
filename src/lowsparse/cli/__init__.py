"""The command line, one file per command; it needs the extra `cli`."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import NoReturn

from .text import let_go, spell_out

__all__ = ["main"]

NEEDED = {"typer": "typer", "rich": "rich", "matplotlib": "matplotlib", "PIL": "pillow"}  # of the extra


def main() -> NoReturn:
    """Run the command line and leave with its exit code; `lowsparse --help` says what they mean."""
    missing = [package for module, package in NEEDED.items() if find_spec(module) is None]
    if missing:
        _leave(f"the command line needs {', '.join(missing)}: python -m pip install 'lowsparse[cli]'", 1)
    try:
        from .app import app

        spell_out()
        sys.exit(app(prog_name="lowsparse", standalone_mode=False))
    except KeyboardInterrupt:
        _leave("stopped", 130)
    except Exception as error:
        # What the parser says of bad arguments. Typer brings these classes itself or takes them from click, by its
        # version, so they are known by what they offer.
        say = getattr(error, "format_message", None)
        if say is None:
            from .failure import debugging, explain

            if debugging():
                raise
            _leave(*explain(error))
        context = getattr(error, "ctx", None)
        path = "lowsparse" if context is None else context.command_path
        _leave(f"{' '.join(str(say()).split()).rstrip('.')}; {path} --help shows what there is", 2)


def _leave(line: str, code: int) -> NoReturn:
    print(f"lowsparse: {line}", file=sys.stderr)
    let_go()
    sys.exit(code)
