"""Atomic writing: a file or folder is complete at its path, or the path is as it was. Reading of packed files.

What is not complete yet is in a temporary folder beside its path, with a file that is locked as long as the process
lives. If the process is killed, the lock is free, and the next process that writes there removes the folder. Not every
shared disk shows the locks of other machines, so each machine removes only its own leftovers.
"""

from __future__ import annotations

import csv
import errno
import functools
import gzip
import io
import os
import platform
import re
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from .sizes import check_fits, read_limit

try:
    import fcntl
except ImportError:  # Windows: leftovers are not recognized there
    fcntl = None  # type: ignore[assignment]

MOST_UNPACKED = 1032  # bytes that one byte of a .gz file can become
FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))  # the error numbers of a full disk
WRITE_ONLY = (*FULL, errno.EFBIG, errno.EROFS)  # error numbers that reading does not have
MACHINE = f"{zlib.crc32(os.fsencode(platform.node())):08x}"


# ---------------------------------------------------------------------- temporary folders


class TemporaryFolder:
    """A new folder, removed with its last user, or by a later process if this one is killed.

    One within another keeps that alive.

    >>> with TemporaryFolder("lowsparse-") as folder:
    ...     folder.is_dir()
    True
    >>> folder.exists()
    False
    """

    def __init__(self, prefix: str, folder: Path | None = None, *, within: TemporaryFolder | None = None) -> None:
        parent = Path(folder or tempfile.gettempdir()).absolute()
        remove_leftovers(parent)
        self.path, lock = _make_locked(parent, prefix)
        self.within = within
        self.remove = weakref.finalize(self, _remove_own, self.path, lock, os.getpid())

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()


@functools.lru_cache
def remove_leftovers(folder: Path) -> None:
    """Remove the temporary folders in a folder whose processes were killed; looks once in a process."""
    own = re.compile(rf".+-\w{{8}}-{MACHINE}")
    with suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            if own.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):  # in use, or of another user
                    _remove(Path(entry.path), _lock(Path(entry.path)))


def _make_locked(parent: Path, prefix: str) -> tuple[Path, int | None]:
    """A new folder, and its lock; without one if the disk has no locks, and then no process takes it for a leftover."""
    while True:
        path = Path(tempfile.mkdtemp(f"-{MACHINE}", prefix, parent))
        try:
            lock = _lock(path)
            if os.path.samestat(os.fstat(lock), os.stat(path / "lock")):
                return path, lock
            os.close(lock)
        except (BlockingIOError, FileNotFoundError):
            pass  # another process takes it for a leftover
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            return Path(tempfile.mkdtemp("", prefix, parent)), None


def _lock(folder: Path) -> int:
    """Lock a temporary folder; raises if another process has locked it, or locks are not supported."""
    if fcntl is None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _remove(folder: Path, lock: int | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if lock is not None:
        os.close(lock)
        with suppress(OSError):  # NFS keeps a removed file in the folder until it is closed
            folder.rmdir()


def _remove_own(folder: Path, lock: int | None, process: int) -> None:
    if os.getpid() == process:  # not in a fork of it
        _remove(folder, lock)


# ---------------------------------------------------------------------- writing


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path on the same disk, for a file or a folder, that is renamed to `path` if the block succeeds.

    Errors of writing there are explained; others, as those of reading a source in the block, are raised as they are.
    """
    target = path.absolute()
    with explain_refusal(path):
        folder = TemporaryFolder(f".{path.name}.part-", target.parent)
    try:
        yield folder.path / path.name
        with explain_refusal(path):
            os.replace(folder.path / path.name, target)
    except OSError as error:
        if error.errno in WRITE_ONLY or str(folder.path) in str(error.filename):
            raise refused(path, error) from error
        raise
    finally:
        folder.remove()


@contextmanager
def creating(path: Path) -> Iterator[Path]:
    """As `replacing`, for a path at which nothing may exist."""
    _check_free(path)
    with replacing(path) as temporary:
        yield temporary
        _check_free(path)


def _check_free(path: Path) -> None:
    if os.path.lexists(path):
        raise FileExistsError(f"{path} exists: remove it, or give another path")


def remove_at_once(folder: Path) -> None:
    """Remove a folder; if the process is killed meanwhile, all of it is there, or nothing."""
    with TemporaryFolder(f".{folder.name}.part-", folder.absolute().parent) as temporary:
        os.replace(folder, temporary / folder.name)


@contextmanager
def explain_refusal(path: Path) -> Iterator[None]:
    """Let errors of the system in the block say that `path` cannot be written."""
    try:
        yield
    except OSError as error:
        raise refused(path, error) from error


def refused(path: Path, error: OSError) -> OSError:
    """The error to raise where the system did not let `path` be written."""
    advice = ": free some space, then give the same command again" if error.errno in FULL else ""
    return OSError(f"cannot write {path}: {error.strerror or error}{advice}")


def write(path: Path, content: bytes) -> None:
    """Write a file, or leave an earlier one as it was."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_csv(path: Path, rows: Sequence[Mapping[str, object]], digits: int | None = None) -> None:
    """Write rows with the same columns as a CSV file, and make its folder; numbers with so many significant digits."""
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{x:.{digits}g}" if digits and isinstance(x, float) else x for k, x in row.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, file.getvalue().encode())


def open_unpacked(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """Open a file to read its bytes, unpacked if its name ends in ``.gz``; an error if that is too large."""
    if path.suffix.lower() != ".gz":
        check_fits(path, "its content", path.stat().st_size)
        return path.open("rb")
    if path.stat().st_size * MOST_UNPACKED > read_limit():
        with gzip.open(path) as file:
            for _ in parts_within_limit(file, path):
                pass
    return gzip.open(path)


def parts_within_limit(file: IO[bytes] | gzip.GzipFile, path: object) -> Iterator[bytes]:
    """The bytes of a file, a part at a time; an error once they are more than may be read."""
    size = 0
    while part := file.read(1 << 20):
        size += len(part)
        check_fits(path, "its content", size)
        yield part
