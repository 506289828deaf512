"""Methods made of singular values: the convex relaxations, accelerated alternating projections, and Hankel.

No constant of these methods was chosen on these shapes and seeds.
"""

import dataclasses

import numpy as np
import pytest

import lowsparse as ls
from conftest import assert_close, on_entries, on_grid, relative, robust_problem, soft
from lowsparse.result import Status
from lowsparse.solvers import convex
from lowsparse.solvers.accaltproj import AccAltProj
from lowsparse.solvers.convex import PCP, Convex, spectral_norm
from lowsparse.solvers.hankel import Hankel, Lifting
from lowsparse.solvers.trimming import incoherent


def uniform_outliers(m, n, rank, density, share, seed, size=10.0, noise=0.0):
    """Standard normal factors; a share of the entries has uniform errors up to `size` added."""
    problem = robust_problem(m, n, rank=rank, density=density, outliers=0.0, noise=noise, seed=seed)
    rng = np.random.default_rng([77, seed])
    wrong = rng.random(problem.M.nnz) < share
    return (
        problem.M.with_values(problem.M.values + np.where(wrong, rng.uniform(-size, size, wrong.size), 0.0)),
        problem.L,
        wrong,
    )


def observed(M, L):
    return L.at(M.rows, M.columns_of_entries())


def watched(solver):
    """The same solver, and a list of (problem, state before, state after) that fills while it solves."""
    seen = []

    class Watched(type(solver)):
        def advance(self, problem, state):
            before = dataclasses.replace(state)
            after = super().advance(problem, state)
            seen.append((problem, before, after))
            return after

    return Watched(**solver.get_params()), seen


# ---------------------------------------------------------------------- the convex relaxation


def price(M):
    return 1 / np.sqrt(M.density * max(M.shape))


def nuclear_objective(M, L):
    return L.singular_values().sum() + price(M) * np.abs(observed(M, L) - M.values).sum()


def dense_admm(M, mu, iterations):
    """The augmented Lagrangian method with a fixed μ on dense arrays, S first; nothing is cut short."""
    X = on_grid(M, M.values)
    known = on_grid(M, np.ones(M.nnz)) > 0
    L, Y = np.zeros(M.shape), np.zeros(M.shape)
    for _ in range(iterations):
        A = X - L + Y / mu
        S = np.where(known, soft(A, price(M) / mu), A)
        left, sigma, right = np.linalg.svd(X - S + Y / mu, full_matrices=False)
        L = (left * soft(sigma, 1 / mu)) @ right
        Y = Y + mu * (X - L - S)
    return L, Y


