"""Blocks of rows and columns, and the sums of L over them."""

import numpy as np
from numpy.typing import NDArray

from .lowrank import LowRank

Edges = NDArray[np.intp]  # block k holds the lines from edge k to edge k + 1


def block_edges(lines: int, most: int) -> Edges:
    """The edges of at most so many blocks of about equal size.

    >>> block_edges(7, 3).tolist()
    [0, 2, 4, 7]
    """
    if most < 1:
        raise ValueError(f"there must be 1 block or more, not {most}")
    blocks = min(lines, most)
    return np.arange(blocks + 1) * lines // blocks


def block_of_lines(edges: Edges) -> NDArray[np.intp]:
    """The block that each line is in."""
    return np.repeat(np.arange(edges.size - 1), np.diff(edges))


def block_sums(L: LowRank, down: Edges, across: Edges) -> NDArray[np.float64]:
    """The sums of L over blocks, (Σ u_i)ᵀ (Σ v_j): no entry of L is formed.

    >>> block_sums(LowRank([[1.0], [2.0], [3.0]], [[1.0, 10.0]]), np.array([0, 2, 3]), np.array([0, 2])).tolist()
    [[33.0], [33.0]]
    """
    U = np.add.reduceat(L.U, down[:-1], axis=0)
    V = np.add.reduceat(L.V, across[:-1], axis=1)
    return np.asarray(U @ V, dtype=np.float64)
