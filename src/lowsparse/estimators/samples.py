"""What the estimators share: samples in, checked as scikit-learn checks them, and samples out as they came."""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, validate_data

from ..entries.containers import recognised, rewrap, unwrap
from ..entries.observed import ObservedMatrix
from .large import is_large

__all__ = ["SampleTransformer", "as_they_came", "observed", "read", "require_choice", "seed"]

Samples = Any  # a float array with NaN where nothing is known, or a csr_array of what is known


class SampleTransformer(TransformerMixin, BaseEstimator):
    """A transformer that takes samples with holes, dense or sparse, and gives back the kind of numbers it was given."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def read(
    estimator: BaseEstimator, X: Any, *, reset: bool, absent: str = "missing", missing_values: float = np.nan
) -> Samples:
    """Check X and make it a float array (NaN is missing), or a csr_array whose stored entries are the observed ones.

    With ``absent="zero"`` what a sparse matrix does not store is a zero that was observed. A number can stand for
    missing entries.
    """
    if is_large(X):
        raise TypeError(
            f"{type(X).__name__}: the samples are not in memory, but this needs it; give some, X[:1000].compute()"
        )
    known = X.to_scipy() if isinstance(X, ObservedMatrix) else unwrap(X) if recognised(X) else X
    if isinstance(known, np.ma.MaskedArray):
        known = np.ma.filled(known.astype(np.promote_types(known.dtype, np.float32)), np.nan)
    array: Any = check_array(
        known,
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


def observed(samples: Samples) -> ObservedMatrix | None:
    """The entries, sorted by feature; None if there are none."""
    if not isinstance(samples, np.ndarray):
        return ObservedMatrix.from_scipy(samples) if samples.nnz else None
    return None if np.isnan(samples).all() else ObservedMatrix.from_dense(samples)


def as_they_came(estimator: Any, values: NDArray[Any], X: Any, columns: Any = None) -> Any:
    """The kind of container X is, with its index and with these columns; an array if scikit-learn is to decide.

    `set_output` decides for one estimator (``"default"`` is an array), ``sklearn.set_config`` for all.
    """
    if getattr(estimator, "_sklearn_output_config", {}).get("transform") is not None:
        return values
    if sklearn.get_config()["transform_output"] != "default":
        return values
    return rewrap(values, X, columns=columns) if recognised(X) else values


def require_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise unless the value is one of the choices."""
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")


def seed(random_state: Any) -> Any:
    """`random_state` as `solve` takes it: of a RandomState, which scikit-learn allows, a number is drawn."""
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return random_state
