"""ObservedMatrix: every way in gives the same sorted entries, and nothing wrong gets in."""

import copy
import pickle
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lowsparse.entries.compressed import tiles
from lowsparse.entries.observed import ObservedMatrix

nan = np.nan
FORMATS = ["csc", "csr", "coo", "lil", "dok", "dia", "bsr"]

# 1 x 1 to 7 x 7 with holes: single lines, empty lines, single entries, observed zeros
matrices = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=7),
    elements=st.sampled_from([nan, nan, 0.0, 1.0, -2.5, 1e300]),
).filter(lambda X: not np.isnan(X).all())


def assert_holds(M, X):
    """M holds exactly the entries of X that are not NaN, by column."""
    known = [np.flatnonzero(~np.isnan(x)) for x in X.T]
    assert M.shape == X.shape
    assert (M.indptr.dtype, M.rows.dtype) == (np.int64, np.int32)
    np.testing.assert_array_equal(M.indptr, np.cumsum([0] + [k.size for k in known]))
    np.testing.assert_array_equal(M.rows, np.concatenate(known))
    np.testing.assert_array_equal(M.values, np.concatenate([x[k] for x, k in zip(X.T, known, strict=True)]))


def triples(X):
    rows, cols = np.nonzero(~np.isnan(X))
    return rows, cols, X[rows, cols]


def shuffled(X, seed=1):
    order = np.random.default_rng(seed).permutation(np.count_nonzero(~np.isnan(X)))
    return tuple(a[order] for a in triples(X))


def holey(m, n, density, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n))
    X[rng.random((m, n)) >= density] = nan
    return X


def peak_above_output(make):
    """Peak memory of make() beyond the arrays of its result, as a multiple of those."""
    tracemalloc.start()
    try:
        M = make()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return peak / (M.indptr.nbytes + M.rows.nbytes + M.values.nbytes) - 1


# ---------------------------------------------------------------------- from_dense


@given(matrices, st.sampled_from("CF"))
def test_dense_keeps_what_is_not_nan(X, order):
    assert_holds(ObservedMatrix.from_dense(np.array(X, order=order)), X)


@given(matrices)
def test_mask_masked_array_and_nan_agree(X):
    known = ~np.isnan(X)
    filled = np.where(known, X, 7.0)
    assert_holds(ObservedMatrix.from_dense(filled, mask=known), X)
    assert_holds(ObservedMatrix.from_dense(filled, mask=known.tolist()), X)
    assert_holds(ObservedMatrix.from_dense(np.ma.masked_array(filled, ~known)), X)
    assert_holds(ObservedMatrix.from_dense(np.ma.masked_array(X)), X)


def test_masked_array_may_hold_nan_outside_its_mask():
    X = np.ma.masked_array([[1.0, nan, 3.0]], mask=[[True, False, False]])
    assert_holds(ObservedMatrix.from_dense(X), np.array([[nan, nan, 3.0]]))


def test_masked_values_may_be_anything():
    X = np.ma.masked_array([[np.inf, 2.0]], mask=[[True, False]])
    assert_holds(ObservedMatrix.from_dense(X), np.array([[nan, 2.0]]))


