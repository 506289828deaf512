"""`backend="cuda"`: what it says where it cannot run, how work is dealt out, and on a GPU: the same answers.

The sweep itself is tested with those of the other backends, in test_sweeps.py.
"""

import gc
import json
import sys
import types
import weakref
from importlib import resources

import numpy as np
import pytest

import fake_gpu
import lowsparse as ls
from conftest import ANYWHERE, orthonormal, robust_problem, slow_decay
from lowsparse.entries.frames import Frame
from lowsparse.entries.pictures import Picture
from lowsparse.linalg.grassmann import retract
from lowsparse.places import decide as placing
from lowsparse.places.decide import available
from lowsparse.places.gpu import launch, lines, matrix
from lowsparse.places.gpu import sweep as cuda
from lowsparse.places.gpu.launch import reason_unavailable
from lowsparse.places.gpu.matrix import DeviceMatrix, Positions
from lowsparse.places.gpu.sweep import ColumnSweep
from lowsparse.sweeps import Proximal, Robust, Rule
from lowsparse.video import learn, separate_video


@pytest.fixture
def afresh():
    """What is known about CuPy is forgotten before and after."""
    reason_unavailable.cache_clear()
    yield
    reason_unavailable.cache_clear()


@pytest.fixture
def gpu():
    if available()["cuda"] is not None:
        pytest.skip(available()["cuda"])
    return pytest.importorskip("cupy")


def answering(monkeypatch, count):
    """A CuPy whose driver answers as `count` does."""
    fake = types.ModuleType("cupy")
    fake.__spec__ = types.SimpleNamespace()
    device = types.SimpleNamespace(compute_capability="35")
    fake.cuda = types.SimpleNamespace(runtime=types.SimpleNamespace(getDeviceCount=count), Device=lambda: device)
    monkeypatch.setitem(sys.modules, "cupy", fake)


# ---------------------------------------------------------------------- where it cannot run


def test_without_cupy_the_error_says_what_to_install(monkeypatch, afresh):
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    with pytest.raises(
        RuntimeError, match=r"^backend 'cuda' cannot run here: CuPy is not installed: .*gpu-cuda13[^\n]*$"
    ):
        ls.solve(np.ones((5, 4)), rank=1, backend="cuda")


def no_driver():
    raise OSError("the driver\nis too old")


@pytest.mark.parametrize(
    ("count", "said"),
    [(lambda: 0, "there is no CUDA GPU"), (no_driver, "the driver is too old"), (lambda: 1, "compute capability 3.5")],
)
def test_without_a_gpu_the_error_is_one_line(monkeypatch, afresh, count, said):
    answering(monkeypatch, count)
    with pytest.raises(RuntimeError, match=f"^backend 'cuda' cannot run here: [^\n]*{said}[^\n]*$"):
        ls.solve(np.ones((5, 4)), rank=1, backend="cuda")


def test_the_environment_asks_as_the_argument_does(monkeypatch, afresh):
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    monkeypatch.setenv("LOWSPARSE_BACKEND", "cuda")
    with pytest.raises(RuntimeError, match="CuPy is not installed"):
        ls.solve(np.ones((5, 4)), rank=1)


