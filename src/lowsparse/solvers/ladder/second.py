"""Further searches of a small table, with rows and columns exchanged and in another order.

All attempts of a search hold out the same entries, begin in neighbouring rows and columns, and regress columns first.
So they may agree on an L that is wrong. In another order other entries are held out, other blocks are grown, and rows
come first; where errors have structure, an L that is wrong is seldom found again. Of two that differ, the one that
explains more entries is taken, and nothing is promised of it. If it explains far more, the other may have just missed
it, and a third search, in another order again, may confirm it. Rows and columns that neither of them explains, or
that can be fitted in two ways, are ambiguous and do not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from ...entries.observed import ObservedMatrix
from ...linalg.arrays import host
from ...linalg.scale import OUTLIER
from ...robust.consensus import Lines, explains, lines_with_two_fits
from ...robust.regression import EXPLAINED
from ...sweeps import min_support
from ..base import Problem
from .evidence import FEW_BY_CHANCE, free_parameters
from .shrinking import PathState
from .state import Answer, LadderState, orthonormalise, parameter_count
from .views import Views

LARGEST = 100_000  # entries of a table that is searched twice
# One search suffices if explained entries outnumber parameters by ABUNDANT, and the others are scattered: the variance
# of their share in rows, or in columns, is less than SCATTERED times that of chance.
ABUNDANT, SCATTERED = 8.0, 1.3
# It also suffices if the noise is more than NOISY units and the entries are more than MANY, as in ratings.
NOISY, MANY = 0.12, 30_000
# Share of the entries that only one of two answers explains, or that have another value in each, up to which they are
# the same, in lines that one of them explains, its entries at least WELL as often as usual. Of lines that neither
# explains, those are ambiguous of which it is more than AMBIGUOUS. With more than the share IN_DOUBT of the entries in
# the other ambiguous lines nothing is promised; the second if the answers are the same there too.
SAME, WELL, AMBIGUOUS, IN_DOUBT = 0.02, 0.5, 0.1, (0.2, 0.5)
# Share of the entries that an answer explains beyond the other, which may have just missed it then; not if that is a
# promise too, and explained entries are not ABUNDANT.
FAR_MORE = 0.05
DIFFER = (
    "a second search, with rows and columns in another order, has found another L: {ours:.1%} of the entries are "
    "explained by this one, {other:.1%} by the other; observe more, leave out rows or columns with errors, or give a "
    "start"
)
IN_TWO_WAYS = (
    "a second search has found the same L, but other coefficients explain many rows or columns about as well: observe "
    "more, leave out rows or columns with errors, or give a start"
)
NOT_CONFIRMED = (
    "one search has found this L, two others, with rows and columns in another order, have not: observe more, leave "
    "out rows or columns with errors, or give a start"
)
NO_AGREEMENT = (
    "no two of the attempts agree, or their result does not predict held-out entries: the data may not determine a "
    "matrix of this rank; see lowsparse.diagnose(M, rank)"
)
AGREE = "; a second search has found the same"


def has_ended(state: LadderState) -> bool:
    """Whether a search has come to its end."""
    return bool(state.finished or state.failure)


def is_due(state: LadderState) -> bool:
    """Whether the search has ended with an answer that another one should confirm."""
    problem = state.problem
    shrunk = state.path.view == "whole"  # an estimate of a table without a rank
    if not has_ended(state) or state.view != "whole" or shrunk or not state.rank or not problem.tol:
        return False
    beyond_doubt = bool(state.finished) and not state.passes  # exact, and nothing had to be settled
    if beyond_doubt or state.failure == "diverged" or problem.start_given or problem.M.nnz > LARGEST:
        return False
    many_with_noise = state.noise > NOISY * state.unit and problem.M.nnz > MANY
    return bool(state.failure) or not (many_with_noise or _is_evident(state))


def _is_evident(state: LadderState) -> bool:
    """Whether all is fitted exactly, or far more entries are explained than parameters, the others being scattered."""
    M = state.problem.M.to_host()
    explained = explains(M, host(state.U), host(state.V), _bound(state, state.noise))
    if explained.all() and state.noise < EXPLAINED * state.unit:
        return True
    if np.count_nonzero(explained) < ABUNDANT * parameter_count(M, state.rank):
        return False
    usual = float(explained.mean())
    for lines, n in ((M.rows, M.shape[0]), (M.columns_of_entries(), M.shape[1])):
        counts, inside = np.bincount(lines, minlength=n), np.bincount(lines[explained], minlength=n)
        surplus = (inside - usual * counts)[counts > 0] ** 2 / counts[counts > 0]
        if float(surplus.mean()) > SCATTERED * usual * (1 - usual):
            return False
    return True


def _bound(state: LadderState, noise: float) -> float:
    return OUTLIER * noise + EXPLAINED * state.unit


def shuffled(problem: Problem, search: int) -> Problem:
    """The problem of a further search: rows and columns exchanged, both in another order."""
    M = problem.M.to_host()
    rows, columns = orders(M.shape, search)
    where = np.argsort(rows), np.argsort(columns)
    entries = where[1][M.columns_of_entries()], where[0][M.rows], M.values
    other = ObservedMatrix.from_coo(*entries, shape=M.shape[::-1])
    return replace(problem, M=other, sweep=other.open_sweep(problem.sweep.host))


def orders(shape: tuple[int, int], search: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The order of the rows, and of the columns, in a further search: 1 is the second, 2 the third."""
    rng = np.random.default_rng([0x6F7264, search] if search > 1 else 0x6F7264)
    return rng.permutation(shape[0]), rng.permutation(shape[1])


