"""`lowsparse complete`: every format there and back, known truths, and whatever is wrong in one line."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import lowsparse as ls
from conftest import PATH, interruptible, repeated_command
from lowsparse.cli import main
from lowsparse.cli import table as room
from lowsparse.entries.files.market import read_market
from lowsparse.tables import Table, read_table, write_table

pa = pytest.importorskip("pyarrow")
nan = np.nan
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals and limits of POSIX")
odd = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
NOISE = 0.1  # of the stars
RECORDS = ("--row", "user", "--col", "film", "--value", "stars")
WIDE = [".csv", ".tsv", ".csv.gz", ".parquet", ".arrow", ".feather", ".npy", ".npz", ".mtx", ".mat"]


def complete(*arguments):
    """The command in this process: exit code, stdout, stderr."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["lowsparse", "complete", *map(str, arguments)]
    try:
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
            main()
    finally:
        sys.argv = before
    return left.value.code or 0, out.getvalue(), err.getvalue()


def completed(*arguments):
    """The facts of a run that must go well."""
    code, out, err = complete(*arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def fails(*arguments, code=1):
    """The line of a run that must fail."""
    found, out, err = complete(*arguments)
    assert found == code, err
    assert not out or code == 1  # of what was read
    assert len(err.splitlines()) == 1, err
    assert "Traceback" not in err
    assert "internal error" not in err
    return err.removeprefix("lowsparse complete: ").strip()


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def spoilt(m=60, n=12, *, holes=0.15, wrong=0.04, seed=5):
    """A table with units of its own in each column: truth, what is given, which entries are wrong."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((m, 2)) @ rng.standard_normal((2, n)) + 0.01 * rng.standard_normal((m, n))
    truth = truth * np.geomspace(0.1, 1000, n) + np.linspace(-50, 500, n)
    bad = rng.random((m, n)) < wrong
    given = truth + np.where(bad, 30 * truth.std(axis=0) * rng.choice([-1, 1], (m, n)), 0.0)
    given[rng.random((m, n)) < holes] = nan
    return truth, given, bad & ~np.isnan(given)


def stored(folder, X, ending, rows=None, columns=None):
    """X in a file; with labels where the format has them."""
    path = folder / f"table{ending}"
    labelled = ending not in (".npy", ".mtx", ".mat")
    rows = [f"day {k}" for k in range(X.shape[0])] if rows is None and labelled else rows
    columns = [f"s{k}" for k in range(X.shape[1])] if columns is None and labelled else columns
    if labelled:
        write_table(path, X, Table(ls.ObservedMatrix.from_dense(X), rows, columns))
    elif ending == ".npy":
        np.save(path, X)
    elif ending == ".mat":
        scipy.io.savemat(path, {"X": X})
    else:
        seen = ~np.isnan(X)
        scipy.io.mmwrite(path, sp.coo_array((X[seen], np.nonzero(seen)), shape=X.shape))
    return path


def stars(folder, ending=".csv", *, m=40, n=25, seed=3):
    """Records of a rank-one table, some without a value: the path, and the truth by user and film."""
    rng = np.random.default_rng(seed)
    truth = 3 + np.outer(rng.standard_normal(m), rng.standard_normal(n))
    i, j = np.divmod(rng.permutation(m * n)[: m * n // 2], n)
    values = truth[i, j] + NOISE * rng.standard_normal(i.size)
    values[rng.random(i.size) < 0.1] = nan
    path = folder / f"stars{ending}"
    users, films = np.array([f"u{k}" for k in range(m)]), 100 + np.arange(n)
    table = Table.from_records(users[i], films[j], values, names=("user", "film", "stars"))
    dense = np.full((m, n), nan)
    dense[i, j] = values
    order = [int(label[1:]) for label in table.rows]
    write_table(path, dense[order], table)
    return path, {(str(users[a]), int(films[b])): truth[a, b] for a in range(m) for b in range(n)}


# ---------------------------------------------------------------------- what comes out


@pytest.mark.parametrize("ending", WIDE)
def test_every_format_there_and_back(ending, tmp_path):
    truth, X, wrong = spoilt()
    path = stored(tmp_path, X, ending)
    before = path.read_bytes()
    facts = completed(path)
    found, given = read_table(facts["completed"]), read_table(path)
    assert path.read_bytes() == before
    assert Path(facts["completed"]).name == f"table-completed{ending}"
    assert found.rows.tolist() == given.rows.tolist()
    assert found.columns.tolist() == given.columns.tolist()
    dense, seen = found.M.to_dense(), ~np.isnan(X)
    np.testing.assert_array_equal(dense[seen], X[seen])  # bit for bit, errors too
    error = (np.abs(dense - truth) / truth.std(axis=0))[~seen]
    assert np.median(error) < 0.05
    assert error.max() < 0.5
    assert facts["filled"] == np.count_nonzero(~seen)
    assert facts["flagged"] == np.count_nonzero(wrong)
    assert (facts["left_empty"], facts["converged"], facts["held"]) == (0, True, "wide")


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npy"])
def test_the_list_of_outliers_is_the_truth(ending, tmp_path):
    truth, X, wrong = spoilt()
    path = stored(tmp_path, X, ending)
    facts = completed(path, "--out", tmp_path / f"done{ending}")
    listed = Path(facts["outliers"])
    assert listed.name == ("done-outliers.parquet" if ending == ".parquet" else "done-outliers.csv")
    reader = __import__("pyarrow.parquet" if ending == ".parquet" else "pyarrow.csv", fromlist=["x"])
    table = reader.read_table(listed) if ending == ".parquet" else reader.read_csv(listed)
    assert table.column_names == ["row", "column", "value", "expected", "deviations"]
    given = read_table(path)
    i = [given.rows.tolist().index(label) for label in table["row"].to_pylist()]
    j = [given.columns.tolist().index(label) for label in table["column"].to_pylist()]
    assert sorted(zip(i, j, strict=True)) == [tuple(place) for place in np.argwhere(wrong).tolist()]
    np.testing.assert_array_equal(table["value"], X[i, j])
    assert (np.abs(table["expected"].to_numpy() - truth[i, j]) < 0.2 * truth.std(axis=0)[j]).all()
    sure = table["deviations"].to_numpy()
    assert (np.diff(sure) <= 0).all()
    assert sure[-1] > 4


def test_clean_replaces_the_errors_and_nothing_else(tmp_path):
    truth, X, wrong = spoilt()
    path = stored(tmp_path, X, ".csv")
    facts = completed(path, "--clean")
    found = read_table(facts["completed"]).M.to_dense()
    kept = ~np.isnan(X) & ~wrong
    np.testing.assert_array_equal(found[kept], X[kept])
    assert (np.abs(found - truth) / truth.std(axis=0)).max() < 0.5
    assert facts["replaced"] == facts["flagged"] == np.count_nonzero(wrong)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".arrow", ".npz"])
def test_records_without_a_value_get_one(ending, tmp_path):
    path, truth = stars(tmp_path, ending)
    facts = completed(path, *RECORDS)
    names = {"row": "user", "col": "film", "value": "stars"}
    given, found = read_table(path, **names), read_table(facts["completed"], **names)
    np.testing.assert_array_equal(found.positions, given.positions)  # the same records in the same order
    seen = ~np.isnan(given.values)
    np.testing.assert_array_equal(found.values[seen], given.values[seen])
    assert facts["filled"] == np.count_nonzero(~seen) > 20
    pairs = zip(found.rows[found.positions[0]], found.columns[found.positions[1]], strict=True)
    expected = np.array([truth[str(user), int(film)] for user, film in pairs])
    assert np.abs(found.values - expected)[~seen].max() < 8 * NOISE
    assert np.median(np.abs(found.values - expected)[~seen]) < NOISE


def test_records_that_are_wrong_are_replaced_where_they_stand(tmp_path):
    path, truth = stars(tmp_path)
    lines = path.read_text().splitlines()
    user, film, _ = lines[7].split(",")
    lines[7] = f"{user},{film},99"
    path.write_text("\n".join(lines) + "\n")
    facts = completed(path, *RECORDS, "--clean")
    after = Path(facts["completed"]).read_text().splitlines()
    assert facts["flagged"] <= 3
    listed = Path(facts["outliers"]).read_text().splitlines()
    assert listed[1].startswith(f"{user},{film},99,")
    name, number, value = after[7].split(",")
    assert (name, number) == (user, film)
    assert abs(float(value) - truth[user, int(film)]) < 4 * NOISE
    changed = [one for one, other in zip(lines, after, strict=True) if one != other and not one.endswith(",")]
    assert sorted(changed) == sorted(line.rsplit(",", 2)[0] for line in listed[1:])


def test_all_pairs_of_records(tmp_path):
    path, truth = stars(tmp_path)
    facts = completed(path, *RECORDS, "--all")
    lines = [line.split(",") for line in Path(facts["completed"]).read_text().splitlines()[1:]]
    found = {(user, int(film)): float(value) for user, film, value in lines}
    assert found.keys() == truth.keys()
    assert np.median([abs(found[pair] - truth[pair]) for pair in truth]) < NOISE
    assert facts["filled"] == len(truth) - facts["observed"]
    given = {(user, int(film)): value for user, film, value in map(split, path.read_text().splitlines()[1:]) if value}
    assert all(found[pair] == float(value) for pair, value in given.items())


def split(line):
    return line.split(",")


def test_too_many_pairs_are_refused(tmp_path, monkeypatch):
    path, _ = stars(tmp_path)
    monkeypatch.setattr(room, "MAX_PAIRS", 999)
    assert "--all would write 1,000 records, more than the limit of 999" in fails(path, *RECORDS, "--all")
    monkeypatch.setattr(room, "MAX_CELLS", 100)
    table = stored(tmp_path, spoilt()[1], ".mtx")
    assert "60 x 12 = 720 numbers when completed" in fails(table)
    assert len(tree(tmp_path)) == 2


def test_what_excel_exports_comes_back_so(tmp_path):
    _, X, _ = spoilt(30, 4)
    path = tmp_path / "export.csv"
    rows = [";".join(["" if np.isnan(x) else f"{x!r}".replace(".", ",") for x in map(float, row)]) for row in X]
    lines = ["Tag;a;b;c;größe", *(f"{k:02d}.05.2024;{row}" for k, row in enumerate(rows, start=1))]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    facts = completed(path)
    content = Path(facts["completed"]).read_bytes()
    assert content.startswith(b"\xef\xbb\xbfTag;")
    after = content.decode("utf-8-sig").splitlines()
    assert after[0] == lines[0]
    for one, other in zip(lines[1:], after[1:], strict=True):
        for cell, written in zip(one.split(";"), other.split(";"), strict=True):
            assert written
            assert cell in ("", written)
    assert Path(facts["outliers"]).read_bytes().startswith(b"\xef\xbb\xbfseries;begin;end")


def test_columns_of_text_come_back_where_they_were(tmp_path):
    path = tmp_path / "towns.csv"
    body = [f'{k},"Bonn, am Rhein",{2 * k},2024-01-{k:02d},{3 * k}' for k in range(1, 25)]
    body[3] = '4,"Bonn, am Rhein",,2024-01-04,12'
    path.write_text("\n".join(["id,town,a,day,b", *body]) + "\n")
    facts = completed(path)
    after = Path(facts["completed"]).read_text().splitlines()
    assert after[:4] == ["id,town,a,day,b", *body[:3]]
    assert after[5:] == body[4:]
    assert facts["shape"] == [24, 2]
    assert completed(path, "--label", "b", "--force")["shape"] == [24, 1]
    again = read_table(facts["completed"])
    assert again.kept[1][2].to_pylist()[3] == "2024-01-04"


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_further_columns_of_records_come_back_in_their_places(ending, tmp_path):
    rng = np.random.default_rng(2)
    place = rng.permutation(600)[:400]
    columns = {
        "stars": pa.array(np.where(rng.random(400) < 0.1, nan, 1.5 + place % 20 + place // 20), from_pandas=True),
        "when": pa.array([f"2024-01-{k % 28 + 1:02d}" for k in range(400)]),
        "film": pa.array(place % 20),
        "note": pa.array([None if k % 3 else f"a, {k}" for k in range(400)]),
        "user": pa.array(place // 20),
    }
    path = tmp_path / f"t{ending}"
    module = __import__("pyarrow.parquet" if ending == ".parquet" else "pyarrow.csv", fromlist=["x"])
    write, read = (
        (module.write_table, module.read_table) if ending == ".parquet" else (module.write_csv, module.read_csv)
    )
    write(pa.table(columns), path)
    before, after = read(path), read(completed(path, *RECORDS)["completed"])
    assert after.column_names == before.column_names
    for name in ("when", "film", "note", "user"):
        assert after[name].to_pylist() == before[name].to_pylist()
    assert after["stars"].null_count == 0 < before["stars"].null_count


def test_pandas_finds_its_index_again(tmp_path):
    pandas = pytest.importorskip("pandas")
    _, X, _ = spoilt()
    frame = pandas.DataFrame(X, index=pandas.date_range("2024-01-01", periods=60, name="day"))
    frame.columns = [f"s{k}" for k in range(12)]
    frame.to_parquet(tmp_path / "t.parquet")
    facts = completed(tmp_path / "t.parquet")
    after = pandas.read_parquet(facts["completed"])
    assert after.index.equals(frame.index)
    assert after.index.name == "day"
    assert not after.isna().any(axis=None)
    pandas.testing.assert_frame_equal(after[frame.notna()], frame, check_freq=False)


def test_what_nobody_knows_stays_empty_and_is_counted(tmp_path):
    _, X, _ = spoilt()
    X[4] = nan
    X[:, 2] = nan
    facts = completed(stored(tmp_path, X, ".parquet"))
    found = read_table(facts["completed"]).M.to_dense()
    lost = np.isnan(found)
    assert lost[4].all()
    assert lost[:, 2].all()
    assert facts["left_empty"] == np.count_nonzero(lost) == 60 + 12 - 1
    assert facts["filled"] == np.count_nonzero(np.isnan(X) & ~lost)
    code, out, _ = complete(tmp_path / "table.parquet", "--force")
    assert code == 0
    assert "No value at all in 1 row and 1 column: 71 cells left empty." in out


def test_numbers_of_four_bytes_and_whole_numbers(tmp_path):
    _, X, _ = spoilt()
    np.save(tmp_path / "t.npy", X.astype(np.float32))
    assert np.load(completed(tmp_path / "t.npy")["completed"]).dtype == np.float32
    path = tmp_path / "whole.csv"
    path.write_text("k,a,b\n" + "".join(f"r{k},{k},{'' if k == 5 else 2 * k}\n" for k in range(30)))
    after = Path(completed(path)["completed"]).read_text().splitlines()
    assert after[1:6] == [f"r{k},{k},{2 * k}" for k in range(5)]
    assert abs(float(after[6].split(",")[2]) - 10) < 4


def test_columns_by_their_places(tmp_path):
    path, _ = stars(tmp_path)
    named = completed(path, *RECORDS)
    bare = tmp_path / "bare.csv"
    bare.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    placed = completed(bare, "--row", 0, "--col", 1, "--value", 2)
    assert Path(named["completed"]).read_text() == "user,film,stars\n" + Path(placed["completed"]).read_text()


def test_the_same_seed_gives_the_same_bits(tmp_path):
    path = stored(tmp_path, spoilt()[1], ".csv")
    one, other = (completed(path, "--out", tmp_path / name / "t.csv", "--seed", 7) for name in "ab")
    for name in ("completed", "outliers"):
        assert Path(one[name]).read_bytes() == Path(other[name]).read_bytes()


def test_the_rank_is_a_bound(tmp_path):
    path = stored(tmp_path, spoilt()[1], ".csv")
    assert completed(path, "--rank", 1)["rank"] == 1
    assert completed(path, "--rank", 100, "--force")["rank"] > 1


# ---------------------------------------------------------------------- what is said


def test_words_on_stdout_and_the_path_alone_if_quiet(tmp_path):
    path = stored(tmp_path, spoilt()[1], ".csv")
    code, out, err = complete(path)
    assert (code, err) == (0, "")
    assert "60 rows x 12 columns" in out
    assert str(tmp_path / "table-completed-report.html") in out
    code, out, err = complete(path, "--quiet", "--force")
    assert (code, out, err) == (0, f"{tmp_path / 'table-completed.csv'}\n", "")


def test_the_report_tells_of_the_run_and_labels_are_no_markup(tmp_path):
    _, X, _ = spoilt()
    rows = [f"<script>alert({k})</script>" for k in range(60)]
    path = stored(tmp_path, X, ".csv", rows=rows, columns=[f'"><img src=x onerror={k}>' for k in range(12)])
    facts = completed(path, "--clean")
    page = Path(facts["report"]).read_text()
    assert "<script>alert(" not in page
    assert "<img src=x" not in page
    assert "<span>complete</span>" in page
    assert "<span>--clean</span>" in page
    assert read_table(facts["completed"]).rows.tolist() == rows


def test_a_table_without_holes_may_be_records(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("user,item,rating\n" + "".join(f"{k % 5 + 3},{k},{k % 7}\n" for k in range(40)))
    code, out, _ = complete(path)
    assert code == 0
    assert "If these are records, give --row, --col and --value." in out


def noisy(folder, shape=(150, 8), seed=3):
    """A table of nothing but noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal(shape)
    X[rng.random(shape) < 0.1] = nan
    return stored(folder, X, ".csv")


def test_the_last_line_is_a_verdict(tmp_path):
    _, X, _ = spoilt()
    code, out, _ = complete(stored(tmp_path, X, ".csv"))
    assert code == 0
    assert out.splitlines()[-1].startswith("verdict: good (the error on held-out values is ")
    code, out, _ = complete(noisy(tmp_path), "--force")
    assert code == 0
    assert out.splitlines()[-1].startswith(
        "verdict: doubtful (nothing predicts the values, as in noise: missing values"
    )
    page = (tmp_path / "table-completed-report.html").read_text()
    assert "Doubtful: nothing predicts" in page
    reliability = page[page.index("Reliability") :]
    assert 'unseen">Good' not in reliability[: reliability.index("</ul>")]
    half = np.where(np.random.default_rng(4).random(X.shape) < 0.45, 1e4 * np.random.default_rng(5).random(X.shape), X)
    facts = completed(stored(tmp_path, half, ".csv"), "--force")
    assert facts["verdict"] != "good", facts


def test_one_value_among_the_outliers_may_mean_missing(tmp_path):
    _, X, _ = spoilt(wrong=0)
    coded = np.where(np.isnan(X), -9999.0, X)
    path = stored(tmp_path, coded, ".csv")
    code, out, _ = complete(path)
    assert code == 0
    assert re.search(
        r"verdict: doubtful \((\d+) of (\d+) outliers are -9999; if .*, give --missing -9999\)$", out.strip()
    )
    facts = completed(path, "--missing", "?,-9999", "--force")
    assert (facts["filled"], facts["verdict"]) == (np.count_nonzero(np.isnan(X)), "good")
    assert "-9999" not in Path(facts["completed"]).read_text()


def test_what_was_guessed_is_said(tmp_path):
    path = tmp_path / "t.csv"
    _, X, _ = spoilt()
    rows = [",".join([f"{x:.6f}" if x == x else "?" for x in row] + ["grün"]) for row in X]
    path.write_bytes("\n".join(rows).encode("latin-1"))
    code, out, _ = complete(path)
    assert code == 0
    assert "60 rows x 12 columns" in out
    printed = " ".join(out.split())
    assert "Not in UTF-8: read as cp1252, and written so. The first line holds numbers, and is taken as data" in printed
    assert "Copied unchanged, as text or dates or by --label: 12." in printed
    after = (tmp_path / "t-completed.csv").read_bytes().decode("latin-1").splitlines()
    assert len(after) == 60
    for before, new in zip(rows, after, strict=True):
        assert all(a in (b, "?") for a, b in zip(before.split(","), new.split(","), strict=True))
    assert completed(path, "--header", "--force")["shape"] == [59, 12]


# ---------------------------------------------------------------------- stdin, stdout, other files


def test_from_stdin_to_stdout(tmp_path, monkeypatch):
    path = stored(tmp_path, spoilt()[1], ".csv")
    facts = completed(path)
    words, env = [sys.executable, "-m", "lowsparse", "complete", "-"], {**os.environ, "PYTHONPATH": PATH}
    done = subprocess.run(words, input=path.read_bytes(), env=env, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == Path(facts["completed"]).read_bytes()
    assert b"stdin: 60 rows x 12 columns" in done.stderr
    assert done.stderr.splitlines()[-1].startswith(b"verdict: good")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"k,a\nx,1\ny,2\nz,oops\n")))
    assert "stdin: line 4: 'oops' in column 'a' is not a number; if it stands for" in fails("-")
    assert "--json prints to stdout" in fails(path, "--out", "-", "--json", code=2)


