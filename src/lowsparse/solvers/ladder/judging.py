"""The judgement of an attempt: its score, whether it can be believed, and components that it should not have."""

import math
from collections.abc import Callable
from copy import copy

import numpy as np

from ...entries.protocol import PartialMatrix
from ...linalg.arrays import host, matmul_small
from ...linalg.grassmann import basis, leverages
from ...linalg.scale import OUTLIER, closest_scale, robust_scale
from ...robust.joint import coupling, determination
from ...robust.regression import EFFICIENT, EXPLAINED
from ...sweeps import Float, min_support
from .climbing import climb
from .passes import BETWEEN, MIN_HELD_OUT, PATIENCE, SETTLED, run_pass, widened
from .state import Attempt, LadderState, log_error, orthonormalise, parameter_count

PARTLY = 0.2  # noise of a part relative to that of all, below which all could be explained far better
FEW = 4  # entries per parameter, below which the slow attempt ends in joint steps
TIGHT = 0.7  # coupling, below which the explained entries connect all rows and columns
SPARSE = 1e-4  # relative size of a component on half of the lines, below which only few lines have it
SPARSE_NEXT = 0.02  # the same for a component of one rank more, which has errors
N_DIRECTIONS = 40  # tried for a sparse component
SETTLING = 15  # passes after such components were removed, at most
AS_WELL = 0.01  # negligible difference of scores
SPIKE = 0.6  # leverage of a row or column that has a component almost alone
LESS = 1 / 3  # noise with one rank more relative to the noise, below which the fit lacks a component
FARTHER = 2.0  # scale of residuals of held-out entries, relative to what is expected, above which L does not predict
# Difference, relative to the noise, up to which two attempts have found the same; the second value if the noise, in
# units, exceeds NOISY, unless the error of the fit is larger anyway.
ALIKE, NOISY = (1.0, 0.2), 0.2
SAME = 0.4  # the same relative to L itself
# Difference between the numbers of entries that two attempts explain that may be chance, in standard deviations, and
# as a share of all entries; and the noise, in units, above which these numbers say little.
CHANCE, NO_MORE, UNCLEAR = 3.0, 0.01, 0.05
MANY, GATHERED = 0.01, 4.0  # share of unexplained entries, and its variance in lines relative to chance: suspicious
# Scale of the closest residuals relative to that of all, below which most entries may be wrong: for normal noise .96
# if 20 % are, .91 if 30 % are. What c is multiplied by in a pass, and the passes in which the score must fall by GAIN.
HEAVY, FALL, WAIT, GAIN = 0.95, 0.8, 6, 0.05
CLEARER, FOUND = 0.5, 0.3  # largest noise relative to that before, and least share of held-out entries within it
DISTINCT = 0.95  # least share of different numbers: round ones are met exactly by chance
WEAK = 1.5  # size of L relative to the noise, below which a small block may not show all components


def assume_most_wrong(state: LadderState) -> bool:
    """Lower c while that predicts held-out entries better; False if they are not predicted far better in the end.

    If half of the entries are wrong, the median of the residuals, and c with it, does not fall any more. Where those
    that are not explained gather in some lines, the others may be the wrong ones.
    """
    state.wrong_tried = True
    held = host(state.views.sketch.held.values)[state.views.comparable]
    if held.size < MIN_HELD_OUT or np.unique(held).size < DISTINCT * held.size:
        return False
    e = state.lines[0].sweep.residual(state.U, state.V)
    before = closest_scale(e)
    if before > HEAVY * robust_scale(e):
        return False
    trial, scores, c = copy(state), [score_of(state)], state.c
    trial.mostly_wrong = True
    best = trial
    while len(scores) <= WAIT or min(scores[-WAIT:]) < min(scores[:-WAIT]) - GAIN:
        trial = copy(trial)
        trial.c = c = FALL * c
        run_pass(trial)
        scores.append(score_of(trial))
        if scores[-1] <= min(scores):
            best = trial
    refit_poor_lines(best)  # some may have been lost while c fell
    near = float(np.mean(np.abs(best.held_residual()) <= OUTLIER * best.noise + EXPLAINED * state.unit))
    if best.noise > CLEARER * before or near < FOUND or outliers_gather(best, explained_shares(best)):
        return False
    vars(state).update(vars(best))
    state.restart_count()
    return True


