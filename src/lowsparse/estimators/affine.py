"""Robust fit of an affine subspace to samples with missing entries and gross errors: X = 1 mean + scores components.

For a low-rank fit, a level that all samples share is one more component, usually the largest. Subtracting the medians
of the features does not remove it: due to their error they are not in the affine subspace, so the difference still has
one rank more. Here mean and components are fitted together, on a block of rows and columns that determines them:

1. the medians are subtracted, and a subspace is fitted roughly. It has the rank of the components, so that outliers
   find no spare component, and the error of the medians is noise to it;
2. the features are regressed robustly on the ones and the scores, which gives the mean and the components; then the
   samples, minus that mean, on the components, which gives the scores; and so on until both converge. This is the
   alternating robust regression of the default method, with a column of U held fixed;
3. all rows and columns follow from the block by one regression each.

That this finds the right centre is measured, not proved. So there are several rough fits, one of them with a spare
component for the error of the medians, and the one that leads to the least noise is taken (`_AffineBlock.search`).

Of the points of the affine subspace, the mean is the spatial median of the samples that are well explained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..diagnosis import largest_rank
from ..entries.protocol import PartialMatrix, PerEntry
from ..entries.statistics import by_columns, column_medians, shorths
from ..linalg.grassmann import basis
from ..linalg.scale import CONSISTENT, robust_scale
from ..robust.regression import EFFICIENT, SMALLEST, LineRegression, poorly_explained
from ..robust.sketch import Sketch, draw
from ..solve import solve
from ..solvers import Ladder
from ..sweeps import Float, host_backend, min_support
from .subspace import principal_axes

BLOCK_FACTOR = 4.0  # size of the block relative to what determines the affine subspace
ROUGH = Ladder(attempts=2, searches=1, rank_is_limit=True)  # what it misses another rough fit may find
FIRST_C = 2.0  # first c relative to the c for the residuals, which contain the error of the medians
PACE = 0.3  # least c relative to its previous value
MAX_PASSES = 100  # over the block
CAREFUL = 3  # first passes, which reweight twice
# Rough fits about the last mean: at most ROUNDS, where the noise, in units, exceeds NOISY and falls by the factor LESS.
ROUNDS, NOISY, LESS = 3, 0.15, 0.9
CLOSE = 0.5  # size of the levels, in units, below which zero is tried as the centre
REFITS, PATIENCE = 3, 30  # refits of poorly explained lines, when passes have converged or after as many passes
SETTLED = 0.02  # change of the affine subspace, relative to the error due to noise, in the last pass
ROUNDING = 1e-9  # of a mean, in units, or in distances of samples from it
NEGLIGIBLE = 1e-7  # size of a component, relative to the largest, that is left out
WORSE = 2.0  # largest noise of a fit from a given start, relative to that of the start


@dataclass(frozen=True)
class AffineFit:
    """X = 1 mean + scores components, up to noise and outliers."""

    mean: Float  # d
    scores: Float  # n x k
    components: Float  # k x d, orthonormal rows; fewer than asked for if that is exact
    noise: float  # robust scale of the residuals
    n_iter: int = 0  # passes over the block, or more


def fit_affine(
    M: PartialMatrix,
    rank: int | str,
    *,
    max_rank: int | None = None,
    max_iter: int = 500,
    tol: float = 1e-8,
    backend: str = "auto",
    start: AffineFit | None = None,
    thorough: bool = False,
) -> AffineFit:
    """Fit an affine subspace of dimension `rank` (or "auto") to the rows of M, in memory or in pieces.

    A `start`, with scores of the rows of M, replaces the rough fit unless the fit from there is much noisier. A
    `thorough` fit begins with a full solve of one rank more, whose last component takes up the error of the levels;
    these are not the medians then, which are biased if all errors have the same sign.
    """
    options = _Options(max_iter, tol, host_backend(backend))
    if start is not None:
        block = _AffineBlock(M, start.mean, len(start.components), options)
        fit = block.fit(block.restrict(start))
        if fit.noise <= WORSE * start.noise + SMALLEST * block.unit:
            return block.extend(fit)
    bound = rank if isinstance(rank, int) else largest_rank(M) if max_rank is None else max_rank
    levels = by_columns(M, shorths if thorough else column_medians)
    best = _AffineBlock(M, levels, bound, options).search(rank, thorough=thorough)
    return best.block.extend(best)


def spatial_median(points: Float) -> Float:
    """The point with the smallest sum of distances to the rows of `points`, by Weiszfeld's iteration."""
    centre = np.median(points, axis=0)
    unit = float(np.median(np.linalg.norm(points - centre, axis=1))) or 1.0
    for _ in range(50):
        weight = 1.0 / np.maximum(np.linalg.norm(points - centre, axis=1), 1e-9 * unit)
        last, centre = centre, weight @ points / weight.sum()
        if np.linalg.norm(centre - last) <= ROUNDING * unit:
            break
    return np.asarray(centre, dtype=np.float64)


