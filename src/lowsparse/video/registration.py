"""Shifts of the camera: by how many whole pixels a frame is shifted against a reference picture.

At some pixels p with a strong gradient g of the reference, the shift s has the least

    Σ_p min(|g'(p + s) - f g(p)|, f bound),

g' the gradient of the frame, f its brightness: what covers some of the pixels adds a constant. It is looked for on
small pictures first, then on larger ones near the shift that was found: near none, and if none fits, near that of a
frame before, as a camera that pans moves on. Differences are counted in whole sixteenths of a grey level, so that their
sums are the same in whatever order they are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..entries.frames import Frame
from ..entries.pictures import Grey, Picture
from ..sweeps import Float
from . import compiled
from .compiled import Integers

Shift = tuple[int, int]  # rows down, columns to the right
Value = TypeVar("Value", bound=np.generic)

SMALLEST = 16  # shortest side of a picture in which shifts are looked for
COARSE = 160  # longest side of the smallest picture in which shifts are looked for
FAR, FARTHER = 8, 16  # pixels: shifts to try on the smallest picture, and if none of them, or an outermost one, fits
NEAR = 2  # pixels: shifts to try on larger pictures, around the one found before
EDGES = 1500  # pixels with a strong gradient that are compared
MIN_EDGES, MIN_CELLS = 30, 10
ABOVE_NOISE = 8.0  # times its standard deviation is the least gradient of an edge,
FAINT = 3.0  # and at least this, in grey levels: a plain wall has less in a film that was compressed
BRIGHTNESS = 0.2, 5.0  # of a picture beside the reference, at the least and at the most
BOUND = 2.0  # of a difference, in units of the median gradient of the reference at these pixels
UNIT = 16  # parts of a grey level in which differences are counted
SEEN = 0.5  # share of them that must be inside a shifted picture for the others not to count
BETTER = 0.85  # a shift has at most this part of the sum that no shift has
BEYOND = 4  # pixels beyond the border of a picture in which a mask is as at the border
STEADY, RARELY = 40, 10  # frames without a shift after which one frame in so many is looked at
SHAKES = 0.05  # share of the frames that have a shift if the camera shakes
WINDOW = 25  # shifts whose median says where the camera is, but for its shaking
BLURRED = 0.25  # share of the edges of a frame that a background has if the camera has moved,
TEXTURED = 0.2  # if this share of the parts of the frame have edges
LINES = 64  # of a picture whose noise is looked at together
AGREES = 0.7  # a picture that shows the reference has at most this part of the sum that a picture without edges has


@dataclass(frozen=True)
class Level:
    """Pixels with strong gradients in the reference, at one size."""

    rows: Integers
    columns: Integers
    gradient: NDArray[np.float32]  # edges x 2
    bound: float
    luma: float  # the median of the luma there
    cells: int  # of 4 x 4 in which they are: those of something that moves are in few

    def brightness(self, luma: Grey) -> float:
        """The brightness of a picture beside that of the reference."""
        return float(np.clip(np.median(luma[self.rows, self.columns]) / self.luma, *BRIGHTNESS))

    def sums(self, luma: Grey, factor: float, around: Shift, reach: int) -> Float:
        """The mean difference, at most 1, for each shift up to `reach` around one: a square for each half of the edges.

        `factor` is the brightness of the picture.
        """
        expected = np.rint(UNIT * factor * self.gradient).astype(np.int32)
        bound = max(1, round(UNIT * factor * self.bound))
        sums_of = compiled.shift_sums if compiled.is_available() else shift_sums
        sums = sums_of(luma, (self.rows, self.columns), expected, UNIT, bound, around, reach)
        halves = np.array([(len(self.rows) + 1) // 2, len(self.rows) // 2])
        return np.asarray(sums / (bound * halves)[:, None, None])

    def best(self, luma: Grey, factor: float, around: Shift, reach: int) -> tuple[Shift, float, bool]:
        """The shift with the least mean difference, this, and whether halves of the edges disagree on it."""
        halves = self.sums(luma, factor, around, reach)
        both = halves.mean(axis=0)
        one, other, (y, x) = (np.array(divmod(int(sums.argmin()), 2 * reach + 1)) - reach for sums in (*halves, both))
        shift = around[0] + int(y), around[1] + int(x)
        return shift, float(both.min()), bool(np.abs(one - other).max() > 1)

    def seen(self, shift: Shift, shape: tuple[int, ...]) -> Level:
        """Those of the pixels that a picture of this shape has if it is shifted so."""
        y, x = self.rows + shift[0], self.columns + shift[1]
        inside = (y > 0) & (y < shape[0] - 1) & (x > 0) & (x < shape[1] - 1)
        return replace(self, rows=self.rows[inside], columns=self.columns[inside], gradient=self.gradient[inside])

    @property
    def without_edges(self) -> float:
        """The mean difference of a picture without edges."""
        return float(np.minimum(np.abs(self.gradient).sum(axis=1) / self.bound, 1).mean())


def shift_sums(
    luma: Grey, places: tuple[Integers, Integers], expected: Integers, unit: int, bound: int, around: Shift, reach: int
) -> Integers:
    """How far a picture is from gradients expected at some places, for each shift up to `reach` around one.

    Differences, and `bound`, of two together, are in so many parts of a grey level; they are summed over every other
    place, and over the others.

    >>> luma = np.zeros((9, 9), np.uint8)
    >>> luma[4:] = 10
    >>> places = np.full(2, 3, np.int32), np.full(2, 4, np.int32)
    >>> shift_sums(luma, places, np.tile([10, 0], (2, 1)), 1, 99, (1, 0), 1)[0]
    array([[ 0,  0,  0],
           [ 0,  0,  0],
           [10, 10, 10]], dtype=int32)
    """
    offsets = np.arange(2 * reach + 3) - reach - 1
    rows, columns = (
        np.clip(place[:, None] + by + offsets, 0, side - 1)
        for place, by, side in zip(places, around, luma.shape, strict=True)
    )
    patches = unit * luma[rows[:, :, None], columns[:, None, :]].astype(np.int32)
    down = patches[:, 2:, 1:-1] - patches[:, :-2, 1:-1]
    right = patches[:, 1:-1, 2:] - patches[:, 1:-1, :-2]
    far = np.minimum(sum(np.abs(one - expected[:, k, None, None]) for k, one in enumerate((down, right))), bound)
    return np.stack([far[::2].sum(axis=0, dtype=np.int32), far[1::2].sum(axis=0, dtype=np.int32)])


@dataclass(frozen=True)
class Registration:
    """Finds the shift of pictures against a reference picture.

    >>> rng = np.random.default_rng(1)
    >>> scene = Picture((40 * rng.random((30, 40))).repeat(3, axis=0).repeat(3, axis=1).astype(np.uint8))
    >>> Registration.of(scene).find(shifted(scene, (2, -5)))[0]
    (2, -5)
    """

    reference: Picture
    levels: tuple[Level, ...]  # from coarse to fine; none if the reference has no edges
    edges: float = 0.0  # share of the parts of the smallest picture that have one

    @classmethod
    def of(cls, reference: Picture, noise: float = 0.0) -> Self:
        """Against this picture; `noise` is that of the pictures to be registered, if they have more."""
        if min(reference.shape) < SMALLEST:
            return cls(reference, ())
        levels = [_level(luma, noise / 2**k) for k, luma in enumerate(reversed(_sizes(reference)))][::-1]
        if any(len(level.rows) < MIN_EDGES or level.cells < MIN_CELLS for level, _ in levels):
            return cls(reference, (), levels[0][1])
        return cls(reference, tuple(level for level, _ in levels), levels[0][1])

    def find(self, picture: Picture, latest: Shift = (0, 0)) -> tuple[Shift, bool]:
        """The shift of a picture, none if it is hardly better; and whether the picture shows the reference at all.

        Where those near none do not fit, those near the `latest` shift are tried.
        """
        if not self.levels:
            return (0, 0), True
        (luma, *larger), level = _sizes(picture), self.levels[0]
        factor = level.brightness(luma)
        shift, least, is_chance = level.best(luma, factor, (0, 0), FAR)
        if is_chance or least > AGREES * level.without_edges or max(map(abs, shift)) == FAR:
            y, x = (round(one / 2 ** len(larger)) for one in latest)
            shift, least, is_chance = level.best(luma, factor, (y, x), FARTHER)
        for level, luma in zip(self.levels[1:], larger, strict=True):
            shift, least, _ = level.best(luma, factor, (2 * shift[0], 2 * shift[1]), NEAR)
        bound = AGREES * level.without_edges
        still = float(level.sums(luma, factor, (0, 0), 0).mean())
        if least > bound:  # what is beyond the border of the picture cannot agree
            seen = level.seen(shift, luma.shape)
            enough = len(seen.rows) >= max(MIN_EDGES, SEEN * len(level.rows))
            least = float(seen.sums(luma, factor, shift, 0).mean()) if enough else least
        if is_chance or least > min(BETTER * still, bound):
            return (0, 0), still < bound
        return shift, True


@dataclass(frozen=True)
class Aligned:
    """A frame, and its picture as the camera would have taken it had it not moved."""

    frame: Frame
    picture: Picture
    shift: Shift = (0, 0)  # of the frame against the picture
    reference: Picture | None = None  # which the picture shows where the frame does not

    @classmethod
    def of(cls, frame: Frame, registration: Registration | None, latest: Shift = (0, 0)) -> Self:
        """With the shift that is found, if it is looked for; near the latest one it may be large."""
        if registration is None:
            return cls(frame, frame.picture)
        return cls.at(frame, registration.find(frame.picture, latest)[0], registration.reference)

    @classmethod
    def at(cls, frame: Frame, shift: Shift, reference: Picture | None) -> Self:
        """With a shift that is known."""
        return cls(frame, shifted(frame.picture, (-shift[0], -shift[1]), reference), shift, reference)


class Steadiness:
    """Aligns the frames of a video with its first one, and counts how often the camera has moved.

    After 40 frames without a shift only one frame in 10 is looked at, until one has a shift.
    """

    def __init__(self) -> None:
        self.registration: Registration | None = None  # None before the first frame
        self._latest: Shift = (0, 0)  # that was found
        self._frames = self._steady = 0  # in all, and since the last shift
        self._seen = self._moved = 0  # that were looked at, and of these with a shift
        self._window: list[Shift] = []  # of the latest of these
        self._least = self._most = np.zeros(2)  # median shift of a window
        self._windows = 0

    @property
    def shakes(self) -> bool:
        """Whether the camera has moved, by little, in some frames."""
        return self._moved > SHAKES * self._seen

    def align(self, frame: Frame) -> Aligned:
        """The next frame."""
        if self.registration is None:
            self.registration = Registration.of(frame.picture)
        self._frames += 1
        if self._steady >= STEADY and self._frames % RARELY:
            return Aligned(frame, frame.picture)
        aligned = Aligned.of(frame, self.registration, self._latest)
        moved = aligned.shift != (0, 0)
        self._latest = aligned.shift if moved else self._latest
        self._steady = 0 if moved else self._steady + 1
        self._seen, self._moved = self._seen + 1, self._moved + moved
        self._window.append(aligned.shift)
        if len(self._window) == WINDOW:
            middle = np.median(self._window, axis=0)
            self._least = np.minimum(self._least, middle) if self._windows else middle
            self._most = np.maximum(self._most, middle) if self._windows else middle
            self._windows, self._window = self._windows + 1, []
        return aligned

    @property
    def drift(self) -> float:
        """By how many pixels the camera has wandered; shaking does not count."""
        return float(np.max(self._most - self._least))


def share_lost(background: Picture, pictures: Sequence[Picture]) -> float:
    """The share of the pictures whose edges are not those of the background, as if the camera had moved."""
    if not pictures:
        return 0.0
    noise = float(np.median([_noise(picture.luma) for picture in pictures]))
    registration = Registration.of(background, noise)
    bound = max(TEXTURED, registration.edges / BLURRED)
    lost = [not registration.find(one)[1] or _share_of_edges(one, noise) > bound for one in pictures]
    return float(np.mean(lost))


def _share_of_edges(picture: Picture, noise: float) -> float:
    """As `Registration.edges`, from the smallest size alone."""
    if min(picture.shape) < SMALLEST:
        return 0.0
    sizes = _sizes(picture)
    return _level(sizes[0], noise / 2 ** (len(sizes) - 1))[1]


def _sizes(picture: Picture) -> list[Grey]:
    """The luma of a picture, halved until it is small; the smallest first."""
    sizes = [Picture(picture.luma)]
    while max(sizes[0].shape) > COARSE and min(sizes[0].shape) >= 2 * SMALLEST:
        sizes.insert(0, sizes[0].shrunken(2))
    return [one.luma for one in sizes]


def _level(luma: Grey, noise: float) -> tuple[Level, float]:
    """The pixels with strong gradients of a reference, spread over all of it, and the share of its parts with edges."""
    tile = max(2, int(np.sqrt(luma.size / EDGES)))  # the strongest pixel of each tile
    H, W = (side // tile * tile for side in luma.shape)
    strongest = [_strongest(luma, tile, top) for top in range(0, H, tile)]
    inside, found = (np.concatenate(one) for one in zip(*strongest, strict=True))
    row, column = np.divmod(np.arange(len(inside)), W // tile)
    rows, columns = row * tile + inside // tile, column * tile + inside % tile
    is_edge = found >= max(ABOVE_NOISE * max(noise, _noise(luma)), FAINT)
    strong = is_edge & (found >= np.median(found))
    rows, columns, found = rows[strong], columns[strong], found[strong]
    up, down, left, right = (
        luma[rows + y, columns + x].astype(np.float32) for y, x in ((-1, 0), (1, 0), (0, -1), (0, 1))
    )
    gradient = np.stack([down - up, right - left], axis=1)
    bound, brightness = (float(np.median(one)) if one.size else 1.0 for one in (found, luma[rows, columns]))
    cells = len(np.unique(4 * (4 * rows // luma.shape[0]) + 4 * columns // luma.shape[1]))
    places = rows.astype(np.int32), columns.astype(np.int32)
    return Level(*places, gradient, BOUND * bound, max(brightness, 1.0), cells), float(is_edge.mean())


def _strongest(luma: Grey, tile: int, top: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Of each tile in a row of them: the pixel with the strongest gradient, counted line by line, and its gradient."""
    (H, W), strength = luma.shape, np.zeros((tile, luma.shape[1]), np.float32)
    first, last = max(top, 1), min(top + tile, H - 1)  # the border of the picture has none
    lines = luma[first - 1 : last + 1].astype(np.float32)
    down, right = lines[2:] - lines[:-2], lines[1:-1, 2:] - lines[1:-1, :-2]
    strength[first - top : last - top, 1:-1] = np.abs(down[:, 1:-1]) + np.abs(right)
    tiles = strength[:, : W // tile * tile].reshape(tile, -1, tile).swapaxes(0, 1).reshape(-1, tile * tile)
    inside = tiles.argmax(axis=1)
    return inside, tiles[np.arange(len(tiles)), inside]


def _noise(luma: Grey) -> float:
    """The standard deviation of the noise, from second differences in both directions, which edges hardly have."""
    counts = np.zeros(8 * 255 + 1, np.int64)  # of each difference: they are small integers
    for top in range(0, luma.shape[0] - 2, LINES):
        grey = luma[top : top + LINES + 2].astype(np.int16)
        rows = grey[2:] - 2 * grey[1:-1] + grey[:-2]
        both = np.abs(rows[:, 2:] - 2 * rows[:, 1:-1] + rows[:, :-2])
        counts += np.bincount(both.ravel(), minlength=len(counts))
    total = np.cumsum(counts)
    middle = np.searchsorted(total, [(total[-1] - 1) // 2, total[-1] // 2], side="right")
    return float(middle.mean()) / (0.6745 * 6)


def shifted(picture: Picture, shift: Shift, beyond: Picture | None = None) -> Picture:
    """A picture moved down and to the right; beyond its border another one is seen, or the border is repeated.

    >>> shifted(Picture(np.arange(6, dtype=np.uint8).reshape(2, 3)), (0, 1)).luma.tolist()
    [[0, 0, 1], [3, 3, 4]]
    """
    if shift == (0, 0):
        return picture
    luma = move(picture.luma, shift, None if beyond is None else beyond.luma)
    if picture.chroma is None:
        return Picture(luma)
    halves = (round(shift[0] / 2), round(shift[1] / 2)) if picture.halved else shift
    others = [None, None] if beyond is None or beyond.chroma is None else beyond.chroma
    planes = [move(plane, halves, other) for plane, other in zip(picture.chroma, others, strict=True)]
    return Picture(luma, np.stack(planes))


def move(plane: NDArray[Value], shift: Shift, beyond: NDArray[Value] | None = None) -> NDArray[Value]:
    """A plane moved down and to the right; beyond its border another one is seen, or the border is repeated."""
    if shift == (0, 0):
        return plane
    kept, border, inside = [], [], []
    for side, by in zip(plane.shape, shift, strict=True):
        down, up = min(max(by, 0), side - 1), min(max(-by, 0), side - 1)
        kept.append(slice(up, side - down))
        inside.append(slice(down, side - up))
        border.append((down, up))
    if beyond is None:
        return np.pad(plane[tuple(kept)], border, mode="edge")
    moved = beyond.copy()
    moved[tuple(inside)] = plane[tuple(kept)]
    return moved


def move_mask(mask: NDArray[np.bool_], shift: Shift) -> NDArray[np.bool_]:
    """A mask moved down and to the right; what is at its border goes on beyond it for a few pixels, and no farther.

    >>> move_mask(np.array([[False, True]]).repeat(5, axis=1), (0, -7)).astype(int)
    array([[1, 1, 1, 1, 1, 1, 1, 0, 0, 0]])
    """
    moved = move(mask, shift)
    for lines, by in zip((moved, moved.T), shift, strict=True):
        if by > BEYOND:
            lines[: by - BEYOND] = False
        elif by < -BEYOND:
            lines[by + BEYOND :] = False
    return moved
