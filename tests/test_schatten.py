"""Schatten: its optimum where that is known, what it predicts, and what it must not do to data that are nearly exact.

No constant of the method was chosen on these shapes and seeds.
"""

from pathlib import Path

import numpy as np
import pytest

import lowsparse as ls
from conftest import assert_close, on_entries, on_grid, relative, robust_problem
from lowsparse.losses import Kind, Loss
from lowsparse.scale import robust_scale
from lowsparse.solvers.base import Problem
from lowsparse.solvers.schatten import Bench, Schatten, SchattenState
from lowsparse.sweeps import open_sweep

REAL = Path(__file__).resolve().parents[2] / "shared" / "data"


def decaying(m=150, n=120, noise=1.0, density=0.5, outliers=0.0, seed=0, size=30.0):
    """Singular values that fall off slowly, entries of root mean square 2, noise, and outliers. (M, L, is outlier)."""
    rng = np.random.default_rng([2027, seed])
    U, V = (np.linalg.qr(rng.standard_normal((k, 20)))[0] for k in (m, n))
    s = 0.75 ** np.arange(20)
    L = ls.LowRank(U * (2 * s * np.sqrt(m * n / np.sum(s**2))), V.T)
    i, j = np.nonzero(rng.random((m, n)) < density)
    x = L.at(i, j) + noise * rng.standard_normal(i.size)
    wrong = rng.random(i.size) < outliers
    x[wrong] += size * rng.uniform(-1, 1, wrong.sum())
    return ls.ObservedMatrix.from_coo(i, j, x, (m, n)), L, wrong[np.lexsort((i, j))]


def rms(found, truth):
    m, n = truth.shape
    return found.error(truth) / np.sqrt(m * n)


# ---------------------------------------------------------------------- the problem it solves, all weights one


def settled(M, solver, threshold, passes=600, c=1e9):
    """U, sizes, V and λ after many passes over all entries with a given threshold."""
    sweep = open_sweep(M)
    problem = Problem(M, min(M.shape), sweep, lambda: np.eye(2), False, 1e-8, 1.0, 1.0, 1.0, np.inf, 5)
    bench = Bench(problem, tested=False)
    left, sizes, right = np.linalg.svd(M.to_dense(fill=0.0) / M.density, full_matrices=False)
    state = SchattenState(
        bench=bench, data="whole", U=left, sizes=sizes, V=right.T, unit=float(sizes[0]), threshold=threshold, c=c
    )
    values = []
    for _ in range(passes):
        solver._pass(state)
        values.append(solver._value(state, solver._residual(state)))
    return state, solver._lam(state), np.array(values)


@pytest.mark.parametrize("p", [1.0, 2 / 3, 0.3])
def test_of_a_full_matrix_every_singular_value_is_shrunk_by_itself(p):
    rng = np.random.default_rng(61)
    U, V = (np.linalg.qr(rng.standard_normal((k, 6)))[0] for k in (20, 15))
    d = np.array([10.0, 7.0, 4.0, 2.5, 1.0, 0.5])
    X = (U * d) @ V.T
    state, lam, _ = settled(ls.ObservedMatrix.from_dense(X), Schatten(p=p), threshold=0.3)
    kept = d >= 3.0  # 0.3 of the largest
    sizes = np.zeros(6)
    for k in np.flatnonzero(kept):  # the largest root of σ + λ σ^(p-1) = d
        sigma = d[k]
        for _ in range(500):
            sigma = d[k] - lam * sigma ** (p - 1)
        sizes[k] = sigma
    assert (sizes[kept] > 0).all()
    assert_close(state.sizes[:6], sizes, 1e-5)
    assert_close((state.U * state.sizes) @ state.V.T, (U * sizes) @ V.T, 1e-5)


