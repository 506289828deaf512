"""The command line, as a user runs it: `python -m lowsparse` in a process of its own."""

import csv
import os
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

import lowsparse as ls
from conftest import interruptible

SMALL = ("--rows", "60", "--cols", "50", "--rank", "2", "--observed", "0.8")
METHODS = ["manpg", "amanpg", "manpgc", "amanpgc"]


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
    """One small demo, for the tests that only look."""
    folder = tmp_path_factory.mktemp("demo")
    done = run("demo", *SMALL, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done, folder / "lowsparse-demo"


def table_of(stdout):
    return {line.split()[0]: line.split() for line in stdout.splitlines() if line.split("  ")[0] in METHODS}


def test_demo_prints_the_convergence_table(finished):
    done, _ = finished
    assert done.stderr == ""
    rows = table_of(done.stdout)
    assert list(rows) == METHODS
    for row in rows.values():
        _, iterations, seconds, error, status, *_ = row
        assert int(iterations) > 0
        assert float(seconds) >= 0
        assert status == "converged"
        assert float(error) < 0.05
    # continuation recovers, a fixed threshold ends at its floor
    assert float(rows["amanpgc"][3]) < 1e-6 < float(rows["amanpg"][3])
    final = re.search(r"final relative error: (\S+) \((\w+)\)", done.stdout)
    assert float(final[1]) == min(float(row[3]) for row in rows.values())
    assert final[2] in ("manpgc", "amanpgc")
    assert "picture: " + str(Path("lowsparse-demo", "convergence.png")) in done.stdout


def test_demo_says_which_backend_ran(finished):
    done, _ = finished
    backend = ls.solve([[1.0, 2.0], [2.0, 4.0]], 1).backend
    assert f"backend: {backend}, " in done.stdout


def test_demo_draws_two_panels(finished):
    width, height = size_of_png(finished[1] / "convergence.png")
    assert width > 1000
    assert height > 400
    assert width > 1.8 * height
    assert (finished[1] / "convergence.png").stat().st_size < 300_000


def test_demo_leaves_the_picture_and_the_numbers_and_nothing_else(finished):
    assert sorted(path.name for path in finished[1].parent.rglob("*")) == [
        "convergence.csv",
        "convergence.png",
        "lowsparse-demo",
    ]


def test_numbers_are_those_of_the_table(finished):
    done, folder = finished
    with open(folder / "convergence.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["method", "iteration", "seconds", "error", "objective", "gamma"]
    for method, shown in table_of(done.stdout).items():
        own = [row for row in rows if row["method"] == method]
        assert [int(row["iteration"]) for row in own] == list(range(1, int(shown[1]) + 1))
        assert float(own[-1]["error"]) == pytest.approx(float(shown[3]), rel=0.1)
        seconds = [float(row["seconds"]) for row in own]
        assert seconds == sorted(seconds)


def test_demo_is_the_same_problem_again_with_the_same_seed(finished, tmp_path):
    def errors(folder):
        with open(folder / "convergence.csv", newline="") as file:
            return [row["error"] for row in csv.DictReader(file)]

    assert run("demo", *SMALL, "--out", "again", cwd=tmp_path).returncode == 0
    assert run("demo", *SMALL, "--out", "other", "--seed", "5", cwd=tmp_path).returncode == 0
    assert errors(tmp_path / "again") == errors(finished[1])
    assert errors(tmp_path / "other") != errors(finished[1])


def test_quiet_prints_the_path_alone(tmp_path):
    done = run("demo", *SMALL, "--quiet", "--out", "deep/er", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.strip() == str(Path("deep", "er", "convergence.png"))
    assert done.stderr == ""
    assert (tmp_path / "deep" / "er" / "convergence.png").exists()


def test_noise_ends_the_continuation_at_the_noise(tmp_path):
    done = run("demo", *SMALL, "--noise", "0.01", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert 1e-4 < float(table_of(done.stdout)["amanpgc"][3]) < 0.1


def test_what_cannot_be_recovered_is_said_to_be_lost(finished, tmp_path):
    done = run("demo", "--rows", "60", "--rank", "5", "--observed", "0.05", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "not recovered" in done.stdout
    assert "columns have fewer than 5 observed entries" in done.stdout
    assert "not recovered" not in finished[0].stdout


def test_numpy_backend_is_named(tmp_path):
    done = run("demo", *SMALL, cwd=tmp_path, LOWSPARSE_BACKEND="numpy")
    assert done.returncode == 0, done.stderr
    assert "backend: numpy, as LOWSPARSE_BACKEND says" in done.stdout


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
        f"sys.argv = ['lowsparse', 'demo', *{SMALL!r}]\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", hidden], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "backend: numpy, which works but is many times slower" in done.stdout
    assert "compiler" in done.stdout


# ---------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rows", "0"), ("--rows", "1 or more")),
        (("--cols", "-3"), ("--cols", "1 or more")),
        (("--rank", "0"), ("--rank", "1 or more")),
        (("--rows", "abc"), ("--rows",)),
        (("--rows", "30", "--rank", "31"), ("--rank", "30 x 30")),
        (("--observed", "20"), ("--observed", "0.2 is 20 %")),
        (("--observed", "0"), ("--observed",)),
        (("--observed", "nan"), ("--observed",)),
        (("--outliers", "1"), ("--outliers",)),
        (("--outliers", "-0.1"), ("--outliers",)),
        (("--noise", "-1"), ("--noise",)),
        (("--noise", "inf"), ("--noise",)),
        (("--seed", "-1"), ("--seed",)),
        (("--nonsense",), ("--nonsense",)),
        (("surplus",), ("surplus",)),
    ],
)
def test_bad_usage_is_one_line_and_code_2(arguments, words, tmp_path):
    assert_fails(run("demo", *arguments, cwd=tmp_path), 2, *words)
    assert list(tmp_path.iterdir()) == []


def test_unknown_command(tmp_path):
    assert_fails(run("nonsense", cwd=tmp_path), 2, "nonsense")


def test_existing_output_is_kept_unless_forced(tmp_path):
    folder = tmp_path / "lowsparse-demo"
    folder.mkdir()
    picture, other = folder / "convergence.png", folder / "mine.txt"
    picture.write_text("old")
    other.write_text("mine")
    assert_fails(run("demo", *SMALL, cwd=tmp_path), 1, "convergence.png", "--force")
    assert picture.read_text() == "old"
    assert run("demo", *SMALL, "--force", cwd=tmp_path).returncode == 0
    size_of_png(picture)
    assert other.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [folder]


def test_output_must_be_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    assert_fails(run("demo", *SMALL, "--out", "file", cwd=tmp_path), 1, "not a folder")
    assert_fails(run("demo", *SMALL, "--out", "file/below", cwd=tmp_path), 1, "not a folder")


def test_bad_environment_is_one_line(tmp_path):
    assert_fails(run("demo", *SMALL, cwd=tmp_path, LOWSPARSE_BACKEND="abacus"), 1, "abacus")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["typer", "rich", "matplotlib"])
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
    assert_fails(done, 1, missing, "lowsparse[cli]")


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for a child there")
def test_ctrl_c_ends_with_one_line_and_leaves_nothing(tmp_path):
    command = [sys.executable, "-u", "-m", "lowsparse", "demo", "--rows", "4000", "--observed", "0.3"]
    child = interruptible(command, tmp_path)
    try:
        while "backend:" not in child.stdout.readline():
            pass
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=120)
    finally:
        child.kill()
    assert child.returncode == 130, errors
    assert errors.strip() == "lowsparse demo: stopped; nothing was written"
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- on a terminal, and the rest


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals there")
def test_progress_is_drawn_on_a_terminal(tmp_path):
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "lowsparse", "demo", *SMALL]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    child = subprocess.Popen(command, cwd=tmp_path, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert child.wait(timeout=60) == 0
    assert b"\x1b[" in shown
    assert b"iteration" in shown
    assert b"final relative error" in shown


def test_version():
    done = run("--version", cwd=".")
    assert (done.returncode, done.stdout) == (0, f"lowsparse {ls.__version__}\n")


def test_help():
    general = run("--help", cwd=".")
    assert general.returncode == 0
    assert run(cwd=".").stdout == general.stdout
    assert "demo" in general.stdout
    own = run("demo", "--help", cwd=".").stdout
    for option in ("rows", "cols", "rank", "observed", "outliers", "noise", "seed", "out", "force", "quiet"):
        assert f"--{option}" in own


def test_the_script_is_installed():
    from importlib.metadata import PackageNotFoundError, entry_points, version

    try:
        version("lowsparse")
    except PackageNotFoundError:
        pytest.skip("lowsparse runs from its sources here")
    (script,) = entry_points(group="console_scripts", name="lowsparse")
    assert script.load() is __import__("lowsparse.cli", fromlist=["main"]).main
