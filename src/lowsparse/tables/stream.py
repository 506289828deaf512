"""Records larger than memory, completed a batch at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..entries.files.labels import Array
from ..entries.files.table import Layout
from ..linalg.lowrank import LowRank
from ..places.disk.records import BATCH, common_schema, labels_of, opened
from ..support.optional import import_pyarrow
from .completed import fitted


@dataclass(frozen=True, eq=False)
class LargeTable:
    """A table larger than memory: a matrix in pieces whose rows and columns have labels."""

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
    """The records of Parquet files in their order, with the missing values filled in."""

    paths: list[Path]  # of files with the same columns
    names: tuple[str, str, str]  # of the columns of row labels, column labels and values
    labels: tuple[Array, Array]  # of rows and columns, ascending
    left_empty: int = field(default=0, init=False)  # records, since `completed` was last started

    def completed(
        self, fit: LowRank, known: tuple[Array, Array], wrong: Array, clean: bool, flag: Callable[..., None]
    ) -> Iterator[Any]:
        """Batches of records, those without a value completed by the fit; if `clean`, the wrong ones too.

        `known` says which rows and columns have values at all; `wrong` holds column · m + row of the gross errors,
        ascending; `flag` is called with the rows, columns and values of those among the records.
        """
        self.left_empty = 0
        m = fit.shape[0]
        for batch in self._batches():
            i, j, values = self._read(batch)
            holes = np.isnan(values)
            outlying = ~holes & among(wrong, j * m + i)
            flag(i[outlying], j[outlying], values[outlying])
            new = np.flatnonzero(holes | outlying) if clean else np.flatnonzero(holes)
            values[new] = fitted(fit, known, i[new], j[new])
            self.left_empty += int(np.count_nonzero(np.isnan(values[new])))
            position = batch.schema.get_field_index(self.names[2])
            yield batch.set_column(position, self.names[2], import_pyarrow().array(values, from_pandas=True))

    def _batches(self) -> Iterator[Any]:
        schema = common_schema(self.paths)
        for path in self.paths:
            for batch in opened(path).iter_batches(BATCH):
                yield batch if batch.schema.equals(schema) else batch.cast(schema)

    def _read(self, batch: Any) -> tuple[Array, Array, Array]:
        i, j = (
            np.searchsorted(labels, labels_of(batch.column(name)))
            for labels, name in zip(self.labels, self.names, strict=False)
        )
        column = batch.column(self.names[2])
        dtype = "float32" if str(column.type) in ("float", "halffloat") else "float64"
        return i, j, np.array(column.cast(dtype).to_numpy(zero_copy_only=False))


def among(ascending: Array, keys: Array) -> Array:
    """Which keys are among ascending numbers, which may be on disk.

    >>> among(np.array([2, 5]), np.array([5, 3, 9])).tolist()
    [True, False, False]
    """
    if not len(ascending):
        return np.zeros(keys.size, bool)
    found: Array = ascending[np.minimum(np.searchsorted(ascending, keys), len(ascending) - 1)] == keys
    return found
