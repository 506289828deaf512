"""What matrices in pieces have in common, wherever the pieces are."""

from __future__ import annotations

import secrets
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...entries.observed import ObservedMatrix
from ...entries.protocol import Facts
from .formulas import Entries, Formula, Held, Rows, Values
from .merge import merge, tree

__all__ = ["InPieces", "OneByOne", "check_entries"]


class InPieces(Facts):
    """A partly observed matrix whose values are `Entries`."""

    shape: tuple[int, int]
    nnz: int
    dtype: np.dtype[Any]
    indptr: NDArray[np.int64]

    @property
    def values(self: Any) -> Entries:
        """The observed values."""
        return Entries(self, Values())

    @property
    def column_counts(self) -> NDArray[np.int64]:
        """The number of entries in each column."""
        return np.diff(self.indptr)

    def sample(self: Any, size: int) -> ObservedMatrix:
        """About so many entries, evenly spread; all the rows and columns are there."""
        step = max(1, self.nnz // size)
        rows = Entries(self, Rows())[::step]
        return ObservedMatrix(-(-self.indptr // step), rows, self.values[::step], self.shape)

    def __reduce__(self) -> Any:
        raise TypeError(
            "a matrix in pieces cannot be pickled, nor the result of a solve of it: keep the folder of the matrix, and "
            "write the result to files (S.to_parquet, S.to_zarr, L.to_zarr)"
        )


class OneByOne(InPieces, ABC):
    """A matrix whose pieces are gone through one after the other, in this process.

    Of a piece are asked: `number`, `columns`, `entries`; `writes`, the names of what a pass writes of it; `held`, the
    numbers of a name; and `keep`, which puts those that were written where they stay.
    """

    pieces: list[Any]
    kept: dict[str, Any]  # by name

    @abstractmethod
    def _at_hand(self) -> Iterator[Any]:
        """The pieces, each of which can be used until the next is asked for."""

    @abstractmethod
    def _scratch(self, dtype: Any) -> Any:
        """Room for a number for each entry."""

    def _room(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array with a row for each column, to be filled."""
        return np.empty(shape, dtype)

    def over(self, function: Callable[..., Any], *formulas: Formula, writes: tuple[Held, ...] = ()) -> list[Any]:
        """``function(piece, *numbers of the formulas)`` of every piece, in place; the next is fetched meanwhile."""
        return list(self._one_by_one(function, formulas, writes))

    def each(self, function: Callable[..., Any], *formulas: Formula) -> Iterator[Any]:
        """As `over`, one piece after the other: what it gives for one need not be in memory with the next."""
        return self._one_by_one(function, formulas)

    def _one_by_one(
        self, function: Callable[..., Any], formulas: tuple[Formula, ...], writes: tuple[Held, ...] = ()
    ) -> Iterator[Any]:
        written = frozenset(held.name for held in writes)
        for piece in self._at_hand():
            piece.writes = written
            yield function(piece, *(formula.cut(piece.columns).at(piece) for formula in formulas))
            for name in written:
                piece.keep(name)

    def merged(
        self, how: str, function: Callable[..., tuple[Any, ...]], *formulas: Formula, writes: tuple[Held, ...] = ()
    ) -> tuple[Any, ...]:
        """What a function gives for every piece, merged as `how` says."""
        adding = [letter == "+" for letter in how]
        joined: list[Any] = [None] * len(how)

        def added() -> Iterator[tuple[Any, ...]]:
            for found, piece in zip(self._one_by_one(function, formulas, writes), self.pieces, strict=True):
                for k, part in enumerate(found):
                    if not adding[k]:
                        if joined[k] is None:
                            joined[k] = self._room((self.shape[1], *part.shape[1:]), part.dtype)
                        joined[k][piece.columns] = part
                yield tuple(compress(found, adding))

        sums = iter(tree(added(), partial(merge, "+" * sum(adding))))
        return tuple(next(sums) if add else part for add, part in zip(adding, joined, strict=True))

    def firsts(self) -> NDArray[np.int64]:
        """The places of the first entries of the pieces, and nnz."""
        return np.array([*(piece.entries.start for piece in self.pieces), self.nnz])

    @property
    def _parts(self) -> list[slice]:
        return [piece.entries for piece in self.pieces]

    def parts(self) -> Iterator[NDArray[Any]]:
        """The values, some at a time."""
        for piece in self._at_hand():
            if piece.M.nnz:
                yield piece.M.values

    def hold(self, numbers: Entries) -> Entries:
        """Keep the numbers that a formula gives, in scratch memory that goes when they do."""
        return self.keep(numbers.formula.cut(piece.columns).at(piece) for piece in self._at_hand())

    def keep(self, parts: Iterable[NDArray[Any]]) -> Entries:
        """Numbers that come piece by piece, kept as those of `hold` are."""
        held = Held(secrets.token_hex(8))
        for number, part in enumerate(parts):
            if not number:
                self.kept[held.name] = self._scratch(part.dtype)
                weakref.finalize(held, self.kept.pop, held.name, None)
            self.kept[held.name].write(number, part)
        return Entries(self, held)


def check_entries(values: Any) -> None:
    """Raise unless these are numbers of the entries of a matrix in pieces.

    >>> check_entries(np.ones(3))
    Traceback (most recent call last):
    TypeError: a matrix in pieces takes a formula of its own values, such as 2 * M.values, and no ndarray
    """
    if not isinstance(values, Entries):
        kind = type(values).__name__
        raise TypeError(f"a matrix in pieces takes a formula of its own values, such as 2 * M.values, and no {kind}")
