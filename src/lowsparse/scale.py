"""How large residuals are when some of them are outliers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["CONSISTENT", "OUTLIER", "outlying", "robust_scale", "trimmed_deviation"]

CONSISTENT = 1.4826  # the standard deviation of normal noise, in medians of its magnitude
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
    return np.flatnonzero((e > bound) | (e < -bound))


def trimmed_deviation(e: NDArray[np.float64], guess: float) -> float:
    """The standard deviation of the inliers, from the residuals within 2.5 times of it.

    >>> e = np.random.default_rng(1).standard_normal(10_000)
    >>> e[:1000] += 50.0
    >>> round(trimmed_deviation(e, robust_scale(e)), 1)
    1.0
    """
    for _ in range(5):
        inside = e[np.abs(e) <= CUT * guess]
        if inside.size < 0.2 * e.size:
            break
        guess = math.sqrt(float(np.mean(inside**2)) / VARIANCE)
    return guess
