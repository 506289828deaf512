"""Dense arrays, sparse matrices and triples as entries that are sorted by column."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from .compressed import (
    Parts,
    check_compressed,
    check_shape,
    float_dtype,
    neighbours,
    offsets,
    to_float,
    turn,
)
from .containers import as_numpy

__all__ = ["ByColumn", "dense", "is_sparse", "stored", "tiles", "triples"]

ByColumn = tuple[Parts, tuple[int, int]]  # the compressed columns, and the shape


def dense(X: Any, mask: ArrayLike | None) -> ByColumn:
    """Of a dense array, as `ObservedMatrix.from_dense` takes it: in tiles, so that temporaries are small.

    >>> (indptr, rows, values), shape = dense([[1.0, np.nan], [2.0, 3.0]], None)
    >>> indptr.tolist(), rows.tolist(), values.tolist(), shape
    ([0, 2, 3], [0, 1, 1], [1.0, 2.0, 3.0], (2, 2))
    """
    if is_sparse(X):
        raise TypeError("X is a sparse matrix: use from_scipy")
    held = as_numpy(X)
    hidden: Any = np.ma.getmask(held)
    data = np.asarray(held)
    if data.ndim != 2:
        raise ValueError(f"a matrix needs 2 dimensions, X has {data.ndim}")
    m, n = check_shape(data.shape)
    dtype = float_dtype(data.dtype)
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
    for tile in tiles(m, n):
        counts[tile[1]] += np.count_nonzero(observed(tile), axis=1)
    indptr = offsets(counts)
    rows = np.empty(indptr[-1], np.int32)
    values = np.empty(indptr[-1], dtype)
    free = indptr[:-1].copy()  # the next free place of each column
    for i, j in tiles(m, n):
        seen = observed((i, j))
        column, row = np.nonzero(seen)
        counts = np.count_nonzero(seen, axis=1)
        place = np.arange(row.size) + np.repeat(free[j] - offsets(counts)[:-1], counts)
        values[place] = to_float(data[i, j][row, column])
        rows[place] = row + i.start
        free[j] += counts
    return (indptr, rows, values), (m, n)


def tiles(m: int, n: int, size: int = 2**18) -> Iterator[tuple[slice, slice]]:
    """Tiles of an m x n array, about square: both memory orders are read well, temporaries are small.

    >>> list(tiles(2, 3, size=4))
    [(slice(0, 2, None), slice(0, 2, None)), (slice(0, 2, None), slice(2, 4, None))]
    """
    height = min(m, max(512, size // n))
    width = max(1, size // height)
    for j in range(0, n, width):
        for i in range(0, m, height):
            yield slice(i, i + height), slice(j, j + width)


def stored(A: Any, copy: bool) -> ByColumn:
    """Of a sparse matrix, as `ObservedMatrix.from_scipy` takes it.

    >>> (indptr, rows, values), shape = stored(sp.csr_array([[0.0, 5.0], [6.0, 7.0]]), copy=False)
    >>> indptr.tolist(), rows.tolist(), values.tolist(), shape
    ([0, 1, 3], [1, 0, 1], [6.0, 5.0, 7.0], (2, 2))
    """
    if not is_sparse(A):
        raise TypeError(f"a SciPy sparse array or matrix is needed, not {type(A).__name__}: use from_any")
    if A.ndim != 2:
        raise ValueError(f"a matrix needs 2 dimensions, A has {A.ndim}")
    m, n = shape = check_shape(A.shape)
    if A.format not in ("csc", "csr"):
        return triples(*_stored_triples(A), shape=shape)

    size = int(A.indptr[-1])  # the arrays may be longer
    parts = A.indptr, A.indices[:size], to_float(A.data[:size])
    if A.format == "csr":
        check_compressed(parts, m, n)
        return turn(parts, n), shape
    check_compressed(parts, n, m)
    if neighbours(np.less, *parts[:2]).any():
        return turn(turn(parts, m), n), shape
    if copy:
        parts = parts[0], parts[1].copy(), parts[2].copy()
    return parts, shape


def is_sparse(X: object) -> bool:
    """Whether it is a SciPy sparse array or matrix.

    >>> is_sparse(np.eye(2)), is_sparse(sp.eye_array(2))
    (False, True)
    """
    return bool(sp.issparse(X))


def _stored_triples(A: Any) -> Parts:
    if A.format != "dia":
        A = A.tocoo()
        return A.row, A.col, A.data
    # SciPy's own conversion drops the zeros stored on a diagonal.
    width = min(A.data.shape[1], A.shape[1])
    rows = np.arange(width) - A.offsets[:, None]
    inside = (rows >= 0) & (rows < A.shape[0])
    return rows[inside], np.nonzero(inside)[1], A.data[:, :width][inside]


def triples(rows: ArrayLike, cols: ArrayLike, values: ArrayLike, shape: tuple[int, int] | None) -> ByColumn:
    """Of (rows[k], cols[k], values[k]), as `ObservedMatrix.from_coo` takes them.

    >>> (indptr, rows, values), shape = triples([1, 0], [1, 0], [5.0, 6.0], None)
    >>> indptr.tolist(), rows.tolist(), values.tolist(), shape
    ([0, 1, 2], [0, 1], [6.0, 5.0], (2, 2))
    """
    index = _integers("rows", rows), _integers("cols", cols)
    data = to_float(np.asarray(values))
    if data.ndim != 1 or not index[0].size == index[1].size == data.size:
        sizes = f"{index[0].shape}, {index[1].shape} and {data.shape}"
        raise ValueError(f"rows, cols and values must be 1-D and of the same length, they are {sizes}")
    if not data.size:
        raise ValueError("no entry is observed: rows, cols and values are empty")
    if shape is None:
        shape = int(index[0].max()) + 1, int(index[1].max()) + 1
    shape = check_shape(shape)
    return turn(_by_row(index, data, shape), shape[1]), shape


def _by_row(index: tuple[NDArray[Any], NDArray[Any]], values: NDArray[Any], shape: tuple[int, int]) -> Parts:
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
