"""Holes and errors with structure: the default finds L, or does not say that it has.

No constant of the method was chosen on these seeds.
"""

import dataclasses
import importlib
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import lowsparse as ls
from conftest import conditioned, relative
from lowsparse.entries.observed import ObservedMatrix
from lowsparse.robust.growth import SEEDS, Part, climb_blocks, grow_part, prediction_error, seed_block, take_block
from lowsparse.robust.joint import JointSystem, balanced_factors, coupling, determination, joint_step
from lowsparse.robust.regression import LineRegression, Prior, regress_by_subsets
from lowsparse.robust.ties import Ties
from lowsparse.solvers.ladder.evidence import sparsest_direction
from lowsparse.solvers.ladder.groups import Group
from lowsparse.sweeps import Blocks, Draws

ROOT = Path(__file__).parents[1]


@pytest.fixture
def structure(monkeypatch):
    """The benchmark."""
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("benchmarks.structure")


def cornered(seed, m, n, rank, rows, columns):
    rng = np.random.default_rng([seed, 5])
    L = ls.LowRank(rng.standard_normal((m, rank)), rng.standard_normal((rank, n)))
    X = L.to_dense()
    X[:rows, :columns] = np.nan
    return X, L


# ---------------------------------------------------------------------- the whole


@pytest.mark.parametrize("seed", range(6))
def test_a_corner_that_is_unknown_is_found(seed):
    X, L = cornered(seed, 30, 50, 1, 23, 38)
    r = ls.solve(X, 1)
    assert r.converged
    assert relative(r.L, L) < 1e-8
    assert r.S.nnz == 0


# Of these the first was fitted apart from what its flagged entries connect, the second shrunk to nothing by held-out
# entries that repeat a number, and in the third a part was taken for outliers.
@pytest.mark.parametrize(
    ("seed", "number", "hole", "error", "largest"),
    [
        (990_017, 371, "corner", "patch", 300),
        (4242, 1877, "staircase", "patch", 260),
        (31_337, 1286, "staircase", "patch", 260),
    ],
)
def test_an_exact_fit_that_leaves_a_pattern_of_outliers_is_not_taken_at_once(
    structure, seed, number, hole, error, largest
):
    problem = structure.draw_problem([seed, number], hole, error, largest=largest)
    r = ls.solve(problem.M, problem.rank)
    assert r.converged
    assert structure.judge(problem, r)[0] == "found"


# A component that only some lines have had been found here, and was dropped because the rest predicts as well.
@pytest.mark.parametrize(
    ("number", "hole", "error"), [([7002, 2], "corner", "units"), ([7001, 1806], "random", "small")]
)
def test_a_component_that_explains_more_than_its_parameters_is_kept(structure, number, hole, error):
    problem = structure.draw_problem(number, hole, error, factors="some lines", largest=260)
    r = ls.solve(problem.M, problem.rank)
    assert r.converged
    assert structure.judge(problem, r)[0] == "found"


def test_a_component_without_evidence_is_doubted(structure):
    problem = structure.draw_problem([7002, 566], "rounds", "none", factors="some lines", largest=260)
    r = ls.solve(problem.M, problem.rank)
    assert structure.judge(problem, r)[0] == "found" or not r.converged


def test_a_lower_rank_is_no_promise_if_unexplained_lines_may_have_a_component(structure):
    problem = structure.draw_problem([535353, 1664], "random", "none", factors="some lines", largest=260)
    r = ls.solve(problem.M, problem.rank)
    assert structure.judge(problem, r)[0] == "found" or not r.converged


def test_a_lower_rank_is_a_promise_if_unexplained_lines_are_wrong(structure):
    problem = structure.draw_problem([7003, 506], "staircase", "rows", factors="grouped", largest=260)
    r = ls.solve(problem.M, problem.rank + 1)
    assert r.converged
    assert structure.judge(problem, r)[0] == "found"


def test_clipped_entries_do_not_bend_what_was_found_without_them(structure):
    problem = structure.draw_problem([7001, 1000], "random", "clipped", factors="grouped", largest=260)
    r = ls.solve(problem.M, problem.rank)
    assert r.converged
    assert structure.judge(problem, r)[0] == "found"


def test_many_passes_over_a_small_table_are_few_iterations(structure):
    problem = structure.draw_problem([7001, 644], "rounds", "scattered", factors="grouped", largest=260)
    r = ls.solve(problem.M, problem.rank, max_iter=500)
    assert r.converged
    assert structure.judge(problem, r)[0] == "found"


