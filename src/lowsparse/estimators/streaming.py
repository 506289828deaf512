"""StreamingRobustPCA: principal components of samples that keep coming, with missing entries and gross errors."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ..streaming import Stream
from ..support.checks import check_choice
from ..sweeps import Float
from .samples import check_n_components, is_dask, to_observed
from .subspace import SubspaceTransformer, signs


class StreamingRobustPCA(SubspaceTransformer):
    """Robust principal components of a stream of samples, in bounded memory and without a step size.

    `partial_fit` takes rows as they come, with missing entries and outliers; how they are batched makes no difference.
    Only sums of the past are kept, a few numbers for each feature and pair of components (see `lowsparse.streaming`).
    `transform` regresses samples robustly on the current components, as `RobustPCA` does.

    Parameters
    ----------
    n_components : int
        The dimension of the subspace.
    half_life : float, optional
        The number of samples after which a sample has half its weight, so that the components follow data that change.
        None: all samples have the same weight.
    absent : "missing" or "zero"
        Whether entries that a scipy.sparse matrix does not store are unknown, or zero.
    backend : "auto", "native" or "numpy"

    Attributes
    ----------
    components_ : n_components x n_features
        Orthonormal rows, by descending singular value.
    singular_values_ : n_components
        Of the samples so far, weighted by age, without noise and outliers.
    noise_ : float
        The standard deviation of the inliers.
    mean_ : None
        Nothing is subtracted, unlike in `RobustPCA`: a level that all samples share is the first component, so ask for
        one more, or subtract the level before.
    stream_ : lowsparse.streaming.Stream
    n_samples_seen_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> from lowsparse import StreamingRobustPCA
    >>> rng = np.random.default_rng(4)
    >>> truth = rng.standard_normal((300, 2)) @ rng.standard_normal((2, 20))
    >>> X = truth.copy()
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> X[rng.random(X.shape) < 0.05] += 20
    >>> pca = StreamingRobustPCA(n_components=2)
    >>> for batch in np.array_split(X, 10):
    ...     pca = pca.partial_fit(batch)
    >>> bool(np.allclose(pca.inverse_transform(pca.transform(X)), truth, atol=1e-4))
    True
    """

    mean_ = None
    stream_: Stream

    def __init__(
        self,
        n_components: int = 2,
        *,
        half_life: float | None = None,
        absent: str = "missing",
        backend: str = "auto",
    ) -> None:
        self.n_components = n_components
        self.half_life = half_life
        self.absent = absent
        self.backend = backend

    def fit(self, X: Any, y: Any = None) -> Self:
        """Start again, with these samples.

        Parameters
        ----------
        X : n_samples x n_features
            NumPy (NaN is missing), masked arrays, data frames, scipy.sparse, an `ObservedMatrix`, tensors.
        y
            Not used.

        Returns
        -------
        StreamingRobustPCA
            Itself.
        """
        return self._push(X, restart=True)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Continue with these samples.

        Parameters
        ----------
        X : n_samples x n_features
            Anything that `fit` takes.
        y
            Not used.

        Returns
        -------
        StreamingRobustPCA
            Itself.
        """
        return self._push(X, restart=not hasattr(self, "stream_"))

    def _push(self, X: Any, *, restart: bool) -> Self:
        check_choice("absent", self.absent, ("missing", "zero"))
        if is_dask(X):  # chunk by chunk
            for k in range(X.numblocks[0]):
                self._push(np.asarray(X.blocks[k]), restart=restart and not k)
            return self
        samples = self._read(X, reset=restart)
        n, d = samples.shape
        if restart:
            rank = check_n_components(self.n_components, samples.shape, maximum=d)
            stream = Stream(d, rank, half_life=self.half_life, backend=self.backend)
        else:
            stream = self.stream_
        M = to_observed(samples.T)
        if M is None:
            stream.wait(n)
        else:
            stream.push(M)
        self.stream_, self.n_samples_seen_ = stream, stream.samples
        return self

    @property
    def components_(self) -> Float:  # type: ignore[override]
        """Orthonormal rows, by descending singular value."""
        return np.ascontiguousarray((self.stream_.U * signs(self.stream_.U.T)).T)

    @property
    def singular_values_(self) -> Float:
        """Of the samples so far, weighted by age, without noise and outliers."""
        return self.stream_.singular_values

    @property
    def noise_(self) -> float:  # type: ignore[override]
        """The standard deviation of the inliers."""
        return self.stream_.noise

    @property
    def _unit(self) -> float:  # type: ignore[override]
        return self.stream_.regression.unit

    @property
    def _largest(self) -> float:  # type: ignore[override]
        return self.stream_.regression.largest
