"""Parameters of a method: fields of its dataclass that carry their meaning, their kind and their range.

`Solver.check_parameters`, ``lowsparse methods`` and the documentation read them from there.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar, Unpack, overload

import numpy as np

T = TypeVar("T")

KINDS: dict[type, tuple[str, tuple[type, ...]]] = {
    float: ("a number", (int, float, np.integer, np.floating)),
    int: ("a whole number", (int, np.integer)),
    bool: ("True or False", (bool,)),
    str: ("a string", (str,)),
}


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """What a parameter means, and which values it may have. Numbers must be finite."""

    default: Any
    text: str
    kind: type
    above: float = -math.inf
    at_least: float = -math.inf
    below: float = math.inf
    at_most: float = math.inf
    choices: tuple[Any, ...] = ()
    required: str = ""  # if it has no default: what it is and how to find it

    @property
    def allowed(self) -> str:
        """The values it may have, in words.

        >>> from lowsparse.solvers import AManPGC
        >>> [parameters_of(AManPGC)[name].allowed for name in ("mu1", "stage_iter", "gamma0", "noise_stop")]
        ['in (0, 1)', 'a whole number of 1 or more', 'positive and finite, or None', 'True or False']
        """
        whole = self.kind is int
        low, high = max(self.above, self.at_least), min(self.below, self.at_most)
        if self.choices:
            text = " or ".join(map(repr, self.choices)) if len(self.choices) < 3 else f"one of {list(self.choices)}"
        elif math.isfinite(high):
            left, right = "(" if self.above == low else "[", ")" if self.below == high else "]"
            text = ("a whole number " if whole else "") + f"in {left}{low:g}, {high:g}{right}"
        elif math.isfinite(self.at_least):
            text = ("a whole number of " if whole else "") + f"{low:g} or more"
        elif math.isfinite(self.above):
            text = "positive and finite" if low == 0 else f"larger than {low:g}"
        else:
            text = KINDS[self.kind][0]
        return text + (", or None" if self.default is None and not self.required else "")

    def allows(self, value: Any) -> bool:
        """Whether this is a value it may have."""
        if value is None:
            return self.default is None
        of_kind = isinstance(value, KINDS[self.kind][1]) and isinstance(value, bool) == (self.kind is bool)
        if not of_kind or self.choices or self.kind in (bool, str):
            return of_kind and (not self.choices or value in self.choices)
        return bool(self.above < value < self.below and self.at_least <= value <= self.at_most)


class Limits(TypedDict, total=False):
    """The arguments of `Parameter` that bound a value."""

    above: float
    at_least: float
    below: float
    at_most: float
    choices: tuple[Any, ...]
    required: str


@overload
def parameter(default: None, text: str, **limits: Unpack[Limits]) -> float | None: ...
@overload
def parameter(default: None, text: str, *, kind: type[T], **limits: Unpack[Limits]) -> T | None: ...
@overload
def parameter(default: T, text: str, **limits: Unpack[Limits]) -> T: ...
def parameter(default: Any, text: str, *, kind: type | None = None, **limits: Unpack[Limits]) -> Any:
    """A field of a solver: its default, what it means, and its limits (see `Parameter`).

    The kind is that of the default; where that is None it is `kind`, a number if that is left out.

    >>> from dataclasses import dataclass
    >>> @dataclass(kw_only=True)
    ... class Descent:
    ...     step: float = parameter(0.5, "length of a step", above=0)
    >>> Descent().step, parameters_of(Descent)["step"].allowed
    (0.5, 'positive and finite')
    """
    kind = kind or (float if default is None else type(default))
    described = Parameter(default=default, text=text, kind=kind, **limits)
    return dataclasses.field(default=default, metadata={"parameter": described})


def parameters_of(solver: type) -> dict[str, Parameter]:
    """The parameters of a method by name, its own before those of the classes it is built on."""
    declared = {f.name: f.metadata["parameter"] for f in dataclasses.fields(solver) if "parameter" in f.metadata}
    return {name: declared[name] for cls in solver.__mro__ for name in vars(cls) if name in declared}


def require(condition: bool, name: str, value: object, what: str) -> None:
    """Raise a ValueError that names the parameter, its value and what it must be."""
    if not condition:
        raise ValueError(f"{name} must be {what}, not {value!r}")
