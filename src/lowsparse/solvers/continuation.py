"""ManPGC and AManPGC: the threshold γ is lowered in stages, each started where the last one ended (Algorithm 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from .base import Problem
from .manpg import ProximalGradient, ProximalState
from .parameters import parameter

__all__ = ["AManPGC", "ManPGC"]


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

    name: ClassVar[str] = "manpgc"
    alternating: ClassVar[bool] = False
    default_step: ClassVar[float] = 0.7

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
        """γ₀ and the number of stages, a whole number so that no rounding adds or drops one."""
        gamma0 = min(10 * problem.scale, problem.largest, problem.clip) if self.gamma0 is None else self.gamma0
        gamma0 = gamma0 or problem.scale  # data that are all zero
        if self.stages is not None:
            return gamma0, self.stages
        # below this, S = x - UV -+ γ does not show γ any more
        resolution = 8 * float(np.finfo(problem.M.dtype).eps)
        gamma_min = self.gamma_min or max(problem.tol, resolution) * problem.scale
        return gamma0, 1 + max(0, math.ceil(math.log(gamma_min / gamma0) / math.log(self.mu1) - 1e-9))

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
        last = state.stage == stages - 1
        # the loop ends when this is at most tol; tol = 0 never is, and the last γ then stays
        state.accuracy = state.gamma / problem.scale if solved else math.inf
        # Once most entries are farther from UV than γ, it is below the noise, or this stage is far from its solution:
        # end there, but only after solving it.
        crowded = self.noise_stop and (solved or capped) and np.count_nonzero(state.S) > problem.M.nnz / 2
        if solved and crowded:
            state.finished = f"gamma = {state.gamma:.2g} is at the noise of the inliers"
        elif solved and last:
            state.finished = f"the last stage, gamma = {state.gamma:.2g}, is solved"
        state.stage_done = not last and (solved or (capped and not crowded))
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

    name: ClassVar[str] = "amanpgc"
    alternating: ClassVar[bool] = True
    default_step: ClassVar[float] = 1.1
