"""The public contract: what goes in, what comes out, how it ends, and how it goes on after a break."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import lowsparse as ls
from conftest import OWN, PAPER, PATH, assert_close, on_entries, python, relative, robust_problem
from lowsparse import ObservedMatrix, Status
from lowsparse.places.decide import available
from lowsparse.solvers import AManPG, AManPGC, Ladder, ManPG, ManPGC, from_name

COLUMNS = ["iteration", "seconds", "objective", "gamma", "dS", "dU", "change"]


def assert_same_bits(found, expected):
    for a, b in zip(parts_of(found), parts_of(expected), strict=True):
        np.testing.assert_array_equal(a, b)
    assert list(found.trace) == list(expected.trace)
    for name in set(found.trace) - {"seconds"}:
        np.testing.assert_array_equal(found.trace[name], expected.trace[name])
    for name in ("status", "n_iter", "objective", "stationarity"):
        assert getattr(found, name) == getattr(expected, name)


def parts_of(result):
    return result.L.U, result.L.V, result.S.indptr, result.S.indices, result.S.data


# ---------------------------------------------------------------------- what goes in


def test_every_format_of_the_input_gives_the_same_result():
    M = robust_problem().M
    X = M.to_dense()
    rng = np.random.default_rng(71)
    order = rng.permutation(M.nnz)
    formats = {
        "array": X,
        "list": X.tolist(),
        "fortran": np.asfortranarray(X),
        "masked": np.ma.masked_invalid(X),
        "csc": M.to_scipy(),
        "csr": M.to_scipy().tocsr(),
        "coo matrix": sp.coo_matrix(M.to_scipy()),
        "triples": ObservedMatrix.from_coo(M.rows[order], M.columns_of_entries()[order], M.values[order], M.shape),
    }
    expected = ls.solve(M, 3)
    for given_as in formats.values():
        assert_same_bits(ls.solve(given_as, rank=3), expected)


def test_integers_and_float32_are_taken_as_they_are():
    M = robust_problem().M
    single = ls.solve(M.with_values(M.values.astype(np.float32)), 3)
    assert single.S.dtype == np.float32
    assert single.L.U.dtype == np.float64
    assert relative(single.L, ls.solve(M, 3).L) < 1e-5
    whole = np.outer(np.arange(1, 9), np.arange(1, 8))
    assert relative(ls.solve(whole, 1).L, ls.LowRank(whole[:, :1], np.arange(1.0, 8)[None])) < 1e-7


def test_the_data_are_not_changed():
    M = robust_problem().M
    before = M.fingerprint()
    ls.solve(M, 3)
    assert M.fingerprint() == before


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"rank": 0}, ValueError, "rank is 0; choose 1 to 50"),
        ({"rank": 51}, ValueError, "choose 1 to 50"),
        ({"method": "pca"}, ValueError, r"unknown method 'pca': choose 'auto' or one of \['accaltproj'"),
        ({"method": AManPGC}, TypeError, "a name or a solver object"),
        ({"max_iter": 0}, ValueError, "max_iter must be a whole number of 1 or more, not 0"),
        ({"max_iter": 2.5}, ValueError, "max_iter"),
        ({"max_iter": True}, ValueError, "max_iter"),
        ({"max_time": 0}, ValueError, "max_time must be a positive number"),
        ({"max_time": np.nan}, ValueError, "max_time must be a positive number"),
        ({"tol": -1e-3}, ValueError, "tol must be a number of 0 or more"),
        ({"tol": np.nan}, ValueError, "tol must be a number of 0 or more"),
        ({"backend": "gpu"}, ValueError, "unknown backend 'gpu'"),
        ({"random_state": -1}, ValueError, "random_state"),
        ({"callback": 3}, TypeError, "callback must be a function"),
        ({"tolerance": 1e-3}, TypeError, "unexpected keyword argument 'tolerance'"),
        ({"resume": "no such file.npz"}, FileNotFoundError, "no such file"),
    ],
)
def test_arguments_that_make_no_sense_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        ls.solve(robust_problem().M, **{"rank": 3, **arguments})


@pytest.mark.parametrize("rank", [1, "auto"])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_a_matrix_without_entries_is_refused_as_such(shape, rank):
    with pytest.raises(ValueError, match="at least one row and one column, this one is"):
        ls.solve(np.zeros(shape), rank)


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        (AManPG(t_S=0), r"t_S must be in \(0, 1\], not 0"),
        (AManPG(t_S=1.5), "t_S"),
        (AManPG(t_U=0), "t_U must be positive"),
        (AManPG(step=-1), "step must be positive"),
        (AManPG(lam=1), r"lam must be in \[0, 1\)"),
        (AManPG(lam=np.nan), "lam"),
        (AManPG(delta=0), "delta must be positive"),
        (AManPG(damping=-0.1), "damping must be 0 or more"),
        (ManPG(gamma=0), "gamma must be positive"),
        (ManPG(gamma=np.inf), "gamma must be"),
        (ManPG(epsilon=0), "epsilon must be positive"),
        (ManPGC(gamma0=-1), "gamma0 must be positive"),
        (ManPGC(gamma0=np.inf), "gamma0 must be"),
        (ManPGC(gamma_min=0), "gamma_min must be positive"),
        (ManPGC(epsilon0=0), "epsilon0 must be positive"),
        (AManPGC(mu1=1), r"mu1 must be in \(0, 1\)"),
        (AManPGC(mu2=0), r"mu2 must be in \(0, 1\)"),
        (AManPGC(epsilon_factor=0), "epsilon_factor must be positive"),
        (AManPGC(stages=0), "stages must be a whole number"),
        (AManPGC(stage_iter=0), "stage_iter must be a whole number"),
    ],
)
def test_parameters_that_make_no_sense_are_named_before_the_first_iteration(solver, message):
    with pytest.raises(ValueError, match=message):
        ls.solve(robust_problem().M, 3, method=solver, callback=lambda _: pytest.fail("it began"))


# ---------------------------------------------------------------------- what comes out


@pytest.mark.parametrize("name", PAPER)
def test_the_parts_add_up_to_the_data(name):
    problem = robust_problem()
    r = ls.solve(problem.M, 3, method=name, tol=1e-9, max_iter=1000)
    assert r.method == name
    np.testing.assert_allclose(r.L.U.T @ r.L.U, np.eye(3), atol=1e-12)
    assert isinstance(r.S, sp.csc_array)
    assert r.S.shape == problem.M.shape == r.L.shape
    assert (r.S.data != 0).all()
    r.S.check_format(full_check=True)
    observed = problem.M.to_scipy().astype(bool)
    assert (r.S.astype(bool) > observed).nnz == 0
    rest = problem.M.values - on_entries(problem.M, r.L.to_dense() + r.S.toarray())
    assert np.abs(rest).max() <= 1.5 * r.trace["gamma"][-1]


def test_the_outliers_are_a_usual_sparse_array():
    r = ls.solve(robust_problem().M, 3)
    r.S.data[:] = 1.0  # its own memory
    assert (r.S @ np.ones(50)).sum() == r.S.nnz
    assert r.S.indices.dtype == r.S.indptr.dtype == np.int32


@pytest.mark.parametrize("name", OWN)
def test_the_trace_has_a_row_for_every_iteration(name):
    r = ls.solve(robust_problem().M, 3, method=name, tol=0, max_iter=17)
    assert list(r.trace)[:7] == COLUMNS
    assert all(r.trace[column].shape == (17,) for column in r.trace)
    assert r.trace["iteration"].tolist() == list(range(1, 18))
    assert (np.diff(r.trace["seconds"]) >= 0).all()
    assert r.seconds >= r.trace["seconds"][-1] > 0
    assert r.trace.rows()[16]["objective"] == r.trace["objective"][16]
    with pytest.raises(KeyError, match="no column 'error'; there are"):
        r.trace["error"]


def test_a_result_says_what_it_is_in_one_line():
    r = ls.solve(robust_problem().M, 3, backend="numpy", max_iter=5)
    assert repr(r) == (
        f"Result(60 x 50, rank 3, {r.S.nnz} outliers, ladder on numpy: max_iter after 5 iterations, {r.seconds:.3g} s)"
    )
    assert repr(r.trace).startswith("Trace(5 iterations: iteration, seconds, objective")
    with pytest.raises(dataclasses.FrozenInstanceError):
        r.n_iter = 3


def test_lines_too_empty_to_determine_are_noted():
    X = robust_problem(20, 15, rank=2, density=1.0).M.to_dense()
    assert ls.solve(X, 2).notes == ()
    X[3], X[:, 4] = np.nan, np.nan
    X[5, 1:] = np.nan
    notes = ls.solve(X, 2).notes
    assert notes[0] == "2 of 20 rows have fewer than 2 observed entries: L is not determined there"
    assert notes[1] == "1 of 15 columns have fewer than 2 observed entries: L is not determined there"


# ---------------------------------------------------------------------- how it ends


@pytest.mark.parametrize("name", PAPER)
def test_it_converges_and_says_why(name):
    r = ls.solve(robust_problem().M, 3, method=name, tol=1e-4)
    assert r.status is Status.CONVERGED
    assert r.converged
    assert "at most tol = 0.0001" in r.message or "is solved" in r.message


@pytest.mark.parametrize("name", OWN)
def test_without_tolerance_it_runs_to_the_last_iteration(name):
    r = ls.solve(robust_problem(30, 25, rank=1).M, 1, method=name, tol=0, max_iter=700)
    assert r.status is Status.MAX_ITER
    assert r.n_iter == len(r.trace["iteration"]) == 700
    assert not r.converged
    assert "as tol = 0 asks" in r.message
    assert np.isfinite(r.objective)


def test_out_of_iterations_it_says_what_to_do():
    r = ls.solve(robust_problem().M, 3, max_iter=4)
    assert (r.status, r.n_iter) == (Status.MAX_ITER, 4)
    assert "raise max_iter" in r.message


@pytest.mark.parametrize("name", PAPER)
def test_wherever_it_stops_objective_and_gamma_belong_to_the_point(name):
    M = robust_problem(200, 150, rank=2).M
    for max_iter in range(1, 12):  # some of them end a stage
        r = ls.solve(M, 2, method=name, tol=0, max_iter=max_iter)
        e = r.L.at(M.rows, M.columns_of_entries()) - M.values
        S = on_entries(M, r.S.toarray())
        F = 0.5 * np.sum((e + S) ** 2) + r.trace["gamma"][-1] * np.sum(np.abs(S))
        assert r.objective == pytest.approx(F, rel=1e-6)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("size", [1e2, 1e4, 1e6, -1e9])
def test_one_wild_entry_changes_nothing(name, size):
    problem = robust_problem(200, 150, density=0.5, outliers=0.05)
    values = problem.M.values.copy()
    values[777] = size
    r = ls.solve(problem.M.with_values(values), 3, method=name)
    assert r.converged
    assert relative(r.L, problem.L) < (1e-6 if name.endswith("c") else 2e-3)
    where = problem.M.rows[777], problem.M.columns_of_entries()[777]
    assert r.S[where] == pytest.approx(size - float(problem.L.at(*where)), rel=1e-2)


@pytest.mark.parametrize("solver", [AManPG(epsilon=1e3, delta=0.9), AManPGC(delta=0.9, stages=2)])
def test_without_tolerance_no_other_rule_ends_it_either(solver):
    r = ls.solve(robust_problem().M, 3, method=solver, tol=0, max_iter=150)
    assert (r.status, r.n_iter) == (Status.MAX_ITER, 150)


def test_epsilon_ends_the_methods_with_a_fixed_gamma():
    for kind in (ManPG, AManPG):
        r = ls.solve(robust_problem().M, 3, method=kind(epsilon=0.5))
        assert "epsilon = 0.5" in r.message
        moved = np.hypot(np.sqrt(np.mean(robust_problem().M.values ** 2)) * r.trace["dU"], r.trace["dS"])
        assert moved[-1] <= 0.5 < moved[:-1].min()


def test_out_of_time():
    r = ls.solve(robust_problem().M, 3, max_time=1e-9)
    assert (r.status, r.n_iter) == (Status.MAX_TIME, 0)
    assert "raise max_time" in r.message
    assert np.isfinite(r.objective)
    np.testing.assert_allclose(r.L.U.T @ r.L.U, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("answer", [True, 1, np.True_])
def test_the_callback_can_stop(answer):
    r = ls.solve(robust_problem().M, 3, callback=lambda p: answer if p.iteration == 4 else None)
    assert (r.status, r.n_iter) == (Status.STOPPED_BY_CALLBACK, 4)
    assert "callback" in r.message


@pytest.mark.parametrize("name", PAPER)
def test_a_step_beyond_all_numbers_diverges_and_says_what_to_do(name):
    solver = type(from_name(name))(t_U=1e308, backtracking=False)
    r = ls.solve(robust_problem().M, 3, method=solver)
    assert r.status is Status.DIVERGED
    assert "give a smaller step" in r.message
    assert np.isfinite(r.L.to_dense()).all()


@pytest.mark.parametrize("t_U", [1e100, 1e160, 1e250])
def test_an_absurd_step_ends_in_a_status_and_not_in_a_warning(t_U):
    for backtracking in (True, False):
        r = ls.solve(robust_problem().M, 3, method=AManPG(t_U=t_U, backtracking=backtracking), max_iter=20)
        assert not r.converged
        assert np.isfinite(r.L.to_dense()).all()


@dataclasses.dataclass(kw_only=True)
class Uphill(AManPG):
    """Every step leads up, however short."""

    def direction(self, swept, P):
        go = super().direction(swept, P)
        return go._replace(D=-go.D)


def test_where_no_step_leads_down_it_stalls_at_the_best_point():
    r = ls.solve(robust_problem().M, 3, method=Uphill(gamma=0.1))
    assert r.status is Status.STALLED
    assert "no step decreases the objective" in r.message
    # U of the last trial step, far up, must not be what is handed back
    assert r.objective <= r.trace["objective"][-1] * (1 + 1e-9)


# ---------------------------------------------------------------------- callbacks


def test_the_callback_sees_every_iteration_and_the_low_rank_part():
    problem, seen = robust_problem(), []

    def watch(progress):
        L = progress.lowrank()
        seen.append((progress.iteration, progress["objective"], relative(L, problem.L), progress.max_iter))
        assert progress.seconds >= 0

    r = ls.solve(problem.M, 3, callback=watch, tol=1e-5)
    iterations, objectives, errors, limits = zip(*seen, strict=True)
    assert list(iterations) == r.trace["iteration"].tolist()
    assert list(objectives) == r.trace["objective"].tolist()
    assert set(limits) == {500}
    assert errors[-1] < 1e-3 < errors[0]
    assert errors[-1] == pytest.approx(relative(r.L, problem.L), rel=1e-6)
    assert_same_bits(r, ls.solve(problem.M, 3, tol=1e-5))  # watching changes nothing


def test_an_exception_in_the_callback_comes_through():
    with pytest.raises(ZeroDivisionError):
        ls.solve(robust_problem().M, 3, callback=lambda p: 1 / 0)


# ---------------------------------------------------------------------- checkpoints


def stop_at(k):
    return lambda progress: progress.iteration == k


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("k", "tol"), [(1, 1e-8), (7, 1e-8), (13, 1e-8), (19, 0)])  # the default has ended by then
def test_a_resumed_solve_has_the_same_bits(tmp_path, name, dtype, k, tol):
    M = robust_problem(dtype=dtype).M
    solver = from_name(name)
    if name in PAPER:
        solver.set_params(step=3.0)  # with shortened steps
    at = tmp_path / "solve.npz"
    options = {"method": solver, "max_iter": 60, "tol": tol}
    whole = ls.solve(M, 3, **options)
    first = ls.solve(M, 3, **options, callback=stop_at(k), checkpoint=at)
    assert first.n_iter == k
    assert_same_bits(ls.solve(M, 3, **options, resume=at), whole)


def test_a_resumed_solve_counts_the_seconds_before(tmp_path):
    at, M = tmp_path / "solve.npz", robust_problem().M
    first = ls.solve(M, 3, max_iter=10, tol=0, checkpoint=at)
    second = ls.solve(M, 3, max_iter=20, tol=0, resume=at, checkpoint=at)
    assert (second.trace["seconds"][:10] == first.trace["seconds"]).all()
    assert (np.diff(second.trace["seconds"]) >= 0).all()
    # and one that is done stays done
    assert_same_bits(ls.solve(M, 3, max_iter=20, tol=0, resume=at), second)


def test_a_finished_solve_is_resumed_to_its_result(tmp_path):
    at, M = tmp_path / "solve.npz", robust_problem().M
    done = ls.solve(M, 3, checkpoint=at)
    again = ls.solve(M, 3, resume=at, callback=lambda _: pytest.fail("it went on"))
    assert_same_bits(again, done)
    assert again.message == done.message


def test_a_checkpoint_is_plain_arrays(tmp_path):
    at = tmp_path / "solve.npz"
    ls.solve(robust_problem().M, 3, max_iter=5, checkpoint=at)
    assert os.listdir(tmp_path) == ["solve.npz"]
    with np.load(at, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    assert json.loads(str(arrays.pop("header")))["identity"]["method"] == "ladder"
    assert all(a.dtype.kind in "fi" for a in arrays.values())


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"M": lambda M: M.with_values(2 * M.values)}, "data"),
        ({"M": lambda M: M.with_values(M.values.astype(np.float32))}, "data"),
        ({"rank": 2}, "rank"),
        ({"method": "manpgc"}, "method"),
        ({"method": AManPGC(lam=1e-3)}, "parameters"),
        ({"tol": 1e-3}, "tol"),
    ],
)
def test_a_checkpoint_of_another_solve_is_refused(tmp_path, change, what):
    at, M = tmp_path / "solve.npz", robust_problem().M
    ls.solve(M, 3, method="amanpgc", max_iter=5, checkpoint=at)
    now = {"M": lambda M: M, "rank": 3, "method": "amanpgc", **change}
    with pytest.raises(ValueError, match=f"was saved with other {what}"):
        ls.solve(now.pop("M")(M), **now, resume=at)


def without(name):
    def damage(path):
        with np.load(path) as file:
            kept = {key: file[key] for key in file.files if key != name}
        np.savez(path, **kept)

    return damage


def overwrite(header):
    return lambda path: np.savez(path, header=np.array(header))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-200]),
        lambda path: path.write_bytes(bytes(b ^ (i == 3000) for i, b in enumerate(path.read_bytes()))),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_text("hello"),
        lambda path: np.save(path.with_suffix(".npy"), np.ones(3)) or path.with_suffix(".npy").rename(path),
        lambda path: np.savez(path, other=np.ones(3)),
        without("header"),
        without("state.U"),
        without("state.S"),
        overwrite("[]"),
        overwrite('{"format": 1}'),
        overwrite('{"format": 99}'),
    ],
)
def test_a_damaged_checkpoint_is_refused(tmp_path, damage):
    at, M = tmp_path / "solve.npz", robust_problem().M
    ls.solve(M, 3, method="amanpgc", max_iter=5, checkpoint=at)
    damage(at)
    with pytest.raises(ValueError, match=r"not a checkpoint|has format"):
        ls.solve(M, 3, method="amanpgc", resume=at)


def test_parameters_may_be_numpy_numbers(tmp_path):
    at, M = tmp_path / "solve.npz", robust_problem().M
    solver = AManPGC(gamma0=np.float32(3), stages=np.int64(4), mu1=np.float64(0.1))
    whole = ls.solve(M, 3, method=solver, max_iter=20)
    ls.solve(M, 3, method=solver, max_iter=20, callback=stop_at(6), checkpoint=at)
    assert_same_bits(ls.solve(M, 3, method=solver, max_iter=20, resume=at), whole)


def test_a_rerun_without_resume_does_not_lose_what_was_saved_before_it_has_more(tmp_path):
    M, at = robust_problem().M, tmp_path / "solve.npz"
    ls.solve(M, 3, max_iter=5, tol=0, checkpoint=at)
    saved = at.read_bytes()
    with pytest.raises(ValueError, match="t_S"):
        ls.solve(M, 3, method=AManPGC(t_S=2.0), checkpoint=at)

    class Interrupting(AManPGC):
        def advance(self, problem, state):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ls.solve(M, 3, method=Interrupting(), checkpoint=at)
    assert at.read_bytes() == saved
    assert [path.name for path in tmp_path.iterdir()] == ["solve.npz"]


def test_solves_side_by_side_leave_the_threads_of_blas_as_they_were():
    from concurrent.futures import ThreadPoolExecutor

    from threadpoolctl import threadpool_info

    def blas_threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = blas_threads()
    M = robust_problem().M
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda k: ls.solve(M, 3, tol=0, max_iter=5 + 30 * k), range(4)))
    assert [r.n_iter for r in results] == [5, 35, 65, 95]
    assert blas_threads() == before


def test_a_checkpoint_that_cannot_be_written_is_known_before_the_work(tmp_path):
    seen = []
    with pytest.raises(OSError, match="nowhere"):
        ls.solve(robust_problem().M, 3, checkpoint=tmp_path / "nowhere" / "solve.npz", callback=seen.append)
    assert not seen


def test_an_interrupted_solve_leaves_a_checkpoint_to_go_on_from(tmp_path):
    at, M = tmp_path / "solve.npz", robust_problem().M

    def interrupt(progress):
        if progress.iteration == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ls.solve(M, 3, callback=interrupt, checkpoint=at)
    assert_same_bits(ls.solve(M, 3, resume=at), ls.solve(M, 3))


@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_an_interrupt_in_any_sweep_leaves_a_checkpoint_to_the_same_bits(tmp_path, monkeypatch, backend):
    at, M = tmp_path / "solve.npz", robust_problem().M
    kind = type(M.open_sweep(backend))
    solver = AManPG(step=20.0)  # the first steps are shortened, so that some sweeps belong to trials
    whole = ls.solve(M, 3, method=solver, max_iter=12, backend=backend)
    assert whole.trace["shortened"][1:4].sum() >= 2
    sweep = kind.sweep
    for last in range(1, 8):
        calls = iter(range(last))

        def interrupted(self, *args, calls=calls, **kwargs):
            if next(calls, None) is None:
                raise KeyboardInterrupt
            return sweep(self, *args, **kwargs)

        monkeypatch.setattr(kind, "sweep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ls.solve(M, 3, method=solver, max_iter=12, backend=backend, checkpoint=at)
        monkeypatch.setattr(kind, "sweep", sweep)
        assert_same_bits(ls.solve(M, 3, method=solver, max_iter=12, backend=backend, resume=at), whole)


# ---------------------------------------------------------------------- Ctrl-C


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize(
    "work",
    [
        "ls.solve(M, 20, tol=0, max_iter=10**6)",
        "[sweep.gram_product(U[:, :20]) for _ in range(10**6)]",
        # half a minute in one call
        "sweep.sweep(U, S, np.empty_like(S), Proximal(Rule.AMANPG, gamma=1.0))",
    ],
)
def test_ctrl_c_is_answered(work):
    code = f"""
