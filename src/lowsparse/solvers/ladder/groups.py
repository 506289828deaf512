"""Components that only some of the lines have: an odd but coherent group of rows, or of columns.

Once most entries are fitted closely, c is so small that the lines of such a group are taken for wrong as a whole, and
nothing is added to L any more. Let B be the known factor, and x a line that it does not explain. If x = B a + b w, but
for errors, with the same w for the whole group, then each of its lines is a w, but for its own errors: modulo B, the
others are multiples of it. So some lines are tried as w, and the one that explains most of the others is improved:
given the coefficients, w is regressed place by place on those of the group; given w, each line on (B, w).

A block may have so few lines of a group that the component fits their errors. In the whole matrix the lines of the
group then explain fewer entries than others do. These lines alone are regressed on, without an initial guess.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...entries.observed import ObservedMatrix
from ...linalg.arrays import host, to_device_of
from ...linalg.grassmann import basis
from ...linalg.scale import OUTLIER, robust_scale
from ...robust.growth import take_block
from ...robust.regression import ANNEALING, EFFICIENT, EXPLAINED, FIRST_C, SHRINK, LineRegression
from ...sweeps import Float, Robust, min_support
from ..start import left_singular_vectors
from .components import orthonormal_factors, remove_direction
from .evidence import FEW_BY_CHANCE, SPARSE_NEXT, sparsest_direction
from .judging import explained_shares, refit_poor_lines
from .passes import widened
from .state import LadderState, orthonormalise

POOR = 0.5  # share of its entries that a line explains, relative to the usual one, below which it may be of a group
LARGEST, CANDIDATES = 300, 30  # lines among which a group is sought, and those of them that are tried as w
PASSES = 6  # of the fit of w and of the coefficients
EVIDENCE = 1.5  # entries that a group must explain for each parameter of the component and of its lines
UNTOLD = 2.5  # entries of unexplained lines for each such parameter, below which nothing can be told of a component
BELONGS = 0.5  # share of its entries that a line of the group explains; by a w that is a line, the square of it
CLOSE = 5e-3  # noise, in units, below which groups are looked for in the whole matrix
LEAST_C = 1e-3  # in units
ROUNDS = 4  # in which groups of the whole matrix are looked for
SAMPLED, DIRECTIONS = 1000, 100  # lines and directions by which a component is looked for that most lines lack
UNUSUAL = 4.0  # standard deviations by which a line of a group explains fewer entries than others
SINGULAR = 1e-3  # least element of the diagonal of a triangular factor, relative to the largest
LARGE = 10.0  # magnitude of an entry in medians of its line, above which it has no part in w


def add_component(state: LadderState, shares: tuple[Float, Float]) -> bool:
    """Add to L a component that only some columns, or rows, have; False if there is none.

    `shares` are those of explained entries, by column and by row.
    """
    columns, rows = state.lines
    U, V = host(state.U), host(state.V)
    Q, C = orthonormalise(V, U)
    of_columns = _shared_component(columns, U, shares[0], state)
    of_rows = _shared_component(rows, Q, shares[1], state)
    if of_columns is not None and (of_rows is None or of_columns.gain >= of_rows.gain):
        U, V = of_columns.extend(U, V)
    elif of_rows is not None:
        Q, C = of_rows.extend(Q, C)
        U, V = orthonormalise(C, Q)
    else:
        return False
    state.U, state.V = (to_device_of(F, state.U) for F in (U, V))
    state.c, state.additions = widened(state), state.additions + 1
    state.restart_count()
    return True


@dataclass(frozen=True)
class Component:
    """A direction w orthogonal to B, and the coefficients on (B, w) of the lines that have it."""

    w: Float
    lines: NDArray[np.intp]
    coefficients: Float
    gain: int  # the number of entries of these lines that are explained

    def extend(self, B: Float, C: Float) -> tuple[Float, Float]:
        """B and the coefficients C of all lines with this component."""
        C = np.hstack([C, np.zeros((len(C), 1))])
        C[self.lines] = self.coefficients
        return np.column_stack([B, self.w]), C


def _shared_component(lines: LineRegression, B: Float, share: Float, state: LadderState) -> Component | None:
    """The component that poorly explained ones of these lines have in common, if there is one."""
    k, rng = B.shape[1], np.random.default_rng([0x616464, B.shape[1]])
    poor = np.flatnonzero((share < POOR * np.median(share)) & (lines.M.column_counts >= 2 * min_support(k + 1)))
    poor = np.sort(rng.permutation(poor)[:LARGEST])
    some = lines.M.take_columns(poor) if poor.size > 2 else None
    if some is None:
        return None
    group = Group(some.to_host(), B, max(EFFICIENT * state.noise, LEAST_C * state.unit), state.unit, lines.sweep.host)
    starts = (group.best_candidate(rng), group.annealed(rng))
    found = [_component(group, *group.fit(start), poor) for start in starts if start is not None]
    return max((one for one in found if one is not None), key=lambda one: one.gain, default=None)


def _component(group: Group, w: Float, fit: GroupFit, lines: NDArray[np.intp]) -> Component | None:
    """The component w of these lines, if it explains more of their entries than it has parameters."""
    own, k = fit.explained, group.B.shape[1]
    gain = int(fit.inside[own].sum())
    places = np.count_nonzero(take_block(group.M, np.arange(len(w)), own).row_counts)
    due = places + (k + 1) * own.size
    if not own.size or gain < EVIDENCE * due:
        return None
    return Component(w, lines[own], fit.coefficients[own], gain)


@dataclass(frozen=True)
class GroupFit:
    """Coefficients of the lines of a group, the lines that these explain, and how many entries of each."""

    coefficients: Float
    explained: NDArray[np.intp]
    inside: NDArray[np.int64]


class Group:
    """Lines, the columns of M, that B does not explain."""

    def __init__(self, M: ObservedMatrix, B: Float, c: float, unit: float, backend: str) -> None:
        self.M, self.B, self.c, self.unit, self.backend = M, B, c, unit, backend

    def best_candidate(self, rng: np.random.Generator) -> GroupFit | None:
        """The fit on (B, w) with the line as w that explains most entries, where this line was observed."""
        best, most = None, 0
        for i in rng.permutation(self.M.shape[1])[:CANDIDATES]:
            places, x = self._usual_entries(i)
            size = float(np.linalg.norm(x))
            if not size or x.size < min_support(self.B.shape[1] + 1):
                continue
            Q, R = basis(np.column_stack([self.B[places], x / size]))
            if _is_singular(R):
                continue  # B is not determined there, or the line is explained
            fit = self._regress(self.M.take_rows(places), Q, BELONGS**2)
            explained = int(fit.inside[fit.explained].sum())
            if explained > most and fit.explained.size > 1:
                best = replace(fit, coefficients=np.asarray(np.linalg.solve(R, fit.coefficients.T).T, dtype=np.float64))
                most = explained
        return best

    def annealed(self, rng: np.random.Generator) -> GroupFit | None:
        """The fit on (B, w) of all lines, w at first the leading singular vector of what B leaves of them.

        Lines with few entries have too few in common with any one of them. c decreases from the size of the data.
        """
        M, sweep, widest = self.M, self.M.open_sweep(self.backend), FIRST_C * self.unit
        a = sweep.regress(self.B, None, Robust(c=widest, n_reweight=2)).V
        left = -sweep.residual(self.B, a)
        clip = EFFICIENT * robust_scale(left)
        left = np.clip(left, -clip, clip)
        clipped = M.with_values(left.astype(M.dtype)).open_sweep(self.backend)
        w = left_singular_vectors(clipped, M.shape[0], 1, rng)[0][:, 0]
        C = np.column_stack([a, np.zeros(len(a))])
        for c in np.geomspace(widest, self.c, ANNEALING):
            Q = np.column_stack([self.B, _normalised(w - self.B @ (self.B.T @ w))])
            C = sweep.regress(Q, C, Robust(c=float(c), n_reweight=2, shrink=SHRINK)).V
            w = self._direction(GroupFit(C, np.arange(len(C)), np.zeros(len(C), np.int64)), float(c))
        fit = self._regress(M, np.column_stack([self.B, w]), BELONGS)
        return fit if fit.explained.size > 1 else None

    def _usual_entries(self, i: int) -> tuple[NDArray[np.intp], Float]:
        """The places and values of a line, without those that are far larger than the others."""
        at = slice(*self.M.indptr[i : i + 2])
        places, x = self.M.rows[at].astype(np.intp), self.M.values[at].astype(np.float64)
        usual = np.abs(x) <= LARGE * np.median(np.abs(x))
        return places[usual], x[usual]

    def fit(self, fit: GroupFit) -> tuple[Float, GroupFit]:
        """w and the coefficients in turn."""
        w = np.zeros(len(self.B))
        for _ in range(PASSES):
            if not fit.explained.size:
                break
            w = self._direction(fit, self.c)
            fit = self._regress(self.M, np.column_stack([self.B, w]), BELONGS)
        return w, fit

    def _regress(self, M: ObservedMatrix, B: Float, least_share: float) -> GroupFit:
        lines = LineRegression(M, M.open_sweep(self.backend), self.unit, learning=True)
        C, inside = lines.fit_with_subsets(B, self.c)
        least = np.maximum(least_share * M.column_counts, 2 * min_support(B.shape[1]))
        return GroupFit(C, np.flatnonzero(inside >= least), inside)

    def _direction(self, fit: GroupFit, c: float) -> Float:
        """w, from what B leaves of the lines that are explained."""
        some = take_block(self.M, np.arange(len(self.B)), fit.explained)
        a, b = np.hsplit(fit.coefficients[fit.explained], [self.B.shape[1]])
        left = -some.open_sweep(self.backend).residual(self.B, a)
        across = some.with_values(left.astype(some.dtype)).T.open_sweep(self.backend)
        options = Robust(c=c, first_c=FIRST_C * self.unit, n_reweight=15)
        w = across.regress(_normalised(b), None, options).V[:, 0]
        return _normalised(w - self.B @ (self.B.T @ w))


def _normalised(x: Float) -> Float:
    """x / ‖x‖, or zero."""
    return np.asarray(x / max(float(np.linalg.norm(x)), np.finfo(float).tiny), dtype=np.float64)


def settle(state: LadderState, shares: tuple[Float, Float]) -> bool:
    """Let groups of lines of the whole matrix have their say, of which the block may have had too few.

    `shares` are those of explained entries, by column and by row, as far as they are known. Not where suspicious ties
    would be a group. Returns whether L has changed.
    """
    close = state.rank > 0 and state.noise <= CLOSE * state.unit
    tied = state.views.ties is not None and not state.untied
    if not close or tied or not _may_have_groups(state, shares):
        return False
    for settled in range(ROUNDS):
        shares = _shares_without_ties(state)
        improved = refit_by_group(state, shares)
        if improved:
            shares = _shares_without_ties(state)
        found = add_component(state, shares) if state.rank < state.views.rank else _exchange(state, shares)
        if not (improved or found):
            return settled > 0
        refit_poor_lines(state)
    return True


def may_lack_component(state: LadderState) -> bool:
    """Whether L has a lower rank than was asked for, and lines that it does not explain may have a component.

    Lines with so few entries that no component could be told from errors: it has a parameter at each place, and one
    more in each line.
    """
    if not 0 < state.rank < state.asked or state.noise > FEW_BY_CHANCE * state.unit:
        return False
    for lines, share in zip(state.lines, _shares_without_ties(state), strict=True):
        usual = float(np.median(share))
        poor = np.flatnonzero((share < POOR * usual) & (lines.M.column_counts > 0))
        some = lines.M.take_columns(poor) if poor.size > 1 else None
        if some is None:
            continue
        due = np.count_nonzero(some.row_counts) + (state.rank + 1) * poor.size
        if usual * some.nnz < UNTOLD * due:
            return True
    return False


def _shares_without_ties(state: LadderState) -> tuple[Float, Float]:
    """The shares of explained entries, by column and by row; the usual one for lines whose entries are mostly ties."""
    by_column, by_row = explained_shares(state)
    if state.views.ties_of_whole is None:
        return by_column, by_row
    of_columns, of_rows = state.views.ties_of_whole.shares()
    by_column[of_columns > 0.5], by_row[of_rows > 0.5] = np.median(by_column), np.median(by_row)
    return by_column, by_row


def _may_have_groups(state: LadderState, shares: tuple[Float, Float]) -> bool:
    """Whether lines are poorly explained, or a component is one of few lines."""
    poor = any(bool((share < POOR * np.median(share)).any()) for share in shares)
    return poor or any(_with_sparsest(F) is not None for F in (state.U, state.V))


def _with_sparsest(F: Float) -> NDArray[np.intp] | None:
    """The lines that have a component which most lack, as a sample of the lines shows; None if most have all."""
    Q, R = basis(host(F[:: -(-len(F) // SAMPLED)]))
    direction, share = sparsest_direction(Q, np.random.default_rng(0x737061), SPARSE_NEXT, DIRECTIONS)
    if share > 0.5 or _is_singular(R):
        return None
    Q = np.linalg.solve(R.T, host(F).T).T
    return np.flatnonzero(np.abs(Q @ direction) > SPARSE_NEXT * np.linalg.norm(Q, axis=1))


def _is_singular(R: Float) -> bool:
    """Whether a triangular matrix is close to a singular one."""
    sizes = np.abs(np.diag(R))
    return float(sizes.min()) <= SINGULAR * float(sizes.max())


def refit_by_group(state: LadderState, shares: tuple[Float, Float]) -> int:
    """Regress columns on groups of rows alone, and rows on groups of columns; return how many are better then."""
    columns, rows = state.lines
    n_better = 0
    for group in _groups(rows, state.U, shares[1]):
        state.V, n = _refit_on(group, rows, columns, state.U, state.V, state.c)
        n_better += n
    Q, C = orthonormalise(state.V, state.U)
    for group in _groups(columns, Q, shares[0]):
        C, n = _refit_on(group, columns, rows, Q, C, state.c)
        n_better += n
    state.U, state.V = orthonormalise(C, Q)
    return n_better


def _groups(lines: LineRegression, F: Float, share: Float) -> list[NDArray[np.intp]]:
    """The lines that explain unusually few entries, and those that have a component which most lack."""
    counts, usual = lines.M.column_counts, float(np.median(share))
    chance = UNUSUAL * np.sqrt(counts * max(usual * (1 - usual), 1e-4)) + 1
    found = [np.flatnonzero(counts * (usual - share) > chance)]
    sparse = _with_sparsest(F)
    if sparse is not None:
        found.append(sparse)
    return [group for group in found if 2 * F.shape[1] <= group.size <= len(F) / 2]


def _refit_on(
    group: NDArray[np.intp], places: LineRegression, lines: LineRegression, B: Float, C: Float, c: float
) -> tuple[Float, int]:
    """Coefficients on B of lines, from their entries in a group of places alone where more are explained then."""
    some = places.M.take_columns(group)
    Q, R = basis(host(B)[group])
    if some is None or _is_singular(R):
        return C, 0
    M = some.T
    part = LineRegression(M, M.open_sweep(lines.sweep.host), lines.unit, learning=True)
    fitted = host(part.fit_from_zero(to_device_of(Q, M.values), c, n_reweight=15))
    new = to_device_of(np.linalg.solve(R, fitted.T).T, C)
    before, after = (lines.refit(B, F, c, 1).inside for F in (C, new))
    better = np.flatnonzero(after > before + 1)
    C = C.copy()
    C[to_device_of(better, C)] = new[to_device_of(better, new)]
    return C, int(better.size)


def _exchange(state: LadderState, shares: tuple[Float, Float]) -> bool:
    """Add a component that a group of lines has, and drop another that fewer have, if that explains more."""
    trial = with_component(state, shares)
    if trial is None:
        return False
    rng = np.random.default_rng(0x737061)
    found = [(side, *sparsest_direction(Q, rng, SPARSE_NEXT)) for side, Q in orthonormal_factors(trial)]
    side, direction, share = min(found, key=lambda one: one[2])
    if share > 0.5:
        return False
    remove_direction(trial, side, direction)
    refit_poor_lines(trial)
    bound = OUTLIER * state.noise + EXPLAINED * state.unit
    before, after = (
        int(np.count_nonzero(np.abs(one.lines[0].sweep.residual(one.U, one.V)) <= bound)) for one in (state, trial)
    )
    if after < before + EVIDENCE * sum(state.matrix.shape):
        return False
    state.U, state.V, state.c = trial.U, trial.V, trial.c
    state.restart_count()
    return True


def with_component(state: LadderState, shares: tuple[Float, Float]) -> LadderState | None:
    """The state with one component more, which only some lines have; None if there is none."""
    larger = copy(state)
    return larger if add_component(larger, shares) else None
