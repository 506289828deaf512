"""Unified: projected gradient descent with double thresholding, after the framework of Zhang, Wang and Gu.

    min over U, V, S of  1/2p ‖P_Ω(UVᵀ + S - M)‖² + ⅛ ‖UᵀU - VᵀV‖² ,
    S with at most k entries in all and at most a share α of each row and column.

Zhang, Wang and Gu (2018).

One iteration, where H_k keeps the k largest entries of all, and T_α those among the largest of their row and of their
column (see `trimming`):

    S = T_α(H_k(P_Ω(M - UVᵀ))),   E = P_Ω(UVᵀ + S - M),
    U⁺ = U - η/σ₁ (E V / p + ½ U (UᵀU - VᵀV)),   V⁺ = V - η/σ₁ (Eᵀ U / p - ½ V (UᵀU - VᵀV)),

and rows of U and V that are too long are shortened, if asked for.

Of the paper only the abstract was available: projected gradient descent on the factors, and the double thresholding
operator. Details beyond it are reconstructed: the weight of the balancing term, the steps (in S it is τ = 1, so that
S - τ ∇_S is M - UVᵀ), that U and V move after S, the start and the longest step, which are those of RPCA-GD, and that α
and k stand for the paper's multiples of the true share and number.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..sweeps import Float
from .base import Problem
from .parameters import parameter
from .rpca_gd import RPCAGD
from .trimming import largest_in_lines, largest_of_all


@dataclass(kw_only=True)
class Unified(RPCAGD):
    """Gradient descent on U and V after double thresholding: RPCA-GD with a bound on the number of outliers in all.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(80, 90, rank=2, density=0.7, outliers=0.1, random_state=1)
    >>> alpha = ls.solvers.trimming.largest_share(problem.M, problem.S != 0) + 0.01
    >>> r = ls.solve(problem.M, rank=2, method=Unified(alpha=alpha, total=0.12))
    >>> r.converged and r.L.error(problem.L, relative=True) < 1e-6
    True
    """

    name = "unified"
    papers = (
        "X. Zhang, L. Wang, Q. Gu: A Unified Framework for Nonconvex Low-Rank plus Sparse Matrix "
        "Recovery, AISTATS 2018",
    )
    weight = 1 / 2

    total: float | None = parameter(None, "k / |Ω|: largest share of outliers in all; None: alpha", above=0, below=1)

    def outliers(self, problem: Problem, e: Float) -> NDArray[np.bool_]:
        """T_α after H_k."""
        k = int((self.trimmed if self.total is None else self.total) * e.size * (1 + 1e-12))
        return largest_in_lines(problem, np.where(largest_of_all(e, k), e, 0.0), self.trimmed)
