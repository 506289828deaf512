"""Times as people write them, ``2024-03-01 05:00``, ``01.03.2024``, ``3/1/2024 5:00 AM``, found among labels."""

from datetime import datetime
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ...support.optional import import_pyarrow
from .labels import Array, arrow_labels, short_repr

DATES = ["%Y-%m-%d", "%Y/%m/%d", "%Y-%m", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y"]
DATES += ["%d.%m.%y", "%d/%m/%y", "%m/%d/%y"]
CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
ISO = {"ISO 8601": None, "ISO 8601 with a zone": "UTC"}
FORMATS = (*ISO, *(date + clock for date in DATES for clock in CLOCKS))
SAMPLE = 100  # labels by which it is seen whether they are times

Stamps = NDArray[np.datetime64]


class TimesError(ValueError):
    """Labels of which most are times, and some cannot be read as such."""


def parse_times(labels: Array) -> Stamps | None:
    """Labels as times, in UTC if they have a zone; None if they are no times.

    Text is read in the one format that all of it has. A day and a month that could be either are told apart by the
    order of the times and by their steps; if both are in order, with equal steps, an error says so.

    >>> parse_times(np.array(["28.02.2024 05:00", "29.02.2024 05:00"], object)).astype("M8[h]").tolist()
    [datetime.datetime(2024, 2, 28, 5, 0), datetime.datetime(2024, 2, 29, 5, 0)]
    >>> parse_times(np.array(["ann", "bob"], object)) is None
    True
    """
    pyarrow, column = import_pyarrow(), arrow_labels(labels)
    types = pyarrow.types
    if types.is_timestamp(column.type) or types.is_date(column.type):
        found = column if types.is_timestamp(column.type) else column.cast(pyarrow.timestamp("s"))
        return _known(found.cast(pyarrow.timestamp(found.type.unit)))
    if not (types.is_string(column.type) or types.is_large_string(column.type)) or not len(column):
        return None
    cells = [str(label).strip() for label in labels]
    sample = cells[:: -(-len(cells) // SAMPLE)]
    if 2 * sum(any(_is_time(cell, pattern) for pattern in FORMATS) for cell in sample) <= len(sample):
        return None
    for pattern in ISO:
        if (stamps := _parse(cells, pattern)) is not None:
            return stamps
    parsed = [stamps for pattern in FORMATS if (stamps := _parse(cells, pattern)) is not None]
    return _likeliest(parsed, cells) if parsed else _fail_of_two_formats(cells, sample)


def _known(column: Any) -> Stamps | None:
    """Times of Arrow as nanoseconds; None if they are out of the range of these."""
    found = np.asarray(column.to_numpy(zero_copy_only=False))
    years = found.astype("M8[Y]").astype(np.int64) + 1970
    if np.isnat(found).any() or years.min(initial=2000) < 1678 or years.max(initial=2000) > 2261:
        return None
    return found.astype("M8[ns]")


def _parse(cells: list[str], pattern: str) -> Stamps | None:
    """Cells as times of a pattern of `strptime`, or of ISO 8601; None if one of them is not."""
    pyarrow = import_pyarrow()
    try:
        if pattern not in ISO:
            return np.array([datetime.strptime(cell, pattern) for cell in cells], "M8[us]").astype("M8[ns]")
        return _known(pyarrow.array(cells).cast(pyarrow.timestamp("ns", tz=ISO[pattern])).cast(pyarrow.timestamp("ns")))
    except ValueError:  # also Arrow's
        return None


def _is_time(cell: str, pattern: str) -> bool:
    return _parse([cell], pattern) is not None


def _fail_of_two_formats(cells: list[str], sample: list[str]) -> NoReturn:
    usual = max(FORMATS, key=lambda pattern: sum(_is_time(cell, pattern) for cell in sample))
    one, other = (next(cell for cell in cells if _is_time(cell, usual) is fits) for fits in (True, False))
    raise TimesError(f"the times are not all in one format: {short_repr(other)} cannot be read as {short_repr(one)} is")


def _likeliest(parsed: list[Stamps], cells: list[str]) -> Stamps:
    """Of several readings of the same cells the one in order, then the one with equal steps."""
    readings = list({stamps.tobytes(): stamps for stamps in parsed}.values())
    for test in (_ascending, _equal_steps):
        readings = [stamps for stamps in readings if test(stamps)] or readings
    if len(readings) > 1 and _ascending(readings[0]):
        raise TimesError(f"{short_repr(cells[0])} may be day and month or month and day: write times as 2024-12-31")
    return readings[0]


def _ascending(stamps: Stamps) -> bool:
    return bool((np.diff(stamps).astype(np.int64) > 0).all())


def _equal_steps(stamps: Stamps) -> bool:
    months = month_numbers(stamps)
    return any(len(np.unique(np.diff(steps))) <= 1 for steps in (stamps, months) if steps is not None)


def month_numbers(stamps: Stamps) -> NDArray[np.int64] | None:
    """The months of times, from the first one on, if all are at the same time of a month or on its last day; else None.

    >>> month_numbers(np.array(["2024-01-31", "2024-02-29", "2024-04-30"], "M8[ns]")).tolist()
    [0, 1, 3]
    """
    for shift in (np.timedelta64(0, "D"), np.timedelta64(1, "D")):
        months = (stamps + shift).astype("M8[M]")
        if len(np.unique(stamps + shift - months)) == 1:
            return np.asarray((months - months[0]).astype(np.int64))
    return None
