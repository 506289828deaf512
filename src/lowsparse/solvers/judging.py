"""What the attempts of the default method are judged by, and what is mended before that."""

from __future__ import annotations

import math
from copy import copy

import numpy as np

from ..linalg.arrays import host, times
from ..linalg.grassmann import basis, leverages
from ..linalg.scale import OUTLIER, robust_scale
from ..robust.joint import coupling, determination
from ..robust.regression import EFFICIENT, EXPLAINED
from ..robust.subsets import sparsest_direction
from ..sweeps import Float, enough, open_sweep
from .climbing import (
    BETWEEN,
    PATIENCE,
    SETTLED,
    TELLING,
    LadderState,
    begin_anew,
    climb,
    lines_of,
    run_pass,
)

PARTLY = 0.2  # noise of a part that L grew from, as a share: the whole could be explained far better
FEW = 4  # entries for each parameter, below which the slow attempt ends in joint steps
TIGHT = 0.7  # coupling below which the entries that are explained hold everything together
NOTHING = 1e-4  # size of what half of the lines have of a component, against theirs, that only few have
DRAWS = 40  # directions that are tried
AS_WELL = 0.01  # difference of scores
SPIKE = 0.6  # leverage of a row or column that has a component almost alone
LESS = 1 / 3  # noise with one rank more, as a share: the fit lacks a component
ALIKE = (1.0, 0.2)  # of the noise: two attempts that found the same differ by less; the second if noise
MOSTLY = 0.2  # is more than this against the size of the entries, and makes no larger an error by itself


def has_few_entries(state: LadderState) -> bool:
    """Whether there are hardly more than parameters: alternating regressions come to rest slowly then."""
    M = lines_of(state)[0].M
    return state.views.block is not None and M.nnz < FEW * state.U.shape[1] * sum(M.shape)


def ignored_share(state: LadderState) -> float:
    """The share of entries that pass for outliers although what is left does not determine L there.

    They may be what couples parts of the data that are each fitted by itself. Rows and columns with hardly an entry
    that is explained do not count.
    """
    state.open = 0.0
    if state.views.block is None:
        return 0.0
    M, _ = state.views.block_and_turned(state.untied)
    U, V, backend = host(state.U), host(state.V), state.views.problem.sweep.name
    e = open_sweep(M, backend).residual(U, V)
    right = np.abs(e) <= OUTLIER * state.noise + EXPLAINED * state.views.unit
    if not right.any() or coupling(M, right, backend) < TIGHT:
        return 0.0
    found = determination(M, U, V, right, state.noise, backend)
    rows, columns = M.rows.astype(np.intp), M.columns_of_entries().astype(np.intp)
    least = enough(U.shape[1])
    telling_row = np.bincount(rows[right], minlength=M.shape[0]) >= least
    telling_column = np.bincount(columns[right], minlength=M.shape[1]) >= least
    wrong = np.flatnonzero(~right & telling_row[rows] & telling_column[columns])
    some_rows, some_columns = np.flatnonzero(telling_row), np.flatnonzero(telling_column)
    if some_rows.size and some_columns.size:
        rng = np.random.default_rng(0)
        i, j = rng.choice(some_rows, 10_000), rng.choice(some_columns, 10_000)
        state.open = 1 - float(np.mean(found.determined(i, j)))
    return float(np.count_nonzero(~found.determined(rows[wrong], columns[wrong]))) / M.nnz


