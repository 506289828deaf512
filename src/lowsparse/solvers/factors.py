"""What methods that hold L as two factors share: their start, the end of an iteration, and the outcome."""

import math
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..linalg.grassmann import relative_change
from ..linalg.lowrank import LowRank
from ..linalg.scale import OUTLIER, outlying, robust_scale
from ..robust.regression import EXPLAINED
from ..sweeps import Float
from .base import Outcome, Problem, Solver, State
from .parameters import parameter
from .start import left_singular_vectors


@dataclass(kw_only=True)
class FactorState(State):
    """L = U Vᵀ, and the method's own objective there."""

    U: Float  # m x r
    V: Float  # n x r
    objective: float = math.inf


StateT = TypeVar("StateT", bound=FactorState)


@dataclass(kw_only=True)
class FactorSolver(Solver, Generic[StateT]):
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
        after.finished = "" if after.failure else within_delta(change, self.delta)
        return after

    def lowrank(self, problem: Problem, state: StateT) -> LowRank:
        """U Vᵀ, with an orthonormal U."""
        Q, R = np.linalg.qr(state.U)
        return LowRank(Q, R @ state.V.T)

    def finish(self, problem: Problem, state: StateT) -> Outcome:
        """L, and S = M - L where that is more than four times the noise of the inliers."""
        L, objective = self.lowrank(problem, state), self.final_objective(problem, state)
        e = problem.sweep.residual(L.U, L.V.T.copy())
        flagged = beyond_noise(problem, e)
        S = -e[flagged].astype(problem.M.dtype, copy=False)
        return Outcome(L=L, flagged=flagged, S=S, objective=objective, noise=robust_scale(e))

    def final_objective(self, problem: Problem, state: StateT) -> float:
        """The objective at the last state."""
        return state.objective


def within_delta(change: float, delta: float | None) -> str:
    """Why a method ends by the rule of the AManPGC paper's video section; empty if it does not."""
    if delta is None or not change <= delta:
        return ""
    return f"UV changed by {change:.2g} relatively, at most delta = {delta:g}"


def outcome_with(problem: Problem, L: LowRank, S: Float, e: Float, objective: float) -> Outcome:
    """L, and an S that the method has found entry by entry; the noise is that of the residuals e of the others."""
    S = S.astype(problem.M.dtype)
    flagged, rest = np.flatnonzero(S), e[S == 0]
    noise = robust_scale(rest if rest.size else e)
    return Outcome(L=L, flagged=flagged, S=S[flagged], objective=objective, noise=noise)


def beyond_noise(problem: Problem, e: Float) -> NDArray[np.intp]:
    """The positions of residuals of more than four times the noise of the inliers."""
    return outlying(e, max(OUTLIER * robust_scale(e), EXPLAINED * problem.unit))


def spectral_factors(problem: Problem, values: NDArray[Any] | None = None) -> tuple[Float, Float]:
    """U⁰, orthonormal, and V⁰ = Aᵀ U⁰ / p: the best V if the observed entries were a share p of each column's energy.

    A is the observed matrix with zeros elsewhere, wild entries clipped; or it has these `values`, and U⁰ is then its
    leading subspace, unless a start was given.
    """
    U = problem.start() if values is None or problem.start_given else leading_subspace(problem, values)
    x = np.clip(problem.M.values, -problem.clip, problem.clip) if values is None else values
    return U, problem.sweep.product_transposed(x.astype(np.float64, copy=False), U) / problem.M.density


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
    x, bound = problem.M.values, medians * problem.unit
    return spectral_factors(problem, x * (np.abs(x) <= bound) if drop else np.clip(x, -bound, bound))


def hard_threshold(x: Float, zeta: float) -> Float:
    """The entries larger than ζ in magnitude; the others become zero."""
    return np.where(np.abs(x) > zeta, x, 0.0)


def pseudo_inverse(gram: Float) -> Float:
    """Of UᵀU or VᵀV; directions in which L has no extent, as the rank is too large, become zero."""
    return np.asarray(np.linalg.pinv(gram, rcond=1e-12, hermitian=True), dtype=np.float64)


def trace_row(objective: float, change: float, **own: float) -> dict[str, float]:
    """A row of the trace: the columns of every method, NaN where they make no sense, then the method's own."""
    return {"objective": objective, "gamma": math.nan, "dS": math.nan, "dU": math.nan, "change": change} | own
