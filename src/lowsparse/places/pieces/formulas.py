"""One number for each entry of a matrix in pieces: a formula, which every piece evaluates for itself.

    e = sweep.residual(U, V)
    np.clip(-e, -c, c)

makes no array: the second is a formula of the first. Numbers are computed when they are needed, a piece at a time: by
a sweep, by a sum or a median, or by `hold`, which stores them. Formulas are plain data that can be sent to another
process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

from ...entries.observed import ObservedMatrix
from ...sweeps import Sweep

if TYPE_CHECKING:
    from .matrix import MatrixInPieces

MAX_SORTED = 4_000_000  # numbers that are sorted in memory


class Piece(Protocol):
    """Consecutive columns of a matrix: in memory, mapped from disk, on a GPU or on a worker."""

    number: int
    columns: slice

    @property
    def M(self) -> ObservedMatrix:  # noqa: N802
        """The matrix of these columns."""

    @property
    def sweep(self) -> Sweep:
        """The sweep over these columns."""

    def held_array(self, name: str) -> NDArray[Any]:
        """Numbers that were stored under this name."""


@dataclass(frozen=True, eq=False)
class Computed:
    """A function of a piece, of arguments that all pieces share, and of arrays with a row for each column."""

    function: Callable[..., Any]
    shared: tuple[Any, ...] = ()
    by_column: tuple[NDArray[Any] | None, ...] = ()

    def evaluate(self, piece: Piece) -> Any:
        """The numbers of a piece."""
        return self.function(piece, *self.shared, *self.by_column)

    def restrict(self, columns: slice) -> Computed:
        """The formula for a piece with these columns, without the rows of others."""
        own = tuple(None if array is None else array[columns] for array in self.by_column)
        return Computed(self.function, self.shared, own)


@dataclass(frozen=True)
class HeldNumbers:
    """Numbers that were stored by name; they are removed with the object that was made when they were stored."""

    name: str

    def evaluate(self, piece: Piece) -> NDArray[Any]:
        """The numbers of a piece."""
        return piece.held_array(self.name)

    def restrict(self, columns: slice) -> HeldNumbers:
        """Another object, which does not keep the numbers stored."""
        return HeldNumbers(self.name)


@dataclass(frozen=True, eq=False)
class Applied:
    """A function, entry by entry, of formulas and numbers."""

    function: Callable[..., NDArray[Any]]
    inputs: tuple[Any, ...]
    options: dict[str, Any]

    def evaluate(self, piece: Piece) -> NDArray[Any]:
        """The numbers of a piece."""
        return self.function(*(x.evaluate(piece) if isinstance(x, Formula) else x for x in self.inputs), **self.options)

    def restrict(self, columns: slice) -> Applied:
        """The formula for a piece with these columns."""
        inputs = tuple(x.restrict(columns) if isinstance(x, Formula) else x for x in self.inputs)
        return Applied(self.function, inputs, self.options)


# A number for each entry, or a row of numbers for each column. Of a piece it needs no more than `restrict(columns)`.
Formula: TypeAlias = Computed | HeldNumbers | Applied
Written: TypeAlias = tuple[HeldNumbers, ...]  # stored numbers that a pass writes


def per_column(numbers: NDArray[Any] | None) -> Computed:
    """A row of numbers, or one number, for each column; or None."""
    return Computed(_argument, by_column=(numbers,))


def _argument(piece: Piece, numbers: NDArray[Any] | None) -> NDArray[Any] | None:
    return numbers


def held_names(formula: object) -> set[str]:
    """The names of the stored numbers that a formula reads."""
    if isinstance(formula, HeldNumbers):
        return {formula.name}
    return set().union(*map(held_names, formula.inputs)) if isinstance(formula, Applied) else set()


class Entries(NDArrayOperatorsMixin):
    """One number per entry of a matrix in pieces; NumPy's elementwise functions apply, and a few reductions.

    >>> import tempfile
    >>> from lowsparse.places import StoredMatrix
    >>> folder = tempfile.TemporaryDirectory()
    >>> M = StoredMatrix.build(ObservedMatrix.from_dense([[1.0, -2.0], [3.0, float("nan")]]), folder.name)
    >>> np.asarray(np.abs(M.values) + 1).tolist(), float(np.median(np.abs(M.values)))
    ([2.0, 4.0, 3.0], 2.0)
    >>> folder.cleanup()
    """

    def __init__(self, matrix: MatrixInPieces, formula: Formula, mask: Formula | None = None) -> None:
        self.matrix, self.formula, self.mask = matrix, formula, mask

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return self.matrix.nnz if self.mask is None else sum(self.map(len))

    @property
    def shape(self) -> tuple[int]:
        """One dimension."""
        return (self.size,)

    def map(self, function: Callable[..., Any]) -> list[Any]:
        """A function of the numbers of each piece."""
        formulas = (self.formula,) if self.mask is None else (self.formula, self.mask)
        return self.matrix.map_pieces(partial(_of_numbers, function), *formulas)

    def apply(self, function: Callable[..., Any], *inputs: Any, **options: Any) -> Entries:
        """A function of the numbers, entry by entry."""
        return Entries(self.matrix, Applied(function, (self.formula, *inputs), options), self.mask)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or "out" in options:
            return NotImplemented
        if ufunc is np.matmul:
            return sum(self.matrix.map_pieces(_dot, *(x.formula for x in inputs)))
        masks = [x.mask for x in inputs if isinstance(x, Entries) and x.mask is not None]
        parts = tuple(x.formula if isinstance(x, Entries) else x for x in inputs)
        if any(isinstance(x, np.ndarray) and x.ndim for x in parts):
            return NotImplemented
        return Entries(self.matrix, Applied(ufunc, parts, options), masks[0] if masks else None)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        known: Callable[..., Any] | None = FUNCTIONS.get(function)
        return NotImplemented if known is None else known(*args, **kwargs)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        parts = self.map(_copy)
        return np.concatenate(parts).astype(dtype or parts[0].dtype, copy=False)

    def astype(self, dtype: DTypeLike, copy: bool = True) -> Entries:
        """As another type of number."""
        return self.apply(methodcaller("astype", np.dtype(dtype), copy=False))

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, FlaggedEntries):
            return Entries(self.matrix, self.formula, which.mask.formula)
        if isinstance(which, slice) and self.mask is None:
            start, stop, step = which.indices(self.matrix.nnz)
            if step > 0:
                edges = self.matrix.piece_starts()
                parts = [_slice_within(first, end, start, stop, step) for first, end in pairwise(edges.tolist())]
                return np.concatenate(self.matrix.map_pieces(partial(_take_slice, parts), self.formula))
        raise TypeError(f"entries in pieces are indexed by slices or by np.flatnonzero of a mask, not by {which!r}")

    def parts(self) -> Iterator[NDArray[Any]]:
        """The numbers, piece by piece."""
        return self.matrix.iterate_pieces(partial(_of_numbers, _copy), self.formula)

    def replaced(self, read: Callable[[int], NDArray[Any]]) -> Entries:
        """Other numbers in the same place, which ``read(size)`` gives piece by piece."""
        return self.matrix.hold_parts(map(read, np.diff(self.matrix.piece_starts()).tolist()))

    def min(self) -> Any:
        """The smallest."""
        return min(self.map(_smallest))

    def max(self) -> Any:
        """The largest."""
        return max(self.map(_largest))

    def sum(self) -> Any:
        """Σ, piece by piece."""
        return sum(self.map(np.sum))

    def any(self) -> bool:
        """Whether a number is not zero."""
        return any(self.map(np.any))


def as_entries(values: object) -> Entries:
    """`values`, if they are numbers of the entries of a matrix in pieces; an error otherwise."""
    if not isinstance(values, Entries):
        kind = type(values).__name__
        raise TypeError(f"a matrix in pieces takes a formula of its own values, such as 2 * M.values, and no {kind}")
    return values


class FlaggedEntries:
    """Where a mask holds: what `np.flatnonzero` gives for entries in pieces."""

    def __init__(self, mask: Entries) -> None:
        self.mask = mask

    @cached_property
    def line_counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many there are in each row, and in each column."""
        rows, columns = self.mask.matrix.reduce_pieces("+|", _count_lines, self.mask.formula)
        return rows, columns

    @property
    def size(self) -> int:
        """How many there are."""
        return int(self.line_counts[1].sum())

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        matrix = self.mask.matrix
        found = matrix.map_pieces(partial(_of_numbers, np.flatnonzero), self.mask.formula)
        return np.concatenate([k + first for k, first in zip(found, matrix.piece_starts(), strict=False)])


