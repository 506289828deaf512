"""The only iteration loop: stopping, trace, callback, checkpoint."""

import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from . import checkpoint as checkpoints
from .linalg.lowrank import LowRank
from .result import Status, Trace
from .solvers.base import Problem, Solver, State

CHECKPOINT_SECONDS = 30.0  # between two writes of a checkpoint
ADVICE = {
    Status.MAX_ITER: "not converged after {n} iterations: raise max_iter or loosen tol",
    Status.MAX_TIME: "not converged after {s:.3g} s: raise max_time, or go on from a checkpoint",
    Status.STALLED: "no step decreases the objective any more, though the method is not done: the result is as good as "
    "the arithmetic allows, the rank is too high for the data, or a given t_U is far too large",
    Status.DIVERGED: "the iteration ran into numbers that are not finite: give a smaller step (of the paper's methods: "
    "t_U or step, and leave backtracking on)",
    Status.STOPPED_BY_CALLBACK: "the callback asked to stop",
}


@dataclass(frozen=True)
class Progress:
    """What a callback is given after every iteration; valid during the call.

    >>> import lowsparse as ls
    >>> seen = []
    >>> def watch(progress):
    ...     seen.append(progress["objective"])
    ...     return progress.iteration == 3  # True stops
    >>> ls.solve([[1.0, 2.0], [3.0, 4.1], [2.0, 3.0]], rank=1, callback=watch).status.value, len(seen)
    ('stopped_by_callback', 3)
    """

    iteration: int
    seconds: float
    max_iter: int
    row: dict[str, float]  # of the trace: objective, gamma, dS, dU, change, ...
    _lowrank: Callable[[], LowRank]

    def __getitem__(self, name: str) -> float:
        return self.row[name]

    def lowrank(self) -> LowRank:
        """The low-rank part at this point.

        Returns
        -------
        LowRank
            It costs one pass over the data.

        Examples
        --------
        >>> import lowsparse as ls
        >>> ranks = []
        >>> r = ls.solve([[1.0, 2.0], [3.0, 4.1]], rank=1, callback=lambda p: ranks.append(p.lowrank().rank))
        >>> set(ranks)
        {1}
        """
        return self._lowrank()


@dataclass
class Loop:
    """The iteration: it owns the clock, the trace, the callback and the checkpoint; the solver owns the state."""

    problem: Problem
    solver: Solver
    max_iter: int
    max_time: float | None
    callback: Callable[[Progress], object] | None
    checkpoint: str | os.PathLike[str] | None
    began: float

    def __post_init__(self) -> None:
        self.saved = self.began
        self.in_callbacks = 0.0  # seconds
        self.state: State = self.solver.init(self.problem)
        self.trace = Trace()

    def resume(self, path: str | os.PathLike[str]) -> None:
        """Go on from a checkpoint."""
        self.state, self.trace = checkpoints.load(path, self.problem, self.solver, self.state)
        if self.state.iteration:
            self.began -= float(self.trace["seconds"][-1])

    def seconds(self) -> float:
        """Since the start, without the time spent in callbacks."""
        return time.perf_counter() - self.began - self.in_callbacks

    def run(self) -> tuple[Status, str]:
        """Iterate; return how it ended, and why if the method says so."""
        if self.checkpoint is not None:  # fail before the work, not after it
            checkpoints.check_writable(self.checkpoint)
        try:
            ended = self.ended()
            while ended is None:
                state = self.solver.advance(self.problem, self.state)
                self.trace.append(iteration=state.iteration, seconds=self.seconds(), **state.row)
                self.state = state
                stop = self.call_back()
                ended = self.ended() or ((Status.STOPPED_BY_CALLBACK, "") if stop else None)
                if time.perf_counter() - self.saved > CHECKPOINT_SECONDS:
                    self.save()
            return ended
        finally:  # also on Ctrl-C: the state is that of the last complete iteration
            self.save()

    def ended(self) -> tuple[Status, str] | None:
        """Whether and why to stop here."""
        state, tol = self.state, self.problem.tol
        if state.failure:
            return Status(state.failure), state.advice
        if tol > 0 and state.finished:
            return Status.CONVERGED, state.finished
        if tol > 0 and state.accuracy <= tol:
            return Status.CONVERGED, (
                f"came to rest: the accuracy {state.accuracy:.2g} is at most tol = {tol:g}; whether another L explains "
                "more of the entries was not tested"
            )
        if state.iteration >= self.max_iter:
            return Status.MAX_ITER, "" if tol else f"ran {state.iteration} iterations, as tol = 0 asks"
        if self.max_time is not None and time.perf_counter() - self.began >= self.max_time:
            return Status.MAX_TIME, ""
        return None

    def call_back(self) -> bool:
        """Call the callback; True if it asks to stop."""
        if self.callback is None:
            return False
        called, state = time.perf_counter(), self.state
        lowrank = partial(self.solver.lowrank, self.problem, state)
        stop = self.callback(Progress(state.iteration, self.seconds(), self.max_iter, state.row, lowrank))
        self.in_callbacks += time.perf_counter() - called
        return bool(stop)

    def save(self) -> None:
        """Write a checkpoint, if one was asked for."""
        if self.checkpoint is not None and self.state.iteration:
            # an interrupted iteration may have left its row without its state
            rows = {name: self.trace[name][: self.state.iteration] for name in self.trace}
            try:
                checkpoints.save(self.checkpoint, self.problem, self.solver, self.state, Trace(rows))
            except OSError as error:  # the result is not lost to a full disk
                warnings.warn(f"the checkpoint could not be written: {error}", RuntimeWarning, stacklevel=4)
        self.saved = time.perf_counter()

    def message(self, status: Status, reason: str) -> str:
        """What happened, and what to do if it was not convergence."""
        if reason:
            return reason
        slow = status is Status.MAX_ITER and self.solver.if_slow
        advice = f"{ADVICE[status]}; {self.solver.if_slow}" if slow else ADVICE[status]
        return advice.format(n=self.state.iteration, s=self.seconds())
