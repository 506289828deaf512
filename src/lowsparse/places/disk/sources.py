"""The sources a matrix on disk can be built from.

The manifest has a stamp of the source: names, sizes and times of files, or the name that Dask gives an array. A matrix
is not written again if the stamp is the same. An array in memory has none, and is written each time.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ...entries.observed import ObservedMatrix
from ...support.addresses import hide_passwords
from ...support.export import import_zarr
from ...support.files import remove_leftovers
from .build import OnProgress, append_columns, write_dense, write_frames
from .records import has_labels, parquet_files, write_records
from .store import CorruptStoreError, Side, remove_side, write_side

VIDEO = {".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm", ".wmv"}


def build_store(source: Any, folder: Path, names: tuple[str | None, ...], memory: int, on_progress: OnProgress) -> None:
    """Write a source to a folder, unless it is there already; after an error, new files are removed.

    `names` are the columns `row`, `col` and `value` of records.
    """
    if any(names) and not isinstance(source, str | os.PathLike):
        raise ValueError("row, col and value are for records: a Parquet file, or a folder of them")
    with _removed_on_error(folder):
        remove_leftovers(folder.absolute())
        if isinstance(source, str | os.PathLike):
            _build_from_path(Path(source), names, folder, memory, on_progress)
        elif are_paths(source):
            _build_from_blocks([Path(path) for path in source], folder, on_progress)
        elif is_frames(source):
            _build_from_video(source, folder, memory, on_progress)
        elif _is_array(source):
            stamp = _array_stamp(source)
            if _must_build(folder, stamp):
                write_dense(source, stamp, folder, memory, on_progress)
        else:
            _build_from_memory(source, folder)


def are_paths(source: object) -> bool:
    """Whether the source is a list of paths."""
    if not isinstance(source, list | tuple) or not source:
        return False
    return all(isinstance(path, str | os.PathLike) for path in source)


def is_frames(source: object) -> bool:
    """Whether the source is a video (`lowsparse.video.Frames`)."""
    return hasattr(source, "skipped") and hasattr(source, "rate")


def _is_array(source: object) -> bool:
    """Whether the source is an array, read in slabs, in which NaN alone means missing."""
    numbers = getattr(source, "ndim", 0) == 2 and isinstance(getattr(source, "dtype", None), np.dtype)
    return numbers and not sparse.issparse(source) and not isinstance(source, np.ma.MaskedArray)


def _build_from_memory(source: Any, folder: Path) -> None:
    try:
        M = ObservedMatrix.from_any(source)
    except TypeError as error:
        raise TypeError(
            f"a matrix on disk cannot be built from {type(source).__name__}: give a path of an .npy file, of a Zarr "
            "array, of a video or of Parquet records, a list of .npz files, an array with two dimensions "
            "(Dask, Zarr, NumPy), or anything ObservedMatrix.from_any takes"
        ) from error
    stamp = M.fingerprint()
    if _must_build(folder, stamp):
        with write_side(folder / "columns", M.shape[0], M.dtype, stamp) as writer:
            append_columns(writer, M)


@contextmanager
def _removed_on_error(folder: Path) -> Iterator[None]:
    """Remove new folders, and labels of records, if the block fails."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    above = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    if not above.is_dir():
        raise NotADirectoryError(f"a matrix on disk is a folder, and {folder} cannot be one: choose another")
    try:
        yield
    except BaseException:
        with suppress(OSError):  # a folder with other files stays
            if not (folder / "columns").exists():
                _remove_labels(folder)
                remove_side(folder / "rows")
            for path in new:
                path.rmdir()
        raise


def _build_from_path(
    path: Path, names: tuple[str | None, ...], folder: Path, memory: int, on_progress: OnProgress
) -> None:
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {hide_passwords(str(path))}: check the path")
    ending = path.suffix.lower()
    is_array = ending == ".npy" or is_zarr(path)
    if any(names) and (is_array or ending in VIDEO | {".npz"}):
        raise ValueError(f"{path} holds no records: leave row, col and value out")
    if is_array:
        stamp = _stamp([path])
        if _must_build(folder, stamp):
            with _name_file(path):
                X = np.load(path, mmap_mode="r", allow_pickle=False) if ending == ".npy" else open_zarr(path)
                write_dense(X, stamp, folder, memory, on_progress)
    elif ending == ".npz":
        _build_from_blocks([path], folder, on_progress)
    elif ending in VIDEO:
        from ...entries.frames import Frames

        _build_from_video(Frames(path, colour=False), folder, memory, on_progress)
    else:
        paths = parquet_files(path)
        if not all(names):
            raise ValueError(
                f"{path} holds records: say which columns are row, col and value, "
                f"StoredMatrix.build({str(path)!r}, folder, row=..., col=..., value=...)"
            )
        if len(set(names)) < len(names):
            raise ValueError(f"row, col and value must be three columns, not {', '.join(map(repr, names))}")
        stamp = _stamp(paths, *map(str, names))
        if _must_build(folder, stamp, has_labels):
            with _name_file(path):
                write_records(paths, (str(names[0]), str(names[1]), str(names[2])), stamp, folder, memory, on_progress)


