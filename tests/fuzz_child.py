"""Reads changed inputs in a process of its own, with a limit on memory, and says what became of each.

    python tests/fuzz_child.py show csv 17        # input 17 of the kind csv, with the traceback; the file is kept
    python tests/fuzz_child.py "csv 0 50" "npy 0 50"  # the outcomes of some

A result and an error that names the file and says what is wrong are fine; anything else is not.
"""

import faulthandler
import io
import os
import resource
import shutil
import sys
import tempfile
import traceback
import warnings
import zlib
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sp

import lowsparse as ls
from lowsparse import sweeps
from lowsparse.entries.files import read_table
from lowsparse.entries.frames import Frames
from mutators import change_argument, change_file, one_of

NAMES = ["user", "film", "stars"]  # of the columns of records
RECORDS = dict(zip(("row", "col", "value"), NAMES, strict=True))
MEMORY = 1 << 30  # bytes that an input may take beside what there is before
HANG = 20  # seconds after which the process ends
CLEAR = ValueError, TypeError, RuntimeError, OSError
UNCLEAR = UnicodeError, NotImplementedError, RecursionError  # which are among those


# ---------------------------------------------------------------------- valid files


def _matrix():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((9, 2)) @ rng.standard_normal((2, 8))
    return np.where(rng.random(X.shape) < 0.8, X, np.nan)


def _tables(write):
    """A wide table and one of records."""
    import pandas

    X = _matrix()
    wide = pandas.DataFrame(X, [f"r{k}" for k in range(9)], [f"c{k}" for k in range(8)])
    i, j = np.nonzero(~np.isnan(X))
    records = pandas.DataFrame(dict(zip(NAMES, (i, [f"f{k}" for k in j], X[i, j]), strict=True)))
    return [_saved(write, wide.reset_index()), _saved(write, records)]


def _saved(write, *given, **options):
    file = io.BytesIO()
    write(*given, file, **options) if given else write(file)
    return file.getvalue()


def _text(mark):
    return [data.replace(b",", mark) for data in _tables(lambda table, file: table.to_csv(file, index=False))]


def _gzipped(contents):
    import gzip

    return [gzip.compress(content) for content in contents]


def _arrow(table, file):
    from pyarrow import feather

    feather.write_feather(table, file)


def _npy():
    X = _matrix()
    records = np.array([(k % 3, k % 5, 0.5 * k) for k in range(15)], list(zip(NAMES, ["i4", "i4", "f8"], strict=True)))
    return [_saved(lambda file, A=A: np.save(file, A)) for A in (X, records, np.asfortranarray(X, np.float32))]


def _npz():
    X = _matrix()
    sparse = sp.csc_array(np.nan_to_num(X))
    return [
        _saved(lambda file: np.savez(file, X=X, rows=np.arange(9))),
        _saved(lambda file: np.savez_compressed(file, user=["a", "b"], film=[1, 0], stars=[1.0, 2.0])),
        _saved(lambda file: sp.save_npz(file, sparse)),
    ]


def _mtx():
    X = np.nan_to_num(_matrix())
    symmetric = X[:8].T @ X[:8]
    return [_saved(lambda file, A=A: scipy.io.mmwrite(file, A)) for A in (sp.coo_array(X), X, symmetric)]


def _mat():
    X = _matrix()
    held = {"X": X, "A": sp.csc_array(np.nan_to_num(X)), "rows": np.array(list("abcdefghi")), "c": np.array(["a"], "O")}
    options = [{}, {"do_compression": True}, {"format": "4"}]
    held4 = {name: held[name] for name in ("X", "A", "rows")}
    return [_saved(lambda f, o=o: scipy.io.savemat(f, held4 if o.get("format") else held, **o)) for o in options]


def _video():
    import av

    frames = (np.random.default_rng(2).random((6, 16, 24, 3)) * 255).astype(np.uint8)
    contents = []
    for ending, codec, pixels in ((".mp4", "mpeg4", "yuv420p"), (".avi", "mjpeg", "yuvj420p"), (".gif", "gif", "rgb8")):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"clip{ending}")
            with av.open(str(path), "w") as film:
                stream = film.add_stream(codec, rate=10)
                stream.width, stream.height, stream.pix_fmt = 24, 16, pixels
                for frame in frames:
                    film.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
                film.mux(stream.encode())
            contents.append(path.read_bytes())
    return contents


