"""An iterator that works ahead of whoever uses it, in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

__all__ = ["ahead"]

T = TypeVar("T")


def ahead(items: Iterable[T], most: int = 8) -> Iterator[T]:
    """The same items in the same order, up to so many of them made before they are asked for.

    An error comes when its turn has come. When the iterator is closed, the thread ends after the item it is at.

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
            last, item = made.get()
            if not last:
                yield item  # type: ignore[misc]
            elif isinstance(item, BaseException):
                raise item
            else:
                return
    finally:
        closed.set()
        thread.join()
