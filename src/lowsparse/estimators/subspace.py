"""What follows from a fitted subspace: the scores, reconstruction and outliers of samples, and a score of the fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from ..entries.observed import ObservedMatrix
from ..linalg.lowrank import LowRank
from ..linalg.scale import OUTLIER
from ..robust.regression import EFFICIENT, SubspaceRegression
from ..sweeps import Float, host_backend
from .samples import (
    Samples,
    SampleTransformer,
    held_out_score,
    is_dask,
    is_large,
    map_chunks,
    map_samples,
    to_observed,
)


def principal_axes(L: LowRank) -> tuple[Float, Float, Float]:
    """(scores, singular values, components) with L = scores @ components and orthonormal components.

    The entry of a component with the largest magnitude is positive.
    """
    Q, R = np.linalg.qr(L.U)
    left, sizes, right = np.linalg.svd(R @ L.V, full_matrices=False)
    sign = signs(right)
    return Q @ (left * sizes * sign) + 0.0, sizes, right * sign[:, None] + 0.0


def signs(components: Float) -> Float:
    """1 or -1 for each component, which makes its entry of largest magnitude positive."""
    largest = np.argmax(np.abs(components), axis=1)
    return np.where(components[np.arange(len(components)), largest] < 0, -1.0, 1.0)


class SubspaceTransformer(ClassNamePrefixFeaturesOutMixin, SampleTransformer):
    """A transformer with `components_` (orthonormal rows), `mean_` and `noise_`."""

    components_: Float
    mean_: Float | None
    scale_: Float | None = None  # of the features; None: 1
    noise_: float
    n_features_in_: int
    _relative: Float | None = None  # the noise of each feature relative to `noise_`, by which errors are told; None: 1
    _unit: float  # the median magnitude of the entries
    _largest: float  # the longest scores that are accepted if few entries determine them

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _centred(self, samples: Samples) -> ObservedMatrix | None:
        """The entries minus the mean, in units of the scale, a column for each sample."""
        M = to_observed(samples.T)
        if M is not None and self.mean_ is not None:
            M = M.with_values((M.values - self.mean_[M.rows]).astype(M.dtype))
        if M is not None and self.scale_ is not None:
            M = M.with_values((M.values / self.scale_[M.rows]).astype(M.dtype))
        return M

    def _scores(self, M: ObservedMatrix | None, n: int) -> Float:
        if M is None:
            return np.zeros((n, len(self.components_)))
        B = np.ascontiguousarray(self.components_.T, dtype=np.float64)
        regression = SubspaceRegression(B, EFFICIENT * self.noise_, self._unit, self._largest)
        return regression.coefficients(M, host_backend(self.backend))  # new samples are in memory

    def transform(self, X: Any) -> Any:
        """The scores of samples, by robust regression on the components.

        Missing entries are left out, gross errors have no influence, and the scores of a sample depend on that sample
        alone. One without any entry gets zeros.

        Parameters
        ----------
        X : n_samples x n_features
            Anything that `fit` takes.

        Returns
        -------
        array or data frame
            n_samples x n_components, in the kind of container X is: a Dask array is transformed lazily, and the scores
            of a matrix on disk are an array.
        """
        check_is_fitted(self)
        if is_large(X):
            transform = self._without("result_", "outliers_").transform
            if is_dask(X):
                return map_chunks(transform, X, len(self.components_))
            return map_samples(transform, self._place(X, reset=False))
        samples = self._read(X, reset=False)
        scores = self._scores(self._centred(samples), samples.shape[0]).astype(samples.dtype, copy=False)
        return self._rewrap(scores, X, self.get_feature_names_out())

    def inverse_transform(self, X: Any) -> Any:
        """The samples that have these scores: ``X @ components_``, times the scale and plus the mean, if any.

        Parameters
        ----------
        X : n_samples x n_components
            Scores, as `transform` gives them.

        Returns
        -------
        array
            n_samples x n_features; a Dask array if X is one.

        Raises
        ------
        ValueError
            If X does not have a column for each component.
        """
        check_is_fitted(self)
        scores = X if is_dask(X) else np.asarray(X, dtype=self.components_.dtype)
        if scores.ndim != 2 or scores.shape[1] != len(self.components_):
            raise ValueError(
                f"X must have a row for each sample and {len(self.components_)} columns, the number of components; "
                f"it is {' x '.join(map(str, scores.shape))}"
            )
        samples = scores @ (self.components_ if self.scale_ is None else self.components_ * self.scale_)
        return samples if self.mean_ is None else samples + self.mean_

    def outliers(self, X: Any) -> sparse.csr_array:
        """The gross errors of samples: X minus its fit where that is more than four times the noise.

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
        M = self._centred(samples)
        if M is None:
            n, d = samples.shape
            return sparse.csr_array((n, d), dtype=samples.dtype)
        L = LowRank(self._scores(M, M.shape[1]), self.components_)
        sample, feature = M.columns_of_entries(), M.rows
        e = M.values - L.at(sample, feature)
        bound = OUTLIER * self.noise_ + 1e-7 * self._unit
        far = np.abs(e) > (bound if self._relative is None else bound * self._relative[feature])
        if self.scale_ is not None:
            e = e * self.scale_[feature]
        return sparse.csr_array((e[far].astype(M.dtype), (sample[far], feature[far])), shape=samples.shape)

    def score(self, X: Any, y: Any = None) -> float:
        """How well entries of X are predicted from the others of their sample.

        In each of five folds a fifth of the entries, drawn at random, is hidden and predicted from the scores of the
        rest. The score is 1 minus the ratio of two mean absolute errors: of these predictions, and of the features'
        medians. Errors are clipped at four times the robust scale of the data, as some entries are outliers. Too high
        a rank scores lower, so the score can choose it (`GridSearchCV`).

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
        """
        check_is_fitted(self)
        M = self._centred(self._read(X, reset=False))
        if M is None:
            raise ValueError("X has no entry that could be predicted")
        n = M.shape[1]
        return held_out_score(M, lambda rest: LowRank(self._scores(rest, n), self.components_))
