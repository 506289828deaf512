"""`solve`, the functional entry: check, place the data, iterate, assemble the result."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .diagnosis import Diagnosis
from .entries.protocol import PartialMatrix, PerEntry, check_rank
from .linalg.arrays import to_device_of
from .linalg.lowrank import LowRank
from .linalg.scale import LARGEST, robust_scale
from .loop import Loop, Progress
from .places.decide import Place, choose_place, shape_of
from .places.gpu.matrix import is_on_gpu
from .result import Result, Status
from .robust.sketch import Sample
from .solvers import Ladder, Problem, Solver, from_name, names
from .solvers.base import Outcome
from .solvers.start import generator, starting_subspace
from .support.checks import check_count
from .support.format import percent
from .support.threads import one_blas_thread
from .sweeps import host_backend, min_support


def solve(
    M: PartialMatrix | ArrayLike | Any,
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
        array, a scipy.sparse matrix (its stored entries are the observed ones), a data frame, or the path of a file.
        Tables in files are read as by `lowsparse.tables.read_table`: a first column of text, or one that counts the
        rows, holds their labels.
    rank
        Of L, from 1 to min(m, n); or "auto": ranks are tried one after the other, as long as held-out entries are
        predicted better, and for noisy data a path of decreasing shrinkage too. None for the convex methods, which
        find it themselves.
    max_rank
        The largest rank to try if `rank` is "auto"; None: what the number of entries allows, at most 50.
    method
        A name (`lowsparse.solvers.names()`), or a configured solver such as ``AManPGC(gamma0=10)``.
    max_iter, max_time, tol
        Where to stop: iterations, seconds, and the accuracy relative to the size of the data. ``tol=0`` runs to
        `max_iter`.
    backend
        "auto", "native" (the compiled core) or "numpy", in memory; "cuda", on a GPU; "outofcore", on disk; "dask", on a
        cluster. Data on a GPU are solved there, and the result stays there (see `Result.to_host`). "auto" takes the
        compiled core, or for 100 million entries and more a GPU, if there is one with enough memory.
    memory
        The memory that "outofcore" may use, such as "1GB"; of "cuda", the memory of the GPU: larger data stay where
        they are, and are streamed to it in pieces.
    client
        The `dask.distributed.Client` of "dask"; None: the current one, else a new one on this machine.
    start
        U⁰: "svd" (of the observed entries, zeros elsewhere), "random", an m x rank matrix, a `LowRank` or a `Result`.
    random_state
        A seed or a generator. The same input and seed give the same bits, whatever the number of threads.
    callback
        Called with a `Progress` after every iteration; returning True stops.
    checkpoint, resume
        A file to save the state to (every half minute, at the end, and on Ctrl-C), and one to resume from.

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
    solver = _as_solver(method)
    request = _Request(
        solver, rank, max_rank, max_iter, max_time, tol, backend, start, random_state, callback, checkpoint, resume
    )
    request.check(shape_of(M))
    placement = choose_place(M, backend, memory=memory, client=client, runs_anywhere=solver.runs_anywhere)
    _check_place(solver, placement.where)
    data = placement.place()
    if rank == "auto" and solver.with_chosen_rank() is None:
        climb = replace(request, solver=Ladder(shrink=False), max_iter=500, tol=1e-8, checkpoint=None, resume=None)
        chosen = _solve(data, climb, data is not M)
        if chosen.status in (Status.MAX_TIME, Status.STOPPED_BY_CALLBACK):
            chosen = replace(chosen, message=f"while the default method was choosing the rank: {chosen.message}")
            return chosen if is_on_gpu(M) else chosen.to_host()
        left = None if max_time is None else max(max_time - chosen.seconds, 1e-9)
        request = replace(request, rank=chosen.L.rank, max_rank=None, max_time=left)
    result = _solve(data, request, data is not M)
    again = partial(
        solve,
        rank=rank,
        max_rank=max_rank,
        method=solver,
        max_iter=max_iter,
        max_time=max_time,
        tol=tol,
        backend=backend,
        random_state=0 if isinstance(random_state, np.random.Generator) else random_state,
    )
    return replace(result if is_on_gpu(M) else result.to_host(), solve_again=again)


def diagnose(
    M: PartialMatrix | ArrayLike | Any,
    rank: int | None = None,
    *,
    backend: str = "auto",
    memory: int | str | None = None,
    client: Any = None,
) -> Diagnosis:
    """Say whether a low-rank matrix can be recovered from these entries, and what stands in the way.

    The data, anything `solve` takes, are solved with the default method; without a `rank` it is chosen. The rest is as
    in `solve`.

    Parameters
    ----------
    M
        Anything `solve` takes.
    rank
        Of the matrix; None: it is chosen.
    backend, memory, client
        As in `solve`.

    Returns
    -------
    Diagnosis
        The rank, the noise, the share of outliers, whether the matrix was recovered, and what stands in the way; print
        it for a page of words.

    Examples
    --------
    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(100, 90, rank=3, density=0.5, outliers=0.1, noise=0.01, random_state=1)
    >>> d = ls.diagnose(problem.M)
    >>> d.rank, d.recovered, 0.008 < d.noise < 0.012
    (3, True, True)
    """
    return solve(M, "auto" if rank is None else rank, backend=backend, memory=memory, client=client).diagnostics


@dataclass(frozen=True)
class _Request:
    """The arguments of `solve`, without the data."""

    solver: Solver
    rank: int | str | None
    max_rank: int | None
    max_iter: int
    max_time: float | None
    tol: float
    backend: str
    start: str | ArrayLike | LowRank | Result
    random_state: int | np.random.Generator | None
    callback: Callable[[Progress], object] | None
    checkpoint: str | os.PathLike[str] | None
    resume: str | os.PathLike[str] | None

    @property
    def start_given(self) -> bool:
        """Whether there is a start other than the default."""
        return not (isinstance(self.start, str) and self.start == "svd")

    def check(self, shape: tuple[int, int] | None) -> None:
        """Raise if an argument is wrong; the rank against the shape, if that is known."""
        self.solver.check_parameters()
        self._check_rank()
        if shape is not None:
            self.rank_for(shape)
        check_count("max_iter", self.max_iter)
        if self.max_time is not None and not self.max_time > 0:
            raise ValueError(f"max_time must be a positive number of seconds, or None, not {self.max_time!r}")
        if not isinstance(self.tol, int | float | np.integer | np.floating) or not 0 <= self.tol < np.inf:
            raise ValueError(f"tol must be a number of 0 or more, not {self.tol!r}")
        if self.callback is not None and not callable(self.callback):
            raise TypeError("callback must be a function of one argument")
        if self.start_given and not self.solver.takes_start:
            raise ValueError(f"{self.solver.name} always starts at zero: leave the start out")
        generator(self.random_state)

    def _check_rank(self) -> None:
        if isinstance(self.rank, str):
            if self.rank != "auto":
                raise ValueError(f"rank must be a whole number or 'auto', not {self.rank!r}")
            if self.start_given:
                raise ValueError("a start has a rank: give that rank, or leave the start out to have one chosen")
        elif self.max_rank is not None:
            raise ValueError('max_rank is for rank="auto": leave it out if the rank is given')
        if self.rank is None and not self.solver.finds_rank:
            raise ValueError(f"{self.solver.name} needs a rank: give one, or rank='auto' to have it chosen")

    def rank_for(self, shape: tuple[int, int]) -> int:
        """The rank for a matrix of this shape, or the largest to try."""
        if self.rank == "auto":
            return min(shape) if self.max_rank is None else check_rank(self.max_rank, shape)
        return min(shape) if self.rank is None else self.solver.check_rank(shape, self.rank)


def _as_solver(method: str | Solver) -> Solver:
    solver = from_name(method) if isinstance(method, str) else method
    if not isinstance(solver, Solver):
        called = f"; did you mean {method.__name__}()?" if isinstance(method, type) else ""
        raise TypeError(f"method must be a name or a solver object, not {method!r}{called}")
    return solver


def _check_place(solver: Solver, where: Place) -> None:
    """Raise unless the method runs there."""
    if where is Place.MEMORY or solver.runs_anywhere:
        return
    able = ", ".join(name for name in names() if from_name(name).runs_anywhere)
    if where in (Place.GPU, Place.GPU_STREAM):
        raise ValueError(f"{solver.name} does not run on a GPU; these methods do: {able}")
    raise ValueError(f"{solver.name} needs the data in memory; these methods also run on disk and on a cluster: {able}")


def _solve(M: PartialMatrix, request: _Request, placed: bool) -> Result:
    """Solve data where they are; they were `placed` there for this solve alone, or by the user."""
    began = time.perf_counter()
    rank = request.rank_for(M.shape)
    choosing = request.solver.with_chosen_rank() if request.rank == "auto" else None
    solver = choosing or request.solver
    missing = M.shape[0] * M.shape[1] - M.nnz
    if solver.full and missing:
        advice = "choose a method that takes missing entries, such as the default"
        raise ValueError(f"{solver.name} needs every entry, and {missing} are missing: {advice}")
    M = M.with_room_for(rank if choosing is None else min(rank, 10))
    # Outside the sweep the dense algebra is small. On one thread its results do not depend on the number of threads,
    # and the cores are left to the sweep (OpenBLAS threads spin between calls).
    with one_blas_thread, M.solving(placed):
        problem = _problem(M, rank, request)
        solver.check(problem)
        max_iter, max_time = int(request.max_iter), request.max_time
        loop = Loop(problem, solver, max_iter, max_time, request.callback, request.checkpoint, began)
        if request.resume is not None:
            loop.resume(request.resume)
        status, reason = loop.run()
        outcome = solver.finish(problem, loop.state)
        data, L, flagged, S = M.recovered(outcome.L, outcome.flagged, outcome.S)
    return Result(
        L=L,
        S=S,
        status=status,
        message=loop.message(status, reason),
        method=solver.name,
        n_iter=loop.state.iteration,
        objective=outcome.objective,
        stationarity=outcome.stationarity,
        seconds=loop.seconds(),
        backend=problem.sweep.name,
        M=data,
        flagged=flagged,
        noise=_noise(data, L, problem.sweep.host) if outcome.noise is None else outcome.noise,
        held_out=outcome.held_out,
        next_noise=outcome.next_noise,
        trace=loop.trace,
        notes=_notes(data, L.rank, flagged, outcome),
        ambiguous=outcome.ambiguous,
    )


def _problem(M: PartialMatrix, rank: int, request: _Request) -> Problem:
    """The problem that a solver is given."""
    sweep = M.open_sweep(host_backend(request.backend))
    rng = generator(request.random_state)
    seed = int(rng.integers(2**63))
    unit, scale, largest, clip = _sizes(M)

    def first_subspace() -> NDArray[np.float64]:
        start = "random" if request.resume is not None else request.start  # replaced by that of the checkpoint
        clipped = M if np.isinf(clip) else M.with_values(np.clip(M.values, -clip, clip))
        own = sweep if clipped is M else clipped.open_sweep(sweep.host)
        return to_device_of(starting_subspace(start, own, M.shape[0], rank, rng), M.values)

    return Problem(
        M=M,
        rank=rank,
        sweep=sweep,
        start=first_subspace,
        start_given=request.start_given,
        tol=float(request.tol),
        unit=unit,
        scale=scale,
        largest=largest,
        clip=clip,
        seed=seed,
    )


def _sizes(M: PartialMatrix) -> tuple[float, float, float, float]:
    """Median and root mean square, the largest magnitude, and `clip`, without a copy of all the values.

    The median is over the magnitudes of a sample, without zeros. One wild entry must not determine the root mean square
    and the start: entries beyond `clip`, 20 medians, count as `clip`, which is infinite if there are none.
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


