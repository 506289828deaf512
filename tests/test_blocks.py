"""Matrices on disk: what they are made of, their entries in pieces, and that nothing damaged is taken for whole."""

import gc
import json
import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_equal
from scipy import sparse

import lowsparse as ls
from conftest import SMALL
from lowsparse.places import CorruptStoreError, StoredMatrix
from lowsparse.places.cluster import ClusterMatrix
from lowsparse.places.disk.build import sort_into
from lowsparse.places.disk.scratch import Scratch
from lowsparse.places.disk.store import Side
from lowsparse.places.pieces.outliers import parts_of
from lowsparse.support import sizes
from lowsparse.support.sizes import bytes_of
from lowsparse.sweeps import native

# ---------------------------------------------------------------------- entries in pieces


def test_entries_are_numbers_as_numpy_has_them(noisy, stored):
    x, e = noisy.M.values, stored.values
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
    assert np.array_equal(where.line_counts[0], np.bincount(noisy.M.rows[x > 2], minlength=300))


def test_outliers_come_in_parts_from_pieces_and_from_memory(noisy, stored):
    x, e = noisy.M.values, stored.values
    here = noisy.M.outliers(np.flatnonzero(x > 2), x[x > 2])
    there = stored.outliers(np.flatnonzero(e > 2), e)
    assert len(list(parts_of(there))) > len(list(parts_of(here))) == 1
    for one, other in zip(*(zip(*parts_of(S), strict=True) for S in (here, there)), strict=True):
        assert_equal(np.concatenate(other), np.concatenate(one))
    dense, chosen, n = here.toarray(), [7, 3, 7, -1], here.shape[1]
    assert_equal(there.columns(chosen).toarray(), dense[:, chosen])
    i, j = np.indices(dense.shape)
    assert_equal(there.at(i, j), dense)
    assert_equal(there.at(3, [n - 1, -1]), dense[3, [-1, -1]])
    assert there.at(5, 6).shape == ()
    nothing = stored.outliers(np.flatnonzero(e > 1e9), e)
    assert (nothing.at(0, [0, 1]).tolist(), nothing.columns(0).nnz) == ([0.0, 0.0], 0)


def test_the_median_is_exact_whatever_the_numbers(tmp_path):
    rng = np.random.default_rng(5)
    M = ls.ObservedMatrix.from_dense(rng.standard_normal((200, 101)))
    stored = StoredMatrix.build(M, tmp_path, memory=SMALL)
    for x in (np.full(M.nnz, -2.5), rng.standard_cauchy(M.nnz) ** 5, np.round(rng.standard_normal(M.nnz), 1)):
        held = stored.hold(stored.values)
        for piece in stored.pieces:
            stored.held[held.formula.name].write(piece.number, x[piece.entries])
        assert float(np.median(held)) == float(np.median(x))


def test_what_was_held_is_given_up_with_its_last_user(stored):
    held = stored.hold(2 * stored.values)
    name = held.formula.name
    more = np.abs(held)
    del held
    assert name in stored.held
    del more
    assert name not in stored.held


@pytest.mark.parametrize("on_cluster", [False, True])
def test_columns_are_taken_as_numpy_takes_them(noisy, stored, request, on_cluster):
    M = ClusterMatrix(stored, request.getfixturevalue("client")) if on_cluster else stored
    for which in ([3, 1], slice(2, 5), np.array([-1, 0])):
        expected = noisy.M.take_columns(np.arange(250)[which])
        assert_equal(M.take_columns(which).to_dense(), expected.to_dense())
    with pytest.raises(IndexError, match="250"):
        M.take_columns([250])
    with pytest.raises(TypeError, match=r"2 \* M\.values, and no ndarray"):
        M.with_values(np.ones(M.nnz))


def test_a_piece_without_entries_is_neither_the_smallest_nor_the_largest(tmp_path):
    X = np.full((40_000, 3), np.nan)
    X[:, 1] = X[:, 2] = np.arange(40_000.0)
    stored = StoredMatrix.build(ls.ObservedMatrix.from_dense(X), tmp_path, memory=2**20)
    assert stored.pieces[0].entries == slice(0, 0)
    assert (stored.values.min(), stored.values.max()) == (0.0, 39_999.0)
    high = stored.values[np.flatnonzero(stored.values > 39_000)]
    assert (high.min(), high.max()) == (39_001.0, 39_999.0)


