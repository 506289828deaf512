"""A matrix whose pieces are on the workers of a Dask cluster: U travels out, a few sums travel back.

A pass is one task for each piece, and all are sent in one message; their results are merged in a tree, on the workers
except for its last level. Arrays that a pass writes, such as S, stay with the piece, and both sides count their
versions. When a worker dies, Dask reads its pieces from disk again elsewhere. They lack the current versions, and the
passes that wrote these are replayed, so the answer is the same. Now and then the pieces save their arrays beside the
matrix, so that the history of passes stays short.
"""

from __future__ import annotations

import secrets
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..linalg.lowrank import LowRank
from ..support.files import TemporaryFolder, replacing
from ..sweeps import Float, Sweep
from .compatible import check_worker, describe
from .disk.matrix import StoredMatrix
from .disk.store import Side, split_columns
from .liveness import call, check_open
from .pieces.coefficients import write_coefficients
from .pieces.formulas import Entries, Formula, HeldNumbers, Piece, Written, as_entries, held_names
from .pieces.matrix import WIDTH, MatrixInPieces, merge, merge_tree

MAX_HISTORY = 1 << 28  # bytes of the passes that are remembered, about; beyond it the arrays are saved instead
MAX_DIRECT = 8  # pieces to which U is sent one by one; to more of them it goes from worker to worker


class StalePieceError(RuntimeError):
    """A piece was read from disk again and lacks arrays that earlier passes wrote."""


class WorkerPiece:
    """Consecutive columns in the memory of a worker, and the arrays that passes stored with them."""

    def __init__(
        self, number: int, columns: slice, M: ObservedMatrix, held: dict[str, tuple[int, NDArray[Any]]] | None = None
    ) -> None:
        self.number, self.columns, self.M = number, columns, M
        self.held = held or {}  # by name: the version, and the array

    @cached_property
    def sweep(self) -> Sweep:
        """The sweep over these columns, on as many threads as the worker has."""
        from distributed import get_worker

        sweep = self.M.open_sweep()
        if hasattr(sweep, "threads"):
            sweep.threads = get_worker().state.nthreads
        return sweep

    def held_array(self, name: str) -> NDArray[Any]:
        """The array that was stored under this name."""
        return self.held[name][1]

    def version(self, name: str) -> int:
        """Of the array of this name; -1 if there is none."""
        return self.held[name][0] if name in self.held else -1

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkerPiece, (self.number, self.columns, self.M, self.held)

    def __sizeof__(self) -> int:
        arrays = self.M.rows, self.M.values, self.M.indptr, *(numbers for _, numbers in self.held.values())
        return sum(array.nbytes for array in arrays)


@dataclass(frozen=True, eq=False)
class Pass:
    """A function of every piece, and the stored arrays that it uses."""

    function: Callable[..., Any]
    reads: dict[str, int] = field(default_factory=dict)  # the versions of the arrays that it needs
    writes: dict[str, int] = field(default_factory=dict)  # the versions that the written arrays will have
    result_name: str = ""  # the first item of the result is stored under this name instead of being returned
    drops: tuple[str, ...] = ()  # arrays that are not needed any more

    def run(self, piece: WorkerPiece, formulas: tuple[Formula, ...]) -> Any:
        """Run the function on a piece, and store what it writes."""
        if any(piece.version(name) != version for name, version in self.reads.items()):
            raise StalePieceError(f"piece {piece.number} was read from disk again")
        for name in self.drops:
            piece.held.pop(name, None)
        found = self.function(piece, *(formula.evaluate(piece) for formula in formulas))
        for name, version in self.writes.items():
            piece.held[name] = version, piece.held_array(name)
        if self.result_name:
            piece.held[self.result_name] = 0, np.array(found[0])
            return found[1:]
        return found


History = list[tuple[Pass, tuple[Formula, ...]]]


# ---------------------------------------------------------------------- on the workers


def _read_piece(side: str, client_has: dict[str, str], number: int, first: int, end: int) -> WorkerPiece:
    """Columns of a matrix on a disk that the workers share; this worker may have joined after the solve began."""
    from distributed import get_worker

    check_worker(get_worker().address, side, client_has, describe(side))
    stored = Side.open(Path(side))
    stored.verify(slice(first, end))
    entries = slice(int(stored.indptr[first]), int(stored.indptr[end]))
    indptr = stored.indptr[first : end + 1] - entries.start
    rows, values = np.array(stored.rows[entries]), np.array(stored.values[entries])
    return WorkerPiece(number, slice(first, end), ObservedMatrix(indptr, rows, values, (stored.shape[0], end - first)))


