"""Robust fit of an affine subspace to samples with holes and gross errors: X = 1 mean + scores components + outliers.

A level that all samples share is one more component to a fit of low rank, usually the largest. Subtracting the medians
of the features first does not remove it: they are not a point of the affine subspace, but off it by their own error, so
the rest still has a rank of one more. Here mean and components are fitted at once, on a block of rows and columns that
determines them:

1. the medians are subtracted, and a subspace is fitted roughly. The error of the medians is noise to it, and the rank
   is that of the components: no component is left over for outliers to take;
2. the features are regressed robustly on the ones and the scores, which gives the mean and the components; then the
   samples, minus that mean, on the components, which gives the scores; and so on until both converge. That is the
   alternating robust regression of the default method, with a column of U held fixed;
3. all rows and columns follow from the block by one regression each.

That this finds the right centre is measured, not proved. So there are several rough fits, also one with a spare
component for the error of the medians, and the one that leads to least noise is taken (`_AffineBlock.search`).

Any point of the affine subspace would do as the mean. It is the one at which the scores of the samples that are
explained have their spatial median.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..diagnosis import largest_rank
from ..entries.observed import ObservedMatrix
from ..entries.statistics import by_columns, column_medians
from ..linalg.grassmann import basis
from ..linalg.scale import CONSISTENT, robust_scale
from ..robust.regression import EFFICIENT, SMALLEST, LineRegression, poorly_explained
from ..robust.sketch import Sketch, draw
from ..solve import solve
from ..solvers import Ladder
from ..sweeps import Float, enough, host_backend
from .subspace import principal_axes

__all__ = ["AffineFit", "fit_affine", "spatial_median"]

GENEROUS = 4.0  # size of the block, as a multiple of what determines the affine subspace
ATTEMPTS = 2  # of a rough fit
WIDER = 2.0  # c at first, as a multiple of what the residuals ask for: they contain the error of the medians
PACE = 0.3  # c / its previous value, at least
PASSES = 100  # over the block, at most
CAREFUL = 3  # first passes, which reweight twice
ROUNDS = 3  # of rough fits about the mean that was found before, at most,
MUCH = 0.15  # where so much noise is left, in units,
LESS = 0.9  # and as long as it falls by this factor
CLOSE = 0.5  # size of the levels, in units, from which on zero is not tried as the centre
REFITS = 3  # of poorly explained rows and columns, at most, when the passes have converged,
PATIENCE = 30  # or after so many
RESTING = 0.02  # of the error due to noise: a pass that changes the affine subspace by less is the last
ROUNDING = 1e-9  # of a mean, in units
NOTHING = 1e-7  # size of a component against the largest that counts as none
WORSE = 2.0  # noise of a fit with a given start, against that of the start, at most


@dataclass(frozen=True)
class AffineFit:
    """X = 1 mean + scores components, up to noise and outliers."""

    mean: Float  # d
    scores: Float  # n x k
    components: Float  # k x d, orthonormal rows; fewer than asked for if there is nothing for them to explain
    noise: float  # the robust scale of the residuals
    n_iter: int = 0  # passes over a block or more


def fit_affine(
    M: Any,
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

    A `start`, with scores of the rows of M, replaces the rough fit unless it turns out to leave more noise than it
    says. A `thorough` fit begins with a full solve of one rank more, whose last component takes up the error of the
    levels; and these are not the medians, which follow errors that lie all on one side.

    >>> rng = np.random.default_rng(1)
    >>> X = 100.0 + rng.standard_normal((80, 2)) @ rng.standard_normal((2, 15))
    >>> X[rng.random(X.shape) < 0.1] = 0.0
    >>> fit = fit_affine(ObservedMatrix.from_dense(X), 2)
    >>> bool(np.isclose(X, fit.mean + fit.scores @ fit.components).mean() > 0.85)
    True
    """
    options = _Options(max_iter, tol, backend if backend in ("native", "numpy") else "auto")
    if start is not None:
        block = _AffineBlock(M, start.mean, len(start.components), options)
        fit = block.fit(block.restrict(start))
        if fit.noise <= WORSE * start.noise + SMALLEST * block.unit:
            return block.extend(fit)
    bound = rank if isinstance(rank, int) else largest_rank(M) if max_rank is None else max_rank
    levels = by_columns(M, _shortest_halves if thorough else column_medians)
    block, fit = _AffineBlock(M, levels, bound, options).search(rank, bound, thorough=thorough)
    return block.extend(fit)


