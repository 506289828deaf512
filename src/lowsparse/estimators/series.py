"""RobustSeriesImputer: gaps and bad readings of many series at once, with bands of how far to trust each value."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from ..robust.calibration import Interval
from ..series.clock import Clock, Times, split_time
from ..series.files import fill_npy
from ..series.groups import SeriesModels
from ..series.model import Filled
from ..support.checks import check_choice, check_count, check_share
from ..support.optional import import_optional
from ..sweeps import Float
from .samples import SampleTransformer, to_dense, to_seed

LEAST = 2  # moments
CONTEXT, CONTEXT_PERIODS = 400, 4  # moments kept for rows that follow: at least, and in periods
GROWN = 0.1  # new moments, relative to those fitted, after which `partial_fit` fits anew
EDGE = 24  # moments before the first reading of a series, or after its last one, that are remarked upon
LISTED = 5  # names in a remark


class RobustSeriesImputer(SampleTransformer):
    """Fill the gaps of series, robustly to bad readings, which are listed by kind.

    Rows are moments in order, columns are series. Every gap is filled by a mixture of what the series' own readings
    beside it say, what the other series say at the moment, and what the shape of the day says
    (`lowsparse.series.model`). Periods, ranks and the weights of the mixture are found from the data: some readings
    are kept aside in runs as long as those that are missing.

    A pandas frame with a time index, or a pandas or polars frame whose first column holds times, is laid on a grid of
    equal steps; missing moments are allowed, and only the given rows are returned. Times with a zone are taken in UTC.
    Without times, rows are taken as equally spaced.

    Parameters
    ----------
    periods : "auto" or tuple of int
        Periods in moments, the shortest first: (24, 168) for hours with days and weeks, () for none. "auto" finds them.
    clean : bool
        Also replace the bad readings that are listed in `anomalies_`. Other readings are never changed.
    missing_values : number or NaN
        The placeholder of missing entries. None and pandas' NA are missing in any case.
    random_state : int, Generator, RandomState or None
        Chooses the readings that are kept aside. The same data and seed give the same bits.

    Attributes
    ----------
    model_ : lowsparse.series.groups.SeriesModels
        The fitted model; of more than 128 series, one for each group of series that go together.
    periods_ : tuple of int
        The periods, in moments.
    anomalies_ : pandas.DataFrame
        The bad readings of the rows that were fitted, in runs: series, begin, end (times, or numbers of rows), kind,
        observed and expected (medians of the run), and sure: the share of the errors of readings kept aside that are
        smaller than the distance of these from what is expected.
    notes_ : list of str
        Series that begin late, end early, are constant or have no reading: their own readings determine little there.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> from lowsparse import RobustSeriesImputer
    >>> t = np.arange(24 * 40)[:, None]
    >>> rng = np.random.default_rng(1)
    >>> truth = 50 + (10 + rng.random(6)) * np.sin(2 * np.pi * t / 24) + 3 * np.sin(t / 100 + rng.random(6))
    >>> X = truth + 0.1 * rng.standard_normal(truth.shape)
    >>> X[100:110, 2] = np.nan
    >>> X[500, 3] = 900.0
    >>> imputer = RobustSeriesImputer(clean=True)
    >>> filled = imputer.fit_transform(X)
    >>> bool(np.abs(filled - truth).max() < 1.0), imputer.periods_
    (True, (24,))
    >>> imputer.anomalies_[["series", "begin", "kind"]].values.tolist()
    [['x3', 500, 'spike']]
    """

    backend = "auto"
    absent = "missing"
    _clock: Clock | None
    _zoned: bool  # whether the times have a zone
    _local: np.datetime64 | None  # the first time as clocks on the wall show it
    _seen: Float  # the moments seen so far

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags

    def __init__(
        self,
        *,
        periods: str | tuple[int, ...] = "auto",
        clean: bool = False,
        missing_values: float = np.nan,
        random_state: Any = 0,
    ) -> None:
        self.periods = periods
        self.clean = clean
        self.missing_values = missing_values
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the model of series.

        Parameters
        ----------
        X : n_moments x n_series
            NumPy (NaN is missing), masked arrays, data frames with a time index or column, or without.
        y
            Not used.

        Returns
        -------
        RobustSeriesImputer
            Itself.
        """
        self._begin(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Learn the model of series, and fill their gaps.

        Parameters
        ----------
        X : n_moments x n_series
            As for `fit`.
        y
            Not used.

        Returns
        -------
        array or data frame
            As of `transform`.
        """
        rows, filled = self._begin(X)
        return self._give(X, self._kept(rows, filled))

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Go on with rows that follow those seen so far; the model is fitted anew when they are a tenth more.

        Parameters
        ----------
        X : n_moments x n_series
            As for `fit`; the first call is one of `fit`.
        y
            Not used.

        Returns
        -------
        RobustSeriesImputer
            Itself.

        Raises
        ------
        ValueError
            If the times of the rows are not after those seen so far.
        """
        if not hasattr(self, "model_"):
            return self.fit(X)
        samples, positions = self._samples(X, reset=False)
        if self._clock is None:
            positions = positions + len(self._seen)
        if positions[0] < len(self._seen):
            raise ValueError("partial_fit needs rows that follow those seen so far; fit takes all rows anew")
        grid = np.full((int(positions[-1]) + 1, samples.shape[1]), np.nan)
        grid[: len(self._seen)] = self._seen
        grid[positions] = samples
        if len(grid) - self._fitted >= GROWN * self._fitted:
            self._learn(grid)
        self._seen = grid
        return self

    def transform(self, X: Any) -> Any:
        """Fill the gaps of series; with `clean`, replace their bad readings too.

        Parameters
        ----------
        X : n_moments x n_series
            Rows that were fitted, or others. With times, rows that follow those seen so far are bridged from these.
            Without times, the first row is taken to be at the phase of a period at which the first row of `fit` was.

        Returns
        -------
        array or data frame
            The same rows and series, in the kind of container X is.
        """
        check_is_fitted(self)
        rows, filled, _ = self._fill(X)
        return self._give(X, self._kept(rows, filled))

    def predict(self, X: Any, interval: float | None = None) -> Any:
        """Fill the gaps of series, as `transform` does, with bands if asked for.

        The bands are calibrated on readings that were kept aside, by series and by the distance to the next reading.

        Parameters
        ----------
        X : n_moments x n_series
            As for `transform`.
        interval
            The probability with which bands are to hold the truth, between 0 and 1; None: no bands.

        Returns
        -------
        array, data frame or Interval
            As of `transform`; with `interval`, ``value``, ``lower`` and ``upper``, each in the kind of container X is.
        """
        if interval is None:
            return self.transform(X)
        check_is_fitted(self)
        check_share("interval", interval)
        rows, filled, widths = self._fill(X, interval)
        values = self._kept(rows, filled)
        width = np.where(values == rows, 0.0, widths)
        lower = np.where(np.isnan(values), values, np.maximum(values - width, self._least))
        return Interval(*(self._give(X, part) for part in (values, lower, values + width)))

    def fill_file(self, source: str | Path, target: str | Path, memory: int | str | None = None) -> Any:
        """Fill the series of an .npy file into another one, with little in memory.

        Groups of series that go together are read, fitted and written in turn, so that thousands of series need not fit
        into memory. Nothing is kept for `transform`.

        Parameters
        ----------
        source
            The file: moments x series as floats, NaN missing.
        target
            The file that is written, of the same shape and type.
        memory
            The limit of memory: bytes, or a text such as "2GB"; all there is if not given.

        Returns
        -------
        pandas.DataFrame
            The anomalies of the series.

        Examples
        --------
        >>> import tempfile
        >>> t = np.arange(24 * 20)[:, None]
        >>> X = np.sin(2 * np.pi * t / 24 + np.arange(5)) + 0.01 * np.random.default_rng(1).standard_normal((480, 5))
        >>> X[100:110, 2] = np.nan
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/given.npy", X)
        ...     anomalies = RobustSeriesImputer().fill_file(f"{folder}/given.npy", f"{folder}/filled.npy")
        ...     filled = np.load(f"{folder}/filled.npy")
        >>> len(anomalies), bool(np.abs(filled[100:110, 2] - np.sin(2 * np.pi * t[100:110, 0] / 24 + 2)).max() < 0.1)
        (0, True)
        """
        check_choice("clean", self.clean, (True, False))
        _, listed = fill_npy(
            Path(source),
            Path(target),
            periods=self._periods(),
            clean=bool(self.clean),
            random_state=to_seed(self.random_state),
            memory=memory,
        )
        names = [f"x{j}" for j in range(int(listed.series.max(initial=-1)) + 1)]
        return import_optional("pandas", "tables", "frames of anomalies").DataFrame(listed.columns(names))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The names of the series.

        Parameters
        ----------
        input_features
            The names, if they were not learnt from a data frame.

        Returns
        -------
        array of str
            One for each series.
        """
        check_is_fitted(self)
        return np.asarray(_check_feature_names_in(self, input_features), dtype=object)

    @property
    def anomalies_(self) -> Any:
        """The bad readings of the rows that were fitted, as a pandas frame."""
        check_is_fitted(self)
        return import_optional("pandas", "tables", "frames of anomalies").DataFrame(self._anomalies)

    def _begin(self, X: Any) -> tuple[Float, Filled]:
        """Fit; the rows as they were read, and filled."""
        check_choice("clean", self.clean, (True, False))
        self._clock = None
        samples, positions = self._samples(X, reset=True)
        grid = np.full((int(positions[-1]) + 1, samples.shape[1]), np.nan)
        grid[positions] = samples
        filled = self._learn(grid)
        self._seen = grid
        return samples, _rows(filled, positions)

    def _learn(self, grid: Float) -> Filled:
        """Fit the model to a grid of moments, and list its anomalies and notes."""
        readings = (~np.isnan(grid)).sum(axis=0)
        if not readings.any():
            raise ValueError("X has no reading: there is nothing to learn from")
        self._present = readings > 0
        names = self._names()
        self.notes_ = _notes(grid, names)
        for note in self.notes_:
            warnings.warn(f"RobustSeriesImputer: {note}", stacklevel=4)
        X = grid[:, self._present]
        usual = () if self._clock is None else self._clock.usual_periods()
        rest = None if self._clock is None else self._clock.days_of_rest(self._local)
        self.model_, filled, listed = SeriesModels.fit(X, self._periods(), to_seed(self.random_state), usual, rest)
        self.periods_ = self.model_.periods
        self._fitted = len(grid)
        self._least = np.where(self._present, -np.inf, 0.0)
        self._least[self._present] = self.model_.least
        times = None if self._clock is None else self._clock.time(np.arange(len(grid)))
        self._anomalies = listed.columns(names[self._present], times)
        return self._widen(filled)

    def _fill(self, X: Any, level: float | None = None) -> tuple[Float, Filled, Float]:
        """The rows as they were read, filled, and the half widths of their bands."""
        samples, positions = self._samples(X, reset=False)
        first = int(positions[0])
        after = self._clock is not None and first >= len(self._seen)
        context = max(CONTEXT, CONTEXT_PERIODS * max(self.periods_, default=0)) if after else 0
        begin = max(0, len(self._seen) - context) if after else first
        grid = np.full((int(positions[-1]) + 1 - begin, samples.shape[1]), np.nan)
        if after:
            grid[: len(self._seen) - begin] = self._seen[begin:]
        grid[positions - begin] = samples
        filled, _ = self.model_.fill(grid[:, self._present], begin)
        rows = positions - begin
        widths = np.zeros(samples.shape)
        if level is not None:
            widths[:, self._present] = self.model_.half_widths(filled, level)[rows]
        return samples, _rows(self._widen(filled), rows), widths

    def _widen(self, filled: Filled) -> Filled:
        """With the series that have no reading, as NaN."""
        shape = (len(filled.values), len(self._present))
        values, bad, classes = np.full(shape, np.nan), np.zeros(shape, bool), np.full(shape, -1, np.int8)
        values[:, self._present], bad[:, self._present] = filled.values, filled.bad
        classes[:, self._present] = filled.classes
        return Filled(values, bad, classes)

    def _kept(self, samples: Float, filled: Filled) -> Float:
        """The samples with predictions for missing entries, and with `clean` for anomalies."""
        replaced = np.isnan(samples) | (filled.bad & bool(self.clean))
        return np.where(replaced, filled.values, samples).astype(samples.dtype, copy=False)

    def _samples(self, X: Any, *, reset: bool) -> tuple[Float, NDArray[np.int64]]:
        """The readings, and the position of each row on the grid of moments."""
        times, _, frame = split_time(X)
        if sparse.issparse(X):
            raise TypeError("sparse input is not supported: give the series as an array, NaN where nothing was read")
        samples = to_dense(self._read(frame, reset=reset))
        if len(samples) < LEAST and reset:
            raise ValueError(f"n_samples = {len(samples)}: series need {LEAST} moments or more to learn from")
        if reset and times is not None:
            self._clock, self._zoned, self._local = Clock.of(times.stamps), times.zoned, times.local
        if (times is None) != (self._clock is None):
            raise ValueError("either all data have times, in the index or in the first column, or none")
        return samples, np.arange(len(samples)) if times is None else self._positions(times)

    def _positions(self, times: Times) -> NDArray[np.int64]:
        """On the grid of the moments that were fitted."""
        assert self._clock is not None
        if times.zoned != self._zoned:
            raise ValueError("either all times have a zone or none: see tz_localize and tz_convert of pandas")
        positions = self._clock.positions(times.stamps)
        if positions[0] < 0:
            raise ValueError(f"{times.stamps[0]} is before the first moment that was fitted, {self._clock.start}")
        return positions

    def _periods(self) -> tuple[int, ...] | None:
        if isinstance(self.periods, str):
            check_choice("periods", self.periods, ("auto",))
            return None
        if not isinstance(self.periods, Iterable):
            raise TypeError(f"periods must be 'auto' or some whole numbers, as in (24, 168), not {self.periods!r}")
        return tuple(sorted(check_count("a period", period, 2) for period in self.periods))

    def _names(self) -> NDArray[Any]:
        return np.asarray(_check_feature_names_in(self), dtype=object)

    def _give(self, X: Any, values: Float) -> Any:
        """The values in the kind of container X is, with its times."""
        _, name, frame = split_time(X)
        made = self._rewrap(values, frame)
        if name is None or made is values:
            return made
        if hasattr(made, "insert") and hasattr(made, "iloc"):
            made.insert(0, name, X.iloc[:, 0])
            return made
        return X.select(name).hstack(made)


def _rows(filled: Filled, rows: NDArray[np.int64]) -> Filled:
    return Filled(filled.values[rows], filled.bad[rows], filled.classes[rows])


def _notes(grid: Float, names: NDArray[Any]) -> list[str]:
    """What a user should know of series that begin late, end early, are constant or have no reading."""
    read = ~np.isnan(grid)
    some = read.any(axis=0)
    late = some & (np.argmax(read, axis=0) >= EDGE)
    early = some & (np.argmax(read[::-1], axis=0) >= EDGE)
    said = {
        "no reading, and stay empty": ~some,
        "one value, and gaps are filled with it": some & (np.fmin.reduce(grid) == np.fmax.reduce(grid)),
        "no reading at the beginning: filled there by what other series and the period determine, no more": late,
        "no reading at the end: filled there by what other series and the period determine, no more": early & ~late,
    }
    return [f"{_listed(names[which])} have {what}" for what, which in said.items() if which.any()]


def _listed(names: NDArray[Any]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"series {', '.join(map(str, names[:LISTED]))}{more}"
