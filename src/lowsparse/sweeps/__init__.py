"""The waist: one pass over the columns, given the subspace U, and the ways to run it.

Everything above it (solvers) says *what* is asked of each column; everything below it (NumPy, the compiled core, a GPU)
says *how*. A backend is opened on the data once per solve and found by its name in a small registry.
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

from .losses import Kind, Loss

__all__ = [
    "BACKENDS",
    "Ascent",
    "Columns",
    "Draws",
    "Float",
    "Gradient",
    "HostSweep",
    "Magnitudes",
    "Multiplier",
    "Previous",
    "Proximal",
    "Regressed",
    "Robust",
    "Rule",
    "Sweep",
    "Swept",
    "chosen_backend",
    "enough",
    "host_backend",
    "open_sweep",
    "reason_unavailable",
]

Float = NDArray[np.float64]

# For data in memory, in the order of preference. A module offers `reason_unavailable()` and a class `ColumnSweep`.
BACKENDS = {"native": ".native", "numpy": ".reference"}


class Columns(Protocol):
    """Entries sorted by column: column j holds ``values[indptr[j]:indptr[j+1]]`` in the ascending ``rows`` there."""

    @property
    def indptr(self) -> NDArray[np.int64]:
        """Where each column starts, and where the last one ends."""
        ...

    @property
    def rows(self) -> NDArray[np.int32]:
        """The row of each entry."""
        ...

    @property
    def values(self) -> NDArray[np.floating[Any]]:
        """The value of each entry."""
        ...

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        ...


class Rule(IntEnum):
    """What a sweep does with each column, given U."""

    FIT = 0  # v alone
    MANPG = 1  # v; S and the gradient both from v (Algorithm 1)
    AMANPG = 2  # v; S; v again for the new S, and the gradient (Algorithm 2)


@dataclass(frozen=True)
class Proximal:
    """How to sweep a column: by which rule, S by a step against the gradient of f, shrunk by the threshold."""

    rule: Rule
    gamma: float = 0.0  # the threshold, of a whole step
    t_S: float = 1.0  # the step
    lambda2: float = 0.0  # λ², the weight of what is not observed in f


class Previous(NamedTuple):
    """What V is to be compared with: turn V, of an earlier sweep."""

    V: Float  # r x n
    turn: Float  # r x r


@dataclass(frozen=True)
class Swept:
    """What one sweep gives back: the coefficients, the gradient, and a few sums.

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
    dV: float  # ‖V − turn V'‖ for what was ``previous``; else 0

    def retracted(self, U: Float, step: float) -> Float | None:
        """(U + step G) R⁻¹ with RᵀR = I + step² GᵀG, if that is to be had before GᵀG is; not after the next sweep."""
        return None


MAGNITUDE_BINS = 1024


