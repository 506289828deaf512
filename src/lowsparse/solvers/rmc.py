"""RMC: robust completion on the manifold of fixed-rank matrices, with the ℓ1 norm smoothed less and less.

For δ = δ₀, θδ₀, θ²δ₀, ... it solves, each time from where the last one ended,

    min over X of rank r   f_δ(X) = (1/|Ω|) [ Σ_Ω √(δ² + (X - M)²) + λ (‖X‖² - ‖P_Ω(X)‖²) ] .

Cambier and Absil (2016).

X = U σ Wᵀ with orthonormal U, W and a diagonal σ. A tangent vector U C Wᵀ + U_p Wᵀ + U W_pᵀ with U_p ⊥ U, W_p ⊥ W is
held as A = U C + U_p over B = W_p, so that inner products are those of [A; B]. With e = P_Ω(X) - x and
Z = Sp(e / √(δ² + e²) - 2λ P_Ω(X)), the gradient of |Ω| f_δ is A = Z W + 2λ U σ over B = (I - W Wᵀ) Zᵀ U. One iteration
of conjugate gradients (Hestenes-Stiefel; T projects onto the tangent space at X⁺):

    α  = -⟨g, d⟩ / (Σ_Ω D² / √(δ² + e²) + 2λ (‖D‖² - ‖P_Ω(D)‖²))        D = A Wᵀ + U Bᵀ, the direction d as a matrix
    X⁺ = the best approximation of X + αD of rank r          an SVD of its core in bases [U, Q] and [W, Y]
    y  = g⁺ - T(g),  β = max(0, ⟨g⁺, y⟩ / ⟨y, T(d)⟩),  d⁺ = -g⁺ + β T(d)

α minimises the quadratic that touches the objective at X and is nowhere below it on the line X + αD.

What differs from the authors' program, and why:

- It leaves the step to Manopt's adaptive search (here ``line_search="armijo"``), which begins a stage with a step far
  too long for a small δ and may halve it ten times only: there it stands still. Here it may do so 60 times.
- δ₀ is small, a twentieth of the median magnitude; theirs is 1, or the mean magnitude. With a δ as large as the entries
  the loss is almost squared, and components weaker than the outliers are spent on fitting those: σ₁/σ_r = 10 fails.
  A small δ₀ needs more iterations in the first stages: 100 are allowed, not 40, and θ is 0.1, not 0.05.
- A stage ends by its gradient against the largest there can be. Nothing here has the unit of the data.
- The start is the SVD of the observed entries over their share, those beyond four medians clipped to that.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ..linalg.arrays import inner, matmul_small, to_device_of
from ..linalg.grassmann import basis, qf, qr
from ..linalg.lowrank import LowRank
from ..linalg.scale import robust_scale
from ..robust.sketch import Sample
from ..sweeps import Float
from ..sweeps.losses import Kind, Loss
from .base import Problem, StagedState, count_stages, nothing
from .factors import FactorSolver, FactorState, clipped_factors
from .parameters import parameter

SUFFICIENT = {"closed": 1e-4, "armijo": 0.5}  # share of the decrease promised by the slope that a step must keep
HALVINGS = 60
ROUNDING = 1e-14  # of the objective
SMALLEST = 1e-30  # of the scale: a singular value that is not zero, so that one can divide by it


@dataclass(kw_only=True)
class RMCState(FactorState, StagedState):
    """X = U σ Wᵀ = U Vᵀ, the gradient there, and where it goes next."""

    scratch = ("sample",)

    sample: Sample
    sigma: Float
    W: Float  # n x r, orthonormal
    delta: float  # δ
    value: float = math.inf  # |Ω| (f_δ - δ)
    gradient: Float = field(default_factory=nothing)  # of that: [A; B], (m + n) x r
    direction: Float = field(default_factory=nothing)
    step: float = 0.0  # what "armijo" tries first; 0: it does not know
    idle: int = 0  # iterations in a row that gained no more than rounding
    noise: float = 0.0  # the robust scale of the residuals after the last stage


class Point(NamedTuple):
    """X = U σ Wᵀ."""

    U: Float
    sigma: Float
    W: Float


@dataclass(kw_only=True)
class RMC(FactorSolver[RMCState]):
    """Riemannian conjugate gradients for a smoothed ℓ1 norm, with continuation (Cambier, Absil 2016).

    It ends when the last stage is solved; on data without noise the error is proportional to its δ. (`delta` is no δ of
    the smoothing, but the rule of the paper's video section.)

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(80, 90, rank=2, density=0.7, outliers=0.1, random_state=1)
    >>> r = ls.solve(problem.M, rank=2, method=RMC())
    >>> r.converged and r.L.error(problem.L, relative=True) < 1e-6
    True
    """

    name = "rmc"
    papers = (
        "L. Cambier, P.-A. Absil: Robust low-rank matrix completion by Riemannian optimization. SIAM J. "
        "Sci. Comput. 38(5), 2016",
    )
    runs_anywhere = True

    delta0: float | None = parameter(None, "δ₀, in units of the data; None: 0.05 of the median magnitude", above=0)
    theta: float = parameter(0.1, "δ shrinks by (the authors: 0.05; 0.1 to 0.5 for real data)", above=0, below=1)
    stages: int | None = parameter(
        None, "number of δ (the authors: 7); None: until δ is tol times the size of the data", kind=int, at_least=1
    )
    stage_iter: int = parameter(100, "most iterations of a stage but the last (the authors: 40)", at_least=1)
    grad_tol: float = parameter(1e-3, "gradient at the end of a stage, over √|Ω|, about its largest value", above=0)
    lam: float = parameter(0.0, "λ, in 1 / units of the data: how surely unobserved entries are small", at_least=0)
    line_search: str = parameter("closed", "first step: in closed form, or twice the last", choices=tuple(SUFFICIENT))
    noise_stop: bool = parameter(True, "end with the first δ that is below the noise of the inliers")

    def schedule(self, problem: Problem) -> tuple[float, int]:
        """δ₀ and the number of stages."""
        delta0 = 0.05 * problem.unit if self.delta0 is None else self.delta0
        if self.stages is not None:
            return delta0, self.stages
        last = max(problem.tol, 1e-12) * problem.scale
        return delta0, count_stages(delta0, last, self.theta)

    def init(self, problem: Problem) -> RMCState:
        """The SVD of the observed entries, over their share, with δ₀."""
        U, V = clipped_factors(problem)
        W, R = qr(V)
        left, sizes, right = np.linalg.svd(R.T)
        W, sigma = matmul_small(W, right.T), np.maximum(sizes, SMALLEST * problem.scale)
        delta0, _ = self.schedule(problem)
        return RMCState(
            sample=Sample(problem.M, problem.sweep.host),
            U=matmul_small(U, left),
            V=W * to_device_of(sigma, W),
            sigma=sigma,
            W=W,
            delta=delta0,
        )

    def advance(self, problem: Problem, state: RMCState) -> RMCState:
        """One iteration with the stage's δ, or with the next one's if the last iteration ended its stage."""
        delta0, stages = self.schedule(problem)
        here = Point(state.U, state.sigma, state.W)
        if state.stage_done or not state.gradient.size:
            stage = state.stage + state.stage_done
            state = replace(
                state, stage=stage, stage_start=state.iteration, delta=delta0 * self.theta**stage, step=0.0, idle=0
            )
            state.value, g = self.value_and_gradient(problem, here, state.delta)
            state.gradient, state.direction = g, -g
        g, d = state.gradient, state.direction
        slope = float(np.vdot(g, d))
        if slope >= 0.0:
            d, slope = -g, -float(np.vdot(g, g))
        there, value, g_new, step, halvings = self._search(problem, state, here, d, slope)

        g_old, d_old = (transport(here, xi, there) for xi in (g, d))
        y = g_new - g_old
        curvature = float(np.vdot(y, d_old))
        beta = max(0.0, float(np.vdot(g_new, y)) / curvature) if step and curvature > 0.0 else 0.0
        after = replace(
            state,
            U=there.U,
            V=there.W * to_device_of(there.sigma, there.W),
            sigma=there.sigma,
            W=there.W,
            value=value,
            gradient=g_new,
            direction=beta * d_old - g_new,
            step=step if halvings == 1 else 2 * step,  # as Manopt: what took one halving was about right
            idle=state.idle + 1 if value >= (1 - 10 * ROUNDING) * state.value else 0,
            objective=value / problem.M.nnz + state.delta,
        )
        bound = math.sqrt(problem.M.nnz) * min(1.0, problem.scale / state.delta)  # |e| / √(δ² + e²) <= min(1, |e|/δ)
        rest = float(np.linalg.norm(g_new)) / bound
        self.complete(state, after, gamma=state.delta, gradient=rest, step=step, halvings=halvings)
        return self._conclude(problem, after, rest, last=after.stage == stages - 1)

    def _conclude(self, problem: Problem, state: RMCState, rest: float, last: bool) -> RMCState:
        """Whether the stage is done, or all of them."""
        if state.delta >= 0.1 * problem.largest:
            state.finished = ""  # what hardly moves under a large δ will do so under a smaller one
        solved = rest <= self.grad_tol
        capped = state.iteration - state.stage_start >= self.stage_iter
        # Below the noise of the inliers every δ costs more iterations, and none gains anything. It is noise, and not a
        # fit that is still on its way, if it does not fall with δ.
        noise = 0.0
        if self.noise_stop and (solved or capped):
            noise = robust_scale(state.sample.residual(state.U, state.V))
        at_noise = noise > max(state.delta, 0.5 * state.noise)
        state.accuracy = state.delta / problem.scale if solved and last else math.inf
        if not (solved and (at_noise or last)) and state.idle >= self.stage_iter and problem.tol > 0:
            state.failure = "stalled"
        state.end_stage(f"delta = {state.delta:.2g}", solved, capped, at_noise, last=last)
        if state.stage_done:
            state.noise = noise
        return state

    def lowrank(self, problem: Problem, state: RMCState) -> LowRank:
        """X; singular values that are there only to divide by are zero."""
        sigma = state.sigma * (state.sigma > SMALLEST * problem.scale)
        return LowRank(state.U, to_device_of(sigma, state.W)[:, None] * state.W.T)

    def value_and_gradient(self, problem: Problem, at: Point, delta: float) -> tuple[float, Float]:
        """|Ω| (f_δ - δ) and its gradient: one pass over the data, and three more if λ > 0."""
        U, W = at.U, at.W
        sigma = to_device_of(at.sigma, U)
        sums = problem.sweep.gradient(U, W * sigma, Loss(Kind.PSEUDO_HUBER, c=delta))  # δ times ours
        value, ZW, ZtU = sums.value / delta, sums.U / (delta * sigma), sums.V / delta
        if self.lam:
            x = problem.sweep.entries(U, W * sigma)
            value += self.lam * float(sigma @ sigma - x @ x)
            ZW -= 2 * self.lam * (problem.sweep.product(x, W) - U * sigma)
            ZtU -= 2 * self.lam * problem.sweep.product_transposed(x, U)
        return value, np.vstack([ZW, ZtU - W @ (W.T @ ZtU)])

    def _search(
        self, problem: Problem, state: RMCState, here: Point, d: Float, slope: float
    ) -> tuple[Point, float, Float, float, int]:
        """The next point, value and gradient there, the step to it, and how often that was halved."""
        step = self._first_step(problem, state, here, d, slope)
        curve = retraction(here, d, SMALLEST * problem.scale)
        for halvings in range(HALVINGS):
            there = curve(step)
            value, gradient = self.value_and_gradient(problem, there, state.delta)
            bound = state.value + SUFFICIENT[self.line_search] * step * slope
            if value <= bound + ROUNDING * abs(state.value):
                return there, value, gradient, step, halvings
            step /= 2
        return here, state.value, state.gradient, 0.0, HALVINGS

    def _first_step(self, problem: Problem, state: RMCState, here: Point, d: Float, slope: float) -> float:
        if self.line_search == "armijo":
            return state.step or problem.scale / (float(np.linalg.norm(d)) or 1.0)
        m = len(here.U)
        # over the left factor [U, A] X is [V, 0], and D is [B, W]
        left, right = np.hstack([here.U, d[:m]]), np.hstack([d[m:], here.W])
        loss = Loss(Kind.PSEUDO_HUBER, c=state.delta)
        own = np.hstack([state.V, np.zeros_like(state.V)])
        curvature = problem.sweep.curvature(left, own, right, loss) / state.delta
        if self.lam:
            x = problem.sweep.entries(left, right)
            curvature += 2 * self.lam * float(np.vdot(d, d) - x @ x)
        return -slope / curvature if curvature > 0.0 else 0.0


def retraction(here: Point, d: Float, smallest: float) -> Callable[[float], Point]:
    """The curve t -> the best approximation of X + tD of rank r."""
    r, m = len(here.sigma), len(here.U)
    A, B = d[:m], d[m:]
    C = inner(here.U, A)
    Q, R = basis(A - matmul_small(here.U, C))  # [U, U_p] = [U, Q] [I 0; 0 R], as U_p ⊥ U
    Y, T = basis(B)

    def at(t: float) -> Point:
        core = np.block([[np.diag(here.sigma) + t * C, t * T.T], [t * R, np.zeros((r, r))]])
        left, sizes, right = np.linalg.svd(core)
        U = matmul_small(here.U, left[:r, :r]) + matmul_small(Q, left[r:, :r])
        W = matmul_small(here.W, right[:r, :r].T) + matmul_small(Y, right[:r, r:].T)
        return Point(qf(U), np.maximum(sizes[:r], smallest), qf(W))

    return at


def transport(here: Point, xi: Float, there: Point) -> Float:
    """The projection of a tangent vector onto the tangent space at another point."""
    m = len(here.U)
    A, B = xi[:m], xi[m:]
    new_A = A @ (here.W.T @ there.W) + here.U @ (B.T @ there.W)
    new_B = here.W @ (A.T @ there.U) + B @ (here.U.T @ there.U)
    return np.vstack([new_A, new_B - there.W @ (there.W.T @ new_B)])
