"""What the paper proves and ALGORITHMS.md derives, held against real iterations."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.linalg import subspace_angles

import lowsparse as ls
from conftest import (
    PAPER,
    assert_close,
    dense_f,
    dense_gradient,
    dense_V,
    on_entries,
    on_grid,
    opened,
    orthonormal,
    relative,
    robust_problem,
    smooth_value,
    soft,
    tangent_part,
)
from lowsparse import Status
from lowsparse.linalg.grassmann import qf, retract
from lowsparse.solvers import AManPG, AManPGC, ManPG, ManPGC, from_name
from lowsparse.sweeps import Proximal, Rule

LAMBDAS = [1e-8, 1e-2, 0.3]


def method(name, **parameters):
    return type(from_name(name))(**parameters)


def problem_A(seed):
    """300 x 300 of rank 5, 30 % seen, a tenth of it with N(0, 1) errors."""
    return robust_problem(300, 300, rank=5, density=0.3, seed=seed)


def problem_B(seed):
    """As A, with errors uniform on [-10, 10]."""
    problem = robust_problem(300, 300, rank=5, density=0.3, outliers=0, seed=seed)
    rng = np.random.default_rng([seed, 1])
    S = np.where(rng.random(problem.M.nnz) < 0.1, rng.uniform(-10, 10, problem.M.nnz), 0.0)
    return ls.datasets.SyntheticProblem(problem.M.with_values(problem.M.values + S), problem.L, S)


@pytest.fixture
def point():
    """A problem and a point (U, S) away from its solution."""
    problem = robust_problem(40, 30, rank=3, density=0.6)
    rng = np.random.default_rng(77)
    S = np.where(rng.random(problem.M.nnz) < 0.2, rng.standard_normal(problem.M.nnz), 0.0)
    return problem.M, orthonormal(40, 3), S


def gradient(M, U, S, lam, gamma=0.3):
    return opened(M).sweep(U, S, np.empty_like(S), Proximal(Rule.MANPG, gamma=gamma, lambda2=lam**2)).G


# ---------------------------------------------------------------------- gradients


@pytest.mark.parametrize("lam", LAMBDAS)
def test_the_riemannian_gradient_is_the_slope_of_f_along_the_retraction(point, lam):
    M, U, S = point
    G = gradient(M, U, S, lam)
    assert np.linalg.norm(U.T @ G) < 1e-12 * np.linalg.norm(G)
    for seed in range(3):
        H, t = tangent_part(U, np.random.default_rng(seed + 50).standard_normal(U.shape)), 1e-5
        up, down = (smooth_value(opened(M), retract(U, s * H, s * s * H.T @ H)[0], S, lam**2) for s in (t, -t))
        assert (up - down) / (2 * t) == pytest.approx(np.vdot(G, H), rel=1e-6)


@pytest.mark.parametrize("lam", LAMBDAS)
def test_the_gradient_in_s_is_the_residual_although_v_moves_too(point, lam):
    # envelope theorem: ∇_S f = P_Ω(U V(U, S) - M + S)
    M, U, S = point
    V = opened(M).sweep(U, S, None, Proximal(Rule.FIT, lambda2=lam**2)).V
    residual = on_entries(M, U @ V) - M.values + S
    H, t = np.random.default_rng(51).standard_normal(S.size), 1e-4
    up, down = (smooth_value(opened(M), U, S + s * H, lam**2) for s in (t, -t))
    assert (up - down) / (2 * t) == pytest.approx(residual @ H, rel=1e-6)


def test_the_gradient_in_s_has_lipschitz_constant_one(point):
    # the Hessian in S is I minus a projection for every column (S8)
    M, U, _ = point

    def curvature(H):  # ⟨H, Hess H⟩, as f is quadratic in S
        f = [smooth_value(opened(M.with_values(0 * M.values)), U, s * H) for s in (0.0, 1.0)]
        return 2 * (f[1] - f[0])

    rng = np.random.default_rng(52)
    for H in rng.standard_normal((20, M.nnz)):
        assert 0 < curvature(H) <= H @ H * (1 + 1e-12)
    seen = on_entries(M, U @ rng.standard_normal((3, M.shape[1])))
    assert curvature(seen) == pytest.approx(0, abs=1e-12 * (seen @ seen))
    rows, _ = M.column(0)
    beyond = np.zeros(M.nnz)
    beyond[: len(rows)] = tangent_part(qf(U[rows]), rng.standard_normal((len(rows), 1))).ravel()
    assert curvature(beyond) == pytest.approx(beyond @ beyond, rel=1e-12)


@pytest.mark.parametrize("lam", LAMBDAS)
@pytest.mark.parametrize("gamma", [0.05, 0.5, 5.0])
def test_minimising_over_s_gives_the_huber_loss(point, lam, gamma):
    M, U, _ = point
    V = np.random.default_rng(53).standard_normal((3, M.shape[1]))
    C, X = on_grid(M, np.ones(M.nnz)), on_grid(M, M.values)
    e = C * (U @ V - X)
    S = soft(-e, gamma)
    huber = np.where(np.abs(e) <= gamma, e**2 / 2, gamma * np.abs(e) - gamma**2 / 2).sum()
    minimum = dense_f(U, V, X - S, C, lam**2) + gamma * np.abs(S).sum()
    assert minimum == pytest.approx(huber + lam**2 / 2 * np.sum(((1 - C) * (U @ V)) ** 2), rel=1e-12)
    assert_close(e + S, np.clip(e, -gamma, gamma), 1e-12)


@pytest.mark.parametrize("name", PAPER)
def test_a_solution_minimises_the_huber_loss(name):
    # the objective handed back, with S minimised out, is that of Huber completion at the same UV
    problem = robust_problem(40, 30, rank=2, density=0.7)
    gamma = 0.05
    fixed = {"gamma0": gamma, "stages": 1, "noise_stop": False} if name.endswith("c") else {"gamma": gamma}
    r = ls.solve(problem.M, 2, method=method(name, lam=0.0, **fixed), max_iter=5000, tol=1e-10)
    assert r.converged
    e = on_entries(problem.M, r.L.to_dense()) - problem.M.values
    huber = np.where(np.abs(e) <= gamma, e**2 / 2, gamma * np.abs(e) - gamma**2 / 2).sum()
    assert r.objective == pytest.approx(huber, rel=1e-3 if name.endswith("c") else 1e-8)


# ---------------------------------------------------------------------- descent


def test_lemmas_1_and_2_hold_on_real_iterations():
    M = robust_problem(80, 70, rank=3, density=0.5).M
    lambda2, sweep = 1e-10, opened(M)
    U, S = ls.solve(M, 3, max_iter=1, tol=0).L.U, np.zeros(M.nnz)
    for gamma in (3.0, 0.3, 0.03):

        def F(U, S, gamma=gamma):
            return smooth_value(sweep, U, S, lambda2) + gamma * np.abs(S).sum()

        for _ in range(15):
            S_new = np.empty_like(S)
            swept = sweep.sweep(U, S, S_new, Proximal(Rule.AMANPG, gamma=gamma, lambda2=lambda2))
            slack = 1e-12 * F(U, S)
            # Lemma 1 with L_S = 1
            assert F(U, S_new) - F(U, S) <= -0.5 * np.linalg.norm(S_new - S) ** 2 + slack
            # Lemma 2 with t_U = 1/L_U
            t = 0.5 / (M.density * np.linalg.norm(swept.V, 2) ** 2)
            U_new = retract(U, -t * swept.G, t * t * swept.GtG)[0]
            assert F(U_new, S_new) - F(U, S_new) <= -0.5 / t * np.linalg.norm(t * swept.G) ** 2 + slack
            U, S = U_new, S_new


def assert_never_rises(trace):
    """The objective within each stage, that is for each γ."""
    F, gamma = trace["objective"], trace["gamma"]
    assert len(F) > 10
    same = gamma[1:] == gamma[:-1]
    assert same.any()
    assert (F[1:][same] <= F[:-1][same] * (1 + 1e-12)).all()


@pytest.mark.parametrize("name", PAPER)
def test_the_objective_never_rises(name):
    trace = ls.solve(robust_problem().M, 3, method=name, max_iter=200).trace
    assert_never_rises(trace)


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("greed", ["step", "t_U", "precondition"])
def test_the_objective_never_rises_after_a_step_that_is_too_long(name, greed):
    M = robust_problem().M
    parameters = {
        "step": {"step": 5.0},
        "t_U": {"t_U": 1000 / M.nnz},
        "precondition": {"precondition": True, "step": 9},
    }
    r = ls.solve(M, 3, method=method(name, **parameters[greed]), max_iter=200)
    assert r.trace["shortened"].sum() > 0
    assert greed != "t_U" or (np.diff(r.trace["t_U"]) > 0).any()  # and tried longer again
    assert_never_rises(r.trace)
    assert r.status in (Status.CONVERGED, Status.MAX_ITER)
    assert r.objective <= r.trace["objective"][-1] * (1 + 1e-12) or name.endswith("c")
    without = ls.solve(M, 3, method=method(name, **parameters[greed], backtracking=False), max_iter=200)
    assert not without.trace["shortened"].any()
    with pytest.raises(AssertionError):  # the safeguard was needed
        assert_never_rises(without.trace)


def test_half_the_inverse_curvature_needs_no_backtracking():
    r = ls.solve(robust_problem().M, 3, method=AManPG(step=0.5, gamma=0.1, backtracking=False), max_iter=200)
    assert_never_rises(r.trace)


# ---------------------------------------------------------------------- known solutions


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("c", [255.0, 1 / 255, 1e60, 1e-60])
def test_a_scaled_problem_has_the_scaled_solution(name, c):
    M = robust_problem().M
    one = ls.solve(M, 3, method=name, max_iter=120, random_state=4)
    scaled = ls.solve(M.with_values(c * M.values), 3, method=name, max_iter=120, random_state=4)
    assert scaled.n_iter == one.n_iter
    assert scaled.status == one.status
    assert ls.LowRank(scaled.L.U, scaled.L.V / c).error(one.L, relative=True) < 1e-9
    assert_close(scaled.S.toarray() / c, one.S.toarray(), 1e-9)
    assert_close(scaled.trace["gamma"] / c, one.trace["gamma"], 1e-12)


@pytest.mark.parametrize("name", ["amanpgc", "manpg"])
def test_scaling_by_a_power_of_two_changes_no_bit(name):
    M = robust_problem().M
    one = ls.solve(M, 3, method=name, max_iter=60)
    scaled = ls.solve(M.with_values(2.0**9 * M.values), 3, method=name, max_iter=60)
    np.testing.assert_array_equal(scaled.L.U, one.L.U)
    np.testing.assert_array_equal(scaled.L.V, 2.0**9 * one.L.V)


@pytest.mark.parametrize("name", PAPER)
def test_without_holes_and_outliers_the_truncated_svd_is_the_solution(name):
    rng = np.random.default_rng(55)
    left, right = (np.linalg.qr(rng.standard_normal((k, 10)))[0] for k in (30, 25))
    X = left * np.geomspace(100, 1, 10) @ right.T
    huge = {"gamma0": 1e6, "stages": 1, "epsilon0": 1e-9, "noise_stop": False} if name.endswith("c") else {"gamma": 1e6}
    r = ls.solve(X, 3, method=method(name, lam=0.0, **huge), max_iter=2000, start="random", tol=1e-12)
    assert r.converged
    assert r.S.nnz == 0
    assert np.sin(subspace_angles(r.L.U, left[:, :3])).max() < 1e-7
    assert relative(r.L, ls.LowRank(left[:, :3] * np.geomspace(100, 1, 10)[:3], right[:, :3].T)) < 1e-7
    # and a fixed point: starting there, nothing moves
    again = ls.solve(X, 3, method=method(name, lam=0.0, **huge), max_iter=1, start=left[:, :3], tol=0)
    assert again.trace["dU"][0] < 1e-12
    assert again.trace["dS"][0] == 0


def test_at_the_truth_the_step_vanishes_linearly_in_gamma():
    problem = problem_A(seed=111)
    U, S_true, sweep = qf(problem.L.U), problem.S, opened(problem.M)
    gammas = np.array([1e-1, 1e-2, 1e-3, 1e-4, 1e-5])
    steps = []
    for gamma in gammas:
        swept = sweep.sweep(U, soft(S_true, gamma), np.empty_like(S_true), Proximal(Rule.AMANPG, gamma=gamma))
        steps.append(np.linalg.norm(swept.G) / (problem.M.density * np.linalg.norm(swept.V, 2) ** 2))
    rates = np.array(steps) / gammas
    assert rates[-1] == pytest.approx(rates[-2], rel=0.01)
    assert rates.max() < 2 * rates.min()


@pytest.mark.parametrize("name", ["amanpgc", "manpgc"])
@pytest.mark.parametrize("make", [problem_A, problem_B])
@pytest.mark.parametrize("seed", [112, 113])
def test_problems_a_and_b_are_recovered(name, make, seed):
    problem = make(seed)
    r = ls.solve(problem.M, 5, method=name, random_state=3)
    assert r.converged, r.message
    assert relative(r.L, problem.L) < 1e-6
    # the outliers are found, where and how large
    S = on_entries(problem.M, r.S.toarray())
    assert_close(S, problem.S, 1e-5)
    assert np.array_equal(np.abs(S) > 1e-4, np.abs(problem.S) > 1e-4)


@pytest.mark.parametrize("name", ["amanpgc", "manpgc"])
@pytest.mark.parametrize("seed", [101, 102, 103])
def test_a_small_problem_with_few_entries_is_recovered(name, seed):
    # 60 x 50: stages take more than a hundred iterations, and one left early spoils all that follow
    problem = robust_problem(seed=seed)
    r = ls.solve(problem.M, 3, method=name, max_iter=1000)
    assert r.converged
    assert relative(r.L, problem.L) < 1e-6


# ---------------------------------------------------------------------- continuation


def test_the_number_of_stages_is_whole():
    # repeated multiplication by 0.1 gives 1.0000000000000005e-08 > 1e-8 and one stage more (S12)
    solver = AManPGC(gamma0=10, gamma_min=1e-8, mu1=0.1, stage_iter=2, noise_stop=False)
    gammas = ls.solve(robust_problem().M, 3, method=solver, tol=0, max_iter=40).trace["gamma"]
    assert_close(np.unique(gammas)[::-1] / 10.0 ** np.arange(1, -9, -1), np.ones(10), 1e-12)


@pytest.mark.parametrize(
    ("parameters", "stages"),
    [
        ({"gamma0": 10, "gamma_min": 1e-8, "mu1": 0.1}, 10),
        ({"gamma0": 1, "gamma_min": 0.5**20, "mu1": 0.5}, 21),
        ({"gamma0": 1, "gamma_min": 0.9e-3, "mu1": 0.1}, 5),
        ({"gamma0": 1, "gamma_min": 2, "mu1": 0.1}, 1),
        ({"gamma0": 1, "stages": 4}, 4),
    ],
)
def test_the_schedule_ends_with_the_first_gamma_at_most_gamma_min(parameters, stages):
    for kind in (ManPGC, AManPGC):
        solver = kind(**parameters, stage_iter=1, noise_stop=False)
        gammas = ls.solve(robust_problem().M, 3, method=solver, tol=0, max_iter=stages + 5).trace["gamma"]
        assert len(np.unique(gammas)) == stages
        expected = parameters["gamma0"] * solver.mu1 ** np.minimum(np.arange(stages + 5), stages - 1)
        assert_close(gammas / expected, np.ones(stages + 5), 1e-12)


def literal_algorithm_3(X, C, U, *, alternating, t_U, lam, gamma0, mu1, mu2, epsilon0, iterations):
    """The paper's Algorithm 3 around Algorithm 2 (or 1), line by line, with Retr_U(H) = qf(U + H)."""

    def V_of(S):
        return dense_V(U, X - S, C, lam**2)

    S, gamma, epsilon, rows = np.zeros_like(X), gamma0, epsilon0, []
    for _ in range(iterations):
        V = V_of(S)
        S_new = soft(C * (S - (U @ V - X + S)), gamma)
        dS = S_new - S
        at = S_new if alternating else S
        V = V_of(at)
        dU = -t_U * dense_gradient(U, V, X - at, C, lam**2)
        F = dense_f(U, V, X - at, C, lam**2) + gamma * np.abs(at).sum()
        rows.append([F, gamma, np.linalg.norm(dS), np.linalg.norm(dU)])
        Q, R = np.linalg.qr(U + dU)
        U, S = Q * np.sign(np.diag(R)), S_new
        if np.sum(dU**2) + np.sum(dS**2) <= epsilon**2:
            gamma, epsilon = mu1 * gamma, mu2 * epsilon
    return U, V_of(S), S, np.array(rows)