@contextmanager
def _name_file(path: Path) -> Iterator[None]:
    """Errors name the file that is read."""
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # NumPy, Arrow and Zarr raise anything on damaged files
        if isinstance(error, FileExistsError) or (isinstance(error, OSError) and error.errno is not None):
            raise  # it is not about this file: a full disk, for example
        raise ValueError(str(error) if str(path) in str(error) else f"{path}: {error}") from error


def is_store(path: object) -> bool:
    """Whether a path is that of a matrix on disk."""
    return isinstance(path, str | os.PathLike) and Path(path, "columns", "manifest.json").exists()


# ---------------------------------------------------------------------- stamps


def _must_build(folder: Path, stamp: str, complete: Callable[[Path, Side], bool] = lambda *_: True) -> bool:
    """Whether the folder lacks the matrix of this source; another one in it is removed."""
    try:
        side = Side.open(folder / "columns")
        if side.source == stamp and complete(folder, side):
            return False
    except CorruptStoreError:
        pass
    for name in ("columns", "rows"):
        remove_side(folder / name)
    _remove_labels(folder)
    return True


def _remove_labels(folder: Path) -> None:
    for side in ("columns", "rows"):
        (folder / f"{side}-labels.npy").unlink(missing_ok=True)


def _stamp(paths: list[Path], *more: str) -> str:
    """Names, sizes and times of files, and of all files in folders."""
    files = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    facts = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
    return repr((facts, more))


def _array_stamp(X: Any) -> str:
    kind = f"{type(X).__name__} {X.shape} {X.dtype}"
    if hasattr(X, "__dask_graph__"):
        return f"{kind} {X.name}"
    filename = getattr(X, "filename", None)
    if isinstance(X, np.memmap) and filename is not None and X.base is not None and not isinstance(X.base, np.ndarray):
        return f"{kind} {_stamp([Path(filename)], str(X.offset), str(X.flags.c_contiguous))}"
    return f"{kind} {secrets.token_hex(8)}"


# ---------------------------------------------------------------------- formats


def is_zarr(path: Path) -> bool:
    """Whether a path is that of a Zarr array or group."""
    return path.is_dir() and any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup"))


def open_zarr(path: Path) -> Any:
    """The array at a path, or the only array of the group there."""
    found = import_zarr().open(str(path), mode="r")
    if hasattr(found, "dtype"):
        return found
    arrays = dict(found.arrays())
    if len(arrays) != 1:
        names = ", ".join(sorted(arrays)) or "none"
        raise ValueError(f"{path} is a group of {len(arrays)} arrays ({names}): give the path of one, {path}/NAME")
    return next(iter(arrays.values()))


def _build_from_video(film: Any, folder: Path, memory: int, on_progress: OnProgress) -> None:
    path, stamp = Path(film.name), secrets.token_hex(8)
    if path.exists():  # and is no pattern or address
        stamp = _stamp([path], "frames", repr((film.region, film.start, film.stop, film.every, film.shrink)))
    if _must_build(folder, stamp):
        write_frames(film, stamp, folder, memory, on_progress)


def _build_from_blocks(paths: list[Path], folder: Path, on_progress: OnProgress) -> None:
    """Sparse matrices side by side, as `scipy.sparse.save_npz` writes them; one is in memory at a time."""
    stamp = _stamp(paths)
    if not _must_build(folder, stamp):
        return
    first = _read_block(paths[0])
    with write_side(folder / "columns", first.shape[0], first.dtype, stamp) as writer:
        for k, path in enumerate(paths):
            M = _read_block(path) if k else first
            if M.shape[0] != writer.n_rows:
                raise ValueError(f"{path} has {M.shape[0]} rows, but {paths[0]} has {writer.n_rows}")
            append_columns(writer, M)
            on_progress("reading", k + 1, len(paths))


def _read_block(path: Path) -> ObservedMatrix:
    if path.suffix.lower() != ".npz":
        raise ValueError(
            f"{path} is no .npz file: a list must hold paths of sparse matrices, as scipy.sparse.save_npz writes"
        )
    try:
        return ObservedMatrix.from_scipy(sparse.load_npz(path))
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{path} is no sparse matrix as scipy.sparse.save_npz writes it: {error}") from error
