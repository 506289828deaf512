"""The waist: every backend against the NumPy oracle, and the oracle against the paper's formulas on dense arrays."""

from functools import partial

import numpy as np
import pytest

from conftest import (
    assert_close,
    dense_f,
    dense_gradient,
    dense_V,
    on_entries,
    on_grid,
    opened,
    orthonormal,
    robust_problem,
    soft,
)
from lowsparse import LowRank, ObservedMatrix
from lowsparse.places.decide import available
from lowsparse.sweeps import BACKENDS, Magnitudes, Multiplier, Previous, Proximal, Robust, Rule
from lowsparse.sweeps.losses import Kind, Loss
from lowsparse.sweeps.native import num_threads

RANKS = [*range(1, 17), 20, 33, 50]
STEPS = [(Rule.FIT, 1.0), (Rule.MANPG, 1.0), (Rule.MANPG, 0.6), (Rule.AMANPG, 1.0), (Rule.AMANPG, 0.6)]
LAMBDAS = [0.0, 1e-16, 1e-6, 0.3**2]
RAGGED = [
    (12, np.float64),
    (33, np.float32),
    *(pytest.param(r, np.float64, marks=pytest.mark.slow) for r in (11, 20, 33, 50)),
    *(pytest.param(r, np.float32, marks=pytest.mark.slow) for r in (11, 12, 20)),
]
EXACT = 1e-10
THIN = 1e-6  # V of a column with fewer than r entries: rounding is magnified by 1/λ²


def columns_of(lengths, m, dtype=np.float64, seed=1):
    """Columns with as many entries as asked, in random rows."""
    rng = np.random.default_rng([3, seed])
    rows = np.concatenate([np.sort(rng.choice(m, size=k, replace=False)) for k in lengths]).astype(np.int32)
    values = rng.standard_normal(rows.size).astype(dtype)
    return ObservedMatrix(np.r_[0, np.cumsum(lengths)], rows, values, (m, len(lengths)))


def outliers_of(M, seed=2):
    rng = np.random.default_rng([5, seed])
    return np.where(rng.random(M.nnz) < 0.3, rng.standard_normal(M.nnz), 0.0).astype(M.dtype)


def swept(sweep, U, S, rule, before=None, **numbers):
    out = np.full_like(S, np.nan)
    return sweep.sweep(U, S, out if rule != Rule.FIT else None, Proximal(rule, **numbers), before), out


ORACLE = {}  # what it says, computed once for all that are compared with it


def by_oracle(M, U, *of, compute):
    """What the oracle says of these data with U = orthonormal(...), and of what else is named."""
    key = M.rows.tobytes(), M.values.tobytes(), M.shape, U.shape, *map(str, of)
    if key not in ORACLE:
        ORACLE[key] = compute()
    return ORACLE[key]


def assert_same_sweep(M, backend, U, rule, t_S, lambda2, gamma=0.7):
    S, r = outliers_of(M), U.shape[1]
    rng = np.random.default_rng([7, r])
    before = Previous(rng.standard_normal((r, M.shape[1])), rng.standard_normal((r, r)))
    parameters = {"before": before, "gamma": gamma, "t_S": t_S, "lambda2": lambda2}
    expected, S_expected = by_oracle(
        M, U, rule, t_S, lambda2, gamma, compute=lambda: swept(opened(M), U, S, rule, **parameters)
    )
    found, S_found = swept(opened(M, backend), U, S, rule, **parameters)
    thin = M.column_counts < U.shape[1]
    v_scale = max(1.0, np.max(np.abs(expected.V)))
    assert_close(found.V[:, ~thin], expected.V[:, ~thin], EXACT, v_scale)
    assert not found.V[:, M.column_counts == 0].any()
    assert np.isfinite(found.V).all()
    assert_close(found.VVt, found.V @ found.V.T, EXACT)
    assert_close(found.dV, np.linalg.norm(found.V - before.rotation @ before.V), EXACT)
    fits = [LowRank(U, V).at(M.rows, M.columns_of_entries()) for V in (found.V, expected.V)]
    assert_close(*fits, EXACT)
    if lambda2 == 0:  # directions a column does not see are dropped
        assert (np.count_nonzero(found.V, axis=0) <= M.column_counts).all()
    if lambda2 >= 1e-6:  # else nothing determines v beyond what its column sees
        assert_close(found.V[:, thin], expected.V[:, thin], THIN, v_scale)
    assert_close(found.G, expected.G, EXACT)
    for name in ("smooth_in", "smooth_out", "l1", "dS"):
        assert_close(getattr(found, name), getattr(expected, name), EXACT)
    if rule != Rule.FIT:
        ulp = np.finfo(M.dtype).eps  # of float32 storage; of float64 it is far below
        np.testing.assert_allclose(S_found, S_expected, rtol=ulp, atol=EXACT)