def test_zip_and_excel_files_are_completed(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    _, X, _ = spoilt()
    table = read_table(stored(tmp_path, X, ".csv"))
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.write(tmp_path / "table.csv", "table.csv")
    facts = completed(tmp_path / "packed.zip")
    assert Path(facts["completed"]).name == "packed-completed.csv"
    write_table(tmp_path / "book.xlsx", table.M, table)
    facts = completed(tmp_path / "book.xlsx")
    assert Path(facts["outliers"]).name == "book-completed-outliers.xlsx"
    assert openpyxl.load_workbook(facts["outliers"]).active.max_row == facts["flagged"] + 1
    found = read_table(facts["completed"]).M.to_dense()
    np.testing.assert_allclose(found[~np.isnan(X)], X[~np.isnan(X)], rtol=1e-15)  # openpyxl writes 16 digits
    assert not np.isnan(found).any()
    assert "is not that of a table" in fails(tmp_path / "book.xlsx", "--out", tmp_path / "packed.zip", "--force")


# ---------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        (
            "user,film,stars\nann,7,4\n",
            ("--row", "user", "--col", "movie", "--value", "stars"),
            "no column 'movie'; its",
        ),
        ("user,film,stars\nann,7,4\nbob,7,good\n", RECORDS, "line 3: 'good' in column 'stars' is not a number"),
        ("k,a\nx,1\ny,2\nz,ca. 3\n", (), "line 4: 'ca. 3' in column 'a' is not a number; if it stands"),
        ("user,film,stars\nann,7,4\nann,7,5\n", RECORDS, "repeat a pair of labels, the first row 'ann', column 7"),
        ("user,film,stars\nann,7,\nbob,7,\n", RECORDS, "none of 2 records has a value"),
        ("user,film,stars\n", RECORDS, "has no record"),
        ("a,b\n1,2\n3,4,5\n", (), "line 3: 3 cells where 2 are expected"),
        ("k,a\nx,\ny,\n", (), "no entry is observed"),
        ("", (), "is empty"),
        ("k,a,b\nx,1,2\ny,3,1e308\nz,1,2\nu,2,3\n", (), "1e+308 in row 'y', column 'b' is too large to compute with"),
    ],
)
def test_a_bad_table_is_one_line(content, options, words, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(content)
    assert words in fails(path, *options)
    assert list(tree(tmp_path)) == ["t.csv"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--rank", "0"), "--rank must be auto or a whole number of 1 or more, not 0"),
        (("--rank", "two"), "--rank must be auto"),
        (("--seed", "-1"), "Invalid value for '--seed'"),
        (("--col", "a"), "records need --row, --col and --value"),
        (("--row", "a", "--value", "b"), "records need --row, --col and --value"),
        (("--all",), "--all is for records"),
        ((*RECORDS, "--label", "x"), "--label is for wide tables"),
        ((*RECORDS, "--memory", "1GB"), "--memory and --cluster are for records in .parquet"),
    ],
)
def test_bad_usage(options, words, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    assert words in fails(path, *options, code=2)
    assert list(tree(tmp_path)) == ["t.csv"]


def test_files_that_are_none(tmp_path):
    assert f"there is no file {tmp_path / 'no.csv'}" in fails(tmp_path / "no.csv")
    (tmp_path / "folder.csv").mkdir()
    assert "is a folder" in fails(tmp_path / "folder.csv")
    (tmp_path / "t.doc").write_text("")
    assert "known are .arrow, .csv" in fails(tmp_path / "t.doc")
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,4\n")
    assert "known are .arrow, .csv" in fails(tmp_path / "t.csv", "--out", tmp_path / "out.doc")
    assert "holds no labels" in fails(stored(tmp_path, spoilt()[1], ".parquet"), "--out", tmp_path / "out.mtx")


@pytest.mark.parametrize("taken", ["done.csv", "done-outliers.csv", "done-report.html"])
def test_nothing_is_overwritten_unless_forced(taken, tmp_path):
    path = stored(tmp_path, spoilt()[1], ".csv")
    (tmp_path / taken).write_text("mine")
    before = tree(tmp_path)
    assert f"{taken} exists: use --force" in fails(path, "--out", tmp_path / "done.csv")
    assert tree(tmp_path) == before
    completed(path, "--out", tmp_path / "done.csv", "--force")
    after = tree(tmp_path)
    assert after.keys() == {"table.csv", "done.csv", "done-outliers.csv", "done-report.html"}
    assert after[taken] != b"mine"


def test_on_40_columns_words_are_wrapped_and_paths_are_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    X = spoilt()[1]
    X[4] = nan
    out = tmp_path / "a name of some words.csv"
    code, said, _ = complete(stored(tmp_path, X, ".csv"), "--out", out)
    assert code == 0
    words, written, verdict = said.split("\n\n")
    assert "No value at all in 1 row:" in words
    assert all(len(line) <= 40 for line in words.splitlines()[1:])  # the first tells the path of the table
    assert [line.split(maxsplit=1)[0] for line in written.splitlines()] == ["completed", "outliers", "report"]
    assert f"completed  {out}" in written.splitlines()
    assert len(verdict.splitlines()) == 1


def test_the_report_tells_the_command(tmp_path):
    path = stored(tmp_path, spoilt()[1], ".csv").rename(tmp_path / "my table.csv")
    completed(path, "--clean", "--seed", 3)
    printed = repeated_command(tmp_path / "my table-completed-report.html")
    assert printed == ["lowsparse", "complete", str(path), "--clean", "--seed", "3", "--json", "--force"]
    assert complete(*printed[2:])[0] == 0


def test_the_table_itself_is_never_overwritten(tmp_path):
    path = stored(tmp_path, spoilt()[1], ".csv")
    same = path.rename(tmp_path / "x-outliers.csv")
    before = tree(tmp_path)
    for out in (same, tmp_path / "x.csv"):
        assert "is the table itself: choose another --out" in fails(same, "--out", out, "--force")
    assert tree(tmp_path) == before


@pytest.mark.slow
@POSIX
def test_a_full_disk_leaves_what_was_there(tmp_path):
    path = stored(tmp_path, spoilt(200)[1], ".csv")
    (tmp_path / "table-completed.csv").write_text("old")
    before = tree(tmp_path)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))"
    code = f"{limit}; from lowsparse.cli import main; main()"
    words = [sys.executable, "-c", code, "complete", str(path), "--force", "-q"]
    env = {**os.environ, "PYTHONPATH": PATH}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "cannot write" in done.stderr
    assert tree(tmp_path) == before


