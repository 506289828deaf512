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
Lines = NDArray[np.int32]

UNEQUAL = 2.0  # entries of the richest row or column, relative to the median, above which there may be a core
LARGEST = 0.6  # share of the entries, above which a core saves too little
ENOUGH, STEP = 30_000, 1.2  # entries of a core that need not be smaller, and by what the number in each line is raised
ELSEWHERE = 0.2  # largest share of the entries with neither row nor column in the core
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
    if all(counts.max() < UNEQUAL * np.median(counts) for counts in (M.row_counts, M.column_counts)):
        return None  # all lines are alike
    i, j, found = M.rows, M.columns_of_entries(), None  # of the entries that are left
    while found is None or i.size > ENOUGH:
        i, j = _peel(i, j, M.shape, least)
        if not i.size:
            break
        core = np.flatnonzero(np.bincount(i)), np.flatnonzero(np.bincount(j))
        if _loses_lines(M, *core, 2 * min_support(rank)):
            break
        if i.size <= LARGEST * M.nnz:
            if coupling(take_block(M, *core), np.ones(i.size, bool)) >= TIGHT:
                break
            found = core
        least *= STEP
    return found


def _peel(i: Lines, j: Lines, shape: tuple[int, int], least: float) -> tuple[Lines, Lines]:
    """The rows and columns of the entries that are left when lines with fewer are removed, again and again."""
    while True:
        rich_row, rich_column = (np.bincount(at, minlength=n) >= least for at, n in zip((i, j), shape, strict=True))
        kept = rich_row[i] & rich_column[j]
        if kept.all():
            return i, j
        i, j = i[kept], j[kept]


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
