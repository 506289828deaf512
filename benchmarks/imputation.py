"""Real tables with holes and gross errors: who predicts best what was held out, how fast, and with how much memory.

    python -m pip install 'lowsparse[bench]'
    python -m benchmarks.imputation --out results

`benchmarks.realdata` says which sets, what is held out and what is spoilt; `benchmarks.imputers` says who takes part
and with which settings. Errors are those of the entries held out, none of which is spoilt, in units of the spread:
MAE is the mean of their magnitudes, RMSE the root of the mean of their squares, both averaged over the seeds, which
are the same for everybody.

Every method has a process of its own for every set, and fills a small table first (what is loaded or compiled on first
use is not counted). Who has to choose a setting does so once, on the first seed, and the seconds it takes are shown by
themselves. The memory is the most the process held, less what it held with the data in it. The limit is for all seeds
of one set together; seeds that were done by then count.

Dense algebra on all threads suffers much from other work on the machine: run it on a quiet one, or set
OPENBLAS_NUM_THREADS=1. Without other work it takes about 25 minutes on two cores; --jobs 2 is to see errors, not times.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lowsparse.cli.text import table
from lowsparse.support.files import write_csv

from . import memory
from .apart import OVER_LIMIT, add_arguments, ask, at_most, grown, quietly
from .imputers import IMPUTERS, Imputer
from .realdata import FOLDER, SETS, Table, Task, make_task
from .shown import cell

OWN = "lowsparse"
REAL = [name for name, source in SETS.items() if source.file]
TRIAL = "synthetic"
CHOOSING = 0.25  # of the limit: time to try settings in
TIMES_FASTER = 10.0  # than the most accurate robust peer, at least
MEASURED = ("mae", "rmse", "seconds", "cpu_seconds")
NOTHING: dict[str, Any] = {"seeds": 0, **dict.fromkeys(MEASURED), "mae_deviation": None}
NOTHING |= {"choosing": None, "bytes": None, "setting": ""}


def save(task: Task, path: Path) -> None:
    np.savez(path, **dataclasses.asdict(task))


def load(path: Path) -> Task:
    with np.load(path) as stored:
        parts = {name: stored[name] for name in stored}
    return Task(**{**parts, "ratings": bool(parts["ratings"])})


def in_this_process(imputer: Imputer, folder: Path, limit: float) -> None:
    """Print what there is to say of every seed in the folder, a line for each."""
    imputer.load()
    paths = sorted(folder.glob("*.npz"))
    task = load(paths[0])
    with quietly():
        imputer.fill(make_task(SETS[TRIAL].load(folder), 1).X, False, imputer.settings[0])
    before = memory.peak()
    with at_most(limit):
        began = time.perf_counter()
        setting, tried = imputer.choose(task.X, task.ratings, CHOOSING * limit)
        choosing = time.perf_counter() - began if tried > 1 else 0.0
        for path in paths:
            task = load(path)
            with quietly():
                began, used = time.perf_counter(), time.process_time()
                filled = imputer.fill(task.X, task.ratings, setting)
                seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - used
            taken = grown(before)
            errors = task.errors(filled)
            line = {
                "mae": float(np.mean(np.abs(errors))),
                "rmse": float(np.sqrt(np.mean(errors**2))),
                "seconds": seconds,
                "cpu_seconds": cpu_seconds,
                "choosing": choosing,
                "bytes": taken,
                "setting": "" if setting is None else str(setting),
            }
            print(json.dumps(line), flush=True)


def measure(name: str, folder: Path, limit: float) -> dict[str, Any]:
    """One method on the seeds in the folder, in a process of its own; with a remark if it did not get to the end."""
    lines, remark = ask("imputation", name, folder, limit)
    if remark == OVER_LIMIT:
        remark += f" after {len(lines)} of {len(list(folder.iterdir()))} seeds"
    return {**NOTHING, **(average(lines) if lines else {}), "remark": remark}


def average(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Over the seeds; the memory is the most of all."""
    return {
        **lines[-1],
        **{key: float(np.mean([line[key] for line in lines])) for key in MEASURED},
        "mae_deviation": float(np.std([line["mae"] for line in lines])),
        "seeds": len(lines),
    }


def run_set(
    name: str, tasks: Sequence[Task], methods: Sequence[str], *, limit: float, jobs: int, hopeless: bool
) -> list[dict[str, Any]]:
    """A row for every method, the smallest mean absolute error first; the hopeless ones are run only if asked for."""
    able = [method for method in methods if hopeless or tasks[0].X.size <= IMPUTERS[method].largest]
    found = {method: {**NOTHING, "remark": "hopeless: see benchmarks.imputers"} for method in methods}
    with tempfile.TemporaryDirectory() as made, ThreadPoolExecutor(jobs) as pool:
        folder = Path(made)
        for k, task in enumerate(tasks):
            save(task, folder / f"{k:03}.npz")
        found |= zip(able, pool.map(partial(measure, folder=folder, limit=limit), able), strict=True)
    rows = []
    for method, numbers in found.items():
        imputer = IMPUTERS[method]
        who = {"method": method, "label": imputer.label, "version": imputer.version, "robust": imputer.robust}
        rows.append({"set": name, **who, **numbers})
    compare(rows)
    return sorted(rows, key=lambda row: float("inf") if row["mae"] is None else row["mae"])


def compare(rows: Sequence[dict[str, Any]]) -> None:
    """Errors over the smallest, and seconds over our own, beside them."""
    own = next((row["seconds"] for row in rows if row["method"] == OWN), None)
    for row in rows:
        for key in ("mae", "rmse"):
            smallest = min((other[key] for other in rows if other[key] is not None), default=None)
            row[f"{key}_over_best"] = None if row[key] is None else row[key] / smallest
        row["seconds_over_own"] = row["seconds"] / own if own and row["seconds"] else None


