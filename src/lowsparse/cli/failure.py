"""Errors of commands: exit codes, and one line for each exception with the cause and what to do."""

import errno
import functools
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, ParamSpec

import typer

from ..support.addresses import hide_passwords
from ..support.files import FULL
from .extras import advice_for
from .signals import TerminatedError, raise_on_signal
from .text import flush_stdout, one_line

FAILED, USAGE, STOPPED, UNREAD = 1, 2, 130, 141
EXIT_CODES = {
    0: "success",
    FAILED: "failure; one line on stderr says why and what to do",
    USAGE: "usage error: an unknown or invalid option or argument",
    STOPPED: "stopped by Ctrl-C (143: by SIGTERM); no partial output is left",
    UNREAD: "the reader of the output has closed the pipe",
}
DEBUG = "LOWSPARSE_DEBUG"

DISK_FULL = "the disk is full{at}: free some space, then run the same command again"
OS_ERRORS = {  # `at` is " (path)", if it is known
    errno.ENOENT: "there is no file or folder {path}: check the path",
    errno.EACCES: "no permission{at}: choose another path, or change the permissions",
    errno.EPERM: "no permission{at}: choose another path, or change the permissions",
    errno.EISDIR: "{path} is a folder, but a file is needed",
    errno.ENOTDIR: "a folder is needed, but a part of {path} is a file",
    errno.EROFS: "the disk is read-only{at}: choose another path",
    **dict.fromkeys(FULL, DISK_FULL),
}

Arguments = ParamSpec("Arguments")


class CommandError(Exception):
    """A failure with a message for the user."""

    def __init__(self, line: str, code: int = FAILED) -> None:
        super().__init__(line)
        self.code = code


def fail(line: str, code: int = FAILED) -> NoReturn:
    """End the command with this line on stderr."""
    raise CommandError(line, code)


def require(condition: bool, line: str) -> None:
    """End the command with a usage error unless the condition holds."""
    if not condition:
        raise CommandError(line, USAGE)


@contextmanager
def advise(*, stopped: str = "", memory: str = "") -> Iterator[None]:
    """Add advice to a Ctrl-C (how to resume) or a lack of memory (what to make smaller) that has none yet."""
    try:
        yield
    except (KeyboardInterrupt, MemoryError) as error:
        note = memory if isinstance(error, MemoryError) else stopped
        if note and not getattr(error, "__notes__", []):
            error.add_note(note)
        raise


def explain(error: BaseException) -> tuple[str, int]:
    """One line for an exception, and the exit code."""
    message, notes = one_line(str(error)), getattr(error, "__notes__", [])
    match error:
        case CommandError():
            return message, error.code
        case KeyboardInterrupt():
            code = error.code if isinstance(error, TerminatedError) else STOPPED
            return "; ".join(["stopped", *notes]), code
        case MemoryError():
            advice = notes or ["choose a smaller problem, or close other programs"]
            return "not enough memory" + (f" ({message})" if message else "") + ": " + ", ".join(advice), FAILED
        case OSError():
            return _explain_os_error(error), FAILED
        case ImportError():
            return advice_for(error), FAILED
        case ValueError() | RuntimeError() if message and not isinstance(error, NotImplementedError | RecursionError):
            return message, FAILED
    what = type(error).__name__ + (f": {message}" if message else "")
    return f"internal error ({what}): please report it, with the output of {DEBUG}=1", FAILED


def _explain_os_error(error: OSError) -> str:
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    path = " -> ".join(names)
    template = OS_ERRORS.get(error.errno or 0)
    if template and (path or "{path}" not in template):
        return one_line(template.format(path=path, at=f" ({path})" if path else ""))
    if error.strerror:
        return one_line(f"{path}: {error.strerror}" if path else error.strerror)
    return one_line(str(error)) or type(error).__name__


def debugging() -> bool:
    """Whether errors show a traceback."""
    return os.environ.get(DEBUG, "0") not in ("", "0")


def handle_errors(command: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """Decorate a command: every exception becomes one line on stderr and an exit code."""
    name = f"lowsparse {command.__name__}"

    @functools.wraps(command)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        try:
            with raise_on_signal(), _one_line_warnings(name):
                command(*args, **kwargs)
                sys.stdout.flush()
        except typer.Exit:
            raise
        except (Exception, KeyboardInterrupt) as error:
            _exit(name, error)

    return run


def _exit(name: str, error: BaseException) -> NoReturn:
    if isinstance(error, BrokenPipeError):
        flush_stdout()
        raise typer.Exit(UNREAD)
    if debugging():
        print(hide_passwords("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    line, code = explain(error)
    print(f"{name}: {line}", file=sys.stderr)
    flush_stdout()
    raise typer.Exit(code)


@contextmanager
def _one_line_warnings(name: str) -> Iterator[None]:
    shown: set[str] = set()  # each warning once

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        if (line := one_line(str(message))) not in shown:
            shown.add(line)
            print(f"{name}: warning: {line}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
