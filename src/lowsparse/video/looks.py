"""Looks at a video: a random share of the pixels of each frame, as many at every pixel, in bounded memory.

Pixels that are neighbours, two by two, and their colour are one block. In every stretch of 1 / share frames each block
is looked at once, in a frame drawn at random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .pictures import NEUTRAL, Grey, Picture

__all__ = ["LEAST", "USUAL", "Layout", "Looks", "Samples", "Single", "share_for"]

USUAL = 80  # looks at each pixel, where there is a choice; in a long video up to twice as many
LEAST = 3
MANY = 1 << 30
MOST_BYTES = 400_000_000  # of what is remembered of a video

Single = NDArray[np.float32]


def share_for(frames: int | None) -> float:
    """The share of the pixels of each frame that is looked at, if nobody asks for another.

    It gives each pixel 80 looks, if there are as many frames; but a tenth of each frame is looked at.

    >>> share_for(200), share_for(50), share_for(10_000)
    (0.4, 1.0, 0.1)
    """
    return 0.5 if frames is None else min(1.0, max(USUAL / max(frames, 1), 0.1))


class Layout:
    """Where the values of a block are in a picture: four of luma; of chroma two, or if it is not halved eight."""

    def __init__(self, picture: Picture) -> None:
        self.shape, self.halved, self.colour = picture.shape, picture.halved, picture.chroma is not None
        H, W = self.shape
        rows, columns = np.arange(0, H, 2), np.arange(0, W, 2)
        below, beside = np.minimum(rows + 1, H - 1), np.minimum(columns + 1, W - 1)  # the border twice, if it is odd
        corners = [(y[:, None] * W + x).ravel() for y in (rows, below) for x in (columns, beside)]
        self.corners = np.stack(corners).astype(np.int32)  # 4 x blocks: pixels of the luma
        self.blocks = self.corners.shape[1]
        self.values = 4 if not self.colour else 6 if self.halved else 12

    def at(self, picture: Picture, blocks: NDArray[np.intp]) -> Grey:
        """The values (values x blocks) of some blocks."""
        corners = self.corners[:, blocks]
        luma = picture.luma.ravel()[corners]
        if picture.chroma is None:
            return luma
        planes = picture.chroma.reshape(2, -1)
        chroma = planes[:, blocks] if self.halved else planes[:, corners].reshape(8, -1)
        return np.concatenate([luma, chroma])

    def planes(self, values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Luma (..., H, W) and chroma (..., 2, h, w) of numbers (..., values, blocks)."""
        H, W = self.shape
        before = values.shape[:-2]

        def plane(corners: NDArray[Any]) -> NDArray[Any]:
            flat = np.empty((*before, H * W), values.dtype)
            flat[..., self.corners[::-1]] = corners[..., ::-1, :]  # the upper left corner last: it is never doubled
            return flat.reshape(*before, H, W)

        luma = plane(values[..., :4, :])
        if not self.colour:
            return luma, None
        if self.halved:
            return luma, values[..., 4:, :].reshape(*before, 2, -(-H // 2), -(-W // 2))
        return luma, np.stack([plane(values[..., 4:8, :]), plane(values[..., 8:, :])], axis=-3)


@dataclass
class Stretch:
    """Some frames in a row, in which every block is looked at once."""

    first: int  # frame
    when: NDArray[Any]  # of each block: how many frames later
    values: Grey  # values x blocks


@dataclass(frozen=True)
class Looks:
    """What was seen of a video."""

    layout: Layout
    stretches: list[Stretch]

    def __len__(self) -> int:
        return len(self.stretches)

    def times(self, blocks: slice | NDArray[np.intp]) -> NDArray[np.int64]:
        """The frames (blocks x looks) in which these blocks were looked at."""
        return np.stack([one.when[blocks].astype(np.int64) + one.first for one in self.stretches], axis=1)

    def values(self, blocks: slice | NDArray[np.intp]) -> Single:
        """What was seen (values x blocks x looks); of chroma the difference to grey."""
        seen = np.stack([one.values[:, blocks] for one in self.stretches], axis=-1).astype(np.float32)
        seen[4:] -= NEUTRAL
        return seen


class Samples:
    """Looks at the blocks of a video as its frames come: in every stretch of 1 / share frames one at each.

    If there are more than `most` stretches, or they need more than `most_bytes`, every second one is dropped, and from
    then on only one in two is looked at; as often as needed. Or only the `latest` ones are kept.

    >>> samples = Samples(0.5, random_state=1)
    >>> for t in range(6):
    ...     samples.take(Picture(np.full((4, 4), 10 * t, np.uint8)))
    >>> [sorted(set(stretch.values.ravel().tolist())) for stretch in samples.looks().stretches]
    [[0, 10], [20, 30], [40, 50]]
    """

    def __init__(
        self,
        share: float,
        *,
        most: int | None = None,
        latest: int | None = None,
        random_state: int | np.random.Generator = 0,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"observe must be a share above 0 and up to 1 (0.1 is 10 %), not {share!r}")
        self.share, self.most, self.latest, self.most_bytes = share, most, latest, most_bytes
        self.rng = np.random.default_rng(random_state)
        self.frames = 0  # so far
        self.entries = 0  # pixels looked at
        self.layout: Layout | None = None
        self._stretches: list[Stretch] = []
        self._begun = 0  # stretches
        self._end = 0  # of the present one
        self._due = 0.0  # the same, before it was rounded
        self._stride = 1  # one of so many stretches is looked at
        self._looking = False

    def take(self, picture: Picture) -> None:
        """Look at the next frame."""
        if self.layout is None:
            self.layout = Layout(picture)
        t = self.frames
        self.frames += 1
        if t == self._end:
            self._begin(self.layout, t)
        if self._looking:
            now = self._stretches[-1]
            blocks = np.flatnonzero(now.when == t - now.first)
            now.values[:, blocks] = self.layout.at(picture, blocks)
            self.entries += 4 * blocks.size

    def _begin(self, layout: Layout, t: int) -> None:
        self._due += 1 / self.share
        self._end = max(round(self._due), t + 1)
        frames = self._end - t
        kind = np.uint8 if frames <= 256 else np.uint32
        size = layout.blocks * (layout.values + np.dtype(kind).itemsize)
        if self.latest is not None:
            self._stretches = self._stretches[-self.latest :]
        elif len(self._stretches) >= max(LEAST, min(self.most or MANY, self.most_bytes // size)):
            self._stretches = self._stretches[::2]
            self._stride *= 2
        self._looking = self._begun % self._stride == 0
        self._begun += 1
        if self._looking:
            when = np.asarray(self.rng.integers(frames, size=layout.blocks, dtype=kind))
            self._stretches.append(Stretch(t, when, np.zeros((layout.values, layout.blocks), np.uint8)))

    def looks(self, *, to_the_end: bool = False) -> Looks:
        """What was seen in all the stretches that are over.

        At the end of a video the last stretch may be cut off. Blocks that were not looked at in it get their look
        of the stretch before once more.
        """
        assert self.layout is not None
        if self.frames == self._end or not self._looking:
            return Looks(self.layout, self._stretches[:])
        whole, last = self._stretches[:-1], self._stretches[-1]
        if to_the_end and whole:
            before = whole[-1]
            missing = last.when >= self.frames - last.first
            when = np.where(missing, before.when.astype(np.int64) + before.first - last.first, last.when)
            whole.append(Stretch(last.first, when, np.where(missing, before.values, last.values)))
        return Looks(self.layout, whole)