def describe(title: str, task: Task, rows: Sequence[dict[str, Any]]) -> str:
    """The table of one set."""
    body = [
        [
            row["label"] + (" *" if row["robust"] else ""),
            cell(row["mae"], ".4f"),
            cell(row["mae_over_best"], ".2f"),
            cell(row["rmse"], ".4f"),
            cell(row["rmse_over_best"], ".2f"),
            cell(row["seconds"], ".2f"),
            cell(row["seconds_over_own"], ".1f"),
            cell(row["choosing"], ".1f"),
            cell(row["bytes"], ".0f", 1e6),
            ", ".join(text for text in (row["setting"], row["remark"]) if text),
        ]
        for row in rows
    ]
    known = int(np.sum(~np.isnan(task.X)))
    shape = f"{task.X.shape[0]} x {task.X.shape[1]}, {known:,} entries known, {len(task.truth):,} held out"
    header = ["* robust", "MAE", "/ best", "RMSE", "/ best", "s", f"/ {OWN}", "choosing, s", "MB", "setting"]
    return f"{title}: {shape}\n" + table(header, body, left=(0, 9))


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Who is best where, and how much faster the robust peer that is most accurate is beaten."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    body, wins, fast, compared = [], {"mae": 0, "rmse": 0}, 0, 0
    for name in sets:
        done = [row for row in rows if row["set"] == name and row["mae"] is not None]
        if not done:
            continue
        best = {key: min(done, key=lambda row: float(row[key])) for key in ("mae", "rmse")}
        for key in wins:
            wins[key] += best[key]["method"] == OWN
        own = next((row for row in done if row["method"] == OWN), None)
        peer = min((r for r in done if r["robust"] and r["method"] != OWN), key=lambda r: float(r["mae"]), default=None)
        line = [name, best["mae"]["label"], best["rmse"]["label"], "", "", "", ""]
        if own and peer:
            times = peer["seconds"] / own["seconds"]
            compared, fast = compared + 1, fast + (times >= TIMES_FASTER)
            line[3:] = [
                peer["label"],
                f"{own['mae'] / peer['mae']:.3f}",
                f"{times:.1f}",
                f"{(peer['seconds'] + peer['choosing']) / own['seconds']:.1f}",
            ]
        body.append(line)
    header = ["set", "best MAE", "best RMSE", "best robust peer", "our MAE / its", "times faster", "with its choosing"]
    return "\n".join(
        [
            table(header, body, left=(0, 1, 2, 3)),
            f"{OWN} has the smallest MAE on {wins['mae']} and the smallest RMSE on {wins['rmse']} of {len(body)} sets;",
            f"it is at least {TIMES_FASTER:g} times faster than the most accurate robust peer on {fast} of {compared}.",
        ]
    )


def read_set(name: str, folder: Path) -> Table | None:
    """The set, or None if its file is not there."""
    source = SETS[name]
    if source.missing(folder):
        print(f"{name} is left out: there is no {source.file} in {folder} (--data says where to look)")
        return None
    return source.load(folder / source.file)


def parse() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.imputation", description="Real tables, filled.")
    parser.add_argument("--set", nargs="+", choices=SETS, dest="sets", help=f"default: {' '.join(REAL)}")
    parser.add_argument("--method", nargs="+", choices=IMPUTERS, dest="methods", help="default: all")
    parser.add_argument("--seeds", type=int, help="draws of held-out entries and errors (default: 3)")
    parser.add_argument("--limit", type=float, help="seconds for a method on a set (default: 300)")
    parser.add_argument(
        "--jobs", type=int, default=1, help="methods at a time (default: 1, for times that mean something)"
    )
    parser.add_argument("--quick", action="store_true", help=f"as --set {TRIAL} --seeds 1 --limit 60, if not given")
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of the sets (default: ../shared/data)")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for imputation.csv")
    add_arguments(parser, IMPUTERS)
    given = parser.parse_args()
    given.sets = given.sets or ([TRIAL] if given.quick else REAL)
    given.seeds = (1 if given.quick else 3) if given.seeds is None else given.seeds
    given.limit = (60.0 if given.quick else 300.0) if given.limit is None else given.limit
    return parser, given


def main() -> None:
    parser, given = parse()
    if given.seeds < 1 or given.jobs < 1 or not given.limit > 0:
        parser.error("--seeds and --jobs must be 1 or more, and --limit positive")
    if given.one:
        in_this_process(IMPUTERS[given.one], given.at, given.limit)
        return
    wanted = [name for name in IMPUTERS if name in (given.methods or IMPUTERS)]
    methods = [name for name in wanted if IMPUTERS[name].version]
    for package in dict.fromkeys(IMPUTERS[name].package for name in wanted if name not in methods):
        print(f"{package} is left out, it is not installed: pip install 'lowsparse[bench]'")
    rows: list[dict[str, Any]] = []
    for name in [name for name in SETS if name in given.sets]:
        clean = read_set(name, given.data)
        if clean is None:
            continue
        tasks = [make_task(clean, seed) for seed in range(1, given.seeds + 1)]
        hopeless = given.methods is not None
        found = run_set(name, tasks, methods, limit=given.limit, jobs=given.jobs, hopeless=hopeless)
        print(describe(SETS[name].title, tasks[0], found) + "\n", flush=True)
        rows += found
    if rows:
        print(summary(rows))
        write_csv(given.out / "imputation.csv", rows)
        print(f"numbers: {given.out}")


if __name__ == "__main__":
    main()
