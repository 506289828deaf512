"""RMC, SubGM and LMaFit: their formulas, the optimum all three share, and that none claims to be where it is not.

No constant of the methods was chosen on these seeds.
"""

from collections import Counter

import numpy as np
import pytest

import lowsparse as ls
from conftest import as_problem, assert_close, on_entries, on_grid, orthonormal, relative, soft
from lowsparse.linalg.grassmann import qf
from lowsparse.result import Status
from lowsparse.solvers import RMC, AManPGC, LMaFit, SubGM
from lowsparse.solvers.rmc import Point, retraction, transport
from lowsparse.sweeps import Robust
from lowsparse.sweeps.losses import Kind, Loss

RIVALS = ["rmc", "subgm", "lmafit"]
REACHED = {"rmc": 1e-6, "subgm": 1e-5, "lmafit": 1e-6}


def problem(
    m=300, n=300, rank=5, density=0.3, outliers=0.1, *, size=1.0, uniform=False, condition=None, noise=0.0, seed
):
    """(M, L): normal factors, or singular values from 1 to 1/condition; outliers normal, or uniform up to `size`."""
    rng = np.random.default_rng([2027, seed])
    U, V = rng.standard_normal((m, rank)), rng.standard_normal((n, rank))
    if condition is not None:
        U = np.linalg.qr(U)[0] * np.geomspace(1, 1 / condition, rank) * np.sqrt(m * n)
        V = np.linalg.qr(V)[0]
    i, j = np.nonzero(rng.random((m, n)) < density)
    x = np.sum(U[i] * V[j], axis=1) + noise * rng.standard_normal(i.size)
    wrong = rng.random(i.size) < outliers
    x[wrong] += size * (rng.uniform(-1, 1, wrong.sum()) if uniform else rng.standard_normal(wrong.sum()))
    return ls.ObservedMatrix.from_coo(i, j, x, (m, n)), ls.LowRank(U, V.T)


# ---------------------------------------------------------------------- recovery


@pytest.mark.parametrize("seed", [501, 502, 503])
@pytest.mark.parametrize("kind", [{}, {"size": 10.0, "uniform": True}], ids=["A", "B"])
@pytest.mark.parametrize("method", RIVALS)
def test_it_recovers(method, kind, seed):
    M, L = problem(**kind, seed=seed)
    r = ls.solve(M, 5, method=method)
    assert r.converged
    assert relative(r.L, L) < REACHED[method]


@pytest.mark.parametrize("kind", [{"size": 1e4}, {"m": 90, "n": 80, "density": 0.5, "size": 1e7}], ids=["4", "7"])
@pytest.mark.parametrize("method", RIVALS)
def test_the_size_of_the_outliers_does_not_matter(method, kind):
    M, L = problem(**kind, seed=504)
    r = ls.solve(M, 5, method=method)
    assert r.converged
    assert relative(r.L, L) < REACHED[method]


@pytest.mark.parametrize("method", ["rmc", "lmafit"])
@pytest.mark.parametrize("seed", [505, 506])
def test_weak_components_are_found_among_outliers(method, seed):
    M, L = problem(size=10.0, uniform=True, condition=10.0, seed=seed)
    r = ls.solve(M, 5, method=method)
    assert r.converged
    assert relative(r.L, L) < 1e-6


@pytest.mark.parametrize("method", RIVALS)
@pytest.mark.parametrize("condition", [10.0, 100.0])
def test_a_wrong_answer_is_not_called_converged(method, condition):
    M, L = problem(size=10.0, uniform=True, condition=condition, seed=507)
    r = ls.solve(M, 5, method=method)
    assert r.converged == (relative(r.L, L) < 1e-5)


@pytest.mark.parametrize("method", RIVALS)
@pytest.mark.parametrize("c", [255.0, 1 / 255])
def test_units_do_not_matter(method, c):
    M, _ = problem(90, 110, 3, 0.5, size=10.0, seed=508)
    plain, scaled = (ls.solve(N, 3, method=method) for N in (M, M.with_values(c * M.values)))
    assert scaled.n_iter == plain.n_iter
    assert relative(scaled.L, ls.LowRank(c * plain.L.U, plain.L.V)) < 1e-10