@dataclass(frozen=True)
class _Options:
    max_iter: int
    tol: float
    backend: str


@dataclass(frozen=True)
class _Affine:
    """L = B Cᵀ = 1 meanᵀ + B₁ C₁ᵀ: B is orthonormal, its first column is constant, and B₁ and C₁ are the others."""

    B: Float
    C: Float

    @classmethod
    def of(cls, mean: Float, scores: Float, axes: Float) -> _Affine:
        """1 meanᵀ + scores axesᵀ."""
        ones = np.ones(len(scores))
        B = np.linalg.qr(np.column_stack([ones, scores]))[0]
        return cls(B, np.outer(mean, ones @ B) + axes @ (scores.T @ B))

    @property
    def mean(self) -> Float:
        """The point where the scores are zero."""
        return np.asarray(self.C[:, 0] * self.B[0, 0])

    @property
    def size(self) -> float:
        """The root mean square of the distances of the rows from the mean."""
        return float(np.linalg.norm(self.C[:, 1:])) / math.sqrt(len(self.B))

    @property
    def is_point(self) -> bool:
        """Whether it has dimension 0, as most samples are the same."""
        return int(self.B.shape[1]) == 1

    def principal(self) -> tuple[Float, Float]:
        """Scores and orthonormal axes."""
        Q, R = basis(self.C[:, 1:])
        return self.B[:, 1:] @ R.T, Q

    def distance(self, other: _Affine) -> float:
        """The distance of the affine subspaces where the samples are, relative to the spread of these."""
        Q, P = basis(self.C[:, 1:])[0], basis(other.C[:, 1:])[0]
        step = other.mean - self.mean
        off, tilt = np.linalg.norm(step - Q @ (Q.T @ step)), np.linalg.norm(P - Q @ (Q.T @ P))
        return math.hypot(float(off) / self.size if self.size else math.inf, float(tilt))


@dataclass(frozen=True)
class _Candidate:
    block: _AffineBlock
    affine: _Affine
    noise: float  # robust scale of the residuals
    passes: int

    def plus_passes(self, passes: int) -> _Candidate:
        return replace(self, passes=self.passes + passes)


