"""Matrices on disk and on a cluster: the same answers as in memory, and nothing damaged is taken for whole."""

import gc
import json
import os
import signal

import numpy as np
import pytest
from scipy import sparse

import lowsparse as ls
from lowsparse.blocks import CorruptStoreError, StoredMatrix
from lowsparse.blocks.build import sort_into
from lowsparse.blocks.placing import bytes_of
from lowsparse.blocks.scratch import Scratch
from lowsparse.blocks.store import Side
from lowsparse.sweeps import Rule, native, open_sweep

METHODS = ("auto", "amanpg", "amanpgc", "manpg", "manpgc", "subgm", "rmc", "lmafit", "irls")
SMALL = 125 * 9000  # bytes of memory in which the matrix is in several pieces


@pytest.fixture(scope="module")
def problem():
    return ls.datasets.synthetic(300, 250, rank=2, density=0.5, outliers=0.1, noise=0.02, random_state=3)


@pytest.fixture(scope="module")
def stored(problem, tmp_path_factory):
    made = StoredMatrix.build(problem.M, tmp_path_factory.mktemp("stored"), memory=SMALL)
    assert len(made.pieces) > 3
    return made


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed", reason="needs the extra `dask`")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as connected,
    ):
        yield connected


# ---------------------------------------------------------------------- the same answers


