"""Samples larger than memory: the estimators find what they find in memory, and transform lazily."""

import gc
import os

import numpy as np
import pytest

import lowsparse as ls
from conftest import SMALL
from lowsparse.places.pieces.outliers import StoredOutliers

pytest.importorskip("sklearn")
da = pytest.importorskip("dask.array", reason="needs the extra `dask`")


@pytest.fixture(scope="module")
def samples():
    """1500 samples of 30 features in units of their own, with holes and gross errors."""
    rng = np.random.default_rng(11)
    truth = rng.standard_normal((1500, 2)) @ rng.standard_normal((2, 30)) + 0.05 * rng.standard_normal((1500, 30))
    X = (truth + rng.standard_normal(30)) * np.exp(rng.standard_normal(30))
    X[rng.random(X.shape) < 0.2] = np.nan
    X[rng.random(X.shape) < 0.03] += 40
    return X


@pytest.fixture(scope="module")
def chunked(samples):
    return da.from_array(samples, chunks=(400, 30))


def lazily(result, X):
    """What a lazy result is, once it is asked for; its chunks are those of the rows of X."""
    assert isinstance(result, da.Array)
    assert result.chunks[0] == X.chunks[0]
    return result.compute(scheduler="synchronous")


@pytest.mark.parametrize("center", [pytest.param(None, marks=pytest.mark.slow), "median", "robust"])
def test_components_of_a_dask_array_are_those_of_an_array(samples, chunked, center):
    inside = ls.RobustPCA(2, center=center).fit(samples)
    outside = ls.RobustPCA(2, center=center, memory=SMALL).fit(chunked)
    assert outside.result_.backend == "outofcore"
    assert outside.n_iter_ == inside.n_iter_
    np.testing.assert_allclose(outside.components_, inside.components_, atol=1e-9)
    np.testing.assert_allclose(outside.singular_values_, inside.singular_values_, rtol=1e-9)
    np.testing.assert_allclose(outside.explained_variance_ratio_, inside.explained_variance_ratio_, rtol=1e-9)
    assert outside.explained_variance_ratio_.sum() > (0.9 if center else 0.5)  # gross errors are no variance
    np.testing.assert_allclose(lazily(outside.transform(chunked), chunked), inside.transform(samples), atol=1e-7)
    assert isinstance(outside.outliers_, StoredOutliers)
    assert abs(outside.outliers_.to_scipy() - inside.outliers_).max() < 1e-7
    if center is not None:
        np.testing.assert_allclose(outside.mean_, inside.mean_, rtol=1e-9)


def test_what_a_fitted_subspace_does_with_dask_arrays(samples, chunked, tmp_path):
    pca = ls.RobustPCA(2, center="median").fit(samples)
    scores = pca.transform(chunked)
    np.testing.assert_allclose(
        lazily(pca.inverse_transform(scores), chunked), pca.inverse_transform(pca.transform(samples)), atol=1e-9
    )
    by_blocks = da.from_array(samples, chunks=(500, 7))  # features in several chunks
    np.testing.assert_array_equal(lazily(pca.transform(by_blocks), by_blocks), pca.transform(samples))
    stored = ls.StoredMatrix.build(samples, tmp_path, memory=SMALL)
    np.testing.assert_allclose(pca.transform(stored), pca.transform(samples), atol=1e-12)
    with pytest.raises(TypeError, match="not in memory, but this needs it"):
        pca.outliers(chunked)
    with pytest.raises(ValueError, match="30 features"):
        pca.transform(chunked[:, :20]).compute()


@pytest.mark.slow
def test_a_fit_and_its_transform_run_on_the_current_cluster(samples, chunked, client):
    with client.as_current():
        with pytest.warns(UserWarning, match="max_iter"):
            pca = ls.RobustPCA(2, max_iter=3).fit(chunked)
        assert pca.result_.backend == "dask"
        scores = pca.transform(chunked).compute()
    with pytest.warns(UserWarning, match="max_iter"):
        inside = ls.RobustPCA(2, max_iter=3).fit(samples)
    np.testing.assert_allclose(scores, inside.transform(samples), atol=1e-7)


