"""Tables into files, in the shape they came in."""

from __future__ import annotations

import gzip
import itertools
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from .. import files
from ..containers import unwrap
from ..lowrank import LowRank
from ..observed import ObservedMatrix
from .arrays import dump
from .labels import Array, are_places, arrow_column, arrow_labels, brief, library, shown
from .read import ARRAYS, TEXT, ending_of
from .table import Layout, Table

__all__ = ["write_table"]

BATCH = 1 << 22  # cells at a time
NAMES = ("row", "column", "value")

# How many records there are, and the places of a part of them.
_Places = tuple[int, Callable[[slice], tuple[Array, Array]]]


def write_table(
    path: str | os.PathLike[str], values: Any, like: Table, *, pairs: str | tuple[Any, Any] | None = None
) -> None:
    """Write a completed table in the shape of `like`; the ending of its file says in which format.

    Parameters
    ----------
    path
        As for `read_table`. The file is there as a whole or, after an error, as it was.
    values : LowRank, m x n array or ObservedMatrix
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
    cells = _Cells(values, like)
    places = _places(like, pairs)
    if ending in ARRAYS:
        content = dump(ending, _arrays(ending, cells, like, places))
    else:
        batches = _wide_batches(cells, like) if places is None else _record_batches(cells, like, places)
        content = _columns(ending, batches, like.layout)
    files.write(path, gzip.compress(content, mtime=0) if path.suffix.lower() == ".gz" else content)


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
        self.values, self.dtype = values, like.M.dtype

    def rows(self, part: slice) -> Array:
        values = self.values.rows(part) if isinstance(self.values, LowRank) else self.values[part]
        return np.asarray(values, self.dtype)

    def at(self, i: Array, j: Array) -> Array:
        values = self.values.at(i, j) if isinstance(self.values, LowRank) else self.values[i, j]
        return np.asarray(values, self.dtype)


# ---------------------------------------------------------------------- what is written


def _places(like: Table, pairs: str | tuple[Any, Any] | None) -> _Places | None:
    """The places of the records to be written; None: the table is written wide."""
    if isinstance(pairs, str):
        if pairs != "all":
            raise ValueError(f"pairs must be 'all' or (row labels, column labels), not {pairs!r}")
        m, n = like.M.shape
        return m * n, lambda part: np.divmod(np.arange(part.start, part.stop), n)
    places: tuple[Array, Array] | None = like.places
    if pairs is not None:
        rows, columns = pairs
        places = _find(rows, like.rows, "row"), _find(columns, like.columns, "column")
        if places[0].size != places[1].size:
            raise ValueError(f"pairs are {places[0].size} row labels and {places[1].size} column labels")
    if places is None:
        return None
    i, j = places
    return i.size, lambda part: (i[part], j[part])


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


def _record_batches(cells: _Cells, like: Table, places: _Places) -> Iterator[Any]:
    arrow = library()
    rows, columns = arrow_labels(like.rows), arrow_labels(like.columns)
    size, part_of = places
    for first in range(0, max(size, 1), BATCH):  # of no record too there is a batch, with the names
        i, j = part_of(slice(first, min(first + BATCH, size)))
        held = [rows.take(arrow.array(i)), columns.take(arrow.array(j)), _numbers(cells.at(i, j))]
        yield arrow.record_batch(held, names=list(like.layout.names or NAMES))


def _wide_batches(cells: _Cells, like: Table) -> Iterator[Any]:
    m, n = like.M.shape
    names = [label.decode() if isinstance(label, bytes) else str(label) for label in like.columns]
    index = like.layout.index
    labels = None if index is None and are_places(like.rows) else arrow_labels(like.rows)
    height = max(1, BATCH // n)
    for first in range(0, m, height):
        held = [_numbers(column) for column in cells.rows(slice(first, first + height)).T]
        if labels is None:
            yield library().record_batch(held, names=names)
        else:
            yield library().record_batch([labels.slice(first, height), *held], names=[index or "", *names])


def _arrays(ending: str, cells: _Cells, like: Table, places: _Places | None) -> dict[str, Array]:
    labels = {"rows": like.rows, "columns": like.columns}
    if places is not None:
        if ending not in (".npz", ".mat"):
            raise ValueError(f"a {ending} file holds no records; .csv, .parquet, .arrow and .npz files do")
        i, j = places[1](slice(0, places[0]))
        held = (like.rows[i], like.columns[j], cells.at(i, j))
        return dict(zip(like.layout.names or NAMES, held, strict=True))
    named = {side: label for side, label in labels.items() if not are_places(label)}
    if named and ending != ".npz":
        raise ValueError(f"a {ending} file holds no labels; .csv, .parquet, .arrow and .npz files do")
    return {like.layout.array: cells.rows(slice(None)), **named}


# ---------------------------------------------------------------------- how it is written


def _columns(ending: str, batches: Iterator[Any], layout: Layout) -> Any:
    """The bytes of a file with these columns."""
    arrow = library()
    sink, head = arrow.BufferOutputStream(), next(batches)
    if ending in TEXT:
        _write_text(sink, head, batches, replace(layout, separator="\t") if ending == ".tsv" else layout)
        content = sink.getvalue()
        return content.to_pybytes().decode().encode("utf-16") if layout.encoding == "utf-16" else content
    open_writer = library("parquet").ParquetWriter if ending in (".parquet", ".pq") else arrow.ipc.new_file
    with open_writer(sink, head.schema) as writer:
        for batch in itertools.chain([head], batches):
            writer.write_batch(batch)
    return sink.getvalue()


def _write_text(sink: Any, head: Any, batches: Iterator[Any], layout: Layout) -> None:
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