@pytest.mark.slow
@pytest.mark.parametrize("kind", [{"seed": 1101}, {"seed": 1102, "noise": 0.2}, {"seed": 1103, "outliers": 0.3}])
@pytest.mark.parametrize("shape", [(40, 30), (38, 47)])  # all singular vectors, and a few of them
def test_convex_finds_the_minimum_that_a_dense_iteration_finds(kind, shape):
    M = robust_problem(*shape, rank=2, density=0.7, **kind).M
    L, Y = dense_admm(M, mu=2.0, iterations=4000)
    assert np.linalg.norm(Y, 2) < 1 + 1e-9  # the reference itself is at the minimum
    r = ls.solve(M, None, method=Convex(), max_iter=4000)
    assert r.converged
    assert_close(r.L.to_dense(), L, 1e-6)
    dense = np.linalg.svd(L, compute_uv=False).sum() + price(M) * np.abs(on_entries(M, L) - M.values).sum()
    assert r.objective == pytest.approx(dense, rel=1e-7)
    assert r.objective == pytest.approx(nuclear_objective(M, r.L), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solver", "density", "share", "noise"),
    [
        (Convex(), 0.5, 0.1, 0.0),
        (Convex(), 0.35, 0.05, 0.0),
        (Convex(), 0.6, 0.1, 0.1),
        (PCP(), 1.0, 0.2, 0.0),
        (PCP(), 1.0, 0.1, 0.1),
    ],
)
def test_at_convergence_the_conditions_of_optimality_hold(solver, density, share, noise):
    M, truth, _ = uniform_outliers(130, 150, 3, density, share, seed=1111, noise=noise)
    solver, seen = watched(solver)
    r = ls.solve(M, None, method=solver, tol=1e-8)
    assert r.converged
    last = seen[-1][2]
    Y, S, L = on_grid(M, last.Y), r.S.toarray(), r.L.to_dense()
    nuclear = np.linalg.svd(L, compute_uv=False).sum()
    assert np.linalg.norm(Y, 2) <= 1 + 2e-8
    assert np.abs(Y).max() <= price(M) * (1 + 1e-12)
    np.testing.assert_array_equal(Y[S != 0], price(M) * np.sign(S[S != 0]))
    assert np.sum(Y * L) == pytest.approx(nuclear, rel=2e-8)
    misfit = on_entries(M, L + S) - M.values
    assert np.linalg.norm(misfit) <= 2e-8 * np.linalg.norm(M.values)
    # no other L has a lower objective: in particular not the truth
    assert r.objective <= nuclear_objective(M, truth) * (1 + 1e-8)
    # Y is feasible for the dual, max ⟨Y, M⟩: its value bounds the minimum from below
    assert np.sum(Y * on_grid(M, M.values)) / max(1, np.linalg.norm(Y, 2)) == pytest.approx(r.objective, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("size", [200, 300])
@pytest.mark.parametrize("method", ["pcp", "convex", "accaltproj"])
def test_with_all_entries_the_defaults_recover(method, size):
    for seed in (1121, 1122):
        problem = robust_problem(size, size, rank=5, density=1.0, outliers=0.1, seed=seed)
        uniform = uniform_outliers(size, size, 5, 1.0, 0.1, seed)
        for M, L, wrong in ((problem.M, problem.L, problem.S != 0), uniform):
            r = ls.solve(M, None if method != "accaltproj" else 5, method=method)
            assert r.converged
            assert r.L.rank == 5
            assert relative(r.L, L) < 5e-8
            assert np.mean(r.is_outlier == wrong) > 0.9999


@pytest.mark.parametrize(("density", "seed"), [(0.5, 1131), (0.3, 1132), (0.3, 1133)])
def test_with_holes_convex_finds_the_rank_and_the_truth(density, seed):
    problem = robust_problem(320, 280, rank=4, density=density, outliers=0.1, seed=seed)
    uniform = uniform_outliers(320, 280, 4, density, 0.1, seed)
    for M, L in ((problem.M, problem.L), uniform[:2]):
        r = ls.solve(M, None, method="convex")
        assert r.converged
        assert r.L.rank == 4
        assert relative(r.L, L) < 1e-7
        np.testing.assert_allclose(r.L.U.T @ r.L.U, np.eye(4), atol=1e-12)


def test_the_usual_haste_is_not_called_convergence():
    """ρ = 1.5 in every step: feasible within 60 steps, far from the minimum, and it says so."""
    M, _, _ = uniform_outliers(150, 150, 5, 0.3, 0.1, seed=1141)
    hasty = ls.solve(M, None, method=Convex(rho=1.5, balance=1e30), max_iter=200)
    careful = ls.solve(M, None, method=Convex(), max_iter=200)
    assert hasty.trace["primal"][-1] < 1e-8
    assert hasty.objective > 1.02 * careful.objective
    assert hasty.L.rank > 3 * careful.L.rank
    assert not hasty.converged
    assert hasty.trace["alignment"][-1] > 0.01


def test_without_holes_convex_is_pcp():
    M, _, _ = uniform_outliers(70, 90, 3, 1.0, 0.1, seed=1151)
    found, expected = (ls.solve(M, None, method=name) for name in ("convex", "pcp"))
    np.testing.assert_array_equal(found.L.to_dense(), expected.L.to_dense())
    with pytest.raises(ValueError, match="pcp needs every entry"):
        ls.solve(robust_problem().M, None, method="pcp")


@pytest.mark.slow
@pytest.mark.parametrize(("density", "share"), [(0.4, 0.1), (1.0, 0.3)])
def test_a_few_singular_vectors_do_as_well_as_all(monkeypatch, density, share):
    M, L, _ = uniform_outliers(200, 180, 5, density, share, seed=1161)
    some = ls.solve(M, None, method=Convex(), max_iter=1000)
    monkeypatch.setattr(convex, "SHARE", 0.0)
    every = ls.solve(M, None, method=Convex(), max_iter=1000)
    assert some.converged
    assert every.converged
    assert relative(some.L, every.L) < 1e-7
    assert relative(some.L, L) < 1e-7


@pytest.mark.parametrize("seed", [1166, 1167])
def test_a_singular_vector_that_was_missed_is_noticed(seed):
    """Many singular values of Y are close to 1 here, and one vector to spare is too few to follow them."""
    M, _, _ = uniform_outliers(200, 180, 5, 1.0, 0.3, seed=seed)
    solver, seen = watched(PCP(spare=1))
    r = ls.solve(M, None, method=solver)
    assert r.converged
    assert r.L.rank == 5
    assert seen[-1][2].spare > 1
    assert np.linalg.norm(on_grid(M, seen[-1][2].Y), 2) <= 1 + 2e-8


def test_no_matrix_of_the_size_of_the_whole_is_decomposed(monkeypatch):
    shapes, svd = [], np.linalg.svd

    def spied(A, **options):
        shapes.append(A.shape)
        return svd(A, **options)

    monkeypatch.setattr(np.linalg, "svd", spied)
    r = ls.solve(robust_problem(260, 240, rank=3, density=0.4, seed=1171).M, None, method="convex")
    assert r.converged
    assert max(min(shape) for shape in shapes) < 40


def test_the_norm_by_lanczos():
    M = robust_problem(90, 70, density=0.3, seed=1181).M
    solver, seen = watched(Convex())
    ls.solve(M, None, method=solver, max_iter=1)
    problem = seen[0][0]
    A = on_grid(M, M.values)
    assert spectral_norm(problem, M.values, precision=1e-7) == pytest.approx(np.linalg.norm(A, 2), rel=1e-10)
    assert spectral_norm(problem, np.zeros(M.nnz), precision=1e-7) == 0
    bound = 0.5 * np.linalg.norm(A, 2)
    assert bound < spectral_norm(problem, M.values, precision=1e-7, enough=bound) <= np.linalg.norm(A, 2) * (1 + 1e-12)


def test_a_given_rank_bounds_the_rank():
    M, L, _ = uniform_outliers(200, 180, 5, 1.0, 0.1, seed=1191, noise=0.05)
    assert ls.solve(M, None, method="pcp").L.rank > 30  # noise has no low rank
    r = ls.solve(M, 5, method="pcp")
    assert r.L.rank == 5
    assert relative(r.L, L) < 0.02
    # where the minimum has that rank, the bound changes nothing
    M, L, _ = uniform_outliers(120, 140, 3, 0.6, 0.1, seed=1192)
    assert relative(ls.solve(M, 3, method="convex").L, L) < 1e-7


def test_a_rank_that_is_too_small_is_said_to_be_a_bound():
    M, _, _ = uniform_outliers(120, 100, 4, 1.0, 0.05, seed=1193)
    r = ls.solve(M, 3, method=PCP(), max_iter=3000, tol=1e-6)
    assert r.L.rank == 3
    assert r.status is not Status.CONVERGED or "rank held at 3" in r.message


def test_nothing_is_worth_a_rank_if_outliers_cost_little():
    r = ls.solve(robust_problem().M, None, method=Convex(gamma=1e-3))
    assert r.converged
    assert r.L.rank == 1
    assert not r.L.to_dense().any()
    assert r.S.nnz == r.M.nnz
    assert r.objective == pytest.approx(1e-3 * np.abs(r.M.values).sum())


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        (Convex(rho=1.0), "rho must be larger than 1"),
        (Convex(gamma=0.0), "gamma must be positive"),
        (Convex(balance=-1.0), "balance must be positive"),
        (Convex(mu=None), "mu must be positive"),
        (Convex(spare=0), "spare must be a whole number of 1 or more"),
        (AccAltProj(gamma=1.0), r"gamma must be in \(0, 1\)"),
        (AccAltProj(beta=0.0), "beta must be positive"),
        (AccAltProj(floor=-1.0), "floor must be 0 or more"),
        (Hankel(gamma=1.0), r"gamma must be in \(0, 1\)"),
        (Hankel(c=0.0), "c must be positive"),
        (Hankel(iterations=0), "iterations must be a whole number of 1 or more"),
        (Hankel(n1=60), "n1 must be at most 50"),
    ],
)
def test_parameters_that_make_no_sense_are_named(solver, message):
    with pytest.raises(ValueError, match=message):
        ls.solve(robust_problem(density=1.0).M, 3, method=solver)


