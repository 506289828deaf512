"""Growth of L from a dense block of the data, as an attempt of the default method."""

from __future__ import annotations

import math
from copy import copy

import numpy as np
from numpy.typing import NDArray

from ..linalg.arrays import times
from ..linalg.grassmann import basis
from ..robust.growth import (
    SEEDS,
    Part,
    beyond,
    grown,
    seed_block,
    take_block,
)
from ..robust.regression import EFFICIENT, EXPLAINED, SMALLEST, Lines
from ..robust.sketch import rows_of
from ..robust.small_blocks import climb_blocks
from ..sweeps import open_sweep
from .base import Problem
from .climbing import LadderState, begin_anew, lines_of

ROUNDS = 15  # of growth; what is not known by then is taken as it is
FREE = 0.7  # of the entries of a part, at least, that are more than its parameters: else its noise tells nothing
LARGE = 0.4  # share of the entries: c stays within reach of the noise of a part that has more,
WIDER = 1.5  # this factor


def begin_with_block(problem: Problem, state: LadderState) -> bool:
    """Begin with the best of several small blocks; False if there is none."""
    if state.views.block is None:
        return False
    M, _ = state.views.block_and_turned(state.untied)
    best = best_block(problem, state, np.arange(M.shape[0]), np.arange(M.shape[1]))
    if best is None:
        return False
    best.rounds, best.careful = 0, 2
    vars(state).update(vars(best))
    return True


def best_block(
    problem: Problem, state: LadderState, rows: NDArray[np.intp], columns: NDArray[np.intp]
) -> LadderState | None:
    """Climb on several small blocks of these rows and columns; what came of the one that explains others best."""
    M = take_block(state.views.block_and_turned(state.untied)[0], rows, columns)
    if not M.nnz:
        return None
    rng = np.random.default_rng([0x736F77, state.attempt, rows.size])
    unit, backend, k = state.views.unit, problem.sweep.name, state.target
    # where every second attempt leaves suspicious numbers out, those that do and those that do not take turns
    turn = state.grown if state.views.ties is None else state.grown // 2
    places = [
        (some_rows, some_columns)
        for near, size in SEEDS[turn % 2]
        for some_rows, some_columns in [seed_block(M, k, rng, size, near=near)]
        if min(some_rows.size, some_columns.size) > k
    ]
    if not places:
        return None
    fits = climb_blocks([take_block(M, *place) for place in places], k, unit, rng, backend)
    turned = M.T
    parts = [Part(*place, fit.U, fit.V) for place, fit in zip(places, fits, strict=True)]
    left = [beyond(M, turned, part, fit.noise, unit, backend) for part, fit in zip(parts, fits, strict=True)]
    at = int(np.argmin(left))
    best, part, noise = copy(state), parts[at], fits[at].noise
    best.data, best.part_rows, best.part_columns = "part", rows[part.rows], columns[part.columns]
    best.U, best.V, best.noise, best.c = part.U, part.V, noise, max(EFFICIENT * noise, SMALLEST * unit)
    begin_anew(best)
    return best


def grow(problem: Problem, state: LadderState) -> None:
    """The part with what it determines; when nothing more is determined, all rows and columns there are."""
    M, turned = state.views.block_and_turned(state.untied)
    _note_noise(state)
    state.c = max(state.c, EXPLAINED * state.views.unit)
    here, k = lines_of(state)[0].M, state.U.shape[1]
    h = min(k * (sum(here.shape) - k) / here.nnz, 0.5)  # parameters / entries
    c = state.c * math.sqrt(1 + h) / (1 - h)  # the part is fitted closely, others are predicted
    part = Part(state.part_rows, state.part_columns, state.U, state.V)
    larger = None
    while larger is None and state.careful >= 0 and state.rounds < ROUNDS:
        larger = grown(M, turned, part, c, state.views.unit, state.careful)
        state.careful -= larger is None
    larger = larger or another_part(problem, state)
    if larger is not None:
        state.part_rows, state.part_columns = larger.rows, larger.columns
        state.U, R = basis(larger.U)
        state.V = times(larger.V, R.T)
        state.rounds += 1
        state.c *= 3
    else:
        adopt_the_rest(state)
    begin_anew(state)


def another_part(problem: Problem, state: LadderState) -> Part | None:
    """The part with one of the rows and columns that are left, which share too little with it or nothing at all."""
    M, _ = state.views.block_and_turned(state.untied)
    rows, columns = (
        np.setdiff1d(np.arange(total), known)
        for total, known in zip(M.shape, (state.part_rows, state.part_columns), strict=True)
    )
    k = state.U.shape[1]
    left = take_block(M, rows, columns).nnz if min(rows.size, columns.size) > 2 * k else 0
    if state.rounds >= ROUNDS or left < 2 * k * (rows.size + columns.size):
        return None
    other = best_block(problem, state, rows, columns)
    if other is None or other.U.shape[1] != k or other.noise > 3 * max(state.noise, EXPLAINED * state.views.unit):
        return None
    state.careful = 2
    part = Part(state.part_rows, state.part_columns, state.U, state.V)
    return part.joined(Part(other.part_rows, other.part_columns, other.U, other.V))


def _note_noise(state: LadderState) -> None:
    """Remember the least noise of a part; not where it may consist of suspicious numbers, which are of low rank."""
    part, k = lines_of(state)[0].M, state.U.shape[1]
    free = 1 - k * (sum(part.shape) - k) / part.nnz  # of what the fit leaves to the residuals
    if free >= FREE and (state.untied or state.views.untied is None):
        noise = state.noise / math.sqrt(free)
        state.part_noise = min(state.part_noise, noise)
        if part.nnz > LARGE * state.views.block_and_turned(state.untied)[0].nnz:
            state.widest = WIDER * EFFICIENT * max(noise, EXPLAINED * state.views.unit)


def adopt_the_rest(state: LadderState) -> None:
    """From the part to all rows and columns of the block."""
    M, turned = state.views.block_and_turned(state.untied)
    backend, unit = state.views.problem.sweep.name, state.views.unit
    across = rows_of(turned, state.part_columns)
    Q, R = basis(state.V)
    lines = Lines(across, open_sweep(across, backend), unit, learning=False)
    C, _ = lines.complete(Q, state.part_rows, times(state.U, R.T), state.c, turns=15)
    state.U, R = basis(C)
    lines = Lines(M, open_sweep(M, backend), unit, learning=False)
    state.V, _ = lines.complete(state.U, state.part_columns, times(Q, R.T), state.c, turns=15)
    state.data = "some"
