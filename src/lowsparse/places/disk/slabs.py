"""Dense arrays larger than memory as a matrix on disk: one slab of whole lines after the other, NaN is missing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...entries.compressed import float_dtype
from ...entries.observed import ObservedMatrix
from .build import Told, append_columns, turn
from .store import Writer

__all__ = ["dense", "frames"]

AT_ONCE = 24  # bytes for each number of a slab: itself, and what is picked from it


def dense(X: Any, stamp: str, folder: Path, memory: int, told: Told) -> None:
    """An array. One whose rows are together, in memory or in chunks, is read by rows, and turned on disk."""
    if len(X.shape) != 2:
        raise ValueError(f"a matrix has two dimensions, not {len(X.shape)}")
    by_rows = _by_rows(X)
    lines, length = X.shape if by_rows else X.shape[::-1]
    kind = float_dtype(np.dtype(X.dtype))
    side = "rows" if by_rows else "columns"
    with Writer(folder / side, length, kind, stamp) as writer:
        for first, end in _slabs(_edges(X, 0 if by_rows else 1), max(1, memory // (AT_ONCE * length))):
            part = np.asarray(X[first:end] if by_rows else X[:, first:end])
            _append(writer, part.T if by_rows else part, kind, f"among the {side} {first} to {end - 1}")
            told("reading", end, lines)
    if by_rows:
        turn(folder, "rows", memory, told)


def frames(film: Any, stamp: str, folder: Path, memory: int, told: Told) -> None:
    """A video: a column for each frame and a row for each pixel, grey levels from 0 to 1."""
    slabs = _gathered((frame.picture.luma.reshape(-1) for frame in film), memory)
    first = next(slabs, None)
    if first is None:
        raise ValueError(f"{film.name} has no frame")
    done = 0
    with Writer(folder / "columns", len(first), np.float32, stamp) as writer:
        for slab in chain([first], slabs):
            _append(writer, slab / np.float32(255), np.float32, film.name)
            done += slab.shape[1]
            told("reading", done, film.length or done)


def _gathered(columns: Iterator[NDArray[Any]], memory: int) -> Iterator[NDArray[Any]]:
    """Columns side by side, as many as fit."""
    held: list[NDArray[Any]] = []
    for column in columns:
        held.append(column)
        if len(held) * column.size * AT_ONCE >= memory:
            yield np.stack(held, axis=1)
            held.clear()
    if held:
        yield np.stack(held, axis=1)


def _by_rows(X: Any) -> bool:
    if getattr(X, "chunks", None):
        rows, columns = (len(_edges(X, axis)) for axis in (0, 1))
        return rows > columns
    return isinstance(X, np.ndarray) and X.flags.c_contiguous and not X.flags.f_contiguous


def _edges(X: Any, axis: int) -> list[int]:
    """Where the chunks of an array begin along an axis, and where the last one ends."""
    size, chunks = X.shape[axis], getattr(X, "chunks", None)
    if not chunks:
        return [0, size]
    own = chunks[axis]
    return [*range(0, size, own), size] if isinstance(own, int) else [0, *np.cumsum(own).tolist()]


def _slabs(edges: list[int], width: int) -> Iterator[tuple[int, int]]:
    """Ranges of up to `width` lines, of whole chunks if these are not larger.

    >>> list(_slabs([0, 4, 8, 20], 9))
    [(0, 8), (8, 17), (17, 20)]
    """
    begun = 0
    for first, end in pairwise(edges):
        if end - begun > width and first > begun:
            yield begun, first
            begun = first
        while end - begun > width:
            yield begun, begun + width
            begun += width
    if begun < edges[-1]:
        yield begun, edges[-1]


def _append(writer: Writer, X: NDArray[Any], kind: Any, where: str) -> None:
    X = np.asarray(X, dtype=kind)
    if np.isnan(X).all():
        writer.append(np.zeros(X.shape[1], np.int64), [], [])
        return
    try:
        M = ObservedMatrix.from_dense(X)
    except ValueError as error:
        raise ValueError(f"{where} (counted there from 0): {error}") from error
    append_columns(writer, M)