@pytest.mark.parametrize("shape", [(1100, 700), (1, 600_000), (600_000, 1), (3, 200_000), (200_000, 3)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_dense_over_many_tiles(shape, order):
    X = np.asarray(holey(*shape, 0.6), order=order)
    assert len(list(tiles(*shape))) > 1
    assert_matches_scipy(ObservedMatrix.from_dense(X), X)


def assert_matches_scipy(M, X):
    rows, cols, values = triples(X)
    A = sp.csc_array((values, (rows, cols)), shape=X.shape)
    A.sort_indices()
    np.testing.assert_array_equal(M.indptr, A.indptr)
    np.testing.assert_array_equal(M.rows, A.indices)
    np.testing.assert_array_equal(M.values, A.data)


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_tiles_cover_every_entry_once_and_stay_small(m, n):
    found = [(range(m)[i], range(n)[j]) for i, j in tiles(m, n)]
    areas = [len(i) * len(j) for i, j in found]
    assert sum(areas) == m * n
    assert len({(i.start, j.start) for i, j in found}) == len(found)
    assert min(areas) > 0
    assert max(areas) <= 2**18


@pytest.mark.parametrize("order", ["C", "F"])
def test_dense_is_not_copied_as_a_whole(order):
    X = np.asarray(holey(1000, 2500, 0.8), order=order)
    assert peak_above_output(lambda: ObservedMatrix.from_dense(X)) < 0.8


def test_dense_reads_strided_and_foreign_byte_order():
    X = holey(9, 8, 0.5)
    assert_holds(ObservedMatrix.from_dense(np.repeat(X, 2, axis=0)[::-2, ::-1]), X[::-1, ::-1])
    M = ObservedMatrix.from_dense(X.astype(">f4"))
    assert M.dtype == np.float32
    assert M.dtype.isnative
    assert_holds(M, X.astype(np.float32))


def test_dense_takes_what_numpy_understands():
    class Frame:
        def __array__(self, dtype=None, copy=None):
            return np.array([[1.0, nan], [3.0, 4.0]])

    X = np.asarray(Frame())
    assert_holds(ObservedMatrix.from_dense(Frame()), X)
    assert_holds(ObservedMatrix.from_dense(X.tolist()), X)


def test_dense_takes_data_frames():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, nan], "b": [3, 4]})
    assert_holds(ObservedMatrix.from_any(frame), np.array([[1.0, 3.0], [nan, 4.0]]))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int16])
@pytest.mark.parametrize("way", [ObservedMatrix.from_dense, ObservedMatrix.from_any])
def test_memory_maps_are_not_copied_as_a_whole(way, dtype, tmp_path):
    X = np.nan_to_num(holey(1000, 2500, 0.8)).astype(dtype)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert peak_above_output(lambda: way(mapped)) < 0.8
    assert way(mapped).fingerprint() == ObservedMatrix.from_dense(X).fingerprint()


def test_data_frames_that_know_missing_values():
    pd = pytest.importorskip("pandas")
    X = np.array([[1.0, 1.0, 0.5], [nan, 0.0, nan]])
    frame = pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": [True, False], "c": pd.array([0.5, None], "Float32")})
    assert_holds(ObservedMatrix.from_any(frame), X)
    assert_holds(ObservedMatrix.from_dense(frame), X)
    filled = pd.DataFrame(np.nan_to_num(X))
    mask = pd.DataFrame(~np.isnan(X))
    assert_holds(ObservedMatrix.from_dense(filled, mask=mask), X)
    assert_holds(ObservedMatrix.from_dense(filled, mask=mask.astype("boolean")), X)
    with pytest.raises(TypeError, match=r"1 of the columns .*'city' \(category\)"):
        ObservedMatrix.from_any(frame.assign(city=pd.Categorical(["x", "y"])))


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [
        (bool, np.float64),
        (np.int8, np.float64),
        (np.uint64, np.float64),
        (np.float16, np.float32),
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.longdouble, np.float64),
    ],
)
def test_dtypes(dtype, kept):
    X = np.array([[0, 1], [1, 1]], dtype)
    made = [
        ObservedMatrix.from_dense(X),
        ObservedMatrix.from_dense(np.ma.masked_array(X)),
        ObservedMatrix.from_coo([0, 0, 1, 1], [0, 1, 0, 1], X.ravel()),
        ObservedMatrix([0, 2, 4], [0, 1, 0, 1], X.T.ravel(), (2, 2)),
    ]
    if dtype != np.float16:  # which SciPy's sparse matrices do not know
        made += [ObservedMatrix.from_scipy(sp.csc_array((X.ravel(), [0, 1, 0, 1], [0, 2, 4])))]
        made += [ObservedMatrix.from_scipy(sp.csr_array((X.ravel(), [0, 1, 0, 1], [0, 2, 4])))]
    for M in made:
        assert M.dtype == kept
        assert_holds(M, X.astype(kept))


# ---------------------------------------------------------------------- from_scipy


