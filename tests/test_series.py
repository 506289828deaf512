"""RobustSeriesImputer and the model behind it."""

import pickle
import tracemalloc
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("sklearn")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

from benchmarks.seriesdata import spoil  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

import lowsparse as ls  # noqa: E402
from lowsparse.robust.calibration import Calibration  # noqa: E402
from lowsparse.series import anomalies, bridging, clock, files, groups, judging, jumps, model, normal, runs  # noqa: E402
from lowsparse.series.anomalies import find_anomalies  # noqa: E402
from lowsparse.series.bridging import Bridge, Gaps  # noqa: E402
from lowsparse.series.correlation import column_spreads  # noqa: E402
from lowsparse.series.folding import Folding, Lines  # noqa: E402
from lowsparse.series.keeping import keep_aside  # noqa: E402
from lowsparse.series.lengths import gap_lengths, length_weights  # noqa: E402
from lowsparse.series.mixing import Mixture  # noqa: E402
from lowsparse.series.model import Filled  # noqa: E402
from lowsparse.series.normal import Normal  # noqa: E402
from lowsparse.series.periods import find_periods  # noqa: E402
from lowsparse.series.runs import Runs, distances_to_readings  # noqa: E402
from lowsparse.series.shape import Shape  # noqa: E402
from lowsparse.sweeps import native  # noqa: E402

DAY, DAYS, SERIES = 24, 42, 8
# They hand over some of the rows, or rows in another order: that is another stretch of time.
TIME_MATTERS = {
    "check_methods_subset_invariance": "rows are filled by the rows beside them",
    "check_methods_sample_order_invariance": "rows are filled by the rows beside them",
}


def demand(seed=1, noise=0.3, days=DAYS):
    """Positive series with days, weeks, weather that they share, and weather of their own."""
    rng = np.random.default_rng([5, seed])
    T = DAY * days
    t = np.arange(T)
    shape = 10 + 3 * np.sin(2 * np.pi * t / DAY) + np.sin(4 * np.pi * t / DAY) - 1.5 * (t // DAY % 7 >= 5)
    shared = np.cumsum(rng.standard_normal((T, 2)), axis=0) / 12
    own = np.cumsum(rng.standard_normal((T, SERIES)), axis=0) / 40
    truth = shape[:, None] * rng.uniform(0.8, 1.2, SERIES) + shared @ rng.uniform(0.5, 1, (2, SERIES)) + own
    return truth + 60, truth + 60 + noise * rng.standard_normal(truth.shape)


def holes(shape, seed=2):
    """Single readings, runs, a day that all series miss, and a moment."""
    rng = np.random.default_rng([6, seed])
    missing = rng.random(shape) < 0.03
    for _ in range(20):
        first, j = rng.integers(shape[0] - 40), rng.integers(shape[1])
        missing[first : first + rng.integers(3, 30), j] = True
    missing[10 * DAY : 11 * DAY] = True
    missing[500] = True
    return missing


def straight(X):
    return pd.DataFrame(X).interpolate(limit_direction="both").to_numpy()


@pytest.mark.slow
def test_scikit_learn_checks_it():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = check_estimator(ls.RobustSeriesImputer(), on_skip=None, expected_failed_checks=TIME_MATTERS)
    skipped = {check["check_name"] for check in done if check["status"] != "passed"}
    assert skipped <= {"check_array_api_input", *TIME_MATTERS}
    assert len(done) > 40


def test_gaps_are_filled_better_than_by_lines_or_rows_alone():
    truth, X = demand()
    missing = holes(X.shape)
    given = np.where(missing, np.nan, X)
    filled = ls.RobustSeriesImputer().fit_transform(given)
    assert np.array_equal(filled[~missing], X[~missing])
    errors = {"own": filled, "line": straight(given), "rows": ls.RobustImputer().fit_transform(given)}
    mean = {name: np.abs(values - truth)[missing].mean() for name, values in errors.items()}
    assert mean["own"] < 0.6 * min(mean["line"], mean["rows"])


def test_bad_readings_are_listed_by_kind_and_do_no_harm():
    truth, X = demand()
    missing = holes(X.shape)
    X = np.where(missing, np.nan, X)
    clean = ls.RobustSeriesImputer().fit_transform(X)
    bad = X.copy()
    bad[100, 0] = 300.0
    bad[200:206, 1] = 0.0
    bad[300:312, 2] *= 10
    bad[400:430, 3] += 25.0
    bad[600:615, 4] = bad[600, 4]
    imputer = ls.RobustSeriesImputer(clean=True)
    filled = imputer.fit_transform(bad)
    found = {row.series: (row.kind, row.begin) for row in imputer.anomalies_.itertuples()}
    assert found["x0"] == ("spike", 100)
    assert found["x1"] == ("zero or negative", 200)
    assert found["x2"][0] == "wrong unit"
    assert found["x3"][0] == "shift"
    assert found["x4"] == ("stuck", 600)
    assert len(imputer.anomalies_) <= 7
    wrong = (bad != X) & ~missing
    assert np.abs(filled - truth)[wrong].mean() < 1.5
    assert np.abs(filled - truth)[missing].mean() < 1.2 * np.abs(clean - truth)[missing].mean()


def test_readings_are_kept_unless_clean():
    _, X = demand()
    X[100, 0] = 9999.0
    X[50:53, 1] = np.nan
    filled = ls.RobustSeriesImputer().fit_transform(X)
    assert np.array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])


@pytest.mark.slow
@pytest.mark.parametrize("tails", ["normal", "heavy"])
def test_bands_hold_the_truth(tails):
    inside = []
    for seed in range(3):
        _, X = demand(seed, noise=0.0, days=70)
        rng = np.random.default_rng([7, seed])
        noise = rng.standard_t(3, X.shape) if tails == "heavy" else rng.standard_normal(X.shape)
        X = X + noise * np.linspace(0.1, 1.5, SERIES)  # noise that differs from series to series
        missing = holes(X.shape, seed)
        band = ls.RobustSeriesImputer().fit(np.where(missing, np.nan, X)).predict(np.where(missing, np.nan, X), 0.9)
        inside.append((band.lower <= X) & (band.upper >= X))
        inside[-1] = inside[-1][missing]
    assert abs(np.concatenate(inside).mean() - 0.9) < 0.04


