"""The entries of a partly observed matrix; every input format becomes this, once."""

import hashlib
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from .containers import as_numpy, check_numbers, matrix_of

_Parts = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # indptr, indices, values of compressed lines


class Facts:
    """What the shape and the counts of entries say of a matrix."""

    __slots__ = ()

    @property
    def density(self: Any) -> float:
        """The observed share |Ω| / (m n).

        Examples
        --------
        >>> ObservedMatrix.from_dense([[1.0, float("nan")]]).density
        0.5
        """
        m, n = self.shape
        return float(self.nnz / (m * n))

    @property
    def empty_columns(self: Any) -> NDArray[np.intp]:
        """The columns without an entry.

        Examples
        --------
        >>> ObservedMatrix.from_coo([0, 2], [1, 1], [5.0, 6.0]).empty_columns.tolist()
        [0]
        """
        return np.flatnonzero(self.column_counts == 0)

    @property
    def empty_rows(self: Any) -> NDArray[np.intp]:
        """The rows without an entry.

        Examples
        --------
        >>> ObservedMatrix.from_coo([0, 2], [1, 1], [5.0, 6.0]).empty_rows.tolist()
        [1]
        """
        return np.flatnonzero(self.row_counts == 0)

    def thin_columns(self: Any, rank: int) -> NDArray[np.intp]:
        """The columns with fewer than `rank` entries: no subspace of that rank determines them.

        Examples
        --------
        >>> ObservedMatrix.from_coo([0, 1, 0], [0, 0, 1], [5.0, 6.0, 7.0]).thin_columns(2).tolist()
        [1]
        """
        return np.flatnonzero(self.column_counts < rank)

    def check_rank(self: Any, rank: int) -> int:
        """`rank` as an int, if a matrix of this shape can have it; an error otherwise.

        Examples
        --------
        >>> ObservedMatrix.from_dense([[1.0, 2.0], [3.0, 4.0]]).check_rank(2)
        2
        """
        if isinstance(rank, bool) or not isinstance(rank, Integral):
            raise TypeError(f"rank must be an integer, not {rank!r}")
        m, n = self.shape
        if not 1 <= rank <= min(m, n):
            raise ValueError(f"rank is {rank}; choose 1 to {min(m, n)} for a {m} x {n} matrix")
        return int(rank)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ObservedMatrix(Facts):
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
    """

    indptr: NDArray[np.int64]
    rows: NDArray[np.int32]
    values: NDArray[np.floating[Any]]
    shape: tuple[int, int]
    _counted: list[NDArray[np.int64]] = field(default_factory=list, init=False)  # the row counts, once asked for

    def __post_init__(self) -> None:
        m, n = shape = _check_shape(self.shape)
        indptr, rows, values = (np.asarray(a) for a in (self.indptr, self.rows, self.values))
        values = _to_float(values)
        _check_compressed((indptr, rows, values), n, m)
        if not values.size:
            raise ValueError("no entry is observed: there is nothing to recover the matrix from")

        def where(k: np.intp) -> str:
            return f"row {rows[k]}, column {np.searchsorted(indptr, k, side='right') - 1}"

        bad = _neighbours(np.less, indptr, rows)
        if bad.any():
            raise ValueError(f"rows must ascend inside a column, not so at {where(bad.argmax() + 1)}; from_coo sorts")
        bad = _neighbours(np.equal, indptr, rows)
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

        for name, array, dtype in (
            ("indptr", indptr, np.int64),
            ("rows", rows, np.int32),
            ("values", values, values.dtype),
        ):
            view = np.ascontiguousarray(array, dtype).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)
        object.__setattr__(self, "shape", shape)

    @classmethod
    def trusted(
        cls, indptr: NDArray[np.int64], rows: NDArray[np.int32], values: NDArray[Any], shape: tuple[int, int]
    ) -> Self:
        """The sorted arrays themselves, unchecked: of columns that were checked before, and may be without any entry.

        Examples
        --------
        >>> M = ObservedMatrix.from_dense([[1.0, 2.0]])
        >>> ObservedMatrix.trusted(M.indptr, M.rows, M.values, M.shape)
        ObservedMatrix(1 x 2, 2 entries observed (100%), float64)
        """
        self = object.__new__(cls)
        parts = {"indptr": indptr, "rows": rows, "values": values, "shape": shape, "_counted": []}
        for name, part in parts.items():
            object.__setattr__(self, name, part)
        return self

    # ------------------------------------------------------------------ from other formats

    @classmethod
    def from_dense(cls, X: Any, mask: ArrayLike | None = None) -> Self:
        """The entries of a dense array that are not NaN, not masked, or chosen by `mask`.

        Parameters
        ----------
        X : 2-D array-like
            NumPy arrays, masked arrays (masked is missing), memory maps (read in tiles), data frames,
            tensors and whatever else `lowsparse.containers` reads. NaN is missing.
        mask : 2-D array-like of bool, optional
            True where X is observed. A NaN there is an error.

        Examples
        --------
        >>> ObservedMatrix.from_dense([[1, 2], [3, 4]], mask=[[True, False], [True, True]])
        ObservedMatrix(2 x 2, 3 entries observed (75%), float64)
        """
        if _is_sparse(X):
            raise TypeError("X is a sparse matrix: use from_scipy")
        held = as_numpy(X)
        hidden: Any = np.ma.getmask(held)
        data = np.asarray(held)
        if data.ndim != 2:
            raise ValueError(f"a matrix needs 2 dimensions, X has {data.ndim}")
        m, n = _check_shape(data.shape)
        dtype = _float_dtype(data.dtype)
        chosen = None if mask is None else np.asarray(as_numpy(mask))
        if chosen is not None:
            if hidden is not np.ma.nomask:
                raise ValueError("X is a masked array and mask= is given: say it once")
            if chosen.dtype != bool:
                raise TypeError(f"mask must be boolean, True where X is observed; it is {chosen.dtype}")
            if chosen.shape != data.shape:
                raise ValueError(f"mask is {chosen.shape}, but X is {data.shape}")

        def observed(tile: tuple[slice, slice]) -> NDArray[np.bool_]:
            """The observed places of a tile, one line per column of X."""
            if chosen is not None:
                seen = chosen[tile]
            else:
                seen = ~np.isnan(data[tile])
                if hidden is not np.ma.nomask:
                    seen &= ~hidden[tile]
            return np.ascontiguousarray(seen.T)

        counts = np.zeros(n, np.int64)
        for tile in _tiles(m, n):
            counts[tile[1]] += np.count_nonzero(observed(tile), axis=1)
        indptr = _offsets(counts)
        rows = np.empty(indptr[-1], np.int32)
        values = np.empty(indptr[-1], dtype)
        free = indptr[:-1].copy()  # the next free place of each column
        for i, j in _tiles(m, n):
            seen = observed((i, j))
            column, row = np.nonzero(seen)
            counts = np.count_nonzero(seen, axis=1)
            place = np.arange(row.size) + np.repeat(free[j] - _offsets(counts)[:-1], counts)
            values[place] = _to_float(data[i, j][row, column])
            rows[place] = row + i.start
            free[j] += counts
        return cls(indptr, rows, values, (m, n))

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

        Examples
        --------
        >>> A = sp.csr_array(([5.0, 0.0], ([0, 1], [1, 0])), shape=(2, 3))
        >>> ObservedMatrix.from_scipy(A).to_dense(fill=-1).tolist()
        [[-1.0, 5.0, -1.0], [0.0, -1.0, -1.0]]
        """
        if not _is_sparse(A):
            raise TypeError(f"a SciPy sparse array or matrix is needed, not {type(A).__name__}: use from_any")
        if A.ndim != 2:
            raise ValueError(f"a matrix needs 2 dimensions, A has {A.ndim}")
        m, n = shape = _check_shape(A.shape)
        if A.format not in ("csc", "csr"):
            return cls.from_coo(*_stored_triples(A), shape=shape)

        size = int(A.indptr[-1])  # the arrays may be longer
        parts = A.indptr, A.indices[:size], _to_float(A.data[:size])
        if A.format == "csr":
            _check_compressed(parts, m, n)
            return cls(*_turn(parts, n), shape)
        _check_compressed(parts, n, m)
        if _neighbours(np.less, *parts[:2]).any():
            return cls(*_turn(_turn(parts, m), n), shape)
        if copy:
            parts = parts[0], parts[1].copy(), parts[2].copy()
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
        shape : (m, n), optional
            Just large enough for the entries by default.

        Examples
        --------
        >>> ObservedMatrix.from_coo([0, 2, 1], [1, 0, 1], [5.0, 6.0, 7.0])
        ObservedMatrix(3 x 2, 3 entries observed (50%), float64)
        """
        index = _integers("rows", rows), _integers("cols", cols)
        data = _to_float(np.asarray(values))
        if data.ndim != 1 or not index[0].size == index[1].size == data.size:
            sizes = f"{index[0].shape}, {index[1].shape} and {data.shape}"
            raise ValueError(f"rows, cols and values must be 1-D and of the same length, they are {sizes}")
        if not data.size:
            raise ValueError("no entry is observed: rows, cols and values are empty")
        if shape is None:
            shape = int(index[0].max()) + 1, int(index[1].max()) + 1
        shape = _check_shape(shape)
        return cls(*_turn(_by_row(index, data, shape), shape[1]), shape)

    @classmethod
    def from_any(cls, X: Any) -> "ObservedMatrix":
        """An `ObservedMatrix` from whatever holds one: itself, sparse, a data frame, or 2-D array-like.

        Examples
        --------
        >>> ObservedMatrix.from_any([[1.0, 2.0], [3.0, float("nan")]]).nnz
        3
        """
        held = matrix_of(X)
        if isinstance(held, ObservedMatrix):
            return held
        return cls.from_scipy(held) if _is_sparse(held) else cls.from_dense(held)

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
        return ObservedMatrix(*_turn((self.indptr, self.rows, self.values), m), (n, m))

    def with_values(self, values: ArrayLike) -> "ObservedMatrix":
        """Other values at the same places.

        Examples
        --------
        >>> ObservedMatrix.from_coo([0, 2], [1, 1], [5.0, 6.0]).with_values([7.0, 8.0]).values.tolist()
        [7.0, 8.0]
        """
        return ObservedMatrix(self.indptr, self.rows, np.asarray(values), self.shape)

    def to_scipy(self) -> "sp.csc_array[Any]":
        """A `scipy.sparse.csc_array` of the entries; shares the (read-only) memory if it can.

        Examples
        --------
        >>> ObservedMatrix.from_coo([0], [1], [5.0]).to_scipy().toarray().tolist()
        [[0.0, 5.0]]
        """
        A = sp.csc_array(_for_scipy((self.indptr, self.rows, self.values)), shape=self.shape)
        A.has_canonical_format = True  # else SciPy may want to sort the read-only arrays
        return A

    def to_dense(self, fill: float = np.nan) -> NDArray[np.floating[Any]]:
        """The m x n array, with `fill` where nothing is observed.

        Examples
        --------
        >>> ObservedMatrix.from_coo([0], [1], [5.0]).to_dense().tolist()
        [[nan, 5.0]]
        """
        X = np.full(self.shape, fill, self.dtype)
        X[self.rows, self.columns_of_entries()] = self.values
        return X

    def column(self, j: int) -> tuple[NDArray[np.int32], NDArray[np.floating[Any]]]:
        """The rows and values observed in column j (views).

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
        A = self.to_scipy()[:, which]
        return ObservedMatrix.from_scipy(A) if A.nnz else None

    def sample(self, size: int) -> "ObservedMatrix":
        """About so many of the entries, evenly spread over all columns; all if there are not many more.

        Examples
        --------
        >>> ObservedMatrix.from_dense(np.ones((40, 30))).sample(100).nnz
        100
        """
        k = np.arange(0, self.nnz, max(1, self.nnz // size))
        return ObservedMatrix(np.searchsorted(k, self.indptr), self.rows[k], self.values[k], self.shape)

    def parts(self) -> Iterator[NDArray[np.floating[Any]]]:
        """The values, a million at a time.

        Examples
        --------
        >>> [part.tolist() for part in ObservedMatrix.from_coo([0, 2], [1, 1], [5.0, 6.0]).parts()]
        [[5.0, 6.0]]
        """
        for first in range(0, self.nnz, 2**20):
            yield self.values[first : first + 2**20]

    def columns_of_entries(self) -> NDArray[np.int32]:
        """The column of each entry, in the order of `rows` and `values`.

        Examples
        --------
        >>> ObservedMatrix.from_coo([0, 2, 1], [1, 1, 0], [5, 6, 7]).columns_of_entries().tolist()
        [0, 1, 1]
        """
        return np.repeat(np.arange(self.shape[1], dtype=np.int32), self.column_counts)

    # ------------------------------------------------------------------ facts

    @property
    def nnz(self) -> int:
        """The number of observed entries, |Ω|.

        Examples
        --------
        >>> ObservedMatrix.from_dense([[1.0, float("nan")]]).nnz
        1
        """
        return int(self.values.size)

    @property
    def dtype(self) -> np.dtype[np.floating[Any]]:
        """float32 or float64.

        Examples
        --------
        >>> str(ObservedMatrix.from_dense([[1, 2]]).dtype)
        'float64'
        """
        return self.values.dtype

    @property
    def column_counts(self) -> NDArray[np.int64]:
        """The number of entries in each column.

        Examples
        --------
        >>> ObservedMatrix.from_coo([0, 2], [1, 1], [5.0, 6.0]).column_counts.tolist()
        [0, 2]
        """
        return np.diff(self.indptr)

    @property
    def row_counts(self) -> NDArray[np.int64]:
        """The number of entries in each row.

        Examples
        --------
        >>> ObservedMatrix.from_coo([0, 2], [1, 1], [5.0, 6.0]).row_counts.tolist()
        [1, 0, 1]
        """
        if not self._counted:
            counts = np.zeros(self.shape[0], np.int64)
            for first in range(0, self.nnz, 2**20):  # bincount takes a copy as int64
                counts += np.bincount(self.rows[first : first + 2**20], minlength=self.shape[0])
            counts.flags.writeable = False
            self._counted.append(counts)
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

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor, as NumPy forgets read-only flags in a pickle.
        return type(self), (self.indptr, self.rows, self.values, self.shape)

    def __repr__(self) -> str:
        m, n = self.shape
        return f"ObservedMatrix({m} x {n}, {self.nnz} entries observed ({100 * self.density:.3g}%), {self.dtype})"


def _is_sparse(X: object) -> bool:
    return bool(sp.issparse(X))


def _check_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) != 2:
        raise ValueError(f"shape must be (rows, columns), not {shape}")
    m, n = (operator.index(size) for size in shape)
    if min(m, n) < 1:
        raise ValueError(f"a matrix needs at least one row and one column, this one is {m} x {n}")
    if max(m, n) > 2**31 - 1:
        raise ValueError(f"at most 2**31 - 1 rows and columns are supported, this matrix is {m} x {n}")
    return m, n


def _float_dtype(dtype: np.dtype[Any]) -> np.dtype[np.floating[Any]]:
    check_numbers(dtype)
    return np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64)


