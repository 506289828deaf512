"""Every backend finds what the compiled core finds in memory, to 1e-12, and goes on from a checkpoint."""

import gc
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import lowsparse as ls
from conftest import ANYWHERE, PATH, SMALL, slow_decay
from lowsparse.places import StoredMatrix
from lowsparse.places.pieces.coefficients import is_mapped

METHODS = ("auto", *sorted(set(ANYWHERE) - {"ladder"}))
BACKENDS = ("numpy", "outofcore", "dask")
QUICK = {"numpy": ("auto", "amanpg"), "outofcore": METHODS, "dask": ("auto", "amanpgc", "lmafit")}  # the others in CI
EVERYWHERE = [
    pytest.param(backend, method, marks=() if method in QUICK[backend] else pytest.mark.slow)
    for backend in BACKENDS
    for method in METHODS
]


@pytest.fixture
def somewhere(request, noisy, stored):
    """`solve` with the data where a backend has them."""

    def solve(backend, **options):
        if backend == "dask":
            options["client"] = request.getfixturevalue("client")
        return ls.solve(stored if backend in ("outofcore", "dask") else noisy.M, 2, backend=backend, **options)

    return solve


def compare(inside, outside):
    assert outside.n_iter == inside.n_iter
    assert outside.status is inside.status
    assert outside.L.error(inside.L, relative=True) < 1e-12
    assert outside.noise == pytest.approx(inside.noise, rel=1e-10)
    assert outside.S.nnz == inside.S.nnz
    S = outside.S if hasattr(outside.S, "tocoo") else outside.S.to_scipy()
    assert abs(S - inside.S).max() < 1e-10
    assert outside.notes == inside.notes
    assert outside.diagnostics.advice == inside.diagnostics.advice
    assert outside.diagnostics.signal == pytest.approx(inside.diagnostics.signal, rel=1e-9)


# ---------------------------------------------------------------------- the same answers


@pytest.mark.parametrize(("backend", "method"), EVERYWHERE)
def test_every_method_finds_the_same_everywhere(noisy, somewhere, native, backend, method):
    options = {"method": method, "max_iter": 4 if backend == "dask" else 12}
    found = somewhere(backend, **options)
    assert found.backend == backend
    compare(ls.solve(noisy.M, 2, backend=native, **options), found)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_on_disk_a_solve_ends_where_it_ends_in_memory(noisy, stored, method):
    options = {"method": method, "max_iter": 60}
    compare(ls.solve(noisy.M, 2, **options), ls.solve(stored, 2, **options))


@pytest.mark.parametrize("method", METHODS)
def test_single_precision_on_disk_is_solved_as_in_memory(noisy, native, method):
    """Of numbers per entry only the data, and S, are single: those of a method are double, wherever they are stored."""
    M = noisy.M.with_values(noisy.M.values.astype(np.float32))
    options = {"method": method, "max_iter": 8}
    inside, outside = (
        ls.solve(M, 2, backend=native, **options),
        ls.solve(M, 2, backend="outofcore", memory=SMALL, **options),
    )
    assert outside.L.error(inside.L, relative=True) < 1e-6
    assert outside.objective == pytest.approx(inside.objective, rel=1e-5)


def test_the_rank_is_found_on_disk_too(noisy, stored):
    assert ls.solve(stored, "auto").L.rank == ls.solve(noisy.M, "auto").L.rank
    assert ls.diagnose(stored).rank == 2


@pytest.mark.parametrize("backend", ["outofcore", "dask"])
def test_a_path_of_shrinkage_is_followed_everywhere(request, tmp_path, backend):
    M = slow_decay(90, 80, seed=2)
    stored = StoredMatrix.build(M, tmp_path, memory=SMALL)
    options = {"client": request.getfixturevalue("client")} if backend == "dask" else {}
    found = ls.solve(stored, "auto", backend=backend, **options)
    assert found.L.rank > 3
    assert found.noise == found.held_out
    compare(ls.solve(M, "auto"), found)


