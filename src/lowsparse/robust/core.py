"""The dense core of a matrix whose lines have very different numbers of entries, such as ratings.

The k-core of a bipartite graph: the largest set of rows and columns each of which has k entries within the set. It is
what remains when lines with fewer entries are removed, again and again. L can be learnt there, and all other lines are
regressed on it, if the core stands for all of the data: few entries have neither their row nor their column in it,
hardly a line that has enough entries elsewhere has too few there, and it does not fall into parts.
"""

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..sweeps import min_support
from .growth import take_block
from .joint import coupling

Index = NDArray[np.intp]

LARGEST = 0.6  # share of the entries, above which a core saves too little
ENOUGH, STEP = 20_000, 1.2  # entries of a core that need not be smaller, and by what the number in each line is raised
ELSEWHERE = 0.15  # largest share of the entries with neither row nor column in the core
LOST = 0.05  # largest share of the rows, or columns, with enough entries of which the core has too few
TIGHT = 0.7  # coupling, below which the core is connected


def dense_core(M: ObservedMatrix, least: float, rank: int) -> tuple[Index, Index] | None:
    """The rows and columns with `least` or more entries each among themselves; None if these cannot stand for all of M.

    As long as they can, and are many, the number is raised: a smaller core takes less time.

    >>> rng = np.random.default_rng(3)
    >>> known = rng.random((300, 300)) < np.outer(*2 * [np.where(np.arange(300) < 100, 0.9, 0.25)])
    >>> rows, columns = dense_core(ObservedMatrix.from_dense(np.where(known, 1.0, np.nan)), 50, rank=1)
    >>> rows.tolist() == columns.tolist() == list(range(100))
    True
    """
    rows, columns = np.arange(M.shape[0]), np.arange(M.shape[1])
    left, found = M, None
    while found is None or left.nnz > ENOUGH:
        rows, columns = _peel(M, rows, columns, least)
        left = take_block(M, rows, columns)
        if not left.nnz or _loses_lines(M, rows, columns, 2 * min_support(rank)):
            break
        if left.nnz <= LARGEST * M.nnz:
            if coupling(left, np.ones(left.nnz, bool)) >= TIGHT:
                break
            found = rows, columns
        least *= STEP
    return found


def _peel(M: ObservedMatrix, rows: Index, columns: Index, least: float) -> tuple[Index, Index]:
    """Those of these rows and columns that are left when lines with fewer entries are removed, again and again."""
    while True:
        left = take_block(M, rows, columns)
        good_rows, good_columns = left.row_counts >= least, left.column_counts >= least
        if good_rows.all() and good_columns.all():
            return rows, columns
        rows, columns = rows[good_rows], columns[good_columns]


def _loses_lines(M: ObservedMatrix, rows: Index, columns: Index, enough: float) -> bool:
    """Whether entries, or lines with enough of them to be fitted, are too far from the core."""
    row_in, column_in = np.zeros(M.shape[0], bool), np.zeros(M.shape[1], bool)
    row_in[rows], column_in[columns] = True, True
    in_core_row, in_core_column = row_in[M.rows], np.repeat(column_in, M.column_counts)
    if np.mean(in_core_row | in_core_column) < 1 - ELSEWHERE:
        return True
    within_rows = np.bincount(M.rows, weights=in_core_column, minlength=M.shape[0])
    within_columns = np.bincount(M.columns_of_entries(), weights=in_core_row, minlength=M.shape[1])
    for counts, within in ((M.row_counts, within_rows), (M.column_counts, within_columns)):
        fitted = counts >= enough
        if np.mean(within[fitted] < enough / 2) > LOST:
            return True
    return False
