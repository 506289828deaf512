"""Processes and threads that use the package: the same bits in all of them, and no word at exit but their own."""

import os
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import PATH, python
from fingerprint import fingerprint

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
SOLVE = """
import lowsparse as ls
M = ls.datasets.synthetic(300, 200, rank=2, density=0.5, outliers=0.1, random_state=1).M
ls.solve(M, 2, max_iter=5)
"""
WHILE_A_THREAD_SOLVES = (
    SOLVE
    + """
import threading
begun = threading.Event()
options = dict(method="amanpgc", max_iter=10**9, tol=0, callback=lambda progress: begun.set())
threading.Thread(target=ls.solve, args=(M, 2), kwargs=options, daemon=True).start()
begun.wait()
"""
)


def test_a_solve_leaves_no_object_of_the_compiled_core(native):
    assert python(SOLVE, LOWSPARSE_LIST_LEAKS="1").stderr == ""


def test_a_process_that_ends_while_a_thread_solves_says_nothing(native):
    if not FREE_THREADED:  # where nanobind has no list
        assert "leaked" in python(WHILE_A_THREAD_SOLVES, LOWSPARSE_LIST_LEAKS="1").stderr
    assert python(WHILE_A_THREAD_SOLVES).stderr == ""


@pytest.mark.skipif(not FREE_THREADED, reason="this Python has a lock that threads share")
def test_the_compiled_core_needs_no_lock_of_the_interpreter(native):
    assert python(f"{SOLVE}\nimport sys; print(sys._is_gil_enabled())").stdout == "False\n"


def test_what_is_solved_at_exit_is_solved(native):
    at_exit = "import atexit; atexit.register(lambda: print(ls.solve(M, 2, max_iter=5).n_iter))"
    assert python(f"{at_exit}\n{WHILE_A_THREAD_SOLVES}").stdout == "5\n"


FORK_WHILE_OTHERS_SOLVE = """
import os, threading, numpy
from threadpoolctl import threadpool_info
import lowsparse as ls
from lowsparse.support.threads import one_blas_thread

M = ls.datasets.synthetic(60, 50, rank=2, density=0.5, outliers=0.1, random_state=1).M
blas = lambda: [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
before, end = blas(), threading.Event()

def enter_and_leave():
    while not end.is_set():
        with one_blas_thread:
            pass

def stay():
    with one_blas_thread:
        end.wait()

others = [threading.Thread(target=target, daemon=True) for target in (enter_and_leave, enter_and_leave, stay)]
for other in others:
    other.start()
for _ in range(30):
    child = os.fork()
    if not child:
        limits = blas()
        ls.solve(M, 2, max_iter=3)
        os._exit(0 if limits == blas() == before else 1)
    assert os.waitpid(child, 0)[1] == 0
end.set()
for other in others:
    other.join()
assert blas() == before
with one_blas_thread:
    if not os.fork():
        os._exit(0 if max(blas()) == 1 else 1)
    assert os.wait()[1] == 0
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_that_is_forked_while_other_threads_solve_can_solve():
    python(FORK_WHILE_OTHERS_SOLVE, OPENBLAS_NUM_THREADS="2")


FIRST_IN_IS_NOT_LAST_OUT = """
import threading, numpy
from threadpoolctl import threadpool_info, threadpool_limits
from lowsparse.support.threads import one_blas_thread

