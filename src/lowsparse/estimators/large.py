"""Samples that are not in memory: learnt from where they are, and transformed lazily, a chunk of rows at a time."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from ..entries.observed import ObservedMatrix
from ..places.decide import is_chunked, placed
from ..places.pieces.along import by_columns

__all__ = ["by_chunks", "by_samples", "in_pieces", "is_large", "is_lazy", "learnt_from", "light"]

IN_MEMORY = ("native", "numpy", "cuda")


def is_large(X: Any) -> bool:
    """Whether samples are not in memory: a Dask or Zarr array, or a `StoredMatrix`.

    >>> is_large(np.ones((2, 2)))
    False
    """
    return is_chunked(X) or in_pieces(X)


def in_pieces(X: Any) -> bool:
    """Whether samples are a matrix in pieces.

    >>> in_pieces(np.ones((2, 2)))
    False
    """
    return isinstance(getattr(X, "backend", None), str)


def is_lazy(X: Any) -> bool:
    """Whether samples are a Dask array.

    >>> is_lazy(np.ones((2, 2)))
    False
    """
    return hasattr(X, "__dask_graph__") and hasattr(X, "map_blocks")


def learnt_from(estimator: Any, X: Any, *, reset: bool, missing_values: float = np.nan) -> Any:
    """The samples as a matrix in pieces, with a row for each sample."""
    if estimator.backend in IN_MEMORY:
        raise ValueError(f"backend={estimator.backend!r} is for samples in memory: leave it out, or X.compute() first")
    if any(math.isnan(size) for size in X.shape):
        raise ValueError("the number of samples is not known yet: X.compute_chunk_sizes() first")
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    if not math.isnan(missing_values):
        if not is_lazy(X):
            raise ValueError("missing_values is for Dask arrays, and for samples in memory: here NaN is missing")
        X = X.map_blocks(_with_holes, missing_values, dtype=np.promote_types(X.dtype, np.float32))
    return placed(X, estimator.backend, memory=estimator.memory)


def _with_holes(X: NDArray[Any], missing_values: float) -> NDArray[Any]:
    return np.where(missing_values == X, np.nan, X)


def light(estimator: Any, *without: str) -> Any:
    """A copy without some attributes, small enough to be sent to workers."""
    small = copy.copy(estimator)
    for name in without:
        small.__dict__.pop(name, None)
    return small


def by_chunks(function: Callable[..., NDArray[Any]], X: Any, width: int, *beside: NDArray[Any]) -> Any:
    """What a function of some samples, and of the rows beside them, gives for all chunks of a Dask array; lazily."""
    da: Any = import_module("dask.array")

    dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    X = X.rechunk({1: -1})
    more = [da.from_array(rows, chunks=(X.chunks[0], -1)) for rows in beside]
    options = {"chunks": (X.chunks[0], (width,)), "meta": np.empty((0, 0), dtype), "dtype": dtype}
    return da.map_blocks(function, X, *more, **options)


def by_samples(function: Callable[[NDArray[Any]], NDArray[Any]], M: Any) -> NDArray[Any]:
    """What a function of some samples gives for all rows of a matrix in pieces."""
    return by_columns(M.T, _OfSamples(function))


@dataclass(frozen=True)
class _OfSamples:
    function: Callable[[Any], NDArray[Any]]

    def __call__(self, M: ObservedMatrix) -> NDArray[Any]:
        return self.function(M.to_scipy().T.tocsr())
