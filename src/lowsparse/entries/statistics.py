"""Sums, medians and usual numbers of the rows and columns of entries in memory."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..linalg.scale import CONSISTENT
from .protocol import PartialMatrix, Resident

LONGEST = 100.0  # deviations to which entries are clipped
ROUNDS = 10  # in which the usual entries of a column are found
NEAR, DEVIATION = 2.0, 0.8796  # standard deviations; that of a standard normal variable truncated there


def column_sums(columns: Resident, *numbers: NDArray[Any]) -> tuple[NDArray[np.float64], ...]:
    """Sums over each column, of one or more numbers for each entry; for `PartialMatrix.reduce` with "|"."""
    filled, sums = np.flatnonzero(columns.column_counts), np.zeros((len(numbers), columns.shape[1]))
    for total, y in zip(sums, numbers, strict=True):
        total[filled] = np.add.reduceat(y, columns.indptr[filled], dtype=np.float64)
    return tuple(sums)


def row_sums(columns: Resident, *numbers: NDArray[Any]) -> tuple[NDArray[np.float64], ...]:
    """Sums over each row, of one or more numbers for each entry; for `PartialMatrix.reduce` with "+"."""
    m, n = columns.shape
    if columns.nnz == m * n:  # all are observed: the same sums, in the same order
        return tuple(y.reshape(n, m).sum(axis=0, dtype=np.float64) for y in numbers)
    return tuple(np.bincount(columns.rows, weights=y, minlength=columns.shape[0]).astype(np.float64) for y in numbers)


def column_medians(M: Resident, *, empty: float = 0.0) -> NDArray[np.float64]:
    """The median of each column of M; `empty` where nothing is observed.

    >>> from lowsparse import ObservedMatrix
    >>> column_medians(ObservedMatrix.from_dense([[1.0, np.nan], [2.0, np.nan], [9.0, np.nan]])).tolist()
    [2.0, 0.0]
    """
    found = np.full(M.shape[1], empty)
    values = M.values.astype(np.float64)
    for j in np.flatnonzero(M.column_counts):
        column = values[M.indptr[j] : M.indptr[j + 1]]
        half = column.size // 2
        column.partition(half)  # np.median takes ten times as long for a short column
        found[j] = column[half] if column.size % 2 else (column[:half].max() + column[half]) / 2
    return found


def shorths(M: Resident) -> NDArray[np.float64]:
    """The mean of each column over the shortest interval with half of its entries; 0 if there are none."""
    found = np.zeros(M.shape[1])
    for j in np.flatnonzero(M.column_counts):
        found[j] = _shortest_half(_sorted_column(M, j)).mean()
    return found


def usual_columns(M: Resident) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean and the standard deviation of each column, if it is normal but for some entries; for `reduce` with "||".

    They are those of the entries within two standard deviations, beginning with the shortest half. The deviation is
    infinite where half of the entries are the same number: nothing is unusual there.

    >>> from lowsparse import ObservedMatrix
    >>> x = np.random.default_rng(1).standard_normal((1000, 1))
    >>> x[:200] = 4.0
    >>> [round(float(found[0]), 1) for found in usual_columns(ObservedMatrix.from_dense(x + 5))]
    [5.0, 1.0]
    """
    mean, deviation = np.zeros(M.shape[1]), np.full(M.shape[1], np.inf)
    for j in np.flatnonzero(M.column_counts):
        mean[j], deviation[j] = usual_numbers(_sorted_column(M, j))
    return mean, deviation


def usual_numbers(x: NDArray[np.float64]) -> tuple[float, float]:
    """The mean and the standard deviation of sorted numbers, as `usual_columns` has those of a column."""
    usual = _shortest_half(x)
    half, origin, scale = usual.size, float(usual.mean()), CONSISTENT * float(usual[-1] - usual[0]) / 2
    x = np.minimum(np.maximum(x - origin, -LONGEST * scale), LONGEST * scale)  # entries further out are never usual
    sums = np.zeros((2, x.size + 1))
    x.cumsum(out=sums[0, 1:])
    (x * x).cumsum(out=sums[1, 1:])
    middle, part = 0.0, (0, 0)
    for _ in range(ROUNDS):
        first, last = x.searchsorted((middle - NEAR * scale, middle + NEAR * scale)).tolist()
        if last - first < half or (first, last) == part:
            break
        part, count = (first, last), last - first
        middle, square = (float(total[last] - total[first]) / count for total in sums)
        scale = math.sqrt(max(square - middle * middle, 0.0)) / DEVIATION
    return origin + middle, scale or np.inf


def _sorted_column(M: Resident, j: np.intp) -> NDArray[np.float64]:
    return np.sort(M.values[M.indptr[j] : M.indptr[j + 1]].astype(np.float64))


def _shortest_half(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The part of sorted numbers with half of them in the shortest interval."""
    half = x.size // 2 + 1
    first = int(np.argmin(x[half - 1 :] - x[: x.size - half + 1]))
    return x[first : first + half]


def by_columns(M: PartialMatrix, function: Callable[[Any], NDArray[Any]]) -> NDArray[Any]:
    """A function of a matrix in memory that gives a number for each column, such as `column_medians`, for any matrix.

    Pickle must know the function.
    """
    found: NDArray[Any] = M.reduce("|", partial(_in_tuple, function))[0]
    return found


def _in_tuple(function: Callable[[Any], NDArray[Any]], columns: Resident) -> tuple[NDArray[Any]]:
    return (np.asarray(function(columns)),)
