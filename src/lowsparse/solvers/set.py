"""SET: subspace evolution, low-rank completion along geodesics of rank one. For data without gross errors.

    min over U in Gr(m, r) of  f(U) = min over W of  ½‖P_Ω(UW - M)‖² .

Dai and Milenkovic (2010); Dai, Milenkovic and Kerman (2011).

One iteration, with the residual R = Sp(x - (UW)_Ω) and the leading singular triple (h, σ, v) of R Wᵀ = -∇f:

    U(t) = U + ((cos t - 1) U v + sin t h) vᵀ ,    t = argmin over [0, π) of f(U(t)) .

Only one column of U moves, u(t) = cos t Uv + sin t h, so f along the geodesic is known exactly after one pass. In each
column j, with ũ and h̃ for what Uv and h on Ω_j have besides the other columns of U, and w for the coefficient of Uv,

    2 f_j(t) = ‖r_j‖² + w² ũᵀũ - (cos t α + sin t β)² / ‖cos t ũ + sin t h̃‖² ,   α = w ũᵀũ,  β = w ũᵀh̃ + hᵀr_j .

The search is a grid over [0, π) and then the zero of f' next to its best point.

An illustration: f is not continuous where a column does not determine its coefficients, and the second half of the
method, the transfer across such barriers, is left out. RTRMC has the same minima and needs far fewer iterations.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..linalg.grassmann import qf
from ..sweeps import Float
from ..sweeps.reference import cholesky, cholesky_solve
from .base import Problem
from .factors import FactorState
from .least_squares import EPS, LeastSquares, fit_subspace, rounding, tangent_part

GRID = 64  # angles


class Geodesic(NamedTuple):
    """f along U(t), up to f(0): what each column contributes."""

    A: Float  # ũᵀũ
    B: Float  # ũᵀh̃
    D: Float  # h̃ᵀh̃
    alpha: Float  # ũᵀx
    beta: Float  # h̃ᵀx
    w: Float

    def _at(self, t: float) -> tuple[float, float, Float, Float]:
        """The cosine and sine, ‖u(t)‖² and its best coefficient, in each column."""
        c, s = math.cos(t), math.sin(t)
        d = np.maximum(c * c * self.A + 2 * c * s * self.B + s * s * self.D, 0.0)
        seen = d > 1e-13 * (self.A + self.D)
        return c, s, d, np.divide(c * self.alpha + s * self.beta, d, out=np.zeros_like(d), where=seen)

    def value(self, t: float) -> float:
        """f(U(t)) - f(U)."""
        _, _, d, omega = self._at(t)
        return 0.5 * float(np.sum(self.w * self.alpha - omega**2 * d))

    def slope(self, t: float) -> float:
        """Its derivative, -Σ_j ω u'(t)ᵀ(r_j of t)."""
        c, s, _, omega = self._at(t)
        derivative = c * self.beta - s * self.alpha - omega * (c * s * (self.D - self.A) + (c * c - s * s) * self.B)
        return -float(np.sum(omega * derivative))

    def best(self) -> float:
        """The angle of the least value: 0 if f does not fall from there."""
        from scipy.optimize import brentq  # not before it is needed: it takes 16 MB

        if not self.slope(0.0) < 0:
            return 0.0
        angles = np.arange(GRID) * (math.pi / GRID)
        k = int(np.argmin([0.0, *(self.value(t) for t in angles[1:])]))
        low, high = angles[max(k - 1, 0)], angles[k] + math.pi / GRID
        if k == 0:
            low = 0.0
            while high > 0 and not self.slope(high) > 0:
                high /= 2
        if not self.slope(low) < 0 < self.slope(high):
            return float(angles[k])
        # halved from 1 to the smallest number if need be, as from 0 to an angle of rounding
        return float(brentq(self.slope, low, high, xtol=1e-300, rtol=4 * EPS, maxiter=2000))


def geodesic(problem: Problem, U: Float, W: Float, e: Float, Vt: Float, h: Float) -> Geodesic:
    """f along the geodesic from U that turns U v, v the first row of the orthonormal matrix Vᵀ, towards h.

    W is the best for U, and e = (UW)_Ω - x.
    """
    r = U.shape[1]
    frame = np.column_stack([(U @ Vt.T)[:, 1:], U @ Vt[0], h])  # the columns that stay, Uv, h
    grams = problem.sweep.grams(frame)
    others = cholesky(grams[:, : r - 1, : r - 1])

    def rest(k: int, other: int) -> Float:
        """The product of two columns of the frame, without what both have in the columns that stay."""
        inside = np.sum(grams[:, : r - 1, k] * cholesky_solve(others, grams[:, : r - 1, other]), axis=1)
        return np.asarray(grams[:, k, other] - inside, dtype=np.float64)

    A, B, D = np.maximum(rest(r - 1, r - 1), 0.0), rest(r - 1, r), np.maximum(rest(r, r), 0.0)
    A = np.where(grams[:, r - 1, r - 1] * 1e-12 < A, A, 0.0)
    w = np.where(A > 0, W @ Vt[0], 0.0)
    return Geodesic(A, B, D, w * A, w * B - problem.sweep.product_transposed(e, h[:, None])[:, 0], w)


@dataclass(kw_only=True)
class SET(LeastSquares[FactorState]):
    """Subspace evolution: each iteration turns one direction of U as far as the sum of squares falls.

    For data without outliers: it is not robust. Without regularisation, without the transfer step, and slow.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 80, rank=2, density=0.5, outliers=0, random_state=1)
    >>> r = ls.solve(problem.M, rank=2, method=SET())
    >>> r.converged and r.L.error(problem.L, relative=True) < 1e-6
    True
    """

    name = "set"
    papers = (
        "W. Dai, O. Milenkovic: SET: an algorithm for consistent matrix completion, ICASSP 2010",
        "W. Dai, O. Milenkovic, E. Kerman: Subspace evolution and transfer (SET) for low-rank matrix "
        "completion, IEEE Transactions on Signal Processing 59(7), 2011",
    )

    def init(self, problem: Problem) -> FactorState:
        """U⁰ and its best W."""
        at = fit_subspace(problem, problem.start())
        return FactorState(U=at.U, V=at.W, objective=at.value)

    def advance(self, problem: Problem, state: FactorState) -> FactorState:
        """Turn the leading direction."""
        U, W = state.U, state.V
        e = problem.sweep.residual(U, W)
        G = tangent_part(U, problem.sweep.product(e, W))
        left, sizes, Vt = np.linalg.svd(-G, full_matrices=False)
        h = left[:, 0] - U @ (U.T @ left[:, 0])
        length = float(np.linalg.norm(h))  # 0 if U spans everything
        t = geodesic(problem, U, W, e, Vt, h / length).best() if sizes[0] > 0 and length > 0.5 else 0.0
        after = FactorState(U=U, V=W, objective=state.objective)
        if t > 0:
            v = Vt[0]
            at = fit_subspace(problem, qf(U + np.outer((math.cos(t) - 1) * (U @ v) + math.sin(t) * (h / length), v)))
            if at.value <= state.objective + rounding(problem, state.objective):
                after = FactorState(U=at.U, V=at.W, objective=at.value)
            else:
                after.stall(
                    "the next step would raise the sum of squares: there are columns whose entries do not determine "
                    "their coefficients; leave them out, lower the rank, or choose a method with regularisation"
                )
        return self.complete_fit(problem, state, after, dU=t, angle=t, grad_norm=float(np.linalg.norm(sizes)))
