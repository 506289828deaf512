"""What every method is made of: parameters, a state, and one step from a state to the next."""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..entries.protocol import PartialMatrix, PerEntry, check_rank
from ..linalg.lowrank import LowRank
from ..result import Stationarity
from ..sweeps import Float, Sweep
from .parameters import parameters_of, require


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The problem as `solve` hands it to a method, which reads it and never changes it."""

    M: PartialMatrix
    rank: int
    sweep: Sweep
    start: Callable[[], Float]  # computes U⁰, orthonormal
    start_given: bool  # by the user, not left to the method
    tol: float  # 0: run to max_iter
    unit: float  # median magnitude of the entries that are not zero; 1 if all are zero
    scale: float  # root mean square of the entries, each counted as at most `clip`; 1 if all are zero
    largest: float  # max |x|
    clip: float  # inliers are hardly ever larger; infinite if no entry is
    seed: int  # for methods that draw random numbers; from `random_state`

    @cached_property
    def transposed(self) -> PartialMatrix:
        """Mᵀ."""
        return self.M.T

    @cached_property
    def row_sweep(self) -> Sweep:
        """The sweep over the rows of the data."""
        return self.transposed.open_sweep(self.sweep.host)

    @cached_property
    def by_row(self) -> NDArray[np.intp]:
        """The entries in the order of `row_sweep`, as positions among those by column."""
        return np.argsort(self.in_memory.rows, kind="stable")

    @property
    def in_memory(self) -> ObservedMatrix:
        """The data, for methods that do not run anywhere else."""
        return self.M.to_host()

    @property
    def rounding(self) -> float:
        """A magnitude, in units of the data, below which differences may be rounding of the stored values."""
        return 8 * float(np.finfo(self.M.dtype).eps) * self.scale


@dataclass(kw_only=True)
class State:
    """Everything the next iteration depends on, so that it can be saved and resumed.

    Fields are arrays, numbers, strings, tuples of these, None, or dataclasses of these. Those named in `scratch` are
    created again by `init` and not saved: work arrays, or the data in another order.
    """

    scratch: ClassVar[tuple[str, ...]] = ()

    iteration: int = 0
    accuracy: float = np.inf  # compared with `tol`
    finished: str = ""  # why the method has converged by a rule of its own, though `tol` is not met
    failure: str = ""  # "stalled" or "diverged"
    advice: str = ""  # what to do about a failure, if the method knows better than the loop
    row: dict[str, float] = dataclasses.field(default_factory=dict)  # row of the trace for this iteration

    def converged(self, tol: float) -> bool:
        """Whether the iteration ends here, as converged."""
        return not self.failure and tol > 0 and (bool(self.finished) or self.accuracy <= tol)

    def stall(self, advice: str) -> None:
        """Mark the state as at rest, but not at a solution."""
        self.failure, self.finished, self.advice = "stalled", "", advice


@dataclass(kw_only=True)
class StagedState(State):
    """A state of a method that lowers a threshold in stages, each started where the last one ended."""

    stage: int = 0
    stage_start: int = 0  # iterations before this stage
    stage_done: bool = False  # the next iteration belongs to the next stage

    def end_stage(self, threshold: str, solved: bool, capped: bool, at_noise: bool, *, last: bool) -> None:
        """End the stage if it is solved or has had all its iterations, and the method after the last or at the noise.

        Below the noise a smaller threshold gains nothing: `at_noise` ends the method, but only once the stage is
        solved.
        """
        if solved and at_noise:
            self.finished = f"{threshold} is at or below the noise of the inliers"
        elif solved and last:
            self.finished = f"the last stage, {threshold}, is solved"
        self.stage_done = not last and (solved or (capped and not at_noise))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The solution that belongs to the last state."""

    L: LowRank
    flagged: PerEntry  # positions of the outliers on Ω
    S: PerEntry  # their values
    objective: float
    stationarity: Stationarity | None = None
    noise: float | None = None  # standard deviation of the inliers, if the method estimates it
    held_out: float | None = None  # robust scale of the residuals of held-out entries
    next_noise: float | None = None  # the noise with one rank more, if that is far less
    repeated: float = 0.0  # share of the entries whose value is repeated suspiciously often
    undetermined: float = 0.0  # share of L that is not determined, rows and columns with few entries not counted


class _Required:
    """Of a class: the names of its parameters that have no default."""

    def __get__(self, solver: object, cls: type) -> tuple[str, ...]:
        return tuple(name for name, parameter in parameters_of(cls).items() if parameter.required)


@dataclass(kw_only=True)
class Solver(ABC):
    """A method is its parameters: keyword-only, unchanged by solving, understood by scikit-learn's ``clone``."""

    name: ClassVar[str]
    papers: ClassVar[tuple[str, ...]] = ()  # that it is from
    needs = _Required()  # names of the parameters that have no default
    full: ClassVar[bool] = False  # whether every entry must be observed
    robust: ClassVar[bool] = True  # whether it tells outliers from noise
    finds_rank: ClassVar[bool] = False  # whether it can do without a given rank
    rank_of: ClassVar[str] = "L"  # the matrix whose rank is given
    takes_start: ClassVar[bool] = True  # whether it can begin at a given U⁰
    runs_anywhere: ClassVar[bool] = False  # whether it also runs on data on disk, on a cluster and on a GPU
    if_slow: ClassVar[str] = ""  # what else helps when it runs out of iterations

    def check_rank(self, shape: tuple[int, int], rank: object) -> int:
        """Return the rank as a whole number; raise if it cannot be that of L, which has this shape."""
        return check_rank(rank, shape)

    def with_chosen_rank(self) -> Self | None:
        """This method set to choose the rank, up to the one given; None if the default method has to choose for it."""
        return None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change parameters; unknown names raise."""
        for name, value in params.items():
            if name not in self.get_params():
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}; it has {list(self.get_params())}")
            setattr(self, name, value)
        return self

    def check_parameters(self) -> None:
        """Raise a ValueError unless every parameter has a value of its kind and within its range.

        >>> from lowsparse.solvers import AManPGC
        >>> AManPGC(stage_iter="many").check_parameters()
        Traceback (most recent call last):
        ValueError: stage_iter must be a whole number of 1 or more, not 'many'
        """
        for name, parameter in parameters_of(type(self)).items():
            value = getattr(self, name)
            if value is None and parameter.required:
                raise ValueError(f"{self.name} needs {name}, {parameter.required}")
            require(parameter.allows(value), name, value, parameter.allowed)

    def check(self, problem: Problem) -> None:  # noqa: B027  # most methods have nothing to add
        """Raise before the first iteration if the parameters do not fit each other or the data."""

    @abstractmethod
    def init(self, problem: Problem) -> State:
        """Return the state before the first iteration."""

    @abstractmethod
    def advance(self, problem: Problem, state: Any) -> State:
        """Run one iteration. The state passed in must not be used afterwards: its memory is reused."""

    @abstractmethod
    def lowrank(self, problem: Problem, state: Any) -> LowRank:
        """Return the low-rank matrix of a state, for callbacks."""

    @abstractmethod
    def finish(self, problem: Problem, state: Any) -> Outcome:
        """Return the solution that belongs to the last state."""


def count_stages(first: float, last: float, factor: float) -> int:
    """The number of thresholds first, factor · first, ... down to last, none added or dropped by rounding."""
    return 1 + max(0, math.ceil(math.log(last / first) / math.log(factor) - 1e-9))


def nothing() -> Float:
    """Return an empty array: the default of a field of a state."""
    return np.empty((0, 0))
