"""Light that changes in a part of the picture only, as a lamp that is dimmed or the sun behind a window.

One brightness does not follow it: what it leaves of the pictures is a pattern in space that comes and goes. The means
of what is left over some cells of the picture, in units of their noise, are a matrix of pictures x cells, whose
singular values are at most √pictures + √cells if it is noise alone. Light of this kind is one that is far beyond
that, and alone: people, leaves and a camera that moves leave several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..entries.pictures import Picture
from .background import THRESHOLD, Background, is_uneven, some_pixels

CELLS = 8  # to a side of the picture
STRONG, ALONE = 8.0, 4.0  # times the noise, and the next pattern, is the strongest one if light changes in a part
FOLLOWED = 3.0  # times smaller it is once light is followed
QUIETEST = 0.5  # grey levels: the least noise, of what is rounded


def with_local_light(plain: Background, pictures: Sequence[Picture], fit: Callable[[], Background]) -> Background:
    """The plain background of rank 1, or that of rank 2 by `fit` if this follows a light which the plain one does not.

    >>> from lowsparse.datasets import moving_blocks
    >>> from lowsparse.video.fitting import fit_background
    >>> from lowsparse.video.sampling import PixelSampler
    >>> sampler = PixelSampler(1.0, random_state=0)
    >>> pictures = [Picture(one) for one in moving_blocks(60, 48, 64, random_state=1).frames]
    >>> for one in pictures:
    ...     sampler.add(one)
    >>> plain = fit_background(sampler, 1, "auto")
    >>> with_local_light(plain, pictures[::3], lambda: fit_background(sampler, 2, "auto", plain=plain)).rank
    2
    """
    strongest, second = patterns_left(plain, pictures)
    if strongest < max(STRONG, ALONE * second):
        return plain
    lit = fit()
    follows = FOLLOWED * patterns_left(lit, pictures)[0] < strongest
    return lit if follows and not is_uneven(lit.shares_explained(pictures)) else plain


def patterns_left(background: Background, pictures: Sequence[Picture]) -> tuple[float, float]:
    """How strong the two strongest patterns are in what the background leaves of the pictures; of noise they are 1."""
    height, width = background.noise.shape
    pixels = some_pixels(background.noise.size)
    rows, columns = np.divmod(pixels, width)
    cells = rows * CELLS // height * CELLS + columns * CELLS // width
    noise = np.maximum(background.noise.ravel()[pixels], QUIETEST)
    bound = THRESHOLD * background.spread()[0].ravel()[pixels]
    means = []
    for left in background.leftovers(pictures, pixels):
        near = np.abs(left) <= bound
        sums = np.bincount(cells, np.where(near, left / noise, 0.0), CELLS**2)
        means.append(sums / np.sqrt(np.maximum(np.bincount(cells, near, CELLS**2), 1.0)))
    about_usual = np.array(means) - np.median(means, axis=0)
    values = np.linalg.svd(about_usual, compute_uv=False) / (np.sqrt(len(means)) + CELLS)
    return float(values[0]), float(values[1]) if len(values) > 1 else 0.0
