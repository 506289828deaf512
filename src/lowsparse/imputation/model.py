"""The model of a table with missing entries: scales and offsets, a low-rank part, and the regression of new rows.

    x_ij = s_j (b_j + a_i + y_ij + noise),   y of low rank, some entries grossly wrong.

Rows are samples. The scales s, levels b and offsets a are those of `offsets`; y is the L of `solve`, its rank chosen by
held-out entries. A new row gets its offset, then its coefficients on the low-rank part, by the same robust regressions,
from its own entries alone. Rows that were fitted are regressed once more in the end: the path of shrinkage, which may
have found the low-rank part, shrinks them too much; the prior that it implies does not. Those that have gross errors
then are regressed as new rows are, too: in a column that hardly any other goes with, as the year of a sample, an entry
is flagged only if nothing else fits it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..entries.protocol import PartialMatrix
from ..entries.statistics import row_sums
from ..linalg.grassmann import basis
from ..linalg.lowrank import LowRank
from ..linalg.scale import CONSISTENT, OUTLIER, outlying, robust_scale
from ..loop import Progress
from ..result import Result, Status
from ..robust.coarse import CoarseColumns
from ..robust.regression import EFFICIENT, EXPLAINED, SubspaceRegression
from ..robust.rows import RowModel, RowOutliers
from ..solve import solve
from ..solvers.ladder import Ladder
from ..support.checks import check_count
from ..sweeps import Float, Robust, Sweep, host_backend
from .fitting import fit_table, usual_error
from .offsets import NEGLIGIBLE, Preparation
from .stuck import stuck_values

HELPS = 0.5  # error of held-out entries relative to the scale of y, below which a stalled fit is reliable
N_REWEIGHT = 2  # in the last regression of the rows that were fitted
FEW = 20  # entries; the noise of a column with fewer is the usual one
MAX_REPLACED = 0.2  # share of entries that are replaced as gross errors, unless more is asked for
LONGEST = 3.0  # coefficients of a row that few entries determine, relative to the usual length


@dataclass(frozen=True)
class Imputation:
    """A fitted model of a table.

    >>> rng = np.random.default_rng(1)
    >>> truth = 5 + rng.standard_normal((80, 2)) @ rng.standard_normal((2, 12))
    >>> M = ObservedMatrix.from_dense(np.where(rng.random(truth.shape) < 0.2, np.nan, truth))
    >>> model = Imputation.fit(M)
    >>> bool(np.abs(model.lowrank().to_dense() - truth).max() < 0.1)
    True
    """

    preparation: Preparation
    result: Result  # of the low-rank part, with the rows as they were regressed in the end
    B: Float  # n x rank: what rows are regressed on, with coefficients of variance 1
    width: float  # c of the regression that gives the offsets of rows
    noise_by_column: Float  # in units of the features' spread
    bound_by_column: Float  # residual of a gross error, at least, in these units
    stuck: Float  # the number at which a column is stuck, or NaN

    @classmethod
    def fit(
        cls,
        M: PartialMatrix,
        rank: int | str = "auto",
        *,
        max_iter: int = 500,
        backend: str = "auto",
        random_state: int | np.random.Generator | None = 0,
        callback: Callable[[Progress], object] | None = None,
        searches: int = Ladder().searches,
    ) -> Self:
        """Fit M, in memory or in pieces; `rank` is the largest rank of y, `callback` that of `solve`.

        One of the `searches` (see `Ladder`) will do where nothing rests on what is called converged.
        """
        largest = None if rank == "auto" else min(check_count("rank", rank, also="'auto'"), *M.shape)
        given = _without_negligible(M)
        coarse = CoarseColumns.of(given)
        options = {"max_iter": max_iter, "backend": backend, "random_state": random_state, "callback": callback}
        fit = fit_table(given, coarse, largest, partial(solve, **options), searches, backend)  # type: ignore[arg-type]
        preparation, result = fit.preparation, fit.result
        width, noise = EFFICIENT * robust_scale(result.M.values.astype(np.float64)), _noise_by_column(result, backend)
        if coarse is not None:  # it may have been fitted with noise
            result = replace(result, M=preparation.apply(given))
        # what is rare in a coarse column, as 3 is in counts that are mostly 0, is no error without a gap before it
        reach = 0.0 if coarse is None else coarse.reach / preparation.scale
        bound, stuck = np.maximum(OUTLIER * noise, np.maximum(reach, EXPLAINED)), stuck_values(given)
        A, B = _factors(result.L)
        model = cls(preparation, result, B, width, noise, bound, stuck)
        return (model._with_rows(A, backend) if model.rank else model)._with_flags(backend)

    @property
    def rank(self) -> int:
        """The rank of y; 0 if nothing predicts entries better than scales and offsets."""
        return int(np.count_nonzero(np.linalg.norm(self.result.L.V, axis=1)))

    @property
    def is_reliable(self) -> bool:
        """Whether the solver converged, or stalled but predicts held-out entries far better than offsets alone."""
        held_out = self.result.held_out
        predicts = held_out is not None and held_out < HELPS * self.width / EFFICIENT
        return self.result.converged or (self.result.status is Status.STALLED and predicts)

    @property
    def flagged_share(self) -> float:
        """The share of the entries that are gross errors."""
        return int(self.result.flagged.size) / self.result.M.nnz

    def lowrank(self) -> LowRank:
        """All entries of the rows that were fitted: s_j (b_j + a_i + y_ij) = [U, a, 1] [s V; s; s b], with y = U V."""
        prepared, L = self.preparation, self.result.L
        s, one = prepared.scale, np.ones(L.shape[0])
        return LowRank(np.column_stack([L.U, prepared.offset, one]), np.vstack([s * L.V, s, s * prepared.level]))

    def _with_rows(self, A: Float, backend: str) -> Self:
        """With the rows regressed on B again, from the coefficients A; those with gross errors without a start too."""
        M, B, host = self.result.M, self.B, host_backend(backend)
        options = Robust(c=self._c, n_reweight=N_REWEIGHT, ridge=self.result.noise**2)
        A = M.T.open_sweep(host).regress(B, A, options).V
        e = M.open_sweep(host).residual(A, B)
        (wrong,) = M.reduce("+", row_sums, 1.0 * (np.abs(e) > M.spread_over_columns(self.bound_by_column)))
        for rows in _parts(np.flatnonzero(wrong), M.row_counts, M.largest_part):
            part = M.T.take_columns(rows)
            assert part is not None
            A[rows] = self.prediction.regression.better_coefficients(part.to_host(), A[rows], host)
        left, triangle = basis(A)
        return replace(self, result=replace(self.result, L=LowRank(left, triangle @ B.T)))

    def _with_flags(self, backend: str) -> Self:
        """With outliers by the bound of each column, and entries that are stuck."""
        M, prepared = self.result.M, self.preparation
        stuck = M.spread_over_columns(self.stuck / prepared.scale - prepared.level)
        is_stuck = np.abs(M.values - stuck + M.spread_over_rows(prepared.offset)) <= EXPLAINED
        _, e = _residuals(self.result, backend)
        flagged = outlying(e / M.spread_over_columns(self.bound_by_column) + 2.0 * np.sign(e) * is_stuck, 1.0)
        S = M.outliers(flagged, -e[flagged].astype(M.dtype, copy=False))
        return replace(self, result=replace(self.result, flagged=flagged, S=S))

    def row_outliers(self) -> RowOutliers:
        """How far the rows that were fitted are from the others; each column in units of its noise."""
        noise, (A, B) = np.maximum(self.noise_by_column, EXPLAINED), _factors(self.result.L)
        M = self.result.M.with_stored_values(self.result.M.values / self.result.M.spread_over_columns(noise))
        model = RowModel(np.ascontiguousarray((B / noise[:, None]).T), 1.0, M.median_magnitude() or 1.0)
        return model.fit_and_measure(M, A, M.row_counts > 0)[1]

    @cached_property
    def prediction(self) -> Prediction:
        """What is needed for new rows, without the rows that were fitted."""
        scale = self.preparation.scale
        return Prediction(
            preparation=replace(self.preparation, offset=np.zeros(0)),
            width=self.width,
            B=self.B,
            c=self._c,
            ridge=self.result.noise**2,
            unit=self._unit,
            tolerance=(self.bound_by_column + 1e-7) * scale,
            stuck=self.stuck,
        )

    @property
    def _c(self) -> float:
        """c of the regression of rows on B."""
        return max(EFFICIENT * self.result.noise, EXPLAINED * self._unit)

    @property
    def _unit(self) -> float:
        """The robust scale of y."""
        return self.width / EFFICIENT or 1.0


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predicts new rows: x_ij = s_j (b_j + a_i + (A Bᵀ)_ij), with a and A by robust regressions of each row."""

    preparation: Preparation  # s, b, and the damping of a
    width: float  # c of the regression that gives a
    B: Float
    c: float  # c of the regression that gives A
    ridge: float
    unit: float  # robust scale of y
    tolerance: Float  # of each column: largest error of the prediction that is not a gross error
    stuck: Float  # the number at which a column is stuck, or NaN

    def is_wrong(self, given: NDArray[Any], fitted: Float) -> NDArray[np.bool_]:
        """Which entries of rows are gross errors, or those of a stuck instrument."""
        with np.errstate(invalid="ignore"):
            return np.asarray((np.abs(given - fitted) > self.tolerance) | (given == self.stuck))

    def rows(self, M: ObservedMatrix | None, rows: int, backend: str = "auto") -> Float:
        """All entries of rows, given as the columns of M; None if they have no entry at all."""
        scale, level, damping = self.preparation.scale, self.preparation.level, self.preparation.damping
        y = np.zeros((rows, scale.size))
        if M is not None:
            rest = M.with_values((M.values / scale[M.rows] - level[M.rows]).astype(M.dtype))
            if math.isfinite(damping):
                ones = np.ones((scale.size, 1))
                y += self._regression(ones, self.width, damping).coefficients(rest, backend)
                offset = np.repeat(y[:, 0], rest.column_counts)
                rest = rest.with_values((rest.values - offset).astype(rest.dtype))
            if self.B.shape[1]:
                y += self.regression.coefficients(rest, backend) @ self.B.T
        return scale * (level + y)

    @property
    def regression(self) -> SubspaceRegression:
        """The regression of rows on B."""
        return self._regression(self.B, self.c, self.ridge)

    def _regression(self, B: Float, c: float, ridge: float) -> SubspaceRegression:
        return SubspaceRegression(B, c, self.unit, largest=LONGEST * math.sqrt(B.shape[1]), ridge=ridge)