@pytest.mark.parametrize("more", [[], ["--stream"]])
def test_a_video_is_not_decoded_for_nothing(monkeypatch, afresh, command, tmp_path, more):
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    monkeypatch.setattr("lowsparse.video.separation.Frames", None)  # not even opened
    monkeypatch.chdir(tmp_path)
    code, said, errors = command("video", "street.mp4", "--backend", "cuda", *more)
    assert (code, said) == (1, "")
    assert "backend 'cuda' cannot run here: CuPy is not installed" in errors
    assert len(errors.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_kernels_come_with_the_package():
    folder = resources.files("lowsparse.places.gpu") / "kernels"
    assert {path.name for path in folder.iterdir()} == {f"{name}.cuh" for name in launch.SOURCES}
    assert "gradient_rows" in launch.source()


# ---------------------------------------------------------------------- how work is dealt out


@pytest.fixture
def on_numpy(monkeypatch):
    """NumPy instead of CuPy, for what needs no kernel."""
    monkeypatch.setitem(sys.modules, "cupy", np)
    monkeypatch.setattr(launch, "reason_unavailable", lambda: None)


@pytest.mark.parametrize("seed", range(5))
def test_every_entry_is_in_the_work_of_one_group(on_numpy, seed):
    rng = np.random.default_rng(seed)
    limits = [lines.SHORT, lines.SHORT + 1, 1000, 1001, lines.PIECE[0], lines.PIECE[0] + 1]
    counts = np.concatenate([limits, *(rng.integers(0, top, 40) for top in (5, 100, 2000, 60_000))])
    rng.shuffle(counts)
    starts = np.concatenate(([0], np.cumsum(counts)))
    places = Positions(starts, np.zeros(starts[-1], np.int32), starts, 1)
    seen = np.zeros(starts[-1], int)
    found = np.zeros(counts.size, int)
    for work in lines.group_lines(places, kept=1000):
        own = np.arange(counts.size) if isinstance(work.lines, np.intp) else work.lines
        for k, line in enumerate(own):
            first = work.firsts[k] if work.cut else starts[line]
            last = min(first + work.length, starts[line + 1]) if work.cut else starts[line + 1]
            assert last - first <= work.longest
            seen[first:last] += 1
            found[line] += not work.cut or work.bases[k] == k
    np.testing.assert_array_equal(seen, 1)
    np.testing.assert_array_equal(found, 1)


def test_short_lines_are_for_warps_and_long_ones_are_cut(on_numpy):
    counts = np.array([5] * 1000 + [500_000])
    starts = np.concatenate(([0], np.cumsum(counts)))
    short, long = lines.group_lines(Positions(starts, starts, starts, 1), kept=1000)
    assert (short.threads, short.count, short.cut) == (32, 1000, False)
    assert long.cut
    assert long.count >= 30


def test_lines_of_about_the_length_for_a_warp_go_at_once(on_numpy):
    counts = np.array([60, lines.SHORT + 50, 0, 80])
    starts = np.concatenate(([0], np.cumsum(counts)))
    (only,) = lines.group_lines(Positions(starts, starts, starts, 1), kept=1000)
    assert (only.threads, only.count, only.longest, only.cut) == (32, 4, lines.SHORT + 50, False)
    assert isinstance(only.lines, np.intp)  # there is no list


def test_samples_are_those_of_the_matrix(on_numpy):
    M = robust_problem(20, 30, rank=1).M
    there = DeviceMatrix.from_parts(M.indptr, M.rows, M.values, M.shape)
    assert there.sample(50).to_host().fingerprint() == M.sample(50).fingerprint()
    held = np.array([0, 7, M.nnz - 1])
    left = M.to_dense()
    left[M.rows[held], M.columns_of_entries()[held]] = np.nan
    np.testing.assert_array_equal(there.split(held)[0].to_host().to_dense(), left)


# ---------------------------------------------------------------------- on a GPU that is not there (fake_gpu.py)


class Launched:
    """A kernel that only notes how it is launched."""

    max_dynamic_shared_size_bytes = 48_000

    def __init__(self, name, notes):
        self.name, self.notes = name, notes

    def __call__(self, grid, block, args, shared_mem=0):
        self.notes.append((self.name, grid[0], block[0], args))


@pytest.fixture
def noted(monkeypatch):
    """How kernels are launched by the sweep of a GPU, where there is none."""
    notes = []
    made = fake_gpu.install(monkeypatch)
    monkeypatch.setattr(cuda, "need_cupy", lambda: made)
    for module in (cuda, lines):
        monkeypatch.setattr(module, "kernel", lambda name: Launched(name, notes))
    return lambda M: ColumnSweep(DeviceMatrix.from_host(M)), notes


def test_above_rank_10_long_columns_go_in_pieces_step_by_step(noted):
    opened_there, notes = noted
    r, counts = 12, [5, 5000, 0, 2048, 2049]
    rows = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
    M = ls.ObservedMatrix(np.cumsum([0, *counts]), rows, np.ones(rows.size), (5000, len(counts)))
    opened_there(M).regress(np.ones((5000, r)), None, Robust(c=1.0, n_reweight=3))
    launched = [(name, grid, block, *map(int, args[-4:-2])) for name, grid, block, args in notes]
    assert launched == [
        ("regress_general<double,64,false>", 2, 64, 0, 3),
        ("regress_general<double,128,false>", 1, 128, 0, 3),
        *(("regress_general<double,256,true>", 5, 256, turn, turn + 1) for turn in range(3)),
    ]
    partial, tickets = notes[-1][3][-2:]
    assert partial.size == 5 * (r * (r + 1) // 2 + r + 2)
    assert not tickets.inside.any()
    np.testing.assert_array_equal(notes[-1][3][3].inside, [0, 0, 0, 3, 3])  # the first piece of its line


def test_a_rank_that_is_too_large_for_a_block_is_refused(noted):
    opened_there, _ = noted
    with pytest.raises(ValueError, match="the rank 250 is too large for a GPU"):
        opened_there(robust_problem(300, 20, rank=1).M).grams(np.ones((300, 250)))


@pytest.fixture
def fake_gpu_module(monkeypatch):
    return fake_gpu.install(monkeypatch)


def test_what_is_no_longer_used_is_gone_at_once(fake_gpu_module):
    M = DeviceMatrix.from_host(robust_problem(20, 30, rank=1).M)
    turned = M.T
    assert turned.T is M
    assert M.T is turned
    sweep = ColumnSweep(M)
    assert sweep.buffer("sums", 7).size == 7
    assert sweep.rows.M is turned
    values, gone = M.to_host().to_dense(), [weakref.ref(M), weakref.ref(sweep)]
    gc.disable()
    try:
        del M, sweep
        assert [one() for one in gone] == [None, None]
    finally:
        gc.enable()
    np.testing.assert_array_equal(turned.T.to_host().to_dense(), values)


def assert_rows_are_taken(M, rows):
    some = DeviceMatrix.from_host(M).take_rows(np.array(rows)).to_host()
    np.testing.assert_array_equal(some.to_dense(), M.to_dense()[rows])


@pytest.mark.parametrize("rows", [[0, 3, 4, 17], [5]])
def test_some_rows_are_those_of_the_matrix(fake_gpu_module, rows):
    assert_rows_are_taken(robust_problem(20, 30, rank=1).M, rows)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_some_rows_of_long_columns(gpu, dtype):
    M = robust_problem(900, 40, rank=1, density=0.7, dtype=dtype).M  # columns of more entries than a block has threads
    for rows in ([0, 255, 256, 899], [5], list(range(0, 900, 2))):
        assert_rows_are_taken(M, rows)


@pytest.mark.parametrize("method", ANYWHERE)
def test_nothing_is_mixed_or_copied_in_silence(fake_gpu_module, method):
    problem = robust_problem(100, 80, rank=2, density=0.5)
    there, here = (ls.solve(problem.M, 2, method=method, backend=backend, max_iter=8) for backend in ("cuda", "numpy"))
    assert there.backend == "cuda"
    assert fake_gpu.ColumnSweep.swept > 0
    assert there.L.error(here.L, relative=True) < 1e-10


def test_large_data_go_there_by_themselves(fake_gpu_module, monkeypatch):
    M = robust_problem(60, 50, rank=2).M
    assert ls.solve(M, 2).backend != "cuda"
    monkeypatch.setattr(placing, "WORTH", M.nnz)
    found = ls.solve(M, 2)
    assert found.backend == "cuda"
    assert isinstance(found.L.U, np.ndarray)
    monkeypatch.setattr(placing, "WORTH", M.nnz + 1)
    assert ls.solve(M, 2).backend != "cuda"


@pytest.mark.parametrize("why", ["method", "backend", "environment", "memory", "no GPU"])
def test_large_data_stay_where_they_are_if_there_is_a_reason(fake_gpu_module, monkeypatch, why):
    M = robust_problem(60, 50, rank=2).M
    monkeypatch.setattr(placing, "WORTH", 1)
    arguments = {"method": {"method": "hq"}, "backend": {"backend": "numpy"}}.get(why, {})
    if why == "environment":
        monkeypatch.setenv("LOWSPARSE_BACKEND", "numpy")
    if why == "memory":
        monkeypatch.setattr(fake_gpu_module.cuda.runtime, "memGetInfo", lambda: (2 * placing.NEEDED * M.nnz - 1, 10**9))
    if why == "no GPU":
        monkeypatch.setattr(launch, "reason_unavailable", lambda: "there is no CUDA GPU")
    assert ls.solve(M, 2, max_iter=3, **arguments).backend != "cuda"


def interrupted(at, **arguments):
    """A solve that goes on from a checkpoint, and one without a break."""
    M = robust_problem(100, 80, rank=2, density=0.5, noise=0.05).M
    arguments = {"backend": "cuda", "tol": 0, "max_iter": 12, **arguments}
    whole = ls.solve(M, 2, **arguments)
    ls.solve(M, 2, callback=lambda progress: progress.iteration == 5, checkpoint=at, **arguments)
    return whole, ls.solve(M, 2, resume=at, **arguments)


def assert_same_bits(one, other):
    for found, expected in ((one.L.U, other.L.U), (one.L.V, other.L.V), (one.S.data, other.S.data)):
        assert found.tobytes() == expected.tobytes()
    np.testing.assert_array_equal(one.flagged, other.flagged)
    np.testing.assert_array_equal(one.trace["objective"], other.trace["objective"])


@pytest.mark.parametrize("method", ANYWHERE)
def test_a_checkpoint_comes_from_there_and_goes_back(fake_gpu_module, tmp_path, method):
    assert_same_bits(*interrupted(tmp_path / "at.npz", method=method))


def test_what_the_processor_had_stays_with_it(fake_gpu_module, tmp_path, native):
    """The default method learns a small block there: 5 of 12 passes are not enough to be done with it."""
    assert_same_bits(*interrupted(tmp_path / "at.npz"))
    header = json.loads(str(np.load(tmp_path / "at.npz")["header"]))
    assert header["on_gpu"] == []
    assert_same_bits(*interrupted(tmp_path / "at.npz", method="amanpgc"))
    assert "U" in json.loads(str(np.load(tmp_path / "at.npz")["header"]))["on_gpu"]


@pytest.mark.parametrize("saved_by", ["cuda", "native"])
def test_a_checkpoint_of_the_other_kind_is_refused(fake_gpu_module, tmp_path, saved_by):
    M, at = robust_problem(60, 50, rank=2).M, tmp_path / "at.npz"
    ls.solve(M, 2, backend=saved_by, max_iter=3, checkpoint=at)
    other = {"cuda": "native", "native": "cuda"}[saved_by]
    with pytest.raises(ValueError, match=f"resume with backend='{saved_by}', or solve anew"):
        ls.solve(M, 2, backend=other, resume=at)


def filmed(rank):
    """The background of a short clip, by backend."""
    clip = ls.datasets.moving_blocks(40, 60, 64, random_state=3)
    frames = [Frame(Picture(one), t, t, t / 25) for t, one in enumerate(clip.frames)]
    return {backend: learn(frames, rank=rank, backend=backend) for backend in ("cuda", "native")}


def assert_same_background(found):
    assert found["cuda"].result.backend == "cuda"
    for part in ("luma", "noise"):  # rounding may choose another look to begin with, of a few blocks
        off = np.abs(getattr(found["cuda"], part) - getattr(found["native"], part))
        assert np.mean(off < 0.01) > 0.99


@pytest.mark.parametrize("rank", [1, 2])
def test_the_pixels_of_a_video_are_regressed_there(fake_gpu_module, monkeypatch, rank):
    sent = []
    monkeypatch.setattr(fake_gpu_module, "asarray", lambda A, *_: sent.append(np.ndim(A)) or fake_gpu.asarray(A, *_))
    assert_same_background(filmed(rank))
    assert 3 in sent  # values x blocks x looks


# ---------------------------------------------------------------------- on a GPU


SCRATCH = {"tall_gram": (4, 5)}  # arguments in which the blocks of a kernel leave something for each other


@pytest.fixture
def both(gpu, monkeypatch):
    """Each kernel that has a fake runs beside it and must write the same; the names of those that ran."""
    ran, real_kernel = set(), launch.kernel

    def kernel(expression):
        name, real = expression.partition("<")[0], real_kernel(expression)
        if name not in fake_gpu.KERNELS:
            return real

        def run(grid, block, args, shared_mem=0):
            copies = [part.get() if isinstance(part, gpu.ndarray) else part for part in args]
            real(grid, block, args, shared_mem=shared_mem)
            fake_gpu.KERNELS[name](*copies)
            for k, (part, copy) in enumerate(zip(args, copies, strict=True)):
                if isinstance(part, gpu.ndarray) and k not in SCRATCH.get(name, ()):
                    found = part.get()
                    if name == "magnitudes" and k == 3:  # one column for each block
                        found, copy = (np.array([A[0].max(), A[1].sum()]) for A in (found, copy))
                    np.testing.assert_allclose(found, copy, rtol=1e-12, atol=1e-12, err_msg=f"{name}, argument {k}")
            ran.add(name)

        return run

    for where in (launch, lines, matrix, cuda):
        monkeypatch.setattr(where, "kernel", kernel)
    monkeypatch.setattr(launch, "_tall_kernel", launch._tall_kernel.__wrapped__)
    return ran


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_fake_kernels_write_what_the_real_ones_do(both, gpu, dtype):
    M = DeviceMatrix.from_host(robust_problem(900, 400, rank=2, density=0.7, dtype=dtype).M)
    M.T.take_columns(np.array([5, 2, 9])).to_host()
    M.take_rows(np.arange(0, 900, 7)).to_host()
    M.columns_of_entries()
    M.magnitudes(clip=1.0)
    launch.beyond(M.values, 1.0)
    A, H = (gpu.asarray(orthonormal(5000, 3, seed=seed)) for seed in (1, 2))
    launch.tall_gram(A)
    launch.tall_times(A, np.arange(6.0).reshape(3, 2))
    launch.tall_times(A, np.arange(6.0).reshape(3, 2), H, 0.5)
    assert both == set(fake_gpu.KERNELS)


@pytest.mark.gpu
@pytest.mark.parametrize("method", ANYWHERE)
def test_every_method_finds_what_it_finds_on_the_processor(gpu, method):
    problem = robust_problem(200, 150, rank=3, density=0.5)
    there, here = (ls.solve(problem.M, 3, method=method, backend=backend) for backend in ("cuda", "native"))
    assert there.backend == "cuda"
    assert there.n_iter == here.n_iter
    assert there.L.error(here.L, relative=True) < 1e-10
    np.testing.assert_array_equal(there.flagged, here.flagged)


@pytest.mark.gpu
@pytest.mark.parametrize("rank", [1, 2, 7, 12])
def test_any_rank_is_solved(gpu, rank):
    problem = robust_problem(300, 250, rank=rank, density=0.6)
    for method in ("ladder", "amanpgc"):
        there, here = (ls.solve(problem.M, rank, method=method, backend=backend) for backend in ("cuda", "native"))
        assert there.L.error(here.L, relative=True) < 1e-10


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["amanpgc", "irls", "ladder", "lmafit", "rmc", "subgm"])
def test_a_start_can_be_given_or_random(gpu, method):
    problem = robust_problem(200, 150, rank=3, density=0.5)
    near = problem.L.U + 0.1 * np.random.default_rng(3).standard_normal((200, 3))
    for start in ("random", near, gpu.asarray(near)):
        there = ls.solve(problem.M, 3, method=method, backend="cuda", start=start, max_iter=20)
        here = ls.solve(problem.M, 3, method=method, start=start if isinstance(start, str) else near, max_iter=20)
        assert there.L.error(here.L, relative=True) < 1e-9


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["precondition", "backtracking", "t_S"])
def test_the_options_of_the_paper_work_there(gpu, kind):
    options = {"precondition": {"precondition": True}, "backtracking": {"step": 30.0}, "t_S": {"t_S": 0.7}}[kind]
    problem = robust_problem(200, 150, rank=3, density=0.5)
    method = ls.solvers.AManPGC(**options)
    there, here = (ls.solve(problem.M, 3, method=method, backend=backend) for backend in ("cuda", "native"))
    assert there.n_iter == here.n_iter
    assert there.L.error(here.L, relative=True) < 1e-9


