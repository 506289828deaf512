"""A matrix on disk from records (row, column, value) in Parquet files, in any order, in bounded memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...support.optional import import_pyarrow
from .build import Chunk, DuplicateError, OnProgress, sort_into
from .store import Side

PARQUET = {".parquet", ".pq"}
BATCH = 1 << 17  # records


def parquet_files(path: Path) -> list[Path]:
    """The path of a Parquet file, or all of those in a folder and its subfolders."""
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.suffix.lower() in PARQUET)
        if not found:
            raise ValueError(
                f"there is no .parquet file in the folder {path}, which is neither a Zarr array nor a matrix on disk"
            )
        return found
    if path.suffix.lower() not in PARQUET:
        raise ValueError(
            f"{path} is neither a Parquet file nor a folder of them, nor an .npy file, a Zarr array, a video or a "
            "matrix on disk"
        )
    return [path]


def opened(path: Path) -> Any:
    """Open a Parquet file."""
    try:
        return import_pyarrow("parquet").ParquetFile(path)
    except import_pyarrow().ArrowInvalid as error:
        raise ValueError(f"{path} cannot be read as a Parquet file: {error}") from error


def common_schema(paths: list[Path], names: tuple[str, ...] | None = None) -> Any:
    """The columns, or those with these names, of types that fit all files, such as float for integers and floats."""
    common = _schema(paths[0], names)
    for path in paths[1:]:
        schema = _schema(path, names)
        if schema.names != common.names:
            raise ValueError(
                f"{path} has the columns {', '.join(schema.names)}, but {paths[0]} has {', '.join(common.names)}: give "
                "files that have the same columns"
            )
        if not schema.equals(common):
            both = [_decoded(common, schema), _decoded(schema, common)]
            try:
                common = import_pyarrow().unify_schemas(both, promote_options="permissive")
            except import_pyarrow().ArrowException as error:
                raise ValueError(f"{path} and {paths[0]} hold columns of different kinds: {error}") from error
    return common


def _schema(path: Path, names: tuple[str, ...] | None) -> Any:
    schema = opened(path).schema_arrow
    return schema if names is None else import_pyarrow().schema([schema.field(name) for name in names])


def _decoded(schema: Any, other: Any) -> Any:
    """The schema with plain labels, not indices into a dictionary, where the other one has plain labels."""
    kind = import_pyarrow().DictionaryType
    for k, field in enumerate(schema):
        if isinstance(field.type, kind) and not isinstance(other.field(k).type, kind):
            schema = schema.set(k, field.with_type(field.type.value_type))
    return schema


def write_records(
    paths: list[Path], names: tuple[str, str, str], stamp: str, folder: Path, memory: int, on_progress: OnProgress
) -> None:
    """Write records as a matrix; their labels are sorted, and written beside it."""
    for path in paths:
        _check_columns(path, opened(path).schema_arrow, names)
    kind = str(common_schema(paths, names).field(names[2]).type)
    labels, counts = _labels(paths, names, on_progress)
    dtype = np.float32 if kind in ("float", "halffloat") else np.float64
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
        path, half = folder / "columns", memory // 2
        sort_into(path, shape, counts, chunks(), dtype, memory=half, source=stamp, on_progress=on_progress)
    except DuplicateError as error:
        pair = f"{names[0]} {labels[0][error.row]!s} and {names[1]} {labels[1][error.column]!s}"
        raise ValueError(f"several records have {pair}: aggregate first (the mean, the last, ...)") from error


def _labels(
    paths: list[Path], names: tuple[str, str, str], on_progress: OnProgress
) -> tuple[tuple[NDArray[Any], NDArray[Any]], NDArray[np.int64]]:
    """The labels of rows and columns, sorted, and how many values each column has."""
    rows: NDArray[Any] | None = None
    columns: NDArray[Any] | None = None
    counts = np.zeros(0, np.int64)
    done, total = 0, sum(opened(path).metadata.num_rows for path in paths)
    for i, j, values in batches(paths, names):
        known = ~np.isnan(values)
        new_rows = np.unique(i)
        rows = new_rows if rows is None else np.union1d(rows, new_rows)
        new, own = np.unique(j, return_inverse=True)
        new_counts = np.bincount(own[known], minlength=new.size)
        if columns is None:
            columns, counts = new, new_counts
        else:
            both = np.union1d(columns, new)
            summed = np.zeros(both.size, np.int64)
            summed[np.searchsorted(both, columns)] += counts
            summed[np.searchsorted(both, new)] += new_counts
            columns, counts = both, summed
        done += values.size
        on_progress("counting", done, total)
    if rows is None or columns is None:
        raise ValueError(f"there is no record in {', '.join(map(str, paths[:3]))}{' ...' if paths[3:] else ''}")
    return (rows, columns), counts


def batches(paths: list[Path], names: tuple[str, str, str]) -> Iterator[Chunk]:
    """Labels of rows, labels of columns and values, some records at a time."""
    for path in paths:
        for batch in opened(path).iter_batches(BATCH, columns=list(names)):
            i, j, numbers = (batch.column(name) for name in names)
            for name, labels in zip(names, (i, j), strict=False):
                if labels.null_count:
                    raise ValueError(f"{path}: {labels.null_count} records have no {name!r}: leave them out")
            kind = "float32" if str(numbers.type) in ("float", "halffloat") else "float64"
            values = np.asarray(numbers.cast(kind).to_numpy(zero_copy_only=False))
            wrong = np.isinf(values)
            if wrong.any():
                k = int(wrong.argmax())
                where = f"{names[0]} {i[k]} and {names[1]} {j[k]}"
                raise ValueError(f"{path}: {names[2]} is {values[k]} for {where}: leave it empty if it is missing")
            yield labels_of(i), labels_of(j), values


def _check_columns(path: Path, schema: Any, names: tuple[str, str, str]) -> None:
    for name in names:
        if name not in schema.names:
            raise ValueError(f"{path} has no column {name!r}; it has {', '.join(schema.names)}")
    kind = schema.field(names[2]).type
    if not any(str(kind).startswith(number) for number in ("float", "double", "halffloat", "int", "uint", "decimal")):
        raise ValueError(f"{path}: the column {names[2]!r} holds {kind}, no numbers: choose another, or convert it")


def has_labels(folder: Path, side: Side) -> bool:
    """Whether the labels of a matrix from records are beside it."""
    try:
        found = [np.load(folder / f"{name}-labels.npy", mmap_mode="r").shape for name in ("rows", "columns")]
    except (OSError, ValueError, EOFError):
        return False
    return found == [(size,) for size in side.shape]


def labels_of(column: Any) -> NDArray[Any]:
    """A column of labels, as an array that can be sorted."""
    if hasattr(column, "dictionary_decode"):
        column = column.dictionary_decode()
    labels: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return labels.astype(str) if labels.dtype == object else labels