@pytest.mark.parametrize("method", RIVALS)
def test_the_transpose_has_the_transposed_solution(method):
    M, _ = problem(90, 140, 3, 0.5, size=10.0, seed=509)
    assert relative(ls.solve(M.T, 3, method=method).L.T, ls.solve(M, 3, method=method).L) < 1e-6


@pytest.mark.parametrize("method", RIVALS)
def test_single_precision_data(method):
    M, L = problem(120, 110, 3, 0.5, seed=510)
    r = ls.solve(ls.ObservedMatrix(M.indptr, M.rows, M.values.astype(np.float32), M.shape), 3, method=method)
    assert r.converged
    assert relative(r.L, L) < 1e-6
    assert r.S.dtype == np.float32


@pytest.mark.parametrize("method", RIVALS)
def test_a_full_matrix_without_outliers_is_its_truncated_svd(method):
    M, L = problem(40, 30, 3, density=1.1, outliers=0.0, seed=511)
    r = ls.solve(M, 3, method=method)
    assert r.converged
    assert relative(r.L, L) < 1e-7
    assert r.S.nnz == 0


def test_all_end_at_the_same_l1_optimum():
    rng = np.random.default_rng([2027, 512])
    X = rng.standard_normal((200, 4)) @ rng.standard_normal((4, 200))
    i, j = np.nonzero(rng.random(X.shape) < 0.4)
    x = X[i, j] + 0.05 * rng.standard_normal(i.size)
    x += np.where(rng.random(i.size) < 0.1, rng.choice([-10.0, 10.0], i.size), 0.0)
    M = ls.ObservedMatrix.from_coo(i, j, x, X.shape)
    methods = [RMC(noise_stop=False, stages=4), LMaFit(), SubGM(), AManPGC(noise_stop=False)]
    found = [ls.solve(M, 4, method=method) for method in methods]
    l1 = [np.sum(np.abs(on_entries(M, r.L.to_dense()) - M.values)) for r in found]
    assert max(l1) < (1 + 5e-4) * min(l1)
    assert max(l1) < np.sum(np.abs(on_entries(M, X) - M.values))
    assert found[1].objective == pytest.approx(l1[1])
    assert found[2].objective == pytest.approx(l1[2] / M.nnz)
    for r in found:
        assert r.noise == pytest.approx(0.05, rel=0.15)


@pytest.mark.parametrize("method", [RMC(delta=0.05), SubGM(delta=0.05), LMaFit(delta=0.05)], ids=RIVALS)
def test_the_rule_for_video_ends_it_early(method):
    M, _ = problem(90, 110, 3, 0.5, seed=513)
    r = ls.solve(M, 3, method=method)
    assert "delta = 0.05" in r.message
    assert r.trace["change"][-1] <= 0.05
    assert r.n_iter < ls.solve(M, 3, method=method.name).n_iter / 2


def test_the_rule_for_video_waits_for_a_small_threshold():
    M, _ = problem(90, 110, 3, 0.5, seed=514)
    r = ls.solve(M, 3, method=RMC(delta=0.5, delta0=100.0))
    assert r.trace["change"][0] < 0.5
    assert r.trace["gamma"][-1] < 0.1 * np.abs(M.values).max() <= r.trace["gamma"][-2]
    r = ls.solve(M, 3, method=LMaFit(delta=0.5))
    assert r.trace["change"][0] < 0.5
    assert 1 / r.trace["beta"][-1] < 0.1 * np.abs(M.values).max() <= 1 / r.trace["beta"][-2]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (RMC(theta=1.0), r"theta must be in \(0, 1\)"),
        (RMC(delta0=0.0), "delta0 must be positive"),
        (RMC(stages=0), "stages must be a whole number"),
        (RMC(lam=-1.0), "lam must be 0 or more"),
        (RMC(line_search="exact"), "line_search must be 'closed' or 'armijo'"),
        (RMC(delta=-1.0), "delta must be positive"),
        (SubGM(rho=1.0), r"rho must be in \(0, 1\)"),
        (SubGM(mu0=-1.0), "mu0 must be positive"),
        (SubGM(balance=-1.0), "balance must be 0 or more"),
        (LMaFit(beta_growth=0.9), "beta_growth must be 1 or more"),
        (LMaFit(beta_max=0.1), "beta_max must be at least beta0 = 0.5"),
    ],
    ids=lambda case: "" if isinstance(case, str) else str(case),
)
def test_parameters_are_checked(method, message):
    with pytest.raises(ValueError, match=message):
        ls.solve(np.eye(4), 2, method=method)


