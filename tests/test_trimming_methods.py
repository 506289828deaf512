"""Methods with a given number or share of outliers: RPCA-GD, ScaledGD, Unified and RGNMR, and the trimming they share.

No constant of a method was chosen on these seeds.
"""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lowsparse as ls
from conftest import as_problem, assert_close, on_entries, on_grid, relative, robust_problem
from lowsparse import Status
from lowsparse.robust.joint import balanced_factors
from lowsparse.solvers.rgnmr import RGNMR
from lowsparse.solvers.rpca_gd import RPCAGD
from lowsparse.solvers.scaledgd import ScaledGD
from lowsparse.solvers.trimming import allowed, incoherent, largest_in_lines, largest_of_all, largest_share
from lowsparse.solvers.unified import Unified

TRIMMED = [RPCAGD, ScaledGD, Unified]
by_class = pytest.mark.parametrize("method", TRIMMED, ids=lambda method: method.name)


def standard(kind, seed, density=0.3, size=300, rank=5):
    """Problem A, or B with outliers up to 10 either way: (M, L, is outlier)."""
    problem = robust_problem(size, size, rank=rank, density=density, outliers=0.1 if kind == "A" else 0.0, seed=seed)
    if kind == "A":
        return problem.M, problem.L, problem.S != 0
    rng = np.random.default_rng([seed, 2])
    wrong = rng.random(problem.M.nnz) < 0.1
    values = problem.M.values + np.where(wrong, rng.uniform(-10, 10, wrong.size), 0.0)
    return problem.M.with_values(values), problem.L, wrong


def flat(seed, condition, n=240, rank=3, outliers=0.05, size=3.0):
    """Every entry of a matrix whose factors are as incoherent as can be, of root mean square about 1."""
    rng = np.random.default_rng([81, seed])
    P, Q = (np.linalg.svd(rng.choice([-1.0, 1.0], (n, rank)), full_matrices=False)[0] for _ in range(2))
    s = n * np.linspace(1, 1 / condition, rank)
    X = (P * s) @ Q.T
    wrong = rng.random((n, n)) < outliers
    X[wrong] += size * rng.standard_normal(wrong.sum())
    M = ls.ObservedMatrix.from_dense(X)
    return M, ls.LowRank(P * s, Q.T), on_entries(M, wrong)


def share(M, wrong):
    return largest_share(M, wrong) + 0.01


# ---------------------------------------------------------------------- trimming


def dense_outliers(Z, seen, alpha):
    """T_α by its definition, entry by entry: at most ⌊αd⌋ of a line are as large as it, itself among them."""
    keep = np.zeros(Z.shape, bool)
    for i, j in zip(*np.nonzero(seen), strict=True):
        row, column = np.abs(Z[i, seen[i]]), np.abs(Z[seen[:, j], j])
        keep[i, j] = all(np.sum(line >= abs(Z[i, j])) <= np.floor(alpha * line.size + 1e-9) for line in (row, column))
    return keep


@settings(max_examples=120, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    density=st.sampled_from([0.2, 0.6, 1.0]),
    levels=st.sampled_from([1, 3, 1000]),  # few: ties
    alpha=st.sampled_from([0.0, 0.1, 0.2, 1 / 3, 0.5, 2 / 3, 0.99]),
    seed=st.integers(0, 10**6),
)
def test_trimming_is_what_it_is_by_definition(shape, density, levels, alpha, seed):
    rng = np.random.default_rng(seed)
    seen = rng.random(shape) < density
    seen.flat[rng.integers(seen.size)] = True
    Z = rng.integers(-levels, levels + 1, shape) / levels
    M = ls.ObservedMatrix.from_dense(Z, mask=seen)
    found = largest_in_lines(as_problem(M, 1), M.values, alpha)
    np.testing.assert_array_equal(on_grid(M, found), dense_outliers(Z, seen, alpha))


