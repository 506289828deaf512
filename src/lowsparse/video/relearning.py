"""Steps in which a background is learnt again: from samples, and with what some whole pictures say of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ..entries.pictures import Picture
from ..support.memory import release_memory
from ..sweeps import Float
from .background import THRESHOLD, Background
from .fitting import find_noise_level, fit_pixels, without_things
from .flicker import Spots, flicker_of, remembered
from .foreground import Mask, max_of_block
from .ghosts import blocks_of_things
from .registration import share_lost
from .sampling import PixelSamples
from .witnesses import place_in, signs_in, spots_in

WITHIN = 0.85  # times the flicker: what covers a pixel differs by more
SPELL = 2.5  # witnesses in a row, in the mean, in which a block is in front if something covers it
LONG = 0.35  # and share of all of them in which it is, at least: otherwise the regression does without
ALWAYS = 0.95  # share beyond which it is nothing in front: hardly any sample would be left
LOOKS = 6  # times, at most, that it is learnt again without what was found to be in front,
FEW = 0.001  # until so few samples are


def fitter(current: Background) -> Callable[[PixelSamples, Float], Background]:
    """A function that gives the background of samples and of v of their frames (T x r).

    It needs little of the one that is known so far, and does not keep its pictures.
    """
    result, entries, rank, scale = current.result, current.entries, current.rank, current.brightness

    def fit(samples: PixelSamples, v: Float) -> Background:
        coefficients = v.astype(np.float32)
        level = find_noise_level(samples, coefficients)
        found = fit_pixels(samples, coefficients, level, result, entries)
        if rank == 1:
            return found
        brightness = (v @ scale[:, None]).astype(np.float32)
        return without_things(replace(found, brightness=scale), fit_pixels(samples, brightness, level, result, entries))

    return fit


def in_front_of(
    found: Background, pictures: Sequence[Picture], at: Sequence[int]
) -> Callable[[slice, NDArray[np.int64]], Mask]:
    """Which blocks of pixels are covered in the frames that are given for them, by the nearest of the pictures.

    The pictures are of the frames `at`.

    A block is covered by what stays in front of it for some pictures in a row; leaves and waves do so more briefly.
    Beside somebody they are a part of his region, but no farther from the background than they ever are.
    """
    far, masks = np.float32(WITHIN) * found.flicker, []
    low, high = found.bounds(THRESHOLD, far), found.bounds(THRESHOLD, found.flicker)
    for one, v in zip(pictures, found.coefficients_of(pictures)[0], strict=True):
        background, mask = found.compare(one, v, low, high)
        masks.append(ndimage.binary_dilation(blocks_of_things(mask, one.luma, background.luma), np.ones((3, 3), bool)))
    in_front = np.stack(masks).reshape(len(masks), -1)
    spells = in_front[0] + np.count_nonzero(in_front[1:] & ~in_front[:-1], axis=0)
    many = in_front.sum(axis=0)
    is_long = (many >= LONG * len(in_front)) & (many <= ALWAYS * len(in_front))
    covered = in_front & (many >= SPELL * spells) & is_long
    blocks, halfway = np.arange(covered.shape[1]), (np.array(at[1:]) + np.array(at[:-1])) / 2
    return lambda tile, frames: covered[np.searchsorted(halfway, frames), blocks[tile]]


def complete(
    found: Background, pictures: Sequence[Picture], samples: PixelSamples, earlier: Sequence[Spots] = ()
) -> tuple[Background, list[Spots]]:
    """A background that was fitted to these samples, without ghosts and with the flicker, by some whole pictures.

    The flicker is that of their spots and of earlier ones; the latest are returned, too. The samples of ghosts are
    corrected, so that they do not come back.
    """
    clean, v = found.without_ghosts(pictures), found.coefficients
    blocks = np.flatnonzero(max_of_block(np.any(clean.luma != found.luma, axis=0)))
    if blocks.size:
        samples.correct(blocks, lambda t: found.picture(v[t]), lambda t: clean.picture(v[t]))
    spots = spots_in(clean, pictures)
    spots = remembered(earlier, spots) if earlier else spots
    return replace(clean, flicker=flicker_of(spots)), spots


def learn_behind(
    found: Background, pictures: Sequence[Picture], at: Sequence[int], samples: PixelSamples
) -> tuple[Background, list[Spots]]:
    """A background that was fitted to these samples, learnt again from those of them in which nothing stays in front.

    Who stays for long is seen so often that the background has some of him, or seems to vary as much as he differs from
    it. The pictures are of frames `at` some numbers; their spots are returned, too.
    """
    found, spots = complete(found, pictures, samples)
    for _ in range(LOOKS):
        release_memory()
        if samples.uncover(in_front_of(found, pictures, at)) < FEW:
            break
        fit_again, v = fitter(found), found.coefficients
        del found
        found, spots = complete(fit_again(samples, v), pictures, samples)
    return found, spots


def judged(found: Background, used: Background, pictures: Sequence[Picture]) -> Background:
    """A background, with what speaks against it in pictures that were separated by the one that was used."""
    seen = used.shares_explained(pictures) if pictures else np.empty(0)
    signs = signs_in(used, pictures) + place_in(used, pictures)
    return replace(found, lost=share_lost(found.still, pictures), seen=seen, signs=signs)
