"""LowRank: whatever the factors say, the dense product says too."""

import copy
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowsparse.linalg.lowrank import LowRank


def factors(m, n, r, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, r)), rng.standard_normal((r, n))


@st.composite
def products(draw):
    """Factors of all sizes from 1 x 1; r may exceed m and n, and columns of U may be equal."""
    m, n, r = (draw(st.integers(1, k)) for k in (8, 8, 4))
    U, V = factors(m, n, r, draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()):
        U[:, -1] = U[:, 0]
    return U, V


def close(found, expected, scale=1.0):
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * scale)


def peak(run):
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# ---------------------------------------------------------------------- entries


@given(products())
def test_parts_of_the_dense_product(UV):
    L, X = LowRank(*UV), UV[0] @ UV[1]
    m, n = X.shape
    assert L.shape == (m, n)
    assert L.rank == UV[0].shape[1]
    close(L.to_dense(), X)
    close(L.T.to_dense(), X.T)
    close(L.at(np.arange(m)[:, None], np.arange(n)), X)
    close(L.at(-1, np.arange(-n, 0)), X[-1])
    for j in (0, -1, slice(None), slice(0, None, 2), [n - 1, 0, 0], np.arange(n) % 2 == 0):
        assert L.columns(j).shape == X[:, j].shape
        close(L.columns(j), X[:, j])
    for i in (0, -1, slice(None), slice(0, None, 2), [m - 1, 0, 0], np.arange(m) % 2 == 0):
        assert L.rows(i).shape == X[i].shape
        close(L.rows(i), X[i])


def test_at_gives_a_number_for_two_integers_and_else_the_broadcast_shape():
    L = LowRank([[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0, 7.0], [8.0, 9.0, 10.0]])
    assert isinstance(L.at(1, 2), float)
    assert L.at(1, 2) == 61.0
    assert L.at(np.int8(-1), np.uint64(0)) == 47.0
    assert L.at([[0], [1]], [2, 0]).tolist() == [[27.0, 21.0], [61.0, 47.0]]
    assert L.at([], []).shape == (0,)


def test_at_many_entries_in_little_memory():
    L = LowRank(*factors(300, 200, 25))
    rng = np.random.default_rng(1)
    i, j = rng.integers(300, size=200_000), rng.integers(200, size=200_000)
    close(L.at(i, j), L.to_dense()[i, j])
    # gathering U[i] and V[:, j] at once would take 50 times the memory of the result
    assert peak(lambda: L.at(i, j)) < 5 * i.nbytes


@pytest.mark.parametrize(
    ("i", "j", "message"),
    [
        (3, 0, "row 3 is out of range for a matrix with 3 rows"),
        (-4, 0, "row -4 is out of range"),
        ([0, 1, 7], 0, "row 7 is out of range"),
        (0, 5, "column 5 is out of range for a matrix with 5 columns"),
        (0, [[0, -6]], "column -6 is out of range"),
        (1.0, 0, "row index must be integer, not float64"),
        (0, [True], "column index must be integer, not bool"),
    ],
)
def test_at_refuses(i, j, message):
    with pytest.raises(IndexError, match=message):
        LowRank(*factors(3, 5, 2)).at(i, j)


def test_parts_refuse_what_would_not_be_a_matrix():
    L = LowRank(*factors(3, 5, 2))
    for chosen in (np.zeros((2, 2), int), None):
        with pytest.raises(IndexError, match="columns are chosen by"):
            L.columns(chosen)
        with pytest.raises(IndexError, match="rows are chosen by"):
            L.rows(chosen)
    with pytest.raises(IndexError):
        L.columns(5)
    with pytest.raises(IndexError):
        L.rows([0, 3])


# ---------------------------------------------------------------------- spectrum


@given(products())
def test_singular_values_and_norm(UV):
    L, X = LowRank(*UV), UV[0] @ UV[1]
    sigma = L.singular_values()
    expected = np.zeros(L.rank)
    dense = np.linalg.svd(X, compute_uv=False)[: L.rank]
    expected[: dense.size] = dense
    close(sigma, expected, scale=L.norm())
    assert (np.diff(sigma) <= 0).all()
    close(L.norm(), np.linalg.norm(X))


