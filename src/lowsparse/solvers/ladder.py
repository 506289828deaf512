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
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import across, beside, host, times
from ..geometry import basis, leverages, qr
from ..lines import EFFICIENT, EXPLAINED, Lines, below_usual
from ..lowrank import LowRank
from ..observed import ObservedMatrix
from ..scale import CONSISTENT, OUTLIER, outlying, robust_scale, trimmed_deviation
from ..sketch import Sketch, draw
from ..start import left_singular_vectors
from ..sweeps import Float, enough, open_sweep
from .base import Outcome, Problem, Solver, State, nothing, require, require_count

__all__ = ["Ladder", "LadderState"]

PACE = (0.3, 0.3, 0.6)  # c / its previous value, at least, by attempt; a scale that collapses throws inliers away
STEPS = 4  # passes on each rank of the climb but the last
PATIENCE = 5  # passes in which the scale must fall by the factor SETTLED
SETTLED = 0.98
LOOKS = 5  # second looks in an attempt, 2 in the first
HOPE = 3  # ranks beyond the best that are tried where the rank is to be chosen
GAINING = 0.97  # the scale after a pass / that before, at most, where steps go beyond the regressions
AGREE = 0.1  # difference of the scores of two attempts that found the same
SLOWEST = 0.95  # factor by which the error is taken to fall in a pass: steps beyond a regression are at most 0.63 of it
SMALLEST = 1e-8  # c, in units: far above rounding, and outliers of any size have no weight any more


class Bench:
    """The data in the forms passes run on. What is not needed is not made.

    "some": a block of rows and columns; "all": all of them; both with entries kept aside. "whole": everything.
    """

    def __init__(self, problem: Problem, at_least: int) -> None:
        self.problem, self.at_least, self.unit = problem, at_least, problem.unit
        self.sketches: dict[str, Sketch] = {}
        self.lines: dict[tuple[str, str], Lines] = {}

    def sketch(self, data: str) -> Sketch:
        """What passes over `data` see, and what is kept aside."""
        if data not in self.sketches:
            rng = np.random.default_rng(0x6C6164)
            self.sketches[data] = draw(
                self.problem.M, self.problem.rank, rng, everything=data == "all", at_least=self.at_least
            )
        return self.sketches[data]

    def columns(self, data: str) -> Lines:
        """The columns of `data`."""
        if data == "whole":
            return self._lines("columns", data, lambda: self.problem.M, learning=False)
        return self._lines("columns", data, lambda: self.sketch(data).M, learning=True)

    def rows(self, data: str) -> Lines:
        """The rows of `data`."""
        return self._lines("rows", data, lambda: self.columns(data).M.T, learning=data != "whole")

    def strip(self, data: str) -> Lines:
        """The rows of the whole matrix, as far as they lie in the columns of the block."""
        return self._lines("strip", data, lambda: self.sketch(data).strip.T, learning=False)

    def _lines(self, which: str, data: str, matrix: Callable[[], ObservedMatrix], learning: bool) -> Lines:
        if (which, data) not in self.lines:
            M = matrix()
            sweep = self.problem.sweep if M is self.problem.M else open_sweep(M, self.problem.sweep.name)
            self.lines[which, data] = Lines(M, sweep, self.unit, learning=learning)
        return self.lines[which, data]


