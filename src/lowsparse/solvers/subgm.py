"""SubGM: the subgradient method for the ℓ1 loss of two factors, with steps that shrink geometrically.

    min over U (m x r), V (n x r)   (1/|Ω|) ‖P_Ω(UVᵀ - M)‖₁ + λ ‖UᵀU - VᵀV‖

Li, Zhu, So and Vidal (2020).

With e = P_Ω(UVᵀ) - x, Y = Sp(sign e), sign 0 = 0, and N = UᵀU - VᵀV, for k = 0, 1, 2, ...

    U⁺ = U - μ_k (Y V / |Ω| + 2λ U N/‖N‖),   V⁺ = V - μ_k (Yᵀ U / |Ω| - 2λ V N/‖N‖),   μ_k = μ₀ ρᵏ

from the balanced factors P Π^½, Q Π^½ of the start. It is the cheapest iteration there is, and its error is
proportional to μ_k.

The theory is for dense measurements; for entries, μ₀ = √(mn) is right whatever the size, the shape and the units of
the data; a third of it stops short of some rows and columns. No step is longer than 2f/‖g‖²: were f convex, a longer
one would only lead away from the solution, and it could end at U = V = 0, for good. The paper's start leaves out
entries beyond three medians; on data whose factors are normal that removes good entries, so here they are clipped to
four, unless `truncate` asks for the paper's. λ makes no difference from a balanced start, and is 0.

Steps that shrink geometrically always come to rest, arrived or not. Close to a solution every step overshoots, and
gains about (1 - ρ)/2 of what its length and slope promise; far from one it gains most of it. If at the end it gains
more than 2 (1 - ρ), or if rows or columns are still driven in one direction and fit worse than the others, the result
is "stalled".
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from ..linalg.arrays import host
from ..robust.joint import balanced_factors
from ..robust.regression import EXPLAINED
from ..sweeps import Float
from ..sweeps.losses import Kind, Loss
from .base import Problem, nothing
from .factors import FactorSolver, FactorState, clipped_factors
from .parameters import parameter

MEMORY = 0.9  # of the running means
DRIVEN = 0.8  # the length of the mean direction of a line from which on it goes one way
WILD = 1e3  # times the factors: a step of that length leads nowhere


@dataclass(kw_only=True)
class SubGMState(FactorState):
    """The factors, and the success of the steps; `objective` is that of the previous point."""

    promised: float = 0.0  # μ ‖g‖² of the last step; 0 if its gain is not to be counted
    gain: float = 0.0  # of what is promised, the share that is kept; a running mean
    drive_U: Float = field(default_factory=nothing)  # of each row: the running mean of its direction
    drive_V: Float = field(default_factory=nothing)  # of each column


@dataclass(kw_only=True)
class SubGM(FactorSolver[SubGMState]):
    """Subgradient method with geometrically diminishing steps (Li, Zhu, So, Vidal 2020).

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(80, 90, rank=2, density=0.7, outliers=0.1, random_state=1)
    >>> r = ls.solve(problem.M, rank=2, method=SubGM())
    >>> r.converged and r.L.error(problem.L, relative=True) < 1e-5
    True
    """

    name = "subgm"
    papers = (
        "X. Li, Z. Zhu, A. M.-C. So, R. Vidal: Nonconvex robust low-rank matrix recovery. SIAM J. Optim. 30(1), 2020",
    )
    runs_anywhere = True

    mu0: float | None = parameter(None, "μ₀; None: √(mn)", above=0)
    rho: float = parameter(0.95, "ρ: 0.9 is twice as fast and less sure to arrive; 0.98 is surer", above=0, below=1)
    balance: float = parameter(0.0, "λ, the weight of the term that balances U and V", at_least=0)
    truncate: float | None = parameter(
        None, "drop entries beyond so many medians at the start (paper: 3); None: clip at 4", above=0
    )

    def init(self, problem: Problem) -> SubGMState:
        """Balanced factors of the start."""
        factors = clipped_factors(problem, self.truncate or 4.0, drop=self.truncate is not None)
        U, V, _ = balanced_factors(*factors)
        return SubGMState(U=U, V=V, drive_U=np.zeros_like(U), drive_V=np.zeros_like(V))

    def advance(self, problem: Problem, state: SubGMState) -> SubGMState:
        """One step."""
        U, V, K = state.U, state.V, problem.M.nnz
        sums = problem.sweep.gradient(U, V, Loss(Kind.L1))
        g_U, g_V, objective = sums.U / K, sums.V / K, sums.value / K
        if self.balance:
            N = U.T @ U - V.T @ V
            size = float(np.linalg.norm(N))
            if size > 1e-12 * float(np.linalg.norm(U)) ** 2:  # else N is rounding
                g_U += 2 * self.balance * U @ (N / size)
                g_V -= 2 * self.balance * V @ (N / size)
                objective += self.balance * size
        mu = (math.sqrt(math.prod(problem.M.shape)) if self.mu0 is None else self.mu0) * self.rho**state.iteration
        slope = math.hypot(float(np.linalg.norm(g_U)), float(np.linalg.norm(g_V)))
        capped = mu * slope**2 > 2 * objective
        if capped:
            mu = 2 * objective / slope**2
        gain = state.gain
        if state.promised > 1e-13 * objective:  # else it is lost in the rounding
            gain = MEMORY * gain + (1 - MEMORY) * (state.objective - objective) / state.promised
        wild = mu * slope > WILD * math.hypot(float(np.linalg.norm(U)), float(np.linalg.norm(V)))
        after = replace(
            state,
            U=U if wild else U - mu * g_U,
            V=V if wild else V - mu * g_V,
            objective=objective,
            promised=0.0 if capped else mu * slope**2,
            gain=gain,
            drive_U=MEMORY * state.drive_U + (1 - MEMORY) * _directions(g_U),
            drive_V=MEMORY * state.drive_V + (1 - MEMORY) * _directions(g_V),
        )
        if wild:
            after.failure = "diverged"
            after.advice = "the first steps are too long: give a smaller mu0, or leave it to the method"
        self.complete(state, after, mu=mu, gain=gain)
        if capped:  # by an f that is small, not by μ
            after.accuracy = max(after.accuracy, objective / problem.unit)
        if problem.tol > 0 and after.accuracy <= problem.tol and not wild:
            self._stall_if_not_arrived(problem, after)
        return after

    def _stall_if_not_arrived(self, problem: Problem, state: SubGMState) -> None:
        """Fail if the iteration came to rest only because its steps became short, not at a solution."""
        if state.gain > 2 * (1 - self.rho):
            where = "before the factors were where they should be"
        elif count := _misfits(problem, state):
            where = f"before {count} rows or columns were where they should be"
        else:
            return
        state.stall(f"the steps died out {where}: give a rho closer to 1 and more iterations, or a larger mu0")

    def final_objective(self, problem: Problem, state: SubGMState) -> float:
        """At the last point; that of the state is for the one before."""
        e = problem.sweep.residual(state.U, state.V)
        N = state.U.T @ state.U - state.V.T @ state.V
        return float(np.mean(np.abs(e))) + self.balance * float(np.linalg.norm(N))


def _misfits(problem: Problem, state: SubGMState) -> int:
    """How many of the rows and columns that still go one way fit worse than the others."""
    U, V = state.U, state.V
    rows, columns = (np.flatnonzero(np.linalg.norm(drive, axis=1) > DRIVEN) for drive in (state.drive_U, state.drive_V))
    if not (rows.size or columns.size):
        return 0
    bound = 3 * float(np.median(np.abs(problem.sweep.residual(U, V)))) + 0.01 * EXPLAINED * problem.unit
    count = 0
    for M, lines, left, right in ((problem.M, columns, U, V), (problem.transposed, rows, V, U)):
        few = M.take_columns(lines)
        if few is not None:
            e = np.abs(few.open_sweep(problem.sweep.host).residual(left, right[lines]))
            count += sum(np.median(part) > bound for part in np.split(host(e), host(few.indptr)[1:-1]) if part.size)
    return count


def _directions(g: Float) -> Float:
    """The rows of g, each of length 1 or 0."""
    sizes = np.linalg.norm(g, axis=1, keepdims=True)
    return g / np.where(sizes > 0, sizes, 1.0)
