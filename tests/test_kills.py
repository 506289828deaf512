"""A writer that is killed (SIGKILL) at any moment: its target is absent, old or new, and the next run cleans up."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
PROGRAM = Path(__file__).with_name("kills.py")
WRITERS = ["checkpoint", "store", "L.to_zarr", "records", "S.to_parquet", "S.to_zarr", "complete", "video", "reproduce"]
COMMANDS = WRITERS[-3:]  # a run of which takes longer


def check_kills(writer, moments, folder):
    for extra in ("av", "matplotlib", "pyarrow", "typer", "zarr"):
        pytest.importorskip(extra, reason="needs the extras `cli`, `plots`, `tables`, `video` and `zarr`")
    words = [sys.executable, "-W", "ignore", str(PROGRAM), writer, str(moments), str(folder)]
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # a process with threads should not be forked
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(json.dumps(found, indent=1))
    assert {name: one["problems"] for name, one in found.items() if one["problems"]} == {}
    assert sum(one["leftovers"] for one in found.values()) > 0  # else nothing was tried
    return found


@pytest.mark.slow
def test_every_writer_survives_kills(tmp_path):
    found = check_kills("all", 2, tmp_path)
    assert list(found) == WRITERS
    assert all(one["killed"] for one in found.values())


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS)
def test_a_writer_survives_many_kills(tmp_path, writer):
    moments = 50 if writer in COMMANDS else 100
    assert check_kills(writer, moments, tmp_path)[writer]["killed"] > moments / 2  # some are done before their time