@pytest.mark.slow
def test_frames_come_back_with_their_times():
    X = demand(days=24)[1][:, :3]
    X[holes(X.shape)] = np.nan
    times = pd.date_range("2024-01-01", periods=len(X), freq="h", tz="Europe/Berlin")
    frame = pd.DataFrame(X, index=times, columns=list("abc"))
    filled = ls.RobustSeriesImputer().fit_transform(frame)
    assert filled.index.equals(times)
    assert list(filled) == list("abc")
    plain = ls.RobustSeriesImputer().fit_transform(X)
    assert np.array_equal(filled.to_numpy(), plain)
    column = frame.tz_localize(None).reset_index(names="time")
    assert np.array_equal(ls.RobustSeriesImputer().fit_transform(column).iloc[:, 1:].to_numpy(), plain)
    polars = ls.RobustSeriesImputer().fit_transform(pl.from_pandas(column))
    assert polars.columns == ["time", *"abc"]
    assert np.array_equal(polars.drop("time").to_numpy(), plain)


def test_moments_that_are_no_rows_are_missing():
    _, X = demand()
    times = pd.date_range("2024-01-01", periods=len(X), freq="h")
    X[holes(X.shape)] = np.nan
    kept = ~np.isnan(X).all(axis=1)
    frame = pd.DataFrame(X, index=times)
    whole, part = (ls.RobustSeriesImputer().fit_transform(given) for given in (frame, frame[kept]))
    assert len(part) == kept.sum()
    assert np.array_equal(whole[kept], part)


@pytest.mark.slow
def test_rows_that_follow():
    truth, X = (given[:, :4] for given in demand())
    times = pd.date_range("2024-01-01", periods=len(X), freq="h")
    frame = pd.DataFrame(np.where(holes(X.shape), np.nan, X), index=times)
    cut = 35 * DAY
    frame.iloc[cut : cut + 3, 2] = np.nan
    later = frame.iloc[cut:]
    imputer = ls.RobustSeriesImputer().fit(frame.iloc[:cut])
    filled = imputer.transform(later)
    gap = np.isnan(later.to_numpy())
    errors = np.abs(filled.to_numpy() - truth[cut:])[gap]
    assert errors.mean() < 1.0
    assert errors[:3].mean() < 1.5
    fitted = imputer._fitted
    imputer.partial_fit(later.iloc[:5])
    assert imputer._fitted == fitted  # too few rows to fit anew
    imputer.partial_fit(later.iloc[5:])
    assert imputer._fitted == len(frame)
    assert np.array_equal(imputer.transform(frame), ls.RobustSeriesImputer().fit(frame).transform(frame))


def test_partial_fit_needs_rows_that_follow():
    _, X = demand()
    frame = pd.DataFrame(X, index=pd.date_range("2024-01-01", periods=len(X), freq="h"))
    imputer = ls.RobustSeriesImputer().partial_fit(frame.iloc[:600])
    with pytest.raises(ValueError, match="rows that follow"):
        imputer.partial_fit(frame.iloc[500:700])


@pytest.mark.parametrize(
    ("spoil", "advice"),
    [
        (lambda f: f.iloc[::-1], "sort them first"),
        (lambda f: pd.concat([f.iloc[:5], f.iloc[4:]]), "stands twice"),
        (lambda f: f.set_axis(f.index.where(f.index != f.index[3], f.index[3] + pd.Timedelta("7min"))), "resample"),
        (lambda f: f.set_axis(f.index.where(f.index != f.index[3], pd.NaT)), "no time"),
        (lambda f: f.assign(a="text"), "do not hold numbers"),
        (lambda f: f.iloc[:1], "n_samples = 1"),
        (lambda f: f * np.nan, "no reading"),
    ],
)
def test_bad_input_gets_one_clear_line(spoil, advice):
    _, X = demand(days=4)
    frame = spoil(
        pd.DataFrame(X, index=pd.date_range("2024-01-01", periods=len(X), freq="h"), columns=list("abcdefgh"))
    )
    with pytest.raises((ValueError, TypeError), match=advice) as error:
        ls.RobustSeriesImputer().fit(frame)
    assert "\n" not in str(error.value)


def test_constant_and_empty_series():
    _, X = demand(days=10)
    X[:, 1], X[:, 2] = 5.0, np.nan
    X[30:40] = np.nan
    imputer = ls.RobustSeriesImputer()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        filled = imputer.fit_transform(X)
    notes = " ".join(str(warning.message) for warning in said)
    assert "x1 have one value" in notes
    assert "x2 have no reading" in notes
    assert not any(issubclass(warning.category, RuntimeWarning) for warning in said)
    assert "x1" not in set(imputer.anomalies_["series"])
    assert np.allclose(filled[:, 1], 5.0)
    assert np.isnan(filled[:, 2]).all()
    assert np.isfinite(np.delete(filled, 2, axis=1)).all()


def test_series_that_begin_late_are_noted():
    _, X = demand()
    X[:200, 3] = np.nan
    with pytest.warns(UserWarning, match="x3 have no reading at the beginning"):
        imputer = ls.RobustSeriesImputer().fit(X)
    assert "x3" in imputer.notes_[0]


@pytest.mark.slow
def test_counts_stay_non_negative():
    rng = np.random.default_rng(3)
    t = np.arange(DAY * DAYS)
    X = rng.poisson(np.maximum(3 * np.sin(2 * np.pi * t / DAY), 0)[:, None] * rng.uniform(1, 2, 5)).astype(float)
    X[rng.random(X.shape) < 0.2] = np.nan
    filled = ls.RobustSeriesImputer().fit_transform(X)
    assert filled.min() >= 0
    band = ls.RobustSeriesImputer().fit(X).predict(X, interval=0.9)
    assert band.lower.min() >= 0


@pytest.mark.slow
def test_same_bits_from_copies_and_threads(monkeypatch):
    _, X = demand()
    X[holes(X.shape)] = np.nan
    first = ls.RobustSeriesImputer().fit(X)
    expected = first.transform(X)
    assert np.array_equal(pickle.loads(pickle.dumps(first)).transform(X), expected)
    monkeypatch.setenv("LOWSPARSE_NUM_THREADS", "1")
    assert np.array_equal(ls.RobustSeriesImputer().fit_transform(X), expected)


def test_bridging_is_the_conditional_mean():
    """Of a stationary process of known correlations, from the same neighbours."""
    rng = np.random.default_rng(4)
    r = 0.9 ** np.arange(50)
    x = np.linalg.cholesky(r[np.abs(np.subtract.outer(np.arange(50), np.arange(50)))]) @ rng.standard_normal(50)
    x[20:24] = np.nan
    bridge = Bridge(r[:, None], np.ones(1), ())
    near = np.array([17, 18, 19, 24, 25, 26])
    C = r[np.abs(np.subtract.outer(near, near))] + 0.01 * np.eye(6)
    expected = r[np.abs(near - 21)] @ np.linalg.solve(C, x[near])
    assert np.isclose(bridge.fill(x[:, None])[21, 0], expected)


