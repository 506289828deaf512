"""One number for each entry of a matrix in pieces: a formula, which every piece evaluates for itself.

    e = sweep.residual(U, V)
    np.clip(-e, -c, c)

makes no array: the second is a formula of the first. Numbers come into being when they are asked for, a piece at a
time: by a sweep, by a sum or a median, or by `hold`, which keeps them for later. Formulas are plain data: they can be
sent to whoever has the piece.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from ...entries.observed import ObservedMatrix
from ...sweeps import Float, Sweep

__all__ = [
    "AlongColumns",
    "AlongRows",
    "Columns",
    "Entries",
    "Fitted",
    "FlaggedEntries",
    "Formula",
    "Piece",
    "PiecewiseMatrix",
    "Rows",
    "StoredNumbers",
    "Values",
]

AT_ONCE = 4_000_000  # numbers that are sorted in memory


class Piece(Protocol):
    """Consecutive columns of a matrix where they are: in memory, mapped, or on a worker."""

    number: int
    columns: slice

    @property
    def M(self) -> ObservedMatrix:  # noqa: N802
        """The matrix of these columns."""
        ...

    @property
    def sweep(self) -> Sweep:
        """The passes over it."""
        ...

    def held(self, name: str) -> NDArray[Any]:
        """Numbers that were kept for later."""
        ...


class Formula(Protocol):
    """What is to be computed of a piece."""

    def evaluate(self, piece: Piece) -> NDArray[Any]:
        """The numbers of its entries."""
        ...

    def restrict(self, columns: slice) -> Formula:
        """The same, with no more than these columns need."""
        ...


@dataclass(frozen=True)
class Values:
    """The data."""

    def evaluate(self, piece: Piece) -> NDArray[Any]:
        """Of these entries."""
        return piece.M.values

    def restrict(self, columns: slice) -> Values:
        """No more than these columns need."""
        return self


@dataclass(frozen=True)
class Rows:
    """In which row each entry is."""

    def evaluate(self, piece: Piece) -> NDArray[Any]:
        """Of these entries."""
        return piece.M.rows

    def restrict(self, columns: slice) -> Rows:
        """No more than these columns need."""
        return self


@dataclass(frozen=True)
class StoredNumbers:
    """Numbers that were kept for later, by name."""

    name: str

    def evaluate(self, piece: Piece) -> NDArray[Any]:
        """Of these entries."""
        return piece.held(self.name)

    def restrict(self, columns: slice) -> StoredNumbers:
        """No more than these columns need; another object, which does not keep the numbers from being given up."""
        return StoredNumbers(self.name)


@dataclass(frozen=True, eq=False)
class Columns:
    """A row of numbers, or one, for each column; or nothing."""

    numbers: NDArray[Any] | None

    def evaluate(self, piece: Piece) -> Any:
        """Of these entries."""
        return self.numbers

    def restrict(self, columns: slice) -> Columns:
        """No more than these columns need."""
        return self if self.numbers is None else Columns(self.numbers[columns])


@dataclass(frozen=True, eq=False)
class AlongColumns:
    """The number of an entry's column."""

    numbers: NDArray[Any]

    def evaluate(self, piece: Piece) -> NDArray[Any]:
        """Of these entries."""
        return piece.M.spread_over_columns(self.numbers)

    def restrict(self, columns: slice) -> AlongColumns:
        """No more than these columns need."""
        return AlongColumns(self.numbers[columns])


@dataclass(frozen=True, eq=False)
class AlongRows:
    """The number of an entry's row."""

    numbers: NDArray[Any]

    def evaluate(self, piece: Piece) -> NDArray[Any]:
        """Of these entries."""
        return piece.M.spread_over_rows(self.numbers)

    def restrict(self, columns: slice) -> AlongRows:
        """No more than these columns need."""
        return self


@dataclass(frozen=True, eq=False)
class Fitted:
    """P_Ω(U Vᵀ), less the data if asked for."""

    U: Float
    V: Float
    less_values: bool

    def evaluate(self, piece: Piece) -> NDArray[Any]:
        """Of these entries."""
        return (piece.sweep.residual if self.less_values else piece.sweep.entries)(self.U, self.V)

    def restrict(self, columns: slice) -> Fitted:
        """No more than these columns need."""
        return Fitted(self.U, self.V[columns], self.less_values)