@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("fmt", FORMATS)
@settings(max_examples=30)
@given(X=matrices)
def test_every_sparse_format(fmt, kind, X):
    X = np.where(X == 0, 5.0, X)  # some formats drop zeros, and bsr and dia store more: below
    coo = sp.coo_array(np.nan_to_num(X))
    A = getattr(sp, f"{fmt}_{kind}")(coo)
    if fmt in ("bsr", "dia"):
        M = ObservedMatrix.from_scipy(A)
        m, n = X.shape
        if fmt == "dia":  # older versions of SciPy count places beyond the array in A.nnz
            assert M.nnz == sum(0 <= j - k < m for k in A.offsets for j in range(min(n, A.data.shape[1])))
        else:
            assert M.nnz == A.nnz
        assert_holds(M, M.to_dense())
        np.testing.assert_array_equal(M.to_dense(fill=0.0), A.toarray())
    else:
        assert_holds(ObservedMatrix.from_scipy(A), X)
        assert_holds(ObservedMatrix.from_any(A), X)


@pytest.mark.parametrize("fmt", ["csc", "csr", "coo"])
@given(X=matrices)
def test_stored_zeros_are_observed(fmt, X):
    rows, cols, values = triples(X)
    coo = sp.coo_array((values, (rows, cols)), shape=X.shape)
    assert_holds(ObservedMatrix.from_scipy(coo.asformat(fmt)), X)