def test_trimming_on_every_backend(backend):
    M = robust_problem(70, 50, density=0.4, seed=401).M
    y = np.random.default_rng(402).standard_normal(M.nnz)
    seen = on_grid(M, np.ones(M.nnz)) > 0
    for alpha in (0.1, 0.3):
        found = largest_in_lines(as_problem(M, 1, backend=backend), y, alpha)
        np.testing.assert_array_equal(on_grid(M, found), dense_outliers(on_grid(M, y), seen, alpha))
        assert largest_share(M, found) <= alpha


def test_a_share_that_is_a_ratio_of_counts_is_not_rounded_down():
    counts = np.arange(1, 200)
    for d in counts:
        for k in range(1, d):
            assert allowed(counts, k / d)[d - 1] == k
            assert allowed(counts, k / d - 1e-6)[d - 1] == k - 1


def test_the_largest_share_is_that_of_the_worst_line():
    M = robust_problem(40, 30, density=0.5, seed=403).M
    wrong = np.random.default_rng(404).random(M.nnz) < 0.2
    seen, bad = (on_grid(M, v) for v in (np.ones(M.nnz), wrong))
    lines = [bad.sum(axis) / seen.sum(axis) for axis in (0, 1)]
    assert largest_share(M, wrong) == max(line.max() for line in lines)
    assert largest_share(M, np.zeros(M.nnz, bool)) == 0.0
    with pytest.raises(ValueError, match="True or False for each of the"):
        largest_share(M, wrong[1:])
    with pytest.raises(ValueError, match="True or False for each of the"):
        largest_share(M, wrong.astype(float))


def test_the_largest_of_all():
    y = np.random.default_rng(405).standard_normal(50)
    for k in (0, 1, 7, 49):
        assert set(np.flatnonzero(largest_of_all(y, k))) == set(np.argsort(-np.abs(y))[:k])
    assert largest_of_all(y, 1000).sum() == 49
    assert not largest_of_all(np.ones(5), 3).any()


def test_balanced_factors():
    rng = np.random.default_rng(406)
    A, B = rng.standard_normal((20, 3)), 100 * rng.standard_normal((15, 3))
    U, V, _ = balanced_factors(A, B)
    assert_close(U @ V.T, A @ B.T, 1e-13)
    assert_close(U.T @ U, V.T @ V, 1e-12)
    assert_close(np.diag(U.T @ U), np.linalg.svd(A @ B.T)[1][:3], 1e-12)


# ---------------------------------------------------------------------- the formulas


def dense_start(X, seen, rank, alpha):
    p = seen.mean()
    P, s, Qt = np.linalg.svd(np.where(dense_outliers(X, seen, alpha), 0.0, X) / p)
    return P[:, :rank] * np.sqrt(s[:rank]), Qt[:rank].T * np.sqrt(s[:rank]), s[0]


def dense_objective(U, V, S, X, seen, weight):
    fit = np.sum((seen * (U @ V.T + S - X)) ** 2) / (2 * seen.mean())
    return fit + weight * np.sum((U.T @ U - V.T @ V) ** 2)


WEIGHTS = {"rpca_gd": 1 / 64, "scaledgd": 0.0, "unified": 1 / 8}  # as the papers write them


@by_class
def test_gradients_by_differences(method):
    """Of the objective with S held fixed, at factors that are not balanced."""
    rng = np.random.default_rng(411)
    M = robust_problem(12, 10, rank=2, density=0.7, seed=412).M
    U, V, S = rng.standard_normal((12, 2)), 2 * rng.standard_normal((10, 2)), 0.3 * rng.standard_normal(M.nnz)
    problem, solver = as_problem(M, 2, given=False), method(alpha=0.2)
    y = problem.sweep.residual(U, V) + S
    X, seen = on_grid(M, M.values), on_grid(M, np.ones(M.nnz))

    def f(U, V):
        return dense_objective(U, V, on_grid(M, S), X, seen, WEIGHTS[method.name])

    value, GU, GV = solver.gradient(problem, U, V, y)
    assert value == pytest.approx(f(U, V), rel=1e-12)
    h = 1e-5
    for _ in range(5):
        A, B = rng.standard_normal(U.shape), rng.standard_normal(V.shape)
        slope = (f(U + h * A, V + h * B) - f(U - h * A, V - h * B)) / (2 * h)
        assert np.vdot(GU, A) + np.vdot(GV, B) == pytest.approx(slope, rel=1e-7)


