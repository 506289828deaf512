"""Whether samples off a subspace are the rest of a curved cloud, of which the others are an almost flat part.

Then they are at all distances from it, their place off it is a function of their place along it, and nobody else is
there. A group of its own is at about one distance, and other bad samples are anywhere along the subspace.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..sweeps import Float
from .cases import are_alike

NEIGHBOURS = 5  # samples close to another
FEWEST = 10  # samples that show a curve
ERROR = 0.25  # of a place off the subspace, by that of neighbours, relative to its distance
AMONG = 0.25  # share of the samples off the subspace with others as close as these are to each other


def continue_as_curve(along: Float, beyond: Float, off: NDArray[np.bool_]) -> bool:
    """Whether the samples that are `off` continue the others, by scores `along` a subspace and `beyond` it.

    >>> t = np.linspace(-2, 2, 100)
    >>> bend, group = np.maximum(t - 1, 0) ** 2, 5.0 * (t > 1)
    >>> [continue_as_curve(t[:, None], y[:, None], t > 1.2) for y in (bend, group)]
    [True, False]
    """
    from scipy.spatial import KDTree  # not before it is needed: it takes a while

    if np.count_nonzero(off) < FEWEST or np.count_nonzero(~off) <= NEIGHBOURS:
        return False
    distance = np.linalg.norm(beyond[off], axis=1)
    if are_alike(distance):
        return False
    spread = np.median(np.abs(along - np.median(along, axis=0)), axis=0)
    along = along / np.maximum(spread, np.finfo(float).tiny)
    closest = np.asarray(KDTree(along).query(along[off], NEIGHBOURS + 1)[1])[:, 1:]  # the first is the sample itself
    error = np.linalg.norm(beyond[off] - beyond[closest].mean(axis=1), axis=1)
    if np.median(error) >= ERROR * np.median(distance):
        return False
    others = KDTree(along[~off])
    usual = np.median(np.asarray(others.query(along[~off], NEIGHBOURS + 1)[0])[:, -1])
    nearest = np.asarray(others.query(along[off], NEIGHBOURS)[0])[:, -1]
    return bool(np.mean(nearest <= usual) < AMONG)
