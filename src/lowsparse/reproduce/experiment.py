"""What the synthetic cases and the videos share: a start for all methods, and a run for each set of parameters."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from ..entries.observed import ObservedMatrix
from ..result import Result
from ..solve import Progress, solve
from ..solvers.start import generator, left_singular_vectors
from . import settings
from .jobs import Job, Record, Watch
from .settings import Tuning

__all__ = ["Experiment", "fresh"]

COMMON = {"method": str, "entries": int, "status": str, "start_seconds": float, "shortened": int}


class Experiment(ABC):
    """Data on which every method runs with each of its tunings, from the same start."""

    M: ObservedMatrix
    name: str  # of files
    label: str  # in titles
    identity: dict[str, Any]  # what identifies the data
    schema: Mapping[str, Any]  # of records, in addition to `COMMON`
    picture = False

    def __init__(self, rank: int, quick: bool) -> None:
        self.rank, self.quick = rank, quick

    @abstractmethod
    def _tunings(self, method: str) -> list[Tuning]: ...

    @abstractmethod
    def _options(self, method: str) -> dict[str, Any]: ...

    @abstractmethod
    def _run(self, method: str, tuning: Tuning, name: str, options: dict[str, Any], watch: Watch) -> Record: ...

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

    def jobs(self, methods: Sequence[str], machine: dict[str, Any]) -> list[Job]:
        """The runs: every method with each of its tunings."""
        found = []
        for method in methods:
            tunings = self._tunings(method)
            for k, tuning in enumerate(tunings, 1):
                which = f" ({k} of {len(tunings)})" if len(tunings) > 1 else ""
                found.append(self._job(method, tuning, f"{method}-{k}", which, machine, self._options(method)))
        return found

    def _job(
        self, method: str, tuning: Tuning, name: str, which: str, machine: dict[str, Any], options: dict[str, Any]
    ) -> Job:
        name = f"{'quick-' if self.quick else ''}{self.name}-{name}"
        own = {"method": method, "parameters": tuning.parameters, "step": tuning.step, "machine": machine}
        return Job(
            name=name,
            title=f"{self.label}, {method}{which}",
            settings={**self.identity, **own, **options},
            run=partial(self._run, method, tuning, name, options),
            description=tuning.description,
            schema={**COMMON, **self.schema},
            picture=self.picture,
            note=tuning.note,
        )

    def _solve(
        self, M: ObservedMatrix, method: str, tuning: Tuning, callback: Callable[[Progress], Any], **options: Any
    ) -> tuple[Result, Record]:
        """The result of a run, and the part of its record that all experiments have."""
        U, seconds = ("svd", 0.0) if method == settings.OURS else self.start
        solver = tuning.solver(method, M.nnz)
        seed = settings.START_SEED
        result = solve(M, self.rank, method=solver, start=U, random_state=seed, callback=callback, **options)
        shortened = int(result.trace["shortened"].sum()) if "shortened" in result.trace else 0
        return result, {
            "method": method,
            "entries": M.nnz,
            "status": result.status.value,
            "message": result.message,
            "backend": result.backend,
            "start_seconds": seconds,
            "shortened": shortened,
        }


def fresh(M: ObservedMatrix) -> ObservedMatrix:
    """A copy without anything cached by an earlier solve."""
    return ObservedMatrix(M.indptr, M.rows, M.values, M.shape)