def answer_of(state: LadderState) -> Answer:
    """What a search has found."""
    return Answer(**{field.name: getattr(state, field.name) for field in fields(Answer)})


def in_order(answer: Answer, search: int) -> Answer:
    """An answer of a further search in the order of the data."""
    rows, columns = orders((len(answer.V), len(answer.U)), search)
    U, V = np.empty_like(host(answer.V)), np.empty_like(host(answer.U))
    U[rows], V[columns] = host(answer.V), host(answer.U)
    U, V = orthonormalise(U, V)
    of_columns, of_rows = answer.ambiguous
    ambiguous = tuple(rows[list(of_rows)].tolist()), tuple(columns[list(of_columns)].tolist())
    return replace(answer, U=U, V=V, ambiguous=ambiguous)


def restored(state: LadderState, views: Views, answer: Answer) -> LadderState:
    """The state at the end of a search that has found this answer, in the order of the data."""
    state = copy(state)
    vars(state).update(vars(answer))
    state.search, state.views, state.block_factor, state.view = 0, views, views.block_factor, "whole"
    state.untied, state.path = False, PathState()
    state.failure, state.accuracy = "" if answer.finished else "stalled", math.inf
    return state


def settle(state: LadderState, views: Views) -> tuple[LadderState, bool]:
    """End a further search: take the answer that explains more entries, and say whether both are the same.

    A search whose attempts did not agree, but with enough entries that speak for the best, is confirmed by another.
    Returns the state, and whether a third search should confirm what the second seems to have just missed.
    """
    search = state.search
    if state.failure == "diverged" or state.path.view == "whole" or not state.rank:
        state = restored(state, views, state.first)
        if search > 1 and state.finished:
            state.stall(NOT_CONFIRMED)
        return state, False
    answers = (state.first, in_order(answer_of(state), search))
    M = views.problem.M.to_host()
    bound = _bound(state, min(answer.noise for answer in answers))
    residuals = [M.open_sweep().residual(host(answer.U), host(answer.V)) for answer in answers]
    by = [np.abs(e) <= bound for e in residuals]
    differ = (by[0] != by[1]) | (np.abs(residuals[0] - residuals[1]) > bound)  # or neither explains it
    more = int(np.count_nonzero(by[1])) - int(np.count_nonzero(by[0]))
    later = more > max(free_parameters(M, answers[1]) - free_parameters(M, answers[0]), 0)
    best, other = answers[later], answers[1 - later]
    shares = {name: float(by[k].mean()) for name, k in (("ours", later), ("other", 1 - later))}
    doubts = [answer.advice for answer in (best, other) if answer.advice not in ("", NO_AGREEMENT)]
    close = best.noise <= FEW_BY_CHANCE * state.unit  # in a fit that is not, most entries are explained by any L
    confirmed = best.finished or other.finished or (close and best.supported and other.supported)
    ambiguous = _ambiguous_in_either(M, answers, by, differ, best, bound)
    state = restored(state, views, best)
    if search == 1 and best.finished and shares["ours"] > shares["other"] + FAR_MORE:
        abundant = shares["ours"] * M.nnz >= ABUNDANT * parameter_count(M, best.U.shape[1])
        if abundant or not other.finished:
            return state, True
    if ambiguous is not None and confirmed and not doubts:
        state.ambiguous = ambiguous
        state.finished = (best.finished or other.finished or f"the noise of the inliers is {best.noise:.2g}") + AGREE
        state.failure = state.advice = ""
    elif best.finished:
        another = DIFFER.format(**shares) if _much(differ) else IN_TWO_WAYS
        state.stall(another if ambiguous is None else doubts[0])
    return state, False


