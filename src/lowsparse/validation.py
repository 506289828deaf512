"""Entries kept aside: the honest way to choose a rank or a method, and to say how well missing entries are known.

What is kept aside are entries, not rows or columns: a fit never sees them, and then has to predict them. They may be
outliers themselves, which no fit can predict, so large errors count only up to a bound that is the same for everyone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .entries.observed import ObservedMatrix
from .linalg.lowrank import LowRank
from .linalg.scale import OUTLIER, robust_scale
from .solve import solve
from .solvers import Solver
from .solvers.start import generator
from .sweeps import Float

__all__ = ["Candidate", "Holdout", "Validation", "bound_of", "count_up_to", "cross_validate", "holdout"]


@dataclass(frozen=True)
class Holdout:
    """A matrix without some of its entries, and those entries.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 50, rank=2, density=0.7, outliers=0.05, random_state=1)
    >>> split = ls.holdout(problem.M, 0.1, random_state=5)
    >>> split.error(ls.solve(split.M, rank=2).L) < 0.1 < split.error(ls.solve(split.M, rank=1).L)
    True
    """

    M: ObservedMatrix  # what may be seen
    rows: NDArray[np.int32]  # what was kept aside
    columns: NDArray[np.int32]
    values: NDArray[np.floating[Any]]
    bound: float  # an error counts up to this: four times the robust scale of the data

    def residual(self, L: LowRank) -> Float:
        """L - M where M was kept aside."""
        return np.asarray(L.at(self.rows, self.columns) - self.values, dtype=np.float64)

    def error(self, L: LowRank) -> float:
        """The mean absolute error of L on what was kept aside, each counted up to `bound`; infinite if nothing was."""
        return float(np.mean(self.bounded(L))) if self.values.size else math.inf

    def bounded(self, L: LowRank) -> Float:
        """The absolute errors, each up to `bound`."""
        return count_up_to(self.bound, self.residual(L))


def holdout(
    M: ObservedMatrix | Any, fraction: float = 0.1, random_state: int | np.random.Generator | None = 0
) -> Holdout:
    """Keep a share of the observed entries aside, at random.

    Every row and column that has entries keeps one, so the share is a little smaller where lines have few.

    >>> split = holdout(np.arange(1.0, 101.0).reshape(10, 10), 0.2, random_state=1)
    >>> split.M.nnz, split.values.size
    (80, 20)
    """
    M = ObservedMatrix.from_any(M)
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must be between 0 and 1, not {fraction!r}")
    order, free = _order(M, generator(random_state))
    return _split(M, np.sort(order[free][: round(fraction * M.nnz)]))


def _order(M: ObservedMatrix, rng: np.random.Generator) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The entries in random order, and which of them may go: in each row and column the first must stay."""
    order = rng.permutation(M.nnz)
    free = np.ones(M.nnz, bool)
    for line in (M.rows, M.columns_of_entries()):
        free[np.unique(line[order], return_index=True)[1]] = False
    return order, free


def _split(M: ObservedMatrix, aside: NDArray[np.intp]) -> Holdout:
    kept = np.ones(M.nnz, bool)
    kept[aside] = False
    columns = M.columns_of_entries()[aside]
    lost = np.concatenate(([0], np.cumsum(np.bincount(columns, minlength=M.shape[1]))))
    return Holdout(
        M=ObservedMatrix(M.indptr - lost, M.rows[kept], M.values[kept], M.shape),
        rows=M.rows[aside],
        columns=columns,
        values=M.values[aside],
        bound=bound_of(M.values),
    )


def bound_of(values: NDArray[np.floating[Any]]) -> float:
    """What an error counts at most: four times the robust scale of the data about their median.

    >>> round(bound_of(np.array([1.0, 2.0, 3.0, 1000.0])), 3)
    5.93
    """
    x = values.astype(np.float64)
    return OUTLIER * robust_scale(x - np.median(x)) or float(np.max(np.abs(x))) or 1.0


def count_up_to(bound: float, e: Float) -> Float:
    """|e|, each up to the bound.

    >>> count_up_to(2.0, np.array([1.0, -5.0])).tolist()
    [1.0, 2.0]
    """
    return np.minimum(np.abs(e), bound)


@dataclass(frozen=True)
class Candidate:
    """A rank and a method, and how well they predict what they have not seen.

    >>> candidate = Candidate(rank=2, method="ladder", errors=(0.1, 0.3), converged=(True, True))
    >>> candidate.error, round(candidate.standard_error, 9)
    (0.2, 0.1)
    """

    rank: int | str | None
    method: str
    errors: tuple[float, ...]  # of each fold (see `Holdout.error`)
    converged: tuple[bool, ...]

    @property
    def error(self) -> float:
        """The mean over the folds."""
        return float(np.mean(self.errors))

    @property
    def standard_error(self) -> float:
        """Of that mean, from the spread of the folds."""
        return float(np.std(self.errors, ddof=1) / math.sqrt(len(self.errors)))


