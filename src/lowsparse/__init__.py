"""lowsparse: a low-rank matrix from data with holes and gross errors, M = L + S on the observed entries.

>>> import lowsparse as ls
>>> r = ls.solve([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 2.0, float("nan")]], rank=1)
>>> r.L.to_dense().round(4)[2].tolist()
[1.0, 2.0, 3.0]
"""

from .support.startup import exit_on_signals, refuse_subinterpreter

# before the other imports, which take a second
refuse_subinterpreter()
exit_on_signals()

from typing import TYPE_CHECKING, Any

from . import datasets, solvers
from ._version import __version__
from .diagnosis import Diagnosis
from .entries.observed import ObservedMatrix
from .linalg.lowrank import LowRank
from .loop import Progress
from .places import StoredMatrix
from .result import Result, Stationarity, Status, Trace
from .robust.holdout import Holdout
from .solve import diagnose, solve
from .validation import Candidate, Validation, cross_validate, holdout

if TYPE_CHECKING:
    from . import plots
    from .estimators import RobustImputer, RobustPCA, RobustSeriesImputer, StreamingRobustPCA

__all__ = [
    "Candidate",
    "Diagnosis",
    "Holdout",
    "LowRank",
    "ObservedMatrix",
    "Progress",
    "Result",
    "RobustImputer",
    "RobustPCA",
    "RobustSeriesImputer",
    "Stationarity",
    "Status",
    "StoredMatrix",
    "StreamingRobustPCA",
    "Trace",
    "Validation",
    "__version__",
    "cross_validate",
    "datasets",
    "diagnose",
    "holdout",
    "plots",
    "solve",
    "solvers",
]

_ESTIMATORS = ("RobustImputer", "RobustPCA", "RobustSeriesImputer", "StreamingRobustPCA")


def __getattr__(name: str) -> Any:
    """The estimators, when they are asked for: they need scikit-learn, which takes a second to import; and plots."""
    if name in _ESTIMATORS:
        from . import estimators

        return getattr(estimators, name)
    if name == "plots":
        import importlib

        return importlib.import_module(".plots", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
