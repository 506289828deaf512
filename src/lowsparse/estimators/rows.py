"""Samples that are wrong as a whole: how far each is from a fit, and a fit in which they have no say.

A fit that is robust to wrong entries takes many samples of another kind for one more component. So a first fit is
judged: samples that are a group far out within the subspace, or far from it, are suspects. The fit of the others says
which of them are wrong: those that are off its subspace. Suspects that lie in it, though far out, are like the others,
unless these do not determine the axis along which they lie: another subspace without it would fit them as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from ..entries.protocol import PartialMatrix, Resident
from ..entries.statistics import column_sums
from ..linalg.arrays import Flags
from ..linalg.grassmann import basis
from ..linalg.lowrank import LowRank
from ..linalg.scale import OUTLIER, outlying
from ..result import Result
from ..robust.cases import FEWEST, OrthogonalLimit, ScoreDistribution, on_all_sides, usual_cutoff
from ..robust.coarse import CoarseColumns
from ..robust.curves import continue_as_curve
from ..robust.majority import Plane, far_apart, majority_plane
from ..robust.rows import RowModel, RowOutliers
from ..solvers.start import generator, left_singular_vectors
from ..sweeps import Float, Robust, host_backend
from ..sweeps.losses import Kind
from .affine import AffineFit
from .refinement import refine, settle_roughly
from .subspace import principal_axes

ROUNDS = 6  # fits without suspects
MANY = 0.45  # share of suspects above which nobody can say who is wrong
SO_MANY = 1 / 3  # share of samples off a fit from which on the others may be the wrong ones
# Deviations of the distances of usual samples from the subspace up to their cut-off, 4 by chance, from which on a fit
# may be that of a group.
UNEVEN = 8.0
FEW = 0.02  # share of samples with or without which a fit is as good
LARGE = 0.05  # share of samples in a group whose wrong entries are usual by their number
NOISELESS = 1e-5  # noise relative to the size of the entries, below which any loss gives the same
BY_CHANCE = 2.0  # standard errors, within which a mean is that of no difference
LISTED = 8  # samples named in a note
DISTINCT = 6  # passes that find directions with twice the variance of any noise; those of noise alone take more
BEYOND = 2  # directions off a subspace among which another is looked for
# Quantile of the squares of residuals along them; in variances by chance it is 1.6, and no more if they are noise.
OFTEN, BARE_NOISE = 0.8, 2.0
CLOSER = 0.7  # median distance of most samples from another subspace, relative to that from this one
MOST = 0.58  # share of the samples that are most: of two halves nobody can say which is right


BENT = (
    "the rows lie along a curve, and only a part of it is almost flat: no row is called wrong, and all have a say; "
    "more components may follow the curve"
)


@dataclass(frozen=True, eq=False)
class CentredFit:
    """A mean, and the result for the samples minus this mean."""

    mean: Float | None
    result: Result
    n_iter: int
    coarse: CoarseColumns | None = None

    def without_noise_of(self, coarse: CoarseColumns, backend: str) -> CentredFit:
        """The fit to numbers with the noise of `coarse`, as one to the numbers themselves."""
        M, L = coarse.restore(self.result.M), self.result.L
        return replace(self, coarse=coarse)._flag(L, M, self.result.noise, backend)

    @property
    def is_exact(self) -> bool:
        """Whether there is hardly any noise, or all samples are the same: any loss gives the same."""
        return self.result.noise <= NOISELESS * self.result.M.median_magnitude() or not self.result.L.V.any()

    def judge(self, kept: Flags) -> JudgedFit:
        """With what is usual of the samples that are kept, and the distances of all."""
        result = self.result
        scores, _, components = axes_of(result.L, kept)
        model = RowModel(components, result.noise, result.M.median_magnitude() or 1.0, *self._noise_of_columns())
        measure = partial(model.fit_and_measure, result.M, scores, kept, ~kept)
        fitted, cases = measure()
        group = ~kept & cases.far & ~cases.off
        if np.count_nonzero(group) >= FEWEST and len(components) > 1:
            away = _discriminant(scores, kept, group)
            if not self._is_determined(scores, components, away, kept):
                fitted, cases = measure(needed=_complement(away))
        return JudgedFit(self, fitted, cases, kept)

    def _noise_of_columns(self) -> tuple[Float | None, Float | None]:
        """`RowModel.relative` and `typical`: counts, and what is beside a number that many share, have their own noise.

        By how far usual numbers reach, as errors are told there, no sample would be far from the subspace.
        """
        coarse, noise = self.coarse, self.result.noise
        if coarse is None:
            return None, None
        relative = coarse.relative_noise(noise)
        measured = coarse.atoms | coarse.graded
        if not measured.any() or not noise > 0:
            return relative, None
        own = np.maximum(np.sqrt(inlier_variances(self.result)) / noise, NOISELESS)
        return relative, np.where(measured, np.minimum(own / relative, 1.0), 1.0)

    def _is_determined(self, scores: Float, components: Float, away: Float, kept: Flags) -> bool:
        """Whether samples that are kept differ more along an axis of the subspace than along any that is not fitted.

        By more than chance: else they are fitted as well without this axis.
        """
        M, others = self.result.M, _complement(away)
        e = M.open_sweep().residual(scores @ others, np.ascontiguousarray(components.T @ others))
        e = np.minimum(np.maximum(e, -OUTLIER * self.result.noise), OUTLIER * self.result.noise)
        samples = M.with_stored_values(e * M.spread_over_rows(1.0 * kept)).T.open_sweep()
        own = components.T @ away[:, None]
        largest, _ = left_singular_vectors(samples, M.shape[1], 2, generator(0))
        axes = np.hstack([own, np.linalg.svd(largest - own @ (own.T @ largest), full_matrices=False)[0][:, :1]])
        V = samples.regress(axes, None, Robust(c=1.0, kind=Kind.SQUARED)).V[kept]
        more = V[:, 0] ** 2 - V[:, 1] ** 2
        return bool(more.mean() > BY_CHANCE * more.std() / math.sqrt(more.size))

    def refine(self, kept: Flags, backend: str, *, move: bool) -> CentredFit:
        """The MM-estimate, in which the samples that are kept have a say; the mean moves along, if it may."""
        result = self.result
        scores, _, components = principal_axes(result.L)
        start = AffineFit(np.zeros(result.L.shape[1]), scores, components, result.noise, self.n_iter)
        found = refine(result.M, start, kept, centred=move, backend=backend, coarse=self.coarse)
        M = result.M
        if move:
            M = M.with_stored_values(M.values - M.spread_over_columns(found.mean))
        return self.with_fit(found, M, backend)

    def with_fit(self, found: AffineFit, M: PartialMatrix, backend: str) -> CentredFit:
        """With another fit, whose mean is relative to this one, to the samples M minus both."""
        Q, R = basis(found.scores)
        mean = None if self.mean is None else self.mean + found.mean
        moved = replace(self, mean=mean, n_iter=found.n_iter)
        return moved._flag(LowRank(Q, R @ found.components), M, found.noise, backend)

    def _flag(self, L: LowRank, M: PartialMatrix, noise: float, backend: str) -> CentredFit:
        """With other factors and numbers, and what is a gross error by these."""
        e = M.open_sweep(host_backend(backend)).residual(L.U, np.ascontiguousarray(L.V.T))
        sizes = e if self.coarse is None else e / M.spread_over_columns(self.coarse.relative_noise(noise))
        flagged = outlying(sizes, OUTLIER * noise + 1e-7 * (M.median_magnitude() or 1.0))
        S = M.outliers(flagged, -e[flagged].astype(M.dtype, copy=False))
        return replace(self, result=replace(self.result, L=L, M=M, flagged=flagged, S=S, noise=noise))


def inlier_variances(result: Result) -> Float:
    """The mean square of the residuals of each feature, without outliers."""
    M = result.M
    flagged: Any = result.flagged
    e = M.open_sweep(host_backend(result.backend)).residual(result.L.U, np.ascontiguousarray(result.L.V.T))
    good = ~(flagged.mask if M.in_pieces else result.is_outlier)
    squares, counts = M.reduce("||", _good_sums, good, e)
    return np.asarray(squares / np.maximum(counts, 1))


def _good_sums(columns: Resident, good: Flags, e: Float) -> tuple[Float, ...]:
    """The sums of squares of the good entries of each column, and their number."""
    return column_sums(columns, good * e * e, good)


def _discriminant(scores: Float, kept: Flags, group: Flags) -> Float:
    """The direction, of length 1, in which a group differs most from the samples that are kept, relative to these."""
    usual = scores[kept] - scores[kept].mean(axis=0)
    shift = scores[group].mean(axis=0) - scores[kept].mean(axis=0)
    floor = 1e-12 * float(np.sum(usual**2) + shift @ shift)
    w = np.linalg.solve(usual.T @ usual + floor * np.eye(len(shift)), shift)
    return np.asarray(w / np.linalg.norm(w))


def _complement(w: Float) -> Float:
    """An orthonormal basis of what is orthogonal to w."""
    return np.linalg.qr(w[:, None], mode="complete")[0][:, 1:]


def axes_of(L: LowRank, kept: Flags) -> tuple[Float, Float, Float]:
    """(scores of all samples, singular values, components), the axes being those of the samples that are kept."""
    scores, sizes, components = principal_axes(L)
    if kept.all():
        return scores, sizes, components
    _, sizes, turned = principal_axes(LowRank(scores[kept], components))
    return scores @ (components @ turned.T), sizes, turned


def fit_good_rows(first: CentredFit, backend: str, *, move: bool, choose: bool) -> JudgedFit:
    """A fit in which samples that are wrong as a whole have no say, refined from a first one in which all have.

    If no sample is off the subspace of the others, all keep their say. To `choose` the number of components is to drop
    those that, without the bad samples, are noise.
    """
    refine = partial(_refine_and_judge, backend=backend, move=move)
    start = refine(first, np.ones(first.result.M.shape[0], bool))
    if start.fit.is_exact and not start.cases.off.any():  # what explains all samples exactly cannot be theirs alone
        return start
    of_all, most = start, _fit_of_most(start, refine)
    start, found = most or start, most
    kept, held = start.kept & ~start.suspects, True
    if most is None and (start.cases.off.mean() > SO_MANY or kept.mean() < 1 - MANY or start.unevenness > UNEVEN):
        other = _without_tight_group(start, refine)
        start, kept = (start, kept) if other is None else (other, ~other.cases.off)
    for _ in range(ROUNDS):
        if kept.all() or kept.mean() < 1 - MANY:
            break
        if found is None or not np.array_equal(found.kept, kept):
            found = refine((found or start).fit, kept)
        new = found.suspects & kept
        if found.cases.off[~kept].mean() < 0.5:  # a few of them that were left may hold the others in the subspace
            new, held = (found.far_out | new) & kept & held, False
        if not new.any():
            break
        kept = kept & ~new
    if found is None or not (found.cases.off & ~found.kept).any():  # suspects that fit the others are no threat
        return start
    if found.is_bent:
        return of_all.without_limit().with_remark(BENT)
    fitting = ~found.kept & ~found.cases.off
    for some in (fitting, fitting & ~found.cases.far):
        if some.mean() > FEW:  # they were left out but fit: they stay if they do not turn the subspace
            other = refine(found.fit, found.kept | some)
            if np.count_nonzero(found.cases.off & ~other.cases.off) <= FEW * some.size:
                found = other
                break
    if choose and (fewer := found.without_noise()) is not None:
        found = refine(fewer, found.kept)
    return found


def _fit_of_most(start: JudgedFit, refine: Callable[[CentredFit, Flags], JudgedFit]) -> JudgedFit | None:
    """The fit to the samples that another subspace is close to, if most are; None if there is none, or no gain."""
    other = start.subspace_of_most()
    if other is None:
        return None
    found = refine(*other)
    off, kept = found.cases.off, other[1]
    return found if off[~kept].mean() > 0.5 and off.mean() <= 1 - MOST else None


def _without_tight_group(start: JudgedFit, refine: Callable[[CentredFit, Flags], JudgedFit]) -> JudgedFit | None:
    """A fit that most samples fit, if a first one is that of a group so tight that others are off it, or fit poorly.

    Those who have a say are all but the group, or all that are off the first fit, or fit poorly. None if it is not
    found.
    """
    for kept in (~start.group, start.cases.off, start.poor):
        if SO_MANY <= kept.mean() < 1:
            found = refine(start.fit, kept)
            off = found.cases.off
            if off[~kept].mean() > 0.5 and off.mean() < min(MANY, kept.mean()):
                return found
    return None


def _refine_and_judge(fit: CentredFit, kept: Flags, backend: str, *, move: bool) -> JudgedFit:
    return (fit if fit.is_exact and kept.all() else fit.refine(kept, backend, move=move)).judge(kept)


class _Directions(NamedTuple):
    """What residuals of samples that are kept, gross errors clipped, have most in common."""

    axes: Float  # d x q, orthonormal
    along: Float  # n x q: the residuals of each sample along them
    power: float  # the mean square of the residuals


@dataclass(frozen=True, eq=False)
class JudgedFit:
    """A fit in which the samples that are kept have a say, and the distances of all."""

    fit: CentredFit
    model: RowModel
    cases: RowOutliers
    kept: Flags

    @property
    def unevenness(self) -> float:
        """The cut-off of the distances of usual samples from the subspace, in standard deviations by chance."""
        return self.model.unevenness if math.isfinite(self.model.unevenness) else 0.0

    @property
    def poor(self) -> Flags:
        """Samples that fit worse than chance allows, if the noise is that of those that fit best."""
        size = self.cases.orthogonal_distance**2 * (1 - self.cases.cell_share) + OUTLIER**2 * self.cases.cell_share
        return np.asarray(size > OUTLIER * np.quantile(size, MANY / 2))

    @property
    def suspects(self) -> Flags:
        """Samples that may have turned the subspace towards themselves; none if only few are off it, which cannot."""
        group, off = self.group | self.group_off, self.cases.off
        return off | group if group.any() or off.mean() > FEW else group

    @cached_property
    def group(self) -> Flags:
        """Samples that are kept and are a group of their own within the subspace."""
        assert self.model.scores is not None
        group = np.zeros_like(self.kept)
        group[self.kept] = self.model.scores.group(axes_of(self.fit.result.L, self.kept)[0][self.kept])
        return np.zeros_like(group) if self._is_category(group) else group

    @cached_property
    def group_off(self) -> Flags:
        """Samples that are kept and are a group along what residuals have most in common, gross errors clipped.

        Where many samples have the same wrong entries, these are as usual as others, and no sample is off the subspace.
        """
        group = np.zeros_like(self.kept)
        if self.fit.is_exact or not self.kept.any() or np.mean(self.cases.cell_share[self.kept]) <= FEW:
            return group
        if self._is_categorical(self._off_subspace.axes[:, 0]):
            return group
        along = self._off_subspace.along[self.kept, :1]
        group[self.kept] = ScoreDistribution.fit(along, self.model.noise).group(along)
        return group if group.mean() > LARGE else np.zeros_like(group)

    @cached_property
    def _off_subspace(self) -> _Directions:
        """What residuals have most in common."""
        M, (scores, _, components) = self.fit.result.M, axes_of(self.fit.result.L, self.kept)
        e, bound = self.model.errors(M, scores), OUTLIER * self.model.noise + 1e-7 * self.model.unit
        e = np.minimum(np.maximum(e, -bound), bound) * M.spread_over_rows(1.0 * self.kept)
        samples = M.with_stored_values(e).T.open_sweep()
        count = max(1, min(BEYOND, components.shape[1] - len(components)))
        axes, _ = left_singular_vectors(samples, M.shape[1], count, generator(0), max_passes=DISTINCT)
        return _Directions(axes, samples.regress(axes, None, Robust(c=1.0, kind=Kind.SQUARED)).V, float(np.mean(e * e)))

    def subspace_of_most(self) -> tuple[CentredFit, Flags] | None:
        """A fit that most samples are closer to, of all within the subspace and a few directions off it; and which.

        None if this one is as close, or if others are not apart from those.
        """
        M, (scores, _, components) = self.fit.result.M, axes_of(self.fit.result.L, self.kept)
        (k, d), n = components.shape, len(scores)
        if self.fit.is_exact or d <= k or n < 4 * (k + BEYOND + 1):
            return None
        axes, along, power = self._off_subspace
        # by chance the largest singular value of noise is σ (√n + √d)
        size = np.quantile(np.sum((along - np.median(along, axis=0)) ** 2, axis=1), OFTEN) / axes.shape[1]
        if size < BARE_NOISE * power * (1 + math.sqrt(d / n)) ** 2:
            return None
        axes = np.linalg.qr(axes - components.T @ (components @ axes))[0]
        beyond = np.zeros((n, axes.shape[1]))
        wider = AffineFit(np.zeros(d), np.hstack([scores, beyond]), np.vstack([components, axes.T]), self.model.noise)
        centred, backend = self.fit.mean is not None, self.fit.result.backend
        wider = settle_roughly(M, wider, k, self.kept, centred=centred, backend=backend)
        Z, own = wider.scores, Plane(-wider.components @ wider.mean, basis(wider.components @ components.T)[0])
        plane = majority_plane(Z, k)
        kept = ~far_apart(plane.distances(Z))
        closer = np.median(plane.distances(Z[kept])) <= CLOSER * np.median(own.distances(Z[kept]))
        if not closer or kept.all() or kept.mean() < MOST:
            return None
        if self._is_categorical((Z[~kept].mean(axis=0) - Z[kept].mean(axis=0)) @ wider.components):
            return None
        Q, R = basis((Z - plane.centre) @ plane.axes)
        L = LowRank(Q, R @ plane.axes.T @ wider.components)
        return replace(self.fit, result=replace(self.fit.result, L=L)), kept

    @property
    def is_bent(self) -> bool:
        """Whether samples off the subspace are the rest of a curved cloud, of which the others are a flat part."""
        k, d = len(self.model.components), self.fit.result.M.shape[1]
        return k < d and continue_as_curve(*self._squared_scores(self.cases.off), self.cases.off)

    def _squared_scores(self, off: Flags) -> tuple[Float, Float]:
        """Scores of all samples by least squares, within the subspace and along what those off it have in common."""
        M, (scores, _, components) = self.fit.result.M, axes_of(self.fit.result.L, self.kept)
        (k, d), backend = components.shape, host_backend(self.fit.result.backend)
        e = self.model.errors(M, scores) * M.spread_over_rows(1.0 * off)
        axes, _ = left_singular_vectors(
            M.with_stored_values(e).T.open_sweep(backend), d, min(BEYOND, d - k), generator(0), max_passes=DISTINCT
        )
        axes = np.linalg.qr(axes - components.T @ (components @ axes))[0]
        options = Robust(c=1.0, kind=Kind.SQUARED)
        Z = M.T.open_sweep(backend).regress(np.hstack([components.T, axes]), None, options).V
        return Z[:, :k], Z[:, k:]

    @property
    def far_out(self) -> Flags:
        """Samples far out within the subspace, unless they are at all distances on all sides of the others."""
        assert self.model.scores is not None
        far = self.cases.far & self.kept
        away = self.model.scores.whitened(axes_of(self.fit.result.L, self.kept)[0][far])
        return np.zeros_like(far) if far.any() and on_all_sides(away) else far

    def _is_category(self, group: Flags) -> bool:
        """Whether a group within the subspace is one of categories."""
        if self.fit.coarse is None or not group.any():
            return False
        scores, _, components = axes_of(self.fit.result.L, self.kept)
        return self._is_categorical((scores[group].mean(axis=0) - scores[self.kept & ~group].mean(axis=0)) @ components)

    def _is_categorical(self, away: Float) -> bool:
        """Whether a difference of groups is mainly one in columns of few numbers: categories have groups."""
        coarse = self.fit.coarse
        return coarse is not None and bool(np.sum(away[coarse.categories] ** 2) > 0.5 * np.sum(away**2))

    def without_noise(self) -> CentredFit | None:
        """The fit without components no longer than the longest of noise alone, σ (√n + √d); None if there are none."""
        scores, sizes, components = axes_of(self.fit.result.L, self.kept)
        n, d = int(np.count_nonzero(self.kept)), components.shape[1]
        k = max(1, np.count_nonzero(sizes > self.model.noise * (math.sqrt(n) + math.sqrt(d))))
        if k == len(sizes):
            return None
        Q, R = basis(scores[:, :k])
        return replace(self.fit, result=replace(self.fit.result, L=LowRank(Q, R @ components[:k])))

    def with_cutoff(self) -> JudgedFit:
        """With the cut-off within the subspace that samples on it, those that have a say, ask for."""
        cases = self.cases
        farthest = usual_cutoff(cases.score_distance[self.kept & ~cases.off], cases.score_cutoff)
        return replace(self, model=replace(self.model, farthest=farthest), cases=replace(cases, score_cutoff=farthest))

    def without_limit(self) -> JudgedFit:
        """Without a limit of the distance from the subspace: it says nothing."""
        model = replace(self.model, limit=OrthogonalLimit(math.inf))
        return replace(self, model=model, cases=replace(self.cases, orthogonal_cutoff=np.full(self.kept.size, np.inf)))

    def with_remark(self, remark: str) -> JudgedFit:
        """With one more note."""
        result = replace(self.fit.result, notes=(*self.fit.result.notes, remark))
        return replace(self, fit=replace(self.fit, result=result))

    def with_note(self) -> JudgedFit:
        """With a note of the samples that have no say, if there are any."""
        rows = self.cases.indices
        if self.kept.all() or not rows.size:
            return self
        named = ", ".join(map(str, rows[:LISTED])) + (", ..." if rows.size > LISTED else "")
        note = f"{rows.size} rows do not fit the subspace of the others, and have no say in it: {named}"
        return self.with_remark(note)
