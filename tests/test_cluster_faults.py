"""Faults of a Dask cluster, made on purpose: a solve ends with the right answer or with a clear error, never in a hang.

The cluster is real, with workers in processes of their own; they are killed and frozen by signals.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

import lowsparse as ls
from conftest import PATH, interruptible, relative
from lowsparse.places import compatible, liveness
from lowsparse.places.cluster import _read_piece
from lowsparse.places.liveness import ClusterError

distributed = pytest.importorskip("distributed", reason="needs the extra `dask`")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
HOW = {"method": "amanpgc", "max_iter": 60, "tol": 0}


@contextmanager
def local_cluster(**options):
    """A cluster whose workers can be frozen: they are killed at the end, for Dask would wait for them."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", **options}
    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        processes = client.run(os.getpid)
        try:
            yield cluster, client, processes
        finally:
            for process in processes.values():
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)


def at_iteration(number, fault):
    """A callback that makes a fault once, and a list with the time of it."""
    times = []

    def callback(progress):
        if progress.iteration == number and not times:
            times.append(time.monotonic())
            fault()

    return callback, times


def kill(processes, number=signal.SIGKILL):
    for process in processes:
        os.kill(process, number)


def close_soon(client):
    threading.Timer(0.05, client.close).start()


# what is done to the cluster, what the error says, and the seconds that a part of it may be silent
FATAL = {
    "all workers killed": (lambda cluster, client, pids: kill(pids), "had no workers", 3),
    "a worker frozen": (
        lambda cluster, client, pids: kill(pids[:1], signal.SIGSTOP),
        "tcp://.* gave no sign of life",
        3,
    ),
    "scheduler closed": (lambda cluster, client, pids: cluster.sync(cluster.scheduler.close), "did not answer|lost", 3),
    "client closed": (lambda cluster, client, pids: client.close(), "client is closed", 30),
    "client closed in a pass": (lambda cluster, client, pids: close_soon(client), "client is closed", 30),
    "workers restarted": (lambda cluster, client, pids: client.restart(), "lost the tasks", 30),
}
QUICK = ("client closed",)


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FATAL]
)
def test_a_cluster_that_cannot_go_on_ends_the_solve(stored, fault, monkeypatch):
    make, message, seconds = FATAL[fault]
    with local_cluster() as (cluster, client, processes):

        def make_fault():
            monkeypatch.setenv(liveness.TIMEOUT, str(seconds))
            for nanny in cluster.workers.values() if fault == "all workers killed" else ():
                monkeypatch.setattr(nanny, "instantiate", partial(asyncio.sleep, 0))  # it starts no new worker
            make(cluster, client, list(processes.values()))

        callback, times = at_iteration(16, make_fault)
        with pytest.raises(ClusterError, match=message):
            ls.solve(stored, 2, client=client, callback=callback, **HOW)
        assert time.monotonic() - times[0] < 2 * seconds + 10


def thaw_later(process, seconds):
    os.kill(process, signal.SIGSTOP)
    threading.Timer(seconds, os.kill, (process, signal.SIGCONT)).start()


SURVIVED = {
    "a worker killed": lambda pids: kill(pids[:1]),
    "all workers killed and replaced": kill,
    "a worker frozen for 5 s": lambda pids: thaw_later(pids[0], 5),
    "a worker frozen, and replaced by Dask": lambda pids: kill(pids[:1], signal.SIGSTOP),
}


@pytest.mark.slow
@pytest.mark.parametrize("max_direct", [8, 0])  # U goes to each piece, or from worker to worker
@pytest.mark.parametrize("fault", SURVIVED)
def test_a_cluster_that_recovers_gives_the_same_answer(noisy, stored, fault, max_direct, monkeypatch):
    dask = pytest.importorskip("dask")
    monkeypatch.setattr("lowsparse.places.cluster.MAX_DIRECT", max_direct)
    with (
        dask.config.set({"distributed.scheduler.worker-ttl": "8s"}),
        local_cluster() as (_, client, processes),
    ):
        callback, times = at_iteration(16, lambda: SURVIVED[fault](list(processes.values())))
        found = ls.solve(stored, 2, client=client, callback=callback, **HOW)
        assert times
        assert relative(found.L, ls.solve(noisy.M, 2, **HOW).L) < 1e-8


