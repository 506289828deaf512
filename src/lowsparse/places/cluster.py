"""A matrix whose pieces are on the workers of a Dask cluster: U travels out, a few sums travel back.

A pass is one task for each piece, and all are sent in one message; what they give is merged in a tree, on the workers
but for its last level. What a pass writes, such as S, stays with the piece, and both sides count how often it was
written. When a worker dies, Dask reads its pieces from disk again elsewhere; they report that they are behind, are
sent the passes that wrote something, and catch up. So the answer is the same. Now and then the pieces save what was
kept of them beside the matrix, so that those passes need not be remembered for ever.
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
from ..support.files import replacing
from ..sweeps import Float, Sweep
from .disk.matrix import StoredMatrix
from .disk.store import Side
from .pieces.coefficients import Writing, with_mapped_coefficients
from .pieces.formulas import Entries, Formula, Piece, StoredNumbers, stored_in
from .pieces.matrix import InPieces, as_entries
from .pieces.merge import LEVEL, merge, tree

__all__ = ["ClusterMatrix", "WorkerPiece"]

REMEMBERED = 1 << 28  # bytes of passes that wrote something, about, before that is saved instead
FEW = 8  # pieces to which U is sent one by one; to more of them it goes from worker to worker


class BehindError(RuntimeError):
    """A piece was read anew, and what had been kept of it is not there."""


class WorkerPiece:
    """Some columns in the memory of a worker, and what was kept of them for later."""

    def __init__(
        self, number: int, columns: slice, M: ObservedMatrix, kept: dict[str, tuple[int, NDArray[Any]]] | None = None
    ) -> None:
        self.number, self.columns, self.M = number, columns, M
        self.kept = kept or {}  # by name: how often it was written, and the numbers

    @cached_property
    def sweep(self) -> Sweep:
        """The passes over it, on as many threads as the worker has."""
        from distributed import get_worker

        sweep = self.M.open_sweep()
        if hasattr(sweep, "threads"):
            sweep.threads = get_worker().state.nthreads
        return sweep

    def held(self, name: str) -> NDArray[Any]:
        """Numbers that were kept for later."""
        return self.kept[name][1]

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkerPiece, (self.number, self.columns, self.M, self.kept)

    def __sizeof__(self) -> int:
        arrays = self.M.rows, self.M.values, self.M.indptr, *(numbers for _, numbers in self.kept.values())
        return sum(array.nbytes for array in arrays)


# ---------------------------------------------------------------------- what runs on the workers


def read_piece(folder: str, side: str, number: int, first: int, end: int) -> WorkerPiece:
    """Columns of a matrix on a disk that the workers see."""
    stored = Side.open(Path(folder, side))
    stored.verify(slice(first, end))
    entries = slice(int(stored.indptr[first]), int(stored.indptr[end]))
    indptr = stored.indptr[first : end + 1] - entries.start
    rows, values = np.array(stored.rows[entries]), np.array(stored.values[entries])
    return WorkerPiece(number, slice(first, end), ObservedMatrix(indptr, rows, values, (stored.shape[0], end - first)))


@dataclass(frozen=True, eq=False)
class Pass:
    """What is asked of every piece."""

    function: Callable[..., Any]
    reads: dict[str, int] = field(default_factory=dict)  # what was kept, and how often it was written before
    writes: dict[str, int] = field(default_factory=dict)  # and how often it will have been
    keeps: str = ""  # the name under which the first item of the result is kept, instead of being given back
    forgets: tuple[str, ...] = ()  # what is not needed any more

    def __call__(self, piece: WorkerPiece, formulas: tuple[Formula, ...]) -> Any:
        for name, times in self.reads.items():
            if piece.kept.get(name, (-1,))[0] != times:
                raise BehindError(f"piece {piece.number} has been read anew")
        for name in self.forgets:
            piece.kept.pop(name, None)
        found = self.function(piece, *(formula.evaluate(piece) for formula in formulas))
        for name, times in self.writes.items():
            piece.kept[name] = times, piece.held(name)
        if self.keeps:
            piece.kept[self.keeps] = 0, np.array(found[0])
            return found[1:]
        return found


@dataclass(frozen=True)
class Saved:
    """What was kept of every piece, in files."""

    stem: str
    writes: dict[str, int]
    keeps: str = ""
    reads: dict[str, int] = field(default_factory=dict)

    def path(self, piece: int) -> Path:
        """Of a piece."""
        return Path(f"{self.stem}-{piece}.npz")

    def __call__(self, piece: WorkerPiece, formulas: tuple[Formula, ...] = ()) -> None:
        with np.load(self.path(piece.number)) as file:
            piece.kept.update({name: (times, file[name]) for name, times in self.writes.items()})


Past = list[tuple[Pass | Saved, tuple[Formula, ...]]]


def save(piece: WorkerPiece, to: Saved) -> None:
    """Write what was kept of a piece to its file."""
    numbers: dict[str, Any] = {name: piece.held(name) for name in to.writes}
    with replacing(to.path(piece.number)) as temporary, open(temporary, "wb") as file:
        np.savez(file, **numbers)


def run(piece: WorkerPiece, what: Pass | Saved, formulas: tuple[Formula, ...]) -> Any:
    """One pass over a piece."""
    return what(piece, formulas)


def catch_up(piece: WorkerPiece, kept: dict[str, int], passes: Past) -> WorkerPiece:
    """Unless the piece has what was kept, as often written or once more: all passes that made it, in their order."""
    if any(piece.kept.get(name, (-1,))[0] < times for name, times in kept.items()):
        piece.kept.clear()
        for what, formulas in passes:
            what(piece, formulas)
    return piece


def with_values(piece: WorkerPiece, formula: Formula) -> WorkerPiece:
    """Other values at the same places."""
    return WorkerPiece(piece.number, piece.columns, piece.M.with_values(np.array(formula.evaluate(piece))))


def itself(piece: Piece, numbers: NDArray[Any]) -> tuple[NDArray[Any]]:
    """What a formula gives."""
    return (numbers,)


@dataclass(frozen=True, eq=False)
class Taking:
    """Some columns of the matrix, as far as a piece has them."""

    which: NDArray[np.intp]  # ascending

    def __call__(self, piece: Piece) -> tuple[NDArray[Any], ...]:
        here = (self.which >= piece.columns.start) & (self.which < piece.columns.stop)
        A = piece.M.to_scipy()[:, self.which[here] - piece.columns.start]
        return np.diff(A.indptr), A.indices, A.data


# ---------------------------------------------------------------------- what is here


class ClusterMatrix(InPieces):
    """A partly observed matrix on a Dask cluster.

    Parameters
    ----------
    stored
        A matrix on a disk that all workers see.
    client
        A `dask.distributed.Client`.
    """

    backend = "dask"

    def __init__(self, stored: StoredMatrix, client: Any, pieces: list[Any] | None = None) -> None:
        self.stored, self.client, self.given = stored, client, pieces is not None  # values instead of those on disk
        self.shape, self.nnz, self.dtype, self.indptr = stored.shape, stored.nnz, stored.dtype, stored.indptr
        self.ranges = stored.side.ranges(-(-stored.nnz // max(1, len(client.nthreads()))))
        folder = str(stored.folder.resolve())
        self.kept: dict[str, int] = {}  # by name: how often it was written
        self._past: Past = []  # the passes that wrote something that is still needed
        self._gone: list[str] = []  # what is not needed any more, and the pieces do not know it yet
        self._files: list[Path] = []  # in which the pieces have saved what was kept of them
        weakref.finalize(self, _remove, self._files)
        self.close: Callable[[], object] | None = None  # the cluster, if it was started for this matrix alone
        self._last: Any = None  # what was sent last: to give it up before the next is sent would hold that up
        numbers = range(len(self.ranges))
        self.pieces = pieces or client.map(
            partial(read_piece, folder, stored.name), numbers, *zip(*self.ranges, strict=True), pure=False
        )

    def _sent(self, what: Pass | Saved, formulas: tuple[Formula, ...]) -> list[Any]:
        """A task for each piece."""
        sent: Any = what
        if len(self.pieces) > FEW:
            sent = self.client.scatter(what, broadcast=True, hash=False)
        own = [tuple(formula.restrict(slice(*columns)) for formula in formulas) for columns in self.ranges]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            found: list[Any] = self.client.map(run, self.pieces, [sent] * len(own), own, pure=False)
        return found

    def _passed(
        self, what: Pass | Saved, formulas: tuple[Formula, ...], join: Callable[[list[Any]], list[Any]] = list
    ) -> list[Any]:
        """What a pass gives for every piece, joined on the workers; pieces that are behind catch up before."""
        while True:
            sent = join(self._sent(what, formulas))
            self._last = sent
            try:
                found: list[Any] = self.client.gather(sent)
            except BehindError as error:
                error.__traceback__ = None  # Dask keeps the error, and with its traceback it would keep this matrix
                self._catch_up()
                continue
            return found

    def _catch_up(self) -> None:
        """Bring all pieces up to date; from then on they are those, and no copy elsewhere that Dask had made before."""
        own = [
            [(what, tuple(formula.restrict(slice(*columns)) for formula in formulas)) for what, formulas in self._past]
            for columns in self.ranges
        ]
        pieces = self.client.map(catch_up, self.pieces, [dict(self.kept)] * len(own), own, pure=False)
        for piece in pieces:
            error = piece.exception()  # waits for it
            if error is not None:
                raise error
        self.pieces = pieces

    def _asked(
        self,
        function: Callable[..., Any],
        formulas: tuple[Formula, ...],
        writes: tuple[StoredNumbers, ...] = (),
        keeps: str = "",
    ) -> Pass:
        written = {held.name: self.kept[held.name] + 1 for held in writes}
        names = {name for formula in formulas for name in stored_in(formula)}
        reads = {name: self.kept[name] for name in names - written.keys()}
        gone, self._gone = tuple(self._gone), []
        return Pass(function, reads, written, keeps, gone)

    def _remember(self, what: Pass | Saved, formulas: tuple[Formula, ...]) -> None:
        """Keep a pass that wrote something, as long as that is needed."""
        if not (what.writes or what.keeps):
            return
        self.kept.update(what.writes)
        if what.keeps:
            self.kept[what.keeps] = 0
        self._past.append((what, tuple(formula.restrict(slice(None)) for formula in formulas)))
        self._past = _needed(self._past, set(self.kept))
        if len(self._past) > max(10, REMEMBERED // (80 * sum(self.shape))):  # as if the rank were 10
            saved = Saved(str(self.stored.folder.resolve() / f".kept-{secrets.token_hex(8)}"), dict(self.kept))
            paths = [saved.path(number) for number in range(len(self.pieces))]
            before, self._files[:] = self._files[:], self._files + paths
            self._passed(Pass(partial(save, to=saved), reads=saved.writes), ())
            self._past, self._files[:] = [(saved, ())], paths
            _remove(before)

    def map_pieces(
        self, function: Callable[..., Any], *formulas: Formula, writes: tuple[StoredNumbers, ...] = ()
    ) -> list[Any]:
        """``function(piece, *numbers of the formulas)`` of every piece, in their order."""
        what = self._asked(function, formulas, writes)
        found = self._passed(what, formulas)
        self._remember(what, formulas)
        return found

    def reduce_pieces(
        self,
        merging: str,
        function: Callable[..., tuple[Any, ...]],
        *formulas: Formula,
        writes: tuple[StoredNumbers, ...] = (),
    ) -> tuple[Any, ...]:
        """What a function gives for every piece, merged on the workers down to a few, and those here."""
        held = StoredNumbers(secrets.token_hex(8)) if merging.startswith("^") else None
        what = self._asked(function, formulas, writes, held.name if held else "")
        merging = merging.removeprefix("^")

        def join(parts: list[Any]) -> list[Any]:
            while len(parts) > LEVEL:
                groups = [parts[k : k + LEVEL] for k in range(0, len(parts), LEVEL)]
                parts = [self.client.submit(merge, merging, *few, pure=False) if few[1:] else few[0] for few in groups]
            return parts

        found = self._passed(what, formulas, join)
        self._remember(what, formulas)
        merged = tree(found, partial(merge, merging))
        return merged if held is None else (self._until_forgotten(held), *merged)

    def piece_starts(self) -> NDArray[np.int64]:
        """The places of the first entries of the pieces, and nnz."""
        return np.array([*(self.indptr[first] for first, _ in self.ranges), self.nnz])

    def with_values(self, values: Any) -> ClusterMatrix:
        """Other values at the same places, such as ``2 * M.values``."""
        formula = as_entries(values).formula
        own = [formula.restrict(slice(*columns)) for columns in self.ranges]
        pieces = self.client.map(with_values, values.home.pieces, own, pure=False)
        return ClusterMatrix(self.stored, self.client, pieces)

    @property
    def row_counts(self) -> NDArray[np.int64]:
        """The number of entries in each row."""
        return self.stored.row_counts

    @cached_property
    def T(self) -> ClusterMatrix:  # noqa: N802
        """The transposed matrix."""
        return self._on_disk.T if self.given else ClusterMatrix(self.stored.T, self.client)

    @property
    def _on_disk(self) -> ClusterMatrix:
        """The same matrix, whose values are all on disk."""
        return self.with_stored_values(self.values)

    def with_stored_values(self, values: Any) -> ClusterMatrix:
        """Other values at the same positions, written to the disk that the workers see."""
        there = ClusterMatrix(self.stored.written_with(self, as_entries(values)), self.client)
        weakref.finalize(there, _keep_alive, self)  # with which a cluster of our own would go
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

    def _with_mapped_coefficients(self, L: LowRank) -> LowRank:
        return with_mapped_coefficients(L, self.stored.folder, self.stored.memory)

    @property
    def largest_part(self) -> int:
        """Entries of columns that may be in the memory of this process."""
        return self.stored.largest_part

    def take_columns(self, which: NDArray[np.intp]) -> ObservedMatrix | None:
        """Some columns, in this order, in the memory of this process; None if they have no entry."""
        which = np.arange(self.shape[1])[which]
        if not self.column_counts[which].any():
            return None
        order = np.argsort(which, kind="stable")
        counts, rows, values = (
            np.concatenate(part) for part in zip(*self.map_pieces(Taking(which[order])), strict=True)
        )
        M = ObservedMatrix(np.concatenate([[0], np.cumsum(counts)]), rows, values, (self.shape[0], which.size))
        return M if (np.diff(order) > 0).all() else M.take_columns(np.argsort(order))

    def parts(self) -> Any:
        """The values, some at a time."""
        return self.values.parts() if self.given else self.stored.parts()

    def hold(self, numbers: Any) -> Any:
        """Keep the numbers that a formula gives on the workers."""
        held = StoredNumbers(secrets.token_hex(8))
        formulas = (numbers.formula,)
        what = self._asked(itself, formulas, keeps=held.name)
        self._passed(what, formulas)
        self._remember(what, formulas)
        return Entries(self, self._until_forgotten(held))

    def _until_forgotten(self, held: StoredNumbers) -> StoredNumbers:
        """The pieces keep it as long as it is in use."""
        weakref.finalize(held, self._forget, held.name)
        return held

    def _forget(self, name: str) -> None:
        self.kept.pop(name, None)
        self._gone.append(name)

    def on_disk(self, held: StoredNumbers, width: int) -> Float:
        """What the pieces keep of their columns, so many numbers for each, mapped from a file that goes with it."""
        path = self.stored.folder.resolve() / f".kept-{secrets.token_hex(8)}"
        try:
            with open(path, "wb") as file:
                file.truncate(8 * self.shape[1] * width)
            self.map_pieces(Writing(str(path)), held)
            mapped = np.memmap(path, np.float64, "r", shape=(self.shape[1], width))
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        weakref.finalize(mapped, path.unlink, missing_ok=True)
        return mapped

    def iterate_pieces(self, function: Callable[..., Any], *formulas: Formula) -> Iterator[Any]:
        """As `over`, one piece after the other: what it gives for one need not be in memory with the next."""
        what = self._asked(function, formulas)
        sent = self._sent(what, formulas)
        k = 0
        while k < len(sent):
            try:
                found = sent[k].result()
            except BehindError as error:
                error.__traceback__ = None
                self._catch_up()
                sent[k:] = self._sent(what, formulas)[k:]
                continue
            sent[k] = None
            k += 1
            yield found

    def keep(self, parts: Iterable[NDArray[Any]]) -> Entries:
        """Numbers that come piece by piece, kept on the workers; by files, for pieces that are read anew."""
        held = StoredNumbers(secrets.token_hex(8))
        saved = Saved(str(self.stored.folder.resolve() / f".kept-{held.name}"), {held.name: 0})
        self._files += [saved.path(number) for number in range(len(self.pieces))]
        for number, part in enumerate(parts):
            numbers: dict[str, Any] = {held.name: part}
            np.savez(saved.path(number), **numbers)
        self._passed(saved, ())
        self._remember(saved, ())
        return Entries(self, self._until_forgotten(held))

    def fingerprint(self) -> str:
        """As of the matrix on disk."""
        return (self._on_disk if self.given else self).stored.fingerprint()


def _needed(past: Past, names: set[str]) -> Past:
    """Those passes that wrote these names, or what they were made from."""
    found: Past = []
    for what, formulas in reversed(past):
        if (what.writes.keys() | {what.keeps}) & names:
            names |= what.reads.keys()
            found.append((what, formulas))
    return found[::-1]


def _keep_alive(origin: Any) -> None:
    """Nothing; but the argument lives until this is called."""


def _remove(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
