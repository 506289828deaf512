"""Text and Excel files as people have them: every row and letter comes back, and only what was missing is new."""

import csv
import datetime
import gzip
import io
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import lowsparse as ls
from lowsparse.entries.files.numbers import MISSING
from lowsparse.tables import read_table, write_table

pytest.importorskip("pyarrow")
nan = np.nan
quick = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])


def written(tmp_path, content, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def back(path, values=None, **options):
    """The bytes of the file when it is written again, with these values."""
    table = read_table(path, **options)
    out = path.with_name("back.csv")
    write_table(out, table.M if values is None else values, table)
    return out.read_bytes()


# ---------------------------------------------------------------------- there and back

letters = st.text(st.sampled_from("aäößéñ€ŠžAZ#'. -_"), min_size=1, max_size=5)
plain = st.floats(-1e6, 1e6).map(lambda x: f"{x:.3f}") | st.integers(-999, 999).map(str)
shown = {
    "plain": (plain, ".", ","),
    "tabs": (plain, ".", "\t"),
    "bars": (plain, ".", "|"),
    "percent": (st.integers(0, 100).map("{}%".format), ",", ";"),
    "dollars": (st.floats(0, 1e7).map("${:,.2f}".format), ".", ","),
    "euros": (st.floats(0, 1e7).map(lambda x: f"{x:,.2f} €".translate(str.maketrans(",.", ".,"))), ",", ";"),
}


@st.composite
def files(draw):
    """The bytes of a table in text, its numbers (NaN where a marker stands), and its cells."""
    kind = draw(st.sampled_from(sorted(shown)))
    cell, point, separator = shown[kind]
    m, n = draw(st.integers(2, 6)), draw(st.integers(1, 4))
    hole = st.sampled_from(sorted(MISSING - {""}))
    cells = [draw(st.lists(cell | hole if i else cell, min_size=n, max_size=n)) for i in range(m)]
    words = [[f"x{draw(letters)}" for _ in range(2)] for _ in range(m)]
    names = ["station", *(f"n{k}{draw(letters)}" for k in range(n)), "remark"]
    top = draw(st.lists(letters.map("# {}".format), max_size=2))
    file = io.StringIO(newline="")
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    file.write("".join(line + newline for line in top))
    writer = csv.writer(file, delimiter=separator, lineterminator=newline)
    writer.writerow(names)
    writer.writerows([one, *row, other] for (one, other), row in zip(words, cells, strict=True))
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]))
    return file.getvalue().encode(encoding), point, separator, cells, words, names


def number(cell, point):
    if cell.strip().lower() in MISSING:
        return nan
    digits = "".join(letter for letter in cell if letter in f"0123456789-{point}")
    return float(digits.replace(point, "."))


@quick
@given(file=files())
def test_what_is_read_is_written_again_to_the_letter(file, tmp_path):
    content, point, separator, cells, words, names = file
    path = written(tmp_path, content)
    table = read_table(path)
    assert back(path) == content
    numbers = np.array([[number(cell, point) for cell in row] for row in cells])
    np.testing.assert_array_equal(table.M.to_dense(), numbers)
    assert table.rows.tolist() == [one for one, _ in words]
    assert table.columns.tolist() == names[1:-1]
    filled = np.where(np.isnan(numbers), 7.25, numbers)
    after = back(path, filled).decode(table.layout.encoding)
    assert "\ufffd" not in after
    lines = [line for line in after.splitlines() if not line.startswith("#")]
    for found, row, (one, other) in zip(csv.reader(lines[1:], delimiter=separator), cells, words, strict=True):
        assert (found[0], found[-1]) == (one, other)
        for cell, new in zip(row, found[1:-1], strict=True):
            assert new == cell or (np.isnan(number(cell, point)) and number(new, point) == 7.25)


