"""An iterator that works ahead of whoever uses it, in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["ahead"]

T = TypeVar("T")


PATIENCE = 1.0  # seconds to wait for an item that is no longer wanted


def ahead(items: Iterable[T], most: int = 8, until: threading.Event | None = None) -> Iterator[T]:
    """The same items in the same order, up to so many of them made before they are asked for.

    An error comes when its turn has come. When the iterator is closed, the thread ends after the item it is at. When
    `until` is set there are no more items, even if the thread still waits for one.

    >>> list(ahead(k * k for k in range(5)))
    [0, 1, 4, 9, 16]
    """
    made: queue.Queue[tuple[bool, T | BaseException | None]] = queue.Queue(most)
    closed = threading.Event()

    def put(item: T | BaseException | None, last: bool) -> None:
        while not closed.is_set():
            try:
                made.put((last, item), timeout=0.05)
                return
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put(item, False)
                if closed.is_set():
                    return
            put(None, True)
        except BaseException as error:
            put(error, True)

    thread = threading.Thread(target=work, name="reading ahead", daemon=True)
    thread.start()
    try:
        while True:
            last, item = _next(made, until)
            if not last:
                yield item
            elif isinstance(item, BaseException):
                raise item
            else:
                return
    finally:
        closed.set()
        thread.join(None if until is None else PATIENCE)


def _next(made: queue.Queue[tuple[bool, T | BaseException | None]], until: threading.Event | None) -> Any:
    """What was made next, or that there is no more."""
    if until is None:
        return made.get()
    while not until.is_set():
        with suppress(queue.Empty):
            return made.get(timeout=0.1)
    return True, None
