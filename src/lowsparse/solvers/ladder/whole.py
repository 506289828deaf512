"""The end of the default method: the extension of L to the whole matrix, the last passes, and the outcome."""

import math
from copy import copy

import numpy as np
from numpy.typing import NDArray

from ...linalg.arrays import host, matmul_small, to_device_of
from ...linalg.grassmann import qr
from ...linalg.lowrank import LowRank
from ...linalg.scale import OUTLIER, outlying, robust_scale, trimmed_deviation
from ...robust.consensus import MANY_LINES, Lines, explain_more, lines_with_two_fits
from ...robust.regression import EXPLAINED, poorly_explained
from ...sweeps import Float
from ..base import Outcome
from . import groups, growing, judging, passes
from .state import LadderState, orthonormalise, parameter_count
from .views import IN_MEMORY

REST = 0.1  # passes end when all that follow would change L by less than this share of the error due to noise,
# or when, after MIN_PASSES, each changes L by less than UNSEEN of the noise itself (the second value if there are more
# than MANY entries, so that a pass takes time), and HARDLY of L, which may be small
UNSEEN, HARDLY, MIN_PASSES, MANY = (0.03, 0.05), 0.01, 6, 100_000
MAX_PASSES = 20  # of an exact fit
MOST_PASSES = 5000  # over a small table, many of which are one iteration
# Share of the entries that other coefficients of single lines explain beyond L, and of the rows or columns that these
# are, if L is not settled.
UNSETTLED, MANY_OPEN = 2e-3, 0.05
NOTHING = 0.1  # size of L relative to what noise alone would have, below which it says nothing
LOWER_RANK = (
    "L has rank {rank} instead of {asked}: rows or columns that it does not explain have too few entries to tell "
    "whether they are wrong or have a component of their own; observe more of them, or ask for rank={rank}"
)
OTHER_FITS = (
    "rows or columns have other fits that explain more of their entries, and passes lead away from them: errors with "
    "structure may bend L; leave out the rows or columns they are in, or give a start"
)
NO_REST = (
    "{passes} passes over all entries have not brought L to rest: parts of the data hardly determine each other; "
    "observe more of what they have in common, or try a lower rank"
)
EMPTY = "nothing stands out from the noise, so L is almost zero: the data show no matrix of this rank; try a lower one"


def begin(state: LadderState, determined: bool) -> None:
    """Extend L to all rows and columns; passes over the whole follow unless the block has `determined` it."""
    held = state.held_residual()[state.views.comparable]
    if held.size:
        state.held_out = state.scale(held)
    shares = _extend(state)
    state.view, state.refits, state.shrinks = "whole", 0, True
    _leave_ties_out(state)
    state.c = max(state.c, EXPLAINED * state.unit)
    state.restart_count()
    changed = groups.settle(state, shares)
    if determined and not changed and not _is_open(state, shares[1]) and not groups.may_lack_component(state):
        state.finished = "an exact fit" + (", confirmed by held-out entries" if held.size else "")


def _leave_ties_out(state: LadderState) -> None:
    """Run the passes over the whole without suspicious ties, on the processor, if there are some."""
    state.untied = state.views.untied_whole is not None
    if state.untied:
        state.U, state.V = host(state.U), host(state.V)


def _extend(state: LadderState) -> tuple[Float, Float]:
    """Extend L to all rows of the block's columns, then to all columns.

    Returns the shares of explained entries, by column and by row; rows have those of the block's columns alone.
    """
    views, sketch, M = state.views, state.views.sketch, state.problem.M
    row_share = np.ones(M.shape[0])
    if len(sketch.rows) < M.shape[0]:
        Q, C = orthonormalise(state.V, state.U)
        C, row_share = views.strip().complete(Q, sketch.rows, C, state.c, n_reweight=7, noise=state.noise)
        state.U, state.V = orthonormalise(C, Q)
    columns = views.columns("whole")
    state.V, share = columns.complete(state.U, sketch.columns, state.V, state.c, n_reweight=5, noise=state.noise)
    state.U = to_device_of(state.U, state.V)  # the block may have been small enough for the processor
    return share, row_share


