"""Steps from one L to the next at the same rank: passes of robust regression, and joint steps in both factors."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...linalg.arrays import gram, host, inner, matmul_small, to_device_of
from ...linalg.grassmann import basis, relative_change
from ...linalg.scale import CONSISTENT, CONSISTENT_LOW, LOW, robust_scale
from ...robust.joint import joint_step
from ...robust.regression import EFFICIENT, SMALLEST, WITHIN
from ...sweeps import Float, Magnitudes, enough
from .state import SLOW, LadderState, parameter_count

PACE = (0.3, 0.6, 0.8)  # least c over its previous value; in the slow attempt; where entries would be left behind:
CLOSELY = 1e-4  # c, in units, is less than this,
BULK = 10.0  # and residuals of more than this times the noise but within reach of c
BEHIND = 0.01  # are more than this share of the entries
BETWEEN = 4  # passes between two rounds of growth
JOINT = (25, 40)  # joint steps, and iterations of each
WIDE = (0.03, 0.3)  # c at which they begin, in units; the second if the first were not enough
CLOSE = 6  # entries per parameter below which residuals are too small to estimate the noise
MIN_HELD_OUT = 200  # held-out entries that are enough to compare attempts
PATIENCE = 5  # passes in which the noise must fall by the factor SETTLED
SETTLED = 0.98
GAINING = 0.97  # largest noise after a pass over that before, for steps to go beyond the regressions
SAMPLED = 4000  # rows by which the change of L is measured
RESTLESS = 0.01  # share of the rows, with few entries or two fits that are alike, that may go back and forth
SLOWEST = 0.95  # largest factor by which the error is assumed to fall in a pass; it bounds ω - 1 by 0.63


def run_pass(state: LadderState) -> None:
    """Regress the columns, then the rows, shrunk by the noise; go beyond the regressions where that helps."""
    columns, rows = state.lines
    turns = 2 if state.passes < 3 and state.data != "whole" else 1
    noise = noise_to_shrink_by(state)
    U, V = state.U, state.V
    by_column = columns.refit(U, V, state.c, turns, noise=noise)
    dV = (1 + state.relaxation) * (by_column.V - V)
    Q, R = basis(V + dV)
    C = matmul_small(U, R.T)
    by_row = rows.refit(Q, C, state.c, turns, noise=noise)
    dC = (1 + state.relaxation) * (by_row.V - C)
    state.U, R = basis(C + dC)
    state.V = matmul_small(Q, R.T)
    _follow_noise(state, by_row.before)
    # only lines that are determined come to rest
    determined = (fitted.inside >= enough(U.shape[1]) for fitted in (by_row, by_column))
    change, typical = change_of_pass(U, V, dV, dC, Q, *determined)
    state.decay = typical / state.typical_change if state.typical_change > 0 else 0.0
    relaxed = state.passes > 3 and (state.data == "whole" or state.noise < GAINING * state.recent[-2])
    state.relaxation = relaxation(state.relaxation, state.decay) if relaxed else 0.0
    state.change, state.typical_change = change, typical


def _follow_noise(state: LadderState, residuals: Magnitudes) -> None:
    """Set the noise to the scale of these residuals, and let c follow it step by step."""
    state.noise = CONSISTENT * residuals.quantile(0.5)
    if state.data == "part":  # more than half of its entries may be wrong
        state.noise = min(state.noise, CONSISTENT_LOW * residuals.quantile(LOW))
    pace = PACE[1] if state.attempt == SLOW else PACE[0]
    within, bulk = WITHIN * state.c, BULK * state.noise
    if state.c < CLOSELY * state.unit and residuals.share(within) - residuals.share(bulk) > BEHIND:
        pace = PACE[2]  # some residuals fall too, but slowly: with a smaller c they would be taken for outliers
    state.c = max(min(max(EFFICIENT * state.noise, pace * state.c), state.max_c), SMALLEST * state.unit)
    state.passes += 1
    state.recent = (*state.recent, state.noise)[-PATIENCE - 1 :]


def noise_to_shrink_by(state: LadderState) -> float:
    """The noise; with few entries per parameter, where fits are too close, more of it by the held-out entries.

    A new component has no size yet, so nothing is shrunk; nor where there are as many parameters as entries.
    """
    M, k = state.matrix, state.rank
    if not state.shrinks or M.nnz <= parameter_count(M, k) or not (state.passes or state.data == "whole"):
        return 0.0
    if state.data == "part" or M.nnz > CLOSE * k * sum(M.shape):
        return state.noise
    if state.data == "whole":
        return max(state.noise, state.held_out) if math.isfinite(state.held_out) else state.noise
    held = state.views.sketch.held_residual(state.U, state.V)
    return state.noise if held.size < MIN_HELD_OUT else max(state.noise, math.sqrt(state.noise * robust_scale(held)))


def is_moving(state: LadderState) -> bool:
    """Whether further passes at this rank are worth while; of a part, a few between two rounds of growth."""
    if state.data == "part" and state.rounds and state.passes >= BETWEEN:
        return False
    return state.passes < 60 and (len(state.recent) <= PATIENCE or state.recent[-1] < SETTLED * max(state.recent))


def begin_joint_steps(state: LadderState) -> None:
    """Move both factors at once from here on, from a wider c."""
    state.c = max(10 * EFFICIENT * state.noise, WIDE[state.joint_runs] * state.unit)
    state.joint_steps, state.joint_runs, state.damping = JOINT[0], state.joint_runs + 1, 1e-3
    state.restart_count()


def run_joint_step(state: LadderState) -> None:
    """Take one Gauss-Newton step in both factors."""
    M, _ = state.views.block_and_transpose(state.untied)
    sweep = M.open_sweep(state.problem.sweep.host)
    U, V, c = host(state.U), host(state.V), state.c
    A, B, state.damping = joint_step(M, sweep, U, V, c, min(state.noise, c / EFFICIENT), state.damping, JOINT[1])
    size = np.linalg.norm(V)  # U is orthonormal
    state.change = relative_change(U, V, A, B) if size > 0 else math.inf
    Q, R = basis(A)
    state.U, state.V = to_device_of(Q, state.U), to_device_of(B @ R.T, state.U)
    state.noise = robust_scale(sweep.residual(A, B))
    if state.change < 0.05:  # what couples the parts has come to rest
        state.c = max(EFFICIENT * state.noise, 0.5 * c, SMALLEST * state.unit)
    state.joint_steps -= 1


def end_joint_steps_at_rest(state: LadderState) -> None:
    """Go on with passes once L has come to rest at the scale of its residuals."""
    if state.change < 1e-3 and state.c <= max(1.1 * EFFICIENT * state.noise, 2 * SMALLEST * state.unit):
        state.joint_steps = 0
        state.restart_count()


def change_of_pass(
    U: Float, V: Float, dV: Float, dC: Float, Q: Float, rows: NDArray[np.bool_], columns: NDArray[np.bool_]
) -> tuple[float, float]:
    """‖U dVᵀ + dC Qᵀ‖ / ‖U Vᵀ‖, the change of L = U Vᵀ by a pass; and the same without the few rows that change most.

    Only these rows and columns count, unless there are none; of many rows, some at equal distances.
    """
    step = -(-len(rows) // SAMPLED)
    which = rows[::step] if rows[::step].any() and columns.any() else np.ones(len(rows[::step]), bool)
    u, dc = (host(A[::step])[which] for A in (U, dC))
    if columns.any() and not columns.all():
        j = to_device_of(columns, U)
        V, dV, Q = V[j], dV[j], Q[j]
    size = float(np.sum((u @ gram(V)) * u))
    squares = np.sum((u @ gram(dV) + 2 * (dc @ inner(Q, dV))) * u + (dc @ gram(Q)) * dc, axis=1)
    if not size > 0:
        change = math.inf if dV.any() or dC.any() else 0.0
        return change, change
    kept = math.ceil((1 - RESTLESS) * squares.size)
    smallest = np.partition(squares, kept - 1)[:kept]
    total, typical = (math.sqrt(max(float(some.sum()), 0.0) / size) for some in (squares, smallest))
    return total, typical


def relaxation(current: float, decay: float) -> float:
    """The best ω - 1, how far to go beyond the regressions, given the current one and the decay λ of the changes of L.

    At best λ = ω - 1, for ω = 2 / (1 + √(1 - ρ)), where ρ is the decay without over-relaxation. With too large an ω
    λ = ω - 1 too, and says no more than that. Otherwise (λ + ω - 1)² = λ ω² ρ.

    >>> round(relaxation(0.0, 0.5), 3), round(relaxation(0.1, 0.25), 3), round(relaxation(0.4, 0.4), 3)
    (0.172, 0.129, 0.28)
    """
    if not 1.1 * current < decay < 1:
        return 0.7 * current
    rate = (decay + current) ** 2 / (decay * (1 + current) ** 2)
    return 2 / (1 + math.sqrt(1 - min(rate, SLOWEST))) - 1
