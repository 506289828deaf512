"""The default: it recovers where others fail, says so when it cannot, and chooses what people cannot.

No constant of the method was chosen on these shapes and seeds.
"""

import numpy as np
import pytest

import lowsparse as ls
from conftest import as_problem, conditioned, relative, robust_problem
from lowsparse.diagnosis import coherence
from lowsparse.linalg.grassmann import basis
from lowsparse.linalg.scale import robust_scale
from lowsparse.result import Status
from lowsparse.robust.core import dense_core
from lowsparse.robust.sketch import draw
from lowsparse.solvers import Ladder
from lowsparse.solvers.ladder import growing, judging, passes
from lowsparse.sweeps import Robust


def problem(*shape, seed=0, **kind):
    return conditioned([2026, seed], *shape, **kind)


# ---------------------------------------------------------------------- recovery


@pytest.mark.parametrize(
    "kind",
    [
        {"m": 330, "n": 280, "rank": 6, "density": 0.3, "outliers": 0.1},
        {"m": 410, "n": 370, "rank": 3, "density": 0.08, "outliers": 0.05},  # few entries
        {"m": 290, "n": 340, "rank": 5, "density": 0.35, "outliers": 0.3},
        {"m": 520, "n": 450, "rank": 3, "density": 0.22, "outliers": 0.4},
        {"m": 310, "n": 270, "rank": 4, "density": 0.3, "outliers": 0.2, "size": 0.5},
        {"m": 310, "n": 270, "rank": 4, "density": 0.25, "outliers": 0.2, "size": 30.0},
        {"m": 310, "n": 270, "rank": 4, "density": 0.25, "outliers": 0.1, "size": 3000.0},
        {"m": 320, "n": 300, "rank": 5, "density": 0.35, "outliers": 0.15, "condition": 100.0},
        {"m": 320, "n": 300, "rank": 4, "density": 0.3, "outliers": 0.3, "condition": 30.0},
        {"m": 350, "n": 360, "rank": 10, "density": 0.35, "outliers": 0.15},
        {"m": 120, "n": 3000, "rank": 4, "density": 0.35, "outliers": 0.15},
        {"m": 3000, "n": 120, "rank": 4, "density": 0.35, "outliers": 0.15},
    ],
    ids=lambda kind: " ".join(f"{k}={v}" for k, v in kind.items()),
)
@pytest.mark.parametrize("seed", [11, 12])
def test_it_recovers(kind, seed):
    M, L, wrong = problem(**kind, seed=seed)
    r = ls.solve(M, kind["rank"])
    assert r.converged
    assert r.method == "ladder"
    assert relative(r.L, L) < 1e-6
    assert np.mean(r.is_outlier == wrong) > 0.999


@pytest.mark.parametrize(
    ("m", "n", "rank", "density", "outliers"),
    [(190, 170, 4, 0.6, 0.55), (180, 200, 8, 0.75, 0.5), (300, 290, 14, 0.5, 0.45), (310, 280, 5, 1.0, 0.6)],
)
def test_more_than_half_of_the_entries_may_be_wrong(m, n, rank, density, outliers):
    M, L, _ = problem(m, n, rank, density=density, outliers=outliers, size=1.0, seed=13)
    r = ls.solve(M, rank)
    assert r.converged
    assert relative(r.L, L) < 1e-7


@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_half_may_be_wrong_beside_noise(noise):
    M, L, _ = problem(300, 240, 5, density=1.0, outliers=0.5, size=1.0, noise=noise, seed=14)
    r = ls.solve(M, 5)
    assert r.converged
    assert relative(r.L, L) < 0.8 * noise


def test_fewer_columns_that_are_fitted_exactly_are_not_preferred():
    rng = np.random.default_rng(15)
    X = rng.standard_normal((240, 4)) @ rng.standard_normal((4, 200)) + 0.1 * rng.standard_normal((240, 200))
    X[:, :90] = rng.standard_normal((240, 3)) @ rng.standard_normal((3, 90))
    assert not ls.solve(X, 4).converged


