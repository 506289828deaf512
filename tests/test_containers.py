"""Containers: the numbers come out of each as they are, and new ones go back into the same kind."""

import decimal
import fractions
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import lowsparse as ls
from lowsparse.entries.containers import rewrap, unwrap

nan = np.nan
X = np.array([[1.0, nan, 3.0], [nan, 5.0, 6.5]])


class OnDevice:
    """What a tensor library shows of an array: DLPack and nothing else."""

    def __init__(self, array, device=1, moves=True):
        self.array, self.device, self.moves = array, device, moves

    def __dlpack_device__(self):
        return (self.device, 0)

    def __dlpack__(self, *, dl_device=None, copy=None, **options):
        if self.device != 1 and not (self.moves and dl_device == (1, 0)):
            raise BufferError("this memory cannot be read from the host")
        return self.array.copy().__dlpack__()


def pandas_frame(data=X, **options):
    return pytest.importorskip("pandas").DataFrame(data, **options)


def held_in_everything():
    """The matrix X in each container that is installed."""
    known = ~np.isnan(X)
    filled = np.where(known, X, 7.0)
    yield "lists", X.tolist()
    yield "array", X
    yield "array in Fortran's order", np.asfortranarray(X)
    yield "np.matrix", X.view(np.matrix)
    yield "dlpack", OnDevice(X)
    optional = {}
    for name in ("pandas", "polars", "pyarrow", "xarray", "torch"):
        try:
            optional[name] = __import__(name)
        except ImportError:
            continue
    gaps = [[None if np.isnan(v) else v for v in column] for column in X.T]
    if pd := optional.get("pandas"):
        yield "pandas", pd.DataFrame(X)
        yield "pandas nullable", pd.DataFrame(dict(enumerate(gaps)), dtype="Float64")
        yield "pandas object", pd.DataFrame(dict(enumerate(gaps)), dtype=object)
        yield "pandas sparse", pd.DataFrame(X).astype(pd.SparseDtype(float, nan))
        mixed = pd.DataFrame({"a": pd.array([1, None], "Int8"), "b": [nan, 5.0], "c": np.array([3, 6.5], "f4")})
        yield "pandas mixed", mixed
        if "pyarrow" in optional:
            yield "pandas arrow", pd.DataFrame(dict(enumerate(gaps)), dtype="double[pyarrow]")
    if pl := optional.get("polars"):
        yield "polars", pl.DataFrame({f"c{k}": gap for k, gap in enumerate(gaps)})
        yield "polars with NaN", pl.DataFrame({f"c{k}": column for k, column in enumerate(X.T)})
    if pa := optional.get("pyarrow"):
        yield "pyarrow", pa.table({f"c{k}": gap for k, gap in enumerate(gaps)})
        chunks = [pa.chunked_array([gap[:1], gap[1:]], pa.float64()) for gap in gaps]
        yield "pyarrow in chunks", pa.table(chunks, names=["a", "a", "b"])
    if xr := optional.get("xarray"):
        yield "xarray", xr.DataArray(X, dims=("hour", "place"))
    if torch := optional.get("torch"):
        yield "torch", torch.tensor(X, requires_grad=True)
    yield "masked", np.ma.MaskedArray(filled, ~known)


@pytest.mark.parametrize("held", [pytest.param(held, id=name) for name, held in held_in_everything()])
def test_every_container_holds_the_same_matrix(held):
    found = unwrap(held)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(np.ma.filled(found, nan), X)
    M = ls.ObservedMatrix.from_any(held)
    assert M.fingerprint() == ls.ObservedMatrix.from_dense(X).fingerprint()
    assert ls.ObservedMatrix.from_dense(held).fingerprint() == M.fingerprint()


def test_a_frame_is_solved_as_its_numbers_are():
    pd = pytest.importorskip("pandas")
    problem = ls.datasets.synthetic(20, 15, rank=2, density=0.8, outliers=0.05, random_state=3)
    dense = problem.M.to_dense()
    frame = pd.DataFrame(dense).astype("Float64")
    expected = ls.solve(dense, rank=2, random_state=9)
    found = ls.solve(frame, rank=2, random_state=9)
    np.testing.assert_array_equal(found.L.to_dense(), expected.L.to_dense())


# ---------------------------------------------------------------------- out: types


