"""`lowsparse complete` for tables in time: what is written, what is said, and whatever is wrong in one line."""

import json
import re
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from conftest import PATH, interruptible
from lowsparse.entries.files.times import TimesError
from lowsparse.tables.timeline import Timeline
from test_cli_complete import POSIX, complete, completed, fails

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
nan = np.nan
HOURS = 24 * 21


def demand(moments=HOURS, series=5):
    """Series with a shape of the day: the truth, and what is read of it with gaps, zeros and a spike, as frames."""
    rng = np.random.default_rng(7)
    t = np.arange(HOURS)[:, None]
    truth = 500 + 100 * np.sin(2 * np.pi * t / 24 + 0.1 * np.arange(5)) * rng.uniform(0.8, 1.2, 5)
    truth = truth + 20 * np.cumsum(rng.standard_normal((HOURS, 1)), axis=0) / np.sqrt(HOURS)
    names = [f"meter {k}" for k in range(5)]
    frame = pd.DataFrame(truth, pd.date_range("2024-01-01", periods=HOURS, freq="h", name="hour"), names)
    read = (frame + 2 * rng.standard_normal(truth.shape)).round(2)
    read.iloc[100:112, 1] = nan
    read.iloc[200:224] = nan  # a day that nobody read
    read.iloc[300:306, 2] = 0.0
    read.iloc[400, 3] = 5000.0
    return frame.iloc[:moments, :series], read.iloc[:moments, :series].copy()


