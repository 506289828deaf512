"""What whole pictures say of a background: how far it flickers, signs that it is wrong, and what has come to stay."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ..entries.pictures import Picture, doubled
from .background import THRESHOLD, Background
from .flicker import HIDDEN, Spots, rounded
from .foreground import FINE, label_regions, majority, max_of_block
from .sampling import Single
from .signs import (
    BEHIND,
    Signs,
    coarser,
    is_light,
    outlined_place,
    restless_place,
    roughness,
    share_in,
    share_of_specks,
    unsure_outline,
)

SPOT = 200  # a region smaller than this part of the picture may be flicker
FOR_GOOD = 0.2  # last part of the time in which something has come for good if it is there
# Shares of the pictures in which something else is seen for long, and of the pixels that are a large part of a picture;
# share of these that it covers if it is there as a whole, and ratio of the steps at its border if that says little.
LONG, LARGE, WHOLE, UNCLEAR = 0.25, 0.2, 0.8, 0.5


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


def share_undecided(background: Background, pictures: Sequence[Picture]) -> float:
    """Share of the pixels that long show something else, always the same, whose outline hardly says which is in front.

    What covers a large part of the picture for about half of the time may have become background. Then its outline is
    there and not in the frames without it (see `ghosts`), but much of its border is not seen where it looks by chance
    as what is behind it, and other borders are. The pictures are in order; gaps in what differs are closed.
    """
    if len(pictures) < 2 or np.quantile(background.shares_explained(pictures), LONG) > 1 - LARGE:
        return 0.0
    bounds, v = background.bounds(THRESHOLD), background.coefficients_of(pictures)[0]
    masks = [coarser(background.compare(one, light, bounds, bounds)[1]) for one, light in zip(pictures, v, strict=True)]
    changed = [coarser(bounds.exceeded(*pair)) for pair in itertools.pairwise(pictures)]
    stays = [one & other & ~new for (one, other), new in zip(itertools.pairwise(masks), changed, strict=True)]
    steady = np.mean(stays, axis=0) > LONG
    there = [k for k, mask in enumerate(masks) if mask[steady].sum() > WHOLE * steady.sum()]
    if steady.mean() < LARGE or len(there) < LONG * len(pictures):
        return 0.0
    ratios = [unsure_outline(masks[k], pictures[k].luma, background.picture(v[k]).luma, steady) for k in there]
    return float(steady.mean()) if np.median(ratios) > UNCLEAR else 0.0


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
