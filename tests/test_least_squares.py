"""OptSpace, RTRMC and SET: their derivatives, their optimality, and that they find the same least-squares fit.

No constant of the methods was chosen on these shapes and seeds.
"""

import math

import numpy as np
import pytest

import lowsparse as ls
from conftest import (
    as_problem,
    assert_close,
    conditioned,
    dense_f,
    dense_gradient,
    dense_V,
    on_grid,
    opened,
    orthonormal,
    relative,
    robust_problem,
    tangent_part,
)
from lowsparse import Status
from lowsparse.linalg.grassmann import qf
from lowsparse.solvers import AManPG
from lowsparse.solvers.least_squares import fit_subspace, rounding
from lowsparse.solvers.optspace import OptSpace, best_core, trimmed
from lowsparse.solvers.rtrmc import RTRMC, hessian, truncated_cg
from lowsparse.solvers.set import SET, geodesic
from lowsparse.sweeps import Proximal, Rule


def matrix(*shape, seed, **kind):
    """Without outliers: (M, L)."""
    return conditioned([4711, seed], *shape, **kind)[:2]


def polar(U, H):
    left, _, right = np.linalg.svd(U + H, full_matrices=False)
    return left @ right


# ---------------------------------------------------------------------- f, its gradient and its Hessian


@pytest.mark.parametrize("lambda2", [0.0, 1e-6, 0.09])
def test_f_and_its_gradient_are_the_papers(backend, lambda2):
    M, _ = matrix(14, 11, 3, 0.7, noise=0.2, seed=1)
    U = orthonormal(14, 3, 11)
    at = fit_subspace(as_problem(M, 3, backend=backend), U, lambda2)
    C, Y = on_grid(M, 1.0), on_grid(M, M.values)
    V = dense_V(U, Y, C, lambda2)
    assert_close(at.W.T, V, 1e-11)
    assert at.value == pytest.approx(dense_f(U, V, Y, C, lambda2), rel=1e-12)
    assert_close(at.grad, dense_gradient(U, V, Y, C, lambda2), 1e-11)
    # and those of the waist, where nothing is an outlier
    S = np.zeros_like(M.values)
    swept = opened(M, backend).sweep(U, S, S.copy(), Proximal(Rule.MANPG, gamma=np.inf, lambda2=lambda2))
    assert_close(at.grad, swept.G, 1e-11)
    assert at.value == pytest.approx(swept.smooth_in, rel=1e-12)


@pytest.mark.parametrize("lam", [0.0, 1e-3, 0.3])
@pytest.mark.parametrize("rank", [1, 4])
def test_the_hessian_is_the_derivative_of_the_gradient(lam, rank):
    M, _ = matrix(40, 33, 4, 0.5, noise=0.5, seed=2)  # noise: the second term counts
    problem, U = as_problem(M, rank), orthonormal(40, rank, 21)
    at = fit_subspace(problem, U, lam**2)
    H, K = (tangent_part(U, orthonormal(40, rank, k)) for k in (22, 23))
    t = 1e-5
    ahead, behind = (fit_subspace(problem, polar(U, s * H), lam**2) for s in (t, -t))
    assert (ahead.value - behind.value) / (2 * t) == pytest.approx(np.vdot(at.grad, H), rel=1e-6)
    HessH, HessK = (hessian(problem, at, X, lam**2) for X in (H, K))
    expected = tangent_part(U, ahead.grad - behind.grad) / (2 * t)
    assert np.linalg.norm(HessH - expected) < 1e-6 * np.linalg.norm(expected)
    assert abs(np.vdot(HessH, K) - np.vdot(H, HessK)) < 1e-12 * np.linalg.norm(HessH) * np.linalg.norm(K)
    assert np.linalg.norm(U.T @ HessH) < 1e-12 * np.linalg.norm(HessH)
    assert np.linalg.norm(U.T @ at.grad) < 1e-12 * np.linalg.norm(at.grad)


# ---------------------------------------------------------------------- the trust region


def model(seed, *, least):
    """A quadratic model of known eigenvalues on 9 x 2 matrices, a metric, and a gradient."""
    rng = np.random.default_rng([31, seed])
    Q = qf(rng.standard_normal((18, 18)))
    B = Q * np.linspace(least, 5, 18) @ Q.T
    A = rng.standard_normal((2, 2))
    return B, A @ A.T + 0.1 * np.eye(2), rng.standard_normal((9, 2))


