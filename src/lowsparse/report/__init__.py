"""Reports: a run as one HTML file to look at, which loads nothing and sends nothing."""

from .film import Filmstrip
from .heat import HeatMap, heat_map
from .page import Run
from .player import video_report
from .table import (
    PANES,
    SUREST,
    Line,
    Sureness,
    TableView,
    sureness,
    table_report,
)
from .words import Remark, in_words

__all__ = [
    "PANES",
    "SUREST",
    "Filmstrip",
    "HeatMap",
    "Line",
    "Remark",
    "Run",
    "Sureness",
    "TableView",
    "heat_map",
    "in_words",
    "sureness",
    "table_report",
    "video_report",
]
