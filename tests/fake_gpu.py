"""A fake GPU: arrays that are not NumPy's, and refuse to be mixed with them, as CuPy's do.

The sweep on it is the oracle's. So all that stands around the kernels can be tested where there is no GPU: what is
copied when, that nothing is mixed, and that nothing is copied in silence.
"""

import sys
import types

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from lowsparse.entries.observed import ObservedMatrix
from lowsparse.places.gpu import launch, lines
from lowsparse.places.gpu import matrix as device
from lowsparse.places.gpu import sweep as cuda
from lowsparse.sweeps import Ascent, Gradient, Multiplier, Previous, Regression, SweepResult, reference

FREE = 10**15  # bytes


class ndarray(NDArrayOperatorsMixin):  # noqa: N801
    """An array of the fake CuPy; what is asked of it is asked of the array of NumPy inside."""

    __module__ = "cupy"

    def __init__(self, inside):
        self.inside = np.asarray(inside)

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        assert method == "__call__", method
        given = {} if out is None else {"out": tuple(inner(x) for x in out)}
        found = ufunc(*(inner(x) for x in inputs), **given, **options)
        return out[0] if out is not None else outer(found)

    def __array_function__(self, function, types, args, kwargs):
        return outer(function(*map(inner, args), **{name: inner(part) for name, part in kwargs.items()}))

    def __getattr__(self, name):
        found = getattr(self.inside, name)
        if not callable(found):
            return outer(found)
        return lambda *args, **options: outer(found(*map(inner, args), **{k: inner(x) for k, x in options.items()}))

    def __getitem__(self, which):
        return ndarray(self.inside[inner(which)])

    def __setitem__(self, which, numbers):
        self.inside[inner(which)] = inner(numbers)

    def __len__(self):
        return len(self.inside)

    def __float__(self):
        return float(self.inside)

    def __int__(self):
        return int(self.inside)

    def __bool__(self):
        return bool(self.inside)

    __index__ = __int__

    def get(self, out=None, blocking=True):
        """A copy for the processor."""
        if out is None:
            return self.inside.copy()
        assert out.flags.c_contiguous
        assert out.dtype == self.inside.dtype
        out[...] = self.inside
        return out

    def set(self, numbers, stream=None):
        """Copy what the processor has."""
        assert isinstance(numbers, np.ndarray)
        assert numbers.dtype == self.inside.dtype
        self.inside[...] = numbers


def inner(part):
    """What NumPy takes; its own arrays must not come along with fake ones."""
    if isinstance(part, tuple | list):
        return type(part)(map(inner, part))
    if isinstance(part, np.ndarray) and part.ndim:
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    return part.inside if isinstance(part, ndarray) else part


def outer(found):
    if isinstance(found, tuple):
        return type(found)(*map(outer, found)) if hasattr(found, "_fields") else tuple(map(outer, found))
    return ndarray(found) if isinstance(found, np.ndarray | np.generic) else found


def host(part):
    return part.inside if isinstance(part, ndarray) else part


# ---------------------------------------------------------------------- the module


def asarray(numbers, dtype=None, order=None):
    given = host(numbers)
    if not isinstance(numbers, ndarray):
        given = np.array(given)  # a copy, always
    return ndarray(np.asarray(given, dtype))


def ascontiguousarray(numbers, dtype=None):
    return ndarray(np.ascontiguousarray(host(asarray(numbers)), dtype))


class Stream:
    """Nothing waits."""

    ptr = 0

    def __init__(self, non_blocking=False):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def synchronize(self):
        """At once."""


class Device(Stream):
    """The only one."""

    compute_capability = "90"


class OutOfMemoryError(MemoryError):
    """As CuPy's."""


def module():
    """The fake `cupy`; the addresses of memory that is page-locked are in `cupy.locked`."""
    locked = set()

    def register(address, size, flags):
        if address in locked:
            raise RuntimeError("cudaErrorHostMemoryAlreadyRegistered")
        locked.add(address)

    runtime = types.SimpleNamespace(
        getDeviceCount=lambda: 1,
        memGetInfo=lambda: (FREE, FREE),
        hostRegister=register,
        hostUnregister=locked.remove,
    )
    made = types.ModuleType("cupy")
    made.locked = locked
    made.__spec__ = types.SimpleNamespace(name="cupy")
    made.cuda = types.SimpleNamespace(
        runtime=runtime,
        Stream=Stream,
        Device=Device,
        get_current_stream=Stream,
        memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    )
    made.get_default_memory_pool = lambda: types.SimpleNamespace(free_bytes=lambda: 0, free_all_blocks=lambda: None)
    made.ndarray, made.asarray, made.ascontiguousarray = ndarray, asarray, ascontiguousarray
    for name in ("empty", "zeros", "ones", "full", "arange"):
        setattr(made, name, _making(getattr(np, name)))
    for name in ("argsort", "searchsorted", "flatnonzero", "isnan", "isfinite", "hstack", "empty_like"):
        setattr(made, name, _taking(getattr(np, name)))
    made.argsort = lambda keys: ndarray(np.argsort(host(keys), kind="stable"))
    return made


