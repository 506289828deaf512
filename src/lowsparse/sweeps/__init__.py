"""The sweep: one pass over the columns, given the subspace U, and the backends that run it.

Solvers say *what* to compute for each column; a backend (NumPy, the compiled core, a GPU) says *how*. It is opened on
the data once per solve; those for data in memory are found here by their names.
"""

from __future__ import annotations

import importlib
import os
import warnings
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..linalg.arrays import Float as Float  # for all who import it from here
from .losses import Kind, Loss

# For data in memory, in the order of preference. A module offers `reason_unavailable()` and a class `ColumnSweep`.
BACKENDS = {"native": ".native", "numpy": ".reference"}


class Columns(Protocol):
    """Entries sorted by column: column j holds ``values[indptr[j]:indptr[j+1]]`` in the ascending ``rows`` there."""

    @property
    def indptr(self) -> NDArray[np.int64]:
        """Where each column starts, and where the last one ends."""

    @property
    def rows(self) -> NDArray[np.int32]:
        """The row of each entry."""

    @property
    def values(self) -> NDArray[np.floating[Any]]:
        """The value of each entry."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""


class Rule(IntEnum):
    """What a sweep computes for each column, given U."""

    FIT = 0  # v alone
    MANPG = 1  # v; S and the gradient both from v (Algorithm 1)
    AMANPG = 2  # v; S; v again for the new S, and the gradient (Algorithm 2)


@dataclass(frozen=True)
class Proximal:
    """Options of a sweep: its rule, and the proximal step in S."""

    rule: Rule
    gamma: float = 0.0  # γ: the threshold of a step of size 1
    t_S: float = 1.0  # the size of the step
    lambda2: float = 0.0  # λ², the weight of the unobserved entries in f


class Previous(NamedTuple):
    """V of an earlier sweep, with the change of basis to the U of this one: `rotation` V is compared with the new V."""

    V: Float  # r x n
    rotation: Float  # r x r


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep: the coefficients, the gradient, and a few sums.

    With e = P_Ω(UV) − x and λ² = ``Proximal.lambda2``, the smooth part is
    f(U, S) = ½‖e + S‖² + λ²/2 (‖V‖² − ‖P_Ω(UV)‖²) at V = V(U, S), for orthonormal U.
    """

    V: Float  # r x n: V(U, S) for FIT and MANPG, V(U, S_out) for AMANPG
    G: Float  # m x r: the Riemannian gradient of f with respect to U, at that V; empty for FIT
    GtG: Float  # r x r
    VVt: Float  # r x r
    smooth_in: float  # f(U, S)
    smooth_out: float  # f(U, S_out); AMANPG only
    l1: float  # ‖S_out‖₁
    dS: float  # ‖S_out − S‖
    dV: float  # ‖V − rotation V'‖ if there is a ``previous`` V'; else 0

    def retracted(self, U: Float, step: float) -> Float | None:
        """(U + step G) R⁻¹ with RᵀR = I + step² GᵀG, if a backend can compute it early; only until the next sweep."""
        return None


MAGNITUDE_BINS = 1024


