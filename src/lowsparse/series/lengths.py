"""How long gaps are, and weights by which gaps that were made are as long as those that are to be filled.

At the same distance from the next reading, errors are larger in a longer gap. What is kept aside beside what is missing
makes a longer gap, and a long run is seldom kept aside as a whole; so errors of what was kept aside are weighed, within
each class of entries, by how many of the entries to be filled are in gaps as long.
"""

from __future__ import annotations

import numpy as np

from ..sweeps import Float
from .runs import Bool, Index, Runs

STEPS = 2  # kinds of lengths to a factor of two
KINDS = 64
FEWEST = 30  # errors of a kind; those of fewer stand for nothing
LARGEST = 5.0  # weight


def gap_lengths(read: Bool, wanted: Bool) -> Index:
    """The number of moments of the gap that each wanted entry is in, in the order of `numpy.nonzero`.

    >>> read = np.array([[True], [False], [False], [True], [False]])
    >>> gap_lengths(read, ~read).tolist()
    [2, 2, 1]
    """
    gaps = Runs.of(~read)
    first = np.zeros(read.shape, np.intp)
    first[gaps.begin, gaps.series] = np.arange(len(gaps)) + 1
    gap = np.maximum.accumulate(first, axis=0)[wanted] - 1
    return np.asarray(gaps.lengths[gap])


def length_weights(classes: Index, lengths: Index, wanted_classes: Index, wanted_lengths: Index) -> Float:
    """Of errors of these classes in gaps of these lengths: by how often lengths are among the wanted ones of a class.

    A length of which there are few errors is counted with the nearest one of which there are enough. Without any wanted
    entry of a class, its errors weigh 1.

    >>> lengths = np.repeat([1, 8], [90, 30])
    >>> none = np.zeros(120, int)
    >>> length_weights(none, lengths, none[:60], np.repeat([1, 8], 30))[[0, -1]].round(2).tolist()
    [0.67, 2.0]
    """
    weights = np.ones(len(classes))
    kinds, wanted_kinds = _kinds(lengths), _kinds(wanted_lengths)
    for k in np.unique(classes):
        own, asked = classes == k, np.bincount(wanted_kinds[wanted_classes == k], minlength=KINDS)
        counts = np.bincount(kinds[own], minlength=KINDS)
        enough = np.flatnonzero(counts >= FEWEST)
        if not asked.any() or not enough.size:
            continue
        nearest = enough[np.argmin(np.abs(np.arange(KINDS)[:, None] - enough), axis=1)]
        share = np.bincount(nearest, asked, KINDS) / asked.sum()
        weights[own] = np.minimum(share * counts.sum() / np.maximum(counts, 1), LARGEST)[kinds[own]]
    return weights


def _kinds(lengths: Index) -> Index:
    """The kind of each length, on a logarithmic scale."""
    return np.minimum((STEPS * np.log2(np.maximum(lengths, 1))).astype(np.intp), KINDS - 1)
