"""The second search of small tables: what it takes back, what it finds, and that it can be left and resumed."""

import importlib

import numpy as np
import pytest

import lowsparse as ls
from conftest import as_problem, relative
from lowsparse.entries.observed import ObservedMatrix
from lowsparse.solvers.ladder import Ladder, second, whole
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


def noisy_with_a_patch(noise):
    """A table of rank 2 and size about 1, of which a patch is wrong."""
    rng = np.random.default_rng(11)
    X = rng.standard_normal((70, 2)) @ rng.standard_normal((2, 60)) + noise * rng.standard_normal((70, 60))
    X[:14, :15] += 6.0
    return X


@pytest.mark.parametrize(("noise", "many", "searches"), [(0.02, 4000, 2), (0.4, 4000, 1), (0.4, second.MANY, 2)])
def test_what_is_noisy_and_has_many_entries_is_searched_once(noise, many, searches, monkeypatch):
    monkeypatch.setattr(second, "MANY", many)
    r = ls.solve(noisy_with_a_patch(noise), 2)
    assert r.converged
    assert ("second search" in r.message) == (searches == 2)


def test_attempts_that_differ_by_less_than_noise_makes_of_a_fit_need_no_more_of_them(monkeypatch):
    begun, begin = [], Ladder._begin
    monkeypatch.setattr(Ladder, "_begin", lambda self, state, k: begun.append(k) or begin(self, state, k))
    assert ls.solve(noisy_with_a_patch(0.4), 2, method=Ladder(searches=1)).converged
    assert len(begun) == 3  # one at the rank, and two that grow


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


@pytest.mark.slow
def test_what_the_second_search_has_missed_a_third_confirms_and_it_can_be_resumed(structure, tmp_path):
    problem = structure.draw_problem([40404, 76], "rounds", "rows", factors="grouped", largest=110)
    twice, thrice = (ls.solve(problem.M, problem.rank, method=Ladder(searches=n)) for n in (2, 3))
    assert twice.converged
    assert "found the same" not in twice.message
    assert thrice.message.endswith("found the same")
    at = tmp_path / "at.npz"
    ls.solve(problem.M, problem.rank, max_iter=twice.n_iter, checkpoint=at)
    resumed = ls.solve(problem.M, problem.rank, resume=at)
    assert resumed.n_iter == thrice.n_iter > twice.n_iter
    np.testing.assert_array_equal(resumed.L.to_dense(), thrice.L.to_dense())
    assert structure.judge(problem, resumed)[0] == "found"


@pytest.fixture
def other_units():
    """Exact data of rank 2, of which half of three columns is in other units."""
    rng = np.random.default_rng(21)
    L = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 40))
    X = L.copy()
    for j in (4, 11, 30):
        X[rng.permutation(60)[:30], j] *= 10.0
    return X, L


def test_columns_that_can_be_fitted_in_two_ways_are_said_and_the_others_are_right(other_units):
    X, L = other_units
    r = ls.solve(X, 2)
    assert r.converged
    assert r.ambiguous == ((), (4, 11, 30))
    assert "3 of 40 columns can be fitted in two ways (result.ambiguous): L is not determined there" in r.notes
    determined = r.determined(*np.indices(L.shape))
    np.testing.assert_array_equal(determined, np.tile(~np.isin(np.arange(40), (4, 11, 30)), (60, 1)))
    assert np.isinf(r.standard_error(0, 11))
    np.testing.assert_allclose(r.L.to_dense()[determined], L[determined], atol=1e-8)


def test_a_column_with_fewer_wrong_than_right_entries_is_not_ambiguous(other_units):
    X, L = other_units
    for j in (4, 11, 30):
        X[np.flatnonzero(X[:, j] != L[:, j])[:8], j] = L[np.flatnonzero(X[:, j] != L[:, j])[:8], j]
    r = ls.solve(X, 2)
    assert r.converged
    assert r.ambiguous == ((), ())
    assert relative(r.L, L) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize(("number", "hole", "error"), [(129, "hinge", "columns"), (219, "chain", "copies")])