def test_if_the_rank_is_large_few_blocks_are_tried_or_none():
    for work, expected in ((1e8, [0, 1, 2, 3, 4, 5, 6]), (6e8, [0, 3, 6]), (1.2e9, [0]), (3e9, [])):
        assert list(range(7))[growing._affordable([work] * 7, work_of_pass=0)] == expected
    assert [0, 1][growing._affordable([3e9, 3e9], work_of_pass=2e9)] == [0, 1]  # beside what a pass takes
    assert [][growing._affordable([], work_of_pass=0)] == []


@pytest.mark.parametrize("c", [255.0, 1 / 255, 1e-30])
def test_units_do_not_matter(c):
    M, L, _ = problem(150, 170, 3, 0.4, 0.2, seed=21)
    assert relative(ls.solve(M.with_values(c * M.values), 3).L, ls.LowRank(c * L.U, L.V)) < 1e-7


def test_the_transpose_has_the_transposed_solution():
    M, L, _ = problem(150, 260, 3, 0.4, 0.2, seed=22)
    assert relative(ls.solve(M.T, 3).L, L.T) < 1e-7


@pytest.mark.parametrize("noise", [0.001, 0.01, 0.1])
@pytest.mark.parametrize("shape", [(260, 310, 4, 0.3), (700, 150, 3, 0.25)])
def test_with_noise_it_is_as_good_as_least_squares_on_the_inliers(shape, noise):
    m, n, rank, density = shape
    M, L, wrong = problem(m, n, rank, density, 0.1, noise=noise, seed=31)
    r = ls.solve(M, rank)
    assert r.converged
    best = least_squares(M, rank, wrong, np.linalg.qr(L.U)[0])
    assert r.L.error(L) <= 1.15 * best.error(L)
    assert r.noise == pytest.approx(noise, rel=0.15)
    assert 0.9 * noise < r.held_out < 1.6 * noise


def least_squares(M, rank, wrong, U):
    """The least-squares fit of the entries that are right, by alternation from the true U."""
    columns, inlier = M.columns_of_entries(), ~wrong
    good = ls.ObservedMatrix.from_coo(M.rows[inlier], columns[inlier], M.values[inlier], M.shape)
    by_column, by_row = good.open_sweep(), good.T.open_sweep()
    plain = Robust(c=1e9)  # all weights are 1
    for _ in range(40):
        Q, _ = basis(by_column.regress(U, None, plain).V)
        U, R = basis(by_row.regress(Q, None, plain).V)
    return ls.LowRank(U, (Q @ R.T).T)


@pytest.mark.parametrize("seed", [41, 42, 43])
def test_a_rank_given_twice_too_large_does_no_harm(seed):
    M, L, _ = problem(280, 310, 4, 0.4, 0.1, seed=seed)
    r = ls.solve(M, 8)
    assert r.converged
    assert relative(r.L, L) < 1e-5
    assert r.L.U.shape == (280, 8)
    np.testing.assert_allclose(r.L.U.T @ r.L.U, np.eye(8), atol=1e-12)


def test_components_that_fit_errors_of_few_lines_are_dropped_together():
    M, L, _ = problem(200, 220, 3, density=0.6, outliers=0.5, size=1.0, seed=107)
    r = ls.solve(M, 6)
    assert r.converged
    assert relative(r.L, L) < 1e-6


@pytest.mark.parametrize("seed", range(200, 206))
def test_a_component_too_many_does_not_fit_errors(seed):
    M, L, _ = problem(60, 200, 2, 0.8, 0.2, seed=seed)
    r = ls.solve(M, 3)
    assert r.converged
    assert relative(r.L, L) < 1e-6


def test_zeros_that_share_no_row_and_no_column_are_zero():
    X = np.full((3, 4), np.nan)
    X[0, 1] = X[1, 2] = 0.0
    for rank in (1, "auto"):
        r = ls.solve(X, rank)
        assert r.converged
        assert not r.L.to_dense().any()


