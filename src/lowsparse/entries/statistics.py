"""Sums and medians of the rows and columns of entries in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .protocol import PartialMatrix, Resident


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
    # sorted by column, then by value: the median of a column is in the middle of its part
    order = np.lexsort((M.values, M.columns_of_entries()))
    values = M.values[order].astype(np.float64)
    counts, first = M.column_counts, M.indptr[:-1]
    low = np.minimum(first + (counts - 1) // 2, values.size - 1)
    high = np.minimum(first + counts // 2, values.size - 1)
    return np.where(counts > 0, (values[low] + values[high]) / 2, empty)


def by_columns(M: PartialMatrix, function: Callable[[Any], NDArray[Any]]) -> NDArray[Any]:
    """A function of a matrix in memory that gives a number for each column, such as `column_medians`, for any matrix.

    Pickle must know the function.
    """
    found: NDArray[Any] = M.reduce("|", partial(_in_tuple, function))[0]
    return found


def _in_tuple(function: Callable[[Any], NDArray[Any]], columns: Resident) -> tuple[NDArray[Any]]:
    return (np.asarray(function(columns)),)
