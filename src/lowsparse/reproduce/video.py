"""The video experiment of the paper: rank 2, 50 % or 10 % of the pixels, until L changes by at most 1 %."""

from __future__ import annotations

import hashlib
import io
import math
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..datasets import moving_blocks
from ..entries.observed import ObservedMatrix
from ..entries.pictures import Grey
from ..linalg.lowrank import LowRank
from ..solve import Progress
from ..support.files import write
from ..video import TooLargeError, Video, metrics, read_video, sample_pixels
from . import settings
from .experiment import Experiment, fresh
from .jobs import Record, Store, Watch
from .settings import KnownVideo, Tuning

__all__ = ["Clip", "Scene", "open_clip", "select_run"]

RELATIONS = {  # to the videos of the paper
    "yes": "The paper's “{name}” has {size}.",
    "probably": "It is probably the paper's “{name}” ({size}).",
    "no": "It stands in for “{name}” ({size}), which is not available: the paper's numbers are about another video.",
}
TRUE_BACKGROUND = "It is synthetic: results are compared with the true background of every frame."
MEDIAN_BACKGROUND = "The trusted background is the median of each pixel over all frames, all of them observed."
MAX_PSNR = 99.0  # of a perfect frame


@dataclass(frozen=True)
class Clip:
    """A video, and the background to compare with."""

    name: str  # in file names
    title: str
    video: Video
    trusted: Grey  # (H, W), the same for all frames, or (T, H, W)
    known: KnownVideo | None = None
    masks: tuple[tuple[int, NDArray[np.bool_]], ...] = ()  # the true foreground of some frames

    @property
    def frames(self) -> Grey:
        """(T, H, W)."""
        return self.video.frames

    @property
    def truth_is_known(self) -> bool:
        """Whether the trusted background is the true one, not the median."""
        return self.trusted.ndim == 3

    def background(self, t: int) -> Grey:
        """The trusted background of frame t."""
        return self.trusted[t] if self.truth_is_known else self.trusted

    @cached_property
    def busiest(self) -> int:
        """The frame that differs most from the trusted background, which is shown."""
        differences = [metrics.age(frame, self.background(t)) for t, frame in enumerate(self.frames)]
        return int(np.argmax(differences))

    @cached_property
    def untouched(self) -> dict[str, float]:
        """The measures of the frames themselves, as a baseline."""
        return _mean([metrics.background_metrics(frame, self.background(t)) for t, frame in enumerate(self.frames)])

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
        if self.known and self.known.printed:
            size = "{} frames of {} × {}".format(*self.known.paper_shape)
            text.append(RELATIONS[self.known.same].format(name=self.known.paper_name, size=size))
        text += self.losses()
        return [*text, TRUE_BACKGROUND if self.truth_is_known else MEDIAN_BACKGROUND]


def open_clip(source: str | os.PathLike[str], data: Path, quick: bool) -> Clip:
    """One of the known videos by its name, or any video by its path."""
    known = settings.VIDEOS.get(os.fspath(source))
    name = os.fspath(source)
    if known is not None and not known.file:
        made = moving_blocks(**(settings.QUICK_BLOCKS if quick else settings.BLOCKS), random_state=settings.DATA_SEED)
        return Clip(name, known.title, Video(made.frames), made.background, known)
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
    if min(video.frames.shape[0], *video.frames.shape[1:]) < settings.RANK:
        raise ValueError(f"{path} is too small: {video!r}")
    trusted = np.rint(_median(video.frames)).astype(np.uint8)
    if known:
        masks = () if quick else _masks(path)
        return Clip(name, known.title, video, trusted, known, masks)
    stem = "".join(c if c.isascii() and c.isalnum() else "-" for c in path.stem)
    return Clip(f"own-{stem}", path.name, video, trusted)


def _median(frames: Grey) -> NDArray[np.float64]:
    """The median of each pixel over the frames, a few rows at a time."""
    return np.concatenate([np.median(frames[:, y : y + 16], axis=0) for y in range(0, frames.shape[1], 16)])


