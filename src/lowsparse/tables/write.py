"""Tables into files, in the layout they were read from."""

import codecs
import gzip
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from ..entries.containers import unwrap
from ..entries.files.arrays import dump_arrays
from ..entries.files.columns import PANDAS
from ..entries.files.labels import Array, arrow_labels, first_line, is_range, short_repr, to_arrow
from ..entries.files.numbers import format_like
from ..entries.files.source import ARRAYS, EXCEL, TEXT, ending_of
from ..entries.files.table import Layout, Table
from ..entries.observed import ObservedMatrix
from ..linalg.lowrank import LowRank
from ..support import files
from ..support.export import NAMES
from ..support.optional import import_pyarrow
from .completed import Completed
from .excel import write_copy, write_new

BATCH = 1 << 20  # cells at a time

_Records = tuple[Array, Array, Array]  # row and column positions, values


def write_table(
    path: str | os.PathLike[str], values: Any, like: Table, *, pairs: str | tuple[Any, Any] | None = None
) -> None:
    """Write a completed table in the layout of `like`; the ending of the file tells the format.

    Parameters
    ----------
    path
        As for `read_table`. After an error, an earlier file is as it was.
    values : LowRank, m x n array, ObservedMatrix or Completed
        The values of the table. NaN, and what is not observed, is written as missing.
    like : Table
        A wide table is written with all its cells. Records are written in their order with these values, also those
        that had none.
    pairs : "all" or (row labels, column labels), optional
        Write records of these pairs of labels, or of all, whatever `like` is.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "stars.csv")
    >>> table = Table.from_records(["bob", "ann", "ann"], [7, 7, 9], [4.0, 2.0, None], names=("user", "film", "stars"))
    >>> write_table(path, LowRank([[1.0], [2.0]], [[2.0, 3.0]]), table)
    >>> path.read_text().split()
    ['user,film,stars', 'bob,7,4', 'ann,7,2', 'ann,9,3']
    >>> folder.cleanup()
    """
    path = Path(path)
    ending = ending_of(path)
    cells = values if isinstance(values, Completed) else _Cells(values, like)
    records = None if pairs is None and like.positions is None else _records(cells, like, pairs)
    if ending in ARRAYS:
        content = dump_arrays(ending, _arrays(ending, cells, like, records))
        files.write(path, gzip.compress(content, mtime=0) if path.suffix.lower() == ".gz" else content)
        return
    if pairs is not None:  # nothing but the records
        like = replace(like, layout=_of_other_columns(like.layout), kept=(), cells=None)
    if ending in EXCEL and like.layout.sheet is not None:
        write_copy(path, like.layout.sheet, _changed_numbers(cells, like))
        return
    if ending not in TEXT:
        like = replace(like, cells=None)
    write_batches(path, _wide_batches(cells, like) if records is None else _record_batches(records, like), like.layout)


def write_columns(path: Path, columns: Mapping[str, Array], layout: Layout) -> None:
    """Write columns of labels and numbers in the layout of a table; the ending tells the format."""
    arrays = [_numbers(column) if column.dtype.kind == "f" else arrow_labels(column) for column in columns.values()]
    batch = import_pyarrow().record_batch(arrays, names=list(columns))
    write_batches(path, iter([batch]), _of_other_columns(layout))


def _of_other_columns(layout: Layout) -> Layout:
    """The layout without what belongs to the columns of the table that it is of."""
    return replace(layout, pandas=None, head=None, sheet=None, comments=())


