"""Rows that a fit follows: each in a direction of its own, with fewer rows than columns."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from lowsparse import RobustPCA
from lowsparse.robust.cases import OrthogonalLimit
from lowsparse.robust.leverage import without_own_say


def table(seed, share, missing=0.0, n=100, d=200, distance=15.0):
    """(X, which rows are bad): ten components are fitted, and leave a remainder that is almost as large."""
    rng = np.random.default_rng([45, seed])
    lag = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    X = rng.standard_normal((n, d)) @ np.linalg.cholesky((-0.9) ** lag).T
    bad = np.arange(n) < share * n
    away = rng.standard_normal((n, d))
    X[bad] = X[bad] / np.sqrt(1.5) + distance * (away / np.linalg.norm(away, axis=1, keepdims=True))[bad]
    X[rng.random((n, d)) < missing] = np.nan
    return X, bad


@pytest.mark.parametrize(
    ("share", "missing"),
    [(0.2, 0.0), (0.2, 0.2), pytest.param(0.2, 0.4, marks=pytest.mark.slow)],
    ids=["a fifth", "and holes", "and many holes"],
)
def test_rows_that_the_fit_follows_are_found(share, missing):
    """A component may be that of one of them, which is no farther from the subspace than others then."""
    recall, precision = [], []
    for seed in (101, 102, 103):
        X, bad = table(seed, share, missing)
        found = RobustPCA(10).fit(X).row_outliers_.off
        recall.append((found & bad).sum() / bad.sum())
        precision.append((found & bad).sum() / max(found.sum(), 1))
    assert np.mean(recall) >= 0.95
    assert np.mean(precision) >= 0.95


def test_a_few_rows_that_the_fit_follows_are_found():
    """Too few for a group: it is their distance without their own say that tells."""
    found, wrong = 0, 0
    for seed in (101, 102, 103):
        X, bad = table(seed, 0.03, missing=0.2)
        off = RobustPCA(10).fit(X).row_outliers_.off
        found, wrong = found + np.count_nonzero(off & bad), wrong + np.count_nonzero(off & ~bad)
    assert found >= 6  # of 9; by their distance from a fit that follows them, 3
    assert wrong <= 1


def test_rows_are_as_far_as_new_ones_though_the_fit_follows_them():
    """It is closer to its own rows, here by an eighth: by these, new ones would be called wrong too often."""
    X, _ = table(101, 0.0, n=1100)
    pca = RobustPCA(10).fit(X[:100])
    new = pca.row_distances(X[100:])
    assert np.mean(new.off) <= 0.005
    assert abs(np.median(pca.row_outliers_.orthogonal_distance) / np.median(new.orthogonal_distance) - 1) < 0.05


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_row_far_out_with_few_entries_is_as_far_as_if_it_were_new(seed):
    """It has its say in full where it has entries, though it is in few columns."""
    rng = np.random.default_rng([46, seed])
    n, d, k = 60, 150, 4
    scores = rng.standard_normal((n, k))
    scores[0] *= 7 / np.linalg.norm(scores[0])
    X = 3 * scores @ rng.standard_normal((k, d)) + rng.standard_normal((n, d))
    X[rng.random((n, d)) < 0.4] = np.nan
    cases = RobustPCA(k).fit(X).row_outliers_
    new = RobustPCA(k).fit(X[1:]).row_distances(X[:1])
    assert abs(cases.orthogonal_distance[0] / new.orthogonal_distance[0] - 1) < 0.15
    assert not cases.off.any()


@pytest.mark.parametrize("ratio", [1.2, 1.3])
def test_rows_with_some_more_noise_keep_their_say(ratio):
    """A third of them: without these the error would be a fifth larger."""
    rng = np.random.default_rng(8)
    n, d, k = 100, 200, 5
    truth = rng.standard_normal((n, k)) * np.linspace(1.2, 0.6, k) @ rng.standard_normal((k, d))
    noise = np.where(np.arange(n) < 0.3 * n, ratio, 1.0)[:, None] * rng.standard_normal((n, d))
    pca = RobustPCA(k).fit(truth + noise)
    assert np.mean(pca.row_outliers_.off[: 3 * n // 10]) < 0.4
    mean = (truth + noise).mean(axis=0)
    U, s, V = np.linalg.svd(truth + noise - mean, full_matrices=False)
    plain = np.mean((mean + U[:, :k] * s[:k] @ V[:k] - truth) ** 2)
    assert np.mean((pca.mean_ + pca.result_.L.to_dense() - truth) ** 2) < 1.1 * plain


def test_distances_are_those_of_fits_without_each_row():
    """Features regressed on given scores: exactly; here the subspace moves, and the scores with it."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((60, 4)) * [8, 6, 5, 4] @ np.linalg.qr(rng.standard_normal((90, 4)))[0].T
    X += 0.3 * rng.standard_normal(X.shape)

    def off(fitted):
        axes = np.linalg.svd(fitted - fitted.mean(axis=0), full_matrices=False)[2][:4]
        away = X - fitted.mean(axis=0)
        return away @ axes.T, np.linalg.norm(away - away @ axes.T @ axes, axis=1)

    scores, lengths = off(X)
    found, _ = without_own_say(scores, lengths, np.ones(60), np.arange(60) < 50)
    np.testing.assert_array_equal(found[50:], lengths[50:])
    found, _ = without_own_say(scores, lengths, np.ones(60), np.ones(60, bool))
    without = [off(np.delete(X, i, axis=0))[1][i] for i in range(60)]
    np.testing.assert_allclose(found, without, rtol=0.03)
    assert np.median(lengths / without) < 0.95


@pytest.mark.parametrize("seed", [9, 13])
def test_a_second_group_that_widens_the_usual_does_not_hide_there(seed):
    freedom, far = np.full(100, 190), np.arange(100) < 30
    one = np.sqrt(np.random.default_rng(seed).chisquare(80, 100) / 80)
    limit = OrthogonalLimit.fit(one, freedom)
    assert limit.in_front_of_group(one, freedom) == limit
    noisier = np.where(far, 1.25 * one, one)  # a fit is better with these than without
    limit = OrthogonalLimit.fit(noisier, freedom)
    assert limit.in_front_of_group(noisier, freedom) == limit
    both = np.where(far, 1.5 * one, one)
    limit = OrthogonalLimit.fit(both, freedom)
    assert np.mean(both[far] > limit.cutoff(freedom[far])) < 0.9
    limit = limit.in_front_of_group(both, freedom)
    assert np.array_equal(both > limit.cutoff(freedom), far)
