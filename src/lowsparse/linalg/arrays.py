"""Where arrays live: in the memory of the processor, or of a GPU.

The rule above the waist: what is as long as Ω, and what is m x r or n x r, lives where the data is; what is r x r, or
one number per line, lives with the processor. NumPy's functions find CuPy's by themselves; these few do the rest.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["across", "beside", "gram", "host", "moved", "namespace", "on_device", "times"]

SMALL = 10  # columns of a tall matrix that has kernels of its own


def on_device(A: Any) -> bool:
    """Whether A is an array of CuPy.

    >>> on_device(np.ones(2))
    False
    """
    return not isinstance(A, np.ndarray) and type(A).__module__.partition(".")[0] == "cupy"


def namespace(A: Any) -> Any:
    """The module that makes arrays of the kind of A: NumPy or CuPy.

    >>> namespace(np.ones(2)).__name__
    'numpy'
    """
    return importlib.import_module("cupy") if on_device(A) else np


def beside(A: Any, other: Any) -> Any:
    """A where the other array is, copied there if need be.

    >>> A = np.ones(2)
    >>> beside(A, np.zeros(3)) is A
    True
    """
    if on_device(other):
        return namespace(other).asarray(A)
    return host(A)


def host(A: Any) -> NDArray[Any]:
    """A as an array of NumPy.

    >>> A = np.ones(2)
    >>> host(A) is A
    True
    """
    return np.asarray(A.get() if on_device(A) else A)


def moved(U: Any, H: Any, step: float, small: NDArray[Any]) -> Any:
    """(U + step H) times a small matrix that the processor has.

    >>> moved(np.ones((2, 1)), np.ones((2, 1)), 2.0, np.array([[3.0]])).tolist()
    [[9.0], [9.0]]
    """
    if _has_kernels(U) and _has_kernels(H) and len(small) <= SMALL:
        from ..places.gpu.launch import tall_times

        return tall_times(U, small, H, step)
    return times(U + step * H, small)


def _has_kernels(A: Any) -> bool:
    """Whether A is a tall matrix on a GPU for which there are kernels."""
    return on_device(A) and A.ndim == 2 and 0 < A.shape[1] <= SMALL and bool(A.flags.c_contiguous) and len(A) > 0


def times(A: Any, small: NDArray[Any]) -> Any:
    """A times a small matrix that the processor has.

    >>> times(np.ones((2, 1)), np.array([[3.0]])).tolist()
    [[3.0], [3.0]]
    """
    if _has_kernels(A) and 0 < small.shape[1] <= SMALL:
        from ..places.gpu.launch import tall_times

        return tall_times(A, small)
    return A @ beside(small, A)


def gram(A: Any) -> NDArray[np.float64]:
    """AᵀA, for the processor.

    >>> gram(np.array([[3.0], [4.0]])).tolist()
    [[25.0]]
    """
    if _has_kernels(A):
        from ..places.gpu.launch import tall_gram

        r = A.shape[1]
        G = np.empty((r, r))
        upper = np.triu_indices(r)
        G[upper] = G.T[upper] = host(tall_gram(A))
        return G
    return across(A, A)


def across(A: Any, B: Any) -> NDArray[np.float64]:
    """AᵀB, for the processor.

    >>> across(np.array([[3.0], [4.0]]), np.array([[1.0], [2.0]])).tolist()
    [[11.0]]
    """
    return host(A.T @ B)
