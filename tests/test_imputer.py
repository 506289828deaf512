"""RobustImputer: holes filled by what is true, errors found, scikit-learn's contract kept."""

import warnings

import numpy as np
import pytest
from scipy import sparse

from conftest import assert_close

pytest.importorskip("sklearn")

from sklearn.exceptions import NotFittedError
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.neighbors import KNeighborsRegressor

import lowsparse as ls
from lowsparse import RobustImputer
from lowsparse.imputation.model import Imputation


def table(seed=0, n=200, d=20, rank=2, noise=0.0, missing=0.2, wrong=0.03):
    """Columns in units of their own, with holes and gross errors: (X, truth, where X is wrong)."""
    rng = np.random.default_rng([23, seed])
    units = 10.0 ** rng.uniform(-2, 3, d)
    truth = units * (rng.uniform(-5, 5, d) + rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d)))
    X = truth + noise * units * rng.standard_normal(truth.shape)
    bad = rng.random(X.shape) < wrong
    X[bad] += (units * rng.choice([-30.0, 30.0], X.shape))[bad]
    hidden = rng.random(X.shape) < missing
    X[hidden] = np.nan
    return X, truth, bad & ~hidden


@pytest.mark.parametrize("seed", range(3))
def test_exact_data_are_filled_exactly_and_errors_replaced(seed):
    X, truth, bad = table(seed)
    imputer = RobustImputer(clean=True)
    filled = imputer.fit_transform(X)
    spread = truth.std(axis=0)
    assert np.max(np.abs(filled - truth) / spread) < 1e-6
    assert np.array_equal(imputer.outliers(X).toarray() != 0, bad)
    assert imputer.rank_ == 3  # and the level


def test_observed_entries_stay_as_they_are():
    X, truth, bad = table(4)
    filled = RobustImputer().fit_transform(X)
    seen = ~np.isnan(X)
    assert np.array_equal(filled[seen], X[seen])
    assert np.max((np.abs(filled - truth) / truth.std(axis=0))[~seen]) < 1e-6
    assert (np.abs(filled - truth) > 1e-3)[bad].all()


def test_with_noise_it_is_better_than_what_there_is():
    X, truth, _ = table(5, noise=0.3, rank=3)
    holes = np.isnan(X)
    spread = truth.std(axis=0)

    def error(filled):
        return np.mean((np.abs(filled - truth) / spread)[holes])

    ours = error(RobustImputer().fit_transform(X))
    assert ours < 0.5 * error(KNNImputer().fit_transform(X))
    assert ours < 0.3 * error(SimpleImputer(strategy="median").fit_transform(X))


def test_fit_transform_and_transform_say_the_same_of_the_rows_that_were_fitted():
    X, truth, _ = table(5, noise=0.3, rank=3)
    holes, spread = np.isnan(X), truth.std(axis=0)
    imputer = RobustImputer()
    by_fit = imputer.fit_transform(X)
    by_row = imputer.transform(X)
    assert np.array_equal(by_fit[holes], imputer.model_.lowrank().to_dense()[holes])
    apart, one, other = (
        np.mean((np.abs(a - b) / spread)[holes]) for a, b in ((by_fit, by_row), (by_fit, truth), (by_row, truth))
    )
    assert apart < 0.02 * min(one, other)


@pytest.mark.parametrize(("seed", "d"), [(7, 15), (1, 15), (7, 24), (2, 24)])
def test_a_narrow_table_with_noise_is_not_fitted_too_closely(seed, d):
    rng = np.random.default_rng(seed)
    truth = 20 + np.cumsum(rng.standard_normal((300, 3)), axis=0) @ rng.standard_normal((3, d))
    X = truth + 0.3 * rng.standard_normal(truth.shape)
    X[rng.random(X.shape) < 0.05] = -40.0
    X[120:180, 4] = np.nan
    imputer = RobustImputer(clean=True)
    for filled in (imputer.fit_transform(X), imputer.transform(X)):
        off = np.abs(filled - truth)
        assert np.median(off) < 0.25
        assert np.count_nonzero(off.max(axis=1) > 5) <= 1


