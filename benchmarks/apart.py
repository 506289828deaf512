"""Somebody measured in a process of its own: who takes part, what is measured, and how it is stopped at a limit."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import lowsparse as ls

from . import memory

STARTING = 120.0  # seconds a process may take to import and to warm up
STATUS = 124  # of a process that was stopped
OVER_LIMIT = "over the limit"

Found = TypeVar("Found")


@dataclass(frozen=True)
class Entrant:
    """Somebody who takes part."""

    label: str
    package: str = field(default="", kw_only=True)  # to be installed
    module: str = field(default="", kw_only=True)  # imported before anything is measured

    @functools.cached_property
    def version(self) -> str:
        """Of the package; nothing if it is not installed."""
        try:
            return importlib.metadata.version(self.package) if self.package else ls.__version__
        except importlib.metadata.PackageNotFoundError:
            return ""

    def load(self) -> None:
        """Import what it needs."""
        if self.module:
            load(self.module)


def load(name: str) -> Any:
    """A module of a package that need not be installed."""
    return importlib.import_module(name)


# ---------------------------------------------------------------------- in the process


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Leave stdout to the results, and stderr to failures."""
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Leave the process if the block takes longer."""
    alarm = threading.Timer(seconds, os._exit, [STATUS])
    alarm.daemon = True
    alarm.start()
    try:
        yield
    finally:
        alarm.cancel()


def grown(before: int | None) -> float | None:
    """Bytes of the peak of memory above an earlier one; None where the system does not tell."""
    after = memory.peak()
    return None if before is None or after is None else float(after - before)


def measured(run: Callable[[], Found], limit: float) -> tuple[Found, dict[str, float | None]]:
    """What it gives, and the seconds and bytes that takes."""
    before = memory.peak()
    with at_most(limit):
        began = time.perf_counter()
        found = run()
        seconds = time.perf_counter() - began
    return found, {"seconds": seconds, "bytes": grown(before)}


# ---------------------------------------------------------------------- around it


def add_arguments(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """What `ask` gives: who is to be measured, and on the data in which folder."""
    parser.add_argument("--one", choices=names, help=argparse.SUPPRESS)
    parser.add_argument("--at", type=Path, help=argparse.SUPPRESS)


def ask(benchmark: str, name: str, folder: Path, limit: float) -> tuple[list[dict[str, Any]], str]:
    """What `name` prints in a process of its own, an object of JSON a line; and why it did not get to the end."""
    words = ["-m", f"benchmarks.{benchmark}", "--one", name, "--at", str(folder), "--limit", str(limit)]
    try:
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=limit + STARTING)
        printed, complaints, status = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as error:
        part = error.stdout or ""
        printed, complaints, status = part.decode() if isinstance(part, bytes) else part, "", STATUS
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    if status == STATUS:
        return lines, OVER_LIMIT
    last = (complaints.strip().splitlines() or [f"exit status {status}"])[-1]
    return lines, f"failed: {last[:60]}" if status else ""


def row_of(benchmark: str, name: str, folder: Path, limit: float) -> dict[str, Any]:
    """Seconds, error and bytes, with a remark where there are none."""
    lines, remark = ask(benchmark, name, folder, limit)
    return {"seconds": None, "error": None, "bytes": None, **(lines[-1] if lines else {}), "remark": remark}
