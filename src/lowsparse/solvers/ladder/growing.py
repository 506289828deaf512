"""Attempts that grow L from a small dense block of the data, line by line."""

from __future__ import annotations

import math
from copy import copy

import numpy as np
from numpy.typing import NDArray

from ...linalg.arrays import matmul_small
from ...linalg.grassmann import basis
from ...robust.growth import SEEDS, Part, beyond, grown, seed_block, take_block
from ...robust.regression import EFFICIENT, EXPLAINED, SMALLEST, LineRegression
from ...robust.small_blocks import climb_blocks
from .state import LadderState, parameter_count

ROUNDS = 15  # of growth; the lines that are left then are added as they are
FREE = 0.7  # least share of degrees of freedom left to the residuals of a part, for its noise to mean something
LARGE = 0.4  # share of the entries from which on a part bounds c,
WIDER = 1.5  # by this times what its noise calls for


def begin_with_block(state: LadderState) -> bool:
    """Begin with the best of several small blocks; False if there is none."""
    if state.views.block is None:
        return False
    M, _ = state.views.block_and_transpose(state.untied)
    best = _best_block(state, np.arange(M.shape[0]), np.arange(M.shape[1]))
    if best is None:
        return False
    best.rounds, best.careful = 0, 2
    vars(state).update(vars(best))
    return True


def _best_block(state: LadderState, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> LadderState | None:
    """Climb on several small blocks of these rows and columns; the state of the one that explains others best."""
    M = take_block(state.views.block_and_transpose(state.untied)[0], rows, columns)
    if not M.nnz:
        return None
    rng = np.random.default_rng([0x736F77, state.attempt, rows.size])
    unit, backend, k = state.unit, state.problem.sweep.host, state.target
    # where every second attempt leaves suspicious values out, both sorts of attempt alternate between the seeds
    alternation = state.grown if state.views.ties is None else state.grown // 2
    seeds = [seed_block(M, k, rng, size, near=near) for near, size in SEEDS[alternation % 2]]
    seeds = [seed for seed in seeds if min(seed[0].size, seed[1].size) > k]
    if not seeds:
        return None
    fits = climb_blocks([take_block(M, *seed) for seed in seeds], k, unit, rng, backend)
    transpose = M.T
    parts = [Part(*seed, fit.U, fit.V) for seed, fit in zip(seeds, fits, strict=True)]
    errors = [beyond(M, transpose, part, fit.noise, unit, backend) for part, fit in zip(parts, fits, strict=True)]
    at = int(np.argmin(errors))
    best, part, noise = copy(state), parts[at], fits[at].noise
    best.data, best.part_rows, best.part_columns = "part", rows[part.rows], columns[part.columns]
    best.U, best.V, best.noise, best.c = part.U, part.V, noise, max(EFFICIENT * noise, SMALLEST * unit)
    best.restart_count()
    return best


def grow(state: LadderState) -> None:
    """Add the lines that the part determines; when there are no more of them, all rows and columns of the block."""
    M, transpose = state.views.block_and_transpose(state.untied)
    _note_noise(state)
    state.c = max(state.c, EXPLAINED * state.unit)
    h = min(parameter_count(state.matrix, state.rank) / state.matrix.nnz, 0.5)
    c = state.c * math.sqrt(1 + h) / (1 - h)  # the part is fitted closely, other lines are predicted
    part = Part(state.part_rows, state.part_columns, state.U, state.V)
    larger = None
    while larger is None and state.careful >= 0 and state.rounds < ROUNDS:
        larger = grown(M, transpose, part, c, state.unit, state.careful)
        state.careful -= larger is None
    larger = larger or _with_another_part(state, part)
    if larger is not None:
        state.part_rows, state.part_columns = larger.rows, larger.columns
        state.U, R = basis(larger.U)
        state.V = matmul_small(larger.V, R.T)
        state.rounds += 1
        state.c *= 3
    else:
        extend_to_block(state)
    state.restart_count()


def _with_another_part(state: LadderState, part: Part) -> Part | None:
    """The part joined with one in the remaining rows and columns, which have few or no entries in common with it."""
    M, _ = state.views.block_and_transpose(state.untied)
    rows, columns = (
        np.setdiff1d(np.arange(total), known)
        for total, known in zip(M.shape, (state.part_rows, state.part_columns), strict=True)
    )
    k = state.rank
    left = take_block(M, rows, columns).nnz if min(rows.size, columns.size) > 2 * k else 0
    if state.rounds >= ROUNDS or left < 2 * k * (rows.size + columns.size):
        return None
    other = _best_block(state, rows, columns)
    if other is None or other.rank != k or other.noise > 3 * max(state.noise, EXPLAINED * state.unit):
        return None
    state.careful = 2
    return part.joined(Part(other.part_rows, other.part_columns, other.U, other.V))


def _note_noise(state: LadderState) -> None:
    """Remember the least noise of a part; not where it may consist of suspicious values, which are of low rank."""
    part = state.matrix
    free = 1 - parameter_count(part, state.rank) / part.nnz  # share of degrees of freedom left to the residuals
    if free >= FREE and (state.untied or state.views.untied is None):
        noise = state.noise / math.sqrt(free)
        state.part_noise = min(state.part_noise, noise)
        if part.nnz > LARGE * state.views.block_and_transpose(state.untied)[0].nnz:
            state.max_c = WIDER * EFFICIENT * max(noise, EXPLAINED * state.unit)


def extend_to_block(state: LadderState) -> None:
    """Extend L from the part to all rows and columns of the block."""
    M, transpose = state.views.block_and_transpose(state.untied)
    backend = state.problem.sweep.host
    strip = transpose.take_rows(state.part_columns)
    Q, R = basis(state.V)
    lines = LineRegression(strip, strip.open_sweep(backend), state.unit, learning=False)
    C, _ = lines.complete(Q, state.part_rows, matmul_small(state.U, R.T), state.c, turns=15)
    state.U, R = basis(C)
    lines = LineRegression(M, M.open_sweep(backend), state.unit, learning=False)
    state.V, _ = lines.complete(state.U, state.part_columns, matmul_small(Q, R.T), state.c, turns=15)
    state.data = "block"
