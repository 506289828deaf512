"""What the least-squares methods share: f(U), the sum of squares with W eliminated, and a warning of gross errors.

Every residual is noise to them: a gross error is spread over all of L, and the message says so if the residuals look
like it.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..sweeps import Float
from ..sweeps.reference import cholesky, cholesky_solve
from .base import Problem
from .factors import FactorSolver, FactorState, StateT, beyond_noise

EPS = float(np.finfo(np.float64).eps)
EVIDENT = 0.01  # share of residuals beyond four times the noise; of normal noise it is 6e-5


@dataclass(kw_only=True)
class LeastSquares(FactorSolver[StateT]):
    """A method that takes every residual for noise."""

    robust = False

    def complete_fit(
        self, problem: Problem, previous: FactorState, after: StateT, *, settled: bool = True, **own: float
    ) -> StateT:
        """As `complete`; a step that is not `settled` does not count as convergence. Gross errors are pointed out."""
        self.complete(previous, after, **own)
        if not settled:
            after.accuracy, after.finished = math.inf, ""
        elif after.converged(problem.tol):
            e = problem.sweep.residual(after.U, after.V)
            wrong = beyond_noise(problem, e).size
            if wrong > max(1.0, EVIDENT * e.size):
                why = after.finished or f"the accuracy {after.accuracy:.2g} is at most tol = {problem.tol:g}"
                after.finished = (
                    f"{why}; but {wrong} of {e.size} entries are off by more than four times the noise: {self.name} is "
                    "a least-squares method and spreads gross errors over L; use a robust one, such as the default"
                )
        return after


def rounding(problem: Problem, value: float) -> float:
    """How much of a sum of squares of (fit - data) may be rounding."""
    size = problem.scale * math.sqrt(problem.M.nnz)
    return 1e3 * EPS * (value + EPS * size**2) + 10 * EPS * size * math.sqrt(max(value, 0.0))


class SubspaceFit(NamedTuple):
    """The best W for a subspace U, and the derivative of the sum of squares with respect to U there."""

    U: Float
    W: Float  # n x r
    factors: tuple[Float, Float]  # of the A_j
    R: Float  # on Ω
    value: float  # f(U)
    grad: Float  # m x r, tangent
    WtW: Float  # r x r


def fit_subspace(problem: Problem, U: Float, lambda2: float = 0.0) -> SubspaceFit:
    """f and its gradient at an orthonormal U."""
    sweep, x, l2 = problem.sweep, problem.M.values.astype(np.float64, copy=False), lambda2
    factors = cholesky((1 - l2) * sweep.grams(U) + l2 * np.eye(U.shape[1]))
    W = cholesky_solve(factors, sweep.product_transposed(x, U))
    y = sweep.entries(U, W)
    R = (1 - l2) * (y - x) - l2 * x
    WtW = W.T @ W
    value = 0.5 * float(np.sum((y - x) ** 2)) + 0.5 * l2 * (float(WtW.trace()) - float(np.sum(y**2)))
    return SubspaceFit(U, W, factors, R, value, tangent_part(U, sweep.product(R, W)), WtW)


def tangent_part(U: Float, H: Float) -> Float:
    """H without what it has in span(U)."""
    return np.asarray(H - U @ (U.T @ H), dtype=np.float64)