def test_a_line_with_a_single_entry_gets_what_fits_it():
    L = np.outer([1.8, 1.2, 2.5, 1.9, 2.4], [3.0, 3.2, 1.8, 1.6])
    seen = np.array([[0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1], [1, 0, 1, 1]], bool)
    r = ls.solve(np.where(seen, L, np.nan), 1)
    assert r.converged
    np.testing.assert_allclose(r.L.to_dense(), L, rtol=1e-6)


def test_rows_and_columns_with_very_different_counts():
    rng = np.random.default_rng(51)
    m = n = 350
    known = rng.random((m, n)) < np.outer(rng.uniform(0.05, 1, m), rng.uniform(0.05, 1, n) ** 2)
    truth = rng.standard_normal((m, 3)) @ rng.standard_normal((3, n))
    X = np.where(known, truth, np.nan)
    wrong = known & (rng.random((m, n)) < 0.1)
    X[wrong] += 10 * rng.standard_normal(wrong.sum())
    r = ls.solve(X, 3)
    good = known & ~wrong
    rows, columns = good.sum(axis=1) >= 9, good.sum(axis=0) >= 9
    assert r.converged
    assert np.abs(r.L.to_dense() - truth)[np.ix_(rows, columns)].max() < 1e-5
    assert np.abs(r.L.to_dense()).max() < 30 * np.abs(truth).max()  # nor is it wild elsewhere


# ---------------------------------------------------------------------- honesty


@pytest.mark.parametrize("seed", [61, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (62, 63))])
@pytest.mark.parametrize(
    "kind",
    [
        {"m": 300, "n": 300, "rank": 5, "density": 0.045, "outliers": 0.3},  # too few entries
        {"m": 200, "n": 220, "rank": 4, "density": 0.3, "outliers": 0.65},  # too many outliers
    ],
    ids=["few", "wrong"],
)
def test_a_wrong_answer_is_not_called_converged(kind, seed):
    M, L, _ = problem(**kind, seed=seed)
    r = ls.solve(M, kind["rank"])
    assert relative(r.L, L) > 0.1
    assert not r.converged
    if r.status is Status.STALLED:
        assert "diagnose" in r.message


@pytest.mark.slow
def test_an_l_that_is_nothing_beside_the_noise_is_not_called_converged():
    from benchmarks import phase

    hard = phase.make(phase.Setting(rank=40, density=0.5, outliers=0.5), np.random.default_rng([5, 40]))
    r = ls.solve(hard.M, 40)
    assert r.status is Status.STALLED
    assert "nothing stands out from the noise" in r.message


def test_noise_is_no_signal():
    r = ls.solve(np.random.default_rng(64).standard_normal((150, 140)), 3)
    assert r.status is Status.STALLED


# ---------------------------------------------------------------------- the rank


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.1])
@pytest.mark.parametrize("rank", [1, 2, 3, 5, 7, 10])
def test_the_rank_is_found(rank, noise):
    M, L, _ = problem(240, 230, rank, 0.5, 0.1, noise=noise, condition=2.0, seed=70 + rank)
    r = ls.solve(M, "auto")
    assert r.L.rank == rank
    assert r.converged
    if not noise:
        assert relative(r.L, L) < 1e-6


def test_the_bound_on_the_rank():
    M, *_ = problem(100, 110, 4, 0.7, 0.1, noise=0.01, seed=81)
    assert ls.solve(M, "auto", max_rank=2).L.rank == 2
    assert ls.solve(M, "auto", method="amanpgc", max_rank=6).L.rank == 4
    with pytest.raises(ValueError, match="a start has a rank"):
        ls.solve(M, "auto", start=np.eye(100, 4))
    with pytest.raises(ValueError, match="max_rank is for rank="):
        ls.solve(M, 3, max_rank=4)
    with pytest.raises(ValueError, match="not 'best'"):
        ls.solve(M, "best")