blas = lambda: [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
before, entered, leave, left, end = blas(), *(threading.Event() for _ in range(4))

def enter_first():
    with one_blas_thread:
        entered.set()
        leave.wait()
    left.set()
    end.wait()  # the thread lives on: it stays the one that threadpoolctl takes orders from

other = threading.Thread(target=enter_first)
other.start()
entered.wait()
one_blas_thread.__enter__()
leave.set()
left.wait()
assert max(blas()) == 1
one_blas_thread.__exit__()
lifted = blas()
threadpool_limits(2, user_api="blas")  # another thread than the one that entered first is obeyed
obeyed = blas()
end.set()
other.join()
assert lifted == before and set(obeyed) == {2}, (lifted, before, obeyed)
"""


def test_the_last_thread_out_gives_blas_its_threads_back():
    python(FIRST_IN_IS_NOT_LAST_OUT, OPENBLAS_NUM_THREADS="2")


# ---------------------------------------------------------------------- the same bits wherever a solve runs

SEEDS = [1, 2, 1, 2, 1, 2]
EXPECTED = f"""
from fingerprint import fingerprint
if __name__ == "__main__":  # processes that are spawned import this as well
    seeds = {SEEDS}
    expected = [fingerprint(seed) for seed in seeds]  # by threads that a process which is forked later does not have
"""
IN_A_POOL = """
    import multiprocessing
    with multiprocessing.get_context("{method}").Pool(2) as pool:
        assert pool.map(fingerprint, seeds) == expected
    assert fingerprint(1) == expected[0]
"""
IN_JOBLIB = """
    from joblib import Parallel, delayed
    assert Parallel(n_jobs=2, backend="{method}")(delayed(fingerprint)(seed) for seed in seeds) == expected
"""
# as gunicorn --preload does: the application is loaded, workers are forked, each serves in threads
IN_PRELOADED_WORKERS = """
    import os
    from concurrent.futures import ThreadPoolExecutor

    def serve():
        with ThreadPoolExecutor(3) as pool:
            return list(pool.map(fingerprint, seeds)) == expected

    workers = []
    for _ in range(3):
        worker = os.fork()
        if not worker:
            os._exit(0 if serve() else 1)
        workers.append(worker)
    assert serve()
    assert [os.waitpid(worker, 0)[1] for worker in workers] == [0, 0, 0]
"""
IN_A_FORK_OF_A_CALLBACK = """
    import os
    def fork(progress):
        child = os.fork()
        if not child:
            os._exit(0 if fingerprint(2) == expected[1] else 1)
        assert os.waitpid(child, 0)[1] == 0

    assert fingerprint(1, callback=fork) == expected[0]
"""
SLOW = pytest.mark.slow


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize(
    "code",
    [
        pytest.param(IN_A_POOL.format(method="fork"), id="fork"),
        pytest.param(IN_A_POOL.format(method="spawn"), id="spawn"),
        pytest.param(IN_A_POOL.format(method="forkserver"), id="forkserver", marks=SLOW),
        pytest.param(IN_JOBLIB.format(method="loky"), id="loky", marks=SLOW),
        pytest.param(IN_JOBLIB.format(method="threading"), id="joblib, threading", marks=SLOW),
        pytest.param(IN_JOBLIB.format(method="multiprocessing"), id="joblib, multiprocessing", marks=SLOW),
        pytest.param(IN_PRELOADED_WORKERS, id="preload"),
        pytest.param(IN_A_FORK_OF_A_CALLBACK, id="fork in a callback", marks=SLOW),
    ],
)
def test_in_every_process_the_bits_are_the_same(code, tmp_path):
    if "joblib" in code:
        pytest.importorskip("joblib", reason="comes with scikit-learn")
    script = tmp_path / "script.py"
    script.write_text(EXPECTED + code)
    environment = {**os.environ, "PYTHONPATH": PATH, "LOWSPARSE_NUM_THREADS": "2"}
    environment["PYTHONWARNINGS"] = "ignore::DeprecationWarning"  # Python's, of a fork while there are threads
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_solves_in_many_threads_at_once_give_the_same_bits(monkeypatch):
    monkeypatch.setenv("LOWSPARSE_NUM_THREADS", "2")
    expected = [fingerprint(seed) for seed in SEEDS]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(fingerprint, SEEDS)) == expected


def test_a_solve_in_a_callback_of_a_solve_gives_the_same_bits(monkeypatch):
    monkeypatch.setenv("LOWSPARSE_NUM_THREADS", "2")
    expected, inner = fingerprint(), []

    def solve_again(progress):
        if len(inner) < 3:
            inner.append(fingerprint())

    assert fingerprint(callback=solve_again) == expected
    assert inner == [expected] * 3


JOINED_AT_EXIT = """
import atexit, threading

def finish():
    ended.set()
    worker.join()
    print("joined")

atexit.register(finish)  # before the package is imported: it runs after all that the package has registered
import lowsparse as ls

M = ls.datasets.synthetic(300, 200, rank=2, density=0.5, outliers=0.1, random_state=1).M
begun, ended = threading.Event(), threading.Event()

def solve():
    while not ended.is_set():
        ls.solve(M, 2, max_iter=5)
        begun.set()

worker = threading.Thread(target=solve, daemon=True)
worker.start()
begun.wait()
"""


def test_a_thread_that_is_joined_at_exit_can_end_its_solve(native):
    assert python(JOINED_AT_EXIT).stdout == "joined\n"


SUBINTERPRETER = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
code = '''
try:
    import lowsparse
except ImportError as error:
    print(error, flush=True)
'''
first = {first!r}
if first:
    import lowsparse
one = interpreters.create()
interpreters.run_string(one, code)
interpreters.destroy(one)
"""


@pytest.mark.parametrize("first", [False, True])
def test_a_subinterpreter_is_refused_in_one_line(first):
    done = python(SUBINTERPRETER.format(first=first))
    assert done.stdout.startswith("lowsparse cannot run in a subinterpreter: use threads or processes")
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