@pytest.mark.parametrize("kind", [AManPGC, ManPGC])
@pytest.mark.parametrize("mu2", [0.5, 0.3])
def test_the_iterations_are_those_of_algorithm_3_to_the_letter(kind, mu2):
    M = robust_problem(16, 12, rank=2, density=0.8).M
    M = M.with_values(M.values / np.sqrt(np.mean(M.values**2)))  # ‖ΔU‖ then counts as in the paper
    U, C = orthonormal(16, 2), on_grid(M, np.ones(M.nnz))
    constants = {"t_U": 0.5 / M.nnz, "lam": 0.1, "gamma0": 2.0, "mu1": 0.5, "mu2": mu2, "epsilon0": 0.6}
    r = ls.solve(
        M,
        2,
        method=kind(**constants, stages=30, stage_iter=1000, noise_stop=False, backtracking=False),
        start=U,
        tol=0,
        max_iter=30,
    )
    U, V, S, rows = literal_algorithm_3(
        on_grid(M, M.values), C, U, alternating=kind is AManPGC, iterations=30, **constants
    )
    assert len(np.unique(rows[:, 1])) >= 4  # several stages
    assert np.count_nonzero(rows[1:, 1] == rows[:-1, 1]) >= 4  # of several iterations
    for k, name in enumerate(["objective", "gamma", "dS", "dU"]):
        assert_close(r.trace[name], rows[:, k], 1e-10)
    assert_close(r.L.U, U, 1e-10)
    assert_close(r.L.V, V, 1e-10)
    assert_close(r.S.toarray(), S, 1e-10, scale=1.0)


