"""One run of one method, kept in a file of its own: what is there already is not run again."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import warnings
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._version import __version__
from ..entries.observed import ObservedMatrix
from ..support.files import write
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
    needs: Mapping[str, type | Mapping[str, type]]  # what its record must hold, and of which kind
    note: str = ""
    picture: bool = False  # whether a PNG file of the same name belongs to it


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

    def __init__(self, folder: Path, fresh: bool = False) -> None:
        self.folder, self.fresh = folder, fresh

    def path(self, name: str, suffix: str = ".json") -> Path:
        """The file of a run."""
        return self.folder / f"{name}{suffix}"

    def find(self, job: Job) -> Record | None:
        """What the run has found, if it was done with the same settings; None if it has to be done."""
        if self.fresh:
            return None
        try:
            kept = json.loads(self.path(job.name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(kept, dict) or kept.get("settings") != _as_json(job.settings):
            return None
        if not _has(kept, job.needs):
            return None
        picture = self.path(job.name, ".png")
        if job.picture and (kept.get("files") != [picture.name] or not _whole_png(picture)):
            return None
        return kept

    def save(self, job: Job, record: Record) -> Record:
        """Keep what a run has found: whole, or not at all."""
        kept: Record = _as_json({"settings": job.settings, **record})
        self.folder.mkdir(parents=True, exist_ok=True)
        write(self.path(job.name), json.dumps(kept, indent=1, ensure_ascii=False).encode())
        return kept


def _has(kept: Record, needs: Mapping[str, type | Mapping[str, type]]) -> bool:
    """Whether everything is there, of its kind, and lists of one length.

    >>> _has({"error": [0.1, 0.2], "seconds": [1.0]}, {"error": list, "seconds": list})
    False
    """
    for name, kind in needs.items():
        value = kept.get(name)
        if isinstance(kind, Mapping):
            if not isinstance(value, dict) or not _has(value, kind):
                return False
        elif not isinstance(value, kind):
            return False
    lengths = {len(kept[name]) for name, kind in needs.items() if kind is list}
    return len(lengths) <= 1 and 0 not in lengths


def _whole_png(path: Path) -> bool:
    """Whether every chunk of a PNG file is there and is what was written."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    at, kind = 8, b""
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        return False
    while at + 12 <= len(content):
        end = at + 12 + int.from_bytes(content[at : at + 4], "big")
        kind, chunk = content[at + 4 : at + 8], content[at + 4 : end - 4]
        if end > len(content) or zlib.crc32(chunk) != int.from_bytes(content[end - 4 : end], "big"):
            return False
        at = end
    return kind == b"IEND" and at == len(content)


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