def test_inside_the_region_the_step_is_newtons():
    B, metric, g = model(1, least=0.5)
    found = truncated_cg(lambda H: (B @ H.ravel()).reshape(9, 2), np.linalg.inv(metric), g, 1e9, 1e8, 200)
    newton = -np.linalg.solve(B, g.ravel()).reshape(9, 2)
    assert not found.boundary
    assert_close(found.step, newton, 1e-6)
    assert found.promised == pytest.approx(-0.5 * np.vdot(g, newton), rel=1e-11)


@pytest.mark.parametrize("least", [0.5, -1.0])
@pytest.mark.parametrize("radius", [0.3, 3.0])  # reached at once, and after a few steps
def test_at_the_boundary_the_step_is_better_than_the_steepest(least, radius):
    B, metric, g = model(2, least=least)
    P = np.linalg.inv(metric)
    found = truncated_cg(lambda H: (B @ H.ravel()).reshape(9, 2), P, g, radius, 1.0, 200)
    assert found.boundary
    assert least < 0 or (found.steps > 1) == (radius > 1)
    assert np.vdot(found.step, found.step @ metric) == pytest.approx(radius**2, rel=1e-10)
    q = lambda H: np.vdot(g, H) + 0.5 * H.ravel() @ B @ H.ravel()  # noqa: E731
    assert found.promised == pytest.approx(-q(found.step), rel=1e-10)
    steepest = -radius * g @ P / math.sqrt(np.vdot(g, g @ P))
    assert found.promised >= max(-q(t * steepest) for t in np.linspace(0, 1, 101)) * (1 - 1e-12)


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("lam", [0.0, 1e-3])
def test_f_comes_down_and_rounding_rejects_nothing(noise, lam):
    M, _ = matrix(110, 90, 3, 0.3, condition=30, noise=noise, seed=3)
    r = ls.solve(M, 3, method=RTRMC(lam=lam), tol=0, max_iter=50)
    f, rho = r.trace["objective"], r.trace["rho"]
    blur = rounding(as_problem(M, 3), f[0]) + 1e-12 * lam**2 * np.sum(r.L.V**2)
    assert (np.diff(f) <= blur).all()
    stayed, shrank = rho[1:] <= 0.1, rho[:-1] < 0.25
    assert stayed.any()
    assert ((np.diff(f) == 0) >= stayed).all()
    np.testing.assert_array_equal(r.trace["radius"][1:][shrank], r.trace["radius"][:-1][shrank] / 4)
    late = r.trace["grad_norm"] <= 1e-10 * r.trace["grad_norm"][0]
    assert late.sum() > 5
    assert (rho[late] > 0.75).all()


@pytest.mark.parametrize("seed", [41, 42])
def test_rtrmc_is_exact_to_rounding_within_ten_iterations(seed):
    M, L = matrix(300, 300, 5, 0.3, seed=seed)
    r = ls.solve(M, 5, method="rtrmc")
    assert r.converged
    assert r.n_iter <= 10
    assert relative(r.L, L) < 5e-14


@pytest.mark.parametrize("damping", [0.0, 0.01])
def test_rtrmc_takes_ill_conditioned_matrices_from_few_entries(damping):
    M, L = matrix(300, 300, 5, 0.15, condition=50, seed=43)
    r = ls.solve(M, 5, method=RTRMC(damping=damping))
    assert r.converged
    assert relative(r.L, L) < 1e-10


@pytest.mark.parametrize("solver", [RTRMC(order=1), RTRMC(order=1, precondition=False), RTRMC(precondition=False)])
def test_variants_of_rtrmc_find_the_same(solver):
    M, _ = matrix(100, 130, 3, 0.4, noise=0.05, seed=44)
    best = ls.solve(M, 3, method=RTRMC(), tol=1e-12).L
    r = ls.solve(M, 3, method=solver, tol=1e-10)
    assert r.converged
    assert relative(r.L, best) < 1e-8
    assert (r.trace["inner"] == 1).all() == (solver.order == 1)


