"""Reports on a run: one HTML file that loads nothing from elsewhere."""

from ..notebook import Remark
from .film import Filmstrip
from .heat import HeatMap, heat_map
from .page import Run
from .player import video_report
from .table import MAX_DEVIATIONS, PANES, Deviations, Line, TableView, deviations, table_report

__all__ = [
    "MAX_DEVIATIONS",
    "PANES",
    "Deviations",
    "Filmstrip",
    "HeatMap",
    "Line",
    "Remark",
    "Run",
    "TableView",
    "deviations",
    "heat_map",
    "table_report",
    "video_report",
]
