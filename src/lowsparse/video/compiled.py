"""The compiled kernels on the pixels of a video (cpp/pixels.cpp, cpp/regions.hpp); without the core NumPy does it.

The masks have the same bits as those of `foreground`, and so have the sums of `registration`; the regression of blocks
is that of `pixel_regression`, but for the rounding of its sums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..entries.pictures import Grey
from ..sweeps import Float, native
from .sampling import Single

Integers = NDArray[np.int32]


def is_available() -> bool:
    """Whether the compiled core is there."""
    return native.reason_unavailable() is None


def compare(planes: Single, v: Float, zero: int, values: Grey, low: Grey, high: Grey) -> tuple[Grey, Grey]:
    """Of pixels (..., H, W) the background Σ v_k planes_k + zero, and (H, W) where some channel differs from it.

    Bit 0 says that it differs by more than `low`, bit 1 by more than `high`.
    """
    background, beyond = np.empty(values.shape, np.uint8), np.empty(values.shape[-2:], np.uint8)
    native.core().compare_pixels(
        planes, v.astype(np.float32), zero, values, low, high, background, beyond, native.instruction_set()
    )
    return background, beyond


def mask_of_bits(
    bits: Grey, chroma: Grey | None, radius: int, parts: tuple[float, float, float, float], fine: int
) -> NDArray[np.bool_]:
    """The mask of what is in front, from bits as `compare` gives them, which are changed; those of chroma are added.

    `parts` and `fine` are what `foreground` calls LARGE, TINY, HOLE, SEEDS and FINE.
    """
    mask = np.empty(bits.shape, bool)
    native.core().mask_of_bits(bits, chroma, radius, *parts, fine, mask.view(np.uint8), native.instruction_set())
    return mask


def shift_sums(
    luma: Grey,
    places: tuple[Integers, Integers],
    expected: Integers,
    unit: int,
    bound: int,
    around: tuple[int, int],
    reach: int,
) -> Integers:
    """For shifts of a picture, how far its gradients are from those expected; see `registration.Level`."""
    size = 2 * reach + 1
    sums = np.empty((2, size, size), np.int32)
    native.core().shift_sums(luma, *places, expected, unit, bound, *around, sums, native.instruction_set())
    return sums


def fit_blocks(
    x: Sequence[Grey],
    v: Single,
    begin: int,
    compared: tuple[NDArray[np.intp], NDArray[np.intp]],
    level: tuple[float, float],
    constants: Sequence[float],
    fits: tuple[int, int],
    quantile: tuple[int, float],
) -> tuple[Single, Single]:
    """b and noise of the blocks from `begin` on, as many as v has columns; see `pixel_regression.fit_samples`."""
    shape = x[0].shape[0], v.shape[1]
    b, noise = np.empty(shape, np.float32), np.empty(shape, np.float32)
    candidates, others = (one.astype(np.int32) for one in compared)
    native.core().fit_blocks(
        list(x),
        v,
        begin,
        candidates,
        others,
        *level,
        list(constants),
        *fits,
        *quantile,
        b,
        noise,
        native.instruction_set(),
    )
    return b, noise