@pytest.mark.slow
@POSIX
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_by_a_signal_nothing_is_left(number, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", PATH)
    rng = np.random.default_rng(1)
    np.save(tmp_path / "t.npy", rng.standard_normal((3000, 600)))
    before = tree(tmp_path)
    child = interruptible([sys.executable, "-m", "lowsparse", "complete", "t.npy"], tmp_path)
    assert child.stdout is not None
    child.stdout.readline()  # it has read the table
    time.sleep(0.2)
    child.send_signal(number)
    _, err = child.communicate(timeout=60)
    assert child.returncode == (130 if number == signal.SIGINT else 143)
    assert err.strip().splitlines()[-1] == "lowsparse complete: stopped; nothing was written"
    assert tree(tmp_path) == before
    assert os.listdir(tmp_path) == ["t.npy"]


# ---------------------------------------------------------------------- odd tables, damaged files

cells = st.one_of(
    st.none(),
    st.integers(-5, 5).map(float),
    st.floats(-1e6, 1e6, width=32),
    st.sampled_from([0.0, -0.0, 1e-300, 5e-324, 1e20, -1e30, 1e150, 1e308, 1.5]),
)
labels = st.one_of(
    st.text(max_size=6),
    st.sampled_from(["", "a", "<b>", 'x"y', "ä\u202e", "=1+1", "1", "007", "nan", "\U0001f600", ";", "\t"]),
)


@st.composite
def wide_tables(draw):
    m, n = draw(st.integers(1, 7)), draw(st.integers(1, 5))
    if draw(st.booleans()):
        X = np.full((m, n), draw(st.sampled_from([0.0, 3.0, -1e10])))
    else:
        X = np.array(draw(st.lists(cells, min_size=m * n, max_size=m * n)), float).reshape(m, n)
    if np.isnan(X).all():
        X[0, 0] = 1.0
    rows = [label or "-" for label in draw(st.lists(labels, min_size=m, max_size=m))]
    columns = [label or "-" for label in draw(st.lists(labels, min_size=n, max_size=n))]
    return X, rows, columns


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
@odd
@given(table=wide_tables())
@example(table=(np.array([[nan, 1e308, 0.0], [5e-324, 1.0, nan]]), ["a", "a"], ["x", "x", "<i>"]))
def test_odd_tables_never_give_a_traceback(ending, table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    X, rows, columns = table
    path = stored(folder, X, ending, rows=rows, columns=columns)
    before = tree(folder)
    code, out, err = complete(path, "--json", "--quiet")
    assert code in (0, 1), err
    assert "internal error" not in err
    assert path.read_bytes() == before[path.name]
    if code:
        assert len(err.splitlines()) == 1, err
        assert tree(folder) == before
        return
    facts = json.loads(out)
    if ending == ".csv":  # labels of text may be read as numbers, and back
        return
    given, found = read_table(path).M.to_dense(), read_table(facts["completed"]).M.to_dense()
    seen = ~np.isnan(given)
    assert given[seen].tobytes() == found[seen].tobytes()
    assert np.count_nonzero(np.isnan(found)) == facts["left_empty"]


@pytest.mark.slow
@pytest.mark.parametrize("ending", [*WIDE, ".mtx.gz"])
def test_damaged_files_are_one_line(ending, tmp_path):
    _, X, _ = spoilt(12, 5)
    path = stored(tmp_path, X, ending.removesuffix(".gz") if ending == ".mtx.gz" else ending)
    if ending == ".mtx.gz":
        import gzip

        path = path.rename(tmp_path / "whole.mtx")
        (tmp_path / "table.mtx.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        path.unlink()
        path = tmp_path / "table.mtx.gz"
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    cuts = (0, 1, 7, len(whole) // 3, len(whole) - 1, *rng.integers(0, len(whole), 5), *[len(whole)] * 15)
    for cut in cuts:
        content = bytearray(whole[: int(cut)])
        changed = rng.integers(1, 6) if cut == len(whole) else rng.integers(0, 3)
        for place in rng.integers(0, max(len(content), 1), changed):
            content[place : place + 1] = bytes([int(rng.integers(256))])
        path.write_bytes(content)
        code, _, err = complete(path, "--quiet", "--out", tmp_path / "out.npz")
        assert code in (0, 1)
        assert "internal error" not in err, err
        if code:
            assert len(err.splitlines()) == 1
            assert tree(tmp_path) == {path.name: bytes(content)}
        for made in tmp_path.glob("out*"):
            made.unlink()


def test_an_arrow_file_with_wrong_lengths_is_an_error(tmp_path):
    """Arrow itself would read far outside of the file, and end the process."""
    path = stored(tmp_path, spoilt()[1], ".arrow", rows=[f"day {k:02d}" for k in range(60)])
    content, lengths = path.read_bytes(), 6 * np.arange(61, dtype="<i4")
    assert content.count(lengths.tobytes()) == 1
    lengths[20:40] += 1 << 30
    path.write_bytes(content.replace((6 * np.arange(61, dtype="<i4")).tobytes(), lengths.tobytes()))
    assert "is damaged" in fails(path)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_matrix_market_files_that_are_cut_or_changed_are_errors(data, tmp_path):
    """SciPy's own reader ends the process on some of these."""
    path = tmp_path / "t.mtx"
    kind = data.draw(st.sampled_from(["general", "symmetric", "skew-symmetric"]))
    rng = np.random.default_rng(1)
    A = sp.csr_array(np.where(rng.random((9, 9)) < 0.5, rng.random((9, 9)), 0.0))
    A = A if kind == "general" else A + A.T if kind == "symmetric" else A - A.T
    held = A.toarray() if data.draw(st.booleans()) else A
    scipy.io.mmwrite(path, held, symmetry=kind)
    found = read_market(path)
    np.testing.assert_array_equal(found.toarray() if sp.issparse(found) else found, A.toarray())
    content = bytearray(path.read_bytes())
    content = content[: data.draw(st.integers(0, len(content)))]
    for _ in range(data.draw(st.integers(0, 3))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with suppress(ValueError):
        read_table(path)


def test_counts_are_kept_and_too_many_replacements_are_refused(tmp_path):
    rng = np.random.default_rng(31)
    counts = rng.poisson(0.65, (400, 12)).astype(float)
    X = np.where(rng.random(counts.shape) < 0.1, nan, counts)
    np.save(tmp_path / "counts.npy", X)
    facts = completed(tmp_path / "counts.npy", "--clean", "--out", tmp_path / "a.npy")
    found = np.load(tmp_path / "a.npy")
    seen = ~np.isnan(X)
    assert facts["flagged"] < 0.01 * seen.sum()
    assert np.count_nonzero((found != X)[seen]) == facts["replaced"] == facts["flagged"]
    assert np.abs(found[~seen] - 0.65).max() < 0.3  # the mean: nothing predicts them
    L = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 30))
    np.save(tmp_path / "spoilt.npy", L + 20.0 * (rng.random(L.shape) < 0.25))
    line = fails(tmp_path / "spoilt.npy", "--clean", "--out", tmp_path / "b.npy")
    assert "more than 20 %" in line
    assert "--max-replaced" in line
    assert not (tmp_path / "b.npy").exists()
    assert completed(tmp_path / "spoilt.npy", "--clean", "--max-replaced", "0.4", "--out", tmp_path / "b.npy")[
        "replaced"
    ]


@pytest.mark.parametrize(("yes", "no"), [("True", "False"), ("TRUE", "FALSE"), ("true", "false")])
def test_true_and_false_stay_what_they_are(tmp_path, yes, no):
    rng = np.random.default_rng(61)
    scores = rng.standard_normal((150, 2))
    X = scores @ rng.standard_normal((2, 6)) + 0.1 * rng.standard_normal((150, 6))
    truth = scores[:, 0] > 0
    hidden = rng.random(150) < 0.15
    words = np.where(hidden, "", np.where(truth, yes, no))
    lines = [
        "id,a,b,c,d,e,f,open",
        *(f"r{i}," + ",".join(f"{x:.3f}" for x in X[i]) + f",{words[i]}" for i in range(150)),
    ]
    path = tmp_path / "doors.csv"
    path.write_text("\n".join(lines) + "\n")
    completed(path)
    found = np.array([line.split(",")[-1] for line in (tmp_path / "doors-completed.csv").read_text().split()[1:]])
    assert set(found) == {yes, no}
    assert np.array_equal(found[~hidden], words[~hidden])
    assert np.mean((found == yes) == truth) > 0.95
    table = read_table(path)
    assert table.truths == (6,)
    write_table(tmp_path / "doors.parquet", table.M.to_dense(), table)
    completed(tmp_path / "doors.parquet", "--force")
    column = pa.parquet.read_table(tmp_path / "doors-completed.parquet")["open"]
    assert column.type == pa.bool_()
    assert np.array_equal(np.array(column.to_pylist()), found == yes)


def test_rows_that_are_wrong_as_a_whole_are_named_with_their_cells(tmp_path):
    rng = np.random.default_rng(62)
    X = 5 + rng.standard_normal((120, 2)) @ rng.standard_normal((2, 14)) + 0.1 * rng.standard_normal((120, 14))
    X[[7, 40]] = 5 + 3 * rng.standard_normal((2, 14))
    X[90, 3] += 50  # a cell is no row
    X[100:112, 5] = 5.125
    X[7, 2] = nan
    table = Table(ls.ObservedMatrix.from_dense(X), [f"r{i}" for i in range(120)], [f"c{j}" for j in range(14)])
    write_table(tmp_path / "X.csv", X, table)
    facts = completed(tmp_path / "X.csv")
    assert facts["bad_rows"] == ["r7", "r40"]
    _, out, _ = complete(tmp_path / "X.csv", "--force")
    assert "2 rows do not fit the others as a whole: r7 (c" in " ".join(out.split())
    assert "Missing values there (1) are filled by what fits the row itself" in " ".join(out.split())
    assert "and flagged: c5 at 5.125." in " ".join(out.split())
    assert "r40 (c" in (tmp_path / "X-completed-report.html").read_text()
