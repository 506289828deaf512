"""Data that pass through a GPU in pieces: the same answers, two pieces at a time, and nothing left behind.

The GPU is fake_gpu (see fake_gpu.py), but in the tests marked `gpu`.
"""

import gc

import numpy as np
import pytest

import fake_gpu
import lowsparse as ls
from lowsparse.places import StoredMatrix
from lowsparse.places.decide import available, choose_place
from lowsparse.places.gpu import streamed
from lowsparse.places.gpu.matrix import DeviceMatrix
from lowsparse.places.gpu.streamed import WORK, StreamedMatrix
from lowsparse.sweeps import Proximal, Robust, Rule

METHODS = ["amanpg", "amanpgc", "irls", "ladder", "lmafit", "manpg", "manpgc", "rmc", "subgm"]
SMALL = 2**20  # bytes, in which `noisy` is in several pieces


@pytest.fixture
def there(monkeypatch):
    monkeypatch.setattr(streamed, "MIN_LOCKED", 0)
    return fake_gpu.install(monkeypatch)


@pytest.fixture
def gpu():
    if available()["cuda"] is not None:
        pytest.skip(available()["cuda"])
    return pytest.importorskip("cupy")


def compare(found, expected, tol=1e-10):
    assert found.backend == "cuda"
    assert found.n_iter == expected.n_iter
    assert found.status is expected.status
    assert found.L.error(expected.L, relative=True) < tol
    np.testing.assert_array_equal(found.flagged, expected.flagged)
    assert abs(found.S - expected.S).max() < 1e-8
    assert found.notes == expected.notes


# ---------------------------------------------------------------------- the same answers


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_same_in_pieces(there, noisy, method):
    options = {"method": method, "max_iter": 10}
    found = ls.solve(noisy.M, 2, backend="cuda", memory=SMALL, **options)
    compare(found, ls.solve(noisy.M, 2, backend="numpy", **options))
    assert found.M is noisy.M
    assert isinstance(found.L.U, np.ndarray)


def test_wild_entries_and_the_rank_are_no_obstacle(there, noisy):
    x = noisy.M.values.copy()
    x[::501] = 1e9
    M = noisy.M.with_values(x)
    for method in ("ladder", "amanpgc", "irls"):  # these start from clipped values, a formula
        options = {"method": method, "max_iter": 5}
        compare(ls.solve(M, 2, backend="cuda", memory=SMALL, **options), ls.solve(M, 2, backend="numpy", **options))
    assert ls.solve(noisy.M, "auto", backend="cuda", memory=SMALL).L.rank == 2
    assert ls.solve(noisy.M, "auto", method="irls", backend="cuda", memory=SMALL, max_iter=3).L.rank == 2


@pytest.mark.parametrize("as_path", [False, True])
def test_what_is_on_disk_passes_through_too(there, noisy, stored, as_path):
    found = ls.solve(stored.folder if as_path else stored, 2, backend="cuda", memory=SMALL)
    expected = ls.solve(noisy.M, 2)
    assert found.backend == "cuda"
    assert found.L.error(expected.L, relative=True) < 1e-10
    assert abs(found.S.to_scipy() - expected.S).max() < 1e-10
    i, j = noisy.M.rows[expected.flagged[0]], noisy.M.columns_of_entries()[expected.flagged[0]]
    assert found.S.at(i, j) == pytest.approx(expected.S[i, j])
    assert found.diagnostics.advice == expected.diagnostics.advice
    np.testing.assert_array_equal(found.is_outlier, expected.is_outlier)
    assert fake_gpu.ColumnSweep.swept > noisy.M.nnz


def test_an_array_on_disk_is_put_there_first(there, noisy, tmp_path):
    np.save(tmp_path / "x.npy", noisy.M.to_dense())
    found = ls.solve(tmp_path / "x.npy", 2, backend="cuda", memory=SMALL)
    assert found.L.error(ls.solve(noisy.M, 2).L, relative=True) < 1e-10


@pytest.mark.parametrize("method", ["ladder", "amanpgc", "lmafit"])
def test_it_goes_on_from_a_checkpoint_to_the_same_bits(there, noisy, tmp_path, method):
    options = {"method": method, "tol": 0, "max_iter": 9, "backend": "cuda", "memory": SMALL}
    whole = ls.solve(noisy.M, 2, **options)
    ls.solve(noisy.M, 2, callback=lambda p: p.iteration == 4, checkpoint=tmp_path / "at.npz", **options)
    resumed = ls.solve(noisy.M, 2, resume=tmp_path / "at.npz", **options)
    assert resumed.L.U.tobytes() == whole.L.U.tobytes()
    assert resumed.L.V.tobytes() == whole.L.V.tobytes()