# ---------------------------------------------------------------------- what comes with it


def test_diagnostics_are_the_figures_and_readable():
    M, _, wrong = problem(200, 150, 3, 0.5, 0.1, noise=0.05, seed=91)
    r = ls.solve(M, 3)
    d = r.diagnostics
    assert d is r.diagnostics
    assert (d.shape, d.entries, d.rank, d.recovered) == ((200, 150), M.nnz, 3, True)
    assert d.oversampling == M.nnz / (3 * 347)
    assert d.outlier_share == pytest.approx(wrong.mean(), abs=0.01)
    assert d.signal == pytest.approx(1, rel=0.05)
    assert d.noise == pytest.approx(0.05, rel=0.1)
    assert d.poor_rows.size == d.poor_columns.size == 0
    assert d.advice == ("nothing speaks against this result",)
    text = str(d)
    for part in ("200 x 150", "recovered               yes", "outliers", "noise / signal"):
        assert part in text


def test_diagnose_says_what_is_wrong():
    M, *_ = problem(120, 110, 6, 0.1, 0.0, seed=92)
    advice = " ".join(ls.diagnose(M, 6).advice)
    assert "fewer entries than parameters" in advice
    assert "good entries" in advice
    M, *_ = problem(120, 110, 2, 0.6, 0.1, noise=0.02, seed=93)
    found = ls.diagnose(M)
    assert (found.rank, found.recovered) == (2, True)
    assert not ls.diagnose(np.random.default_rng(94).standard_normal((80, 70)), 3).recovered


def test_notes_are_about_the_rank_that_was_found():
    X = problem(60, 50, 2, 1.0, 0.0, seed=89)[0].to_dense()
    X[:, 7] = np.nan
    X[:4, 7] = 1.0
    r = ls.solve(X, "auto")
    assert r.L.rank == 2
    assert not any("fewer than" in note for note in r.notes)  # four entries are enough for two coefficients


def test_nothing_is_said_to_be_confirmed_that_was_not():
    small, large = (ls.solve(problem(m, m, 1, 0.9, 0.1, seed=88)[0], 1) for m in (20, 60))
    assert small.converged
    assert (small.message, small.held_out) == ("an exact fit", None)
    assert large.message == "an exact fit, confirmed by held-out entries"


def test_every_method_has_diagnostics():
    M, *_ = problem(100, 90, 2, 0.6, 0.1, noise=0.05, seed=95)
    r = ls.solve(M, 2, method="amanpgc")
    assert r.held_out is None
    assert r.diagnostics.noise == pytest.approx(0.05, rel=0.25)


def test_standard_errors_are_those_of_the_errors():
    M, L, _ = problem(180, 160, 3, 0.4, 0.1, noise=0.05, seed=96)
    r = ls.solve(M, 3)
    i, j = np.indices(M.shape)
    z = (r.L.to_dense() - L.to_dense()) / r.standard_error(i, j)
    assert 0.9 < z.std() < 1.15
    assert r.standard_error(3, -1) == pytest.approx(r.standard_error(3, 159))
    assert r.standard_error([0, 1], 2).shape == (2,)


def test_where_nothing_is_known_the_standard_error_is_infinite():
    X = problem(40, 30, 2, 1.0, 0.0, noise=0.01, seed=97)[0].to_dense()
    X[5] = np.nan
    assert np.isinf(ls.solve(X, 2).standard_error(5, 3))


def test_coherence_runs_from_one_to_the_number_of_rows():
    assert coherence(np.ones((7, 1))) == pytest.approx(1)
    assert coherence(np.eye(7)[:, :2]) == pytest.approx(3.5)
    assert coherence(np.zeros((7, 2))) == 1


# ---------------------------------------------------------------------- its parts


