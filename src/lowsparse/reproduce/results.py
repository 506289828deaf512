"""What all runs together have found, and the same as tables of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..support.files import write_csv
from . import settings, video
from .jobs import Record
from .synthetic import chosen, reached
from .video import Clip

__all__ = ["CaseResults", "Results", "SceneResults", "doubts", "label", "listed", "ratio", "spans", "write_numbers"]

LABELS = {"amanpgc": "AManPGC", "manpgc": "ManPGC", "rmc": "RMC", "lmafit": "LMaFit", "subgm": "SubGM"}
LABELS[settings.OURS] = "Ladder (our default)"


def label(method: str) -> str:
    """A method's name as it is written.

    >>> label("amanpgc")
    'AManPGC'
    """
    return LABELS.get(method, method)


@dataclass
class CaseResults:
    """A synthetic case: all runs of every method, by method."""

    number: int
    title: str
    runs: dict[str, list[Record]] = field(default_factory=dict)  # with different parameters
    literal: Record | None = None

    def best(self, method: str) -> Record | None:
        """The run that counts; None if there is none."""
        return chosen(self.runs[method]) if self.runs.get(method) else None

    def reached(self, method: str, target: float = settings.JUDGED) -> tuple[int, float] | None:
        """Iterations and seconds to a relative difference; None if it was not reached, or not tried."""
        record = self.best(method)
        return None if record is None else reached(record, target)


@dataclass
class SceneResults:
    """A video of which a share of the pixels is observed: all runs of every method, by method."""

    clip: Clip
    share: float
    runs: dict[str, list[Record]] = field(default_factory=dict)  # with different parameters

    @property
    def enough(self) -> float:
        """The PSNR from which a picture counts: it is good, or hardly worse than AManPGC's."""
        own = [float(record["measures"]["psnr"]) - settings.AS_GOOD for record in self.runs.get("amanpgc", [])]
        return min([settings.GOOD, *own])

    @property
    def counting(self) -> dict[str, Record]:
        """The run that counts of every method."""
        return {method: video.chosen(records, self.enough) for method, records in self.runs.items()}

    @property
    def title(self) -> str:
        """In words."""
        return f"{self.clip.title} ({self.share:.0%})"

    def seconds(self, method: str) -> float | None:
        """Of a method; None if it was not run."""
        return float(self.counting[method]["seconds"]) if method in self.runs else None

    @property
    def same(self) -> bool:
        """Whether the paper's figures are surely about this video, or there are none."""
        known = self.clip.known
        return not (known and known.printed) or known.same == "yes"

    @property
    def printed(self) -> settings.Printed | None:
        """The paper's table for it."""
        known = self.clip.known
        return settings.PRINTED_TABLES[known.printed][self.share] if known and known.printed else None


@dataclass
class Results:
    """Everything there is so far."""

    quick: bool
    command: str
    machine: dict[str, Any]
    methods: tuple[str, ...]
    cases: list[CaseResults] = field(default_factory=list)
    scenes: list[SceneResults] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # what could not be run, and why
    complete: bool = False


def doubts(scenes: Iterable[SceneResults]) -> list[str]:
    """Sentences about the videos beside which the paper's figures stand though they may be another's."""
    words = {"no": "stands in for the paper's", "probably": "is probably the paper's"}
    found = {
        known.title: f"{known.title} {words[known.same]} “{known.paper_name}”."
        for scene in scenes
        if (known := scene.clip.known) and not scene.same
    }
    return list(found.values())


def ratio(one: float | None, other: float | None) -> float | None:
    """One over the other, if both are there.

    >>> ratio(3.0, 2.0), ratio(3.0, None)
    (1.5, None)
    """
    return one / other if one is not None and other else None


def summary_rows(results: Results) -> list[dict[str, Any]]:
    """The synthetic cases: one row for each case and method."""
    rows = []
    for case in results.cases:
        reference = case.reached("amanpgc")
        for method in case.runs:
            record = case.best(method)
            if record is None:
                continue
            row: dict[str, Any] = {"case": case.number, "method": method}
            for target in settings.TARGETS:
                there = case.reached(method, target)
                row[f"iterations to {target:.0e}"], row[f"seconds to {target:.0e}"] = there or (None, None)
            own = case.reached(method)
            row |= {
                "seconds / amanpgc": ratio(own and own[1], reference and reference[1]),
                "iterations": len(record["error"]),
                "seconds": record["seconds"][-1],
                "cpu seconds": record["cpu"][-1],
                "seconds of the start": record["start_seconds"],
                "smallest difference": min(record["error"]),
                "status": record["status"],
                "steps shortened": record["shortened"],
                "parameters": record["words"],
                "parameters tried": len(case.runs[method]),
                "entries": record["entries"],
            }
            rows.append(row)
    return rows


def curve_rows(results: Results) -> list[dict[str, Any]]:
    """The synthetic cases: one row for each iteration of the runs that count."""
    rows = []
    for case in results.cases:
        named = [(method, case.best(method)) for method in case.runs]
        for method, record in [*named, ("amanpgc, the step as printed", case.literal)]:
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
    """The videos: one row for each video, share and method, the paper's figures beside ours."""
    rows = []
    for scene in results.scenes:
        reference = scene.seconds("amanpgc")
        for method, record in scene.counting.items():
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
                "paper seconds / amanpgc": ratio(paper and paper[0], paper_reference and paper_reference[0]),
                "seconds / amanpgc": ratio(record["seconds"], reference),
                "cpu seconds": record["cpu"],
                "seconds of the start": record["start_seconds"],
                "status": record["status"],
                "parameters": record["words"],
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
    """All tables as CSV files, and the names of those there are."""
    tables = {name: rows for name, table in NUMBERS.items() if (rows := table(results))}
    for name, rows in tables.items():
        write_csv(folder / name, rows, digits=6)
    return list(tables)


def listed(words: Iterable[str]) -> str:
    """Words as a sentence has them.

    >>> listed(["one", "two", "three"])
    'one, two and three'
    """
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def spans(numbers: Sequence[int]) -> str:
    """Numbers as a sentence has them.

    >>> spans([1, 2, 3, 5, 7, 8])
    '1 to 3, 5, 7 and 8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    said = [[f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run) for run in runs]
    return listed([word for words in said for word in words]) if runs else ""