# ---------------------------------------------------------------------- against the oracle


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("r", RANKS)
def test_every_backend_regresses_as_the_oracle_does(backend, r, dtype):
    lengths = [3 * r + k for k in range(9)] + [4 * r + 40, 0, 6 * r + 61, r]
    M = columns_of(lengths, m=7 * r + 70, dtype=dtype, seed=r)
    U = orthonormal(M.shape[0], r)
    V = np.random.default_rng(r).standard_normal((len(lengths), r))
    found, expected = opened(M, backend), opened(M)
    assert_close(found.residual(U, V), expected.residual(U, V), EXACT)
    for start, more in (
        (None, {}),
        (V, {}),
        (V, {"n_reweight": 3, "bound": 0.7}),
        (None, {"n_reweight": 4, "first_c": 5.0}),
        (V, {"shrink": 0.01, "n_reweight": 2}),
        (V, {"largest": 1e-3}),
        (V, {"ridge": 0.02, "n_reweight": 2}),
    ):
        robust = Robust(c=0.5, unit=2.0, **more)
        a = found.regress(U, start, robust)
        b = by_oracle(M, U, robust, start is None, compute=partial(expected.regress, U, start, robust))
        enough = M.column_counts >= r + 2  # else nothing but the ridge of rounding determines them
        assert_close(a.V[enough], b.V[enough], 1e-8, max(1.0, np.max(np.abs(b.V[enough]))))
        np.testing.assert_array_equal(a.inside, b.inside)
        assert a.magnitudes.counts.sum() == b.magnitudes.counts.sum() == M.nnz
        assert np.abs(a.magnitudes.counts - b.magnitudes.counts).sum() <= 4  # a residual may round into the next bin
        assert np.isfinite(a.V).all()


@pytest.mark.parametrize("r", [2, 5, 17])
def test_a_ridge_is_in_proportion_to_the_mean_weight(backend, r):
    M = columns_of([40, 0, 1, r - 1, r + 3, 55], m=60, seed=r)
    rng = np.random.default_rng([r, 1])
    B, V = rng.standard_normal((60, r)), rng.standard_normal((6, r))  # no basis is orthonormal here
    found = opened(M, backend).regress(B, V, Robust(c=0.8, ridge=0.7)).V
    for j in range(6):
        rows, x = M.column(j)
        w = 1 / (1 + ((B[rows] @ V[j] - x) / 0.8) ** 2)
        A = (B[rows].T * w) @ B[rows] + 0.7 * (w.mean() if w.size else 1.0) * np.eye(r)
        assert_close(found[j], np.linalg.solve(A, (B[rows].T * w) @ x), 1e-8, scale=1.0)


@pytest.mark.parametrize("r", [17, 18, 19, 33])
def test_what_lay_in_memory_before_does_not_matter(native, r):
    M = columns_of(40 * [60], m=60)
    B, V = np.random.default_rng(r).standard_normal((60, r)), np.zeros((40, r))
    expected = opened(M, native).regress(B, V, Robust(c=1.0)).V
    for size in 6 * [60_000] + 6 * [80_000] + 6 * [120_000]:
        np.full(size, np.nan)  # its memory is free again at once
        found = opened(M, native).regress(B, V, Robust(c=1.0)).V
        assert found.tobytes() == expected.tobytes()


def test_a_long_column_is_regressed_in_pieces(backend):
    M = columns_of([40000, 17, 30000], m=50000)
    U = orthonormal(50000, 3)
    a, b = (opened(M, name).regress(U, None, Robust(c=0.5, first_c=4.0, n_reweight=3)) for name in (backend, "numpy"))
    assert_close(a.V, b.V, 1e-9)


