"""Compressed columns, as `ObservedMatrix` holds them: of dense arrays, sparse matrices and triples; their checks."""

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .containers import as_numpy, check_numbers

Parts = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # indptr, indices, values of compressed rows or columns
Compressed = tuple[Parts, tuple[int, int]]  # compressed columns, and the shape of the matrix


# ---------------------------------------------------------------------- other formats


def from_dense(X: Any, mask: ArrayLike | None) -> Compressed:
    """Compress a dense array tile by tile, so that temporary arrays are small."""
    if sp.issparse(X):
        raise TypeError("X is a sparse matrix: use from_scipy")
    array = as_numpy(X)
    data, masked = np.asarray(array), np.ma.getmask(array)
    if data.ndim != 2:
        raise ValueError(f"a matrix needs 2 dimensions, X has {data.ndim}")
    m, n = check_shape(data.shape)
    dtype = float_dtype(data.dtype)
    given = None if mask is None else _check_mask(mask, data, masked)

    def observed(tile: tuple[slice, slice]) -> NDArray[np.bool_]:
        """Which entries of a tile are observed, transposed."""
        seen = ~np.isnan(data[tile]) if given is None else given[tile]
        if masked is not np.ma.nomask:
            seen &= ~masked[tile]
        return np.ascontiguousarray(seen.T)

    counts = np.zeros(n, np.int64)
    for tile in tiles(m, n):
        counts[tile[1]] += np.count_nonzero(observed(tile), axis=1)
    indptr = offsets(counts)
    rows = np.empty(indptr[-1], np.int32)
    values = np.empty(indptr[-1], dtype)
    free = indptr[:-1].copy()  # the next free position of each column
    for i, j in tiles(m, n):
        seen = observed((i, j))
        column, row = np.nonzero(seen)
        counts = np.count_nonzero(seen, axis=1)
        position = np.arange(row.size) + np.repeat(free[j] - offsets(counts)[:-1], counts)
        values[position] = to_float(data[i, j][row, column])
        rows[position] = row + i.start
        free[j] += counts
    return (indptr, rows, values), (m, n)


def _check_mask(mask: ArrayLike, data: NDArray[Any], masked: object) -> NDArray[np.bool_]:
    given: NDArray[Any] = np.asarray(as_numpy(mask))
    if masked is not np.ma.nomask:
        raise ValueError("X is a masked array and mask= is given: give only one of them")
    if given.dtype != bool:
        raise TypeError(f"mask must be boolean, True where X is observed; it is {given.dtype}")
    if given.shape != data.shape:
        raise ValueError(f"mask is {given.shape}, but X is {data.shape}")
    return given