def test_rtrmc_stops_only_where_the_gradient_of_the_paper_vanishes():
    M, _ = matrix(40, 50, 2, 0.5, noise=0.3, seed=45)
    r = ls.solve(M, 2, method=RTRMC(lam=0.2), tol=1e-10)
    C, Y = on_grid(M, 1.0), on_grid(M, M.values)
    G = dense_gradient(r.L.U, r.L.V, Y, C, 0.04)
    assert r.converged
    assert np.linalg.norm(G) < 1e-9 * np.linalg.norm(Y) * np.linalg.norm(r.L.V)
    assert r.objective == pytest.approx(dense_f(r.L.U, r.L.V, Y, C, 0.04), rel=1e-10)


@pytest.mark.parametrize("damping", [0.0, 0.01])
@pytest.mark.parametrize("rank", [5, 9])
def test_a_rank_that_is_too_large_ends_honestly(rank, damping):
    M, L = matrix(90, 80, 3, 0.6, seed=46)
    r = ls.solve(M, rank, method=RTRMC(damping=damping), max_iter=100)
    assert np.isfinite(r.L.to_dense()).all()
    assert np.sum((r.L.at(M.rows, M.columns_of_entries()) - M.values) ** 2) == pytest.approx(2 * r.objective, abs=1e-9)
    if damping:
        assert r.converged
    if r.converged:
        assert relative(r.L, L) < 1e-6


@pytest.mark.parametrize("value", [0.0, 7.0])
def test_a_coefficient_that_is_exactly_zero_is_no_obstacle(value):
    X = np.zeros((8, 9))
    X[:, 0] = value  # with U⁰ = I, W has one row that is not zero
    r = ls.solve(X, 3, method=RTRMC(damping=0.0), start=np.eye(8)[:, :3])
    assert r.converged
    assert_close(r.L.to_dense(), X, 1e-12, scale=1.0)


def test_columns_without_enough_entries_stall_or_are_regularised():
    M, _ = matrix(40, 30, 4, 0.1, seed=47)  # about as many entries as the rank in each column
    r = ls.solve(M, 4, method=RTRMC(), max_iter=200)
    assert not r.converged or r.objective < 1e-20
    if r.status is Status.STALLED:
        assert "lam" in r.message
    regularised = ls.solve(M, 4, method=RTRMC(lam=0.1), max_iter=500)
    assert np.abs(regularised.L.to_dense()).max() < 10 * np.abs(M.values).max()


# ---------------------------------------------------------------------- OptSpace


@pytest.mark.parametrize("lam", [0.0, 0.3])
@pytest.mark.parametrize("rank", [1, 3, 20])  # 20: by conjugate gradients
def test_the_best_core_satisfies_its_equations(rank, lam):
    M, _ = matrix(60, 70, 3, 0.7, noise=0.1, seed=51)
    problem = as_problem(M, rank)
    U, Y, start = orthonormal(60, rank, 1), orthonormal(70, rank, 2), np.zeros((rank, rank))
    Sigma = best_core(problem, U, Y, start, lam)
    R = on_grid(M, problem.sweep.residual(U, Y @ Sigma.T))
    assert_close(U.T @ R @ Y + lam * Sigma, start, 1e-11, scale=np.linalg.norm(M.values))


def test_with_every_entry_the_core_is_the_projection():
    M, _ = matrix(12, 15, 2, 1.0, noise=0.3, seed=52)
    U, Y = orthonormal(12, 2, 1), orthonormal(15, 2, 2)
    Sigma = best_core(as_problem(M, 2), U, Y, np.ones((2, 2)), 0.0)
    assert_close(Sigma, U.T @ M.to_dense() @ Y, 1e-13)


@pytest.mark.parametrize("lam", [0.0, 0.5])
def test_with_every_entry_optspace_finds_the_shrunk_svd(lam):
    """½‖L - M‖² + λ/2 ‖L‖² is least at the truncated SVD over 1 + λ."""
    M, _ = matrix(30, 40, 2, 1.0, noise=0.2, seed=53)
    left, s, right = np.linalg.svd(M.to_dense(), full_matrices=False)
    r = ls.solve(M, 2, method=OptSpace(lam=lam), tol=1e-12)
    assert r.converged
    assert_close(r.L.to_dense(), left[:, :2] * s[:2] @ right[:2] / (1 + lam), 1e-9)


