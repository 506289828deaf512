"""Samples that are wrong as a whole: how far each is from a fit, and a fit in which they have no say.

A fit that is robust to wrong entries takes many samples of another kind for one more component. So a first fit is
judged: samples that are a group far out within the subspace, or far from it, are suspects. The fit of the others says
which of them are wrong: those that are off its subspace. Suspects that lie in it, though far out, are like the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..entries.statistics import row_sums
from ..linalg.grassmann import basis
from ..linalg.lowrank import LowRank
from ..linalg.scale import CUT, OUTLIER
from ..result import Result
from ..robust.cases import OrthogonalLimit, ScoreDistribution, apart, score_cutoff
from ..robust.regression import EFFICIENT, EXPLAINED, WILD, SubspaceRegression
from ..sweeps import Float, host_backend, min_support
from .affine import AffineFit, least_squares, spatial_median
from .subspace import principal_axes

MOSTLY = 0.5  # share of gross errors in a sample that is wrong as a whole
ROUNDS = 3  # fits without suspects
MANY = 0.45  # share of suspects above which nobody can say who is wrong
FEW = 0.02  # share of samples with or without which a fit is as good
REFINEMENTS = 3  # least squares fits, each to the entries that the last does not flag
ALMOST = 0.05  # share of residuals between 2.5 and 4 standard deviations; 0.012 if they are normal
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

    @property
    def off(self) -> Flags:
        """Which samples are off the subspace: by their distance, or as most of their entries are gross errors."""
        return self._off_ratio > 1

    @property
    def _off_ratio(self) -> Float:
        ratio = np.maximum(self.orthogonal_distance / self.orthogonal_cutoff, self.cell_share / MOSTLY)
        return np.where(np.isfinite(self.orthogonal_cutoff), ratio, 0.0)

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

    @property
    def suspects(self) -> Flags:
        """Samples that may have turned the subspace towards themselves; none if only few are off it, which cannot."""
        group = apart(self.score_distance, self.score_cutoff)
        return self.off | group if group.any() or self.off.mean() > FEW else group

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

    def fit(self, M: ObservedMatrix, scores: Float, usual: Flags) -> RowModel:
        """Learn what is usual from the scores of the samples M, minus their mean; limits from the `usual` ones."""
        model = replace(self, scores=ScoreDistribution.fit(scores, self.noise), n=int(np.count_nonzero(usual)))
        distance, _, freedom, _ = model._distances(M, scores)
        return replace(model, limit=OrthogonalLimit.fit(distance[usual], freedom[usual]))

    def measure(self, M: ObservedMatrix, scores: Float) -> RowOutliers:
        """The distances of samples, minus the mean."""
        assert self.limit is not None
        distance, share, freedom, within = self._distances(M, scores)
        return RowOutliers(within, distance, share, score_cutoff(len(self.components)), self.limit.cutoff(freedom))

    def errors(self, M: ObservedMatrix, scores: Float) -> tuple[Float, Flags]:
        """The residuals of the entries, and which are gross errors."""
        e = M.values - LowRank(scores, self.components).at(M.rows, M.columns_of_entries())
        return e, np.abs(e) > OUTLIER * self.noise + 1e-7 * self.unit

    def _distances(self, M: ObservedMatrix, scores: Float) -> tuple[Float, Float, NDArray[np.int64], Float]:
        """(distances from the subspace, shares of gross errors, residuals beyond the scores, distances within it).

        The error of the subspace, as the usual samples leave it open, grows with the distance δ within it: the noise of
        a sample has the variance σ² (1 + δ²/n). The number of residuals is 0 if there are too few entries to judge by.
        """
        assert self.scores is not None
        within = self.scores.distances(scores)
        growth = np.sqrt(1 + within**2 / self.n)
        e = self.errors(M, scores)[0] / growth[M.rows]
        wrong = np.abs(e) > OUTLIER * self.noise + 1e-7 * self.unit
        squares, counts = row_sums(M, ~wrong * e * e, ~wrong)
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

    def judge(self, usual: Flags) -> tuple[RowModel, RowOutliers]:
        """What is usual, and the distances of the samples of the result."""
        result = self.result.to_host()
        M = result.M.to_host()
        scores, _, components = axes_of(result.L, usual)
        model = RowModel(components, result.noise, M.median_magnitude() or 1.0).fit(M, scores, usual)
        return model, model.measure(M, scores)

    def extend(self, M: ObservedMatrix, kept: Flags, backend: str) -> CentredFit:
        """The fit of some samples, extended to all those of M: the others are regressed on its subspace."""
        some, _, components = principal_axes(self.result.to_host().L)
        centred = M if self.mean is None else centre(M, self.mean)
        largest = WILD * float(np.median(np.linalg.norm(some, axis=1))) or np.inf
        others = centred.T.take_columns(np.flatnonzero(~kept))
        scores = np.zeros((M.shape[0], len(components)))
        scores[kept] = some
        if others is not None:
            B, c = np.ascontiguousarray(components.T), EFFICIENT * self.result.noise
            regression = SubspaceRegression(B, c, centred.median_magnitude() or 1.0, largest)
            scores[~kept] = regression.coefficients(others, host_backend(backend))
        return self._with(centred, scores, components)

    def refine(self, M: ObservedMatrix, backend: str, *, move: bool) -> CentredFit:
        """The least squares fit to the entries that are no gross errors; the mean moves along, if it may.

        Entries that fit better by then are not flagged any more, and it is repeated. The fit stays as it is if many
        residuals are almost flagged: among them are gross errors, by which least squares would be misled.
        """
        found, result = self, self.result.to_host()
        scores, _, components = principal_axes(result.L)
        centred = result.M.to_host()
        sizes = np.abs(RowModel(components, result.noise, 1.0).errors(centred, scores)[0])
        if np.mean((sizes > CUT * result.noise) & (sizes <= OUTLIER * result.noise)) > ALMOST:
            return self
        for _ in range(REFINEMENTS):
            last, found = found, found._least_squares(M, backend, move=move)
            if np.array_equal(last.result.to_host().flagged, found.result.flagged):
                break
        return found

    def _least_squares(self, M: ObservedMatrix, backend: str, *, move: bool) -> CentredFit:
        result = self.result.to_host()
        scores, _, components = principal_axes(result.L)
        good, _ = M.split(np.sort(result.flagged))
        mean = np.zeros(M.shape[1]) if self.mean is None else self.mean
        start = AffineFit(mean, scores, components, result.noise, self.n_iter)
        found = least_squares(good, start, centre=move, backend=backend)
        scores, mean = found.scores, found.mean
        if move:
            known = good.row_counts >= min_support(len(components))
            middle = spatial_median(scores[known] if known.any() else scores)
            scores, mean = scores - middle, mean + middle @ found.components
        centred = M if self.mean is None else centre(M, mean)
        moved = replace(self, mean=None if self.mean is None else mean, n_iter=found.n_iter)
        return moved._with(centred, scores, found.components)

    def _with(self, M: ObservedMatrix, scores: Float, components: Float) -> CentredFit:
        """With these scores and components of the centred samples M."""
        result = self.result.to_host()
        Q, R = basis(scores)
        e, wrong = RowModel(components, result.noise, M.median_magnitude() or 1.0).errors(M, scores)
        flagged = np.flatnonzero(wrong)
        S = M.outliers(flagged, e[flagged].astype(M.dtype))
        return replace(self, result=replace(result, L=LowRank(Q, R @ components), M=M, flagged=flagged, S=S))


def axes_of(L: LowRank, kept: Flags) -> tuple[Float, Float, Float]:
    """(scores of all samples, singular values, components), the axes being those of the samples that are kept."""
    scores, sizes, components = principal_axes(L)
    if kept.all():
        return scores, sizes, components
    _, sizes, turned = principal_axes(LowRank(scores[kept], components))
    return scores @ (components @ turned.T), sizes, turned


def centre(M: ObservedMatrix, mean: Float) -> ObservedMatrix:
    """M minus a number for each column."""
    return M.with_values((M.values - mean[M.columns_of_entries()]).astype(M.dtype))


def fit_good_rows(
    M: ObservedMatrix, first: CentredFit, fit: Callable[[ObservedMatrix], CentredFit], backend: str
) -> FitOfSome:
    """A fit of M in which samples that are wrong as a whole have no say.

    `first` is a fit of all of them, and stays the fit if no sample is off the subspace of the others.
    """
    start = FitOfSome.of_all(first)
    found, kept = None, ~start.cases.suspects
    for _ in range(ROUNDS):
        if kept.all() or kept.mean() < 1 - MANY:
            break
        found = FitOfSome.of(M, kept, fit, backend)
        new = found.cases.suspects & kept
        if not (found.cases.off & ~kept).any() or not new.any():
            break
        kept = kept & ~new
    if found is None or not (found.cases.off & ~found.kept).any():  # suspects that fit the others are no threat
        return start
    found = found.with_fitting(M, fit, backend)
    rows = found.cases.indices
    named = ", ".join(map(str, rows[:LISTED])) + (", ..." if rows.size > LISTED else "")
    note = f"{rows.size} rows do not fit the subspace of the others, and have no say in it: {named}"
    result = replace(found.fit.result, notes=(*found.fit.result.notes, note))
    return replace(found, fit=replace(found.fit, result=result, n_iter=first.n_iter + found.fit.n_iter))


@dataclass(frozen=True, eq=False)
class FitOfSome:
    """The fit of the samples that are kept, extended to all, and the distances of all."""

    fit: CentredFit
    model: RowModel
    cases: RowOutliers
    kept: Flags

    @classmethod
    def of_all(cls, fit: CentredFit) -> FitOfSome:
        """A fit in which all samples have a say."""
        kept = np.ones(fit.result.M.shape[0], bool)
        return cls(fit, *fit.judge(kept), kept)

    @classmethod
    def of(cls, M: ObservedMatrix, kept: Flags, fit: Callable[[ObservedMatrix], CentredFit], backend: str) -> FitOfSome:
        """Fit the samples that are kept."""
        found = fit(M.take_rows(np.flatnonzero(kept))).extend(M, kept, backend)
        return cls(found, *found.judge(kept), kept)

    def with_fitting(self, M: ObservedMatrix, fit: Callable[[ObservedMatrix], CentredFit], backend: str) -> FitOfSome:
        """With the samples, too, that were left out but fit, if they are many, and do not turn the subspace."""
        fitting = ~self.kept & ~self.cases.off
        if fitting.mean() <= FEW:
            return self
        other = FitOfSome.of(M, self.kept | fitting, fit, backend)
        return other if (other.cases.off >= self.cases.off).all() else self
