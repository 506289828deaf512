"""What a matrix on disk is made of, and whether it was made of it before.

The manifest says what a matrix was made from: names, sizes and times of files, the name that Dask gives an array. What
has no such name, an array in memory, is written anew each time.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ...entries.observed import ObservedMatrix
from ...support.export import import_zarr
from .build import OnProgress, append_columns, dense, frames
from .records import has_labels, parquet_files, records
from .store import CorruptStoreError, Side, Writer, remove_side

__all__ = ["are_paths", "is_frames", "is_store", "make"]

VIDEO = {".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm", ".wmv"}


def make(
    source: Any,
    folder: Path,
    *,
    memory: int,
    row: str | None = None,
    col: str | None = None,
    value: str | None = None,
    on_progress: OnProgress | None = None,
) -> None:
    """Put a source on disk, unless it is there already; what was new is gone after an error."""
    says = on_progress or (lambda *_: None)
    names = (row, col, value)
    if any(names) and not isinstance(source, str | os.PathLike):
        raise ValueError("row, col and value are for records: a Parquet file, or a folder of them")
    with _made(folder):
        if isinstance(source, str | os.PathLike):
            _file(Path(source), names, folder, memory, says)
        elif are_paths(source):
            _blocks([Path(one) for one in source], folder, says)
        elif is_frames(source):
            _video(source, folder, memory, says)
        elif _is_array(source):
            stamp = _stamp_of_array(source)
            if _to_be_made(folder, stamp):
                dense(source, stamp, folder, memory, says)
        else:
            _in_memory(source, folder)


def are_paths(source: Any) -> bool:
    """Whether it is a list of paths.

    >>> are_paths(["a.npz", Path("b.npz")]), are_paths([[1.0, 2.0]]), are_paths([])
    (True, False, False)
    """
    return (
        isinstance(source, list | tuple) and bool(source) and all(isinstance(one, str | os.PathLike) for one in source)
    )


def is_frames(source: Any) -> bool:
    """Whether it is a video (`lowsparse.video.Frames`).

    >>> is_frames([[1.0]])
    False
    """
    return hasattr(source, "skipped") and hasattr(source, "rate")


def _is_array(source: Any) -> bool:
    """Whether NumPy reads slabs of it, and NaN is all that is missing."""
    numbers = getattr(source, "ndim", 0) == 2 and isinstance(getattr(source, "dtype", None), np.dtype)
    return numbers and not sparse.issparse(source) and not isinstance(source, np.ma.MaskedArray)


def _in_memory(source: Any, folder: Path) -> None:
    """What an `ObservedMatrix` is made of."""
    try:
        M = ObservedMatrix.from_any(source)
    except TypeError as error:
        raise TypeError(
            f"{type(source).__name__} is nothing a matrix on disk can be made of: give a path of an .npy file, of a "
            "Zarr array, of a video or of Parquet records, a list of .npz files, an array with two dimensions "
            "(Dask, Zarr, NumPy), or what else ObservedMatrix.from_any takes"
        ) from error
    stamp = M.fingerprint()
    if _to_be_made(folder, stamp):
        with Writer(folder / "columns", M.shape[0], M.dtype, stamp) as writer:
            append_columns(writer, M)


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Folders that were not there before are taken away again if the block fails, labels of records too."""
    new = [one for one in (folder, *folder.parents) if not one.exists()]
    above = next((one for one in folder.parents if one.exists()), folder)
    if not (folder if folder.exists() else above).is_dir():
        raise NotADirectoryError(f"a matrix on disk is a folder, and {folder} cannot be one: choose another")
    try:
        yield
    except BaseException:
        with suppress(OSError):  # something else is in it
            if not (folder / "columns").exists():
                _remove_labels(folder)
                remove_side(folder / "rows")
            for one in new:
                one.rmdir()
        raise


