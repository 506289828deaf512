"""What all commands stand on: how they end, what they print where, how they write; and doctor, methods and bench."""

import dataclasses
import errno
import json
import math
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import lowsparse as ls
from conftest import PATH, interruptible, on_terminal, python
from lowsparse import solvers, sweeps
from lowsparse.cli import extras, probes
from lowsparse.cli.failure import EXIT_CODES, CommandError, advise, explain
from lowsparse.cli.folder import output_folder
from lowsparse.cli.methods import describe
from lowsparse.cli.output import Output
from lowsparse.cli.progress import Meter
from lowsparse.cli.text import ERRORS, columns, table
from lowsparse.places.decide import available
from lowsparse.places.gpu.launch import reason_unavailable
from lowsparse.solvers.manpg import AManPG
from lowsparse.solvers.parameters import parameter, parameters_of
from lowsparse.support import sizes
from lowsparse.support.format import duration
from lowsparse.support.jsonable import to_json
from lowsparse.tables import read_table
from test_cli import assert_fails, run

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals, links and pseudo-terminals of POSIX")


def framed(body, *, cwd, **environment):
    """A command with this body, in a process of its own; it is called `work`."""
    lines = "\n    ".join(body.strip().splitlines())
    return [sys.executable, "-u", "-c", FRAMED.format(body=lines)], cwd, environment


FRAMED = """
import errno, os, signal, sys, time, typer, warnings
from pathlib import Path
from lowsparse.cli.failure import advise, fail, handle_errors, require
from lowsparse.cli.folder import output_folder
from lowsparse.cli.output import Output
from lowsparse.cli.progress import show_progress
from lowsparse.cli.text import replace_unencodable

def work():
    {body}

replace_unencodable()
app = typer.Typer()
app.command()(handle_errors(work))
sys.exit(app(standalone_mode=False))
"""


def framed_run(body, *, cwd, **environment):
    words, cwd, environment = framed(body, cwd=cwd, **environment)
    env = {**os.environ, "PYTHONPATH": PATH, **environment}
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=120)


# ---------------------------------------------------------------------- how a command ends


def test_the_exit_codes_are_in_the_help(command):
    code, out, err = command("--help")
    assert (code, err) == (0, "")
    listed = dict(re.findall(r"^ +(\d+) +(\S.*)$", out, re.MULTILINE))
    assert listed == {str(code): meaning for code, meaning in EXIT_CODES.items()}
    assert {"0", "1", "2", "130"} <= listed.keys()
    assert "LOWSPARSE_DEBUG" in out


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "out.csv"), "the disk is full (out.csv): free some space"),
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full: free some space"),
        (FileNotFoundError(errno.ENOENT, "No such file", "in.csv"), "there is no file or folder in.csv: check"),
        (FileNotFoundError("there is no video in.avi"), "there is no video in.avi"),
        (PermissionError(errno.EACCES, "Permission denied", b"in.csv"), "no permission (in.csv): choose another"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "in"), "in is a folder"),
        (OSError(errno.EIO, "Input/output error", "a", None, "b"), "a -> b: Input/output error"),
        (OSError(), "OSError"),
        (ValueError("bad\n  value"), "bad value"),
        (ModuleNotFoundError("No module named 'av'", name="av.error"), "python -m pip install 'lowsparse[video]'"),
        (ModuleNotFoundError("No module named 'nonsense'", name="nonsense"), "python -m pip install nonsense"),
        (ImportError("pictures need x: pip install 'lowsparse[plot]'"), "pictures need x: pip install"),
        (ImportError("symbol not found", name="av"), "av is installed, but cannot be imported (symbol not found)"),
        (MemoryError(), "not enough memory: choose a smaller problem"),
        (TypeError("no such thing"), "internal error (TypeError: no such thing): please report it"),
        (AssertionError(), "internal error (AssertionError)"),
        (ValueError(), "internal error (ValueError)"),
        (RecursionError("too deep"), "internal error (RecursionError: too deep)"),
    ],
)
def test_every_failure_has_one_line(error, line):
    said, code = explain(error)
    assert line in said
    assert "\n" not in said
    assert code == 1


def test_advice_is_for_what_happens_inside():
    with pytest.raises(MemoryError) as caught, advise(stopped="it is kept in out", memory="choose --quick"):
        raise MemoryError("Unable to allocate 7 TiB")
    assert explain(caught.value) == ("not enough memory (Unable to allocate 7 TiB): choose --quick", 1)


def test_a_traceback_only_if_it_is_asked_for(tmp_path):
    plain = framed_run("[][0]", cwd=tmp_path)
    assert_fails(plain, 1, "lowsparse work: internal error (IndexError: list index out of range)")
    asked = framed_run("[][0]", cwd=tmp_path, LOWSPARSE_DEBUG="1")
    assert asked.returncode == 1
    assert asked.stderr.startswith("Traceback")
    assert asked.stderr.splitlines()[-1] == plain.stderr.strip()


def test_a_warning_is_one_line(tmp_path):
    done = framed_run("warnings.warn('much\\n slower', RuntimeWarning)", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "lowsparse work: warning: much slower\n")


def test_bad_usage_names_the_help(command):
    assert command("methods", "--nonsense") == (
        2,
        "",
        "lowsparse: No such option: --nonsense; try lowsparse methods --help\n",
    )


def with_stdout(stdout, *words):
    """Run with a stdout that Python holds back until it is asked to write, as it does for files and pipes."""
    env = {**os.environ, "PYTHONUNBUFFERED": ""}
    words = [sys.executable, "-m", "lowsparse", *words]
    done = subprocess.run(words, env=env, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60)
    return done.returncode, done.stderr