@pytest.mark.parametrize(
    ("given_dtype", "kept"),
    [("f2", "f4"), ("f4", "f4"), ("f8", "f8"), ("i1", "i1"), ("u8", "u8"), ("i8", "i8"), ("?", "?"), (">f4", ">f4")],
)
def test_types_of_arrays(given_dtype, kept):
    data = np.array([[0, 1], [1, 1]], given_dtype)
    for held in (data, np.ma.MaskedArray(data, [[True, False], [False, False]]), OnDevice(data)):
        if given_dtype[0] == ">" and isinstance(held, OnDevice):
            continue  # DLPack knows one byte order
        found = unwrap(held)
        assert found.dtype == np.dtype(kept)
        np.testing.assert_array_equal(found, data)
        assert isinstance(found, np.ma.MaskedArray) == isinstance(held, np.ma.MaskedArray)


def test_arrays_and_maps_and_sparse_matrices_are_not_copied(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert unwrap(mapped) is mapped
    masked = np.ma.masked_invalid(X)
    assert unwrap(masked) is masked
    assert np.shares_memory(unwrap(X), X)
    A = sp.csr_array(np.eye(2))
    assert unwrap(A) is A
    M = ls.ObservedMatrix.from_dense(X)
    assert unwrap(M) is M


def test_a_frame_of_one_type_is_not_copied():
    data = np.arange(6.0).reshape(3, 2)
    frame = pandas_frame(data, copy=False)
    assert np.shares_memory(unwrap(frame), data)


@pytest.mark.parametrize(
    ("columns", "kept"),
    [
        ({"a": ("Int64", [1, 2]), "b": ("Int8", [3, 4])}, "i8"),
        ({"a": ("Int64", [1, None]), "b": ("Int8", [3, 4])}, "f8"),
        ({"a": ("Float32", [1.5, None]), "b": ("float32", [3, 4])}, "f4"),
        ({"a": ("boolean", [True, False]), "b": ("bool", [True, True])}, "?"),
        ({"a": ("boolean", [True, None]), "b": ("bool", [True, True])}, "f8"),
        ({"a": ("bool", [True, False]), "b": ("int16", [3, 4])}, "i2"),
        ({"a": ("bool", [True, False]), "b": ("float32", [3, 4])}, "f4"),
        ({"a": ("object", [2**60 + 1, 4]), "b": ("int64", [3, 4])}, "i8"),
        ({"a": ("object", [2**70, 4])}, "f8"),
        ({"a": ("object", [fractions.Fraction(1, 4), decimal.Decimal("0.5")])}, "f8"),
        ({"a": ("object", [True, None])}, "f8"),
        ({"a": ("object", [np.float32(2), np.True_])}, "f8"),
        ({"a": ("Sparse[int]", [0, 2])}, "i8"),
        ({"a": ("float16", [0.5, 2])}, "f4"),
    ],
)
def test_types_of_pandas_columns(columns, kept):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({name: pd.Series(values, dtype=dtype) for name, (dtype, values) in columns.items()})
    found = unwrap(frame)
    assert found.dtype == np.dtype(kept)
    expected = [[nan if v is None else float(v) for v in values] for _, values in columns.values()]
    np.testing.assert_array_equal(found.astype(float), np.transpose(expected))


def test_types_of_arrow_columns():
    pa = pytest.importorskip("pyarrow")
    money = pa.array([decimal.Decimal("1.25"), None])
    found = unwrap(pa.table({"a": money, "b": pa.array([None, None]), "c": [True, None], "d": pa.array([1, 2], "u1")}))
    np.testing.assert_array_equal(found, [[1.25, nan, 1, 1], [nan, nan, nan, 2]])
    assert unwrap(pa.table({"c": [True, False], "d": pa.array([1, 2], "u1")})).dtype == np.uint8
    assert unwrap(pa.table({"d": pa.array([1.5, None], pa.float32())})).dtype == np.float32
    assert unwrap(pa.table({"d": pa.array(np.float16([1.5, 2.0]))})).dtype == np.float32


def test_types_of_polars_columns():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"a": [1, None], "b": [None, None], "c": [True, None], "d": [decimal.Decimal("1.25"), None]})
    np.testing.assert_array_equal(unwrap(frame), [[1, nan, 1, 1.25], [nan, nan, nan, nan]])
    frame = pl.DataFrame({"a": [1, 2], "b": [True, False]}, schema={"a": pl.Int8, "b": pl.Boolean})
    assert unwrap(frame).dtype == np.int8
    assert unwrap(pl.DataFrame({"a": [1.5, None]}, schema={"a": pl.Float32})).dtype == np.float32


# ---------------------------------------------------------------------- out: what is refused


