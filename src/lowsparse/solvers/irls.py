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

In the place of Zhao, Babu and Palomar (2016). It shares the problem, a bilinear factorisation under a smooth robust
loss, and the monotone decrease; theirs are two other losses and parallel updates. One thing is our own: a
redescending loss (all but the two of Huber) can give up a line, whose entries then all pass for outliers. Lines that
explain few of their entries are regressed again on what the others have found, under the loss of Cauchy, with c coming
down from the size of the data; then all goes on from a wider c that shrinks to no less than 0.7 of its last value. If
such lines remain after three times, the end is called "stalled".
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..linalg.arrays import matmul_small, to_device_of
from ..linalg.grassmann import basis
from ..linalg.scale import CONSISTENT, OUTLIER
from ..robust.regression import EXPLAINED, LineRegression
from ..sweeps import Float, Magnitudes, Robust, min_support
from ..sweeps.losses import EFFICIENT, Kind, Loss
from .base import Problem
from .factors import FactorSolver, FactorState, leading_subspace, spectral_factors
from .parameters import parameter

LOSSES = {kind.name.lower(): kind for kind in EFFICIENT}
PLAIN = 5  # sweeps of least squares before the first reweighting
PACE = (0.3, 0.7)  # c / its previous value, at least; the second once a line was given up
WIDE = 0.1  # c after that, at least, in units of the data
SMALLEST = 1e-8  # c, in units of the data
CLOSE = 1e-7  # of the unit: an entry this close is explained, however small the noise
SAME = 0.01  # relative difference of two c that are one
SETTLED = 1e-2  # relative change of L from which on lines that are not explained are regressed from scratch
REFITS = 3
FROM_ZERO = 10  # reweighted fits of a line from zero
WILD = 3.0  # units: larger entries are clipped before the singular vectors are taken, if some are far larger
FEW = 0.3  # of the share of its entries that the median line explains
GIVEN_UP = "{} rows and columns explain few of their entries, and may have been given up as outliers: "


@dataclass(kw_only=True)
class IRLSState(FactorState):
    """U, orthonormal, V, and the c they were found with."""

    c: float = 0.0
    median: float  # of |e|, before the last half-step
    refits: int = 0  # times that lines that were given up were regressed from scratch
    refit: bool = False  # do so in the next iteration


@dataclass(kw_only=True)
class IRLS(FactorSolver[IRLSState]):
    """Alternating iteratively reweighted least squares for a robust loss.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 50, rank=2, density=0.7, outliers=0.1, random_state=1)
    >>> r = ls.solve(problem.M, rank=2, method=IRLS(loss="tukey"))
    >>> r.converged and r.L.error(problem.L, relative=True) < 1e-6
    True
    """

    name = "irls"
    papers = (
        "Y. Zhao, P. Babu, D. Palomar: Efficient Algorithms on Robust Low-Rank Matrix Completion Against "
        "Outliers, IEEE Transactions on Signal Processing 64(18), 2016",
    )
    runs_anywhere = True

    loss: str = parameter("cauchy", "the robust loss", choices=tuple(LOSSES))
    c: float | None = parameter(None, "scale of the loss, in units of the data; None: follows the residuals", above=0)
    sweeps: int | None = parameter(
        None, "first iterations, plain least squares; None: 5, or 0 if they may spoil the start", kind=int, at_least=0
    )

    def init(self, problem: Problem) -> IRLSState:
        """(U⁰, V⁰)."""
        U, V = first_factors(problem)
        return IRLSState(U=U, V=V, median=float(np.median(np.abs(problem.sweep.residual(U, V)))))

    def advance(self, problem: Problem, state: IRLSState) -> IRLSState:
        """The columns, then the rows."""
        kind, unit = LOSSES[self.loss], problem.unit
        first = 0 if skip_least_squares(problem) else PLAIN
        plain = state.iteration < (first if self.sweeps is None else self.sweeps)
        c = self._scale(problem, state, 0.0 if plain else PACE[min(state.refits, 1)])
        options = Robust(c=c, kind=kind, unit=unit, bound=max(OUTLIER * c / EFFICIENT[kind], CLOSE * unit))
        if plain:
            options = replace(options, kind=Kind.SQUARED)
        U, V, lost, residuals = alternate(problem, state.U, state.V, options, refit=state.refit)
        if plain or kind in (Kind.HUBER, Kind.PSEUDO_HUBER):
            lost = 0
        objective = problem.sweep.gradient(U, V, Loss(kind, c)).value
        after = replace(state, U=U, V=V, c=c, median=residuals.quantile(0.5), objective=objective, refit=False)
        self.complete(state, after, gamma=c, lost=lost)
        if plain or state.refit:
            after.accuracy, after.finished = math.inf, ""
        elif lost and after.accuracy <= SETTLED and state.refits < REFITS:
            after.refit, after.refits, after.c = True, state.refits + 1, max(c, WIDE * unit)
            after.accuracy, after.finished = math.inf, ""
        elif lost and after.converged(problem.tol):
            after.stall(GIVEN_UP.format(lost) + "choose loss='huber', a larger c if it was given, or method='auto'")
        return after

    def _scale(self, problem: Problem, state: IRLSState, pace: float) -> float:
        """c, the scale of the loss in this iteration."""
        if self.c is not None:
            return self.c
        k = EFFICIENT[LOSSES[self.loss]] * CONSISTENT
        c = max(k * state.median, pace * state.c, SMALLEST * problem.unit)
        return state.c if abs(c - state.c) <= SAME * state.c else c


