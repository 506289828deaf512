"""A video in, its background and its foreground out: read, learn, separate, write."""

from __future__ import annotations

import os
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ..sweeps import Float, check_can_run
from .ahead import ahead
from .background import (
    THRESHOLD,
    Background,
    Told,
    TooFewError,
    check_separation,
    learn,
)
from .film import Film, write_picture
from .following import SHARE, Follower
from .foreground import Separated
from .frames import Frames, NoVideoError, open_av
from .pictures import Picture, Region
from .truth import Scores, Truth, read_truth

__all__ = ["FILMS", "STILL", "Separation", "separate_video"]

STILL = "background.png"
CALM = "background.mp4"
FILMS: dict[str, Callable[[Separated], Picture]] = {
    CALM: lambda one: one.background,
    "mask.mp4": lambda one: Picture(one.mask.view(np.uint8) * np.uint8(255)),
    "cutout.mp4": lambda one: one.cutout(),
}


@dataclass(frozen=True)
class Separation:
    """What was found in a video, frame by frame, and where it was written."""

    files: list[Path]
    shape: tuple[int, int]  # height, width
    colour: bool
    rate: Fraction  # frames a second
    skipped: int  # damaged frames
    observe: float  # share of the pixels that was looked at
    numbers: list[int]  # of the frames in the source, from 0
    times: Float  # seconds
    shares: Float  # of the pixels of each frame that are in front
    coefficients: Float  # T x r: for rank 1 the brightness
    explained: Float  # share of the pixels by which a frame was placed that agree with the background
    scenes: list[int]  # numbers of the frames with which they begin
    background: Background  # of a stream the last one
    scores: dict[str, float]  # against the truth
    seconds: dict[str, float]  # of the stages

    def __len__(self) -> int:
        return len(self.numbers)


def separate_video(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    rank: int = 1,
    observe: float | None = None,
    stream: bool = False,
    colour: bool = True,
    region: Region | None = None,
    start: int = 0,
    stop: int | None = None,
    every: int = 1,
    shrink: int = 1,
    threshold: float = THRESHOLD,
    clean: int = 1,
    films: Sequence[str] = tuple(FILMS),
    truth: str | os.PathLike[str] | None = None,
    random_state: int = 0,
    backend: str = "auto",
    until: threading.Event | None = None,
    told: Told | None = None,
    watch: Callable[[Separated], object] | None = None,
) -> Separation:
    """Separate the background of a video from what is in front of it, and write both to a folder.

    Parameters
    ----------
    source, colour, region, start, stop, every, shrink
        The video, and what of it is read: see `lowsparse.video.frames.Frames`.
    folder
        Where to write `background.png`, the usual background, and the `films`, frame by frame. They appear at the end,
        all of them, in the place of earlier ones; after an error or Ctrl-C none does.
    rank, observe, random_state, backend
        Of the background: see `lowsparse.video.background.learn`.
    stream
        Follow the scene instead of learning one background from the whole video: see `lowsparse.video.following`. Every
        frame is read once, and the memory does not grow. Else frames are decoded twice, to learn from them and to
        separate them; what can be read only once is kept in a temporary file, as it is encoded.
    threshold, clean
        How much a pixel must differ to be in front, in units of the noise; and the radius within which most must.
    films
        Of `background.mp4`, `mask.mp4` and `cutout.mp4`, which to write.
    truth
        Masks or a clean background to compare with: see `lowsparse.video.truth.read_truth`.
    until
        A stream ends when it is set, as if there were no more frames.
    told
        Called with the stage ("reading", "solving", "writing"), how much of it is done, and of how much (or None).
    watch
        Called with each frame that has been separated, in their order.

    >>> import tempfile
    >>> from lowsparse.datasets import moving_blocks
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder, "clip.npy"), moving_blocks(40, 48, 64, random_state=3).frames)
    ...     done = separate_video(Path(folder, "clip.npy"), Path(folder, "out"))
    ...     len(done), sorted(os.listdir(Path(folder, "out")))
    (40, ['background.mp4', 'background.png', 'cutout.mp4', 'mask.mp4'])
    """
    wrong = sorted(set(films) - set(FILMS))
    if wrong:
        raise ValueError(f"there is no film {wrong[0]!r}: choose from {', '.join(FILMS)}")
    check_separation(threshold, clean)
    check_can_run(backend)  # before any work: without it nothing can be solved,
    open_av()  # nor written without this
    scores = Scores(Truth() if truth is None else read_truth(truth, region=region, shrink=shrink), clean)
    video = Frames(
        source, colour=colour, region=region, start=start, stop=stop, every=every, shrink=shrink, replay=not stream
    )
    clock = _Clock(told)
    with video as frames, _named(frames), _folder(Path(folder)) as out:
        flow: _Learnt | _Followed
        if stream:
            share = SHARE if observe is None else observe
            follower = Follower(
                rank=rank,
                observe=share,
                threshold=threshold,
                clean=clean,
                random_state=random_state,
                backend=backend,
            )
            flow = _Followed(frames, follower, until or threading.Event())
        else:
            found = learn(
                ahead(frames),
                rank=rank,
                observe=observe,
                length=frames.length,
                random_state=random_state,
                backend=backend,
                told=clock.tell,
            )
            flow = _Learnt(frames, found, threshold, clean)
        with _Record(out, films, frames.rate) as record:
            for one in flow:
                if not record.numbers:
                    scores.check(one.mask.shape)
                record.add(one)
                if scores.wants(one.frame.label):
                    scores.add(one, flow.background.distance(one.frame.picture, one.background))
                if watch is not None:
                    watch(one)
                clock.tell("writing", len(record.numbers), flow.length)
            record.finish(flow.background.still)
    return record.separation(frames, flow, scores, clock)


