"""What every floor uses: checks of arguments, optional imports, atomic writing."""

import ctypes
import errno
import math
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from lowsparse.support import cpus, files
from lowsparse.support.checks import check_choice, check_count, check_positive, check_share
from lowsparse.support.optional import import_optional

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="locks of POSIX")


def test_numbers_of_any_library_are_numbers():
    assert check_count("k", np.int32(3)) == check_count("k", 3) == 3
    assert check_count("k", 0, minimum=0) == 0
    assert check_positive("x", np.float32(0.5)) == check_positive("x", 0.5) == 0.5
    assert check_share("p", np.float64(0.5)) == 0.5


@pytest.mark.parametrize(
    ("check", "value", "wanted"),
    [
        *((check_count, value, "whole number of 1 or more") for value in (0, -1, 2.0, True, np.True_, "3", None)),
        *((check_positive, value, "positive number") for value in (0, -1.0, np.inf, np.nan, True, "3", None)),
        *((check_share, value, "between 0 and 1") for value in (0, 1, -0.5, np.nan, True, "0.5", None)),
    ],
)
def test_an_argument_that_is_wrong_is_named(check, value, wanted):
    with pytest.raises(ValueError, match="size must be") as caught:
        check("size", value)
    assert wanted in str(caught.value)
    assert str(caught.value).endswith(f"not {value!r}")


def test_bounds_and_other_values_are_named():
    with pytest.raises(ValueError, match="from 1 to 4, or 'auto', not 5"):
        check_count("rank", 5, maximum=4, also="'auto'")
    with pytest.raises(ValueError, match=r"one of 'a', None, not 1"):
        check_choice("side", 1, ("a", None))
    assert check_choice("side", None, ("a", None)) is None


def test_an_optional_import_names_its_extra():
    with pytest.raises(ImportError, match=r"pictures need Pillow: .*lowsparse\[cli\]"):
        import_optional("PIL.not_there", "cli", "pictures")


