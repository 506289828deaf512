"""ManPG, AManPG, ManPGC, AManPGC: manifold proximal gradient for robust matrix completion, γ fixed or falling.

For a fixed threshold γ they solve, over subspaces U, coefficients V and outliers S,

    min  ½‖P_Ω(UV - M + S)‖² + λ²/2 ‖P_Ω̄(UV)‖² + γ‖P_Ω(S)‖₁ ,

which, once S is minimised out, is completion under the Huber loss with threshold γ (Algorithms 1 and 2). With
continuation γ falls in stages, each started where the last one ended (Algorithm 3).

Equation names below are those of the paper, by Huang, Ma and Lai.
"""

import math
import sys
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dsyev

from ..linalg.arrays import matmul_small
from ..linalg.grassmann import retract
from ..linalg.lowrank import LowRank
from ..result import Stationarity
from ..sweeps import Float, Previous, Proximal, Rule, SweepResult
from .base import Outcome, Problem, Solver, StagedState, count_stages, nothing
from .factors import trace_row, within_delta
from .parameters import parameter

ARMIJO = 1e-4  # share of the decrease promised by the gradient that a step must keep
SMALLEST_STEP = 1e-10  # against the nominal one: below it nothing decreases the objective any more


@dataclass(kw_only=True)
class ProximalState(StagedState):
    """The point (U, S), the step that led to it, which may have to be shortened, and the sums of the last sweep."""

    scratch = ("spare",)

    U: Float
    S: NDArray[Any]
    spare: NDArray[Any]  # as large as S; the next S is written here
    l1: float = 0.0  # ‖S‖₁
    gamma: float
    shortening: float = 1.0  # of the nominal step, after backtracking
    # U = Retr_{U_from}(-t D), to be accepted if F(U, S) has come down from its reference
    guarded: bool = False  # whether there is one
    U_from: Float = field(default_factory=nothing)
    D: Float = field(default_factory=nothing)
    DtD: Float = field(default_factory=nothing)
    t: float = 0.0
    inverse: Float = field(default_factory=nothing)  # R⁻¹ of that retraction
    slope: float = 0.0  # ⟨grad, D⟩ > 0
    reference: tuple[float, float] = (0.0, 0.0)  # smooth part and l1 norm of F there
    V_last: Float = field(default_factory=nothing)  # of the last sweep, at U_from
    VVt_last: Float = field(default_factory=nothing)


class Accepted(NamedTuple):
    """The point at which the objective had not risen, and its sweep."""

    U: Float
    swept: SweepResult
    t: float  # the step it was reached with, its R⁻¹, and how often it was halved
    inverse: Float
    shortened: int
    failure: str = ""


class Direction(NamedTuple):
    """Where the objective rises on the manifold: U goes to Retr_U(-t D)."""

    D: Float
    DtD: Float
    grad: float  # ‖G‖
    slope: float  # ⟨G, D⟩