@dataclass(frozen=True, eq=False)
class Applied:
    """A function, entry by entry, of formulas and numbers."""

    function: Callable[..., NDArray[Any]]
    inputs: tuple[Any, ...]
    options: dict[str, Any]

    def evaluate(self, piece: Piece) -> NDArray[Any]:
        """Of these entries."""
        return self.function(*(x.evaluate(piece) if hasattr(x, "evaluate") else x for x in self.inputs), **self.options)

    def restrict(self, columns: slice) -> Applied:
        """No more than these columns need."""
        return Applied(
            self.function,
            tuple(x.restrict(columns) if hasattr(x, "restrict") else x for x in self.inputs),
            self.options,
        )


def stored_in(formula: Any) -> set[str]:
    """The names of the numbers that a formula needs and that were kept for later."""
    if isinstance(formula, StoredNumbers):
        return {formula.name}
    return set().union(*(stored_in(x) for x in formula.inputs)) if isinstance(formula, Applied) else set()


def _cast(x: NDArray[Any], dtype: Any) -> NDArray[Any]:
    return x.astype(dtype, copy=False)


def _constant(x: NDArray[Any], value: float, dtype: Any) -> NDArray[Any]:
    return np.full_like(x, value, dtype=dtype)


class PiecewiseMatrix(Protocol):
    """A matrix in pieces."""

    shape: tuple[int, int]
    nnz: int
    dtype: np.dtype[Any]
    pieces: Any  # of one on disk: themselves; of one on a cluster: futures

    kept: dict[str, Any]

    @abstractmethod
    def map_pieces(
        self, function: Callable[..., Any], *formulas: Formula, writes: tuple[StoredNumbers, ...] = ()
    ) -> list[Any]:
        """``function(piece, *numbers of the formulas)`` of every piece, in their order; it may write some of them."""
        ...

    @abstractmethod
    def reduce_pieces(
        self,
        merging: str,
        function: Callable[..., tuple[Any, ...]],
        *formulas: Formula,
        writes: tuple[StoredNumbers, ...] = (),
    ) -> tuple[Any, ...]:
        """What a function gives for every piece, merged as `merging` says (see `pieces.merge`).

        The first item may be marked ^, to stay where the pieces are and come back as `StoredNumbers`, or be joined.
        """
        ...

    @abstractmethod
    def hold(self, numbers: Any) -> Any:
        """Keep what a formula gives where the pieces are."""
        ...

    @abstractmethod
    def iterate_pieces(self, function: Callable[..., Any], *formulas: Formula) -> Iterator[Any]:
        """As `over`, one piece after the other: what it gives for one need not be in memory with the next."""
        ...

    @abstractmethod
    def keep(self, parts: Iterable[NDArray[Any]]) -> Entries:
        """Numbers that come piece by piece, kept where the pieces are."""
        ...

    @abstractmethod
    def piece_starts(self) -> NDArray[np.int64]:
        """The places of the first entries of the pieces, and nnz."""
        ...