def has_few_entries(state: LadderState) -> bool:
    """Whether there are hardly more entries than parameters, so that alternating regressions converge slowly."""
    return state.views.is_block_small and state.matrix.nnz < FEW * state.rank * sum(state.matrix.shape)


def ignored_share(state: LadderState) -> float:
    """The share of entries taken for outliers although the others do not determine L there.

    They may couple parts of the data that are each fitted by itself. Rows and columns with hardly an explained entry do
    not count.
    """
    state.undetermined = 0.0
    if not state.views.is_block_small:
        return 0.0
    M, _ = state.views.block_and_transpose(state.untied)
    U, V, backend = host(state.U), host(state.V), state.problem.sweep.host
    e = M.open_sweep(backend).residual(U, V)
    explained = np.abs(e) <= OUTLIER * state.noise + EXPLAINED * state.unit
    if not explained.any() or coupling(M, explained, backend) < TIGHT:
        return 0.0
    found = determination(M, U, V, explained, state.noise, backend)
    rows, columns = M.rows.astype(np.intp), M.columns_of_entries().astype(np.intp)
    least = min_support(U.shape[1])
    good_row = np.bincount(rows[explained], minlength=M.shape[0]) >= least
    good_column = np.bincount(columns[explained], minlength=M.shape[1]) >= least
    if good_row.any() and good_column.any():
        rng = np.random.default_rng(0)
        i, j = (rng.choice(np.flatnonzero(good), 10_000) for good in (good_row, good_column))
        state.undetermined = 1 - float(np.mean(found.determined(i, j)))
    outliers = np.flatnonzero(~explained & good_row[rows] & good_column[columns])
    return float(np.count_nonzero(~found.determined(rows[outliers], columns[outliers]))) / M.nnz


