"""GRASTA: the ℓ1 regression of a column, the tracker with and without the compiled core, and the solver on top."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

import lowsparse as ls
from conftest import assert_close, orthonormal, relative, robust_problem
from lowsparse.result import Status
from lowsparse.solvers import tracking
from lowsparse.solvers.grasta import GRASTA, _coefficients
from lowsparse.solvers.tracking import Rules, SubspaceTracker, least_absolute

needs_core = pytest.mark.skipif(tracking._track is None, reason="too slow without the compiled core")


def distance(U, truth):
    """The part of an orthonormal basis of span(truth) outside span(U)."""
    Q = np.linalg.qr(truth)[0]
    return np.linalg.norm(Q - U @ (U.T @ Q))


def columns(truth, count, *, rng, density=0.5, outliers=0.1, size=2.0):
    """Columns with holes and outliers from span(truth)."""
    m, r = truth.shape
    parts = []
    for _ in range(count):
        rows = np.flatnonzero(rng.random(m) < density)
        wrong = rng.random(rows.size) < outliers
        parts.append((rows, truth[rows] @ rng.standard_normal(r) + wrong * rng.uniform(-size, size, rows.size)))
    indptr = np.cumsum([0, *(len(rows) for rows, _ in parts)])
    return matrix(m, indptr, np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))


def matrix(m, indptr, rows, values):
    """The columns as they come, with rows in any order."""
    indptr, rows = np.asarray(indptr, np.int64), np.asarray(rows, np.int32)
    return ls.ObservedMatrix.trusted(indptr, rows, np.asarray(values), (m, len(indptr) - 1))


def update(tracker, rows, values):
    """One column; its coefficients."""
    return tracker.run(matrix(len(tracker.U), [0, len(rows)], rows, values))[0]


@pytest.fixture(params=["numpy", "native-baseline", "native-v3"])
def compiled(request, monkeypatch):
    name, _, isa = request.param.partition("-")
    if isa:
        if tracking._track is None:
            pytest.skip("the compiled core has no tracker")
        from lowsparse import _core

        if isa not in _core.instruction_sets():
            pytest.skip(f"this processor does not have {isa}")
        monkeypatch.setenv("LOWSPARSE_ISA", isa)
    return name == "native"


# ---------------------------------------------------------------------- the regression of a column


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("k", "r"), [(40, 4), (15, 1), (25, 9)])
def test_with_slow_growth_it_is_the_optimum_of_the_linear_programme(k, r, seed):
    rng = np.random.default_rng([51, seed])
    B, v = rng.standard_normal((k, r)), rng.standard_t(2, k)
    # min Σ(a + b) subject to B w + a - b = v, a and b not negative
    cost = np.concatenate([np.zeros(r), np.ones(2 * k)])
    best = linprog(
        cost, A_eq=np.hstack([B, np.eye(k), -np.eye(k)]), b_eq=v, bounds=[(None, None)] * r + [(0, None)] * (2 * k)
    )
    found = least_absolute(B, v, rho=1.02, max_iter=1600, tolerance=1e-14)
    assert np.sum(np.abs(v - B @ found.w)) == pytest.approx(best.fun, rel=1e-6)
    assert np.abs(found.y).max() <= 1
    away = np.abs(v - B @ found.w) > 1e-6
    np.testing.assert_array_equal(found.y[away], -np.sign(v - B @ found.w)[away])


def test_the_iteration_is_that_of_admm_as_it_is_written():
    rng = np.random.default_rng(52)
    B, v = rng.standard_normal((30, 3)), rng.standard_normal(30)
    v[:5] += 8.0
    rho, max_iter = 1.7, 12
    s, y, tau = np.zeros(30), np.zeros(30), 1.25 / np.linalg.norm(v)
    for _ in range(max_iter):
        w = np.linalg.lstsq(B, v - s - y / tau, rcond=None)[0]
        q = v - B @ w - y / tau
        s = np.sign(q) * np.maximum(np.abs(q) - 1 / tau, 0)
        y = y + tau * (B @ w + s - v)
        tau *= rho
    found = least_absolute(B, v, rho=rho, max_iter=max_iter, tolerance=0.0)
    assert_close(found.w, w, 1e-12)
    assert_close(found.y, y, 1e-10)


def test_what_the_column_does_not_determine_is_finite():
    B = np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0]])
    found = least_absolute(B, np.array([3.0, 6.0]), rho=2.0, max_iter=40, tolerance=1e-12)
    assert_close(B @ found.w, [3.0, 6.0], 1e-12)
    assert not least_absolute(B, np.zeros(2), rho=2.0, max_iter=40, tolerance=1e-12).w.any()
    assert least_absolute(B[:0], np.zeros(0), rho=2.0, max_iter=40, tolerance=1e-12).w.shape == (3,)


# ---------------------------------------------------------------------- the tracker


def test_columns_get_more_iterations_on_higher_levels():
    rules = Rules(min_inner=5, max_inner=60)
    assert [rules.inner(level) for level in (0, 4, 7, 10, 14)] == [5, 10, 20, 40, 60]


@pytest.mark.parametrize("angle", [0.0, 0.1], ids=["adaptive", "constant"])
def test_the_subspace_stays_orthonormal(compiled, angle):
    rng = np.random.default_rng(53)
    tracker = SubspaceTracker(rng.standard_normal((50, 4)), angle=angle, compiled=compiled)
    truth = orthonormal(50, 4, seed=53)
    for _ in range(8):
        tracker.run(columns(truth, 150, rng=rng))
        assert_close(tracker.U.T @ tracker.U, np.eye(4), 1e-12)


def test_a_step_goes_downhill_along_the_geodesic():
    """The Lagrangian's gradient with respect to U is Γwᵀ; the step goes against it by the angle t and no other way."""
    rng = np.random.default_rng(54)
    U = orthonormal(40, 3, seed=54)
    rows = np.flatnonzero(rng.random(40) < 0.6)
    v = rng.standard_normal(rows.size)
    tracker = SubspaceTracker(U, angle=0.2, compiled=False)
    w = update(tracker, rows, v)
    found = least_absolute(U[rows], v, rho=2.0, max_iter=25, tolerance=1e-12)
    assert_close(w, found.w, 1e-12)
    G = np.zeros((40, 3))
    G[rows] = np.outer(found.y, w)
    G -= U @ (U.T @ G)
    # exp_U(-tG/‖G‖) by the singular value decomposition of the tangent vector
    left, angle, right = np.linalg.svd(-0.2 * G / np.linalg.norm(G), full_matrices=False)
    there = (U @ right.T) * np.cos(angle) @ right + left * np.sin(angle) @ right
    assert_close(tracker.U, there, 1e-12)
    assert np.vdot(G, tracker.U - U) < 0