def test_wild_entries_do_no_harm_on_disk(tmp_path):
    problem = ls.datasets.synthetic(200, 180, rank=2, density=0.5, outliers=0.05, random_state=4)
    x = problem.M.values.copy()
    x[::501] = 1e9
    M = problem.M.with_values(x)
    stored = StoredMatrix.build(M, tmp_path, memory=SMALL)
    for method in ("auto", "amanpgc", "irls"):
        compare(ls.solve(M, 2, method=method), ls.solve(stored, 2, method=method))


# ---------------------------------------------------------------------- what `solve` takes


def test_what_is_in_memory_can_be_put_on_disk_by_the_solve(noisy):
    compare(ls.solve(noisy.M, 2), ls.solve(noisy.M.to_dense(), 2, backend="outofcore", memory="2MB"))


def test_paths_are_solved_from_disk(noisy, stored, tmp_path):
    inside = ls.solve(noisy.M, 2)
    np.save(tmp_path / "x.npy", noisy.M.to_dense())
    for path in (stored.folder, str(stored.folder), tmp_path / "x.npy"):
        found = ls.solve(path, 2, memory="2MB")
        assert found.backend == "outofcore"
        compare(inside, found)
    with pytest.raises(ValueError, match="read from disk: leave the backend out"):
        ls.solve(tmp_path / "x.npy", 2, backend="native")
    with pytest.raises(FileNotFoundError, match="no file or folder nowhere"):
        ls.solve("nowhere", 2)


def test_arrays_in_chunks_are_solved_from_disk_or_on_the_cluster(noisy, client):
    da = pytest.importorskip("dask.array", reason="needs the extra `dask`")
    inside = ls.solve(noisy.M, 2)
    X = da.from_array(noisy.M.to_dense(), chunks=(60, 250))
    found = ls.solve(X, 2)
    assert found.backend == "outofcore"
    compare(inside, found)
    with client.as_current():
        found = ls.solve(X, 2)
        assert found.backend == "dask"
        compare(inside, found)
    zarr = pytest.importorskip("zarr")
    compare(inside, ls.solve(zarr.array(noisy.M.to_dense(), chunks=(100, 60)), 2))


def test_what_does_not_run_in_pieces_says_so(stored, client):
    with pytest.raises(ValueError, match=r"grasta needs the data in memory; .*amanpg"):
        ls.solve(stored, 2, method="grasta")
    with pytest.raises(ValueError, match="memory is for backend='outofcore'"):
        ls.solve([[1.0, 2.0], [3.0, 4.0]], 1, memory="1GB")
    with pytest.raises(ValueError, match="a client is for backend='dask', not 'native'"):
        ls.solve(stored, 2, backend="native", client=client)
    with pytest.raises(TypeError, match=r"on disk.*take some columns"):
        ls.holdout(stored)
    with pytest.raises(TypeError, match=r"client must be a dask\.distributed\.Client"):
        ls.solve(stored, 2, client="tcp://127.0.0.1:9")
    for backend in ("native", "numpy"):
        with pytest.raises(ValueError, match=f"runs on its own backend, 'outofcore', not on '{backend}'"):
            ls.solve(stored, 2, backend=backend)
        with pytest.raises(ValueError, match=r"x\.npy is read from disk: leave the backend out"):
            ls.solve("x.npy", 2, backend=backend)
    with pytest.raises(ValueError, match=r"unknown backend 'disk': choose 'auto', .* or 'outofcore'"):
        ls.solve("x.npy", 2, backend="disk")


# ---------------------------------------------------------------------- checkpoints


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_solve_on_disk_goes_on_from_a_checkpoint_to_the_same_bits(stored, tmp_path, method):
    at = tmp_path / "at.npz"
    options = {"method": method, "tol": 0, "max_iter": 12}
    whole = ls.solve(stored, 2, **options)
    ls.solve(stored, 2, callback=lambda progress: progress.iteration == 5, checkpoint=at, **options)
    resumed = ls.solve(stored, 2, resume=at, **options)
    assert np.array_equal(resumed.L.U, whole.L.U)
    assert np.array_equal(resumed.L.V, whole.L.V)
    assert (resumed.S.to_scipy() != whole.S.to_scipy()).nnz == 0
    assert np.array_equal(resumed.trace["objective"], whole.trace["objective"])
    assert not [name for name in os.listdir(stored.folder) if name.startswith(".")]


