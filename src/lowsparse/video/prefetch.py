"""An iterator whose items are made in advance, in a thread of its own."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")
JOIN_TIMEOUT = 1.0  # seconds to wait for a thread that is blocked by its source


def prefetch(items: Iterable[T], size: int = 4, until: threading.Event | None = None) -> Iterator[T]:
    """The same items in the same order, up to `size` of them made in advance.

    An error is raised in its place among the items. When the iterator is closed, the thread ends after its current
    item. Setting `until` ends the iteration, even while the thread waits for its source.
    """
    made: queue.Queue[tuple[list[T], BaseException | None]] = queue.Queue(size)
    closed = threading.Event()

    def put(found: list[T], error: BaseException | None) -> None:
        while not closed.is_set():
            with suppress(queue.Full):
                return made.put((found, error), timeout=0.05)

    def work() -> None:
        try:
            for item in items:
                put([item], None)
                if closed.is_set():
                    return
            put([], StopIteration())
        except BaseException as error:
            put([], error)

    thread = threading.Thread(target=work, name="prefetch", daemon=True)  # a daemon: a camera may block it for ever
    thread.start()
    try:
        while until is None or not until.is_set():
            try:
                found, error = made.get(timeout=None if until is None else 0.1)
            except queue.Empty:
                continue
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield from found
    finally:
        closed.set()
        if not sys.is_finalizing():  # when the interpreter ends, the thread is stopped, and Python 3.13 waits for ever
            thread.join(None if until is None else JOIN_TIMEOUT)