def _is_open(state: LadderState, row_share: Float) -> bool:
    """Whether a row is poorly explained, or has hardly more entries in the columns of the block than the rank."""
    views, M = state.views, state.problem.M
    whole = len(views.sketch.rows) == M.shape[0]
    counts = (views.rows("block") if whole else views.strip()).M.column_counts
    few = (counts < 3 * state.rank) & (M.row_counts > 0)
    return poorly_explained(row_share, 0.5).size > 0 or bool(few.any())


def end_if_converged(state: LadderState) -> None:
    """End the passes over the whole matrix when L has converged."""
    state.accuracy = state.change
    if not state.problem.tol:
        return
    if state.advice and state.passes >= 20:
        state.failure = "stalled"
    elif state.passes >= MOST_PASSES:
        state.stall(NO_REST.format(passes=state.passes))
    elif _is_converged(state):
        state.advice = state.advice or (EMPTY if _is_nothing(state) else "")
        if not state.refits and judging.refit_poor_lines(state)[1] + sum(some.sum() for some in _explain_more(state)):
            state.refits, state.accuracy = 1, math.inf  # go on with the refitted lines
            return
        if not state.advice and groups.may_lack_component(state):
            state.advice = LOWER_RANK.format(rank=state.rank, asked=state.asked)
        if state.advice and not _explains_all(state):
            state.failure = "stalled"
        elif _settle_lines(state):
            state.failure, state.advice = "stalled", OTHER_FITS
        else:
            noise = f"the noise of the inliers is {state.noise:.2g}"
            state.finished = f"L changes by {state.change:.1e} relatively; {noise}"