@pytest.mark.parametrize("kind", [AManPG, ManPG])
def test_a_partial_step_in_s_is_that_of_the_paper(kind):
    M = robust_problem(16, 12, rank=2, density=0.8).M
    U, C, X = orthonormal(16, 2), on_grid(M, np.ones(M.nnz)), on_grid(M, M.values)
    r = ls.solve(M, 2, method=kind(gamma=0.3, t_S=0.5, t_U=1e-9, lam=0.1), start=U, tol=0, max_iter=1)
    S = soft(-0.5 * C * (U @ dense_V(U, X, C, 0.01) - X), 0.15)
    assert_close(r.S.toarray(), S, 1e-10)


# ---------------------------------------------------------------------- stopping


def least_squares_on(problem, inliers, sweeps=15):
    """The best fit to the entries that are no outliers, by alternating least squares from the truth."""
    Y, C = on_grid(problem.M, problem.M.values), on_grid(problem.M, inliers) > 0
    U, V = problem.L.U.copy(), problem.L.V.copy()
    for _ in range(sweeps):
        for j in range(Y.shape[1]):
            V[:, j] = np.linalg.lstsq(U[C[:, j]], Y[C[:, j], j], rcond=None)[0]
        for i in range(Y.shape[0]):
            U[i] = np.linalg.lstsq(V[:, C[i]].T, Y[i, C[i]], rcond=None)[0]
    return ls.LowRank(U, V)