class _Cells:
    """The values to write; entries of a `LowRank` are formed only where they are asked for."""

    def __init__(self, values: Any, like: Table) -> None:
        if not isinstance(values, LowRank):
            values = unwrap(values)
            if not isinstance(values, np.ndarray):  # observed, or sparse
                values = ObservedMatrix.from_any(values).to_dense()
            values = np.ma.filled(values.astype(like.M.dtype, copy=False), np.nan)
        if values.shape != like.M.shape:
            raise ValueError(f"values are {values.shape}, but the table is {like.M.shape}")
        self.values, self.dtype, self.positions = values, like.M.dtype, like.positions

    def rows(self, part: slice) -> Array:
        values = self.values.rows(part) if isinstance(self.values, LowRank) else self.values[part]
        return np.asarray(values, self.dtype)

    def at(self, i: Array, j: Array) -> Array:
        values = self.values.at(i, j) if isinstance(self.values, LowRank) else self.values[i, j]
        return np.asarray(values, self.dtype)

    def records(self, part: slice) -> Array:
        assert self.positions is not None
        return self.at(self.positions[0][part], self.positions[1][part])


# ---------------------------------------------------------------------- what is written


def _records(cells: _Cells | Completed, like: Table, pairs: str | tuple[Any, Any] | None) -> Iterator[_Records]:
    """The records to write, a part at a time; at least one part, if empty."""
    m, n = like.M.shape
    if isinstance(pairs, str):
        if pairs != "all":
            raise ValueError(f"pairs must be 'all' or (row labels, column labels), not {pairs!r}")
        return (
            (*np.divmod(np.arange(part.start * n, part.stop * n), n), cells.rows(part).ravel())
            for part in _parts(m, max(1, BATCH // n))
        )
    if pairs is None:
        assert like.positions is not None
        i, j = like.positions
        return ((i[part], j[part], cells.records(part)) for part in _parts(i.size, BATCH))
    if isinstance(cells, Completed):
        raise TypeError("of a completed table, its own records can be written, or all pairs")
    i, j = _find(pairs[0], like.rows, "row"), _find(pairs[1], like.columns, "column")
    if i.size != j.size:
        raise ValueError(f"pairs are {i.size} row labels and {j.size} column labels")
    return ((i[part], j[part], cells.at(i[part], j[part])) for part in _parts(i.size, BATCH))


def _parts(size: int, length: int) -> Iterator[slice]:
    return (slice(first, min(first + length, size)) for first in range(0, max(size, 1), length))


def _find(wanted: Any, labels: Array, side: str) -> Array:
    """The positions of labels."""
    column, known = to_arrow(wanted, side), arrow_labels(labels)
    try:
        found = import_pyarrow("compute").index_in(column.cast(known.type), value_set=known)
    except import_pyarrow().ArrowException as error:
        raise ValueError(f"the {side} labels in pairs are not of the table's type ({first_line(error)})") from error
    if found.null_count:
        k = int(np.argmax(found.is_null().to_numpy()))
        raise ValueError(f"the table has no {side} {short_repr(column[k].as_py())}")
    return np.asarray(found.to_numpy())


def _numbers(values: Array) -> Any:
    return import_pyarrow().array(values, from_pandas=True)  # NaN is null


def _as_given(cells: Any, old: Array, new: Array, example: str, point: str) -> Any:
    """A column of numbers as text: cells of the file where the number is the same, new ones written like `example`."""
    same = (old == new) | (np.isnan(old) & np.isnan(new))
    if same.all():
        return cells
    if example.strip().lower() in ("true", "false"):
        word = str.upper if example.strip().isupper() else str.lower if example.strip().islower() else str
        text = import_pyarrow().array([None if np.isnan(x) else word(str(x > 0.5)) for x in new])
    else:
        text = format_like(_numbers(new.astype(np.float64)), example, point)
    return import_pyarrow("compute").if_else(import_pyarrow().array(same), cells, text)


def _record_batches(records: Iterator[_Records], like: Table) -> Iterator[Any]:
    pyarrow, done = import_pyarrow(), 0
    rows, columns = arrow_labels(like.rows), arrow_labels(like.columns)
    names = like.layout.names or NAMES
    for i, j, values in records:
        numbers = _numbers(values)
        if like.cells is not None:
            assert like.values is not None
            example = like.cells[0][int((~np.isnan(like.values)).argmax())].as_py()
            old, cells = like.values[done : done + i.size], _part(like.cells[0], done, i.size)
            numbers = _as_given(cells, old, values, example, like.layout.decimal)
        arrays = rows.take(pyarrow.array(i)), columns.take(pyarrow.array(j)), numbers
        kept = [(position, name, _part(column, done, i.size)) for position, name, column in like.kept]
        in_order = sorted([*zip(like.layout.order, names, arrays, strict=True), *kept], key=itemgetter(0))
        yield pyarrow.record_batch([column for *_, column in in_order], names=[name for _, name, _ in in_order])
        done += i.size


def _part(column: Any, first: int, size: int) -> Any:
    """A part of a column as one array."""
    part = column.slice(first, size)
    return part.combine_chunks() if isinstance(part, import_pyarrow().ChunkedArray) else part


def _wide_batches(cells: _Cells | Completed, like: Table) -> Iterator[Any]:
    m, n = like.M.shape
    names = [label.decode() if isinstance(label, bytes) else str(label) for label in like.columns]
    index, others = like.layout.index, list(like.kept)
    if index is not None or not is_range(like.rows):
        others.append((like.layout.index_position, index or "", arrow_labels(like.rows)))
    others.sort(key=itemgetter(0))
    as_text = None if like.cells is None else _TextColumns(like)
    for part in _parts(m, max(1, BATCH // n)):
        X, truths = cells.rows(part), list(like.truths)
        if truths:
            X = X.copy()
            X[:, truths] = np.where(np.isnan(X[:, truths]), np.nan, X[:, truths] > 0.5)
        columns = [_numbers(column) for column in X.T] if as_text is None else as_text(part, X)
        if as_text is None:
            columns = [column.cast("bool") if j in like.truths else column for j, column in enumerate(columns)]
        named = list(zip(names, columns, strict=True))
        for position, name, column in others:
            named.insert(position, (name, _part(column, part.start, part.stop - part.start)))
        yield import_pyarrow().record_batch([column for _, column in named], names=[name for name, _ in named])


def _observed(by_row: ObservedMatrix, part: slice) -> Array:
    """The observed numbers of some rows of a table, NaN where there is none; `by_row` is its transpose."""
    some = by_row.take_columns(np.arange(part.start, part.stop))
    return np.full((part.stop - part.start, by_row.shape[0]), np.nan) if some is None else some.to_dense().T


def _changed_numbers(cells: _Cells | Completed, like: Table) -> Iterator[tuple[Array, Array, Array]]:
    """The numbers that differ from those of `like`: their rows and columns in its file, and their values."""
    if like.values is not None:
        values = cells.records(slice(0, like.values.size))
        rows = np.flatnonzero((values != like.values) & ~np.isnan(values))
        yield rows, np.full(rows.size, like.layout.order[2]), values[rows]
        return
    m, n = like.M.shape
    others = {position for position, *_ in like.kept}
    if like.layout.index is not None:
        others.add(like.layout.index_position)
    positions, by_row = np.array([k for k in range(n + len(others)) if k not in others]), like.M.T
    for part in _parts(m, max(1, BATCH // n)):
        X = cells.rows(part)
        i, j = np.nonzero((_observed(by_row, part) != X) & ~np.isnan(X))
        yield part.start + i, positions[j], X[i, j]


class _TextColumns:
    """The columns of numbers of a wide table in text, as they stand in its file where the numbers are the same."""

    def __init__(self, like: Table) -> None:
        M, cells = like.M, like.cells
        assert cells is not None
        self.cells, self.by_row, self.point = cells, M.T, like.layout.decimal
        first = np.minimum(M.indptr[:-1], M.nnz - 1)  # an entry of each column; of one without any, that of another
        self.examples = [cells[j][int(M.rows[first[j]])].as_py() for j in range(M.shape[1])]

    def __call__(self, part: slice, X: Array) -> list[Any]:
        old = _observed(self.by_row, part)
        return [
            _as_given(_part(cells, part.start, part.stop - part.start), old[:, j], X[:, j], example, self.point)
            for j, (cells, example) in enumerate(zip(self.cells, self.examples, strict=True))
        ]


def _arrays(
    ending: str, cells: _Cells | Completed, like: Table, records: Iterator[_Records] | None
) -> dict[str, Array]:
    if records is not None:
        if ending not in (".npz", ".mat"):
            raise ValueError(f"a {ending} file holds no records; .csv, .parquet, .arrow and .npz files do")
        i, j, values = (np.concatenate(part) for part in zip(*records, strict=True))
        return dict(zip(like.layout.names or NAMES, (like.rows[i], like.columns[j], values), strict=True))
    labels = {"rows": like.rows, "columns": like.columns}
    named = {side: array for side, array in labels.items() if not is_range(array)}
    if named and ending != ".npz":
        raise ValueError(f"a {ending} file holds no labels; .csv, .parquet, .arrow and .npz files do")
    return {like.layout.array: cells.rows(slice(None)), **named}


# ---------------------------------------------------------------------- how it is written


def write_batches(path: Path, batches: Iterator[Any], layout: Layout) -> None:
    """Write Arrow record batches, one at a time; the ending tells the format."""
    pyarrow, ending = import_pyarrow(), ending_of(path)
    head = next(batches)
    batches = itertools.chain([head], batches)
    if ending in EXCEL:
        write_new(path, head.schema.names, batches)
        return
    packing = "gzip" if path.suffix.lower() == ".gz" else None
    with files.replacing(path) as temporary, pyarrow.output_stream(str(temporary), compression=packing) as sink:
        if ending in TEXT:
            if ending == ".tsv" and layout.separator != "\t":
                layout = replace(layout, separator="\t", head=None)
            encoder = codecs.getincrementalencoder(layout.encoding)()
            for text in _text_parts(head.schema.names, batches, layout):
                sink.write(encoder.encode(text))
            return
        open_writer = import_pyarrow("parquet").ParquetWriter if ending in (".parquet", ".pq") else pyarrow.ipc.new_file
        with open_writer(sink, head.schema.with_metadata({PANDAS: layout.pandas} if layout.pandas else None)) as writer:
            for batch in batches:
                writer.write_batch(batch.replace_schema_metadata(None))


def _text_parts(names: list[str], batches: Iterator[Any], layout: Layout) -> Iterator[str]:
    """The head of a table in text, then its lines, a batch at a time."""
    special = f'[{re.escape(layout.separator)}"\r\n]'
    if layout.head is not None:
        yield layout.head
    elif layout.header:
        cells = ['"' + name.replace('"', '""') + '"' if re.search(special, name) else name for name in names]
        yield (layout.separator.join(cells) or '""') + layout.newline
    comments, done = list(layout.comments), 0
    for batch in batches:
        columns = [_quoted(_text(column, layout.decimal), special) for column in batch.columns]
        lines = import_pyarrow("compute").binary_join_element_wise(*columns, layout.separator).to_pylist()
        rows = len(lines)
        for row, comment in reversed([one for one in comments if done <= one[0] < done + rows]):
            lines.insert(row - done, comment)
        done += rows
        yield "".join(line + layout.newline for line in lines)
    yield "".join(comment + layout.newline for row, comment in comments if row >= done)


def _text(column: Any, point: str) -> Any:
    """A column as text, empty where it has no value."""
    pyarrow, compute = import_pyarrow(), import_pyarrow("compute")
    number = pyarrow.types.is_floating(column.type)
    try:
        text = column.cast(pyarrow.string())
    except pyarrow.ArrowException:  # Arrow does not write all its types
        text = pyarrow.array([None if value is None else str(value) for value in column.to_pylist()], pyarrow.string())
    text = compute.fill_null(text, "")
    return compute.replace_substring(text, ".", point) if number and point != "." else text


def _quoted(cells: Any, special: str) -> Any:
    """Cells in quotes where they have to be."""
    compute = import_pyarrow("compute")
    marked = compute.match_substring_regex(cells, special)
    if not compute.any(marked).as_py():
        return cells
    doubled = compute.replace_substring(cells, '"', '""')
    return compute.if_else(marked, compute.binary_join_element_wise('"', doubled, '"', ""), cells)
