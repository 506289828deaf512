"""The entries of a partly observed matrix in the memory of a GPU: what `ObservedMatrix` is, for CuPy."""

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

from ...entries.compressed import to_float
from ...entries.observed import ObservedMatrix
from ...entries.protocol import SAMPLE, HeldOut, MatrixSummary, Recovered, Resident
from ...linalg.arrays import host, offer_kernels, to_device_of
from ...linalg.lowrank import LowRank
from ...sweeps import native
from . import launch
from .launch import NULL, c_type, explain_out_of_memory, kernel, need_cupy
from .sweep import ColumnSweep

__all__ = ["DeviceMatrix", "DeviceOutliers", "as_device_matrix", "is_on_gpu"]

COPIES = 256  # threads that copy a line
BLOCKS = 1024  # that sum up the values
FEW = 200_000  # entries that the processor is done with before a GPU has been on_progress what to do
NEEDED = 100  # bytes for each entry, by the methods that need most: both orders, S twice, what is computed

offer_kernels(launch)


@dataclass(eq=False)
class Positions:
    """Where the entries are, which matrices with other values share: by line, and by the lines across once needed."""

    start: Any  # on the device, int64
    index: Any  # on the device, int32
    starts: NDArray[np.int64]  # `start`, with the processor
    across: int  # how many lines there are in the other direction
    made: dict[Any, Any] = field(default_factory=dict)  # lists of work by the sweep

    @functools.cached_property
    def counts(self) -> NDArray[np.int64]:
        """Entries of each line."""
        return np.diff(self.starts)

    @functools.cached_property
    def counts_across(self) -> NDArray[np.int64]:
        """Entries of each line of the other direction."""
        return self.counted_across(self.index)

    def counted_across(self, index: Any) -> NDArray[np.int64]:
        """How many of these entries, given by their lines across, each of those lines has."""
        import cupy

        out = cupy.zeros(self.across, np.int32)
        kernel("count_indices<int>")((1024,), (256,), (index, np.int64(index.size), out))
        return host(out).astype(np.int64)

    def owners(self) -> Any:
        """The line of each entry."""
        import cupy

        out = cupy.empty(self.index.size, np.int32)
        kernel("owners<int>")((self.starts.size - 1,), (COPIES,), (self.start, out))
        return out

    @functools.cached_property
    def turned(self) -> tuple[Positions, Any]:
        """The positions in the other order, and for each of them where it was."""
        import cupy

        order = cupy.argsort(self.index)  # a stable radix sort: the lines across ascend
        starts = np.concatenate(([0], np.cumsum(self.counts_across)))
        index = self.owners()[order]
        back = Positions(cupy.asarray(starts), index, starts, self.starts.size - 1)
        return back, order.astype(np.uint32 if order.size < 2**32 else np.int64)