# γ comes down in steps of ten and ends between 0.07 σ and 0.7 σ: the smaller, the nearer the fit is to the median of
# the noise, which costs a factor (π/2)^½ against its mean, and more with outliers
@pytest.mark.parametrize("kind", [AManPGC, ManPGC])
@pytest.mark.parametrize("sigma", [0.05, 0.5])
@pytest.mark.parametrize(("gamma0", "worse"), [(None, 1.4), (50, 1.3)])
def test_with_noisy_inliers_the_continuation_ends_at_the_noise(kind, sigma, gamma0, worse):
    problem = robust_problem(150, 140, rank=4, density=0.4, outlier_size=10.0, noise=sigma)
    r = ls.solve(problem.M, 4, method=kind(gamma0=gamma0 and gamma0 * sigma), max_iter=1000)
    assert r.status is Status.CONVERGED
    assert "noise" in r.message
    assert 0.05 * sigma <= r.trace["gamma"][-1] <= sigma
    best = least_squares_on(problem, problem.S == 0)
    assert relative(r.L, problem.L) < worse * relative(best, problem.L)


def test_without_the_noise_rule_the_continuation_goes_on_below_the_noise():
    problem = robust_problem(100, 90, rank=3, density=0.5, outlier_size=10.0, noise=0.05)
    r = ls.solve(problem.M, 3, method=AManPGC(noise_stop=False), max_iter=2000)
    assert r.trace["gamma"][-1] < 0.05 * 0.05