def test_a_cluster_without_workers_is_waited_for_and_named(stored, monkeypatch):
    monkeypatch.setenv(liveness.TIMEOUT, "1")
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        pytest.raises(ClusterError, match="had no workers for 1 s"),
    ):
        ls.solve(stored, 2, client=client)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "a minute"])
def test_the_timeout_is_checked_before_anything_is_done(noisy, text, monkeypatch):
    monkeypatch.setenv(liveness.TIMEOUT, text)
    with pytest.raises(ValueError, match=r"LOWSPARSE_CLUSTER_TIMEOUT=.* is not a number of seconds"):
        ls.solve(noisy.M, 2, backend="dask")


def test_workers_must_have_the_same_version(stored, client, monkeypatch):
    monkeypatch.setattr(compatible, "__version__", "9.9")
    with pytest.raises(ClusterError, match=r"has lowsparse .*, not 9.9: install the same"):
        ls.solve(stored, 2, client=client)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="a path that only this process sees")
def test_workers_must_see_the_matrix(stored, client):
    folder = os.open(stored.folder / stored.name, os.O_RDONLY)
    try:
        with pytest.raises(
            ClusterError, match=r"does not see the matrix in .*: put it on a disk that all workers share"
        ):
            compatible.check_workers(client, f"/proc/self/fd/{folder}")
    finally:
        os.close(folder)


def test_a_piece_is_not_read_from_another_matrix(stored, client):
    side = str(stored.folder / stored.name)
    piece = client.submit(_read_piece, side, {**compatible.describe(side), "manifest": "0"}, 0, 0, 10)
    with pytest.raises(ClusterError, match="sees another one there"):
        piece.result()


@pytest.mark.slow
@pytest.mark.parametrize(("change", "message"), [("version", "has lowsparse 9.9, not"), ("none", "has no lowsparse")])
def test_a_worker_with_another_lowsparse_is_named(stored, tmp_path, change, message):
    package = tmp_path / "path" / "lowsparse"
    if change == "version":
        shutil.copytree(Path(ls.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / "_version.py").write_text('__version__ = "9.9"\n')
    else:
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        command = [sys.executable, "-m", "distributed.cli.dask_worker", client.scheduler.address, "--no-nanny"]
        environment = {**os.environ, "PYTHONPATH": str(package.parent)}
        worker = subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL)
        try:
            with pytest.raises(ClusterError, match=message):
                ls.solve(stored, 2, client=client)
        finally:
            worker.kill()
            worker.wait()


@pytest.mark.slow
def test_ctrl_c_ends_the_wait_for_a_frozen_worker(stored, tmp_path):
    (tmp_path / "run.py").write_text(f"""
import os, signal, sys
sys.path[:0] = {PATH.split(os.pathsep)!r}
import distributed, lowsparse as ls
if __name__ == "__main__":
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    client = distributed.Client(cluster)
    pid = next(iter(client.run(os.getpid).values()))
    def freeze(progress):
        if progress.iteration == 3:
            os.kill(pid, signal.SIGSTOP)
            print("frozen", flush=True)
    try:
        ls.solve({str(stored.folder)!r}, 2, client=client, method="amanpgc", tol=0, callback=freeze)
    except KeyboardInterrupt:
        print("stopped", flush=True)
        os.kill(pid, signal.SIGKILL)
        os._exit(0)
""")
    child = interruptible([sys.executable, "run.py"], tmp_path)
    assert child.stdout.readline() == "frozen\n"
    time.sleep(1)
    child.send_signal(signal.SIGINT)
    since = time.monotonic()
    assert child.stdout.readline() == "stopped\n"
    assert time.monotonic() - since < 5
    child.communicate(timeout=30)
