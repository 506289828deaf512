"""Checks of arguments. Each returns the value, or raises a ValueError that names the argument and what it must be."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

__all__ = ["check_choice", "check_count", "check_positive", "check_share"]


def check_count(name: str, value: Any, minimum: int = 1, maximum: int | None = None, *, also: str = "") -> int:
    """A whole number of at least `minimum`, and of at most `maximum` if given; `also` names other valid values.

    >>> check_count("rank", 3, maximum=5)
    3
    >>> check_count("rank", 2.5)
    Traceback (most recent call last):
    ValueError: rank must be a whole number of 1 or more, not 2.5
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if whole and minimum <= int(value) <= (math.inf if maximum is None else maximum):
        return int(value)
    bounds = f"of {minimum} or more" if maximum is None else f"from {minimum} to {maximum}"
    raise ValueError(f"{name} must be a whole number {bounds}{f', or {also}' if also else ''}, not {value!r}")


def check_positive(name: str, value: Any, *, also: str = "") -> float:
    """A finite number above 0; `also` names other valid values.

    >>> check_positive("half_life", -1, also="None")
    Traceback (most recent call last):
    ValueError: half_life must be a positive number, or None, not -1
    """
    if _is_number(value) and 0 < value < math.inf:
        return float(value)
    raise ValueError(f"{name} must be a positive number{f', or {also}' if also else ''}, not {value!r}")


def check_share(name: str, value: Any) -> float:
    """A number between 0 and 1, neither of them included.

    >>> check_share("fraction", 1)
    Traceback (most recent call last):
    ValueError: fraction must be a number between 0 and 1, not 1
    """
    if _is_number(value) and 0 < value < 1:
        return float(value)
    raise ValueError(f"{name} must be a number between 0 and 1, not {value!r}")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """One of a few strings or constants.

    >>> check_choice("center", "mean", (None, "median"))
    Traceback (most recent call last):
    ValueError: center must be one of None, 'median', not 'mean'
    """
    if any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        return value
    raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
