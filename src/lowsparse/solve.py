"""`solve`: the functional entry, and the only iteration loop (stopping, trace, callback, checkpoint)."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from threadpoolctl import ThreadpoolController

from . import checkpoint as checkpoints
from .diagnosis import Diagnosis, counted
from .entries.observed import ObservedMatrix
from .linalg.arrays import beside, on_device
from .linalg.lowrank import LowRank
from .linalg.scale import LARGEST, robust_scale
from .places.decide import (
    check_in_pieces,
    check_on_gpu,
    closed_on_error,
    leaving_room,
    placed,
    room_for,
)
from .places.gpu.matrix import DeviceMatrix, DeviceOutliers, held_on_device
from .places.gpu.streamed import StreamedMatrix
from .places.pieces.coefficients import laid_aside
from .places.pieces.outliers import StoredOutliers
from .result import Result, Status, Trace
from .robust.sketch import Sample
from .solvers import Ladder, Problem, Solver, State, from_name
from .solvers.base import Outcome
from .solvers.start import generator, starting_subspace
from .support.format import percent
from .sweeps import enough, open_sweep

__all__ = ["Progress", "diagnose", "outliers_at", "solve"]

ADVICE = {
    Status.MAX_ITER: "not converged after {n} iterations: raise max_iter or loosen tol",
    Status.MAX_TIME: "not converged after {s:.3g} s: raise max_time, or go on from a checkpoint",
    Status.STALLED: "no step decreases the objective any more, though the method is not done: the result is as good as "
    "the arithmetic allows, the rank is too high for the data, or a given t_U is far too large",
    Status.DIVERGED: "the iteration ran into numbers that are not finite: give a smaller step (of the paper's methods: "
    "t_U or step, and leave backtracking on)",
    Status.STOPPED_BY_CALLBACK: "the callback asked to stop",
}
CHECKPOINT_SECONDS = 30.0  # between two writes of a checkpoint


@dataclass(frozen=True)
class Progress:
    """What a callback is given after every iteration; valid during the call.

    >>> import lowsparse as ls
    >>> seen = []
    >>> def watch(progress):
    ...     seen.append(progress["objective"])
    ...     return progress.iteration == 3  # True stops
    >>> ls.solve([[1.0, 2.0], [3.0, 4.1], [2.0, 3.0]], rank=1, callback=watch).status.value, len(seen)
    ('stopped_by_callback', 3)
    """

    iteration: int
    seconds: float
    max_iter: int
    row: dict[str, float]  # of the trace: objective, gamma, dS, dU, change, ...
    _lowrank: Callable[[], LowRank]

    def __getitem__(self, name: str) -> float:
        return self.row[name]

    def lowrank(self) -> LowRank:
        """The low-rank part at this point; costs one pass over the data."""
        return self._lowrank()


def solve(
    M: ObservedMatrix | ArrayLike | Any,
    rank: int | str | None,
    *,
    max_rank: int | None = None,
    method: str | Solver = "auto",
    max_iter: int = 500,
    max_time: float | None = None,
    tol: float = 1e-8,
    backend: str = "auto",
    memory: int | str | None = None,
    client: Any = None,
    start: str | ArrayLike | LowRank | Result = "svd",
    random_state: int | np.random.Generator | None = 0,
    callback: Callable[[Progress], object] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> Result:
    """Recover a low-rank matrix from entries that are partly missing and partly wrong: M = L + S on Ω.

    Parameters
    ----------
    M
        An `ObservedMatrix` or anything one can be made from: a dense array with NaN where nothing is known, a masked
        array, a scipy.sparse matrix (its stored entries are the observed ones).
    rank
        Of L, from 1 to min(m, n); or "auto": ranks are tried one after the other, as long as entries kept aside are
        predicted better, and for data with noise a path of decreasing shrinkage too. None for the convex methods, which
        find it themselves.
    max_rank
        The largest to try if `rank` is "auto"; None: what the number of entries allows, at most 50.
    method
        A name (`lowsparse.solvers.names()`), or a configured solver such as ``AManPGC(gamma0=10)``.
    max_iter, max_time, tol
        Where to stop: iterations, seconds, and the accuracy relative to the size of the data. ``tol=0`` runs to
        `max_iter`.
    backend
        "auto", "native" (the compiled core) or "numpy", in memory; "cuda", on a GPU; "outofcore", on disk; "dask", on a
        cluster. What is on a GPU already is solved there, and the result stays there (see `Result.to_host`). "auto"
        takes the compiled core, or for 100 million entries and more a GPU, if there is one with room for them.
    memory
        Of "outofcore": what the solve may take, such as "1GB". Of "cuda": what it may take of the GPU; data that need
        more stay where they are, and pass through it in pieces.
    client
        Of "dask": a `dask.distributed.Client`; None: the current one, else a new one on this machine.
    start
        U⁰: "svd" (of the observed entries, zeros elsewhere), "random", an m x rank matrix, a `LowRank` or a `Result`.
    random_state
        A seed or a generator. The same input and seed give the same bits, whatever the number of threads.
    callback
        Called with a `Progress` after every iteration; returning True stops.
    checkpoint, resume
        A file to save the state to (every half minute, at the end, and on Ctrl-C), and one to go on from.

    Returns
    -------
    Result
        With ``L`` (a `LowRank`), ``S`` (a sparse array of the outliers), ``status``, ``message``, ``trace`` and more.

    Examples
    --------
    >>> import numpy as np, lowsparse as ls
    >>> rng = np.random.default_rng(7)
    >>> truth = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 50))
    >>> X = truth.copy()
    >>> X[rng.random(X.shape) < 0.3] = np.nan  # holes
    >>> X[rng.random(X.shape) < 0.05] += 10.0  # gross errors
    >>> r = ls.solve(X, rank=3)
    >>> r.converged, bool(np.allclose(r.L.to_dense(), truth, atol=1e-5))
    (True, True)
    """
    there = held_on_device(M)
    given_by_user = M if there is None else there
    solver = from_name(method) if isinstance(method, str) else method
    if not isinstance(solver, Solver):
        called = f"; did you mean {method.__name__}()?" if isinstance(method, type) else ""
        raise TypeError(f"method must be a name or a solver object, not {method!r}{called}")
    solver.check_types()
    found = placed(given_by_user, backend, memory=memory, client=client, method=solver.name)
    M = cast(ObservedMatrix, found)  # or what is used like one
    rank_is_bound = isinstance(rank, str) and isinstance(solver, Ladder)
    if isinstance(rank, str):
        if rank != "auto":
            raise ValueError(f"rank must be a whole number or 'auto', not {rank!r}")
        if not (isinstance(start, str) and start == "svd"):
            raise ValueError("a start has a rank: give that rank, or leave the start out to have one chosen")
        bound = min(M.shape) if max_rank is None else M.check_rank(max_rank)
        if isinstance(solver, Ladder):
            solver, rank = dataclasses.replace(solver, choose_rank=True), bound
        else:  # our own method chooses
            climb = Ladder(shrink=False)
            rank = solve(M, "auto", max_rank=max_rank, method=climb, max_time=max_time, backend=backend).L.rank
    elif max_rank is not None:
        raise ValueError('max_rank is for rank="auto"; a given rank is taken as it is')
    if rank is None and not solver.finds_rank:
        raise ValueError(f"{solver.name} needs a rank: give one, or rank='auto' to have it chosen")
    rank = min(M.shape) if rank is None else solver.check_rank(M, rank)
    if isinstance(M, DeviceMatrix | StreamedMatrix):
        check_on_gpu(solver.name)
    elif hasattr(M, "backend"):
        check_in_pieces(solver.name)
        M = leaving_room(M, min(rank, 10) if rank_is_bound else rank)
    if solver.full and M.nnz < M.shape[0] * M.shape[1]:
        raise ValueError(
            f"{solver.name} needs every entry, and {M.shape[0] * M.shape[1] - M.nnz} are missing: choose a method that "
            "takes data with holes, such as the default"
        )
    if isinstance(max_iter, bool) or not isinstance(max_iter, int | np.integer) or max_iter < 1:
        raise ValueError(f"max_iter must be a whole number of 1 or more, not {max_iter!r}")
    if max_time is not None and not max_time > 0:
        raise ValueError(f"max_time must be positive seconds, or None, not {max_time!r}")
    if not isinstance(tol, int | float | np.integer | np.floating) or not 0 <= tol < np.inf:
        raise ValueError(f"tol must be a number of 0 or more, not {tol!r}")
    if callback is not None and not callable(callback):
        raise TypeError("callback must be a function of one argument")

    rng = generator(random_state)
    seed = int(rng.integers(2**63))

    began = time.perf_counter()
    # The dense algebra above the waist is small. One thread makes it independent of their number, and leaves the
    # cores to the sweep (OpenBLAS threads spin between calls).
    with one_blas_thread, closed_on_error(None if M is given_by_user else M), room_for(M):
        sweep = open_sweep(M, backend)
        unit, scale, largest, clip = _sizes(M)
        given = not (isinstance(start, str) and start == "svd")
        if given and not solver.takes_start:
            raise ValueError(f"{solver.name} begins at zero, wherever it is told to: leave the start out")
        if resume is not None:
            start = "random"  # the checkpoint has a better one

        def first_subspace() -> NDArray[np.float64]:
            clipped = M if np.isinf(clip) else M.with_values(np.clip(M.values, -clip, clip))
            own = sweep if clipped is M else open_sweep(clipped, sweep.name)
            U: NDArray[np.float64] = beside(starting_subspace(start, own, M.shape[0], rank, rng), M.values)
            return U

        problem = Problem(M, rank, sweep, first_subspace, given, float(tol), unit, scale, largest, clip, seed)
        solver.check(problem)
        loop = _Loop(problem, solver, int(max_iter), max_time, callback, checkpoint, began)
        if resume is not None:
            loop.resume(resume)
        status, reason = loop.run()
        outcome = solver.finish(problem, loop.state)
        data, flagged, S = (M, outcome.flagged, outcome.S)
        if isinstance(M, StreamedMatrix):
            data, flagged, S = M.brought_back(flagged, S)
    L = laid_aside(M, outcome.L)
    n_iter, seconds = loop.state.iteration, loop.seconds()
    result = Result(
        L=L,
        S=outliers_at(data, flagged, S),
        status=status,
        message=reason or _advice(status, solver).format(n=n_iter, s=seconds),
        method=solver.name,
        n_iter=n_iter,
        objective=outcome.objective,
        stationarity=outcome.stationarity,
        seconds=seconds,
        backend=sweep.name,
        M=data,
        flagged=flagged,
        noise=_noise(data, L, sweep.name) if outcome.noise is None else outcome.noise,
        held_out=outcome.held_out,
        next_noise=outcome.next_noise,
        trace=loop.trace,
        notes=_notes(data, L.rank, flagged, outcome),
    )
    return result.to_host() if there is None else result


def diagnose(
    M: ObservedMatrix | ArrayLike | Any,
    rank: int | None = None,
    *,
    backend: str = "auto",
    memory: int | str | None = None,
    client: Any = None,
) -> Diagnosis:
    """Say whether a low-rank matrix can be recovered from these entries, and what stands in the way.

    The data, anything `solve` takes, are solved with the default method; without a `rank` it is chosen. The rest is as
    in `solve`.

    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(100, 90, rank=3, density=0.5, outliers=0.1, noise=0.01, random_state=1)
    >>> d = ls.diagnose(problem.M)
    >>> d.rank, d.recovered, 0.008 < d.noise < 0.012
    (3, True, True)
    """
    return solve(M, "auto" if rank is None else rank, backend=backend, memory=memory, client=client).diagnostics


class _Loop:
    """The iteration: it owns the clock, the trace, the callback and the checkpoint; the solver owns the state."""

    def __init__(
        self,
        problem: Problem,
        solver: Solver,
        max_iter: int,
        max_time: float | None,
        callback: Callable[[Progress], object] | None,
        checkpoint: str | os.PathLike[str] | None,
        began: float,
    ) -> None:
        self.problem, self.solver = problem, solver
        self.max_iter, self.max_time = max_iter, max_time
        self.callback, self.checkpoint = callback, checkpoint
        self.began = self.saved = began
        self.elsewhere = 0.0  # seconds spent in callbacks
        self.state: State = solver.init(problem)
        self.trace = Trace()

    def resume(self, path: str | os.PathLike[str]) -> None:
        self.state, self.trace = checkpoints.load(path, self.problem, self.solver, self.state)
        if self.state.iteration:
            self.began -= float(self.trace["seconds"][-1])

    def seconds(self) -> float:
        return time.perf_counter() - self.began - self.elsewhere

    def run(self) -> tuple[Status, str]:
        if self.checkpoint is not None:  # before any work: a file that cannot be written is an error now
            checkpoints.check_writable(self.checkpoint)
        try:
            ended = self.ended()
            while ended is None:
                state = self.solver.advance(self.problem, self.state)
                self.trace.append(iteration=state.iteration, seconds=self.seconds(), **state.row)
                self.state = state
                stop = self.call_back()
                ended = self.ended() or ((Status.STOPPED_BY_CALLBACK, "") if stop else None)
                if time.perf_counter() - self.saved > CHECKPOINT_SECONDS:
                    self.save()
            return ended
        finally:  # also on Ctrl-C: the state is that of the last whole iteration
            self.save()

    def ended(self) -> tuple[Status, str] | None:
        state, tol = self.state, self.problem.tol
        if state.failure:
            return Status(state.failure), state.advice
        if tol > 0 and state.finished:
            return Status.CONVERGED, state.finished
        if tol > 0 and state.accuracy <= tol:
            return Status.CONVERGED, (
                f"came to rest: the accuracy {state.accuracy:.2g} is at most tol = {tol:g}; whether another L explains "
                "more of the entries was not tested"
            )
        if state.iteration >= self.max_iter:
            return Status.MAX_ITER, "" if tol else f"ran {state.iteration} iterations, as tol = 0 asks"
        if self.max_time is not None and time.perf_counter() - self.began >= self.max_time:
            return Status.MAX_TIME, ""
        return None

    def call_back(self) -> bool:
        if self.callback is None:
            return False
        called = time.perf_counter()
        state = self.state
        stop = self.callback(
            Progress(
                state.iteration,
                self.seconds(),
                self.max_iter,
                state.row,
                lambda: self.solver.lowrank(self.problem, state),
            )
        )
        self.elsewhere += time.perf_counter() - called
        return bool(stop)

    def save(self) -> None:
        if self.checkpoint is not None and self.state.iteration:
            # an interruption may have come after a row was added, and before its state was taken over
            rows = {name: self.trace[name][: self.state.iteration] for name in self.trace}
            try:
                checkpoints.save(self.checkpoint, self.problem, self.solver, self.state, Trace(rows))
            except OSError as error:  # a full disk must not cost the result
                warnings.warn(f"the checkpoint could not be written: {error}", RuntimeWarning, stacklevel=4)
        self.saved = time.perf_counter()


class _OneBlasThread:
    """BLAS on one thread while any solve runs: the limit is the process's; the first in sets, the last out lifts it.

    The libraries, those of NumPy and SciPy, are looked for once, which takes milliseconds.
    """

    def __init__(self) -> None:
        self.lock, self.inside = threading.Lock(), 0
        self.controller: Any = None
        self.limits: Any = None

    def __enter__(self) -> None:
        with self.lock:
            if not self.inside:
                self.controller = self.controller or ThreadpoolController()
                self.limits = self.controller.limit(limits=1, user_api="blas")
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside:
                self.limits.restore_original_limits()


one_blas_thread = _OneBlasThread()


def _sizes(M: ObservedMatrix) -> tuple[float, float, float, float]:
    """Median and root mean square, the largest magnitude, and `clip`, without a copy of all the values.

    The median is that of a sample's magnitudes, zeros left out. One wild entry would set the root mean square, and the
    start, on its own: entries beyond `clip`, 20 medians, count as that many; if there are none, `clip` is infinite.
    """
    unit = M.median_magnitude()
    clip = 20 * unit if unit else np.inf
    unit = unit or 1.0
    largest, squares = M.magnitudes(clip)
    size = float(np.sqrt(squares / M.nnz))
    if largest > 0 and not (1 / LARGEST < largest < LARGEST and size > 0):
        raise ValueError(
            f"the largest magnitude in the data is {largest:.2g}: its powers leave the range of floating-point "
            "numbers; divide the data by it first"
        )
    return unit, size or 1.0, largest, clip if largest > clip else np.inf


def outliers_at(M: ObservedMatrix, flagged: NDArray[np.intp], values: NDArray[Any]) -> sparse.csc_array:
    """S as a sparse array of its non-zeros; of a matrix in pieces it stays in pieces."""
    if on_device(flagged):
        return cast(sparse.csc_array, DeviceOutliers(cast(Any, M), flagged, values))
    if not isinstance(flagged, np.ndarray):
        return StoredOutliers(M, flagged, values)
    rows, indptr = M.rows[flagged], np.searchsorted(flagged, M.indptr)
    if flagged.size <= np.iinfo(np.int32).max:
        return sparse.csc_array((values, rows, indptr.astype(np.int32)), shape=M.shape)
    return sparse.csc_array((values, rows.astype(np.int64), indptr), shape=M.shape)


def _noise(M: ObservedMatrix, L: LowRank, backend: str) -> float:
    """The standard deviation of the inliers, from the median of the residuals of a sample."""
    return robust_scale(Sample(M, backend).residual(L.U, L.V.T))


def _advice(status: Status, solver: Solver) -> str:
    if status is Status.MAX_ITER and solver.if_slow:
        return f"{ADVICE[status]}; {solver.if_slow}"
    return ADVICE[status]


def _notes(M: ObservedMatrix, rank: int, flagged: NDArray[np.intp], outcome: Outcome) -> tuple[str, ...]:
    """What the data lack to determine L: lines with few entries, or with few that are not outliers; and what is odd."""
    said = []
    for lines, counts, wrong in zip(
        ("rows", "columns"), (M.row_counts, M.column_counts), counted(M, flagged), strict=True
    ):
        few = counts < rank
        if few.any():
            said.append(f"{few.sum()} of {few.size} {lines} have fewer than {rank} observed entries")
        left = ~few & (counts >= enough(rank)) & (counts - wrong < enough(rank))
        if left.any():
            said.append(f"{left.sum()} of {left.size} {lines} have too few entries that are not outliers")
    notes = [f"{line}: L is not determined there" for line in said]
    if outcome.repeated:
        notes.append(
            f"about {percent(outcome.repeated)} of the entries repeat a number of their row or column exactly, which "
            "others hardly do: a stuck or clipped instrument, copied rows? They were not relied upon"
        )
    if outcome.undetermined > 0.001:
        notes.append(
            f"about {percent(outcome.undetermined)} of the entries of L in the other rows and columns are not "
            "determined by the entries that pass for right: parts of the data hang together too loosely; "
            "result.determined(i, j) says where"
        )
    return tuple(notes)