def test_what_the_others_say_is_the_conditional_mean():
    """Of a normal distribution that is fitted to many moments, given the readings of the moment."""
    rng = np.random.default_rng(8)
    root = rng.standard_normal((5, 5))
    S = root @ root.T
    Z = rng.standard_normal((20_000, 5)) @ root.T
    gappy = np.where(rng.random(Z.shape) < 0.2, np.nan, Z)
    gappy[7], gappy[8] = [1.0, np.nan, 2.0, np.nan, -1.0], [1.0, 0.5, 2.0, -1.0, -1.0]
    expected = Normal.fit(gappy, 1e-4, local=False).expect(gappy)
    for t, j, others in [(7, 1, [0, 2, 4]), (7, 3, [0, 2, 4]), (8, 0, [1, 2, 3, 4]), (8, 3, [0, 1, 2, 4])]:
        mean = S[j, others] @ np.linalg.solve(S[np.ix_(others, others)], gappy[t, others])
        assert abs(expected[t, j] - mean) < 0.05 * np.sqrt(S[j, j])


def test_what_the_others_say_may_change_with_the_seasons():
    rng = np.random.default_rng(9)
    x = rng.standard_normal(6000)
    season = np.where(np.arange(6000) < 3000, 1.0, -1.0)
    Z = np.column_stack([x, season * x, rng.standard_normal((6000, 2))]) + 0.05 * rng.standard_normal((6000, 4))
    gappy = Z.copy()
    gappy[::9, 1] = np.nan
    errors = [np.abs(Normal.fit(gappy, 1e-3, local=local).expect(gappy) - Z)[::9, 1].mean() for local in (False, True)]
    assert errors[1] < 0.5 * errors[0]


def test_lines_that_repeat_are_found():
    """Days of rank 2: a gap of a day is filled by its other readings; an empty day is not determined."""
    rng = np.random.default_rng(10)
    Z = (rng.standard_normal((60, 2)) @ rng.standard_normal((2, 24 * 3))).reshape(-1, 3)
    gappy = np.where(rng.random(Z.shape) < 0.1, np.nan, Z)
    gappy[48:72] = np.nan
    lines = Lines.fit(gappy, Folding(24), 0.1, np.zeros_like(Z))
    expected = lines.expect(gappy)
    assert np.isnan(expected[48:72]).all()
    rest = np.r_[0:48, 72 : len(Z)]
    assert np.abs(expected - Z)[rest].max() < 0.1
    later = lines.expect(gappy[30:], first=30)  # the same days, the first of them cut
    assert np.abs(later - Z[30:])[np.r_[0:18, 42 : len(later)]].max() < 0.1


def test_a_long_run_is_bad_at_half_the_distance_of_a_short_one():
    E = np.sin(np.arange(400) / 10)[:, None] * np.ones(2)
    far = 0.6 * jumps.FAR * float(column_spreads(E, jumps.TAIL)[0]) + 1
    E[100 : 100 + jumps.LONG, 0] += far
    E[200 : 200 + jumps.LONG - 1, 1] += far
    assert np.flatnonzero(jumps.jumping_runs(E).any(axis=1)).tolist() == list(range(100, 100 + jumps.LONG))


def readings_and_residuals(seed):
    """A series that changes little from reading to reading, and of which the others say little."""
    rng = np.random.default_rng(seed)
    z = 0.1 * rng.standard_normal((600, 1))
    return z, z + 0.2 * rng.standard_normal((600, 1))


def test_an_event_takes_some_readings_and_an_error_begins_at_once():
    z, e = readings_and_residuals(6)
    course = np.zeros((600, 1))
    course[100:130] = -9.0  # an error
    course[300:330] = -9.0  # an event, that begins half way
    course[300] = course[329] = -4.5
    course[450:460, 0] = np.linspace(60, 90, 10)  # far from all it has shown: no event, however it begins
    bad = jumps.jumping_runs(e + course, Z=z + course)
    assert np.flatnonzero(bad).tolist() == [*range(100, 130), *range(450, 460)]
    assert jumps.jumping_runs(e + course)[301:329].all()


@pytest.mark.parametrize("seed", range(5))
def test_a_steady_stretch_between_jumps_is_shifted_and_a_rough_one_is_not(seed):
    z, e = readings_and_residuals(seed)
    course = np.zeros((600, 1))
    course[100:125] = 3.0
    course[300:325] = 3.0 + 1.2 * np.random.default_rng(8).standard_normal((25, 1))
    course[580:] = 3.0  # does not end
    assert np.flatnonzero(jumps.shifted_runs(z + course, e + course)).tolist() == list(range(100, 125))


def test_a_number_at_which_a_series_stays_again_and_again_is_not_stuck():
    z = readings_and_residuals(9)[0].round(2)
    for first in (50, 200, 350):
        z[first : first + 20] = 0.12
    z[500:520] = 0.25
    assert np.flatnonzero(judging.stuck_runs(z)).tolist() == list(range(500, 520))


def test_repeated_numbers_are_stuck_where_they_are_far_from_what_is_expected():
    rng = np.random.default_rng(4)
    expected = 5 * np.sin(np.arange(600) / 10)[:, None]
    Z = np.round(expected + 0.3 * rng.standard_normal((600, 1)))  # repeats numbers often
    Z[250:262] = Z[250]  # a slope
    assert not judging.stuck_runs(Z).any()
    bad = judging.bad_runs(Z, expected)
    assert bad[250:262].all()
    assert bad.sum() == 12


def test_a_reading_at_a_moment_that_no_other_series_read_is_bad_far_from_its_own_series():
    """The others say nothing of it, and taken as good it spoils what is filled beside it."""
    rng = np.random.default_rng(8)
    t = np.arange(24 * 60)[:, None]
    X = 50 + 10 * np.sin(2 * np.pi * t / 24) + np.cumsum(rng.standard_normal((len(t), 1)), axis=0) / 8 + rng.random(8)
    X += 0.1 * rng.standard_normal(X.shape)
    wild, off, right = (701, 2), (703, 4), (704, 3)
    readings = 1e5, X[off] - 5, X[right] + 0.2
    X[700:706] = np.nan
    X[wild], X[off], X[right] = readings
    imputer = ls.RobustSeriesImputer(clean=True)
    cleaned = imputer.fit_transform(X)
    assert np.argwhere((cleaned != X) & ~np.isnan(X)).tolist() == [[*wild], [*off]]
    assert abs(cleaned[wild] - cleaned[701, 3]) < 3
    again = imputer.transform(X)
    assert np.array_equal(again, cleaned)