def test_new_rows_are_filled_each_by_itself():
    X, truth, _ = table(6, n=260)
    imputer = RobustImputer(clean=True).fit(X[:200])
    together = imputer.transform(X[200:])
    assert np.max(np.abs(together - truth[200:]) / truth.std(axis=0)) < 1e-6
    alone = np.vstack([imputer.transform(x[None]) for x in X[200:]])
    assert np.max(np.abs(together - alone) / truth.std(axis=0)) < 1e-13


def test_a_unit_is_a_unit():
    X, truth, _ = table(7, noise=0.2)
    units = 10.0 ** np.arange(-10, 10)
    spread, holes = truth.std(axis=0), np.isnan(X)
    plain, scaled, all_scaled = (RobustImputer().fit_transform(X * by) / by for by in (1.0, units, 255.0))
    errors = [np.mean((np.abs(filled - truth) / spread)[holes]) for filled in (plain, scaled)]
    assert errors[1] == pytest.approx(errors[0], rel=0.2)  # scales of columns are shrunk a little towards each other
    assert_close(all_scaled / spread, plain / spread, 1e-9)


def test_ratings_with_few_entries_per_line():
    rng = np.random.default_rng(8)
    users, items = rng.standard_normal(300), rng.standard_normal(200)
    taste = rng.standard_normal((300, 2)) @ rng.standard_normal((2, 200))
    truth = 3.5 + 0.5 * users[:, None] + 0.5 * items + 0.3 * taste
    X = np.where(rng.random(truth.shape) < 0.06, np.round(truth + 0.3 * rng.standard_normal(truth.shape)), np.nan)
    holes = np.isnan(X)
    filled = RobustImputer().fit_transform(X)
    medians = SimpleImputer(strategy="median").fit_transform(X)
    offsets_alone = truth - 0.3 * taste
    error = np.mean(np.abs(filled - truth)[holes])
    assert error < 0.7 * np.mean(np.abs(medians - truth)[holes])
    assert error < 1.3 * np.mean(np.abs(offsets_alone - truth)[holes])
    assert RobustImputer().fit(X).model_.preparation.offset.any()


def test_noise_is_filled_with_levels_and_it_says_so():
    X = 7 + np.random.default_rng(9).standard_normal((120, 10))
    X[::7, 3] = np.nan
    imputer = RobustImputer().fit(X)
    assert imputer.rank_ == 0
    assert "L = 0" in imputer.model_.result.message
    filled = imputer.transform(X)
    assert np.abs(filled[::7, 3] - 7).max() < 0.5


def test_rows_without_entries_get_levels():
    X, _, _ = table(10)
    imputer = RobustImputer().fit(X)
    nothing = np.full((2, 20), np.nan)
    assert_close(
        imputer.transform(nothing)[0], imputer.model_.preparation.scale * imputer.model_.preparation.level, 1e-12
    )


def test_features_without_entries():
    X, _, _ = table(11, d=6, rank=1)
    X[:, 2] = np.nan
    with pytest.warns(UserWarning, match="1 features have no observed entry"):
        imputer = RobustImputer().fit(X)
    assert imputer.transform(X).shape == (200, 5)
    assert imputer.get_feature_names_out().tolist() == ["x0", "x1", "x3", "x4", "x5"]
    kept = RobustImputer(keep_empty_features=True).fit(X)
    assert not kept.transform(X)[:, 2].any()
    X[5, 2] = 3.0  # known of a new row: it stays
    assert kept.transform(X)[5, 2] == 3.0


def test_an_indicator_says_where_entries_were_missing():
    X, _, _ = table(12, d=5, rank=1)
    X[:, 4] = 1.0 + np.arange(200)
    imputer = RobustImputer(add_indicator=True).fit(X)
    out = imputer.transform(X)
    assert np.array_equal(out[:, 5:], np.isnan(X[:, :4]))
    assert imputer.get_feature_names_out().tolist()[5:] == [f"missingindicator_x{k}" for k in range(4)]


def test_a_number_can_stand_for_missing_entries():
    X, _, _ = table(13)
    marked = np.where(np.isnan(X), -999.0, X)
    assert np.array_equal(RobustImputer(missing_values=-999).fit_transform(marked), RobustImputer().fit_transform(X))


def test_sparse_tables_come_back_dense():
    X, _, _ = table(14)
    rows, columns = np.nonzero(~np.isnan(X))
    A = sparse.csc_matrix((X[rows, columns], (rows, columns)), shape=X.shape)
    assert np.array_equal(RobustImputer().fit_transform(A), RobustImputer().fit_transform(X))


