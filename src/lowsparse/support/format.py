"""Numbers, shares and times as people write them."""

from __future__ import annotations

import math

__all__ = ["counted", "duration", "number", "percent"]

NONE = "–"  # what is not finite


def number(value: float) -> str:
    """A number with three or so digits.

    >>> [number(x) for x in (0, 0.1234, 1234567, 2.5e-7, 1e13)]
    ['0', '0.123', '1,234,567', '2.5e-7', '1e13']
    """
    size = abs(value)
    if not math.isfinite(value):
        return NONE
    if size and not 1e-3 <= size < 1e12:
        digits, power = f"{value:.3g}".partition("e")[::2]
        return f"{digits}e{int(power)}" if power else digits
    return f"{value:,.0f}" if size >= 1000 else f"{value:.3g}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """So many of something; its plural ends in s if none is given.

    >>> counted(1, "row"), counted(1200, "row"), counted(0, "entry", "entries")
    ('1 row', '1,200 rows', '0 entries')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def percent(share: float) -> str:
    """A share in per cent.

    >>> percent(0.125), percent(1 / 3)
    ('12.5 %', '33.3 %')
    """
    return f"{number(100 * share)} %"


def duration(seconds: float) -> str:
    """A time with two digits, or in the two largest units that it has.

    >>> [duration(s) for s in (0.0004, 0.0123, 0.25, 3.456, 56, 185, 4800, 200_000)]
    ['0.4 ms', '12 ms', '250 ms', '3.5 s', '56 s', '3 min 5 s', '1 h 20 min', '2 d 7 h']
    """
    if not math.isfinite(seconds):
        return NONE
    short, whole = float(f"{seconds:.2g}"), round(seconds)
    if short < 60:
        return f"{1000 * short:g} ms" if short < 1 else f"{short:g} s"
    units = ((86400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s"))
    size, below, name, small = next(unit for unit in units if whole >= unit[0])
    return f"{whole // size} {name} {whole % size // below} {small}"