@pytest.mark.parametrize("on_cluster", [False, True])
def test_other_values_are_the_values_wherever_they_are_asked_for(noisy, stored, request, on_cluster):
    M = ClusterMatrix(stored, request.getfixturevalue("client")) if on_cluster else stored
    expected = noisy.M.with_values(2 * noisy.M.values)
    changed = M.with_values(2 * M.values)
    turned = changed.T
    assert_equal(np.asarray(turned.values), expected.T.values)
    assert_equal(np.concatenate(list(changed.parts())), expected.values)
    assert changed.fingerprint() != M.fingerprint()
    if not on_cluster:
        assert_equal(np.asarray(changed.within(SMALL // 2).values), expected.values)
    del changed
    assert_equal(np.asarray(turned.T.values), expected.values)
    del turned
    gc.collect()
    assert not list(stored.folder.glob(".values-*"))


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
    assert (3 in scratch.nonzeros) == (share < 0.5)
    assert not list(tmp_path.iterdir())  # the file has no name


def test_a_matrix_on_disk_is_pickled_by_its_folder(noisy, stored):
    again = pickle.loads(pickle.dumps(stored.T))
    assert len(pickle.dumps(stored)) < 1000
    assert again.shape == stored.T.shape
    assert len(again.pieces) == len(stored.T.pieces)
    assert np.array_equal(np.asarray(again.values), np.asarray(stored.T.values))
    fleeting = ls.solve(noisy.M, 2, backend="outofcore", max_iter=2)
    for what in (fleeting, fleeting.M, stored.with_values(2 * stored.values)):
        with pytest.raises(TypeError, match="keep the folder"):
            pickle.dumps(what)


# ---------------------------------------------------------------------- sources


@pytest.fixture
def any_memory(monkeypatch):
    """However small, so that little data is read in several slabs."""
    monkeypatch.setattr(sizes, "LEAST", 1)


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
def test_array_files_in_any_order(noisy, tmp_path, order, dtype):
    X = np.asarray(noisy.M.to_dense(), dtype=dtype, order=order)
    np.save(tmp_path / "x.npy", X)
    assert_same(StoredMatrix.build(tmp_path / "x.npy", tmp_path / "s", memory=SMALL), ls.ObservedMatrix.from_dense(X))


def test_arrays_in_chunks(noisy, tmp_path):
    da = pytest.importorskip("dask.array", reason="needs the extra `dask`")
    X = da.from_array(noisy.M.to_dense(), chunks=(100, 60))
    assert_same(StoredMatrix.build(X, tmp_path / "dask", memory=SMALL), noisy.M)
    zarr = pytest.importorskip("zarr")
    Z = zarr.array(noisy.M.to_dense(), chunks=(100, 60), store=str(tmp_path / "x.zarr"))
    assert_same(StoredMatrix.build(Z, tmp_path / "zarr", memory=SMALL), noisy.M)


@pytest.mark.parametrize("chunks", [(70, 250), (300, 60), (90, 80)])
@pytest.mark.usefixtures("any_memory")
def test_each_chunk_of_a_dask_array_is_computed_once(noisy, tmp_path, chunks):
    da = pytest.importorskip("dask.array", reason="needs the extra `dask`")
    seen = []
    X = da.from_array(noisy.M.to_dense(), chunks=chunks)
    X = X.map_blocks(lambda block: seen.append(block.shape) or block, meta=np.empty((0, 0)))
    assert_same(StoredMatrix.build(X, tmp_path, memory=24 * 300 * 95), noisy.M)
    assert len(seen) == X.npartitions


def test_zarr_by_its_path(noisy, tmp_path):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(tmp_path / "g.zarr"), mode="w")
    array = zarr.open_array(str(tmp_path / "g.zarr" / "x"), mode="w", shape=(300, 250), chunks=(50, 250), dtype="f8")
    array[:] = noisy.M.to_dense()
    assert_same(StoredMatrix.build(tmp_path / "g.zarr" / "x", tmp_path / "a", memory=SMALL), noisy.M)
    assert_same(StoredMatrix.build(tmp_path / "g.zarr", tmp_path / "b", memory=SMALL), noisy.M)  # the only one
    array[0, 0] = 77.0  # what was made is not that any more
    assert 77.0 in np.asarray(StoredMatrix.build(tmp_path / "g.zarr", tmp_path / "b", memory=SMALL).values)
    zarr.open_array(str(tmp_path / "g.zarr" / "y"), mode="w", shape=(3, 2), chunks=(3, 2), dtype="f8")
    with pytest.raises(ValueError, match=r"2 arrays \(x, y\)"):
        StoredMatrix.build(tmp_path / "g.zarr", tmp_path / "c")
    assert len(group) == 2


@pytest.mark.usefixtures("any_memory")
def test_a_video_has_a_column_for_each_frame(tmp_path):
    frames = np.random.default_rng(1).integers(256, size=(40, 8, 6), dtype=np.uint8)
    np.save(tmp_path / "clip.npy", frames)
    from lowsparse.video import Frames

    progress = []
    film = Frames(tmp_path / "clip.npy", every=2)
    stored = StoredMatrix.build(
        film, tmp_path / "s", memory=24 * 48 * 3, on_progress=lambda *what: progress.append(what)
    )
    assert len(progress) > 5  # in slabs of a few frames
    expected = frames[::2].reshape(20, -1).T / np.float32(255)
    assert_same(stored, ls.ObservedMatrix.from_dense(expected))
    progress.clear()
    StoredMatrix.build(film, tmp_path / "s", on_progress=lambda *what: progress.append(what))
    assert not progress
    assert StoredMatrix.build(Frames(tmp_path / "clip.npy"), tmp_path / "s").shape == (48, 40)
    path = Path(ls.__file__).parent / "data" / "vtest.mp4"
    pytest.importorskip("av")
    assert StoredMatrix.build(Frames(path, stop=5, shrink=8), tmp_path / "v").shape[1] == 5


def test_records_in_any_order_and_several_files(noisy, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    M = noisy.M
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
    pq.write_table(pa.table({"user": [1007], "item": ["item 0003"], "stars": [1.0]}), tmp_path / "records" / "more.pq")
    pq.write_table(pa.table({"user": [1007], "item": ["item 0003"], "stars": [2.0]}), tmp_path / "records" / "last.pq")
    with pytest.raises(ValueError, match="user 1007 and item item 0003: aggregate"):
        StoredMatrix.build(tmp_path / "records", tmp_path / "t", row="user", col="item", value="stars", memory=SMALL)
    assert not (tmp_path / "t" / "columns").exists()
    with pytest.raises(ValueError, match=r"no column 'film'.*stars"):
        StoredMatrix.build(tmp_path / "records", tmp_path / "t", row="user", col="film", value="stars")


def test_blocks_side_by_side(noisy, tmp_path):
    A = noisy.M.to_scipy()
    paths = []
    for first, end in ((0, 100), (100, 101), (101, 250)):
        paths.append(tmp_path / f"{first}.npz")
        sparse.save_npz(paths[-1], sparse.csc_matrix(A[:, first:end]))
    assert_same(StoredMatrix.build(paths, tmp_path / "s", memory=SMALL), noisy.M)


def test_a_store_is_used_again_if_the_source_is_the_same(noisy, tmp_path):
    np.save(tmp_path / "x.npy", np.asfortranarray(noisy.M.to_dense()))
    progress = []

    def build():
        return StoredMatrix.build(tmp_path / "x.npy", tmp_path / "s", on_progress=lambda *what: progress.append(what))

    build()
    assert progress
    progress.clear()
    build()
    assert not progress
    assert np.array_equal(np.asarray(build().T.values), noisy.M.T.values)
    np.save(tmp_path / "x.npy", np.asfortranarray(noisy.M.to_dense() + 1))
    new = build()
    assert float(new.values.max()) == float(noisy.M.values.max() + 1)
    assert np.array_equal(np.asarray(new.T.values), noisy.M.T.values + 1)  # both sides


def test_an_array_in_memory_is_written_anew_each_time(noisy, tmp_path):
    X = noisy.M.to_dense()
    StoredMatrix.build(X, tmp_path)
    X[0] += 1
    assert_same(StoredMatrix.build(X, tmp_path), ls.ObservedMatrix.from_dense(X))


def test_sorting_in_many_buckets(tmp_path):
    rng = np.random.default_rng(8)
    A = sparse.coo_array(np.where(rng.random((500, 400)) < 0.1, rng.random((500, 400)), 0.0))
    i, j = (np.asarray(k, np.int32) for k in (A.row, A.col))
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


def test_what_a_matrix_in_memory_is_made_of_is_a_source(noisy, tmp_path):
    X = noisy.M.to_dense()
    masked = np.ma.MaskedArray(np.nan_to_num(X, nan=7.0), np.isnan(X))
    for k, source in enumerate((noisy.M.to_scipy(), X.tolist(), masked)):
        assert_same(StoredMatrix.build(source, tmp_path / str(k), memory=SMALL), noisy.M)


# ---------------------------------------------------------------------- damage


def test_what_is_no_part_of_a_matrix_is_not_removed(noisy, tmp_path):
    (tmp_path / "s" / "columns").mkdir(parents=True)
    (tmp_path / "s" / "columns" / "mine.txt").write_text("not to be lost")
    with pytest.raises(FileExistsError, match=r"holds mine\.txt"):
        StoredMatrix.build(noisy.M, tmp_path / "s")
    with pytest.raises(NotADirectoryError, match=r"is a folder, and .*mine\.txt"):
        StoredMatrix.build(noisy.M, tmp_path / "s" / "columns" / "mine.txt")
    assert (tmp_path / "s" / "columns" / "mine.txt").read_text() == "not to be lost"


def damaged(stored, name, change):
    path = stored.folder / "columns" / name
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(bytes(content))


def test_a_damaged_block_is_named(noisy, tmp_path, client):
    stored = StoredMatrix.build(noisy.M, tmp_path, memory=SMALL)
    stored.side.verify()
    damaged(stored, "values.npy", lambda content: content.__setitem__(-5, content[-5] ^ 1))
    with pytest.raises(CorruptStoreError, match="0 to 249 is not what was written; remove it"):
        ls.solve(StoredMatrix(tmp_path), 2)
    where = f"{tmp_path / 'columns'} is damaged: the block of the columns 0 to 249"
    for ask in (lambda M: M.values.max(), lambda M: M.take_columns(np.array([3])), lambda M: next(M.values.parts())):
        with pytest.raises(CorruptStoreError, match=where):
            ask(StoredMatrix(tmp_path))
    with pytest.raises(CorruptStoreError, match=where):
        ls.solve(StoredMatrix(tmp_path), 2, client=client)


def test_one_header_is_read_at_a_time(stored, monkeypatch):
    reading, most, load = [0], [0], np.load

    def watched(*args, **options):
        reading[0] += 1
        most[0] = max(most[0], reading[0])
        time.sleep(1e-3)  # other threads may go on
        reading[0] -= 1
        return load(*args, **options)

    monkeypatch.setattr(np, "load", watched)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: Side.open(stored.folder / "columns"), range(16)))
    assert most == [1]


def test_a_store_that_is_cut_off_or_not_complete_is_not_taken(noisy, tmp_path):
    stored = StoredMatrix.build(noisy.M, tmp_path, memory=SMALL)
    damaged(stored, "values.npy", lambda content: content.__delitem__(slice(-800, None)))
    with pytest.raises(CorruptStoreError, match=r"values\.npy"):
        StoredMatrix(tmp_path)
    manifest = tmp_path / "columns" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 99}))
    with pytest.raises(CorruptStoreError, match=r"format 99; .* reads format 1"):
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


