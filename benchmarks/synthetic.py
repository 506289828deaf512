"""The paper's eight synthetic cases: relative difference to the truth against seconds and iterations.

    python -m benchmarks.synthetic --case 1 3 --out results
    python -m benchmarks.synthetic --case all

For every method: iterations and seconds (of solving, the start included; measuring the difference is not counted)
until the relative difference is 1e-3, 1e-6 and 1e-8; the time of scipy's svds(k=r) on the same matrix, for reference;
and the peak memory of the solve as a multiple of the input (values and indices, which are counted in).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse.linalg import svds

import lowsparse as ls
from lowsparse import plots
from lowsparse.cli.text import table
from lowsparse.support.files import write_csv

from . import memory

TARGETS = (1e-3, 1e-6, 1e-8)
REFERENCE = "amanpgc"


@dataclass(frozen=True)
class Run:
    """One method on one case."""

    result: ls.Result
    errors: list[float]  # after each iteration
    memory: int | None  # bytes

    def reached(self, target: float) -> tuple[int, float] | None:
        """Iterations and seconds until the relative difference is at most `target`; None if it never was."""
        there = np.flatnonzero(np.array(self.errors) <= target)
        if not there.size:
            return None
        return int(there[0]) + 1, float(self.result.trace["seconds"][there[0]])


def watched(problem: ls.datasets.SyntheticProblem, method: str, max_iter: int, with_memory: bool) -> Run:
    """Solve and measure; the memory in a second solve, that nobody watches."""
    errors: list[float] = []

    def watch(progress: ls.Progress) -> None:
        errors.append(progress.lowrank().error(problem.L, relative=True))

    rank = problem.L.rank
    result = ls.solve(problem.M, rank, method=method, max_iter=max_iter, random_state=11, callback=watch)
    used = None
    if with_memory:
        with tempfile.TemporaryDirectory() as folder:
            used = memory.of_solve(problem.M, rank, method, Path(folder))
    return Run(result, errors, used)


def describe(runs: dict[str, Run], input_bytes: int) -> str:
    """The table of one case."""
    header = ["method", "status", "final", "iterations"]
    for target in TARGETS:
        header += [f"its to {target:.0e}", "s"]
    header += [f"/ {REFERENCE}", "peak / input"]
    reference = runs[REFERENCE].reached(1e-6) if REFERENCE in runs else None
    rows = []
    for method, run in runs.items():
        row = [method, run.result.status.value, f"{run.errors[-1]:.1e}", str(run.result.n_iter)]
        for target in TARGETS:
            reached = run.reached(target)
            row += [str(reached[0]), f"{reached[1]:.2f}"] if reached else ["-", "-"]
        own = run.reached(1e-6)
        row.append(f"{own[1] / reference[1]:.2f}" if own and reference else "-")
        row.append("-" if run.memory is None else f"{run.memory / input_bytes:.2f}")
        rows.append(row)
    return table(header, rows, left=(0, 1))


def write(out: Path, case: int, runs: dict[str, Run], title: str) -> None:
    """The curves of one case as a picture and as numbers."""
    out.mkdir(parents=True, exist_ok=True)
    traces: dict[str, dict[str, Any]] = {
        method: {**run.result.trace, "error": run.errors} for method, run in runs.items()
    }
    plots.convergence_figure(traces, title=title).savefig(out / f"case-{case}.png")
    columns = {"seconds": "seconds", "relative_difference": "error", "gamma": "gamma"}
    rows = [
        {"case": case, "method": method, "iteration": int(k)}
        | {name: f"{float(trace[column][i]):.6g}" for name, column in columns.items()}
        for method, trace in traces.items()
        for i, k in enumerate(trace["iteration"])
    ]
    write_csv(out / f"case-{case}.csv", rows)


def measure(case: int, methods: Sequence[str], *, shrink: int, max_iter: int, with_memory: bool, out: Path) -> None:
    """Make the case, run everybody on it, print and write."""
    problem = ls.datasets.paper_case(case, shrink=shrink, random_state=case)
    M, rank = problem.M, problem.L.rank
    wrong = float(np.mean(problem.S != 0))
    m, n = M.shape
    title = f"Case {case}: {m} × {n}, rank {rank}, {100 * M.density:.0f} % observed, {100 * wrong:.0f} % of that wrong"
    print(title.replace("×", "x"), flush=True)
    runs = {method: watched(problem, method, max_iter, with_memory) for method in methods}
    began = time.perf_counter()
    svds(M.to_scipy(), k=rank, random_state=12)
    svd_seconds = time.perf_counter() - began
    input_bytes = M.values.nbytes + M.rows.nbytes + M.indptr.nbytes
    print(describe(runs, input_bytes))
    backend = next(iter(runs.values())).result.backend
    print(
        f"backend {backend}; input {input_bytes / 1e6:.1f} MB; scipy svds(k={rank}) {svd_seconds:.2f} s\n", flush=True
    )
    write(out, case, runs, title)


def main() -> None:
    every = sorted(ls.datasets.PAPER_CASES)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.synthetic", description="The paper's eight cases.")
    parser.add_argument("--case", nargs="+", default=["1"], metavar="1..8", help="cases, or all (default: 1)")
    parser.add_argument(
        "--methods", nargs="+", default=["amanpgc", "manpgc"], choices=ls.solvers.names(), help="default: both with C"
    )
    parser.add_argument("--shrink", type=int, help="divide both sides of the matrix (default: 1, the paper's size)")
    parser.add_argument("--max-iter", type=int, default=500)
    parser.add_argument("--no-memory", action="store_true", help="leave out the second solve that measures memory")
    parser.add_argument("--quick", action="store_true", help="as --shrink 4, if not given: to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for pictures and CSV")
    given = parser.parse_args()
    shrink = given.shrink if given.shrink is not None else (4 if given.quick else 1)
    if shrink < 1 or given.max_iter < 1:
        parser.error("--shrink and --max-iter must be 1 or more")
    names = [str(case) for case in every] if "all" in given.case else given.case
    if unknown := [name for name in names if name not in map(str, every)]:
        parser.error(f"the paper has cases 1 to 8, not {', '.join(unknown)}")
    for case in sorted({int(name) for name in names}):
        measure(
            case,
            given.methods,
            shrink=shrink,
            max_iter=given.max_iter,
            with_memory=not given.no_memory,
            out=given.out,
        )
    print(f"pictures and numbers: {given.out}")


if __name__ == "__main__":
    main()