# ---------------------------------------------------------------------- RMC


def tangent(at, seed):
    """A tangent vector at X as [A; B], and as a matrix."""
    rng = np.random.default_rng([11, seed])
    A, B = rng.standard_normal(at.U.shape), rng.standard_normal(at.W.shape)
    B -= at.W @ (at.W.T @ B)
    return np.vstack([A, B]), A @ at.W.T + at.U @ B.T


def some_point(m, n, r, seed):
    return Point(orthonormal(m, r, seed), np.linspace(9, 4, r), orthonormal(n, r, seed + 1))


def matrix(at):
    return (at.U * at.sigma) @ at.W.T


@pytest.mark.parametrize("lam", [0.0, 0.05])
@pytest.mark.parametrize("delta", [3.0, 0.3])
def test_rmc_gradient_is_the_derivative_along_the_retraction(lam, delta):
    M, _ = problem(30, 25, 3, 0.5, seed=520)
    p, solver, at = as_problem(M, 3), RMC(lam=lam), some_point(30, 25, 3, 1)
    value, g = solver.value_and_gradient(p, at, delta)
    X = matrix(at)
    e = on_entries(M, X) - M.values
    outside = np.sum(X**2) - np.sum(on_entries(M, X) ** 2)
    assert_close(value, np.sum(np.sqrt(delta**2 + e**2) - delta) + lam * outside, 1e-12)
    assert_close(at.W.T @ g[30:], np.zeros((3, 3)), 1e-12, scale=np.linalg.norm(g))
    for seed in range(3):
        d, _ = tangent(at, seed)
        curve, h = retraction(at, d, 1e-30), 1e-4
        up, down = (solver.value_and_gradient(p, curve(t), delta)[0] for t in (h, -h))
        slope = (up - down) / (2 * h)
        assert slope == pytest.approx(np.vdot(g, d), rel=1e-6)


def test_rmc_retraction_and_transport_are_those_of_dense_matrices():
    here, there = some_point(12, 10, 3, 2), some_point(12, 10, 3, 7)
    d, D = tangent(here, 1)
    for t in (0.0, 0.7):
        left, sizes, right = np.linalg.svd(matrix(here) + t * D)
        assert_close(matrix(retraction(here, d, 1e-30)(t)), (left[:, :3] * sizes[:3]) @ right[:3], 1e-12)
    P, Q = there.U @ there.U.T, there.W @ there.W.T
    moved = transport(here, d, there)
    assert_close(moved[:12] @ there.W.T + there.U @ moved[12:].T, P @ D + D @ Q - P @ D @ Q, 1e-12)
    assert_close(transport(here, d, here), d, 1e-12)


def test_rmc_step_minimises_the_quadratic_bound():
    M, _ = problem(30, 25, 3, 0.5, seed=521)
    for lam in (0.0, 0.05):
        solver, delta = RMC(lam=lam, delta0=0.5), 0.5
        p = as_problem(M, 3)
        state = solver.init(p)
        at = Point(state.U, state.sigma, state.W)
        _, g = solver.value_and_gradient(p, at, delta)
        D = -(g[:30] @ at.W.T + at.U @ g[30:].T)
        e, x = on_entries(M, matrix(at)) - M.values, on_entries(M, D)
        bend = np.sum(x**2 / np.sqrt(delta**2 + e**2)) + 2 * lam * (np.sum(D**2) - np.sum(x**2))
        assert solver.advance(p, state).row["step"] == pytest.approx(np.sum(g**2) / bend, rel=1e-10)