@by_class
def test_iterations_on_dense_arrays(method):
    """Five iterations, written out as in the papers."""
    alpha, total, rank = 0.25, 0.12, 2
    M, _, _ = standard("B", 413, density=0.8, size=30, rank=rank)
    solver = method(alpha=alpha, **({"total": total} if method is Unified else {}))
    problem = as_problem(M, rank, given=False)
    X, seen = on_grid(M, M.values), on_grid(M, np.ones(M.nnz)) > 0
    U, V, sigma = dense_start(X, seen, rank, alpha)
    state = solver.init(problem)
    assert_close(state.U @ state.V.T, U @ V.T, 0.02)  # the subspace iteration is as exact as a start has to be
    state = dataclasses.replace(state, U=U, V=V, sigma=sigma)
    p, eta = M.density, 0.5
    for _ in range(5):
        E = np.where(seen, U @ V.T - X, 0.0)
        Z = E
        if method is Unified:
            limit = np.sort(np.abs(E[seen]))[::-1][int(total * M.nnz) - 1]
            Z = np.where(np.abs(E) >= limit, E, 0.0)
        E = np.where(dense_outliers(Z, seen, alpha), 0.0, E)
        if method is ScaledGD:
            GU, GV = E @ V @ np.linalg.inv(V.T @ V) / p, E.T @ U @ np.linalg.inv(U.T @ U) / p
            t = eta
        else:
            D = 4 * WEIGHTS[method.name] * (U.T @ U - V.T @ V)
            GU, GV = E @ V / p + U @ D, E.T @ U / p - V @ D
            t = min(eta / sigma, 0.75 / max(np.linalg.norm(U, 2), np.linalg.norm(V, 2)) ** 2)
        U, V = U - t * GU, V - t * GV
        state = solver.advance(problem, state)
        assert_close(state.U, U, 1e-10)
        assert_close(state.V, V, 1e-10)


def test_scaled_steps_do_not_depend_on_the_factors():
    M, _, wrong = standard("A", 414, density=0.6, size=60, rank=3)
    problem, T = as_problem(M, 3, given=False), np.array([[2.0, 0.3, 0.0], [0.0, 0.1, 1.0], [0.0, 0.0, 5.0]])
    for method, invariant in ((ScaledGD, True), (RPCAGD, False)):
        solver = method(alpha=share(M, wrong))
        state = solver.init(problem)
        other = dataclasses.replace(state, U=state.U @ T, V=state.V @ np.linalg.inv(T).T)
        one, two = (after.U @ after.V.T for after in (solver.advance(problem, s) for s in (state, other)))
        assert bool(np.abs(one - two).max() < 1e-10 * np.abs(one).max()) is invariant


def test_the_condition_of_L_does_not_slow_scaled_descent_down():
    taken = {}
    for method, condition in itertools.product((ScaledGD, RPCAGD), (1, 20)):
        M, L, wrong = flat(415, condition)
        r = ls.solve(M, 3, method=method(alpha=share(M, wrong)), max_iter=1000)
        assert r.converged
        assert relative(r.L, L) < 1e-6
        taken[method.name, condition] = r.n_iter
    assert taken["scaledgd", 20] <= 1.2 * taken["scaledgd", 1]
    assert taken["rpca_gd", 20] >= 5 * taken["rpca_gd", 1]


@pytest.mark.parametrize("method", [RPCAGD, Unified], ids=lambda method: method.name)
def test_rows_are_shortened_if_asked(method):
    A = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [0.0, 2.0]])
    found = incoherent(A, 0.5, 1.0)  # the bound is √(4 · 0.5 · 2 / 4) = 1
    assert_close(found, [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0], [0.0, 1.0]], 1e-15)
    M, L, wrong = standard("A", 416, density=0.6, size=100, rank=2)
    alpha = share(M, wrong)
    problem, solver = as_problem(M, 2, given=False), method(alpha=alpha, mu=0.25)
    state = solver.init(problem)
    after = solver.advance(problem, state)
    bound = np.sqrt(4 * 0.25 * 2 / 100) * np.linalg.norm(state.U, 2)
    free = method(alpha=alpha).advance(problem, state)
    for F, unbound in ((after.U, free.U), (after.V, free.V)):
        lengths = np.linalg.norm(F, axis=1)
        assert lengths.max() <= bound * (1 + 1e-12)
        assert np.linalg.norm(unbound, axis=1).max() > bound
        assert_close(F[lengths < 0.999 * bound], unbound[lengths < 0.999 * bound], 1e-12)
    assert relative(ls.solve(M, 2, method=method(alpha=alpha, mu=5.0)).L, L) < 1e-6


