"""A matrix whose pieces are on the workers of a Dask cluster: U travels out, a few sums travel back.

A pass is one small task for each piece, and a few that merge what they give. Nothing on a worker is ever changed: what
a pass writes, such as S, is a new result of its task. So Dask can run a task again elsewhere when its worker dies,
after those it depends on, back to where the piece is read from disk.
"""

from __future__ import annotations

import secrets
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..observed import Facts, ObservedMatrix
from ..sweeps import Sweep, open_sweep
from .entries import Entries, Formula, Held, Piece, Rows, Values, held_in
from .matrix import StoredMatrix
from .merge import merge, tree
from .store import Side

__all__ = ["ClusterMatrix", "WorkerPiece"]

PER_THREAD = 2  # pieces, so that the work is even though threads are not


class WorkerPiece:
    """Some columns in the memory of a worker."""

    def __init__(self, number: int, columns: slice, M: ObservedMatrix) -> None:
        self.number, self.columns, self.M = number, columns, M

    @cached_property
    def sweep(self) -> Sweep:
        """The passes over it, on one thread: a worker runs as many tasks at a time as it has threads."""
        sweep = open_sweep(self.M, "auto")
        if hasattr(sweep, "threads"):
            sweep.threads = 1
        return sweep

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkerPiece, (self.number, self.columns, self.M)

    def __sizeof__(self) -> int:
        return self.M.rows.nbytes + self.M.values.nbytes + self.M.indptr.nbytes


class _Seen:
    """A piece, and what was kept of it for later."""

    def __init__(self, piece: WorkerPiece, kept: dict[str, NDArray[Any]]) -> None:
        self.number, self.columns, self.M, self.sweep = piece.number, piece.columns, piece.M, piece.sweep
        self.kept = kept

    def held(self, name: str) -> NDArray[Any]:
        return self.kept[name]


# ---------------------------------------------------------------------- what runs on the workers


def read_piece(folder: str, side: str, number: int, first: int, end: int) -> WorkerPiece:
    """Columns of a matrix on a disk that the workers see."""
    stored = Side.open(Path(folder, side))
    stored.verify(slice(first, end))
    entries = slice(int(stored.indptr[first]), int(stored.indptr[end]))
    indptr = stored.indptr[first : end + 1] - entries.start
    rows, values = np.array(stored.rows[entries]), np.array(stored.values[entries])
    return WorkerPiece(number, slice(first, end), ObservedMatrix(indptr, rows, values, (stored.shape[0], end - first)))


def run(
    piece: WorkerPiece,
    function: Callable[..., Any],
    formulas: tuple[Formula, ...],
    kept: dict[str, NDArray[Any]],
    written: tuple[str, ...],
) -> Any:
    """A function of a piece, and of what formulas give there; with the numbers that it has written, if it has."""
    kept = kept | {name: np.empty_like(kept[name]) for name in written}
    seen = _Seen(piece, kept)
    found = function(seen, *(formula.at(seen) for formula in formulas))
    return (found, {name: kept[name] for name in written}) if written else found


