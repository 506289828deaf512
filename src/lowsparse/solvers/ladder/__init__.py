"""Ladder: alternating robust regression, if need be one rank at a time. The library's own method, and its default.

Given U, every column of M is regressed on it; given V, every row. The weights 1 / (1 + (e/c)²) are those of the Cauchy
loss, so a stationary point for a fixed c is one of

    min over U, V of  Σ_Ω log(1 + ((UV - M)_ij / c)²),

and c follows the residuals: 2.385 times their robust scale (1.4826 times the median of |e|), for 95 % efficiency under
normal noise. For a fixed c no half-step increases the sum, not even if it is over-relaxed by less than its length: the
loss is majorised by a parabola that is symmetric about the solution of the regression. Where noise is left,
coefficients are shrunk by an empirical Bayes prior (`robust.regression.Prior`).

L is learnt on a block of as many rows and columns as determine it (`views`), or on the dense core of data such as
ratings (`robust.core`), and extended from there (`whole`); if it explains lines beyond the core worse than those in it,
a larger block follows. The problem is not convex, so there are several attempts of different kinds:

- direct: at the full rank, from the singular vectors of the clipped data;
- climbing (`climbing`): rank 1, then the leading singular vector of the clipped residuals is added, and so on. As all
  larger components have been removed, small ones are not taken for outliers, nor outliers for components;
- growing (`growing`): several small dense blocks are climbed on at once. The one that explains other lines best grows,
  line by line (`robust.growth`), and its noise bounds c;
- from one rank more, if that leaves far less noise or some lines have a component of their own: without the component
  that the fewest rows or columns have;
- shrinking (`shrinking`): a path of decreasing shrinkage, if the rank is to be chosen and a climb leaves noise. It is
  taken if it predicts held-out entries better than the climb, and in doubt if the rank is not clear-cut.

c decreases step by step: if it collapsed, a part of the data would be fitted and the rest lost. If half of the entries
are wrong, the median of the residuals no longer falls; where they look like that, c goes on to fall while held-out
entries are predicted better, and from then on follows the closest fifth of the residuals. Suspicious ties
(`robust.ties`) take no part in some attempts, in their comparison, nor, if not too many, in the last passes. At
the end of an attempt, lines that explain few of their entries are regressed again, from scratch and by random subsets;
and if the fit is close and the rank allows it, as a group with a component of its own (`groups`). Components that few
lines have are dropped (`components`), unless they explain more entries than their parameters account for (`evidence`).
Where the explained entries do not connect all rows and columns, but some that are taken for outliers would,
Gauss-Newton steps in both factors follow (`robust.joint`), from a wider c.

That this finds the truth is not proved, only measured (`python -m benchmarks.phase`, `benchmarks.structure`), so the
answer is tested (`judging`). Some entries are held out, if there are 500 or more. An attempt is taken at once if it
fits exactly, predicts these entries as well as the fitted ones, leaves hardly a line unexplained, determines nearly all
of L, takes no entry for an outlier where it does not, and its outliers, if many, are scattered. Otherwise the best is
taken only if two attempts agree on it, two that grew were among them (four, if many lines are left, or if much noise is
and they differ by more than noise makes of any fit, and six of a small block with outliers), a close fit explains twice
as many entries as it has parameters (1.6 times as many if enough are held out), no part is explained far better, no fit
of a higher rank explains more than its parameters account for, and one rank more does not leave far less noise. Where
attempts agree on a block but L is hidden there by the noise, the block is enlarged. In the end the lines of a table get
the coefficients that explain the most of their entries (`robust.consensus`). All attempts have some things in common,
and may agree on what is wrong: a small table is searched a second time, with rows and columns exchanged and in another
order, unless what is unexplained is scattered, or much noise is left, and a third time if one of the two explains far
more (`second`).
"""

import math
from copy import copy
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from ...diagnosis import largest_rank
from ...linalg.arrays import to_device_of
from ...linalg.grassmann import basis
from ...linalg.lowrank import LowRank
from ...robust.regression import EXPLAINED, poorly_explained
from ...sweeps import Float
from ..base import Outcome, Problem, Solver, nothing
from ..factors import trace_row
from ..parameters import parameter
from . import climbing, components, evidence, groups, growing, judging, passes, second, whole
from .shrinking import MIN_HELD_OUT, ShrinkagePath, predicts_better
from .state import SLOW, Attempt, LadderState, log_error
from .views import Views