def _masks(path: Path) -> tuple[tuple[int, NDArray[np.bool_]], ...]:
    """The true foreground masks in an .npz file, with the indices of their frames."""
    with np.load(path, allow_pickle=False) as arrays:
        if not {"gt", "gt_frame_id", "frame_id"} <= set(arrays.files):
            return ()
        places = {int(frame): t for t, frame in enumerate(arrays["frame_id"])}
        return tuple(
            (places[int(frame)], mask > 127)
            for frame, mask in zip(arrays["gt_frame_id"], arrays["gt"], strict=True)
            if int(frame) in places
        )


class Scene(Experiment):
    """A clip of which a share of the pixels is observed."""

    picture = True
    schema = {  # noqa: RUF012
        "iterations": int,
        "seconds": float,
        "cpu": float,
        "measures": {"age": float, "peps": float, "pceps": float, "psnr": float},
        "files": list,
    }

    def __init__(self, clip: Clip, share: float, store: Store, quick: bool = False) -> None:
        super().__init__(settings.RANK, quick)
        self.clip, self.share, self.store = clip, share, store
        self.name = f"{clip.name}-{round(100 * share)}"
        self.label = f"{clip.title}, {share:.0%} of the pixels"
        self.identity = {
            "video": clip.fingerprint,
            "shape": clip.frames.shape,
            "shown": clip.busiest,
            "share": share,
            "rank": settings.RANK,
            "seeds": [settings.PIXELS_SEED, settings.START_SEED],
        }

    @cached_property
    def M(self) -> ObservedMatrix:  # type: ignore[override]  # noqa: N802
        """The observed pixels."""
        seed = np.random.default_rng([settings.PIXELS_SEED, round(100 * self.share)])
        return sample_pixels(self.clip.frames, self.share, seed)

    def _tunings(self, method: str) -> list[Tuning]:
        return settings.video_tunings(method, self.clip.frames.size, self.quick)

    def _options(self, method: str) -> dict[str, Any]:
        return {"max_iter": settings.VIDEO_MAX_ITER, "repeats": settings.REPEATS}

    def _run(self, method: str, tuning: Tuning, name: str, options: dict[str, Any], watch: Watch) -> Record:
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
        shown = self.store.path(name, ".png")
        write(shown, _png(_grey(result.L, self.clip, self.clip.busiest)))
        return {
            **record,
            "iterations": result.n_iter,
            "seconds": statistics.median(seconds),
            "cpu": statistics.median(cpu),
            "measures": measures(result.L, self.clip),
            "files": [shown.name],
        }


def _grey(L: LowRank, clip: Clip, t: int) -> NDArray[np.float64]:
    """Column t of L as a picture of grey levels."""
    return np.asarray(255 * np.clip(L.columns(t), 0, 1).reshape(clip.frames.shape[1:]), dtype=np.float64)


def measures(L: LowRank, clip: Clip) -> dict[str, float]:
    """How far L is from the trusted background, frame by frame, and the F-measure where the foreground is known."""
    found = _mean([metrics.background_metrics(_grey(L, clip, t), clip.background(t)) for t in range(len(clip.frames))])
    if clip.masks:
        scores = [
            metrics.f1(np.abs(_grey(L, clip, t) - clip.frames[t]) > metrics.THRESHOLD, mask) for t, mask in clip.masks
        ]
        found["f1"] = statistics.fmean(scores)
    return found


def _mean(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each measure; PSNR is capped, as one perfect frame would make it infinite."""
    most = {"psnr": MAX_PSNR}
    return {name: statistics.fmean(min(row[name], most.get(name, math.inf)) for row in rows) for name in rows[0]}


def _png(grey: NDArray[Any]) -> bytes:
    """Grey levels from 0 to 255 as a PNG file."""
    from matplotlib import image

    file = io.BytesIO()
    levels = np.rint(grey).astype(np.uint8)
    image.imsave(file, np.dstack([levels] * 3), format="png")
    return file.getvalue()


def select_run(records: Sequence[Record], enough: float) -> Record:
    """Of runs with different parameters, the fastest whose picture has at least the PSNR `enough`.

    If there is none, the one with the best picture.
    """
    usable = [record for record in records if record["measures"]["psnr"] >= enough]
    if usable:
        return min(usable, key=lambda record: float(record["seconds"]))
    return max(records, key=lambda record: float(record["measures"]["psnr"]))
