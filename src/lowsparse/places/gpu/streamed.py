"""A matrix that passes through a GPU in pieces: it is in the memory of the processor, or on disk.

While a piece is swept on the GPU, the next one is copied there. Formulas are evaluated on the GPU too; the results of a
piece are copied back and merged in order. Memory of the processor is page-locked, so that the GPU copies from it at the
full speed of the bus.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...entries.observed import ObservedMatrix
from ...entries.protocol import Recovered
from ...linalg.arrays import host, on_device
from ...linalg.lowrank import LowRank
from ..disk.matrix import StoredMatrix
from ..disk.scratch import Scratch
from ..disk.store import read_ahead, split_columns
from ..pieces.formulas import Formula, Written
from ..pieces.matrix import LoadedPiece, SequentialPieces
from .launch import explain_out_of_memory, need_cupy
from .matrix import DeviceMatrix, Positions

WORK = 128  # bytes on the GPU per entry of a piece: two pieces, one sorted by row, S twice, and what is computed
MIN_LOCKED = 2**25  # bytes of an array from which on it has pages of its own, which can be locked


class StreamedPiece(LoadedPiece):
    """Consecutive columns, on the GPU while a pass uses them."""

    def __init__(self, matrix: StreamedMatrix, number: int, columns: tuple[int, int]) -> None:
        super().__init__(number, columns, matrix.indptr)
        self._matrix: StreamedMatrix = weakref.proxy(matrix)  # pages are unlocked as soon as the matrix goes
        self._arrays: dict[str, Any] = {}  # on the GPU, by name

    @cached_property
    def _positions(self) -> Positions:
        """What stays from pass to pass of the positions: all but the row indices."""
        starts = self.indptr
        return Positions(need_cupy().asarray(starts), None, starts, self._matrix.shape[0])

    @contextmanager
    def loaded(self, rows: Any, values: Any) -> Iterator[None]:
        """Use these data, which are on the GPU, with the values that the matrix has instead of them."""
        known = self._positions
        positions = Positions(known.start, rows, known.starts, known.across, known.cache)
        self._loaded = data = DeviceMatrix(positions, values, (known.across, known.starts.size - 1))
        try:
            for formula in self._matrix.own_values:
                new = formula.restrict(self.columns).evaluate(self)
                self._loaded, self._sweep = data.with_values(new.astype(self._matrix.dtype, copy=False)), None
            yield
        finally:
            self._loaded, self._sweep, self._arrays = None, None, {}

    def held_array(self, name: str) -> Any:
        """Numbers that were stored under this name, or memory for those that the pass writes."""
        scratch = self._matrix.held[name]
        if name not in self._arrays:
            self._arrays[name] = need_cupy().empty(self.entries.stop - self.entries.start, scratch.dtype)
            if name not in self.writes:
                self._arrays[name].set(scratch.read(self.number))
        return self._arrays[name]

    def save_held(self, name: str) -> None:
        """Store the numbers that a pass has written."""
        self._matrix.held[name].write(self.number, self._arrays.pop(name))


class StreamedMatrix(SequentialPieces):
    """A partly observed matrix that is swept on a GPU, and need not fit there; the `origin` is in memory, or on disk.

    `memory` is in bytes, on the GPU, for arrays as long as a piece; the factors come on top.
    """

    backend = "cuda"

    def __init__(self, origin: ObservedMatrix | StoredMatrix, memory: int) -> None:
        need_cupy()
        self.origin, self.memory = origin, memory
        source = origin.side if isinstance(origin, StoredMatrix) else origin
        self.shape, self.nnz, self.indptr = source.shape, source.nnz, source.indptr
        self.dtype: np.dtype[Any] = source.values.dtype
        self.arrays: tuple[NDArray[Any], ...] = source.rows, source.values
        self.own_values: tuple[Formula, ...] = ()  # applied in turn to the values of the origin
        self.held: dict[str, Scratch | LockedArray] = {}
        self._split()
        self._locked = None if isinstance(origin, StoredMatrix) else PageLock(self.arrays)

    def _split(self) -> None:
        ranges = split_columns(self.indptr, max(self.memory // WORK, 1))
        self.pieces: list[StreamedPiece] = [StreamedPiece(self, k, columns) for k, columns in enumerate(ranges)]

    def _load_pieces(self) -> Iterator[StreamedPiece]:
        cupy = need_cupy()
        pool = cupy.get_default_memory_pool()
        longest = max(part.stop - part.start for part in self._parts)
        with explain_out_of_memory(2 * longest * (4 + self.dtype.itemsize), "two pieces of the data"):
            buffers = [(cupy.empty(longest, np.int32), cupy.empty(longest, self.dtype)) for _ in range(2)]
        copying, device, working = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Device(), cupy.cuda.get_current_stream
        working().synchronize()  # earlier work on this memory is done

        def fetch(k: int) -> Sequence[Any]:
            part = self._parts[k]
            copies = [buffer[: part.stop - part.start] for buffer in buffers[k % 2]]
            with device:
                for copy, array in zip(copies, self.arrays, strict=True):
                    copy.set(np.asarray(array[part]), stream=copying)
                copying.synchronize()
            return copies

        with ThreadPoolExecutor(1) as thread:
            coming = thread.submit(fetch, 0)
            for k, _ in enumerate(read_ahead(self.arrays, self._parts)):
                rows, values = coming.result()
                if k + 1 < len(self.pieces):
                    coming = thread.submit(fetch, k + 1)
                with self.pieces[k].loaded(rows, values):
                    yield self.pieces[k]
                working().synchronize()  # before the buffer is used again
                if pool.free_bytes() > self.memory // 2:  # in blocks of other sizes, which may never be used again
                    pool.free_all_blocks()

    def iterate_pieces(self, function: Callable[..., Any], *formulas: Formula, writes: Written = ()) -> Iterator[Any]:
        """As `map_pieces`, one piece at a time; the results are copied to the processor."""
        if isinstance(self.origin, StoredMatrix):
            self.origin.verified  # noqa: B018
        for found in super().iterate_pieces(function, *formulas, writes=writes):
            yield _to_host(found)

    def _scratch(self, dtype: DTypeLike) -> Scratch | LockedArray:
        if isinstance(self.origin, StoredMatrix):
            return Scratch(self.origin.folder, self._parts, dtype)
        return LockedArray(self._parts, dtype)

    def with_values(self, values: Any) -> StreamedMatrix:
        """Other values at the same positions, by a formula of those it has."""
        assert values.matrix is self
        other = object.__new__(StreamedMatrix)
        same = {name: part for name, part in vars(self).items() if name not in ("T", "_materialized")}
        other.__dict__.update(same, own_values=(*self.own_values, values.formula))
        other._split()
        return other

    def with_stored_values(self, values: Any) -> StreamedMatrix:
        """Other values at the same positions, stored where the origin is."""
        return StreamedMatrix(self.with_values(values)._materialized, self.memory)

    def sample(self, size: int) -> ObservedMatrix:
        """About `size` entries, evenly spread, in the memory of the processor."""
        return super().sample(size) if self.own_values else self.origin.sample(size)

    @cached_property
    def T(self) -> StreamedMatrix:  # noqa: N802
        """The transposed matrix: a copy where the origin is."""
        return StreamedMatrix(self._materialized.T, self.memory)

    @property
    def largest_part(self) -> int:
        """How many entries `take_columns` may bring into the memory of the processor at once."""
        return self.origin.largest_part if isinstance(self.origin, StoredMatrix) else self.nnz

    def take_columns(self, which: NDArray[np.intp]) -> ObservedMatrix | None:
        """Some columns, in the memory of the processor; None if they have no entry."""
        return self._materialized.take_columns(which)

    def fingerprint(self) -> str:
        """That of a matrix in memory or on disk with the same values."""
        return self._materialized.fingerprint()

    @cached_property
    def _materialized(self) -> ObservedMatrix | StoredMatrix:
        """The origin; if the values are a formula, a matrix of its kind with these values."""
        if not self.own_values:
            return self.origin
        if isinstance(self.origin, ObservedMatrix):
            return self.origin.with_values(np.asarray(self.values))
        return self.origin.written_with(self, self.values)

    def recovered(self, L: LowRank, flagged: Any, values: Any) -> Recovered:
        """The results, where the origin is: in memory, or in pieces."""
        if self.origin.in_pieces:
            return super().recovered(L, flagged, values)
        return self.origin.recovered(L, np.asarray(flagged), np.asarray(values))


class LockedArray:
    """A number for each entry in page-locked memory; `Scratch` is the same on disk."""

    def __init__(self, parts: Sequence[slice], dtype: DTypeLike) -> None:
        self.parts, self.dtype = parts, np.dtype(dtype)
        self.numbers = np.empty(parts[-1].stop, self.dtype)
        self._locked = PageLock((self.numbers,))

    def read(self, piece: int) -> NDArray[Any]:
        """The numbers of a piece."""
        return self.numbers[self.parts[piece]]

    def write(self, piece: int, numbers: Any) -> None:
        """Store the numbers of a piece."""
        if on_device(numbers):
            need_cupy().ascontiguousarray(numbers).get(out=self.read(piece))
        else:
            self.read(piece)[:] = numbers


class PageLock:
    """Locks the pages of large arrays, as long as it exists, if the system allows it."""

    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None:
        runtime = need_cupy().cuda.runtime
        for array in (array for array in arrays if array.nbytes >= MIN_LOCKED):
            with contextlib.suppress(RuntimeError):  # too much, or locked by another: copies are slower then
                runtime.hostRegister(array.ctypes.data, array.nbytes, 0)
                weakref.finalize(self, _unlock, runtime, array).atexit = False  # the driver may have gone by then


def _unlock(runtime: Any, array: NDArray[Any]) -> None:
    runtime.hostUnregister(array.ctypes.data)


def _to_host(found: Any) -> Any:
    """The results of a piece, copied to the processor."""
    if isinstance(found, tuple):
        return tuple(_to_host(part) for part in found)
    return host(found) if on_device(found) else found
