"""Runs of methods, each stored in a file: finished runs are reused."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._version import __version__
from ..entries.observed import ObservedMatrix
from ..support.files import write
from ..sweeps.native import num_threads

__all__ = ["Job", "Record", "RunProgress", "Store", "machine"]

Record = dict[str, Any]  # the result of a run, as JSON
Watch = Callable[[int, float], None]  # called with the iteration and a measure of progress


@dataclass(frozen=True)
class Job:
    """A run of a method: its name, which is that of its file, all it depends on, and the function to run."""

    name: str
    title: str
    settings: dict[str, Any]
    run: Callable[[Watch], Record]
    description: str  # of the parameters
    schema: Mapping[str, type | Mapping[str, type]]  # required keys of the record, and their types
    note: str = ""
    picture: bool = False  # whether the run also writes a PNG file of this name


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

    def path(self, name: str, suffix: str = ".json") -> Path:
        """The file of a run."""
        return self.folder / f"{name}{suffix}"

    def find(self, job: Job) -> Record | None:
        """The record of a run with the same settings; None if there is none."""
        if self.fresh:
            return None
        try:
            kept = json.loads(self.path(job.name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(kept, dict) or kept.get("settings") != _as_json(job.settings):
            return None
        if not _matches(kept, job.schema):
            return None
        picture = self.path(job.name, ".png")
        if job.picture and (kept.get("files") != [picture.name] or not _is_complete_png(picture)):
            return None
        return kept

    def save(self, job: Job, record: Record) -> Record:
        """Store the record of a run."""
        kept: Record = _as_json({"settings": job.settings, **record})
        self.folder.mkdir(parents=True, exist_ok=True)
        write(self.path(job.name), json.dumps(kept, indent=1, ensure_ascii=False).encode())
        return kept


def _matches(kept: Record, schema: Mapping[str, type | Mapping[str, type]]) -> bool:
    """Whether the record has all keys, of their types, and lists of one length."""
    for name, kind in schema.items():
        value = kept.get(name)
        if isinstance(kind, Mapping):
            if not isinstance(value, dict) or not _matches(value, kind):
                return False
        elif not isinstance(value, kind):
            return False
    lengths = {len(kept[name]) for name, kind in schema.items() if kind is list}
    return len(lengths) <= 1 and 0 not in lengths


def _is_complete_png(path: Path) -> bool:
    """Whether all chunks of a PNG file are there, with the right checksums."""
    from PIL import Image

    try:
        with Image.open(path) as picture:
            picture.verify()
    except (OSError, SyntaxError, ValueError):
        return False
    return True


def _as_json(settings: Any) -> Any:
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
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        if names:
            return names[0]
    except OSError:
        pass
    if platform.system() == "Darwin":
        model = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=False
        )
        if model.stdout.strip():
            return model.stdout.strip()
    return platform.processor() or platform.machine()
