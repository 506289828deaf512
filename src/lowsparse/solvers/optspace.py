"""OptSpace: low-rank completion by gradient descent over both subspaces. For data without gross errors.

    min over U in Gr(m, r), Y in Gr(n, r) of  F(U, Y) = min over Σ of  ½‖P_Ω(UΣYᵀ - M)‖² + λ/2 ‖UΣYᵀ‖² .

Keshavan, Montanari and Oh (2010); Keshavan and Oh (2009). The term with λ is that of (OptSpace) in the AManPGC paper,
halved as the squares are.

The start is the SVD of the trimmed matrix: a row or column with more than twice the mean number of entries keeps a
random choice of that many. One iteration, with R = Sp((UΣYᵀ)_Ω - x):

    Z_U = (I - UUᵀ) R YΣᵀ ,   Z_Y = (I - YYᵀ) Rᵀ UΣ ,
    U⁺ = qf(U - t Z_U) ,      Y⁺ = qf(Y - t Z_Y) ,   t halved until F(U⁺, Y⁺; Σ) <= F - ½ t (‖Z_U‖² + ‖Z_Y‖²) ,
    Σ⁺ = argmin:              U⁺ᵀ R Y⁺ + λ Σ⁺ = 0 , r² equations in r² unknowns.

What differs from the authors' program:

- U and Y are orthonormal, not of length √m and √n, and stay so by a QR factorisation in every iteration. The
  term with λ is λ/2 ‖Σ‖² then, and the gradient is not concerned.
- Steps start from twice the last one, at first from 1 / (p ‖Σ‖₂²), not from 0.1 in units of the scaled data. Where
  rounding hides the decrease, the sign of the derivative decides, which is the same on a parabola.
- From rank 17 on, Σ is found by conjugate gradients; the matrix of the equations would have r⁴ numbers.
- The penalty on incoherence, off by default there, is left out; the end is that of all methods here.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..linalg.grassmann import qf
from ..sweeps import Float
from .base import Problem
from .factors import FactorState, leading_subspace
from .least_squares import EPS, LeastSquares, rounding, tangent_part
from .parameters import parameter

DIRECT = 16  # the largest rank for which the equations of Σ are written out
HALVINGS = 40
TRIM = 2.0  # times the mean number of entries of a line


@dataclass(kw_only=True)
class OptSpaceState(FactorState):
    """L = U Σ Yᵀ, so V = Y Σᵀ."""

    Y: Float  # n x r, orthonormal
    Sigma: Float  # r x r
    step: float = 1.0  # in units of 1 / (p ‖Σ‖₂²), to try next


@dataclass(kw_only=True)
class OptSpace(LeastSquares[OptSpaceState]):
    """Gradient descent on two Grassmann manifolds, with the best Σ in between: least squares.

    For data without outliers: it is not robust. The number of iterations grows with the condition of L.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 80, rank=2, density=0.5, outliers=0, random_state=1)
    >>> r = ls.solve(problem.M, rank=2, method=OptSpace())
    >>> r.converged and r.L.error(problem.L, relative=True) < 1e-6
    True
    """

    name = "optspace"
    papers = (
        "R. H. Keshavan, A. Montanari, S. Oh: Matrix completion from a few entries, IEEE Transactions on "
        "Information Theory 56(6), 2010",
        "R. H. Keshavan, S. Oh: OptSpace: a gradient descent algorithm on the Grassmann manifold for "
        "matrix completion, arXiv 0910.5260",
    )

    lam: float = parameter(0.0, "λ, the weight of ‖L‖² against the sum of squares", at_least=0)
    trim: bool = parameter(True, "for the start, trim lines with more than twice the mean number of entries")

    def init(self, problem: Problem) -> OptSpaceState:
        """The leading singular vectors of the trimmed matrix, unless a start was given."""
        M, r = problem.in_memory, problem.rank
        kept = trimmed(M, np.random.default_rng([problem.seed, 0])) if self.trim else np.ones(M.nnz, dtype=bool)
        x = np.where(kept, np.clip(M.values, -problem.clip, problem.clip), 0.0).astype(np.float64, copy=False)
        # an entry left out and a zero are the same here
        U = problem.start() if kept.all() or problem.start_given else leading_subspace(problem, x)
        # what gives AᵀU full rank if A has less than r: nothing against what is there
        tiny = 1e-14 * (float(np.linalg.norm(x)) or 1.0) * np.eye(M.shape[1], r)
        Y = qf(problem.sweep.product_transposed(x, U) + tiny)
        Sigma = best_core(problem, U, Y, np.zeros((r, r)), self.lam)
        V = Y @ Sigma.T
        return OptSpaceState(U=U, V=V, Y=Y, Sigma=Sigma, objective=self.value(problem, U, V, Sigma))

    def value(self, problem: Problem, U: Float, V: Float, Sigma: Float) -> float:
        """The objective at U Vᵀ = U Σ Yᵀ."""
        e = problem.sweep.residual(U, V)
        return 0.5 * float(np.sum(e**2)) + 0.5 * self.lam * float(np.sum(Sigma**2))

    def advance(self, problem: Problem, state: OptSpaceState) -> OptSpaceState:
        """A step in U and Y that decreases the objective, then the best Σ."""
        U, Y, Sigma, F = state.U, state.Y, state.Sigma, state.objective
        ZU, ZY = _gradient(problem, U, Y, Sigma)
        slope = float(np.sum(ZU**2) + np.sum(ZY**2))
        nominal = 1 / (problem.M.density * float(np.linalg.norm(Sigma, 2)) ** 2 or 1.0)
        negligible, blur = 10 * EPS * math.sqrt(problem.rank), rounding(problem, F)
        for halved in range(HALVINGS + 1):
            t = nominal * state.step / 2**halved
            U_new, Y_new = qf(U - t * ZU), qf(Y - t * ZY)
            decrease = F - self.value(problem, U_new, Y_new @ Sigma.T, Sigma)
            if 0.5 * t * slope > blur:
                if decrease >= 0.5 * t * slope:
                    break
            elif decrease >= -blur:
                # lost in rounding; on a parabola the test is that of the sign of the derivative
                NU, NY = _gradient(problem, U_new, Y_new, Sigma)
                if np.vdot(NU, ZU) + np.vdot(NY, ZY) >= 0 or t * math.sqrt(slope) <= negligible:
                    break
        Sigma_new = best_core(problem, U_new, Y_new, Sigma, self.lam)
        V_new = Y_new @ Sigma_new.T
        after = OptSpaceState(
            U=U_new,
            V=V_new,
            Y=Y_new,
            Sigma=Sigma_new,
            step=min(2 * state.step / 2**halved, 4.0),
            objective=self.value(problem, U_new, V_new, Sigma_new),
        )
        if halved == HALVINGS:
            after.stall("no step decreases the sum of squares any more: lower the rank, or give lam, such as 1e-6")
        dU = t * float(np.linalg.norm(ZU))
        return self.complete_fit(problem, state, after, dU=dU, t=t, halved=halved, grad_norm=math.sqrt(slope))


def _gradient(problem: Problem, U: Float, Y: Float, Sigma: Float) -> tuple[Float, Float]:
    """Z_U and Z_Y."""
    V = Y @ Sigma.T
    e = problem.sweep.residual(U, V)
    ZU, ZY = problem.sweep.product(e, V), problem.sweep.product_transposed(e, U @ Sigma)
    return tangent_part(U, ZU), tangent_part(Y, ZY)


def best_core(problem: Problem, U: Float, Y: Float, Sigma: Float, lam: float) -> Float:
    """The Σ with Uᵀ Sp((UΣYᵀ)_Ω - x) Y + λΣ = 0, as a correction of a given one, which keeps its last digits."""
    sweep, r = problem.sweep, U.shape[1]
    rest = -(U.T @ sweep.product(sweep.residual(U, Y @ Sigma.T), Y)) - lam * Sigma
    if r <= DIRECT:
        # Σ_j (U_Ωjᵀ U_Ωj) ⊗ y_j y_jᵀ acts on Σ, row by row
        squares = (Y[:, :, None] * Y[:, None, :]).reshape(-1, r * r)
        A = (sweep.grams(U).reshape(-1, r * r).T @ squares).reshape(r, r, r, r).transpose(0, 2, 1, 3)
        found = np.linalg.lstsq(A.reshape(r * r, r * r) + lam * np.eye(r * r), rest.ravel(), rcond=1e-12)[0]
        return np.asarray(Sigma + found.reshape(r, r), dtype=np.float64)
    D, d = np.zeros_like(Sigma), rest
    left = first = float(np.sum(rest**2))
    for _ in range(4 * r):  # about p I for incoherent U and Y
        if left <= 1e-30 * first:
            break
        Ad = U.T @ sweep.product(sweep.entries(U, Y @ d.T), Y) + lam * d
        curvature = float(np.vdot(d, Ad))
        if curvature <= 0:
            break
        D, rest = D + left / curvature * d, rest - left / curvature * Ad
        left, previous = float(np.sum(rest**2)), left
        d = rest + left / previous * d
    return Sigma + D


def trimmed(M: ObservedMatrix, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which entries are kept, at random, if no row or column may have more than twice the mean number."""
    keys = rng.random(M.nnz)
    kept = np.ones(M.nnz, dtype=bool)
    for line, counts in ((M.rows, M.row_counts), (M.columns_of_entries(), M.column_counts)):
        most = max(1, math.floor(TRIM * M.nnz / counts.size))
        order = np.lexsort((keys, line))
        position = np.arange(M.nnz) - np.repeat(np.cumsum(counts) - counts, counts)
        kept[order[position >= most]] = False
    return kept
