"""Runs of methods, each stored in a file: finished runs are reused."""

import hashlib
import json
import math
import os
import platform
import subprocess
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._version import __version__
from ..entries.observed import ObservedMatrix
from ..support.files import write
from ..sweeps.native import num_threads
from .settings import Tuning

Record = dict[str, Any]  # the result of a run, as JSON
RunResult = tuple[Record, bytes | None]  # with a PNG file if the experiment shows a picture
Watch = Callable[[int, float], None]  # called with the iteration and a measure of progress


@dataclass(frozen=True)
class MethodJob:
    """A run of a method."""

    name: str  # of its file
    title: str
    settings: dict[str, Any]  # all it depends on
    tuning: Tuning
    run: Callable[[Watch], RunResult]


@dataclass(frozen=True)
class RunProgress:
    """The argument of the `progress` callback.

    `state` is "running" (with the iteration and a measure of progress), "done", or "kept" from an earlier run.
    """

    number: int  # of the run, from 1
    total: int
    title: str
    state: str
    iteration: int = 0
    figure: float = math.nan


class Store:
    """The folder with finished runs."""

    def __init__(self, folder: Path, fresh: bool = False) -> None:
        self.folder, self.fresh = folder, fresh

    def find(self, job: MethodJob) -> Record | None:
        """The record of an earlier run with the same settings, if its files are not damaged; else None."""
        path = self.folder / f"{job.name}.json"
        picture = path.with_suffix(".png")
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            content = picture.read_bytes() if picture.exists() else b""
        except (OSError, ValueError):
            return None
        if self.fresh or not isinstance(kept, dict) or kept.get("settings") != _as_json(job.settings):
            return None
        checksum = kept.pop("checksum", "")
        return kept if checksum == _checksum(kept, content) else None

    def save(self, job: MethodJob, record: Record, picture: bytes | None) -> Record:
        """Store the record of a run, and its picture."""
        if picture is not None:
            record = {**record, "files": [f"{job.name}.png"]}
            write(self.folder / record["files"][0], picture)
        kept: Record = _as_json({"settings": job.settings, **record})
        stored = {**kept, "checksum": _checksum(kept, picture or b"")}
        write(self.folder / f"{job.name}.json", json.dumps(stored, indent=1, ensure_ascii=False).encode())
        return kept


def _checksum(record: Record, picture: bytes) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode() + picture).hexdigest()


def _as_json(settings: object) -> Any:
    return json.loads(json.dumps(settings))


def machine() -> dict[str, Any]:
    """What times depend on: the processor, the backend and its threads, and the version."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fallback to NumPy shows in the name
        backend = ObservedMatrix.from_dense([[1.0]]).open_sweep().name
    return {
        "lowsparse": __version__,
        "backend": backend,
        "threads": num_threads() if backend == "native" else 1,
        "cores": os.cpu_count() or 1,
        "processor": _processor(),
    }


def _processor() -> str:
    """The model name of the processor."""
    names: list[str] = []
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    if platform.system() == "Darwin":
        words = ["sysctl", "-n", "machdep.cpu.brand_string"]
        names.append(subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip())
    return next(filter(None, names), "") or platform.processor() or platform.machine()