def test_the_rank_is_a_limit():
    X, _, _ = table(15, rank=4, noise=0.1)
    assert RobustImputer(rank=2).fit(X).rank_ == 2
    assert RobustImputer(rank=10).fit(X).rank_ >= 4


@pytest.mark.parametrize("rank", [4, 5, 8])
def test_a_table_may_have_the_rank_as_it_is(rank):
    rng = np.random.default_rng(17)
    truth = rng.standard_normal((300, 4)) @ rng.standard_normal((4, 60))
    X = truth.copy()
    X[rng.random(X.shape) < 0.1] += 10.0
    X[rng.random(X.shape) < 0.3] = np.nan
    imputer = RobustImputer(rank, clean=True)
    assert np.abs(imputer.fit_transform(X) - truth).max() < 1e-8
    assert imputer.rank_ == min(rank, 5)  # and the level
    levels = imputer.transform(np.full((1, 60), np.nan))
    assert levels.any() == (rank > 4)


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("rank", [1, 4])
def test_levels_are_found_along_with_a_given_rank(rank, noise):
    """Less levels found before it, the table would have a rank more than is given."""
    rng = np.random.default_rng([18, rank])
    truth = 5 * rng.standard_normal(60) + rng.standard_normal((300, rank)) @ rng.standard_normal((rank, 60))
    X = truth + noise * rng.standard_normal(truth.shape)
    X[rng.random(X.shape) < 0.1] += 10.0
    X[rng.random(X.shape) < 0.3] = np.nan
    imputer = RobustImputer(rank)
    filled = imputer.fit_transform(X)
    error = np.sqrt(np.mean((filled - truth)[np.isnan(X)] ** 2))
    assert error < (0.5 * noise or 1e-6)
    assert imputer.rank_ == rank


def test_a_column_far_from_zero_is_filled_like_the_others():
    rng = np.random.default_rng(18)
    truth = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 10)) + 0.2 * rng.standard_normal((200, 10))
    truth /= truth.std(axis=0)
    truth[:, 0] = 2020 + np.round(2 * truth[:, 0])
    X = np.where(rng.random(truth.shape) < 0.1, np.nan, truth)
    filled = RobustImputer(clean=True).fit_transform(X)
    assert np.count_nonzero((filled != X) & ~np.isnan(X)) == 0  # nothing is wrong
    assert np.abs(filled - truth)[np.isnan(X[:, 0]), 0].mean() < 1.0  # the standard deviation is 2


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_what_only_its_own_number_tells_is_no_error(noise):
    """Nothing is wrong. One column goes with no other: what L is there, the entry itself must say."""
    for seed in range(3):
        rng = np.random.default_rng([41, seed])
        rest = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 9)) + noise * rng.standard_normal((200, 9))
        X = np.column_stack([rest / rest.std(axis=0), 2020 + 2 * rng.standard_normal(200)])
        X[rng.random(X.shape) < 0.15] = np.nan
        imputer, given = RobustImputer(clean=True), ~np.isnan(X)
        for filled in (imputer.fit_transform(X), imputer.transform(X)):
            assert np.array_equal(filled[given], X[given])
        assert not imputer.model_.result.flagged.size  # `lowsparse complete --clean` goes by these


def test_the_same_entries_are_errors_to_the_model_and_to_the_imputer():
    X, _, _ = table(9, n=200, d=9, noise=0.01, wrong=0.05, rank=3)
    X = np.column_stack([X, 2020 + 2 * np.random.default_rng(1).standard_normal(200)])
    imputer = RobustImputer(clean=True)
    replaced = (imputer.fit_transform(X) != X) & ~np.isnan(X)
    result = imputer.model_.result
    flagged = np.zeros_like(replaced)
    flagged[result.M.rows[result.flagged], result.M.columns_of_entries()[result.flagged]] = True
    assert np.array_equal(replaced, flagged)


