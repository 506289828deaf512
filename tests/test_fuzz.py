"""Changed files and arguments: every input gives a result or a clear error; none kills the process, hangs, or fills it.

What an input is follows from its kind and number alone: `python tests/fuzz_child.py show KIND NUMBER` runs one.
"""

import gzip
import json
import os
import subprocess
import sys
import tracemalloc
import zipfile
import zlib
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse

import lowsparse as ls
from conftest import PATH, read_picture
from lowsparse.entries.files import read_table
from lowsparse.entries.files.matlab import read_matlab
from lowsparse.places import CorruptStoreError
from lowsparse.support.sizes import read_limit

pytest.importorskip("resource", reason="limits on memory need a POSIX system")
for module, extra in (("pandas", "tables"), ("zarr", "zarr"), ("av", "video")):
    pytest.importorskip(module, reason=f"needs the extra `{extra}`")

FILES = ["csv", "tsv", "csv.gz", "parquet", "arrow", "npy", "npz", "mtx", "mtx.gz", "mat", "checkpoint"]
FILES += ["records", "video", "video.npy", "video.npz", "store", "zarr2"]
FILES += ["zarr3"] if version("zarr") >= "3" else []
LIMIT = 500_000_000  # bytes that a file may take


def run_inputs(jobs):
    """The outcome of each input of jobs such as ("csv", 0, 50), in processes that are started anew if one ends."""
    found, jobs = {}, list(jobs)
    while jobs:
        words = [
            str(Path(__file__).with_name("fuzz_child.py")),
            *(f"{kind} {first} {end}" for kind, first, end in jobs),
        ]
        env = {**os.environ, "PYTHONPATH": PATH, "LOWSPARSE_READ_LIMIT": str(LIMIT), "LOWSPARSE_NUM_THREADS": "2"}
        done = subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, errors="replace")
        lines = done.stdout.splitlines()
        for said, answer in zip(lines[::2], lines[1::2], strict=False):
            found[said] = answer.strip()
        if not done.returncode:
            return found
        assert len(lines) % 2, f"the process did not begin: {done.stderr}"
        found[lines[-1]] = f"ended the process with {done.returncode}: {done.stderr[-600:]}"
        kind, number = lines[-1].split()
        here = next(k for k, job in enumerate(jobs) if job[0] == kind)
        jobs[: here + 1] = [(kind, int(number) + 1, jobs[here][2])]  # go on behind it
    return found


def check(kinds, first, end):
    found = run_inputs([(kind, first, end) for kind in kinds])
    assert len(found) == len(kinds) * (end - first)
    wrong = {said: why for said, why in found.items() if why not in ("result", "error")}
    listed = "\n".join(f"python tests/fuzz_child.py show {said}\n    {why}" for said, why in [*wrong.items()][:20])
    counts = Counter(why.split()[0] for why in found.values())
    assert not wrong, f"{dict(counts)}\n{listed}"
    for kind in kinds:  # both happen: inputs are neither all nonsense nor all as they were
        assert {why for said, why in found.items() if said.split()[0] == kind} == {"result", "error"}
    print(f"{len(found)} inputs, {dict(counts)}")


@pytest.mark.slow
def test_changed_files():
    check(FILES, 0, 42)


def test_changed_arguments(native):
    check(["core"], 0, 200)
    check(["matrix"], 0, 50)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FILES)
def test_many_changed_files(kind):
    check([kind], 1000, 1500)


@pytest.mark.slow
def test_many_changed_arguments(native):
    check(["core", "matrix"], 1000, 2000)


# ---------------------------------------------------------------------- files that promise more than there is

TRUSTED = "and 50 MB are allowed: if you trust the file, set the environment variable LOWSPARSE_READ_LIMIT"


def _gzip_bomb(path):
    with gzip.open(path, "wb", 9) as file:
        file.write(b"a,b\n" if ".csv" in path.name else b"%%MatrixMarket matrix array real general\n1 1\n")
        for _ in range(60):
            file.write(b"1,2\n" * 250_000)


def _bomb_of_cells(path):
    """The text is small, the table is not."""
    with gzip.open(path, "wb", 9) as file:
        file.write(b"a,b\n" + b"1,2\n" * 1_000_000)


def _npz_bomb(path):
    np.savez_compressed(path, X=np.zeros((3000, 2500)))


def _parquet_bomb(path):
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    column = pyarrow.array(np.zeros(1_000_000))
    with parquet.ParquetWriter(path, pyarrow.schema([("x", column.type)])) as writer:
        for _ in range(10):
            writer.write_table(pyarrow.table({"x": column}))


def _mtx_bomb(path):
    path.write_text("%%MatrixMarket matrix coordinate real general\n2000000000 2000000000 1\n1 1 5\n")


def _mat_bomb(path):
    scipy.io.savemat(path, {"X": np.zeros((3000, 2500))}, do_compression=True)


def _picture_bomb(path):
    Image = pytest.importorskip("PIL.Image")
    Image.new("L", (5000, 5000)).save(path)


def _zip_bomb(path):
    pytest.importorskip("openpyxl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml" if path.suffix == ".xlsx" else "x.csv", b"1,2\n" * 15_000_000)


BOMBS = {
    "x.csv.gz": _gzip_bomb,
    "cells.csv.gz": _bomb_of_cells,
    "x.mtx.gz": _gzip_bomb,
    "x.npz": _npz_bomb,
    "x.parquet": _parquet_bomb,
}
BOMBS |= {"x.mtx": _mtx_bomb, "x.mat": _mat_bomb, "x.png": _picture_bomb, "x.zip": _zip_bomb, "x.xlsx": _zip_bomb}


