"""Scales and offsets of tables: found where they are known, shrunk where little is known, and undone again."""

import math

import numpy as np
import pytest

import lowsparse as ls
from conftest import assert_close
from lowsparse.imputation.offsets import Preparation
from lowsparse.linalg.scale import robust_scale


def table(m, n, density, *, rows=0.7, columns=1.5, noise=0.5, outliers=0.0, scale=None, seed=0):
    """x = s (b + a + noise), with outliers. (M, s, b, a)."""
    rng = np.random.default_rng([2028, seed])
    a, b = rows * rng.standard_normal(m), 4 + columns * rng.standard_normal(n)
    s = np.ones(n) if scale is None else scale
    i, j = np.nonzero(rng.random((m, n)) < density)
    y = b[j] + a[i] + noise * rng.standard_normal(i.size)
    y[rng.random(i.size) < outliers] += 40.0
    return ls.ObservedMatrix.from_coo(i, j, s[j] * y, (m, n)), s, b, a


def undone(prepared, i, j, y=0.0):
    """x = s (b + a + y)."""
    return prepared.scale[j] * (prepared.level[j] + prepared.offset[i] + y)


def fitted(prepared, M):
    return undone(prepared, M.rows, M.columns_of_entries())


@pytest.mark.parametrize("outliers", [0.0, 0.1])
def test_offsets_are_found(outliers):
    M, s, b, a = table(200, 150, 0.5, scale=np.geomspace(0.01, 100, 150), outliers=outliers)
    prepared = Preparation.fit(M, rows=True)
    truth = s[M.columns_of_entries()] * (b[M.columns_of_entries()] + a[M.rows])
    error = (fitted(prepared, M) - truth) / s[M.columns_of_entries()]
    # two means of 75 and 100 entries with the noise 0.5, weights of 95 % efficiency
    assert np.sqrt(np.mean(error**2)) < (1.8 if outliers else 1.25) * 0.5 * math.sqrt(1 / 75 + 1 / 100)
    assert np.std(np.log(prepared.scale / s)) < 0.15


def test_without_rows_there_are_levels_alone():
    M, _, b, _ = table(400, 30, 0.8, rows=0.0)
    prepared = Preparation.fit(M, rows=False)
    assert not prepared.offset.any()
    assert prepared.damping == math.inf
    assert_close(prepared.scale * prepared.level, b, 0.1, scale=1.0)


def test_the_damping_is_noise_against_offsets():
    M, _, _, _ = table(300, 200, 0.5, rows=0.5, columns=1.0, noise=1.0, seed=5)
    assert 2.5 < Preparation.fit(M, rows=True).damping < 5  # σ²/τ² = 4; the weights take a little off σ²


def test_lines_with_few_entries_are_shrunk():
    """With normal offsets and noise E(a | x) minimises Σ w (x - b - a)² + σ²/τ² Σ a²."""
    M, _, _, _ = table(300, 200, 0.02, rows=1.0, columns=1.0, noise=1.0, seed=1)
    prepared = Preparation.fit(M, rows=True)
    y = prepared.apply(M)
    c = 2.385 * robust_scale(y.values)
    w = 1 / (1 + (y.values / c) ** 2)
    total = np.bincount(M.rows, weights=w, minlength=300)
    expected = (np.bincount(M.rows, weights=w * y.values, minlength=300) + total * prepared.offset) / (
        total + prepared.damping
    )
    assert_close(prepared.offset, expected, 0.03, scale=1.0)
    assert (prepared.offset[M.row_counts == 0] == 0).all()


def test_thin_ratings_are_predicted_better_than_by_medians():
    M, _, b, a = table(400, 500, 0.02, rows=0.5, columns=0.5, noise=1.0, outliers=0.02, seed=2)
    prepared = Preparation.fit(M, rows=True)
    i, j = (k.ravel() for k in np.indices(M.shape))
    truth = b[j] + a[i]
    by_median = np.array([np.median(x) if x.size else np.median(M.values) for _, x in map(M.column, range(500))])[j]
    error, worse = (np.sqrt(np.mean((x - truth) ** 2)) for x in (undone(prepared, i, j), by_median))
    assert error < 0.7 * worse
    assert error < 0.85 * np.std(truth)  # of the mean alone