def lines_with_runs_of_errors(seed):
    """Straight lines in time, some with a run of readings that are too high; and what they would be."""
    rng = np.random.default_rng([seed, 8])
    m, n = 60, 20
    L = np.vander(np.linspace(-1, 1, m), 2) @ rng.standard_normal((2, n))
    wrong = np.zeros((m, n), bool)
    while wrong.mean() < 0.12:
        i = rng.integers(m)
        wrong[i : i + 30, rng.integers(n)] = True
    X = L + 0.1 * rng.standard_normal((m, n))
    X[wrong] += 3 + rng.standard_normal(int(wrong.sum()))
    return X, L


@pytest.mark.slow
def test_runs_of_errors_rarely_bend_lines_whose_factors_are_smooth():
    """A compromise may have a smaller Σ log(1 + (e/c)²) than the truth, but explains fewer entries."""
    bent = 0
    for seed in range(10):
        X, L = lines_with_runs_of_errors(seed)
        explained, by_truth = (np.mean(np.abs(X - one) <= 0.4) for one in (ls.solve(X, 2).L.to_dense(), L))
        bent += explained < by_truth - 0.01
    assert bent <= 2  # six, if single lines are not refitted by what they explain


@pytest.mark.parametrize("backend", ["outofcore", pytest.param("numpy", marks=pytest.mark.slow)])
def test_lines_and_ties_are_treated_alike_wherever_the_entries_are(backend):
    X, _ = lines_with_runs_of_errors(3)
    np.minimum(X, np.quantile(X, 0.9), out=X)  # clipped
    here, there = (ls.solve(X, 2, backend=one) for one in ("auto", backend))
    assert here.status == there.status
    assert relative(there.L, here.L) < 1e-8


@pytest.mark.parametrize(("m", "n", "asked"), [(10, 12, 2), (30, 25, 4)])
def test_a_row_without_entries_and_a_rank_that_is_too_high_do_no_harm(m, n, asked):
    rng = np.random.default_rng([m, 9])
    L = np.outer(rng.standard_normal(m), rng.standard_normal(n))
    X = L.copy()
    X[0] = np.nan
    r = ls.solve(X, asked)
    assert r.converged
    assert np.abs(r.L.to_dense()[1:] - L[1:]).max() < 1e-8
    assert np.allclose(r.L.U.T @ r.L.U, np.eye(asked))


@pytest.mark.parametrize(("m", "n", "rank"), [(300, 50, 5), (400, 400, 2), (1000, 100, 10)])
def test_a_signal_below_the_noise_is_found_as_well_as_by_least_squares(m, n, rank):
    rng = np.random.default_rng([m, 41])
    L = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n)) * np.sqrt(0.5 / rank)
    X = L + rng.standard_normal((m, n))
    r = ls.solve(X, rank)
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    error = np.linalg.norm((U[:, :rank] * s[:rank]) @ Vt[:rank] - L) / np.linalg.norm(L)
    assert r.converged
    assert r.L.error(L, relative=True) < 1.05 * error


@pytest.mark.parametrize(
    ("seed", "hole", "error"), [pytest.param(312, "band", "runs", marks=pytest.mark.slow), (324, "random", "patch")]
)
def test_what_shrinkage_explains_where_no_rank_does_is_no_promise(structure, seed, hole, error):
    problem = structure.draw_problem([99, seed], hole, error, largest=300)
    r = ls.solve(problem.M, "auto")
    assert structure.judge(problem, r)[0] == "found" or not r.converged


@pytest.mark.parametrize("seed", [11, 12])
def test_a_large_corner_with_errors_is_found(seed):
    X, L = cornered(seed, 220, 260, 3, 150, 160)
    rng = np.random.default_rng([seed, 6])
    X[rng.random(X.shape) < 0.1] += 5.0
    r = ls.solve(X, 3)
    assert r.converged
    assert relative(r.L, L) < 1e-6


@pytest.mark.parametrize("number", [14, pytest.param(24, marks=pytest.mark.slow)])
def test_what_is_called_converged_is_right(structure, number):
    """A small version of `python -m benchmarks.structure`."""
    kinds = [(hole, error) for hole in ("corner", "chain", "late", "band") for error in ("scattered", "rows", "stuck")]
    answers = structure.run(number, ["ladder"], 1, 120, kinds)
    assert len(answers) >= number - 4
    assert sum(a.wrong for a in answers) == 0
    assert sum(a.outcome == "found" for a in answers) >= 0.8 * len(answers)
    assert sum(a.converged for a in answers) >= 0.8 * len(answers)


def test_a_wrong_answer_is_seen_as_one(structure):
    problem = structure.draw_problem([3, 3], "none", "scattered", largest=60)
    nothing = ls.LowRank(np.zeros((problem.M.shape[0], 1)), np.zeros((1, problem.M.shape[1])))
    result = ls.solve(problem.M, problem.rank)
    outcome, behind, off = structure.judge(problem, result)
    assert (outcome, behind) == ("found", False)
    assert off < 0.1
    outcome, behind, off = structure.judge(problem, dataclasses.replace(result, L=nothing))
    assert (outcome, behind, off) == ("missed", True, 1.0)


