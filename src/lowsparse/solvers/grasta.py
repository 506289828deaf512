"""GRASTA: Grassmannian robust adaptive subspace tracking, one column after the other.

    min over U in Gr(m, r), V   ‖P_Ω(UVᵀ - M)‖₁

He, Balzano and Szlam (2012). For completion, as in the authors' RobustMC demonstration, one iteration is a pass over
the columns in random order. Each is regressed on U in the ℓ1 sense by ADMM, and U moves along a geodesic whose length
follows the agreement of successive gradients (`tracking` has the formulas). Columns with fewer than r entries
are left out. In the end all columns are regressed on the last U, more carefully.

What differs. Steps become short whether or not U is where it should be: single rows, and components much smaller than
the largest, may still be on their way. So now and then the rows of M are regressed on V, in the ℓ1 sense too. At a
solution that gains nothing, and the method has converged when it gains next to nothing, against `tol` or against the
noise. If it still gains more on the highest level, the steps become longer again, longer than what is missing, and
μ_max is doubled.

With the demonstration's μ_max = 15, 20 levels and 20 ADMM iterations the error is 1e-6, at times 1e-3; with the numbers
here 1e-8. The data vectors are those of the longer side: rows, if there are more rows than columns. Tolerances are
relative, and U⁰ is the spectral start.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..entries.observed import ObservedMatrix
from ..linalg.grassmann import basis
from ..linalg.scale import robust_scale
from ..sweeps import Float, Robust, Sweep, min_support
from ..sweeps.losses import Kind
from .base import Outcome, Problem
from .factors import FactorSolver, FactorState, spectral_factors
from .parameters import parameter, require
from .tracking import Rules, Steps, SubspaceTracker

EVERY = 3  # levels between two tests of what a regression of the rows would gain
NOISE = 1e-3  # of the noise: the largest gain at the end
EXACT = 100.0  # of the unit, times 2^-levels: the same without noise, once the steps have died out,
LARGEST = 0.01  # but never more than this
BACK = 5  # levels: steps become 2^BACK times as long as the distance that is left
QUICK = (1.2, 200)  # ρ and iterations of the ADMM that regresses all data vectors,
CAREFUL = (1.05, 800)  # and in the end
WILD = 10.0  # times the usual size: such coefficients of columns with few entries are not believed


class Tracked(NamedTuple):
    """The data as they are tracked: M or its transpose, and sweeps over its columns and over its rows."""

    M: ObservedMatrix
    columns: Sweep
    rows: Sweep


class Gain(NamedTuple):
    """What an ℓ1 regression of the rows would gain."""

    size: float  # decrease of |e|, in units of the data: mean over each row, root mean square of these over the rows
    noise: float  # the robust scale of e, in the same units
    sine: float  # of the angle between the subspaces


@dataclass(kw_only=True)
class GRASTAState(FactorState):
    """The factors, one of them the subspace that is tracked."""

    scratch = ("data",)

    data: Tracked
    steps: Steps | None = None  # None before the first
    mu_max: float
    tested: int = 0  # the level at the last test of the rows
    gain: float = math.nan  # that was found there
    reheated: int = 0


@dataclass(kw_only=True)
class GRASTA(Rules, FactorSolver[GRASTAState]):
    """Grassmannian robust adaptive subspace tracking (He, Balzano, Szlam 2012), for completion.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 80, rank=2, density=0.7, outliers=0.1, random_state=1)
    >>> r = ls.solve(problem.M, rank=2, method=GRASTA())
    >>> r.converged and r.L.error(problem.L, relative=True) < 1e-6
    True
    """

    name = "grasta"
    papers = (
        "J. He, L. Balzano, A. Szlam: Incremental gradient on the Grassmannian for online foreground and "
        "background separation in subsampled video. CVPR 2012",
    )

    reheats: int = parameter(4, "how often steps may become longer again", at_least=0)
    transpose: bool | None = parameter(None, "track the rows; None: if there are more rows than columns", kind=bool)

    def check(self, problem: Problem) -> None:
        """Raise unless the upper limits fit the lower ones."""
        require(self.max_inner >= self.min_inner, "max_inner", self.max_inner, f"min_inner = {self.min_inner} or more")
        require(self.mu_max >= self.mu_min + 2, "mu_max", self.mu_max, "mu_min + 2 or more")

    def _tracks_rows(self, problem: Problem) -> bool:
        """Whether the data vectors are the rows."""
        m, n = problem.M.shape
        return m > n if self.transpose is None else self.transpose

    def _tracker(self, problem: Problem, state: GRASTAState) -> SubspaceTracker:
        subspace = state.V if self._tracks_rows(problem) else state.U
        rules = replace(self, mu_max=state.mu_max)
        return SubspaceTracker(subspace, rules, steps=state.steps, compiled=problem.sweep.name == "native")

    def _after(self, problem: Problem, state: GRASTAState, tracker: SubspaceTracker, C: Float) -> GRASTAState:
        """The state with the tracker's subspace and memory, and the coefficients C of the data vectors."""
        U, V = (C, tracker.U) if self._tracks_rows(problem) else (tracker.U, C)
        objective = float(np.sum(np.abs(problem.sweep.residual(U, V))))
        return replace(state, U=U, V=V, objective=objective, steps=tracker.steps)

    def init(self, problem: Problem) -> GRASTAState:
        """The start. A given one may be good: the first steps are then only as long as needed."""
        M, sweep = problem.in_memory, problem.sweep
        if np.isfinite(problem.clip):  # of an outlier the fit sees the sign alone, but the ADMM its size
            M = M.with_values(np.clip(M.values, -problem.clip, problem.clip))
            sweep = M.open_sweep(sweep.host)
        other = M.T.open_sweep(sweep.host)
        data = Tracked(M.T, other, sweep) if self._tracks_rows(problem) else Tracked(M, sweep, other)
        if problem.start_given:
            U = problem.start()
            V = SubspaceTracker(U, self, compiled=sweep.name == "native").fit(M)
        else:
            U, V = spectral_factors(problem)
        state = GRASTAState(U=U, V=V, data=data, mu_max=self.mu_max)
        tracker = self._tracker(problem, state)
        C = _coefficients(data.M, tracker, *QUICK)
        if problem.start_given:
            tracker.steps.level = self._level(_possible_gain(problem, data, tracker.U, C))
        return self._after(problem, state, tracker, C)

    def advance(self, problem: Problem, state: GRASTAState) -> GRASTAState:
        """One pass over the data vectors, and now and then a test of what is left to gain."""
        data, tracker = state.data, self._tracker(problem, state)
        M, previous = data.M, tracker.U
        order = np.random.default_rng([problem.seed, state.iteration]).permutation(M.shape[1])
        C = np.empty((M.shape[1], problem.rank))
        C[order] = tracker.run(M, order)
        level = tracker.steps.level
        still = np.array_equal(previous, tracker.U)
        dU = float(np.linalg.norm(tracker.U - previous))
        gain, due = None, still or (state.tested < self.levels and level >= min(state.tested + EVERY, self.levels))
        if due:
            C = _coefficients(M, tracker, *QUICK)
            gain = _possible_gain(problem, data, tracker.U, C)
        after = self._after(problem, state, tracker, C)
        after.tested = level if due else min(state.tested, level)
        if gain is not None:
            after.gain = gain.size
        self.complete(state, after, dU=dU, level=level, mu=tracker.steps.mu, gain=after.gain)
        after.accuracy = math.inf
        if gain is not None and not after.failure:
            self._judge(problem, after, tracker.steps, gain, ended=still or level >= self.levels)
        return after

    def _judge(self, problem: Problem, state: GRASTAState, steps: Steps, gain: Gain, *, ended: bool) -> None:
        """Whether this is a solution; if not, and the steps have died out, make them longer again."""
        state.accuracy = gain.size
        gains = f"regressing the other side again would lower |e| by {gain.size:.2g} of the median |x|"
        if gain.size <= NOISE * gain.noise:
            state.finished = f"{gains}, and the noise is {gain.noise:.2g} of it"
        elif ended and gain.size <= min(math.ldexp(EXACT, -self.levels), LARGEST):
            state.finished = f"the steps have died out; {gains}"
        elif ended and state.reheated < self.reheats:
            state.reheated += 1
            state.mu_max *= 2
            steps.mu = (state.mu_max - 1) / 2
            steps.level = state.tested = self._level(gain)
        elif ended and problem.tol > 0:
            state.stall(
                f"the steps died out too soon: {gains}; give a larger mu_max or more reheats, or another method if L "
                "has components of very different sizes"
            )

    def _level(self, gain: Gain) -> int:
        """The level whose steps are longer than the distance that is left, but not by much."""
        return min(max(int(-math.log2(max(gain.sine, 1e-300))) - BACK, 0), self.levels)

    def finish(self, problem: Problem, state: GRASTAState) -> Outcome:
        """All data vectors regressed on the last subspace, carefully."""
        tracker = self._tracker(problem, state)
        C = _coefficients(state.data.M, tracker, *CAREFUL)
        return super().finish(problem, self._after(problem, state, tracker, C))