@pytest.mark.gpu
def test_what_is_on_the_gpu_stays_there(gpu):
    problem = robust_problem(200, 150, rank=2, density=0.5)
    X = gpu.asarray(problem.M.to_dense())
    result = ls.solve(X, 2)
    assert result.backend == "cuda"
    assert isinstance(result.L.U, gpu.ndarray)
    assert result.S.to_cupy().nnz == result.S.nnz
    back = result.to_host()
    assert isinstance(back.L.U, np.ndarray)
    here = ls.solve(problem.M, 2)
    np.testing.assert_allclose(back.S.toarray(), here.S.toarray(), atol=1e-9)
    assert result.diagnostics.recovered
    assert ls.solve(X, 2, backend="native").backend == "native"


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["csc", "csr", "coo", "torch", "fortran", "float32"])
def test_all_that_holds_a_matrix_there_is_read(gpu, kind):
    from cupyx.scipy import sparse

    problem = robust_problem(120, 100, rank=2, density=0.6)
    X = gpu.asarray(problem.M.to_dense())
    if kind == "torch":
        torch = pytest.importorskip("torch")
        given = torch.from_dlpack(X)
    elif kind == "fortran":
        given = gpu.asfortranarray(X)
    elif kind == "float32":
        given = X.astype(np.float32)
    else:
        rows, columns = (gpu.asarray(part) for part in (problem.M.rows, problem.M.columns_of_entries()))
        values = gpu.asarray(problem.M.values)
        shuffled = gpu.asarray(np.random.default_rng(1).permutation(problem.M.nnz))
        given = sparse.coo_matrix((values[shuffled], (rows[shuffled], columns[shuffled])), shape=problem.M.shape)
        given = given.asformat(kind)
    result = ls.solve(given, 2)
    assert result.M.to_host().with_values(problem.M.values).fingerprint() == problem.M.fingerprint()
    assert result.L.error(problem.L, relative=True) < (1e-5 if kind == "float32" else 1e-8)
    assert result.M.dtype == (np.float32 if kind == "float32" else np.float64)