def _frames(ending):
    X = np.random.default_rng(3).random((4, 6, 5))
    if ending == ".npy":
        return [_saved(lambda file, A=A: np.save(file, A)) for A in ((255 * X).astype(np.uint8), np.asfortranarray(X))]
    return [_saved(lambda file: np.savez_compressed(file, frames=X, frame_id=np.arange(4)))]


# ---------------------------------------------------------------------- readers


def _read_table(path, which):
    """The second of the files of a kind holds records."""
    read_table(path, **RECORDS if which == 1 else {})


def _read_matrix(path, which):
    read_table(path, value=one_of(np.random.default_rng(path.stat().st_size), ["A", "X"]))


def _watch(path, which):
    with Frames(path) as frames:
        for frame in frames:
            assert frame.picture.luma.size


PROBLEM = ls.datasets.synthetic(20, 15, rank=2, density=0.8, outliers=0.1, random_state=1).M
METHODS = ["amanpgc", "ladder"]


def _checkpoint():
    contents = []
    for method in METHODS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "c.npz")
            ls.solve(PROBLEM, rank=2, method=method, tol=0, max_iter=2, checkpoint=path)
            contents.append(path.read_bytes())
    return contents


def _resume(path, which):
    ls.solve(PROBLEM, rank=2, method=METHODS[which], tol=0, max_iter=4, resume=path)


def _store(folder):
    ls.StoredMatrix.build(PROBLEM, folder)


def _solve_store(path):
    ls.solve(ls.StoredMatrix(path, memory="10MB"), rank=2, method="amanpgc", max_iter=1)


def _zarr(folder, version):
    import zarr

    kind = {"zarr_format": version} if zarr.__version__ >= "3" else {}
    array = zarr.open_array(str(folder), mode="w", shape=(9, 8), chunks=(5, 4), dtype="f8", **kind)
    array[:] = _matrix()


def _build_from_zarr(path):
    with tempfile.TemporaryDirectory() as folder:
        ls.StoredMatrix.build(path, folder, memory="10MB")


def _build_from_records(path, which):
    with tempfile.TemporaryDirectory() as folder:
        ls.StoredMatrix.build(path, folder, memory="10MB", **RECORDS)


KINDS = {  # name: (ending, contents of valid files, reader)
    "csv": (".csv", lambda: _text(b","), _read_table),
    "tsv": (".tsv", lambda: _text(b"\t"), _read_table),
    "csv.gz": (".csv.gz", lambda: _gzipped(_text(b",")), _read_table),
    "parquet": (".parquet", lambda: _tables(lambda table, file: table.to_parquet(file)), _read_table),
    "records": (".parquet", lambda: _tables(lambda table, file: table.to_parquet(file))[1:], _build_from_records),
    "arrow": (".arrow", lambda: _tables(_arrow), _read_table),
    "npy": (".npy", _npy, _read_table),
    "npz": (".npz", _npz, _read_table),
    "mtx": (".mtx", _mtx, lambda path, _: read_table(path)),
    "mtx.gz": (".mtx.gz", lambda: _gzipped(_mtx()), lambda path, _: read_table(path)),
    "mat": (".mat", _mat, _read_matrix),
    "video": (".mp4", _video, _watch),
    "video.npy": (".npy", lambda: _frames(".npy"), _watch),
    "video.npz": (".npz", lambda: _frames(".npz"), _watch),
    "checkpoint": (".npz", _checkpoint, _resume),
}
FOLDERS = {  # name: (how a valid one is made, reader)
    "store": (_store, _solve_store),
    "zarr2": (lambda folder: _zarr(folder, 2), _build_from_zarr),
    "zarr3": (lambda folder: _zarr(folder, 3), _build_from_zarr),
}


# ---------------------------------------------------------------------- the compiled core


