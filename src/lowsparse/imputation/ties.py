"""Numbers that are repeated: in counts, ratings and 0/1, where that is usual, and by a stuck instrument.

Of counts, ratings, 0/1 or many zeros, more than half of the entries may be the same number.

The median deviation of such a column is zero, and so is every robust scale that rests on it. For a fit with outliers
the repeated number is then exact, and all others are errors. Uniform noise, as wide as the usual step away from the
repeated number, takes the ties away without moving means: the noise of the fit is then that of the column. It is
added for the fit alone; what is filled or replaced is measured against the numbers as they were given.
"""

import numpy as np

from ..entries.observed import ObservedMatrix
from ..entries.protocol import PartialMatrix
from ..entries.statistics import by_columns
from ..sweeps import Float

REPEATED = 3  # least number of times that a value other than the median occurs, where such values are few
RARE = 0.2  # share of entries off the median below which they count only if they are repeated: else they are errors

STUCK, OFTEN = 5, 0.03  # least number of times that a stuck value occurs, and their share in the column
MEASURED = 30  # least number of entries of a column in which stuck values are looked for
ROUND = 0.05  # share of repeated numbers among the others, from which on numbers are round


def spread_ties(M: PartialMatrix) -> PartialMatrix:
    """M, with uniform noise in the columns most of whose entries are the same number; M itself if there are none.

    >>> X = np.zeros((100, 2))
    >>> X[::4, 0], X[:, 1] = 1.0, np.arange(100)
    >>> Y = spread_ties(ObservedMatrix.from_dense(X)).to_host().to_scipy().toarray()
    >>> bool(np.abs(Y - X)[:, 0].max() <= 0.5), bool(np.median(np.abs(Y[:, 0])) > 0.2), np.array_equal(X[:, 1], Y[:, 1])
    (True, True, True)
    """
    width = by_columns(M, tie_widths)
    if not width.any():
        return M
    rows, columns = (np.arange(size, dtype=np.float64) for size in M.shape)
    # a hash of the position: the same number for the same entry wherever the matrix is, and of no low rank
    mixed = 43758.5453 * np.sin(M.spread_over_rows(12.9898 * rows) + M.spread_over_columns(78.233 * columns))
    return M.with_stored_values(M.values + M.spread_over_columns(width) * (mixed - np.floor(mixed) - 0.5))


def tie_widths(M: ObservedMatrix) -> Float:
    """The median distance from the median of the entries that differ from it, if they are less than half; else 0.

    A few that all differ from each other are errors in a column that is constant otherwise.
    """
    widths = np.zeros(M.shape[1])
    for j in np.flatnonzero(M.column_counts >= REPEATED):
        x = M.values[M.indptr[j] : M.indptr[j + 1]]
        middle = np.partition(x, x.size // 2)[x.size // 2]
        others = x[x != middle]
        if 2 * others.size >= x.size or not others.size:
            continue
        if others.size >= RARE * x.size or np.unique(others, return_counts=True)[1].max() >= REPEATED:
            widths[j] = np.median(np.abs(others.astype(np.float64) - float(middle)))
    return widths


def stuck_values(M: PartialMatrix) -> Float:
    """For each column the number that is repeated though hardly any other is, as if the instrument was stuck; else NaN.

    It is not the least, the largest or zero: these are limits, and what is absent. In columns of counts, ratings or
    rounded numbers others are repeated too; and a number that several columns repeat has a meaning.

    >>> x = np.random.default_rng(1).standard_normal((200, 2))
    >>> x[:20, 0], x[:, 1] = x[20, 0], np.round(x[:, 1])
    >>> (stuck_values(ObservedMatrix.from_dense(x)) == [x[20, 0], 0.0]).tolist()
    [True, False]
    """
    found = by_columns(M, _repeated_values)
    numbers, counts = np.unique(found, return_counts=True)
    return np.where(np.isin(found, numbers[counts == 1]), found, np.nan)


def _repeated_values(M: ObservedMatrix) -> Float:
    found = np.full(M.shape[1], np.nan)
    for j in np.flatnonzero(M.column_counts >= MEASURED):
        x = M.values[M.indptr[j] : M.indptr[j + 1]]
        numbers, counts = np.unique(x, return_counts=True)
        k = int(np.argmax(counts))
        others = x.size - counts[k]
        measured = numbers.size - 1 >= (1 - ROUND) * others and others > x.size / 2
        if measured and counts[k] >= max(STUCK, OFTEN * x.size) and 0 < k < numbers.size - 1 and numbers[k] != 0:
            found[j] = numbers[k]
    return found