@dataclass(frozen=True)
class Validation(Sequence[Candidate]):
    """All candidates, in the order they were given; `best` is the one with the smallest error.

    >>> few, many = (Candidate(rank, "ladder", (error, error), (True, True)) for rank, error in ((1, 0.2), (9, 0.3)))
    >>> found = Validation((few, many))
    >>> found.best.rank, found.simplest.rank, len(found)
    (1, 1, 2)
    """

    candidates: tuple[Candidate, ...]

    def __getitem__(self, k: Any) -> Any:
        return self.candidates[k]

    def __len__(self) -> int:
        return len(self.candidates)

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.candidates)

    @property
    def best(self) -> Candidate:
        """The candidate with the smallest error."""
        return min(self.candidates, key=lambda candidate: candidate.error)

    @property
    def simplest(self) -> Candidate:
        """The first candidate whose error is within a standard error of the best: give the ranks in ascending order."""
        bound = self.best.error + self.best.standard_error
        return next(candidate for candidate in self.candidates if candidate.error <= bound)

    def rows(self) -> list[dict[str, Any]]:
        """The candidates as dictionaries, ready for a table or `pandas.DataFrame`."""
        return [
            {
                "rank": candidate.rank,
                "method": candidate.method,
                "error": candidate.error,
                "standard_error": candidate.standard_error,
                "converged": sum(candidate.converged),
                "folds": len(candidate.errors),
            }
            for candidate in self.candidates
        ]

    def __str__(self) -> str:
        lines = [f"{'rank':>6}  {'method':<12}  {'error':>10}  {'+-':>9}  converged"]
        for row in self.rows():
            lines.append(
                f"{row['rank']!s:>6}  {row['method']:<12}  {row['error']:>10.4g}  {row['standard_error']:>9.2g}  "
                f"{row['converged']} of {row['folds']}"
            )
        return "\n".join(lines)


def cross_validate(
    M: ObservedMatrix | Any,
    rank: int | str | Sequence[int | str | None] | None,
    *,
    method: str | Solver | Sequence[str | Solver] = "auto",
    folds: int = 5,
    random_state: int | np.random.Generator | None = 0,
    max_iter: int = 500,
    tol: float = 1e-8,
    backend: str = "auto",
    callback: Callable[[int, int], object] | None = None,
) -> Validation:
    """Predict every entry from the others, a part of them at a time, by each rank and method; see who does it best.

    Parameters
    ----------
    M
        An `ObservedMatrix`, or anything `solve` takes.
    rank, method
        One or several of each; all pairs are tried, on the same folds.
    folds
        Parts into which the entries are split, at random; two or more. The first entry of each row and column, in a
        random order, is always seen.
    random_state
        A seed or a generator, of the folds. The solver has its own.
    max_iter, tol, backend
        As in `solve`.
    callback
        Called with the number of fits done and to do.

    Returns
    -------
    Validation
        A sequence of `Candidate`, with ``best`` and ``simplest``; print it for a table.

    Examples
    --------
    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 50, rank=2, density=0.8, outliers=0.1, noise=0.1, random_state=1)
    >>> ls.cross_validate(problem.M, [1, 2, 3], folds=3).simplest.rank
    2
    """
    M = ObservedMatrix.from_any(M)
    if isinstance(folds, bool) or not isinstance(folds, int | np.integer) or folds < 2:
        raise ValueError(f"folds must be a whole number of 2 or more, not {folds!r}")
    ranks = [rank] if rank is None or isinstance(rank, str | int | np.integer) else list(rank)
    methods = [method] if isinstance(method, str | Solver) else list(method)
    if not ranks or not methods:
        raise ValueError("there is nothing to compare: give a rank and a method")
    order, free = _order(M, generator(random_state))
    order = order[free]
    if order.size < folds:
        raise ValueError(f"{order.size} entries can be kept aside, too few for {folds} folds: give fewer, or more data")
    splits = [_split(M, np.sort(order[k::folds])) for k in range(folds)]
    candidates, done, total = [], 0, len(ranks) * len(methods) * folds
    for own_method in methods:
        for own_rank in ranks:
            results = []
            for split in splits:
                result = solve(
                    split.M, own_rank, method=own_method, max_iter=max_iter, tol=tol, backend=backend, random_state=0
                )
                results.append((split.error(result.L), result.converged))
                done += 1
                if callback is not None:
                    callback(done, total)
            errors, converged = zip(*results, strict=True)
            name = own_method if isinstance(own_method, str) else own_method.name
            candidates.append(Candidate(own_rank, name, errors, converged))
    return Validation(tuple(candidates))
