"""Compressed columns, which `ObservedMatrix` holds, of dense arrays, sparse matrices and triples."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from .compressed import Parts, check_compressed, check_shape, float_dtype, neighbours, offsets, to_float, transpose
from .containers import as_numpy

__all__ = ["ByColumn", "from_dense", "from_sparse", "from_triples", "is_sparse", "tiles"]

ByColumn = tuple[Parts, tuple[int, int]]  # the compressed columns, and the shape


def from_dense(X: Any, mask: ArrayLike | None) -> ByColumn:
    """Compress a dense array tile by tile, so that temporary arrays are small."""
    if is_sparse(X):
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


def _check_mask(mask: ArrayLike, data: NDArray[Any], masked: Any) -> NDArray[np.bool_]:
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


def from_sparse(A: Any, copy: bool) -> ByColumn:
    """Compress the stored entries of a sparse matrix; `copy` a matrix that has this form already."""
    if not is_sparse(A):
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
    if neighbours(np.less, *parts[:2]).any():
        return transpose(transpose(parts, m), n), shape
    if copy:
        parts = parts[0], parts[1].copy(), parts[2].copy()
    return parts, shape


def is_sparse(X: object) -> bool:
    """Whether X is a SciPy sparse array or matrix."""
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


def from_triples(rows: ArrayLike, cols: ArrayLike, values: ArrayLike, shape: tuple[int, int] | None) -> ByColumn:
    """Compress the triples (rows[k], cols[k], values[k])."""
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
    return transpose(_by_row(index, data, shape), shape[1]), shape


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
