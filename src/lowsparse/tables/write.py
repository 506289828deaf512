"""Tables into files, in the shape they came in."""

from __future__ import annotations

import gzip
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..entries.containers import unwrap
from ..entries.observed import ObservedMatrix
from ..linalg.lowrank import LowRank
from ..support import files
from .arrays import dump
from .columns import PANDAS
from .completed import Completed
from .labels import (
    Array,
    are_places,
    arrow_column,
    arrow_labels,
    brief,
    library,
    shown,
)
from .read import ARRAYS, TEXT, ending_of
from .table import Layout, Table

__all__ = ["write_batches", "write_columns", "write_table"]

BATCH = 1 << 20  # cells at a time
NAMES = ("row", "column", "value")

_Records = tuple[Array, Array, Array]  # places of rows and of columns, values
_Other = tuple[int, str, Any]  # the place of a column, its name, and itself


def write_table(
    path: str | os.PathLike[str], values: Any, like: Table, *, pairs: str | tuple[Any, Any] | None = None
) -> None:
    """Write a completed table in the shape of `like`; the ending of its file says in which format.

    Parameters
    ----------
    path
        As for `read_table`. The file is there as a whole or, after an error, as it was.
    values : LowRank, m x n array, ObservedMatrix or Completed
        The values of the table. NaN, and what is not observed, is written as missing.
    like : Table
        A wide table is written with all its cells. Of records, those of `like` are written in their order, with
        these values; also those that had no value.
    pairs : "all" or (row labels, column labels), optional
        Write records of these pairs instead, or of all of them, whatever `like` is.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "stars.csv")
    >>> table = Table.from_records(["bob", "ann", "ann"], [7, 7, 9], [4.0, 2.0, None], names=("user", "film", "stars"))
    >>> write_table(path, LowRank([[1.0], [2.0]], [[2.0, 3.0]]), table)
    >>> path.read_text().split()
    ['user,film,stars', 'bob,7,4', 'ann,7,2', 'ann,9,3']
    >>> write_table(path, LowRank([[1.0], [2.0]], [[2.0, 3.0]]), table, pairs=(["bob"], [9]))
    >>> path.read_text().split()
    ['user,film,stars', 'bob,9,6']
    >>> folder.cleanup()
    """
    path = Path(path)
    ending = ending_of(path)
    cells = values if isinstance(values, Completed) else _Cells(values, like)
    records = None if pairs is None and like.places is None else _records(cells, like, pairs)
    if ending in ARRAYS:
        content = dump(ending, _arrays(ending, cells, like, records))
        files.write(path, gzip.compress(content, mtime=0) if path.suffix.lower() == ".gz" else content)
    else:
        others = like.beside if pairs is None else ()
        batches = _wide_batches(cells, like) if records is None else _record_batches(records, like, others)
        write_batches(path, batches, like.layout if pairs is None else replace(like.layout, pandas=None))


def write_columns(path: Path, columns: Mapping[str, Array], layout: Layout) -> None:
    """Write columns of labels and numbers in the manner of a table's file; the ending says in which format.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "t.csv")
    ...     write_columns(path, {"row": np.array(["a"]), "value": np.array([0.5])}, Layout(separator=";"))
    ...     path.read_text()
    'row;value\\na;0.5\\n'
    """
    held = [_numbers(column) if column.dtype.kind == "f" else arrow_labels(column) for column in columns.values()]
    write_batches(path, iter([library().record_batch(held, names=list(columns))]), replace(layout, pandas=None))


