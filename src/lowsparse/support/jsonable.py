"""What JSON has a form for, of anything that is to be written as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from datetime import date
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np

__all__ = ["plain"]


def plain(value: Any) -> Any:
    """The value in dictionaries, lists, text and numbers.

    What is not finite is None; arrays are lists, paths, dates and enums text, records dictionaries.

    >>> plain({"ranks": np.arange(2), "error": np.float32("inf"), "out": PurePath("a")})
    {'ranks': [0, 1], 'error': None, 'out': 'a'}
    """
    match value:
        case Enum():
            return plain(value.value)
        case None | bool() | str():
            return value
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else None
        case np.ndarray() | np.generic():
            return plain(value.tolist())
        case PurePath():
            return str(value)
        case date():
            return value.isoformat()
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} has no JSON form: {value!r}")
