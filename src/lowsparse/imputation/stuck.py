"""Numbers at which an instrument was stuck: one is repeated in a column though hardly any other is."""

import numpy as np

from ..entries.observed import ObservedMatrix
from ..entries.protocol import PartialMatrix
from ..entries.statistics import by_columns
from ..sweeps import Float

STUCK, OFTEN = 5, 0.03  # least number of times that a stuck value occurs, and their share in the column
MEASURED = 30  # least number of entries of a column in which stuck values are looked for
ROUND = 0.05  # share of repeated numbers among the others, from which on numbers are round


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