def test_a_sketch_is_a_part_of_the_data():
    M = robust_problem(400, 900, rank=2, density=0.5).M
    sketch = draw(M, 2, np.random.default_rng(1))
    assert sketch.M.shape == (len(sketch.rows), len(sketch.columns))
    assert max(sketch.M.shape) < 200
    entries = sketch.M.nnz + sketch.held.values.size
    assert entries == pytest.approx(9000, rel=0.1)  # the matrix is large, so that fewer would be too few
    assert sketch.strip.shape == (400, len(sketch.columns))
    X = M.to_dense()
    block = X[np.ix_(sketch.rows, sketch.columns)]
    seen = sketch.M.to_dense()
    held = np.full_like(seen, np.nan)
    held[sketch.held.rows, sketch.held.columns] = sketch.held.values
    assert np.isnan(seen[~np.isnan(held)]).all()  # held-out entries are not seen
    np.testing.assert_array_equal(np.where(np.isnan(held), seen, held), block)
    np.testing.assert_array_equal(sketch.strip.to_dense(), X[:, sketch.columns])


def test_black_pixels_without_noise_do_not_cast_doubt_on_the_others():
    rng = np.random.default_rng(5)
    m, n, black = 300, 120, slice(100, 160)
    L = np.outer(rng.uniform(40, 220, m), 1 + 0.15 * rng.standard_normal(n))
    L += np.outer(10 * rng.standard_normal(m), rng.standard_normal(n))
    L[black] = 0
    X = L + 6 * rng.standard_normal((m, n))
    X[black] = rng.standard_normal((60, n))
    X = np.clip(np.round(X), 0, 255)
    X[rng.random(X.shape) < 0.4] = np.nan
    r = ls.solve(X, 2)
    assert r.converged
    assert r.L.error(L, relative=True) < 0.02


def popular_lines(m, n, dense, probabilities, seed):
    """Which entries are seen: those of the first `dense` rows and columns with the first of these probabilities."""
    rng = np.random.default_rng(seed)
    a, b = (np.where(np.arange(size) < dense, *probabilities) for size in (m, n))
    return rng.random((m, n)) < np.outer(a, b)


def ones_at(seen):
    return ls.ObservedMatrix.from_dense(np.where(seen, 1.0, np.nan))


def test_lines_with_few_entries_are_not_in_the_core():
    rows, columns = dense_core(ones_at(popular_lines(400, 900, 120, (0.95, 0.15), 3)), 60, rank=2)
    np.testing.assert_array_equal(rows, np.arange(120))
    np.testing.assert_array_equal(columns, np.arange(120))


def test_there_is_no_core_if_it_cannot_stand_for_the_other_lines():
    alike = popular_lines(200, 300, 0, (1.0, 0.5), 3)
    assert dense_core(ones_at(alike), 20, rank=2) is None  # it has most of the entries, or none
    far = popular_lines(700, 1200, 120, (0.95, 0.15), 3)
    far[120:, :120] = far[:120, 120:] = False  # the others have no entry in common with it
    assert dense_core(ones_at(far), 60, rank=2) is None
    apart = popular_lines(400, 900, 240, (0.95, 0.15), 3)
    apart[:120, 120:240] = apart[120:240, :120] = False  # it falls into two parts
    assert dense_core(ones_at(apart), 60, rank=2) is None


def test_ratings_are_learnt_in_their_core():
    rng = np.random.default_rng(11)
    m, n, rank = 600, 3000, 2
    L = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    active, popular = (np.arange(m) + 3.0) ** -0.5, (np.arange(n) + 5.0) ** -0.9
    seen = rng.random((m, n)) < np.minimum(0.04 * np.outer(active, popular) / active.mean() / popular.mean(), 0.95)
    X = L + 0.3 * rng.standard_normal((m, n)) + 8 * (rng.random((m, n)) < 0.05)
    M = ls.ObservedMatrix.from_dense(np.where(seen, X, np.nan))
    r = ls.solve(M, rank)
    assert r.converged
    on_block = r.trace["entries"][r.trace["entries"] < M.nnz]
    assert 0 < on_block.max() < 0.6 * M.nnz < r.trace["entries"][-1]
    off = (r.L.to_dense() - L)[:, seen.sum(axis=0) > 30]
    assert np.sqrt(np.mean(off**2)) < 0.15