# ---------------------------------------------------------------------- functions of a piece; they can be pickled


def _of_numbers(
    function: Callable[..., Any], piece: Piece, numbers: NDArray[Any], mask: NDArray[Any] | None = None
) -> Any:
    return function(numbers if mask is None else numbers[mask.astype(bool, copy=False)])


def _take_slice(parts: list[slice], piece: Piece, numbers: NDArray[Any]) -> NDArray[Any]:
    return numbers[parts[piece.number]].copy()


def _slice_within(first: int, end: int, start: int, stop: int, step: int) -> slice:
    """The part of start : stop : step that lies in first : end, relative to first."""
    begin = start if start >= first else start + -(-(first - start) // step) * step
    return slice(min(begin, end) - first, max(min(stop, end), min(begin, end)) - first, step)


_copy = methodcaller("copy")


def _smallest(numbers: NDArray[Any]) -> Any:
    return numbers.min() if numbers.size else np.inf


def _largest(numbers: NDArray[Any]) -> Any:
    return numbers.max() if numbers.size else -np.inf


def _dot(piece: Piece, one: NDArray[Any], other: NDArray[Any]) -> float:
    return float(one @ other)


def _count_lines(piece: Piece, mask: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    k = np.flatnonzero(mask)
    rows = np.bincount(piece.M.rows[k], minlength=piece.M.shape[0])
    return rows, np.diff(np.searchsorted(k, piece.M.indptr))


# ---------------------------------------------------------------------- NumPy's functions


def _median(x: Entries) -> float:
    """The exact median in bounded memory: the two middle numbers are found by their leading bits."""
    middle = (x.size - 1) // 2, x.size // 2
    low, high, below = 0, 1 << 64, 0  # the middle keys are in low ... high - 1; this many keys are smaller
    for shift in (48, 32, 16, 0):
        counts = sum(x.map(partial(_histogram, low=low, high=high, shift=shift)))
        ends = below + np.cumsum(counts)
        first, last = (int(np.searchsorted(ends, k, side="right")) for k in middle)
        inside = int(ends[last] - ends[first] + counts[first])
        begin, smaller = low + (first << shift), int(ends[first] - counts[first])
        if inside <= MAX_SORTED or first != last or not shift:
            found = np.sort(np.concatenate(x.map(partial(_between, low=begin, high=low + (last + 1 << shift)))))
            return float(np.mean([found[k - smaller] for k in middle]))
        low, high, below = begin, low + (first + 1 << shift), smaller
    raise AssertionError("unreachable")


def _keys(numbers: NDArray[Any]) -> NDArray[np.uint64]:
    """Integers in the same order."""
    bits = numbers.astype(np.float64, copy=False).view(np.int64)
    return np.where(bits < 0, ~bits, bits | np.int64(-(1 << 63))).view(np.uint64)


def _in_range(keys: NDArray[np.uint64], low: int, high: int) -> NDArray[np.bool_]:
    return (keys >= np.uint64(low)) & (keys <= np.uint64(high - 1))


def _histogram(numbers: NDArray[Any], low: int, high: int, shift: int) -> NDArray[np.int64]:
    """Counts of the keys in low ... high - 1, in bins of 2^shift."""
    keys = _keys(numbers)
    if high - low < 1 << 64:
        keys = keys[_in_range(keys, low, high)]
    bins = (keys - np.uint64(low)) >> np.uint64(shift)
    return np.bincount(bins.astype(np.int64), minlength=(high - low) >> shift)


def _between(numbers: NDArray[Any], low: int, high: int) -> NDArray[Any]:
    """The numbers with keys in low ... high - 1."""
    return numbers[_in_range(_keys(numbers), low, high)]


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.flatnonzero: FlaggedEntries,
    np.clip: lambda x, low, high: x.apply(np.clip, low, high),
    np.zeros_like: lambda x, dtype=None: x.apply(np.zeros_like, dtype=dtype),
    np.count_nonzero: lambda x: sum(x.map(np.count_nonzero)),
    np.mean: lambda x: float(x.sum()) / x.size,
    np.sum: lambda x, dtype=None: float(sum(x.map(partial(np.sum, dtype=dtype)))),
    np.median: _median,
}
