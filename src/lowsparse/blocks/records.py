"""Records (row, column, value) in Parquet files, in any order, as a matrix on disk; read in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .build import Chunk, DuplicateError, Told, sort_into

__all__ = ["BATCH", "batches", "labels_of", "parquet_files", "records"]

PARQUET = {".parquet", ".pq"}
BATCH = 1 << 17  # records


def parquet_files(path: Path) -> list[Path]:
    """A Parquet file, or all of a folder and the folders in it.

    >>> parquet_files(Path("ratings.parquet"))
    [PosixPath('ratings.parquet')]
    """
    found = sorted(one for one in path.rglob("*") if one.suffix.lower() in PARQUET) if path.is_dir() else [path]
    if not found or any(one.suffix.lower() not in PARQUET for one in found):
        raise ValueError(
            f"{path} is neither a Parquet file nor a folder of them, nor an .npy file, a Zarr array, a video or a "
            "matrix that was put on disk before"
        )
    return found


def records(paths: list[Path], names: tuple[str, str, str], stamp: str, folder: Path, memory: int, told: Told) -> None:
    """Records in any order; their labels are sorted, and kept beside the matrix."""
    labels, counts = _labels(paths, names, told)
    kinds = {str(_parquet().read_schema(path).field(names[2]).type) for path in paths}
    dtype = np.float32 if kinds <= {"float", "halffloat"} else np.float64
    folder.mkdir(parents=True, exist_ok=True)
    for side, found in zip(("rows", "columns"), labels, strict=True):
        np.save(folder / f"{side}-labels.npy", found, allow_pickle=False)

    def chunks() -> Iterator[Chunk]:
        for rows, columns, values in batches(paths, names):
            known = ~np.isnan(values)
            i, j = (np.searchsorted(found, given[known]) for found, given in zip(labels, (rows, columns), strict=True))
            yield i.astype(np.int32), j.astype(np.int32), values[known]

    shape = labels[0].size, labels[1].size
    try:
        sort_into(
            folder / "columns",
            shape,
            counts,
            chunks(),
            dtype,
            memory=memory // 2,
            source=stamp,
            told=lambda done, of: told("sorting", done, of),
        )
    except DuplicateError as error:
        pair = f"{names[0]} {labels[0][error.row]!s} and {names[1]} {labels[1][error.column]!s}"
        raise ValueError(f"several records have {pair}: aggregate first (the mean, the last, ...)") from error


def _labels(
    paths: list[Path], names: tuple[str, str, str], told: Told
) -> tuple[tuple[NDArray[Any], NDArray[Any]], NDArray[np.int64]]:
    """The labels of rows and columns, sorted, and how many values each column has."""
    rows: NDArray[Any] | None = None
    columns: NDArray[Any] | None = None
    counts = np.zeros(0, np.int64)
    done, total = 0, sum(_parquet().read_metadata(path).num_rows for path in paths)
    for i, j, values in batches(paths, names):
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
        done += values.size
        told("counting", done, total)
    if rows is None or columns is None:
        raise ValueError("there is no record")
    return (rows, columns), counts


def batches(paths: list[Path], names: tuple[str, str, str]) -> Iterator[Chunk]:
    """Labels of rows, labels of columns and values, some records at a time, in the order of the files."""
    for path in paths:
        file = _parquet().ParquetFile(path)
        _check_columns(path, file.schema_arrow, names)
        for batch in file.iter_batches(BATCH, columns=list(names)):
            i, j, values = (batch.column(name) for name in names)
            for name, labels in zip(names, (i, j), strict=False):
                if labels.null_count:
                    raise ValueError(f"{path}: {labels.null_count} records have no {name!r}")
            kind = "float32" if str(values.type) in ("float", "halffloat") else "float64"
            yield labels_of(i), labels_of(j), np.asarray(values.cast(kind).to_numpy(zero_copy_only=False))


def _check_columns(path: Path, schema: Any, names: tuple[str, str, str]) -> None:
    for name in names:
        if name not in schema.names:
            raise ValueError(f"{path} has no column {name!r}; it has {', '.join(schema.names)}")
    kind = schema.field(names[2]).type
    if not any(str(kind).startswith(number) for number in ("float", "double", "halffloat", "int", "uint", "decimal")):
        raise ValueError(f"{path}: the column {names[2]!r} holds {kind}, no numbers")


def labels_of(column: Any) -> NDArray[Any]:
    """A column of labels as an array that can be sorted."""
    if hasattr(column, "dictionary_decode"):
        column = column.dictionary_decode()
    labels: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return labels.astype(str) if labels.dtype == object else labels


def _parquet() -> Any:
    from ..tables.labels import library

    return library("parquet")
