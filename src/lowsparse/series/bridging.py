"""Gaps bridged from both ends: the best linear prediction from a series' own readings near by, in time and in phase.

A series is g(t), a process with mean 0 and correlations r. A moment is predicted from its neighbours N, the nearest
readings before and after it and the nearest ones at the same phase of each period:

    ĝ(t) = bᵀ C⁻¹ g(N),   C = r between the neighbours (plus noise), b = r between t and them.

In a short gap that follows the readings at its ends; in a long one, where b is small, it tends to 0. The cost is linear
in the number of moments to be predicted. Neighbours are no farther than half of the largest lag of r: those before and
those after are then no farther apart than this lag, and C is a matrix of correlations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..sweeps import Float, native
from .correlation import autocorrelation, column_spreads, largest_lag
from .runs import Bool, Index, distinct

NEAREST = 3  # readings on each side; of the same phase, one on each side for each period
NOISE = 1e-2  # of a reading: variance relative to that of the series
CLIP = 8.0  # spreads of the series, at which a reading counts
BATCH = 20_000  # systems that are solved together


@dataclass(frozen=True)
class Bridge:
    """Correlations of some series, by which their gaps are bridged.

    >>> x = np.sin(np.arange(400) / 20)[:, None]
    >>> gappy = np.where(np.arange(400)[:, None] % 3 == 1, np.nan, x)
    >>> bridge = Bridge.fit(gappy, ())
    >>> bool(np.abs(bridge.fill(gappy) - x).max() < 0.05)
    True
    """

    correlations: Float  # lags x series
    spreads: Float  # of the series
    periods: tuple[int, ...]

    @classmethod
    def fit(cls, R: Float, periods: tuple[int, ...], pairs: Float | None = None, common: float = 0.0) -> Bridge:
        """Estimate the correlations of the columns of R; NaN is missing.

        The numbers of pairs of readings, by `count_pairs` up to the largest lag, are given if they are known. What R is
        left of has a mean taken off that a share `common` of the variance went with: r = common + (1 - common) r of R.
        """
        spreads = column_spreads(R)
        r = autocorrelation(R, largest_lag(len(R), periods), spreads, pairs)
        return cls(common + (1.0 - common) * r, spreads, periods)

    def predict(self, R: Float, gaps: Gaps) -> Float:
        """Predict R at the entries of gaps from their neighbours."""
        return self._weigh(R, gaps, self._weights(gaps))

    def predict_with_spreads(self, R: Float, gaps: Gaps) -> tuple[Float, Float]:
        """Predict R at the entries of gaps, and the spreads of the errors: the less, the more the neighbours say."""
        weights = self._weights(gaps)
        known = np.sum(weights * self._between(*_systems(gaps)), axis=1)[gaps.system]
        spreads = self.spreads[gaps.series] * np.sqrt(np.maximum(1.0 - known, 0.0))
        return self._weigh(R, gaps, weights), spreads

    def fill(self, R: Float) -> Float:
        """R with predictions where it is missing."""
        return next(self.fill_each([R]))

    def fill_each(self, tables: Iterable[Float]) -> Iterator[Float]:
        """Each of the tables with predictions where it is missing; those that miss the same have the same weights."""
        known: list[tuple[Bool, Gaps, Float]] = []
        for R in tables:
            missing = np.isnan(R)
            if not missing.any():
                yield R
                continue
            found = next((own for own in known if np.array_equal(own[0], missing)), None)
            if found is None:
                gaps = Gaps.of(~missing, missing, self.periods)
                found = missing, gaps, self._weights(gaps)
                known.append(found)
            filled = R.copy()
            filled[missing] = self._weigh(R, *found[1:])
            yield filled

    def _weigh(self, R: Float, gaps: Gaps, weights: Float) -> Float:
        """The weighted sum of the neighbours of each entry, with these weights of each system."""
        bounds = CLIP * self.spreads
        given = R, bounds, gaps.series, gaps.neighbours, gaps.system, weights
        return _weighted(*given) if native.reason_unavailable() else native.weigh(*given)

    def _weights(self, gaps: Gaps) -> Float:
        """Of the neighbours in each system of gaps."""
        systems = _systems(gaps)
        compiled = native.reason_unavailable() is None and gaps.neighbours.shape[1] <= native.MOST_NEIGHBOURS
        return native.bridge(self.correlations, *systems, NOISE) if compiled else self._solve(*systems)

    def _solve(self, moments: Index, series: Index, neighbours: NDArray[np.int32]) -> Float:
        """C⁻¹ b for each moment, as the compiled core; the weight of a neighbour that is not there (-1) is 0."""
        r, last = self.correlations, len(self.correlations) - 1
        weights = np.zeros(neighbours.shape)
        diagonal = np.arange(neighbours.shape[1])
        for first in range(0, len(weights), BATCH):
            some = slice(first, first + BATCH)
            t, j, found = moments[some], series[some], neighbours[some]
            there = found >= 0
            lag = np.abs(found[:, :, None] - found[:, None, :])
            C = np.where(lag <= last, r[np.minimum(lag, last), j[:, None, None]], 0.0)
            C *= there[:, :, None] & there[:, None, :]
            C[:, diagonal, diagonal] = 1.0 + NOISE
            b = self._between(t, j, found)
            weights[some] = np.linalg.solve(C, b[:, :, None])[:, :, 0]
        return weights

    def _between(self, moments: Index, series: Index, neighbours: NDArray[np.int32]) -> Float:
        """b: the correlations between each moment and its neighbours; 0 of one that is not there."""
        r, last = self.correlations, len(self.correlations) - 1
        lag = np.abs(neighbours - moments[:, None])
        return np.where((neighbours >= 0) & (lag <= last), r[np.minimum(lag, last), series[:, None]], 0.0)


def _systems(gaps: Gaps) -> tuple[Index, Index, NDArray[np.int32]]:
    """The moment, the series and the neighbours of each system of gaps."""
    return gaps.moments[gaps.systems], gaps.series[gaps.systems], gaps.neighbours[gaps.systems]


def _weighted(
    R: Float, bounds: Float, series: Index, neighbours: NDArray[np.int32], system: Index, weights: Float
) -> Float:
    """What the compiled core does."""
    values = np.where(np.isnan(R), 0.0, np.clip(R, -bounds, bounds))
    near = values[np.maximum(neighbours, 0), series[:, None]]
    return np.asarray(np.einsum("ij,ij->i", weights[system], near))


@dataclass(frozen=True)
class Gaps:
    """Entries to be predicted, in the order of `numpy.nonzero`, and the moments of their neighbours.

    Entries of a series whose neighbours are as far before and after have the same system to solve.
    """

    moments: Index
    series: Index
    neighbours: NDArray[np.int32]  # of each entry; -1 where there is none
    systems: Index  # for each system, an entry that has it
    system: Index  # of each entry

    @classmethod
    def of(cls, read: Bool, wanted: Bool, periods: tuple[int, ...]) -> Gaps:
        """The wanted entries, with neighbours among those that were read."""
        t, j = np.nonzero(wanted)
        found = _Neighbours(read, periods).of(t, j)
        found[np.abs(found - t[:, None]) > largest_lag(len(read), periods) // 2] = -1
        lags = np.where(found >= 0, found - t[:, None], 2 * len(read))
        return cls(t, j, found, *distinct(np.column_stack([j, lags]).astype(np.int32)))


class _Neighbours:
    """Finds the readings nearest to a moment, in time and in phase."""

    def __init__(self, read: Bool, periods: tuple[int, ...]) -> None:
        self.read = read
        self.up_to = np.cumsum(read, axis=0, dtype=np.intp)  # readings up to a moment, itself included
        self.moments = np.nonzero(read.T)[1].astype(np.int32)  # of all readings, by series
        self.first = np.concatenate([[0], np.cumsum(self.up_to[-1], dtype=np.int64)])
        self.phases = [(period, *_same_phase(read, period)) for period in periods if period < len(read)]

    def of(self, t: Index, j: Index) -> NDArray[np.int32]:
        """The moments of the neighbours of each (t, j), in columns; -1 where there is none, or it stands before."""
        found = []
        itself = self.read[t, j]
        for k in range(1, NEAREST + 1):
            found.append(self._reading(j, self.up_to[t, j] - itself - k))
            found.append(self._reading(j, self.up_to[t, j] + k - 1))
        for _period, before, after in self.phases:
            found += [before[t, j], after[t, j]]
        return _without_repeats(np.stack(found, axis=1).astype(np.int32))

    def _reading(self, j: Index, k: Index) -> Index:
        """The moment of the k-th reading of series j, -1 if there is none."""
        start = self.first[j]
        there = (k >= 0) & (k < self.first[j + 1] - start)
        if not self.moments.size:
            return np.full(len(j), -1)
        return np.where(there, self.moments[np.where(there, start + k, 0)], -1)


def _same_phase(read: Bool, period: int) -> tuple[Index, Index]:
    """For each entry, the moment of the nearest reading a whole number of periods before it, and after it; or -1."""
    T, n = read.shape
    cycles = -(-T // period)
    folded = np.zeros((cycles * period, n), bool)
    folded[:T] = read
    moment = np.arange(cycles * period, dtype=np.int32)[:, None]
    before = np.where(folded, moment, -1).reshape(cycles, period, n)
    after = np.where(folded, moment, 2 * moment[-1] + 2).reshape(cycles, period, n)
    edge = np.full((1, period, n), -1, np.int32)
    before = np.concatenate([edge, np.maximum.accumulate(before, axis=0)[:-1]])
    after = np.concatenate([np.minimum.accumulate(after[::-1], axis=0)[::-1][1:], 2 * moment[-1] + 2 + 0 * edge])
    after = np.where(after <= moment[-1], after, -1)
    return before.reshape(-1, n)[:T], after.reshape(-1, n)[:T]


def _without_repeats(found: NDArray[np.int32]) -> NDArray[np.int32]:
    """-1 in place of a neighbour that stands in an earlier column too."""
    order = np.argsort(found, axis=1, kind="stable")
    ordered = np.take_along_axis(found, order, axis=1)
    repeated = np.zeros(found.shape, bool)
    np.put_along_axis(repeated, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    return np.where(repeated, np.int32(-1), found)
