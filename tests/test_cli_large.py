"""`lowsparse complete` with records larger than memory: what it gives in memory, from disk and on a cluster."""

import gc
import json
import logging
import operator
import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

import lowsparse as ls
from conftest import PATH, SMALL, interruptible
from lowsparse.cli.failure import CommandError
from lowsparse.cli.large import connect
from lowsparse.places.disk import sources
from lowsparse.places.disk.records import write_records

pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
COLUMNS = ("--row", "user", "--col", "item", "--value", "stars")


@pytest.fixture(scope="module")
def ratings(tmp_path_factory):
    """A folder of three files, and the same records in one."""
    home = tmp_path_factory.mktemp("ratings")
    M = ls.datasets.synthetic(300, 250, rank=2, density=0.5, outliers=0.1, noise=0.02, random_state=3).M
    order = np.random.default_rng(6).permutation(M.nnz)
    i, j, x = M.rows[order], M.columns_of_entries()[order], M.values[order]
    x[::50] = np.nan
    x[j == 5] = np.nan  # an item of which nothing is known
    items = np.array([f"item {k:04}" for k in range(M.shape[1])])
    table = pa.table({"user": 1000 + 7 * i, "when": np.arange(i.size), "item": items[j], "stars": pa.array(x)})
    pq.write_table(table, home / "all.parquet")
    (home / "parts").mkdir()
    for k, first in enumerate(range(0, i.size, 15_000)):
        pq.write_table(table.slice(first, 15_000), home / "parts" / f"{k}.parquet")
    return home


@pytest.fixture(scope="module")
def spoilt(ratings, tmp_path_factory):
    """The records, and others that cannot be completed."""
    home = tmp_path_factory.mktemp("spoilt")
    shutil.copytree(ratings, home, dirs_exist_ok=True)
    (home / "t.csv").write_text("a,b\n1,2\n")
    (home / "empty").mkdir()

    def write(folder, name="a", *, user=(3,), item=("x",), stars=(1.0,)):
        (home / folder).mkdir(exist_ok=True)
        table = pa.table({"user": pa.array(user), "item": pa.array(item), "stars": pa.array(stars, pa.float64())})
        pq.write_table(table, home / folder / f"{name}.parquet")

    write("broken")
    (home / "broken" / "a.parquet").write_bytes(b"PAR1 and no more")
    write("infinite", stars=(np.inf,))
    write("nameless", user=(3, None), item=("x", "y"), stars=(1.0, 2.0))
    write("nothing", user=(), item=(), stars=())
    write("unlike")
    write("unlike", "b", user=("three",))
    write("twice", user=(3, 3), item=("x", "x"), stars=(1.0, 2.0))
    return home


@pytest.fixture
def completed(command, tmp_path):
    def run(source, *options):
        out = tmp_path / f"{len(os.listdir(tmp_path))}.parquet"
        code, said, err = command("complete", source, *COLUMNS, "--out", out, "--json", *options)
        assert code == 0, err
        assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
        return json.loads(said)

    return run


def read(path):
    return pq.read_table(path).to_pandas()


