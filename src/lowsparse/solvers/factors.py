"""What methods that hold L as two factors share: their start, the end of an iteration, and the outcome."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..linalg.grassmann import relative_change
from ..linalg.lowrank import LowRank
from ..linalg.scale import OUTLIER, outlying, robust_scale
from ..robust.joint import balanced_factors
from ..robust.regression import EXPLAINED
from ..sweeps import Float
from .base import Outcome, Problem, Solver, State
from .parameters import parameter
from .start import left_singular_vectors

__all__ = [
    "FactorSolver",
    "FactorState",
    "balanced",
    "beyond_noise",
    "by_outliers",
    "by_residual",
    "clipped_factors",
    "leading_subspace",
    "pseudo_inverse",
    "spectral_factors",
    "trace_row",
]


@dataclass(kw_only=True)
class FactorState(State):
    """L = U Vᵀ, and the method's own objective there."""

    U: Float  # m x r
    V: Float  # n x r
    objective: float = math.inf


StateT = TypeVar("StateT", bound=FactorState)


@dataclass(kw_only=True)
class FactorSolver(Solver):
    """A method whose state is a `FactorState`. It ends when L changes by at most `tol`, or `delta`, relatively."""

    delta: float | None = parameter(None, "end when L changes by less than this, relatively (video: 0.01)", above=0)

    def complete(self, previous: FactorState, after: StateT, **own: float) -> StateT:
        """Complete the state `after` an iteration: its number, its row of the trace, and whether it is the last.

        The method's own columns of the trace are given by name, gamma, dS and dU among them.
        """
        after.iteration = previous.iteration + 1
        change = relative_change(previous.U, previous.V, after.U, after.V)
        after.accuracy = change
        after.row = trace_row(after.objective, change, **own)
        if not (math.isfinite(after.objective) and math.isfinite(change)):
            after.failure = "diverged"
        elif self.delta is not None and change <= self.delta:
            after.finished = f"UV changed by {change:.2g} relatively, at most delta = {self.delta:g}"
        return after

    def lowrank(self, problem: Problem, state: Any) -> LowRank:
        """U Vᵀ, with an orthonormal U."""
        Q, R = np.linalg.qr(state.U)
        return LowRank(Q, R @ state.V.T)

    def finish(self, problem: Problem, state: Any) -> Outcome:
        """L, and S = M - L where that is more than noise."""
        return by_residual(problem, self.lowrank(problem, state), state.objective)


def by_residual(problem: Problem, L: LowRank, objective: float) -> Outcome:
    """L, and S = M - L where that is more than four times the noise of the inliers."""
    e = problem.sweep.residual(L.U, L.V.T.copy())
    flagged = beyond_noise(problem, e)
    S = -e[flagged].astype(problem.M.dtype, copy=False)
    return Outcome(L=L, flagged=flagged, S=S, objective=objective, noise=robust_scale(e))


def by_outliers(problem: Problem, L: LowRank, S: Float, e: Float, objective: float) -> Outcome:
    """L, and an S that the method has found entry by entry; the noise is that of the residuals e of the others."""
    S = S.astype(problem.M.dtype)
    flagged, rest = np.flatnonzero(S), e[S == 0]
    noise = robust_scale(rest if rest.size else e)
    return Outcome(L=L, flagged=flagged, S=S[flagged], objective=objective, noise=noise)


def beyond_noise(problem: Problem, e: Float) -> NDArray[np.intp]:
    """The positions of residuals of more than four times the noise of the inliers."""
    return outlying(e, max(OUTLIER * robust_scale(e), EXPLAINED * problem.unit))


def spectral_factors(problem: Problem) -> tuple[Float, Float]:
    """U⁰, orthonormal, and V⁰ = Aᵀ U⁰ / p: the best V if the observed entries were a share p of each column's energy.

    A is the observed matrix with zeros elsewhere, wild entries clipped.
    """
    U = problem.start()
    x = np.clip(problem.M.values, -problem.clip, problem.clip).astype(np.float64, copy=False)
    return U, problem.sweep.product_transposed(x, U) / problem.M.density


def leading_subspace(problem: Problem, values: NDArray[Any]) -> Float:
    """The leading left singular vectors of the data with these values instead of their own."""
    own = problem.M.with_values(values.astype(problem.M.dtype, copy=False)).open_sweep(problem.sweep.host)
    rng = np.random.default_rng([problem.seed, 1])
    return left_singular_vectors(own, problem.M.shape[0], problem.rank, rng)[0]


def clipped_factors(problem: Problem, medians: float = 4.0, drop: bool = False) -> tuple[Float, Float]:
    """U⁰ and V⁰ as in `spectral_factors`, with entries clipped (or dropped) beyond so many medians.

    Ten per cent of gross outliers, clipped to 20 medians, still outweigh the rest; clipped to four they do not, and
    large entries that are right still count as large. A start that was given is taken as it is.
    """
    if problem.start_given:
        return spectral_factors(problem)
    M, bound = problem.M, medians * problem.unit
    x = M.values * (np.abs(M.values) <= bound) if drop else np.clip(M.values, -bound, bound)
    U = leading_subspace(problem, x)
    return U, problem.sweep.product_transposed(x.astype(np.float64, copy=False), U) / M.density


def balanced(U: Float, V: Float) -> tuple[Float, Float]:
    """P Σ^½ and Q Σ^½ from the singular value decomposition U Vᵀ = P Σ Qᵀ."""
    A, B, _ = balanced_factors(U, V)
    return A, B


def pseudo_inverse(gram: Float) -> Float:
    """Of UᵀU or VᵀV; directions in which L has no extent, as the rank is too large, become zero."""
    return np.asarray(np.linalg.pinv(gram, rcond=1e-12, hermitian=True), dtype=np.float64)


def trace_row(
    objective: float,
    change: float,
    *,
    gamma: float = math.nan,
    dS: float = math.nan,
    dU: float = math.nan,
    **own: float,
) -> dict[str, float]:
    """A row of the trace: the columns of every method, NaN where they make no sense, then the method's own."""
    return {"objective": objective, "gamma": gamma, "dS": dS, "dU": dU, "change": change, **own}
