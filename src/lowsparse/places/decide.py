"""Where a solve finds its data: in memory, on a GPU, on disk, or on a cluster, as its backend says."""

from __future__ import annotations

import os
import sys
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from ..entries.observed import ObservedMatrix
from ..support.sizes import bytes_of
from ..sweeps import BACKENDS, BACKENDS_IN_PIECES, native, unknown_backend
from .disk.matrix import StoredMatrix
from .disk.sources import are_paths, is_store
from .disk.temporary import TemporaryFolder
from .gpu import launch
from .gpu.launch import block_of, need_cupy
from .gpu.matrix import DeviceMatrix, held_on_device
from .gpu.streamed import WORK, StreamedMatrix

__all__ = [
    "IN_PIECES",
    "bytes_of",
    "check_in_pieces",
    "check_on_gpu",
    "closed_on_error",
    "is_chunked",
    "leaving_room",
    "placed",
    "room_for",
    "worth_a_gpu",
]

IN_PIECES = ("amanpg", "amanpgc", "irls", "ladder", "lmafit", "manpg", "manpgc", "rmc", "subgm")  # methods
FACTORS = 7  # arrays as large as U and V together that a solve has in memory at once
PYTHON = 10**8  # bytes that Python and its libraries take anyhow, about
# Entries in memory from which on backend="auto" takes a GPU. The default method takes 12 to 23 ns an entry on 16 and 2
# threads and 7 on a GPU, copying included (docs/gpu.log); but CuPy and the driver have to load, once a process, and the
# kernels to be compiled, once a machine.
WORTH = 100_000_000
NEEDED = 100  # bytes on a GPU for each entry, by the methods that need most: both orders, S twice, what is computed
_CLOSING: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # what closes the cluster of a matrix


def check_in_pieces(method: str) -> None:
    """Raise unless a method runs over data in pieces.

    >>> check_in_pieces("pcp")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: pcp needs the data in memory; on disk and on a cluster run amanpg, ...
    """
    if method not in IN_PIECES:
        raise ValueError(f"{method} needs the data in memory; on disk and on a cluster run {', '.join(IN_PIECES)}")


def check_on_gpu(method: str) -> None:
    """Raise unless a method runs on a GPU.

    >>> check_on_gpu("pcp")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: pcp does not run on a GPU; there run amanpg, ...
    """
    if method not in IN_PIECES:
        raise ValueError(f"{method} does not run on a GPU; there run {', '.join(IN_PIECES)}")


def placed(
    M: Any, backend: str, *, memory: int | str | None = None, client: Any = None, method: str | None = None
) -> Any:
    """The data where the backend wants it; on disk in a temporary folder that goes with it, if it is not there yet.

    With "auto", what is not in memory stays out of it: paths, Zarr arrays and Dask arrays are solved from disk, and
    Dask arrays on the current cluster, if there is one. What is in memory goes to a GPU if that is worth it, and if the
    method that is to be run is known to run there.
    """
    if backend not in ("auto", *BACKENDS, *BACKENDS_IN_PIECES):
        raise unknown_backend(backend)
    if is_store(M):
        M = StoredMatrix(M, memory=bytes_of(memory))
    if backend == "auto":
        backend = "dask" if client is not None else _usual(M)
    if client is not None and backend != "dask":
        raise ValueError(f"a client is for backend='dask', not {backend!r}")
    if backend == "auto" and os.environ.get("LOWSPARSE_BACKEND") == "cuda":
        backend = "cuda"
    there = held_on_device(M)
    if there is not None or backend == "cuda" or isinstance(M, StreamedMatrix):
        return _on_gpu(M, there, backend, memory)
    in_pieces = hasattr(M, "backend")
    if backend not in BACKENDS_IN_PIECES:
        if memory is not None and not in_pieces:
            raise ValueError(f"memory is for backend='outofcore', 'dask' and 'cuda', not {backend!r}")
        if isinstance(M, str | os.PathLike):
            raise ValueError(f"{os.fspath(M)} is a path, which is solved from disk: leave the backend out")
        if in_pieces and backend != "auto":
            raise ValueError(f"a matrix in pieces runs on its own backend, {M.backend!r}, not on {backend!r}")
        if in_pieces:
            return M
        M = ObservedMatrix.from_any(M)
        left_open = backend == "auto" and not os.environ.get("LOWSPARSE_BACKEND")
        return DeviceMatrix.from_host(M) if left_open and worth_a_gpu(M.nnz, method) else M
    if not in_pieces:
        M = _put_on_disk(_source(M), bytes_of(memory))
    elif memory is not None and isinstance(M, StoredMatrix):
        M = M.within(bytes_of(memory))
    return _on_cluster(M, client) if backend == "dask" and isinstance(M, StoredMatrix) else M


def worth_a_gpu(entries: int, method: str | None) -> bool:
    """Whether a solve is large enough to win on a GPU, and there is one with twice the memory that it needs.

    >>> worth_a_gpu(1000, "ladder")
    False
    """
    if entries < WORTH or method not in IN_PIECES or launch.reason_unavailable() is not None:
        return False
    cupy = need_cupy()
    free = cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()
    return bool(2 * NEEDED * entries <= free)


