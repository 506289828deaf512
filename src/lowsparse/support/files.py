"""Files that are there as a whole or not at all, and rows of numbers in them."""

from __future__ import annotations

import csv
import errno
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["FULL", "refused", "replacing", "write", "write_csv"]

FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))  # errors: there is no room left on the disk


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to, which takes its place once the block has ended well."""
    beside = path.with_name(f".{path.name}.part-{os.getpid()}")
    try:
        yield beside
        os.replace(beside, path)
    except OSError as error:
        raise refused(path, error) from error
    finally:
        beside.unlink(missing_ok=True)


def refused(path: Path, error: OSError) -> OSError:
    """What to raise where the system did not let `path` be written.

    >>> refused(Path("a.csv"), OSError(errno.ENOSPC, "No space left on device"))
    OSError('cannot write a.csv: No space left on device: free some space, then give the same command again')
    """
    advice = ": free some space, then give the same command again" if error.errno in FULL else ""
    return OSError(f"cannot write {path}: {error.strerror or error}{advice}")


def write(path: Path, content: bytes) -> None:
    """A whole file in the place of an earlier one, or the earlier one."""
    with replacing(path) as beside:
        beside.write_bytes(content)


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], digits: int | None = None) -> None:
    """Rows, which all have the columns of the first, as a CSV file; its folder is made if need be.

    Numbers have so many `digits`, or all of them, and where there is nothing there is nothing.
    """
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    writer.writerows({name: _cell(value, digits) for name, value in row.items()} for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, file.getvalue().encode())


def _cell(value: Any, digits: int | None) -> Any:
    return f"{value:.{digits}g}" if digits and isinstance(value, float) else value
