"""What is in front of a background: the mask of a frame."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ..entries.frames import Frame
from ..entries.pictures import NEUTRAL, Grey, Picture, doubled
from ..sweeps import Float
from . import compiled
from .sampling import Single

# Parts of the picture: a region as large as this needs no seeds; a smaller one is dropped; a smaller hole is filled.
LARGE, TINY, HOLE = 50, 2000, 500
SEEDS = 25  # part of a region that its seeds must exceed: a gust moves single leaves farther than ever before
FINE = 200_000  # pixels of a picture that is not large
BLEEDS = 2  # pixels of chroma by which a colour bleeds over an edge

Mask = NDArray[np.bool_]
Value = TypeVar("Value", bound=np.generic)


@dataclass(frozen=True)
class Separated:
    """A frame, its background, and the mask of what is in front."""

    frame: Frame
    coefficients: Float  # v_t: r numbers; for rank 1 the brightness, 1 is the usual one
    background: Picture
    mask: Mask  # (H, W)
    explained: float  # share of the pixels that determined the coefficients and agree with the background

    @cached_property
    def share(self) -> float:
        """Share of the pixels that are in front."""
        return float(np.count_nonzero(self.mask)) / self.mask.size


@dataclass(frozen=True)
class Bounds:
    """Differences, in grey levels, beyond which a pixel is in front."""

    luma: Grey  # (H, W)
    chroma: Grey | None = None  # (2, H, W) or halved

    def exceeded(self, picture: Picture, background: Picture) -> Mask:
        """The mask of the pixels that differ by more."""
        mask = _difference(picture.luma, background.luma) > self.luma
        if self.chroma is not None and picture.chroma is not None and background.chroma is not None:
            far = _difference(picture.chroma, background.chroma)
            blue, red = (far > self.chroma) & _own(far)
            mask |= picture.upsample(blue | red)
        return mask


def foreground_mask(picture: Picture, background: Picture, low: Bounds, high: Bounds, radius: int = 1) -> Mask:
    """The mask of what is in front: regions beyond the low bounds that are beyond the high ones in a part of them.

    A pixel belongs to a region if most of its neighbours within the radius differ as well.
    """
    mask = majority(low.exceeded(picture, background), radius)
    return coherent(mask, high.exceeded(picture, background)) if radius else mask


def compiled_mask(
    picture: Picture, luma: Single, chroma: Single | None, v: Float, low: Bounds, high: Bounds, radius: int
) -> tuple[Picture, Mask]:
    """The same, with the background of these planes and coefficients, by the compiled core."""
    background, bits = compiled.compare(luma, v, 0, picture.luma, low.luma, high.luma)
    planes, coloured = None, None
    if chroma is not None and picture.chroma is not None and low.chroma is not None and high.chroma is not None:
        planes, coloured = compiled.compare(chroma, v, NEUTRAL, picture.chroma, low.chroma, high.chroma)
        _without_bleeding(coloured, picture.chroma, planes, low.chroma, high.chroma)
    return Picture(background, planes), compiled.mask_of_bits(bits, coloured, radius, (LARGE, TINY, HOLE, SEEDS), FINE)


def _without_bleeding(bits: Grey, values: Grey, background: Grey, low: Grey, high: Grey) -> None:
    """Take those bits away that differences of chroma have only beside larger ones (see `_own`)."""
    if not bits.any():
        return
    box = _bounding_box(bits > 0)
    wide = tuple(slice(max(one.start - BLEEDS, 0), one.stop + BLEEDS) for one in box)
    far = _difference(values[:, *wide], background[:, *wide])
    inside = tuple(slice(one.start - other.start, one.stop - other.start) for one, other in zip(box, wide, strict=True))
    own, far = _own(far)[:, *inside], far[:, *inside]
    below, beyond = (((far > bound[:, *box]) & own).any(axis=0).view(np.uint8) for bound in (low, high))
    bits[box] = below | beyond << np.uint8(1)


def _own(far: Grey) -> Mask:
    """Where a difference of chroma (2, h, w) is at least three fifths of the largest one near it.

    Chroma has a low resolution, and compression lowers it further: colours bleed over the edge of a thing, and fade.

    >>> _own(np.array([[[0, 10, 90, 100, 95, 30, 0]]], np.uint8)).astype(int).tolist()
    [[[0, 0, 1, 1, 1, 0, 0]]]
    """
    h, w = far.shape[1:]
    padded = np.pad(far, [(0, 0), (BLEEDS, BLEEDS), (BLEEDS, BLEEDS)])
    rows = reduce(np.maximum, (padded[:, k : k + h] for k in range(2 * BLEEDS + 1)))
    largest = reduce(np.maximum, (rows[:, :, k : k + w] for k in range(2 * BLEEDS + 1)))
    return np.asarray(far >= largest - 2 * (largest // 5))


def coherent(mask: Mask, seeds: Mask) -> Mask:
    """The regions of a mask that are large, or that have enough seeds and are not tiny; small holes are filled.

    In a large picture, regions are those of blocks of 2 x 2 pixels, which takes a quarter of the time.
    """
    if not mask.any():
        return mask
    coarse = mask.size > FINE
    blocks, seeds = (max_of_block(one) if coarse else one for one in (mask, mask & seeds))
    kept: Mask = np.zeros(blocks.shape, bool)
    holes = kept.copy()
    box = _bounding_box(blocks)
    labels, areas = label_regions(blocks[box], corners=not coarse)
    keep = (areas >= blocks.size / LARGE) | (SEEDS * np.bincount(labels[seeds[box]], minlength=areas.size) > areas)
    keep &= areas >= blocks.size / TINY
    keep[0] = False
    kept[box] = keep[labels]
    holes[box] = _holes(kept, box)
    if not coarse:
        return kept | holes
    kept_pixels = mask & doubled(kept, mask.shape)
    if not holes.any():
        return kept_pixels
    return kept_pixels | doubled(_with_neighbours(holes), mask.shape)  # blocks at its edge are in the mask in part


def _bounding_box(mask: Mask) -> tuple[slice, slice]:
    """The rows and columns of a mask with anything in it, and one more on each side if there is one."""
    sides = [np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0)]
    rows, columns = (slice(max(int(side[0]) - 1, 0), int(side[-1]) + 2) for side in sides)
    return rows, columns


def _holes(kept: Mask, box: tuple[slice, slice]) -> Mask:
    """The small holes of a mask, in the box that it is in."""
    labels, areas = label_regions(~kept[box], corners=False)
    (H, W), (rows, columns) = kept.shape, box
    cut = (labels[:1], rows.start > 0), (labels[-1:], rows.stop < H), (labels[:, :1], columns.start > 0)
    for edge, is_cut in (*cut, (labels[:, -1:], columns.stop < W)):
        if is_cut:
            areas[edge] = kept.size  # the region goes on beyond the box
    is_hole = areas < kept.size / HOLE
    is_hole[0] = False
    return np.asarray(is_hole[labels])


def label_regions(mask: Mask, *, corners: bool) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The number of the region of each pixel, from 1 on, 0 for none; and the areas of the regions.

    With `corners`, pixels that touch at a corner only are of one region.
    """
    labels = np.empty(mask.shape, np.intp)
    ndimage.label(mask, ndimage.generate_binary_structure(2, 1 + corners), output=labels)
    return labels, np.bincount(labels.ravel())