def _core_call(rng):
    """A function of the compiled core with its arguments, some of them changed."""
    from lowsparse import _core

    M, threads = PROBLEM, one_of(rng, [1, 2])
    m, n, r, isa = *M.shape, 2, one_of(rng, _core.instruction_sets())
    U, V, S, y = (rng.standard_normal(shape) for shape in ((m, r), (n, r), M.nnz, M.nnz))
    x = np.where(rng.random(300) < 0.3, rng.standard_normal(300), 0.0)
    bits = np.packbits(np.append(x != 0, np.zeros(20, bool)), bitorder="little").view(np.uint64)
    loss = [int(rng.integers(9)), 1.0, 0.7]
    made = [m, M.indptr, M.rows, M.values, isa]
    starts = [np.array([0, m]), np.array([0, n])]
    k, seeds = np.full(n, 3), np.arange(n, dtype=np.uint64)
    calls = {
        "sweep": [U, S, np.zeros(M.nnz), V, np.eye(r), 1.0, 0.1, 1e-8, int(rng.integers(3)), threads],
        "regress": [U, V, loss[0], 1.0, 1.0, 0.7, 3, 0.5, 1e-9, 1e6, 1.0, 1.0, 0, threads],
        "entries": [U, V, True, threads],
        "product": [y, V, threads],
        "product_transposed": [y, U, threads],
        "gradient": [U, V, *loss, threads],
        "curvature": [U, V, V, *loss, threads],
        "ascend": [U, V, y, y, np.zeros(M.nnz), np.zeros(M.nnz), 1.0, 2.0, threads],
        "grams": [U, threads],
        "subsets": [U, V, seeds, 3, 1.0, 1.0, 0.5, threads],
        "climb": [*starts, rng.standard_normal((2, n)), 1.0, threads],
        "kth_largest": [y, k, threads],
        "gram_product": [U, threads],
    }
    track = [M.indptr, M.rows, M.values, np.arange(n), U, np.zeros(m), np.zeros(r)]
    track += [1.0, 0, 1.0, 1.8, 1, 5, 1e-7, 1.0, 15.0, 2, 0.1, True, isa]
    loose = {"track": track, "squeeze": [x, bits.copy(), np.zeros(300), isa, threads]}
    loose["expand"] = [bits, x[x != 0], np.zeros(300), threads]
    places = [rng.integers(side, size=30).astype(np.int32) for side in (20, 25)]
    loose["shift_sums"] = [rng.integers(256, size=(20, 25)).astype(np.uint8), *places]
    loose["shift_sums"] += [
        rng.integers(-999, 999, (30, 2)).astype(np.int32),
        16,
        900,
        2,
        -3,
        np.zeros((2, 5, 5), np.int32),
        isa,
    ]
    name = one_of(rng, [*calls, *loose])
    arguments = calls.get(name) or loose[name]
    for _ in range(rng.integers(1, 3)):
        changed = made if name in calls and rng.random() < 0.3 else arguments
        at = int(rng.integers(len(changed)))
        changed[at] = change_argument(changed[at], rng)
        if changed is arguments and name in ("subsets", "regress", "track") and isinstance(changed[at], int):
            changed[at] = min(changed[at], 9)  # it may be a number of iterations, as many as asked for
    if name in loose:
        return lambda: getattr(_core, name)(*arguments)
    return lambda: getattr(_core.ColumnSweep(*made), name)(*arguments)


def _matrix_call(rng):
    """A matrix of changed arrays, and a sweep over it."""
    parts = [PROBLEM.indptr, PROBLEM.rows, PROBLEM.values, PROBLEM.shape]
    U, V = rng.standard_normal((20, 2)), rng.standard_normal((15, 2))
    at = int(rng.integers(5))
    if at < 3:
        parts[at] = change_argument(parts[at], rng)
    elif at == 3:
        parts[3] = one_of(rng, [(20, 2**31), (2**31 - 1, 15), (0, 15), (19, 15), (20, 14), (-1, -1), (20,), None])
    else:
        U = change_argument(U, rng)

    def call():
        M = ls.ObservedMatrix(*parts)
        sweep = M.open_sweep("native")
        sweep.residual(U, V)
        sweep.regress(U, None, sweeps.Robust(c=1.0))

    return call


