"""What matrices in pieces have in common, wherever the pieces are."""

from __future__ import annotations

import secrets
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ...entries.observed import ObservedMatrix
from ...entries.protocol import MatrixSummary, PartialMatrix, Recovered
from ...linalg.lowrank import LowRank
from ...sweeps import Sweep
from .formulas import AlongColumns, AlongRows, Entries, Formula, Piece, PiecewiseMatrix, Rows, StoredNumbers, Values
from .merge import merge, tree
from .outliers import StoredOutliers
from .sweep import PiecewiseSweep

__all__ = ["InPieces", "LoadedPiece", "SequentialPieces", "as_entries"]


class InPieces(MatrixSummary, PiecewiseMatrix, ABC):
    """A partly observed matrix whose values are `Entries`: formulas that every piece evaluates for itself."""

    backend: ClassVar[str]  # the name of its sweep
    on_gpu: ClassVar[bool] = False
    in_pieces: ClassVar[bool] = True

    shape: tuple[int, int]
    nnz: int
    dtype: np.dtype[Any]
    indptr: NDArray[np.int64]

    @property
    def values(self) -> Any:
        """The observed values."""
        return Entries(self, Values())

    @property
    def column_counts(self) -> NDArray[np.int64]:
        """The number of entries in each column."""
        return np.diff(self.indptr)

    @property
    @abstractmethod
    def largest_part(self) -> int:
        """How many entries `take_columns` may bring into memory at once."""

    @property
    @abstractmethod
    def row_counts(self) -> NDArray[np.int64]:
        """The number of entries in each row."""

    @property
    @abstractmethod
    def T(self) -> PartialMatrix:  # noqa: N802
        """The transposed matrix."""

    @abstractmethod
    def with_values(self, values: Any) -> PartialMatrix:
        """Other values at the same positions, such as ``2 * M.values``."""

    @abstractmethod
    def with_stored_values(self, values: Any) -> PartialMatrix:
        """The same, but the values are computed once and kept."""

    @abstractmethod
    def parts(self) -> Iterator[NDArray[Any]]:
        """The values, some at a time."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A digest of the shape and every entry."""

    @abstractmethod
    def take_columns(self, which: NDArray[np.intp]) -> ObservedMatrix | None:
        """Some columns, in this order, in memory; None if they have no entry."""

    def sample(self, size: int) -> ObservedMatrix:
        """About so many entries, evenly spread; all the rows and columns are there."""
        step = max(1, self.nnz // size)
        rows = Entries(self, Rows())[::step]
        return ObservedMatrix(-(-self.indptr // step), rows, self.values[::step], self.shape)

    def to_host(self) -> ObservedMatrix:
        """A copy in memory."""
        M = self.take_columns(np.arange(self.shape[1]))
        assert M is not None  # there is an entry
        return M

    def to_host_if_small(self: Self) -> Self:
        """Itself."""
        return self

    def open_sweep(self, backend: str = "auto") -> PiecewiseSweep:
        """The sweep over its pieces, each by what is the fastest where it is."""
        return PiecewiseSweep(self, self.backend)

    def spread_over_columns(self, numbers: NDArray[Any]) -> Any:
        """For each entry, the number of its column."""
        return Entries(self, AlongColumns(numbers))

    def spread_over_rows(self, numbers: NDArray[Any]) -> Any:
        """For each entry, the number of its row."""
        return Entries(self, AlongRows(numbers))

    def reduce(self, merging: str, function: Callable[..., tuple[Any, ...]], *numbers: Any) -> tuple[Any, ...]:
        """``function(columns, *numbers)`` of all pieces, added (+) or concatenated (|) as `merging` says."""
        return self.reduce_pieces(merging, _OfColumns(function), *(x.formula for x in numbers))

    def count_lines(self, flagged: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many of the entries at these places are in each row, and in each column."""
        return flagged.by_row, flagged.by_column

    def with_room_for(self: Self, rank: int) -> Self:
        """Itself."""
        return self

    def solving(self, placed: bool) -> AbstractContextManager[None]:
        """Nothing to explain, and nothing to close."""
        return nullcontext()

    def outliers(self, flagged: Any, values: Any) -> StoredOutliers:
        """S, which stays in pieces."""
        return StoredOutliers(self, flagged, values)

    def recovered(self, L: LowRank, flagged: Any, values: Any) -> Recovered:
        """S stays in pieces, and a large V goes to the disk."""
        return Recovered(self, self._with_mapped_coefficients(L), flagged, self.outliers(flagged, values))

    def _with_mapped_coefficients(self, L: LowRank) -> LowRank:
        """L with a V that is mapped from the disk, if it is large."""
        return L

    def __reduce__(self) -> Any:
        raise TypeError(
            "a matrix in pieces cannot be pickled, nor the result of a solve of it: keep the folder of the matrix, and "
            "write the result to files (S.to_parquet, S.to_zarr, L.to_zarr)"
        )


class LoadedPiece:
    """Some columns, which are there while a pass is at them."""

    _loaded: Any = None  # a matrix in memory or on a GPU
    _sweep: Sweep | None = None

    @property
    def M(self) -> Any:  # noqa: N802
        """These columns, with the values that the matrix has."""
        assert self._loaded is not None
        return self._loaded

    @property
    def sweep(self) -> Sweep:
        """The passes over it."""
        self._sweep = self._sweep or self.M.open_sweep()
        return self._sweep


class SequentialPieces(InPieces, ABC):
    """A matrix whose pieces are gone through one after the other, in this process.

    Of a piece are asked: `number`, `columns`, `entries`; `writes`, the names of what a pass writes of it; `held`, the
    numbers of a name; and `keep`, which puts those that were written where they stay.
    """

    pieces: list[Any]
    kept: dict[str, Any]  # by name

    @abstractmethod
    def _load_pieces(self) -> Iterator[Any]:
        """The pieces, each of which can be used until the next is asked for."""

    @abstractmethod
    def _scratch(self, dtype: Any) -> Any:
        """Room for a number for each entry."""

    def _room(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array with a row for each column, to be filled."""
        return np.empty(shape, dtype)

    def map_pieces(
        self, function: Callable[..., Any], *formulas: Formula, writes: tuple[StoredNumbers, ...] = ()
    ) -> list[Any]:
        """``function(piece, *numbers of the formulas)`` of every piece, in place; the next is fetched meanwhile."""
        return list(self._map_sequentially(function, formulas, writes))

    def iterate_pieces(self, function: Callable[..., Any], *formulas: Formula) -> Iterator[Any]:
        """As `over`, one piece after the other: what it gives for one need not be in memory with the next."""
        return self._map_sequentially(function, formulas)

    def _map_sequentially(
        self, function: Callable[..., Any], formulas: tuple[Formula, ...], writes: tuple[StoredNumbers, ...] = ()
    ) -> Iterator[Any]:
        written = frozenset(held.name for held in writes)
        for piece in self._load_pieces():
            piece.writes = written
            yield function(piece, *(formula.restrict(piece.columns).evaluate(piece) for formula in formulas))
            for name in written:
                piece.keep(name)

    def reduce_pieces(
        self,
        merging: str,
        function: Callable[..., tuple[Any, ...]],
        *formulas: Formula,
        writes: tuple[StoredNumbers, ...] = (),
    ) -> tuple[Any, ...]:
        """What a function gives for every piece, merged as `merging` says."""
        adding = [letter == "+" for letter in merging]
        joined: list[Any] = [None] * len(merging)

        def added() -> Iterator[tuple[Any, ...]]:
            for found, piece in zip(self._map_sequentially(function, formulas, writes), self.pieces, strict=True):
                for k, part in enumerate(found):
                    if not adding[k]:
                        if joined[k] is None:
                            joined[k] = self._room((self.shape[1], *part.shape[1:]), part.dtype)
                        joined[k][piece.columns] = part
                yield tuple(compress(found, adding))

        sums = iter(tree(added(), partial(merge, "+" * sum(adding))))
        return tuple(next(sums) if add else part for add, part in zip(adding, joined, strict=True))

    def piece_starts(self) -> NDArray[np.int64]:
        """The places of the first entries of the pieces, and nnz."""
        return np.array([*(piece.entries.start for piece in self.pieces), self.nnz])

    @property
    def _parts(self) -> list[slice]:
        return [piece.entries for piece in self.pieces]

    def parts(self) -> Iterator[NDArray[Any]]:
        """The values, some at a time."""
        for piece in self._load_pieces():
            if piece.M.nnz:
                yield piece.M.values

    def hold(self, numbers: Any) -> Any:
        """Keep the numbers that a formula gives, in scratch memory that goes when they do."""
        return self.keep(numbers.formula.restrict(piece.columns).evaluate(piece) for piece in self._load_pieces())

    def keep(self, parts: Iterable[NDArray[Any]]) -> Entries:
        """Numbers that come piece by piece, kept as those of `hold` are."""
        held = StoredNumbers(secrets.token_hex(8))
        for number, part in enumerate(parts):
            if not number:
                self.kept[held.name] = self._scratch(part.dtype)
                weakref.finalize(held, self.kept.pop, held.name, None)
            self.kept[held.name].write(number, part)
        return Entries(self, held)


def as_entries(values: Any) -> Entries:
    """The values, if they are numbers of the entries of a matrix in pieces; an error otherwise.

    >>> as_entries(np.ones(3))
    Traceback (most recent call last):
    TypeError: a matrix in pieces takes a formula of its own values, such as 2 * M.values, and no ndarray
    """
    if not isinstance(values, Entries):
        kind = type(values).__name__
        raise TypeError(f"a matrix in pieces takes a formula of its own values, such as 2 * M.values, and no {kind}")
    return values


@dataclass(frozen=True)
class _OfColumns:
    """A function of the columns of a piece; it may be sent, so it has a name."""

    function: Callable[..., tuple[Any, ...]]

    def __call__(self, piece: Piece, *numbers: NDArray[Any]) -> tuple[Any, ...]:
        return piece.M.reduce("", self.function, *numbers)
