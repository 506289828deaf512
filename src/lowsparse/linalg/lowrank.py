"""A low-rank matrix kept as its factors."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .arrays import Float, host, on_device, to_device_of

_Index = int | slice | Sequence[int] | NDArray[np.intp] | NDArray[np.bool_]
_BLOCK = 2**18  # entries of L formed at once
_STRIP = 2**17  # rows of a factor read at once


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LowRank:
    """L = U V kept as its factors; no m x n array is formed unless asked.

    Parameters
    ----------
    U : m x r array
    V : r x n array
        Any finite factors, orthonormal or not. Kept as float64, without a copy if they are:
        do not modify them afterwards.

    Examples
    --------
    >>> L = LowRank([[1.0], [2.0]], [[3.0, 4.0, 5.0]])
    >>> L
    LowRank(2 x 3, rank 1)
    >>> L.shape, L.rank, L.T.shape, float(L.at(1, 2))
    ((2, 3), 1, (3, 2), 10.0)
    """

    U: Float
    V: Float

    def __post_init__(self) -> None:
        for name in ("U", "V"):
            factor = _real_matrix(name, getattr(self, name)).astype(np.float64, copy=False).view()
            if not all(np.isfinite(part).all() for part in _strips(factor if name == "U" else factor.T)):
                raise ValueError(f"the factor {name} holds NaN or infinite numbers")
            if not on_device(factor):
                factor.flags.writeable = False
            object.__setattr__(self, name, factor)
        if self.U.shape[1] != self.V.shape[0]:
            raise ValueError(f"U is m x r and V is r x n, but they are {self.U.shape} and {self.V.shape}")
        if 0 in self.U.shape + self.V.shape:
            raise ValueError(f"the factors must not be empty, they are {self.U.shape} and {self.V.shape}")

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n)."""
        return self.U.shape[0], self.V.shape[1]

    @property
    def rank(self) -> int:
        """r, the number of columns of U; the rank of U V is at most this."""
        return int(self.U.shape[1])

    @property
    def T(self) -> "LowRank":  # noqa: N802
        """The transposed matrix, of the same memory."""
        return LowRank(self.V.T, self.U.T)

    def at(self, i: ArrayLike, j: ArrayLike) -> Any:
        """The entries (i, j) of U V.

        Parameters
        ----------
        i, j
            Rows and columns, counted from 0, or backwards from -1: integers, or arrays that are broadcast.

        Returns
        -------
        float or array
            A number for two integers, else an array of the broadcast shape.

        Raises
        ------
        IndexError
            If a row or column is no integer, or out of range.

        Examples
        --------
        >>> L = LowRank([[1.0], [2.0]], [[3.0, 4.0, 5.0]])
        >>> L.at([0, 1], [2, -1]).tolist()
        [5.0, 10.0]
        """
        m, n = self.shape
        rows, columns = np.broadcast_arrays(_index("row", i, m), _index("column", j, n))
        entries = np.empty(rows.shape)
        flat, rows, columns = entries.reshape(-1), rows.reshape(-1), columns.reshape(-1)
        step = max(1, _BLOCK // self.rank)
        for start in range(0, flat.size, step):
            part = slice(start, start + step)
            row, column = to_device_of(rows[part], self.U), to_device_of(columns[part], self.U)
            flat[part] = host(np.einsum("kr,kr->k", self.U[row], self.V.T[column]))
        return entries[()]

    def columns(self, j: _Index) -> Float:
        """Some columns of U V, as a dense array.

        Parameters
        ----------
        j
            An integer, a slice or a 1-D index, as NumPy takes them.

        Returns
        -------
        array
            m numbers for an integer, else m x the number of columns.

        Raises
        ------
        IndexError
            If `j` has more than one dimension, or is out of range.

        Examples
        --------
        >>> LowRank([[1.0], [2.0]], [[3.0, 4.0, 5.0]]).columns([0, 2]).tolist()
        [[3.0, 5.0], [6.0, 10.0]]
        """
        part: Float = self.V[:, j]
        if part.ndim > 2:
            raise IndexError("columns are chosen by an integer, a slice or a 1-D index array")
        return self.U @ part

    def rows(self, i: _Index) -> Float:
        """Some rows of U V, as a dense array.

        Parameters
        ----------
        i
            An integer, a slice or a 1-D index, as NumPy takes them.

        Returns
        -------
        array
            n numbers for an integer, else the number of rows x n.

        Raises
        ------
        IndexError
            If `i` has more than one dimension, or is out of range.

        Examples
        --------
        >>> LowRank([[1.0], [2.0]], [[3.0, 4.0, 5.0]]).rows(1).tolist()
        [6.0, 8.0, 10.0]
        """
        part: Float = self.U[i]
        if part.ndim > 2:
            raise IndexError("rows are chosen by an integer, a slice or a 1-D index array")
        return part @ self.V

    def to_host(self) -> "LowRank":
        """The same factors as arrays of NumPy, if they are on a GPU.

        Returns
        -------
        LowRank
            Itself, if they are not.
        """
        return LowRank(host(self.U), host(self.V)) if on_device(self.U) else self

    def to_dense(self) -> Float:
        """The product U V.

        Returns
        -------
        array
            m x n numbers, all in memory.

        Examples
        --------
        >>> LowRank([[1.0], [2.0]], [[3.0, 4.0]]).to_dense().tolist()
        [[3.0, 4.0], [6.0, 8.0]]
        """
        return self.U @ self.V

    def to_zarr(self, path: str | os.PathLike[str], *, dtype: DTypeLike = np.float64) -> None:
        """Write U V as a Zarr array, a block of columns at a time (the extra `zarr`).

        Parameters
        ----------
        path
            The folder of the array.
        dtype
            The type of the numbers that are written.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     LowRank([[1.0], [2.0]], [[3.0, 4.0]]).to_zarr(f"{folder}/l.zarr")
        """
        from ..support.export import dense_to_zarr

        dense_to_zarr(path, self.shape, self.columns, dtype)

    def to_parquet(self, path: str | os.PathLike[str], *, dtype: DTypeLike = np.float64) -> None:
        """Write all m n entries as records (row, column, value), a block of columns at a time (the extra `tables`).

        Parameters
        ----------
        path
            The file.
        dtype
            The type of the numbers that are written.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     LowRank([[1.0], [2.0]], [[3.0, 4.0]]).to_parquet(f"{folder}/l.parquet")
        """
        from ..support.export import Records, records_to_parquet

        def records(part: slice) -> Records:
            j, i = np.divmod(np.arange(part.start * self.shape[0], part.stop * self.shape[0]), self.shape[0])
            return i, j, self.columns(part).T.ravel().astype(dtype)

        records_to_parquet(path, map(records, self._column_blocks()))

    def _column_blocks(self) -> list[slice]:
        m, n = self.shape
        width = max(1, _BLOCK // m)
        return [slice(j, min(j + width, n)) for j in range(0, n, width)]

    def singular_values(self) -> Float:
        """The r largest singular values of U V.

        Returns
        -------
        array
            Descending; zeros at the end if the rank of U V is below r.

        Examples
        --------
        >>> LowRank([[3.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 2.0]]).singular_values().round(12).tolist()
        [3.0, 2.0]
        """
        sigma = np.zeros(self.rank)
        found = np.linalg.svd(_core([self.U], [self.V.T]), compute_uv=False)
        sigma[: found.size] = host(found)
        return sigma

    def norm(self) -> float:
        """The Frobenius norm of U V.

        Returns
        -------
        float
            ‖U V‖_F, computed from the factors.

        Examples
        --------
        >>> round(LowRank([[3.0], [4.0]], [[1.0]]).norm(), 12)
        5.0
        """
        return float(np.linalg.norm(_core([self.U], [self.V.T])))

    def error(self, other: "LowRank | ArrayLike", relative: bool = False) -> float:
        """The distance to another matrix X, accurate near 0.

        Parameters
        ----------
        other : LowRank or 2-D array-like
            X, as factors or dense.
        relative : bool
            Divide by ‖X‖_F.

        Returns
        -------
        float
            ‖U V − X‖_F, or its share in ‖X‖_F.

        Raises
        ------
        ValueError
            If the shapes differ, X is not complete, or an error relative to zero is asked for.

        Examples
        --------
        >>> L = LowRank([[1.0], [2.0]], [[3.0, 4.0]])
        >>> round(L.error(LowRank([[1.0], [1.0]], [[3.0, 4.0]])), 12)
        5.0
        >>> L.error([[3.0, 4.0], [6.0, 8.0]])
        0.0
        """
        X = other if isinstance(other, LowRank) else _real_matrix("other", other)
        if X.shape != self.shape:
            raise ValueError(f"the shapes differ: {self.shape} and {X.shape}")
        size = 1.0
        if isinstance(X, LowRank):
            # U V − U* V* = [U, U*] [V; −V*]. Nothing is squared before the difference is taken:
            # ‖L‖² + ‖X‖² − 2⟨L, X⟩ would lose every digit below the root of the machine precision.
            U, V = to_device_of(X.U, self.U), to_device_of(X.V, self.V)
            distance = float(np.linalg.norm(_core([self.U, U], [self.V.T, V.T], signs=(1, -1))))
            if relative:
                size = X.norm()
        else:
            blocks = self._column_blocks()
            distance = float(np.linalg.norm([np.linalg.norm(self.columns(j) - X[:, j]) for j in blocks]))
            if not np.isfinite(distance):
                raise ValueError("other holds NaN or infinite numbers: compare with a complete matrix")
            if relative:
                size = float(np.linalg.norm([np.linalg.norm(X[:, j].astype(np.float64)) for j in blocks]))
        if size == 0:
            raise ValueError("other is zero: an error relative to it is not defined")
        return distance / size

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor, as NumPy forgets read-only flags in a pickle.
        return type(self), (self.U, self.V)

    def __repr__(self) -> str:
        m, n = self.shape
        return f"LowRank({m} x {n}, rank {self.rank})"


def _core(left: Sequence[Float], right: Sequence[Float], signs: tuple[int, ...] = (1,)) -> Float:
    """R₁R₂ᵀ with [A₁, A₂ ...] = Q₁R₁ and [±B₁, ±B₂ ...] = Q₂R₂: Σ ±Aₖ Bₖᵀ up to rotations of both sides."""
    core: Float = _triangle(left, (1,) * len(left)) @ _triangle(right, signs).T
    return core


def _triangle(factors: Sequence[Float], signs: tuple[int, ...]) -> Any:
    """R of the QR factorisation of the factors side by side, a strip at a time: they may be larger than memory."""
    R: Any = None
    for strips in zip(*map(_strips, factors), strict=True):
        strip = np.hstack([A if sign > 0 else -A for A, sign in zip(strips, signs, strict=True)])
        R = np.linalg.qr(strip if R is None else np.vstack([R, strip]), mode="r")
    return R


def _strips(A: Float) -> list[Float]:
    """A tall factor in parts."""
    return [A[k : k + _STRIP] for k in range(0, max(1, len(A)), _STRIP)]


def _real_matrix(name: str, X: Any) -> NDArray[Any]:
    matrix: NDArray[Any] = X if on_device(X) else np.asarray(X)
    if matrix.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, not {matrix.dtype}")
    if matrix.ndim != 2:
        raise ValueError(f"{name} must have 2 dimensions, it has {matrix.ndim}")
    return matrix


def _index(name: str, index: ArrayLike, size: int) -> NDArray[Any]:
    index = np.asarray(index)
    if not index.size:
        return index.astype(np.intp)
    if index.dtype.kind not in "iu":
        raise IndexError(f"a {name} index must be integer, not {index.dtype}")
    outside = (index < -size) | (index >= size)
    if outside.any():
        raise IndexError(f"{name} {index[outside][0]} is out of range for a matrix with {size} {name}s")
    return index
