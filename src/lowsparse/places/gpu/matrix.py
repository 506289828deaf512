"""The entries of a partly observed matrix in the memory of a GPU, as arrays of CuPy."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ...entries.compressed import for_scipy, offsets, to_float
from ...entries.observed import ObservedMatrix
from ...entries.protocol import SAMPLE, HeldOut, Resident, ResidentSummary
from ...linalg.arrays import host, offer_kernels, to_device_of
from ...sweeps import native
from . import launch
from .launch import NULL, c_type, explain_out_of_memory, kernel, need_cupy
from .sweep import ColumnSweep

COPIES = 256  # threads that copy a line
BLOCKS = 1024  # blocks that sum up the values
FEW = 200_000  # entries up to which the processor is faster than launching kernels
NEEDED = 100  # bytes per entry, for the methods that need most: both orders, S twice, and what is computed

offer_kernels(launch)


@dataclass(eq=False)
class Positions:
    """Where the entries are: sorted by line (column), with the index of each on the line across it (row).

    Matrices with other values share them.
    """

    start: Any  # of each line, on the device, int64
    index: Any  # of each entry, on the device, int32
    starts: NDArray[np.int64]  # `start`, on the host
    across: int  # how many lines across there are
    cache: dict[Any, Any] = field(default_factory=dict)  # groups of lines and kernels, by the sweep

    @functools.cached_property
    def counts(self) -> NDArray[np.int64]:
        """Entries of each line."""
        return np.diff(self.starts)

    @functools.cached_property
    def counts_across(self) -> NDArray[np.int64]:
        """Entries of each line across."""
        return self.counted_across(self.index)

    def counted_across(self, index: Any) -> NDArray[np.int64]:
        """How often each line across is in `index`."""
        cupy = need_cupy()
        out = cupy.zeros(self.across, np.int32)
        kernel("count_indices<int>")((1024,), (256,), (index, np.int64(index.size), out))
        return host(out).astype(np.int64)

    def owners(self) -> Any:
        """The line of each entry."""
        cupy = need_cupy()
        out = cupy.empty(self.index.size, np.int32)
        kernel("owners<int>")((self.starts.size - 1,), (COPIES,), (self.start, out))
        return out

    @functools.cached_property
    def transposed(self) -> tuple[Positions, Any]:
        """The positions sorted by the lines across, and the permutation that sorts them."""
        cupy = need_cupy()
        order = cupy.argsort(self.index)  # a stable radix sort, so the lines ascend
        starts = offsets(self.counts_across)
        index = self.owners()[order]
        other = Positions(cupy.asarray(starts), index, starts, self.starts.size - 1)
        return other, order.astype(np.uint32 if order.size < 2**32 else np.int64)


class DeviceMatrix(ResidentSummary):
    """A partly observed m x n matrix on a GPU, its entries sorted by column; immutable.

    `from_host` copies one there, `as_device_matrix` makes one of data that are there already.
    """

    on_gpu: ClassVar[bool] = True
    in_pieces: ClassVar[bool] = False

    def __init__(self, positions: Positions, values: Any, shape: tuple[int, int]) -> None:
        self.positions, self.values, self.shape = positions, values, shape
        self.indptr, self.rows = positions.start, positions.index
        self._transpose_of: weakref.ref[DeviceMatrix] | None = None

    @classmethod
    def from_parts(cls, indptr: Any, rows: Any, values: Any, shape: tuple[int, int]) -> DeviceMatrix:
        """From arrays that are sorted by column and have been checked; indptr may be on the host."""
        cupy = need_cupy()
        starts = host(indptr).astype(np.int64, copy=False)
        positions = Positions(cupy.asarray(indptr, np.int64), cupy.ascontiguousarray(rows, np.int32), starts, shape[0])
        return cls(positions, cupy.ascontiguousarray(values), shape)

    @classmethod
    def from_host(cls, M: ObservedMatrix) -> DeviceMatrix:
        """A copy of a matrix in the memory of the processor."""
        cupy = need_cupy()
        size = M.values.nbytes + M.rows.nbytes + M.indptr.nbytes
        with explain_out_of_memory(size, "the data"):
            return cls.from_parts(M.indptr, cupy.asarray(M.rows), cupy.asarray(M.values), M.shape)

    def to_host(self) -> ObservedMatrix:
        """A copy in the memory of the processor."""
        return ObservedMatrix.trusted(self.positions.starts, host(self.rows), host(self.values), self.shape)

    def fingerprint(self) -> str:
        """That of the same matrix in memory, to which it is copied once for it."""
        return self._fingerprint

    @functools.cached_property
    def _fingerprint(self) -> str:
        return self.to_host().fingerprint()

    @property
    def column_counts(self) -> NDArray[np.int64]:
        """Entries of each column, on the host."""
        return self.positions.counts

    @property
    def row_counts(self) -> NDArray[np.int64]:
        """Entries of each row, on the host."""
        return self.positions.counts_across

    @property
    def T(self) -> DeviceMatrix:  # noqa: N802
        """The transposed matrix, sorted by its own columns: it is made once."""
        origin = None if self._transpose_of is None else self._transpose_of()
        return self._transposed if origin is None else origin

    @functools.cached_property
    def _transposed(self) -> DeviceMatrix:
        positions, order = self.positions.transposed
        other = DeviceMatrix(positions, self.values[order], (self.shape[1], self.shape[0]))
        other._transpose_of = weakref.ref(self)  # a cycle would keep the memory until it is collected
        return other

    def with_values(self, values: Any) -> DeviceMatrix:
        """Other values at the same positions."""
        return DeviceMatrix(self.positions, values, self.shape)

    def take_columns(self, which: NDArray[np.intp]) -> DeviceMatrix | None:
        """Some columns, in this order; None if they have no entry."""
        cupy = need_cupy()
        which = host(which)
        if which.size == self.shape[1] and np.all(np.diff(which) == 1):
            return self
        starts = offsets(self.column_counts[which])
        if not starts[-1]:
            return None
        rows, values = cupy.empty(int(starts[-1]), np.int32), cupy.empty(int(starts[-1]), self.dtype)
        start, chosen = cupy.asarray(starts), cupy.asarray(which, np.int64)
        positions = Positions(start, rows, starts, self.shape[0])
        copy = kernel(f"take_lines<{c_type(self.dtype)}>")
        copy((which.size,), (COPIES,), (self.indptr, self.rows, self.values, chosen, start, rows, values))
        return DeviceMatrix(positions, values, (self.shape[0], which.size))

    def take_rows(self, rows: NDArray[np.intp]) -> DeviceMatrix:
        """Some rows, ascending."""
        cupy = need_cupy()
        if rows.size == self.shape[0]:
            return self
        new_index = np.full(self.shape[0], -1, np.int32)
        new_index[rows] = np.arange(rows.size)
        n, run = self.shape[1], kernel(f"take_across<{c_type(self.dtype)}>")
        args = self.indptr, self.rows, self.values, cupy.asarray(new_index)
        counts = cupy.empty(n, np.int32)
        run((n,), (256,), (*args, counts, NULL, NULL, NULL))
        starts = offsets(counts.get())
        start, index = cupy.asarray(starts), cupy.empty(int(starts[-1]), np.int32)
        values = cupy.empty(index.size, self.dtype)
        if index.size:
            run((n,), (256,), (*args, NULL, start, index, values))
        return DeviceMatrix(Positions(start, index, starts, rows.size), values, (rows.size, n))

    def split(self, held: NDArray[np.intp]) -> tuple[DeviceMatrix, HeldOut]:
        """All entries but those at these ascending indices; and those, on the host."""
        cupy = need_cupy()
        at = cupy.asarray(held)
        kept = cupy.ones(self.nnz, bool)
        kept[at] = False
        starts = self.positions.starts - np.searchsorted(held, self.positions.starts)
        rest = DeviceMatrix.from_parts(starts, self.rows[kept], self.values[kept], self.shape)
        columns = (np.searchsorted(self.positions.starts, held, side="right") - 1).astype(np.int32)
        return rest, HeldOut(host(self.rows[at]), columns, host(self.values[at]).astype(np.float64))

    def sample(self, size: int) -> DeviceMatrix:
        """About `size` entries, evenly spread over all columns; all if there are not many more."""
        step = max(1, self.nnz // size)
        starts = -(-self.positions.starts // step)
        return DeviceMatrix.from_parts(starts, self.rows[::step], self.values[::step], self.shape)

    def median_magnitude(self) -> float:
        """Of the values of a sample that are not zero; 0 if all are."""
        sizes = np.sort(np.abs(self.values[:: max(1, self.nnz // SAMPLE)]))
        zeros = sizes.size - int(np.count_nonzero(sizes))
        low, high = zeros + (sizes.size - zeros - 1) // 2, zeros + (sizes.size - zeros) // 2
        return float(host(sizes[low : high + 1]).astype(np.float64).mean()) if zeros < sizes.size else 0.0

    def magnitudes(self, clip: float) -> tuple[float, float]:
        """The largest magnitude, and the sum of the squares of all, each taken as at most `clip`."""
        cupy = need_cupy()
        found = cupy.empty((2, BLOCKS))
        run = kernel(f"magnitudes<{c_type(self.dtype)}>")
        run((BLOCKS,), (256,), (self.values, np.int64(self.nnz), float(clip), found))
        largest, squares = host(found)
        return float(largest.max()), float(squares.sum())

    def count_lines(self, flagged: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many of the entries at these indices are in each row, and in each column."""
        cupy = need_cupy()
        by_column = np.diff(host(cupy.searchsorted(flagged, self.indptr)))
        return self.positions.counted_across(self.rows[flagged]), by_column

    def columns_of_entries(self) -> Any:
        """The column of each entry."""
        return self.positions.owners()

    def parts(self) -> Iterator[Any]:
        """The values, in one part."""
        yield self.values

    def to_host_if_small(self) -> Resident:
        """A small matrix in the memory of the processor, if the compiled core can run; else the matrix itself."""
        return self.to_host() if self.nnz <= FEW and native.reason_unavailable() is None else self

    def open_sweep(self, backend: str = "auto") -> ColumnSweep:
        """The sweep on the GPU."""
        return ColumnSweep(self)

    def spread_over_columns(self, numbers: NDArray[Any]) -> Any:
        """For each entry, the number of its column."""
        return to_device_of(numbers, self.values)[self.columns_of_entries()]

    def spread_over_rows(self, numbers: NDArray[Any]) -> Any:
        """For each entry, the number of its row."""
        return to_device_of(numbers, self.values)[self.rows]

    def reduce(self, merging: str, function: Callable[..., tuple[Any, ...]], *numbers: Any) -> tuple[Any, ...]:
        """``function(columns, *numbers)``, on the host."""
        return function(self.to_host(), *(host(y) for y in numbers))

    def solving(self, placed: bool) -> AbstractContextManager[None]:
        """Errors for lack of GPU memory say how much is needed and what to do."""
        return explain_out_of_memory(NEEDED * self.nnz, "the solve")

    def outliers(self, flagged: Any, values: Any) -> DeviceOutliers:
        """S, on the GPU."""
        return DeviceOutliers(self, flagged, values)


