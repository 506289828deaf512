"""A block of a stream: samples that are taken in together, and what is known after them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..entries.observed import ObservedMatrix
from ..linalg.grassmann import basis
from ..linalg.scale import robust_scale
from ..robust.regression import EFFICIENT, EXPLAINED, Lines
from ..solve import solve
from ..solvers import Ladder
from ..solvers.start import left_singular_vectors
from ..sweeps import Float, Robust, open_sweep
from .sums import Learnt, Sums

__all__ = ["Block", "begin", "follow"]

TURNS = 60  # of the two regressions in a block, at most
SETTLED = 0.98  # they go on while the scale of the residuals falls by this factor in a turn,
PATIENCE = 5  # or in so many turns, as long as the block is explained badly
PACE = 0.8  # c / its previous value, at least; a scale that collapses throws inliers away
EXACT = 1e-8  # of the unit: residuals of this size need not become smaller
SHRINK = 0.01  # of samples that do not determine their coefficients
REMEMBERED = 9  # blocks whose noise tells what is usual
DOUBT = 1.5  # times the usual noise: a block with more is explained badly
ATTEMPTS = 2  # of the solve; what it misses a rival will find
POOR = 0.5  # of the usual share of entries that are explained: a feature with less is looked at again,
GOOD = 0.9  # and changed if it then has more than this
LOOK = 1e-4  # of the unit: an entry this close is explained, for that
NOTHING = 1e-7  # of the largest singular value, or of the unit: a direction with less is not there


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
