"""AccAltProj: accelerated alternating projections for robust PCA, with every entry observed.

    find L of rank r and S sparse with  D = L + S .

Cai, Cai and Wei (2019).
L and S are projected in turns: S onto matrices without small entries, by a threshold that falls geometrically, and
Z = D - S onto those of rank r, but only after a projection onto their tangent space at the last L = U Σ Vᵀ,

    P_T(Z) = U Uᵀ Z + Z V Vᵀ - U Uᵀ Z V Vᵀ ,

whose rank is at most 2r: its singular values are those of a core of 2r x 2r. One iteration, t = 1, 2, ...:

    L⁺ = rank r part of P_T(D - S);   S⁺ = hard(D - L⁺, ζ),   ζ = β (σ_{r+1}(P_T(D - S)) + γ^t σ₁(P_T(D - S))) ,

after S⁰ = hard(D, 4 β σ₁(D)), L⁰ the rank r part of D - S⁰, and S¹ = hard(D - L⁰, β σ₁(L⁰)). β = 1 / (2 (mn)^¼) and
γ = 0.7 are those of the authors' program. Its description says γ = 0.5: the threshold then falls faster than L
converges on harder data, and S takes up what is not an outlier. That program trims rows of U to the length μr/m, where
μ is the incoherence; the bound is √(μr/m). Like there, nothing is trimmed unless it is asked for.

New here is a lower bound of ζ, four standard deviations of the inliers (1.4826 times the median of |D - L|), without
which all the noise ends up in S. Wild entries are clipped for σ₁(D). S takes up whatever exceeds ζ, so that the
residual becomes small also where L is wrong: where S has more than half of the entries, the method has stalled.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..linalg.grassmann import qf
from ..linalg.scale import robust_scale
from ..sweeps import Float
from .base import Outcome, Problem
from .convex import spectral_norm
from .factors import FactorSolver, FactorState, hard_threshold, outcome_with
from .parameters import parameter
from .trimming import incoherent

SETTLED = 0.01  # the falling part of the threshold / the other, when the change of L means something
CROWDED = 0.5  # share of the entries in S from which on L is no fit of the rest
PASSES = 30  # of the power iteration for L⁰, at most


@dataclass(kw_only=True)
class AltProjState(FactorState):
    """L = U Vᵀ with an orthonormal U, and S."""

    S: Float  # by column


@dataclass(kw_only=True)
class AccAltProj(FactorSolver[AltProjState]):
    """Accelerated alternating projections: D = L + S with L of rank r and S sparse, for a matrix without holes.

    It ends when ‖D - L - S‖ is at most `tol` times the size of D, or, under noise, when L changes by that.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 50, rank=2, density=1.0, outliers=0.1, random_state=1)
    >>> r = ls.solve(problem.M, 2, method=AccAltProj())
    >>> r.converged, r.L.error(problem.L, relative=True) < 1e-6
    (True, True)
    """

    name = "accaltproj"
    papers = (
        "H. Cai, J.-F. Cai, K. Wei: Accelerated Alternating Projections for Robust Principal Component "
        "Analysis, JMLR 20, 2019",
    )
    full = True

    gamma: float = parameter(0.7, "factor by which the threshold falls (the authors' program)", above=0, below=1)
    beta: float | None = parameter(None, "threshold, in units of singular values; None: 1 / (2 (mn)^¼)", above=0)
    first_beta: float | None = parameter(None, "the same for S⁰; None: 4 beta", above=0)
    floor: float = parameter(4.0, "least threshold, in standard deviations of the inliers; the paper: 0", at_least=0)
    mu: float | None = parameter(None, "trim rows of U and V longer than √(μr/m), √(μr/n); None: do not trim", above=0)

    def betas(self, problem: Problem) -> tuple[float, float]:
        """β, and that of S⁰."""
        m, n = problem.M.shape
        beta = 1 / (2 * (m * n) ** 0.25) if self.beta is None else self.beta
        return beta, 4 * beta if self.first_beta is None else self.first_beta

    def init(self, problem: Problem) -> AltProjState:
        """S⁰, L⁰ by a power iteration, and S¹."""
        beta, first = self.betas(problem)
        x = problem.M.values.astype(np.float64, copy=False)
        norm = spectral_norm(problem, np.clip(x, -problem.clip, problem.clip), precision=1e-3)
        Z = x - hard_threshold(x, first * norm)
        U, sizes = problem.start(), np.zeros(problem.rank)
        for _ in range(PASSES):
            last, V = sizes, qf(problem.sweep.product_transposed(Z, U))
            U, sizes, _ = np.linalg.svd(problem.sweep.product(Z, V), full_matrices=False)
            U = np.ascontiguousarray(U)
            if np.max(np.abs(sizes - last)) <= 1e-8 * sizes[0]:
                break
        V = problem.sweep.product_transposed(Z, U)
        S = hard_threshold(-problem.sweep.residual(U, V), beta * float(sizes[0]))
        return AltProjState(U=U, V=V, S=S)

    def advance(self, problem: Problem, state: AltProjState) -> AltProjState:
        """L from the tangent space at the last L, then S."""
        r, sweep = problem.rank, problem.sweep
        # M - S; where there is an outlier that is L, without the cancellation
        Z = np.where(state.S != 0, sweep.entries(state.U, state.V), problem.M.values)
        U, V = (np.linalg.qr(A)[0] for A in self.trimmed(state.U, state.V))
        ZV, ZtU = sweep.product(Z, np.ascontiguousarray(V)), sweep.product_transposed(Z, np.ascontiguousarray(U))
        # orthonormal bases of all that P_T(Z) spans, also where that is less than 2r
        left, right = np.linalg.qr(np.hstack([U, ZV]))[0], np.linalg.qr(np.hstack([V, ZtU]))[0]
        A, B = left.T @ U, right.T @ V
        core = A @ (ZtU.T @ right) + (left.T @ ZV - A @ (U.T @ ZV)) @ B.T
        P, sizes, Qt = np.linalg.svd(core)
        U, V = np.ascontiguousarray(left @ P[:, :r]), np.ascontiguousarray(right @ (Qt[:r].T * sizes[:r]))

        rest = float(sizes[r]) if sizes.size > r else 0.0
        falling = self.gamma ** (state.iteration + 1) * float(sizes[0])
        e = sweep.residual(U, V)
        beta, floor = self.betas(problem)[0], self.floor * robust_scale(e) if self.floor else 0.0
        zeta = max(beta * (rest + falling), floor, problem.rounding)
        S = hard_threshold(-e, zeta)
        after = AltProjState(U=U, V=V, S=S, objective=0.5 * float(np.sum((e + S) ** 2)))
        residual = math.sqrt(2 * after.objective / problem.M.nnz) / problem.scale
        share = np.count_nonzero(S) / problem.M.nnz
        dS = float(np.linalg.norm(S - state.S))
        self.complete(state, after, dS=dS, zeta=zeta, residual=residual, share=share)
        settled = beta * falling <= SETTLED * zeta and dS <= problem.tol * problem.scale * math.sqrt(problem.M.nnz)
        after.accuracy = min(residual, after.accuracy) if settled else residual
        if 0 < problem.tol >= after.accuracy and share > CROWDED:
            after.stall(
                f"S has {share:.0%} of the entries, so L fits too few to be believed: raise gamma, so that the "
                "threshold falls more slowly, or choose another rank or method"
            )
        return after

    def trimmed(self, U: Float, V: Float) -> tuple[Float, Float]:
        """Rows of orthonormal bases of U and V, cut to the length that an incoherence of `mu` allows."""
        if self.mu is None:
            return U, V
        U, V = np.linalg.qr(U)[0], np.linalg.qr(V)[0]
        return incoherent(U, self.mu / 4, 1.0), incoherent(V, self.mu / 4, 1.0)

    def finish(self, problem: Problem, state: AltProjState) -> Outcome:
        """L, and the S of the method."""
        e = problem.sweep.residual(state.U, state.V)
        return outcome_with(problem, self.lowrank(problem, state), state.S, e, state.objective)