# ---------------------------------------------------------------------- accelerated alternating projections


def best_of_rank(A, r):
    left, sigma, right = np.linalg.svd(A, full_matrices=False)
    return left[:, :r], sigma, right[:r].T


def test_accaltproj_is_the_formulas_on_dense_arrays():
    r, gamma = 4, 0.7
    M, _, _ = uniform_outliers(50, 70, r, 1.0, 0.1, seed=1201)
    D = on_grid(M, M.values)
    beta = 1 / (2 * (50 * 70) ** 0.25)
    solver, seen = watched(AccAltProj(floor=0.0))
    ls.solve(M, r, method=solver, max_iter=8, tol=0)

    S = np.where(np.abs(D) > 4 * beta * np.linalg.norm(D, 2), D, 0)
    U, sigma, V = best_of_rank(D - S, r)
    assert_close(seen[0][1].U @ seen[0][1].V.T, (U * sigma[:r]) @ V.T, 1e-4)  # L⁰, by a power iteration

    for t, (_, before, after) in enumerate(seen, 1):
        L, S = before.U @ before.V.T, on_grid(M, before.S)
        U, _, V = best_of_rank(L, r)
        Z = D - S
        tangent = U @ (U.T @ Z) + Z @ V @ V.T - U @ (U.T @ Z @ V) @ V.T
        U, sigma, V = best_of_rank(tangent, r)
        L = (U * sigma[:r]) @ V.T
        zeta = beta * (sigma[r] + gamma**t * sigma[0])
        assert_close(after.U @ after.V.T, L, 1e-12)
        assert_close(on_grid(M, after.S), np.where(np.abs(D - L) > zeta, D - L, 0), 1e-11)
        assert after.row["zeta"] == pytest.approx(zeta, rel=1e-10)
        assert after.row["residual"] >= 0
    assert np.count_nonzero(seen[-1][2].S)


