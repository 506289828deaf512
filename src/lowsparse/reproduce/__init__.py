"""The whole numerical section of the paper, run anew, as one page with tables, pictures and verdicts."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from . import claims, figures, page, settings
from .jobs import Job, Record, Step, Store, machine, write
from .results import CaseResults, Results, SceneResults, write_csv, write_numbers
from .synthetic import Case
from .video import Clip, Scene, open_clip

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PAGE", "Step", "reproduce"]

PAGE = "index.html"
RUNS = "runs"


def reproduce(
    folder: str | os.PathLike[str],
    *,
    quick: bool = False,
    cases: Sequence[int] | None = None,
    videos: Sequence[str | os.PathLike[str]] | None = None,
    methods: Sequence[str] | None = None,
    data: str | os.PathLike[str] = settings.DATA_FOLDER,
    progress: Callable[[Step], None] | None = None,
) -> Path:
    """Run the numerical section of the paper and write it to a folder: a page, PNG and CSV files.

    The page is written anew after every case and every video. What is there from an earlier run with the same
    settings, on the same machine, is taken over: an interrupted run goes on when it is called again.

    Parameters
    ----------
    folder
        Made if it is not there.
    quick
        Scaled-down cases and videos, in less than two minutes.
    cases
        Of the paper, 1 to 8; None for all.
    videos
        Names ("hall", "escalator", "trees", "blocks") and paths of your own (see `lowsparse.video.read_video`); None
        for those of the paper that are in `data`, and the made-up "blocks".
    methods
        Among "amanpgc", "manpgc", "rmc", "lmafit", "subgm" and "ladder"; None for all.
    data
        Folder with the videos known by name.
    progress
        Called with a `Step` before, during and after every run.

    Returns
    -------
    Path
        Of the page.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = reproduce(folder, quick=True, cases=[6], videos=[], methods=["amanpgc"])
    ...     path.name, path.stat().st_size > 10_000
    ('index.html', True)
    """
    numbers = sorted(set(settings.PRINTED_STEPS if cases is None else cases))
    for number in numbers:
        settings.case_size(number)
    results = Results(quick, _command(quick, cases, videos, methods), machine(), _methods(methods))
    clips = _clips(videos, Path(data), quick, results)
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    return _Work(out, results, progress).run([Case(number, quick) for number in numbers], clips)


def _methods(methods: Sequence[str] | None) -> tuple[str, ...]:
    wanted = settings.METHODS if methods is None else tuple(methods)
    for method in wanted:
        if method not in settings.METHODS:
            raise ValueError(f"unknown method {method!r}: choose among {', '.join(settings.METHODS)}")
    return tuple(method for method in settings.METHODS if method in wanted)


def _clips(videos: Sequence[str | os.PathLike[str]] | None, data: Path, quick: bool, results: Results) -> list[Clip]:
    """The videos, opened before anything is run: one that cannot be read is an error now."""
    if videos is not None:
        clips = [open_clip(video, data, quick) for video in dict.fromkeys(videos)]
        if len({clip.name for clip in clips}) < len(clips):
            raise ValueError("two videos have the same file name: rename one, or reproduce them one by one")
        return clips
    absent = [known for known in settings.VIDEOS.values() if known.file and not (data / known.file).is_file()]
    if absent:
        missing = "; ".join(f"{known.title} ({known.file})" for known in absent)
        results.left_out.append(f"Videos that were not at hand, and are left out: {missing}.")
    return [open_clip(name, data, quick) for name, known in settings.VIDEOS.items() if known not in absent]


def _command(
    quick: bool,
    cases: Sequence[int] | None,
    videos: Sequence[str | os.PathLike[str]] | None,
    methods: Sequence[str] | None,
) -> str:
    """The command line that does the same; of paths only the last part, which tells nothing about the machine.

    >>> _command(True, [1, 4], ["films/street.avi"], None)
    'lowsparse reproduce --quick --case 1 --case 4 --video street.avi'
    >>> _command(False, [], None, None)
    'lowsparse reproduce --only video'
    """
    words = ["lowsparse", "reproduce", *(["--quick"] if quick else [])]
    for left_out, rest in ((cases, "video"), (videos, "synthetic")):
        words += [] if left_out is None or left_out else ["--only", rest]
    for option, values in (("--case", cases), ("--video", videos), ("--method", methods)):
        for value in values or ():
            words += [option, Path(str(value)).name]
    return shlex.join(words)


class _Work:
    """The runs, one after the other, and the files as they grow."""

    def __init__(self, out: Path, results: Results, progress: Callable[[Step], None] | None) -> None:
        self.out, self.results = out, results
        self.store = Store(out / RUNS)
        self.tell = progress or (lambda step: None)
        self.number = self.total = 0
        self.pictures: dict[str, Path] = {}

    def run(self, cases: list[Case], clips: list[Clip]) -> Path:
        """All cases, then all videos."""
        results = self.results
        by_case = [(case, case.jobs(results.methods, results.machine)) for case in cases]
        by_clip = [
            (clip, [(scene, scene.jobs(results.methods, results.machine)) for scene in self._scenes(clip)])
            for clip in clips
        ]
        self.total = sum(len(jobs) for _, jobs in by_case)
        self.total += sum(len(jobs) for _, scenes in by_clip for _, jobs in scenes)
        for case, jobs in by_case:
            self._case(case, jobs)
            case.forget()
            if not results.quick or case is cases[-1]:
                self._draw("synthetic", lambda: figures.panels(results.cases))
                self.write()
        for clip, scenes in by_clip:
            self._clip(clip, scenes)
        results.complete = True
        return self.write()

    def _scenes(self, clip: Clip) -> list[Scene]:
        return [Scene(clip, share, self.store, self.results.quick) for share in settings.SHARES]

    def _case(self, case: Case, jobs: list[Job]) -> None:
        found = CaseResults(case.number, case.title)
        self.results.cases.append(found)
        for job in jobs:
            record = self._do(job)
            if job.name.endswith("-literal"):
                found.literal = record
            else:
                found.runs.setdefault(record["method"], []).append(record)
            write_numbers(self.out, self.results)

    def _clip(self, clip: Clip, scenes: list[tuple[Scene, list[Job]]]) -> None:
        mine = []
        for scene, jobs in scenes:
            found = SceneResults(clip, scene.share)
            mine.append(found)
            self.results.scenes.append(found)
            for job in jobs:
                found.add(self._do(job))
                write_numbers(self.out, self.results)
            scene.forget()
        self._draw(clip.name, lambda: figures.backgrounds(mine, self.store))
        self.write()

    def _do(self, job: Job) -> Record:
        self.number += 1
        where = (self.number, self.total, job.title)
        record = self.store.find(job)
        if record is not None:
            self.tell(Step(*where, "kept"))
        else:
            self.tell(Step(*where, "running"))
            self.store.folder.mkdir(parents=True, exist_ok=True)
            found = job.run(lambda iteration, figure: self.tell(Step(*where, "running", iteration, figure)))
            record = self.store.save(job, found)
            self.tell(Step(*where, "done"))
        return {**record, "words": job.words, "note": job.note}

    def _draw(self, name: str, draw: Callable[[], Figure]) -> None:
        path = self.out / f"{name}.png"
        draw().savefig(path)
        self.pictures[name] = path

    def write(self) -> Path:
        """The page and the verdicts, with what there is."""
        judged = claims.judge(self.results)
        rows = [{"claim": claim.text, "verdict": claim.verdict, "reason": claim.reason} for claim in judged]
        write_csv(self.out / "claims.csv", rows)
        write(self.out / PAGE, page.html(self.results, judged, claims.about_ours(self.results), self.pictures).encode())
        return self.out / PAGE
