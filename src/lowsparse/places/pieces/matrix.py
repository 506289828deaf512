"""What matrices in pieces share, wherever the pieces are."""

import secrets
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from itertools import compress
from operator import attrgetter
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...entries.compressed import offsets
from ...entries.observed import ObservedMatrix
from ...entries.protocol import SAMPLE, MatrixSummary, PartialMatrix, Recovered, median_size
from ...linalg.lowrank import LowRank
from ...sweeps import Sweep
from .formulas import Computed, Entries, Formula, HeldNumbers, Piece, Written
from .outliers import StoredOutliers
from .sweep import PiecewiseSweep

WIDTH = 4  # items that are merged at a time

Item = TypeVar("Item")


class Recovering(PartialMatrix, Protocol):
    """A matrix that can put V on disk."""

    def with_mapped_coefficients(self, L: LowRank) -> LowRank:
        """L, with V mapped from disk if it is large."""


class MatrixInPieces(MatrixSummary, ABC):
    """What matrices in pieces share. Their values are `Entries`: formulas that every piece evaluates for itself.

    The rest of the contract (`PartialMatrix`) is with each kind.
    """

    backend: ClassVar[str]  # the name of its sweep
    on_gpu: ClassVar[bool] = False
    in_pieces: ClassVar[bool] = True

    shape: tuple[int, int]
    nnz: int
    dtype: np.dtype[Any]
    indptr: NDArray[np.int64]
    pieces: Any  # on disk: a list of pieces; on a cluster: futures of them
    held: dict[str, Any]  # by the name of numbers that were stored

    @abstractmethod
    def map_pieces(self, function: Callable[..., Any], *formulas: Formula, writes: Written = ()) -> list[Any]:
        """``function(piece, *arrays)`` of every piece, in order, with what the formulas give; it may write `writes`."""

    @abstractmethod
    def iterate_pieces(self, function: Callable[..., Any], *formulas: Formula) -> Iterator[Any]:
        """As `map_pieces`, but one piece at a time: a result need not be in memory with the next."""

    @abstractmethod
    def reduce_pieces(
        self, merging: str, function: Callable[..., tuple[Any, ...]], *formulas: Formula, writes: Written = ()
    ) -> tuple[Any, ...]:
        """The tuples that a function gives for every piece, merged as `merging` says (see `merge`).

        The first letter may be ^: that item may stay where the pieces are, as `HeldNumbers`, or be joined.
        """

    @abstractmethod
    def hold(self, numbers: Any) -> Any:
        """Evaluate a formula and store its numbers where the pieces are."""

    @abstractmethod
    def hold_parts(self, parts: Iterable[NDArray[Any]]) -> Entries:
        """Store numbers that come piece by piece where the pieces are."""

    @abstractmethod
    def piece_starts(self) -> NDArray[np.int64]:
        """The indices of the first entries of the pieces, and nnz."""

    @property
    def values(self) -> Any:
        """The observed values."""
        return Entries(self, Computed(attrgetter("M.values")))

    @property
    def column_counts(self) -> NDArray[np.int64]:
        """The number of entries in each column."""
        return np.diff(self.indptr)

    def take_columns(self, which: NDArray[np.intp]) -> ObservedMatrix | None:
        """Some columns, in this order, in the memory of this process; None if they have no entry."""
        which = np.arange(self.shape[1])[which]
        if not self.column_counts[which].any():
            return None
        order = np.argsort(which, kind="stable")
        parts = self.map_pieces(partial(_take_columns, which[order]))
        counts, rows, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        M = ObservedMatrix(offsets(counts), rows, values, (self.shape[0], which.size))
        return M if (np.diff(order) > 0).all() else M.take_columns(np.argsort(order))

    def sample(self, size: int) -> ObservedMatrix:
        """About `size` entries, evenly spread, with the shape of the matrix."""
        step = max(1, self.nnz // size)
        rows = Entries(self, Computed(attrgetter("M.rows")))[::step]
        return ObservedMatrix(-(-self.indptr // step), rows, self.values[::step], self.shape)

    def median_magnitude(self) -> float:
        """The median magnitude of the non-zero values of a sample, which is drawn once; 0 if all are zero."""
        return self._median_magnitude

    @cached_property
    def _median_magnitude(self) -> float:
        return median_size(self.values[:: max(1, self.nnz // SAMPLE)])

    def to_host(self) -> ObservedMatrix:
        """A copy in memory."""
        M = self.take_columns(np.arange(self.shape[1]))
        assert M is not None  # there is an entry
        return M

    def to_host_if_small(self) -> Self:
        """The matrix itself."""
        return self

    def open_sweep(self, backend: str = "auto") -> PiecewiseSweep:
        """The sweep over its pieces, each by the fastest backend where it is."""
        return PiecewiseSweep(self, self.backend)

    def spread_over_columns(self, numbers: NDArray[Any]) -> Any:
        """For each entry, the number of its column."""
        return Entries(self, Computed(_spread, ("spread_over_columns",), (numbers,)))

    def spread_over_rows(self, numbers: NDArray[Any]) -> Any:
        """For each entry, the number of its row."""
        return Entries(self, Computed(_spread, ("spread_over_rows", numbers)))

    def reduce(self, merging: str, function: Callable[..., tuple[Any, ...]], *numbers: Any) -> tuple[Any, ...]:
        """``function(columns, *numbers)`` of all pieces, added (+) or concatenated (|) as `merging` says."""
        return self.reduce_pieces(merging, partial(_of_columns, function), *(x.formula for x in numbers))

    def count_lines(self, flagged: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many of the flagged entries are in each row, and in each column."""
        counts: tuple[NDArray[np.int64], NDArray[np.int64]] = flagged.line_counts
        return counts

    def outliers(self, flagged: Any, values: Any) -> StoredOutliers:
        """S, in pieces."""
        return StoredOutliers(self, flagged, values)

    def recovered(self: Recovering, L: LowRank, flagged: Any, values: Any) -> Recovered:
        """The results: S in pieces, and a large V on disk."""
        return Recovered(self, self.with_mapped_coefficients(L), flagged, self.outliers(flagged, values))

    def with_mapped_coefficients(self, L: LowRank) -> LowRank:
        """L, with V mapped from disk if it is large."""
        return L

    def __reduce__(self) -> Any:
        raise TypeError(
            "a matrix in pieces cannot be pickled, nor the result of a solve of it: keep the folder of the matrix, and "
            "write the result to files (S.to_parquet, S.to_zarr, L.to_zarr)"
        )


class LoadedPiece(ABC):
    """Consecutive columns that are loaded while a pass uses them.

    `writes` are the names of the stored arrays that the present pass writes instead of reading.
    """

    def __init__(self, number: int, columns: tuple[int, int], indptr: NDArray[np.int64]) -> None:
        first, end = columns
        self.number, self.columns = number, slice(first, end)
        self.entries = slice(int(indptr[first]), int(indptr[end]))
        self._all_starts = indptr
        self.writes: frozenset[str] = frozenset()
        self._loaded: Any = None  # a matrix in memory or on a GPU
        self._sweep: Sweep | None = None

    @property
    def indptr(self) -> NDArray[np.int64]:
        """Where each of these columns starts, among the entries of the piece."""
        starts: NDArray[np.int64] = self._all_starts[self.columns.start : self.columns.stop + 1] - self.entries.start
        return starts

    @property
    def M(self) -> Any:  # noqa: N802
        """These columns, with the values of the matrix."""
        assert self._loaded is not None
        return self._loaded

    @property
    def sweep(self) -> Sweep:
        """The sweep over these columns."""
        self._sweep = self._sweep or self.M.open_sweep()
        return self._sweep

    @abstractmethod
    def held_array(self, name: str) -> Any:
        """Numbers that were stored under this name, or memory for those that the pass writes."""

    @abstractmethod
    def save_held(self, name: str) -> None:
        """Store the numbers that a pass has written."""


class SequentialPieces(MatrixInPieces, ABC):
    """A matrix whose pieces are loaded one after the other, in this process."""

    pieces: list[Any]

    @abstractmethod
    def _load_pieces(self) -> Iterator[Any]:
        """The pieces; each is loaded until the next one is."""

    @abstractmethod
    def _scratch(self, dtype: DTypeLike) -> Any:
        """Storage for a number for each entry, with `write(piece, numbers)` and `read(piece)`."""

    def _allocate(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An uninitialized array with a row for each column."""
        return np.empty(shape, dtype)

    def map_pieces(self, function: Callable[..., Any], *formulas: Formula, writes: Written = ()) -> list[Any]:
        """``function(piece, *arrays)`` of every piece.

        Parameters
        ----------
        function
            Called with a loaded piece and the arrays of its entries.
        formulas
            Evaluated on each piece; their numbers are the arrays.
        writes
            The names of stored numbers that the function writes.

        Returns
        -------
        list
            What the function gives, in the order of the pieces.
        """
        return list(self.iterate_pieces(function, *formulas, writes=writes))

    def iterate_pieces(self, function: Callable[..., Any], *formulas: Formula, writes: Written = ()) -> Iterator[Any]:
        """As `map_pieces`, one piece at a time.

        Parameters
        ----------
        function, formulas, writes
            As for `map_pieces`.

        Yields
        ------
        object
            What the function gives for the piece.
        """
        written = frozenset(held.name for held in writes)
        for piece in self._load_pieces():
            piece.writes = written
            yield function(piece, *(formula.restrict(piece.columns).evaluate(piece) for formula in formulas))
            for name in written:
                piece.save_held(name)

    def reduce_pieces(
        self, merging: str, function: Callable[..., tuple[Any, ...]], *formulas: Formula, writes: Written = ()
    ) -> tuple[Any, ...]:
        """The tuples that a function gives for every piece, merged.

        Parameters
        ----------
        merging
            For each item of the tuples, "+" (they are added) or "|" (they are concatenated).
        function, formulas, writes
            As for `map_pieces`.

        Returns
        -------
        tuple
            The merged items.
        """
        adding = [letter == "+" for letter in merging]
        joined: list[Any] = [None] * len(merging)

        def added() -> Iterator[tuple[Any, ...]]:
            for found, piece in zip(self.iterate_pieces(function, *formulas, writes=writes), self.pieces, strict=True):
                for k, part in enumerate(found):
                    if not adding[k]:
                        if joined[k] is None:
                            joined[k] = self._allocate((self.shape[1], *part.shape[1:]), part.dtype)
                        joined[k][piece.columns] = part
                yield tuple(compress(found, adding))

        sums = iter(merge_tree(added(), partial(merge, "+" * sum(adding))))
        return tuple(next(sums) if add else part for add, part in zip(adding, joined, strict=True))

    def piece_starts(self) -> NDArray[np.int64]:
        """Where the pieces start.

        Returns
        -------
        array of int
            The indices of their first entries, and nnz.
        """
        return np.array([*(piece.entries.start for piece in self.pieces), self.nnz])

    @cached_property
    def row_counts(self) -> NDArray[np.int64]:
        """The number of entries in each row."""
        return np.asarray(sum(self.map_pieces(attrgetter("M.row_counts"))), dtype=np.int64)

    @property
    def _parts(self) -> list[slice]:
        return [piece.entries for piece in self.pieces]

    def parts(self) -> Iterator[NDArray[Any]]:
        """The values, some at a time."""
        for piece in self._load_pieces():
            if piece.M.nnz:
                yield piece.M.values

    def hold(self, numbers: Any) -> Any:
        """Evaluate a formula into scratch memory, which is freed when nobody uses the numbers any more."""
        return self.hold_parts(numbers.formula.restrict(piece.columns).evaluate(piece) for piece in self._load_pieces())

    def hold_parts(self, parts: Iterable[NDArray[Any]]) -> Entries:
        """Store numbers that come piece by piece, as `hold` does.

        Parameters
        ----------
        parts
            An array for each piece, in order.

        Returns
        -------
        Entries
            One number for each entry.
        """
        held = HeldNumbers(secrets.token_hex(8))
        for number, part in enumerate(parts):
            if not number:
                self.held[held.name] = self._scratch(part.dtype)
                weakref.finalize(held, self.held.pop, held.name, None)
            self.held[held.name].write(number, part)
        return Entries(self, held)


# ---------------------------------------------------------------------- merging, in the same order everywhere


def merge(merging: str, *parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Merge tuples item by item: each is added (+) or concatenated (|), as its letter says.

    >>> merge("+|", (1, np.array([1, 2])), (10, np.array([3])))
    (11, array([1, 2, 3]))
    """
    return tuple(
        sum(items[1:], start=items[0]) if letter == "+" else np.concatenate(items)
        for letter, items in zip(merging, zip(*parts, strict=True), strict=True)
    )


def merge_tree(items: Iterable[Item], join: Callable[..., Item]) -> Item:
    """Join `WIDTH` neighbours at a time until one is left; few of them are in memory at once.

    >>> merge_tree("abcdef", lambda *few: "(" + "".join(few) + ")")
    '((abcd)(ef))'
    """
    waiting: list[list[Item]] = []  # at each height of the tree

    def put(item: Item, height: int) -> None:
        if height == len(waiting):
            waiting.append([])
        waiting[height].append(item)
        if len(waiting[height]) == WIDTH:
            few, waiting[height] = waiting[height], []
            put(join(*few), height + 1)

    for item in items:
        put(item, 0)
    rest: list[Item] = []
    for few in waiting:
        few += rest
        rest = [join(*few)] if len(few) > 1 else few
    return rest[0]


# ---------------------------------------------------------------------- functions of a piece; they can be pickled


def _spread(piece: Piece, method: str, numbers: NDArray[Any]) -> NDArray[Any]:
    spread: NDArray[Any] = getattr(piece.M, method)(numbers)
    return spread


def _take_columns(which: NDArray[np.intp], piece: Piece) -> tuple[NDArray[Any], ...]:
    """Counts, row indices and values of those of the ascending columns that a piece has."""
    own = which[(which >= piece.columns.start) & (which < piece.columns.stop)]
    A = piece.M.to_scipy()[:, own - piece.columns.start]
    return np.diff(A.indptr), A.indices, A.data


def _of_columns(function: Callable[..., tuple[Any, ...]], piece: Piece, *numbers: NDArray[Any]) -> tuple[Any, ...]:
    return piece.M.reduce("", function, *numbers)