def least_squares(M, rank, U, passes=300):
    """Completion by alternating least squares."""
    by_column, by_row = M.open_sweep(), M.T.open_sweep()
    plain = Robust(c=1e9)  # all weights are 1
    for _ in range(passes):
        Q = qf(by_column.regress(U, None, plain).V)
        U, R = np.linalg.qr(by_row.regress(Q, None, plain).V)
    return ls.LowRank(U, R @ Q.T)


@pytest.mark.parametrize("density", [0.6, 1.1])
def test_rmc_with_a_large_delta_is_least_squares(density):
    M, L = problem(60, 50, 3, density, outliers=0.1, seed=522)
    r = ls.solve(M, 3, method=RMC(delta0=1e6, stages=1, grad_tol=1e-9, noise_stop=False))
    assert r.converged
    assert relative(r.L, least_squares(M, 3, qf(L.U))) < 1e-8
    if density > 1:
        left, sizes, right = np.linalg.svd(M.to_dense())
        assert_close(r.L.to_dense(), (left[:, :3] * sizes[:3]) @ right[:3], 1e-8)


@pytest.mark.parametrize("search", ["closed", "armijo"])
def test_rmc_goes_down_in_every_stage_and_from_stage_to_stage(search):
    M, L = problem(120, 110, 3, 0.4, size=5.0, seed=523)
    r = ls.solve(M, 3, method=RMC(line_search=search))
    assert relative(r.L, L) < 1e-6
    f, delta = r.trace["objective"], r.trace["gamma"]
    same = delta[1:] == delta[:-1]
    assert np.all(np.diff(f)[same] <= 1e-13 * f[:-1][same])
    assert np.all(np.diff(f[np.append(~same, True)]) <= 0)
    assert np.all(np.isclose((delta[1:] / delta[:-1])[~same], 0.1))


def test_rmc_error_is_proportional_to_delta():
    M, L = problem(120, 110, 3, 0.4, size=5.0, seed=524)
    three, four = (relative(ls.solve(M, 3, method=RMC(stages=k)).L, L) for k in (3, 4))
    assert four == pytest.approx(three / 10, rel=0.05)


def test_rmc_iterates_with_one_gradient_and_one_curvature():
    M, _ = problem(120, 110, 3, 0.4, seed=525)
    p, solver = as_problem(M, 3), RMC()
    state, calls = solver.init(p), Counter()

    class Counting:
        def __getattr__(self, name):
            calls[name] += 1
            return getattr(sweep, name)

    sweep = p.sweep
    object.__setattr__(p, "sweep", Counting())
    while not state.finished:
        state = solver.advance(p, state)
        assert state.row["halvings"] == 0
    stages = state.stage + 1
    assert calls == {"gradient": state.iteration + stages, "curvature": state.iteration}


def test_rmc_ends_at_the_noise():
    M, L = problem(150, 140, 3, 0.4, noise=0.05, seed=526)
    r = ls.solve(M, 3, method="rmc")
    assert r.converged
    assert "below the noise" in r.message
    assert r.trace["gamma"][-1] < 0.05 * 1.1
    further = ls.solve(M, 3, method=RMC(noise_stop=False, stages=4))
    assert further.L.error(L) > 0.95 * r.L.error(L)


# ---------------------------------------------------------------------- SubGM


def test_subgm_rests_at_the_truth():
    rng = np.random.default_rng(530)
    U, V = (rng.integers(-3, 4, (k, 2)).astype(float) for k in (20, 15))  # products without rounding
    M = ls.ObservedMatrix.from_dense(np.where(rng.random((20, 15)) < 0.7, U @ V.T, np.nan))
    p, solver = as_problem(M, 2), SubGM()
    state = solver.init(p)
    state.U, state.V = U, V
    after = solver.advance(p, state)
    np.testing.assert_array_equal(after.U, U)
    np.testing.assert_array_equal(after.V, V)
    assert after.objective == 0


