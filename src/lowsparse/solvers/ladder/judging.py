"""How good an attempt is, whether it can be believed, and what is mended before it is judged."""

from __future__ import annotations

import math
from copy import copy

import numpy as np

from ...linalg.arrays import host, matmul_small
from ...linalg.grassmann import basis, leverages
from ...linalg.scale import OUTLIER, robust_scale
from ...robust.joint import coupling, determination
from ...robust.regression import EFFICIENT, EXPLAINED
from ...robust.subsets import sparsest_direction
from ...sweeps import Float, enough
from .climbing import climb
from .passes import BETWEEN, MIN_HELD_OUT, PATIENCE, SETTLED, run_pass
from .state import LadderState, parameter_count

PARTLY = 0.2  # noise of a part over that of all, below which the whole could be explained far better
FEW = 4  # entries per parameter below which the slow attempt ends in joint steps
TIGHT = 0.7  # coupling below which the explained entries hold everything together
NOTHING = 1e-4  # relative size of a component on half of the lines, from which on only few lines have it
SPARSE = 0.02  # the same for a component of one rank more, which has errors
DRAWS = 40  # directions that are tried
AS_WELL = 0.01  # difference of scores that does not count
SPIKE = 0.6  # leverage of a row or column that has a component almost alone
LESS = 1 / 3  # noise with one rank more over the noise, below which the fit lacks a component
ALIKE = (1.0, 0.2)  # of the noise: two attempts that found the same differ by less; the second if the noise
MOSTLY = 0.2  # is more than this against the size of the entries, and does not by itself make a larger error


def has_few_entries(state: LadderState) -> bool:
    """Whether there are hardly more entries than parameters: alternating regressions come to rest slowly then."""
    return state.views.block is not None and state.matrix.nnz < FEW * state.rank * sum(state.matrix.shape)


def ignored_share(state: LadderState) -> float:
    """The share of entries taken for outliers although the others do not determine L there.

    They may be what couples parts of the data that are each fitted by itself. Rows and columns with hardly an
    explained entry do not count.
    """
    state.undetermined = 0.0
    if state.views.block is None:
        return 0.0
    M, _ = state.views.block_and_transpose(state.untied)
    U, V, backend = host(state.U), host(state.V), state.problem.sweep.host
    e = M.open_sweep(backend).residual(U, V)
    explained = np.abs(e) <= OUTLIER * state.noise + EXPLAINED * state.unit
    if not explained.any() or coupling(M, explained, backend) < TIGHT:
        return 0.0
    found = determination(M, U, V, explained, state.noise, backend)
    rows, columns = M.rows.astype(np.intp), M.columns_of_entries().astype(np.intp)
    least = enough(U.shape[1])
    row_counts = np.bincount(rows[explained], minlength=M.shape[0]) >= least
    column_counts = np.bincount(columns[explained], minlength=M.shape[1]) >= least
    some_rows, some_columns = np.flatnonzero(row_counts), np.flatnonzero(column_counts)
    if some_rows.size and some_columns.size:
        rng = np.random.default_rng(0)
        i, j = rng.choice(some_rows, 10_000), rng.choice(some_columns, 10_000)
        state.undetermined = 1 - float(np.mean(found.determined(i, j)))
    outliers = np.flatnonzero(~explained & row_counts[rows] & column_counts[columns])
    return float(np.count_nonzero(~found.determined(rows[outliers], columns[outliers]))) / M.nnz


