"""A video in, a folder with its background, its foreground and a report out: what `video` and `demo` do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..report import Filmstrip, Run, video_report
from ..support.format import counted, duration, percent
from ..video.foreground import Separated
from ..video.pictures import Picture
from ..video.separation import FILMS, STILL, Separation, separate_video
from .failure import advise
from .folder import output_folder
from .output import Voice
from .progress import Step, step
from .signals import ending
from .text import columns, paragraph, width

__all__ = ["NAMES", "Job", "process"]

REPORT = "report.html"
NAMES = (STILL, *FILMS, REPORT)  # what is written
WORDS = {
    STILL: "the background, as it usually is",
    "background.mp4": "the background, frame by frame",
    "mask.mp4": "what is in front, in white",
    "cutout.mp4": "what is in front, on black",
    REPORT: "the report: open it in a browser",
}
SCORES = {
    "masks": "Masks compared",
    "precision": "Precision",
    "recall": "Recall",
    "f1": "F1",
    "best_f1": "F1 at the best threshold",
    "best_threshold": "Best threshold",
    "age": "AGE, mean error in grey levels",
    "peps": "pEPs, share of pixels in error",
    "pceps": "pCEPs, share of pixels in error together",
    "psnr": "PSNR, in dB",
    "ms_ssim": "MS-SSIM",
    "cqm": "CQM, in dB",
}
SHOWN = {  # of the settings
    "region": "Region (x, y, width, height)",
    "start": "First frame",
    "stop": "Ended before frame",
    "every": "One of so many frames",
    "shrink": "Shrunken by",
    "threshold": "Threshold",
    "clean": "Cleaned within (pixels)",
    "random_state": "Seed",
}
TRIVIAL = {"start": 0, "every": 1, "shrink": 1}
WIDTH = 480  # pixels of a picture in the report, at most


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to do, and how to speak of it."""

    source: str
    out: Path
    name: str  # of the video, for people
    command: str  # that does it again
    stream: bool = False
    force: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)  # of `separate_video`, by their names there
    notes: tuple[str, ...] = ()


def process(job: Job, voice: Voice) -> None:
    """Do it, and tell the result."""
    asked = threading.Event()
    again = "nothing was written: give the same command again"
    with (
        output_folder(job.out, NAMES, force=job.force) as folder,
        advise(stopped=again, memory="choose --shrink 2 or --region, or --stream"),
        ending(asked) if job.stream else nullcontext(),
    ):
        moments = _Moments()
        with _stages(voice) as told:
            done = separate_video(
                job.source,
                folder,
                stream=job.stream,
                until=asked,
                told=moments.expecting(told),
                watch=moments.add,
                **job.settings,
            )
        notes = [*_notes(done, asked.is_set()), *job.notes]
        _report(folder / REPORT, job, done, moments.film, notes)
    voice.result(_facts(job, done), text=_text(job, done, notes), brief=str(job.out / REPORT))


# ---------------------------------------------------------------------- while it runs

Told = Callable[[str, int, int | None], None]


@contextmanager
def _stages(voice: Voice) -> Iterator[Told]:
    """A callback that shows each stage as a step of its own."""
    units = {"reading": "frames", "writing": "frames", "solving": "tiles"}
    now: list[tuple[str, Any, Step]] = []

    def close(*error: Any) -> None:
        if now:
            now.pop()[1].__exit__(*(error or (None, None, None)))

    def tell(stage: str, done: int, of: int | None) -> None:
        if not now or now[0][0] != stage:
            close()
            shown = step(voice, stage, total=of, unit=units[stage])
            now.append((stage, shown, shown.__enter__()))
        now[0][2].reach(done)

    try:
        yield tell
    except BaseException as error:
        close(type(error), error, error.__traceback__)
        raise
    close()


class _Moments:
    """The pictures of the report, made while the frames pass by."""

    def __init__(self) -> None:
        self.film, self.frames, self.expected = Filmstrip(width=WIDTH), 0, 0

    def expecting(self, told: Told) -> Told:
        """Learn how many frames there are while they are read, and pass it on."""

        def tell(stage: str, done: int, of: int | None) -> None:
            if stage == "reading":
                self.expected = done
            told(stage, done, of)

        return tell

    def add(self, one: Separated) -> None:
        """The next frame."""
        if not self.frames and self.expected:
            self.film = Filmstrip(expected=self.expected, width=WIDTH)
        if self.film.wants(self.frames):
            self.film.add(self.frames, *map(_small, (one.frame.picture, one.background, one.cutout())))
        self.frames += 1