def test_known_singular_values_through_any_factors():
    rng = np.random.default_rng(3)
    P = np.linalg.qr(rng.standard_normal((40, 3)))[0]
    Q = np.linalg.qr(rng.standard_normal((30, 3)))[0]
    mix = rng.standard_normal((3, 3)) + 3 * np.eye(3)
    L = LowRank(P * [4.0, 2.0, 1e-9] @ mix, np.linalg.solve(mix, Q.T))
    np.testing.assert_allclose(L.singular_values(), [4.0, 2.0, 1e-9], rtol=1e-5)
    np.testing.assert_allclose(L.norm(), np.sqrt(20), rtol=1e-14)


# ---------------------------------------------------------------------- error


@given(products(), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_error_between_ranks_matches_the_dense_difference(UV, r, seed):
    L = LowRank(*UV)
    other = LowRank(*factors(*L.shape, r, seed))
    X = other.to_dense()
    expected, size = np.linalg.norm(L.to_dense() - X), np.linalg.norm(X)
    scale = L.norm() + size
    for reference in (other, X):
        close(L.error(reference), expected, scale)
        close(L.error(reference, relative=True), expected / size, scale / size)
    close(other.error(L), expected, scale)


def test_long_factors_are_gone_through_in_strips(monkeypatch):
    rng = np.random.default_rng(6)
    L, X = (LowRank(rng.standard_normal((23, r)), rng.standard_normal((r, 31))) for r in (2, 3))
    near = LowRank(L.U, L.V * (1 + 1e-12))
    whole = L.norm(), L.error(X), *L.singular_values()
    monkeypatch.setattr("lowsparse.linalg.lowrank._STRIP", 7)
    np.testing.assert_allclose((L.norm(), L.error(X), *L.singular_values()), whole, rtol=1e-13)
    assert L.error(near) == pytest.approx(1e-12 * L.norm(), rel=1e-3)
    V = L.V.copy()
    V[1, 30] = np.nan
    with pytest.raises(ValueError, match="the factor V holds NaN"):
        LowRank(L.U, V)


@pytest.mark.parametrize("delta", [1e-1, 1e-4, 1e-7, 1e-10, 1e-12])
def test_error_keeps_its_digits_near_zero(delta):
    U, V = factors(200, 150, 5)
    moved = U + delta * np.random.default_rng(1).standard_normal(U.shape)
    L, other = LowRank(U, V), LowRank(moved, V)
    # moved - U is exact, or nearly: this reference has no cancellation
    expected = np.linalg.norm((moved - U) @ V)
    np.testing.assert_allclose(np.linalg.norm(U @ V - moved @ V), expected, rtol=1e-14 / delta + 1e-14)
    for reference in (other, other.to_dense()):
        np.testing.assert_allclose(L.error(reference), expected, rtol=1e-14 / delta + 1e-14)
        np.testing.assert_allclose(
            L.error(reference, relative=True), expected / other.norm(), rtol=1e-14 / delta + 1e-14
        )


def test_error_does_not_see_the_factorisation():
    U, V = factors(60, 50, 4)
    mix = np.diag([1e8, 1.0, 1e-8, -3.0])
    L = LowRank(U, V)
    assert L.error(LowRank(U @ mix, np.linalg.solve(mix, V))) < 1e-13 * L.norm()
    assert L.error(L) < 1e-14 * L.norm()
    # a split of one column in two, so that the ranks differ
    split = LowRank(np.hstack([U, U[:, :1]]), np.vstack([V[:1] / 4, V[1:], V[:1] * 3 / 4]))
    assert L.error(split) < 1e-13 * L.norm()


def test_error_to_a_dense_matrix_in_blocks():
    U, V = factors(2000, 1500, 3)
    L = LowRank(U, V)
    X = np.asarray(L.to_dense() + 0.01, order="F")
    assert peak(lambda: L.error(X, relative=True)) < X.nbytes / 3
    np.testing.assert_allclose(L.error(X), 0.01 * np.sqrt(X.size), rtol=1e-10)
    np.testing.assert_allclose(L.error(X, relative=True), L.error(X) / np.linalg.norm(X), rtol=1e-12)


def test_error_to_integers_and_single_precision():
    L = LowRank(np.full((2, 1), 200.0), np.ones((1, 2)))
    assert L.error(np.full((2, 2), 201, np.uint8)) == 2.0
    assert L.error(np.full((2, 2), 250, np.uint8), relative=True) == 0.2
    huge = np.full((2, 2), 1e30, np.float32)  # its square is beyond single precision
    np.testing.assert_allclose(L.error(huge, relative=True), 1.0)


def test_error_refuses():
    L = LowRank(*factors(3, 5, 2))
    with pytest.raises(ValueError, match=r"shapes differ: \(3, 5\) and \(5, 3\)"):
        L.error(L.T)
    with pytest.raises(ValueError, match="shapes differ"):
        L.error(np.ones((3, 1)))
    with pytest.raises(ValueError, match="2 dimensions, it has 1"):
        L.error(np.ones(5))
    with pytest.raises(TypeError, match="real numbers"):
        L.error(np.ones((3, 5), complex))
    with pytest.raises(ValueError, match="NaN or infinite"):
        L.error(np.full((3, 5), np.nan))
    for zero in (np.zeros((3, 5)), LowRank(np.zeros((3, 1)), np.ones((1, 5)))):
        assert L.error(zero) == pytest.approx(L.norm(), rel=1e-14)
        with pytest.raises(ValueError, match="other is zero"):
            L.error(zero, relative=True)


# ---------------------------------------------------------------------- the object


@pytest.mark.parametrize("order", ["C", "F"])
def test_float64_factors_are_shared_read_only_and_stay_writeable_outside(order):
    U, V = (np.asarray(a, order=order) for a in factors(4, 3, 2))
    L = LowRank(U, V)
    for kept, given_array in ((L.U, U), (L.V, V), (L.T.V, U), (L.T.U, V)):
        assert np.shares_memory(kept, given_array)
        assert given_array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            kept[0, 0] = 1


@pytest.mark.parametrize("dtype", [bool, np.int16, np.float32])
def test_other_factors_become_float64(dtype):
    L = LowRank(np.ones((2, 1), dtype), np.ones((1, 2), dtype))
    assert L.U.dtype == L.V.dtype == np.float64
    assert L.to_dense().tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("again", [copy.deepcopy, lambda L: pickle.loads(pickle.dumps(L))])
def test_copies_are_equal_and_immutable(again):
    U, V = factors(4, 3, 2)
    L = again(LowRank(U, V))
    np.testing.assert_array_equal(L.U, U)
    np.testing.assert_array_equal(L.V, V)
    assert not L.U.flags.writeable
    with pytest.raises(AttributeError):
        L.U = U


@pytest.mark.parametrize(
    ("U", "V", "error", "message"),
    [
        (np.ones((3, 2)), np.ones((3, 2)), ValueError, r"they are \(3, 2\) and \(3, 2\)"),
        (np.ones(3), np.ones((1, 3)), ValueError, "U must have 2 dimensions, it has 1"),
        (np.ones((3, 1)), np.ones(3), ValueError, "V must have 2 dimensions"),
        ([[np.nan]], [[1.0]], ValueError, "the factor U holds NaN"),
        ([[1.0]], [[np.inf]], ValueError, "the factor V holds NaN or infinite"),
        (np.ones((3, 0)), np.ones((0, 3)), ValueError, "must not be empty"),
        (np.ones((0, 1)), np.ones((1, 3)), ValueError, "must not be empty"),
        ([[1j]], [[1.0]], TypeError, "U must hold real numbers, not complex128"),
        ([[1.0]], [["a"]], TypeError, "V must hold real numbers"),
    ],
)
def test_constructor_refuses(U, V, error, message):
    with pytest.raises(error, match=message):
        LowRank(U, V)


def test_repr():
    assert repr(LowRank(*factors(30, 20, 5))) == "LowRank(30 x 20, rank 5)"