def test_pandas_columns_that_are_no_numbers():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "good": [1.0, 2.0],
            "city": pd.Categorical(["a", "b"]),
            "when": pd.to_datetime(["2020-01-01", "2020-01-02"]),
            ("a", 1): pd.Series(["x", None], dtype=object),
            "text": pd.Series(["12", "13"], dtype="string"),
            "late": pd.Series([3, "no value was measured here, I am afraid"], dtype=object),
            "sixth": pd.to_timedelta([1, 2]),
        }
    )
    message = r"""6 of the columns do not hold numbers: 'city' \(category\), 'when' \(datetime64.*\), \('a', 1\) """
    message += r"""\('x' in row 0\), 'text' \(string\), 'late' \('no .*\.\.\..*' in row 1\) and 1 more; drop them"""
    for take in (unwrap, ls.ObservedMatrix.from_any, ls.ObservedMatrix.from_dense):
        with pytest.raises(TypeError, match=message):
            take(frame)
    with pytest.raises(TypeError, match=r"'a' \(complex128\)"):
        unwrap(pd.DataFrame({"a": [1j], "b": [2.0]}))


def test_arrow_and_polars_columns_that_are_no_numbers():
    pa = pytest.importorskip("pyarrow")
    words = pa.array(["x", "y"])
    table = pa.table({"a": [1, 2], "b": words, "c": words.dictionary_encode(), "d": pa.array([1, 2], pa.date32())})
    with pytest.raises(TypeError, match=r"3 of .* 'b' \(string\), 'c' \(dictionary.*\), 'd' \(date32"):
        unwrap(table)
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    frame = frame.with_columns(
        c=pl.col("b").cast(pl.Categorical),
        d=pl.col("b").cast(pl.Enum(["x", "y"])),
        e=pl.col("a").cast(pl.Datetime),
        f=pl.concat_list("a"),
    )
    message = r"5 of .* 'b' \(String\), 'c' \(Categorical.*\), 'd' \(Enum.*\), 'e' \(Datetime.*\), 'f' \(List"
    with pytest.raises(TypeError, match=message):
        unwrap(frame)


def test_what_must_be_made_a_matrix_first():
    pd, pl, xr, pa = (pytest.importorskip(name) for name in ("pandas", "polars", "xarray", "pyarrow"))
    for held, advice in [
        (pd.Series([1.0]), "to_frame"),
        (pl.Series([1.0]), "to_frame"),
        (pl.DataFrame({"a": [1]}).lazy(), "collect"),
        (xr.Dataset({"a": ("x", [1])}), "to_dataarray"),
        (pa.table({"a": [1]}).to_batches()[0], "from_batches"),
    ]:
        with pytest.raises(TypeError, match=rf"this {type(held).__name__} cannot .*{advice}"):
            unwrap(held)
    with pytest.raises(TypeError, match="this DataArray is not a matrix"):
        unwrap(xr.DataArray(np.ones((2, 2, 2))))


@pytest.mark.parametrize(
    ("held", "error", "message"),
    [
        (([0, 1], [0, 1], [5, 6]), TypeError, "this tuple is not a matrix.*from_coo"),
        (None, TypeError, "this NoneType is not a matrix"),
        (np.ones(3), TypeError, "this ndarray is not a matrix"),
        ([[1, None]], TypeError, r"astype\(float\)"),
        ([["a"]], TypeError, "convert it to real numbers"),
        (np.array([[1j]]), TypeError, "imaginary"),
        (sp.csr_array(np.array([[1j]])), TypeError, "imaginary"),
        ([[1.0], [1.0, 2.0]], ValueError, "rows of this list do not all have the same length"),
        (OnDevice(X, device=2, moves=False), TypeError, r"this OnDevice .*DLPack .*host.*NumPy"),
    ],
)
def test_what_is_no_matrix_of_numbers(held, error, message):
    with pytest.raises(error, match=message):
        unwrap(held)


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy copies from no device")
def test_memory_of_a_device_is_copied_to_the_host():
    np.testing.assert_array_equal(unwrap(OnDevice(X, device=2)), X)


def test_classes_of_the_same_name_from_elsewhere_are_not_mistaken():
    class DataFrame:
        def __array__(self, dtype=None, copy=None):
            return X

    assert unwrap(DataFrame()) is X


# ---------------------------------------------------------------------- back: the same container


