"""Steps from one L to the next at the same rank: passes of robust regression, and joint steps in both factors."""

import math

import numpy as np
from numpy.typing import NDArray

from ...linalg.arrays import gram, host, inner, to_device_of
from ...linalg.grassmann import relative_change
from ...linalg.scale import CLOSEST, CONSISTENT, CONSISTENT_CLOSEST, CONSISTENT_LOW, LOW
from ...robust.joint import joint_step
from ...robust.regression import EFFICIENT, SMALLEST, WITHIN
from ...sweeps import Float, Magnitudes, min_support
from .state import SLOW, LadderState, orthonormalise, parameter_count

PACE, SLOW_PACE = 0.3, 0.6  # least c relative to its previous value, and in the slow attempt
# The same where entries would be left behind: c, in units, is less than SMALL_C, and more than the share BEHIND of the
# residuals is within reach of c but more than BULK times the noise.
CAUTIOUS_PACE, SMALL_C, BEHIND, BULK = 0.8, 1e-4, 0.01, 10.0
BETWEEN = 4  # passes between two rounds of growth
JOINT_STEPS, JOINT_MAX_ITER = 25, 40  # joint steps in a series, and iterations of conjugate gradients in each
WIDE = (0.03, 0.3)  # c in units, at the start of a first and of a second series of joint steps
CLOSE = 6  # entries per parameter, below which residuals are too small to estimate the noise
MIN_HELD_OUT = 200  # number of held-out entries that is enough to compare attempts
PATIENCE, SETTLED = 5, 0.98  # passes, and the factor by which the noise must fall in these
GAINING = 0.97  # largest noise after a pass, relative to that before, for over-relaxed steps
SAMPLED = 4000  # rows by which the change of L is measured
RESTLESS = 0.01  # share of the rows (with few entries, or two equally good fits) that may alternate
SLOWEST = 0.95  # largest factor by which the error is assumed to fall in a pass; it bounds ω - 1 by 0.63


def run_pass(state: LadderState) -> None:
    """Regress the columns, then the rows, shrunk by the noise and over-relaxed where that helps."""
    columns, rows = state.lines
    n_reweight = 2 if state.passes < 3 and state.view != "whole" else 1
    noise = _noise_to_shrink_by(state)
    U, V = state.U, state.V
    by_column = columns.refit(U, V, state.c, n_reweight, noise=noise)
    dV = (1 + state.relaxation) * (by_column.V - V)
    Q, C = orthonormalise(V + dV, U)
    by_row = rows.refit(Q, C, state.c, n_reweight, noise=noise)
    dC = (1 + state.relaxation) * (by_row.V - C)
    state.U, state.V = orthonormalise(C + dC, Q)
    _follow_noise(state, by_row.magnitudes)
    # only lines that are determined converge
    determined = (fitted.inside >= min_support(U.shape[1]) for fitted in (by_row, by_column))
    change, typical = _change_of_pass(U, V, dV, dC, Q, *determined)
    state.decay = typical / state.typical_change if state.typical_change > 0 else 0.0
    relaxed = state.passes > 3 and (state.view == "whole" or state.noise < GAINING * state.recent[-2])
    state.relaxation = relaxation(state.relaxation, state.decay) if relaxed else 0.0
    state.change, state.typical_change = change, typical


def _follow_noise(state: LadderState, residuals: Magnitudes) -> None:
    """Set the noise to the scale of these residuals, and let c follow it step by step."""
    state.noise = CONSISTENT * residuals.quantile(0.5)
    if state.mostly_wrong:
        state.noise = CONSISTENT_CLOSEST * residuals.quantile(CLOSEST)
    elif state.view == "part":  # more than half of its entries may be wrong
        state.noise = min(state.noise, CONSISTENT_LOW * residuals.quantile(LOW))
    pace = SLOW_PACE if state.attempt == SLOW else PACE
    within, bulk = WITHIN * state.c, BULK * state.noise
    if state.c < SMALL_C * state.unit and residuals.share(within) - residuals.share(bulk) > BEHIND:
        pace = CAUTIOUS_PACE  # some residuals fall slowly: with a smaller c they would be taken for outliers
    state.c = max(min(max(EFFICIENT * state.noise, pace * state.c), state.max_c), SMALLEST * state.unit)
    state.passes += 1
    state.recent = (*state.recent, state.noise)[-PATIENCE - 1 :]