@pytest.mark.parametrize("zone", [None, "America/New_York"])
def test_a_missing_day_of_rest_is_filled_by_the_other_one_if_times_are_known(zone):
    """Of one week nothing but times says which days go together, and the clock on the wall when they begin."""
    start = pd.Timestamp("2024-01-04 00:00", tz=zone)  # a Thursday
    hours = pd.date_range(start, periods=7 * DAY, freq="h")
    rng = np.random.default_rng(24)
    hour, rests = np.asarray(hours.hour)[:, None], np.asarray(hours.day_of_week >= 5)[:, None]
    truth = 50 + (5 - 4 * rests) * np.sin(2 * np.pi * hour / DAY) + 0.3 * rng.standard_normal((7 * DAY, 6))
    sunday = np.asarray(hours.day_of_week == 6)
    X = pd.DataFrame(np.where(sunday[:, None], np.nan, truth), index=hours)
    filled = ls.RobustSeriesImputer().fit_transform(X).to_numpy()
    without = ls.RobustSeriesImputer().fit_transform(X.to_numpy())
    error, error_without = (np.abs(x - truth)[sunday].mean() for x in (filled, without))
    assert error < 0.6
    assert error < 0.4 * error_without


def test_days_of_rest_are_those_of_the_clock_on_the_wall():
    utc = pd.date_range("2024-01-06 05:00", periods=3, freq="h", tz="UTC")  # midnight of a Saturday in New York
    for index in (utc.tz_convert("America/New_York"), pd.date_range("2024-01-06", periods=3, freq="h")):
        for frame in (pd.DataFrame({"a": 1.0}, index=index), pl.DataFrame({"time": index, "a": [1.0] * 3})):
            times = clock.split_time(frame)[0]
            rest = clock.Clock.of(times.stamps).days_of_rest(times.local)
            np.testing.assert_array_equal(np.flatnonzero(rest), np.arange(2 * DAY))
    durations = clock.split_time(pd.DataFrame({"a": 1.0}, index=pd.timedelta_range("1h", periods=3, freq="h")))[0]
    assert clock.Clock.of(durations.stamps).days_of_rest(durations.local) is None
    every_seventh = clock.Clock(np.datetime64("2024-01-06", "ns"), np.timedelta64(7, "h"))
    assert every_seventh.days_of_rest(np.datetime64("2024-01-06", "ns")) is None


def test_days_of_rest_that_are_as_the_others_have_no_shape_of_their_own():
    rest = np.arange(7 * DAY) // DAY >= 5
    by_day = np.random.default_rng(26).standard_normal((21, 1, 4))  # the weather of a day
    Z = (by_day + 0.1 * np.random.default_rng(27).standard_normal((21, DAY, 4))).reshape(-1, 4)
    assert len(Shape.fit(Z, (DAY,), rest).values) == DAY
    shape = Shape.fit(Z + 4.0 * np.resize(rest, len(Z))[:, None], (DAY,), rest).values
    assert len(shape) == 7 * DAY
    assert 3.0 < np.mean(shape[rest]) - np.mean(shape[~rest]) < 5.0


def test_correlations_of_what_a_mean_of_few_days_leaves_are_those_of_the_days():
    rng = np.random.default_rng(9)
    days = np.repeat(rng.standard_normal((6, 300)), 100, axis=0)  # they differ, and have nothing in common
    shape = Shape.fit(days, (100,))
    rest = days - shape.expect(days)
    next_day, next_day_of_rest = (
        Bridge.fit(rest, (100,), common=common).correlations[100].mean() for common in (shape.common, 0.0)
    )
    assert shape.common == pytest.approx(1 / 6)
    assert abs(next_day) < 0.07
    assert next_day_of_rest < -0.1