import signal, numpy as np, lowsparse as ls
from conftest import orthonormal, robust_problem
from lowsparse.sweeps import Proximal, Rule, open_sweep
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
M = robust_problem(2000, 2000, rank=20, density=0.3).M
U, S, sweep = orthonormal(2000, 500), np.zeros(M.nnz), open_sweep(M)
print("ready", flush=True)
{work}
"""
    env = {**os.environ, "PYTHONPATH": PATH, "LOWSPARSE_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.5)  # into the work
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=10)
        finally:
            process.kill()
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode in (1, 130, -signal.SIGINT)


# ---------------------------------------------------------------------- backends


def test_backends_are_chosen_by_argument_then_environment(native, monkeypatch):
    M = robust_problem().M
    assert ls.solve(M, 3, max_iter=2).backend == "native"
    monkeypatch.setenv("LOWSPARSE_BACKEND", "numpy")
    assert ls.solve(M, 3, max_iter=2).backend == "numpy"
    assert ls.solve(M, 3, max_iter=2, backend="native").backend == "native"
    monkeypatch.setenv("LOWSPARSE_BACKEND", "abacus")
    with pytest.raises(ValueError, match="unknown backend 'abacus'"):
        ls.solve(M, 3)


@pytest.mark.parametrize("name", OWN)
def test_backends_agree_on_the_solution(native, name):
    M = robust_problem().M
    found, expected = (ls.solve(M, 3, method=name, tol=1e-9, backend=b, max_iter=1000) for b in ("native", "numpy"))
    assert found.status == expected.status
    assert relative(found.L, expected.L) < 1e-8


def test_without_the_compiled_core_numpy_takes_over_and_says_so(tmp_path):
    code = f"""