def spatial_median(points: Float, max_iter: int = 50) -> Float:
    """The point with the smallest sum of distances to the rows of `points`, by Weiszfeld's iteration.

    >>> spatial_median(np.array([[0.0, 0.0], [0.0, 2.0], [2.0, 0.0], [0.0, 0.0], [90.0, 0.0]])).round(3).tolist()
    [0.0, 0.0]
    """
    at = np.median(points, axis=0)
    unit = float(np.median(np.linalg.norm(points - at, axis=1))) or 1.0
    for _ in range(max_iter):
        near = 1.0 / np.maximum(np.linalg.norm(points - at, axis=1), 1e-9 * unit)
        at = near @ points / near.sum()
    return np.asarray(at, dtype=np.float64)


def _shortest_halves(M: ObservedMatrix) -> Float:
    """The mean of the shortest interval that holds half of a column's entries; 0 if there are none."""
    found = np.zeros(M.shape[1])
    for j in np.flatnonzero(M.column_counts):
        x = np.sort(M.values[M.indptr[j] : M.indptr[j + 1]].astype(np.float64))
        half = x.size // 2 + 1
        first = int(np.argmin(x[half - 1 :] - x[: x.size - half + 1]))
        found[j] = x[first : first + half].mean()
    return found


@dataclass(frozen=True)
class _Options:
    max_iter: int
    tol: float
    backend: str


@dataclass(frozen=True)
class _Affine:
    """L = B Cᵀ; B (orthonormal) has a row for each row of the data and a constant first column, C one for each column.

    So L = 1 meanᵀ + B₁ C₁ᵀ, where B₁ and C₁ are without the first columns.
    """

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
        """Whether it has no direction: most samples are the same."""
        return int(self.B.shape[1]) == 1

    def principal(self) -> tuple[Float, Float]:
        """Scores and orthonormal axes."""
        Q, R = basis(self.C[:, 1:])
        return self.B[:, 1:] @ R.T, Q

    def distance(self, other: _Affine) -> float:
        """How far the affine subspaces are apart where the samples are, relative to the spread of these."""
        Q, P = basis(self.C[:, 1:])[0], basis(other.C[:, 1:])[0]
        step = other.mean - self.mean
        off, tilt = np.linalg.norm(step - Q @ (Q.T @ step)), np.linalg.norm(P - Q @ (Q.T @ P))
        return math.hypot(float(off) / self.size if self.size else math.inf, float(tilt))


@dataclass(frozen=True)
class _BlockFit:
    affine: _Affine
    noise: float  # the robust scale of the residuals
    passes: int

    def plus_passes(self, passes: int) -> _BlockFit:
        return replace(self, passes=self.passes + passes)