__all__ = ["Ladder", "LadderState"]

BLOCK_FACTOR = 3.0  # by which the block is enlarged if the first attempts do not agree, or noise hides L in it
ORDER = (3, 4, 1, 5, 6, SLOW)  # of the attempts after the first; further ones follow
WITH_TIES = (4, 6, 8)  # attempts that include suspicious ties, as does the first
# Attempts that must have grown L before two that agree are believed; the second value if the noise, in units, exceeds
# NOISY, and fewer attempts than the first value agree closely, or the share of lines left unexplained exceeds
# UNEXPLAINED; the third if there are at most SMALL entries, so that wrong ones are easily fitted, and more than the
# share OUTLIERS is unexplained.
MIN_GROWN, NOISY, UNEXPLAINED, SMALL, OUTLIERS = (2, 4, 6), 0.08, 0.35, 5000, 0.05
MAX_IGNORED = 0.005  # share of entries that are taken for outliers where L is not determined
MAX_UNEXPLAINED = 0.02  # share of lines left unexplained by an exact fit that is taken at once
MAX_UNDETERMINED = 0.05  # share of L that such a fit may leave undetermined
# Entries for each parameter that a fit must explain if its noise, in units, is less than LITTLE, if too few entries are
# held out, or if only one attempt has found it; the second value if enough are held out.
EVIDENCE, LITTLE = (2.0, 1.6), 0.1
NEARLY_EXACT = 1e-4  # noise, in units, after a component was added, from which joint steps go on
REFITS = 3  # of poorly explained lines in an attempt, 2 in the first
FAR_BETTER = 0.5  # decrease of log |e| on the path, above which the climb has missed something
CHEAP = 50_000  # entries in the passes of one iteration, at least;
SECOND = 10  # so many times as many in further searches
AGREE = 0.1  # largest difference of the scores of two attempts that found the same