def test_an_estimator_passes_the_memory_on(there, noisy, monkeypatch):
    pytest.importorskip("sklearn")
    X, seen, cut = noisy.M.to_dense(), [], StreamedMatrix._split
    monkeypatch.setattr(StreamedMatrix, "_split", lambda self: seen.append(self.memory) or cut(self))
    found, expected = (ls.RobustPCA(2, **options).fit(X) for options in ({"backend": "cuda", "memory": SMALL}, {}))
    assert set(seen) == {SMALL}
    np.testing.assert_allclose(abs(found.components_), abs(expected.components_), atol=1e-8)


# ---------------------------------------------------------------------- what is where, and when


def test_small_data_stay_on_the_gpu_and_large_ones_do_not(there, noisy):
    enough = WORK * noisy.M.nnz
    for memory, kind in ((enough, DeviceMatrix), (enough - 1, StreamedMatrix), (None, DeviceMatrix)):
        assert type(choose_place(noisy.M, "cuda", memory=memory).place()) is kind


def test_two_pieces_are_there_at_a_time(there, noisy, monkeypatch):
    M = StreamedMatrix(noisy.M, SMALL)
    most = SMALL // WORK
    assert len(M.pieces) > 3
    assert max(piece.entries.stop - piece.entries.start for piece in M.pieces) <= most + noisy.M.column_counts.max()
    made = []
    monkeypatch.setattr(there, "empty", lambda *args: made.append(fake_gpu.ndarray(np.empty(*args))) or made[-1])
    for _ in M.parts():
        pass
    assert len(made) == 4  # the rows and the values of two
    assert sum(part.nbytes for part in made) <= 2 * 12 * (most + noisy.M.column_counts.max())


def test_memory_is_locked_while_it_is_used(there, noisy):
    M = StreamedMatrix(noisy.M, SMALL)
    assert {noisy.M.rows.ctypes.data, noisy.M.values.ctypes.data} == there.locked
    held = M.hold(M.values * 2)
    assert len(there.locked) == 3
    np.testing.assert_array_equal(np.asarray(held), 2 * noisy.M.values)
    del held
    assert len(there.locked) == 2
    del M
    assert not there.locked
    ls.solve(noisy.M, 2, method="irls", backend="cuda", memory=SMALL, max_iter=2)
    gc.collect()
    assert not there.locked


def test_small_arrays_share_their_pages_and_are_not_locked(there, noisy, monkeypatch):
    monkeypatch.setattr(streamed, "MIN_LOCKED", noisy.M.values.nbytes)
    M = StreamedMatrix(noisy.M, SMALL)
    assert there.locked == {noisy.M.values.ctypes.data}
    assert len(M.pieces) > 1


def test_where_memory_cannot_be_locked_it_is_copied_as_it_is(there, noisy, monkeypatch):
    def refused(*_):
        raise RuntimeError("cudaErrorMemoryAllocation: out of memory")

    monkeypatch.setattr(there.cuda.runtime, "hostRegister", refused)
    compare(ls.solve(noisy.M, 2, backend="cuda", memory=SMALL), ls.solve(noisy.M, 2))


def test_two_passes_at_a_time_do_not_disturb_each_other(there, noisy):
    M = StreamedMatrix(noisy.M, SMALL)
    outer = []
    for part in M.parts():
        assert np.abs(M.values).max() == np.abs(noisy.M.values).max()
        outer.append(part.get())
    np.testing.assert_array_equal(np.concatenate(outer), noisy.M.values)


@pytest.mark.parametrize("on_disk", [False, True])
def test_values_by_a_formula_of_a_formula(there, noisy, stored, on_disk):
    M = StreamedMatrix(stored if on_disk else noisy.M, SMALL)
    assert M.T.shape == (250, 300)  # which what is made of M must not take for its own
    halved = M.with_values(M.values / 2)
    again = halved.with_values(np.clip(halved.values, -0.1, 0.1))
    np.testing.assert_array_equal(np.asarray(again.values), np.clip(noisy.M.values / 2, -0.1, 0.1))
    Q = np.random.default_rng(5).standard_normal((300, 2))
    expected = noisy.M.with_values(np.asarray(again.values)).open_sweep().gram_product(Q)
    np.testing.assert_allclose(again.open_sweep().gram_product(Q), expected, atol=1e-10)
    new = noisy.M.with_values(np.asarray(again.values))
    assert again.take_columns(np.array([7, 0])).to_dense()[:, 0] == pytest.approx(new.to_dense()[:, 7], nan_ok=True)
    np.testing.assert_array_equal(np.asarray(again.T.values), new.T.values)
    assert again.fingerprint() != M.fingerprint()


