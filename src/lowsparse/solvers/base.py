"""What every method is made of: parameters, a state, and one step from a state to the next."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..linalg.lowrank import LowRank
from ..result import Stationarity
from ..sweeps import Float, Sweep

__all__ = ["Outcome", "Problem", "Solver", "State", "nothing", "require", "require_count", "require_positive"]


@dataclass(frozen=True)
class Problem:
    """What is to be solved, and the waist that runs over it; solvers read it and never change it."""

    M: ObservedMatrix
    rank: int
    sweep: Sweep
    start: Callable[[], Float]  # U⁰, orthonormal, for those who ask
    start_given: bool  # by the user, who did not leave it to the method
    tol: float  # 0: never converged
    unit: float  # the median magnitude of the entries that are not zero; 1 if all are
    scale: float  # the root mean square of the entries, each taken as at most `clip`; 1 if all are zero
    largest: float  # max |x|
    clip: float  # no inlier is likely to be larger; infinite if no entry is
    seed: int  # for methods that draw: of `random_state`

    @property
    def rounding(self) -> float:
        """What is smaller, in units of the data, may be rounding of the values as they are stored."""
        return 8 * float(np.finfo(self.M.dtype).eps) * self.scale


@dataclass(kw_only=True)
class State:
    """A point of an iteration: everything the next step depends on, so that it can be saved and resumed.

    Fields are arrays, numbers, strings, tuples of these, None, or dataclasses of these. Those named in `scratch` are
    made anew by `init`, and not saved: memory to write to, or the data in another order.
    """

    scratch: ClassVar[tuple[str, ...]] = ()

    iteration: int = 0
    accuracy: float = np.inf  # what `tol` is compared with
    finished: str = ""  # why the method itself is done, though `tol` is not met
    failure: str = ""  # "stalled" or "diverged"
    advice: str = ""  # what to do about it, if the method knows better than the loop
    row: dict[str, float] = dataclasses.field(default_factory=dict)  # of the trace, for this iteration


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What is made of the last state."""

    L: LowRank
    flagged: NDArray[np.intp]  # where on Ω there is an outlier
    S: NDArray[Any]  # the outliers there
    objective: float
    stationarity: Stationarity | None = None
    noise: float | None = None  # standard deviation of the inliers, if the method estimates it
    held_out: float | None = None  # robust scale of the residuals of entries kept aside
    next_noise: float | None = None  # the noise that one rank more leaves, if that is far less
    repeated: float = 0.0  # share of the entries whose number is repeated suspiciously often
    undetermined: float = 0.0  # share of the entries of L, rows and columns with few entries left out


def _is_a(*types: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, types) and (bool in types or not isinstance(value, bool))


# what a parameter may be, by the annotation of its field
KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "float": ("a number", _is_a(int, float, np.integer, np.floating)),
    "int": ("a whole number", _is_a(int, np.integer)),
    "bool": ("True or False", _is_a(bool)),
    "str": ("a text", _is_a(str)),
    "None": ("None", _is_a(type(None))),
}


@dataclass(kw_only=True)
class Solver(ABC):
    """A method is its parameters: keyword-only, unchanged by solving, understood by scikit-learn's ``clone``."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()  # parameters that have no default
    full: ClassVar[bool] = False  # whether every entry must be observed
    robust: ClassVar[bool] = True  # whether outliers are more than noise to it
    finds_rank: ClassVar[bool] = False  # whether it can do without a given rank
    rank_of: ClassVar[str] = "L"  # what the rank that is given is the rank of
    takes_start: ClassVar[bool] = True  # whether it can begin at a given U⁰
    if_slow: ClassVar[str] = ""  # what else helps when it runs out of iterations

    def check_rank(self, M: ObservedMatrix, rank: Any) -> int:
        """The rank as a whole number; raise if it cannot be that of L."""
        return M.check_rank(rank)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change parameters; unknown names raise."""
        for name, value in params.items():
            if name not in self.get_params():
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}; it has {list(self.get_params())}")
            setattr(self, name, value)
        return self

    def check_types(self) -> None:
        """Raise unless every parameter is of the kind that its field says: a number, a whole one, a text, a truth.

        >>> from lowsparse.solvers import AManPGC
        >>> AManPGC(stage_iter="many").check_types()
        Traceback (most recent call last):
        ValueError: stage_iter must be a whole number, not 'many'
        """
        for field in dataclasses.fields(self):
            value, allowed = getattr(self, field.name), [kind.strip() for kind in str(field.type).split("|")]
            allowed = [kind.removeprefix("<class '").removesuffix("'>") for kind in allowed]
            if not any(KINDS[kind][1](value) for kind in allowed if kind in KINDS) and set(allowed) <= KINDS.keys():
                what = ", or ".join(KINDS[kind][0] for kind in allowed)
                raise ValueError(f"{field.name} must be {what}, not {value!r}")

    @abstractmethod
    def check(self, problem: Problem) -> None:
        """Raise before the first iteration if the parameters or the data do not fit the method."""

    @abstractmethod
    def init(self, problem: Problem) -> Any:
        """The state before the first iteration."""

    @abstractmethod
    def advance(self, problem: Problem, state: Any) -> Any:
        """One iteration. The state passed in must not be used afterwards: its memory is reused."""

    @abstractmethod
    def lowrank(self, problem: Problem, state: Any) -> LowRank:
        """The low-rank matrix of a state, for those who watch."""

    @abstractmethod
    def finish(self, problem: Problem, state: Any) -> Outcome:
        """What is handed back for the last state."""


def nothing() -> Float:
    """What a field of a state is before there is anything."""
    return np.empty((0, 0))


def require(condition: bool, name: str, value: Any, what: str) -> None:
    """Raise a ValueError that names the parameter, its value and what it must be."""
    if not condition:
        raise ValueError(f"{name} must be {what}, not {value!r}")


def require_positive(solver: Solver, *names: str) -> None:
    """Raise unless each of these parameters is None or a positive, finite number."""
    for name in names:
        value = getattr(solver, name)
        require(value is None or 0 < value < np.inf, name, value, "positive and finite")


def require_count(solver: Solver, *names: str) -> None:
    """Raise unless each of these parameters is None or a whole number of 1 or more."""
    for name in names:
        value = getattr(solver, name)
        require(value is None or value >= 1, name, value, "a whole number of 1 or more")