@POSIX
def test_a_reader_that_leaves_is_no_failure():
    reading, writing = os.pipe()
    os.close(reading)
    assert with_stdout(writing, "methods") == (141, "")
    os.close(writing)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full")
@pytest.mark.parametrize(("word", "name"), [("methods", "lowsparse methods"), ("--help", "lowsparse")])
def test_a_full_disk_behind_stdout(word, name):
    line = f"{name}: the disk is full: free some space, then run the same command again\n"
    with open("/dev/full", "w") as full:
        assert with_stdout(full, word) == (1, line)


@pytest.mark.slow
@POSIX
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_nothing_half_written(number, code, tmp_path):
    body = """
with output_folder(Path("deep/er/out"), [], force=False) as folder:
    (folder / "half.csv").write_text("half")
    print("ready")
    time.sleep(60)
"""
    words, _, _ = framed(body, cwd=tmp_path)
    child = interruptible(words, tmp_path)
    try:
        assert child.stdout.readline() == "ready\n"
        assert list((tmp_path / "deep").rglob("half.csv"))
        child.send_signal(number)
        _, errors = child.communicate(timeout=60)
    finally:
        child.kill()
    assert (child.returncode, errors) == (code, "lowsparse work: stopped; nothing was written\n")
    assert list(tmp_path.iterdir()) == []


@POSIX
def test_a_signal_while_the_temporary_folder_is_made_leaves_nothing(tmp_path):
    body = """
from lowsparse.support import files

def make_and_signal(*words, make=files._make_locked):
    made = make(*words)
    signal.raise_signal(signal.SIGINT)
    return made

files._make_locked = make_and_signal
with output_folder(Path("out"), [], force=False):
    print("not reached")
"""
    words, _, _ = framed(body, cwd=tmp_path)
    child = interruptible(words, tmp_path)
    said, errors = child.communicate(timeout=60)
    assert (child.returncode, said, errors) == (130, "", "lowsparse work: stopped; nothing was written\n")
    assert list(tmp_path.iterdir()) == []


@POSIX
def test_ctrl_c_tells_how_to_go_on_if_more_is_known(tmp_path):
    body = """
with output_folder(Path("out"), [], force=False) as folder, advise(stopped="go on with --resume"):
    (folder / "half.csv").write_text("half")
    signal.raise_signal(signal.SIGINT)
"""
    words, _, _ = framed(body, cwd=tmp_path)
    child = interruptible(words, tmp_path)
    _, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (130, "lowsparse work: stopped; go on with --resume\n")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- where a command writes


def tree(folder):
    """Every file below a folder, and what is in it."""
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_appears_as_a_whole(tmp_path):
    out = tmp_path / "new" / "out"
    with output_folder(out, [], force=False) as folder:
        (folder / "a.txt").write_text("a")
        (folder / "sub").mkdir()
        (folder / "sub" / "b.txt").write_text("b")
        assert not out.exists()
    assert tree(tmp_path) == {str(Path("new", "out", "a.txt")): "a", str(Path("new", "out", "sub", "b.txt")): "b"}


def test_existing_output_needs_force_before_any_work(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "a.txt").write_text("old")
    with pytest.raises(CommandError, match=r"a\.txt exists: use --force"), output_folder(out, ["a.txt"], force=False):
        pytest.fail("the work has begun")
    with output_folder(out, ["b.txt"], force=False) as folder:  # no one else's
        (folder / "b.txt").write_text("new")
    assert tree(tmp_path) == {str(Path("out", "a.txt")): "old", str(Path("out", "b.txt")): "new"}


NAMES = st.lists(st.sampled_from(["a", "b", "c", "s/a", "s/b", "s/t/a"]), unique=True)


@settings(max_examples=40, deadline=None)
@given(before=NAMES, after=NAMES, force=st.booleans(), fails=st.booleans())
def test_all_or_nothing(before, after, force, fails, tmp_path_factory):
    home = tmp_path_factory.mktemp("all")
    out = home / "out"
    for name in before:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("old")
    was = tree(home)
    refused = not force and bool(set(before) & set(after))
    try:
        with output_folder(out, after, force=force) as folder:
            for name in after:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text("new")
            if fails:
                raise ValueError("no")
    except (CommandError, ValueError) as error:
        raised = type(error)
    else:
        raised = None
    assert raised is (CommandError if refused else ValueError if fails else None)
    assert tree(home) == (was if raised else {**was, **{str(Path("out", name)): "new" for name in after}})
    assert [path.name for path in home.iterdir() if path.name != "out"] == []
    shutil.rmtree(home)


def test_what_came_meanwhile_is_not_overwritten(tmp_path):
    out = tmp_path / "out"

    def write_folder():
        with output_folder(out, ["a.txt", "b.txt"], force=False) as folder:
            for name in ("a.txt", "b.txt"):
                (folder / name).write_text("ours")
            out.mkdir()
            (out / "b.txt").write_text("theirs")

    with pytest.raises(CommandError, match=r"b\.txt exists"):
        write_folder()
    assert tree(tmp_path) == {str(Path("out", "b.txt")): "theirs"}


def test_a_folder_in_the_place_of_a_file_stays_even_if_forced(tmp_path):
    out = tmp_path / "out"
    (out / "a.txt").mkdir(parents=True)
    (out / "sub").write_text("a file")

    def write():
        with output_folder(out, [], force=True) as folder:
            (folder / "sub").mkdir()
            (folder / "sub" / "b.txt").write_text("new")
            (folder / "0.txt").write_text("new")

    with pytest.raises(CommandError, match=r"a\.txt is a folder"), output_folder(out, ["a.txt"], force=True):
        pytest.fail("the work has begun")
    with pytest.raises(CommandError, match="sub is not a folder"):
        write()
    assert tree(tmp_path) == {str(Path("out", "sub")): "a file"}


