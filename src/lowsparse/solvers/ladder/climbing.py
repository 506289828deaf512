"""From one rank to the next: start at a rank, add a component, and choose the rank by held-out entries."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...linalg.arrays import matmul_small, to_device_of
from ...linalg.grassmann import basis
from ...robust.regression import EFFICIENT
from ...sweeps import Float
from ..start import left_singular_vectors
from .state import LadderState, log_error

PASSES = 4  # least number at each rank of a climb but the last
GAIN = 0.01  # least decrease of mean log |e| for a rank to be better
LOOKAHEAD = 3  # ranks tried beyond the best, where the rank is to be chosen
CLEAR = 0.15  # decrease of log |e| by the last component of a rank that is clear-cut


def start_at(state: LadderState, rank: int) -> None:
    """Begin with the leading singular vectors of the clipped data."""
    M = state.matrix
    state.U = _leading_vectors(state, M.values, 3 * state.unit, rank)
    state.V = to_device_of(np.zeros((M.shape[1], rank)), state.U)
    state.c = 3 * state.unit
    state.restart_count()


def climb(state: LadderState) -> None:
    """Add the leading singular vector of the clipped residuals: one rank more."""
    e = state.lines[0].sweep.residual(state.U, state.V)
    state.c = state.loss_scale(e)
    u = _leading_vectors(state, -e, state.c / EFFICIENT, 1)
    state.U = basis(np.hstack([state.U, u - state.U @ (state.U.T @ u)]))[0]
    state.V = np.hstack([state.V, np.zeros_like(state.V[:, :1])])
    state.restart_count()


def _leading_vectors(state: LadderState, values: NDArray[Any], clip: float, k: int) -> Float:
    """The k leading left singular vectors of the data with these values, clipped."""
    columns, _ = state.lines
    M = columns.M
    clipped = M.with_values(np.clip(values, -clip, clip).astype(M.dtype))
    rng = np.random.default_rng([state.attempt, state.U.shape[1], k])
    return left_singular_vectors(clipped.open_sweep(columns.sweep.host), M.shape[0], k, rng)[0]


def is_rank_done(state: LadderState) -> bool:
    """Whether enough passes were made at this rank: the last one did not lower the noise by a fifth."""
    falling = len(state.recent) > 1 and state.recent[-1] < 0.8 * state.recent[-2]
    return state.passes >= PASSES and not falling


def next_rank(state: LadderState) -> None:
    """Climb; where the rank is to be chosen, only as long as a better one may follow."""
    if state.choosing:
        held = state.held_residual()
        if held.size:
            logs = log_error(held, state.unit)
            state.held_logs = np.vstack([state.held_logs.reshape(-1, held.size), logs])
            best = int(np.argmin(state.held_logs.mean(axis=1))) + 1
            if best == len(state.held_logs):
                state.best = replace(state.best, U=state.U, V=state.V)
            if len(state.held_logs) - best == LOOKAHEAD or len(state.held_logs) == state.target:
                _return_to_best_rank(state, best)
                return
        state.choosing = held.size > 0  # if nothing is held out, only an exact fit ends the climb
    if state.rank < state.target:
        climb(state)


def _return_to_best_rank(state: LadderState, best: int) -> None:
    """Take the smallest rank that predicts held-out entries as well as the best one, except for chance."""
    loss = state.held_logs[:best] - state.held_logs[best - 1]
    chance = 2 * loss.std(axis=1) / math.sqrt(loss.shape[1]) + GAIN
    k = state.target = int(np.argmax(loss.mean(axis=1) <= chance)) + 1
    Q, R = basis(state.best.V)
    left, sizes, right = np.linalg.svd(matmul_small(state.best.U, R.T), full_matrices=False)
    state.U, state.V = left[:, :k], Q @ (sizes[:k, None] * right[:k]).T
    state.choosing = False
    state.clear_cut = _is_clear_cut(state)
    state.restart_count()


def _is_clear_cut(state: LadderState) -> bool:
    """Whether the rank predicts far worse without its last component: most entries, or a few by much."""
    zero = log_error(state.views.sketch.held.values, state.unit)
    without, with_it = np.vstack([zero, state.held_logs])[state.target - 1 : state.target + 1]
    by_much = math.log(np.mean(np.exp(without)) / np.mean(np.exp(with_it)))
    return max(float(np.mean(without - with_it)), by_much) > CLEAR
