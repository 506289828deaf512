"""Signals: they stop a command like Ctrl-C, end a stream, and wait for renames."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from ..support.startup import STOPPING


class TerminatedError(KeyboardInterrupt):
    """A signal has stopped the command; handlers of Ctrl-C handle this, too."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number  # as a shell reports it


@contextmanager
def raise_on_signal() -> Iterator[None]:
    """Let signals raise a KeyboardInterrupt, so that partial output is cleaned up.

    Libraries may replace it by another error, above all while they are imported: the command was stopped all the same.
    """
    received: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        received.append(number)
        raise TerminatedError(number)

    with _handled(stop):
        try:
            yield
        except Exception as error:
            if received:
                raise TerminatedError(received[0]) from error
            raise


@contextmanager
def set_on_signal(event: threading.Event) -> Iterator[None]:
    """Let the first signal set an event, to end a stream; the next one stops the command."""

    def end(number: int, _: FrameType | None) -> None:
        if event.is_set():
            raise TerminatedError(number)
        event.set()

    with _handled(end):
        yield


@contextmanager
def defer_signals() -> Iterator[None]:
    """Defer signals to the end of the block: for a few renames, and to clean up."""
    received: list[int] = []
    with _handled(lambda number, _: received.append(number)):
        yield
    if received:
        signal.raise_signal(received[0])


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Replace signal handlers during the block, but not of ignored signals (nohup); only the main thread may."""
    main = threading.current_thread() is threading.main_thread()
    previous = {number: signal.getsignal(number) for number in STOPPING if main}
    replaced = {number: old for number, old in previous.items() if old not in (None, signal.SIG_IGN)}
    try:
        for number in replaced:
            signal.signal(number, handler)
        yield
    finally:
        for number, old in replaced.items():
            signal.signal(number, old)
