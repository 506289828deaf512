"""What is missing from a table, by what is there: scales and offsets, a low-rank part, and new rows placed on it.

    x_ij = s_j (b_j + a_i + y_ij + noise),   y of low rank, some entries grossly wrong.

Rows are samples. The scales s, levels b and offsets a are those of `lowsparse.offsets`, y is the L of the method
"schatten", or of the default method at the same rank where the data are so nearly exact that no shrinkage is better.
A row that was not fitted gets its offset, then its place on the low-rank part, by the same robust
regressions, from its own entries alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from .lines import EFFICIENT, Placement
from .lowrank import LowRank
from .observed import ObservedMatrix
from .offsets import Preparation
from .result import Result
from .scale import OUTLIER, robust_scale
from .solve import Progress, solve
from .sweeps import Float

__all__ = ["Imputation"]

NEARLY_EXACT = 0.05  # noise, in units of the features' spread: below it shrinkage may be the larger error
USUAL = 3.0  # times the usual length of a row: what is longer, and not borne out by its entries, is not believed


@dataclass(frozen=True)
class Imputation:
    """A fitted table.

    >>> rng = np.random.default_rng(1)
    >>> truth = 5 + rng.standard_normal((80, 2)) @ rng.standard_normal((2, 12))
    >>> M = ObservedMatrix.from_dense(np.where(rng.random(truth.shape) < 0.2, np.nan, truth))
    >>> model = Imputation.fit(M)
    >>> bool(np.abs(model.predict(M.T, 80) - truth).max() < 0.1)
    True
    """

    preparation: Preparation
    result: Result  # of the low-rank part
    width: float  # c of the offsets of rows
    converged: bool  # the method met its own test, or two methods agree

    @classmethod
    def fit(
        cls,
        M: ObservedMatrix,
        rank: int | str = "auto",
        *,
        max_iter: int = 500,
        backend: str = "auto",
        random_state: int | np.random.Generator | None = 0,
        callback: Callable[[Progress], object] | None = None,
    ) -> Self:
        """Learn from the entries of M; `rank` is the largest rank of y, `callback` that of `solve`."""
        if rank != "auto" and (isinstance(rank, bool | str) or not isinstance(rank, int | np.integer) or rank < 1):
            raise ValueError(f"rank must be a whole number of 1 or more, or 'auto', not {rank!r}")
        preparation = Preparation.fit(M, rows=rows_differ(M), backend=backend)
        rest = preparation.apply(M)
        most = None if isinstance(rank, str) else min(int(rank), *M.shape)
        how = {"max_iter": max_iter, "backend": backend, "random_state": random_state, "callback": callback}
        result = solve(rest, most, method="schatten", **how)  # type: ignore[arg-type]
        converged = result.converged
        if result.noise < NEARLY_EXACT and result.L.V.any():
            exact = solve(rest, result.L.rank, **how)  # type: ignore[arg-type]
            if exact.noise < 0.5 * result.noise and (exact.converged or agree(exact, result)):
                result, converged = exact, True
        return cls(preparation, result, EFFICIENT * robust_scale(rest.values.astype(np.float64)), converged)

    @property
    def rank(self) -> int:
        """Of y; 0 if nothing predicts entries better than scales and offsets do."""
        return int(np.count_nonzero(np.linalg.norm(self.result.L.V, axis=1)))

    @property
    def tolerance(self) -> Float:
        """Of each column: an entry is a gross error if it is farther than this from what is predicted."""
        return (OUTLIER * self.result.noise + 1e-7) * self.preparation.scale

    @functools.cached_property
    def lowrank(self) -> LowRank:
        """All entries of the rows it was learnt from, as factors: s_j (b_j + a_i + y_ij) = [U, a, 1] [s V; s; s b]."""
        prepared, L = self.preparation, self.result.L
        one = np.ones(L.shape[0])
        return LowRank(
            np.column_stack([L.U, prepared.offset, one]),
            np.vstack([prepared.scale * L.V, prepared.scale, prepared.scale * prepared.level]),
        )

    def predict(self, M: ObservedMatrix | None, rows: int, backend: str = "auto") -> Float:
        """All entries of rows, new or not, given as the columns of M; None if they have no entry at all."""
        scale, level = self.preparation.scale, self.preparation.level
        y = np.zeros((rows, scale.size))
        if M is not None:
            rest = M.with_values((M.values / scale[M.rows] - level[M.rows]).astype(M.dtype))
            if math.isfinite(self.preparation.damping):
                one = np.ones((scale.size, 1))
                y += self._place(one, self.width, self.preparation.damping).coefficients(rest, backend)
                offset = np.repeat(y[:, 0], rest.column_counts)
                rest = rest.with_values((rest.values - offset).astype(rest.dtype))
            if self.rank:
                B = self._basis()
                y += (
                    self._place(B, EFFICIENT * self.result.noise, self.result.noise**2).coefficients(rest, backend)
                    @ B.T
                )
        return scale * (level + y)

    def _basis(self) -> Float:
        """V diag(σ) / √m: on it the coefficients of a row have the variance 1, so that the noise is their ridge."""
        _, sizes, right = np.linalg.svd(self.result.L.V, full_matrices=False)  # U is orthonormal
        m = self.result.L.shape[0]
        return np.ascontiguousarray(right[: self.rank].T * (sizes[: self.rank] / math.sqrt(m)))

    def _place(self, B: Float, c: float, ridge: float) -> Placement:
        unit = robust_scale(self.result.M.values[:: max(1, self.result.M.nnz // 100_000)].astype(np.float64)) or 1.0
        return Placement(B, c, unit, largest=USUAL * math.sqrt(B.shape[1]), ridge=ridge)


def agree(exact: Result, shrunk: Result) -> bool:
    """Whether two fits by different methods say the same of entries at random, most of them not observed."""
    m, n = shrunk.L.shape
    rng = np.random.default_rng(0)
    i, j = rng.integers(m, size=10_000), rng.integers(n, size=10_000)
    return float(np.median(np.abs(exact.L.at(i, j) - shrunk.L.at(i, j)))) <= OUTLIER * shrunk.noise


def rows_differ(M: ObservedMatrix) -> bool:
    """Whether rows are to have offsets: where most columns have few entries, a low-rank fit cannot tell them."""
    return bool(np.median(M.column_counts) < 50)