def test_steps_follow_the_agreement_of_gradients():
    """t = C 2^-ℓ ‖Γ‖‖w‖ / (1 + μ), before the level changes; μ and ℓ by the rule, restated here."""
    rng = np.random.default_rng(55)
    rules = Rules(mu_max=6.0, levels=3)
    tracker = SubspaceTracker(rng.standard_normal((30, 2)), rules, compiled=False)
    M = columns(orthonormal(30, 2, seed=55), 150, rng=rng)
    indptr, rows, values = M.indptr, M.rows, M.values
    mu, level, scale, last = 1.0, 0, None, None
    seen = set()
    for j in range(150):
        part = slice(indptr[j], indptr[j + 1])
        U, B = tracker.U, tracker.U[rows[part]]
        found = least_absolute(B, values[part], rho=2.0, max_iter=25, tolerance=1e-12)
        gamma = np.zeros(30)
        gamma[rows[part]] = found.y
        gamma -= U @ (B.T @ found.y)
        G = np.outer(gamma, found.w)
        size = np.linalg.norm(G)
        scale = scale or np.pi / 2 * 2 / size
        ip = 0.0 if last is None else np.vdot(last, G) / (np.linalg.norm(last) * size)
        mu = max(mu - 1 + 2 / (1 + np.exp(ip / 0.1)), 1.0)
        t = min(scale * 2.0**-level * size / (1 + mu), np.pi / 3)
        if mu <= 1.0:
            level, mu = level - (level > 1), 3.0
        elif mu > 6.0:
            level, mu = (level + 1, 2.5) if level < 3 else (level, 6.0)
        last = G
        update(tracker, rows[part], values[part])
        assert (tracker.steps.level, tracker.steps.mu) == (level, pytest.approx(mu, rel=1e-9))
        # the angle between ŵ's image before and after
        what = found.w / np.linalg.norm(found.w)
        assert np.linalg.norm((tracker.U - U) @ what) == pytest.approx(2 * np.sin(t / 2), rel=1e-6)
        seen.add(level)
    assert seen == {0, 1, 2, 3}


