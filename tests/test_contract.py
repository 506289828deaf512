"""The contract for data, met by all five kinds: in memory, on a GPU, streamed to a GPU, on disk and on a cluster.

The GPU is a fake one (see fake_gpu.py), and a real one in the runs marked `gpu`.
"""

import numpy as np
import pytest

import fake_gpu
import lowsparse as ls
from lowsparse.entries.protocol import PartialMatrix, Resident
from lowsparse.entries.statistics import by_columns, column_medians, column_sums, row_sums
from lowsparse.linalg.arrays import host
from lowsparse.places.decide import Place, available, choose_place

SMALL = 2**20  # bytes, in which `noisy` is in several pieces
KINDS = ["memory", "gpu", "stream", "disk", "cluster"]
KINDS += [pytest.param(f"real {kind}", marks=pytest.mark.gpu) for kind in ("gpu", "stream")]


@pytest.fixture(params=KINDS)
def kind(request, monkeypatch):
    real, name = request.param.startswith("real"), request.param.rpartition(" ")[2]
    if real and available()["cuda"] is not None:
        pytest.skip(available()["cuda"])
    if name in ("gpu", "stream") and not real:
        fake_gpu.install(monkeypatch)
    return name


@pytest.fixture
def there(request, kind, noisy):
    """`noisy` at a place."""
    options = {
        "memory": {"backend": "numpy"},
        "gpu": {"backend": "cuda"},
        "stream": {"backend": "cuda", "memory": SMALL},
        "disk": {"backend": "outofcore", "memory": SMALL},
        "cluster": {"backend": "dask", "memory": SMALL},
    }[kind]
    if kind == "cluster":
        options["client"] = request.getfixturevalue("client")
    return choose_place(noisy.M, **options).place()


def numbers(there, found):
    """Numbers per entry as an array of NumPy."""
    return np.asarray(found) if there.in_pieces else host(found)


def members(contract):
    """What a contract asks for."""
    return {name for name in dir(contract) if not name.startswith("_")}


def test_every_member_is_there(there):
    assert members(PartialMatrix) <= set(dir(there))
    assert len(members(PartialMatrix)) > 25
    part = there.take_columns(np.arange(3))
    assert members(Resident) <= set(dir(part))


def test_what_is_known_of_it(there, noisy, kind):
    M = noisy.M
    assert (there.shape, there.nnz, there.dtype, there.density) == (M.shape, M.nnz, M.dtype, M.density)
    assert (there.on_gpu, there.in_pieces) == (kind == "gpu", kind not in ("memory", "gpu"))
    np.testing.assert_array_equal(there.column_counts, M.column_counts)
    np.testing.assert_array_equal(there.row_counts, M.row_counts)
    np.testing.assert_array_equal(numbers(there, there.values), M.values)
    np.testing.assert_array_equal(np.concatenate([host(part) for part in there.parts()]), M.values)
    assert there.median_magnitude() == pytest.approx(M.median_magnitude(), rel=1e-12)
    assert there.magnitudes(clip=1.0) == pytest.approx(M.magnitudes(clip=1.0), rel=1e-12)
    assert there.largest_part > 0
    assert there.fingerprint() == there.fingerprint()
    assert there.check_rank(2) == 2
    with pytest.raises(ValueError, match="choose 1 to"):
        there.check_rank(10**6)


def test_other_forms_of_it(there, noisy):
    M = noisy.M
    np.testing.assert_array_equal(there.to_host().to_dense(), M.to_dense())
    np.testing.assert_array_equal(there.T.to_host().to_dense(), M.T.to_dense())
    which = np.array([5, 2, 9])
    part = there.take_columns(which)
    np.testing.assert_array_equal(part.to_host().to_dense(), M.take_columns(which).to_dense())
    rows = np.array([0, 3, 7, 20])
    np.testing.assert_array_equal(part.take_rows(rows).to_host().to_dense(), part.to_host().to_dense()[rows])
    sample = there.sample(500)
    assert 400 <= sample.nnz <= 1000
    assert np.isin(host(sample.values), M.values).all()
    for other in (there.with_values(2 * there.values), there.with_stored_values(2 * there.values)):
        np.testing.assert_array_equal(numbers(other, other.values), 2 * M.values)
        np.testing.assert_array_equal(other.T.to_host().to_dense(), 2 * M.T.to_dense())
        assert other.fingerprint() != there.fingerprint()
    assert there.to_host_if_small().shape == M.shape


