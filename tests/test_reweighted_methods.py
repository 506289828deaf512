"""IRLS, HQ and Lp: they recover, they end at stationary points of their losses, and say so when they do not.

No constant of the methods was chosen on these seeds.
"""

import numpy as np
import pytest
from scipy import sparse

import lowsparse as ls
from conftest import assert_close, on_entries, on_grid, relative
from lowsparse.linalg.grassmann import basis
from lowsparse.linalg.scale import robust_scale
from lowsparse.result import Status
from lowsparse.solvers import HQ, IRLS, Lp, hq, irls
from lowsparse.solvers.lp import prox
from lowsparse.sweeps import Robust
from lowsparse.sweeps.losses import EFFICIENT, Kind, Loss
from test_losses import least_absolute

HARD = 43  # a seed for which lines are given up
LOSSES = ["huber", "pseudo_huber", "cauchy", "geman_mcclure", "welsch", "tukey"]
REDESCENDING = LOSSES[2:]
# one of each kind, for what all have in common
SOME = [IRLS(loss="huber"), IRLS(loss="tukey"), HQ(), Lp(), Lp(p=0.6), Lp(form="admm")]
each = pytest.mark.parametrize("method", SOME, ids=lambda x: f"{x.name}-{getattr(x, 'loss', '')}{getattr(x, 'p', '')}")


def problem(m=300, n=300, rank=5, density=0.3, *, wild=False, condition=None, noise=0.0, outliers=0.1, seed=0):
    """Problem A (outliers N(0, 1)) or B (`wild`: uniform on [-10, 10]). (M, L, is outlier)."""
    rng = np.random.default_rng([3141, seed])
    U, V = rng.standard_normal((m, rank)), rng.standard_normal((rank, n))
    if condition:
        U, V = np.linalg.qr(U)[0], np.linalg.qr(V.T)[0].T
        s = np.geomspace(1, 1 / condition, rank)
        U = U * (s * np.sqrt(rank * m * n / np.sum(s**2)))
    L = ls.LowRank(U, V)
    j, i = np.nonzero(rng.random((n, m)) < density)
    wrong = rng.random(i.size) < outliers
    error = rng.uniform(-10, 10, i.size) if wild else rng.standard_normal(i.size)
    x = L.at(i, j) + wrong * error + noise * rng.standard_normal(i.size)
    return ls.ObservedMatrix.from_coo(i, j, x, (m, n)), L, wrong


def small(seed, **kind):
    return problem(90, 80, 3, 0.5, seed=seed, **kind)


def factors(r):
    return r.L.U, np.ascontiguousarray(r.L.V.T)


def assert_stationary(M, r, loss, tol):
    """Sp(ψ(e)) V = 0 and Sp(ψ(e))ᵀ U = 0, against the sums of the magnitudes."""
    U, V = factors(r)
    V, _ = basis(V)
    psi = on_grid(M, loss.slope(M.open_sweep().residual(*factors(r))))
    assert np.abs(psi.T @ U).max() <= tol * (np.abs(psi).T @ np.abs(U)).max()
    assert np.abs(psi @ V).max() <= tol * (np.abs(psi) @ np.abs(V)).max()


def least_squares(M, rank, wrong, U):
    """The least-squares fit of the entries that are right, by alternation from the true U."""
    columns, inlier = M.columns_of_entries(), ~wrong
    good = ls.ObservedMatrix.from_coo(M.rows[inlier], columns[inlier], M.values[inlier], M.shape)
    by_column, by_row = good.open_sweep(), good.T.open_sweep()
    plain = Robust(c=1e9)  # all weights are 1
    for _ in range(30):
        Q, _ = basis(by_column.regress(U, None, plain).V)
        U, R = basis(by_row.regress(Q, None, plain).V)
    return ls.LowRank(U, (Q @ R.T).T)


def dense_lines(A, X, W):
    """For each column of X: the least-squares coefficients on A under the weights of that column of W."""
    roots = np.sqrt(W)
    return np.stack([np.linalg.lstsq(w[:, None] * A, w * x, rcond=None)[0] for w, x in zip(roots.T, X.T, strict=True)])


def dense_alternation(M, U, sweeps):
    """Plain alternating least squares."""
    X, known = on_grid(M, M.values), on_grid(M, np.ones(M.nnz))
    for _ in range(sweeps):
        V = dense_lines(U, X, known)
        U = dense_lines(V, X.T, known.T)
    return U @ V.T


# ---------------------------------------------------------------------- what all have in common


