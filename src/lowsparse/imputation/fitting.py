"""The fit of a table less its scales: with levels or without, and in coarse columns with noise or without.

What is right for a table is known by its fit alone. Levels that are estimated before it are those of no point of the
affine subspace in which the rows lie: less these, an exact table has a rank more. Without them, rows with few entries
are shrunk to zero, so if no rank is given they are left out only where there are hardly any. The noise that counts and
ratings need (`robust.coarse`) costs a table of other numbers, some of which are clipped or stuck, its exactness. So
several fits are made, each searched once, and of two the clearly closer one is taken. What it is a fit of is then
searched as `solve` does it, in several orders: the promise is that of `solve`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from ..entries.observed import ObservedMatrix
from ..entries.protocol import PartialMatrix
from ..linalg.arrays import Flags
from ..linalg.lowrank import LowRank
from ..linalg.scale import robust_scale
from ..result import Result
from ..robust.coarse import CoarseColumns
from ..robust.regression import EFFICIENT, EXPLAINED, SMALLEST
from ..robust.ties import is_repeated
from ..solvers.ladder import Ladder
from ..sweeps import Float
from .offsets import Preparation

THIN = 50  # entries of the median column, below which rows get offsets
ENOUGH = 2.0  # entries for each parameter of a fit, from which on a fit that is closer to them is better
CLEARLY = 0.1  # difference of the mean logarithms of residuals from which on one fit is closer than another
BETTER = 0.8  # error of unseen entries relative to that of another fit, from which on one is better
LEFT = 0.1  # share of entries that an exact fit may leave to be the only one
N_PLANE = 30  # reweightings of the plane in which the rows of a fit lie
SAMPLE = 20_000  # entries by which two fits are compared
SMALL = 100_000  # entries of a table that is fitted more often where one fit may do
LITTLE = 0.1  # error of unseen entries, in units of the spread, up to which no shrinkage is felt
FEW = 20  # different numbers by which fits with and without noise in coarse columns are compared


class Solve(Protocol):
    """`solve` with all arguments but these."""

    def __call__(
        self, M: PartialMatrix, rank: int | str, *, method: Ladder = ..., max_rank: int | None = None
    ) -> Result:
        """The solution."""


@dataclass(frozen=True)
class Fit:
    """Scales and levels of a table, and the L of what they leave."""

    preparation: Preparation
    result: Result

    @property
    def is_exact(self) -> bool:
        """Whether it is promised, and exact but for few entries, so that no other can be much closer."""
        few = self.result.flagged.size <= LEFT * self.result.M.nnz
        return few and self.result.converged and usual_error(self.result) <= EXPLAINED

    def distance(self, M: PartialMatrix, counted: Flags | None = None) -> float:
        """The mean logarithm of the residuals of a table: gross errors, which all fits leave, hardly count."""
        L, scale = self.result.L, self.preparation.scale
        e = self.preparation.apply(M).open_sweep().residual(L.U, np.ascontiguousarray(L.V.T))
        sizes = (np.abs(e) + EXPLAINED) * M.spread_over_columns(scale)
        return float(np.mean(np.log(sizes if counted is None else sizes[counted])))


def fit_table(
    M: PartialMatrix, coarse: CoarseColumns | None, rank: int | None, solve: Solve, searches: int, backend: str
) -> Fit:
    """The fit of a table, of this rank at most, or of a rank that is chosen, searched so often."""
    spread = M if coarse is None else coarse.spread(M)
    preparation = _prepare(spread, backend)
    once, often = (partial(solve, method=Ladder(searches=n, rank_is_limit=True)) for n in (1, searches))
    if M.nnz > SMALL or searches == 1:  # large tables are searched once anyway
        return _fit(spread, preparation, rank, once)
    if rank is None and coarse is None and not preparation.hardly_has_levels:
        return _fit(spread, preparation, rank, often)
    fit = _fit_either(spread, preparation, rank, once)
    if coarse is not None and isinstance(M, ObservedMatrix):
        # where coarse columns are explained as they are, numbers that are not repeated are met more closely
        counted = (coarse.width[M.columns_of_entries()] > 0) & ~is_repeated(M)
        if np.unique(M.values[counted]).size >= FEW:
            as_given = _fit_either(M, _prepare(M, backend), rank, once)
            if as_given.distance(M, counted) < fit.distance(M, counted) - CLEARLY:
                fit, spread = as_given, M
    return replace(fit, result=_solve_up_to(fit.preparation.apply(spread), rank, often))


def _prepare(M: PartialMatrix, backend: str) -> Preparation:
    # Where columns have few entries, a low-rank fit cannot find the offsets of the rows by itself.
    return Preparation.fit(M, rows=bool(np.median(M.column_counts) < THIN), backend=backend)


def _fit(M: PartialMatrix, preparation: Preparation, rank: int | None, solve: Solve) -> Fit:
    """The fit with levels, of a rank that is chosen; or of this rank at most, with levels or without."""
    if rank is not None:
        return _fit_of_rank(M, preparation, solve, rank)
    return Fit(preparation, solve(preparation.apply(M), "auto"))


def _fit_either(M: PartialMatrix, preparation: Preparation, rank: int | None, solve: Solve) -> Fit:
    """The same; of a table that hardly has levels also without them, if the rank is to be chosen."""
    fit = _fit(M, preparation, rank, solve)
    if rank is not None or fit.is_exact or not preparation.hardly_has_levels:
        return fit
    given = preparation.without_levels()
    without = Fit(given, solve(given.apply(M), "auto"))
    more = EXPLAINED if without.result.converged and not fit.result.converged else 0.0
    return without if usual_error(without.result) < BETTER * usual_error(fit.result) + more else fit


def _fit_of_rank(M: PartialMatrix, preparation: Preparation, solve: Solve, rank: int) -> Fit:
    """A fit of this rank at most: with levels the table may have this rank, or one more."""
    given = preparation.without_levels()
    without = Fit(given, _solve_up_to(given.apply(M), rank, solve))
    if without.is_exact:
        return without
    best = Fit(preparation, _solve_up_to(preparation.apply(M), rank, solve))
    if M.nnz < ENOUGH * rank * sum(M.shape):  # any fit is close to many of the entries
        return without if usual_error(without.result) < 0.5 * best.result.noise - EXPLAINED else best
    sample = M.sample(SAMPLE)
    best = without if _is_closer(without, best, sample) else best
    for fit in () if best.is_exact else _fit_about_own_levels(M, best, solve, rank, sample):
        best = fit if _is_closer(fit, best, sample) else best
    return best


def _solve_up_to(M: PartialMatrix, rank: int | None, solve: Solve) -> Result:
    """L of this rank; or a lower one, or one that is shrunk, if it predicts unseen entries better."""
    if rank is None:
        return solve(M, "auto")
    result = solve(M, rank)
    if result.converged and usual_error(result) <= LITTLE:
        return result
    chosen = solve(M, "auto", max_rank=rank)
    if result.held_out is None or chosen.held_out is None:
        return result if result.converged else chosen
    gain = 1.0 if result.converged else BETTER  # a promise may cost a little
    return chosen if gain * chosen.held_out < result.held_out else result


def _fit_about_own_levels(M: PartialMatrix, fit: Fit, solve: Solve, rank: int, sample: PartialMatrix) -> Iterator[Fit]:
    """A fit of this rank to the table less levels that are found along with it, if one more is closer than `fit`.

    A row in the middle of a fit with one more is in the affine subspace of the rows.
    """
    levels = fit.preparation.without_offsets()
    larger = Fit(levels, solve(levels.apply(M), "auto", max_rank=min(rank + 1, *M.shape)))
    if larger.result.L.rank > rank and _is_closer(larger, fit, sample):
        levels = replace(levels, level=levels.level + _usual_row(larger.result.L))
        yield Fit(levels, _solve_up_to(levels.apply(M), rank, solve))


def _usual_row(L: LowRank) -> Float:
    """A point of the plane on which most rows of U lie, close to their medians, times V: in their affine subspace.

    The plane u·w = 1 is fitted by reweighted least squares, as rows that are wrong as a whole are off it.
    """
    root: Float = np.ones(len(L.U))  # of the weights
    w: Float = np.zeros(L.U.shape[1])
    for _ in range(N_PLANE):
        w = np.asarray(np.linalg.lstsq(L.U * root[:, None], root, rcond=None)[0], dtype=np.float64)
        e = 1 - L.U @ w
        root = 1 / np.sqrt(1 + (e / (EFFICIENT * robust_scale(e) + SMALLEST)) ** 2)
    middle = np.median(L.U, axis=0)
    onto = (1 - middle @ w) / max(float(w @ w), np.finfo(float).tiny) * w
    return np.asarray((middle + onto) @ L.V, dtype=np.float64)


def _is_closer(one: Fit, other: Fit, sample: PartialMatrix) -> bool:
    return one.distance(sample) < other.distance(sample) - CLEARLY


def usual_error(result: Result) -> float:
    """The robust scale of the errors of held-out entries, if there are any; at least the noise."""
    return max(result.noise, result.held_out or 0.0)