def test_entries_are_held_out(there):
    part = there.take_columns(np.arange(40))
    held = np.array([0, 5, part.nnz - 1])
    rest, out = part.split(held)
    here = part.to_host()
    np.testing.assert_array_equal(out.values, here.values[held])
    np.testing.assert_array_equal(out.rows, here.rows[held])
    np.testing.assert_array_equal(out.columns, here.columns_of_entries()[held])
    assert rest.nnz == part.nnz - 3


def test_numbers_per_entry(there, noisy):
    M = noisy.M
    m, n = M.shape
    kept = there.hold(np.abs(there.values))
    np.testing.assert_array_equal(numbers(there, kept), np.abs(M.values))
    for spread, lines, per_line in (
        (there.spread_over_columns, M.columns_of_entries(), np.arange(float(n))),
        (there.spread_over_rows, M.rows, np.arange(float(m))),
    ):
        np.testing.assert_array_equal(numbers(there, spread(per_line)), per_line[lines])
    (by_column,), (by_row,) = there.reduce("|", column_sums, kept), there.reduce("+", row_sums, kept)
    np.testing.assert_allclose(by_column, np.bincount(M.columns_of_entries(), np.abs(M.values), n), rtol=1e-12)
    np.testing.assert_allclose(by_row, np.bincount(M.rows, np.abs(M.values), m), rtol=1e-12)
    np.testing.assert_array_equal(by_columns(there, column_medians), column_medians(M))
    flagged = np.flatnonzero(np.abs(there.values) > 5)
    for found, expected in zip(
        there.count_lines(flagged), M.count_lines(np.flatnonzero(np.abs(M.values) > 5)), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_its_sweep_is_the_oracles(there, noisy):
    U, V = noisy.L.U, np.ascontiguousarray(noisy.L.V.T)
    sweep = there.open_sweep()
    assert sweep.host in ("auto", "native", "numpy")
    at = (fake_gpu.asarray if type(there.values).__module__ == "cupy" else np.asarray) if there.on_gpu else np.asarray
    if there.on_gpu and available()["cuda"] is None and not isinstance(there.values, fake_gpu.ndarray):
        at = pytest.importorskip("cupy").asarray
    found = numbers(there, sweep.residual(at(U), at(V)))
    np.testing.assert_allclose(found, noisy.M.open_sweep("numpy").residual(U, V), atol=1e-10)


def test_the_end_of_a_solve(there, noisy):
    M = noisy.M
    with there.with_room_for(2).solving(placed=False):
        flagged = np.flatnonzero(np.abs(there.values) > 5)
        data, L, places, S = there.recovered(noisy.L, flagged, there.values[flagged])
    assert S.shape == M.shape
    assert S.nnz == np.count_nonzero(np.abs(M.values) > 5)
    dense = (S if hasattr(S, "toarray") else S.to_scipy()).toarray()
    expected = np.where(np.abs(M.to_dense(0.0)) > 5, M.to_dense(0.0), 0.0)
    np.testing.assert_array_equal(dense, expected)
    np.testing.assert_allclose(np.asarray(L.V), noisy.L.V)
    assert data.shape == M.shape
    assert sum(data.count_lines(places)[0]) == S.nnz


@pytest.mark.parametrize("bad", [{"max_iter": 0}, {"tol": -1.0}, {"max_time": 0}, {"callback": 3}, {"rank": 1000}])
@pytest.mark.parametrize("backend", ["outofcore", "dask", "cuda"])
def test_a_bad_argument_is_found_before_anything_is_placed(monkeypatch, noisy, backend, bad):
    from lowsparse.places.decide import Placement

    fake_gpu.install(monkeypatch)
    monkeypatch.setattr(Placement, "place", lambda self: pytest.fail("the data were placed"))
    with pytest.raises((ValueError, TypeError)):
        ls.solve(noisy.M, **{"rank": 2, "backend": backend, **bad})


def test_a_method_that_cannot_run_there_is_refused_before_anything_is_placed(monkeypatch, noisy):
    from lowsparse.places.decide import Placement

    monkeypatch.setattr(Placement, "place", lambda self: pytest.fail("the data were placed"))
    with pytest.raises(ValueError, match=r"hq needs the data in memory; .*amanpg, "):
        ls.solve(noisy.M, 2, method="hq", backend="outofcore")


def test_the_place_is_chosen_by_backend_size_and_data(monkeypatch, noisy, tmp_path):
    M = noisy.M
    assert choose_place(M).where is Place.MEMORY
    assert choose_place(M, "outofcore").where is Place.DISK
    assert choose_place(M, "dask").where is Place.CLUSTER
    np.save(tmp_path / "x.npy", M.to_dense())
    assert choose_place(tmp_path / "x.npy").where is Place.DISK
    for backend, where in (("outofcore", Place.DISK), ("dask", Place.CLUSTER), ("numpy", Place.MEMORY)):
        monkeypatch.setenv("LOWSPARSE_BACKEND", backend)
        assert choose_place(M).where is where
    monkeypatch.delenv("LOWSPARSE_BACKEND")
    fake_gpu.install(monkeypatch)
    assert choose_place(M, "cuda").where is Place.GPU
    assert choose_place(M, "cuda", memory=SMALL).where is Place.GPU_STREAM
    with pytest.raises(ValueError, match="memory is for backend='outofcore'"):
        choose_place(M, memory=SMALL)


@pytest.mark.parametrize("stop", ["callback", "max_time"])
def test_a_rank_that_is_chosen_for_another_method_takes_part_in_the_limits(stop):
    problem = ls.datasets.synthetic(80, 70, rank=2, density=0.7, outliers=0.1, random_state=3)
    seen = []

    def watch(progress):
        seen.append(progress.iteration)
        return stop == "callback"

    limit = 1e-6 if stop == "max_time" else None
    result = ls.solve(problem.M, "auto", method="amanpgc", callback=watch, max_time=limit)
    assert result.status.value == ("max_time" if stop == "max_time" else "stopped_by_callback")
    assert len(seen) <= 1
    assert "while the default method was choosing the rank" in result.message


def test_a_rank_that_was_being_chosen_on_a_gpu_comes_back_as_it_was_given(monkeypatch, noisy):
    fake_gpu.install(monkeypatch)
    result = ls.solve(noisy.M, "auto", method="amanpgc", backend="cuda", callback=lambda progress: True)
    assert result.status.value == "stopped_by_callback"
    assert isinstance(result.L.U, np.ndarray)
    assert result.M.shape == noisy.M.shape
    assert not result.M.on_gpu


def test_a_stream_runs_on_the_processor_and_says_so():
    with pytest.raises(ValueError, match="cuda"):
        ls.StreamingRobustPCA(2, backend="cuda").partial_fit(np.ones((20, 5)))


def test_the_path_of_a_table_is_solved(noisy, tmp_path):
    X = noisy.M.to_dense()
    lines = [",".join("" if np.isnan(x) else repr(float(x)) for x in row) for row in X]
    path = tmp_path / "table.csv"
    path.write_text("\n".join([",".join(f"c{j}" for j in range(X.shape[1])), *lines]))
    assert choose_place(path).where is Place.MEMORY
    found, expected = ls.solve(path, 2, backend="numpy", max_iter=5), ls.solve(X, 2, backend="numpy", max_iter=5)
    np.testing.assert_array_equal(found.L.to_dense(), expected.L.to_dense())