class _AffineBlock:
    """Rows and columns that determine the affine subspace, minus some levels, and the matrix they are from."""

    def __init__(
        self, M: PartialMatrix, levels: Float, bound: int, options: _Options, sketch: Sketch | None = None
    ) -> None:
        self.M, self.levels, self.bound, self.options = M, levels, bound, options
        if sketch is None:  # no entries are held out
            rng = np.random.default_rng(0x616666)
            sketch = draw(M, bound + 1, rng, min_entries=M.nnz + 1, block_factor=BLOCK_FACTOR)
        self.sketch = sketch
        self.A = subtract(self.sketch.M, self.sketch.M.spread_over_columns(levels[self.sketch.columns]))
        self.transposed = self.A.T
        self.unit = self.A.median_magnitude() or 1.0

    def search(self, rank: int | str, *, thorough: bool) -> _Candidate:
        """The fit with the least noise from several rough starts, or the first with hardly any.

        They start at the levels, without and with a spare component, and at zero if that is close. Where much noise is
        left, they start again at the mean that was found, as long as that leads to less noise.
        """
        if thorough:
            return self._fit_from_rough(rank, 1, Ladder(searches=1, rank_is_limit=True))
        best = self._best_of_two(rank)
        if best.noise > self.options.tol * self.unit and np.median(np.abs(self.levels)) < CLOSE * self.unit:
            zero = self._with_levels(np.zeros_like(self.levels))
            best = _better(best, zero._fit_from_rough(rank, 0, ROUGH))
        for _ in range(ROUNDS):
            if best.noise <= NOISY * self.unit or best.affine.is_point:
                break
            block = best.block._at_mean_of(best)
            other = block._fit_from_rough(rank, 0, ROUGH)
            if other.noise >= LESS * best.noise:
                return best.plus_passes(other.passes)
            best = block._best_of_two(rank, other).plus_passes(best.passes)
        return best

    def _best_of_two(self, rank: int | str, first: _Candidate | None = None) -> _Candidate:
        """Without a spare component, as the `first` is, or with one, if the rank is given and that has less noise."""
        first = first or self._fit_from_rough(rank, 0, ROUGH)
        if isinstance(rank, str) or first.noise <= self.options.tol * self.unit:
            return first
        return _better(first, self._fit_from_rough(rank, 1, ROUGH))

    def _fit_from_rough(self, rank: int | str, spare: int, method: Ladder) -> _Candidate:
        """The fit from a rough one, which has this number of spare components."""
        most = min(self.bound + spare, *self.A.shape)
        rough = solve(
            self.A,
            rank if isinstance(rank, str) else most,
            max_rank=most if isinstance(rank, str) else None,
            method=method,
            max_iter=self.options.max_iter,
            tol=self.options.tol,
            backend=self.options.backend,
        )
        scores, _, components = principal_axes(rough.L)
        return self.fit(self._affine(scores, components, rough.noise)).plus_passes(rough.n_iter)

    def _with_levels(self, levels: Float) -> _AffineBlock:
        """The same rows and columns minus other levels."""
        return _AffineBlock(self.M, levels, self.bound, self.options, self.sketch)

    def _at_mean_of(self, fit: _Candidate) -> _AffineBlock:
        """The block with its levels at the mean of a fit."""
        scores, axes = fit.affine.principal()
        good = _well_explained(self._samples(fit.affine.mean), axes, scores, self._loss_scale(fit.noise))
        levels = self.levels.copy()
        levels[self.sketch.columns] += fit.affine.mean + axes @ spatial_median(scores[good])
        return self._with_levels(levels)

    def _affine(self, scores: Float, components: Float, noise: float) -> _Affine:
        """Scores and components of the block as an affine subspace of dimension at most `bound`.

        A spare component may be the error of the levels, which is the same for all rows.
        """
        samples = self._lines(self.transposed, learning=False)
        good = _well_explained(samples, components.T, scores, self._loss_scale(noise))
        centre = spatial_median(scores[good])
        _, sizes, right = np.linalg.svd(scores[good] - centre, full_matrices=False)
        axes = right[: self.bound][sizes[: self.bound] > NEGLIGIBLE * max(sizes[0], self.unit)].T
        return _Affine.of(centre @ components, (scores - centre) @ axes, components.T @ axes)

    def restrict(self, fit: AffineFit) -> _Affine:
        """The part of a fit in this block, whose levels are the mean of the fit."""
        return self._affine(fit.scores[self.sketch.rows], fit.components[:, self.sketch.columns], fit.noise)

    def extend(self, fit: _Candidate) -> AffineFit:
        """Extend a fit to all rows and columns, and move the mean to the spatial median of the samples."""
        affine, c = fit.affine, self._loss_scale(fit.noise)
        if affine.is_point:
            mean = self.levels.copy()
            mean[self.sketch.columns] += affine.mean
            return AffineFit(mean, np.zeros((self.M.shape[0], 0)), np.zeros((0, mean.size)), fit.noise)
        mean, (scores, axes) = affine.mean, affine.principal()
        (n, d), rows, columns = self.M.shape, self.sketch.rows, self.sketch.columns
        strip = self.transposed
        if rows.size < n:
            strip = subtract(self.sketch.strip, self.sketch.strip.spread_over_columns(self.levels[columns])).T
        samples = self._lines(subtract(strip, strip.spread_over_rows(mean)), learning=False)
        if rows.size < n:
            scores, _ = samples.complete(axes, rows, scores, c, n_reweight=7)
        good = _well_explained(samples, axes, scores, c)
        if (rows.size, columns.size) != (n, d):
            M = strip.T if columns.size == d else subtract(self.M, self.M.spread_over_columns(self.levels))
            affine, features = _Affine.of(mean, scores, axes), self._lines(M, learning=False)
            C, _ = features.complete(affine.B, columns, affine.C, c, n_reweight=5)
            affine = _Affine(affine.B, features.refit(affine.B, C, c, 1).V)
            mean, (scores, axes) = affine.mean, affine.principal()
        centre = spatial_median(scores[good])
        mean = self.levels + mean + axes @ centre
        mean[np.abs(mean) <= ROUNDING * self.unit] = 0.0  # so that zeros minus the mean stay zeros
        return AffineFit(mean, scores - centre, axes.T, fit.noise, fit.passes)

    def fit(self, affine: _Affine) -> _Candidate:
        """Run passes over the block until the affine subspace converges."""
        features = self._lines(self.A, learning=True)
        noise = robust_scale(features.sweep.residual(affine.B, affine.C))
        c, passes, since, refits = FIRST_C * self._loss_scale(noise), 0, 0, 0
        if affine.is_point:
            share = features.explained_share(affine.B, affine.C, c)
            C, _, _ = features.refit_poorly_explained(affine.B, affine.C, c, share)
            return _Candidate(self, _Affine(affine.B, C), noise, 0)
        overdetermined = affine.B.shape[1] <= min(self.A.shape)
        while passes < min(MAX_PASSES, self.options.max_iter) and overdetermined:
            previous = affine
            affine, noise = self._pass(features, affine, c, 2 if passes < CAREFUL else 1)
            passes, since = passes + 1, since + 1
            settled = c <= 1.5 * self._loss_scale(noise) and previous.distance(affine) <= self._tolerance(affine, noise)
            c = max(self._loss_scale(noise), PACE * c)
            n_improved = 0
            if refits < REFITS and (settled or since == PATIENCE):
                affine, n_improved = self._refit_poorly_explained(features, affine, c)
                refits, since = refits + 1, 0
            if n_improved:
                c = max(10 * c, 1e-3 * self.unit) if noise < SMALLEST * self.unit else 2 * c
            elif settled:
                break
        return _Candidate(self, affine, noise, passes)

    def _pass(self, features: LineRegression, affine: _Affine, c: float, n_reweight: int) -> tuple[_Affine, float]:
        """Regress the features, then the samples; return the fit, and the scale of the residuals in between."""
        half = _Affine(affine.B, features.refit(affine.B, affine.C, c, n_reweight).V)
        scores, axes = half.principal()
        fitted = self._samples(half.mean).refit(axes, scores, c, n_reweight)
        return _Affine.of(half.mean, fitted.V, axes), CONSISTENT * fitted.magnitudes.quantile(0.5)

    def _refit_poorly_explained(self, features: LineRegression, affine: _Affine, c: float) -> tuple[_Affine, int]:
        """Regress features and samples again that explain few of their entries; how many were improved."""
        share = features.explained_share(affine.B, affine.C, c)
        C, _, n_features = features.refit_poorly_explained(affine.B, affine.C, c, share)
        affine = _Affine(affine.B, C)
        scores, axes = affine.principal()
        samples = self._samples(affine.mean)
        share = samples.explained_share(axes, scores, c)
        scores, _, n_samples = samples.refit_poorly_explained(axes, scores, c, share)
        return _Affine.of(affine.mean, scores, axes) if n_samples else affine, n_features + n_samples

    def _tolerance(self, affine: _Affine, noise: float) -> float:
        """A distance of affine subspaces that is small compared with the error due to noise, or with `tol`."""
        (n, d), k = self.A.shape, affine.B.shape[1] - 1
        error = noise * math.sqrt(d * (k + 1) * (n + d - k) / self.A.nnz) / affine.size if affine.size else 0.0
        return max(SETTLED * error, 1e-3 * self.options.tol, 1e-13)

    def _loss_scale(self, noise: float) -> float:
        """c of the Cauchy loss."""
        return max(EFFICIENT * noise, SMALLEST * self.unit)

    def _lines(self, M: PartialMatrix, *, learning: bool) -> LineRegression:
        return LineRegression(M, M.open_sweep(self.options.backend), self.unit, learning=learning)

    def _samples(self, mean: Float) -> LineRegression:
        """The samples of the block minus a mean."""
        return self._lines(subtract(self.transposed, self.transposed.spread_over_rows(mean)), learning=True)


def _better(one: _Candidate, other: _Candidate) -> _Candidate:
    """The fit with less noise, with the passes of both."""
    return other.plus_passes(one.passes) if other.noise < one.noise else one.plus_passes(other.passes)


def _well_explained(samples: LineRegression, axes: Float, scores: Float, c: float) -> NDArray[np.bool_]:
    """Which samples have enough entries and are explained as well as is usual; all if none is."""
    share = samples.explained_share(axes, scores, c)
    good = samples.M.column_counts >= min_support(axes.shape[1])
    good[poorly_explained(share, 0.5)] = False
    return good if good.any() else ~good


def subtract(M: PartialMatrix, numbers: PerEntry) -> PartialMatrix:
    """M minus a number for each entry; these are overwritten in memory, which takes half of the time."""
    rest = M.values - numbers if M.in_pieces else np.subtract(M.values, numbers, out=numbers)
    return M.with_values(rest.astype(M.dtype, copy=False))