class DeviceMatrix(MatrixSummary):
    """The entries of a partly observed m x n matrix on a GPU, sorted by column; immutable, as `ObservedMatrix` is.

    Make one with `from_host`, or with `as_device_matrix` from what is there already.
    """

    on_gpu: ClassVar[bool] = True
    in_pieces: ClassVar[bool] = False

    def __init__(self, positions: Positions, values: Any, shape: tuple[int, int]) -> None:
        self.positions, self.values, self.shape = positions, values, shape
        self._turned_from: Callable[[], DeviceMatrix | None] = _nobody

    @classmethod
    def from_parts(cls, indptr: Any, rows: Any, values: Any, shape: tuple[int, int]) -> DeviceMatrix:
        """From arrays that are sorted by column and have been checked; indptr may be with the processor."""
        import cupy

        starts = host(indptr).astype(np.int64, copy=False)
        positions = Positions(cupy.asarray(indptr, np.int64), cupy.ascontiguousarray(rows, np.int32), starts, shape[0])
        return cls(positions, cupy.ascontiguousarray(values), shape)

    @classmethod
    def from_host(cls, M: ObservedMatrix) -> DeviceMatrix:
        """A copy of what the processor has."""
        cupy = need_cupy()
        size = M.values.nbytes + M.rows.nbytes + M.indptr.nbytes
        with explain_out_of_memory(size, "the data"):
            return cls.from_parts(M.indptr, cupy.asarray(M.rows), cupy.asarray(M.values), M.shape)

    def to_host(self) -> ObservedMatrix:
        """A copy for the processor."""
        return ObservedMatrix.trusted(self.positions.starts, host(self.rows), host(self.values), self.shape)

    def fingerprint(self) -> str:
        """That of the same matrix with the processor; it is copied there once for it."""
        return self._fingerprint

    @functools.cached_property
    def _fingerprint(self) -> str:
        return self.to_host().fingerprint()

    # ------------------------------------------------------------------ as of an ObservedMatrix

    @property
    def indptr(self) -> Any:
        """Where each column starts, on the device."""
        return self.positions.start

    @property
    def rows(self) -> Any:
        """The row of each entry."""
        return self.positions.index

    @property
    def nnz(self) -> int:
        """The number of observed entries."""
        return int(self.values.size)

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64."""
        kept: np.dtype[Any] = self.values.dtype
        return kept

    @property
    def column_counts(self) -> NDArray[np.int64]:
        """Entries of each column, with the processor."""
        return self.positions.counts

    @property
    def row_counts(self) -> NDArray[np.int64]:
        """Entries of each row, with the processor."""
        return self.positions.counts_across

    @property
    def T(self) -> DeviceMatrix:  # noqa: N802
        """The transposed matrix, sorted by its own columns: it is made once."""
        return self._turned_from() or self._turned

    @functools.cached_property
    def _turned(self) -> DeviceMatrix:
        positions, order = self.positions.turned
        back = DeviceMatrix(positions, self.values[order], (self.shape[1], self.shape[0]))
        back._turned_from = weakref.ref(self)  # a circle would keep the memory until somebody looks for circles
        return back

    def with_values(self, values: Any) -> DeviceMatrix:
        """Other values at the same positions."""
        return DeviceMatrix(self.positions, values, self.shape)

    def take_columns(self, which: NDArray[np.intp]) -> DeviceMatrix | None:
        """Some columns, in this order; None if they have no entry."""
        import cupy

        which = host(which)
        if which.size == self.shape[1] and np.all(np.diff(which) == 1):
            return self
        starts = np.concatenate(([0], np.cumsum(self.column_counts[which])))
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
        import cupy

        if rows.size == self.shape[0]:
            return self
        place = np.full(self.shape[0], -1, np.int32)
        place[rows] = np.arange(rows.size)
        n, run = self.shape[1], kernel(f"take_across<{c_type(self.dtype)}>")
        args = self.indptr, self.rows, self.values, cupy.asarray(place)
        counts = cupy.empty(n, np.int32)
        run((n,), (256,), (*args, counts, NULL, NULL, NULL))
        starts = np.concatenate(([0], np.cumsum(counts.get(), dtype=np.int64)))
        start, index = cupy.asarray(starts), cupy.empty(int(starts[-1]), np.int32)
        values = cupy.empty(index.size, self.dtype)
        if index.size:
            run((n,), (256,), (*args, NULL, start, index, values))
        return DeviceMatrix(Positions(start, index, starts, rows.size), values, (rows.size, n))

    def split(self, held: NDArray[np.intp]) -> tuple[DeviceMatrix, HeldOut]:
        """All entries but those at these ascending indices; and those, with the processor."""
        import cupy

        at = cupy.asarray(held)
        kept = cupy.ones(self.nnz, bool)
        kept[at] = False
        starts = self.positions.starts - np.searchsorted(held, self.positions.starts)
        rest = DeviceMatrix.from_parts(starts, self.rows[kept], self.values[kept], self.shape)
        columns = (np.searchsorted(self.positions.starts, held, side="right") - 1).astype(np.int32)
        return rest, HeldOut(host(self.rows[at]), columns, host(self.values[at]).astype(np.float64))

    def sample(self, size: int) -> DeviceMatrix:
        """About so many of the entries, evenly spread over all columns; all if there are not many more."""
        step = max(1, self.nnz // size)
        starts = -(-self.positions.starts // step)
        return DeviceMatrix.from_parts(starts, self.rows[::step], self.values[::step], self.shape)

    def median_magnitude(self) -> float:
        """Of the values of a sample that are not zero; 0 if all are: one number is waited for."""
        sizes = np.sort(np.abs(self.values[:: max(1, self.nnz // SAMPLE)]))
        zeros = sizes.size - int(np.count_nonzero(sizes))
        low, high = zeros + (sizes.size - zeros - 1) // 2, zeros + (sizes.size - zeros) // 2
        return float(host(sizes[low : high + 1]).astype(np.float64).mean()) if zeros < sizes.size else 0.0

    def magnitudes(self, clip: float) -> tuple[float, float]:
        """The largest, and the sum of the squares, each magnitude taken as at most `clip`: by one kernel."""
        import cupy

        found = cupy.empty((2, BLOCKS))
        run = kernel(f"magnitudes<{c_type(self.dtype)}>")
        run((BLOCKS,), (256,), (self.values, np.int64(self.nnz), float(clip), found))
        largest, squares = host(found)
        return float(largest.max()), float(squares.sum())

    def count_lines(self, flagged: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many of the entries at these positions are in each row, and in each column."""
        import cupy

        by_column = np.diff(host(cupy.searchsorted(flagged, self.indptr)))
        return self.positions.counted_across(self.rows[flagged]), by_column

    def columns_of_entries(self) -> Any:
        """The column of each entry."""
        return self.positions.owners()

    def parts(self) -> Iterator[Any]:
        """The values, at once."""
        yield self.values

    @property
    def largest_part(self) -> int:
        """How many entries `take_columns` may bring together: all are there."""
        return self.nnz

    def to_host_if_small(self) -> Resident:
        """A copy of a small matrix for the processor, if that has its compiled core."""
        return self.to_host() if self.nnz <= FEW and native.reason_unavailable() is None else self

    def open_sweep(self, backend: str = "auto") -> ColumnSweep:
        """The sweep on the GPU."""
        return ColumnSweep(self)

    def with_stored_values(self, values: Any) -> DeviceMatrix:
        """Other values at the same positions, as the data's kind of number."""
        return self.with_values(values.astype(self.dtype, copy=False))

    def hold(self, numbers: Any) -> Any:
        """The array itself."""
        return numbers

    def spread_over_columns(self, numbers: NDArray[Any]) -> Any:
        """For each entry, the number of its column."""
        return to_device_of(numbers, self.values)[self.columns_of_entries()]

    def spread_over_rows(self, numbers: NDArray[Any]) -> Any:
        """For each entry, the number of its row."""
        return to_device_of(numbers, self.values)[self.rows]

    def reduce(self, merging: str, function: Callable[..., tuple[Any, ...]], *numbers: Any) -> tuple[Any, ...]:
        """``function(columns, *numbers)``, by the processor."""
        return function(self.to_host(), *(host(y) for y in numbers))

    def with_room_for(self, rank: int) -> DeviceMatrix:
        """Itself."""
        return self

    def solving(self, placed: bool) -> AbstractContextManager[None]:
        """If the GPU has too little memory, the error says how much is needed and what to do."""
        return explain_out_of_memory(NEEDED * self.nnz, "the solve")

    def outliers(self, flagged: Any, values: Any) -> DeviceOutliers:
        """S, which stays on the GPU."""
        return DeviceOutliers(self, flagged, values)

    def recovered(self, L: LowRank, flagged: Any, values: Any) -> Recovered:
        """All of it stays on the GPU."""
        return Recovered(self, L, flagged, self.outliers(flagged, values))


