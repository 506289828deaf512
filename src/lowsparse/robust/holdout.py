"""Entries that are held out of a fit: chosen at random, and compared with what is predicted there."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..linalg.lowrank import LowRank
from ..linalg.scale import OUTLIER, robust_scale
from ..sweeps import Float


@dataclass(frozen=True)
class Holdout:
    """A matrix without some of its entries, and those entries.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 50, rank=2, density=0.7, outliers=0.05, random_state=1)
    >>> split = ls.holdout(problem.M, 0.1, random_state=5)
    >>> split.error(ls.solve(split.M, rank=2).L) < 0.1 < split.error(ls.solve(split.M, rank=1).L)
    True
    """

    M: ObservedMatrix  # the other entries
    rows: NDArray[np.int32]  # of the held-out entries
    columns: NDArray[np.int32]
    values: NDArray[np.floating[Any]]
    bound: float  # an error counts up to this: four times the robust scale of the data

    def residual(self, L: LowRank) -> Float:
        """L - M at the held-out entries.

        Parameters
        ----------
        L
            A low-rank matrix of the shape of `M`.

        Returns
        -------
        array
            One number for each held-out entry.
        """
        return np.asarray(L.at(self.rows, self.columns) - self.values, dtype=np.float64)

    def bounded(self, L: LowRank) -> Float:
        """The absolute errors at the held-out entries, clipped to `bound`.

        Parameters
        ----------
        L
            A low-rank matrix of the shape of `M`.

        Returns
        -------
        array
            One number for each held-out entry.
        """
        return clip_errors(self.residual(L), self.bound)

    def error(self, L: LowRank) -> float:
        """The mean of `bounded`.

        Parameters
        ----------
        L
            A low-rank matrix of the shape of `M`.

        Returns
        -------
        float
            Infinite if nothing was held out.

        Examples
        --------
        >>> import lowsparse as ls
        >>> problem = ls.datasets.synthetic(60, 50, rank=2, density=0.8, outliers=0.1, random_state=1)
        >>> split = ls.holdout(problem.M, 0.1)
        >>> fit = ls.solve(split.M, rank=2)
        >>> split.error(fit.L) < split.error(ls.solve(split.M, rank=1).L)
        True
        """
        return float(np.mean(self.bounded(L))) if self.values.size else math.inf


def hold_out(M: ObservedMatrix, fraction: float, rng: np.random.Generator) -> Holdout:
    """Hold out a random share of the entries; every row and column with entries keeps one of them."""
    return split_off(M, removable(M, rng)[: round(fraction * M.nnz)])


def removable(M: ObservedMatrix, rng: np.random.Generator) -> NDArray[np.intp]:
    """The entries that may be held out, in random order: all but the first one of each row and column."""
    order = rng.permutation(M.nnz)
    free = np.ones(M.nnz, bool)
    for line in (M.rows, M.columns_of_entries()):
        free[np.unique(line[order], return_index=True)[1]] = False
    return order[free]


def split_off(M: ObservedMatrix, entries: NDArray[np.intp]) -> Holdout:
    """Hold out these entries."""
    entries = np.sort(entries)
    rest, held = M.split(entries)
    return Holdout(rest, held.rows, held.columns, M.values[entries], error_bound(M.values))


def error_bound(values: NDArray[np.floating[Any]]) -> float:
    """The bound of an error: four times the robust scale of the data about their median.

    >>> round(error_bound(np.array([1.0, 2.0, 3.0, 1000.0])), 3)
    5.93
    """
    x = values.astype(np.float64)
    return OUTLIER * robust_scale(x - np.median(x)) or float(np.max(np.abs(x))) or 1.0


def clip_errors(e: Float, bound: float) -> Float:
    """|e|, clipped to the bound."""
    return np.minimum(np.abs(e), bound)