@quick
@given(content=st.binary(max_size=60).map(lambda b: b"k,a\nx,1\ny," + b), tail=st.booleans())
@example(content=b"k,a\nx\x81,1\ny,2\n", tail=False)  # not even Windows-1252
def test_any_bytes_come_back_or_are_refused(content, tail, tmp_path):
    path = written(tmp_path, content + (b"\nz,2\n" if tail else b"\n"))
    try:
        table = read_table(path)
    except ValueError:
        return
    again = back(path)
    write_table(path, table.M, table)
    assert back(path) == again == path.read_bytes()
    assert len(table.rows) >= 2
    assert ("\ufffd" in again.decode(table.layout.encoding)) == ("\ufffd" in content.decode(table.layout.encoding))


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_encodings(encoding, tmp_path):
    path = written(tmp_path, "größe,b,ort\nä,1.50,Köln\nü,-,Genève\n".encode(encoding))
    table = read_table(path)
    assert (table.rows.tolist(), table.kept[0][2].to_pylist()) == (["ä", "ü"], ["Köln", "Genève"])
    assert table.layout.index == "größe"
    assert back(path) == path.read_bytes()
    assert back(path, [[1.5], [2.5]]).decode(table.layout.encoding) == "größe,b,ort\nä,1.50,Köln\nü,2.5,Genève\n"


# ---------------------------------------------------------------------- the first line


@pytest.mark.parametrize(
    ("content", "header"),
    [
        ("1.5,2.5\n5,6\n7,8\n", False),
        ("1,2,3\n4,5,6\n7,8,9\n", False),
        ("0,1,2\n3,4,5\n6,7,8\n", False),
        ("0,1,2\n3.5,1,9\n6,7,8\n", True),
        ("3,7\n5,6\n9,8\n", False),
        (",7,2\n5,6,1\n9,8,1\n", False),
        (",7,8\n5,6,1\n-,8,1\n", False),
        ("NA,7,8\n5,6,1\n9,8,1\n", False),
        ("ann,1.5,2\nbob,3,1\n", False),
        ("ann,1.5,2,x\nbob,3,1,y\n", False),
        ("who,1.5,2,3.5\nbob,3,1,2\n", True),
        ("name,2001,2002\nbob,3,1\n", True),
        ("2001,2002\n3,1\n4,2\n", True),
        ("2001,2002\n2003,2004\n2005,2006\n", False),
        ("10,20,30,40,50\n3,1,5,2,2\n4,2,5,2,3\n", True),
        ("1,2,3,4,5\n3,4,5,6,7\n4,5,6,7,8\n", False),
        ("k,x\n1,6\n2,8\n", True),
        ("# k,x\n1,6\n2,8\n", True),
        ("# from the lab\n1,6\n2,8\n", False),
        ("#k,x\nann,6\nbob,8\n", True),
    ],
)
def test_whether_the_first_line_is_a_row(content, header, tmp_path):
    path = written(tmp_path, content)
    table = read_table(path)
    assert table.layout.header is header
    lines = [line for line in content.splitlines() if header or not line.startswith("#")]
    assert table.M.shape[0] == len(lines) - header
    assert back(path) == content.encode()
    if header:
        assert read_table(path, header=True).M.shape == table.M.shape
    if content[0].isdigit():
        assert read_table(path, header=False).M.shape[0] == content.count("\n")
        assert read_table(path, header=True).M.shape[0] == content.count("\n") - 1


# ---------------------------------------------------------------------- numbers, markers, labels


@pytest.mark.parametrize(
    "marker", ["", "-", "--", "?", ".", "missing", "Missing", "N/A", "n.a.", "#N/A", "NaN", "NULL"]
)
def test_markers_of_missing_values(marker, tmp_path):
    table = read_table(written(tmp_path, f"k,a,b\nx,1,{marker}\ny, {marker} ,2\n"))
    np.testing.assert_array_equal(table.M.to_dense(), [[1, nan], [nan, 2]])


