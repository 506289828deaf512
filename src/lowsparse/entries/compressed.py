"""Lines of entries, compressed: one after the other, with the places where each starts.

A matrix by column and one by row are both kept so; here are the checks that both need, and the turn from one to the
other.
"""

import operator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .containers import check_numbers

__all__ = [
    "Parts",
    "check_compressed",
    "check_shape",
    "float_dtype",
    "for_scipy",
    "neighbours",
    "offsets",
    "to_float",
    "transpose",
]

Parts = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # indptr, indices, values of compressed lines


def check_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """The sizes as integers, if a matrix can have them; an error otherwise.

    >>> check_shape((2, 0))
    Traceback (most recent call last):
    ValueError: a matrix needs at least one row and one column, this one is 2 x 0
    """
    if len(shape) != 2:
        raise ValueError(f"shape must be (rows, columns), not {shape}")
    m, n = (operator.index(size) for size in shape)
    if min(m, n) < 1:
        raise ValueError(f"a matrix needs at least one row and one column, this one is {m} x {n}")
    if max(m, n) > 2**31 - 1:
        raise ValueError(f"at most 2**31 - 1 rows and columns are supported, this matrix is {m} x {n}")
    return m, n


def float_dtype(dtype: np.dtype[Any]) -> np.dtype[np.floating[Any]]:
    """What numbers of this kind are kept as: float32 and float16 as float32, all else as float64.

    >>> str(float_dtype(np.dtype(np.int8)))
    'float64'
    """
    check_numbers(dtype)
    return np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64)


def to_float(values: NDArray[Any]) -> NDArray[np.floating[Any]]:
    """The values as they are kept; copied only if they must be.

    >>> to_float(np.array([1, 2])).tolist()
    [1.0, 2.0]
    """
    with np.errstate(over="ignore"):  # a long double beyond float64 becomes inf and is refused as such
        return values.astype(float_dtype(values.dtype), copy=False)


def offsets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each line starts, and where the last one ends.

    >>> offsets(np.array([2, 0, 1])).tolist()
    [0, 2, 2, 3]
    """
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def check_compressed(parts: Parts, lines: int, length: int) -> None:
    """The invariants without which compiled code reads outside its arrays.

    >>> check_compressed((np.array([0, 1]), np.array([2]), np.array([5.0])), lines=1, length=2)
    Traceback (most recent call last):
    ValueError: malformed matrix: indices must lie in 0 ... 1
    """
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


def neighbours(compare: np.ufunc, indptr: NDArray[Any], indices: NDArray[Any]) -> NDArray[np.bool_]:
    """For each entry but the last: compare(the next, this one), False across lines.

    >>> neighbours(np.less, np.array([0, 2, 4]), np.array([3, 1, 0, 2])).tolist()
    [True, False, False]
    """
    result: NDArray[np.bool_] = compare(indices[1:], indices[:-1])
    starts = indptr[(indptr > 0) & (indptr < indices.size)]
    result[starts - 1] = False
    return result


def for_scipy(parts: Parts) -> Parts:
    """SciPy wants indptr and indices of one dtype: int32 if it can hold both, so indices are shared.

    >>> values, indices, indptr = for_scipy((np.array([0, 1]), np.array([0]), np.array([5.0])))
    >>> str(indptr.dtype), str(indices.dtype)
    ('int32', 'int32')
    """
    indptr, indices, values = parts
    if indptr[-1] <= np.iinfo(np.int32).max:
        indptr, indices = (a.astype(np.int32, copy=False) for a in (indptr, indices))
    return values, indices, indptr


def transpose(parts: Parts, length: int) -> Parts:
    """Lines of the given length turned into lines of the other direction, indices ascending.

    This is a stable counting sort, linear in the entries. It keeps zeros and duplicates.

    >>> indptr, indices, values = transpose((np.array([0, 2, 3]), np.array([1, 0, 1]), np.array([5.0, 6.0, 7.0])), 2)
    >>> indptr.tolist(), indices.tolist(), values.tolist()
    ([0, 1, 3], [0, 0, 1], [6.0, 5.0, 7.0])
    """
    A = sp.csr_array(for_scipy(parts), shape=(parts[0].size - 1, length)).tocsc()
    return A.indptr, A.indices, A.data