# ---------------------------------------------------------------------- recovery


@pytest.mark.parametrize("kind", ["A", "B"])
@pytest.mark.parametrize("seed", [421, 422])
@by_class
def test_recovery(method, kind, seed):
    M, L, wrong = standard(kind, seed)
    r = ls.solve(M, 5, method=method(alpha=share(M, wrong)))
    assert r.converged, r.message
    assert relative(r.L, L) < 1e-6
    assert np.mean(r.is_outlier == wrong) > 0.999


@pytest.mark.parametrize("method", [RPCAGD, Unified], ids=lambda method: method.name)
def test_a_share_that_is_larger_than_needed(method):
    """The more is trimmed at the start, the shorter the step has to be against the singular values found there."""
    M, L, _ = standard("A", 428)
    r = ls.solve(M, 5, method=method(alpha=0.35))
    assert r.converged, r.message
    assert relative(r.L, L) < 1e-6


@pytest.mark.parametrize("seed", [423, 424])
def test_recovery_with_every_entry_observed(seed):
    M, L, wrong = standard("A", seed, density=1.0)
    r = ls.solve(M, 5, method=ScaledGD(alpha=share(M, wrong)), tol=1e-12)
    assert r.converged
    assert relative(r.L, L) < 1e-10


def test_the_share_can_be_had_from_the_default_method():
    M, L, _ = standard("B", 425, size=200, rank=3)
    found = ls.solve(M, 3)
    alpha = ls.solvers.trimming.largest_share(found.M, found.is_outlier) + 0.01
    assert relative(ls.solve(M, 3, method=RPCAGD(alpha=alpha)).L, L) < 1e-6
    assert relative(ls.solve(M, 3, method=RGNMR(outliers=int(1.05 * found.is_outlier.sum()))).L, L) < 1e-8


@pytest.mark.parametrize("method", [*TRIMMED, RGNMR], ids=lambda method: method.name)
def test_wild_outliers(method):
    problem = robust_problem(200, 220, density=0.4, outliers=0.1, outlier_size=1e4, seed=426)
    wrong = problem.S != 0
    needed = {"outliers": int(wrong.sum())} if method is RGNMR else {"alpha": share(problem.M, wrong)}
    assert relative(ls.solve(problem.M, 3, method=method(**needed)).L, problem.L) < 1e-6


@pytest.mark.parametrize("method", [*TRIMMED, RGNMR], ids=lambda method: method.name)
def test_equal_entries_are_not_all_outliers(method):
    needed = {"outliers": 0.2} if method is RGNMR else {"alpha": 0.2}
    r = ls.solve(np.full((20, 15), 7.0), 1, method=method(**needed))
    np.testing.assert_allclose(r.L.to_dense(), 7.0, rtol=1e-6)
    assert not r.S.nnz


@pytest.mark.parametrize("c", [255.0, 1 / 255])
@pytest.mark.parametrize("method", [*TRIMMED, RGNMR], ids=lambda method: method.name)
def test_units_do_not_matter(method, c):
    M, _, wrong = standard("B", 427, density=0.5, size=80, rank=2)
    needed = {"outliers": 0.12} if method is RGNMR else {"alpha": share(M, wrong)}
    r, scaled = (ls.solve(A, 2, method=method(**needed), max_iter=40) for A in (M, M.with_values(c * M.values)))
    assert scaled.n_iter == r.n_iter
    assert ls.LowRank(scaled.L.U, scaled.L.V / c).error(r.L, relative=True) < 1e-8
    assert scaled.objective == pytest.approx(c**2 * r.objective, rel=1e-4, abs=1e-15 * c**2 * np.sum(M.values**2))


