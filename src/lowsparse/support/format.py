"""Numbers, counts, percentages, durations and lists as short text."""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

NOT_FINITE = "–"


def format_number(value: float) -> str:
    """A number with about three significant digits.

    >>> [format_number(x) for x in (0, 0.1234, 1234567, 2.5e-7, 1e13)]
    ['0', '0.123', '1,234,567', '2.5e-7', '1e13']
    """
    size = abs(value)
    if not math.isfinite(value):
        return NOT_FINITE
    if size and not 1e-3 <= size < 1e12:
        digits, power = f"{value:.3g}".partition("e")[::2]
        return f"{digits}e{int(power)}" if power else digits
    return f"{value:,.0f}" if size >= 1000 else f"{value:.3g}"


def pluralize(count: int, noun: str, plural: str = "") -> str:
    """A count and its noun; the plural defaults to the noun with an s.

    >>> pluralize(1, "row"), pluralize(1200, "row"), pluralize(0, "entry", "entries")
    ('1 row', '1,200 rows', '0 entries')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def percent(fraction: float) -> str:
    """A fraction as a percentage.

    >>> percent(0.125), percent(1 / 3)
    ('12.5 %', '33.3 %')
    """
    return f"{format_number(100 * fraction)} %"


def duration(seconds: float) -> str:
    """A time with two significant digits, or in its two largest units.

    >>> [duration(s) for s in (0.0004, 0.0123, 0.25, 3.456, 56, 185, 4800, 200_000)]
    ['0.4 ms', '12 ms', '250 ms', '3.5 s', '56 s', '3 min 5 s', '1 h 20 min', '2 d 7 h']
    """
    if not math.isfinite(seconds):
        return NOT_FINITE
    rounded, total = float(f"{seconds:.2g}"), round(seconds)
    if rounded < 60:
        return f"{1000 * rounded:g} ms" if rounded < 1 else f"{rounded:g} s"
    units = ((86400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s"))
    size, small_size, name, small_name = next(unit for unit in units if total >= unit[0])
    return f"{total // size} {name} {total % size // small_size} {small_name}"


def join_words(words: Iterable[str]) -> str:
    """A list in a sentence.

    >>> join_words(["one", "two", "three"])
    'one, two and three'
    """
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def join_ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers in a sentence, three or more consecutive ones as a range.

    >>> join_ranges([1, 2, 3, 5, 7, 8])
    '1 to 3, 5, 7 and 8'
    """
    parts: list[str] = []
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [str(number) for _, number in group]
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else run
    return join_words(parts) if parts else ""
