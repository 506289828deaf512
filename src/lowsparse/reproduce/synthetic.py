"""The paper's eight synthetic cases: the relative difference to the truth after every iteration of every method."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from ..datasets import SyntheticProblem, synthetic
from ..entries.observed import ObservedMatrix
from ..linalg.lowrank import LowRank
from ..result import Result
from ..solve import Progress, solve
from ..solvers.start import generator, left_singular_vectors
from ..sweeps import open_sweep
from . import settings
from .jobs import Job, Record, Watch
from .settings import Tuning

__all__ = ["Case", "chosen", "fresh", "reached"]

NEEDS: dict[str, Any] = {
    "method": str,
    "entries": int,
    "status": str,
    "start_seconds": float,
    "shortened": int,
    "iteration": list,
    "seconds": list,
    "cpu": list,
    "error": list,
}


class Case:
    """One case: its data, the start all methods share, and the runs. The data are made when a run needs them."""

    def __init__(self, number: int, quick: bool) -> None:
        self.number, self.quick = number, quick
        self.size = settings.case_size(number, quick)

    @property
    def title(self) -> str:
        """In words."""
        m, n, rank, density, outliers = self.size
        return f"case {self.number}: {m} × {n}, r = {rank}, {density:.0%} observed, {outliers:.0%} of that wrong"

    @cached_property
    def problem(self) -> SyntheticProblem:
        """The data and the truth."""
        m, n, rank, density, outliers = self.size
        rng = np.random.default_rng([settings.DATA_SEED, self.number])
        return synthetic(m, n, rank=rank, density=density, outliers=outliers, random_state=rng)

    @cached_property
    def start(self) -> tuple[Any, float]:
        """U⁰ and the seconds it took."""
        return timed_start(self.problem.M, self.size[2])

    def forget(self) -> None:
        """Give the memory back."""
        for made in ("problem", "start"):
            self.__dict__.pop(made, None)

    def jobs(self, methods: Sequence[str], machine: dict[str, Any]) -> list[Job]:
        """The runs: every method with each of its tunings, and the printed step taken as it stands."""
        found = []
        for method in methods:
            for k, which, tuning in numbered(settings.synthetic_tunings(method, self.number, self.quick)):
                found.append(self._job(method, tuning, settings.MAX_ITER, (f"{method}-{k}", which), machine))
        if self.number == settings.LITERAL_CASE and "amanpgc" in methods:
            tuning = settings.literal(self.number, self.quick)
            found.append(
                self._job("amanpgc", tuning, settings.LITERAL_ITER, ("literal", ", the step as printed"), machine)
            )
        return found

    def _job(self, method: str, tuning: Tuning, max_iter: int, called: tuple[str, str], machine: dict[str, Any]) -> Job:
        name, which = called
        return Job(
            name=f"{'quick-' if self.quick else ''}case-{self.number}-{name}",
            title=f"case {self.number}, {method}{which}",
            settings={
                "case": self.number,
                "size": self.size,
                "seeds": [settings.DATA_SEED, settings.START_SEED],
                "method": method,
                "parameters": tuning.parameters,
                "step": tuning.step,
                "max_iter": max_iter,
                "goal": settings.GOAL,
                "tol": self._tol(method),
                "machine": machine,
            },
            run=partial(self._run, method, tuning, max_iter),
            words=tuning.words,
            needs=NEEDS,
            note=tuning.note,
        )

    def _tol(self, method: str) -> float:
        """Of our default its own; the others shall not end before the goal by their own test."""
        return settings.OUR_TOL if method == settings.OURS else 0.1 * settings.GOAL

    def _run(self, method: str, tuning: Tuning, max_iter: int, watch: Watch) -> Record:
        M, truth = fresh(self.problem.M), self.problem.L
        own_start = method == settings.OURS
        U, start_seconds = (None, 0.0) if own_start else self.start
        errors: list[float] = []
        cpu: list[float] = []
        clock = _ProcessClock()

        def look(progress: Progress) -> bool:
            cpu.append(clock.pause())
            errors.append(_difference(progress, truth))
            watch(progress.iteration, errors[-1])
            clock.go_on()
            return errors[-1] <= settings.GOAL

        clock.go_on()
        result = solve(
            M,
            self.size[2],
            method=tuning.solver(method, M.nnz),
            max_iter=max_iter,
            tol=self._tol(method),
            start="svd" if U is None else U,
            random_state=settings.START_SEED,
            callback=look,
        )
        seconds = result.trace["seconds"].tolist()
        if own_start:
            seconds[-1] = result.seconds
        return {
            "method": method,
            "end_counts": own_start,
            "entries": M.nnz,
            "status": result.status.value,
            "message": result.message,
            "backend": result.backend,
            "start_seconds": start_seconds,
            "shortened": shortened(result),
            "iteration": result.trace["iteration"].astype(int).tolist(),
            "seconds": seconds,
            "cpu": cpu,
            "error": errors,
        }


def _difference(progress: Progress, truth: LowRank) -> float:
    try:
        return progress.lowrank().error(truth, relative=True)
    except ValueError:  # numbers that are not finite
        return math.inf


class _ProcessClock:
    """Processor time of all threads, with pauses."""

    def __init__(self) -> None:
        self.spent = self.since = 0.0

    def go_on(self) -> None:
        self.since = time.process_time()

    def pause(self) -> float:
        self.spent += time.process_time() - self.since
        return self.spent


def fresh(M: ObservedMatrix) -> ObservedMatrix:
    """The same entries, and nothing that an earlier solve has left."""
    return ObservedMatrix(M.indptr, M.rows, M.values, M.shape)


def timed_start(M: ObservedMatrix, rank: int) -> tuple[Any, float]:
    """U⁰ that all methods share, and the seconds it took."""
    M = fresh(M)
    began = time.perf_counter()
    U, _ = left_singular_vectors(open_sweep(M), M.shape[0], rank, generator(settings.START_SEED))
    return U, time.perf_counter() - began


def numbered(tunings: Sequence[Tuning]) -> Iterator[tuple[int, str, Tuning]]:
    """Each with its number, and with what a title says of it if there are several."""
    for k, tuning in enumerate(tunings, 1):
        yield k, f" ({k} of {len(tunings)})" if len(tunings) > 1 else "", tuning


def shortened(result: Result) -> int:
    """How often a step of a fixed length had to be halved."""
    return int(result.trace["shortened"].sum()) if "shortened" in result.trace else 0


def reached(record: Record, target: float) -> tuple[int, float] | None:
    """Iterations and seconds until the relative difference is at most `target`; None if it never is.

    Our default learns on a part of the data first. What it has found there is not L yet: only its end counts.

    >>> reached({"error": [0.1, 0.001, 1e-5], "iteration": [1, 2, 3], "seconds": [0.5, 1.0, 1.5]}, 1e-3)
    (2, 1.0)
    """
    steps = list(zip(record["iteration"], record["seconds"], record["error"], strict=True))
    for iteration, seconds, error in steps[-1:] if record.get("end_counts") else steps:
        if error <= target:
            return int(iteration), float(seconds)
    return None


def chosen(records: Sequence[Record]) -> Record:
    """Of runs of one method with different parameters, the one that counts: the fastest to the difference judged by.

    If none gets there, it is the one that ends closest to the truth.

    >>> slow = {"error": [1e-7], "iteration": [1], "seconds": [9.0]}
    >>> never = {"error": [1e-3], "iteration": [1], "seconds": [1.0]}
    >>> chosen([never, slow]) is slow
    True
    """

    def key(record: Record) -> tuple[bool, float]:
        there = reached(record, settings.JUDGED)
        return (False, there[1]) if there else (True, min(record["error"], default=np.inf))

    return min(records, key=key)