# ---------------------------------------------------------------------- what is refused


def test_what_cannot_be_says_so(there, noisy):
    with pytest.raises(ValueError, match="pcp does not run on a GPU"):
        ls.solve(noisy.M, None, method="pcp", backend="cuda", memory=SMALL)
    with pytest.raises(ValueError, match="memory is for data"):
        ls.solve(DeviceMatrix.from_host(noisy.M), 2, memory=SMALL)


def test_too_little_memory_names_the_way_out(there, noisy, monkeypatch):
    def full(self, *_, **__):
        raise fake_gpu.OutOfMemoryError("out of memory")

    monkeypatch.setattr(fake_gpu.ColumnSweep, "__getattr__", full)
    monkeypatch.setattr(there.cuda.runtime, "memGetInfo", lambda: (9 * 10**9, 10**10))
    with pytest.raises(MemoryError, match=r"needs about .* 9 of 10 GB are free.*memory='4GB'"):
        ls.solve(noisy.M, 2, method="amanpgc", backend="cuda")


# ---------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_same_there(gpu, noisy, method):
    options = {"method": method, "max_iter": 10}
    found = ls.solve(noisy.M, 2, backend="cuda", memory=SMALL, **options)
    compare(found, ls.solve(noisy.M, 2, **options), tol=1e-9)
    again = ls.solve(noisy.M, 2, backend="cuda", memory=SMALL, **options)
    assert again.L.U.tobytes() == found.L.U.tobytes()
    assert again.L.V.tobytes() == found.L.V.tobytes()


@pytest.mark.gpu
def test_what_is_on_disk_passes_through_there(gpu, noisy, tmp_path):
    stored = StoredMatrix.build(noisy.M, tmp_path, memory=SMALL)
    found, expected = ls.solve(stored, 2, backend="cuda", memory=SMALL), ls.solve(noisy.M, 2)
    assert found.L.error(expected.L, relative=True) < 1e-9
    assert abs(found.S.to_scipy() - expected.S).max() < 1e-8


@pytest.mark.gpu
@pytest.mark.parametrize("rank", [2, 12])
def test_a_sweep_in_pieces_is_the_sweep_of_all(gpu, noisy, rank):
    M, inside = noisy.M, noisy.M.open_sweep()
    pieces = StreamedMatrix(M, SMALL).open_sweep()
    U = np.linalg.qr(np.random.default_rng(4).standard_normal((300, rank)))[0]
    fits = [sweep.regress(U, None, Robust(c=0.1, first_c=5.0, n_reweight=5, unit=1.0)) for sweep in (pieces, inside)]
    np.testing.assert_allclose(fits[0].V, fits[1].V, atol=1e-9)
    zeros, out = pieces.M.hold(np.zeros_like(pieces.M.values)), pieces.M.hold(np.zeros_like(pieces.M.values))
    for t_S in (1.0, 0.5):  # S is computed again for the gradient, or read
        own = np.empty(M.nnz)
        expected = inside.sweep(U, np.zeros(M.nnz), own, Proximal(Rule.AMANPG, gamma=0.1, t_S=t_S))
        found = pieces.sweep(U, zeros, out, Proximal(Rule.AMANPG, gamma=0.1, t_S=t_S))
        np.testing.assert_allclose(found.V, expected.V, atol=1e-10)
        np.testing.assert_allclose(found.G, expected.G, atol=1e-9)
        np.testing.assert_allclose(np.asarray(out), own, atol=1e-10)
        assert found.smooth_out == pytest.approx(expected.smooth_out, rel=1e-10)


@pytest.mark.gpu
def test_the_memory_there_is_bounded(gpu):
    problem = ls.datasets.synthetic(3000, 3000, rank=3, density=0.3, outliers=0.1, noise=0.01, random_state=1)
    pool = gpu.get_default_memory_pool()
    memory = 64 * 10**6  # of 2.7 million entries, which would take 350 MB
    gc.collect()
    gc.disable()  # nothing waits for it to give memory back
    try:
        for method in ("ladder", "amanpgc", "irls"):
            pool.free_all_blocks()
            before = pool.total_bytes()
            ls.solve(problem.M, 3, method=method, backend="cuda", memory=memory, max_iter=3)
            assert pool.total_bytes() - before <= 1.5 * memory  # and the factors
    finally:
        gc.enable()