def _noise(M: PartialMatrix, L: LowRank, backend: str) -> float:
    """The standard deviation of the inliers, from the median of the residuals of a sample."""
    return robust_scale(Sample(M, backend).residual(L.U, L.V.T))


def _notes(M: PartialMatrix, rank: int, flagged: PerEntry, outcome: Outcome) -> tuple[str, ...]:
    """What the data lack to determine L, such as rows with few entries or few inliers; and suspicious repetitions."""
    notes = []
    counts = M.row_counts, M.column_counts
    kinds = zip(("rows", "columns"), counts, M.count_lines(flagged), outcome.ambiguous, strict=True)
    for lines, total, outliers, ambiguous in kinds:
        few = total < rank
        poor = ~few & (total >= min_support(rank)) & (total - outliers < min_support(rank))
        lacking = f"fewer than {rank} observed entries", "too few entries that are not outliers"
        for which, what in zip((few, poor), lacking, strict=True):
            if which.any():
                notes.append(f"{which.sum()} of {which.size} {lines} have {what}: L is not determined there")
        if ambiguous:
            notes.append(
                f"{len(ambiguous)} of {total.size} {lines} can be fitted in two ways (result.ambiguous): L is not "
                "determined there"
            )
    if outcome.repeated:
        notes.append(
            f"about {percent(outcome.repeated)} of the entries repeat a number of their row or column exactly, which "
            "others hardly do: a stuck or clipped instrument, copied rows? They were not relied upon"
        )
    if outcome.undetermined > 0.001:
        notes.append(
            f"about {percent(outcome.undetermined)} of the entries of L in the other rows and columns are not "
            "determined by the inliers: parts of the data have too few entries in common; result.determined(i, j) says "
            "where"
        )
    return tuple(notes)