class _Learnt:
    """The frames of a video whose background has been learnt, separated."""

    def __init__(self, frames: Frames, background: Background, threshold: float, clean: int) -> None:
        self.frames, self.background = frames, background
        self.threshold, self.clean = threshold, clean
        self.length: int | None = len(background.coefficients)
        self.scenes: list[int] = []

    def __iter__(self) -> Iterator[Separated]:
        for one in self.background.separate(ahead(self.frames), threshold=self.threshold, clean=self.clean):
            self.scenes = self.scenes or [one.frame.number]
            yield one

    @property
    def observe(self) -> float:
        """Share of the pixels that was looked at."""
        T, pixels = len(self.background.coefficients), self.background.noise.size
        return min(1.0, self.background.entries / (T * pixels))


class _Followed:
    """The frames of a video whose background is followed, separated."""

    def __init__(self, frames: Frames, follower: Follower, until: threading.Event) -> None:
        self.frames, self.follower, self.until = frames, follower, until
        self.length = frames.length
        self.observe, self.scenes = follower.observe, follower.scenes

    def __iter__(self) -> Iterator[Separated]:
        for frame in ahead(self.frames, until=self.until):
            yield from self.follower.take(frame)
        yield from self.follower.finish()

    @property
    def background(self) -> Background:
        return self.follower.background


class _Record:
    """What is kept of each frame, and the films it goes to."""

    def __init__(self, folder: Path, films: Sequence[str], rate: Fraction) -> None:
        self.folder = folder
        self.films = {name: Film(folder / name, rate=rate, calm=name == CALM) for name in FILMS if name in films}
        self.stack = ExitStack()
        self.numbers = array("q")
        self.rows = array("d")  # of each frame its time, share, what is explained, and v: a stream may be long
        self.still: Picture | None = None

    def __enter__(self) -> _Record:
        with ExitStack() as stack:
            for film in self.films.values():
                stack.enter_context(film)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self.stack.__exit__(*error)

    def add(self, one: Separated) -> None:
        """Keep the figures of a frame, and write its pictures."""
        for name, film in self.films.items():
            film.write(FILMS[name](one))
        self.numbers.append(one.frame.number)
        self.rows.extend((one.frame.time, one.share, one.explained, *one.coefficients))

    def finish(self, still: Picture) -> None:
        """Complete the films, before the first gets its name; and write the still."""
        for film in self.films.values():
            film.finish()
        write_picture(self.folder / STILL, still)
        self.still = still

    def separation(self, frames: Frames, flow: _Learnt | _Followed, scores: Scores, clock: _Clock) -> Separation:
        """All that was found."""
        assert self.still is not None
        times, shares, explained, *coefficients = np.array(self.rows).reshape(len(self.numbers), -1).T
        return Separation(
            files=[self.folder / name for name in (STILL, *self.films)],
            shape=self.still.shape,
            colour=self.still.chroma is not None,
            rate=frames.rate,
            skipped=frames.skipped,
            observe=flow.observe,
            numbers=self.numbers.tolist(),
            times=times,
            shares=shares,
            coefficients=np.stack(coefficients, axis=1),
            explained=explained,
            scenes=flow.scenes,
            background=flow.background,
            scores=scores.summary(self.still),
            seconds=clock.ended(),
        )


class _Clock:
    """Passes on what is told, and times the stages."""

    def __init__(self, told: Told | None) -> None:
        self.told, self.stage, self.since = told, "reading", time.perf_counter()
        self.seconds: dict[str, float] = {}

    def tell(self, stage: str, done: int, of: int | None) -> None:
        if stage != self.stage:
            self._switch(stage)
        if self.told is not None:
            self.told(stage, done, of)

    def _switch(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[self.stage] = now - self.since
        self.stage, self.since = stage, now

    def ended(self) -> dict[str, float]:
        self._switch("")
        return self.seconds


@contextmanager
def _named(frames: Frames) -> Iterator[None]:
    """Say of which video the frames are too few, and what became of the others."""
    try:
        yield
    except TooFewError as error:
        damaged = f", {frames.skipped} damaged ones were skipped" if frames.skipped else ""
        raise NoVideoError(f"{frames.name}: {error}{damaged}") from error


@contextmanager
def _folder(path: Path) -> Iterator[Path]:
    """A folder to write to; one that had to be made, and stays empty, is removed."""
    made = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield path
    except BaseException:
        if made and not any(path.iterdir()):
            path.rmdir()
        raise
