"""Passes and climbs: how the default method gets from one L to the next, on whatever data it is working on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..linalg.arrays import across, beside, gram, host, times
from ..linalg.grassmann import basis, relative_change
from ..linalg.scale import CONSISTENT, CONSISTENT_LOW, LOW, robust_scale
from ..robust.joint import joint_step
from ..robust.regression import EFFICIENT, SMALLEST, WITHIN, Lines
from ..sweeps import Float, Magnitudes, enough, open_sweep
from .base import Problem, State, nothing
from .shrinking import PathState
from .start import left_singular_vectors
from .views import Views

SLOW = 2  # the attempt that climbs slowly; those after it grow
PACE = (0.3, 0.6, 0.8)  # c / its previous value, at least; slowly; and more slowly, if otherwise some are left behind:
CLOSELY = 1e-4  # where c, in units, is less than this,
BULK = 10.0  # residuals of more than this times the noise but within reach of c
BEHIND = 0.01  # are of more than this share of the entries
BETWEEN = 4  # passes between two rounds of growth
JOINT = (25, 40)  # joint steps, and iterations of each
WIDE = (0.03, 0.3)  # c at which they begin, in units; the second if the first were not enough
CLOSE = 6  # entries for each parameter, below which residuals are too small to tell the noise by
TELLING = 200  # entries kept aside by which attempts are compared
PATIENCE = 5  # passes in which the scale must fall by the factor SETTLED
SETTLED = 0.98
GAINING = 0.97  # the scale after a pass / that before, at most, where steps go beyond the regressions
SAMPLED = 4000  # rows by which the change of L is told
RESTLESS = 0.01  # share of the rows, with few entries or two fits that are alike, that may go back and forth
SLOWEST = 0.95  # factor by which the error is taken to fall in a pass: steps beyond a regression are at most 0.63 of it


@dataclass(kw_only=True)
class LadderState(State):
    """L = U Vᵀ on `data` (see `Views`), and what earlier attempts have found."""

    scratch: ClassVar[tuple[str, ...]] = ("views",)

    views: Views
    data: str = "some"
    untied: bool = False  # numbers that are suspiciously often repeated are left out,
    repeated: float = 0.0  # which are this share
    U: Float = field(default_factory=nothing)  # a row for each row of the data
    V: Float = field(default_factory=nothing)  # a row for each column
    c: float = 0.0
    noise: float = np.inf  # the robust scale of the residuals
    target: int = 0  # rank
    attempt: int = 0
    made: tuple[int, ...] = ()  # attempts so far, and this one
    generous: float = 1.0  # how much larger the block is than it need be
    since: int = 0  # passes on this rank
    looks: int = 0
    changed: float = np.inf  # lines by the last look
    shrinks: bool = False  # whether passes shrink as the noise asks for, be it the noise or what is still to be fitted
    beyond: float = 0.0  # how far the next steps go beyond where the regressions end, in steps
    change: float = np.inf  # of L by the last pass, relatively,
    change_of_most: float = np.inf  # and without the few rows that change most
    falls: float = 0.0  # that / the one before
    recent: tuple[float, ...] = ()  # the noise after the last passes
    # where L grows from a part of the data
    part_rows: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    part_columns: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    rounds: int = 0  # of growth
    part_noise: float = np.inf  # the least that a part with enough entries was left with
    widest: float = np.inf  # c, at most, where a large part was explained so well
    careful: int = 2  # how many entries a line must have in the part to be taken (see `grown`)
    # joint steps
    joint: int = 0  # so many are left
    joined: int = 0  # how often there were some in this attempt
    damping: float = 0.0
    open: float = 0.0  # share of the entries of L, rows and columns with few left out, that are not determined
    # the best attempt so far
    best_U: Float = field(default_factory=nothing)
    best_V: Float = field(default_factory=nothing)
    best_noise: float = np.inf
    best_open: float = 0.0
    best_widest: float = np.inf
    best_given_up: float = 0.0  # share of the lines that it does not explain
    best_too_high: bool = False  # the rank may be: it is exact, and a component is or was there for few rows or columns
    best_fine: bool = False  # it predicts what was kept aside, and ignores nothing
    grown: int = 0  # attempts that grew L
    seen: Float = field(default_factory=lambda: np.zeros(0))  # what the best attempt leaves of what it is judged by
    agreed: bool = False  # another attempt found the same as the best
    scores: tuple[float, ...] = ()  # of all attempts that have ended
    held_out: float = np.inf  # robust scale of the residuals of what was kept aside, in the end
    next_noise: float = 0.0  # the noise with one rank more, if that is far less
    # where the rank is to be chosen
    choosing: bool = False
    held: Float = field(default_factory=nothing)  # log |e| of what was kept aside, a row for each rank so far
    clear_cut: bool = False  # one component less is much worse
    path: PathState = field(default_factory=PathState)  # of shrinkage, the attempt of another kind


def lines_of(state: LadderState) -> tuple[Lines, Lines]:
    """The columns and rows that passes run over."""
    if state.data == "part":
        return state.views.part(state.part_rows, state.part_columns, state.untied)
    data = "untied" if state.untied and state.data == "some" else state.data
    return state.views.columns(data), state.views.rows(data)


def width_for(state: LadderState, e: Float) -> float:
    """c for these residuals."""
    return max(EFFICIENT * robust_scale(e), SMALLEST * state.views.unit)


def begin_anew(state: LadderState) -> None:
    """Passes are counted from here, and the scale is followed from here."""
    state.since, state.recent, state.beyond = 0, (), 0.0


def leading_vectors(state: LadderState, values: NDArray[Any], clip: float, k: int) -> Float:
    """The k leading left singular vectors of the data with these values, clipped."""
    columns, _ = lines_of(state)
    M = columns.M
    clipped = M.with_values(np.clip(values, -clip, clip).astype(M.dtype))
    rng = np.random.default_rng([state.attempt, state.U.shape[1], k])
    return left_singular_vectors(open_sweep(clipped, columns.sweep.name), M.shape[0], k, rng)[0]


def climb_from(state: LadderState, rank: int) -> None:
    """Begin with the leading singular vectors of the data, clipped."""
    columns, _ = lines_of(state)
    state.U = leading_vectors(state, columns.M.values, 3 * state.views.unit, rank)
    state.V = beside(np.zeros((columns.M.shape[1], rank)), state.U)
    state.c = 3 * state.views.unit
    begin_anew(state)


def climb(state: LadderState) -> None:
    """One rank more."""
    e = lines_of(state)[0].sweep.residual(state.U, state.V)
    state.c = width_for(state, e)
    u = leading_vectors(state, -e, state.c / EFFICIENT, 1)
    state.U = basis(np.hstack([state.U, u - state.U @ (state.U.T @ u)]))[0]
    state.V = np.hstack([state.V, np.zeros_like(state.V[:, :1])])
    begin_anew(state)


def run_pass(state: LadderState) -> None:
    """Regress the columns, then the rows, shrunk as the noise asks for; go on beyond where that helps."""
    columns, rows = lines_of(state)
    turns = 2 if state.since < 3 and state.data != "whole" else 1
    noise = noise_to_shrink_by(state)
    U, V = state.U, state.V
    by_column = columns.again(U, V, state.c, turns, noise=noise)
    dV = (1 + state.beyond) * (by_column.V - V)
    Q, R = basis(V + dV)
    C = times(U, R.T)
    fitted = rows.again(Q, C, state.c, turns, noise=noise)
    dC = (1 + state.beyond) * (fitted.V - C)
    state.U, R = basis(C + dC)
    state.V = times(Q, R.T)
    state.noise = CONSISTENT * fitted.before.quantile(0.5)
    if state.data == "part":  # more than half of its entries may be wrong
        state.noise = min(state.noise, CONSISTENT_LOW * fitted.before.quantile(LOW))
    pace = PACE[1] if state.attempt == SLOW else PACE[0]
    if state.c < CLOSELY * state.views.unit and is_leaving_some_behind(state, fitted.before):
        pace = PACE[2]
    state.c = max(min(max(EFFICIENT * state.noise, pace * state.c), state.widest), SMALLEST * state.views.unit)
    state.since += 1
    state.recent = (*state.recent, state.noise)[-PATIENCE - 1 :]
    # only lines that are determined come to rest
    determined = (f.inside >= enough(U.shape[1]) for f in (fitted, by_column))
    change, most = change_of_pass(U, V, dV, dC, Q, *determined)
    state.falls = most / state.change_of_most if state.change_of_most > 0 else 0.0
    relaxed = state.since > 3 and (state.data == "whole" or state.noise < GAINING * state.recent[-2])
    state.beyond = relaxation(state.beyond, state.falls) if relaxed else 0.0
    state.change, state.change_of_most = change, most


def is_leaving_some_behind(state: LadderState, before: Magnitudes) -> bool:
    """Whether residuals of some entries fall too, but slowly: with a smaller c they would pass for outliers."""
    return before.share(WITHIN * state.c) - before.share(BULK * state.noise) > BEHIND


def noise_to_shrink_by(state: LadderState) -> float:
    """The noise; where there are few entries for each parameter, more by those kept aside: fits are too close.

    A component that is new has no size yet, and nothing is shrunk; nor where there are as many parameters as entries.
    """
    M, k = lines_of(state)[0].M, state.U.shape[1]
    free = M.nnz - k * (sum(M.shape) - k)
    if not state.shrinks or free <= 0 or not (state.since or state.data == "whole"):
        return 0.0
    if state.data == "part" or M.nnz > CLOSE * k * sum(M.shape):
        return state.noise
    if state.data == "whole":
        return max(state.noise, state.held_out) if math.isfinite(state.held_out) else state.noise
    held = state.views.sketch.held_residual(state.U, state.V)
    return state.noise if held.size < TELLING else max(state.noise, math.sqrt(state.noise * robust_scale(held)))


def is_exact(problem: Problem, state: LadderState) -> bool:
    """Whether half of the entries are fitted to rounding, or to what `tol` asks for."""
    return state.noise <= max(0.2 * problem.tol, 1e-12) * state.views.unit


def is_moving(state: LadderState) -> bool:
    """Whether further passes at this rank are worth while; of a part, a few between two rounds of growth."""
    if state.data == "part" and state.rounds and state.since >= BETWEEN:
        return False
    return state.since < 60 and (len(state.recent) <= PATIENCE or state.recent[-1] < SETTLED * max(state.recent))


def run_joint_step(state: LadderState) -> None:
    """One Gauss-Newton step in both factors."""
    M, _ = state.views.block_and_turned(state.untied)
    sweep = open_sweep(M, state.views.problem.sweep.name)
    U, V, c = host(state.U), host(state.V), state.c
    A, B, state.damping = joint_step(M, sweep, U, V, c, min(state.noise, c / EFFICIENT), state.damping, JOINT[1])
    before = np.linalg.norm(V)  # U is orthonormal
    state.change = relative_change(U, V, A, B) if before > 0 else math.inf
    Q, R = basis(A)
    state.U, state.V = beside(Q, state.U), beside(B @ R.T, state.U)
    state.noise = robust_scale(sweep.residual(A, B))
    if state.change < 0.05:  # what couples the parts has come to rest
        state.c = max(EFFICIENT * state.noise, 0.5 * c, SMALLEST * state.views.unit)
    state.joint -= 1


def begin_joint_steps(state: LadderState) -> None:
    """From here on both factors move at once, from a wider c."""
    state.c = max(10 * EFFICIENT * state.noise, WIDE[state.joined] * state.views.unit)
    state.joint, state.joined, state.damping = JOINT[0], state.joined + 1, 1e-3
    begin_anew(state)


def after_joint_step(state: LadderState) -> None:
    """They end when L has come to rest at the scale of its residuals; passes go on from there."""
    if state.change < 1e-3 and state.c <= max(1.1 * EFFICIENT * state.noise, 2 * SMALLEST * state.views.unit):
        state.joint = 0
        begin_anew(state)


def is_falling(recent: tuple[float, ...]) -> bool:
    """Whether the last pass took the scale down by a fifth.

    >>> is_falling((1.0, 0.7)), is_falling((1.0, 0.9)), is_falling((1.0,))
    (True, False, False)
    """
    return len(recent) > 1 and recent[-1] < 0.8 * recent[-2]


def change_of_pass(
    U: Float, V: Float, dV: Float, dC: Float, Q: Float, rows: NDArray[np.bool_], columns: NDArray[np.bool_]
) -> tuple[float, float]:
    """‖U dVᵀ + dC Qᵀ‖ / ‖U Vᵀ‖, by what a pass changes L = U Vᵀ; and the same but for the few rows that change most.

    Only these rows and columns count, unless there are none; of many rows, some at equal distances.
    """
    step = -(-len(rows) // SAMPLED)
    which = rows[::step] if rows[::step].any() and columns.any() else np.ones(len(rows[::step]), bool)
    u, dc = (host(A[::step])[which] for A in (U, dC))
    if columns.any() and not columns.all():
        j = beside(columns, U)
        V, dV, Q = V[j], dV[j], Q[j]
    size = float(np.sum((u @ gram(V)) * u))
    squares = np.sum((u @ gram(dV) + 2 * (dc @ across(Q, dV))) * u + (dc @ gram(Q)) * dc, axis=1)
    if not size > 0:
        change = math.inf if dV.any() or dC.any() else 0.0
        return change, change
    kept = math.ceil((1 - RESTLESS) * squares.size)
    most = np.partition(squares, kept - 1)[:kept]
    all_of_them, but_for_few = (math.sqrt(max(float(some.sum()), 0.0) / size) for some in (squares, most))
    return all_of_them, but_for_few


def relaxation(beyond: float, falls: float) -> float:
    """How far to go beyond the regressions, ω - 1, given how far it was and by what factor the change of L falls then.

    λ = ω - 1 at best, for ω = 2 / (1 + √(1 - ρ)), where ρ is the factor without; with too large an ω it is ω - 1 too,
    and says no more than that. Otherwise (λ + ω - 1)² = λ ω² ρ.

    >>> round(relaxation(0.0, 0.5), 3), round(relaxation(0.1, 0.25), 3), round(relaxation(0.4, 0.4), 3)
    (0.172, 0.129, 0.28)
    """
    if not 1.1 * beyond < falls < 1:
        return 0.7 * beyond
    rate = (falls + beyond) ** 2 / (falls * (1 + beyond) ** 2)
    return 2 / (1 + math.sqrt(1 - min(rate, SLOWEST))) - 1