def test_stored_zeros_of_blocks_and_diagonals_are_observed():
    block = sp.bsr_array(([[[1.0, 0.0], [0.0, 2.0]]], [1], [0, 1]), shape=(2, 4))
    assert_holds(ObservedMatrix.from_scipy(block), np.array([[nan, nan, 1, 0], [nan, nan, 0, 2]]))
    # data[k, j] lies in column j, row j - offset: -9 falls outside
    data = [[-9.0, 0.0, 3.0, -9.0], [4.0, -9.0, -9.0, -9.0], [-9.0, -9.0, 6.0, -9.0]]
    diagonals = sp.dia_array((data, [1, -1, 2]), shape=(2, 3))
    assert_holds(ObservedMatrix.from_scipy(diagonals), np.array([[nan, 0, 6], [4, nan, 3]]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_canonical_csc_is_shared_and_stays_writeable(dtype):
    A = sp.csc_array(np.eye(3, dtype=dtype))
    M = ObservedMatrix.from_scipy(A)
    assert np.shares_memory(M.values, A.data)
    assert np.shares_memory(M.rows, A.indices)
    assert A.data.flags.writeable
    assert A.indices.flags.writeable
    N = ObservedMatrix.from_scipy(A, copy=True)
    assert not np.shares_memory(N.values, A.data)
    assert not np.shares_memory(N.rows, A.indices)
    A.data[0] = 9
    assert (M.values[0], N.values[0]) == (9, 1)


@pytest.mark.parametrize("fmt", ["csc", "csr"])
def test_unsorted_lines_are_sorted_in_the_copy_only(fmt):
    A = getattr(sp, f"{fmt}_array")(([1.0, 2.0, 3.0], [2, 0, 1], [0, 2, 2, 3]), shape=(3, 3))
    X = np.where(A.toarray() == 0, nan, A.toarray())
    before = copy.deepcopy([A.indptr, A.indices, A.data])
    assert_holds(ObservedMatrix.from_scipy(A), X)
    for found, expected in zip([A.indptr, A.indices, A.data], before, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_lying_flags_of_scipy_are_not_believed():
    A = sp.csc_array(([1.0, 2.0], [2, 0], [0, 2]), shape=(3, 1))
    A.has_sorted_indices = A.has_canonical_format = True
    assert_holds(ObservedMatrix.from_scipy(A), np.array([[2.0], [nan], [1.0]]))


@pytest.mark.parametrize("fmt", ["csc", "csr", "coo", "dia", "bsr"])
def test_sparse_input_is_not_modified(fmt):
    A = sp.coo_array(np.nan_to_num(holey(6, 4, 0.4))).asformat(fmt)
    arrays = [a for v in vars(A).values() for a in (v if isinstance(v, tuple) else (v,)) if isinstance(a, np.ndarray)]
    before = copy.deepcopy(arrays)
    M = ObservedMatrix.from_scipy(A)
    np.testing.assert_array_equal(M.T.T.to_dense(fill=0.0), A.toarray())
    assert len(arrays) >= 2
    for found, expected in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found.flags.writeable == expected.flags.writeable


def test_wide_indices_and_spare_room_in_the_arrays():
    A = sp.csc_array((2, 2))
    A.data, A.indices = np.array([1.0, 2.0, 99.0]), np.array([0, 1, 99])
    A.indptr = np.array([0, 1, 2])
    M = ObservedMatrix.from_scipy(A)
    assert_holds(M, np.array([[1.0, nan], [nan, 2.0]]))


@pytest.mark.parametrize("fmt", ["csc", "csr"])
@pytest.mark.parametrize(
    ("indices", "indptr"),
    [([0, 7], [0, 1, 2]), ([0, -1], [0, 1, 2]), ([0, 1], [0, 2, 1]), ([0, 1], [1, 1, 2]), ([0, 1], [0, 2])],
)
def test_malformed_sparse_matrices_are_refused(fmt, indices, indptr):
    A = getattr(sp, f"{fmt}_array")((2, 2))
    A.data, A.indices, A.indptr = np.array([1.0, 2.0]), np.array(indices), np.array(indptr)
    with pytest.raises(ValueError, match="malformed"):
        ObservedMatrix.from_scipy(A)


@pytest.mark.parametrize("fmt", ["csc", "csr", "coo"])
def test_sparse_duplicates_are_refused_not_summed(fmt):
    positions = {
        "csc": ([2, 0, 2, 2], [0, 0, 4]),
        "csr": ([1, 0, 1, 1], [0, 0, 0, 4]),
        "coo": (([2, 0, 2, 2], [1, 1, 1, 1]),),
    }
    A = getattr(sp, f"{fmt}_array")(([1.0, 2.0, 3.0, 4.0], *positions[fmt]), shape=(3, 2))
    with pytest.raises(ValueError, match="2 duplicate entries, the first at row 2, column 1"):
        ObservedMatrix.from_scipy(A)
    assert A.nnz == 4


# ---------------------------------------------------------------------- from_coo


@given(matrices, st.integers(0, 2**32 - 1))
def test_coo_in_any_order(X, seed):
    rows, cols, values = shuffled(X, seed)
    assert_holds(ObservedMatrix.from_coo(rows, cols, values, X.shape), X)
    inferred = ObservedMatrix.from_coo(rows.tolist(), cols.astype(np.uint8), values)
    assert_holds(inferred, X[: rows.max() + 1, : cols.max() + 1])


def test_coo_takes_integers_stored_as_floats():
    M = ObservedMatrix.from_coo(np.array([1.0, 0.0]), np.array([0.0, 1.0]), [5, 6])
    assert_holds(M, np.array([[nan, 6.0], [5.0, nan]]))


def test_coo_leaves_its_input_alone():
    given_arrays = shuffled(holey(30, 20, 0.5))
    before = copy.deepcopy(given_arrays)
    M = ObservedMatrix.from_coo(*given_arrays)
    for found, expected in zip(given_arrays, before, strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found.flags.writeable
        assert not np.shares_memory(found, M.values)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_coo_needs_one_spare_copy(dtype):
    rows, cols, values = shuffled(holey(2000, 1250, 0.8))
    rows, cols = rows.astype(dtype), cols.astype(dtype)
    assert peak_above_output(lambda: ObservedMatrix.from_coo(rows, cols, values)) < 1.4


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]])
def test_coo_duplicates(order):
    rows, cols = np.array([[1, 0, 1, 1, 0], [2, 0, 2, 2, 1]])[:, order]
    with pytest.raises(ValueError, match=r"2 duplicate entries, the first at row 1, column 2: .* aggregate"):
        ObservedMatrix.from_coo(rows, cols, [1.0, 2.0, 3.0, 4.0, 5.0])


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        (([0, 1], [0], [1.0, 2.0]), ValueError, r"same length, they are \(2,\), \(1,\) and \(2,\)"),
        (([[0]], [[0]], [[1.0]]), ValueError, "1-D"),
        (([0], [0], 1.0), ValueError, "1-D"),
        (([0, -3], [0, 0], [1.0, 2.0]), ValueError, r"rows\[1\] is -3, outside"),
        (([0, 1], [0, 5], [1.0, 2.0], (2, 5)), ValueError, r"cols\[1\] is 5, outside 0 ... 4"),
        (([0.0, 0.5], [0, 0], [1.0, 2.0]), ValueError, r"rows\[1\] is 0.5"),
        (([0, 0], [nan, 0], [1.0, 2.0]), ValueError, r"cols\[0\] is nan"),
        (([np.inf], [0], [1.0]), ValueError, r"rows\[0\] is inf"),
        (([True], [0], [1.0]), TypeError, "rows must be integers, not bool"),
        ((["a"], [0], [1.0]), TypeError, "rows must be integers"),
        (([], [], []), ValueError, "no entry is observed"),
        (([0], [0], [1.0], (1,)), ValueError, "shape must be"),
        (([0], [0], [1.0], (1, 0)), ValueError, "at least one row and one column"),
        (([2**31 - 1], [0], [1.0]), ValueError, r"2\*\*31 - 1 rows and columns"),
        (([0], [2**31 - 1], [1.0]), ValueError, r"2\*\*31 - 1 rows and columns"),
        (([2**63], [0], [1.0]), ValueError, r"2\*\*31 - 1 rows and columns"),
        (([1, 0], [0, 3], [1.0, nan]), ValueError, "1 observed values .* nan at row 0, column 3"),
        (([0], [0], [1j]), TypeError, "complex128 .* real"),
    ],
)
def test_coo_errors(args, error, message):
    with pytest.raises(error, match=message):
        ObservedMatrix.from_coo(*args)


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("X", "mask", "error", "message"),
    [
        ([[1.0, np.inf], [-np.inf, 2.0]], None, ValueError, "2 observed .* -inf at row 1, column 0; leave them out"),
        ([[1.0, nan]], [[True, True]], ValueError, "1 observed .* nan at row 0, column 1; .* mask=False"),
        ([[nan, nan]], None, ValueError, "no entry is observed"),
        ([[1.0]], [[False]], ValueError, "no entry is observed"),
        (np.ones((0, 3)), None, ValueError, "at least one row and one column, this one is 0 x 3"),
        (np.ones((3, 0)), None, ValueError, "at least one row and one column"),
        (np.ones(3), None, ValueError, "2 dimensions, X has 1"),
        (np.ones((2, 2, 2)), None, ValueError, "2 dimensions, X has 3"),
        (np.ones((2, 2)), np.ones((2, 3), bool), ValueError, r"mask is \(2, 3\), but X is \(2, 2\)"),
        (np.ones((1, 2)), [[1, 0]], TypeError, "mask must be boolean"),
        (np.ma.masked_array([[1.0]], [[False]]), [[True]], ValueError, "only one of them"),
        ([[1j]], None, TypeError, "real and the imaginary part"),
        ([[1, None]], None, TypeError, r"astype\(float\)"),
        ([["a"]], None, TypeError, "convert it to real numbers"),
        (np.array([["2020-01-01"]], "M8[D]"), None, TypeError, "convert it to real numbers"),
        (sp.csc_array(np.eye(2)), None, TypeError, "use from_scipy"),
    ],
)
def test_dense_errors(X, mask, error, message):
    with pytest.raises(error, match=message):
        ObservedMatrix.from_dense(X, mask=mask)