def test_weights_are_shares_and_differ_by_series_where_that_is_sure():
    rng = np.random.default_rng(5)
    y, series = rng.standard_normal(4000), rng.integers(2, size=4000)
    noise = np.where(series[:, None] == [[0, 1]], 0.1, 1.0)  # each series is predicted well by one of two
    F = np.column_stack([y[:, None] + noise * rng.standard_normal((4000, 2)), y + 5 * rng.standard_normal(4000)])
    classes = np.zeros(4000, int)
    mixture = Mixture.fit(F, y, classes, series)
    for weights in (mixture.usual, *mixture.weights.values(), *mixture.own.values()):
        assert (weights >= 0).all()
        assert weights.sum() == pytest.approx(1)
    assert mixture.usual[2] < 0.02
    error = np.abs(y - mixture.predict(F, classes, series)).mean()
    assert error < 0.12 < 0.3 < np.abs(y - F @ mixture.usual).mean()
    few = Mixture.fit(F[:60], y[:60], classes[:60], series[:60], pieces=np.arange(60) // 30)  # nothing is sure
    assert np.abs(few.usual - 1 / 3).max() < 0.1


def test_a_prediction_that_is_there_twice_counts_once_and_a_fallback_not_at_all_without_evidence():
    """Days that nobody read: one piece says nothing of the weights, and most predictions are the same there."""
    rng = np.random.default_rng(6)
    y, none = rng.standard_normal(500), np.zeros(500, int)
    own, other, straight = y[:, None] + rng.standard_normal((500, 3)).T[:, :, None]
    F = np.column_stack([own, np.tile(other, 8) + 0.01 * rng.standard_normal((500, 8)), straight])
    mixture = Mixture.fit(F, y, none, none, pieces=none, fallbacks=1)
    assert abs(mixture.usual[0] - 0.5) < 0.05
    assert mixture.usual[-1] < 0.02
    sure = Mixture.fit(np.column_stack([own, straight - 3, y]), y, none, none, fallbacks=1)
    assert sure.usual[-1] > 0.9


def test_runs_and_distances():
    rng = np.random.default_rng(5)
    mask = rng.random((60, 4)) < 0.4
    assert np.array_equal(Runs.of(mask).mask(mask.shape), mask)
    nearer, farther = distances_to_readings(mask)
    for t, j in np.argwhere(~mask)[::7]:
        moments = np.flatnonzero(mask[:, j])
        before, after = moments[moments < t], moments[moments > t]
        assert nearer[t, j] == np.abs(moments - t).min()
        assert farther[t, j] == max(t - before[-1], after[0] - t) if before.size and after.size else True


@pytest.mark.slow
def test_many_series_are_fitted_in_groups(monkeypatch):
    truth, X = demand()
    missing = holes(X.shape)
    given = np.where(missing, np.nan, X)
    whole = ls.RobustSeriesImputer().fit_transform(given)
    monkeypatch.setattr(groups, "MOST", 4)
    imputer = ls.RobustSeriesImputer().fit(given)
    assert [len(group) for group in imputer.model_.groups] == [4, 4]
    apart = imputer.transform(given)
    assert np.abs(apart - truth)[missing].mean() < 1.3 * np.abs(whole - truth)[missing].mean()
    band = imputer.predict(given, interval=0.9)
    assert (band.upper - band.lower)[missing].min() > 0


def test_a_file_is_filled_as_the_array_is(tmp_path):
    _, X = demand(days=22)
    X[holes(X.shape)] = np.nan
    X[300, 5], X[:, 3] = 9999.0, np.nan
    np.save(tmp_path / "given.npy", X)
    found = ls.RobustSeriesImputer(clean=True).fill_file(tmp_path / "given.npy", tmp_path / "filled.npy", "100MB")
    with pytest.warns(UserWarning, match="x3 have no reading"):
        expected = ls.RobustSeriesImputer(clean=True).fit(X)
    assert np.array_equal(np.load(tmp_path / "filled.npy"), expected.transform(X), equal_nan=True)
    assert found.equals(expected.anomalies_)


@pytest.mark.slow
def test_more_series_in_a_file_take_no_more_memory(tmp_path, monkeypatch):
    for module, name, bound in [
        (groups, "MOST", 8),
        (groups, "SERIES", 8),
        (groups, "MOMENTS", 50),
        (files, "ROWS", 1 << 14),
        (files, "SHARE", 0.03),
    ]:
        monkeypatch.setattr(module, name, bound)
    _, X = demand(days=22)
    X[holes(X.shape)] = np.nan
    rng = np.random.default_rng(11)
    peaks = []
    for copies in (1, 3):
        many = np.tile(X, copies) + 0.1 * rng.standard_normal((len(X), copies * SERIES))
        np.save(tmp_path / "given.npy", many)
        tracemalloc.start()
        ls.RobustSeriesImputer().fill_file(tmp_path / "given.npy", tmp_path / "filled.npy", "1MB")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert np.isfinite(np.load(tmp_path / "filled.npy")).all()
    assert peaks[1] < 1.25 * peaks[0]


def test_files_that_are_no_series_are_refused(tmp_path):
    np.save(tmp_path / "words.npy", np.array([["a", "b"], ["c", "d"]]))
    with pytest.raises(ValueError, match="moments x series"):
        ls.RobustSeriesImputer().fill_file(tmp_path / "words.npy", tmp_path / "filled.npy")
    np.save(tmp_path / "given.npy", np.ones((9, 9)))
    with pytest.raises(ValueError, match="to another one"):
        ls.RobustSeriesImputer().fill_file(tmp_path / "given.npy", tmp_path / "given.npy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given.npy", "words.npy"]


def test_what_is_kept_aside_looks_like_what_is_missing():
    read = np.ones((2000, 6), bool)
    read[::50] = False  # whole moments
    aside = keep_aside(read, 24, np.random.default_rng(1))
    assert not (aside & ~read).any()
    rows = aside.sum(axis=1)
    assert (rows[rows > 0] == 6).all()
    assert aside.mean() > 0.01


def test_whole_days_are_kept_aside_of_a_week_and_another_one_each_time():
    read = np.ones((7 * 288, 4), bool)
    read[2 * 288 : 3 * 288] = False
    rng, before = np.random.default_rng(1), ~read
    for _ in range(3):
        aside = keep_aside(read, 288, rng, before)
        assert np.array_equal(np.unique(aside.reshape(7, -1).mean(axis=1)), [0, 1])
        assert aside.sum() == 288 * 4
        assert not (aside & before).any()
        before |= aside


@pytest.mark.parametrize("seed", range(5))
def test_stretches_that_nobody_read_are_kept_aside_whole_beside_runs_of_single_series(seed):
    """Nothing is left at such a moment to tell the rest of it by, and hardly any is cut."""
    rng = np.random.default_rng(seed)
    read = np.ones((500, 60), bool)
    for j, first, length in zip(
        rng.integers(60, size=120), rng.integers(500, size=120), rng.integers(1, 20, 120), strict=True
    ):
        read[first : first + length, j] = False
    read[140:164] = read[300:324] = False
    before = np.zeros(read.shape, bool)
    for _ in range(3):
        aside = keep_aside(read, 1, rng, before)
        whole = np.flatnonzero(2 * aside.sum(axis=1) > read.sum(axis=1))
        stretches = np.split(whole, np.flatnonzero(np.diff(whole) > 1) + 1)
        assert all(20 <= len(stretch) <= 24 for stretch in stretches)
        assert np.array_equal(aside[whole], read[whole])
        assert not (aside & before & ~np.isin(np.arange(500), whole)[:, None]).any()
        before |= aside


def test_bad_readings_on_both_sides_of_a_gap_are_one_anomaly():
    X = np.zeros((12, 3))
    X[3:5, 0] = np.nan
    X[:2, 1] = X[11, 2] = np.nan
    bad = np.zeros(X.shape, bool)
    bad[[2, 5, 6, 8], 0] = True  # about the gap, and apart from it
    bad[2, 1] = bad[10, 2] = True
    runs = anomalies._join(bad, X)
    found = list(zip(runs.series.tolist(), runs.begin.tolist(), runs.end.tolist(), strict=True))
    assert found == [(0, 2, 7), (0, 8, 9), (1, 2, 3), (2, 10, 11)]
    assert len(anomalies._join(np.zeros(X.shape, bool), X)) == 0


def test_bands_where_the_others_were_read_do_not_follow_errors_where_they_were_not():
    rng = np.random.default_rng(14)
    series, unseen = rng.integers(3, size=9000), rng.random(9000) < 0.4
    classes = np.where(unseen, model.UNSEEN, 0) + rng.integers(3, size=9000)
    # the first series copies another one, which says all of it where it was read; the last one nobody knows
    size = np.where(unseen, 1.0, np.array([0.01, 0.1, 5.0])[series])
    calibration = model._calibrate(size * rng.standard_normal(9000), series, classes, 3, np.arange(9000))
    for j in range(3):
        for own in (0, model.UNSEEN):
            kind = np.array([j]), np.array([own])
            width = calibration.half_width(0.9, model._group(*kind, 3), kind[1])[0]
            expected = 1.645 * (1.0 if own else [0.01, 0.1, 5.0][j])
            assert 0.8 * expected < width < 2 * expected


def test_periods():
    _, X = demand()
    Z = X - np.median(X, axis=0)
    assert find_periods(Z) == (24, 168)
    assert find_periods(np.random.default_rng(1).standard_normal((400, 3))) == ()


def test_the_compiled_core_conditions_and_bridges_as_numpy_does():
    rng = np.random.default_rng(11)
    root = rng.standard_normal((13, 13))
    K = root @ root.T / 13 + 0.1 * np.eye(13)
    Y = rng.standard_normal((300, 13))
    Y[rng.random(Y.shape) < 0.3] = np.nan
    Y[10:20, :] = Y[10]  # the same entries missing, moment after moment
    Y[30], Y[31] = np.nan, 1.0
    missing = np.isnan(Y)
    X, pull, total = normal._fill(Y, K, covariance=True)
    given, by_numpy = np.where(missing, 0.0, Y), np.zeros((13, 13))
    normal._condition(given, missing, K, given @ K, by_numpy)
    np.testing.assert_allclose(X, given, atol=1e-12)
    np.testing.assert_allclose(total, by_numpy, atol=1e-10)
    # the distance of a moment, by which it weighs, without another product with K
    np.testing.assert_allclose(np.sum(X * pull, axis=1), np.einsum("ij,jk,ik->i", X, K, X), atol=1e-10)

    R = np.cumsum(rng.standard_normal((300, 4)), axis=0)
    R[rng.random(R.shape) < 0.3] = np.nan
    bridge = Bridge.fit(R, (24,))
    gaps = Gaps.of(~np.isnan(R), np.isnan(R), (24,))
    systems = gaps.moments[gaps.systems], gaps.series[gaps.systems], gaps.neighbours[gaps.systems]
    weights = native.bridge(bridge.correlations, *systems, bridging.NOISE)
    np.testing.assert_allclose(weights, bridge._solve(*systems), atol=1e-10)
    given = 9 * R, bridging.CLIP * bridge.spreads, gaps.series, gaps.neighbours, gaps.system, weights
    np.testing.assert_allclose(native.weigh(*given), bridging._weighted(*given), atol=1e-10)
    assert not np.allclose(native.weigh(*given), 9 * bridge.predict(R, gaps))  # some are beyond the bounds


def test_the_compiled_core_has_the_medians_of_numpy():
    rng = np.random.default_rng(12)
    x, begin = rng.standard_normal(100), rng.integers(90, size=40)
    end = begin + rng.integers(1, 11, size=40)
    for about in (None, rng.standard_normal(40)):
        np.testing.assert_array_equal(native.medians(x, begin, end, about), runs._medians(x, begin, end, about))
    for bad in ((np.array([5]), np.array([5])), (np.array([-1]), np.array([3])), (np.array([0]), np.array([101]))):
        with pytest.raises(ValueError, match="stretch"):
            native.medians(x, *bad)


def test_what_several_series_saw_is_no_error():
    """A shift of one series is an error, the same shift of three is an event; not if they never were so far off."""
    rng = np.random.default_rng(12)
    shared = np.repeat(np.cumsum(rng.standard_normal((1200, 3)), axis=0) / 10, 3, axis=1)
    Z = shared + 0.1 * rng.standard_normal(shared.shape)
    Z[300:320, 0] += 1.2
    Z[700:720, 3:6] += 1.2
    closer = Normal.fit(Z, 0.03)
    Z[900:905, 6:9] = -50.0
    bad = np.zeros(Z.shape, bool)
    bad[300:320, 0] = bad[700:720, 3:6] = bad[900:905, 6:9] = True
    seen = judging.Judge((Shape.fit(Z, ()),), closer, 1.0)._seen_by_others(Z, bad, bad, 0)
    assert not seen[:, 0].any()
    assert seen[700:720, 3:6].all()
    assert not seen[:, 6:9].any()


def test_peaks_that_the_others_make_plausible_are_no_errors():
    """Others that are unusual in the same direction tell of an event, even if one series rises far above them."""
    rng = np.random.default_rng(14)
    Z = np.repeat(np.cumsum(rng.standard_normal((1200, 1)), axis=0) / 30, 6, axis=1) + 0.1 * rng.standard_normal(
        (1200, 6)
    )
    closer = Normal.fit(Z, 0.03)
    Z[100:110, 0] = Z[100:110, 0] - 3.0  # by itself
    Z[600:610] += 4.0
    Z[600:610, 0] += 4.0  # above what the others say
    Z[1100, 0] = 12.0  # the series has been there in another event
    bad = np.zeros(Z.shape, bool)
    bad[100:110, 0] = bad[600:610, 0] = True
    seen = judging.Judge((Shape.fit(Z, ()),), closer, 1.0)._seen_by_others(Z, bad, bad, 0)
    assert seen[600:610, 0].all()
    assert not seen[100:110, 0].any()


def test_a_run_is_listed_if_it_is_far_from_what_the_model_expects():
    """Eight usual errors of the series, or half of that if the run is long."""
    _, X = demand(days=8)
    errors, of = np.random.default_rng(15).standard_normal(4000), np.arange(4000) % SERIES
    calibration = Calibration.fit(errors, of, 0 * of, SERIES)
    model = SimpleNamespace(scale=np.ones(SERIES), calibration=calibration, group=lambda series, classes: series)
    values, classes = X.copy(), np.full(X.shape, -1, np.int8)
    usual = calibration.sizes
    for begin, end, j, distance in [(40, 44, 1, 6.0), (80, 84, 2, 20.0), (120, 132, 3, 6.0)]:
        values[begin:end, j] += distance * usual[j]
        classes[begin:end, j] = 0
    listed, mask = find_anomalies(model, X, Filled(values, classes == 0, classes))
    assert list(zip(listed.series, listed.begin, listed.end, strict=True)) == [(2, 80, 83), (3, 120, 131)]
    assert mask.sum() == 16


def test_numbers_are_stuck_across_gaps():
    """Missing readings do not divide a run of one number."""
    x = np.arange(60.0)
    x[20:30] = 20.0
    x[22:29:2] = np.nan
    stuck = judging.stuck_runs(x[:, None])[:, 0]
    assert np.array_equal(np.flatnonzero(stuck & ~np.isnan(x)), [20, 21, 23, 25, 27, 29])


def test_groups_of_series_are_the_same_with_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(groups, "MOST", 3)
    t = np.arange(100)[:, None]
    rng = np.random.default_rng(13)
    X = np.sin(2 * np.pi * t / 24 + np.arange(6) // 3) + 0.1 * rng.standard_normal((100, 6))
    X[rng.random(X.shape) < 0.1] = np.nan
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("LOWSPARSE_NUM_THREADS", threads)
        found.append(groups.SeriesModels.fit(X, (24,))[1].values)
    assert np.array_equal(*found)


def labelled(make, rows=slice(None)):
    """A short table with an index made from times."""
    _, X = demand(days=4)
    times = pd.date_range("2024-01-01", periods=len(X), freq="h")
    return pd.DataFrame(X[:, :3], index=make(times)).iloc[rows]


@pytest.mark.parametrize(
    "make",
    [
        lambda times: times.to_period("h"),
        lambda times: times.astype(str),
        lambda times: pd.Index([time.to_pydatetime() for time in times], dtype=object),
        lambda times: times - times[0],
    ],
    ids=["periods", "text", "objects", "durations"],
)
def test_times_of_other_kinds_are_not_passed_over(make):
    """Unsorted ones are refused, and moments that are no rows are missing."""
    with pytest.raises(ValueError, match="sort them first"):
        ls.RobustSeriesImputer().fit(labelled(make, slice(None, None, -1)))
    kept = np.r_[0:40, 60:96]
    imputer = ls.RobustSeriesImputer().fit(labelled(make, kept))
    assert (len(imputer._seen), imputer._clock.step) == (96, np.timedelta64(1, "h"))


def test_durations_of_polars_have_their_unit():
    frame = pl.DataFrame({"after": pl.Series([3600 * 10**6 * k for k in range(30)], dtype=pl.Duration("us"))})
    imputer = ls.RobustSeriesImputer().fit(frame.with_columns(a=pl.Series(np.sin(np.arange(30.0)))))
    assert imputer._clock.step == np.timedelta64(1, "h")


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda times: pd.MultiIndex.from_arrays([times, np.arange(len(times))]), "unstack"),
        (lambda times: pd.Index([*times.astype(str)[:-1], "total"]), "begins with a time"),
        (lambda times: pd.Index([*times.strftime("%d/%m/%Y %H:%M")[:-1], str(times[-1])]), "one format"),
        (lambda times: pd.Index([*times[:-1].to_numpy("M8[s]"), np.datetime64("2524-01-01", "s")]), "1678 and 2262"),
    ],
)
def test_an_index_that_is_partly_times_is_refused(make, advice):
    with pytest.raises(ValueError, match=advice) as error:
        ls.RobustSeriesImputer().fit(labelled(make))
    assert "\n" not in str(error.value)


