"""Series with gaps and bad readings: who predicts best what was hidden, how fast; bands and bad readings judged too.

    python -m benchmarks.series --out results
    python -m benchmarks.series --from-disk 4380 256  # a made file of so many moments x series, filled into another

`benchmarks.seriesdata` says which sets, what is hidden and what is spoilt. Everybody gets the readings as they are,
errors and all; LATC also gets them without those that the screening of eia flags, or that were spoilt (`latc,
flags`). Errors are means over the series of the mean absolute error of what was hidden, in standard deviations of
the series; the seconds are those of processors in one fit. LATC's truncation, c and ρ (30, 0.02, 0.001) are the best
of seven tried on the runs of the first year of eia, with flags. SAITS (Du, Côté and Liu, 2023), a network of attention,
is that of PyPOTS, if it is installed (`python -m pip install pypots`; it brings PyTorch).

Coverage is the share of hidden readings inside the bands of 90 %. Precision and recall of bad readings are against
what was spoilt here, and for eia without spoilt readings against the published categories, which are rules, not
truth.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from lowsparse import RobustImputer, RobustSeriesImputer
from lowsparse.cli.text import table
from lowsparse.series.correlation import column_spreads
from lowsparse.series.folding import Folding
from lowsparse.support.files import write_csv

from .apart import load, quietly
from .latc import latc
from .memory import peak
from .realdata import FOLDER
from .seriesdata import FILES, LOADERS, PATTERNS, SETS, Float, Series, SeriesTask, hide, make_series_tasks

OWN = "RobustSeriesImputer"
REAL = [name for name in SETS if name != "made"]
LEVEL = 0.9
SAITS_MOMENTS = 48


def straight(task: SeriesTask) -> Float:
    """Straight lines between neighbours."""
    filled = task.X.copy()
    for x in filled.T:
        known = np.flatnonzero(~np.isnan(x))
        x[:] = np.interp(np.arange(len(x)), known, x[known])
    return filled


def seasonal(task: SeriesTask) -> Float:
    """The mean at the hour of the day, and straight lines over what it leaves."""
    if not task.day:
        return straight(task)
    lines = Folding(task.day).fold(task.X)
    usual = Folding(task.day).unfold(np.broadcast_to(np.nanmean(lines, axis=0), lines.shape), task.X.shape)
    usual = np.where(np.isnan(usual), np.nanmean(task.X, axis=0), usual)
    rest = SeriesTask(task.X - usual, task.truth, task.hidden, task.flags, task.day)
    return np.asarray(usual + straight(rest))


def rows(task: SeriesTask) -> Float:
    return _with_levels(task.X, RobustImputer().fit_transform)


def folded(task: SeriesTask) -> Float:
    """RobustImputer on days x (hour of day, series)."""
    if not task.day:
        return rows(task)
    fold = Folding(task.day)
    lines = _with_levels(fold.fold(task.X), RobustImputer(keep_empty_features=True).fit_transform)
    return fold.unfold(lines, (task.X.shape[0], task.X.shape[1]))


def iterative(task: SeriesTask) -> Float:
    load("sklearn.experimental.enable_iterative_imputer")
    imputer = load("sklearn.impute").IterativeImputer
    return _with_levels(task.X, imputer(n_nearest_features=20, max_iter=5, random_state=1).fit_transform)


def neighbours(task: SeriesTask) -> Float:
    return _with_levels(task.X, load("sklearn.impute").KNNImputer(weights="distance").fit_transform)


def latc_as_given(task: SeriesTask) -> Float:
    return _with_levels(task.X, lambda Z: latc(Z, task.day or 1))


def latc_with_flags(task: SeriesTask) -> Float:
    return _with_levels(np.where(task.flags, np.nan, task.X), lambda Z: latc(Z, task.day or 1))


def saits(task: SeriesTask) -> Float:
    """The sizes of PyPOTS' own example, windows of two days as there (48 moments), and its usual number of epochs."""
    load("pypots.utils.random").set_random_seed(1)
    n, step = task.X.shape[1], SAITS_MOMENTS // 2
    network = load("pypots.imputation").SAITS(
        SAITS_MOMENTS, n, n_layers=2, d_model=256, n_heads=4, d_k=64, d_v=64, d_ffn=128, dropout=0.1, verbose=False
    )

    def fill(Z: Float) -> Float:
        firsts = np.unique(np.append(np.arange(0, len(Z) - SAITS_MOMENTS, step), len(Z) - SAITS_MOMENTS))
        at = firsts[:, None] + np.arange(SAITS_MOMENTS)  # windows that overlap by half, whose results are averaged
        network.fit({"X": Z[at]})
        sums, counts = np.zeros(Z.shape), np.zeros((len(Z), 1))
        np.add.at(sums, at, network.predict({"X": Z[at]})["imputation"])
        np.add.at(counts, at, 1.0)
        return np.where(np.isnan(Z), sums / counts, Z)

    return _with_levels(task.X, fill)


