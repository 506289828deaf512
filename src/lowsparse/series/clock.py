"""Time stamps of rows: found in a data frame, checked, and laid on a grid of equal steps, where some may be missing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..support.optional import import_optional
from .runs import Bool

TEXT = re.compile(r"\d{4}-\d\d?(-\d\d?)?([T ]|$)")  # the begin of a time
OFF = 0.01  # of a step: largest distance of a stamp from the grid
LONGEST = 50  # moments of the grid for each row
WEEK, SATURDAY, EPOCH = 7, 5, 3  # days of a week; weekdays, from Monday on, of its first day of rest and of 1970-01-01
FARTHEST = 2**63 // 10**9 - 1  # seconds from 1970, that can be counted in ns

Stamps = NDArray[np.datetime64]


class Times(NamedTuple):
    """Time stamps, in UTC if they have a zone."""

    stamps: Stamps
    zoned: bool
    local: np.datetime64 | None = None  # the first one as clocks on the wall show it; not of durations


def split_time(X: Any) -> tuple[Times | None, str | None, Any]:
    """The time stamps of a data frame in UTC, the name of the column they stand in, and the frame without it.

    They are the index of a pandas frame (no column then), or the first column if it holds times. Durations are counted
    from 1970 on. Other containers have no stamps.
    """
    index = getattr(X, "index", None)
    times = None if index is None or callable(index) else _of_labels(index)
    if times is not None:
        return times, None, X
    names = list(getattr(X, "columns", ()))
    if not names or not hasattr(X, "drop"):
        return None, None, X
    if hasattr(X, "iloc"):  # pandas
        first = X.iloc[:, 0]
        if getattr(first.dtype, "kind", "") != "M":
            return None, None, X
        return _of_index(first.array), names[0], X.iloc[:, 1:]
    first = X.get_columns()[0]  # polars
    if first.dtype.base_type().__name__ not in ("Date", "Datetime", "Duration"):
        return None, None, X
    zoned = getattr(first.dtype, "time_zone", None) is not None
    shown = first.dt.replace_time_zone(None) if zoned else first
    return _times(first.to_numpy(), shown.to_numpy(), zoned), names[0], X.drop(names[0])


def _of_labels(index: Any) -> Times | None:
    """The times of a pandas index: times, periods, durations, dates as objects, or text such as 2024-01-31; or None."""
    if getattr(index, "nlevels", 1) > 1:
        if any(getattr(level.dtype, "kind", "") == "M" for level in index.levels):
            raise ValueError(
                "the index has times and more levels: give one row for each moment and one column for each series, "
                "as by X.unstack()"
            )
        return None
    if hasattr(index, "asi8"):
        periods = hasattr(index, "to_timestamp") and not hasattr(index, "tz")
        return _of_index(index.to_timestamp() if periods else index)
    first = index[0] if len(index) else None
    text = isinstance(first, str) and TEXT.match(first) is not None
    if not text and not isinstance(first, date):
        _refuse_later_times(index, first)
        return None
    pandas = import_optional("pandas", "tables", "times of rows")
    try:
        return _of_index(pandas.to_datetime(index, format="ISO8601" if text else None))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"the index begins with a time, {first}, and the rest is not: {str(error).splitlines()[0]}"
        ) from error


def _refuse_later_times(index: Any, first: Any) -> None:
    """Raise a ValueError if the first label is text that is not read as a time, and another one is."""
    if not isinstance(first, str):
        return
    time = next((label for label in index if isinstance(label, str) and TEXT.match(label)), None)
    if time is not None:
        raise ValueError(
            f"the index has times such as {time}, but {first} is not read as one: write all in one format, as by "
            "pandas.to_datetime, or give X.to_numpy() to take the rows as equally spaced"
        )


def _of_index(index: Any) -> Times:
    """In UTC if there is a time zone, else as they are."""
    zoned = getattr(index, "tz", None) is not None
    shown = index.tz_localize(None) if zoned else index
    return _times(np.asarray(index.tz_convert("UTC").tz_localize(None) if zoned else index), np.asarray(shown), zoned)


def _times(times: NDArray[Any], shown: NDArray[Any], zoned: bool) -> Times:
    """Times, or durations, of any unit, in UTC if there is a zone, and as clocks on the wall show them."""
    local = _nanoseconds(shown[:1])[0] if shown.dtype.kind == "M" and len(shown) else None
    return Times(_nanoseconds(times), zoned, local)


def _nanoseconds(times: NDArray[Any]) -> Stamps:
    """Times, or durations from 1970 on, of any unit."""
    if times.dtype.kind == "m":
        return np.asarray(np.datetime64(0, "ns") + times.astype("timedelta64[ns]"))
    seconds = times[~np.isnat(times)].astype("datetime64[s]")
    beyond = seconds[np.abs(seconds.astype(np.int64)) > FARTHEST]
    if beyond.size:
        raise ValueError(f"the time {beyond[0]} is not between the years 1678 and 2262, which can be counted in ns")
    return times.astype("datetime64[ns]")


@dataclass(frozen=True)
class Clock:
    """Moments start, start + step, ...; without stamps, 0, 1, ...

    Months, quarters and years are equal steps too: then the unit of start and step is a month.

    >>> stamps = np.array(["2024-01-01T00", "2024-01-01T01", "2024-01-01T04"], "datetime64[ns]")
    >>> Clock.of(stamps).positions(stamps).tolist()
    [0, 1, 4]
    >>> stamps = np.array(["2024-01-31", "2024-02-29", "2024-04-30"], "datetime64[ns]")
    >>> Clock.of(stamps).positions(stamps).tolist()
    [0, 1, 3]
    """

    start: np.datetime64
    step: np.timedelta64

    @classmethod
    def of(cls, stamps: Stamps) -> Clock:
        """The clock of these stamps: in order, none twice, multiples of the usual step apart."""
        check_order(stamps)
        units = _months(stamps)
        units = stamps if units is None else units
        steps, counts = np.unique(np.diff(units), return_counts=True)
        clock = cls(units[0], steps[np.argmax(counts)])
        clock.positions(stamps)
        return clock

    def positions(self, stamps: Stamps) -> NDArray[np.int64]:
        """The number of steps from the start to each stamp."""
        check_order(stamps)
        if self._in_months:
            if len(stamps) > 1 and _months(stamps) is None:
                raise ValueError(f"the moments that were fitted are {_shown(self.step)} apart, these are not")
            stamps = stamps.astype("datetime64[M]")
        exact = (stamps - self.start) / self.step
        nearest = np.round(exact)
        off = np.flatnonzero(np.abs(exact - nearest) > OFF)
        if off.size:
            raise ValueError(
                f"the moments are not equally spaced: {stamps[off[0]]} is no multiple of the usual step, "
                f"{_shown(self.step)}, after {self.start}; resample them first, as by X.resample('1h').mean(), or give "
                "X.to_numpy() to take the rows as equally spaced"
            )
        if nearest.size and nearest[-1] - nearest[0] > LONGEST * nearest.size + 1000:
            raise ValueError(
                f"{nearest.size} rows in {nearest[-1] - nearest[0]:.0f} steps of {_shown(self.step)}: nearly all "
                "moments are missing; resample to a longer step first"
            )
        return nearest.astype(np.int64)

    def usual_periods(self) -> tuple[int, ...]:
        """The moments of a day and of a week, or of a year of months, if they are whole numbers.

        >>> Clock(np.datetime64("2024-01-01", "ns"), np.timedelta64(5, "m")).usual_periods()
        (288, 2016)
        """
        usual = [np.timedelta64(12, "M")] if self._in_months else [np.timedelta64(1, "D"), np.timedelta64(7, "D")]
        lengths = (length / self.step for length in usual)
        return tuple(int(length) for length in lengths if length == int(length) and length > 1)

    def days_of_rest(self, local: np.datetime64 | None) -> Bool | None:
        """Whether each moment of a week is on a Saturday or a Sunday, if clocks on the wall show `local` at the start.

        None if they are not known, or a day is no whole number of moments.

        >>> clock = Clock(np.datetime64("2024-01-01", "ns"), np.timedelta64(12, "h"))  # a Monday
        >>> np.flatnonzero(clock.days_of_rest(np.datetime64("2024-01-01T08"))).tolist()
        [10, 11, 12, 13]
        """
        periods = self.usual_periods()
        if local is None or len(periods) < 2:
            return None
        days = (local + self.step * np.arange(periods[1])).astype("datetime64[D]").astype(np.int64)
        return np.asarray((days + EPOCH) % WEEK >= SATURDAY)

    def time(self, positions: NDArray[Any]) -> Stamps:
        """The times of moments."""
        return np.asarray(self.start + self.step * positions).astype("datetime64[ns]")

    @property
    def _in_months(self) -> bool:
        return bool(np.datetime_data(self.step)[0] == "M")


def _months(stamps: Stamps) -> Stamps | None:
    """The month of each stamp, if all are as far from the begins, or from the ends, of different months."""
    months = stamps.astype("datetime64[M]")
    if len(stamps) < 2 or (np.diff(months).astype(np.int64) < 1).any():
        return None
    after, before = stamps - months, months + 1 - stamps
    return months if (after == after[0]).all() or (before == before[0]).all() else None


def check_order(stamps: Stamps) -> None:
    """Raise a ValueError with advice unless there are two stamps or more, in ascending order, each once."""
    if np.isnat(stamps).any():
        raise ValueError(f"row {int(np.argmax(np.isnat(stamps)))} has no time: drop such rows first")
    steps = np.diff(stamps).astype(np.int64)
    if (steps < 0).any():
        k = int(np.argmax(steps < 0)) + 1
        raise ValueError(f"the rows are not in order of time (row {k}, {stamps[k]}): sort them first, X.sort_index()")
    if (steps == 0).any():
        k = int(np.argmax(steps == 0))
        raise ValueError(
            f"the time {stamps[k]} stands twice (rows {k} and {k + 1}): merge such rows, X.groupby(level=0).mean(); "
            "if it is the hour that comes twice when clocks go back, give times in UTC or with their zone"
        )


def _shown(step: np.timedelta64) -> str:
    if np.datetime_data(step)[0] == "M":
        return f"{step.astype(np.int64)} months"
    seconds = float(step / np.timedelta64(1, "s"))
    for size, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {name}"
    return f"{seconds:g} s"
