"""What the tests share: small problems, the paper's formulas on dense arrays, and Python in a process of its own."""

import dataclasses
import html
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:  # workers side by side: threads of BLAS would wait for each other's processors
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

import hypothesis
import numpy as np
import pytest

import lowsparse as ls
from lowsparse.entries.frames import Frames
from lowsparse.linalg.arrays import on_device
from lowsparse.linalg.grassmann import qf
from lowsparse.places.decide import available
from lowsparse.places.gpu.matrix import DeviceMatrix
from lowsparse.solve import _sizes
from lowsparse.solvers import Problem

hypothesis.settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("untimed")

# for processes of their own: this package, and these helpers
PATH = os.pathsep.join(map(str, (Path(ls.__file__).resolve().parents[1], Path(__file__).parent)))
PAPER = ["amanpg", "amanpgc", "manpg", "manpgc"]
OWN = [*PAPER, "ladder"]  # all methods: test_methods.py
ANYWHERE = [name for name in ls.solvers.names() if ls.solvers.from_name(name).runs_anywhere]


# ---------------------------------------------------------------------- problems


def orthonormal(m, r, seed=0):
    return qf(np.random.default_rng([7, seed]).standard_normal((m, r)))


def tangent_part(U, H):
    """The projection of H onto the tangent space at U."""
    return H - U @ (U.T @ H)


def slow_decay(m, n, density=0.5, noise=1.0, seed=0):
    """Singular values that fall off slowly, entries of root mean square 2, and noise: there is no exact rank."""
    rng = np.random.default_rng([2027, seed])
    U, V = (np.linalg.qr(rng.standard_normal((k, 20)))[0] for k in (m, n))
    s = 0.75 ** np.arange(20)
    L = (U * (2 * s * np.sqrt(m * n / np.sum(s**2)))) @ V.T
    X = L + noise * rng.standard_normal(L.shape)
    return ls.ObservedMatrix.from_dense(np.where(rng.random(L.shape) < density, X, np.nan))


def robust_problem(m=60, n=50, rank=3, density=0.6, outliers=0.1, seed=101, **kind):
    return ls.datasets.synthetic(m, n, rank=rank, density=density, outliers=outliers, random_state=seed, **kind)


def conditioned(key, m, n, rank, density, outliers=0.0, *, size=3.0, condition=1.0, noise=0.0):
    """Entries of root mean square 1, singular values from 1 to 1 / condition. (M, L, is outlier).

    Outliers are added, uniform of the standard deviation `size`.
    """
    rng = np.random.default_rng(key)
    U, V = (np.linalg.qr(rng.standard_normal((k, rank)))[0] for k in (m, n))
    s = np.geomspace(1, 1 / condition, rank)
    s *= np.sqrt(m * n / np.sum(s**2))
    i, j = np.nonzero(rng.random((m, n)) < density)
    x = np.einsum("kr,r,kr->k", U[i], s, V[j]) + noise * rng.standard_normal(i.size)
    wrong = rng.random(i.size) < outliers
    x[wrong] += size * rng.uniform(-np.sqrt(3), np.sqrt(3), wrong.sum())
    order = np.lexsort((i, j))
    return ls.ObservedMatrix.from_coo(i, j, x, (m, n)), ls.LowRank(U * s, V.T), wrong[order]


def on_grid(M, values):
    """Values on Ω as a dense matrix, zero elsewhere."""
    grid = np.zeros(M.shape)
    grid[M.rows, M.columns_of_entries()] = values
    return grid


def on_entries(M, grid):
    return np.asarray(grid)[M.rows, M.columns_of_entries()]


def relative(found, truth):
    return found.error(truth, relative=True)


def assert_close(found, expected, tol, scale=None):
    """|found - expected| <= tol times `scale`, by default the largest of the expected numbers."""
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    assert found.shape == expected.shape
    scale = np.max(np.abs(expected), initial=0.0) if scale is None else scale
    np.testing.assert_allclose(found, expected, rtol=0, atol=tol * scale)


