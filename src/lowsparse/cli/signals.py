"""Signals: they stop a command like Ctrl-C, end a stream, and wait for renames."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["TerminatedError", "defer_signals", "raise_on_signal", "set_on_signal"]

# Sent by batch systems and `timeout`, and by a closed terminal (not on Windows)
TERMINATE = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class TerminatedError(KeyboardInterrupt):
    """A signal other than Ctrl-C has stopped the command; handlers of Ctrl-C handle this, too."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number  # as a shell reports it


@contextmanager
def raise_on_signal() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise a KeyboardInterrupt, so that partial output is cleaned up."""

    def stop(number: int, _: Any) -> None:
        raise TerminatedError(number)

    with _handled(stop, TERMINATE):
        yield


@contextmanager
def set_on_signal(event: threading.Event) -> Iterator[None]:
    """Let the first signal set an event, to end a stream; the next one stops the command."""

    def end(number: int, _: Any) -> None:
        if not event.is_set():
            event.set()
        elif number in TERMINATE:
            raise TerminatedError(number)
        else:
            raise KeyboardInterrupt

    with _handled(end, [signal.SIGINT, *TERMINATE]):
        yield


@contextmanager
def defer_signals() -> Iterator[None]:
    """Defer signals to the end of the block: for a few renames, and to clean up."""
    received: list[int] = []
    with _handled(lambda number, _: received.append(number), [signal.SIGINT, *TERMINATE]):
        yield
    if received:
        signal.raise_signal(received[0])


@contextmanager
def _handled(handler: Any, numbers: list[signal.Signals]) -> Iterator[None]:
    """Replace signal handlers during the block, but not of ignored signals (nohup); only the main thread may."""
    main = threading.current_thread() is threading.main_thread()
    previous = {number: signal.getsignal(number) for number in numbers if main}
    replaced = {number: old for number, old in previous.items() if old not in (None, signal.SIG_IGN)}
    try:
        for number in replaced:
            signal.signal(number, handler)
        yield
    finally:
        for number, old in replaced.items():
            signal.signal(number, old)