def test_a_library_that_is_broken_is_named(tmp_path, monkeypatch):
    (tmp_path / "broken_library.py").write_text("raise ImportError('libx.so is missing')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"broken \(libx\.so is missing\)"):
        import_optional("broken_library", "cli", "pictures")


def test_a_file_or_folder_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a"
    files.write(path, b"first")
    with suppress(RuntimeError), files.replacing(path) as temporary:
        temporary.write_bytes(b"second")
        raise RuntimeError
    assert path.read_bytes() == b"first"
    with files.replacing(tmp_path / "folder") as temporary:
        temporary.mkdir()
        (temporary / "b").write_bytes(b"")
    with suppress(RuntimeError), files.replacing(tmp_path / "other") as temporary:
        temporary.mkdir()
        raise RuntimeError
    assert sorted(found.name for found in tmp_path.rglob("*")) == ["a", "b", "folder"]


def test_only_errors_of_writing_are_explained_as_such(tmp_path):
    with pytest.raises(FileNotFoundError, match="no-source"), files.replacing(tmp_path / "a"):
        (tmp_path / "no-source").read_bytes()
    with pytest.raises(OSError, match=r"cannot write .*a: No such file"), files.replacing(tmp_path / "a") as path:
        (path / "b").write_bytes(b"")
    with pytest.raises(OSError, match=r"cannot write .*: File too large"), files.replacing(tmp_path / "a"):
        raise OSError(errno.EFBIG, "File too large")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_where_something_exists(tmp_path):
    with pytest.raises(FileExistsError, match="exists: remove it"), files.creating(tmp_path / "a"):
        (tmp_path / "a").write_bytes(b"of another process")
    with pytest.raises(FileExistsError, match="exists: remove it"), files.creating(tmp_path / "a"):
        pytest.fail("the work has begun")
    assert (tmp_path / "a").read_bytes() == b"of another process"


@pytest.fixture
def holder(tmp_path):
    """A process that has a temporary folder in `tmp_path`."""
    code = f"""
import time
from pathlib import Path
from lowsparse.support.files import TemporaryFolder
folder = TemporaryFolder(".a.part-", Path({str(tmp_path)!r}))
(folder.path / "a").write_bytes(b"half")
print(flush=True)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


@POSIX
def test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_not(tmp_path, holder):
    (tmp_path / f".empty-12345678-{files.MACHINE}").mkdir()  # of a process that was killed before it could lock it
    elsewhere = tmp_path / ".a.part-12345678-00000000"
    elsewhere.mkdir()
    remove = files.remove_leftovers.__wrapped__  # which looks each time
    remove(tmp_path)
    kept, other = sorted(tmp_path.iterdir(), key=lambda path: path == elsewhere)
    assert other == elsewhere
    assert (kept / "a").exists()
    holder.kill()
    holder.wait()
    remove(tmp_path)
    assert list(tmp_path.iterdir()) == [elsewhere]


@POSIX
def test_a_folder_on_a_disk_without_locks_is_never_taken_for_a_leftover(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", refuse)
        folder = files.TemporaryFolder(".a.part-", tmp_path)
    files.remove_leftovers.__wrapped__(tmp_path)
    assert folder.path.exists()
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_fork_does_not_remove_the_folder_of_its_parent(tmp_path, monkeypatch):
    folder = files.TemporaryFolder(".a.part-", tmp_path)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    folder.remove()
    assert folder.path.exists()


def test_a_full_disk_is_explained():
    error = files.refused(Path("a.csv"), OSError(errno.ENOSPC, "No space left on device"))
    assert (
        str(error) == "cannot write a.csv: No space left on device: free some space, then give the same command again"
    )


@pytest.mark.parametrize(
    ("membership", "groups", "limit"),
    [
        ("0::/", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/", {"cpu.max": "max 100000"}, None),
        ("0::/", {}, None),
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "50000 100000", "cpu.max": "300000 100000"}, 0.5),
        ("0::/a/b", {"cpu.max": "200000 100000"}, 2.0),  # a container does not see the groups it is named by
        ("0::/../../x", {"cpu.max": "200000 100000"}, 2.0),
        ("4:memory:/\n3:cpu:/a\n0::/", {"cpu/a/cpu.cfs_quota_us": "250000", "cpu/a/cpu.cfs_period_us": "100000"}, 2.5),
        ("3:cpu,cpuacct:/", {"cpu,cpuacct/cpu.cfs_quota_us": "-1", "cpu,cpuacct/cpu.cfs_period_us": "100000"}, None),
        ("3:cpu:/", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "0"}, None),
        ("not a membership", {"cpu.max": "150000 100000"}, None),
    ],
)
def test_the_cpu_limit_of_a_container_counts(membership, groups, limit, tmp_path, monkeypatch):
    for name, text in {"membership": membership, **groups}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(cpus, "CGROUPS", tmp_path)
    monkeypatch.setattr(cpus, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(cpus.os, "process_cpu_count", lambda: 8, raising=False)
    monkeypatch.setattr(cpus, "cpu_limit", cpus.cpu_limit.__wrapped__)
    assert cpus.cpu_limit() == limit
    assert cpus.available_cpus() == (8 if limit is None else math.ceil(limit))


def test_affinity_counts(monkeypatch):
    monkeypatch.delattr(cpus.os, "process_cpu_count", raising=False)
    monkeypatch.setattr(cpus.os, "sched_getaffinity", lambda _: {3, 5, 7}, raising=False)
    monkeypatch.setattr(cpus, "cpu_limit", lambda: None)
    assert cpus.available_cpus() == 3


HEAPS = """
import ctypes, sys, threading
from lowsparse.support.memory import share_heap

libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes, libc.fclose.argtypes = (ctypes.c_int, ctypes.c_void_p), (ctypes.c_void_p,)
if sys.argv[2] == "shared":
    share_heap()
thread = threading.Thread(target=lambda: libc.malloc(1000))
thread.start()
thread.join()
file = libc.fopen(sys.argv[1].encode(), b"w")
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="heaps of glibc")
def test_threads_share_a_heap_if_asked_to(tmp_path):
    def heaps(kind):
        told = tmp_path / f"{kind}.xml"
        subprocess.run([sys.executable, "-c", HEAPS, str(told), kind], check=True)
        return told.read_text().count("<heap nr=")

    if not hasattr(ctypes.CDLL(None), "malloc_info"):
        pytest.skip("another C library")
    assert heaps("shared") < heaps("own")
