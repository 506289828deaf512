"""The estimators in scikit-learn's own terms: its checks, containers, pipelines."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

import joblib  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import RobustScaler  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

import lowsparse as ls  # noqa: E402
from lowsparse import RobustImputer, RobustPCA, StreamingRobustPCA  # noqa: E402

ALL = [RobustPCA, RobustImputer, StreamingRobustPCA]
LONGER = [RobustPCA(), RobustPCA(n_components="auto"), RobustImputer(rank=2)]


def table(seed=0, n=80, d=8, rank=2):
    """Numbers with a level, holes and a few gross errors; and the truth."""
    rng = np.random.default_rng([17, seed])
    truth = 10 + rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d))
    X = truth.copy()
    X[rng.random(X.shape) < 0.15] = np.nan
    X[rng.random(X.shape) < 0.03] += 50
    return X, truth


def frame(X):
    index = pd.date_range("2024-03-01", periods=len(X), freq="h")
    return pd.DataFrame(X, index=index, columns=[f"sensor {k}" for k in range(X.shape[1])])


@pytest.mark.filterwarnings("ignore")  # its data are noise: there is no low rank in them, and we say so
@pytest.mark.parametrize(
    "estimator",
    [StreamingRobustPCA(), *(pytest.param(own, marks=pytest.mark.slow) for own in (RobustImputer(), *LONGER))],
)
def test_scikit_learn_finds_nothing_wrong(estimator):
    done = check_estimator(estimator, on_skip=None)
    skipped = {check["check_name"] for check in done if check["status"] != "passed"}
    assert skipped <= {"check_array_api_input"}  # of arrays that are not NumPy's, which scikit-learn leaves to a flag
    assert len(done) > 40


@pytest.mark.parametrize("kind", ALL)
def test_copies_are_the_same(kind, tmp_path):
    X, _ = table()
    fitted = kind().fit(X)
    joblib.dump(fitted, tmp_path / "fitted")
    for copy in (pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "fitted"), clone(fitted).fit(X)):
        assert np.array_equal(copy.transform(X), fitted.transform(X))


@pytest.mark.parametrize("kind", ALL)
def test_what_comes_back_is_what_went_in(kind):
    X, _ = table()
    expected = kind().fit_transform(X)
    df = frame(X)
    out = kind().fit_transform(df)
    assert isinstance(out, pd.DataFrame)
    assert out.index.equals(df.index)
    assert np.array_equal(out.to_numpy(), expected)
    lines = kind().fit_transform(pl.DataFrame(df.reset_index(drop=True).to_dict("list")))
    assert isinstance(lines, pl.DataFrame)
    assert np.array_equal(lines.to_numpy(), expected)
    masked = kind().fit_transform(np.ma.masked_invalid(X))
    assert isinstance(masked, np.ma.MaskedArray)
    assert np.array_equal(masked.data, expected)
    single = kind().fit_transform(X.astype(np.float32))
    assert single.dtype == np.float32
    if kind is RobustImputer:
        assert out.columns.equals(df.columns)
    else:
        assert out.columns.tolist() == [f"{kind.__name__.lower()}{k}" for k in range(out.shape[1])]


@pytest.mark.parametrize("kind", ALL)
def test_set_output_has_the_last_word(kind):
    X, _ = table()
    df = frame(X)
    for chosen, given, container in (
        ("default", df, np.ndarray),
        ("pandas", X, pd.DataFrame),
        ("polars", df, pl.DataFrame),
    ):
        estimator = kind().set_output(transform=chosen)
        assert isinstance(estimator.fit_transform(given), container)
        assert isinstance(estimator.transform(given), container)


@pytest.mark.parametrize("kind", ALL)
def test_nullable_columns_are_numbers_and_categories_are_not(kind):
    X, _ = table()
    df = frame(X)
    nullable = df.astype("Float64")
    assert np.array_equal(np.asarray(kind().fit_transform(nullable), float), kind().fit_transform(X))
    with pytest.raises(TypeError, match="'kind'"):
        kind().fit(df.assign(kind=pd.Categorical(["a"] * len(df))))


@pytest.mark.parametrize("kind", ALL)
def test_the_names_of_features_are_watched(kind):
    df = frame(table()[0])
    fitted = kind().fit(df)
    assert fitted.feature_names_in_.tolist() == df.columns.tolist()
    with pytest.raises(ValueError, match="feature names"):
        fitted.transform(df.rename(columns={"sensor 0": "another"}))
    with pytest.raises(ValueError, match="7 features"):
        kind().fit(df.to_numpy()).transform(df.to_numpy()[:, :7])


@pytest.mark.parametrize("kind", ALL)
def test_memory_maps_and_observed_matrices(kind, tmp_path):
    X, _ = table()
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    expected = kind().fit_transform(X)
    assert np.array_equal(kind().fit_transform(mapped), expected)
    assert np.array_equal(kind().fit_transform(ls.ObservedMatrix.from_dense(X)), expected)


def test_they_work_in_a_row():
    X, truth = table(d=12)
    pipe = make_pipeline(RobustImputer(clean=True), RobustScaler(), RobustPCA(n_components=3))
    scores = pipe.fit_transform(frame(X))
    assert scores.shape == (80, 3)
    back = pipe[1].inverse_transform(pipe[2].inverse_transform(np.asarray(scores)))
    assert np.abs(back - truth).max() < 1e-3
