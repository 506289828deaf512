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
explain few of their entries are regressed again on what the others have found, with c coming down from the size of the
data; then all goes on from a wider c that shrinks to no less than 0.7 of its last value. If such lines remain after
three times, the end is called "stalled".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..linalg.arrays import matmul_small, to_device_of
from ..linalg.grassmann import basis
from ..linalg.scale import CONSISTENT, OUTLIER
from ..robust.regression import EXPLAINED
from ..sweeps import Float, Magnitudes, Robust, Sweep, enough
from ..sweeps.losses import EFFICIENT, Kind, Loss
from .base import Problem
from .factors import FactorSolver, FactorState, leading_subspace, spectral_factors
from .parameters import parameter

__all__ = ["IRLS", "IRLSState"]

LOSSES = {kind.name.lower(): kind for kind in EFFICIENT}
PLAIN = 5  # sweeps of least squares before the first reweighting
PACE = (0.3, 0.7)  # c / its previous value, at least; the second once a line was given up
WIDE = 0.1  # c after that, at least, in units of the data
SMALLEST = 1e-8  # c, in units of the data
CLOSE = 1e-7  # of the unit: an entry this close is explained, however small the noise
SAME = 0.01  # relative difference of two c that are one
SETTLED = 1e-2  # relative change of L from which on lines that are not explained are regressed from scratch
REFITS = 3
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
    refits: int = 0  # times that lines that were given up were regressed from scratch
    refit: bool = False  # do so in the next iteration


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
    runs_anywhere: ClassVar[bool] = True

    loss: str = parameter("cauchy", "the robust loss", choices=tuple(LOSSES))
    c: float | None = parameter(None, "scale of the loss, in units of the data; None: follows the residuals", above=0)
    sweeps: int | None = parameter(
        None, "first iterations, plain least squares; None: 5, or 0 if they may spoil the start", kind=int, at_least=0
    )

    def init(self, problem: Problem) -> IRLSState:
        """(U⁰, V⁰)."""
        U, V = first_factors(problem)
        median = float(np.median(np.abs(problem.sweep.residual(U, V))))
        return IRLSState(U=U, V=V, rows=problem.M.T.open_sweep(problem.sweep.host), median=median)

    def advance(self, problem: Problem, state: IRLSState) -> IRLSState:
        """The columns, then the rows."""
        kind, unit = LOSSES[self.loss], problem.unit
        plain = state.iteration < (self.sweeps if self.sweeps is not None else 0 if in_doubt(problem) else PLAIN)
        c = self._width(problem, state, 0.0 if plain else PACE[min(state.refits, 1)])
        options = Robust(c=c, kind=kind, unit=unit, bound=max(OUTLIER * c / EFFICIENT[kind], CLOSE * unit))
        if plain:
            options = replace(options, kind=Kind.SQUARED)
        C, lost_columns, _ = _half(problem.sweep, problem.M.column_counts, state.U, state.V, options, state.refit)
        Q, R = basis(C)
        C, lost_rows, residuals = _half(
            state.rows, problem.M.row_counts, Q, matmul_small(state.U, R.T), options, state.refit
        )
        U, R = basis(C)
        V = matmul_small(Q, R.T)
        lost = lost_columns + lost_rows if kind not in (Kind.HUBER, Kind.PSEUDO_HUBER) and not plain else 0
        objective = problem.sweep.gradient(U, V, Loss(kind, c)).value
        after = replace(
            state, U=U, V=V, c=c, median=residuals.quantile(0.5), objective=objective, finished="", refit=False
        )
        self.complete(state, after, gamma=c, lost=lost)
        if plain or state.refit:
            after.accuracy, after.finished = math.inf, ""
        elif lost and after.accuracy <= SETTLED and state.refits < REFITS:
            after.refit, after.refits, after.c = True, state.refits + 1, max(c, WIDE * unit)
            after.accuracy, after.finished = math.inf, ""
        elif lost and problem.tol and (after.finished or after.accuracy <= problem.tol):
            after.stall(GIVEN_UP.format(lost) + "choose loss='huber', a larger c if it was given, or method='auto'")
        return after

    def _width(self, problem: Problem, state: IRLSState, pace: float) -> float:
        """The c of this iteration."""
        if self.c is not None:
            return self.c
        k = EFFICIENT[LOSSES[self.loss]] * CONSISTENT
        c = max(k * state.median, pace * state.c, SMALLEST * problem.unit)
        return state.c if abs(c - state.c) <= SAME * state.c else c


def _half(
    sweep: Sweep, counts: NDArray[np.int64], B: Float, C: Float, options: Robust, refit: bool
) -> tuple[Float, int, Magnitudes]:
    """Regress all lines on B; return the coefficients, how many lines C explained badly, and the residuals of C.

    With `refit` those lines are regressed from scratch.
    """
    found = sweep.regress(B, C, options)
    lost = given_up(found.inside, counts, B.shape[1])
    V = found.V
    if refit and lost.any():
        V, which = V.copy(), to_device_of(lost, V)
        V[which] = fit_from_zero(sweep, B, options)[which]
    return V, int(np.count_nonzero(lost)), found.before


def given_up(inside: NDArray[np.int64], counts: NDArray[np.int64], rank: int) -> NDArray[np.bool_]:
    """Whether few entries of each line are explained (are `inside`), though it has enough of them."""
    telling = counts >= 2 * enough(rank)
    share = inside / np.maximum(counts, 1)
    usual = float(np.median(share[telling])) if telling.any() else 0.0
    return np.asarray(telling & ((inside < enough(rank)) | (share < FEW * usual)))


def fit_from_zero(sweep: Sweep, U: Float, options: Robust) -> Float:
    """Regress the columns on U without a guess: c comes down from the size of the data."""
    c = max(options.c, EXPLAINED * options.unit)
    return sweep.regress(U, None, replace(options, c=c, first_c=max(c, 6 * options.unit), turns=10)).V


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
    return U, fit_from_zero(problem.sweep, U, Robust(c=EXPLAINED * problem.unit, unit=problem.unit))
