"""Figures of a solve; they need matplotlib (the extra `plot`)."""

from .factors import matrix, spectrum
from .outliers import cell_map, outlier_map
from .rates import phase
from .style import NOTHING as NOTHING
from .style import OTHERS as OTHERS
from .style import STYLES as STYLES
from .style import new_figure as new_figure
from .style import plain_axes as plain_axes
from .times import series
from .traces import convergence, convergence_figure
from .video import frames

__all__ = [
    "cell_map",
    "convergence",
    "convergence_figure",
    "frames",
    "matrix",
    "outlier_map",
    "phase",
    "series",
    "spectrum",
]
