"""The paper's video experiment: rank 2, half or a tenth of the pixels, until L changes by at most one percent."""

from __future__ import annotations

import hashlib
import io
import math
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..datasets import moving_blocks
from ..linalg.lowrank import LowRank
from ..solve import Progress, solve
from ..support.files import write
from ..video import TooLargeError, Video, metrics, read_video, sample_pixels
from ..video.pictures import Grey
from . import settings
from .jobs import Job, Record, Store, Watch
from .settings import KnownVideo, Tuning
from .synthetic import fresh, numbered, shortened, timed_start

__all__ = ["Clip", "Scene", "chosen", "open_clip", "picture"]

NEEDS: dict[str, Any] = {
    "method": str,
    "entries": int,
    "status": str,
    "start_seconds": float,
    "shortened": int,
    "iterations": int,
    "seconds": float,
    "cpu": float,
    "measures": {"age": float, "peps": float, "pceps": float, "psnr": float},
    "files": list,
}
MOST_DECIBELS = 99.0  # of a perfect frame


@dataclass(frozen=True)
class Clip:
    """A video and what its background is compared with."""

    name: str  # of files
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
        """Whether the trusted background is the true one, and not the median."""
        return self.trusted.ndim == 3

    def background(self, t: int) -> Grey:
        """The trusted one behind frame t."""
        return self.trusted[t] if self.truth_is_known else self.trusted

    @cached_property
    def busiest(self) -> int:
        """The frame that differs most from the trusted background: the one that is shown."""
        differences = [metrics.age(frame, self.background(t)) for t, frame in enumerate(self.frames)]
        return int(np.argmax(differences))

    @cached_property
    def untouched(self) -> dict[str, float]:
        """The measures of the frames themselves: what a method has to improve on."""
        return _mean([metrics.background_metrics(frame, self.background(t)) for t, frame in enumerate(self.frames)])

    @cached_property
    def fingerprint(self) -> str:
        """Of the frames."""
        return hashlib.sha256(self.frames.tobytes()).hexdigest()[:16]

    def losses(self) -> list[str]:
        """Sentences about the frames that are not in it."""
        every, skipped = self.video.every, self.video.skipped
        said = [f"One of {every} frames was taken."] if every > 1 else []
        return said + ([f"{skipped} damaged frame{'s were' if skipped > 1 else ' was'} skipped."] if skipped else [])

    def describe(self) -> list[str]:
        """Sentences about what it is."""
        T, H, W = self.frames.shape
        said = [f"{T} frames of {H} × {W} pixels: a matrix of {H * W} × {T}."]
        if self.known and self.known.printed:
            count, height, width = self.known.paper_shape
            if self.known.same == "no":
                said.append(
                    f"It stands in for “{self.known.paper_name}” ({count} frames of {height} × {width}), which is not "
                    "at hand: the paper's figures beside ours are about another video."
                )
            elif self.known.same == "probably":
                said.append(
                    f"It is probably the paper's “{self.known.paper_name}” ({count} frames of {height} × {width})."
                )
            else:
                said.append(f"The paper's “{self.known.paper_name}” has {count} frames of {height} × {width}.")
        said += self.losses()
        if self.truth_is_known:
            said.append("It is made up, and the background behind every frame is known: that is what counts.")
        else:
            said.append("The trusted background is the median of each pixel over all frames, all of them observed.")
        return said


def open_clip(source: str | os.PathLike[str], data: Path, quick: bool) -> Clip:
    """One of the known videos by its name, or any video by its path.

    >>> clip = open_clip("blocks", Path("."), quick=True)
    >>> clip.frames.shape, clip.truth_is_known
    ((80, 48, 64), True)
    """
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
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in path.stem)
    return Clip(f"own-{plain}", path.name, video, trusted)


def _median(frames: Grey) -> NDArray[np.float64]:
    """Of each pixel over the frames, some rows at a time."""
    return np.concatenate([np.median(frames[:, y : y + 16], axis=0) for y in range(0, frames.shape[1], 16)])


def _masks(path: Path) -> tuple[tuple[int, NDArray[np.bool_]], ...]:
    """The true foreground masks in an .npz file, with the places of their frames."""
    with np.load(path, allow_pickle=False) as arrays:
        if not {"gt", "gt_frame_id", "frame_id"} <= set(arrays.files):
            return ()
        places = {int(frame): t for t, frame in enumerate(arrays["frame_id"])}
        return tuple(
            (places[int(frame)], mask > 127)
            for frame, mask in zip(arrays["gt_frame_id"], arrays["gt"], strict=True)
            if int(frame) in places
        )


