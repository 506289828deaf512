"""`lowsparse complete` for records larger than memory: stored on disk, solved from there, written as a stream."""

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..entries.files.labels import arrow_labels
from ..entries.files.table import Layout
from ..imputation.model import Imputation
from ..linalg.lowrank import LowRank
from ..linalg.scale import LARGEST
from ..places import StoredMatrix
from ..places.decide import choose_place
from ..places.disk.records import common_schema, opened, parquet_files
from ..places.pieces.outliers import parts_of
from ..report.table import MAX_DEVIATIONS, Deviations, TableView
from ..result import Result
from ..support.optional import import_optional, import_pyarrow
from ..tables.stream import LargeTable, StreamedRecords, among
from ..tables.write import write_batches
from .failure import fail
from .progress import Meter

TIMEOUT = 5  # seconds for a scheduler to answer
TOO_LARGE = "is too large to compute with: leave it empty if it is missing"
SHOWN = 1_000_000  # entries in the report's pictures
RECORD_PANES = {
    "As given": "pairs without a value are blank",
    "What is known": "given, wrong, to be predicted",
    "Every pair": "values of the fit",
}


@contextmanager
def connect(address: str | None) -> Iterator[Any]:
    """A client of a Dask cluster; None without an address."""
    if address is None:
        yield None
        return
    distributed = import_optional("dask.distributed", "dask", "solves on a cluster")
    try:
        client = distributed.Client(address, timeout=TIMEOUT, set_as_default=False)
    except (OSError, ValueError) as error:
        fail(f"no Dask scheduler answers at {address}: start one (dask scheduler), or leave --cluster out ({error})")
    with ExitStack() as at_the_end:
        # Dask logs tracebacks of running tasks when a command is stopped; the command itself reports the error
        at_the_end.callback(logging.disable, logging.root.manager.disable)
        logging.disable()
        at_the_end.callback(client.close)
        try:
            yield client
        except (distributed.CancelledError, distributed.comm.CommClosedError):
            fail(f"the Dask scheduler at {address} stopped answering: start it, and run the same command again")


@dataclass(eq=False)
class LargeRecords:
    """Records in Parquet files that are read, completed and written without being held in memory."""

    file: Path
    names: tuple[str, str, str]
    store: Path
    memory: int
    client: Any = None
    table: LargeTable = field(init=False)

    def __post_init__(self) -> None:
        self.paths = parquet_files(self.file)
        columns = common_schema(self.paths).names
        if all(name.isdecimal() for name in self.names):
            if any(int(name) >= len(columns) for name in self.names):
                fail(f"{self.paths[0]} has {len(columns)} columns, counted from 0: {', '.join(columns)}")
            self.names = (columns[int(self.names[0])], columns[int(self.names[1])], columns[int(self.names[2])])

    def read(self, meter: Meter) -> LargeTable:
        """Store the records as a matrix on disk, unless the store is up to date."""

        def on_progress(stage: str, done: int, total: int) -> None:
            meter.total = total
            meter.reach(done, stage)

        row, col, value = self.names
        stored = StoredMatrix.build(
            self.file, self.store, row=row, col=col, value=value, memory=self.memory, on_progress=on_progress
        )
        rows, columns = (np.load(self.store / f"{side}-labels.npy", mmap_mode="r") for side in ("rows", "columns"))
        records = sum(opened(path).metadata.num_rows for path in self.paths)
        M = choose_place(stored, "dask" if self.client is not None else "outofcore", client=self.client).place()
        self.table = LargeTable(M, rows, columns, records, Layout(names=self.names))
        largest = float(np.abs(M.values).max())
        if largest > LARGEST:
            fail(f"{self.file}: {largest:.3g} {TOO_LARGE}")
        return self.table

    def write(self, out: Path, outliers: Path, model: Imputation, fit: LowRank, clean: bool) -> int:
        """Write the completed records and the outliers in their order; return the number of records left empty."""
        table = self.table
        stream = StreamedRecords(self.paths, self.names, (table.rows, table.columns))
        known = table.M.row_counts > 0, table.M.column_counts > 0
        with self._outlier_keys(model.result) as wrong, _outlier_file(outliers, table, fit, model) as add:
            write_batches(out, stream.completed(fit, known, wrong, clean, add), Layout())
        return stream.left_empty

    @contextmanager
    def _outlier_keys(self, result: Result) -> Iterator[NDArray[np.int64]]:
        """Keys column · m + row of the outliers, ascending, in an unnamed file."""
        S, m = result.S, result.M.shape[0]
        if not S.nnz:
            yield np.zeros(0, np.int64)
            return
        with tempfile.TemporaryFile(dir=self.store) as file:
            keys = np.memmap(file, np.int64, "w+", shape=(S.nnz,))
            done = 0
            for i, j, _ in parts_of(S):
                keys[done : done + i.size] = j * m + i
                done += i.size
            yield keys

    def view(self, model: Imputation, fit: LowRank, clean: bool) -> TableView:
        """The table for the report: all columns, or evenly spaced ones with at most `SHOWN` entries."""
        table, result = self.table, model.result
        which = np.arange(0, table.M.shape[1], max(1, -(-table.M.nnz // SHOWN)))
        given, rest = table.M.take_columns(which), result.M.take_columns(which)
        assert rest is not None
        with self._outlier_keys(result) as wrong:
            keys = which[given.columns_of_entries()] * given.shape[0] + given.rows
            flagged = np.flatnonzero(among(wrong, keys))
        part = replace(result, M=rest, L=LowRank(result.L.U, result.L.V[:, which]), flagged=flagged)
        return TableView(
            part,
            given=given,
            fit=LowRank(fit.U, fit.V[:, which]),
            row_labels=table.rows,
            column_labels=table.columns[which],
            panes=RECORD_PANES,
        )


@contextmanager
def _outlier_file(path: Path, table: LargeTable, fit: LowRank, model: Imputation) -> Iterator[Callable[..., None]]:
    """A function that appends outliers, by row, column and value, to a Parquet file."""
    pyarrow, prepared, deviations = import_pyarrow(), model.preparation, Deviations(model.result)
    rows, columns = (arrow_labels(np.asarray(labels)) for labels in (table.rows, table.columns))

    def listed(i: NDArray[Any], j: NDArray[Any], values: NDArray[Any]) -> Any:
        scaled = values / prepared.scale[j] - prepared.level[j] - prepared.offset[i]
        return pyarrow.table(
            {
                "row": rows.take(pyarrow.array(i)),
                "column": columns.take(pyarrow.array(j)),
                "value": values,
                "expected": np.asarray(fit.at(i, j)),
                "deviations": np.minimum(deviations(i, j, scaled), MAX_DEVIATIONS),
            }
        )

    none = np.zeros(0, np.intp)
    schema = listed(none, none, none.astype(table.M.dtype)).schema
    with import_pyarrow("parquet").ParquetWriter(os.fspath(path), schema) as writer:
        yield lambda i, j, values: writer.write_table(listed(i, j, values))
