"""Atomic writing: a file or folder is complete at its path, or the path is as it was."""

from __future__ import annotations

import csv
import errno
import io
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["FULL", "refused", "replacing", "write", "write_csv"]

FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))  # the error numbers of a full disk


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path in the same folder, for a file or a folder, that is renamed to `path` if the block succeeds.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "a.txt")) as temporary:
    ...         _ = temporary.write_text("complete")
    ...     [(file.name, file.read_text()) for file in Path(folder).iterdir()]
    [('a.txt', 'complete')]
    """
    temporary = path.with_name(f".{path.name}.part-{secrets.token_hex(4)}")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise refused(path, error) from error
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


def refused(path: Path, error: OSError) -> OSError:
    """The error to raise where the system did not let `path` be written."""
    advice = ": free some space, then give the same command again" if error.errno in FULL else ""
    return OSError(f"cannot write {path}: {error.strerror or error}{advice}")


def write(path: Path, content: bytes) -> None:
    """Write a file, or leave an earlier one as it was."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], digits: int | None = None) -> None:
    """Write rows with the same columns as a CSV file, and make its folder; numbers with so many significant digits."""
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{x:.{digits}g}" if digits and isinstance(x, float) else x for k, x in row.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, file.getvalue().encode())