class Scene:
    """A clip of which a share of the pixels is observed: the start all methods share, and the runs."""

    def __init__(self, clip: Clip, share: float, store: Store, quick: bool = False) -> None:
        self.clip, self.share, self.store, self.quick = clip, share, store, quick

    @cached_property
    def M(self) -> Any:  # noqa: N802
        """The observed pixels."""
        seed = np.random.default_rng([settings.PIXELS_SEED, round(100 * self.share)])
        return sample_pixels(self.clip.frames, self.share, seed)

    @cached_property
    def start(self) -> tuple[Any, float]:
        """U⁰ and the seconds it took."""
        return timed_start(self.M, settings.RANK)

    def forget(self) -> None:
        """Give the memory back."""
        for made in ("M", "start"):
            self.__dict__.pop(made, None)

    def jobs(self, methods: Sequence[str], machine: dict[str, Any]) -> list[Job]:
        """The runs: every method with each of its tunings."""
        found = []
        for method in methods:
            for k, which, tuning in numbered(settings.video_tunings(method, self.clip.frames.size, self.quick)):
                found.append(self._job(method, tuning, (str(k), which), machine))
        return found

    def _job(self, method: str, tuning: Tuning, called: tuple[str, str], machine: dict[str, Any]) -> Job:
        number, which = called
        name = f"{'quick-' if self.quick else ''}{self.clip.name}-{round(100 * self.share)}-{method}-{number}"
        return Job(
            name=name,
            title=f"{self.clip.title}, {self.share:.0%} of the pixels, {method}{which}",
            settings={
                "video": self.clip.fingerprint,
                "shape": self.clip.frames.shape,
                "shown": self.clip.busiest,
                "share": self.share,
                "rank": settings.RANK,
                "seeds": [settings.PIXELS_SEED, settings.START_SEED],
                "method": method,
                "parameters": tuning.parameters,
                "step": tuning.step,
                "max_iter": settings.VIDEO_MAX_ITER,
                "repeats": settings.REPEATS,
                "machine": machine,
            },
            run=partial(self._run, method, tuning, name),
            words=tuning.words,
            needs=NEEDS,
            picture=True,
            note=tuning.note,
        )

    def _run(self, method: str, tuning: Tuning, name: str, watch: Watch) -> Record:
        own_start = method == settings.OURS
        U, start_seconds = (None, 0.0) if own_start else self.start

        def look(progress: Progress) -> None:
            watch(progress.iteration, progress["change"])

        seconds, cpu = [], []
        for _ in range(settings.REPEATS):
            M = fresh(self.M)
            before = time.process_time()
            result = solve(
                M,
                settings.RANK,
                method=tuning.solver(method, M.nnz),
                max_iter=settings.VIDEO_MAX_ITER,
                start="svd" if U is None else U,
                random_state=settings.START_SEED,
                callback=look,
            )
            cpu.append(time.process_time() - before)
            seconds.append(result.seconds)
        shown = self.store.path(name, ".png")
        write(shown, picture(_grey(result.L, self.clip, self.clip.busiest)))
        return {
            "method": method,
            "entries": self.M.nnz,
            "status": result.status.value,
            "message": result.message,
            "backend": result.backend,
            "start_seconds": start_seconds,
            "shortened": shortened(result),
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
    """By name, over the frames; PSNR is capped, as one perfect frame would make it infinite.

    >>> _mean([{"age": 120.0, "psnr": 6.0}, {"age": 0.0, "psnr": float("inf")}])
    {'age': 60.0, 'psnr': 52.5}
    """
    most = {"psnr": MOST_DECIBELS}
    return {name: statistics.fmean(min(row[name], most.get(name, math.inf)) for row in rows) for name in rows[0]}


def picture(grey: NDArray[Any]) -> bytes:
    """Grey levels from 0 to 255 as a PNG file."""
    from matplotlib import image

    file = io.BytesIO()
    levels = np.rint(grey).astype(np.uint8)
    image.imsave(file, np.dstack([levels] * 3), format="png")
    return file.getvalue()


def chosen(records: Sequence[Record], enough: float) -> Record:
    """Of runs of one method with different parameters, the one that counts.

    It is the fastest whose picture has at least the PSNR `enough`; if there is none, the one with the best picture.

    >>> quick, good = ({"seconds": s, "measures": {"psnr": p}} for s, p in ((1.0, 21.0), (2.0, 30.0)))
    >>> chosen([quick, good], enough=25.0) is good, chosen([quick, good], enough=20.0) is quick
    (True, True)
    """
    usable = [record for record in records if record["measures"]["psnr"] >= enough]
    if usable:
        return min(usable, key=lambda record: float(record["seconds"]))
    return max(records, key=lambda record: float(record["measures"]["psnr"]))
