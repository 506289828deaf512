"""ScaledGD: gradient descent on the factors in a metric that makes it insensitive to the condition number of L.

    min over U, V, S of  1/2p ‖P_Ω(UVᵀ + S - M)‖² ,  S with at most a share α of each row and column.

Tong, Ma and Chi (2021).

It starts like RPCA-GD, from P Σ^½ and Q Σ^½ of the rank-r approximation of (M - T_α(M)) / p. One iteration, both steps
from the same point:

    S = T_γα(P_Ω(M - UVᵀ)),   E = P_Ω(UVᵀ + S - M),
    U⁺ = U - η/p E V (VᵀV)⁻¹,   V⁺ = V - η/p Eᵀ U (UᵀU)⁻¹.

The iterates U Vᵀ do not depend on which factors of L are taken, so no term has to balance them. The rate does not
depend on the condition number of L, but the start has to have found every component: what is smaller than the errors
that trimming and outliers make there is lost, and to grow from nothing takes long.

The paper treats matrices that are fully observed, and takes γ = 2. Here γ = 1, as α is asked to exceed the share of
outliers in the worst row or column already. Twice that is often half of all entries, and inliers with large residuals
are what convergence lives on: with 300 x 300 entries, 30 % of them observed and a tenth of these wrong, 500 iterations
with γ = 2 end at relative errors of 10⁻⁵ to 10⁻², and 200 with γ = 1 at 2·10⁻⁷.
"""

from dataclasses import dataclass

from ..sweeps import Float
from .base import Problem
from .factors import pseudo_inverse
from .parameters import parameter, require
from .trimming import TrimmedSolver, TrimmedState


@dataclass(kw_only=True)
class ScaledGD(TrimmedSolver):
    """Scaled gradient descent after trimming. α must be given; the condition of L does not slow it down.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(80, 90, rank=2, density=0.7, outliers=0.1, random_state=1)
    >>> alpha = ls.solvers.trimming.largest_share(problem.M, problem.S != 0) + 0.01
    >>> r = ls.solve(problem.M, rank=2, method=ScaledGD(alpha=alpha))
    >>> r.converged and r.L.error(problem.L, relative=True) < 1e-6
    True
    """

    name = "scaledgd"
    papers = (
        "T. Tong, C. Ma, Y. Chi: Accelerating Ill-Conditioned Low-Rank Matrix Estimation via Scaled "
        "Gradient Descent, JMLR 2021",
    )

    gamma: float = parameter(1.0, "γ: the iteration trims γα; the paper's is 2, for an exact α", at_least=1)

    def check(self, problem: Problem) -> None:
        """Raise unless γα is a share."""
        require(self.trimmed < 1, "alpha times gamma", self.trimmed, "less than 1")

    @property
    def trimmed(self) -> float:
        """γα."""
        return self.gamma * super().trimmed

    def descend(self, problem: Problem, state: TrimmedState, GU: Float, GV: Float) -> tuple[Float, Float]:
        """U - η ∇_U (VᵀV)⁻¹, V - η ∇_V (UᵀU)⁻¹."""
        U, V = state.U, state.V
        return U - self.step * (GU @ pseudo_inverse(V.T @ V)), V - self.step * (GV @ pseudo_inverse(U.T @ U))
