"""A matrix on disk that is gone through in pieces: what `ObservedMatrix` is in memory.

It offers what solvers use of one: shape, counts of lines, the transposed matrix (a second copy on disk, made when it is
asked for), some columns, a sample; its values, and anything with a number per entry, are `Entries`.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...entries.observed import ObservedMatrix
from ...linalg.arrays import host
from ...linalg.lowrank import LowRank
from ...support.sizes import MEMORY, bytes_of
from ..pieces.coefficients import room, with_mapped_coefficients
from ..pieces.formulas import Entries, Piece
from ..pieces.matrix import InPieces, LoadedPiece, SequentialPieces, as_entries
from .build import OnProgress, append_columns, transpose
from .scratch import Scratch, TemporaryFolder
from .sources import make
from .store import Side, Writer, read_ahead

__all__ = ["StoredMatrix", "StoredPiece"]

WORK = 125  # bytes for each entry of a piece: two pieces, what is held of them, and what is computed
FACTORS = 7  # arrays as large as U and V together that a solve has in memory at once
PYTHON = 10**8  # bytes that Python and its libraries take anyhow, about
LARGEST_SKETCH = 60  # bytes for each entry that is taken out of it to learn from


class StoredPiece(LoadedPiece):
    """Some columns, which are in memory while a pass is at them."""

    def __init__(self, matrix: StoredMatrix, number: int, first: int, end: int) -> None:
        self._matrix, self.number, self.columns = matrix, number, slice(first, end)
        self.entries = slice(*(int(matrix.side.indptr[j]) for j in (first, end)))
        self.writes: frozenset[str] = frozenset()  # what is kept of it that is written, not read, by the pass

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """While a pass is at it: the data on disk, and the values that the matrix has instead."""
        side = self._matrix.side
        indptr = side.indptr[self.columns.start : self.columns.stop + 1] - self.entries.start
        rows, values = (np.asarray(mapped[self.entries]) for mapped in (side.rows, side.values))
        shape = side.shape[0], indptr.size - 1
        self._loaded = ObservedMatrix.trusted(indptr, rows, values, shape)
        try:
            given = self._matrix.given
            if given is None:
                yield
            else:
                home = given.home.pieces[self.number]
                with home.loaded():
                    new = np.ascontiguousarray(given.formula.restrict(self.columns).evaluate(home))
                    self._loaded = ObservedMatrix.trusted(indptr, rows, new, shape)
                    yield
        finally:
            self._loaded = self._sweep = None

    def held(self, name: str) -> NDArray[Any]:
        """Numbers that were kept for later."""
        scratch = self._matrix.kept[name]
        return scratch.room(self.number) if name in self.writes else scratch.read(self.number)

    def keep(self, name: str) -> None:
        """Keep the numbers that a pass has written."""
        scratch = self._matrix.kept[name]
        scratch.write(self.number, scratch.room(self.number))


class StoredMatrix(SequentialPieces):
    """A partly observed matrix in a folder.

    Parameters
    ----------
    folder
        With the side `columns`; `rows`, the transposed matrix, is added when it is needed.
    memory
        What a solve may take, all in all: bytes, or a text such as "1GB".

    Examples
    --------
    >>> M = ObservedMatrix.from_dense([[1.0, float("nan")], [2.0, 3.0]])
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> stored = StoredMatrix.build(M, folder.name)
    >>> stored, stored.T.column_counts.tolist()
    (StoredMatrix(2 x 2, 3 entries observed (75%), float64), [1, 2])
    >>> folder.cleanup()
    """

    backend = "outofcore"

    def __init__(self, folder: str | os.PathLike[str], *, memory: int | str = MEMORY, side: str = "columns") -> None:
        self.folder, self.memory, self.name = Path(folder), bytes_of(memory), side
        self.side = Side.open(self.folder / side)
        self.shape, self.nnz = self.side.shape, self.side.nnz
        self.dtype: np.dtype[Any] = self.side.values.dtype
        self.indptr = self.side.indptr
        self.given: Entries | None = None  # values instead of those on disk
        self.owner: TemporaryFolder | None = None  # of the folder, if that goes with the last matrix in it
        self.kept: dict[str, Scratch] = {}
        self._divide(self.memory)

    def _divide(self, memory: int) -> None:
        """Pieces that take so much memory, with what is computed of them."""
        self._for_pieces = memory
        ranges = self.side.ranges(max(memory // WORK, 1))
        self.pieces: list[StoredPiece] = [StoredPiece(self, k, *columns) for k, columns in enumerate(ranges)]

    @classmethod
    def build(
        cls,
        source: Any,
        folder: str | os.PathLike[str],
        *,
        row: str | None = None,
        col: str | None = None,
        value: str | None = None,
        memory: int | str = MEMORY,
        on_progress: OnProgress | None = None,
    ) -> StoredMatrix:
        """Put a source on disk, in bounded memory, unless it is there already.

        Parameters
        ----------
        source
            An array with two dimensions, NaN where nothing is known (Dask, Zarr, a NumPy memory map, the path of an
            `.npy` file or of a Zarr array); a Parquet file or a folder of them with records; a list of `.npz` files
            with sparse matrices, side by side; a video, as a path or as `lowsparse.video.Frames`; an `ObservedMatrix`,
            or what else one is made of.
        folder
            Where to put it.
        row, col, value
            The columns of records.
        memory
            What this, and a solve afterwards, may take: bytes, or a text such as "1GB".
        on_progress
            Called with what is being done, how much of it is done, and of how much.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     stored = StoredMatrix.build(np.array([[1.0, np.nan], [2.0, 3.0]]), folder, memory="10MB")
        ...     again = StoredMatrix(folder)  # what was built, later
        ...     again.with_values(2 * again.values).T.take_columns([1]).to_dense().tolist()
        [[4.0], [6.0]]
        """
        make(source, Path(folder), memory=bytes_of(memory), row=row, col=col, value=value, on_progress=on_progress)
        return cls(folder, memory=memory)

    def within(self, memory: int, pieces: int | None = None) -> StoredMatrix:
        """The same matrix, with another limit of memory, and of what its pieces may take of it."""
        if self.given is not None:
            return self._on_disk.within(memory, pieces)
        return self._there(self.name, memory, memory if pieces is None else pieces)

    def _there(self, side: str, memory: int, pieces: int) -> StoredMatrix:
        """What is in the same folder."""
        other = StoredMatrix(self.folder, memory=memory, side=side)
        other.owner = self.owner
        other._divide(pieces)
        if side == self.name and "verified" in vars(self):
            other.verified = self.verified
        return other

    @cached_property
    def _on_disk(self) -> StoredMatrix:
        """The same matrix, whose values are all on disk."""
        return self.with_stored_values(self.values)

    def __reduce__(self) -> Any:
        """By the folder it is in, if that stays."""
        if self.given is not None or self.owner is not None:
            return super().__reduce__()
        return _reopened, (self.folder, self.memory, self._for_pieces, self.name)

    # -- going through it

    def _load_pieces(self) -> Iterator[StoredPiece]:
        """The pieces, one after the other; the next is fetched meanwhile."""
        self.verified  # noqa: B018
        parts = read_ahead([self.side.rows, self.side.values], self._parts)
        for piece, _ in zip(self.pieces, parts, strict=True):
            with piece.loaded():
                yield piece

    def _scratch(self, dtype: Any) -> Scratch:
        return Scratch(self.folder, self._parts, dtype)

    def _room(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        return room(self.folder, shape, dtype, self.memory)

    @cached_property
    def verified(self) -> bool:
        """Its entries are what was written; they are read once for it, and an error says if they are not."""
        self.side.verify()
        return True

    # -- what solvers use

    def with_values(self, values: Any) -> StoredMatrix:
        """Other values at the same places, such as ``2 * M.values``."""
        other = self._there(self.name, self.memory, self._for_pieces)
        other.given = as_entries(values)
        return other

    @cached_property
    def row_counts(self) -> NDArray[np.int64]:
        """The number of entries in each row."""
        if self._other.exists():
            return np.diff(Side.open(self._other).indptr)
        return np.asarray(sum(self.map_pieces(_row_counts)), dtype=np.int64)

    @property
    def _other(self) -> Path:
        return self.folder / ("rows" if self.name == "columns" else "columns")

    @cached_property
    def T(self) -> StoredMatrix:  # noqa: N802
        """The transposed matrix."""
        if self.given is not None:
            return self._on_disk.T
        if not self._other.exists():
            transpose(self.folder, self.name, self.memory, lambda *_: None)
        return self._there(self._other.name, self.memory, self._for_pieces)

    @property
    def largest_part(self) -> int:
        """Entries of columns that may be in memory at once."""
        return self.memory // LARGEST_SKETCH

    def with_stored_values(self, values: Any) -> StoredMatrix:
        """Other values at the same positions, written to disk: a store of its own that goes with its last user."""
        return self.written_with(self, as_entries(values))

    def written_with(self, M: InPieces, values: Entries) -> StoredMatrix:
        """The positions of M with these values, on disk in a folder within this one's; M has the same positions."""
        folder = TemporaryFolder(".values-", self.folder, within=self.owner)
        try:
            with Writer(folder.path / "columns", M.shape[0], M.dtype) as writer:
                for piece in M.iterate_pieces(_With(M.dtype), values.formula):
                    append_columns(writer, piece)
            new = StoredMatrix(folder.path, memory=self.memory)
        except BaseException:
            folder.remove()
            raise
        new.owner = folder
        return new

    def with_room_for(self, rank: int) -> StoredMatrix:
        """In smaller pieces if U and V, with what is computed from them, need much of its memory."""
        factors = FACTORS * 8 * rank * sum(self.shape)
        if factors <= self.memory // 16:
            return self
        left = self.memory - factors
        if left < self.memory // 4 and factors > PYTHON:
            warnings.warn(
                f"U and V of rank {rank} and what is computed from them take about {factors / 1e6:.0f} MB, and the "
                f"limit is {self.memory / 1e6:.0f} MB: allow more memory, or a smaller rank",
                RuntimeWarning,
                stacklevel=3,
            )
        return self.within(self.memory, pieces=max(left, self.memory // 4))

    def _with_mapped_coefficients(self, L: LowRank) -> LowRank:
        return with_mapped_coefficients(L, self.folder, self.memory)

    def take_columns(self, which: NDArray[np.intp]) -> ObservedMatrix | None:
        """Some columns, in this order, in memory; None if they have no entry."""
        which = np.arange(self.shape[1])[which]
        counts = self.column_counts[which]
        if not counts.any():
            return None
        rows, values = np.empty(counts.sum(), np.int32), np.empty(counts.sum(), self.dtype)
        ends = np.cumsum(counts)

        def take(piece: StoredPiece) -> None:
            M = piece.M
            for k in np.flatnonzero((which >= piece.columns.start) & (which < piece.columns.stop)):
                j = which[k] - piece.columns.start
                here, there = slice(ends[k] - counts[k], ends[k]), slice(M.indptr[j], M.indptr[j + 1])
                rows[here], values[here] = M.rows[there], M.values[there]

        self.map_pieces(take)
        return ObservedMatrix(np.concatenate([[0], ends]), rows, values, (self.shape[0], which.size))

    def fingerprint(self) -> str:
        """A digest of the shape and every entry, by the checksums of the blocks."""
        if self.given is not None:
            return self._on_disk.fingerprint()
        return hashlib.blake2b(repr((self.shape, self.dtype, self.side.blocks)).encode(), digest_size=16).hexdigest()


def _reopened(folder: Path, memory: int, pieces: int, side: str) -> StoredMatrix:
    return StoredMatrix(folder, memory=memory, side=side).within(memory, pieces)


def _row_counts(piece: StoredPiece) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = np.bincount(piece.M.rows, minlength=piece.M.shape[0])
    return counts


@dataclass(frozen=True)
class _With:
    """A piece with other values; it may be sent, so it has a name."""

    dtype: np.dtype[Any]

    def __call__(self, piece: Piece, numbers: NDArray[Any]) -> ObservedMatrix:
        M = piece.M
        return ObservedMatrix(host(M.indptr), np.array(host(M.rows)), host(numbers).astype(self.dtype), M.shape)
