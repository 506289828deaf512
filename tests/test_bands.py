"""`Result.interval`: bands hold what they say, whatever the noise and the rank; infinite where nothing is known."""

import pickle

import numpy as np
import pytest

import lowsparse as ls
from lowsparse.robust.bands import EntryBands
from lowsparse.robust.holdout import hold_out

nan = np.nan


def problem(kind, seed, m=240, n=100):
    """Data of rank 3 with noise of some kind: what is given, the noisy truth, the hidden entries, the rank to give."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, 3)) @ rng.standard_normal((3, n))
    noise = 0.1 * (rng.standard_t(3, (m, n)) if kind == "heavy tails" else rng.standard_normal((m, n)))
    sizes = {"rows": np.geomspace(0.2, 5, m)[:, None], "columns": np.geomspace(0.2, 5, n)}.get(kind, 1.0)
    X = X + sizes * noise
    density = np.linspace(0.1, 0.9, m)[:, None] if kind == "uneven" else 0.6
    hidden = rng.random((m, n)) >= density
    given = np.where(hidden, nan, X)
    if kind == "gross errors":
        wrong = rng.random((m, n)) < 0.1
        given[wrong] += rng.choice([-1, 1], int(wrong.sum())) * rng.uniform(3, 10, int(wrong.sum()))
    return given, X, hidden, {"rank too low": 2, "rank too high": 6, "rank chosen": "auto"}.get(kind, 3)


def covered(kind, seed):
    """Which hidden entries are in bands of 90 %, their rows and columns, and the half widths; finite bands only."""
    given, X, hidden, rank = problem(kind, seed)
    i, j = np.nonzero(hidden)
    value, lower, upper = ls.solve(given, rank).interval(i, j)
    known = np.isfinite(upper)
    assert known.mean() > 0.9
    assert ((lower <= value) & (value <= upper)).all()
    return ((lower <= X[hidden]) & (X[hidden] <= upper))[known], i[known], j[known], ((upper - lower) / 2)[known]


def test_bands_hold_what_they_say_and_follow_the_noise_of_rows():
    inside, i, _, width = covered("rows", 201)
    assert abs(inside.mean() - 0.9) < 0.02
    quiet, loud = i < 80, i >= 160
    assert abs(inside[quiet].mean() - 0.9) < 0.05
    assert abs(inside[loud].mean() - 0.9) < 0.05
    assert np.median(width[loud]) > 5 * np.median(width[quiet])


KINDS = ["plain", "columns", "heavy tails", "rank too low", "rank too high", "rank chosen", "uneven", "gross errors"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_coverage(kind):
    found = [covered(kind, seed) for seed in (301, 302, 303)]
    inside = np.concatenate([one[0] for one in found])
    assert abs(inside.mean() - 0.9) < 0.015
    for lines in (1, 2):  # thirds of the rows, and of the columns
        where = np.concatenate([one[lines] for one in found])
        for part in np.array_split(np.unique(where), 3):
            assert abs(inside[np.isin(where, part)].mean() - 0.9) < 0.035


def test_wider_for_more(capsys):
    given, *_ = problem("plain", 5, 80, 60)
    result = ls.solve(given, 3)
    half, most = result.interval(3, np.arange(60), level=0.5), result.interval(3, np.arange(60), level=0.99)
    assert (most.upper - most.lower > 2 * (half.upper - half.lower)).all()
    assert result.interval(3, 4).lower.shape == ()
    assert result.interval(-77, -56).lower == result.interval(3, 4).lower
    assert result.interval(np.arange(80)[:, None], np.arange(60)).upper.shape == (80, 60)
    assert capsys.readouterr().out == ""


def test_same_bits_again_and_after_pickling():
    given, *_ = problem("plain", 6, 60, 50)
    result = ls.solve(given, 3)
    kept = pickle.loads(pickle.dumps(result))
    first = result.interval(2, np.arange(50))
    for other in (kept, ls.solve(given, 3)):
        np.testing.assert_array_equal(other.interval(2, np.arange(50)).upper, first.upper)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_nothing_is_said_between_parts_that_share_nothing(noise):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 80)) + noise * rng.standard_normal((60, 80))
    truth = X[7, 7]
    X[:30, 40:] = X[30:, :40] = nan
    X[5] = X[7, 7] = nan
    _, lower, upper = ls.solve(X, 2).interval([7, 7, 40, 5], [7, 70, 10, 5])
    assert lower[0] - 0.5 * noise < truth < upper[0] + 0.5 * noise
    assert upper[0] - lower[0] < 10 * noise + 1e-4
    assert np.isinf(upper[1:]).all()
    assert np.isinf(lower[1:]).all()


def test_an_exact_fit_has_bands_as_narrow_as_a_solve_is_accurate():
    rng = np.random.default_rng(8)
    X = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 50))
    hidden = rng.random(X.shape) < 0.3
    _, lower, upper = ls.solve(np.where(hidden, nan, X), 2).interval(*np.nonzero(hidden))
    assert ((lower <= X[hidden]) & (X[hidden] <= upper)).mean() > 0.99
    assert (upper - lower).max() < 1e-3


def test_where_there_can_be_no_band_it_is_said():
    given, *_ = problem("plain", 5, 12, 10)
    result = ls.solve(given, 1)
    with pytest.raises(ValueError, match=r"a band of 0.99 needs 99 entries .* there are \d+: give a lower level"):
        result.interval(0, 0, level=0.99)
    with pytest.raises(ValueError, match="level must be"):
        result.interval(0, 0, level=90)
    with pytest.raises(IndexError):
        result.interval(12, 0, level=0.5)
    full = ls.solve(problem("plain", 5, 60, 50)[1], 3, method="accaltproj")
    with pytest.raises(ValueError, match="accaltproj needs every entry"):
        full.interval(0, 0)
    stored = ls.solve(given, 1, backend="outofcore")
    with pytest.raises(TypeError, match="bands are for data in memory"):
        stored.interval(0, 0)


def test_gross_errors_among_what_was_kept_aside_do_not_widen_bands():
    given, X, _, _ = problem("plain", 9)
    split = hold_out(ls.ObservedMatrix.from_dense(given), 0.1, np.random.default_rng(4))
    L = ls.solve(split.M, 3).L
    q = np.full(split.values.size, 0.2)
    at = np.arange(20), np.arange(20), np.full(20, 0.2)
    clean = EntryBands.fit(split, L, q).half_widths(*at, 0.9)
    split.values.flags.writeable = True
    split.values[::10] += 100.0
    np.testing.assert_allclose(EntryBands.fit(split, L, q).half_widths(*at, 0.9), clean, rtol=0.05)
    assert X.shape == given.shape
