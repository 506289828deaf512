"""The sweep on a GPU: against the floor of its bytes, the compiled core on two threads, and plain torch.

    python -m benchmarks.gpu --out docs/gpu.log

Data are made on the device. Passes are timed with device events: what the device needs for them, for it is kept busy
before until the processor has told it what to do. Solves, and their iterations, are timed with the clock and a
synchronised device, processor and all. After warm-up, medians. The floor is the bytes that must be moved (values,
indices, S, each once) over the bandwidth that a copy reaches in the same run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import lowsparse as ls
from lowsparse.datasets import PAPER_CASES
from lowsparse.linalg.grassmann import qf
from lowsparse.linalg.lowrank import LowRank
from lowsparse.places.gpu.launch import need_cupy
from lowsparse.places.gpu.matrix import DeviceMatrix
from lowsparse.solvers import AManPGC
from lowsparse.sweeps import Previous, Proximal, Robust, Rule

LARGE = (100_000, 100_000, 5, 0.1, 0.1)
AT_ONCE = 2 * 10**8  # cells that are drawn together
FIVE_FITS = Robust(c=0.01, first_c=5.0, n_reweight=5)
BUSY = """
extern "C" __global__ void busy(long long cycles) {
    for (const long long began = clock64(); clock64() - began < cycles;);
}
"""
CYCLES = 10**6  # about half a millisecond


def made(m: int, n: int, rank: int, density: float, outliers: float) -> tuple[DeviceMatrix, LowRank]:
    """A case of the paper on the device, and its truth."""
    cupy = need_cupy()
    rng = cupy.random.default_rng(1)
    U, V = rng.standard_normal((m, rank)), rng.standard_normal((n, rank))
    parts: list[tuple[Any, Any]] = []
    starts, total = [np.zeros(1, np.int64)], 0
    for first in range(0, n, max(1, AT_ONCE // m)):
        width = min(max(1, AT_ONCE // m), n - first)
        place = cupy.flatnonzero(rng.random((width * m,), dtype=np.float32) < density)
        rows, columns = place % m, first + place // m
        x = cupy.zeros(place.size)
        for a in range(rank):
            x += U[rows, a] * V[columns, a]
        x += (rng.random((place.size,), dtype=np.float32) < outliers) * rng.standard_normal((place.size,))
        parts.append((rows.astype(np.int32), x))
        starts.append(total + cupy.searchsorted(place, cupy.arange(1, width + 1) * m).get())
        total += place.size
    rows, values = (cupy.concatenate(part) for part in zip(*parts, strict=True))
    return DeviceMatrix.from_parts(np.concatenate(starts), rows, values, (m, n)), LowRank(U, V.T)


def events(run: Callable[[], Any], repeats: int = 30) -> float:
    """Milliseconds of one run, by device events."""
    cupy = need_cupy()
    cuda, busy = cupy.cuda, cupy.RawKernel(BUSY, "busy")
    run(), run()
    found = []
    for _ in range(repeats):
        before, after = cuda.Event(), cuda.Event()
        busy((1,), (1,), (np.int64(CYCLES),))
        before.record()
        run()
        after.record()
        after.synchronize()
        found.append(float(cuda.get_elapsed_time(before, after)))
    return statistics.median(found)


def clock(run: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Milliseconds of one run, by the clock, and what it gave."""
    device = need_cupy().cuda.Device()
    result, found = run(), []
    for _ in range(repeats):
        device.synchronize()
        began = time.perf_counter()
        result = run()
        device.synchronize()
        found.append(1e3 * (time.perf_counter() - began))
    return statistics.median(found), result


def bandwidth() -> float:
    """Bytes a second of a copy, read and written ones counted."""
    cupy = need_cupy()
    source = cupy.random.default_rng(1).random(2**29)
    target = cupy.empty_like(source)
    return 2 * float(source.nbytes) / (1e-3 * events(lambda: cupy.copyto(target, source), 10))


def torch_iteration(M: DeviceMatrix, U: Any, gamma: float, l2: float) -> Callable[[], Any]:
    """One iteration of AManPG as one would write it in torch: gathers, index_add, batched solves."""
    import torch

    rows, columns, x, u = (
        torch.from_dlpack(a) for a in (M.rows.astype(np.int64), M.columns_of_entries().astype(np.int64), M.values, U)
    )
    n, r = M.shape[1], U.shape[1]
    S, eye = torch.zeros_like(x), torch.eye(r, dtype=x.dtype, device=x.device)

    def run() -> Any:
        B = u[rows]
        gram = torch.zeros((n, r, r), dtype=x.dtype, device=x.device).index_add_(0, columns, B[:, :, None] * B[:, None])
        A = (1 - l2) * gram + l2 * eye
        zeros = torch.zeros((n, r), dtype=x.dtype, device=x.device)
        v = torch.linalg.solve(A, zeros.index_add(0, columns, B * (x - S)[:, None]))
        at = x - (B * v[columns]).sum(1)
        S_new = at - at.clamp(-gamma, gamma)
        y = x - S_new
        v = torch.linalg.solve(A, zeros.index_add(0, columns, B * y[:, None]))
        C = v[columns]
        d = (B * C).sum(1) - y
        G = torch.zeros_like(u).index_add_(0, rows, ((1 - l2) * d - l2 * y)[:, None] * C) + l2 * u @ (v.T @ v)
        step = 1.1 / (M.density * torch.linalg.eigvalsh(v.T @ v)[-1])
        return torch.linalg.qr(u - step * G)[0], S_new, float((d**2).sum())

    return run


