"""LMaFit, the robust one: an augmented Lagrangian for the ℓ1 loss of two factors.

    min over U (m x r), V (n x r), Z (m x n)   ‖P_Ω(Z - M)‖₁   subject to   UVᵀ = Z

Shen, Wen and Zhang (2014).

With the multiplier Λ and the penalty β, and B = Z - Λ/β:

    U⁺ = qf(B V),   V⁺ = Bᵀ U⁺
    Z⁺ = M + soft(U⁺V⁺ᵀ - M + Λ/β, 1/β) on Ω,   U⁺V⁺ᵀ + Λ/β elsewhere
    Λ⁺ = Λ + β (U⁺V⁺ᵀ - Z⁺)

Λ is zero outside Ω, so Z = UVᵀ there, and no m x n array is needed: B = UVᵀ + Sp(w) with w = z - Λ/β - P_Ω(UVᵀ), one
number per entry. With e = P_Ω(UVᵀ) - x, soft thresholding leaves Λ⁺ = clip(Λ + βe, ±1) and, β' being the next penalty,
w⁺ = (Λ - Λ⁺)/β - Λ⁺/β'. One iteration, with G = Sp(w) V from the one before, is a single pass over the data:

    U⁺ = qf(U (VᵀV) + G),   V⁺ = V (UᵀU⁺) + Sp(w)ᵀ U⁺,   then Λ⁺, w⁺ and G⁺ = Sp(w⁺) V⁺

What differs from the authors' program, and why:

- Its schedule of β depends on its tol, and a small tol makes β grow so fast that the iteration stands still. Here the
  two have nothing to do with each other.
- It divides the data by the largest entry, which may be an outlier; here β is in units of 1 / the median magnitude of
  the entries. In these units its β goes from about 0.1 to 250 in 20 steps. Here it goes from 0.5 to 5000 at 3 % a step:
  fast growth freezes what is not fitted yet (columns with few entries, weak components), and a β that stays small takes
  long to see small outliers.
- It starts from zero; here from the SVD of the observed entries over their share, clipped, and from the Z and Λ that
  follow from it. With Z = M and Λ = 0 outliers would enter the first U and V in their full size; so they are bounded by
  2/β, and may be as large as they like.
- It ends when samples of UVᵀ and S change little. Here UVᵀ must change little and agree with Z, and Λ must be a
  multiplier: ‖Sp(Λ)V‖, zero at a solution, below 10⁻³ of its bound. A large β makes for small changes anywhere.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from ..linalg.grassmann import qf
from ..sweeps import Float, Multiplier
from .base import Problem
from .factors import FactorSolver, FactorState, clipped_factors
from .parameters import parameter, require

MULTIPLIER = 1e-3  # ‖Sp(Λ)V‖ / (√|Ω| ‖V‖₂) up to which Λ is taken for a multiplier


@dataclass(kw_only=True)
class LMaFitState(FactorState):
    """The factors, with orthonormal U; the multiplier, what Z - Λ/β has besides UVᵀ, and the product of that with V."""

    scratch = ("spare_multiplier", "spare_w")

    multiplier: Float  # Λ on Ω
    w: Float  # on Ω
    G: Float  # m x r: Sp(w) V
    spare_multiplier: Float  # the next ones are written here
    spare_w: Float


@dataclass(kw_only=True)
class LMaFit(FactorSolver[LMaFitState]):
    """Augmented Lagrangian alternating directions on a low-rank factorisation (Shen, Wen, Zhang 2014).

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(80, 90, rank=2, density=0.7, outliers=0.1, random_state=1)
    >>> r = ls.solve(problem.M, rank=2, method=LMaFit())
    >>> r.converged and r.L.error(problem.L, relative=True) < 1e-6
    True
    """

    name = "lmafit"
    papers = (
        "Y. Shen, Z. Wen, Y. Zhang: Augmented Lagrangian alternating direction method for matrix "
        "separation based on low-rank factorization. Optim. Methods Softw. 29(2), 2014",
    )
    runs_anywhere = True

    beta0: float = parameter(0.5, "first β, in units of 1 / the median magnitude of the entries", above=0)
    beta_growth: float = parameter(1.03, "factor by which β grows (the authors: 1.5)", at_least=1)
    beta_max: float = parameter(5000.0, "largest β, in the units of beta0", above=0)

    def check(self, problem: Problem) -> None:
        """Raise unless β may grow."""
        require(self.beta_max >= self.beta0, "beta_max", self.beta_max, f"at least beta0 = {self.beta0:g}")

    def penalty(self, problem: Problem, iteration: int) -> float:
        """β in the iteration of that number, from 0."""
        grown = min(iteration * math.log(self.beta_growth), math.log(self.beta_max / self.beta0))
        return self.beta0 * math.exp(grown) / problem.unit

    def init(self, problem: Problem) -> LMaFitState:
        """The factors of the start, and the steps in Z and Λ there, from Λ = 0."""
        U, V = clipped_factors(problem)
        beta = self.penalty(problem, 0)
        multiplier = problem.M.hold(np.clip(beta * problem.sweep.residual(U, V), -1.0, 1.0))
        w = problem.M.hold(-2 / beta * multiplier)
        G = problem.sweep.product(w, V)
        spares = problem.M.hold(np.zeros_like(w)), problem.M.hold(np.zeros_like(w))
        return LMaFitState(U=U, V=V, multiplier=multiplier, w=w, G=G, spare_multiplier=spares[0], spare_w=spares[1])

    def advance(self, problem: Problem, state: LMaFitState) -> LMaFitState:
        """One iteration."""
        U, V = state.U, state.V
        beta, next_beta = (self.penalty(problem, state.iteration + k) for k in (0, 1))
        U_new = qf(U @ (V.T @ V) + state.G)
        current, following = Multiplier(state.multiplier, state.w), Multiplier(state.spare_multiplier, state.spare_w)
        done = problem.sweep.ascend(U_new, V @ (U.T @ U_new), current, following, beta, next_beta)
        after = replace(
            state,
            U=U_new,
            V=done.V,
            multiplier=following.values,
            w=following.w,
            G=done.G,
            spare_multiplier=current.values,
            spare_w=current.w,
            objective=done.l1,
        )
        root = math.sqrt(problem.M.nnz)
        infeasible = done.infeasible / (root * problem.unit)
        # G = Sp(Λ - Λ⁺)V/β - Sp(Λ⁺)V/β': the second part, once the first has come to nothing
        largest = root * (float(np.linalg.norm(done.V, 2)) or 1.0)
        dual = next_beta * float(np.linalg.norm(done.G)) / largest
        self.complete(state, after, beta=beta, infeasible=infeasible, dual=dual)
        after.accuracy = max(after.accuracy, infeasible) if dual <= MULTIPLIER else math.inf
        if 1 / beta >= 0.1 * problem.largest:
            after.finished = ""  # what hardly moves under a large threshold 1/β will do so under a smaller one
        if after.accuracy <= np.finfo(problem.M.dtype).eps:
            after.finished = "L has come to rest within the precision of the data"
        return after
