"""What a solve gives back: `Result`, its `Status`, and its `Trace`."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .diagnosis import Certainty, Diagnosis, examine
from .entries.observed import ObservedMatrix
from .entries.protocol import Outliers, PartialMatrix, PerEntry
from .linalg.arrays import host
from .linalg.lowrank import LowRank
from .notebook import result_card
from .robust.bands import EntryBands
from .robust.calibration import Interval
from .robust.holdout import hold_out
from .robust.regression import EXPLAINED
from .support.checks import check_share

KEPT_ASIDE, MOST_KEPT_ASIDE = 0.1, 20_000  # share of the entries by which bands are calibrated, and how many at most


class Status(Enum):
    """How a solve ended.

    >>> Status.CONVERGED.value
    'converged'
    """

    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    MAX_TIME = "max_time"
    STALLED = "stalled"
    DIVERGED = "diverged"
    STOPPED_BY_CALLBACK = "stopped_by_callback"


class Trace(Mapping[str, NDArray[np.float64]]):
    """The history of a solve as columns, one row per iteration.

    Every method has: iteration, seconds (without the time spent in callbacks), objective, gamma, dS, dU, change. A
    method may add its own.

    >>> trace = Trace()
    >>> trace.append(iteration=1, objective=2.5)
    >>> trace.append(iteration=2, objective=1.5)
    >>> trace["objective"].tolist(), len(trace.rows())
    ([2.5, 1.5], 2)
    """

    def __init__(self, columns: Mapping[str, ArrayLike] | None = None) -> None:
        self._columns: dict[str, list[float]] = {k: np.asarray(v).tolist() for k, v in (columns or {}).items()}

    def append(self, **row: float) -> None:
        """Add an iteration.

        Parameters
        ----------
        row
            The columns by name; every iteration has the same.

        Raises
        ------
        ValueError
            If the columns are not those of the iterations before.
        """
        if self._columns and self._columns.keys() != row.keys():
            raise ValueError(f"a row must have the columns {list(self._columns)}")
        for name, value in row.items():
            self._columns.setdefault(name, []).append(float(value))

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        if name not in self._columns:
            raise KeyError(f"no column {name!r}; there are {list(self._columns)}")
        return np.array(self._columns[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def rows(self) -> list[dict[str, float]]:
        """The iterations, ready for a table or `pandas.DataFrame`.

        Returns
        -------
        list of dict
            One for each iteration, its columns by name.
        """
        return [dict(zip(self._columns, values, strict=True)) for values in zip(*self._columns.values(), strict=True)]

    def __repr__(self) -> str:
        n = len(next(iter(self._columns.values()), []))
        return f"Trace({n} iterations: {', '.join(self._columns)})"


@dataclass(frozen=True)
class Stationarity:
    """How far (U, S) is from a stationary point of its problem, separately for U and for S.

    >>> Stationarity(U=1e-9, S=1e-8).U
    1e-09
    """

    U: float  # ‖grad_U f(U, S)‖_F
    S: float  # ‖S - prox(S - ∇_S f(U, S))‖_F


@dataclass(frozen=True)
class Result:
    """M = L + S on Ω: the low-rank part, the outliers, and how they were found.

    >>> import lowsparse as ls
    >>> r = ls.solve([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 2.0, float("nan")]], rank=1)
    >>> r.converged, round(float(r.L.at(2, 2)), 4)
    (True, 3.0)
    """

    L: LowRank  # L.U is orthonormal
    S: Outliers  # non-zeros on Ω: a scipy.sparse.csc_array, or its equivalent where M is not in memory
    status: Status
    message: str  # what happened, and what to do if it was not convergence
    method: str
    n_iter: int
    objective: float  # of the method's own problem, at its last parameters
    stationarity: Stationarity | None  # of the paper's methods
    seconds: float
    backend: str
    M: PartialMatrix  # the data
    flagged: PerEntry  # indices of the outliers among the entries of M
    noise: float  # standard deviation of the inliers, estimated
    held_out: float | None  # robust scale of the residuals of held-out entries, if the method holds some out
    trace: Trace
    next_noise: float | None = None  # the noise with one rank more, if the method found that far less
    notes: tuple[str, ...] = ()  # what the data lack, such as rows with too few entries
    ambiguous: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())  # rows and columns with two fits: L is open there
    solve_again: Callable[[ObservedMatrix], Result] | None = field(default=None, repr=False, compare=False)

    @property
    def converged(self) -> bool:
        """Whether the method met its own test."""
        return self.status is Status.CONVERGED

    @functools.cached_property
    def diagnostics(self) -> Diagnosis:
        """How well the data determine this result: counts, coherence, noise and outliers, with advice."""
        return examine(self)

    @property
    def is_outlier(self) -> NDArray[np.bool_]:
        """For each entry of `M`, in its order, whether it is an outlier.

        >>> import lowsparse as ls
        >>> problem = ls.datasets.synthetic(60, 50, rank=1, density=0.5, outliers=0.1, random_state=1)
        >>> bool((ls.solve(problem.M, rank=1).is_outlier == (problem.S != 0)).all())
        True
        """
        flags = np.zeros(self.M.nnz, bool)
        flags[host(self.flagged)] = True
        return flags

    def to_host(self) -> Result:
        """The same result with arrays of NumPy and SciPy, if it is on a GPU.

        Returns
        -------
        Result
            Itself, if it is not.

        Examples
        --------
        >>> import lowsparse as ls
        >>> r = ls.solve([[1.0, 2.0], [2.0, 4.0]], rank=1)
        >>> r.to_host() is r
        True
        """
        if not self.M.on_gpu:
            return self
        M, flagged = self.M.to_host(), host(self.flagged)
        S = M.outliers(flagged, host(self.S.data))
        return dataclasses.replace(self, L=self.L.to_host(), S=S, M=M, flagged=flagged)

    def standard_error(self, i: ArrayLike, j: ArrayLike) -> np.float64 | NDArray[np.float64]:
        """The standard errors of the entries (i, j) of L, to first order under normal noise of the estimated size.

        Parameters
        ----------
        i, j
            Rows and columns: integers, or arrays that are broadcast.

        Returns
        -------
        float or array
            Infinite where the entries do not determine L.

        Examples
        --------
        >>> import lowsparse as ls
        >>> problem = ls.datasets.synthetic(80, 70, rank=2, density=0.7, outliers=0.1, noise=0.1, random_state=1)
        >>> r = ls.solve(problem.M, rank=2)
        >>> bool(0.01 < r.standard_error(3, 4) < 0.1)
        True
        """
        return self._certainty.standard_errors(i, j)[()]

    def determined(self, i: ArrayLike, j: ArrayLike) -> np.bool_ | NDArray[np.bool_]:
        """Whether the inliers determine the entries (i, j) of L; where they do not, do not rely on L.

        L is not determined in rows and columns with too few inliers, or that are `ambiguous`, between parts of the data
        with too few entries in common, and where noise dominates. Each entry is judged to first order around L.

        Parameters
        ----------
        i, j
            Rows and columns: integers, or arrays that are broadcast.

        Returns
        -------
        bool or array of bool
            One for two integers, else an array of the broadcast shape.

        Examples
        --------
        >>> import numpy as np, lowsparse as ls
        >>> X = np.outer(np.arange(1.0, 21.0), np.arange(1.0, 31.0))
        >>> X[:10, 15:] = X[10:, :15] = np.nan  # two blocks that share no row and no column
        >>> r = ls.solve(X, rank=1)
        >>> bool(r.determined(3, 4)), bool(r.determined(3, 20))
        (True, False)
        """
        return self._certainty.determined(i, j)[()]

    def interval(self, i: ArrayLike, j: ArrayLike, level: float = 0.9) -> Interval:
        """Bands that hold the values at (i, j) with a given probability.

        They are for values as they would be observed, with their noise, were they no gross errors. The first call
        solves the data again without a tenth of the entries, and measures the errors there, by the noise of the row and
        the column and by how well their entries determine L (split conformal prediction). The bands are those about
        the L of this second fit, so `value` is not quite in their middle. They hold what they say on average over
        entries that are missing as these were, whatever the noise and even if the rank is wrong. They are infinite
        where less is known than at nearly all of those, as between parts of the data that share no row and no column;
        where the fit is exact they are not narrower than a solve is accurate.

        Parameters
        ----------
        i, j
            Rows and columns: integers, or arrays that are broadcast.
        level
            The probability, between 0 and 1.

        Returns
        -------
        Interval
            ``value`` (that of L), ``lower`` and ``upper``.

        Raises
        ------
        ValueError
            If too few entries can be kept aside for a band of this level.
        TypeError
            If the data are not in memory.

        Examples
        --------
        >>> import lowsparse as ls
        >>> problem = ls.datasets.synthetic(80, 70, rank=2, density=0.7, outliers=0.1, noise=0.1, random_state=1)
        >>> value, lower, upper = ls.solve(problem.M, rank=2).interval(3, [4, 5, 6])
        >>> bool(((0.1 < upper - value) & (upper - value < 0.3)).all())
        True
        """
        check_share("level", level)
        bands, second = self._bands
        needed = math.ceil(level / (1 - level) - 1e-9)
        if bands.count < needed:
            raise ValueError(
                f"a band of {level:g} needs {needed} entries that can be kept aside, there are {bands.count}: give a "
                "lower level, or more data"
            )
        row, column = (np.arange(size)[np.asarray(k)] for size, k in zip(self.L.shape, (i, j), strict=True))
        row, column = np.broadcast_arrays(row, column)
        at = row.ravel(), column.ravel()
        width = bands.half_widths(*at, second._relative_error(*at), level).reshape(row.shape)
        width = np.maximum(width, EXPLAINED * self.M.median_magnitude())[()]
        # calibrated about the second fit, and not narrower for what the first one says
        value, other = self.L.to_host().at(row, column), second.L.at(row, column)
        return Interval(value, np.minimum(value, other - width), np.maximum(value, other + width))

    @functools.cached_property
    def _bands(self) -> tuple[EntryBands, Result]:
        """Bands, and the fit without the entries by which they are calibrated."""
        if self.M.in_pieces:
            raise TypeError("bands are for data in memory: solve a part of the columns in memory")
        if self.solve_again is None:
            raise ValueError("bands need a second solve, and this result does not know how it was solved: solve anew")
        M = self.M.to_host()
        split = hold_out(M, min(KEPT_ASIDE, MOST_KEPT_ASIDE / M.nnz), np.random.default_rng([0x62616E64, M.nnz]))
        second = self.solve_again(split.M).to_host()
        return EntryBands.fit(split, second.L, second._relative_error(split.rows, split.columns)), second

    def _relative_error(self, i: ArrayLike, j: ArrayLike) -> NDArray[np.float64]:
        """Standard errors of L in units of the noise; where the inliers do not determine it, those with their prior.

        They are infinite in rows and columns without entries and, if there is no noise, wherever L is not determined.
        """
        row, column, negligible = np.asarray(i), np.asarray(j), EXPLAINED * self.M.median_magnitude()
        errors = self._certainty.standard_errors(row, column)
        poor = np.isinf(errors) & (self.M.row_counts[row] > 0) & (self.M.column_counts[column] > 0)
        if self.noise > negligible:
            errors[poor] = self._certainty.joint.deviation(row[poor], column[poor])
        return errors / max(self.noise, negligible, np.finfo(float).tiny)

    @functools.cached_property
    def _certainty(self) -> Certainty:
        if self.M.in_pieces:
            raise TypeError(
                "what determines L is examined for data in memory only: solve a part of the columns in memory"
            )
        result = self.to_host()
        return Certainty(result.M.to_host(), result.L, result.is_outlier, result.noise, result.ambiguous)

    def __repr__(self) -> str:
        m, n = self.L.shape
        return (
            f"Result({m} x {n}, rank {self.L.rank}, {self.S.nnz} outliers, {self.method} on {self.backend}: "
            f"{self.status.value} after {self.n_iter} iterations, {self.seconds:.3g} s)"
        )

    def _repr_html_(self) -> str:
        """A card, in notebooks."""
        return result_card(self)
