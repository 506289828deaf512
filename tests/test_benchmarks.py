"""The benchmarks run, and what they print and write hangs together. Nothing here asserts a time."""

import csv
import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lowsparse as ls
from lowsparse.sweeps.native import num_threads

pytestmark = pytest.mark.slow

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


@pytest.fixture
def module(monkeypatch):
    """A module of the benchmarks, by its name."""
    monkeypatch.syspath_prepend(ROOT)
    return lambda name: importlib.import_module(f"benchmarks.{name}")


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


@pytest.mark.parametrize(("limit", "rounds"), [(0.0, 5), (np.inf, 21)])
def test_rounds_of_kernels_end_after_some_time_or_when_all_are_made(module, limit, rounds):
    calls = []
    found, made = module("kernels").medians({"one": lambda: calls.append(1)}, 21, limit)
    assert made == rounds
    assert len(calls) == 4 * rounds
    assert found["one"] >= 0


def test_heldout(tmp_path):
    clip = ls.datasets.moving_blocks(30, 40, 48, random_state=3)
    np.savez(tmp_path / "i2r_hall100.npz", frames=clip.frames)
    done = run("heldout", "--set", "hall-50", "--data", tmp_path, "--repeats", 1, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    (row,) = rows_of(tmp_path / "heldout.csv")
    assert (row["set"], row["status"]) == ("hall, 50 %", "converged")
    assert 0.45 * clip.frames.size < int(row["entries"]) / 0.9 < 0.55 * clip.frames.size
    assert float(row["error"]) < float(row["paper_error"])
    missing = run("heldout", "--set", "yale", "--data", tmp_path)
    assert missing.returncode == 2
    assert "lacks the files of yale" in missing.stderr


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
    done = run("phase", "--quick", "--trials", "2", "--methods", "ladder", "amanpgc", "irls", "rmc", "--out", tmp_path)
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


def test_imputation(module, tmp_path):
    pytest.importorskip("sklearn")
    done = run("imputation", "--quick", "--method", "lowsparse", "median", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {row["method"]: row for row in rows_of(tmp_path / "imputation.csv")}
    assert set(rows) == {"lowsparse", "median"}
    realdata = module("realdata")
    task = realdata.make_task(realdata.synthetic(), 1)
    errors = (np.nanmedian(task.X, axis=0)[task.cols] - task.truth) / task.spread
    assert float(rows["median"]["mae"]) == pytest.approx(np.mean(np.abs(errors)))
    assert float(rows["median"]["rmse"]) == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert float(rows["lowsparse"]["mae"]) < 0.2 * float(rows["median"]["mae"])
    for row in rows.values():
        assert float(row["mae_over_best"]) == pytest.approx(float(row["mae"]) / float(rows["lowsparse"]["mae"]))
        assert float(row["seconds_over_own"]) == pytest.approx(
            float(row["seconds"]) / float(rows["lowsparse"]["seconds"])
        )
    assert "smallest MAE on 1 and the smallest RMSE on 1 of 1 sets" in done.stdout


def test_imputation_stops_at_the_limit(tmp_path):
    done = run("imputation", "--quick", "--method", "hard", "--limit", 1e-3, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "over the limit after 0 of 1 seeds" in done.stdout
    assert rows_of(tmp_path / "imputation.csv")[0]["mae"] == ""


def test_imputation_without_the_data(tmp_path):
    done = run("imputation", "--data", tmp_path / "nowhere", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ngsim is left out: there is no ngsim_speed.npz in" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_sensors_are_spoilt_as_said(module):
    realdata = module("realdata")
    table = realdata.Table(100 + np.random.default_rng(3).standard_normal((2000, 20)))
    X = table.X.copy()
    realdata.spoil_sensors(X, table.spread(), np.random.default_rng(4))
    off = (X - table.X) / table.spread()
    tenfold = np.isclose(X, 10 * table.X) | np.isclose(X, 0.1 * table.X)
    spikes = ~tenfold & (np.abs(off) >= 5) & (np.abs(off) <= 10)
    stuck = (off != 0) & ~tenfold & ~spikes
    assert tenfold.mean() == pytest.approx(0.02, abs=1e-3)
    assert spikes.mean() == pytest.approx(0.05, abs=1e-3)
    assert 0.8 * 0.02 < stuck.mean() < 0.02  # the first of a run is what it was
    # what is stuck has the value of an entry before it that was not touched
    for i, j in zip(*np.nonzero(stuck), strict=True):
        assert X[i, j] in table.X[max(i - 24, 0) : i, j]


def test_ratings_are_spoilt_as_said(module):
    realdata = module("realdata")
    rng = np.random.default_rng(5)
    X = np.where(rng.random((300, 200)) < 0.3, rng.integers(1, 11, (300, 200)) / 2, np.nan)
    spoilt = X.copy()
    realdata.spoil_ratings(spoilt, np.ones(200), rng)
    known, changed = ~np.isnan(X), ~np.isclose(X, spoilt, equal_nan=True)
    assert np.array_equal(known, ~np.isnan(spoilt))
    assert set(np.unique(spoilt[known])) == set(np.arange(1, 11) / 2)
    assert changed.sum() / known.sum() == pytest.approx(0.05 + 0.05 * 0.9, abs=0.01)  # one in ten is replaced by itself
    turned = np.isclose(spoilt, 5.5 - X) & changed
    assert turned.sum() / known.sum() == pytest.approx(0.05 + 0.05 * 0.1, abs=0.01)


def test_what_is_held_out_is_neither_given_nor_spoilt(module):
    realdata = module("realdata")
    table = realdata.synthetic()
    for split in (None, np.random.default_rng(6).random(table.X.shape) < 0.1):
        asked = realdata.Table(table.X, split=None if split is None else split & ~np.isnan(table.X))
        task = realdata.make_task(asked, 7)
        assert np.isnan(task.X[task.rows, task.cols]).all()
        assert np.array_equal(task.truth, table.X[task.rows, task.cols])
        assert np.sum(~np.isnan(task.X)) + len(task.truth) == np.sum(~np.isnan(table.X))
        assert task.errors(np.where(np.isnan(task.X), table.X, np.nan)) == pytest.approx(0.0)


def test_of_an_empty_column_the_median_of_all_is_predicted(module):
    realdata = module("realdata")
    X = np.array([[1.0, 2.0, 5.0], [2.0, 3.0, 4.0], [3.0, 3.0, 1.0]])
    split = np.zeros(X.shape, dtype=bool)
    split[:, 1], split[0, 2] = True, True
    task = realdata.make_task(realdata.Table(X, ratings=True, split=split), 8)  # too few ratings to spoil one
    assert np.array_equal(task.X, [[1, np.nan], [2, 4], [3, 1]], equal_nan=True)
    filled = np.array([[1.0, 4.5], [2.0, 4.0], [3.0, 1.0]])
    assert (task.errors(filled) * X.std()).tolist() == pytest.approx([0.0, -0.5, -1.0, -1.0])


def test_soft_impute_is_optimal(module):
    # ½ ‖P_Ω(Z - L)‖² + λ ‖L‖⁎ is smallest where P_Ω(Z - L) = λ (U Vᵀ + W) with L = U Σ Vᵀ, W orthogonal to it, ‖W‖ <= 1
    rng = np.random.default_rng(9)
    Z = rng.standard_normal((40, 3)) @ rng.standard_normal((3, 30)) + 0.1 * rng.standard_normal((40, 30))
    seen = rng.random(Z.shape) < 0.7
    lam = 0.1 * np.linalg.norm(Z * seen, 2)
    L = module("imputers").completed(np.where(seen, Z, np.nan), rank=30, share=0.1)
    G = seen * (Z - L) / lam
    U, s, Vt = np.linalg.svd(L)
    rank = int(np.sum(s > 1e-6 * s[0]))
    assert 3 <= rank < 30
    assert np.linalg.norm(G, 2) == pytest.approx(1.0, abs=0.01)
    np.testing.assert_allclose(U[:, :rank].T @ G @ Vt[:rank].T, np.eye(rank), atol=0.01)


def test_the_setting_that_predicts_best_is_taken(module):
    X = np.random.default_rng(10).standard_normal((50, 6))
    imputer = module("imputers").Imputer("", lambda given, ratings, setting: X + setting, settings=(0.5, -0.1, 0.2))
    assert imputer.choose(X, False, seconds=60.0) == (-0.1, 3)
    assert imputer.choose(X, False, seconds=0.0) == (0.5, 1)


def test_video_scores_masks_on_scenes(tmp_path):
    pytest.importorskip("av", reason="needs the extra `video`")
    methods = ["ours", "median"]
    options = ["--repeat", 0, "--data", tmp_path, "--scenes", "switch", "--methods", *methods, "--out", tmp_path]
    done = run("video", *options)
    assert done.returncode == 0, done.stderr
    ours, median = (float(row["f1"]) for row in rows_of(tmp_path / "video.csv"))
    assert 1 > ours > 0.9 > median + 0.3
    assert f"{ours:.2f}" in next(line for line in done.stdout.splitlines() if line.startswith("switch"))
    refused = run("video", "--repeat", 0, "--data", tmp_path, "--scenes", "water")
    assert refused.returncode == 2
    assert "no scene 'water' here; there are blocks," in refused.stderr


def test_scenes_are_what_their_truth_says(module):
    """What is not in front is the background of the scene; the seed changes a scene, and nothing else does."""
    scenes, video = module("scenes"), module("video")
    sources = scenes.Sources.of(None)
    assert "water" not in scenes.available(sources)
    for name in scenes.available(sources):
        scene, again, other = (scenes.make(name, sources, seed) for seed in (3, 3, 4))
        assert np.array_equal(scene.frames, again.frames)
        assert not np.array_equal(scene.frames[:, :8, :8], other.frames[:, :8, :8])
        assert scene.moving.shape == scene.frames.shape[:3]
        assert video.f1(scene.moving, scene) == 1
        assert 0.01 < scene.moving.mean() < 0.3
    scene = scenes.make("long stay in colour", sources, 3)
    empty = np.ma.masked_array(scene.frames, np.repeat(scene.moving[..., None], 3, axis=3))
    assert np.ma.std(empty, axis=0).max() < 2 * scenes.NOISE


def test_the_memory_of_a_process_is_measured(module):
    assert module("video").measured([sys.executable, "-c", "x = bytearray(200_000_000)"])[1] > 200


def test_structure_counts_and_draws(tmp_path):
    done = run("structure", "--quick", "--methods", "irls", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "by kind of hole" in done.stdout
    rows = rows_of(tmp_path / "structure.csv")
    assert {row["method"] for row in rows} == {"ladder", "irls"}
    assert {row["outcome"] for row in rows} <= {"found", "missed", "other"}
    assert (tmp_path / "structure.png").stat().st_size > 20_000


def test_outliers(tmp_path, module):
    options = [
        "--sizes",
        "60x40",
        "--covariances",
        "alyz",
        "--kinds",
        "clean",
        "rows",
        "--missing",
        "0",
        "--seeds",
        "2",
    ]
    methods = ["lowsparse", "cells alone", "plain PCA", "PCP", "oracle"]
    done = run("outliers", *options, "--methods", *methods, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "lowsparse over the best of the others" in done.stdout
    rows = rows_of(tmp_path / "outliers.csv")
    assert len(rows) == 3 * len(methods)
    for design in {row["design"] for row in rows}:
        errors = {row["method"]: float(row["error"]) for row in rows if row["design"] == design}
        assert errors["oracle"] < 1.05 * errors["lowsparse"]
        if "rows" in design:
            assert errors["lowsparse"] < 0.5 * min(errors["plain PCA"], errors["cells alone"])
            own = next(row for row in rows if row["design"] == design and row["method"] == "lowsparse")
            assert float(own["row_recall"]) == 1.0
    outliers = module("outliers")
    sample = outliers.Sample.draw(outliers.Design("a09", (50, 30), "both", 20.0, 0.1), 1)
    assert sample.bad_rows.sum() == 5
    assert not sample.bad_cells[sample.bad_rows].any()
    known = ~np.isnan(sample.X) & ~sample.bad_cells & ~sample.bad_rows[:, None]
    assert np.abs(sample.X - sample.truth)[known].max() < 5.0
    assert np.abs(sample.X - sample.truth)[sample.bad_cells].min() > 10.0


def test_series(module, tmp_path):
    done = run("series", "--quick", "--pattern", "runs", "--peer", "straight lines", "latc", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {(row["method"], float(row["spoilt"])): row for row in rows_of(tmp_path / "series.csv")}
    own = rows["RobustSeriesImputer", 0.0]
    best = min(float(rows[peer, 0.0]["mae"]) for peer in ("straight lines", "latc"))
    assert float(own["mae"]) < 0.5 * float(rows["straight lines", 0.0]["mae"])
    assert float(own["over_best_peer"]) == pytest.approx(float(own["mae"]) / best)
    assert 0.8 < float(own["coverage"]) <= 1
    assert "smallest error in" in done.stdout


def test_latc_completes_a_tensor_of_low_rank(module):
    """And does not change what was read."""
    t = np.arange(240)[:, None]
    truth = np.sin(2 * np.pi * t / 24) * np.linspace(1, 2, 6) + np.cos(2 * np.pi * t / 24) * np.linspace(2, 1, 6)
    hidden = np.random.default_rng(3).random(truth.shape) < 0.2
    filled = module("latc").latc(np.where(hidden, np.nan, truth), 24, truncation=2, rho=0.1, tol=1e-6)
    assert np.array_equal(filled[~hidden], truth[~hidden])
    assert np.abs(filled - truth).max() < 0.05


def test_outliers_from_disk(module):
    pytest.importorskip("dask.array")
    outliers = module("outliers")
    said = outliers.stored((900, 60), rows=400)
    assert said.startswith("900 x 60 on outofcore: angle ")
    assert float(said.split("angle ")[1].split()[0]) < 2
    assert float(said.split("degrees, ")[1].split("%")[0]) > 90


def test_history_notices_what_is_slower_and_what_is_wrong(module):
    history = module("history")
    before = [{"a": (1.0, 1e-9), "b": (2.0, 1e-9)}] * 3
    now = [
        {"a": (1.1, 1e-9), "b": (3.0, 1e-9)},
        {"a": (9.0, 1e-3), "b": (3.0, 1e-9)},
        {"a": (1.0, 1e-9), "b": (3.0, 0)},
    ]
    shown, faults = history.compare(before, now, limit=1.25)
    assert "1.10" in shown
    assert faults == ["a: the relative error is 1.0e-03", "b: 1.50 times as long"]


def test_history_measures_what_is_installed(module):
    history = module("history")
    measured = history.measure(sys.executable)
    assert len(measured) == 5
    assert history.compare([measured], [measured], limit=1.25)[1] == []
