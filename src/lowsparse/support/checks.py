"""Checks of arguments. Each returns the value, or raises a ValueError that names the argument and what it must be.

>>> check_count("rank", 2.5)
Traceback (most recent call last):
ValueError: rank must be a whole number of 1 or more, not 2.5
"""

import math
from numbers import Integral, Real
from typing import TypeVar

T = TypeVar("T")


def check_count(name: str, value: object, minimum: int = 1, maximum: int | None = None, *, also: str = "") -> int:
    """A whole number of at least `minimum`, and of at most `maximum` if given; `also` names other valid values."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        count = int(value)
        if minimum <= count <= (math.inf if maximum is None else maximum):
            return count
    bounds = f"of {minimum} or more" if maximum is None else f"from {minimum} to {maximum}"
    raise ValueError(f"{name} must be a whole number {bounds}{f', or {also}' if also else ''}, not {value!r}")


def check_positive(name: str, value: object, *, also: str = "") -> float:
    """A finite number above 0; `also` names other valid values."""
    if 0 < (number := _number(value)) < math.inf:
        return number
    raise ValueError(f"{name} must be a positive number{f', or {also}' if also else ''}, not {value!r}")


def check_share(name: str, value: object, *, ends: bool = False) -> float:
    """A number between 0 and 1, which are valid themselves if `ends`."""
    if 0 < (number := _number(value)) < 1 or (ends and number in (0, 1)):
        return number
    raise ValueError(f"{name} must be a number {'from 0 to' if ends else 'between 0 and'} 1, not {value!r}")


def check_choice(name: str, value: T, choices: tuple[object, ...]) -> T:
    """One of a few strings or constants."""
    if any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        return value
    raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")


def _number(value: object) -> float:
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
