"""Numbers of rows and columns at the entries, and sums over them; the same in memory, on disk and on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...entries.observed import ObservedMatrix
from .formulas import Entries, Piece

__all__ = ["along_columns", "along_rows", "by_columns", "column_sums", "row_sums", "total"]

Numbers = NDArray[Any]


@dataclass(frozen=True, eq=False)
class AlongColumns:
    """The number of an entry's column."""

    numbers: Numbers

    def at(self, piece: Piece) -> Numbers:
        """Of these entries."""
        return np.repeat(self.numbers, piece.M.column_counts)

    def cut(self, columns: slice) -> AlongColumns:
        """No more than these columns need."""
        return AlongColumns(self.numbers[columns])


@dataclass(frozen=True, eq=False)
class AlongRows:
    """The number of an entry's row."""

    numbers: Numbers

    def at(self, piece: Piece) -> Numbers:
        """Of these entries."""
        return self.numbers[piece.M.rows]

    def cut(self, columns: slice) -> AlongRows:
        """No more than these columns need."""
        return self


def along_columns(M: Any, numbers: Numbers) -> Any:
    """For each entry, the number of its column.

    >>> M = ObservedMatrix.from_dense([[1.0, 2.0], [3.0, np.nan]])
    >>> along_columns(M, np.array([5.0, 7.0])).tolist()
    [5.0, 5.0, 7.0]
    """
    if isinstance(M, ObservedMatrix):
        return np.repeat(numbers, M.column_counts)
    return Entries(M, AlongColumns(numbers))


def along_rows(M: Any, numbers: Numbers) -> Any:
    """For each entry, the number of its row.

    >>> M = ObservedMatrix.from_dense([[1.0, 2.0], [3.0, np.nan]])
    >>> along_rows(M, np.array([5.0, 7.0])).tolist()
    [5.0, 7.0, 5.0]
    """
    return numbers[M.rows] if isinstance(M, ObservedMatrix) else Entries(M, AlongRows(numbers))


def total(M: Any, how: str, function: Callable[..., tuple[Any, ...]], *numbers: Any) -> tuple[Any, ...]:
    """What ``function(piece, *numbers there)`` gives for all pieces, added (+) or joined (|) as `how` says.

    A matrix in memory is one piece. The function must have a name, as it may be sent to who has the piece.

    >>> M = ObservedMatrix.from_dense([[1.0, 2.0], [3.0, np.nan]])
    >>> total(M, "|", column_sums, M.values)
    (array([4., 2.]),)
    """
    if isinstance(M, ObservedMatrix):
        return function(_Whole(M), *numbers)
    merged: tuple[Any, ...] = M.merged(how, function, *(x.formula for x in numbers))
    return merged


@dataclass(frozen=True)
class _Whole:
    M: ObservedMatrix


def column_sums(piece: Any, *numbers: Numbers) -> tuple[NDArray[np.float64], ...]:
    """Sums over each column of a piece, of one or more numbers for each entry; for `total`."""
    lines, n = piece.M.columns_of_entries(), piece.M.shape[1]
    return tuple(np.bincount(lines, weights=y, minlength=n).astype(np.float64) for y in numbers)


def row_sums(piece: Any, *numbers: Numbers) -> tuple[NDArray[np.float64], ...]:
    """Sums over each row of a piece, of one or more numbers for each entry; for `total`."""
    lines, m = piece.M.rows, piece.M.shape[0]
    return tuple(np.bincount(lines, weights=y, minlength=m).astype(np.float64) for y in numbers)


def by_columns(M: Any, function: Callable[[ObservedMatrix], Numbers]) -> Numbers:
    """What a function of a matrix gives for each of its columns; it must have a name.

    >>> by_columns(ObservedMatrix.from_dense([[1.0, 2.0], [3.0, np.nan]]), np.shape).tolist()
    [2, 2]
    """
    return np.asarray(function(M)) if isinstance(M, ObservedMatrix) else np.concatenate(M.over(_Of(function)))


# ---------------------------------------------------------------------- what pieces do; to be sent, these have names


@dataclass(frozen=True)
class _Of:
    function: Callable[[ObservedMatrix], Numbers]

    def __call__(self, piece: Piece) -> Numbers:
        return self.function(piece.M)