class _Cells:
    """The values to be written; of factors, only those that are asked for are formed."""

    def __init__(self, values: Any, like: Table) -> None:
        if not isinstance(values, LowRank):
            values = unwrap(values)
            if isinstance(values, ObservedMatrix) or sp.issparse(values):
                values = ObservedMatrix.from_any(values).to_dense()
            values = np.ma.filled(values.astype(like.M.dtype, copy=False), np.nan)
        if values.shape != like.M.shape:
            raise ValueError(f"values are {values.shape}, but the table is {like.M.shape}")
        self.values, self.dtype, self.places = values, like.M.dtype, like.places

    def rows(self, part: slice) -> Array:
        values = self.values.rows(part) if isinstance(self.values, LowRank) else self.values[part]
        return np.asarray(values, self.dtype)

    def at(self, i: Array, j: Array) -> Array:
        values = self.values.at(i, j) if isinstance(self.values, LowRank) else self.values[i, j]
        return np.asarray(values, self.dtype)

    def records(self, part: slice) -> Array:
        assert self.places is not None
        return self.at(self.places[0][part], self.places[1][part])


# ---------------------------------------------------------------------- what is written


def _records(cells: _Cells | Completed, like: Table, pairs: str | tuple[Any, Any] | None) -> Iterator[_Records]:
    """The places and values of the records to be written, a part at a time; of none too there is a part."""
    m, n = like.M.shape
    if isinstance(pairs, str):
        if pairs != "all":
            raise ValueError(f"pairs must be 'all' or (row labels, column labels), not {pairs!r}")
        return (
            (*np.divmod(np.arange(part.start * n, part.stop * n), n), cells.rows(part).ravel())
            for part in _parts(m, max(1, BATCH // n))
        )
    if pairs is None:
        assert like.places is not None
        i, j = like.places
        return ((i[part], j[part], cells.records(part)) for part in _parts(i.size, BATCH))
    if isinstance(cells, Completed):
        raise TypeError("of a completed table, its own records can be written, or all pairs")
    i, j = _find(pairs[0], like.rows, "row"), _find(pairs[1], like.columns, "column")
    if i.size != j.size:
        raise ValueError(f"pairs are {i.size} row labels and {j.size} column labels")
    return ((i[part], j[part], cells.at(i[part], j[part])) for part in _parts(i.size, BATCH))


def _parts(size: int, length: int) -> Iterator[slice]:
    return (slice(first, min(first + length, size)) for first in range(0, max(size, 1), length))


def _find(asked: Any, labels: Array, side: str) -> Array:
    """The places of labels."""
    column, words = arrow_column(asked, side), arrow_labels(labels)
    try:
        found = library("compute").index_in(column.cast(words.type), value_set=words)
    except library().ArrowException as error:
        raise ValueError(f"the {side} labels asked for are not of the kind of the table's ({brief(error)})") from error
    if found.null_count:
        k = int(np.argmax(found.is_null().to_numpy()))
        raise ValueError(f"the table has no {side} {shown(column[k].as_py())}")
    return np.asarray(found.to_numpy())


def _numbers(values: Array) -> Any:
    return library().array(values, from_pandas=True)  # NaN is null


def _record_batches(records: Iterator[_Records], like: Table, others: tuple[_Other, ...]) -> Iterator[Any]:
    arrow, done = library(), 0
    rows, columns = arrow_labels(like.rows), arrow_labels(like.columns)
    names = like.layout.names or NAMES
    for i, j, values in records:
        held = [rows.take(arrow.array(i)), columns.take(arrow.array(j)), _numbers(values)]
        named = [
            *zip(like.layout.order, names, held, strict=True),
            *((place, name, _part(column, done, i.size)) for place, name, column in others),
        ]
        named.sort(key=lambda column: column[0])
        yield arrow.record_batch([column for _, _, column in named], names=[name for _, name, _ in named])
        done += i.size


def _part(column: Any, first: int, size: int) -> Any:
    """A part of a column as one array."""
    part = column.slice(first, size)
    return part.combine_chunks() if isinstance(part, library().ChunkedArray) else part


def _wide_batches(cells: _Cells | Completed, like: Table) -> Iterator[Any]:
    m, n = like.M.shape
    names = [label.decode() if isinstance(label, bytes) else str(label) for label in like.columns]
    index = like.layout.index
    others = list(like.beside)
    if index is not None or not are_places(like.rows):
        others.append((like.layout.place, index or "", arrow_labels(like.rows)))
    for part in _parts(m, max(1, BATCH // n)):
        held = [(name, _numbers(column)) for name, column in zip(names, cells.rows(part).T, strict=True)]
        for place, name, column in sorted(others, key=lambda other: other[0]):
            held.insert(place, (name, _part(column, part.start, part.stop - part.start)))
        yield library().record_batch([column for _, column in held], names=[name for name, _ in held])


def _arrays(
    ending: str, cells: _Cells | Completed, like: Table, records: Iterator[_Records] | None
) -> dict[str, Array]:
    labels = {"rows": like.rows, "columns": like.columns}
    if records is not None:
        if ending not in (".npz", ".mat"):
            raise ValueError(f"a {ending} file holds no records; .csv, .parquet, .arrow and .npz files do")
        i, j, values = (np.concatenate(part) for part in zip(*records, strict=True))
        return dict(zip(like.layout.names or NAMES, (like.rows[i], like.columns[j], values), strict=True))
    named = {side: label for side, label in labels.items() if not are_places(label)}
    if named and ending != ".npz":
        raise ValueError(f"a {ending} file holds no labels; .csv, .parquet, .arrow and .npz files do")
    return {like.layout.array: cells.rows(slice(None)), **named}


# ---------------------------------------------------------------------- how it is written


def write_batches(path: Path, batches: Iterator[Any], layout: Layout) -> None:
    """A file of these columns, a batch at a time."""
    arrow, ending = library(), ending_of(path)
    head = next(batches)
    packing = "gzip" if path.suffix.lower() == ".gz" else None
    with files.replacing(path) as beside, arrow.output_stream(str(beside), compression=packing) as sink:
        if ending in TEXT:
            _write_text(sink, head, batches, replace(layout, separator="\t") if ending == ".tsv" else layout)
            return
        open_writer = library("parquet").ParquetWriter if ending in (".parquet", ".pq") else arrow.ipc.new_file
        with open_writer(sink, head.schema.with_metadata({PANDAS: layout.pandas} if layout.pandas else None)) as writer:
            for batch in itertools.chain([head], batches):
                writer.write_batch(batch.replace_schema_metadata(None))


def _write_text(sink: Any, head: Any, batches: Iterator[Any], layout: Layout) -> None:
    if layout.encoding == "utf-16":
        whole = library().BufferOutputStream()
        _write_text(whole, head, batches, replace(layout, encoding="utf-8"))
        sink.write(whole.getvalue().to_pybytes().decode().encode("utf-16"))
        return
    if layout.encoding == "utf-8-sig":
        sink.write(b"\xef\xbb\xbf")
    special = f'[{re.escape(layout.separator)}"\r\n]'
    if layout.header:
        names = [_quoted(name) if re.search(special, name) else name for name in head.schema.names]
        sink.write((layout.separator.join(names) or '""').encode() + b"\n")
    text = library("csv")
    for batch in itertools.chain([head], batches):
        columns = [_with_comma(column) if layout.decimal == "," else column for column in batch.columns]
        style = "needed" if any(_has(column, special) for column in columns) else "none"
        how = text.WriteOptions(include_header=False, delimiter=layout.separator, quoting_style=style)
        text.write_csv(library().record_batch(columns, names=[str(k) for k in range(len(columns))]), sink, how)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _with_comma(column: Any) -> Any:
    if not library().types.is_floating(column.type):
        return column
    return library("compute").replace_substring(column.cast(library().string()), ".", ",")


def _has(column: Any, pattern: str) -> bool:
    kinds, compute = library().types, library("compute")
    if not (kinds.is_string(column.type) or kinds.is_large_string(column.type)):
        return False
    return bool(compute.any(compute.match_substring_regex(column, pattern)).as_py())