def leaving_room(M: Any, rank: int) -> Any:
    """A matrix on disk in smaller pieces if U and V, with what is computed from them, need much of its memory."""
    if not isinstance(M, StoredMatrix):
        return M
    factors = FACTORS * 8 * rank * sum(M.shape)
    if factors <= M.memory // 16:
        return M
    left = M.memory - factors
    if left < M.memory // 4 and factors > PYTHON:
        warnings.warn(
            f"U and V of rank {rank} and what is computed from them take about {factors / 1e6:.0f} MB, and the limit "
            f"is {M.memory / 1e6:.0f} MB: allow more memory, or a smaller rank",
            RuntimeWarning,
            stacklevel=3,
        )
    return M.within(M.memory, pieces=max(left, M.memory // 4))


@contextmanager
def room_for(M: Any) -> Iterator[None]:
    """A matrix is solved in the block: if it is on a GPU that has too little memory, the error says what to do.

    >>> with room_for(ObservedMatrix.from_dense([[1.0]])):
    ...     pass
    """
    with block_of(NEEDED * M.nnz, "the solve") if isinstance(M, DeviceMatrix) else nullcontext():
        yield


def _put_on_disk(source: Any, memory: int) -> StoredMatrix:
    """In a temporary folder that goes with it."""
    folder = TemporaryFolder("lowsparse-")
    try:
        stored = StoredMatrix.build(source, folder.path, memory=memory)
    except BaseException:
        folder.remove()
        raise
    stored.owner = folder
    return stored


def _usual(M: Any) -> str:
    """The backend for what is not in memory; "auto" for what is."""
    if hasattr(M, "__dask_graph__"):
        return "outofcore" if _current_client() is None else "dask"
    return "outofcore" if isinstance(M, str | os.PathLike) or is_chunked(M) or are_paths(M) else "auto"


def is_chunked(M: Any) -> bool:
    """Whether it is a Dask or Zarr array.

    >>> is_chunked([[1.0]])
    False
    """
    return hasattr(M, "chunks") and type(M).__module__.partition(".")[0] in ("dask", "zarr")


def _source(M: Any) -> Any:
    """What is not in memory is read as it is written to disk; what is in memory is checked there."""
    from_disk = isinstance(M, str | os.PathLike) or is_chunked(M) or are_paths(M)
    return M if from_disk else ObservedMatrix.from_any(M)


def _current_client() -> Any:
    """Of Dask, if its library is in use and there is one."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_client()
    except ValueError:
        return None


def _on_gpu(M: Any, there: DeviceMatrix | None, backend: str, memory: Any) -> Any:
    """What is on a GPU stays there unless the processor is asked for; what is not is copied there, or passes through.

    It passes through in pieces if it is on disk, or needs more than the memory that may be used there.
    """
    if there is None:
        return _sent(M, memory)
    if memory is not None:
        raise ValueError("memory is for data that are not on a GPU yet: leave it out, or copy them to the host first")
    if backend in BACKENDS_IN_PIECES:
        raise ValueError(f"the data are on a GPU, and backend={backend!r} reads from disk: copy them to the host first")
    return there.to_host() if backend in ("native", "numpy") else there


def _sent(M: Any, memory: int | str | None) -> DeviceMatrix | StreamedMatrix:
    need_cupy()
    if isinstance(M, StreamedMatrix):
        return M
    if _usual(M) == "outofcore":
        M = _put_on_disk(_source(M), bytes_of(memory))
    if isinstance(M, StoredMatrix):
        return StreamedMatrix(M, M.memory if memory is None else bytes_of(memory))
    if hasattr(M, "backend"):
        raise ValueError(f"a matrix on a cluster runs on its own backend, {M.backend!r}, not on 'cuda'")
    M = ObservedMatrix.from_any(M)
    if memory is None or WORK * M.nnz <= bytes_of(memory):
        return DeviceMatrix.from_host(M)
    return StreamedMatrix(M, bytes_of(memory))


def _on_cluster(M: StoredMatrix, client: Any) -> Any:
    try:
        from dask import distributed
    except ImportError as error:
        raise ImportError("backend='dask' needs Dask: python -m pip install 'lowsparse[dask]'") from error
    from .cluster import ClusterMatrix

    if client is not None and not hasattr(client, "submit"):
        raise TypeError(f"client must be a dask.distributed.Client, such as Client('tcp://...'), not {client!r}")
    own = None
    client = client or _current_client()
    if client is None:
        # one worker in this process: its threads are the compiled core's, and nothing has to be copied
        own = client = distributed.Client(  # type: ignore[no-untyped-call]
            processes=False,
            n_workers=1,
            threads_per_worker=native.num_threads(),
            direct_to_workers=True,
            dashboard_address=":0",
        )
    _check_seen(M, client)
    there = ClusterMatrix(M, client)
    if own is not None:
        _CLOSING[there] = weakref.finalize(there, own.close)
    return there


def _check_seen(M: StoredMatrix, client: Any) -> None:
    """Raise unless all workers see the folder of the matrix."""
    folder = str(M.folder.resolve())
    blind = [worker for worker, sees in client.run(os.path.isdir, folder).items() if not sees]
    if blind:
        raise ValueError(
            f"{len(blind)} workers do not see {folder}, the first is {blind[0]}: put the matrix on a disk that they "
            "share, StoredMatrix.build(data, folder), or set TMPDIR to a folder there"
        )


@contextmanager
def closed_on_error(M: Any) -> Iterator[None]:
    """A cluster that was started for this matrix alone is closed at once if the block fails, as on Ctrl-C."""
    try:
        yield
    except BaseException:
        close = _CLOSING.get(M) if hasattr(M, "client") else None
        if close is not None:
            close()
        raise
