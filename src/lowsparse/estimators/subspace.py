"""What a fitted subspace does for samples: their scores, what they would be, their outliers, how well it predicts."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from ..entries.observed import ObservedMatrix
from ..linalg.lowrank import LowRank
from ..linalg.scale import OUTLIER, column_medians
from ..robust.regression import EFFICIENT, Placement
from ..solvers.start import generator
from ..sweeps import Float
from ..validation import bound_of, count_up_to
from .large import (
    by_chunks,
    by_samples,
    is_large,
    is_lazy,
    learnt_from,
    light,
)
from .samples import SampleTransformer, as_they_came, observed, read

__all__ = ["SubspaceTransformer", "principal_axes", "signs"]


def principal_axes(L: LowRank) -> tuple[Float, Float, Float]:
    """(scores, singular values, components) with L = scores @ components and orthonormal components.

    The entry of a component with the largest magnitude is positive.

    >>> scores, sizes, components = principal_axes(LowRank([[2.0], [0.0]], [[0.0, -3.0]]))
    >>> scores.tolist(), sizes.tolist(), components.tolist()
    ([[-6.0], [0.0]], [6.0], [[0.0, 1.0]])
    """
    Q, R = np.linalg.qr(L.U)
    left, sizes, right = np.linalg.svd(R @ L.V, full_matrices=False)
    sign = signs(right)
    return Q @ (left * sizes * sign) + 0.0, sizes, right * sign[:, None] + 0.0


def signs(components: Float) -> Float:
    """1 or -1 for each component: with it the entry of the largest magnitude is positive.

    >>> signs(np.array([[0.6, -0.8], [0.8, 0.6]])).tolist()
    [-1.0, 1.0]
    """
    largest = np.argmax(np.abs(components), axis=1)
    return np.where(components[np.arange(len(components)), largest] < 0, -1.0, 1.0)


class SubspaceTransformer(ClassNamePrefixFeaturesOutMixin, SampleTransformer):
    """What follows from a fitted subspace: `components_` (orthonormal rows), `mean_`, `noise_`, and two sizes."""

    components_: Float
    mean_: Float | None
    noise_: float
    n_features_in_: int
    backend: str
    memory: int | str | None = None
    absent: str
    _unit: float  # the usual size of an entry
    _largest: float  # length of scores that are believed though few entries bear them out

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    @property
    def _placement(self) -> Placement:
        return Placement(
            np.ascontiguousarray(self.components_.T, dtype=np.float64),
            EFFICIENT * self.noise_,
            self._unit,
            self._largest,
        )

    def _centred(self, samples: Any) -> ObservedMatrix | None:
        """The entries less the mean, a column for each sample."""
        M = observed(samples.T)
        if M is None or self.mean_ is None:
            return M
        return M.with_values((M.values - self.mean_[M.rows]).astype(M.dtype))

    def _scores(self, M: ObservedMatrix | None, n: int) -> Float:
        if M is None:
            return np.zeros((n, len(self.components_)))
        return self._placement.coefficients(M, self.backend)

    def transform(self, X: Any) -> Any:
        """The scores of samples, each regressed robustly on the components.

        A sample's holes are left out and its gross errors are not followed; what it gets depends on that sample alone.
        One without any entry gets zeros.

        Parameters
        ----------
        X : n_samples x n_features
            Anything `fit` takes.

        Returns
        -------
        n_samples x n_components, in the kind of container X is; of a Dask array, a Dask array.
        """
        check_is_fitted(self)
        if is_large(X):
            return self._transform_large(X)
        samples = read(self, X, reset=False, absent=self.absent)
        scores = self._scores(self._centred(samples), samples.shape[0]).astype(samples.dtype, copy=False)
        return as_they_came(self, scores, X, self.get_feature_names_out())

    def _transform_large(self, X: Any) -> Any:
        """Of a Dask array lazily; of other samples that are not in memory, the scores are."""
        if is_lazy(X):
            return by_chunks(self._alone.transform, X, len(self.components_))
        return by_samples(self._alone.transform, learnt_from(self, X, reset=False))

    @property
    def _alone(self) -> Any:
        """Without what it was learnt from."""
        return light(self, "result_", "outliers_")

    def inverse_transform(self, X: Any) -> Any:
        """The samples that have these scores: ``X @ components_``, and the mean if there is one."""
        check_is_fitted(self)
        scores = X if is_lazy(X) else np.asarray(X, dtype=self.components_.dtype)
        if scores.ndim != 2 or scores.shape[1] != len(self.components_):
            raise ValueError(
                f"X must have a row for each sample and {len(self.components_)} columns, the number of components; "
                f"it is {' x '.join(map(str, scores.shape))}"
            )
        samples = scores @ self.components_
        return samples if self.mean_ is None else samples + self.mean_

    def outliers(self, X: Any) -> sparse.csr_array:
        """The gross errors of samples: X less its fit where that is more than four times the noise.

        Parameters
        ----------
        X : n_samples x n_features
            Samples, new or not.

        Returns
        -------
        csr_array, n_samples x n_features, only on observed entries, only non-zeros
        """
        check_is_fitted(self)
        samples = read(self, X, reset=False, absent=self.absent)
        M = self._centred(samples)
        if M is None:
            return sparse.csr_array(samples.shape, dtype=samples.dtype)
        L = LowRank(self._scores(M, M.shape[1]), self.components_)
        sample, feature = M.columns_of_entries(), M.rows
        e = M.values - L.at(sample, feature)
        far = np.abs(e) > OUTLIER * self.noise_ + 1e-7 * self._unit
        return sparse.csr_array((e[far].astype(M.dtype), (sample[far], feature[far])), shape=samples.shape)

    def score(self, X: Any, y: Any = None) -> float:
        """How well entries of X are predicted from the others of their sample: 1 is exact, 0 as by medians.

        In each of five turns a fifth of the entries, drawn at random, is hidden; the rest is transformed, and what
        was hidden is compared with what comes back. The score is 1 less the ratio of two mean absolute errors, ours
        and that of the features' medians. Errors count up to four times the robust scale of the data, as some entries
        are outliers. A rank that is too high scores lower, so this is what to choose it by (`GridSearchCV`).

        Parameters
        ----------
        X : n_samples x n_features
            Samples that were not fitted.
        y
            Not used.
        """
        check_is_fitted(self)
        M = self._centred(read(self, X, reset=False, absent=self.absent))
        if M is None:
            raise ValueError("X has no entry that could be predicted")
        fold = generator(0).integers(5, size=M.nnz)
        sample = M.columns_of_entries()
        error = np.empty(M.nnz)
        for k in range(5):
            hidden = fold == k
            kept = np.bincount(sample[~hidden], minlength=M.shape[1])
            rest = None
            if kept.any():
                rest = ObservedMatrix(np.r_[0, np.cumsum(kept)], M.rows[~hidden], M.values[~hidden], M.shape)
            L = LowRank(self._scores(rest, M.shape[1]), self.components_)
            error[hidden] = L.at(sample[hidden], M.rows[hidden]) - M.values[hidden]
        bound = bound_of(M.values)
        usual = count_up_to(bound, column_medians(M.T)[M.rows] - M.values).sum()
        return float(1 - count_up_to(bound, error).sum() / usual) if usual else float(not error.any())
