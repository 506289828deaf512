"""What `lowsparse video` and `lowsparse demo` do: separate a video into background and foreground, with a report."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..entries.pictures import Picture
from ..report.activity import Activity, activity_card
from ..report.film import Filmstrip, pillow
from ..report.page import Run
from ..report.player import video_report
from ..support.format import duration, percent, pluralize
from ..support.memory import share_heap
from ..video.background import DRIFT, Background
from ..video.film import reason_to_keep
from ..video.fitting import OnProgress
from ..video.foreground import Separated
from ..video.separation import STILL, TRACKS, Separation, separate_video
from ..video.signs import Signs
from ..video.tracking import ABSORB
from ..video.views import FILMS, FORMATS, cutout, parse_film
from .failure import advise, fail
from .folder import NOTHING, output_folder
from .output import Output, repeat_command
from .progress import Meter, show_progress
from .reliability import reliability
from .signals import set_on_signal
from .text import columns, paragraph, width

REPORT = "report.html"
GENERATOR, HEAD = b'name="generator" content="lowsparse', 2000  # what the first bytes of our reports hold
VIEWS = {  # that may be filmed
    "mask": "the foreground, in white",
    "cutout": "the foreground, on grey",
    "overlay": "the frames, with the foreground in red",
    "background": "the background, frame by frame",
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
    "pceps": "pCEPs, share of clustered pixels in error",
    "psnr": "PSNR, in dB",
    "ms_ssim": "MS-SSIM",
    "cqm": "CQM, in dB",
}
SETTINGS = {  # shown in the report, if they are not the default
    "absorb": "Absorbed after (seconds)",
    "region": "Region (x, y, width, height)",
    "start": "First frame",
    "stop": "Ended before frame",
    "every": "Every n-th frame",
    "shrink": "Shrunk by",
    "fps": "Frames per second",
    "threshold": "Threshold",
    "clean": "Cleaned within (pixels)",
    "stabilise": "Films without the shaking of the camera",
    "random_state": "Seed",
}
DEFAULTS = {"absorb": ABSORB, "start": 0, "every": 1, "shrink": 1, "stabilise": False}
WIDTH = 480  # pixels of a picture in the report, at most

UNITS = {"reading": "frames", "writing": "frames", "solving": "tiles"}


@dataclass(frozen=True, kw_only=True)
class VideoJob:
    """A video to separate, where to write, and what to show in the report."""

    source: str
    out: Path
    name: str  # of the video, for the user
    stream: bool = False
    force: bool = False
    settings: Mapping[str, Any]  # of `separate_video`
    notes: tuple[str, ...] = ()

    @property
    def outputs(self) -> dict[str, str]:
        """The files and folders that are written, and what they are."""
        films = {file: VIEWS[view] for view, file in map(parse_film, self.settings.get("films", FILMS))}
        tracks = {TRACKS[0]: "boxes and tracks of objects, as a table", TRACKS[1]: "the same in the format of COCO"}
        return {
            STILL: "the median background",
            **{name: text if Path(name).suffix else f"{text}: pictures" for name, text in films.items()},
            **(tracks if self.settings.get("tracks") else {}),
            REPORT: "the report: open it in a browser",
        }

    @property
    def pictures(self) -> list[str]:
        """The folders among them, of pictures."""
        return [name for name in self.outputs if not Path(name).suffix]

    @property
    def stale(self) -> list[str]:
        """Films and tracks of an earlier run, beside its report, which this run replaces and was not asked to write.

        What is read now is none of them.
        """
        report = self.out / REPORT
        if not self.force or not report.is_file() or GENERATOR not in report.read_bytes()[:HEAD]:
            return []
        read = [Path(one).resolve() for one in (self.source, self.settings.get("truth")) if one is not None]
        films = [view + ending for view in VIEWS for ending in FORMATS.values()]
        found = [name for name in (*films, *TRACKS) if name not in self.outputs and self._is_ours(self.out / name)]
        return [name for name in found if not any(one.is_relative_to((self.out / name).resolve()) for one in read)]

    @staticmethod
    def _is_ours(path: Path) -> bool:
        """Whether a path is a film, or a folder of nothing but our pictures."""
        return path.is_file() if path.suffix else path.is_dir() and reason_to_keep(path) is None


def process_video(job: VideoJob, output: Output) -> None:
    """Separate the video, write the report and print the result."""
    share_heap()  # decoder, learner and encoders are threads
    end = threading.Event()
    for reason in filter(None, (reason_to_keep(job.out / name) for name in job.pictures)):
        fail(reason)
    files = [name for name in job.outputs if name not in job.pictures]
    stopped, stale = f"{NOTHING}: run the same command again", job.stale
    with (
        output_folder(job.out, files, pictures=job.pictures, stale=stale, force=job.force, stopped=stopped) as folder,
        advise(memory="choose --shrink 2 or --region, or --stream"),
        set_on_signal(end) if job.stream else nullcontext(),
    ):
        with _show_stages(output) as show:
            pictures = _ReportPictures(show)
            separate = partial(separate_video, on_progress=pictures.on_progress, watch=pictures.add)
            done = separate(job.source, folder, stream=job.stream, until=end, **job.settings)
        removed = [f"removed {', '.join(stale)}, of an earlier run"] if stale else []
        notes = [*_notes(job, done, end.is_set()), *job.notes, *removed]
        _write_report(folder / REPORT, job, done, pictures, notes)
    output.result(_facts(job, done), text=_text(job, done, notes), brief=str(job.out / REPORT))


# ---------------------------------------------------------------------- while it runs


@contextmanager
def _show_stages(output: Output) -> Iterator[OnProgress]:
    """A callback that shows the progress of one stage after the other."""
    meters: dict[str, Meter] = {}
    with ExitStack() as stack:

        def show(stage: str, done: int, total: int | None) -> None:
            if stage not in meters:
                stack.close()  # the previous stage
                meters.clear()
                meters[stage] = stack.enter_context(show_progress(output, stage, total=total, unit=UNITS[stage]))
            meters[stage].reach(done)

        yield show


class _ReportPictures:
    """The pictures of the report, made while the frames are processed."""

    def __init__(self, show: OnProgress) -> None:
        self.film, self.frames, self.show = Filmstrip(width=WIDTH), 0, show
        self.activity = Activity()

    def on_progress(self, stage: str, done: int, total: int | None) -> None:
        """Count the frames while they are read, and show the progress."""
        if stage == "reading" and not self.frames:
            self.film = Filmstrip(expected=done, width=WIDTH)
        self.show(stage, done, total)

    def add(self, one: Separated) -> None:
        """The next frame."""
        if self.film.wants(self.frames):
            self.film.add(self.frames, *map(_small, (one.frame.picture, one.background, cutout(one))))
        self.activity.add(one.mask)
        self.frames += 1


def _small(picture: Picture) -> NDArray[np.uint8]:
    """The picture in grey or in colour, reduced by a whole factor to a width of the report."""
    H, W = picture.shape
    factor = min(-(-W // WIDTH), H)
    image = pillow()
    luma = image.fromarray(picture.luma).reduce(factor)
    if picture.chroma is None:
        return np.asarray(luma)
    planes = [image.fromarray(plane) for plane in picture.chroma]
    halves = max(factor // 2, 1) if picture.halved else factor
    chroma = [plane.reduce(halves).resize(luma.size, image.Resampling.BOX) for plane in planes]
    return np.asarray(image.merge("YCbCr", (luma, *chroma)).convert("RGB"))


# ---------------------------------------------------------------------- results


def _facts(job: VideoJob, done: Separation) -> dict[str, Any]:
    result, peak = done.background.result, int(np.argmax(done.shares))
    return {
        "source": job.name,
        "out": job.out,
        "report": job.out / REPORT,
        "files": {name: job.out / name for name in job.outputs},
        "frames": len(done),
        "skipped": done.skipped,
        "height": done.shape[0],
        "width": done.shape[1],
        "colour": done.colour,
        "rate": float(done.rate),
        "rank": done.background.rank,
        "observe": done.observe,
        "samples_per_pixel": done.background.n_samples,
        "in_front": {"median": np.median(done.shares), "most": done.shares[peak], "at": done.numbers[peak]},
        "scenes": done.scenes,
        "tracks": None if done.tracks is None else len(np.unique(done.tracks.track)),
        "camera": {
            "shakes": done.background.registration is not None,
            "lost": done.background.lost,
            "drift": done.background.drift,
        },
        "scores": done.scores,
        "solve": {"method": result.method, "backend": result.backend, "status": result.status},
        "seconds": done.seconds,
    }


def _text(job: VideoJob, done: Separation, notes: list[str]) -> str:
    length = duration(len(done) / float(done.rate))
    peak = int(np.argmax(done.shares))
    median, most, after = percent(np.median(done.shares)), percent(done.shares[peak]), duration(float(done.times[peak]))
    sampled = "" if job.stream else f", {done.background.n_samples} samples per pixel"
    lines = [
        f"{job.name}: {len(done):,} frames of {done.shape[1]} x {done.shape[0]} pixels in {_colour(done)}, {length}",
        f"used {percent(done.observe)} of the pixels of each frame{sampled}; foreground: median {median}, "
        f"at most {most} (after {after})",
        *notes,
    ]
    lines = [paragraph(line, width()) for line in lines]
    if done.scores:
        lines += ["", columns([list(pair) for pair in _scores(done).items()], left=(0,))]
    listed = [[str(job.out / name), description] for name, description in job.outputs.items()]
    return "\n".join([*lines, "", columns(listed, left=(0, 1), fit=width())])


def _write_report(path: Path, job: VideoJob, done: Separation, pictures: _ReportPictures, notes: list[str]) -> None:
    changed = [name for name, value in job.settings.items() if value not in (None, DEFAULTS.get(name))]
    settings = {
        "Source": job.name,
        "Rank": done.background.rank,
        "Pixels used": f"{percent(done.observe)} of each frame",
        "Samples per pixel": done.background.n_samples,
        "Background": "follows the scene" if job.stream else "learned from all frames",
        **{label: job.settings[name] for name, label in SETTINGS.items() if name in changed},
        "Method": done.background.result.method,
        "Backend": done.background.result.backend,
    }
    facts = [
        (percent(done.observe), "of the pixels were used"),
        (f"{len(done):,}", f"frames of {done.shape[1]} × {done.shape[0]} pixels, in {_colour(done)}"),
        (percent(np.median(done.shares)), "of the picture is foreground (median)"),
        (duration(sum(done.seconds.values())), "in total"),
    ]
    if "f1" in done.scores:
        masks = pluralize(int(done.scores["masks"]), "mask")
        facts.append((f"{done.scores['f1']:.3f}", f"is the F1 score on {masks}"))
    share = "all" if done.observe == 1 else f"a random {percent(done.observe)}"
    run = Run(
        title=job.name,
        lead=f"Background and foreground, from {share} of the pixels of each frame.",
        facts=facts,
        command=repeat_command(),
        settings=settings,
        timings={name.capitalize(): seconds for name, seconds in done.seconds.items()},
        trace=done.background.result.trace,
        remarks=[] if done.background.moves else reliability(done.background),
        notes=[note[:1].upper() + note[1:] + "." for note in notes],
    )
    pictures.film.stretch(float(done.pixel_aspect))
    cards = [activity_card(pictures.activity, _small(done.background.still))]
    fps = float(done.rate)
    video_report(path, run, pictures.film, density=done.shares, fps=fps, scores=_scores(done), cards=cards)


def _notes(job: VideoJob, done: Separation, ended: bool) -> list[str]:
    """What the user should know of this run."""
    notes = []
    asked = job.settings.get("rank")
    if asked is None and done.background.rank > 1:
        notes.append(
            f"lights are switched in a part of the picture: the rank is {done.background.rank}, to follow them"
        )
    if done.background.rank < (asked or 1):
        notes.append("only the brightness of the light changes, and things that stand still: the rank is 1")
    if done.background.moves:
        notes.append(_moving_camera(done.background, job.stream))
    elif done.background.registration is not None:
        steady = "" if job.settings.get("stabilise") else "; --stabilise gives steady films"
        notes.append(f"the camera shakes: frames were aligned before they were compared{steady}")
    if not done.background.moves and job.settings.get("clean", 1):
        notes += _light(done.background.signs)
    if ended:
        notes.append(f"the stream was ended after {len(done):,} frames; the results so far were kept")
    if done.skipped:
        notes.append(f"{done.skipped:,} damaged frame{'s were' if done.skipped > 1 else ' was'} skipped")
    if len(done.scenes) > 1:
        notes.append(f"{len(done.scenes)} scenes, starting at frames {', '.join(map(str, done.scenes))}")
    if done.scores.get("masks") == 0:
        notes.append(
            "none of the masks belongs to a frame that was read: the last number in their names must be that of the "
            "frame, counted from 0 in a video file"
        )
    return notes


def _light(signs: Signs) -> list[str]:
    """What is said of shadows and patches of light."""
    has_shadows = signs.has_shadows or signs.shadow_factor is not None
    kinds = {"shadows": has_shadows, "patches of light": signs.has_patches}
    found = " and ".join(kind for kind, there in kinds.items() if there)
    return [f"{found} were found, and left out where the background is seen in them; --clean 0 keeps them"] * bool(
        found
    )


def _moving_camera(background: Background, stream: bool) -> str:
    """What is said of a video in which the camera moves, other than by shaking."""
    what = (
        f"{percent(background.lost)} of the frames do not show this background: the camera moves, or there are several "
        "scenes"
    )
    if background.drift >= DRIFT:
        what = (
            f"the camera moves, by {background.drift:.0f} pixels or more, so that masks are wrong at edges and borders"
        )
    scenes = "" if stream else ", or follow scenes with --stream"
    return f"{what}; hold it still, choose a part with --start and --stop{scenes}"


def _scores(done: Separation) -> dict[str, str]:
    return {SCORES[name]: f"{value:.0f}" if name == "masks" else f"{value:.4g}" for name, value in done.scores.items()}


def _colour(done: Separation) -> str:
    return "colour" if done.colour else "grey"
