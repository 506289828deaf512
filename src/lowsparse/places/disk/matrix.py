"""A matrix on disk that is read in pieces.

The transposed matrix is a second copy on disk, made when it is first needed. The values, and anything with a number
per entry, are `Entries`.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...entries.observed import ObservedMatrix
from ...linalg.arrays import host
from ...linalg.lowrank import LowRank
from ...support.files import TemporaryFolder
from ...support.sizes import MEMORY, bytes_of
from ..pieces.coefficients import allocate, is_mapped
from ..pieces.formulas import Entries, Piece, as_entries
from ..pieces.matrix import LoadedPiece, MatrixInPieces, SequentialPieces
from .build import OnProgress, append_columns, ignore_progress, transpose
from .scratch import Scratch
from .sources import build_store
from .store import Side, read_ahead, split_columns, write_side

WORK = 125  # bytes per entry of a piece: two pieces, the arrays stored with them, and what is computed
FACTORS = 7  # arrays as large as U and V together that a solve has in memory at once
PYTHON = 10**8  # bytes that Python and its libraries take, about
LARGEST_SKETCH = 60  # bytes per entry of a part that is taken into memory


class StoredPiece(LoadedPiece):
    """Consecutive columns, in memory while a pass uses them."""

    def __init__(self, matrix: StoredMatrix, number: int, columns: tuple[int, int]) -> None:
        super().__init__(number, columns, matrix.indptr)
        self._matrix = matrix

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Load the data on disk, or those that the matrix has instead of them."""
        side, own = self._matrix.side, self._matrix.own_values
        indptr, shape = self.indptr, (side.shape[0], self.columns.stop - self.columns.start)
        rows, values = (np.asarray(mapped[self.entries]) for mapped in (side.rows, side.values))
        self._loaded = ObservedMatrix.trusted(indptr, rows, values, shape)
        try:
            if own is None:
                yield
            else:
                origin = own.matrix.pieces[self.number]
                with origin.loaded():
                    new = np.ascontiguousarray(own.formula.restrict(self.columns).evaluate(origin))
                    self._loaded = ObservedMatrix.trusted(indptr, rows, new, shape)
                    yield
        finally:
            self._loaded = self._sweep = None

    def held_array(self, name: str) -> NDArray[Any]:
        """Numbers that were stored under this name, or memory for those that the pass writes."""
        scratch = self._matrix.held[name]
        return scratch.buffer(self.number) if name in self.writes else scratch.read(self.number)

    def save_held(self, name: str) -> None:
        """Store the numbers that a pass has written."""
        scratch = self._matrix.held[name]
        scratch.write(self.number, scratch.buffer(self.number))