def _copy(one: Pass, piece: WorkerPiece) -> Pass:
    """The pass, on the worker that has the piece."""
    return one


def _replay(piece: WorkerPiece, versions: dict[str, int], history: History) -> WorkerPiece:
    """Run all passes of the history, unless the piece has arrays of these versions or newer ones."""
    if any(piece.version(name) < version for name, version in versions.items()):
        piece.held.clear()
        for one, formulas in history:
            one.run(piece, formulas)
    return piece


def _saved_path(stem: str, number: int) -> Path:
    """The file in which a piece saves its arrays."""
    return Path(f"{stem}-{number}.npz")


def _save(stem: str, names: Iterable[str], piece: WorkerPiece) -> None:
    numbers: dict[str, Any] = {name: piece.held_array(name) for name in names}
    with replacing(_saved_path(stem, piece.number)) as temporary, open(temporary, "wb") as file:
        np.savez(file, **numbers)


def _load(stem: str, piece: WorkerPiece) -> None:
    """Load the arrays of a piece; the pass that does so knows their versions."""
    with np.load(_saved_path(stem, piece.number)) as file:
        piece.held.update({name: (0, file[name]) for name in file.files})


def _with_values(piece: WorkerPiece, formula: Formula) -> WorkerPiece:
    return WorkerPiece(piece.number, piece.columns, piece.M.with_values(np.array(formula.evaluate(piece))))


def _numbers(piece: Piece, numbers: NDArray[Any]) -> tuple[NDArray[Any]]:
    return (numbers,)


# ---------------------------------------------------------------------- in this process


