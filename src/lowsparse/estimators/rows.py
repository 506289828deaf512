"""Samples that are wrong as a whole: how far each is from a fit, and a fit in which they have no say.

A fit that is robust to wrong entries takes many samples of another kind for one more component. So a first fit is
judged: samples that are a group far out within the subspace, or far from it, are suspects. The fit of the others says
which of them are wrong: those that are off its subspace. Suspects that lie in it, though far out, are like the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..entries.protocol import PartialMatrix, PerEntry
from ..entries.statistics import column_sums, row_sums
from ..linalg.grassmann import basis
from ..linalg.lowrank import LowRank
from ..linalg.scale import OUTLIER, outlying, robust_scale
from ..result import Result
from ..robust.cases import STRICT, OrthogonalLimit, ScoreDistribution, score_cutoff
from ..robust.regression import EXPLAINED
from ..sweeps import Float, host_backend, min_support
from .affine import AffineFit
from .refinement import refine
from .subspace import principal_axes

MOSTLY = 0.5  # share of gross errors in a sample that is wrong as a whole
ROUNDS = 6  # fits without suspects
MANY = 0.45  # share of suspects above which nobody can say who is wrong
TURNED = 1.5  # bound of the length of the error of the subspace, relative to what is usual
FEW = 0.02  # share of samples with or without which a fit is as good
NOISELESS = 1e-5  # noise relative to the size of the entries, below which any loss gives the same
LISTED = 8  # samples named in a note

Flags: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RowOutliers:
    """How far samples are from the others: within the subspace, and from it.

    A sample off the subspace has no say in the fit, as it is wrong as a whole. One that is only far out within the
    subspace fits the others, and has.
    """

    score_distance: Float  # n: Mahalanobis distance of the scores, with a robust centre and covariance
    orthogonal_distance: Float  # n: root mean square of the residuals that are no gross errors, in units of the noise
    cell_share: Float  # n: share of gross errors among the entries
    score_cutoff: float
    orthogonal_cutoff: Float  # n: it is larger for samples with few entries
    joint_distance: Float  # n: along what suspects have in common off the subspace, in robust standard deviations

    @property
    def off(self) -> Flags:
        """Which samples are off the subspace: by a distance from it, or as most of their entries are gross errors."""
        return self._off_ratio > 1

    @property
    def _off_ratio(self) -> Float:
        ratio = np.maximum(self.orthogonal_distance / self.orthogonal_cutoff, self.cell_share / MOSTLY)
        return np.where(np.isfinite(self.orthogonal_cutoff), np.maximum(ratio, self.joint_distance / STRICT), 0.0)

    @property
    def outlyingness(self) -> Float:
        """The larger of both distances, in units of its cut-off."""
        return np.maximum(self._off_ratio, self.score_distance / self.score_cutoff)

    @property
    def far(self) -> Flags:
        """Which samples are far out within the subspace."""
        return self.score_distance > self.score_cutoff

    @property
    def indices(self) -> NDArray[np.intp]:
        """The samples that are wrong as a whole: those off the subspace."""
        return np.flatnonzero(self.off)

    def __repr__(self) -> str:
        far = np.count_nonzero(self.far & ~self.off)
        return f"RowOutliers({self.indices.size} of {self.off.size} samples off the subspace, {far} far out within it)"


@dataclass(frozen=True, eq=False)
class RowModel:
    """What is usual of samples: it measures the samples of a fit, and new ones."""

    components: Float  # k x d
    noise: float  # of the entries
    unit: float  # the median magnitude of the entries
    scores: ScoreDistribution | None = None
    n: int = 1  # number of usual samples
    limit: OrthogonalLimit | None = None

    def fit(self, M: PartialMatrix, scores: Float, usual: Flags) -> RowModel:
        """Learn what is usual from the scores of the samples M, minus their mean; limits from the `usual` ones."""
        distribution = ScoreDistribution.fit(scores, self.noise)
        model = replace(self, scores=distribution, n=int(np.count_nonzero(usual)))
        distance, _, freedom, _ = model._distances(M, scores)
        return replace(model, limit=OrthogonalLimit.fit(distance[usual], freedom[usual]))

    def measure(self, M: PartialMatrix, scores: Float, suspects: Flags | None = None) -> RowOutliers:
        """The distances of samples, minus the mean; those of suspects also along what they have in common."""
        assert self.limit is not None
        distance, share, freedom, within = self._distances(M, scores)
        joint = np.zeros_like(distance)
        if suspects is not None and np.count_nonzero(suspects) > 2:
            joint = self._joint_distances(M, scores, within, suspects)
        cutoffs = score_cutoff(len(self.components)), self.limit.cutoff(freedom)
        return RowOutliers(within, distance, share, *cutoffs, joint)

    def _joint_distances(self, M: PartialMatrix, scores: Float, within: Float, suspects: Flags) -> Float:
        """How far suspects are from the others in the direction of the residuals e of the other suspects.

        It is s - e, where s is the sum over all suspects. Residuals are clipped at gross errors. A group far
        out has the error of the subspace in common, which is about δ σ √(d/n) long at the distance δ within it.
        """
        growth = np.sqrt(1 + within**2 / self.n)
        e = self.errors(M, scores) / M.spread_over_rows(growth)
        bound = OUTLIER * self.noise + 1e-7 * self.unit
        e = np.minimum(np.maximum(e, -bound), bound)
        (s,) = M.reduce("|", column_sums, e * M.spread_over_rows(1.0 * suspects))
        along, squares = M.reduce("++", row_sums, e * M.spread_over_columns(s), e * e)
        length = np.sqrt(np.maximum(s @ s - suspects * (2 * along - squares), np.finfo(float).tiny))
        far = np.median(within[suspects]) > score_cutoff(len(self.components))
        turned = far * within / growth
        along = (along - suspects * squares) / length - TURNED * self.noise * math.sqrt(M.shape[1] / self.n) * turned
        usual = along[~suspects]
        spread = robust_scale(usual - np.median(usual)) or bound
        return np.where(suspects, np.maximum(along - np.median(usual), 0.0) / spread, 0.0)

    def errors(self, M: PartialMatrix, scores: Float) -> PerEntry:
        """The residuals of the entries."""
        return -M.open_sweep().residual(scores, np.ascontiguousarray(self.components.T))

    def _distances(self, M: PartialMatrix, scores: Float) -> tuple[Float, Float, NDArray[np.int64], Float]:
        """(distances from the subspace, shares of gross errors, residuals beyond the scores, distances within it).

        The error of the subspace, as the usual samples leave it open, grows with the distance δ within it: the noise of
        a sample has the variance σ² (1 + δ²/n). The number of residuals is 0 if there are too few entries to judge by.
        """
        assert self.scores is not None
        within = self.scores.distances(scores)
        e = self.errors(M, scores) / M.spread_over_rows(np.sqrt(1 + within**2 / self.n))
        fair = np.abs(e) <= OUTLIER * self.noise + 1e-7 * self.unit
        squares, counts = M.reduce("++", row_sums, fair * e * e, 1.0 * fair)
        k, observed = len(self.components), M.row_counts
        freedom = np.where(observed >= min_support(k), np.maximum(counts - k, 1), 0).astype(np.int64)
        unit = max(self.noise, EXPLAINED * self.unit)
        distance = np.sqrt(squares / np.maximum(freedom, 1)) / unit * (freedom > 0)
        return distance, np.where(observed > 0, 1 - counts / np.maximum(observed, 1), 0.0), freedom, within


@dataclass(frozen=True, eq=False)
class CentredFit:
    """A mean, and the result for the samples minus this mean."""

    mean: Float | None
    result: Result
    n_iter: int

    def judge(self, kept: Flags) -> JudgedFit:
        """With what is usual of the samples that are kept, and the distances of all."""
        result = self.result
        scores, _, components = axes_of(result.L, kept)
        model = RowModel(components, result.noise, result.M.median_magnitude() or 1.0).fit(result.M, scores, kept)
        return JudgedFit(self, model, model.measure(result.M, scores, ~kept), kept)

    def refine(self, kept: Flags, backend: str, *, move: bool) -> CentredFit:
        """The MM-estimate, in which the samples that are kept have a say; the mean moves along, if it may."""
        result = self.result
        scores, _, components = principal_axes(result.L)
        start = AffineFit(np.zeros(result.L.shape[1]), scores, components, result.noise, self.n_iter)
        found = refine(result.M, start, kept, centred=move, backend=backend)
        M = result.M
        if move:
            M = M.with_stored_values(M.values - M.spread_over_columns(found.mean))
        Q, R = basis(found.scores)
        L = LowRank(Q, R @ found.components)
        e = M.open_sweep(host_backend(backend)).residual(L.U, np.ascontiguousarray(L.V.T))
        flagged = outlying(e, OUTLIER * found.noise + 1e-7 * (M.median_magnitude() or 1.0))
        S = M.outliers(flagged, -e[flagged].astype(M.dtype, copy=False))
        result = replace(result, L=L, M=M, flagged=flagged, S=S, noise=found.noise)
        return CentredFit(self.mean + found.mean if move and self.mean is not None else self.mean, result, found.n_iter)


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
    found, kept = None, ~start.suspects
    for _ in range(ROUNDS):
        if kept.all() or kept.mean() < 1 - MANY:
            break
        found = refine((found or start).fit, kept)
        new = found.suspects & kept
        if not (found.cases.off & ~kept).any() or not new.any():
            break
        kept = kept & ~new
    if found is None or not (found.cases.off & ~found.kept).any():  # suspects that fit the others are no threat
        return start
    fitting = ~found.kept & ~found.cases.off
    if fitting.mean() > FEW:  # they were left out but fit: they stay if they do not turn the subspace
        other = refine(found.fit, found.kept | fitting)
        found = other if (other.cases.off >= found.cases.off).all() else found
    if choose and (fewer := found.without_noise()) is not None:
        found = refine(fewer, found.kept)
    return found.with_note()


def _refine_and_judge(fit: CentredFit, kept: Flags, backend: str, *, move: bool) -> JudgedFit:
    result = fit.result
    exact = result.noise <= NOISELESS * result.M.median_magnitude() or not result.L.V.any()
    return (fit if exact and kept.all() else fit.refine(kept, backend, move=move)).judge(kept)


@dataclass(frozen=True, eq=False)
class JudgedFit:
    """A fit in which the samples that are kept have a say, and the distances of all."""

    fit: CentredFit
    model: RowModel
    cases: RowOutliers
    kept: Flags

    @property
    def suspects(self) -> Flags:
        """Samples that may have turned the subspace towards themselves; none if only few are off it, which cannot."""
        assert self.model.scores is not None
        group, off = np.zeros_like(self.kept), self.cases.off
        group[self.kept] = self.model.scores.group(axes_of(self.fit.result.L, self.kept)[0][self.kept])
        return off | group if group.any() or off.mean() > FEW else group

    def without_noise(self) -> CentredFit | None:
        """The fit without components no longer than the longest of noise alone, σ (√n + √d); None if there are none."""
        scores, sizes, components = axes_of(self.fit.result.L, self.kept)
        n, d = int(np.count_nonzero(self.kept)), components.shape[1]
        k = max(1, np.count_nonzero(sizes > self.model.noise * (math.sqrt(n) + math.sqrt(d))))
        if k == len(sizes):
            return None
        Q, R = basis(scores[:, :k])
        return replace(self.fit, result=replace(self.fit.result, L=LowRank(Q, R @ components[:k])))

    def with_note(self) -> JudgedFit:
        """With a note of the samples that have no say."""
        rows = self.cases.indices
        named = ", ".join(map(str, rows[:LISTED])) + (", ..." if rows.size > LISTED else "")
        note = f"{rows.size} rows do not fit the subspace of the others, and have no say in it: {named}"
        result = replace(self.fit.result, notes=(*self.fit.result.notes, note))
        return replace(self, fit=replace(self.fit, result=result))
