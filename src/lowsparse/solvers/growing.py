"""Growth of L from a dense block of the data, as an attempt of the default method."""

from __future__ import annotations

import math
from copy import copy

import numpy as np
from numpy.typing import NDArray

from ..arrays import times
from ..geometry import basis
from ..lines import EXPLAINED, Lines
from ..robust.growth import NEAR, SCATTERED, Part, grown, seed_block, take_block
from ..sketch import rows_of
from ..sweeps import open_sweep
from .base import Problem
from .climbing import LadderState, begin_anew, climb, climb_from, is_exact, is_falling, is_moving, lines_of, run_pass

ROUNDS = 15  # of growth; what is not known by then is taken as it is
STEPS = 4  # passes on each rank of the climb but the last


def sow(problem: Problem, state: LadderState) -> bool:
    """Begin with the best of several small blocks; False if there is none."""
    M = state.views.block
    if M is None:
        return False
    best = best_block(problem, state, np.arange(M.shape[0]), np.arange(M.shape[1]))
    if best is None:
        return False
    best.rounds, best.careful = 0, 2
    vars(state).update(vars(best))
    return True


def best_block(
    problem: Problem, state: LadderState, rows: NDArray[np.intp], columns: NDArray[np.intp]
) -> LadderState | None:
    """Climb on several small blocks of these rows and columns; what came of the best of them."""
    assert state.views.block is not None  # or there would be no part
    M = take_block(state.views.block, rows, columns)
    near = state.grown % 2 == 0
    rng = np.random.default_rng([0x736F77, state.attempt, rows.size])
    best: LadderState | None = None
    for size in NEAR if near else SCATTERED:
        if not M.nnz:
            break
        some_rows, some_columns = seed_block(M, state.target, rng, size, near=near)
        if min(some_rows.size, some_columns.size) <= state.target:
            continue
        trial = copy(state)
        trial.data, trial.part_rows, trial.part_columns = "part", rows[some_rows], columns[some_columns]
        climb_from(trial, 1)
        while trial.U.shape[1] < trial.target or is_moving(trial):
            run_pass(trial)
            if is_exact(problem, trial):
                break
            if trial.U.shape[1] < trial.target and trial.since >= STEPS and not is_falling(trial.recent):
                climb(trial)
        if best is None or promise(trial) < promise(best):
            best = trial
    return best


def promise(state: LadderState) -> tuple[bool, float]:
    """By which blocks are compared: whether the rank is needed to explain it, and how well it is explained."""
    return state.U.shape[1] < state.target, state.noise


def grow(problem: Problem, state: LadderState) -> None:
    """The part with what it determines; when nothing more is determined, all rows and columns there are."""
    M, turned = state.views.block, state.views.block_by_row
    assert M is not None  # or there would be no part
    state.c = max(state.c, EXPLAINED * state.views.unit)
    part = Part(state.part_rows, state.part_columns, state.U, state.V)
    larger = None
    while larger is None and state.careful >= 0 and state.rounds < ROUNDS:
        larger = grown(M, turned, part, state.c, state.views.unit, state.careful)
        state.careful -= larger is None
    larger = larger or another_part(problem, state)
    if larger is not None:
        state.part_rows, state.part_columns = larger.rows, larger.columns
        state.U, R = basis(larger.U)
        state.V = times(larger.V, R.T)
        state.rounds += 1
    else:
        adopt_the_rest(state)
    state.c *= 3
    begin_anew(state)


def another_part(problem: Problem, state: LadderState) -> Part | None:
    """The part with one of the rows and columns that are left, which share too little with it or nothing at all."""
    M = state.views.block
    assert M is not None  # or there would be no part
    rows, columns = (
        np.setdiff1d(np.arange(total), known)
        for total, known in zip(M.shape, (state.part_rows, state.part_columns), strict=True)
    )
    k = state.U.shape[1]
    left = take_block(M, rows, columns).nnz if rows.size > 2 * k and columns.size > 2 * k else 0
    if state.rounds >= ROUNDS or left < 2 * k * (rows.size + columns.size):
        return None
    other = best_block(problem, state, rows, columns)
    if other is None or other.U.shape[1] != k or other.noise > 3 * max(state.noise, EXPLAINED * state.views.unit):
        return None
    state.careful = 2
    part = Part(state.part_rows, state.part_columns, state.U, state.V)
    return part.joined(Part(other.part_rows, other.part_columns, other.U, other.V))


def adopt_the_rest(state: LadderState) -> None:
    """From the part to all rows and columns of the block."""
    part, k = lines_of(state)[0].M, state.U.shape[1]
    free = 1 - k * (sum(part.shape) - k) / part.nnz  # of what the fit leaves to the residuals
    if free >= 0.5:
        state.part_noise = min(state.part_noise, state.noise / math.sqrt(free))
    M, turned = state.views.block, state.views.block_by_row
    assert M is not None  # or there would be no part
    backend, unit = state.views.problem.sweep.name, state.views.unit
    across = rows_of(turned, state.part_columns)
    Q, R = basis(state.V)
    lines = Lines(across, open_sweep(across, backend), unit, learning=False)
    C, _ = lines.complete(Q, state.part_rows, times(state.U, R.T), state.c, turns=15)
    state.U, R = basis(C)
    lines = Lines(M, open_sweep(M, backend), unit, learning=False)
    state.V, _ = lines.complete(state.U, state.part_columns, times(Q, R.T), state.c, turns=15)
    state.data = "some"