@pytest.mark.parametrize("balance", [0.0, 1e-3])
def test_subgm_is_the_formula(balance):
    M, _ = problem(40, 30, 3, 0.6, seed=531)
    p, solver = as_problem(M, 3), SubGM(balance=balance, rho=0.9)
    state = solver.init(p)
    U, V = state.U, state.V + 0.1
    state.V = V
    X, C = on_grid(M, M.values), on_grid(M, 1.0)
    for k in range(30):
        N = U.T @ U - V.T @ V
        Y = C * np.sign(U @ V.T - X)
        mu = np.sqrt(40 * 30) * 0.9**k
        lean = 2 * balance * N / np.linalg.norm(N)
        U, V = U - mu * (Y @ V / M.nnz + U @ lean), V - mu * (Y.T @ U / M.nnz - V @ lean)
        state = solver.advance(p, state)
        assert state.row["mu"] == pytest.approx(mu)  # never as long as 2f/‖g‖²
    assert_close(state.U @ state.V.T, U @ V.T, 1e-10)


def test_subgm_hardly_changes_the_balance():
    M, _ = problem(60, 50, 3, 0.6, seed=532)
    p, solver = as_problem(M, 3), SubGM()
    state = solver.init(p)
    total = 0.0
    for _ in range(100):
        sums = p.sweep.gradient(state.U, state.V, Loss(Kind.L1))
        after = solver.advance(p, state)
        N = after.U.T @ after.U - after.V.T @ after.V
        total += (after.row["mu"] / M.nnz) ** 2 * (sums.U.T @ sums.U - sums.V.T @ sums.V)
        state = after
        assert_close(N, total, 1e-10, scale=np.linalg.norm(state.U) ** 2)
    assert np.linalg.norm(N) < 0.3 * np.linalg.norm(state.U.T @ state.U)


def test_subgm_other_steps_have_the_same_limit():
    M, L = problem(120, 110, 3, 0.5, size=5.0, seed=533)
    half = SubGM(mu0=0.5 * np.sqrt(120 * 110), rho=0.975)
    assert relative(ls.solve(M, 3, method=half, max_iter=1000).L, ls.solve(M, 3, method="subgm").L) < 1e-7
    coarse, fine = (ls.solve(M, 3, method=SubGM(), tol=tol) for tol in (1e-4, 1e-6))
    shorter = fine.trace["mu"][-1] / coarse.trace["mu"][-1]
    assert relative(fine.L, L) / relative(coarse.L, L) == pytest.approx(shorter, rel=0.2)


def test_subgm_says_when_its_steps_died_out():
    M, L = problem(150, 140, 3, 0.4, size=5.0, seed=534)
    r = ls.solve(M, 3, method=SubGM(mu0=0.05 * np.sqrt(150 * 140)))
    assert relative(r.L, L) > 1e-3
    assert r.status is Status.STALLED
    assert "give a rho closer to 1" in r.message


def test_subgm_says_when_a_column_stayed_behind():
    M, _ = problem(150, 140, 3, 0.4, seed=535)
    X = M.to_dense()
    X[:, 17] *= 200.0  # farther than its steps reach
    r = ls.solve(X, 3, method="subgm")
    assert r.status is Status.STALLED
    assert "rows or columns" in r.message


def test_subgm_says_when_its_steps_are_too_long():
    M, _ = problem(60, 50, 3, 0.5, size=1e5, seed=536)
    r = ls.solve(M, 3, method=SubGM(mu0=1e9))
    assert r.status is Status.DIVERGED
    assert "smaller mu0" in r.message
    assert np.isfinite(r.L.V).all()


@pytest.mark.parametrize("shape", [(1, 1), (6, 5)])
def test_subgm_does_not_collapse(shape):
    X = np.full(shape, 3.0)
    assert_close(ls.solve(X, min(2, *shape), method="subgm").L.to_dense(), X, 1e-8)


def test_subgm_does_not_take_rounding_for_imbalance():
    M, _ = problem(60, 50, 2, 0.6, seed=538)
    p = as_problem(M, 2)
    plain, balanced = (solver.advance(p, solver.init(p)) for solver in (SubGM(), SubGM(balance=10.0)))
    np.testing.assert_array_equal(balanced.U, plain.U)