@each
@pytest.mark.parametrize("wild", [False, True], ids="AB")
def test_they_recover(method, wild):
    M, L, wrong = problem(wild=wild, seed=1)
    r = ls.solve(M, 5, method=method)
    assert r.converged
    assert relative(r.L, L) < 1e-6
    assert np.mean(r.is_outlier == wrong) > 0.999


@each
@pytest.mark.parametrize("c", [255.0, 1 / 255])
def test_units_do_not_matter(method, c):
    M, *_ = small(2, wild=True, noise=0.01)
    found = ls.solve(M, 3, method=method, max_iter=30).L
    scaled = ls.solve(M.with_values(c * M.values), 3, method=method, max_iter=30).L
    assert relative(scaled, ls.LowRank(c * found.U, found.V)) < 1e-9


@each
def test_the_transpose_has_the_transposed_solution(method):
    M, L, _ = problem(120, 150, 3, 0.4, wild=True, seed=3)
    assert relative(ls.solve(M, 3, method=method).L, L) < 1e-6
    assert relative(ls.solve(M.T, 3, method=method).L, L.T) < 1e-6


@pytest.mark.parametrize(
    "method",
    [*(IRLS(loss=loss, c=0.4) for loss in LOSSES), HQ(sigma=0.3), Lp(epsilon=0.05), Lp(p=1.5, epsilon=0.05)],
    ids=[*LOSSES, "hq", "lp1", "lp1.5"],
)
def test_with_a_fixed_scale_the_transpose_agrees_on_noisy_data_too(method):
    M, *_ = small(4, noise=0.1)
    found, transposed = (ls.solve(A, 3, method=method, tol=1e-10, max_iter=2000) for A in (M, M.T))
    assert found.converged
    assert transposed.converged
    assert relative(transposed.L, found.L.T) < 1e-6


@each
def test_entries_of_any_size(method):
    """A thousandth of the entries is a million times too large."""
    M, L, _ = problem(150, 140, 3, 0.5, seed=5)
    x = M.values.copy()
    x[np.random.default_rng(6).random(x.size) < 1e-3] = 1e6
    assert relative(ls.solve(M.with_values(x), 3, method=method).L, L) < 1e-6


@each
def test_a_good_start_is_kept(method):
    M, L, _ = problem(150, 140, 3, 0.5, wild=True, seed=7)
    errors = []
    ls.solve(M, 3, method=method, start=L, max_iter=3, callback=lambda p: errors.append(relative(p.lowrank(), L)))
    assert max(errors) < (0.1 if isinstance(method, Lp) and method.form == "admm" else 1e-4)  # it has no multiplier yet


@each
def test_a_resumed_solve_is_the_same_to_the_bit(method, tmp_path):
    M, *_ = small(8, wild=True, condition=10.0)
    whole = ls.solve(M, 3, method=method, max_iter=16, tol=0)
    file = tmp_path / "state.npz"
    ls.solve(M, 3, method=method, max_iter=9, tol=0, checkpoint=file)
    resumed = ls.solve(M, 3, method=method, max_iter=16, tol=0, resume=file)
    np.testing.assert_array_equal(resumed.L.V, whole.L.V)
    np.testing.assert_array_equal(resumed.trace["objective"], whole.trace["objective"])


@pytest.mark.parametrize(
    ("method", "names"),
    [
        (IRLS(loss="l2"), "huber"),
        (IRLS(c=0.0), "positive"),
        (IRLS(sweeps=-1), "0 or more"),
        (HQ(eta=0.0), "positive"),
        (HQ(e1=1.0), r"\(0, 1\)"),
        (HQ(sigma=-1.0), "positive"),
        (Lp(p=0.0), r"\(0, 2\]"),
        (Lp(p=2.5), r"\(0, 2\]"),
        (Lp(form="pca"), "admm"),
        (Lp(n_reweight=0), "1 or more"),
        (Lp(growth=0.9), r"\[1, 2\]"),
    ],
)
def test_parameters_that_make_no_sense_raise(method, names):
    with pytest.raises(ValueError, match=names):
        ls.solve(small(9)[0], 3, method=method)


# ---------------------------------------------------------------------- IRLS


@pytest.mark.parametrize("wild", [False, True], ids="AB")
@pytest.mark.parametrize("loss", [name for name in LOSSES if name not in ("huber", "tukey")])  # those: above
def test_irls_recovers_with_every_loss(loss, wild):
    M, L, _ = problem(wild=wild, seed=11)
    r = ls.solve(M, 5, method=IRLS(loss=loss))
    assert r.converged
    assert relative(r.L, L) < 1e-6


