"""Held-out entries: no entry is in both parts, and choosing by them finds the truth."""

import numpy as np
import pytest

import lowsparse as ls
from conftest import robust_problem
from lowsparse.robust.holdout import error_bound


def entries(rows, columns, values):
    return set(zip(rows.tolist(), columns.tolist(), values.tolist(), strict=True))


def test_a_holdout_parts_the_entries():
    M = robust_problem().M
    split = ls.holdout(M, 0.2, random_state=3)
    held_out = entries(split.rows, split.columns, split.values)
    seen = entries(split.M.rows, split.M.columns_of_entries(), split.M.values)
    assert not held_out & seen
    assert held_out | seen == entries(M.rows, M.columns_of_entries(), M.values)
    assert len(held_out) == round(0.2 * M.nnz)


def test_a_line_that_has_entries_keeps_one():
    rng = np.random.default_rng(5)
    rows, columns = np.unique(rng.integers(40, size=(60, 2)), axis=0).T
    M = ls.ObservedMatrix.from_coo(rows, columns, np.ones(rows.size))
    split = ls.holdout(M, 0.9, random_state=1)
    assert split.values.size
    assert ((split.M.row_counts > 0) == (M.row_counts > 0)).all()
    assert ((split.M.column_counts > 0) == (M.column_counts > 0)).all()


def test_the_same_seed_holds_out_the_same():
    M = robust_problem().M
    first, again, other = (ls.holdout(M, 0.1, random_state=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.rows, again.rows)
    assert not np.array_equal(first.rows, other.rows)


def test_an_error_counts_up_to_the_bound():
    problem = robust_problem(outliers=0.2, outlier_size=1e6)
    split = ls.holdout(problem.M, 0.2)
    error = split.error(problem.L)  # the truth, but a fifth of what was held out is wrong
    wrong = np.mean(np.abs(split.residual(problem.L)) > 1e-9)
    assert error == pytest.approx(wrong * split.bound, rel=0.02)
    assert split.bound < 10 * np.median(np.abs(problem.M.values))


def test_the_bound_is_not_zero():
    assert error_bound(np.array([2.0, 2.0, 2.0, 5.0])) == 5.0
    assert error_bound(np.zeros(4)) == 1.0


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, np.nan])
def test_a_share_that_is_none_is_refused(fraction):
    with pytest.raises(ValueError, match="between 0 and 1"):
        ls.holdout(robust_problem().M, fraction)


@pytest.mark.slow
def test_cross_validation_finds_rank_and_method():
    problem = robust_problem(80, 70, rank=3, density=0.8, noise=0.05)
    found = ls.cross_validate(problem.M, [1, 2, 3, 4, 5], folds=3)
    assert found.best.rank >= 3
    assert found.best.error > 0.999 * found[2].error  # more than the rank does no harm, and no good
    assert found.simplest.rank == 3
    assert [candidate.rank for candidate in found] == [1, 2, 3, 4, 5]
    assert found[2].error < 0.5 * found[1].error

    methods = ls.cross_validate(problem.M, 3, method=["rtrmc", "ladder"], folds=3)
    assert methods.best.method == "ladder"  # the other is least squares, and there are outliers
    assert "rtrmc" in str(methods)
    assert len(methods.rows()) == 2


@pytest.mark.slow
def test_what_is_predicted_was_not_seen():
    # noise has no structure: what is fitted predicts it worse than zero does, and what is shrunk no better
    x = np.random.default_rng(8).standard_normal((40, 40))
    zero = ls.LowRank(np.zeros((40, 1)), np.zeros((1, 40)))
    split = ls.holdout(x, 0.2)
    assert ls.cross_validate(x, 8, method="amanpgc", folds=2).best.error > 1.1 * split.error(zero)
    assert ls.cross_validate(x, 8, folds=2).best.error > 0.97 * split.error(zero)


def test_the_callback_hears_of_every_fit():
    heard = []
    ls.cross_validate(robust_problem().M, [1, 2], folds=2, callback=lambda done, of: heard.append((done, of)))
    assert heard == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"rank": 1, "folds": 1}, "folds"),
        ({"rank": []}, "nothing to compare"),
        ({"rank": 1, "method": []}, "nothing to compare"),
        ({"rank": 1, "folds": 3000}, "too few"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        ls.cross_validate(robust_problem().M, **arguments)