@dataclass(frozen=True, eq=False, repr=False)
class DeviceOutliers:
    """The outliers of a matrix on a GPU, on the GPU."""

    M: DeviceMatrix
    positions: Any  # among the entries of M, ascending
    data: Any  # the values there

    @property
    def nnz(self) -> int:
        """How many outliers there are."""
        return int(self.positions.size)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.M.shape

    def to_cupy(self) -> Any:
        """A sparse matrix of CuPy."""
        import cupy
        from cupyx.scipy import sparse

        starts = cupy.searchsorted(self.positions, self.M.indptr)
        return sparse.csc_matrix((self.data, self.M.rows[self.positions], starts.astype(np.int32)), shape=self.shape)

    def to_scipy(self) -> sparse.csc_array:
        """A sparse array of SciPy, on the host."""
        cupy = need_cupy()
        starts, rows = cupy.searchsorted(self.positions, self.M.indptr), self.M.rows[self.positions]
        return sparse.csc_array(for_scipy((host(starts), host(rows), host(self.data))), shape=self.shape)

    def __repr__(self) -> str:
        return f"DeviceOutliers({self.shape[0]} x {self.shape[1]}, {self.nnz} outliers)"


# ---------------------------------------------------------------------- from data on a GPU


def is_on_gpu(X: Any) -> bool:
    """Whether X is on a GPU: an array or sparse matrix of CuPy, a CUDA tensor, a `DeviceMatrix`."""
    library = type(X).__module__.partition(".")[0]
    return isinstance(X, DeviceMatrix) or library in ("cupy", "cupyx") or (library == "torch" and X.is_cuda)


