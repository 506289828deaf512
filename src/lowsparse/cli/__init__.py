"""The command line interface, one module per command; needs the extra `cli`."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import NoReturn

from .text import flush_stdout, replace_unencodable

__all__ = ["main"]

REQUIRED = {"typer": "typer", "rich": "rich", "matplotlib": "matplotlib", "PIL": "pillow"}


def main() -> NoReturn:
    """Run the command line and exit; `lowsparse --help` explains the exit codes."""
    missing = [package for module, package in REQUIRED.items() if find_spec(module) is None]
    if missing:
        _exit(f"the command line needs {', '.join(missing)}: python -m pip install 'lowsparse[cli]'", 1)
    try:
        from .app import app

        replace_unencodable()
        sys.exit(app(prog_name="lowsparse", standalone_mode=False))
    except KeyboardInterrupt:
        _exit("stopped", 130)
    except Exception as error:
        # Usage errors have `format_message`; by version their class is Typer's own or click's.
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            from .failure import debugging, explain

            if debugging():
                raise
            _exit(*explain(error))
        context = getattr(error, "ctx", None)
        path = "lowsparse" if context is None else context.command_path
        _exit(f"{' '.join(str(format_message()).split()).rstrip('.')}; try {path} --help", 2)


def _exit(line: str, code: int) -> NoReturn:
    print(f"lowsparse: {line}", file=sys.stderr)
    flush_stdout()
    sys.exit(code)
