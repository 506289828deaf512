"""Matrices too large for memory into Zarr and Parquet files, a block of columns at a time; whole, or not there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import files

__all__ = ["dense_to_zarr", "records_to_parquet", "records_to_zarr", "zarr_library"]

Records = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # rows, columns, values
CHUNK = 1 << 20  # numbers of a chunk
TALLEST = 1 << 17  # rows of a chunk
NAMES = ("row", "column", "value")


def dense_to_zarr(path: str | os.PathLike[str], matrix: Any, dtype: Any) -> None:
    """An m x n array in chunks; ``matrix.columns(slice)`` gives its columns.

    >>> import tempfile
    >>> from lowsparse import LowRank
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dense_to_zarr(Path(folder, "l.zarr"), LowRank([[1.0], [2.0]], [[3.0, 4.0]]), np.float32)
    ...     zarr_library().open_array(f"{folder}/l.zarr", mode="r")[:].tolist()
    [[3.0, 4.0], [6.0, 8.0]]
    """
    m, n = matrix.shape
    tall = min(m, TALLEST)
    wide = max(1, min(n, CHUNK // tall))
    with _new_folder(Path(path)) as beside:
        array = zarr_library().open_array(
            str(beside), mode="w", shape=(m, n), chunks=(tall, wide), dtype=np.dtype(dtype)
        )
        for first in range(0, n, wide):
            array[:, first : first + wide] = matrix.columns(slice(first, first + wide))


def records_to_zarr(path: str | os.PathLike[str], parts: Iterable[Records], shape: tuple[int, int], nnz: int) -> None:
    """A group of three arrays, `row`, `column` and `value`, with the shape of the matrix among its attributes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parts = [(np.array([1]), np.array([0]), np.array([0.5]))]
    ...     records_to_zarr(Path(folder, "s.zarr"), parts, (2, 3), 1)
    ...     group = zarr_library().open_group(f"{folder}/s.zarr", mode="r")
    ...     group["row"][:].tolist(), group["value"][:].tolist(), tuple(group.attrs["shape"])
    ([1], [0.5], (2, 3))
    """
    zarr = zarr_library()
    with _new_folder(Path(path)) as beside:
        zarr.open_group(str(beside), mode="w").attrs["shape"] = list(map(int, shape))
        arrays: list[Any] = []
        done = 0
        for part in parts:
            arrays = arrays or [
                zarr.open_array(f"{beside}/{name}", mode="w", shape=(nnz,), chunks=(CHUNK,), dtype=numbers.dtype)
                for name, numbers in zip(NAMES, part, strict=True)
            ]
            size = part[0].size
            for array, numbers in zip(arrays, part, strict=True):
                if size:
                    array[done : done + size] = numbers
            done += size


def records_to_parquet(path: str | os.PathLike[str], parts: Iterable[Records]) -> None:
    """A table of the columns `row`, `column` and `value`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     records_to_parquet(Path(folder, "s.parquet"), [(np.array([1]), np.array([0]), np.array([0.5]))])
    ...     import pyarrow.parquet
    ...     pyarrow.parquet.read_table(f"{folder}/s.parquet").to_pylist()
    [{'row': 1, 'column': 0, 'value': 0.5}]
    """
    from ..tables.labels import library

    writer: Any = None
    with files.replacing(Path(path)) as beside:
        try:
            for part in parts:
                table = library().table(dict(zip(NAMES, part, strict=True)))
                writer = writer or library("parquet").ParquetWriter(beside, table.schema)
                writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()


@contextmanager
def _new_folder(path: Path) -> Iterator[Path]:
    """A folder beside `path` to write to, which takes its name once the block has ended well."""
    if path.exists():
        raise FileExistsError(f"{path} exists: remove it, or give another path")
    beside = path.with_name(f".{path.name}.part-{os.getpid()}")
    try:
        yield beside
        os.replace(beside, path)
    except OSError as error:
        raise files.refused(path, error) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def zarr_library() -> Any:
    """Zarr, or an error that names the extra."""
    try:
        import zarr
    except ImportError as error:
        raise ImportError("Zarr needs the extra zarr: python -m pip install 'lowsparse[zarr]'") from error
    return zarr
