"""The experiments of the paper, reproduced: a page with tables, figures and verdicts."""

from __future__ import annotations

import io
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..support.files import write, write_csv
from . import claims, figures, settings
from .content import sections
from .experiment import Experiment
from .jobs import MethodJob, Record, RunProgress, Store, machine
from .results import NUMBERS, Results, write_numbers
from .synthetic import Case
from .video import Clip, Scene, open_clip
from .writers import write_markdown, write_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PAGE", "RUNS", "RunProgress", "reproduce"]

PAGE, TEXT, CLAIMS = "index.html", "paper.md", "claims.csv"
SYNTHETIC = "synthetic"  # the figure of all cases
RUNS = "runs"
USER_VIDEO = r"(?:quick-)?(own-.+)-\d+-[a-z]+-\d+\.json$"  # file names of runs on videos of the user


def reproduce(
    folder: str | os.PathLike[str],
    *,
    quick: bool = False,
    cases: Sequence[int] | None = None,
    videos: Sequence[str | os.PathLike[str]] | None = None,
    methods: Sequence[str] | None = None,
    data: str | os.PathLike[str] = settings.DATA_FOLDER,
    fresh: bool = False,
    progress: Callable[[RunProgress], None] | None = None,
    notice: Callable[[str], None] | None = None,
) -> Path:
    """Run the experiments of the paper and write them to a folder as a page, Markdown, PNG and CSV files.

    The page is updated after every case and video. Runs with the same settings, on the same machine and with the same
    version of this library are reused, so that an interrupted run can be resumed. Full and quick runs are kept apart.

    Parameters
    ----------
    quick
        Scaled-down cases and videos, in less than two minutes with the compiled core.
    cases
        Cases of the paper, 1 to 8; None for all.
    videos
        Names ("hall", "escalator", "trees", "blocks") and paths (see `lowsparse.video.read_video`); None for those of
        the paper that are in `data`, and the synthetic "blocks".
    methods
        Of "amanpgc", "manpgc", "rmc", "lmafit", "subgm" and "ladder"; None for all.
    data
        Folder with the videos known by name.
    fresh
        Ignore earlier runs.
    progress
        Called with a `RunProgress` before, during and after every run.
    notice
        Called with a sentence about everything that is left out.

    Returns the path of the page.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = reproduce(folder, quick=True, cases=[6], videos=[], methods=["amanpgc"])
    ...     path.name, path.stat().st_size > 10_000
    ('index.html', True)
    """
    numbers = sorted(set(settings.PRINTED_STEPS if cases is None else cases))
    command = _command(quick, {"case": cases, "video": videos, "method": methods}, Path(data))
    synthetic = [Case(number, quick) for number in numbers]
    results = Results(quick, command, machine(), _methods(methods))
    clips = _clips(videos, Path(data), quick, results)
    for sentence in [*results.left_out, *(f"{clip.title}: {loss}" for clip in clips for loss in clip.losses())]:
        if notice:
            notice(sentence)
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    return _Experiments(out, results, Store(out / RUNS, fresh), progress).run(synthetic, clips)


def _methods(methods: Sequence[str] | None) -> tuple[str, ...]:
    unknown = [method for method in methods or () if method not in settings.METHODS]
    if unknown:
        raise ValueError(f"unknown method {unknown[0]!r}: choose among {', '.join(settings.METHODS)}")
    return tuple(method for method in settings.METHODS if methods is None or method in methods)


def _clips(videos: Sequence[str | os.PathLike[str]] | None, data: Path, quick: bool, results: Results) -> list[Clip]:
    """Open the videos, so that errors are raised before anything is run."""
    if videos is not None:
        clips = [open_clip(video, data, quick) for video in dict.fromkeys(videos)]
        if len({clip.name for clip in clips}) < len(clips):
            raise ValueError("two videos have the same file name: rename one, or run them separately")
        return clips
    absent = [known for known in settings.VIDEOS.values() if known.file and not (data / known.file).is_file()]
    if absent:
        missing = "; ".join(f"{known.title} ({known.file})" for known in absent)
        results.left_out.append(f"Videos that are not available and left out: {missing}.")
    return [open_clip(name, data, quick) for name, known in settings.VIDEOS.items() if known not in absent]


def _command(quick: bool, chosen: Mapping[str, Sequence[object] | None], data: Path) -> str:
    """The command line that does the same, with paths reduced to their last part."""
    words = ["lowsparse", "reproduce", *(["--quick"] if quick else [])]
    for name, other in (("case", "video"), ("video", "synthetic")):
        if chosen[name] is not None and not chosen[name]:
            words += ["--only", other]
    for name, values in chosen.items():
        for value in values or ():
            words += [f"--{name}", Path(str(value)).name]
    words += ["--data", data.name] if data.name not in ("", settings.DATA_FOLDER) else []
    return shlex.join(words)


