"""A block of a stream: samples that are processed together, and the estimate after them."""

import math
from dataclasses import replace

import numpy as np

from ..entries.observed import ObservedMatrix
from ..linalg.grassmann import basis
from ..linalg.scale import robust_scale
from ..robust.regression import EFFICIENT, EXPLAINED, SHRINK, LineRegression, Prior
from ..solve import solve
from ..solvers import Ladder
from ..solvers.start import left_singular_vectors
from ..sweeps import Float, Robust
from ..sweeps.losses import Kind, Loss
from .sums import Estimate, Sums

MAX_ITER = 60  # of the two regressions in a block
FALLING = 0.98  # they go on while the scale of the residuals falls by this factor in an iteration,
PATIENCE = 5  # or in so many, as long as the block is poorly explained
PACE = 0.8  # c / its previous value, at least; a scale that collapses throws inliers away
EXACT = 1e-8  # of the unit: residuals of this size need not become smaller
REMEMBERED = 9  # blocks whose noise tells what is usual
DOUBT = 1.5  # times the usual noise: a block with more is poorly explained
ATTEMPTS = 2  # of the solve; what it misses a rival will find
POOR = 0.5  # of the usual share of entries that are explained: a feature with less is fitted from zero,
GOOD = 0.9  # and changed if it then has more than this
NEAR = 1e-4  # of the unit: an entry this close is explained, for that
NOTHING = 1e-7  # of the largest singular value, or of the unit: a direction with less is not there