def compare(inside, outside):
    assert outside.n_iter == inside.n_iter
    assert outside.status is inside.status
    assert outside.L.error(inside.L, relative=True) < 1e-12
    assert outside.noise == pytest.approx(inside.noise, rel=1e-10)
    assert outside.S.nnz == inside.S.nnz
    assert abs(outside.S.to_scipy() - inside.S).max() < 1e-10
    assert outside.notes == inside.notes
    assert outside.diagnostics.advice == inside.diagnostics.advice
    assert outside.diagnostics.signal == pytest.approx(inside.diagnostics.signal, rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_on_disk_every_method_finds_what_it_finds_in_memory(problem, stored, method):
    how = {"method": method, "max_iter": 60}
    found = ls.solve(stored, 2, **how)
    assert found.backend == "outofcore"
    compare(ls.solve(problem.M, 2, **how), found)


@pytest.mark.parametrize("method", ["auto", "amanpgc", "lmafit"])
def test_on_a_cluster_methods_find_what_they_find_in_memory(problem, stored, client, method):
    how = {"method": method, "max_iter": 8}
    found = ls.solve(stored, 2, backend="dask", client=client, **how)
    assert found.backend == "dask"
    compare(ls.solve(problem.M, 2, **how), found)


def test_the_rank_is_found_on_disk_too(problem, stored):
    assert ls.solve(stored, "auto").L.rank == ls.solve(problem.M, "auto").L.rank


def test_wild_entries_do_no_harm_on_disk(tmp_path):
    problem = ls.datasets.synthetic(200, 180, rank=2, density=0.5, outliers=0.05, random_state=4)
    x = problem.M.values.copy()
    x[::501] = 1e9
    M = problem.M.with_values(x)
    stored = StoredMatrix.build(M, tmp_path, memory=SMALL)
    for method in ("auto", "amanpgc", "irls"):
        compare(ls.solve(M, 2, method=method), ls.solve(stored, 2, method=method))


def test_what_is_in_memory_can_be_put_on_disk_by_the_solve(problem):
    compare(ls.solve(problem.M, 2), ls.solve(problem.M.to_dense(), 2, backend="outofcore", memory="2MB"))


def test_what_does_not_run_in_pieces_says_so(stored, tmp_path):
    with pytest.raises(ValueError, match="grasta needs the data in memory; on disk and on a cluster run amanpg"):
        ls.solve(stored, 2, method="grasta")
    with pytest.raises(ValueError, match="checkpoints are for data in memory"):
        ls.solve(stored, 2, checkpoint=tmp_path / "c.npz")
    with pytest.raises(ValueError, match="memory is for backend='outofcore'"):
        ls.solve([[1.0, 2.0], [3.0, 4.0]], 1, memory="1GB")


# ---------------------------------------------------------------------- entries in pieces


def test_entries_are_numbers_as_numpy_has_them(problem, stored):
    x, e = problem.M.values, stored.values
    assert np.array_equal(np.asarray(np.clip(2 * e - 1, -1, 1)), np.clip(2 * x - 1, -1, 1))
    assert float(np.median(np.abs(e))) == float(np.median(np.abs(x)))
    assert float(np.median(e - 3)) == float(np.median(x - 3))
    assert (e.min(), e.max()) == (x.min(), x.max())
    assert e @ e == pytest.approx(x @ x, rel=1e-14)
    assert np.count_nonzero(e > 1) == np.count_nonzero(x > 1)
    assert np.array_equal(e[3:20_000:7], x[3:20_000:7])
    assert np.array_equal(np.asarray(np.flatnonzero(e > 2)), np.flatnonzero(x > 2))
    where = np.flatnonzero(e > 2)
    assert np.array_equal(np.asarray(e[where].astype(np.float32)), x[x > 2].astype(np.float32))
    assert np.array_equal(where.by_row, np.bincount(problem.M.rows[x > 2], minlength=300))


def test_the_median_is_exact_whatever_the_numbers(tmp_path):
    rng = np.random.default_rng(5)
    M = ls.ObservedMatrix.from_dense(rng.standard_normal((200, 101)))
    stored = StoredMatrix.build(M, tmp_path, memory=SMALL)
    for x in (np.full(M.nnz, -2.5), rng.standard_cauchy(M.nnz) ** 5, np.round(rng.standard_normal(M.nnz), 1)):
        held = stored.values.hold()
        for piece in stored.pieces:
            stored.kept[held.formula.name].write(piece.number, x[piece.entries])
        assert float(np.median(held)) == float(np.median(x))


def test_what_was_held_is_given_up_with_its_last_user(stored):
    held = (2 * stored.values).hold()
    name = held.formula.name
    more = np.abs(held)
    del held
    assert name in stored.kept
    del more
    assert name not in stored.kept


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_what_is_kept_comes_back_bit_by_bit(tmp_path, monkeypatch, dtype, share, compiled):
    if not compiled:
        monkeypatch.setattr(native, "_reason", "not to be used")
    rng = np.random.default_rng(6)
    parts = [slice(0, 0), slice(0, 1), slice(1, 64), slice(64, 200_003), slice(200_003, 200_100)]
    scratch = Scratch(tmp_path, parts, dtype)
    for _ in range(2):
        x = np.where(rng.random(200_100) < share, rng.standard_normal(200_100), 0.0).astype(dtype)
        x[::1000] = [-0.0, np.nan, np.inf] * 67
        for k, part in enumerate(parts):
            scratch.write(k, x[part])
        for k, part in reversed(list(enumerate(parts))):
            assert scratch.read(k).tobytes() == x[part].tobytes()
    assert (3 in scratch.many) == (share < 0.5)
    assert not list(tmp_path.iterdir())  # the file has no name


@pytest.mark.skipif(native.reason_unavailable() is not None, reason="needs the compiled core")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(40, 1), (1, 300), (7, 500), (300, 400), (9000, 60)])
@pytest.mark.parametrize("gamma", [0.0, 1.5, 1e9])
def test_a_sweep_of_a_squeezed_s_is_the_sweep_of_s(dtype, shape, gamma):
    rng = np.random.default_rng(8)
    X = rng.standard_normal(shape).astype(dtype)
    X[rng.random(shape) < 0.4] = np.nan
    X[:, 1::5] = np.nan  # empty columns
    X[0, 0] = 1.0
    M = ls.ObservedMatrix.from_dense(X)
    U = np.linalg.qr(rng.standard_normal((shape[0], min(3, *shape))))[0]
    S = np.where(rng.random(M.nnz) < 0.2, rng.standard_normal(M.nnz), 0.0).astype(dtype)
    words = -(-M.nnz // 64)
    squeezed, out = (native.Squeezed(np.empty(words, np.uint64), np.empty(M.nnz // 2 + 1, dtype)) for _ in range(2))
    squeezed = squeezed._replace(found=squeezed.found[: native.squeeze(S, *squeezed)])
    how = {"rule": Rule.AMANPG, "gamma": gamma}
    expected = np.empty_like(S)
    for threads in ("1", "3"):
        sweep = open_sweep(M, "native")
        sweep.threads = int(threads)
        dense = sweep.sweep(U, S, expected, **how)
        swept, many = sweep.sweep_squeezed(U, squeezed, out, **how)
        for name in ("V", "G", "VVt", "l1", "dS"):
            np.testing.assert_allclose(getattr(swept, name), getattr(dense, name), rtol=1e-12, atol=1e-12)
        if np.count_nonzero(expected) > M.nnz // 2:
            assert many == -1
        elif gamma:  # a block of columns may have more non-zeros than there is room for
            found = np.empty_like(S)
            native.expand(out.bits, out.found[:many], found)
            assert np.array_equal(found, expected)


# ---------------------------------------------------------------------- sources


def assert_same(stored, M):
    assert stored.shape == M.shape
    assert np.array_equal(stored.indptr, M.indptr)
    assert np.array_equal(np.asarray(stored.side.rows), M.rows)
    assert np.array_equal(np.asarray(stored.values), M.values)
    T = M.T
    assert np.array_equal(np.asarray(stored.T.side.rows), T.rows)
    assert np.array_equal(np.asarray(stored.T.values), T.values)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_array_files_in_any_order(problem, tmp_path, order, dtype):
    X = np.asarray(problem.M.to_dense(), dtype=dtype, order=order)
    np.save(tmp_path / "x.npy", X)
    assert_same(StoredMatrix.build(tmp_path / "x.npy", tmp_path / "s", memory=SMALL), ls.ObservedMatrix.from_dense(X))


def test_arrays_in_chunks(problem, tmp_path):
    da = pytest.importorskip("dask.array", reason="needs the extra `dask`")
    X = da.from_array(problem.M.to_dense(), chunks=(100, 60))
    assert_same(StoredMatrix.build(X, tmp_path / "dask", memory=SMALL), problem.M)
    zarr = pytest.importorskip("zarr")
    Z = zarr.array(problem.M.to_dense(), chunks=(100, 60), store=str(tmp_path / "x.zarr"))
    assert_same(StoredMatrix.build(Z, tmp_path / "zarr", memory=SMALL), problem.M)


def test_records_in_any_order_and_several_files(problem, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    M = problem.M
    order = np.random.default_rng(6).permutation(M.nnz)
    i, j, x = M.rows[order], M.columns_of_entries()[order], M.values[order].copy()
    names = np.array([f"item {k:04}" for k in range(M.shape[1])])
    (tmp_path / "records").mkdir()
    for k, part in enumerate(np.array_split(np.arange(M.nnz), 3)):
        columns = {"user": 1000 + 7 * i[part].astype(np.int64), "item": names[j[part]], "stars": x[part]}
        pq.write_table(pa.table(columns), tmp_path / "records" / f"{k}.parquet")
    stored = StoredMatrix.build(
        tmp_path / "records", tmp_path / "s", row="user", col="item", value="stars", memory=SMALL
    )
    assert_same(stored, M)
    assert np.array_equal(np.load(tmp_path / "s" / "rows-labels.npy"), 1000 + 7 * np.arange(M.shape[0]))
    assert np.array_equal(np.load(tmp_path / "s" / "columns-labels.npy"), names)
    with pytest.raises(ValueError, match="no column 'film'; it has user, item, stars"):
        StoredMatrix.build(tmp_path / "records", tmp_path / "t", row="user", col="film", value="stars")


def test_blocks_side_by_side(problem, tmp_path):
    A = problem.M.to_scipy()
    paths = []
    for first, end in ((0, 100), (100, 101), (101, 250)):
        paths.append(tmp_path / f"{first}.npz")
        sparse.save_npz(paths[-1], sparse.csc_matrix(A[:, first:end]))
    assert_same(StoredMatrix.build(paths, tmp_path / "s", memory=SMALL), problem.M)


def test_a_store_is_used_again_if_the_source_is_the_same(problem, tmp_path):
    np.save(tmp_path / "x.npy", problem.M.to_dense())
    told = []
    build = lambda: StoredMatrix.build(tmp_path / "x.npy", tmp_path / "s", told=lambda *what: told.append(what))  # noqa: E731
    build()
    assert told
    told.clear()
    build()
    assert not told
    np.save(tmp_path / "x.npy", problem.M.to_dense() + 1)
    assert float(build().values.max()) == float(problem.M.values.max() + 1)


def test_sorting_in_many_buckets(tmp_path):
    rng = np.random.default_rng(8)
    A = sparse.random_array((500, 400), density=0.1, rng=rng, format="coo")
    i, j = (np.asarray(k, np.int32) for k in A.coords)
    chunks = [(i[k::5], j[k::5], A.data[k::5]) for k in range(5)]
    sort_into(tmp_path / "columns", A.shape, np.bincount(j, minlength=400), chunks, np.float64, memory=50_000)
    side = Side.open(tmp_path / "columns")
    assert len(side.blocks) > 5
    M = ls.ObservedMatrix.from_coo(i, j, A.data, A.shape)
    assert np.array_equal(np.asarray(side.rows), M.rows)
    assert np.array_equal(np.asarray(side.values), M.values)
    assert os.listdir(tmp_path) == ["columns"]


def test_an_entry_that_comes_twice_is_an_error(tmp_path):
    chunks = [
        (np.array([0, 1]), np.array([0, 3]), np.array([1.0, 2.0])),
        (np.array([1]), np.array([3]), np.array([2.0])),
    ]
    with pytest.raises(ValueError, match="duplicate"):
        sort_into(tmp_path / "columns", (2, 4), np.array([1, 0, 0, 2]), chunks, np.float64, memory=10**6)
    assert not (tmp_path / "columns").exists()


# ---------------------------------------------------------------------- damage


def damaged(stored, name, change):
    path = stored.folder / "columns" / name
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(bytes(content))


def test_a_damaged_block_is_named(problem, tmp_path):
    stored = StoredMatrix.build(problem.M, tmp_path, memory=SMALL)
    stored.side.verify()
    damaged(stored, "values.npy", lambda content: content.__setitem__(-5, content[-5] ^ 1))
    with pytest.raises(CorruptStoreError, match="columns 0 to 249 is not what was written; make it anew"):
        ls.solve(StoredMatrix(tmp_path), 2)


def test_a_store_that_is_cut_off_or_not_complete_is_not_taken(problem, tmp_path):
    stored = StoredMatrix.build(problem.M, tmp_path, memory=SMALL)
    damaged(stored, "values.npy", lambda content: content.__delitem__(slice(-800, None)))
    with pytest.raises(CorruptStoreError, match=r"values\.npy"):
        StoredMatrix(tmp_path)
    manifest = tmp_path / "columns" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 99}))
    with pytest.raises(CorruptStoreError, match="format 99; this version of lowsparse reads format 1"):
        StoredMatrix(tmp_path)
    manifest.unlink()
    with pytest.raises(CorruptStoreError, match="no matrix on disk"):
        StoredMatrix(tmp_path)


def test_an_interrupted_build_leaves_nothing(tmp_path):
    def chunks():
        yield np.array([0]), np.array([0]), np.array([1.0])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sort_into(tmp_path / "columns", (2, 2), np.array([1, 1]), chunks(), np.float64, memory=10**6)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("memory", ["much", "1.2.3GB", "12 bytes", -5, 1000])
def test_bad_sizes_of_memory_are_refused(memory):
    with pytest.raises(ValueError, match="memory must be"):
        bytes_of(memory)


# ---------------------------------------------------------------------- faults


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "amanpgc"])
@pytest.mark.parametrize("remembered", [0, 1 << 28])
def test_a_worker_that_dies_is_replaced_and_the_answer_is_the_same(problem, stored, method, remembered, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="needs the extra `dask`")
    monkeypatch.setattr("lowsparse.blocks.cluster.REMEMBERED", remembered)
    how = {"method": method, "max_iter": 25, "tol": 0}
    with (
        distributed.LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        processes = client.run(os.getpid)

        def kill_one(progress):
            if progress.iteration == 16:
                os.kill(next(iter(processes.values())), signal.SIGKILL)

        found = ls.solve(stored, 2, backend="dask", client=client, callback=kill_one, **how)
        assert set(client.run(os.getpid).values()) != set(processes.values())
        compare(ls.solve(problem.M, 2, **how), found)
        del found
        gc.collect()
        assert not list(stored.folder.glob(".kept-*"))