PANDAS = ["float64", "float32", "int64", "uint8", "bool", "Int64", "UInt8", "Float64", "Float32", "boolean", "Sparse"]
ARROW = ["int64[pyarrow]", "double[pyarrow]", "float[pyarrow]", "bool[pyarrow]"]
whole = st.integers(0, 200)


@st.composite
def pandas_columns(draw, height):
    import pandas as pd

    kinds = PANDAS + (ARROW if "pyarrow" in sys.modules else [])
    kind = draw(st.sampled_from(kinds))
    nullable = kind[0] in "IUF" or kind == "boolean" or "pyarrow" in kind
    cell = st.booleans() if kind.startswith("bool") else whole
    if kind.lower().startswith(("float", "double")) or kind == "Sparse":
        cell = st.floats(-1e6, 1e6, width=32)
        cell = cell if nullable else cell | st.just(nan)
    values = draw(st.lists(cell | st.none() if nullable else cell, min_size=height, max_size=height))
    return pd.Series(values, dtype="Sparse[float64]" if kind == "Sparse" else kind)


@st.composite
def pandas_frames(draw):
    import pandas as pd

    height = draw(st.integers(1, 5))
    columns = draw(st.lists(pandas_columns(height), min_size=1, max_size=5))
    frame = pd.DataFrame(dict(enumerate(columns)))
    n = len(columns)
    labels = [
        list("aabab")[:n],
        [3, 1, 2, 2, 0][:n],
        pd.MultiIndex.from_product([["x", "y"], [1, 2, 3]], names=["u", "v"])[:n],
        pd.date_range("2020-01-01", periods=n, name="day"),
    ]
    frame.columns = draw(st.sampled_from(labels))
    frame.index = draw(st.sampled_from([list("zyzxw")[:height], pd.RangeIndex(5, 5 + height, name="k")]))
    frame.attrs["unit"] = "m"
    return frame


@settings(deadline=None)
@given(st.data())
def test_pandas_there_and_back(data):
    pd = pytest.importorskip("pandas")
    frame = data.draw(pandas_frames())
    back = rewrap(unwrap(frame), frame)
    pd.testing.assert_frame_equal(back, frame)
    assert back.attrs == frame.attrs


@pytest.mark.parametrize(
    ("dtype", "values", "kept"),
    [
        ("Int64", [1.0, 2.0], "Int64"),
        ("Int64", [1.0, nan], "Int64"),
        ("Int64", [1.0, 2.5], "Float64"),
        ("Int64", [1.0, 2.0**63], "Float64"),
        ("Int64", [1.0, -(2.0**63)], "Int64"),
        ("Int8", [1.0, 128.0], "Float64"),
        ("UInt8", [255.0, -1.0], "Float64"),
        ("UInt8", [255.0, 0.0], "UInt8"),
        ("boolean", [1.0, 0.0], "boolean"),
        ("boolean", [1.0, 0.5], "Float64"),
        ("Float32", [1.0, 0.1], "Float32"),
        ("Float32", [1.0, 1e300], "Float64"),
        ("int64", [1.0, 2.0], "int64"),
        ("int64", [1.0, 2.5], "float64"),
        ("int64", [1.0, nan], "float64"),
        ("int64", [1.0, np.inf], "float64"),
        ("bool", [1.0, 0.0], "bool"),
        ("bool", [1.0, nan], "float64"),
        ("float32", [1.0, 0.1], "float32"),
        ("float32", [1.0, nan], "float32"),
        ("float16", [1.0, 1e6], "float64"),
        ("object", [1.0, 2.5], "float64"),
        ("Sparse[int]", [1.0, 0.0], "Sparse[int64, 0]"),
        ("Sparse[int]", [1.0, 0.5], "float64"),
    ],
)
def test_a_type_is_kept_where_the_new_values_fit_it(dtype, values, kept):
    pd = pytest.importorskip("pandas")
    like = pd.DataFrame({"a": pd.Series([1, 1], dtype=dtype), "b": pd.Series([True, False], dtype="boolean")})
    found = rewrap(np.column_stack([values, [0.0, 1.0]]), like)
    assert str(found["a"].dtype) == kept
    expected = np.array(values, "f4" if "32" in kept else "f8")
    np.testing.assert_array_equal(found["a"].to_numpy(float, na_value=nan), expected)
    assert found["b"].tolist() == [False, True]


def test_new_columns_keep_the_rows_of_pandas():
    pd = pytest.importorskip("pandas")
    like = pandas_frame(X, index=pd.Index(["p", "q"], name="who"), columns=["a", "b", "c"])
    scores = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    found = rewrap(scores, like, columns=["pc0", "pc1"])
    pd.testing.assert_frame_equal(found, pd.DataFrame(scores, index=like.index, columns=["pc0", "pc1"]))