import sys, warnings
sys.modules["lowsparse._core"] = None
import numpy as np, lowsparse as ls
from conftest import robust_problem
M = robust_problem().M
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    r = ls.solve(M, 3, tol=1e-9)
(warning,) = caught
assert warning.category is RuntimeWarning and "running on NumPy, which is much slower" in str(warning.message)
assert "installed without its compiled core" in str(warning.message) and "C++17 compiler" in str(warning.message)
assert r.backend == "numpy" and r.converged
with warnings.catch_warnings():
    warnings.simplefilter("error")
    ls.solve(M, 3, max_iter=1, backend="numpy")  # asked for: nothing to warn of
try:
    ls.solve(M, 3, backend="native")
except RuntimeError as error:
    assert "backend 'native' cannot run here" in str(error)
else:
    raise AssertionError("native without the core")
np.savez({str(tmp_path / "r.npz")!r}, U=r.L.U, V=r.L.V)
"""
    python(code)
    with np.load(tmp_path / "r.npz") as file:
        assert relative(ls.LowRank(file["U"], file["V"]), ls.solve(robust_problem().M, 3, tol=1e-9).L) < 1e-8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_can_solve(native):
    code = """
import os, lowsparse as ls
from conftest import robust_problem
M = robust_problem(300, 300, rank=3, density=0.5).M
ls.solve(M, 3)  # its threads are not there in the child
child = os.fork()
if not child:
    os._exit(0 if ls.solve(M, 3).converged else 1)