def test_a_column_within_the_subspace_changes_nothing(compiled):
    rng = np.random.default_rng(56)
    tracker = SubspaceTracker(orthonormal(30, 3, seed=56), compiled=compiled)
    U, rows = tracker.U.copy(), rng.permutation(30)[:12]
    w = rng.standard_normal(3)
    for _ in range(5):
        assert_close(update(tracker, rows, U[rows] @ w), w, 1e-12)
    np.testing.assert_array_equal(tracker.U, U)
    assert (tracker.steps.scale, tracker.steps.level, tracker.steps.mu) == (0.0, 0, 1.0)
    coarse = SubspaceTracker(U, Rules(tolerance=1e-3), compiled=compiled)  # nor one that is close enough to it
    near = U[rows] @ w + 1e-5 * rng.standard_normal(12)
    update(coarse, rows, near)
    assert_close(coarse.U, U, 1e-15)
    update(tracker, rows, near)
    assert distance(tracker.U, U) > 0.1
    square = SubspaceTracker(np.eye(3), compiled=compiled)  # nothing is outside
    update(square, [0, 1, 2], [1.0, 5.0, -2.0])
    np.testing.assert_array_equal(square.U, np.eye(3))


def test_empty_and_thin_columns_and_zeros_change_nothing(compiled):
    start = orthonormal(20, 3, seed=57)
    start[8] = start[10]
    tracker = SubspaceTracker(start, compiled=compiled)
    U = tracker.U.copy()
    update(tracker, [8, 10], [1.0, -2.0])  # does not fit, but is too thin to tell
    W = tracker.run(matrix(20, [0, 0, 2, 6], [3, 4, 0, 5, 7, 9], [1.0, -2.0, 0.0, 0.0, 0.0, 0.0]))
    np.testing.assert_array_equal(tracker.U, U)
    assert not W[[0, 2]].any()
    assert_close(U[[3, 4]] @ W[1], [1.0, -2.0], 1e-10)  # though it has coefficients
    assert np.isfinite(tracker.fit(matrix(20, [0, 0, 2, 6], [3, 4, 0, 5, 7, 9], np.ones(6)))).all()


def test_a_subspace_that_changes_is_followed(compiled):
    rng = np.random.default_rng(58)
    tracker = SubspaceTracker(rng.standard_normal((40, 2)), Rules(mu_max=15.0, levels=10), compiled=compiled)
    for seed in (58, 59):
        truth = orthonormal(40, 2, seed=seed)
        assert distance(tracker.U, truth) > 0.5
        tracker.run(columns(truth, 700, rng=rng))
        assert distance(tracker.U, truth) < 0.02


def test_a_constant_step_follows_what_keeps_moving(compiled):
    rng = np.random.default_rng(60)
    tracker = SubspaceTracker(rng.standard_normal((40, 2)), angle=0.05, compiled=compiled)
    A, B = (orthonormal(40, 2, seed=seed) for seed in (60, 61))
    far = []
    for angle in np.linspace(0, np.pi / 2, 60):
        truth = np.cos(angle) * A + np.sin(angle) * B
        tracker.run(columns(truth, 15, rng=rng))
        far.append(distance(tracker.U, truth))
    assert distance(A, B) > 1
    assert max(far[30:]) < 0.3


def test_one_at_a_time_is_the_same_as_many_at_once(compiled):
    rng = np.random.default_rng(62)
    M = columns(orthonormal(30, 2, seed=62), 60, rng=rng)
    start, order = rng.standard_normal((30, 2)), rng.permutation(60)
    whole, single = (SubspaceTracker(start, compiled=compiled) for _ in range(2))
    W = whole.run(M, order)
    one_by_one = [update(single, *(a[M.indptr[j] : M.indptr[j + 1]] for a in (M.rows, M.values))) for j in order]
    np.testing.assert_array_equal(W, one_by_one)
    np.testing.assert_array_equal(whole.U, single.U)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("m", "r"), [(50, 3), (61, 1), (43, 18)])
