"""What `lowsparse complete` costs on records at scale: seconds of each step, and the most memory it held.

    python -m benchmarks.complete [--records 10000000] [--text] [--clean]

A Parquet file of (user, item, value) is made in a temporary folder: rank 5, noise, gross errors, some values missing.
The command runs on it as a process of its own. Beside its times stands that of reading the same file with pyarrow and
writing it again, which is the least that any tool spends.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

USERS, ITEMS, RANK = 200_000, 20_000, 5
NOISE, WRONG, MISSING = 0.1, 0.02, 0.01


def make(path: Path, records: int, users: int, items: int, *, text: bool, seed: int = 0) -> np.ndarray:
    """The records in a random order, and the truth of each."""
    rng = np.random.default_rng(seed)
    place = np.unique(rng.integers(0, users * items, records + records // 100))
    place = rng.permutation(place)[:records]
    i, j = np.divmod(place, items)
    U, V = rng.standard_normal((users, RANK)), rng.standard_normal((items, RANK))
    truth = np.asarray(3.0 + sum(U[i, k] * V[j, k] for k in range(RANK)))
    values = truth + NOISE * rng.standard_normal(place.size)
    wrong = rng.random(place.size) < WRONG
    values[wrong] += rng.choice([-20.0, 20.0], np.count_nonzero(wrong))
    values[rng.random(place.size) < MISSING] = np.nan
    named = [_named("user", i, users), _named("item", j, items)] if text else [1_000_000 + i, j]
    held = [*named, pa.array(values, from_pandas=True)]
    pq.write_table(pa.table(held, names=["user", "item", "value"]), path)
    return truth


def _named(kind: str, places: np.ndarray, count: int) -> pa.Array:
    return pa.array([f"{kind}-{k:07d}" for k in range(count)]).take(pa.array(places))


def copied(path: Path, other: Path) -> float:
    """Seconds to read and write the file with pyarrow alone."""
    began = time.perf_counter()
    pq.write_table(pq.read_table(path), other)
    return time.perf_counter() - began


def run(path: Path, out: Path, *options: str) -> tuple[dict[str, object], float, float]:
    """What the command says of itself, its seconds from start to end, and its peak memory in bytes."""
    names = ["--row", "user", "--col", "item", "--value", "value"]
    command = [sys.executable, "-m", "lowsparse", "complete", str(path), *names, "--out", str(out), "--json", *options]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    if child.returncode:
        raise SystemExit(child.returncode)
    return json.loads(said), seconds, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--text", action="store_true", help="names of users and items instead of 64-bit numbers")
    parser.add_argument("--clean", action="store_true", help="pass --clean to the command")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        path, out = Path(home, "records.parquet"), Path(home, "completed.parquet")
        truth = make(path, asked.records, asked.users, asked.items, text=asked.text)
        plain = copied(path, Path(home, "copy.parquet"))
        facts, seconds, peak = run(path, out, *["--clean"] * asked.clean)
        given, found = (pq.read_table(file, columns=["value"])["value"].to_numpy() for file in (path, out))
        filled = np.isnan(given)
        error = float(np.median(np.abs(found - truth)[filled]))
        listed = pq.read_metadata(out.with_name("completed-outliers.parquet")).num_rows
        size = path.stat().st_size / 2**20
        print(f"{asked.records:,} records of {asked.users:,} users and {asked.items:,} items, {size:.0f} MiB")
        for name, time_spent in facts["seconds"].items():  # type: ignore[attr-defined]
            print(f"  {name:<10} {time_spent:8.1f} s")
        print(f"  {'all':<10} {seconds:8.1f} s")
        print(f"  {'pyarrow':<10} {plain:8.1f} s  (reading and writing the same file)")
        print(f"  {'peak':<10} {peak / 2**30:8.2f} GiB")
        print(
            f"  rank {facts['rank']}; {facts['filled']:,} filled, median error {error:.3f} where the noise is {NOISE}"
        )
        print(f"  {listed:,} flagged, {WRONG * asked.records:,.0f} wrong")


if __name__ == "__main__":
    main()