def majority(mask: Mask, radius: int) -> Mask:
    """The majority in a square of 2 radius + 1 pixels around each pixel; the border is extended.

    This is the median filter of the mask, ten times faster than SciPy's filters.
    """
    if not radius:
        return mask
    kind = np.uint8 if radius < 8 else np.uint16
    H, W = mask.shape
    padded = np.pad(mask, radius, mode="edge").view(np.uint8)
    rows, count = np.zeros((H, padded.shape[1]), kind), np.zeros((H, W), kind)
    for k in range(2 * radius + 1):
        rows += padded[k : k + H]
    for k in range(2 * radius + 1):
        count += rows[:, k : k + W]
    return np.asarray(count > (2 * radius + 1) ** 2 // 2)


def max_of_block(pixels: NDArray[Value]) -> NDArray[Value]:
    """The largest number in each block of 2 x 2 pixels; of a mask, whether any pixel is in it."""
    odd = [(0, side % 2) for side in pixels.shape]
    even = np.pad(pixels, odd, mode="edge") if any(last for _, last in odd) else pixels
    upper, lower = np.maximum(even[::2, ::2], even[::2, 1::2]), np.maximum(even[1::2, ::2], even[1::2, 1::2])
    return np.maximum(upper, lower)


def _with_neighbours(mask: Mask) -> Mask:
    """The mask, and the eight neighbours of each of its pixels."""
    rows = mask.copy()
    rows[1:] |= mask[:-1]
    rows[:-1] |= mask[1:]
    both = rows.copy()
    both[:, 1:] |= rows[:, :-1]
    both[:, :-1] |= rows[:, 1:]
    return both


def _difference(one: Grey, other: Grey) -> Grey:
    return np.maximum(one, other) - np.minimum(one, other)
