"""Attempts that grow L from a small dense block of the data, line by line."""

import math
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...linalg.arrays import host
from ...robust.growth import SEEDS, Part, climb_blocks, grow_part, prediction_error, seed_block, take_block
from ...robust.regression import EFFICIENT, EXPLAINED, SMALLEST
from ...robust.sketch import Sketch
from .state import Attempt, LadderState, orthonormalise, parameter_count

ROUNDS = 15  # of growth, after which all lines are added
MIN_FREEDOM = 0.7  # residual degrees of freedom per entry of a part, for its noise to be an estimate
# The most work of the climbs on blocks, in entries times rank³ (10⁹ take about a second on one core), or in passes over
# all entries if that is more.
MAX_WORK, MAX_PASSES = 2e9, 5.0
SAME_VALUE = 0.25  # share of one number (black pixels, say) in a part, from which its noise says nothing about others
LARGE, SLACK = 0.4, 1.5  # share of the entries above which a part bounds c, and the bound relative to its own c


def begin_with_block(state: LadderState) -> bool:
    """Begin with the best of several small blocks; False if there is none."""
    if not state.views.is_block_small:
        return False
    M, _ = state.views.block_and_transpose(state.untied)
    best = _best_block(state, np.arange(M.shape[0]), np.arange(M.shape[1]))
    if best is None:
        return False
    best.rounds, best.caution = 0, 2
    vars(state).update(vars(best))
    return True


def begin_with_known(state: LadderState, known: Sketch, attempt: Attempt) -> None:
    """Begin with what an attempt has found on another block, as far as this one has the same rows and columns."""
    sketch = state.views.sketch
    _, rows, state.part_rows = np.intersect1d(known.rows, sketch.rows, assume_unique=True, return_indices=True)
    _, columns, state.part_columns = np.intersect1d(
        known.columns, sketch.columns, assume_unique=True, return_indices=True
    )
    state.U, state.V = orthonormalise(host(attempt.U)[rows], host(attempt.V)[columns])
    state.noise, state.c = attempt.noise, max(EFFICIENT * attempt.noise, EXPLAINED * state.unit)
    extend_to_block(state)
    state.restart_count()


