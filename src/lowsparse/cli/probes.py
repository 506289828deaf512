"""The checks of `lowsparse doctor`, one function each."""

import importlib
import math
import os
import platform
import re
import shutil
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy
from scipy import sparse
from threadpoolctl import threadpool_info

from .. import sweeps
from .._version import __version__
from ..datasets import synthetic
from ..entries.observed import ObservedMatrix
from ..linalg.grassmann import qf
from ..places.decide import BACKENDS, WORTH, available
from ..support.cpus import cpu_limit
from ..support.format import duration, pluralize
from ..support.sizes import memory_of_container, memory_of_machine
from ..sweeps import Proximal, Rule, native
from .extras import extras, installed, origin
from .text import one_line

Level = Literal["ok", "note", "warning", "error"]  # an error can be repaired

SIDE, RANK, DENSITY = 2000, 5, 0.25  # of the matrix for the speed check: a million entries
SECONDS = 1.2  # for the speed check
MIN_SPEEDUP = 1.25  # of all threads over one
MAX_PRODUCTS = 10  # of SciPy in the time of a sweep of the compiled core; two to four are usual
TOLERANCE = 1e-10  # between the compiled core and NumPy
BACKENDS_IN_WORDS = {
    "native": "native, the compiled core",
    "cuda": "cuda, a GPU",
    "outofcore": "outofcore, a store on disk",
    "dask": "dask, a cluster",
}
COMPILERS = ("c++", "g++", "clang++", "cl")


@dataclass(frozen=True)
class Finding:
    """The outcome of a check, how severe it is, and what to do about it."""

    level: Level
    text: str
    advice: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)