def as_device_matrix(X: Any) -> DeviceMatrix:
    """A `DeviceMatrix` of data on a GPU: CuPy arrays with NaN for missing, its sparse matrices, CUDA tensors."""
    if isinstance(X, DeviceMatrix):
        return X
    library = type(X).__module__.partition(".")[0]
    if library == "cupyx":
        return _from_sparse(X)
    if library == "torch":
        cupy = need_cupy()
        if X.layout.__str__() != "torch.strided":
            raise TypeError("sparse tensors cannot be used as they are: make a cupyx.scipy.sparse matrix of it")
        X = cupy.from_dlpack(X.detach())
    return _from_dense(X)


def _from_dense(X: Any) -> DeviceMatrix:
    cupy = need_cupy()
    if X.ndim != 2 or not all(X.shape):
        raise ValueError(f"a matrix needs 2 dimensions and an entry, X is {X.shape}")
    X = to_float(X)
    columns = cupy.ascontiguousarray(X.T)
    observed = cupy.flatnonzero(~cupy.isnan(columns))
    starts = cupy.searchsorted(observed, cupy.arange(X.shape[1] + 1) * X.shape[0])
    return _checked(starts, observed % X.shape[0], columns.ravel()[observed], X.shape)


def _from_sparse(A: Any) -> DeviceMatrix:
    """All stored entries, zeros too; duplicates are an error."""
    cupy = need_cupy()
    m, n = A.shape
    A = A if A.format in ("csr", "coo") else A.tocsc()
    if A.format == "coo":
        rows, columns = A.row, A.col
    else:
        owners = cupy.searchsorted(A.indptr, cupy.arange(int(A.indptr[-1])), side="right") - 1
        rows, columns = (owners, A.indices) if A.format == "csr" else (A.indices, owners)
    if rows.size and not (int(rows.min()) >= 0 and int(rows.max()) < m and int(columns.min()) >= 0):
        raise ValueError(f"malformed matrix: rows must lie in 0 ... {m - 1}, columns in 0 ... {n - 1}")
    key = columns.astype(np.int64) * m + rows
    order = cupy.argsort(key)
    key = key[order]
    if bool((key[1:] == key[:-1]).any()):
        raise ValueError(
            "duplicate entries: a position can be observed once; aggregate first (the mean, the last, ...)"
        )
    starts = cupy.searchsorted(key, cupy.arange(n + 1, dtype=np.int64) * m)
    return _checked(starts, rows[order], to_float(A.data)[order], (m, n))


def _checked(starts: Any, rows: Any, values: Any, shape: tuple[int, int]) -> DeviceMatrix:
    cupy = need_cupy()
    if not values.size:
        raise ValueError("no entry is observed: there is nothing to recover the matrix from")
    bad = ~cupy.isfinite(values)
    if bool(bad.any()):
        raise ValueError(f"{int(bad.sum())} observed values are not finite; leave them out: NaN is missing")
    return DeviceMatrix.from_parts(starts, rows, values, shape)
