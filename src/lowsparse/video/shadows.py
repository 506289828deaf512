"""Shadows and patches of light, which are no things: where the background is seen, in another light.

Under another light a surface keeps its texture (see `light`). With a and x the luma of the background and of a frame, a
pixel that differs shows the background nevertheless if

    Σ ∇a · ∇x > ALIKE √(Σ |∇a|² Σ |∇x|²)  and  Σ ∇a · ∇x > FADED γ Σ |∇a|²,  γ = Σ x / Σ a,

the sums over a small square around it; one pixel in fifty of a thing does so, at most. In a region that differs, a
shadow is what such pixels are, and grows from them over neighbours that are darker by the same factor: those of a
surface without a texture, and those beside the thing that casts it.
"""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from ..entries.pictures import Grey, doubled
from .foreground import FINE, Mask, coherent, label_regions, majority, max_of_block
from .sampling import Single

SIDE = 5  # of the square around a pixel
MOSTLY = 0.3  # share of the square that must be in the region
ALIKE = 0.8  # least cosine between the gradients of a surface in two lights
FADED = 0.5  # least factor of the gradients, beside that of the light: dark clothes hardly have any
FLAT = 8.0  # squared grey levels a pixel: a surface whose gradients have less has no texture
DARKER, BRIGHTER = (0.4, 0.97), (1.03, 3.0)  # factors of the light in a shadow, and in a patch of light
STEPS = 3  # by which a shadow grows, each by half of the side of the square,
NEAR = 0.08  # where the factor differs by less
WHOLE = 0.85  # share of a region that is in another light from which on all of it is
BLACK = 2.0  # grey levels, added before a factor is taken: in the dark it says nothing


def seen_surface(region: Mask, frame: Grey, background: Grey) -> tuple[Mask, Mask, Mask]:
    """Of a region that differs: where the background has a texture, and where that is seen, darker or brighter.

    >>> wall = np.add.outer(np.arange(30) % 5 * 20, np.arange(40) % 7 * 12).astype(np.uint8)
    >>> frame, region = wall.copy(), np.zeros(wall.shape, bool)
    >>> frame[5:25, 5:20], frame[5:25, 20:35] = wall[5:25, 5:20] // 2, 200
    >>> region[5:25, 5:35] = True
    >>> textured, darker, brighter = seen_surface(region, frame, wall)
    >>> bool(textured[10, 10] and darker[8:22, 8:16].all()), bool(darker[:, 24:].any()), bool(brighter.any())
    (True, False, False)
    """
    one, other = (_smooth(luma) for luma in (frame, background))
    (ay, ax), (by, bx) = (
        [np.diff(luma, axis=axis, append=np.take(luma, [-1], axis=axis)) for axis in (0, 1)] for luma in (other, one)
    )
    inside = ndimage.binary_erosion(region, np.ones((5, 5), bool))  # nearer to the border, gradients are of two things

    def total(values: Single) -> Single:
        return np.asarray(ndimage.uniform_filter(values * inside, SIDE))

    n, both, first, second = (
        total(one) for one in (np.ones_like(one), ay * by + ax * bx, ay**2 + ax**2, by**2 + bx**2)
    )
    textured = inside & (n > MOSTLY) & (first > FLAT * n)
    factor = total(one + BLACK) / np.maximum(total(other + BLACK), 1)
    seen = textured & (both > ALIKE * np.sqrt(np.maximum(first * second, 0))) & (both > FADED * factor * first)
    darker, brighter = (seen & (factor > low) & (factor < high) for low, high in (DARKER, BRIGHTER))
    return textured, darker, brighter


def without_light(mask: Mask, frame: Grey, background: Grey, *, darker: bool, brighter: bool) -> Mask:
    """A mask without shadows (`darker`), without patches of light, or without both.

    Of a large picture, blocks of 2 x 2 pixels are looked at.
    """
    blocks, small, behind = mask, frame, background
    if mask.size > FINE:
        blocks, small, behind = max_of_block(mask), frame[::2, ::2], background[::2, ::2]
    labels, areas = label_regions(blocks, corners=True)
    light = np.zeros(blocks.shape, bool)
    for k, (rows, columns) in enumerate(ndimage.find_objects(labels), 1):
        box = np.s_[max(rows.start - SIDE, 0) : rows.stop + SIDE, max(columns.start - SIDE, 0) : columns.stop + SIDE]
        region = labels[box] == k
        lit = _lit(region, small[box], behind[box], darker, brighter)
        light[box] |= region if np.count_nonzero(lit) > WHOLE * areas[k] else lit
    if not light.any():
        return mask
    left = mask & ~(light if light.shape == mask.shape else doubled(light, mask.shape))
    left &= majority(left, 1)
    return coherent(left, left)


def _lit(region: Mask, frame: Grey, background: Grey, darker: bool, brighter: bool) -> Mask:
    """The pixels of a region in which the background is seen in another light, and their neighbours in the same."""
    _, shadow, patch = seen_surface(region, frame, background)
    lit = (shadow & darker) | (patch & brighter)
    if not lit.any():
        return lit
    factor = (_smooth(frame) + BLACK) / (_smooth(background) + BLACK)
    for _ in range(STEPS):
        many = ndimage.uniform_filter(lit.astype(np.float32), SIDE)
        mean = ndimage.uniform_filter(factor * lit, SIDE) / np.maximum(many, 1e-6)
        lit |= region & (many > 0.5 / SIDE**2) & (np.abs(factor - mean) < NEAR)
    return lit


def _smooth(luma: Grey) -> Single:
    """With less noise."""
    return np.asarray(ndimage.uniform_filter(luma.astype(np.float32), 3))
