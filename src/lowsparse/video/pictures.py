"""A picture: brightness and colour apart, as videos store it; cut, made smaller, from and to red, green and blue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .metrics import REC601

__all__ = ["NEUTRAL", "Grey", "Picture", "Region", "levels", "shrunken"]

Grey = NDArray[np.uint8]
Region = tuple[int, int, int, int]  # x, y, width, height

FIXED = (19595, 38470, 7471)  # the same, times 2¹⁶
NEUTRAL = 128  # chroma of grey
TO_CHROMA = 0.5 / (1 - REC601[2]), 0.5 / (1 - REC601[0])  # (blue - luma), (red - luma) to the range of a byte


@dataclass(frozen=True)
class Picture:
    """Luma, and where there is colour the two chroma planes, in full or in half the resolution; whole numbers 0 to 255.

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

    def __repr__(self) -> str:
        kind = "grey" if self.chroma is None else "colour, halved" if self.halved else "colour"
        return "Picture({} x {}, {})".format(*self.shape, kind)

    @classmethod
    def of_rgb(cls, rgb: NDArray[Any], *, colour: bool = True) -> Picture:
        """Of (H, W, 3) whole numbers from 0 to 255.

        >>> picture = Picture.of_rgb(np.full((2, 2, 3), (200, 100, 50), np.uint8))
        >>> int(picture.luma[0, 0]), picture.chroma[:, 0, 0].tolist(), picture.rgb()[0, 0].tolist()
        (124, [86, 182], [200, 100, 50])
        """
        red, green, blue = (rgb[..., k].astype(np.int32) for k in range(3))
        exact = FIXED[0] * red + FIXED[1] * green + FIXED[2] * blue
        luma = ((exact + (1 << 15)) >> 16).astype(np.uint8)
        if not colour:
            return cls(luma)
        parts = [scale * (part - exact / 65536) for part, scale in zip((blue, red), TO_CHROMA, strict=True)]
        return cls(luma, levels(np.stack(parts) + NEUTRAL))

    def rgb(self) -> Grey:
        """(H, W, 3).

        >>> Picture(np.full((1, 2), 7, np.uint8)).rgb().tolist()
        [[[7, 7, 7], [7, 7, 7]]]
        """
        if self.chroma is None:
            return np.repeat(self.luma[..., None], 3, axis=2)
        H, W = self.shape
        luma = self.luma.astype(np.float32)
        blue, red = (
            luma + (plane.astype(np.float32) - NEUTRAL) / np.float32(scale)
            for plane, scale in zip(self.full(self.chroma)[:, :H, :W], TO_CHROMA, strict=True)
        )
        green = (luma - np.float32(REC601[0]) * red - np.float32(REC601[2]) * blue) / np.float32(REC601[1])
        return levels(np.dstack([red, green, blue]))

    def full(self, planes: NDArray[Any]) -> NDArray[Any]:
        """What belongs to the chroma planes (..., h, w), in the resolution of the luma."""
        if not self.halved:
            return planes
        H, W = self.shape
        return planes.repeat(2, axis=-2)[..., :H, :].repeat(2, axis=-1)[..., :W]

    def cut(self, region: Region) -> Picture:
        """The part from (x, y) on, of that width and height; x and y are even if the chroma is halved.

        >>> Picture(np.arange(12, dtype=np.uint8).reshape(3, 4)).cut((1, 1, 2, 2)).luma.tolist()
        [[5, 6], [9, 10]]
        """
        x, y, width, height = region
        luma = self.luma[y : y + height, x : x + width]
        if self.chroma is None:
            return Picture(luma)
        if self.halved:
            x, y, width, height = x // 2, y // 2, -(-width // 2), -(-height // 2)
        return Picture(luma, self.chroma[:, y : y + height, x : x + width])

    def shrunken(self, by: int) -> Picture:
        """Blocks of `by` x `by` pixels as their means.

        >>> Picture(np.arange(16, dtype=np.uint8).reshape(4, 4)).shrunken(2).luma.tolist()
        [[2, 4], [10, 12]]
        """
        H, W = (size // by for size in self.shape)
        luma = shrunken(self.luma, by)
        if self.chroma is None:
            return Picture(luma)
        h, w = (-(-H // 2), -(-W // 2)) if self.halved else (H, W)
        missing = [max(0, by * size - had) for size, had in zip((h, w), self.chroma.shape[1:], strict=True)]
        wide = np.pad(self.chroma, [(0, 0), (0, missing[0]), (0, missing[1])], mode="edge")
        return Picture(luma, np.stack([shrunken(plane, by)[:h, :w] for plane in wide]))


def shrunken(plane: Grey, by: int) -> Grey:
    """A plane whose blocks of `by` x `by` pixels are their means, rounded to even; what is left over is dropped."""
    if by == 1:
        return plane
    H, W = (size // by for size in plane.shape)
    total = np.zeros((H, W), np.uint32)
    for y in range(by):
        for x in range(by):
            total += plane[y : by * H : by, x : by * W : by]
    return np.rint(total / np.float64(by * by)).astype(np.uint8)


def levels(numbers: NDArray[Any]) -> Grey:
    """Rounded to whole numbers from 0 to 255."""
    rounded: Grey = np.clip(np.rint(numbers), 0, 255).astype(np.uint8)
    return rounded
