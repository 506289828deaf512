"""The path of shrinkage: its optimum where that is known, what it predicts, and when the default takes it.

No constant of the method was chosen on these shapes and seeds.
"""

from copy import copy
from pathlib import Path

import numpy as np
import pytest

import lowsparse as ls
from conftest import assert_close, on_entries, on_grid, relative, robust_problem
from lowsparse.linalg.scale import robust_scale
from lowsparse.solvers import Ladder
from lowsparse.solvers.base import Problem
from lowsparse.solvers.ladder import shrinking
from lowsparse.solvers.ladder.shrinking import PathState
from lowsparse.solvers.ladder.views import Views
from lowsparse.sweeps.losses import Kind, Loss

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


def problem_of(M, rank=None):
    """As `solve` states it."""
    unit, scale = M.median_magnitude(), float(np.sqrt(np.mean(M.values**2)))
    rank = min(M.shape) if rank is None else rank
    return Problem(
        M=M,
        rank=rank,
        sweep=M.open_sweep(),
        start=lambda: np.eye(2),
        start_given=False,
        tol=1e-8,
        unit=unit,
        scale=scale,
        largest=1.0,
        clip=np.inf,
        seed=5,
    )


def settled(M, threshold, p=2 / 3, passes=600, c=1e9):
    """U, sizes, V, λ and the objective after many passes over all entries with a given threshold."""
    problem = problem_of(M)
    path = shrinking.ShrinkagePath(Views(problem, 1, min_entries=M.nnz + 1), p=p)
    left, sizes, right = np.linalg.svd(M.to_dense(fill=0.0) / M.density, full_matrices=False)
    state = PathState(
        view="whole", U=left, sizes=sizes, V=right.T, first_size=float(sizes[0]), threshold=threshold, c=c
    )
    lam = path.ridge(state) * state.first_size ** (2 - p)
    values = []
    for _ in range(passes):
        path.run_pass(state)
        e = problem.sweep.residual(state.left, state.V)
        values.append(np.sum(Loss(Kind.CAUCHY, c).value(e)) + lam / p * np.sum(state.sizes**p))
    return state, lam, np.array(values)


