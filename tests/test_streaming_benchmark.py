"""The benchmark of streams runs, and what it prints and writes hangs together. Nothing here asserts a time."""

import importlib

import numpy as np
import pytest

from test_benchmarks import ROOT, rows_of, run

pytestmark = pytest.mark.slow


def test_streams(tmp_path):
    chosen = ("--streams", "exact", "change", "--contestants", "ours", "grasta")
    done = run("streaming", "--quick", *chosen, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "streaming.csv")
    assert [(row["stream"], row["contestant"]) for row in rows] == [
        (stream, name) for stream in ("exact", "change") for name in ("ours", "grasta")
    ]
    for row in rows:
        own = next(other for other in rows if other["stream"] == row["stream"])
        assert float(row["seconds"]) > 0
        for part in ("seconds", "error"):
            assert float(row[f"{part}_over_ours"]) == pytest.approx(float(row[part]) / float(own[part]))
    angles = [float(row["error"]) for row in rows]
    assert angles[0] < 1e-7 < angles[1]  # nothing but holes and outliers
    assert angles[2] < 0.05  # the subspace of the second half
    assert f"{float(rows[2]['error']):.1e}" in done.stdout
    assert (tmp_path / "streaming.png").read_bytes().startswith(b"\x89PNG")


def test_the_measure(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    streaming = importlib.import_module("benchmarks.streaming")
    error = streaming.error
    data = streaming.make(streaming.STREAMS["exact"].shrunk(3), None)
    U = np.linalg.qr(data.truth)[0]
    outside = np.linalg.qr(np.hstack([U, np.eye(len(U))[:, :1]]))[0][:, -1:]
    turned = np.hstack([np.cos(0.3) * U[:, :1] + np.sin(0.3) * outside, U[:, 1:]])
    assert error(data, U) < 1e-7
    assert error(data, turned) == pytest.approx(0.3)
    assert error(data, np.full_like(U, np.nan)) == np.inf


@pytest.mark.parametrize("arguments", [("--streams", "magic"), ("--contestants", "magic"), ("--limit", "0")])
def test_what_cannot_be_is_refused(arguments):
    done = run("streaming", *arguments)
    assert done.returncode == 2
    assert arguments[0] in done.stderr
