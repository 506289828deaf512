"""What `lowsparse doctor` looks at: one probe per question, and what it has found."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import time
import warnings
from collections.abc import Callable
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
from ..places.decide import WORTH
from ..support.format import counted, duration
from ..sweeps import Proximal, Rule, native
from .extras import extras, installed
from .failure import one_line

__all__ = ["PROBES", "Finding", "look"]

Level = Literal["ok", "note", "warning", "error"]  # an error: something is broken, and can be repaired

SIDE, RANK, SHARE = 2000, 5, 0.25  # of the matrix for the speed check: a million entries
SECONDS = 1.2  # for the speed check
FASTER = 1.25  # all threads against one, at least
USUAL = 10  # products of SciPy that a sweep of the compiled core takes at most; two to four are usual
AGREE = 1e-10
COMPILERS = ("c++", "g++", "clang++", "cl")
GROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Finding:
    """The answer to one question, how bad it is, and what to do about it."""

    level: Level
    text: str
    advice: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


def look(probe: Callable[[], Finding]) -> Finding:
    """What a probe finds; whatever goes wrong in it is a finding too.

    >>> look(lambda: 1 / 0)
    Finding(level='warning', text='could not find out (ZeroDivisionError: division by zero)', advice='', facts={})
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return probe()
    except Exception as error:
        return Finding("warning", f"could not find out ({type(error).__name__}: {one_line(str(error))})")


def versions() -> Finding:
    """Of lowsparse and what it stands on."""
    facts = {
        "lowsparse": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "system": platform.platform(),
        "processor": platform.machine(),
        "folder": str(Path(__file__).resolve().parents[1]),
    }
    text = "lowsparse {lowsparse}, Python {python}, NumPy {numpy}, SciPy {scipy}; {system}".format(**facts)
    return Finding("ok", f"{text}; in {facts['folder']}", facts=facts)


def optional() -> Finding:
    """The packages of the extras."""
    found = {extra: {name: installed(name) for name in names} for extra, names in extras().items()}
    lacking = {extra: [n for n, version in names.items() if version is None] for extra, names in found.items()}
    lacking = {extra: names for extra, names in lacking.items() if names}
    have = [f"{name} {version}" for names in found.values() for name, version in names.items() if version]
    text = ", ".join(dict.fromkeys(have)) or "none"
    if not lacking:
        return Finding("ok", text, facts={"extras": found})
    text += "; not there: " + ", ".join(f"{' and '.join(names)} (extra {extra})" for extra, names in lacking.items())
    command = f"python -m pip install 'lowsparse[{','.join(lacking)}]'"
    return Finding("note", text, f"to have all optional packages: {command}", {"extras": found})


def blas() -> Finding:
    """The dense linear algebra of NumPy and SciPy."""
    pools = [pool for pool in threadpool_info() if pool.get("user_api") == "blas"]
    if not pools:
        return Finding("note", "not one that tells its name and threads (nothing wrong with that)", facts={"pools": []})
    said = [f"{pool['internal_api']} {pool.get('version')}, {counted(pool['num_threads'], 'thread')}" for pool in pools]
    text = "; ".join(dict.fromkeys(said)) + "; a solve uses one of them and leaves the cores to the sweeps"
    keys = ("internal_api", "version", "num_threads", "architecture", "threading_layer")
    return Finding("ok", text, facts={"pools": [{key: pool.get(key) for key in keys} for pool in pools]})


def backend() -> Finding:
    """Which backend a solve runs on, and why."""
    asked, why = os.environ.get("LOWSPARSE_BACKEND") or "auto", sweeps.available()["native"]
    facts = {"asked": asked, "available": sweeps.available(), "compiler": _compiler()}
    if asked not in ("auto", *sweeps.BACKENDS):
        choice = ", ".join(["auto", *sweeps.BACKENDS])
        return Finding(
            "error", f"LOWSPARSE_BACKEND={asked} is unknown", f"set LOWSPARSE_BACKEND to one of {choice}", facts
        )
    if asked == "cuda":
        return _on_gpu(facts)
    if why is None:
        facts["used"] = "native" if asked == "auto" else asked
        if asked == "numpy":
            unset = "unset LOWSPARSE_BACKEND to run on the compiled core, which is many times faster"
            return Finding("note", "numpy, as LOWSPARSE_BACKEND says, though the compiled core is there", unset, facts)
        return Finding(
            "ok", "native, the compiled core" + ("" if asked == "auto" else ", as LOWSPARSE_BACKEND says"), facts=facts
        )
    facts["used"] = None if asked == "native" else "numpy"
    text = f"numpy, which works but is many times slower: {one_line(why)}"
    if asked == "native":
        return Finding("error", f"none: LOWSPARSE_BACKEND=native, but {one_line(why)}", _repair(), facts)
    if asked == "numpy":
        return Finding("note", "numpy, as LOWSPARSE_BACKEND says; the compiled core is not there", facts=facts)
    broken = _core_files() or _compiler()  # it was built and does not load, or it could have been built
    return Finding("error" if broken else "warning", text, _repair(), facts)