def _best_block(state: LadderState, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> LadderState | None:
    """Climb on several small blocks of these rows and columns; the state of the one that explains others best."""
    M = take_block(state.views.block_and_transpose(state.untied)[0], rows, columns)
    if not M.nnz:
        return None
    rng = np.random.default_rng([0x736F77, state.attempt, rows.size])
    unit, backend, k = state.unit, state.problem.sweep.host, state.target
    # where every second attempt leaves ties out, both kinds of attempt alternate between the seeds
    alternation = state.grown if state.views.ties is None else state.grown // 2
    seeds = [seed_block(M, k, rng, size, near=near) for near, size in SEEDS[alternation % 2]]
    seeds = [seed for seed in seeds if min(seed[0].size, seed[1].size) > k]
    blocks = [take_block(M, *seed) for seed in seeds]
    affordable = _affordable([block.nnz * k**3 for block in blocks], M.nnz * k**2)
    seeds, blocks = seeds[affordable], blocks[affordable]
    if not seeds:
        return None
    fits = climb_blocks(blocks, k, unit, rng, backend)
    transpose = M.T
    parts = [Part(*seed, fit.U, fit.V) for seed, fit in zip(seeds, fits, strict=True)]
    errors = [
        prediction_error(M, transpose, part, fit.noise, unit, backend) for part, fit in zip(parts, fits, strict=True)
    ]
    chosen = int(np.argmin(np.nan_to_num(errors, nan=np.inf)))
    if not math.isfinite(fits[chosen].noise):
        return None
    best, part, noise = copy(state), parts[chosen], fits[chosen].noise
    best.view, best.part_rows, best.part_columns = "part", rows[part.rows], columns[part.columns]
    best.U, best.V, best.noise, best.c = part.U, part.V, noise, max(EFFICIENT * noise, SMALLEST * unit)
    best.restart_count()
    return best


def _affordable(works: list[int], work_of_pass: int) -> slice:
    """Which blocks to climb on: all, some of each kind, or none if the rank is so large that one takes too long."""
    most = max(MAX_WORK, MAX_PASSES * work_of_pass)
    count = int(most * len(works) / max(sum(works), 1))
    return slice(None, None, -(-len(works) // count)) if count else slice(0)


def grow(state: LadderState) -> None:
    """Add the lines that the part determines; when there are no more of them, all rows and columns of the block."""
    M, transpose = state.views.block_and_transpose(state.untied)
    _record_noise(state)
    state.c = max(state.c, EXPLAINED * state.unit)
    h = min(parameter_count(state.matrix, state.rank) / state.matrix.nnz, 0.5)
    c = state.c * math.sqrt(1 + h) / (1 - h)  # the part is fitted closely, other lines are predicted
    part = Part(state.part_rows, state.part_columns, state.U, state.V)
    larger = None
    while larger is None and state.caution >= 0 and state.rounds < ROUNDS:
        larger = grow_part(M, transpose, part, c, state.unit, state.caution)
        state.caution -= larger is None
    larger = larger or _with_another_part(state, part)
    if larger is not None:
        state.part_rows, state.part_columns = larger.rows, larger.columns
        state.U, state.V = orthonormalise(larger.U, larger.V)
        state.rounds += 1
        state.c *= 3
    else:
        extend_to_block(state)
    state.restart_count()


def _with_another_part(state: LadderState, part: Part) -> Part | None:
    """The part together with one in the remaining rows and columns, which hardly share entries with it."""
    M, _ = state.views.block_and_transpose(state.untied)
    rows, columns = (
        np.setdiff1d(np.arange(total), known) for total, known in zip(M.shape, (part.rows, part.columns), strict=True)
    )
    k = state.rank
    left = take_block(M, rows, columns).nnz if min(rows.size, columns.size) > 2 * k else 0
    if state.rounds >= ROUNDS or left < 2 * k * (rows.size + columns.size):
        return None
    other = _best_block(state, rows, columns)
    if other is None or other.rank != k or other.noise > 3 * max(state.noise, EXPLAINED * state.unit):
        return None
    state.caution = 2
    return part.extended(other.part_rows, other.U, other.part_columns, other.V)


def _record_noise(state: LadderState) -> None:
    """Keep the least noise of a part; not where it may consist of suspicious ties, which are of low rank."""
    part = state.matrix
    freedom = 1 - parameter_count(part, state.rank) / part.nnz
    if freedom >= MIN_FREEDOM and (state.untied or state.views.ties is None):
        noise = state.noise / math.sqrt(freedom)
        if noise < state.part_noise and _largest_share(host(part.values)) < SAME_VALUE:
            state.part_noise = noise
        if part.nnz > LARGE * state.views.block_and_transpose(state.untied)[0].nnz:
            state.max_c = SLACK * EFFICIENT * max(noise, EXPLAINED * state.unit)


def _largest_share(values: NDArray[np.floating[Any]]) -> float:
    """The share of the most frequent number."""
    return float(np.unique(values, return_counts=True)[1].max() / values.size)


def extend_to_block(state: LadderState) -> None:
    """Extend L from the part to all rows and columns of the block."""
    M, transpose = state.views.block_and_transpose(state.untied)
    rows = state.views.regression(transpose.take_rows(state.part_columns), learning=False)
    Q, C = orthonormalise(state.V, state.U)
    C, _ = rows.complete(Q, state.part_rows, C, state.c, n_reweight=15)
    state.U, V = orthonormalise(C, Q)
    columns = state.views.regression(M, learning=False)
    state.V, _ = columns.complete(state.U, state.part_columns, V, state.c, n_reweight=15)
    state.view = "block"
