"""Ladder: alternating robust regression, if need be one rank at a time. The library's own method, and its default.

Given U, every column of M is regressed on it; given V, every row. The weights 1 / (1 + (e/c)²) are those of the Cauchy
loss, so a stationary point for a fixed c is one of

    min over U, V of  Σ_Ω log(1 + ((UV - M)_ij / c)²),

and c follows the residuals: 2.385 times their robust scale (1.4826 times the median of |e|), from which the estimate is
95 % efficient under normal noise. For a fixed c no half-step increases the sum, even one that goes beyond the
regression by less than its length: the loss lies below a parabola that is symmetric about where the regression ends.
So steps are over-relaxed, as far as the rate at which L comes to rest asks for. Where noise is left, coefficients are
shrunk by the prior that their own covariance is (`lines.Prior`), which is felt as little as the noise is.

L is learnt on a sketch, a block of as many rows and columns as are needed to determine it, and extended from there. The
problem is not convex, so there are several attempts, which differ in kind:

- straight: at the full rank, from the singular vectors of the clipped data;
- climbing: rank 1, then the leading singular vector of the clipped residuals is added, and so on. Small components are
  not taken for outliers then, nor outliers for small components: all that is larger has been removed before;
- growing: several small blocks, of neighbours or of lines that have much in common, are climbed on at once
  (`robust.blocks`). The one that explains other lines best grows, line by line, in the order in which what is known
  determines the rest (`robust.growth`). c then stays within reach of the noise of a part that is large;
- from one rank more, where that leaves far less noise: without the component that the fewest rows or columns have;
- shrinking (`shrinking`): a path of decreasing shrinkage, where the rank is to be chosen and a climb leaves noise. It
  is taken if it predicts entries kept aside better than the climb does, and in doubt if the rank is not clear-cut.

c comes down by steps, and waits where residuals of some entries are still falling: on a scale that collapses a part of
the data is fitted, and the rest is lost. A component that only a few rows or columns have is left out if the others
predict as well: with too high a rank it fits errors.

Numbers that are repeated suspiciously often (`robust.ties`) take no part in some attempts, nor in their comparison. At
the end of an attempt lines that explain few of their entries are regressed anew, from scratch and by random subsets
(`robust.subsets`). Where what is left of the entries does not hold the matrix together, though some that pass for
outliers would, Gauss-Newton steps in both factors follow (`robust.joint`), from a wider c.

That the whole finds the truth is not proved, only measured (`python -m benchmarks.phase`, `benchmarks.structure`), so
the answer is tested. Some entries are kept aside while the subspace is learnt. An attempt is taken at once if it fits
exactly, predicts these entries as well as those it has seen, gives up hardly a line, and no entry passes for an outlier
where L is not determined. Otherwise the best is taken only if two attempts agree on it, two that grew were among them
(four, if much noise is left or many lines are given up), a close fit explains twice as many entries as it has
parameters, no part is explained far better, and one rank more does not leave far less noise. Of fewer than 500 entries
none is kept aside, and the other tests remain.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..diagnosis import largest_rank
from ..linalg.arrays import beside, host, times
from ..linalg.grassmann import basis, qr
from ..linalg.lowrank import LowRank
from ..linalg.scale import OUTLIER, outlying, robust_scale, trimmed_deviation
from ..robust.regression import EXPLAINED, below_usual
from ..robust.subsets import sparsest_direction
from ..sweeps import Float
from .base import (
    Outcome,
    Problem,
    Solver,
    nothing,
    require,
    require_count,
)
from .climbing import (
    SETTLED,
    SLOW,
    SLOWEST,
    TELLING,
    WIDE,
    LadderState,
    after_joint_step,
    begin_anew,
    begin_joint_steps,
    climb,
    climb_from,
    is_exact,
    is_falling,
    is_moving,
    lines_of,
    run_joint_step,
    run_pass,
    width_for,
)
from .growing import adopt_the_rest, begin_with_block, grow
from .judging import (
    drop_sparse,
    drop_spikes,
    evidence,
    has_few_entries,
    ignored_share,
    is_alike,
    is_partly_better,
    is_spiky,
    leave_out,
    predicted,
    predicts,
    score_of,
    take_best,
    take_second_look,
    with_one_rank_more,
)
from .shrinking import FEWEST, Path, predicts_better
from .views import Views

__all__ = ["Ladder", "LadderState"]

GENEROUS = 3.0  # how much larger the block is made if the first attempts do not agree
GROWN = (2, 4)  # attempts that grew L before what two attempts agree on is taken; the second if much noise is left,
NOISY = 0.08  # against the size of the entries
STEPS = 4  # passes on each rank of the climb but the last
ORDER = (3, 4, 1, 5, 6, SLOW)  # of the attempts after the first; further ones follow
BELIEVING = (4, 6, 8)  # attempts that take part in what is repeated suspiciously often, as does the first
IGNORED = 0.005  # share of entries that pass for outliers where L is not determined
GIVEN_UP = 0.02  # share of the lines that an exact fit may not explain, if it is to be taken at once
LOST = 0.35  # and that a fit may not explain if it is to be taken after few attempts
CLOSELY = 0.02  # noise, against the size of the entries: of a fit that is closer, that no entry was kept aside for,
EVIDENCE = 2.0  # or that one attempt alone has found, so many entries must be explained for each parameter
SPARSE = 0.02  # size of what half of the lines have in a direction, against theirs: none, up to errors
REST = 0.1  # of the error that the noise makes: passes that would change L by less in all to come are not made;
UNSEEN = 0.03  # of the noise: nor are those that change L by less each,
CREEPING = 6  # after so many
LOOKS = 3  # second looks in an attempt, 2 in the first
GAIN = 0.01  # logarithm by which residuals must be smaller for a rank to be better
HOPE = 3  # ranks beyond the best that are tried where the rank is to be chosen
FAR_BETTER = 0.5  # logarithm by which errors of the path are smaller where the climb has missed something
CLEAR = 0.15  # logarithm by which errors are smaller for the last component of a rank that is clear-cut
AGREE = 0.1  # difference of the scores of two attempts that found the same


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
    choose_rank: bool = False  # climb at most to the rank, while entries kept aside are predicted better and better;
    shrink: bool = True  # then follow a path of shrinkage too, and take what predicts them better

    def check(self, problem: Problem) -> None:
        """Check the parameters."""
        require_count(self, "attempts")
        for name in ("choose_rank", "shrink"):
            value = getattr(self, name)
            require(isinstance(value, bool), name, value, "True or False")

    def init(self, problem: Problem) -> LadderState:
        """Before the first attempt."""
        highest = self._highest(problem)
        state = LadderState(
            views=Views(problem, highest, at_least=50 if self.choose_rank else 500),
            target=highest,
            choosing=self.choose_rank,
        )
        self._begin(problem, state, 1 if self.choose_rank else 0)
        return state

    def _highest(self, problem: Problem) -> int:
        """The rank to climb to; where it is to be chosen without a bound, the largest worth trying."""
        unbounded = self.choose_rank and problem.rank == min(problem.M.shape)
        return largest_rank(problem.M) if unbounded else problem.rank

    # -- attempts

    def _begin(self, problem: Problem, state: LadderState, attempt: int) -> None:
        """Start an attempt: at the full rank, or with rank 1; on a block, on all rows and columns, or growing."""
        self._reset(state, attempt)
        state.shrinks = attempt not in (0, SLOW)
        if attempt > 0 and state.views.ties is not None:
            state.untied, state.repeated = attempt not in BELIEVING, state.views.ties.share
        if attempt > SLOW and begin_with_block(problem, state):
            return
        if attempt == 0 and problem.start_given:
            columns, unit = state.views.columns(state.data), state.views.unit
            U = problem.start()
            state.U = basis(beside(U[beside(state.views.sketch.rows, U)], columns.M.values))[0]
            state.V = columns.afresh(state.U, EXPLAINED * unit, turns=5)
            state.c = width_for(state, columns.sweep.residual(state.U, state.V))
            begin_anew(state)
        else:
            climb_from(state, state.target if attempt == 0 else 1)

    @staticmethod
    def _reset(state: LadderState, attempt: int) -> None:
        """Nothing of the attempt before is left, but what it was judged by."""
        state.attempt, state.made = attempt, (*state.made, attempt)
        state.looks, state.changed, state.joint, state.joined = 0, np.inf, 0, 0
        state.held, state.widest, state.shrinks = nothing(), np.inf, True
        state.data, state.untied = "some", False

    # -- one pass

    def advance(self, problem: Problem, state: LadderState) -> LadderState:
        """One pass, the columns, then the rows, or one joint step; and what follows from it.

        Of a part of the data, as many passes as there are entries of the whole for.
        """
        state = copy(state)  # an interruption leaves the one before as it was
        state.views.enlarge(state.generous)  # if it was resumed
        if state.path.running:
            self._follow_path(problem, state)
            return state
        done, attempt = 0, state.attempt
        while True:
            done += lines_of(state)[0].M.nnz
            self._advance(problem, state)
            if state.data != "part" or state.attempt != attempt or done >= problem.M.nnz or state.failure:
                state.iteration += 1
                return state

    def _advance(self, problem: Problem, state: LadderState) -> None:
        if state.joint:
            run_joint_step(state)
        else:
            run_pass(state)
        state.row = {
            "objective": state.noise,
            "gamma": state.c,
            "dS": math.nan,
            "dU": math.nan,
            "change": state.change,
            "rank": state.U.shape[1],
            "entries": lines_of(state)[0].M.nnz,
        }
        if not math.isfinite(state.noise):
            state.failure = "diverged"
        elif state.joint:
            after_joint_step(state)
        elif state.data == "whole":
            self._watch(problem, state)
        elif is_exact(problem, state) and state.change <= max(problem.tol, 1e-12):
            if state.data != "part":  # of which others may need more
                state.target, state.choosing = state.U.shape[1], False  # nothing is left to fit
            self._conclude(problem, state)
        elif state.choosing or state.U.shape[1] < state.target:
            if state.since >= STEPS and not is_falling(state.recent):
                self._next_rank(state)
        elif not is_moving(state):
            self._conclude(problem, state)

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
            climb(state)

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
        state.clear_cut = self._is_clear_cut(state)
        begin_anew(state)

    def _is_clear_cut(self, state: LadderState) -> bool:
        """Whether without its last component the rank would predict far worse: most entries, or a few by much."""
        zero = np.log(np.abs(state.views.sketch.held_values) / state.views.unit + 1e-7)
        without, with_it = np.vstack([zero, state.held])[state.target - 1 : state.target + 1]
        by_much = math.log(np.mean(np.exp(without)) / np.mean(np.exp(with_it)))
        return max(float(np.mean(without - with_it)), by_much) > CLEAR

    # -- the end of an attempt

    def _conclude(self, problem: Problem, state: LadderState) -> None:
        """A part grows; else a second look at doubtful lines, joint steps if need be, and the attempt is judged."""
        if state.data == "part":
            grow(problem, state)
            return
        exact = is_exact(problem, state)
        if state.attempt == SLOW and not (exact or state.joined) and has_few_entries(state):
            begin_joint_steps(state)
            return
        if not (state.shrinks or exact):
            state.shrinks = True
            begin_anew(state)
            return
        before = state.changed
        shares, state.changed = take_second_look(state)
        if 0 < state.changed < before and state.looks < (LOOKS if state.attempt else 2):
            state.looks += 1
            state.c = max(10 * state.c, 1e-3 * state.views.unit) if exact else 2 * state.c
            begin_anew(state)
            return
        ignored = ignored_share(state)
        if ignored > IGNORED and state.joined < len(WIDE):
            begin_joint_steps(state)
            return
        self._judge(problem, state, shares, ignored)

    def _judge(self, problem: Problem, state: LadderState, shares: tuple[Float, Float], ignored: float) -> None:
        """The attempt is taken, or the best one of several that found the same, or another begins."""
        exact, rank = is_exact(problem, state), state.U.shape[1]
        if state.noise < CLOSELY * state.views.unit:
            drop_sparse(state)
        too_high = exact and (is_spiky(state) or state.U.shape[1] < rank)  # the rank may be, or be still
        if not exact:
            drop_spikes(state)
        held = state.views.sketch.held_residual(state.U, state.V)
        given_up = max(below_usual(share, 0.5).size / share.size for share in shares)
        fine = ignored <= IGNORED and predicts(state, held)
        if exact and fine and given_up <= GIVEN_UP and not (state.untied or too_high):
            self._to_whole(problem, state, determined=not below_usual(shares[1], 0.5).size)
            return
        score = score_of(state)
        seen = predicted(state)
        alike = is_alike(state, seen)
        if score < min(state.scores, default=np.inf):
            state.seen = seen
            state.best_U, state.best_V, state.best_noise = state.U, state.V, state.noise
            state.best_fine, state.best_open, state.best_widest = fine, state.open, state.widest
            state.best_given_up, state.best_too_high = given_up, too_high
        state.scores = (*state.scores, score)
        state.grown += state.attempt > SLOW
        before = min(state.scores[:-1], default=np.inf)
        if score < before - AGREE:
            state.agreed = False  # what was agreed on before is not the best any more
        elif alike and score <= before + AGREE:
            state.agreed = True
        if self.choose_rank and len(state.made) == 1 and not state.views.everything:
            self._ask_for_more(state)
            state.choosing, state.target = True, self._highest(problem)
            self._begin(problem, state, state.attempt)
        elif self._path_is_due(state):
            state.path = Path(problem, state.views).begin()
        else:
            self._decide(problem, state)

    def _decide(self, problem: Problem, state: LadderState) -> None:
        """The best attempt is taken, or another begins."""
        agree = state.agreed
        doubtful = state.best_noise > NOISY * state.views.unit or state.best_given_up > LOST  # by errors or by mistake
        accepted = agree and state.best_fine and state.grown >= min(GROWN[doubtful], self.attempts - 2)
        known = state.views.sketch.held_values.size
        tested = known >= TELLING and state.best_noise > CLOSELY * state.views.unit
        accepted = accepted and (tested or evidence(state) > EVIDENCE)
        accepted = accepted and not is_partly_better(state)
        following = self._following(state, agree)
        exact_once = state.best_fine and state.best_noise < EXPLAINED * state.views.unit
        if following is None and exact_once and evidence(state) > EVIDENCE:
            accepted = True  # nothing speaks against it
        if accepted or following is None:
            larger = with_one_rank_more(state)
            state.next_noise = 0.0 if larger is None else larger.noise
            if larger is not None and self.attempts not in state.made and self._begin_with_less(state, larger):
                return
        if following is not None and (not accepted or state.next_noise):
            if following == SLOW and state.generous == 1 and not state.views.everything:
                self._ask_for_more(state)
            self._begin(problem, state, following)
            return
        less, partly = state.next_noise, is_partly_better(state)
        if not (accepted or less or partly) and self._take_path(problem, state, False):
            return
        take_best(state)
        if less:
            state.advice = (
                f"with one rank more the noise is {less:.2g} instead of {state.noise:.2g}: the rank is too low, or "
                f"errors that have structure take the place of a component; try rank={state.U.shape[1] + 1}, or 'auto'"
            )
        elif partly:
            state.advice = (
                f"a part of the data is explained up to a noise of {state.part_noise:.2g}, but all of it only to "
                f"{state.noise:.2g}: errors that have structure may hide a better L; leave out what they are in, "
                "or give a start"
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
        state.scores, state.grown, state.best_fine, state.agreed = (), 0, False, False

    def _following(self, state: LadderState, agree: bool) -> int | None:
        """The attempt to make next: while attempts agree, one that grows; if the rank may be too high, the climb."""
        left = [k for k in ORDER if k < self.attempts and k not in state.made]
        left.extend(k for k in range(max(ORDER) + 1, self.attempts) if k not in state.made)
        if state.best_too_high and 1 in left:
            return 1  # it ends at the first rank that is exact
        growing = [k for k in left if k > SLOW]
        return next(iter(growing if agree and growing else left), None)

    def _begin_with_less(self, state: LadderState, larger: LadderState) -> bool:
        """An attempt from one rank more, without the component that the fewest lines have; False if most have all.

        Rows or columns that are wrong together have a component to themselves.
        """
        sides = [(side, basis(host(getattr(larger, side)))[0]) for side in ("U", "V")]
        found = [(side, *sparsest_direction(Q, np.random.default_rng(0x737061))) for side, Q in sides]
        side, direction, size = min(found, key=lambda one: one[2])
        if size > SPARSE:
            return False
        self._reset(state, self.attempts)
        state.U, state.V, state.c = larger.U, larger.V, larger.c
        leave_out(state, side, direction)
        return True

    # -- the path of shrinkage

    def _path_is_due(self, state: LadderState) -> bool:
        """Whether the rank is to be chosen, what was kept aside can tell, and the path was not followed yet."""
        known = state.views.sketch.held_values.size
        return self.choose_rank and self.shrink and not state.path.data and known >= FEWEST

    def _follow_path(self, problem: Problem, state: LadderState) -> None:
        """One pass of the path; at its end it is taken, or the other attempts go on."""
        state.path = copy(state.path)
        path = Path(problem, state.views)
        state.row = path.advance(state.path)
        state.iteration += 1
        if state.path.data == "whole":
            state.accuracy = state.path.change
            if state.advice and state.path.finished:
                state.failure, state.accuracy = "stalled", math.inf
            else:
                state.finished = state.path.finished
        elif not state.path.running and not self._take_path(problem, state, state.clear_cut):
            self._decide(problem, state)

    def _take_path(self, problem: Problem, state: LadderState, stands: bool) -> bool:
        """Take the path if it predicts what was kept aside better than the best attempt, which may stand in doubt."""
        if not state.path.data:
            return False
        path = Path(problem, state.views)
        held = path.held_residual(state.path), state.views.sketch.held_residual(state.best_U, state.best_V)
        if not predicts_better(*held, stands):
            return False
        own, other = (float(np.mean(np.log(np.abs(e) / state.views.unit + 1e-7))) for e in held)
        if own < other - FAR_BETTER:
            state.advice = (
                "a path of shrinkage predicts entries kept aside far better than any rank that was tried, and is what "
                "L is: if L has a rank, errors that have structure hide it; leave out what they are in, or give it"
            )
        state.path = copy(state.path)
        path.extend(state.path)
        return True

    # -- the whole matrix

    def _to_whole(self, problem: Problem, state: LadderState, determined: bool) -> None:
        """L for all rows and columns; passes over the whole follow unless the block has determined it for good."""
        held = state.views.sketch.held_residual(state.U, state.V)
        if held.size:
            state.held_out = robust_scale(held)
        poor = self._extend(problem, state)
        state.data, state.looks, state.shrinks = "whole", 0, True
        state.c = max(state.c, EXPLAINED * state.views.unit)
        begin_anew(state)
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
            C, doubtful = strip.complete(Q, sketch.rows, times(state.U, R.T), state.c, turns=7, noise=state.noise)
            state.U, R = basis(C)
            state.V = times(Q, R.T)
        else:
            doubtful = False
        state.V, _ = views.columns("whole").complete(
            state.U, sketch.columns, state.V, state.c, turns=5, noise=state.noise
        )
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
            if not state.looks and take_second_look(state)[1]:
                state.looks, state.accuracy = 1, math.inf  # on, with the lines that are new
            elif state.advice and not self._explains_all(problem, state):
                state.failure = "stalled"
            else:
                state.finished = f"L changes by {change:.1e} relatively; the noise of the inliers is {state.noise:.2g}"

    def _explains_all(self, problem: Problem, state: LadderState) -> bool:
        """Whether every entry is fitted exactly, though there may be too few to tell what else would fit them."""
        if not is_exact(problem, state):
            return False
        return not outlying(problem.sweep.residual(state.U, state.V), EXPLAINED * state.views.unit).size

    def _at_rest(self, problem: Problem, state: LadderState) -> bool:
        """Whether passes change L by `tol` at most, by little beside the error the noise makes, or beside the noise."""
        m, n = problem.M.shape
        k = state.U.shape[1]
        noise = state.noise / problem.scale
        error = noise * math.sqrt(k * (m + n - k) / problem.M.nnz)  # of the fit
        size = float(np.linalg.norm(state.V)) / (math.sqrt(m * n) * problem.scale)  # of L; U is orthonormal
        change = min(size, 1.0) * state.change_of_most  # of an L that is next to nothing, little
        to_come = change / (1 - min(state.falls, SLOWEST))
        if state.change <= problem.tol or to_come <= REST * error:
            return True
        falling = len(state.recent) < 3 or state.noise < SETTLED * state.recent[-3]
        return state.since >= CREEPING and not falling and change <= UNSEEN * noise

    # -- what comes out

    def lowrank(self, problem: Problem, state: LadderState) -> LowRank:
        """L, on all rows and columns."""
        U, V = self._factors(problem, state)
        return LowRank(U, V.T)

    def _factors(self, problem: Problem, state: LadderState) -> tuple[Float, Float]:
        """L of the whole matrix: of the last attempt if it has got there, else of the best so far."""
        if state.path.data == "whole":
            return state.path.U, state.path.V * beside(state.path.sizes, state.path.V)
        if state.data != "whole":
            state = copy(state)
            if state.scores:
                take_best(state)
            elif state.data == "part":
                adopt_the_rest(state)
            self._extend(problem, state)
            if not is_exact(problem, state):  # lines with few entries have what fits them, however wild
                state.data, state.shrinks, state.since = "whole", True, 3
                for _ in range(2):
                    run_pass(state)
        return state.U, state.V

    def finish(self, problem: Problem, state: LadderState) -> Outcome:
        """L, and S = M - L where that is more than four times the noise."""
        U, V = self._factors(problem, state)
        shrunk = state.path.data == "whole"
        if not U.shape[1]:  # nothing predicts better than zero
            U, V = (beside(np.eye(lines, 1), U) * one for lines, one in zip(problem.M.shape, (1.0, 0.0), strict=True))
        U, R = qr(U)
        V = times(V, R.T).T
        if not self.choose_rank and len(V) < problem.rank:  # an exact fit of lower rank; what is asked for is more
            U = qr(np.hstack([U, beside(np.eye(len(U), problem.rank), U)]))[0][:, : problem.rank]
            V = np.vstack([V, beside(np.zeros((problem.rank - len(V), V.shape[1])), V)])
        e = problem.sweep.residual(U, V.T)
        noise = state.path.noise if shrunk else state.noise
        noise = noise if math.isfinite(noise) else robust_scale(e)
        flagged = outlying(e, max(OUTLIER * noise, 1e-7 * state.views.unit, problem.rounding))
        m, n = problem.M.shape
        k = U.shape[1]
        free = 1 - k * (m + n - k) / max(problem.M.nnz - flagged.size, 1)  # of what the fit leaves to the residuals
        spread = trimmed_deviation(host(e[:: max(1, e.size // 20_000)]), noise) / math.sqrt(max(free, 0.1))
        held_out = state.path.noise if shrunk else state.held_out
        return Outcome(
            L=LowRank(U, V),
            flagged=flagged,
            S=-e[flagged].astype(problem.M.dtype, copy=False),
            objective=noise,
            noise=noise if shrunk else spread,
            held_out=held_out if math.isfinite(held_out) else None,
            next_noise=state.next_noise or None,
            repeated=state.repeated,
            undetermined=state.open,
        )