class _AffineBlock:
    """Rows and columns that determine the affine subspace, minus some levels, and the matrix they are from."""

    def __init__(self, M: Any, levels: Float, rank: int, options: _Options, sketch: Sketch | None = None) -> None:
        self.M, self.levels, self.rank, self.options = M, levels, rank, options
        rng = np.random.default_rng(0x616666)  # at_least: no entries are held out
        self.sketch = draw(M, rank + 1, rng, at_least=M.nnz + 1, generous=GENEROUS) if sketch is None else sketch
        self.A = _subtract(self.sketch.M, self.sketch.M.spread_over_columns(levels[self.sketch.columns]))
        self.transposed = self.A.T
        self.unit = self.A.median_magnitude() or 1.0

    def search(self, rank: int | str, bound: int, *, thorough: bool) -> tuple[_AffineBlock, _BlockFit]:
        """The fit with least noise of several rough starts, or the first with hardly any.

        They start at the levels, without and with a spare component, and at zero if that is not far. Where much noise
        is left, they start again at the mean that was found, as long as that leads to less noise.
        """
        if thorough:
            return self, self._try(rank, bound, 1, Ladder())
        block, best = self, self._best_of_two(rank, bound)
        if best.noise > self.options.tol * self.unit and np.median(np.abs(self.levels)) < CLOSE * self.unit:
            zero = self._with_levels(np.zeros_like(self.levels))
            other = zero._try(rank, bound, 0, Ladder(attempts=ATTEMPTS))
            block, best = _better((self, best), (zero, other))
        for _ in range(ROUNDS):
            if best.noise <= MUCH * self.unit or best.affine.is_point:
                break
            moved = block._with_levels(block._levels_at(best))
            other = moved._best_of_two(rank, bound)
            if other.noise >= LESS * best.noise:
                return block, best.plus_passes(other.passes)
            block, best = moved, other.plus_passes(best.passes)
        return block, best

    def _best_of_two(self, rank: int | str, bound: int) -> _BlockFit:
        """Without a spare component, or with one, if the rank is given and that leads to less noise."""
        first = self._try(rank, bound, 0, Ladder(attempts=ATTEMPTS))
        if isinstance(rank, str) or first.noise <= self.options.tol * self.unit:
            return first
        return _better((self, first), (self, self._try(rank, bound, 1, Ladder(attempts=ATTEMPTS))))[1]

    def _try(self, rank: int | str, bound: int, spare: int, method: Ladder) -> _BlockFit:
        """The fit from a rough one that has so many spare components."""
        most = min(bound + spare, *self.A.shape)
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
        return self.fit(self._affine(scores, components, bound, rough.noise)).plus_passes(rough.n_iter)

    def _with_levels(self, levels: Float) -> _AffineBlock:
        """The same rows and columns minus other levels."""
        return _AffineBlock(self.M, levels, self.rank, self.options, self.sketch)

    def _levels_at(self, fit: _BlockFit) -> Float:
        """The levels, moved to the mean that was found where it is known."""
        scores, axes = fit.affine.principal()
        good = _well_explained(self._samples(fit.affine.mean), axes, scores, self._loss_scale(fit.noise))
        levels = self.levels.copy()
        levels[self.sketch.columns] += fit.affine.mean + axes @ spatial_median(scores[good])
        return levels

    def _affine(self, scores: Float, components: Float, bound: int, noise: float) -> _Affine:
        """Scores and components of the block as an affine subspace of dimension at most `bound`.

        A spare component may be the error of the levels, which is the same for all rows.
        """
        lines = self._lines(self.transposed, learning=False)
        good = _well_explained(lines, components.T, scores, self._loss_scale(noise))
        at = spatial_median(scores[good])
        _, sizes, right = np.linalg.svd(scores[good] - at, full_matrices=False)
        axes = right[:bound][sizes[:bound] > NOTHING * max(sizes[0], self.unit)].T
        return _Affine.of(at @ components, (scores - at) @ axes, components.T @ axes)

    def restrict(self, fit: AffineFit) -> _Affine:
        """The part of a fit in this block, whose levels are the mean of the fit."""
        scores, components = fit.scores[self.sketch.rows], fit.components[:, self.sketch.columns]
        return self._affine(scores, components, len(components), fit.noise)

    def extend(self, fit: _BlockFit) -> AffineFit:
        """From the block to all rows and columns, with the mean in the middle of the samples."""
        affine, c = fit.affine, self._loss_scale(fit.noise)
        if affine.is_point:
            mean = self.levels.copy()
            mean[self.sketch.columns] += affine.mean
            return AffineFit(mean, np.zeros((self.M.shape[0], 0)), np.zeros((0, mean.size)), fit.noise)
        mean, (scores, axes) = affine.mean, affine.principal()
        (n, d), rows, columns = self.M.shape, self.sketch.rows, self.sketch.columns
        strip = self.transposed
        if rows.size < n:
            strip = _subtract(self.sketch.strip, self.sketch.strip.spread_over_columns(self.levels[columns])).T
        samples = self._lines(_subtract(strip, strip.spread_over_rows(mean)), learning=False)
        if rows.size < n:
            scores, _ = samples.complete(axes, rows, scores, c, turns=7)
        good = _well_explained(samples, axes, scores, c)
        if (rows.size, columns.size) != (n, d):
            M = strip.T if columns.size == d else _subtract(self.M, self.M.spread_over_columns(self.levels))
            affine, features = _Affine.of(mean, scores, axes), self._lines(M, learning=False)
            C, _ = features.complete(affine.B, columns, affine.C, c, turns=5)
            affine = _Affine(affine.B, features.refit(affine.B, C, c, 1).V)
            mean, (scores, axes) = affine.mean, affine.principal()
        at = spatial_median(scores[good])
        mean = self.levels + mean + axes @ at
        mean[np.abs(mean) <= ROUNDING * self.unit] = 0.0  # or zeros would become numbers that a fit can explain
        return AffineFit(mean, scores - at, axes.T, fit.noise, fit.passes)

    def fit(self, affine: _Affine) -> _BlockFit:
        """Passes over the block until the affine subspace converges."""
        features = self._lines(self.A, learning=True)
        noise = robust_scale(features.sweep.residual(affine.B, affine.C))
        c, passes, since, refits = WIDER * self._loss_scale(noise), 0, 0, 0
        if affine.is_point:
            share = features.explained_share(affine.B, affine.C, c)
            return _BlockFit(
                _Affine(affine.B, features.refit_poorly_explained(affine.B, affine.C, c, share)[0]), noise, 0
            )
        overdetermined = affine.B.shape[1] <= min(self.A.shape)
        while passes < min(PASSES, self.options.max_iter) and overdetermined:
            previous = affine
            affine, noise = self._pass(features, affine, c, 2 if passes < CAREFUL else 1)
            passes, since = passes + 1, since + 1
            rests = c <= 1.5 * self._loss_scale(noise) and previous.distance(affine) <= self._tolerance(affine, noise)
            c = max(self._loss_scale(noise), PACE * c)
            changed = 0
            if refits < REFITS and (rests or since == PATIENCE):
                affine, changed = self._refit_poorly_explained(features, affine, c)
                refits, since = refits + 1, 0
            if changed:
                c = max(10 * c, 1e-3 * self.unit) if noise < SMALLEST * self.unit else 2 * c
            elif rests:
                break
        return _BlockFit(affine, noise, passes)

    def _pass(self, features: LineRegression, affine: _Affine, c: float, n_reweight: int) -> tuple[_Affine, float]:
        """Regress the features, then the samples; and the robust scale of the residuals in between."""
        half = _Affine(affine.B, features.refit(affine.B, affine.C, c, n_reweight).V)
        scores, axes = half.principal()
        fitted = self._samples(half.mean).refit(axes, scores, c, n_reweight)
        return _Affine.of(half.mean, fitted.V, axes), CONSISTENT * fitted.before.quantile(0.5)

    def _refit_poorly_explained(self, features: LineRegression, affine: _Affine, c: float) -> tuple[_Affine, int]:
        """Regress features and samples from zero that explain few of their entries; how many are better so."""
        share = features.explained_share(affine.B, affine.C, c)
        C, _, some = features.refit_poorly_explained(affine.B, affine.C, c, share)
        affine = _Affine(affine.B, C)
        scores, axes = affine.principal()
        samples = self._samples(affine.mean)
        share = samples.explained_share(axes, scores, c)
        scores, _, others = samples.refit_poorly_explained(axes, scores, c, share)
        return _Affine.of(affine.mean, scores, axes) if others else affine, some + others

    def _tolerance(self, affine: _Affine, noise: float) -> float:
        """A distance of affine subspaces that is small against the error due to noise, or against `tol`."""
        (n, d), k = self.A.shape, affine.B.shape[1] - 1
        error = noise * math.sqrt(d * (k + 1) * (n + d - k) / self.A.nnz) / affine.size if affine.size else 0.0
        return max(RESTING * error, 1e-3 * self.options.tol, 1e-13)

    def _loss_scale(self, noise: float) -> float:
        """c of the Cauchy loss."""
        return max(EFFICIENT * noise, SMALLEST * self.unit)

    def _lines(self, M: Any, *, learning: bool) -> LineRegression:
        return LineRegression(M, M.open_sweep(host_backend(self.options.backend)), self.unit, learning=learning)

    def _samples(self, mean: Float) -> LineRegression:
        """The samples of the block minus a mean."""
        return self._lines(_subtract(self.transposed, self.transposed.spread_over_rows(mean)), learning=True)


def _better(
    one: tuple[_AffineBlock, _BlockFit], other: tuple[_AffineBlock, _BlockFit]
) -> tuple[_AffineBlock, _BlockFit]:
    """The one with less noise, with the passes of both."""
    if other[1].noise < one[1].noise:
        one, other = other, one
    return one[0], one[1].plus_passes(other[1].passes)


def _well_explained(samples: LineRegression, axes: Float, scores: Float, c: float) -> NDArray[np.bool_]:
    """Which samples have enough entries, of which as many are explained as is usual; all if none has."""
    share = samples.explained_share(axes, scores, c)
    good = samples.M.column_counts >= enough(axes.shape[1])
    good[poorly_explained(share, 0.5)] = False
    return good if good.any() else ~good


def _subtract(M: Any, numbers: Any) -> Any:
    """M minus a number for each entry; in pieces, a formula."""
    return M.with_values((M.values - numbers).astype(M.dtype, copy=False))