# ---------------------------------------------------------------------- the paper on dense arrays


def soft(A, threshold):
    return np.sign(A) * np.maximum(np.abs(A) - threshold, 0.0)


def dense_V(U, Y, C, lambda2):
    """(Compute-V), with the Kronecker products written out; Y = C ∘ (M - S)."""
    r, n = U.shape[1], C.shape[1]
    wide = np.kron(np.eye(n), U)
    A = wide.T @ np.diag(((1 - lambda2) * C).ravel(order="F")) @ wide + lambda2 * np.eye(r * n)
    return np.linalg.solve(A, (U.T @ (C * Y)).ravel(order="F")).reshape(r, n, order="F")


def dense_f(U, V, Y, C, lambda2):
    """The smooth part of (ourRMC)."""
    X = U @ V
    return 0.5 * np.sum((C * (X - Y)) ** 2) + 0.5 * lambda2 * np.sum(((1 - C) * X) ** 2)


def dense_gradient(U, V, Y, C, lambda2):
    """(grad_Uf)."""
    return ((1 - lambda2) * C * (U @ V - Y) - lambda2 * C * Y) @ V.T + lambda2 * U @ (V @ V.T)


# ---------------------------------------------------------------------- the waist


COMPILED = ["native-baseline", "native-v3", "native-v4", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=["numpy", *COMPILED])
def backend(request, monkeypatch):
    """Every way to run a sweep that this machine has, the oracle included."""
    return use_backend(request.param, monkeypatch)


@pytest.fixture(params=COMPILED)
def compiled(request, monkeypatch):
    """Every way to run a sweep that this machine has, but for the oracle."""
    return use_backend(request.param, monkeypatch)


def use_backend(param, monkeypatch):
    name, _, isa = param.partition("-")
    if available()[name] is not None:
        pytest.skip(available()[name])
    if isa:
        from lowsparse import _core

        if isa not in _core.instruction_sets():
            pytest.skip(f"this processor does not have {isa}")
        monkeypatch.setenv("LOWSPARSE_ISA", isa)
    return name


@pytest.fixture
def native():
    if available()["native"] is not None:
        pytest.skip(available()["native"])
    return "native"


def smooth_value(sweep, U, S, lambda2=0.0):
    """f(U, S), by a sweep of its own."""
    return sweep.sweep(U, S, None, ls.sweeps.Proximal(ls.sweeps.Rule.FIT, lambda2=lambda2)).smooth_in


def opened(M, backend="numpy"):
    return FromHost(M) if backend == "cuda" else M.open_sweep(backend)


class FromHost:
    """The sweep on a GPU, for arrays of NumPy: what it is given is copied there, and what it gives is copied back."""

    def __init__(self, M):
        self.sweep_there, self.host = DeviceMatrix.from_host(M).open_sweep(), "auto"

    def __getattr__(self, name):
        import cupy

        def call(*given, **options):
            sent = [_sent(cupy, part) for part in given]
            found = getattr(self.sweep_there, name)(*sent, **{key: _sent(cupy, part) for key, part in options.items()})
            for ours, theirs in zip(given, sent, strict=True):  # what was written to
                for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (ours, theirs)), strict=True):
                    if isinstance(a, np.ndarray) and a.flags.writeable:
                        a[...] = b.get()
            if dataclasses.is_dataclass(found):
                kinds = ls.sweeps.SweepResult, ls.sweeps.Regression  # of which there are late ones
                kind = next((kind for kind in kinds if isinstance(found, kind)), type(found))
                return kind(**{f.name: _back(getattr(found, f.name)) for f in dataclasses.fields(kind)})
            return _back(found)

        return call


def _sent(cupy, part):
    if isinstance(part, tuple):
        return type(part)(*(_sent(cupy, p) for p in part))
    return cupy.asarray(part) if isinstance(part, np.ndarray) else part