class StoredMatrix(SequentialPieces):
    """A partly observed matrix in a folder.

    Parameters
    ----------
    folder
        The folder that `build` wrote: it has the side `columns`; `rows`, the transposed matrix, is added when needed.
    memory
        The limit of memory for a solve: bytes, or a text such as "1GB".

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
        self.own_values: Entries | None = None  # instead of those on disk
        self.owner: TemporaryFolder | None = None  # of the folder, if that is removed with the last matrix in it
        self.held: dict[str, Scratch] = {}
        self._split(self.memory)

    def _split(self, memory: int) -> None:
        """Split the columns into pieces that take this much memory, with what is computed from them."""
        self._piece_memory = memory
        ranges = split_columns(self.indptr, max(memory // WORK, 1))
        self.pieces: list[StoredPiece] = [StoredPiece(self, k, columns) for k, columns in enumerate(ranges)]

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
        """Write a source to disk, in bounded memory, unless it is there already.

        Parameters
        ----------
        source
            An array with two dimensions, NaN where nothing is known (Dask, Zarr, a NumPy memory map, the path of an
            `.npy` file or of a Zarr array); a Parquet file or a folder of them with records; a list of `.npz` files
            with sparse matrices, side by side; a video, as a path or as `lowsparse.video.Frames`; an `ObservedMatrix`,
            or anything `ObservedMatrix.from_any` takes.
        folder
            Where to write it.
        row, col, value
            The columns of records.
        memory
            The limit of memory for this, and for a solve afterwards: bytes, or a text such as "1GB".
        on_progress
            Called with the name of the step, how much of it is done, and of how much.

        Returns
        -------
        StoredMatrix
            What is on disk, ready for `solve`.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     stored = StoredMatrix.build(np.array([[1.0, np.nan], [2.0, 3.0]]), folder, memory="10MB")
        ...     again = StoredMatrix(folder)  # what was built, in a later session
        ...     again.with_values(2 * again.values).T.take_columns([1]).to_dense().tolist()
        [[4.0], [6.0]]
        """
        names = (row, col, value)
        build_store(source, Path(folder), names, bytes_of(memory), on_progress or ignore_progress)
        return cls(folder, memory=memory)

    def within(self, memory: int, pieces: int | None = None) -> StoredMatrix:
        """The same matrix with another limit of memory.

        Parameters
        ----------
        memory
            Bytes.
        pieces
            The part of it that pieces may take; all of it if not given.

        Returns
        -------
        StoredMatrix
            Of the same files.
        """
        if self.own_values is not None:
            return self._on_disk.within(memory, pieces)
        return self._open_side(self.name, memory, memory if pieces is None else pieces)

    def _open_side(self, side: str, memory: int, piece_memory: int) -> StoredMatrix:
        """A matrix on a side of the same folder."""
        other = StoredMatrix(self.folder, memory=memory, side=side)
        other.owner = self.owner
        other._split(piece_memory)
        if side == self.name and "verified" in vars(self):
            other.verified = self.verified
        return other

    @cached_property
    def _on_disk(self) -> StoredMatrix:
        """The same matrix, with all its values on disk."""
        return self.with_stored_values(self.values)

    def __reduce__(self) -> Any:
        """By its folder, if that is not temporary."""
        if self.own_values is not None or self.owner is not None:
            return super().__reduce__()
        return _reopen, (self.folder, self.memory, self._piece_memory, self.name)

    def _load_pieces(self) -> Iterator[StoredPiece]:
        self.verified  # noqa: B018
        parts = read_ahead([self.side.rows, self.side.values], self._parts)
        for piece, _ in zip(self.pieces, parts, strict=True):
            with piece.loaded():
                yield piece

    def _scratch(self, dtype: DTypeLike) -> Scratch:
        return Scratch(self.folder, self._parts, dtype)

    def _allocate(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        return allocate(self.folder, shape, dtype, self.memory)

    @cached_property
    def verified(self) -> bool:
        """True once all checksums have been compared; raises if one does not match."""
        self.side.verify()
        return True

    def with_values(self, values: Any) -> StoredMatrix:
        """Other values at the same positions, such as ``2 * M.values``."""
        other = self._open_side(self.name, self.memory, self._piece_memory)
        other.own_values = as_entries(values)
        return other

    @cached_property
    def row_counts(self) -> NDArray[np.int64]:
        """The number of entries in each row."""
        if self._other.exists():
            return np.diff(Side.open(self._other).indptr)
        return super().row_counts

    @property
    def _other(self) -> Path:
        return self.folder / ("rows" if self.name == "columns" else "columns")

    @cached_property
    def T(self) -> StoredMatrix:  # noqa: N802
        """The transposed matrix."""
        if self.own_values is not None:
            return self._on_disk.T
        if not self._other.exists():
            self.verified  # noqa: B018
            transpose(self.folder, self.name, self.memory, ignore_progress)
        return self._open_side(self._other.name, self.memory, self._piece_memory)

    @property
    def largest_part(self) -> int:
        """How many entries `take_columns` may bring into memory at once."""
        return self.memory // LARGEST_SKETCH

    def with_stored_values(self, values: Any) -> StoredMatrix:
        """Other values at the same positions, written to a temporary folder that is removed with its last user."""
        return self.written_with(self, as_entries(values))

    def written_with(self, M: MatrixInPieces, values: Entries) -> StoredMatrix:
        """The positions of M with other values, in a temporary folder in the one of this matrix.

        Parameters
        ----------
        M
            A matrix with the positions of this one.
        values
            One for each entry.

        Returns
        -------
        StoredMatrix
            Its folder is removed with its last user.
        """
        folder = TemporaryFolder(".values-", self.folder, within=self.owner)
        try:
            with write_side(folder.path / "columns", M.shape[0], M.dtype) as writer:
                for piece in M.iterate_pieces(partial(_with_values, M.dtype), values.formula):
                    append_columns(writer, piece)
            new = StoredMatrix(folder.path, memory=self.memory)
        except BaseException:
            folder.remove()
            raise
        new.owner = folder
        return new

    def with_room_for(self, rank: int) -> StoredMatrix:
        """The matrix in smaller pieces, if U and V, with what is computed from them, take much of its memory."""
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
        return self.within(self.memory, max(left, self.memory // 4))

    def with_mapped_coefficients(self, L: LowRank) -> LowRank:
        """Factors whose V is mapped from disk if it is large.

        Parameters
        ----------
        L
            A low-rank matrix of the shape of this one.

        Returns
        -------
        LowRank
            The same numbers.
        """
        if is_mapped(L.V):
            return L
        V = allocate(self.folder, L.V.T.shape, L.V.dtype, self.memory)
        if not is_mapped(V):
            return L
        V[:] = L.V.T
        return LowRank(L.U, V.T)

    def fingerprint(self) -> str:
        """A digest of the shape and every entry, by the checksums of the blocks."""
        if self.own_values is not None:
            return self._on_disk.fingerprint()
        return hashlib.blake2b(repr((self.shape, self.dtype, self.side.blocks)).encode(), digest_size=16).hexdigest()


def _reopen(folder: Path, memory: int, piece_memory: int, side: str) -> StoredMatrix:
    return StoredMatrix(folder, memory=memory, side=side).within(memory, piece_memory)


def _with_values(dtype: np.dtype[Any], piece: Piece, numbers: NDArray[Any]) -> ObservedMatrix:
    M = piece.M
    return ObservedMatrix(host(M.indptr), np.array(host(M.rows)), host(numbers).astype(dtype), M.shape)