def _small(picture: Picture) -> NDArray[np.uint8]:
    H, W = picture.shape
    small = picture.shrunken(min(-(-W // WIDTH), H))
    return small.luma if small.chroma is None else small.rgb()


# ---------------------------------------------------------------------- what is told


def _facts(job: Job, done: Separation) -> dict[str, Any]:
    """For machines."""
    result = done.background.result
    return {
        "source": job.name,
        "out": job.out,
        "report": job.out / REPORT,
        "files": {name: job.out / name for name in NAMES},
        "frames": len(done),
        "skipped": done.skipped,
        "height": done.shape[0],
        "width": done.shape[1],
        "colour": done.colour,
        "rate": float(done.rate),
        "rank": done.background.rank,
        "observe": done.observe,
        "looks": done.background.looks,
        "in_front": {"median": _median(done), "most": done.shares.max(), "at": done.numbers[_peak(done)]},
        "scenes": done.scenes,
        "scores": done.scores,
        "solve": {"method": result.method, "backend": result.backend, "status": result.status},
        "seconds": done.seconds,
    }


def _text(job: Job, done: Separation, notes: list[str]) -> str:
    looked = f"looked at {percent(done.observe)} of the pixels of each frame"
    often = "" if job.stream else f", {done.background.looks} times at each"
    said = [f"{job.name}: {_size(done)}", f"{looked}{often}; {_in_front(done)}", *notes]
    lines = [paragraph(line, width()) for line in said]
    if done.scores:
        lines += ["", columns([list(pair) for pair in _scores(done).items()], left=(0,))]
    listed = [[str(job.out / name), words] for name, words in WORDS.items()]
    return "\n".join([*lines, "", columns(listed, left=(0, 1), fit=width())])


def _report(path: Path, job: Job, done: Separation, film: Filmstrip, notes: list[str]) -> None:
    told = [name for name, value in job.settings.items() if value not in (None, TRIVIAL.get(name))]
    shown = {
        "Source": job.name,
        "Rank": done.background.rank,
        "Pixels looked at": f"{percent(done.observe)} of each frame",
        "Looks at each pixel": done.background.looks,
        "Background": "follows the scene" if job.stream else "learnt from all frames",
        **{words: job.settings[name] for name, words in SHOWN.items() if name in told},
        "Method": done.background.result.method,
        "Backend": done.background.result.backend,
    }
    facts = [
        (percent(done.observe), "of the pixels were looked at"),
        (f"{len(done):,}", f"frames of {done.shape[1]} × {done.shape[0]} pixels, in {_colour(done)}"),
        (percent(_median(done)), "of the picture is in front, as a rule"),
        (duration(sum(done.seconds.values())), "from file to file"),
    ]
    if "f1" in done.scores:
        facts.append((f"{done.scores['f1']:.3f}", f"is the F1 score on {_masks(done)}"))
    run = Run(
        title=job.name,
        lead=f"The background, and what is in front of it, from {_share(done)} of the pixels of each frame.",
        facts=facts,
        command=job.command,
        settings=shown,
        timings={name.capitalize(): seconds for name, seconds in done.seconds.items()},
        trace=done.background.result.trace,
        diagnosis=done.background.result.diagnostics,
        notes=[note[:1].upper() + note[1:] + "." for note in notes],
    )
    video_report(path, run, film, density=done.shares, fps=float(done.rate), scores=_scores(done))


def _notes(done: Separation, ended: bool) -> list[str]:
    """What is unusual."""
    said = []
    if ended:
        said.append(f"the stream was ended after {len(done):,} frames; what had come until then was kept")
    if done.skipped:
        said.append(f"{done.skipped:,} damaged frame{'s were' if done.skipped > 1 else ' was'} skipped")
    if len(done.scenes) > 1:
        said.append(f"{len(done.scenes)} scenes, beginning with the frames {', '.join(map(str, done.scenes))}")
    if done.scores.get("masks") == 0:
        said.append(
            "none of the masks belongs to a frame that was read: the last number in their names is that of the frame, "
            "counted from 0 in a video file"
        )
    return said


def _scores(done: Separation) -> dict[str, str]:
    """By name, as they are told."""
    return {SCORES[name]: f"{value:.0f}" if name == "masks" else f"{value:.4g}" for name, value in done.scores.items()}


def _share(done: Separation) -> str:
    return "all" if done.observe == 1 else f"a random {percent(done.observe)}"


def _size(done: Separation) -> str:
    seconds = duration(len(done) / float(done.rate))
    return f"{len(done):,} frames of {done.shape[1]} x {done.shape[0]} pixels in {_colour(done)}, {seconds}"


def _in_front(done: Separation) -> str:
    k = _peak(done)
    after = duration(float(done.times[k]))
    return f"in front: {percent(_median(done))} as a rule, at most {percent(float(done.shares[k]))} (after {after})"


def _colour(done: Separation) -> str:
    return "colour" if done.colour else "grey"


def _masks(done: Separation) -> str:
    return counted(int(done.scores["masks"]), "mask")


def _median(done: Separation) -> float:
    return float(np.median(done.shares))


def _peak(done: Separation) -> int:
    return int(np.argmax(done.shares))
