"""The benchmarks run, and what they print and write hangs together. Nothing here asserts a time."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lowsparse.sweeps.native import num_threads

ROOT = Path(__file__).parents[1]


def run(module, *arguments):
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_kernels(tmp_path):
    done = run("kernels", "--quick", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "kernels.csv")
    threads = {1, num_threads()}
    assert {(r["m"], r["rank"]) for r in rows} == {("300", "2"), ("300", "5"), ("1000", "2")}
    assert len(rows) == 3 * 7 * len(threads)
    for row in rows:
        own = float(row["milliseconds"])
        assert own > 0
        for other in ("scipy", "read", "oracle"):
            assert float(row[f"over_{other}"]) == pytest.approx(own / float(row[f"{other}_milliseconds"]))
        assert float(row["ns_per_entry"]) == pytest.approx(1e6 * own / int(row["entries"]))
    for word in ("/ scipy", "/ read", "/ oracle", "amanpgc"):
        assert word in done.stdout


def test_kernels_without_the_oracle(tmp_path):
    done = run("kernels", "--quick", "--no-oracle", "--shape", "video", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "kernels.csv")
    assert {row["over_oracle"] for row in rows} == {""}
    assert {row["n"] for row in rows} == {"40"}


def test_synthetic(tmp_path):
    done = run("synthetic", "--case", 6, "--shrink", 10, "--quick", "--methods", "amanpgc", "manpgc", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Case 6: 500 x 500, rank 5" in done.stdout
    rows = rows_of(tmp_path / "case-6.csv")
    for method in ("amanpgc", "manpgc"):
        own = [row for row in rows if row["method"] == method]
        assert [int(row["iteration"]) for row in own] == list(range(1, len(own) + 1))
        assert np.all(np.diff([float(row["seconds"]) for row in own]) >= 0)
    errors = [float(row["relative_difference"]) for row in rows if row["method"] == "amanpgc"]
    assert errors[-1] < 1e-6
    line = next(line for line in done.stdout.splitlines() if line.startswith("amanpgc"))
    _, status, final, iterations, *_ = line.split()
    assert (status, int(iterations)) == ("converged", len(errors))
    assert float(final) == pytest.approx(errors[-1], rel=0.1)
    to_target = int(line.split()[6])
    assert errors[to_target - 1] <= 1e-6 < errors[to_target - 2]
    assert line.split()[-2] == "1.00"
    if sys.platform != "win32":
        assert float(line.split()[-1]) >= 1  # the input itself is counted in
    assert (tmp_path / "case-6.png").read_bytes().startswith(b"\x89PNG")
    assert "svds(k=5)" in done.stdout


@pytest.mark.parametrize("arguments", [("--case", "9"), ("--case", "x"), ("--shrink", "0"), ("--methods", "magic")])
def test_synthetic_refuses(arguments, tmp_path):
    done = run("synthetic", "--quick", "--out", tmp_path, *arguments)
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_race(tmp_path):
    methods = ("amanpgc", "manpgc")
    done = run("race", "--quick", "--case", 1, 4, "--repeats", 1, "--methods", *methods, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "race.csv")
    assert {row["case"] for row in rows} == {"1", "4"}
    assert {row["method"] for row in rows} == {"svds", "ladder", "amanpgc", "manpgc"}
    for row in rows:
        assert float(row["seconds"]) > 0
        if row["method"] == "ladder":
            assert float(row["error"]) < 1e-7
    assert (tmp_path / "race.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_phase(tmp_path):
    done = run("phase", "--quick", "--methods", "ladder", "amanpgc", "irls", "rmc", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "phase.csv")
    methods = {row["method"] for row in rows}
    assert methods == {"ladder", "amanpgc", "irls", "rmc"}
    successes = {method: sum(int(row["successes"]) for row in rows if row["method"] == method) for method in methods}
    assert successes["ladder"] == max(successes.values()) > 0
    assert "cells where ladder is beaten by more than two standard errors: none" in done.stdout
    assert {path.name for path in tmp_path.glob("*.png")} == {f"phase_{method}.png" for method in methods}


@pytest.mark.slow
def test_peers(tmp_path):
    done = run("peers", "--quick", "--contestants", "default", "amanpgc", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "peers.csv")
    assert {row["contestant"] for row in rows} == {"default", "amanpgc"}
    assert all(float(row["error"]) < 1e-6 for row in rows)
