"""RobustImputer: missing entries filled, and if asked gross errors replaced, by what the other entries say."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import MissingIndicator
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from ..imputation.model import Imputation
from .large import (
    by_chunks,
    in_pieces,
    is_large,
    is_lazy,
    learnt_from,
    light,
)
from .samples import (
    SampleTransformer,
    as_they_came,
    observed,
    read,
    require_choice,
    seed,
)

__all__ = ["RobustImputer"]


class RobustImputer(SampleTransformer):
    """Fill the holes of a table by a low-rank model that gross errors do not lead astray.

    Rows are samples. The model is x_ij ≈ level_j + offset_i + (A Bᵀ)_ij in units of each feature's spread (see
    `lowsparse.imputation.model`). In `transform` every row is regressed robustly on what was learnt, from its own
    entries alone, so a new one may have holes and outliers too. `fit_transform` starts from where the fit has the
    rows: it is faster, and says nearly the same.

    Parameters
    ----------
    rank : int or "auto"
        The largest rank of A Bᵀ. How much of it is used is decided by entries kept aside; "auto" sets no limit but what
        the number of entries allows.
    clean : bool
        Replace entries that were observed but are gross errors, too; else they stay as they are.
    missing_values : number or NaN
        What stands for a missing entry. None and pandas' NA are missing in any case.
    add_indicator : bool
        Append columns that say where entries were missing (`sklearn.impute.MissingIndicator`).
    keep_empty_features : bool
        Keep features of which nothing was observed in `fit`, filled with 0; else they are left out.
    absent : "missing" or "zero"
        What a scipy.sparse matrix does not store is unknown, or zero. What comes back is dense.
    max_iter, backend, memory
        As in `lowsparse.solve`; `memory` is of samples that are not in memory. With backend "dask" the current client
        is used.
    random_state : int, Generator, RandomState or None
        Of the first directions of a path of shrinkage. The same data and seed give the same bits.

    Attributes
    ----------
    model_ : lowsparse.imputation.model.Imputation
        What was learnt, with ``result``, the `Result` of its low-rank part.
    rank_ : int
        The rank it has.
    indicator_ : MissingIndicator, if asked for
    n_iter_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> from lowsparse import RobustImputer
    >>> rng = np.random.default_rng(5)
    >>> truth = 20 + rng.standard_normal((120, 2)) @ rng.standard_normal((2, 15))
    >>> X = truth.copy()
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> X[3, 4] = 9999.0
    >>> filled = RobustImputer(clean=True).fit_transform(X)
    >>> bool(np.abs(filled - truth).max() < 0.1)
    True
    """

    def __init__(
        self,
        rank: int | str = "auto",
        *,
        clean: bool = False,
        missing_values: float = np.nan,
        add_indicator: bool = False,
        keep_empty_features: bool = False,
        absent: str = "missing",
        max_iter: int = 500,
        backend: str = "auto",
        memory: int | str | None = None,
        random_state: Any = 0,
    ) -> None:
        self.rank = rank
        self.clean = clean
        self.missing_values = missing_values
        self.add_indicator = add_indicator
        self.keep_empty_features = keep_empty_features
        self.absent = absent
        self.max_iter = max_iter
        self.backend = backend
        self.memory = memory
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the model.

        Parameters
        ----------
        X : n_samples x n_features
            NumPy (NaN is missing), masked arrays, data frames, scipy.sparse, an `ObservedMatrix`, tensors. Larger than
            memory: a Dask or Zarr array, or a `StoredMatrix`; it is solved from disk, or on the current Dask cluster.
        y
            Not used.
        """
        if is_large(X):
            self._learn_large(X)
        else:
            self._learn(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Learn the model and fill the holes of the samples; with `clean`, replace their gross errors too.

        Parameters
        ----------
        X : n_samples x n_features
            Anything `fit` takes.
        y
            Not used.

        Returns
        -------
        As `transform`.
        """
        if is_large(X):
            self._learn_large(X)
            fitted = self.model_.lowrank(self.backend)
            return self._by_chunks(_Fitted(self._alone, fitted.V), X, fitted.U)
        samples = self._learn(X)
        return self._fill(X, samples, self.model_.lowrank(self.backend).to_dense())

    def transform(self, X: Any) -> Any:
        """Fill the holes of samples; with `clean`, replace their gross errors too.

        Parameters
        ----------
        X : n_samples x n_features
            Anything `fit` takes; rows that were fitted, or new ones.

        Returns
        -------
        n_samples x n_features (less the empty ones, with indicators if asked for), in the kind of container X is; of a
        Dask array, a Dask array.
        """
        check_is_fitted(self)
        if is_large(X):
            return self._by_chunks(self._alone.transform, X)
        samples = self._read(X, reset=False)
        return self._fill(X, samples, self._predict(samples))

    def outliers(self, X: Any) -> sparse.csr_array:
        """The gross errors of samples: X less what it should have been, where that is more than four times the noise.

        Parameters
        ----------
        X : n_samples x n_features
            Samples, new or not.

        Returns
        -------
        csr_array, n_samples x n_features, only on observed entries, only non-zeros
        """
        check_is_fitted(self)
        samples = self._read(X, reset=False)
        given, fitted = _dense(samples), self._predict(samples)
        wrong = self._outlying(given, fitted)
        return sparse.csr_array(np.where(wrong, given - fitted, 0.0).astype(samples.dtype))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The names of the features that come back; of an indicator, "missingindicator_" and the feature's name."""
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        kept = names if self.keep_empty_features else names[self._kept]
        if not self.add_indicator:
            return np.asarray(kept, dtype=object)
        return np.concatenate([kept, self.indicator_.get_feature_names_out(names)]).astype(object)

    def _read(self, X: Any, *, reset: bool) -> Any:
        return read(self, X, reset=reset, absent=self.absent, missing_values=self.missing_values)

    def _check(self) -> None:
        require_choice("absent", self.absent, ("missing", "zero"))
        for name in ("clean", "add_indicator", "keep_empty_features"):
            require_choice(name, getattr(self, name), (True, False))

    def _learn(self, X: Any) -> Any:
        """Fit, and return the samples as they were read."""
        self._check()
        samples = self._read(X, reset=True)
        M = observed(samples)
        if M is None:
            raise ValueError("X has no observed entry: there is nothing to learn from")
        if self.add_indicator:
            self.indicator_ = MissingIndicator(error_on_new=False).fit(_dense(samples))
        self._fit(M)
        return samples

    def _learn_large(self, X: Any) -> None:
        """Fit samples that are not in memory."""
        self._check()
        M = learnt_from(self, X, reset=True, missing_values=self.missing_values)
        if self.add_indicator:  # two samples that lack what these lack
            holes = np.where(M.column_counts < M.shape[0], np.nan, 0.0)
            self.indicator_ = MissingIndicator(error_on_new=False).fit(np.vstack([holes, np.zeros_like(holes)]))
        self._fit(M)

    def _fit(self, M: Any) -> None:
        self._kept = M.column_counts > 0
        if not self._kept.all() and not self.keep_empty_features:
            warnings.warn(
                f"RobustImputer: {np.count_nonzero(~self._kept)} features have no observed entry and are left out; "
                "keep_empty_features=True keeps them, filled with 0",
                stacklevel=4,
            )
        self.model_ = Imputation.fit(
            M,
            self.rank,
            max_iter=self.max_iter,
            backend="auto" if in_pieces(M) else self.backend,
            random_state=seed(self.random_state),
        )
        self._prediction = self.model_.prediction
        self.rank_ = self.model_.rank
        result = self.model_.result
        self.n_iter_ = result.n_iter
        if not self.model_.borne_out:
            warnings.warn(f"RobustImputer: {result.status.value}: {result.message}", ConvergenceWarning, stacklevel=4)

    @property
    def _alone(self) -> Any:
        """Without what it was learnt from."""
        return light(self, "model_")

    def _by_chunks(self, function: Any, X: Any, *beside: Any) -> Any:
        if not is_lazy(X):
            raise TypeError(
                f"what {type(X).__name__} lacks cannot be filled lazily: give a Dask array, such as "
                "dask.array.from_array(X), or use model_.lowrank()"
            )
        return by_chunks(function, X, len(self.get_feature_names_out()), *beside)

    def _predict(self, samples: Any) -> NDArray[np.float64]:
        """What the model says of each entry of samples, by the rest of their row."""
        return self._prediction.rows(observed(samples.T), samples.shape[0], self.backend)

    def _fill(self, X: Any, samples: Any, said: NDArray[np.float64]) -> Any:
        """The samples, with what the model says of what they lack; of features it knows nothing of, 0."""
        said[:, ~self._kept] = 0.0
        filled = _dense(samples).copy()
        wrong = np.isnan(filled)
        if self.clean:
            wrong |= self._outlying(filled, said)
        np.copyto(filled, said, where=wrong, casting="same_kind")
        if not self.keep_empty_features and not self._kept.all():
            filled = filled[:, self._kept]
        if self.add_indicator:
            filled = np.hstack([filled, self.indicator_.transform(_dense(samples)).astype(filled.dtype)])
        whole = filled.shape[1] == samples.shape[1] and not self.add_indicator
        return as_they_came(self, filled, X, None if whole else self.get_feature_names_out())

    def _outlying(self, given: NDArray[Any], fitted: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which observed entries are gross errors."""
        with np.errstate(invalid="ignore"):
            return np.asarray((np.abs(given - fitted) > self._prediction.tolerance) & self._kept)


class _Fitted:
    """Samples that were fitted, filled by their rows of the factor U and by V."""

    def __init__(self, imputer: RobustImputer, V: NDArray[np.float64]) -> None:
        self.imputer, self.V = imputer, V

    def __call__(self, X: NDArray[Any], U: NDArray[np.float64]) -> Any:
        samples = self.imputer._read(X, reset=False)
        return self.imputer._fill(X, samples, U @ self.V)


def _dense(samples: Any) -> NDArray[Any]:
    """As an array, NaN where nothing is known."""
    if isinstance(samples, np.ndarray):
        return samples
    whole = np.full(samples.shape, np.nan, samples.dtype)
    entries = samples.tocoo()
    whole[entries.row, entries.col] = entries.data
    return whole
