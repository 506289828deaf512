"""Tables: labels and values come out of every file as they went in, and what is wrong is named."""

import datetime
import decimal
import gzip
import string
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lowsparse as ls
from lowsparse.entries.files import read_matrix
from lowsparse.entries.files.numbers import is_missing, is_number
from lowsparse.tables import Layout, Table, read_table, write_table

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.feather")
nan = np.nan
COLUMNS = [".csv", ".tsv", ".csv.gz", ".parquet", ".arrow", ".feather"]
quick = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def written(tmp_path, content, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def wide(X, rows, columns, **layout):
    return Table(ls.ObservedMatrix.from_dense(X), rows, columns, Layout(**layout))


def assert_same(found, expected):
    assert found.M.fingerprint() == expected.M.fingerprint()
    for side in ("rows", "columns"):
        one, other = getattr(found, side), getattr(expected, side)
        assert one.dtype.kind == other.dtype.kind
        assert one.tolist() == other.tolist()
    assert (found.positions is None) == (expected.positions is None)
    if found.positions is not None:
        np.testing.assert_array_equal(found.positions, expected.positions)


# ---------------------------------------------------------------------- records

day = datetime.date(2020, 1, 1)
berlin = datetime.timezone(datetime.timedelta(hours=1))
LABELS = {
    "text": ["b", "a", "ä", "a"],
    "digits": ["10", "9", "010", "9"],
    "integers": np.array([7, -3, 2**40, -3]),
    "small integers": np.array([7, 3, 200, 3], np.uint8),
    "foreign byte order": np.array([7, 3, 200, 3], ">i4"),
    "floats": [0.5, -1.5, 1e300, -1.5],
    "zeros": [0.5, 0.0, 1.0, -0.0],
    "half": np.array([0.5, 0.25, 2, 0.25], np.float16),
    "truth": [True, False, True, False],
    "bytes": np.array([b"b", b"a", b"c", b"a"]),
    "dates": [day, datetime.date(1999, 1, 1), day, datetime.date(1999, 1, 1)],
    "days": np.array(["2020-01-03", "2020-01-01", "2020-01-02", "2020-01-01"], "M8[D]"),
    "times": np.array([9, 3, 5, 3], "M8[us]"),
    "zoned": [datetime.datetime(2020, 1, d, tzinfo=berlin) for d in (3, 1, 2, 1)],
    "decimals": [decimal.Decimal(x) for x in ("1.5", "0.5", "2.5", "0.5")],
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_every_kind(kind, tmp_path):
    labels = LABELS[kind]
    plain = labels.tolist() if isinstance(labels, np.ndarray) else labels
    expected = sorted(set(plain))
    table = Table.from_records(labels, [1, 1, 2, 2], [1.0, 2.0, 3.0, 4.0])
    assert table.rows.tolist() == expected
    cells = {(expected[i], j): v for i, j, v in zip(*np.nonzero(table.M.to_dense() > 0), [0] * 9, strict=False)}
    assert len(cells) == table.M.nnz == 4
    dense = table.M.to_dense()
    for label, column, value in zip(plain, [0, 0, 1, 1], [1.0, 2.0, 3.0, 4.0], strict=True):
        assert dense[expected.index(label), column] == value
    for ending in (".parquet", ".arrow"):
        write_table(tmp_path / f"t{ending}", table.M, table)
        assert_same(read_table(tmp_path / f"t{ending}", row="row", col="column", value="value"), table)


def test_columns_of_every_library():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    words, values = ["b", "a", "b", "c"], [1.0, None, 3.0, 4.0]
    columns = [2, 1, 1, 2]
    expected = Table.from_records(words, columns, values)
    assert (expected.rows.tolist(), expected.columns.tolist(), expected.missing) == (["a", "b", "c"], [1, 2], 1)
    np.testing.assert_array_equal(expected.M.to_dense(), [[nan, nan], [3, 1], [nan, 4]])
    unused = pd.Series(pd.Categorical(words, categories=["z", "c", "b", "a", "unused"]))
    for rows in (
        np.array(words),
        np.array(words, object),
        pd.Series(words, index=[3, 2, 1, 0]),
        pd.Series(words, dtype="string"),
        unused,
        pl.Series(words),
        pl.Series(words, dtype=pl.Categorical),
        pl.Series(words, dtype=pl.Enum(["c", "unused", "a", "b"])),
        pa.array(words),
        pa.chunked_array([words[:1], words[1:]]),
        pa.chunked_array([pa.array(words[:2]).dictionary_encode(), pa.array(words[2:]).dictionary_encode()]),
        pa.DictionaryArray.from_arrays([2, 0, 3, 1], ["a", "c", "b", "b"]),
    ):
        assert_same(Table.from_records(rows, columns, values), expected)
    for numbers in (
        np.array([1, nan, 3, 4], np.float64),
        np.ma.MaskedArray([1.0, 9.0, 3.0, 4.0], [False, True, False, False]),
        pd.Series([1, None, 3, 4], dtype="Int64"),
        pl.Series([1, None, 3, 4]),
        pa.array([1, None, 3, 4]),
    ):
        assert_same(Table.from_records(words, columns, numbers), expected)
    narrow = Table.from_records(words, columns, np.array([1, nan, 3, 4], np.float32))
    assert narrow.M.dtype == np.float32


@quick
@given(st.integers(0, 2**32 - 1))
def test_records_agree_with_pandas(seed):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(seed)
    cells = rng.permutation(40)[: rng.integers(1, 30)]
    frame = pd.DataFrame({"user": cells // 8 * 10, "film": np.array(list(string.ascii_letters))[cells % 8]})
    frame["stars"] = rng.standard_normal(len(frame))
    table = Table.from_records(frame["user"], frame["film"], frame["stars"])
    pivot = frame.pivot(index="user", columns="film", values="stars")
    assert table.rows.tolist() == pivot.index.tolist()
    assert table.columns.tolist() == pivot.columns.tolist()
    np.testing.assert_array_equal(table.M.to_dense(), pivot.to_numpy())
    np.testing.assert_array_equal(table.M.to_dense()[table.positions], frame["stars"])


def test_a_label_without_a_value_has_a_place():
    table = Table.from_records(["a", "b"], ["x", "y"], [1.0, nan])
    assert table.M.shape == (2, 2)
    assert table.missing == 1


@pytest.mark.parametrize(
    ("records", "error", "message"),
    [
        (
            (["a", "b", "a", "a"], [1, 1, 1, 1], [1.0, 2.0, 3.0, 4.0]),
            ValueError,
            "2 records repeat .* row 'a', column 1 "
            r"\(record 1 and record 3, with the values 1.0 and 3.0\): aggregate first",
        ),
        ((["a", None], [1, 1], [1.0, 2.0]), ValueError, "1 record without a label in 'row', the first at record 2"),
        (([0.5, nan], [1, 1], [1.0, 2.0]), ValueError, "without a label in 'row'"),
        ((["a", "b"], [1, None], [1.0, 2.0]), ValueError, "without a label in 'column'"),
        ((["a", "b"], [1, 1], [1.0, np.inf]), ValueError, "value of row 'b', column 1 is inf; leave it empty"),
        ((["a", "b"], [1, 1], [nan, None]), ValueError, "none of 2 records has a value"),
        (([], [], []), ValueError, "there is no record"),
        ((["a", "b"], [1], [1.0, 2.0]), ValueError, r"same length, they are \[2, 1, 2\]"),
        ((["a", 3], [1, 1], [1.0, 2.0]), TypeError, "'row' cannot be read as a column .* all text"),
        ((np.ones((2, 2)), [1, 1], [1.0, 2.0]), TypeError, "'row' cannot be read as a column"),
        ((["a", "b"], [1, 1], ["1", "x"]), TypeError, r"'value' is the column of values, but a column of string"),
        ((["a", "b"], [1, 1], [1j, 2j]), TypeError, "'value' cannot be read"),
    ],
)
def test_records_that_are_refused(records, error, message):
    with pytest.raises(error, match=message):
        Table.from_records(*records)


def test_the_same_pair_twice_is_fine_where_one_has_no_value():
    table = Table.from_records(["a", "a"], [1, 1], [nan, 5.0])
    assert (table.M.nnz, table.missing) == (1, 1)


def test_a_table_checks_its_labels():
    M = ls.ObservedMatrix.from_dense(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"rows holds \(3,\) labels"):
        Table(M, [1, 2, 3], [1, 2, 3])
    with pytest.raises(ValueError, match=r"use Table\.from_records"):
        Table(M, [1, 2], [1, 2, 3], Layout(names=("a", "b", "c")))
    with pytest.raises(ValueError, match="read-only"):
        Table(M, [1, 2], [1, 2, 3]).rows[0] = 5


# ---------------------------------------------------------------------- there and back

words = st.text(st.sampled_from(",;\t|\"'\r\n .-+0aAzä€😀"), max_size=6)
number = st.floats(-1e9, 1e9).map(lambda x: x + 0.0) | st.integers(-5, 5).map(float)


@st.composite
def tables(draw, ending):
    """Tables, wide or of records, with labels that the format knows."""
    m, n = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    text = ending.startswith((".csv", ".tsv"))
    # Text that is all whole numbers is read as numbers, and an empty label is none.
    label = words.filter(lambda w: w.strip() and not w.strip("-").isdecimal())
    row = draw(st.sampled_from([label, st.integers(-(10**17), 10**17)]))
    # A name that reads as a number or as no value makes the first line one of data.
    name = label.filter(lambda w: not is_number(w) and not is_missing(w)) if text else label
    column = draw(st.sampled_from([name, st.integers(-(10**17), 10**17)]))
    rows = draw(st.lists(row, min_size=m, max_size=m, unique=True))
    columns = draw(st.lists(column, min_size=n, max_size=n, unique=True))
    if not isinstance(columns[0], str):
        columns.sort()  # other numbers in the first line are data
    dense = np.array(draw(st.lists(number | st.just(nan), min_size=m * n, max_size=m * n))).reshape(m, n)
    dense[draw(st.integers(0, m - 1)), draw(st.integers(0, n - 1))] = 1.5
    dialect = {}
    if text:
        comma = draw(st.booleans())
        dialect = {"separator": ";" if comma else ",", "decimal": "," if comma else "."}
        dialect["encoding"] = draw(
            st.sampled_from(["utf-8", "utf-8-sig", "utf-16"] if ".gz" not in ending else ["utf-8"])
        )
    if draw(st.booleans()):
        return wide(dense, rows, columns, index=draw(st.sampled_from(["", "index"])), **dialect)
    order = draw(st.permutations(range(m * n)))
    i, j = np.divmod(np.array(order[: draw(st.integers(m * n // 2 + 1, m * n))]), n)
    if np.isnan(dense[i, j]).all():
        dense[i[0], j[0]] = 2.0
    made = Table.from_records(
        [rows[k] for k in i], [columns[k] for k in j], dense[i, j], names=("user", "film, or", "*")
    )
    return Table(
        made.M, made.rows, made.columns, Layout(names=made.layout.names, **dialect), made.positions, made.values
    )


ALIKE = (".tsv", ".csv.gz", ".arrow")  # written and read by the lines that .csv and .feather are


@pytest.mark.parametrize(
    "ending",
    [pytest.param(ending, marks=[pytest.mark.slow] if ending in ALIKE else []) for ending in (*COLUMNS, ".npz")],
)
@quick
@given(data=st.data())
def test_there_and_back(ending, tmp_path, data):
    table = data.draw(tables(ending))
    path = tmp_path / f"t{ending}"
    write_table(path, table.M, table)
    names = table.layout.names
    found = (
        read_table(path)
        if names is None
        else read_table(path, **dict(zip(("row", "col", "value"), names, strict=True)))
    )
    assert_same(found, table)
    if ending in COLUMNS:
        assert (found.layout.names, found.layout.index) == (table.layout.names, table.layout.index)
    if ending == ".csv":
        assert found.layout.encoding == table.layout.encoding


@pytest.mark.parametrize("ending", [".npy", ".npz", ".mtx", ".mtx.gz", ".mat", ".csv", ".parquet"])
@pytest.mark.parametrize("holes", [True, False])
def test_matrices_without_labels_there_and_back(ending, holes, tmp_path):
    X = np.array([[1.5, -2.0, 0.0], [0.1, 1 / 3, 1e-300]])
    X[0, 1] = nan if holes else 2.0
    table = wide(X, [0, 1], [0, 1, 2])
    write_table(tmp_path / f"t{ending}", X, table)
    assert_same(read_table(tmp_path / f"t{ending}"), table)


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".npz", ".npy"])
def test_single_precision_is_kept(ending, tmp_path):
    table = wide(np.array([[0.1, 0.2], [0.3, nan]], np.float32), [0, 1], [0, 1])
    write_table(tmp_path / f"t{ending}", table.M, table)
    assert read_table(tmp_path / f"t{ending}").M.fingerprint() == table.M.fingerprint()


def test_matlab_records_there_and_back(tmp_path):
    table = Table.from_records([10, 20, 10], ["x", "y", "long"], [1.0, nan, 3.0])
    write_table(tmp_path / "t.mat", table.M, table)
    assert_same(read_table(tmp_path / "t.mat", row="row", col="column", value="value"), table)


# ---------------------------------------------------------------------- completed tables


@pytest.fixture
def completed():
    L = ls.LowRank(np.arange(1.0, 4.0)[:, None], [[1.0, 10.0]])
    table = Table.from_records(["c", "a", "b", "c"], ["x", "x", "y", "y"], [3.0, 1.0, 99.0, None])
    return L, table


@pytest.mark.parametrize("ending", [*COLUMNS, ".npz"])
def test_records_are_completed_in_their_order(ending, completed, tmp_path):
    L, table = completed
    for values in (L, L.to_dense(), np.ma.MaskedArray(L.to_dense())):
        write_table(tmp_path / f"t{ending}", values, table)
        found = read_table(tmp_path / f"t{ending}", row="row", col="column", value="value")
        np.testing.assert_array_equal(found.positions, table.positions)
        np.testing.assert_array_equal(found.M.to_dense()[found.positions], [3.0, 1.0, 20.0, 30.0])


def test_all_pairs_and_some_pairs(completed, tmp_path):
    L, table = completed
    path = tmp_path / "t.csv"
    write_table(path, L, table, pairs="all")
    assert path.read_text() == "row,column,value\na,x,1\na,y,10\nb,x,2\nb,y,20\nc,x,3\nc,y,30\n"
    write_table(path, L, table, pairs=(np.array(["b", "b"]), ["y", "x"]))
    assert path.read_text() == "row,column,value\nb,y,20\nb,x,2\n"
    write_table(path, L, table, pairs=([], []))
    assert path.read_text() == "row,column,value\n"
    dense = wide(np.ones((3, 2)), [10, 20, 30], ["x", "y"])
    write_table(path, L, dense, pairs=(np.array([30], np.int8), ["x"]))
    assert path.read_text() == "row,column,value\n30,x,3\n"
    write_table(path, L, dense)
    assert path.read_text() == ",x,y\n10,1,10\n20,2,20\n30,3,30\n"
    for pairs, message in [
        ("some", "'all' or"),
        ((["b", "q"], ["x", "x"]), "no row 'q'"),
        ((["b"], [5.5]), "no column 5.5"),
        ((["b"], ["x", "y"]), "1 row labels and 2 column labels"),
    ]:
        with pytest.raises(ValueError, match=message):
            write_table(path, L, table, pairs=pairs)
    with pytest.raises(ValueError, match="not of the table's type"):
        write_table(path, L, dense, pairs=(["ten"], ["x"]))


def test_what_is_missing_is_left_empty(tmp_path):
    table = wide(np.array([[1.5, nan], [nan, 2.0]]), ["a", "b"], ["x", "y"], index="who")
    write_table(tmp_path / "t.csv", table.M, table)
    assert (tmp_path / "t.csv").read_text() == "who,x,y\na,1.5,\nb,,2\n"
    write_table(tmp_path / "t.feather", table.M, table)
    assert pa.feather.read_table(tmp_path / "t.feather")["x"].null_count == 1


def test_in_many_batches(monkeypatch, tmp_path):
    from lowsparse.tables import write

    rng = np.random.default_rng(4)
    X = rng.standard_normal((37, 5))
    rows = [f"r{k}" for k in range(37)]
    tables = [wide(X, rows, list("abcde")), Table.from_records(np.repeat(rows, 5), np.tile([*"abcde"], 37), X.ravel())]
    for ending in COLUMNS:
        for table in tables:
            contents = []
            for size in (1 << 22, 20):
                monkeypatch.setattr(write, "BATCH", size)
                write_table(tmp_path / f"t{ending}", table.M, table)
                contents.append((tmp_path / f"t{ending}").read_bytes())
            named = {} if table is tables[0] else {"row": "row", "col": "column", "value": "value"}
            assert_same(read_table(tmp_path / f"t{ending}", **named), table)
            if ending in (".csv", ".tsv"):
                assert contents[0] == contents[1]


def test_an_earlier_file_survives_an_error(tmp_path, completed):
    L, table = completed
    path = written(tmp_path, "precious", "t.npy")
    with pytest.raises(ValueError, match=r"a \.npy file holds no records; \.csv"):
        write_table(path, L, table)
    with pytest.raises(ValueError, match=r"holds no labels; \.csv"):
        write_table(path, L, wide(np.ones((3, 2)), list("abc"), [0, 1]))
    with pytest.raises(ValueError, match=r"values are \(2, 2\)"):
        write_table(path, np.ones((2, 2)), table)
    assert path.read_text() == "precious"
    assert [file.name for file in tmp_path.iterdir()] == ["t.npy"]
    with pytest.raises(OSError, match=r"cannot write .*nowhere"):
        write_table(tmp_path / "nowhere" / "t.csv", L, table)


# ---------------------------------------------------------------------- text


@pytest.mark.parametrize(
    "content",
    [
        "who,mon,tue\nann,1.5,\nbob,3,-4e1\n",
        "\ufeffwho;mon;tue\nann;1,5;\nbob;3;-4e1\n",
        "who;mon;tue\r\nann;1.5;NA\r\nbob; 3;-40.0\r\n",
        "who\tmon\ttue\nann\t1,5\t\nbob\t+3,0\t-40\n",
        "who|mon|tue\nann|1.5|n/a\nbob|3|-40\n",
        "\n\nwho,mon,tue\nann,1.5,NaN\n\nbob,3,-40\n\n",
        "mon,tue\nann,1.5,null\nbob,3,-40\n",  # as R writes it
        "who,mon,tue,\nann,1.5,,\nbob,3,-40,\n",
        '"who","mon","tue"\n"ann",1.5,""\n"bob",3,-40\n',
    ],
)
def test_text_as_people_write_it(content, tmp_path):
    for name, packed in (("t.csv", content.encode()), ("t.csv.gz", gzip.compress(content.encode()))):
        table = read_table(written(tmp_path, packed, name))
        assert (table.rows.tolist(), table.columns.tolist()) == (["ann", "bob"], ["mon", "tue"])
        np.testing.assert_array_equal(table.M.to_dense(), [[1.5, nan], [3, -40]])
    utf16 = content.removeprefix("\ufeff").encode("utf-16")
    np.testing.assert_array_equal(read_table(written(tmp_path, utf16)).M.to_dense(), [[1.5, nan], [3, -40]])


@pytest.mark.parametrize(
    ("content", "rows", "columns"),
    [
        ("a,b\n5,6\n7,8\n", [0, 1], ["a", "b"]),
        ("1.5,2.5\n5,6\n7,8\n", [0, 1, 2], [0, 1]),
        ("3,1\n5,6\n7,8\n", [0, 1, 2], [0, 1]),
        ("2001,2002\n5,6\n7,8\n", [0, 1], [2001, 2002]),
        (",400.5,401.5\n5,6,7\n7,8,9\n", [5, 7], ["400.5", "401.5"]),
        ("id,x\n5,6\n7,8\n", [5, 7], ["x"]),
        ("k,x\n0,6\n1,8\n2,9\n", [0, 1, 2], ["x"]),
        ("k,x\n1,6\n2,8\n", [0, 1], ["k", "x"]),
        ("k,x\n1,6\n2,8\n4,8\n", [0, 1, 2], ["k", "x"]),
        ("k,x\n5,6\n6,8\n7,9\n", [0, 1, 2], ["k", "x"]),
        ("day,x\n2020-01-01,6\n2020-01-02,8\n", ["2020-01-01", "2020-01-02"], ["x"]),
        ("zip,x\n01234,6\nx,8\n", ["01234", "x"], ["x"]),
        ("id,x\n01234,6\n12345,8\n", ["01234", "12345"], ["x"]),
        ("id,x,x\n5,6,7\n", [5], ["x", "x"]),
        ("x\n5\n\n7\n", [0, 1, 2], ["x"]),
        ("x\nann;1,5\nbob;2\n", ["ann", "bob"], ["x"]),  # as R writes it
        ("id,x\n99999999999999999999,6\n5,7\n", ["99999999999999999999", "5"], ["x"]),
        ('who,x\n"a\nb",6\n"c,""d",7\n', ["a\nb", 'c,"d'], ["x"]),
    ],
)
def test_which_lines_and_columns_are_labels(content, rows, columns, tmp_path):
    table = read_table(written(tmp_path, content))
    assert (table.rows.tolist(), table.columns.tolist()) == (rows, columns)
    assert table.M.shape == (len(rows), len(columns))


def test_labels_may_be_named(tmp_path):
    path = written(tmp_path, "x,day,y\n1,mon,2\n3,tue,4\n")
    table = read_table(path, row="day")
    assert (table.rows.tolist(), table.columns.tolist()) == (["mon", "tue"], ["x", "y"])
    np.testing.assert_array_equal(table.M.to_dense(), [[1, 2], [3, 4]])
    assert_same(read_table(path, row=1), table)


def test_records_by_place(tmp_path):
    path = written(tmp_path, "196\t242\t3\t881250949\n186\t302\t4\t891717742\n", "u.tsv")
    table = read_table(path, row=0, col=1, value=2)
    assert (table.rows.tolist(), table.columns.tolist()) == ([186, 196], [242, 302])
    np.testing.assert_array_equal(table.M.to_dense(), [[nan, 4], [3, nan]])
    assert table.layout.header is False
    write_table(path, table.M, table)
    assert path.read_text() == "196\t242\t3\n186\t302\t4\n"


def test_labels_of_text_stay_text_unless_all_are_whole_numbers(tmp_path):
    path = written(tmp_path, "a,b,v\n007,1,1\n7,2,2\nNA,-3,4\n")
    table = read_table(path, row="a", col="b", value="v")
    assert (table.rows.tolist(), table.columns.tolist()) == (["007", "7", "NA"], [-3, 1, 2])


def test_text_is_parsed_once(monkeypatch, tmp_path):
    import pyarrow.csv

    real, calls = pyarrow.csv.read_csv, []
    monkeypatch.setattr(pyarrow.csv, "read_csv", lambda *args: calls.append(1) or real(*args))
    path = written(tmp_path, "row,column,value\n" + "".join(f"r{k},c{k % 7},{k / 8}\n" for k in range(60_000)))
    assert read_table(path, row="row", col="column", value="value").M.nnz == 60_000
    read_table(written(tmp_path, "a,b\n1,2\n"))
    found = read_table(written(tmp_path, "a;b\nx;1,5\ny; +2,0 \n"))
    assert found.M.values.tolist() == [1.5, 2.0]
    assert len(calls) == 3


def test_numbers_that_turn_up_late(tmp_path):
    """Whole numbers in the first blocks, others later; and a line longer than a usual block."""
    name = 100 * "r"
    table = read_table(written(tmp_path, "who,x\n" + f"{name},1\n" * 42_000 + "s,2.5\n"))  # 4.3 MB
    assert (table.rows[-1], table.M.values[-1], table.M.nnz) == ("s", 2.5, 42_001)
    n = 4_300
    row = ",".join(["12." + 997 * "0"] * n)
    table = read_table(written(tmp_path, f"who,{','.join(f'c{k}' for k in range(n))}\na,{row}\nb,{row}\n"))
    np.testing.assert_array_equal(table.M.to_dense(), np.full((2, n), 12.0))


@pytest.mark.parametrize(
    ("content", "named", "message"),
    [
        ("", {}, "t.csv is empty"),
        ("\n\n", {}, "t.csv is empty"),
        ("who,x\n", {}, "names of columns and no row"),
        ("a,b,v\n", {"row": "a", "col": "b", "value": "v"}, "no record"),
        ("a,b,v\nx,1,2\n", {"row": "a", "col": "bb", "value": "v"}, "no column 'bb'; its columns are 'a', 'b', 'v'"),
        ("a,b,v\nx,1,2\n", {"row": 0, "col": 1, "value": 7}, "no column 7"),
        ("a,b,b\nx,1,2\n", {"row": "a", "col": "b", "value": "b"}, "2 columns 'b': give the position"),
        ("a,b,v\nx,1,2\n", {"row": "a", "col": "b"}, "give row, col and value"),
        ("a,b,v\nx,1,2\n", {"value": "v"}, "give row, col and value"),
        (
            "who,x\nann,1\n\nbob,1\ncid,err\n",
            {},
            r"t.csv: line 5: 'err' in column 'x' is not a number; give missing=\['err'\] .* as row or keep",
        ),
        ("a,b,v\nx,1,2\ny,1,two\n", {"row": "a", "col": "b", "value": "v"}, "line 3: 'two' in column 'v'"),
        ('who;x\n"ann\nlee";1,5\nbob;2,5\ncid;10.00,5\n', {}, "line 5: '10.00,5' .* with a decimal comma"),
        ("who,x\nann,2020-01-01\n", {}, "no column of numbers"),
        ("who,x\nann,1\n# no row\nbob,2,3\n", {}, "line 4: 3 cells where 2 are expected: 'bob,2,3'"),
        ("Stars\n\nwho,x\nann,1\nbob,2\n", {}, "line 3: 2 cells where 1 .*; remove what stands above the names"),
        ("who,x\nann,1\nbob,inf\n", {}, "line 3: inf in column 'x'; leave"),
        ("x,y\n1,1\ninf,2\n", {}, "t.csv: line 3: inf in column 'x'; leave"),
        ("who,x\nann,\nbob,\n", {}, "no entry is observed"),
        (
            "a,b,v\nx,1,2\nx,1,3\n",
            {"row": "a", "col": "b", "value": "v"},
            "row 'x', column 1 .line 2 and line 3.*aggregate",
        ),
        ("a,b,v\nx,1,2\n,1,3\n", {"row": "a", "col": "b", "value": "v"}, "without a label in 'a', the first at line 3"),
        ("who\nann\nbob\n", {}, "line 2: 'ann' in column 'who'"),
        (b"\xff\xfew\x00h\x00,", {}, "t.csv is no text: it is not in utf-16"),
        (b"\x1f\x8b\x00\x01,\x00\xff,\n,\n", {}, "t.csv"),
    ],
)
def test_text_that_is_wrong(content, named, message, tmp_path):
    with pytest.raises(ValueError, match=message) as caught:
        read_table(written(tmp_path, content), **named)
    assert "t.csv" in str(caught.value) or "give row" in message


# ---------------------------------------------------------------------- other files


def test_files_of_pandas(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": [1.5, nan], "y": pd.array([1, None], "Int64")}, index=pd.Index([30, 10], name="hour"))
    frame.to_parquet(tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    assert (table.rows.tolist(), table.columns.tolist()) == ([30, 10], ["x", "y"])
    np.testing.assert_array_equal(table.M.to_dense(), [[1.5, 1], [nan, nan]])
    assert table.layout.index == "hour"
    frame.reset_index().to_feather(tmp_path / "t.feather")
    assert read_table(tmp_path / "t.feather", row="hour").rows.tolist() == [30, 10]
    frame.to_csv(tmp_path / "t.csv", sep=";", decimal=",")
    assert_same(read_table(tmp_path / "t.csv", row="hour"), table)
    frame.set_index("x", append=True).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="several levels"):
        read_table(tmp_path / "t.parquet")


def test_a_stream_of_arrow_and_dates_as_labels(tmp_path):
    dates = pa.array([datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)])
    data = pa.table({"day": dates, "x": [1.0, 2.0]})
    with pa.ipc.new_stream(str(tmp_path / "t.arrow"), data.schema) as writer:
        writer.write_table(data)
    table = read_table(tmp_path / "t.arrow")
    assert table.rows.tolist() == dates.to_pylist()
    write_table(tmp_path / "u.parquet", table.M, table)
    assert_same(read_table(tmp_path / "u.parquet"), table)


def test_only_the_columns_asked_for_are_read(tmp_path):
    import pyarrow.parquet as pq

    data = pa.table({"a": ["x", "y"], "blob": [{"k": 1}, {"k": 2}], "b": [1, 1], "v": [1.0, 2.0]})
    pq.write_table(data, tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet", row="a", col="b", value="v").M.nnz == 2
    assert [name for _, name, _ in read_table(tmp_path / "t.parquet").kept] == ["blob"]


def test_arrays_of_others(tmp_path):
    X = np.array([[1.0, nan], [3.0, 4.0]])
    expected = wide(X, [0, 1], [0, 1])
    sparse = expected.M.to_scipy()
    np.save(tmp_path / "a.npy", np.asfortranarray(X))
    sp.save_npz(tmp_path / "b.npz", sparse)
    np.savez(tmp_path / "c.npz", X=X, seed=3, names=np.array(["u", "v"]))
    scipy.io.mmwrite(tmp_path / "d.mtx", sparse.tocoo())
    scipy.io.savemat(tmp_path / "e.mat", {"X": X})
    scipy.io.savemat(tmp_path / "f.mat", {"X": sparse, "other": np.ones(3)[None, None]})
    for name in ("a.npy", "b.npz", "c.npz", "d.mtx", "e.mat", "f.mat"):
        assert_same(read_table(tmp_path / name), expected)
    np.savez(tmp_path / "g.npz", X=X, Y=2 * X)
    assert_same(read_table(tmp_path / "g.npz", value="X"), expected)
    np.savez(tmp_path / "h.npz", values=X, rows=np.array(["p", "q"]), columns=[5, 6])
    labelled = read_table(tmp_path / "h.npz")
    assert (labelled.rows.tolist(), labelled.columns.tolist()) == (["p", "q"], [5, 6])
    records = np.array([("a", 1, 2.0), ("b", 1, 3.0)], [("u", "U1"), ("i", int), ("v", float)])
    np.save(tmp_path / "r.npy", records)
    np.savez(tmp_path / "r.npz", **{name: records[name] for name in "uiv"})
    for name in ("r.npy", "r.npz"):
        table = read_table(tmp_path / name, row="u", col="i", value="v")
        assert (table.rows.tolist(), table.M.to_dense().tolist()) == (["a", "b"], [[2.0], [3.0]])


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz", ".parquet", ".arrow", ".npz", ".npy", ".mtx", ".mat"])
def test_read_matrix_is_the_matrix_of_the_table(ending, tmp_path):
    """Wide tables with and without labels, and records, as `read_table` reads them."""
    X = np.array([[1.5, nan], [2.5, 3.0], [0.0, 7.0]])
    path = tmp_path / f"t{ending}"
    labels = (["a", "b", "c"], ["x", "y"]) if ending not in (".npy", ".mtx", ".mat") else (range(3), range(2))
    write_table(path, X, wide(X, *map(np.array, labels)))
    np.testing.assert_array_equal(read_matrix(path).to_dense(), X)
    np.testing.assert_array_equal(read_matrix(str(path)).to_dense(), X)
    if ending in (".npy", ".mtx"):
        return
    records = Table.from_records([9, 7, 9], [1, 1, 2], [1.0, 2.0, 3.0])
    write_table(path, ls.LowRank([[2.0], [1.0]], [[1.0, 3.0]]), records)
    found = read_matrix(path, row="row", col="column", value="value")
    np.testing.assert_array_equal(found.to_dense(), [[2.0, nan], [1.0, 3.0]])


@pytest.mark.slow
def test_a_packed_text_that_is_cut_off(tmp_path):
    rng = np.random.default_rng(6)
    text = "who,x\n" + "".join(f"r{k},{x!r}\n" for k, x in enumerate(rng.random(200_000).tolist()))
    packed = gzip.compress(text.encode())
    assert read_table(written(tmp_path, packed, "t.csv.gz")).M.nnz == 200_000
    for size in (30, len(packed) - 1000):
        with pytest.raises(ValueError, match=r"t\.csv\.gz cannot be read"):
            read_table(written(tmp_path, packed[:size], "t.csv.gz"))


def test_files_that_are_wrong(tmp_path):
    np.savez(tmp_path / "two.npz", X=np.ones((2, 2)), Y=np.ones((2, 2)))
    np.savez(tmp_path / "none.npz", x=np.ones(3))
    np.save(tmp_path / "cube.npy", np.ones((2, 2, 2)))
    np.save(tmp_path / "objects.npy", np.array([[None, 1]]), allow_pickle=True)
    scipy.io.mmwrite(tmp_path / "twice.mtx", sp.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(2, 2)))
    (tmp_path / "folder.csv").mkdir()
    for name in ("x.npy", "x.npz", "x.mtx", "x.mtx.gz", "x.mat", "x.parquet", "x.arrow", "x.feather", "x.csv.gz"):
        written(tmp_path, "this is no such file at all, whatever its ending says\n" * 20, name)
        with pytest.raises(ValueError, match=rf"{name} .*(damaged|cannot be read)"):
            read_table(tmp_path / name)
    for name, named, message in [
        ("two.npz", {}, r"2 matrices of numbers among 'X' \(2, 2\), 'Y' \(2, 2\): name one as value"),
        ("two.npz", {"value": "Z"}, "no array 'Z'; it has 'X', 'Y'"),
        ("two.npz", {"row": "X"}, "give row, col and value for records"),
        ("none.npz", {}, "a matrix needs 2 dimensions"),
        ("cube.npy", {}, "a matrix needs 2 dimensions"),
        ("objects.npy", {}, "objects.npy is no .npy file with numbers"),
        ("twice.mtx", {}, "twice.mtx: 1 duplicate entries"),
        ("folder.csv", {}, "is a folder"),
        ("table.doc", {}, r"table.doc is not that of a table; known are .*\.csv"),
        ("table.gz", {}, "not that of a table"),
    ]:
        with pytest.raises(ValueError, match=message):
            read_table(tmp_path / name, **named)
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing\.csv"):
        read_table(tmp_path / "nothing.csv")


def test_movies(tmp_path):
    """A real table: records, completed, in three formats."""
    source = Path(__file__).parents[2] / "shared" / "data" / "ml_latest_small.npz"
    if not source.exists():
        pytest.skip("the data folder ../shared/data is not here")
    named = {"row": "user", "col": "item", "value": "rating"}
    table = read_table(source, **named)
    with np.load(source) as data:
        users, items, ratings = (data[name] for name in named.values())
    assert table.M.nnz == users.size
    np.testing.assert_array_equal(table.rows[table.positions[0]], users)
    np.testing.assert_array_equal(table.columns[table.positions[1]], items)
    np.testing.assert_array_equal(table.M.to_dense()[table.positions], ratings)
    m, n = table.M.shape
    rng = np.random.default_rng(2)
    L = ls.LowRank(rng.standard_normal((m, 2)), rng.standard_normal((2, n)))
    for ending in (".csv", ".parquet"):
        write_table(tmp_path / f"t{ending}", L, table)
        found = read_table(tmp_path / f"t{ending}", **named)
        np.testing.assert_array_equal(found.positions, table.positions)
        np.testing.assert_array_equal(
            found.M.values.astype(np.float32), L.at(found.M.rows, found.M.columns_of_entries()).astype(np.float32)
        )
