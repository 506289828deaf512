"""Calls to a Dask cluster that end: with their result, or with an error once a part of the cluster is silent too long.

The scheduler is asked ten times in the time allowed when it last heard from each worker. Silence is counted in such
requests, not by a clock, so a process that was suspended itself blames no other. Tasks may take as long as they like: a
worker sends its heartbeats while it computes.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait
from typing import Any

TIMEOUT = "LOWSPARSE_CLUSTER_TIMEOUT"
DEFAULT = 60.0  # seconds
REQUESTS = 10  # in a row without a sign of life, after which a part of the cluster counts as gone
RESUME = "run it again, from its checkpoint if there is one"


class ClusterError(RuntimeError):
    """A part of the cluster is gone, and the solve cannot go on."""


def timeout() -> float:
    """Seconds for which a part of the cluster may be silent: LOWSPARSE_CLUSTER_TIMEOUT, else 60."""
    text = os.environ.get(TIMEOUT, "").strip()
    try:
        seconds = float(text) if text else DEFAULT
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 1e6:
        raise ValueError(f"{TIMEOUT}={text!r} is not a number of seconds above 0, such as 60")
    return seconds


def call(client: Any, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The result of a method of a `dask.distributed.Client` or of one of its futures, waited for; or a ClusterError."""
    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    seconds = timeout()
    check_open(client)
    # not cancelled if this is interrupted: Dask would hang at its end
    work = _start(client, method, *arguments, **options)
    watch = _Watch(client)
    try:
        while not wait([work], timeout=seconds / REQUESTS).done:
            watch.ask(seconds)
        return work.result()
    except (CancelledError, CommClosedError) as error:
        check_open(client)
        reason = " ".join(str(error).split())  # in one line
        raise ClusterError(f"Dask lost the tasks of this solve ({reason}): check the cluster, and {RESUME}") from error
    except KilledWorker as error:
        raise ClusterError(
            f"the workers died during this solve, perhaps for lack of memory: give them more ({error})"
        ) from error


def check_open(client: Any) -> None:
    """Raise if the client was closed."""
    if client.status in ("closing", "closed"):
        raise ClusterError(f"the Dask client is closed: keep it open during a solve; {RESUME}")


def _start(client: Any, method: Callable[..., Any], *arguments: Any, **options: Any) -> Future[Any]:
    """Run a method in the event loop of the client, where Dask makes it a coroutine."""

    async def run() -> Any:
        return await method(*arguments, **options)

    return asyncio.run_coroutine_threadsafe(run(), client.loop.asyncio_loop)


class _Watch:
    """Counts the requests, in a row, after which a part of a cluster gave no sign of life."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.last_seen: dict[str, float] = {}  # by worker, as the scheduler says
        self.silent: dict[str, int] = {}  # by what to say of a part: the requests
        self.answer: Future[Any] | None = None  # of the scheduler

    def ask(self, seconds: float) -> None:
        """Ask again; raise if a part was silent for too many requests, which take this time together."""
        check_open(self.client)
        self.silent = {part: self.silent.get(part, 0) + 1 for part in self._silent_parts()}
        for part, requests in self.silent.items():
            if requests >= REQUESTS:
                raise ClusterError(f"{part} for {seconds:g} s ({TIMEOUT}): check the cluster, and {RESUME}")

    def _silent_parts(self) -> list[str]:
        if self.answer is not None and not self.answer.done():
            return ["the Dask scheduler did not answer"]
        answer, self.answer = self.answer, _start(self.client, self.client.scheduler.identity)
        if answer is None:
            return []
        if answer.exception() is not None:
            return ["the Dask scheduler did not answer"]
        seen = {worker: known["last_seen"] for worker, known in answer.result()["workers"].items()}
        previous, self.last_seen = self.last_seen, seen
        if not seen:
            return ["the cluster had no workers"]
        return [f"worker {worker} gave no sign of life" for worker in seen if previous.get(worker) == seen[worker]]
