"""Where a solve runs: decided once, from the requested backend, the data, the GPU and the cluster.

`choose_place` checks and decides; it writes nothing and copies nothing to a GPU. `Placement.place` then moves the data.
"""

import os
import sys
import weakref
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from ..entries.files import is_table, read_matrix
from ..entries.observed import ObservedMatrix
from ..entries.protocol import PartialMatrix
from ..support.addresses import hide_passwords
from ..support.files import TemporaryFolder
from ..support.optional import import_optional
from ..support.sizes import bytes_of
from ..sweeps import BACKENDS as IN_MEMORY
from ..sweeps import native, reason_unavailable
from .cluster import ClusterMatrix
from .compatible import check_workers
from .disk.matrix import StoredMatrix
from .disk.sources import are_paths, is_frames, is_store
from .gpu import launch
from .gpu.matrix import NEEDED, DeviceMatrix, as_device_matrix, is_on_gpu
from .gpu.streamed import WORK, StreamedMatrix
from .liveness import call, timeout
from .pieces.matrix import MatrixInPieces

BACKENDS = (*IN_MEMORY, "cuda", "outofcore", "dask")
# Entries in memory from which on backend="auto" uses a GPU. The default method takes 12 to 23 ns an entry on 16 and 2
# threads and 7 on a GPU, copying included (docs/gpu.log); but CuPy and the driver load once a process, and the kernels
# compile once a machine.
WORTH = 100_000_000


class Place(Enum):
    """Where entries are swept."""

    MEMORY = "memory"
    GPU = "gpu"
    GPU_STREAM = "a gpu, in pieces"
    DISK = "disk"
    CLUSTER = "cluster"
    ITS_OWN = "where the matrix is"


PLACES = {"outofcore": Place.DISK, "dask": Place.CLUSTER, "cuda": Place.GPU_STREAM}  # of data out of memory, by backend


def available() -> dict[str, str | None]:
    """For each backend that runs in memory or on a GPU, None if it can run here, else why not."""
    return {**{name: reason_unavailable(name) for name in IN_MEMORY}, "cuda": launch.reason_unavailable()}


def check_can_run(backend: str) -> None:
    """Raise if the backend, which LOWSPARSE_BACKEND names if it is "auto", is unknown or cannot run here.

    >>> check_can_run("gpu")
    Traceback (most recent call last):
    ValueError: unknown backend 'gpu': choose 'auto', 'cuda', 'dask', 'native', 'numpy' or 'outofcore'
    """
    if backend == "auto":
        backend = os.environ.get("LOWSPARSE_BACKEND") or "auto"
    if backend not in ("auto", *BACKENDS):
        *others, last = (repr(known) for known in sorted(BACKENDS))
        raise ValueError(f"unknown backend {backend!r}: choose 'auto', {', '.join(others)} or {last}")
    why = available().get(backend)
    if why is not None:
        raise RuntimeError(f"backend {backend!r} cannot run here: {why}")


def worth_a_gpu(entries: int) -> bool:
    """Whether a solve is large enough to be faster on a GPU, and there is one with twice the memory that it needs."""
    if entries < WORTH or launch.reason_unavailable() is not None:
        return False
    cupy = launch.need_cupy()
    free = cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()
    return bool(2 * NEEDED * entries <= free)


def is_chunked(M: object) -> bool:
    """Whether M is a Dask or Zarr array."""
    return hasattr(M, "chunks") and type(M).__module__.partition(".")[0] in ("dask", "zarr")


def shape_of(source: object) -> tuple[int, int] | None:
    """The shape of a matrix, if it is known before the data are read.

    >>> shape_of(np.ones((3, 2))), shape_of([[1.0]])
    ((3, 2), None)
    """
    shape = getattr(source, "shape", None)
    known = isinstance(shape, tuple) and len(shape) == 2 and all(isinstance(size, int | np.integer) for size in shape)
    return (int(shape[0]), int(shape[1])) if shape is not None and known else None


@dataclass(frozen=True)
class Placement:
    """Data, perhaps not read yet, and where to solve them."""

    source: Any
    where: Place
    memory: int | str | None = None
    client: Any = None

    def place(self) -> PartialMatrix:
        """Move the data there; files that are written for it are removed with the matrix."""
        source = self.source
        match self.where:
            case Place.MEMORY:
                return source.to_host() if isinstance(source, DeviceMatrix) else ObservedMatrix.from_any(source)
            case Place.GPU:
                return source if isinstance(source, DeviceMatrix) else DeviceMatrix.from_host(source)
            case Place.GPU_STREAM:
                return source if isinstance(source, StreamedMatrix) else self._streamed()
            case Place.DISK:
                return self._stored()
            case Place.CLUSTER:
                return source if isinstance(source, ClusterMatrix) else _on_cluster(self._stored(), self.client)
            case Place.ITS_OWN:
                matrix: PartialMatrix = source
                return matrix

    def _stored(self) -> StoredMatrix:
        """The matrix on disk; if it is not there yet, in a temporary folder that is removed with it."""
        limit = bytes_of(self.memory)
        if isinstance(self.source, StoredMatrix):
            return self.source if self.memory is None else self.source.within(limit)
        folder = TemporaryFolder("lowsparse-")
        try:
            stored = StoredMatrix.build(self.source, folder.path, memory=limit)
        except BaseException:
            folder.remove()
            raise
        stored.owner = folder
        return stored

    def _streamed(self) -> StreamedMatrix:
        if isinstance(self.source, ObservedMatrix):
            return StreamedMatrix(self.source, bytes_of(self.memory))
        stored = self.source if isinstance(self.source, StoredMatrix) else self._stored()
        return StreamedMatrix(stored, stored.memory if self.memory is None else bytes_of(self.memory))