def _explain_more(state: LadderState) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Refit lines for which other coefficients explain more entries; return how many more, of each row and column."""
    if not _looks_at_lines(state):
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    M, bound = state.matrix.to_host(), OUTLIER * state.noise + EXPLAINED * state.unit
    U, V = host(state.U), host(state.V)
    V, in_columns = explain_more(M, U, V, bound)
    Q, C = orthonormalise(V, U)
    C, in_rows = explain_more(M.T, Q, C, bound)
    if in_columns.any() or in_rows.any():
        state.U, state.V = (to_device_of(F, state.V) for F in orthonormalise(C, Q))
    return in_rows, in_columns


def _settle_lines(state: LadderState) -> bool:
    """Refit lines that the passes have led back to coefficients that explain less; True if there are many.

    A few are ambiguous: what the loss and the number of explained entries prefer differs.
    """
    gained = _explain_more(state)
    rows, columns = (tuple(np.flatnonzero(some).tolist()) for some in gained)
    state.ambiguous = rows, columns
    many = any(np.count_nonzero(some) > max(1, MANY_OPEN * some.size) for some in gained)
    return many and sum(int(some.sum()) for some in gained) > UNSETTLED * state.matrix.nnz


def _looks_at_lines(state: LadderState) -> bool:
    """Whether there are so few lines that each can be looked at."""
    return bool(state.rank) and sum(state.matrix.shape) <= MANY_LINES and state.matrix.nnz <= IN_MEMORY


def _ambiguous_lines(state: LadderState, residual: Float) -> Lines:
    """Rows and columns that can be fitted in two ways, and those that two searches have fitted differently."""
    if not _looks_at_lines(state):
        return (), ()
    M, bound = state.problem.M.to_host(), OUTLIER * state.noise + EXPLAINED * state.unit
    found = lines_with_two_fits(M, host(state.U), host(state.V), bound, host(outlying(residual, bound)))
    rows, columns = (tuple(sorted({*some, *others})) for some, others in zip(found, state.ambiguous, strict=True))
    return rows, columns


def _is_nothing(state: LadderState) -> bool:
    """Whether L is far smaller than what noise alone could make of it."""
    return float(np.linalg.norm(state.V)) < NOTHING * judging.size_of_noise(state.problem.M, state.noise)


def _explains_all(state: LadderState) -> bool:
    """Whether every entry is fitted exactly, though there may be too few to know what else would fit them."""
    if not state.is_exact():
        return False
    problem = state.problem
    e = problem.sweep.residual(*(to_device_of(F, problem.M.values) for F in (state.U, state.V)))
    return not outlying(e, EXPLAINED * state.unit).size


def _is_converged(state: LadderState) -> bool:
    """Whether passes change L by at most `tol`, or by little compared with the error of the fit, or with the noise."""
    problem = state.problem
    noise = state.noise / problem.scale
    error = noise * math.sqrt(parameter_count(problem.M, state.rank) / problem.M.nnz)  # of the fit, due to noise
    size = float(np.linalg.norm(state.V)) / (math.sqrt(math.prod(problem.M.shape)) * problem.scale)  # of L
    change = min(size, 1.0) * state.typical_change  # small for an L that is almost zero
    to_come = change / (1 - min(state.decay, passes.SLOWEST))
    if state.change <= problem.tol or to_come <= REST * error:
        return True
    if state.is_exact() and state.passes >= MAX_PASSES and change <= EXPLAINED:
        return True  # lines with hardly more entries than coefficients magnify rounding
    falling = len(state.recent) < 3 or state.noise < passes.SETTLED * state.recent[-3]
    unseen = change <= UNSEEN[problem.M.nnz > MANY] * noise and state.typical_change <= HARDLY
    return state.passes >= MIN_PASSES and not falling and unseen


def factors(state: LadderState) -> tuple[Float, Float]:
    """L of the whole matrix: of the last attempt if it has been extended, else of the best so far."""
    if state.path.view == "whole":
        return state.path.U, state.path.right
    if state.view != "whole":
        state = copy(state)
        state.update_views()
        if state.scores:
            judging.take_best(state)
        elif state.view == "part":
            growing.extend_to_block(state)
        _extend(state)
        if not state.is_exact():  # lines with few entries may have implausible coefficients
            state.view, state.shrinks, state.passes = "whole", True, 3
            _leave_ties_out(state)
            for _ in range(2):
                passes.run_pass(state)
    return state.U, state.V


def outcome(state: LadderState, rank: int | None) -> Outcome:
    """L, of this rank if one is given, and S = M - L where that is more than four times the noise."""
    problem, shrunk = state.problem, state.path.view == "whole"
    U, V = (to_device_of(F, problem.M.values) for F in factors(state))
    if not U.shape[1]:  # nothing predicts better than zero
        m, n = problem.M.shape
        U, V = (to_device_of(F, U) for F in (np.eye(m, 1), np.zeros((n, 1))))
    U, R = qr(U)
    V = matmul_small(V, R.T).T
    if rank is not None and len(V) < rank:  # an exact fit of lower rank
        Q, R = qr(np.hstack([U, to_device_of(np.eye(len(U), rank), U)]))
        U, V = Q[:, :rank], matmul_small(V.T, R[:rank, : len(V)].T).T  # Q may have other signs than U
    e = problem.sweep.residual(U, V.T)
    noise = state.path.noise if shrunk else state.noise
    noise = noise if math.isfinite(noise) else robust_scale(e)
    flagged = outlying(e, max(OUTLIER * noise, 1e-7 * state.unit, problem.rounding))
    freedom = 1 - parameter_count(problem.M, U.shape[1]) / max(problem.M.nnz - flagged.size, 1)  # per inlier
    spread = trimmed_deviation(host(e[:: max(1, e.size // 20_000)]), noise) / math.sqrt(max(freedom, 0.1))
    held_out = state.path.noise if shrunk else state.held_out
    return Outcome(
        L=LowRank(U, V),
        flagged=flagged,
        S=-e[flagged].astype(problem.M.dtype, copy=False),
        objective=noise,
        noise=noise if shrunk else spread,
        held_out=held_out if math.isfinite(held_out) else None,
        next_noise=state.next_noise or None,
        repeated=state.repeated,
        undetermined=state.undetermined,
        ambiguous=_ambiguous_lines(state, e) if state.finished and not shrunk else ((), ()),
    )