@st.composite
def nullable_columns(draw):
    """Columns of (kind, values with None)."""
    height = draw(st.integers(1, 4))
    cells = {"int8": st.integers(-128, 127), "float32": st.floats(-9, 9, width=32), "float64": st.floats(-9, 9)}
    cells |= {"bool": st.booleans(), "uint64": st.integers(0, 2**53)}
    kinds = draw(st.lists(st.sampled_from(sorted(cells)), min_size=1, max_size=4))
    return [(k, draw(st.lists(cells[k] | st.none(), min_size=height, max_size=height))) for k in kinds]


@settings(deadline=None)
@given(nullable_columns())
def test_polars_there_and_back(columns):
    pl = pytest.importorskip("polars")
    kinds = {"int8": pl.Int8, "float32": pl.Float32, "float64": pl.Float64, "bool": pl.Boolean, "uint64": pl.UInt64}
    frame = pl.DataFrame([pl.Series(f"c{k}", v, dtype=kinds[t]) for k, (t, v) in enumerate(columns)])
    back = rewrap(unwrap(frame), frame)
    assert back.schema == frame.schema
    assert back.equals(frame)


@settings(deadline=None)
@given(nullable_columns())
def test_arrow_there_and_back(columns):
    pa = pytest.importorskip("pyarrow")
    arrays = [pa.array(v, pa.bool_() if t == "bool" else pa.from_numpy_dtype(t)) for t, v in columns]
    schema = pa.schema([pa.field("twice", a.type, metadata={"unit": "m"}) for a in arrays], metadata={"of": "us"})
    table = pa.Table.from_arrays(arrays, schema=schema)
    back = rewrap(unwrap(table), table)
    assert back.equals(table, check_metadata=True)


def test_values_that_do_not_fit_polars_and_arrow():
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    new = np.array([[1.5, 0.0, nan], [2.0, 300.0, 1.0]])
    frame = pl.DataFrame({"a": [1, 2], "b": [True, False], "c": [True, False]})
    back = rewrap(new, frame)
    assert back.to_dict(as_series=False) == {"a": [1.5, 2.0], "b": [0.0, 300.0], "c": [None, True]}
    assert back.dtypes == [pl.Float64, pl.Float64, pl.Boolean]
    back = rewrap(new, frame.to_arrow())
    assert back.to_pydict() == {"a": [1.5, 2.0], "b": [0.0, 300.0], "c": [None, True]}
    assert back.schema.types == [pa.float64(), pa.float64(), pa.bool_()]


def test_decimal_numbers_and_columns_of_nulls():
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    money = pa.array([decimal.Decimal("1.25"), None], pa.decimal128(4, 2))
    table = pa.table({"a": money, "b": pa.nulls(2)})
    assert rewrap(unwrap(table), table).equals(table)
    frame = pl.DataFrame(table)
    assert rewrap(unwrap(frame), frame).equals(frame)
    assert rewrap(unwrap(frame), frame).schema == frame.schema
    for values in ([1.125, 2.0], [1e9, 2.0]):  # too many digits after and before the point
        new = np.column_stack([values, [3.0, nan]])
        assert rewrap(new, table).to_pydict() == {"a": values, "b": [3.0, None]}
        assert rewrap(new, frame).to_dict(as_series=False) == {"a": values, "b": [3.0, None]}


def test_nan_stays_nan_where_nothing_is_null():
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    frame = pl.DataFrame({"a": [1.0, nan], "b": [1.0, None], "c": [None, nan]})
    back = rewrap(unwrap(frame), frame)
    assert back.null_count().row(0) == (0, 1, 2)
    table = pa.table({"a": [1.0, nan], "b": [1.0, None]})
    assert [column.null_count for column in rewrap(unwrap(table), table).columns] == [0, 1]