def _file(path: Path, names: tuple[str | None, ...], folder: Path, memory: int, on_progress: OnProgress) -> None:
    """A path, by its ending and by what is there."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}: check the path")
    ending = path.suffix.lower()
    array = ending == ".npy" or is_zarr(path)
    if any(names) and (array or ending in VIDEO | {".npz"}):
        raise ValueError(f"{path} holds no records: leave row, col and value out")
    if array:
        stamp = _stamp([path])
        if _to_be_made(folder, stamp):
            X = np.load(path, mmap_mode="r", allow_pickle=False) if ending == ".npy" else open_zarr(path)
            dense(X, stamp, folder, memory, on_progress)
    elif ending == ".npz":
        _blocks([path], folder, on_progress)
    elif ending in VIDEO:
        from ...entries.frames import Frames

        _video(Frames(path, colour=False), folder, memory, on_progress)
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
        if _to_be_made(folder, stamp, has_labels):
            records(paths, (str(names[0]), str(names[1]), str(names[2])), stamp, folder, memory, on_progress)


def is_store(path: Any) -> bool:
    """Whether a path is that of a matrix on disk.

    >>> is_store("nowhere")
    False
    """
    return isinstance(path, str | os.PathLike) and Path(path, "columns", "manifest.json").exists()


# ---------------------------------------------------------------------- what was made before


def _to_be_made(folder: Path, stamp: str, complete: Callable[[Path, Side], bool] = lambda *_: True) -> bool:
    """Whether the folder does not hold all that this source gives; what it holds instead is removed."""
    try:
        side = Side.open(folder / "columns")
        if side.source == stamp and complete(folder, side):
            return False
    except CorruptStoreError:
        pass
    for side_name in ("columns", "rows"):
        remove_side(folder / side_name)
    _remove_labels(folder)
    return True


def _remove_labels(folder: Path) -> None:
    for side in ("columns", "rows"):
        (folder / f"{side}-labels.npy").unlink(missing_ok=True)


def _stamp(paths: list[Path], *more: str) -> str:
    """Names, sizes and times; of folders, those of all files in them."""
    files = [one for path in paths for one in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    facts = [(str(one.resolve()), one.stat().st_size, one.stat().st_mtime_ns) for one in files if one.is_file()]
    return repr((facts, more))


def _stamp_of_array(X: Any) -> str:
    kind = f"{type(X).__name__} {X.shape} {X.dtype}"
    if hasattr(X, "__dask_graph__"):
        return f"{kind} {X.name}"
    filename = getattr(X, "filename", None)
    if isinstance(X, np.memmap) and filename is not None and X.base is not None and not isinstance(X.base, np.ndarray):
        return f"{kind} {_stamp([Path(filename)], str(X.offset), str(X.flags.c_contiguous))}"
    return f"{kind} {secrets.token_hex(8)}"


# ---------------------------------------------------------------------- files of their own kind


def is_zarr(path: Path) -> bool:
    """Whether a path is that of a Zarr array or group.

    >>> is_zarr(Path("ratings.parquet"))
    False
    """
    return path.is_dir() and any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup"))


def open_zarr(path: Path) -> Any:
    """The array at a path, or the only one of the group there."""
    found = import_zarr().open(str(path), mode="r")
    if hasattr(found, "dtype"):
        return found
    arrays = dict(found.arrays())
    if len(arrays) != 1:
        names = ", ".join(sorted(arrays)) or "none"
        raise ValueError(f"{path} is a group of {len(arrays)} arrays ({names}): give the path of one, {path}/NAME")
    return next(iter(arrays.values()))


def _video(film: Any, folder: Path, memory: int, on_progress: OnProgress) -> None:
    path = Path(film.name)
    if path.exists():
        parts = (film.region, film.start, film.stop, film.every, film.shrink)
        stamp = _stamp([path], "frames", repr(parts))
    else:  # a pattern or an address
        stamp = secrets.token_hex(8)
    if _to_be_made(folder, stamp):
        frames(film, stamp, folder, memory, on_progress)


def _blocks(paths: list[Path], folder: Path, on_progress: OnProgress) -> None:
    """Sparse matrices side by side, as `scipy.sparse.save_npz` writes them; one is in memory at a time."""
    stamp = _stamp(paths)
    if not _to_be_made(folder, stamp):
        return
    first = _block(paths[0])
    with Writer(folder / "columns", first.shape[0], first.dtype, stamp) as writer:
        for k, path in enumerate(paths):
            M = _block(path) if k else first
            if M.shape[0] != writer.height:
                raise ValueError(f"{path} has {M.shape[0]} rows, but {paths[0]} has {writer.height}")
            append_columns(writer, M)
            on_progress("reading", k + 1, len(paths))


def _block(path: Path) -> ObservedMatrix:
    if path.suffix.lower() != ".npz":
        raise ValueError(f"{path} is no .npz file: in a list are sparse matrices as scipy.sparse.save_npz writes them")
    try:
        return ObservedMatrix.from_scipy(sparse.load_npz(path))
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{path} is no sparse matrix as scipy.sparse.save_npz writes it: {error}") from error
