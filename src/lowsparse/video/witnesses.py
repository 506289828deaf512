"""What whole pictures say of a background: how far it flickers, signs that it is wrong, and what has come to stay."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..entries.pictures import Picture, doubled
from .background import THRESHOLD, Background
from .flicker import HIDDEN, Spots, rounded
from .foreground import FINE, label_regions, majority, max_of_block
from .sampling import Single
from .signs import BEHIND, Signs, is_light, outlined_place, restless_place, roughness, share_in, share_of_specks

SPOT = 200  # a region smaller than this part of the picture may be flicker
FOR_GOOD = 0.2  # last part of the time in which something has come for good if it is there


def signs_in(background: Background, pictures: Sequence[Picture]) -> Signs:
    """Signs that a background is wrong: the sum over these pictures, as `align` gives them."""
    low, high, total = background.bounds(THRESHOLD), background.bounds(THRESHOLD, background.flicker), Signs()
    for picture, v in zip(pictures, background.coefficients_of(pictures)[0] if pictures else (), strict=True):
        behind, mask = background.compare(picture, v, low, high)
        total += Signs.of(mask, picture.luma, behind.luma)
        total += Signs(specks=share_of_specks(mask, picture.luma, behind.luma, high.luma))
    return total


def place_in(background: Background, pictures: Sequence[Picture]) -> Signs:
    """A single place that is never calm, if there is one, and how often it is in front in these pictures.

    Only `place` and `in_place` of the signs are given, the sums over the pictures.
    """
    place = restless_place(background.noise, background.noise_level[0])
    is_outlined = place is None
    if place is None:
        flickers = doubled(background.flicker > THRESHOLD, background.noise.shape)
        place = outlined_place(background.noise, background.noise_level[0], flickers)
    if place is None or not pictures:
        return Signs()
    low, high = background.bounds(THRESHOLD), background.bounds(THRESHOLD, background.flicker)
    rough, in_place = list[Single](), 0.0
    for picture, v in zip(pictures, background.coefficients_of(pictures)[0], strict=True):
        behind, mask = background.compare(picture, v, low, high)
        in_place += share_in(place, mask)
        rough.append(roughness(picture.luma, behind.luma))
    total = Signs(place=len(rough) * float(place.mean()), in_place=in_place)
    is_seen = is_outlined and total.in_place > BEHIND * total.place
    return Signs() if is_seen or is_light(place, rough) else total


def share_staying(background: Background, pictures: Sequence[Picture]) -> float:
    """Share of the pixels that are in front at the end, have been for a while, and look the same since.

    The pictures are in order, to the end of the video; the largest region counts.
    """
    last = pictures[-max(3, math.ceil(FOR_GOOD * len(pictures))) :]
    bounds, stays = background.bounds(THRESHOLD), np.ones(background.noise.shape, bool)
    for picture, v in zip(last, background.coefficients_of(last)[0], strict=True):
        stays &= background.compare(picture, v, bounds, bounds)[1] & ~bounds.exceeded(picture, last[-1])
    areas = label_regions(majority(stays, 2), corners=False)[1]
    return float(areas[1:].max(initial=0)) / stays.size


def spots_in(background: Background, pictures: Sequence[Picture]) -> list[Spots]:
    """How far small spots are from the background: in each picture, the largest distance in each block (`flicker`).

    Blocks of larger regions are `HIDDEN`.
    """
    unit, coarse, found = background.spread(), background.noise.size > FINE, []
    for picture, v in zip(pictures, background.coefficients_of(pictures)[0] if pictures else (), strict=True):
        far = background.distance(picture, background.picture(v), unit, of_blocks=coarse)
        beyond = far > THRESHOLD
        labels, areas = label_regions(beyond, corners=not coarse)
        is_spot = areas < far.size / SPOT
        is_spot &= np.bincount(labels[majority(beyond, 1)], minlength=areas.size) > 0  # others are in no mask
        is_spot[0] = False
        is_large = areas >= far.size / SPOT
        is_large[0] = False
        far *= is_spot[labels]
        hidden = is_large[labels]
        if not coarse:
            far, hidden = max_of_block(far), max_of_block(hidden)
        found.append(np.where(hidden, np.uint8(HIDDEN), rounded(far)))
    return found