@pytest.mark.parametrize("seed", [12, 13])
@pytest.mark.parametrize("loss", LOSSES)
def test_irls_recovers_matrices_of_condition_10(loss, seed):
    M, L, _ = problem(200, 220, 4, 0.4, wild=True, condition=10.0, seed=seed)
    r = ls.solve(M, 4, method=IRLS(loss=loss))
    assert r.converged
    assert relative(r.L, L) < 1e-6


@pytest.mark.parametrize("loss", LOSSES)
def test_irls_with_a_fixed_c_never_increases_the_loss_and_ends_at_a_stationary_point(loss):
    M, *_ = small(14, noise=0.1)
    r = ls.solve(M, 3, method=IRLS(loss=loss, c=0.25), tol=1e-11, max_iter=1500)
    assert r.converged
    values = r.trace["objective"][5:]  # after the sweeps of least squares
    assert (np.diff(values) <= 1e-13 * values[0]).all()
    own = Loss(Kind[loss.upper()], c=0.25)
    assert r.objective == pytest.approx(float(np.sum(own.value(M.open_sweep().residual(*factors(r))))), rel=1e-12)
    assert_stationary(M, r, own, 1e-7)


@pytest.mark.parametrize("loss", LOSSES)
def test_an_iteration_of_irls_is_that_of_the_dense_formula(loss):
    M, *_ = small(15, noise=0.1)
    X, known = on_grid(M, M.values), on_grid(M, np.ones(M.nnz))
    points = []
    method = IRLS(loss=loss, c=0.3, sweeps=2)
    ls.solve(M, 3, method=method, max_iter=3, callback=lambda p: points.append(p.lowrank()))
    U, V = points[1].U, points[1].V.T
    own = Loss(Kind[loss.upper()], c=0.3)
    V = dense_lines(U, X, known * own.weight(U @ V.T - X))
    U = dense_lines(V, X.T, (known * own.weight(U @ V.T - X)).T)
    assert_close(points[2].to_dense(), U @ V.T, 1e-7)


def test_the_first_iterations_of_irls_are_plain_least_squares():
    M, *_ = small(16)
    U = ls.solve(M, 3, method=IRLS(sweeps=1), max_iter=1).L.U
    found = ls.solve(M, 3, method=IRLS(sweeps=5), max_iter=5).L
    assert_close(found.to_dense(), dense_alternation(M, U, 4), 1e-8)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_c_of_irls_follows_the_residuals_and_never_collapses(loss):
    M, *_ = small(17, noise=0.05)
    r = ls.solve(M, 3, method=IRLS(loss=loss))
    assert r.converged
    c = r.trace["gamma"][5:]
    scale = robust_scale(M.open_sweep().residual(*factors(r)))
    assert c[-1] == pytest.approx(EFFICIENT[Kind[loss.upper()]] * scale, rel=0.05)  # the median is that of bins
    M, *_ = small(18)
    c = ls.solve(M, 3, method=IRLS(loss=loss), tol=0, max_iter=40).trace["gamma"][5:]
    assert (c[1:] >= 0.2999 * c[:-1]).all()
    assert c[-1] == pytest.approx(1e-8 * np.median(np.abs(M.values)), rel=0.01)


@pytest.mark.parametrize("loss", ["cauchy", "welsch", "tukey"])
def test_irls_is_as_good_as_least_squares_on_the_inliers(loss):
    M, L, wrong = problem(noise=0.032, seed=19)
    best = least_squares(M, 5, wrong, basis(L.U)[0])
    assert ls.solve(M, 5, method=IRLS(loss=loss)).L.error(L) <= 1.15 * best.error(L)


def test_a_line_that_was_given_up_is_regained():
    """The sum of a redescending loss has minima where lines are given up; without second looks it ends in one."""
    M, L, _ = problem(wild=True, condition=10.0, seed=HARD)
    r = ls.solve(M, 5, method=IRLS(loss="welsch"))
    assert r.converged
    assert relative(r.L, L) < 1e-6


def test_a_line_is_given_up_if_it_explains_few_of_enough_entries():
    assert irls.given_up(np.array([9, 2, 2]), np.array([10, 10, 3]), rank=1).tolist() == [False, True, False]


def test_a_line_that_stays_given_up_is_reported(monkeypatch):
    monkeypatch.setattr(irls, "REFITS", 0)
    M, L, _ = problem(wild=True, condition=10.0, seed=HARD)
    r = ls.solve(M, 5, method=IRLS(loss="welsch"), max_iter=200)
    assert relative(r.L, L) > 1e-3
    assert r.status is Status.STALLED
    assert "given up" in r.message
    assert r.trace["lost"][-1] > 0


