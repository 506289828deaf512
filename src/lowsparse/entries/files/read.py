"""`read_table` and `read_matrix`: the registry of file formats, and tables from files."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from ...support.optional import import_pyarrow
from ...support.sizes import TooLargeError, check_fits
from ..observed import ObservedMatrix
from .arrays import load_arrays
from .columns import ArrowFile, ColumnFile, Name, NoNumbersError
from .excel import ExcelFile
from .labels import encode_labels, factorize, label_array, parse_integers
from .numbers import Markers
from .source import ARRAYS, ARROW, ENDINGS, EXCEL, Source, plain_ending
from .table import Layout, Table
from .text import TextFile

PER_LINE = 32  # bytes for each row and column of a sparse matrix: where it starts, its label

_Names = tuple[Name | None, Name | None, Name | None]  # of rows, columns and values


def is_table(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a file of text, columns or a matrix in another program's format.

    Arrays of NumPy are none: they may be larger than memory.

    >>> is_table("sales.csv.gz"), is_table("x.npy"), is_table("clip.mp4")
    (True, False, False)
    """
    return plain_ending(Path(path)) in (ENDINGS | {".zip"}) - {".npy", ".npz"} and not Path(path).is_dir()


def read_matrix(
    path: str | os.PathLike[str], *, row: Name | None = None, col: Name | None = None, value: Name | None = None
) -> ObservedMatrix:
    """Read a matrix from a file, without the labels that the file may have; see `read_table`.

    Parameters
    ----------
    path, row, col, value
        As in `read_table`.

    Returns
    -------
    ObservedMatrix
        What is empty in the file is missing.

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
    path: str | os.PathLike[str] | IO[bytes] | Source,
    *,
    row: Name | None = None,
    col: Name | None = None,
    value: Name | None = None,
    keep: Sequence[Name] | None = (),
    header: bool | None = None,
    missing: Iterable[str | float] = (),
) -> Table:
    """Read a table; the ending of the file tells the format.

    Parameters
    ----------
    path
        ``.csv``, ``.tsv`` and ``.txt`` (also ``.gz``; in any encoding; separated by commas, semicolons, tabs or bars;
        numbers such as ``1.234,50``, ``$4,473.08`` or ``43%``, which is 43), ``.xlsx`` (the first sheet), ``.parquet``,
        ``.arrow`` and ``.feather``, ``.npy`` (memory-mapped), ``.npz``, ``.mtx`` (also ``.gz``), ``.mat`` (up to
        version 7), and a ``.zip`` with one of these tables in it. Or an open binary file, such as ``sys.stdin.buffer``.
    row, col, value
        The columns of records, by name or by position from 0. Without them the table is wide; then its first column
        holds the row labels if it is text, or is named ``index``, ``id``, ``row`` or not at all, or counts from 0 or
        1. `row` alone names another one. In files of several arrays `value` alone names the matrix.
    keep
        Columns, by name or position, that are no data, and that `write_table` writes unchanged. Those of a wide table
        that hold text or dates are kept without asking. None: all further columns of records.
    header
        Whether the first line of text names the columns; None: guessed. A first line of numbers is data, unless these
        are likelier to be names: 0, 1, 2, ..., ascending years, or many ascending numbers, none of which goes on below.
    missing
        What stands for a missing value, words or numbers such as -9999, besides an empty cell, NA, NaN, null, none,
        missing, ``-``, ``?``, ``.`` and the like.

    Returns
    -------
    Table
        The matrix `M`, the labels of its `rows` and `columns`, and what `write_table` needs to write it again.

    Raises
    ------
    ValueError, OSError
        If the file cannot be read, or not as a table; the message says what to do.

    Notes
    -----
    A file that would take more than half of the memory is refused; the environment variable `LOWSPARSE_READ_LIMIT`
    (such as "64GB") sets another limit.

    Labels are kept as they are in the file; text that is all integers becomes integers, and so do the names of columns.

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
    source, names, markers = Source.open(path), (row, col, value), Markers(missing)
    if source.ending in ARRAYS:
        if keep:
            raise ValueError("keep is for columns, and a file of arrays has none")
        return _from_arrays(source.path, source.ending, names, markers)
    if None in names and (col is not None or value is not None):
        raise ValueError("give row, col and value for records; nothing, or row alone, for a wide table")
    if source.ending in ARROW:
        file: ColumnFile = ArrowFile(source, markers)
    else:
        file = (ExcelFile if source.ending in EXCEL else TextFile)(source, names, header, markers)
    kept = [file.find(name) for name in keep or ()]
    if value is None:
        return _wide(file, row, kept)
    positions = [file.find(name) for name in names]
    others = range(len(file.names)) if keep is None else kept
    return _from_records(file, positions, [k for k in others if k not in positions])


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Raise errors as a ValueError with the name of the file."""
    try:
        yield
    except NoNumbersError as error:
        raise NoNumbersError(f"{path}: {error.line}", error.column, error.cell) from error
    except TooLargeError:
        raise
    except (ValueError, TypeError, NotImplementedError) as error:  # the last is Arrow's, of types it has no kernel for
        raise ValueError(f"{path}: {error}") from error


# ---------------------------------------------------------------------- files of columns


def _from_records(file: ColumnFile, positions: list[int], kept: list[int]) -> Table:
    columns = file.read([*positions, *kept])
    row, col, value = (file.names[k] for k in positions)
    if not len(columns[0]):
        raise ValueError(f"{file.path} has no record")
    with _naming(file.path):
        rows = encode_labels(columns.pop(0), row, text=file.text, locate=file.locate)  # pop frees the memory
        cols = encode_labels(columns.pop(0), col, text=file.text, locate=file.locate)
        cells = columns.pop(0)
        values = file.numbers(cells, value)
        order = (positions[0], positions[1], positions[2])
        layout = replace(file.layout, names=(row, col, value), order=order, comments=tuple(file.comments))
        if len(positions) + len(kept) < len(file.names):
            layout = replace(layout, head=None)  # not all of its columns are written again
        others = tuple(zip(kept, [file.names[k] for k in kept], columns, strict=True))
        table = Table.from_codes(rows, cols, values, layout, file.locate)
        return replace(table, kept=others, cells=(cells,) if file.text else None)


def _wide(file: ColumnFile, row: Name | None, kept: list[int]) -> Table:
    index = file.index() if row is None else file.find(row)
    columns = file.read(range(len(file.names)))
    if not len(columns[0]):
        raise ValueError(f"{file.path} has names of columns and no row")
    with _naming(file.path):
        if index is None and 0 not in kept and file.looks_like_index(columns[0]):
            index = 0
        numbers = _numbers_by_position(file, columns, {*kept, index})
        if not numbers:
            raise ValueError("there is no column of numbers")
        rows = np.arange(len(columns[0])) if index is None else _row_labels(file, columns[index], file.names[index])
        names = parse_integers(import_pyarrow().array([file.names[k] for k in numbers]))
        layout = replace(
            file.layout,
            index=None if index is None else file.names[index],
            index_position=index or 0,
            comments=tuple(file.comments),
        )
        kept = [k for k in range(len(columns)) if k != index and k not in numbers]
        others = tuple((k, file.names[k], columns[k]) for k in kept)
        cells = tuple(columns[k] for k in numbers) if file.text else None
        truths = tuple(j for j, k in enumerate(numbers) if file.holds_truths(columns[k], numbers[k]))
        del columns
        M = ObservedMatrix.from_dense(_stacked(numbers))
        return Table(M, rows, label_array(names), layout, kept=others, cells=cells, truths=truths)


def _numbers_by_position(file: ColumnFile, columns: list[Any], labels: set[int | None]) -> dict[int, Any]:
    """The columns of numbers; others hold text or dates, or nothing, as a separator at the end of lines makes one."""
    numbers = {}
    for k, column in enumerate(columns):
        if k in labels:
            continue
        try:
            parsed = file.numbers(column, file.names[k])
        except NoNumbersError as error:
            if error.typo or len(columns) == 1:
                raise
            continue
        if file.names[k].strip() or not np.isnan(parsed).all():
            numbers[k] = parsed
    return numbers


def _stacked(columns: dict[int, Any]) -> Any:
    """The columns as one matrix; they are removed, to free the memory."""
    single = all(column.dtype == np.float32 for column in columns.values())
    height = len(next(iter(columns.values())))
    X = np.empty((height, len(columns)), np.float32 if single else np.float64, order="F")
    for j, k in enumerate(list(columns)):
        X[:, j] = columns.pop(k)
    return X


def _row_labels(file: ColumnFile, column: Any, name: str) -> Any:
    """The labels of the rows of a wide table, in their order; they may repeat."""
    codes, words = factorize(column)
    if (codes < 0).any():
        raise ValueError(f"{file.locate(int((codes < 0).argmax()))} has no label in the column {name!r}")
    return label_array((parse_integers(words) if file.text else words).take(import_pyarrow().array(codes)))


# ---------------------------------------------------------------------- files of arrays


def _from_arrays(path: Path, ending: str, names: _Names, markers: Markers) -> Table:
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
            rows, cols, values = (np.atleast_1d(arrays[k]) for k in (row, col, value))
            return Table.from_records(rows, cols, markers.without_codes(values), names=(row, col, value))
        matrix = _only_matrix(arrays) if names[2] is None else str(names[2])
        shape = arrays[matrix].shape
        if sp.issparse(arrays[matrix]):
            check_fits(path, f"a matrix of {shape}", PER_LINE * sum(shape))
        M = ObservedMatrix.from_any(arrays[matrix])
        if markers.codes.size:
            M = M.split(np.flatnonzero(np.isnan(markers.without_codes(M.values))))[0]
        if not M.nnz:
            raise ValueError("no entry is observed: all are given as missing")
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
