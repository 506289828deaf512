"""Samples that are wrong as a whole: how far each is from a fitted subspace, and within it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..entries.protocol import PartialMatrix, PerEntry, Resident
from ..entries.statistics import column_sums, row_sums
from ..linalg.arrays import Flags
from ..linalg.scale import OUTLIER, robust_scale
from ..sweeps import Float, min_support
from .cases import STRICT, OrthogonalLimit, ScoreDistribution, score_cutoff
from .leverage import without_own_say
from .regression import EXPLAINED

# Share of gross errors in a sample that is wrong as a whole: the last always is. The second is if it has the
# probability `CHANCE` where errors are as frequent as in usual samples; so is the first if the others fit poorly, too,
# or only far out within the subspace: where many entries may be left out, some scores fit the others.
SOME, MANY, MOSTLY, CHANCE = 0.1, 1 / 3, 0.5, 1e-6
OTHERS = 5000  # samples that are no suspects, by which these are judged
TURNED = 1.5  # bound of the length of the error of the subspace, relative to what is usual

Distances: TypeAlias = tuple[Float, Float, NDArray[np.int64], Float]


@dataclass(frozen=True, eq=False)
class RowOutliers:
    """How far samples are from the others: within the subspace, and from it.

    A sample off the subspace has no say in the fit, as it is wrong as a whole. One that is only far out within the
    subspace fits the others, and has.
    """

    score_distance: Float  # n: Mahalanobis distance of the scores, with a robust centre and covariance
    # n: root mean square of the residuals that are no gross errors, in units of the noise; of a sample that has a say,
    # what it would be without
    orthogonal_distance: Float
    cell_share: Float  # n: share of gross errors among the entries
    score_cutoff: float
    orthogonal_cutoff: Float  # n: it is larger for samples with few entries
    cell_cutoff: Float  # n: it is larger where other samples have gross errors too
    joint_distance: Float  # n: along what suspects have in common off the subspace, in robust standard deviations

    @property
    def off(self) -> Flags:
        """Which samples are off the subspace: by a distance from it, or as too many entries are gross errors."""
        return self._off_ratio > 1

    @property
    def _off_ratio(self) -> Float:
        ratio = np.maximum(self.orthogonal_distance / self.orthogonal_cutoff, self.cell_share / self.cell_cutoff)
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
class CommonDirection:
    """What bad samples have in common off the subspace."""

    axis: Float  # d, of length 1
    needed: Float  # k x j, orthonormal: the part of the subspace that usual samples determine
    turned: float  # residual along it that the error of the subspace causes at the distance 1 within it
    middle: float  # residual along it of usual samples, and its spread
    spread: float
    centre: Float | None = None  # where the bad samples are, within the subspace and along the axis, if most are off it

    def distance(self, along: Float, within: Float, scores: Float) -> Float:
        """How far samples are out along the axis, in robust standard deviations.

        Within the subspace `within` is the distance, and the scores have the covariance I. A sample that is more than
        half way from the usual ones to the centre of the bad ones is far out, too, by `STRICT` there.
        """
        out = np.maximum(along - self.turned * within - self.middle, 0.0) / self.spread
        if self.centre is None:
            return out
        towards = self.position(along, scores) @ self.centre / (self.centre @ self.centre)
        return np.maximum(out, 2 * STRICT * towards)

    def position(self, along: Float, scores: Float) -> Float:
        """Where samples are, within the subspace and along the axis, in standard deviations."""
        return np.column_stack([scores, (along - self.middle) / self.spread])


@dataclass(frozen=True, eq=False)
class RowModel:
    """What is usual of samples: it measures the samples of a fit, and new ones."""

    components: Float  # k x d
    noise: float  # of the entries
    unit: float  # the median magnitude of the entries
    relative: Float | None = None  # d: the noise by which gross errors are told, relative to that of all; None: 1
    typical: Float | None = None  # d: that of the other residuals, relative to it, by which distances are told; None: 1
    scores: ScoreDistribution | None = None
    n: int = 1  # number of usual samples
    limit: OrthogonalLimit | None = None
    cell_share: float = 0.0  # of gross errors in usual samples
    common: CommonDirection | None = None  # of samples that only it shows to be off the subspace
    unevenness: float = 0.0  # cut-off of the distances of usual samples as they are, in standard deviations by chance
    farthest: float | None = None  # cut-off of the distance within the subspace; None: that of normal scores

    def fit_and_measure(
        self,
        M: PartialMatrix,
        scores: Float,
        usual: Flags,
        suspects: Flags | None = None,
        needed: Float | None = None,
    ) -> tuple[RowModel, RowOutliers]:
        """Learn what is usual from samples M, minus their mean, limits from the `usual` ones; and `measure` all.

        What suspects have in common is looked for off the part of the subspace that is `needed`, all by default.
        """
        distribution = ScoreDistribution.fit(scores, self.noise)
        model = replace(self, scores=distribution, n=int(np.count_nonzero(usual)))
        distances = model._distances(M, scores)
        unevenness = OrthogonalLimit.fit(distances[0][usual], distances[2][usual]).deviations
        distances = model._without_own_say(M, scores, distances, usual)
        distance, share, freedom, _ = distances
        limit = OrthogonalLimit.fit(distance[usual], freedom[usual])
        near = usual & (distance <= limit.rarely_exceeded(freedom))
        cell_share = float(np.mean(share[near if near.any() else usual]))
        model = replace(model, limit=limit, cell_share=cell_share, unevenness=unevenness)
        joint = np.zeros_like(distance)
        alone = model._judge(M, distances, joint)
        if suspects is not None and np.count_nonzero(suspects) > 2:
            needed = np.eye(len(self.components)) if needed is None else needed
            joint, common = model._joint_distances_from_some(M, scores, needed, suspects, alone.off)
            together = replace(alone, joint_distance=joint).off & ~alone.off
            model = replace(model, common=common if together.any() else None)
        if self.typical is None:  # beside repeated numbers the distances of usual samples may be of two kinds
            others = (joint <= STRICT) & (share <= alone.cell_cutoff)  # those found by other means do not hide
            model = replace(model, limit=limit.in_front_of_group(distance[others], freedom[others]))
        return model, model._judge(M, distances, joint)

    def measure(self, M: PartialMatrix, scores: Float) -> RowOutliers:
        """The distances of samples, minus the mean; also along what the bad ones of the fit have in common."""
        distances = self._distances(M, scores)
        joint = np.zeros(M.shape[0])
        if self.common is not None:
            part, scores = self._within(self.common.needed, scores)
            assert part.scores is not None
            white = part.scores.whitened(scores)
            within = np.linalg.norm(white, axis=1)
            e, growth = part._clipped_errors(M, scores, within)
            along, _ = M.reduce("++", sums_along, e, M.spread_over_columns(self.common.axis))
            joint = self.common.distance(along, within / growth, white)
        return self._judge(M, distances, joint)

    def _judge(self, M: PartialMatrix, distances: Distances, joint: Float) -> RowOutliers:
        """The distances of samples with their cut-offs."""
        from scipy.stats import binom  # not before it is needed: it takes a second, and 20 MB

        assert self.limit is not None
        distance, share, freedom, within = distances
        farthest = score_cutoff(len(self.components)) if self.farthest is None else self.farthest
        counts, line = np.unique(np.maximum(M.row_counts, 1), return_inverse=True)
        chance = (np.asarray(binom.isf(CHANCE, counts, self.cell_share), dtype=np.float64) / counts)[line]
        doubtful = (distance > self.limit.rarely_exceeded(freedom)) | (within > farthest)
        least = np.where(doubtful, SOME, MANY)
        cutoffs = farthest, self.limit.cutoff(freedom), np.clip(chance, least, MOSTLY)
        return RowOutliers(within, distance, share, *cutoffs, joint)

    def _within(self, needed: Float, scores: Float) -> tuple[RowModel, Float]:
        """The model of a part of the subspace, and the scores of samples in it."""
        assert self.scores is not None
        return replace(self, components=needed.T @ self.components, scores=self.scores.along(needed)), scores @ needed

    def _joint_distances_from_some(
        self, M: PartialMatrix, scores: Float, needed: Float, suspects: Flags, off: Flags
    ) -> tuple[Float, CommonDirection]:
        """`_joint_distances`, by all suspects and, where samples are many, some thousand others: they tell as well."""
        others = np.flatnonzero(~suspects)
        rows = np.union1d(np.flatnonzero(suspects), others[:: max(1, others.size // OTHERS)])
        few = 2 * rows.size <= suspects.size and M.row_counts[rows].sum() <= M.largest_part
        part = _take_rows(M, rows) if few else None
        if part is None:
            return self._joint_distances(M, scores, needed, suspects, off)
        joint = np.zeros(suspects.size)
        joint[rows], common = self._joint_distances(part, scores[rows], needed, suspects[rows], off[rows])
        return joint, common

    def _joint_distances(
        self, M: PartialMatrix, scores: Float, needed: Float, suspects: Flags, off: Flags
    ) -> tuple[Float, CommonDirection]:
        """How far suspects are from the others in the direction of the residuals e of the other suspects.

        It is s - e, where s is the sum over all suspects; for others it is s, which is returned too. Residuals are
        clipped at gross errors. A group far out has the error of the subspace in common, which is about δ σ √(d/n) long
        at the distance δ within it. If most suspects are off, and at one side of the others, those beside them are too.
        """
        part, scores = self._within(needed, scores)
        assert part.scores is not None
        white = part.scores.whitened(scores)
        within = np.linalg.norm(white, axis=1)
        e, growth = part._clipped_errors(M, scores, within)
        (s,) = M.reduce("|", column_sums, e * M.spread_over_rows(1.0 * suspects))
        along, squares = M.reduce("++", sums_along, e, M.spread_over_columns(s))
        length = np.sqrt(np.maximum(s @ s - suspects * (2 * along - squares), np.finfo(float).tiny))
        far = np.median(within[suspects]) > score_cutoff(len(part.components))
        turned = far * TURNED * self.noise * math.sqrt(M.shape[1] / self.n)
        along = (along - suspects * squares) / length
        usual = (along - turned * within / growth)[~suspects]
        spread = robust_scale(usual - np.median(usual)) or OUTLIER * self.noise + 1e-7 * self.unit
        axis = s / (float(np.linalg.norm(s)) or 1.0)
        common = CommonDirection(axis, needed, float(turned), float(np.median(usual)), spread)
        centre = np.median(common.position(along, white)[suspects], axis=0)
        together = np.mean(off[suspects]) > 0.5 and np.linalg.norm(centre) > 2 * STRICT
        if together or np.median(common.distance(along, within / growth, white)[suspects]) > STRICT:
            common = replace(common, centre=centre)
        return suspects * common.distance(along, within / growth, white), common

    def _clipped_errors(self, M: PartialMatrix, scores: Float, within: Float) -> tuple[PerEntry, Float]:
        """Residuals, relative to how they grow with the distance within the subspace and at most gross; the growth."""
        growth = self._growth(within)
        bound = OUTLIER * self.noise + 1e-7 * self.unit
        e = self.errors(M, scores) / M.spread_over_rows(growth)
        return np.minimum(np.maximum(e, -bound), bound), growth

    def _growth(self, within: Float) -> Float:
        """The standard deviation of residuals by the distance within the subspace, in units of the noise."""
        return np.asarray(np.sqrt(1 + within**2 / self.n))

    def errors(self, M: PartialMatrix, scores: Float) -> PerEntry:
        """The residuals of the entries, relative to the noise of their column."""
        e = -M.open_sweep().residual(scores, np.ascontiguousarray(self.components.T))
        return e if self.relative is None else e / M.spread_over_columns(self.relative)

    def _distances(self, M: PartialMatrix, scores: Float) -> Distances:
        """(distances from the subspace, shares of gross errors, residuals beyond the scores, distances within it).

        The error of the subspace, as the usual samples leave it open, grows with the distance δ within it: the noise of
        a sample has the variance σ² (1 + δ²/n). The number of residuals is 0 if there are too few entries to judge by.
        """
        assert self.scores is not None
        within = self.scores.distances(scores)
        bound = OUTLIER * self.noise + 1e-7 * self.unit
        fair = partial(_fair_sums, self._growth(within), bound)
        e = sizes = self.errors(M, scores)
        if self.typical is not None:
            sizes = np.minimum(np.abs(e / M.spread_over_columns(self.typical)), bound)
        squares, gross = M.reduce("++", fair, e, sizes)
        k, observed = len(self.components), M.row_counts
        counts = observed - gross
        freedom = np.where(observed >= min_support(k), np.maximum(counts - k, 1), 0).astype(np.int64)
        distance = np.sqrt(squares / np.maximum(freedom, 1)) / self._unit_of_distance * (freedom > 0)
        return distance, np.where(observed > 0, 1 - counts / np.maximum(observed, 1), 0.0), freedom, within

    @property
    def _unit_of_distance(self) -> float:
        return max(self.noise, EXPLAINED * self.unit)

    def _without_own_say(self, M: PartialMatrix, scores: Float, distances: Distances, fitted: Flags) -> Distances:
        """With the distances from the subspace that samples to which it was `fitted` would have without their say."""
        assert self.scores is not None
        distance, share, freedom, within = distances
        scale = np.sqrt(np.maximum(freedom, 1)) * self._unit_of_distance
        shares = (1 - share) * M.row_counts / M.shape[1]
        length, alone = without_own_say(scores, distance * scale * self._growth(within), shares, fitted)
        return length / self._growth(self.scores.distances(alone)) / scale, share, freedom, within


def _take_rows(M: PartialMatrix, rows: NDArray[np.intp]) -> PartialMatrix | None:
    """Some rows; None if they have no entries. In memory no transposed copy is made."""
    if not (M.in_pieces or M.on_gpu):
        return M.to_host().take_rows(rows)
    found = M.T.take_columns(rows)
    return None if found is None else found.T


def _fair_sums(growth: Float, bound: float, columns: Resident, e: Float, sizes: Float) -> tuple[Float, ...]:
    """Of each row: the sum of squares of what is no gross error, relative to its growth; the number of gross errors."""
    large = np.flatnonzero(np.abs(e) > bound * growth.min())  # hardly any: the growth of all entries would take longer
    rows = columns.rows[large]
    gross = np.abs(e[large]) > bound * growth[rows]
    squares = sizes * sizes
    squares[large[gross]] = 0.0
    (total,) = row_sums(columns, squares)
    return total / growth**2, np.bincount(rows[gross], minlength=columns.shape[0]).astype(np.float64)


def sums_along(columns: Resident, e: Float, direction: Float) -> tuple[Float, ...]:
    """The sums of each row along a direction, and of its squares."""
    return row_sums(columns, e * direction, e * e)
