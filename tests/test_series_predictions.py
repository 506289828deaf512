"""What the predictions of series gain from each other: bends, bridges over long gaps, days that nobody read."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from lowsparse.series import model
from lowsparse.series.anomalies import find_anomalies
from lowsparse.series.bends import straight_lines
from lowsparse.series.bridging import Bridge
from lowsparse.series.model import SeriesModel


@pytest.mark.parametrize("seed", [1, 2])
def test_moments_of_smooth_series_are_not_filled_by_straight_lines(seed):
    """A wave that passes one series after the other."""
    rng = np.random.default_rng([31, seed])
    wave = np.convolve(rng.standard_normal(640), np.hanning(9), "same")
    truth = np.column_stack([wave[20 - 2 * j : 620 - 2 * j] for j in range(5)])
    truth += 0.05 * rng.standard_normal(truth.shape)
    missing = np.broadcast_to(rng.random((600, 1)) < 0.1, truth.shape)
    filled = SeriesModel.fit(np.where(missing, np.nan, truth))[0].fill(np.where(missing, np.nan, truth)).values
    read = np.flatnonzero(~missing[:, 0])
    lines = np.column_stack([np.interp(np.arange(600), read, x[read]) for x in truth.T])
    assert np.abs(filled - truth)[missing].mean() < 0.38 * np.abs(lines - truth)[missing].mean()


def test_a_day_that_nobody_read_follows_the_usual_day_where_days_are_independent():
    """Not the days beside it, which are two; the usual one is a mean of nine."""
    errors = []
    for seed in range(2, 4):
        rng = np.random.default_rng([32, seed])
        usual = rng.standard_normal((24, 4))
        X = np.tile(usual, (10, 1)) + 0.5 * rng.standard_normal((240, 4))
        X[96:120] = np.nan
        filled = SeriesModel.fit(X, (24,))[0].fill(X).values[96:120]
        errors.append([np.abs(filled - usual).mean(), np.abs(np.nanmean(X.reshape(10, 24, 4), axis=0) - usual).mean()])
    ours, of_mean = np.mean(errors, axis=0)
    assert ours < 1.55 * of_mean


def test_readings_that_are_too_far_apart_for_their_correlation_to_be_known_do_not_make_bridges_swing():
    """The first and the last reading are 300 moments apart, and correlations are known up to 200."""
    R = np.full((400, 1), np.nan)
    R[[48, 49, 50, 190, 191, 350], 0] = 1.0, 1.0, 1.0, -1.0, -1.0, 1.0
    bridge = Bridge(np.exp(-np.arange(201.0) / 1000)[:, None], np.ones(1), ())
    assert np.abs(bridge.fill(R)).max() <= 1.01


def _in_another_unit(power, n_series, seed):
    """Series of which some are in another unit for a sixth of the time, and one is 0 for a while; and the truth."""
    rng = np.random.default_rng([33, seed])
    t = np.arange(24 * 16)[:, None]
    truth = 100 + 10 * np.sin(2 * np.pi * t / 24) * rng.uniform(0.8, 1.2, 5) + rng.standard_normal((len(t), 5))
    X = truth.copy()
    X[rng.random(X.shape) < 0.05] = np.nan
    X[100:170, :n_series] *= 10.0**power
    X[300:303, 0] = 0.0
    return truth, X


def test_what_most_series_do_for_a_sixth_of_the_time_is_no_error():
    """They are ten times as noisy then, so that on some draws single readings are called bad."""
    found = []
    for seed in range(6, 16):
        _, X = _in_another_unit(1, 4, seed)
        _, good = SeriesModel.fit(X, (24,))
        found.append(np.mean(~good[100:170, :4] & ~np.isnan(X[100:170, :4])))
    assert np.mean(found) < 0.02
    assert np.count_nonzero(found) <= 3


@pytest.mark.parametrize(("power", "others"), [(1, 0), (-1, 0), (3, 0), (1, 3)])
def test_a_sixth_of_a_series_in_another_unit_is_found_unless_others_have_it_too(power, others):
    truth, X = _in_another_unit(power, 1 + others, power + 5)
    wrong = (truth != X) & ~np.isnan(X)
    model, good = SeriesModel.fit(X, (24,))
    found = ~good & ~np.isnan(X)
    if others:
        assert not found[100:170, : 1 + others].any()
        return
    assert (found == wrong).all()
    filled = model.fill(X, good=good)
    listed, _ = find_anomalies(model, X, filled)
    assert listed.kind.tolist() == ["wrong unit", "zero or negative"]
    assert np.abs(filled.values - truth)[wrong].mean() < 1.5
    assert (model.fill(X).bad == wrong).all()


def test_sums_and_differences_of_other_series_are_exact():
    rng = np.random.default_rng([34, 2])
    own = np.cumsum(rng.standard_normal((600, 4)), axis=0) * 0.2 + rng.standard_normal((600, 4))
    truth = np.column_stack([own, own.sum(axis=1), own[:, 0] - own[:, 1] + 0.5 * own[:, 2]])
    X = truth.copy()
    for first in range(0, 600, 25):  # one series at a time
        X[first : first + rng.integers(3, 20), rng.integers(6)] = np.nan
    missing = np.isnan(X)
    filled = SeriesModel.fit(X)[0].fill(X).values
    assert np.abs(filled - truth)[missing].mean() < 3e-4 * truth.std()


def waves(seed, moments, n):
    """A wave that passes one series after the other."""
    rng = np.random.default_rng([35, seed])
    wave = np.convolve(rng.standard_normal(moments + 40), np.hanning(9), "same")
    truth = np.column_stack([wave[20 - 2 * (j % 8) :][:moments] for j in range(n)])
    return truth + 0.05 * rng.standard_normal(truth.shape), rng


def test_what_is_wanted_alone_is_predicted_as_among_all_that_is_missing():
    """What was kept aside is as far off as what is missing: what is missing beside it is bent too."""
    truth, rng = waves(1, 600, 5)
    missing = rng.random(truth.shape) < 0.25
    given = np.where(missing, np.nan, truth)
    parts, lines = model.Parts.fit(given, ())[0], straight_lines(given)
    wanted = missing & (rng.random(missing.shape) < 0.1)
    of_all = parts.bent(given, lines, missing)[wanted[missing]]
    np.testing.assert_allclose(parts.bent(given, lines, wanted), of_all, rtol=0, atol=1e-12)


def test_parts_of_a_long_gap_that_was_kept_aside_are_not_bent_as_short_ones(monkeypatch):
    """A long run crosses moments that nobody read: it is seen in no part, or its straight line is believed."""
    monkeypatch.setattr(model, "SMALL", 0)
    monkeypatch.setattr(model, "ENOUGH", 0)
    truth, rng = waves(2, 800, 5)
    aside = np.repeat(rng.random((800, 1)) < 0.1, 5, axis=1)
    aside[300:360, 2] = aside[500:560, 4] = True
    fold = model._Fold.of(truth, np.ones(truth.shape, bool), aside, ())
    long = fold.lengths > 30
    assert np.count_nonzero(long) == 120
    np.testing.assert_array_equal(fold.F[long, -1], fold.F[long, -model.STRAIGHT])


def test_moments_that_nobody_read_inside_bad_stretches_are_filled_and_banded_as_what_they_are():
    """What is kept aside has the pattern of bad readings too: else nothing is known of such gaps."""
    rng = np.random.default_rng(36)
    t = np.arange(24 * 280)[:, None]
    weather = np.cumsum(rng.standard_normal((len(t), 4)), axis=0) / 8 @ rng.uniform(-1, 1, (4, 40))
    truth = 50 + 5 * np.sin(2 * np.pi * t / 24) + weather + 0.3 * rng.standard_normal((len(t), 40))
    X, bad = truth.copy(), np.zeros(truth.shape, bool)
    for _ in range(300):
        first, length, j = rng.integers(len(t) - 48), rng.integers(20, 48), rng.integers(40)
        bad[first : first + length, j] = True
    X[bad] *= 10.0
    unread = rng.random((len(t), 1)) < 0.1
    X[unread[:, 0]] = np.nan
    fitted, good = SeriesModel.fit(X, (24,))
    filled = fitted.fill(X, good=good)
    inside = bad & unread & np.isin(filled.classes, range(model.UNSEEN + 3, model.UNSEEN + 7))
    errors, widths = np.abs(filled.values - truth), fitted.half_widths(filled.classes, 0.9)
    assert abs(np.mean(errors[inside] <= widths[inside]) - 0.9) < 0.05