def test_times_without_a_zone_do_not_follow_those_with_one():
    times = pd.date_range("2024-01-01", periods=60, freq="h", tz="Europe/Berlin")
    frame = pd.DataFrame(np.sin(np.arange(60.0))[:, None], index=times)
    imputer = ls.RobustSeriesImputer().fit(frame.iloc[:40])
    assert np.isfinite(imputer.transform(frame.iloc[40:].tz_convert("UTC"))).all(axis=None)
    with pytest.raises(ValueError, match="have a zone or none"):
        imputer.transform(frame.iloc[40:].tz_localize(None))


def test_one_period_is_given_in_brackets():
    with pytest.raises(TypeError, match=r"as in \(24, 168\), not 24"):
        ls.RobustSeriesImputer(periods=24).fit(np.arange(50.0)[:, None])


@pytest.mark.parametrize(("freq", "period"), [("MS", 12), ("ME", 12), ("QS", 4), ("YS", None)])
def test_months_are_equal_steps(freq, period):
    rng = np.random.default_rng(16)
    t = np.arange(120)[:, None]
    X = 10 + 5 * np.sin(2 * np.pi * t / 12) + 0.1 * rng.standard_normal((120, 3))
    frame = pd.DataFrame(X, index=pd.date_range("2010-01-01", periods=120, freq=freq))
    imputer = ls.RobustSeriesImputer().fit(frame.drop(frame.index[50]).iloc[:100])
    assert len(imputer._seen) == 101
    assert imputer._clock.usual_periods() == (() if period is None else (period,))
    assert imputer.periods_ == (12,)
    later = frame.iloc[105:110].copy()
    later.iloc[2, 1] = np.nan
    assert abs(imputer.transform(later).iloc[2, 1] - X[107, 1]) < 1.5
    assert np.isfinite(imputer.transform(later.iloc[2:3])).all(axis=None)
    with pytest.raises(ValueError, match="apart, these are not"):
        imputer.transform(later.set_axis(pd.date_range("2040-01-01", periods=5, freq="h")))