assert os.waitpid(child, 0)[1] == 0
assert ls.solve(M, 3).converged
"""
    python(code, LOWSPARSE_NUM_THREADS="3")


# ---------------------------------------------------------------------- odd data


@st.composite
def odd_problems(draw):
    """Any shape from 1 x 1, any rank it can have, any pattern with at least one entry, values of any usual size."""
    m, n = draw(st.sampled_from([(1, 1), (1, 9), (9, 1), (2, 2), (7, 5), (5, 7), (12, 12), (30, 3)]))
    rank = draw(st.one_of(st.just(min(m, n)), st.integers(1, min(m, n))))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n)) * draw(st.sampled_from([0.0, 1e-6, 1.0, 1e6]))
    known = rng.random((m, n)) < draw(st.sampled_from([0.0, 0.2, 0.6, 1.0]))
    known[rng.integers(m), rng.integers(n)] = True
    X = np.where(known, X, np.nan).astype(draw(st.sampled_from([np.float32, np.float64])))
    return X, rank


@settings(max_examples=150, deadline=None)
@given(odd_problems(), st.sampled_from(PAPER), st.booleans(), st.sampled_from(["native", "numpy"]))
def test_odd_shapes_give_finite_results(Xr, name, precondition, backend):
    X, rank = Xr
    if available()[backend] is not None:
        backend = "numpy"
    solver = type(from_name(name))(precondition=precondition)
    r = ls.solve(X, rank, method=solver, max_iter=60, backend=backend)
    m, n = X.shape
    assert r.L.U.shape == (m, rank)
    assert r.L.V.shape == (rank, n)
    assert r.S.shape == (m, n)
    np.testing.assert_allclose(r.L.U.T @ r.L.U, np.eye(rank), atol=1e-10)
    known = ~np.isnan(X)
    assert np.isfinite(r.L.to_dense()).all()
    assert np.isfinite(r.objective)
    assert np.isfinite([r.stationarity.U, r.stationarity.S]).all()
    assert not r.S.toarray()[~known].any()
    at_zero = 0.5 * np.sum(X[known].astype(float) ** 2)  # the objective of L = S = 0
    assert r.objective <= at_zero * (1 + 1e-9)
    assert r.status is not Status.DIVERGED
    assert r.status is not Status.STALLED or r.objective <= 1e-12 * at_zero  # nothing left to gain
    assert any("columns have fewer" in note for note in r.notes) == bool((known.sum(axis=0) < rank).any())
    assert any("rows have fewer" in note for note in r.notes) == bool((known.sum(axis=1) < rank).any())


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("X", [np.array([[0.9312817]]), np.outer([1.0, 2, 3], [1, 2, 4]), np.full((4, 7), 1 / 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_data_that_can_be_fitted_exactly_are_not_taken_for_a_stall(name, X, dtype):
    r = ls.solve(X.astype(dtype), 1, method=name)
    assert r.status is Status.CONVERGED
    assert name not in PAPER or not r.trace["shortened"].any()
    assert_close(r.L.to_dense(), X, 1e-6)
    assert (r.trace["objective"] >= -1e-20 * np.sum(X**2)).all()


@pytest.mark.parametrize("name", OWN)
def test_nothing_but_zeros_is_zero(name):
    r = ls.solve(np.zeros((6, 5)), 2, method=name)
    assert r.converged
    assert r.S.nnz == 0
    assert not r.L.to_dense().any()
    assert r.objective == 0


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("shape", [(1, 8), (8, 1), (4, 9), (9, 4)])
def test_of_full_rank_the_data_are_the_low_rank_part(name, shape):
    X = np.random.default_rng(72).standard_normal(shape)
    solver = from_name(name)
    if name in PAPER:
        solver.set_params(lam=0.0)
    r = ls.solve(X, min(shape), method=solver, max_iter=2000)
    assert_close(r.L.to_dense() + r.S.toarray(), X, 1e-7)


@pytest.mark.parametrize("c", [1e100, 1e-100, 1e160, 1e-170, 1e300, 1e-300])
def test_sizes_near_the_ends_of_the_numbers_are_refused(c):
    problem = robust_problem()
    with pytest.raises(ValueError, match=r"largest magnitude .* divide"):
        ls.solve(problem.M.with_values(c * problem.M.values), 3)


# ---------------------------------------------------------------------- memory


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="measured through /proc")
@pytest.mark.parametrize("name", ["amanpgc", "manpgc"])
def test_a_solve_needs_less_than_three_times_its_input(native, tmp_path, name):
    M = robust_problem(6000, 6000, rank=5, density=0.2).M
    np.savez(tmp_path / "M.npz", indptr=M.indptr, rows=M.rows, values=M.values)
    code = f"""