@dataclass(kw_only=True)
class ProximalGradient(Solver):
    """What ManPG, AManPG and their continuations share: one iteration at a fixed γ."""

    papers = (
        "M. Huang, S. Ma, L. Lai: Robust Low-rank Matrix Completion via an Alternating Manifold Proximal "
        "Gradient Continuation Method",
    )
    runs_anywhere = True
    if_slow = "precondition=True helps if the singular values of L differ much"
    alternating: ClassVar[bool]  # Gauss-Seidel (AManPG) or Jacobi (ManPG)

    t_S: float = parameter(1.0, "step in S; 1 is exact, as the Lipschitz constant of ∇_S f is 1", above=0, at_most=1)
    t_U: float | None = parameter(None, "fixed step in U; None: step / (p ‖V‖₂²), in each iteration", above=0)
    step: float | None = parameter(None, "scales steps in U; None: 1.1 if alternating, else 0.7; at most 1.3", above=0)
    lam: float = parameter(1e-5, "λ: how surely unobserved entries are zero; λ² regularises", at_least=0, below=1)
    delta: float | None = parameter(None, "end when UV changes by less than this, relatively (video: 0.01)", above=0)
    precondition: bool = parameter(False, "step along -G (V Vᵀ + damping ‖V‖₂² I)⁻¹ / p, for an ill-conditioned L")
    damping: float = parameter(0.01, "of precondition; 0.1 for video, to keep the background clean", at_least=0)
    backtracking: bool = parameter(True, "shorten a step in U after which the objective would rise")

    def begin(self, problem: Problem, gamma: float) -> ProximalState:
        """(U⁰, S⁰); S⁰ is 0 but where an entry exceeds all that an inlier could be.

        Parameters
        ----------
        problem
            As for `init`.
        gamma
            The threshold γ.

        Returns
        -------
        ProximalState
            Before the first iteration.
        """
        x = problem.M.values
        S = np.zeros_like(x) if np.isinf(problem.clip) else x - np.clip(x, -problem.clip, problem.clip)
        l1 = float(np.sum(np.abs(S), dtype=np.float64))  # before there is a second one
        S, spare = problem.M.hold(S), problem.M.hold(np.zeros_like(x))
        return ProximalState(U=problem.start(), S=S, spare=spare, l1=l1, gamma=gamma)

    def sweep(self, problem: Problem, state: ProximalState, U: Float, rule: Rule, inverse: Float) -> SweepResult:
        """One pass over the data at (U, S).

        Parameters
        ----------
        problem, state
            As for `advance`; S and the last V are those of the state.
        U
            The columns of L are sought in its span.
        rule
            Whether S is to be updated, and how.
        inverse
            With it V is compared to the last, as seen from U; empty: it is not.

        Returns
        -------
        SweepResult
            V, the gradient, the objective and sums.
        """
        previous = Previous(state.V_last, inverse.T) if inverse.size else None
        options = Proximal(rule, gamma=state.gamma, t_S=self.t_S, lambda2=self.lam**2)
        return problem.sweep.sweep(U, state.S, state.spare, options, previous)

    def accepted(self, problem: Problem, state: ProximalState, rule: Rule) -> Accepted:
        """Sweep at state.U, or after a shorter step if the objective has risen.

        The sweep evaluates F(U, S) too, so an accepted step costs nothing extra.

        Parameters
        ----------
        problem, state
            As for `advance`.
        rule
            Whether S is to be updated, and how.

        Returns
        -------
        Accepted
            U, its sweep and the step, or why there is none.
        """
        U, t, inverse, shortened = state.U, state.t, state.inverse, 0
        smooth, l1 = state.reference
        bound = smooth + state.gamma * l1
        # F is a sum of squares of rounded differences, and of λ² times a difference of large numbers
        rounding = 1e-14 * self.lam**2 / problem.M.density + 1e-30
        slack = 1e-13 * abs(bound) + rounding * problem.scale**2 * problem.M.nnz
        while True:
            swept = self.sweep(problem, state, U, rule, inverse)
            F = swept.smooth_in + state.gamma * state.l1
            if not (self.backtracking and state.guarded) or bound - ARMIJO * t * state.slope + slack >= F:
                return Accepted(U, swept, t, inverse, shortened)
            if not np.isfinite(bound):
                return Accepted(U, swept, t, inverse, shortened, "diverged")
            if state.shortening / 2**shortened < SMALLEST_STEP:
                return Accepted(U, swept, t, inverse, shortened, "stalled")
            shortened += 1
            t /= 2
            U, inverse = retract(state.U_from, state.D, _scaled(state.DtD, t), step=-t)

    def nominal(self, problem: Problem, VVt: Float) -> tuple[float, Float | None]:
        """The nominal step, and what the gradient is preconditioned with.

        Parameters
        ----------
        problem
            As for `advance`.
        VVt
            V Vᵀ.

        Returns
        -------
        step, P
            P is None without preconditioning.
        """
        largest = float(dsyev(VVt, compute_v=0)[0][-1])  # ‖V‖₂²
        p = problem.M.density
        c = self.step or (1.1 if self.alternating else 0.7)
        if largest <= 0.0 or not self.precondition:  # V = 0: so is the gradient
            return self.t_U or c / (p * largest or 1.0), None
        P = np.linalg.inv(VVt + max(self.damping, 1e-12) * largest * np.eye(problem.rank))
        return self.t_U or c / p, P.astype(np.float64, copy=False)

    def direction(self, swept: SweepResult, P: Float | None) -> Direction:
        """Where U goes.

        Parameters
        ----------
        swept
            The sweep at U.
        P
            What the gradient is preconditioned with, or None.

        Returns
        -------
        Direction
            The ascent, and what its length is compared with.
        """
        GtG = swept.GtG
        grad = math.sqrt(GtG.trace())
        if P is None:
            return Direction(swept.G, GtG, grad, grad**2)
        return Direction(matmul_small(swept.G, P), P @ GtG @ P, grad, float(np.vdot(GtG, P)))

    def iterate(self, problem: Problem, state: ProximalState) -> ProximalState:
        """One iteration of Algorithm 1 or 2 with the state's γ.

        Parameters
        ----------
        problem, state
            As for `advance`.

        Returns
        -------
        ProximalState
            The next one.
        """
        U, swept, t_taken, inverse, shortened, failure = self.accepted(
            problem, state, Rule.AMANPG if self.alternating else Rule.MANPG
        )
        gamma = state.gamma
        change = _relative_change(swept.dV, state, t_taken, inverse)
        # ΔU = -t_U grad_U f, U⁺ = Retr_U(ΔU)
        step, P = self.nominal(problem, swept.VVt)
        shortening = state.shortening / 2**shortened if shortened else min(1.0, 1.25 * state.shortening)
        t = step * shortening
        moved = swept.retracted(U, -t) if P is None else None
        ascent = self.direction(swept, P)
        reference = (swept.smooth_out, swept.l1) if self.alternating else (swept.smooth_in, state.l1)
        objective = reference[0] + gamma * reference[1]
        dU = t * math.sqrt(max(ascent.DtD.trace(), 0.0))
        if not (math.isfinite(objective) and math.isfinite(dU)):
            failure = "diverged"
        # ‖ΔU‖ has no unit, ‖ΔS‖ that of the data
        movement = math.hypot(problem.scale * dU, swept.dS)
        U_next, inverse_next = U, inverse
        if not failure:
            exact = state.iteration % 32 == 31
            U_next, inverse_next = retract(U, ascent.D, _scaled(ascent.DtD, t), step=-t, exact=exact, moved=moved)
        return replace(
            state,
            iteration=state.iteration + 1,
            U=U_next,
            S=state.spare,
            spare=state.S,
            l1=swept.l1,
            shortening=shortening,
            guarded=True,
            U_from=U,
            D=ascent.D,
            DtD=ascent.DtD,
            t=t,
            inverse=inverse_next,
            slope=ascent.slope,
            reference=reference,
            V_last=swept.V,
            VVt_last=swept.VVt,
            stage_done=False,
            accuracy=movement / (problem.scale * math.sqrt(problem.M.nnz)),
            # only once γ is small enough to separate outliers (S22)
            finished=within_delta(change, self.delta) if gamma < 0.1 * problem.largest else "",
            failure=failure,
            row=trace_row(
                objective, change, gamma=gamma, dS=swept.dS, dU=dU, grad_U=ascent.grad, t_U=t, shortened=shortened
            ),
        )

    def lowrank(self, problem: Problem, state: ProximalState) -> LowRank:
        """U and V(U, S)."""
        return LowRank(state.U, self.sweep(problem, state, state.U, Rule.FIT, state.inverse).V)

    def finish(self, problem: Problem, state: ProximalState) -> Outcome:
        """(U, S) with V(U, S), and how stationary they are: one sweep of ManPG at (U, S) measures both."""
        U, swept, *_ = self.accepted(problem, state, Rule.MANPG)
        flagged = np.flatnonzero(state.S)
        return Outcome(
            L=LowRank(U, swept.V),
            flagged=flagged,
            S=state.S[flagged],
            objective=swept.smooth_in + state.gamma * state.l1,
            stationarity=Stationarity(U=float(np.linalg.norm(swept.G)), S=swept.dS / self.t_S),
        )


