"""One run of one method, kept in a file of its own: what is there already is not run again."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._version import __version__
from ..observed import ObservedMatrix
from ..sweeps import open_sweep
from ..sweeps.native import num_threads

__all__ = ["Job", "Record", "Step", "Store", "machine"]

Record = dict[str, Any]  # what a run has found, as JSON can hold it
Watch = Callable[[int, float], None]  # told the iteration and how far it has come


@dataclass(frozen=True)
class Job:
    """A run: its name, which is that of its file, all it depends on, how to do it, and its parameters in words."""

    name: str
    title: str
    settings: dict[str, Any]
    run: Callable[[Watch], Record]
    words: str
    note: str = ""


@dataclass(frozen=True)
class Step:
    """What `progress` is told: where the whole thing is.

    `state` is "running" (with the iteration and the figure the run is watched by), "done", or "kept": it was there
    from an earlier run.
    """

    number: int  # of the run, from 1
    total: int
    title: str
    state: str
    iteration: int = 0
    figure: float = math.nan


class Store:
    """The folder with the runs that have been done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str, suffix: str = ".json") -> Path:
        """The file of a run."""
        return self.folder / f"{name}{suffix}"

    def find(self, job: Job) -> Record | None:
        """What the run has found, if it was done with the same settings; None if it has to be done."""
        try:
            kept = json.loads(self.path(job.name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(kept, dict) or kept.get("settings") != _as_json(job.settings):
            return None
        if any(not (self.folder / name).is_file() for name in kept.get("files", [])):
            return None
        return kept

    def save(self, job: Job, record: Record) -> Record:
        """Keep what a run has found: whole, or not at all."""
        kept: Record = _as_json({"settings": job.settings, **record})
        self.folder.mkdir(parents=True, exist_ok=True)
        write(self.path(job.name), json.dumps(kept, indent=1, ensure_ascii=False).encode())
        return kept


def write(path: Path, content: bytes) -> None:
    """A whole file in the place of an earlier one, or the earlier one."""
    beside = path.with_name(f".{path.name}.part-{os.getpid()}")
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _as_json(settings: Any) -> Any:
    return json.loads(json.dumps(settings))


def machine() -> dict[str, Any]:
    """What times depend on: the processor, the backend and its threads, and the library."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fallback to NumPy shows in the name
        backend = open_sweep(ObservedMatrix.from_dense([[1.0]])).name
    return {
        "lowsparse": __version__,
        "backend": backend,
        "threads": num_threads() if backend == "native" else 1,
        "cores": os.cpu_count() or 1,
        "processor": _processor(),
    }


def _processor() -> str:
    """The model, as the system names it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        if names:
            return names[0]
    except OSError:
        pass
    if platform.system() == "Darwin":
        asked = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=False
        )
        if asked.stdout.strip():
            return asked.stdout.strip()
    return platform.processor() or platform.machine()