def test_a_feature_that_is_noisier_than_others_has_no_more_errors():
    rng = np.random.default_rng(19)
    truth = rng.standard_normal((300, 2)) @ rng.standard_normal((2, 12))
    noise = np.full(12, 0.02)
    noise[3] = 0.3
    X = truth + noise * rng.standard_normal(truth.shape)
    X[rng.random(X.shape) < 0.1] = np.nan
    imputer = RobustImputer().fit(X)
    assert imputer.outliers(X).nnz < 10
    assert imputer.model_.result.flagged.size < 10


@pytest.mark.parametrize("rank", [0, -1, 1.5, "many", True])
def test_a_rank_that_is_none_is_refused(rank):
    with pytest.raises(ValueError, match="rank must be"):
        RobustImputer(rank=rank).fit(table()[0])


def test_what_does_not_work_is_said():
    X, _, _ = table()
    with pytest.raises(ValueError, match="no observed entry"):
        RobustImputer().fit(np.full((4, 3), np.nan))
    with pytest.raises(ValueError, match="clean must be"):
        RobustImputer(clean="yes").fit(X)
    with pytest.raises(NotFittedError):
        RobustImputer().transform(X)


@pytest.mark.parametrize("noise", [0.1, 0.3, 1.0])
def test_placing_rows_is_as_good_as_fitting_them(noise):
    X, truth, _ = table(16, noise=noise)
    M = ls.ObservedMatrix.from_dense(X)
    model = Imputation.fit(M)
    s, b, a = model.preparation.scale, model.preparation.level, model.preparation.offset
    fitted = s * (b + a[:, None] + model.result.L.to_dense())
    placed = model.prediction.rows(M.T, len(X))
    errors = [np.linalg.norm((found - truth) / truth.std(axis=0)) for found in (fitted, placed)]
    assert errors[1] < 1.1 * errors[0]


def tied_table(kind, seed=3, n=400, d=12):
    """Entries that are all right, and most often the same number in each column."""
    rng = np.random.default_rng([29, seed])
    if kind == "counts":
        return rng.poisson(np.exp(0.4 * rng.standard_normal((n, 1)) @ rng.standard_normal((1, d)) - 0.6)).astype(float)
    if kind == "ratings":
        return np.clip(np.round(4.7 + 0.4 * rng.standard_normal((n, d))), 1, 5)
    if kind == "rare":
        return (rng.random((n, d)) < 0.05).astype(float)
    if kind == "one-hot":
        return np.eye(d)[rng.integers(d, size=n)]
    z = 2 * rng.standard_normal((n, 1)) @ rng.standard_normal((1, d)) - 1
    return (rng.random((n, d)) < 1 / (1 + np.exp(-2 * z))).astype(float)


@pytest.mark.parametrize("kind", ["counts", "ratings", "rare", "one-hot", "binary"])
def test_numbers_off_the_most_frequent_one_are_no_errors(kind):
    truth = tied_table(kind)
    rng = np.random.default_rng(30)
    X = np.where(rng.random(truth.shape) < 0.1, np.nan, truth)
    wrong = rng.choice(np.flatnonzero(~np.isnan(X)), 20, replace=False)
    X.flat[wrong] = 500.0
    imputer = RobustImputer(clean=True)
    filled = imputer.fit_transform(X)
    replaced = (filled != X) & ~np.isnan(X)
    assert replaced.flat[wrong].all()
    assert np.count_nonzero(replaced) - wrong.size <= 0.01 * X.size
    holes = np.isnan(X)
    levels = np.tile(np.nanmean(np.where(X == 500, np.nan, X), axis=0), (len(X), 1))
    error, usual = (np.linalg.norm((found - truth)[holes]) for found in (filled, levels))
    assert error < (0.9 if kind == "binary" else 1.05) * usual  # the mean is best where columns are independent
    again = RobustImputer(clean=True).fit_transform(X)
    assert np.array_equal(filled, again)


def test_errors_in_a_constant_column_are_errors():
    X, truth, _ = table(20)
    X[:, 3] = truth[:, 3] = 5.0
    X[[4, 50, 90], 3] = 120.0, -33.0, 78.0
    X[[7, 11], 3] = np.nan
    filled = RobustImputer(clean=True).fit_transform(X)
    assert_close(filled[:, 3], truth[:, 3], 1e-3)


