"""The video experiment of the paper: rank 2, 50 % or 10 % of the pixels, until L changes by at most 1 %."""

import hashlib
import math
import os
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..datasets import moving_blocks
from ..entries.observed import ObservedMatrix
from ..entries.pictures import Grey, levels
from ..linalg.lowrank import LowRank
from ..loop import Progress
from ..report.film import png
from ..video import TooLargeError, Video, metrics, read_video, sample_pixels
from . import settings
from .experiment import Experiment, fresh
from .jobs import Record, RunResult, Watch
from .settings import Effort, KnownVideo, Tuning

TRUE_BACKGROUND = "It is synthetic: results are compared with the true background of every frame."
MEDIAN_BACKGROUND = "The trusted background is the median of each pixel over all frames, all of them observed."
MAX_PSNR = 99.0  # of a perfect frame


@dataclass(frozen=True)
class Clip:
    """A video, and the background to compare with."""

    name: str  # in file names
    title: str
    video: Video
    trusted: Grey  # (T, H, W)
    known: KnownVideo | None = None
    masks: tuple[tuple[int, NDArray[np.bool_]], ...] = ()  # the true foreground of some frames
    truth_is_known: bool = False  # whether the trusted background is the true one, not the median

    @property
    def frames(self) -> Grey:
        """(T, H, W)."""
        return self.video.frames

    @cached_property
    def busiest(self) -> int:
        """The frame that differs most from the trusted background, which is shown."""
        return int(np.argmax(list(map(metrics.age, self.frames, self.trusted))))

    @cached_property
    def untouched(self) -> dict[str, float]:
        """The measures of the frames themselves, as a baseline."""
        return self.measure(self.frames)

    def measure(self, pictures: Iterable[NDArray[Any]]) -> dict[str, float]:
        """How far a picture for each frame is from the trusted background: the means over the frames."""
        return _mean(list(map(metrics.background_metrics, pictures, self.trusted)))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the frames."""
        return hashlib.sha256(self.frames.tobytes()).hexdigest()[:16]

    def losses(self) -> list[str]:
        """Sentences about frames that were left out."""
        every, skipped = self.video.every, self.video.skipped
        text = [f"One of {every} frames was used."] if every > 1 else []
        return text + ([f"{skipped} damaged frame{'s were' if skipped > 1 else ' was'} skipped."] if skipped else [])

    def describe(self) -> list[str]:
        """Sentences that describe the video."""
        T, H, W = self.frames.shape
        text = [f"{T} frames of {H} × {W} pixels: a matrix of {H * W} × {T}."]
        text += [self.known.relation[0]] if self.known and self.known.printed else []
        return [*text, *self.losses(), TRUE_BACKGROUND if self.truth_is_known else MEDIAN_BACKGROUND]


def open_clip(source: str | os.PathLike[str], data: Path, quick: bool) -> Clip:
    """One of the known videos by its name, or any video by its path."""
    name = os.fspath(source)
    known = settings.VIDEOS.get(name)
    if known is not None and not known.file:
        made = moving_blocks(**(settings.QUICK_BLOCKS if quick else settings.BLOCKS), random_state=settings.DATA_SEED)
        return Clip(name, known.title, Video(made.frames), made.background, known, truth_is_known=True)
    path = data / known.file if known else Path(source)
    shrink = settings.QUICK_SHRINK if quick else 1
    smaller = "choose a smaller video" if quick else "choose --quick, or a smaller video"
    try:
        video = read_video(path, shrink=shrink, max_bytes=settings.MAX_PIXELS, thin=True)
    except TooLargeError as error:
        raise ValueError(f"{error.what}: {smaller}") from error
    if video.every > 1 and len(video.frames) < settings.RANK:
        raise ValueError(f"{path} is too large, so that only one frame was kept: {smaller}")
    if quick and len(video.frames) > settings.QUICK_FRAMES:
        step = -(-len(video.frames) // settings.QUICK_FRAMES)
        video = Video(video.frames[::step], video.skipped, step * video.every)
    if min(video.frames.shape) < settings.RANK:
        raise ValueError(f"{path} is too small: {video!r}")
    trusted = np.broadcast_to(levels(np.median(video.frames, axis=0)), video.frames.shape)
    if known:
        return Clip(name, known.title, video, trusted, known, () if quick else _masks(path))
    stem = "".join(c if c.isascii() and c.isalnum() else "-" for c in path.stem)
    return Clip(f"own-{stem}", path.name, video, trusted)


def _masks(path: Path) -> tuple[tuple[int, NDArray[np.bool_]], ...]:
    """The true foreground masks in an .npz file, with the indices of their frames."""
    with np.load(path, allow_pickle=False) as arrays:
        if not {"gt", "gt_frame_id", "frame_id"} <= set(arrays.files):
            return ()
        indices = {frame: t for t, frame in enumerate(arrays["frame_id"].tolist())}
        masks = zip(arrays["gt_frame_id"].tolist(), arrays["gt"], strict=True)
        return tuple((indices[frame], mask > 127) for frame, mask in masks if frame in indices)


class Scene(Experiment):
    """A clip of which a share of the pixels is observed."""

    def __init__(self, clip: Clip, share: float, quick: bool = False) -> None:
        self.clip, self.share = clip, share
        self.title = f"{clip.title} ({share:.0%})"
        identity = {
            "video": clip.fingerprint,
            "shape": clip.frames.shape,
            "shown": clip.busiest,
            "share": share,
            "rank": settings.RANK,
            "seeds": [settings.PIXELS_SEED, settings.START_SEED],
        }
        name = f"{'quick-' if quick else ''}{clip.name}-{round(100 * share)}"
        tunings = partial(settings.video_tunings, pixels=clip.frames.size, quick=quick)
        super().__init__(name, f"{clip.title}, {share:.0%} of the pixels", settings.RANK, identity, tunings)

    @cached_property
    def M(self) -> ObservedMatrix:  # noqa: N802
        """The observed pixels."""
        rng = np.random.default_rng([settings.PIXELS_SEED, round(100 * self.share)])
        return sample_pixels(self.clip.frames, self.share, rng)

    def _options(self, method: str) -> dict[str, Any]:
        return {"max_iter": settings.VIDEO_MAX_ITER, "repeats": settings.REPEATS}

    def _run(self, method: str, tuning: Tuning, options: dict[str, Any], watch: Watch) -> RunResult:
        def callback(progress: Progress) -> None:
            watch(progress.iteration, progress["change"])

        if method != settings.OURS:
            _ = self.start  # before the clock
        seconds, cpu = [], []
        for _ in range(options["repeats"]):
            M = fresh(self.M)
            began = time.process_time()
            result, record = self._solve(M, method, tuning, callback, max_iter=options["max_iter"])
            cpu.append(time.process_time() - began)
            seconds.append(result.seconds)
        record |= {
            "iterations": result.n_iter,
            "seconds": statistics.median(seconds),
            "cpu": statistics.median(cpu),
            "measures": self._measures(result.L),
        }
        return record, png(np.dstack([levels(self._grey(result.L, self.clip.busiest))] * 3))

    def _grey(self, L: LowRank, t: int) -> NDArray[np.float64]:
        """Column t of L as a picture of grey levels."""
        return np.asarray(255 * np.clip(L.columns(t), 0, 1).reshape(self.clip.frames.shape[1:]), dtype=np.float64)

    def _measures(self, L: LowRank) -> dict[str, float]:
        """How far L is from the trusted background, and the F-measure where the foreground is known."""
        frames, masks = self.clip.frames, self.clip.masks
        found = self.clip.measure(self._grey(L, t) for t in range(len(frames)))
        if masks:
            far = [(np.abs(self._grey(L, t) - frames[t]) > metrics.THRESHOLD, mask) for t, mask in masks]
            found["f1"] = statistics.fmean(metrics.f1(*pair) for pair in far)
        return found

    @property
    def enough(self) -> float:
        """The PSNR of an acceptable picture: good, or hardly worse than AManPGC's."""
        return min([settings.GOOD, *(psnr(record) - settings.AS_GOOD for record in self.runs.get("amanpgc", []))])

    def _select(self, records: Sequence[Record]) -> Record:
        """The fastest whose picture is acceptable; if there is none, the one with the best picture."""
        usable = [record for record in records if psnr(record) >= self.enough]
        return min(usable, key=lambda record: float(record["seconds"])) if usable else max(records, key=psnr)

    def reached(self, method: str) -> Effort | None:
        """What the selected run of a method took; None if it was not run."""
        record = self.selected.get(method)
        return None if record is None else effort(record)

    def poor_quality(self, method: str) -> str:
        """The video and the PSNR of a method, if its picture is not acceptable."""
        found = psnr(self.selected[method])
        return f"{self.clip.title} ({found:.1f} dB)" if found < self.enough else ""

    def printed(self, method: str) -> Effort | None:
        """The numbers of the paper; None if it does not have them."""
        table = self.clip.known and settings.PRINTED_TABLES.get(self.clip.known.printed)
        return table[self.share].get(method) if table else None


def effort(record: Record) -> Effort:
    """What a run on a video took."""
    return Effort(record["iterations"], float(record["seconds"]))


def psnr(record: Record) -> float:
    """The PSNR of a run on a video."""
    return float(record["measures"]["psnr"])


def _mean(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each measure; PSNR is capped, as one perfect frame would make it infinite."""
    most = {"psnr": MAX_PSNR}
    return {name: statistics.fmean(min(row[name], most.get(name, math.inf)) for row in rows) for name in rows[0]}