@pytest.mark.parametrize("shape", [(300, 300), (150, 500)])
def test_optspace_recovers_and_never_rises(shape):
    M, L = matrix(*shape, 5, 0.3, seed=54)
    r = ls.solve(M, 5, method="optspace", tol=1e-11, max_iter=1000)
    assert r.converged
    assert relative(r.L, L) < 1e-8
    assert (np.diff(r.trace["objective"]) <= 0).all()


def test_optspace_never_rises_with_noise_but_by_rounding():
    M, _ = matrix(120, 100, 3, 0.4, noise=0.1, seed=55)
    r = ls.solve(M, 3, method="optspace", tol=0, max_iter=150)
    assert r.status is Status.MAX_ITER
    f = r.trace["objective"]
    assert (np.diff(f) <= 1e-12 * f[0]).all()
    assert r.trace["change"][-1] < 1e-8


def test_trimming_shortens_the_long_lines_alone():
    rng = np.random.default_rng(56)
    known = rng.random((80, 90)) < 0.25
    known[7], known[:, 11] = True, True
    M = ls.ObservedMatrix.from_dense(np.where(known, 1.0, np.nan))
    kept = on_grid(M, trimmed(M, np.random.default_rng(1)))
    assert kept.sum(axis=1).max() <= 2 * M.nnz / 80
    assert kept.sum(axis=0).max() <= 2 * M.nnz / 90
    assert kept.sum(axis=1)[7] > 0.8 * 2 * M.nnz / 80
    assert kept.sum(axis=0)[11] > 0.8 * 2 * M.nnz / 90
    others = np.ones_like(known)
    others[7], others[:, 11] = False, False
    np.testing.assert_array_equal(kept[others], known[others])
    truth = ls.LowRank(rng.standard_normal((80, 2)), rng.standard_normal((2, 90)))
    for trim in (True, False):
        r = ls.solve(np.where(known, truth.to_dense(), np.nan), 2, method=OptSpace(trim=trim))
        assert r.converged
        assert relative(r.L, truth) < 1e-6


# ---------------------------------------------------------------------- SET


def turned(U, v, h, t):
    return U + np.outer((math.cos(t) - 1) * (U @ v) + math.sin(t) * h, v)


@pytest.mark.parametrize("rank", [1, 3])
def test_f_along_a_geodesic_is_known_without_the_data(rank):
    M, _ = matrix(30, 40, 3, 0.4, noise=0.2, seed=61)
    problem = as_problem(M, rank)
    at = fit_subspace(problem, orthonormal(30, rank, 5))
    turn = orthonormal(rank, rank, 6).T
    h = tangent_part(at.U, orthonormal(30, 1, 7))[:, 0]
    h /= np.linalg.norm(h)
    along = geodesic(problem, at.U, at.W, problem.sweep.residual(at.U, at.W), turn, h)
    for t in (1e-3, 0.4, 1.5, 3.0):
        exact = fit_subspace(problem, turned(at.U, turn[0], h, t)).value - at.value
        assert along.value(t) == pytest.approx(exact, rel=1e-9, abs=1e-11 * at.value)
        assert along.slope(t) == pytest.approx((along.value(t + 1e-6) - along.value(t - 1e-6)) / 2e-6, rel=1e-5)
    assert along.slope(0.0) == pytest.approx(turn[0] @ (at.grad.T @ h), rel=1e-10)  # ⟨∇f, h vᵀ⟩


def test_set_turns_to_the_best_angle():
    M, _ = matrix(30, 40, 2, 0.5, noise=0.2, seed=62)
    problem = as_problem(M, 2)
    at = fit_subspace(problem, orthonormal(30, 2, 8))
    left, _, turn = np.linalg.svd(-at.grad, full_matrices=False)
    best = geodesic(problem, at.U, at.W, problem.sweep.residual(at.U, at.W), turn, left[:, 0]).best()
    f = [
        fit_subspace(problem, turned(at.U, turn[0], left[:, 0], t)).value for t in (best, *np.linspace(0, np.pi, 1000))
    ]
    assert f[0] <= min(f) * (1 + 1e-12)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_set_and_rtrmc_have_the_same_fixed_points(noise):
    M, _ = matrix(120, 100, 3, 0.4, noise=noise, seed=63)
    best = ls.solve(M, 3, method=RTRMC(), tol=1e-12)
    stays = ls.solve(M, 3, method=SET(), start=best, tol=0, max_iter=5)
    assert relative(stays.L, best.L) < 1e-11
    assert stays.trace["angle"].max() < 1e-8
    found = ls.solve(M, 3, method=SET(), tol=1e-10)
    assert found.converged
    assert relative(found.L, best.L) < 1e-8
    at = fit_subspace(as_problem(M, 3), found.L.U)
    assert np.linalg.norm(at.grad) < 1e-8 * np.linalg.norm(at.W) * np.linalg.norm(M.values)
    assert (np.diff(found.trace["objective"]) <= rounding(as_problem(M, 3), found.objective)).all()


