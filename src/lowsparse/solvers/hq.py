"""HQ: completion under the maximum correntropy criterion, by half-quadratic alternating steepest descent (HQ-ASD).

    max over U, V of  Σ_Ω exp(-e²/2σ²) ,  e = P_Ω(UVᵀ) - x ,

which is to minimise the loss of Welsch, σ² Σ_Ω (1 - exp(-e²/2σ²)). With the weights G = exp(-e²/2σ²) of the
half-quadratic form, one iteration is an exact line search along the scaled gradient in U, then the same in V:

    g = Sp(G∘e) V ,   d = g (VᵀV)⁻¹ ,   U⁺ = U - t d ,   t = ⟨g, d⟩ / Σ_Ω G (d Vᵀ)² .

He, Wang, Li, Qin and Chen (2020). As there, σ is infinite (least squares) until J = ‖e‖
settles, and then η times the distance of the quartiles of the residuals. Different here:

- the weights are renewed after the step in U. For a fixed σ both half-steps still decrease the loss;
- "settles" is |J - J_prev| ≤ e₁ J_prev, and the smallest σ is 10⁻⁵ of the size of the data: with the paper's absolute
  bounds the result would depend on the unit of the data;
- σ is at least 0.8 of its last value. Otherwise it collapses on data without noise, faster than the descent can follow,
  and inliers that are still far from the fit lose all their weight (errors of 10⁻²). The 0.3 that is enough for
  reweighted least squares (see `irls`) is not enough for gradient steps;
- it begins at the singular vectors of the data; from a start that is given there is no phase of least squares. If some
  entries are larger than 20 times the median magnitude, the loss in that phase is Huber's with 3 times of it;
- the end is not called converged if lines are left of which almost no entry is explained.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..robust.regression import EXPLAINED
from ..robust.sketch import Sample
from ..sweeps import Float
from ..sweeps.losses import Kind, Loss
from .base import Problem
from .factors import FactorSolver, FactorState, beyond_noise, pseudo_inverse
from .irls import GIVEN_UP, WILD, first_factors, given_up
from .parameters import parameter

PACE = 0.8  # σ / its previous value, at least
SAME = 0.01  # relative change of σ, per iteration, from which on it has settled
SAMPLE = 200_000  # entries that the quartiles are taken of


@dataclass(kw_only=True)
class HQState(FactorState):
    """U and V, the σ that comes next, and the loss and its gradient there."""

    scratch = ("sample",)

    sample: Sample
    sigma: float  # infinite: least squares
    G: Float  # ∂/∂U of the loss at (U, V)


@dataclass(kw_only=True)
class HQ(FactorSolver[HQState]):
    """Half-quadratic alternating steepest descent for the maximum correntropy criterion.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 50, rank=2, density=0.7, outliers=0.1, random_state=1)
    >>> r = ls.solve(problem.M, rank=2, method=HQ())
    >>> r.converged and r.L.error(problem.L, relative=True) < 1e-6
    True
    """

    name = "hq"
    papers = (
        "Y. He, F. Wang, Y. Li, J. Qin, B. Chen: Robust Matrix Completion via Maximum Correntropy "
        "Criterion and Half-Quadratic Optimization, IEEE Transactions on Signal Processing 68, 2020",
    )

    eta: float = parameter(2.0, "η: σ over the distance of the quartiles of the residuals (the paper's)", above=0)
    sigma: float | None = parameter(None, "σ itself, in units of the data; None: by eta", above=0)
    sigma_min: float | None = parameter(None, "least σ; None: 1e-5 of the median magnitude of the entries", above=0)
    e1: float = parameter(1e-3, "relative change of J from which on σ is finite (the paper's)", above=0, below=1)

    def init(self, problem: Problem) -> HQState:
        """(U⁰, V⁰), and least squares unless U⁰ was given."""
        U, V = first_factors(problem)
        sample = Sample(problem.M, problem.sweep.host, SAMPLE)
        sigma = self._target(problem, sample, U, V) if problem.start_given else math.inf
        gradient = problem.sweep.gradient(U, V, _loss(problem, sigma))
        return HQState(U=U, V=V, sample=sample, sigma=sigma, G=gradient.U, objective=gradient.value)

    def advance(self, problem: Problem, state: HQState) -> HQState:
        """A step in U, a step in V; then the next σ, and the gradient for it."""
        sweep, loss = problem.sweep, _loss(problem, state.sigma)
        V = state.V
        d = state.G @ pseudo_inverse(V.T @ V)
        zero = np.zeros_like(V)  # U Vᵀ and d Vᵀ over the same left factor [U, d]
        curvature = sweep.curvature(np.hstack([state.U, d]), np.hstack([V, zero]), np.hstack([zero, V]), loss)
        t_U = _step(state.G, d, curvature)
        U = state.U - t_U * d
        G = sweep.gradient(U, V, loss).V
        d = G @ pseudo_inverse(U.T @ U)
        t_V = _step(G, d, sweep.curvature(U, V, d, loss))
        V = V - t_V * d

        sigma, target = state.sigma, self._target(problem, state.sample, U, V)
        if math.isfinite(sigma):
            sigma = target if self.sigma is not None else max(target, PACE * sigma)
        gradient = sweep.gradient(U, V, _loss(problem, sigma))
        if math.isinf(sigma) and math.sqrt(gradient.value) >= (1 - self.e1) * math.sqrt(state.objective):
            sigma = target  # J has settled
            gradient = sweep.gradient(U, V, _loss(problem, sigma))
        after = HQState(U=U, V=V, sample=state.sample, sigma=sigma, G=gradient.U, objective=gradient.value)
        self.complete(state, after, gamma=sigma, t_U=t_U, t_V=t_V)
        if abs(sigma - state.sigma) > SAME * sigma:
            after.accuracy, after.finished = math.inf, ""
        elif after.converged(problem.tol):
            self._stall_if_given_up(problem, after)
        return after

    def _target(self, problem: Problem, sample: Sample, U: Float, V: Float) -> float:
        """σ for the residuals at (U, V)."""
        if self.sigma is not None:
            return self.sigma
        low, high = np.quantile(sample.residual(U, V), [0.25, 0.75])
        smallest = EXPLAINED * problem.unit if self.sigma_min is None else self.sigma_min
        return max(self.eta * float(high - low), smallest)

    def _stall_if_given_up(self, problem: Problem, state: HQState) -> None:
        """Fail if lines have been given up."""
        M = problem.in_memory
        explained = np.ones(M.nnz, bool)
        explained[beyond_noise(problem, problem.sweep.residual(state.U, state.V))] = False
        lost = sum(
            int(np.count_nonzero(given_up(np.bincount(line[explained], minlength=count.size), count, problem.rank)))
            for line, count in ((M.rows, M.row_counts), (M.columns_of_entries(), M.column_counts))
        )
        if lost:
            state.stall(GIVEN_UP.format(lost) + "choose a larger eta, or sigma if it was given, or method='auto'")


def _loss(problem: Problem, sigma: float) -> Loss:
    if math.isfinite(sigma):
        return Loss(Kind.WELSCH, c=math.sqrt(2) * sigma)
    return Loss(Kind.SQUARED) if math.isinf(problem.clip) else Loss(Kind.HUBER, c=WILD * problem.unit)


def _step(G: Float, d: Float, curvature: float) -> float:
    """Where the quadratic bound is smallest along -d."""
    return float(np.vdot(G, d)) / curvature if curvature > 0 else 0.0