class SampleBlock:
    """Samples that are processed together, with the weight of each (discount) and of the past (fade).

    A block that is not `complete` is preliminary: it is too small to estimate the noise or to raise doubts.
    """

    def __init__(
        self, M: ObservedMatrix, discount: Float, fade: float, *, complete: bool, unit: float, backend: str
    ) -> None:
        self.M, self.discount, self.fade, self.complete = M, discount, fade, complete
        self.sweep = M.open_sweep(backend)
        self.sample_of_entry = M.columns_of_entries()
        self.unit = float(np.median(np.abs(M.values[M.values != 0.0]))) if complete else unit
        self.close = EXPLAINED * self.unit  # noise below this counts as none

    def scale(self, e: Float) -> float:
        """The robust scale of residuals, from a sample if they are many."""
        return robust_scale(e[:: max(1, e.size // 20_000)])

    def loss_scale(self, e: Float) -> float:
        """c for these residuals."""
        return max(EFFICIENT * self.scale(e), self.close)

    def noise(self, e: Float, r: int) -> float:
        """σ, corrected for the r coefficients that were fitted to each sample."""
        inliers = float(np.sum(Loss(Kind.CAUCHY, self.loss_scale(e)).weight(e)))
        return self.scale(e) / math.sqrt(max(1 - r * self.M.shape[1] / inliers, 0.1))

    def is_poorly_explained(self, previous: Estimate, current: Estimate) -> bool:
        """Whether `current` leaves far more noise in this block than was usual before."""
        return current.latest > DOUBT * max(previous.noise, self.close)

    def regress(self, U: Float, V: Float | None, spread: Float, options: Robust) -> Float:
        """Regress the samples on U robustly, from V if given, with the prior v ~ N(0, spread + σ² I)."""
        prior = Prior.from_covariance(spread, options.c / EFFICIENT)
        return prior.regress(self.sweep, U, V, replace(options, shrink=SHRINK)).V

    def sums(self, V: Float, e: Float, c: float) -> Sums:
        """The sums of these samples, given their coefficients V (n x r) and residuals e; the score is 0."""
        (m, n), r = self.M.shape, V.shape[1]
        w = Loss(Kind.CAUCHY, c).weight(e)
        omega = self.discount * np.bincount(self.sample_of_entry, weights=w, minlength=n) / self.M.column_counts
        w *= self.discount[self.sample_of_entry]
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
        """The score of an estimate that leaves this noise."""
        return float(np.sum(self.discount)) * max(math.log(self.unit / max(sigma, self.close)), 0.0)


def fit_first(block: SampleBlock, rank: int) -> Estimate | None:
    """The estimate from this block alone; None if it is L = 0."""
    rank = min(rank, block.M.shape[1])
    result = solve(
        block.M, rank, method=Ladder(attempts=ATTEMPTS, searches=1, rank_is_limit=True), backend=block.sweep.name
    )
    sizes, axes = np.linalg.eigh(result.L.V @ result.L.V.T)
    if not sizes[-1] > (NOTHING * block.unit) ** 2:
        return None
    axes = axes[:, sizes > NOTHING**2 * sizes[-1]]
    fit = _BlockFit(block, result.L.U @ axes, result.L.V.T @ axes, Sums.zero(block.M.shape[0], axes.shape[1]))
    fit.tame_coefficients()
    sigma = result.held_out or result.noise
    return fit.estimate(sigma, (sigma,))


def update(previous: Estimate, block: SampleBlock, rank: int) -> Estimate:
    """The estimate after this block."""
    usual = max(previous.noise, block.close)
    past = previous.sums.scaled(block.fade)
    options = Robust(c=EFFICIENT * usual, first_c=6 * block.unit, n_reweight=10)
    V = block.regress(previous.U, None, past.spread, options)
    fit = _BlockFit(block, previous.U, V, past, None if block.complete else EFFICIENT * usual)
    fit.iterate(usual)
    if not block.complete:
        return fit.estimate(previous.noise, previous.recent)
    while fit.U.shape[1] < rank and block.scale(fit.e) > DOUBT * usual:
        fit.add_direction()
        fit.iterate(usual)
    if fit.refit_features():
        fit.iterate(usual)
    sigma = block.noise(fit.e, fit.U.shape[1])
    return fit.estimate(sigma, (*previous.recent, sigma))


class _BlockFit:
    """U, the coefficients V of a block's samples, their residuals e, and the sums of the past in the basis U.

    c follows the residuals unless it is given.
    """

    def __init__(self, block: SampleBlock, U: Float, V: Float, past: Sums, c: float | None = None) -> None:
        self.block, self.U, self.V, self.past = block, U, V, past
        self.e = block.sweep.residual(U, V)
        self.fixed_c = c is not None
        self.c = block.loss_scale(self.e) if c is None else c

    def sums(self) -> Sums:
        """Of the past and the block."""
        return self.past + self.block.sums(self.V, self.e, self.c)

    def estimate(self, sigma: float, recent: tuple[float, ...]) -> Estimate:
        """The result in principal axes; σ is the noise of the block, `recent` that of the last ones."""
        if not self.fixed_c:
            self.c = self.block.loss_scale(self.e)
        sums = self.sums()
        sums = replace(sums, score=sums.score + self.block.score(sigma))
        axes = np.linalg.eigh(sums.energy)[1][:, ::-1]
        return Estimate(self.U @ axes, sums.transformed(axes.T), self.block.unit, recent[-REMEMBERED:])

    def iterate(self, usual: float) -> None:
        """Alternate both regressions until the residuals stop falling, with more patience above the usual noise."""
        scales: list[float] = []
        for _ in range(MAX_ITER):
            sums = self.sums()
            self.U, R = basis(sums.solve(self.U))
            self.past = self.past.transformed(R)
            self._regress(self.V @ R.T, sums.transformed(R).spread)
            if not self.fixed_c:
                self.c = max(self.block.loss_scale(self.e), PACE * self.c)
            scales.append(self.block.scale(self.e))
            patience = PATIENCE if self.block.complete and scales[-1] > DOUBT * usual else 1
            falling = len(scales) <= patience or scales[-1] < FALLING * scales[-1 - patience]
            if scales[-1] <= EXACT * self.block.unit or not falling:
                break

    def _regress(self, V: Float, spread: Float) -> None:
        self.V = self.block.regress(self.U, V, spread, Robust(c=self.c))
        self.e = self.block.sweep.residual(self.U, self.V)

    def tame_coefficients(self) -> None:
        """Shrink coefficients that few entries determine by a prior from which such coefficients are kept out.

        A sample counts for the prior as if v had at most twice the median length.
        """
        for _ in range(3):
            squares = np.einsum("nr,nr->n", self.V, self.V)
            some = squares[squares > self.block.close**2]
            bound = 4 * float(np.median(some)) if some.size else 1.0
            counts = np.minimum(1.0, bound / np.maximum(squares, bound))
            self._regress(self.V, (self.V * counts[:, None]).T @ self.V / len(self.V))

    def add_direction(self) -> None:
        """Add the leading direction of the residuals, clipped at their scale."""
        M, bound = self.block.M, self.c / EFFICIENT
        clipped = M.with_values(np.clip(-self.e, -bound, bound)).open_sweep(self.block.sweep.host)
        u = left_singular_vectors(clipped, len(self.U), 1, np.random.default_rng(0x67726F77))[0]
        U = np.hstack([self.U, u - self.U @ (self.U.T @ u)])
        self.U, R = basis(U)
        self.past = self.past.padded(U.shape[1]).transformed(R)
        V = np.hstack([self.V, np.zeros((len(self.V), 1))]) @ R.T
        self._regress(V, len(U) * self.block.unit**2 * np.eye(U.shape[1]))  # a sample is as long as √m units

    def refit_features(self) -> bool:
        """Regress from zero the features that explain few of their entries; whether this has improved any."""
        block, c = self.block, max(self.c, NEAR * self.block.unit)
        share, usual = self._explained_share(c)
        if not (share < POOR * usual).any():
            return False
        M = block.M.T
        features = LineRegression(M, M.open_sweep(block.sweep.host), block.unit, learning=True)
        Q, R = basis(self.V)
        C = self.U @ R.T
        new = features.refit_poorly_explained(Q, C, c, share)[0]
        new_share = features.explained_share(Q, new, c)
        better = np.flatnonzero((new != C).any(axis=1) & (new_share >= GOOD * usual))
        self.U = self.U.copy()
        self.U[better] += (new - C)[better] @ np.linalg.pinv(R, rcond=0.01).T
        self.past = self.past.without(better)
        self.e = block.sweep.residual(self.U, self.V)
        return bool(better.size)

    def _explained_share(self, c: float) -> tuple[Float, float]:
        """The share of its entries that a feature explains, and the usual share; 1 if it is not to be refitted.

        Features are refitted that had hardly been seen before, or that have changed. The latter lose their past, so
        the block must show all directions.
        """
        counts = self.block.M.row_counts
        near = np.bincount(self.block.M.rows[np.abs(self.e) <= 3 * c], minlength=len(counts))
        share = near / np.maximum(counts, 1)
        usual = float(np.median(share[counts > 0]))
        share[counts == 0] = 1.0
        sizes = np.linalg.svd(self.V, compute_uv=False)
        if sizes[-1] < max(3 * c / EFFICIENT * math.sqrt(len(self.V)), 0.01 * sizes[0]):
            past = np.einsum("mkk->m", self.past.A)
            share[past >= 0.1 * np.median(past)] = 1.0
        return share, usual
