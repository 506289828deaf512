"""Every method, by one table: what it reaches on the standard problems, and what all of them owe their users."""

import dataclasses
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

import lowsparse as ls
from conftest import ANYWHERE, OWN, on_entries, relative
from lowsparse import Status
from lowsparse.solvers import from_name


@dataclass(frozen=True)
class Method:
    """How to call a method here, and the relative errors it must reach; None: it is not made for that problem."""

    name: str
    A: float | None = None  # 300 x 300, rank 5, 30 % observed, a tenth of that wrong by N(0, 1)
    B: float | None = None  # the same, wrong by up to 10 either way
    full: float | None = None  # B with every entry observed
    clean: float | None = None  # A without outliers
    parameters: tuple = ()  # what it has no default for
    symmetric: bool = True  # the transposed problem has the transposed answer
    max_iter: int = 500

    def solver(self, **more):
        return from_name(self.name).set_params(**(dict(self.parameters) | more))


# a new method: one line here
METHODS = [
    Method("ladder", A=1e-6, B=1e-6, full=1e-6, clean=1e-6),
    Method("manpg", A=1e-2, B=1e-2, full=1e-2, clean=1e-2),
    Method("amanpg", A=1e-2, B=1e-2, full=1e-2, clean=1e-2),
    Method("manpgc", A=1e-6, B=1e-6, full=1e-6, clean=1e-6),
    Method("amanpgc", A=1e-6, B=1e-6, full=1e-6, clean=1e-6),
    Method("rmc", A=1e-6, B=1e-6, full=1e-6, clean=1e-6),
    Method("lmafit", A=1e-6, B=1e-6, full=1e-6, clean=1e-6),
    Method("subgm", A=1e-5, B=1e-5, full=1e-5, clean=1e-5),
    Method("grasta", A=1e-6, B=1e-6, full=1e-6, clean=1e-6),
    Method("irls", A=1e-6, B=1e-6, full=1e-6, clean=1e-6),
    Method("hq", A=1e-6, B=1e-6, full=1e-6, clean=1e-6),
    Method("lp", A=1e-6, B=1e-6, full=1e-6, clean=1e-6),
    Method("convex", full=1e-5),
    Method("pcp", full=1e-5),
    Method("accaltproj", full=1e-5),
    Method("hankel", symmetric=False),
    Method("rpca_gd", A=1e-6, B=1e-6, full=1e-6, clean=1e-6, parameters=(("alpha", 0.3),)),
    Method("scaledgd", A=1e-6, B=1e-6, full=1e-6, clean=1e-6, parameters=(("alpha", 0.25),)),
    Method("unified", A=1e-6, B=1e-6, full=1e-6, clean=1e-6, parameters=(("alpha", 0.3),)),
    Method("rgnmr", A=1e-6, B=1e-6, full=1e-6, clean=1e-6, parameters=(("outliers", 0.12),)),
    Method("optspace", clean=1e-6),
    Method("rtrmc", clean=1e-10),
    Method("set", clean=1e-6),
]
BY_NAME = {method.name: method for method in METHODS}
SEEDS = [311, 312]  # not those anything was chosen with

every = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)


@cache
def standard(kind, seed, size=300, rank=5, density=0.3):
    """Problems A and B, B fully observed, and A without outliers."""
    share = 0.0 if kind == "clean" else 0.1
    density = 1.0 if kind == "full" else density
    problem = ls.datasets.synthetic(size, size, rank=rank, density=density, outliers=share, random_state=seed)
    if kind in ("A", "clean"):
        return problem
    rng = np.random.default_rng([seed, 1])
    S = np.where(problem.S != 0, rng.uniform(-10, 10, problem.M.nnz), 0.0)
    values = on_entries(problem.M, problem.L.to_dense()) + S
    return ls.datasets.SyntheticProblem(problem.M.with_values(values), problem.L, S)


def small(method, seed=321, dtype=np.float64):
    """A little problem that the method can take."""
    full = from_name(method.name).full
    problem = ls.datasets.synthetic(60, 50, rank=2, density=1.0 if full else 0.6, outliers=0.05, random_state=seed)
    return problem.M.with_values(problem.M.values.astype(dtype))