def tiles(m: int, n: int, size: int = 2**18) -> Iterator[tuple[slice, slice]]:
    """Tiles of an m x n array, about square: arrays of either memory order are read well, temporaries are small."""
    height = min(m, max(512, size // n))
    width = max(1, size // height)
    for j in range(0, n, width):
        for i in range(0, m, height):
            yield slice(i, i + height), slice(j, j + width)


def from_sparse(A: Any, copy: bool) -> Compressed:
    """Compress the stored entries of a sparse matrix; `copy` a matrix that has this form already."""
    if not bool(sp.issparse(A)):  # the type of A stays Any
        raise TypeError(f"a SciPy sparse array or matrix is needed, not {type(A).__name__}: use from_any")
    if A.ndim != 2:
        raise ValueError(f"a matrix needs 2 dimensions, A has {A.ndim}")
    m, n = shape = check_shape(A.shape)
    if A.format not in ("csc", "csr"):
        return from_triples(*_stored_triples(A), shape=shape)

    size = int(A.indptr[-1])  # the arrays may be longer
    parts = A.indptr, A.indices[:size], to_float(A.data[:size])
    if A.format == "csr":
        check_compressed(parts, m, n)
        return transpose(parts, n), shape
    check_compressed(parts, n, m)
    if compare_neighbours(np.less, *parts[:2]).any():
        return transpose(transpose(parts, m), n), shape
    if copy:
        parts = parts[0], parts[1].copy(), parts[2].copy()
    return parts, shape


def _stored_triples(A: Any) -> Parts:
    if A.format != "dia":
        A = A.tocoo()
        return A.row, A.col, A.data
    # SciPy's own conversion drops the zeros stored on a diagonal.
    width = min(A.data.shape[1], A.shape[1])
    rows = np.arange(width) - A.offsets[:, None]
    inside = (rows >= 0) & (rows < A.shape[0])
    return rows[inside], np.nonzero(inside)[1], A.data[:, :width][inside]


def from_triples(rows: ArrayLike, cols: ArrayLike, values: ArrayLike, shape: tuple[int, int] | None) -> Compressed:
    """Compress the triples (rows[k], cols[k], values[k])."""
    i, j = _integers("rows", rows), _integers("cols", cols)
    data = to_float(np.asarray(values))
    if data.ndim != 1 or not i.size == j.size == data.size:
        raise ValueError(
            f"rows, cols and values must be 1-D and of the same length, they are {i.shape}, {j.shape} and {data.shape}"
        )
    if not data.size:
        raise ValueError("no entry is observed: rows, cols and values are empty")
    m, n = check_shape((int(i.max()) + 1, int(j.max()) + 1) if shape is None else shape)
    return transpose(_by_row(_in_range("rows", i, m), _in_range("cols", j, n), data, (m, n)), n), (m, n)


def _by_row(rows: NDArray[np.int32], cols: NDArray[np.int32], values: NDArray[Any], shape: tuple[int, int]) -> Parts:
    """Triples as compressed rows, the columns of a row in any order; returning frees the memory of the conversion."""
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


# ---------------------------------------------------------------------- checks and conversions


def check_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """The sizes as integers, if a matrix can have them; an error otherwise."""
    if len(shape) != 2:
        raise ValueError(f"shape must be (rows, columns), not {shape}")
    m, n = (operator.index(size) for size in shape)
    if min(m, n) < 1:
        raise ValueError(f"a matrix needs at least one row and one column, this one is {m} x {n}")
    if max(m, n) > 2**31 - 1:
        raise ValueError(f"at most 2**31 - 1 rows and columns are supported, this matrix is {m} x {n}")
    return m, n


def check_compressed(parts: Parts, lines: int, length: int) -> None:
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


def compare_neighbours(compare: np.ufunc, indptr: NDArray[Any], indices: NDArray[Any]) -> NDArray[np.bool_]:
    """For each entry but the last: compare(the next, this one), False from one line to the next.

    >>> compare_neighbours(np.less, np.array([0, 2, 4]), np.array([3, 1, 0, 2])).tolist()
    [True, False, False]
    """
    result: NDArray[np.bool_] = compare(indices[1:], indices[:-1])
    starts = indptr[(indptr > 0) & (indptr < indices.size)]
    result[starts - 1] = False
    return result


def float_dtype(dtype: np.dtype[Any]) -> np.dtype[np.floating[Any]]:
    """The type that numbers of `dtype` are stored as: float32 for float32 and float16, else float64."""
    check_numbers(dtype)
    return np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64)


def to_float(values: NDArray[Any]) -> NDArray[np.floating[Any]]:
    """The values as they are stored; copied only if they must be."""
    with np.errstate(over="ignore"):  # a long double beyond float64 becomes inf and is refused as such
        return values.astype(float_dtype(values.dtype), copy=False)


def read_only(array: NDArray[Any], dtype: DTypeLike | None = None) -> NDArray[Any]:
    """A contiguous view, or copy, that cannot be written to."""
    view = np.ascontiguousarray(array, dtype).view()
    view.flags.writeable = False
    return view


def offsets(counts: NDArray[Any]) -> NDArray[np.int64]:
    """Where each line starts, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def for_scipy(parts: Parts) -> Parts:
    """Values, indices and indptr; the latter as int32 if that can hold both: SciPy wants one type, and shares it."""
    indptr, indices, values = parts
    if indptr[-1] <= np.iinfo(np.int32).max:
        indptr, indices = (a.astype(np.int32, copy=False) for a in (indptr, indices))
    return values, indices, indptr


def transpose(parts: Parts, length: int) -> Parts:
    """Compressed rows of the given length as compressed columns, or the other way round; indices ascend.

    This is a stable counting sort, linear in the entries. It keeps zeros and duplicates.
    """
    A = sp.csr_array(for_scipy(parts), shape=(parts[0].size - 1, length)).tocsc()
    return A.indptr, A.indices, A.data