def alternate(
    problem: Problem, U: Float, V: Float, options: Robust, *, refit: bool = False
) -> tuple[Float, Float, int, Magnitudes]:
    """Regress the columns on U, then the rows on the new V; with `refit` from zero where they are explained badly.

    Returns the new U, orthonormal, and V, how many lines were explained badly, and the residuals that the rows had.
    """
    columns = LineRegression(problem.M, problem.sweep, problem.unit, learning=True)
    rows = LineRegression(problem.transposed, problem.row_sweep, problem.unit, learning=True)
    C, lost_columns, _ = _regress(columns, U, V, options, refit)
    Q, R = basis(C)
    C, lost_rows, residuals = _regress(rows, Q, matmul_small(U, R.T), options, refit)
    U, R = basis(C)
    return U, matmul_small(Q, R.T), lost_columns + lost_rows, residuals


def _regress(lines: LineRegression, B: Float, C: Float, options: Robust, refit: bool) -> tuple[Float, int, Magnitudes]:
    """The new coefficients of all lines on B, how many lines C explained badly, and the residuals of C."""
    found = lines.sweep.regress(B, C, options)
    lost = given_up(found.inside, lines.M.column_counts, B.shape[1])
    V = found.V
    if refit and lost.any():
        V, which = V.copy(), to_device_of(lost, V)
        c = options.c * (EFFICIENT[Kind.CAUCHY] / EFFICIENT[options.kind])  # for the same noise
        V[which] = lines.fit_from_zero(B, max(c, EXPLAINED * lines.unit), FROM_ZERO)[which]
    return V, int(np.count_nonzero(lost)), found.magnitudes


def given_up(inside: NDArray[np.int64], counts: NDArray[np.int64], rank: int) -> NDArray[np.bool_]:
    """Whether few entries of each line are explained (are `inside`), though it has enough of them."""
    telling = counts >= 2 * min_support(rank)
    share = inside / np.maximum(counts, 1)
    usual = float(np.median(share[telling])) if telling.any() else 0.0
    return np.asarray(telling & ((inside < min_support(rank)) | (share < FEW * usual)))


def skip_least_squares(problem: Problem) -> bool:
    """Whether to begin without least squares: they would spoil a given start, and fit entries far larger than most."""
    return problem.start_given or math.isfinite(problem.clip)


def first_factors(problem: Problem) -> tuple[Float, Float]:
    """(U⁰, V⁰) by the singular vectors of the data; V⁰ by robust regression where least squares are skipped."""
    if not skip_least_squares(problem):
        return spectral_factors(problem)
    if problem.start_given:
        U = problem.start()
    else:  # a wild entry would have a singular vector of its own
        clip = WILD * problem.unit
        U = leading_subspace(problem, np.clip(problem.M.values, -clip, clip))
    columns = LineRegression(problem.M, problem.sweep, problem.unit, learning=True)
    return U, columns.fit_from_zero(U, EXPLAINED * problem.unit, FROM_ZERO)
