"""What is missing from a table, by what is there: scales and offsets, a low-rank part, and new rows placed on it.

    x_ij = s_j (b_j + a_i + y_ij + noise),   y of low rank, some entries grossly wrong.

Rows are samples. The scales s, levels b and offsets a are those of `offsets`, y is the L of `solve`, its rank chosen by
entries kept aside.
A row that was not fitted gets its offset, then its place on the low-rank part, by the same robust regressions, from its
own entries alone. Rows that were fitted are regressed once more in the end: shrinkage, which may have found the
low-rank part, takes too much off them; the prior that it implies does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from ..entries.observed import ObservedMatrix
from ..linalg.lowrank import LowRank
from ..linalg.scale import CONSISTENT, OUTLIER, outlying, robust_scale
from ..places.pieces.along import along_columns
from ..places.pieces.rewriting import rewritten
from ..result import Result, Status
from ..robust.regression import EFFICIENT, EXPLAINED, Placement
from ..solve import Progress, outliers_at, solve
from ..sweeps import Float, Robust, open_sweep
from .offsets import Preparation

__all__ = ["Imputation", "Prediction"]

HELPS = 0.5  # error of entries kept aside, against what scales and offsets leave of them
AGAIN = 2  # turns of the regression of rows that were fitted
FEW = 20  # entries; the noise of a column with fewer is the usual one
DUST = 1e-60  # of the largest number, or of the features' spread
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
    noise_by_column: Float  # in units of the features' spread

    @classmethod
    def fit(
        cls,
        M: ObservedMatrix | Any,
        rank: int | str = "auto",
        *,
        max_iter: int = 500,
        backend: str = "auto",
        random_state: int | np.random.Generator | None = 0,
        callback: Callable[[Progress], object] | None = None,
    ) -> Self:
        """Learn from M, in memory or in pieces; `rank` is the largest rank of y, `callback` that of `solve`."""
        if rank != "auto" and (isinstance(rank, bool | str) or not isinstance(rank, int | np.integer) or rank < 1):
            raise ValueError(f"rank must be a whole number of 1 or more, or 'auto', not {rank!r}")
        M = without_dust(M)
        preparation = Preparation.fit(M, rows=rows_differ(M), backend=backend)
        most = None if isinstance(rank, str) else min(int(rank), *M.shape)
        how = {"max_iter": max_iter, "backend": backend, "random_state": random_state, "callback": callback}

        def fitted(preparation: Preparation) -> tuple[Preparation, Result]:
            y = preparation.rest(M)
            rest = rewritten(M, y * (np.abs(y) >= DUST))
            return preparation, solve(rest, "auto", max_rank=most, **how)  # type: ignore[arg-type]

        if most is None:
            preparation, result = fitted(preparation)
        else:  # which the table may have as it is, while without its levels it has one component more
            plain, result = fitted(preparation.without_levels())
            error = usual_error(result) if result.converged else math.inf
            by_levels = fitted(preparation) if error > EXPLAINED or result.L.rank < most else None
            if by_levels is None or error < 0.5 * by_levels[1].noise - EXPLAINED:
                preparation = plain
            else:
                preparation, result = by_levels
        result, noise = flagged_by_column(result, backend)
        return cls(preparation, result, EFFICIENT * robust_scale(result.M.values.astype(np.float64)), noise)

    @property
    def rank(self) -> int:
        """Of y; 0 if nothing predicts entries better than scales and offsets do."""
        return int(np.count_nonzero(np.linalg.norm(self.result.L.V, axis=1)))

    @property
    def borne_out(self) -> bool:
        """Whether the method met its test, or stalled but predicts entries kept aside far better than offsets alone."""
        held_out = self.result.held_out
        predicts = held_out is not None and held_out < HELPS * self.width / EFFICIENT
        return self.result.converged or (self.result.status is Status.STALLED and predicts)

    @property
    def tolerance(self) -> Float:
        """Of each column: an entry is a gross error if it is farther than this from what is predicted."""
        return (OUTLIER * self.noise_by_column + 1e-7) * self.preparation.scale

    def lowrank(self, backend: str = "auto") -> LowRank:
        """All entries of the rows it was learnt from: placed as new rows are, but from where the fit has them.

        As factors, with y = A Bᵀ: s_j (b_j + a_i + y_ij) = [A, a, 1] [s Bᵀ; s; s b].
        """
        prepared, L = self.preparation, self.result.L
        A, B = L.U, L.V.T
        if self.rank:
            rows, B = self._factors()
            how = Robust(c=self._c, turns=AGAIN, ridge=self.result.noise**2)
            A = open_sweep(self.result.M.T, backend).regress(B, rows, how).V
        s, one = prepared.scale, np.ones(L.shape[0])
        return LowRank(np.column_stack([A, prepared.offset, one]), np.vstack([s * B.T, s, s * prepared.level]))

    def predict(self, M: ObservedMatrix | None, rows: int, backend: str = "auto") -> Float:
        """All entries of rows, new or not, given as the columns of M; None if they have no entry at all."""
        return self.prediction.rows(M, rows, backend)

    @cached_property
    def prediction(self) -> Prediction:
        """What is needed for new rows, without the rows that were fitted."""
        prepared = self.preparation
        B = self._factors()[1] if self.rank else np.zeros((prepared.scale.size, 0))
        return Prediction(
            scale=prepared.scale,
            level=prepared.level,
            damping=prepared.damping,
            width=self.width,
            B=B,
            c=self._c,
            ridge=self.result.noise**2,
            unit=self._unit,
            tolerance=self.tolerance,
        )

    def _factors(self) -> tuple[Float, Float]:
        """A and B = V diag(σ) / √m with A Bᵀ = L: rows of A have the variance 1, so that the noise is their ridge."""
        left, sizes, right = np.linalg.svd(self.result.L.V, full_matrices=False)  # U is orthonormal
        k, root = self.rank, math.sqrt(self.result.L.shape[0])
        return self.result.L.U @ left[:, :k] * root, np.ascontiguousarray(right[:k].T * (sizes[:k] / root))

    @property
    def _c(self) -> float:
        """The scale of the loss by which rows are placed."""
        return max(EFFICIENT * self.result.noise, EXPLAINED * self._unit)

    @cached_property
    def _unit(self) -> float:
        """The usual size of an entry of what is fitted."""
        return robust_scale(self.result.M.values[:: max(1, self.result.M.nnz // 100_000)].astype(np.float64)) or 1.0


@dataclass(frozen=True, eq=False)
class Prediction:
    """How new rows are placed: x_ij = s_j (b_j + a_i + (A Bᵀ)_ij), a and A by robust regressions of each row."""

    scale: Float  # s
    level: Float  # b
    damping: float  # of a; infinite: there is none
    width: float  # c of the regression that gives a,
    B: Float
    c: float  # and of the one that gives A,
    ridge: float
    unit: float  # the usual size of an entry of what is fitted
    tolerance: Float  # of each column: what is farther from what is predicted is a gross error

    def rows(self, M: ObservedMatrix | None, rows: int, backend: str = "auto") -> Float:
        """All entries of rows, given as the columns of M; None if they have no entry at all."""
        y = np.zeros((rows, self.scale.size))
        if M is not None:
            rest = M.with_values((M.values / self.scale[M.rows] - self.level[M.rows]).astype(M.dtype))
            if math.isfinite(self.damping):
                one = np.ones((self.scale.size, 1))
                y += self._place(one, self.width, self.damping).coefficients(rest, backend)
                offset = np.repeat(y[:, 0], rest.column_counts)
                rest = rest.with_values((rest.values - offset).astype(rest.dtype))
            if self.B.shape[1]:
                y += self._place(self.B, self.c, self.ridge).coefficients(rest, backend) @ self.B.T
        return self.scale * (self.level + y)

    def _place(self, B: Float, c: float, ridge: float) -> Placement:
        return Placement(B, c, self.unit, largest=USUAL * math.sqrt(B.shape[1]), ridge=ridge)


def usual_error(result: Result) -> float:
    """The scale of the errors of entries kept aside, if some were; at least the noise."""
    return max(result.noise, result.held_out or 0.0)


def flagged_by_column(result: Result, backend: str = "auto") -> tuple[Result, Float]:
    """The result with the outliers that each column has by its own noise, and that noise.

    Columns are features, and in units of their spread some are noisier than others. No column is taken to be less noisy
    than all are as a rule.
    """
    M, L = result.M, result.L
    sweep = open_sweep(M, backend)
    e = sweep.residual(L.U, np.ascontiguousarray(L.V.T))
    own = CONSISTENT * sweep.kth_largest(np.abs(e), (M.column_counts + 1) // 2)
    noise = np.maximum(usual_error(result), np.where(M.column_counts >= FEW, own, 0.0))
    bound = np.maximum(OUTLIER * noise, EXPLAINED)
    flagged = outlying(e / along_columns(M, bound), 1.0)
    S = outliers_at(M, flagged, -e[flagged].astype(M.dtype, copy=False))
    return replace(result, flagged=flagged, S=S), noise


def without_dust(M: ObservedMatrix) -> ObservedMatrix:
    """Zeros for what is nothing beside the largest number, and whose powers would be lost."""
    sizes = np.abs(M.values)
    least = DUST * float(sizes.max())
    return M.with_values(M.values * (sizes >= least)) if np.count_nonzero((sizes < least) & (sizes > 0)) else M


def rows_differ(M: ObservedMatrix) -> bool:
    """Whether rows are to have offsets: where most columns have few entries, a low-rank fit cannot tell them."""
    return bool(np.median(M.column_counts) < 50)
