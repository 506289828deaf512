"""Convex and PCP: the nuclear norm for the low rank, the l1 norm for the outliers, with and without holes.

    min over L, S of  ‖L‖_* + γ‖P_Ω(S)‖₁   subject to  P_Ω(L + S) = P_Ω(M) .

The problem is convex: it needs no rank and has no wrong local minimum. Where L is incoherent and enough is observed,
its solution is the truth (Candès, Li, Ma and Wright, 2011).
Where it is not, more iterations do not help. Noise stays in L, whose rank is then large.

The method is the inexact augmented Lagrangian one (Lin, Chen and Ma, 2010), with S free outside Ω, as there for matrix
completion:

    L⁺ = SVT(M - S + Y/μ, 1/μ);   S⁺ = soft(M - L⁺ + Y/μ, γ/μ) on Ω,  Y/μ - L⁺ elsewhere;   Y⁺ = Y + μ(M - L⁺ - S⁺).

SVT lowers the singular values by 1/μ and drops those that become negative. L comes first here: Y is then exactly zero
outside Ω, Y⁺ = clip(Y + μ(M - L⁺), ±γ) on Ω, and what the next step thresholds is L + Sp(w), with one number
w = M - L - S + Y/μ per entry. It is sparse plus low-rank, as in LMaFit, and no m x n matrix is formed unless its
factors would be as large. Its singular vectors come from those of the last step by one pass of a block power
iteration, with some vectors to spare.

(L, S) is optimal if and only if there is a Y that is zero outside Ω such that P_Ω(L + S) = P_Ω(M), Y ∈ γ ∂‖S‖₁ on Ω,
⟨Y, L⟩ = ‖L‖_* and ‖Y‖₂ ≤ 1. The second holds by construction. The others are measured, and the method ends when all of
them hold to `tol`. They are columns of the trace:

    primal     ‖P_Ω(M - L - S)‖ against the size of the data;
    alignment  |1 - ⟨Y, L⟩ / ‖L‖_*|;
    excess     ‖Y‖₂ - 1, by a Lanczos iteration in every fifth step if the rest is fulfilled; else a bound on it;
    dual       ‖μ(S⁺ - S)‖ / √min(m, n), how far Y is from a subgradient of ‖L‖_*.

The Lanczos iteration has at most 200 steps. Where neither side is shorter and Y has many singular values close to 1, it
may find a little less than ‖Y‖₂.

Published programs raise μ by a constant factor ρ in every step. The primal residual becomes small then, whether or not
Y has had the time to converge, and they end "converged" elsewhere than at the optimum: with 30 % observed at a rank of
80 instead of 5. Here μ rises only while the dual residual is at most `balance` times the primal one.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from ..linalg.grassmann import relative_change
from ..linalg.lowrank import LowRank
from ..linalg.scale import outlying
from ..sweeps import Float
from .base import Outcome, Problem, Solver, State
from .factors import trace_row
from .parameters import parameter

LARGEST = 1e8  # μ, in units of its first value
FIRST = 4  # passes of the power iteration where there is nothing to begin with
SMALL = 32  # of a matrix with a side up to this all singular vectors are computed;
SHARE = 0.3  # and where that share of them would be: the factors are as large as the matrix then
LANCZOS = 200  # steps, at most


@dataclass(kw_only=True)
class ConvexState(State):
    """L = U diag(σ) Vᵀ, S and the multiplier Y, and what the next step begins with."""

    U: Float  # m x k, orthonormal
    sigma: Float  # k
    right: Float  # n x b, orthonormal: V, and vectors to spare
    S: Float  # on Ω
    Y: Float  # on Ω
    w: Float  # on Ω: M - L - S + Y/μ
    mu: float
    ceiling: float  # of μ
    spare: int
    objective: float = math.inf

    @property
    def kept(self) -> Float:
        """V, n x k."""
        return self.right[:, : self.sigma.size]


@dataclass(kw_only=True)
class Convex(Solver):
    """Robust completion by the nuclear norm: min ‖L‖_* + γ‖P_Ω(S)‖₁ subject to P_Ω(L + S) = P_Ω(M).

    It finds the rank and needs no start. A rank that is given bounds it: at most so many singular values are kept in
    each step. Where that bound is active the problem is not convex any more, and the message says so.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 50, rank=2, density=0.8, outliers=0.05, random_state=1)
    >>> r = ls.solve(problem.M, None, method=Convex())
    >>> r.converged, r.L.rank, r.L.error(problem.L, relative=True) < 1e-6
    (True, 2, True)
    """

    name = "convex"
    papers = (
        "E. Candès, X. Li, Y. Ma, J. Wright: Robust Principal Component Analysis?, J. ACM 58, 2011",
        "Z. Lin, M. Chen, Y. Ma: The Augmented Lagrange Multiplier Method for Exact Recovery of Corrupted "
        "Low-Rank Matrices, 2010",
    )
    finds_rank = True
    takes_start = False

    gamma: float | None = parameter(None, "price of an outlier; None: 1/√(p max(m, n)), p the share observed", above=0)
    mu: float = parameter(1.25, "first penalty, in units of 1/‖P_Ω(M)‖₂ (Lin et al.)", above=0)
    rho: float | None = parameter(None, "factor by which mu rises; None: 1.5 if all is observed, else 1.2", above=1)
    balance: float | None = parameter(
        None, "mu rises up to this dual / primal residual; None: 20 if all is observed, else 3", above=0
    )
    spare: int = parameter(5, "singular vectors beyond those of the last step; doubled if some were missed", at_least=1)

    def price(self, problem: Problem) -> float:
        """γ."""
        return 1 / math.sqrt(problem.M.density * max(problem.M.shape)) if self.gamma is None else self.gamma

    def init(self, problem: Problem) -> ConvexState:
        """L = S = 0 and Y = M / max(‖M‖₂, max |M| / γ), but what no inlier could be is in S."""
        m, n = problem.M.shape
        x = problem.M.values.astype(np.float64, copy=False)
        clipped = np.clip(x, -problem.clip, problem.clip)
        norm = spectral_norm(problem, clipped, precision=1e-3)
        Y = clipped / (max(norm, float(np.max(np.abs(clipped))) / self.price(problem)) or 1.0)
        mu = self.mu / (norm or 1.0)
        return ConvexState(
            U=np.eye(m, 1),
            sigma=np.zeros(1),
            right=np.eye(n, 1),
            S=x - clipped,
            Y=Y,
            w=clipped + Y / mu,
            mu=mu,
            ceiling=LARGEST * mu,
            spare=self.spare,
        )

    def advance(self, problem: Problem, state: ConvexState) -> ConvexState:
        """L, then S and Y, then μ and w for the next step."""
        x, gamma, mu = problem.M.values, self.price(problem), state.mu
        U, values, right = leading_vectors(problem, state)
        above = int(np.count_nonzero(values > 1 / mu))
        k = min(max(above, 1), problem.rank)
        sigma = np.maximum(values[:k] - 1 / mu, 0.0)
        V = np.ascontiguousarray(right[:, :k])
        fitted = problem.sweep.entries(U * sigma, V)
        z = state.Y + mu * (x - fitted)
        Y = np.clip(z, -gamma, gamma)
        S = (z - Y) / mu  # 0 to the last bit where nothing was clipped
        gap = x - fitted - S

        change = relative_change(state.U, state.kept * state.sigma, U, V * sigma)
        moved = change * float(np.linalg.norm(state.sigma)) if state.sigma.any() else float(np.linalg.norm(sigma))
        previous = x - state.S - state.w + state.Y / mu  # L on Ω
        outside = max(moved**2 - float(np.sum((fitted - previous) ** 2)), 0.0)  # ‖L⁺ - L‖² = ‖S⁺ - S‖² there
        dS = math.sqrt(float(np.sum((S - state.S) ** 2)) + outside)
        nuclear = float(np.sum(sigma))
        row = {
            "primal": float(np.linalg.norm(gap)) / (problem.scale * math.sqrt(problem.M.nnz)),
            "alignment": abs(1 - float(Y @ fitted) / nuclear) if nuclear else 0.0,
            "excess": mu * dS,
            "dual": mu * dS / math.sqrt(min(problem.M.shape)),
        }
        rho, balance = (1.5, 20.0) if problem.M.nnz == math.prod(problem.M.shape) else (1.2, 3.0)
        balanced = row["dual"] <= (self.balance or balance) * row["primal"]
        next_mu = min((self.rho or rho) * mu, state.ceiling) if balanced else mu
        objective = nuclear + gamma * float(np.sum(np.abs(x - fitted)))
        after = replace(
            state,
            iteration=state.iteration + 1,
            U=U,
            sigma=sigma,
            right=right,
            S=S,
            Y=Y,
            w=gap + Y / next_mu,
            mu=next_mu,
            objective=objective,
            accuracy=math.inf,
            finished="",
            failure="" if math.isfinite(objective) else "diverged",
        )
        if max(row["primal"], row["alignment"], row["dual"]) <= problem.tol and after.iteration % 5 == 0:
            self._test_optimality(problem, after, row, bounded=above > k)
        rank = float(np.count_nonzero(sigma))
        after.row = trace_row(objective, change, gamma=gamma, dS=dS, **row, rank=rank, mu=mu)
        return after

    @staticmethod
    def _test_optimality(problem: Problem, state: ConvexState, row: dict[str, float], *, bounded: bool) -> None:
        """Measure ‖Y‖₂, which must be at most 1; `bounded`: singular values were dropped for the given rank."""
        tol = problem.tol
        row["excess"] = max(spectral_norm(problem, state.Y, precision=tol, enough=1 + tol) - 1, 0.0)
        state.accuracy = max(row["primal"], row["alignment"], row["excess"])
        if row["excess"] > tol and bounded:
            k = state.sigma.size
            state.finished = f"stationary with the rank held at {k}; without that bound it would be larger"
        elif row["excess"] > tol:  # a singular vector has been missed
            state.spare = min(2 * state.spare, min(problem.M.shape))

    def lowrank(self, problem: Problem, state: ConvexState) -> LowRank:
        """U and diag(σ) Vᵀ."""
        return LowRank(state.U, (state.kept * state.sigma).T)

    def finish(self, problem: Problem, state: ConvexState) -> Outcome:
        """L, and the S that belongs to it."""
        flagged = outlying(state.S, problem.rounding)
        S = state.S[flagged].astype(problem.M.dtype)
        return Outcome(L=self.lowrank(problem, state), flagged=flagged, S=S, objective=state.objective)


@dataclass(kw_only=True)
class PCP(Convex):
    """Principal component pursuit: min ‖L‖_* + γ‖S‖₁ subject to L + S = M, for a matrix without holes.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 50, rank=2, density=1.0, outliers=0.1, random_state=1)
    >>> r = ls.solve(problem.M, None, method=PCP())
    >>> r.converged, r.L.rank, r.L.error(problem.L, relative=True) < 1e-7
    (True, 2, True)
    """

    name = "pcp"
    full = True


def leading_vectors(problem: Problem, state: ConvexState) -> tuple[Float, Float, Float]:
    """The leading singular values of W = L + Sp(w) with their vectors: all above 1/μ, and the right ones to spare.

    At most `problem.rank` are of interest. The left vectors are those of the values above 1/μ, one at least.
    """
    M, sweep = problem.in_memory, problem.sweep
    (m, n), A, V = M.shape, state.U * state.sigma, state.kept
    most = min(m, n, problem.rank + state.spare)
    B = state.right if state.iteration else np.empty((n, 0))
    b = min(max(state.sigma.size + state.spare, 2 * state.spare), most)
    while True:
        if min(m, n) <= SMALL or b >= SHARE * min(m, n):
            W = A @ V.T
            W[M.rows, M.columns_of_entries()] += state.w
            left, values, rest = np.linalg.svd(W, full_matrices=False)
            right = rest.T
            break
        new = np.random.default_rng([problem.seed, state.iteration]).standard_normal((n, max(b - B.shape[1], 0)))
        B = np.ascontiguousarray(np.hstack([B[:, :b], new]))
        for _ in range(1 if state.iteration else FIRST):
            Q = np.ascontiguousarray(np.linalg.qr(A @ (V.T @ B) + sweep.product(state.w, B))[0])
            right, values, T = np.linalg.svd(V @ (A.T @ Q) + sweep.product_transposed(state.w, Q), full_matrices=False)
            B = np.ascontiguousarray(right)
        left = Q @ T.T
        if values[-1] <= 1 / state.mu or b >= most:
            break
        b = min(b + max(state.spare, b // 2), most)
    k = min(max(int(np.count_nonzero(values > 1 / state.mu)), 1), problem.rank)
    return np.ascontiguousarray(left[:, :k]), values, np.ascontiguousarray(right[:, : k + state.spare])


def spectral_norm(problem: Problem, y: Float, *, precision: float, enough: float = math.inf) -> float:
    """‖Sp(y)‖₂ by at most `LANCZOS` steps of a Lanczos iteration, or something less that is more than `enough`."""
    sweep, n = problem.sweep, problem.M.shape[1]
    z = np.random.default_rng([problem.seed, 1]).standard_normal(n)
    basis, diagonal, off_diagonal, largest = np.empty((0, n)), list[float](), list[float](), 0.0
    while len(basis) < min(*problem.M.shape, LANCZOS):
        basis = np.vstack([basis, z / np.linalg.norm(z)])
        z = sweep.product_transposed(y, sweep.product(y, np.ascontiguousarray(basis[-1:].T))).ravel()
        diagonal.append(float(basis[-1] @ z))
        for _ in range(2):
            z -= basis.T @ (basis @ z)
        values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1))
        off_diagonal.append(float(np.linalg.norm(z)))
        largest = float(values[-1])
        # the residual of the Ritz pair: an eigenvalue is as close to its value
        if off_diagonal[-1] * abs(vectors[-1, -1]) <= precision * largest or largest > enough**2:
            break
    return math.sqrt(max(largest, 0.0))