@pytest.mark.parametrize(
    ("m", "n", "rank", "share"), [(210, 190, 5, 0.3), (150, 170, 15, 0.1), (400, 60, 3, 0.1), (60, 400, 3, 0.1)]
)
def test_accaltproj_recovers(m, n, rank, share):
    for seed in (1211, 1212):
        M, L, wrong = uniform_outliers(m, n, rank, 1.0, share, seed)
        r = ls.solve(M, rank, method="accaltproj")
        assert r.converged
        assert relative(r.L, L) < 1e-7
        assert np.mean(r.is_outlier == wrong) > 0.9995
        assert relative(ls.solve(M.T, rank, method="accaltproj").L, L.T) < 1e-7


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_accaltproj_leaves_the_noise_out_of_s(noise):
    M, L, wrong = uniform_outliers(200, 150, 3, 1.0, 0.1, seed=1221, noise=noise)
    r = ls.solve(M, 3, method="accaltproj")
    assert r.converged
    best = least_squares_of_rank(L, noise, M.shape, 3)
    assert r.L.error(L) < 1.3 * best
    assert np.mean(r.is_outlier & ~wrong) < 1e-3


def least_squares_of_rank(L, noise, shape, r):
    """The expected error of the best fit of rank r to L with that noise, to first order."""
    m, n = shape
    return noise * np.sqrt(r * (m + n - r))