def comparison(state: LadderState) -> Float:
    """The residuals by which two attempts are compared: of held-out entries, or of some of the block if too few are."""
    held = state.views.sketch.held_residual(state.U, state.V)
    if held.size >= MIN_HELD_OUT:
        return held
    e = state.views.judging_columns.sweep.residual(state.U, state.V)
    return np.asarray(host(e[:: max(1, e.size // 2000)]), dtype=np.float64)


def is_alike(state: LadderState, residuals: Float) -> bool:
    """Whether the best attempt so far predicts the same, except for a part of the noise."""
    if not state.scores or residuals.shape != state.best_comparison.shape:
        return False
    M = state.views.judging_columns.M
    error = math.sqrt(parameter_count(M, state.rank) / M.nnz)  # that the noise makes, relative to the noise
    most = ALIKE[0] if state.noise <= MOSTLY * state.unit else max(ALIKE[1], min(error, ALIKE[0]))
    return robust_scale(residuals - state.best_comparison) <= most * state.noise + EXPLAINED * state.unit


def evidence(state: LadderState) -> float:
    """The number of entries that the best attempt explains, for each of its parameters."""
    columns = state.views.judging_columns
    e = columns.sweep.residual(state.best_U, state.best_V)
    explained = int(np.count_nonzero(np.abs(e) <= OUTLIER * state.best_noise + EXPLAINED * state.unit))
    return explained / parameter_count(columns.M, state.best_U.shape[1])


def is_partly_better(state: LadderState) -> bool:
    """Whether a part of the data is explained far better than the best attempt explains all of it."""
    return state.part_noise + EXPLAINED * state.unit < PARTLY * state.best_noise


def with_one_rank_more(state: LadderState) -> LadderState | None:
    """The best attempt with one rank more, if that leaves far less noise.

    A fit that has spent a component on errors with structure lacks one of those it should have.
    """
    trial = copy(state)
    take_best(trial)
    M = trial.matrix
    m, n = M.shape
    k = trial.rank + 1

    def unbiased(noise: float, rank: int) -> float:
        return noise / math.sqrt(max(1 - rank * (m + n - rank) / M.nnz, 0.01))

    if 2 * k > min(m, n) or 1.5 * k * (m + n - k) > M.nnz or state.best_noise < EXPLAINED * state.unit:
        return None  # with so many parameters anything fits, and what fits closely lacks nothing
    climb(trial)
    while trial.passes < 15 and (trial.passes < PATIENCE or trial.recent[-1] < SETTLED * trial.recent[-3]):
        run_pass(trial)
    trial.noise = unbiased(trial.noise, k)
    return trial if trial.noise < LESS * unbiased(state.best_noise, k - 1) else None


def sparsest_component(larger: LadderState) -> tuple[str, Float] | None:
    """The side and direction of the component that the fewest rows (U) or columns (V) have; None if most have all.

    Rows or columns that are wrong together have a component to themselves.
    """
    sides = [(side, basis(host(getattr(larger, side)))[0]) for side in ("U", "V")]
    found = [(side, *sparsest_direction(Q, np.random.default_rng(0x737061))) for side, Q in sides]
    side, direction, size = min(found, key=lambda one: one[2])
    return (side, direction) if size <= SPARSE else None


def remove_direction(state: LadderState, side: str, direction: Float) -> None:
    """Remove from L what its rows (side U) or columns (V) have in this direction of an orthonormal basis of theirs."""
    rest = np.linalg.svd(direction[None, :])[2][1:].T  # the orthogonal complement
    if side == "U":
        state.U, state.V = matmul_small(state.U, rest), matmul_small(state.V, rest)
    else:
        W, R = basis(state.V)
        state.U, R = basis(matmul_small(state.U, R.T @ rest))
        state.V = matmul_small(matmul_small(W, rest), R.T)
    state.restart_count()


def drop_spikes(state: LadderState) -> None:
    """Drop components that a single row or column has almost alone, if the rest predicts better."""
    M = state.matrix
    while 1 < state.rank <= min(M.shape) / 5 and 2 * state.rank * sum(M.shape) <= M.nnz:
        found = []
        for side in ("U", "V"):
            Q, _ = basis(host(getattr(state, side)))
            own = np.sum(Q**2, axis=1)
            if own.max() >= SPIKE:
                found.append((side, Q[int(np.argmax(own))]))
        if not _drop_one(state, found):
            return


def drop_sparse(state: LadderState) -> None:
    """Drop components that few rows or few columns have, if the rest predicts as well.

    In a close fit with too high a rank they fit errors.
    """
    rng, M = np.random.default_rng(0x737061), state.matrix
    while state.rank > 1 and 2 * state.rank * sum(M.shape) <= M.nnz:
        found = []
        for side in ("U", "V"):
            direction, size = sparsest_direction(basis(host(getattr(state, side)))[0], rng, DRAWS)
            if size <= NOTHING + 5 * state.noise / state.unit:
                found.append((side, direction))
        if not _drop_one(state, found, AS_WELL):
            return


def _drop_one(state: LadderState, directions: list[tuple[str, Float]], slack: float = 0.0) -> bool:
    """Remove the direction of rows (U) or columns (V) whose removal helps most; False if each makes L worse."""
    best, least = None, score_of(state) + slack if directions else -np.inf
    for side, direction in directions:
        trial = copy(state)
        remove_direction(trial, side, direction)
        refit_poor_lines(trial)  # those that had it
        for _ in range(BETWEEN):
            run_pass(trial)
        score = score_of(trial)
        if score < least:
            best, least = trial, score
    if best is None:
        return False
    state.U, state.V, state.noise, state.c = best.U, best.V, best.noise, best.c
    return True


def refit_poor_lines(state: LadderState) -> tuple[tuple[Float, Float], int]:
    """Regress lines that explain few of their entries from scratch.

    Gives the shares of explained entries, by column and by row, and the number of lines that were improved.
    """
    columns, rows = state.lines
    column_shares = columns.share(columns.refit(state.U, state.V, state.c, 1).inside)
    state.V, _, n_columns = columns.refit_poorly_explained(state.U, state.V, state.c, column_shares)
    Q, R = basis(state.V)
    C = matmul_small(state.U, R.T)
    row_shares = rows.share(rows.refit(Q, C, state.c, 1).inside)
    C, _, n_rows = rows.refit_poorly_explained(Q, C, state.c, row_shares)
    if n_columns or n_rows:
        state.U, R = basis(C)
        state.V = matmul_small(Q, R.T)
    return (column_shares, row_shares), n_columns + n_rows


def score_of(state: LadderState) -> float:
    """Mean log |e| of held-out entries; if too few are held out, of all entries with a penalty on components."""
    e, unit = state.views.sketch.held_residual(state.U, state.V)[state.views.comparable], state.unit
    if e.size >= MIN_HELD_OUT:
        return float(np.mean(np.log(np.abs(e) / unit + 1e-7)))
    columns = state.views.judging_columns
    (m, n), entries = columns.M.shape, columns.M.nnz
    e = columns.sweep.residual(state.U, state.V)
    sizes = np.linalg.svd(host(state.V), compute_uv=False) / (robust_scale(e) + 1e-7 * unit)
    components = np.sum(1 + np.log1p(entries / (m * n * (m + n)) * sizes**2))
    return float(np.mean(np.log(np.abs(e) / unit + 1e-7)) + (m + n) / (2 * entries) * components)


def is_spiky(state: LadderState) -> bool:
    """Whether a component lives on a single row or column: it may be there for an outlier alone."""
    return any(bool((leverages(A) > 0.9).any()) for A in (state.U, state.V))


def predicts(state: LadderState, e: Float) -> bool:
    """Whether held-out entries, with these residuals, are predicted as well as the fitted entries."""
    columns, values = state.lines[0], state.views.sketch.held_values
    if state.untied:
        e, values = e[state.views.comparable], values[state.views.comparable]
    held = np.abs(e)
    if held.size < 20:
        return True
    fitted = np.abs(columns.sweep.residual(state.U, state.V))
    close = EXPLAINED * state.unit
    inliers = max(float(np.count_nonzero(fitted <= OUTLIER * state.noise + close)), 1.0)
    h = min(parameter_count(columns.M, state.rank) / inliers, 0.9)
    bound = OUTLIER * state.noise * math.sqrt((1 + h) / (1 - h)) + close
    share_fitted, share_held = float(np.mean(fitted <= bound)), float(np.mean(held <= bound))
    deviation = math.sqrt(max(share_fitted * (1 - share_fitted), 0.01) / held.size)
    as_well = share_held >= share_fitted - 0.05 - 3 * deviation
    gain = np.log(np.abs(values) + close) - np.log(held + close)  # over L = 0
    return as_well and float(np.mean(gain)) > max(0.05, 3 * float(np.std(gain)) / math.sqrt(gain.size))


def take_best(state: LadderState) -> None:
    """Go back to the best attempt, on all of the block."""
    state.U, state.V, state.noise = state.best_U, state.best_V, state.best_noise
    state.data, state.undetermined, state.max_c = "block", state.best_undetermined, state.best_max_c
    state.c, state.untied = min(EFFICIENT * state.noise, state.max_c), False
