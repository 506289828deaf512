"""Components that L should not have: those that fit errors of few rows or columns."""

from collections.abc import Callable
from copy import copy

import numpy as np

from ...linalg.arrays import host, matmul_small
from ...linalg.grassmann import basis
from ...sweeps import Float
from .evidence import FEW_BY_CHANCE, N_DIRECTIONS, SPARSE_NEXT, explains_too_little, sparsest_direction
from .judging import refit_poor_lines, score_of
from .passes import BETWEEN, run_pass, widened
from .state import LadderState, orthonormalise

SPARSE = 1e-4  # relative size of a component on half of the lines, below which only few lines have it
SETTLING = 15  # passes after such components were removed, at most
AS_WELL = 0.01  # negligible difference of scores
SPIKE = 0.6  # leverage of a row or column that has a component almost alone


def drop_sparsest(state: LadderState) -> bool:
    """Remove the component that the fewest rows, or columns, have, whichever is missed less; False if most have all.

    Rows or columns that are wrong together have a component of their own.
    """
    rng = np.random.default_rng(0x737061)
    found = [(side, *sparsest_direction(Q, rng, SPARSE_NEXT)) for side, Q in orthonormal_factors(state)]
    return _drop_one(state, [(side, direction) for side, direction, share in found if share <= 0.5], np.inf)


def orthonormal_factors(state: LadderState) -> list[tuple[str, Float]]:
    """The sides of L, and a basis of its columns (U) and of its rows (V)."""
    return [("U", basis(host(state.U))[0]), ("V", basis(host(state.V))[0])]


def remove_direction(state: LadderState, side: str, direction: Float) -> None:
    """Remove a component from L: a direction of an orthonormal basis of its rows (side U) or columns (V)."""
    rest = np.linalg.svd(direction[None, :])[2][1:].T  # the orthogonal complement
    if side == "U":
        state.U, state.V = matmul_small(state.U, rest), matmul_small(state.V, rest)
    else:
        Q, R = basis(state.V)
        state.U, state.V = orthonormalise(matmul_small(state.U, R.T @ rest), matmul_small(Q, rest))
    state.restart_count()


def drop_spikes(state: LadderState) -> None:
    """Drop components that a single row or column has almost alone, if the rest predicts better."""

    def spike(Q: Float) -> Float | None:
        own = np.sum(Q**2, axis=1)
        return Q[int(np.argmax(own))] if own.max() >= SPIKE and state.rank <= min(state.matrix.shape) / 5 else None

    _drop_components(state, spike)


def drop_sparse(state: LadderState) -> None:
    """Drop components that few rows or few columns have, if the rest predicts as well: all, or else one by one.

    In a close fit with too high a rank they fit errors.
    """
    rng = np.random.default_rng(0x737061)

    def sparse(Q: Float) -> Float | None:
        direction, share = sparsest_direction(Q, rng, SPARSE + 5 * state.noise / state.unit, N_DIRECTIONS)
        return direction if share <= 0.5 else None

    if not _can_spare(state):
        return
    rest = copy(state)
    while rest.rank > 1 and (found := _first_direction(rest, sparse)):
        remove_direction(rest, *found)
    if rest.rank == state.rank:
        return
    rest.c = widened(state)
    refit_poor_lines(rest)  # those that had them
    while rest.passes < SETTLING and not rest.is_exact():
        run_pass(rest)
    if score_of(rest) < score_of(state) + AS_WELL and not explains_too_little(rest, state):
        vars(state).update(vars(rest))
    else:
        _drop_components(state, sparse, AS_WELL)


def _can_spare(state: LadderState) -> bool:
    """Whether a component may be removed: there are more, and enough entries to tell whether it is missed."""
    return state.rank > 1 and 2 * state.rank * sum(state.matrix.shape) <= state.matrix.nnz


def _first_direction(state: LadderState, find: Callable[[Float], Float | None]) -> tuple[str, Float] | None:
    found = ((side, find(Q)) for side, Q in orthonormal_factors(state))
    return next(((side, direction) for side, direction in found if direction is not None), None)


def _drop_components(state: LadderState, find: Callable[[Float], Float | None], slack: float = 0.0) -> None:
    """Remove the directions that `find` gives for the orthonormal factors, while the score rises by at most `slack`."""
    while _can_spare(state):
        found = [(side, find(Q)) for side, Q in orthonormal_factors(state)]
        if not _drop_one(state, [(side, direction) for side, direction in found if direction is not None], slack):
            return


def _drop_one(state: LadderState, directions: list[tuple[str, Float]], slack: float) -> bool:
    """Remove the direction of rows (U) or columns (V) whose removal helps most; False if each makes L worse.

    With an infinite `slack` one of them is removed in any case, otherwise none that explains more than its parameters.
    """
    best, least = None, score_of(state) + slack if directions else -np.inf
    for side, direction in directions:
        trial = copy(state)
        remove_direction(trial, side, direction)
        refit_poor_lines(trial)  # those that had it
        for _ in range(BETWEEN):
            run_pass(trial)
        score = score_of(trial)
        guarded = np.isfinite(slack) and state.noise < FEW_BY_CHANCE * state.unit
        if score < least and not (guarded and explains_too_little(trial, state)):
            best, least = trial, score
    if best is None:
        return False
    state.U, state.V, state.noise, state.c = best.U, best.V, best.noise, best.c
    return True
