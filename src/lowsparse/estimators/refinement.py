"""The last stage of a fit: an MM-estimate of the affine subspace, in which some samples may have no say.

A fit that is robust to half of the entries pays for it in precision, and where noise has directions of its own it need
not find the largest. An MM-estimate (Yohai, Annals of Statistics 1987) starts from such a fit and its scale of the
noise, σ, and ends at the nearest minimum of a loss that is almost that of least squares for what is no gross error, and
bounded: that of Tukey, with the width c. Here c is first 4.7 σ, where small errors have little weight, and σ is
estimated along; then 6 σ with σ fixed. Last comes least squares on what is within 4 σ, unless many residuals are close
to that, so that a table without errors gets its principal components. Features and samples are regressed in turn;
scores are shrunk as the noise asks for (see `Prior`), by least squares only lightly.

Where the noise is large, small errors may hide in it, and the first fit has followed them. So there is a second start,
with an idea of the wrapping of Raymaekers and Rousseeuw (Technometrics 2021): the principal components of the table,
with entries that are unusual for their feature at its level. Then these are left out, the others fitted, and those that
this fit predicts come back: an entry that is unusual for its feature and for the fit is left out from 2.5 σ on (see
`_Usual`). What fits the usual entries best is taken.

A sample has no say if its numbers, and its row of the matrix on which features are regressed, are zero: one weight for
each row, which works wherever the entries are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from ..entries.protocol import PartialMatrix, PerEntry, Resident
from ..entries.statistics import column_sums, usual_columns
from ..linalg.arrays import Flags
from ..linalg.grassmann import basis
from ..linalg.scale import CONSISTENT, CUT, OUTLIER, robust_scale, trimmed_deviation
from ..robust.cases import ScoreDistribution, score_cutoff
from ..robust.coarse import CoarseColumns
from ..robust.regression import (
    EFFICIENT,
    SHRINK,
    SMALLEST,
    LineRegression,
    Prior,
    SubspaceRegression,
    regress_by_subsets,
)
from ..solvers.start import generator, left_singular_vectors
from ..sweeps import Float, Robust, Sweep, host_backend, min_support
from ..sweeps.losses import EFFICIENT as WIDTHS
from ..sweeps.losses import Kind, Loss
from .affine import NOISY, SETTLED, AffineFit, spatial_median, subtract

STRICT = WIDTHS[Kind.TUKEY]  # c in standard deviations of the noise: 95 % of the efficiency of least squares
WIDE = 6.0  # of the second passes: 98 %
ROUNDS = 3  # of least squares, each with other entries left out
LIGHTLY = 0.5  # noise by which least squares shrinks scores, relative to the noise: what stability needs
ALMOST = 0.03  # share of residuals between 2.5 and 4 standard deviations; 0.012 if they are normal
HARDLY_ANY = 0.001  # share of residuals between 4 and 6 standard deviations; 0.00006 if they are normal
TAILS = 0.02  # share of residuals beyond 2.5 standard deviations, above which errors may hide in the noise
ROUGH_PASSES, MAX_PASSES = 10, 60
FEW_PASSES = 6  # over all samples, from a fit to some of them; and with directions that may be noise
# Turn of the subspace by a pass, in tolerances, and those by all passes to come, if each is to the one before as this
# one was, below which these are left out; and that relation from which on passes have momentum.
NEARLY, REST, SLOW = 3.0, 0.6, 0.6
ROUGH = 10.0  # tolerance of all but the last passes, relative to that of the last
SAMPLE = 100_000  # residuals by which scales and losses are compared
NEARLY_SQUARED = 20.0  # c in standard deviations: with hardly any error left, almost least squares
# The loss of a fit without suspicious entries is smaller than that of one with them by this share of what parameters
# use up, or less, if they are good.
CLEARLY = 1 / 3
FURTHER = 3  # reweightings of samples from zero, beyond what brings the scale of the loss down to the noise
# Share of samples that are regressed again in the end, at most; deviations from the median of their loss; their number.
WORST, WORSE, MOST = 0.1, 2.0, 2000
FAR = 1e4  # distance to which entries without a say are moved, in units
LEAST_FREEDOM = 0.25  # share of the entries that are not used up by parameters, for the scale of the noise


def refine(
    M: PartialMatrix,
    fit: AffineFit,
    kept: Flags,
    *,
    centred: bool,
    backend: str = "auto",
    coarse: CoarseColumns | None = None,
) -> AffineFit:
    """The MM-estimate near a fit to M, or from entries that are usual for their feature; with its mean, if `centred`.

    Only the samples that are kept have a say; all get scores. If there are others, a component of the fit may be
    theirs, and another may be missing, whose entries all are gross errors: so almost least squares is a start, too.
    Where columns are coarse, the estimate is that of the numbers with noise, and least squares on the numbers follow.
    """
    data = _Data.of(M if coarse is None else coarse.spread(M), kept, centred, host_backend(backend))
    found = data.rough(fit)
    if not kept.all():
        found = data.better(found, data.rough(data.settle(fit, Kind.TUKEY, NEARLY_SQUARED)))
    if found.noise > NOISY * data.unit and np.mean(np.abs(data.residuals(found)) > CUT * found.noise) > TAILS:
        found = _Usual.of(data).improve(found, fit)
    else:
        found = data.finish(found)
    found = data.refit_doubtful(found)
    if coarse is not None:
        data = _Data.of(M, kept, centred, data.backend)
        found = data.least_squares(found, coarse.relative_noise(found.noise))
    return data.complete(found)


def regress_samples(
    samples: PartialMatrix, fit: AffineFit, usual: Flags, unit: float, backend: str, guess: Float | None = None
) -> Float:
    """Scores of samples, columns minus the mean, by robust regression on a fit; `usual` are its samples that are."""
    axes, c = np.ascontiguousarray(fit.components.T), max(EFFICIENT * fit.noise, SMALLEST * unit)
    lines = LineRegression(samples, samples.open_sweep(backend), unit, learning=False)
    guess = lines.fit_from_zero(axes, c, lines.steps_from_zero(c) + FURTHER) if guess is None else guess
    return lines.refit(axes, guess, c, 5, like=fit.scores[usual]).V


def settle_roughly(M: PartialMatrix, fit: AffineFit, k: int, kept: Flags, *, centred: bool, backend: str) -> AffineFit:
    """A fit to M after a few passes of almost least squares: what it lacks, it follows, and leaves out gross errors.

    The first k components are known, the others may be noise alone, which would never be at rest. So a few passes are
    enough if they do not lead away from the first.
    """
    data = _Data.of(M, kept, centred, host_backend(backend))
    found = data.settle(fit, Kind.TUKEY, NEARLY_SQUARED, passes=FEW_PASSES)
    if _turn(replace(fit, components=fit.components[:k]), found) <= data.usual_error(fit):
        return found
    return data.settle(found, Kind.TUKEY, NEARLY_SQUARED)


def refine_further(
    M: PartialMatrix,
    samples: PartialMatrix,
    fit: AffineFit,
    kept: Flags,
    *,
    centred: bool,
    backend: str,
    coarse: CoarseColumns | None = None,
) -> AffineFit:
    """A fit to some of the samples after a few more passes over all of M, given its transpose too; as `refine`.

    The noise is known, so no more is needed than the second passes of the MM-estimate, or least squares.
    """
    some = M.with_values((M.values * M.spread_over_rows(1.0 * kept)).astype(M.dtype, copy=False))
    unit, backend = M.median_magnitude() or 1.0, host_backend(backend)
    data = _Data(M, samples, some, kept, centred, unit, backend)
    if coarse is None:
        found = data.refit_doubtful(data.settle(fit, Kind.TUKEY, WIDE, last=True, passes=FEW_PASSES))
    else:
        found = data.least_squares(fit, coarse.relative_noise(fit.noise), FEW_PASSES)
    others = fit.scores @ (fit.components @ found.components.T)
    return data.complete(found, others)


@dataclass(frozen=True, eq=False)
class _Data:
    """Samples, about zero, and which of them are kept."""

    M: PartialMatrix
    samples: PartialMatrix  # its transpose
    heard: PartialMatrix  # M with zeros for the samples that have no say
    kept: Flags
    centred: bool
    unit: float
    backend: str
    n_far: int = 0  # entries that were moved away

    @classmethod
    def of(cls, M: PartialMatrix, kept: Flags, centred: bool, backend: str) -> _Data:
        """The samples M, some of which are kept."""
        some = M if kept.all() else M.with_stored_values(M.values * M.spread_over_rows(1.0 * kept))
        return cls(M, M.T, some, kept, centred, M.median_magnitude() or 1.0, backend)

    @cached_property
    def _features(self) -> Sweep:
        return self.heard.open_sweep(self.backend)

    @cached_property
    def _sampled(self) -> Sweep:
        """Over about `SAMPLE` entries."""
        return self.heard.sample(SAMPLE).to_host().open_sweep(self.backend)

    def rough(self, start: AffineFit) -> AffineFit:
        """The first passes of the MM-estimate from a start, with the noise of the last ones.

        Where many residuals are no noise, but so small that the wider loss would follow them, σ stays: the median of
        the magnitudes would grow with every error that the fit follows.
        """
        e = self.residuals(start)
        noise = trimmed_deviation(e, robust_scale(e))
        near = _errors_are_near(e, noise)
        rough = replace(start, noise=noise if near else robust_scale(e))
        rough = self.settle(rough, Kind.TUKEY, STRICT, fixed=near)
        e = self.residuals(rough)
        noise = trimmed_deviation(e, robust_scale(e)) / math.sqrt(self.freedom(len(rough.components)))
        return replace(rough, noise=noise)

    def widen(self, rough: AffineFit) -> AffineFit:
        """The first passes, and some of the second: as near to the MM-estimate as a comparison needs."""
        if _errors_are_near(self.residuals(rough), rough.noise):
            return self.settle(rough, Kind.TUKEY, STRICT, last=True)
        return self.settle(rough, Kind.TUKEY, WIDE, fixed=True)

    def finish(self, rough: AffineFit) -> AffineFit:
        """The MM-estimate from its first passes; c stays at 4.7 σ where the wider loss would follow errors.

        Where no residual is larger than those of noise, least squares need no more than the first passes.
        """
        sizes = np.abs(self.residuals(rough))
        if _errors_are_near(sizes, rough.noise):
            return self.settle(rough, Kind.TUKEY, STRICT, last=True)
        large = sizes[sizes > OUTLIER * rough.noise]
        if large.size > HARDLY_ANY * sizes.size or (large > WIDE * rough.noise).any():
            rough = self.settle(rough, Kind.TUKEY, WIDE, last=True)
        return self._least_squares(rough) or self.settle(rough, Kind.TUKEY, WIDE, last=True)

    def better(self, one: AffineFit, other: AffineFit) -> AffineFit:
        """The fit with the smaller loss, with the passes of both."""
        loss = Loss(Kind.TUKEY, WIDE * min(one.noise, other.noise) or 1.0)
        worse = np.sum(loss.value(self.residuals(other))) >= np.sum(loss.value(self.residuals(one)))
        return replace(one if worse else other, n_iter=max(one.n_iter, other.n_iter))

    def freedom(self, k: int) -> float:
        """The share of the entries that have a say which k components do not use up."""
        d, n = self.M.shape[1], int(np.count_nonzero(self.kept))
        return max(1 - (k * (n + d - k) + d) / (self._active * self.M.nnz - self.n_far), LEAST_FREEDOM)

    def _least_squares(self, fit: AffineFit) -> AffineFit | None:
        """The least squares fit to what is no gross error; None if many are almost: there may be errors too.

        What is left out is put on the fit, and the fit moves: the more slowly, the more is left out. Where hardly any
        residual is between 4 and 6 standard deviations, those are the largest of the noise, and stay.
        """
        sizes = np.abs(self.residuals(fit)) / (fit.noise or 1.0)
        if np.mean((sizes > CUT) & (sizes <= OUTLIER)) > ALMOST:
            return None
        most = WIDE if np.mean((sizes > OUTLIER) & (sizes <= WIDE)) <= HARDLY_ANY else OUTLIER
        relative = np.full(self.M.shape[1], most / OUTLIER)
        return self.least_squares(fit, relative, rounds=ROUNDS if (sizes > most).any() else 1)

    def least_squares(
        self, fit: AffineFit, relative: Float, passes: int = MAX_PASSES, rounds: int = ROUNDS
    ) -> AffineFit:
        """The least squares fit to what is no gross error, by the noise of each column relative to that of all."""
        bound = self.M.spread_over_columns(OUTLIER * fit.noise * relative)
        for _ in range(rounds):
            e, before = self.errors(fit), fit.n_iter
            wrong = np.abs(e) > bound
            data = self._of(self.M.with_stored_values(self.M.values + e * wrong)) if wrong.any() else self
            fit = data.settle(fit, Kind.SQUARED, 1.0, last=True, passes=passes)
            if data is self or fit.n_iter == before + 1:  # with these left out, it is where it was
                break
        return fit

    def _of(self, M: PartialMatrix) -> _Data:
        """Of other values at the same positions."""
        return _Data.of(M, self.kept, self.centred, self.backend)

    def residuals(self, fit: AffineFit) -> Float:
        """About `SAMPLE` residuals of samples that are kept."""
        B, C = self._factors(fit)
        e: Float = np.asarray(self._sampled.residual(B, C), dtype=np.float64)
        e = e[np.abs(e) < 0.5 * FAR * self.unit] if self.n_far else e
        return e if self.kept.all() or not e.any() else e[e != 0]

    def without(self, wrong: PerEntry) -> _Data:
        """Without some entries: so far from any fit, they have no weight in the loss of Tukey."""
        other = self.M.with_stored_values(self.M.values * (1.0 - wrong) + FAR * self.unit * wrong)
        return replace(self._of(other), unit=self.unit, n_far=int(np.count_nonzero(wrong)))

    def errors(self, fit: AffineFit) -> PerEntry:
        """The fit minus all entries."""
        e = self.M.open_sweep(self.backend).residual(fit.scores, np.ascontiguousarray(fit.components.T))
        return e + self.M.spread_over_columns(fit.mean)

    def _factors(self, fit: AffineFit) -> tuple[Float, Float]:
        """B and C with B Cᵀ the fit to samples that are kept: B orthonormal, its first column constant if centred."""
        ones = np.ones((len(fit.scores), int(self.centred)))
        B, R = basis(np.where(self.kept[:, None], np.hstack([ones, fit.scores]), 0.0))
        mean = fit.mean[:, None] if self.centred else np.zeros((fit.mean.size, 0))
        return B, np.hstack([mean, fit.components.T]) @ R.T

    def settle(
        self,
        fit: AffineFit,
        kind: Kind,
        width: float,
        *,
        last: bool = False,
        fixed: bool = False,
        passes: int = MAX_PASSES,
    ) -> AffineFit:
        """Regress features and samples in turn until the subspace is at rest.

        The noise follows until the last time, unless it is fixed. Where passes are slow, they begin ahead of the last
        fit, by more and more of the last step, as long as that leads onwards: Nesterov's momentum, with restarts.
        """
        fixed |= last or kind is Kind.SQUARED
        tolerance = self._tolerance(fit) * (1 if last else ROUGH)
        start, before, n_slow = fit, math.inf, 0
        for _ in range(min(passes, MAX_PASSES if last else ROUGH_PASSES)):
            previous, fit = fit, self._pass(start, kind, width, fixed=fixed)
            turn = _turn(fit, previous)
            fast = n_slow == 0 and turn * turn <= REST * tolerance * (before - turn)
            if turn <= tolerance or (fast and turn <= NEARLY * tolerance):
                break
            slow = (turn > SLOW * before or n_slow > 0) and _is_onwards(fit, previous, start)
            before = turn if n_slow == 0 else math.inf  # turns with momentum do not tell what is to come
            n_slow = (n_slow + 1) * slow
            start = _ahead(fit, previous, n_slow / (n_slow + 2))
        return fit

    def _pass(self, fit: AffineFit, kind: Kind, width: float, *, fixed: bool) -> AffineFit:
        c = max(width * fit.noise, SMALLEST * self.unit)
        options = Robust(c=c, kind=kind, shrink=SHRINK, unit=self.unit)
        B, C = self._factors(fit)
        fitted = self._features.regress(B, C, options)
        own = int(self.centred)
        mean = fitted.V[:, 0] * B[int(np.argmax(self.kept)), 0] if own else fit.mean
        axes, R = basis(fitted.V[:, own:])
        guess = B[:, own:] @ R.T
        sweep = self._minus(mean).open_sweep(self.backend)
        prior = Prior.of(guess[self.kept], (LIGHTLY if kind is Kind.SQUARED else 1.0) * fit.noise, self.M.density)
        scores = (
            sweep.regress(axes, guess, options) if prior is None else prior.regress(sweep, axes, guess, options)
        ).V
        # the residuals of entries without a say are zero
        noise = (
            fit.noise
            if fixed
            else CONSISTENT * fitted.magnitudes.quantile(1 - (self._active + self.n_far / self.M.nnz) / 2)
        )
        return AffineFit(mean, scores, axes.T, noise, fit.n_iter + 1)

    @property
    def _active(self) -> float:
        """The share of the entries that have a say."""
        return float(self.M.row_counts[self.kept].sum()) / self.M.nnz

    def _tolerance(self, fit: AffineFit) -> float:
        """A turn of the subspace that is small compared with the error due to noise."""
        return max(SETTLED * self.usual_error(fit), 1e-6)

    def usual_error(self, fit: AffineFit) -> float:
        """About the turn of the subspace that is due to noise."""
        (n, d), k = self.M.shape, len(fit.components)
        size = float(np.linalg.norm(fit.scores[self.kept]))
        return fit.noise * math.sqrt(d * k * (n + d - k) / self.M.nnz * n) / size if size else 0.0

    def _minus(self, mean: Float) -> PartialMatrix:
        """The samples minus a mean."""
        return subtract(self.samples, self.samples.spread_over_rows(mean)) if mean.any() else self.samples

    def complete(self, fit: AffineFit, guess: Float | None = None) -> AffineFit:
        """The fit with scores of all samples, and the mean at the spatial median of those that are kept.

        The scores of the others are regressed from a guess, by default from zero.
        """
        if not self.kept.all():
            fit = replace(fit, scores=self._scores_of_all(fit, guess))
        if not self.centred:
            return fit
        known = self.kept & (self.M.row_counts >= min_support(len(fit.components)))
        middle = spatial_median(fit.scores[known if known.any() else self.kept])
        return replace(fit, mean=fit.mean + middle @ fit.components, scores=fit.scores - middle)

    def _scores_of_all(self, fit: AffineFit, guess: Float | None) -> Float:
        """The scores, with those of samples that are not kept from a guess or from zero."""
        samples, others = self._minus(fit.mean), np.flatnonzero(~self.kept)
        regress = partial(regress_samples, fit=fit, usual=self.kept, unit=self.unit, backend=self.backend)
        if samples.column_counts[others].sum() > samples.largest_part:  # not all of them fit into memory
            return np.where(self.kept[:, None], fit.scores, regress(samples, guess=guess))
        few, scores = samples.take_columns(others), fit.scores.copy()
        if few is not None:
            scores[others] = regress(few, guess=None if guess is None else guess[others])
        return scores

    def refit_doubtful(self, fit: AffineFit) -> AffineFit:
        """Regress samples again, from other starts, that fit worst or are far out: some of them follow gross errors.

        The prior is that of the other scores, and the smallest loss is taken.
        """
        k, noise = len(fit.components), max(fit.noise, SMALLEST * self.unit)
        usual = ScoreDistribution.fit(fit.scores[self.kept], noise)
        samples, axes = self._minus(fit.mean), np.ascontiguousarray(fit.components.T)
        doubtful = (
            self._doubtful(samples, fit, usual) if k and np.isfinite(usual.covariance).all() else np.empty(0, int)
        )
        few = samples.take_columns(doubtful) if doubtful.size else None
        if few is None:
            return fit
        few, c, rng = few.to_host(), EFFICIENT * noise, np.random.default_rng(0x646F75)
        sizes, turn = np.linalg.eigh(usual.covariance)
        turn = turn * np.sqrt(sizes)  # scores are this times coefficients of covariance I
        B, V = axes @ turn, [np.linalg.solve(turn, fit.scores[doubtful].T).T]
        V.append(SubspaceRegression(B, c, self.unit, ridge=noise**2).coefficients(few, self.backend))
        V.append(regress_by_subsets(few, B, V[0], c, rng, self.backend, thorough=True))
        sweep, loss = few.open_sweep(self.backend), Loss(Kind.TUKEY, WIDE * noise)
        losses = [column_sums(few, loss.value(sweep.residual(B, v)))[0] + noise**2 / 2 * _long_tailed(v) for v in V]
        losses[0] -= noise**2  # least squares without the prior is no other minimum
        best = np.stack(V)[np.argmin(losses, axis=0), np.arange(doubtful.size)]
        scores = fit.scores.copy()
        scores[doubtful] = best @ turn.T
        return replace(fit, scores=scores)

    def _doubtful(self, samples: PartialMatrix, fit: AffineFit, usual: ScoreDistribution) -> NDArray[np.intp]:
        """Samples with a say that are far out within the subspace or fit worst; the worst `MOST` of them."""
        e = samples.open_sweep(self.backend).residual(np.ascontiguousarray(fit.components.T), fit.scores)
        c = WIDE * (fit.noise or 1.0)
        (loss,) = samples.reduce("|", partial(_bounded_squares, c), e)
        loss /= np.maximum(samples.column_counts, 1)
        far = usual.distances(fit.scores) > score_cutoff(len(fit.components))
        low, middle, high = np.quantile(loss[self.kept], [0.16, 0.5, 1 - WORST])
        found = np.flatnonzero(self.kept & (far | (loss > max(high, middle + WORSE * (middle - low)))))
        return np.sort(found[np.argsort(-loss[found], kind="stable")[:MOST]])


def _errors_are_near(e: Float, noise: float) -> bool:
    """Whether many residuals are within reach of the wider loss, but are no noise."""
    sizes = np.abs(e)
    return bool(np.mean((sizes > CUT * noise) & (sizes <= WIDE * noise)) > ALMOST)


def _turn(fit: AffineFit, other: AffineFit) -> float:
    """The distance of the components of a fit from the subspace of another."""
    return float(np.linalg.norm(fit.components - fit.components @ other.components.T @ other.components))


def _step(fit: AffineFit, previous: AffineFit) -> Float:
    """The change of the scores from a previous fit, on the axes of this one."""
    return fit.scores - previous.scores @ (previous.components @ fit.components.T)


def _ahead(fit: AffineFit, previous: AffineFit, share: float) -> AffineFit:
    """A fit, moved on by a share of its step."""
    return replace(fit, scores=fit.scores + share * _step(fit, previous)) if share else fit


def _is_onwards(fit: AffineFit, previous: AffineFit, start: AffineFit) -> bool:
    """Whether a pass has gone on, from a start ahead of a previous fit, in the direction of the whole step."""
    return start is previous or float(np.vdot(_step(fit, start), _step(fit, previous))) >= 0


def _long_tailed(v: Float) -> Float:
    """Twice minus the log density of scores, normal up to the cut-off; far out it grows as a logarithm.

    Scores have long tails, or most are zero.
    """
    squares, most = np.sum(v * v, axis=1), score_cutoff(v.shape[1]) ** 2
    return np.asarray(np.where(squares <= most, squares, most * (1 + np.log(np.maximum(squares, most) / most))))


def _bounded_squares(c: float, columns: Resident, e: Float) -> tuple[Float, ...]:
    """The sums of squares of the columns, each taken as at most c²."""
    squares = e * e
    return column_sums(columns, np.minimum(squares, c * c, out=squares))


@dataclass(frozen=True, eq=False)
class _Usual:
    """Entries that are usual for their feature, and a fit that starts from them."""

    data: _Data
    level: Float  # of each feature
    wide: PerEntry  # which entries are not usual

    @classmethod
    def of(cls, data: _Data) -> _Usual:
        """By the level and the scale of each feature."""
        M = data.M
        level, scale = M.reduce("||", usual_columns)
        return cls(data, level, np.abs(M.values - M.spread_over_columns(level)) > M.spread_over_columns(CUT * scale))

    def improve(self, rough: AffineFit, first: AffineFit) -> AffineFit:
        """The MM-estimate that a rough one leads to, or another that fits the usual entries better.

        With the passes of all.
        """
        some = self._without_suspicious(rough, first)
        if some is None:
            return self.data.finish(rough)
        part, strict = some
        strict = part.widen(replace(strict, n_iter=strict.n_iter + rough.n_iter - first.n_iter))
        if _errors_are_near(self.data.residuals(strict), strict.noise):
            return part.finish(strict)
        again = self.data.widen(self.data.rough(strict))  # its bound loses fewer good entries, if it rejects the errors
        found = self.data.widen(replace(rough, n_iter=again.n_iter))
        losses = [self._loss(fit, WIDE * strict.noise) for fit in (found, again, strict)]
        best = found if losses[0] <= losses[1] else again
        clearly = 1 - CLEARLY * (1 - self.data.freedom(len(first.components)))
        data, best = (part, strict) if losses[2] < clearly * min(losses[:2]) else (self.data, best)
        return data.finish(replace(best, n_iter=found.n_iter))

    def _without_suspicious(self, found: AffineFit, first: AffineFit) -> tuple[_Data, AffineFit] | None:
        """All but the entries that are unusual for their feature and for the fit to the others, and a rough fit.

        None if these are no more than in normal noise, or if the fit to the others is as close to what was found as
        noise lets it be: no errors hide there.
        """
        if np.mean(self.wide) <= ALMOST:
            return None
        k = len(first.components)
        some, start = self.data.without(self.wide), self._start(k)
        noise = robust_scale(some.residuals(start))
        start = some.settle(replace(start, noise=noise, n_iter=first.n_iter), Kind.TUKEY, NEARLY_SQUARED)
        if _turn(start, found) <= self.data.usual_error(found):
            return None
        # the residuals of what was fitted have the scale σ √f, the errors of what was left out about σ / √f
        wrong = self.wide & (np.abs(self.data.errors(start)) > CUT * start.noise / some.freedom(k))
        if np.mean(wrong) <= ALMOST:
            return None
        part = self.data.without(wrong)
        return part, part.rough(start)

    def _start(self, k: int) -> AffineFit:
        """The principal components of the table, with unusual entries at the level of their feature."""
        M = self.data.M
        mean = self.level if self.data.centred else np.zeros_like(self.level)
        wrapped = (M.values - M.spread_over_columns(self.level)) * (1.0 - self.wide)
        wrapped = (wrapped + M.spread_over_columns(self.level - mean)) * M.spread_over_rows(1.0 * self.data.kept)
        samples = M.with_stored_values(wrapped).T.open_sweep(self.data.backend)
        axes, _ = left_singular_vectors(samples, M.shape[1], k, generator(0))
        scores = samples.regress(axes, None, Robust(c=1.0, kind=Kind.SQUARED)).V
        return AffineFit(mean, scores, axes.T, 0.0)

    def _loss(self, fit: AffineFit, c: float) -> float:
        """Of the usual entries."""
        every = max(1, self.data.M.nnz // SAMPLE)
        e = np.asarray(self.data.errors(fit)[::every], dtype=np.float64)
        return float(Loss(Kind.TUKEY, c).value(e) @ (1.0 - np.asarray(self.wide[::every], dtype=np.float64)))
