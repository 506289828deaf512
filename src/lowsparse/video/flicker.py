"""Flicker: how far leaves and water go from the background by themselves, in small spots.

Spots are kept for some pictures, as the largest distance in each block of pixels. What one picture in eight shows
near a place is flicker; those who walk the same way are there less often, and so are flakes of snow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import ndimage

from ..entries.pictures import Grey
from .sampling import Single

AGAIN = 4  # side of the square of blocks in which flicker is seen again: who walks by is elsewhere then
RARE = 8  # what one picture in so many shows there is flicker
PARTS = 8  # of the unit of a distance, in which it is kept

Spots = Grey  # (⌈H/2⌉, ⌈W/2⌉)


def rounded(far: Single) -> Spots:
    """Distances as they are kept, up to 31.

    >>> rounded(np.array([[0, 1.51, 99]], np.float32)).tolist()
    [[0, 13, 255]]
    """
    return np.minimum(np.ceil(far * PARTS), 255).astype(np.uint8)


def flicker_of(spots: Sequence[Spots]) -> Single:
    """The largest distance of each block that is seen often enough near the same place.

    >>> one, other = rounded(np.array([[4.0]])), rounded(np.array([[2.0]]))
    >>> flicker_of([one, other]).item(), flicker_of([one, one, other]).item(), flicker_of([one, 0 * one]).item()
    (2.0, 4.0, 0.0)
    """
    largest = np.zeros_like(spots[0])
    near = np.zeros((max(2, -(-len(spots) // RARE)), *largest.shape), np.uint8)  # the largest, the first first
    for one in spots:
        if one.any():
            np.maximum(largest, one, out=largest)
            seen = ndimage.maximum_filter(one, AGAIN)
            for level in near:
                level[:], seen = np.maximum(level, seen), np.minimum(level, seen)
    return np.asarray(np.minimum(largest, near[-1]) / np.float32(PARTS))
