"""What the synthetic cases and the videos share: a start for all methods, a run for each set of parameters, records."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

from ..entries.observed import ObservedMatrix
from ..loop import Progress
from ..result import Result
from ..solve import solve
from ..solvers.start import generator, left_singular_vectors
from . import settings
from .jobs import MethodJob, Record, RunResult, Watch
from .settings import Effort, Tuning


class Experiment(ABC):
    """Data on which every method runs with each of its tunings, from the same start, and the records of these runs."""

    def __init__(
        self, name: str, label: str, rank: int, identity: dict[str, Any], tunings: Callable[[str], list[Tuning]]
    ) -> None:
        self.name, self.label = name, label  # of the files, and in titles of runs
        self.identity = identity  # of the data
        self.rank, self.tunings = rank, tunings
        self.runs: dict[str, list[Record]] = {}  # of each method, with different parameters

    @property
    @abstractmethod
    def M(self) -> ObservedMatrix:  # noqa: N802
        """The observed entries."""

    @abstractmethod
    def _options(self, method: str) -> dict[str, Any]: ...

    @abstractmethod
    def _run(self, method: str, tuning: Tuning, options: dict[str, Any], watch: Watch) -> RunResult: ...

    @cached_property
    def start(self) -> tuple[Any, float]:
        """The start U⁰ that all methods share, and the seconds it took."""
        M = fresh(self.M)
        began = time.perf_counter()
        U, _ = left_singular_vectors(M.open_sweep(), M.shape[0], self.rank, generator(settings.START_SEED))
        return U, time.perf_counter() - began

    def release(self) -> None:
        """Free the data."""
        for name in ("problem", "M", "start"):
            self.__dict__.pop(name, None)

    def jobs(self, methods: Sequence[str], machine: dict[str, Any]) -> list[MethodJob]:
        """The runs: every method with each of its tunings."""
        found = []
        for method in methods:
            tunings = self.tunings(method)
            for k, tuning in enumerate(tunings, 1):
                which = f" ({k} of {len(tunings)})" if len(tunings) > 1 else ""
                found.append(self._job(method, tuning, f"{method}-{k}", which, machine, self._options(method)))
        return found

    def _job(
        self, method: str, tuning: Tuning, name: str, which: str, machine: dict[str, Any], options: dict[str, Any]
    ) -> MethodJob:
        own = {"method": method, "parameters": tuning.parameters, "step": tuning.step, "machine": machine}
        return MethodJob(
            name=f"{self.name}-{name}",
            title=f"{self.label}, {method}{which}",
            settings={**self.identity, **own, **options},
            tuning=tuning,
            run=partial(self._run, method, tuning, options),
        )

    def _solve(
        self, M: ObservedMatrix, method: str, tuning: Tuning, callback: Callable[[Progress], object], **options: Any
    ) -> tuple[Result, Record]:
        """The result of a run, and the part of its record that all experiments have."""
        U, seconds = ("svd", 0.0) if method == settings.OURS else self.start
        options |= {"method": tuning.solver(method, M.nnz), "random_state": settings.START_SEED}
        result = solve(M, self.rank, start=U, callback=callback, **options)
        return result, {
            "method": method,
            "entries": M.nnz,
            "status": result.status.value,
            "message": result.message,
            "backend": result.backend,
            "start_seconds": seconds,
            "shortened": int(result.trace["shortened"].sum()) if "shortened" in result.trace else 0,
        }

    def add(self, job: MethodJob, record: Record) -> None:
        """Add the record of a finished run."""
        self.runs.setdefault(record["method"], []).append(record)

    @property
    def selected(self) -> dict[str, Record]:
        """The selected run of every method."""
        return {method: self._select(records) for method, records in self.runs.items()}

    @abstractmethod
    def _select(self, records: Sequence[Record]) -> Record: ...

    @abstractmethod
    def reached(self, method: str) -> Effort | None:
        """What the selected run of a method took; None if it was not run, or did not reach its goal."""

    def poor_quality(self, method: str) -> str:
        """Where the result of a method is too poor to count, and how poor; else ""."""
        return ""


def fresh(M: ObservedMatrix) -> ObservedMatrix:
    """A copy without anything cached by an earlier solve."""
    return ObservedMatrix(M.indptr, M.rows, M.values, M.shape)