@pytest.mark.parametrize("name", PAPER)
def test_the_video_sections_rule_ends_at_a_small_relative_change(name):
    M = robust_problem().M
    r = ls.solve(M, 3, method=method(name, delta=0.01))
    assert r.converged
    assert "delta = 0.01" in r.message
    change, late = r.trace["change"], r.trace["gamma"] < 0.1 * np.abs(M.values).max()
    assert change[-1] <= 0.01
    assert late[-1]
    assert not (late & (change <= 0.01))[:-1].any()


def test_the_change_is_that_of_the_product():
    M = robust_problem().M
    seen = []
    r = ls.solve(M, 3, method="manpg", callback=lambda p: seen.append(p.lowrank()), max_iter=12)
    assert not r.trace["shortened"].any()
    assert np.isinf(r.trace["change"][0])
    # iteration k starts from the U, S that lowrank() of iteration k-1 is of, and there V(U, S) is the same for ManPG
    assert_close(r.trace["change"][2:], [relative(b, a) for a, b in pairwise(seen)][:-1], 1e-7)


@pytest.mark.parametrize(
    ("name", "t_S", "lam", "tol"),
    [
        ("amanpg", 1.0, 0.01, 1e-9),
        ("manpg", 1.0, 0.01, 1e-9),
        ("amanpgc", 1.0, 1e-5, 1e-6),
        ("manpgc", 1.0, 1e-5, 1e-6),
        ("amanpg", 0.5, 0.01, 1e-6),
    ],
)
def test_stationarity_is_what_its_definition_says_and_small_at_the_end(name, t_S, lam, tol):
    M = robust_problem(40, 35, rank=2, density=0.7).M
    r = ls.solve(M, 2, method=method(name, t_S=t_S, lam=lam), tol=tol, max_iter=3000)
    assert r.converged
    gamma = r.trace["gamma"][-1]
    C, S = on_grid(M, np.ones(M.nnz)), r.S.toarray()
    Y = on_grid(M, M.values) - S
    V = dense_V(r.L.U, Y, C, lam**2)
    assert_close(r.L.V, V, 1e-9)
    in_U = np.linalg.norm(dense_gradient(r.L.U, V, Y, C, lam**2))
    in_S = np.linalg.norm(S - soft(C * (S - (r.L.U @ V - Y)), gamma))
    assert pytest.approx(in_U, rel=1e-5) == r.stationarity.U
    assert pytest.approx(in_S, rel=1e-5, abs=1e-14) == r.stationarity.S
    assert in_U < 1e-3 * r.trace["grad_U"][0]
    assert in_S <= 2e-2 * gamma * np.sqrt(M.nnz)
    assert r.objective == pytest.approx(dense_f(r.L.U, V, Y, C, lam**2) + gamma * np.abs(S).sum(), rel=1e-9)


