"""Robust regression of lines: the columns (or rows) of a matrix on a subspace, each by itself, holes, outliers and all.

The weights 1 / (1 + (e/c)²) are those of the Cauchy loss. `LineRegression` serves a solver that learns the subspace
at the same time; `Placement` places new lines on a subspace that has been learnt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..entries.protocol import PartialMatrix
from ..linalg.arrays import gram, host, matmul_small, to_device_of
from ..sweeps import (
    Float,
    Regressed,
    Robust,
    Sweep,
    enough,
)
from ..sweeps.losses import Kind
from .subsets import regress_by_subsets

__all__ = [
    "EFFICIENT",
    "EXPLAINED",
    "SHRINK",
    "SMALLEST",
    "WILD",
    "WITHIN",
    "LineRegression",
    "Placement",
    "Prior",
    "poorly_explained",
]

EFFICIENT = 2.385  # c / scale: 95 % of the efficiency of least squares
SHRINK = 0.01  # of lines that do not determine their coefficients, while the subspace is learnt
SMALLEST = 1e-8  # c, in units: far above rounding, and outliers of any size have no weight any more
WILD = 10.0  # times the usual size: such coefficients are not believed
WITHIN = 3.0  # c: an entry whose residual is less is explained
FROM = 6.0  # units: from this c on a line is regressed without a guess,
STEP = 3.0  # which comes down by this factor in a turn, or more if turns are few
ANNEALING = 12  # steps in which the scale of the loss comes down
EASY = 0.75  # share of its entries that are explained, from which on a line is not looked at again
DOUBTFUL = (0.75, 0.9)  # a line that explains a smaller share of its entries, against the usual, is looked at again;
FEW = 50_000  # the second where there are no more entries than this
SHRINKAGE = 1.5  # λ in variances of the noise (see `Prior`)
UNFELT = 1e-3  # a prior that takes less than this share off every coefficient is left out
WEAKEST = 1e-3  # size of a component against the largest, at least, that its prior has
EXPLAINED = 1e-5  # of the unit: an entry this close is explained, however small the noise


class LineRegression:
    """The columns of a matrix (or, of its transpose, the rows), to be regressed on what the other side has found."""

    def __init__(self, M: PartialMatrix, sweep: Sweep, unit: float, *, learning: bool) -> None:
        self.M, self.sweep, self.unit, self.learning = M, sweep, unit, learning

    def refit(
        self, B: Float, C: Float, c: float, turns: int, *, like: Float | None = None, noise: float = 0.0
    ) -> Regressed:
        """Regress on B, with the weights of the coefficients C at first; `like` are usual ones, C itself if not given.

        Lines that do not determine their coefficients must not lead the others astray while the subspace is learnt;
        in the end they get what fits them, unless it is wild. With `noise`, coefficients are shrunk by as much as noise
        of this standard deviation calls for (see `Prior`).
        """
        shrink, largest, like = SHRINK, np.inf, C if like is None else like
        if not self.learning:
            shrink, largest = 0.0, WILD * _usual_length(like) or np.inf
        bound = WITHIN * max(c, EXPLAINED * self.unit)
        options = Robust(c=c, turns=turns, bound=bound, unit=self.unit, shrink=shrink, largest=largest)
        prior = Prior.of(like, noise, self.M.nnz / (len(B) * len(C))) if noise > 0 else None
        if prior is None:
            return self.sweep.regress(B, C, options)
        return prior.regress(self.sweep, B, C, options)

    def fit_from_zero(self, B: Float, c: float, turns: int) -> Float:
        """Regress on B without a guess: c comes down from the size of the data."""
        return self.sweep.regress(B, None, Robust(c=c, first_c=FROM * self.unit, turns=turns)).V

    def fit_thoroughly(self, B: Float, c: float, *, thorough: bool = False) -> tuple[Float, NDArray[np.int64]]:
        """Regress on B without a guess, with subsets of the entries where many are not explained; how many are."""
        V = self.fit_from_zero(B, c, turns=15)
        inside = self.refit(B, V, c, 1).inside
        counts = self.M.column_counts
        doubtful = np.flatnonzero((inside < EASY * counts) & (counts > B.shape[1] + 1))
        few = self.M.take_columns(doubtful) if doubtful.size and not (self.M.in_pieces or self.M.on_gpu) else None
        if few is None:
            return V, inside
        rng = np.random.default_rng(0x737562)
        V[doubtful] = regress_by_subsets(few.to_host(), B, V[doubtful], c, rng, self.sweep.host, thorough=thorough)
        return V, self.refit(B, V, c, 1).inside

    def share(self, inside: NDArray[np.int64]) -> Float:
        """Of the entries of each line; 1 where there are none."""
        counts = self.M.column_counts
        return np.asarray(inside / np.maximum(counts, 1) + (counts == 0), dtype=np.float64)

    def explained_share(self, B: Float, C: Float, c: float) -> Float:
        """The share of the entries of each line that the coefficients C on B explain."""
        return self.share(self.refit(B, C, c, 1).inside)

    def refit_poorly_explained(
        self, B: Float, C: Float, c: float, share: Float, usual: float = 0.0
    ) -> tuple[Float, Float, int]:
        """Regress the lines that explain a small share of their entries, against the usual, afresh; take the better.

        Gives back the new C, the shares that go with it, and how many of its lines are new.
        """
        c = max(c, EXPLAINED * self.unit)
        doubtful = poorly_explained(share, DOUBTFUL[self.M.nnz <= FEW], usual)
        few = self._some(doubtful) if doubtful.size else None
        if few is None:
            return C, share, 0
        B = to_device_of(B, few.M.values)
        new, inside = few.fit_thoroughly(B, c, thorough=True)
        found = few.share(inside)
        counts = few.M.column_counts
        many, before, k = found * counts, share[doubtful] * counts, B.shape[1]
        by_chance = np.maximum(counts - k, 0) * min(0.5 * WITHIN * c / self.unit, 1.0)  # of normal numbers
        wanted = enough(k) + by_chance + 2 * np.sqrt(by_chance)
        better = (many > 1.03 * before + 1 + k / 4) & (many >= wanted)  # so many are explained by any fit
        if not self.learning:
            tame = np.linalg.norm(host(new), axis=1) <= (WILD * _usual_length(C) or np.inf)
            better |= (many > before) & (counts < enough(k)) & tame  # there is nothing else to go by
        C, share = C.copy(), share.copy()
        C[to_device_of(doubtful[better], C)] = to_device_of(new[to_device_of(better, new)], C)
        share[doubtful[better]] = found[better]
        return C, share, int(np.count_nonzero(better))

    def complete(
        self, B: Float, known: NDArray[np.intp], C: Float, c: float, turns: int, *, noise: float = 0.0
    ) -> tuple[Float, bool]:
        """Coefficients for all lines: C for those known, the others from scratch; and whether one is in doubt."""
        c = max(c, EXPLAINED * self.unit)
        if len(known) == self.M.shape[1]:
            guess = to_device_of(C, self.M.values)
        else:
            steps = math.ceil(math.log(max(FROM * self.unit / c, 1.0)) / math.log(STEP)) + 1
            guess = self.fit_from_zero(B, c, min(turns, steps))
            guess[to_device_of(known, guess)] = to_device_of(C, guess)
        fitted = self.refit(B, guess, c, 1, like=C, noise=noise)
        share = self.share(fitted.inside)
        found, share, _ = self.refit_poorly_explained(B, fitted.V, c, share, float(np.median(share[known])))
        return found, poorly_explained(share, 0.5).size > 0

    def _some(self, which: NDArray[np.intp]) -> LineRegression | None:
        M = self.M.take_columns(which)
        if M is None:
            return None
        M = M.to_host_if_small()
        return LineRegression(M, M.open_sweep(self.sweep.host), self.unit, learning=self.learning)


@dataclass(frozen=True)
class Prior:
    """What coefficients are likely to be: normal, with the covariance that those of all lines have.

    Noise of variance σ² then asks for the ridge λ / s_k², λ = σ², on the k-th principal component of the coefficients,
    whose mean square is s_k². Where every entry is observed, and both sides are regressed in turn, the rows last, this
    leaves about d - m λ / d of a singular value d of the data, and nothing of those that are noise. The best there is
    in the long run is d - (m + n) σ² / d, so λ = 1.5 σ² suits. Where the noise is nothing beside the components, so is
    what is taken off.
    """

    axes: Float  # r x r: the principal axes of the coefficients,
    sizes: Float  # r: s, against the largest or the root of their sum of squares
    ridge: float

    @classmethod
    def of(cls, C: Float, noise: float, density: float) -> Prior | None:
        """The prior of coefficients such as C, or None if it would not be felt; `density` is the share observed."""
        squares, axes = np.linalg.eigh(gram(C))
        largest = float(squares[-1])
        if not largest > 0 or not math.isfinite(noise):
            return None
        ridge = SHRINKAGE * noise**2 * len(C) / largest
        sizes = np.maximum(np.sqrt(np.maximum(squares / largest, 0.0)), WEAKEST)
        if ridge < UNFELT * density * float(sizes.min()) ** 2:
            return None
        return cls(axes, sizes, ridge)

    @classmethod
    def from_covariance(cls, covariance: Float, sigma: float) -> Prior:
        """The prior N(0, covariance + σ² I), in noise of variance σ²."""
        squares, axes = np.linalg.eigh(covariance)
        squares = np.maximum(squares, 0.0) + sigma**2
        total = float(squares.sum())
        return cls(axes, np.sqrt(squares / total), sigma**2 / total)

    def regress(self, sweep: Sweep, B: Float, C: Float | None, options: Robust) -> Regressed:
        """Regress the columns of a sweep on B with this prior, from the coefficients C if given."""
        start = None if C is None else self.whitened(C)
        found = sweep.regress(self.scaled(B), start, replace(options, ridge=self.ridge))
        return found.with_coefficients(self.coloured(found.V))

    def scaled(self, B: Float) -> Float:
        """B, so that the coefficients on it are alike in size."""
        found: Float = matmul_small(B, self.axes * self.sizes)
        return found

    def whitened(self, C: Float) -> Float:
        """Coefficients on B as those on `scaled(B)`."""
        found: Float = matmul_small(C, self.axes / self.sizes)
        return found

    def coloured(self, C: Float) -> Float:
        """Coefficients on `scaled(B)` as those on B."""
        found: Float = matmul_small(C, (self.axes * self.sizes).T)
        return found


def poorly_explained(share: Float, part: float, usual: float = 0.0) -> NDArray[np.intp]:
    """Lines whose share is less than this part of the usual one, or of the median; of the largest, if most have none.

    >>> poorly_explained(np.array([0.9, 0.4, 0.8]), 0.75).tolist()
    [1]
    """
    if share.min() >= part * max(share.max(), usual):  # which takes a tenth of the time of a median
        return np.empty(0, np.intp)
    return np.flatnonzero(share < part * max(float(np.median(share)) or float(share.max()), usual))


@dataclass(frozen=True)
class Placement:
    """How new columns are placed on a subspace. What a column gets depends on that column alone.

    >>> B = np.array([[0.6], [0.8], [0.0]])
    >>> M = ObservedMatrix.from_dense([[6.0], [8.0], [50.0]])
    >>> Placement(B, c=0.1, unit=5.0, largest=100.0).coefficients(M).round(6).tolist()
    [[10.0]]
    """

    B: Float  # m x r, orthonormal unless there is a ridge
    c: float  # the scale of the loss
    unit: float  # the usual size of an entry
    largest: float = math.inf  # length of coefficients that are believed though few entries bear them out
    ridge: float = 0.0  # ridge/2 ‖v‖² is added to the loss c²/2 Σ log(1 + (e/c)²)

    def coefficients(self, M: ObservedMatrix, backend: str = "auto") -> Float:
        """Coefficients (n x r) of the columns of M.

        The loss is not convex. c comes down from the size of the data. With a ridge, that comes down with c²: the
        strong components are placed first, and the weak ones cannot take the side of an outlier before. Without one
        there are two starts, from zero and from least squares; in each column that end counts where the sum of the
        loss is smaller.
        """
        sweep = M.open_sweep(backend)
        c = max(self.c, EXPLAINED * self.unit)
        options = Robust(c=c, turns=5, largest=self.largest, ridge=self.ridge)
        if self.ridge:
            return sweep.regress(self.B, self._annealed(sweep, options), options).V
        fits = []
        for start in (None, sweep.regress(self.B, None, Robust(c=1.0, kind=Kind.SQUARED)).V):
            near = sweep.regress(self.B, start, replace(options, first_c=max(6 * self.unit, c), turns=15)).V
            V = sweep.regress(self.B, near, options).V
            fits.append((V, _by_column(M, np.log1p((sweep.residual(self.B, V) / c) ** 2))))
        (V, loss), (other, loss_other) = fits
        return np.where((loss_other < loss)[:, None], other, V)

    def _annealed(self, sweep: Sweep, options: Robust) -> Float | None:
        V = None
        for c in np.geomspace(max(6 * self.unit, options.c), options.c, ANNEALING):
            V = sweep.regress(
                self.B, V, replace(options, c=float(c), turns=1, ridge=self.ridge * (c / options.c) ** 2)
            ).V
        return V


def _usual_length(C: Float) -> float:
    """Of the coefficients of a line: the median over about a thousand lines."""
    return float(np.median(np.linalg.norm(host(C[:: max(1, len(C) // 1000)]), axis=1)))


def _by_column(M: ObservedMatrix, y: Float) -> Float:
    """The sums of one value per entry over each column."""
    return np.bincount(M.columns_of_entries(), weights=y, minlength=M.shape[1]).astype(np.float64, copy=False)