@pytest.mark.parametrize("method", ["auto", "lmafit"])
def test_a_solve_on_a_cluster_goes_on_from_a_checkpoint(noisy, stored, client, tmp_path, method):
    at = tmp_path / "at.npz"
    options = {"method": method, "tol": 0, "max_iter": 5, "backend": "dask", "client": client}
    ls.solve(stored, 2, callback=lambda progress: progress.iteration == 3, checkpoint=at, **options)
    compare(ls.solve(noisy.M, 2, method=method, tol=0, max_iter=5), ls.solve(stored, 2, resume=at, **options))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["outofcore", "dask"])
def test_a_process_that_is_killed_goes_on_from_its_checkpoint(request, stored, tmp_path, backend):
    at = tmp_path / "at.npz"
    options = {"method": "amanpgc", "tol": 0, "backend": backend}
    scheduler = None
    if backend == "dask":
        options["client"] = request.getfixturevalue("client")
        scheduler = options["client"].scheduler.address
    code = f"""
import sys
import lowsparse as ls
sys.modules["lowsparse.loop"].CHECKPOINT_SECONDS = 0.0
stored = ls.StoredMatrix({str(stored.folder)!r}, memory={stored.memory})
client = None
if {scheduler!r}:
    from distributed import Client
    client = Client({scheduler!r})
ls.solve(stored, 2, method="amanpgc", tol=0, max_iter=10**6, backend={backend!r}, client=client, checkpoint={str(at)!r},
         callback=lambda progress: print(progress.iteration, flush=True))
"""
    env = {**os.environ, "PYTHONPATH": PATH}
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout:
            if int(line) >= 4:
                child.send_signal(signal.SIGKILL)
                break
    saved = len(np.load(at)["trace.iteration"])
    assert saved >= 3
    options["max_iter"] = saved + 3
    whole, resumed = ls.solve(stored, 2, **options), ls.solve(stored, 2, resume=at, **options)
    assert np.array_equal(resumed.L.V, whole.L.V)  # the same bits: sums are merged in the same order
    assert np.array_equal(resumed.L.U, whole.L.U)