class ClusterMatrix(MatrixInPieces):
    """A partly observed matrix on a Dask cluster: `stored` on a disk that all workers of a `client` share.

    `pieces` are futures of `WorkerPiece`, if their values are not those on disk.
    """

    backend = "dask"

    def __init__(self, stored: StoredMatrix, client: Any, pieces: list[Any] | None = None) -> None:
        self.stored, self.client, self.has_own_values = stored, client, pieces is not None
        self.shape, self.nnz, self.dtype, self.indptr = stored.shape, stored.nnz, stored.dtype, stored.indptr
        self.ranges = split_columns(stored.indptr, -(-stored.nnz // max(1, len(call(client, client.nthreads)))))
        self.held: dict[str, int] = {}  # by name: the version
        self._history: History = []  # the passes that wrote an array that is still needed
        self._dropped: list[str] = []  # arrays that the next pass is to drop
        self._files: list[Path] = []  # in which the pieces have saved their arrays
        weakref.finalize(self, _remove, self._files)
        self.close: Callable[[], object] | None = None  # the cluster, if it was started for this matrix alone
        self._origin: ClusterMatrix | None = None  # kept alive
        self._last: Any = None  # the last futures: to release them before the next are sent would delay these
        self.pieces = pieces or self._read()

    def _read(self) -> list[Any]:
        """A task for each piece that reads it from disk."""
        side = str(self.stored.folder.resolve() / self.stored.name)
        read = partial(_read_piece, side, describe(side))
        pieces: list[Any] = self.client.map(read, range(len(self.ranges)), *zip(*self.ranges, strict=True), pure=False)
        return pieces

    # -- passes

    def _submit(self, one: Pass, formulas: tuple[Formula, ...]) -> list[Any]:
        """A task for each piece."""
        check_open(self.client)
        restricted = [tuple(formula.restrict(slice(*columns)) for formula in formulas) for columns in self.ranges]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            sent = [one] * len(self.pieces) if len(self.pieces) <= MAX_DIRECT else self._spread(one)
            futures: list[Any] = self.client.map(Pass.run, sent, self.pieces, restricted, pure=False)
        return futures

    def _spread(self, one: Pass) -> list[Any]:
        """A pass beside each piece, sent from worker to worker: each gives it to two others.

        Dask's own broadcast, `Client.scatter`, never ends if a worker dies meanwhile; tasks are run again elsewhere.
        """
        copies = [self.client.submit(_copy, one, self.pieces[0], pure=False)]
        while (done := len(copies)) < len(self.pieces):
            pieces = self.pieces[done : 2 * done + 1]
            parents = [copies[(k - 1) // 2] for k in range(done, done + len(pieces))]
            copies += self.client.map(_copy, parents, pieces, pure=False)
        return copies

    def _run(
        self, one: Pass, formulas: tuple[Formula, ...], join: Callable[[list[Any]], list[Any]] = list
    ) -> list[Any]:
        """The results of a pass, joined on the workers; it is recorded if it wrote something."""
        while True:
            self._last = join(self._submit(one, formulas))
            try:
                found: list[Any] = call(self.client, self.client.gather, self._last)
            except StalePieceError as error:
                error.__traceback__ = None  # Dask keeps the error, and with its traceback it would keep this matrix
                self._replay()
                continue
            if one.writes or one.result_name:
                self._record(one, formulas)
            return found

    def _replay(self) -> None:
        """Bring all pieces up to date; copies of old ones that Dask may have elsewhere are not used any more."""
        histories = [
            [(one, tuple(formula.restrict(slice(*columns)) for formula in formulas)) for one, formulas in self._history]
            for columns in self.ranges
        ]
        pieces = self.client.map(_replay, self.pieces, [dict(self.held)] * len(histories), histories, pure=False)
        for piece in pieces:
            error = call(self.client, piece.exception)
            if error is not None:
                raise error
        self.pieces = pieces

    def _make_pass(
        self, function: Callable[..., Any], formulas: tuple[Formula, ...], writes: Written = (), result_name: str = ""
    ) -> Pass:
        written = {held.name: self.held[held.name] + 1 for held in writes}
        names = {name for formula in formulas for name in held_names(formula)}
        reads = {name: self.held[name] for name in names - written.keys()}
        drops, self._dropped = tuple(self._dropped), []
        return Pass(function, reads, written, result_name, drops)

    def _record(self, one: Pass, formulas: tuple[Formula, ...]) -> None:
        """Add a pass to the history; if that becomes long, have the pieces save their arrays instead."""
        self.held.update(one.writes)
        if one.result_name:
            self.held[one.result_name] = 0
        self._history.append((one, tuple(formula.restrict(slice(None)) for formula in formulas)))
        self._history = _needed(self._history, set(self.held))
        if len(self._history) > max(10, MAX_HISTORY // (80 * sum(self.shape))):  # as if the rank were 10
            stem, versions = self._new_file(), dict(self.held)
            paths = [_saved_path(stem, number) for number in range(len(self.pieces))]
            old, self._files[:] = self._files[:], self._files + paths
            self._run(Pass(partial(_save, stem, tuple(versions)), reads=versions), ())
            self._history, self._files[:] = [(Pass(partial(_load, stem), writes=versions), ())], paths
            _remove(old)

    @cached_property
    def _folder(self) -> TemporaryFolder:
        """A folder beside the matrix for arrays of the pieces."""
        return TemporaryFolder(".held-", self.stored.folder.resolve())

    def _new_file(self) -> str:
        """The path of a new file for arrays of the pieces."""
        return str(self._folder.path / secrets.token_hex(8))

    def map_pieces(self, function: Callable[..., Any], *formulas: Formula, writes: Written = ()) -> list[Any]:
        """``function(piece, *arrays)`` of every piece, in order."""
        return self._run(self._make_pass(function, formulas, writes), formulas)

    def iterate_pieces(self, function: Callable[..., Any], *formulas: Formula) -> Iterator[Any]:
        """As `map_pieces`, one piece at a time."""
        one = self._make_pass(function, formulas)
        futures = self._submit(one, formulas)
        k = 0
        while k < len(futures):
            try:
                found = call(self.client, self.client.gather, futures[k])
            except StalePieceError as error:
                error.__traceback__ = None
                self._replay()
                futures[k:] = self._submit(one, formulas)[k:]
                continue
            futures[k] = None
            k += 1
            yield found

    def reduce_pieces(
        self, merging: str, function: Callable[..., tuple[Any, ...]], *formulas: Formula, writes: Written = ()
    ) -> tuple[Any, ...]:
        """The tuples that a function gives, merged on the workers down to a few, and those here."""
        held = self._new_numbers() if merging.startswith("^") else None
        one = self._make_pass(function, formulas, writes, held.name if held else "")
        merging = merging.removeprefix("^")

        def join(parts: list[Any]) -> list[Any]:
            while len(parts) > WIDTH:
                groups = [parts[k : k + WIDTH] for k in range(0, len(parts), WIDTH)]
                parts = [self.client.submit(merge, merging, *few, pure=False) if few[1:] else few[0] for few in groups]
            return parts

        merged = merge_tree(self._run(one, formulas, join), partial(merge, merging))
        return merged if held is None else (held, *merged)

    def hold(self, numbers: Any) -> Any:
        """Evaluate a formula and store its numbers on the workers."""
        held = self._new_numbers()
        self._run(self._make_pass(_numbers, (numbers.formula,), result_name=held.name), (numbers.formula,))
        return Entries(self, held)

    def hold_parts(self, parts: Iterable[NDArray[Any]]) -> Entries:
        """Store numbers that come piece by piece on the workers; the files stay, for pieces that are read again."""
        held, stem = self._new_numbers(), self._new_file()
        self._files += [_saved_path(stem, number) for number in range(len(self.pieces))]
        for number, part in enumerate(parts):
            numbers: dict[str, Any] = {held.name: part}
            np.savez(_saved_path(stem, number), **numbers)
        self._run(Pass(partial(_load, stem), writes={held.name: 0}), ())
        return Entries(self, held)

    def _new_numbers(self) -> HeldNumbers:
        """Numbers that a pass is to store; they are dropped when nobody uses this object any more."""
        held = HeldNumbers(secrets.token_hex(8))
        weakref.finalize(held, self._drop, held.name)
        return held

    def _drop(self, name: str) -> None:
        self.held.pop(name, None)
        self._dropped.append(name)

    def map_held(self, held: HeldNumbers, width: int) -> Float:
        """What the pieces store of their columns, `width` numbers each, mapped from a file that goes with the array."""
        path, folder = Path(self._new_file()), self._folder
        try:
            with open(path, "wb") as file:
                file.truncate(8 * self.shape[1] * width)
            self.map_pieces(partial(write_coefficients, str(path)), held)
            mapped = np.memmap(path, np.float64, "r", shape=(self.shape[1], width))
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        weakref.finalize(mapped, _remove, [path], folder)
        return mapped

    # -- the matrix

    def piece_starts(self) -> NDArray[np.int64]:
        """The indices of the first entries of the pieces, and nnz."""
        return np.array([*(self.indptr[first] for first, _ in self.ranges), self.nnz])

    def with_values(self, values: Any) -> ClusterMatrix:
        """Other values at the same positions, such as ``2 * M.values``."""
        formula = as_entries(values).formula
        restricted = [formula.restrict(slice(*columns)) for columns in self.ranges]
        pieces = self.client.map(_with_values, values.matrix.pieces, restricted, pure=False)
        return ClusterMatrix(self.stored, self.client, pieces)

    @property
    def row_counts(self) -> NDArray[np.int64]:
        """The number of entries in each row."""
        return self.stored.row_counts

    @cached_property
    def T(self) -> ClusterMatrix:  # noqa: N802
        """The transposed matrix."""
        return self._on_disk().T if self.has_own_values else ClusterMatrix(self.stored.T, self.client)

    def _on_disk(self) -> ClusterMatrix:
        """The same matrix, with all its values on disk."""
        return self.with_stored_values(self.values)

    def with_stored_values(self, values: Any) -> ClusterMatrix:
        """Other values at the same positions, written to the disk that the workers share."""
        there = ClusterMatrix(self.stored.written_with(self, as_entries(values)), self.client)
        there._origin = self  # a cluster that was started for this matrix closes with it
        return there

    @contextmanager
    def solving(self, placed: bool) -> Iterator[None]:
        """A cluster that was started for this matrix alone is closed at once if the block fails, as on Ctrl-C."""
        try:
            yield
        except BaseException:
            if placed and self.close is not None:
                self.close()
            raise

    def with_mapped_coefficients(self, L: LowRank) -> LowRank:
        """L, with V mapped from disk if it is large."""
        return self.stored.with_mapped_coefficients(L)

    @property
    def largest_part(self) -> int:
        """How many entries `take_columns` may bring into the memory of this process."""
        return self.stored.largest_part

    def parts(self) -> Any:
        """The values, some at a time."""
        return self.values.parts() if self.has_own_values else self.stored.parts()

    def fingerprint(self) -> str:
        """That of the matrix on disk."""
        return (self._on_disk() if self.has_own_values else self).stored.fingerprint()


def _needed(history: History, names: set[str]) -> History:
    """The passes that wrote these arrays, or arrays that those passes read."""
    found: History = []
    for one, formulas in reversed(history):
        if (one.writes.keys() | {one.result_name}) & names:
            names |= one.reads.keys()
            found.append((one, formulas))
    return found[::-1]


def _remove(paths: list[Path], folder: TemporaryFolder | None = None) -> None:
    """Remove files; their folder, if given, lives until then."""
    for path in paths:
        path.unlink(missing_ok=True)