def _scaled(DtD: Float, t: float) -> Float:
    """t² DᵀD; infinite where that is beyond all numbers."""
    if t * t * float(DtD.trace()) < math.inf:
        return t * t * DtD
    with np.errstate(over="ignore"):
        return t * (t * DtD)


def _relative_change(dV: float, last: ProximalState, t: float, inverse: Float) -> float:
    """‖UV - U'V'‖ / ‖U'V'‖ after the step U = Retr_U'(-t D), without cancellation and without U.

    The part of U'V' within span(U) has the coefficients R⁻ᵀV', and dV = ‖V - R⁻ᵀV'‖; the part outside has the Gram
    matrix V'ᵀ (I - R⁻¹R⁻ᵀ) V' = V'ᵀ t²DᵀD (RᵀR)⁻¹ V'.
    """
    if not inverse.size or not math.isfinite(dV):
        return math.inf
    outside = t * t * float(np.vdot(inverse @ (inverse.T @ last.DtD), last.VVt_last))
    size = math.sqrt(last.VVt_last.trace())
    return math.hypot(dV, math.sqrt(max(outside, 0.0))) / (size or sys.float_info.min)


@dataclass(kw_only=True)
class ManPG(ProximalGradient):
    """Manifold proximal gradient for a fixed γ (Algorithm 1): S and U move together, both from the same V.

    Problem (ourRMC-noV): min over U in Gr(m, r), S of f(U, S) + γ‖P_Ω(S)‖₁. One iteration:

        V = V(U, S);  S⁺ = soft(S - t_S ∇_S f, γ t_S);  U⁺ = qf(U - t_U grad_U f(U, S)).

    It ends when (‖ΔU‖², in units of the data, + ‖ΔS‖²)^½ is at most `epsilon`.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 50, rank=2, density=0.8, outliers=0.05, random_state=1)
    >>> r = ls.solve(problem.M, rank=2, method=ManPG(gamma=0.05))
    >>> r.converged and r.L.error(problem.L, relative=True) < 0.02
    True
    """

    name = "manpg"
    alternating = False

    gamma: float | None = parameter(None, "threshold, in units of the data; None: 0.01 root mean squares", above=0)
    epsilon: float | None = parameter(None, "end at a step this short; None: by tol and the entries' size", above=0)

    def init(self, problem: Problem) -> ProximalState:
        """(U⁰, S⁰)."""
        return self.begin(problem, 0.01 * problem.scale if self.gamma is None else self.gamma)

    def advance(self, problem: Problem, state: ProximalState) -> ProximalState:
        """One iteration, and the test with `epsilon` if it was given."""
        state = self.iterate(problem, state)
        movement = state.accuracy * problem.scale * np.sqrt(problem.M.nnz)
        if self.epsilon is not None and movement <= self.epsilon:
            state.finished = f"the step {movement:.2g} is at most epsilon = {self.epsilon:g}"
        return state