@pytest.mark.parametrize("asked", [4, 5, 7])
@pytest.mark.parametrize("seed", [21, 22, 23])
def test_a_rank_that_is_too_high_does_no_harm_with_noise(asked, seed):
    M, L, _ = conditioned([seed], 300, 90, 4, 0.7, 0.1, noise=0.5, size=5.0)
    right, more = ls.solve(M, 4), ls.solve(M, asked)
    assert more.converged
    assert more.L.error(L) < 1.05 * right.L.error(L)
    assert more.L.U.shape[1] == asked


def test_a_rank_that_is_too_low_is_said():
    M, *_ = conditioned([24], 120, 100, 3, 0.8, 0.1)
    r = ls.solve(M, 2)
    assert not r.converged
    assert "rank=3" in r.message
    assert r.next_noise < 0.1 * r.noise


def test_noise_is_predicted_to_be_zero():
    r = ls.solve(np.random.default_rng(25).standard_normal((60, 50)), 5)
    assert not r.converged
    assert np.sqrt(np.mean(r.L.to_dense() ** 2)) < 0.4  # plain least squares leave 0.6 of it in L


# ---------------------------------------------------------------------- what is determined


def test_blocks_that_share_nothing_do_not_determine_each_other():
    rng = np.random.default_rng(31)
    X = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 50))
    X[:20, 25:] = X[20:, :25] = np.nan
    r = ls.solve(X, 2)
    i, j = np.indices(X.shape)
    assert np.mean(r.determined(i, j) == ~np.isnan(X)) > 0.98
    assert np.isinf(r.standard_error(3, 40))
    assert np.isfinite(r.standard_error(3, 4))
    assert any("not determined" in note and "determined(i, j)" in note for note in r.notes)


def test_a_row_with_too_few_right_entries_is_not_determined():
    M, *_ = conditioned([32], 60, 50, 3, 1.0, 0.0, noise=0.01)
    X = M.to_dense()
    X[7] = np.random.default_rng(33).standard_normal(50)
    X[8, 2:] = np.nan
    r = ls.solve(X, 3)
    assert not r.determined(7, 3)
    assert not r.determined(8, 3)
    assert r.determined(9, 3)
    assert r.determined([7, 9], 3).tolist() == [False, True]
    assert r.determined(-1, -1)


def test_every_method_says_what_is_determined():
    X, _ = cornered(34, 40, 50, 1, 40, 20)  # twenty columns without an entry
    X[:, :20] = np.nan
    X[0, :20] = 1.0
    r = ls.solve(X, 1, method="amanpgc")
    assert not r.determined(5, 3)
    assert r.determined(5, 30)


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_draws_have_the_deviation_of_the_errors(noise):
    """Against refits of the same data with other noise: a chain of two blocks that share a few rows and columns."""
    rng = np.random.default_rng(35)
    truth = rng.standard_normal((60, 1)) @ rng.standard_normal((1, 60))
    X = truth.copy()
    X[:30, 31:] = X[31:, :30] = np.nan
    M = ObservedMatrix.from_dense(X)
    U, V = np.linalg.qr(truth[:, :1])[0], (np.linalg.qr(truth[:, :1])[0].T @ truth).T
    found = determination(M, U, V, np.ones(M.nnz, bool), noise)
    i, j = np.indices(truth.shape)
    if not noise:
        assert found.determined(i, j).all()
        return
    fits = []
    for _ in range(40):
        noisy = M.with_values(M.values + noise * rng.standard_normal(M.nnz))
        A, B, damping = U, V, 1e-6
        for _ in range(4):
            A, B, damping = joint_step(noisy, noisy.open_sweep(), A, B, 1e6, 0.0, damping, 100)
        fits.append(A @ B.T - truth)
    measured = np.sqrt(np.mean(np.square(fits), axis=0))
    ratio = found.deviation(i, j) / measured
    assert 0.7 < np.median(ratio) < 1.4
    apart = np.isnan(X)  # where only the few shared entries tie the blocks together
    assert measured[apart].mean() > 1.05 * measured[~apart].mean()
    assert 0.6 < np.median(ratio[apart]) < 1.6


# ---------------------------------------------------------------------- its parts


