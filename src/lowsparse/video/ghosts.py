"""Ghosts: things that were taken for background, and have left.

Who stands still for long enough becomes background, and when he leaves, what was behind him seems to be in front. But
then the outline of the region is in the background and not in the frame: with m the mean of the pixels of the region
within some distance of a pixel on its border, and m' that of the pixels outside, the step |m - m'| is large in the one
and small in the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ..entries.pictures import Grey, doubled
from ..sweeps import Float
from .foreground import FINE, Mask, label_regions, max_of_block
from .sampling import Single

SIDE = 7  # of the square around a pixel on the border
GHOST, PERHAPS = 3.0, 1.2  # factor between the step of a ghost in the background and that in the frame, if it is sure
TWICE = 2  # it is also one if it surely is in so many pictures, and may be in enough of them
OFTEN = 0.2  # share of the pictures in which a ghost must be seen,
SELDOM = 0.1  # or in which it must be, if what is behind it always looks the same
SAME = 6.0  # grey levels: standard deviation of what is behind it, then
LEAST = 0.5  # grey levels: smaller steps are as good as none
STEP = 8.0  # grey levels: least step of a ghost in the background
SMALLEST = 1000  # a region smaller than this part of the picture is none


def outline_ratio(mask: Mask, frame: Grey, background: Grey) -> Single:
    """For the pixels of each region that differs: its step in the background over that in the frame; elsewhere 0.

    Above 1 it may be a ghost, and it is one from `GHOST` on; below 1 it is a thing that is there. It is 1 at most for
    regions that are small, or have no step in the background. Of a large picture, it is that of blocks of 2 x 2 pixels.

    >>> floor = np.full((60, 80), 90, np.uint8)
    >>> frame, background, mask = floor.copy(), floor.copy(), np.zeros(floor.shape, bool)
    >>> frame[10:30, 10:20] = background[30:50, 50:60] = 200
    >>> mask[10:30, 10:20] = mask[30:50, 50:60] = True
    >>> ratio = outline_ratio(mask, frame, background)
    >>> bool(ratio[40, 55] > GHOST), bool(0 < ratio[20, 15] < 1), float(ratio[0, 0])
    (True, True, 0.0)
    """
    if mask.size > FINE:
        mask, frame, background = max_of_block(mask), frame[::2, ::2], background[::2, ::2]
    return ratio_of_steps(mask, frame, background)


def ratio_of_steps(mask: Mask, frame: Grey, background: Grey) -> Single:
    """The same, of a picture of any size as it is."""
    labels, areas = label_regions(mask, corners=True)
    border = np.where(ndimage.grey_erosion(labels, size=(3, 3)) > 0, 0, labels)
    in_frame, in_background = _mean_steps(mask, border, (frame, background), len(areas))
    ratio = np.maximum(in_background, LEAST) / np.maximum(in_frame, LEAST)
    doubtful = (in_background < STEP) | (areas < mask.size / SMALLEST)
    ratio[doubtful] = np.minimum(ratio[doubtful], 1)
    ratio[0] = 0
    return np.asarray(ratio.astype(np.float32)[labels])


def blocks_of_things(mask: Mask, frame: Grey, background: Grey) -> Mask:
    """The blocks of 2 x 2 pixels of what is in front and has an outline: anything else may be a ghost."""
    ratio = outline_ratio(mask, frame, background)
    is_thing = (ratio > 0) & (ratio < 1)
    return max_of_block(is_thing) if is_thing.shape == mask.shape else is_thing


class Sightings:
    """How often, and when, each pixel, or block of pixels, was seen without what the background shows there.

    Pictures are added in order. A thing has left if it is seen to be a ghost often enough, more often than others pass
    there, or twice more often, and may be one often enough; or if it is seen to be a ghost now and then, and what is
    behind it always looks the same; or if it may be one, and what is behind it was seen before the first and after
    the last picture that agrees with the background, and never between.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape  # of a picture
        self._votes = self._doubtful = self._before = self._since = np.zeros(1, np.int16)
        self._count: Single = np.zeros(1, np.float32)  # of ghosts, and of what is behind them
        self._sum: Single = self._count
        self._squares: Single = self._count
        self._agreed: Mask = np.zeros(1, bool)
        self._ghosts: list[Grey] = []  # of each picture, eight pixels in a byte
        self._perhaps: list[Grey] = []

    def add(self, ratio: Single, luma: Grey, brightness: float) -> None:
        """The next picture, by its `outline_ratio`, its luma and its brightness."""
        ghosts, perhaps, agrees = ratio > GHOST, ratio > PERHAPS, ratio == 0
        part = luma if luma.shape == ratio.shape else luma[::2, ::2]
        shown = (ghosts * part).astype(np.float32) / np.float32(brightness)
        self._count = self._count + ghosts.astype(np.float32)
        self._sum, self._squares = self._sum + shown, self._squares + shown**2
        self._votes = self._votes + ghosts.view(np.int8) - ((ratio > 0) & (ratio < 1)).view(np.int8)
        self._agreed = self._agreed | agrees
        self._doubtful = self._doubtful + perhaps
        self._before = self._before + (perhaps & ~self._agreed)
        self._since = np.where(agrees, 0, self._since + perhaps).astype(np.int16)
        self._ghosts.append(np.packbits(ghosts))
        self._perhaps.append(np.packbits(perhaps))

    def gone(self) -> tuple[Mask, list[Mask]]:
        """The pixels from which a thing has left, and for each picture those of them that show what is behind it.

        Of a large picture, the latter are blocks of 2 x 2 pixels.
        """
        enough = max(3, OFTEN * len(self._ghosts))
        likely = (self._votes >= TWICE) & (self._doubtful >= enough)
        mean = self._sum / np.maximum(self._count, 1)
        is_same = self._squares / np.maximum(self._count, 1) - mean**2 <= SAME**2
        is_steady = is_same & (self._count >= max(3, SELDOM * len(self._ghosts)))
        sure = np.asarray((self._votes >= enough) | likely | is_steady)
        nested = (self._before > 0) & (self._since > 0) & (self._before + self._since == self._doubtful)
        returned = nested & self._agreed & (self._doubtful >= enough) & ~sure

        def unpacked(bits: Grey) -> Mask:
            return np.unpackbits(bits, count=sure.size).reshape(sure.shape).view(bool)

        behind = [
            (sure & unpacked(one)) | ((returned | likely) & unpacked(other))
            for one, other in zip(self._ghosts, self._perhaps, strict=True)
        ]
        gone = sure | returned
        return gone if gone.shape == self.shape else doubled(gone, self.shape), behind


