"""The eight synthetic cases of the paper: the relative difference to the truth after every iteration."""

import math
import time
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from ..datasets import SyntheticProblem, synthetic
from ..entries.observed import ObservedMatrix
from ..linalg.lowrank import LowRank
from ..loop import Progress
from . import settings
from .experiment import Experiment, fresh
from .jobs import MethodJob, Record, RunResult, Watch
from .settings import Effort, Tuning

LITERAL = "literal"


class Case(Experiment):
    """One case; its data are made when a run needs them."""

    def __init__(self, number: int, quick: bool) -> None:
        self.number, self.size = number, settings.case_size(number, quick)
        identity = {"case": number, "size": self.size, "seeds": [settings.DATA_SEED, settings.START_SEED]}
        name = f"{'quick-' if quick else ''}case-{number}"
        tunings = partial(settings.synthetic_tunings, case=number, quick=quick)
        super().__init__(name, f"case {number}", self.size[2], identity, tunings)
        self.literal: Record | None = None  # of the run with the step as printed

    @property
    def title(self) -> str:
        """The case and its size."""
        m, n, rank, density, outliers = self.size
        return f"Case {self.number}: {m} × {n}, r = {rank}, {density:.0%} observed, {outliers:.0%} of them wrong"

    @cached_property
    def problem(self) -> SyntheticProblem:
        """The data and the truth."""
        m, n, rank, density, outliers = self.size
        rng = np.random.default_rng([settings.DATA_SEED, self.number])
        return synthetic(m, n, rank=rank, density=density, outliers=outliers, random_state=rng)

    @property
    def M(self) -> ObservedMatrix:  # noqa: N802
        """The observed entries."""
        return self.problem.M

    def _options(self, method: str) -> dict[str, Any]:
        # our default has its own tolerance; the others must not converge before the goal
        tol = settings.OUR_TOL if method == settings.OURS else 0.1 * settings.GOAL
        return {"max_iter": settings.MAX_ITER, "goal": settings.GOAL, "tol": tol}

    def jobs(self, methods: Sequence[str], machine: dict[str, Any]) -> list[MethodJob]:
        """The runs: every method with each of its tunings, and the printed step taken literally."""
        found = super().jobs(methods, machine)
        if self.number == settings.LITERAL_CASE and "amanpgc" in methods:
            tuning = settings.literal(self.tunings("amanpgc")[0])
            options = {**self._options("amanpgc"), "max_iter": settings.LITERAL_ITER}
            found.append(self._job("amanpgc", tuning, LITERAL, ", the step as printed", machine, options))
        return found

    def _run(self, method: str, tuning: Tuning, options: dict[str, Any], watch: Watch) -> RunResult:
        M, truth = fresh(self.M), self.problem.L
        own_start = method == settings.OURS
        if not own_start:
            _ = self.start  # before the clock
        errors: list[float] = []
        cpu = [0.0]  # after every iteration, without the time that the callback takes
        resumed = time.process_time()

        def callback(progress: Progress) -> bool:
            nonlocal resumed
            cpu.append(cpu[-1] + time.process_time() - resumed)
            errors.append(_difference(progress, truth))
            watch(progress.iteration, errors[-1])
            resumed = time.process_time()
            return errors[-1] <= settings.GOAL

        result, record = self._solve(M, method, tuning, callback, max_iter=options["max_iter"], tol=options["tol"])
        seconds = result.trace["seconds"].tolist()
        if own_start:
            seconds[-1] = result.seconds
        record |= {
            "end_counts": own_start,
            "iteration": result.trace["iteration"].astype(int).tolist(),
            "seconds": seconds,
            "cpu": cpu[1:],
            "error": errors,
        }
        return record, None

    def add(self, job: MethodJob, record: Record) -> None:
        """Add the record of a finished run."""
        if job.name.endswith(LITERAL):
            self.literal = record
        else:
            super().add(job, record)

    def _select(self, records: Sequence[Record]) -> Record:
        """The fastest to the relative difference `settings.JUDGED`; if none reaches it, the closest to the truth."""

        def key(record: Record) -> tuple[bool, float]:
            there = reached(record, settings.JUDGED)
            return (False, there.seconds) if there else (True, min(record["error"], default=math.inf))

        return min(records, key=key)

    def reached(self, method: str, target: float = settings.JUDGED) -> Effort | None:
        """What it took to get to a relative difference; None if it was not reached."""
        record = self.selected.get(method)
        return None if record is None else reached(record, target)


def _difference(progress: Progress, truth: LowRank) -> float:
    try:
        return progress.lowrank().error(truth, relative=True)
    except ValueError:  # not finite
        return math.inf


def reached(record: Record, target: float) -> Effort | None:
    """What it took until the relative difference was at most `target`; None if it never was.

    Our default first learns from a part of the data, which does not give L yet: only its end counts.
    """
    steps = list(zip(record["iteration"], record["seconds"], record["error"], strict=True))
    for iteration, seconds, error in steps[-1:] if record.get("end_counts") else steps:
        if error <= target:
            return Effort(int(iteration), float(seconds))
    return None
