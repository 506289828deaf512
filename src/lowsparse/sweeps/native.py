"""The sweep on the compiled core (``cpp/``): the same sums as `reference`, at the speed of the memory."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    Regressed,
    Robust,
    Swept,
)
from .losses import Loss

THREADS = ("LOWSPARSE_NUM_THREADS", "OMP_NUM_THREADS")  # what says how many, in the order in which they count

_reason: str | None = None
try:
    from lowsparse import _core
except ImportError as error:
    _reason = f"the compiled core is not there ({error}); install a C++17 compiler and reinstall lowsparse to build it"


WORTH = 8000  # entries that are worth a thread: with 16 threads, a pass over 30,000 takes longer than with one


def reason_unavailable() -> str | None:
    """None when the compiled core can be used, else why not."""
    return _reason


def num_threads() -> int:
    """Threads to use: LOWSPARSE_NUM_THREADS, else OMP_NUM_THREADS, else the cores this process may run on.

    >>> num_threads() >= 1
    True
    """
    for name in THREADS:
        text = os.environ.get(name, "").split(",")[0].strip()  # OpenMP allows a list, one number per level
        if text:
            if not text.isdecimal() or int(text) < 1:
                raise ValueError(f"{name}={text!r} is not a positive whole number")
            return min(int(text), 4096)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def instruction_set() -> str:
    """The instruction set in use: LOWSPARSE_ISA, else the best this processor has."""
    return os.environ.get("LOWSPARSE_ISA") or str(_core.instruction_sets()[0])


def _whole(A: Float) -> Float:
    return np.ascontiguousarray(A, dtype=np.float64)


def squeeze(numbers: NDArray[Any], bits: NDArray[np.uint64], found: NDArray[Any]) -> int:
    """A bit for each number, and those that are not zero, if there is room; how many there are."""
    return _core.squeeze(numbers, bits, found, instruction_set(), num_threads())


def expand(bits: NDArray[np.uint64], found: NDArray[Any], numbers: NDArray[Any]) -> None:
    """The numbers again."""
    _core.expand(bits, found, numbers, num_threads())


def _told(options: Proximal, before: Previous | None) -> tuple[Float | None, Float | None, float, float, float, int]:
    """What the core is told of a sweep: V of an earlier one and its turn, the numbers and the rule."""
    V_before, turn = (None, None) if before is None else (_whole(before.V.T), _whole(before.turn.T))
    return V_before, turn, options.gamma, options.t_S, options.lambda2, int(options.rule)


def _swept(V: Float, G: Float, GtG: Float, VVt: Float, sums: tuple[float, ...]) -> Swept:
    smooth_in, smooth_out, l1, dS2, dV2 = sums
    return Swept(V.T, G, GtG, VVt, smooth_in, smooth_out, l1, math.sqrt(dS2), math.sqrt(dV2))


class ColumnSweep:
    """One pass over the columns of M, compiled (see `lowsparse.sweeps.Sweep`)."""

    name = host = "native"

    def __init__(self, M: Columns) -> None:
        self.threads = min(num_threads(), max(1, M.values.size // WORTH))
        self.core = _core.ColumnSweep(M.shape[0], M.indptr, M.rows, M.values, instruction_set())

    def sweep(
        self, U: Float, S: NDArray[Any], S_out: NDArray[Any] | None, options: Proximal, before: Previous | None = None
    ) -> Swept:
        """Solve, shrink, solve again and sum up the gradient, in one pass over the memory."""
        return _swept(*self.core.sweep(_whole(U), S, S_out, *_told(options, before), self.threads))

    def regress(self, U: Float, V: Float | None, options: Robust) -> Regressed:
        """Regress each column on U robustly; all the turns of a column while it is in cache."""
        fitted, inside, counts = self.core.regress(
            _whole(U),
            None if V is None else _whole(V),
            int(options.kind),
            options.c if options.first_c is None else options.first_c,
            options.c,
            options.p,
            options.turns,
            options.shrink,
            options.ridge,
            options.largest,
            options.bound,
            options.unit,
            options.of,
            self.threads,
        )
        return Regressed(fitted, inside, Magnitudes(counts, options.unit))

    def residual(self, U: Float, V: Float) -> Float:
        """P_Ω(U Vᵀ) - x."""
        e: Float = self.core.entries(_whole(U), _whole(V), True, self.threads)
        return e.ravel()

    def entries(self, U: Float, V: Float) -> Float:
        """P_Ω(U Vᵀ)."""
        e: Float = self.core.entries(_whole(U), _whole(V), False, self.threads)
        return e.ravel()

    def product(self, y: Float, V: Float) -> Float:
        """Sp(y) V."""
        Y: Float = self.core.product(_whole(y), _whole(V), self.threads)
        return Y

    def product_transposed(self, y: Float, U: Float) -> Float:
        """Sp(y)ᵀ U."""
        Y: Float = self.core.product_transposed(_whole(y), _whole(U), self.threads)
        return Y

    def gradient(self, U: Float, V: Float, loss: Loss) -> Gradient:
        """Σ ρ(e) and both derivatives, in one pass."""
        return Gradient(*self.core.gradient(_whole(U), _whole(V), int(loss.kind), loss.c, loss.p, self.threads))

    def curvature(self, U: Float, V: Float, B: Float, loss: Loss) -> float:
        """Σ w(e) d²."""
        U, V, B = (_whole(factor) for factor in (U, V, B))
        return self.core.curvature(U, V, B, int(loss.kind), loss.c, loss.p, self.threads)

    def ascend(self, U: Float, C: Float, now: Multiplier, out: Multiplier, beta: float, next_beta: float) -> Ascent:
        """V, Z, Λ and the product with the new w, in one pass."""
        V, G, l1, gap2 = self.core.ascend(_whole(U), _whole(C), *now, *out, beta, next_beta, self.threads)
        return Ascent(V, G, l1, float(np.sqrt(gap2)))

    def grams(self, U: Float) -> Float:
        """U_jᵀ U_j of each column."""
        A: Float = self.core.grams(_whole(U), self.threads)
        return A.reshape(-1, U.shape[1], U.shape[1])

    def subsets(self, U: Float, V: Float, draws: Draws) -> Float:
        """Of each column the best fit to r of its entries."""
        U, V, seeds = _whole(U), _whole(V), np.ascontiguousarray(draws.seeds, dtype=np.uint64)
        return self.core.subsets(U, V, seeds, draws.many, draws.c, draws.bound, draws.good, self.threads)

    def climb(self, blocks: Blocks) -> BlockFits:
        """Block by block, each on one thread."""
        rows, columns = (np.ascontiguousarray(a, dtype=np.int64) for a in (blocks.row_starts, blocks.column_starts))
        U, V, noise, ranks = self.core.climb(rows, columns, _whole(blocks.begin), blocks.unit, num_threads())
        return BlockFits(U, V, noise.ravel(), ranks)

    def kth_largest(self, y: Float, k: NDArray[np.int64]) -> Float:
        """The k-th largest |y| of each column."""
        found: Float = self.core.kth_largest(_whole(y), np.ascontiguousarray(k, dtype=np.int64), self.threads)
        return found.ravel()

    def gram_product(self, Q: Float) -> Float:
        """Return A Aᵀ Q, one column at a time."""
        Y: Float = self.core.gram_product(_whole(Q), self.threads)
        return Y