def stored(read, path, **options):
    """A frame in a file, by the ending of its path."""
    write = {".csv": read.to_csv, ".parquet": read.to_parquet, ".xlsx": read.to_excel}[path.suffix]
    write(path, **options)
    return path


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A run with bands: the truth, what was read, the facts, and the tables that were written."""
    truth, read = demand()
    path = stored(read, tmp_path_factory.mktemp("series") / "demand.csv")
    facts = completed(path, "--interval", "0.9")
    tables = {key: pd.read_csv(facts[key], index_col=0) for key in ("completed", "outliers", "lower", "upper")}
    return truth, read, facts, tables


def test_gaps_are_filled_and_readings_stay(done):
    truth, read, facts, tables = done
    found, missing = tables["completed"].to_numpy(), read.isna().to_numpy()
    np.testing.assert_array_equal(found[~missing], read.to_numpy()[~missing])
    assert np.abs(found - truth.to_numpy())[missing].max() < 25  # of a swing of 200
    assert np.abs(found - truth.to_numpy())[missing].mean() < 5
    assert (facts["filled"], facts["left_empty"], facts["time"]) == (missing.sum(), 0, "hour")
    assert (facts["step"], facts["periods"][0]) == ("1 hour", 24)
    assert facts["verdict"] == "good"


def test_anomalies_are_listed_in_runs(done):
    _, read, facts, tables = done
    listed = tables["outliers"].reset_index()
    assert listed.columns.tolist() == ["series", "begin", "end", "kind", "observed", "expected", "sure"]
    found = {tuple(row) for row in listed[["series", "begin", "end", "kind"]].to_numpy().tolist()}
    times = [str(time) for time in read.index]
    assert ("meter 2", times[300], times[305], "zero or negative") in found
    assert ("meter 3", times[400], times[400], "spike") in found
    assert len(found) <= 4
    assert sum(facts["anomalies"].values()) == len(found)
    assert facts["replaced"] == 0 < facts["flagged"]


def test_bands_are_two_tables_about_the_completed_one(done):
    truth, read, _, tables = done
    lower, value, upper = (tables[key].to_numpy() for key in ("lower", "completed", "upper"))
    missing = read.isna().to_numpy()
    assert (lower <= value).all()
    assert (value <= upper).all()
    np.testing.assert_array_equal(lower[~missing], upper[~missing])
    inside = (lower <= truth.to_numpy()) & (truth.to_numpy() <= upper)
    assert inside[missing].mean() > 0.8
    assert (upper - lower)[missing].mean() < 60


@pytest.mark.parametrize("ending", [".parquet", pytest.param(".xlsx", marks=pytest.mark.slow)])
def test_other_files_with_times(ending, tmp_path, done):
    read = done[1]
    facts = completed(stored(read, tmp_path / f"demand{ending}"))
    listed = Path(facts["outliers"])
    assert listed.suffix == ending
    load = {".parquet": pd.read_parquet, ".xlsx": pd.read_excel}[ending]
    found = load(facts["completed"])
    values = found.to_numpy() if ending == ".parquet" else found.iloc[:, 1:].to_numpy(float)
    np.testing.assert_allclose(values, done[3]["completed"].to_numpy(), rtol=1e-9)
    assert load(listed)["kind"].tolist() == done[3]["outliers"]["kind"].tolist()


def test_clean_replaces_what_is_listed(tmp_path, done):
    truth, read, facts, tables = done
    again = completed(stored(read, tmp_path / "demand.csv"), "--clean")
    found = pd.read_csv(again["completed"], index_col=0).to_numpy()
    changed = (found != tables["completed"].to_numpy()) & ~read.isna().to_numpy()
    assert changed.sum() == again["replaced"] == facts["flagged"]
    assert changed[300:306, 2].all()
    assert np.abs(found - truth.to_numpy()).max() < 25


def test_it_says_that_times_are_used_and_can_be_told_not_to(tmp_path):
    _, read = demand(24 * 8, 3)
    path = stored(read, tmp_path / "demand.csv")
    code, out, _ = complete(path)
    assert code == 0
    said = " ".join(out.split())
    assert "The column 'hour' is time: steps of 1 hour, periods of 1 day;" in said
    assert "--no-time completes it without regard to time." in said
    plain = completed(path, "--no-time", "--force")
    assert "periods" not in plain
    assert plain["rank"] >= 0


@pytest.mark.parametrize(
    "written",
    ["%d.%m.%Y %H:%M", "%m/%d/%Y %I:%M %p", "%d/%m/%y %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%Y/%m/%d %H:%M", "%Y-%m-%d %H"],
)
def test_times_as_people_write_them(written):
    times = pd.date_range("2024-01-25", periods=24 * 10, freq="h")
    found = Timeline.of(np.array(times.strftime(written), object))
    np.testing.assert_array_equal(found.stamps, times.to_numpy())
    assert found.span(24) == "1 day"
    assert found.positions.tolist() == list(range(240))


def test_zones_are_taken_in_utc_so_that_no_hour_is_missing_or_doubled():
    times = pd.date_range("2024-10-26", periods=48, freq="h", tz="Europe/Berlin")  # clocks go back on the 27th
    found = Timeline.of(np.array([time.isoformat() for time in times], object))
    assert found.positions.tolist() == list(range(48))
    with pytest.raises(TimesError, match=r"stands twice.*when clocks go back"):
        Timeline.of(np.array(times.strftime("%Y-%m-%d %H:%M"), object))


@pytest.mark.parametrize(
    "labels", [["ann", "bob"], ["12:00", "13:00"], ["2024", "2025"], ["a 2024-01-01", "b 2024-01-02"]]
)
def test_other_labels_are_no_times(labels):
    assert Timeline.of(np.array(labels, object)) is None


def test_times_come_back_as_they_stood_there(tmp_path):
    _, read = demand(24 * 8, 2)
    read.index = read.index.strftime("%d.%m.%Y %H:%M")
    facts = completed(stored(read, tmp_path / "demand.csv"))
    assert (facts["step"], facts["periods"]) == ("1 hour", [24])
    assert pd.read_csv(facts["completed"]).iloc[:, 0].tolist() == read.index.tolist()


@pytest.mark.parametrize(
    ("frequency", "step", "dropped"),
    [("MS", "1 month", [7]), (pd.offsets.MonthEnd(), "1 month", []), ("YS", "12 months", [3, 4])],
)
def test_months_are_equal_steps(frequency, step, dropped, tmp_path):
    times = pd.date_range("1950-01-31", periods=60, freq=frequency)
    values = 10 + np.add.outer(np.sin(np.arange(60) / 3), np.arange(3.0))
    read = pd.DataFrame(values, times.strftime("%Y-%m-%d"), list("abc")).drop(index=times[dropped].strftime("%Y-%m-%d"))
    read.iloc[20, 1] = nan
    facts = completed(stored(read, tmp_path / "x.csv"))
    assert facts["step"] == step
    assert facts["filled"] == 1
    found = pd.read_csv(facts["completed"], index_col=0)
    assert found.index.tolist() == read.index.tolist()
    assert abs(found.iloc[20, 1] - values[np.delete(np.arange(60), dropped)[20], 1]) < 0.3


def test_rows_that_are_missing_are_gaps(tmp_path, done):
    truth, read, _, _ = done
    kept = np.delete(np.arange(HOURS), [50, 51, 52, *range(200, 224)])
    facts = completed(stored(read.iloc[kept], tmp_path / "demand.csv"))
    found = pd.read_csv(facts["completed"], index_col=0)
    assert len(found) == len(kept)
    assert facts["periods"][0] == 24
    assert np.abs(found.to_numpy() - truth.to_numpy()[kept])[read.iloc[kept].isna().to_numpy()].max() < 25


def test_a_constant_series_and_one_without_a_reading(tmp_path):
    _, read = demand(24 * 8, 4)
    read["still"] = 3.0
    read.iloc[9:14, read.columns.get_loc("still")] = nan
    read["none"] = nan
    facts = completed(stored(read, tmp_path / "demand.csv"), "--interval", "0.5")
    found = pd.read_csv(facts["completed"], index_col=0)
    assert (found["still"] == 3).all()
    assert found["none"].isna().all()
    assert (facts["left_empty"], facts["empty_columns"]) == (len(read), 1)
    assert pd.read_csv(facts["lower"], index_col=0)["none"].isna().all()


def spoilt(read, kind):
    """A frame with text as its index, and what is wrong with it."""
    times = read.index.strftime("%Y-%m-%d %H:%M").tolist()
    if kind == "unsorted":
        times[5], times[6] = times[6], times[5]
    elif kind == "twice":
        times[6] = times[5]
    elif kind == "two formats":
        times[5] = "01.01.2024 05:00"
    elif kind == "not spaced":
        times[5] = "2024-01-01 05:17"
    elif kind == "day or month":
        read, times = read.iloc[:12], [f"{k:02d}/01/2024" for k in range(1, 13)]
    elif kind == "one row":
        read, times = read.iloc[:1], times[:1]
    return read.set_axis(pd.Index(times, name="hour"))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("unsorted", r"not in order of time: '2024-01-01 05:00' after '2024-01-01 06:00'; sort it; or give --no-time"),
        ("twice", r"the time '2024-01-01 05:00' stands twice: merge such rows.*; or give --no-time"),
        ("two formats", r"not all in one format: '01.01.2024 05:00' cannot be read as '2024-01-01 00:00' is; or give"),
        (
            "not spaced",
            r"not equally spaced: 2024-01-01T05:17.* no multiple of the usual step, 1 h.*; or give --no-time",
        ),
        ("day or month", r"'01/01/2024' may be day and month or month and day: write times as 2024-12-31; or give"),
        ("one row", r"there is one row, of '2024-01-01 00:00': series need 2 or more; or give --no-time"),
    ],
)
def test_times_that_cannot_be_used(kind, said, tmp_path):
    path = stored(spoilt(demand(48, 3)[1], kind), tmp_path / "demand.csv")
    line = fails(path)
    assert line.startswith(f"{path}: ")
    assert re.search(said, line), line
    assert sorted(item.name for item in tmp_path.iterdir()) == ["demand.csv"]
    if kind == "one row":
        assert "has one row: what is missing there cannot be learnt" in fails(path, "--no-time")
    else:
        assert complete(path, "--no-time")[0] == 0


def test_a_constant_series_is_noted_and_no_anomaly(tmp_path):
    _, read = demand(48, 3)
    read.iloc[:, 1] = 7.0
    read.iloc[5:8, 1] = nan
    path = stored(read, tmp_path / "demand.csv")
    code, out = complete(path)[:2]
    assert code == 0
    assert "have one value, and gaps are filled with it" in " ".join(out.split())
    assert len(pd.read_csv(tmp_path / "demand-completed-outliers.csv")) == 0
    assert (pd.read_csv(tmp_path / "demand-completed.csv").iloc[:, 2] == 7.0).all()


def test_no_reading_and_text_in_a_column(tmp_path):
    _, read = demand(48, 3)
    assert "no entry is observed" in fails(stored(read * nan, tmp_path / "none.csv"))
    words = read.astype(object)
    words.iloc[7, 1] = "broken"
    line = fails(stored(words, tmp_path / "words.csv"))
    assert "line 9: 'broken' in column 'meter 1' is not a number" in line
    assert "--missing broken" in line


def test_options_that_do_not_go_together(tmp_path):
    path = stored(demand(48, 3)[1], tmp_path / "demand.csv")
    assert "--rank is not for series" in fails(path, "--rank", 2, code=2)
    assert "between 0 and 1" in fails(path, "--interval", "90", code=2)
    assert "give --out FILE" in fails(path, "--interval", "0.9", "--out", "-", code=2)
    records = ("--row", "a", "--col", "b", "--value", "c")
    assert "--interval is for wide tables" in fails(path, *records, "--interval", "0.9", code=2)


def test_bands_of_a_table_without_times(tmp_path):
    rng = np.random.default_rng(2)
    truth = 5 + rng.standard_normal((120, 2)) @ rng.standard_normal((2, 12))
    read = truth + 0.1 * rng.standard_normal(truth.shape)
    hidden = rng.random(truth.shape) < 0.15
    frame = pd.DataFrame(np.where(hidden, nan, read), [f"row {k}" for k in range(120)])
    facts = completed(stored(frame, tmp_path / "x.csv"), "--interval", "0.9")
    lower, value, upper = (pd.read_csv(facts[key], index_col=0).to_numpy() for key in ("lower", "completed", "upper"))
    inside = (lower <= read) & (read <= upper)
    assert 0.8 < inside[hidden].mean() < 0.99
    np.testing.assert_array_equal(lower[~hidden], value[~hidden])


def test_of_noise_it_says_that_nothing_predicts_it(tmp_path):
    rng = np.random.default_rng(4)
    X = np.where(rng.random((200, 3)) < 0.1, nan, rng.standard_normal((200, 3)))
    read = pd.DataFrame(X, pd.date_range("2024-01-01", periods=200, name="day"), list("abc"))
    facts = completed(stored(read, tmp_path / "noise.csv"))
    assert (facts["verdict"], facts["periods"]) == ("doubtful", [])
    assert "nothing predicts the values" in facts["why"]


def test_numbers_of_any_size(tmp_path):
    _, read = demand(24 * 8, 3)
    read.iloc[50, 0], read.iloc[60, 1], read.iloc[70:74, 2] = 1e60, 1e-300, nan
    code, _, err = complete(stored(read, tmp_path / "demand.csv"))
    warned = [line for line in err.splitlines() if not line.startswith("solving: ")]  # progress, on a busy machine
    assert (code, warned) == (0, [])
    found = pd.read_csv(tmp_path / "demand-completed.csv", index_col=0)
    assert (found.iloc[50, 0], found.iloc[60, 1]) == (1e60, 1e-300)
    assert (np.abs(found.iloc[70:74, 2] - 500) < 200).all()
    listed = pd.read_csv(tmp_path / "demand-completed-outliers.csv")
    assert listed["series"].tolist() == ["meter 0", "meter 1"]


def test_the_report_has_the_series_and_the_anomalies(done):
    page = Path(done[2]["report"]).read_text("utf-8")
    start = page.index('id="data">') + len('id="data">')
    data = json.loads(page[start : page.index("</script>", start)])
    assert [line["name"] for line in data["series"]["lines"]] == done[1].columns.tolist()
    assert data["series"]["moments"] == HOURS
    assert sorted(data["anomalies"]["kind"]) == sorted(done[3]["outliers"]["kind"].tolist())


@pytest.mark.slow
@POSIX
def test_stopped_by_ctrl_c_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", PATH)
    stored(pd.concat([demand()[1]] * 8, axis=1).set_axis(range(40), axis=1), tmp_path / "demand.csv")
    child = interruptible([sys.executable, "-m", "lowsparse", "complete", "demand.csv"], tmp_path)
    assert child.stdout is not None
    child.stdout.readline()  # it has read the table
    time.sleep(1.0)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert err.strip().splitlines()[-1] == "lowsparse complete: stopped; nothing was written"
    assert [path.name for path in tmp_path.iterdir()] == ["demand.csv"]
