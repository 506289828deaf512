"""How a command ends: its exit code, and from an exception to one line that says what is wrong and what to do."""

from __future__ import annotations

import errno
import functools
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, ParamSpec

import typer

from ..support.files import FULL
from .extras import advice_for
from .signals import TerminatedError, stoppable
from .text import let_go

__all__ = [
    "DEBUG",
    "EXIT_CODES",
    "CommandError",
    "advise",
    "debugging",
    "explain",
    "fail",
    "framed",
    "one_line",
    "require",
]

FAILED, USAGE, STOPPED, UNREAD = 1, 2, 130, 141
EXIT_CODES = {
    0: "done",
    FAILED: "failed; one line on stderr says why and what to do",
    USAGE: "bad usage: an option or argument that does not exist or does not fit",
    STOPPED: "stopped by Ctrl-C (143: by SIGTERM); no half-written output is left",
    UNREAD: "whoever read the output has closed the pipe",
}
DEBUG = "LOWSPARSE_DEBUG"

NO_ROOM = "the disk is full{at}: free some space, then give the same command again"
OF_SYSTEM = {  # `at` is " (path)", if it is known
    errno.ENOENT: "there is no file or folder {path}: check the path",
    errno.EACCES: "no permission{at}: choose another path, or change who may read and write there",
    errno.EPERM: "no permission{at}: choose another path, or change who may read and write there",
    errno.EISDIR: "{path} is a folder, but a file is needed",
    errno.ENOTDIR: "a folder is needed, but a part of {path} is a file",
    errno.EROFS: "this disk can only be read{at}: choose another path",
    **dict.fromkeys(FULL, NO_ROOM),
}

Arguments = ParamSpec("Arguments")


class CommandError(Exception):
    """What a command fails with when it knows why."""

    def __init__(self, line: str, code: int = FAILED) -> None:
        super().__init__(line)
        self.code = code


def fail(line: str, code: int = FAILED) -> NoReturn:
    """Leave the command with this line on stderr.

    >>> fail("out exists: give --force to overwrite it")
    Traceback (most recent call last):
    lowsparse.cli.failure.CommandError: out exists: give --force to overwrite it
    """
    raise CommandError(line, code)


def require(condition: bool, line: str) -> None:
    """Leave unless the arguments are such as they must be.

    >>> require(1 + 1 == 3, "--rank must be 1 or more, not 0")
    Traceback (most recent call last):
    lowsparse.cli.failure.CommandError: --rank must be 1 or more, not 0
    """
    if not condition:
        raise CommandError(line, USAGE)


@contextmanager
def advise(*, stopped: str = "", memory: str = "") -> Iterator[None]:
    """Say more about a Ctrl-C (what is left, how to go on) or a lack of memory (what to make smaller) in the block.

    >>> try:
    ...     with advise(stopped="nothing was written"):
    ...         raise KeyboardInterrupt
    ... except KeyboardInterrupt as error:
    ...     explain(error)
    ('stopped; nothing was written', 130)
    """
    try:
        yield
    except (KeyboardInterrupt, MemoryError) as error:
        if note := memory if isinstance(error, MemoryError) else stopped:
            error.add_note(note)
        raise


def explain(error: BaseException) -> tuple[str, int]:
    """One line for an exception, and the exit code.

    >>> explain(FileNotFoundError(errno.ENOENT, "No such file", "in.csv"))
    ('there is no file or folder in.csv: check the path', 1)
    """
    said, notes = one_line(str(error)), getattr(error, "__notes__", [])
    match error:
        case CommandError():
            return said, error.code
        case KeyboardInterrupt():
            code = error.code if isinstance(error, TerminatedError) else STOPPED
            return "; ".join(["stopped", *notes]), code
        case MemoryError():
            how = notes or ["choose a smaller problem, or end other programs"]
            return "not enough memory" + (f" ({said})" if said else "") + ": " + ", ".join(how), FAILED
        case OSError():
            return _of_system(error), FAILED
        case ImportError():
            return advice_for(error), FAILED
        case ValueError() | RuntimeError() if said and not isinstance(error, NotImplementedError | RecursionError):
            return said, FAILED
    what = type(error).__name__ + (f": {said}" if said else "")
    return f"a mistake in lowsparse ({what}): please report it, with what {DEBUG}=1 shows", FAILED


def _of_system(error: OSError) -> str:
    named = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    path = " -> ".join(named)
    known = OF_SYSTEM.get(error.errno or 0)
    if known and (path or "{path}" not in known):
        return one_line(known.format(path=path, at=f" ({path})" if path else ""))
    if error.strerror:
        return one_line(f"{path}: {error.strerror}" if path else error.strerror)
    return one_line(str(error)) or type(error).__name__


def one_line(text: str) -> str:
    """Text without its line breaks.

    >>> one_line("bad  value\\n  in line 3")
    'bad value in line 3'
    """
    return " ".join(text.split())


def debugging() -> bool:
    """Whether a failure is to show where it happened.

    >>> debugging()
    False
    """
    return os.environ.get(DEBUG, "0") not in ("", "0")


def framed(command: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """A command that ends as this file says, whatever happens in it."""
    name = f"lowsparse {command.__name__}"

    @functools.wraps(command)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        try:
            with stoppable(), _warnings_in_one_line(name):
                command(*args, **kwargs)
                sys.stdout.flush()
        except typer.Exit:
            raise
        except (Exception, KeyboardInterrupt) as error:
            _leave(name, error)

    return run


def _leave(name: str, error: BaseException) -> NoReturn:
    if isinstance(error, BrokenPipeError):
        let_go()
        raise typer.Exit(UNREAD)
    if debugging():
        traceback.print_exception(error)
    line, code = explain(error)
    print(f"{name}: {line}", file=sys.stderr)
    let_go()
    raise typer.Exit(code)


@contextmanager
def _warnings_in_one_line(name: str) -> Iterator[None]:
    said: set[str] = set()  # once, from wherever it comes

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if (line := one_line(str(message))) not in said:
            said.add(line)
            print(f"{name}: warning: {line}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