CALLS = {"core": _core_call, "matrix": _matrix_call}
EVERY = [*KINDS, *FOLDERS, *CALLS]


# ---------------------------------------------------------------------- one input


class Inputs:
    """Inputs of one kind, each the same for the same number."""

    def __init__(self, kind, folder):
        self.kind, self.folder = kind, Path(folder)
        self.folder.mkdir(exist_ok=True)
        if kind in KINDS:
            self.ending, make, self.read = KINDS[kind]
            self.valid = make()
        elif kind in FOLDERS:
            make, self.read = FOLDERS[kind]
            make(self.folder / "valid")
        self.endings = {".mp4": [".mp4", ".avi", ".gif"]}

    def call(self, number):
        """A function that reads the input, and the name that its errors must have in them."""
        rng = np.random.default_rng([zlib.crc32(self.kind.encode()), number])
        if self.kind in CALLS:
            return CALLS[self.kind](rng), ""
        if self.kind in FOLDERS:
            path = self.folder / "changed"
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(self.folder / "valid", path)
            file = one_of(rng, sorted(one for one in path.rglob("*") if one.is_file()))
            file.write_bytes(change_file(file.name, file.read_bytes(), rng))
            if self.kind == "store" and rng.random() < 0.5:
                _fit_checksums(path / "columns")
            return lambda: self.read(path), "" if self.kind == "store" else path.name
        k = int(rng.integers(len(self.valid)))
        path = self.folder / f"changed{self.endings.get(self.ending, [self.ending] * 9)[k]}"
        path.write_bytes(change_file(path.name, self.valid[k], rng))
        return lambda: self.read(path, k), "" if self.kind == "checkpoint" else path.name


def _fit_checksums(side):
    """As somebody would who wants the changed matrix to be read."""
    import json

    try:
        manifest = json.loads((side / "manifest.json").read_bytes())
        indptr, rows, values = (np.load(side / f"{name}.npy") for name in ("indptr", "rows", "values"))
        for block in manifest["blocks"]:
            part = slice(indptr[block[0]], indptr[block[1]])
            block[2] = zlib.crc32(values[part].tobytes(), zlib.crc32(rows[part].tobytes()))
        (side / "manifest.json").write_text(json.dumps(manifest))
    except Exception:  # which cannot be made to fit
        pass


def outcome(call, name):
    """The outcome of an input in one word, and what went wrong."""
    try:
        call()
    except MemoryError as error:
        return ("error", "") if not name or name == "changed" else ("memory", repr(error))
    except Exception as error:
        ours = type(error).__module__.startswith(("builtins", "lowsparse")) and name in str(error)
        if ours and str(error) and isinstance(error, CLEAR) and not isinstance(error, UNCLEAR):
            return "error", ""
        return "unclear", " ".join(traceback.format_exception(error)[-1].split())[:300]
    return "result", ""


def limit_memory():
    """Of what this process may have beside what it has now, where the system says that."""
    status = Path("/proc/self/status")
    if status.exists():
        held = int(status.read_text().split("VmData:")[1].split()[0]) * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (held + MEMORY, resource.RLIM_INFINITY))


def main(jobs):
    """Run jobs such as "csv 0 50"; say "kind number" before each input, and its outcome and why after it."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    said = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    with tempfile.TemporaryDirectory() as folder:
        for job in jobs:
            kind, first, end = job.split()
            inputs = Inputs(kind, Path(folder, kind))
            limit_memory()
            for number in range(int(first), int(end)):
                print(kind, number, file=said)
                faulthandler.dump_traceback_later(HANG, exit=True)
                print(*outcome(*inputs.call(number)), file=said)


def show(kind, number):
    """One input, with the traceback."""
    folder = tempfile.mkdtemp(prefix="fuzz-")
    limit_memory()
    call, _ = Inputs(kind, folder).call(number)
    print(folder)
    call()


if __name__ == "__main__":
    if sys.argv[1] == "show":
        show(sys.argv[2], int(sys.argv[3]))
    else:
        main(sys.argv[1:])
