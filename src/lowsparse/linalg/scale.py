"""Where numbers lie and how large they are when some of them are outliers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .arrays import device_kernels

__all__ = [
    "CONSISTENT",
    "CONSISTENT_LOW",
    "LARGEST",
    "LOW",
    "OUTLIER",
    "outlying",
    "robust_scale",
    "trimmed_deviation",
]

CONSISTENT = 1.4826  # the standard deviation of normal noise, in medians of its magnitude
LOW, CONSISTENT_LOW = 0.35, 2.2036  # the same for this quantile, where more than half of the entries may be wrong
LARGEST = 1e70  # magnitude that can be computed with: the powers that solvers form stay in range
OUTLIER = 4.0  # standard deviations
CUT = 2.5
VARIANCE = 0.9113  # of a standard normal variable cut off there


def robust_scale(e: NDArray[np.float64]) -> float:
    """The standard deviation that normal noise would have with this median of |e|.

    >>> robust_scale(np.array([1.0, -1.0, 1.0, 500.0]))
    1.4826
    """
    return CONSISTENT * float(np.median(np.abs(e)))


def outlying(e: NDArray[np.float64], bound: float) -> NDArray[np.intp]:
    """Where |e| is larger than the bound.

    >>> outlying(np.array([0.5, -3.0, 1.0]), 1.0).tolist()
    [1]
    """
    kernels = device_kernels(e)
    return np.flatnonzero((e > bound) | (e < -bound)) if kernels is None else kernels.beyond(e, bound)


def trimmed_deviation(e: NDArray[np.float64], guess: float) -> float:
    """The standard deviation of the inliers, from the residuals within 2.5 times of it.

    >>> e = np.random.default_rng(1).standard_normal(10_000)
    >>> e[:1000] += 50.0
    >>> round(trimmed_deviation(e, robust_scale(e)), 1)
    1.0
    """
    sizes, squares = np.abs(e), e * e
    for _ in range(5):
        inside = sizes <= CUT * guess
        count = np.count_nonzero(inside)
        if count < max(0.2 * e.size, 1):
            break
        guess = math.sqrt(float(squares @ inside.astype(np.float64)) / count / VARIANCE)
    return guess