RANK_TOO_LOW = (
    "with one rank more the noise is {less:.2g} instead of {noise:.2g}: the rank is too low, or errors with structure "
    "take the place of a component; try rank={rank}, or 'auto'"
)
PARTLY_BETTER = (
    "a part of the data is explained up to a noise of {part:.2g}, but all of it only up to {noise:.2g}: errors with "
    "structure may hide a better L; leave out the rows or columns they are in, or give a start"
)
PATH_FAR_BETTER = (
    "a path of shrinkage predicts held-out entries far better than any rank that was tried, so L is taken from it: "
    "if L has a low rank, errors with structure hide it; leave out the rows or columns they are in, or give the rank"
)


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
    runs_anywhere: ClassVar[bool] = True

    attempts: int = parameter(
        9, "the first directly at the rank, the others by climbing, most of these from dense blocks", at_least=1
    )
    choose_rank: bool = parameter(False, "climb to the rank at most, while held-out entries are predicted better")
    searches: int = parameter(
        3,
        "2: small tables whose outliers are not scattered are searched again, in another order; 3: and once more if "
        "only one of the two explains far more",
        at_least=1,
    )
    rank_is_limit: bool = parameter(
        False, "the rank is low on purpose: too low only if one rank more leaves a third of the noise instead of a half"
    )
    shrink: bool = parameter(True, "with choose_rank: try a path of shrinkage too, and take what predicts better")

    def with_chosen_rank(self) -> Self:
        """This method with `choose_rank`."""
        return replace(self, choose_rank=True)

    def init(self, problem: Problem) -> LadderState:
        """The state before the first pass of the first attempt."""
        highest = self._highest_rank(problem)
        state = LadderState(
            views=self._views(problem),
            asked=0 if self.choose_rank else highest,
            target=highest,
            choosing=self.choose_rank,
        )
        self._begin(state, 1 if self.choose_rank else 0)
        return state

    def _views(self, problem: Problem) -> Views:
        return Views(problem, self._highest_rank(problem), min_entries=50 if self.choose_rank else 500)

    def _highest_rank(self, problem: Problem) -> int:
        """The rank to climb to; where it is to be chosen without a bound, the largest worth trying."""
        unbounded = self.choose_rank and problem.rank == min(problem.M.shape)
        return largest_rank(problem.M) if unbounded else problem.rank

    # -- the start of an attempt

    def _begin(self, state: LadderState, attempt: int) -> None:
        """Start an attempt: at the full rank, with rank 1, or from a small block."""
        self._reset(state, attempt)
        state.shrinks = attempt not in (0, SLOW)
        if attempt > 0 and state.views.ties is not None:
            state.untied, state.repeated = attempt not in WITH_TIES, state.views.ties.share
        if attempt > SLOW and growing.begin_with_block(state):
            return
        if attempt == 0 and state.problem.start_given:
            columns, U = state.views.columns(state.view), state.problem.start()
            state.U = basis(to_device_of(U[to_device_of(state.views.sketch.rows, U)], columns.M.values))[0]
            state.V = columns.fit_from_zero(state.U, EXPLAINED * state.unit, n_reweight=5)
            state.c = state.loss_scale(columns.sweep.residual(state.U, state.V))
            state.restart_count()
        else:
            climbing.start_at(state, state.target if attempt == 0 else 1)

    @staticmethod
    def _reset(state: LadderState, attempt: int) -> None:
        """Forget the last attempt, except for what it was judged by."""
        state.attempt, state.made = attempt, (*state.made, attempt)
        state.refits, state.improved, state.joint_steps, state.joint_runs = 0, np.inf, 0, 0
        state.additions = 0
        state.held_logs, state.max_c, state.shrinks = nothing(), np.inf, True
        state.view, state.untied = "block", False
        state.mostly_wrong = state.wrong_tried = False

    # -- its iterations

    def advance(self, problem: Problem, state: LadderState) -> LadderState:
        """Run passes over columns and rows, or joint steps; and draw the consequences."""
        state = copy(state)  # an interruption leaves the last state intact
        if state.search and state.problem is problem:  # it was resumed
            state.views = self._views(second.shuffled(problem, state.search))
        state.update_views()
        if state.path.running:
            self._follow_path(state)
        else:
            self._run_passes(state)
        return self._search_again(problem, state)

    def _run_passes(self, state: LadderState) -> None:
        """The passes of one iteration.

        One in the first attempt, and on the whole if there is no tolerance to end them; otherwise as many as have the
        cost of one pass over all entries, or over `CHEAP` if that is more: hundreds of passes over a small table are a
        moment.
        """
        entries, attempt, nnz = 0, state.attempt, state.problem.M.nnz
        while True:
            entries += state.matrix.nnz
            self._step(state)
            if state.search:
                enough, changed = SECOND * CHEAP, False
            else:
                changed = state.attempt != attempt or (state.view == "whole" and not state.problem.tol)
                enough = max(nnz, CHEAP) if len(state.made) > 1 else 0
            if changed or second.has_ended(state) or state.path.running or entries >= enough:
                state.iteration += 1
                return

    def _search_again(self, problem: Problem, state: LadderState) -> LadderState:
        """Begin another search where one is due, or compare what was found with the answer before."""
        search = state.search
        if search and not second.has_ended(state):
            return state
        if search:
            state, due = second.settle(state, self._views(problem))
        else:
            due = second.is_due(state)
        if not due or search + 1 >= self.searches:
            return state
        again = self.init(second.shuffled(problem, search + 1))
        again.search, again.first = search + 1, second.answer_of(state)
        again.iteration, again.row = state.iteration, state.row
        return again

    def _step(self, state: LadderState) -> None:
        if state.joint_steps:
            passes.run_joint_step(state)
        else:
            passes.run_pass(state)
        state.row = trace_row(state.noise, state.change, gamma=state.c, rank=state.rank, entries=state.matrix.nnz)
        if not math.isfinite(state.noise):
            state.failure = "diverged"
        elif state.joint_steps:
            passes.end_joint_steps_if_converged(state)
        elif state.view == "whole":
            whole.end_if_converged(state)
        elif state.is_exact() and state.change <= max(state.problem.tol, 1e-12):
            if state.view != "part":  # other parts may need more
                state.target, state.choosing = state.rank, False  # nothing is left to fit
            self._conclude(state)
        elif state.choosing or state.rank < state.target:
            if climbing.is_rank_done(state):
                climbing.next_rank(state)
        elif not passes.is_moving(state):
            self._conclude(state)

    # -- its end

    def _conclude(self, state: LadderState) -> None:
        """Grow a part; else refit poorly explained lines, make joint steps if need be, and judge the attempt."""
        if state.view == "part":
            growing.grow(state)
            return
        exact = state.is_exact()
        if not (exact or state.wrong_tried) and judging.assume_most_wrong(state):
            return
        creeps = state.additions > 0 and state.noise < NEARLY_EXACT * state.unit  # towards an exact fit
        creeps |= state.attempt == SLOW and judging.has_few_entries(state)
        if creeps and not (exact or state.joint_runs):
            passes.begin_joint_steps(state)
            return
        if not (state.shrinks or exact):
            state.shrinks = True
            state.restart_count()
            return
        previous = state.improved
        shares, state.improved = judging.refit_poor_lines(state)
        if 0 < state.improved < previous and state.refits < (REFITS if state.attempt else 2):
            state.refits += 1
            state.c = passes.widened(state) if exact else 2 * state.c
            state.restart_count()
            return
        if state.noise < groups.CLOSE * state.unit and self._add_component(state, shares):
            return
        ignored = judging.ignored_share(state)
        if ignored > MAX_IGNORED and state.joint_runs < len(passes.WIDE):
            passes.begin_joint_steps(state)
            return
        self._judge(state, shares, ignored)

    @staticmethod
    def _add_component(state: LadderState, shares: tuple[Float, Float]) -> bool:
        """Add a component that only some lines have, if the rank allows one; passes follow then."""
        most = state.views.rank
        if state.rank >= most or state.additions >= most or not groups.add_component(state, shares):
            return False
        state.target = state.rank
        return True

    def _judge(self, state: LadderState, shares: tuple[Float, Float], ignored: float) -> None:
        """Take the attempt if it is beyond doubt; else compare it with the others, and decide."""
        exact, rank = state.is_exact(), state.rank
        if state.noise < evidence.FEW_BY_CHANCE * state.unit:
            evidence.consider_rival(state, Attempt(U=state.U, V=state.V, noise=state.noise))
            components.drop_sparse(state)
            fewer = state.rank < rank and not state.additions
            if fewer and self._add_component(state, judging.explained_shares(state)):
                return
        rank_too_high = exact and (judging.is_spiky(state) or state.rank < rank)
        if not exact:
            components.drop_spikes(state)
        unexplained = max(poorly_explained(share, 0.5).size / share.size for share in shares)
        plausible = ignored <= MAX_IGNORED and judging.predicts(state, state.held_residual())
        doubtful = state.untied or rank_too_high or state.undetermined > MAX_UNDETERMINED
        doubtful |= judging.outliers_gather(state, shares)
        if exact and plausible and unexplained <= MAX_UNEXPLAINED and not doubtful:
            self._extend(state, determined=not poorly_explained(shares[1], 0.5).size)
            return
        attempt = Attempt(
            U=state.U,
            V=state.V,
            noise=state.noise,
            max_c=state.max_c,
            mostly_wrong=state.mostly_wrong,
            undetermined=state.undetermined,
            unexplained=unexplained,
            outliers=judging.outlier_share(state),
            rank_too_high=rank_too_high,
            plausible=plausible,
            residuals=judging.compared_residuals(state),
        )
        evidence.consider_rival(state, attempt)
        self._compare(state, attempt)
        if self.choose_rank and len(state.made) == 1 and not state.views.is_block_whole:
            self._enlarge_block(state)
            state.choosing, state.target = True, self._highest_rank(state.problem)
            self._begin(state, state.attempt)
        elif self._is_path_due(state):
            state.path = ShrinkagePath(state.views).begin()
        else:
            self._decide(state)

    def _compare(self, state: LadderState, attempt: Attempt) -> None:
        """Keep the attempt if it is the best, and note whether it agrees with the best."""
        score, best = judging.score_of(state), min(state.scores, default=np.inf)
        alike, closely = judging.is_alike(state, attempt.residuals)
        more = evidence.explains_more(state, attempt)
        close, tested = abs(score - best) <= AGREE, state.views.n_held_out >= passes.MIN_HELD_OUT
        if tested and not close:
            more = 0  # held-out entries tell; a score of fitted ones says less than how many are explained
        clearly = more > 0 or (more == 0 and score < best - AGREE)
        if clearly or (more == 0 and score < best):
            state.best = attempt
        state.scores = (*state.scores, score)
        state.grown += SLOW < state.attempt <= self.attempts
        if clearly:
            state.agreed, state.closely = False, 0  # what others agreed with is no longer the best
        elif alike and close:
            state.agreed, state.closely = True, state.closely + closely

    # -- the choice between attempts

    def _decide(self, state: LadderState) -> None:
        """Take the best attempt, or begin another."""
        if self._needs_more_entries(state):
            self._enlarge_block(state)
            state.made = ()
            self._begin(state, 0)
            return
        accepted, following = self._is_accepted(state), self._next_attempt(state)
        best = state.best
        exact_once = best.plausible and best.noise < EXPLAINED * state.unit and best.undetermined <= MAX_UNDETERMINED
        if following is None and exact_once and evidence.evidence(state) > EVIDENCE[0]:
            accepted = True
        if accepted or following is None:
            larger = judging.with_one_rank_more(state, limited=self.rank_is_limit)
            state.next_noise = 0.0 if larger is None else larger.noise
            if self.attempts not in state.made:
                larger = larger or self._with_component(state)
                if larger is not None and self._begin_without_sparsest(state, larger):
                    return
        if following is not None and (not accepted or state.next_noise):
            if following == SLOW and state.block_factor == 1 and not state.views.is_block_whole:
                self._begin_on_larger_block(state)
            else:
                self._begin(state, following)
            return
        less, partly = state.next_noise, judging.is_partly_better(state)
        if not (accepted or less or partly) and self._take_path(state, sound=False):
            return
        judging.take_best(state)
        if less:
            state.advice = RANK_TOO_LOW.format(less=less, noise=state.noise, rank=state.rank + 1)
        elif partly:
            state.advice = PARTLY_BETTER.format(part=state.part_noise, noise=state.noise)
        elif not accepted:
            state.advice, state.supported = second.NO_AGREEMENT, self._is_supported(state)
        self._extend(state, determined=False)

    def _extend(self, state: LadderState, *, determined: bool) -> None:
        """Go on with the whole matrix; if a core does not stand for its other lines, start anew on a larger block."""
        on_block = copy(state)
        whole.begin(state, determined)
        if not judging.explains_others(state):
            vars(state).update(vars(on_block))
            self._enlarge_block(state)
            state.made, state.advice, state.next_noise, state.part_noise = (), "", 0.0, np.inf
            state.supported = False
            self._begin(state, 0)

    def _needs_more_entries(self, state: LadderState) -> bool:
        """Whether attempts agree on the block, but noise hides there what a larger one would show.

        Where the rank is to be chosen, the block has been enlarged before.
        """
        best = state.best
        if not state.agreed or best.noise <= NOISY * state.unit or self.choose_rank or state.views.is_block_whole:
            return False
        return not best.plausible or judging.hides_components(state)

    def _is_accepted(self, state: LadderState) -> bool:
        """Whether enough attempts agree on the best, and enough entries support it."""
        best = state.best
        noisy = best.noise > NOISY * state.unit and state.closely < MIN_GROWN[0]
        doubtful = noisy or best.unexplained > UNEXPLAINED
        small = state.views.sketch.M.nnz <= SMALL and best.outliers > OUTLIERS
        grown = min(MIN_GROWN[2 if small else doubtful], self.attempts - 2)
        return state.agreed and state.grown >= grown and self._is_supported(state)

    def _is_supported(self, state: LadderState) -> bool:
        """Whether the best attempt predicts held-out entries, enough entries support it, and nothing explains more."""
        best, tested = state.best, state.views.n_held_out >= passes.MIN_HELD_OUT
        if not best.plausible:
            return False
        evident = (tested and best.noise > LITTLE * state.unit) or evidence.evidence(state) > EVIDENCE[tested]
        if not evident or judging.is_partly_better(state):
            return False
        return self.choose_rank or not evidence.has_rival(state)

    def _enlarge_block(self, state: LadderState) -> None:
        """Take a larger block, on which attempts are counted again: other entries are held out."""
        state.block_factor *= BLOCK_FACTOR
        state.update_views()
        state.scores, state.grown, state.agreed, state.closely = (), 0, False, 0
        state.rival = Attempt()
        state.best = replace(state.best, plausible=False)

    def _begin_on_larger_block(self, state: LadderState) -> None:
        """Take a larger block, and begin there with the best L so far: attempts that follow may not find it again."""
        smaller, best = state.views.sketch, state.best
        self._enlarge_block(state)
        self._reset(state, self.attempts + 1)
        growing.begin_with_known(state, smaller, best)

    def _next_attempt(self, state: LadderState) -> int | None:
        """The attempt to make next: while attempts agree, one that grows; if the rank may be too high, the climb."""
        left = [k for k in ORDER if k < self.attempts and k not in state.made]
        left.extend(k for k in range(max(ORDER) + 1, self.attempts) if k not in state.made)
        if state.best.rank_too_high and 1 in left:
            return 1  # it ends at the first rank that is exact
        growth = [k for k in left if k > SLOW]
        return next(iter(growth if state.agreed and growth else left), None)

    @staticmethod
    def _with_component(state: LadderState) -> LadderState | None:
        """The best attempt with a component that only some lines have."""
        trial = copy(state)
        judging.take_best(trial)
        trial.c = max(trial.c, EXPLAINED * state.unit)
        return groups.with_component(trial, judging.explained_shares(trial))

    def _begin_without_sparsest(self, state: LadderState, larger: LadderState) -> bool:
        """Begin an attempt from one rank more, without its sparsest component; False if most lines have all."""
        if not components.drop_sparsest(larger):
            return False
        self._reset(state, self.attempts)
        state.U, state.V, state.c = larger.U, larger.V, larger.c
        state.restart_count()
        return True

    # -- the path of shrinkage

    def _is_path_due(self, state: LadderState) -> bool:
        """Whether the rank is to be chosen, enough entries are held out, and the path was not followed yet."""
        enough = state.views.n_held_out >= MIN_HELD_OUT
        return self.choose_rank and self.shrink and not state.path.view and enough

    def _follow_path(self, state: LadderState) -> None:
        """Run one pass of the path; at its end take it, or go on with the other attempts."""
        state.path = copy(state.path)
        state.row = ShrinkagePath(state.views).advance(state.path)
        state.iteration += 1
        if state.path.view == "whole":
            state.accuracy = state.path.change
            if state.advice and state.path.finished:
                state.failure, state.accuracy = "stalled", math.inf
            else:
                state.finished = state.path.finished
        elif not state.path.running and not self._take_path(state, sound=state.clear_cut):
            self._decide(state)

    def _take_path(self, state: LadderState, *, sound: bool) -> bool:
        """Take the path if it predicts held-out entries better than the best attempt, which may be `sound`."""
        if not state.path.view:
            return False
        path = ShrinkagePath(state.views)
        held = path.held_residual(state.path), state.views.sketch.held_residual(state.best.U, state.best.V)
        if not predicts_better(*held, sound):
            return False
        path_error, best_error = (float(np.mean(log_error(e, state.unit))) for e in held)
        if path_error < best_error - FAR_BETTER:
            state.advice = PATH_FAR_BETTER
        state.path = copy(state.path)
        path.extend(state.path)
        return True

    # -- the solution

    def lowrank(self, problem: Problem, state: LadderState) -> LowRank:
        """L, on all rows and columns."""
        U, V = whole.factors(self._answered(problem, state))
        return LowRank(U, V.T)

    def finish(self, problem: Problem, state: LadderState) -> Outcome:
        """L, and S = M - L where that is more than four times the noise."""
        state = self._answered(problem, state)
        return whole.outcome(state, rank=None if self.choose_rank else problem.rank)

    def _answered(self, problem: Problem, state: LadderState) -> LadderState:
        """The state; during a further search, that with the answer of those before."""
        return second.restored(state, self._views(problem), state.first) if state.search else state
