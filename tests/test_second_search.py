"""The second search of small tables: what it takes back, what it finds, and that it can be left and resumed."""

import importlib

import numpy as np
import pytest

import lowsparse as ls
from conftest import relative
from lowsparse.entries.observed import ObservedMatrix
from lowsparse.solvers.ladder import Ladder, second
from lowsparse.solvers.ladder.state import Answer


@pytest.fixture(scope="module")
def structure():
    pytest.importorskip("matplotlib")
    return importlib.import_module("benchmarks.structure")


@pytest.fixture(scope="module")
def misleading(structure):
    """A table on which all attempts of the first search agree on an L that is wrong."""
    return structure.draw_problem([818282, 250], "power law", "units", factors="some lines", largest=260)


@pytest.mark.parametrize(
    ("number", "hole", "error"),
    [(1641, "none", "other matrix"), (469, "power law", "turned"), (250, "power law", "units")],
)
def test_what_one_search_promises_in_vain_a_second_finds_or_takes_back(structure, number, hole, error):
    problem = structure.draw_problem([818282, number], hole, error, factors="some lines", largest=260)
    alone, twice = (ls.solve(problem.M, problem.rank, method=Ladder(searches=n)) for n in (1, 2))
    assert alone.converged
    assert structure.judge(problem, alone)[0] == "missed"
    found = structure.judge(problem, twice)[0] == "found"
    assert found == (number != 250) == twice.converged
    assert found or "a second search, with rows and columns in another order, has found another L" in twice.message


def test_what_is_scattered_is_searched_once():
    problem = ls.datasets.synthetic(120, 100, rank=2, density=0.8, outliers=0.1, noise=0.02, random_state=4)
    once, twice = (ls.solve(problem.M, 2, method=Ladder(searches=n)) for n in (1, 2))
    assert once.n_iter == twice.n_iter
    assert twice.converged
    assert "second search" not in twice.message


def test_what_was_found_is_confirmed():
    problem = ls.datasets.synthetic(60, 50, rank=2, density=1.0, outliers=0.05, noise=0.02, random_state=5)
    X = problem.M.to_dense()
    X[:12, :15] += 4.0  # a patch
    r = ls.solve(X, 2)
    assert r.converged
    assert r.message.endswith("a second search has found the same")
    assert relative(r.L, problem.L.to_dense()) < 0.02


def test_left_during_the_second_search_the_answer_is_that_of_the_first(misleading, tmp_path):
    first = ls.solve(misleading.M, misleading.rank, method=Ladder(searches=1))
    at, shapes = tmp_path / "at.npz", set()
    left = ls.solve(
        misleading.M,
        misleading.rank,
        max_iter=first.n_iter,
        checkpoint=at,
        callback=lambda progress: shapes.add(progress.lowrank().shape),
    )
    assert left.status is ls.Status.MAX_ITER
    assert shapes == {misleading.M.shape}
    np.testing.assert_array_equal(left.L.to_dense(), first.L.to_dense())
    resumed, whole = (ls.solve(misleading.M, misleading.rank, resume=path) for path in (at, None))
    assert resumed.message == whole.message
    assert resumed.n_iter == whole.n_iter > first.n_iter
    np.testing.assert_array_equal(resumed.L.to_dense(), whole.L.to_dense())


def test_an_answer_in_another_order_is_put_back():
    rng = np.random.default_rng(6)
    L = rng.standard_normal((7, 2)) @ rng.standard_normal((2, 5))
    rows, columns = second.orders(L.shape)
    other = L[np.ix_(rows, columns)].T
    U, s, Vt = np.linalg.svd(other, full_matrices=False)
    back = second.in_order(Answer(U=U[:, :2], V=(s[:2, None] * Vt[:2]).T))
    np.testing.assert_allclose(back.U @ back.V.T, L, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_other_order_has_the_same_entries(dtype):
    X = np.arange(12, dtype=dtype).reshape(4, 3)
    X[1, 2] = X[3, 0] = np.nan
    M = ObservedMatrix.from_dense(X)
    seen = []

    class Watched(Ladder):
        def init(self, problem):
            seen.append(second.shuffled(problem))
            return super().init(problem)

    ls.solve(M, 1, method=Watched())
    rows, columns = second.orders(M.shape)
    np.testing.assert_array_equal(seen[0].M.to_dense(), X[np.ix_(rows, columns)].T)
    assert seen[0].M.dtype == dtype


def test_a_start_that_is_given_is_not_second_guessed(misleading):
    U = np.linalg.qr(misleading.L.U)[0]
    r = ls.solve(misleading.M, misleading.rank, start=U)
    assert "second search" not in r.message


def test_of_two_answers_lines_count_that_one_explains():
    rng = np.random.default_rng(7)
    M = ObservedMatrix.from_dense(rng.standard_normal((40, 30)))
    one = np.ones(M.nnz, bool)
    arbitrary, group = one.copy(), one.copy()
    arbitrary[M.rows == 3] = rng.random(30) < 0.3
    both = [np.where(M.rows == 3, rng.random(M.nnz) < 0.3, one), arbitrary]
    assert second._explain_same(M, both, 2)
    group[M.rows < 4] = False  # lines that only one of them explains
    assert not second._explain_same(M, [one, group], 2)