def test_the_joint_system_is_that_of_the_jacobian():
    M, L, _ = conditioned([41], 7, 6, 2, 0.8, 0.0)
    rng = np.random.default_rng(42)
    A, B, _ = balanced_factors(L.U, L.V.T)
    w = rng.random(M.nnz)
    system = JointSystem(M, M.open_sweep(), A, B, w, np.full(2, 0.3), np.full(2, 0.2))
    rows, columns = M.rows, M.columns_of_entries()
    J = np.zeros((M.nnz, 7 * 2 + 6 * 2))
    for k in range(M.nnz):
        J[k, 2 * rows[k] : 2 * rows[k] + 2] = B[columns[k]]
        J[k, 14 + 2 * columns[k] : 14 + 2 * columns[k] + 2] = A[rows[k]]
    H = J.T @ (w[:, None] * J) + np.diag([0.3] * 14 + [0.2] * 12)
    ga, gb = rng.standard_normal((7, 2)), rng.standard_normal((6, 2))
    xa, xb = system.solve(ga, gb, 1e-12, 500)
    expected = np.linalg.solve(H, np.concatenate([ga.ravel(), gb.ravel()]))
    np.testing.assert_allclose(np.concatenate([xa.ravel(), xb.ravel()]), expected, rtol=1e-6, atol=1e-8)


def test_joint_steps_do_not_increase_the_sum():
    M, *_ = conditioned([43], 60, 50, 3, 0.6, 0.2, noise=0.1)
    rng = np.random.default_rng(44)
    U, V, damping = rng.standard_normal((60, 3)), rng.standard_normal((50, 3)), 1e-3
    sweep = M.open_sweep()
    for c in (3.0, 1.0, 0.3):
        for _ in range(4):
            before = np.log1p((sweep.residual(U, V) / c) ** 2).sum()
            U, V, damping = joint_step(M, sweep, U, V, c, 0.0, damping, 40)
            assert np.log1p((sweep.residual(U, V) / c) ** 2).sum() <= before * (1 + 1e-12)


def test_joint_steps_join_what_was_fitted_apart():
    X, L = cornered(45, 30, 40, 2, 20, 28)
    U, V = L.U.copy(), L.V.T.copy()
    G = np.array([[1.3, 0.2], [-0.1, 0.8]])
    U[20:], V[:28] = U[20:] @ G, V[:28] @ np.linalg.inv(G).T  # one arm and the other fit; what they share does not
    M = ObservedMatrix.from_dense(X)
    e = M.open_sweep().residual(U, V)
    assert 0 < np.mean(np.abs(e) > 1e-9) < 0.3
    damping = 1e-3
    for c in np.geomspace(0.5, 1e-6, 25):
        U, V, damping = joint_step(M, M.open_sweep(), U, V, c, 0.0, damping, 60)
    np.testing.assert_allclose(U @ V.T, L.to_dense(), atol=1e-6)


def test_coupling_tells_what_hangs_together():
    rng = np.random.default_rng(46)
    M = ObservedMatrix.from_dense(np.where(rng.random((80, 90)) < 0.4, 1.0, np.nan))
    everything = np.ones(M.nnz, bool)
    assert coupling(M, everything) < 0.5
    apart = (M.rows < 40) == (M.columns_of_entries() < 45)
    assert coupling(M, apart) > 0.99


@pytest.mark.parametrize("share", [0.2, 0.4])
def test_subsets_see_past_errors_that_agree_with_each_other(share):
    rng = np.random.default_rng(47)
    B = np.linalg.qr(rng.standard_normal((40, 3)))[0]
    V = 5 * rng.standard_normal((20, 3))
    X = B @ V.T
    X[: int(share * 40)] = 3.0  # stuck
    M = ObservedMatrix.from_dense(X)
    found = regress_by_subsets(M, B, np.zeros((20, 3)), 1e-3, rng)
    assert np.mean(np.abs(found - V).max(axis=1) < 1e-3) > 0.9


def test_blocks_to_grow_from_are_dense():
    rng = np.random.default_rng(48)
    seen = np.zeros((150, 160), bool)
    seen[:60, :70] = seen[50:110, 60:120] = seen[100:, 110:] = True
    M = ObservedMatrix.from_dense(np.where(seen, 1.0, np.nan))
    for near, size in (*SEEDS[0], *SEEDS[1]):
        rows, columns = seed_block(M, 2, rng, size, near=near)
        block = take_block(M, rows, columns)
        assert near or block.density > 0.9
        assert min(block.row_counts) >= 3
        assert min(rows.size, columns.size) > 2