def _to_float(values: NDArray[Any]) -> NDArray[np.floating[Any]]:
    with np.errstate(over="ignore"):  # a long double beyond float64 becomes inf and is refused as such
        return values.astype(_float_dtype(values.dtype), copy=False)


def _offsets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def _tiles(m: int, n: int, size: int = 2**18) -> Iterator[tuple[slice, slice]]:
    """Tiles of an m x n array, about square: both memory orders are read well, temporaries are small."""
    height = min(m, max(512, size // n))
    width = max(1, size // height)
    for j in range(0, n, width):
        for i in range(0, m, height):
            yield slice(i, i + height), slice(j, j + width)


def _check_compressed(parts: _Parts, lines: int, length: int) -> None:
    """The invariants without which compiled code reads outside its arrays."""
    indptr, indices, values = parts
    if any(a.ndim != 1 for a in parts) or any(a.dtype.kind not in "iu" for a in parts[:2]):
        raise ValueError("malformed matrix: indptr and indices must be 1-D integer arrays, values 1-D")
    if indptr.size != lines + 1 or indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise ValueError(f"malformed matrix: indptr must be {lines + 1} ascending numbers that start with 0")
    if not indptr[-1] == indices.size == values.size:
        raise ValueError(
            f"malformed matrix: {indices.size} indices and {values.size} values, but indptr ends with {indptr[-1]}"
        )
    if indices.size and not 0 <= indices.min() <= indices.max() < length:
        raise ValueError(f"malformed matrix: indices must lie in 0 ... {length - 1}")


def _neighbours(compare: np.ufunc, indptr: NDArray[Any], indices: NDArray[Any]) -> NDArray[np.bool_]:
    """For each entry but the last: compare(the next, this one), False across lines."""
    result: NDArray[np.bool_] = compare(indices[1:], indices[:-1])
    starts = indptr[(indptr > 0) & (indptr < indices.size)]
    result[starts - 1] = False
    return result


def _for_scipy(parts: _Parts) -> _Parts:
    """SciPy wants indptr and indices of one dtype: int32 if it can hold both, so indices are shared."""
    indptr, indices, values = parts
    if indptr[-1] <= np.iinfo(np.int32).max:
        indptr, indices = (a.astype(np.int32, copy=False) for a in (indptr, indices))
    return values, indices, indptr


def _turn(parts: _Parts, length: int) -> _Parts:
    """Lines of the given length turned into lines of the other direction, indices ascending.

    This is a stable counting sort, linear in the entries. It keeps zeros and duplicates.
    """
    A = sp.csr_array(_for_scipy(parts), shape=(parts[0].size - 1, length)).tocsc()
    return A.indptr, A.indices, A.data


def _by_row(index: tuple[NDArray[Any], NDArray[Any]], values: NDArray[Any], shape: tuple[int, int]) -> _Parts:
    """Triples as compressed rows, the columns of a row in any order."""
    rows, cols = (_in_range(name, a, size) for name, a, size in zip(("rows", "cols"), index, shape, strict=True))
    A = sp.coo_array((values, (rows, cols)), shape=shape)
    A.has_canonical_format = True  # else tocsr would sum duplicates
    B = A.tocsr()
    return B.indptr, B.indices, B.data


def _integers(name: str, index: ArrayLike) -> NDArray[Any]:
    index = np.asarray(index)
    if index.dtype.kind == "f":
        bad = ~(np.isfinite(index) & (index == np.trunc(index)))
        if bad.any():
            k = bad.argmax()
            raise ValueError(f"{name} must be integers, but {name}[{k}] is {index.flat[k]}")
        return index.astype(np.int64)
    if index.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, not {index.dtype}")
    return index


def _in_range(name: str, index: NDArray[Any], size: int) -> NDArray[np.int32]:
    if index.min() < 0 or index.max() >= size:
        k = ((index < 0) | (index >= size)).argmax()
        raise ValueError(f"{name}[{k}] is {index[k]}, outside 0 ... {size - 1} (indices count from 0)")
    return index.astype(np.int32, copy=False)


def _stored_triples(A: Any) -> _Parts:
    if A.format != "dia":
        A = A.tocoo()
        return A.row, A.col, A.data
    # SciPy's own conversion drops the zeros stored on a diagonal.
    width = min(A.data.shape[1], A.shape[1])
    rows = np.arange(width) - A.offsets[:, None]
    inside = (rows >= 0) & (rows < A.shape[0])
    return rows[inside], np.nonzero(inside)[1], A.data[:, :width][inside]
