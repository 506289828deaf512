"""The waist: one pass over the columns, given the subspace U, and the ways to run it.

Everything above it (solvers) says *what* is asked of each column; everything below it (NumPy, the compiled core) says
*how*. A backend is opened on the data once per solve and found by its name in a small registry.
"""

from __future__ import annotations

import importlib
import os
import warnings
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..observed import ObservedMatrix

__all__ = ["BACKENDS", "Float", "Rule", "Sweep", "Swept", "available", "open_sweep"]

Float = NDArray[np.float64]

# In the order of preference of backend="auto". A module offers `reason_unavailable()` and a class `Sweep`.
BACKENDS = {"native": ".native", "numpy": ".reference"}


class Rule(IntEnum):
    """What a sweep does with each column, given U."""

    FIT = 0  # v alone
    MANPG = 1  # v; S and the gradient both from v (Algorithm 1)
    AMANPG = 2  # v; S; v again for the new S, and the gradient (Algorithm 2)


@dataclass(frozen=True)
class Swept:
    """What one sweep gives back: the coefficients, the gradient, and a few sums.

    With e = P_Ω(UV) − x and λ² = ``lambda2``, the smooth part is
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


class Sweep(Protocol):
    """One pass over the columns of an `ObservedMatrix`."""

    name: str

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
        """Solve each column for v, shrink S into ``S_out``, and sum up the gradient, as ``rule`` says."""
        ...

    def gram_product(self, Q: Float) -> Float:
        """Return A Aᵀ Q (m x k) for the observed matrix A with zeros where nothing was observed."""
        ...


def available() -> dict[str, str | None]:
    """For each backend, None if it can run here, else the reason why not.

    >>> available()["numpy"] is None
    True
    """
    return {name: _module(name).reason_unavailable() for name in BACKENDS}


def _module(name: str) -> Any:
    return importlib.import_module(BACKENDS[name], __package__)


def open_sweep(M: ObservedMatrix, backend: str = "auto") -> Sweep:
    """Open a backend on the data; "auto" takes the first that can run (or what LOWSPARSE_BACKEND names).

    >>> M = ObservedMatrix.from_dense([[1.0, 2.0], [3.0, float("nan")]])
    >>> open_sweep(M, "numpy").name
    'numpy'
    """
    if backend == "auto":
        backend = os.environ.get("LOWSPARSE_BACKEND") or "auto"
    if backend == "auto":
        why = _module("native").reason_unavailable()
        if why is None:
            backend = "native"
        else:
            warnings.warn(f"running on NumPy, which is much slower: {why}", RuntimeWarning, stacklevel=3)
            backend = "numpy"
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}: choose 'auto' or one of {sorted(BACKENDS)}")
    why = _module(backend).reason_unavailable()
    if why is not None:
        raise RuntimeError(f"backend {backend!r} cannot run here: {why}")
    opened: Sweep = _module(backend).ColumnSweep(M)
    return opened