def test_what_is_reported_at_convergence_belongs_to_the_gamma_that_was_solved():
    # `tol` is met before gamma_min is
    r = ls.solve(robust_problem().M, 3, method=AManPGC(gamma_min=1e-9), tol=1e-4)
    assert r.converged
    assert r.objective == pytest.approx(r.trace["objective"][-1], rel=1e-2)
    assert 2 * r.trace["dS"][-1] >= r.stationarity.S


# ---------------------------------------------------------------------- conditioning


@pytest.mark.parametrize("damping", [None, 0.01, 0.0])
def test_the_preconditioner_makes_the_condition_number_harmless(damping):
    rng = np.random.default_rng(66)
    left, right = (np.linalg.qr(rng.standard_normal((300, 5)))[0] for _ in range(2))
    L = ls.LowRank(left * np.geomspace(1, 0.1, 5) * 300 * np.sqrt(5), right.T)
    M = robust_problem(300, 300, rank=5, density=0.3).M
    S = np.where(rng.random(M.nnz) < 0.1, rng.standard_normal(M.nnz), 0.0)
    M = M.with_values(L.at(M.rows, M.columns_of_entries()) + S)
    chosen = {} if damping is None else {"damping": damping}
    assert relative(ls.solve(M, 5, method=AManPGC(precondition=True, **chosen), max_iter=250).L, L) < 1e-6
    assert relative(ls.solve(M, 5, method=AManPGC(), max_iter=250).L, L) > 1e-3