def test_with_holes_it_is_the_nuclear_norm_that_is_least():
    """L = SVT(P_Ω(M) + what L is elsewhere, λ) characterises the minimum of ½‖P_Ω(L - M)‖² + λ‖L‖_*."""
    M = robust_problem(25, 20, rank=3, density=0.7, outliers=0.0, noise=0.3, seed=62).M
    state, lam, values = settled(M, Schatten(p=1.0), threshold=0.1)
    L = (state.U * state.sizes) @ state.V.T
    filled = np.where(on_grid(M, np.ones(M.nnz)) > 0, on_grid(M, M.values), L)
    left, d, right = np.linalg.svd(filled, full_matrices=False)
    assert 0 < np.count_nonzero(d > lam) < 20
    assert_close((left * np.maximum(d - lam, 0)) @ right, L, 1e-5)
    assert values[-1] == pytest.approx(0.5 * np.sum((on_entries(M, L) - M.values) ** 2) + lam * state.sizes.sum())


@pytest.mark.parametrize("p", [1.0, 2 / 3])
def test_no_pass_increases_the_objective(p):
    M = robust_problem(40, 30, rank=3, density=0.6, outliers=0.0, noise=0.5, seed=63).M
    _, _, values = settled(M, Schatten(p=p), threshold=0.15, passes=40)
    assert (np.diff(values) <= 1e-9 * values[0]).all()
    assert values[-1] < 0.99 * values[0]


# ---------------------------------------------------------------------- what it is for


def test_it_predicts_better_than_a_fit_of_any_rank():
    M, L, _ = decaying(density=0.35, seed=1)
    r = ls.solve(M, None, method="schatten")
    assert r.converged
    best = min(rms(ls.solve(M, k).L, L) for k in range(2, 8))
    assert rms(r.L, L) < 0.7
    assert rms(r.L, L) < 0.97 * best  # the default shrinks too


@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_the_shrinkage_that_is_chosen_is_about_the_best(noise):
    M, L, _ = decaying(noise=noise, outliers=0.05, seed=2)
    r = ls.solve(M, None, method="schatten")
    others = [rms(ls.solve(M, None, method=Schatten(threshold=t)).L, L) for t in 0.6 * 0.7 ** np.arange(9)]
    assert rms(r.L, L) < 1.05 * min(others)
    assert max(others) > 1.5 * min(others)  # it matters


def test_outliers_do_little_harm():
    clean, spoilt = (decaying(outliers=share, seed=3) for share in (0.0, 0.1))
    without, with_them = (ls.solve(M, None, method="schatten") for M, _, _ in (clean, spoilt))
    assert rms(with_them.L, spoilt[1]) < 1.25 * rms(without.L, clean[1])
    assert np.mean(with_them.is_outlier[spoilt[2]]) > 0.75  # some are no larger than the noise
    assert np.mean(with_them.is_outlier[~spoilt[2]]) < 0.01


def test_the_noise_it_reports_is_how_far_off_unseen_entries_are():
    M, L, _ = decaying(outliers=0.05, seed=4)
    r = ls.solve(M, None, method="schatten")
    rng = np.random.default_rng(64)
    unseen = r.L.to_dense() - (L.to_dense() + rng.standard_normal(L.shape))
    unseen = unseen[on_grid(M, np.ones(M.nnz)) == 0]
    assert r.noise == r.held_out == pytest.approx(robust_scale(unseen), rel=0.1)


def test_of_noise_nothing_is_predicted():
    X = np.random.default_rng(65).standard_normal((70, 60))
    r = ls.solve(X, None, method="schatten")
    assert r.converged
    assert "nothing predicts entries kept aside better than zero does: L = 0" in r.message
    assert r.L.rank == 1
    assert not r.L.V.any()
    assert r.noise == pytest.approx(1.0, rel=0.15)


@pytest.mark.parametrize(("m", "n"), [(2500, 30), (30, 2500)])
def test_many_rows_or_columns_are_learnt_from_some(m, n):
    M, L, _ = decaying(m, n, outliers=0.05, seed=5)
    r = ls.solve(M, None, method="schatten")
    seen = []
    ls.solve(M, None, method="schatten", max_iter=4, callback=lambda p: seen.append(p.lowrank().shape))
    assert seen == [(m, n)] * 4
    best = min(rms(ls.solve(M, None, method=Schatten(threshold=t)).L, L) for t in (0.4, 0.2, 0.1))
    assert rms(r.L, L) < 1.1 * best


