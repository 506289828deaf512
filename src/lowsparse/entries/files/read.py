"""`read_table` and `read_matrix`: the registry of file formats, and tables from files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...support.optional import import_pyarrow
from ..observed import ObservedMatrix
from .arrays import load_arrays
from .columns import ArrowFile, ColumnFile, Name, NoNumbersError, TextFile
from .labels import encode_labels, factorize, label_array, parse_integers
from .table import Layout, Table

__all__ = ["ARRAYS", "TEXT", "ending_of", "is_table", "read_matrix", "read_table"]

TEXT = {".csv", ".tsv"}
ARROW = {".parquet", ".pq", ".arrow", ".feather", ".ipc"}
ARRAYS = {".npy", ".npz", ".mtx", ".mat"}
ENDINGS = TEXT | ARROW | ARRAYS
COMPRESSED = {".csv", ".tsv", ".mtx"}  # may end in .gz as well

_Names = tuple[Name | None, Name | None, Name | None]  # of rows, columns and values


def ending_of(path: Path) -> str:
    """The ending that tells the format, without ``.gz``."""
    ending = path.suffix.lower()
    if ending == ".gz" and Path(path.stem).suffix.lower() in COMPRESSED:
        return Path(path.stem).suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"the ending of {path} is not that of a table; known are {', '.join(sorted(ENDINGS))}")
    return ending


def is_table(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a file of text, columns or a matrix in another program's format.

    Arrays of NumPy are none: they may be larger than memory.

    >>> is_table("sales.csv.gz"), is_table("x.npy"), is_table("clip.mp4")
    (True, False, False)
    """
    endings = [ending.lower() for ending in Path(path).suffixes]
    ending = "".join(endings[-2:-1] if endings[-1:] == [".gz"] else endings[-1:])
    return ending in TEXT | ARROW | {".mtx", ".mat"} and not Path(path).is_dir()


def read_matrix(
    path: str | os.PathLike[str], *, row: Name | None = None, col: Name | None = None, value: Name | None = None
) -> ObservedMatrix:
    """Read a matrix from a file, without the labels that the file may have; see `read_table`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "days.csv")
    ...     _ = path.write_text("name,mon,tue\\nann,4.5,\\nbob,3,1\\n")
    ...     read_matrix(path).to_dense().tolist()
    [[4.5, nan], [3.0, 1.0]]
    """
    return read_table(path, row=row, col=col, value=value).M


def read_table(
    path: str | os.PathLike[str],
    *,
    row: Name | None = None,
    col: Name | None = None,
    value: Name | None = None,
    keep: Sequence[Name] | None = (),
) -> Table:
    """Read a table; the ending of the file tells the format.

    Parameters
    ----------
    path
        ``.csv`` and ``.tsv`` (also ``.gz``; UTF-8 or UTF-16; separated by commas, semicolons, tabs or bars; with
        decimal points or commas), ``.parquet``, ``.arrow`` and ``.feather``, ``.npy`` (memory-mapped), ``.npz``,
        ``.mtx`` (also ``.gz``) and ``.mat`` (up to version 7).
    row, col, value
        The columns of records, by name or by position from 0. Without them the table is wide; then its first column
        holds the row labels if it is text, or is named ``index``, ``id``, ``row`` or not at all, or counts from 0 or
        1. `row` alone names another one. In files of several arrays `value` alone names the matrix.
    keep
        Further columns, by name or position, that `write_table` is to write unchanged; None: all those of records.

    Labels are kept as they are in the file; text that is all integers becomes integers, and so do the names of columns.
    A first line of numbers is data, unless it starts with an empty cell or consists of ascending integers.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "stars.csv")
    >>> _ = path.write_text("user,film,stars\\nbob,7,4.5\\nann,7,3\\nann,9,\\n")
    >>> table = read_table(path, row="user", col="film", value="stars")
    >>> table, table.rows.tolist(), table.columns.tolist()
    (Table(2 rows x 2 columns, 2 values, 3 records), ['ann', 'bob'], [7, 9])
    >>> folder.cleanup()
    """
    path, names = Path(path), (row, col, value)
    ending = ending_of(path)
    _check_file(path)
    if ending in ARRAYS:
        if keep:
            raise ValueError("keep is for columns, and a file of arrays has none")
        return _from_arrays(path, ending, names)
    if None in names and (col is not None or value is not None):
        raise ValueError("give row, col and value for records; nothing, or row alone, for a wide table")
    source = (TextFile if ending in TEXT else ArrowFile)(path, ending, names)
    kept = [source.find(name) for name in keep or ()]
    if value is None:
        return _wide(source, row, kept)
    positions = [source.find(name) for name in names]
    others = range(len(source.names)) if keep is None else kept
    return _from_records(source, positions, [k for k in others if k not in positions])