def test_no_more_than_a_fifth_is_replaced_unless_asked_for():
    X, truth, _ = table(21, wrong=0.3, missing=0.0)
    with pytest.raises(ValueError, match=r"would replace .* max_replaced = 0.2: low rank does not fit"):
        RobustImputer(clean=True).fit(X)
    filled = RobustImputer(clean=True, max_replaced=0.5).fit_transform(X)
    assert np.max(np.abs(filled - truth) / truth.std(axis=0)) < 1e-6
    assert RobustImputer().fit(X).model_.flagged_share == pytest.approx(0.3, abs=0.05)
    for bad in (-0.1, 1.5, "all", True):
        with pytest.raises(ValueError, match="max_replaced must be a number from 0 to 1"):
            RobustImputer(max_replaced=bad).fit(X)


@pytest.mark.parametrize("rank", ["auto", 1])  # 1: a rank that is wrong
@pytest.mark.parametrize("tails", [pytest.param("normal", marks=pytest.mark.slow), "heavy"])
def test_bands_hold_the_truth(rank, tails):
    """Also where noise differs from feature to feature, and some entries are grossly wrong."""
    inside = []
    for seed in range(3):
        rng = np.random.default_rng([31, seed])
        X = 5 + rng.standard_normal((500, 3)) @ rng.standard_normal((3, 16))
        noise = rng.standard_t(3, X.shape) if tails == "heavy" else rng.standard_normal(X.shape)
        X += noise * np.linspace(0.05, 0.6, 16)
        hidden, wrong = rng.random(X.shape) < 0.15, rng.random(X.shape) < 0.02
        given = np.where(hidden, np.nan, np.where(wrong, X + 40, X))
        imputer = ls.RobustImputer(rank=rank)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a rank that is wrong
            imputer.fit(given)
        band = imputer.predict_interval(given, 0.9)
        assert np.array_equal(band.value, imputer.transform(given))
        assert np.array_equal(band.lower[~hidden], given[~hidden])
        inside.append(((band.lower <= X) & (band.upper >= X))[hidden])
    assert abs(np.concatenate(inside).mean() - 0.9) < 0.02


def test_bands_are_refused_with_advice():
    X = np.outer(np.arange(1.0, 41.0), np.arange(1.0, 6.0))
    with pytest.raises(ValueError, match="interval must be"):
        ls.RobustImputer().fit(X).predict_interval(X, 90)
    with pytest.raises(ValueError, match="add_indicator=False"):
        ls.RobustImputer(add_indicator=True).fit(X).predict_interval(X)


def test_the_score_is_of_entries_that_were_hidden_in_any_units():
    rng = np.random.default_rng(41)
    truth = rng.standard_normal((300, 2)) @ rng.standard_normal((2, 12))
    X = truth + 0.3 * rng.standard_normal(truth.shape)
    X[rng.random(X.shape) < 0.03] += 30
    units = np.logspace(0, 6, 12)
    one = RobustImputer().fit(X[:200]).score(X[200:])
    other = RobustImputer().fit(X[:200] * units).score(X[200:] * units)
    assert other == pytest.approx(one, abs=0.01)  # scales are shrunk to each other
    assert 0.4 < one < 0.9
    noise = rng.standard_normal((300, 12))
    assert abs(RobustImputer().fit(noise[:200]).score(noise[200:])) < 0.1
    with pytest.raises(ValueError, match="no entry"):
        RobustImputer().fit(X).score(np.full((2, 12), np.nan))


def curved(seed, n=300):
    """(X, truth, missing, errors): columns that depend on two numbers along curves."""
    rng = np.random.default_rng([51, seed])
    s, t = rng.uniform(-1, 1, (2, n))
    truth = np.column_stack([s, t, s**2, np.sin(3 * t), s * t, np.exp(s), np.abs(t), np.cos(4 * s)])
    X = truth + 0.02 * rng.standard_normal(truth.shape)
    errors = rng.random(X.shape) < 0.03
    X[errors] += 8.0
    missing = rng.random(X.shape) < 0.1
    X[missing] = np.nan
    return X, truth, missing, errors & ~missing


