"""`lowsparse complete` for records larger than memory: stored on disk, solved from there, written as a stream."""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import report
from ..entries.files.labels import arrow_labels
from ..entries.files.table import Layout
from ..imputation.model import Imputation
from ..linalg.lowrank import LowRank
from ..linalg.scale import LARGEST
from ..places import StoredMatrix
from ..places.decide import choose_place
from ..places.disk.records import common_schema, opened, parquet_files
from ..support.optional import import_pyarrow
from ..tables.stream import LargeTable, StreamedRecords, among
from ..tables.write import write_batches
from .failure import fail, require
from .progress import Meter

__all__ = ["RECORD_PANES", "LargeRecords", "check_address", "connect", "open_records"]

TIMEOUT = 5  # seconds for a scheduler to answer
SHOWN = 1_000_000  # entries in the report's pictures
RECORD_PANES = {
    "As given": "pairs without a value are blank",
    "What is known": "given, wrong, to be predicted",
    "Every pair": "values of the fit",
}


@contextmanager
def open_records(
    file: Path, names: tuple[str, str, str], *, store: Path | None, scratch: Path, memory: int, cluster: str | None
) -> Iterator[LargeRecords]:
    """Records in Parquet files; without `store` the matrix is in a temporary folder in `scratch`."""
    with (
        connect(cluster) as client,
        tempfile.TemporaryDirectory(dir=scratch, prefix=".lowsparse-store-", ignore_cleanup_errors=True) as folder,
    ):
        yield LargeRecords(file, names, store or Path(folder), memory, client)


def check_address(address: str) -> None:
    """Fail unless this can be the address of a Dask scheduler."""
    valid = re.fullmatch(r"((tcp|tls|ucx|wss?)://)?[^\s/]+:\d+", address) is not None
    require(valid, f"--cluster must be the address of a scheduler: tcp://HOST:8786, not {address or 'empty'}")


@contextmanager
def connect(address: str | None) -> Iterator[Any]:
    """A client of a Dask cluster; None without an address."""
    if address is None:
        yield None
        return
    try:
        from dask import distributed
    except ImportError as error:
        raise ImportError("--cluster needs the extra dask: python -m pip install 'lowsparse[dask]'") from error
    try:
        client = distributed.Client(address, timeout=TIMEOUT, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        fail(f"no Dask scheduler answers at {address}: start one (dask scheduler), or leave --cluster out ({error})")
    with _without_logs():
        try:
            yield client
        except (distributed.CancelledError, distributed.comm.CommClosedError):
            fail(f"the Dask scheduler at {address} stopped answering: start it, and run the same command again")
        finally:
            client.close()  # type: ignore[no-untyped-call]


@contextmanager
def _without_logs() -> Iterator[None]:
    """Dask logs tracebacks of running tasks when a command is stopped; the command itself reports the error."""
    previous = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(previous)


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
        labels = [np.load(self.store / f"{side}-labels.npy", mmap_mode="r") for side in ("rows", "columns")]
        records = sum(opened(path).metadata.num_rows for path in self.paths)
        M = choose_place(stored, "dask" if self.client is not None else "outofcore", client=self.client).place()
        self.table = LargeTable(M, labels[0], labels[1], records, Layout(names=self.names))
        largest = float(np.abs(M.values).max())
        if largest > LARGEST:
            advice = "too large to compute with: leave it empty if it is missing"
            fail(f"{self.file}: {largest:.3g} is among the values, {advice}")
        return self.table

    def write(self, out: Path, outliers: Path, model: Imputation, fit: LowRank, clean: bool) -> int:
        """Write the completed records and the outliers in their order; return the number of records left empty."""
        table = self.table
        stream = StreamedRecords(self.paths, self.names, (table.rows, table.columns))
        known = table.M.row_counts > 0, table.M.column_counts > 0
        with self._outlier_keys(model.result) as wrong, _OutlierFile(outliers, table, fit, model) as listing:
            write_batches(out, stream.completed(fit, known, wrong, clean, listing.add), Layout())
        return stream.left_empty

    @contextmanager
    def _outlier_keys(self, result: Any) -> Iterator[NDArray[np.int64]]:
        """Keys column · m + row of the outliers, ascending, in a temporary file."""
        m, size = result.M.shape[0], result.S.nnz
        if not size:
            yield np.zeros(0, np.int64)
            return
        with tempfile.NamedTemporaryFile(dir=self.store, prefix=".wrong-") as file:
            keys = np.memmap(file, np.int64, "w+", shape=(size,))
            done = 0
            for i, j, _ in result.S.parts():
                keys[done : done + i.size] = j * m + i
                done += i.size
            yield keys

    def view(self, model: Imputation, fit: LowRank, clean: bool) -> report.TableView:
        """The table for the report: all columns, or evenly spaced ones with at most `SHOWN` entries."""
        table = self.table
        result: Any = model.result
        which = np.arange(0, table.M.shape[1], max(1, -(-table.M.nnz // SHOWN)))
        given, rest = table.M.take_columns(which), result.M.take_columns(which)
        with self._outlier_keys(result) as wrong:
            keys = which[given.columns_of_entries()] * given.shape[0] + given.rows
            flagged = np.flatnonzero(among(wrong, keys))
        part = replace(result, M=rest, L=LowRank(result.L.U, result.L.V[:, which]), flagged=flagged)
        return report.TableView.of(
            part,
            given=given,
            fit=LowRank(fit.U, fit.V[:, which]),
            row_labels=table.rows,
            column_labels=table.columns[which],
            panes=RECORD_PANES,
        )


class _OutlierFile:
    """The Parquet file of the outliers, written batch by batch."""

    def __init__(self, path: Path, table: LargeTable, fit: LowRank, model: Imputation) -> None:
        self.path, self.fit, self.dtype = path, fit, table.M.dtype
        self.preparation, self.deviations = model.preparation, report.Deviations(model.result)
        self.labels = [arrow_labels(np.asarray(labels)) for labels in (table.rows, table.columns)]

    def __enter__(self) -> _OutlierFile:
        empty = self._table(np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0, self.dtype))
        self.writer = import_pyarrow("parquet").ParquetWriter(os.fspath(self.path), empty.schema)
        return self

    def add(self, i: NDArray[Any], j: NDArray[Any], values: NDArray[Any]) -> None:
        """Append outliers by row, column and value."""
        self.writer.write_table(self._table(i, j, values))

    def _table(self, i: NDArray[Any], j: NDArray[Any], values: NDArray[Any]) -> Any:
        rows, columns = (labels.take(import_pyarrow().array(k)) for labels, k in zip(self.labels, (i, j), strict=True))
        scale, level, offset = self.preparation.scale, self.preparation.level, self.preparation.offset
        deviations = self.deviations(i, j, values / scale[j] - level[j] - offset[i])
        listed = {
            "row": rows,
            "column": columns,
            "value": values,
            "expected": np.asarray(self.fit.at(i, j)),
            "deviations": np.minimum(deviations, report.MAX_DEVIATIONS),
        }
        return import_pyarrow().table(listed)

    def __exit__(self, *_: object) -> None:
        self.writer.close()
