"""The results of all runs, and their tables of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..plots import STYLES
from ..support.files import write_csv
from . import settings, video
from .jobs import Record
from .synthetic import reached, select_run
from .video import Clip

__all__ = [
    "CaseResults",
    "Results",
    "SceneResults",
    "join_ranges",
    "join_words",
    "label",
    "summary_rows",
    "video_doubts",
    "video_rows",
    "write_numbers",
]


def label(method: str) -> str:
    """The name of a method as it is written."""
    return STYLES[method][0] + (" (our default)" if method == settings.OURS else "")


@dataclass
class CaseResults:
    """A synthetic case: the runs of every method."""

    number: int
    title: str
    runs: dict[str, list[Record]] = field(default_factory=dict)  # with different parameters
    literal: Record | None = None

    @property
    def place(self) -> int:
        """The number."""
        return self.number

    @property
    def selected(self) -> dict[str, Record]:
        """The selected run of every method."""
        return {method: select_run(records) for method, records in self.runs.items() if records}

    def poor_quality(self, method: str) -> str:
        """Nothing: the quality of a run on a case is the relative difference it reaches."""
        return ""

    def reached(self, method: str, target: float = settings.JUDGED) -> tuple[int, float] | None:
        """Iterations and seconds to a relative difference; None if it was not reached."""
        record = self.selected.get(method)
        return None if record is None else reached(record, target)


@dataclass
class SceneResults:
    """A video of which a share of the pixels is observed: the runs of every method."""

    clip: Clip
    share: float
    runs: dict[str, list[Record]] = field(default_factory=dict)  # with different parameters

    @property
    def enough(self) -> float:
        """The PSNR of an acceptable picture: good, or hardly worse than AManPGC's."""
        own = [float(record["measures"]["psnr"]) - settings.AS_GOOD for record in self.runs.get("amanpgc", [])]
        return min([settings.GOOD, *own])

    @property
    def selected(self) -> dict[str, Record]:
        """The selected run of every method."""
        return {method: video.select_run(records, self.enough) for method, records in self.runs.items()}

    @property
    def place(self) -> str:
        """The title of the video."""
        return self.clip.title

    def poor_quality(self, method: str) -> str:
        """The video and the PSNR of a method, if its picture is not acceptable."""
        psnr = float(self.selected[method]["measures"]["psnr"])
        return f"{self.clip.title} ({psnr:.1f} dB)" if psnr < self.enough else ""

    @property
    def title(self) -> str:
        """The video and the share of its pixels."""
        return f"{self.clip.title} ({self.share:.0%})"

    def reached(self, method: str) -> tuple[int, float] | None:
        """Iterations and seconds of the selected run of a method; None if it was not run."""
        record = self.selected.get(method)
        return None if record is None else (record["iterations"], float(record["seconds"]))

    @property
    def same(self) -> bool:
        """Whether the numbers of the paper, if any, are certainly about this video."""
        known = self.clip.known
        return not (known and known.printed) or known.same == "yes"

    @property
    def printed(self) -> settings.Printed | None:
        """The numbers of the paper."""
        known = self.clip.known
        return settings.PRINTED_TABLES[known.printed][self.share] if known and known.printed else None


@dataclass
class Results:
    """All results so far."""

    quick: bool
    command: str
    machine: dict[str, Any]
    methods: tuple[str, ...]
    cases: list[CaseResults] = field(default_factory=list)
    scenes: list[SceneResults] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # what could not be run, as sentences
    complete: bool = False


def video_doubts(scenes: Iterable[SceneResults]) -> list[str]:
    """Sentences about the videos that may not be those of the paper."""
    relations = {"no": "stands in for the paper's", "probably": "is probably the paper's"}
    found = {
        known.title: f"{known.title} {relations[known.same]} “{known.paper_name}”."
        for scene in scenes
        if (known := scene.clip.known) and not scene.same
    }
    return list(found.values())


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def summary_rows(results: Results) -> list[dict[str, Any]]:
    """One row for each synthetic case and method."""
    rows = []
    for case in results.cases:
        reference = case.reached("amanpgc")
        for method, record in case.selected.items():
            row: dict[str, Any] = {"case": case.number, "method": method}
            for target in settings.TARGETS:
                there = case.reached(method, target)
                row[f"iterations to {target:.0e}"], row[f"seconds to {target:.0e}"] = there or (None, None)
            own = case.reached(method)
            row |= {
                "seconds / amanpgc": _ratio(own and own[1], reference and reference[1]),
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


def curve_rows(results: Results) -> list[dict[str, Any]]:
    """One row for each iteration of the selected runs on the synthetic cases."""
    rows = []
    for case in results.cases:
        for method, record in [*case.selected.items(), ("amanpgc, the step as printed", case.literal)]:
            if record is None:
                continue
            columns = (record[name] for name in ("iteration", "seconds", "cpu", "error"))
            for iteration, seconds, cpu, error in zip(*columns, strict=True):
                rows.append(
                    {
                        "case": case.number,
                        "method": method,
                        "iteration": iteration,
                        "seconds": seconds,
                        "cpu seconds": cpu,
                        "relative difference": error,
                    }
                )
    return rows


def video_rows(results: Results) -> list[dict[str, Any]]:
    """One row for each video, share and method, with the numbers of the paper."""
    rows = []
    for scene in results.scenes:
        reference = scene.reached("amanpgc")
        for method, record in scene.selected.items():
            paper = scene.printed.of(method) if scene.printed else None
            paper_reference = scene.printed.of("amanpgc") if scene.printed else None
            row = {
                "video": scene.clip.title,
                "observed": scene.share,
                "method": method,
                "paper iterations": paper and paper[1],
                "iterations": record["iterations"],
                "paper seconds": paper and paper[0],
                "seconds": record["seconds"],
                "paper seconds / amanpgc": _ratio(paper and paper[0], paper_reference and paper_reference[0]),
                "seconds / amanpgc": _ratio(record["seconds"], reference and reference[1]),
                "cpu seconds": record["cpu"],
                "seconds of the start": record["start_seconds"],
                "status": record["status"],
                "parameters": record["description"],
                "parameters tried": len(scene.runs[method]),
                "the paper's video": scene.clip.known.same if scene.clip.known and scene.clip.known.printed else None,
            }
            row |= {name: record["measures"].get(name) for name in ("age", "peps", "pceps", "psnr", "f1")}
            rows.append(row)
    return rows


NUMBERS: dict[str, Callable[[Results], list[dict[str, Any]]]] = {
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


def join_words(words: Iterable[str]) -> str:
    """A list in a sentence.

    >>> join_words(["one", "two", "three"])
    'one, two and three'
    """
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def join_ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers in a sentence, consecutive ones as ranges.

    >>> join_ranges([1, 2, 3, 5, 7, 8])
    '1 to 3, 5, 7 and 8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [[f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run) for run in runs]
    return join_words([word for words in parts for word in words]) if runs else ""
