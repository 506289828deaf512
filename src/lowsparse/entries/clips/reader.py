"""The contract of a source of frames."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

from ..pictures import Picture

RATE = Fraction(25)  # frames per second of a source that has no rate


class NoVideoError(ValueError):
    """The source cannot be read as a video."""


class LazyFrame(NamedTuple):
    """A decoded frame, converted to a `Picture` only if it is used."""

    label: int
    time: float | None
    picture: Callable[[], Picture]


class Reader(ABC):
    """A source of frames."""

    length: int | None = None  # number of frames, if known
    rate = RATE
    pixel_aspect = Fraction(1)  # width of a pixel by its height

    @abstractmethod
    def __iter__(self) -> Iterator[LazyFrame | None]:
        """The frames in order; None is a damaged one."""

    def find_length(self) -> None:  # noqa: B027  # most readers know it
        """Read what tells the length, if that is possible."""

    def close(self) -> None:  # noqa: B027  # most readers have none
        """Remove temporary files."""
