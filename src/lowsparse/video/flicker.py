"""Flicker: how far leaves and water go from the background by themselves, in small spots.

Spots are kept for some pictures, as the largest distance in each block of pixels. What one picture in eight shows
near a place is flicker; those who walk the same way are there less often, and so are flakes of snow. Behind something
large nothing is seen: there a stream keeps what it knew before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from scipy import ndimage

from ..entries.pictures import Grey
from .sampling import Single

AGAIN = 4  # side of the square of blocks in which flicker is seen again: who walks by is elsewhere then
RARE = 8  # what one picture in so many shows there is flicker
PARTS = 8  # of the unit of a distance, in which it is kept
HIDDEN = 255  # in place of a distance, where something large is in front
REMEMBERED = 24  # the latest pictures of a stream, which say how far pixels flicker

Spots = Grey  # (⌈H/2⌉, ⌈W/2⌉)


def rounded(far: Single) -> Spots:
    """Distances as they are kept, up to 31.

    >>> rounded(np.array([[0, 1.51, 99]], np.float32)).tolist()
    [[0, 13, 254]]
    """
    return np.minimum(np.ceil(far * PARTS), HIDDEN - 1).astype(np.uint8)


def remembered(earlier: Sequence[Spots], spots: Sequence[Spots]) -> list[Spots]:
    """The latest spots; what something hides there is as in the oldest ones, which are dropped for them.

    >>> oldest, latest = np.array([[9, 7]], np.uint8), np.array([[1, HIDDEN]], np.uint8)
    >>> remembered([oldest] * REMEMBERED, [latest])[-1].tolist(), remembered([oldest], [latest])[-1].tolist()
    ([[1, 7]], [[1, 255]])
    """
    kept = deque(earlier, REMEMBERED)
    for one in spots:
        kept.append(np.where(one == HIDDEN, kept[0], one) if len(kept) == REMEMBERED else one)
    return list(kept)


def flicker_of(spots: Sequence[Spots]) -> Single:
    """The largest distance of each block that is seen often enough near the same place.

    >>> one, other = rounded(np.array([[4.0]])), rounded(np.array([[2.0]]))
    >>> flicker_of([one, other]).item(), flicker_of([one, one, other]).item(), flicker_of([one, 0 * one]).item()
    (2.0, 4.0, 0.0)
    """
    largest = np.zeros_like(spots[0])
    near = np.zeros((max(2, -(-len(spots) // RARE)), *largest.shape), np.uint8)  # the largest, the first first
    for one in spots:
        one = np.where(one == HIDDEN, np.uint8(0), one)
        if one.any():
            np.maximum(largest, one, out=largest)
            seen = ndimage.maximum_filter(one, AGAIN)
            for level in near:
                level[:], seen = np.maximum(level, seen), np.minimum(level, seen)
    return np.asarray(np.minimum(largest, near[-1]) / np.float32(PARTS))