@pytest.mark.skipif(np.finfo(np.longdouble).max == np.finfo(np.float64).max, reason="no wider float here")
def test_long_doubles_beyond_float64_are_refused():
    with pytest.raises(ValueError, match="not finite, the first is inf at row 0, column 1"):
        ObservedMatrix.from_dense(np.array([[1, np.longdouble(10) ** 400]]))


@pytest.mark.parametrize("fmt", ["csc", "csr", "coo"])
def test_sparse_errors(fmt):
    A = sp.coo_array(([1.0, nan, 2.0, np.inf], ([0, 2, 1, 0], [0, 1, 1, 2])), shape=(3, 3)).asformat(fmt)
    with pytest.raises(ValueError, match=r"2 observed values .* nan at row 2, column 1"):
        ObservedMatrix.from_scipy(A)
    with pytest.raises(ValueError, match="no entry is observed"):
        ObservedMatrix.from_scipy(sp.coo_array((3, 3)).asformat(fmt))
    with pytest.raises(TypeError, match="complex128"):
        ObservedMatrix.from_scipy(A.astype(complex))
    with pytest.raises(ValueError, match=r"2\*\*31 - 1"):
        ObservedMatrix.from_scipy(sp.coo_array(([1.0], ([0], [0])), shape=(2**31, 1)))


