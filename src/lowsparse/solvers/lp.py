"""Lp: completion under the ℓp norm of the residuals, by alternating ℓp regression or by ADMM.

    min over U, V of  Σ_Ω |e|^p ,  e = P_Ω(UVᵀ) - x ,  0 < p ≤ 2 .

Zeng and So (2018). The paper's constants were not available; those below were chosen by measurement.

form="regression": each column is an ℓp regression on U, then each row one on V. A regression is `n_reweight` times
weighted least squares with the weights (1 + e²/ε²)^(p/2 - 1), so the end is a stationary point of the smooth
Σ (e² + ε²)^(p/2).

- ε is 0.03 median|e| and at least 10⁻⁸ of the size of the data. On noise the sum is then within about 10⁻⁴ of its
  minimum; with a much smaller ε the alternation gets stuck at the corners of the norm, which no block can leave alone.
- In the first fit ε is larger, from where it comes down: three times the median of |e|, or of 0.7 to the power of the
  iteration (in units of the data) if that is less, so that in the end every fit is with ε itself.
- The start is "svd", not random as in the paper: as good, and an iteration or two less.

form="admm": min Σ|z|^p subject to z = e, with the multiplier Y and the penalty μ,

    (U, V):  alternating least squares for the data x + z - Y/μ ;
    a = e + Y/μ ,   z = argmin |z|^p + μ/2 (z - a)² ,   Y = μ (a - z) .

- z is measured in units of the data (their median magnitude), so that one μ fits all.
- One sweep of least squares in each iteration does as well as five, for a fifth of the time.
- μ grows by 2 % in each iteration for p = 1, by 5 % for p < 1. With a fixed μ the multipliers of small outliers take
  forever (p = 1: an error of 10⁻⁷ remains after 500 iterations), and for p < 1, where the prox jumps, z oscillates. As
  a growing μ brings anything to rest, what has to come to rest is the multiplier: μ times the change.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from ..linalg.grassmann import basis
from ..linalg.scale import CONSISTENT, OUTLIER
from ..robust.regression import EXPLAINED
from ..sweeps import Float, Proximal, Robust, Rule
from ..sweeps.losses import Kind, Loss
from .base import Problem, nothing
from .factors import FactorSolver, FactorState
from .irls import GIVEN_UP, SAME, SMALLEST, alternate, first_factors, skip_least_squares
from .parameters import parameter

SMOOTH = 0.03  # ε, in medians of |e|
FIRST = 3.0  # ε in the first fit, in medians of |e| or units
PACE = 0.7  # of the latter, by iteration
LARGEST_GROWTH = 1e8  # of μ: beyond it nothing moves any more
NEWTON = 12  # steps to full accuracy


@dataclass(kw_only=True)
class LpState(FactorState):
    """U, orthonormal, and V; ε, or z and its multiplier."""

    epsilon: float = 0.0
    median: float = 0.0  # of |e|, before the last half-step
    z: Float = field(default_factory=nothing)
    Y: Float = field(default_factory=nothing)  # without unit


@dataclass(kw_only=True)
class Lp(FactorSolver[LpState]):
    """Completion under the ℓp norm of the residuals.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 50, rank=2, density=0.7, outliers=0.1, random_state=1)
    >>> r = ls.solve(problem.M, rank=2, method=Lp(p=1))
    >>> r.converged and r.L.error(problem.L, relative=True) < 1e-6
    True
    """

    name = "lp"
    papers = (
        "W.-J. Zeng, H. C. So: Outlier-Robust Matrix Completion via ℓp-Minimization, IEEE Transactions on "
        "Signal Processing 66(5), 2018",
    )

    p: float = parameter(1.0, "the exponent; 2 is plain least squares, and not robust", above=0, at_most=2)
    form: str = parameter("regression", "the algorithm", choices=("regression", "admm"))
    epsilon: float | None = parameter(None, "regression: ε, in units of the data; None: follows the residuals", above=0)
    n_reweight: int = parameter(10, "regression: reweighted least-squares fits in each regression", at_least=1)
    mu: float = parameter(5.0, "ADMM: μ, without unit", above=0)
    growth: float | None = parameter(
        None, "ADMM: growth of μ per iteration; None: 1.05 if p < 1, 1.02 if p = 1, else 1", at_least=1, at_most=2
    )
    sweeps: int = parameter(1, "ADMM: sweeps of least squares in each iteration", at_least=1)

    def init(self, problem: Problem) -> LpState:
        """(U⁰, V⁰); z = 0, so that least squares come first, or z = e if they are in doubt."""
        U, V = first_factors(problem)
        e = problem.sweep.residual(U, V)
        if self.form == "regression":
            return LpState(U=U, V=V, median=float(np.median(np.abs(e))))
        return LpState(U=U, V=V, z=e if skip_least_squares(problem) else np.zeros_like(e), Y=np.zeros_like(e))

    def advance(self, problem: Problem, state: LpState) -> LpState:
        """One iteration of either form."""
        return self._regress(problem, state) if self.form == "regression" else self._ascend(problem, state)

    def _regress(self, problem: Problem, state: LpState) -> LpState:
        """An ℓp regression of each column, then of each row."""
        unit, p = problem.unit, self.p
        epsilon = self.epsilon
        if epsilon is None:
            epsilon = max(SMOOTH * state.median, SMALLEST * unit)
            if abs(epsilon - state.epsilon) <= SAME * state.epsilon:
                epsilon = state.epsilon
        first = max(epsilon, FIRST * min(state.median, PACE**state.iteration * unit))
        options = Robust(
            c=epsilon,
            first_c=first,
            kind=Kind.POWER,
            p=p,
            n_reweight=self.n_reweight if p < 2 else 1,  # all weights are 1
            bound=max(OUTLIER * CONSISTENT * state.median, EXPLAINED * unit),
            unit=unit,
        )
        U, V, lost, residuals = alternate(problem, state.U, state.V, options)
        # Σ (e² + ε²)^(p/2) - ε^p
        objective = p * epsilon ** (p - 2) * problem.sweep.gradient(U, V, Loss(Kind.POWER, epsilon, p)).value
        after = replace(state, U=U, V=V, epsilon=epsilon, median=residuals.quantile(0.5), objective=objective)
        gap = (first - epsilon) / problem.scale if p < 2 else 0.0
        self.complete(state, after, gamma=epsilon, gap=gap)
        after.accuracy = max(after.accuracy, gap)
        if lost and p < 1 and after.converged(problem.tol):
            after.stall(GIVEN_UP.format(lost) + "choose a larger p, or method='auto'")
        return after

    def _ascend(self, problem: Problem, state: LpState) -> LpState:
        """Least squares, the prox, and the multiplier."""
        M, unit, p = problem.M, problem.unit, self.p
        rate = self.growth if self.growth is not None else 1.05 if p < 1 else 1.02 if p == 1 else 1.0
        growth = math.exp(min(state.iteration * math.log(rate), math.log(LARGEST_GROWTH)))
        mu = self.mu * growth
        y = state.Y * (unit / mu)
        S = (y - state.z).astype(M.dtype)  # x - S = x + z - Y/μ
        S_rows = S[problem.by_row]
        U, V = state.U, state.V
        for _ in range(self.sweeps):
            Q, _ = basis(problem.sweep.sweep(U, S, None, Proximal(Rule.FIT)).V.T)
            U, R = basis(problem.row_sweep.sweep(Q, S_rows, None, Proximal(Rule.FIT)).V.T)
            V = Q @ R.T
        e = problem.sweep.residual(U, V)
        a = e + y
        z = unit * prox(a / unit, p, mu)
        after = replace(state, U=U, V=V, z=z, Y=(mu / unit) * (a - z), objective=float(np.sum(np.abs(e) ** p)))
        gap = float(np.linalg.norm(e - z)) / (problem.scale * math.sqrt(M.nnz))
        self.complete(state, after, gamma=unit / mu, gap=gap)
        after.accuracy = growth * max(after.accuracy, gap)
        return after


def prox(a: Float, p: float, mu: float) -> Float:
    """argmin over z of |z|^p + μ/2 (z - a)²."""
    if p == 2:
        return a * (mu / (2 + mu))
    if p == 1:
        return a - np.clip(a, -1 / mu, 1 / mu)
    size = np.abs(a)
    kept = size > 1e-200
    if p < 1:
        # the minimum away from 0 is at z ≥ c₁, and is the lower one from |a| = c₂ on
        c1 = (2 * (1 - p) / mu) ** (1 / (2 - p))
        kept = size > c1 + p / mu * c1 ** (p - 1)
    b = size[kept]
    # z + (p/μ) z^(p-1) = |a| by Newton's method from above; the left side is convex in z if p < 1, in log z if p > 1
    if p < 1:
        z = b.copy()
        for _ in range(NEWTON):
            power = p / mu * z ** (p - 1)
            z -= (z + power - b) / (1 + (p - 1) * power / z)
    else:
        t = np.log(b)
        t = np.minimum(t, np.maximum((t + math.log(mu / p)) / (p - 1), -600.0))
        for _ in range(NEWTON):
            z, power = np.exp(t), p / mu * np.exp((p - 1) * t)
            t -= (z + power - b) / (z + (p - 1) * power)
        z = np.exp(t)
    found = np.zeros_like(a)
    found[kept] = np.copysign(z, a[kept])
    return found
