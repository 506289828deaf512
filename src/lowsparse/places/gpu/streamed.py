"""A matrix that passes through a GPU in pieces: it is in the memory of the processor, or on disk.

Each pass copies the next piece to the GPU while the present one is swept there, so that two of them are there at a
time. Formulas are evaluated there too, and what a pass gives for a piece is brought back and merged in their order.
Memory of the processor is page-locked while it is used so: a GPU copies from it without help, at the full speed of the
bus.
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
from numpy.typing import NDArray

from ...entries.observed import ObservedMatrix
from ...entries.protocol import Recovered
from ...linalg.arrays import host, on_device
from ...linalg.lowrank import LowRank
from ..disk.matrix import StoredMatrix
from ..disk.scratch import Scratch
from ..disk.store import ranges, read_ahead
from ..pieces.formulas import Formula, StoredNumbers
from ..pieces.matrix import LoadedPiece, SequentialPieces
from .launch import explain_out_of_memory, need_cupy
from .matrix import DeviceMatrix, Positions

__all__ = ["WORK", "StreamedMatrix"]

WORK = 128  # bytes on the GPU for each entry of a piece: two pieces, one sorted by row, S twice, and what is computed
LOCKED = 2**25  # bytes of an array from which on it has pages of its own, which can be locked


class StreamedPiece(LoadedPiece):
    """Some columns, which are on the GPU while a pass is at them."""

    def __init__(self, matrix: StreamedMatrix, number: int, first: int, end: int) -> None:
        self._matrix: StreamedMatrix = weakref.proxy(matrix)  # pages are unlocked as soon as the matrix goes
        self.number, self.columns = number, slice(first, end)
        self.entries = slice(*(int(matrix.indptr[j]) for j in (first, end)))
        self.writes: frozenset[str] = frozenset()  # what is kept of it that is written, not read, by the pass
        self._rooms: dict[str, Any] = {}  # for that

    @cached_property
    def _positions(self) -> Positions:
        """What is known of the positions but the positions themselves: it stays from pass to pass."""
        starts = self._matrix.indptr[self.columns.start : self.columns.stop + 1] - self.entries.start
        return Positions(need_cupy().asarray(starts), None, starts, self._matrix.shape[0])

    @contextmanager
    def loaded(self, rows: Any, values: Any) -> Iterator[None]:
        """While a pass is at it: the data, which are on the GPU, with the values that the matrix has instead."""
        known = self._positions
        positions = Positions(known.start, rows, known.starts, known.across, known.made)
        self._loaded = data = DeviceMatrix(positions, values, (known.across, known.starts.size - 1))
        try:
            for formula in self._matrix.given:
                new = formula.restrict(self.columns).evaluate(self)
                self._loaded, self._sweep = data.with_values(new.astype(self._matrix.dtype, copy=False)), None
            yield
        finally:
            self._loaded, self._sweep, self._rooms = None, None, {}

    def held(self, name: str) -> Any:
        """Numbers that were kept for later; or room for those that the pass writes."""
        scratch = self._matrix.kept[name]
        if name not in self._rooms:
            self._rooms[name] = need_cupy().empty(self.entries.stop - self.entries.start, scratch.dtype)
            if name not in self.writes:
                self._rooms[name].set(scratch.read(self.number))
        return self._rooms[name]

    def keep(self, name: str) -> None:
        """Keep the numbers that a pass has written."""
        self._matrix.kept[name].write(self.number, self._rooms.pop(name))


class StreamedMatrix(SequentialPieces):
    """A partly observed matrix that is swept on a GPU, and need not fit there.

    Parameters
    ----------
    origin
        Where its entries are: in memory, or on disk.
    memory
        Bytes on the GPU for what is as long as a piece; the factors come on top.
    """

    backend = "cuda"

    def __init__(self, origin: ObservedMatrix | StoredMatrix, memory: int) -> None:
        need_cupy()
        self.origin, self.memory = origin, memory
        source = origin.side if isinstance(origin, StoredMatrix) else origin
        self.shape, self.nnz, self.indptr = source.shape, source.nnz, source.indptr
        self.dtype: np.dtype[Any] = source.values.dtype
        self.arrays: tuple[NDArray[Any], ...] = source.rows, source.values
        self.given: tuple[Formula, ...] = ()  # of values, one after the other, instead of those of the origin
        self.kept: dict[str, Scratch | Locked] = {}
        self._cut()
        self._locked = None if isinstance(origin, StoredMatrix) else PageLock(self.arrays)

    def _cut(self) -> None:
        columns = ranges(self.indptr, max(self.memory // WORK, 1))
        self.pieces: list[StreamedPiece] = [StreamedPiece(self, k, *some) for k, some in enumerate(columns)]

    # -- going through it

    def _load_pieces(self) -> Iterator[StreamedPiece]:
        cupy = need_cupy()
        pool = cupy.get_default_memory_pool()
        longest = max(part.stop - part.start for part in self._parts)
        with explain_out_of_memory(2 * longest * (4 + self.dtype.itemsize), "two pieces of the data"):
            rooms = [(cupy.empty(longest, np.int32), cupy.empty(longest, self.dtype)) for _ in range(2)]
        copying, device, working = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Device(), cupy.cuda.get_current_stream
        working().synchronize()  # whoever had this memory before is done with it

        def fetch(k: int) -> Sequence[Any]:
            part = self._parts[k]
            there = [room[: part.stop - part.start] for room in rooms[k % 2]]
            with device:
                for room, array in zip(there, self.arrays, strict=True):
                    room.set(np.asarray(array[part]), stream=copying)
                copying.synchronize()
            return there

        with ThreadPoolExecutor(1) as thread:
            coming = thread.submit(fetch, 0)
            for k, _ in enumerate(read_ahead(self.arrays, self._parts)):
                here = coming.result()
                if k + 1 < len(self.pieces):
                    coming = thread.submit(fetch, k + 1)
                with self.pieces[k].loaded(*here):
                    yield self.pieces[k]
                working().synchronize()  # before the room is used again
                if pool.free_bytes() > self.memory // 2:  # of other sizes, which may not be of use again
                    pool.free_all_blocks()

    def _map_sequentially(
        self, function: Callable[..., Any], formulas: tuple[Formula, ...], writes: tuple[StoredNumbers, ...] = ()
    ) -> Iterator[Any]:
        if isinstance(self.origin, StoredMatrix):
            self.origin.verified  # noqa: B018
        for found in super()._map_sequentially(function, formulas, writes):
            yield _brought(found)

    def _scratch(self, dtype: Any) -> Scratch | Locked:
        if isinstance(self.origin, StoredMatrix):
            return Scratch(self.origin.folder, self._parts, dtype)
        return Locked(self._parts, dtype)

    # -- what solvers use

    def with_values(self, values: Any) -> StreamedMatrix:
        """Other values at the same positions, by a formula of those it has."""
        assert values.home is self
        other = object.__new__(StreamedMatrix)
        same = {name: part for name, part in vars(self).items() if name not in ("T", "_as_it_is")}
        other.__dict__.update(same, given=(*self.given, values.formula))
        other._cut()
        return other

    def with_stored_values(self, values: Any) -> StreamedMatrix:
        """Other values at the same positions, kept where the origin is."""
        return StreamedMatrix(self.with_values(values)._as_it_is, self.memory)

    def sample(self, size: int) -> ObservedMatrix:
        """About so many entries, evenly spread, with the processor."""
        return super().sample(size) if self.given else self.origin.sample(size)

    @cached_property
    def row_counts(self) -> NDArray[np.int64]:
        """The number of entries in each row."""
        return np.asarray(sum(self.map_pieces(_row_counts)), dtype=np.int64)

    @cached_property
    def T(self) -> StreamedMatrix:  # noqa: N802
        """The transposed matrix: a copy beside the origin."""
        return StreamedMatrix(self._as_it_is.T, self.memory)

    @property
    def largest_part(self) -> int:
        """Entries of columns that may be in the memory of the processor at once."""
        return self.origin.largest_part if isinstance(self.origin, StoredMatrix) else self.nnz

    def take_columns(self, which: NDArray[np.intp]) -> ObservedMatrix | None:
        """Some columns, in the memory of the processor; None if they have no entry."""
        return self._as_it_is.take_columns(which)

    def fingerprint(self) -> str:
        """That of a matrix with the same values where the origin is."""
        return self._as_it_is.fingerprint()

    @cached_property
    def _as_it_is(self) -> ObservedMatrix | StoredMatrix:
        """The origin; if the values are a formula, a matrix of its kind that has them."""
        if not self.given:
            return self.origin
        if isinstance(self.origin, ObservedMatrix):
            return self.origin.with_values(np.asarray(self.values))
        return self.origin.written_with(self, self.values)

    def recovered(self, L: LowRank, flagged: Any, values: Any) -> Recovered:
        """Where the origin is: in memory, or in pieces."""
        if self.origin.in_pieces:
            return super().recovered(L, flagged, values)
        return self.origin.recovered(L, np.asarray(flagged), np.asarray(values))


class Locked:
    """Numbers of a matrix in pieces, one for each entry, in page-locked memory (as `scratch.Scratch` is on disk)."""

    def __init__(self, parts: Sequence[slice], dtype: Any) -> None:
        self.parts, self.dtype = parts, np.dtype(dtype)
        self.numbers = np.empty(parts[-1].stop, self.dtype)
        self._locked = PageLock((self.numbers,))

    def read(self, piece: int) -> NDArray[Any]:
        """The numbers of a piece."""
        return self.numbers[self.parts[piece]]

    def write(self, piece: int, numbers: Any) -> None:
        """Keep the numbers of a piece."""
        if on_device(numbers):
            need_cupy().ascontiguousarray(numbers).get(out=self.read(piece))
        else:
            self.read(piece)[:] = numbers


class PageLock:
    """Arrays whose pages stay where they are, as long as this does, if they are large and the system allows it."""

    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None:
        runtime = need_cupy().cuda.runtime
        for array in (array for array in arrays if array.nbytes >= LOCKED):
            with contextlib.suppress(RuntimeError):  # too much, or locked by another: copies take longer then
                runtime.hostRegister(array.ctypes.data, array.nbytes, 0)
                weakref.finalize(self, _unlock, runtime, array).atexit = False  # the driver may have gone by then


def _unlock(runtime: Any, array: NDArray[Any]) -> None:
    runtime.hostUnregister(array.ctypes.data)


def _brought(found: Any) -> Any:
    """What a pass gives for a piece, with the processor."""
    if isinstance(found, tuple):
        return tuple(_brought(part) for part in found)
    return host(found) if on_device(found) else found


def _row_counts(piece: StreamedPiece) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = piece.M.row_counts
    return counts
