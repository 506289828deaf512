"""Kill a writer with SIGKILL at many moments, each in a fork of its own, and look at what is there; see test_kills.py.

`python kills.py WRITER|all MOMENTS FOLDER` prints one JSON object. A moment is a call that changes the file system, as
Python reports each to an audit hook, or a time: what C and C++ libraries write is not reported.
"""

import atexit
import contextlib
import csv
import hashlib
import importlib
import io
import json
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import numpy as np

import lowsparse as ls
from lowsparse.cli.app import app
from lowsparse.linalg.lowrank import LowRank

CALLS = {"os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "shutil.rmtree"}
MEMORY = 1_000_000  # the least, so that a matrix on disk is sorted in several parts
OPTIONS = {"rank": 2, "method": "amanpgc", "tol": 0, "max_iter": 5, "random_state": 0}
BY_CALL = 0.7  # of the moments, at most
TRIES = 8  # of a time, each half of the one before
ENDS = {".html": b"</html>", ".md": b"\n", ".png": b"IEND\xaeB`\x82"}


# ---------------------------------------------------------------------- the writers


def matrix(m=40, n=30):
    return ls.datasets.synthetic(m, n, rank=2, density=0.6, outliers=0.1, random_state=1).M


def command(*words):
    with contextlib.redirect_stdout(io.StringIO()):
        assert not app([*words], standalone_mode=False), words


class Complete:
    """Three files beside the table, each of which may be there before."""

    names = ("table-completed.csv", "table-completed-outliers.csv", "table-completed-report.html")

    def prepare(self, folder):
        header = ",".join(f"c{k}" for k in range(30))
        np.savetxt(folder / "table.csv", matrix().to_dense(), delimiter=",", header=header, comments="")

    def write_old(self, folder):
        for name in self.names:
            (folder / name).write_text("old")

    def write(self, folder):
        command("complete", str(folder / "table.csv"), "--force", "-q")

    def targets(self, folder):
        return {name: content(folder / name) for name in self.names}


class Video(Complete):
    """A folder of films, a picture and a report."""

    names = ("out/background.png", "out/mask.mp4", "out/cutout.mp4", "out/report.html")

    def prepare(self, folder):
        np.save(folder / "frames.npy", np.random.default_rng(1).integers(0, 255, (12, 32, 32), dtype=np.uint8))

    def write_old(self, folder):
        (folder / "out").mkdir()
        super().write_old(folder)

    def write(self, folder):
        command("video", str(folder / "frames.npy"), "--out", str(folder / "out"), "--grey", "--force", "-q")


class Reproduce(Complete):
    """A page with its numbers, updated while it runs."""

    def prepare(self, folder):
        pass

    def write_old(self, folder):
        shutil.copytree(folder.with_name("new") / "out", folder / "out")

    def write(self, folder):
        words = ["--quick", "--case", "6", "--only", "synthetic", "--method", "amanpgc", "--fresh", "-q"]
        command("reproduce", *words, "--out", str(folder / "out"))

    def targets(self, folder):
        found = [path for path in folder.glob("out/**/*") if path.is_file() and ".part-" not in str(path)]
        return {str(path.relative_to(folder)): content(path, timed=True) for path in found}


class Checkpoint:
    """A file that is replaced at every iteration; it is right if a solve goes on from it to the same bits."""

    def prepare(self, folder):
        pass

    def write_old(self, folder):
        ls.solve(matrix(), checkpoint=folder / "c.npz", **OPTIONS | {"max_iter": 2})

    def write(self, folder):
        import lowsparse.loop

        lowsparse.loop.CHECKPOINT_SECONDS = 0.0
        ls.solve(matrix(), checkpoint=folder / "c.npz", **OPTIONS)

    def targets(self, folder):
        path = folder / "c.npz"
        return {"c.npz": digest(ls.solve(matrix(), resume=path, **OPTIONS).L.U) if path.exists() else None}


class Store:
    """A matrix on disk, of which the rows are written first, and transposed."""

    def prepare(self, folder):
        for k, name in enumerate(("old", "new"), 1):
            np.save(folder / f"{name}.npy", k * matrix(200, 150).to_dense())

    def write_old(self, folder):
        ls.StoredMatrix.build(folder / "old.npy", folder / "store", memory=MEMORY)

    def write(self, folder):
        ls.StoredMatrix.build(folder / "new.npy", folder / "store", memory=MEMORY)

    def targets(self, folder):
        if not (folder / "store" / "columns").exists():
            return {"store": None}
        stored = ls.StoredMatrix(folder / "store")
        sides = [M.side for M in (stored, stored.T) if M.verified]
        return {"store": digest(*(A for side in sides for A in (side.indptr, side.rows, side.values)))}


class Records(Store):
    """A matrix on disk from records, with their labels."""

    def prepare(self, folder):
        import pyarrow
        from pyarrow import parquet

        M = matrix(200, 150)
        for k, name in enumerate(("old", "new"), 1):
            labels = {"row": M.rows + k, "col": M.columns_of_entries() + k}
            parquet.write_table(pyarrow.table({**labels, "value": k * M.values}), folder / f"{name}.parquet")

    def build(self, source, folder):
        ls.StoredMatrix.build(source, folder / "store", row="row", col="col", value="value", memory=MEMORY)

    def write_old(self, folder):
        self.build(folder / "old.parquet", folder)

    def write(self, folder):
        self.build(folder / "new.parquet", folder)

    def targets(self, folder):
        found = super().targets(folder)
        if found["store"] is not None:
            labels = (np.load(folder / "store" / f"{side}-labels.npy") for side in ("rows", "columns"))
            found["store"] = (found["store"], digest(*labels))
        return found


class Export:
    """A file or folder that must not exist yet."""

    def prepare(self, folder):
        pass

    write_old = None

    def write(self, folder):
        shutil.rmtree(folder / "a", ignore_errors=True)
        (folder / "a").unlink(missing_ok=True)
        self.export(folder / "a")

    def targets(self, folder):
        return {"a": digest(*self.read(folder / "a")) if (folder / "a").exists() else None}


class OutliersToZarr(Export):
    """S from a solve on disk, whose files are in the folder for temporary files."""

    def outliers(self):
        return ls.solve(matrix(), rank=2, backend="outofcore", memory=MEMORY).S

    def export(self, path):
        self.outliers().to_zarr(path)

    def read(self, path):
        import zarr

        group = zarr.open_group(str(path), mode="r")
        return [group[name][:] for name in ("row", "column", "value")]


class OutliersToParquet(OutliersToZarr):
    def export(self, path):
        self.outliers().to_parquet(path)

    def read(self, path):
        from pyarrow import parquet

        return [column.to_numpy() for column in parquet.read_table(path).columns]


class LowRankToZarr(Export):
    def export(self, path):
        LowRank(np.arange(6.0).reshape(3, 2), np.arange(8.0).reshape(2, 4)).to_zarr(path)

    def read(self, path):
        import zarr

        return [zarr.open_array(str(path), mode="r")[:]]


WRITERS = {  # those that import most come last: a larger process is slower to fork
    "checkpoint": Checkpoint(),
    "store": Store(),
    "L.to_zarr": LowRankToZarr(),
    "records": Records(),
    "S.to_parquet": OutliersToParquet(),
    "S.to_zarr": OutliersToZarr(),
    "complete": Complete(),
    "video": Video(),
    "reproduce": Reproduce(),
}


def digest(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def content(path, timed=False):
    """What a file holds: its digest, or only that it is complete if it has times in it; None if it is not there."""
    if not path.exists():
        return None
    found = path.read_bytes()
    if found == b"old" or not (timed or path.suffix == ".html"):
        return hashlib.sha256(found).hexdigest()
    if path.suffix == ".json":
        json.loads(found)
    elif path.suffix == ".csv":
        widths = {len(row) for row in csv.reader(found.decode().splitlines())}
        assert len(widths) == 1, f"{path} has rows of {widths} fields"
        assert found.endswith(b"\n"), f"{path} is cut off"
    else:
        assert found.rstrip(b"\n").endswith(ENDS[path.suffix].rstrip(b"\n")), f"{path} is cut off"
    return "complete"


# ---------------------------------------------------------------------- kills


def start(function, *arguments):
    """Call a function in a fork; returns its process, and a pipe with what the function returns."""
    readable, writable = os.pipe()
    process = os.fork()
    if process:
        os.close(writable)
        return process, readable
    os.close(readable)
    code = 1
    try:
        found = pickle.dumps(function(*arguments))
        atexit._run_exitfuncs()
        with open(writable, "wb") as pipe:
            pipe.write(found)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def finish(process, readable):
    """What the function returned; None if the process was killed."""
    with open(readable, "rb") as pipe:
        found = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError(f"the process ended with {code}")
    return None if code else pickle.loads(found)


def in_fork(function, *arguments):
    return finish(*start(function, *arguments))


def changes_files(event, arguments):
    if event == "open":
        return bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)) and not str(arguments[0]).endswith(".pyc")
    return event in CALLS


