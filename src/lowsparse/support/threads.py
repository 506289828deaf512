"""Threads of the dense linear algebra."""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import ThreadpoolController


class _OneBlasThread:
    """BLAS on one thread while any solve runs: the limit is the process's; the first in sets, the last out lifts it.

    The libraries, those of NumPy and SciPy, are looked for once, which takes milliseconds. A process that is forked
    while other threads solve has none of those threads: what they had entered counts no more.
    """

    def __init__(self) -> None:
        self.lock, self.inside = threading.RLock(), Counter[int]()  # by thread
        self.controller: Any = None
        self.limits: Any = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self.lock.acquire, after_in_parent=self.lock.release, after_in_child=self._keep_own_thread
            )

    def __enter__(self) -> None:
        with self.lock:
            if not self.inside:
                self.controller = self.controller or ThreadpoolController()
                with self._in_control():
                    self.limits = self.controller.limit(limits=1, user_api="blas")
            self.inside[threading.get_ident()] += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self._leave(threading.get_ident(), 1)

    def _leave(self, thread: int, times: int) -> None:
        self.inside[thread] -= times
        self.inside += Counter()  # without those that have left
        if not self.inside:
            with self._in_control():
                self.limits.restore_original_limits()

    @contextmanager
    def _in_control(self) -> Iterator[None]:
        """Let this thread change OpenBLAS, and any other afterwards.

        Since version 3.8 threadpoolctl ignores, without a word, all but the first thread that changes it; here the last
        one out is seldom the first one in.
        """
        self._release_control()
        yield
        self._release_control()

    def _release_control(self) -> None:
        for library in self.controller.lib_controllers:
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread(force=True)

    def _keep_own_thread(self) -> None:
        for thread, times in list(self.inside.items()):
            if thread != threading.get_ident():
                self._leave(thread, times)
        self.lock.release()


one_blas_thread = _OneBlasThread()
