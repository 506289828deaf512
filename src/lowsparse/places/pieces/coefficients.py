"""V of a matrix in pieces: r numbers for each column, in memory if they are few, else mapped from a file.

On a cluster V stays with the pieces from pass to pass. When it is read, they write it to the disk that they share.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...sweeps import Float
from .formulas import HeldNumbers, Piece

SHARE = 16  # V may take the memory of a solve divided by this


def allocate(folder: Path, shape: tuple[int, ...], dtype: DTypeLike, memory: int) -> NDArray[Any]:
    """An uninitialized array; mapped from an unnamed file in the folder if it would take too much of the memory."""
    dtype = np.dtype(dtype)
    if dtype.itemsize * np.prod(shape, dtype=np.int64) <= memory // SHARE:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(dir=folder, prefix=".held-") as file:
        return np.memmap(file, dtype, "w+", shape=shape)


class Coefficients:
    """V (r x n) on the workers of a cluster; as an array, it is mapped from the disk."""

    def __init__(self, matrix: Any, formula: HeldNumbers, rank: int) -> None:
        self.matrix, self.formula, self.rank = matrix, formula, rank  # the matrix is a `ClusterMatrix`

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        V: Float = self.matrix.map_held(self.formula, self.rank).T
        return V.astype(dtype or V.dtype, copy=bool(copy))


def write_coefficients(path: str, piece: Piece, V: Float) -> None:
    """Write the rows of V that belong to a piece to their place in a file."""
    with open(path, "r+b") as file:
        file.seek(piece.columns.start * V.shape[1] * V.itemsize)
        file.write(np.ascontiguousarray(V).data)


def is_mapped(A: object) -> bool:
    """Whether an array, or what it is a view of, is mapped from a file."""
    return A is not None and (isinstance(A, np.memmap) or is_mapped(getattr(A, "base", None)))
