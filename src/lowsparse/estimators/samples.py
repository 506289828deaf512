"""Samples as the estimators take them: in memory, checked as scikit-learn checks them, or larger than memory.

Samples that are not in memory are fitted where they are, and transformed lazily, a chunk of rows at a time.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Self, TypeAlias

import numpy as np
import sklearn
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, validate_data

from ..entries.containers import is_known, rewrap, unwrap
from ..entries.observed import ObservedMatrix
from ..entries.protocol import PartialMatrix
from ..entries.statistics import by_columns, column_medians
from ..linalg.lowrank import LowRank
from ..places.decide import choose_place, is_chunked
from ..robust.holdout import clip_errors, error_bound
from ..solvers.start import generator
from ..support.checks import check_choice, check_count
from ..support.optional import import_optional

IN_MEMORY = ("native", "numpy", "cuda")  # backends

# A float array, NaN where an entry is missing, or the observed entries.
Samples: TypeAlias = NDArray[Any] | sparse.csr_array | sparse.csc_array


class SampleTransformer(TransformerMixin, BaseEstimator):
    """A transformer of samples with missing entries: dense, sparse, or larger than memory."""

    backend: str
    absent: str
    memory: int | str | None = None
    missing_values: float = np.nan

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _observe(self, X: Any, *, reset: bool) -> tuple[Samples | None, PartialMatrix]:
        """The samples as they were read, None if they are not in memory, and the matrix of their entries."""
        check_choice("absent", self.absent, ("missing", "zero"))
        if is_large(X):
            return None, self._place(X, reset=reset)
        samples = self._read(X, reset=reset)
        M = to_observed(samples)
        if M is None:
            raise ValueError("X has no observed entry: there is nothing to learn from")
        return samples, M

    def _read(self, X: Any, *, reset: bool) -> Samples:
        """Check X and convert it to floating point; with ``absent="zero"``, what a sparse X does not store is zero."""
        if is_large(X):
            raise TypeError(
                f"{type(X).__name__}: the samples are not in memory, but this needs it; give some, X[:1000].compute()"
            )
        data = X.to_scipy() if isinstance(X, ObservedMatrix) else unwrap(X) if is_known(X) else X
        if isinstance(data, np.ma.MaskedArray):
            data = np.ma.filled(data.astype(np.promote_types(data.dtype, np.float32)), np.nan)
        array = check_array(
            data,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
            estimator=self,
            input_name="X",
        )
        validate_data(self, X if hasattr(X, "columns") else array, reset=reset, skip_check_array=True)
        if self.absent == "zero" and not isinstance(array, np.ndarray):
            array = array.toarray()
        if isinstance(array, np.ndarray):
            known = array != self.missing_values
            return array if known.all() else np.where(known, array, np.nan)
        entries = array.tocoo()
        known = ~np.isnan(entries.data) & (entries.data != self.missing_values)
        return sparse.csr_array((entries.data[known], (entries.row[known], entries.col[known])), shape=array.shape)

    def _place(self, X: Any, *, reset: bool) -> PartialMatrix:
        """Samples that are not in memory, as a matrix on disk or on a cluster."""
        if self.backend in IN_MEMORY:
            raise ValueError(f"backend={self.backend!r} is for samples in memory: leave it out, or X.compute() first")
        if any(math.isnan(size) for size in X.shape):
            raise ValueError("the number of samples is not known yet: X.compute_chunk_sizes() first")
        validate_data(self, X, reset=reset, skip_check_array=True)
        if not math.isnan(self.missing_values):
            if not is_dask(X):
                raise ValueError("missing_values is for Dask arrays, and for samples in memory: here NaN is missing")
            X = X.map_blocks(_mark_missing, self.missing_values, dtype=np.promote_types(X.dtype, np.float32))
        return choose_place(X, self.backend, memory=self.memory).place()

    def _rewrap(self, values: NDArray[Any], X: Any, columns: Any = None) -> Any:
        """Values in the kind of container X is, with its index and these columns; an array if scikit-learn decides.

        `set_output` decides for one estimator (``"default"`` is an array), ``sklearn.set_config`` for all.
        """
        configured = getattr(self, "_sklearn_output_config", {}).get("transform") is not None
        if configured or sklearn.get_config()["transform_output"] != "default" or not is_known(X):
            return values
        return rewrap(values, X, columns=columns)

    def _without(self, *attributes: str) -> Self:
        """A copy without these attributes, small enough to be sent to workers."""
        small = copy.copy(self)
        for name in attributes:
            small.__dict__.pop(name, None)
        return small


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


def to_dense(samples: Samples) -> NDArray[Any]:
    """The samples as an array, NaN where an entry is missing."""
    if isinstance(samples, np.ndarray):
        return samples
    dense = np.full(samples.shape, np.nan, samples.dtype)
    entries = samples.tocoo()
    dense[entries.row, entries.col] = entries.data
    return dense


def to_seed(random_state: Any) -> int | np.random.Generator | None:
    """`random_state` as `solve` takes it: a number drawn from a RandomState, which scikit-learn allows."""
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    seed: int | np.random.Generator | None = random_state
    return seed


def held_out_score(M: ObservedMatrix, predict: Callable[[ObservedMatrix | None], LowRank]) -> float:
    """How well entries are predicted from the others of their sample: 1 is exact, 0 is as good as medians.

    M has a column for each sample. In each of five folds a fifth of the entries, drawn at random, is hidden, and
    `predict` gives all entries (samples x features) from the rest. The score is 1 minus the ratio of two mean absolute
    errors: of these predictions, and of the features' medians. Errors are clipped at four times the robust scale of the
    data, as some entries are outliers.
    """
    fold = generator(0).integers(5, size=M.nnz)
    sample = M.columns_of_entries()
    error = np.empty(M.nnz)
    for k in range(5):
        hidden = fold == k
        rest = M.split(np.flatnonzero(hidden))[0]
        error[hidden] = predict(rest if rest.nnz else None).at(sample[hidden], M.rows[hidden]) - M.values[hidden]
    bound = error_bound(M.values)
    usual = clip_errors(column_medians(M.T)[M.rows] - M.values, bound).sum()
    return float(1 - clip_errors(error, bound).sum() / usual) if usual else float(not error.any())


# ---------------------------------------------------------------------- samples that are not in memory


def is_large(X: Any) -> bool:
    """Whether samples are not in memory: a Dask or Zarr array, or a matrix on disk or on a cluster."""
    return is_chunked(X) or bool(getattr(X, "in_pieces", False))


def is_dask(X: Any) -> bool:
    """Whether samples are a Dask array."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "map_blocks")


def _mark_missing(X: NDArray[Any], missing_values: float) -> NDArray[Any]:
    return np.where(missing_values == X, np.nan, X)


def map_chunks(function: Callable[..., NDArray[Any]], X: Any, width: int, *aligned: NDArray[Any]) -> Any:
    """Apply a function of samples, and of the same rows of other arrays, to all chunks of a Dask array, lazily."""
    da = import_optional("dask.array", "dask", "Dask arrays")
    dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    X = X.rechunk({1: -1})
    others = [da.from_array(rows, chunks=(X.chunks[0], -1)) for rows in aligned]
    options = {"chunks": (X.chunks[0], (width,)), "meta": np.empty((0, 0), dtype), "dtype": dtype}
    return da.map_blocks(function, X, *others, **options)


def map_samples(function: Callable[[sparse.csr_array], NDArray[Any]], M: PartialMatrix) -> NDArray[Any]:
    """Apply a function of samples to all rows of a matrix in pieces."""
    return by_columns(M.T, partial(_on_rows, function))


def _on_rows(function: Callable[[sparse.csr_array], NDArray[Any]], M: ObservedMatrix) -> NDArray[Any]:
    return function(M.to_scipy().T.tocsr())