def _coefficients(M: ObservedMatrix, tracker: SubspaceTracker, rho: float, max_iter: int) -> Float:
    """Coefficients of all columns on the tracker's subspace; zero where few entries give wild ones."""
    C = tracker.fit(M, rho=rho, max_iter=max_iter)
    sizes, few = np.linalg.norm(C, axis=1), M.column_counts < min_support(C.shape[1])
    if few.any() and not few.all():
        C[few & (sizes > WILD * np.median(sizes[~few]))] = 0.0
    return C


def _possible_gain(problem: Problem, data: Tracked, U: Float, C: Float) -> Gain:
    """Regress the rows on C, in the ℓ1 sense and from U on, and compare."""
    M, unit = data.M, problem.unit
    e = data.columns.residual(U, C)
    noise = robust_scale(e)
    c = max(0.1 * noise, 1e-9 * unit)
    Q, R = basis(C)
    refitted = data.rows.regress(Q, U @ R.T, Robust(c=0.1 * c, first_c=c, kind=Kind.POWER, p=1.0, n_reweight=5)).V
    less = np.abs(e) - np.abs(data.columns.residual(refitted, Q))
    counts = np.maximum(M.row_counts, 1)
    mean = np.maximum(np.bincount(M.rows, less, minlength=M.shape[0]), 0.0) / counts
    gain = math.sqrt(float(np.sum(counts * mean**2)) / M.nnz)
    space, _ = basis(refitted)
    return Gain(gain / unit, noise / unit, float(np.linalg.norm(space - U @ (U.T @ space), 2)))
