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

ALIKE = 0.6  # least cosine between the gradients of a surface in two lights,
SAME, MOSTLY = 0.85, 0.8  # and in the same light, in a tile of which most pixels are near each other
TILES = 8  # across and down
FLAT = 8.0  # squared grey levels a pixel: two surfaces whose gradients have less in all have no texture
INSIDE = 0.25  # share of a region that must be inside it: one that is ragged has less
LEAST = 0.02  # share of the picture that must be seen in another light
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


def share_lit(changed: Mask, one: Grey, other: Grey) -> float:
    """The share of the picture in which the light has changed, of what differs between two pictures.

    It is that of the tiles that have a texture: whoever walks in another light is in some of them.

    >>> wall = np.add.outer(np.arange(80) % 5 * 20, np.arange(120) % 7 * 12).astype(np.uint8)
    >>> other = np.where(np.arange(120) < 90, wall // 2, wall).astype(np.uint8)
    >>> other[10:60:2, 30:50] = 250
    >>> changed = wall != other
    >>> bool(split_changes(changed, wall, other)[0].any()), share_lit(changed, wall, other) > 0.4
    (False, True)
    """
    size, both, first, second = _sums_in_tiles(ndimage.binary_erosion(changed, np.ones((5, 5), bool)), one, other)
    says_something = first + second > FLAT * size
    is_light = says_something & (both > ALIKE * np.sqrt(first * second))
    light, of_all = size[is_light].sum(), size[says_something].sum()
    return float(changed.mean() * light / of_all) if light > LEAST * changed.size else 0.0


def same_tiles(near: Mask, one: Grey, other: Grey) -> Mask:
    """The tiles that have a texture and show the same in two pictures, where most pixels are near each other.

    >>> wall = np.add.outer(np.arange(40) % 5 * 20, np.arange(60) % 7 * 12).astype(np.uint8)
    >>> other = wall.copy()
    >>> other[:, 30:] = 60
    >>> int(same_tiles(np.abs(wall - 1.0 * other) < 20, wall, other).sum())
    32
    """
    size, both, first, second = _sums_in_tiles(near, one, other)
    of_tiles = _sums_in_tiles(np.ones(near.shape, bool), one, other)[0]
    has_texture = first + second > FLAT * size
    return np.asarray((size > MOSTLY * of_tiles) & has_texture & (both > SAME * np.sqrt(first * second)))


def _sums_in_tiles(where: Mask, one: Grey, other: Grey) -> Float:
    """For each tile of two pictures, over some pixels: their number, Σ ∇a · ∇x, Σ |∇a|² and Σ |∇x|²."""
    rows, columns = np.nonzero(where)
    tiles = TILES * (TILES * rows // where.shape[0]) + TILES * columns // where.shape[1]
    (ay, ax), (by, bx) = ([part[where] for part in _gradient(picture)] for picture in (one, other))
    products = np.ones(tiles.size), ay * by + ax * bx, ay**2 + ax**2, by**2 + bx**2
    return np.stack([np.bincount(tiles, values, TILES**2).astype(np.float64) for values in products])


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
