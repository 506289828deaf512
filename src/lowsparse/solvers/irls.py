"""IRLS: iteratively reweighted least squares, alternating between the columns and the rows, for six robust losses.

    min over U, V of  Σ_Ω ρ_c((UVᵀ - M)_ij) .

With the weight w(e) = ρ'(e)/e of the loss (see `lowsparse.sweeps.losses`), one iteration is

    V: each column by least squares under the weights of the residuals at (U, V);
    U: each row by least squares under the weights of the residuals at (U, V⁺).

For these losses ρ(e) ≤ ρ(e₀) + w(e₀)(e² - e₀²)/2, so for a fixed c no half-step increases the sum. If c is not given,
it follows the residuals: c = k 1.4826 median|e|, with the k at which 95 % of the efficiency of least squares is kept
under normal noise, but never less than 0.3 of its last value: a redescending loss would otherwise lose sight of inliers
that are still on their way, and c would collapse. Nor is it less than 10⁻⁸ of the size of the data, where rounding
begins. A new c within 1 % of the last one is taken for the same, so that the end is that of a fixed c.

The first 5 iterations are plain least squares from the singular vectors of the data. There are none from a start that
is given, nor if some entries are larger than 20 times the median magnitude: the singular vectors are then those of the
data clipped at 3 times of it, and V⁰ is found by robust regression.

In the place of Y. Zhao, P. Babu, D. Palomar: Efficient Algorithms on Robust Low-Rank Matrix Completion Against
Outliers, IEEE Transactions on Signal Processing 64(18), 2016. It shares the problem, a bilinear factorisation under a
smooth robust loss, and the monotone decrease; theirs are two other losses and parallel updates. One thing is our own: a
redescending loss (all but the two of Huber) can give up a line, whose entries then all pass for outliers. Lines that
explain few of their entries are regressed anew on what the others have found, with c coming down from the size of the
data; then all goes on from a wider c that shrinks to no less than 0.7 of its last value. If such lines remain after
three times, the end is called "stalled".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..linalg.arrays import beside, times
from ..linalg.grassmann import basis
from ..linalg.scale import CONSISTENT, OUTLIER
from ..sweeps import (
    Float,
    Magnitudes,
    Robust,
    Sweep,
    enough,
    open_sweep,
)
from ..sweeps.losses import EFFICIENT, Kind, Loss
from .base import Problem, require, require_positive
from .factors import EXPLAINED, FactorSolver, FactorState, leading_subspace, spectral_factors

__all__ = ["IRLS", "IRLSState"]

LOSSES = {kind.name.lower(): kind for kind in EFFICIENT}
PLAIN = 5  # sweeps of least squares before the first reweighting
PACE = (0.3, 0.7)  # c / its previous value, at least; the second once a line was given up
WIDE = 0.1  # c after that, at least, in units of the data
SMALLEST = 1e-8  # c, in units of the data
CLOSE = 1e-7  # of the unit: an entry this close is explained, however small the noise
SAME = 0.01  # relative difference of two c that are one
SETTLED = 1e-2  # relative change of L from which on a line that is not explained is looked at again
LOOKS = 3
WILD = 3.0  # units: larger entries are clipped before the singular vectors are taken, if some are far larger
FEW = 0.3  # of the share of its entries that the median line explains
GIVEN_UP = "{} rows and columns explain few of their entries, and may have been given up as outliers: "


@dataclass(kw_only=True)
class IRLSState(FactorState):
    """U, orthonormal, V, and the c they were found with."""

    scratch: ClassVar[tuple[str, ...]] = ("rows",)

    rows: Sweep  # the data by row
    c: float = 0.0
    median: float  # of |e|, before the last half-step
    looks: int = 0  # at lines that were given up
    look: bool = False  # the next iteration is one


@dataclass(kw_only=True)
class IRLS(FactorSolver):
    """Alternating iteratively reweighted least squares for a robust loss.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 50, rank=2, density=0.7, outliers=0.1, random_state=1)
    >>> r = ls.solve(problem.M, rank=2, method=IRLS(loss="tukey"))
    >>> r.converged and r.L.error(problem.L, relative=True) < 1e-6
    True
    """

    name: ClassVar[str] = "irls"

    loss: str = "cauchy"  # or "huber", "pseudo_huber", "geman_mcclure", "welsch", "tukey"
    c: float | None = None  # its scale, in units of the data; None: follows the residuals
    sweeps: int | None = None  # of plain least squares at first; None: 5, or 0 if that may spoil the start

    def check(self, problem: Problem) -> None:
        """Check the loss and the numbers."""
        super().check(problem)
        require(self.loss in LOSSES, "loss", self.loss, f"one of {sorted(LOSSES)}")
        require_positive(self, "c")
        whole = isinstance(self.sweeps, int | np.integer) and not isinstance(self.sweeps, bool)
        require(
            self.sweeps is None or (whole and self.sweeps >= 0), "sweeps", self.sweeps, "a whole number of 0 or more"
        )

    def init(self, problem: Problem) -> IRLSState:
        """(U⁰, V⁰)."""
        U, V = first_factors(problem)
        median = float(np.median(np.abs(problem.sweep.residual(U, V))))
        return IRLSState(U=U, V=V, rows=open_sweep(problem.M.T, problem.sweep.name), median=median)

    def advance(self, problem: Problem, state: IRLSState) -> IRLSState:
        """The columns, then the rows."""
        kind, unit = LOSSES[self.loss], problem.unit
        plain = state.iteration < (self.sweeps if self.sweeps is not None else 0 if in_doubt(problem) else PLAIN)
        c = self._width(problem, state, 0.0 if plain else PACE[min(state.looks, 1)])
        how = Robust(c=c, kind=kind, unit=unit, bound=max(OUTLIER * c / EFFICIENT[kind], CLOSE * unit))
        if plain:
            how = replace(how, kind=Kind.SQUARED)
        C, lost_columns, _ = _half(problem.sweep, problem.M.column_counts, state.U, state.V, how, state.look)
        Q, R = basis(C)
        C, lost_rows, before = _half(state.rows, problem.M.row_counts, Q, times(state.U, R.T), how, state.look)
        U, R = basis(C)
        V = times(Q, R.T)
        lost = lost_columns + lost_rows if kind not in (Kind.HUBER, Kind.PSEUDO_HUBER) and not plain else 0
        objective = problem.sweep.gradient(U, V, Loss(kind, c)).value
        after = replace(state, U=U, V=V, c=c, median=before.quantile(0.5), objective=objective, finished="", look=False)
        self.moved(problem, state, after, gamma=c, lost=lost)
        if plain or state.look:
            after.accuracy, after.finished = math.inf, ""
        elif lost and after.accuracy <= SETTLED and state.looks < LOOKS:
            after.look, after.looks, after.c = True, state.looks + 1, max(c, WIDE * unit)
            after.accuracy, after.finished = math.inf, ""
        elif lost and problem.tol and (after.finished or after.accuracy <= problem.tol):
            after.failure, after.finished = "stalled", ""
            after.advice = GIVEN_UP.format(lost) + "choose loss='huber', a larger c if it was given, or method='auto'"
        return after

    def _width(self, problem: Problem, state: IRLSState, pace: float) -> float:
        """The c of this iteration."""
        if self.c is not None:
            return self.c
        k = EFFICIENT[LOSSES[self.loss]] * CONSISTENT
        c = max(k * state.median, pace * state.c, SMALLEST * problem.unit)
        return state.c if abs(c - state.c) <= SAME * state.c else c


def _half(
    sweep: Sweep, counts: NDArray[np.int64], B: Float, C: Float, how: Robust, look: bool
) -> tuple[Float, int, Magnitudes]:
    """Regress all lines on B; the coefficients, how many lines C explained badly, and the residuals of C.

    Those lines are regressed from scratch if a second `look` is due.
    """
    found = sweep.regress(B, C, how)
    lost = given_up(found.inside, counts, B.shape[1])
    V = found.V
    if look and lost.any():
        V, which = V.copy(), beside(lost, V)
        V[which] = afresh(sweep, B, how)[which]
    return V, int(np.count_nonzero(lost)), found.before


def given_up(inside: NDArray[np.int64], counts: NDArray[np.int64], rank: int) -> NDArray[np.bool_]:
    """Of each line: whether few of its entries are explained (are `inside`), though it has enough to tell.

    >>> given_up(np.array([9, 2, 2]), np.array([10, 10, 3]), rank=1).tolist()
    [False, True, False]
    """
    telling = counts >= 2 * enough(rank)
    share = inside / np.maximum(counts, 1)
    usual = float(np.median(share[telling])) if telling.any() else 0.0
    return np.asarray(telling & ((inside < enough(rank)) | (share < FEW * usual)))


def afresh(sweep: Sweep, U: Float, how: Robust) -> Float:
    """Regress the columns on U without a guess: c comes down from the size of the data."""
    c = max(how.c, EXPLAINED * how.unit)
    return sweep.regress(U, None, replace(how, c=c, first_c=max(c, 6 * how.unit), turns=10)).V


def in_doubt(problem: Problem) -> bool:
    """Whether least squares would spoil the start: it was given, or some entries are far larger than most."""
    return problem.start_given or math.isfinite(problem.clip)


def first_factors(problem: Problem) -> tuple[Float, Float]:
    """(U⁰, V⁰) by the singular vectors of the data; by robust regression on U⁰ if least squares are `in_doubt`."""
    if not in_doubt(problem):
        return spectral_factors(problem)
    if problem.start_given:
        U = problem.start()
    else:  # a wild entry would have a singular vector of its own
        clip = WILD * problem.unit
        U = leading_subspace(problem, np.clip(problem.M.values, -clip, clip))
    return U, afresh(problem.sweep, U, Robust(c=EXPLAINED * problem.unit, unit=problem.unit))
