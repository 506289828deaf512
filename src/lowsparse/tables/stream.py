"""Records larger than memory: labels as places, and the records completed, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..linalg.lowrank import LowRank
from ..places.disk.records import BATCH, common_schema, labels_of, opened
from .labels import Array, library
from .table import Layout

__all__ = ["LargeTable", "StreamedRecords", "among"]


@dataclass(frozen=True, eq=False)
class LargeTable:
    """What `Table` is in memory: a matrix in pieces whose rows and columns have labels."""

    M: Any
    rows: Array
    columns: Array
    n_records: int
    layout: Layout

    @property
    def missing(self) -> int:
        """The number of records without a value."""
        return self.n_records - int(self.M.nnz)


@dataclass(eq=False)
class StreamedRecords:
    """The records of Parquet files in their order, with what they lack filled in.

    Parameters
    ----------
    paths
        Of the files, which have the same columns.
    names
        Of the columns of row labels, of column labels and of values.
    labels
        Of rows and columns, ascending.
    """

    paths: list[Path]
    names: tuple[str, str, str]
    labels: tuple[Array, Array]
    filled: int = field(default=0, init=False)  # records, since the last start
    left_empty: int = field(default=0, init=False)

    def completed(
        self, fit: LowRank, known: tuple[Array, Array], wrong: Array, clean: bool, flag: Callable[..., None]
    ) -> Iterator[Any]:
        """The records, those without a value completed by the fit, if `clean` the wrong ones too.

        `known` says which rows and columns have values at all; `wrong` are the places column · m + row of the gross
        errors, ascending; `flag` is called with rows, columns and values of those that are met.
        """
        self.filled = self.left_empty = 0
        m = fit.shape[0]
        for batch in self._batches():
            i, j, values = self._read(batch)
            holes = np.isnan(values)
            hit = ~holes & among(wrong, j * m + i)
            flag(i[hit], j[hit], values[hit])
            new = np.flatnonzero(holes | hit) if clean else np.flatnonzero(holes)
            there = known[0][i[new]] & known[1][j[new]]
            values[new] = np.where(there, fit.at(i[new], j[new]), np.nan)
            self.filled += int(np.count_nonzero(holes[new] & there))
            self.left_empty += int(np.count_nonzero(~there))
            place = batch.schema.get_field_index(self.names[2])
            yield batch.set_column(place, self.names[2], library().array(values, from_pandas=True))

    def _batches(self) -> Iterator[Any]:
        schema = common_schema(self.paths)
        for path in self.paths:
            for batch in opened(path).iter_batches(BATCH):
                yield batch if batch.schema.equals(schema) else batch.cast(schema)

    def _read(self, batch: Any) -> tuple[Array, Array, Array]:
        i, j = (
            np.searchsorted(found, labels_of(batch.column(name)))
            for found, name in zip(self.labels, self.names, strict=False)
        )
        column = batch.column(self.names[2])
        kind = "float32" if str(column.type) in ("float", "halffloat") else "float64"
        return i, j, np.array(column.cast(kind).to_numpy(zero_copy_only=False))


def among(ascending: Array, keys: Array) -> Array:
    """Which keys are among numbers that ascend, and may be on disk.

    >>> among(np.array([2, 5]), np.array([5, 3, 9])).tolist()
    [True, False, False]
    """
    if not len(ascending):
        return np.zeros(keys.size, bool)
    at = np.minimum(np.searchsorted(ascending, keys), len(ascending) - 1)
    found: Array = ascending[at] == keys
    return found
