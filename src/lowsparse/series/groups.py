"""Many series: groups of series that go together, each with a model of its own; cost and memory are linear in the data.

Groups are found by bisection: the series are divided at the median of their loadings on the component that most of
their variance is along, and each half again, until a group is small enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from ..support.threads import one_blas_thread
from ..sweeps import Float, native
from .anomalies import Anomalies, find_anomalies
from .correlation import column_medians, column_scales
from .model import Filled, SeriesModel
from .periods import find_periods
from .runs import Bool, Index

MOST = 128  # series of a group
ENTRIES, LEAST = 4_000_000, 16  # of a group; with more it has fewer series, but so many at least
MOMENTS = 2000  # of the sample by which groups are found
SERIES, SAMPLE, FEWEST = 200, 2_000_000, 8  # by which periods are found: at most, in entries, but so many at least
CLIP = 3.0  # scales, at which a reading counts

T = TypeVar("T")


@dataclass(frozen=True)
class SeriesModels:
    """The models of groups of series."""

    groups: tuple[Index, ...]
    models: tuple[SeriesModel, ...]

    @classmethod
    def fit(
        cls,
        X: Float,
        periods: tuple[int, ...] | None = None,
        random_state: int | np.random.Generator | None = 0,
        usual: tuple[int, ...] = (),
        rest: Bool | None = None,
    ) -> tuple[Self, Filled, Anomalies]:
        """Fit series X as `SeriesModel.fit` does; the models, X filled, its bad readings those in anomalies, and these.

        Periods are found if they are not given; the usual ones, a day and a week, are preferred to those near them.
        """
        chosen = sampled_periods(X, usual) if periods is None else periods

        def fit(group: Index, seed: int) -> tuple[SeriesModel, tuple[Filled, Anomalies]]:
            own = np.ascontiguousarray(X[:, group])
            model, good = SeriesModel.fit(own, chosen, seed, rest)
            return model, _with_anomalies(model, own, model.fill(own, good=good))

        groups = find_groups(X)
        fitted = for_each(fit, groups, random_state)
        return cls(groups, tuple(model for model, _ in fitted)), *_joined(groups, [own for _, own in fitted], X.shape)

    @property
    def periods(self) -> tuple[int, ...]:
        """Of all series."""
        return self.models[0].periods

    @property
    def least(self) -> Float:
        """Of each series: 0 if its readings are not negative, else minus infinity."""
        found = np.zeros(sum(map(len, self.groups)))
        for group, model in zip(self.groups, self.models, strict=True):
            found[group] = model.least
        return found

    def fill(self, X: Float, first: int = 0) -> tuple[Filled, Anomalies]:
        """X filled, which begins `first` moments after the data that were fitted, and its anomalies."""
        found = [
            _with_anomalies(model, X[:, group], model.fill(X[:, group], first))
            for group, model in zip(self.groups, self.models, strict=True)
        ]
        return _joined(self.groups, found, X.shape)

    def half_widths(self, filled: Filled, level: float) -> Float:
        """Of a band about each filled value that holds the truth with this probability; 0 at good readings."""
        widths = np.zeros(filled.values.shape)
        for group, model in zip(self.groups, self.models, strict=True):
            widths[:, group] = model.half_widths(filled.classes[:, group], level)
        return widths


def for_each(
    work: Callable[[Index, int], T], groups: Sequence[Index], random_state: int | np.random.Generator | None
) -> list[T]:
    """What becomes of each group with a seed of its own, in threads; the same with any number of them."""
    seeds = np.random.default_rng(random_state).integers(2**62, size=len(groups)).tolist()
    if len(groups) == 1:
        return [work(groups[0], seeds[0])]
    with ThreadPoolExecutor(min(native.num_threads(), len(groups))) as threads:
        return list(threads.map(work, groups, seeds))


def sampled_periods(X: NDArray[np.floating], usual: tuple[int, ...] = ()) -> tuple[int, ...]:
    """The periods of some of the series."""
    series = max(FEWEST, min(SERIES, SAMPLE // len(X)))
    return find_periods(_scaled(X[:, :: -(-X.shape[1] // series)]), usual)


def find_groups(X: NDArray[np.floating]) -> tuple[Index, ...]:
    """The series of each group; one group if there are few.

    >>> rng = np.random.default_rng(1)
    >>> X = rng.standard_normal((300, 2))[:, np.arange(200) % 2] + 0.1 * rng.standard_normal((300, 200))
    >>> [sorted(set((group % 2).tolist())) for group in find_groups(X)]
    [[0], [1]]
    """
    moments, n = X.shape
    most = min(MOST, max(LEAST, ENTRIES // moments))
    if n <= most:
        return (np.arange(n),)
    Z = np.nan_to_num(np.clip(_scaled(X[:: -(-moments // MOMENTS)]), -CLIP, CLIP))
    with one_blas_thread:  # with more, the last digits would depend on their number
        found = _bisect(Z, np.arange(n), most)
    return tuple(sorted((np.sort(group) for group in found), key=lambda group: int(group[0])))


def _bisect(Z: Float, series: Index, most: int) -> list[Index]:
    if len(series) <= most:
        return [series]
    own = Z[:, series]
    own = own - own.mean(axis=1, keepdims=True)  # what all have in common divides none
    wide = own.shape[1] > own.shape[0]
    gram = own @ own.T if wide else own.T @ own
    largest = eigh(gram, subset_by_index=[len(gram) - 1] * 2)[1][:, 0]
    order = series[np.argsort(largest @ own if wide else largest, kind="stable")]
    return _bisect(Z, order[: len(order) // 2], most) + _bisect(Z, order[len(order) // 2 :], most)


def _scaled(X: NDArray[np.floating]) -> Float:
    numbers = X.astype(np.float64)
    apart = numbers - column_medians(numbers)
    return np.asarray(apart / column_scales(apart))


def _with_anomalies(model: SeriesModel, X: Float, filled: Filled) -> tuple[Filled, Anomalies]:
    listed, bad = find_anomalies(model, X, filled)
    return Filled(filled.values, bad, filled.classes), listed


def _joined(
    groups: tuple[Index, ...], found: list[tuple[Filled, Anomalies]], shape: tuple[int, ...]
) -> tuple[Filled, Anomalies]:
    """The results of groups as those of all series, anomalies by series and time."""
    whole = Filled(np.empty(shape), np.empty(shape, bool), np.empty(shape, np.int8))
    for group, (filled, _) in zip(groups, found, strict=True):
        whole.values[:, group], whole.bad[:, group] = filled.values, filled.bad
        whole.classes[:, group] = filled.classes
    return whole, join_anomalies(groups, [listed for _, listed in found])


def join_anomalies(groups: tuple[Index, ...], found: list[Anomalies]) -> Anomalies:
    """The anomalies of groups of series as those of all, by series and time."""
    columns = {field.name: np.concatenate([getattr(own, field.name) for own in found]) for field in fields(Anomalies)}
    columns["series"] = np.concatenate([group[own.series] for group, own in zip(groups, found, strict=True)])
    order = np.lexsort((columns["begin"], columns["series"]))
    return Anomalies(**{name: column[order] for name, column in columns.items()})
