"""Where a table is read from: a file, the one table in a .zip file, or a stream such as stdin."""

from __future__ import annotations

import gzip
import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from ...support.files import open_unpacked, parts_within_limit
from ...support.optional import import_pyarrow
from ...support.sizes import check_fits
from .labels import first_line

TEXT = {".csv", ".tsv", ".txt"}
ARROW = {".parquet", ".pq", ".arrow", ".feather", ".ipc"}
ARRAYS = {".npy", ".npz", ".mtx", ".mat"}
EXCEL = {".xlsx"}
COLUMNS = TEXT | ARROW | EXCEL
ENDINGS = COLUMNS | ARRAYS
COMPRESSED = TEXT | {".mtx"}  # may end in .gz as well
ZIP, GZIP = b"PK\x03\x04", b"\x1f\x8b"  # first bytes of packed files
MAGIC = {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"FEA1": ".feather", ZIP: ".xlsx"}  # of streams; else they are text


@dataclass(frozen=True)
class Source:
    """A table to be read."""

    path: Path  # of the file, for error messages too
    ending: str  # tells the format, without ``.gz``
    content: bytes | None = None  # of a stream, or of the table in a .zip file

    @classmethod
    def open(cls, given: str | os.PathLike[str] | IO[bytes] | Source) -> Source:
        """The table at a path, or in a stream of bytes; its format is told by the ending, or by the first bytes."""
        if isinstance(given, Source):
            return given
        if not isinstance(given, str | os.PathLike):
            return cls._of_stream(given)
        path = Path(given)
        ending = ending_inside(path)
        if not path.exists():
            raise FileNotFoundError(f"there is no file {path}")
        if path.is_dir():
            raise ValueError(f"{path} is a folder, not a file")
        if path.is_file() and not path.stat().st_size:
            raise ValueError(f"{path} is empty")
        return cls(path, *_unzip(path)) if path.suffix.lower() == ".zip" else cls(path, ending)

    @classmethod
    def _of_stream(cls, stream: IO[bytes]) -> Source:
        name = Path(str(getattr(stream, "name", "the stream")).strip("<>"))
        content = b"".join(parts_within_limit(stream, name))
        if not content:
            raise ValueError(f"{name} is empty")
        if content.startswith(GZIP):
            with _readable(name):
                content = b"".join(parts_within_limit(gzip.GzipFile(fileobj=io.BytesIO(content)), name))
        ending = next((ending for magic, ending in MAGIC.items() if content.startswith(magic)), ".csv")
        return cls(name, ending, content)

    @cached_property
    def bytes(self) -> bytes:
        """The content, unpacked."""
        if self.content is not None:
            return self.content
        with _readable(self.path), open_unpacked(self.path) as file:
            return file.read()

    @property
    def for_arrow(self) -> Any:
        """What Arrow opens: the path, or the content."""
        return str(self.path) if self.content is None else import_pyarrow().BufferReader(self.content)


def ending_of(path: Path) -> str:
    """The ending that tells the format, without ``.gz``."""
    ending = plain_ending(path)
    if ending not in (COMPRESSED if path.suffix.lower() == ".gz" else ENDINGS):
        raise ValueError(f"the ending of {path} is not that of a table; known are {', '.join(sorted(ENDINGS))}")
    return ending


def ending_inside(path: Path) -> str:
    """The ending that tells the format of a table to be read: of a .zip file that of the table in it."""
    if path.suffix.lower() != ".zip":
        return ending_of(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    return _table_in_zip(path)[1]


def plain_ending(path: Path) -> str:
    """The last ending of the name, without ``.gz``."""
    return (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()


def _unzip(path: Path) -> tuple[str, bytes]:
    """The ending and the content of the table in a .zip file."""
    name, ending = _table_in_zip(path)
    if ending in ARRAYS:
        raise ValueError(f"{path} holds {name}: unpack it first")
    with _readable(path), zipfile.ZipFile(path) as archive:
        check_fits(path, name, archive.getinfo(name).file_size)
        return ending, archive.read(name)


def _table_in_zip(path: Path) -> tuple[str, str]:
    """The name and the ending of the only table in a .zip file."""
    with _readable(path), zipfile.ZipFile(path) as archive:
        files = [info.filename for info in archive.infolist() if not info.is_dir()]
    listed = [name for name in files if not Path(name).name.startswith(".")]
    found = [name for name in listed if Path(name).suffix.lower() in ENDINGS and "__MACOSX" not in name]
    if len(found) != 1:
        shown = ", ".join(found[:5] or listed[:5]) + (", ..." if len(found or listed) > 5 else "")
        raise ValueError(f"{path} holds {len(found) or 'no'} tables ({shown}): it must hold one; unpack it")
    return found[0], Path(found[0]).suffix.lower()


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Let an error of a damaged file name it."""
    try:
        yield
    except PermissionError:
        raise
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError) as error:
        raise ValueError(f"{path} cannot be read ({first_line(error)})") from error
