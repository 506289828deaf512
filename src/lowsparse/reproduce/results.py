"""The results of all runs, and their tables of numbers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..support.files import write_csv
from . import settings
from .settings import Effort
from .synthetic import Case
from .video import Scene

Row = dict[str, Any]
MEASURES = ("age", "peps", "pceps", "psnr", "f1")


@dataclass
class Results:
    """All results so far."""

    quick: bool
    command: str
    machine: dict[str, Any]
    methods: tuple[str, ...]
    cases: list[Case] = field(default_factory=list)
    scenes: list[Scene] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # what could not be run, as sentences
    complete: bool = False

    @property
    def videos(self) -> dict[str, list[Scene]]:
        """The scenes of each video that was run, by its name."""
        found: dict[str, list[Scene]] = {}
        for scene in self.scenes:
            if scene.runs:
                found.setdefault(scene.clip.name, []).append(scene)
        return found


def _time_ratio(one: Effort | None, other: Effort | None) -> float | None:
    return one.seconds / other.seconds if one and other and other.seconds else None


def summary_rows(results: Results) -> list[Row]:
    """One row for each synthetic case and method."""
    rows = []
    for case in results.cases:
        for method, record in case.selected.items():
            row: Row = {"case": case.number, "method": method}
            for target in settings.TARGETS:
                there = case.reached(method, target)
                row[f"iterations to {target:.0e}"], row[f"seconds to {target:.0e}"] = there or (None, None)
            row |= {
                "seconds / amanpgc": _time_ratio(case.reached(method), case.reached("amanpgc")),
                "iterations": len(record["error"]),
                "seconds": record["seconds"][-1],
                "cpu seconds": record["cpu"][-1],
                "seconds of the start": record["start_seconds"],
                "smallest difference": min(record["error"]),
                "status": record["status"],
                "steps shortened": record["shortened"],
                "parameters": record["description"],
                "parameters tried": len(case.runs[method]),
                "entries": record["entries"],
            }
            rows.append(row)
    return rows


def curve_rows(results: Results) -> list[Row]:
    """One row for each iteration of the selected runs on the synthetic cases."""
    names = ("case", "method", "iteration", "seconds", "cpu seconds", "relative difference")
    rows = []
    for case in results.cases:
        for method, record in [*case.selected.items(), ("amanpgc, the step as printed", case.literal)]:
            if record is not None:
                columns = (record[name] for name in ("iteration", "seconds", "cpu", "error"))
                steps = zip(*columns, strict=True)
                rows += [dict(zip(names, (case.number, method, *step), strict=True)) for step in steps]
    return rows


def video_rows(results: Results) -> list[Row]:
    """One row for each video, share and method, with the numbers of the paper."""
    rows = []
    for scene in results.scenes:
        known = scene.clip.known
        for method, record in scene.selected.items():
            paper = scene.printed(method)
            row = {
                "video": scene.clip.title,
                "observed": scene.share,
                "method": method,
                "paper iterations": paper and paper.iterations,
                "iterations": record["iterations"],
                "paper seconds": paper and paper.seconds,
                "seconds": record["seconds"],
                "paper seconds / amanpgc": _time_ratio(paper, scene.printed("amanpgc")),
                "seconds / amanpgc": _time_ratio(scene.reached(method), scene.reached("amanpgc")),
                "cpu seconds": record["cpu"],
                "seconds of the start": record["start_seconds"],
                "status": record["status"],
                "parameters": record["description"],
                "parameters tried": len(scene.runs[method]),
                "the paper's video": known.same if known and known.printed else None,
            }
            rows.append(row | {name: record["measures"].get(name) for name in MEASURES})
    return rows


NUMBERS: dict[str, Callable[[Results], list[Row]]] = {
    "synthetic.csv": summary_rows,
    "synthetic-curves.csv": curve_rows,
    "video.csv": video_rows,
}


def write_numbers(folder: Path, results: Results) -> list[str]:
    """Write all tables as CSV files, and return their names."""
    tables = {name: rows for name, table in NUMBERS.items() if (rows := table(results))}
    for name, rows in tables.items():
        write_csv(folder / name, rows, digits=6)
    return list(tables)
