"""GRASTA: Grassmannian robust adaptive subspace tracking, one column after the other.

    min over U in Gr(m, r), V   ‖P_Ω(UVᵀ - M)‖₁

J. He, L. Balzano, A. Szlam: Incremental gradient on the Grassmannian for online foreground and background separation in
subsampled video. CVPR 2012. For completion, as in the authors' RobustMC demonstration, one iteration is a pass over the
columns in random order. Each is regressed on U in the ℓ1 sense by ADMM, and U moves along a geodesic whose length
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

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from ..entries.observed import ObservedMatrix
from ..linalg.grassmann import basis
from ..linalg.lowrank import LowRank
from ..linalg.scale import robust_scale
from ..sweeps import Float, Robust, Sweep, enough, open_sweep
from ..sweeps.losses import Kind
from .base import Outcome, Problem, require, require_count
from .factors import FactorSolver, FactorState, by_residual, spectral_factors
from .tracking import Rules, Tracker

__all__ = ["GRASTA", "GRASTAState"]

EVERY = 3  # levels between two looks at what the rows would gain
NOISE = 1e-3  # of the noise: what the rows may gain in the end
EXACT = 100.0  # of the unit, times 2^-levels: the same where there is no noise, once the steps have died out,
LARGEST = 0.01  # but never more than this
BACK = 5  # levels: steps become 2^BACK times as long as what is missing
QUICK = (1.2, 200)  # ρ and iterations of the ADMM that regresses all data vectors,
CAREFUL = (1.05, 800)  # and in the end
WILD = 10.0  # times the usual size: such coefficients of columns with few entries are not believed
MEMORY = ("gamma", "w", "mu", "level", "scale")  # of a tracker, besides its subspace


class Lines(NamedTuple):
    """The data as it is tracked: M or its transpose, and sweeps over its columns and over its rows."""

    M: ObservedMatrix
    columns: Sweep
    rows: Sweep


class Look(NamedTuple):
    """What an ℓ1 regression of the rows would change."""

    gain: float  # of |e|, in units of the data: its mean in each row, the root mean square of that over the rows
    noise: float  # the robust scale of e, in the same units
    sine: float  # of the angle between the subspaces


@dataclass(kw_only=True)
class GRASTAState(FactorState):
    """The factors, one of them the subspace, and the memory of its steps (see `Tracker`)."""

    scratch: ClassVar[tuple[str, ...]] = ("lines",)

    lines: Lines
    gamma: Float
    w: Float
    mu: float
    level: int
    scale: float
    mu_max: float
    looked: int = 0  # the level at the last look at the rows
    gain: float = math.nan  # what they would have gained
    reheated: int = 0


@dataclass(kw_only=True)
class GRASTA(FactorSolver):
    """Grassmannian robust adaptive subspace tracking (He, Balzano, Szlam 2012), for completion.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 80, rank=2, density=0.7, outliers=0.1, random_state=1)
    >>> r = ls.solve(problem.M, rank=2, method=GRASTA())
    >>> r.converged and r.L.error(problem.L, relative=True) < 1e-6
    True
    """

    name: ClassVar[str] = "grasta"

    rho: float = 2.0  # growth of the ADMM penalty from one of its iterations to the next (the demonstration's)
    turns_min: int = 25  # ADMM iterations of a column below level 4; 2, 4, 8 times as many from levels 4, 7, 10 on,
    turns_max: int = 40  # and these from level 14 on, but never more (the demonstration: 20 and 20)
    tolerance: float = 1e-12  # of the ADMM, relative to the column
    mu_min: float = 1.0  # where the level falls
    mu_max: float = 30.0  # where it rises (the demonstration: 15); doubled when the steps became short too soon
    levels: int = 30  # steps become 2^-levels as long as the first (the demonstration: 20)
    reheats: int = 4  # how often they may become longer again
    transpose: bool | None = None  # whether the data vectors are the rows; None: if there are more rows than columns

    def check(self, problem: Problem) -> None:
        """Check what the tracker is told."""
        super().check(problem)
        require_count(self, "levels")
        require(self.reheats in range(1000), "reheats", self.reheats, "a whole number of 0 or more")
        require(self.transpose in (None, True, False), "transpose", self.transpose, "True, False or None")
        self._rules(self.mu_max)

    def _rules(self, mu_max: float) -> Rules:
        return Rules(
            rho=self.rho,
            turns_min=self.turns_min,
            turns_max=self.turns_max,
            tolerance=self.tolerance,
            mu_min=self.mu_min,
            mu_max=mu_max,
            levels=self.levels,
        )

    # ------------------------------------------------------------------ which side is tracked

    def _across(self, problem: Problem) -> bool:
        """Whether the data vectors are the rows."""
        m, n = problem.M.shape
        return m > n if self.transpose is None else self.transpose

    def _tracker(self, problem: Problem, state: GRASTAState) -> Tracker:
        subspace = state.V if self._across(problem) else state.U
        tracker = Tracker(subspace, self._rules(state.mu_max), compiled=problem.sweep.name == "native")
        for name in MEMORY:
            setattr(tracker, name, getattr(state, name))
        return tracker

    def _after(self, problem: Problem, state: GRASTAState, tracker: Tracker, C: Float) -> GRASTAState:
        """The state with the tracker's subspace and memory, and the coefficients C of the data vectors."""
        U, V = (C, tracker.U) if self._across(problem) else (tracker.U, C)
        e = problem.sweep.residual(U, V)
        memory = {name: getattr(tracker, name) for name in MEMORY}
        return replace(state, U=U, V=V, objective=float(np.sum(np.abs(e))), **memory)

    # ------------------------------------------------------------------ passes

    def init(self, problem: Problem) -> GRASTAState:
        """The start. One that was given may be good: the first steps are as long as what it misses."""
        M, sweep, across = problem.M, problem.sweep, self._across(problem)
        if np.isfinite(problem.clip):  # of an outlier the fit sees the sign alone, but the ADMM its size
            M = M.with_values(np.clip(M.values, -problem.clip, problem.clip))
            sweep = open_sweep(M, sweep.name)
        other = open_sweep(M.T, sweep.name)
        lines = Lines(M.T, other, sweep) if across else Lines(M, sweep, other)
        rules, compiled = self._rules(self.mu_max), sweep.name == "native"
        if problem.start_given:
            U = problem.start()
            V = Tracker(U, rules, compiled=compiled).fit(M.indptr, M.rows, M.values)
        else:
            U, V = spectral_factors(problem)
        tracker = Tracker(V if across else U, rules, compiled=compiled)
        memory = {name: getattr(tracker, name) for name in MEMORY}
        state = GRASTAState(U=U, V=V, lines=lines, mu_max=self.mu_max, **memory)
        C = _coefficients(lines, tracker, *QUICK)
        if problem.start_given:
            tracker.level = self._level(_look(problem, lines, tracker.U, C))
        return self._after(problem, state, tracker, C)

    def advance(self, problem: Problem, state: GRASTAState) -> GRASTAState:
        """One pass over the data vectors, and perhaps a look at what is left to gain."""
        lines, tracker = state.lines, self._tracker(problem, state)
        M, before = lines.M, tracker.U
        order = np.random.default_rng([problem.seed, state.iteration]).permutation(M.shape[1])
        C = np.empty((M.shape[1], problem.rank))
        C[order] = tracker.run(M.indptr, M.rows, M.values, order)
        level = tracker.level
        still = np.array_equal(before, tracker.U)
        dU = float(np.linalg.norm(tracker.U - before))
        looking = still or (state.looked < self.levels and level >= min(state.looked + EVERY, self.levels))
        if looking:
            C = _coefficients(lines, tracker, *QUICK)
        after = self._after(problem, state, tracker, C)
        after.looked = level if looking else min(state.looked, level)
        look = _look(problem, lines, tracker.U, C) if looking else None
        if look is not None:
            after.gain = look.gain
        self.moved(problem, state, after, dU=dU, level=level, mu=tracker.mu, gain=after.gain)
        after.accuracy = math.inf
        if look is not None and not after.failure:
            self._judge(problem, after, look, ended=still or level >= self.levels)
        return after

    def _judge(self, problem: Problem, state: GRASTAState, look: Look, *, ended: bool) -> None:
        """Whether this is a solution; if not, and the steps have died out, make them longer again."""
        state.accuracy = look.gain
        gains = f"regressing the other side anew would lower |e| by {look.gain:.2g} of the median |x|"
        if look.gain <= NOISE * look.noise:
            state.finished = f"{gains}, and the noise is {look.noise:.2g} of it"
        elif ended and look.gain <= min(math.ldexp(EXACT, -self.levels), LARGEST):
            state.finished = f"the steps have died out; {gains}"
        elif ended and state.reheated < self.reheats:
            state.reheated += 1
            state.mu_max *= 2
            state.mu = (state.mu_max - 1) / 2
            state.level = state.looked = self._level(look)
        elif ended and problem.tol > 0:
            state.failure = "stalled"
            state.advice = (
                f"the steps died out too soon: {gains}; give a larger mu_max or more reheats, or another method if L "
                "has components of very different sizes"
            )

    def _level(self, look: Look) -> int:
        """The level whose steps are longer than what is missing, but not by much."""
        return min(max(int(-math.log2(max(look.sine, 1e-300))) - BACK, 0), self.levels)

    def finish(self, problem: Problem, state: GRASTAState) -> Outcome:
        """All data vectors regressed on the last subspace, carefully."""
        tracker = self._tracker(problem, state)
        state = self._after(problem, state, tracker, _coefficients(state.lines, tracker, *CAREFUL))
        L: LowRank = self.lowrank(problem, state)
        return by_residual(problem, L, state.objective)


