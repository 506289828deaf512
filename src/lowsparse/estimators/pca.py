"""RobustPCA: principal components of samples with missing entries and gross errors, and of new samples too."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from ..diagnosis import largest_rank
from ..entries.protocol import PartialMatrix
from ..entries.statistics import by_columns, column_medians
from ..imputation.model import column_noise
from ..imputation.offsets import feature_scales
from ..linalg.lowrank import LowRank
from ..result import Result, Status
from ..robust.coarse import CoarseColumns
from ..robust.regression import EXPLAINED, WILD
from ..solve import solve
from ..solvers import Ladder, Solver, from_name
from ..support.checks import check_choice
from ..support.format import percent
from ..sweeps import host_backend
from .affine import AffineFit, fit_affine
from .detector import RowDetector
from .many import choose_samples, extend
from .rows import MANY as MANY_ROWS
from .rows import NOISELESS, CentredFit, JudgedFit, axes_of, fit_good_rows, inlier_variances
from .samples import check_n_components, to_seed
from .subspace import principal_axes

BETTER = 0.5  # noise of a fit with another centre relative to that of the first, below which it is taken
KNOWN, UNEVEN = 20, 6.0  # entries that show the noise of a feature; ratio of the high to the low that is worth a note
UNEVEN_NOISE = "the noise of some features"  # how the note begins
MANY_FLAGGED = 0.25  # share of gross errors that is worth a warning where the noise of features differs
FAR_BETTER = 0.2  # noise of the solve relative to that of the affine fit, below which another centre is tried


class RobustPCA(RowDetector):
    """Principal components of samples with missing entries and gross errors: X = scores · components + mean + outliers.

    Rows are samples. The model is that of `lowsparse.solve`, L of low rank plus S sparse on the observed entries, and
    the axes are those of L. New samples may have missing entries and outliers too: `transform` regresses each of them
    robustly on the components. Samples may be wrong as a whole, too: `row_outliers_` and `predict` say which. The noise
    is assumed to have the same scale in all features: if their units differ, use ``scale="robust"``.

    Parameters
    ----------
    n_components : int, "auto" or float between 0 and 1
        The rank of L. "auto" tries one rank after the other as long as held-out entries are predicted better. A share
        asks for as few components as explain this share of the variance.
    center : "robust", "median" or None
        What is subtracted first: a centre that is fitted together with the components, by the library's own method
        whatever `method` is; the medians of the features, whose error adds a component; or nothing. Never the mean, by
        which an outlier would spread over its whole feature.
    scale : None or "robust"
        With "robust", each feature is divided by a robust measure of its spread, so that units do not matter: the
        components are those of the features in these units.
    rows : "robust" or None
        With "robust", samples that are wrong as a whole lose their say in the mean and the components: those that do
        not fit the subspace of the others, up to 45 % of all. The fit ends with an MM-estimate and least squares,
        whatever `method` is: for a table without outliers that is principal component analysis. None is for wrong
        entries alone, as `method` fits them, as in `lowsparse.solve`.
    method : str or a solver of `lowsparse.solvers`
    max_iter, tol, backend, memory
        As in `lowsparse.solve`; `memory` is for samples that are not in memory, or for the GPU. Backend "dask" uses the
        current client.
    max_rank : int, optional
        The largest rank to try if `n_components` is "auto".
    absent : "missing" or "zero"
        Whether entries that a scipy.sparse matrix does not store are unknown, or zero (then the data are made dense).
    warm_start : bool
        Start from the last fit.
    random_state : int, Generator, RandomState or None
        The same data and seed give the same bits.

    Attributes
    ----------
    components_ : n_components x n_features
        Orthonormal rows, by descending singular value.
    singular_values_ : n_components
        Of the low-rank part of the training data.
    mean_ : n_features, or None if `center` is
        With ``center="robust"``, the spatial median of the samples that fit the affine subspace, within it.
    scale_ : n_features, or None if `scale` is
        What the features were divided by.
    feature_noise_ : n_features
        The robust standard deviation of the residuals of each feature, in its own units. A note of `result_` says so
        where these are far from what the model assumes: the same for all, in units of `scale_`.
    explained_variance_, explained_variance_ratio_ : n_components
        Variances of the scores, and their shares in the total variance without outliers: that of all scores, plus that
        of the residuals of the inliers.
    noise_ : float
        The standard deviation of the inliers about the low-rank part, in units of `scale_`.
    outliers_ : csr_array, n_samples x n_features
        The gross errors of the training data, on observed entries; a `StoredOutliers` if the samples are not in memory.
    row_outliers_ : RowOutliers
        Of the training data, in memory: `score_distance` (within the subspace, in robust standard deviations) and
        `orthogonal_distance` (from it, in units of the noise; of a sample that has a say, from a fit without it) of
        each sample, their cut-offs, `cell_share`, the share of gross errors, `joint_distance` (of suspects, along what
        they have in common off the subspace), and `indices`, the samples that are wrong as a whole. For new samples:
        `row_distances`.
    cell_outliers_ : csr_array, n_samples x n_features
        `outliers_` in units of the noise; the sign says whether an entry is too high or too low.
    result_ : lowsparse.Result
        Of the centred data, with ``status``, ``message``, ``trace`` and ``diagnostics``.
    n_iter_ : int
        Number of passes, including those that find the centre.
    n_components_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> from lowsparse import RobustPCA
    >>> rng = np.random.default_rng(3)
    >>> X = 100 + rng.standard_normal((60, 2)) @ rng.standard_normal((2, 12))
    >>> truth = X.copy()
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> X[rng.random(X.shape) < 0.05] += 20
    >>> pca = RobustPCA(n_components=2).fit(X[:50])
    >>> new = pca.inverse_transform(pca.transform(X[50:]))  # rows it has not seen
    >>> bool(np.allclose(new, truth[50:], atol=1e-6))
    True
    >>> X[:10] = 100 + 3 * rng.standard_normal((10, 12))  # samples of another kind
    >>> pca = RobustPCA(n_components=2).fit(X)
    >>> pca.row_outliers_.indices.tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    result_: Result

    def __init__(
        self,
        n_components: float | str = 2,
        *,
        center: str | None = "robust",
        scale: str | None = None,
        rows: str | None = "robust",
        method: str | Solver = "auto",
        max_iter: int = 500,
        tol: float = 1e-8,
        max_rank: int | None = None,
        absent: str = "missing",
        warm_start: bool = False,
        backend: str = "auto",
        memory: int | str | None = None,
        random_state: Any = 0,
    ) -> None:
        self.n_components = n_components
        self.center = center
        self.scale = scale
        self.rows = rows
        self.method = method
        self.max_iter = max_iter
        self.tol = tol
        self.max_rank = max_rank
        self.absent = absent
        self.warm_start = warm_start
        self.backend = backend
        self.memory = memory
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the components.

        Parameters
        ----------
        X : n_samples x n_features
            NumPy (NaN is missing), masked arrays, data frames, scipy.sparse, an `ObservedMatrix`, tensors. Larger than
            memory: a Dask or Zarr array, or a `StoredMatrix`; it is solved from disk, or on the current Dask cluster.
        y
            Not used.

        Returns
        -------
        RobustPCA
            Itself.
        """
        check_choice("center", self.center, (None, "median", "robust"))
        check_choice("scale", self.scale, (None, "robust"))
        check_choice("rows", self.rows, (None, "robust"))
        warm = self.warm_start and hasattr(self, "components_")
        _, M = self._observe(X, reset=not warm)
        rank = self.n_components
        share = float(rank) if isinstance(rank, Real) and not isinstance(rank, Integral) and 0 < rank < 1 else None
        if share is None and rank != "auto":
            rank = check_n_components(rank, M.shape, min(M.shape), also="'auto' or a share between 0 and 1")
        last = self._last_fit(M if M.in_pieces else X) if warm and rank == len(self.components_) else None
        self.scale_ = None
        if self.scale is not None:
            self.scale_ = feature_scales(M, self.backend)[0]
            M = M.with_stored_values(M.values / M.spread_over_columns(self.scale_))
        if share is None:
            self._fit_rank(M, rank, last)
        else:
            self._fit_share(M, share)
        self._warn()
        return self

    def _warn(self) -> None:
        """Say what is doubtful of the fit."""
        result: Result = self.result_
        doubt = None if self.rows is None else _too_little_fits(result, self.row_outliers_.off)
        if doubt is not None:
            self.result_ = result = replace(result, status=Status.STALLED, message=doubt, next_noise=None)
        share = int(result.flagged.size) / result.M.nnz
        if not result.converged and result.next_noise is None:  # to ask for few components is no failure
            warnings.warn(f"RobustPCA: {result.status.value}: {result.message}", ConvergenceWarning, stacklevel=3)
        elif share > MANY_FLAGGED and any(note.startswith(UNEVEN_NOISE) for note in result.notes):
            warnings.warn(
                f"RobustPCA: {percent(share)} of the entries are taken for gross errors, as the noise of features "
                "differs: divide the features by their noise, or, if units differ, use scale='robust'",
                stacklevel=3,
            )

    def _last_fit(self, X: Any) -> AffineFit:
        """The last fit, with scores of the samples X, in units of the scale."""
        scores = np.asarray(self.transform(X), dtype=np.float64)
        mean = np.zeros(self.n_features_in_) if self.mean_ is None else self.mean_
        return AffineFit(mean if self.scale_ is None else mean / self.scale_, scores, self.components_, self.noise_)

    def _fit_rank(self, M: PartialMatrix, rank: Any, last: AffineFit | None = None) -> None:
        some = choose_samples(M) if self.rows == "robust" else None
        part = None if some is None else M.T.take_columns(some)
        if some is None or part is None:
            self._set_attributes(self._fit_judged(M, rank, last).with_cutoff().with_note())
            return
        last = last if last is None else replace(last, scores=last.scores[some])
        found = self._fit_judged(part.T, rank, last)
        self._set_attributes(extend(found, M, self.backend, move=self.center == "robust").with_cutoff().with_note())

    def _fit_judged(self, M: PartialMatrix, rank: Any, last: AffineFit | None) -> JudgedFit:
        """The fit in which rows that are wrong as a whole have no say, if that is asked for."""
        found = self._fit_given_or_spread(M, rank, last)
        if self.rows is None:
            return found.judge(np.ones(M.shape[0], bool))
        return fit_good_rows(found, self.backend, move=self.center == "robust", choose=rank == "auto")

    def _fit_given_or_spread(self, M: PartialMatrix, rank: Any, last: AffineFit | None) -> CentredFit:
        """The fit of wrong entries alone; to the numbers with noise in columns that are coarse.

        If most columns are, and the numbers are explained as they are, they need none.
        """
        coarse = CoarseColumns.of(M)
        if coarse is None or np.mean(coarse.width > 0) > 0.5:
            found = self._fit_cells(M, rank, last)
            found = replace(found, result=found.result.to_host())
            if coarse is None or _explains_what_is_rare(found.result):
                return found
        found = self._fit_cells(coarse.spread(M), rank, last)
        return replace(found, result=found.result.to_host()).without_noise_of(coarse, self.backend)

    def _fit_share(self, M: PartialMatrix, share: float) -> None:
        """Fit as few components as explain this share of the variance: twice as many while they do not."""
        rank: int | str = "auto"
        most = min(largest_rank(M), *M.shape) if self.max_rank is None else self.max_rank
        while True:
            self._fit_rank(M, rank)
            explained = np.cumsum(self.explained_variance_ratio_)
            if explained[-1] >= share:
                break
            if explained.size >= most:
                raise ValueError(
                    f"n_components = {share:g}: {explained.size} components explain {explained[-1]:.3g} of the "
                    "variance, and the data determine no more; choose a smaller share"
                )
            rank = min(2 * explained.size, most)
        enough = int(np.searchsorted(explained, share)) + 1
        if enough < explained.size:
            self._fit_rank(M, enough)

    def fit_predict(self, X: Any, y: Any = None) -> NDArray[np.int64]:
        """Learn the components, and `predict` which of the samples are outliers.

        Parameters
        ----------
        X : n_samples x n_features
            In memory.
        y
            Not used.

        Returns
        -------
        array of int
            -1 for outliers, 1 for the others.
        """
        return self.fit(X).predict(X)

    def _fit_cells(self, M: PartialMatrix, rank: int | str, last: AffineFit | None) -> CentredFit:
        """The mean and the components, in which all rows have a say."""
        if self.center == "robust":
            return self._fit_affine(M, rank, last)
        mean = by_columns(M, column_medians) if self.center else None
        result = self._solve(M if mean is None else _centred(M, mean), rank, self._start(last, rank))
        return CentredFit(mean, result, result.n_iter)

    def _fit_affine(self, M: PartialMatrix, rank: int | str, last: AffineFit | None) -> CentredFit:
        """Fit the centre, and the components about it."""
        fit = partial(
            fit_affine,
            M,
            rank,
            max_rank=self.max_rank if rank == "auto" else None,
            max_iter=self.max_iter,
            tol=self.tol,
            backend=self.backend,
        )
        found = fit(start=last)
        result = self._solve(_centred(M, found.mean), rank, self._start(found, rank))
        passes, other = found.n_iter + result.n_iter, None
        if result.noise < FAR_BETTER * found.noise and found.noise > self.tol * result.M.median_magnitude():
            scores, _, components = principal_axes(result.L)  # which have a centre of their own
            other = fit(start=AffineFit(found.mean, scores, components, result.noise))
        elif result.status is Status.STALLED:  # a missing component may be the error of the centre
            other = fit(thorough=True)
        if other is not None:
            passes += other.n_iter
            if other.noise < BETTER * found.noise:
                found = other
                result = self._solve(_centred(M, found.mean), rank, self._start(found, rank))
                passes += result.n_iter
        return CentredFit(found.mean, result, passes)

    def _solve(self, M: PartialMatrix, rank: int | str, start: str | LowRank) -> Result:
        method = self.method
        if isinstance(method, str) and isinstance(from_name(method), Ladder):
            method = Ladder(searches=1, rank_is_limit=True)  # rows and a centre are judged here
        return solve(
            M,
            rank,
            max_rank=self.max_rank if rank == "auto" else None,
            method=method,
            max_iter=self.max_iter,
            tol=self.tol,
            backend="auto" if M.in_pieces else self.backend,
            memory=self.memory if self.backend in ("outofcore", "dask", "cuda") and not M.in_pieces else None,
            start=start,
            random_state=to_seed(self.random_state),
        )

    def _start(self, fit: AffineFit | None, rank: int | str) -> str | LowRank:
        """The start of the solver: a fit, unless it has fewer components or the method takes no start."""
        solver = from_name(self.method) if isinstance(self.method, str) else self.method
        if fit is None or not solver.takes_start or fit.scores.shape[1] != rank:
            return "svd"
        if np.linalg.matrix_rank(fit.scores, tol=1e-7 * float(np.linalg.norm(fit.scores))) != rank:
            return "svd"
        return LowRank(fit.scores, fit.components)

    def _set_attributes(self, found: JudgedFit) -> None:
        """Those of a fit in which some rows may have no say; the axes are those of the rows that have one."""
        result, scale = found.fit.result, self.scale_
        scores, self.singular_values_, self.components_ = axes_of(result.L, found.kept)
        scores, S, mean = scores[found.kept], result.S, found.fit.mean
        noise = column_noise(result, self.backend)
        if (note := _uneven_noise(noise, result)) is not None:
            result = replace(result, notes=(*result.notes, note))
        if scale is not None:
            units: Any = result.M.spread_over_columns(scale)[result.flagged]
            S, noise, mean = result.M.outliers(result.flagged, S.data * units), noise * scale, _times(mean, scale)
        self.result_, self.n_iter_, self.noise_ = result, found.fit.n_iter, result.noise
        self.mean_, self.feature_noise_ = mean, noise
        self.n_components_ = len(self.components_)
        self._unit = result.M.median_magnitude() or 1.0
        self._largest = WILD * float(np.median(np.linalg.norm(scores, axis=1))) or np.inf
        self.outliers_, self.row_outliers_, self._row_model = S, found.cases, found.model
        self._relative = found.model.relative
        if isinstance(S, sparse.csc_array):
            self.outliers_ = sparse.csr_array(S)
            scaled: Any = result.S
            if self._relative is not None:
                units = result.M.spread_over_columns(self._relative)[result.flagged]
                scaled = result.M.outliers(result.flagged, scaled.data / units)
            self.cell_outliers_ = sparse.csr_array(scaled / (self.noise_ or 1e-7 * self._unit))
        self.explained_variance_ = np.var(scores, axis=0, ddof=min(1, len(scores) - 1))
        total = float(self.explained_variance_.sum()) + float(inlier_variances(result).sum())
        self.explained_variance_ratio_ = self.explained_variance_ / (total or 1.0)


def _centred(M: PartialMatrix, mean: NDArray[np.float64]) -> PartialMatrix:
    """M minus a number for each column."""
    return M.with_stored_values(M.values - M.spread_over_columns(mean))


def _explains_what_is_rare(result: Result) -> bool:
    """Whether most entries off the median of their column are explained exactly, beyond what the parameters can do."""
    M, L = result.M, result.L
    off = np.abs(M.values - M.spread_over_columns(by_columns(M, column_medians))) > EXPLAINED * M.median_magnitude()
    e = M.open_sweep(host_backend(result.backend)).residual(L.U, np.ascontiguousarray(L.V.T))
    explained = np.count_nonzero(off & (np.abs(e) <= EXPLAINED * M.median_magnitude()))
    n_parameters = L.rank * (sum(M.shape) - L.rank) + M.shape[1]
    return bool(explained - n_parameters > 0.5 * np.count_nonzero(off))


def _too_little_fits(result: Result, off: NDArray[np.bool_]) -> str | None:
    """What to say if so many samples, or entries of the others, do not fit that nobody knows which are wrong.

    Entries that are explained exactly cannot be by chance, however many are wrong.
    """
    M = result.M
    if np.mean(off) > MANY_ROWS:
        return (
            f"{percent(float(np.mean(off)))} of the rows do not fit the subspace, so that nobody can say which are "
            "wrong: there may be several groups, or more components"
        )
    wrong, total = int(M.count_lines(result.flagged)[0][~off].sum()), int(M.row_counts[~off].sum())
    if 2 * wrong <= total or result.noise <= NOISELESS * M.median_magnitude():
        return None
    return f"{percent(wrong / total)} of the entries do not fit: low rank is no model of them, or units differ"


def _times(mean: NDArray[np.float64] | None, scale: NDArray[np.float64]) -> NDArray[np.float64] | None:
    return None if mean is None else mean * scale


def _uneven_noise(noise: NDArray[np.float64], result: Result) -> str | None:
    """What to say if features have noise of very different sizes."""
    known = noise[result.M.column_counts >= KNOWN]
    if known.size < KNOWN or result.noise <= NOISELESS * result.M.median_magnitude():
        return None
    low, high = np.quantile(known, [0.1, 0.9])
    if high <= UNEVEN * low:
        return None
    times = f"{high / low:.0f} times" if low > 0 else "far more"
    return (
        f"{UNEVEN_NOISE} is {times} that of others (feature_noise_), but one scale is assumed for all: "
        "divide the features by their noise, or, if units differ, use scale='robust'"
    )