def test_from_scipy_refuses_dense():
    with pytest.raises(TypeError, match="not ndarray: use from_any"):
        ObservedMatrix.from_scipy(np.eye(2))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (([0, 2], [1, 0], [1.0, 2.0]), "must ascend inside a column, not so at row 0, column 0; from_coo"),
        (([0, 2], [1, 1], [1.0, 2.0]), "1 duplicate entries, the first at row 1, column 0"),
        (([0, 1], [0, 1], [1.0, 2.0]), "2 indices and 2 values, but indptr ends with 1"),
        (([0, 2], [0, 1], [1.0]), "2 indices and 1 values"),
        (([0, 1], [2], [1.0]), r"must lie in 0 \.\.\. 1"),
        (([0, 1], [0.0], [1.0]), "integer arrays"),
        (([0, 0, 1], [0], [1.0]), "indptr must be 2 ascending numbers"),
        (([0, 0], np.zeros(0, int), []), "no entry is observed"),
    ],
)
def test_constructor_errors(parts, message):
    with pytest.raises(ValueError, match=message):
        ObservedMatrix(*parts, shape=(2, 1))


def test_constructor_shares_its_arrays_and_leaves_them_writeable():
    parts = np.array([0, 1, 2]), np.array([0, 1], np.int32), np.array([1.0, 2.0])
    M = ObservedMatrix(*parts, shape=(2, 2))
    for kept, given_array in zip((M.indptr, M.rows, M.values), parts, strict=True):
        assert np.shares_memory(kept, given_array)
        assert not kept.flags.writeable
        assert given_array.flags.writeable


def test_equal_rows_of_neighbouring_columns_are_no_duplicates():
    X = np.array([[nan, nan, nan, nan], [1.0, nan, 2.0, 3.0]])
    assert_holds(ObservedMatrix([0, 1, 1, 2, 3], [1, 1, 1], [1.0, 2.0, 3.0], (2, 4)), X)


def test_from_any():
    X = np.array([[1.0, nan], [3.0, 4.0]])
    M = ObservedMatrix.from_any(X)
    assert ObservedMatrix.from_any(M) is M
    masked = np.ma.masked_equal([[1.0, 2.0], [3.0, 4.0]], 2.0)
    for same in (X, X.tolist(), masked, sp.csr_array(M.to_scipy())):
        assert_holds(ObservedMatrix.from_any(same), X)


@pytest.mark.parametrize("X", [None, 3, "abc", [1.0, 2.0], np.ones((1, 1, 1)), {"a": 1}, ([0, 1], [0, 1], [5, 6])])
def test_from_any_says_what_it_takes(X):
    with pytest.raises(TypeError, match=f"this {type(X).__name__} is not .*from_coo"):
        ObservedMatrix.from_any(X)


# ---------------------------------------------------------------------- the object


@given(matrices)
def test_transpose(X):
    M = ObservedMatrix.from_dense(X)
    assert_holds(M.T, X.T)
    assert_holds(M.T.T, X)


@given(matrices)
def test_facts_match_the_dense_array(X):
    M = ObservedMatrix.from_dense(X)
    known = ~np.isnan(X)
    assert M.nnz == known.sum()
    assert M.density == known.mean()
    np.testing.assert_array_equal(M.column_counts, known.sum(axis=0))
    np.testing.assert_array_equal(M.row_counts, known.sum(axis=1))
    assert M.column_counts.dtype == M.row_counts.dtype == np.int64
    np.testing.assert_array_equal(M.empty_columns, np.flatnonzero(~known.any(axis=0)))
    np.testing.assert_array_equal(M.empty_rows, np.flatnonzero(~known.any(axis=1)))
    np.testing.assert_array_equal(X[M.rows, M.columns_of_entries()], M.values)
    for j in range(-X.shape[1], X.shape[1]):
        rows, values = M.column(j)
        np.testing.assert_array_equal(rows, np.flatnonzero(known[:, j]))
        np.testing.assert_array_equal(values, X[known[:, j], j])


