"""Light, told from things by the texture: under another light a surface keeps its edges, and a thing brings its own.

With a and x a region of the luma in one light and in another, ∇x ≈ γ ∇a. So if the cosine between the two gradients,

    Σ ∇a · ∇x / √(Σ |∇a|² Σ |∇x|²),

the sums over the region, is near 1, it is the light that has changed. Light may have a sharp border, so that the sums
are over what is inside; but where that has no texture or is hardly anything, the border alone tells a thing from a soft
light.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ..entries.pictures import Grey
from ..sweeps import Float
from .foreground import TINY, Mask, label_regions
from .sampling import Single

ALIKE = 0.6  # least cosine between the gradients of a surface in two lights
FLAT = 8.0  # squared grey levels a pixel: two surfaces whose gradients have less in all have no texture
INSIDE = 0.25  # share of a region that must be inside it: one that is ragged has less
RARE = 0.01  # share of the frames beyond the extremes
NO_LIGHT = 0.05  # brightness of a frame that says nothing


def split_changes(changed: Mask, one: Grey, other: Grey) -> tuple[Mask, Mask]:
    """Of the regions that differ between two pictures: those where the light does, and those where a thing does.

    >>> wall = np.add.outer(np.arange(40) % 5 * 20, np.arange(60) % 7 * 12).astype(np.uint8)
    >>> other = wall // 2
    >>> other[10:30, 40:50] = 200
    >>> changed = np.zeros(wall.shape, bool)
    >>> changed[:, :30] = changed[10:30, 40:50] = True
    >>> light, things = split_changes(changed, wall, other)
    >>> bool(light[:, :30].all()), bool(things[10:30, 40:50].all()), bool((light & things).any())
    (True, True, False)
    """
    labels, areas = label_regions(changed, corners=True)
    inside, with_border = ndimage.grey_erosion(labels, size=(5, 5)), ndimage.grey_dilation(labels, size=(3, 3))
    (ay, ax), (by, bx) = (_gradient(picture) for picture in (one, other))
    products = ay * by + ax * bx, ay**2 + ax**2, by**2 + bx**2

    def totals(where: NDArray[np.intp]) -> list[Float]:
        return [np.bincount(where.ravel(), product.ravel(), len(areas)).astype(np.float64) for product in products]

    sums, size = totals(inside), np.bincount(inside.ravel(), minlength=len(areas))
    says_little = (sums[1] + sums[2] <= FLAT * size) | (size < INSIDE * areas)
    both, first, second = (
        np.where(says_little, whole, part) for whole, part in zip(totals(with_border), sums, strict=True)
    )
    is_light = both > ALIKE * np.sqrt(first * second)
    is_thing = ~is_light & (areas >= changed.size / TINY)
    is_light[0] = is_thing[0] = False
    return is_light[labels], is_thing[labels]


def _gradient(picture: Grey) -> list[Single]:
    luma = picture.astype(np.float32)
    return [np.diff(luma, axis=axis, append=np.take(luma, [-1], axis=axis)) for axis in (0, 1)]


def extremes(coefficients: Float, brightness: Float) -> list[tuple[Float, Float]]:
    """Pairs of coefficients (r numbers) whose lights differ most but for the brightness, which is that of most frames.

    `brightness` are the r numbers whose product with the coefficients is the brightness of a frame.
    """
    bright = coefficients @ brightness
    seen = coefficients[bright > NO_LIGHT]
    if not len(seen):
        return []
    equal = seen * (np.median(bright) / (seen @ brightness))[:, None]
    axes = np.linalg.svd(equal - np.median(equal, axis=0), full_matrices=False)[2][: coefficients.shape[1] - 1]
    rare = int(RARE * len(seen))
    return [(equal[order[rare]], equal[order[-1 - rare]]) for order in np.argsort(equal @ axes.T, axis=0).T]