class Noted(shrinking.ShrinkagePath):
    """A path that keeps what there was at the end of every step."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ends = []

    def _end_step(self, state, error):
        self.ends.append(copy(state))
        super()._end_step(state, error)


def lowrank(state):
    return ls.LowRank(state.U, state.sizes[:, None] * state.V.T)


def followed(M, rank=None):
    """The path to its end, and over all entries: what it finds, where it stands then, and how it got there."""
    problem = problem_of(M, rank)
    path = Noted(Views(problem, 30, min_entries=150))
    state = path.begin()
    while state.running:
        path.advance(state)
    path.chosen = copy(state)
    path.extend(state)
    while not state.finished:
        path.advance(state)
    return lowrank(state), state, path


@pytest.mark.parametrize("p", [1.0, 2 / 3, 0.3])
def test_of_a_full_matrix_every_singular_value_is_shrunk_by_itself(p):
    rng = np.random.default_rng(61)
    U, V = (np.linalg.qr(rng.standard_normal((k, 6)))[0] for k in (20, 15))
    d = np.array([10.0, 7.0, 4.0, 2.5, 1.0, 0.5])
    X = (U * d) @ V.T
    state, lam, _ = settled(ls.ObservedMatrix.from_dense(X), 0.3, p)
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
    state, lam, values = settled(M, 0.1, 1.0)
    L = (state.U * state.sizes) @ state.V.T
    filled = np.where(on_grid(M, np.ones(M.nnz)) > 0, on_grid(M, M.values), L)
    left, d, right = np.linalg.svd(filled, full_matrices=False)
    assert 0 < np.count_nonzero(d > lam) < 20
    assert_close((left * np.maximum(d - lam, 0)) @ right, L, 1e-5)
    assert values[-1] == pytest.approx(0.5 * np.sum((on_entries(M, L) - M.values) ** 2) + lam * state.sizes.sum())


@pytest.mark.parametrize("p", [1.0, 2 / 3])
def test_no_pass_increases_the_objective(p):
    M = robust_problem(40, 30, rank=3, density=0.6, outliers=0.0, noise=0.5, seed=63).M
    _, _, values = settled(M, 0.15, p, passes=40)
    assert (np.diff(values) <= 1e-9 * values[0]).all()
    assert values[-1] < 0.99 * values[0]


# ---------------------------------------------------------------------- what it is for


@pytest.mark.slow
def test_it_predicts_better_than_a_fit_of_any_rank():
    errors = []
    for seed in (1, 2, 3):
        M, L, _ = decaying(density=0.35, seed=seed)
        r = ls.solve(M, "auto")
        assert r.converged
        best = min(rms(ls.solve(M, k).L, L) for k in range(2, 8))
        errors.append(rms(r.L, L))
        assert errors[-1] < 0.97 * best  # which are shrunk too
    assert np.mean(errors) < 0.73


@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_the_shrinkage_that_is_chosen_is_about_the_best(noise):
    M, L, _ = decaying(noise=noise, outliers=0.05, seed=2)
    _, _, path = followed(M)
    others = [rms(lowrank(end), L) for end in path.ends]
    assert rms(lowrank(path.chosen), L) < 1.05 * min(others)
    assert max(others) > 1.5 * min(others)  # it matters


def test_outliers_do_little_harm():
    clean, spoilt = (decaying(outliers=share, seed=3) for share in (0.0, 0.1))
    without, with_them = (ls.solve(M, "auto") for M, _, _ in (clean, spoilt))
    assert rms(with_them.L, spoilt[1]) < 1.25 * rms(without.L, clean[1])
    assert np.mean(with_them.is_outlier[spoilt[2]]) > 0.75  # some are no larger than the noise
    assert np.mean(with_them.is_outlier[~spoilt[2]]) < 0.01


def test_the_noise_it_reports_is_how_far_off_unseen_entries_are():
    M, L, _ = decaying(outliers=0.05, seed=4)
    r = ls.solve(M, "auto")
    rng = np.random.default_rng(64)
    unseen = r.L.to_dense() - (L.to_dense() + rng.standard_normal(L.shape))
    unseen = unseen[on_grid(M, np.ones(M.nnz)) == 0]
    assert r.noise == r.held_out == pytest.approx(robust_scale(unseen), rel=0.1)


def test_of_noise_nothing_is_predicted():
    X = np.random.default_rng(65).standard_normal((70, 60))
    r = ls.solve(X, "auto")
    assert r.converged
    assert "L = 0" in r.message
    assert r.L.rank == 1
    assert not r.L.V.any()
    assert r.noise == pytest.approx(1.0, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n"), [(2500, 30), (30, 2500)])
def test_many_rows_or_columns_are_learnt_from_some(m, n):
    M, L, _ = decaying(m, n, outliers=0.05, seed=5)
    seen = []
    r = ls.solve(M, "auto", callback=lambda p: seen.append(p.lowrank().shape))
    assert set(seen) == {(m, n)}
    assert r.trace["entries"][0] < M.nnz
    best = min(rms(ls.solve(M, k, method=Ladder(searches=1)).L, L) for k in range(4, 13, 2))
    assert rms(r.L, L) < 1.1 * best


def test_a_rank_that_is_given_bounds_it():
    M, L, _ = decaying(seed=6)
    few, free = (followed(M, k)[0] for k in (2, None))
    assert few.rank == 2
    assert rms(free, L) < rms(few, L) < 1.5 * np.sqrt(np.sum(np.linalg.svd(L.to_dense())[1][2:] ** 2) / (150 * 120))
    assert ls.solve(M, "auto", max_rank=2).L.rank == 2


# ---------------------------------------------------------------------- data that are nearly exact


@pytest.mark.parametrize("outliers", [0.0, 0.1])
def test_large_rows_are_not_taken_for_outliers(outliers):
    problem = robust_problem(120, 100, rank=3, density=0.6, outliers=outliers, seed=66)
    size = np.ones(120)
    size[:5] = 8.0
    values = problem.M.values * size[problem.M.rows]
    L = ls.LowRank(problem.L.U * size[:, None], problem.L.V)
    r = ls.solve(problem.M.with_values(values), "auto")
    assert r.L.rank == 3
    error = np.linalg.norm(r.L.to_dense() - L.to_dense(), axis=1) / np.linalg.norm(L.to_dense(), axis=1)
    assert error.max() < 0.02


@pytest.mark.parametrize("noise", [1e-3, 1e-2, 0.1])
def test_a_little_noise_is_found_to_be_little(noise):
    problem = robust_problem(150, 140, rank=3, density=0.4, outliers=0.1, noise=noise, seed=67)
    found, state, _ = followed(problem.M)
    plain = ls.solve(problem.M, 3)
    assert found.rank == 3
    assert found.error(problem.L) < 1.2 * plain.L.error(problem.L)
    assert noise < state.noise < 2 * noise


# ---------------------------------------------------------------------- when it is taken


def test_exact_data_are_not_shrunk():
    problem = robust_problem(150, 140, rank=3, density=0.4, outliers=0.1, seed=69)
    r = ls.solve(problem.M, "auto")
    assert r.converged
    assert np.all(np.diff(r.trace["rank"]) >= 0)  # a climb, and nothing after it
    assert relative(r.L, problem.L) < 1e-8


def test_a_rank_that_is_clear_cut_stands():
    M = robust_problem(120, 110, rank=4, density=0.5, outliers=0.1, noise=0.1, seed=70).M
    r = ls.solve(M, "auto")
    assert (r.converged, r.L.rank) == (True, 4)
    assert r.trace["rank"].max() > 4  # the path was followed


def odd_rows(seed, m=300, n=60, share=0.05, size=4.0):
    """Rank 3 and noise, but a few rows follow a pattern of their own: (X with holes, truth, the odd rows)."""
    rng = np.random.default_rng([71, seed])
    truth = rng.standard_normal((m, 3)) @ rng.standard_normal((3, n))
    odd = rng.random(m) < share
    truth[odd] = size * np.outer(rng.standard_normal(odd.sum()), rng.standard_normal(n))
    X = truth + 0.1 * rng.standard_normal(truth.shape)
    X[rng.random(X.shape) < 0.2] = np.nan
    return X, truth, odd


@pytest.mark.parametrize("seed", range(3))
def test_a_few_odd_but_coherent_rows_are_no_errors(seed):
    X, truth, odd = odd_rows(seed)
    r = ls.solve(X, "auto")
    assert r.converged
    assert r.L.rank in (4, 5)
    holes = np.isnan(X) & odd[:, None]
    by_imputer = ls.RobustImputer().fit_transform(X)
    for filled in (r.L.to_dense(), by_imputer):
        assert np.mean(np.abs(filled - truth)[holes]) < 0.08  # the noise is 0.1


def test_errors_with_structure_are_not_predicted():
    """A path that follows them has the smaller mean error; what is typical of it is far worse."""
    rng = np.random.default_rng(72)
    L = rng.standard_normal((90, 2)) @ rng.standard_normal((2, 80))
    X = L + 0.001 * rng.standard_normal(L.shape)
    X[:25, :20] = 3.0
    r = ls.solve(X, "auto")
    assert np.linalg.norm(r.L.to_dense() - L) < 0.01 * np.linalg.norm(L)


def test_others_have_the_rank_of_the_climb():
    M, _, _ = decaying(seed=8)
    climb = ls.solve(M, "auto", method=Ladder(shrink=False)).L.rank
    assert climb < ls.solve(M, "auto").L.rank
    assert ls.solve(M, "auto", method="lmafit").L.rank == climb


def test_a_path_is_resumed_to_the_same_bits(tmp_path):
    M, _, _ = decaying(70, 60, seed=9)
    whole = ls.solve(M, "auto")
    for stop in (whole.n_iter // 2, whole.n_iter - 8, whole.n_iter - 2):
        at = tmp_path / f"{stop}.npz"
        ls.solve(M, "auto", max_iter=stop, checkpoint=at)
        again = ls.solve(M, "auto", resume=at)
        assert again.n_iter == whole.n_iter
        assert np.array_equal(again.L.U, whole.L.U)
        assert np.array_equal(again.L.V, whole.L.V)


def test_a_path_that_is_stopped_leaves_what_there_is():
    M, L, _ = decaying(seed=10)
    whole = ls.solve(M, "auto")
    for stop in range(10, whole.n_iter, 7):
        r = ls.solve(M, "auto", max_iter=stop)
        assert r.L.shape == L.shape
        assert rms(r.L, L) < 2  # which is that of zero


# ---------------------------------------------------------------------- real data


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
    r = ls.solve((Z - middle) / spread, "auto")
    error = np.abs(middle + spread * r.L.to_dense() - X) / spread
    by_median = np.abs(middle - X) / spread
    assert np.mean(error[held]) < 0.25 * np.mean(by_median[held])