def test_lines_that_are_wrong_as_a_whole_do_not_keep_it_from_a_promise(structure, number, hole, error):
    factors = "grouped" if number == 129 else "normal"
    problem = structure.draw_problem([828282, number], hole, error, factors=factors, largest=260)
    r = ls.solve(problem.M, problem.rank)
    assert r.converged
    assert structure.judge(problem, r)[0] == "found"
    wrong = np.concatenate(r.ambiguous).astype(int)
    assert wrong.size
    assert not problem.determined[wrong].any() if number == 219 else not problem.determined[:, wrong].any()


def test_an_answer_in_another_order_is_put_back():
    rng = np.random.default_rng(6)
    L = rng.standard_normal((7, 2)) @ rng.standard_normal((2, 5))
    rows, columns = second.orders(L.shape, 1)
    other = L[np.ix_(rows, columns)].T
    U, s, Vt = np.linalg.svd(other, full_matrices=False)
    ambiguous = (1,), (0, 4)  # rows and columns of the other
    back = second.in_order(Answer(U=U[:, :2], V=(s[:2, None] * Vt[:2]).T, ambiguous=ambiguous), 1)
    np.testing.assert_allclose(back.U @ back.V.T, L, atol=1e-12)
    assert back.ambiguous == ((rows[0], rows[4]), (columns[1],))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_other_order_has_the_same_entries(dtype):
    X = np.arange(12, dtype=dtype).reshape(4, 3)
    X[1, 2] = X[3, 0] = np.nan
    M = ObservedMatrix.from_dense(X)
    seen = []

    class Watched(Ladder):
        def init(self, problem):
            seen.append(second.shuffled(problem, 1))
            return super().init(problem)

    ls.solve(M, 1, method=Watched())
    rows, columns = second.orders(M.shape, 1)
    np.testing.assert_array_equal(seen[0].M.to_dense(), X[np.ix_(rows, columns)].T)
    assert seen[0].M.dtype == dtype


def test_a_start_that_is_given_is_not_second_guessed(misleading):
    U = np.linalg.qr(misleading.L.U)[0]
    r = ls.solve(misleading.M, misleading.rank, start=U)
    assert "second search" not in r.message


@pytest.fixture
def two_answers():
    """What two answers explain of 40 x 30 entries: all, but for a row of which each explains other entries."""
    rng = np.random.default_rng(7)
    M = ObservedMatrix.from_dense(rng.standard_normal((40, 30)))
    return M, [np.where(M.rows == 3, rng.random(M.nnz) < 0.3, True) for _ in range(2)]


def ambiguous(M, by, known=((), ())):
    return second.ambiguous_lines(M, by, by[0] != by[1], 2, known)


def test_a_line_that_neither_of_two_answers_explains_is_ambiguous(two_answers):
    M, by = two_answers
    assert ambiguous(M, by) == ((3,), ())
    by[1] = by[0]
    assert ambiguous(M, by, ((), (5,))) == ((), (5,))


def test_two_answers_differ_if_one_explains_lines_that_the_other_does_not(two_answers):
    M, by = two_answers
    group = M.rows < 3
    by[1] = by[1] & ~group
    assert ambiguous(M, by) is None
    assert ambiguous(M, by, ((0, 1, 2), ())) == ((0, 1, 2, 3), ())


def test_more_lines_may_be_in_doubt_where_two_answers_are_the_same(two_answers):
    M, by = two_answers
    by[1] = by[0]
    doubted = tuple(range(12))  # three tenths of the entries
    assert ambiguous(M, by, (doubted, ())) == (doubted, ())
    assert ambiguous(M, by, (tuple(range(24)), ())) is None
    by[1] = by[0] & ~(M.rows < 2)
    assert ambiguous(M, by, (doubted, ())) is None


def test_two_that_are_the_same_with_most_lines_in_doubt_are_not_said_to_differ():
    X, truth = table_with_patch()
    X[::2, 10:45] *= -1.0  # half of most columns has the other sign
    state, _ = settled(X, answer(truth), answer(truth))
    assert state.failure == "stalled"
    assert "has found the same L, but other coefficients" in state.advice