@pytest.mark.parametrize("r", [1, 2, 3, 5, 8])
def test_columns_of_any_length_are_regressed(backend, r):
    """A GPU gives a column to a warp, to a block or to several; the last entries are those of a part of a warp."""
    lengths = [*range(95, 165), *range(1000, 1033), 1537, 1553, 1569, 1601, 5000, 5016, 5031, 17, 60]
    M = columns_of(lengths, m=6000, seed=r)
    U = orthonormal(6000, r)
    for more in ({"n_reweight": 1}, {"n_reweight": 3, "first_c": 4.0}):
        robust = Robust(c=0.5, bound=0.3, **more)
        a = opened(M, backend).regress(U, None, robust)
        b = by_oracle(M, U, robust, compute=partial(opened(M).regress, U, None, robust))
        assert_close(a.V, b.V, 1e-9)
        np.testing.assert_array_equal(a.inside, b.inside)


def test_a_regression_is_robust(backend):
    rng = np.random.default_rng(8)
    U, truth = orthonormal(200, 3), rng.standard_normal((30, 3))
    X = U @ truth.T
    X[rng.random(X.shape) < 0.3] += 5.0
    sweep = opened(ObservedMatrix.from_dense(X), backend)
    fitted = sweep.regress(U, None, Robust(c=1e-7, first_c=1.0, n_reweight=25)).V
    assert_close(fitted, truth, 1e-9)


def test_magnitudes_have_quantiles():
    e = np.random.default_rng(9).standard_normal(20000) * 3.0
    for q in (0.1, 0.5, 0.9):
        assert Magnitudes.of(e, 3.0).quantile(q) == pytest.approx(np.quantile(np.abs(e), q), rel=0.03)
    assert Magnitudes.of(np.zeros(5), 1.0).quantile(0.5) == 0
    assert Magnitudes.of(np.array([1e-300, 1e300, 1.0]), 1.0).counts.sum() == 3


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("r", RANKS)
def test_every_backend_agrees_with_the_oracle(backend, r, dtype):
    lengths = [3 * r + k for k in range(9)] + [4 * r + 40, 6 * r + 61]
    M = columns_of(lengths, m=7 * r + 70, dtype=dtype, seed=r)
    for rule, t_S in STEPS:
        for lambda2 in LAMBDAS:
            assert_same_sweep(M, backend, orthonormal(M.shape[0], r), rule, t_S, lambda2)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("r", [2, 3, 5, 8, 16, 20])
