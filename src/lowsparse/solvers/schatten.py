"""Schatten: completion of tables that have noise and outliers and no exact rank. The library's own method.

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

The path runs over a block of rows and columns, if there are many. The last passes run over all entries, with that λ and
that c. Where there are too few entries to keep some aside, λ is small and fixed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from ..geometry import basis, relative_change
from ..lines import EFFICIENT, EXPLAINED
from ..losses import Kind, Loss
from ..lowrank import LowRank
from ..observed import ObservedMatrix
from ..scale import OUTLIER, outlying, robust_scale
from ..sketch import Sample, Sketch, draw
from ..start import left_singular_vectors
from ..sweeps import Float, Robust, Sweep, open_sweep
from .base import Outcome, Problem, Solver, State, nothing, require
from .factors import trace_row

__all__ = ["Schatten", "SchattenState"]

FIRST = 0.6  # the threshold of the first step, as a share of the largest singular value;
STEP = 0.7  # from one to the next,
LEAP = 0.4  # if the last left the rank as it was and the errors fell by more than `FALLING`: it is bias that is left
FALLING = 0.7
PASSES = 3  # in each step
NEW = 3  # components in each step, and one more for each four that are there
BETWEEN = 1 / 3  # the power of the scale of what is fitted in c; that of what is kept aside has the rest
ENTRY = 1.5  # thresholds: the size they have at most, to begin with
LARGEST_RANK = 50
SKETCH = 50  # the block would determine a matrix of this rank
PATIENCE = 2  # steps without a better prediction, at the end of the path;
HOPELESS = 1.005  # an error so many times the best ends it at once
UNTESTED = 0.1  # the threshold if nothing is kept aside
AT_LEAST = 150  # entries from which on something is
TOLERANT = 3.0  # c / the largest that shrinkage takes off
SMALLEST = 1e-8  # c in units of the data, and the threshold
NEGLIGIBLE = 0.1  # of the threshold: a component that small is on its way out, and dropped
LAST = 5  # passes over all entries, at most;
SETTLED = 0.1  # of the error that the noise makes: they end when they change less


class Bench:
    """The data as passes see them: "part", a block without what is kept aside, or "whole"."""

    def __init__(self, problem: Problem, tested: bool) -> None:
        self.problem = problem
        rng = np.random.default_rng([problem.seed, 1])
        at_least = AT_LEAST if tested else problem.M.nnz + 1
        self.sketch: Sketch = draw(problem.M, SKETCH, rng, at_least=at_least)
        self.opened: dict[str, tuple[ObservedMatrix, Sweep, Sweep]] = {}
        self.samples: dict[str, Sample] = {}

    def data(self, name: str) -> tuple[ObservedMatrix, Sweep, Sweep]:
        """M, and sweeps over its columns and its rows."""
        if name not in self.opened:
            M, backend = self.problem.M, self.problem.sweep.name
            if name == "part" and self.sketch.M.nnz < M.nnz:
                M = self.sketch.M
            columns = self.problem.sweep if M is self.problem.M else open_sweep(M, backend)
            self.opened[name] = M, columns, open_sweep(M.T, backend)
        return self.opened[name]

    def sample(self, name: str) -> Sample:
        """Some of the entries, or all: enough to follow the objective."""
        if name not in self.samples:
            self.samples[name] = Sample(self.data(name)[0], self.problem.sweep.name)
        return self.samples[name]

    @property
    def tested(self) -> bool:
        """Whether entries are kept aside."""
        return self.sketch.held_values.size > 0


@dataclass(kw_only=True)
class SchattenState(State):
    """L = U diag(sizes) Vᵀ on `data` (see `Bench`), where the path stands, and the best point of it."""

    scratch: ClassVar[tuple[str, ...]] = ("bench",)

    bench: Bench
    data: str = "part"
    U: Float = field(default_factory=nothing)  # orthonormal, a row for each row of the data
    sizes: Float = field(default_factory=lambda: np.zeros(0))  # descending
    V: Float = field(default_factory=nothing)  # orthonormal, a row for each column
    unit: float = 1.0  # of sizes and threshold: the largest singular value at the start
    threshold: float = FIRST
    c: float = 0.0
    since: int = 0  # passes in this step
    steps: int = 0
    rank_before: int = 0  # at the end of the last step,
    c_before: float = 0.0  # and c
    waited: int = 0  # steps since the best one
    noise: float = 0.0  # the scale of the residuals of what is kept aside, if something is
    closeness: float = 1.0  # 2.385 times the scale of the residuals that are fitted / c
    objective: float = np.inf
    # the best step
    best_error: float = np.inf  # of what is kept aside
    best_threshold: float = FIRST
    best_c: float = 0.0
    best_noise: float = 0.0
    best_U: Float = field(default_factory=nothing)
    best_sizes: Float = field(default_factory=lambda: np.zeros(0))
    best_V: Float = field(default_factory=nothing)


@dataclass(kw_only=True)
class Schatten(Solver):
    """Robust completion by few components, mildly shrunk: for tables that are of low rank more or less.

    It finds the rank; one that is given bounds it. While the default method fits a given rank, this one takes as many
    components as predict entries kept aside best.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(80, 60, rank=8, density=0.5, outliers=0.05, noise=2.0, random_state=3)
    >>> r = ls.solve(problem.M, None, method=Schatten())
    >>> r.converged, r.L.error(problem.L, relative=True) < 0.65
    (True, True)
    """

    name: ClassVar[str] = "schatten"
    finds_rank: ClassVar[bool] = True
    takes_start: ClassVar[bool] = False

    p: float = 2 / 3  # the exponent; 1: the nuclear norm
    threshold: float | None = None  # components below this share of the largest go; None: by entries kept aside

    def check(self, problem: Problem) -> None:
        """Check the parameters."""
        require(0 < self.p <= 1, "p", self.p, "larger than 0 and at most 1")
        share = self.threshold
        require(share is None or 0 < share < 1, "threshold", share, "larger than 0 and less than 1, or None")

    def init(self, problem: Problem) -> SchattenState:
        """L = 0, and the components of the first step."""
        bench = Bench(problem, tested=self.threshold is None)
        rows, columns = bench.data("part")[0].shape
        state = SchattenState(bench=bench, U=np.zeros((rows, 0)), V=np.zeros((columns, 0)))
        state.threshold = max(FIRST, self.threshold or 0.0)
        self._look(problem, state, self._seen(state), self._held(state))
        self._grow(problem, state)
        return state

    # -- what a step is made of

    def _residual(self, state: SchattenState) -> Float:
        M, columns, _ = state.bench.data(state.data)
        if not state.sizes.size:
            return -M.values.astype(np.float64)
        return columns.residual(state.U * state.sizes, state.V)

    def _seen(self, state: SchattenState) -> Float:
        return state.bench.sample(state.data).residual(state.U * state.sizes, state.V)

    def _held(self, state: SchattenState) -> Float | None:
        """The residuals of what is kept aside, while it is."""
        if state.data == "whole" or not state.bench.tested:
            return None
        return state.bench.sketch.held_residual(state.U * state.sizes, state.V)

    def _look(self, problem: Problem, state: SchattenState, seen: Float, held: Float | None) -> None:
        """Set c and the noise by residuals: of entries that are fitted, and of those kept aside while they are."""
        scale = robust_scale(seen) / state.closeness
        if held is None:
            state.noise = state.noise or scale
        else:
            state.noise = robust_scale(held)
            scale = min(scale, state.noise) ** BETWEEN * state.noise ** (1 - BETWEEN)
        state.c = max(EFFICIENT * scale, TOLERANT * self._taken_off(state), SMALLEST * problem.unit)

    def _taken_off(self, state: SchattenState) -> float:
        """The root mean square of what shrinkage takes off the entries of a line, for the line where that is largest.

        Of a size d it takes λ σ^(p-1), but not more than half.
        """
        if not state.sizes.size:
            return 0.0
        M, _, _ = state.bench.data(state.data)
        share = np.minimum(self._ridge(state) / M.density / self._tau(state) ** 2, 1.0)
        by_row, by_column = (np.linalg.norm(A * (share * state.sizes), axis=1).max() for A in (state.U, state.V))
        return float(max(by_row / math.sqrt(len(state.V)), by_column / math.sqrt(len(state.U))))

    def _ridge(self, state: SchattenState) -> float:
        """λ, in units: a component goes if without it its size d were less than the threshold.

        Its size is σ = d / (1 + λ σ^(p-2)) if every entry is observed. That has a solution if λ is at most
        (1-p)^(1-p) / (2-p)^(2-p) d^(2-p). Of normal equations over a share of the entries, λ is that share.
        """
        q = 1 - self.p
        M, _, _ = state.bench.data(state.data)
        return float(M.density * q**q / (1 + q) ** (1 + q) * state.threshold ** (1 + q))

    def _tau(self, state: SchattenState) -> Float:
        """σ^(1-p/2), in units, and not so small that it is lost."""
        return np.maximum(state.sizes / state.unit, 1e-9) ** (1 - self.p / 2)

    def _grow(self, problem: Problem, state: SchattenState) -> None:
        """Add the leading singular vectors of the residuals, clipped at their scale."""
        M, columns, _ = state.bench.data(state.data)
        k = state.sizes.size
        allowed = min(problem.rank, LARGEST_RANK, max(1, M.nnz // sum(M.shape)))
        more = min(NEW + k // 4, allowed - k)
        if more < 1:
            return
        clip = state.c / EFFICIENT
        left_over = np.clip(-self._residual(state), -clip, clip)
        sweep = open_sweep(M.with_values(left_over.astype(M.dtype)), columns.name)
        rng = np.random.default_rng([problem.seed, 2, state.steps])
        U, sizes = left_singular_vectors(sweep, M.shape[0], more, rng, max_passes=4)
        U, sizes = U[:, sizes > 0], sizes[sizes > 0]
        if not sizes.size:
            return
        if not state.steps:
            state.unit = float(sizes[0]) / M.density
        # as if the entries had their share of the energy; few entries may say too much
        shares = np.minimum(1 / M.density, ENTRY * state.threshold * state.unit / sizes)
        W = np.hstack([state.V * state.sizes, columns.product_transposed(left_over, U) * shares])
        Q, R = basis(np.hstack([state.U, U]))
        state.U, state.sizes, state.V = _turned(Q, W @ R.T)

    def _pass(self, state: SchattenState) -> None:
        """The columns, then the rows."""
        _, columns, rows = state.bench.data(state.data)
        how = Robust(c=state.c, ridge=self._ridge(state))
        tau = self._tau(state)
        C = columns.regress(state.U * tau, state.V * (state.sizes / tau), how).V
        state.U, state.sizes, state.V = _turned(state.U, C * tau)
        tau = self._tau(state)
        D = rows.regress(state.V * tau, state.U * (state.sizes / tau), how).V
        state.V, state.sizes, state.U = _turned(state.V, D * tau)

    def _lam(self, state: SchattenState) -> float:
        """λ itself."""
        return float(self._ridge(state) * state.unit ** (2 - self.p))

    def _value(self, state: SchattenState, e: Float) -> float:
        """The objective, by the residuals of some entries or of all."""
        M, _, _ = state.bench.data(state.data)
        loss = float(np.mean(Loss(Kind.CAUCHY, state.c).value(e)))
        return M.nnz * loss + self._lam(state) / self.p * float(np.sum(state.sizes**self.p))

    # -- the path

    def advance(self, problem: Problem, state: SchattenState) -> SchattenState:
        """One pass, and what follows from it."""
        state = replace(state)  # an interruption leaves the one before as it was
        U, V = state.U * state.sizes, state.V
        if state.sizes.size:
            self._pass(state)
        change = relative_change(U, V, state.U * state.sizes, state.V) if state.sizes.size else 0.0
        seen, held = self._seen(state), self._held(state)
        state.objective = self._value(state, seen)
        self._look(problem, state, seen, held)
        state.iteration += 1
        state.since += 1
        error = math.nan if held is None else float(np.mean(np.abs(held)))
        own = {"lam": self._lam(state), "threshold": state.threshold, "rank": state.sizes.size, "held": error}
        state.row = trace_row(state.objective, change, gamma=state.c, **own)
        if not math.isfinite(state.objective):
            state.failure = "diverged"
        elif state.data == "whole":
            self._drop(state)
            self._watch(problem, state, change)
        elif state.since >= PASSES or (state.since > 1 and error > HOPELESS * state.best_error):
            self._drop(state)
            self._end_step(problem, state, error)
        return state

    def _drop(self, state: SchattenState) -> None:
        """Leave out the components that have gone."""
        kept = state.sizes > NEGLIGIBLE * state.threshold * state.unit
        state.U, state.sizes, state.V = state.U[:, kept], state.sizes[kept], state.V[:, kept]

    def _end_step(self, problem: Problem, state: SchattenState, error: float) -> None:
        """Keep what is best so far; then a smaller threshold, or the end of the path."""
        tested = state.bench.tested
        if not tested or error < (1 - 1e-4) * state.best_error:
            state.best_error, state.best_threshold, state.waited = error, state.threshold, 0
            state.best_c, state.best_noise = state.c, state.noise
            state.best_U, state.best_sizes, state.best_V = state.U, state.sizes, state.V
        else:
            state.waited += 1
        last = SMALLEST if tested else self.threshold or UNTESTED
        worse = state.waited >= PATIENCE or error > HOPELESS * state.best_error
        if worse or state.threshold <= last or state.c <= SMALLEST * problem.unit:
            self._to_whole(problem, state)
            return
        k = state.sizes.size
        biased = k == state.rank_before and state.c < FALLING * state.c_before
        state.threshold = max(state.threshold * (LEAP if biased else STEP), last)
        state.rank_before, state.c_before, state.steps, state.since = k, state.c, state.steps + 1, 0
        self._grow(problem, state)

    def _to_whole(self, problem: Problem, state: SchattenState) -> None:
        """The best step, or zero, on all entries."""
        state.U, state.sizes, state.V = state.best_U, state.best_sizes, state.best_V
        state.threshold, state.c, state.noise = state.best_threshold, state.best_c, state.best_noise
        held = self._held(state)
        if held is not None:
            gain = np.abs(state.bench.sketch.held_values) - np.abs(held)
            if float(np.mean(gain)) <= float(np.std(gain)) / math.sqrt(gain.size):
                state.U, state.sizes, state.V = state.U[:, :0], state.sizes[:0], state.V[:, :0]
                self._look(problem, state, self._seen(state), self._held(state))
            state.closeness = min(EFFICIENT * robust_scale(self._seen(state)) / state.c, 1.0) or 1.0
        self._extend(problem, state)
        state.data, state.since = "whole", 0

    def _extend(self, problem: Problem, state: SchattenState) -> None:
        """From the rows and columns of the block to all of them."""
        m, n = problem.M.shape
        sketch = state.bench.sketch
        if not state.sizes.size:
            state.U, state.V = np.zeros((m, 0)), np.zeros((n, 0))
            return
        how = Robust(c=state.c, first_c=max(6 * problem.unit, state.c), turns=5, ridge=self._ridge(state))
        if len(sketch.rows) < m:
            strip, tau = open_sweep(sketch.strip.T, problem.sweep.name), self._tau(state)
            D = strip.regress(state.V * tau, None, how).V
            state.V, state.sizes, state.U = _turned(state.V, D * tau)
            state.unit *= math.sqrt(m / len(sketch.rows))
        if len(sketch.columns) < n:
            tau = self._tau(state)
            C = problem.sweep.regress(state.U * tau, None, how).V
            state.U, state.sizes, state.V = _turned(state.U, C * tau)
            state.unit *= math.sqrt(n / len(sketch.columns))

    def _watch(self, problem: Problem, state: SchattenState, change: float) -> None:
        """Whether the passes over all entries can end."""
        state.accuracy = change
        m, n = problem.M.shape
        k, noise = state.sizes.size, state.noise
        if not k:
            state.finished = "nothing predicts entries kept aside better than zero does: L = 0"
        elif state.since >= LAST or change <= SETTLED * noise / problem.scale * math.sqrt(k * (m + n) / problem.M.nnz):
            state.finished = f"L changes by {change:.1e} relatively; the noise of the inliers is {noise:.2g}"
            if not state.bench.tested and self.threshold is None:
                state.finished += "; there are too few entries to choose the shrinkage by"

    # -- what comes out

    def lowrank(self, problem: Problem, state: SchattenState) -> LowRank:
        """L, on all rows and columns."""
        m, n = problem.M.shape
        if state.data == "part":
            state = replace(state)
            self._extend(problem, state)
        if not state.sizes.size:
            return LowRank(np.eye(m, 1), np.zeros((1, n)))
        return LowRank(state.U, state.sizes[:, None] * state.V.T)

    def finish(self, problem: Problem, state: SchattenState) -> Outcome:
        """L, and S = M - L where that is more than four times the noise."""
        L = self.lowrank(problem, state)
        e = problem.sweep.residual(L.U, np.ascontiguousarray(L.V.T))
        flagged = outlying(e, max(OUTLIER * state.noise, EXPLAINED * problem.unit, problem.rounding))
        return Outcome(
            L=L,
            flagged=flagged,
            S=-e[flagged].astype(problem.M.dtype, copy=False),
            objective=self._value(state, e) if state.data == "whole" else state.objective,
            noise=state.noise,
            held_out=state.noise if state.bench.tested else None,
        )


def _turned(U: Float, W: Float) -> tuple[Float, Float, Float]:
    """The singular value decomposition of U Wᵀ, for orthonormal U: left, sizes, right."""
    Q, R = basis(W)
    P, sizes, Nt = np.linalg.svd(R)
    return U @ Nt.T, sizes, Q @ P
