"""The affine subspace that most samples are closest to, though others are closer to each other.

It minimises the mean of the smallest squares of the distances from it, of h samples: the least trimmed squares of
Rousseeuw (JASA 1984), here with a subspace in place of a regression (Maronna, Technometrics 2005). The search is that
of Rousseeuw and Van Driessen (Data Mining and Knowledge Discovery 2006): subspaces through k + 1 samples drawn at
random are concentrated, the h samples closest to one giving the next, and the best ones until they stay the same. A
group of bad samples, however tight, is fewer than h, so that a subspace bent towards it is farther from the others.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..entries.statistics import usual_numbers
from ..sweeps import Float

MOST = 0.55  # share of the samples to which the subspace must be close
FIRST_SAMPLE, SAMPLE = 200, 500  # samples by which the best starts are found; and the subspace
GOOD_STARTS, MOST_STARTS = 5.0, 500  # starts without a bad sample, in the mean; all starts
STEPS, BEST, LAST_STEPS = 2, 10, 20  # of concentration; starts that are concentrated further
TOGETHER = 2**20  # numbers at once
STRICT = 3.5  # cut-off in robust standard deviations
GAP = 1.5  # distances behind a gap relative to those in front of it
BETWEEN, FEWEST = 0.1, 0.05  # samples in it relative to those behind it, at most; share of these, at least


class Plane(NamedTuple):
    """An affine subspace of scores."""

    centre: Float  # p
    axes: Float  # p x k, orthonormal

    def distances(self, Z: Float) -> Float:
        """Of the rows of Z."""
        away = Z - self.centre
        return np.asarray(np.linalg.norm(away - away @ self.axes @ self.axes.T, axis=1))


def majority_plane(Z: Float, k: int) -> Plane:
    """The affine subspace of dimension k of the rows of Z with the least trimmed squares found.

    >>> rng = np.random.default_rng(1)
    >>> Z = rng.standard_normal((200, 3)) * [5.0, 3.0, 0.1]
    >>> Z[:80] = [4.0, 0.0, 3.0] + 0.05 * rng.standard_normal((80, 3))
    >>> found = majority_plane(Z, 2)
    >>> bool(np.linalg.norm(found.axes[2]) < 0.05), bool(found.distances(Z)[:80].min() > 2.5)
    (True, True)
    """
    few = Z[:: -(-len(Z) // FIRST_SAMPLE)]
    n, p = few.shape
    count = min(MOST_STARTS, math.ceil(GOOD_STARTS / MOST ** (k + 1)))
    rng = np.random.default_rng(0x6D616A)
    starts = np.argsort(rng.random((count, n)), axis=1)[:, : k + 1]
    parts = np.array_split(starts, max(1, count * n * p // TOGETHER))
    found = [_concentrate(few, *_through(few, part), k, STEPS) for part in parts]
    centres, axes, squares = (np.concatenate(x) for x in zip(*found, strict=True))
    best = np.argsort(squares, kind="stable")[:BEST]
    centres, axes, squares = _concentrate(Z[:: -(-len(Z) // SAMPLE)], centres[best], axes[best], k, LAST_STEPS)
    first = int(np.argmin(squares))
    return Plane(centres[first], axes[first, :, :k])


def far_apart(distances: Float) -> NDArray[np.bool_]:
    """Which samples are far from the subspace of most, if hardly any is between them and the others; none otherwise.

    >>> near, far = np.linspace(0.1, 1, 60), np.linspace(5, 6, 40)
    >>> [int(far_apart(np.concatenate([near, x])).sum()) for x in (far, np.linspace(1, 6, 40))]
    [40, 0]
    """
    r = np.sort(distances)
    middle, spread = usual_numbers(np.cbrt(r**2))
    cutoff = (middle + STRICT * spread) ** 1.5
    ends = np.concatenate([[cutoff], r[r > cutoff]])  # where a gap may begin
    beyond = r.size - np.searchsorted(r, GAP * ends)
    between = r.size - np.searchsorted(r, ends, side="right") - beyond
    found = np.flatnonzero((beyond >= FEWEST * r.size) & (between <= BETWEEN * beyond))
    return distances >= GAP * ends[found[0]] if found.size else np.zeros(distances.shape, bool)


def _most(n: int) -> int:
    return math.ceil(MOST * n)


def _through(Z: Float, starts: NDArray[np.intp]) -> tuple[Float, Float]:
    """Centres and axes of the affine subspaces through samples, k + 1 for each; the axes from k on are orthogonal."""
    points = Z[starts]
    centres = points.mean(axis=1)
    return centres, np.linalg.qr(np.swapaxes(points[:, 1:] - points[:, :1], 1, 2), mode="complete")[0]


def _concentrate(Z: Float, centres: Float, axes: Float, k: int, steps: int) -> tuple[Float, Float, Float]:
    """Affine subspaces after steps in each of which the samples closest to one give the next; their objectives."""
    h = _most(len(Z))
    for _ in range(steps):
        closest = np.argpartition(_squares(Z, centres, axes[:, :, k:]), h - 1, axis=1)[:, :h]
        points = Z[closest]
        new = points.mean(axis=1)
        points -= new[:, None]
        axes = np.linalg.eigh(np.swapaxes(points, 1, 2) @ points)[1][:, :, ::-1]
        at_rest = np.allclose(new, centres, rtol=1e-12, atol=0.0)
        centres = new
        if at_rest:
            break
    squares = np.partition(_squares(Z, centres, axes[:, :, k:]), h - 1, axis=1)[:, :h].mean(axis=1)
    return centres, axes, squares


def _squares(Z: Float, centres: Float, normals: Float) -> Float:
    """The squares of the distances of all samples from each of some affine subspaces, by what is orthogonal to it."""
    middle = np.matmul(centres[:, None], normals)[:, 0]
    along = np.matmul(np.moveaxis(normals, 2, 0), Z.T) - middle.T[:, :, None]
    return np.asarray(np.sum(along * along, axis=0))