def test_subgm_truncated_start():
    M, L = problem(120, 110, 3, 0.5, size=100.0, seed=537)
    r = ls.solve(M, 3, method=SubGM(truncate=3.0))
    assert r.converged
    assert relative(r.L, L) < 1e-5


# ---------------------------------------------------------------------- LMaFit


def test_lmafit_is_the_dense_iteration():
    M, _ = problem(40, 30, 3, 0.6, size=5.0, seed=540)
    p, solver = as_problem(M, 3), LMaFit()
    state = solver.init(p)
    C, X = on_grid(M, 1.0) > 0, on_grid(M, M.values)
    U, V = state.U, state.V
    Lam = np.zeros(M.shape)

    def z_and_multiplier(Lam, beta):
        L = U @ V.T
        Z = np.where(C, X + soft(L - X + Lam / beta, 1 / beta), L + Lam / beta)
        return Z, Lam + beta * (L - Z)

    Z, Lam = z_and_multiplier(Lam, solver.penalty(p, 0))
    for k in range(30):
        beta = solver.penalty(p, k)
        B = Z - Lam / beta
        U = qf(B @ V)
        V = B.T @ U
        Z, Lam = z_and_multiplier(Lam, beta)
        state = solver.advance(p, state)
        assert_close(state.row["infeasible"], np.linalg.norm(U @ V.T - Z) / np.sqrt(M.nnz) / p.unit, 1e-10)
    assert_close(state.U @ state.V.T, U @ V.T, 1e-12)
    assert_close(on_grid(M, state.multiplier), Lam, 1e-12)


def test_lmafit_ends_with_a_multiplier():
    M, L = problem(120, 110, 3, 0.5, size=5.0, seed=541)
    p, solver = as_problem(M, 3, start=qf(L.U), backend="auto"), LMaFit()
    state = solver.init(p)
    while state.accuracy > p.tol:
        state = solver.advance(p, state)
    S = on_grid(M, state.multiplier)
    size = np.linalg.norm(S)
    assert np.abs(S).max() <= 1
    assert np.linalg.norm(state.U.T @ S) < 1e-5 * size
    assert np.linalg.norm(S @ qf(state.V)) < 1e-5 * size
    e = on_entries(M, state.U @ state.V.T) - M.values
    wrong = np.abs(e) > 1e-3
    np.testing.assert_allclose(state.multiplier[wrong], np.sign(e[wrong]))


def test_lmafit_is_left_as_it_was_if_interrupted():
    M, _ = problem(40, 30, 3, 0.6, seed=542)
    p, solver = as_problem(M, 3), LMaFit()
    state = solver.advance(p, solver.init(p))
    kept = state.multiplier.copy(), state.w.copy()

    class Interrupted:
        def ascend(self, U, C, current, out, beta, next_beta):
            out.values[:], out.w[:] = np.nan, np.nan
            raise KeyboardInterrupt

    broken = as_problem(M, 3)
    object.__setattr__(broken, "sweep", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        solver.advance(broken, state)
    np.testing.assert_array_equal(state.multiplier, kept[0])
    np.testing.assert_array_equal(state.w, kept[1])


def test_lmafit_penalties():
    p = as_problem(ls.ObservedMatrix.from_dense(np.full((3, 3), 2.0)), 1)
    solver = LMaFit(beta0=3.0, beta_growth=2.0, beta_max=20.0)
    assert_close([solver.penalty(p, k) for k in (0, 1, 2, 3, 10**6)], [1.5, 3, 6, 10, 10], 1e-14)


def test_lmafit_fast_penalties_are_not_called_converged():
    M, L = problem(size=10.0, uniform=True, condition=10.0, seed=543)
    r = ls.solve(M, 5, method=LMaFit(beta0=0.1, beta_growth=1.5, beta_max=1e6), tol=1e-4)
    assert relative(r.L, L) > 0.01
    assert r.trace["change"][-1] < 1e-4  # it hardly moves
    assert not r.converged