import numpy as np, lowsparse as ls
from conftest import robust_problem

def resident(kind):
    return next(1024 * int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(kind))

ls.solve(robust_problem().M, 5, method={name!r}, max_iter=3)  # what is loaded once
before = resident("VmRSS")
with np.load({str(tmp_path / "M.npz")!r}) as file:
    M = ls.ObservedMatrix(file["indptr"], file["rows"], file["values"], (6000, 6000))
open("/proc/self/clear_refs", "w").write("5")
ls.solve(M, 5, method={name!r}, max_iter=8)
print(resident("VmHWM") - before, M.values.nbytes + M.rows.nbytes)
"""
    peak, given_bytes = map(int, python(code).stdout.split())
    assert given_bytes < peak < 3 * given_bytes


# ---------------------------------------------------------------------- solvers as objects


@pytest.mark.parametrize("name", PAPER)
def test_a_solver_is_its_parameters(name):
    solver = from_name(name).set_params(lam=0.01, t_U=None, delta=0.1)
    params = solver.get_params()
    assert params["lam"] == 0.01
    assert params == solver.get_params(deep=False)
    clone = type(solver)(**params)
    assert clone == solver
    assert clone is not solver
    ls.solve(robust_problem(20, 15, rank=2).M, 2, method=solver, max_iter=3)
    assert solver == clone  # solving leaves no trace in it
    with pytest.raises(ValueError, match="has no parameter 'gama'; it has"):
        solver.set_params(gama=1.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'gama'"):
        type(solver)(gama=1.0)
    with pytest.raises(TypeError, match="positional"):
        type(solver)(0.5)


def test_the_default_is_our_own():
    assert set(OWN) <= set(ls.solvers.names())
    assert from_name("auto") == Ladder()


# ---------------------------------------------------------------------- randomness and data


def test_the_same_seed_gives_the_same_bits():
    M = robust_problem().M
    one, same, other = (ls.solve(M, 3, start="random", max_iter=5, random_state=s) for s in (1, 1, 2))
    assert_same_bits(same, one)
    assert not np.allclose(one.L.U, other.L.U)
    rng = np.random.default_rng(5)
    assert not np.allclose(*(ls.solve(M, 3, start="random", max_iter=1, random_state=rng).L.U for _ in range(2)))


def test_a_random_start_finds_the_same_solution():
    problem = robust_problem()
    assert relative(ls.solve(problem.M, 3, start="random", random_state=8).L, problem.L) < 1e-6


def test_a_warm_start_needs_fewer_iterations():
    M = robust_problem().M
    solver = AManPG(gamma=0.05)
    cold = ls.solve(M, 3, method=solver)
    for start in (cold, cold.L, cold.L.U):
        assert ls.solve(M, 3, method=solver, start=start).n_iter < cold.n_iter / 2


def test_synthetic_data_are_what_they_say():
    problem = robust_problem(400, 300, rank=4, density=0.3, outliers=0.2, outlier_size=3.0, noise=0.1)
    M = problem.M
    K = 0.3 * 400 * 300
    assert M.nnz == pytest.approx(K, abs=5 * np.sqrt(K * 0.7))
    assert np.count_nonzero(problem.S) == pytest.approx(0.2 * M.nnz, abs=5 * np.sqrt(M.nnz * 0.16))
    assert problem.S[problem.S != 0].std() == pytest.approx(3.0, rel=0.05)
    assert problem.L.rank == 4
    rest = M.values - problem.S - on_entries(M, problem.L.to_dense())
    assert rest.std() == pytest.approx(0.1, rel=0.03)
    assert M.row_counts.std() == pytest.approx(np.sqrt(300 * 0.3 * 0.7), rel=0.2)
    again = robust_problem(400, 300, rank=4, density=0.3, outliers=0.2, outlier_size=3.0, noise=0.1)
    assert again.M.fingerprint() == M.fingerprint()
    assert robust_problem(seed=1).M.fingerprint() != robust_problem(seed=2).M.fingerprint()


@pytest.mark.parametrize(("m", "n", "density"), [(1, 1, 1e-9), (50, 40, 1.0), (3, 70, 0.01)])
def test_synthetic_data_of_any_density(m, n, density):
    problem = robust_problem(m, n, rank=1, density=density, dtype=np.float32)
    assert problem.M.dtype == np.float32
    assert problem.M.nnz >= 1
    assert density < 1 or problem.M.nnz == m * n


def test_synthetic_data_cannot_be_everything():
    for wrong in ({"density": 0.0}, {"density": 1.5}, {"outliers": -0.1}, {"outliers": 1.0}):
        with pytest.raises(ValueError, match="must be in"):
            robust_problem(**wrong)
    with pytest.raises(ValueError, match="cases 1 to 8, not 9"):
        ls.datasets.paper_case(9)
    assert ls.datasets.paper_case(2, shrink=100, random_state=3).M.shape == (10, 300)
