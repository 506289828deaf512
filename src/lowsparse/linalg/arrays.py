"""Where arrays live: in the memory of the processor, or of a GPU.

The rule above the waist: what is as long as Ω, and what is m x r or n x r, lives where the data is; what is r x r, or
one number per line, lives with the processor. NumPy's functions find CuPy's by themselves; these few do the rest.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "SMALL",
    "DeviceKernels",
    "add_scaled_then_multiply",
    "device_kernels",
    "gram",
    "host",
    "inner",
    "matmul_small",
    "namespace",
    "offer_kernels",
    "on_device",
    "to_device_of",
]

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


def to_device_of(A: Any, other: Any) -> Any:
    """A where the other array is, copied there if need be.

    >>> A = np.ones(2)
    >>> to_device_of(A, np.zeros(3)) is A
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


class DeviceKernels(Protocol):
    """What a GPU does faster by kernels of its own than by CuPy; the GPU's place offers them (`offer_kernels`)."""

    def tall_times(self, A: Any, small: NDArray[Any], H: Any = None, step: float = 0.0) -> Any:
        """(A + step H) times a small matrix, for tall A and H of at most `SMALL` columns."""
        ...

    def tall_gram(self, A: Any) -> Any:
        """The packed upper triangle of AᵀA, on the device."""
        ...

    def beyond(self, numbers: Any, bound: float) -> Any:
        """Where the magnitude of numbers exceeds the bound, ascending."""
        ...


_kernels: list[DeviceKernels] = []


def offer_kernels(kernels: DeviceKernels) -> None:
    """Use these kernels for arrays of CuPy from now on."""
    _kernels[:] = [kernels]


def device_kernels(A: Any) -> DeviceKernels | None:
    """The kernels for an array on a GPU, if there are some; None for an array of NumPy.

    >>> device_kernels(np.ones(2)) is None
    True
    """
    return _kernels[0] if _kernels and on_device(A) else None


def _tall_kernels(A: Any) -> DeviceKernels | None:
    """The kernels for a tall matrix with few columns on a GPU."""
    small = on_device(A) and A.ndim == 2 and 0 < A.shape[1] <= SMALL and bool(A.flags.c_contiguous) and len(A) > 0
    return device_kernels(A) if small else None


def add_scaled_then_multiply(U: Any, H: Any, step: float, small: NDArray[Any]) -> Any:
    """(U + step H) times a small matrix that the processor has.

    >>> add_scaled_then_multiply(np.ones((2, 1)), np.ones((2, 1)), 2.0, np.array([[3.0]])).tolist()
    [[9.0], [9.0]]
    """
    kernels = _tall_kernels(U)
    if kernels is not None and _tall_kernels(H) is not None and len(small) <= SMALL:
        return kernels.tall_times(U, small, H, step)
    return matmul_small(U + step * H, small)


def matmul_small(A: Any, small: NDArray[Any]) -> Any:
    """A times a small matrix that the processor has.

    >>> matmul_small(np.ones((2, 1)), np.array([[3.0]])).tolist()
    [[3.0], [3.0]]
    """
    kernels = _tall_kernels(A)
    if kernels is not None and 0 < small.shape[1] <= SMALL:
        return kernels.tall_times(A, small)
    return A @ to_device_of(small, A)


def gram(A: Any) -> NDArray[np.float64]:
    """AᵀA, for the processor.

    >>> gram(np.array([[3.0], [4.0]])).tolist()
    [[25.0]]
    """
    kernels = _tall_kernels(A)
    if kernels is None:
        return inner(A, A)
    r = A.shape[1]
    G = np.empty((r, r))
    upper = np.triu_indices(r)
    G[upper] = G.T[upper] = host(kernels.tall_gram(A))
    return G


def inner(A: Any, B: Any) -> NDArray[np.float64]:
    """AᵀB, for the processor.

    >>> inner(np.array([[3.0], [4.0]]), np.array([[1.0], [2.0]])).tolist()
    [[11.0]]
    """
    return host(A.T @ B)