@pytest.mark.slow
def test_a_component_that_the_core_lacks_is_found():
    rng = np.random.default_rng(2)
    m, n = 900, 3000
    active, popular = (np.arange(m) + 3.0) ** -0.5, (np.arange(n) + 5.0) ** -0.8
    U, V = rng.standard_normal((m, 2)), rng.standard_normal((n, 2))
    V[:500, 1] = 0  # popular columns do not have it
    L = U @ V.T
    seen = rng.random((m, n)) < np.minimum(0.04 * np.outer(active, popular) / active.mean() / popular.mean(), 0.95)
    X = L + 0.1 * rng.standard_normal((m, n)) + 5 * rng.standard_normal((m, n)) * (rng.random((m, n)) < 0.1)
    M = ls.ObservedMatrix.from_dense(np.where(seen, X, np.nan))
    assert draw(M, 2, np.random.default_rng(1)).is_core
    r = ls.solve(M, 2)
    assert r.converged
    often = np.ix_(seen.sum(axis=1) > 15, seen.sum(axis=0) > 15)
    assert np.sqrt(np.mean((r.L.to_dense() - L)[often] ** 2)) < 0.1


def test_a_sketch_of_few_entries_has_them_all():
    M = robust_problem(20, 15, rank=2).M
    sketch = draw(M, 2, np.random.default_rng(1))
    assert sketch.M.nnz == M.nnz
    assert sketch.held.values.size == 0


def test_basis_is_a_factorisation():
    rng = np.random.default_rng(5)
    for scale in (1.0, 1e-3, 1e-9, 0.0):  # the last two take the Householder way
        A = rng.standard_normal((50, 4)) * np.array([1, 1, 1, scale])
        Q, R = basis(A)
        np.testing.assert_allclose(Q @ R, A, atol=1e-12)
        np.testing.assert_allclose(Q.T @ Q, np.eye(4), atol=1e-6)


def test_steps_beyond_the_regressions_take_fewer_passes_to_the_same(monkeypatch):
    M, *_ = problem(410, 370, 5, 0.08, 0.05, seed=96)
    r = ls.solve(M, 5)
    monkeypatch.setattr(passes, "relaxation", lambda current, decay: 0.0)
    plain = ls.solve(M, 5)
    assert r.converged
    assert plain.converged
    assert r.n_iter < 0.6 * plain.n_iter
    assert relative(r.L, plain.L) < 1e-7


@pytest.mark.parametrize("hidden", [0, 3])
def test_the_trace_tells_by_what_a_pass_changes_the_lines_that_are_determined(hidden):
    """`hidden` rows have one entry each, which determines nothing."""
    passes = []

    class Watched(Ladder):
        def advance(self, problem, state):
            after = super().advance(problem, state)
            passes.append((state.U @ state.V.T, after.U @ after.V.T, after.row["change"]))
            return after

    M, *_ = problem(60, 50, 2, 0.6, 0.1, noise=0.05, seed=95)
    X = M.to_dense()
    X[:hidden, 1:] = np.nan
    ls.solve(X, 2, method=Watched(), max_iter=7)
    for before, after, change in passes[2:]:
        moved = np.linalg.norm(after[hidden:] - before[hidden:]) / np.linalg.norm(before[hidden:])
        assert change == pytest.approx(moved, rel=1e-6)