class Entries(NDArrayOperatorsMixin):
    """One number per entry of a matrix in pieces; NumPy's functions of single numbers apply, and a few sums.

    >>> import tempfile
    >>> from lowsparse.places import StoredMatrix
    >>> folder = tempfile.TemporaryDirectory()
    >>> M = StoredMatrix.build(ObservedMatrix.from_dense([[1.0, -2.0], [3.0, float("nan")]]), folder.name)
    >>> np.asarray(np.abs(M.values) + 1).tolist(), float(np.median(np.abs(M.values)))
    ([2.0, 4.0, 3.0], 2.0)
    >>> folder.cleanup()
    """

    def __init__(self, home: PiecewiseMatrix, formula: Formula, where: Formula | None = None) -> None:
        self.home, self.formula, self.where = home, formula, where

    # -- as NumPy has it

    @property
    def size(self) -> int:
        """How many."""
        return self.home.nnz if self.where is None else sum(self._over(_size))

    @property
    def shape(self) -> tuple[int]:
        """One dimension."""
        return (self.size,)

    def _over(self, function: Callable[..., Any]) -> list[Any]:
        """A function of the numbers of each piece."""
        if self.where is None:
            return self.home.map_pieces(_Of(function), self.formula)
        return self.home.map_pieces(_OfSome(function), self.formula, self.where)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or "out" in options:
            return NotImplemented
        if ufunc is np.matmul:
            return sum(self.home.map_pieces(_dot, *(x.formula for x in inputs)))
        where = [x.where for x in inputs if isinstance(x, Entries) and x.where is not None]
        parts = tuple(x.formula if isinstance(x, Entries) else x for x in inputs)
        if any(isinstance(x, np.ndarray) and x.ndim for x in parts):
            return NotImplemented
        return Entries(self.home, Applied(ufunc, parts, options), where[0] if where else None)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        known: Callable[..., Any] | None = FUNCTIONS.get(function)
        return NotImplemented if known is None else known(*args, **kwargs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        parts = self._over(_copied)
        return np.concatenate(parts).astype(dtype or parts[0].dtype, copy=False)

    def astype(self, dtype: Any, copy: bool = True) -> Entries:
        """As another kind of number."""
        return Entries(self.home, Applied(_cast, (self.formula, np.dtype(dtype)), {}), self.where)

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, FlaggedEntries):
            return Entries(self.home, self.formula, which.mask.formula)
        if isinstance(which, slice) and self.where is None:
            start, stop, step = which.indices(self.home.nnz)
            if step > 0:
                edges = self.home.piece_starts()
                parts = [_part(first, end, start, stop, step) for first, end in pairwise(edges.tolist())]
                return np.concatenate(self.home.map_pieces(_Sliced(parts), self.formula))
        raise TypeError(f"entries in pieces are taken by slices or by places, not by {which!r}")

    def parts(self) -> Iterator[NDArray[Any]]:
        """The numbers, piece by piece."""
        return self.home.iterate_pieces(_Of(_copied), self.formula)

    def min(self) -> Any:
        """The smallest."""
        return min(self._over(_smallest))

    def max(self) -> Any:
        """The largest."""
        return max(self._over(_largest))

    def sum(self) -> Any:
        """Σ, by pieces."""
        return sum(self._over(np.sum))

    def any(self) -> bool:
        """Whether one is not zero."""
        return any(self._over(np.any))


class FlaggedEntries:
    """Where a mask holds: what `np.flatnonzero` gives for entries in pieces."""

    def __init__(self, mask: Entries) -> None:
        self.mask = mask

    @cached_property
    def _counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        rows, columns = self.mask.home.reduce_pieces("+|", _count_places, self.mask.formula)
        return rows, columns

    @property
    def by_row(self) -> NDArray[np.int64]:
        """How many there are in each row."""
        return self._counts[0]

    @property
    def by_column(self) -> NDArray[np.int64]:
        """How many there are in each column."""
        return self._counts[1]

    @property
    def size(self) -> int:
        """How many."""
        return int(self.by_column.sum())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """The places themselves."""
        found = self.mask.home.map_pieces(_Of(np.flatnonzero), self.mask.formula)
        return np.concatenate([k + first for k, first in zip(found, self.mask.home.piece_starts(), strict=False)])


# ---------------------------------------------------------------------- what pieces do; to be sent, these have names


@dataclass(frozen=True)
class _Of:
    function: Callable[..., Any]

    def __call__(self, piece: Piece, numbers: NDArray[Any]) -> Any:
        return self.function(numbers)


@dataclass(frozen=True)
class _OfSome:
    function: Callable[..., Any]

    def __call__(self, piece: Piece, numbers: NDArray[Any], where: NDArray[Any]) -> Any:
        return self.function(numbers[where.astype(bool, copy=False)])


@dataclass(frozen=True)
class _Sliced:
    parts: list[slice]

    def __call__(self, piece: Any, numbers: NDArray[Any]) -> Any:
        return numbers[self.parts[piece.number]].copy()