@dataclass(frozen=True)
class Magnitudes:
    """How large the residuals are: counts in eight bins to a factor of two, from 2⁻⁶⁴ to 2⁶⁴ units.

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
            return 0.0  # or too small to tell
        inside = (wanted - float(cumulated[k] - self.counts[k])) / max(int(self.counts[k]), 1)
        return self.unit * 2.0 ** (k // 8 - 64) * (1 + (k % 8 + inside) / 8)

    def share(self, below: float) -> float:
        """The share of the residuals that are smaller than this, to within a bin.

        >>> Magnitudes.of(np.array([1.0, -2.0, 3.0, 100.0]), unit=1.0).share(below=50.0)
        0.75
        """
        smaller = Magnitudes.of(np.array([below]), self.unit).counts.argmax()
        return float(self.counts[:smaller].sum() / max(self.counts.sum(), 1))


def enough(r: int) -> float:
    """The sum of weights from which on the fit of a column by r coefficients is evidence that they are right.

    >>> enough(4)
    6.0
    """
    return 1.25 * r + 1


@dataclass(frozen=True, kw_only=True)
class Robust:
    """How to regress a column: least squares under the weights of a loss with the scale c, solved `turns` times.

    A column with little weight does not determine its r coefficients. (10⁻¹⁰ + shrink lack³) r / m is added to the
    diagonal of its normal equations, and lack goes from 1 (Σw ≤ r) to 0 (Σw ≥ 2r); coefficients longer than `largest`
    become zero if Σw is not `enough`. The `ridge`, times the mean weight of the column, is added there too: a column
    that fits badly is not shrunk the more for it. With a ridge U need not be orthonormal.
    """

    c: float  # in the last turn
    first_c: float | None = None  # in the first; None: the same
    kind: Kind = Kind.CAUCHY
    p: float = 1.0  # the exponent, of Kind.POWER alone
    turns: int = 1
    shrink: float = 0.0
    ridge: float = 0.0
    largest: float = np.inf
    bound: float = 0.0  # residuals up to this are counted, column by column
    unit: float = 1.0  # of the magnitudes that are counted
    of: int = 0  # entries of the whole matrix, if this is a piece of it: so much larger is the sample that is counted


@dataclass(frozen=True)
class Regressed:
    """What a robust regression of the columns gives back."""

    V: Float  # n x r, a row for each column
    inside: NDArray[
        np.int64
    ]  # n: of the residuals at the V it started from, how many of each column are within `bound`
    before: Magnitudes  # of those residuals, or of a sample

    def with_coefficients(self, V: Float) -> Regressed:
        """The same with other coefficients, such as those on another basis."""
        return Regressed(V, self.inside, self.before)


@dataclass(frozen=True)
class Gradient:
    """The sum of a loss over the residuals e = P_Ω(U Vᵀ) - x, and its derivatives; Y = Sp(ψ(e))."""

    value: float
    U: Float  # m x r: Y V
    V: Float  # n x r: Yᵀ U


class Multiplier(NamedTuple):
    """Λ of an augmented Lagrangian, and w = Z - Λ/β - UVᵀ, one value of each per entry."""

    values: Float
    w: Float


@dataclass(frozen=True)
class Ascent:
    """What one pass of the augmented Lagrangian gives back (see `Sweep.ascend`)."""

    V: Float  # n x r
    G: Float  # m x r: Sp(w⁺) V
    l1: float  # Σ|e|
    infeasible: float  # ‖UVᵀ - Z‖ on Ω


class Sweep(Protocol):
    """One pass over the columns of a partly observed matrix."""

    name: str
    host: str  # the backend for parts of the data that are in the memory of the processor

    def sweep(
        self, U: Float, S: NDArray[Any], S_out: NDArray[Any] | None, options: Proximal, before: Previous | None = None
    ) -> Swept:
        """Solve each column for v, shrink S into ``S_out``, and sum up the gradient, as ``options`` says."""
        ...

    def regress(self, U: Float, V: Float | None, options: Robust) -> Regressed:
        """Regress each column on U, orthonormal, robustly; the first weights are those of V (n x r; None: zeros)."""
        ...

    def residual(self, U: Float, V: Float) -> Float:
        """P_Ω(U Vᵀ) - x, one value per entry; V is n x r."""
        ...

    def entries(self, U: Float, V: Float) -> Float:
        """P_Ω(U Vᵀ), one value per entry; V is n x r."""
        ...

    def product(self, y: Float, V: Float) -> Float:
        """Sp(y) V (m x k), for one value y per entry and V (n x k)."""
        ...

    def product_transposed(self, y: Float, U: Float) -> Float:
        """Sp(y)ᵀ U (n x k), for one value y per entry and U (m x k)."""
        ...

    def gradient(self, U: Float, V: Float, loss: Loss) -> Gradient:
        """Σ ρ(e) over Ω and its derivatives, e = P_Ω(U Vᵀ) - x, without an array as long as Ω."""
        ...

    def curvature(self, U: Float, V: Float, B: Float, loss: Loss) -> float:
        """Σ w(e) d² over Ω, for d = P_Ω(U Bᵀ): twice the quadratic bound of the loss at U Vᵀ along U Bᵀ.

        Any direction A Bᵀ has this form: U becomes [U, A], V becomes [V, 0] and B becomes [0, B].
        """
        ...

    def ascend(self, U: Float, C: Float, now: Multiplier, out: Multiplier, beta: float, next_beta: float) -> Ascent:
        """The V, Z and Λ steps of the augmented Lagrangian ‖P_Ω(Z - M)‖₁ + ⟨Λ, UVᵀ - Z⟩ + β/2 ‖UVᵀ - Z‖².

        v = c + Uᵀw for each column (c a row of C, n x r); e = Uv - x; Λ⁺ = clip(Λ + βe, ±1); w⁺ = (Λ - Λ⁺)/β - Λ⁺/β'.
        Λ and w are those of `now`; Λ⁺ and w⁺ are written to `out`, which must be other memory.
        """
        ...

    def grams(self, U: Float) -> Float:
        """Of each column: the Gram matrix of the rows of U that it observes (n x r x r)."""
        ...

    def kth_largest(self, y: Float, k: NDArray[np.int64]) -> Float:
        """Of each column: the k-th largest |y| of its entries; infinite for k = 0, zero if it has fewer than k."""
        ...

    def gram_product(self, Q: Float) -> Float:
        """Return A Aᵀ Q (m x k) for the observed matrix A with zeros where nothing was observed."""
        ...


@dataclass(frozen=True)
class Draws:
    """Subsets of r entries of each column, at random."""

    seeds: NDArray[np.uint64]  # n: what is drawn of a column depends on its own
    many: int  # draws of a column, at most
    c: float  # the fit with the smallest sum of log(1 + (e/c)²) over the column is the best
    bound: float  # residuals up to this are those of entries that are right
    good: float  # draws end when so many of them can be expected to have had none but right ones


@dataclass(frozen=True)
class Blocks:
    """Blocks of rows and columns of a matrix that has no entries elsewhere, to be fitted up to a rank."""

    row_starts: NDArray[np.int64]  # the first row of each block, and the end
    column_starts: NDArray[np.int64]
    begin: Float  # rank x n: where the search for a leading singular vector begins, for each rank
    unit: float  # the usual size of an entry


class BlockFits(NamedTuple):
    """L = U Vᵀ on each of some blocks, U orthonormal there."""

    U: Float  # m x rank, zero beyond the rank of a block
    V: Float  # n x rank
    noise: Float  # of each block: the scale of what L leaves
    ranks: NDArray[np.int64]  # of each block: less than the rank if the fit is exact


class HostSweep(Sweep, Protocol):
    """A pass over data that the processor has."""

    def subsets(self, U: Float, V: Float, draws: Draws) -> Float:
        """Of each column the best fit to r of its entries; V where it has no more than r, or none determines them."""
        ...

    def climb(self, blocks: Blocks) -> BlockFits:
        """Fit each block robustly, one rank after the other, until it is exact or of the highest rank.

        A new rank begins with the leading singular vector of the clipped residuals; the columns and the rows are then
        regressed in turn, under the weights of a Cauchy loss whose scale follows the residuals.
        """
        ...


def reason_unavailable(backend: str) -> str | None:
    """None if a backend for data in memory can run here, else why not.

    >>> reason_unavailable("numpy") is None
    True
    """
    why: str | None = _module(backend).reason_unavailable()
    return why


def _module(backend: str) -> Any:
    return importlib.import_module(BACKENDS[backend], __package__)


def chosen_backend(backend: str = "auto") -> str:
    """The backend for data in memory that a name stands for, if it can run here.

    "auto" is what LOWSPARSE_BACKEND names, if that runs over memory; else the compiled core, or NumPy with a warning.

    >>> chosen_backend("numpy")
    'numpy'
    """
    if backend == "auto":
        asked = os.environ.get("LOWSPARSE_BACKEND", "")
        backend = asked if asked in BACKENDS else "auto"
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
    """The backend for what is in memory, where a solve was asked to run on `backend`, which may be elsewhere.

    >>> host_backend("numpy"), host_backend("cuda")
    ('numpy', 'auto')
    """
    return backend if backend in BACKENDS else "auto"


def open_sweep(M: Columns, backend: str = "auto") -> HostSweep:
    """Open a backend on compressed columns in memory.

    >>> from lowsparse import ObservedMatrix
    >>> open_sweep(ObservedMatrix.from_dense([[1.0, 2.0], [3.0, float("nan")]]), "numpy").name
    'numpy'
    """
    opened: HostSweep = _module(chosen_backend(backend)).ColumnSweep(M)
    return opened