@pytest.mark.parametrize("kind", ["rain", "events"])
def test_what_is_mostly_zero_has_no_spikes_by_that(kind):
    rng = np.random.default_rng(17)
    X = (rng.random((DAY * 20, 4)) < 0.05) * (rng.gamma(0.7, 5.0, (DAY * 20, 4)) if kind == "rain" else 1.0)
    X[rng.random(X.shape) < 0.03] = np.nan
    X[300, 2] = 5000.0
    imputer = ls.RobustSeriesImputer().fit(X)
    assert imputer.anomalies_[["series", "begin"]].to_numpy().tolist() == [["x2", 300]]


def test_moments_of_which_every_other_was_read():
    """No two readings are an odd number of moments apart, and half of the hours of the day were never read."""
    truth, X = demand(days=30)
    X[1::2] = np.nan
    filled = ls.RobustSeriesImputer().fit_transform(X)
    line = np.abs(straight(X) - truth)[1::2].mean()
    assert np.abs(filled - truth)[1::2].mean() < 1.1 * line


def test_bands_of_two_moments_are_numbers():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", UserWarning)
        X = np.array([[1.0, np.nan], [2.0, 3.0]])
        band = ls.RobustSeriesImputer().fit(X).predict(X, interval=0.9)
    assert not np.isnan(np.stack(band)).any()


def test_what_was_kept_aside_is_seen_by_the_rest_of_it():
    """Little that was kept aside is predicted in parts: about as much is seen beside it as beside what is missing."""
    _, X = demand(days=30)
    Z, good = X - np.median(X, axis=0), ~holes(X.shape)
    aside = np.zeros(X.shape, bool)
    aside[100:400] = np.random.default_rng(18).random((300, SERIES)) < 0.3
    fold = model._Fold.of(Z, good, aside, (DAY,))
    alone = model._classes(good & ~aside, aside & good)
    assert np.mean(fold.classes % model.GROUP == 0) > 0.87 > 0.82 > np.mean(alone % model.GROUP == 0)
    k = len(fold.y) // 2  # an entry is never predicted by itself
    Z[fold.moments[k], fold.series[k]] += 100.0
    assert np.array_equal(model._Fold.of(Z, good, aside, (DAY,)).F[k], fold.F[k])


