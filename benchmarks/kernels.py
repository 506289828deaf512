"""What one iteration costs, against things everybody knows.

    python -m benchmarks.kernels --out results           # sized for five minutes on two cores
    python -m benchmarks.kernels --full --out results    # as many rounds everywhere, however long they take

One iteration is what `lowsparse.solve` pays for it: the sweep over the entries, the step and the retraction. Beside it,
in the same run and in turns, the median of

- scipy: one product CSC @ dense(n x r) with the same matrix, on one thread (SciPy has no more);
- read: one pass over the memory of `values` and `rows` (12 bytes per entry), summed by NumPy on one thread. An
  iteration also reads S and writes the next one;
- oracle: the same iteration in plain NumPy.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import lowsparse as ls
from lowsparse.cli.text import table
from lowsparse.places.decide import available
from lowsparse.solvers import Problem, from_name
from lowsparse.solvers.start import generator, starting_subspace
from lowsparse.support.files import write_csv
from lowsparse.sweeps import Float, Sweep
from lowsparse.sweeps.native import num_threads

from .shown import cell

METHODS = ("manpg", "amanpg", "manpgc", "amanpgc", "rmc", "lmafit", "subgm")
ORACLE = {"manpgc": "manpg", "amanpgc": "amanpg"}  # the same iteration
ROUNDS = (5, 21)  # least and most; with a high rank 21 take minutes
SECONDS = 20.0  # of a matrix and rank, after which no round begins
WARM_UP = 3  # iterations before the first that is timed
AGAIN = 20  # iterations after which a method starts anew: it is timed on its way, not after its end


@dataclass(frozen=True)
class Shape:
    """A matrix of the paper, and the ranks to try on it."""

    m: int
    n: int
    density: float
    ranks: tuple[int, ...]
    bounds: dict[tuple[str, int], float]  # by method and rank: what it may cost on all threads, in scipy's products


SHAPES = {
    "square": Shape(
        5000,
        5000,
        0.1,
        (2, 5, 10, 20, 50),
        {
            **{("amanpg", 5): 1.2, ("amanpg", 10): 2.5, ("amanpg", 20): 2.6},
            **{("rmc", 5): 3.0, ("lmafit", 5): 3.0, ("subgm", 5): 3.0},
        },
    ),
    "video": Shape(25344, 300, 0.5, (2,), {("amanpg", 2): 1.2}),
    "wide": Shape(1000, 30000, 0.1, (5,), {}),
}
QUICK = {
    "square": Shape(300, 300, 0.1, (2, 5), {}),
    "video": Shape(1000, 40, 0.5, (2,), {}),
}


@contextmanager
def threads_set_to(count: int) -> Iterator[None]:
    """Open sweeps with this many threads."""
    before = os.environ.get("LOWSPARSE_NUM_THREADS")
    os.environ["LOWSPARSE_NUM_THREADS"] = str(count)
    try:
        yield
    finally:
        if before is None:
            del os.environ["LOWSPARSE_NUM_THREADS"]
        else:
            os.environ["LOWSPARSE_NUM_THREADS"] = before


class Iteration:
    """A method on its way; a call advances it by one iteration. The pieces are those `lowsparse.solve` is made of."""

    def __init__(self, M: ls.ObservedMatrix, rank: int, sweep: Sweep, U: Float, method: str) -> None:
        x = M.values
        rms, largest = float(np.sqrt(np.mean(x * x))), float(np.max(np.abs(x)))
        self.problem = Problem(
            M=M,
            rank=rank,
            sweep=sweep,
            start=lambda: U,
            start_given=True,
            tol=0.0,
            unit=rms,
            scale=rms,
            largest=largest,
            clip=np.inf,
            seed=0,
        )
        self.solver = from_name(method)
        self.begin()

    def begin(self) -> None:
        """Start, and leave the first iterations behind."""
        self.state = self.solver.init(self.problem)
        for _ in range(WARM_UP):
            self()

    def prepare(self) -> None:
        """Before the clock starts."""
        if self.state.iteration >= AGAIN:
            self.begin()

    def __call__(self) -> None:
        """One iteration."""
        self.state = self.solver.advance(self.problem, self.state)


def medians(
    contestants: dict[str, Callable[[], object]], repeats: int, limit: float = math.inf, in_a_row: int = 4
) -> tuple[dict[str, float], int]:
    """Seconds of each: the median over rounds, in every one of which everybody has a turn, in a new order.

    A turn is a few runs in a row, as in a solve; the first, which finds other data in the caches, is not counted. No
    round begins after `limit` seconds, but a few are run in any case. Returns the number of rounds, too.
    """
    rng = np.random.default_rng(4)
    names = list(contestants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    first_began, rounds = time.perf_counter(), 0
    while rounds < min(ROUNDS[0], repeats) or (rounds < repeats and time.perf_counter() - first_began < limit):
        rounds += 1
        for name in rng.permutation(names).tolist() if names else ():
            run = contestants[name]
            if isinstance(run, Iteration):
                run.prepare()
            if in_a_row > 1:
                run()
            for _ in range(max(1, in_a_row - 1)):
                began = time.perf_counter()
                run()
                seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(times) for name, times in seconds.items()}, rounds


def measure(
    shape: Shape, rank: int, methods: Sequence[str], *, repeats: int, limit: float, oracle: bool
) -> list[dict[str, object]]:
    """One row per method and number of threads."""
    backend = "native" if available()["native"] is None else "numpy"
    M = ls.datasets.synthetic(shape.m, shape.n, rank=rank, density=shape.density, outliers=0.1, random_state=1).M
    A = M.to_scipy()
    X = np.random.default_rng(2).standard_normal((shape.n, rank))
    pairs = M.rows[: M.nnz // 2 * 2].view(np.int64)  # summed without a conversion: it is the reading that counts
    counts = sorted({1, num_threads()})
    contestants: dict[str, Callable[[], object]] = {
        "scipy": lambda: A @ X,
        "read": lambda: (M.values.sum(), pairs.sum()),
    }
    slow: dict[str, Callable[[], object]] = {}
    with threadpool_limits(1, user_api="blas"):
        U = starting_subspace("svd", M.open_sweep(backend), shape.m, rank, generator(3))
        for count in counts:
            with threads_set_to(count):
                sweep = M.open_sweep(backend)
            for method in methods:
                contestants[f"{method} {count}"] = Iteration(M, rank, sweep, U, method)
        if oracle:
            plain = M.open_sweep("numpy")
            slow = {name: Iteration(M, rank, plain, U, name) for name in {ORACLE.get(name, name) for name in methods}}
        gc.collect()
        seconds, rounds = medians(contestants, repeats, limit)
        oracle_seconds, _ = medians(slow, 1, in_a_row=1)
    rows: list[dict[str, object]] = []
    for method in methods:
        for count in counts:
            own = seconds[f"{method} {count}"]
            numpy_seconds = oracle_seconds.get(ORACLE.get(method, method))
            bound = shape.bounds.get((method, rank)) if count == counts[-1] else None
            ratio = own / seconds["scipy"]
            rows.append(
                {
                    "m": shape.m,
                    "n": shape.n,
                    "entries": M.nnz,
                    "rank": rank,
                    "method": method,
                    "backend": backend,
                    "threads": count,
                    "rounds": rounds,
                    "milliseconds": 1e3 * own,
                    "ns_per_entry": 1e9 * own / M.nnz,
                    "scipy_milliseconds": 1e3 * seconds["scipy"],
                    "read_milliseconds": 1e3 * seconds["read"],
                    "oracle_milliseconds": None if numpy_seconds is None else 1e3 * numpy_seconds,
                    "over_scipy": ratio,
                    "over_read": own / seconds["read"],
                    "over_oracle": None if numpy_seconds is None else own / numpy_seconds,
                    "bound": bound,
                    "verdict": None if bound is None else ("ok" if ratio <= bound else "over"),
                }
            )
    return rows


def describe(rows: list[dict[str, object]]) -> str:
    """The table of one matrix and rank."""
    first = rows[0]
    entries = first["entries"]
    share = 100 * float(str(entries)) / (float(str(first["m"])) * float(str(first["n"])))
    title = (
        f"{first['m']} x {first['n']}, {share:.0f} % observed ({entries:,} entries), r = {first['rank']}, "
        f"{first['rounds']} rounds: scipy {first['scipy_milliseconds']:.3g} ms, "
        f"read {first['read_milliseconds']:.3g} ms"
    )
    if first["oracle_milliseconds"] is not None:
        title += f", oracle {first['oracle_milliseconds']:.3g} ms (manpg)"
    header = ["method", "threads", "ms", "ns/entry", "/ scipy", "/ read", "/ oracle", "bound", ""]
    body = [
        [
            str(row["method"]),
            str(row["threads"]),
            cell(row["milliseconds"], ".2f"),
            cell(row["ns_per_entry"], ".2f"),
            cell(row["over_scipy"], ".2f"),
            cell(row["over_read"], ".2f"),
            cell(row["over_oracle"], ".4f"),
            "" if row["bound"] is None else f"<= {row['bound']}",
            str(row["verdict"] or ""),
        ]
        for row in rows
    ]
    return title + "\n" + table(header, body, left=(0, 8))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description="What one iteration costs.")
    parser.add_argument("--shape", nargs="+", choices=sorted(SHAPES), help="which matrices; all by default")
    parser.add_argument("--rank", nargs="+", type=int, help="only these of the ranks")
    parser.add_argument("--method", nargs="+", choices=METHODS, default=METHODS, help="only these of the methods")
    parser.add_argument("--repeats", type=int, default=ROUNDS[1], help="most rounds; the median counts (default: 21)")
    parser.add_argument("--full", action="store_true", help="make all these rounds, however long they take")
    parser.add_argument("--no-oracle", action="store_true", help="leave the NumPy oracle out; it is slow")
    parser.add_argument("--quick", action="store_true", help="tiny matrices, few rounds: to see that it runs")
    parser.add_argument("--out", type=Path, help="folder for kernels.csv")
    given = parser.parse_args()
    if given.repeats < 1:
        parser.error("--repeats must be 1 or more")
    shapes = QUICK if given.quick else SHAPES
    repeats = min(given.repeats, 3) if given.quick else given.repeats
    limit = math.inf if given.full else SECONDS
    why = available()["native"]
    print(f"lowsparse {ls.__version__}, {'native' if why is None else 'numpy'} backend, {num_threads()} threads")
    if why is not None:
        print(f"the ratios below are those of the NumPy backend: {why}")
    print("medians over interleaved rounds. scipy: CSC @ dense(r); read: values and rows, once; oracle: in NumPy\n")
    everything: list[dict[str, object]] = []
    for name, shape in shapes.items():
        if given.shape and name not in given.shape:
            continue
        for rank in shape.ranks:
            if given.rank and rank not in given.rank:
                continue
            rows = measure(shape, rank, given.method, repeats=repeats, limit=limit, oracle=not given.no_oracle)
            print(describe(rows) + "\n", flush=True)
            everything += rows
    if not everything:
        parser.error("nothing to measure: these shapes do not have these ranks")
    if given.out is not None:
        write_csv(given.out / "kernels.csv", everything)
        print(f"numbers: {given.out / 'kernels.csv'}")


if __name__ == "__main__":
    main()