@pytest.mark.parametrize("seed", [64, 65, 66])
def test_set_does_not_cross_a_barrier_upwards(seed):
    M, _ = matrix(20, 15, 3, 0.2, seed=seed)  # about as many entries as the rank in each column
    r = ls.solve(M, 3, method=SET(), tol=0, max_iter=60)
    assert (np.diff(r.trace["objective"]) <= rounding(as_problem(M, 3), r.trace["objective"][0])).all()
    if r.status is Status.STALLED:
        assert "do not determine their coefficients" in r.message


# ---------------------------------------------------------------------- all of them


def alternating(M, U, sweeps=300):
    """Plain alternating least squares, line by line."""
    X = M.to_dense()
    known = ~np.isnan(X)
    V = np.zeros((X.shape[1], U.shape[1]))
    for _ in range(sweeps):
        for j, seen in enumerate(known.T):
            V[j] = np.linalg.lstsq(U[seen], X[seen, j], rcond=None)[0]
        V = qf(V)
        U = np.array([np.linalg.lstsq(V[seen], X[i, seen], rcond=None)[0] for i, seen in enumerate(known)])
    return ls.LowRank(U, V.T)


def test_without_outliers_all_find_the_same_fit():
    M, L = matrix(70, 60, 2, 0.5, noise=0.1, seed=71)
    expected = alternating(M, qf(L.U), sweeps=60)
    for solver in (
        AManPG(gamma=1e6, lam=0.0),
        RTRMC(),
        OptSpace(),
        SET(),
    ):
        r = ls.solve(M, 2, method=solver, tol=1e-11, max_iter=3000)
        assert r.converged, solver
        assert relative(r.L, expected) < 1e-8, solver


def test_with_the_same_regularisation_rtrmc_and_amanpg_agree():
    M, _ = matrix(70, 60, 2, 0.5, noise=0.1, seed=72)
    r, other = (
        ls.solve(M, 2, method=solver, tol=1e-11, max_iter=3000)
        for solver in (RTRMC(lam=0.1), AManPG(gamma=1e6, lam=0.1))
    )
    assert relative(r.L, other.L) < 1e-8
    assert r.objective == pytest.approx(other.objective, rel=1e-12)


@pytest.mark.parametrize("solver", [RTRMC(), OptSpace(), SET()], ids=lambda solver: solver.name)
def test_gross_errors_are_pointed_out_and_noise_is_not(solver):
    wrong = robust_problem(120, 100, rank=2, outliers=0.1, seed=73)
    r = ls.solve(wrong.M, 2, method=solver)
    assert not solver.robust
    assert r.converged
    assert f"{solver.name} is a least-squares method" in r.message
    assert relative(r.L, wrong.L) > 0.01
    noisy = robust_problem(120, 100, rank=2, outliers=0.0, noise=0.1, seed=74)
    assert "least-squares" not in ls.solve(noisy.M, 2, method=solver).message


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        (RTRMC(order=3), "order must be 1 or 2"),
        (RTRMC(lam=1.0), r"lam must be in \[0, 1\)"),
        (RTRMC(damping=-1.0), "damping must be 0 or more"),
        (RTRMC(max_inner=0), "max_inner must be a whole number"),
        (OptSpace(lam=-0.1), "lam must be 0 or more"),
        (OptSpace(delta=0.0), "delta must be positive"),
        (SET(delta=-1.0), "delta must be positive"),
    ],
)
def test_parameters_that_make_no_sense_are_named(solver, message):
    with pytest.raises(ValueError, match=message):
        ls.solve(robust_problem().M, 3, method=solver)