def test_where_entries_are_sparse_a_block_to_grow_from_is_no_large_part_of_them():
    rng = np.random.default_rng(49)
    rows, columns = rng.integers(1500, size=(2, 9000))
    at = np.unique(rows * 1500 + columns)
    M = ObservedMatrix.from_coo(at // 1500, at % 1500, np.ones(at.size), shape=(1500, 1500))
    for near, size in SEEDS[0]:
        assert take_block(M, *seed_block(M, 1, rng, size, near=near)).nnz < 0.3 * M.nnz


def apart(found, truth):
    return np.linalg.norm(found - truth) / np.linalg.norm(truth)


def damaged_blocks(rng, noise):
    """Blocks of one matrix of rank 2, each with some entries wrong and some missing."""
    truth = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 50))
    X = truth + noise * rng.standard_normal(truth.shape)
    wrong, missing = rng.random(X.shape) < 0.15, rng.random(X.shape) < 0.1
    X[wrong] += 4 * rng.standard_normal(int(wrong.sum()))
    X[missing] = np.nan
    places = [(slice(0, 20), slice(0, 25)), (slice(10, 40), slice(20, 45)), (slice(30, 60), slice(5, 30))]
    return [(ObservedMatrix.from_dense(X[place]), truth[place]) for place in places]


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_blocks_fitted_at_once_are_each_fitted(noise):
    found = damaged_blocks(np.random.default_rng(51), noise)
    fits = climb_blocks([M for M, _ in found], 2, 1.0, np.random.default_rng(0))
    for (_, truth), fit in zip(found, fits, strict=True):
        assert np.median(np.abs(fit.U @ fit.V.T - truth)) < 2 * noise + 1e-8  # a line may be lost
        assert fit.noise <= 2 * noise + 1e-9


def test_a_block_is_fitted_the_same_with_others_beside_it():
    found = damaged_blocks(np.random.default_rng(52), 0.0)
    alone = climb_blocks([found[0][0]], 2, 1.0, np.random.default_rng(0))[0]
    beside = climb_blocks([M for M, _ in found], 2, 1.0, np.random.default_rng(0))[0]
    assert apart(alone.U @ alone.V.T, beside.U @ beside.V.T) < 1e-8


def test_a_block_of_lower_rank_keeps_it():
    rng = np.random.default_rng(53)
    X = np.outer(rng.standard_normal(20), rng.standard_normal(22))
    X[3, 4] += 5.0
    fit = climb_blocks([ObservedMatrix.from_dense(X)], 3, 1.0, rng)[0]
    assert fit.U.shape == (20, 1)


@pytest.mark.parametrize("rank", [1, 3, 6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_core_climbs_on_blocks_as_the_oracle_does(rank, dtype):
    rng = np.random.default_rng([57, rank])
    blocks = []
    for shape in ((4 * rank + 9, 4 * rank + 7), (4 * rank + 6, 5 * rank + 8)):
        X = rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))
        X += 0.01 * rng.standard_normal(shape)
        X[rng.random(shape) < 0.1] = 6.0
        X[rng.random(shape) < 0.2] = np.nan
        blocks.append(ObservedMatrix.from_dense(X.astype(dtype)))
    numpy, native = (climb_blocks(blocks, rank, 1.0, np.random.default_rng(0), name) for name in ("numpy", "native"))
    for expected, found in zip(numpy, native, strict=True):
        assert apart(found.U @ found.V.T, expected.U @ expected.V.T) < 1e-6
        np.testing.assert_allclose(found.noise, expected.noise, rtol=1e-6)
        np.testing.assert_allclose(found.U.T @ found.U, np.eye(rank), atol=1e-12)


def test_blocks_that_are_none_are_refused():
    M = ObservedMatrix.from_dense(np.ones((6, 6)))
    for rows, columns in (([0, 3, 6], [0, 3, 6]), ([0, 6], [0, 5]), ([0, 0, 6], [0, 3, 6]), ([1, 6], [0, 6])):
        blocks = Blocks(np.array(rows), np.array(columns), np.ones((1, 6)), 1.0)
        with pytest.raises(ValueError, match="block"):
            M.open_sweep("native").fit_blocks(blocks)


def test_a_line_with_few_right_entries_is_found_wherever_they_are():
    """Twelve of 21 entries are right, for a rank of 7."""
    rng = np.random.default_rng(58)
    B = np.linalg.qr(rng.standard_normal((21, 7)))[0]
    v = rng.standard_normal(7)
    x = B @ v
    x[rng.choice(21, 9, replace=False)] += rng.standard_normal(9)
    M = ObservedMatrix.from_dense(x[:, None])
    found = regress_by_subsets(M, B, np.zeros((1, 7)), 1e-5, np.random.default_rng(0), thorough=True)
    np.testing.assert_allclose(found[0], v, atol=1e-8)


def test_a_line_with_hardly_an_entry_is_not_given_wild_coefficients():
    rng = np.random.default_rng(59)
    B = np.linalg.qr(rng.standard_normal((40, 2)))[0]
    B[1] = B[0] + [0.001, -0.002]  # two entries of a line tell next to nothing apart
    C = rng.standard_normal((30, 2))
    X = B @ C.T + 0.01 * rng.standard_normal((40, 30))
    X[2:, 3] = np.nan
    X[1, 3] += 0.1
    M = ObservedMatrix.from_dense(X)
    lines = LineRegression(M, M.open_sweep(), 0.2, learning=False)
    shares = np.ones(30)
    shares[3] = 0.0
    found, _, _ = lines.refit_poorly_explained(B, C, 0.02, shares)
    assert np.linalg.norm(found[3]) < 10 * np.median(np.linalg.norm(C, axis=1))


