"""Robust regression of lines, the columns (or rows) of a partly observed matrix, on a subspace, each by itself.

The weights 1 / (1 + (e/c)²) are those of the Cauchy loss. `LineRegression` is for solvers that learn the subspace at
the same time; `SubspaceRegression` is for new lines, given a subspace that has been learnt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..entries.protocol import PartialMatrix
from ..entries.statistics import column_sums
from ..linalg.arrays import gram, host, matmul_small, to_device_of
from ..sweeps import Draws, Float, Regression, Robust, Sweep, min_support
from ..sweeps.losses import Kind

# The unit of lengths is the median magnitude of the entries.
EFFICIENT = 2.385  # c / scale of the noise: 95 % of the efficiency of least squares
SMALLEST = 1e-8  # least c, in units: far above rounding, and outliers of any size have no weight any more
EXPLAINED = 1e-5  # in units: an entry this close is explained, however small the noise
WITHIN = 3.0  # in units of c: an entry with a smaller residual is explained
FIRST_C = 6.0  # in units: c at the start of a regression without an initial guess
STEP = 3.0  # largest factor by which c falls from one reweighting to the next, if their number allows
ANNEALING = 12  # values of c in a regression with a ridge
SHRINK = 0.01  # of lines that do not determine their coefficients, while the subspace is learnt
WILD = 10.0  # longest coefficients that are plausible, relative to the usual length
EASY = 0.75  # share of explained entries, above which a line needs no subsets
# Share of explained entries, relative to the usual one, below which a line is refitted; the second value if there are
# at most FEW entries.
POOR, FEW = (0.75, 0.9), 50_000
SHRINKAGE = 1.5  # λ in variances of the noise (see `Prior`)
NEGLIGIBLE = 1e-3  # a prior that shrinks every coefficient by a smaller share is left out
WEAKEST = 1e-3  # least size of a component in a prior, relative to the largest

# Random subsets; pairs are by default, and if `thorough`.
INLIERS = (0.6, 0.5)  # assumed share of the entries of a line that are right
MAX_DRAWS = (200, 10_000)  # of a line
MAX_WORK = (2e7, 3e8)  # draws times (entries times rank + lines times rank³)
MIN_DRAWS = 20
GOOD_DRAWS = 5.0  # expected number of draws without errors, after which a line is done


class LineRegression:
    """The columns of a matrix (or, of its transpose, the rows), regressed on a subspace that is being learnt.

    While `learning`, lines that do not determine their coefficients are shrunk, so that they do not mislead the others.
    In the end they get what fits them, unless that is implausible.
    """

    def __init__(self, M: PartialMatrix, sweep: Sweep, unit: float, *, learning: bool) -> None:
        self.M, self.sweep, self.unit, self.learning = M, sweep, unit, learning

    def refit(
        self, B: Float, C: Float, c: float, n_reweight: int, *, like: Float | None = None, noise: float = 0.0
    ) -> Regression:
        """Regress on B from the coefficients C; `like` are typical ones, by default C.

        With `noise`, coefficients are shrunk by as much as noise of this standard deviation calls for (see `Prior`).
        """
        shrink, largest, like = SHRINK, np.inf, C if like is None else like
        if not self.learning:
            shrink, largest = 0.0, WILD * _usual_length(like) or np.inf
        bound = WITHIN * max(c, EXPLAINED * self.unit)
        options = Robust(c=c, n_reweight=n_reweight, bound=bound, unit=self.unit, shrink=shrink, largest=largest)
        prior = Prior.of(like, noise, self.M.nnz / (len(B) * len(C))) if noise > 0 else None
        if prior is None:
            return self.sweep.regress(B, C, options)
        return prior.regress(self.sweep, B, C, options)

    def fit_from_zero(self, B: Float, c: float, n_reweight: int) -> Float:
        """Regress on B without an initial guess: c decreases from the size of the data."""
        return self.sweep.regress(B, None, Robust(c=c, first_c=FIRST_C * self.unit, n_reweight=n_reweight)).V

    def steps_from_zero(self, c: float) -> int:
        """The number of reweightings in which c decreases from the size of the data by `STEP` each time."""
        return math.ceil(math.log(max(FIRST_C * self.unit / c, 1.0)) / math.log(STEP)) + 1

    def fit_with_subsets(self, B: Float, c: float, *, thorough: bool = False) -> tuple[Float, NDArray[np.int64]]:
        """Regress on B without an initial guess, lines with many unexplained entries by random subsets too.

        Returns the coefficients, and how many entries of each line they explain.
        """
        V = self.fit_from_zero(B, c, n_reweight=15)
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
        """The share of these numbers of entries in those of each line; 1 for a line without any."""
        counts = self.M.column_counts
        return np.asarray(inside / np.maximum(counts, 1) + (counts == 0), dtype=np.float64)

    def explained_share(self, B: Float, C: Float, c: float) -> Float:
        """The share of the entries of each line that the coefficients C on B explain."""
        return self.share(self.refit(B, C, c, 1).inside)

    def refit_poorly_explained(
        self, B: Float, C: Float, c: float, share: Float, usual: float = 0.0
    ) -> tuple[Float, Float, int]:
        """Regress lines again, without an initial guess, that explain an unusually small share of their entries.

        Returns C with the coefficients that are better, their shares, and the number of lines that were improved.
        """
        c = max(c, EXPLAINED * self.unit)
        poor = poorly_explained(share, POOR[self.M.nnz <= FEW], usual)
        M = self.M.take_columns(poor) if poor.size else None
        if M is None:
            return C, share, 0
        M = M.to_host_if_small()
        lines = LineRegression(M, M.open_sweep(self.sweep.host), self.unit, learning=self.learning)
        B = to_device_of(B, M.values)
        new, inside = lines.fit_with_subsets(B, c, thorough=True)
        new_share = lines.share(inside)
        counts, k = M.column_counts, B.shape[1]
        n_new, n_old = new_share * counts, share[poor] * counts
        by_chance = np.maximum(counts - k, 0) * min(0.5 * WITHIN * c / self.unit, 1.0)  # of normal numbers
        any_fit = min_support(k) + by_chance + 2 * np.sqrt(by_chance)  # entries that any fit explains
        better = (n_new > 1.03 * n_old + 1 + k / 4) & (n_new >= any_fit)
        if not self.learning:  # of lines with few entries, any improvement counts
            plausible = np.linalg.norm(host(new), axis=1) <= (WILD * _usual_length(C) or np.inf)
            better |= (n_new > n_old) & (counts < min_support(k)) & plausible
        C, share = C.copy(), share.copy()
        C[to_device_of(poor[better], C)] = to_device_of(new[to_device_of(better, new)], C)
        share[poor[better]] = new_share[better]
        return C, share, int(np.count_nonzero(better))

    def complete(
        self, B: Float, known: NDArray[np.intp], C: Float, c: float, n_reweight: int, *, noise: float = 0.0
    ) -> tuple[Float, Float]:
        """Coefficients of all lines, given those of the known ones; and the share of its entries that each explains."""
        c = max(c, EXPLAINED * self.unit)
        if len(known) == self.M.shape[1]:
            guess = to_device_of(C, self.M.values)
        else:
            guess = self.fit_from_zero(B, c, min(n_reweight, self.steps_from_zero(c)))
            guess[to_device_of(known, guess)] = to_device_of(C, guess)
        fitted = self.refit(B, guess, c, 1, like=C, noise=noise)
        share = self.share(fitted.inside)
        found, share, _ = self.refit_poorly_explained(B, fitted.V, c, share, float(np.median(share[known])))
        return found, share


@dataclass(frozen=True)
class Prior:
    """An empirical Bayes prior of coefficients: normal, with the covariance that those of all lines have.

    In noise of variance σ² it amounts to the ridge λ / s_k², λ = σ², on the k-th principal component of the
    coefficients, whose mean square is s_k². If every entry is observed, and columns and rows are regressed in turn,
    this leaves about d - m λ / d of a singular value d of the data, and nothing of those that are noise. The
    asymptotically best is d - (m + n) σ² / d, hence λ = 1.5 σ². Components far above the noise are hardly shrunk.
    """

    axes: Float  # r x r: the principal axes of the coefficients
    sizes: Float  # r: s, relative to the largest or to the root of their sum of squares
    ridge: float

    @classmethod
    def of(cls, C: Float, noise: float, density: float) -> Prior | None:
        """The prior of coefficients such as C, or None if it is negligible; `density` is the observed share."""
        squares, axes = np.linalg.eigh(gram(C))
        largest = float(squares[-1])
        if not largest > 0 or not math.isfinite(noise):
            return None
        ridge = SHRINKAGE * noise**2 * len(C) / largest
        sizes = np.maximum(np.sqrt(np.maximum(squares / largest, 0.0)), WEAKEST)
        if ridge < NEGLIGIBLE * density * float(sizes.min()) ** 2:
            return None
        return cls(axes, sizes, ridge)

    @classmethod
    def from_covariance(cls, covariance: Float, sigma: float) -> Prior:
        """The prior N(0, covariance + σ² I), in noise of variance σ²."""
        squares, axes = np.linalg.eigh(covariance)
        squares = np.maximum(squares, 0.0) + sigma**2
        total = float(squares.sum())
        return cls(axes, np.sqrt(squares / total), sigma**2 / total)

    def regress(self, sweep: Sweep, B: Float, C: Float | None, options: Robust) -> Regression:
        """Regress the columns of a sweep on B with this prior, from the coefficients C if given."""
        scaling = self.axes * self.sizes  # on B times this, coefficients have the covariance I
        start = None if C is None else matmul_small(C, self.axes / self.sizes)
        fit = sweep.regress(matmul_small(B, scaling), start, replace(options, ridge=self.ridge))
        return fit.with_coefficients(matmul_small(fit.V, scaling.T))


def regress_by_subsets(
    M: ObservedMatrix,
    B: Float,
    C: Float,
    c: float,
    rng: np.random.Generator,
    backend: str = "auto",
    *,
    thorough: bool = False,
) -> Float:
    """Coefficients (n x r) of the columns of M on B (m x r), whose sum of log(1 + (e/c)²) is at most that of C.

    Reweighted regression ends in a wrong local minimum if many entries of a line are wrong. Here, as in RANSAC, random
    subsets of r entries are fitted exactly; if a share q of the entries is right, one draw in (1/q)^r is free of
    errors. The draw with the smallest loss is refined by reweighting.
    """
    n, r = M.shape[1], B.shape[1]
    affordable = int(MAX_WORK[thorough] / (M.nnz * r + n * r**3))
    n_draws = max(MIN_DRAWS, min(math.ceil(GOOD_DRAWS / INLIERS[thorough] ** r), MAX_DRAWS[thorough], affordable))
    seeds = rng.integers(2**64, size=n, dtype=np.uint64)
    sweep = M.open_sweep(backend)
    best = sweep.fit_subsets(B, C, Draws(seeds, n_draws, c, WITHIN * c, GOOD_DRAWS))
    best = sweep.regress(B, best, Robust(c=c, n_reweight=8)).V
    return _with_smaller_loss(M, sweep, B, C, best, c)


def _with_smaller_loss(
    M: ObservedMatrix, sweep: Sweep, B: Float, C: Float, other: Float, c: float, *, ridge: float = 0.0
) -> Float:
    """For each column, the row v of C, or of `other` if its loss Σ log(1 + (e/c)²) + ridge/c² ‖v‖² is smaller."""
    losses = (np.log1p((sweep.residual(B, V) / c) ** 2) for V in (C, other))
    loss, other_loss = column_sums(M, *losses)
    loss, other_loss = (sums + ridge / c**2 * (V * V).sum(axis=1) for sums, V in ((loss, C), (other_loss, other)))
    return np.where((other_loss < loss)[:, None], other, C)


def poorly_explained(share: Float, factor: float, usual: float = 0.0) -> NDArray[np.intp]:
    """Lines whose share is less than `factor` times the median, or the usual share if that is larger."""
    if share.min() >= factor * max(share.max(), usual):  # faster than a median
        return np.empty(0, np.intp)
    return np.flatnonzero(share < factor * max(float(np.median(share)) or float(share.max()), usual))


@dataclass(frozen=True)
class SubspaceRegression:
    """Robust regression of new columns on a given subspace. The coefficients of a column depend on it alone.

    >>> B = np.array([[0.6], [0.8], [0.0]])
    >>> M = ObservedMatrix.from_dense([[6.0], [8.0], [50.0]])
    >>> SubspaceRegression(B, c=0.1, unit=5.0, largest=100.0).coefficients(M).round(6).tolist()
    [[10.0]]
    """

    B: Float  # m x r, orthonormal unless there is a ridge
    c: float  # the scale of the loss
    unit: float  # the median magnitude of the entries
    largest: float = math.inf  # longest coefficients that are accepted if few entries determine them
    ridge: float = 0.0  # ridge/2 ‖v‖² is added to the loss c²/2 Σ log(1 + (e/c)²)

    def coefficients(self, M: ObservedMatrix, backend: str = "auto") -> Float:
        """Coefficients (n x r) of the columns of M.

        The loss is not convex, so c decreases from the size of the data. A ridge decreases with c²: strong components
        are fitted first, so that weak ones cannot fit outliers before. Without a ridge there are two starts, zero and
        least squares, and in each column the result with the smaller loss is taken.
        """
        sweep, options, c = M.open_sweep(backend), self._options, self._options.c
        first_c = max(FIRST_C * self.unit, c)
        if self.ridge:
            V = None
            for wide in np.geomspace(first_c, c, ANNEALING):
                wider = replace(options, c=float(wide), n_reweight=1, ridge=self.ridge * (wide / c) ** 2)
                V = sweep.regress(self.B, V, wider).V
            return sweep.regress(self.B, V, options).V
        fits = []
        for start in (None, sweep.regress(self.B, None, Robust(c=1.0, kind=Kind.SQUARED)).V):
            near = sweep.regress(self.B, start, replace(options, first_c=first_c, n_reweight=15)).V
            fits.append(sweep.regress(self.B, near, options).V)
        from_zero, from_least_squares = fits
        return _with_smaller_loss(M, sweep, self.B, from_zero, from_least_squares, c)

    def better_coefficients(self, M: ObservedMatrix, C: Float, backend: str = "auto") -> Float:
        """For each column of M, those without a start, or its row of C if that has the smaller loss."""
        found, options = self.coefficients(M, backend), self._options
        return _with_smaller_loss(M, M.open_sweep(backend), self.B, found, C, options.c, ridge=self.ridge)

    def coefficients_near(self, start: Float, M: ObservedMatrix, backend: str = "auto") -> Float:
        """Coefficients (n x r) of the columns of M from a start (r numbers): at the nearest minimum of the loss."""
        return M.open_sweep(backend).regress(self.B, np.tile(start, (M.shape[1], 1)), self._options).V

    @property
    def _options(self) -> Robust:
        c = max(self.c, EXPLAINED * self.unit)
        return Robust(c=c, n_reweight=5, largest=self.largest, ridge=self.ridge)


def _usual_length(C: Float) -> float:
    """The median length of the coefficients of about a thousand lines."""
    return float(np.median(np.linalg.norm(host(C[:: max(1, len(C) // 1000)]), axis=1)))
