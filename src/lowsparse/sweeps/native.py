"""The sweep on the compiled core (``cpp/``): the same sums as `reference`, at the speed of the memory."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..observed import ObservedMatrix
from . import Float, Magnitudes, Regressed, Robust, Rule, Swept

_reason: str | None = None
try:
    from lowsparse import _core
except ImportError as error:
    _reason = f"the compiled core is not there ({error}); install a C++17 compiler and reinstall lowsparse to build it"


def reason_unavailable() -> str | None:
    """None when the compiled core can be used, else why not."""
    return _reason


def num_threads() -> int:
    """Threads to use: LOWSPARSE_NUM_THREADS, else OMP_NUM_THREADS, else the cores this process may run on.

    >>> num_threads() >= 1
    True
    """
    for name in ("LOWSPARSE_NUM_THREADS", "OMP_NUM_THREADS"):
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


class ColumnSweep:
    """One pass over the columns of M, compiled (see `lowsparse.sweeps.Sweep`)."""

    name = "native"

    def __init__(self, M: ObservedMatrix) -> None:
        self.threads = num_threads()
        self.core = _core.ColumnSweep(M.shape[0], M.indptr, M.rows, M.values, instruction_set())

    def sweep(
        self,
        U: Float,
        S: NDArray[Any],
        S_out: NDArray[Any] | None,
        *,
        rule: Rule,
        gamma: float = 0.0,
        t_S: float = 1.0,
        lambda2: float = 0.0,
    ) -> Swept:
        """Solve, largest, solve again and sum up the gradient, in one pass over the memory."""
        V, G, GtG, VVt, sums = self.core.sweep(
            np.ascontiguousarray(U), S, S_out, gamma, t_S, lambda2, int(rule), self.threads
        )
        smooth_in, smooth_out, l1, dS2 = sums
        return Swept(V.T, G, GtG, VVt, smooth_in, smooth_out, l1, float(np.sqrt(dS2)))

    def regress(self, U: Float, V: Float | None, how: Robust) -> Regressed:
        """Regress each column on U robustly; all the turns of a column while it is in cache."""
        fitted, inside, counts = self.core.regress(
            np.ascontiguousarray(U),
            None if V is None else np.ascontiguousarray(V),
            how.c if how.first_c is None else how.first_c,
            how.c,
            how.turns,
            how.shrink,
            how.largest,
            how.bound,
            how.unit,
            self.threads,
        )
        return Regressed(fitted, inside, Magnitudes(counts, how.unit))

    def residual(self, U: Float, V: Float) -> Float:
        """P_Ω(U Vᵀ) - x."""
        e: Float = self.core.residual(np.ascontiguousarray(U), np.ascontiguousarray(V), self.threads)
        return e.ravel()

    def gram_product(self, Q: Float) -> Float:
        """Return A Aᵀ Q, one column at a time."""
        Y: Float = self.core.gram_product(np.ascontiguousarray(Q), self.threads)
        return Y