@pytest.mark.gpu
def test_what_is_not_finite_is_refused_there_too(gpu):
    with pytest.raises(ValueError, match="1 observed values are not finite"):
        ls.solve(gpu.asarray([[1.0, np.inf], [2.0, 3.0]]), 1)
    with pytest.raises(ValueError, match="no entry is observed"):
        ls.solve(gpu.full((3, 3), np.nan), 1)


@pytest.mark.gpu
def test_the_same_bits_every_time(gpu):
    problem = robust_problem(900, 700, rank=4, density=0.3, noise=0.1)
    for method in ("ladder", "amanpgc"):
        one, other = (ls.solve(problem.M, 4, method=method, backend="cuda") for _ in range(2))
        assert one.L.U.tobytes() == other.L.U.tobytes()
        assert one.L.V.tobytes() == other.L.V.tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("rank", [3, 11, 20, 50])
def test_columns_in_pieces_have_the_same_bits_every_time(gpu, rank):
    rows = np.concatenate([np.arange(count, dtype=np.int32) for count in (5, 50_000, 300, 20_000)])
    values = np.random.default_rng(rank).standard_normal(rows.size)
    M = DeviceMatrix.from_host(ls.ObservedMatrix(np.array([0, 5, 50_005, 50_305, 70_305]), rows, values, (50_000, 4)))
    U, S, S_out = gpu.asarray(orthonormal(50_000, rank)), gpu.zeros(M.nnz), gpu.empty(M.nnz)

    def bits():
        sweep = M.open_sweep()
        swept = sweep.sweep(U, S, S_out, Proximal(Rule.AMANPG, gamma=0.7, lambda2=1e-6))
        fitted = sweep.regress(U, None, Robust(c=0.5, n_reweight=3))
        arrays = [part.tobytes() for part in (swept.V, swept.G, S_out, fitted.V, sweep.grams(U))]
        return [*arrays, swept.smooth_in, swept.smooth_out, swept.l1]

    first = bits()
    assert all(bits() == first for _ in range(3))


