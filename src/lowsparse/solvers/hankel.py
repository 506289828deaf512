"""Hankel: robust completion of signals in several channels, whose columns may be corrupted or missing as a whole.

M is channels x times, n_c x n. Sums of a few damped sinusoids, and outputs of small linear systems, have a low-rank
block Hankel matrix: with n₁ + n₂ = n + 1,

    H(X) = [H(x_1); ...; H(x_{n_c})]  (n_c n₁ x n₂),   H(x)_ij = x_{i+j} ,

has rank r, 2 for every real sinusoid that the channels share. A column without one right entry is then determined by
the times before and after it, which M itself cannot do. `rank` is that of H(X), and may exceed min(n_c, n).

    find X with rank H(X) = r and S sparse with  P_Ω(X + S) = P_Ω(M) .

Zhang and Wang (2019): alternating projections, for one rank k = 1, ..., r after the other. For l = 0, 1, ...,

    W = H(X + P_Ω(M - S - X)/p);   X⁺ = H†(rank k part of W);   S⁺ = hard(P_Ω(M - X⁺), ζ),
    ζ = c (σ_{k+1}(W) + γ^l σ_k(W)) ,

where p is the share observed and H† averages over the anti-diagonals. (Where so long a step leads away from the data,
it is halved, to 1 at least, which cannot.) The last rank is iterated to the end, the others a few times.

The constants are our own. With γ = 1/2, which is usual, the threshold falls faster than X converges where half of the
entries are missing, and S takes up what is not an outlier; hence 0.9. c is 3 √r / √(n_c n₁ n₂), and ζ is at least four
standard deviations of the inliers (1.4826 times the median of |M - X|), without which noise ends up in S.

H(X) is never formed: products with it, and the averages of a low-rank matrix over its anti-diagonals, are convolutions
(by FFT). The singular vectors come from those of the step before by a block power iteration. X is an n_c x n array: of
low rank is only what it is lifted to.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from ..linalg.lowrank import LowRank
from ..linalg.scale import CONSISTENT, OUTLIER, robust_scale
from ..support.checks import check_count
from ..sweeps import Float
from .base import Outcome, Problem, Solver, State
from .factors import hard_threshold, outcome_with, trace_row
from .parameters import parameter, require

PASSES = 3  # of the power iteration in each step,
FIRST = 10  # and in the first one, at most
SPARE = 4  # vectors beyond the rank
SETTLED = 0.01  # the falling part of the threshold / all of it, when the change of X means something
FALLING = 0.9  # of the last residual: while it falls like this, it is not noise
CROWDED = 0.5  # share of the entries in S from which on X is no fit of the rest
TAIL = 0.02  # share of the entries that are too large to be noise and too small to be in S, likewise


@dataclass(frozen=True)
class Lifting:
    """The block Hankel matrix H(X), n_c n₁ x n₂, of X (n_c x n): products with it, without forming it."""

    channels: int
    n: int
    n1: int

    @property
    def n2(self) -> int:
        """The number of columns of H(X)."""
        return self.n + 1 - self.n1

    @property
    def shape(self) -> tuple[int, int]:
        """That of H(X)."""
        return self.channels * self.n1, self.n2

    def times(self, X: Float, B: Float) -> Float:
        """H(X) B, for B of n₂ x b."""
        N = next_fast_len(self.n, real=True)
        F, G = rfft(X, N), np.conj(rfft(B, N, axis=0))
        Y = np.empty((self.channels, self.n1, B.shape[1]))
        for q in range(B.shape[1]):
            Y[:, :, q] = irfft(F * G[:, q], N)[:, : self.n1]
        return Y.reshape(-1, B.shape[1])

    def transposed_times(self, X: Float, Q: Float) -> Float:
        """H(X)ᵀ Q, for Q of n_c n₁ x b."""
        N = next_fast_len(self.n, real=True)
        F, blocks = rfft(X, N), Q.reshape(self.channels, self.n1, -1)
        Y = np.empty((self.n2, Q.shape[1]))
        for q in range(Q.shape[1]):
            Y[:, q] = irfft(np.sum(F * np.conj(rfft(blocks[:, :, q], N)), axis=0), N)[: self.n2]
        return Y

    def averaged(self, A: Float, B: Float) -> Float:
        """H†(A Bᵀ): the mean over each anti-diagonal of each block."""
        N = next_fast_len(self.n, real=True)
        G, blocks = rfft(B, N, axis=0), A.reshape(self.channels, self.n1, -1)
        X = np.zeros((self.channels, N // 2 + 1), complex)
        for q in range(B.shape[1]):
            X += rfft(blocks[:, :, q], N) * G[:, q]
        t = np.arange(self.n)
        counts = np.minimum(np.minimum(t + 1, self.n - t), min(self.n1, self.n2))
        return np.asarray(irfft(X, N)[:, : self.n] / counts)


@dataclass(kw_only=True)
class HankelState(State):
    """X and S, the right singular vectors of W, and the current rank and level."""

    X: Float  # n_c x n
    S: Float  # on Ω
    right: Float  # n₂ x b
    stage: int = 1  # k
    level: int = 0  # l
    step: float  # 1/p, or less where that is too far
    residual: float = math.inf  # ‖P_Ω(M - S - X)‖ against the size of the data
    objective: float = math.inf


@dataclass(kw_only=True)
class Hankel(Solver):
    """Signals X whose block Hankel matrix has rank r, with outliers S: P_Ω(X + S) = P_Ω(M), by alternating projections.

    It ends when X changes by at most `tol`, and either fits what is not in S as well or the threshold has come down to
    the noise. It needs no start. L of the result is X, an n_c x n matrix, in factors; its rank is not `rank`.

    >>> import lowsparse as ls
    >>> t = np.arange(120)
    >>> X = np.stack([np.cos(0.3 * t), np.sin(0.3 * t + 1)]) * np.exp(-0.01 * t)
    >>> M = X.copy()
    >>> M[:, 10:120:12] = np.nan
    >>> M[:, 15:120:15] += 3.0
    >>> r = ls.solve(M, 2, method=Hankel())
    >>> r.converged, bool(np.allclose(r.L.to_dense(), X))
    (True, True)
    """

    name = "hankel"
    papers = (
        "S. Zhang, M. Wang: Correction of Corrupted Columns through Fast Robust Hankel Matrix Completion, "
        "IEEE Trans. Signal Processing 67, 2019",
    )
    rank_of = "the Hankel matrix"
    takes_start = False

    n1: int | None = parameter(None, "rows of each block; None: (n + 1) // 2, if the rank allows", kind=int, at_least=1)
    iterations: int = parameter(8, "on each rank but the last", at_least=1)
    gamma: float = parameter(0.9, "factor by which the threshold falls", above=0, below=1)
    c: float = parameter(3.0, "threshold, in units of √r / √(n_c n₁ n₂) times singular values", above=0)
    floor: float = parameter(4.0, "least threshold, in standard deviations of the inliers; 0: no bound", at_least=0)

    def lifting(self, shape: tuple[int, int], rank: int) -> Lifting:
        """The shape of H, which must have `rank` columns."""
        channels, n = shape
        return Lifting(channels, n, max(min((n + 1) // 2, n + 1 - rank), 1) if self.n1 is None else self.n1)

    def check_rank(self, shape: tuple[int, int], rank: object) -> int:
        """The rank is that of H(X)."""
        require(self.n1 is None or self.n1 <= shape[1], "n1", self.n1, f"at most {shape[1]}, the number of columns")
        rank = check_count("rank", rank)
        sides = self.lifting(shape, rank).shape
        limit = f"at most the shorter side of the Hankel matrix, {sides[0]} x {sides[1]}"
        require(rank <= min(sides), "rank", rank, limit)
        return rank

    def init(self, problem: Problem) -> HankelState:
        """X = S = 0, but what no inlier could be is in S."""
        lifting = self.lifting(problem.M.shape, problem.rank)
        x = problem.M.values.astype(np.float64, copy=False)
        shape = lifting.n2, min(problem.rank + SPARE, *lifting.shape)
        return HankelState(
            X=np.zeros(problem.M.shape),
            S=x - np.clip(x, -problem.clip, problem.clip),
            right=np.linalg.qr(np.random.default_rng([problem.seed, 2]).standard_normal(shape))[0],
            step=1 / problem.M.density,
        )

    def advance(self, problem: Problem, state: HankelState) -> HankelState:
        """X, then S, then the next level or rank."""
        M, r, k, scale = problem.in_memory, problem.rank, state.stage, problem.scale
        x, at, lifting = M.values, (M.rows, M.columns_of_entries()), self.lifting(M.shape, r)
        W = state.X.copy()
        W[at] += state.step * (x - state.S - state.X[at])
        left, values, right = singular_vectors(lifting, W, state.right, PASSES if state.iteration else FIRST)
        X = lifting.averaged(left[:, :k] * values[:k], right[:, :k])

        e = X[at] - x
        noise = robust_scale(e)
        c = self.c * math.sqrt(r / (lifting.shape[0] * lifting.shape[1]))
        falling = c * self.gamma**state.level * float(values[k - 1])
        beyond = c * float(values[k]) if values.size > k else 0.0
        zeta = max(beyond + falling, self.floor * noise, problem.rounding)
        S = hard_threshold(-e, zeta)
        fit = e + S
        residual = float(np.linalg.norm(fit)) / (scale * math.sqrt(M.nnz))
        size, dX = float(np.linalg.norm(X)), float(np.linalg.norm(X - state.X))
        change = dX / size if size else 0.0 if not dX else math.inf

        raise_rank = k < r and state.level + 1 >= self.iterations
        exact = zeta <= problem.tol * scale  # no outlier that matters can be left
        noisy = not exact and falling <= SETTLED * zeta and residual > FALLING * state.residual
        after = HankelState(
            iteration=state.iteration + 1,
            X=X,
            S=S,
            right=np.ascontiguousarray(right),
            stage=k + 1 if raise_rank else k,
            level=0 if raise_rank else state.level + 1,
            step=state.step,
            objective=0.5 * float(fit @ fit),
            residual=residual,
            accuracy=change if k == r and (exact or noisy) else math.inf,
        )
        share = np.count_nonzero(S) / M.nnz
        tail = np.count_nonzero(np.abs(fit) > OUTLIER * noise) / M.nnz if noisy else 0.0
        dS = float(np.linalg.norm(S - state.S))
        after.row = trace_row(after.objective, change, dS=dS, zeta=zeta, residual=residual, share=share, stage=float(k))
        if noise > 2 * CONSISTENT * problem.unit and state.step > 1:  # worse than X = 0
            fresh = self.init(problem)
            after.X, after.S, after.step, after.accuracy = fresh.X, fresh.S, max(state.step / 2, 1.0), math.inf
        if after.converged(problem.tol) and max(share / CROWDED, tail / TAIL) > 1:
            after.stall(
                f"{share:.0%} of the entries are in S, and {tail:.0%} are not but are too far from X for noise, so X "
                f"fits too few to be believed: {'lower' if tail > TAIL else 'raise'} c, or choose another rank"
            )
        return after

    def lowrank(self, problem: Problem, state: HankelState) -> LowRank:
        """X = QR."""
        Q, R = np.linalg.qr(state.X)
        return LowRank(Q, R)

    def finish(self, problem: Problem, state: HankelState) -> Outcome:
        """X, and the S of the method."""
        M = problem.in_memory
        e = state.X[M.rows, M.columns_of_entries()] - M.values
        return outcome_with(problem, self.lowrank(problem, state), state.S, e, state.objective)


def singular_vectors(lifting: Lifting, X: Float, B: Float, passes: int) -> tuple[Float, Float, Float]:
    """The leading singular vectors and values of H(X), by a block power iteration from the right vectors B."""
    for _ in range(passes):
        Q = np.linalg.qr(lifting.times(X, B))[0]
        B, values, T = np.linalg.svd(lifting.transposed_times(X, Q), full_matrices=False)
    return Q @ T.T, values, B