def run_probe(probe: Callable[[], Finding]) -> Finding:
    """The finding of a probe; an exception becomes a warning."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return probe()
    except Exception as error:
        return Finding("warning", f"check failed ({type(error).__name__}: {one_line(str(error))})")


def versions() -> Finding:
    """Versions of lowsparse, Python, NumPy and SciPy."""
    facts = {
        "lowsparse": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "system": platform.platform(),
        "processor": platform.machine(),
        "folder": str(Path(__file__).resolve().parents[1]),
    }
    text = "lowsparse {lowsparse}, Python {python}, NumPy {numpy}, SciPy {scipy}; {system}; in {folder}"
    return Finding("ok", text.format(**facts), facts=facts)


def optional() -> Finding:
    """The optional packages."""
    found = {extra: {name: installed(name) for name in names} for extra, names in extras().items()}
    present = [f"{name} {version}" for names in found.values() for name, version in names.items() if version]
    text = ", ".join(dict.fromkeys(present)) or "none"
    missing = {extra: [n for n, version in names.items() if not version] for extra, names in found.items()}
    lacking = [extra for extra, names in missing.items() if names]
    if not lacking:
        return Finding("ok", text, facts={"extras": found})
    text += "; not installed: " + ", ".join(f"{' and '.join(missing[extra])} (extra {extra})" for extra in lacking)
    packages = dict.fromkeys(name for names in missing.values() for name in names)
    command = f"python -m pip install {' '.join(packages)}"
    return Finding("note", text, f"to install all optional packages: {command}", {"extras": found})


def blas() -> Finding:
    """The BLAS of NumPy and SciPy."""
    pools = [pool for pool in threadpool_info() if pool.get("user_api") == "blas"]
    if not pools:
        text = "unknown: it does not report its name and threads (this is no problem)"
        return Finding("note", text, facts={"pools": []})
    names = (f"{p['internal_api']} {p.get('version')}, {pluralize(p['num_threads'], 'thread')}" for p in pools)
    text = "; ".join(dict.fromkeys(names)) + "; a solve uses one thread of it, and all cores for sweeps"
    keys = ("internal_api", "version", "num_threads", "architecture", "threading_layer")
    return Finding("ok", text, facts={"pools": [{key: pool.get(key) for key in keys} for pool in pools]})


def backend() -> Finding:
    """The backend of a solve, and why."""
    asked, reasons = os.environ.get("LOWSPARSE_BACKEND") or "auto", available()
    facts: dict[str, Any] = {"asked": asked, "available": reasons, "compiler": _compiler(), "used": None}
    source = "" if asked == "auto" else ", set by LOWSPARSE_BACKEND"
    if asked not in ("auto", *BACKENDS):
        advice = f"set LOWSPARSE_BACKEND to one of {', '.join(['auto', *BACKENDS])}"
        return Finding("error", f"LOWSPARSE_BACKEND={asked} is unknown", advice, facts)
    if (why := reasons.get(asked)) is not None:
        advice = _repair() if asked == "native" else "unset LOWSPARSE_BACKEND to run on the CPU"
        return Finding("error", f"none: LOWSPARSE_BACKEND={asked}, but {one_line(why)}", advice, facts)
    missing = reasons["native"]
    facts["used"] = asked if asked != "auto" else "numpy" if missing else "native"
    if facts["used"] != "numpy":
        return Finding("ok", BACKENDS_IN_WORDS[facts["used"]] + source, facts=facts)
    if asked == "numpy":
        advice = "" if missing else "unset LOWSPARSE_BACKEND to run on the compiled core, which is many times faster"
        state = "not available" if missing else "available"
        return Finding("note", f"numpy{source}; the compiled core is {state}", advice, facts)
    broken = _core_files() or _compiler()  # the core does not load, or could have been built
    text = f"numpy, which works but is many times slower: {one_line(str(missing))}"
    return Finding("error" if broken else "warning", text, _repair(), facts)


def _repair() -> str:
    """How to get the compiled core."""
    again = f"python -m pip install --force-reinstall --no-deps {origin()}"
    if files := _core_files():
        return f"{files[0]} exists, but does not load (another Python or system, or damaged): {again}"
    if found := _compiler():
        return f"there is a compiler ({found}): reinstall to build the core, and check the build's output: {again} -v"
    return f"running on NumPy: install a C++17 compiler (g++, clang++ or Visual Studio), then {again}"


def _core_files() -> list[str]:
    folder = Path(__file__).resolve().parents[1]
    return sorted(str(path) for path in folder.glob("_core.*") if path.suffix in (".so", ".pyd"))


def _compiler() -> str | None:
    wanted = os.environ.get("CXX")
    return next((path for name in ([wanted] if wanted else COMPILERS) if (path := shutil.which(name))), None)


def agreement() -> Finding:
    """Whether the compiled core and NumPy agree."""
    if available()["native"] is not None:
        return Finding("note", "no compiled core to compare with NumPy")
    problem = synthetic(60, 50, rank=3, density=0.6, outliers=0.1, random_state=1)
    U = qf(np.random.default_rng(2).standard_normal((60, 3)))
    ours, oracle = (_sweep(problem.M.open_sweep(name), problem.M, U)() for name in ("native", "numpy"))
    difference = max(float(np.max(np.abs(a - b))) for a, b in ((ours.V, oracle.V), (ours.G, oracle.G)))
    facts = {"difference": difference}
    if not difference <= TOLERANCE:
        text = f"the compiled core and NumPy differ by {difference:.1e}: results cannot be trusted"
        return Finding("error", text, "set LOWSPARSE_BACKEND=numpy, and report this with the output of --json", facts)
    return Finding("ok", f"the compiled core agrees with NumPy (to {difference:.0e})", facts=facts)


def threads() -> Finding:
    """The number of threads of a sweep."""
    name = next((name for name in native.THREADS if os.environ.get(name, "").split(",")[0].strip()), None)
    try:
        count = native.num_threads()
    except ValueError as error:
        advice = f"set {name} to a number of 1 or more, or unset it"
        return Finding("error", one_line(str(error)), advice, {"from": name})
    allowed = cpu_limit()
    facts = {"threads": count, "from": name or "cores", "cores": os.cpu_count(), "limit": allowed}
    source = f"set by {name}" if name else "one per core available to this process"
    text = f"{pluralize(count, 'thread')}, {source}"
    if allowed is not None and count > (cores := math.ceil(allowed)):
        advice = f"set LOWSPARSE_NUM_THREADS={cores}: more threads than cores wait for each other"
        return Finding("warning", f"{text}; but this container is limited to {allowed:g} cores", advice, facts)
    return Finding("ok", f"{text} (the machine has {os.cpu_count()})", facts=facts)


def instructions() -> Finding:
    """The instruction set of the compiled core."""
    if available()["native"] is not None:
        return Finding("note", "no compiled core")
    known, asked = list(importlib.import_module("lowsparse._core").instruction_sets()), os.environ.get("LOWSPARSE_ISA")
    facts = {"used": asked or known[0], "available": known, "asked": asked}
    if asked and asked not in known:
        choice = f"unset LOWSPARSE_ISA, or set it to one of {', '.join(known)}"
        return Finding("error", f"LOWSPARSE_ISA={asked} is not available here", choice, facts)
    if asked and asked != known[0]:
        unset = f"unset LOWSPARSE_ISA to run on {known[0]}, which is faster"
        return Finding("note", f"{asked}, set by LOWSPARSE_ISA", unset, facts)
    return Finding("ok", f"{known[0]}, the best available of {', '.join(known)}", facts=facts)


def memory() -> Finding:
    """Total and free memory."""
    total, limit = memory_of_machine(), memory_of_container()
    if total is None:
        return Finding("note", "unknown on this system")
    meminfo = Path("/proc/meminfo")
    found = re.search(r"MemAvailable:\s*(\d+) kB", meminfo.read_text() if meminfo.exists() else "")
    free = int(found[1]) * 1024 if found else None
    limit = None if limit is None or limit >= total else limit
    text = f"{total / 2**30:.1f} GiB" + ("" if free is None else f", {free / 2**30:.1f} GiB free")
    text += "" if limit is None else f"; this process is limited to {limit / 2**30:.1f} GiB"
    return Finding("ok", text, facts={"total": total, "available": free, "limit": limit})


def gpu() -> Finding:
    """CuPy and its devices."""
    facts: dict[str, Any] = {"cupy": None, "devices": []}
    if find_spec("cupy") is None:
        return Finding("note", "CuPy is not installed; everything runs on the CPU", facts=facts)
    try:
        cupy = importlib.import_module("cupy")
        runtime = cupy.cuda.runtime
        names = [
            runtime.getDeviceProperties(k)["name"].decode(errors="replace") for k in range(runtime.getDeviceCount())
        ]
    except Exception as error:
        text = f"CuPy is installed, but finds no device: {one_line(str(error)) or type(error).__name__}"
        advice = "install the CuPy that matches the driver (such as cupy-cuda12x), or uninstall it"
        return Finding("warning", text, advice, facts)
    why = available()["cuda"]
    facts = {"cupy": cupy.__version__, "devices": names, "reason": why}
    text = f"CuPy {cupy.__version__} sees {', '.join(names) or 'no device'}"
    if why is not None:
        return Finding("warning", f"{text}, but backend='cuda' cannot run: {one_line(why)}", facts=facts)
    text += f"; used for data on the GPU, for {WORTH:,} entries or more, and with backend='cuda'"
    return Finding("ok", text, facts={**facts, "from_entries": WORTH})


def speed() -> Finding:
    """The time of a sweep over a million entries, on one thread and on all, against a sparse product of SciPy."""
    M = synthetic(SIDE, SIDE, rank=RANK, density=DENSITY, outliers=0.1, random_state=0).M
    rng = np.random.default_rng(1)
    U, V = qf(rng.standard_normal((SIDE, RANK))), rng.standard_normal((SIDE, RANK))
    A = sparse.csc_array((M.values, M.rows, M.indptr), shape=M.shape)
    name = M.open_sweep().name
    count = native.num_threads() if name == "native" else 1
    runs: dict[str, Callable[[], object]] = {"scipy": lambda: A @ V}
    for number in (1, count):
        sweep: Any = M.open_sweep(name)
        sweep.threads = number
        runs[str(number)] = _sweep(sweep, M, U)
    best = _best_times(runs)
    one, most, product = best["1"], best[str(count)], best["scipy"]
    facts = {"entries": M.nnz, "rank": RANK, "backend": name, "threads": count}
    facts |= {"one_thread": one, "all_threads": most, "scipy_product": product}
    text = f"one sweep over {M.nnz:,} entries (rank {RANK}): {duration(one)} on one thread"
    text += f", {duration(most)} on {count}" if count > 1 else ""
    text += f"; a sparse product of SciPy: {duration(product)}"
    return Finding(*_judge_speed(name, one / product, one / most, count, text), facts)


def _judge_speed(name: str, products: float, speedup: float, count: int, text: str) -> tuple[Level, str, str]:
    """Level, text and advice, from the time of a sweep in products and the speedup by all threads."""
    if name != "native":
        slow = f"running on NumPy: a sweep takes as long as {products:.0f} products, with the compiled core two to four"
        return "warning", text, slow + "; see the advice on the backend"
    if products > MAX_PRODUCTS:
        slow = f"a sweep takes as long as {products:.0f} products instead of two to four: "
        return "warning", text, slow + "other work on the machine, or a processor without AVX2 (see instructions)"
    if count > 1 and speedup < MIN_SPEEDUP:
        slow = f"{count} threads are no faster than one: "
        return "warning", text, slow + "other work on the machine, or a limit of cores"
    return "ok", text, ""


def _sweep(sweep: sweeps.Sweep, M: ObservedMatrix, U: sweeps.Float) -> Callable[[], sweeps.SweepResult]:
    S, S_out = np.zeros_like(M.values), np.empty_like(M.values)
    return lambda: sweep.sweep(U, S, S_out, Proximal(Rule.AMANPG, gamma=0.1))


def _best_times(runs: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The shortest time of each; runs are interleaved, so that other load affects all of them."""
    for run in runs.values():
        run()
    best = dict.fromkeys(runs, np.inf)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - began)
    return best


PROBES = {
    "versions": versions,
    "optional": optional,
    "BLAS": blas,
    "backend": backend,
    "agreement": agreement,
    "threads": threads,
    "instructions": instructions,
    "memory": memory,
    "GPU": gpu,
    "speed": speed,
}