def shrunk_alike(few, monkeypatch, backend):
    """A table without an exact rank, with the block on the processor or on the GPU: solved there, and here."""
    monkeypatch.setattr("lowsparse.places.gpu.matrix.FEW", few)
    M = slow_decay(70, 60, seed=3)
    there, here = (ls.solve(M, "auto", backend=where) for where in ("cuda", backend))
    assert here.L.rank == there.L.rank > 3
    assert there.noise == there.held_out == pytest.approx(here.noise, rel=1e-6)
    assert there.L.error(here.L, relative=True) < 1e-6


@pytest.mark.parametrize("few", [0, 200_000])
def test_a_path_of_shrinkage_mixes_nothing(fake_gpu_module, monkeypatch, few):
    shrunk_alike(few, monkeypatch, "numpy")


@pytest.mark.gpu
@pytest.mark.parametrize("few", [0, 200_000])
def test_a_path_of_shrinkage_is_followed_there(gpu, monkeypatch, few):
    shrunk_alike(few, monkeypatch, "native")


@pytest.mark.gpu
def test_the_rank_is_chosen_there(gpu):
    assert ls.solve(robust_problem(200, 150, rank=3, density=0.5).M, "auto", backend="cuda").L.rank == 3


@pytest.mark.gpu
def test_too_large_is_an_error_with_the_size(gpu, monkeypatch):
    M = robust_problem(60, 50, rank=1).M

    def full(*_, **__):
        raise gpu.cuda.memory.OutOfMemoryError(1, 1, 1)

    monkeypatch.setattr(gpu, "asarray", full)
    with pytest.raises(MemoryError, match=r"the data needs .* GB of GPU memory"):
        DeviceMatrix.from_host(M)