def test_the_compiled_tracker_is_the_oracle(monkeypatch, dtype, m, r):
    if tracking._track is None:
        pytest.skip("the compiled core has no tracker")
    from lowsparse import _core

    rng = np.random.default_rng([64, r])
    M = columns(rng.standard_normal((m, r)), 60, rng=rng, density=0.9)
    M, order = M.with_values(M.values.astype(dtype)), rng.permutation(60)
    start = rng.standard_normal((m, r))
    # y is exact to rounding times τ; where columns hardly determine r coefficients, long steps multiply that
    rules, angle = (Rules(), 0.0) if r < 10 else (Rules(min_inner=20, max_inner=20), 1e-3)
    oracle = SubspaceTracker(start, rules, angle=angle, compiled=False)
    expected = oracle.run(M, order)
    for isa in _core.instruction_sets():
        monkeypatch.setenv("LOWSPARSE_ISA", isa)
        tracker = SubspaceTracker(start, rules, angle=angle)
        assert tracker.compiled
        assert_close(tracker.run(M, order), expected, 1e-8)
        assert_close(tracker.U, oracle.U, 1e-8)
        assert tracker.steps.level == oracle.steps.level
        for name in ("gamma", "w", "mu", "scale"):
            assert_close(getattr(tracker.steps, name), getattr(oracle.steps, name), 1e-8)
        assert_close(tracker.fit(M), oracle.fit(M), 1e-8)


# ---------------------------------------------------------------------- the solver


def standard(kind, seed):
    """Problem A, outliers N(0, 1), or B, outliers uniform on [-10, 10]."""
    problem = robust_problem(300, 300, rank=5, density=0.3, seed=seed)
    if kind == "B":
        S = np.where(problem.S != 0, np.random.default_rng([65, seed]).uniform(-10, 10, problem.M.nnz), 0.0)
        return replace(problem, M=problem.M.with_values(problem.M.values - problem.S + S), S=S)
    return problem


@needs_core
@pytest.mark.parametrize("seed", [6501, 6502, 6503])
@pytest.mark.parametrize("kind", ["A", "B"])
def test_it_recovers(kind, seed):
    problem = standard(kind, seed)
    r = ls.solve(problem.M, 5, method="grasta")
    assert r.converged, r.message
    assert relative(r.L, problem.L) < 1e-6
    assert np.mean(r.is_outlier == (problem.S != 0)) > 0.999


@needs_core
def test_the_longer_side_is_tracked():
    problem = robust_problem(40, 160, rank=2, density=0.5, seed=66)
    wide, tall = (ls.solve(M, 2, method="grasta") for M in (problem.M, problem.M.T))
    assert max(wide.n_iter, tall.n_iter) <= 20
    for r, truth in ((wide, problem.L), (tall, problem.L.T)):
        assert r.converged
        assert relative(r.L, truth) < 1e-6
    slow = ls.solve(problem.M, 2, method=GRASTA(transpose=True), max_iter=20)
    assert not slow.converged


@needs_core
def test_with_noise_it_ends_at_the_l1_optimum():
    problem = robust_problem(80, 90, rank=2, density=0.5, seed=67, noise=0.05, outlier_size=5.0)
    r = ls.solve(problem.M, 2, method="grasta")
    assert r.converged
    assert "noise" in r.message
    assert r.n_iter < 60

    def l1(L):
        return np.sum(np.abs(L.at(problem.M.rows, problem.M.columns_of_entries()) - problem.M.values))

    assert r.objective == pytest.approx(l1(r.L))
    best = l1(ls.solve(problem.M, 2, method=ls.solvers.AManPGC(noise_stop=False, gamma_min=1e-4), max_iter=3000).L)
    assert r.objective < l1(problem.L)
    assert r.objective < (1 + 5e-4) * best


@needs_core
def test_rows_that_were_left_behind_are_fetched():
    """With μ_max so small that steps die out too soon, and the method notices."""
    problem = robust_problem(70, 90, rank=3, density=0.35, outliers=0.15, seed=68, outlier_size=3.0)
    hasty = GRASTA(mu_max=5.0, reheats=0)
    r = ls.solve(problem.M, 3, method=hasty)
    assert r.status is Status.STALLED
    assert "mu_max" in r.message
    assert relative(r.L, problem.L) > 1e-3
    r = ls.solve(problem.M, 3, method=replace(hasty, reheats=4))
    assert r.converged
    assert relative(r.L, problem.L) < 1e-5


