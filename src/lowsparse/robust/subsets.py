"""Random subsets: what explains most of the entries of a line, or most lines, though nearly half of them are wrong.

Reweighted regression follows one path, and ends at the wrong place if many entries of the line are wrong. Here r
entries of each line at a time are drawn and fitted exactly; one draw in (1/q)^r is free of errors if the share q of the
entries is right. Of each line the draw with the smallest loss is refined by reweighting.
"""

from __future__ import annotations

import math

import numpy as np

from ..entries.observed import ObservedMatrix
from ..sweeps import Draws, Float, Robust

__all__ = ["regress_by_subsets", "sparsest_direction"]

RIGHT = (0.6, 0.5)  # share of the entries of a line that are right, at which a good draw is likely; where it matters
GOOD = 5.0  # expected number of good draws: more are not made of a line
DRAWS = (20, 200, 2000)  # for a line: least, most, and most where it matters,
WORK = (2e7, 1e8)  # as long as draws times (entries times rank + lines times rank³) are fewer
TURNS = 8  # reweighted regressions that refine
BOUND = 3.0  # c: residuals up to this are those of entries that are right


def regress_by_subsets(
    M: ObservedMatrix,
    B: Float,
    C: Float,
    c: float,
    rng: np.random.Generator,
    backend: str = "auto",
    *,
    thorough: bool = False,
) -> Float:
    """Coefficients (n x r) of the columns of M on B (m x r), with a sum of log(1 + (e/c)²) no larger than that of C.

    >>> rng = np.random.default_rng(1)
    >>> B = np.linalg.qr(rng.standard_normal((12, 2)))[0]
    >>> x = B @ [3.0, -1.0]
    >>> x[:5] = 7.0  # five of twelve entries are stuck at one value
    >>> M = ObservedMatrix.from_dense(x[:, None])
    >>> regress_by_subsets(M, B, np.zeros((1, 2)), 0.01, rng).round(3).tolist()
    [[3.0, -1.0]]
    """
    sweep = M.open_sweep(backend)  # the matrix is in memory
    best = sweep.subsets(B, C, _drawn(M, B.shape[1], c, rng, thorough))
    best = sweep.regress(B, best, Robust(c=c, turns=TURNS)).V
    owner = M.columns_of_entries()
    at_first, refined = (
        np.bincount(owner, weights=np.log1p((sweep.residual(B, V) / c) ** 2), minlength=len(C)) for V in (C, best)
    )
    return np.where((refined < at_first)[:, None], best, C)


def _drawn(M: ObservedMatrix, r: int, c: float, rng: np.random.Generator, thorough: bool) -> Draws:
    """How subsets of each line are drawn, and how many at most."""
    counts = M.column_counts
    affordable = int(WORK[thorough] / (M.nnz * r + counts.size * r**3))
    many = min(math.ceil(GOOD / RIGHT[thorough] ** r), DRAWS[1 + thorough], affordable)
    many = max(DRAWS[0], many)
    seeds = rng.integers(2**64, size=counts.size, dtype=np.uint64)
    return Draws(seeds, many, c, BOUND * c, GOOD)


def sparsest_direction(F: Float, rng: np.random.Generator, draws: int = 400) -> tuple[Float, float]:
    """A direction in which most rows of F (n x k) have nothing: it, and the median of |row · it| / |row|.

    Orthogonal to k - 1 rows at random; the best of several.

    >>> rng = np.random.default_rng(1)
    >>> F = rng.standard_normal((50, 3))
    >>> F[:40, 1] = 0.0
    >>> direction, size = sparsest_direction(F, rng)
    >>> np.abs(direction).round(6).tolist(), size < 1e-9
    ([0.0, 1.0, 0.0], True)
    """
    n, k = F.shape
    unit = F / np.maximum(np.linalg.norm(F, axis=1, keepdims=True), np.finfo(float).tiny)
    if k == 1:
        return np.ones(1), float(np.median(np.abs(unit)))
    some = unit[rng.integers(n, size=(draws, k - 1))]
    directions = np.linalg.svd(some)[2][:, -1]
    sizes = np.median(np.abs(unit @ directions.T), axis=0)
    best = int(np.argmin(sizes))
    return np.asarray(directions[best], dtype=np.float64), float(sizes[best])