def _noise_to_shrink_by(state: LadderState) -> float:
    """The noise; with few entries per parameter, where fits are too close, a larger one by the held-out entries.

    Zero for a new component, which has no size yet, and where there are as many parameters as entries.
    """
    M, k = state.matrix, state.rank
    if not state.shrinks or M.nnz <= parameter_count(M, k) or not (state.passes or state.view == "whole"):
        return 0.0
    if state.view == "part" or M.nnz > CLOSE * k * sum(M.shape):
        return state.noise
    if state.view == "whole":
        return max(state.noise, state.held_out) if math.isfinite(state.held_out) else state.noise
    held = state.held_residual()
    return state.noise if held.size < MIN_HELD_OUT else max(state.noise, math.sqrt(state.noise * state.scale(held)))


def is_moving(state: LadderState) -> bool:
    """Whether further passes at this rank are worthwhile; for a part, a few between two rounds of growth."""
    if state.view == "part" and state.rounds and state.passes >= BETWEEN:
        return False
    return state.passes < 60 and (len(state.recent) <= PATIENCE or state.recent[-1] < SETTLED * max(state.recent))


def widened(state: LadderState) -> float:
    """The c with which passes go on after an exact fit, so that lines which have changed are not lost."""
    return max(10 * state.c, 1e-3 * state.unit)


def begin_joint_steps(state: LadderState) -> None:
    """Change both factors at once from here on, from a wider c."""
    state.c = max(10 * EFFICIENT * state.noise, WIDE[state.joint_runs] * state.unit)
    state.joint_steps, state.joint_runs, state.damping = JOINT_STEPS, state.joint_runs + 1, 1e-3
    state.restart_count()


def run_joint_step(state: LadderState) -> None:
    """Take one Gauss-Newton step in both factors."""
    M, _ = state.views.block_and_transpose(state.untied)
    sweep = M.open_sweep(state.problem.sweep.host)
    U, V, c = host(state.U), host(state.V), state.c
    A, B, state.damping = joint_step(M, sweep, U, V, c, min(state.noise, c / EFFICIENT), state.damping, JOINT_MAX_ITER)
    state.change = relative_change(U, V, A, B) if V.any() else math.inf
    state.U, state.V = (to_device_of(F, state.U) for F in orthonormalise(A, B))
    state.noise = state.scale(sweep.residual(A, B))
    if state.change < 0.05:  # what couples the parts has converged
        state.c = max(EFFICIENT * state.noise, 0.5 * c, SMALLEST * state.unit)
    state.joint_steps -= 1


def end_joint_steps_if_converged(state: LadderState) -> None:
    """Go on with passes once L has converged at the scale of its residuals."""
    if state.change < 1e-3 and state.c <= max(1.1 * EFFICIENT * state.noise, 2 * SMALLEST * state.unit):
        state.joint_steps = 0
        state.restart_count()


def _change_of_pass(
    U: Float, V: Float, dV: Float, dC: Float, Q: Float, rows: NDArray[np.bool_], columns: NDArray[np.bool_]
) -> tuple[float, float]:
    """‖U dVᵀ + dC Qᵀ‖ / ‖U Vᵀ‖, the change of L = U Vᵀ by a pass; and the same without the few rows that change most.

    Only these rows and columns count, unless there are none; many rows are sampled at equal distances.
    """
    step = -(-len(rows) // SAMPLED)
    counted = rows[::step] if rows[::step].any() and columns.any() else np.ones(len(rows[::step]), bool)
    u, dc = (host(A[::step])[counted] for A in (U, dC))
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
    """The best ω - 1 of over-relaxation, given the current one and the decay λ of the changes of L.

    As in successive over-relaxation, λ is least, ω - 1, for ω = 2 / (1 + √(1 - ρ)), where ρ is the decay for ω = 1. For
    a smaller ω, (λ + ω - 1)² = λ ω² ρ; for a larger one λ = ω - 1 says no more than that ω is too large.

    >>> round(relaxation(0.0, 0.5), 3), round(relaxation(0.1, 0.25), 3), round(relaxation(0.4, 0.4), 3)
    (0.172, 0.129, 0.28)
    """
    if not 1.1 * current < decay < 1:
        return 0.7 * current
    rate = (decay + current) ** 2 / (decay * (1 + current) ** 2)
    return 2 / (1 + math.sqrt(1 - min(rate, SLOWEST))) - 1