def kernels(case: int, per_second: float, say: Callable[[str], None]) -> None:
    """The passes over one case, each against its floor."""
    cupy = need_cupy()
    M, L = made(*PAPER_CASES[case])
    r, sweep = L.rank, M.open_sweep()
    U, V = L.U, cupy.ascontiguousarray(L.V.T)
    start = qf(cupy.random.default_rng(3).standard_normal(U.shape))
    S, out = cupy.zeros_like(M.values), cupy.zeros_like(M.values)
    before = Previous(cupy.zeros((r, M.shape[1])), np.eye(r))
    e = sweep.residual(U, V)
    how = Proximal(Rule.AMANPG, gamma=0.1, lambda2=1e-10)
    passes: dict[str, tuple[Callable[[], Any], int]] = {  # and the bytes of an entry
        "AManPG iteration": (
            lambda: sweep.sweep(start, S, out, how, before).retracted(start, -0.1),
            8 + 4 + 8 + 8 + 8 + 4,  # x, index, S, S+; x and index again by row
        ),
        "regression, 5 fits": (lambda: sweep.regress(U, None, FIVE_FITS), 12),
        "regression, 1 turn": (lambda: sweep.regress(U, V, Robust(c=0.5)), 12),
        "residual": (lambda: sweep.residual(U, V), 20),
        "product by column": (lambda: sweep.product_transposed(e, U), 12),
        "product by row": (lambda: sweep.product(e, V), 24),
    }
    for name, (run, size) in passes.items():
        took, floor = events(run), 1e3 * size * M.nnz / per_second
        say(f"case {case}  {name:22s} {took:8.3f} ms   floor {floor:6.3f} ms   x {took / floor:.1f}")
    plain = events(torch_iteration(M, start, 0.1, 1e-10), 5)
    say(f"case {case}  AManPG, plain torch    {plain:8.3f} ms")


def solves(case: int, say: Callable[[str], None]) -> None:
    """The default method and AManPGC on one case, on the device and on two threads of the processor."""
    M, L = made(*PAPER_CASES[case])
    took, result = clock(lambda: ls.solve(M, L.rank), 9)
    say(f"case {case}  default method         {took:8.1f} ms   {result.n_iter} iterations, {_right(result, L)}")
    slow, result = clock(lambda: ls.solve(M, L.rank, method=AManPGC()), 3)
    one = 1e3 * float(np.median(np.diff(result.trace["seconds"])))
    say(f"case {case}  AManPGC                {slow:8.1f} ms   {one:.3f} ms an iteration, {_right(result, L)}")
    os.environ["LOWSPARSE_NUM_THREADS"] = "2"
    there = M.to_host()
    core = statistics.median(ls.solve(there, L.rank, backend="native").seconds for _ in range(3))
    result = ls.solve(there, L.rank, method=AManPGC(), backend="native")
    del os.environ["LOWSPARSE_NUM_THREADS"]
    say(f"case {case}  default, core, 2 threads {1e3 * core:6.0f} ms   x {1e3 * core / took:.0f}")
    per = 1e3 * float(np.median(np.diff(result.trace["seconds"])))
    say(
        f"case {case}  AManPGC, core, 2 threads {1e3 * result.seconds:6.0f} ms   x {1e3 * result.seconds / slow:.0f}, "
        f"{per:.1f} ms an iteration, x {per / one:.0f}"
    )


def large(say: Callable[[str], None]) -> None:
    """A thousand million entries."""
    M, L = made(*LARGE)
    need_cupy().get_default_memory_pool().free_all_blocks()
    took, result = clock(lambda: ls.solve(M, L.rank), 3)
    say(f"{M.nnz:.3g} entries  default method  {took:8.1f} ms   {_right(result, L)}")


def _right(result: ls.Result, L: LowRank) -> str:
    return f"relative error {result.L.error(L, relative=True):.1e}, {result.status.value}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="a file for the log")
    parser.add_argument("--small", action="store_true", help="without the thousand million entries")
    args = parser.parse_args()
    cupy, lines = need_cupy(), []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    per_second = bandwidth()
    say(f"{name}, CuPy {cupy.__version__}, NumPy {np.__version__}; a copy moves {per_second / 1e12:.2f} TB/s")
    for case in (3, 8):
        solves(case, say)
    for case in (3, 8):
        kernels(case, per_second, say)
    if not args.small:
        large(say)
    if args.out:
        args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
