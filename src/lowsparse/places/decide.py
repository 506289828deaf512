"""Where a solve runs: one decision, by the backend that was asked for, the data, the GPU and the cluster.

`choose_place` checks and decides; it writes nothing and copies nothing to a GPU. `Placement.place` then brings the data
there.
"""

from __future__ import annotations

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
from ..support.optional import import_optional
from ..support.sizes import bytes_of
from ..sweeps import BACKENDS as IN_MEMORY
from ..sweeps import native, reason_unavailable
from .cluster import ClusterMatrix
from .disk.matrix import StoredMatrix
from .disk.scratch import TemporaryFolder
from .disk.sources import are_paths, is_frames, is_store
from .gpu import launch
from .gpu.matrix import NEEDED, DeviceMatrix, as_device_matrix, is_on_gpu
from .gpu.streamed import WORK, StreamedMatrix
from .pieces.matrix import InPieces

__all__ = [
    "BACKENDS",
    "Place",
    "Placement",
    "available",
    "check_can_run",
    "choose_place",
    "is_chunked",
    "shape_of",
    "worth_a_gpu",
]

BACKENDS = (*IN_MEMORY, "cuda", "outofcore", "dask")
# Entries in memory from which on backend="auto" takes a GPU. The default method takes 12 to 23 ns an entry on 16 and 2
# threads and 7 on a GPU, copying included (docs/gpu.log); but CuPy and the driver have to load, once a process, and the
# kernels to be compiled, once a machine.
WORTH = 100_000_000


class Place(Enum):
    """Where entries are swept."""

    MEMORY = "memory"
    GPU = "gpu"
    GPU_STREAM = "a gpu, in pieces"
    DISK = "disk"
    CLUSTER = "cluster"


def available() -> dict[str, str | None]:
    """For each backend over one machine's memory, None if it can run here, else the reason why not.

    >>> available()["numpy"] is None
    True
    """
    return {**{name: reason_unavailable(name) for name in IN_MEMORY}, "cuda": launch.reason_unavailable()}


def check_can_run(backend: str) -> None:
    """Raise if a backend that is asked for, by this name or by LOWSPARSE_BACKEND, is unknown or cannot run here.

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
    """Whether a solve is large enough to win on a GPU, and there is one with twice the memory that it needs.

    >>> worth_a_gpu(1000)
    False
    """
    if entries < WORTH or launch.reason_unavailable() is not None:
        return False
    cupy = launch.need_cupy()
    free = cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()
    return bool(2 * NEEDED * entries <= free)


def is_chunked(M: Any) -> bool:
    """Whether it is a Dask or Zarr array.

    >>> is_chunked([[1.0]])
    False
    """
    return hasattr(M, "chunks") and type(M).__module__.partition(".")[0] in ("dask", "zarr")


def shape_of(source: Any) -> tuple[int, int] | None:
    """The shape of a matrix, if it is known before the data are read.

    >>> shape_of(np.ones((3, 2))), shape_of([[1.0]])
    ((3, 2), None)
    """
    shape = getattr(source, "shape", None)
    known = isinstance(shape, tuple) and len(shape) == 2 and all(isinstance(size, int | np.integer) for size in shape)
    return (int(shape[0]), int(shape[1])) if shape is not None and known else None


@dataclass(frozen=True)
class Placement:
    """Data, which may not be read yet, and where they are to be solved."""

    source: Any
    where: Place
    memory: int | str | None = None
    client: Any = None

    def place(self) -> PartialMatrix:
        """Bring the data there; what is put on disk for that goes with the matrix."""
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

    def _stored(self) -> StoredMatrix:
        """On disk, in a temporary folder that goes with the matrix if it is not there yet."""
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
    """Where a backend runs over data that a `PartialMatrix` is made of, or an error that says what to do.

    With "auto", what is not in memory stays out of it; what is goes to a GPU if that is worth it, and if the method
    `runs_anywhere`. Nothing is written, and nothing is copied to a GPU.

    >>> choose_place([[1.0, 2.0]], "numpy").where.value
    'memory'
    """
    check_can_run(backend)
    bytes_of(memory)  # an error now if it is no size
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
        case InPieces():
            where = _choose_in_pieces(source, backend)
        case ObservedMatrix():
            where = _choose_in_memory(source, backend, memory, runs_anywhere)
        case _:
            where = _choose_unread(source, backend)
    return Placement(source, where, memory, client)


def _opened(M: Any, memory: int | str | None) -> Any:
    """A matrix where it is; or what will be read when it is put on disk: arrays in chunks, and files of arrays."""
    if isinstance(M, InPieces) or is_chunked(M) or are_paths(M) or is_frames(M):
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


def _choose_in_pieces(source: InPieces, backend: str) -> Place:
    stays = {"outofcore": Place.DISK, "dask": Place.CLUSTER, "cuda": Place.GPU_STREAM}[source.backend]
    if backend in ("auto", source.backend):
        return stays
    if stays is Place.DISK and backend in ("dask", "cuda"):
        return Place.CLUSTER if backend == "dask" else Place.GPU_STREAM
    kind = "on a cluster" if stays is Place.CLUSTER else "in pieces"
    raise ValueError(f"a matrix {kind} runs on its own backend, {source.backend!r}, not on {backend!r}")


def _choose_in_memory(M: ObservedMatrix, backend: str, memory: int | str | None, runs_anywhere: bool) -> Place:
    if backend == "auto":
        backend = os.environ.get("LOWSPARSE_BACKEND") or "auto"
    if backend in ("outofcore", "dask"):
        return Place.DISK if backend == "outofcore" else Place.CLUSTER
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
            raise ValueError(f"{source} is read from disk: leave the backend out")
        return Place.MEMORY
    return {"outofcore": Place.DISK, "dask": Place.CLUSTER, "cuda": Place.GPU_STREAM}[backend]


def _current_client() -> Any:
    """Of Dask, if its library is in use and there is one."""
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
        # one worker in this process: its threads are the compiled core's, and nothing has to be copied
        own = client = distributed.Client(
            processes=False,
            n_workers=1,
            threads_per_worker=native.num_threads(),
            direct_to_workers=True,
            dashboard_address=":0",
        )
    _check_seen(M, client)
    there = ClusterMatrix(M, client)
    if own is not None:
        there.close = weakref.finalize(there, own.close)
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
