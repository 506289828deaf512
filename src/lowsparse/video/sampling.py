"""A random sample of the pixels of a video: a share of each frame, every pixel equally often, in bounded memory.

Two by two neighbouring pixels and their colour are one block. The video is divided into intervals of 1 / share frames;
in each of them every block is sampled once, in a frame drawn at random.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..entries.pictures import NEUTRAL, Grey, Picture

TARGET = 80  # samples of each pixel, where there is a choice; in a long video up to twice as many
MIN_SAMPLES = 3
UNCOVERED = 4096  # blocks whose samples are replaced together: all at once need more memory than the samples
MANY = 0.05  # share of the blocks above which all of them are taken out of a picture, which is faster than some
MAX_BYTES = 150_000_000  # of the samples of a video,
FEWEST = 20  # unless these samples of each pixel need more

Single = NDArray[np.float32]
Value = TypeVar("Value", bound=np.generic)
Item = TypeVar("Item")


def default_share(frames: int | None) -> float:
    """The share of the pixels of each frame that gives 80 samples of each pixel, but at least a tenth."""
    return 0.5 if frames is None else min(1.0, max(TARGET / max(frames, 1), 0.1))


def check_fraction(name: str, share: float) -> None:
    """Raise if this cannot be a share of the pixels."""
    if not 0 < share <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1 (0.1 is 10 %), not {share!r}")


class Layout:
    """Positions of the values of a block in a picture: four of luma; two of halved chroma, or eight of full chroma."""

    def __init__(self, picture: Picture) -> None:
        self.shape, self.halved, self.colour = picture.shape, picture.halved, picture.chroma is not None
        H, W = self.shape
        self.is_odd = bool(H % 2 or W % 2)
        self.blocks = -(-H // 2) * -(-W // 2)
        self.values = 4 if not self.colour else 6 if self.halved else 12

    @property
    def bytes(self) -> int:
        """Of one sample of each block, and the frame it is from."""
        return self.blocks * (self.values + 1)

    def extract_all(self, picture: Picture) -> Grey:
        """The values (values x blocks) of all blocks."""
        values = np.empty((self.values, self.blocks), np.uint8)
        chroma = [] if picture.chroma is None else list(picture.chroma)
        for k, plane in enumerate([picture.luma] if self.halved else [picture.luma, *chroma]):
            even = np.pad(plane, [(0, side % 2) for side in self.shape], mode="edge") if self.is_odd else plane
            for corner in range(4):
                values[4 * k + corner] = even[corner // 2 :: 2, corner % 2 :: 2].ravel()
        if self.halved:
            values[4:] = np.reshape(chroma, (2, -1))
        return values

    def extract(self, picture: Picture, blocks: NDArray[np.intp]) -> Grey:
        """The values (values x blocks) of some blocks."""
        (H, W), (rows, columns) = self.shape, np.divmod(blocks, -(-self.shape[1] // 2))
        below, right = np.minimum(2 * rows + 1, H - 1), np.minimum(2 * columns + 1, W - 1)  # an odd border counts twice
        corners = np.stack([y * W + x for y in (2 * rows, below) for x in (2 * columns, right)])
        luma: Grey = picture.luma.ravel()[corners]
        if picture.chroma is None:
            return luma
        planes = picture.chroma.reshape(2, -1)
        chroma = planes[:, blocks] if self.halved else planes[:, corners].reshape(8, -1)
        return np.concatenate([luma, chroma])

    def tiles(self, blocks: int) -> list[slice]:
        """Parts of the blocks: whole rows of them, of about so many each."""
        across = -(-self.shape[1] // 2)
        size = max(blocks // across, 1) * across
        return [slice(k, min(k + size, self.blocks)) for k in range(0, self.blocks, size)]

    def empty_planes(self, *leading: int) -> tuple[Single, Single | None]:
        """Luma (..., H, W) and chroma (..., 2, h, w), to be filled."""
        size = tuple(-(-side // 2) for side in self.shape) if self.halved else self.shape
        chroma = np.empty((*leading, 2, *size), np.float32) if self.colour else None
        return np.empty((*leading, *self.shape), np.float32), chroma

    def fill(self, planes: tuple[Single, Single | None], tile: slice, values: Single) -> None:
        """Write the numbers (..., values, blocks) of a tile to luma and chroma."""
        luma, chroma = planes
        across = -(-self.shape[1] // 2)
        blocks = values.reshape(*values.shape[:-1], -1, across)
        top, bottom = tile.start // across, tile.stop // across

        def fill(plane: Single, corners: Single) -> None:
            for corner in range(4):
                part = plane[..., 2 * top + corner // 2 : 2 * bottom : 2, corner % 2 :: 2]
                part[...] = corners[..., corner, : part.shape[-2], : part.shape[-1]]

        fill(luma, blocks[..., :4, :, :])
        if chroma is None:
            return
        if self.halved:
            chroma[..., top:bottom, :] = blocks[..., 4:, :, :]
            return
        for k in range(2):
            fill(chroma[..., k, :, :], blocks[..., 4 + 4 * k : 8 + 4 * k, :, :])


@dataclass
class Interval:
    """Consecutive frames in which every block is sampled once."""

    first: int  # frame
    offset: NDArray[np.integer[Any]]  # of the sampled frame of each block from the first one
    values: Grey  # values x blocks


@dataclass(frozen=True)
class PixelSamples:
    """The samples of every block: one for each interval."""

    layout: Layout
    intervals: list[Interval]

    def __len__(self) -> int:
        return len(self.intervals)

    def frames(self, blocks: slice | NDArray[np.intp]) -> NDArray[np.int64]:
        """The frames (blocks x samples) in which these blocks were sampled."""
        return np.stack([one.offset[blocks].astype(np.int64) + one.first for one in self.intervals], axis=1)

    def values(self, blocks: slice | NDArray[np.intp]) -> Single:
        """The sampled values (values x blocks x samples); 128 is subtracted from chroma."""
        values = np.stack([one.values[:, blocks] for one in self.intervals], axis=-1).astype(np.float32)
        values[4:] -= NEUTRAL
        return values

    def correct(
        self, blocks: NDArray[np.intp], wrong: Callable[[int], Picture], right: Callable[[int], Picture]
    ) -> None:
        """Of some blocks, replace the samples that are nearer to a wrong picture than to the right one by the latter.

        Both pictures are given for the first frame of an interval.
        """
        for one in self.intervals:
            old, new = (self.layout.extract(picture(one.first), blocks) for picture in (wrong, right))
            x = one.values[:, blocks]
            one.values[:, blocks] = np.where(_far(x, old) < _far(x, new), new, x)

    def change_frames(self, changed: NDArray[np.bool_], change: Callable[[Grey, NDArray[np.int64]], Grey]) -> None:
        """Give the samples of those frames (a mask, T) other values: `change` is given values and their frames."""
        for one in self.intervals:
            t = one.offset.astype(np.int64) + one.first
            blocks = np.flatnonzero(changed[t])
            one.values[:, blocks] = change(one.values[:, blocks], t[blocks])

    @property
    def oldest(self) -> int:
        """The first frame from which there is a sample."""
        return min(one.first + int(one.offset.min()) for one in self.intervals)

    def uncover(self, covered: Callable[[slice, NDArray[np.int64]], NDArray[np.bool_]]) -> float:
        """Replace the samples of blocks that are covered by others of the same blocks, which are spread over the time.

        `covered` is given some blocks and the frames (samples x blocks) in which they were sampled, and says which of
        them are covered there. Blocks that are never seen stay as they are. The share of the samples that are replaced
        is returned.
        """
        latest = max(one.first + int(one.offset.max()) for one in self.intervals)
        kind = np.int8 if latest < 1 << 7 else np.int16 if latest < 1 << 15 else np.int64
        for one in self.intervals:
            one.offset = one.offset.astype(kind, copy=False)
        tiles = [slice(k, min(k + UNCOVERED, self.layout.blocks)) for k in range(0, self.layout.blocks, UNCOVERED)]
        return sum(self._uncover(tile, covered) for tile in tiles) / (len(self) * self.layout.blocks)

    def _uncover(self, tile: slice, covered: Callable[[slice, NDArray[np.int64]], NDArray[np.bool_]]) -> int:
        """The same for a part of the blocks; the number of samples is returned."""
        frames = self.frames(tile).T
        hidden = covered(tile, frames)
        blocks = np.flatnonzero(hidden.any(axis=0) & ~hidden.all(axis=0))
        hidden, when, many = hidden[:, blocks], frames[:, blocks], len(self)
        gaps = hidden.sum(axis=0)
        order = np.argsort(hidden, axis=0, kind="stable")  # those that are seen first, in the order of time
        which = (np.cumsum(hidden, axis=0) - 0.5) / np.maximum(gaps, 1) * (many - gaps)  # of those
        spread = np.take_along_axis(order, np.where(hidden, which, 0).astype(np.intp), axis=0)
        source = np.where(hidden, spread, np.arange(many)[:, None])
        blocks += tile.start
        seen = np.stack([one.values[:, blocks] for one in self.intervals])
        for one, chosen in zip(self.intervals, source, strict=True):
            one.values[:, blocks] = np.take_along_axis(seen, chosen[None, None], axis=0)[0]
            one.offset[blocks] = np.take_along_axis(when, chosen[None], axis=0)[0] - one.first
        return int(gaps.sum())


def _mapped_zeros(values: int, blocks: int) -> Grey:
    """Zeros in memory of their own, which goes back to the system when they are dropped, not to the heap."""
    return np.frombuffer(mmap.mmap(-1, values * blocks), np.uint8).reshape(values, blocks)


class EvenSpacing:
    """Chooses items of a sequence of unknown length, at almost equal distances: at least half of `most` of a long one.

    Of each stretch one is chosen, drawn at random: a light that flickers in every second frame is seen in both states.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._chosen, self._stride, self._count, self._next = 0, 1, 0, 0
        self._rng = np.random.default_rng(0x6576656E)

    def choose(self) -> tuple[bool, bool]:
        """Whether every second of those chosen so far is to be dropped, and whether the next item is chosen."""
        thin = False
        if self._count % self._stride == 0:
            if self._chosen == self.most:
                thin, self._chosen = True, -(-self._chosen // 2)
                self._stride *= 2
            if self._count % self._stride == 0:
                self._next = self._count + int(self._rng.integers(self._stride))
        is_chosen = self._count == self._next
        self._chosen += is_chosen
        self._count += 1
        return thin, is_chosen


class EvenlySpaced(EvenSpacing, Generic[Item]):
    """Keeps items of a sequence by `EvenSpacing`."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.kept: list[Item] = []

    def add(self, item: Item) -> None:
        """Take the next item."""
        thin, is_chosen = self.choose()
        if thin:
            del self.kept[1::2]
        if is_chosen:
            self.kept.append(item)


class PixelSampler:
    """Samples the blocks of a video frame by frame: each once in every interval of 1 / share frames.

    If there are more than `most` intervals, or they need more than `max_bytes` (None: 150 MB, or what 20 need), every
    second one is dropped, and from then on only one in two is sampled; as often as needed. With `latest`, so many are
    kept: when there are more, the share is halved, and for each new one every second of the old ones is dropped in
    turn, so that they stay spread over all of the time; once it is `final_share`, the oldest one is dropped.
    """

    def __init__(
        self,
        share: float,
        *,
        most: int | None = None,
        latest: int | None = None,
        final_share: float = 1.0,
        random_state: int | np.random.Generator = 0,
        max_bytes: int | None = None,
    ) -> None:
        check_fraction("observe", share)
        self.share, self.most, self.max_bytes = share, most, max_bytes
        self.latest, self.final_share = latest, final_share
        self.rng = np.random.default_rng(random_state)
        self.frames = 0  # so far
        self.entries = 0  # sampled pixels
        self.layout: Layout | None = None
        self._intervals: list[Interval] = []
        self._begun = 0  # intervals
        self._end = 0  # of the current interval
        self._exact_end = 0.0  # before rounding
        self._stride = 1  # one of so many intervals is sampled
        self._thinned = 0  # intervals dropped since the share was halved
        self._sampling = False  # whether the current one is
        self._whole: PixelSamples | None = None  # the samples so far, if they were asked for to the end

    def add(self, picture: Picture) -> None:
        """Sample the next frame."""
        if self.layout is None:
            self.layout = Layout(picture)
        self._whole = None
        t = self.frames
        self.frames += 1
        if t == self._end:
            self._begin_interval(self.layout, t)
        if self._sampling:
            current = self._intervals[-1]
            chosen = current.offset == t - current.first
            count = int(np.count_nonzero(chosen))
            if count > MANY * chosen.size:
                change = self.layout.extract_all(picture)  # chosen ? new : old, without branches
                change ^= current.values
                change &= -chosen.view(np.uint8)
                current.values ^= change
            else:
                blocks = np.flatnonzero(chosen)
                current.values[:, blocks] = self.layout.extract(picture, blocks)
            self.entries += 4 * count

    def _begin_interval(self, layout: Layout, t: int) -> None:
        if self.latest is not None and len(self._intervals) >= self.latest:
            self._drop_one(self.latest)
        self._exact_end += 1 / self.share
        self._end = max(round(self._exact_end), t + 1)
        frames = self._end - t
        kind = np.uint8 if frames <= 256 else np.uint32
        size = layout.blocks * (layout.values + np.dtype(kind).itemsize)
        most = max(MAX_BYTES // size, FEWEST) if self.max_bytes is None else self.max_bytes // size
        if self.latest is None and len(self._intervals) >= max(MIN_SAMPLES, min(self.most or most, most)):
            self._intervals = self._intervals[::2]
            self._stride *= 2
        self._sampling = self._begun % self._stride == 0
        self._begun += 1
        if self._sampling:
            offset = np.asarray(self.rng.integers(frames, size=layout.blocks, dtype=kind))
            self._intervals.append(Interval(t, offset, _mapped_zeros(layout.values, layout.blocks)))

    def _drop_one(self, latest: int) -> None:
        """Drop the next of every second interval, or the oldest one if the share is not halved any more."""
        if self._thinned == 0:
            self.share = max(self.share / 2, self.final_share)
        self._thinned = (self._thinned + 1) % (latest // 2)
        del self._intervals[self._thinned or latest // 2 if self.share > self.final_share else 0]

    def samples(self, *, at_end: bool = False) -> PixelSamples:
        """The samples of all complete intervals.

        `at_end` adds the last interval, which the end of the video may have cut short; blocks that were not sampled in
        it repeat their sample of the interval before. Until a frame is added these are the same samples every time.
        """
        assert self.layout is not None
        if self.frames == self._end or not self._sampling:
            return PixelSamples(self.layout, self._intervals[:])
        complete, last = self._intervals[:-1], self._intervals[-1]
        if not (at_end and complete):
            return PixelSamples(self.layout, complete)
        if self._whole is None:
            previous = complete[-1]
            missing = last.offset >= self.frames - last.first
            offset = np.where(missing, previous.offset.astype(np.int64) + previous.first - last.first, last.offset)
            complete.append(Interval(last.first, offset, np.where(missing, previous.values, last.values)))
            self._whole = PixelSamples(self.layout, complete)
        return self._whole


def _far(some: Grey, others: Grey) -> NDArray[np.int64]:
    """Distance between values (values x blocks) of each block."""
    return np.asarray(np.abs(some.astype(np.int64) - others).sum(axis=0))
