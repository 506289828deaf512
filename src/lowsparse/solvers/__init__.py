"""The methods: one class per published algorithm, found by name.

>>> names()
['amanpg', 'amanpgc', 'ladder', 'manpg', 'manpgc']
"""

from __future__ import annotations

from .base import Outcome, Problem, Solver, State
from .continuation import AManPGC, ManPGC
from .ladder import Ladder
from .manpg import AManPG, ManPG

__all__ = [
    "AManPG",
    "AManPGC",
    "Ladder",
    "ManPG",
    "ManPGC",
    "Outcome",
    "Problem",
    "Solver",
    "State",
    "from_name",
    "names",
]

_SOLVERS: dict[str, type[Solver]] = {solver.name: solver for solver in (Ladder, ManPG, AManPG, ManPGC, AManPGC)}


def names() -> list[str]:
    """The names `solve(method=...)` knows.

    >>> "amanpgc" in names()
    True
    """
    return sorted(_SOLVERS)


def from_name(name: str) -> Solver:
    """The method of that name with its default parameters; "auto" is the library's choice.

    >>> from_name("auto").name
    'ladder'
    """
    if name == "auto":
        name = "ladder"
    if name not in _SOLVERS:
        raise ValueError(f"unknown method {name!r}: choose 'auto' or one of {names()}")
    return _SOLVERS[name]()