@pytest.mark.parametrize("loss", REDESCENDING)
def test_a_c_that_explains_nothing_is_not_called_converged(loss):
    M, *_ = small(20, noise=0.1)
    r = ls.solve(M, 3, method=IRLS(loss=loss, c=1e-6), max_iter=100)
    assert not r.converged


# ---------------------------------------------------------------------- HQ


@pytest.mark.parametrize("wild", [False, True], ids="AB")
def test_hq_is_as_good_as_least_squares_on_the_inliers(wild):
    M, L, wrong = problem(noise=0.032, wild=wild, seed=21)
    r = ls.solve(M, 5, method=HQ())
    assert r.converged
    assert r.L.error(L) <= 1.15 * least_squares(M, 5, wrong, basis(L.U)[0]).error(L)


def test_a_wide_kernel_is_scaled_steepest_descent_on_least_squares():
    """With the dense formulas: both steps are exact line searches along the scaled gradient."""
    M, *_ = small(22, noise=0.1)
    X, known = on_grid(M, M.values), on_grid(M, np.ones(M.nnz))
    points = []
    start = np.random.default_rng(23).standard_normal((90, 3))
    method = HQ(sigma=1e7)
    ls.solve(M, 3, method=method, start=start, max_iter=2, callback=lambda p: points.append(p.lowrank()))
    U, V = points[0].U, points[0].V.T
    for _ in range(1):
        g = (known * (U @ V.T - X)) @ V
        d = g @ np.linalg.inv(V.T @ V)
        U = U - np.sum(g * d) / np.sum((known * (d @ V.T)) ** 2) * d
        g = (known * (U @ V.T - X)).T @ U
        d = g @ np.linalg.inv(U.T @ U)
        V = V - np.sum(g * d) / np.sum((known * (U @ d.T)) ** 2) * d
    assert_close(points[1].to_dense(), U @ V.T, 1e-10)


def test_hq_with_a_fixed_kernel_descends_to_a_stationary_point():
    M, *_ = small(24, noise=0.1)
    r = ls.solve(M, 3, method=HQ(sigma=0.2), tol=1e-11, max_iter=3000)
    assert r.converged
    values = r.trace["objective"][np.isfinite(r.trace["gamma"])]
    assert len(values) > 10
    assert (np.diff(values) <= 1e-13 * values[0]).all()
    assert_stationary(M, r, Loss(Kind.WELSCH, c=np.sqrt(2) * 0.2), 1e-7)
    e = M.open_sweep().residual(*factors(r))
    assert r.objective == pytest.approx(0.2**2 * float(np.sum(1 - np.exp(-(e**2) / (2 * 0.2**2)))), rel=1e-9)


def test_the_kernel_of_hq_follows_the_quartiles():
    M, *_ = small(25, noise=0.05)
    r = ls.solve(M, 3, method=HQ(eta=3.0))
    assert r.converged
    low, high = np.quantile(M.open_sweep().residual(*factors(r)), [0.25, 0.75])
    assert r.trace["gamma"][-1] == pytest.approx(3 * (high - low), rel=1e-4)


def test_without_a_floor_the_kernel_of_hq_collapses_and_that_is_reported(monkeypatch):
    M, L, _ = problem(200, 210, 4, wild=True, seed=26)
    assert relative(ls.solve(M, 4, method=HQ()).L, L) < 1e-6
    monkeypatch.setattr(hq, "PACE", 0.0)
    r = ls.solve(M, 4, method=HQ(), tol=1e-6)
    assert relative(r.L, L) > 1e-3
    assert r.status is Status.STALLED
    assert "given up" in r.message


# ---------------------------------------------------------------------- Lp


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 1.0, 1.05, 1.5, 1.95, 2.0])
@pytest.mark.parametrize("mu", [0.01, 1.0, 300.0])
def test_the_prox_is_the_minimum(p, mu):
    a = np.concatenate([[0.0], np.geomspace(1e-9, 1e5, 70), np.geomspace(1e-3, 1e3, 1500)])
    z = prox(a, p, mu)
    np.testing.assert_array_equal(prox(-a, p, mu), -z)

    def cost(z, a):
        return np.abs(z) ** p + mu / 2 * (z - a) ** 2

    grid = np.min(cost(a[:, None] * np.linspace(0, 1, 501), a[:, None]), axis=1)
    assert (cost(z, a) <= grid * (1 + 1e-12)).all()
    away = z > 1e-250
    slope = p * z[away] ** (p - 1) + mu * (z[away] - a[away])
    assert (np.abs(slope) <= 1e-9 * mu * a[away]).all()