@dataclass(frozen=True)
class Magnitudes:
    """A histogram of the magnitudes of residuals: eight bins to a factor of two, from 2⁻⁶⁴ to 2⁶⁴ units.

    >>> Magnitudes.of(np.array([1.0, -2.0, 3.0, 100.0]), unit=1.0).quantile(0.5)
    2.25
    """

    counts: NDArray[np.int64]
    unit: float

    @classmethod
    def of(cls, e: Float, unit: float) -> Magnitudes:
        """Count |e|."""
        bins = (np.abs(e / unit).view(np.int64) >> 49) - ((1023 - 64) << 3)
        return cls(np.bincount(np.clip(bins, 0, MAGNITUDE_BINS - 1), minlength=MAGNITUDE_BINS), unit)

    def quantile(self, q: float) -> float:
        """The magnitude that the share q does not exceed, to within a few per cent."""
        cumulated = np.cumsum(self.counts)
        wanted = q * float(cumulated[-1])
        k = min(int(np.searchsorted(cumulated, wanted)), MAGNITUDE_BINS - 1)
        if k == 0:
            return 0.0  # or below the smallest bin
        inside = (wanted - float(cumulated[k] - self.counts[k])) / max(int(self.counts[k]), 1)
        return self.unit * 2.0 ** (k // 8 - 64) * (1 + (k % 8 + inside) / 8)

    def share(self, below: float) -> float:
        """The share of the residuals that are smaller than this, to within a bin."""
        smaller = Magnitudes.of(np.array([below]), self.unit).counts.argmax()
        return float(self.counts[:smaller].sum() / max(self.counts.sum(), 1))


def min_support(r: int) -> float:
    """The least sum of weights at which a fit of r coefficients to a column is evidence that they are right."""
    return 1.25 * r + 1


@dataclass(frozen=True, kw_only=True)
class Robust:
    """Options of a robust regression: least squares under the weights of a loss with scale c, `n_reweight` times.

    A column with little weight does not determine its r coefficients. (10⁻¹⁰ + shrink lack³) r / m is added to the
    diagonal of its normal equations, where lack falls from 1 (Σw ≤ r) to 0 (Σw ≥ 2r); coefficients longer than
    `largest` become zero if Σw < `min_support`. The `ridge`, times the mean weight of the column, is added there too,
    so that a column that fits badly is not shrunk more. With a ridge U need not be orthonormal.
    """

    c: float  # of the last weights
    first_c: float | None = None  # of the first; None: the same
    kind: Kind = Kind.CAUCHY
    p: float = 1.0  # the exponent of Kind.POWER
    n_reweight: int = 1
    shrink: float = 0.0
    ridge: float = 0.0
    largest: float = np.inf
    bound: float = 0.0  # residuals up to this are counted, column by column
    unit: float = 1.0  # of the magnitudes
    total_entries: int = 0  # of the whole matrix, where this is a piece of it: sets the sampling rate of the magnitudes


@dataclass(frozen=True)
class Regression:
    """The result of a robust regression of the columns."""

    V: Float  # n x r, a row for each column
    inside: NDArray[np.int64]  # n: residuals of each column within `bound`, before the last fit
    magnitudes: Magnitudes  # of the residuals at the V it started from, or of a sample of them

    def with_coefficients(self, V: Float) -> Regression:
        """The same with other coefficients, such as those in another basis."""
        return Regression(V, self.inside, self.magnitudes)


@dataclass(frozen=True)
class Gradient:
    """The sum of a loss over the residuals e = P_Ω(U Vᵀ) - x, and its derivatives; Y = Sp(ψ(e))."""

    value: float
    U: Float  # m x r: Y V
    V: Float  # n x r: Yᵀ U


class Multiplier(NamedTuple):
    """Λ of an augmented Lagrangian and w = Z - Λ/β - UVᵀ, one value of each per entry."""

    values: Float
    w: Float


@dataclass(frozen=True)
class Ascent:
    """The result of one pass of the augmented Lagrangian (see `Sweep.ascend`)."""

    V: Float  # n x r
    G: Float  # m x r: Sp(w⁺) V
    l1: float  # Σ|e|
    infeasible: float  # ‖UVᵀ - Z‖ on Ω


class Sweep(Protocol):
    """One pass over the columns of a partly observed matrix."""

    name: str
    host: str  # the backend for parts of the data in the memory of the processor

    def sweep(
        self, U: Float, S: NDArray[Any], S_out: NDArray[Any] | None, options: Proximal, previous: Previous | None = None
    ) -> SweepResult:
        """Solve each column for v, shrink S into ``S_out``, and sum up the gradient, as ``options.rule`` says."""

    def regress(self, U: Float, V: Float | None, options: Robust) -> Regression:
        """Regress each column robustly on the orthonormal U; the first weights are those at V (n x r; None: zeros)."""

    def residual(self, U: Float, V: Float) -> Float:
        """P_Ω(U Vᵀ) - x, one value per entry; V is n x r."""

    def entries(self, U: Float, V: Float) -> Float:
        """P_Ω(U Vᵀ), one value per entry; V is n x r."""

    def product(self, y: Float, V: Float) -> Float:
        """Sp(y) V (m x k), for one value y per entry and V (n x k)."""

    def product_transposed(self, y: Float, U: Float) -> Float:
        """Sp(y)ᵀ U (n x k), for one value y per entry and U (m x k)."""

    def gradient(self, U: Float, V: Float, loss: Loss) -> Gradient:
        """Σ ρ(e) over Ω and its derivatives, e = P_Ω(U Vᵀ) - x, without an array as long as Ω."""

    def curvature(self, U: Float, V: Float, B: Float, loss: Loss) -> float:
        """Σ w(e) d² over Ω, for d = P_Ω(U Bᵀ): twice the quadratic bound of the loss at U Vᵀ along U Bᵀ.

        Any direction A Bᵀ has this form: U becomes [U, A], V becomes [V, 0] and B becomes [0, B].
        """

    def ascend(self, U: Float, C: Float, current: Multiplier, out: Multiplier, beta: float, next_beta: float) -> Ascent:
        """The V, Z and Λ steps of the augmented Lagrangian ‖P_Ω(Z - M)‖₁ + ⟨Λ, UVᵀ - Z⟩ + β/2 ‖UVᵀ - Z‖².

        v = c + Uᵀw for each column (c a row of C, n x r); e = Uv - x; Λ⁺ = clip(Λ + βe, ±1); w⁺ = (Λ - Λ⁺)/β - Λ⁺/β'.
        Λ and w are those of `current`; Λ⁺ and w⁺ are written to `out`, which must be other memory.
        """

    def grams(self, U: Float) -> Float:
        """For each column, the Gram matrix of the rows of U that it observes (n x r x r)."""

    def kth_largest(self, y: Float, k: NDArray[np.int64]) -> Float:
        """For each column, the k-th largest |y| of its entries; infinite for k = 0, zero if it has fewer than k."""

    def gram_product(self, Q: Float) -> Float:
        """Return A Aᵀ Q (m x k) for the observed matrix A with zeros where nothing was observed."""


@dataclass(frozen=True)
class Draws:
    """Options of `fit_subsets`, which draws subsets of r entries of each column at random."""

    seeds: NDArray[np.uint64]  # n: one for each column
    max_draws: int  # of a column
    c: float  # the best fit has the smallest sum of log(1 + (e/c)²) over the column
    bound: float  # entries with residuals up to this count as correct
    clean_draws: float  # draws of a column end when this many of them are expected to have held correct entries only


@dataclass(frozen=True)
class Blocks:
    """Diagonal blocks of a matrix without entries elsewhere, each to be fitted up to a rank."""

    row_starts: NDArray[np.int64]  # the first row of each block, and the end
    column_starts: NDArray[np.int64]
    start_vectors: Float  # rank x n: where the search for a leading singular vector begins, for each rank
    unit: float  # the typical size of an entry


class BlockFits(NamedTuple):
    """L = U Vᵀ on each block, U orthonormal there."""

    U: Float  # m x rank, zero beyond the rank of a block
    V: Float  # n x rank
    noise: Float  # of each block: the scale of its residuals
    ranks: NDArray[np.int64]  # of each block: less than the highest rank if the fit is exact


class HostSweep(Sweep, Protocol):
    """A sweep over data in the memory of the processor."""

    def fit_subsets(self, U: Float, V: Float, draws: Draws) -> Float:
        """For each column, the best of the fits to r of its entries; V if it has at most r, or none is determined."""

    def fit_blocks(self, blocks: Blocks) -> BlockFits:
        """Fit each block robustly, one rank after the other, until it is exact or of the highest rank.

        A new rank begins with the leading singular vector of the clipped residuals; the columns and the rows are then
        regressed alternately, under the weights of a Cauchy loss whose scale follows the residuals.
        """


def reason_unavailable(backend: str) -> str | None:
    """None if a backend for data in memory can run here, else why not."""
    why: str | None = _module(backend).reason_unavailable()
    return why


def _module(backend: str) -> Any:
    return importlib.import_module(BACKENDS[backend], __package__)


def chosen_backend(backend: str = "auto") -> str:
    """The backend for data in memory that a name stands for, if it can run here.

    "auto" is LOWSPARSE_BACKEND, if that runs over memory; else the compiled core, or NumPy with a warning.
    """
    if backend == "auto":
        backend = host_backend(os.environ.get("LOWSPARSE_BACKEND", ""))
    if backend == "auto":
        why = reason_unavailable("native")
        if why is None:
            return "native"
        warnings.warn(f"running on NumPy, which is much slower: {why}", RuntimeWarning, stacklevel=4)
        return "numpy"
    if backend not in BACKENDS:
        raise ValueError(f"backend {backend!r} does not run over data in memory: choose 'auto', 'native' or 'numpy'")
    why = reason_unavailable(backend)
    if why is not None:
        raise RuntimeError(f"backend {backend!r} cannot run here: {why}")
    return backend


def host_backend(backend: str) -> str:
    """The backend for data in memory, in a solve that runs on `backend`: the same if it can, else "auto"."""
    return backend if backend in BACKENDS else "auto"


def open_sweep(M: Columns, backend: str = "auto") -> HostSweep:
    """Open a backend on compressed columns in memory."""
    opened: HostSweep = _module(chosen_backend(backend)).ColumnSweep(M)
    return opened