def test_thin_and_empty_columns_agree_with_the_oracle(backend, r, dtype):
    M = columns_of([0, 1, 4 * r, 0, r // 2, 1, 3 * r + 1, r - 1, 0], m=5 * r + 3, dtype=dtype, seed=r)
    for rule, t_S in STEPS:
        for lambda2 in LAMBDAS:
            assert_same_sweep(M, backend, orthonormal(M.shape[0], r), rule, t_S, lambda2)


@pytest.mark.parametrize("r", [1, 2, 5, 12, 20])
def test_columns_longer_than_the_panel_agree_with_the_oracle(backend, r):
    panel = 65536 // {1: 1, 2: 2, 5: 8, 12: 12, 20: 20}[r] // 128 * 128  # panel_capacity in cpp/sweep.hpp
    M = columns_of([panel - 1, panel, panel + 1, 2 * panel, 2 * panel + 67, 3, panel + 64], m=2 * panel + 100)
    for rule, t_S in STEPS:
        assert_same_sweep(M, backend, orthonormal(M.shape[0], r), rule, t_S, lambda2=1e-10, gamma=0.5)


@pytest.mark.parametrize("r", [1, 2, 3, 5, 8])
def test_columns_of_any_length_agree_with_the_oracle(backend, r):
    M = columns_of([*range(95, 165), *range(1000, 1033), 1601, 2500, 5016, 17], m=5500, seed=r)
    for rule, t_S in STEPS:
        assert_same_sweep(M, backend, orthonormal(5500, r), rule, t_S, lambda2=1e-10)


@pytest.mark.parametrize(("r", "dtype"), RAGGED)
def test_columns_of_5_and_of_50000_agree_with_the_oracle(compiled, r, dtype):
    """Above rank 10 a GPU has other kernels, which also take the long ones in pieces."""
    M = columns_of([5, 50_000, 0, 5, 300, 20_011, 97], m=50_100, dtype=dtype, seed=r)
    U = orthonormal(50_100, r)
    for rule in Rule:
        assert_same_sweep(M, compiled, U, rule, 1.0, lambda2=1e-6)
    assert_close(opened(M, compiled).grams(U), by_oracle(M, U, "grams", compute=lambda: opened(M).grams(U)), EXACT)


@pytest.mark.parametrize(("r", "dtype"), RAGGED)
def test_columns_of_5_and_of_50000_are_regressed(compiled, r, dtype):
    M = columns_of([5, 50_000, 0, 5, 300, 20_011, 97], m=50_100, dtype=dtype, seed=r)
    U = orthonormal(50_100, r)
    for more in ({"n_reweight": 1}, {"n_reweight": 3, "first_c": 4.0}):
        robust = Robust(c=0.5, bound=0.3, **more)
        a = opened(M, compiled).regress(U, None, robust)
        b = by_oracle(M, U, robust, compute=partial(opened(M).regress, U, None, robust))
        enough = M.column_counts >= r + 2
        assert_close(a.V[enough], b.V[enough], EXACT, max(1.0, np.max(np.abs(b.V[enough]))))
        np.testing.assert_array_equal(a.inside, b.inside)
        assert a.magnitudes.quantile(0.5) == pytest.approx(b.magnitudes.quantile(0.5), rel=0.03)  # of a sample


@pytest.mark.parametrize("k", [1, 3, 4, 5, 15, 16, 17, 33, 53])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gram_product_is_that_of_the_zero_filled_matrix(backend, k, dtype):
    M = columns_of([0, 1, 2, 3, 4, 40, 60], m=60, dtype=dtype)
    A, Q = M.to_dense(fill=0.0).astype(float), np.random.default_rng(8).standard_normal((60, k))
    found = opened(M, backend).gram_product(Q)
    assert found.dtype == np.float64
    assert_close(found, A @ (A.T @ Q), EXACT)


LOSSES = [Loss(kind, c=0.7, p=0.8) for kind in Kind]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind.name)
def test_every_backend_regresses_under_every_loss(backend, loss):
    M = columns_of([30, 0, 41, 7, 52], m=60)
    U, V = orthonormal(60, 3), np.random.default_rng(4).standard_normal((5, 3))
    a, b = (
        opened(M, name).regress(U, V, Robust(c=loss.c, kind=loss.kind, p=loss.p, n_reweight=2))
        for name in (backend, "numpy")
    )
    assert_close(a.V, b.V, 1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("r", [1, 2, 3, 4, 5, 8, 13, 16, 17, 33])
def test_products_and_residuals_are_those_of_dense_matrices(backend, r, dtype):
    M = columns_of([0, 1, 2, 3, 4, 40, 60, 260, 299, 513], m=520, dtype=dtype)
    rng = np.random.default_rng(r)
    U, V, y = rng.standard_normal((520, r)), rng.standard_normal((10, r)), rng.standard_normal(M.nnz)
    sweep, Y = opened(M, backend), on_grid(M, y)
    assert_close(sweep.entries(U, V), on_entries(M, U @ V.T), EXACT)
    assert_close(sweep.residual(U, V), on_entries(M, U @ V.T) - M.values, EXACT)
    assert_close(sweep.product(y, V), Y @ V, EXACT)
    assert_close(sweep.product_transposed(y, U), Y.T @ U, EXACT)
    C = on_grid(M, np.ones(M.nnz))
    assert_close(sweep.grams(U), np.einsum("ij,ia,ib->jab", C, U, U), EXACT)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind.name)
@pytest.mark.parametrize("r", [2, 5, 19])
def test_the_gradient_of_a_loss_is_that_of_dense_matrices(backend, loss, r):
    M = columns_of([0, 1, 2, 3, 40, 60, 260, 299], m=300)
    rng = np.random.default_rng(r)
    U, V = rng.standard_normal((300, r)), rng.standard_normal((8, r))
    B = rng.standard_normal((8, r))
    e = on_entries(M, U @ V.T) - M.values
    Y = on_grid(M, loss.slope(e))
    sweep = opened(M, backend)
    found = sweep.gradient(U, V, loss)
    assert_close(found.value, np.sum(loss.value(e)), EXACT)
    assert_close(found.U, Y @ V, EXACT)
    assert_close(found.V, Y.T @ U, EXACT)
    expected = np.sum(loss.weight(e) * on_entries(M, U @ B.T) ** 2)
    assert_close(sweep.curvature(U, V, B, loss), expected, EXACT)


def test_the_gradient_of_a_perfect_fit_is_zero(backend):
    U, V = orthonormal(20, 2), np.random.default_rng(5).standard_normal((9, 2))
    sweep = opened(ObservedMatrix.from_dense(U @ V.T).with_values(opened_values(U, V, backend)), backend)
    found = sweep.gradient(U, V, Loss(Kind.L1))
    assert found.value == 0
    assert not found.U.any()
    assert not found.V.any()


def opened_values(U, V, backend):
    """U V as that backend computes it."""
    return opened(ObservedMatrix.from_dense(U @ V.T), backend).entries(U, V)


@pytest.mark.parametrize("r", [1, 3, 5, 18])
def test_an_ascent_is_the_augmented_lagrangian_on_dense_matrices(backend, r):
    M = columns_of([0, 1, 2, 3, 5, 40, 60, 259], m=270)
    rng = np.random.default_rng(r)
    U, C = rng.standard_normal((270, r)), rng.standard_normal((8, r))
    multiplier, w = rng.uniform(-1, 1, M.nnz), rng.standard_normal(M.nnz)
    beta, next_beta = 0.6, 0.9
    V = C + on_grid(M, w).T @ U
    e = on_entries(M, U @ V.T) - M.values
    Z = M.values + soft(e + multiplier / beta, 1 / beta)
    new = multiplier + beta * (e + M.values - Z)
    w_new = Z - new / next_beta - (e + M.values)

    out = Multiplier(np.full(M.nnz, np.nan), np.full(M.nnz, np.nan))
    found = opened(M, backend).ascend(U, C, Multiplier(multiplier, w), out, beta, next_beta)
    assert_close(found.V, V, EXACT)
    assert_close(out.values, new, EXACT)
    assert_close(out.w, w_new, EXACT)
    assert_close(found.G, on_grid(M, w_new) @ V, EXACT)
    assert_close(found.l1, np.abs(e).sum(), EXACT)
    assert_close(found.infeasible, np.linalg.norm(e + M.values - Z), EXACT)


def test_what_is_written_to_is_never_a_converted_copy(native):
    """A copy would be filled and thrown away, and the caller's array left as it was."""
    M = columns_of([5, 7], m=9)
    U, C = np.ones((9, 1)), np.ones((2, 1))
    given, single = (Multiplier(np.zeros(M.nnz, kind), np.zeros(M.nnz, kind)) for kind in (np.float64, np.float32))
    with pytest.raises(TypeError, match="float64"):
        opened(M, native).ascend(U, C, given, single, 0.5, 0.5)


def test_kth_largest_sorts_every_column(backend):
    M = columns_of([0, 1, 7, 30, 30, 5], m=40)
    y = np.random.default_rng(6).standard_normal(M.nnz)
    k = np.array([1, 1, 3, 30, 0, 6])
    columns = [np.sort(np.abs(part))[::-1] for part in np.split(y, M.indptr[1:-1])]
    expected = [0.0, columns[1][0], columns[2][2], columns[3][29], np.inf, 0.0]
    np.testing.assert_array_equal(opened(M, backend).kth_largest(y, k), expected)


# ---------------------------------------------------------------------- against dense formulas


@pytest.fixture
def tiny():
    """9 x 7 of rank 2 with one empty column, one with a single entry, and a full one."""
    M = columns_of([0, 1, 9, 5, 6, 4, 3], m=9)
    return M, orthonormal(9, 2), outliers_of(M), on_grid(M, np.ones(M.nnz))


@pytest.mark.parametrize("lambda2", [1e-6, 0.09, 0.5])
@pytest.mark.parametrize("t_S", [1.0, 0.4])
def test_a_sweep_is_the_papers_formulas(backend, tiny, lambda2, t_S):
    M, U, S, C = tiny
    gamma, X = 0.3, on_grid(M, M.values)
    Y = X - on_grid(M, S)
    V = dense_V(U, Y, C, lambda2)
    # S - t_S ∇_S f with ∇_S f = P_Ω(UV - M + S), shrunk by γ t_S
    S_new = soft(C * (on_grid(M, S) - t_S * (U @ V - Y)), gamma * t_S)
    Y_new = X - S_new
    V_new = dense_V(U, Y_new, C, lambda2)

    sweep = opened(M, backend)
    fit, _ = swept(sweep, U, S, Rule.FIT, lambda2=lambda2)
    jacobi, S_jacobi = swept(sweep, U, S, Rule.MANPG, gamma=gamma, t_S=t_S, lambda2=lambda2)
    seidel, S_seidel = swept(sweep, U, S, Rule.AMANPG, gamma=gamma, t_S=t_S, lambda2=lambda2)
    for found in (fit, jacobi):
        assert_close(found.V, V, EXACT)
        assert_close(found.VVt, V @ V.T, EXACT)
    assert fit.G.size == 0
    assert_close(jacobi.G, dense_gradient(U, V, Y, C, lambda2), EXACT)
    assert_close(seidel.V, V_new, EXACT)
    assert_close(seidel.G, dense_gradient(U, V_new, Y_new, C, lambda2), EXACT)
    assert_close(seidel.smooth_out, dense_f(U, V_new, Y_new, C, lambda2), EXACT)
    for found in (fit, jacobi, seidel):
        assert_close(found.smooth_in, dense_f(U, V, Y, C, lambda2), EXACT)
    for found, out in ((jacobi, S_jacobi), (seidel, S_seidel)):
        assert_close(out, on_entries(M, S_new), EXACT)
        assert_close(found.l1, np.abs(S_new).sum(), EXACT)
        assert_close(found.dS, np.linalg.norm(S_new - on_grid(M, S)), EXACT)


def test_without_regularisation_v_is_least_squares(backend, tiny):
    M, U, S, _ = tiny
    found, _ = swept(opened(M, backend), U, S, Rule.FIT)
    for j in range(M.shape[1]):
        rows, x = M.column(j)
        y = x - S[M.indptr[j] : M.indptr[j + 1]]
        best = np.linalg.lstsq(U[rows], y, rcond=None)[0]
        assert_close(U[rows] @ found.V[:, j], U[rows] @ best, 1e-9, scale=1.0)
        if len(rows) >= 2:
            assert_close(found.V[:, j], best, 1e-9, scale=1.0)


def test_the_oracle_does_not_depend_on_how_it_splits_the_columns(tiny, monkeypatch):
    M, U, S, _ = tiny
    from lowsparse.sweeps import reference

    whole, S_whole = swept(opened(M), U, S, Rule.AMANPG, gamma=0.3, lambda2=1e-6)
    monkeypatch.setattr(reference, "column_ranges", lambda M, _, split=reference.column_ranges: split(M, 5))
    parts, S_parts = swept(opened(M), U, S, Rule.AMANPG, gamma=0.3, lambda2=1e-6)
    assert_close(parts.V, whole.V, EXACT)
    assert_close(parts.G, whole.G, EXACT)
    assert_close(S_parts, S_whole, EXACT)
    assert_close([parts.smooth_in, parts.smooth_out, parts.l1], [whole.smooth_in, whole.smooth_out, whole.l1], EXACT)


# ---------------------------------------------------------------------- threads


@pytest.mark.parametrize(("m", "n", "r"), [(700, 500, 5), (40, 12000, 2), (9000, 40, 20)])
def test_a_sweep_has_the_same_bits_for_every_number_of_threads(native, monkeypatch, m, n, r):
    M = robust_problem(m, n, rank=r, density=0.3).M
    assert M.nnz > 20000  # less is one block
    U, S = orthonormal(m, r), outliers_of(M)

    def bits(threads):
        monkeypatch.setenv("LOWSPARSE_NUM_THREADS", str(threads))
        sweep = opened(M, native)
        seen = [sweep.gram_product(U).tobytes()]
        fitted = sweep.regress(U, None, Robust(c=0.1, first_c=2.0, n_reweight=3, bound=0.2))
        seen += [a.tobytes() for a in (fitted.V, fitted.inside, fitted.magnitudes.counts, sweep.residual(U, fitted.V))]
        V, y, loss = fitted.V, sweep.entries(U, fitted.V), Loss(Kind.PSEUDO_HUBER, c=0.3)
        gradient = sweep.gradient(U, V, loss)
        current, out = (Multiplier(np.full(M.nnz, value), np.ones(M.nnz)) for value in (0.0, 1.0))
        seen += [a.tobytes() for a in (gradient.U, gradient.V, sweep.product(y, V), sweep.product_transposed(y, U))]
        seen += [gradient.value, sweep.curvature(U, V, V, loss)]
        ascent = sweep.ascend(U, V, current, out, 0.5, 0.7)
        seen += [a.tobytes() for a in (ascent.V, ascent.G, *out)] + [ascent.l1, ascent.infeasible]
        for rule in Rule:
            found, out = swept(sweep, U, S, rule, gamma=0.4, lambda2=1e-10)
            sums = np.array([found.smooth_in, found.smooth_out, found.l1, found.dS])
            seen += [a.tobytes() for a in (found.V, found.G, found.VVt, sums)] + [out.tobytes()] * (rule != Rule.FIT)
        return seen

    assert bits(1) == bits(2) == bits(3) == bits(3)


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [("3", "5", 3), ("", "5", 5), (" 2 ", "", 2), ("", "4,2", 4), ("7,1", "", 7)],
)
def test_number_of_threads_from_the_environment(monkeypatch, own, others, expected):
    monkeypatch.setenv("LOWSPARSE_NUM_THREADS", own)
    monkeypatch.setenv("OMP_NUM_THREADS", others)
    assert num_threads() == expected


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
@pytest.mark.parametrize("name", ["LOWSPARSE_NUM_THREADS", "OMP_NUM_THREADS"])
def test_a_number_of_threads_that_is_none_is_refused(monkeypatch, name, text):
    monkeypatch.delenv("LOWSPARSE_NUM_THREADS", raising=False)
    monkeypatch.setenv(name, text)
    with pytest.raises(ValueError, match=f"{name}='{text}' is not a positive whole number"):
        num_threads()