@POSIX
def test_links_are_followed_and_devices_left_alone(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to("real")
    with output_folder(tmp_path / "out", [], force=False) as folder:
        (folder / "a.txt").write_text("new")
    assert (tmp_path / "out").is_symlink()
    assert tree(tmp_path / "real") == {"a.txt": "new"}
    device = Path(os.devnull)
    refused = pytest.raises(CommandError, match="not a regular file")
    with refused, output_folder(device.parent, [device.name], force=True):
        pytest.fail("the work has begun")
    assert stat.S_ISCHR(os.stat(device).st_mode)


def test_the_input_may_be_the_output(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("1")
    with output_folder(tmp_path, [table.name], force=True) as folder:
        (folder / table.name).write_text(table.read_text() + "2")
    assert tree(tmp_path) == {"table.csv": "12"}


@POSIX
def test_a_disk_that_takes_no_more_leaves_what_was_there(tmp_path):
    body = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
with output_folder(Path("out"), ["a.bin"], force=True) as folder:
    (folder / "a.bin").write_bytes(bytes(100_000))
"""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.bin").write_text("old")
    assert_fails(framed_run(body, cwd=tmp_path), 1, "lowsparse work: File too large")
    assert tree(tmp_path) == {str(Path("out", "a.bin")): "old"}


def test_a_folder_that_is_there_needs_no_room_beside_it(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    with output_folder(out, ["a"], force=False) as folder:
        assert out in folder.parents  # on the same disk, whatever is mounted there
        (folder / "a").write_text("a")
    assert tree(tmp_path) == {str(Path("out", "a")): "a"}
    assert [path.name for path in out.iterdir()] == ["a"]


@POSIX
def test_a_signal_waits_for_the_renames(tmp_path, monkeypatch):
    moved, replace = [], os.replace

    def interrupted(*paths):
        signal.raise_signal(signal.SIGINT)
        replace(*paths)
        moved.append(paths)

    (tmp_path / "out").mkdir()
    monkeypatch.setattr(os, "replace", interrupted)
    try:
        with output_folder(tmp_path / "out", [], force=False) as folder:
            for name in ("a", "b", "c"):
                (folder / name).write_text(name)
        pytest.fail("the signal was lost")
    except KeyboardInterrupt:
        pass
    assert len(moved) == 3
    assert tree(tmp_path) == {str(Path("out", name)): name for name in "abc"}


@POSIX
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(CommandError, match="cannot write to"), output_folder(tmp_path / "out", [], force=False):
        pytest.fail("the work has begun")


def test_a_place_where_the_system_makes_no_folder(tmp_path, monkeypatch):
    def refuse(path, *_):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(os, "mkdir", refuse)
    formatted = f"cannot write to {tmp_path} (Read-only file system): choose another --out"
    out = tmp_path / "deep" / "er" / "out"
    with pytest.raises(CommandError, match=re.escape(formatted)), output_folder(out, [], force=False):
        pytest.fail("the work has begun")


# ---------------------------------------------------------------------- what a command says


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_is_strict_and_says_the_same(value):
    def expected(v):
        if isinstance(v, float) and not np.isfinite(v):
            return None
        if isinstance(v, list):
            return [expected(item) for item in v]
        return {key: expected(item) for key, item in v.items()} if isinstance(v, dict) else v

    def strict(constant):
        raise AssertionError(constant)

    said = to_json(value)
    assert said.isascii()
    assert "\n" not in said
    assert json.loads(said, parse_constant=strict) == expected(value)


def test_json_of_numpy_paths_and_results():
    status = ls.solve([[1.0, 2.0], [2.0, 4.0]], rank=1).status
    facts = {"a": np.float32(0.5), "b": np.array([[1, 2]]), "c": Path("x"), "d": status, "e": np.bool_(True), "f": {3}}
    facts["g"] = ls.result.Stationarity(*[float("nan")] * len(dataclasses.fields(ls.result.Stationarity)))
    found = json.loads(to_json(facts))
    assert [found[key] for key in "abcdef"] == [0.5, [[1, 2]], "x", status.value, True, [3]]
    assert set(found["g"].values()) == {None}
    with pytest.raises(TypeError, match="object cannot be written as JSON"):
        to_json({"a": object()})


def test_with_json_stdout_holds_one_object(capsys):
    output = Output(json=True)
    output.print("reading")
    output.result({"a": 1}, text="a is 1", brief="1")
    said = capsys.readouterr()
    assert (json.loads(said.out), said.err) == ({"a": 1}, "reading\n")
    Output(quiet=True).result({"a": 1}, text="a is 1", brief="1")
    assert capsys.readouterr().out == "1\n"


STEPS = """
with show_progress(Output(quiet={quiet}), "reading", total=40, unit="frames") as reading:
    reading.interval = {every}
    for frame in range(40):
        time.sleep(0.02)
        reading.advance()
        if frame == 20:
            warnings.warn("a damaged frame")
            print("half of it")
Output(json=True).result({{"frames": reading.done}})
"""
TOLD = r"reading: \d+ of 40 frames, [\d.]+ frames/s, [\d.]+ m?s left"
WARNED = "lowsparse work: warning: a damaged frame"


def test_a_time_stays_below_the_next_unit():
    times = (0.9949, 0.996, 59.4, 59.6, 3599.4, 3599.7, 86399.6, math.inf)
    formatted = ["990 ms", "1 s", "59 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "1 d 0 h", "–"]
    assert list(map(duration, times)) == formatted


@pytest.mark.slow
def test_progress_in_a_pipe_is_plain_lines_and_nothing_if_quiet(tmp_path):
    body = "from lowsparse.cli import progress; progress.LONG = 0.2\n"
    done = framed_run(body + STEPS.format(quiet=False, every=0.2), cwd=tmp_path, FORCE_COLOR="1")
    half, found = done.stdout.splitlines()
    assert (half, json.loads(found)) == ("half of it", {"frames": 40})
    *lines, last = done.stderr.splitlines()
    assert re.fullmatch(r"reading: 40 frames in [\d.]+ m?s", last)
    lines.remove(WARNED)
    assert 1 <= len(lines) <= 10
    assert all(re.fullmatch(TOLD, line) for line in lines)
    quiet = framed_run(body + STEPS.format(quiet=True, every=0.2), cwd=tmp_path)
    assert (quiet.stdout, quiet.stderr) == (done.stdout, f"{WARNED}\n")


@POSIX
@pytest.mark.slow
@pytest.mark.parametrize("environment", [{}, {"PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_bar_on_a_narrow_terminal_and_json_beside_it(environment, tmp_path):
    words, _, _ = framed(STEPS.format(quiet=False, every=0.1), cwd=tmp_path)
    with open(tmp_path / "stdout", "w+") as stdout:
        shown, child = on_terminal(words, cwd=tmp_path, width=60, stdout=stdout, **environment)
    assert child.returncode == 0
    half, found = (tmp_path / "stdout").read_text().splitlines()
    assert (half, json.loads(found)) == ("half of it", {"frames": 40})
    drawn = environment.get("TERM") != "dumb"
    assert ("\x1b[" in shown) == drawn
    lines = [line.strip() for line in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown))]
    assert max(map(len, lines)) <= 60
    assert WARNED in lines
    assert any(re.fullmatch(TOLD, line) for line in lines) == (not drawn)
    assert any(re.match(r"reading \W+ \d+ of 40 frames, .* frames/s, .* left", line) for line in lines) == drawn
    if environment.get("PYTHONIOENCODING"):
        assert shown.isascii()
        assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", shown)


@given(done=st.floats(1, 1e9), seconds=st.floats(1e-3, 1e6), factor=st.floats(1, 1e3))
def test_rate_and_time_left(done, seconds, factor):
    now = iter([0.0, 0.0, seconds])
    part = Meter(total=factor * done, clock=lambda: next(now))
    part.reach(done)
    rate = float(re.search(r", ([\d.,e+-]+)/s", part.line())[1].replace(",", ""))
    assert rate == pytest.approx(done / seconds, rel=0.05, abs=1e-300)


def test_a_solve_can_be_watched():
    problem = ls.datasets.synthetic(60, 50, rank=2, density=0.7, outliers=0.1, random_state=3)
    part = Meter(unit="iterations")
    result = ls.solve(problem.M, rank=2, method="amanpgc", callback=part.watch)
    assert part.done == result.n_iter
    assert part.note == f"change {result.trace['change'][-1]:.1e}"


@given(st.text())
def test_any_text_can_be_said_in_ascii(text):
    plain = text.encode("ascii", ERRORS).decode()
    assert plain.isascii()
    if text.isascii():
        assert plain == text


CELLS = st.lists(st.sampled_from(["a", "four", "hyphen-ated"]), max_size=12).map(" ".join)


@given(st.lists(st.tuples(st.sampled_from(["", "one", "two words"]), CELLS), min_size=1), st.integers(40, 90))
def test_columns_fit_and_lose_no_word(rows, fit):
    said = columns(rows, left=(0, 1), fit=fit)
    assert max(map(len, said.split("\n"))) <= fit
    words = sorted(word for row in rows for cell in row for word in cell.split())
    assert sorted(said.split()) == words


def test_a_table_has_a_rule_as_wide_as_its_columns():
    lines = table(["a", "what it is"], [["1", "x " * 40]], left=(0, 1), fit=40).split("\n")
    assert lines[1] == "-  " + "-" * max(len(line) - 3 for line in lines)
    assert max(map(len, lines)) <= 40


ALL = """
import sys
from lowsparse.cli import main
for words in ("--help", "methods", "methods irls", "bench --rows 60 --repeat 1"):
    sys.argv = ["lowsparse", *words.split()]
    try:
        main()
    except SystemExit as left:
        assert not left.code
"""


@pytest.mark.slow
def test_in_ascii_at_60_columns():
    done = python(ALL, PYTHONIOENCODING="ascii", COLUMNS="60", TERM="dumb", NO_COLOR="1")
    assert done.stdout.isascii()
    assert "||P_Omega(S)||1" in done.stdout
    assert "?" not in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    long = [
        line for line in done.stdout.splitlines() if len(line) > 60 and not line.startswith((" " * 4, "A synthetic"))
    ]
    assert long == []


# ---------------------------------------------------------------------- completion


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("do", {"doctor"}), ("methods ladd", {"ladder"}), ("bench --rep", {"--repeat"}), ("demo --for", {"--force"})],
)
def test_completion_offers(typed, offered, command, monkeypatch):
    words = ["lowsparse", *typed.split()]
    monkeypatch.setenv("_LOWSPARSE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    code, out, err = command()
    assert (code, set(out.split()), err) == (0, offered, "")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_completion_in_bash(tmp_path):
    script = run(cwd=tmp_path, _LOWSPARSE_COMPLETE="source_bash").stdout
    installed = tmp_path / "lowsparse"
    installed.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lowsparse "$@"\n')
    installed.chmod(0o755)
    press_tab = '\nCOMP_WORDS=(lowsparse meth); COMP_CWORD=1; _lowsparse_completion lowsparse; echo "${COMPREPLY[@]}"'
    env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script + press_tab], env=env, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("methods\n", "")


# ---------------------------------------------------------------------- extras


def test_extras_are_those_of_the_project():
    found = extras.extras()
    assert {"cli", "plot", "video"} <= found.keys()
    assert not {"all", "test", "bench"} & found.keys()
    assert found["plot"] == ["matplotlib"]
    assert set(found["cli"]) == {"typer", "rich", "pillow"}
    assert extras.extra_of("matplotlib.figure") == "plot"


def test_extras_from_metadata_are_those_from_the_sources(monkeypatch):
    import importlib.metadata

    from_here = extras._declared()
    text = "Metadata-Version: 2.1\nName: lowsparse\nVersion: 1\n"
    for extra, requirements in from_here.items():
        text += f"Provides-Extra: {extra}\n"
        for requirement in requirements:
            name, _, marker = requirement.partition(";")
            both = f"({marker.strip()}) and extra == '{extra}'" if marker else f'extra == "{extra}"'
            text += f"Requires-Dist: {name.strip()} ; {both}\n"
    import email

    monkeypatch.setattr(importlib.metadata, "metadata", lambda name: email.message_from_string(text))
    plain = {extra: [r.partition(";")[0].strip() for r in requirements] for extra, requirements in from_here.items()}
    assert extras._declared() == plain


# ---------------------------------------------------------------------- doctor


@pytest.fixture(scope="module")
def checked():
    """What the doctor says here, to a machine."""
    done = run("doctor", "--json", "--quiet", cwd=".", LOWSPARSE_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_doctor_tells_the_truth(checked):
    checks = {name: check["facts"] for name, check in checked["checks"].items()}
    assert checked["healthy"]
    assert checks["versions"]["lowsparse"] == ls.__version__
    assert checks["versions"]["numpy"] == np.__version__
    assert checks["versions"]["scipy"] == scipy.__version__
    assert Path(checks["versions"]["folder"]) == Path(ls.__file__).resolve().parent
    assert checks["backend"]["available"] == available()
    assert checks["backend"]["used"] == ("native" if available()["native"] is None else "numpy")
    assert checks["threads"]["threads"] == 1
    assert checks["threads"]["from"] == "LOWSPARSE_NUM_THREADS"
    assert checks["speed"]["entries"] > 900_000
    assert 0 < checks["speed"]["scipy_product"] < checks["speed"]["one_thread"] * 100
    for extra, packages in checks["optional"]["extras"].items():
        assert list(packages) == extras.extras()[extra]
        assert all((version is None) == (extras.installed(name) is None) for name, version in packages.items())


def test_doctor_in_words(command, monkeypatch):
    monkeypatch.setattr(probes, "SECONDS", 0.01)
    monkeypatch.setattr(probes, "SIDE", 200)
    monkeypatch.setenv("COLUMNS", "60")
    code, out, _ = command("doctor")
    assert code == 0
    for name in probes.PROBES:
        assert re.search(rf"^(ok|note|warning) +{name}  ", out, re.MULTILINE), name
    assert re.search("^(Everything is fine|It works)", out, re.MULTILINE)
    code, out, err = command("doctor", "--quiet")
    assert code == 0
    assert not re.search("^(ok|note)", out, re.MULTILINE)
    assert err == ""


@pytest.mark.parametrize(
    ("name", "value", "probe"),
    [
        ("LOWSPARSE_BACKEND", "abacus", "backend"),
        ("LOWSPARSE_NUM_THREADS", "many", "threads"),
        ("LOWSPARSE_ISA", "abacus", "instructions"),
    ],
)
def test_doctor_finds_what_is_broken_by_the_environment(name, value, probe, command, monkeypatch, native):
    monkeypatch.setattr(probes, "SECONDS", 0.01)
    monkeypatch.setattr(probes, "SIDE", 200)
    monkeypatch.setenv(name, value)
    code, out, _ = command("doctor", "--json")
    found = json.loads(out)
    assert (code, found["healthy"]) == (1, False)
    assert [check for check, finding in found["checks"].items() if finding["level"] == "error"] == [probe]
    assert name in found["checks"][probe]["text"] + found["checks"][probe]["advice"]
    assert "Something is broken" in command("doctor")[1]


HIDDEN = """
import os, sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == "lowsparse._core":
            raise ImportError("hidden")
sys.meta_path.insert(0, Hide())
import lowsparse.cli.probes as probes
for files, compiler in (([], sys.executable), ([], "/no/such/compiler"), (["_core.abi3.so"], "/no/such/compiler")):
    os.environ["CXX"] = compiler
    probes._core_files = lambda: files
    found = probes.run_probe(probes.backend)
    print(found.level, found.facts["used"], found.advice)
print(found.text)
print(probes.run_probe(probes.agreement).level, probes.run_probe(probes.instructions).level)
"""


def test_doctor_judges_a_missing_core():
    with_compiler, without, damaged, text, others = python(HIDDEN, LOWSPARSE_BACKEND="").stdout.splitlines()
    assert with_compiler.startswith("error numpy there is a compiler")
    assert without.startswith("warning numpy running on NumPy: install a C++17 compiler")
    assert damaged.startswith("error numpy _core.abi3.so exists, but does not load")
    assert "the compiled core does not load (hidden)" in text
    assert others == "note note"


def test_doctor_names_only_what_pip_finds(monkeypatch):
    """This package may not be on the index: it is installed again from where it came, its extras by their packages."""
    source = {"url": "file:///home/me/low sparse", "dir_info": {}}
    for recorded, found in [
        (json.dumps(source), "'/home/me/low sparse'"),
        (json.dumps({"url": "https://host/me/x.git", "vcs_info": {"vcs": "git"}}), "git+https://host/me/x.git"),
        (None, "lowsparse"),
    ]:
        given = types.SimpleNamespace(read_text=lambda name, recorded=recorded: recorded)
        monkeypatch.setattr(extras.importlib.metadata, "distribution", lambda name, given=given: given)
        assert extras.origin() == found
    monkeypatch.setattr(probes, "installed", lambda name: None)
    advice = probes.optional().advice
    assert "lowsparse" not in advice
    assert "python -m pip install matplotlib typer" in advice


def test_version_and_doctor_need_no_extra():
    code = """
import sys
for name in ("typer", "click", "rich", "matplotlib", "PIL", "pyarrow", "pandas"):
    sys.modules[name] = None
import importlib.util as util
find = util.find_spec
util.find_spec = lambda name, *a: None if sys.modules.get(name, True) is None else find(name, *a)
import lowsparse.cli.probes as probes
from lowsparse.cli import main
probes.SECONDS, probes.SIDE = 0.01, 200
sys.argv = ["lowsparse", "WORD"]
main()
"""
    done = python(code.replace('"WORD"', '"--version"'))
    assert (done.stdout, done.stderr) == (f"lowsparse {ls.__version__}\n", "")
    done = python(code.replace('"WORD"', '"doctor"'))
    assert "Everything is fine" in done.stdout or "It works" in done.stdout, done.stdout
    assert "typer" in done.stdout
    done = python(code.replace('"WORD"', '"demo"'), check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("lowsparse: the command line needs typer")


def test_a_wish_for_numpy_is_nothing_broken(monkeypatch):
    monkeypatch.setenv("LOWSPARSE_BACKEND", "numpy")
    assert probes.backend().level == "note"
    monkeypatch.setattr(probes, "available", lambda: {"native": "it is not there", "numpy": None})
    assert probes.backend().level == "note"
    monkeypatch.setenv("LOWSPARSE_BACKEND", "native")
    assert probes.backend().level == "error"


def test_a_wish_for_a_gpu_can_be_followed_or_not(monkeypatch):
    monkeypatch.setenv("LOWSPARSE_BACKEND", "cuda")
    for why, level, used in ((None, "ok", "cuda"), ("there is no CUDA GPU", "error", None)):
        monkeypatch.setattr(probes, "available", lambda why=why: {"native": None, "numpy": None, "cuda": why})
        found = probes.backend()
        assert (found.level, found.facts["used"]) == (level, used)
        assert (why or "set by LOWSPARSE_BACKEND") in found.text


def test_a_wish_for_the_disk_is_a_backend(monkeypatch):
    monkeypatch.setenv("LOWSPARSE_BACKEND", "outofcore")
    assert probes.backend().text == "outofcore, a store on disk, set by LOWSPARSE_BACKEND"
    monkeypatch.setenv("LOWSPARSE_BACKEND", "floppy")
    assert probes.backend().level == "error"


def test_doctor_notices_a_core_that_computes_something_else(monkeypatch, native):
    sweep = sweeps.native.ColumnSweep.sweep

    def wrong(self, *args, **options):
        swept = sweep(self, *args, **options)
        return dataclasses.replace(swept, V=swept.V + 1e-6)

    assert probes.agreement().level == "ok"
    monkeypatch.setattr(sweeps.native.ColumnSweep, "sweep", wrong)
    found = probes.agreement()
    assert found.level == "error"
    assert found.facts["difference"] == pytest.approx(1e-6)


@pytest.mark.parametrize("limit", [1.5, None])
def test_doctor_knows_the_limit_of_a_container(limit, monkeypatch):
    monkeypatch.setattr(probes, "cpu_limit", lambda: limit)
    monkeypatch.setenv("LOWSPARSE_NUM_THREADS", "3")
    found = probes.threads()
    assert found.facts["limit"] == limit
    assert found.level == ("ok" if limit is None else "warning")
    assert ("LOWSPARSE_NUM_THREADS=2" in found.advice) == (limit is not None)


def test_doctor_on_memory(tmp_path, monkeypatch):
    if not Path("/proc/meminfo").exists():
        pytest.skip("not known here")
    (tmp_path / "memory.max").write_text(str(2**30))
    monkeypatch.setattr(sizes, "CGROUPS", [tmp_path / "memory.max"])
    found = probes.memory()
    assert found.facts["total"] == pytest.approx(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), rel=1e-3)
    assert 0 < found.facts["available"] <= found.facts["total"]
    assert found.facts["limit"] == 2**30


CUPY = """
__version__ = "99.0"
class cuda:
    class runtime:
        getDeviceCount = staticmethod(lambda: {count})
        getDeviceProperties = staticmethod(lambda k: {{"name": b"Card %d" % k}})
    class Device:
        compute_capability = "{capability}"
"""


@pytest.mark.parametrize(
    ("count", "capability", "level", "said"),
    [
        ("2", "90", "ok", "Card 0, Card 1"),
        ("2", "35", "warning", "cannot run: the GPU has compute capability 3.5"),
        ("0", "90", "warning", "cannot run: there is no CUDA GPU"),
        ("1 // 0", "90", "warning", "division"),
    ],
)
def test_doctor_asks_cupy(count, capability, level, said, tmp_path, monkeypatch):
    (tmp_path / "cupy.py").write_text(CUPY.format(count=count, capability=capability))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    reason_unavailable.cache_clear()
    found = probes.gpu()
    reason_unavailable.cache_clear()
    sys.modules.pop("cupy", None)  # monkeypatch would bring it back
    assert found.level == level
    assert said in found.text


@pytest.mark.parametrize(
    ("state", "level", "advice"),
    [
        (("native", 2.5, 1.9, 2), "ok", ""),
        (("native", 2.5, 1.0, 1), "ok", ""),
        (("native", 2.5, 1.1, 4), "warning", "4 threads are no faster than one"),
        (("native", 25.0, 1.9, 2), "warning", "instead of two to four"),
        (("numpy", 90.0, 1.0, 1), "warning", "running on NumPy"),
    ],
)
def test_doctor_judges_speed(state, level, advice):
    found = probes._judge_speed(*state, "text")
    assert found[0] == level
    assert advice in found[2]


def test_no_probe_can_end_the_doctor(command, monkeypatch):
    def broken():
        raise OSError("no such device")

    for name in list(probes.PROBES):
        monkeypatch.setitem(probes.PROBES, name, broken)
    code, out, err = command("doctor", "--json")
    assert (code, err) == (0, "")
    assert {check["level"] for check in json.loads(out)["checks"].values()} == {"warning"}


# ---------------------------------------------------------------------- methods


def test_methods_are_those_there_are(command):
    code, out, _ = command("methods", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["default"] == solvers.from_name("auto").name
    assert [card["name"] for card in found["methods"]] == solvers.names()
    for card in found["methods"]:
        solver = type(solvers.from_name(card["name"]))
        assert card["what"] == solver.__doc__.strip().splitlines()[0]
        assert (card["every_entry"], card["robust"], card["finds_rank"]) == (
            solver.full,
            solver.robust,
            solver.finds_rank,
        )
        assert ("every entry" in card["needed"]) == solver.full
        assert all(name in card["needed"] for name in solver.needs)
        assert ("gross errors" in card["choose"]) == (not solver.robust)
        assert bool(card["papers"]) == (card["name"] != "ladder")  # our own
        assert all(re.search(r"^(\S\.[ -])+\S+.*: ", paper) for paper in card["papers"])


def test_every_method_stands_in_one_group_of_the_overview(command):
    _, out, _ = command("methods")
    named = re.findall(r"^  (\w+) +\S", out, re.MULTILINE)
    assert sorted(named) == solvers.names()
    assert named[0] == "ladder"


@pytest.mark.parametrize("name", solvers.names())
def test_parameters_are_those_of_the_class_with_their_texts(name):
    solver = solvers.from_name(name)
    found = parameters_of(type(solver))
    fields = {field.name: field.default for field in dataclasses.fields(solver)}
    assert {key: one.default for key, one in found.items()} == fields
    assert [key for key, one in found.items() if one.required] == list(solver.needs)
    assert all(one.text and one.allowed and one.allows(one.default) for one in found.values())


def test_one_method_in_full(command):
    code, out, _ = command("methods", "amanpgc")
    assert code == 0
    assert "Completion via an Alternating Manifold Proximal Gradient" in " ".join(out.split())
    assert re.search(r"^mu1 +0\.1 +γ shrinks by; in \(0, 1\)$", out, re.MULTILINE)
    assert re.search(r"^t_S +1\.0 +step in S;", out, re.MULTILINE)  # of a class above
    assert "ls.solve(M, rank=5, method=ls.solvers.AManPGC())" in out
    assert ">>>" not in out
    assert command("methods", "auto")[1] == command("methods", "ladder")[1]
    code, out, err = command("methods", "amanpgd")
    assert (code, out) == (2, "")
    assert "amanpgd" in err
    assert "amanpgc" in err


@dataclasses.dataclass(kw_only=True)
class Own(AManPG):
    """A method of one's own: nothing but a new class.

    It needs everything.
    """

    name = "own"
    full = True

    beta: float | None = parameter(None, "how much", at_least=0, required="a number")


def test_a_new_method_needs_nothing_else(command, monkeypatch):
    monkeypatch.setitem(solvers._SOLVERS, "own", Own)
    facts = describe(Own)
    assert facts["needed"] == "every entry, the rank, beta"
    assert facts["papers"] == describe(AManPG)["papers"]
    assert re.search(r"^  own +A method of one's own", command("methods")[1], re.MULTILINE)
    out = command("methods", "own")[1]
    assert re.search(r"^beta +\(required\) +how much; 0 or more$", out, re.MULTILINE)
    assert "It needs everything." in out
    assert "ls.solvers.Own(beta=...)" in out


# ---------------------------------------------------------------------- bench


def test_bench_scores_what_it_says(command):
    words = ("--rows", 80, "--cols", 70, "--rank", 2, "--observed", 0.6, "--seed", 5, "--repeat", 1)
    code, out, _ = command("bench", *words, "--json")
    assert code == 0
    runs = {run["name"]: run for run in json.loads(out)["runs"]}
    assert {"auto", "amanpgc", "svds"} <= runs.keys()
    problem = ls.datasets.synthetic(80, 70, rank=2, density=0.6, outliers=0.1, random_state=5)
    for name in ("auto", "amanpgc"):
        solved = ls.solve(problem.M, 2, method=name, random_state=1)
        assert runs[name]["error"] == solved.L.error(problem.L, relative=True)
        assert runs[name]["ended"] == solved.status.value
        assert runs[name]["seconds"] > 0
    A = np.zeros((80, 70))
    A[problem.M.rows, problem.M.columns_of_entries()] = problem.M.values / problem.M.density
    U, s, Vt = np.linalg.svd(A)
    truth = problem.L.to_dense()
    expected = np.linalg.norm((U[:, :2] * s[:2]) @ Vt[:2] - truth) / np.linalg.norm(truth)
    for name in {"svds", "TruncatedSVD"} & runs.keys():
        assert runs[name]["error"] == pytest.approx(expected, rel=1e-3)
    assert runs["auto"]["error"] < 1e-6 < 0.1 < runs["svds"]["error"]


@pytest.fixture(scope="module")
def same_data(tmp_path_factory):
    """The same entries in three forms."""
    home = tmp_path_factory.mktemp("data")
    problem = ls.datasets.synthetic(90, 60, rank=2, density=0.6, outliers=0.05, noise=0.05, random_state=8)
    X = np.full((90, 60), np.nan)
    X[problem.M.rows, problem.M.columns_of_entries()] = problem.M.values
    np.save(home / "a.npy", X)
    np.savez(home / "dense.npz", X)
    A = sparse.csc_array((problem.M.values, problem.M.rows, problem.M.indptr), shape=(90, 60))
    sparse.save_npz(home / "a.npz", A)
    return home


def test_bench_on_a_file_predicts_what_it_has_not_seen(same_data, command):
    found = {}
    for name in ("a.npy", "dense.npz", "a.npz"):
        code, out, _ = command("bench", same_data / name, "--repeat", 1, "--method", "auto", "--json", "--quiet")
        assert code == 0
        facts = json.loads(out)
        found[name] = (facts["rank"], facts["entries"], {run["name"]: run["error"] for run in facts["runs"]})
    assert all(other == found["a.npy"] for other in found.values())
    rank, entries, errors = found["a.npy"]
    assert rank == 2
    assert 0.85 < entries / (0.6 * 90 * 60) < 0.95
    # noise 0.05 about entries of standard deviation √2: a median error of 0.04 or more
    assert 0.03 < errors["auto"] < 0.1 < errors["svds"] < 1


def test_bench_says_why_a_method_cannot_run(command):
    code, out, _ = command("bench", "--rows", 60, "--method", "rgnmr", "--method", "pcp", "--repeat", 1)
    assert code == 0
    assert len(re.findall("^(rgnmr|pcp) +not possible$", out, re.MULTILINE)) == 2
    assert "pcp: pcp needs every entry" in out
    assert re.search(r"over that of svds\.", " ".join(out.split()))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nothing.npy",), 1, "there is no file nothing.npy"),
        (("text.npy",), 1, "text.npy is no .npy file with numbers, or it is damaged"),
        (("text.npz",), 1, "text.npz is no .npz file with numbers, or it is damaged"),
        (("text.doc",), 1, "the ending of text.doc is not that of a table"),
        (("words.npy",), 1, "words.npy: there is no matrix of numbers, only 'values' (1, 2) of <U1"),
        (("line.npy",), 1, "a matrix needs 2 dimensions, and numbers"),
        (("one.npy",), 1, "one.npy has 1 entry, too few to hold some out"),
        (("two.npz",), 1, "two.npz: there are 2 matrices of numbers"),
        (("one.npy", "--rows", "5"), 2, "--rows is for synthetic data"),
        (("--rows", "0"), 2, "Invalid value for '--rows'"),
        (("--rows", "3"), 2, "--rank is 5, but a 3 x 3 matrix has at most rank 3: give a smaller --rank"),
        (("--observed", "0"), 2, "--observed must be a share"),
        (("--outliers", "1"), 2, "--outliers must be a share"),
        (("--repeat", "0"), 2, "Invalid value for '--repeat'"),
        (("--limit", "0"), 2, "--limit"),
        (("--method", "magic"), 2, "there is no method magic"),
    ],
)
def test_bench_fails_with_one_line(arguments, code, words, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("text.npy", "text.npz", "text.doc"):
        Path(name).write_text("some words")
    np.save("words.npy", np.array([["a", "b"]]))
    np.save("line.npy", np.zeros(3))
    np.save("one.npy", np.array([[1.0, np.nan]]))
    np.savez("two.npz", a=np.zeros((2, 2)), b=np.zeros((2, 2)))
    left, out, err = command("bench", *arguments)
    assert (left, out) == (code, "")
    assert len(err.splitlines()) == 1
    assert words in err


@settings(max_examples=60, deadline=None)
@given(data=st.data(), suffix=st.sampled_from(["a.npy", "a.npz", "dense.npz"]))
def test_a_damaged_file_is_read_or_refused(data, suffix, same_data):
    whole = bytearray((same_data / suffix).read_bytes())
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(0, min(len(whole), 400) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    damaged = same_data / f"damaged{suffix}"
    damaged.write_bytes(bytes(whole[:cut]))
    try:
        M = read_table(damaged).M
    except Exception as error:
        said, code = explain(error)
        assert code == 1
        assert "internal error" not in said
    else:
        assert np.isfinite(M.values).all()


@pytest.mark.slow
@POSIX
def test_ctrl_c_in_bench(tmp_path):
    words = [sys.executable, "-u", "-m", "lowsparse", "bench", "--rows", "1500", "--repeat", "999"]
    child = interruptible(words, tmp_path)
    try:
        assert "synthetic 1500 x 1500" in child.stdout.readline()
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
    finally:
        child.kill()
    assert (child.returncode, errors.splitlines()[-1]) == (130, "lowsparse bench: stopped")