def _check_file(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a file")
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty")


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Raise errors as a ValueError with the name of the file."""
    try:
        yield
    except NoNumbersError as error:
        raise NoNumbersError(f"{path}: {error.line}", error.column) from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


# ---------------------------------------------------------------------- files of columns


def _from_records(source: ColumnFile, positions: list[int], kept: list[int]) -> Table:
    columns = source.read([*positions, *kept], [*positions[:2], *kept])
    row, col, value = (source.names[k] for k in positions)
    if not len(columns[0]):
        raise ValueError(f"{source.path} has no record")
    with _naming(source.path):
        rows = encode_labels(columns.pop(0), row, text=source.text)  # pop frees the memory
        cols = encode_labels(columns.pop(0), col, text=source.text)
        values = source.numbers(columns.pop(0), value)
        layout = replace(source.layout, names=(row, col, value), order=(positions[0], positions[1], positions[2]))
        others = tuple(zip(kept, [source.names[k] for k in kept], columns, strict=True))
        return replace(Table.from_codes(rows, cols, values, layout), kept=others)


def _wide(source: ColumnFile, row: Name | None, kept: list[int]) -> Table:
    index = source.index() if row is None else source.find(row)
    columns = source.read(range(len(source.names)), [index or 0, *kept])
    height = len(columns[0])
    if not height:
        raise ValueError(f"{source.path} has names of columns and no row")
    if index is None and 0 not in kept and source.looks_like_index(columns[0]):
        index = 0
    others = {*kept, index}
    data = [k for k, column in enumerate(columns) if k not in others and not source.is_blank(k, column)]
    if not data:
        raise ValueError(f"{source.path} has row labels and no column of numbers")
    with _naming(source.path):
        rows = np.arange(height) if index is None else _row_labels(columns[index], source.names[index], source.text)
        pyarrow = import_pyarrow()
        names = parse_integers(pyarrow.array([source.names[k] for k in data]))
        single = all(columns[k].type in (pyarrow.float16(), pyarrow.float32()) for k in data)
        X = np.empty((height, len(data)), np.float32 if single else np.float64, order="F")
        for j, k in enumerate(data):
            X[:, j] = source.numbers(columns[k], source.names[k])
            columns[k] = None  # frees the memory
        name = None if index is None else source.names[index]
        layout = replace(source.layout, index=name, index_position=index or 0)
        unchanged = tuple((k, source.names[k], columns[k]) for k in kept if k != index)
        return Table(ObservedMatrix.from_dense(X), rows, label_array(names), layout, kept=unchanged)


def _row_labels(column: Any, name: str, text: bool) -> Any:
    """The labels of the rows of a wide table, in their order; they may repeat."""
    codes, words = factorize(column)
    if (codes < 0).any():
        raise ValueError(f"row {(codes < 0).argmax() + 1} of the data has no label in the column {name!r}")
    return label_array((parse_integers(words) if text else words).take(import_pyarrow().array(codes)))


# ---------------------------------------------------------------------- files of arrays


def _from_arrays(path: Path, ending: str, names: _Names) -> Table:
    records = names[0] is not None
    if None in names and (records or names[1] is not None):
        raise ValueError("give row, col and value for records; nothing, or value alone, for a matrix")
    arrays = load_arrays(path, ending, vectors=records)
    for name in names:
        if name is not None and name not in arrays:
            raise ValueError(f"{path} has no array {name!r}; it has {', '.join(map(repr, sorted(arrays))) or 'none'}")
    with _naming(path):
        if records:
            row, col, value = (str(name) for name in names)
            return Table.from_records(*(np.atleast_1d(arrays[k]) for k in (row, col, value)), names=(row, col, value))
        matrix = _only_matrix(arrays) if names[2] is None else str(names[2])
        M = ObservedMatrix.from_any(arrays[matrix])
        rows, columns = (
            arrays[side] if side in arrays and arrays[side].shape == (size,) else np.arange(size)
            for side, size in zip(("rows", "columns"), M.shape, strict=True)
        )
        return Table(M, rows, columns, Layout(array=matrix))


def _only_matrix(arrays: dict[str, Any]) -> str:
    found = [name for name, array in arrays.items() if array.ndim == 2 and array.dtype.kind in "fiub"]
    if not found:
        others = ", ".join(f"{name!r} {array.shape} of {array.dtype}" for name, array in arrays.items()) or "nothing"
        raise ValueError(f"there is no matrix of numbers, only {others}: a matrix needs 2 dimensions, and numbers")
    if len(found) > 1:
        shapes = ", ".join(f"{name!r} {arrays[name].shape}" for name in arrays)
        raise ValueError(f"there are {len(found)} matrices of numbers among {shapes}: name one as value")
    return found[0]