def test_xarray_there_and_back():
    xr, pd = pytest.importorskip("xarray"), pytest.importorskip("pandas")
    place = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)], names=["city", "post"])
    coords = {"hour": pd.date_range("2020-01-01", periods=2), "day": ("hour", [1, 1]), "height": ("place", [1, 2, 3])}
    like = xr.DataArray(X, dims=("hour", "place"), coords=coords, name="pm10", attrs={"unit": "g"})
    for array in (like, like.T, like.assign_coords(xr.Coordinates.from_pandas_multiindex(place, "place"))):
        xr.testing.assert_identical(rewrap(unwrap(array), array), array)
    scores = rewrap(np.ones((2, 2)), like, columns=["pc0", "pc1"])
    assert (scores.dims, scores.name, scores.attrs) == (like.dims, like.name, like.attrs)
    assert scores["place"].values.tolist() == ["pc0", "pc1"]
    assert set(scores.coords) == {"hour", "day", "place"}
    whole_numbers = xr.DataArray(np.ones((1, 2), np.int16))
    assert rewrap(np.array([[3.0, 4.0]]), whole_numbers).dtype == np.int16
    assert rewrap(np.array([[3.5, 4.0]]), whole_numbers).dtype == np.float64


@given(st.sampled_from(["f2", "f4", "f8", "i1", "i8", "u8", "?"]), st.lists(st.booleans(), min_size=4, max_size=4))
def test_arrays_there_and_back(dtype, hidden):
    data = np.array([[0, 1], [1, 0]], dtype)
    back = rewrap(unwrap(data), data)
    assert back.dtype == data.dtype
    np.testing.assert_array_equal(back, data)
    masked = np.ma.MaskedArray(data, np.reshape(hidden, (2, 2)), fill_value=1)
    back = rewrap(unwrap(masked), masked)
    assert (back.dtype, back.fill_value) == (masked.dtype, masked.fill_value)
    np.testing.assert_array_equal(back.mask, masked.mask)
    np.testing.assert_array_equal(back.compressed(), masked.compressed())


def test_arrays_that_change():
    masked = np.ma.MaskedArray([[1, 2]], [[True, False]])
    complete = rewrap(np.array([[7.0, 2.0]]), masked)
    assert (complete.dtype, complete.tolist()) == (masked.dtype, [[7, 2]])
    assert rewrap(np.array([[nan, 2.5]]), masked).tolist() == [[None, 2.5]]
    assert rewrap(np.array([[nan, 2.0]]), masked).dtype == masked.dtype
    np.testing.assert_array_equal(rewrap(masked, [[1.0, 2.0]]), [[nan, 2.0]])
    for like in ([[1, 2]], sp.csr_array([[1, 2]]), ls.ObservedMatrix.from_dense([[1, 2]])):
        back = rewrap(np.array([[3.0, 4.0]]), like)
        assert (type(back), back.dtype, back.tolist()) == (np.ndarray, np.float64, [[3.0, 4.0]])


def test_shapes_must_agree():
    for like in (X, X.tolist(), pandas_frame(), ls.ObservedMatrix.from_dense(X)):
        with pytest.raises(ValueError, match="2 rows and 3 columns"):
            rewrap(X.T, like)
        with pytest.raises(ValueError, match="2 rows and 1 columns"):
            rewrap(X, like, columns=["a"])


# ---------------------------------------------------------------------- tensors


def test_torch():
    torch = pytest.importorskip("torch")
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int16, torch.bool):
        tensor = torch.tensor([[0, 1], [1, 1]], dtype=dtype)
        found = unwrap(tensor)
        narrow = dtype in (torch.float16, torch.bfloat16)
        assert found.dtype == (np.float32 if narrow else tensor.numpy().dtype)
        back = rewrap(found, tensor)
        assert (back.dtype, back.device, back.requires_grad) == (tensor.dtype, tensor.device, False)
        assert torch.equal(back, tensor)
    trained = torch.nn.Parameter(torch.tensor(X))
    np.testing.assert_array_equal(unwrap(trained), X)
    assert rewrap(np.array([[1.5]]), torch.tensor([[1]])).dtype == torch.float64
    assert rewrap(np.array([[1e6]]), torch.tensor([[1]], dtype=torch.float16)).dtype == torch.float64
    assert rewrap(np.float32([[1.5, 2]]), torch.tensor([[1]]), columns=["a", "b"]).dtype == torch.float32
    with pytest.raises(TypeError, match=r"scipy\.sparse"):
        unwrap(torch.eye(2).to_sparse())
    with pytest.raises(TypeError, match="imaginary"):
        unwrap(torch.tensor([[1j]]))


def test_cupy():
    cupy = pytest.importorskip("cupy")
    for dtype in ("f4", "f8", "i2", "?"):
        array = cupy.asarray(np.array([[0, 1], [1, 1]], dtype))
        back = rewrap(unwrap(array), array)
        assert isinstance(back, cupy.ndarray)
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back.get(), unwrap(array))