# ---------------------------------------------------------------------- scales


def test_units_are_kept_apart_and_chance_is_not():
    rng = np.random.default_rng(71)
    units = np.array([1e-3, 1.0, 1e5])
    M = ls.ObservedMatrix.from_dense(units * rng.standard_normal((600, 3)))
    assert_close(np.log(Preparation.fit(M, rows=False).scale / units), np.full(3, np.log(0.798)), 0.1, scale=1.0)
    for few in (rng.standard_normal((25, 300)), rng.standard_gamma(0.5, (8, 300))):  # they differ by chance
        own = np.mean(np.abs(few - np.median(few, axis=0)), axis=0)
        scale = Preparation.fit(ls.ObservedMatrix.from_dense(few), rows=False).scale
        assert np.std(np.log(scale)) < 0.3 * np.std(np.log(own))


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_outliers_do_not_set_the_scale(share):
    rng = np.random.default_rng(72)
    X = rng.standard_normal((500, 8))
    X[rng.random(X.shape) < share] = 1e6
    scale = Preparation.fit(ls.ObservedMatrix.from_dense(X), rows=False).scale
    assert (scale < 4 * 0.798).all()


def test_the_unit_of_the_table_does_not_matter():
    M, _, _, _ = table(60, 40, 0.4, outliers=0.05, seed=3)
    one, other = (Preparation.fit(A, rows=True) for A in (M, M.with_values(255 * M.values)))
    assert_close(other.scale, 255 * one.scale, 1e-12)
    assert_close(other.level, one.level, 1e-9)
    assert_close(other.offset, one.offset, 1e-9)


# ---------------------------------------------------------------------- odd tables


def test_what_is_applied_can_be_undone():
    M, _, _, _ = table(50, 30, 0.5, scale=np.geomspace(1, 1000, 30), seed=4)
    for rows in (True, False):
        prepared = Preparation.fit(M, rows=rows)
        y = prepared.apply(M)
        assert_close(undone(prepared, M.rows, M.columns_of_entries(), y.values), M.values, 1e-12)
        single = M.with_values(M.values.astype(np.float32))
        assert Preparation.fit(single, rows=rows).apply(single).dtype == np.float32


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize(
    "X",
    [
        [[3.0]],
        [[0.0, 0.0], [0.0, 0.0]],
        [[7.0, 7.0, 7.0]],
        [[1.0, np.nan, 5.0], [1.0, np.nan, np.nan], [1.0, np.nan, 6.0]],
        np.where(np.eye(30, 4) > 0, 5.0, 1.0),  # all but one entry of each column the same
    ],
)
def test_odd_tables_have_finite_scales_and_offsets(X, rows):
    M = ls.ObservedMatrix.from_dense(X)
    prepared = Preparation.fit(M, rows=rows)
    assert (prepared.scale > 0).all()
    for part in (prepared.scale, prepared.level, prepared.offset, prepared.apply(M).values):
        assert np.isfinite(part).all()
    assert prepared.damping > 0


def test_a_constant_table_is_all_level():
    M = ls.ObservedMatrix.from_dense(np.full((40, 30), 7.0))
    assert_close(fitted(Preparation.fit(M, rows=True), M), np.full(1200, 7.0), 1e-6)


@pytest.mark.parametrize("wild", [-1e30, 1e30, -3.4e38])
def test_one_wild_number_spoils_no_scale(wild):
    X = np.random.default_rng(4).standard_normal((300, 3)) * [0.01, 1.0, 100.0] + [5.0, 0.0, -20.0]
    before = Preparation.fit(ls.ObservedMatrix.from_dense(X), rows=False)
    X[7, 1] = wild
    after = Preparation.fit(ls.ObservedMatrix.from_dense(X), rows=False)
    np.testing.assert_allclose(after.scale, before.scale, rtol=0.05)
    np.testing.assert_allclose(after.level * after.scale, before.level * before.scale, atol=0.05, rtol=0.05)