def test_long_gaps_of_a_series_do_not_widen_its_bands_in_short_ones():
    """Two series are as noisy; of one mostly long gaps were kept aside, whose errors are larger."""
    rng = np.random.default_rng(19)
    series = np.repeat([0, 1], 2000)
    classes = np.where(rng.random(4000) < np.where(series == 0, 0.9, 0.1), 5, 0)
    errors = rng.standard_normal(4000) * np.where(classes == 5, 10.0, 1.0)
    sizes = model._calibrate(errors, series, classes, 2, np.arange(4000)).sizes
    assert abs(np.log(sizes[0] / sizes[1])) < 0.1


def test_rare_readings_in_doubt_count_as_events_and_many_as_errors():
    doubtful = np.zeros(10_000, bool)
    doubtful[:20] = True
    assert model._doubt_weights(doubtful)[:20].tolist() == [1.0] * 20
    doubtful[:600] = True
    weights = model._doubt_weights(doubtful)
    assert weights[:600] == pytest.approx(model.EVENTS / 0.06)
    assert (weights[600:] == 1.0).all()


@pytest.mark.parametrize("seed", [7, 9])
def test_bad_readings_are_found_where_whole_days_are_missing(seed):
    """Days that nobody read hardly say how readings must be judged: single readings are kept aside for that."""
    _, X = demand(seed, days=60)
    rng = np.random.default_rng([9, seed])
    X.reshape(60, DAY, SERIES)[rng.choice(60, 6, replace=False)] = np.nan
    spoilt = spoil(X, 0.05, rng)
    wrong = ~np.isnan(X) & (spoilt != X)
    cleaned = ls.RobustSeriesImputer(clean=True).fit_transform(spoilt)
    assert np.mean(cleaned[wrong] != spoilt[wrong]) > 0.9


@pytest.mark.parametrize("together", [0.0, 0.3])
def test_bands_of_few_days_that_nobody_read_hold_as_much_as_they_say(together):
    """Errors of a day count as many as they are: by how they vary from day to day, in sizes of the other days."""
    rng = np.random.default_rng(20)
    days, later, draws = 12, 40, 60
    series = np.tile(np.arange(SERIES), DAY)
    sizes = 2.0 ** (series % 5)

    def errors(count):
        of_day = rng.standard_normal((count, 1)) * rng.exponential(1.0, (count, 1))
        return sizes * (together * of_day + (1 - together) * rng.standard_normal((count, len(series))))

    held = []
    for _ in range(draws):
        classes = np.full(days * len(series), model.UNSEEN + 3)
        pieces = np.repeat(np.arange(days), len(series))
        found = model._calibrate(errors(days).ravel(), np.tile(series, days), classes, SERIES, pieces)
        own = np.full(len(series), model.UNSEEN + 3)
        width = found.half_width(0.9, model._group(series, own, SERIES), own)
        held.append(np.mean(np.abs(errors(later)) <= width))
    assert abs(np.mean(held) - 0.9) < 0.01


@pytest.mark.parametrize("pattern", ["moments", "runs"])
def test_bands_are_calibrated_in_gaps_as_long_as_those_that_are_missing(pattern):
    """What is kept aside beside what is missing makes a longer gap."""
    rng = np.random.default_rng(21)
    if pattern == "moments":
        read = np.repeat(rng.random((4000, 1)) > 0.1, SERIES, axis=1)
    else:
        begins = rng.random((4000, SERIES)) < 0.04
        read = ~(begins | np.roll(begins, 1, axis=0) | np.roll(begins, 2, axis=0))
    aside, missing = keep_aside(read, 1, rng), ~read
    made = model._classes(read & ~aside, aside), gap_lengths(read & ~aside, aside)
    wanted = model._classes(read, missing), gap_lengths(read, missing)
    weights = length_weights(*made, *wanted)
    for k in np.flatnonzero(np.bincount(wanted[0]) > 1000):
        asked = np.mean(wanted[1][wanted[0] == k])
        lengths, weight = made[1][made[0] == k], weights[made[0] == k]
        before, after = np.mean(lengths) / asked, np.average(lengths, weights=weight) / asked
        assert abs(after - 1) < max(0.02, 0.5 * abs(before - 1))
    assert np.mean(made[1]) > 1.08 * np.mean(wanted[1])


def test_a_length_that_was_hardly_made_is_that_of_the_nearest_ones():
    lengths = np.repeat([4, 16, 64], [100, 100, 5])
    none = np.zeros(205, int)
    weights = length_weights(none, lengths, none[:20], np.repeat([4, 64], 10))
    np.testing.assert_allclose(weights[[0, 150, 204]], [205 / 200, 205 / 200, 0.0])


def test_known_moments_are_expected_as_if_they_were_not_known():
    rng = np.random.default_rng(23)
    Z = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 8)) + 0.1 * rng.standard_normal((60, 8))
    Z[rng.random(Z.shape) < 0.1] = np.nan
    moments = judging.LowRankMoments.fit(Z, rng)
    other = Z.copy()
    other[10, :3], other[20] = np.nan, 1.0
    known = judging.KnownMoments.of(moments, Z)
    np.testing.assert_array_equal(known.expect(other), moments.expect(other))
    np.testing.assert_array_equal(known.expect(Z), moments.expect(Z))


def test_what_was_kept_aside_is_predicted_by_a_fit_to_the_rest_of_it():
    """A series follows another one in the blocks kept aside only: a fit to none of them would be misled."""
    rng = np.random.default_rng(22)
    Z = rng.standard_normal((960, 3))
    aside = np.zeros(Z.shape, bool)
    aside[:, 1] = np.arange(960) // DAY % 3 == 0
    Z[:, 1] = np.where(aside[:, 1], Z[:, 0], -Z[:, 0]) + 0.1 * rng.standard_normal(960)
    fold = model._Fold.of(Z, np.ones(Z.shape, bool), aside, ())
    misled = model.Parts.fit(np.where(aside, np.nan, Z), ())[0]
    given = np.where(aside, np.nan, Z)
    alone = misled.predict(given, misled.expect(given), aside)
    assert np.abs(fold.F.mean(axis=1) - fold.y).mean() < 0.97 * np.abs(alone.mean(axis=1) - fold.y).mean()