def _coefficients(lines: Lines, tracker: Tracker, rho: float, turns: int) -> Float:
    """Of all columns on the tracker's subspace; those that few entries determine may not be wild."""
    M = lines.M
    C = tracker.fit(M.indptr, M.rows, M.values, rho=rho, turns=turns)
    sizes, few = np.linalg.norm(C, axis=1), M.column_counts < enough(C.shape[1])
    if few.any() and not few.all():
        C[few & (sizes > WILD * np.median(sizes[~few]))] = 0.0
    return C


def _look(problem: Problem, lines: Lines, U: Float, C: Float) -> Look:
    """Regress the rows on C, in the ℓ1 sense and from U on, and compare."""
    M, unit = lines.M, problem.unit
    e = lines.columns.residual(U, C)
    noise = robust_scale(e)
    c = max(0.1 * noise, 1e-9 * unit)
    Q, R = basis(C)
    anew = lines.rows.regress(Q, U @ R.T, Robust(c=0.1 * c, first_c=c, kind=Kind.POWER, p=1.0, turns=5)).V
    less = np.abs(e) - np.abs(lines.columns.residual(anew, Q))
    counts = np.maximum(M.row_counts, 1)
    mean = np.maximum(np.bincount(M.rows, less, minlength=M.shape[0]), 0.0) / counts
    gain = math.sqrt(float(np.sum(counts * mean**2)) / M.nnz)
    space, _ = basis(anew)
    return Look(gain / unit, noise / unit, float(np.linalg.norm(space - U @ (U.T @ space), 2)))
