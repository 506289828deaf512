"""Matrices too large for memory written to Zarr and Parquet files, a block of columns at a time."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .files import creating
from .optional import import_optional, import_pyarrow

Records = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # rows, columns, values
CHUNK = 1 << 20  # numbers in a chunk
TALLEST = 1 << 17  # rows in a chunk, at most
NAMES = ("row", "column", "value")


def import_zarr() -> Any:
    """Import zarr."""
    return import_optional("zarr", "zarr", "Zarr arrays")


def dense_to_zarr(
    path: str | os.PathLike[str], shape: tuple[int, int], columns: Callable[[slice], NDArray[Any]], dtype: DTypeLike
) -> None:
    """Write an m x n array, of which a function gives some columns, in chunks."""
    m, n = shape
    tall = min(m, TALLEST)
    wide = max(1, min(n, CHUNK // tall))
    zarr, kind = import_zarr(), np.dtype(dtype)
    with creating(Path(path)) as folder:
        array = zarr.open_array(str(folder), mode="w", shape=(m, n), chunks=(tall, wide), dtype=kind)
        for first in range(0, n, wide):
            array[:, first : first + wide] = columns(slice(first, first + wide))


def records_to_zarr(path: str | os.PathLike[str], parts: Iterable[Records], shape: tuple[int, int], nnz: int) -> None:
    """Write a group of the arrays `row`, `column` and `value`, with the matrix's shape as attribute `shape`."""
    zarr = import_zarr()
    with creating(Path(path)) as folder:
        zarr.open_group(str(folder), mode="w").attrs["shape"] = list(map(int, shape))
        arrays: list[Any] = []
        done = 0
        for part in parts:
            arrays = arrays or [
                zarr.open_array(f"{folder}/{name}", mode="w", shape=(nnz,), chunks=(CHUNK,), dtype=numbers.dtype)
                for name, numbers in zip(NAMES, part, strict=True)
            ]
            size = part[0].size
            for array, numbers in zip(arrays, part, strict=True):
                if size:
                    array[done : done + size] = numbers
            done += size


def records_to_parquet(path: str | os.PathLike[str], parts: Iterable[Records]) -> None:
    """Write a table of the columns `row`, `column` and `value`."""
    pyarrow, writer = import_pyarrow(), None
    with creating(Path(path)) as temporary:
        try:
            for part in parts:
                table = pyarrow.table(dict(zip(NAMES, part, strict=True)))
                writer = writer or import_pyarrow("parquet").ParquetWriter(temporary, table.schema)
                writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()