def compared_residuals(state: LadderState) -> Float:
    """The residuals by which two attempts are compared: of held-out entries, or if too few are, of some others."""
    held = state.held_residual()
    if held.size >= MIN_HELD_OUT:
        return held
    e = state.views.compared_columns.sweep.residual(state.U, state.V)
    return np.asarray(host(e[:: max(1, e.size // 2000)]), dtype=np.float64)


def is_alike(state: LadderState, residuals: Float) -> bool:
    """Whether the best attempt so far predicts the same, up to a part of the noise."""
    if not state.scores or residuals.shape != state.best.residuals.shape:
        return False
    M = state.views.compared_columns.M
    error = math.sqrt(parameter_count(M, state.rank) / M.nnz)  # of the fit, in units of the noise
    most = ALIKE[0] if state.noise <= NOISY * state.unit else max(ALIKE[1], min(error, ALIKE[0]))
    size = float(np.linalg.norm(host(state.V))) / math.sqrt(math.prod(state.matrix.shape))  # of L
    difference = robust_scale(residuals - state.best.residuals)
    return difference <= min(most * state.noise, SAME * size) + EXPLAINED * state.unit


def explains_more(state: LadderState, attempt: Attempt) -> int:
    """Whether an attempt explains more entries than the best so far (1), fewer (-1), or as many but for chance (0).

    Only of close fits: with much noise, a fit that is less close explains more.
    """
    if not state.scores or max(attempt.noise, state.best.noise) > UNCLEAR * state.unit:
        return 0
    columns, bound = state.views.compared_columns, OUTLIER * min(attempt.noise, state.best.noise)
    by_it, by_best = (
        np.abs(columns.sweep.residual(one.U, one.V)) <= bound + EXPLAINED * state.unit for one in (attempt, state.best)
    )
    more, fewer = (int(np.count_nonzero(one)) for one in (by_it & ~by_best, by_best & ~by_it))
    due = parameter_count(columns.M, attempt.U.shape[1]) - parameter_count(columns.M, state.best.U.shape[1])
    chance = max(CHANCE * math.sqrt(more + fewer), NO_MORE * columns.M.nnz) + abs(due)
    return (more - fewer > chance) - (fewer - more > chance)


def evidence(state: LadderState) -> float:
    """The number of entries that the best attempt explains, for each of its parameters."""
    columns, best = state.views.compared_columns, state.best
    e = columns.sweep.residual(best.U, best.V)
    explained = int(np.count_nonzero(np.abs(e) <= OUTLIER * best.noise + EXPLAINED * state.unit))
    return explained / parameter_count(columns.M, best.U.shape[1])


def hides_components(state: LadderState) -> bool:
    """Whether L of the best attempt is no larger than the noise, and a component of it is less than noise would be."""
    M, sizes = state.views.compared_columns.M, np.linalg.svd(host(state.best.V), compute_uv=False)
    of_noise = size_of_noise(M, state.best.noise)
    weak = float(np.linalg.norm(sizes)) < WEAK * state.best.noise * math.sqrt(math.prod(M.shape))
    return weak and bool(sizes.min() < of_noise)


def size_of_noise(M: PartialMatrix, noise: float) -> float:
    """The largest singular value of noise at the entries of M, divided by the share that is observed."""
    return noise * (math.sqrt(M.shape[0]) + math.sqrt(M.shape[1])) / math.sqrt(M.density)


def is_partly_better(state: LadderState) -> bool:
    """Whether a part of the data is explained far better than the best attempt explains all of it."""
    return state.part_noise + EXPLAINED * state.unit < PARTLY * state.best.noise


def with_one_rank_more(state: LadderState) -> LadderState | None:
    """The best attempt with one rank more, if that leaves far less noise.

    A fit that has spent a component on errors with structure lacks one of its own.
    """
    trial = copy(state)
    take_best(trial)
    M = trial.matrix
    k = trial.rank + 1

    def unbiased(noise: float, rank: int) -> float:
        return noise / math.sqrt(max(1 - parameter_count(M, rank) / M.nnz, 0.01))

    if 2 * k > min(M.shape) or 1.5 * parameter_count(M, k) > M.nnz or trial.noise < EXPLAINED * state.unit:
        return None  # with so many parameters anything fits, and an exact fit lacks nothing
    climb(trial)
    while trial.passes < 15 and (trial.passes < PATIENCE or trial.recent[-1] < SETTLED * trial.recent[-3]):
        run_pass(trial)
    trial.noise = unbiased(trial.noise, k)
    return trial if trial.noise < LESS * unbiased(state.best.noise, k - 1) else None


def drop_sparsest(state: LadderState) -> bool:
    """Remove the component that the fewest rows, or columns, have, whichever is missed less; False if most have all.

    Rows or columns that are wrong together have a component of their own.
    """
    rng = np.random.default_rng(0x737061)
    found = [(side, *sparsest_direction(Q, rng, SPARSE_NEXT)) for side, Q in orthonormal_factors(state)]
    return _drop_one(state, [(side, direction) for side, direction, share in found if share <= 0.5], np.inf)


def sparsest_direction(F: Float, rng: np.random.Generator, size: float, draws: int = 400) -> tuple[Float, float]:
    """The direction x that the fewest rows f of F (n x k) have, and their share: |f · x| > size |f|.

    It is the best of several, each orthogonal to k - 1 random rows.
    """
    n, k = F.shape
    unit = F / np.maximum(np.linalg.norm(F, axis=1, keepdims=True), np.finfo(float).tiny)
    some = unit[rng.integers(n, size=(draws, k - 1))]
    directions = np.linalg.svd(some)[2][:, -1] if k > 1 else np.ones((1, 1))
    shares = np.mean(np.abs(unit @ directions.T) > size, axis=0)
    best = int(np.argmin(shares))
    return np.asarray(directions[best], dtype=np.float64), float(shares[best])


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
    if score_of(rest) < score_of(state) + AS_WELL:
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

    Returns the shares of explained entries, by column and by row, and the number of lines that were improved.
    """
    columns, rows = state.lines
    column_shares = columns.explained_share(state.U, state.V, state.c)
    state.V, _, n_columns = columns.refit_poorly_explained(state.U, state.V, state.c, column_shares)
    Q, C = orthonormalise(state.V, state.U)
    row_shares = rows.explained_share(Q, C, state.c)
    C, _, n_rows = rows.refit_poorly_explained(Q, C, state.c, row_shares)
    if n_columns or n_rows:
        state.U, state.V = orthonormalise(C, Q)
    return (column_shares, row_shares), n_columns + n_rows


def explained_shares(state: LadderState) -> tuple[Float, Float]:
    """The shares of explained entries, by column and by row."""
    columns, rows = state.lines
    Q, C = orthonormalise(state.V, state.U)
    return columns.explained_share(state.U, state.V, state.c), rows.explained_share(Q, C, state.c)


def outlier_share(state: LadderState) -> float:
    """The share of the entries that is not explained."""
    e = state.lines[0].sweep.residual(state.U, state.V)
    return float(np.mean(np.abs(e) > OUTLIER * state.noise + EXPLAINED * state.unit))


def outliers_gather(state: LadderState, shares: tuple[Float, Float]) -> bool:
    """Whether many entries are unexplained, and some columns or rows have far more of them than chance would give."""
    for lines, share in zip(state.lines, shares, strict=True):
        counts = lines.M.column_counts
        usual = float(np.sum(counts * share)) / max(lines.M.nnz, 1)
        variance = float(np.mean(counts * (share - usual) ** 2))
        if 1 - usual > MANY and variance > GATHERED * usual * (1 - usual):
            return True
    return False


def score_of(state: LadderState) -> float:
    """Mean log |e| of held-out entries; if too few are held out, of all entries with a penalty on components."""
    e, unit = state.held_residual()[state.views.comparable], state.unit
    if e.size >= MIN_HELD_OUT:
        return float(np.mean(log_error(e, unit)))
    columns = state.views.compared_columns
    (m, n), entries = columns.M.shape, columns.M.nnz
    e = columns.sweep.residual(state.U, state.V)
    sizes = np.linalg.svd(host(state.V), compute_uv=False) / (robust_scale(e) + 1e-7 * unit)
    components = np.sum(1 + np.log1p(entries / (m * n * (m + n)) * sizes**2))
    return float(np.mean(log_error(e, unit)) + (m + n) / (2 * entries) * components)


def is_spiky(state: LadderState) -> bool:
    """Whether a single row or column has a component almost alone: it may fit an outlier."""
    return any(bool((leverages(A) > 0.9).any()) for A in (state.U, state.V))


def predicts(state: LadderState, e: Float) -> bool:
    """Whether held-out entries, with these residuals, are predicted as well as the fitted entries."""
    columns, values = state.lines[0], state.views.sketch.held.values
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
    if held.size >= MIN_HELD_OUT:
        as_well &= state.scale(held) <= FARTHER * state.noise * math.sqrt((1 + h) / (1 - h)) + close
    gain = np.log(np.abs(values) + close) - np.log(held + close)  # over L = 0
    return as_well and float(np.mean(gain)) > max(0.05, 3 * float(np.std(gain)) / math.sqrt(gain.size))


def take_best(state: LadderState) -> None:
    """Go back to the best attempt, on all of the block."""
    best = state.best
    state.U, state.V, state.noise = best.U, best.V, best.noise
    state.view, state.undetermined, state.max_c = "block", best.undetermined, best.max_c
    state.mostly_wrong = best.mostly_wrong
    state.c, state.untied = min(EFFICIENT * state.noise, state.max_c), False