def test_trimming_bounds_the_rows_by_the_root():
    U = np.linalg.qr(np.random.default_rng(1231).standard_normal((40, 3)))[0]
    U[0] *= 4
    lengths = np.linalg.norm(U, axis=1)
    bound = np.sqrt(1.2 * 3 / 40)
    assert_close(np.linalg.norm(incoherent(U, 1.2 / 4, 1.0), axis=1), np.minimum(lengths, bound), 1e-12)
    M, L, _ = uniform_outliers(90, 80, 3, 1.0, 0.1, seed=1232)
    assert relative(ls.solve(M, 3, method=AccAltProj(mu=5.0)).L, L) < 1e-7


def test_accaltproj_does_not_believe_an_s_that_has_most_entries():
    X = np.random.default_rng(1241).standard_normal((60, 50))  # no low rank at all
    r = ls.solve(X, 2, method=AccAltProj(floor=0.0))
    assert r.status is Status.STALLED
    assert "raise gamma" in r.message


# ---------------------------------------------------------------------- Hankel


def signals(channels, n, frequencies, seed):
    """Damped sinusoids with the same frequencies and dampings in all channels, and the generator."""
    rng = np.random.default_rng([12, seed])
    t = np.arange(n)
    X = np.zeros((channels, n))
    for f in frequencies:
        amplitude, phase = rng.uniform(0.5, 1.5, (channels, 1)), rng.uniform(0, 2 * np.pi, (channels, 1))
        X += amplitude * np.cos(2 * np.pi * f * t + phase) * np.exp(-rng.uniform(0.001, 0.006) * t)
    return X, rng


def lifted(X, n1):
    n = X.shape[1]
    return np.vstack([x[np.add.outer(np.arange(n1), np.arange(n + 1 - n1))] for x in X])


def averaged(H, channels):
    """The means over the anti-diagonals, one by one."""
    blocks = H.reshape(channels, -1, H.shape[1])
    n = blocks.shape[1] + blocks.shape[2] - 1
    return np.array([[np.diagonal(block[::-1], t + 1 - len(block)).mean() for t in range(n)] for block in blocks])


@pytest.mark.parametrize(("channels", "n", "n1"), [(3, 40, 15), (1, 25, 13), (4, 17, 1), (2, 17, 17), (2, 1, 1)])
def test_lifting_is_the_hankel_matrix(channels, n, n1):
    rng = np.random.default_rng([1301, n])
    X, lifting = rng.standard_normal((channels, n)), Lifting(channels, n, n1)
    H = lifted(X, n1)
    assert H.shape == lifting.shape
    B, Q = rng.standard_normal((lifting.n2, 3)), rng.standard_normal((channels * n1, 3))
    assert_close(lifting.times(X, B), H @ B, 1e-13)
    assert_close(lifting.transposed_times(X, Q), H.T @ Q, 1e-13)
    assert_close(lifting.averaged(Q, B), averaged(Q @ B.T, channels), 1e-13)
    # H† H = I
    assert_close(lifting.averaged(H, np.eye(lifting.n2)), X, 1e-13)


def test_a_sinusoid_has_rank_two():
    for frequencies in ([0.1], [0.07, 0.22], [0.07, 0.22, 0.35]):
        X, _ = signals(3, 90, frequencies, seed=1311)
        sigma = np.linalg.svd(lifted(X, 45), compute_uv=False)
        assert np.count_nonzero(sigma > 1e-9 * sigma[0]) == 2 * len(frequencies)