def test_what_a_block_has_found_is_kept_on_the_whole(structure):
    """Rank 7 of condition 100: regressed in few steps, most of the other rows miss the weak components."""
    problem = structure.draw_problem([structure.SEED, 304], "none", "copies", largest=400)
    r = ls.solve(problem.M, problem.rank)
    assert r.converged
    assert structure.judge(problem, r)[0] == "found"


def test_a_block_that_is_right_explains_others_better_than_one_that_is_not():
    rng = np.random.default_rng(54)
    truth = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 60))
    X = truth.copy()
    X[:12, :12] = 3.0  # a patch, of lower rank than L
    M = ObservedMatrix.from_dense(X)
    left = {}
    for first in (0, 30):
        some = np.arange(first, first + 12)
        fit = climb_blocks([take_block(M, some, some)], 2, 1.0, rng)[0]
        left[first] = prediction_error(M, M.T, Part(some, some, fit.U, fit.V), fit.noise, 1.0, "auto")
    assert left[30] < 1e-6 < 0.1 < left[0]


@pytest.mark.parametrize("rank", [1, 2, 5, 12])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_core_draws_subsets_as_the_oracle_does(rank, dtype):
    rng = np.random.default_rng([55, rank])
    B = np.linalg.qr(rng.standard_normal((50, rank)))[0]
    X = B @ rng.standard_normal((rank, 30))
    wrong = rng.random(X.shape) < 0.3
    X[wrong] += 3 * rng.standard_normal(int(wrong.sum()))
    X[rng.random(X.shape) < 0.2] = np.nan
    X[rank:, 0] = np.nan  # a column with no more entries than the rank keeps what it has
    M = ObservedMatrix.from_dense(X.astype(dtype))
    seeds = rng.integers(2**64, size=30, dtype=np.uint64)
    C = rng.standard_normal((30, rank))
    found = [M.open_sweep(name).fit_subsets(B, C, Draws(seeds, 40, 1e-2, 3e-2, 5.0)) for name in ("numpy", "native")]
    np.testing.assert_allclose(*found, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(found[1][0], C[0])


def test_a_direction_that_most_rows_do_not_have_is_found():
    rng = np.random.default_rng(56)
    F = rng.standard_normal((80, 5)) @ np.diag([1.0, 1.0, 1.0, 1.0, 0.0])
    F[:20, 4] = rng.standard_normal(20)
    turn = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    direction, share = sparsest_direction(F @ turn, rng, 1e-9)
    assert share == 0.25
    assert abs(abs(direction @ turn[4]) - 1) < 1e-9
    assert sparsest_direction(rng.standard_normal((80, 5)), rng, 0.05)[1] > 0.5


@pytest.mark.parametrize("error", ["patch", "stuck", "copies", "clipped"])
def test_numbers_that_are_repeated_are_seen(error, structure):
    errors = importlib.import_module("benchmarks.structured").ERRORS
    rng = np.random.default_rng([57, len(error)])
    X = rng.standard_normal((60, 50))
    before = X.copy()
    errors[error](X, 0.2, rng)
    changed = before != X
    M = ObservedMatrix.from_dense(X)
    ties = Ties(M, M.T)
    assert ties.suspicious
    tied = np.zeros(X.shape, bool)
    tied[M.rows[ties.tied], M.columns_of_entries()[ties.tied]] = True
    assert np.mean(tied[changed]) > 0.9
    assert not tied[~changed & ~np.isin(X, X[changed])].any()
    assert ties.matrix_without().nnz == M.nnz - np.count_nonzero(ties.tied)


def test_round_numbers_are_not_suspicious():
    rng = np.random.default_rng(58)
    numbers = rng.standard_normal((80, 50))
    for X in (rng.integers(1, 6, (40, 50)), np.round(numbers, 1), np.round(100 * numbers), numbers):
        M = ObservedMatrix.from_dense(X.astype(float))
        assert not Ties(M, M.T).suspicious


@pytest.mark.parametrize("seed", range(3))
def test_a_clipped_table_is_found(seed):
    rng = np.random.default_rng([59, seed])
    L = ls.LowRank(rng.standard_normal((90, 2)), rng.standard_normal((2, 70)))
    X = L.to_dense()
    r = ls.solve(np.minimum(X, np.quantile(X, 0.8)), 2)
    assert r.converged
    assert r.L.error(L, relative=True) < 1e-6


def test_numbers_that_are_repeated_are_said():
    rng = np.random.default_rng(61)
    L = ls.LowRank(rng.standard_normal((90, 2)), rng.standard_normal((2, 70)))
    X = L.to_dense() + 0.01 * rng.standard_normal((90, 70))
    X[10:40, 20:60] = 2.5
    r = ls.solve(X, 2)
    assert r.converged
    assert r.L.error(L, relative=True) < 0.01
    assert "about 19.1 % of the entries repeat a number" in r.notes[0]
    assert not ls.solve(np.round(X, 1), 2).notes


@pytest.mark.parametrize("seed", range(2))
def test_wrong_rows_with_many_entries_do_not_hide_those_with_few(seed):
    rng = np.random.default_rng([60, seed])
    L = ls.LowRank(rng.standard_normal((120, 3)), rng.standard_normal((3, 100)))
    X = L.to_dense()
    X[:70, 60:] = X[70:, :45] = np.nan  # two parts that share 15 columns
    wrong = rng.permutation(120)[:20]
    X[wrong] = np.where(np.isnan(X[wrong]), np.nan, 2 * rng.standard_normal((20, 100)))
    r = ls.solve(X, 3)
    right = np.setdiff1d(np.arange(120), wrong)
    assert r.converged
    assert apart(r.L.to_dense()[right], L.to_dense()[right]) < 1e-6


def test_growth_takes_what_it_determines_and_no_more():
    rng = np.random.default_rng(49)
    truth = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 60))
    X = truth.copy()
    X[:30, 36:] = X[36:, :30] = np.nan
    X[40:45] = rng.standard_normal((5, 60))  # rows that nothing explains
    M = ObservedMatrix.from_dense(X)
    left, sizes, right = np.linalg.svd(truth[:20, :20])
    part = Part(np.arange(20), np.arange(20), left[:, :2] * sizes[:2], right[:2].T)
    for _ in range(10):
        larger = grow_part(M, M.T, part, 1e-6, 1.0, caution=1)
        if larger is None:
            break
        part = larger
    assert set(range(60)) - set(part.rows.tolist()) == set(range(40, 45))
    assert part.columns.size == 60
    np.testing.assert_allclose(part.U @ part.V.T, truth[part.rows][:, part.columns], atol=1e-4)