@pytest.mark.parametrize("form", ["regression", "admm"])
def test_the_second_power_is_plain_alternating_least_squares(form):
    M, L, _ = small(31, noise=0.1)
    r = ls.solve(M, 3, method=Lp(p=2, form=form), tol=1e-11, max_iter=3000)
    assert r.converged
    assert_close(r.L.to_dense(), dense_alternation(M, basis(L.U)[0], 150), 1e-7)


def test_each_line_is_a_regression_of_least_absolute_deviations():
    M, *_ = small(32, noise=0.1)
    r = ls.solve(M, 3, method=Lp(epsilon=1e-5), max_iter=60)
    U, V = factors(r)
    columns, e = M.columns_of_entries(), np.abs(M.open_sweep().residual(U, V))
    for lines, others, A in ((columns, M.rows, U), (M.rows, columns, V)):
        for k in range(0, 80, 9):
            here = lines == k
            best = least_absolute(A[others[here]], M.values[here])
            assert best * (1 - 1e-9) <= e[here].sum() <= best * (1 + 5e-4)


@pytest.mark.parametrize("p", [0.7, 1.0, 1.5])
def test_the_regressions_end_at_a_stationary_point(p):
    M, *_ = small(33, noise=0.1)
    r = ls.solve(M, 3, method=Lp(p=p, epsilon=0.05), tol=1e-11, max_iter=2000)
    assert r.converged
    assert_stationary(M, r, Loss(Kind.POWER, 0.05, p), 1e-7)
    e = M.open_sweep().residual(*factors(r))
    assert r.objective == pytest.approx(float(np.sum((e**2 + 0.05**2) ** (p / 2) - 0.05**p)), rel=1e-9)
    settled = r.trace["objective"][r.trace["gap"] == 0]
    assert (np.diff(settled) <= 1e-12 * settled[0]).all()


def test_the_multiplier_of_the_admm(tmp_path):
    """A subgradient of the ℓ1 norm at z = e, in the null space of both factors: what optimality is."""
    M, *_ = small(34, wild=True)
    r = ls.solve(M, 3, method=Lp(form="admm"), checkpoint=tmp_path / "state.npz")
    assert r.converged
    with np.load(tmp_path / "state.npz") as state:
        Y, z = state["state.Y"], state["state.z"]
    assert np.abs(Y).max() <= 1 + 1e-12
    np.testing.assert_allclose(Y[np.abs(z) > 1e-6], np.sign(z[np.abs(z) > 1e-6]), atol=1e-8)
    assert_close(z, M.open_sweep().residual(*factors(r)), 1e-7)
    U, V = factors(r)
    on = sparse.csc_array((Y, M.rows, M.indptr), shape=M.shape)
    assert np.abs(on.T @ U).max() < 1e-5
    assert np.abs(on @ basis(V)[0]).max() < 1e-5


def test_the_least_sum_of_magnitudes_is_the_same_by_any_method():
    M, L, _ = problem(120, 120, 3, 0.5, wild=True, noise=0.05, seed=35)
    i, j = M.rows, M.columns_of_entries()
    methods = {
        "regression": Lp(),
        "admm": Lp(form="admm"),
        "huber": IRLS(loss="huber", c=1e-3),
        "amanpgc": ls.solvers.AManPGC(),
    }
    found = {
        name: float(np.sum(np.abs(ls.solve(M, 3, method=method, max_iter=150).L.at(i, j) - M.values)))
        for name, method in methods.items()
    }
    truth = float(np.sum(np.abs(L.at(i, j) - M.values)))
    least = min(found.values())
    assert all(value <= least * (1 + 5e-4) for value in found.values()), found
    assert max(found.values()) < truth


@pytest.mark.parametrize(("form", "p"), [("regression", 0.5), ("regression", 0.8), ("admm", 0.5), ("admm", 0.8)])
def test_powers_below_one_recover_too(form, p):
    M, L, _ = problem(150, 160, 3, 0.4, wild=True, seed=36)
    r = ls.solve(M, 3, method=Lp(form=form, p=p))
    assert r.converged
    assert relative(r.L, L) < 1e-6


def test_both_forms_agree_for_a_power_between_one_and_two():
    M, *_ = small(37, noise=0.1)
    found = [
        ls.solve(M, 3, method=Lp(form=form, p=1.5, epsilon=1e-4), max_iter=2000).L for form in ("regression", "admm")
    ]
    assert relative(found[0], found[1]) < 1e-5
    e = on_entries(M, found[0].to_dense()) - M.values
    psi = on_grid(M, np.sign(e) * np.abs(e) ** 0.5)
    assert np.abs(psi.T @ found[0].U).max() < 1e-4 * np.abs(psi).sum(axis=0).max()
