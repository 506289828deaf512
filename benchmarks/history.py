"""Has a commit made it slower? The same problems, solved by two versions of the package in turns.

    python -m benchmarks.history                 the last commit against the one before
    python -m benchmarks.history v0.1.0 HEAD

Each version is installed from git into an environment of its own. The exit code is 1 if the newer one takes more than
`--limit` times as long on any of the problems, or if its answer is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lowsparse.cli.text import table

from .shown import cell

TURNS = 5
LIMIT = 1.25  # of the ratio of the medians: what is below may be the machine
WRONG = 1e-6  # relative error of a solve of data without noise

# Only names that every version has. Each problem is solved once to warm up, then the best of three is taken.
PROGRAM = """
import json, time
import lowsparse as ls

def seconds(work):
    taken = []
    for _ in range(4):
        start = time.perf_counter()
        error = work()
        taken.append(time.perf_counter() - start)
    return min(taken[1:]), error

def solve(m, n, rank, density, **options):
    problem = ls.datasets.synthetic(m, n, rank=rank, density=density, outliers=0.1, random_state=5)
    return seconds(lambda: ls.solve(problem.M, rank, random_state=1, **options).L.error(problem.L, relative=True))

print(json.dumps({
    "default, 1000 x 1000": solve(1000, 1000, 5, 0.2),
    "default, 8000 x 100": solve(8000, 100, 2, 0.5),
    "default, 60 x 50": solve(60, 50, 2, 0.7),
    "default, rank 20": solve(700, 600, 20, 0.4),
    "amanpgc, 1000 x 1000": solve(1000, 1000, 5, 0.2, method="amanpgc"),
}))
"""

Measured = dict[str, tuple[float, float]]  # by problem: seconds and error


def measure(python: str | Path) -> Measured:
    """What the version of this interpreter takes."""
    without = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            [python, "-c", PROGRAM], cwd=elsewhere, env=without, capture_output=True, text=True, check=True
        )
    return {name: (seconds, error) for name, (seconds, error) in json.loads(done.stdout).items()}


def install(commit: str, folder: Path) -> Path:
    """The interpreter of a new environment with the package as it was at a commit."""
    source, environment = folder / "source", folder / "environment"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    needed = {**os.environ, "LOWSPARSE_REQUIRE_CORE": "1"}
    subprocess.run([python, "-m", "pip", "install", "--quiet", source], env=needed, check=True)
    return python


def compare(old: Sequence[Measured], new: Sequence[Measured], limit: float) -> tuple[str, list[str]]:
    """A table of the medians, and what is slower or wrong in the new version."""
    rows, faults = [], []
    for name in new[0]:
        before, after = (statistics.median(turn[name][0] for turn in turns) for turns in (old, new))
        error = max(turn[name][1] for turn in new)
        rows.append([name, cell(before, ".4f"), cell(after, ".4f"), cell(after / before, ".2f"), cell(error, ".0e")])
        if after > limit * before:
            faults.append(f"{name}: {after / before:.2f} times as long")
        if not error <= WRONG:
            faults.append(f"{name}: the relative error is {error:.1e}")
    return table(["problem", "seconds before", "now", "ratio", "error"], rows), faults


def main() -> None:
    """Measure, print, and exit with 1 if something got worse."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description="Has a commit made it slower?")
    parser.add_argument("old", nargs="?", default="HEAD~1", help="a commit or tag; by default the one before the last")
    parser.add_argument("new", nargs="?", default="HEAD")
    parser.add_argument("--turns", type=int, default=TURNS, help="how often each is measured; the medians count")
    parser.add_argument("--limit", type=float, default=LIMIT, help="the ratio from which on it counts as slower")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pythons = [install(commit, Path(folder, side)) for side, commit in (("old", given.old), ("new", given.new))]
        turns = [[measure(python) for python in pythons] for _ in range(given.turns)]
    shown, faults = compare([old for old, _ in turns], [new for _, new in turns], given.limit)
    print(f"{given.old} against {given.new}, {given.turns} turns\n\n{shown}")
    if faults:
        sys.exit("\n" + "\n".join(faults))


if __name__ == "__main__":
    main()
