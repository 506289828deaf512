"""The sweep on the compiled core (``cpp/``): what `reference` computes, as fast as memory allows."""

import math
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..support.cpus import available_cpus
from . import (
    Ascent,
    BlockFits,
    Blocks,
    Columns,
    Draws,
    Float,
    Gradient,
    Magnitudes,
    Multiplier,
    Previous,
    Proximal,
    Regression,
    Robust,
    SweepResult,
)
from .losses import Loss

THREADS = ("LOWSPARSE_NUM_THREADS", "OMP_NUM_THREADS")  # the environment variables, the first that is set counts

_reason: str | None = None
try:
    import lowsparse._core as _core
except ModuleNotFoundError:
    _reason = (
        "lowsparse was installed without its compiled core, as there was no C++17 compiler or the build failed; "
        "install a compiler, such as g++, then install lowsparse again"
    )
except ImportError as error:
    _reason = f"the compiled core does not load ({error}); install lowsparse again"

MOST_NEIGHBOURS = 32  # of a moment, that `bridge` takes: most_neighbours in kernels.hpp
PER_THREAD = 8000  # entries, at least: a pass over 30,000 takes longer with 16 threads than with one


def reason_unavailable() -> str | None:
    """None when the compiled core can be used, else why not."""
    return _reason


def core() -> Any:
    """The compiled core, if it can be used."""
    return _core


def num_threads() -> int:
    """Threads to use: LOWSPARSE_NUM_THREADS, else OMP_NUM_THREADS, else one per processor this process may use."""
    for name in THREADS:
        text = os.environ.get(name, "").split(",")[0].strip()  # OpenMP allows a list, one number per level
        if text:
            if not text.isdecimal() or int(text) < 1:
                raise ValueError(f"{name}={text!r} is not a positive whole number")
            return min(int(text), 4096)
    return available_cpus()


def instruction_set() -> str:
    """The instruction set in use: LOWSPARSE_ISA, else the best this processor has."""
    return os.environ.get("LOWSPARSE_ISA") or str(_core.instruction_sets()[0])


def _contiguous(A: Float) -> Float:
    return np.ascontiguousarray(A, dtype=np.float64)


def squeeze(numbers: NDArray[Any], bits: NDArray[np.uint64], found: NDArray[Any]) -> int:
    """Write a bit for each number, and the nonzero ones if `found` is long enough; returns how many there are."""
    return _core.squeeze(numbers, bits, found, instruction_set(), num_threads())


def expand(bits: NDArray[np.uint64], found: NDArray[Any], numbers: NDArray[Any]) -> None:
    """The inverse of `squeeze`."""
    _core.expand(bits, found, numbers, num_threads())


def condition(X: Float, missing: NDArray[np.bool_], K: Float, pull: Float, total: Float) -> None:
    """Write conditional means into X where it is missing, and add their covariances to `total` unless it is empty."""
    _core.condition(X, missing, _contiguous(K), pull, total, instruction_set())


def bridge(
    correlations: Float,
    moments: NDArray[np.int64],
    series: NDArray[np.int64],
    neighbours: NDArray[np.int32],
    noise: float,
) -> Float:
    """The weights of the neighbours of moments of series, whose correlations are lags x series."""
    weights = np.empty(neighbours.shape)
    _core.bridge(_contiguous(correlations.T), moments, series, neighbours, noise, weights, instruction_set())
    return weights


def weigh(
    R: Float,
    bounds: Float,
    series: NDArray[np.int64],
    neighbours: NDArray[np.int32],
    system: NDArray[np.int64],
    weights: Float,
) -> Float:
    """Entries of series R, moments x series, by the weights that their systems have for their neighbours."""
    out = np.empty(len(series))
    _core.weigh(_contiguous(R), bounds, series, neighbours, system, weights, out, instruction_set())
    return out


def medians(x: Float, begin: NDArray[np.int64], end: NDArray[np.int64], about: Float | None = None) -> Float:
    """The median of each stretch x[begin:end], or of its distances from the number `about` has for it."""
    found = np.empty(len(begin))
    _core.medians(_contiguous(x), begin, end, np.empty(0) if about is None else about, found)
    return found