def watched(writer, folder, moment=None):
    """Write, and die before the call with this number; returns the calls and the seconds."""
    calls, modules = [], set(sys.modules)

    def count(event, arguments):
        if changes_files(event, arguments):
            if len(calls) == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            calls.append(event)

    tempfile.tempdir = str(folder / "tmp")
    os.chdir(folder)
    sys.addaudithook(count)
    began = time.perf_counter()
    writer.write(folder)
    seconds = time.perf_counter() - began
    return list(calls), seconds, [name for name in sys.modules if name not in modules]


def paths(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def choose(calls, seconds, number):
    """Moments: around all renames, other calls, and times."""
    renames = [k + after for k, call in enumerate(calls) if call == "os.rename" for after in (0, 1)]
    others = [k for k in range(len(calls)) if k not in renames]
    by_call = min(len(calls), round(BY_CALL * number))
    near = min(len(renames), -(-by_call // 2))
    spread = [*spaced(renames, near), *spaced(others, by_call - near)]
    return spread, [seconds * (k + 0.5) / (number - len(spread)) for k in range(number - len(spread))]


def spaced(items, number):
    number = min(number, len(items))
    return [items[-1 - k * len(items) // number] for k in range(number)]


def kill_in_time(writer, source, here, moment):
    """Kill a writer after so many seconds, or sooner if it is done by then: its time was taken beside other work."""
    for _ in range(TRIES):
        process, pipe = start(watched, writer, shutil.copytree(source, here))
        time.sleep(moment)
        os.kill(process, signal.SIGKILL)
        if finish(process, pipe) is None:
            return moment, True
        shutil.rmtree(here)
        moment /= 2
    shutil.copytree(source, here)
    return moment, False


def kill(writer, number, folder):
    """Kill a writer at so many moments; returns how many targets were absent, old and new, and what is wrong."""
    empty, old, new = (folder / name for name in ("empty", "old", "new"))
    (empty / "tmp").mkdir(parents=True)
    in_fork(writer.prepare, empty)
    for copy in (old, new):
        shutil.copytree(empty, copy)
    for name in in_fork(watched, writer, new)[2]:  # imported once, here, and not in each fork
        importlib.import_module(name)
    calls, seconds, _ = in_fork(watched, writer, shutil.copytree(empty, folder / "again"))
    wanted, expected, before = in_fork(writer.targets, new), paths(new), {}
    if writer.write_old:
        in_fork(writer.write_old, old)
        before = in_fork(writer.targets, old)
    by_call, by_time = choose(calls, seconds, number)
    found: Counter[str] = Counter(moments=number, by_call=len(by_call))
    problems = []
    for k, moment in enumerate([*by_call, *by_time]):
        source, here = old if before and k % 2 else empty, folder / str(k)
        if k < len(by_call):
            killed = finish(*start(watched, writer, shutil.copytree(source, here), moment)) is None
        else:
            moment, killed = kill_in_time(writer, source, here, moment)
        found["killed"] += killed
        try:
            for name, value in in_fork(writer.targets, here).items():
                known = {"absent": None, "new": wanted.get(name), "old": before.get(name)}
                state = next((state for state, one in known.items() if one == value), "wrong")
                found[state] += 1
                assert state != "wrong", f"{name} is neither absent nor old nor new"
            found["leftovers"] += bool({*paths(here)} - {*paths(old), *expected})
            in_fork(watched, writer, here)
            assert in_fork(writer.targets, here) == wanted, "the next run did not give what is wanted"
            assert paths(here) == expected, f"the next run left {set(paths(here)) ^ set(expected)}"
        except (AssertionError, RuntimeError) as error:
            at = f"call {moment} of {len(calls)}, {calls[moment]}" if k < len(by_call) else f"{moment:.3f} s"
            problems.append(f"killed at {at}: {error}")
        shutil.rmtree(here)
    return {**found, "problems": problems}


if __name__ == "__main__":
    names, folder = list(WRITERS) if sys.argv[1] == "all" else [sys.argv[1]], Path(sys.argv[3]).resolve()
    print(json.dumps({name: kill(WRITERS[name], int(sys.argv[2]), folder / name) for name in names}))
