"""Rows that are wrong as a whole: they are found, and have no say in the subspace of the others."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles

pytest.importorskip("sklearn")

from sklearn.decomposition import PCA

import fake_gpu
from conftest import SMALL
from lowsparse import RobustImputer, RobustPCA, StoredMatrix
from lowsparse.estimators import many
from lowsparse.robust.cases import ScoreDistribution, apart, score_cutoff


def spoilt(seed, n=100, d=80, k=4, rows=0.2, cells=0.0, missing=0.0, distance=20.0, noise=0.2, kind="cluster"):
    """(X, the low-rank part with the mean, which rows are bad): samples, some replaced by others off the subspace."""
    rng = np.random.default_rng([41, seed])
    axes = np.linalg.qr(rng.standard_normal((d, k + 1)))[0]
    mean = 3 * rng.standard_normal(d)
    truth = mean + rng.standard_normal((n, k)) * np.linspace(6, 3, k) @ axes[:, :k].T
    X = truth + noise * rng.standard_normal((n, d))
    bad = rng.permutation(n) < rows * n
    away = rng.standard_normal((n, d)) if kind == "spread" else np.tile(axes[:, k], (n, 1))
    X[bad] += distance * (away / np.linalg.norm(away, axis=1, keepdims=True))[bad]
    X[(rng.random((n, d)) < cells) & ~bad[:, None]] += 8.0
    X[rng.random((n, d)) < missing] = np.nan
    return X, truth, bad


def error(pca, truth, bad):
    fitted = pca.mean_ + pca.result_.L.to_dense()
    return np.mean((fitted - truth)[~bad] ** 2)


@pytest.mark.parametrize("kind", ["cluster", "spread"])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"missing": 0.2},
        pytest.param({"rows": 0.4}, marks=pytest.mark.slow),
        {"rows": 0.4, "missing": 0.2},
        {"cells": 0.1, "rows": 0.1},
    ],
    ids=["a fifth", "and holes", "two fifths", "two fifths and holes", "and cells"],
)
def test_bad_rows_are_found_and_have_no_say(kind, how):
    X, truth, bad = spoilt(1, kind=kind, **how)
    pca = RobustPCA(4).fit(X)
    assert np.array_equal(pca.row_outliers_.indices, np.flatnonzero(bad))
    assert f"{bad.sum()} rows do not fit" in pca.result_.notes[-1]
    alone = RobustPCA(4).fit(X[~bad])
    assert error(pca, truth, bad) < 1.05 * error(alone, truth[~bad], np.zeros(len(alone.result_.L.U), bool))
    assert subspace_angles(pca.components_.T, alone.components_.T).max() < 0.02
    np.testing.assert_allclose(pca.singular_values_, alone.singular_values_, rtol=0.01)
    np.testing.assert_allclose(pca.explained_variance_ratio_, alone.explained_variance_ratio_, rtol=0.05)
    spoiled = RobustPCA(4, rows=None).fit(X)
    assert error(spoiled, truth, bad) > (3 if kind == "cluster" else 1.1) * error(pca, truth, bad)


def test_without_bad_rows_the_last_stage_costs_nothing():
    X, truth, none = spoilt(2, rows=0.0, cells=0.1, missing=0.1)
    robust, cells = RobustPCA(4).fit(X), RobustPCA(4, rows=None).fit(X)
    assert not robust.row_outliers_.indices.size
    assert not robust.result_.notes
    assert error(robust, truth, none) < 1.01 * error(cells, truth, none)
    assert robust.result_.status is cells.result_.status


def test_a_clean_table_is_fitted_like_plain_pca():
    X, truth, none = spoilt(3, rows=0.0, n=300)
    pca = PCA(4).fit(X)
    plain = pca.inverse_transform(pca.transform(X))
    ours, cells = RobustPCA(4).fit(X), RobustPCA(4, rows=None).fit(X)
    assert subspace_angles(ours.components_.T, pca.components_.T).max() < 0.003
    assert error(ours, truth, none) < 1.01 * np.mean((plain - truth) ** 2)
    assert error(ours, plain, none) < 0.1 * error(cells, plain, none)


def full_rank(seed, distance, n=100, d=60):
    """(X, X before, truth, bad cells): ten components leave a remainder that is almost as large."""
    rng = np.random.default_rng([42, seed])
    lag = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    sizes, axes = np.linalg.eigh((-0.9) ** lag)
    clean = rng.standard_normal((n, d)) * np.sqrt(sizes) @ axes.T
    bad = rng.random((n, d)) < (0.2 if distance else 0.0)
    return np.where(bad, distance, clean), clean, clean @ axes[:, -10:] @ axes[:, -10:].T, bad


@pytest.mark.parametrize("seed", [11, 13])
@pytest.mark.parametrize(("distance", "most"), [(0.0, 1.1), (4.0, 3.5), (8.0, 2.5)])
def test_a_remainder_of_full_rank_does_not_break_the_fit(distance, most, seed):
    """Compared with plain PCA before anything went wrong; after it, plain PCA is 70 to 290 times worse."""
    X, clean, truth, bad = full_rank(seed, distance)
    pca, plain = RobustPCA(10).fit(X), PCA(10).fit(clean)
    best = np.mean((plain.inverse_transform(plain.transform(clean)) - truth) ** 2)
    assert error(pca, truth, np.zeros(100, bool)) < most * best
    if distance == 8:
        flagged = pca.cell_outliers_.toarray() != 0
        assert (flagged & bad).sum() > 0.98 * bad.sum()
        assert (flagged & ~bad).sum() < 0.02 * bad.sum()


@pytest.mark.parametrize("seed", [15, 16])
def test_the_largest_residuals_of_a_table_without_errors_are_kept(seed):
    """A remainder of full rank has residuals beyond four standard deviations that plain PCA keeps, too."""
    X, clean, truth, none = full_rank(seed, 0.0, n=400, d=50)
    pca, plain = RobustPCA(10).fit(X), PCA(10).fit(clean)
    best = np.mean((plain.inverse_transform(plain.transform(clean)) - truth) ** 2)
    assert error(pca, truth, none.any(axis=1)) < 1.01 * best


@pytest.mark.slow
def test_errors_that_are_hardly_larger_than_a_remainder_are_not_followed():
    """They are at 4.4 standard deviations of what ten of a thousand components leave."""
    X, _, truth, bad = full_rank(21, 4.0, n=1000, d=1000)
    mean = 3 * np.random.default_rng(21).standard_normal(1000)
    pca = RobustPCA(10).fit(X + mean)
    assert error(pca, truth + mean, np.zeros(1000, bool)) < 0.16  # plain PCA has 0.8, who knows the errors has 0.13
    flagged = pca.cell_outliers_.toarray() != 0
    assert (flagged & bad).sum() > 0.7 * bad.sum()
    assert (flagged & ~bad).sum() < 0.01 * bad.sum()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [21, 22])
def test_rows_that_take_the_place_of_a_component_are_found(seed):
    """Within the first fit they are hardly further out than others, and off the fit of these little more than they."""
    rng = np.random.default_rng([43, seed])
    lag = np.abs(np.subtract.outer(np.arange(200), np.arange(200)))
    sizes, axes = np.linalg.eigh((-0.9) ** lag)
    X = rng.standard_normal((100, 200)) * np.sqrt(sizes) @ axes.T
    bad = np.arange(100) < 20
    X[bad] = X[bad] / np.sqrt(1.5) + 15 * axes[:, -11]  # the eleventh axis; ten are fitted
    found = RobustPCA(10).fit(X).row_outliers_.off
    assert (found & bad).sum() >= 19
    assert (found & ~bad).sum() <= 1


def a09(seed, n, d, share, distance, missing=0.0, cells=0.0):
    """(X, which rows are bad): the bad ones lie along the eleventh axis, which is almost as long as the tenth."""
    rng = np.random.default_rng([44, seed])
    lag = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    sizes, axes = np.linalg.eigh((-0.9) ** lag)
    X = rng.standard_normal((n, d)) * np.sqrt(sizes) @ axes.T
    bad = np.arange(n) < share * n
    X[bad] = X[bad] / np.sqrt(1.5) + distance * axes[:, -11]
    X[(rng.random((n, d)) < cells) & ~bad[:, None]] = distance
    X[rng.random((n, d)) < missing] = np.nan
    return X, bad


@pytest.mark.parametrize("seeds", [(1, 2), pytest.param(range(3, 9), marks=pytest.mark.slow)], ids=["two", "six"])
@pytest.mark.parametrize(
    ("n", "d", "how"),
    [
        (100, 200, {"share": 0.4, "distance": 15.0}),
        pytest.param(100, 200, {"share": 0.1, "distance": 20.0, "missing": 0.2, "cells": 0.1}, marks=pytest.mark.slow),
        pytest.param(400, 50, {"share": 0.1, "distance": 10.0, "missing": 0.2, "cells": 0.1}, marks=pytest.mark.slow),
    ],
    ids=[
        "two fifths that are hardly further out",
        "with cells and holes",
        "with an axis that the others could do without",
    ],
)
def test_rows_along_an_axis_that_the_others_hardly_have_are_found(n, d, how, seeds):
    """In the mean of the draws, 95 % of the bad rows are found, and 95 % of those found are bad."""
    recall, precision = [], []
    for seed in seeds:
        X, bad = a09(seed, n, d, **how)
        found = RobustPCA(10).fit(X).row_outliers_.off
        recall.append((found & bad).sum() / bad.sum())
        precision.append((found & bad).sum() / max(found.sum(), 1))
    assert np.mean(recall) >= 0.95
    assert np.mean(precision) >= 0.95


def test_no_bad_row_is_overlooked_because_some_scores_fit_what_is_left_of_it():
    """Far out, without the entries that are called errors: with many holes, that was a sixth of the bad rows."""
    X, bad = a09(2, 400, 50, share=0.2, distance=25.0, missing=0.4)
    found = RobustPCA(10).fit(X).row_outliers_.off
    assert found[bad].mean() >= 0.95
    assert found[~bad].mean() <= 0.01


@pytest.mark.slow
def test_the_axis_of_bad_rows_is_given_up_however_far_they_are():
    """A fit to the others that keeps it leaves many of their entries out, and looks precise."""
    X, bad = a09(2, 100, 200, share=0.2, distance=100.0, missing=0.4)
    pca = RobustPCA(10).fit(X)
    assert np.mean(pca.cell_outliers_.toarray()[~bad] != 0) < 0.01
    assert pca.noise_ > 0.5


@pytest.mark.parametrize("rank", [5, 7])
def test_bad_rows_are_found_with_more_components_than_there_are(rank):
    X, _, bad = spoilt(24, n=200)
    assert np.array_equal(RobustPCA(rank).fit(X).row_outliers_.off, bad)


def test_two_groups_that_overlap_in_their_distances_are_told_apart():
    rng = np.random.default_rng(45)
    Z = rng.standard_normal((100, 8))
    Z[:40, 3] += 7.0
    usual = ScoreDistribution.fit(Z, 1e-3)
    assert not apart(usual.distances(Z), score_cutoff(8)).any()
    assert np.array_equal(usual.group(Z), np.arange(100) < 40)
    for other in (rng.standard_normal((100, 8)), rng.uniform(-1, 1, (500, 3)), rng.exponential(size=(500, 4))):
        assert not ScoreDistribution.fit(other, 1e-3).group(other).any()
    assert not usual.group(np.ones((50, 8))).any()


@pytest.mark.slow
def test_no_row_follows_its_gross_errors():
    """With few entries beyond the rank, some rows have a second minimum of the loss, where the first fit ends."""
    X, truth, _ = spoilt(23, n=400, d=40, k=10, rows=0.0, missing=0.2, noise=0.1)
    rng = np.random.default_rng(43)
    wrong = rng.random(X.shape) < 0.2
    X[wrong] = truth.mean(axis=0)[np.nonzero(wrong)[1]] + 12.0
    pca = RobustPCA(10).fit(X)
    errors = np.mean((pca.mean_ + pca.result_.L.to_dense() - truth) ** 2, axis=1)
    determined = (~np.isnan(X) & ~wrong).sum(axis=1) >= 18
    assert errors[determined].max() < 0.3


def test_rows_far_out_within_the_subspace_keep_their_say():
    rng = np.random.default_rng(5)
    axes = rng.standard_normal((3, 60))
    scores = rng.standard_normal((200, 3))
    scores[:20] += [25.0, 0.0, 0.0]  # a group of its own
    X = scores @ axes + 0.2 * rng.standard_normal((200, 60))
    pca = RobustPCA(3).fit(X)
    assert not pca.row_outliers_.off.any()
    assert pca.row_outliers_.far[:20].all()
    assert pca.row_outliers_.far[20:].sum() <= 2
    angles = subspace_angles(pca.components_.T, axes.T)
    assert angles.max() < 0.03
    assert angles.min() < 0.003  # without the group no axis is known as well: noise / (size √n) = 0.2 / √180


def test_long_tails_are_no_outliers():
    rng = np.random.default_rng(6)
    X = rng.standard_t(3, (400, 4)) @ rng.standard_normal((4, 60)) + 0.2 * rng.standard_normal((400, 60))
    pca = RobustPCA(4).fit(X)
    assert pca.row_outliers_.indices.size <= 2
    assert pca.row_outliers_.far.sum() > 10  # they keep their say
    assert not pca.result_.notes


def test_new_rows_are_judged_each_by_itself():
    X, _, bad = spoilt(7, n=300, missing=0.1)
    pca = RobustPCA(4).fit(X[:200])
    found = pca.predict(X[200:])
    assert np.array_equal(found == -1, bad[200:] | pca.row_distances(X[200:]).far)
    assert np.array_equal(pca.row_distances(X[200:]).off, bad[200:])
    assert np.array_equal(found, np.concatenate([pca.predict(x[None]) for x in X[200:]]))
    decision = pca.decision_function(X[200:])
    assert np.array_equal(decision < 0, found == -1)
    np.testing.assert_allclose(pca.score_samples(X[200:]), decision - 1)
    assert np.array_equal(RobustPCA(4).fit_predict(X[:200]), pca.predict(X[:200]))
    assert pca.decision_function(np.full((1, 80), np.nan)) == 1.0  # nothing speaks against it


def test_residuals_have_a_sign_and_the_unit_of_the_noise():
    X, _, _ = spoilt(8, rows=0.0, missing=0.1)
    X[3, 5] += 9.0
    X[4, 6] -= 9.0
    pca = RobustPCA(4).fit(X)
    e = pca.standardized_residuals(X)
    assert np.array_equal(np.isnan(e), np.isnan(X))
    assert 0.9 < np.nanstd(np.where(np.abs(e) > 4, np.nan, e)) < 1.1
    shown = pca.cell_outliers_.toarray()
    for i, j, sign in ((3, 5, 1), (4, 6, -1)):
        assert sign * e[i, j] > 20
        assert shown[i, j] == pytest.approx(e[i, j], rel=0.01)


def test_the_same_bits_again_and_the_order_does_not_matter():
    X, _, _ = spoilt(9, missing=0.1)
    one, other = RobustPCA(4).fit(X), RobustPCA(4).fit(X)
    assert np.array_equal(one.components_, other.components_)
    assert np.array_equal(one.row_outliers_.score_distance, other.row_outliers_.score_distance)
    turned = RobustPCA(4).fit(X[::-1])
    assert np.array_equal(turned.row_outliers_.off[::-1], one.row_outliers_.off)


def test_a_count_of_components_is_found_without_the_bad_rows():
    X, _, _ = spoilt(10, n=150)
    pca = RobustPCA("auto").fit(X)
    assert pca.n_components_ == 4 + (not pca.row_outliers_.off.any())  # the bad ones may be one component more


def test_other_centres_and_methods_leave_bad_rows_out_too():
    X, _, bad = spoilt(11)
    for options in ({"center": "median"}, {"method": "irls"}):
        pca = RobustPCA(4, **options).fit(X)
        assert np.array_equal(pca.row_outliers_.off, bad)
    with pytest.raises(ValueError, match="rows must be one of None, 'robust'"):
        RobustPCA(4, rows="yes").fit(X)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.4])
def test_the_distribution_of_scores_is_that_of_most(share):
    rng = np.random.default_rng(12)
    Z = rng.standard_normal((300, 5)) * [9.0, 5.0, 3.0, 2.0, 1.0]
    n_bad = int(share * 300)
    Z[:n_bad, 4] += 12.0
    found = ScoreDistribution.fit(Z, 1e-3)
    np.testing.assert_allclose(np.sqrt(np.diag(found.covariance)), [9, 5, 3, 2, 1], rtol=0.25)
    far = found.distances(Z) > score_cutoff(5)
    assert far[:n_bad].all()
    assert far[n_bad:].sum() <= 3


def test_bad_rows_have_no_say_from_disk_either():
    X, _, bad = spoilt(14, missing=0.1)
    inside, outside = RobustPCA(4).fit(X), RobustPCA(4, backend="outofcore", memory=SMALL).fit(X)
    assert outside.result_.backend == "outofcore"
    assert np.array_equal(outside.row_outliers_.off, bad)
    np.testing.assert_allclose(outside.components_, inside.components_, atol=1e-9)
    np.testing.assert_allclose(outside.mean_, inside.mean_, atol=1e-8)
    np.testing.assert_allclose(
        outside.row_outliers_.orthogonal_distance, inside.row_outliers_.orthogonal_distance, rtol=1e-6
    )
    assert outside.result_.notes == inside.result_.notes


def test_new_rows_in_memory_are_judged_by_a_fit_from_disk():
    X, _, bad = spoilt(15, missing=0.1)
    inside, outside = RobustPCA(4).fit(X), RobustPCA(4, backend="outofcore", memory=SMALL).fit(X)
    new = X.copy()
    new[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    np.testing.assert_allclose(outside.transform(new), inside.transform(new), atol=1e-6)
    np.testing.assert_allclose(outside.decision_function(new), inside.decision_function(new), atol=1e-5)
    assert np.array_equal(outside.predict(new) == -1, bad)
    assert np.array_equal(outside.fit_predict(X) == -1, bad)


@pytest.mark.parametrize(
    "how",
    ["in memory", pytest.param("from disk", marks=pytest.mark.slow), pytest.param("median", marks=pytest.mark.slow)],
)
def test_many_rows_are_fitted_by_a_part_of_them_and_a_few_passes(how, tmp_path):
    X, truth, bad = spoilt(31, n=20_000, d=16, k=2, rows=0.1, cells=0.05, missing=0.1, distance=10.0)
    given = StoredMatrix.build(X, tmp_path, memory="8MB") if how == "from disk" else X
    pca = RobustPCA(2, center="median" if how == "median" else "robust").fit(given)
    assert "learnt from 5,000 of 20,000 rows" in pca.result_.notes[0]
    assert np.mean(pca.row_outliers_.off[bad]) > 0.98
    assert np.mean(pca.row_outliers_.off[~bad]) < 0.005
    good = np.where(np.isnan(X) | (np.abs(X - truth) > 2), truth, X)[~bad]  # what nobody knows
    best = PCA(2).fit(good)
    angle = lambda axes: subspace_angles(axes.T, PCA(2).fit(truth[~bad]).components_.T).max()  # noqa: E731
    assert angle(pca.components_) < (5 if how == "median" else 1.5) * angle(best.components_)  # medians are biased
    if how != "median":
        assert np.abs(pca.mean_ - best.mean_).max() < 0.1
        np.testing.assert_allclose(pca.noise_, 0.2, rtol=0.05)
    assert pca.row_outliers_.off.shape == (20_000,)
    assert pca.result_.L.shape == X.shape


@pytest.mark.parametrize("backend", ["cuda", pytest.param("dask", marks=pytest.mark.slow)])
def test_many_rows_are_fitted_alike_wherever_they_are(backend, monkeypatch, request):
    monkeypatch.setattr(many, "SOME", 200)
    X, _, bad = spoilt(33, n=5000, d=10, k=2, rows=0.1, missing=0.1)
    expected = RobustPCA(2).fit(X)
    if backend == "cuda":
        fake_gpu.install(monkeypatch)
        pca = RobustPCA(2, backend="cuda").fit(X)
    else:
        chunks = pytest.importorskip("dask.array").from_array(X, chunks=(1000, 10))
        with request.getfixturevalue("client").as_current():
            pca = RobustPCA(2).fit(chunks)
        assert pca.result_.backend == "dask"
    assert "learnt from" in pca.result_.notes[0]
    np.testing.assert_allclose(pca.components_, expected.components_, atol=1e-9)
    assert np.array_equal(pca.row_outliers_.off, expected.row_outliers_.off)
    assert np.mean(pca.row_outliers_.off == bad) > 0.99


def test_many_rows_without_noise_are_fitted_exactly():
    X, truth, bad = spoilt(32, n=20_000, d=12, k=2, rows=0.05, missing=0.2, noise=0.0)
    X[~bad, 3] = np.where(np.arange(np.count_nonzero(~bad)) % 20, X[~bad, 3], 99.0)
    pca = RobustPCA(2).fit(X)
    assert error(pca, truth, bad) < 1e-12
    assert (pca.row_outliers_.off >= bad).all()


def coarse(kind, seed, n=300):
    """A table without errors whose columns have few numbers, with components of their mean."""
    rng = np.random.default_rng([46, seed])
    L = 0.6 * rng.standard_normal((n, 3)) @ rng.standard_normal((3, 20)) + 0.4 * rng.standard_normal(20)
    if kind == "counts":
        return rng.poisson(np.exp(0.8 * L - 0.5)).astype(float)
    if kind == "ratings":
        return np.clip(np.round(4.4 + L + 0.8 * rng.standard_normal(L.shape)), 1, 5)
    if kind == "rare":
        return 1.0 * (L + rng.logistic(size=L.shape) > 2.5)
    if kind == "zeros":
        return np.exp(1 + 0.5 * L) * (rng.random(L.shape) < 0.4)
    if kind == "mixed":
        return np.hstack([L[:, :8] + 0.3 * rng.standard_normal((n, 8)), np.round(L[:, 8:14]), 1.0 * (L[:, 14:] > 0.5)])
    levels = [rng.integers(size, size=n) for size in (2, 3, 4, 5)]
    return np.hstack([np.eye(level.max() + 1)[level] for level in levels])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # some hardly have components
@pytest.mark.parametrize("missing", [pytest.param(0.0, marks=pytest.mark.slow), 0.2])
@pytest.mark.parametrize(
    "kind",
    ["ratings", "mixed", *(pytest.param(k, marks=pytest.mark.slow) for k in ("one-hot", "counts", "rare", "zeros"))],
)
def test_counts_ratings_and_categories_are_no_errors(kind, missing):
    truth = coarse(kind, 1)
    rng = np.random.default_rng(47)
    X = np.where(rng.random(truth.shape) < missing, np.nan, truth)
    pca, plain = RobustPCA(3).fit(X), PCA(3).fit(truth)
    assert pca.outliers_.nnz <= 0.005 * X.size
    assert pca.row_outliers_.off.mean() <= 0.01
    share = lambda axes: np.sum(((truth - truth.mean(axis=0)) @ axes.T) ** 2)  # noqa: E731
    assert share(pca.components_) > (0.75 if kind == "zeros" else 0.9 if missing else 0.95) * share(plain.components_)
    wrong = rng.choice(np.flatnonzero(~np.isnan(X)), 30, replace=False)
    X.flat[wrong] = 55.0 if kind == "ratings" else 500.0
    pca = RobustPCA(3).fit(X)
    found = pca.outliers_.toarray() != 0
    assert found.flat[wrong].all()
    assert found.sum() <= 30 + 0.005 * X.size
    assert np.array_equal(pca.outliers(X).toarray().flat[wrong] != 0, np.ones(30, bool))
    assert (np.abs(pca.cell_outliers_.toarray().flat[wrong]) > 4).all()
    assert share(pca.components_) > (0.75 if kind == "zeros" else 0.9) * share(plain.components_)


def test_a_group_beyond_long_tails_is_one():
    rng = np.random.default_rng(2)
    tails = rng.standard_t(2, (240, 2))
    group = np.exp(rng.normal(4, 0.5, (60, 1))) * [1, 0.3] + rng.standard_normal((60, 2))
    Z = np.vstack([group, tails])
    found = ScoreDistribution.fit(Z, 0.1).group(Z)
    assert found[:60].all()
    assert found[60:].mean() < 0.05
    assert not ScoreDistribution.fit(tails, 0.1).group(tails).any()


def test_bad_rows_of_a_table_of_ratings_are_found():
    rng = np.random.default_rng(48)
    bad = np.arange(200) < 40
    L = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 20)) / np.sqrt(3)
    L[bad] += 2 * rng.choice([-1.0, 1.0], 20)
    off = RobustPCA(3).fit(np.clip(np.round(5.5 + 2 * L + rng.standard_normal(L.shape)), 1, 10)).row_outliers_.off
    assert off[bad].mean() > 0.95
    assert off[~bad].mean() < 0.02


def with_zeros(kind, share, seed, n=500):
    """Measurements with this share of zeros beside numbers that all differ, with two components and some errors."""
    rng = np.random.default_rng([52, seed])
    L = rng.standard_normal((n, 2)) @ rng.standard_normal((2, 12)) / np.sqrt(2) + 0.35 * rng.standard_normal((n, 12))
    least = np.quantile(L, share, axis=0)
    X = np.maximum(L - least, 0)
    if kind == "spending":
        X = np.where(X > 0, np.exp(L), 0.0)
    wrong = rng.random(X.shape) < 0.02
    return np.where(wrong, X.max(axis=0) + 12 * X.std(axis=0), X), wrong


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # low rank explains about half
@pytest.mark.parametrize(("kind", "share"), [("rain", 0.35), ("rain", 0.45), ("spending", 0.3)])
def test_zeros_beside_other_numbers_are_neither_the_truth_nor_errors(kind, share):
    X, wrong = with_zeros(kind, share, 1)
    pca = RobustPCA(2).fit(X[:300])
    found, new = pca.outliers_.toarray() != 0, pca.outliers(X[300:]).toarray() != 0
    assert found[wrong[:300]].all()
    assert new[wrong[300:]].mean() > 0.95
    assert found[~wrong[:300]].mean() <= 0.01
    assert new[~wrong[300:]].mean() <= 0.01
    assert pca.row_outliers_.off[~wrong[:300].any(axis=1)].mean() <= 0.06
    assert np.mean(pca.predict(X[300:][~wrong[300:].any(axis=1)]) == -1) <= 0.15


def test_wrong_entries_that_all_are_the_same_number_are_errors():
    """They are an end of their column, and as many as zeros may be, but nothing else is close to them."""
    rng = np.random.default_rng(53)
    X = rng.standard_normal((300, 2)) @ rng.standard_normal((2, 12)) + 0.1 * rng.standard_normal((300, 12))
    wrong = rng.random(X.shape) < 0.22
    X[wrong] = (4 * X.std(axis=0) + np.zeros_like(X))[wrong]
    pca = RobustPCA(2).fit(X)
    assert (pca.outliers_.toarray() != 0)[wrong].mean() > 0.99


@pytest.mark.parametrize("seed", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_rows_of_another_kind_are_found_beside_zeros(seed):
    """Within the first fit they are far out, and rows with wrong entries are between them and the others."""
    X, wrong = with_zeros("rain", 0.3, seed)
    X, right, away = X[:300], ~wrong[:300].any(axis=1), np.random.default_rng(54).standard_normal(12)
    X[:30] += 8 * np.abs(away) / np.linalg.norm(away)
    off = RobustPCA(2).fit(X).row_outliers_.off
    assert off[:30].mean() > 0.95
    assert off[30:][right[30:]].mean() <= 0.01


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_coarse_columns_are_fitted_alike_from_disk_and_by_a_part_of_the_rows(monkeypatch):
    X = coarse("ratings", 2)
    X[np.random.default_rng(1).random(X.shape) < 0.02] = 55.0
    inside, outside = RobustPCA(3).fit(X), RobustPCA(3, backend="outofcore", memory=SMALL).fit(X)
    assert outside.result_.backend == "outofcore"
    np.testing.assert_allclose(outside.components_, inside.components_, atol=1e-7)
    assert inside.outliers_.nnz == outside.outliers_.nnz == np.count_nonzero(X == 55)
    monkeypatch.setattr(many, "SOME", 60)
    monkeypatch.setattr(many, "ENTRIES", 60)
    part = RobustPCA(3).fit(X)
    assert "learnt from 60 of 300 rows" in part.result_.notes[0]
    assert part.outliers_.nnz == inside.outliers_.nnz
    assert part.row_outliers_.off.sum() <= 3
    assert subspace_angles(part.components_.T, inside.components_.T).max() < 0.1


def test_bad_rows_are_found_beside_categories():
    """They differ from the others in the numbers, not in the indicators of categories."""
    rng = np.random.default_rng([59, 1])
    axes, away = rng.standard_normal((3, 15)), rng.standard_normal(15)
    X = rng.standard_normal((200, 3)) @ axes + 0.2 * rng.standard_normal((200, 15))
    X[:40] += 6 * away / np.linalg.norm(away)
    off = RobustPCA(3).fit(np.hstack([X, np.eye(4)[rng.integers(4, size=200)]])).row_outliers_.off
    assert np.array_equal(off, np.arange(200) < 40)


def test_small_numbers_of_an_exact_rank_are_recovered_exactly():
    rng = np.random.default_rng(48)
    truth = rng.integers(0, 3, (200, 2)) @ rng.integers(0, 2, (2, 30)) + 1.0
    X = truth.copy()
    wrong = rng.random(X.shape) < 0.1
    X[wrong] += rng.choice([-2.0, 3.0], np.count_nonzero(wrong))
    pca = RobustPCA(2).fit(X)
    assert np.abs(pca.mean_ + pca.result_.L.to_dense() - truth).max() < 1e-6
    assert np.array_equal(pca.outliers_.toarray() != 0, wrong)


def test_most_rows_may_be_the_same():
    rng = np.random.default_rng(8)
    X = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 8))
    RobustPCA(2, scale="robust").fit((X > 2.5) * 1.0)  # no warning of overflow


@pytest.mark.parametrize("distance", [10, 20])
def test_two_fifths_in_a_tight_group_near_the_centre_are_not_the_subspace(distance):
    """They are closer to each other than good rows are: a fit to them explains most, and most others are off it."""
    rng = np.random.default_rng(49)
    axes = rng.standard_normal((3, 20))
    X = rng.standard_normal((300, 3)) @ axes + 0.1 * rng.standard_normal((300, 20))
    away = np.linalg.qr(np.vstack([axes, rng.standard_normal(20)]).T)[0][:, 3]
    X[:120] = 0.1 * np.sqrt(20) * distance * away + 0.1 * rng.standard_normal((120, 20))
    pca = RobustPCA(3).fit(X)
    assert np.array_equal(pca.row_outliers_.off, np.arange(300) < 120)
    assert subspace_angles(pca.components_.T, axes.T).max() < 0.03


@pytest.mark.parametrize("seed", [1, 6])
def test_a_third_in_a_tight_group_that_others_fit_poorly_is_not_the_subspace(seed):
    """The others lack a component, and their entries are called errors: no row is off by itself."""
    rng = np.random.default_rng([3107, seed])
    axes = rng.standard_normal((3, 20))
    X = rng.standard_normal((300, 3)) @ axes + 0.1 * rng.standard_normal((300, 20))
    away = np.linalg.qr(np.vstack([axes, rng.standard_normal(20)]).T)[0][:, 3]
    X[:105] = 0.1 * np.sqrt(20) * 4 * away + 0.1 * rng.standard_normal((105, 20))
    pca = RobustPCA(3).fit(X)
    assert np.array_equal(pca.row_outliers_.off, np.arange(300) < 105)
    assert subspace_angles(pca.components_.T, axes.T).max() < 0.03


@pytest.mark.parametrize(("share", "seed"), [(0.3, 1), (0.4, 3)])
def test_a_tight_group_beside_the_centre_does_not_turn_the_subspace(share, seed):
    """A plane that is turned about the centre goes through it, and no row is off that by more than others are."""
    rng = np.random.default_rng([57, seed])
    axes, n_bad = rng.standard_normal((3, 20)), int(200 * share)
    X = rng.standard_normal((200, 3)) @ axes + 0.1 * rng.standard_normal((200, 20))
    away = np.linalg.qr(np.vstack([axes, rng.standard_normal(20)]).T)[0][:, 3]
    X[:n_bad] = rng.standard_normal(3) @ axes + 3 * away + 0.1 * rng.standard_normal((n_bad, 20))
    pca = RobustPCA(3).fit(X)
    assert np.array_equal(pca.row_outliers_.off, np.arange(200) < n_bad)
    assert subspace_angles(pca.components_.T, axes.T).max() < 0.03
    assert pca.noise_ < 0.11


@pytest.mark.parametrize("n", [80, 300])
def test_the_rest_of_a_curve_is_not_wrong_because_a_part_is_almost_flat(n):
    rng = np.random.default_rng([75, n])
    t = rng.uniform(-2, 2, n)
    X = np.stack([t, t**2, np.sin(2 * t)], axis=1) @ rng.standard_normal((3, 20)) + 0.2 * rng.standard_normal((n, 20))
    pca = RobustPCA(2).fit(X)  # without a look at the shape of the cloud, 28 % and 37 % of the rows are off
    assert not pca.row_outliers_.off.any()
    assert "along a curve" in pca.result_.notes[-1]
    enough = RobustPCA(3).fit(X)
    assert enough.row_outliers_.off.mean() < 0.02
    assert "curve" not in str(enough.result_.notes)


def test_of_two_halves_none_is_wrong():
    """The rows are on two parallel planes: nobody can say which is right."""
    rng = np.random.default_rng(58)
    X = rng.standard_normal((200, 2)) @ rng.standard_normal((2, 20)) + 0.1 * rng.standard_normal((200, 20))
    X[:95] += rng.standard_normal(20)
    assert not RobustPCA(2).fit(X).row_outliers_.off.any()


def test_rows_that_have_the_same_wrong_entries_are_a_group():
    """Each fits but for some entries, whose number is usual: three rows of ten have as many."""
    rng = np.random.default_rng([46, 2])
    axes, away = rng.standard_normal((2, 12)), rng.standard_normal(12)
    away -= axes.T @ np.linalg.lstsq(axes.T, away, rcond=None)[0]
    X = rng.standard_normal((300, 2)) @ axes + 0.1 * rng.standard_normal((300, 12))
    X[:90] += 2.8 * away / np.linalg.norm(away)
    X[rng.random(X.shape) < 0.2] = np.nan
    pca = RobustPCA(2).fit(X)
    off = pca.row_outliers_.off
    assert off[:90].mean() > 0.95
    assert off[90:].mean() < 0.02
    assert subspace_angles(pca.components_.T, axes.T).max() < np.radians(3)


def test_what_fits_less_than_half_is_not_called_converged():
    rng = np.random.default_rng(50)
    groups = [rng.standard_normal((100, 2)) @ rng.standard_normal((2, 30)) for _ in range(3)]
    X = np.vstack(groups) + 0.05 * rng.standard_normal((300, 30))  # three planes
    with pytest.warns(UserWarning, match="stalled"):
        pca = RobustPCA(2).fit(X)
    assert pca.result_.status.value == "stalled"


def test_new_rows_in_memory_are_filled_by_a_fit_from_disk():
    X, _, _ = spoilt(16, missing=0.1)
    inside, outside = RobustImputer().fit(X), RobustImputer(backend="outofcore", memory=SMALL).fit(X)
    np.testing.assert_allclose(outside.transform(X[:20]), inside.transform(X[:20]), atol=1e-3)


@pytest.mark.parametrize(("share", "seed"), [(0.1, 2), (0.3, 3), (0.5, 2)])
def test_rows_with_a_component_that_most_rows_lack_are_not_bad(share, seed):
    rng = np.random.default_rng([51, seed])
    axes = rng.standard_normal((3, 40))
    scores = rng.standard_normal((300, 3)) * (rng.random((300, 3)) < share)
    pca = RobustPCA(3).fit(scores @ axes + 0.1 * rng.standard_normal((300, 40)))
    assert not pca.row_outliers_.off.any()
    assert pca.outliers_.nnz <= 0.002 * 300 * 40
    assert subspace_angles(pca.components_.T, axes.T).max() < 0.05
    new = rng.standard_normal((200, 3)) * (rng.random((200, 3)) < share) @ axes + 0.1 * rng.standard_normal((200, 40))
    assert np.mean(pca.predict(new) == -1) <= 0.1
    assert (pca.predict(100 * new[np.abs(new).max(axis=1) > 1]) == -1).all()  # further out than any


@pytest.mark.parametrize("seed", [1, 24])
def test_exact_samples_most_of_which_are_the_same(seed):
    rng = np.random.default_rng([3, seed])
    scores = rng.standard_normal((300, 3)) * (rng.random((300, 3)) < 0.1)
    axes = rng.standard_normal((3, 40))
    pca = RobustPCA(3).fit(scores @ axes)
    assert not pca.row_outliers_.off.any()
    assert subspace_angles(pca.components_.T, axes.T).max() < 1e-6