def _mean_steps(mask: Mask, border: NDArray[np.int32], lumas: Sequence[Grey], regions: int) -> list[Float]:
    """The mean step across the border of each region, in each of these pictures."""
    rows, columns = np.nonzero(border)
    (top, bottom), (left, right) = (
        (np.maximum(at - SIDE // 2, 0), np.minimum(at + SIDE // 2 + 1, side))
        for at, side in zip((rows, columns), mask.shape, strict=True)
    )

    def sum_around(values: NDArray[Any]) -> Float:
        """The sums over the squares around the pixels on the border, by differences of sums from the corner on."""
        sums = np.zeros((mask.shape[0] + 1, mask.shape[1] + 1), np.int32)
        np.cumsum(values, axis=1, dtype=np.int32, out=sums[1:, 1:])
        np.cumsum(sums, axis=0, out=sums)
        return np.asarray(sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left], np.float64)

    many, numbers = sum_around(mask), border[rows, columns]
    others = np.maximum((bottom - top) * (right - left) - many, 0.05)
    count, means = np.maximum(np.bincount(numbers, minlength=regions), 1), []
    for luma in lumas:
        inside, whole = sum_around(luma * mask), sum_around(luma)
        step = np.abs(inside / many - (whole - inside) / others)
        means.append(np.bincount(numbers, step, regions) / count)
    return means
