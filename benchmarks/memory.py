"""The peak memory of one solve, measured in a process of its own.

    python -m benchmarks.memory FOLDER RANK METHOD

FOLDER holds the entries as indptr.npy, rows.npy, values.npy and shape.npy, so that what it took to make them is not
counted. Prints bytes: the most this process held, less what it held before it loaded them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

import lowsparse as ls

ARRAYS = ("indptr", "rows", "values", "shape")


def of_solve(M: ls.ObservedMatrix, rank: int, method: str, folder: Path) -> int | None:
    """Bytes, the entries themselves included; None where the system does not tell."""
    if peak() is None:
        return None
    for name in ARRAYS:
        np.save(folder / f"{name}.npy", getattr(M, name))
    command = [sys.executable, "-m", "benchmarks.memory", str(folder), str(rank), method]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout)


def peak() -> int | None:
    """The most bytes of memory this process has held so far."""
    try:
        # not ru_maxrss, where a process starts with the size of the one that made it
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(status.split("VmHWM:")[1].split()[0])
    except (OSError, IndexError):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else 1024 * used


def main() -> None:
    folder, rank, method = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    tiny = ls.datasets.synthetic(20, 20, rank=1, density=1.0, outliers=0.0, random_state=1)
    ls.solve(tiny.M, 1, method=method)  # what is loaded on first use is not the problem's
    before = peak()
    indptr, rows, values, shape = (np.load(folder / f"{name}.npy") for name in ARRAYS)
    M = ls.ObservedMatrix(indptr, rows, values, (int(shape[0]), int(shape[1])))
    ls.solve(M, rank, method=method)
    after = peak()
    assert before is not None
    assert after is not None
    print(after - before)


if __name__ == "__main__":
    main()
