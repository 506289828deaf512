"""The command line, as a user runs it: `python -m lowsparse` in a process of its own."""

import json
import os
import signal
import struct
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

import lowsparse as ls
from conftest import interruptible, on_terminal, repeated_command

NAMES = ["background.png", "cutout.mp4", "mask.mp4", "report.html"]


def run(*arguments, cwd, **environment):
    return subprocess.run(
        [sys.executable, "-m", "lowsparse", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONWARNINGS": "default", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def assert_fails(done, code, *words):
    """One line on stderr that holds the words, nothing else, and the exit code."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr


def size_of_png(path):
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert data[-8:-4] == b"IEND"
    return struct.unpack(">II", data[16:24])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One demo, for the tests that only look."""
    folder = tmp_path_factory.mktemp("demo")
    done = run("demo", "--json", "--quiet", cwd=folder)  # else a slow machine says how far it is
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout), folder / "lowsparse-demo"


@pytest.mark.slow
def test_demo_leaves_the_films_and_the_report_and_nothing_else(finished):
    said, folder = finished
    assert sorted(path.name for path in folder.parent.rglob("*")) == sorted([*NAMES, "lowsparse-demo"])
    assert (said["width"], said["height"]) == size_of_png(folder / "background.png") == (384, 288)
    assert {folder.parent / path for path in said["files"].values()} == {folder / name for name in NAMES}


@pytest.mark.slow
def test_demo_looks_at_a_tenth_of_the_pixels(finished):
    said, _ = finished
    assert (said["frames"], said["skipped"], said["colour"], said["rank"]) == (150, 0, True, 1)
    assert said["observe"] == pytest.approx(0.1, abs=1e-3)
    assert said["solve"]["status"] == "converged"
    assert 0.01 < said["in_front"]["median"] < 0.05  # a few people


@pytest.mark.slow
def test_demo_finds_the_street_without_the_people(finished):
    # what is there in most of the frames, of all pixels; where nobody stands for long the two agree
    from conftest import read_picture
    from lowsparse.video import Frames

    sample = resources.files("lowsparse").joinpath("data", "vtest.mp4")
    with resources.as_file(sample) as path:
        median = np.median([frame.picture.luma for frame in Frames(path)], axis=0)
    found = read_picture(finished[1] / "background.png").luma
    assert np.mean(np.abs(found - median) > 20) < 0.002


@pytest.mark.slow
def test_demo_says_where_the_video_comes_from(finished):
    page = (finished[1] / "report.html").read_text("utf-8")
    assert "OpenCV" in page
    assert repeated_command(finished[1] / "report.html") == ["lowsparse", "demo", "--json", "--quiet", "--force"]
    attribution = resources.files("lowsparse").joinpath("data", "README.txt").read_text("utf-8")
    assert "Apache License 2.0" in attribution
    assert "Changes:" in attribution


def test_the_sample_is_small():
    assert 300_000 < len(resources.files("lowsparse").joinpath("data", "vtest.mp4").read_bytes()) < 600_000


@pytest.mark.slow
def test_quiet_prints_the_path_alone(tmp_path):
    done = run("demo", "--quiet", "--out", "deep/er", cwd=tmp_path, LOWSPARSE_BACKEND="numpy")
    assert done.returncode == 0
    assert done.stdout.strip() == str(Path("deep", "er", "report.html"))
    assert done.stderr == ""
    assert (tmp_path / "deep" / "er" / "report.html").exists()


@pytest.mark.slow
def test_missing_core_is_said_clearly(tmp_path):
    # a finder that hides the compiled core stands before all others
    hidden = (
        "import sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'lowsparse._core':\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        "from lowsparse.cli import main\n"
        "sys.argv = ['lowsparse', 'demo', '--quiet']\n"  # however long it takes
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", hidden], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("lowsparse demo: warning: running on NumPy, which is much slower")
    assert sorted(path.name for path in (tmp_path / "lowsparse-demo").iterdir()) == NAMES


# ---------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("arguments", [("--nonsense",), ("surplus",), ("--out",)])
def test_bad_usage_is_one_line_and_code_2(arguments, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    code, said, errors = command("demo", *arguments)
    assert (code, said) == (2, "")
    (line,) = errors.splitlines()
    assert arguments[0] in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_unknown_command(tmp_path):
    assert_fails(run("nonsense", cwd=tmp_path), 2, "nonsense")


@pytest.mark.slow
def test_existing_output_is_kept_unless_forced(tmp_path):
    folder = tmp_path / "lowsparse-demo"
    folder.mkdir()
    picture, other = folder / "background.png", folder / "mine.txt"
    picture.write_text("old")
    other.write_text("mine")
    assert_fails(run("demo", cwd=tmp_path), 1, "background.png", "--force")
    assert picture.read_text() == "old"
    assert run("demo", "--force", cwd=tmp_path).returncode == 0
    size_of_png(picture)
    assert other.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.slow
def test_output_must_be_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    assert_fails(run("demo", "--out", "file", cwd=tmp_path), 1, "not a folder")
    assert_fails(run("demo", "--out", "file/below", cwd=tmp_path), 1, "not a folder")


@pytest.mark.slow
def test_bad_environment_is_one_line(tmp_path):
    assert_fails(run("demo", cwd=tmp_path, LOWSPARSE_BACKEND="abacus"), 1, "abacus")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_commands_are_there_without_the_distributions_of_scipy():
    asked = "import sys, lowsparse.cli.app; sys.exit('scipy.stats' in sys.modules)"  # they take a second, and 20 MB
    assert subprocess.run([sys.executable, "-c", asked], timeout=300).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["typer", "rich", "matplotlib", "PIL"])
def test_without_the_extra_one_line_names_it(missing, tmp_path):
    hidden = (
        "import sys\n"
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        f"util.find_spec = lambda name, *a: None if name == {missing!r} else find(name, *a)\n"
        "from lowsparse.cli import main\n"
        f"assert {missing!r} not in sys.modules\n"
        "sys.argv = ['lowsparse', 'demo']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", hidden], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert_fails(done, 1, {"PIL": "pillow"}.get(missing, missing), "lowsparse[cli]")


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for a child there")
def test_ctrl_c_ends_with_one_line_and_leaves_nothing(tmp_path):
    child = interruptible([sys.executable, "-m", "lowsparse", "demo"], tmp_path)
    try:
        while not list(tmp_path.iterdir()):
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=120)
    finally:
        child.kill()
    assert child.returncode == 130, errors
    assert errors.strip() == "lowsparse demo: stopped; nothing was written: run the same command again"
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- on a terminal, and the rest


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals there")
def test_progress_is_drawn_on_a_terminal(tmp_path):
    shown, child = on_terminal([sys.executable, "-m", "lowsparse", "demo"], cwd=tmp_path, width=100)
    assert child.returncode == 0
    assert "\x1b[" in shown
    assert "frames/s" in shown
    assert "report.html" in shown


def test_version():
    done = run("--version", cwd=".")
    assert (done.returncode, done.stdout) == (0, f"lowsparse {ls.__version__}\n")


def test_help(command):
    code, general, _ = command("--help")
    assert code == 0
    assert "demo" in general
    own = command("demo", "--help")[1]
    for option in ("out", "force", "json", "quiet"):
        assert f"--{option}" in own


def test_the_script_is_installed():
    from importlib.metadata import PackageNotFoundError, entry_points, version

    try:
        version("lowsparse")
    except PackageNotFoundError:
        pytest.skip("lowsparse runs from its sources here")
    (script,) = entry_points(group="console_scripts", name="lowsparse")
    assert script.load() is __import__("lowsparse.cli", fromlist=["main"]).main