@dataclass(kw_only=True)
class AManPG(ManPG):
    """Alternating manifold proximal gradient for a fixed γ (Algorithm 2): U moves with the new S.

    The problem and the parameters are those of `ManPG`. One iteration:

        V = V(U, S);  S⁺ = soft(S - t_S ∇_S f, γ t_S);  V⁺ = V(U, S⁺);  U⁺ = qf(U - t_U grad_U f(U, S⁺)).

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 50, rank=2, density=0.8, outliers=0.05, random_state=1)
    >>> r = ls.solve(problem.M, rank=2, method=AManPG(gamma=0.05))
    >>> r.converged and r.L.error(problem.L, relative=True) < 0.02
    True
    """

    name = "amanpg"
    alternating = True


@dataclass(kw_only=True)
class ManPGC(ProximalGradient):
    """Manifold proximal gradient with continuation (Algorithm 3 around Algorithm 1).

    Solves min f(U, S) + γ‖P_Ω(S)‖₁ (see `ManPG`) for γ = γ₀, μ₁γ₀, μ₁²γ₀, ...: the last ones are, up to a factor, the
    ℓ1 problem min ‖P_Ω(UV - M)‖₁, and on data without noise the error is proportional to γ. A stage ends when
    (‖ΔU‖², in units of the data, + ‖ΔS‖²)^½ is at most ε = ε₀, μ₂ε₀, μ₂²ε₀, ... The continuation ends when the stage
    with γ <= tol times the size of the data is done, or at the noise: when more than half of the entries are farther
    from UV than γ, a smaller γ would take inliers for outliers.

    Everything is scale-free by default. To run the paper's own constants, give them: for its cases
    ``AManPGC(gamma0=10, epsilon0=30, mu1=0.1, mu2=0.1, t_U=1/M.nnz, lam=1e-8)`` (its t_U = 2/|Ω| belongs to a
    retraction of half the length).

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(80, 90, rank=2, density=0.7, outliers=0.1, random_state=1)
    >>> r = ls.solve(problem.M, rank=2, method=ManPGC())
    >>> r.converged and r.L.error(problem.L, relative=True) < 1e-6
    True
    """

    name = "manpgc"
    alternating = False

    gamma0: float | None = parameter(
        None, "first γ; None: ten times the root mean square of the entries, at most the largest inlier", above=0
    )
    gamma_min: float | None = parameter(None, "γ at which the last stage begins, at most; None: from tol", above=0)
    mu1: float = parameter(0.1, "γ shrinks by", above=0, below=1)
    mu2: float | None = parameter(None, "ε shrinks by; None: as γ", above=0, below=1)
    epsilon0: float | None = parameter(None, "first ε; None: by epsilon_factor", above=0)
    epsilon_factor: float = parameter(0.001, "ε₀ / (γ₀ √|Ω|); 0.002 neglects columns with few entries", above=0)
    stages: int | None = parameter(None, "number of γ; None: from gamma_min", kind=int, at_least=1)
    stage_iter: int = parameter(200, "most iterations of a stage but the last; too few spoil later stages", at_least=1)
    noise_stop: bool = parameter(True, "end at the noise level of the inliers")

    def schedule(self, problem: Problem) -> tuple[float, int]:
        """The thresholds of the stages.

        Parameters
        ----------
        problem
            As for `init`.

        Returns
        -------
        gamma0, stages
            The first γ, and the number of stages.
        """
        gamma0 = min(10 * problem.scale, problem.largest, problem.clip) if self.gamma0 is None else self.gamma0
        gamma0 = gamma0 or problem.scale  # data that are all zero
        if self.stages is not None:
            return gamma0, self.stages
        # below this, S = x - UV -+ γ does not show γ any more
        resolution = 8 * float(np.finfo(problem.M.dtype).eps)
        gamma_min = self.gamma_min or max(problem.tol, resolution) * problem.scale
        return gamma0, count_stages(gamma0, gamma_min, self.mu1)

    def init(self, problem: Problem) -> ProximalState:
        """(U⁰, S⁰) with γ₀."""
        return self.begin(problem, self.schedule(problem)[0])

    def advance(self, problem: Problem, state: ProximalState) -> ProximalState:
        """One iteration with the stage's γ, or with the next one's if the last iteration ended its stage."""
        gamma0, stages = self.schedule(problem)
        if state.stage_done:
            state = replace(
                state,
                stage=state.stage + 1,
                stage_start=state.iteration,
                gamma=gamma0 * self.mu1 ** (state.stage + 1),
                # ManPG: S came from the old γ, the reference from the S before it; their objectives do not compare
                guarded=self.alternating,
            )
        state = self.iterate(problem, state)
        epsilon0 = self.epsilon0 or self.epsilon_factor * gamma0 * math.sqrt(problem.M.nnz)
        epsilon = epsilon0 * (self.mu2 or self.mu1) ** state.stage
        solved = state.accuracy * problem.scale * math.sqrt(problem.M.nnz) <= epsilon
        capped = state.iteration - state.stage_start >= self.stage_iter
        # the loop ends when this is at most tol; tol = 0 never is, and the last γ then stays
        state.accuracy = state.gamma / problem.scale if solved else math.inf
        # Once most entries are farther from UV than γ, it is below the noise, or this stage is far from its solution:
        # end there, but only after solving it.
        noise = self.noise_stop and (solved or capped) and np.count_nonzero(state.S) > problem.M.nnz / 2
        state.end_stage(f"gamma = {state.gamma:.2g}", solved, capped, bool(noise), last=state.stage == stages - 1)
        return state


@dataclass(kw_only=True)
class AManPGC(ManPGC):
    """Alternating manifold proximal gradient with continuation (Algorithm 3), the paper's method.

    The problem and the parameters are those of `ManPGC`; the iteration is that of `AManPG`.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(80, 90, rank=2, density=0.7, outliers=0.1, random_state=1)
    >>> r = ls.solve(problem.M, rank=2, method=AManPGC())
    >>> r.converged and r.L.error(problem.L, relative=True) < 1e-6
    True
    """

    name = "amanpgc"
    alternating = True