class ColumnSweep:
    """One pass over the columns of M, compiled (see `lowsparse.sweeps.Sweep`)."""

    name = host = "native"

    def __init__(self, M: Columns) -> None:
        self.threads = min(num_threads(), max(1, M.values.size // PER_THREAD))
        self.core = _core.ColumnSweep(M.shape[0], M.indptr, M.rows, M.values, instruction_set())

    def sweep(
        self, U: Float, S: NDArray[Any], S_out: NDArray[Any] | None, options: Proximal, previous: Previous | None = None
    ) -> SweepResult:
        """Solve, shrink, solve again and sum up the gradient, in one pass over the memory."""
        V_previous, rotation = (None, None) if previous is None else (_contiguous(x.T) for x in previous)
        numbers = options.gamma, options.t_S, options.lambda2, int(options.rule)
        V, G, GtG, VVt, sums = self.core.sweep(_contiguous(U), S, S_out, V_previous, rotation, *numbers, self.threads)
        smooth_in, smooth_out, l1, dS2, dV2 = sums
        return SweepResult(V.T, G, GtG, VVt, smooth_in, smooth_out, l1, math.sqrt(dS2), math.sqrt(dV2))

    def regress(self, U: Float, V: Float | None, options: Robust) -> Regression:
        """Regress each column on U robustly; all fits of a column while it is in cache."""
        fitted, inside, counts = self.core.regress(
            _contiguous(U),
            None if V is None else _contiguous(V),
            int(options.kind),
            options.c if options.first_c is None else options.first_c,
            options.c,
            options.p,
            options.n_reweight,
            options.shrink,
            options.ridge,
            options.largest,
            options.bound,
            options.unit,
            options.total_entries,
            self.threads,
        )
        return Regression(fitted, inside, Magnitudes(counts, options.unit))

    def residual(self, U: Float, V: Float) -> Float:
        """P_Ω(U Vᵀ) - x."""
        return self.core.entries(_contiguous(U), _contiguous(V), True, self.threads).ravel()

    def entries(self, U: Float, V: Float) -> Float:
        """P_Ω(U Vᵀ)."""
        return self.core.entries(_contiguous(U), _contiguous(V), False, self.threads).ravel()

    def product(self, y: Float, V: Float) -> Float:
        """Sp(y) V."""
        return self.core.product(_contiguous(y), _contiguous(V), self.threads)

    def product_transposed(self, y: Float, U: Float) -> Float:
        """Sp(y)ᵀ U."""
        return self.core.product_transposed(_contiguous(y), _contiguous(U), self.threads)

    def gradient(self, U: Float, V: Float, loss: Loss) -> Gradient:
        """Σ ρ(e) and both derivatives, in one pass."""
        U, V = _contiguous(U), _contiguous(V)
        return Gradient(*self.core.gradient(U, V, int(loss.kind), loss.c, loss.p, self.threads))

    def curvature(self, U: Float, V: Float, B: Float, loss: Loss) -> float:
        """Σ w(e) d²."""
        U, V, B = (_contiguous(factor) for factor in (U, V, B))
        return self.core.curvature(U, V, B, int(loss.kind), loss.c, loss.p, self.threads)

    def ascend(self, U: Float, C: Float, current: Multiplier, out: Multiplier, beta: float, next_beta: float) -> Ascent:
        """V, Z, Λ and the product with the new w, in one pass."""
        V, G, l1, gap2 = self.core.ascend(_contiguous(U), _contiguous(C), *current, *out, beta, next_beta, self.threads)
        return Ascent(V, G, l1, float(np.sqrt(gap2)))

    def grams(self, U: Float) -> Float:
        """U_jᵀ U_j of each column."""
        return self.core.grams(_contiguous(U), self.threads).reshape(-1, U.shape[1], U.shape[1])

    def fit_subsets(self, U: Float, V: Float, draws: Draws) -> Float:
        """For each column, the best of the fits to r of its entries."""
        U, V, seeds = _contiguous(U), _contiguous(V), np.ascontiguousarray(draws.seeds, dtype=np.uint64)
        return self.core.subsets(U, V, seeds, draws.max_draws, draws.c, draws.bound, draws.clean_draws, self.threads)

    def fit_blocks(self, blocks: Blocks) -> BlockFits:
        """Block by block, each on one thread."""
        rows, columns = (np.ascontiguousarray(a, dtype=np.int64) for a in (blocks.row_starts, blocks.column_starts))
        start_vectors = _contiguous(blocks.start_vectors)
        U, V, noise, ranks = self.core.climb(rows, columns, start_vectors, blocks.unit, num_threads())
        return BlockFits(U, V, noise.ravel(), ranks)

    def kth_largest(self, y: Float, k: NDArray[np.int64]) -> Float:
        """The k-th largest |y| of each column."""
        return self.core.kth_largest(_contiguous(y), np.ascontiguousarray(k, dtype=np.int64), self.threads).ravel()

    def gram_product(self, Q: Float) -> Float:
        """Return A Aᵀ Q, one column at a time."""
        return self.core.gram_product(_contiguous(Q), self.threads)
