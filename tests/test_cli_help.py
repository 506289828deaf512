"""The first minute of the command line: `lowsparse` alone, the examples of every --help, the end of doctor."""

import re
import shlex

import numpy as np
import pandas as pd
import pytest
import typer
from PIL import Image

import lowsparse as ls
from lowsparse.cli import checkup
from lowsparse.cli.app import app
from lowsparse.cli.probes import Finding
from test_cli import run
from test_cli_video import encode

COMMANDS = typer.main.get_command(app).commands
CAMERA = "rtsp://"  # not here
LONG = ("lowsparse demo", "lowsparse demo --out elsewhere --force", "lowsparse reproduce --quick", "lowsparse bench")


def examples(name):
    return re.findall(r"^ +(lowsparse .*)$", COMMANDS[name].help, flags=re.MULTILINE)


EXAMPLES = [
    pytest.param(example, id=example, marks=[] if name == "methods" else [pytest.mark.slow])
    for name in COMMANDS
    for example in examples(name)
    if CAMERA not in example and example not in LONG  # .ci/run gives the first and the third
]


def test_every_help_has_examples_of_its_command():
    for name in COMMANDS:
        assert examples(name), name
        assert all(example.split()[1] == name for example in examples(name))


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_stand_on_lines_of_their_own(name, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = command(name, "--help")
    lines = [line.strip() for line in out.splitlines()]
    assert code == 0
    assert all(example in lines for example in examples(name))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files that the examples name."""
    folder, rng = tmp_path_factory.mktemp("examples"), np.random.default_rng(3)
    X = 20 + rng.standard_normal((60, 2)) @ rng.standard_normal((2, 8))
    X[rng.random(X.shape) < 0.1] = np.nan
    np.save(folder / "air.npy", X)
    pd.DataFrame(X, columns=list("abcdefgh")).to_csv(folder / "air.csv", index_label="hour")
    records = pd.DataFrame(X, columns=list("abcdefgh")).stack().rename_axis(["user", "film"]).rename("stars")
    records.reset_index().to_parquet(folder / "stars.parquet")
    hours = pd.date_range("2024-01-01", periods=24 * 14, freq="h", name="hour")
    load = 100 + 20 * np.sin(np.arange(hours.size)[:, None] * 2 * np.pi / 24) + rng.standard_normal((hours.size, 4))
    load[50:60, 1] = np.nan
    pd.DataFrame(load, hours, list("abcd")).to_csv(folder / "demand.csv")
    (folder / "ratings").mkdir()
    records.reset_index().to_parquet(folder / "ratings" / "part-0.parquet")
    frames = ls.datasets.moving_blocks(40, 48, 64, random_state=4).frames
    encode(folder / "street.avi", frames)
    (folder / "shots").mkdir()
    for k, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / "shots" / f"{k:03}.png")
    return folder


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_run(example, folder):
    words = shlex.split(example)[1:]
    if "<" in words:
        pytest.skip("test_cli_complete.py gives a table on stdin")
    done = run(*words[: words.index(">") if ">" in words else None], cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_alone_it_says_what_it_can_do_in_ten_lines(command):
    code, out, err = command()
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) == 10
    assert max(map(len, lines)) < 80
    assert {line.split()[1] for line in lines if line.startswith("  lowsparse ")} <= COMMANDS.keys()


@pytest.mark.parametrize(
    ("level", "last"),
    [("ok", "Next: lowsparse demo"), ("warning", "Next: "), ("error", "Then run lowsparse doctor again.")],
)
def test_doctor_ends_with_what_to_do_next(level, last):
    found = {"core": Finding(level, "text", "do this")}
    assert checkup.report(found).split("\n\n")[-1].startswith(last)
    assert "do this" in checkup.report(found).split("\n\n")[-2]