@needs_core
@pytest.mark.parametrize(
    ("density", "outliers", "sizes"),
    [(0.045, 0.3, (1, 1, 1)), (0.4, 0.6, (1, 1, 1)), (0.4, 0.1, (1, 0.03, 0.01))],
    ids=["few", "wrong", "ill-conditioned"],
)
def test_a_wrong_answer_is_not_called_converged(density, outliers, sizes):
    rng = np.random.default_rng(69)
    truth = ls.LowRank(rng.standard_normal((110, 3)) * sizes, rng.standard_normal((3, 120)))
    X = truth.to_dense()
    X += (rng.random(X.shape) < outliers) * rng.uniform(-5, 5, X.shape)
    X[rng.random(X.shape) >= density] = np.nan
    r = ls.solve(X, 3, method="grasta", max_iter=120)
    assert relative(r.L, truth) > 0.02
    assert not r.converged


def test_order_and_seed_are_reproducible():
    M = robust_problem(40, 50, rank=2, seed=70).M
    start = orthonormal(40, 2, seed=70)
    first, same, other = (ls.solve(M, 2, method="grasta", max_iter=5, random_state=s, start=start).L for s in (3, 3, 4))
    assert first.U.tobytes() == same.U.tobytes()
    assert first.V.tobytes() == same.V.tobytes()
    assert relative(other, first) > 1e-9


def test_a_good_start_is_not_thrown_away():
    problem = robust_problem(50, 60, rank=2, seed=71)
    found = ls.solve(problem.M, 2, method="grasta")
    for M, start in ((problem.M, found), (problem.M.T, found.L.V.T)):
        again = ls.solve(M, 2, method="grasta", start=start)
        assert again.converged
        assert again.n_iter <= found.n_iter / 2
        assert again.trace["objective"][0] < 1.01 * found.objective


@pytest.mark.parametrize("c", [255.0, 1 / 255])
def test_units_do_not_matter(c):
    M = robust_problem(40, 50, rank=2, seed=72).M
    r, scaled = (ls.solve(A, 2, method="grasta", max_iter=4) for A in (M, M.with_values(c * M.values)))
    assert relative(ls.LowRank(scaled.L.U, scaled.L.V / c), r.L) < 1e-8
    np.testing.assert_array_equal(scaled.trace["level"], r.trace["level"])


def test_thin_and_empty_lines_get_finite_values():
    X = robust_problem(40, 50, rank=2, density=0.8, seed=73).M.to_dense()
    X[3], X[:, 5] = np.nan, np.nan
    X[1:, 7] = np.nan
    X[2:, 9] = np.nan
    r = ls.solve(X, 2, method="grasta", max_iter=80)
    L = r.L.to_dense()
    assert np.isfinite(L).all()
    assert not L[:, 5].any()
    assert np.abs(L).max() < 20 * np.nanmax(np.abs(X))


def test_wild_coefficients_of_columns_with_few_entries_are_not_believed():
    U = orthonormal(30, 2, seed=74)
    U[1] = U[0] + 1e-7
    X = U @ np.random.default_rng(74).standard_normal((2, 12))
    X[2:, 3] = np.nan  # two entries that almost the same row of U has to explain
    X[:2, 3] = 1.0, -1.0
    M, tracker = ls.ObservedMatrix.from_dense(X), SubspaceTracker(U)
    C = _coefficients(M, tracker, rho=1.2, max_iter=200)
    assert np.linalg.norm(tracker.fit(M, rho=1.2, max_iter=200)[3]) > 1e4
    assert not C[3].any()
    assert_close((tracker.U @ C.T)[:, :3], X[:, :3], 1e-9)


def test_parameters_are_checked():
    M = robust_problem(20, 25, rank=2).M
    for wrong in (
        {"reheats": -1},
        {"reheats": 0.5},
        {"transpose": "yes"},
        {"levels": 0},
        {"rho": 0.9},
        {"mu_max": 2.0},
        {"min_inner": 0},
        {"max_inner": 3},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ls.solve(M, 2, method=GRASTA(**wrong))