def _nobody() -> None:
    return None


@dataclass(frozen=True, eq=False, repr=False)
class DeviceOutliers:
    """The outliers of a matrix on a GPU, which stay there until they are asked for."""

    M: DeviceMatrix
    positions: Any  # among the entries of M, ascending
    data: Any  # the values there

    @property
    def nnz(self) -> int:
        """How many there are."""
        return int(self.positions.size)

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix."""
        return self.M.shape

    def to_cupy(self) -> Any:
        """A sparse matrix of CuPy."""
        import cupy
        from cupyx.scipy import sparse

        starts = cupy.searchsorted(self.positions, self.M.indptr)
        return sparse.csc_matrix((self.data, self.M.rows[self.positions], starts.astype(np.int32)), shape=self.shape)

    def to_scipy(self) -> sparse.csc_array:
        """A sparse array of SciPy, for the processor."""
        import cupy

        starts = host(cupy.searchsorted(self.positions, self.M.indptr))
        rows = host(self.M.rows[self.positions])
        kind: Any = np.int32 if self.nnz <= np.iinfo(np.int32).max else np.int64
        parts: Any = host(self.data), rows.astype(kind), starts.astype(kind)
        return sparse.csc_array(parts, shape=self.shape)

    def __repr__(self) -> str:
        return f"DeviceOutliers({self.shape[0]} x {self.shape[1]}, {self.nnz} outliers)"


# ---------------------------------------------------------------------- what is on a GPU already


def is_on_gpu(X: Any) -> bool:
    """Whether X is on a GPU: an array or sparse matrix of CuPy, a CUDA tensor, a `DeviceMatrix`.

    >>> is_on_gpu(np.ones(2))
    False
    """
    library = type(X).__module__.partition(".")[0]
    return isinstance(X, DeviceMatrix) or library in ("cupy", "cupyx") or (library == "torch" and X.is_cuda)


def as_device_matrix(X: Any) -> DeviceMatrix:
    """A `DeviceMatrix` of what is on a GPU: CuPy arrays with NaN for missing, its sparse matrices, CUDA tensors."""
    if isinstance(X, DeviceMatrix):
        return X
    library = type(X).__module__.partition(".")[0]
    if library == "cupyx":
        return _from_sparse(X)
    if library == "torch":
        import cupy

        if X.layout.__str__() != "torch.strided":
            raise TypeError("sparse tensors cannot be used as they are: make a cupyx.scipy.sparse matrix of it")
        X = cupy.from_dlpack(X.detach())
    return _from_dense(X)


def _from_dense(X: Any) -> DeviceMatrix:
    import cupy

    if X.ndim != 2 or not all(X.shape):
        raise ValueError(f"a matrix needs 2 dimensions and an entry, X is {X.shape}")
    X = to_float(X)
    columns = cupy.ascontiguousarray(X.T)
    place = cupy.flatnonzero(~cupy.isnan(columns))
    starts = cupy.searchsorted(place, cupy.arange(X.shape[1] + 1) * X.shape[0])
    return _checked(starts, place % X.shape[0], columns.ravel()[place], X.shape)


def _from_sparse(A: Any) -> DeviceMatrix:
    """Its stored entries, zeros too; duplicates are an error."""
    import cupy

    m, n = A.shape
    A = A if A.format in ("csr", "coo") else A.tocsc()
    if A.format == "coo":
        rows, columns, values = A.row, A.col, A.data
    elif A.format == "csr":
        rows, columns, values = _repeated(A.indptr), A.indices, A.data
    else:
        rows, columns, values = A.indices, _repeated(A.indptr), A.data
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
    return _checked(starts, rows[order], to_float(values)[order], (m, n))


def _repeated(indptr: Any) -> Any:
    import cupy

    return cupy.searchsorted(indptr, cupy.arange(int(indptr[-1])), side="right") - 1


def _checked(starts: Any, rows: Any, values: Any, shape: tuple[int, int]) -> DeviceMatrix:
    import cupy

    if not values.size:
        raise ValueError("no entry is observed: there is nothing to recover the matrix from")
    bad = ~cupy.isfinite(values)
    if bool(bad.any()):
        raise ValueError(f"{int(bad.sum())} observed values are not finite; leave them out: NaN is missing")
    return DeviceMatrix.from_parts(starts, rows, values, shape)
