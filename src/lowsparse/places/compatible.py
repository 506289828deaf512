"""Whether a worker of a cluster can take part in a solve: it has the same versions and sees the same matrix on disk."""

import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from .liveness import ClusterError, call


def describe(side: str) -> dict[str, str]:
    """What must be the same on all machines: versions, and the checksum of the manifest of a matrix on disk."""
    try:
        manifest = f"{zlib.crc32(Path(side, 'manifest.json').read_bytes()):08x}"
    except OSError:
        manifest = "none"
    python = "{}.{}".format(*sys.version_info)
    return {"lowsparse": __version__, "Python": python, "NumPy": np.__version__.split(".")[0], "manifest": manifest}


def check_workers(client: Any, side: str) -> None:
    """Raise unless all workers can take part in a solve of the matrix in this folder."""
    here = describe(side)
    for worker, there in call(client, client.run, describe, side, on_error="return").items():
        check_worker(worker, side, here, there)


def check_worker(worker: str, side: str, here: dict[str, str], there: dict[str, str] | Exception) -> None:
    """Compare what a worker has with what this process has; raise if it differs.

    >>> check_worker("tcp://a:1", "/data/columns", {"NumPy": "2"}, {"NumPy": "1"})
    Traceback (most recent call last):
    lowsparse.places.liveness.ClusterError: worker tcp://a:1 has NumPy 1, not 2: install the same versions everywhere
    """
    if isinstance(there, Exception):
        missing = f"worker {worker} has no lowsparse, or another version of it ({there})"
        raise ClusterError(f"{missing}: install lowsparse {__version__} there") from there
    for name, ours in here.items():
        if there[name] == ours:
            continue
        if name == "manifest":
            raise ClusterError(
                f"worker {worker} does not see the matrix in {side}, or sees another one there: put it on a disk that "
                "all workers share, StoredMatrix.build(data, folder), or set TMPDIR to a folder there"
            )
        raise ClusterError(
            f"worker {worker} has {name} {there[name]}, not {ours}: install the same versions everywhere"
        )
