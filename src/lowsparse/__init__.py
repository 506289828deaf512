"""lowsparse: a low-rank matrix from data with holes and gross errors, M = L + S on the observed entries.

>>> import lowsparse as ls
>>> r = ls.solve([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 2.0, float("nan")]], rank=1)
>>> r.L.to_dense().round(4)[2].tolist()
[1.0, 2.0, 3.0]
"""

from . import datasets, solvers
from ._version import __version__
from .choose import diagnose
from .diagnosis import Diagnosis
from .lowrank import LowRank
from .observed import ObservedMatrix
from .result import Result, Stationarity, Status, Trace
from .solve import Progress, solve

__all__ = [
    "Diagnosis",
    "LowRank",
    "ObservedMatrix",
    "Progress",
    "Result",
    "Stationarity",
    "Status",
    "Trace",
    "__version__",
    "datasets",
    "diagnose",
    "solve",
    "solvers",
]