@dataclass(kw_only=True)
class LadderState(State):
    """L = U Vᵀ on `data` (see `Bench`), and what earlier attempts have found."""

    scratch: ClassVar[tuple[str, ...]] = ("bench",)

    bench: Bench
    data: str = "some"
    U: Float = field(default_factory=nothing)  # a row for each row of the data
    V: Float = field(default_factory=nothing)  # a row for each column
    c: float = 0.0
    noise: float = np.inf  # the robust scale of the residuals
    target: int = 0  # rank
    attempt: int = 0
    since: int = 0  # passes on this rank
    looks: int = 0
    changed: float = np.inf  # lines by the last look
    beyond: float = 0.0  # how far the next steps go beyond where the regressions end, in steps
    change: float = np.inf  # of L by the last pass, relatively
    recent: tuple[float, ...] = ()  # the noise after the last passes
    # the best attempt so far
    best_U: Float = field(default_factory=nothing)
    best_V: Float = field(default_factory=nothing)
    best_data: str = ""
    best_noise: float = np.inf
    scores: tuple[float, ...] = ()  # of all attempts that have ended
    held_out: float = np.inf  # robust scale of the residuals of what was kept aside, in the end
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

    attempts: int = 4  # the first straight at the rank, the others by climbing
    choose_rank: bool = False  # climb at most to the rank, while entries kept aside are predicted better and better

    def check(self, problem: Problem) -> None:
        """Check the parameters."""
        require_count(self, "attempts")
        require(isinstance(self.choose_rank, bool), "choose_rank", self.choose_rank, "True or False")

    def init(self, problem: Problem) -> LadderState:
        """Before the first attempt."""
        state = LadderState(
            bench=Bench(problem, at_least=50 if self.choose_rank else 500),
            target=problem.rank,
            choosing=self.choose_rank,
        )
        self._begin(problem, state, 1 if self.choose_rank else 0)
        return state

    # -- attempts

    def _begin(self, problem: Problem, state: LadderState, attempt: int) -> None:
        """Start an attempt: at the full rank, or with rank 1."""
        unit = state.bench.unit
        state.attempt = attempt
        state.data = "some" if attempt < 2 else "all"
        columns = state.bench.columns(state.data)
        rank = state.target if attempt == 0 else 1
        if attempt == 0 and problem.start_given:
            U = problem.start()
            state.U = basis(beside(U[beside(state.bench.sketch(state.data).rows, U)], columns.M.values))[0]
            state.V = columns.afresh(state.U, EXPLAINED * unit, turns=5)
            state.c = self._width(state, columns.sweep.residual(state.U, state.V))
        else:
            state.U = self._leading(state, columns.M.values, 3 * unit, rank)
            state.V = beside(np.zeros((columns.M.shape[1], rank)), state.U)
            state.c = 3 * unit
        state.looks, state.changed = 0, np.inf
        state.held = nothing()
        self._anew(state)

    def _width(self, state: LadderState, e: Float) -> float:
        """c for these residuals."""
        return max(EFFICIENT * robust_scale(e), SMALLEST * state.bench.unit)

    def _anew(self, state: LadderState) -> None:
        state.since, state.recent, state.beyond = 0, (), 0.0

    def _leading(self, state: LadderState, values: NDArray[Any], clip: float, k: int) -> Float:
        """The k leading left singular vectors of the data with these values, clipped."""
        columns = state.bench.columns(state.data)
        M = columns.M
        clipped = M.with_values(np.clip(values, -clip, clip).astype(M.dtype))
        rng = np.random.default_rng([state.attempt, state.U.shape[1], k])
        return left_singular_vectors(open_sweep(clipped, columns.sweep.name), M.shape[0], k, rng)[0]

    def _climb(self, state: LadderState) -> None:
        """One rank more."""
        e = state.bench.columns(state.data).sweep.residual(state.U, state.V)
        state.c = self._width(state, e)
        u = self._leading(state, -e, state.c / EFFICIENT, 1)
        state.U = basis(np.hstack([state.U, u - state.U @ (state.U.T @ u)]))[0]
        state.V = np.hstack([state.V, np.zeros_like(state.V[:, :1])])
        self._anew(state)

    # -- one pass

    def advance(self, problem: Problem, state: LadderState) -> LadderState:
        """One pass: the columns, then the rows; and what follows from it."""
        state = copy(state)  # an interruption leaves the one before as it was
        bench = state.bench
        columns, rows = bench.columns(state.data), bench.rows(state.data)
        turns = 2 if state.since < 3 else 1
        U, V = state.U, state.V
        by_column = columns.again(U, V, state.c, turns)
        dV = (1 + state.beyond) * (by_column.V - V)
        Q, R = basis(V + dV)
        C = times(U, R.T)
        fitted = rows.again(Q, C, state.c, turns)
        dC = (1 + state.beyond) * (fitted.V - C)
        state.U, R = basis(C + dC)
        state.V = times(Q, R.T)
        state.noise = CONSISTENT * fitted.before.quantile(0.5)
        pace = PACE[min(state.attempt, len(PACE) - 1)]
        state.c = max(EFFICIENT * state.noise, pace * state.c, SMALLEST * bench.unit)
        state.iteration += 1
        state.since += 1
        state.recent = (*state.recent, state.noise)[-PATIENCE - 1 :]
        # only lines that are determined come to rest
        change = _relative_change(U, V, dV, dC, Q, *(f.inside >= enough(U.shape[1]) for f in (fitted, by_column)))
        falls = change / state.change if state.change > 0 else 0.0
        relaxed = state.since > 3 and state.noise < GAINING * state.recent[-2]
        state.beyond, state.change = _relaxation(state.beyond, falls) if relaxed else 0.0, change
        state.row = {
            "objective": state.noise,
            "gamma": state.c,
            "dS": math.nan,
            "dU": math.nan,
            "change": change,
            "rank": state.U.shape[1],
            "entries": columns.M.nnz,
        }
        if not math.isfinite(state.noise):
            state.failure = "diverged"
        elif state.data == "whole":
            self._watch(problem, state, change)
        elif self._exact(problem, state) and change <= max(problem.tol, 1e-12):
            state.target, state.choosing = state.U.shape[1], False  # nothing is left to fit
            self._conclude(problem, state)
        elif state.choosing or state.U.shape[1] < state.target:
            if state.since >= STEPS and not _falling(state.recent):
                self._next_rank(state)
        elif not self._moving(state):
            self._conclude(problem, state)
        return state

    def _exact(self, problem: Problem, state: LadderState) -> bool:
        return state.noise <= max(0.2 * problem.tol, 1e-12) * state.bench.unit

    def _moving(self, state: LadderState) -> bool:
        return state.since < 60 and (len(state.recent) <= PATIENCE or state.recent[-1] < SETTLED * state.recent[0])

    def _next_rank(self, state: LadderState) -> None:
        """Climb; where the rank is to be chosen, only as long as there is hope for a better one."""
        held = state.bench.sketch(state.data).held_residual(state.U, state.V)
        if state.choosing and held.size:
            sizes = np.log(np.abs(held) / state.bench.unit + 1e-7)
            state.held = np.vstack([state.held.reshape(-1, held.size), sizes])
            best = int(np.argmin(state.held.mean(axis=1))) + 1
            if best == len(state.held):
                state.best_U, state.best_V = state.U, state.V
            if len(state.held) - best == HOPE or len(state.held) == state.target:
                self._go_back(state, best)
                return
        state.choosing = state.choosing and held.size > 0  # if nothing was kept aside, only an exact fit ends the climb
        if state.U.shape[1] < state.target:
            self._climb(state)

    def _go_back(self, state: LadderState, best: int) -> None:
        """Settle for the smallest rank that predicts what was kept aside as well as the best, but for chance."""
        loss = state.held[:best] - state.held[best - 1]
        chance = 2 * loss.std(axis=1) / math.sqrt(loss.shape[1])
        state.target = int(np.argmax(loss.mean(axis=1) <= chance)) + 1
        Q, R = basis(state.best_V)
        left, sizes, right = np.linalg.svd(times(state.best_U, R.T), full_matrices=False)
        state.U = left[:, : state.target]
        state.V = Q @ (sizes[: state.target, None] * right[: state.target]).T
        state.choosing = False
        self._anew(state)

    # -- the end of an attempt

    def _conclude(self, problem: Problem, state: LadderState) -> None:
        """A second look at doubtful lines; then the attempt is taken, or another begins."""
        unit = state.bench.unit
        before = state.changed
        shares, state.changed = self._second_look(state)
        if 0 < state.changed < before and state.looks < (LOOKS if state.attempt else 2):
            state.looks += 1
            state.c = max(10 * state.c, 1e-3 * unit) if self._exact(problem, state) else 2 * state.c
            self._anew(state)
            return
        held = state.bench.sketch(state.data).held_residual(state.U, state.V)
        score = self._score(state, held)
        if score < min(state.scores, default=np.inf):
            state.best_U, state.best_V, state.best_noise = state.U, state.V, state.noise
            state.best_data = state.data
        agree = any(abs(score - other) <= AGREE for other in state.scores) and score <= min(state.scores) + AGREE
        state.scores = (*state.scores, score)
        given_up = max(below_usual(share, 0.5).size / share.size for share in shares)
        sure = self._exact(problem, state) and given_up <= 0.01 and not self._spiky(state)
        if self._predicts(state, held) and (sure or agree):
            self._to_whole(problem, state, determined=sure and not below_usual(shares[1], 0.5).size)
        elif state.attempt + 1 < self.attempts:
            self._begin(problem, state, state.attempt + 1)
        else:
            state.U, state.V, state.noise = state.best_U, state.best_V, state.best_noise
            state.data = state.best_data
            state.advice = (
                "no two of the attempts agree, or what they found does not predict entries kept aside: the data may "
                "not determine a matrix of this rank; see lowsparse.diagnose(M, rank)"
            )
            self._to_whole(problem, state, determined=False)

    def _second_look(self, state: LadderState) -> tuple[tuple[Float, Float], int]:
        """The shares of the entries that columns and rows explain, and how many lines were changed for the better."""
        columns, rows = state.bench.columns(state.data), state.bench.rows(state.data)
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

    def _score(self, state: LadderState, e: Float) -> float:
        """The mean logarithm of the residuals of what was kept aside, or of all if too little was."""
        if e.size < 50:
            e = state.bench.columns(state.data).sweep.residual(state.U, state.V)
        return float(np.mean(np.log(np.abs(e) / state.bench.unit + 1e-7)))

    def _spiky(self, state: LadderState) -> bool:
        """Whether a component lives on a single row or column: it may be there for an outlier alone."""
        return any(bool((leverages(A) > 0.9).any()) for A in (state.U, state.V))

    def _predicts(self, state: LadderState, e: Float) -> bool:
        """Whether what was kept aside, with these residuals, is predicted as well as what was fitted."""
        columns, held = state.bench.columns(state.data), np.abs(e)
        if held.size < 20:
            return True
        seen = np.abs(columns.sweep.residual(state.U, state.V))
        close = EXPLAINED * state.bench.unit
        m, n = columns.M.shape
        k = state.U.shape[1]
        inliers = max(float(np.count_nonzero(seen <= OUTLIER * state.noise + close)), 1.0)
        h = min(k * (m + n - k) / inliers, 0.9)  # parameters / inliers
        bound = OUTLIER * state.noise * math.sqrt((1 + h) / (1 - h)) + close
        share_seen, share_held = float(np.mean(seen <= bound)), float(np.mean(held <= bound))
        deviation = math.sqrt(max(share_seen * (1 - share_seen), 0.01) / held.size)
        as_well = share_held >= share_seen - 0.05 - 3 * deviation
        x = np.abs(state.bench.sketch(state.data).held_values)
        gain = np.log(x + close) - np.log(held + close)  # over L = 0
        return as_well and float(np.mean(gain)) > max(0.05, 3 * float(np.std(gain)) / math.sqrt(gain.size))

    # -- the whole matrix

    def _to_whole(self, problem: Problem, state: LadderState, determined: bool) -> None:
        """L for all rows and columns; passes over the whole follow unless the block has determined it for good."""
        held = state.bench.sketch(state.data).held_residual(state.U, state.V)
        if held.size:
            state.held_out = robust_scale(held)
        poor = self._extend(problem, state)
        state.data, state.looks = "whole", 0
        state.c = max(state.c, EXPLAINED * state.bench.unit)
        self._anew(state)
        if determined and not poor:
            state.finished = "an exact fit" + (", confirmed by entries kept aside" if held.size else "")

    def _extend(self, problem: Problem, state: LadderState) -> bool:
        """From the block to all rows of its columns, then to all columns; whether a row was left undetermined."""
        bench, sketch, k = state.bench, state.bench.sketch(state.data), state.U.shape[1]
        learnt = bench.rows(state.data).M.column_counts
        if len(sketch.rows) < problem.M.shape[0]:
            strip = bench.strip(state.data)
            learnt = strip.M.column_counts
            Q, R = basis(state.V)
            C, doubtful = strip.complete(Q, sketch.rows, times(state.U, R.T), state.c, turns=7)  # of few entries each
            state.U, R = basis(C)
            state.V = times(Q, R.T)
        else:
            doubtful = False
        state.V, _ = bench.columns("whole").complete(state.U, sketch.columns, state.V, state.c, turns=5)
        state.U = beside(state.U, state.V)  # the block may have been small enough for the processor
        return doubtful or bool(((learnt < 3 * k) & (problem.M.row_counts > 0)).any())

    def _watch(self, problem: Problem, state: LadderState, change: float) -> None:
        """Whether the passes over the whole matrix can end."""
        state.accuracy = change
        m, n = problem.M.shape
        k = state.U.shape[1]
        error = state.noise / problem.scale * math.sqrt(k * (m + n - k) / problem.M.nnz)  # of the fit, by the noise
        if not problem.tol:
            return
        if state.advice and state.since >= 20:
            state.failure = "stalled"
        elif change <= max(problem.tol, 0.01 * error):
            if not state.looks and self._second_look(state)[1]:
                state.looks, state.accuracy = 1, math.inf  # on, with the lines that are new
            elif state.advice:
                state.failure = "stalled"
            else:
                state.finished = f"L changes by {change:.1e} relatively; the noise of the inliers is {state.noise:.2g}"

    # -- what comes out

    def lowrank(self, problem: Problem, state: LadderState) -> LowRank:
        """L, on all rows and columns."""
        U, V = self._factors(problem, state)
        return LowRank(U, V.T)

    def _factors(self, problem: Problem, state: LadderState) -> tuple[Float, Float]:
        if state.data != "whole":
            state = copy(state)
            self._extend(problem, state)
        return state.U, state.V

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
        flagged = outlying(e, max(OUTLIER * noise, 1e-7 * state.bench.unit, problem.rounding))
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
