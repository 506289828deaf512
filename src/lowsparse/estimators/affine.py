"""The affine subspace that samples lie near, holes, gross errors and all: X = 1 mean + scores components + outliers.

A level that all samples share is a component of its own to a fit of low rank, and as a rule the largest. Taking off the
medians of the features first does not settle it: they are not a point of the affine subspace, but off it by their own
error, so what is left still has a rank more than there are components. Here both are fitted at once, on a block of
rows and columns that determines them:

1. the medians are taken off, and a subspace is learnt roughly. It need not be exact, so what the medians are off by is
   noise to it, and the rank is that of the components: no component is left over for outliers to take;
2. the features are regressed robustly on the ones and the scores, which gives the mean and the components; then the
   samples, less that mean, on the components, which gives the scores; and so on until both rest. That is the
   alternating robust regression of the default method, with a column of U held fixed;
3. all rows and columns follow from the block by one regression each.

That this finds the right centre is measured, not proved. So there are several rough fits, also one with a component to
spare for what the medians are off by, and the one that leads to least noise is taken (`_Block.searched`).

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
from ..linalg.grassmann import basis
from ..linalg.scale import CONSISTENT, column_medians, robust_scale
from ..places.pieces.along import along_columns, along_rows, by_columns
from ..robust.regression import EFFICIENT, SMALLEST, Lines, below_usual
from ..robust.sketch import Sketch, draw
from ..solve import solve
from ..solvers import Ladder
from ..sweeps import Float, enough, open_sweep
from .subspace import principal_axes

__all__ = ["AffineFit", "fit_affine", "spatial_median"]

GENEROUS = 4.0  # how much larger than it need be the block is that is learnt from
FEW = 2  # attempts at a rough fit
WIDER = 2.0  # c at first, as a multiple of what the residuals ask for: they hold what the medians are off by
PACE = 0.3  # c / its previous value, at least
PASSES = 100  # on the block, at most
CAREFUL = 3  # passes at first that reweight twice
ROUNDS = 3  # of a rough fit about the mean that was found before, at most,
MUCH = 0.15  # where so much noise is left, in units,
LESS = 0.9  # and as long as it falls by this factor
CLOSE = 0.5  # size of the levels, in units, from which on zero is not one
LOOKS = 3  # second looks, at most, when the passes come to rest,
PATIENCE = 30  # or after so many
RESTING = 0.02  # of the error that the noise makes: a pass that changes the affine subspace by less is the last
ROUNDING = 1e-9  # of a mean, in units
NOTHING = 1e-7  # size of a component against the largest that is none
WORSE = 2.0  # noise of a fit that was started, against that of its start, at most


@dataclass(frozen=True)
class AffineFit:
    """X = 1 mean + scores components, but for noise and outliers."""

    mean: Float  # d
    scores: Float  # n x k
    components: Float  # k x d, orthonormal rows; fewer than were asked for if there is nothing for them to explain
    noise: float  # the robust scale of what is left
    n_iter: int = 0  # passes over a block or more


@dataclass(frozen=True)
class _Flat:
    """L = B Cᵀ; B (orthonormal) has a row for each row of the data and a constant first column, C one for each column.

    So L = 1 meanᵀ + B₁ C₁ᵀ, where B₁ and C₁ are without the first columns.
    """

    B: Float
    C: Float

    @classmethod
    def of(cls, mean: Float, scores: Float, axes: Float) -> _Flat:
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
        """The root mean square of the distances of the rows from there."""
        return float(np.linalg.norm(self.C[:, 1:])) / math.sqrt(len(self.B))

    def principal(self) -> tuple[Float, Float]:
        """Scores and orthonormal axes."""
        Q, R = basis(self.C[:, 1:])
        return self.B[:, 1:] @ R.T, Q

    def distance(self, other: _Flat) -> float:
        """How far the affine subspaces are apart where the samples are, relative to the spread of these."""
        Q, P = basis(self.C[:, 1:])[0], basis(other.C[:, 1:])[0]
        step = other.mean - self.mean
        off, tilt = np.linalg.norm(step - Q @ (Q.T @ step)), np.linalg.norm(P - Q @ (Q.T @ P))
        return math.hypot(float(off) / self.size if self.size else math.inf, float(tilt))


def spatial_median(points: Float, turns: int = 50) -> Float:
    """The point with the smallest sum of distances to the rows of `points`, by Weiszfeld's iteration.

    >>> spatial_median(np.array([[0.0, 0.0], [0.0, 2.0], [2.0, 0.0], [0.0, 0.0], [90.0, 0.0]])).round(3).tolist()
    [0.0, 0.0]
    """
    at = np.median(points, axis=0)
    unit = float(np.median(np.linalg.norm(points - at, axis=1))) or 1.0
    for _ in range(turns):
        near = 1.0 / np.maximum(np.linalg.norm(points - at, axis=1), 1e-9 * unit)
        at = near @ points / near.sum()
    return np.asarray(at, dtype=np.float64)


def shortest_halves(M: ObservedMatrix) -> Float:
    """Of each column, the mean of those of its entries that lie closest together, half of them; 0 if there are none.

    >>> shortest_halves(ObservedMatrix.from_dense([[1.0], [9.0], [2.0], [8.0], [3.0]])).tolist()
    [2.0]
    """
    found = np.zeros(M.shape[1])
    for j in np.flatnonzero(M.column_counts):
        x = np.sort(M.values[M.indptr[j] : M.indptr[j + 1]].astype(np.float64))
        half = x.size // 2 + 1
        first = int(np.argmin(x[half - 1 :] - x[: x.size - half + 1]))
        found[j] = x[first : first + half].mean()
    return found


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

    A start, with scores of the rows of M, takes the place of a rough fit if these turn out to be as it says. A thorough
    fit begins with a full one of one rank more, in which what the levels are off by has a component; and these are not
    the medians, which follow errors that lie all on one side.

    >>> rng = np.random.default_rng(1)
    >>> X = 100.0 + rng.standard_normal((80, 2)) @ rng.standard_normal((2, 15))
    >>> X[rng.random(X.shape) < 0.1] = 0.0
    >>> fit = fit_affine(ObservedMatrix.from_dense(X), 2)
    >>> bool(np.isclose(X, fit.mean + fit.scores @ fit.components).mean() > 0.85)
    True
    """
    how = _How(max_iter, tol, backend if backend in ("native", "numpy") else "auto")
    if start is not None:
        block = _Block(M, start.mean, len(start.components), how)
        settled = block.settled(block.part_of(start))
        if settled.noise <= WORSE * start.noise + SMALLEST * block.unit:
            return block.extended(settled)
    bound = rank if isinstance(rank, int) else largest_rank(M) if max_rank is None else max_rank
    levels = by_columns(M, shortest_halves if thorough else column_medians)
    block, settled = _Block(M, levels, bound, how).searched(rank, bound, thorough=thorough)
    return block.extended(settled)


