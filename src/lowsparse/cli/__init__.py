"""The command line, one file per command; it needs the extra `cli`."""

from __future__ import annotations

import sys
from importlib.util import find_spec

__all__ = ["main"]

NEEDED = ("typer", "rich", "matplotlib")  # of the extra


def main() -> None:
    """Run the command line and leave with its exit code: 0, 1 (it failed), 2 (bad usage) or 130 (Ctrl-C)."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        _leave(1, f"the command line needs {', '.join(missing)}: python -m pip install 'lowsparse[cli]'")
    try:
        from .app import app

        sys.exit(app(prog_name="lowsparse", standalone_mode=False))
    except KeyboardInterrupt:
        _leave(130, "stopped")
    except Exception as error:
        # What the parser says of bad arguments. Typer brings these classes itself or takes them from click, by its
        # version, so they are known by what they offer.
        say = getattr(error, "format_message", None)
        if say is None:
            raise
        _leave(2, " ".join(str(say()).split()))


def _leave(code: int, line: str) -> None:
    print(f"lowsparse: {line}", file=sys.stderr)
    sys.exit(code)
