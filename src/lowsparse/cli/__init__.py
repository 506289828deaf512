"""The command line interface, one module per command; but for --version and doctor it needs the extra `cli`."""

import sys
from importlib.util import find_spec
from typing import NoReturn

from .._version import __version__
from .text import flush_stdout, replace_unencodable

__all__ = ["main"]

REQUIRED = {"typer": "typer", "rich": "rich", "matplotlib": "matplotlib", "PIL": "pillow"}


def main() -> NoReturn:
    """Run the command line and exit; `lowsparse --help` explains the exit codes."""
    missing = [package for module, package in REQUIRED.items() if find_spec(module) is None]
    if missing:
        _run_without_extras(sys.argv[1:], missing)
        _exit(f"the command line needs {', '.join(missing)}: python -m pip install 'lowsparse[cli]'", 1)
    try:
        from .app import app

        replace_unencodable()
        sys.exit(app(prog_name="lowsparse", standalone_mode=False))
    except KeyboardInterrupt:
        _exit("stopped", 130)
    except Exception as error:
        # Usage errors have `format_message`; their class is private to Typer.
        from .failure import debugging, explain
        from .text import one_line

        format_message = getattr(error, "format_message", None)
        if format_message is None:
            if debugging():
                raise
            _exit(*explain(error))
        context = getattr(error, "ctx", None)
        path = "lowsparse" if context is None else context.command_path
        said = one_line(str(format_message())).rstrip(".")
        _exit(f"{said}{'' if said.endswith('?') else ';'} try {path} --help", 2)


def _run_without_extras(words: list[str], missing: list[str]) -> None:
    """Run what does not need the extra `cli`, and exit; return if the words ask for something else."""
    if words == ["--version"]:
        print(f"lowsparse {__version__}")
        sys.exit()
    if words[:1] == ["doctor"] and set(words[1:]) <= {"--json", "--quiet", "-q"}:
        from .checkup import without_extras

        replace_unencodable()
        sys.exit(without_extras(words[1:], missing))


def _exit(line: str, code: int) -> NoReturn:
    print(f"lowsparse: {line}", file=sys.stderr)
    flush_stdout()
    sys.exit(code)