def predicted(state: LadderState) -> Float:
    """L where entries were kept aside, or at some entries of the block if too few were; up to their values."""
    held = state.views.sketch.held_residual(state.U, state.V)
    if held.size >= TELLING:
        return held
    e = state.views.judged_by.sweep.residual(state.U, state.V)
    return np.asarray(host(e[:: max(1, e.size // 2000)]), dtype=np.float64)


def is_alike(state: LadderState, seen: Float) -> bool:
    """Whether the best attempt so far says the same, but for a part of the noise."""
    if not state.scores or seen.shape != state.seen.shape:
        return False
    M, unit, k = state.views.judged_by.M, state.views.unit, state.U.shape[1]
    error = math.sqrt(k * (sum(M.shape) - k) / M.nnz)  # that noise makes, in its own size
    most = ALIKE[0] if state.noise <= MOSTLY * unit else max(ALIKE[1], min(error, ALIKE[0]))
    return robust_scale(seen - state.seen) <= most * state.noise + EXPLAINED * unit


def evidence(state: LadderState) -> float:
    """Entries that the best attempt explains, for each of its parameters."""
    columns, k = state.views.judged_by, state.best_U.shape[1]
    e = columns.sweep.residual(state.best_U, state.best_V)
    many = int(np.count_nonzero(np.abs(e) <= OUTLIER * state.best_noise + EXPLAINED * state.views.unit))
    parameters: int = k * (sum(columns.M.shape) - k)
    return many / parameters


def is_partly_better(state: LadderState) -> bool:
    """Whether a part of the data is explained far better than the best attempt explains all of it."""
    return state.part_noise + EXPLAINED * state.views.unit < PARTLY * state.best_noise


def with_one_rank_more(state: LadderState) -> LadderState | None:
    """One rank more than that of the best attempt, if it leaves far less noise.

    A fit that has spent a component on errors with structure lacks one of those it should have.
    """
    trial = copy(state)
    take_best(trial)
    M = lines_of(trial)[0].M
    m, n = M.shape
    k = trial.U.shape[1] + 1

    def noise_of(noise: float, rank: int) -> float:
        return noise / math.sqrt(max(1 - rank * (m + n - rank) / M.nnz, 0.01))

    if 2 * k > min(m, n) or 1.5 * k * (m + n - k) > M.nnz or state.best_noise < EXPLAINED * state.views.unit:
        return None  # with so many parameters anything fits, and what fits closely lacks nothing
    climb(trial)
    while trial.since < 15 and (trial.since < PATIENCE or trial.recent[-1] < SETTLED * trial.recent[-3]):
        run_pass(trial)
    trial.noise = noise_of(trial.noise, k)
    return trial if trial.noise < LESS * noise_of(state.best_noise, k - 1) else None


def leave_out(state: LadderState, side: str, direction: Float) -> None:
    """L without what its rows (side U) or columns (V) have in this direction of an orthonormal basis of theirs."""
    rest = np.linalg.svd(direction[None, :])[2][1:].T  # what is orthogonal to it
    if side == "U":
        state.U, state.V = times(state.U, rest), times(state.V, rest)
    else:
        W, R = basis(state.V)
        state.U, R = basis(times(state.U, R.T @ rest))
        state.V = times(times(W, rest), R.T)
    begin_anew(state)


def drop_spikes(state: LadderState) -> None:
    """Leave out components that a single row or column has almost alone, if what is left predicts better."""
    M = lines_of(state)[0].M
    while 1 < state.U.shape[1] <= min(M.shape) / 5 and 2 * state.U.shape[1] * sum(M.shape) <= M.nnz:
        found = []
        for side in ("U", "V"):
            Q, _ = basis(host(getattr(state, side)))
            own = np.sum(Q**2, axis=1)
            if own.max() >= SPIKE:
                found.append((side, Q[int(np.argmax(own))]))
        if not _drop_one(state, found):
            return


def drop_sparse(state: LadderState) -> None:
    """Leave out components that few rows or few columns have, if what is left predicts as well.

    Of a close fit with too high a rank: they fit errors.
    """
    rng, M = np.random.default_rng(0x737061), lines_of(state)[0].M
    while state.U.shape[1] > 1 and 2 * state.U.shape[1] * sum(M.shape) <= M.nnz:
        found = []
        for side in ("U", "V"):
            direction, size = sparsest_direction(basis(host(getattr(state, side)))[0], rng, DRAWS)
            if size <= NOTHING + 5 * state.noise / state.views.unit:
                found.append((side, direction))
        if not _drop_one(state, found, AS_WELL):
            return


def _drop_one(state: LadderState, directions: list[tuple[str, Float]], slack: float = 0.0) -> bool:
    """Leave out what rows (U) or columns (V) have in the best of these directions; False if each makes it worse."""
    best, least = None, score_of(state) + slack if directions else -np.inf
    for side, direction in directions:
        trial = copy(state)
        leave_out(trial, side, direction)
        take_second_look(trial)  # at the lines that had it
        for _ in range(BETWEEN):
            run_pass(trial)
        score = score_of(trial)
        if score < least:
            best, least = trial, score
    if best is None:
        return False
    state.U, state.V, state.noise, state.c = best.U, best.V, best.noise, best.c
    return True


def take_second_look(state: LadderState) -> tuple[tuple[Float, Float], int]:
    """The shares of the entries that columns and rows explain, and how many lines were changed for the better."""
    columns, rows = lines_of(state)
    by_column = columns.share(columns.again(state.U, state.V, state.c, 1).inside)
    state.V, _, some = columns.second_look(state.U, state.V, state.c, by_column)
    Q, R = basis(state.V)
    C = times(state.U, R.T)
    by_row = rows.share(rows.again(Q, C, state.c, 1).inside)
    C, _, others = rows.second_look(Q, C, state.c, by_row)
    if some or others:
        state.U, R = basis(C)
        state.V = times(Q, R.T)
    return (by_column, by_row), some + others


def score_of(state: LadderState) -> float:
    """The mean logarithm of the residuals of what was kept aside; of all, and for components, if too little was."""
    e, unit = state.views.sketch.held_residual(state.U, state.V)[state.views.telling], state.views.unit
    if e.size >= TELLING:
        return float(np.mean(np.log(np.abs(e) / unit + 1e-7)))
    columns = state.views.judged_by
    (m, n), entries = columns.M.shape, columns.M.nnz
    e = columns.sweep.residual(state.U, state.V)
    sizes = np.linalg.svd(host(state.V), compute_uv=False) / (robust_scale(e) + 1e-7 * unit)
    components = np.sum(1 + np.log1p(entries / (m * n * (m + n)) * sizes**2))
    return float(np.mean(np.log(np.abs(e) / unit + 1e-7)) + (m + n) / (2 * entries) * components)


def is_spiky(state: LadderState) -> bool:
    """Whether a component lives on a single row or column: it may be there for an outlier alone."""
    return any(bool((leverages(A) > 0.9).any()) for A in (state.U, state.V))


def predicts(state: LadderState, e: Float) -> bool:
    """Whether what was kept aside, with these residuals, is predicted as well as what was fitted."""
    columns, values = lines_of(state)[0], state.views.sketch.held_values
    if state.untied:
        e, values = e[state.views.telling], values[state.views.telling]
    held = np.abs(e)
    if held.size < 20:
        return True
    seen = np.abs(columns.sweep.residual(state.U, state.V))
    close = EXPLAINED * state.views.unit
    m, n = columns.M.shape
    k = state.U.shape[1]
    inliers = max(float(np.count_nonzero(seen <= OUTLIER * state.noise + close)), 1.0)
    h = min(k * (m + n - k) / inliers, 0.9)  # parameters / inliers
    bound = OUTLIER * state.noise * math.sqrt((1 + h) / (1 - h)) + close
    share_seen, share_held = float(np.mean(seen <= bound)), float(np.mean(held <= bound))
    deviation = math.sqrt(max(share_seen * (1 - share_seen), 0.01) / held.size)
    as_well = share_held >= share_seen - 0.05 - 3 * deviation
    gain = np.log(np.abs(values) + close) - np.log(held + close)  # over L = 0
    return as_well and float(np.mean(gain)) > max(0.05, 3 * float(np.std(gain)) / math.sqrt(gain.size))


def take_best(state: LadderState) -> None:
    """Back to the best attempt, on all of the block."""
    state.U, state.V, state.noise = state.best_U, state.best_V, state.best_noise
    state.data, state.open, state.widest = "some", state.best_open, state.best_widest
    state.c, state.untied = min(EFFICIENT * state.noise, state.widest), False
