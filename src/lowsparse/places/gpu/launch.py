"""CuPy and the CUDA kernels: whether they can run, compiling at run time, and launching those for tall matrices."""

import contextlib
import functools
import importlib
import re
from collections.abc import Iterator
from importlib import resources
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

# each includes only those before it
SOURCES = ("common", "losses", "normal", "regress", "sweep", "lines", "tall", "general", "lists")
INSTALL = "python -m pip install 'lowsparse[gpu-cuda13]' (or gpu-cuda12, as nvidia-smi says)"
NULL = np.intp(0)  # the pointer for an array that is left out
OLDEST = 60  # the least compute capability, times ten
SEARCHED = 4096  # numbers that a block searches
TALL = (32, 128)  # blocks that sum up the rows of a tall matrix, least and most


@functools.cache
def reason_unavailable() -> str | None:
    """None if there are a GPU and CuPy to use it, else what is missing, in one line."""
    if find_spec("cupy") is None:
        return f"CuPy is not installed: {INSTALL}"
    try:
        cupy = importlib.import_module("cupy")
        count = cupy.cuda.runtime.getDeviceCount()
        if not count:
            return "there is no CUDA GPU"
        capability = int(cupy.cuda.Device().compute_capability)
    except ImportError as error:
        return f"CuPy does not load ({_one_line(error)}): {INSTALL}"
    except Exception as error:
        name = type(error).__name__
        return f"the CUDA driver does not answer ({name}: {_one_line(error)}); nvidia-smi says whether it is too old"
    if capability < OLDEST:
        return f"the GPU has compute capability {capability / 10}, and {OLDEST / 10} is needed"
    return None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def c_type(dtype: np.dtype[Any]) -> str:
    """The name of float64 or float32 in the kernels."""
    return "double" if dtype == np.float64 else "float"


def need_cupy() -> Any:
    """CuPy, or an error that says what is missing."""
    why = reason_unavailable()
    if why is not None:
        raise RuntimeError(f"backend 'cuda' cannot run here: {why}")
    return importlib.import_module("cupy")


@functools.cache
def source() -> str:
    """All kernels as one text, without #include."""
    folder = resources.files(__package__) / "kernels"
    texts = [(folder / f"{name}.cuh").read_text(encoding="utf-8") for name in SOURCES]
    return re.sub(r"^#(include|pragma once).*$", "", "\n".join(texts), flags=re.MULTILINE)


@functools.cache
def kernel(name: str) -> Any:
    """A kernel by its name with its template arguments; compiled on first use, and kept on disk by CuPy."""
    cupy = need_cupy()
    module = cupy.RawModule(code=source(), options=("--std=c++17",), name_expressions=(name,))
    return module.get_function(name)


@contextlib.contextmanager
def explain_out_of_memory(size: int, what: str) -> Iterator[None]:
    """If the block runs out of GPU memory, raise an error that says how much is needed, about, and what to do."""
    cupy = need_cupy()
    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError as error:
        free, total = cupy.cuda.runtime.memGetInfo()
        half = f"{max(free, 2e9) / 2e9:.0f}GB"  # of the free memory
        raise MemoryError(
            f"{what} needs about {size / 1e9:.3g} GB of GPU memory, and {free / 1e9:.3g} of {total / 1e9:.3g} GB are "
            f"free: with backend='cuda', memory='{half}' data of the host pass through in pieces; or solve on the "
            "processor (backend='native')"
        ) from error


def by_value(A: NDArray[np.float64]) -> NDArray[Any]:
    """A small matrix as an argument of a kernel (``Small`` there)."""
    return np.ascontiguousarray(A, dtype=np.float64).reshape(-1).view(_numbers(A.size))


@functools.cache
def _numbers(size: int) -> np.dtype[Any]:
    return np.dtype([("numbers", np.float64, (size,))])


def tall_gram(A: Any, columns: Any = NULL, extra: int = 0, out: Any = None) -> Any:
    """The packed upper triangle of AᵀA, then the sums of `extra` columns as long as A; r is at most `SMALL`."""
    cupy = need_cupy()
    rows, r = A.shape
    size = r * (r + 1) // 2 + extra
    if out is None:
        out = cupy.empty(size)
    blocks = min(-(-rows // 256), max(TALL[0], min(TALL[1], rows // 2048)))
    function, partial, ticket = _tall_kernel(r, extra, cupy.cuda.get_current_stream().ptr)
    function((blocks,), (256,), (A, columns, np.int64(rows), out, partial, ticket))
    return out


@functools.cache
def _tall_kernel(r: int, extra: int, stream: int) -> tuple[Any, Any, Any]:
    """The kernel, memory for the sums of its blocks, and a count of those that have finished."""
    cupy = need_cupy()
    partial = cupy.empty(TALL[1] * (r * (r + 1) // 2 + extra))
    return kernel(f"tall_gram<{r},{extra}>"), partial, cupy.zeros(1, np.int32)


def tall_times(A: Any, B: NDArray[np.float64], H: Any = NULL, step: float = 0.0) -> Any:
    """(A + step H) B for tall matrices on the device and a small one B, all with at most `SMALL` columns."""
    cupy = need_cupy()
    rows, r = A.shape
    out = cupy.empty((rows, B.shape[1]))
    function = kernel(f"tall_times<{r},{B.shape[1]}>")
    function((-(-rows // 128),), (128,), (A, H, float(step), by_value(B), np.int64(rows), out))
    return out


def tall_retracted(A: Any, H: Any, step: float, gram: Any) -> Any:
    """(A + step H) R⁻¹ with RᵀR = I + step² HᵀH, all on the device; HᵀH is the packed `gram`, r is at most `SMALL`."""
    cupy = need_cupy()
    rows, r = A.shape
    out = cupy.empty((rows, r))
    kernel(f"retracted<{r}>")((-(-rows // 128),), (128,), (A, H, float(step), gram, np.int64(rows), out))
    return out


def beyond(numbers: Any, bound: float) -> Any:
    """Where the magnitude of numbers on the device exceeds the bound, ascending."""
    cupy = need_cupy()
    blocks = max(-(-numbers.size // SEARCHED), 1)
    run = kernel(f"beyond<{c_type(numbers.dtype)}>")
    args = numbers, np.int64(numbers.size), float(bound), np.int32(SEARCHED)
    counts = cupy.empty(blocks, np.int32)
    run((blocks,), (256,), (*args, counts, NULL, NULL))
    ends = np.cumsum(counts.get(), dtype=np.int64)
    positions = cupy.empty(int(ends[-1]), np.int64)
    if positions.size:
        starts = cupy.asarray(np.concatenate(([0], ends[:-1])))
        run((blocks,), (256,), (*args, NULL, starts, positions))
    return positions