@pytest.mark.slow
@pytest.mark.parametrize("channels", [5, 1])
@pytest.mark.parametrize("density", [1.0, 0.6])
@pytest.mark.parametrize("seed", [1321, 1322, 1323])
def test_hankel_repairs_columns_that_are_wrong_altogether(channels, density, seed):
    X, rng = signals(channels, 200, [0.09, 0.21], seed)
    M = X.copy()
    columns = rng.choice(200, 16, replace=False)
    M[:, columns] += rng.uniform(-4, 4, (channels, 16))
    M[rng.random(M.shape) > density] = np.nan
    M[:, rng.choice(200, 5, replace=False)] = np.nan  # and some are not there at all
    r = ls.solve(M, 4, method="hankel")
    assert r.converged
    assert np.linalg.norm(r.L.to_dense() - X) < 1e-10 * np.linalg.norm(X)
    wrong = np.zeros(M.shape, bool)
    wrong[:, columns] = True
    np.testing.assert_array_equal(r.S.toarray() != 0, wrong & ~np.isnan(M))
    np.testing.assert_allclose(r.L.U.T @ r.L.U, np.eye(r.L.rank), atol=1e-12)


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_hankel_stops_at_the_noise(noise):
    X, rng = signals(4, 180, [0.06, 0.17], seed=1331)
    M = X + noise * rng.standard_normal(X.shape)
    columns = rng.choice(180, 15, replace=False)
    M[:, columns] += 5 * rng.choice([-1, 1], (4, 15))
    M[rng.random(M.shape) > 0.7] = np.nan
    r = ls.solve(M, 4, method="hankel")
    assert r.converged
    assert r.noise == pytest.approx(noise, rel=0.2)
    # 4 coefficients for each channel and 4 for all of them, of 720 numbers
    assert np.sqrt(np.mean((r.L.to_dense() - X) ** 2)) < 0.5 * noise
    wrong = np.zeros(M.shape, bool)
    wrong[:, columns] = True
    assert np.count_nonzero((r.S.toarray() != 0) != (wrong & ~np.isnan(M))) <= 2


def test_hankel_is_the_formulas_on_dense_arrays():
    X, rng = signals(3, 61, [0.11, 0.3], seed=1341)
    M = X.copy()
    M[:, rng.choice(61, 5, replace=False)] += 2
    M[rng.random(M.shape) > 0.8] = np.nan
    M = ls.ObservedMatrix.from_dense(M)
    solver, seen = watched(Hankel(iterations=4, n1=20, floor=0.0, gamma=0.5))
    ls.solve(M, 4, method=solver, max_iter=40, tol=0)
    c = 3 * np.sqrt(4) / np.sqrt(60 * 42)
    for step, (_, before, after) in enumerate(seen):
        k, level = min(step // 4 + 1, 4), step % 4 if step < 12 else step - 12
        assert (before.stage, before.level) == (k, level)
        W = before.X + on_grid(M, M.values - before.S - on_entries(M, before.X)) / M.density
        U, sigma, V = best_of_rank(lifted(W, 20), k)
        expected = averaged((U * sigma[:k]) @ V.T, 3)
        if step:  # the first has nothing to begin its power iteration with
            assert_close(after.X, expected, 0.02)
        assert after.row["zeta"] == pytest.approx(c * (sigma[k] + 2.0**-level * sigma[k - 1]), rel=0.05, abs=1e-12)
        e = M.values - on_entries(M, after.X)
        assert_close(after.S, np.where(np.abs(e) > after.row["zeta"], e, 0), 1e-15)
    assert np.linalg.norm(seen[-1][2].X - X) < 1e-4 * np.linalg.norm(X)


def test_the_rank_of_hankel_is_that_of_the_lifted_matrix():
    X, _ = signals(1, 60, [0.05, 0.15, 0.25], seed=1351)
    assert np.linalg.norm(ls.solve(X, 6, method="hankel").L.to_dense() - X) < 1e-9 * np.linalg.norm(X)
    with pytest.raises(ValueError, match="Hankel matrix, 20 x 41"):
        ls.solve(X, 21, method=Hankel(n1=20))
    with pytest.raises(ValueError, match="rank must be a whole number"):
        ls.solve(X, 1.5, method="hankel")


def test_hankel_says_when_outliers_are_left():
    X, rng = signals(2, 100, [0.08, 0.23], seed=1361)
    M = X.copy()
    M[:, rng.choice(100, 12, replace=False)] += 3 * rng.choice([-1, 1], (2, 12))
    r = ls.solve(M, 4, method=Hankel(c=100.0))
    assert np.linalg.norm(r.L.to_dense() - X) > 0.05 * np.linalg.norm(X)
    assert r.status is Status.STALLED
    assert "lower c" in r.message
    assert np.linalg.norm(ls.solve(M, 4, method="hankel").L.to_dense() - X) < 1e-10 * np.linalg.norm(X)
