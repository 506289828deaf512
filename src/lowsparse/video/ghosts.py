"""Ghosts: things that were taken for background, and have left.

Who stands still for long enough becomes background, and when he leaves, what was behind him seems to be in front. But
then the outline of the region is in the background and not in the frame: with m the mean of the pixels of the region
within some distance of a pixel on its border, and m' that of the pixels outside, the step |m - m'| is large in the one
and small in the other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ..entries.pictures import Grey, doubled
from ..sweeps import Float
from .foreground import FINE, Mask, label_regions, max_of_block
from .sampling import Single

SIDE = 7  # of the square around a pixel on the border
STEEPER = 3.0  # factor between the step of a ghost in the background and that in the frame
STEP = 8.0  # grey levels: least step of a ghost in the background
SMALLEST = 1000  # a region smaller than this part of the picture is none


def split_by_outline(mask: Mask, frame: Grey, background: Grey) -> tuple[Mask, Mask]:
    """Of the regions that differ: ghosts, and things that are there, whose outline is rather in the frame.

    In a large picture one pixel in four is looked at.

    >>> floor = np.full((60, 80), 90, np.uint8)
    >>> frame, background, mask = floor.copy(), floor.copy(), np.zeros(floor.shape, bool)
    >>> frame[10:30, 10:20] = background[30:50, 50:60] = 200
    >>> mask[10:30, 10:20] = mask[30:50, 50:60] = True
    >>> ghosts, things = split_by_outline(mask, frame, background)
    >>> bool(ghosts[30:50, 50:60].all()), bool(things[10:30, 10:20].all()), int(ghosts.sum() + things.sum())
    (True, True, 400)
    """
    shape = mask.shape
    if mask.size > FINE:
        mask, frame, background = max_of_block(mask), frame[::2, ::2], background[::2, ::2]
    labels, areas = label_regions(mask, corners=True)
    border = np.where(ndimage.grey_erosion(labels, size=(3, 3)) > 0, 0, labels)
    in_frame, in_background = (_mean_steps(mask, border, luma, len(areas)) for luma in (frame, background))
    is_ghost = (in_background > STEEPER * in_frame) & (in_background > STEP) & (areas >= mask.size / SMALLEST)
    is_thing = in_frame > in_background
    is_ghost[0] = is_thing[0] = False
    ghosts, things = is_ghost[labels], is_thing[labels]
    return (ghosts, things) if ghosts.shape == shape else (doubled(ghosts, shape), doubled(things, shape))


def _mean_steps(mask: Mask, border: NDArray[np.int32], luma: Grey, regions: int) -> Float:
    """The mean step across the border of each region."""
    part, grey = mask.astype(np.float32), luma.astype(np.float32)

    def local_mean(values: Single) -> Single:
        return np.asarray(ndimage.uniform_filter(values, SIDE, mode="nearest"), np.float32)

    where = np.flatnonzero(border)
    share, inside, whole = (local_mean(one).ravel()[where] for one in (part, grey * part, grey))
    step = np.abs(inside / share - (whole - inside) / np.maximum(1 - share, 1e-3))
    numbers = border.ravel()[where]
    return np.bincount(numbers, step, regions) / np.maximum(np.bincount(numbers, minlength=regions), 1)
