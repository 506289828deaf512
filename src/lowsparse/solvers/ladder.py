"""Ladder: alternating robust regression, if need be one rank at a time. The library's own method, and its default.

Given U, every column of M is regressed on it; given V, every row. The weights 1 / (1 + (e/c)²) are those of the Cauchy
loss, so a stationary point for a fixed c is one of

    min over U, V of  Σ_Ω log(1 + ((UV - M)_ij / c)²),

and c follows the residuals: 2.385 times their robust scale (1.4826 times the median of |e|), from which the estimate is
95 % efficient under normal noise. For a fixed c no half-step increases the sum, even one that goes beyond the
regression by less than its length: the loss lies below a parabola that is symmetric about where the regression ends.
So steps are over-relaxed, as far as the rate at which L comes to rest asks for. That the whole finds the truth is not
proved, only measured (`python -m benchmarks.phase`), so the answer is tested: some entries are kept aside while the
subspace is learnt, and it is accepted if it predicts them as well as those it has seen, and either fits exactly or has
been found twice, in different ways.

L is learnt on a sketch, a block of as many rows and columns as are needed to determine it, and extended from there.
The first attempt starts at the full rank from the singular vectors of the clipped data. Others climb: rank 1, then
the leading singular vector of the clipped residuals is added, and so on. Small components are not taken for outliers
then, nor outliers for small components: all that is larger has been removed before. At the end of an attempt lines that
explain few of their entries are regressed anew, from scratch. Of fewer than 500 entries none is kept aside, and the
other tests remain.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import across, beside, host, times
from ..geometry import basis, leverages, qr, relative_change
from ..lines import EFFICIENT, EXPLAINED, Lines, below_usual
from ..lowrank import LowRank
from ..robust.growth import NEAR, SCATTERED, Part, grown, seed_block, take_block
from ..robust.joint import coupling, determination, joint_step
from ..scale import CONSISTENT, OUTLIER, outlying, robust_scale, trimmed_deviation
from ..sketch import rows_of
from ..start import left_singular_vectors
from ..sweeps import Float, enough, open_sweep
from .base import Outcome, Problem, Solver, State, nothing, require, require_count
from .views import Views

__all__ = ["Ladder", "LadderState"]

SLOW = 2  # the attempt that climbs slowly; those after it grow
PACE = (0.3, 0.6)  # c / its previous value, at least, and slowly; a scale that collapses throws inliers away
GENEROUS = 3.0  # how much larger the block is made if the first attempts do not agree
GROWN = 2  # attempts that grew L must have been made before what two attempts agree on is taken
ROUNDS = 15  # of growth; what is not known by then is taken as it is
BETWEEN = 4  # passes between two rounds of growth
JOINT = (25, 40)  # joint steps, and iterations of each
WIDE = (0.03, 0.3)  # c at which they begin, in units; the second if the first were not enough
FEW = 4  # entries for each parameter, below which the slow attempt ends in joint steps
TIGHT = 0.7  # coupling below which the entries that are explained hold everything together
IGNORED = 0.005  # share of entries that pass for outliers where L is not determined
SPIKE = 0.6  # leverage of a row or column that has a component almost alone
CLOSE = 6  # entries for each parameter, below which residuals are too small to tell the noise by
LESS = 1 / 3  # noise with one rank more, as a share: the fit lacks a component
TELLING = 200  # entries kept aside by which attempts are compared
REST = 0.1  # of the error that the noise makes: passes that would change L by less in all to come are not made;
UNSEEN = 0.04  # of the noise: nor are those that change L by less each,
CREEPING = 6  # after so many
LOW, CONSISTENT_LOW = 0.35, 2.2036  # the share of entries that are right, at least, of a block that L grows from
STEPS = 4  # passes on each rank of the climb but the last
PATIENCE = 5  # passes in which the scale must fall by the factor SETTLED
SETTLED = 0.98
LOOKS = 3  # second looks in an attempt, 2 in the first
GAIN = 0.01  # logarithm by which residuals must be smaller for a rank to be better
HOPE = 3  # ranks beyond the best that are tried where the rank is to be chosen
GAINING = 0.97  # the scale after a pass / that before, at most, where steps go beyond the regressions
AGREE = 0.1  # difference of the scores of two attempts that found the same
SLOWEST = 0.95  # factor by which the error is taken to fall in a pass: steps beyond a regression are at most 0.63 of it
SMALLEST = 1e-8  # c, in units: far above rounding, and outliers of any size have no weight any more


@dataclass(kw_only=True)
class LadderState(State):
    """L = U Vᵀ on `data` (see `Views`), and what earlier attempts have found."""

    scratch: ClassVar[tuple[str, ...]] = ("views",)

    views: Views
    data: str = "some"
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
    change: float = np.inf  # of L by the last pass, relatively
    falls: float = 0.0  # that change / the one before
    recent: tuple[float, ...] = ()  # the noise after the last passes
    # where L grows from a part of the data
    part_rows: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    part_columns: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    rounds: int = 0  # of growth
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
    best_fine: bool = False  # it predicts what was kept aside, and ignores nothing
    grown: int = 0  # attempts that grew L
    scores: tuple[float, ...] = ()  # of all attempts that have ended
    held_out: float = np.inf  # robust scale of the residuals of what was kept aside, in the end
    next_noise: float = 0.0  # the noise with one rank more, if that is far less
    # where the rank is to be chosen
    choosing: bool = False
    held: Float = field(default_factory=nothing)  # log |e| of what was kept aside, a row for each rank so far


@dataclass(kw_only=True)
class Ladder(Solver):
    """Alternating robust regression on a ladder of ranks: nothing to choose but the rank.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(80, 90, rank=2, density=0.7, outliers=0.3, random_state=1)
    >>> r = ls.solve(problem.M, rank=2, method=Ladder())
    >>> r.converged and r.L.error(problem.L, relative=True) < 1e-8
    True
    """

    name: ClassVar[str] = "ladder"

    attempts: int = 9  # the first straight at the rank, the others by climbing, most of these from dense blocks
    choose_rank: bool = False  # climb at most to the rank, while entries kept aside are predicted better and better

    def check(self, problem: Problem) -> None:
        """Check the parameters."""
        require_count(self, "attempts")
        require(isinstance(self.choose_rank, bool), "choose_rank", self.choose_rank, "True or False")

    def init(self, problem: Problem) -> LadderState:
        """Before the first attempt."""
        state = LadderState(
            views=Views(problem, at_least=50 if self.choose_rank else 500),
            target=problem.rank,
            choosing=self.choose_rank,
        )
        self._begin(problem, state, 1 if self.choose_rank else 0)
        return state

    # -- attempts

    def _begin(self, problem: Problem, state: LadderState, attempt: int) -> None:
        """Start an attempt: at the full rank, or with rank 1; on a block, on all rows and columns, or growing."""
        state.attempt, state.made = attempt, (*state.made, attempt)
        state.looks, state.changed, state.joint, state.joined = 0, np.inf, 0, 0
        state.held = nothing()
        state.shrinks = attempt not in (0, SLOW)
        state.data = "some"
        if attempt > SLOW and self._sow(problem, state):
            return
        if attempt == 0 and problem.start_given:
            columns, unit = state.views.columns(state.data), state.views.unit
            U = problem.start()
            state.U = basis(beside(U[beside(state.views.sketch.rows, U)], columns.M.values))[0]
            state.V = columns.afresh(state.U, EXPLAINED * unit, turns=5)
            state.c = self._width(state, columns.sweep.residual(state.U, state.V))
            self._anew(state)
        else:
            self._climb_from(state, state.target if attempt == 0 else 1)

    def _sow(self, problem: Problem, state: LadderState) -> bool:
        """Begin with the best of several small blocks; False if there is none."""
        M = state.views.block
        if M is None:
            return False
        best = self._best_block(problem, state, np.arange(M.shape[0]), np.arange(M.shape[1]))
        if best is None:
            return False
        best.rounds, best.careful = 0, 2
        vars(state).update(vars(best))
        return True

    def _best_block(
        self, problem: Problem, state: LadderState, rows: NDArray[np.intp], columns: NDArray[np.intp]
    ) -> LadderState | None:
        """Climb on several small blocks of these rows and columns; what came of the best of them."""
        assert state.views.block is not None  # or there would be no part
        M = take_block(state.views.block, rows, columns)
        near = state.grown % 2 == 0
        rng = np.random.default_rng([0x736F77, state.attempt, rows.size])
        best: LadderState | None = None
        for size in NEAR if near else SCATTERED:
            if not M.nnz:
                break
            some_rows, some_columns = seed_block(M, state.target, rng, size, near=near)
            if min(some_rows.size, some_columns.size) <= state.target:
                continue
            trial = copy(state)
            trial.data, trial.part_rows, trial.part_columns = "part", rows[some_rows], columns[some_columns]
            self._climb_from(trial, 1)
            while trial.U.shape[1] < trial.target or self._moving(trial):
                self._pass(trial)
                if self._exact(problem, trial):
                    break
                if trial.U.shape[1] < trial.target and trial.since >= STEPS and not _falling(trial.recent):
                    self._climb(trial)
            if best is None or self._promise(trial) < self._promise(best):
                best = trial
        return best

    def _promise(self, state: LadderState) -> tuple[bool, float]:
        """By which blocks are compared: whether the rank is needed to explain it, and how well it is explained."""
        return state.U.shape[1] < state.target, state.noise

    def _climb_from(self, state: LadderState, rank: int) -> None:
        """Begin with the leading singular vectors of the data, clipped."""
        columns, _ = self._lines(state)
        state.U = self._leading(state, columns.M.values, 3 * state.views.unit, rank)
        state.V = beside(np.zeros((columns.M.shape[1], rank)), state.U)
        state.c = 3 * state.views.unit
        self._anew(state)

    def _lines(self, state: LadderState) -> tuple[Lines, Lines]:
        """The columns and rows that passes run over."""
        if state.data == "part":
            return state.views.part(state.part_rows, state.part_columns)
        return state.views.columns(state.data), state.views.rows(state.data)

    def _width(self, state: LadderState, e: Float) -> float:
        """c for these residuals."""
        return max(EFFICIENT * robust_scale(e), SMALLEST * state.views.unit)

    def _anew(self, state: LadderState) -> None:
        state.since, state.recent, state.beyond = 0, (), 0.0

    def _leading(self, state: LadderState, values: NDArray[Any], clip: float, k: int) -> Float:
        """The k leading left singular vectors of the data with these values, clipped."""
        columns, _ = self._lines(state)
        M = columns.M
        clipped = M.with_values(np.clip(values, -clip, clip).astype(M.dtype))
        rng = np.random.default_rng([state.attempt, state.U.shape[1], k])
        return left_singular_vectors(open_sweep(clipped, columns.sweep.name), M.shape[0], k, rng)[0]

    def _climb(self, state: LadderState) -> None:
        """One rank more."""
        e = self._lines(state)[0].sweep.residual(state.U, state.V)
        state.c = self._width(state, e)
        u = self._leading(state, -e, state.c / EFFICIENT, 1)
        state.U = basis(np.hstack([state.U, u - state.U @ (state.U.T @ u)]))[0]
        state.V = np.hstack([state.V, np.zeros_like(state.V[:, :1])])
        self._anew(state)

    # -- one pass

    def advance(self, problem: Problem, state: LadderState) -> LadderState:
        """One pass, the columns, then the rows, or one joint step; and what follows from it.

        Of a part of the data, as many passes as there are entries of the whole for.
        """
        state = copy(state)  # an interruption leaves the one before as it was
        state.views.enlarge(state.generous)  # if it was resumed
        done, attempt = 0, state.attempt
        while True:
            done += self._lines(state)[0].M.nnz
            self._advance(problem, state)
            if state.data != "part" or state.attempt != attempt or done >= problem.M.nnz or state.failure:
                state.iteration += 1
                return state

    def _advance(self, problem: Problem, state: LadderState) -> None:
        if state.joint:
            self._joint_step(state)
        else:
            self._pass(state)
        state.row = {
            "objective": state.noise,
            "gamma": state.c,
            "dS": math.nan,
            "dU": math.nan,
            "change": state.change,
            "rank": state.U.shape[1],
            "entries": self._lines(state)[0].M.nnz,
        }
        if not math.isfinite(state.noise):
            state.failure = "diverged"
        elif state.joint:
            self._after_joint_step(state)
        elif state.data == "whole":
            self._watch(problem, state)
        elif self._exact(problem, state) and state.change <= max(problem.tol, 1e-12):
            if state.data != "part":  # of which others may need more
                state.target, state.choosing = state.U.shape[1], False  # nothing is left to fit
            self._conclude(problem, state)
        elif state.choosing or state.U.shape[1] < state.target:
            if state.since >= STEPS and not _falling(state.recent):
                self._next_rank(state)
        elif not self._moving(state):
            self._conclude(problem, state)

    def _pass(self, state: LadderState) -> None:
        """Regress the columns, then the rows, shrunk as the noise asks for; go on beyond where that helps."""
        columns, rows = self._lines(state)
        turns = 2 if state.since < 3 and state.data != "whole" else 1
        noise = self._noise_to_shrink_by(state)
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
        pace = PACE[1 if state.attempt == SLOW else 0]
        state.c = max(EFFICIENT * state.noise, pace * state.c, SMALLEST * state.views.unit)
        state.since += 1
        state.recent = (*state.recent, state.noise)[-PATIENCE - 1 :]
        # only lines that are determined come to rest
        change = _relative_change(U, V, dV, dC, Q, *(f.inside >= enough(U.shape[1]) for f in (fitted, by_column)))
        state.falls = change / state.change if state.change > 0 else 0.0
        relaxed = state.since > 3 and (state.data == "whole" or state.noise < GAINING * state.recent[-2])
        state.beyond = _relaxation(state.beyond, state.falls) if relaxed else 0.0
        state.change = change

    def _noise_to_shrink_by(self, state: LadderState) -> float:
        """The noise; where there are few entries for each parameter, more by those kept aside: fits are too close.

        A component that is new has no size yet, and nothing is shrunk.
        """
        if not (state.shrinks and state.since):
            return 0.0
        M = self._lines(state)[0].M
        if state.data == "part" or M.nnz > CLOSE * state.U.shape[1] * sum(M.shape):
            return state.noise
        if state.data == "whole":
            return max(state.noise, state.held_out) if math.isfinite(state.held_out) else state.noise
        held = state.views.sketch.held_residual(state.U, state.V)
        return state.noise if held.size < TELLING else max(state.noise, math.sqrt(state.noise * robust_scale(held)))

    def _exact(self, problem: Problem, state: LadderState) -> bool:
        return state.noise <= max(0.2 * problem.tol, 1e-12) * state.views.unit

    def _moving(self, state: LadderState) -> bool:
        if state.data == "part" and state.rounds and state.since >= BETWEEN:
            return False
        return state.since < 60 and (len(state.recent) <= PATIENCE or state.recent[-1] < SETTLED * max(state.recent))

    def _next_rank(self, state: LadderState) -> None:
        """Climb; where the rank is to be chosen, only as long as there is hope for a better one."""
        if state.choosing:
            held = state.views.sketch.held_residual(state.U, state.V)
            if held.size:
                sizes = np.log(np.abs(held) / state.views.unit + 1e-7)
                state.held = np.vstack([state.held.reshape(-1, held.size), sizes])
                best = int(np.argmin(state.held.mean(axis=1))) + 1
                if best == len(state.held):
                    state.best_U, state.best_V = state.U, state.V
                if len(state.held) - best == HOPE or len(state.held) == state.target:
                    self._go_back(state, best)
                    return
            state.choosing = held.size > 0  # if nothing was kept aside, only an exact fit ends the climb
        if state.U.shape[1] < state.target:
            self._climb(state)

    def _go_back(self, state: LadderState, best: int) -> None:
        """Settle for the smallest rank that predicts what was kept aside as well as the best, but for chance."""
        loss = state.held[:best] - state.held[best - 1]
        chance = 2 * loss.std(axis=1) / math.sqrt(loss.shape[1]) + GAIN
        state.target = int(np.argmax(loss.mean(axis=1) <= chance)) + 1
        Q, R = basis(state.best_V)
        left, sizes, right = np.linalg.svd(times(state.best_U, R.T), full_matrices=False)
        state.U = left[:, : state.target]
        state.V = Q @ (sizes[: state.target, None] * right[: state.target]).T
        state.choosing = False
        self._anew(state)

    # -- growth

    def _grow(self, problem: Problem, state: LadderState) -> None:
        """The part with what it determines; when nothing more is determined, all rows and columns there are."""
        M, turned = state.views.block, state.views.block_by_row
        assert M is not None  # or there would be no part
        state.c = max(state.c, EXPLAINED * state.views.unit)
        part = Part(state.part_rows, state.part_columns, state.U, state.V)
        larger = None
        while larger is None and state.careful >= 0 and state.rounds < ROUNDS:
            larger = grown(M, turned, part, state.c, state.views.unit, state.careful)
            state.careful -= larger is None
        larger = larger or self._another_part(problem, state)
        if larger is not None:
            state.part_rows, state.part_columns = larger.rows, larger.columns
            state.U, R = basis(larger.U)
            state.V = times(larger.V, R.T)
            state.rounds += 1
        else:
            self._adopt_the_rest(state)
        state.c *= 3
        self._anew(state)

    def _another_part(self, problem: Problem, state: LadderState) -> Part | None:
        """The part with one of the rows and columns that are left, which share too little with it or nothing at all."""
        M = state.views.block
        assert M is not None  # or there would be no part
        rows, columns = (
            np.setdiff1d(np.arange(total), known)
            for total, known in zip(M.shape, (state.part_rows, state.part_columns), strict=True)
        )
        k = state.U.shape[1]
        left = take_block(M, rows, columns).nnz if rows.size > 2 * k and columns.size > 2 * k else 0
        if state.rounds >= ROUNDS or left < 2 * k * (rows.size + columns.size):
            return None
        other = self._best_block(problem, state, rows, columns)
        if other is None or other.U.shape[1] != k or other.noise > 3 * max(state.noise, EXPLAINED * state.views.unit):
            return None
        state.careful = 2
        part = Part(state.part_rows, state.part_columns, state.U, state.V)
        return part.joined(Part(other.part_rows, other.part_columns, other.U, other.V))

    def _adopt_the_rest(self, state: LadderState) -> None:
        """From the part to all rows and columns of the block."""
        M, turned = state.views.block, state.views.block_by_row
        assert M is not None  # or there would be no part
        backend, unit = state.views.problem.sweep.name, state.views.unit
        across = rows_of(turned, state.part_columns)
        Q, R = basis(state.V)
        lines = Lines(across, open_sweep(across, backend), unit, learning=False)
        C, _ = lines.complete(Q, state.part_rows, times(state.U, R.T), state.c, turns=15)
        state.U, R = basis(C)
        lines = Lines(M, open_sweep(M, backend), unit, learning=False)
        state.V, _ = lines.complete(state.U, state.part_columns, times(Q, R.T), state.c, turns=15)
        state.data = "some"

    # -- joint steps

    def _joint_step(self, state: LadderState) -> None:
        """One Gauss-Newton step in both factors."""
        M = state.views.block
        assert M is not None  # or there would be no joint steps
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

    def _begin_joint_steps(self, state: LadderState) -> None:
        state.c = max(10 * EFFICIENT * state.noise, WIDE[state.joined] * state.views.unit)
        state.joint, state.joined, state.damping = JOINT[0], state.joined + 1, 1e-3
        self._anew(state)

    def _after_joint_step(self, state: LadderState) -> None:
        """They end when L has come to rest at the scale of its residuals; passes go on from there."""
        if state.change < 1e-3 and state.c <= max(1.1 * EFFICIENT * state.noise, 2 * SMALLEST * state.views.unit):
            state.joint = 0
            self._anew(state)

    # -- the end of an attempt

    def _conclude(self, problem: Problem, state: LadderState) -> None:
        """A part grows; else a second look at doubtful lines, joint steps if need be, and the attempt is judged."""
        if state.data == "part":
            self._grow(problem, state)
            return
        exact = self._exact(problem, state)
        if state.attempt == SLOW and not (exact or state.joined) and self._few_entries(state):
            self._begin_joint_steps(state)
            return
        if not (state.shrinks or exact):
            state.shrinks = True
            self._anew(state)
            return
        before = state.changed
        shares, state.changed = self._second_look(state)
        if 0 < state.changed < before and state.looks < (LOOKS if state.attempt else 2):
            state.looks += 1
            state.c = max(10 * state.c, 1e-3 * state.views.unit) if exact else 2 * state.c
            self._anew(state)
            return
        ignored = self._examine(state)
        if ignored > IGNORED and state.joined < len(WIDE):
            self._begin_joint_steps(state)
            return
        self._judge(problem, state, shares, ignored)

    def _few_entries(self, state: LadderState) -> bool:
        """Whether there are hardly more than parameters: alternating regressions come to rest slowly then."""
        M = state.views.block
        return M is not None and M.nnz < FEW * state.U.shape[1] * sum(M.shape)

    def _examine(self, state: LadderState) -> float:
        """The share of entries that pass for outliers although what is left does not determine L there.

        They may be what couples parts of the data that are each fitted by itself. Rows and columns with hardly an entry
        that is explained do not count.
        """
        state.open = 0.0
        M = state.views.block
        if M is None:
            return 0.0
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

    def _judge(self, problem: Problem, state: LadderState, shares: tuple[Float, Float], ignored: float) -> None:
        """The attempt is taken, or the best one of several that found the same, or another begins."""
        exact = self._exact(problem, state)
        if not exact:
            self._drop_spikes(state)
        held = state.views.sketch.held_residual(state.U, state.V)
        score = self._score(state)
        given_up = max(below_usual(share, 0.5).size / share.size for share in shares)
        fine = ignored <= IGNORED and self._predicts(state, held)
        sure = exact and fine and given_up <= 0.01 and not self._spiky(state)
        if score < min(state.scores, default=np.inf):
            state.best_U, state.best_V, state.best_noise = state.U, state.V, state.noise
            state.best_fine, state.best_open = fine, state.open
        state.scores = (*state.scores, score)
        state.grown += state.attempt > SLOW
        agree = sum(score <= min(state.scores) + AGREE for score in state.scores) > 1
        if sure:
            self._to_whole(problem, state, determined=not below_usual(shares[1], 0.5).size)
            return
        accepted = agree and state.best_fine and state.grown >= min(GROWN, self.attempts - 2)
        following = self._following(state, agree)
        if accepted or following is None:
            state.next_noise = self._lacks_a_rank(state)
        if following is not None and (not accepted or state.next_noise):
            if following == SLOW and not state.views.everything:
                self._ask_for_more(state)
            self._begin(problem, state, following)
            return
        self._take_best(state)
        less = state.next_noise
        if less:
            state.advice = (
                f"with one rank more the noise is {less:.2g} instead of {state.noise:.2g}: the rank is too low, or "
                f"errors that have structure take the place of a component; try rank={state.U.shape[1] + 1}, or 'auto'"
            )
        elif not accepted:
            state.advice = (
                "no two of the attempts agree, or what they found does not predict entries kept aside: the data may "
                "not determine a matrix of this rank; see lowsparse.diagnose(M, rank)"
            )
        self._to_whole(problem, state, determined=False)

    def _ask_for_more(self, state: LadderState) -> None:
        """A larger block, on which attempts are counted anew: what was kept aside is not the same."""
        state.generous = GENEROUS
        state.views.enlarge(state.generous)
        state.scores, state.grown, state.best_fine = (), 0, False

    def _following(self, state: LadderState, agree: bool) -> int | None:
        """The attempt to make next; the slow one is left for later while the quick ones agree."""
        left = [k for k in range(1, self.attempts) if k not in state.made]
        later = agree and state.grown < GROWN and len(left) > 1
        return next((k for k in left if not (later and k == SLOW)), None)

    def _lacks_a_rank(self, state: LadderState) -> float:
        """The noise that one rank more than that of the best attempt leaves, if it is far less; else 0.

        A fit that has spent a component on errors with structure lacks one of those it should have.
        """
        trial = copy(state)
        self._take_best(trial)
        M = self._lines(trial)[0].M
        m, n = M.shape
        k = trial.U.shape[1] + 1

        def noise_of(noise: float, rank: int) -> float:
            return noise / math.sqrt(max(1 - rank * (m + n - rank) / M.nnz, 0.01))

        if 2 * k > min(m, n) or 1.5 * k * (m + n - k) > M.nnz or state.best_noise < EXPLAINED * state.views.unit:
            return 0.0  # with so many parameters anything fits, and what fits closely lacks nothing
        self._climb(trial)
        while trial.since < 15 and (trial.since < PATIENCE or trial.recent[-1] < SETTLED * trial.recent[-3]):
            self._pass(trial)
        less = noise_of(trial.noise, k)
        return less if less < LESS * noise_of(state.best_noise, k - 1) else 0.0

    def _drop_spikes(self, state: LadderState) -> None:
        """Leave out components that a single row or column has almost alone, if what is left predicts better."""
        M = self._lines(state)[0].M
        while 1 < state.U.shape[1] <= min(M.shape) / 5 and 2 * state.U.shape[1] * sum(M.shape) <= M.nnz:
            better = None
            for side in ("U", "V"):
                Q, _ = basis(host(getattr(state, side)))
                own = np.sum(Q**2, axis=1)
                if own.max() < SPIKE:
                    continue
                spike = Q[int(np.argmax(own))]
                trial = copy(state)
                rest = np.linalg.svd(spike[None, :])[2][1:].T  # what is orthogonal to it
                if side == "U":
                    trial.U, trial.V = times(state.U, rest), times(state.V, rest)
                else:
                    W, R = basis(state.V)
                    trial.U, R = basis(times(state.U, R.T @ rest))
                    trial.V = times(times(W, rest), R.T)
                self._anew(trial)
                for _ in range(BETWEEN + 2):
                    self._pass(trial)
                if self._score(trial) < self._score(state if better is None else better):
                    better = trial
            if better is None:
                return
            state.U, state.V, state.noise, state.c = better.U, better.V, better.noise, better.c

    def _second_look(self, state: LadderState) -> tuple[tuple[Float, Float], int]:
        """The shares of the entries that columns and rows explain, and how many lines were changed for the better."""
        columns, rows = self._lines(state)
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

    def _score(self, state: LadderState) -> float:
        """The mean logarithm of the residuals of what was kept aside; of all, and for components, if too little was."""
        e, unit = state.views.sketch.held_residual(state.U, state.V), state.views.unit
        if e.size >= TELLING:
            return float(np.mean(np.log(np.abs(e) / unit + 1e-7)))
        columns, _ = self._lines(state)
        (m, n), entries = columns.M.shape, columns.M.nnz
        e = columns.sweep.residual(state.U, state.V)
        sizes = np.linalg.svd(host(state.V), compute_uv=False) / (robust_scale(e) + 1e-7 * unit)
        components = np.sum(1 + np.log1p(entries / (m * n * (m + n)) * sizes**2))
        return float(np.mean(np.log(np.abs(e) / unit + 1e-7)) + (m + n) / (2 * entries) * components)

    def _spiky(self, state: LadderState) -> bool:
        """Whether a component lives on a single row or column: it may be there for an outlier alone."""
        return any(bool((leverages(A) > 0.9).any()) for A in (state.U, state.V))

    def _predicts(self, state: LadderState, e: Float) -> bool:
        """Whether what was kept aside, with these residuals, is predicted as well as what was fitted."""
        columns, held = state.views.columns(state.data), np.abs(e)
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
        x = np.abs(state.views.sketch.held_values)
        gain = np.log(x + close) - np.log(held + close)  # over L = 0
        return as_well and float(np.mean(gain)) > max(0.05, 3 * float(np.std(gain)) / math.sqrt(gain.size))

    # -- the whole matrix

    def _to_whole(self, problem: Problem, state: LadderState, determined: bool) -> None:
        """L for all rows and columns; passes over the whole follow unless the block has determined it for good."""
        held = state.views.sketch.held_residual(state.U, state.V)
        if held.size:
            state.held_out = robust_scale(held)
        poor = self._extend(problem, state)
        state.data, state.looks, state.shrinks = "whole", 0, True
        state.c = max(state.c, EXPLAINED * state.views.unit)
        self._anew(state)
        if determined and not poor:
            state.finished = "an exact fit" + (", confirmed by entries kept aside" if held.size else "")

    def _extend(self, problem: Problem, state: LadderState) -> bool:
        """From the block to all rows of its columns, then to all columns; whether a row was left undetermined."""
        views, sketch, k = state.views, state.views.sketch, state.U.shape[1]
        learnt = views.rows(state.data).M.column_counts
        if len(sketch.rows) < problem.M.shape[0]:
            strip = views.strip()
            learnt = strip.M.column_counts
            Q, R = basis(state.V)
            C, doubtful = strip.complete(Q, sketch.rows, times(state.U, R.T), state.c, turns=7)  # of few entries each
            state.U, R = basis(C)
            state.V = times(Q, R.T)
        else:
            doubtful = False
        state.V, _ = views.columns("whole").complete(state.U, sketch.columns, state.V, state.c, turns=5)
        state.U = beside(state.U, state.V)  # the block may have been small enough for the processor
        return doubtful or bool(((learnt < 3 * k) & (problem.M.row_counts > 0)).any())

    def _watch(self, problem: Problem, state: LadderState) -> None:
        """Whether the passes over the whole matrix can end."""
        change = state.accuracy = state.change
        if not problem.tol:
            return
        if state.advice and state.since >= 20:
            state.failure = "stalled"
        elif self._at_rest(problem, state):
            if not state.looks and self._second_look(state)[1]:
                state.looks, state.accuracy = 1, math.inf  # on, with the lines that are new
            elif state.advice:
                state.failure = "stalled"
            else:
                state.finished = f"L changes by {change:.1e} relatively; the noise of the inliers is {state.noise:.2g}"

    def _at_rest(self, problem: Problem, state: LadderState) -> bool:
        """Whether passes change L by `tol` at most, by little beside the error the noise makes, or beside the noise."""
        m, n = problem.M.shape
        k = state.U.shape[1]
        noise = state.noise / problem.scale
        error = noise * math.sqrt(k * (m + n - k) / problem.M.nnz)  # of the fit
        to_come = state.change / (1 - min(state.falls, SLOWEST))
        if state.change <= problem.tol or to_come <= REST * error:
            return True
        falling = len(state.recent) < 3 or state.noise < SETTLED * state.recent[-3]
        return state.since >= CREEPING and not falling and state.change <= UNSEEN * noise

    # -- what comes out

    def lowrank(self, problem: Problem, state: LadderState) -> LowRank:
        """L, on all rows and columns."""
        U, V = self._factors(problem, state)
        return LowRank(U, V.T)

    def _factors(self, problem: Problem, state: LadderState) -> tuple[Float, Float]:
        """L of the whole matrix: of the last attempt if it has got there, else of the best so far."""
        if state.data != "whole":
            state = copy(state)
            if state.scores:
                self._take_best(state)
            elif state.data == "part":
                self._adopt_the_rest(state)
            self._extend(problem, state)
        return state.U, state.V

    def _take_best(self, state: LadderState) -> None:
        state.U, state.V, state.noise = state.best_U, state.best_V, state.best_noise
        state.data, state.open = "some", state.best_open

    def finish(self, problem: Problem, state: LadderState) -> Outcome:
        """L, and S = M - L where that is more than four times the noise."""
        U, V = self._factors(problem, state)
        U, R = qr(U)
        V = times(V, R.T).T
        if not self.choose_rank and len(V) < problem.rank:  # an exact fit of lower rank; what is asked for is more
            U = qr(np.hstack([U, beside(np.eye(len(U), problem.rank), U)]))[0][:, : problem.rank]
            V = np.vstack([V, beside(np.zeros((problem.rank - len(V), V.shape[1])), V)])
        e = problem.sweep.residual(U, V.T)
        noise = state.noise if math.isfinite(state.noise) else robust_scale(e)
        flagged = outlying(e, max(OUTLIER * noise, 1e-7 * state.views.unit, problem.rounding))
        m, n = problem.M.shape
        k = state.U.shape[1]
        free = 1 - k * (m + n - k) / max(problem.M.nnz - flagged.size, 1)  # of what the fit leaves to the residuals
        return Outcome(
            L=LowRank(U, V),
            flagged=flagged,
            S=-e[flagged].astype(problem.M.dtype, copy=False),
            objective=noise,
            noise=trimmed_deviation(host(e[:: max(1, e.size // 20_000)]), noise) / math.sqrt(max(free, 0.1)),
            held_out=state.held_out if math.isfinite(state.held_out) else None,
            next_noise=state.next_noise or None,
            undetermined=state.open,
        )


def _falling(recent: tuple[float, ...]) -> bool:
    return len(recent) > 1 and recent[-1] < 0.8 * recent[-2]


def _relative_change(
    U: Float, V: Float, dV: Float, dC: Float, Q: Float, rows: NDArray[np.bool_], columns: NDArray[np.bool_]
) -> float:
    """‖U dVᵀ + dC Qᵀ‖ / ‖U Vᵀ‖, by what a pass changes L = U Vᵀ, also where that is little; U and Q are orthonormal.

    Only these rows and columns count, unless there are none.
    """
    if rows.any() and columns.any() and not (rows.all() and columns.all()):
        i, j = beside(rows, U), beside(columns, U)
        (U, R), (Q, T) = basis(U[i]), basis(Q[j])
        V, dV, dC = times(V[j], R.T), times(dV[j], R.T), times(dC[i], T.T)
    size = float(np.vdot(V, V))
    if not size > 0:
        return math.inf if dV.any() or dC.any() else 0.0
    square = np.vdot(dV, dV) + np.vdot(dC, dC) + 2 * float(np.vdot(across(U, dC), across(dV, Q)))
    return math.sqrt(max(float(square), 0.0) / size)


def _relaxation(beyond: float, falls: float) -> float:
    """How far to go beyond the regressions, ω - 1, given how far it was and by what factor the change of L falls then.

    λ = ω - 1 at best, for ω = 2 / (1 + √(1 - ρ)), where ρ is the factor without; with too large an ω it is ω - 1 too,
    and says no more than that. Otherwise (λ + ω - 1)² = λ ω² ρ.

    >>> round(_relaxation(0.0, 0.5), 3), round(_relaxation(0.1, 0.25), 3), round(_relaxation(0.4, 0.4), 3)
    (0.172, 0.129, 0.28)
    """
    if not 1.1 * beyond < falls < 1:
        return 0.7 * beyond
    rate = (falls + beyond) ** 2 / (falls * (1 + beyond) ** 2)
    return 2 / (1 + math.sqrt(1 - min(rate, SLOWEST))) - 1