def _with_levels(X: Float, fill: Callable[[Float], Float]) -> Float:
    """Fill a table centred at the medians of its columns and scaled by their spreads."""
    known = ~np.isnan(X).all(axis=0)
    centre = np.zeros(X.shape[1])
    centre[known] = np.nanmedian(X[:, known], axis=0)
    spread = column_spreads(X - centre)
    return np.asarray(centre + spread * fill((X - centre) / spread))


PEERS: dict[str, Callable[[SeriesTask], Float]] = {
    "straight lines": straight,
    "seasonal": seasonal,
    "RobustImputer": rows,
    "RobustImputer, folded": folded,
    "IterativeImputer": iterative,
    "KNNImputer": neighbours,
    "latc": latc_as_given,
    "latc, flags": latc_with_flags,
    "SAITS": saits,
}


SLOW = ("latc", "latc, flags", "SAITS")


def measure_own(task: SeriesTask) -> dict[str, Any]:
    """Our errors, coverage, and precision and recall of bad readings."""
    X: Any = task.X
    if task.step:
        pandas = load("pandas")
        X = pandas.DataFrame(X, index=pandas.date_range(task.start, periods=len(X), freq=task.step))
    began = time.process_time()
    imputer = RobustSeriesImputer(clean=True)
    cleaned = np.asarray(imputer.fit_transform(X))
    seconds = time.process_time() - began
    band = imputer.predict(X, interval=LEVEL)
    inside = (np.asarray(band.lower) <= task.truth) & (task.truth <= np.asarray(band.upper))
    found = (cleaned != task.X) & ~np.isnan(task.X)
    scored = bool(task.flags.any())
    return {
        **_errors(task, cleaned),
        "seconds": seconds,
        "coverage": float(inside[task.hidden].mean()),
        "precision": float(task.flags[found].mean()) if found.any() and scored else None,
        "recall": float(found[task.flags].mean()) if scored else None,
        "okay_changed": float(found[~task.flags & ~np.isnan(task.X)].mean()),
    }


def measure_peer(task: SeriesTask, fill: Callable[[SeriesTask], Float]) -> dict[str, Any]:
    began = time.process_time()
    filled = fill(task)
    return {**_errors(task, filled), "seconds": time.process_time() - began}