@pytest.mark.gpu
def test_a_block_can_be_learnt_on_the_gpu_itself(gpu, monkeypatch):
    monkeypatch.setattr("lowsparse.places.gpu.matrix.FEW", 0)
    problem = robust_problem(300, 250, rank=3, density=0.5)
    result = ls.solve(problem.M, 3, backend="cuda")
    assert result.converged
    assert result.L.error(problem.L, relative=True) < 1e-8
    assert ls.solve(problem.M, "auto", backend="cuda").L.rank == 3


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("size", [1, 31, 257, launch.SEARCHED, 3 * launch.SEARCHED + 5])
def test_what_exceeds_a_bound_is_found_in_order(gpu, size, kind):
    numbers = np.random.default_rng(size).standard_normal(size).astype(kind)
    for bound in (0.0, 1.0, 100.0):
        found = launch.beyond(gpu.asarray(numbers), bound)
        np.testing.assert_array_equal(found.get(), np.flatnonzero(np.abs(numbers) > bound))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_the_sizes_of_values_are_those_of_the_processor(gpu, kind):
    M = robust_problem(300, 200, rank=2, density=0.6).M
    M = M.with_values(np.where(np.arange(M.nnz) % 3, M.values, 0.0).astype(kind))  # some are zero
    there, sizes = DeviceMatrix.from_host(M), np.abs(M.values).astype(float)
    assert there.median_magnitude() == pytest.approx(np.median(sizes[sizes > 0]), rel=1e-12)
    assert there.with_values(0 * there.values).median_magnitude() == 0.0
    largest, squares = there.magnitudes(0.5)
    assert largest == sizes.max()
    assert squares == pytest.approx(np.sum(np.minimum(sizes, 0.5) ** 2), rel=1e-12)