def choose_place(
    M: Any,
    backend: str = "auto",
    *,
    memory: int | str | None = None,
    client: Any = None,
    runs_anywhere: bool = True,
) -> Placement:
    """Where to solve data with a backend, or an error that says what to do instead.

    With "auto", data that are not in memory stay out of it; data in memory go to a GPU if that is faster and the method
    `runs_anywhere`. Nothing is written, and nothing is copied to a GPU.
    """
    check_can_run(backend)
    bytes_of(memory)  # raises if it is no size
    if client is not None:
        if backend not in ("auto", "dask"):
            raise ValueError(f"a client is for backend='dask', not {backend!r}")
        if not hasattr(client, "submit"):
            raise TypeError(f"client must be a dask.distributed.Client, such as Client('tcp://...'), not {client!r}")
        backend = "dask"
    source = _opened(M, memory)
    match source:
        case DeviceMatrix():
            where = _choose_on_gpu(backend, memory)
        case MatrixInPieces():
            where = _choose_in_pieces(source, backend)
        case ObservedMatrix():
            where = _choose_in_memory(source, backend, memory, runs_anywhere)
        case _:
            where = _choose_unread(source, backend)
    if where is Place.CLUSTER:
        timeout()  # raises if it is no time
    return Placement(source, where, memory, client)


def _opened(M: Any, memory: int | str | None) -> Any:
    """The matrix, where it is; or a source that is read when it is written to disk: chunked arrays and files."""
    if isinstance(M, MatrixInPieces) or is_chunked(M) or are_paths(M) or is_frames(M):
        return M
    if is_store(M):
        return StoredMatrix(M, memory=bytes_of(memory))
    if isinstance(M, str | os.PathLike):
        return read_matrix(M) if is_table(M) else M
    return as_device_matrix(M) if is_on_gpu(M) else ObservedMatrix.from_any(M)


def _choose_on_gpu(backend: str, memory: int | str | None) -> Place:
    if memory is not None:
        raise ValueError("memory is for data that are not on a GPU yet: leave it out, or copy them to the host first")
    if backend in ("outofcore", "dask"):
        raise ValueError(f"the data are on a GPU, and backend={backend!r} reads from disk: copy them to the host first")
    return Place.MEMORY if backend in IN_MEMORY else Place.GPU


def _choose_in_pieces(source: MatrixInPieces, backend: str) -> Place:
    if backend == "auto":
        backend = source.backend
    if backend == source.backend or (source.backend == "outofcore" and backend in PLACES):
        return PLACES.get(backend, Place.ITS_OWN)
    kind = "on a cluster" if source.backend == "dask" else "in pieces"
    raise ValueError(f"a matrix {kind} runs on its own backend, {source.backend!r}, not on {backend!r}")


def _choose_in_memory(M: ObservedMatrix, backend: str, memory: int | str | None, runs_anywhere: bool) -> Place:
    if backend == "auto":
        backend = os.environ.get("LOWSPARSE_BACKEND") or "auto"
    if backend in ("outofcore", "dask"):
        return PLACES[backend]
    if backend == "cuda":
        return Place.GPU if memory is None or WORK * M.nnz <= bytes_of(memory) else Place.GPU_STREAM
    if memory is not None:
        raise ValueError(f"memory is for backend='outofcore', 'dask' and 'cuda', not {backend!r}")
    return Place.GPU if backend == "auto" and runs_anywhere and worth_a_gpu(M.nnz) else Place.MEMORY


def _choose_unread(source: Any, backend: str) -> Place:
    if backend == "auto":
        return Place.CLUSTER if hasattr(source, "__dask_graph__") and _current_client() is not None else Place.DISK
    if backend in IN_MEMORY:
        if not is_chunked(source):
            raise ValueError(f"{hide_passwords(str(source))} is read from disk: leave the backend out")
        return Place.MEMORY
    return PLACES[backend]


def _current_client() -> Any:
    """Dask's current client, if its library is imported and there is one."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_client()
    except ValueError:
        return None


def _on_cluster(M: StoredMatrix, client: Any) -> ClusterMatrix:
    distributed = import_optional("dask.distributed", "dask", "solves with backend='dask'")
    own = None
    client = client or _current_client()
    if client is None:
        # one worker in this process: its threads are those of the compiled core, and nothing is copied
        own = client = distributed.Client(
            processes=False,
            n_workers=1,
            threads_per_worker=native.num_threads(),
            direct_to_workers=True,
            dashboard_address=":0",
        )
    try:
        call(client, client.wait_for_workers, 1)
        check_workers(client, str(M.folder.resolve() / M.name))
        there = ClusterMatrix(M, client)
    except BaseException:
        if own is not None:
            own.close()
        raise
    if own is not None:
        there.close = weakref.finalize(there, own.close)
    return there