@given(matrices)
def test_ways_out(X):
    M = ObservedMatrix.from_dense(X)
    np.testing.assert_array_equal(M.to_dense(), X)
    np.testing.assert_array_equal(M.to_dense(fill=3), np.where(np.isnan(X), 3, X))
    A = M.to_scipy()
    assert isinstance(A, sp.csc_array)
    np.testing.assert_array_equal(A.toarray(), np.nan_to_num(X))
    assert A.nnz == M.nnz


def test_to_scipy_shares_memory_both_ways():
    M = ObservedMatrix.from_dense(holey(5, 4, 0.5).astype(np.float32))
    A = M.to_scipy()
    assert np.shares_memory(A.data, M.values)
    assert np.shares_memory(A.indices, M.rows)
    assert A.indices.dtype == np.int32
    assert np.shares_memory(ObservedMatrix.from_scipy(A).rows, M.rows)
    # the memory is read-only, yet the usual work of a sparse matrix goes on
    X = np.nan_to_num(M.to_dense())
    np.testing.assert_allclose((A @ A.T).toarray(), X @ X.T, rtol=1e-6)
    np.testing.assert_array_equal(A[:, [2, 0]].toarray(), X[:, [2, 0]])


def test_column_bounds():
    M = ObservedMatrix.from_dense(np.ones((2, 3)))
    for j in (3, -4):
        with pytest.raises(IndexError, match=f"column {j} is out of range for a matrix with 3"):
            M.column(j)
    with pytest.raises(TypeError):
        M.column(1.0)


@pytest.mark.parametrize("again", [lambda M: M, copy.deepcopy, lambda M: pickle.loads(pickle.dumps(M))])
def test_immutable_also_after_a_copy(again):
    M = again(ObservedMatrix.from_dense(holey(4, 3, 0.7)))
    assert_holds(M, holey(4, 3, 0.7))
    for array in (M.indptr, M.rows, M.values, *M.column(0)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError):
        M.shape = (3, 4)
    with pytest.raises((AttributeError, TypeError)):
        M.anything = 1


def test_fingerprint_sees_the_data_and_only_the_data():
    X = holey(20, 10, 0.5)
    M = ObservedMatrix.from_dense(X)
    assert len(M.fingerprint()) == 32
    assert M.fingerprint() == ObservedMatrix.from_coo(*shuffled(X), X.shape).fingerprint()
    assert M.fingerprint() == pickle.loads(pickle.dumps(M)).fingerprint()
    values, rows = M.values.copy(), M.rows.copy()
    values[7] = np.nextafter(values[7], 9)
    rows[M.indptr[3] - 1] = 19 if rows[M.indptr[3] - 1] < 19 else 18
    others = [
        M,
        M.T,
        ObservedMatrix(M.indptr, M.rows, values, M.shape),
        ObservedMatrix(M.indptr, rows, M.values, M.shape),
        ObservedMatrix(M.indptr, M.rows, M.values, (21, 10)),
        ObservedMatrix.from_dense(X.astype(np.float32)),
    ]
    assert len({other.fingerprint() for other in others}) == len(others)


@pytest.mark.parametrize("rank", [1, 3, np.int32(2), np.uint8(3)])
def test_check_rank_accepts(rank):
    checked = ObservedMatrix.from_dense(np.ones((3, 5))).check_rank(rank)
    assert type(checked) is int
    assert checked == rank


@pytest.mark.parametrize(
    ("rank", "error", "message"),
    [
        (0, ValueError, "rank is 0; choose 1 to 3"),
        (-1, ValueError, "choose 1 to 3"),
        (4, ValueError, "rank is 4; choose 1 to 3 for a 3 x 5 matrix"),
        (2.0, TypeError, "must be an integer, not 2.0"),
        (True, TypeError, "must be an integer, not True"),
        (np.True_, TypeError, "must be an integer"),
        ("2", TypeError, "must be an integer, not '2'"),
        (None, TypeError, "must be an integer"),
    ],
)
def test_check_rank_refuses(rank, error, message):
    with pytest.raises(error, match=message):
        ObservedMatrix.from_dense(np.ones((3, 5))).check_rank(rank)


def test_repr():
    M = ObservedMatrix.from_coo([0, 2], [1, 1], np.float32([5, 6]), shape=(10, 4))
    assert repr(M) == "ObservedMatrix(10 x 4, 2 entries observed (5%), float32)"