def _means(measured: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of what was measured of all; None where one of them is."""
    values = {key: [one[key] for one in measured] for key in measured[0]}
    return {key: None if None in of_all else float(np.mean(of_all)) for key, of_all in values.items()}


def _errors(task: SeriesTask, filled: Float) -> dict[str, float]:
    mae, mape = task.errors(filled)
    return {"mae": mae, "mape": mape}


def run_case(
    name: str, data: Series, pattern: str, spoilt: float, seed: int, peers: Sequence[str]
) -> list[dict[str, Any]]:
    """A row for everybody, ours first."""
    case = {"set": name, "pattern": pattern, "spoilt": spoilt, "seed": seed}
    tasks = list(make_series_tasks(data, pattern, spoilt, seed))
    with quietly():
        found = [{**case, "method": OWN, **_means([measure_own(task) for task in tasks])}]
        for peer in peers:
            if peer == "latc, flags" and not any(task.flags.any() for task in tasks):
                continue
            found.append({**case, "method": peer, **_means([measure_peer(task, PEERS[peer]) for task in tasks])})
    best = min((row["mae"] for row in found[1:]), default=np.inf)
    found[0]["over_best_peer"] = found[0]["mae"] / best
    return found


def fill_from_disk(moments: int, series: int, folder: Path) -> str:
    """Seconds, peak memory and error of a made file: days, and weather that groups of 50 series share."""
    rng = np.random.default_rng([13, moments, series])
    t = np.arange(moments)[:, None]
    truth = np.lib.format.open_memmap(folder / "truth.npy", "w+", np.float32, (moments, series))
    given = np.lib.format.open_memmap(folder / "given.npy", "w+", np.float32, (moments, series))
    for first in range(0, series, 50):
        own = slice(first, min(first + 50, series))
        n = own.stop - first
        weather = np.cumsum(rng.standard_normal((moments, 3)), axis=0) / 8 @ rng.uniform(0.5, 1, (3, n))
        truth[:, own] = 50 + 5 * np.sin(2 * np.pi * t / 24) + weather + 0.3 * rng.standard_normal((moments, n))
        given[:, own] = np.where(hide((moments, n), "runs", 24, rng), np.nan, truth[:, own])
    given.flush()
    began, began_all = time.perf_counter(), time.process_time()
    RobustSeriesImputer().fill_file(folder / "given.npy", folder / "filled.npy", memory="1GB")
    seconds, of_all = time.perf_counter() - began, time.process_time() - began_all
    hidden = np.isnan(given)
    error = np.abs(np.load(folder / "filled.npy", mmap_mode="r")[hidden] - truth[hidden]).mean()
    held = peak()
    return (
        f"{moments} moments x {series} series from disk to disk: {seconds:.0f} s, {of_all:.0f} s of processors, "
        f"mean error {error:.3f} (noise 0.3)"
        + ("" if held is None else f", peak {held / 2**30:.2f} GiB, files included")
    )


def describe(found: Sequence[dict[str, Any]]) -> str:
    body = [
        [
            row["method"],
            f"{row['mae']:.4f}",
            f"{row['mae'] / found[0]['mae']:.2f}",
            f"{row['mape']:.2%}",
            f"{row['seconds']:.1f}",
            *("" if row.get(key) is None else f"{row[key]:.1%}" for key in ("coverage", "precision", "recall")),
        ]
        for row in found
    ]
    first = found[0]
    title = f"{first['set']}, {first['pattern']}, {first['spoilt']:.0%} spoilt"
    header = ["", "error", "/ ours", "percent", "s", "in bands", "precision", "recall"]
    return f"{title}\n" + table(header, body, left=(0,))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.series", description="Series with gaps, filled.")
    parser.add_argument("--set", nargs="+", choices=SETS, dest="sets", help="default: all but made")
    parser.add_argument("--pattern", nargs="+", choices=PATTERNS, dest="patterns", default=PATTERNS)
    parser.add_argument("--spoilt", nargs="+", type=float, default=[0.0, 0.05], help="shares (default: 0 0.05)")
    parser.add_argument("--peer", nargs="*", choices=PEERS, dest="peers", help="default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from-disk", nargs=2, type=int, metavar=("MOMENTS", "SERIES"), help="only fill a made file")
    parser.add_argument("--quick", action="store_true", help="the set made, without LATC and SAITS")
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of the sets (default: ../shared/data)")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for series.csv")
    return parser.parse_args()


def main() -> None:
    given = parse()
    if given.from_disk:
        moments, series = given.from_disk
        with tempfile.TemporaryDirectory() as folder:
            print(fill_from_disk(moments, series, Path(folder)))
        return
    peers = [name for name in PEERS if not (given.quick and name in SLOW)]
    peers = peers if given.peers is None else given.peers
    if "SAITS" in peers and find_spec("pypots") is None:
        print("without SAITS: install pypots\n")
        peers.remove("SAITS")
    found: list[dict[str, Any]] = []
    for name in given.sets or (["made"] if given.quick else REAL):
        kind, half = SETS[name]
        if FILES[kind] and not (given.data / FILES[kind]).is_file():
            print(f"{name} is left out: there is no {FILES[kind]} in {given.data} (--data says where to look)")
            continue
        data = LOADERS[kind](given.data, half)
        for pattern in given.patterns:
            for spoilt in given.spoilt:
                rows_found = run_case(name, data, pattern, spoilt, given.seed, peers)
                print(describe(rows_found) + "\n", flush=True)
                found += rows_found
    if found:
        own = [row for row in found if row["method"] == OWN]
        wins = sum(row["over_best_peer"] < 1 for row in own)
        print(f"{OWN} has the smallest error in {wins} of {len(own)} cases")
        keys = list(dict.fromkeys(key for row in found for key in row))
        write_csv(given.out / "series.csv", [{key: row.get(key) for key in keys} for row in found])
        print(f"numbers: {given.out}")


if __name__ == "__main__":
    main()
