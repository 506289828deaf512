"""The entries of a partly observed matrix; every input format becomes this, once."""

import hashlib
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ..sweeps import HostSweep, open_sweep
from . import compressed
from .compressed import check_compressed, check_shape, compare_neighbours, for_scipy, offsets, read_only, to_float
from .containers import matrix_of
from .protocol import HeldOut, ResidentSummary

PART = 2**20  # entries processed at once
IN_CACHE = 2**17  # the same, where they are looked up


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ObservedMatrix(ResidentSummary):
    """The entries of a partly observed m x n matrix M on Ω, sorted by column.

    Column j holds ``values[indptr[j]:indptr[j+1]]`` in the rows ``rows[indptr[j]:indptr[j+1]]``,
    which ascend. What is not stored is unknown, not zero. Objects are immutable. Make one with
    `from_dense`, `from_scipy`, `from_coo` or `from_any`; the constructor takes the sorted arrays
    themselves and checks them.

    Parameters
    ----------
    indptr : array of n + 1 integers
        Where each column starts; kept as int64.
    rows : array of nnz integers
        The row of each entry, ascending inside each column; kept as int32.
    values : array of nnz numbers
        Finite. float32 and float16 are kept as float32, everything else as float64.
    shape : (m, n)
        Rows and columns without entries are legal.

    Examples
    --------
    >>> M = ObservedMatrix.from_dense([[1.0, np.nan], [2.0, 3.0]])
    >>> M
    ObservedMatrix(2 x 2, 3 entries observed (75%), float64)
    >>> M.indptr.tolist(), M.rows.tolist(), M.values.tolist()
    ([0, 2, 3], [0, 1, 1], [1.0, 2.0, 3.0])
    >>> M.nnz, M.dtype.name, M.column_counts.tolist(), M.row_counts.tolist()
    (3, 'float64', [2, 1], [1, 2])
    """

    on_gpu: ClassVar[bool] = False
    in_pieces: ClassVar[bool] = False

    indptr: NDArray[np.int64]
    rows: NDArray[np.int32]
    values: NDArray[np.floating[Any]]
    shape: tuple[int, int]
    _counted: list[NDArray[np.int64]] = field(default_factory=list, init=False)  # the row counts, once asked for

    def __post_init__(self) -> None:
        m, n = shape = check_shape(self.shape)
        indptr, rows, values = (np.asarray(a) for a in (self.indptr, self.rows, self.values))
        values = to_float(values)
        check_compressed((indptr, rows, values), n, m)
        if not values.size:
            raise ValueError("no entry is observed: there is nothing to recover the matrix from")

        def where(k: np.intp) -> str:
            return f"row {rows[k]}, column {np.searchsorted(indptr, k, side='right') - 1}"

        bad = compare_neighbours(np.less, indptr, rows)
        if bad.any():
            raise ValueError(f"rows must ascend inside a column, not so at {where(bad.argmax() + 1)}; from_coo sorts")
        bad = compare_neighbours(np.equal, indptr, rows)
        if bad.any():
            raise ValueError(
                f"{np.count_nonzero(bad)} duplicate entries, the first at {where(bad.argmax())}: a position can be "
                "observed once; aggregate first (the mean, the last, ...)"
            )
        bad = ~np.isfinite(values)
        if bad.any():
            k = bad.argmax()
            raise ValueError(
                f"{np.count_nonzero(bad)} observed values are not finite, the first is {values[k]} at {where(k)}; "
                "leave them out: NaN or mask=False in a dense array, no entry in a sparse one"
            )

        self._set(indptr, rows, values, shape)

    def _set(self, indptr: NDArray[Any], rows: NDArray[Any], values: NDArray[Any], shape: tuple[int, int]) -> None:
        object.__setattr__(self, "indptr", read_only(indptr, np.int64))
        object.__setattr__(self, "rows", read_only(rows, np.int32))
        object.__setattr__(self, "values", read_only(values))
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "_counted", [])

    @classmethod
    def trusted(
        cls, indptr: NDArray[Any], rows: NDArray[Any], values: NDArray[Any], shape: tuple[int, int]
    ) -> "ObservedMatrix":
        """A matrix of arrays that are known to be sorted and finite, without a check; it may have no entry.

        Parameters
        ----------
        indptr, rows, values
            The entries of column j are those from ``indptr[j]`` to ``indptr[j + 1]``, their rows ascending.
        shape
            Rows and columns.

        Returns
        -------
        ObservedMatrix
            Of these arrays, not of copies.
        """
        self = object.__new__(cls)
        self._set(indptr, rows, values, shape)
        return self

    # ------------------------------------------------------------------ from other formats

    @classmethod
    def from_dense(cls, X: Any, mask: ArrayLike | None = None) -> Self:
        """The entries of a dense array that are not NaN, not masked, or chosen by `mask`.

        Parameters
        ----------
        X : 2-D array-like
            NumPy arrays, masked arrays (masked is missing), memory maps (read in tiles), nested lists; pandas and
            polars data frames, pyarrow tables, xarray arrays; torch tensors and CuPy arrays (copied to the host);
            anything with ``__array__`` or ``__dlpack__``. NaN is missing.
        mask : 2-D array-like of bool, optional
            True where X is observed. A NaN there is an error.

        Returns
        -------
        ObservedMatrix
            float32 if X is, else float64.

        Examples
        --------
        >>> ObservedMatrix.from_dense([[1, 2], [3, 4]], mask=[[True, False], [True, True]])
        ObservedMatrix(2 x 2, 3 entries observed (75%), float64)
        """
        parts, shape = compressed.from_dense(X, mask)
        return cls(*parts, shape)

    @classmethod
    def from_scipy(cls, A: Any, copy: bool = False) -> Self:
        """The stored entries of a SciPy sparse array or matrix of any format, stored zeros too.

        Parameters
        ----------
        A : sparse array or matrix
            Never modified. Duplicate entries are an error.
        copy : bool
            A float CSC matrix with sorted int32 indices is shared, not copied: do not modify it
            afterwards, or say ``copy=True``.

        Returns
        -------
        ObservedMatrix
            What A does not store is missing, not zero.

        Examples
        --------
        >>> A = sp.csr_array(([5.0, 0.0], ([0, 1], [1, 0])), shape=(2, 3))
        >>> ObservedMatrix.from_scipy(A).to_dense(fill=-1).tolist()
        [[-1.0, 5.0, -1.0], [0.0, -1.0, -1.0]]
        """
        parts, shape = compressed.from_sparse(A, copy)
        return cls(*parts, shape)

    @classmethod
    def from_coo(
        cls,
        rows: ArrayLike,
        cols: ArrayLike,
        values: ArrayLike,
        shape: tuple[int, int] | None = None,
    ) -> Self:
        """The entries (rows[k], cols[k], values[k]), in any order.

        Parameters
        ----------
        rows, cols : 1-D array-like of int
            Counted from 0. A position given twice is an error.
        values : 1-D array-like
            Finite numbers.
        shape : (m, n), optional
            Just large enough for the entries by default.

        Returns
        -------
        ObservedMatrix
            Sorted by column, then by row.

        Examples
        --------
        >>> ObservedMatrix.from_coo([0, 2, 1], [1, 0, 1], [5.0, 6.0, 7.0])
        ObservedMatrix(3 x 2, 3 entries observed (50%), float64)
        """
        parts, shape = compressed.from_triples(rows, cols, values, shape)
        return cls(*parts, shape)

    @classmethod
    def from_any(cls, X: Any) -> "ObservedMatrix":
        """An `ObservedMatrix` from whatever holds one.

        Parameters
        ----------
        X
            An `ObservedMatrix`, which is returned as it is; a sparse array or matrix of SciPy, whose stored entries are
            observed; or what `from_dense` takes, where NaN is missing.

        Returns
        -------
        ObservedMatrix
            The observed entries.

        Examples
        --------
        >>> ObservedMatrix.from_any([[1.0, 2.0], [3.0, float("nan")]]).nnz
        3
        """
        held = matrix_of(X)
        if isinstance(held, ObservedMatrix):
            return held
        return cls.from_scipy(held) if sp.issparse(held) else cls.from_dense(held)

    # ------------------------------------------------------------------ to other formats

    @property
    def T(self) -> "ObservedMatrix":  # noqa: N802
        """The transposed matrix, sorted by its own columns (a copy).

        Examples
        --------
        >>> ObservedMatrix.from_dense([[1.0, 2.0, 3.0]]).T.shape
        (3, 1)
        """
        m, n = self.shape
        return ObservedMatrix.trusted(*compressed.transpose((self.indptr, self.rows, self.values), m), (n, m))

    def with_values(self, values: ArrayLike) -> "ObservedMatrix":
        """Other values at the same positions.

        Examples
        --------
        >>> ObservedMatrix.from_coo([0, 2], [1, 1], [5.0, 6.0]).with_values([7.0, 8.0]).values.tolist()
        [7.0, 8.0]
        """
        numbers = np.asarray(values)
        if numbers.dtype != self.dtype or numbers.shape != self.values.shape or not np.isfinite(numbers).all():
            return ObservedMatrix(self.indptr, self.rows, numbers, self.shape)  # which says what is wrong
        found = ObservedMatrix.trusted(self.indptr, self.rows, numbers, self.shape)
        object.__setattr__(found, "_counted", self._counted)  # they are counted once
        return found

    def to_scipy(self) -> "sp.csc_array[Any]":
        """The entries as SciPy holds them.

        Returns
        -------
        scipy.sparse.csc_array
            It shares the (read-only) memory if it can.

        Examples
        --------
        >>> ObservedMatrix.from_coo([0], [1], [5.0]).to_scipy().toarray().tolist()
        [[0.0, 5.0]]
        """
        A = sp.csc_array(for_scipy((self.indptr, self.rows, self.values)), shape=self.shape)
        A.has_canonical_format = True  # else SciPy may want to sort the read-only arrays
        return A

    def to_dense(self, fill: float = np.nan) -> NDArray[np.floating[Any]]:
        """The m x n array.

        Parameters
        ----------
        fill
            What stands where nothing is observed.

        Returns
        -------
        array
            A new one, of the type of the entries.

        Examples
        --------
        >>> ObservedMatrix.from_coo([0], [1], [5.0]).to_dense().tolist()
        [[nan, 5.0]]
        """
        X = np.full(self.shape, fill, self.dtype)
        X[self.rows, self.columns_of_entries()] = self.values
        return X

    def column(self, j: int) -> tuple[NDArray[np.int32], NDArray[np.floating[Any]]]:
        """The rows and values observed in column j.

        Parameters
        ----------
        j
            Counted from 0, or backwards from -1.

        Returns
        -------
        rows, values
            Views of the arrays of the matrix.

        Raises
        ------
        IndexError
            If there is no such column.

        Examples
        --------
        >>> rows, values = ObservedMatrix.from_coo([0, 2], [1, 1], [5.0, 6.0]).column(1)
        >>> rows.tolist(), values.tolist()
        ([0, 2], [5.0, 6.0])
        """
        n = self.shape[1]
        j = operator.index(j)
        if not -n <= j < n:
            raise IndexError(f"column {j} is out of range for a matrix with {n} columns")
        part = slice(self.indptr[j % n], self.indptr[j % n + 1])
        return self.rows[part], self.values[part]

    def take_columns(self, which: NDArray[np.intp]) -> "ObservedMatrix | None":
        """Some columns, in this order; None if they have no entry.

        Examples
        --------
        >>> ObservedMatrix.from_coo([0, 2, 1], [1, 1, 0], [5, 6, 7]).take_columns(np.array([1])).values.tolist()
        [5.0, 6.0]
        """
        which = np.arange(self.shape[1])[which]
        if which.size == self.shape[1] and np.all(np.diff(which) == 1):
            return self
        counts, starts = self.column_counts[which], self.indptr[which]
        indptr = offsets(counts)
        if not indptr[-1]:
            return None
        entries: slice | NDArray[np.intp] = slice(starts[0], starts[0] + indptr[-1])
        if np.any(np.diff(which) != 1):
            entries = np.repeat(starts - indptr[:-1], counts) + np.arange(indptr[-1])
        return ObservedMatrix.trusted(indptr, self.rows[entries], self.values[entries], (self.shape[0], which.size))

    def take_rows(self, which: NDArray[np.intp]) -> "ObservedMatrix":
        """Some rows, ascending.

        Examples
        --------
        >>> M = ObservedMatrix.from_dense([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0]])
        >>> M.take_rows(np.array([0, 2])).values.tolist()
        [1.0, 5.0, 2.0, 6.0]
        """
        if len(which) == self.shape[0]:
            return self
        new_index = np.full(self.shape[0], -1, np.int32)
        new_index[which] = np.arange(len(which))
        inside = np.flatnonzero(new_index[self.rows] >= 0)
        starts = np.searchsorted(inside, self.indptr)
        shape = (len(which), self.shape[1])
        return ObservedMatrix.trusted(starts, new_index[self.rows[inside]], self.values[inside], shape)

    def columns_of_entries(self) -> NDArray[np.int32]:
        """The column of each entry, in the order of `rows` and `values`.

        Examples
        --------
        >>> ObservedMatrix.from_coo([0, 2, 1], [1, 1, 0], [5, 6, 7]).columns_of_entries().tolist()
        [0, 1, 1]
        """
        return np.repeat(np.arange(self.shape[1], dtype=np.int32), self.column_counts)

    # ------------------------------------------------------------------ counts and digests

    @property
    def column_counts(self) -> NDArray[np.int64]:
        """The number of entries in each column."""
        return np.diff(self.indptr)

    @property
    def row_counts(self) -> NDArray[np.int64]:
        """The number of entries in each row."""
        if not self._counted:
            counts = np.zeros(self.shape[0], np.int64)
            for first in range(0, self.nnz, PART):  # bincount takes a copy as int64
                counts += np.bincount(self.rows[first : first + PART], minlength=self.shape[0])
            self._counted.append(read_only(counts))
        return self._counted[0]

    def fingerprint(self) -> str:
        """A digest of the shape and every entry: equal for equal data, whatever it came from.

        Examples
        --------
        >>> M = ObservedMatrix.from_dense([[1.0, 2.0]])
        >>> M.fingerprint() == ObservedMatrix.from_coo([0, 0], [1, 0], [2.0, 1.0]).fingerprint()
        True
        """
        digest = hashlib.blake2b(f"{self.shape} {self.dtype}".encode(), digest_size=16)
        for array in (self.indptr, self.rows, self.values):
            digest.update(array.data)
        return digest.hexdigest()

    # ------------------------------------------------------------------ the contract (see `PartialMatrix`)

    def split(self, held: NDArray[np.intp]) -> tuple["ObservedMatrix", HeldOut]:
        """All entries but those at these ascending indices; and those."""
        kept = np.ones(self.nnz, dtype=bool)
        kept[held] = False
        columns = (np.searchsorted(self.indptr, held, side="right") - 1).astype(np.int32)
        indptr = self.indptr - np.searchsorted(held, self.indptr)
        rest = ObservedMatrix.trusted(indptr, self.rows[kept], self.values[kept], self.shape)
        return rest, HeldOut(self.rows[held], columns, self.values[held].astype(np.float64))

    def sample(self, size: int) -> "ObservedMatrix":
        """About `size` of the entries, evenly spread over all columns; all if there are not many more."""
        step = max(1, self.nnz // size)
        starts = -(-self.indptr // step)
        return ObservedMatrix.trusted(starts, self.rows[::step], self.values[::step], self.shape)

    def parts(self) -> Iterator[NDArray[np.floating[Any]]]:
        """The values, a million at a time."""
        for first in range(0, self.nnz, PART):
            yield self.values[first : first + PART]

    def open_sweep(self, backend: str = "auto") -> HostSweep:
        """The sweep over it, on "native" (the compiled core) or "numpy"."""
        return open_sweep(self, backend)

    def to_host(self) -> "ObservedMatrix":
        """Itself."""
        return self

    def to_host_if_small(self) -> "ObservedMatrix":
        """Itself."""
        return self

    def spread_over_columns(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """For each entry, the number of its column."""
        return np.repeat(numbers, self.column_counts)

    def spread_over_rows(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """For each entry, the number of its row."""
        numbers = np.asarray(numbers)
        if self.nnz == self.shape[0] * self.shape[1]:
            return np.tile(numbers, self.shape[1])
        spread = np.empty(self.nnz, numbers.dtype)
        for first in range(0, self.nnz, IN_CACHE):  # indexing takes a copy as int64, and twice as long
            part = slice(first, first + IN_CACHE)
            np.take(numbers, self.rows[part], out=spread[part], mode="clip")
        return spread

    def reduce(self, merging: str, function: Callable[..., tuple[Any, ...]], *numbers: NDArray[Any]) -> tuple[Any, ...]:
        """``function(self, *numbers)``: it is one piece."""
        return function(self, *numbers)

    def count_lines(self, flagged: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Count the entries at these indices in each row, and in each column."""
        by_column = np.diff(np.searchsorted(flagged, self.indptr))
        return np.bincount(self.rows[flagged], minlength=self.shape[0]), by_column

    def outliers(self, flagged: NDArray[np.intp], values: NDArray[Any]) -> "sp.csc_array[Any]":
        """A sparse array with these values at these indices."""
        indptr = np.searchsorted(flagged, self.indptr)
        return sp.csc_array(for_scipy((indptr, self.rows[flagged], values)), shape=self.shape)

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor, as NumPy forgets read-only flags in a pickle.
        return type(self), (self.indptr, self.rows, self.values, self.shape)
