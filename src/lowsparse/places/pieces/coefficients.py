"""V of a matrix in pieces: r numbers for each column, in memory if they are few, else in a file that is mapped.

On a cluster V stays with the pieces from pass to pass. When it is asked for, they write it to the disk that all see.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...linalg.lowrank import LowRank
from ...sweeps import Float
from .formulas import Piece, StoredNumbers

__all__ = ["Coefficients", "is_mapped", "room", "with_mapped_coefficients"]

SHARE = 16  # of the memory that a solve may take: V may have this part of it


def room(folder: Path, shape: tuple[int, ...], dtype: Any, memory: int) -> NDArray[Any]:
    """An array to be filled; in a file without a name, in that folder, if it would take too much of the memory.

    >>> room(Path(tempfile.gettempdir()), (100, 2), np.float64, memory=1000).shape
    (100, 2)
    """
    dtype = np.dtype(dtype)
    if dtype.itemsize * np.prod(shape, dtype=np.int64) <= memory // SHARE:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(dir=folder, prefix=".held-") as file:
        return np.memmap(file, dtype, "w+", shape=shape)


class Coefficients:
    """V, r x n, on the workers of a cluster; as an array, it is mapped from the disk."""

    def __init__(self, home: Any, formula: StoredNumbers, rank: int) -> None:
        self.home, self.formula, self.rank = home, formula, rank

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        V: Float = self.home.on_disk(self.formula, self.rank).T
        return V.astype(dtype or V.dtype, copy=bool(copy))


@dataclass(frozen=True)
class Writing:
    """Put the rows of V that a piece has where they belong in a file."""

    path: str

    def __call__(self, piece: Piece, V: Float) -> None:
        with open(self.path, "r+b") as file:
            file.seek(piece.columns.start * V.shape[1] * V.itemsize)
            file.write(np.ascontiguousarray(V).data)


def is_mapped(A: Any) -> bool:
    """Whether an array, or what it is a view of, is mapped from a file.

    >>> is_mapped(np.ones(3)[1:])
    False
    """
    return A is not None and (isinstance(A, np.memmap) or is_mapped(getattr(A, "base", None)))


def with_mapped_coefficients(L: LowRank, folder: Path, memory: int) -> LowRank:
    """L with a V that is mapped from a file in that folder, if it is large for the memory."""
    if is_mapped(L.V):
        return L
    V = room(folder, L.V.T.shape, L.V.dtype, memory)
    if not isinstance(V, np.memmap):
        return L
    V[:] = L.V.T
    return LowRank(L.U, V.T)
