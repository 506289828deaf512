"""Operations on arrays of NumPy and of CuPy.

What is as long as Ω, and what is m x r or n x r, is where the data is; what is r x r, or one number per row or column,
is an array of NumPy. NumPy's functions call CuPy's by themselves; these few do the rest.
"""

import importlib
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]  # of NumPy, or of CuPy, which has no types and takes NumPy's functions
Flags = NDArray[np.bool_]
Number = TypeVar("Number", bound=np.generic)

SMALL = 10  # columns of a tall matrix that has kernels of its own


def on_device(A: object) -> bool:
    """Whether A is an array of CuPy."""
    return not isinstance(A, np.ndarray) and type(A).__module__.partition(".")[0] == "cupy"


def to_device_of(A: NDArray[Number], other: object) -> NDArray[Number]:
    """A in the memory that the other array is in, copied there if need be."""
    there: NDArray[Number] = importlib.import_module("cupy").asarray(A) if on_device(other) else host(A)
    return there


def host(A: Any) -> NDArray[Any]:
    """A as an array of NumPy."""
    return np.asarray(A.get() if on_device(A) else A)


class DeviceKernels(Protocol):
    """What a GPU does faster by kernels of its own than by CuPy; `places.gpu` offers them (`offer_kernels`)."""

    def tall_times(self, A: Float, small: Float, H: Any = None, step: float = 0.0) -> Float:
        """(A + step H) times a small matrix, for tall A and H of at most `SMALL` columns."""

    def tall_gram(self, A: Float) -> Float:
        """The packed upper triangle of AᵀA, on the device."""

    def beyond(self, numbers: Float, bound: float) -> NDArray[np.intp]:
        """Where the magnitude of numbers exceeds the bound, ascending."""


_kernels: list[DeviceKernels] = []


def offer_kernels(kernels: DeviceKernels) -> None:
    """Use these kernels for arrays of CuPy from now on."""
    _kernels[:] = [kernels]


def device_kernels(A: object) -> DeviceKernels | None:
    """The kernels for an array on a GPU, if there are some; None for an array of NumPy."""
    return _kernels[0] if _kernels and on_device(A) else None


def _tall_kernels(A: Float) -> DeviceKernels | None:
    """The kernels for a tall matrix with few columns on a GPU."""
    small = on_device(A) and A.ndim == 2 and 0 < A.shape[1] <= SMALL and bool(A.flags.c_contiguous) and len(A) > 0
    return device_kernels(A) if small else None


def add_scaled_then_multiply(U: Float, H: Float, step: float, small: Float) -> Float:
    """(U + step H) times a small array of NumPy."""
    kernels = _tall_kernels(U)
    if kernels is not None and _tall_kernels(H) is not None and len(small) <= SMALL:
        return kernels.tall_times(U, small, H, step)
    return matmul_small(U + step * H, small)


def matmul_small(A: Float, small: Float) -> Float:
    """A times a small array of NumPy."""
    kernels = _tall_kernels(A)
    if kernels is not None and 0 < small.shape[1] <= SMALL:
        return kernels.tall_times(A, small)
    return A @ to_device_of(small, A)


def gram(A: Float) -> Float:
    """AᵀA as an array of NumPy."""
    kernels = _tall_kernels(A)
    if kernels is None:
        return inner(A, A)
    r = A.shape[1]
    G = np.empty((r, r))
    upper = np.triu_indices(r)
    G[upper] = G.T[upper] = host(kernels.tall_gram(A))
    return G


def inner(A: Float, B: Float) -> Float:
    """AᵀB as an array of NumPy."""
    return host(A.T @ B)
