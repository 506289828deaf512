"""Sums over pieces as a tree, in the same order wherever it grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

__all__ = ["LEVEL", "merge", "tree"]

LEVEL = 4  # parts that are joined at a time

Item = TypeVar("Item")


def merge(merging: str, *parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Tuples as one: their items added (+) or joined (|), as each letter says.

    >>> merge("+|", (1, np.array([1, 2])), (10, np.array([3])))
    (11, array([1, 2, 3]))
    """
    return tuple(
        sum(items[1:], start=items[0]) if letter == "+" else np.concatenate(items)
        for letter, items in zip(merging, zip(*parts, strict=True), strict=True)
    )


def tree(items: Iterable[Item], join: Callable[..., Item], width: int = LEVEL) -> Item:
    """Join neighbours, so many at a time, until one is left; no more of them are kept than have to wait.

    >>> tree("abcdef", lambda *few: "(" + "".join(few) + ")")
    '((abcd)(ef))'
    """
    waiting: list[list[Item]] = []  # at each height

    def put(item: Item, height: int) -> None:
        if height == len(waiting):
            waiting.append([])
        waiting[height].append(item)
        if len(waiting[height]) == width:
            few, waiting[height] = waiting[height], []
            put(join(*few), height + 1)

    for item in items:
        put(item, 0)
    rest: list[Item] = []
    for few in waiting:
        few += rest
        rest = [join(*few)] if len(few) > 1 else few
    return rest[0]