def solve(M, rank, method, **more):
    return ls.solve(M, rank, method=method.solver(), **{"max_iter": method.max_iter, **more})


# ---------------------------------------------------------------------- what they reach


def test_every_method_is_here():
    assert sorted(BY_NAME) == ls.solvers.names()


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("kind", "method"),
    [(kind, method) for method in METHODS for kind in ("A", "B", "clean") if getattr(method, kind) is not None],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_third_of_the_entries_is_enough(kind, method, seed):
    problem = standard(kind, seed)
    r = solve(problem.M, 5, method)
    assert r.converged, r.message
    assert relative(r.L, problem.L) < getattr(method, kind)


@pytest.mark.slow
@pytest.mark.parametrize("method", [m for m in METHODS if m.full is not None], ids=lambda method: method.name)
def test_every_entry_observed(method):
    problem = standard("full", 313)
    r = solve(problem.M, None if from_name(method.name).finds_rank else 5, method)
    assert r.converged, r.message
    assert r.L.rank == 5
    assert relative(r.L, problem.L) < method.full


@every
def test_those_that_are_not_robust_say_so(method):
    if not from_name(method.name).robust:
        assert method.A is None
        assert "outlier" in type(method.solver()).__doc__


# ---------------------------------------------------------------------- what they owe


@every
@pytest.mark.parametrize("c", [255.0, 1 / 255])
def test_the_unit_of_the_data_does_not_matter(method, c):
    M = small(method)
    r, scaled = (solve(A, 2, method, max_iter=60, tol=1e-7) for A in (M, M.with_values(c * M.values)))
    assert abs(scaled.n_iter - r.n_iter) <= 2  # a test may fall either way by rounding
    assert ls.LowRank(scaled.L.U, scaled.L.V / c).error(r.L, relative=True) < 1e-6


@every
def test_the_transposed_problem_has_the_transposed_answer(method):
    if not method.symmetric:
        pytest.skip("rows and columns are not the same to it")
    kind = next((kind for kind in ("A", "full", "clean") if getattr(method, kind) is not None), None)
    if kind is None:
        pytest.skip("it has a problem of its own")
    problem = standard(kind, 315, size=150, rank=2, density=0.5)
    r, transposed = (solve(M, 2, method) for M in (problem.M, problem.M.T))
    bound = max(1e-6, 4 * getattr(method, kind))
    assert ls.LowRank(transposed.L.V.T, transposed.L.U.T).error(r.L, relative=True) < bound


def odd(kind):
    rng = np.random.default_rng(33)
    X = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 25))
    match kind:
        case "empty lines and thin ones":
            X[rng.random(X.shape) < 0.3] = np.nan
            X[4], X[:, 7], X[1:, 9] = np.nan, np.nan, np.nan
        case "one row":
            X = X[:1]
        case "one column":
            X = X[:, :1]
        case "one entry":
            X = np.full((5, 4), np.nan)
            X[2, 1] = 3.0
        case "zeros":
            X[:] = 0.0
        case "full rank":
            X = rng.standard_normal((3, 6))
        case "constant":
            X[:] = 7.0
        case "whole numbers":
            X = np.round(10 * X)
    return X


ODD = [
    "empty lines and thin ones",
    "one row",
    "one column",
    "one entry",
    "zeros",
    "full rank",
    "constant",
    "whole numbers",
]


@every
@pytest.mark.parametrize("kind", ODD)
def test_odd_data_have_finite_results(method, kind):
    X = odd(kind)
    solver = method.solver()
    if solver.full and np.isnan(X).any():
        with pytest.raises(ValueError, match="needs every entry"):
            ls.solve(X, 1, method=solver)
        return
    r = ls.solve(X, min(2, *X.shape) if kind != "full rank" else 3, method=solver, max_iter=40)
    assert np.isfinite(r.L.to_dense()).all()
    assert np.isfinite(r.S.toarray()).all()
    assert np.isfinite(r.objective)
    assert np.allclose(r.L.U.T @ r.L.U, np.eye(r.L.rank), atol=1e-8)
    assert not r.S.data.size or (r.S.data != 0).all()
    if kind == "zeros":
        assert not r.L.to_dense().any()
        assert not r.S.nnz
    if r.converged and kind in ("one row", "one column", "constant") and solver.rank_of == "L":  # of that rank exactly
        assert np.abs(X - r.L.to_dense() - r.S.toarray()).max() <= 0.05 * np.abs(X).max()