def _back(part):
    return part.get() if on_device(part) else part


def as_problem(M, rank, *, start=None, given=True, tol=1e-8, backend="numpy"):
    """What `solve` hands to a method: with a start that the user has `given`, or one for those who ask."""
    first = orthonormal(M.shape[0], rank, 5) if start is None else start
    unit, scale, largest, clip = _sizes(M)
    return Problem(
        M=M,
        rank=rank,
        sweep=opened(M, backend),
        start=lambda: first,
        start_given=given,
        tol=tol,
        unit=unit,
        scale=scale,
        largest=largest,
        clip=clip,
        seed=3,
    )


# ---------------------------------------------------------------------- larger than memory

SMALL = 60 * 38_000  # bytes of memory in which 37,500 entries are in several pieces


@pytest.fixture(scope="session")
def noisy():
    """A problem with noise and outliers, in memory."""
    return ls.datasets.synthetic(300, 250, rank=2, density=0.5, outliers=0.1, noise=0.02, random_state=3)


@pytest.fixture(scope="session")
def stored(noisy, tmp_path_factory):
    """And its matrix on disk."""
    made = ls.StoredMatrix.build(noisy.M, tmp_path_factory.mktemp("stored"), memory=SMALL)
    assert len(made.pieces) > 2
    return made


# How often the processes of a cluster look at themselves: by default so often that waiting takes a tenth of a core.
RARELY = {
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.admin.tick.interval": "500ms",
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.worker.profile.enabled": False,
}


@pytest.fixture(scope="session")
def client():
    """A Dask cluster of two workers, the same for all tests: to start one takes a second."""
    distributed = pytest.importorskip("distributed", reason="needs the extra `dask`")
    import dask

    with (
        dask.config.set(RARELY),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as connected,
    ):
        yield connected


def read_picture(path):
    """The picture in a file."""
    return next(iter(Frames(path))).picture


# ---------------------------------------------------------------------- processes


def interruptible(command, cwd):
    """Start a process that Ctrl-C can stop, as this one does not ignore it."""
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def python(code, *, timeout=60, check=True, **environment):
    """Run code in a fresh interpreter that sees this package."""
    env = {**os.environ, "PYTHONPATH": PATH, **environment}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=timeout)
    if check:
        assert done.returncode == 0, done.stderr
    return done


def on_terminal(words, *, cwd, width=60, stdout=None, **environment):
    """Run with stderr, and stdout unless it is given, on a terminal of that width; what was shown, and the process."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    env |= {"PYTHONPATH": PATH, "TERM": "xterm", **environment}
    child = subprocess.Popen(words, cwd=cwd, env=env, stdout=stdout or theirs, stderr=theirs, text=True)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    child.wait(timeout=60)
    return shown.decode(), child


def repeated_command(report):
    """The words of the command in a report."""
    within = Path(report).read_text("utf-8").split('<code id="command">')[1].split("</code>")[0]
    return shlex.split(html.unescape(re.sub("<[^>]*>", "", within)))


@pytest.fixture
def command(monkeypatch, capsys):
    """The command line in this process: exit code, stdout, stderr."""

    def call(*arguments):
        from lowsparse.cli import main

        monkeypatch.setattr(sys, "argv", ["lowsparse", *map(str, arguments)])
        monkeypatch.setattr("lowsparse.cli.progress._print", lambda line: None)  # on a busy machine it would say more
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        return left.value.code or 0, said.out, said.err

    return call


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium, with its console and its network in view."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs Selenium: python -m pip install selenium")
    from selenium.webdriver.chrome.service import Service

    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not program or not driver:
        pytest.skip("needs Chromium and its driver (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=Service(driver))
    preferred = {"prefers-color-scheme": "light", "prefers-reduced-motion": "reduce"}
    features = [{"name": name, "value": value} for name, value in preferred.items()]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    yield opened
    opened.quit()
