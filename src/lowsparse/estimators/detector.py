"""The methods of scikit-learn's outlier detectors, for samples off a subspace or far out within it, old and new."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from ..entries.observed import ObservedMatrix
from ..robust.rows import RowModel, RowOutliers
from ..sweeps import Float
from .samples import Samples
from .subspace import SubspaceTransformer


class RowDetector(SubspaceTransformer):
    """Samples off a fitted subspace are outliers, and those far out within it. Each is judged by itself.

    To scikit-learn it is a transformer: of a declared outlier detector its checks ask for outliers in any data.
    """

    row_outliers_: RowOutliers
    cell_outliers_: sparse.csr_array
    offset_ = -1.0  # score of a sample at the cut-off
    _row_model: RowModel

    def row_distances(self, X: Any) -> RowOutliers:
        """The distances of samples within the subspace and from it.

        Parameters
        ----------
        X : n_samples x n_features
            In memory, with rows that were fitted or new ones.

        Returns
        -------
        RowOutliers
            What `row_outliers_` is for the training data.
        """
        samples, M, scores = self._placed(X)
        if M is None:
            zeros = np.zeros(samples.shape[0])
            return RowOutliers(zeros, zeros, zeros, self.row_outliers_.score_cutoff, zeros + np.inf, zeros + 1, zeros)
        return self._row_model.measure(M, scores)

    def score_samples(self, X: Any) -> Float:
        """Minus the larger distance of samples, within the subspace or from it, in units of its cut-off.

        Parameters
        ----------
        X : n_samples x n_features
            In memory, with rows that were fitted or new ones.

        Returns
        -------
        array
            n_samples numbers. Below -1 are outliers. A sample most of whose entries are gross errors is one, too.
        """
        return -self.row_distances(X).outlyingness

    def decision_function(self, X: Any) -> Float:
        """`score_samples` plus 1.

        Parameters
        ----------
        X : n_samples x n_features
            In memory, with rows that were fitted or new ones.

        Returns
        -------
        array
            n_samples numbers, negative for outliers.
        """
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Which samples are off the subspace or far out within it.

        Parameters
        ----------
        X : n_samples x n_features
            In memory, with rows that were fitted or new ones.

        Returns
        -------
        array of int
            -1 for these, 1 for usual samples.

        Examples
        --------
        >>> from lowsparse import RobustPCA
        >>> rng = np.random.default_rng(3)
        >>> X = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 12)) + 0.1 * rng.standard_normal((60, 12))
        >>> pca = RobustPCA(n_components=2).fit(X)
        >>> new = X[[1, 1]] + [[0.0], [3.0]] * rng.standard_normal((2, 12))  # the second is off the subspace
        >>> pca.predict(new).tolist()
        [1, -1]
        """
        return np.where(self.decision_function(X) < 0, -1, 1)

    def standardized_residuals(self, X: Any) -> Float:
        """Samples minus their fit, in units of the noise.

        Parameters
        ----------
        X : n_samples x n_features
            In memory, with rows that were fitted or new ones.

        Returns
        -------
        array
            n_samples x n_features, NaN where an entry is missing. The sign says whether an entry is too high or too
            low, and beyond 4 it is a gross error.
        """
        samples, M, scores = self._placed(X)
        found = np.full(samples.shape, np.nan)
        if M is not None:
            e = self._row_model.errors(M, scores)
            found[M.rows, M.columns_of_entries()] = e / (self.noise_ or 1e-7 * self._unit)
        return found

    def _placed(self, X: Any) -> tuple[Samples, ObservedMatrix | None, Float]:
        """The samples as they were read, their entries minus the mean, and their scores."""
        check_is_fitted(self)
        samples = self._read(X, reset=False)
        columns = self._centred(samples)
        scores = self._scores(columns, samples.shape[0])
        return samples, None if columns is None else columns.T, scores
