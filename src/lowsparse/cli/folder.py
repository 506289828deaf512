"""Where a command writes to."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["obstacle"]


def obstacle(out: Path) -> str | None:
    """Why nothing could be written to this folder, which need not be there yet; None if it can.

    >>> obstacle(Path(".")) is None
    True
    """
    there = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    if not there.is_dir():
        return f"{there} is not a folder: choose another --out"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"cannot write to {there}: choose another --out"
    return None
