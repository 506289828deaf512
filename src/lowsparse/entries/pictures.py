"""Pictures as videos store them, luma and chroma apart: cropped, shrunk, from and to red, green and blue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Grey = NDArray[np.uint8]
Region = tuple[int, int, int, int]  # x, y, width, height
Value = TypeVar("Value", bound=np.generic)

REC601 = np.array([0.299, 0.587, 0.114])  # weights of red, green and blue in the luma
FIXED = (19595, 38470, 7471)  # the same, times 2¹⁶
NEUTRAL = 128  # chroma of grey
LINES = 64  # of a picture that are converted together
TO_CHROMA = 0.5 / (1 - REC601[2]), 0.5 / (1 - REC601[0])  # (blue - luma), (red - luma) to the range of a byte


@dataclass(frozen=True)
class Picture:
    """Luma and, for a picture in colour, two chroma planes in full or half the resolution; integers from 0 to 255.

    Luma is 0.299 R + 0.587 G + 0.114 B; chroma is 128 plus half of (B - luma) / 0.886 and of (R - luma) / 0.701, as in
    JPEG. A change of brightness by a factor multiplies luma and (chroma - 128) by it.

    >>> Picture(np.zeros((4, 6), np.uint8))
    Picture(4 x 6, grey)
    """

    luma: Grey  # (H, W)
    chroma: Grey | None = None  # (2, H, W) or (2, ⌈H/2⌉, ⌈W/2⌉)

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width."""
        return self.luma.shape[0], self.luma.shape[1]

    @property
    def halved(self) -> bool:
        """Whether the chroma has half the resolution."""
        return self.chroma is not None and self.chroma.shape[1:] != self.luma.shape

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return self.luma.nbytes + (0 if self.chroma is None else self.chroma.nbytes)

    def __repr__(self) -> str:
        kind = "grey" if self.chroma is None else "colour, halved" if self.halved else "colour"
        return "Picture({} x {}, {})".format(*self.shape, kind)

    @classmethod
    def of_rgb(cls, rgb: Grey, *, colour: bool = True, halved: bool = False) -> Picture:
        """A picture from (H, W, 3) integers from 0 to 255; `halved` says how its chroma is to be.

        >>> picture = Picture.of_rgb(np.full((2, 2, 3), (200, 100, 50), np.uint8))
        >>> int(picture.luma[0, 0]), picture.chroma[:, 0, 0].tolist(), picture.rgb()[0, 0].tolist()
        (124, [86, 182], [200, 100, 50])
        """
        red, green, blue = (rgb[..., k].astype(np.int32) for k in range(3))
        exact = FIXED[0] * red + FIXED[1] * green + FIXED[2] * blue
        luma = ((exact + (1 << 15)) >> 16).astype(np.uint8)
        if not colour:
            return cls(luma)
        of_chroma: list[NDArray[Any]] = [_means_of_four(plane) if halved else plane for plane in (blue, red, exact)]
        parts = [scale * (part - of_chroma[2] / 65536) for part, scale in zip(of_chroma[:2], TO_CHROMA, strict=True)]
        return cls(luma, levels(np.stack(parts) + NEUTRAL))

    def rgb(self) -> Grey:
        """The picture as (H, W, 3) integers from 0 to 255."""
        if self.chroma is None:
            return np.repeat(self.luma[..., None], 3, axis=2)
        chroma, found = self.upsample(self.chroma), np.empty((*self.shape, 3), np.uint8)
        for top in range(0, self.shape[0], LINES):
            rows = slice(top, top + LINES)
            found[rows] = _to_rgb(self.luma[rows], chroma[:, rows])
        return found

    def upsample(self, planes: NDArray[Value]) -> NDArray[Value]:
        """Planes (..., h, w) of the resolution of the chroma, in that of the luma."""
        if not self.halved:
            return planes
        return doubled(planes, self.shape)

    def replaced(self, other: Picture, blocks: NDArray[np.bool_]) -> Picture:
        """The picture, with those blocks of 2 x 2 pixels of another one that are in a mask (⌈H/2⌉, ⌈W/2⌉).

        >>> black, white = (Picture(np.full((2, 4), level, np.uint8)) for level in (0, 255))
        >>> black.replaced(white, np.array([[False, True]])).luma.tolist()
        [[0, 0, 255, 255], [0, 0, 255, 255]]
        """
        mask = doubled(blocks, self.shape)
        luma = np.where(mask, other.luma, self.luma)
        if self.chroma is None or other.chroma is None:
            return Picture(luma)
        return Picture(luma, np.where(blocks if self.halved else mask, other.chroma, self.chroma))

    def crop(self, region: Region) -> Picture:
        """The part from (x, y) on, of that width and height; x and y must be even if the chroma is halved."""
        x, y, width, height = region
        luma = self.luma[y : y + height, x : x + width]
        if self.chroma is None:
            return Picture(luma)
        if self.halved:
            x, y, width, height = x // 2, y // 2, -(-width // 2), -(-height // 2)
        return Picture(luma, self.chroma[:, y : y + height, x : x + width])

    def rotated(self, quarters: int) -> Picture:
        """The picture, rotated counterclockwise by so many right angles.

        >>> Picture(np.arange(6, dtype=np.uint8).reshape(2, 3)).rotated(1).luma.tolist()
        [[2, 5], [1, 4], [0, 3]]
        """
        chroma = None if self.chroma is None else np.ascontiguousarray(np.rot90(self.chroma, quarters, axes=(1, 2)))
        return Picture(np.ascontiguousarray(np.rot90(self.luma, quarters)), chroma)

    def shrunken(self, by: int) -> Picture:
        """The picture with blocks of `by` x `by` pixels replaced by their means.

        >>> Picture(np.arange(16, dtype=np.uint8).reshape(4, 4)).shrunken(2).luma.tolist()
        [[2, 4], [10, 12]]
        """
        H, W = (size // by for size in self.shape)
        luma = _block_means(self.luma, by)
        if self.chroma is None:
            return Picture(luma)
        h, w = (-(-H // 2), -(-W // 2)) if self.halved else (H, W)
        missing = [max(0, by * size - had) for size, had in zip((h, w), self.chroma.shape[1:], strict=True)]
        padded = np.pad(self.chroma, [(0, 0), (0, missing[0]), (0, missing[1])], mode="edge")
        return Picture(luma, np.stack([_block_means(plane, by)[:h, :w] for plane in padded]))


def _to_rgb(luma: Grey, chroma: Grey) -> Grey:
    """Luma (H, W) and chroma (2, H, W) as (H, W, 3)."""
    grey = luma.astype(np.float32)
    blue, red = (
        grey + (plane.astype(np.float32) - NEUTRAL) / np.float32(scale)
        for plane, scale in zip(chroma, TO_CHROMA, strict=True)
    )
    green = (grey - np.float32(REC601[0]) * red - np.float32(REC601[2]) * blue) / np.float32(REC601[1])
    return levels(np.dstack([red, green, blue]))


def doubled(planes: NDArray[Value], shape: tuple[int, int]) -> NDArray[Value]:
    """Planes (..., h, w) with 2 x 2 pixels for each, cut to this shape.

    >>> doubled(np.array([[True, False]]), (2, 3)).tolist()
    [[True, True, False], [True, True, False]]
    """
    if planes.dtype.itemsize == 1:  # two equal bytes at a time
        wide = np.multiply(planes.view(np.uint8), np.uint16(257), dtype=np.uint16).view(planes.dtype)
    else:
        wide = planes.repeat(2, axis=-1)
    return wide[..., : shape[1]].repeat(2, axis=-2)[..., : shape[0], :]


def _means_of_four(plane: NDArray[np.int32]) -> NDArray[np.float64]:
    """Means of blocks of 2 x 2; the border is repeated if a side is odd."""
    even = np.pad(plane, [(0, side % 2) for side in plane.shape], mode="edge")
    total = even[::2, ::2] + even[::2, 1::2] + even[1::2, ::2] + even[1::2, 1::2]
    return np.asarray(total / 4)


def _block_means(plane: Grey, by: int) -> Grey:
    """Means of blocks of `by` x `by` pixels, rounded to even; an incomplete last row or column is dropped."""
    if by == 1:
        return plane
    H, W = (size // by for size in plane.shape)
    if by == 2:
        upper, lower = (plane[y : 2 * H : 2].astype(np.uint16) for y in range(2))
        upper += lower
        four = upper[:, : 2 * W : 2] + upper[:, 1 : 2 * W : 2]
        return ((four + 1 + ((four >> 2) & 1)) >> 2).astype(np.uint8)  # a half is rounded to even
    total = np.zeros((H, W), np.uint32)
    for y in range(by):
        for x in range(by):
            total += plane[y : by * H : by, x : by * W : by]
    return np.rint(total / np.float64(by * by)).astype(np.uint8)


def levels(numbers: ArrayLike) -> Grey:
    """Numbers rounded to integers from 0 to 255."""
    rounded = np.rint(numbers)
    np.clip(rounded, 0, 255, out=rounded)
    return rounded.astype(np.uint8)
