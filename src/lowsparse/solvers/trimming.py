"""What methods with a given share of outliers have in common: the operator T_α, their start and their iteration.

T_α(Z) keeps Z_ij if it is among the ⌊α d⌋ largest magnitudes of its row and also of its column, d being the number of
entries observed there, and makes it zero otherwise: what is kept is taken for an outlier. So α has to exceed the
largest share of outliers in any row or column, not their share on average: ten per cent of outliers at random leave
some line of 90 entries with twenty.

Its first use: X. Yi, D. Park, Y. Chen, C. Caramanis: Fast Algorithms for Robust PCA via Gradient Descent, NIPS 2016.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..entries.observed import ObservedMatrix
from ..linalg.scale import OUTLIER, robust_scale
from ..robust.joint import balanced_factors
from ..robust.regression import EXPLAINED
from ..sweeps import Float
from .base import Problem
from .factors import FactorSolver, FactorState, spectral_factors
from .parameters import parameter

SURELY = 2 * OUTLIER  # times the noise: an entry so far off is no inlier
STEEP = 0.75  # t σ₁ at the current L, at most. T_α(M) has the largest entries of L too: σ₁ is too small at the start
UNSETTLED = 30.0  # times the error that L still has, relative to the entries: smaller residuals may go away
STAYS = 0.99  # of its size, from one iteration to the next


def largest_share(M: ObservedMatrix, is_outlier: ArrayLike) -> float:
    """The largest share of outliers in any row or column of M: what `alpha` must exceed.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 50, rank=1, density=0.5, outliers=0.1, random_state=1)
    >>> found = ls.solve(problem.M, rank=1)
    >>> round(largest_share(found.M, found.is_outlier), 2)
    0.29
    """
    wrong = np.asarray(is_outlier)
    if wrong.shape != (M.nnz,) or wrong.dtype != bool:
        raise ValueError(f"is_outlier must hold True or False for each of the {M.nnz} entries of M")
    rows = np.bincount(M.rows[wrong], minlength=M.shape[0])
    columns = np.bincount(M.columns_of_entries()[wrong], minlength=M.shape[1])
    parts, wholes = np.concatenate([rows, columns]), np.concatenate([M.row_counts, M.column_counts])
    return float(np.max(parts / np.maximum(wholes, 1)))


def largest_in_lines(problem: Problem, y: Float, alpha: float) -> NDArray[np.bool_]:
    """Where T_α(y) keeps y, given on Ω.

    Of equal magnitudes at the limit none is kept, so that no line loses more than ⌊α d⌋ of its entries. (The paper's
    form, "at least the ⌊α d⌋-th largest", keeps them all: of a constant matrix nothing would be left.)
    """
    M, size = problem.in_memory, np.abs(y)
    by_column = problem.sweep.kth_largest(y, allowed(M.column_counts, alpha) + 1)
    by_row = problem.row_sweep.kth_largest(y[problem.by_row], allowed(M.row_counts, alpha) + 1)
    return np.asarray((size > np.repeat(by_column, M.column_counts)) & (size > by_row[M.rows]))


def allowed(counts: NDArray[np.int64], alpha: float) -> NDArray[np.int64]:
    """⌊α d⌋, with some slack for rounding: α may be a ratio of counts."""
    return np.asarray(np.floor(alpha * counts * (1 + 1e-12)), dtype=np.int64)


def largest_of_all(y: Float, k: int) -> NDArray[np.bool_]:
    """Where the k largest magnitudes of all are; fewer if some are equal at the limit."""
    size = np.abs(y)
    at = y.size - 1 - min(k, y.size - 1)
    return np.asarray(size > np.partition(size, at)[at])


def spectral_start(problem: Problem, outliers: NDArray[np.bool_]) -> tuple[Float, Float]:
    """The rank-r approximation of A / p, balanced: A is the observed matrix, zero elsewhere and at the outliers.

    What remains of wild entries is clipped. A start that was given takes the place of the left singular vectors.
    """
    values = np.clip(np.where(outliers, 0, problem.M.values), -problem.clip, problem.clip)
    return balanced_factors(*spectral_factors(problem, values))[:2]


def incoherent(A: Float, mu: float, norm: float) -> Float:
    """A (d x r) with rows longer than √(4μr/d) `norm` shortened to that."""
    longest = np.sqrt(4 * mu * A.shape[1] / A.shape[0]) * norm
    lengths = np.linalg.norm(A, axis=1, keepdims=True)
    return np.asarray(A * (longest / np.maximum(lengths, longest or 1.0)))


def stall_if_outliers_left(
    problem: Problem, previous: FactorState, after: FactorState, e: Float, dropped: NDArray[np.bool_], advice: str
) -> None:
    """L has come to rest, and is wrong if entries that were not dropped look like outliers; e is of the previous state.

    They stand out from the noise, from what L has still to go, and they stay.
    """
    change, last = after.accuracy, previous.accuracy
    ratio = min(change / last if last else 1.0, 0.999)
    error = change / (1 - ratio)  # the sum of a geometric series of changes
    bound = max(SURELY * robust_scale(e), EXPLAINED * problem.unit, UNSETTLED * error * problem.scale)
    left = ~dropped & (np.abs(e) > bound)
    if left.any():
        left &= np.abs(problem.sweep.residual(after.U, after.V)) > STAYS * np.abs(e)
    if count := np.count_nonzero(left):
        what = f"L does not change any more, but {count} of the entries that it fits stand out like outliers"
        after.stall(f"{what}: {advice}")


@dataclass(kw_only=True)
class TrimmedState(FactorState):
    """L = U Vᵀ; the outliers follow from it."""

    sigma: float  # σ₁: the largest singular value of L at the start


@dataclass(kw_only=True)
class TrimmedSolver(FactorSolver[TrimmedState]):
    """Descent on 1/2p ‖P_Ω(UVᵀ + S - M)‖² + weight/4 ‖UᵀU - VᵀV‖², with S trimmed from M - UVᵀ in each iteration.

    It starts from the rank-r approximation of (M - T_α(M)) / p.
    """

    weight: ClassVar[float] = 0.0  # of the term that balances U and V

    alpha: float | None = parameter(
        None,
        "share trimmed of each row and column: `largest_share`, and 0.01 more",
        at_least=0,
        below=1,
        required="the share of the entries of each row and column that it may take for outliers. It must exceed the "
        "largest share of outliers in any row or column, not the average. If nothing better is known, take it from "
        "what the default method finds: found = ls.solve(M, rank); "
        "alpha = ls.solvers.trimming.largest_share(found.M, found.is_outlier) + 0.01",
    )
    step: float = parameter(0.5, "η, relative to the method's own length of a step; the papers' value", above=0)

    @property
    def trimmed(self) -> float:
        """The share that is trimmed of each row and column in an iteration."""
        return float(self.alpha or 0.0)

    def init(self, problem: Problem) -> TrimmedState:
        """U⁰ = P Σ^½ and V⁰ = Q Σ^½."""
        x = problem.M.values.astype(np.float64, copy=False)
        U, V = spectral_start(problem, largest_in_lines(problem, x, float(self.alpha or 0.0)))
        return TrimmedState(U=U, V=V, sigma=float(np.linalg.norm(U, 2) ** 2))

    def outliers(self, problem: Problem, e: Float) -> NDArray[np.bool_]:
        """Where S is not zero, given the residuals; it is -e there."""
        return largest_in_lines(problem, e, self.trimmed)

    def gradient(self, problem: Problem, U: Float, V: Float, y: Float) -> tuple[float, Float, Float]:
        """The objective, where P_Ω(UVᵀ + S - M) = y, and its derivatives with respect to U and V."""
        p = problem.M.density
        D = U.T @ U - V.T @ V
        value = float(y @ y) / (2 * p) + self.weight / 4 * float(np.vdot(D, D))
        GU = problem.sweep.product(y, V) / p + self.weight * (U @ D)
        GV = problem.sweep.product_transposed(y, U) / p - self.weight * (V @ D)
        return value, GU, GV

    def descend(self, problem: Problem, state: TrimmedState, GU: Float, GV: Float) -> tuple[Float, Float]:
        """U - t ∇_U, V - t ∇_V with t = η/σ₁, if that is not too long a step where L has grown."""
        current = max(float(np.linalg.eigvalsh(F.T @ F)[-1]) for F in (state.U, state.V))
        t = self.step / (max(state.sigma, self.step / STEEP * current) or 1.0)  # σ₁ = 0: L and the gradients are 0
        return state.U - t * GU, state.V - t * GV

    def advance(self, problem: Problem, state: TrimmedState) -> TrimmedState:
        """Trim, then step. The objective is that of the point the step starts from."""
        e = problem.sweep.residual(state.U, state.V)
        outliers = self.outliers(problem, e)
        with np.errstate(over="ignore", invalid="ignore"):  # a step that was given may be too long
            value, GU, GV = self.gradient(problem, state.U, state.V, np.where(outliers, 0.0, e))
            U, V = self.descend(problem, state, GU, GV)
            after = TrimmedState(U=U, V=V, objective=value, sigma=state.sigma)
            self.complete(state, after, trimmed=float(np.count_nonzero(outliers)))
        if after.failure:
            after.U, after.V = state.U, state.V
            after.advice = "the iteration ran into numbers that are not finite: give a smaller step"
        elif problem.tol > 0 and after.accuracy <= problem.tol:
            advice = (
                f"alpha = {self.alpha:.3g} is too small for their rows or columns, so raise it. The default method "
                "finds by how much: found = ls.solve(M, rank); "
                "alpha = ls.solvers.trimming.largest_share(found.M, found.is_outlier) + 0.01"
            )
            stall_if_outliers_left(problem, state, after, e, outliers, advice)
        return after

    def final_objective(self, problem: Problem, state: TrimmedState) -> float:
        """At the last point; that of the state is for the one before."""
        e = problem.sweep.residual(state.U, state.V)
        return self.gradient(problem, state.U, state.V, np.where(self.outliers(problem, e), 0.0, e))[0]
