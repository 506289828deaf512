"""Names and lists in sentences."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from ..plots import STYLES
from . import settings


def label(method: str) -> str:
    """The name of a method as it is written."""
    return STYLES[method][0] + (" (our default)" if method == settings.OURS else "")


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