class _Experiments:
    """All runs, one after the other; the output files are updated in between."""

    def __init__(
        self, out: Path, results: Results, store: Store, progress: Callable[[RunProgress], None] | None
    ) -> None:
        self.out, self.results, self.store = out, results, store
        self.progress = progress or (lambda step: None)
        self.number = self.total = 0
        self.pictures: dict[str, Path] = {}
        self.drawn: dict[str, int] = {}  # number of runs in each picture
        self.incomplete_page = False  # whether the page on disk is marked as not complete

    def run(self, cases: list[Case], clips: list[Clip]) -> Path:
        """All cases, then all videos; the page is updated after each of them, or after all cases of a quick run."""
        results, quick = self.results, self.results.quick
        groups: list[list[Experiment]] = [[*cases]] if quick else [[case] for case in cases]
        groups += [[Scene(clip, share, quick) for share in settings.SHARES] for clip in clips]
        work = [[(one, one.jobs(results.methods, results.machine)) for one in group] for group in groups]
        self.total = sum(len(jobs) for group in work for _, jobs in group)
        for group in work:
            for experiment, jobs in group:
                self._run(experiment, jobs)
            if self.incomplete_page:
                self.write()
        results.complete = True
        return self.write()

    def _run(self, experiment: Experiment, jobs: list[MethodJob]) -> None:
        if isinstance(experiment, Case):
            self.results.cases.append(experiment)
        elif isinstance(experiment, Scene):
            self.results.scenes.append(experiment)
        for job in jobs:
            experiment.add(job, self._record(job))
            if self.incomplete_page:
                write_numbers(self.out, self.results)
        experiment.release()

    def _record(self, job: MethodJob) -> Record:
        self.number += 1
        where = (self.number, self.total, job.title)
        record = self.store.find(job)
        if record is not None:
            self.progress(RunProgress(*where, "kept"))
        else:
            if not self.incomplete_page:  # the page of an earlier run must not pass for this one
                self.incomplete_page = True
                self.store.folder.mkdir(parents=True, exist_ok=True)  # by which the command knows its own page
                self.write()
            self.progress(RunProgress(*where, "running"))
            found = job.run(lambda iteration, figure: self.progress(RunProgress(*where, "running", iteration, figure)))
            record = self.store.save(job, *found)
            self.progress(RunProgress(*where, "done"))
        return {**record, "description": job.tuning.description, "note": job.tuning.note}

    def write(self) -> Path:
        """Write all files but those of the runs; remove files of an earlier page that this one does not have."""
        results = self.results
        cases = [case for case in results.cases if case.runs]
        self._draw(SYNTHETIC, cases, lambda: figures.panels(cases))
        for name, scenes in results.videos.items():
            self._draw(name, scenes, partial(figures.backgrounds, scenes, self.store.folder))
        judged = claims.judge(results)
        write_csv(self.out / CLAIMS, [{"claim": c.text, "verdict": c.verdict, "reason": c.reason} for c in judged])
        written = {CLAIMS, *write_numbers(self.out, results), *(path.name for path in self.pictures.values())}
        panels = {name: path for name, path in self.pictures.items() if name == SYNTHETIC}
        write_markdown(self.out / TEXT, results, sections(results, judged, panels))
        write_page(self.out / PAGE, results, sections(results, judged, self.pictures))
        for name in self._possible_files() - written:
            (self.out / name).unlink(missing_ok=True)
        return self.out / PAGE

    def _draw(self, name: str, shown: Sequence[Experiment], draw: Callable[[], Figure]) -> None:
        """Draw a picture, unless it is there and has all runs."""
        runs = sum(len(records) for one in shown for records in one.runs.values())
        if runs == self.drawn.get(name, 0):
            return
        file = io.BytesIO()
        draw().savefig(file, format="png")
        self.pictures[name] = self.out / f"{name}.png"
        write(self.pictures[name], file.getvalue())
        self.drawn[name] = runs

    def _possible_files(self) -> set[str]:
        """The CSV and PNG files that only some run of this command can have written."""
        runs = self.store.folder.glob("*.json")
        own = {found[1] for path in runs if (found := re.match(USER_VIDEO, path.name))}
        return {CLAIMS, *NUMBERS, *(f"{name}.png" for name in (SYNTHETIC, *settings.VIDEOS, *own))}