def test_markers_of_ones_own(tmp_path):
    path = written(tmp_path, "k,a,b\nx,1,999\ny,-9999.0,2\nz,Fehlt,99\n")
    expected = [[1, nan], [nan, 2], [nan, 99]]
    np.testing.assert_array_equal(read_table(path, missing=["999", -9999, "fehlt"]).M.to_dense(), expected)
    assert back(path, missing=["999", -9999, "fehlt"]) == path.read_bytes()
    X = np.array([[1, 999], [-9999.0, 2]], np.float32)
    np.save(tmp_path / "t.npy", X)
    found = read_table(tmp_path / "t.npy", missing=[999, -9999])
    assert (found.M.nnz, found.M.dtype) == (2, np.float32)
    with pytest.raises(ValueError, match="all are given as missing"):
        read_table(tmp_path / "t.npy", missing=[999, -9999, 1, 2])


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["43%", "5 %", "-1.5%"], [43, 5, -1.5]),
        (["$4,473.08", "-$5", "$1,000,000"], [4473.08, -5, 1e6]),
        (["1.234,50", "7,25", "1.000.000"], [1234.5, 7.25, 1e6]),
        (["1 234,5 €", "2,5€", "\u22127 €"], [1234.5, 2.5, -7]),
        (["1'234.5", "7.25", "+1e3"], [1234.5, 7.25, 1000]),
        (["1,234", "999", "12"], [1234, 999, 12]),  # as thousands are grouped
        (["1,234", "0,999", "12,500"], [1.234, 0.999, 12.5]),
        (["1.234", "2.999", "12.500"], [1.234, 2.999, 12.5]),
    ],
)
@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_numbers_as_people_write_them(cells, numbers, separator, tmp_path):
    path = written(tmp_path, f"k{separator}a\n" + "".join(f"r{separator}{cell}\n" for cell in cells))
    assert read_table(path).M.to_dense()[:, 0].tolist() == numbers
    assert back(path) == path.read_bytes()


@pytest.mark.parametrize(("separator", "number"), [(";", 1000), ("|", 1), ("\t", 1), (",", 1)])
def test_a_point_groups_thousands_only_where_commas_are_decimal(separator, number, tmp_path):
    path = written(tmp_path, f"k{separator}a\nr{separator}0\ns{separator}1.000\n")
    assert read_table(path).M.to_dense()[:, 0].tolist() == [0, number]


def test_new_numbers_look_like_those_around_them(tmp_path):
    path = written(tmp_path, 'k,p,q\na,43%,"$4,473.08"\nb,-,?\n')
    assert back(path, [[43, 4473.08], [2.5, 12]]).decode().splitlines()[2] == "b,2.5%,$12"
    path = written(tmp_path, "k;p;q\na;1.234,50;7 €\nb;;\n")
    assert back(path, [[1234.5, 7], [2.5, 1.5]]).decode().splitlines()[2] == "b;2,5;1,5 €"


def test_comments_come_back_where_they_were(tmp_path):
    content = "\n# top\n# k,a\nk,a,b\nx,1,2\n# between, of three, cells\n# moved\ny,3,\n#end\n"
    path = written(tmp_path, content.replace("# between, of three, cells\n", ""))
    assert read_table(path).rows.tolist() == ["x", "y"]
    assert back(path) == path.read_bytes()
    hashes = written(tmp_path, "id,a\n#1,2\n#2,3\n")  # labels
    assert read_table(hashes).rows.tolist() == ["#1", "#2"]


def test_text_and_dates_are_labels_and_a_wrong_number_is_not(tmp_path):
    path = written(tmp_path, "a,day,b,code\n1,2024-01-01,2,x7\n3,2024-01-02,4,9\n5,2024-01-03,,x8\n")
    table = read_table(path)
    assert (table.columns.tolist(), [name for _, name, _ in table.kept]) == (["a", "b"], ["day", "code"])
    with pytest.raises(ValueError, match="line 3: '4l' in column 'b' is not a number"):
        read_table(written(tmp_path, "a,b\n1,2\n3,4l\n5,6\n7,8\n"))


# ---------------------------------------------------------------------- packed, streamed, Excel