def _on_gpu(facts: dict[str, Any]) -> Finding:
    """Whether LOWSPARSE_BACKEND=cuda can be followed."""
    why = facts["available"]["cuda"]
    if why is None:
        return Finding("ok", "cuda, a GPU, as LOWSPARSE_BACKEND says", facts={**facts, "used": "cuda"})
    unset = "unset LOWSPARSE_BACKEND to run on the processor"
    return Finding("error", f"none: LOWSPARSE_BACKEND=cuda, but {one_line(why)}", unset, {**facts, "used": None})


def _repair() -> str:
    """How to get the compiled core."""
    again = "python -m pip install --force-reinstall --no-deps lowsparse"
    if files := _core_files():
        return f"{files[0]} is there but does not load (another Python or system, or damaged): {again}"
    if found := _compiler():
        return (
            f"there is a compiler ({found}): reinstall to build the core, and look at what the build says: {again} -v"
        )
    return f"running on NumPy: install a C++17 compiler (g++, clang++ or Visual Studio), then {again}"


def _core_files() -> list[str]:
    folder = Path(__file__).resolve().parents[1]
    return sorted(str(path) for path in folder.glob("_core.*") if path.suffix in (".so", ".pyd"))


def _compiler() -> str | None:
    wanted = os.environ.get("CXX")
    return next((path for name in ([wanted] if wanted else COMPILERS) if (path := shutil.which(name))), None)


def agreement() -> Finding:
    """Whether the compiled core computes what the NumPy version computes."""
    if sweeps.available()["native"] is not None:
        return Finding("note", "there is no compiled core to compare with NumPy")
    problem = synthetic(60, 50, rank=3, density=0.6, outliers=0.1, random_state=1)
    U = qf(np.random.default_rng(2).standard_normal((60, 3)))
    ours, oracle = (_sweep(sweeps.open_sweep(problem.M, name), problem.M, U)() for name in ("native", "numpy"))
    off = max(float(np.max(np.abs(a - b))) for a, b in ((ours.V, oracle.V), (ours.G, oracle.G)))
    facts = {"difference": off}
    if not off <= AGREE:
        text = f"the compiled core and NumPy differ by {off:.1e}: results cannot be trusted"
        return Finding("error", text, "set LOWSPARSE_BACKEND=numpy, and report this with the output of --json", facts)
    return Finding("ok", f"the compiled core agrees with NumPy (to {off:.0e})", facts=facts)


def threads() -> Finding:
    """How many threads a sweep uses, and who said so."""
    name = next((name for name in native.THREADS if os.environ.get(name, "").split(",")[0].strip()), None)
    try:
        count = native.num_threads()
    except ValueError as error:
        return Finding(
            "error", one_line(str(error)), f"set {name} to a number of 1 or more, or unset it", {"from": name}
        )
    allowed = _allowed_cores()
    facts = {"threads": count, "from": name or "cores", "cores": os.cpu_count(), "limit": allowed}
    text = f"{counted(count, 'thread')}, " + (f"as {name} says" if name else "as many as cores this process may run on")
    if allowed is not None and count > max(1, round(allowed)):
        advice = f"set LOWSPARSE_NUM_THREADS={max(1, round(allowed))}: more threads than that wait for each other"
        return Finding("warning", f"{text}; but it may use the time of {allowed:g} cores only", advice, facts)
    return Finding("ok", f"{text} (the machine has {os.cpu_count()})", facts=facts)


