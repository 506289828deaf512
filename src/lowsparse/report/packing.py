"""Arrays as text in a page: numbers of 16 bits between a minimum and a maximum, in base 64."""

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LEVELS = 65_534  # of a value in the page; the next one stands for a missing value


def encode_values(values: Floats, low: Floats, span: Floats) -> str:
    """Values from low to low + span; what is not finite is missing.

    >>> text = encode_values(np.array([2.0, np.nan, 4.0]), np.array(2.0), np.array(2.0))
    >>> np.frombuffer(base64.b64decode(text), "<u2")
    array([    0, 65535, 65534], dtype=uint16)
    """
    finite = np.isfinite(values)
    scaled = np.rint(LEVELS * (np.where(finite, values, low) - low) / span)
    return to_base64(np.where(finite, scaled, LEVELS + 1).astype("<u2"))


def to_base64(numbers: NDArray[Any]) -> str:
    """The bytes of an array."""
    return base64.b64encode(numbers.tobytes()).decode("ascii")
