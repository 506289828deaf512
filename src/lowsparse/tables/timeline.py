"""The times of the rows of a table: checked, and laid on a grid of equal steps or of months."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..entries.files.labels import Array, short_repr
from ..entries.files.times import Stamps, TimesError, month_numbers, parse_times
from ..series.clock import Clock
from ..support.format import pluralize

LEAST = 2  # rows
UNITS = (("week", 604_800.0), ("day", 86_400.0), ("hour", 3600.0), ("minute", 60.0), ("second", 1.0))


@dataclass(frozen=True)
class Timeline:
    """Times in order, each once, in steps of equal length or of months.

    >>> times = Timeline.of(np.array(["2024-01-01", "2024-01-02", "2024-01-04"], object))
    >>> times.positions.tolist(), times.span(1), times.span(7)
    ([0, 1, 3], '1 day', '1 week')
    """

    stamps: Stamps
    positions: NDArray[np.int64]  # of the rows on the grid
    step: np.timedelta64 | int  # an int is a number of months

    @classmethod
    def of(cls, labels: Array) -> Self | None:
        """The timeline of labels; None if they are no times. A `TimesError` says what is wrong with them."""
        stamps = parse_times(labels)
        if stamps is None:
            return None
        if len(stamps) < LEAST:
            raise TimesError(f"there is one row, of {short_repr(labels[0])}: series need {LEAST} or more")
        steps = np.diff(stamps).astype(np.int64)
        if (steps < 0).any():
            k = int(np.argmax(steps < 0))
            raise TimesError(
                f"not in order of time: {short_repr(labels[k + 1])} after {short_repr(labels[k])}; sort it"
            )
        if (steps == 0).any():
            k = int(np.argmax(steps == 0))
            raise TimesError(
                f"the time {short_repr(labels[k])} stands twice: merge such rows; if it is the hour that comes twice "
                "when clocks go back, write times in UTC or with their zone"
            )
        months = month_numbers(stamps)
        if months is not None:
            step = int(np.gcd.reduce(months))
            return cls(stamps, months // step, step)
        try:
            clock = Clock.of(stamps)
        except ValueError as error:
            raise TimesError(str(error)) from error
        return cls(stamps, clock.positions(stamps), clock.step)

    def span(self, moments: int) -> str:
        """The length of some steps, in words."""
        if isinstance(self.step, int):
            return pluralize(moments * self.step, "month")
        seconds = moments * float(self.step / np.timedelta64(1, "s"))
        name, size = next((unit for unit in UNITS if seconds % unit[1] == 0), UNITS[-1])
        return f"{seconds / size:g} {name}{'' if seconds == size else 's'}"
