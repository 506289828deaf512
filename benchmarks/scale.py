"""Larger than memory, and on a cluster of this machine: time per pass, memory, bytes that travel.

    python -m pip install 'lowsparse[dask]'
    python -m benchmarks.scale --entries 200e6 --folder /somewhere/with/room

A matrix of rank 5 of which a tenth is observed, and a tenth of that wrong, is made on disk, a few columns at a time.
A pass is the sweep of an iteration of AManPG, or one robust regression of all columns (half an iteration of the
default). Every figure comes from a process of its own, so that its memory is its own; the medians are over passes after
the first.

- in memory: the compiled core on all threads;
- on disk: with the limit of memory, the file in the page cache;
- cold: the first pass after the file has been dropped from the page cache, against reading the file from front to end;
- workers: Dask on this machine, each with one thread, in one process (the compiled core does not hold Python's lock)
  and as processes of their own; MB are those of the tasks of a pass and their results when they are pickled, beside the
  model: U out and its gradient back, once for each piece.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import lowsparse as ls
from lowsparse.cli.text import table
from lowsparse.places import StoredMatrix
from lowsparse.places.decide import choose_place
from lowsparse.places.disk.store import Side, write_side
from lowsparse.solvers.start import left_singular_vectors
from lowsparse.support.sizes import bytes_of
from lowsparse.support.threads import one_blas_thread
from lowsparse.sweeps import Proximal, Robust, Rule, Sweep

from . import memory

RANK, DENSITY, WRONG = 5, 0.1, 0.1
AT_ONCE = 2_000_000  # entries that are made at a time
METHODS = ("amanpg", "regress")
THRESHOLD = 5.0  # of S, which is then zero at most entries, as in a solve after the first iterations


def make(folder: Path, entries: int, seed: int = 0) -> None:
    """A matrix with about so many entries, unless it is there."""
    side = max(50, round((entries / DENSITY) ** 0.5))
    source = f"synthetic: {side} x {side}, seed {seed}"
    if (folder / "columns" / "manifest.json").exists() and Side.open(folder / "columns").source == source:
        return
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((side, RANK))
    per_column = max(RANK + 1, round(DENSITY * side))
    width = max(1, AT_ONCE // per_column)
    with write_side(folder / "columns", side, np.float64, source) as writer:
        for first in range(0, side, width):
            columns = min(width, side - first)
            # ascending rows with gaps at random: every column has as many
            gaps = rng.random((columns, per_column), dtype=np.float32) + 0.1
            rows = np.cumsum(gaps, axis=1)
            rows = (rows * (side / (rows[:, -1:] + 0.5)) * (1 - per_column / side)).astype(np.int32)
            rows += np.arange(per_column, dtype=np.int32)
            V = rng.standard_normal((columns, RANK))
            values = np.einsum("cr,ckr->ck", V, U[rows]).ravel()
            bad = rng.integers(values.size, size=int(WRONG * values.size))
            values[bad] += 10 * rng.standard_normal(bad.size)
            writer.append(np.full(columns, per_column), rows.ravel(), values)


def passes(M: Any, sweep: Sweep, method: str, rank: int = RANK) -> Callable[[], object]:
    """What is timed."""
    U = left_singular_vectors(sweep, M.shape[0], rank, np.random.default_rng(1))[0]
    if method == "regress":
        how = Robust(c=1.0, bound=3.0)
        V = sweep.regress(U, None, how).V
        return lambda: sweep.regress(U, V, how)
    S, spare = (M.hold(np.zeros_like(M.values)) for _ in range(2))
    kept = [S, spare]

    def step() -> None:
        sweep.sweep(U, kept[0], kept[1], Proximal(Rule.AMANPG, gamma=THRESHOLD))
        kept.reverse()

    return step


def one(where: str, folder: Path, method: str, limit: str, workers: int, rounds: int, rank: int) -> dict[str, Any]:
    """A figure, in this process."""
    M: Any = StoredMatrix(folder, memory=bytes_of(limit))
    client: Any = None
    cluster: Any = None
    if where == "memory":
        side = M.side
        M = ls.ObservedMatrix(side.indptr, np.array(side.rows), np.array(side.values), side.shape)
    elif where in ("workers", "processes"):
        distributed: Any = importlib.import_module("dask.distributed")

        cluster = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=where == "processes", dashboard_address=":0"
        )
        client = distributed.Client(cluster, direct_to_workers=True)
        M = choose_place(M, "dask", client=client).place()
    said: dict[str, Any] = {"entries": M.nnz, "pieces": len(getattr(M, "pieces", [1]))}
    if where == "cold":
        forget(folder)
        began = time.perf_counter()
        read(folder)
        said["reading"] = time.perf_counter() - began
        M.verified  # noqa: B018
    with one_blas_thread:
        step = passes(M, M.open_sweep(), method, rank)
        if where == "cold":
            forget(folder)
        seconds = []
        for _ in range(1 if where == "cold" else rounds):
            began = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - began)
    said["seconds"] = statistics.median(seconds[1:] or seconds)
    said["peak"] = memory.peak()
    if client is not None:
        said["moved"] = moved(client, step)
        client.close()
        cluster.close()
    return said


def moved(client: Any, step: Callable[[], object]) -> int:
    """Bytes of the tasks of a pass, and of what they give."""
    total = 0
    map_, gather = client.map, client.gather

    def sending(function: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal total
        for _, *own in zip(*arguments, strict=True):  # the piece stays where it is
            total += len(pickle.dumps(own))
        return map_(function, *arguments, **options)

    def receiving(futures: Any, **options: Any) -> Any:
        nonlocal total
        found = gather(futures, **options)
        total += sum(len(pickle.dumps(one)) for one in found)
        return found

    client.map, client.gather = sending, receiving
    step()
    client.map, client.gather = map_, gather
    return total


def read(folder: Path) -> None:
    """Read the matrix from front to end."""
    room = memoryview(bytearray(1 << 22))
    for path in (folder / "columns").glob("*.npy"):
        with open(path, "rb", buffering=0) as file:
            while file.readinto(room):
                pass


def forget(folder: Path) -> None:
    """Drop the matrix from the page cache."""
    for path in (folder / "columns").glob("*.npy"):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(
    where: str, folder: Path, method: str, arguments: argparse.Namespace, workers: int = 1, rank: int = RANK
) -> dict[str, Any]:
    """A figure, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale", "--one", where, "--folder", str(folder), "--method", method]
    command += ["--memory", arguments.memory, "--workers", str(workers), "--rounds", str(arguments.rounds)]
    done = subprocess.run([*command, "--rank", str(rank)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    found: dict[str, Any] = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Larger than memory, and on a cluster of this machine.")
    parser.add_argument("--entries", type=float, nargs="+", default=[1e6, 20e6, 200e6])
    parser.add_argument("--cluster", type=float, default=20e6, help="entries of the matrix for Dask; 0: none")
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    parser.add_argument("--method", default="", help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, default=RANK, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(
            json.dumps(
                one(
                    arguments.one,
                    arguments.folder,
                    arguments.method,
                    arguments.memory,
                    arguments.workers,
                    arguments.rounds,
                    arguments.rank,
                )
            )
        )
        return
    with tempfile.TemporaryDirectory() as made:
        folder = arguments.folder or Path(made)
        rows = [row for entries in arguments.entries for row in on_disk(folder, int(entries), arguments)]
        print(table(["entries", "pass", "in memory", "on disk", "ratio", "M entries/s", "MB", "cold", "reading"], rows))
        if arguments.cluster:
            print()
            print(table(CLUSTER, on_cluster(folder, int(arguments.cluster), arguments)))


def on_disk(folder: Path, entries: int, arguments: argparse.Namespace) -> list[list[str]]:
    """The rows of one size."""
    place = folder / f"{entries}"
    make(place, entries)
    rows = []
    for method in METHODS:
        inside, outside, cold = (measure(where, place, method, arguments) for where in ("memory", "disk", "cold"))
        rows.append(
            [
                f"{inside['entries']:,}",
                method,
                f"{inside['seconds']:.3f} s",
                f"{outside['seconds']:.3f} s",
                f"{outside['seconds'] / inside['seconds']:.2f}",
                f"{outside['entries'] / outside['seconds'] / 1e6:.0f}",
                f"{outside['peak'] / 1e6:.0f}",
                f"{cold['seconds']:.2f} s",
                f"{cold['reading']:.2f} s",
            ]
        )
    return rows


CLUSTER = ["rank", "pass", "workers", "in process", "1 worker", "2 workers", "1 / 2", "2 / in process", "MB", "model"]


def on_cluster(folder: Path, entries: int, arguments: argparse.Namespace) -> list[list[str]]:
    """The rows of the cluster."""
    place = folder / f"{entries}"
    make(place, entries)
    side = StoredMatrix(place).shape[0]
    rows = []
    for rank in (RANK, 2 * RANK):
        for method in METHODS:
            inside = measure("memory", place, method, arguments, rank=rank)
            for where, kind in (("workers", "threads"), ("processes", "processes")):
                alone, both = (measure(where, place, method, arguments, workers, rank) for workers in (1, 2))
                rows.append(
                    [
                        f"{rank}",
                        method,
                        kind,
                        *(f"{1e3 * one['seconds']:.0f} ms" for one in (inside, alone, both)),
                        f"{alone['seconds'] / both['seconds']:.2f}",
                        f"{both['seconds'] / inside['seconds']:.2f}",
                        f"{both['moved'] / 1e6:.1f}",
                        f"{both['pieces'] * side * rank * 8 * 2 / 1e6:.1f}",
                    ]
                )
    return rows


if __name__ == "__main__":
    main()
