"""How many entries a fit explains, beyond those that its parameters account for.

A component that only s of the m rows have has n + s parameters. Even where it fits errors it explains that many
entries, so it has to explain more of them.
"""

import math

import numpy as np

from ...entries.protocol import PartialMatrix
from ...linalg.arrays import host
from ...linalg.grassmann import basis
from ...linalg.scale import OUTLIER
from ...robust.regression import EXPLAINED
from ...sweeps import Float
from .state import Answer, Attempt, LadderState, parameter_count

Fit = LadderState | Attempt | Answer  # L = U Vᵀ, and its noise

FEW_BY_CHANCE = 0.02  # noise, in units, below which entries are explained by chance so rarely that their number tells
DUE = 1.25  # entries that a component must explain for each of its parameters
SPARSE_NEXT = 0.02  # relative size of a component, below which a line does not have it
N_DIRECTIONS = 40  # tried for a sparse component
# Difference between the numbers of entries that two attempts explain that may be chance, in standard deviations, and
# as a share of all entries; and the noise, in units, above which these numbers say little.
CHANCE, NO_MORE, UNCLEAR = 3.0, 0.01, 0.05


def explains_more(state: LadderState, attempt: Attempt) -> int:
    """Whether an attempt explains more entries than the best so far (1), fewer (-1), or as many but for chance (0).

    Only of close fits: with much noise, a fit that is less close explains more.
    """
    if not state.scores or max(attempt.noise, state.best.noise) > UNCLEAR * state.unit:
        return 0
    M = state.views.compared_columns.M
    more, fewer = _only_one_explains(state, attempt, state.best, min(attempt.noise, state.best.noise))
    due = free_parameters(M, attempt) - free_parameters(M, state.best)
    chance = max(CHANCE * math.sqrt(more + fewer), NO_MORE * M.nnz) + abs(due)
    return (more - fewer > chance) - (fewer - more > chance)


def surplus(state: LadderState, one: Fit, other: Fit) -> tuple[float, float]:
    """How many more entries one fit explains than another, beyond those that more parameters account for.

    The second number is what may be chance: the root of the number of entries that only one of them explains.
    """
    M, noises = state.views.compared_columns.M, (one.noise, other.noise)
    more, fewer = _only_one_explains(state, one, other, min(max(noises), 2 * min(noises)))
    due = free_parameters(M, one) - free_parameters(M, other)
    return more - fewer - (DUE * due if due > 0 else due), math.sqrt(more + fewer)


def _only_one_explains(state: LadderState, one: Fit, other: Fit, noise: float) -> tuple[int, int]:
    """The numbers of entries that only the one, and only the other of two fits explains, given the noise."""
    sweep, bound = state.views.compared_columns.sweep, OUTLIER * noise + EXPLAINED * state.unit
    by_one, by_other = (np.abs(sweep.residual(fit.U, fit.V)) <= bound for fit in (one, other))
    return int(np.count_nonzero(by_one & ~by_other)), int(np.count_nonzero(by_other & ~by_one))


def explains_too_little(rest: LadderState, state: LadderState) -> bool:
    """Whether L without some components explains fewer entries than is due to their parameters alone."""
    return surplus(state, state, rest)[0] > 0


def consider_rival(state: LadderState, fit: Attempt) -> None:
    """Keep a close fit if it explains more entries than the rival so far, beyond its parameters."""
    if fit.noise < FEW_BY_CHANCE * state.unit and (not state.rival.U.size or surplus(state, fit, state.rival)[0] > 0):
        state.rival = fit


def has_rival(state: LadderState) -> bool:
    """Whether a close fit of a higher rank explains more than the best attempt, beyond its parameters and chance."""
    rival, best = state.rival, state.best
    if not rival.U.size or rival.U.shape[1] <= best.U.shape[1] or best.noise > FEW_BY_CHANCE * state.unit:
        return False
    more, chance = surplus(state, rival, best)
    return more > chance


def free_parameters(M: PartialMatrix, fit: Fit) -> int:
    """The number of parameters of L, without coefficients that are zero because only some lines have a component."""
    count = parameter_count(M, fit.U.shape[1])
    for F in (fit.U, fit.V):
        rng = np.random.default_rng(0x737061)
        _, share = sparsest_direction(basis(host(F))[0], rng, SPARSE_NEXT, N_DIRECTIONS)
        if share <= 0.5:
            count -= round((1 - share) * len(F))
    return count


def evidence(state: LadderState) -> float:
    """The number of entries that the best attempt explains, for each of its parameters."""
    columns, best = state.views.compared_columns, state.best
    e = columns.sweep.residual(best.U, best.V)
    explained = int(np.count_nonzero(np.abs(e) <= OUTLIER * best.noise + EXPLAINED * state.unit))
    return explained / parameter_count(columns.M, best.U.shape[1])


def sparsest_direction(F: Float, rng: np.random.Generator, size: float, draws: int = 400) -> tuple[Float, float]:
    """The direction x that the fewest rows f of F (n x k) have, and their share: |f · x| > size |f|.

    It is the best of several, each orthogonal to k - 1 random rows.
    """
    n, k = F.shape
    unit = F / np.maximum(np.linalg.norm(F, axis=1, keepdims=True), np.finfo(float).tiny)
    some = unit[rng.integers(n, size=(draws, k - 1))]
    columns = np.swapaxes(some, 1, 2)
    directions = np.linalg.qr(columns, mode="complete")[0][:, :, -1] if k > 1 else np.ones((1, 1))
    shares = np.mean(np.abs(unit @ directions.T) > size, axis=0)
    best = int(np.argmin(shares))
    return np.asarray(directions[best], dtype=np.float64), float(shares[best])
