"""Shadows and patches of light, which are no things: where the background is seen, in another light.

Under another light a surface keeps its texture (see `light`). With a and x the luma of the background and of a frame, a
pixel that differs shows the background nevertheless if

    Σ ∇a · ∇x > ALIKE √(Σ |∇a|² Σ |∇x|²)  and  Σ ∇a · ∇x > FADED γ Σ |∇a|²,  γ = Σ x / Σ a,

the sums over a small square around it; one pixel in fifty of a thing does so, at most. In a region that differs, a
shadow is what such pixels are, and grows from them over neighbours that are darker by the same factor: those of a
surface without a texture, and those beside the thing that casts it.

In the sun all shadows of a video have nearly the same factor. If most of what is seen darker has it, a shadow on a
surface without a texture can be told as well: it has this factor, is as smooth as the surface, and has its colour. It
grows over its soft border, in which the factor is between that one and 1, and up to what casts it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ..entries.pictures import NEUTRAL, Grey, Picture, doubled
from ..sweeps import Float
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
# Logarithms of the factors of what is seen darker are counted in so many bins. Of nearly one factor they are if these
# quantiles are that near; those below the first one are of dark things, those above the last one of soft borders.
BINS, QUANTILES, SHARP = 45, (0.1, 0.25, 0.4), 0.1
SAME = 0.07  # relative difference of a factor from γ in a shadow
COLOUR = 3.0  # grey levels by which its chroma differs from that of the surface,
SMOOTH, WIDE = (2.0, 4.0), (5, 3)  # and its gradients; and its least width: without colours, and with them
SOFT = 6  # pixels of its border


def seen_surface(region: Mask, frame: Grey, background: Grey) -> tuple[Mask, Mask, Mask, Single]:
    """Of a region that differs: where the background has a texture, and where that is seen, darker or brighter.

    The factors of the light are returned, too.

    >>> wall = np.add.outer(np.arange(30) % 5 * 20, np.arange(40) % 7 * 12).astype(np.uint8)
    >>> frame, region = wall.copy(), np.zeros(wall.shape, bool)
    >>> frame[5:25, 5:20], frame[5:25, 20:35] = wall[5:25, 5:20] // 2, 200
    >>> region[5:25, 5:35] = True
    >>> textured, darker, brighter, factor = seen_surface(region, frame, wall)
    >>> float(np.median(factor[darker]).round(1))
    0.5
    >>> bool(textured[10, 10] and darker[8:22, 8:16].all()), bool(darker[:, 24:].any()), bool(brighter.any())
    (True, False, False)
    """
    one, other = (_smooth(luma) for luma in (frame, background))
    (ay, ax), (by, bx) = _gradient(other), _gradient(one)
    inside = ndimage.binary_erosion(region, np.ones((5, 5), bool))  # nearer to the border, gradients are of two things

    def total(values: Single) -> Single:
        return np.asarray(ndimage.uniform_filter(values * inside, SIDE))

    n, both, first, second = (
        total(one) for one in (np.ones_like(one), ay * by + ax * bx, ay**2 + ax**2, by**2 + bx**2)
    )
    textured: Mask = inside & (n > MOSTLY) & (first > FLAT * n)
    factor = np.asarray(total(one + BLACK) / np.maximum(total(other + BLACK), 1), np.float32)
    seen = textured & (both > ALIKE * np.sqrt(np.maximum(first * second, 0))) & (both > FADED * factor * first)
    darker, brighter = (np.asarray(seen & (factor > low) & (factor < high)) for low, high in (DARKER, BRIGHTER))
    return textured, darker, brighter, factor


def count_factors(factors: Single) -> NDArray[np.int64]:
    """How many factors of shadows are in each bin of their logarithms."""
    return np.histogram(np.log(factors), BINS, (math.log(DARKER[0]), math.log(DARKER[1])))[0]


def usual_factor(counts: Float | NDArray[np.int64]) -> float | None:
    """The factor that most shadows have, by the counts of their factors; None if they have various ones.

    >>> round(usual_factor(count_factors(np.repeat([0.41, 0.6, 0.8], [1, 16, 3]))), 2)
    0.6
    >>> usual_factor(count_factors(np.linspace(0.4, 0.9, 20)))
    """
    total = np.cumsum(counts)
    if not total[-1] > 0:
        return None
    width = math.log(DARKER[1] / DARKER[0]) / BINS
    low, core, high = np.searchsorted(total, total[-1] * np.array(QUANTILES))
    return DARKER[0] * math.exp(width * (core + 0.5)) if (high - low) * width <= SHARP else None


def without_light(
    mask: Mask, frame: Picture, background: Picture, *, darker: bool, brighter: bool, factor: float | None = None
) -> Mask:
    """A mask without shadows (`darker`), without patches of light, or without both.

    `factor` is that of shadows, if it is known. Of a large picture, blocks of 2 x 2 pixels are looked at.
    """
    coarse = mask.size > FINE
    blocks = max_of_block(mask) if coarse else mask
    pictures = [_with_chroma_as_luma(one, coarse) for one in (frame, background)]
    labels, areas = label_regions(blocks, corners=True)
    light = np.zeros(blocks.shape, bool)
    for k, (rows, columns) in enumerate(ndimage.find_objects(labels), 1):
        box = np.s_[max(rows.start - SIDE, 0) : rows.stop + SIDE, max(columns.start - SIDE, 0) : columns.stop + SIDE]
        region = labels[box] == k
        one, behind = (
            Picture(full.luma[box], None if full.chroma is None else full.chroma[:, *box]) for full in pictures
        )
        lit = _lit(region, one.luma, behind.luma, darker and factor is None, brighter)
        if darker and factor is not None:
            lit |= _shaded(region, one, behind, factor)
        light[box] |= region if np.count_nonzero(lit) > WHOLE * areas[k] else lit
    if not light.any():
        return mask
    left = mask & ~(doubled(light, mask.shape) if coarse else light)
    left &= majority(left, 1)
    return coherent(left, left)


def _with_chroma_as_luma(picture: Picture, coarse: bool) -> Picture:
    """A picture of which the chroma has the resolution of the luma; with `coarse`, of every second line and column."""
    luma, chroma = picture.luma, picture.chroma
    if not coarse:
        return Picture(luma, None if chroma is None else picture.upsample(chroma))
    return Picture(luma[::2, ::2], chroma if chroma is None or picture.halved else chroma[:, ::2, ::2])


def _lit(region: Mask, frame: Grey, background: Grey, darker: bool, brighter: bool) -> Mask:
    """The pixels of a region in which the background is seen in another light, and their neighbours in the same."""
    lit = np.zeros(region.shape, bool)
    if not (darker or brighter):
        return lit
    _, shadow, patch, _ = seen_surface(region, frame, background)
    lit |= (shadow & darker) | (patch & brighter)
    if not lit.any():
        return lit
    factor = _factor(frame, background)
    for _ in range(STEPS):
        many = ndimage.uniform_filter(lit.astype(np.float32), SIDE)
        mean = ndimage.uniform_filter(factor * lit, SIDE) / np.maximum(many, 1e-6)
        lit |= region & (many > 0.5 / SIDE**2) & (np.abs(factor - mean) < NEAR)
    return lit


def _shaded(region: Mask, frame: Picture, background: Picture, usual: float) -> Mask:
    """The pixels of a region that are in a shadow of the usual factor, and their neighbours in its soft border.

    Means over a square are blurred where a thing begins: the pixels beside them are judged by what they are themselves.
    """
    may, factor = _dimmed(region, frame, background, usual, _smooth)
    core, has_colours = may & (factor < (1 + SAME) * usual), frame.chroma is not None
    if not core.any():
        return core
    gradients = zip(_gradient(_smooth(frame.luma)), _gradient(_smooth(background.luma)), strict=True)
    rough = np.maximum(*(np.abs(mine - factor * surface) for mine, surface in gradients))
    smooth = core & (ndimage.maximum_filter(rough, 3) < SMOOTH[has_colours])
    shadow = core & seen_surface(region, frame.luma, background.luma)[1]
    shadow |= ndimage.binary_opening(smooth, np.ones((WIDE[has_colours],) * 2, bool))
    shadow = ndimage.binary_dilation(shadow, np.ones((3, 3), bool), SOFT, mask=may)
    by_itself = _dimmed(region, frame, background, usual, lambda plane: plane.astype(np.float32))[0]
    return np.asarray(ndimage.binary_dilation(shadow, np.ones((3, 3), bool), mask=by_itself | shadow))


def _dimmed(
    region: Mask, frame: Picture, background: Picture, usual: float, even: Callable[[Grey], Single]
) -> tuple[Mask, Single]:
    """Where a region may be in a shadow of the usual factor or in its soft border, by luma and colour; and factors."""
    factor = np.asarray((even(frame.luma) + BLACK) / (even(background.luma) + BLACK))
    may = region & (factor > (1 - SAME) * usual) & (factor < DARKER[1])
    if frame.chroma is not None and background.chroma is not None:
        for one, other in zip(frame.chroma, background.chroma, strict=True):
            may &= np.abs(even(one) - NEUTRAL - factor * (even(other) - NEUTRAL)) < COLOUR
    return may, factor


def _factor(frame: Grey, background: Grey) -> Single:
    """The factor of the light in each pixel."""
    return np.asarray((_smooth(frame) + BLACK) / (_smooth(background) + BLACK))


def _smooth(luma: Grey) -> Single:
    """With less noise."""
    return np.asarray(ndimage.uniform_filter(luma.astype(np.float32), 3))


def _gradient(luma: Single) -> list[Single]:
    return [np.diff(luma, axis=axis, append=np.take(luma, [-1], axis=axis)) for axis in (0, 1)]
