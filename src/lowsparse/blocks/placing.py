"""Where a solve finds its data: in memory, on disk, or on a cluster, as its backend says."""

from __future__ import annotations

import re
import tempfile
import weakref
from typing import Any

from ..observed import ObservedMatrix
from ..sweeps import native
from .matrix import MEMORY, StoredMatrix

__all__ = ["IN_PIECES", "bytes_of", "check_in_pieces", "placed"]

IN_PIECES = ("amanpg", "amanpgc", "irls", "ladder", "lmafit", "manpg", "manpgc", "rmc", "subgm")  # methods
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def bytes_of(memory: int | str | None) -> int:
    """A size in bytes: a number, or a text such as "1GB" or "512MiB".

    >>> bytes_of("1.5 GB"), bytes_of(2_000_000), bytes_of("64MiB")
    (1500000000, 2000000, 67108864)
    """
    if memory is None:
        return MEMORY
    if isinstance(memory, str):
        found = re.fullmatch(r"\s*([0-9.]+)\s*([kmgt]?i?)b?\s*", memory.lower())
        if found is None or found[1].count(".") > 1 or found[1] == ".":
            raise ValueError(f"memory must be a number of bytes or a text such as '1GB', not {memory!r}")
        memory = int(float(found[1]) * UNITS[found[2]])
    if isinstance(memory, bool) or memory < 2**20:
        raise ValueError(f"memory must be 1 MB or more, not {memory!r}")
    return int(memory)


def check_in_pieces(method: str, checkpoint: Any, resume: Any) -> None:
    """Raise unless a method runs over data in pieces, without a checkpoint.

    >>> check_in_pieces("pcp", None, None)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: pcp needs the data in memory; on disk and on a cluster run amanpg, ...
    """
    if method not in IN_PIECES:
        raise ValueError(f"{method} needs the data in memory; on disk and on a cluster run {', '.join(IN_PIECES)}")
    if checkpoint is not None or resume is not None:
        raise ValueError("checkpoints are for data in memory")


def placed(M: Any, backend: str, *, memory: int | str | None = None, client: Any = None) -> Any:
    """The data where the backend wants it; on disk in a temporary folder that goes with it, if it is not there yet."""
    if client is not None and backend != "dask":
        raise ValueError(f"a client is for backend='dask', not {backend!r}")
    in_pieces = hasattr(M, "backend")
    if backend not in ("outofcore", "dask"):
        if memory is not None and not in_pieces:
            raise ValueError(f"memory is for backend='outofcore' and 'dask', not {backend!r}")
        return M if in_pieces else ObservedMatrix.from_any(M)
    if not in_pieces:
        folder = tempfile.TemporaryDirectory(prefix="lowsparse-", ignore_cleanup_errors=True)
        M = StoredMatrix.build(_array(M), folder.name, memory=bytes_of(memory))
        weakref.finalize(M, folder.cleanup)
    elif memory is not None and isinstance(M, StoredMatrix):
        M = M.within(bytes_of(memory))
    return _on_cluster(M, client) if backend == "dask" and isinstance(M, StoredMatrix) else M


def _array(M: Any) -> Any:
    """Arrays in chunks are taken as they are; what is in memory is checked there."""
    return M if hasattr(M, "chunks") or isinstance(M, str | list) else ObservedMatrix.from_any(M)


def _on_cluster(M: StoredMatrix, client: Any) -> Any:
    try:
        from dask import distributed
    except ImportError as error:
        raise ImportError("backend='dask' needs Dask: python -m pip install 'lowsparse[dask]'") from error
    from .cluster import ClusterMatrix

    own = None
    if client is None:
        try:
            client = distributed.get_client()
        except ValueError:  # there is none
            # one worker in this process: its threads are the compiled core's, and nothing has to be copied
            own = client = distributed.Client(  # type: ignore[no-untyped-call]
                processes=False,
                n_workers=1,
                threads_per_worker=native.num_threads(),
                direct_to_workers=True,
                dashboard_address=":0",
            )
    there = ClusterMatrix(M, client)
    if own is not None:
        weakref.finalize(there, own.close)
    return there