@pytest.mark.parametrize("clean", [(), ("--clean",)])
def test_a_folder_is_completed_as_its_records_are_in_memory(ratings, completed, clean):
    inside = completed(ratings / "all.parquet", *clean)
    outside = completed(ratings / "parts", "--memory", SMALL, *clean)
    for name in ("shape", "observed", "filled", "left_empty", "empty_columns", "flagged", "replaced", "rank"):
        assert outside[name] == inside[name], name
    assert inside["left_empty"] > 100
    here, there = read(inside["completed"]), read(outside["completed"])
    assert list(there.columns) == ["user", "when", "item", "stars"]
    for name in ("user", "when", "item"):
        assert (here[name] == there[name]).all()
    np.testing.assert_allclose(there["stars"], here["stars"], rtol=1e-8, atol=1e-8)
    here, there = (read(facts["outliers"]).sort_values(["row", "column"]) for facts in (inside, outside))
    assert (here["row"].to_numpy() == there["row"].to_numpy()).all()
    np.testing.assert_allclose(there[["value", "expected"]], here[["value", "expected"]], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(there["deviations"], here["deviations"], rtol=1e-5)
    page = Path(outside["report"]).read_text(encoding="utf-8")
    assert "item 0007" in page
    assert "given, wrong, to be predicted" in page


def test_files_whose_columns_are_alike_are_completed_together(ratings, completed, tmp_path):
    """Labels with and without a dictionary, places of 4 and 8 bytes, whole numbers and others."""
    table = pq.read_table(ratings / "all.parquet").slice(0, 10_000)
    table = table.set_column(3, "stars", pa.array(np.round(table["stars"].to_numpy()), from_pandas=True))
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    pq.write_table(table, tmp_path / "one" / "a.parquet")
    first, second = table.slice(0, 4000), table.slice(4000)
    first = first.set_column(3, "stars", first["stars"].cast("int64")).set_column(
        0, "user", first["user"].cast("int32")
    )
    pq.write_table(first.set_column(2, "item", first["item"].dictionary_encode()), tmp_path / "two" / "a.parquet")
    pq.write_table(second, tmp_path / "two" / "b.parquet")
    one, two = (read(completed(tmp_path / name, "--rank", 1)["completed"]) for name in ("one", "two"))
    assert one.equals(two.astype(one.dtypes))


def test_the_report_of_many_values_shows_some_of_the_columns(ratings, completed, monkeypatch):
    monkeypatch.setattr("lowsparse.cli.large.SHOWN", 5000)
    facts = completed(ratings / "parts", "--memory", SMALL)
    page = Path(facts["report"]).read_text(encoding="utf-8")
    assert "The pictures and lists show 32 of 250 columns." in page
    assert "item 0008" in page
    assert "item 0009" not in page


@pytest.mark.slow
def test_the_matrix_on_disk_is_used_again_while_the_records_are_the_same(ratings, completed, tmp_path, monkeypatch):
    store = tmp_path / "store"
    parts = tmp_path / "parts"
    shutil.copytree(ratings / "parts", parts)
    first = completed(parts, "--store", store)
    assert {"columns", "rows-labels.npy", "columns-labels.npy"} <= set(os.listdir(store))
    made = []
    monkeypatch.setattr(sources, "write_records", lambda *given: made.append(given) or write_records(*given))
    again = completed(parts, "--store", store, "--memory", SMALL)
    assert not made
    assert again["filled"] == first["filled"]
    (store / "rows-labels.npy").write_bytes(b"cut off")
    completed(parts, "--store", store, "--memory", SMALL)
    assert len(made) == 1
    os.utime(parts / "0.parquet", (1, 1))
    completed(parts, "--store", store)
    assert len(made) == 2
    for _ in range(3):  # one matrix holds the other
        gc.collect()
    assert not [name for name in os.listdir(store) if name.startswith(".")]


@pytest.mark.slow
def test_records_are_completed_on_a_cluster(ratings, completed, client, tmp_path):
    inside = completed(ratings / "all.parquet", "--rank", 1)
    options = ("--cluster", client.scheduler.address, "--store", tmp_path / "store")
    outside = completed(ratings / "all.parquet", "--rank", 1, *options)
    assert (outside["filled"], outside["flagged"]) == (inside["filled"], inside["flagged"])
    np.testing.assert_allclose(read(outside["completed"])["stars"], read(inside["completed"])["stars"], rtol=1e-8)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("parts",), "which need --row, --col and --value"),
        (("all.parquet", "--memory", "1GB"), "which need --row, --col and --value"),
        (("parts", *COLUMNS, "--all"), "--all is for tables in memory"),
        (("parts", *COLUMNS, "--out", "x.csv"), "written as .parquet, not x.csv"),
        (("all.parquet", *COLUMNS, "--store", "s"), "--store is for records from disk: give --memory or --cluster"),
        (("parts", *COLUMNS, "--cluster", "tcp://127.0.0.1:1"), "--cluster needs --store"),
        (("parts", *COLUMNS, "--memory", "much"), "--memory must be a number of bytes or a text such as '1GB'"),
        (("parts", "--row", "user", "--col", "film", "--value", "stars"), "no column 'film'; it has user, when, item"),
        (("parts", "--row", "user", "--col", "stars", "--value", "item"), "'item' holds string, no numbers"),
        (("parts", "--row", "user", "--col", "user", "--value", "stars"), "must be three columns, not 'user', 'user'"),
        (("none", *COLUMNS, "--memory", "1GB"), "there is no file or folder none: check the path"),
        (("t.csv", *COLUMNS, "--memory", "1GB"), "t.csv: --memory and --cluster are for records in .parquet"),
        (("empty", *COLUMNS), "there is no .parquet file in the folder empty"),
        (("broken", *COLUMNS), f"{Path('broken', 'a.parquet')} cannot be read as a Parquet file"),
        (("infinite", *COLUMNS), "stars is inf for user 3 and item x: leave it empty if it is missing"),
        (("nameless", *COLUMNS), "1 records have no 'user': leave them out"),
        (("nothing", *COLUMNS), f"there is no record in {Path('nothing', 'a.parquet')}"),
        (("unlike", *COLUMNS), f"{Path('unlike', 'b.parquet')} and {Path('unlike', 'a.parquet')} hold columns of diff"),
        (("twice", *COLUMNS, "--store", "deep/er"), "several records have user 3 and item x: aggregate first"),
        (("parts", *COLUMNS, "--store", "t.csv"), "t.csv is not a folder: choose another --store"),
        (("parts", *COLUMNS, "--store", "s", "--cluster", "far"), "--cluster must be the address of a scheduler"),
        (("parts", *COLUMNS, "--store", "s", "--cluster", ""), "tcp://HOST:8786, not empty"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(spoilt, command, monkeypatch, options, line):
    monkeypatch.chdir(spoilt)
    before = sorted(os.listdir())
    code, _, err = command("complete", *options)
    assert code in (1, 2)
    (said,) = err.splitlines()
    assert line in said
    assert "internal error" not in said
    assert sorted(os.listdir()) == before


def test_a_scheduler_that_does_not_answer_is_named(ratings, command, tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("lowsparse.cli.large.TIMEOUT", 0.3)
    where = ("--cluster", "tcp://127.0.0.1:9", "--store", tmp_path / "s", "--out", tmp_path / "o.parquet")
    code, _, err = command("complete", ratings / "parts", *COLUMNS, *where)
    assert code == 1
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in err


@pytest.mark.parametrize("kind", ["CancelledError", "comm.CommClosedError"])
def test_a_scheduler_that_is_gone_is_named(client, caplog, kind):
    error = operator.attrgetter(kind)(pytest.importorskip("distributed"))("as Dask says it")
    log = logging.getLogger("distributed.client")

    def lost():
        with connect(client.scheduler.address):
            log.error("a traceback")
            raise error

    with pytest.raises(CommandError, match=r"scheduler at tcp://.* stopped answering"):
        lost()
    log.error("heard again")
    assert [record.message for record in caplog.records if record.name == log.name] == ["heard again"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("moment", ["reading", "solving"])
def test_ctrl_c_leaves_nothing(ratings, tmp_path, moment):
    code = f"""
import sys, time
import lowsparse.places.disk.records as records
from lowsparse.cli import main

def stuck(*_, **__):
    print("here", flush=True)
    while True:
        time.sleep(0.01)

if {moment!r} == "reading":
    records.sort_into = stuck
else:
    import lowsparse.imputation.model
    lowsparse.imputation.model.solve = stuck
sys.argv = ["lowsparse", "complete", {str(ratings / "parts")!r}, *{COLUMNS!r}, "--out", "done.parquet"]
main()
"""
    child = interruptible(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {PATH.split(os.pathsep)!r}\n{code}"], tmp_path
    )
    while child.stdout.readline().strip() != "here":
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=20)
    assert child.returncode == 130
    assert "stopped; nothing was written" in err
    assert not os.listdir(tmp_path)