@every
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_resumed_solve_has_the_same_bits(tmp_path, method, dtype):
    M, at = small(method, dtype=dtype), tmp_path / "solve.npz"
    whole = solve(M, 2, method, max_iter=12, tol=0)
    for k in (1, 7):
        solve(M, 2, method, max_iter=12, tol=0, callback=lambda p, k=k: p.iteration == k, checkpoint=at)
        resumed = solve(M, 2, method, max_iter=12, tol=0, resume=at)
        for a, b in ((resumed.L.U, whole.L.U), (resumed.L.V, whole.L.V), (resumed.S.data, whole.S.data)):
            assert a.tobytes() == b.tobytes()
        assert resumed.S.dtype == dtype
        for name in set(whole.trace) - {"seconds"}:
            np.testing.assert_array_equal(resumed.trace[name], whole.trace[name])


@every
def test_the_trace_and_the_callback(method):
    seen = []

    def watch(progress):
        seen.append((progress.iteration, progress["objective"], progress.lowrank().shape))
        return progress.iteration == 5

    r = solve(small(method), 2, method, tol=0, callback=watch)
    assert r.status is Status.STOPPED_BY_CALLBACK
    assert [entry[0] for entry in seen] == [1, 2, 3, 4, 5]
    assert {entry[2] for entry in seen} == {(60, 50)}
    assert list(r.trace)[:7] == ["iteration", "seconds", "objective", "gamma", "dS", "dU", "change"]
    assert [entry[1] for entry in seen] == r.trace["objective"].tolist()
    assert np.isfinite(r.trace["objective"]).all()


@every
@pytest.mark.slow
def test_it_can_be_iterated_on_after_its_end(method):
    r = solve(small(method), 2, method, tol=0, max_iter=700)
    assert (r.status, r.n_iter) == (Status.MAX_ITER, 700)
    assert np.isfinite(r.L.to_dense()).all()
    assert np.isfinite(r.objective)


