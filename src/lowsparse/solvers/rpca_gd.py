"""RPCA-GD: gradient descent on the factors, with a known share of each row and column trimmed as outliers.

    min over U, V, S of  1/2p ‖P_Ω(UVᵀ + S - M)‖² + 1/64 ‖UᵀU - VᵀV‖² ,
    S with at most a share α of each row and column.

Yi, Park, Chen and Caramanis (2016).

It starts from the rank-r approximation P Σ Qᵀ of (M - T_α(M)) / p: U = P Σ^½, V = Q Σ^½ (`trimming` says what T_α is).
One iteration, with σ₁ the largest singular value at the start and p the share of entries observed:

    S = T_α(P_Ω(M - UVᵀ)),   E = P_Ω(UVᵀ + S - M),
    U⁺ = U - η/σ₁ (E V / p + U (UᵀU - VᵀV) / 16),   V⁺ = V - η/σ₁ (Eᵀ U / p - V (UᵀU - VᵀV) / 16).

There is one α, as in the authors' program, and it has to be large enough for every line. T_α(M) has the largest entries
of L too, so σ₁ comes out too small: a step is no longer than 0.75 over the largest singular value of the current L, as
from 1 on it would not be stable. The program stops when ‖E‖ is at most 2·10⁻⁴ ‖M‖ or after 30 iterations; this one goes
on until L is at rest. If asked for, rows of U are shortened to √(4μr/m) σ₁^½, as σ₁^½ is the norm of U at the start.
The program has σ₁ there, which does not have the unit of U.
"""

from dataclasses import dataclass

import numpy as np

from ..sweeps import Float
from .base import Problem
from .parameters import parameter
from .trimming import TrimmedSolver, TrimmedState, incoherent


@dataclass(kw_only=True)
class RPCAGD(TrimmedSolver):
    """Gradient descent on U and V after trimming. α must be given; slow if L is ill-conditioned.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(80, 90, rank=2, density=0.7, outliers=0.1, random_state=1)
    >>> alpha = ls.solvers.trimming.largest_share(problem.M, problem.S != 0) + 0.01
    >>> r = ls.solve(problem.M, rank=2, method=RPCAGD(alpha=alpha))
    >>> r.converged and r.L.error(problem.L, relative=True) < 1e-6
    True
    """

    name = "rpca_gd"
    papers = ("X. Yi, D. Park, Y. Chen, C. Caramanis: Fast Algorithms for Robust PCA via Gradient Descent, NIPS 2016",)
    weight = 1 / 16

    mu: float | None = parameter(None, "shorten rows of U beyond √(4μr/m) ‖U⁰‖ (the authors: 5); None: do not", above=0)

    def descend(self, problem: Problem, state: TrimmedState, GU: Float, GV: Float) -> tuple[Float, Float]:
        """The step, and the projection onto factors with short rows."""
        U, V = super().descend(problem, state, GU, GV)
        if self.mu is None:
            return U, V
        norm = float(np.sqrt(state.sigma))
        return incoherent(U, self.mu, norm), incoherent(V, self.mu, norm)
