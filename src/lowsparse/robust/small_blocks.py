"""Robust low-rank fits of many small blocks at once, which then stand on the diagonal of one sparse matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..entries.observed import ObservedMatrix
from ..sweeps import Blocks, Float

__all__ = ["BlockFit", "climb_blocks"]


@dataclass(frozen=True)
class BlockFit:
    """L = U Vᵀ of a block, of a rank that explains it, and the scale of what it leaves."""

    U: Float  # orthonormal
    V: Float
    noise: float


def climb_blocks(
    blocks: list[ObservedMatrix], rank: int, unit: float, rng: np.random.Generator, backend: str = "auto"
) -> list[BlockFit]:
    """Fit each of the blocks, one rank after the other, until it is exact; all are taller and wider than the rank.

    >>> rng = np.random.default_rng(1)
    >>> truth = rng.standard_normal((12, 2)) @ rng.standard_normal((2, 14))
    >>> X = np.where(rng.random(truth.shape) < 0.1, 9.0, truth)
    >>> fits = climb_blocks([ObservedMatrix.from_dense(A) for A in (X, X[:10])], 2, 1.0, rng)
    >>> [bool(np.abs(fit.U @ fit.V.T - truth[: len(fit.U)]).max() < 1e-6) for fit in fits]
    [True, True]
    """
    row_starts, column_starts = (np.cumsum([0, *(M.shape[axis] for M in blocks)]) for axis in (0, 1))
    ends = np.cumsum([0, *(M.nnz for M in blocks)])
    indptr = np.concatenate([[0], *(M.indptr[1:] + end for M, end in zip(blocks, ends, strict=False))])
    rows = np.concatenate([M.rows + first for M, first in zip(blocks, row_starts, strict=False)]).astype(np.int32)
    values = np.concatenate([M.values for M in blocks])
    stacked = ObservedMatrix.trusted(indptr, rows, values, (int(row_starts[-1]), int(column_starts[-1])))
    begin = rng.standard_normal((rank, stacked.shape[1]))
    sweep = stacked.open_sweep(backend)  # the blocks are in memory
    fits = sweep.climb(Blocks(row_starts, column_starts, begin, unit))
    return [
        BlockFit(fits.U[a:b, :k], fits.V[c:d, :k], float(noise))
        for a, b, c, d, k, noise in zip(
            row_starts, row_starts[1:], column_starts, column_starts[1:], fits.ranks, fits.noise, strict=False
        )
    ]