@pytest.mark.gpu
@pytest.mark.parametrize("rank", [1, 4, 10])
def test_a_step_on_the_manifold_is_that_of_the_processor(gpu, rank):
    rng = np.random.default_rng(rank)
    U, D = (np.linalg.qr(rng.standard_normal((500, rank)))[0], rng.standard_normal((500, rank)))
    D -= U @ (U.T @ D)
    D /= np.linalg.norm(D)
    here, _ = retract(U, D, 0.01 * D.T @ D, step=-0.1)
    there = launch.tall_retracted(gpu.asarray(U), gpu.asarray(D), -0.1, launch.tall_gram(gpu.asarray(D)))
    np.testing.assert_allclose(there.get(), here, atol=1e-14)
    np.testing.assert_allclose(there.get().T @ there.get(), np.eye(rank), atol=1e-13)


@pytest.mark.gpu
def test_a_regression_is_waited_for_when_its_counts_are_asked_for(gpu):
    M, U = robust_problem(300, 200, rank=2).M, np.linalg.qr(np.ones((300, 2)) + np.eye(300, 2))[0]
    there, here = (A.open_sweep().regress(U, None, Robust(c=1.0, bound=1.0)) for A in (DeviceMatrix.from_host(M), M))
    assert "inside" not in vars(there)
    np.testing.assert_array_equal(there.inside, here.inside)
    np.testing.assert_array_equal(there.magnitudes.counts, here.magnitudes.counts)
    with pytest.raises(AttributeError):
        there.elsewhere  # noqa: B018


