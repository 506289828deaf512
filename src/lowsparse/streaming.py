"""Robust PCA of a stream: a subspace learnt from samples with holes and gross errors as they come, in bounded memory.

A sample is a column x of m features, known on Ω. Given the subspace U (m x r), it is regressed on U robustly, which
gives its coefficients v; its entries have the weights w = 1 / (1 + (e/c)²) of the Cauchy loss of their residuals e,
with c = 2.385 σ. Given v and w, each feature is a problem of weighted least squares of its own. Of all the past its
normal equations are enough, m r² numbers, whatever the length of the stream:

    u_i = A_i⁻¹ b_i,   A_i = Σ_j d_j w_ij v_j v_jᵀ,   b_i = Σ_j d_j w_ij v_j x_ij,

where d_j = 2^(-age / half_life) forgets. There is no step to choose.

Samples are taken in by blocks, as many at once as would determine a subspace by themselves (`PER_FEATURE` entries for
each feature), so it does not matter in what batches they come. Within a block the two regressions take turns, with σ
following the residuals; the past enters by its sums. When U becomes U R⁻¹, v becomes R v, and the sums turn with it:
A_i becomes R A_i Rᵀ. What is usual for v is known as well: Σ d v vᵀ makes a prior, without which samples that do not
determine a direction would get wild coefficients in it.

The first block is solved by `lowsparse.solve`. So is a block that the subspace explains badly, and the 4th, 8th, 16th
and so on: what explains it better is a rival, and follows the stream from then on. Each block adds
Σ d log(size of the entries / σ) to the score of either; scores fade like samples do, and the higher one is believed.
In this way a wrong start is overtaken, and so is a scene that has gone after about a half-life; an interlude of strange
samples is not followed. See `Rival` for when it need not wait so long.

Against GRASTA (`lowsparse.tracking`, whose step adapts itself), 500 samples of 120 features, rank 4, 30 % missing: the
largest angle to the truth after one pass and after two, the median (and the worst) of 20 streams. In batches of 1, 7,
50 or 500 samples the numbers are the same.

=============================  ===================  ===================  ===================  =================
outliers, noise                one pass             two passes           GRASTA, one          two
=============================  ===================  ===================  ===================  =================
10 % of size 8                 1e-10 (1e-9)         1e-10 (1e-9)         1e-3 (4e-3)          3e-7 (1e-6)
25 % of size 8                 3e-10 (3e-9)         3e-10 (6e-9)         9e-3 (4e-2)          3e-5 (2e-4)
10 % of size 10⁶               9e-12 (4e-11)        5e-12 (2e-11)        1e-3 (3e-3)          4e-7 (9e-7)
10 % of size 8, noise 0.1      7.2e-3 (8.5e-3)      7.1e-3 (8.4e-3)      2.7e-2 (3.6e-2)      1.3e-2 (1.8e-2)
25 % of size 8, noise 0.1      8.3e-3 (9.4e-3)      8.2e-3 (9.3e-3)      3.9e-2 (5.9e-2)      1.9e-2 (2.6e-2)
=============================  ===================  ===================  ===================  =================

With noise, `lowsparse.solve` on all samples at once gets 7.0e-3 and 8.2e-3. GRASTA (mu_max = 15, from a random start;
one that is solved for gains a factor of two at most) takes a third to a thirtieth of the time.

Y. Chi, Y. C. Eldar, R. Calderbank: PETRELS: parallel subspace estimation and tracking by recursive least squares from
partial observations. IEEE Transactions on Signal Processing 61(23), 2013: these sums, without robustness.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from .geometry import basis
from .lines import EFFICIENT, EXPLAINED, WILD, Lines, Placement
from .observed import ObservedMatrix
from .scale import robust_scale
from .solve import one_blas_thread, solve
from .solvers import Ladder
from .start import left_singular_vectors
from .sweeps import BACKENDS, Float, Robust, open_sweep
from .sweeps.reference import cholesky, cholesky_solve

__all__ = ["Learnt", "Stream", "Sums"]

PER_FEATURE = (15, 8)  # entries of a block for each feature, and for each rank as many again
TURNS = 60  # of the two regressions in a block, at most
SETTLED = 0.98  # they go on while the scale of the residuals falls by this factor in a turn,
PATIENCE = 5  # or in so many turns, as long as the block is explained badly
PACE = 0.8  # c / its previous value, at least; a scale that collapses throws inliers away
EXACT = 1e-8  # of the unit: residuals of this size need not become smaller
HELD = 1e-14  # of the mean diagonal of A_i: what keeps U as it was where no sample tells
SHRINK = 0.01  # of samples that do not determine their coefficients
REMEMBERED = 9  # blocks whose noise tells what is usual
DOUBT = 1.5  # times the usual noise: a block with more is explained badly
BETTER = 0.9  # times the noise of all others: a rival must have less
LEAD = 0.05  # by so much for each sample a rival must score more, to be believed before its time
AGAIN = 1.25  # growth of the samples until they are solved anew for those who look before there is a block
ATTEMPTS = 2  # of the solve; what it misses a rival will find
POOR = 0.5  # of the usual share of entries that are explained: a feature with less is looked at again,
GOOD = 0.9  # and changed if it then has more than this
LOOK = 1e-4  # of the unit: an entry this close is explained, for that
NOTHING = 1e-7  # of the largest singular value, or of the unit: a direction with less is not there


@dataclass(frozen=True)
class Sums:
    """What is kept of samples that have passed. All of it adds up, fades, and turns with the basis.

    >>> one = Sums.none(3, 2)
    >>> (one + one.faded(0.5)).samples
    0.0
    """

    A: Float  # m x r x r: Σ d w v vᵀ of each feature
    b: Float  # m x r: Σ d w v x
    energy: Float  # r x r: Σ d ω v vᵀ, where ω is the mean weight of the entries of a sample
    weight: float  # Σ d ω
    samples: float  # Σ d
    score: float  # Σ d log(unit / σ)

    @classmethod
    def none(cls, m: int, r: int) -> Sums:
        """No samples."""
        return cls(np.zeros((m, r, r)), np.zeros((m, r)), np.zeros((r, r)), 0.0, 0.0, 0.0)

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))

    def faded(self, factor: float) -> Sums:
        """Every sample counted this many times."""
        return Sums(*(factor * getattr(self, part.name) for part in fields(self)))

    def turned(self, R: Float) -> Sums:
        """The sums of R v."""
        return replace(self, A=R @ self.A @ R.T, b=self.b @ R.T, energy=R @ self.energy @ R.T)

    def widened(self, r: int) -> Sums:
        """The sums of r coefficients, those that are new being zero."""
        more = (0, r - len(self.energy))
        return replace(
            self,
            A=np.pad(self.A, ((0, 0), more, more)),
            b=np.pad(self.b, ((0, 0), more)),
            energy=np.pad(self.energy, (more, more)),
        )

    def without(self, features: NDArray[np.intp]) -> Sums:
        """Nothing remembered of these features."""
        A, b = self.A.copy(), self.b.copy()
        A[features], b[features] = 0.0, 0.0
        return replace(self, A=A, b=b)

    @property
    def spread(self) -> Float:
        """The mean of v vᵀ."""
        return self.energy / self.weight if self.weight else self.energy

    def rows(self, U: Float) -> Float:
        """A_i⁻¹ b_i of each feature; the row of U where no sample tells."""
        held = HELD * float(np.einsum("mkk->", self.A)) / self.b.size
        return cholesky_solve(cholesky(self.A + held * np.eye(U.shape[1])), self.b + held * U)


@dataclass(frozen=True)
class Learnt:
    """A subspace, and what it was learnt from.

    >>> learnt = Learnt(np.eye(3, 1), Sums.none(3, 1), unit=1.0, recent=(0.1, 0.3, 5.0))
    >>> learnt.noise, learnt.completed(2).U.shape
    (0.3, (3, 2))
    """

    U: Float  # m x r, orthonormal, the directions of most energy first
    sums: Sums
    unit: float  # the usual size of an entry
    recent: tuple[float, ...]  # σ of the last blocks

    @property
    def noise(self) -> float:
        """The standard deviation of the inliers: the median of the last blocks."""
        return sorted(self.recent)[(len(self.recent) - 1) // 2]

    @property
    def latest(self) -> float:
        """That of the last block."""
        return self.recent[-1]

    @property
    def singular_values(self) -> Float:
        """Of the samples without noise and outliers, descending; a sample of age a counts 2^(-a / half_life) times."""
        variances: Float = np.maximum(np.diag(self.sums.spread), 0.0)
        return np.sqrt(self.sums.samples * variances)

    @property
    def placement(self) -> Placement:
        """How samples are placed on the subspace: robustly, each by itself."""
        usual = math.sqrt(float(np.trace(self.sums.spread)))
        return Placement(self.U, EFFICIENT * self.noise, self.unit, WILD * usual or math.inf)

    def completed(self, r: int) -> Learnt:
        """With r directions; those that are new are any, and have no energy."""
        m, k = self.U.shape
        if k == r:
            return self
        Q = np.linalg.qr(np.hstack([self.U, np.eye(m, r)]))[0]
        return replace(self, U=np.hstack([self.U, Q[:, k:r]]), sums=self.sums.widened(r))


class Block:
    """Samples that are taken in together, with what they count (n numbers) and what the past counts then.

    A block that is not `whole` is a look ahead: it is too small to tell the noise, or to raise doubts.
    """

    def __init__(
        self, M: ObservedMatrix, discount: Float, fade: float, *, whole: bool, unit: float, backend: str
    ) -> None:
        self.M, self.discount, self.fade, self.whole = M, discount, fade, whole
        self.sweep = open_sweep(M, backend)
        self.owner = M.columns_of_entries()
        self.unit = float(np.median(np.abs(M.values[M.values != 0.0]))) if whole else unit
        self.close = EXPLAINED * self.unit  # noise below this is none

    def scale(self, e: Float) -> float:
        """The robust scale of these residuals, from a sample of them if they are many."""
        return robust_scale(e[:: max(1, e.size // 20_000)])

    def width(self, e: Float) -> float:
        """c for these residuals."""
        return max(EFFICIENT * self.scale(e), self.close)

    def noise(self, e: Float, r: int) -> float:
        """σ, from what the r coefficients of every sample leave to the residuals."""
        inliers = float(np.sum(1 / (1 + (e / self.width(e)) ** 2)))
        return self.scale(e) / math.sqrt(max(1 - r * self.M.shape[1] / inliers, 0.1))

    def fails(self, before: Learnt, after: Learnt) -> bool:
        """Whether the block is explained badly, for what was usual before."""
        return after.latest > DOUBT * max(before.noise, self.close)

    def regress(self, U: Float, V: Float | None, spread: Float, how: Robust) -> Float:
        """Regress the samples on U robustly, where v ~ N(0, P) is usual, P = spread + σ² I = T Tᵀ.

        With v = T z this is a regression on U T with the ridge σ².
        """
        sigma = how.c / EFFICIENT
        P = spread + sigma**2 * np.eye(len(spread))
        size = math.sqrt(float(np.trace(P)))
        T = np.linalg.cholesky(P) / size
        how = replace(how, shrink=SHRINK, ridge=(sigma / size) ** 2)
        guess = None if V is None else np.linalg.solve(T, V.T).T
        return self.sweep.regress(U @ T, guess, how).V @ T.T

    def sums(self, V: Float, e: Float, c: float) -> Sums:
        """Of these samples, given their coefficients V (n x r) and residuals e; all but the score."""
        (m, n), r = self.M.shape, V.shape[1]
        w = 1 / (1 + (e / c) ** 2)
        omega = self.discount * np.bincount(self.owner, weights=w, minlength=n) / self.M.column_counts
        w *= self.discount[self.owner]
        i, j = np.triu_indices(r)
        A = np.empty((m, r, r))
        A[:, i, j] = A[:, j, i] = self.sweep.product(w, V[:, i] * V[:, j])
        return Sums(
            A=A,
            b=self.sweep.product(w * self.M.values, V),
            energy=(V * omega[:, None]).T @ V,
            weight=float(np.sum(omega)),
            samples=float(np.sum(self.discount)),
            score=0.0,
        )

    def score(self, sigma: float) -> float:
        """Of what leaves this noise."""
        return float(np.sum(self.discount)) * max(math.log(self.unit / max(sigma, self.close)), 0.0)


# ---------------------------------------------------------------------- a first block


def begin(block: Block, rank: int) -> Learnt | None:
    """What these samples teach by themselves; None if it is L = 0."""
    rank = min(rank, block.M.shape[1])
    result = solve(block.M, rank, method=Ladder(attempts=ATTEMPTS), backend=block.sweep.name)
    sizes, turn = np.linalg.eigh(result.L.V @ result.L.V.T)
    if not sizes[-1] > (NOTHING * block.unit) ** 2:
        return None
    turn = turn[:, sizes > NOTHING**2 * sizes[-1]]
    fit = Fit(block, result.L.U @ turn, result.L.V.T @ turn, Sums.none(block.M.shape[0], turn.shape[1]))
    fit.tame()
    sigma = result.held_out or result.noise
    return fit.learnt(sigma, (sigma,))


# ---------------------------------------------------------------------- a further block


def follow(past: Learnt, block: Block, rank: int) -> Learnt:
    """What is known after these samples."""
    usual = max(past.noise, block.close)
    old = past.sums.faded(block.fade)
    V = block.regress(past.U, None, old.spread, Robust(c=EFFICIENT * usual, first_c=6 * block.unit, turns=10))
    fit = Fit(block, past.U, V, old, None if block.whole else EFFICIENT * usual)
    fit.settle(usual)
    if not block.whole:
        return fit.learnt(past.noise, past.recent)
    while fit.U.shape[1] < rank and block.scale(fit.e) > DOUBT * usual:
        fit.grow()
        fit.settle(usual)
    if fit.look_again():
        fit.settle(usual)
    sigma = block.noise(fit.e, fit.U.shape[1])
    return fit.learnt(sigma, (*past.recent, sigma))


class Fit:
    """A block under way: U and the coefficients V, their residuals e, and the sums of the past in the basis U.

    c follows the residuals if it is not given.
    """

    def __init__(self, block: Block, U: Float, V: Float, old: Sums, c: float | None = None) -> None:
        self.block, self.U, self.V, self.old = block, U, V, old
        self.e = block.sweep.residual(U, V)
        self.given = c is not None
        self.c = block.width(self.e) if c is None else c

    def sums(self) -> Sums:
        """Of the past and the block."""
        return self.old + self.block.sums(self.V, self.e, self.c)

    def learnt(self, sigma: float, recent: tuple[float, ...]) -> Learnt:
        """The end, in the principal axes; σ is the noise of the block, `recent` that of the last ones."""
        if not self.given:
            self.c = self.block.width(self.e)
        sums = self.sums()
        sums = replace(sums, score=sums.score + self.block.score(sigma))
        turn = np.linalg.eigh(sums.energy)[1][:, ::-1]
        return Learnt(self.U @ turn, sums.turned(turn.T), self.block.unit, recent[-REMEMBERED:])

    def settle(self, usual: float) -> None:
        """Turns, until the residuals do not become smaller; with patience while they are larger than is usual."""
        recent: list[float] = []
        for _ in range(TURNS):
            self._turn()
            recent.append(self.block.scale(self.e))
            patience = PATIENCE if self.block.whole and recent[-1] > DOUBT * usual else 1
            falling = len(recent) <= patience or recent[-1] < SETTLED * recent[-1 - patience]
            if recent[-1] <= EXACT * self.block.unit or not falling:
                break

    def _turn(self) -> None:
        """Regress the features, then the samples."""
        sums = self.sums()
        self.U, R = basis(sums.rows(self.U))
        self.old = self.old.turned(R)
        self._regress(self.V @ R.T, sums.turned(R).spread)
        if not self.given:
            self.c = max(self.block.width(self.e), PACE * self.c)

    def _regress(self, V: Float, spread: Float) -> None:
        self.V = self.block.regress(self.U, V, spread, Robust(c=self.c))
        self.e = self.block.sweep.residual(self.U, self.V)

    def tame(self) -> None:
        """Coefficients that are wild for want of entries must not make the prior that is to tame them.

        A sample counts as if v had at most twice the median length.
        """
        for _ in range(3):
            squares = np.einsum("nr,nr->n", self.V, self.V)
            some = squares[squares > self.block.close**2]
            bound = 4 * float(np.median(some)) if some.size else 1.0
            counts = np.minimum(1.0, bound / np.maximum(squares, bound))
            self._regress(self.V, (self.V * counts[:, None]).T @ self.V / len(self.V))

    def grow(self) -> None:
        """One direction more: the leading one of the residuals, clipped at their scale."""
        M, bound = self.block.M, self.c / EFFICIENT
        clipped = open_sweep(M.with_values(np.clip(-self.e, -bound, bound)), self.block.sweep.name)
        u = left_singular_vectors(clipped, len(self.U), 1, np.random.default_rng(0x67726F77))[0]
        U = np.hstack([self.U, u - self.U @ (self.U.T @ u)])
        self.U, R = basis(U)
        self.old = self.old.widened(U.shape[1]).turned(R)
        V = np.hstack([self.V, np.zeros((len(self.V), 1))]) @ R.T
        self._regress(V, len(U) * self.block.unit**2 * np.eye(U.shape[1]))  # a sample is as long as √m units

    def look_again(self) -> bool:
        """Regress the features anew that explain few of their entries; whether this has helped any."""
        block, c = self.block, max(self.c, LOOK * self.block.unit)
        share, usual = self._explained(c)
        if not (share < POOR * usual).any():
            return False
        M = block.M.T
        features = Lines(M, open_sweep(M, block.sweep.name), block.unit, learning=True)
        Q, R = basis(self.V)
        C = self.U @ R.T
        new = features.second_look(Q, C, c, share)[0]
        now = features.share(features.again(Q, new, c, 1).inside)
        better = np.flatnonzero((new != C).any(axis=1) & (now >= GOOD * usual))
        self.U = self.U.copy()
        self.U[better] += (new - C)[better] @ np.linalg.pinv(R, rcond=0.01).T
        self.old = self.old.without(better)
        self.e = block.sweep.residual(self.U, self.V)
        return bool(better.size)

    def _explained(self, c: float) -> tuple[Float, float]:
        """The share of its entries that a feature explains, and what is usual; 1 if it is not to be looked at again.

        A second look is for features that had hardly been seen before, or are not any more what they were. The latter
        lose their past, so the block must show all directions.
        """
        counts = self.block.M.row_counts
        near = np.bincount(self.block.M.rows[np.abs(self.e) <= 3 * c], minlength=len(counts))
        share = near / np.maximum(counts, 1)
        usual = float(np.median(share[counts > 0]))
        share[counts == 0] = 1.0
        sizes = np.linalg.svd(self.V, compute_uv=False)
        if sizes[-1] < max(3 * c / EFFICIENT * math.sqrt(len(self.V)), 0.01 * sizes[0]):
            past = np.einsum("mkk->m", self.old.A)
            share[past >= 0.1 * np.median(past)] = 1.0
        return share, usual


# ---------------------------------------------------------------------- the stream


@dataclass(frozen=True)
class Rival:
    """Something else that could be believed."""

    learnt: Learnt
    against: float  # what those who are believed have scored meanwhile
    proven: bool  # by a block that it does not come from

    @property
    def lead(self) -> float:
        """By how much the score is higher."""
        return self.learnt.sums.score - self.against

    def beats(self, believed: Learnt, *, fails: bool) -> bool:
        """Whether it is better, all in all.

        What it would have scored before it was there is not known. If what is believed fails now but did not before,
        the data are others: it counts as nothing. Else what is true of the present is taken for true of the past.
        """
        sums = self.learnt.sums
        return sums.score > believed.sums.score or (self.proven and not fails and self.lead > LEAD * sums.samples)


def _due(blocks: int) -> bool:
    """Whether this block is solved anew in any case: the 4th, 8th, 16th ... are."""
    return blocks >= 4 and blocks & (blocks - 1) == 0


class Stream:
    """A subspace that follows a stream of samples with holes and gross errors; memory is O(features rank²).

    Parameters
    ----------
    features
        Of every sample.
    rank
        The dimension of the subspace.
    half_life
        In samples: one that is so old counts half. None: all count the same, for ever.
    backend
        "auto", "native" (the compiled core) or "numpy".

    In what batches the samples come makes no difference, bit for bit, nor does it when the result is looked at.

    Examples
    --------
    >>> rng = np.random.default_rng(3)
    >>> truth = np.linalg.qr(rng.standard_normal((30, 2)))[0]
    >>> stream = Stream(30, rank=2)
    >>> for _ in range(8):
    ...     X = truth @ rng.standard_normal((2, 25))
    ...     X[rng.random(X.shape) < 0.1] += 10.0  # wrong
    ...     X[rng.random(X.shape) < 0.2] = np.nan  # not known
    ...     stream.push(ObservedMatrix.from_dense(X))
    >>> bool(np.linalg.norm(truth - stream.U @ (stream.U.T @ truth)) < 1e-8)
    True
    """

    def __init__(self, features: int, rank: int, *, half_life: float | None = None, backend: str = "auto") -> None:
        for name, count, most in (("features", features, math.inf), ("rank", rank, features)):
            whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
            if not (whole and 1 <= count <= most):
                raise ValueError(f"{name} must be a whole number from 1 to {most}, not {count!r}")
        if half_life is not None and not 0 < half_life < math.inf:
            raise ValueError(f"half_life must be a positive number of samples, or None, not {half_life!r}")
        if backend not in ("auto", *BACKENDS):
            raise ValueError(f"unknown backend {backend!r}: choose 'auto' or one of {sorted(BACKENDS)}")
        self.features, self.rank, self.half_life, self.backend = int(features), int(rank), half_life, backend
        self.samples = 0  # that have come
        self.blocks = 0  # that have been taken in,
        self.until = 0  # with so many samples
        self.changes = 0  # times that a rival was believed
        self.believed: Learnt | None = None
        self.rival: Rival | None = None
        # samples that wait for a block: when each of them came, its number of entries; and the entries
        self.times, self.counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.rows, self.values = np.zeros(0, np.int32), np.zeros(0, np.float32)
        # what has been worked out for those who look, not part of the state
        self._now: Learnt | None = None
        self._draft: tuple[int, int, Learnt | None] = (0, 0, None)

    # ------------------------------------------------------------------ in

    def push(self, M: ObservedMatrix) -> None:
        """Take samples in, the columns of M in their order.

        One with no more than `rank` entries tells nothing of the subspace, nor does one of zeros: only time passes. An
        error, or an interruption, leaves the stream as it was.
        """
        if M.shape[0] != self.features:
            raise ValueError(f"the samples have {M.shape[0]} features, those of this stream have {self.features}")
        largest = max(float(M.values.max()), -float(M.values.min()))
        if largest > 1e70:
            raise ValueError(f"the largest magnitude is {largest:.2g}, its powers are out of range: divide all by it")
        after = copy.copy(self)
        after._append(M)
        after._drain()
        self.__dict__.update(after.__dict__)

    def wait(self, samples: int) -> None:
        """Let time pass, as by so many samples that have no entries at all."""
        if samples < 0:
            raise ValueError(f"time does not go backwards: samples must be 0 or more, not {samples}")
        self.samples, self._now = self.samples + int(samples), None

    def _append(self, M: ObservedMatrix) -> None:
        some = np.bincount(M.columns_of_entries()[M.values != 0.0], minlength=M.shape[1])
        telling = (M.column_counts > self.rank) & (some > 0)
        entries = np.repeat(telling, M.column_counts)
        self.times = np.concatenate([self.times, self.samples + np.flatnonzero(telling)])
        self.counts = np.concatenate([self.counts, M.column_counts[telling]])
        self.rows = np.concatenate([self.rows, M.rows[entries]])
        self.values = np.concatenate([self.values, M.values[entries]])
        self.samples, self._now = self.samples + M.shape[1], None

    def _needed(self) -> int:
        """Entries of a block."""
        return self.features * (PER_FEATURE[0] + PER_FEATURE[1] * self.rank)

    def _drain(self) -> None:
        """Take in all blocks that are whole."""
        needed = self._needed()
        ends = np.concatenate([[0], np.cumsum(self.counts)])
        first = 0
        while ends[-1] - ends[first] >= needed:
            last = int(np.searchsorted(ends, ends[first] + needed))
            until = int(self.times[last - 1]) + 1
            with one_blas_thread:
                self._take(self._block(first, last, self.believed, since=self.until, now=until, whole=True))
            self.blocks, self.until, first = self.blocks + 1, until, last
        self.times, self.counts = self.times[first:].copy(), self.counts[first:].copy()
        self.rows, self.values = self.rows[ends[first] :].copy(), self.values[ends[first] :].copy()

    def _block(self, first: int, last: int, known: Learnt | None, *, since: int, now: int, whole: bool) -> Block:
        """Some of the samples that wait. What was known at the time `since` is to follow them until `now`."""
        ends = np.concatenate([[0], np.cumsum(self.counts)])[first : last + 1]
        entries = slice(ends[0], ends[-1])
        M = ObservedMatrix(ends - ends[0], self.rows[entries], self.values[entries], (self.features, last - first))
        rate = 0.0 if self.half_life is None else math.log(2) / self.half_life
        return Block(
            M,
            np.exp(-rate * (now - 1 - self.times[first:last])),
            math.exp(-rate * (now - since)),
            whole=whole,
            unit=1.0 if known is None else known.unit,
            backend=self.backend,
        )

    def _take(self, block: Block) -> None:
        """A block that is whole: who is believed after it, and who is not yet."""
        if self.believed is None:
            self.believed = begin(block, self.rank)
            return
        before, self.believed = self.believed, follow(self.believed, block, self.rank)
        gain = self.believed.sums.score - block.fade * before.sums.score
        fails = lost = block.fails(before, self.believed)
        least = self.believed.latest
        rival = self.rival
        if rival is not None:
            now = follow(rival.learnt, block, self.rank)
            lost = fails and block.fails(rival.learnt, now)
            least = min(least, now.latest)
            rival = Rival(now, block.fade * rival.against + gain, proven=True)
            rival = rival if rival.lead > 0 else None
        if lost or _due(self.blocks + 1):
            fresh = begin(block, self.rank)
            if fresh is not None and max(fresh.latest, block.close) < BETTER * least:
                rival = Rival(fresh, gain, proven=False)
        if rival is not None and rival.beats(self.believed, fails=fails):
            self.believed, rival, self.changes = rival.learnt, None, self.changes + 1
        self.rival = rival

    # ------------------------------------------------------------------ out

    @property
    def learnt(self) -> Learnt:
        """All that is known now, of the samples that wait for a block too."""
        if self._now is None:
            with one_blas_thread:
                self._now = self._look_ahead().completed(self.rank)
        return self._now

    def _look_ahead(self) -> Learnt:
        known, first, since, waiting = self.believed, 0, self.until, self.counts.size
        if known is None and waiting:
            first = self._first()
            since = int(self.times[first - 1]) + 1
            if self._draft[:2] != (self.until, first):
                block = self._block(0, first, None, since=self.until, now=since, whole=True)
                self._draft = self.until, first, begin(block, self.rank)
            known = self._draft[2]
        if known is None:
            return Learnt(np.eye(self.features, 1), Sums.none(self.features, 1), 1.0, (0.0,))
        if first == waiting:
            return known
        rest = self._block(first, waiting, known, since=since, now=self.samples, whole=False)
        return follow(known, rest, self.rank)

    def _first(self) -> int:
        """How many of the samples a draft is made of before there is a block: most, but seldom others."""
        ends = np.cumsum(self.counts)
        steps = math.ceil(math.log(self._needed() / ends[-1]) / math.log(AGAIN))
        return min(int(np.searchsorted(ends, self._needed() / AGAIN**steps)) + 1, ends.size)

    @property
    def U(self) -> Float:  # noqa: N802
        """The subspace (features x rank, orthonormal), the directions of most energy first."""
        return self.learnt.U

    @property
    def singular_values(self) -> Float:
        """Of the samples without noise and outliers, descending; a sample of age a counts 2^(-a / half_life) times."""
        return self.learnt.singular_values

    @property
    def noise(self) -> float:
        """The standard deviation of the inliers of late."""
        return self.learnt.noise

    @property
    def placement(self) -> Placement:
        """How samples are placed on the subspace: ``stream.placement.coefficients(M)`` are their coefficients."""
        return self.learnt.placement
