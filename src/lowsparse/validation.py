"""Held-out entries: to choose a rank or a method, and to measure how well missing entries are predicted.

Single entries are held out, not rows or columns. They may be outliers, which no fit can predict, so an error counts
only up to a bound that is the same for every fit.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from .entries.observed import ObservedMatrix
from .robust.holdout import Holdout, hold_out, removable, split_off
from .solve import solve
from .solvers import Solver
from .solvers.start import generator
from .support.checks import check_count, check_share


def holdout(
    M: ObservedMatrix | Any, fraction: float = 0.1, random_state: int | np.random.Generator | None = 0
) -> Holdout:
    """Hold out a random share of the observed entries.

    Every row and column with entries keeps one of them, so the share is a little smaller where they have few.

    Parameters
    ----------
    M
        An `ObservedMatrix`, or anything `solve` takes.
    fraction
        Share of the observed entries, between 0 and 1.
    random_state
        A seed or a generator.

    Returns
    -------
    Holdout
        `M` with what was kept, and the `rows`, `columns` and `values` of what was held out.

    Raises
    ------
    ValueError
        If `fraction` is not between 0 and 1.

    Examples
    --------
    >>> split = holdout(np.arange(1.0, 101.0).reshape(10, 10), 0.2, random_state=1)
    >>> split.M.nnz, split.values.size
    (80, 20)
    """
    M = ObservedMatrix.from_any(M)
    check_share("fraction", fraction)
    return hold_out(M, fraction, generator(random_state))


@dataclass(frozen=True)
class Candidate:
    """A rank and a method, and how well they predict held-out entries.

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

    @overload
    def __getitem__(self, k: int) -> Candidate: ...
    @overload
    def __getitem__(self, k: slice) -> tuple[Candidate, ...]: ...
    def __getitem__(self, k: int | slice) -> Candidate | tuple[Candidate, ...]:
        return self.candidates[k]

    def __len__(self) -> int:
        return len(self.candidates)

    @property
    def best(self) -> Candidate:
        """The candidate with the smallest error."""
        return min(self.candidates, key=lambda candidate: candidate.error)

    @property
    def simplest(self) -> Candidate:
        """The first candidate whose error is within a standard error of the best: give the ranks in ascending order."""
        bound = self.best.error + self.best.standard_error
        return next(candidate for candidate in self.candidates if candidate.error <= bound)

    def rows(self) -> list[dict[str, object]]:
        """The candidates, ready for a table or `pandas.DataFrame`.

        Returns
        -------
        list of dict
            For each candidate: rank, method, error, standard_error, how many folds converged, the number of folds.
        """
        return [
            {
                **{name: getattr(candidate, name) for name in ("rank", "method", "error", "standard_error")},
                "converged": sum(candidate.converged),
                "folds": len(candidate.errors),
            }
            for candidate in self.candidates
        ]

    def __str__(self) -> str:
        line = "{rank!s:>6}  {method:<12}  {error:>10.4g}  {standard_error:>9.2g}  {converged} of {folds}"
        head = f"{'rank':>6}  {'method':<12}  {'error':>10}  {'+-':>9}  converged"
        return "\n".join([head, *(line.format(**row) for row in self.rows())])


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
    """Predict the entries of each fold from the others, by each rank and method.

    Parameters
    ----------
    M
        An `ObservedMatrix`, or anything `solve` takes.
    rank, method
        One or several of each; all pairs are tried, on the same folds.
    folds
        Number of random parts of the entries. The first entry of each row and column, in a random order, is in none.
    random_state
        A seed or a generator for the folds. The solver has its own.
    max_iter, tol, backend
        As in `solve`.
    callback
        Called with the number of fits done and the total.

    Returns
    -------
    Validation
        A sequence of `Candidate`, with ``best`` and ``simplest``; print it for a table.

    Raises
    ------
    ValueError
        If there is no rank or no method, or fewer than two folds.

    Examples
    --------
    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 50, rank=2, density=0.8, outliers=0.1, noise=0.1, random_state=1)
    >>> ls.cross_validate(problem.M, [1, 2], folds=2).simplest.rank
    2
    """
    M = ObservedMatrix.from_any(M)
    folds = check_count("folds", folds, 2)
    ranks = [rank] if rank is None or isinstance(rank, str | int | np.integer) else list(rank)
    methods = [method] if isinstance(method, str | Solver) else list(method)
    if not ranks or not methods:
        raise ValueError("there is nothing to compare: give a rank and a method")
    entries = removable(M, generator(random_state))
    if entries.size < folds:
        raise ValueError(f"{entries.size} entries can be held out, too few for {folds} folds: give fewer, or more data")
    splits = [split_off(M, entries[k::folds]) for k in range(folds)]
    pairs = [(method, rank) for method in methods for rank in ranks]
    candidates = []
    for k, (method, rank) in enumerate(pairs):
        results = []
        for done, split in enumerate(splits, k * folds + 1):
            fit = solve(split.M, rank, method=method, max_iter=max_iter, tol=tol, backend=backend, random_state=0)
            results.append((split.error(fit.L), fit.converged))
            if callback is not None:
                callback(done, folds * len(pairs))
        errors, converged = zip(*results, strict=True)
        candidates.append(Candidate(rank, method if isinstance(method, str) else method.name, errors, converged))
    return Validation(tuple(candidates))
