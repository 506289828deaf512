"""The last stage of a fit: an MM-estimate of the affine subspace, in which some samples may have no say.

A fit that is robust to half of the entries pays for it in precision, and where noise has directions of its own it need
not find the largest. An MM-estimate (Yohai, Annals of Statistics 1987) starts from such a fit and its scale of the
noise, σ, and ends at the nearest minimum of a loss that is almost that of least squares for what is no gross error, and
bounded: that of Tukey, with the width c. Here c is first 4.7 σ, where small errors have little weight, and σ is
estimated along; then 6 σ with σ fixed. Last comes least squares on what is within 4 σ, unless many residuals are close
to that, so that a table without errors gets its principal components. Features and samples are regressed in turn;
scores are shrunk as the noise asks for (see `Prior`), by least squares only lightly.

Where the noise is large, small errors may hide in it, and the first fit has followed them. So there is a second start:
the least squares fit to entries that are usual for their feature, all others being replaced by its level, as in the
wrapping of Raymaekers and Rousseeuw (Technometrics 2021). The end with the smaller loss is taken.

A sample has no say if its numbers, and its row of the matrix on which features are regressed, are zero: one weight for
each row, which works wherever the entries are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..entries.protocol import PartialMatrix
from ..entries.statistics import by_columns
from ..linalg.grassmann import basis
from ..linalg.scale import CONSISTENT, CUT, OUTLIER, robust_scale, trimmed_deviation
from ..robust.regression import EFFICIENT, SHRINK, SMALLEST, LineRegression, Prior
from ..sweeps import Float, Robust, Sweep, host_backend, min_support
from ..sweeps.losses import EFFICIENT as WIDTHS
from ..sweeps.losses import Kind, Loss
from .affine import NOISY, SETTLED, AffineFit, shorths, spatial_median, subtract

STRICT = WIDTHS[Kind.TUKEY]  # c in standard deviations of the noise: 95 % of the efficiency of least squares
WIDE = 6.0  # of the second passes: 98 %
ROUNDS = 3  # of least squares, each with other entries left out
LIGHTLY = 0.5  # noise by which least squares shrinks scores, relative to the noise: what stability needs
ALMOST = 0.03  # share of residuals between 2.5 and 4 standard deviations; 0.012 if they are normal
ROUGH_PASSES, MAX_PASSES = 20, 60
ROUGH = 10.0  # tolerance of all but the last passes, relative to that of the last
SAMPLE = 100_000  # residuals by which scales and losses are compared
LEAST_FREEDOM = 0.25  # share of the entries that are not used up by parameters, for the scale of the noise

Flags: TypeAlias = NDArray[np.bool_]


def refine(M: PartialMatrix, fit: AffineFit, kept: Flags, *, centred: bool, backend: str = "auto") -> AffineFit:
    """The MM-estimate near a fit to M, or from entries that are usual for their feature; with its mean, if `centred`.

    Only the samples that are kept have a say; all get scores.
    """
    data = _Data.of(M, kept, centred, host_backend(backend))
    found = data.estimate(fit)
    if found.noise > NOISY * data.unit:
        other = data.estimate(data.fit_usual(fit))
        c = WIDE * min(found.noise, other.noise)
        losses = [float(np.sum(Loss(Kind.TUKEY, c).value(data.residuals(one)))) for one in (found, other)]
        passes = found.n_iter + other.n_iter - fit.n_iter
        found = replace(found if losses[0] <= losses[1] else other, n_iter=passes)
    return data.complete(found)


@dataclass(frozen=True, eq=False)
class _Data:
    """Samples, about zero, and which of them are kept."""

    M: PartialMatrix
    samples: PartialMatrix  # its transpose
    features: Sweep  # over its columns, with zeros for the samples that have no say
    kept: Flags
    centred: bool
    unit: float
    backend: str

    @classmethod
    def of(cls, M: PartialMatrix, kept: Flags, centred: bool, backend: str) -> _Data:
        """The samples M, some of which are kept."""
        some = M if kept.all() else M.with_stored_values(M.values * M.spread_over_rows(1.0 * kept))
        return cls(M, M.T, some.open_sweep(backend), kept, centred, M.median_magnitude() or 1.0, backend)

    def estimate(self, start: AffineFit) -> AffineFit:
        """The MM-estimate from a start."""
        e = self.residuals(start)
        rough = self._settle(replace(start, noise=robust_scale(e)), Kind.TUKEY, STRICT)
        e = self.residuals(rough)
        k, d, n = len(rough.components), self.M.shape[1], int(np.count_nonzero(self.kept))
        parameters = k * (n + d - k) + d
        freedom = max(1 - parameters / (self._active * self.M.nnz), LEAST_FREEDOM)
        noise = trimmed_deviation(e, robust_scale(e)) / math.sqrt(freedom)
        return self._least_squares(self._settle(replace(rough, noise=noise), Kind.TUKEY, WIDE, last=True))

    def _least_squares(self, fit: AffineFit) -> AffineFit:
        """The least squares fit to what is no gross error; the fit itself if many are almost: there may be errors too.

        What is left out is put on the fit, and the fit moves: the more slowly, the more is left out.
        """
        sizes = np.abs(self.residuals(fit)) / (fit.noise or 1.0)
        if np.mean((sizes > CUT) & (sizes <= OUTLIER)) > ALMOST:
            return fit
        for _ in range(ROUNDS if (sizes > OUTLIER).any() else 1):
            e = self.M.open_sweep(self.backend).residual(fit.scores, np.ascontiguousarray(fit.components.T))
            e = e + self.M.spread_over_columns(fit.mean)
            cleaned = self.M.with_stored_values(self.M.values + e * (np.abs(e) > OUTLIER * fit.noise))
            fit = self._of(cleaned)._settle(fit, Kind.SQUARED, 1.0, last=True)
        return fit

    def _of(self, M: PartialMatrix) -> _Data:
        """Of other values at the same positions."""
        return _Data.of(M, self.kept, self.centred, self.backend)

    def fit_usual(self, start: AffineFit) -> AffineFit:
        """The least squares fit, from a start, to entries that are usual for their feature, the others at its level."""
        level = by_columns(self.M, shorths)
        x = self.M.values - self.M.spread_over_columns(level)
        half = (self.M.column_counts + 1) // 2
        scale = CONSISTENT * self.M.open_sweep(self.backend).kth_largest(np.abs(x), half)
        wrapped = x * (np.abs(x) <= self.M.spread_over_columns(CUT * scale)) + self.M.spread_over_columns(level)
        return self._of(self.M.with_stored_values(wrapped))._settle(start, Kind.SQUARED, 1.0)

    def residuals(self, fit: AffineFit) -> Float:
        """About `SAMPLE` residuals of samples that are kept."""
        B, C = self._factors(fit)
        e: Float = np.asarray(self.features.residual(B, C)[:: max(1, self.M.nnz // SAMPLE)], dtype=np.float64)
        return e if self.kept.all() else e[e != 0]

    def _factors(self, fit: AffineFit) -> tuple[Float, Float]:
        """B and C with B Cᵀ the fit to samples that are kept: B orthonormal, its first column constant if centred."""
        ones = np.ones((len(fit.scores), int(self.centred)))
        B, R = np.linalg.qr(self.kept[:, None] * np.hstack([ones, fit.scores]))
        mean = fit.mean[:, None] if self.centred else np.zeros((fit.mean.size, 0))
        return B, np.hstack([mean, fit.components.T]) @ R.T

    def _settle(self, fit: AffineFit, kind: Kind, width: float, *, last: bool = False) -> AffineFit:
        """Regress features and samples in turn until the subspace is at rest; the noise follows until the last time."""
        tolerance = self._tolerance(fit) * (1 if last else ROUGH)
        for _ in range(MAX_PASSES if last else ROUGH_PASSES):
            previous, fit = fit.components, self._pass(fit, kind, width, fixed=last or kind is Kind.SQUARED)
            if float(np.linalg.norm(fit.components - fit.components @ previous.T @ previous)) <= tolerance:
                break
        return fit

    def _pass(self, fit: AffineFit, kind: Kind, width: float, *, fixed: bool) -> AffineFit:
        c = max(width * fit.noise, SMALLEST * self.unit)
        options = Robust(c=c, kind=kind, shrink=SHRINK, unit=self.unit)
        B, C = self._factors(fit)
        fitted = self.features.regress(B, C, options)
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
        noise = fit.noise if fixed else CONSISTENT * fitted.magnitudes.quantile(1 - self._active / 2)
        return AffineFit(mean, scores, axes.T, noise, fit.n_iter + 1)

    @property
    def _active(self) -> float:
        """The share of the entries that have a say."""
        return float(self.M.row_counts[self.kept].sum()) / self.M.nnz

    def _tolerance(self, fit: AffineFit) -> float:
        """A turn of the subspace that is small compared with the error due to noise."""
        (n, d), k = self.M.shape, len(fit.components)
        size = float(np.linalg.norm(fit.scores[self.kept]))
        error = fit.noise * math.sqrt(d * k * (n + d - k) / self.M.nnz * n) / size if size else 0.0
        return max(SETTLED * error, 1e-6)

    def _minus(self, mean: Float) -> PartialMatrix:
        """The samples minus a mean."""
        return subtract(self.samples, self.samples.spread_over_rows(mean)) if mean.any() else self.samples

    def complete(self, fit: AffineFit) -> AffineFit:
        """The fit with scores of all samples, and the mean at the spatial median of those that are kept."""
        if not self.kept.all():
            axes, samples = np.ascontiguousarray(fit.components.T), self._minus(fit.mean)
            lines = LineRegression(samples, samples.open_sweep(self.backend), self.unit, learning=False)
            c = max(EFFICIENT * fit.noise, SMALLEST * self.unit)
            found = lines.refit(axes, lines.fit_from_zero(axes, c, 15), c, 5, like=fit.scores[self.kept]).V
            fit = replace(fit, scores=np.where(self.kept[:, None], fit.scores, found))
        if not self.centred:
            return fit
        known = self.kept & (self.M.row_counts >= min_support(len(fit.components)))
        middle = spatial_median(fit.scores[known if known.any() else self.kept])
        return replace(fit, mean=fit.mean + middle @ fit.components, scores=fit.scores - middle)