def table_with_patch(m=60, n=50):
    """A table of rank 2 with a patch that is wrong, and the truth."""
    rng = np.random.default_rng(8)
    truth = ls.LowRank(np.linalg.qr(rng.standard_normal((m, 2)))[0], 8 * rng.standard_normal((2, n)))
    X = truth.to_dense() + 0.01 * rng.standard_normal(truth.shape)
    X[: m // 4, : n // 5] += 5.0
    return X, truth


def settled(X, *answers, search=1, failure=""):
    """What is made of an answer, and of one that the second search, or the third, has found."""
    problem = as_problem(ObservedMatrix.from_dense(X), 2, given=False)
    ladder = Ladder()
    state = ladder.init(second.shuffled(problem, search))
    state.search, state.first = search, answers[0]
    rows, columns = second.orders(problem.M.shape, search)
    vars(state).update(vars(answers[1]))
    state.U, state.V, state.failure = answers[1].V[columns], answers[1].U[rows], failure
    return second.settle(state, ladder._views(problem))


def answer(L, **given):
    """An answer that says it is right, unless something else is given."""
    return Answer(**({"U": L.U, "V": L.V.T, "noise": 0.01, "finished": "an exact fit"} | given))


def test_two_that_differ_where_neither_explains_the_entries_are_not_the_same():
    X, truth = table_with_patch()
    other = truth.to_dense()
    other[:15, :10] += 2.0  # of rank 3
    U, s, Vt = np.linalg.svd(other, full_matrices=False)
    other = ls.LowRank(U[:, :3], s[:3, None] * Vt[:3])
    assert settled(X, answer(truth), answer(truth))[0].finished
    state, _ = settled(X, answer(truth), answer(other))
    assert state.failure == "stalled"
    assert "has found another L" in state.advice


@pytest.mark.parametrize(
    ("shape", "promised", "taken"), [((60, 50), True, True), ((16, 18), True, False), ((16, 18), False, True)]
)
def test_what_explains_far_more_is_searched_for_once_more_unless_the_other_is_a_promise_and_entries_are_few(
    shape, promised, taken
):
    X, truth = table_with_patch(*shape)
    U, s, Vt = np.linalg.svd(truth.to_dense(), full_matrices=False)
    given = {} if promised else {"finished": "", "advice": "no"}
    less = answer(ls.LowRank(U[:, :1], s[:1, None] * Vt[:1]), **given)
    state, due = settled(X, answer(truth), less)
    assert bool(state.finished) == due == taken
    np.testing.assert_allclose(state.U @ state.V.T, truth.to_dense(), atol=1e-9)
    assert settled(X, answer(truth), less, search=2)[0].failure == "stalled"
    assert settled(X, answer(truth), answer(truth), search=2)[0].finished.endswith("found the same")


@pytest.mark.parametrize("search", [1, 2])
def test_what_a_third_search_could_not_confirm_is_no_promise(search):
    X, truth = table_with_patch()
    state, _ = settled(X, answer(truth), answer(truth), search=search, failure="diverged")
    assert (state.failure == "stalled") == (search == 2)
    assert ("two others" in state.advice) == (search == 2)


@pytest.mark.parametrize(("noise", "agreed"), [(0.01, True), (0.5, False)])
def test_two_searches_in_doubt_confirm_each_other_only_in_a_close_fit(noise, agreed):
    X, truth = table_with_patch()
    doubtful = answer(truth, noise=noise, finished="", advice=second.NO_AGREEMENT, supported=True)
    assert bool(settled(X, doubtful, doubtful)[0].finished) == agreed


def test_passes_over_a_small_table_that_do_not_come_to_rest_end(monkeypatch):
    monkeypatch.setattr(whole, "MOST_PASSES", 2)
    r = ls.solve(noisy_with_a_patch(0.02), 2, method=Ladder(searches=1))
    assert r.status is ls.Status.STALLED
    assert "2 passes over all entries have not brought L to rest" in r.message
