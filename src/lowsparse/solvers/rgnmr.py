"""RGNMR: Gauss-Newton on the factors, with as many entries left out in each round as there are outliers.

    min over U, V and Λ of  ½ ‖P_{Ω∖Λ}(UVᵀ - M)‖² ,  Λ with at most k entries.

Vaknin Laufer and Nadler (2025); without outliers Zilber and Nadler (2022).

One round, with U Vᵀ linearised in both factors, X̂(Ũ, Ṽ) = U Ṽᵀ + Ũ Vᵀ - U Vᵀ:

    (Ũ, Ṽ) = the minimiser of ‖P_{Ω∖Λ}(X̂(Ũ, Ṽ) - M)‖ with the smallest ‖Ũ‖² + ‖Ṽ‖², by LSQR from zero,
    Λ⁺ = the k largest |P_Ω(X̂(Ũ, Ṽ) - M)|,   (U⁺, V⁺) = (Ũ, Ṽ).

The tolerance of LSQR falls from 0.1 by a factor of ten in each round, and the error of L with it: solves that end early
keep the first rounds from running away if L is ill-conditioned. What differs from the authors' program, and why:

- U⁺ and V⁺ are balanced, U⁺ᵀU⁺ = V⁺ᵀV⁺, which leaves their product as it is. Otherwise (U, V) and (Ũ, Ṽ) end up
  taking turns: X̂ is exact, Ũ Ṽᵀ is not (its error is of the order of their distance squared, 10⁻⁴ or so). The program
  hands back the rank-r approximation of X̂ instead. Balanced factors are orthogonal to those changes of U and V that
  leave UVᵀ alone, so LSQR may start from them when L is almost at rest, and finds the same solution with less work.
- No row or column loses more than half of its entries. If k is larger than the number of outliers, the rest of Λ goes
  to the line that fits worst. It may lose all entries; the smallest solution is zero there, and the residuals remain
  large for good. Ten per cent too many can be enough for that; with this bound twice as many did no harm in tests.
- It starts from P Σ^½ and Q Σ^½ instead of P and Q, which makes it independent of the unit of the data, and from
  entries of which 1.5 times the share k / |Ω| is trimmed in each line, as some lines have more than the average.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, lsqr

from ..robust.joint import balanced_factors
from ..sweeps import Float
from .base import Problem
from .factors import FactorSolver, FactorState
from .parameters import parameter, require
from .trimming import largest_in_lines, largest_of_all, spectral_start, stall_if_outliers_left

FIRST_TOL, FALL, LAST_TOL = 0.1, 0.1, 1e-14  # of LSQR: in the first round, from round to round, and in the end
UNEVEN = 1.5  # the share trimmed of each line at the start / the share of all entries
AT_REST = 1e-3  # change of L below which LSQR starts from the last solution


@dataclass(kw_only=True)
class RGNMRState(FactorState):
    """L = U Vᵀ, balanced, and Λ."""

    dropped: NDArray[np.bool_]  # Λ, by column
    inner_tol: float = FIRST_TOL


@dataclass(kw_only=True)
class RGNMR(FactorSolver[RGNMRState]):
    """Gauss-Newton after dropping the k largest residuals: few rounds, each of many passes. k must be given.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(80, 90, rank=2, density=0.7, outliers=0.1, random_state=1)
    >>> r = ls.solve(problem.M, rank=2, method=RGNMR(outliers=0.12))
    >>> r.converged and r.L.error(problem.L, relative=True) < 1e-9
    True
    """

    name = "rgnmr"
    papers = (
        "E. Vaknin Laufer, B. Nadler: RGNMR: A Gauss-Newton method for robust matrix completion with "
        "theoretical guarantees, arXiv 2505.12919, 2025",
        "P. Zilber, B. Nadler: GNMR: A provable one-line algorithm for low rank matrix recovery, SIAM J. "
        "Math. Data Sci., 2022",
    )

    outliers: float | None = parameter(
        None,
        "k: a number of entries, or a share of them if it is less than 1",
        at_least=0,
        required="the number of entries to leave out, or their share: at least as many as there are outliers, and "
        "better not many more. If nothing better is known, take what the default method finds: "
        "found = ls.solve(M, rank); outliers = int(1.05 * found.is_outlier.sum())",
    )
    alpha: float = parameter(0.5, "largest share of a row or column to leave out; the authors: 1", above=0, at_most=1)
    max_inner: int = parameter(1000, "iterations of LSQR in a round (the authors' experiments)", at_least=1)

    def check(self, problem: Problem) -> None:
        """Raise unless k is a number of entries or a share."""
        k, total = self.outliers or 0, problem.M.nnz
        fits = k < 1 or (k < total and int(k) == k)
        require(fits, "outliers", k, f"a whole number from 0 to {total - 1}, or a share less than 1")

    def _number(self, problem: Problem) -> int:
        k = self.outliers or 0
        return round(k * problem.M.nnz) if k < 1 else int(k)

    def init(self, problem: Problem) -> RGNMRState:
        """The rank-r approximation of what remains after trimming, and its k largest residuals."""
        x = problem.M.values.astype(np.float64, copy=False)
        share = min(UNEVEN * self._number(problem) / problem.M.nnz, 0.5)
        U, V = spectral_start(problem, largest_in_lines(problem, x, share))
        return RGNMRState(U=U, V=V, dropped=self._worst(problem, problem.sweep.residual(U, V)))

    def _worst(self, problem: Problem, e: Float) -> NDArray[np.bool_]:
        """The k largest residuals, as far as no line loses too many."""
        worst = largest_of_all(e, self._number(problem))
        return worst if self.alpha == 1 else largest_in_lines(problem, np.where(worst, e, 0.0), self.alpha)

    def advance(self, problem: Problem, state: RGNMRState) -> RGNMRState:
        """One round: the linearised problem on the entries kept, and the entries to leave out in the next."""
        U, V, e, passes = self._linearised(problem, state)
        dropped = self._worst(problem, e)
        y = e[~dropped]
        after = RGNMRState(
            U=U,
            V=V,
            objective=0.5 * float(y @ y),
            dropped=dropped,
            inner_tol=max(FALL * state.inner_tol, LAST_TOL),
        )
        self.complete(state, after, dropped=float(np.count_nonzero(dropped)), passes=float(passes))
        if not after.failure and problem.tol > 0 and after.accuracy <= problem.tol:
            advice = (
                f"raise `outliers`, which is {self.outliers:g}; if there are not more, the method has ended in the "
                "wrong place, and the default may do better"
            )
            stall_if_outliers_left(problem, state, after, e, dropped, advice)
        return after

    def _linearised(self, problem: Problem, state: RGNMRState) -> tuple[Float, Float, Float, int]:
        """Ũ and Ṽ, balanced; the residuals P_Ω(X̂ - M); and the iterations of LSQR."""
        (m, n), r, sweep = problem.M.shape, problem.rank, problem.sweep
        U, V = np.ascontiguousarray(state.U), np.ascontiguousarray(state.V)
        kept = (~state.dropped).astype(np.float64)
        left, right = np.hstack([U, U]), np.hstack([V, V])  # [U Ũ] [Ṽ V]ᵀ

        def model(z: Float) -> Float:
            left[:, r:], right[:, :r] = z[: m * r].reshape(m, r), z[m * r :].reshape(n, r)
            return sweep.entries(left, right)

        def transposed(y: Float) -> Float:
            y = kept * y
            return np.concatenate([sweep.product(y, V).ravel(), sweep.product_transposed(y, U).ravel()])

        b = problem.M.values + sweep.entries(U, V)
        A: Any = LinearOperator(
            (b.size, (m + n) * r),
            matvec=lambda z: kept * model(z.ravel()),
            rmatvec=lambda y: transposed(y.ravel()),
            dtype=np.float64,
        )
        tol, at_rest = state.inner_tol, state.accuracy < AT_REST
        first = np.concatenate([U.ravel(), V.ravel()]) if at_rest else None
        # conlim = 0: A has a null space, so its condition is no reason to stop
        z, _, passes = lsqr(A, kept * b, atol=tol, btol=tol, conlim=0, iter_lim=self.max_inner, x0=first)[:3]
        e = model(z) - b
        return *balanced_factors(left[:, r:], right[:, :r])[:2], e, int(passes)

    def final_objective(self, problem: Problem, state: RGNMRState) -> float:
        """At UVᵀ itself; that of the state is for X̂."""
        e = problem.sweep.residual(state.U, state.V)
        y = e[~self._worst(problem, e)]
        return 0.5 * float(y @ y)
