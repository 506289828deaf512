"""Sums over pieces as a tree, in the same order wherever it grows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

__all__ = ["merge", "tree"]

Item = TypeVar("Item")


def merge(how: str, *parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Tuples as one: their items added (+) or joined (|), as each letter says.

    >>> merge("+|", (1, np.array([1, 2])), (10, np.array([3])))
    (11, array([1, 2, 3]))
    """
    return tuple(
        sum(items[1:], start=items[0]) if letter == "+" else np.concatenate(items)
        for letter, items in zip(how, zip(*parts, strict=True), strict=True)
    )


def tree(items: list[Item], join: Callable[..., Item], width: int = 4) -> Item:
    """Join neighbours, so many at a time, until one is left.

    >>> tree(list("abcdef"), lambda *few: "(" + "".join(few) + ")")
    '((abcd)(ef))'
    """
    while len(items) > 1:
        items = [join(*items[k : k + width]) if items[k + 1 : k + 2] else items[k] for k in range(0, len(items), width)]
    return items[0]