def _making(function):
    return lambda *args, **options: ndarray(function(*args, **options))


def _taking(function):
    return lambda *args, **options: outer(function(*map(inner, args), **options))


# ---------------------------------------------------------------------- kernels and the sweep


def kernel(name):
    """A few of the kernels, in NumPy."""
    name = name.partition("<")[0]
    return lambda grid, block, args, shared_mem=0: KERNELS[name](*(host(part) for part in args))


def _count(index, size, out):
    out += np.bincount(index, minlength=out.size).astype(out.dtype)


def _owners(start, out):
    out[...] = np.repeat(np.arange(start.size - 1), np.diff(start))


def _take(indptr, rows, values, chosen, start, rows_out, values_out):
    for k, j in enumerate(chosen):
        here, there = slice(start[k], start[k + 1]), slice(indptr[j], indptr[j + 1])
        rows_out[here], values_out[here] = rows[there], values[there]


def _take_across(indptr, rows, values, place, counts, start, rows_out, values_out):
    inside = place[rows] >= 0
    if isinstance(rows_out, np.intp):
        counts[...] = np.diff(np.concatenate(([0], np.cumsum(inside)))[indptr])
    else:
        rows_out[...], values_out[...] = place[rows[inside]], values[inside]


def _tall_gram(A, columns, rows, out, partial, ticket):
    half = A.shape[1] * (A.shape[1] + 1) // 2
    out[:half] = (A.T @ A)[np.triu_indices(A.shape[1])]


def _tall_times(A, H, step, B, rows, out):
    small = B["numbers"].reshape(A.shape[1], out.shape[1])
    out[...] = (A if isinstance(H, np.intp) else A + step * H) @ small


def _magnitudes(values, many, clip, out):
    sizes = np.abs(values.astype(np.float64))
    out[...] = 0
    out[:, 0] = sizes.max(), (np.minimum(sizes, clip) ** 2).sum()


def _beyond(numbers, many, bound, length, counts, starts, places):
    found = np.flatnonzero(np.abs(numbers) > bound)
    if isinstance(places, np.intp):
        counts[...] = np.bincount(found // length, minlength=counts.size)
    else:
        places[...] = found


KERNELS = {
    "beyond": _beyond,
    "magnitudes": _magnitudes,
    "count_indices": _count,
    "owners": _owners,
    "take_across": _take_across,
    "take_lines": _take,
    "tall_gram": _tall_gram,
    "tall_times": _tall_times,
}


class ColumnSweep:
    """The oracle, for fake arrays; it counts the entries that were swept."""

    name, host = "cuda", "auto"
    swept = 0

    def __init__(self, M):
        assert isinstance(M.values, ndarray)
        self.M = M
        starts = np.array(M.positions.starts)
        self.inside = reference.ColumnSweep(ObservedMatrix(starts, M.rows.inside, M.values.inside, M.shape))

    def __getattr__(self, name):
        def call(*args, **options):
            ColumnSweep.swept += self.M.nnz
            found = getattr(self.inside, name)(*map(_down, args), **{key: _down(part) for key, part in options.items()})
            return _up(found)

        return call


def _down(part):
    if isinstance(part, Previous | Multiplier):
        return type(part)(*map(_down, part))
    return host(part)


def _up(found):
    """What the sweep on a GPU leaves there."""
    match found:
        case SweepResult():
            same = {"GtG": found.G.T @ found.G, "VVt": found.VVt}
            return SweepResult(**{**vars(found), "V": ndarray(found.V), "G": ndarray(found.G), **same})
        case Regression():
            return Regression(ndarray(found.V), found.inside, found.magnitudes)
        case Gradient():
            return Gradient(found.value, ndarray(found.U), ndarray(found.V))
        case Ascent():
            return Ascent(ndarray(found.V), ndarray(found.G), found.l1, found.infeasible)
        case np.ndarray():
            return ndarray(found)
    return found


def install(monkeypatch):
    """For one test there is a GPU, in all that lowsparse can tell."""
    made = module()
    monkeypatch.setitem(sys.modules, "cupy", made)
    monkeypatch.setattr(launch, "reason_unavailable", lambda: None)
    monkeypatch.setattr(launch, "find_spec", lambda name: made.__spec__)
    for where in (launch, device, lines, cuda):
        monkeypatch.setattr(where, "kernel", kernel)
    monkeypatch.setattr(launch, "_tall_kernel", launch._tall_kernel.__wrapped__)  # nothing of it is remembered
    monkeypatch.setattr(device, "ColumnSweep", ColumnSweep)
    monkeypatch.setattr(ColumnSweep, "swept", 0)
    return made
