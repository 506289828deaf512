"""Samples as the estimators take them: in memory, checked as scikit-learn checks them, or larger than memory.

Samples that are not in memory are fitted where they are, and transformed lazily, a chunk of rows at a time.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, validate_data

from ..entries.containers import is_known, rewrap, unwrap
from ..entries.observed import ObservedMatrix
from ..entries.statistics import by_columns
from ..places.decide import choose_place, is_chunked
from ..support.checks import check_count
from ..support.optional import import_optional

IN_MEMORY = ("native", "numpy", "cuda")  # backends

Samples = Any  # a float array, NaN where an entry is missing, or a csr_array of the observed entries


class SampleTransformer(TransformerMixin, BaseEstimator):
    """A transformer of samples with missing entries, dense or sparse, in single or double precision."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def read_samples(
    estimator: BaseEstimator, X: Any, *, reset: bool, absent: str = "missing", missing_values: float = np.nan
) -> Samples:
    """Check X and make it a float array (NaN is missing), or a csr_array whose stored entries are the observed ones.

    With ``absent="zero"`` entries that a sparse matrix does not store are observed zeros.
    """
    if is_large(X):
        raise TypeError(
            f"{type(X).__name__}: the samples are not in memory, but this needs it; give some, X[:1000].compute()"
        )
    data = X.to_scipy() if isinstance(X, ObservedMatrix) else unwrap(X) if is_known(X) else X
    if isinstance(data, np.ma.MaskedArray):
        data = np.ma.filled(data.astype(np.promote_types(data.dtype, np.float32)), np.nan)
    array: Any = check_array(
        data,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        ensure_all_finite="allow-nan",
        estimator=estimator,
        input_name="X",
    )
    validate_data(estimator, X if hasattr(X, "columns") else array, reset=reset, skip_check_array=True)
    if absent == "zero" and not isinstance(array, np.ndarray):
        array = array.toarray()
    if isinstance(array, np.ndarray):
        known = array != missing_values
        return array if known.all() else np.where(known, array, np.nan)
    known = ~np.isnan(array.data) & (array.data != missing_values)
    entries = array.tocoo()
    return sparse.csr_array((entries.data[known], (entries.row[known], entries.col[known])), shape=array.shape)


def check_n_components(n_components: Any, shape: tuple[int, int], maximum: int, also: str = "") -> int:
    """`n_components` as a number from 1 to `maximum`; the error has the shape of the samples."""
    try:
        return check_count("n_components", n_components, maximum=maximum, also=also)
    except ValueError as error:
        raise ValueError(f"{error}, with n_samples = {shape[0]} and n_features = {shape[1]}") from None


def to_observed(samples: Samples) -> ObservedMatrix | None:
    """The entries as an `ObservedMatrix`; None if there are none."""
    if not isinstance(samples, np.ndarray):
        return ObservedMatrix.from_scipy(samples) if samples.nnz else None
    return None if np.isnan(samples).all() else ObservedMatrix.from_dense(samples)


def like_input(estimator: Any, values: NDArray[Any], X: Any, columns: Any = None) -> Any:
    """Values in the kind of container X is, with its index and these columns; an array if scikit-learn is to decide.

    `set_output` decides for one estimator (``"default"`` is an array), ``sklearn.set_config`` for all.
    """
    configured = getattr(estimator, "_sklearn_output_config", {}).get("transform") is not None
    if configured or sklearn.get_config()["transform_output"] != "default" or not is_known(X):
        return values
    return rewrap(values, X, columns=columns)


def to_seed(random_state: Any) -> Any:
    """`random_state` as `solve` takes it: a number drawn from a RandomState, which scikit-learn allows."""
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return random_state


# ---------------------------------------------------------------------- samples that are not in memory


def is_large(X: Any) -> bool:
    """Whether samples are not in memory: a Dask or Zarr array, or a `StoredMatrix`."""
    return is_chunked(X) or in_pieces(X)


def in_pieces(X: Any) -> bool:
    """Whether samples are a matrix in pieces, on disk or on a cluster."""
    return bool(getattr(X, "in_pieces", False))


def is_dask(X: Any) -> bool:
    """Whether samples are a Dask array."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "map_blocks")


def to_pieces(estimator: Any, X: Any, *, reset: bool, missing_values: float = np.nan) -> Any:
    """The samples as a matrix in pieces, with a row for each sample."""
    if estimator.backend in IN_MEMORY:
        raise ValueError(f"backend={estimator.backend!r} is for samples in memory: leave it out, or X.compute() first")
    if any(math.isnan(size) for size in X.shape):
        raise ValueError("the number of samples is not known yet: X.compute_chunk_sizes() first")
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    if not math.isnan(missing_values):
        if not is_dask(X):
            raise ValueError("missing_values is for Dask arrays, and for samples in memory: here NaN is missing")
        X = X.map_blocks(_mark_missing, missing_values, dtype=np.promote_types(X.dtype, np.float32))
    return choose_place(X, estimator.backend, memory=estimator.memory).place()


def _mark_missing(X: NDArray[Any], missing_values: float) -> NDArray[Any]:
    return np.where(missing_values == X, np.nan, X)


def copy_without(estimator: Any, *attributes: str) -> Any:
    """A copy of an estimator that is small enough to be sent to workers."""
    small = copy.copy(estimator)
    for name in attributes:
        small.__dict__.pop(name, None)
    return small


def map_chunks(function: Callable[..., NDArray[Any]], X: Any, width: int, *aligned: NDArray[Any]) -> Any:
    """Apply a function of samples, and of the same rows of other arrays, to all chunks of a Dask array, lazily."""
    da = import_optional("dask.array", "dask", "Dask arrays")
    dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    X = X.rechunk({1: -1})
    others = [da.from_array(rows, chunks=(X.chunks[0], -1)) for rows in aligned]
    options = {"chunks": (X.chunks[0], (width,)), "meta": np.empty((0, 0), dtype), "dtype": dtype}
    return da.map_blocks(function, X, *others, **options)


def map_samples(function: Callable[[NDArray[Any]], NDArray[Any]], M: Any) -> NDArray[Any]:
    """Apply a function of samples to all rows of a matrix in pieces."""
    return by_columns(M.T, partial(_on_rows, function))


def _on_rows(function: Callable[[Any], NDArray[Any]], M: ObservedMatrix) -> NDArray[Any]:
    return function(M.to_scipy().T.tocsr())
