"""The eight synthetic cases of the paper: the relative difference to the truth after every iteration."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..datasets import SyntheticProblem, synthetic
from ..entries.observed import ObservedMatrix
from ..linalg.lowrank import LowRank
from ..solve import Progress
from . import settings
from .experiment import Experiment, fresh
from .jobs import Job, Record, Watch
from .settings import Tuning

__all__ = ["Case", "fresh", "reached", "select_run"]


class Case(Experiment):
    """One case; its data are made when a run needs them."""

    schema = {"iteration": list, "seconds": list, "cpu": list, "error": list}  # noqa: RUF012

    def __init__(self, number: int, quick: bool) -> None:
        self.number, self.size = number, settings.case_size(number, quick)
        super().__init__(self.size[2], quick)
        self.name, self.label = f"case-{number}", f"case {number}"
        self.identity = {"case": number, "size": self.size, "seeds": [settings.DATA_SEED, settings.START_SEED]}

    @property
    def title(self) -> str:
        """The case and its size."""
        m, n, rank, density, outliers = self.size
        return f"case {self.number}: {m} × {n}, r = {rank}, {density:.0%} observed, {outliers:.0%} of them wrong"

    @cached_property
    def problem(self) -> SyntheticProblem:
        """The data and the truth."""
        m, n, rank, density, outliers = self.size
        rng = np.random.default_rng([settings.DATA_SEED, self.number])
        return synthetic(m, n, rank=rank, density=density, outliers=outliers, random_state=rng)

    @cached_property
    def M(self) -> ObservedMatrix:  # type: ignore[override]  # noqa: N802
        """The observed entries."""
        return self.problem.M

    def _tunings(self, method: str) -> list[Tuning]:
        return settings.synthetic_tunings(method, self.number, self.quick)

    def _options(self, method: str) -> dict[str, Any]:
        # our default has its own tolerance; the others must not converge before the goal
        tol = settings.OUR_TOL if method == settings.OURS else 0.1 * settings.GOAL
        return {"max_iter": settings.MAX_ITER, "goal": settings.GOAL, "tol": tol}

    def jobs(self, methods: Sequence[str], machine: dict[str, Any]) -> list[Job]:
        """The runs: every method with each of its tunings, and the printed step taken literally."""
        found = super().jobs(methods, machine)
        if self.number == settings.LITERAL_CASE and "amanpgc" in methods:
            tuning = settings.literal(self.number, self.quick)
            options = {**self._options("amanpgc"), "max_iter": settings.LITERAL_ITER}
            found.append(self._job("amanpgc", tuning, "literal", ", the step as printed", machine, options))
        return found

    def _run(self, method: str, tuning: Tuning, name: str, options: dict[str, Any], watch: Watch) -> Record:
        M, truth = fresh(self.problem.M), self.problem.L
        errors: list[float] = []
        cpu: list[float] = []
        if method != settings.OURS:
            _ = self.start  # before the clock
        clock = _ProcessClock()

        def callback(progress: Progress) -> bool:
            cpu.append(clock.pause())
            errors.append(_difference(progress, truth))
            watch(progress.iteration, errors[-1])
            clock.resume()
            return errors[-1] <= settings.GOAL

        clock.resume()
        result, record = self._solve(M, method, tuning, callback, max_iter=options["max_iter"], tol=options["tol"])
        seconds = result.trace["seconds"].tolist()
        own_start = method == settings.OURS
        if own_start:
            seconds[-1] = result.seconds
        return {
            **record,
            "end_counts": own_start,
            "iteration": result.trace["iteration"].astype(int).tolist(),
            "seconds": seconds,
            "cpu": cpu,
            "error": errors,
        }


def _difference(progress: Progress, truth: LowRank) -> float:
    try:
        return progress.lowrank().error(truth, relative=True)
    except ValueError:  # not finite
        return math.inf


class _ProcessClock:
    """Processor time of all threads, with pauses."""

    def __init__(self) -> None:
        self.spent = self.since = 0.0

    def resume(self) -> None:
        self.since = time.process_time()

    def pause(self) -> float:
        self.spent += time.process_time() - self.since
        return self.spent


def reached(record: Record, target: float) -> tuple[int, float] | None:
    """Iterations and seconds until the relative difference is at most `target`; None if it never is.

    Our default first learns from a part of the data, which does not give L yet: only its end counts.
    """
    steps = list(zip(record["iteration"], record["seconds"], record["error"], strict=True))
    for iteration, seconds, error in steps[-1:] if record.get("end_counts") else steps:
        if error <= target:
            return int(iteration), float(seconds)
    return None


def select_run(records: Sequence[Record]) -> Record:
    """Of runs with different parameters, the fastest to the relative difference `settings.JUDGED`.

    If none reaches it, the run that comes closest to the truth.
    """

    def key(record: Record) -> tuple[bool, float]:
        there = reached(record, settings.JUDGED)
        return (False, there[1]) if there else (True, min(record["error"], default=np.inf))

    return min(records, key=key)
