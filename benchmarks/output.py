"""What benchmarks write: rows of numbers."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["write_csv"]


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write the rows, which all have the columns of the first, into a file; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
