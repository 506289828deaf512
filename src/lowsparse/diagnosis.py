"""Whether data determine a low-rank matrix: counts, coherence, noise and outliers, as figures and as advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .entries.observed import ObservedMatrix
from .entries.protocol import PartialMatrix
from .linalg.grassmann import leverages
from .linalg.lowrank import LowRank
from .linalg.scale import robust_scale
from .robust.joint import determination
from .support.format import percent
from .sweeps import enough

if TYPE_CHECKING:
    from .result import Result

__all__ = ["Certainty", "Diagnosis", "coherence", "examine", "largest_rank"]

FEW = 3  # entries of a line, in multiples of the rank
TRUSTED = 0.3  # of the entries of a line: so many must be right for L to be determined there
AT_LEAST = 0.6  # of a deviation that a few draws tell: chance makes it larger or smaller by a third


@dataclass(frozen=True)
class Diagnosis:
    """What a solve has learnt about the data; `print` it for advice.

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
    message: str  # its words
    oversampling: float  # entries / parameters, r (m + n - r)
    entries_per_row: tuple[int, float]  # least and median
    entries_per_column: tuple[int, float]
    poor_rows: NDArray[np.intp]  # those with fewer than three times the rank entries that are no outliers
    poor_columns: NDArray[np.intp]
    coherence: tuple[float, float]  # of rows and columns: from 1 (all alike) to m / r (one row alone has a component)
    outlier_share: float  # of the entries
    signal: float  # root mean square of L on the entries that are no outliers
    noise: float  # standard deviation of the inliers
    held_out: float | None  # robust scale of the residuals of entries kept aside, if some were
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
            f"error of entries kept aside  {held}",
        ]
        return "\n".join(lines + [f"- {text}" for text in self.advice])

    def _repr_html_(self) -> str:
        """A card, in notebooks."""
        from .notebook import diagnosis_card

        return diagnosis_card(self)


def largest_rank(M: PartialMatrix) -> int:
    """The largest rank worth trying: there are twice as many entries as parameters, and it is at most 30.

    >>> largest_rank(ObservedMatrix.from_dense(np.ones((100, 40))))
    16
    """
    m, n = M.shape
    ranks = np.arange(1, min(m, n, 30) + 1)
    return int(max(ranks[2 * ranks * (m + n - ranks) <= M.nnz], default=1))


def coherence(A: NDArray[np.float64]) -> float:
    """The largest leverage of a row, as a multiple of the mean one, of a matrix with few columns.

    >>> coherence(np.eye(4)[:, :2]), round(coherence(np.ones((5, 1))), 12)
    (2.0, 1.0)
    """
    found = leverages(A)
    return float(found.max() / found.mean()) if found.any() else 1.0


def examine(result: Result) -> Diagnosis:
    """The diagnosis of a result."""
    result = result.to_host()
    M, L = result.M, result.L
    m, n = M.shape
    found = max(1, int(np.count_nonzero(np.linalg.norm(L.V, axis=1) > 0)))
    k = found if result.converged else L.rank  # components that were given up may be there all the same
    good_in_row, good_in_column = (
        counts - wrong
        for counts, wrong in zip((M.row_counts, M.column_counts), M.count_lines(result.flagged), strict=True)
    )
    sample = M.sample(100_000)
    fitted = np.asarray(L.at(sample.rows, sample.columns_of_entries()))
    rest = np.abs(fitted - sample.values)
    inlier = rest <= max(4 * result.noise, 4 * robust_scale(rest))
    signal = float(np.sqrt(np.mean(fitted[inlier] ** 2))) if inlier.any() else 0.0
    figures = {
        "oversampling": M.nnz / (k * (m + n - k)),
        "poor_rows": np.flatnonzero(good_in_row < FEW * k),
        "poor_columns": np.flatnonzero(good_in_column < FEW * k),
        "coherence": (coherence(L.U * np.linalg.norm(L.V, axis=1)), coherence(L.V.T)),
        "outlier_share": result.S.nnz / M.nnz,
        "signal": signal,
    }
    return Diagnosis(
        shape=M.shape,
        entries=M.nnz,
        rank=k,
        recovered=result.converged,
        message=result.message,
        entries_per_row=(int(M.row_counts.min()), float(np.median(M.row_counts))),
        entries_per_column=(int(M.column_counts.min()), float(np.median(M.column_counts))),
        noise=result.noise,
        held_out=result.held_out,
        advice=_advice(M, k, result, **figures),
        **figures,
    )


