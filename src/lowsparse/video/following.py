"""The background of a video without end: it follows the scene, in bounded memory, and every frame is read once.

The first frames are held back until a background can be learnt from them. From then on frames are placed on it and
given out as they come, and of every stretch of them each pixel is looked at once. From the latest 30 looks the
background is learnt anew while the next 50 frames pass. What stays for half of that time becomes background.

Frames that the background does not explain are held back too. Ten of them in a row are a new scene: all looks are
forgotten, and a background is learnt from the first of them on. Else they are given out as what they are, frames with
much in front.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from ..sweeps import Float
from .background import (
    THRESHOLD,
    Background,
    Separator,
    check_rank,
    check_separation,
    fitted,
    regressed,
    usual_noise,
)
from .foreground import Separated
from .frames import Frame
from .looks import LEAST, Looks, Samples

__all__ = ["SHARE", "Follower", "follow"]

SHARE = 0.1  # of the pixels of each frame that is looked at
LATEST = 30  # looks at each pixel that are remembered
FIRST = 60  # frames from which a new scene is learnt
FIRST_SHARE = 0.5  # of their pixels
REFRESH = 50  # frames after which the background is learnt anew
STRANGE = 0.5  # times the share of the pixels that are usually explained: a frame with less is strange
CUT = 10  # strange frames in a row are a new scene
SLOW = 0.02  # how fast it is forgotten what is usual

Placed = tuple[Frame, Float, float]  # a frame, v, and the share of its pixels that are explained


class Follower:
    """Takes frames, and gives them out separated, in their order, some of them later.

    Parameters
    ----------
    rank, threshold, clean
        As for a background that is learnt once.
    observe
        The share of the pixels of each frame that is looked at; what is remembered goes back 30 / observe frames.
    random_state
        A seed for the choice of the pixels.
    backend
        As for a background that is learnt once.
    """

    def __init__(
        self,
        *,
        rank: int = 1,
        observe: float = SHARE,
        threshold: float = THRESHOLD,
        clean: int = 1,
        random_state: int = 0,
        backend: str = "auto",
    ) -> None:
        if not 0 < observe <= 1:
            raise ValueError(f"observe must be a share above 0 and up to 1 (0.1 is 10 %), not {observe!r}")
        check_rank(rank)
        check_separation(threshold, clean)
        self.rank, self.observe, self.threshold, self.clean = rank, observe, threshold, clean
        self.backend = backend
        self.rng = np.random.default_rng(random_state)
        self._separator: Separator | None = None
        self.scenes: list[int] = []  # the numbers of the frames with which they began
        self._threads = ThreadPoolExecutor(1)
        self._new_scene([])

    @property
    def background(self) -> Background:
        """The one on which the last frame was placed that was given out."""
        if self._separator is None:
            raise RuntimeError("no background is known yet: take more frames, or finish")
        return self._separator.background

    def _new_scene(self, frames: list[Frame]) -> None:
        self._samples = Samples(FIRST_SHARE, latest=LATEST, random_state=self.rng)
        self._first: list[Frame] = []  # of the scene, until it is known
        self._strange: list[Frame] = []
        self._v: list[Float] = []  # of the frames since `_since`; none before the scene is known
        self._since = 0
        self._usual = 1.0  # share of the pixels that are explained
        self._coming: Future[Background] | None = None
        self._due = FIRST + REFRESH  # frames of the scene at which it is learnt anew
        for frame in frames:
            self._wait(frame)

    def take(self, frame: Frame) -> Iterator[Separated]:
        """The next frame."""
        if not self._v:
            self._wait(frame)
            if len(self._first) == FIRST:
                yield from self._begin()
            return
        self._refresh()
        placed = self._place([frame])[0]
        if placed[2] < STRANGE * self._usual:
            self._strange.append(frame)
            if len(self._strange) == CUT:
                self._new_scene(self._strange)
            return
        yield from self._give([*self._place(self._strange), placed])
        self._strange = []

    def finish(self) -> Iterator[Separated]:
        """What is still held back."""
        if not self._v and (self._separator is None or len(self._first) >= max(LEAST, 2 * self.rank)):
            yield from self._begin()  # or it says that they are too few
        yield from self._give(self._place([*self._first, *self._strange]))
        self._threads.shutdown()

    def _wait(self, frame: Frame) -> None:
        self._first.append(frame)
        self._samples.take(frame.picture)

    def _begin(self) -> Iterator[Separated]:
        """The scene is known from its first frames."""
        self._separator = self._with(fitted(self._samples, self.rank, self.backend))
        self.scenes.append(self._first[0].number)
        self._samples.share = self.observe
        placed = self._place(self._first)
        self._first = []
        self._v = [v for _, v, _ in placed]
        self._usual = float(np.median([explained for *_, explained in placed]))
        for one in placed:
            yield self._separator.one(*one)

    def _with(self, background: Background) -> Separator:
        return Separator(background, self.threshold, self.clean)

    def _place(self, frames: list[Frame]) -> list[Placed]:
        if not frames:
            return []
        assert self._separator is not None
        placed = self._separator.background.place([frame.picture for frame in frames])
        return [(frame, v, float(explained)) for frame, v, explained in zip(frames, *placed, strict=True)]

    def _give(self, placed: list[Placed]) -> Iterator[Separated]:
        """Separate frames, and look at them if they are of the scene that is known."""
        for frame, v, explained in placed:
            assert self._separator is not None
            if self._v:
                self._samples.take(frame.picture)
                self._v.append(v)
                self._usual += SLOW * (explained - self._usual)
            yield self._separator.one(frame, v, explained)

    def _refresh(self) -> None:
        """The background that was learnt meanwhile takes over; the next one is begun."""
        if self._samples.frames < self._due:
            return
        self._due += REFRESH
        assert self._separator is not None
        now = self._separator.background if self._coming is None else self._coming.result()
        self._separator = self._with(now)
        looks = self._samples.looks()
        oldest = looks.stretches[0].first
        del self._v[: oldest - self._since]
        self._since = oldest
        recent = Looks(looks.layout, [replace(one, first=one.first - oldest) for one in looks.stretches])
        level = usual_noise(now.noise, now.chroma_noise)
        v = np.asarray(self._v, np.float32)
        self._coming = self._threads.submit(regressed, recent, v, level, now.result, self._samples.entries)


def follow(
    frames: Iterable[Frame],
    *,
    rank: int = 1,
    observe: float = SHARE,
    threshold: float = THRESHOLD,
    clean: int = 1,
    random_state: int = 0,
) -> Iterator[Separated]:
    """What is behind and in front of each frame of a video that need not end.

    >>> from lowsparse.datasets import moving_blocks
    >>> from lowsparse.video.pictures import Picture
    >>> clip = moving_blocks(120, 40, 48, random_state=2)
    >>> frames = (Frame(Picture(one), t, t, t / 25) for t, one in enumerate(clip.frames))
    >>> right = [float(np.mean(one.mask == clip.moving[one.frame.number])) for one in follow(frames)]
    >>> len(right), float(np.mean(right)) > 0.97
    (120, True)
    """
    follower = Follower(rank=rank, observe=observe, threshold=threshold, clean=clean, random_state=random_state)
    for frame in frames:
        yield from follower.take(frame)
    yield from follower.finish()
