"""Conversion of Python and NumPy objects to what the json module can write."""

import dataclasses
import json
import math
from collections.abc import Mapping
from datetime import date
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np


def jsonable(value: object) -> Any:
    """Convert a value to dictionaries, lists, strings and numbers.

    Numbers that are not finite become None, arrays lists, paths, dates and enums strings, dataclasses dictionaries.

    >>> jsonable({"ranks": np.arange(2), "error": np.float32("inf"), "out": PurePath("a")})
    {'ranks': [0, 1], 'error': None, 'out': 'a'}
    """
    match value:
        case Enum():
            return jsonable(value.value)
        case None | bool() | str():
            return value
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else None
        case np.ndarray() | np.generic():
            return jsonable(value.tolist())
        case PurePath():
            return str(value)
        case date():
            return value.isoformat()
        case Mapping():
            return {str(key): jsonable(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [jsonable(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} cannot be written as JSON: {value!r}")


def to_json(value: object) -> str:
    """ASCII JSON in one line, of what `jsonable` converts."""
    return json.dumps(jsonable(value), allow_nan=False)