# ---------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    "change",
    [
        {"S": lambda S: S[:-1]},
        {"S": lambda S: S.astype(np.float32)},
        {"S_out": lambda S: S[:-1].copy()},
        {"S_out": lambda S: S.astype(np.float32)},
        {"S_out": lambda S: S},  # the same memory
        {"S_out": lambda S: None},
        {"S_out": lambda S: with_flag(S.copy(), write=False)},
        {"U": lambda U: U[:-1]},
        {"U": lambda U: U[:, :0]},
        {"U": lambda U: U[:, 0]},
    ],
)
def test_the_core_refuses_arrays_that_do_not_fit(native, tiny, change):
    M, U, S, _ = tiny
    arguments = {"U": U, "S": S, "S_out": np.empty_like(S)}
    arguments |= {name: make(U if name == "U" else S) for name, make in change.items()}
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        opened(M, native).sweep(**arguments, options=Proximal(Rule.AMANPG, gamma=0.3))


def with_flag(array, **flags):
    array.setflags(**flags)
    return array


def test_the_core_refuses_less_than_one_thread(native, tiny):
    sweep = opened(tiny[0], native)
    sweep.threads = 0
    with pytest.raises(ValueError, match="threads must be at least 1"):
        sweep.sweep(tiny[1], tiny[2], np.empty_like(tiny[2]), Proximal(Rule.AMANPG, gamma=0.3))


def test_the_core_refuses_a_block_with_other_rows(native, tiny):
    with pytest.raises(ValueError, match="shape"):
        opened(tiny[0], native).gram_product(np.ones((3, 2)))


def test_u_may_lie_in_memory_in_any_order(backend, tiny):
    M, U, S, _ = tiny
    plain, _ = swept(opened(M, backend), U, S, Rule.AMANPG, gamma=0.3)
    for other in (np.asfortranarray(U), np.repeat(U, 2, axis=0)[::2]):
        again, _ = swept(opened(M, backend), other, S, Rule.AMANPG, gamma=0.3)
        assert_close(again.G, plain.G, 1e-14)


def test_unknown_instruction_sets_and_backends_are_named(native, tiny, monkeypatch):
    with pytest.raises(ValueError, match="backend 'gpu' does not run over data in memory"):
        tiny[0].open_sweep("gpu")
    monkeypatch.setenv("LOWSPARSE_ISA", "v9")
    with pytest.raises(ValueError, match="no instruction set 'v9'"):
        tiny[0].open_sweep("native")


def test_numpy_is_always_there():
    assert list(available()) == [*BACKENDS, "cuda"]
    assert available()["numpy"] is None