@pytest.mark.parametrize("clean", [False, True])
def test_holes_of_a_dask_array_are_filled_as_those_of_an_array(samples, chunked, clean):
    inside = ls.RobustImputer(clean=clean)
    outside = ls.RobustImputer(clean=clean, memory=SMALL)
    filled = lazily(outside.fit_transform(chunked), chunked)
    np.testing.assert_allclose(filled, inside.fit_transform(samples), rtol=1e-8, atol=1e-8)
    assert outside.rank_ == inside.rank_
    new = samples[:200] + np.nanmedian(samples, axis=0) * 0.01
    lazy = da.from_array(new, chunks=(90, 30))
    np.testing.assert_allclose(lazily(outside.transform(lazy), lazy), inside.transform(new), rtol=1e-8, atol=1e-8)


def test_indicators_empty_features_and_other_marks_of_missing_values(samples):
    X = np.column_stack([np.where(np.isnan(samples), -1.0, np.abs(samples)), np.full(len(samples), -1.0)])
    options = {"missing_values": -1.0, "add_indicator": True, "keep_empty_features": True}
    inside = ls.RobustImputer(**options).fit_transform(X)
    lazy = da.from_array(X, chunks=(400, 31))
    np.testing.assert_allclose(
        lazily(ls.RobustImputer(**options).fit_transform(lazy), lazy), inside, rtol=1e-8, atol=1e-8
    )


def test_single_precision_stays_single(chunked):
    X = chunked.astype(np.float32)
    filled = ls.RobustImputer().fit_transform(X)
    assert filled.dtype == filled.compute(scheduler="synchronous").dtype == np.float32
    assert ls.RobustPCA(2).fit(X).transform(X).dtype == np.float32


def test_a_stream_takes_a_dask_array_chunk_by_chunk(samples, chunked):
    inside, outside = (ls.StreamingRobustPCA(2).fit(X) for X in (samples, chunked))
    assert outside.n_samples_seen_ == 1500
    np.testing.assert_array_equal(outside.components_, inside.components_)


@pytest.mark.parametrize("backend", ["auto", "outofcore"])
def test_samples_in_memory_may_be_solved_from_disk(samples, backend):
    pca = ls.RobustPCA(2, backend=backend, memory=SMALL).fit(samples)
    assert (pca.result_.backend == "outofcore") == (backend == "outofcore")
    np.testing.assert_allclose(pca.components_, ls.RobustPCA(2).fit(samples).components_, atol=1e-9)
    filled = ls.RobustImputer(backend=backend, memory=SMALL).fit_transform(samples)
    np.testing.assert_allclose(filled, ls.RobustImputer().fit_transform(samples), rtol=1e-8, atol=1e-8)


def test_what_cannot_be_done_says_what_to_do(chunked, tmp_path):
    for backend in ("native", "cuda"):
        with pytest.raises(ValueError, match=r"for samples in memory.*X\.compute\(\)"):
            ls.RobustPCA(2, backend=backend).fit(chunked)
    with pytest.raises(ValueError, match=r"compute_chunk_sizes\(\) first"):
        ls.RobustPCA(2).fit(chunked[chunked[:, 0] > 0])
    imputer = ls.RobustImputer().fit(ls.StoredMatrix.build(chunked, tmp_path))
    with pytest.raises(TypeError, match="give a Dask array"):
        imputer.transform(ls.StoredMatrix(tmp_path))


@pytest.mark.slow
def test_nothing_is_left_in_the_temporary_folder(chunked, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    imputer = ls.RobustImputer(memory=SMALL).fit(chunked)
    gc.collect()
    assert imputer.model_.result.S.nnz  # what it was learnt from is there as long as it is
    assert len(imputer.model_.result.S.to_scipy().data)
    del imputer
    for _ in range(3):  # one matrix holds the other
        gc.collect()
    assert not os.listdir(tmp_path)
