"""What a signal does to a command: it stops like Ctrl-C, or ends a stream, and never in the middle of a rename."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["TerminatedError", "ending", "stoppable", "uninterrupted"]

# What asks a process to end: a batch system or `timeout`, and a terminal that was closed (not on Windows)
ASKING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class TerminatedError(KeyboardInterrupt):
    """Somebody else than the user at the keyboard has stopped the command; whoever handles Ctrl-C handles this."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number  # as a shell reports it


@contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise what Ctrl-C raises, so that what is half-done is cleared away.

    >>> try:
    ...     with stoppable():
    ...         signal.raise_signal(signal.SIGTERM)
    ... except KeyboardInterrupt as error:
    ...     print(error)
    SIGTERM
    """

    def stop(number: int, _: Any) -> None:
        raise TerminatedError(number)

    with _handled(stop, ASKING):
        yield


@contextmanager
def ending(asked: threading.Event) -> Iterator[None]:
    """Let the first signal set an event, for work without an end of its own; the next one stops the command.

    >>> asked = threading.Event()
    >>> with ending(asked):
    ...     signal.raise_signal(signal.SIGTERM)
    >>> asked.is_set()
    True
    """

    def end(number: int, _: Any) -> None:
        if not asked.is_set():
            asked.set()
        elif number in ASKING:
            raise TerminatedError(number)
        else:
            raise KeyboardInterrupt

    with _handled(end, [signal.SIGINT, *ASKING]):
        yield


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let signals wait until the block is done: for a few renames, and to clear away.

    >>> done = False
    >>> try:
    ...     with stoppable(), uninterrupted():
    ...         signal.raise_signal(signal.SIGTERM)
    ...         done = True
    ... except KeyboardInterrupt:
    ...     print("stopped; done:", done)
    stopped; done: True
    """
    came: list[int] = []
    with _handled(lambda number, _: came.append(number), [signal.SIGINT, *ASKING]):
        yield
    if came:
        signal.raise_signal(came[0])


@contextmanager
def _handled(handler: Any, numbers: list[signal.Signals]) -> Iterator[None]:
    """Handle signals so for a while; those that are ignored (nohup) stay so. Only the main thread is ever told."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in numbers if main}
    mine = {number: old for number, old in before.items() if old not in (None, signal.SIG_IGN)}
    try:
        for number in mine:
            signal.signal(number, handler)
        yield
    finally:
        for number, old in mine.items():
            signal.signal(number, old)