def test_the_prior_shrinks_components_as_the_noise_asks_for():
    """Regressing both sides in turn under it leaves d - m λ / d of a singular value d, and nothing of noise."""
    rng = np.random.default_rng(50)
    m, n, noise = 300, 200, 0.1
    left, right = (np.linalg.qr(rng.standard_normal((k, 3)))[0] for k in (m, n))
    strong = np.array([60.0, 30.0])
    X = (left[:, :2] * strong) @ right[:, :2].T + noise * rng.standard_normal((m, n))
    U, sizes, Vt = np.linalg.svd(X, full_matrices=False)
    U, V = U[:, :3], (sizes[:3, None] * Vt[:3]).T
    from lowsparse.robust.regression import SHRINKAGE, LineRegression

    M = ObservedMatrix.from_dense(X)
    columns, rows = (LineRegression(A, A.open_sweep(), 1.0, learning=False) for A in (M, M.T))
    for _ in range(60):
        V = columns.refit(U, V, 1e6, 1, noise=noise).V
        Q, R = np.linalg.qr(V)
        U, R = np.linalg.qr(rows.refit(Q, U @ R.T, 1e6, 1, noise=noise).V)
        V = Q @ R.T
    found = np.linalg.svd(V, compute_uv=False)
    expected = sizes[:2] - SHRINKAGE * m * noise**2 / sizes[:2]  # the rows were the last
    np.testing.assert_allclose(found[:2], expected, rtol=2e-3)
    assert found[2] < 0.02 * sizes[2]


def test_there_is_no_prior_where_it_would_not_be_felt():
    C = np.random.default_rng(51).standard_normal((100, 2))
    assert Prior.of(C, 1e-9, 1.0) is None
    assert Prior.of(C, 0.5, 1.0) is not None
    assert Prior.of(np.zeros((5, 2)), 0.5, 1.0) is None


def with_group(m, n, rank, group, side, seed, noise=0.0):
    """A matrix of this rank whose last component only a group of the rows, or columns, has; with holes and errors."""
    rng = np.random.default_rng([seed, m, n])
    U, V = rng.standard_normal((m, rank)), rng.standard_normal((n, rank))
    F = U if side == "rows" else V
    F[rng.permutation(len(F))[group:], -1] = 0
    truth = U @ V.T
    X = truth + noise * rng.standard_normal(truth.shape)
    wrong = rng.random(X.shape) < 0.1
    X[wrong] += 5 * rng.standard_normal(int(wrong.sum()))
    X[rng.random(X.shape) < 0.3] = np.nan
    return truth, X


