"""RTRMC: low-rank completion by a trust-region method on the Grassmann manifold. For data without gross errors.

With W eliminated, the sum of squares is a function of the subspace alone,

    min over U in Gr(m, r) of  f(U) = min over W of  ½‖P_Ω(UW - M)‖² + λ²/2 ‖P_Ω̄(UW)‖² ,

and its gradient and Hessian are known in closed form. For orthonormal U, with A_j = (1 - λ²) U_Ωjᵀ U_Ωj + λ² I,

    w_j = A_j⁻¹ U_Ωjᵀ x_j ,    R = (1 - λ²) (UW - x)_Ω - λ² x ,    grad f = Sp(R) Wᵀ + λ² U W Wᵀ ,
    dw_j = -A_j⁻¹ [Sp(R)ᵀ H + (1 - λ²) Sp((HW)_Ω)ᵀ U]_j ,
    Hess f [H] = (I - UUᵀ) [Sp((1 - λ²) (HW + U dW)_Ω) Wᵀ + Sp(R) dWᵀ + λ² H W Wᵀ] .

One iteration: truncated conjugate gradients (Steihaug) for the quadratic model in a ball of radius Δ, preconditioned by
H -> H (WWᵀ)⁻¹. The step is taken, by the polar retraction, if f comes down by more than a tenth of what the model
promised (ρ > 0.1). Δ shrinks to a quarter if ρ < ¼, and doubles if ρ > ¾ and the step ended at the boundary.

Boumal and Absil (2011, 2015).

What differs from the paper and its program:

- f is not divided by |Ω|; the units of Δ and of the stopping rule of the inner iteration are those of the data, so that
  c M has the solution c L. Without the preconditioner, the metric is multiplied by ‖W‖₂² for the same reason.
- The ratio ρ is regularised by what rounding does to f itself; 10³ eps max(1, f) is blind to small singular values.
- The metric of the ball, whose inverse is the preconditioner, is WWᵀ + damping ‖W‖₂² I. Where W has almost lost rank,
  as it does if the rank is too large, steps are else far longer than the model is good for. Of six 200 x 250 matrices
  of rank 5, 20 % observed, damping = 0 (the paper's) solved one at condition 10⁴, none given rank 8, in 300 iterations;
  0.01 solved all. At condition 50, 300 x 300 and 15 % observed, 0.01 solved eight of eight and damping = 0 seven (one
  stalled), where 0.01 needs two to four times as many inner iterations.
- order=1 takes B[H] = p H WWᵀ for the Hessian (p ‖W‖₂² H without the preconditioner), not the identity.
- Confidence weights are left out, and with them the reweighting shipped with the program: other methods here do that.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..sweeps import Float
from ..sweeps.reference import cholesky_solve
from .base import Problem
from .factors import FactorState
from .least_squares import EPS, LeastSquares, SubspaceFit, fit_subspace, rounding, tangent_part
from .parameters import parameter

ACCEPTED, POOR, GOOD = 0.1, 0.25, 0.75  # of the decrease that was promised
KAPPA = 0.1  # by which the inner iteration reduces the gradient at least; close to the end, by itself (θ = 1)
SMALLEST_RADIUS = 1e-12  # against the largest: no step within it decreases f


def hessian(problem: Problem, at: SubspaceFit, H: Float, lambda2: float = 0.0) -> Float:
    """Hess f [H] for a tangent vector H."""
    sweep, l2 = problem.sweep, lambda2
    HW = sweep.entries(H, at.W)
    dW = -cholesky_solve(at.factors, sweep.product_transposed(at.R, H) + (1 - l2) * sweep.product_transposed(HW, at.U))
    change = sweep.product((1 - l2) * (HW + sweep.entries(at.U, dW)), at.W) + sweep.product(at.R, dW)
    return tangent_part(at.U, change + l2 * (H @ at.WtW))


class Inner(NamedTuple):
    """What the inner iteration found: the step, the decrease that the model promises, and how it ended."""

    step: Float
    promised: float
    steps: int
    boundary: bool


def truncated_cg(
    apply: Callable[[Float], Float], P: Float, grad: Float, radius: float, size: float, max_inner: int
) -> Inner:
    """Minimise ⟨grad, H⟩ + ½⟨H, B H⟩ where ⟨H, H P⁻¹⟩ <= radius², roughly, for B = `apply`.

    It ends once the preconditioned gradient is min(κ, its first size / `size`) of its first size.
    """
    step, B_step, r = np.zeros_like(grad), np.zeros_like(grad), grad
    z = r @ P
    rz = first = float(np.vdot(r, z))
    target = max(math.sqrt(first) * min(KAPPA, math.sqrt(first) / size), EPS * size)
    d, ss, sd, dd = -z, 0.0, 0.0, rz  # ‖step‖², ⟨step, d⟩, ‖d‖² in the metric of P⁻¹
    boundary, steps = False, 0
    while rz > 0 and steps < max_inner and not boundary:
        steps += 1
        Bd = apply(d)
        curvature = float(np.vdot(d, Bd))
        alpha = rz / curvature if curvature > 0 else math.inf
        if curvature <= 0 or ss + 2 * alpha * sd + alpha**2 * dd >= radius**2:
            alpha = (math.sqrt(sd**2 + dd * max(radius**2 - ss, 0.0)) - sd) / dd
            boundary = True
        step, B_step, r = step + alpha * d, B_step + alpha * Bd, r + alpha * Bd
        z = r @ P
        rz, previous = float(np.vdot(r, z)), rz
        if math.sqrt(max(rz, 0.0)) <= target:
            break
        ss, sd = ss + 2 * alpha * sd + alpha**2 * dd, sd + alpha * dd
        beta = rz / previous
        d, sd, dd = beta * d - z, beta * sd, rz + beta**2 * dd
    return Inner(step, -float(np.vdot(grad, step)) - 0.5 * float(np.vdot(step, B_step)), steps, boundary)


@dataclass(kw_only=True)
class TrustRegionState(FactorState):
    """U and W, and the size of the region in which the model is trusted."""

    radius: float
    largest_radius: float


@dataclass(kw_only=True)
class RTRMC(LeastSquares[TrustRegionState]):
    """Trust-region completion on the Grassmann manifold: least squares, exact to rounding within a few iterations.

    For data without outliers: it is not robust. It works best with the short side first (m <= n).

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 80, rank=2, density=0.5, outliers=0, random_state=1)
    >>> r = ls.solve(problem.M, rank=2, method=RTRMC())
    >>> r.converged and r.n_iter < 15 and r.L.error(problem.L, relative=True) < 1e-12
    True
    """

    name = "rtrmc"
    papers = (
        "N. Boumal, P.-A. Absil: RTRMC: a Riemannian trust-region method for low-rank matrix completion, NIPS 2011",
        "N. Boumal, P.-A. Absil: Low-rank matrix completion via preconditioned optimization on the Grassmann "
        "manifold, Linear Algebra and its Applications 475, 2015",
    )

    order: int = parameter(2, "2: exact Hessian; 1: a constant model of it, in effect gradient descent", choices=(1, 2))
    precondition: bool = parameter(True, "by (WWᵀ)⁻¹: insensitive to the condition of L")
    damping: float = parameter(0.01, "of the preconditioner, over ‖W‖₂²; the paper: 0; with order=1: 1e-4", at_least=0)
    lam: float = parameter(0.0, "λ; 1e-5 or more if columns hardly have more entries than r", at_least=0, below=1)
    max_inner: int = parameter(500, "products with the Hessian in one iteration (as the authors' program)", at_least=1)

    def init(self, problem: Problem) -> TrustRegionState:
        """U⁰ and a region of an eighth of the injectivity radius √r π/2."""
        at = fit_subspace(problem, problem.start(), self.lam**2)
        largest = math.sqrt(_largest(at.WtW) * problem.rank) * math.pi / 2
        return TrustRegionState(U=at.U, V=at.W, objective=at.value, radius=largest / 8, largest_radius=largest)

    def advance(self, problem: Problem, state: TrustRegionState) -> TrustRegionState:
        """One step of the trust region, taken or not."""
        l2, p = self.lam**2, problem.M.density
        at = fit_subspace(problem, state.U, l2)
        size = problem.scale * math.sqrt(problem.M.nnz)
        metric = self.metric(at.WtW)
        P = np.asarray(np.linalg.inv(metric), dtype=np.float64)
        inner = truncated_cg(
            (lambda H: hessian(problem, at, H, l2)) if self.order == 2 else (lambda H: p * H @ metric),
            P,
            at.grad,
            state.radius,
            size,
            self.max_inner,
        )
        left, _, right = np.linalg.svd(state.U + inner.step, full_matrices=False)
        new = fit_subspace(problem, left @ right, l2)

        # λ² times a difference of large numbers is rounded too
        blur = rounding(problem, at.value) + 1e3 * EPS * l2 * float(at.WtW.trace())
        rho = (at.value - new.value + blur) / (inner.promised + blur)
        taken = rho > ACCEPTED
        radius, largest = state.radius, state.largest_radius
        if not rho >= POOR:
            radius /= 4
        elif rho > GOOD and inner.boundary:
            radius = min(2 * radius, largest)
        U, W, objective = (new.U, new.W, new.value) if taken else (state.U, state.V, state.objective)
        after = TrustRegionState(U=U, V=W, objective=objective, radius=radius, largest_radius=largest)
        if not taken and radius < SMALLEST_RADIUS * largest:
            after.stall(
                "no step decreases f any more, though its gradient is not zero: f is not continuous where the entries "
                "of a column do not determine its coefficients; give lam = 1e-5, or a lower rank, or leave them out"
            )
        grad_norm = float(np.linalg.norm(at.grad))
        own = {"inner": inner.steps, "radius": state.radius, "rho": rho, "grad_norm": grad_norm}
        dU = float(np.linalg.norm(inner.step)) if taken else 0.0
        return self.complete_fit(problem, state, after, settled=taken and not inner.boundary, dU=dU, **own)

    def metric(self, WtW: Float) -> Float:
        """‖H‖² = ⟨H, H metric⟩, whose inverse is the preconditioner."""
        largest, one = _largest(WtW) or 1.0, np.eye(len(WtW))
        return WtW + max(self.damping, 1e-12) * largest * one if self.precondition else largest * one


def _largest(A: Float) -> float:
    """The largest eigenvalue."""
    return max(float(np.linalg.eigvalsh(A)[-1]), 0.0)