def _part(first: int, end: int, start: int, stop: int, step: int) -> slice:
    """Of start : stop : step, what is in first : end, counted from there."""
    begin = start if start >= first else start + -(-(first - start) // step) * step
    return slice(min(begin, end) - first, max(min(stop, end), min(begin, end)) - first, step)


def _smallest(numbers: NDArray[Any]) -> Any:
    return numbers.min() if numbers.size else np.inf


def _largest(numbers: NDArray[Any]) -> Any:
    return numbers.max() if numbers.size else -np.inf


def _size(numbers: NDArray[Any]) -> int:
    return int(numbers.size)


def _dot(piece: Piece, one: NDArray[Any], other: NDArray[Any]) -> float:
    return float(one @ other)


def _copied(numbers: NDArray[Any]) -> NDArray[Any]:
    return numbers.copy()


def _count_places(piece: Piece, mask: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    k = np.flatnonzero(mask)
    rows = np.bincount(piece.M.rows[k], minlength=piece.M.shape[0])
    return rows, np.diff(np.searchsorted(k, piece.M.indptr))


# ---------------------------------------------------------------------- NumPy's functions


def _flatnonzero(x: Entries) -> FlaggedEntries:
    return FlaggedEntries(x)


def _clip(x: Entries, low: float, high: float) -> Entries:
    return Entries(x.home, Applied(np.clip, (x.formula, low, high), {}), x.where)


def _zeros_like(x: Entries, dtype: Any = None) -> Entries:
    kind = x.home.dtype if dtype is None else np.dtype(dtype)
    return Entries(x.home, Applied(_constant, (x.formula, 0.0, kind), {}))


def _count_nonzero(x: Entries) -> int:
    return sum(x._over(np.count_nonzero))


def _sum(x: Entries, dtype: Any = None) -> float:
    return float(sum(x._over(_Sum(dtype))))


@dataclass(frozen=True)
class _Sum:
    dtype: Any

    def __call__(self, numbers: NDArray[Any]) -> Any:
        return np.sum(numbers, dtype=self.dtype)


def _mean(x: Entries) -> float:
    return float(x.sum()) / x.size


def _median(x: Entries) -> float:
    """Exactly, without having all of them in memory: the two middle ones are found by their leading bits."""
    middle = (x.size - 1) // 2, x.size // 2
    low, high, below = 0, 1 << 64, 0  # keys from low to high - 1 are looked at; so many are smaller
    for shift in (48, 32, 16, 0):
        counts = sum(x._over(_Histogram(low, high, shift)))
        ends = below + np.cumsum(counts)
        first, last = (int(np.searchsorted(ends, k, side="right")) for k in middle)
        inside = int(ends[last] - ends[first] + counts[first])
        if inside <= AT_ONCE or first != last or not shift:
            found = np.sort(np.concatenate(x._over(_Between(low + (first << shift), low + (last + 1 << shift)))))
            return float(np.mean([found[k - int(ends[first] - counts[first])] for k in middle]))
        low, high, below = low + (first << shift), low + (first + 1 << shift), int(ends[first] - counts[first])
    raise AssertionError("unreachable")


def _keys(numbers: NDArray[Any]) -> NDArray[np.uint64]:
    """Whole numbers in the same order."""
    bits = numbers.astype(np.float64, copy=False).view(np.int64)
    return np.where(bits < 0, ~bits, bits | np.int64(-(1 << 63))).view(np.uint64)


@dataclass(frozen=True)
class _Histogram:
    """Counts of the keys from low to high - 1, by ranges of 2^shift."""

    low: int
    high: int
    shift: int

    def __call__(self, numbers: NDArray[Any]) -> NDArray[np.int64]:
        keys = _inside(_keys(numbers), self.low, self.high)
        bins = (keys - np.uint64(self.low)) >> np.uint64(self.shift)
        return np.bincount(bins.astype(np.int64), minlength=(self.high - self.low) >> self.shift)


@dataclass(frozen=True)
class _Between:
    """The numbers whose keys are from low to high - 1."""

    low: int
    high: int

    def __call__(self, numbers: NDArray[Any]) -> NDArray[Any]:
        keys = _keys(numbers)
        return numbers[(keys >= np.uint64(self.low)) & (keys <= np.uint64(self.high - 1))]


def _inside(keys: NDArray[np.uint64], low: int, high: int) -> NDArray[np.uint64]:
    if high - low == 1 << 64:
        return keys
    return keys[(keys >= np.uint64(low)) & (keys <= np.uint64(high - 1))]


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.flatnonzero: _flatnonzero,
    np.clip: _clip,
    np.zeros_like: _zeros_like,
    np.count_nonzero: _count_nonzero,
    np.mean: _mean,
    np.sum: _sum,
    np.median: _median,
}
