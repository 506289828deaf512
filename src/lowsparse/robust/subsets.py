"""Regression by random subsets: what explains most of the entries of a line, though nearly half of them are wrong.

Reweighted regression follows one path, and ends at the wrong place if many entries of the line are wrong. Here r
entries of each line at a time are drawn and fitted exactly; one draw in (1/q)^r is free of errors if the share q of the
entries is right. Of each line the draw with the smallest loss is refined by reweighting.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..observed import ObservedMatrix
from ..sweeps import Float, Robust, Sweep

__all__ = ["regress_by_subsets"]

RIGHT = 0.6  # share of the entries of a line that are right, at which a good draw is likely
GOOD = 5.0  # expected number of good draws
DRAWS = (20, 200)  # least and most for a line,
WORK = 2e7  # as long as draws times (entries times rank + lines times rank³) are fewer
TURNS = 8  # reweighted regressions that refine


def regress_by_subsets(
    M: ObservedMatrix, sweep: Sweep, B: Float, C: Float, c: float, rng: np.random.Generator
) -> Float:
    """Coefficients (n x r) of the columns of M on B (m x r), with a sum of log(1 + (e/c)²) no larger than that of C.

    >>> from lowsparse.sweeps import open_sweep
    >>> rng = np.random.default_rng(1)
    >>> B = np.linalg.qr(rng.standard_normal((12, 2)))[0]
    >>> x = B @ [3.0, -1.0]
    >>> x[:5] = 7.0  # five of twelve entries are stuck at one value
    >>> M = ObservedMatrix.from_dense(x[:, None])
    >>> regress_by_subsets(M, open_sweep(M, "numpy"), B, np.zeros((1, 2)), 0.01, rng).round(3).tolist()
    [[3.0, -1.0]]
    """
    r, counts = B.shape[1], M.column_counts
    draws = int(np.clip(math.ceil(GOOD / RIGHT**r), *DRAWS))
    owner = M.columns_of_entries()
    lines = np.flatnonzero(counts > r)
    draws = max(DRAWS[0], min(draws, int(WORK / (M.nnz * r + lines.size * r**3))))
    best, least = C.copy(), np.full(len(C), np.inf)
    for _ in range(draws):
        V = C.copy()
        V[lines] = _through_some(M, B, lines, rng)
        loss = _loss(sweep.residual(B, V), c, owner, len(C))
        better = loss < least
        best[better], least[better] = V[better], loss[better]
    best = sweep.regress(B, best, Robust(c=c, turns=TURNS)).V
    at_first, refined = (_loss(sweep.residual(B, V), c, owner, len(C)) for V in (C, best))
    return np.where((refined < at_first)[:, None], best, C)


def _through_some(M: ObservedMatrix, B: Float, lines: NDArray[np.intp], rng: np.random.Generator) -> Float:
    """Coefficients that fit r entries of each of these lines: from a random one on, at random but equal distances."""
    r, counts = B.shape[1], M.column_counts[lines]
    first = rng.integers(counts)
    step = rng.integers(1, np.maximum((counts - 1) // max(r - 1, 1), 1) + 1)
    place = (first[:, None] + step[:, None] * np.arange(r)) % counts[:, None]
    drawn = M.indptr[:-1][lines, None] + place
    F, x = B[M.rows[drawn]], M.values[drawn].astype(np.float64)
    Ft = np.swapaxes(F, 1, 2)
    gram = Ft @ F
    size = np.trace(gram, axis1=1, axis2=2)[:, None, None]
    gram += (1e-12 * size + np.finfo(float).tiny) * np.eye(r)  # so that none is singular
    return np.asarray(np.linalg.solve(gram, Ft @ x[:, :, None])[:, :, 0], dtype=np.float64)


def _loss(e: Float, c: float, owner: NDArray[np.int32], lines: int) -> Float:
    """Σ log(1 + (e/c)²) over each line."""
    return np.asarray(np.bincount(owner, weights=np.log1p((e / c) ** 2), minlength=lines), dtype=np.float64)