@pytest.mark.parametrize("side", ["rows", "columns"])
@pytest.mark.parametrize(("m", "n", "rank", "group"), [(120, 90, 3, 24), (300, 200, 2, 24), (1200, 700, 4, 40)])
@pytest.mark.parametrize("choose", [False, True])
def test_a_component_that_only_some_lines_have_is_found(m, n, rank, group, side, choose):
    truth, X = with_group(m, n, rank, group, side, seed=11)
    r = ls.solve(X, "auto" if choose else rank)
    assert r.converged
    assert r.L.U.shape[1] == rank
    assert r.L.error(truth, relative=True) < 1e-6


@cache
def solved_beside_a_pattern(seed):
    """The answer to such a problem in which a sixth of the entries are wrong in a pattern of rank 1, and the truth."""
    rng = np.random.default_rng(seed)
    truth, _ = with_group(100, 70, 4, 16, "columns", seed)
    rows, columns = rng.permutation(100)[:40], rng.permutation(70)[:28]
    X = truth.copy()
    X[np.ix_(rows, columns)] += np.outer(3 * rng.standard_normal(40), rng.standard_normal(28))
    return ls.solve(X, 4), truth


PATTERNS = [1, 3, 5, 10, 0, 2, 4, 6]  # seeds


@pytest.mark.parametrize("seed", PATTERNS)
def test_such_a_component_is_found_where_errors_go_together(seed):
    """An exact fit of the full rank spends a component on errors that have the structure of what is sought."""
    r, truth = solved_beside_a_pattern(seed)
    assert r.L.error(truth, relative=True) < 1e-6


missed = pytest.mark.xfail(strict=False, reason="on some processors two further searches miss it: right, but STALLED")


@pytest.mark.parametrize("seed", [pytest.param(PATTERNS[0], marks=missed), *PATTERNS[1:]])
def test_what_is_found_where_errors_go_together_is_promised(seed):
    assert solved_beside_a_pattern(seed)[0].converged


def test_rows_that_have_nothing_in_common_are_no_group():
    rng = np.random.default_rng(13)
    truth = rng.standard_normal((150, 3)) @ rng.standard_normal((3, 100))
    X = truth.copy()
    X[:25] = 2 * rng.standard_normal((25, 100))
    r = ls.solve(X, "auto")
    assert r.converged
    assert r.L.U.shape[1] == 3
    assert np.abs(r.L.to_dense() - truth)[25:].max() < 1e-6


def test_a_group_is_found_from_one_of_its_lines():
    """In spite of errors in a fifth of the entries, and of as many lines that are not of the group."""
    rng = np.random.default_rng(14)
    B = np.linalg.qr(rng.standard_normal((60, 3)))[0]
    w = rng.standard_normal(60)
    X = B @ rng.standard_normal((3, 40)) * 8 + np.outer(w, rng.standard_normal(40))
    X[:, 20:] = 3 * rng.standard_normal((60, 20))
    wrong = rng.random((60, 20)) < 0.2
    X[:, :20][wrong] += 4 * rng.standard_normal(int(wrong.sum()))
    group = Group(ObservedMatrix.from_dense(X), B, 1e-3, 1.0, "auto")
    start = group.best_candidate(np.random.default_rng(1))
    assert start is not None
    found, fit = group.fit(start)
    w -= B @ (B.T @ w)
    assert abs(found @ w) / np.linalg.norm(w) > 1 - 1e-9
    np.testing.assert_array_equal(fit.explained, np.arange(20))


def test_lines_of_zeros_are_no_group():
    """Poorly explained lines most entries of which are zero."""
    rng = np.random.default_rng(15)
    truth = rng.standard_normal((120, 2)) @ rng.standard_normal((2, 80))
    X = truth.copy()
    X[:15] = np.where(rng.random((15, 80)) < 0.3, 3 * rng.standard_normal((15, 80)), 0.0)
    r = ls.solve(X, 4)
    assert np.abs(r.L.to_dense() - truth)[15:].max() < 1e-6


def test_lines_without_finite_coefficients_are_not_added_to_a_part(monkeypatch):
    rng = np.random.default_rng(78)
    U, V = rng.standard_normal((40, 2)), rng.standard_normal((30, 2))
    M = ObservedMatrix.from_dense(U @ V.T)
    regress = LineRegression.fit_with_subsets

    def sometimes_singular(self, B, c, **options):
        C, inside = regress(self, B, c, **options)
        C[::3] = np.nan, np.inf
        return C, inside

    monkeypatch.setattr(LineRegression, "fit_with_subsets", sometimes_singular)
    part = Part(np.arange(12), np.arange(10), U[:12], V[:10])
    larger = grow_part(M, M.T, part, 1e-6, 1.0, 2)
    assert 12 < larger.rows.size < 40
    assert np.isfinite(larger.U).all()
    assert np.isfinite(larger.V).all()
