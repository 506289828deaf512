"""Sums and medians of the rows and columns of entries in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .protocol import PartialMatrix, Resident

__all__ = ["by_columns", "column_medians", "column_sums", "row_sums"]


def column_sums(columns: Resident, *numbers: NDArray[Any]) -> tuple[NDArray[np.float64], ...]:
    """Sums over each column, of one or more numbers for each entry; for `PartialMatrix.reduce` with "|"."""
    lines, n = columns.columns_of_entries(), columns.shape[1]
    return tuple(np.bincount(lines, weights=y, minlength=n).astype(np.float64) for y in numbers)


def row_sums(columns: Resident, *numbers: NDArray[Any]) -> tuple[NDArray[np.float64], ...]:
    """Sums over each row, of one or more numbers for each entry; for `PartialMatrix.reduce` with "+"."""
    return tuple(np.bincount(columns.rows, weights=y, minlength=columns.shape[0]).astype(np.float64) for y in numbers)


def column_medians(M: Resident, *, empty: float = 0.0) -> NDArray[np.float64]:
    """The median of each column of M; `empty` where nothing is observed.

    >>> from lowsparse import ObservedMatrix
    >>> column_medians(ObservedMatrix.from_dense([[1.0, np.nan], [2.0, np.nan], [9.0, np.nan]])).tolist()
    [2.0, 0.0]
    """
    # by column, then by value: the median of a column lies in the middle of its part
    order = np.lexsort((M.values, M.columns_of_entries()))
    values = M.values[order].astype(np.float64)
    counts, first = M.column_counts, M.indptr[:-1]
    low = np.minimum(first + (counts - 1) // 2, values.size - 1)
    high = np.minimum(first + counts // 2, values.size - 1)
    return np.where(counts > 0, (values[low] + values[high]) / 2, empty)


def by_columns(M: PartialMatrix, function: Callable[[Any], NDArray[Any]]) -> NDArray[Any]:
    """What a function of a matrix in memory gives for each of its columns; pickle must know it.

    >>> from lowsparse import ObservedMatrix
    >>> by_columns(ObservedMatrix.from_dense([[1.0, 2.0], [3.0, np.nan]]), column_medians).tolist()
    [2.0, 2.0]
    """
    found: NDArray[Any] = M.reduce("|", _OneItem(function))[0]
    return found


@dataclass(frozen=True)
class _OneItem:
    function: Callable[[Any], NDArray[Any]]

    def __call__(self, columns: Resident) -> tuple[NDArray[Any]]:
        return (np.asarray(self.function(columns)),)
