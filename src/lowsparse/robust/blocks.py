"""Robust low-rank fits of many small blocks at once.

The blocks stand on the diagonal of one sparse matrix. Every line of it is regressed by itself, on the factor of its
own block, so one sweep serves them all; each block has its own scale c, by which its numbers are divided.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..lines import EFFICIENT, SHRINK, SMALLEST
from ..observed import ObservedMatrix
from ..scale import CONSISTENT_LOW, LOW
from ..sweeps import Float, Robust, open_sweep

__all__ = ["BlockFit", "climb_blocks"]

PASSES = (4, 25)  # on each rank, least and most;
FALLING = 0.5  # the noise of some block after a pass / that before, at most, if there are to be more on a rank;
SETTLED = 0.98  # that three passes before, on the last rank
PACE = 0.3  # c / its previous value, at least
FIRST = 1.0  # c, in units, and where numbers are clipped, to begin with
EXACT = 1e-9  # noise, in units: a block that is left with less needs no rank more
PRODUCTS = 10  # with a matrix, for its leading singular vector


@dataclass(frozen=True)
class BlockFit:
    """L = U Vᵀ of a block, of a rank that explains it, and the scale of what it leaves."""

    U: Float  # orthonormal
    V: Float
    noise: float


class Stack:
    """Matrices along a diagonal."""

    def __init__(self, blocks: list[ObservedMatrix], backend: str) -> None:
        self.blocks, self.backend = blocks, backend
        heights, widths = (np.array([M.shape[axis] for M in blocks]) for axis in (0, 1))
        self.of_row, self.of_column = (np.repeat(np.arange(len(blocks)), sizes) for sizes in (heights, widths))
        self.row_place, self.column_place = (_places(sizes) for sizes in (heights, widths))
        self.of_entry = np.repeat(np.arange(len(blocks)), [M.nnz for M in blocks])
        self.ends = np.cumsum([0, *(M.nnz for M in blocks)])
        offsets = np.cumsum([0, *heights])[:-1]
        starts = np.concatenate([[0], *(M.indptr[1:] + end for M, end in zip(blocks, self.ends, strict=False))])
        rows = np.concatenate([M.rows + offset for M, offset in zip(blocks, offsets, strict=True)]).astype(np.int32)
        values = np.concatenate([M.values for M in blocks]).astype(np.float64)
        self.M = ObservedMatrix.trusted(starts, rows, values, (int(heights.sum()), int(widths.sum())))
        self.turned = self.M.T
        self.of_turned = np.repeat(self.of_row, self.turned.column_counts)
        columns = self.M.columns_of_entries()
        self.dense_shape = len(blocks), int(heights.max()), int(widths.max())
        self.dense_place = np.ravel_multi_index(
            (self.of_entry, self.row_place[rows], self.column_place[columns]), self.dense_shape
        )

    def residual(self, U: Float, V: Float) -> Float:
        """U Vᵀ - x, one value per entry."""
        return open_sweep(self.M, self.backend).residual(U, V)

    def scales(self, e: Float) -> Float:
        """The robust scale of the residuals of each block."""
        found = np.empty(len(self.blocks))
        for b, (first, end) in enumerate(zip(self.ends, self.ends[1:], strict=False)):
            sizes = np.abs(e[first:end])
            k = int(LOW * sizes.size)
            found[b] = CONSISTENT_LOW * np.partition(sizes, k)[k]
        return found

    def columns(self, U: Float, V: Float, c: Float, turns: int) -> Float:
        """V anew, given U."""
        return self._regressed(self.M, self.of_entry, self.of_column, U, V, c, turns)

    def rows(self, V: Float, U: Float, c: Float, turns: int) -> Float:
        """U anew, given V."""
        return self._regressed(self.turned, self.of_turned, self.of_row, V, U, c, turns)

    def _regressed(
        self,
        M: ObservedMatrix,
        of_entry: NDArray[np.intp],
        of_line: NDArray[np.intp],
        F: Float,
        C: Float,
        c: Float,
        turns: int,
    ) -> Float:
        sweep = open_sweep(M.with_values(M.values / c[of_entry]), self.backend)
        per_line = c[of_line][:, None]
        how = Robust(c=1.0, turns=turns, shrink=SHRINK * len(self.blocks))
        return sweep.regress(F, C / per_line, how).V * per_line

    def leading(self, values: Float, clip: Float, rng: np.random.Generator) -> Float:
        """Of each block the leading left singular vector of these values, clipped: a number for each row."""
        flat = np.zeros(int(np.prod(self.dense_shape)))
        bound = clip[self.of_entry]
        flat[self.dense_place] = np.clip(values, -bound, bound)
        E = flat.reshape(self.dense_shape)
        x = E @ rng.standard_normal((*self.dense_shape[::2], 1))
        for _ in range(PRODUCTS):
            x /= np.linalg.norm(x, axis=1, keepdims=True) + np.finfo(float).tiny
            x = E @ (np.swapaxes(E, 1, 2) @ x)
        return np.asarray(x[self.of_row, self.row_place, 0])

    def bases(self, F: Float, of_line: NDArray[np.intp], place: NDArray[np.intp]) -> tuple[Float, Float]:
        """Of each block an orthonormal basis of its part of F, and R, blocks x r x r."""
        stacked = np.zeros((len(self.blocks), int(place.max()) + 1, F.shape[1]))
        stacked[of_line, place] = F
        Q, R = np.linalg.qr(stacked)
        return np.ascontiguousarray(Q[of_line, place]), R


def _places(sizes: NDArray[np.intp]) -> NDArray[np.intp]:
    """0, 1, ... for each of the sizes in turn."""
    return np.concatenate([np.arange(size) for size in sizes])


def _turned(F: Float, R: Float, of_line: NDArray[np.intp]) -> Float:
    """F Rᵀ, with the R of the block that a line is of."""
    return np.asarray(np.matmul(R[of_line], F[:, :, None])[:, :, 0], dtype=np.float64)


def climb_blocks(
    blocks: list[ObservedMatrix], rank: int, unit: float, rng: np.random.Generator, backend: str = "auto"
) -> list[BlockFit]:
    """Fit each of the blocks, one rank after the other, until it is exact; all are taller and wider than the rank.

    >>> rng = np.random.default_rng(1)
    >>> truth = rng.standard_normal((12, 2)) @ rng.standard_normal((2, 14))
    >>> X = np.where(rng.random(truth.shape) < 0.1, 9.0, truth)
    >>> fits = climb_blocks([ObservedMatrix.from_dense(A) for A in (X, X[:10])], 2, 1.0, rng)
    >>> [bool(np.abs(fit.U @ fit.V.T - truth[: len(fit.U)]).max() < 1e-6) for fit in fits]
    [True, True]
    """
    stack = Stack(blocks, backend)
    U, V = np.zeros((stack.M.shape[0], 0)), np.zeros((stack.M.shape[1], 0))
    e: Float = -stack.M.values.astype(np.float64)
    c = np.full(len(blocks), FIRST * unit)
    clip, smallest = c, SMALLEST * unit
    fits: dict[int, BlockFit] = {}
    for k in range(1, rank + 1):
        new = stack.leading(-e, clip, rng)
        V = np.column_stack([V, np.zeros(len(V))])
        U, R = stack.bases(np.column_stack([U, new]), stack.of_row, stack.row_place)
        V = _turned(V, R, stack.of_column)
        before: list[Float] = []
        for since in range(PASSES[1]):
            turns = 2 if since < 3 else 1
            V = stack.columns(U, V, c, turns)
            Q, R = stack.bases(V, stack.of_column, stack.column_place)
            C = stack.rows(Q, _turned(U, R, stack.of_row), c, turns)
            U, R = stack.bases(C, stack.of_row, stack.row_place)
            V = _turned(Q, R, stack.of_column)
            e = stack.residual(U, V)
            noise = stack.scales(e)
            c = np.maximum(np.maximum(EFFICIENT * noise, PACE * c), smallest)
            before.append(noise)
            if since + 1 >= PASSES[0]:
                limit = FALLING * before[-2] if k < rank else SETTLED * before[-4]
                if not np.any((noise < limit) & (c > smallest)):
                    break
        for b in np.flatnonzero((noise <= EXACT * unit) | (k == rank)):
            found = BlockFit(U[stack.of_row == b], V[stack.of_column == b], float(noise[b]))
            fits.setdefault(int(b), found)
        clip = np.maximum(noise, smallest)
        c = EFFICIENT * clip
    return [fits[b] for b in range(len(blocks))]