@pytest.mark.slow
def test_a_curved_table_is_refined_by_another_estimator():
    X, truth, missing, errors = curved(1)
    plain = RobustImputer(clean=True).fit_transform(X)
    imputer = RobustImputer(clean=True, refine=KNNImputer())
    refined = imputer.fit_transform(X)
    alone = KNNImputer().fit_transform(X)  # which takes the errors for neighbours
    error = [np.mean(np.abs(filled - truth)[missing]) for filled in (refined, plain, alone)]
    assert error[0] < 0.8 * min(error[1:])
    assert "low rank does not fit this table: it is refined" in imputer.notes_[0]
    assert np.mean(np.abs(refined - truth)[errors]) < 0.5
    known = ~missing & ~errors
    np.testing.assert_array_equal(refined[known], X[known])
    np.testing.assert_allclose(imputer.transform(X)[missing], refined[missing], atol=0.2)
    by_regression = RobustImputer(refine=KNeighborsRegressor()).fit(X)
    assert type(by_regression.refiner_).__name__ == "IterativeImputer"
    with pytest.raises(ValueError, match="refine=None"):
        imputer.predict_interval(X)
    with pytest.raises(TypeError, match="a regressor or an imputer of scikit-learn"):
        RobustImputer(refine="forest").fit(X)


def test_a_table_of_low_rank_is_not_refined():
    rng = np.random.default_rng(52)
    X = rng.standard_normal((200, 2)) @ rng.standard_normal((2, 10))
    X[rng.random(X.shape) < 0.1] = np.nan
    imputer = RobustImputer(refine=KNNImputer())
    np.testing.assert_array_equal(imputer.fit_transform(X), RobustImputer().fit_transform(X))
    assert imputer.refiner_ is None
    assert "low rank is better" in imputer.notes_[0]


@pytest.mark.parametrize("kind", ["boolean", "object"])
def test_true_and_false_stay_true_and_false(kind):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(61)
    z = rng.standard_normal((200, 1))
    truth = z + 0.3 * rng.standard_normal((200, 6)) > 0
    hidden = rng.random(truth.shape) < 0.1
    absent = pandas.NA if kind == "boolean" else None
    frame = pandas.DataFrame(truth, columns=list("abcdef")).astype(kind).mask(hidden, absent)
    frame["x"] = 3 * z[:, 0]
    filled = RobustImputer().fit_transform(frame)
    assert [str(dtype) for dtype in filled.dtypes] == 6 * ["boolean" if kind == "boolean" else "bool"] + ["float64"]
    values = filled.to_numpy()[:, :6].astype(bool)
    assert np.array_equal(values[~hidden], truth[~hidden])
    assert (values == truth)[hidden].mean() > 0.8


def test_stuck_values_are_replaced_and_round_numbers_are_not():
    rng = np.random.default_rng([44, 1])
    truth = 5 + rng.standard_normal((300, 3)) @ rng.standard_normal((3, 12)) + 0.1 * rng.standard_normal((300, 12))
    X = truth.copy()
    stuck = rng.permutation(300) < 30
    X[stuck, 2] = np.median(truth[:, 2]) + 0.01  # nothing unusual by itself
    imputer = RobustImputer(clean=True)
    found = imputer.fit_transform(X)
    flagged = imputer.outliers(X).toarray() != 0
    assert flagged[stuck, 2].all()
    assert flagged[:, 2].sum() <= stuck.sum() + 3
    assert flagged.sum() <= stuck.sum() + 8
    assert np.abs(found - truth)[stuck, 2].mean() < 0.3 * np.abs(X - truth)[stuck, 2].mean()
    for other in (np.round(X, 1), np.where(stuck[:, None], X.max(axis=0), X), np.where(stuck[:, None], 0.0, X)):
        assert np.isnan(RobustImputer().fit(other).model_.stuck).all()  # rounded, clipped, or zero


@pytest.mark.parametrize("mean", [0.1, 3.0])
def test_rare_counts_without_a_gap_are_not_replaced_and_errors_are(mean):
    rng = np.random.default_rng([77, 1])
    L = rng.standard_normal((300, 2)) @ rng.standard_normal((2, 10)) / np.sqrt(2)
    X = rng.poisson(mean * np.exp(0.5 * L)).astype(float)
    wrong = rng.random(X.shape) < 0.01
    spoilt = np.where(wrong, 200.0, X)
    filled = RobustImputer(clean=True).fit_transform(spoilt)
    assert (filled != spoilt)[wrong].all()
    assert (filled != spoilt)[~wrong].mean() < 0.002  # of 0.1 on average, every 2 and 3 was replaced