# ---------------------------------------------------------------------- honesty


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["A", "B"])
@by_class
def test_a_share_that_is_too_small_is_noticed(method, kind):
    M, L, wrong = standard(kind, 431)
    for alpha in (0.1, largest_share(M, wrong) - 0.015):
        r = ls.solve(M, 5, method=method(alpha=alpha))
        assert relative(r.L, L) > 1e-5
        assert r.status is Status.STALLED
        assert "too small for their rows or columns" in r.message
        assert "largest_share" in r.message


@pytest.mark.parametrize("tol", [1e-3, 1e-5, 1e-7])
@by_class
def test_a_loose_tolerance_is_no_reason_to_doubt(method, tol):
    M, L, wrong = standard("A", 432)
    r = ls.solve(M, 5, method=method(alpha=share(M, wrong)), tol=tol)
    assert r.converged, r.message
    assert relative(r.L, L) < 30 * tol


@pytest.mark.parametrize("method", [*TRIMMED, RGNMR], ids=lambda method: method.name)
def test_noise_is_no_reason_to_doubt(method):
    problem = robust_problem(250, 250, rank=4, density=0.4, outliers=0.1, outlier_size=10.0, noise=0.02, seed=433)
    wrong = np.abs(problem.S) > 0.08
    needed = {"outliers": 0.12} if method is RGNMR else {"alpha": share(problem.M, wrong)}
    r = ls.solve(problem.M, 4, method=method(**needed))
    assert r.converged, r.message
    assert r.L.error(problem.L) < 1.5 * ls.solve(problem.M, 4).L.error(problem.L)
    assert r.noise == pytest.approx(0.02, rel=0.1)


@by_class
def test_what_is_missing_is_said_before_the_first_iteration(method):
    M = robust_problem(seed=434).M
    with pytest.raises(ValueError, match=r"needs alpha.*largest share") as said:
        ls.solve(M, 3, method=method.name)
    assert "not the average" in str(said.value)
    assert "ls.solve(M, rank)" in str(said.value)
    for alpha in (-0.1, 1.0, float("nan"), "many", True):
        with pytest.raises(ValueError, match="alpha must be"):
            ls.solve(M, 3, method=method(alpha=alpha))
    for step in (0.0, -1.0, None):
        with pytest.raises(ValueError, match="step must be"):
            ls.solve(M, 3, method=method(alpha=0.2, step=step))


def test_other_parameters_are_checked():
    M = robust_problem(seed=434).M
    for gamma in (0.5, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="gamma must be 1 or more"):
            ls.solve(M, 3, method=ScaledGD(alpha=0.1, gamma=gamma))
    with pytest.raises(ValueError, match="alpha times gamma must be less than 1"):
        ls.solve(M, 3, method=ScaledGD(alpha=0.6, gamma=2))
    with pytest.raises(ValueError, match="total must be"):
        ls.solve(M, 3, method=Unified(alpha=0.1, total=1.5))
    with pytest.raises(ValueError, match="mu must be"):
        ls.solve(M, 3, method=RPCAGD(alpha=0.1, mu=-1.0))


def test_a_step_that_is_far_too_long_diverges_and_says_so():
    r = ls.solve(robust_problem(seed=435).M, 3, method=ScaledGD(alpha=0.2, step=1e80))
    assert r.status is Status.DIVERGED
    assert "smaller step" in r.message
    assert np.isfinite(r.L.to_dense()).all()


# ---------------------------------------------------------------------- RGNMR


