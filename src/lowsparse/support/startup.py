"""Before NumPy is imported: subinterpreters are refused, and signals end the command with one line and an exit code.

The package imports this module before all others, which take a second: it must import little itself.
"""

import importlib
import os
import signal
import sys
from types import FrameType

# Ctrl-C; batch systems and `timeout`; a closed terminal (not on Windows)
STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def refuse_subinterpreter() -> None:
    """Raise an ImportError in a subinterpreter, where NumPy and the compiled core crash or hang."""
    try:
        interpreters = importlib.import_module("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    except ImportError:  # this Python has none
        return
    if interpreters.get_current() != interpreters.get_main():
        raise ImportError(
            "lowsparse cannot run in a subinterpreter: use threads or processes instead"
            " (under mod_wsgi: WSGIApplicationGroup %{GLOBAL})"
        )


def exit_on_signals() -> None:
    """Let signals end this process at once if it is the command; signals that are ignored (nohup) stay so.

    There is nothing to clean up, and an exception would be lost or changed in the imports of other libraries. A
    command replaces these handlers while it runs (`lowsparse.cli.signals`).
    """
    if not _is_command():
        return
    for number in STOPPING:
        if signal.getsignal(number) not in (None, signal.SIG_IGN):
            try:
                signal.signal(number, _exit)
            except ValueError:  # not in the main thread
                return


def _is_command() -> bool:
    """Whether Python was started as `lowsparse` or `python -m lowsparse`, and not by a program that imports it."""
    arguments = getattr(sys, "argv", None) or [""]
    started = sys.orig_argv[-len(arguments) :][0] if sys.orig_argv else ""  # the script or module before its arguments
    name, _ = os.path.splitext(os.path.basename(started))
    return name == "lowsparse" and arguments[0] in (started, "-m")


def _exit(number: int, _: FrameType | None) -> None:
    try:
        os.write(2, b"lowsparse: stopped\n")
    finally:  # also if stderr is closed
        os._exit(128 + number)  # as a shell reports it