@pytest.mark.parametrize("beyond", [0.2, 0.63, 0.999])
def test_a_step_beyond_a_regression_does_not_increase_the_sum(beyond):
    M, L, _ = problem(90, 70, 3, 0.5, 0.2, noise=0.1, seed=97)
    sweep = M.open_sweep()
    U = basis(L.U)[0]
    for c in (3.0, 0.3, 0.03):
        V = np.random.default_rng(7).standard_normal((70, 3))
        for _ in range(4):
            fit = sweep.regress(U, V, Robust(c=c)).V
            losses = [np.log1p((sweep.residual(U, C) / c) ** 2).sum() for C in (V, fit + beyond * (fit - V))]
            assert losses[1] < losses[0]
            V = fit


def test_the_trace_tells_rank_and_entries():
    M, *_ = problem(300, 280, 4, 0.4, 0.1, noise=0.01, seed=98)
    trace = ls.solve(M, "auto").trace
    assert trace["rank"][0] == 1
    assert trace["rank"].max() > 4  # it looked beyond
    assert trace["rank"][-1] == 4
    assert trace["entries"][0] < M.nnz == trace["entries"][-1]


def test_a_start_is_used():
    M, L, _ = problem(200, 210, 4, 0.4, 0.2, seed=99)
    assert ls.solve(M, 4, start=L.U).n_iter < ls.solve(M, 4).n_iter
    with pytest.raises(ValueError, match="attempts must be a whole number"):
        ls.solve(M, 4, method=Ladder(attempts=0))


@pytest.mark.parametrize("name", ["choose_rank", "shrink"])
def test_what_is_asked_for_is_true_or_false(name):
    with pytest.raises(ValueError, match=f"{name} must be True or False, not 'yes'"):
        ls.solve(np.eye(3), 1, method=Ladder(**{name: "yes"}))


def test_a_solve_resumed_without_an_iteration_to_go_has_the_same_bits(tmp_path):
    """Also where the block had been enlarged when the state was saved."""
    enlarged = []

    class Watched(Ladder):
        def advance(self, problem, state):
            after = super().advance(problem, state)
            if after.block_factor > 1 and after.view != "whole":
                enlarged.append(after.iteration)
            return after

    rng = np.random.default_rng(97)
    X = rng.standard_normal((300, 250))  # attempts do not agree
    X[rng.random(X.shape) < 0.3] = np.nan
    ls.solve(X, 1, method=Watched())
    last, at = enlarged[1], tmp_path / "checkpoint"
    saved = ls.solve(X, 1, max_iter=last, checkpoint=at)
    resumed = ls.solve(X, 1, max_iter=last, resume=at)
    np.testing.assert_array_equal(resumed.L.U, saved.L.U)
    np.testing.assert_array_equal(resumed.L.V, saved.L.V)


@pytest.mark.parametrize(("rank", "predicts"), [(1, True), (11, False)])
def test_a_fit_of_noise_by_many_parameters_is_no_prediction(rank, predicts):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 50)) + 3 * np.outer(rng.standard_normal(60), rng.standard_normal(50))
    state = Ladder().init(as_problem(ls.ObservedMatrix.from_dense(X), rank, given=False))
    fitted = state.views.sketch.M.to_dense()
    (m, n), seen = fitted.shape, np.isfinite(fitted)
    U = np.random.default_rng(1).standard_normal((m, rank))
    for _ in range(60):  # least squares
        V = np.stack([np.linalg.lstsq(U[seen[:, j]], fitted[seen[:, j], j])[0] for j in range(n)])
        U = np.stack([np.linalg.lstsq(V[seen[i]], fitted[i, seen[i]])[0] for i in range(m)])
    state.U, state.V = U, V
    state.noise = robust_scale((U @ V.T - fitted)[seen])
    assert judging.predicts(state, state.held_residual()) == predicts


def test_a_component_that_is_left_out_and_halves_the_noise_is_said():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 50)) + 0.1 * rng.standard_normal((60, 50))
    component = 0.25 * np.outer(rng.standard_normal(60), rng.standard_normal(50))
    assert ls.solve(X, 2).converged
    r = ls.solve(X + component, 2)  # two fifths of the noise with one rank more
    assert r.status is ls.Status.STALLED
    assert "try rank=3" in r.message
