"""Ties: values that are repeated exactly though most are not, as from stuck sensors, clipping, copied rows or patches.

Measured values hardly ever agree to the last digit. Where some do, they may be errors, and of low rank, so that a
robust fit takes them for the truth. In data of round numbers (counts, ratings, pixels) ties mean nothing: there, values
that are not tied within their row or column are repeated elsewhere.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..entries.compressed import offsets
from ..entries.observed import ObservedMatrix
from ..sweeps import Float

Numbers: TypeAlias = NDArray[np.floating[Any]]

REPEATED = 3  # least number of times that a tied value occurs in its row or column
SUSPICIOUS = (0.01, 0.45)  # share of tied entries: fewer do not matter, and with more there is little else
ROUND = 0.05  # share of repeated values among the others, from which on numbers are round
PROBED = 20  # lines of a first test


class Ties:
    """Which values of a matrix are tied, and whether that is suspicious.

    >>> X = np.random.default_rng(1).standard_normal((30, 20))
    >>> X[:10, :5] = 2.0
    >>> M = ObservedMatrix.from_dense(X)
    >>> ties = Ties(M, M.T)
    >>> ties.suspicious, ties.matrix_without().nnz
    (True, 550)
    >>> ties.contain(np.array([0, 20]), np.array([0, 0]), np.array([2.0, 2.0]))
    array([ True,  True])
    """

    def __init__(self, M: ObservedMatrix, transpose: ObservedMatrix) -> None:
        self.M, self.transpose = M, transpose
        self.tied = np.zeros(M.nnz, bool)
        if any(is_repeated(_some_columns(A)).mean() > SUSPICIOUS[0] / 4 for A in (M, transpose)):
            number, times = _different_numbers(M.values)
            often = times[number] >= REPEATED  # only these can be tied
            some = _take_entries(M, often)
            tied = is_repeated(some)
            tied[np.argsort(some.rows, kind="stable")] |= is_repeated(some.T)
            self.tied[often] = tied
        self.share = float(self.tied.mean()) if M.nnz else 0.0
        self.suspicious = SUSPICIOUS[0] < self.share < SUSPICIOUS[1] and not _are_round(number[~self.tied])

    def matrix_without(self, least: float = 0) -> ObservedMatrix:
        """The matrix without tied entries; lines that have fewer than `least` others keep theirs."""
        kept = ~self.tied
        if least:
            rows, columns = self.M.rows, self.M.columns_of_entries()
            few_in_row, few_in_column = (
                np.bincount(lines[kept], minlength=n) < least
                for lines, n in zip((rows, columns), self.M.shape, strict=True)
            )
            kept |= few_in_row[rows] | few_in_column[columns]
        return _take_entries(self.M, kept)

    def shares(self) -> tuple[Float, Float]:
        """The shares of tied entries of each column and of each row."""
        by_column, by_row = (
            np.bincount(lines, weights=self.tied, minlength=n) / np.maximum(np.bincount(lines, minlength=n), 1)
            for lines, n in zip((self.M.columns_of_entries(), self.M.rows), self.M.shape[::-1], strict=True)
        )
        return by_column, by_row

    def contain(self, rows: NDArray[np.int32], columns: NDArray[np.int32], values: Float) -> NDArray[np.bool_]:
        """Of other entries: whether their value is tied in their row or column."""
        return _would_be_repeated(self.M, columns, values) | _would_be_repeated(self.transpose, rows, values)


def _some_columns(M: ObservedMatrix) -> ObservedMatrix:
    filled = np.flatnonzero(M.column_counts)
    some = M.take_columns(filled[:: max(1, filled.size // PROBED)])
    assert some is not None  # each has an entry
    return some


def _take_entries(M: ObservedMatrix, kept: NDArray[np.bool_]) -> ObservedMatrix:
    return ObservedMatrix.trusted(offsets(kept)[M.indptr], M.rows[kept], M.values[kept], M.shape)


def _different_numbers(values: Numbers) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which of the different numbers each value is, counted from 0; and how often each of these occurs.

    It takes half of the time of `np.unique`.
    """
    order = np.argsort(values)
    ordered = values[order]
    new = np.concatenate([[False], ordered[1:] != ordered[:-1]])
    number = np.empty(values.size, np.intp)
    number[order] = np.cumsum(new)
    return number, np.bincount(number)


def _are_round(number: NDArray[np.intp]) -> bool:
    """Whether many values are repeated, by which of the different numbers each is."""
    return bool(np.count_nonzero(np.bincount(number)) < (1 - ROUND) * number.size)


def _occur_among(values: Numbers, numbers: Numbers) -> NDArray[np.bool_]:
    """Of each value: whether it is one of these numbers, which ascend."""
    if not numbers.size:
        return np.zeros(values.shape, bool)
    return np.asarray(numbers[np.minimum(np.searchsorted(numbers, values), numbers.size - 1)] == values)


def is_repeated(M: ObservedMatrix) -> NDArray[np.bool_]:
    """Of each entry: whether its value occurs at least `REPEATED` times in its column."""
    columns = M.columns_of_entries()
    order = np.lexsort((M.values, columns))
    value, column = M.values[order], columns[order]
    new = np.concatenate([[True], (value[1:] != value[:-1]) | (column[1:] != column[:-1])])
    group = np.cumsum(new) - 1
    repeated = np.empty(M.nnz, bool)
    repeated[order] = np.bincount(group)[group] >= REPEATED
    return repeated


def _would_be_repeated(M: ObservedMatrix, columns: NDArray[np.int32], values: Float) -> NDArray[np.bool_]:
    """Of other entries of these columns: whether their value, added to M, would be repeated there."""
    same = _occur_among(M.values, np.unique(values))
    known = np.sort(M.columns_of_entries()[same] + 1j * M.values[same].astype(np.float64))  # by column, then by value
    asked = columns + 1j * values
    times = np.searchsorted(known, asked, side="right") - np.searchsorted(known, asked, side="left")
    return np.asarray(times >= REPEATED - 1)