def _advice(
    M: PartialMatrix,
    rank: int,
    result: Result,
    *,
    oversampling: float,
    poor_rows: NDArray[np.intp],
    poor_columns: NDArray[np.intp],
    coherence: tuple[float, float],
    outlier_share: float,
    signal: float,
) -> tuple[str, ...]:
    """What the figures mean, and what to do."""
    m, n = M.shape
    found = []
    if oversampling < 1:
        found.append(
            "there are fewer entries than parameters: no method can recover this; lower the rank or observe more"
        )
    elif oversampling < 2:
        found.append("there are hardly more entries than parameters: lower the rank or observe more")
    for name, poor, total in (("rows", poor_rows, m), ("columns", poor_columns, n)):
        if poor.size:
            found.append(
                f"{poor.size} of {total} {name} have fewer than {FEW * rank} good entries: leave them out, or do not "
                f"trust L there"
            )
    for name, value, total in (("row", coherence[0], m), ("column", coherence[1], n)):
        if value > 0.8 * total / rank and total > 3 * rank:
            found.append(
                f"one {name} has a component almost alone: it may be an outlier itself, or the rank is too large"
            )
    if outlier_share > 0.35:
        found.append(
            "more than a third of the entries disagree with the fit: the limit of what can be recovered is near"
        )
    if result.noise > 0.5 * signal:
        found.append("the noise is as large as the signal: a lower rank may predict better (rank='auto')")
    if not result.converged:
        found.append("the method has not met its own test: do not rely on L; see the message above")
    return tuple(found) or ("nothing speaks against this result",)


class Certainty:
    """What the entries of M that are not `wrong` say of L: where they determine it, and how closely."""

    def __init__(
        self, M: ObservedMatrix, L: LowRank, wrong: NDArray[np.bool_], noise: float, backend: str = "auto"
    ) -> None:
        self.M, self.noise = M, noise
        present = np.linalg.norm(L.V, axis=1) > 0
        self.U, self.V = L.U[:, present], np.ascontiguousarray(L.V[present].T)
        self.rows, self.columns = M.rows[~wrong], M.columns_of_entries()[~wrong]
        self.joint = determination(M, self.U, self.V, ~wrong, noise, backend)
        least = enough(self.U.shape[1])
        self.telling = tuple(
            np.bincount(line, minlength=counts.size) >= np.maximum(least, TRUSTED * counts)
            for line, counts in ((self.rows, M.row_counts), (self.columns, M.column_counts))
        )

    def places(self, i: ArrayLike, j: ArrayLike) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows and columns, broadcast; negative numbers count from the end."""
        m, n = self.M.shape
        row, column = np.broadcast_arrays(np.arange(m)[np.asarray(i)], np.arange(n)[np.asarray(j)])
        return row, column

    def determined(self, i: ArrayLike, j: ArrayLike) -> NDArray[np.bool_]:
        """Whether L is determined at (i, j)."""
        row, column = self.places(i, j)
        return np.asarray(self.telling[0][row] & self.telling[1][column] & self.joint.determined(row, column))

    def standard_errors(self, i: ArrayLike, j: ArrayLike) -> NDArray[np.float64]:
        """Standard errors of L at (i, j) under normal noise; infinite where it is not determined.

        To first order in the noise the errors of the i-th row of U and of the j-th column of V add up:
        σ² (v_jᵀ (Σ v vᵀ)⁻¹ v_j + u_iᵀ (Σ u uᵀ)⁻¹ u_i), summed over the good entries of the row, and of the column.
        Where parts of the data hang together loosely their common error is larger, which draws of it tell.
        """
        m, n = self.M.shape
        at_row, at_column = self.places(i, j)
        row, column = at_row.ravel(), at_column.ravel()
        by_row = _leverage(self.rows, self.V[self.columns], row, self.V[column], m)
        by_column = _leverage(self.columns, self.U[self.rows], column, self.U[row], n)
        alone = self.noise * np.sqrt(by_row + by_column)
        errors = np.maximum(alone, AT_LEAST * self.joint.deviation(row, column) if self.noise else 0.0)
        errors[~self.determined(row, column)] = np.inf
        return np.asarray(errors).reshape(at_row.shape)


def _leverage(
    line: NDArray[np.int32],
    given: NDArray[np.float64],
    wanted: NDArray[np.intp],
    at: NDArray[np.float64],
    lines: int,
) -> NDArray[np.float64]:
    """atᵀ (Σ given givenᵀ)⁻¹ at, where the sum runs over the entries of the wanted line; infinite if it is singular."""
    asked, place = np.unique(wanted, return_inverse=True)
    number = np.full(lines, -1)
    number[asked] = np.arange(asked.size)
    of = number[line]
    kept = of >= 0
    of, given = of[kept], given[kept]
    r = given.shape[1]
    gram = np.empty((asked.size, r, r))
    for a in range(r):
        for b in range(a + 1):
            gram[:, a, b] = gram[:, b, a] = np.bincount(of, weights=given[:, a] * given[:, b], minlength=asked.size)
    sizes, vectors = np.linalg.eigh(gram)
    regular = sizes[:, :1] > 1e-12 * sizes[:, -1:]
    sizes = np.where(regular & (sizes > 0), sizes, np.nan)
    turned = np.einsum("kab,ka->kb", vectors[place], at)
    return np.asarray(np.nan_to_num(np.sum(turned**2 / sizes[place], axis=1), nan=np.inf), dtype=np.float64)