def _much(differ: NDArray[np.bool_]) -> bool:
    """Whether two answers that differ at these entries are not the same."""
    return bool(np.count_nonzero(differ) > SAME * differ.size)


def _ambiguous_in_either(
    M: ObservedMatrix,
    answers: tuple[Answer, Answer],
    by: list[NDArray[np.bool_]],
    differ: NDArray[np.bool_],
    best: Answer,
    bound: float,
) -> Lines | None:
    """`ambiguous_lines`, with those of which either answer leaves entries that have other coefficients."""
    known: tuple[set[int], set[int]] = set(best.ambiguous[0]), set(best.ambiguous[1])
    for answer, explained in zip(answers, by, strict=True):
        two_fits = lines_with_two_fits(M, host(answer.U), host(answer.V), bound, np.flatnonzero(~explained))
        for lines, more_lines in zip(known, two_fits, strict=True):
            lines.update(more_lines)
    return ambiguous_lines(M, by, differ, best.U.shape[1], known)


def ambiguous_lines(
    M: ObservedMatrix,
    by: list[NDArray[np.bool_]],
    differ: NDArray[np.bool_],
    rank: int,
    known: Sequence[Iterable[int]],
) -> Lines | None:
    """The rows and columns that are ambiguous, with those that are known to be.

    `by` are the entries that each of two answers explains, `differ` those at which they differ. None if they do so in
    other lines too, or many entries are in these.
    """
    sides = (M.rows, M.shape[0]), (M.columns_of_entries(), M.shape[1])
    usual = max(float(one.mean()) for one in by)
    counts, ambiguous, in_doubt = np.ones(M.nnz, bool), [], np.zeros(M.nnz, bool)
    for (lines, n), certain in zip(sides, known, strict=True):
        entries = np.bincount(lines, minlength=n)
        explained = np.maximum(*(np.bincount(lines[one], minlength=n) for one in by))
        well = (explained >= WELL * usual * entries) & (explained >= 2 * min_support(rank))
        found = ~well & (np.bincount(lines[differ], minlength=n) > AMBIGUOUS * entries)
        found[list(certain)] = True
        counts &= (well & ~found)[lines]
        in_doubt |= (well & found)[lines]
        ambiguous.append(tuple(np.flatnonzero(found).tolist()))
    allowed = IN_DOUBT[0] if _much(differ[in_doubt]) else IN_DOUBT[1]
    if not counts.any() or _much(differ[counts]) or np.count_nonzero(in_doubt) > allowed * M.nnz:
        return None
    rows, columns = ambiguous
    return rows, columns
