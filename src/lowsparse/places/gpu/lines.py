"""Kernels over the lines of a matrix, its columns or its rows; lines of similar length share a launch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .launch import NULL, c_type, kernel, need_cupy

if TYPE_CHECKING:
    from .matrix import DeviceMatrix, Positions

SHORT = 96  # entries of a line for a warp, at most
WIDE = 1536  # entries from which on a block has 256 threads
PIECE = (2048, 16384)  # entries of a piece of a long line, least and most;
PIECES = 1024  # of the whole matrix, about
KEPT = 100_000  # bytes of shared memory for a line that is gathered once
STREAMED = 12_000  # bytes for one that passes through
LARGEST_SHARED = 220_000  # bytes of shared memory


@dataclass(frozen=True, eq=False)
class LineGroup:
    """Lines of similar length, or the pieces of long ones, for one launch."""

    threads: int  # for a line or piece
    cut: bool  # whether the lines are cut into pieces
    lines: Any  # the indices of the lines, one for each piece; NULL: all lines
    firsts: Any  # of each piece: its first entry
    bases: Any  # of each piece: the index of the first piece of its line
    count: int  # lines or pieces
    length: int  # of a piece
    longest: int  # line or piece


def row_stride(r: int) -> int:
    """Doubles from one gathered row to the next (as in common.cuh).

    >>> [row_stride(r) for r in (1, 2, 4, 5, 6, 8)]
    [1, 2, 6, 5, 6, 10]
    """
    return r if r % 2 or r // 2 % 2 else r + 2


def packed(r: int) -> int:
    """How many numbers a triangle of an r x r matrix has."""
    return r * (r + 1) // 2


def group_lines(positions: Positions, kept: int) -> list[LineGroup]:
    """Group lines by length: for a warp, for a block that keeps up to `kept` entries or does not, and in pieces."""
    if ("groups", kept) not in positions.cache:
        positions.cache["groups", kept] = _group_lines(positions, kept)
    groups: list[LineGroup] = positions.cache["groups", kept]
    return groups


def _group_lines(positions: Positions, kept: int) -> list[LineGroup]:
    cupy = need_cupy()
    counts = positions.counts
    length = min(max(PIECE[0], int(counts.sum()) // PIECES), PIECE[1])
    most = int(counts.max(initial=0))
    all_short = most <= 2 * SHORT and counts.mean() <= SHORT  # one launch then, without a list
    short = most if all_short else SHORT
    bounds = [-1, short, max(min(kept, length), short), length]
    groups = []
    for k, (low, high) in enumerate(pairwise(bounds)):
        lines = np.flatnonzero((counts > low) & (counts <= high)).astype(np.int32)
        if lines.size:
            longest = int(counts[lines].max())
            threads = (32, 256 if longest > WIDE else 128, 64)[k]
            where = NULL if lines.size == counts.size else cupy.asarray(lines)
            groups.append(LineGroup(threads, False, where, NULL, NULL, lines.size, 0, longest))
    long = np.flatnonzero(counts > length)
    if long.size:
        pieces = -(-counts[long] // length)
        bases = np.repeat(np.cumsum(pieces) - pieces, pieces)
        own = np.repeat(long, pieces)
        firsts = cupy.asarray(positions.starts[own] + length * (np.arange(own.size) - bases))
        where = cupy.asarray(own, np.int32)
        groups.append(LineGroup(256, True, where, firsts, cupy.asarray(bases, np.int32), own.size, length, length))
    return groups


@dataclass(frozen=True, eq=False)
class LineKernel:
    """A kernel for a group of lines, with all that does not change from one launch to the next."""

    group: LineGroup
    function: Any
    grid: tuple[int]
    block: tuple[int]
    shared_bytes: int
    first_args: tuple[Any, ...]
    scratch: tuple[Any, Any]  # for the pieces of a line: their sums, and how many have finished

    def __call__(self, *args: Any) -> None:
        """Launch it."""
        self.function(self.grid, self.block, (*self.first_args, *args), shared_mem=self.shared_bytes)

    def steps(self, count: int) -> list[tuple[np.int32, np.int32]]:
        """The ranges of steps to launch: all in one launch, but one by one for lines in pieces."""
        ends = range(count + 1) if self.group.cut else (0, count)
        return [(np.int32(first), np.int32(last)) for first, last in pairwise(ends)]


class LineKernels:
    """Prepares kernels over the columns of a matrix on the GPU; they are cached with its positions."""

    def __init__(self, M: DeviceMatrix) -> None:
        self.M = M
        self.type = c_type(M.dtype)

    def prepare(
        self, name: str, r: int, *, sums: int, keeps: int = 0, width: int = 0, once: bool = True, type_: str = ""
    ) -> list[LineKernel]:
        """A kernel with the template arguments <r, type, threads, cut>, for each group of lines.

        `sums` numbers are summed up for a line, `keeps` more are kept; the gathered rows have `width` numbers (r). A
        kernel that reads a line `once` does not keep it.
        """
        type_ = type_ or self.type
        cache, key = self.M.positions.cache, (name, r, type_, once)
        if key not in cache:
            words = row_stride(width or r) + 1
            kept = max(KEPT // (8 * words), SHORT) if not once else SHORT
            cache[key] = [
                _line_kernel(name, r, type_, group, kept, words, sums, keeps)
                for group in group_lines(self.M.positions, kept)
            ]
        kernels: list[LineKernel] = cache[key]
        return kernels

    def prepare_general(self, name: str, r: int, *types: str) -> list[LineKernel]:
        """A kernel of general.cuh, for any rank, with the template arguments <types, threads, cut>.

        Memory for the sums of pieces may be large and is not cached: `scratch` has only the counts of finished pieces.
        """
        cache, key = self.M.positions.cache, (name, r, *types)
        if key not in cache:
            cache[key] = [_general_kernel(name, r, types, group) for group in group_lines(self.M.positions, SHORT)]
        kernels: list[LineKernel] = cache[key]
        return kernels


def _line_kernel(
    name: str, r: int, type_: str, group: LineGroup, kept: int, words: int, sums: int, keeps: int
) -> LineKernel:
    threads = group.threads
    block = 128 if threads == 32 else threads
    streamed = max(STREAMED // (8 * words) // threads, 1) * threads
    most = group.longest if group.longest <= kept else streamed
    room = ((threads // 32 + 1) * sums + keeps + 1) // 2 * 2
    shared_bytes = 8 * (block // threads) * (room + most * words + most % 2)
    function = _with_shared(f"{name}<{r},{type_},{threads},{'true' if group.cut else 'false'}>", shared_bytes)
    counts = (np.int32(count) for count in (group.count, group.length, most))
    grid = (-(-group.count // (block // threads)),)
    first_args = (group.lines, group.firsts, group.bases, *counts)
    return LineKernel(group, function, grid, (block,), shared_bytes, first_args, _scratch(group, sums))


def _general_kernel(name: str, r: int, types: tuple[str, ...], group: LineGroup) -> LineKernel:
    threads = min(2 * group.threads, 256)
    panel = 17 * threads + r // 4 * 4 + 4  # as GeneralRoom has it: rows and weights, v
    shared_bytes = 8 * (panel + packed(r) + 2 * r + 3)
    if shared_bytes > LARGEST_SHARED:
        raise ValueError(f"the rank {r} is too large for a GPU, whose normal equations take {shared_bytes} bytes there")
    arguments = ",".join((*types, str(threads), "true" if group.cut else "false"))
    function = _with_shared(f"{name}<{arguments}>", shared_bytes)
    first_args = (np.int32(r), group.lines, group.firsts, group.bases, np.int32(group.count), np.int32(group.length))
    return LineKernel(group, function, (group.count,), (threads,), shared_bytes, first_args, _scratch(group, 0))


def _scratch(group: LineGroup, sums: int) -> tuple[Any, Any]:
    if not group.cut:
        return NULL, NULL
    cupy = need_cupy()
    return cupy.empty(group.count * sums), cupy.zeros(group.count, np.int32)


def _with_shared(name: str, shared_bytes: int) -> Any:
    """A kernel that may use this much shared memory."""
    function = kernel(name)
    if shared_bytes > 48_000 and function.max_dynamic_shared_size_bytes < shared_bytes:
        function.max_dynamic_shared_size_bytes = shared_bytes
    return function