def test_zip_and_streams(tmp_path):
    content = b"k,a\nx,1.50\ny,-\n"
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("folder/t.csv", content)
        archive.writestr("README", "about")
    for source in (tmp_path / "t.zip", io.BytesIO(content), io.BytesIO(gzip.compress(content))):
        table = read_table(source)
        write_table(tmp_path / "back.csv", table.M, table)
        assert (tmp_path / "back.csv").read_bytes() == content
    assert ls.solve(tmp_path / "t.zip", 1).L.shape == (2, 1)
    with zipfile.ZipFile(tmp_path / "t.zip", "a") as archive:
        archive.writestr("u.csv", content)
    with pytest.raises(ValueError, match=r"t\.zip holds 2 tables \(folder/t\.csv, u\.csv\): it must hold one"):
        read_table(tmp_path / "t.zip")
    with pytest.raises(ValueError, match=r"t\.zip cannot be read"):
        read_table(written(tmp_path, b"PK\x03\x04 and no more", "t.zip"))
    table = read_table(written(tmp_path, content))
    write_table(tmp_path / "t.parquet", table.M, table)
    assert read_table(io.BytesIO((tmp_path / "t.parquet").read_bytes())).rows.tolist() == ["x", "y"]
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.zip"):
        read_table(tmp_path / "none.zip")
    with pytest.raises(ValueError, match="the stream is empty"):
        read_table(io.BytesIO())


@pytest.mark.parametrize("above", [[["Stars"]], [["Stars"], [None, "of May"], []]])
def test_a_title_above_a_sheet_is_named(tmp_path, above):
    book = pytest.importorskip("openpyxl").Workbook()
    for row in [*above, ["who", "x", "y"], ["ann", 1, 2], ["bob", 3, 4]]:
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    with pytest.raises(ValueError, match=r"row 1 of the sheet 'Sheet' is a title: remove what stands above the names"):
        read_table(tmp_path / "t.xlsx")


def test_excel_files(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append([])
    sheet.append([None, "day", "x", "note", "y"])
    for k in range(4):
        sheet.append(
            [None, datetime.datetime(2024, 1, k + 1), 1.5 * k if k != 2 else None, "grün", "-" if k == 3 else k]
        )
    book.create_sheet("other").append(["=1+1"])
    book.save(tmp_path / "t.xlsx")
    table = read_table(tmp_path / "t.xlsx", keep=["day"], header=True)
    assert table.columns.tolist()[:2] == ["x", "y"]
    expected = np.array([[0, 0], [1.5, 1], [nan, 2], [4.5, nan]])
    np.testing.assert_array_equal(table.M.to_dense(), expected)
    write_table(tmp_path / "o.xlsx", np.where(np.isnan(expected), 7.5, expected), table)
    before, after = (openpyxl.load_workbook(tmp_path / name) for name in ("t.xlsx", "o.xlsx"))
    assert after.sheetnames == before.sheetnames
    changed = {
        cell.coordinate: cell.value
        for row in after.worksheets[0].iter_rows()
        for cell in row
        if cell.value != before.worksheets[0][cell.coordinate].value
    }
    assert changed == {"C5": 7.5, "E6": 7.5}
    write_table(tmp_path / "o.csv", table.M, table)
    assert (tmp_path / "o.csv").read_text().splitlines()[1] == "2024-01-01,0,grün,0"
    again = read_table(tmp_path / "o.csv")
    write_table(tmp_path / "new.xlsx", again.M, again)
    np.testing.assert_array_equal(read_table(tmp_path / "new.xlsx").M.to_dense(), expected)
    sheet["C4"], sheet["C5"] = "oops", 3
    book.save(tmp_path / "t.xlsx")
    with pytest.raises(ValueError, match="row 4 of the sheet 'Sheet': 'oops' in column 'x' is not a number"):
        read_table(tmp_path / "t.xlsx")
    with pytest.raises(ValueError, match=r"no \.xlsx file, or it is damaged"):
        read_table(written(tmp_path, b"PK\x03\x04", "t.xlsx"))