@every
def test_parameters_are_checked_and_cloned(method):
    solver = method.solver()
    again = type(solver)(**solver.get_params())
    assert again == solver
    with pytest.raises(ValueError, match="has no parameter 'gama'"):
        solver.set_params(gama=1.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'gama'"):
        type(solver)(gama=1.0)
    M = small(method)
    for field in dataclasses.fields(solver):
        if isinstance(getattr(solver, field.name), float):
            with pytest.raises(ValueError, match=field.name):
                ls.solve(M, 2, method=method.solver(**{field.name: float("nan")}), max_iter=1)


@every
def test_parameters_of_the_wrong_kind_are_named(method):
    M = small(method)
    for field in dataclasses.fields(method.solver()):
        with pytest.raises(ValueError, match=f"{field.name} must be"):
            ls.solve(M, 2, method=method.solver(**{field.name: ["3"]}), max_iter=1)


@every
def test_what_it_needs_is_asked_for_before_the_first_iteration(method):
    solver = from_name(method.name)
    assert {name for name, _ in method.parameters} >= set(solver.needs)
    for name in solver.needs:
        with pytest.raises(ValueError, match=name):
            ls.solve(small(method), 2, method=method.solver(**{name: None}))
    if not solver.finds_rank:
        with pytest.raises(ValueError, match="needs a rank"):
            ls.solve(small(method), None, method=method.solver())


def test_methods_declare_that_they_run_on_disk_on_a_cluster_and_on_a_gpu():
    """What they declare is tested by test_backends.py and test_cuda.py; those of the paper, and the default, must."""
    assert {*OWN, "irls", "lmafit", "rmc", "subgm"} <= set(ANYWHERE)


def test_only_the_default_chooses_a_rank_itself():
    assert [name for name in ls.solvers.names() if from_name(name).with_chosen_rank() is not None] == ["ladder"]
    assert from_name("ladder").with_chosen_rank() == ls.solvers.Ladder(choose_rank=True)


@every
def test_backends_agree(native, method):
    M = small(method)
    found, expected = (solve(M, 2, method, max_iter=8, backend=b) for b in ("native", "numpy"))
    assert found.status == expected.status
    assert relative(found.L, expected.L) < 1e-7


@pytest.mark.parametrize("name", ["ladder", "amanpgc", "rmc", "lmafit", "subgm", "grasta", "irls", "accaltproj", "pcp"])
@pytest.mark.parametrize("size", [1e6, -1e14])
def test_one_wild_entry_does_not_spoil_the_rest(name, size):
    problem = ls.datasets.synthetic(60, 70, rank=2, density=1.0, outliers=0.05, random_state=331)
    values = problem.M.values.copy()
    values[17] = size
    r = solve(problem.M.with_values(values), 2, BY_NAME[name])
    assert not r.converged or relative(r.L, problem.L) < 1e-3  # M - S of such an entry has lost most of its digits


@pytest.mark.parametrize("name", ["ladder", "accaltproj", "convex", "lmafit", "irls"])
def test_rounding_to_single_precision_is_no_outlier(name):
    problem = ls.datasets.synthetic(60, 70, rank=2, density=1.0, outliers=0.05, dtype=np.float32, random_state=332)
    r = solve(problem.M, 2, BY_NAME[name], tol=1e-6)
    assert set(r.flagged) <= set(np.flatnonzero(problem.S))
    assert r.S.nnz >= 0.95 * np.count_nonzero(problem.S)


def test_lines_with_too_few_entries_that_are_right_are_named():
    problem = ls.datasets.synthetic(60, 50, rank=3, density=1.0, outliers=0.05, random_state=333)
    X = problem.M.to_dense()
    X[3:, 7] += np.random.default_rng(334).uniform(5, 50, 57)  # three entries of 60 are left
    r = ls.solve(X, 3)
    assert "1 of 50 columns have too few entries that are not outliers: L is not determined there" in r.notes


@pytest.mark.parametrize("name", ["convex", "pcp", "hankel"])
def test_those_that_begin_at_zero_take_no_start(name):
    with pytest.raises(ValueError, match="leave the start out"):
        solve(small(BY_NAME[name]), 2, BY_NAME[name], start=np.ones((60, 2)))


# ---------------------------------------------------------------------- the same optimum


@pytest.mark.slow
def test_methods_of_the_same_problem_find_the_same_optimum():
    """min ‖P_Ω(UV - M)‖₁, with noise: no method may be far above the best, and all are below the truth."""
    rng = np.random.default_rng(41)
    problem = ls.datasets.synthetic(200, 200, rank=4, density=0.4, outliers=0.1, noise=0.05, random_state=42)
    values = problem.M.values - problem.S + np.where(problem.S != 0, rng.choice([-10.0, 10.0], problem.M.nnz), 0.0)
    M = problem.M.with_values(values)

    def l1(L):
        return float(np.sum(np.abs(L.at(M.rows, M.columns_of_entries()) - M.values)))

    found = {
        name: l1(ls.solve(M, 4, method=solver, tol=1e-7, max_iter=3000).L) for name, solver in SAME_OPTIMUM.items()
    }
    assert max(found.values()) < l1(problem.L)
    assert max(found.values()) < (1 + 5e-4) * min(found.values()), found


SAME_OPTIMUM = {
    "amanpgc": ls.solvers.AManPGC(noise_stop=False, gamma_min=1e-4),
    "manpgc": ls.solvers.ManPGC(noise_stop=False, gamma_min=1e-4),
    "rmc": ls.solvers.RMC(noise_stop=False),
    "lmafit": ls.solvers.LMaFit(),
    "subgm": ls.solvers.SubGM(),
    "grasta": ls.solvers.GRASTA(),
    "lp": ls.solvers.Lp(),
}