def evaluate(piece: WorkerPiece, formula: Formula, kept: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """What a formula gives."""
    return np.array(formula.at(_Seen(piece, kept)))


def with_values(piece: WorkerPiece, values: NDArray[Any]) -> WorkerPiece:
    """Other values at the same places."""
    return WorkerPiece(piece.number, piece.columns, piece.M.with_values(values))


@dataclass(frozen=True, eq=False)
class Taking:
    """Some columns of the matrix, as far as a piece has them."""

    which: NDArray[np.intp]  # ascending

    def __call__(self, piece: Piece) -> tuple[NDArray[Any], ...]:
        here = (self.which >= piece.columns.start) & (self.which < piece.columns.stop)
        A = piece.M.to_scipy()[:, self.which[here] - piece.columns.start]
        return np.diff(A.indptr), A.indices, A.data


# ---------------------------------------------------------------------- what is here


class ClusterMatrix(Facts):
    """A partly observed matrix on a Dask cluster; `StoredMatrix.on` makes one.

    Parameters
    ----------
    stored
        A matrix on a disk that all workers see.
    client
        A `dask.distributed.Client`.
    """

    backend = "dask"

    def __init__(self, stored: StoredMatrix, client: Any, pieces: list[Any] | None = None) -> None:
        self.stored, self.client = stored, client
        self.shape, self.nnz, self.dtype, self.indptr = stored.shape, stored.nnz, stored.dtype, stored.indptr
        threads = sum(client.nthreads().values()) or 1
        self.ranges = stored.side.ranges(max(1, -(-stored.nnz // (PER_THREAD * threads))))
        folder = str(stored.folder.resolve())
        self.kept: dict[str, list[Any]] = {}
        self.pieces = pieces or [
            client.submit(read_piece, folder, stored.name, k, *columns, pure=False)
            for k, columns in enumerate(self.ranges)
        ]

    def _sent(self, function: Callable[..., Any], formulas: tuple[Formula, ...], writes: tuple[Held, ...]) -> list[Any]:
        """A task for each piece; what they write takes the place of what was there."""
        names = tuple(sorted({name for formula in formulas for name in held_in(formula)}))
        written = tuple(held.name for held in writes)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            sent = self.client.submit(_same, function, pure=False)  # U once, whatever the number of pieces
        found = []
        for k, (piece, columns) in enumerate(zip(self.pieces, self.ranges, strict=True)):
            own = tuple(formula.cut(slice(*columns)) for formula in formulas)
            kept = {name: self.kept[name][k] for name in names}
            done = self.client.submit(run, piece, sent, own, kept, written, pure=False)
            found.append(self.client.submit(itemgetter(0), done, pure=False) if written else done)
            for name in written:
                self.kept[name][k] = self.client.submit(_one_of, done, name, pure=False)
        return found

    def over(self, function: Callable[..., Any], *formulas: Formula, writes: tuple[Held, ...] = ()) -> list[Any]:
        """``function(piece, *numbers of the formulas)`` of every piece, in their order."""
        found: list[Any] = self.client.gather(self._sent(function, formulas, writes))
        return found

    def merged(
        self, how: str, function: Callable[..., tuple[Any, ...]], *formulas: Formula, writes: tuple[Held, ...] = ()
    ) -> tuple[Any, ...]:
        """What a function gives for every piece, merged on the workers."""
        parts = self._sent(function, formulas, writes)
        total: tuple[Any, ...] = tree(parts, lambda *few: self.client.submit(merge, how, *few, pure=False)).result()
        return total

    def firsts(self) -> NDArray[np.int64]:
        """The places of the first entries of the pieces, and nnz."""
        return np.array([*(self.indptr[first] for first, _ in self.ranges), self.nnz])

    @property
    def values(self) -> Entries:
        """The observed values."""
        return Entries(self, Values())

    def _evaluated(self, numbers: Entries) -> list[Any]:
        """What a formula gives, piece by piece, on the workers."""
        home, formula = numbers.home, numbers.formula
        names = held_in(formula)
        return [
            self.client.submit(
                evaluate, piece, formula.cut(slice(*columns)), {name: home.kept[name][k] for name in names}, pure=False
            )
            for k, (piece, columns) in enumerate(zip(home.pieces, self.ranges, strict=True))
        ]

    def with_values(self, values: Entries) -> ClusterMatrix:
        """Other values at the same places."""
        new = zip(self.pieces, self._evaluated(values), strict=True)
        pieces = [self.client.submit(with_values, piece, numbers, pure=False) for piece, numbers in new]
        return ClusterMatrix(self.stored, self.client, pieces)

    @property
    def column_counts(self) -> NDArray[np.int64]:
        """The number of entries in each column."""
        return np.diff(self.indptr)

    @property
    def row_counts(self) -> NDArray[np.int64]:
        """The number of entries in each row."""
        return self.stored.row_counts

    @cached_property
    def T(self) -> ClusterMatrix:  # noqa: N802
        """The transposed matrix."""
        return ClusterMatrix(self.stored.T, self.client)

    @property
    def largest_part(self) -> int:
        """Entries of columns that may be in the memory of this process."""
        return self.stored.largest_part

    def take_columns(self, which: NDArray[np.intp]) -> ObservedMatrix | None:
        """Some columns, in the memory of this process; None if they have no entry."""
        if not self.column_counts[which].any():
            return None
        order = np.argsort(which, kind="stable")
        counts, rows, values = (np.concatenate(part) for part in zip(*self.over(Taking(which[order])), strict=True))
        M = ObservedMatrix(np.concatenate([[0], np.cumsum(counts)]), rows, values, (self.shape[0], which.size))
        return M if (np.diff(order) > 0).all() else M.take_columns(np.argsort(order))

    def sample(self, size: int) -> ObservedMatrix:
        """About so many entries, evenly spread over all columns."""
        step = max(1, self.nnz // size)
        k = np.arange(0, self.nnz, step)
        rows = Entries(self, Rows())[::step]
        return ObservedMatrix(np.searchsorted(k, self.indptr), rows, self.values[::step], self.shape)

    def parts(self) -> Any:
        """The values, some at a time."""
        return self.stored.parts()

    def hold(self, numbers: Entries) -> Entries:
        """Keep the numbers that a formula gives on the workers."""
        held = Held(secrets.token_hex(8))
        self.kept[held.name] = self._evaluated(numbers)
        weakref.finalize(held, self.kept.pop, held.name, None)
        return Entries(self, held)

    def fingerprint(self) -> str:
        """As of the matrix on disk."""
        return self.stored.fingerprint()

    def __repr__(self) -> str:
        m, n = self.shape
        return f"ClusterMatrix({m} x {n}, {self.nnz} entries observed ({100 * self.density:.3g}%), {self.dtype})"


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _one_of(done: tuple[Any, dict[str, NDArray[Any]]], name: str) -> NDArray[Any]:
    return done[1][name]
