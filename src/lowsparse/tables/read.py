"""Tables from files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..entries.observed import ObservedMatrix
from .arrays import load
from .columns import ArrowFile, Name, NoNumbersError, Source, TextFile
from .labels import codes_of, encode, label_array, library, whole_numbers
from .table import Layout, Table

__all__ = ["ARRAYS", "TEXT", "ending_of", "read_table"]

TEXT = {".csv", ".tsv"}
ARROW = {".parquet", ".pq", ".arrow", ".feather", ".ipc"}
ARRAYS = {".npy", ".npz", ".mtx", ".mat"}
PACKED = {".csv", ".tsv", ".mtx"}  # may end in .gz as well


def read_table(
    path: str | os.PathLike[str],
    *,
    row: Name | None = None,
    col: Name | None = None,
    value: Name | None = None,
    beside: Sequence[Name] | None = (),
) -> Table:
    """Read a table; the ending of its file says how.

    Parameters
    ----------
    path
        ``.csv`` and ``.tsv`` (also ``.gz``; UTF-8 or UTF-16; separated by commas, semicolons, tabs or bars; a decimal
        comma is told from the first numbers), ``.parquet``, ``.arrow`` and ``.feather``, ``.npy`` (mapped, not read as
        a whole), ``.npz``, ``.mtx`` (also ``.gz``) and ``.mat`` (to version 7).
    row, col, value
        The columns of records, by name or by their place from 0. Without them the table is wide; then its first
        column holds the row labels if it is text, or is named ``index``, ``id``, ``row`` or not at all, or counts
        from 0 or 1. `row` alone names another one. In files of several arrays `value` alone names the matrix.
    beside
        Further columns, by name or place, that are kept as they are, for `write_table`; of records, None is all.

    Labels are kept as they are in the file; text that is all whole numbers becomes integers, and so do the names of
    columns. A first line of numbers is taken for data, unless it starts with an empty cell or consists of ascending
    whole numbers.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "stars.csv")
    >>> _ = path.write_text("user,film,stars\\nbob,7,4.5\\nann,7,3\\nann,9,\\n")
    >>> table = read_table(path, row="user", col="film", value="stars")
    >>> table, table.rows.tolist(), table.columns.tolist()
    (Table(2 rows x 2 columns, 2 values, 3 records), ['ann', 'bob'], [7, 9])
    >>> _ = path.write_text(";mon;tue\\nann;4,5;\\nbob;3;1\\n")
    >>> read_table(path).M.to_dense().tolist()
    [[4.5, nan], [3.0, 1.0]]
    >>> folder.cleanup()
    """
    path = Path(path)
    ending = ending_of(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a file")
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty")
    wanted = (row, col, value)
    if beside and ending in ARRAYS:
        raise ValueError("a file of arrays has no columns beside")
    if ending in ARRAYS:
        return _of_arrays(path, ending, wanted)
    if None in wanted and (col is not None or value is not None):
        raise ValueError("give row, col and value for records; nothing, or row alone, for a wide table")
    source = (TextFile if ending in TEXT else ArrowFile)(path, ending, wanted)
    others = [source.find(name) for name in beside or ()]
    if value is None:
        return _wide(source, row, others)
    places = [source.find(name) for name in wanted]
    rest = range(len(source.names)) if beside is None else others
    return _of_records(source, places, [k for k in rest if k not in places])


def ending_of(path: Path) -> str:
    """The ending that tells the format, without that of packing."""
    ending = path.suffix.lower()
    if ending == ".gz" and Path(path.stem).suffix.lower() in PACKED:
        return Path(path.stem).suffix.lower()
    if ending not in TEXT | ARROW | ARRAYS:
        known = ", ".join(sorted(TEXT | ARROW | ARRAYS))
        raise ValueError(f"the ending of {path} is not that of a table; known are {known}")
    return ending


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """Errors of one kind, with the name of the file."""
    try:
        yield
    except NoNumbersError as error:
        raise NoNumbersError(f"{path}: {error.line}", error.column) from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


def _of_records(source: Source, places: list[int], beside: list[int]) -> Table:
    columns = source.read([*places, *beside], [*places[:2], *beside])
    row, col, value = (source.names[k] for k in places)
    if not len(columns[0]):
        raise ValueError(f"{source.path} has no record")
    with _telling(source.path):
        rows = encode(columns.pop(0), row, text=source.text)  # their memory is free again
        cols = encode(columns.pop(0), col, text=source.text)
        values = source.numbers(columns.pop(0), value)
        layout = replace(source.layout, names=(row, col, value), order=(places[0], places[1], places[2]))
        aside = tuple(zip(beside, [source.names[k] for k in beside], columns, strict=True))
        return replace(Table.from_codes(rows, cols, values, layout), beside=aside)


def _wide(source: Source, row: Name | None, beside: list[int]) -> Table:
    index = source.index() if row is None else source.find(row)
    columns = source.read(range(len(source.names)), [index or 0, *beside])
    height = len(columns[0])
    if not height:
        raise ValueError(f"{source.path} has names of columns and no row")
    if index is None and 0 not in beside and source.is_index(columns[0]):
        index = 0
    others = {*beside, index}
    kept = [k for k, column in enumerate(columns) if k not in others and not source.is_spare(k, column)]
    if not kept:
        raise ValueError(f"{source.path} has row labels and no column of numbers")
    with _telling(source.path):
        rows = np.arange(height) if index is None else _row_labels(columns[index], source.names[index], source.text)
        names = whole_numbers(library().array([source.names[k] for k in kept]))
        narrow = all(columns[k].type in (library().float16(), library().float32()) for k in kept)
        data = np.empty((height, len(kept)), np.float32 if narrow else np.float64, order="F")
        for place, k in enumerate(kept):
            data[:, place] = source.numbers(columns[k], source.names[k])
            columns[k] = None  # its memory is free again
        layout = replace(source.layout, index=None if index is None else source.names[index], place=index or 0)
        aside = tuple((k, source.names[k], columns[k]) for k in beside if k != index)
        return Table(ObservedMatrix.from_dense(data), rows, label_array(names), layout, beside=aside)


def _row_labels(column: Any, name: str, text: bool) -> Any:
    """The labels of the rows of a wide table, in their order; they may repeat."""
    codes, words = codes_of(column)
    if (codes < 0).any():
        raise ValueError(f"row {(codes < 0).argmax() + 1} of the data has no label in the column {name!r}")
    return label_array((whole_numbers(words) if text else words).take(library().array(codes)))


# ---------------------------------------------------------------------- files of arrays


def _of_arrays(path: Path, ending: str, wanted: tuple[Name | None, ...]) -> Table:
    records = wanted[0] is not None
    if None in wanted and (records or wanted[1] is not None):
        raise ValueError("give row, col and value for records; nothing, or value alone, for a matrix")
    held = load(path, ending, records)
    for name in wanted:
        if name is not None and name not in held:
            raise ValueError(f"{path} has no array {name!r}; it has {', '.join(map(repr, sorted(held))) or 'none'}")
    with _telling(path):
        if records:
            row, col, value = (str(name) for name in wanted)
            return Table.from_records(*(np.atleast_1d(held[k]) for k in (row, col, value)), names=(row, col, value))
        matrix = _only_matrix(held) if wanted[2] is None else str(wanted[2])
        M = ObservedMatrix.from_any(held[matrix])
        rows, columns = (
            held[side] if side in held and held[side].shape == (size,) else np.arange(size)
            for side, size in zip(("rows", "columns"), M.shape, strict=True)
        )
        return Table(M, rows, columns, Layout(array=matrix))


def _only_matrix(held: dict[str, Any]) -> str:
    found = [name for name, array in held.items() if array.ndim == 2 and array.dtype.kind in "fiub"]
    if not found:
        others = ", ".join(f"{name!r} {array.shape} of {array.dtype}" for name, array in held.items()) or "nothing"
        raise ValueError(f"there is no matrix of numbers, only {others}: a matrix needs 2 dimensions, and numbers")
    if len(found) > 1:
        shapes = ", ".join(f"{name!r} {held[name].shape}" for name in held)
        raise ValueError(f"there are {len(found)} matrices of numbers among {shapes}: name one as value")
    return found[0]
