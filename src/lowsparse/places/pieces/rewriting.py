"""A matrix with other values, of its own kind: what is not in memory is written to disk again."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...entries.observed import ObservedMatrix
from ...linalg.arrays import host
from ..disk.build import append_columns
from ..disk.store import Writer
from ..disk.temporary import TemporaryFolder
from .formulas import Piece

__all__ = ["rewritten", "written_beside"]


def rewritten(M: Any, values: Any) -> Any:
    """Other values at the same places; in pieces, a store of its own that goes with the last matrix that has it.

    `with_values` of a matrix in pieces is a formula, which is computed in every pass.

    >>> rewritten(ObservedMatrix.from_dense([[1.0, 2.0]]), np.array([3.0, 4.0])).to_dense().tolist()
    [[3.0, 4.0]]
    """
    if isinstance(M, ObservedMatrix):
        return M.with_values(values.astype(M.dtype, copy=False))
    if not hasattr(M, "client"):
        return written_beside(M, M, values)
    there = type(M)(written_beside(M.stored, M, values), M.client)
    weakref.finalize(there, _hold, M)  # with which a cluster of our own would go
    return there


def written_beside(stored: Any, M: Any, values: Any) -> Any:
    """The same places with these values of M, on disk like `stored`, in a folder within its own."""
    folder = TemporaryFolder(".values-", stored.folder, within=stored.owner)
    try:
        with Writer(folder.path / "columns", M.shape[0], M.dtype) as writer:
            for piece in M.each(_With(M.dtype), values.formula):
                append_columns(writer, piece)
        new = type(stored)(folder.path, memory=stored.memory)
    except BaseException:
        folder.remove()
        raise
    new.owner = folder
    return new


@dataclass(frozen=True)
class _With:
    """A piece with other values; it may be sent, so it has a name."""

    dtype: Any

    def __call__(self, piece: Piece, numbers: NDArray[Any]) -> ObservedMatrix:
        M = piece.M
        return ObservedMatrix(host(M.indptr), np.array(host(M.rows)), host(numbers).astype(self.dtype), M.shape)


def _hold(origin: Any) -> None:
    """Nothing; but the argument lives until this is called."""