def test_a_round_solves_the_linearised_problem():
    """The smallest least-squares solution on the entries kept, and the largest residuals of the linear model."""
    M, _, wrong = standard("A", 441, density=0.6, size=30, rank=2)
    problem, k = as_problem(M, 2, given=False), int(wrong.sum())
    solver = RGNMR(outliers=k, alpha=1.0)
    state = dataclasses.replace(solver.init(problem), inner_tol=1e-14)
    after = solver.advance(problem, state)
    m, n, r = 30, 30, 2
    i, j = M.rows, M.columns_of_entries()
    A = np.zeros((M.nnz, (m + n) * r))
    for c in range(r):
        A[np.arange(M.nnz), i * r + c] = state.V[j, c]
        A[np.arange(M.nnz), m * r + j * r + c] = state.U[i, c]
    b = M.values + np.einsum("kr,kr->k", state.U[i], state.V[j])
    kept = ~state.dropped
    assert kept.sum() == M.nnz - k
    z = np.linalg.lstsq(A[kept], b[kept], rcond=1e-10)[0]
    U, V = z[: m * r].reshape(m, r), z[m * r :].reshape(n, r)
    assert_close(after.U @ after.V.T, U @ V.T, 1e-9)
    assert_close(after.U.T @ after.U, after.V.T @ after.V, 1e-12)
    assert set(np.flatnonzero(after.dropped)) == set(np.argsort(-np.abs(A @ z - b))[:k])
    assert after.objective == pytest.approx(0.5 * np.sum(np.sort(np.abs(A @ z - b))[:-k] ** 2), rel=1e-8)


@pytest.mark.parametrize("kind", ["A", "B"])
@pytest.mark.parametrize("seed", [442, 443])
def test_recovery_by_gauss_newton(kind, seed):
    M, L, wrong = standard(kind, seed)
    r = ls.solve(M, 5, method=RGNMR(outliers=int(wrong.sum())), tol=1e-12)
    assert r.converged, r.message
    assert r.n_iter <= 20
    assert relative(r.L, L) < 1e-11
    np.testing.assert_array_equal(
        r.is_outlier, np.abs(M.values - on_entries(M, L.to_dense())) > 1e-5 * np.median(np.abs(M.values))
    )


def test_more_may_be_left_out_than_there_are_outliers():
    M, L, wrong = standard("B", 444, size=200, rank=4)
    for factor in (1.1, 1.5, 2.0):
        r = ls.solve(M, 4, method=RGNMR(outliers=int(factor * wrong.sum())))
        assert r.converged, r.message
        assert relative(r.L, L) < 1e-7
    free = ls.solve(M, 4, method=RGNMR(outliers=int(1.5 * wrong.sum()), alpha=1.0), max_iter=30)
    assert relative(free.L, L) > 0.01  # whole lines are left out, for good


def test_gauss_newton_on_an_ill_conditioned_matrix():
    M, L, wrong = flat(445, 50, n=100)
    r = ls.solve(M, 3, method=RGNMR(outliers=int(wrong.sum())))
    assert r.converged, r.message
    assert relative(r.L, L) < 1e-7


def test_too_few_left_out_is_noticed():
    M, L, wrong = standard("A", 447)
    r = ls.solve(M, 5, method=RGNMR(outliers=int(0.9 * wrong.sum())))
    assert relative(r.L, L) > 1e-5
    assert r.status is Status.STALLED
    assert "raise `outliers`" in r.message


def test_a_number_and_a_share_are_the_same():
    M, _, wrong = standard("A", 448, density=0.5, size=60, rank=2)
    k = int(wrong.sum())
    number, part = (ls.solve(M, 2, method=RGNMR(outliers=o)) for o in (k, k / M.nnz))
    assert number.L.U.tobytes() == part.L.U.tobytes()


def test_the_number_of_outliers_is_asked_for():
    M = robust_problem(seed=434).M
    with pytest.raises(ValueError, match=r"needs outliers.*is_outlier"):
        ls.solve(M, 3, method="rgnmr")
    for outliers in (-1, 2.5, M.nnz, float("nan"), "some", True):
        with pytest.raises(ValueError, match="outliers must be"):
            ls.solve(M, 3, method=RGNMR(outliers=outliers))
    for alpha in (0.0, 1.5, None):
        with pytest.raises(ValueError, match="alpha must be"):
            ls.solve(M, 3, method=RGNMR(outliers=10, alpha=alpha))
    for limit in (0, None, 2.5):
        with pytest.raises(ValueError, match="max_inner must be"):
            ls.solve(M, 3, method=RGNMR(outliers=10, max_inner=limit))
