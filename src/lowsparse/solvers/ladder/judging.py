"""The judgement of an attempt: its score, and whether it can be believed."""

import math
from copy import copy

import numpy as np

from ...entries.observed import ObservedMatrix
from ...entries.protocol import PartialMatrix
from ...linalg.arrays import host
from ...linalg.grassmann import leverages
from ...linalg.scale import OUTLIER, closest_scale, robust_scale
from ...robust.joint import coupling, determination
from ...robust.regression import EFFICIENT, EXPLAINED
from ...sweeps import Float, min_support
from .climbing import climb
from .passes import MIN_HELD_OUT, PATIENCE, SETTLED, run_pass
from .state import LadderState, log_error, orthonormalise, parameter_count

PARTLY = 0.2  # noise of a part relative to that of all, below which all could be explained far better
FEW = 4  # entries per parameter, below which the slow attempt ends in joint steps
TIGHT = 0.7  # coupling, below which the explained entries connect all rows and columns
# Noise with one rank more relative to the noise, below which the fit lacks a component; the second if the rank is a
# limit: those of the estimators and the video are, which judge rows, centres and pixels themselves.
LESS = (1 / 2, 1 / 3)
FARTHER = 2.0  # scale of residuals of held-out entries, relative to what is expected, above which L does not predict
# The same relative to that of fitted entries, from which held-out ones must be predicted: with residuals that are less
# than this share of the entries, in the median.
CLOSER, IN_VAIN = 2.5, 0.4
# Difference, relative to the noise, up to which two attempts have found the same; the second value if the noise, in
# units, exceeds NOISY, unless the error of the fit is larger anyway.
ALIKE, NOISY = (1.0, 0.2), 0.2
SAME = 0.4  # the same relative to L itself
CLOSELY = 0.7  # the same relative to the error that noise makes of the fit, up to which they agree closely
MANY, GATHERED = 0.01, 4.0  # share of unexplained entries, and its variance in lines relative to chance: suspicious
# Scale of the closest residuals relative to that of all, below which most entries may be wrong: for normal noise .96
# if 20 % are, .91 if 30 % are. What c is multiplied by in a pass, and the passes in which the score must fall by GAIN.
HEAVY, FALL, WAIT, GAIN = 0.95, 0.8, 6, 0.05
CLEARER, FOUND = 0.5, 0.3  # largest noise relative to that before, and least share of held-out entries within it
DISTINCT = 0.95  # least share of different numbers: round ones are met exactly by chance
WORSE = 1.25  # scale of residuals beyond a core relative to that in it, above which the core does not stand for all
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


def is_alike(state: LadderState, residuals: Float) -> tuple[bool, bool]:
    """Whether the best attempt so far predicts the same, up to a part of the noise; and whether it does closely.

    It does so closely if it differs by less than the error that noise makes of any fit.
    """
    if not state.scores or residuals.shape != state.best.residuals.shape:
        return False, False
    M = state.views.compared_columns.M
    error = math.sqrt(parameter_count(M, state.rank) / M.nnz)  # of the fit, in units of the noise
    most = ALIKE[0] if state.noise <= NOISY * state.unit else max(ALIKE[1], min(error, ALIKE[0]))
    size = float(np.linalg.norm(host(state.V))) / math.sqrt(math.prod(state.matrix.shape))  # of L
    difference = robust_scale(residuals - state.best.residuals)
    alike = difference <= min(most * state.noise, SAME * size) + EXPLAINED * state.unit
    return alike, alike and difference <= CLOSELY * error * state.noise


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


def with_one_rank_more(state: LadderState, *, limited: bool) -> LadderState | None:
    """The best attempt with one rank more, if that leaves far less noise; `limited` if the rank is a limit.

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
    return trial if trial.noise < LESS[limited] * unbiased(state.best.noise, k - 1) else None


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
    if state.scale(held) > CLOSER * state.noise + close and np.median(held) > IN_VAIN * np.median(np.abs(values)):
        return False  # fitted entries are met by as many parameters, and others are not predicted
    gain = np.log(np.abs(values) + close) - np.log(held + close)  # over L = 0
    return as_well and float(np.mean(gain)) > max(0.05, 3 * float(np.std(gain)) / math.sqrt(gain.size))


def explains_others(state: LadderState) -> bool:
    """Whether L, which has been extended to all lines, explains those beyond a core about as well as those in it.

    Where it does not, they may have a component that the core lacks. Lines with few entries do not count.
    """
    M, sketch = state.problem.M, state.views.sketch
    if not (sketch.is_core and isinstance(M, ObservedMatrix)):
        return True
    e, least = state.problem.sweep.residual(host(state.U), host(state.V)), 4 * (state.rank + 1)
    in_core = np.ones(M.nnz, bool)
    others = []
    for at, lines, counts in (
        (M.rows, sketch.rows, M.row_counts),
        (M.columns_of_entries(), sketch.columns, M.column_counts),
    ):
        inside = np.isin(np.arange(counts.size), lines)
        others.append(((counts >= least) & ~inside)[at])
        in_core &= inside[at]
    usual = robust_scale(e[in_core]) + EXPLAINED * state.unit
    return all(robust_scale(e[some]) <= WORSE * usual for some in others if some.any())


def take_best(state: LadderState) -> None:
    """Go back to the best attempt, on all of the block."""
    best = state.best
    state.U, state.V, state.noise = best.U, best.V, best.noise
    state.view, state.undetermined, state.max_c = "block", best.undetermined, best.max_c
    state.mostly_wrong = best.mostly_wrong
    state.c, state.untied = min(EFFICIENT * state.noise, state.max_c), False