def _noise_by_column(result: Result, backend: str) -> Float:
    """The noise of each column, at least that of all together: relative to their spread, columns differ in it."""
    own = column_noise(result, backend)
    return np.maximum(usual_error(result), np.where(result.M.column_counts >= FEW, own, 0.0))


def column_noise(result: Result, backend: str) -> Float:
    """The robust scale of the residuals of each column."""
    sweep, e = _residuals(result, backend)
    return np.asarray(CONSISTENT * sweep.kth_largest(np.abs(e), (result.M.column_counts + 1) // 2), dtype=np.float64)


def _factors(L: LowRank) -> tuple[Float, Float]:
    """A and B = V diag(σ) / √m with A Bᵀ = L: columns of A have variance 1, so the ridge is that of the noise."""
    left, sizes, right = np.linalg.svd(L.V, full_matrices=False)  # U is orthonormal
    k, root = int(np.count_nonzero(np.linalg.norm(L.V, axis=1))), math.sqrt(L.shape[0])
    return L.U @ left[:, :k] * root, np.ascontiguousarray(right[:k].T * (sizes[:k] / root))


def _parts(lines: NDArray[np.intp], counts: NDArray[np.int64], largest: int) -> list[NDArray[np.intp]]:
    """These lines in parts of about so many entries, or of one line."""
    before = np.cumsum(counts[lines]) - 1  # the last entry of each
    return np.split(lines, np.flatnonzero(np.diff(before // largest)) + 1) if lines.size else []


def _residuals(result: Result, backend: str) -> tuple[Sweep, Any]:
    """The sweep over the data, and L minus the data."""
    sweep = result.M.open_sweep(host_backend(backend))
    return sweep, sweep.residual(result.L.U, np.ascontiguousarray(result.L.V.T))


def _without_negligible(M: PartialMatrix) -> PartialMatrix:
    """M with zeros for entries so small, relative to the largest, that their powers would underflow."""
    sizes = np.abs(M.values)
    least = NEGLIGIBLE * float(sizes.max())
    return M.with_values(M.values * (sizes >= least)) if np.count_nonzero((sizes < least) & (sizes > 0)) else M