@pytest.mark.parametrize("name", BOMBS)
def test_what_is_too_large_is_refused_before_it_is_read(name, tmp_path, monkeypatch):
    path = tmp_path / name
    BOMBS[name](path)
    assert path.stat().st_size < 2_000_000
    monkeypatch.setenv("LOWSPARSE_READ_LIMIT", "50MB")
    read = read_picture if name == "x.png" else read_table
    tracemalloc.start()
    with pytest.raises(ValueError, match=TRUSTED) as refused:
        read(path)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert name in str(refused.value)
    assert taken < 120_000_000


@pytest.mark.parametrize("name", ["x.csv", "x.mtx"])
def test_a_text_that_is_too_large_is_not_opened(name, tmp_path, monkeypatch):
    (tmp_path / name).write_bytes(b"1,2\n" * 1_000_000)
    monkeypatch.setenv("LOWSPARSE_READ_LIMIT", "3MB")
    with pytest.raises(ValueError, match=r"its content takes 4 MB of memory or more, and 3 MB are allowed"):
        read_table(tmp_path / name)


def test_the_limit_is_that_of_the_machine_unless_it_is_set(monkeypatch):
    monkeypatch.delenv("LOWSPARSE_READ_LIMIT", raising=False)
    assert 10**8 < read_limit() < 10**14
    monkeypatch.setenv("LOWSPARSE_READ_LIMIT", "3GB")
    assert read_limit() == 3 * 10**9
    monkeypatch.setenv("LOWSPARSE_READ_LIMIT", "much")
    with pytest.raises(ValueError, match="LOWSPARSE_READ_LIMIT='much' is no size"):
        read_limit()


# ---------------------------------------------------------------------- what used to end the process


def _with_checksums(side, manifest):
    rows, values = (np.load(side / f"{name}.npy") for name in ("rows", "values"))
    checksum = zlib.crc32(values.tobytes(), zlib.crc32(rows.tobytes()))
    blocks = [[first, end, checksum] for first, end, _ in manifest["blocks"]]
    (side / "manifest.json").write_text(json.dumps(manifest | {"blocks": blocks}))


@pytest.mark.parametrize("blocks", ["fitting", "none"])
def test_rows_of_a_store_that_do_not_exist(blocks, tmp_path):
    """With checksums that fit, or without any: compiled code would write outside of its arrays."""
    ls.StoredMatrix.build(np.arange(1.0, 401).reshape(20, 20), tmp_path)
    side = tmp_path / "columns"
    rows = np.load(side / "rows.npy")
    rows[-1] = 2**30
    np.save(side / "rows.npy", rows)
    manifest = json.loads((side / "manifest.json").read_text())
    _with_checksums(side, manifest if blocks == "fitting" else manifest | {"blocks": []})
    with pytest.raises(CorruptStoreError, match=r"indices must lie in 0 \.\.\. 19|every column once"):
        ls.solve(ls.StoredMatrix(tmp_path), rank=1, method="amanpgc", max_iter=2)


def test_numbers_of_an_unknown_type_in_a_matlab_file(tmp_path):
    """SciPy's reader ends the process."""
    path = tmp_path / "x.mat"
    scipy.io.savemat(path, {"X": np.ones((3, 3))}, do_compression=True)
    data = path.read_bytes()
    content = zlib.decompress(data[136:])
    packed = zlib.compress(content.replace(b"\x09\x00\x00\x00\x48", b"\xe8\x03\x00\x00\x48"))
    path.write_bytes(data[:132] + len(packed).to_bytes(4, "little") + packed)
    with pytest.raises(ValueError, match="numbers of the type 1000, which is unknown"):
        read_table(path)


def test_an_archive_may_hold_other_files(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, X=np.ones((2, 2)))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("notes.txt", "not an array")
    assert read_table(path).M.nnz == 4


@pytest.mark.filterwarnings("ignore:The default value for `spmatrix`:DeprecationWarning")
@pytest.mark.parametrize("packed", [False, True])
def test_a_matlab_file_is_read_as_scipy_reads_it(packed, tmp_path):
    rng = np.random.default_rng(4)
    X, path = rng.standard_normal((5, 4)), tmp_path / "x.mat"
    held = {"X": X, "small": np.float32(X), "n": np.arange(6)[None], "z": X + 1j, "on": X > 0, "deep": X[None]}
    held |= {"A": scipy.sparse.csc_array(X * (X > 0)), "B": scipy.sparse.csc_array(X > 0), "none": np.empty((0, 3))}
    held |= {"names": np.array(["ab", "cdé"]), "word": "größer", "cells": np.array(["a", "bcd", 2.5], object)}
    scipy.io.savemat(path, held, do_compression=packed)
    expected, found = scipy.io.loadmat(path), read_matlab(path, vectors=False)
    for name in held:
        ours, theirs = found[name], expected[name]
        if scipy.sparse.issparse(theirs):
            ours, theirs = ours.toarray(), theirs.toarray()
        if name == "cells":
            theirs = np.array([[cell.item() for cell in theirs.ravel()]], object)
        assert ours.dtype.kind == theirs.dtype.kind or name == "B"
        np.testing.assert_array_equal(ours, theirs)
    assert read_matlab(path, vectors=True)["n"].shape == (6,)


def test_a_newer_matlab_file_is_refused_with_advice(tmp_path):
    path = tmp_path / "x.mat"
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + bytes(384) + b"\x89HDF")
    with pytest.raises(ValueError, match=r"version 7\.3: save it with the option -v7"):
        read_table(path)


def test_a_sparse_matrix_of_matlab_4_is_read(tmp_path):
    X, path = np.array([[0.0, 1.5], [2.0, 0.0]]), tmp_path / "x.mat"
    scipy.io.savemat(path, {"A": scipy.sparse.csc_array(X)}, format="4")
    np.testing.assert_array_equal(read_matlab(path, vectors=False)["A"].toarray(), X)