@pytest.mark.gpu
def test_open_sweep_finds_the_gpu_by_the_matrix(gpu):
    assert DeviceMatrix.from_host(robust_problem().M).open_sweep().name == "cuda"


@pytest.mark.gpu
@pytest.mark.parametrize("method", ANYWHERE)
def test_a_solve_there_goes_on_to_the_same_bits(gpu, tmp_path, method):
    assert_same_bits(*interrupted(tmp_path / "at.npz", method=method))


@pytest.mark.gpu
def test_a_block_that_is_learnt_there_goes_on_to_the_same_bits(gpu, monkeypatch, tmp_path):
    monkeypatch.setattr("lowsparse.places.gpu.matrix.FEW", 0)
    assert_same_bits(*interrupted(tmp_path / "at.npz"))


@pytest.mark.gpu
@pytest.mark.parametrize("rank", [1, 2])
def test_the_background_of_a_video_is_found_there(gpu, rank):
    assert_same_background(filmed(rank))


@pytest.mark.gpu
@pytest.mark.parametrize("stream", [False, True])
def test_a_video_is_separated_there(gpu, tmp_path, stream):
    pytest.importorskip("av", reason="needs the extra `video`")
    np.save(tmp_path / "clip.npy", ls.datasets.moving_blocks(120, 48, 64, random_state=3).frames)
    there, here = (
        separate_video(tmp_path / "clip.npy", tmp_path / backend, backend=backend, stream=stream)
        for backend in ("cuda", "native")
    )
    assert there.background.result.backend == "cuda"
    np.testing.assert_allclose(there.shares, here.shares, atol=0.005)


@pytest.mark.gpu
def test_large_data_go_there_and_come_back(gpu, monkeypatch):
    M = robust_problem(60, 50, rank=2).M
    monkeypatch.setattr(placing, "WORTH", M.nnz)
    found = ls.solve(M, 2)
    assert found.backend == "cuda"
    assert isinstance(found.L.U, np.ndarray)
