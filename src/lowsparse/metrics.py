"""How far an estimated background is from a trusted one, in the measures of the background benchmarks.

All take two pictures of grey levels from 0 to 255, of the same shape, and give a number. Where several pictures are
given at once, as (T, H, W), it is the mean over them. AGE, pEPs, pCEPs and PSNR are used as in the benchmarks SBI and
SBMnet, with their threshold of 20 levels.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

__all__ = ["age", "background_metrics", "f1", "pceps", "peps", "psnr"]

THRESHOLD = 20.0  # grey levels: a pixel that is farther off is an error
CROSS = ndimage.generate_binary_structure(2, 1)  # a pixel and its four neighbours

_Floats = NDArray[np.float64]


def age(found: ArrayLike, truth: ArrayLike) -> float:
    """Average grey-level error: the mean of |found - truth|, from 0 (equal) to 255.

    >>> age([[10, 20], [30, 40]], [[10, 24], [30, 40]])
    1.0
    """
    return _mean(lambda error: float(error.mean()), found, truth)


def peps(found: ArrayLike, truth: ArrayLike, threshold: float = THRESHOLD) -> float:
    """Share of error pixels: those with |found - truth| > threshold, from 0 to 1.

    >>> peps([[10, 20], [30, 40]], [[10, 60], [50, 40]])  # 20 levels are not yet an error
    0.25
    """
    return _mean(lambda error: float(np.mean(error > threshold)), found, truth)


def pceps(found: ArrayLike, truth: ArrayLike, threshold: float = THRESHOLD) -> float:
    """Share of clustered error pixels: error pixels all of whose four neighbours are error pixels too, from 0 to 1.

    They show what the eye sees, a blob left behind; single wrong pixels do not count. At the border, the neighbours
    inside the picture decide.

    >>> truth = np.zeros((5, 5))
    >>> blob = truth.copy()
    >>> blob[1:4, 1:4] = 100.0  # nine error pixels, of which only the middle one has no other neighbours
    >>> pceps(blob, truth)
    0.04
    """

    def share(error: _Floats) -> float:
        return float(np.mean(ndimage.binary_erosion(error > threshold, CROSS, border_value=1)))

    return _mean(share, found, truth)


def psnr(found: ArrayLike, truth: ArrayLike) -> float:
    """Peak signal-to-noise ratio in decibels: 10 log10(255² / mean (found - truth)²); infinite if they are equal.

    >>> round(psnr([[0.0, 0.0]], [[0.0, 255.0]]), 6)  # a mean square error of 255² / 2
    3.0103
    """

    def decibels(error: _Floats) -> float:
        mean_square = float(np.mean(error**2))
        return 10 * math.log10(255.0**2 / mean_square) if mean_square else math.inf

    return _mean(decibels, found, truth)


def f1(found: ArrayLike, truth: ArrayLike) -> float:
    """F-measure of a mask, 2 tp / (2 tp + fp + fn): from 0 (nothing in common) to 1 (equal, also if both are empty).

    >>> f1([[True, True, False]], [[True, False, False]])
    0.6666666666666666
    """
    one, other = np.asarray(found), np.asarray(truth)
    if one.dtype != bool or other.dtype != bool:
        raise TypeError(f"masks are boolean, not {one.dtype} and {other.dtype}")
    if one.shape != other.shape:
        raise ValueError(f"the masks have different shapes: {one.shape} and {other.shape}")
    marked = int(np.count_nonzero(one)) + int(np.count_nonzero(other))
    return 2 * int(np.count_nonzero(one & other)) / marked if marked else 1.0


def background_metrics(found: ArrayLike, truth: ArrayLike) -> dict[str, float]:
    """All measures of a background at once, by name.

    >>> background_metrics([[10.0, 20.0], [30.0, 40.0]], [[10.0, 20.0], [30.0, 40.0]])
    {'age': 0.0, 'peps': 0.0, 'pceps': 0.0, 'psnr': inf}
    """
    return {measure.__name__: measure(found, truth) for measure in (age, peps, pceps, psnr)}


def _mean(measure: Callable[[_Floats], float], found: ArrayLike, truth: ArrayLike) -> float:
    """Of a measure of |found - truth|, over the pictures."""
    one, other = np.asarray(found, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if one.shape != other.shape:
        raise ValueError(f"the pictures have different shapes: {one.shape} and {other.shape}")
    if one.ndim not in (2, 3) or not one.size:
        raise ValueError(f"a picture is (H, W) and several are (T, H, W), not {one.shape}")
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        raise ValueError("the pictures hold NaN or infinite numbers")
    error = np.abs(one - other)
    pictures = error[None] if error.ndim == 2 else error
    return sum(measure(picture) for picture in pictures) / len(pictures)
