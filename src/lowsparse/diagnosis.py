"""Whether data determine a low-rank matrix: counts, coherence, noise and outliers, as figures and as advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .entries.observed import ObservedMatrix
from .entries.protocol import PartialMatrix
from .linalg.grassmann import leverages
from .linalg.lowrank import LowRank
from .linalg.scale import robust_scale
from .notebook import NO_OBJECTION, diagnosis_card
from .robust.joint import determination, line_grams
from .support.format import percent
from .sweeps import Float, min_support

if TYPE_CHECKING:
    from .result import Result

FEW = 3  # entries of a line, in multiples of the rank
TRUSTED = 0.3  # share of the entries of a line that must be good for L to be determined there
AT_LEAST = 0.6  # of a deviation estimated from a few draws: chance makes it larger or smaller by a third


@dataclass(frozen=True)
class Diagnosis:
    """How well the data determine the result of a solve; `print` it for advice.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(90, 80, rank=2, density=0.6, outliers=0.1, random_state=1)
    >>> d = ls.solve(problem.M, rank=2).diagnostics
    >>> d.recovered, round(d.outlier_share, 1), d.oversampling > 10
    (True, 0.1, True)
    """

    shape: tuple[int, int]
    entries: int
    rank: int
    recovered: bool  # the method has met its own test
    message: str  # of the method
    oversampling: float  # entries / parameters, r (m + n - r)
    entries_per_row: tuple[int, float]  # least and median
    entries_per_column: tuple[int, float]
    poor_rows: NDArray[np.intp]  # with fewer than three times as many good entries as the rank
    poor_columns: NDArray[np.intp]
    coherence: tuple[float, float]  # of rows and columns: from 1 (all alike) to m / r (one row alone has a component)
    outlier_share: float  # of the entries
    signal: float  # root mean square of L on the inliers
    noise: float  # standard deviation of the inliers
    held_out: float | None  # robust scale of the residuals of held-out entries, if there were any
    advice: tuple[str, ...]

    def __str__(self) -> str:
        m, n = self.shape
        held = "none" if self.held_out is None else f"{self.held_out:.3g}"
        lines = [
            f"{m} x {n}, {self.entries} entries ({percent(self.entries / (m * n))}), rank {self.rank}",
            f"recovered               {'yes' if self.recovered else 'no'}: {self.message}",
            f"entries / parameters    {self.oversampling:.3g}",
            f"entries in a row        at least {self.entries_per_row[0]}, median {self.entries_per_row[1]:g}",
            f"entries in a column     at least {self.entries_per_column[0]}, median {self.entries_per_column[1]:g}",
            f"coherence               {self.coherence[0]:.3g} of rows, {self.coherence[1]:.3g} of columns",
            f"outliers                {percent(self.outlier_share)} of the entries",
            f"noise / signal          {self.noise:.3g} / {self.signal:.3g}",
            f"held-out error          {held}",
        ]
        return "\n".join(lines + [f"- {text}" for text in self.advice])

    def _repr_html_(self) -> str:
        """A card, in notebooks."""
        return diagnosis_card(self)


def largest_rank(M: PartialMatrix) -> int:
    """The largest rank worth trying: there are twice as many entries as parameters, and it is at most 30."""
    m, n = M.shape
    ranks = np.arange(1, min(m, n, 30) + 1)
    return int(max(ranks[2 * ranks * (m + n - ranks) <= M.nnz], default=1))


def coherence(A: Float) -> float:
    """The largest leverage of a row, as a multiple of the mean one, of a matrix with few columns."""
    found = leverages(A)
    return float(found.max() / found.mean()) if found.any() else 1.0


def examine(result: Result) -> Diagnosis:
    """The diagnosis of a result."""
    result = result.to_host()
    M, L = result.M, result.L
    m, n = M.shape
    sizes = np.linalg.norm(L.V, axis=1)
    # of a method that did not converge, components that are zero may be there all the same
    rank = max(1, int(np.count_nonzero(sizes))) if result.converged else L.rank
    outliers_in_row, outliers_in_column = M.count_lines(result.flagged)
    sample = M.sample(100_000)
    fitted = np.asarray(L.at(sample.rows, sample.columns_of_entries()))
    residual = np.abs(fitted - sample.values)
    inlier = residual <= 4 * max(result.noise, robust_scale(residual))
    found = Diagnosis(
        shape=M.shape,
        entries=M.nnz,
        rank=rank,
        recovered=result.converged,
        message=result.message,
        oversampling=M.nnz / (rank * (m + n - rank)),
        entries_per_row=(int(M.row_counts.min()), float(np.median(M.row_counts))),
        entries_per_column=(int(M.column_counts.min()), float(np.median(M.column_counts))),
        poor_rows=np.flatnonzero(M.row_counts - outliers_in_row < FEW * rank),
        poor_columns=np.flatnonzero(M.column_counts - outliers_in_column < FEW * rank),
        coherence=(coherence(L.U * sizes), coherence(L.V.T)),
        outlier_share=result.S.nnz / M.nnz,
        signal=float(np.sqrt(np.mean(fitted[inlier] ** 2))) if inlier.any() else 0.0,
        noise=result.noise,
        held_out=result.held_out,
        advice=(),
    )
    return replace(found, advice=_advice(found))


def _advice(d: Diagnosis) -> tuple[str, ...]:
    """What the figures mean, and what to do."""
    m, n = d.shape
    advice = []
    if d.oversampling < 1:
        advice.append(
            "there are fewer entries than parameters: no method can recover this; lower the rank or observe more"
        )
    elif d.oversampling < 2:
        advice.append("there are hardly more entries than parameters: lower the rank or observe more")
    for name, poor, total in (("rows", d.poor_rows, m), ("columns", d.poor_columns, n)):
        if poor.size:
            few = f"{poor.size} of {total} {name} have fewer than {FEW * d.rank} good entries"
            advice.append(f"{few}: leave them out, or do not trust L there")
    for name, value, total in (("row", d.coherence[0], m), ("column", d.coherence[1], n)):
        if value > 0.8 * total / d.rank and total > 3 * d.rank:
            advice.append(
                f"one {name} has a component almost alone: it may be an outlier itself, or the rank is too large"
            )
    if d.outlier_share > 0.35:
        advice.append(
            "more than a third of the entries disagree with the fit: the limit of what can be recovered is near"
        )
    if d.noise > 0.5 * d.signal:
        advice.append("the noise is as large as the signal: a lower rank may predict better (rank='auto')")
    if not d.recovered:
        advice.append("the method has not met its own test: do not rely on L; see the message above")
    return tuple(advice) or (NO_OBJECTION,)


class Certainty:
    """Where the entries of M that are not `wrong` determine L, and how closely; `ambiguous` lines they do not."""

    def __init__(
        self,
        M: ObservedMatrix,
        L: LowRank,
        wrong: NDArray[np.bool_],
        noise: float,
        ambiguous: tuple[Sequence[int], Sequence[int]] = ((), ()),
    ) -> None:
        self.M, self.noise = M, noise
        present = np.linalg.norm(L.V, axis=1) > 0
        self.U, self.V = L.U[:, present], np.ascontiguousarray(L.V[present].T)
        self.rows, self.columns = M.rows[~wrong], M.columns_of_entries()[~wrong]
        self.joint = determination(M, self.U, self.V, ~wrong, noise)
        least = min_support(self.U.shape[1])
        self.determined_row, self.determined_column = (
            np.bincount(line, minlength=counts.size) >= np.maximum(least, TRUSTED * counts)
            for line, counts in ((self.rows, M.row_counts), (self.columns, M.column_counts))
        )
        for determined, lines in zip((self.determined_row, self.determined_column), ambiguous, strict=True):
            determined[list(lines)] = False

    def _positions(self, i: ArrayLike, j: ArrayLike) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows and columns, broadcast; negative numbers count from the end."""
        m, n = self.M.shape
        row, column = np.broadcast_arrays(np.arange(m)[np.asarray(i)], np.arange(n)[np.asarray(j)])
        return row, column

    def determined(self, i: ArrayLike, j: ArrayLike) -> NDArray[np.bool_]:
        """Whether L is determined at (i, j)."""
        row, column = self._positions(i, j)
        alone = self.determined_row[row] & self.determined_column[column]
        return np.asarray(alone & self.joint.determined(row, column))

    def standard_errors(self, i: ArrayLike, j: ArrayLike) -> Float:
        """Standard errors of L at (i, j) under normal noise; infinite where it is not determined.

        To first order in the noise the errors of the i-th row of U and of the j-th column of V add up:
        σ² (v_jᵀ (Σ v vᵀ)⁻¹ v_j + u_iᵀ (Σ u uᵀ)⁻¹ u_i), summed over the good entries of the row, and of the column.
        Between parts of the data with few entries in common the error is larger; it is estimated from random draws.
        """
        at_row, at_column = self._positions(i, j)
        row, column = at_row.ravel(), at_column.ravel()
        by_row = _leverage(self.rows, self.V[self.columns], row, self.V[column])
        by_column = _leverage(self.columns, self.U[self.rows], column, self.U[row])
        alone = self.noise * np.sqrt(by_row + by_column)
        errors = np.maximum(alone, AT_LEAST * self.joint.deviation(row, column) if self.noise else 0.0)
        errors[~self.determined(row, column)] = np.inf
        return np.asarray(errors).reshape(at_row.shape)


def _leverage(line: NDArray[np.int32], given: Float, wanted: NDArray[np.intp], at: Float) -> Float:
    """atᵀ (Σ given givenᵀ)⁻¹ at, summed over the entries of the wanted line; infinite if the sum is singular."""
    lines, index = np.unique(wanted, return_inverse=True)
    kept = np.isin(line, lines)
    k, given = np.searchsorted(lines, line[kept]), given[kept]
    sizes, vectors = np.linalg.eigh(line_grams(k, given, np.ones(k.size), lines.size))
    regular = sizes[:, :1] > 1e-12 * sizes[:, -1:]
    sizes = np.where(regular & (sizes > 0), sizes, np.nan)
    rotated = np.einsum("kab,ka->kb", vectors[index], at)
    return np.asarray(np.nan_to_num(np.sum(rotated**2 / sizes[index], axis=1), nan=np.inf), dtype=np.float64)
