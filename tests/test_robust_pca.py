"""RobustPCA: right where the truth is known, and at home in scikit-learn."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import subspace_angles

import lowsparse as ls
from conftest import assert_close

sklearn = pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.decomposition import PCA  # noqa: E402
from sklearn.exceptions import ConvergenceWarning, NotFittedError  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import RobustScaler  # noqa: E402

from lowsparse import RobustPCA  # noqa: E402
from lowsparse.entries.statistics import column_medians  # noqa: E402
from lowsparse.estimators.affine import spatial_median  # noqa: E402


def samples(seed, n=500, d=120, rank=4, missing=0.3, outliers=0.1, size=8.0, noise=0.0, mean=None):
    """(X, truth, where X is wrong)."""
    rng = np.random.default_rng([31, seed])
    truth = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d))
    if mean is not None:
        truth += mean * rng.standard_normal(d)
    X = truth + noise * rng.standard_normal(truth.shape)
    wrong = rng.random(X.shape) < outliers
    X[wrong] += size * rng.choice([-1.0, 1.0], wrong.sum())
    X[rng.random(X.shape) < missing] = np.nan
    return X, truth, wrong & ~np.isnan(X)


def angle(pca, truth):
    """The largest principal angle to the rows of the truth."""
    return subspace_angles(pca.components_.T, np.linalg.svd(truth, full_matrices=False)[2][: pca.n_components_].T).max()


@pytest.mark.parametrize("seed", range(4))
def test_new_rows_with_holes_and_outliers_are_recovered(seed):
    X, truth, _ = samples(seed)
    pca = RobustPCA(n_components=4).fit(X[:400])
    found = pca.inverse_transform(pca.transform(X[400:]))
    assert np.abs(found - truth[400:]).max() < 1e-4
    assert angle(pca, truth) < 1e-6


@pytest.mark.parametrize("outliers", [0.3, 0.4])
def test_new_rows_with_many_outliers_are_recovered(outliers):
    X, truth, _ = samples(7, outliers=outliers)
    pca = RobustPCA(n_components=4).fit(X[:400])
    assert np.abs(pca.inverse_transform(pca.transform(X[400:])) - truth[400:]).max() < 1e-4


def test_noisy_new_rows_come_close_to_least_squares_on_their_inliers():
    X, truth, wrong = samples(3, noise=0.1)
    pca = RobustPCA(n_components=4).fit(X[:400])
    found = pca.inverse_transform(pca.transform(X[400:]))
    best = np.empty_like(found)
    for i, (x, bad) in enumerate(zip(X[400:], wrong[400:], strict=True)):
        good = ~np.isnan(x) & ~bad
        B = pca.components_[:, good].T
        best[i] = np.linalg.lstsq(B, x[good], rcond=None)[0] @ pca.components_
    assert np.linalg.norm(found - truth[400:]) < 1.15 * np.linalg.norm(best - truth[400:])


def test_what_a_sample_gets_depends_on_that_sample_alone():
    X, _, _ = samples(1, n=120, d=40)
    pca = RobustPCA(n_components=4).fit(X[:100])
    together = pca.transform(X[100:])
    assert np.array_equal(together, np.vstack([pca.transform(x[None]) for x in X[100:]]))
    assert np.array_equal(together[::-1], pca.transform(X[100:][::-1]))


def test_the_outliers_are_found_in_old_rows_and_new():
    X, _, wrong = samples(2, n=200, d=60)
    pca = RobustPCA(n_components=4).fit(X[:150])
    assert pca.outliers_.format == "csr"
    assert np.array_equal(pca.outliers_.toarray() != 0, wrong[:150])
    new = pca.outliers(X[150:])
    assert np.array_equal(new.toarray() != 0, wrong[150:])
    assert_close(np.abs(new.data), np.full(new.nnz, 8.0), 1e-6)


def test_on_clean_data_it_is_principal_component_analysis():
    X, _, _ = samples(5, n=300, d=30, missing=0, outliers=0, noise=0.05)
    X -= X.mean(axis=0)
    ours, theirs = RobustPCA(n_components=4).fit(X), PCA(n_components=4).fit(X)
    assert subspace_angles(ours.components_.T, theirs.components_.T).max() < 0.01
    assert_close(ours.singular_values_, theirs.singular_values_, 0.01)
    assert_close(ours.explained_variance_ratio_, theirs.explained_variance_ratio_, 0.01)
    assert_close(np.abs(ours.components_), np.abs(theirs.components_), 0.05)
    assert_close(ours.components_ @ ours.components_.T, np.eye(4), 1e-12)
    assert ours.noise_ == pytest.approx(0.05, rel=0.1)


def test_shares_of_variance_sum_up_to_at_most_one():
    X, _, _ = samples(5, n=100, d=30, noise=1.0, size=1000.0)
    shares = RobustPCA(n_components=4).fit(X).explained_variance_ratio_
    assert 0 < shares.sum() <= 1
    assert (np.diff(shares) <= 0).all()


@pytest.mark.parametrize("center", ["median", "robust"])
def test_a_centre_is_taken_off(center):
    X, truth, _ = samples(6, mean=20.0, missing=0.2)
    pca = RobustPCA(n_components=4, center=center).fit(X[:400])
    found = pca.inverse_transform(pca.transform(X[400:]))
    error = np.abs(found - truth[400:]).max()
    if center == "robust":  # the rest is of rank 4 then; less the medians it is not
        assert error < 1e-4
    else:
        assert_close(pca.mean_, np.nanmedian(X[:400], axis=0), 1e-12)
        assert error < 5


def test_without_a_centre_there_is_no_mean():
    assert RobustPCA(n_components=2, center=None).fit(samples(1, n=60, d=20, rank=2)[0]).mean_ is None


@pytest.mark.parametrize("mean", [0.0, 1.0, 1000.0])
@pytest.mark.parametrize("spoilt", [{}, {"missing": 0.5}, {"missing": 0.0, "outliers": 0.4}, {"size": 1e6}])
def test_by_default_the_components_are_those_about_the_mean(mean, spoilt):
    X, truth, wrong = samples(21, n=300, d=50, rank=3, mean=mean, **spoilt)
    pca = RobustPCA(n_components=3).fit(X)
    about = truth - truth.mean(axis=0)
    assert angle(pca, about) < 1e-8
    off = pca.mean_ - truth.mean(axis=0)  # any point of the affine subspace is as good
    assert np.abs(off - off @ pca.components_.T @ pca.components_).max() < 1e-8
    assert np.linalg.norm(off) < 0.2 * np.linalg.norm(about, axis=1).mean()
    assert np.array_equal(pca.outliers_.toarray() != 0, wrong)


@pytest.mark.parametrize("mean", [0.0, 10.0])
def test_a_mean_that_is_not_known_costs_nothing(mean):
    X, truth, _ = samples(22, n=300, d=50, rank=3, mean=mean, noise=0.1)
    mean = truth.mean(axis=0)
    known = RobustPCA(n_components=3, center=None).fit(X - mean)
    assert angle(RobustPCA(n_components=3).fit(X), truth - mean) < 1.1 * angle(known, truth - mean)


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_are_wrong_as_a_whole_and_alike_do_not_move_the_centre(seed):
    X, truth, _ = samples(seed, n=300, d=50, rank=3, mean=10.0, missing=0.0, outliers=0.0, noise=0.05)
    rng = np.random.default_rng([32, seed])
    X[:75] = truth.mean(axis=0) + 5 + 3 * rng.standard_normal((75, 50))
    about = truth[75:] - truth[75:].mean(axis=0)
    assert angle(RobustPCA(n_components=3).fit(X), about) < 0.02


def test_the_number_of_components_may_be_one_of_numpy():
    X, _, _ = samples(28, n=60, d=20, rank=2, mean=10.0)
    ours, theirs = (RobustPCA(n_components=k).fit(X) for k in (2, np.int64(2)))
    assert np.array_equal(ours.components_, theirs.components_)
    assert np.array_equal(ours.mean_, theirs.mean_)


def test_a_feature_far_from_the_others_is_one_of_them():
    X, truth, _ = samples(23, n=300, d=20, rank=2)
    X[:, 7] += 1e6
    pca = RobustPCA(n_components=2).fit(X)
    assert angle(pca, truth) < 1e-6
    assert np.nanmedian(X[:, 7]) == pytest.approx(pca.mean_[7], abs=5.0)


@pytest.mark.parametrize("n_components", [1, 3])
def test_samples_that_are_all_the_same_are_their_own_mean(n_components):
    x = np.arange(1.0, 9.0)
    pca = RobustPCA(n_components=n_components).fit(np.tile(x, (30, 1)))
    assert_close(pca.mean_, x, 1e-12)
    assert_close(pca.inverse_transform(pca.transform(x[None])), x[None], 1e-9)


@pytest.mark.parametrize("shape", [(1, 5), (2, 5), (40, 1), (5, 5)])
def test_as_many_components_as_there_can_be(shape):
    X = 100 + np.random.default_rng(4).standard_normal(shape)
    pca = RobustPCA(n_components=min(shape)).fit(X)
    assert_close(pca.inverse_transform(pca.transform(X)), X, 1e-3)


@pytest.mark.parametrize("n_components", [5, 8])
def test_components_to_spare_do_not_spoil_the_centre(n_components):
    X, truth, _ = samples(24, n=300, d=50, rank=3, mean=10.0)
    pca = RobustPCA(n_components=n_components).fit(X)
    assert subspace_angles(pca.components_.T, np.linalg.svd(truth - truth.mean(axis=0))[2][:3].T).max() < 1e-6


def test_the_number_of_components_is_found_about_the_mean():
    X, truth, _ = samples(25, n=200, d=60, mean=10.0, noise=0.05)
    pca = RobustPCA(n_components="auto").fit(X)
    assert pca.n_components_ == 4
    assert angle(pca, truth - truth.mean(axis=0)) < 0.02


@pytest.mark.parametrize("method", ["amanpgc", "irls"])
def test_other_methods_have_the_same_centre(method):
    X, truth, _ = samples(26, n=200, d=40, rank=2, mean=10.0, noise=0.01)
    pca = RobustPCA(n_components=2, rows=None, method=method, max_iter=1000).fit(X)
    assert angle(pca, truth - truth.mean(axis=0)) < 0.01
    assert np.array_equal(pca.mean_, RobustPCA(n_components=2, rows=None, max_iter=1000).fit(X).mean_)


def test_the_number_of_components_can_be_found():
    X, truth, _ = samples(8, n=200, d=60, noise=0.05)
    pca = RobustPCA(n_components="auto").fit(X)
    assert pca.n_components_ == 4
    assert angle(pca, truth) < 0.02


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:RobustPCA. stalled")  # where it is given fewer components than there are
def test_a_grid_search_finds_the_rank_by_entries_not_seen():
    X, _, _ = samples(9, n=150, d=40, rank=3, noise=0.1)
    search = GridSearchCV(RobustPCA(), {"n_components": [1, 2, 3, 4, 6]}, cv=3).fit(X)
    assert search.best_params_ == {"n_components": 3}
    assert search.best_score_ > 0.5  # outliers cannot be predicted


def test_the_score_of_the_truth_is_one_and_of_noise_not_above_zero():
    X, _, _ = samples(4, n=200, d=60, outliers=0)
    assert RobustPCA(n_components=4).fit(X[:150]).score(X[150:]) == pytest.approx(1, abs=1e-6)
    noise = np.random.default_rng(2).standard_normal((80, 20))
    with pytest.warns(ConvergenceWarning, match="stalled"):
        pca = RobustPCA(n_components=4).fit(noise[:60])
    assert pca.score(noise[60:]) < 0.05


def test_stored_entries_of_a_sparse_matrix_are_the_observed_ones():
    X, _, _ = samples(10, n=90, d=40)
    rows, columns = np.nonzero(~np.isnan(X))
    A = sparse.csr_array((X[rows, columns], (rows, columns)), shape=X.shape)
    dense = RobustPCA(n_components=4).fit(X[:70])
    stored = RobustPCA(n_components=4).fit(A[:70])
    assert np.array_equal(dense.components_, stored.components_)
    assert np.array_equal(dense.transform(X[70:]), stored.transform(A[70:]))
    known = RobustPCA(n_components=4).fit(ls.ObservedMatrix.from_scipy(A[:70]))
    assert np.array_equal(dense.components_, known.components_)
    A.data[:5] = np.nan  # stored, but not a number: not known either
    X[rows[:5], columns[:5]] = np.nan
    assert np.array_equal(RobustPCA(n_components=4).fit(A).components_, RobustPCA(n_components=4).fit(X).components_)


def test_absent_entries_can_be_zeros():
    X = np.where(np.random.default_rng(3).random((60, 20)) < 0.5, samples(1, n=60, d=20)[1], 0.0)
    zeros, dense = RobustPCA(absent="zero"), RobustPCA()
    with warnings.catch_warnings():  # whether half of the entries, which are zero, are outliers is not the question
        warnings.simplefilter("ignore", ConvergenceWarning)
        zeros.fit(sparse.csr_array(X))
        dense.fit(X)
    assert np.array_equal(zeros.components_, dense.components_)
    assert np.array_equal(zeros.transform(sparse.csr_array(X)), dense.transform(X))


def test_float32_stays_float32():
    X, truth, _ = samples(11, n=200, d=50)
    pca = RobustPCA(n_components=4).fit(X[:150].astype(np.float32))
    scores = pca.transform(X[150:].astype(np.float32))
    assert scores.dtype == np.float32
    assert np.abs(pca.inverse_transform(scores) - truth[150:]).max() < 1e-3


def test_rows_without_entries_get_zeros():
    X, _, _ = samples(12, n=80, d=30, rank=2)
    pca = RobustPCA(n_components=2, center="median").fit(X)
    nothing = np.full((3, 30), np.nan)
    assert not pca.transform(nothing).any()
    assert np.array_equal(pca.inverse_transform(pca.transform(nothing)), np.tile(pca.mean_, (3, 1)))
    assert pca.outliers(nothing).nnz == 0
    nothing[1, 4] = 1e6
    assert np.isfinite(pca.transform(nothing)).all()


def test_a_warm_start_goes_on_from_the_last_fit():
    X, truth, _ = samples(13, n=300, d=60)
    pca = RobustPCA(n_components=4, warm_start=True).fit(X[:200])
    cold = pca.n_iter_
    pca.fit(X[100:])  # other samples, the same subspace
    assert angle(pca, truth) < 1e-6
    assert pca.n_iter_ < 0.5 * cold
    assert pca.n_iter_ < 0.5 * RobustPCA(n_components=4).fit(X[100:]).n_iter_


def test_a_warm_start_far_from_the_samples_is_not_believed():
    X, _, _ = samples(13, n=200, d=60, mean=10.0)
    other, truth, _ = samples(27, n=200, d=60, mean=10.0)
    pca = RobustPCA(n_components=4, warm_start=True).fit(X).fit(other)
    assert angle(pca, truth - truth.mean(axis=0)) < 1e-6


def test_clones_copies_and_pipelines():
    X, _, _ = samples(14, n=100, d=30, rank=2)
    pca = RobustPCA(n_components=3, center="median", method=ls.solvers.Ladder(attempts=2))
    copy = clone(pca)
    assert copy.get_params()["method"] == ls.solvers.Ladder(attempts=2)
    pca.fit(X)
    assert np.array_equal(pickle.loads(pickle.dumps(pca)).transform(X), pca.transform(X))
    assert np.array_equal(clone(pca).fit_transform(X), pca.transform(X))
    pipe = make_pipeline(RobustScaler(), RobustPCA(n_components=3)).fit(X)
    assert pipe.transform(X).shape == (100, 3)
    assert pipe.get_feature_names_out().tolist() == ["robustpca0", "robustpca1", "robustpca2"]


def test_what_does_not_work_is_said():
    X, _, _ = samples(15, n=30, d=10, rank=2, missing=0, outliers=0)
    for wrong, text in (
        ({"n_components": 11}, "n_components must be"),
        ({"n_components": 0}, "n_components must be"),
        ({"n_components": "many"}, "n_components must be"),
        ({"center": "mean"}, "center must be one of None, 'median', 'robust'"),
        ({"absent": "nan"}, "absent must be"),
    ):
        with pytest.raises(ValueError, match=text):
            RobustPCA(**wrong).fit(X)
    with pytest.raises(NotFittedError):
        RobustPCA().transform(X)
    with pytest.raises(ValueError, match="no observed entry"):
        RobustPCA().fit(np.full((5, 4), np.nan))
    pca = RobustPCA().fit(X)
    with pytest.raises(ValueError, match="2 columns"):
        pca.inverse_transform(np.zeros((3, 5)))
    with pytest.raises(ValueError, match="no entry"):
        pca.score(np.full((5, 10), np.nan))


def test_the_parts_it_is_made_of():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((9, 5))
    X[rng.random(X.shape) < 0.4] = np.nan
    X[:, 2] = np.nan
    for empty in (0.0, 7.0):
        expected = [np.nanmedian(x) if np.isfinite(x).any() else empty for x in X.T]
        assert_close(column_medians(ls.ObservedMatrix.from_dense(X), empty=empty), expected, 1e-15)

    points = rng.standard_normal((41, 3))
    points[:12] += 1000.0
    at = spatial_median(points)
    apart = points - at
    pull = (apart / np.linalg.norm(apart, axis=1)[:, None]).sum(axis=0)  # zero at the smallest sum of distances
    assert np.linalg.norm(pull) < 0.05


def test_units_do_not_matter_with_a_robust_scale():
    X, truth, _ = samples(31, n=200, d=30, rank=2, mean=5.0, noise=0.05)
    units = np.logspace(-4, 6, 30)
    pca, other = (RobustPCA(n_components=2, scale="robust").fit(Y) for Y in (X, X * units))
    np.testing.assert_allclose(other.scale_, pca.scale_ * units, rtol=0.06)  # they are shrunk to each other
    assert subspace_angles(other.components_.T, pca.components_.T).max() < 0.02
    np.testing.assert_allclose(other.mean_ / units, pca.mean_, atol=0.02)
    np.testing.assert_allclose(other.feature_noise_, pca.feature_noise_ * units, rtol=0.1)
    fitted = other.inverse_transform(other.transform(X * units)) / units
    assert np.sqrt(np.mean((fitted - truth) ** 2)) < 0.05
    for ours, theirs in ((other.outliers_, pca.outliers_), (other.outliers(X * units), pca.outliers(X))):
        ours, theirs = ours.toarray() / units, theirs.toarray()
        np.testing.assert_allclose(ours, theirs, atol=0.4)  # more than four times the noise, where one alone is flagged
        assert np.count_nonzero((ours != 0) != (theirs != 0)) < 20
    assert not other.result_.notes
    with pytest.raises(ValueError, match="scale must be one of None, 'robust'"):
        RobustPCA(scale="yes").fit(X)


def test_noise_of_very_different_sizes_is_said():
    rng = np.random.default_rng(32)
    sizes = np.repeat([0.01, 1.0], 20)
    X = rng.standard_normal((200, 2)) @ rng.standard_normal((2, 40)) + sizes * rng.standard_normal((200, 40))
    with pytest.warns(UserWarning, match="of the entries are taken for gross errors, as the noise of features differs"):
        pca = RobustPCA(n_components=2).fit(X)
    np.testing.assert_allclose(pca.feature_noise_[20:], 1.0, rtol=0.35)
    assert "the noise of some features is" in pca.result_.notes[-1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:RobustPCA. stalled")  # of fewer components than there are
def test_a_share_of_the_variance_gives_the_number_of_components():
    rng = np.random.default_rng(33)
    axes = np.linalg.qr(rng.standard_normal((40, 4)))[0]
    X = rng.standard_normal((300, 4)) * [10.0, 6.0, 3.0, 1.5] @ axes.T + 0.05 * rng.standard_normal((300, 40))
    X[rng.random(X.shape) < 0.05] += 50
    variance = np.cumsum([100.0, 36.0, 9.0, 2.25]) / (147.25 + 40 * 0.0025)
    for share in (0.6, 0.9, 0.97, 0.995):
        pca = RobustPCA(n_components=share).fit(X)
        assert pca.n_components_ == np.searchsorted(variance, share) + 1
        assert pca.explained_variance_ratio_.sum() >= share
    with pytest.raises(ValueError, match="choose a smaller share"):
        RobustPCA(n_components=0.99999999, max_rank=4).fit(X)
    for bad in (0.0, 1.5, -0.2):
        with pytest.raises(ValueError, match="n_components"):
            RobustPCA(n_components=bad).fit(X)
