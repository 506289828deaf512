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
    """The problem as `solve` hands it to a method, which reads it and never changes it.

    Examples
    --------
    >>> import lowsparse as ls
    >>> class Watched(ls.solvers.AManPGC):
    ...     def check(self, problem):
    ...         print(problem.M.shape, problem.rank, problem.largest, problem.tol)
    >>> r = ls.solve([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]], rank=1, method=Watched(), random_state=0)
    (2, 3) 1 6.0 1e-08
    """

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

    Examples
    --------
    >>> state = State(iteration=3, accuracy=1e-9)
    >>> state.converged(tol=1e-8), state.converged(tol=0)
    (True, False)
    """

    scratch: ClassVar[tuple[str, ...]] = ()

    iteration: int = 0
    accuracy: float = np.inf  # compared with `tol`
    finished: str = ""  # why the method has converged by a rule of its own, though `tol` is not met
    failure: str = ""  # "stalled" or "diverged"
    advice: str = ""  # what to do about a failure, if the method knows better than the loop
    row: dict[str, float] = dataclasses.field(default_factory=dict)  # row of the trace for this iteration

    def converged(self, tol: float) -> bool:
        """Whether the iteration ends here, as converged.

        Parameters
        ----------
        tol
            The accuracy that is asked for; 0: it never does.

        Returns
        -------
        bool
            False also if the method has failed.
        """
        return not self.failure and tol > 0 and (bool(self.finished) or self.accuracy <= tol)

    def stall(self, advice: str) -> None:
        """Mark the state as at rest, but not at a solution.

        Parameters
        ----------
        advice
            What to do about it, for the message of the result.
        """
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
    """The solution that belongs to the last state.

    Examples
    --------
    >>> L = LowRank([[1.0], [2.0]], [[3.0, 4.0]])
    >>> Outcome(L=L, flagged=np.array([2]), S=np.array([10.0]), objective=0.5).L.rank
    1
    """

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
    ambiguous: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())  # rows and columns that can be fitted in two ways


class _Required:
    """Of a class: the names of its parameters that have no default."""

    def __get__(self, solver: object, cls: type) -> tuple[str, ...]:
        return tuple(name for name, parameter in parameters_of(cls).items() if parameter.required)


@dataclass(kw_only=True)
class Solver(ABC):
    """A method is its parameters: keyword-only, unchanged by solving, understood by scikit-learn's ``clone``.

    Examples
    --------
    >>> import lowsparse as ls
    >>> class Truncated(Solver):
    ...     "The singular vectors of the data, with zeros for what is missing: no method to use."
    ...     name = "truncated"
    ...     def init(self, problem):
    ...         return State()
    ...     def advance(self, problem, state):
    ...         return State(iteration=state.iteration + 1, finished="there is nothing to iterate")
    ...     def lowrank(self, problem, state):
    ...         U, s, Vt = np.linalg.svd(problem.in_memory.to_dense(fill=0.0), full_matrices=False)
    ...         return LowRank(U[:, : problem.rank], (s[:, None] * Vt)[: problem.rank])
    ...     def finish(self, problem, state):
    ...         L = self.lowrank(problem, state)
    ...         return Outcome(L=L, flagged=np.arange(0), S=np.zeros(0), objective=0.0)
    >>> r = ls.solve([[1.0, 2.0], [2.0, 4.0]], rank=1, method=Truncated())
    >>> r.message, r.L.to_dense().round(9).tolist()
    ('there is nothing to iterate', [[1.0, 2.0], [2.0, 4.0]])
    """

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
        """The rank as a whole number, if L can have it.

        Parameters
        ----------
        shape
            Of L.
        rank
            What was given as a rank.

        Returns
        -------
        int
            The rank.

        Raises
        ------
        TypeError, ValueError
            If it is no integer, or L cannot have it.
        """
        return check_rank(rank, shape)

    def with_chosen_rank(self) -> Self | None:
        """This method set to choose the rank, up to the one given.

        Returns
        -------
        Solver or None
            None if the default method has to choose for it.
        """
        return None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name, as scikit-learn asks for them.

        Parameters
        ----------
        deep
            Not used: no parameter has parameters of its own.

        Returns
        -------
        dict
            Names and values.

        Examples
        --------
        >>> from lowsparse.solvers import ManPG
        >>> ManPG(gamma=0.5).get_params()["gamma"]
        0.5
        """
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change parameters.

        Parameters
        ----------
        params
            New values by name.

        Returns
        -------
        Solver
            Itself.

        Raises
        ------
        ValueError
            If there is no parameter of a name.
        """
        for name, value in params.items():
            if name not in self.get_params():
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}; it has {list(self.get_params())}")
            setattr(self, name, value)
        return self

    def check_parameters(self) -> None:
        """Check that every parameter has a value of its kind and within its range.

        Raises
        ------
        ValueError
            If one has not.

        Examples
        --------
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
        """Raise before the first iteration if the parameters do not fit each other or the data.

        Parameters
        ----------
        problem
            The data, the rank, and what was asked for.
        """

    @abstractmethod
    def init(self, problem: Problem) -> State:
        """The state before the first iteration.

        Parameters
        ----------
        problem
            The data, the rank, and what was asked for.

        Returns
        -------
        State
            All that the first iteration depends on.
        """

    @abstractmethod
    def advance(self, problem: Problem, state: Any) -> State:
        """Run one iteration.

        Parameters
        ----------
        problem
            As for `init`.
        state
            It must not be used afterwards: its memory is reused.

        Returns
        -------
        State
            The next one.
        """

    @abstractmethod
    def lowrank(self, problem: Problem, state: Any) -> LowRank:
        """The low-rank matrix of a state, for callbacks.

        Parameters
        ----------
        problem, state
            As for `advance`; the state stays usable.

        Returns
        -------
        LowRank
            L at this point.
        """

    @abstractmethod
    def finish(self, problem: Problem, state: Any) -> Outcome:
        """The solution that belongs to the last state.

        Parameters
        ----------
        problem, state
            As for `advance`.

        Returns
        -------
        Outcome
            L, the outliers, and how good they are by the method's own measures.
        """


def count_stages(first: float, last: float, factor: float) -> int:
    """The number of thresholds first, factor · first, ... down to last, none added or dropped by rounding."""
    return 1 + max(0, math.ceil(math.log(last / first) / math.log(factor) - 1e-9))


def nothing() -> Float:
    """Return an empty array: the default of a field of a state."""
    return np.empty((0, 0))
