"""The Grassmann manifold, and where a solve starts on it."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from scipy.sparse.linalg import svds

import lowsparse as ls
from conftest import PAPER, opened, orthonormal, robust_problem, tangent_part
from lowsparse.linalg.grassmann import qf, retract
from lowsparse.solvers.start import generator, left_singular_vectors, starting_subspace

SHAPES = [(8, 3), (30, 1), (5, 5), (1, 1), (40, 20)]


def assert_orthonormal(Q, tol=1e-13):
    np.testing.assert_allclose(Q.T @ Q, np.eye(Q.shape[1]), rtol=0, atol=tol)


def tangent(U, seed=3):
    return tangent_part(U, np.random.default_rng(seed).standard_normal(U.shape))


# ---------------------------------------------------------------------- geometry


@pytest.mark.parametrize(("m", "r"), SHAPES)
@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_qf_is_the_q_of_a_qr_with_positive_diagonal(m, r, scale):
    A = scale * np.random.default_rng(1).standard_normal((m, r))
    Q = qf(A)
    assert_orthonormal(Q, 1e-12)
    R = Q.T @ A
    np.testing.assert_allclose(Q @ R, A, rtol=0, atol=1e-12 * np.abs(A).max())
    np.testing.assert_allclose(np.tril(R, -1), 0, atol=1e-12 * np.abs(A).max())
    assert (np.diag(R) > 0).all()


@pytest.mark.parametrize("condition", [1e2, 1e5, 1e8, 1e11])
def test_qf_is_orthonormal_however_badly_conditioned(condition):
    rng = np.random.default_rng(2)
    A = orthonormal(40, 6) * np.geomspace(1, 1 / condition, 6) @ np.linalg.qr(rng.standard_normal((6, 6)))[0]
    assert_orthonormal(qf(A), 1e-12)
    assert (np.diag(qf(A).T @ A) > 0).all()


@pytest.mark.parametrize("r", [10, 20, 40])
def test_qf_is_orthonormal_where_the_diagonal_hides_the_condition(r):
    # R has the diagonal 1 and the condition 2^r: its diagonal says nothing of it
    A = orthonormal(60, r) @ (np.eye(r) - np.triu(np.ones((r, r)), 1))
    assert_orthonormal(qf(A), 1e-12)


def test_qf_of_a_deficient_matrix_is_still_a_basis():
    A = np.repeat(orthonormal(9, 1), 3, axis=1)
    for deficient in (A, 0 * A):
        Q = qf(deficient)
        assert_orthonormal(Q)
        np.testing.assert_allclose(Q @ (Q.T @ deficient), deficient, atol=1e-14)


def moved(U, H, **options):
    return retract(U, H, H.T @ H, **options)[0]


@pytest.mark.parametrize("size", [1e-3, 0.3, 3.0])
def test_the_retraction_is_qf_however_it_is_made(size):
    U = orthonormal(30, 4)
    H = size * tangent(U)
    U_new, inverse = retract(U, H, H.T @ H)
    np.testing.assert_allclose(U_new, qf(U + H), atol=1e-13)
    np.testing.assert_allclose(moved(U, H, exact=True), qf(U + H), atol=1e-15)
    np.testing.assert_allclose((U + H) @ inverse, qf(U + H), atol=1e-12)


@pytest.mark.parametrize("method", ["amanpg", "amanpgc"])
def test_many_steps_leave_an_orthonormal_basis(method):
    r = ls.solve(robust_problem().M, 3, method=method, tol=0, max_iter=300)
    assert r.n_iter > 100
    assert_orthonormal(r.L.U, 1e-14)


@pytest.mark.parametrize(("m", "r"), [(8, 3), (30, 1), (40, 20)])
def test_the_retraction_moves_along_its_argument(m, r):
    U, H, t = orthonormal(m, r), tangent(orthonormal(m, r)), 1e-5
    np.testing.assert_allclose(moved(U, 0 * H), U, atol=1e-14)
    assert_orthonormal(moved(U, 100 * H), 1e-12)
    np.testing.assert_allclose((moved(U, t * H) - moved(U, -t * H)) / (2 * t), H, atol=1e-7)


def test_the_papers_literal_retraction_is_half_the_step():
    # Retr_U(U + H) with Retr_U(H) = qf(U + H) is qf(2U + H): trap S1
    U, H, t = orthonormal(20, 3), tangent(orthonormal(20, 3)), 1e-5
    literal = (qf(U + (U + t * H)) - qf(U + (U - t * H))) / (2 * t)
    ours = (moved(U, t * H) - moved(U, -t * H)) / (2 * t)
    np.testing.assert_allclose(literal, H / 2, atol=1e-7)
    np.testing.assert_allclose(ours, 2 * literal, atol=1e-7)


@pytest.mark.parametrize("method", PAPER)
def test_one_iteration_moves_u_by_the_whole_step(method):
    # through the public door: U¹ - U⁰ is ΔU to first order, not half of it
    M = robust_problem().M
    kind = type(ls.solvers.from_name(method))
    U = orthonormal(M.shape[0], 3)
    r = ls.solve(M, 3, method=kind(t_U=1e-9, backtracking=False), start=U, tol=0, max_iter=1)
    assert np.linalg.norm(r.L.U - U) == pytest.approx(r.trace["dU"][0], rel=1e-5)


# ---------------------------------------------------------------------- the start


def low_rank_entries(m, n, rank, seed=5):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))


def singular(A, backend, rank, **arguments):
    M = ls.ObservedMatrix.from_dense(A)
    return left_singular_vectors(opened(M, backend), A.shape[0], rank, generator(11), **arguments)


@pytest.mark.parametrize(("m", "n", "rank"), [(80, 60, 4), (30, 200, 2), (200, 30, 3), (25, 20, 1)])
def test_the_start_agrees_with_scipys_svds(backend, m, n, rank):
    A = low_rank_entries(m, n, rank) + 0.1 * np.random.default_rng(6).standard_normal((m, n))
    A[np.random.default_rng(7).random((m, n)) < 0.1] = np.nan
    U_best, s_best, _ = svds(np.nan_to_num(A), k=rank, random_state=1)
    U, s = singular(A, backend, rank, tol=1e-9, max_passes=200)
    assert_orthonormal(U)
    assert np.sin(subspace_angles(U, U_best)).max() < 1e-7
    np.testing.assert_allclose(s, s_best[::-1], rtol=1e-9)
    quick, s_quick = singular(A, backend, rank)
    assert np.sin(subspace_angles(quick, U_best)).max() < 0.02
    np.testing.assert_allclose(s_quick, s_best[::-1], rtol=1e-2)


@pytest.mark.parametrize(("m", "n", "true_rank", "rank"), [(20, 15, 2, 4), (20, 15, 1, 15), (6, 30, 2, 6)])
def test_a_start_beyond_the_rank_of_the_data_holds_all_of_it(backend, m, n, true_rank, rank):
    A = low_rank_entries(m, n, true_rank)
    U, s = singular(A, backend, rank)
    assert_orthonormal(U, 1e-12)
    np.testing.assert_allclose(U @ (U.T @ A), A, atol=1e-6)
    np.testing.assert_allclose(s[true_rank:], 0, atol=1e-6 * s[0])


@pytest.mark.parametrize(("m", "n"), [(1, 7), (7, 1), (5, 5), (4, 9), (9, 4)])
def test_a_start_of_full_rank_has_all_singular_values(backend, m, n):
    A = low_rank_entries(m, n, min(m, n))
    U, s = singular(A, backend, min(m, n), tol=1e-10, max_passes=500)
    assert_orthonormal(U)
    np.testing.assert_allclose(s, np.linalg.svd(A, compute_uv=False), rtol=1e-6)


def test_a_start_on_nothing_but_zeros_is_a_basis(backend):
    U, s = singular(np.zeros((6, 4)), backend, 2)
    assert_orthonormal(U)
    assert not s.any()


@pytest.mark.parametrize("seed", [0, 1, 42, 2**40])
def test_the_solvers_numbers_are_never_those_of_the_datas_seed(seed):
    own = generator(seed).standard_normal(1000)
    assert not np.intersect1d(own, np.random.default_rng(seed).standard_normal(100_000)).size
    np.testing.assert_array_equal(own, generator(np.int64(seed)).standard_normal(1000))


def test_a_generator_is_used_as_it_is():
    rng = np.random.default_rng(9)
    assert generator(rng) is rng
    assert generator(None).random() != generator(None).random()


@pytest.mark.parametrize("state", [-1, 1.5, True, "0", [1, 2]])
def test_a_random_state_that_is_none_is_refused(state):
    with pytest.raises(ValueError, match="random_state must be a whole number"):
        generator(state)


def test_a_start_can_be_given():
    M = robust_problem(20, 15, rank=2).M
    U = np.random.default_rng(10).standard_normal((20, 2))
    V = np.ones((2, 15))
    lowrank = ls.LowRank(U, V)
    result = ls.solve(M, 2, max_iter=2)
    for start, expected in [(U, U), (U.tolist(), U), (lowrank, U), (result, result.L.U)]:
        found = starting_subspace(start, opened(M), 20, 2, generator(0))
        assert_orthonormal(found)
        assert subspace_angles(found, expected).max() < 1e-7
    column = starting_subspace(U[:, :1], opened(M), 20, 1, generator(0))
    np.testing.assert_allclose(column, U[:, :1] / np.linalg.norm(U[:, 0]), atol=1e-15)


def test_a_random_start_is_random_and_reproducible():
    sweep = opened(robust_problem(20, 15).M)
    first, again, other = (starting_subspace("random", sweep, 20, 2, generator(s)) for s in (1, 1, 2))
    assert_orthonormal(first)
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("warm", "unknown start 'warm': choose 'svd' or 'random'"),
        (np.ones((15, 2)), r"the start has shape \(15, 2\), but U is 20 x 2"),
        (np.ones((20, 3)), r"the start has shape \(20, 3\)"),
        (np.ones((20, 2)), "of full column rank 2"),
        (np.full((20, 2), np.nan), "finite"),
        (ls.LowRank(np.ones((20, 1)), np.ones((1, 15))), r"the start has shape \(20, 1\)"),
    ],
)
def test_a_start_that_does_not_fit_is_refused(start, message):
    with pytest.raises(ValueError, match=message):
        ls.solve(robust_problem(20, 15).M, 2, start=start)
