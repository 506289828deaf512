"""Threads of the dense linear algebra."""

from __future__ import annotations

import threading
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["one_blas_thread"]


class _OneBlasThread:
    """BLAS on one thread while any solve runs: the limit is the process's; the first in sets, the last out lifts it.

    The libraries, those of NumPy and SciPy, are looked for once, which takes milliseconds.
    """

    def __init__(self) -> None:
        self.lock, self.inside = threading.Lock(), 0
        self.controller: Any = None
        self.limits: Any = None

    def __enter__(self) -> None:
        with self.lock:
            if not self.inside:
                self.controller = self.controller or ThreadpoolController()
                self.limits = self.controller.limit(limits=1, user_api="blas")
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside:
                self.limits.restore_original_limits()


one_blas_thread = _OneBlasThread()