class Stopping:
    """An array in chunks that is interrupted when half of it has been read."""

    def __init__(self, X, chunks):
        self.X, self.chunks, self.shape, self.dtype, self.ndim = X, chunks, X.shape, X.dtype, 2

    def __getitem__(self, part):
        rows, columns = part if isinstance(part, tuple) else (part, slice(None))
        if (rows.stop or 0) > 150 or (columns.stop or 0) > 125:
            raise KeyboardInterrupt
        return self.X[rows, columns]


@pytest.mark.parametrize("chunks", [(30, 250), (300, 25)])
def test_an_interrupted_reading_leaves_what_cannot_be_taken_for_whole(noisy, tmp_path, chunks):
    with pytest.raises(KeyboardInterrupt):
        StoredMatrix.build(Stopping(noisy.M.to_dense(), chunks), tmp_path / "s", memory=10**6)
    assert not os.listdir(tmp_path)


def test_what_cannot_be_a_source_says_what_can(tmp_path):
    for source, line in [
        (3.0, "cannot be built from float"),
        ([], "cannot be built from list"),
        (tmp_path, "there is no .parquet file in the folder"),
        (tmp_path / "no", "there is no file or folder .*no: check the path"),
        (np.ones((2, 2, 2)), "cannot be built from ndarray"),
        (np.ones((2, 2), complex), "only real data can be solved"),
        (np.array([["a", "b"]]), "convert it to real numbers first"),
        (["x.npy"], r"x\.npy is no \.npz file"),
    ]:
        with pytest.raises((TypeError, ValueError, FileNotFoundError), match=line):
            StoredMatrix.build(source, tmp_path / "deep" / "s")
        assert not os.listdir(tmp_path)
    np.savez(tmp_path / "x.npz", a=np.ones(3))
    with pytest.raises(ValueError, match=r"x\.npz is no sparse matrix"):
        StoredMatrix.build([tmp_path / "x.npz"], tmp_path / "s")
    np.save(tmp_path / "x.npy", np.array([[1.0, np.inf]]))
    with pytest.raises(ValueError, match="among the columns 0 to 1"):
        StoredMatrix.build(tmp_path / "x.npy", tmp_path / "s")
    with pytest.raises(ValueError, match="leave row, col and value out"):
        StoredMatrix.build(tmp_path / "x.npy", tmp_path / "s", row="a", col="b", value="c")


@pytest.mark.parametrize("memory", ["much", "1.2.3GB", "12 bytes", "1iB", "", -5, 1000, np.nan, True, [1]])
def test_bad_sizes_of_memory_are_refused(noisy, tmp_path, memory):
    for ask in (bytes_of, lambda memory: StoredMatrix.build(noisy.M, tmp_path, memory=memory)):
        with pytest.raises(ValueError, match="memory must be"):
            ask(memory)
    assert not os.listdir(tmp_path)
    assert bytes_of("1MB") == bytes_of(1e6) == 10**6
