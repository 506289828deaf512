"""Things that stay before leaves or water, told from them by how calm they are.

Who covers leaves for half of the time is seen more often than any look of theirs, and the regression takes him for
their background. But he looks the same for a while, and they never do. The samples of a block are split into those of
its calm spells and the others. Blocks that have both make regions, in which either something calm stays before what is
never calm, or something restless before a calm background. It is the former if what surrounds the region is mostly
never calm, and if of the two pictures, that of the calm spells and that of the rest, the first one has the outline of
the region and the second has less of it (see `ghosts`): what is behind goes on beyond the region. A post before which
leaves are blown has many calm spells, somebody who passes slowly a few.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ..entries.pictures import Grey, levels
from ..robust.regression import EFFICIENT
from ..sweeps import Float
from .background import Background
from .foreground import Mask, label_regions, majority
from .ghosts import PERHAPS, ratio_of_steps
from .light import NO_LIGHT
from .sampling import UNCOVERED, PixelSamples, Single
from .witnesses import SPOT

IN_A_ROW = 5  # differences of samples from the ones before them, of which
MOST = 0.75  # so many vanish in the mean in a calm spell
BOTH = 0.2  # least share of the samples of a block that are in calm spells, and that are in none
SPELLS = 2.5  # calm spells, in the mean over a region, that somebody has at most
AROUND = 5  # side of the square of blocks around a block in which a region has its surroundings


def calm_spells(x: Single, c: float) -> Mask:
    """Which samples (of values x blocks x samples) look like those beside them, by the width c of a difference.

    >>> x = np.full((1, 1, 20), 50, np.float32)
    >>> x[0, 0, 12:] = np.arange(8) % 2 * 90
    >>> calm_spells(x, 5.0)[0].astype(int).tolist()
    [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    """
    q = (np.diff(x / np.float32(c), axis=-1) ** 2).mean(axis=0) / 2
    q *= q
    same = ndimage.uniform_filter1d(1 / (1 + q), IN_A_ROW, axis=-1, mode="nearest") >= MOST
    reach = IN_A_ROW // 2
    within = ndimage.maximum_filter1d(np.pad(same, [(0, 0), (reach, reach)]).view(np.uint8), IN_A_ROW, axis=-1)
    calm = np.zeros(x.shape[1:], bool)
    calm[:, 1:] = within[:, reach:-reach]
    calm[:, :-1] |= calm[:, 1:]
    return calm


def things_before_leaves(found: Background, samples: PixelSamples) -> Callable[[slice, NDArray[np.int64]], Mask]:
    """Which samples of which blocks show something calm before what is never calm; for `PixelSamples.uncover`."""
    layout = samples.layout
    sides = -(-layout.shape[0] // 2), -(-layout.shape[1] // 2)
    light = np.maximum(found.coefficients @ found.brightness, NO_LIGHT).astype(np.float32)
    light /= np.float32(max(float(found.usual @ found.brightness), NO_LIGHT))
    share, spells = np.zeros((2, layout.blocks))  # of samples that are in calm spells, and the number of these,
    bits = list[Grey]()  # and which samples they are, eight in a byte
    looks = np.zeros((2, layout.blocks), np.float32)  # in calm spells, and otherwise
    for k in range(0, layout.blocks, UNCOVERED):
        tile = slice(k, min(k + UNCOVERED, layout.blocks))
        x = samples.values(tile)[:4] / light[samples.frames(tile)]
        calm = calm_spells(x, EFFICIENT * found.noise_level[0])
        share[tile], spells[tile] = calm.mean(axis=1), calm[:, 0] + (calm[:, 1:] > calm[:, :-1]).sum(axis=1)
        bits.append(np.packbits(calm, axis=1))
        for look, which in zip(looks, (calm, ~calm), strict=True):
            look[tile] = (x.mean(axis=0) * which).sum(axis=1) / np.maximum(which.sum(axis=1), 1)
    share, spells = share.reshape(sides), spells.reshape(sides)
    has_both = majority((share >= BOTH) & (share <= 1 - BOTH), 1)
    still = found.still.luma[::2, ::2]
    one, other = (np.where(has_both, levels(look).reshape(sides), still) for look in looks)
    hides = (ratio_of_steps(has_both, other, one) > PERHAPS) & _amid(has_both, share < BOTH, spells)
    covered = np.concatenate(bits) & -hides.reshape(-1, 1).view(np.uint8)
    return lambda tile, frames: np.unpackbits(covered[tile], axis=1, count=len(frames)).view(bool).T


def _amid(regions: Mask, others: Mask, spells: Float) -> Mask:
    """The regions that are not small, have mostly others around them, and few spells."""
    labels, areas = label_regions(regions, corners=True)
    around = np.where(regions, 0, ndimage.grey_dilation(labels, size=(AROUND, AROUND)))
    is_amid = 2 * np.bincount(around[others], minlength=areas.size) > np.bincount(around.ravel(), minlength=areas.size)
    is_amid &= (areas >= regions.size / SPOT) & (np.bincount(labels.ravel(), spells.ravel()) <= SPELLS * areas)
    is_amid[0] = False
    return np.asarray(is_amid[labels])
