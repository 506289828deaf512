"""Time stamps of rows: found in a data frame, checked, and laid on a grid of equal steps, where some may be missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

OFF = 0.01  # of a step: largest distance of a stamp from the grid
LONGEST = 50  # moments of the grid for each row

Stamps = NDArray[np.datetime64]


def split_time(X: Any) -> tuple[Stamps | None, str | None, Any]:
    """The time stamps of a data frame in UTC, the name of the column they stand in, and the frame without it.

    They are the index of a pandas frame (no column then), or the first column if it holds times. Other containers have
    no stamps.
    """
    index = getattr(X, "index", None)
    if hasattr(index, "asi8") and hasattr(index, "tz"):
        return _of_index(index), None, X
    names = list(getattr(X, "columns", ()))
    if not names or not hasattr(X, "drop"):
        return None, None, X
    if hasattr(X, "iloc"):  # pandas
        first = X.iloc[:, 0]
        if getattr(first.dtype, "kind", "") != "M":
            return None, None, X
        return _of_index(first.array), names[0], X.iloc[:, 1:]
    first = X.get_columns()[0]  # polars
    if not first.dtype.is_temporal():
        return None, None, X
    return first.to_numpy().astype("datetime64[ns]"), names[0], X.drop(names[0])


def _of_index(index: Any) -> Stamps:
    """In UTC if there is a time zone, else as they are."""
    local = index.tz_convert("UTC").tz_localize(None) if getattr(index, "tz", None) is not None else index
    return np.asarray(local, dtype="datetime64[ns]")


@dataclass(frozen=True)
class Clock:
    """Moments start, start + step, ...; without stamps, 0, 1, ...

    >>> stamps = np.array(["2024-01-01T00", "2024-01-01T01", "2024-01-01T04"], "datetime64[ns]")
    >>> Clock.of(stamps).positions(stamps).tolist()
    [0, 1, 4]
    """

    start: np.datetime64
    step: np.timedelta64

    @classmethod
    def of(cls, stamps: Stamps) -> Clock:
        """The clock of these stamps: in order, none twice, multiples of the usual step apart."""
        check_order(stamps)
        steps, counts = np.unique(np.diff(stamps), return_counts=True)
        clock = cls(stamps[0], steps[np.argmax(counts)])
        clock.positions(stamps)
        return clock

    def positions(self, stamps: Stamps) -> NDArray[np.int64]:
        """The number of steps from the start to each stamp."""
        check_order(stamps)
        exact = (stamps - self.start) / self.step
        nearest = np.round(exact)
        off = np.flatnonzero(np.abs(exact - nearest) > OFF)
        if off.size:
            raise ValueError(
                f"the moments are not equally spaced: {stamps[off[0]]} is no multiple of the usual step, "
                f"{_shown(self.step)}, after {self.start}; resample them first, as by X.resample('1h').mean()"
            )
        if nearest.size and nearest[-1] - nearest[0] > LONGEST * nearest.size + 1000:
            raise ValueError(
                f"{nearest.size} rows in {nearest[-1] - nearest[0]:.0f} steps of {_shown(self.step)}: nearly all "
                "moments are missing; resample to a longer step first"
            )
        return nearest.astype(np.int64)

    def usual_periods(self) -> tuple[int, ...]:
        """The moments of a day and of a week, if they are whole numbers.

        >>> Clock(np.datetime64("2024-01-01", "ns"), np.timedelta64(5, "m")).usual_periods()
        (288, 2016)
        """
        lengths = (np.timedelta64(days, "D") / self.step for days in (1, 7))
        return tuple(int(length) for length in lengths if length == int(length) and length > 1)

    def time(self, positions: NDArray[Any]) -> Stamps:
        """The times of moments."""
        return np.asarray(self.start + self.step * positions)


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
    seconds = float(step / np.timedelta64(1, "s"))
    for size, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {name}"
    return f"{seconds:g} s"