@dataclass(frozen=True)
class _How:
    max_iter: int
    tol: float
    backend: str


@dataclass(frozen=True)
class _Settled:
    flat: _Flat
    noise: float  # the robust scale of what is left
    passes: int

    def after(self, other: _Settled) -> _Settled:
        """This, but the passes of both are counted."""
        return replace(self, passes=self.passes + other.passes)


class _Block:
    """Rows and columns that determine the affine subspace, less some levels, and the whole they are of."""

    def __init__(self, M: Any, levels: Float, rank: int, how: _How, sketch: Sketch | None = None) -> None:
        self.M, self.levels, self.rank, self.how = M, levels, rank, how
        rng = np.random.default_rng(0x616666)  # and nothing is kept aside:
        self.sketch = draw(M, rank + 1, rng, at_least=M.nnz + 1, generous=GENEROUS) if sketch is None else sketch
        self.A = _less(self.sketch.M, along_columns(self.sketch.M, levels[self.sketch.columns]))
        self.turned = self.A.T
        self.unit = self.A.median_magnitude() or 1.0

    def _about(self, levels: Float) -> _Block:
        """The same rows and columns less other levels."""
        return _Block(self.M, levels, self.rank, self.how, self.sketch)

    def _lines(self, M: Any, *, learning: bool) -> Lines:
        return Lines(M, open_sweep(M, self.how.backend), self.unit, learning=learning)

    def searched(self, rank: int | str, bound: int, *, thorough: bool) -> tuple[_Block, _Settled]:
        """Of several rough fits, the one that leads to least noise, or the first that leads to hardly any.

        They begin at the levels, without and with a component to spare, and at zero if that is not far. Where much is
        left unexplained, they begin again at the mean that was found, as long as that leads to less noise.
        """
        if thorough:
            return self, self._tried(rank, bound, 1, Ladder())
        block, best = self, self._best(rank, bound)
        if best.noise > self.how.tol * self.unit and np.median(np.abs(self.levels)) < CLOSE * self.unit:
            zero = self._about(np.zeros_like(self.levels))
            other = zero._tried(rank, bound, 0, Ladder(attempts=FEW))
            block, best = (zero, other.after(best)) if other.noise < best.noise else (self, best.after(other))
        for _ in range(ROUNDS):
            if best.noise <= MUCH * self.unit or best.flat.B.shape[1] == 1:
                break
            again = block._about(block._with_mean(best))
            other = again._best(rank, bound)
            if other.noise >= LESS * best.noise:
                return block, best.after(other)
            block, best = again, other.after(best)
        return block, best

    def _best(self, rank: int | str, bound: int) -> _Settled:
        """Without a component to spare, or with one, if the rank is given and that leads to less noise."""
        first = self._tried(rank, bound, 0, Ladder(attempts=FEW))
        if isinstance(rank, str) or first.noise <= self.how.tol * self.unit:
            return first
        second = self._tried(rank, bound, 1, Ladder(attempts=FEW))
        return second.after(first) if second.noise < first.noise else first.after(second)

    def _tried(self, rank: int | str, bound: int, spare: int, method: Ladder) -> _Settled:
        """What a rough fit leads to."""
        rough, passes = self._learnt(rank, bound, spare, method)
        found = self.settled(rough)
        return replace(found, passes=found.passes + passes)

    def _with_mean(self, settled: _Settled) -> Float:
        """The levels, and the mean that was found where it is known."""
        scores, axes = settled.flat.principal()
        good = _telling(self._samples(settled.flat.mean), axes, scores, self._width(settled.noise))
        levels = self.levels.copy()
        levels[self.sketch.columns] += settled.flat.mean + axes @ spatial_median(scores[good])
        return levels

    def _learnt(self, rank: int | str, bound: int, spare: int, method: Ladder) -> tuple[_Flat, int]:
        """A rough fit, with so many components more at first, and its passes."""
        most = min(bound + spare, *self.A.shape)
        rough = solve(
            self.A,
            rank if isinstance(rank, str) else most,
            max_rank=most if isinstance(rank, str) else None,
            method=method,
            max_iter=self.how.max_iter,
            tol=self.how.tol,
            backend=self.how.backend,
        )
        scores, _, components = principal_axes(rough.L)
        return self._flat(scores, components, bound, rough.noise), rough.n_iter

    def _flat(self, scores: Float, components: Float, bound: int, noise: float) -> _Flat:
        """Scores and components of the block as an affine subspace of a dimension of at most `bound`.

        Where there is a component to spare, it may be what the levels are off by, which is the same for all rows.
        """
        good = _telling(self._lines(self.turned, learning=False), components.T, scores, self._width(noise))
        at = spatial_median(scores[good])
        _, sizes, right = np.linalg.svd(scores[good] - at, full_matrices=False)
        axes = right[:bound][sizes[:bound] > NOTHING * max(sizes[0], self.unit)].T
        return _Flat.of(at @ components, (scores - at) @ axes, components.T @ axes)

    def part_of(self, fit: AffineFit) -> _Flat:
        """What a fit whose mean has been taken off says of the block."""
        scores, components = fit.scores[self.sketch.rows], fit.components[:, self.sketch.columns]
        return self._flat(scores, components, len(components), fit.noise)

    def extended(self, settled: _Settled) -> AffineFit:
        """From the block to all rows and columns, and the mean to the middle of the samples."""
        flat, c = settled.flat, self._width(settled.noise)
        if flat.B.shape[1] == 1:  # most samples are the same
            mean = self.levels.copy()
            mean[self.sketch.columns] += flat.mean
            return AffineFit(mean, np.zeros((self.M.shape[0], 0)), np.zeros((0, mean.size)), settled.noise)
        mean, (scores, axes) = flat.mean, flat.principal()
        (n, d), rows, columns = self.M.shape, self.sketch.rows, self.sketch.columns
        strip = self.turned
        if rows.size < n:
            strip = _less(self.sketch.strip, along_columns(self.sketch.strip, self.levels[columns])).T
        samples = self._lines(_less(strip, along_rows(strip, mean)), learning=False)
        if rows.size < n:
            scores, _ = samples.complete(axes, rows, scores, c, turns=7)
        good = _telling(samples, axes, scores, c)
        if (rows.size, columns.size) != (n, d):
            M = strip.T if columns.size == d else _less(self.M, along_columns(self.M, self.levels))
            flat, features = _Flat.of(mean, scores, axes), self._lines(M, learning=False)
            C, _ = features.complete(flat.B, columns, flat.C, c, turns=5)
            flat = _Flat(flat.B, features.again(flat.B, C, c, 1).V)
            mean, (scores, axes) = flat.mean, flat.principal()
        at = spatial_median(scores[good])
        mean = self.levels + mean + axes @ at
        mean[np.abs(mean) <= ROUNDING * self.unit] = 0.0  # or zeros would become numbers that a fit can explain
        return AffineFit(mean, scores - at, axes.T, settled.noise, settled.passes)

    def _width(self, noise: float) -> float:
        return max(EFFICIENT * noise, SMALLEST * self.unit)

    def settled(self, flat: _Flat) -> _Settled:
        """Passes over the block until the affine subspace rests."""
        features = self._lines(self.A, learning=True)
        noise = robust_scale(features.sweep.residual(flat.B, flat.C))
        c, passes, since, looks = WIDER * self._width(noise), 0, 0, 0
        if flat.B.shape[1] == 1:  # most samples are the same
            share = features.share(features.again(flat.B, flat.C, c, 1).inside)
            return _Settled(_Flat(flat.B, features.second_look(flat.B, flat.C, c, share)[0]), noise, 0)
        most = min(PASSES, self.how.max_iter) if flat.B.shape[1] <= min(self.A.shape) else 0  # or no entry is left over
        while passes < most:
            before = flat
            flat, noise = self._passed(features, flat, c, turns=2 if passes < CAREFUL else 1)
            passes, since = passes + 1, since + 1
            rests = c <= 1.5 * self._width(noise) and before.distance(flat) <= self._unfelt(flat, noise)
            c = max(self._width(noise), PACE * c)
            changed = 0
            if looks < LOOKS and (rests or since == PATIENCE):
                flat, changed = self._second_look(features, flat, c)
                looks, since = looks + 1, 0
            if changed:
                c = max(10 * c, 1e-3 * self.unit) if noise < SMALLEST * self.unit else 2 * c
            elif rests:
                break
        return _Settled(flat, noise, passes)

    def _passed(self, features: Lines, flat: _Flat, c: float, turns: int) -> tuple[_Flat, float]:
        """After one pass, the features, then the samples; the robust scale of what was left between."""
        half = _Flat(flat.B, features.again(flat.B, flat.C, c, turns).V)
        scores, axes = half.principal()
        fitted = self._samples(half.mean).again(axes, scores, c, turns)
        return _Flat.of(half.mean, fitted.V, axes), CONSISTENT * fitted.before.quantile(0.5)

    def _samples(self, mean: Float) -> Lines:
        """The samples of the block less a mean."""
        return self._lines(_less(self.turned, along_rows(self.turned, mean)), learning=True)

    def _second_look(self, features: Lines, flat: _Flat, c: float) -> tuple[_Flat, int]:
        """Features and samples that explain few of their entries are regressed from scratch; how many are better so."""
        share = features.share(features.again(flat.B, flat.C, c, 1).inside)
        C, _, some = features.second_look(flat.B, flat.C, c, share)
        flat = _Flat(flat.B, C)
        scores, axes = flat.principal()
        samples = self._samples(flat.mean)
        share = samples.share(samples.again(axes, scores, c, 1).inside)
        scores, _, others = samples.second_look(axes, scores, c, share)
        return _Flat.of(flat.mean, scores, axes) if others else flat, some + others

    def _unfelt(self, flat: _Flat, noise: float) -> float:
        """A distance of affine subspaces that is little beside what the noise makes, or beside what `tol` asks for."""
        (n, d), k = self.A.shape, flat.B.shape[1] - 1
        error = noise * math.sqrt(d * (k + 1) * (n + d - k) / self.A.nnz) / flat.size if flat.size else 0.0
        return max(RESTING * error, 1e-3 * self.how.tol, 1e-13)


def _telling(samples: Lines, axes: Float, scores: Float, c: float) -> NDArray[np.bool_]:
    """Which samples have enough entries, of which as many are explained as is usual; all if none has."""
    share = samples.share(samples.again(axes, scores, c, 1).inside)
    good = samples.M.column_counts >= enough(axes.shape[1])
    good[below_usual(share, 0.5)] = False
    return good if good.any() else ~good


def _less(M: Any, numbers: Any) -> Any:
    """M less a number for each entry; in pieces, a formula."""
    values = M.values - numbers
    return M.with_values(values.astype(M.dtype, copy=False) if isinstance(M, ObservedMatrix) else values)
