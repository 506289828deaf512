"""RobustImputer: missing entries filled, and gross errors replaced if asked for, from all other entries."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import MissingIndicator
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from ..entries.containers import boolean_columns, is_known
from ..entries.observed import ObservedMatrix
from ..entries.protocol import PartialMatrix
from ..imputation.bands import Bands
from ..imputation.model import MAX_REPLACED, Imputation
from ..linalg.lowrank import LowRank
from ..robust.calibration import Interval
from ..support.checks import check_choice, check_share
from ..support.format import percent
from ..sweeps import host_backend
from .curved import as_imputer, compare, train, without_errors
from .samples import (
    Samples,
    SampleTransformer,
    held_out_score,
    is_dask,
    is_large,
    map_chunks,
    to_dense,
    to_observed,
    to_seed,
)


class RobustImputer(SampleTransformer):
    """Fill the missing entries of a table by a low-rank model that is robust to gross errors.

    Rows are samples. The model is x_ij ≈ level_j + offset_i + (A Bᵀ)_ij in units of each feature's spread (see
    `lowsparse.imputation.model`). `transform` regresses every row robustly on the fitted model, by its own entries
    alone; new rows may have missing entries and outliers too. `fit_transform` starts from the coefficients of the fit:
    it is faster, with nearly the same result.

    Parameters
    ----------
    rank : int or "auto"
        The largest rank of A Bᵀ; "auto" is the largest that the number of entries allows. The rank is chosen by
        held-out entries.
    clean : bool
        Also replace observed entries that are gross errors.
    max_replaced : float
        The largest share of the entries that `clean` may replace in `fit`. If more are taken for errors, `fit` fails:
        a low-rank model hardly fits such a table.
    refine : a regressor or an imputer of scikit-learn, optional
        For small tables whose features depend on each other along curves, such as
        ``RandomForestRegressor(random_state=0)``: what is missing, or replaced, is predicted by an `IterativeImputer`
        with this regressor, or by this imputer, trained on the entries that low rank does not flag as gross errors. It
        is used if it predicts entries kept aside better than low rank does; `notes_` says so. In memory only.
    missing_values : number or NaN
        The placeholder of missing entries. None and pandas' NA are missing in any case.
    add_indicator : bool
        Append indicators of missing entries (`sklearn.impute.MissingIndicator`).
    keep_empty_features : bool
        Keep features without any observed entry in `fit`, filled with 0; else they are dropped.
    absent : "missing" or "zero"
        Whether entries that a scipy.sparse matrix does not store are unknown, or zero. The result is dense.
    max_iter, backend, memory
        As in `lowsparse.solve`; `memory` is for samples that are not in memory. Backend "dask" uses the current client.
    random_state : int, Generator, RandomState or None
        Used to start a path of shrinkage. The same data and seed give the same bits.

    Attributes
    ----------
    model_ : lowsparse.imputation.model.Imputation
        The fitted model, with ``result``, the `Result` of its low-rank part.
    rank_ : int
        The rank of the low-rank part.
    refiner_ : the fitted imputer, or None
        If `refine` is given and predicts entries kept aside better.
    notes_ : tuple of str
        What a user should know: whether low rank fits, if `refine` is given.
    indicator_ : MissingIndicator
        If `add_indicator`.
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
        max_replaced: float = MAX_REPLACED,
        refine: Any = None,
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
        self.max_replaced = max_replaced
        self.refine = refine
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

        Returns
        -------
        RobustImputer
            Itself.
        """
        self._fit(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Learn the model, and fill the samples it was learnt from.

        Parameters
        ----------
        X : n_samples x n_features
            As for `fit`.
        y
            Not used.

        Returns
        -------
        array or data frame
            As of `transform`.

        Examples
        --------
        >>> X = np.outer(np.arange(1.0, 21.0), np.arange(1.0, 9.0))
        >>> holes = X.copy()
        >>> holes[3, 4] = np.nan
        >>> bool(abs(RobustImputer().fit_transform(holes)[3, 4] - X[3, 4]) < 1e-3)
        True
        """
        samples = self._fit(X)
        fitted = self.model_.lowrank()
        if samples is None:
            return self._map_chunks(partial(self._without("model_")._fill_fitted, fitted.V), X, fitted.U)
        return self._fill(X, samples, self._refined(samples, fitted.to_dense()))

    def transform(self, X: Any) -> Any:
        """Fill the missing entries of samples; with `clean`, replace their gross errors too.

        Parameters
        ----------
        X : n_samples x n_features
            Anything that `fit` takes, with rows that were fitted or new ones.

        Returns
        -------
        array or data frame
            n_samples x n_features (without the empty ones, with indicators if asked for), in the kind of container X
            is; a Dask array if X is one.
        """
        check_is_fitted(self)
        if is_large(X):
            return self._map_chunks(self._without("model_").transform, X)
        samples = self._read(X, reset=False)
        return self._fill(X, samples, self._refined(samples, self._predict(samples)))

    def predict_interval(self, X: Any, interval: float = 0.9) -> Interval:
        """Fill samples as `transform` does, with bands that hold the truth with a given probability.

        The bands are calibrated on a tenth of the fitted entries, which a second fit, made when this is first called,
        does not see: by feature, and by the number of entries of the row.

        Parameters
        ----------
        X : n_samples x n_features
            In memory, with rows that were fitted or new ones.
        interval
            The probability, between 0 and 1.

        Returns
        -------
        Interval
            ``value``, ``lower`` and ``upper``, each n_samples x n_features. Where a value is kept, all are the value.

        Raises
        ------
        ValueError
            If the imputer adds indicators, or refines what the low-rank part predicts.
        TypeError
            If it was fitted to samples that are not in memory.

        Examples
        --------
        >>> rng = np.random.default_rng(1)
        >>> X = rng.standard_normal((300, 2)) @ rng.standard_normal((2, 12)) + 0.2 * rng.standard_normal((300, 12))
        >>> hidden = rng.random(X.shape) < 0.1
        >>> imputer = RobustImputer().fit(np.where(hidden, np.nan, X))
        >>> band = imputer.predict_interval(np.where(hidden, np.nan, X), 0.9)
        >>> bool(abs(((band.lower <= X) & (X <= band.upper))[hidden].mean() - 0.9) < 0.05)
        True
        """
        check_is_fitted(self)
        check_share("interval", interval)
        if self.add_indicator:
            raise ValueError("bands are for values, not for indicators: fit with add_indicator=False")
        if self.refiner_ is not None:
            raise ValueError("bands are those of the low-rank part: fit with refine=None")
        if self.model_.result.M.in_pieces:
            raise TypeError("bands are for samples in memory: fit a part of the rows, X[:100_000].compute()")
        if not hasattr(self, "_bands"):
            options = {"max_iter": self.max_iter, "backend": self.backend, "random_state": 0}
            self._bands = Bands.fit(self.model_, self.rank, **options)
        samples = self._read(X, reset=False)
        given, predicted = to_dense(samples), self._predict(samples)
        replaced = np.isnan(given) | (self._outlying(given, predicted) & bool(self.clean))
        width = np.where(replaced, self._bands.half_widths((~np.isnan(given)).sum(axis=1), interval), 0.0)
        bands = (self._fill(X, samples, predicted + side * width) for side in (0.0, -1.0, 1.0))
        return Interval(*bands)

    def outliers(self, X: Any) -> sparse.csr_array:
        """The gross errors of samples: X minus its prediction, where that is more than four times the noise.

        Parameters
        ----------
        X : n_samples x n_features
            In memory, with rows that were fitted or new ones.

        Returns
        -------
        csr_array
            n_samples x n_features, only on observed entries, only non-zeros.
        """
        check_is_fitted(self)
        samples = self._read(X, reset=False)
        given, fitted = to_dense(samples), self._predict(samples)
        wrong = self._outlying(given, fitted)
        return sparse.csr_array(np.where(wrong, given - fitted, 0.0).astype(samples.dtype))

    def score(self, X: Any, y: Any = None) -> float:
        """How well entries of X are predicted from the others of their sample.

        As `RobustPCA.score`, in units of each feature's spread.

        Parameters
        ----------
        X : n_samples x n_features
            In memory; it should be samples that were not fitted.
        y
            Not used.

        Returns
        -------
        float
            1 is exact, 0 is as good as medians.

        Raises
        ------
        ValueError
            If X has no entry.

        Examples
        --------
        >>> rng = np.random.default_rng(2)
        >>> X = rng.standard_normal((200, 2)) @ rng.standard_normal((2, 10)) * np.logspace(0, 5, 10)
        >>> RobustImputer().fit(X[:100]).score(X[100:]) > 0.9
        True
        """
        check_is_fitted(self)
        M = to_observed(self._read(X, reset=False).T)
        if M is None:
            raise ValueError("X has no entry that could be predicted")
        scale, level = self._prediction.preparation.scale, self._prediction.preparation.level
        features, one = len(scale), np.ones((M.shape[1], 1))

        def predict(rest: ObservedMatrix | None) -> LowRank:
            if rest is not None:
                rest = rest.with_values((rest.values + level[rest.rows]) * scale[rest.rows])
            found = self._prediction.rows(rest, len(one), host_backend(self.backend)) / scale - level
            return LowRank(found, np.eye(features))

        return held_out_score(M.with_values(M.values / scale[M.rows] - level[M.rows]), predict)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The names of the features of the output.

        Parameters
        ----------
        input_features
            The names of the features, if they were not learnt from a data frame.

        Returns
        -------
        array of str
            An indicator has "missingindicator_" and the name of its feature.
        """
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        kept = names if self.keep_empty_features else names[self._kept]
        if not self.add_indicator:
            return np.asarray(kept, dtype=object)
        return np.concatenate([kept, self.indicator_.get_feature_names_out(names)]).astype(object)

    def _fit(self, X: Any) -> Samples | None:
        """Fit, and return the samples as they were read; None if they are not in memory."""
        for name in ("clean", "add_indicator", "keep_empty_features"):
            check_choice(name, getattr(self, name), (True, False))
        check_share("max_replaced", self.max_replaced, ends=True)
        samples, M = self._observe(X, reset=True)
        if self.add_indicator:
            if samples is None:  # two samples in which the same features are missing
                pattern = np.where([M.column_counts < M.shape[0], np.zeros(M.shape[1], bool)], np.nan, 0.0)
            else:
                pattern = to_dense(samples)
            self.indicator_ = MissingIndicator(error_on_new=False).fit(pattern)
        self._kept = M.column_counts > 0
        if not self._kept.all() and not self.keep_empty_features:
            warnings.warn(
                f"RobustImputer: {np.count_nonzero(~self._kept)} features have no observed entry and are dropped; "
                "keep_empty_features=True keeps them, filled with 0",
                stacklevel=3,
            )
        self.__dict__.pop("_bands", None)
        fit = partial(
            Imputation.fit,
            rank=self.rank,
            max_iter=self.max_iter,
            backend="auto" if M.in_pieces else self.backend,
            random_state=to_seed(self.random_state),
        )
        self.model_ = fit(M)
        if self.clean and (share := self.model_.flagged_share) > self.max_replaced:
            raise ValueError(
                f"clean=True would replace {percent(share)} of the entries, more than max_replaced = "
                f"{self.max_replaced:g}: low rank does not fit them; use clean=False, or raise max_replaced"
            )
        self._prediction = self.model_.prediction
        self._fit_refiner(samples, M, fit)
        self.rank_ = self.model_.rank
        result = self.model_.result
        self.n_iter_ = result.n_iter
        if not self.model_.is_reliable:
            warnings.warn(f"RobustImputer: {result.status.value}: {result.message}", ConvergenceWarning, stacklevel=3)
        return samples

    def _fit_refiner(
        self, samples: Samples | None, M: PartialMatrix, fit: Callable[[ObservedMatrix], Imputation]
    ) -> None:
        """Train the refining estimator on what is not flagged, if it predicts entries kept aside better."""
        self.refiner_ = None
        self.notes_: tuple[str, ...] = ()
        if self.refine is None:
            return
        imputer = as_imputer(self.refine)
        if samples is None or not isinstance(M, ObservedMatrix):
            raise TypeError("refine is for samples in memory: fit a part of the rows, X[:100_000].compute()")
        comparison = compare(M, fit, self.refine)
        self.notes_ = (comparison.note,)
        if comparison.refined < comparison.low_rank:
            table = without_errors(to_dense(samples), self.model_.lowrank().to_dense(), self.model_)
            train(imputer, table[:, self._kept])
            self.refiner_ = imputer

    def _refined(self, samples: Samples, predicted: NDArray[np.float64]) -> NDArray[np.float64]:
        """Predictions by the refining estimator for what is missing or, to low rank, wrong."""
        if self.refiner_ is None:
            return predicted
        given = to_dense(samples)
        table = np.where(self._outlying(given, predicted), np.nan, given)
        found = predicted.copy()
        found[:, self._kept] = self.refiner_.transform(table[:, self._kept])
        return np.where(np.isnan(table), found, predicted)

    def _map_chunks(self, function: Callable[..., NDArray[Any]], X: Any, *aligned: NDArray[Any]) -> Any:
        if not is_dask(X):
            raise TypeError(
                f"the missing entries of a {type(X).__name__} cannot be filled lazily: give a Dask array, such as "
                "dask.array.from_array(X), or use model_.lowrank()"
            )
        return map_chunks(function, X, len(self.get_feature_names_out()), *aligned)

    def _predict(self, samples: Samples) -> NDArray[np.float64]:
        """The prediction of all entries of samples."""
        return self._prediction.rows(to_observed(samples.T), samples.shape[0], host_backend(self.backend))

    def _fill(self, X: Any, samples: Samples, predicted: NDArray[np.float64]) -> Any:
        """The samples, with predictions for missing entries, and 0 in features without any entry in `fit`."""
        predicted[:, ~self._kept] = 0.0
        truths = boolean_columns(X) if is_known(X) or isinstance(X, np.ndarray) else np.zeros(samples.shape[1], bool)
        predicted[:, truths] = predicted[:, truths] > 0.5  # True and False stay what they are
        filled = to_dense(samples).copy()
        replaced = np.isnan(filled)
        if self.clean:
            replaced |= self._outlying(filled, predicted)
        np.copyto(filled, predicted, where=replaced, casting="same_kind")
        if not self.keep_empty_features and not self._kept.all():
            filled = filled[:, self._kept]
        if self.add_indicator:
            filled = np.hstack([filled, self.indicator_.transform(to_dense(samples)).astype(filled.dtype)])
        same_features = filled.shape[1] == samples.shape[1] and not self.add_indicator
        return self._rewrap(filled, X, None if same_features else self.get_feature_names_out())

    def _fill_fitted(self, V: NDArray[np.float64], X: NDArray[Any], U: NDArray[np.float64]) -> Any:
        """Fill samples that were fitted, by their rows of the factor U and by V."""
        return self._fill(X, self._read(X, reset=False), U @ V)

    def _outlying(self, given: NDArray[Any], fitted: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which observed entries are gross errors."""
        return self._prediction.is_wrong(given, fitted) & self._kept
