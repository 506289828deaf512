"""The methods: one class per published algorithm, found by name.

Every module of this package is searched for them: a new method is a file here.
"""

import importlib
import inspect
import pkgutil
from typing import Any

from .base import Outcome, Problem, Solver, State
from .ladder import Ladder
from .manpg import AManPG, AManPGC, ManPG, ManPGC

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


def _found() -> dict[str, type[Solver]]:
    modules = (importlib.import_module(f".{m.name}", __name__) for m in pkgutil.iter_modules(__path__))
    classes = (cls for module in modules for _, cls in inspect.getmembers(module, inspect.isclass))
    return {cls.name: cls for cls in classes if issubclass(cls, Solver) and "name" in vars(cls)}


_SOLVERS = _found()


def __getattr__(name: str) -> Any:
    for solver in _SOLVERS.values():
        if solver.__name__ == name:
            return solver
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def names() -> list[str]:
    """The names `solve(method=...)` knows.

    Returns
    -------
    list of str
        In the order of the alphabet.

    Examples
    --------
    >>> "amanpgc" in names()
    True
    """
    return sorted(_SOLVERS)


def from_name(name: str) -> Solver:
    """The method of that name with its default parameters; "auto" is the library's choice.

    Parameters
    ----------
    name
        One of `names()`, or "auto".

    Returns
    -------
    Solver
        To be given to `solve` as `method`, as it is or with other parameters (`set_params`).

    Raises
    ------
    ValueError
        If there is no method of that name.

    Examples
    --------
    >>> from_name("auto").name
    'ladder'
    """
    if name == "auto":
        name = "ladder"
    if name not in _SOLVERS:
        raise ValueError(f"unknown method {name!r}: choose 'auto' or one of {names()}")
    return _SOLVERS[name]()