def _allowed_cores() -> float | None:
    """The limit of a container, in cores; None if there is none."""
    parts = _read(GROUPS / "cpu.max").split() or [
        _read(GROUPS / "cpu" / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    ]
    quota, period = (float(part) if part.isdecimal() else 0.0 for part in parts[:2])
    return quota / period if quota and period else None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def instructions() -> Finding:
    """The instruction set of the kernels."""
    if sweeps.available()["native"] is not None:
        return Finding("note", "no compiled core, so none is chosen")
    known, asked = list(importlib.import_module("lowsparse._core").instruction_sets()), os.environ.get("LOWSPARSE_ISA")
    facts = {"used": asked or known[0], "available": known, "asked": asked}
    if asked and asked not in known:
        choice = f"unset LOWSPARSE_ISA, or set it to one of {', '.join(known)}"
        return Finding("error", f"LOWSPARSE_ISA={asked} is not to be had here", choice, facts)
    if asked and asked != known[0]:
        unset = f"unset LOWSPARSE_ISA to run on {known[0]}, which is faster"
        return Finding("note", f"{asked}, as LOWSPARSE_ISA says", unset, facts)
    return Finding("ok", f"{known[0]}, the best of {', '.join(known)} that the processor has", facts=facts)


def memory() -> Finding:
    """How much there is, and how much is free."""
    known = dict(line.split(":", 1) for line in _read(Path("/proc/meminfo")).splitlines() if ":" in line)
    total, free = (_bytes(known.get(name, "")) for name in ("MemTotal", "MemAvailable"))
    if total is None and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [_read(GROUPS / "memory.max"), _read(GROUPS / "memory" / "memory.limit_in_bytes")]
    limit = min((int(text) for text in limits if text.isdecimal()), default=None)
    if total is None:
        return Finding("note", "not known on this system")
    facts = {"total": total, "available": free, "limit": limit if limit is not None and limit < total else None}
    text = f"{total / 2**30:.1f} GiB" + ("" if free is None else f", {free / 2**30:.1f} GiB of them free")
    if facts["limit"] is not None:
        text += f"; this process may use {facts['limit'] / 2**30:.1f} GiB"
    return Finding("ok", text, facts=facts)


def _bytes(text: str) -> int | None:
    """
    >>> _bytes("  16 kB")
    16384
    """
    number, _, unit = text.strip().partition(" ")
    return int(number) * (1024 if unit == "kB" else 1) if number.isdecimal() else None


def gpu() -> Finding:
    """Whether CuPy is there, and what it sees."""
    if find_spec("cupy") is None:
        return Finding(
            "note", "CuPy is not installed; everything runs on the processor", facts={"cupy": None, "devices": []}
        )
    try:
        cupy = importlib.import_module("cupy")
        runtime = cupy.cuda.runtime
        names = [_name(runtime.getDeviceProperties(k)["name"]) for k in range(runtime.getDeviceCount())]
    except Exception as error:
        said = one_line(str(error)) or type(error).__name__
        advice = "install the CuPy that fits the driver (cupy-cuda12x, say), or uninstall it"
        return Finding(
            "warning", f"CuPy is installed, but finds no device: {said}", advice, {"cupy": None, "devices": []}
        )
    why = sweeps.available()["cuda"]
    facts = {"cupy": cupy.__version__, "devices": names, "reason": why}
    text = f"CuPy {cupy.__version__} sees {', '.join(names) or 'no device'}"
    if why is not None:
        return Finding("warning", f"{text}, but backend='cuda' cannot run: {one_line(why)}", facts=facts)
    used = f"data that are there are solved there, {WORTH:,} entries or more too, others with backend='cuda'"
    return Finding("ok", f"{text}; {used}", facts={**facts, "from_entries": WORTH})


def _name(name: bytes | str) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def speed() -> Finding:
    """One sweep over a million entries against one product of SciPy, on one thread and on all."""
    problem = synthetic(SIDE, SIDE, rank=RANK, density=SHARE, outliers=0.1, random_state=0)
    M = problem.M
    rng = np.random.default_rng(1)
    U, V = qf(rng.standard_normal((SIDE, RANK))), rng.standard_normal((SIDE, RANK))
    A = sparse.csc_array((M.values, M.rows, M.indptr), shape=M.shape)
    opened = sweeps.open_sweep(M)
    runs: dict[str, Callable[[], Any]] = {"scipy": lambda: A @ V}
    count = native.num_threads() if opened.name == "native" else 1
    for number in dict.fromkeys((1, count)):
        own: Any = sweeps.open_sweep(M, opened.name)
        own.threads = number
        runs[str(number)] = _sweep(own, M, U)
    best = _race(runs)
    one, most, product = best["1"], best[str(count)], best["scipy"]
    facts = {"entries": M.nnz, "rank": RANK, "backend": opened.name, "threads": count}
    facts |= {"one_thread": one, "all_threads": most, "scipy_product": product}
    text = f"one sweep over {M.nnz:,} entries (rank {RANK}): {duration(one)} on one thread"
    text += f", {duration(most)} on {count}" if count > 1 else ""
    text += f"; a sparse product of SciPy: {duration(product)}"
    return Finding(*_judged(opened.name, one / product, one / most, count, text), facts)


def _judged(name: str, products: float, gain: float, count: int, text: str) -> tuple[Level, str, str]:
    """Level, text and advice for a sweep that takes so many products, and gains so much by all threads.

    >>> _judged("native", 2.5, 1.05, 2, "")[2]
    '2 threads are no faster than one: other work on the machine, or a limit of cores'
    """
    if name != "native":
        slow = f"running on NumPy: a sweep takes {products:.0f} products, with the compiled core two to four"
        return "warning", text, slow + "; see the advice on the backend"
    if products > USUAL:
        slow = f"a sweep takes {products:.0f} products instead of two to four: "
        return "warning", text, slow + "other work on the machine, or a processor without AVX2 (see instructions)"
    if count > 1 and gain < FASTER:
        return (
            "warning",
            text,
            f"{count} threads are no faster than one: other work on the machine, or a limit of cores",
        )
    return "ok", text, ""


def _sweep(opened: sweeps.Sweep, M: ObservedMatrix, U: sweeps.Float) -> Callable[[], sweeps.Swept]:
    S, S_out = np.zeros_like(M.values), np.empty_like(M.values)
    return lambda: opened.sweep(U, S, S_out, Proximal(Rule.AMANPG, gamma=0.1))


def _race(runs: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The shortest time of each; they take turns, so that other work on the machine meets all of them."""
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
