"""What a matrix on disk is made of: arrays larger than memory, records in any order, blocks; read in bounded memory.

A folder that was made from the same source before is used again: the manifest says what it was made from (names, sizes
and times of files; shapes of arrays).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..observed import ObservedMatrix
from .build import Chunk, append_columns, sort_into
from .reading import through
from .store import CorruptStoreError, Side, Writer

__all__ = ["Told", "make"]

Told = Callable[[str, int, int], object]  # what is done, how much of it, of how much
PARQUET = {".parquet", ".pq"}
AT_ONCE = 16  # bytes for each number of a dense slab: itself, and what is picked from it
BATCH = 1 << 20  # records


def make(
    source: Any,
    folder: Path,
    *,
    memory: int,
    row: str | None = None,
    col: str | None = None,
    value: str | None = None,
    told: Told | None = None,
) -> None:
    """Put a source on disk, unless it is there already."""
    says = told or (lambda *_: None)
    if isinstance(source, str | os.PathLike) and Path(source).suffix.lower() == ".npy":
        _dense(np.load(source, mmap_mode="r", allow_pickle=False), _stamp([Path(source)]), folder, memory, says)
    elif isinstance(source, str | os.PathLike):
        paths = _parquet_files(Path(source))
        if None in (row, col, value):
            raise ValueError(f"{source} holds records: say which columns are row, col and value")
        _records(paths, (str(row), str(col), str(value)), folder, memory, says)
    elif isinstance(source, ObservedMatrix):
        if not _there(folder, source.fingerprint()):
            with Writer(folder / "columns", source.shape[0], source.dtype, source.fingerprint()) as writer:
                append_columns(writer, source)
    elif isinstance(source, Sequence):
        _blocks([Path(one) for one in source], folder, says)
    elif getattr(source, "ndim", 0) == 2:
        stamp = f"{type(source).__name__} {source.shape} {source.dtype} {getattr(source, 'name', '')}"
        _dense(source, stamp, folder, memory, says)
    else:
        raise TypeError(
            f"{type(source).__name__} is nothing a matrix on disk can be made of: give a path of an .npy file or of "
            "Parquet records, a list of .npz files, or an array with two dimensions (Dask, Zarr, NumPy)"
        )


def _there(folder: Path, stamp: str) -> bool:
    """Whether the folder holds what this source gives."""
    try:
        return Side.open(folder / "columns").source == stamp
    except CorruptStoreError:
        return False


def _stamp(paths: list[Path], *more: str) -> str:
    facts = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return repr((facts, more))


# ---------------------------------------------------------------------- dense arrays


def _dense(X: Any, stamp: str, folder: Path, memory: int, told: Told) -> None:
    """NaN is missing. An array whose rows are in one piece is read by rows, and turned on disk."""
    if len(X.shape) != 2:
        raise ValueError(f"a matrix has two dimensions, not {len(X.shape)}")
    if _there(folder, stamp):
        return
    by_rows = isinstance(X, np.ndarray) and X.flags.c_contiguous and not X.flags.f_contiguous
    lines, length = X.shape if by_rows else X.shape[::-1]
    width = max(1, memory // (AT_ONCE * length))
    chunks = getattr(X, "chunks", None)
    if chunks and not by_rows:  # whole chunks
        size = chunks[1] if isinstance(chunks[1], int) else max(chunks[1])
        width = max(width // size * size, min(width, size))
    kind = np.float32 if np.dtype(X.dtype) in (np.float16, np.float32) else np.float64
    with Writer(folder / ("rows" if by_rows else "columns"), length, kind, stamp) as writer:
        for first in range(0, lines, width):
            part = X[first : first + width].T if by_rows else X[:, first : first + width]
            _append_dense(writer, np.asarray(part, dtype=kind))
            told("reading", min(first + width, lines), lines)
    if by_rows:
        turn(folder, "rows", memory, told)


def _append_dense(writer: Writer, X: NDArray[Any]) -> None:
    if np.isnan(X).all():
        writer.append(np.zeros(X.shape[1], np.int64), [], [])
    else:
        append_columns(writer, ObservedMatrix.from_dense(X))


def turn(folder: Path, side: str, memory: int, told: Told) -> None:
    """The other side of a matrix on disk: the same entries, sorted by the other lines."""
    have = Side.open(folder / side)
    m, n = have.shape
    pieces = have.ranges(max(1, memory // 64))
    parts = [slice(int(have.indptr[first]), int(have.indptr[end])) for first, end in pieces]
    counts = np.zeros(m, np.int64)
    for part in through([have.rows], parts):
        counts += np.bincount(have.rows[part], minlength=m)

    def chunks() -> Iterator[Chunk]:
        for (first, end), part in zip(pieces, through([have.rows, have.values], parts), strict=True):
            columns = np.repeat(np.arange(first, end, dtype=np.int32), np.diff(have.indptr[first : end + 1]))
            yield columns, have.rows[part], have.values[part]

    other = folder / ("columns" if side == "rows" else "rows")
    sort_into(
        other,
        (n, m),
        counts,
        chunks(),
        have.values.dtype,
        memory=memory // 2,
        source=have.source,
        told=lambda done, of: told("sorting", done, of),
    )


# ---------------------------------------------------------------------- blocks of columns


def _blocks(paths: list[Path], folder: Path, told: Told) -> None:
    """Sparse matrices side by side, as `scipy.sparse.save_npz` writes them."""
    if not paths:
        raise ValueError("there is no block")
    stamp = _stamp(paths)
    if _there(folder, stamp):
        return
    first = sparse.load_npz(paths[0])
    height = first.shape[0]
    with Writer(folder / "columns", height, ObservedMatrix.from_scipy(first).dtype, stamp) as writer:
        for k, path in enumerate(paths):
            M = ObservedMatrix.from_scipy(sparse.load_npz(path))
            if M.shape[0] != height:
                raise ValueError(f"{path} has {M.shape[0]} rows, but {paths[0]} has {height}")
            append_columns(writer, M)
            told("reading", k + 1, len(paths))


# ---------------------------------------------------------------------- records


def _parquet_files(path: Path) -> list[Path]:
    found = sorted(one for one in path.rglob("*") if one.suffix.lower() in PARQUET) if path.is_dir() else [path]
    if not found or any(one.suffix.lower() not in PARQUET for one in found):
        raise ValueError(f"{path} is neither an .npy file nor Parquet, nor a folder with Parquet files")
    return found


def _records(paths: list[Path], names: tuple[str, str, str], folder: Path, memory: int, told: Told) -> None:
    """Records in any order; their labels are sorted, and kept beside the matrix."""
    stamp = _stamp(paths, *names)
    if _there(folder, stamp):
        return
    labels, counts = _labels(paths, names, told)
    folder.mkdir(parents=True, exist_ok=True)
    for side, found in zip(("rows", "columns"), labels, strict=True):
        np.save(folder / f"{side}-labels.npy", found, allow_pickle=False)

    def chunks() -> Iterator[Chunk]:
        for rows, columns, values in _batches(paths, names):
            known = ~np.isnan(values)
            i, j = (np.searchsorted(found, given[known]) for found, given in zip(labels, (rows, columns), strict=True))
            yield i.astype(np.int32), j.astype(np.int32), values[known]

    shape = labels[0].size, labels[1].size
    sort_into(
        folder / "columns",
        shape,
        counts,
        chunks(),
        np.float64,
        memory=memory // 2,
        source=stamp,
        told=lambda done, of: told("sorting", done, of),
    )


def _labels(
    paths: list[Path], names: tuple[str, str, str], told: Told
) -> tuple[tuple[NDArray[Any], NDArray[Any]], NDArray[np.int64]]:
    """The labels of rows and columns, sorted, and how many values each column has."""
    rows: NDArray[Any] | None = None
    columns: NDArray[Any] | None = None
    counts = np.zeros(0, np.int64)
    total = 0
    for i, j, values in _batches(paths, names):
        known = ~np.isnan(values)
        new_rows = np.unique(i)
        rows = new_rows if rows is None else np.union1d(rows, new_rows)
        new, own = np.unique(j, return_inverse=True)
        many = np.bincount(own[known], minlength=new.size)
        if columns is None:
            columns, counts = new, many
        else:
            both = np.union1d(columns, new)
            summed = np.zeros(both.size, np.int64)
            summed[np.searchsorted(both, columns)] += counts
            summed[np.searchsorted(both, new)] += many
            columns, counts = both, summed
        total += values.size
        told("counting", total, total)
    if rows is None or columns is None:
        raise ValueError("there is no record")
    return (rows, columns), counts


def _batches(paths: list[Path], names: tuple[str, str, str]) -> Iterator[Chunk]:
    import pyarrow.parquet as pq

    for path in paths:
        file = pq.ParquetFile(path)
        missing = [name for name in names if name not in file.schema_arrow.names]
        if missing:
            raise ValueError(f"{path} has no column {missing[0]!r}; it has {', '.join(file.schema_arrow.names)}")
        for batch in file.iter_batches(BATCH, columns=list(names)):
            i, j, values = (batch.column(name) for name in names)
            for name, labels in zip(names, (i, j), strict=False):
                if labels.null_count:
                    raise ValueError(f"{path}: {labels.null_count} records have no {name!r}")
            yield _labels_of(i), _labels_of(j), np.asarray(values.cast("float64").to_numpy(zero_copy_only=False))


def _labels_of(column: Any) -> NDArray[Any]:
    labels: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return labels.astype(str) if labels.dtype == object else labels