def test_a_rank_that_is_given_bounds_it():
    M, L, _ = decaying(seed=6)
    few, free = (ls.solve(M, k, method="schatten").L for k in (2, None))
    assert few.rank == 2
    assert rms(free, L) < rms(few, L) < 1.5 * np.sqrt(np.sum(np.linalg.svd(L.to_dense())[1][2:] ** 2) / (150 * 120))


def test_a_few_entries_are_fitted_without_a_choice():
    X = np.outer(np.arange(1.0, 9.0), np.arange(1.0, 7.0))
    r = ls.solve(X, None, method="schatten")
    assert r.converged
    assert "too few entries to choose the shrinkage by" in r.message
    assert r.held_out is None
    assert relative(r.L, X) < 0.05


# ---------------------------------------------------------------------- data that are nearly exact


@pytest.mark.parametrize("outliers", [0.0, 0.1])
def test_large_rows_are_not_taken_for_outliers(outliers):
    """Shrinkage makes their residuals the largest; what is lost there would be lost for good."""
    problem = robust_problem(120, 100, rank=3, density=0.6, outliers=outliers, seed=66)
    size = np.ones(120)
    size[:5] = 8.0
    values = problem.M.values * size[problem.M.rows]
    L = ls.LowRank(problem.L.U * size[:, None], problem.L.V)
    r = ls.solve(problem.M.with_values(values), None, method="schatten")
    assert r.L.rank == 3
    error = np.linalg.norm(r.L.to_dense() - L.to_dense(), axis=1) / np.linalg.norm(L.to_dense(), axis=1)
    assert error.max() < 0.02


@pytest.mark.parametrize("noise", [1e-3, 1e-2, 0.1])
def test_a_little_noise_is_found_to_be_little(noise):
    problem = robust_problem(150, 140, rank=3, density=0.4, outliers=0.1, noise=noise, seed=67)
    r = ls.solve(problem.M, None, method="schatten")
    plain = ls.solve(problem.M, 3)
    assert r.L.rank == 3
    assert r.L.error(problem.L) < 1.2 * plain.L.error(problem.L)
    assert noise < r.noise < 2 * noise


# ---------------------------------------------------------------------- real data, parameters


def test_car_parks_are_predicted():
    at = REAL / "birmingham_parking.npz"
    if not at.is_file():
        pytest.skip(f"{at} is not here")
    cars = np.load(at)["tensor"]
    X = cars.reshape(len(cars), -1).T.astype(float)
    known, rng = X > 0, np.random.default_rng(68)
    held = known & (rng.random(X.shape) < 0.2)
    spread = np.array([x[k].std() for x, k in zip(X.T, known.T, strict=True)])
    Z = np.where(known & ~held, X, np.nan)
    wrong = rng.random(X.shape) < 0.08
    Z = Z + wrong * rng.choice([-8.0, 8.0], X.shape) * spread
    middle = np.nanmedian(Z, axis=0)
    r = ls.solve((Z - middle) / spread, None, method="schatten")
    error = np.abs(middle + spread * r.L.to_dense() - X) / spread
    by_median = np.abs(middle - X) / spread
    assert np.mean(error[held]) < 0.25 * np.mean(by_median[held])


@pytest.mark.parametrize(
    ("parameter", "value"), [("p", 0.0), ("p", 1.5), ("threshold", 0.0), ("threshold", 1.0), ("threshold", -0.1)]
)
def test_parameters_out_of_range_are_named(parameter, value):
    with pytest.raises(ValueError, match=f"{parameter} must be"):
        ls.solve(np.eye(4), None, method=Schatten(**{parameter: value}))


def test_the_objective_is_that_of_its_docstring():
    M, _, _ = decaying(60, 50, outliers=0.05, seed=7)
    solver = Schatten(threshold=0.1)
    r = ls.solve(M, None, method=solver)
    c, lam, p = r.trace["gamma"][-1], r.trace["lam"][-1], solver.p
    e = r.L.at(M.rows, M.columns_of_entries()) - M.values
    value = np.sum(Loss(Kind.CAUCHY, c).value(e)) + lam / p * np.sum(r.L.singular_values() ** p)
    assert r.objective == pytest.approx(value)
