"""The contract for data: what a partly observed matrix is, wherever its entries are.

Five kinds meet it: `ObservedMatrix` (in memory), and in `lowsparse.places` matrices on a GPU, on disk, streamed to a
GPU, and on a cluster. Code that uses one never asks which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..linalg.lowrank import LowRank
from ..sweeps import Sweep
from .compressed import check_shape

if TYPE_CHECKING:
    from .observed import ObservedMatrix

SAMPLE = 100_000  # values from which the median magnitude is estimated

# One number per observed entry: an array of NumPy; for a matrix on a GPU one of CuPy; for a matrix in pieces a formula,
# evaluated where the pieces are. All take NumPy's functions, so one type stands for them.
PerEntry: TypeAlias = NDArray[Any]


@runtime_checkable
class NumbersInPieces(Protocol):
    """One number per entry of a matrix in pieces, for those who read or write them a piece at a time."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of entries."""

    def parts(self) -> Iterator[NDArray[Any]]:
        """The numbers, piece by piece."""

    def replaced(self, read: Callable[[int], NDArray[Any]]) -> NumbersInPieces:
        """Other numbers in the same place, which ``read(size)`` gives piece by piece."""


class Outliers(Protocol):
    """S: a `scipy.sparse.csc_array`, or what stands for one where the entries are not in memory."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""

    @property
    def nnz(self) -> int:
        """The number of outliers."""

    @property
    def data(self) -> PerEntry:
        """The values of the outliers, column by column."""


class HeldOut(NamedTuple):
    """Entries taken out of a matrix, as arrays of NumPy."""

    rows: NDArray[np.int32]
    columns: NDArray[np.int32]
    values: NDArray[np.float64]


class Recovered(NamedTuple):
    """What a solve returns: factors and outliers, and the data that these belong to."""

    M: PartialMatrix
    L: LowRank
    flagged: PerEntry  # indices of the outliers among the entries of M
    S: Outliers


class MatrixSummary(Protocol):
    """What follows from the shape, the counts of entries and the values of any `PartialMatrix`.

    Examples
    --------
    >>> import lowsparse as ls
    >>> M = ls.ObservedMatrix.from_coo([0, 2], [1, 1], [5.0, 6.0])
    >>> M.density, M.empty_columns.tolist(), M.empty_rows.tolist(), M.check_rank(2)
    (0.3333333333333333, [0], [1], 2)
    """

    __slots__ = ()

    @property
    def density(self: PartialMatrix) -> float:
        """The observed share |Ω| / (m n)."""
        m, n = self.shape
        return float(self.nnz / (m * n))

    @property
    def empty_columns(self: PartialMatrix) -> NDArray[np.intp]:
        """The columns without an entry."""
        return np.flatnonzero(self.column_counts == 0)

    @property
    def empty_rows(self: PartialMatrix) -> NDArray[np.intp]:
        """The rows without an entry."""
        return np.flatnonzero(self.row_counts == 0)

    def median_magnitude(self: PartialMatrix) -> float:
        """The median magnitude of the non-zero values, from a sample.

        Returns
        -------
        float
            0 if all are zero.
        """
        return median_size(self.sample(SAMPLE).values)

    def magnitudes(self: PartialMatrix, clip: float) -> tuple[float, float]:
        """The largest magnitude, and the sum of the squares of all, each taken as at most `clip`.

        Parameters
        ----------
        clip
            A magnitude.

        Returns
        -------
        largest, squares
            Two numbers.
        """
        largest, squares = 0.0, 0.0
        for part in self.parts():
            largest = max(largest, float(part.max()), -float(part.min()))
            clipped = np.clip(part, -clip, clip).astype(np.float64, copy=False)
            with np.errstate(over="ignore"):
                squares += float(clipped @ clipped)
        return largest, squares

    def with_room_for(self, rank: int) -> Self:
        """The same data, prepared for a solve of this rank within the limit of memory.

        Parameters
        ----------
        rank
            The rank of L.

        Returns
        -------
        matrix
            Itself, if nothing is to be prepared.
        """
        return self

    def solving(self, placed: bool) -> AbstractContextManager[None]:
        """The context of a solve, which adds advice to errors.

        Parameters
        ----------
        placed
            Whether the data were brought to their place, such as a cluster, for this solve alone: it is closed
            afterwards.

        Returns
        -------
        context manager
            For the ``with`` around the solve.
        """
        return nullcontext()

    def __repr__(self: PartialMatrix) -> str:
        m, n = self.shape
        share = 100 * self.density
        return f"{type(self).__name__}({m} x {n}, {self.nnz} entries observed ({share:.3g}%), {self.dtype})"

    def check_rank(self: PartialMatrix, rank: object) -> int:
        """`rank` as an int, if a matrix of this shape can have it.

        Parameters
        ----------
        rank
            What was given as a rank.

        Returns
        -------
        int
            The rank.

        Raises
        ------
        TypeError
            If it is not an integer.
        ValueError
            If it is not between 1 and the shorter side.
        """
        return check_rank(rank, self.shape)


class PartialMatrix(MatrixSummary, Protocol):
    """A partly observed m x n matrix M on Ω, its entries sorted by column; immutable."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def nnz(self) -> int:
        """The number of observed entries, |Ω|."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64."""

    @property
    def values(self) -> PerEntry:
        """The observed values."""

    @property
    def column_counts(self) -> NDArray[np.int64]:
        """The number of entries in each column."""

    @property
    def row_counts(self) -> NDArray[np.int64]:
        """The number of entries in each row."""

    @property
    def on_gpu(self) -> bool:
        """Whether its arrays, and the factors of its fit, are in the memory of a GPU."""

    @property
    def in_pieces(self) -> bool:
        """Whether it is processed in pieces: its values are formulas, and its parts are copies in memory."""

    @property
    def largest_part(self) -> int:
        """The number of entries that `take_columns` may bring into memory at once."""

    @property
    def T(self) -> PartialMatrix:  # noqa: N802
        """The transposed matrix."""

    def take_columns(self, which: NDArray[np.intp]) -> Resident | None:
        """Some columns.

        Parameters
        ----------
        which
            Their indices; the columns come in this order.

        Returns
        -------
        matrix or None
            None if they have no entry.
        """

    def with_values(self, values: PerEntry) -> PartialMatrix:
        """Other values at the same positions.

        Parameters
        ----------
        values
            One for each entry, in their order.

        Returns
        -------
        matrix
            With the positions of this one.
        """

    def with_stored_values(self, values: PerEntry) -> PartialMatrix:
        """As `with_values`, but a formula is evaluated once and stored, not in every pass.

        Parameters
        ----------
        values
            One for each entry, in their order.

        Returns
        -------
        matrix
            With the positions of this one.
        """

    def sample(self, size: int) -> Resident:
        """About `size` of the entries, evenly spread over all columns; all if there are not many more.

        Parameters
        ----------
        size
            A number of entries.

        Returns
        -------
        matrix
            In memory, of the same shape.
        """

    def parts(self) -> Iterator[NDArray[Any]]:
        """The values, a part at a time.

        Yields
        ------
        array
            The values of the next entries.
        """

    def to_host(self) -> ObservedMatrix:
        """The matrix in memory.

        Returns
        -------
        ObservedMatrix
            Itself, or a copy.
        """

    def to_host_if_small(self) -> PartialMatrix:
        """The matrix, or a copy for the processor if that would be done before a GPU has started.

        Returns
        -------
        matrix
            Itself, or the copy.
        """

    def open_sweep(self, backend: str = "auto") -> Sweep:
        """The sweep over it.

        Parameters
        ----------
        backend
            For entries in memory: "native" (the compiled core), "numpy", or "auto".

        Returns
        -------
        Sweep
            One pass over the data, for solvers.
        """

    def fingerprint(self) -> str:
        """A digest of the shape and every entry.

        Returns
        -------
        str
            Equal for equal data.
        """

    # -- numbers per entry

    def hold(self, numbers: PerEntry) -> PerEntry:
        """Numbers to be stored: an array is returned as it is, a formula is evaluated where the pieces are.

        Parameters
        ----------
        numbers
            One for each entry.

        Returns
        -------
        array, or its equivalent in pieces
            The same numbers.
        """

    def spread_over_columns(self, numbers: NDArray[Any]) -> PerEntry:
        """For each entry, the number of its column.

        Parameters
        ----------
        numbers
            One for each column.

        Returns
        -------
        array, or its equivalent in pieces
            One number for each entry.
        """

    def spread_over_rows(self, numbers: NDArray[Any]) -> PerEntry:
        """For each entry, the number of its row.

        Parameters
        ----------
        numbers
            One for each row.

        Returns
        -------
        array, or its equivalent in pieces
            One number for each entry.
        """

    def reduce(self, merging: str, function: Callable[..., tuple[Any, ...]], *numbers: PerEntry) -> tuple[Any, ...]:
        """``function(columns, *numbers)`` of all pieces, each item of what it gives merged.

        Parameters
        ----------
        merging
            For each item, "+" (they are added) or "|" (they are concatenated).
        function
            Called with a matrix of consecutive columns in memory and the numbers of its entries; a matrix in memory or
            on a GPU is one piece. It must be one that pickle knows: it may be sent to another process.
        numbers
            One for each entry.

        Returns
        -------
        tuple
            The merged items.
        """

    def count_lines(self, flagged: PerEntry) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Count entries in each row, and in each column.

        Parameters
        ----------
        flagged
            The indices of the entries.

        Returns
        -------
        by_row, by_column
            Two arrays of counts.
        """

    # -- a solve

    def outliers(self, flagged: PerEntry, values: PerEntry) -> Outliers:
        """S with these values at these entries.

        Parameters
        ----------
        flagged
            The indices of the outliers among the entries.
        values
            Their values.

        Returns
        -------
        scipy.sparse.csc_array, or its equivalent
            Where the matrix is.
        """

    def recovered(self, L: LowRank, flagged: PerEntry, values: PerEntry) -> Recovered:
        """The result of a solve, where it is to be: large factors may stay on disk.

        Parameters
        ----------
        L
            The low-rank part.
        flagged, values
            As for `outliers`.

        Returns
        -------
        Recovered
            The data, L and S.
        """


class Resident(PartialMatrix, Protocol):
    """A matrix whose entries are arrays of NumPy or CuPy."""

    @property
    def indptr(self) -> NDArray[np.int64]:
        """Where each column starts."""

    @property
    def rows(self) -> NDArray[np.int32]:
        """The row of each entry."""

    @property
    def T(self) -> Resident:  # noqa: N802
        """The transposed matrix."""

    def with_values(self, values: PerEntry) -> Resident:
        """Other values at the same positions."""

    def take_rows(self, which: NDArray[np.intp]) -> Resident:
        """Some rows.

        Parameters
        ----------
        which
            Their indices, ascending.

        Returns
        -------
        matrix
            With all columns.
        """

    def split(self, held: NDArray[np.intp]) -> tuple[Resident, HeldOut]:
        """Take entries out.

        Parameters
        ----------
        held
            Their indices, ascending.

        Returns
        -------
        rest, held
            A matrix with all other entries; and the rows, columns and values of those.
        """

    def columns_of_entries(self) -> NDArray[np.int32]:
        """The column of each entry.

        Returns
        -------
        array of int
            In the order of `rows` and `values`.
        """

    def to_host_if_small(self) -> Resident:
        """The matrix, or a copy for the processor if that would be done before a GPU has started."""


class ResidentSummary(MatrixSummary, Protocol):
    """What is the same for all matrices whose entries are arrays, of NumPy or CuPy."""

    __slots__ = ()

    @property
    def nnz(self: Resident) -> int:
        """The number of observed entries, |Ω|."""
        return int(self.values.size)

    @property
    def dtype(self: Resident) -> np.dtype[Any]:
        """float32 or float64."""
        return self.values.dtype

    @property
    def largest_part(self: Resident) -> int:
        """The number of entries that `take_columns` may bring into memory: all are there."""
        return self.nnz

    def hold(self, numbers: PerEntry) -> PerEntry:
        """The array itself."""
        return numbers

    def with_stored_values(self: Resident, values: PerEntry) -> Resident:
        """Other values at the same positions, in the type of the data."""
        return self.with_values(values.astype(self.dtype, copy=False))

    def recovered(self: Resident, L: LowRank, flagged: PerEntry, values: PerEntry) -> Recovered:
        """The result of a solve, which stays where the matrix is."""
        return Recovered(self, L, flagged, self.outliers(flagged, values))


def median_size(values: NDArray[Any]) -> float:
    """The median magnitude of what is not zero; 0 if all is."""
    sizes = np.abs(values).astype(np.float64)
    return float(np.median(sizes[sizes > 0])) if sizes.any() else 0.0


def check_rank(rank: object, shape: tuple[int, int]) -> int:
    """`rank` as an int, if a matrix of this shape can have it; an error otherwise.

    >>> check_rank(3, (2, 5))
    Traceback (most recent call last):
    ValueError: rank is 3; choose 1 to 2 for a 2 x 5 matrix
    """
    if isinstance(rank, bool) or not isinstance(rank, Integral):
        raise TypeError(f"rank must be an integer, not {rank!r}")
    m, n = check_shape(shape)
    if not 1 <= int(rank) <= min(m, n):
        raise ValueError(f"rank is {rank}; choose 1 to {min(m, n)} for a {m} x {n} matrix")
    return int(rank)
