"""A path of decreasing shrinkage: how the default method finds a rank where the data have noise and no exact one.

    min over L of  Σ_Ω c²/2 log(1 + ((L - M)_ij / c)²)  +  λ/p Σ_k σ_k(L)^p ,   0 < p ≤ 1 .

With p = 1 the second term is λ times the nuclear norm, the smallest ½ (‖A‖² + ‖B‖²) with A Bᵀ = L, which shrinks all
singular values alike. With p < 1 large ones are shrunk less, and small ones go. Of real tables p = 2/3 predicts what
was kept aside about as well as the best p for each of them.

Given L = U diag(σ) Vᵀ, both terms lie below quadratics that touch them there: the loss below Σ w e² / 2 with weights
w = 1 / (1 + (e/c)²), and the sum of σ^p / p, for all matrices U Cᵀ, below ½ Σ_k σ_k^(p-2) ‖c_k‖², plus constants, as it
is concave in CᵀC. So with B = U diag(σ_k^(1-p/2)) every column of M is regressed on B with the ridge λ; L is turned
to its singular vectors; then the rows likewise. With fixed weights and λ no half-step increases the objective.

There is a snag. What shrinkage takes off a large row makes its residuals large, its weights small, and the ridge still
stronger against them; in the end the row is taken for an outlier, and lost. L = 0 may even be the best point: for
small c it costs little to call everything an outlier. So λ is multiplied by the mean weight of the line, and c is at
least three times what shrinkage takes off the entries of any line, as a root mean square.

The problem is not convex, and where it leads depends on the way there:

- λ comes down step by step. In each step a few components are added, the leading singular vectors of the residuals,
  clipped; those that the data do not bear out shrink to nothing in the passes that follow.
- c is 2.385 times a scale between those of entries that are fitted and of entries kept aside (1.4826 times the median
  of |e|): by the first alone a fit that is too close would call good entries outliers, by the second outliers would
  count for too much.
- λ is the one with the smallest mean absolute error of the entries kept aside. They may be outliers, but the errors of
  two fits differ by no more than the fits do. If none is better than L = 0 by more than chance, L is zero.

The path runs over the block that the other attempts run over, and is judged by the same entries kept aside. If it is
taken, the last passes run over all entries, with its λ and its c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ..linalg.arrays import beside, host, times
from ..linalg.grassmann import basis, relative_change
from ..linalg.scale import robust_scale
from ..robust.regression import EFFICIENT, SMALLEST
from ..sweeps import Float, Robust, open_sweep
from .base import Problem, nothing
from .start import left_singular_vectors
from .views import Views

__all__ = ["FEWEST", "Path", "PathState", "predicts_better"]

FIRST = 0.6  # the threshold of the first step, as a share of the largest singular value;
STEP = 0.7  # from one to the next,
LEAP = 0.4  # if the last left the rank as it was and the errors fell by more than `FALLING`: it is bias that is left
FALLING = 0.7
PASSES = 3  # in each step
NEW = 3  # components in each step, and one more for each four that are there
BETWEEN = 1 / 3  # the power of the scale of what is fitted in c; that of what is kept aside has the rest
ENTRY = 1.5  # thresholds: the size they have at most, to begin with
LARGEST_RANK = 50
PATIENCE = 2  # steps without a better prediction, at the end of the path;
HOPELESS = 1.005  # an error so many times the best ends it at once
TOLERANT = 3.0  # c / the largest that shrinkage takes off
NEGLIGIBLE = 0.1  # of the threshold: a component that small is on its way out, and dropped
LAST = 5  # passes over all entries, at most;
FEWEST = 15  # entries kept aside by which a path can be chosen
CHANCE = (-3.0, 2.0)  # standard errors by which a path must predict better than a climb; the second if that may stand
TYPICAL = 1.1  # the median error of a path against that of a climb, at most
SETTLED = 0.1  # of the error that the noise makes: they end when they change less


@dataclass(kw_only=True)
class PathState:
    """L = U diag(sizes) Vᵀ on `data` (see `Views`), where the path stands, and the best point of it."""

    data: str = ""  # "some", then "whole" if it is taken; "" before the path
    running: bool = False  # it is what the next pass is of
    finished: str = ""  # why the passes over all entries have ended
    U: Float = field(default_factory=nothing)  # orthonormal, a row for each row of the data
    sizes: Float = field(default_factory=lambda: np.zeros(0))  # descending
    V: Float = field(default_factory=nothing)  # orthonormal, a row for each column
    unit: float = 1.0  # of sizes and threshold: the largest singular value at the start
    threshold: float = FIRST
    c: float = 0.0
    since: int = 0  # passes in this step
    steps: int = 0
    change: float = math.inf  # of L by the last pass, relatively
    rank_before: int = 0  # at the end of the last step,
    c_before: float = 0.0  # and c
    waited: int = 0  # steps since the best one
    noise: float = 0.0  # the scale of the residuals of what is kept aside
    closeness: float = 1.0  # 2.385 times the scale of the residuals that are fitted / c
    # the best step
    best_error: float = math.inf  # of what is kept aside
    best_threshold: float = FIRST
    best_c: float = 0.0
    best_noise: float = 0.0
    best_U: Float = field(default_factory=nothing)
    best_sizes: Float = field(default_factory=lambda: np.zeros(0))
    best_V: Float = field(default_factory=nothing)

    @property
    def left(self) -> Float:
        """U diag(sizes)."""
        found: Float = self.U * beside(self.sizes, self.U)
        return found


class Path:
    """What moves a `PathState` on: passes, steps, and the way from the block to all entries."""

    def __init__(self, problem: Problem, views: Views, *, p: float = 2 / 3) -> None:
        self.problem, self.views, self.p = problem, views, p

    def begin(self) -> PathState:
        """L = 0, and the components of the first step."""
        M = self.views.columns("some").M
        U, V = (beside(np.zeros((lines, 0)), M.values) for lines in M.shape)
        state = PathState(data="some", running=True, U=U, V=V)
        self._look(state)
        self._grow(state)
        return state

    def advance(self, state: PathState) -> dict[str, float]:
        """One pass, and what follows from it; the row of the trace."""
        data = state.data
        self.run_pass(state)
        error = self._look(state)
        if data == "whole":
            self._drop(state)
            state.finished = self._ended(state)
        elif state.since >= PASSES or (state.since > 1 and error > HOPELESS * state.best_error):
            self._drop(state)
            self._end_step(state, error)
        return {
            "objective": state.noise,
            "gamma": state.c,
            "dS": math.nan,
            "dU": math.nan,
            "change": state.change,
            "rank": state.sizes.size,
            "entries": self.views.columns(data).M.nnz,
        }

    def _end_step(self, state: PathState, error: float) -> None:
        """Keep what is best so far; then a smaller threshold, or the end of the path."""
        if error < (1 - 1e-4) * state.best_error:
            state.best_error, state.best_threshold, state.waited = error, state.threshold, 0
            state.best_c, state.best_noise = state.c, state.noise
            state.best_U, state.best_sizes, state.best_V = state.U, state.sizes, state.V
        else:
            state.waited += 1
        worse = state.waited >= PATIENCE or not error <= HOPELESS * state.best_error
        if worse or state.threshold <= SMALLEST or state.c <= SMALLEST * self.problem.unit:
            self._go_back(state)
            return
        k = state.sizes.size
        biased = k == state.rank_before and state.c < FALLING * state.c_before
        state.threshold = max(state.threshold * (LEAP if biased else STEP), SMALLEST)
        state.rank_before, state.c_before, state.steps, state.since = k, state.c, state.steps + 1, 0
        self._grow(state)

    def _ended(self, state: PathState) -> str:
        """Why the passes over all entries end, if they do."""
        m, n = self.problem.M.shape
        k, noise = state.sizes.size, state.noise
        if not k:
            return "nothing predicts entries kept aside better than zero does: L = 0"
        settled = SETTLED * noise / self.problem.scale * math.sqrt(k * (m + n) / self.problem.M.nnz)
        if state.since >= LAST or state.change <= settled:
            return f"L changes by {state.change:.1e} relatively; the noise of the inliers is {noise:.2g}"
        return ""

    def held_residual(self, state: PathState) -> Float:
        """L - x where entries were kept aside."""
        return self.views.sketch.held_residual(state.left, state.V)

    # -- what a step is made of

    def run_pass(self, state: PathState) -> None:
        """Regress the columns, then the rows."""
        state.since += 1
        if not state.sizes.size:
            state.change = 0.0
            return
        before = state.left, state.V
        how = Robust(c=state.c, ridge=self.ridge(state))
        self._regress_columns(state, how)
        self._regress_rows(state, how)
        state.change = relative_change(*before, state.left, state.V)

    def _regress_columns(self, state: PathState, how: Robust) -> None:
        tau = beside(self._tau(state), state.U)
        start = state.V * (beside(state.sizes, state.V) / tau)
        C = self.views.columns(state.data).sweep.regress(state.U * tau, start, how).V
        state.U, state.sizes, state.V = turned(state.U, C * tau)

    def _regress_rows(self, state: PathState, how: Robust) -> None:
        tau = beside(self._tau(state), state.V)
        D = self.views.rows(state.data).sweep.regress(state.V * tau, state.left / tau, how).V
        state.V, state.sizes, state.U = turned(state.V, D * tau)

    def _look(self, state: PathState) -> float:
        """Set c, and the noise by entries kept aside while they are; the mean absolute error of these."""
        scale = robust_scale(self.views.sample(state.data).residual(state.left, state.V)) / state.closeness
        error = math.nan
        if state.data == "some":
            held = self.held_residual(state)
            error, state.noise = float(np.mean(np.abs(held))), robust_scale(held)
            scale = min(scale, state.noise) ** BETWEEN * state.noise ** (1 - BETWEEN)
        state.c = max(EFFICIENT * scale, TOLERANT * self._taken_off(state), SMALLEST * self.problem.unit)
        return error

    def _taken_off(self, state: PathState) -> float:
        """The root mean square of what shrinkage takes off the entries of a line, for the line where that is largest.

        Of a size d it takes λ σ^(p-1), but not more than half.
        """
        if not state.sizes.size:
            return 0.0
        share = np.minimum(self.ridge(state) / self._density(state) / self._tau(state) ** 2, 1.0) * state.sizes
        by_row, by_column = (float(np.linalg.norm(A * beside(share, A), axis=1).max()) for A in (state.U, state.V))
        return max(by_row / math.sqrt(len(state.V)), by_column / math.sqrt(len(state.U)))

    def _density(self, state: PathState) -> float:
        M = self.views.columns(state.data).M
        return M.nnz / (M.shape[0] * M.shape[1])

    def ridge(self, state: PathState) -> float:
        """λ, in units: a component goes if without it its size d were less than the threshold.

        Its size is σ = d / (1 + λ σ^(p-2)) if every entry is observed. That has a solution if λ is at most
        (1-p)^(1-p) / (2-p)^(2-p) d^(2-p). Of normal equations over a share of the entries, λ is that share.
        """
        q = 1 - self.p
        return float(self._density(state) * q**q / (1 + q) ** (1 + q) * state.threshold ** (1 + q))

    def _tau(self, state: PathState) -> Float:
        """σ^(1-p/2), in units, and not so small that it is lost."""
        return np.asarray(np.maximum(state.sizes / state.unit, 1e-9) ** (1 - self.p / 2), dtype=np.float64)

    def _grow(self, state: PathState) -> None:
        """Add the leading singular vectors of the residuals, clipped at their scale."""
        columns = self.views.columns("some")
        M, sweep, k = columns.M, columns.sweep, state.sizes.size
        allowed = min(self.problem.rank, LARGEST_RANK, max(1, M.nnz // sum(M.shape)))
        more = min(NEW + k // 4, allowed - k)
        if more < 1:
            return
        clip = state.c / EFFICIENT
        values = -sweep.residual(state.left, state.V) if k else M.values
        left_over = np.clip(values, -clip, clip).astype(M.dtype)
        rng = np.random.default_rng([self.problem.seed, 2, state.steps])
        clipped = open_sweep(M.with_values(left_over), sweep.name)
        U, sizes = left_singular_vectors(clipped, M.shape[0], more, rng, max_passes=4)
        more = int(np.count_nonzero(sizes > 0))  # they descend
        if not more:
            return
        U, sizes = U[:, :more], sizes[:more]
        if not state.steps:
            state.unit = float(sizes[0]) / self._density(state)
        # as if the entries had their share of the energy; few entries may say too much
        shares = np.minimum(1 / self._density(state), ENTRY * state.threshold * state.unit / sizes)
        W = sweep.product_transposed(left_over, U)
        W = np.hstack([state.V * beside(state.sizes, state.V), W * beside(shares, W)])
        Q, R = basis(np.hstack([state.U, beside(U, state.U)]))
        state.U, state.sizes, state.V = turned(Q, times(W, R.T))

    def _drop(self, state: PathState) -> None:
        """Leave out the components that have gone."""
        kept = int(np.count_nonzero(state.sizes > NEGLIGIBLE * state.threshold * state.unit))  # they descend
        state.U, state.sizes, state.V = state.U[:, :kept], state.sizes[:kept], state.V[:, :kept]

    def _go_back(self, state: PathState) -> None:
        """To the best step, or to zero."""
        state.U, state.sizes, state.V = state.best_U, state.best_sizes, state.best_V
        state.threshold, state.c, state.noise = state.best_threshold, state.best_c, state.best_noise
        gain = np.abs(self.views.sketch.held_values) - np.abs(self.held_residual(state))
        if not float(np.mean(gain)) > float(np.std(gain)) / math.sqrt(gain.size):
            state.U, state.sizes, state.V = state.U[:, :0], state.sizes[:0], state.V[:, :0]
            self._look(state)
        fitted = robust_scale(self.views.sample("some").residual(state.left, state.V))
        state.closeness = min(EFFICIENT * fitted / state.c, 1.0) or 1.0
        state.running = False

    # -- the whole matrix

    def extend(self, state: PathState) -> None:
        """From the rows and columns of the block to all of them."""
        problem, sketch = self.problem, self.views.sketch
        m, n = problem.M.shape
        how = Robust(c=state.c, first_c=max(6 * problem.unit, state.c), turns=5, ridge=self.ridge(state))
        state.data, state.running, state.since = "whole", True, 0
        if not state.sizes.size:
            state.U, state.V = (beside(np.zeros((lines, 0)), problem.M.values) for lines in (m, n))
            return
        if len(sketch.rows) < m:
            tau = beside(self._tau(state), state.V)
            D = self.views.strip().sweep.regress(state.V * tau, None, how).V
            state.V, state.sizes, state.U = turned(beside(state.V, D), D * beside(tau, D))
            state.unit *= math.sqrt(m / len(sketch.rows))
        if len(sketch.columns) < n:
            tau = beside(self._tau(state), state.U)
            C = problem.sweep.regress(state.U * tau, None, how).V
            state.U, state.sizes, state.V = turned(beside(state.U, C), C * beside(tau, C))
            state.unit *= math.sqrt(n / len(sketch.columns))
        state.U, state.V = (beside(A, problem.M.values) for A in (state.U, state.V))


def predicts_better(path: Float, climb: Float, stands: bool) -> bool:
    """Whether these residuals of entries kept aside speak for a path rather than for a climb.

    What may stand stands unless the path is better by more than chance, and relatively too: where many entries are
    predicted closely L has a rank. Else the path is taken unless it is far worse. The mean error alone would have
    errors with structure predicted, at the cost of all other entries: the median must be about as small too.

    >>> e = np.random.default_rng(3).standard_normal(1000)
    >>> predicts_better(0.9 * e, e, True), predicts_better(1.05 * e, e, True), predicts_better(1.2 * e, e, False)
    (True, False, False)
    """
    own, other = np.abs(path), np.abs(climb)
    chance = float(np.std(other - own)) / math.sqrt(own.size)
    better = float(np.mean(other - own)) >= CHANCE[stands] * chance
    if stands:
        close = 1e-6 * float(np.median(other)) + np.finfo(float).tiny
        better = better and float(np.mean(np.log((own + close) / (other + close)))) <= 0
    return better and float(np.median(own)) <= TYPICAL * float(np.median(other))


def turned(U: Float, W: Float) -> tuple[Float, Float, Float]:
    """The singular value decomposition of U Wᵀ, for orthonormal U: left, sizes, right.

    >>> left, sizes, right = turned(np.eye(2), np.array([[0.0, 3.0], [2.0, 0.0]]))
    >>> sizes.tolist(), ((left * sizes) @ right.T).round(12).tolist()
    ([3.0, 2.0], [[0.0, 2.0], [3.0, 0.0]])
    """
    Q, R = basis(W)
    P, sizes, Nt = np.linalg.svd(host(R))
    return times(U, Nt.T), sizes, times(Q, P)