def test_a_checkpoint_of_other_data_is_refused(noisy, stored, tmp_path):
    ls.solve(stored, 2, method="amanpg", max_iter=3, tol=0, checkpoint=tmp_path / "at.npz")
    other = StoredMatrix.build(noisy.M.take_columns(np.arange(200)), tmp_path / "other", memory=SMALL)
    with pytest.raises(ValueError, match="saved with other data"):
        ls.solve(other, 2, method="amanpg", tol=0, resume=tmp_path / "at.npz")
    content = bytearray((tmp_path / "at.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "at.npz").write_bytes(bytes(content))
    with pytest.raises(ValueError, match="is damaged"):
        ls.solve(stored, 2, method="amanpg", tol=0, resume=tmp_path / "at.npz")


# ---------------------------------------------------------------------- results stay large


@pytest.mark.parametrize("backend", ["outofcore", "dask"])
def test_outliers_are_had_by_places_and_columns_and_in_files(noisy, somewhere, backend, tmp_path):
    S = somewhere(backend, max_iter=8).S
    dense = S.to_scipy().toarray()
    assert np.count_nonzero(dense) == S.nnz > 100
    rng = np.random.default_rng(1)
    i, j = rng.integers(-300, 300, (40, 50)), rng.integers(-250, 250, (40, 50))
    assert np.array_equal(S.at(i, j), dense[i, j])
    assert S.at(*np.argwhere(dense)[0]) == dense[dense != 0][0]
    for which in (slice(30, 90), 7, [9, 3, 3, 200], slice(0, 0)):
        assert np.array_equal(S.columns(which).toarray(), np.atleast_2d(dense[:, which].T).T.reshape(300, -1))
    zarr, pq = pytest.importorskip("zarr"), pytest.importorskip("pyarrow.parquet")
    S.to_zarr(tmp_path / "s.zarr")
    group = zarr.open_group(str(tmp_path / "s.zarr"), mode="r")
    again = np.zeros_like(dense)
    again[group["row"][:], group["column"][:]] = group["value"][:]
    assert np.array_equal(again, dense)
    S.to_parquet(tmp_path / "s.parquet")
    table = pq.read_table(tmp_path / "s.parquet")
    assert np.array_equal(dense[table["row"], table["column"]], table["value"])
    assert table.num_rows == S.nnz
    with pytest.raises(FileExistsError, match=r"s\.parquet exists: remove it, or give another path"):
        S.to_parquet(tmp_path / "s.parquet")


@pytest.mark.parametrize("method", ["auto", "amanpgc"])
@pytest.mark.parametrize("backend", ["outofcore", "dask"])
def test_a_large_v_is_mapped_from_the_disk(noisy, somewhere, stored, backend, method, monkeypatch):
    monkeypatch.setattr("lowsparse.places.pieces.coefficients.SHARE", stored.memory // 100)  # 100 bytes are large
    found = somewhere(backend, method=method, max_iter=4)
    assert is_mapped(found.L.V)
    inside = ls.solve(noisy.M, 2, method=method, max_iter=4).L
    i, j = np.random.default_rng(1).integers(0, 250, (2, 100))
    np.testing.assert_allclose(found.L.at(i, j), inside.at(i, j), rtol=1e-9)
    np.testing.assert_allclose(found.L.columns([3, 200, 3]), inside.columns([3, 200, 3]), rtol=1e-9)
    del found
    gc.collect()
    assert not [name for name in os.listdir(stored.folder) if name.startswith(".")]


@pytest.mark.parametrize("method", ["amanpgc", "irls"])
def test_factors_that_need_much_of_the_memory_get_smaller_pieces(noisy, stored, monkeypatch, method):
    monkeypatch.setattr("lowsparse.places.disk.matrix.PYTHON", 0)
    monkeypatch.setattr("lowsparse.places.disk.matrix.FACTORS", stored.memory // 20_000)
    options = {"method": method, "max_iter": 6}
    inside = ls.solve(noisy.M, 2, **options)
    found = ls.solve(stored, 2, **options)
    compare(inside, found)
    assert len(found.M.pieces) > len(stored.pieces)
    monkeypatch.setattr("lowsparse.places.disk.matrix.FACTORS", stored.memory // 10_000)
    with pytest.warns(RuntimeWarning, match=r"U and V of rank 2 .* allow more memory"):
        compare(inside, ls.solve(stored, 2, **options))


def test_v_stays_on_the_workers_from_sweep_to_sweep(noisy, stored, client, native):
    from lowsparse.places.cluster import ClusterMatrix
    from lowsparse.places.pieces.coefficients import Coefficients
    from lowsparse.sweeps import Previous, Proximal, Rule

    U, turn = np.linalg.qr(np.random.default_rng(1).standard_normal((300, 2)))
    V, dV, kept = [], [], []
    for M in (noisy.M, ClusterMatrix(stored, client)):
        sweep = M.open_sweep(native if M is noisy.M else "auto")
        S, S_out = M.hold(np.zeros_like(M.values)), M.hold(np.zeros_like(M.values))
        first = sweep.sweep(U, S, S_out, Proximal(Rule.AMANPG, gamma=0.1))
        after = sweep.sweep(U, S_out, S, Proximal(Rule.AMANPG, gamma=0.1), Previous(first.V, turn))
        V.append(np.asarray(after.V))
        dV.append(after.dV)
        kept = first.V, after.V
    assert all(isinstance(one, Coefficients) for one in kept)
    np.testing.assert_allclose(V[1], V[0], rtol=1e-11)
    assert dV[1] == pytest.approx(dV[0], rel=1e-10)


def test_a_low_rank_matrix_is_written_in_blocks(tmp_path, monkeypatch):
    zarr, pq = pytest.importorskip("zarr"), pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(2)
    L = ls.LowRank(rng.standard_normal((70, 3)), rng.standard_normal((3, 50)))
    monkeypatch.setattr("lowsparse.support.export.CHUNK", 500)
    monkeypatch.setattr("lowsparse.linalg.lowrank._BLOCK", 500)
    L.to_zarr(tmp_path / "l.zarr", dtype=np.float32)
    array = zarr.open_array(str(tmp_path / "l.zarr"), mode="r")
    assert array.chunks == (70, 7)
    assert np.array_equal(array[:], np.hstack([L.columns(slice(k, k + 7)) for k in range(0, 50, 7)]).astype(np.float32))
    L.to_parquet(tmp_path / "l.parquet")
    for write in (L.to_zarr, L.to_parquet):
        for name in ("l.zarr", "l.parquet"):
            with pytest.raises(FileExistsError, match=f"{name} exists: remove it, or give another path"):
                write(tmp_path / name)
    table = pq.read_table(tmp_path / "l.parquet")
    assert table.num_rows == 70 * 50
    np.testing.assert_allclose(table["value"], L.at(np.asarray(table["row"]), np.asarray(table["column"])), rtol=1e-12)
    assert sorted(os.listdir(tmp_path)) == ["l.parquet", "l.zarr"]


# ---------------------------------------------------------------------- faults


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("backend", ["outofcore", "dask"])
def test_ctrl_c_ends_a_solve_with_its_files_and_its_cluster(backend, tmp_path):
    if backend == "dask":
        pytest.importorskip("distributed", reason="needs the extra `dask`")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (tmp_path / "run.py").write_text(f"""
import sys
sys.path[:0] = {PATH.split(os.pathsep)!r}
import lowsparse as ls
if __name__ == "__main__":
    M = ls.datasets.synthetic(300, 250, rank=2, density=0.5, outliers=0.1, noise=0.02, random_state=3).M
    ls.solve(M, 2, method="amanpgc", backend={backend!r}, memory={SMALL}, tol=0, max_iter=10**9,
             callback=lambda progress: print(progress.iteration, flush=True))
""")
    child = subprocess.Popen(
        [sys.executable, "run.py"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: (os.setsid(), signal.signal(signal.SIGINT, signal.SIG_DFL)),
    )
    assert any(line == "3\n" for line in child.stdout)
    assert any(name.startswith("lowsparse-") for name in os.listdir(scratch))
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert not [name for name in os.listdir(scratch) if name.startswith("lowsparse-")]
    alive = subprocess.run(["ps", "-o", "stat=", "-s", str(child.pid)], capture_output=True, text=True, check=False)
    assert all(state.startswith("Z") for state in alive.stdout.split())  # of our own session, nothing runs


@pytest.mark.parametrize("anew", [[0], [0, 1]])
def test_pieces_that_were_read_anew_catch_up(noisy, stored, client, anew):
    from lowsparse.places.cluster import ClusterMatrix

    matrix = ClusterMatrix(stored, client)
    x = matrix.hold(matrix.hold(matrix.values * 2) * 2)
    fresh = ClusterMatrix(stored, client).pieces
    matrix.pieces = [fresh[k] if k in anew else piece for k, piece in enumerate(matrix.pieces)]
    assert len(matrix.pieces) == 2
    assert np.abs(x).sum() == pytest.approx(4 * np.abs(noisy.M.values).sum(), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "amanpgc"])
@pytest.mark.parametrize("remembered", [0, 1 << 28])
def test_a_worker_that_dies_is_replaced_and_the_answer_is_the_same(noisy, stored, method, remembered, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="needs the extra `dask`")
    monkeypatch.setattr("lowsparse.places.cluster.MAX_HISTORY", remembered)
    options = {"method": method, "max_iter": 25, "tol": 0}
    with (
        distributed.LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        processes, there = client.run(os.getpid), set(stored.folder.glob(".held-*"))

        def kill_one(progress):
            if progress.iteration == 16:
                os.kill(next(iter(processes.values())), signal.SIGKILL)

        found = ls.solve(stored, 2, backend="dask", client=client, callback=kill_one, **options)
        assert set(client.run(os.getpid).values()) != set(processes.values())
        compare(ls.solve(noisy.M, 2, **options), found)
        del found
        gc.collect()
        assert set(stored.folder.glob(".held-*")) <= there
