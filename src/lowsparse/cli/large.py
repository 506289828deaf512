"""`lowsparse complete` for records larger than memory: put on disk once, solved from there, written as a stream."""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import report
from ..imputation.model import Imputation
from ..linalg.lowrank import LowRank
from ..places import StoredMatrix
from ..places.decide import placed
from ..places.disk.records import common_schema, opened, parquet_files
from ..tables.labels import arrow_labels, library
from ..tables.stream import LargeTable, StreamedRecords, among
from ..tables.table import Layout
from ..tables.write import write_batches
from .failure import fail, require

__all__ = ["LargeRecords", "check_address", "connected", "kept_store"]

ANSWER = 5  # seconds in which a scheduler has to
SHOWN = 1_000_000  # entries in the report's pictures


@contextmanager
def kept_store(store: Path | None, beside: Path) -> Iterator[Path]:
    """The folder of the matrix on disk: the one that was asked for, which stays, or one that goes."""
    if store is not None:
        yield store
        return
    beside.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(dir=beside, prefix=".lowsparse-store-")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_address(address: str) -> None:
    """Leave unless a Dask scheduler could be there.

    >>> check_address("tcp://10.0.0.1:8786")
    >>> check_address("somewhere")
    Traceback (most recent call last):
    lowsparse.cli.failure.CommandError: --cluster must be the address of a scheduler: tcp://HOST:8786, not somewhere
    """
    known = re.fullmatch(r"((tcp|tls|ucx|wss?)://)?[^\s/]+:\d+", address) is not None
    require(known, f"--cluster must be the address of a scheduler: tcp://HOST:8786, not {address or 'empty'}")


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """A client of a Dask cluster; None if there is to be none."""
    if address is None:
        yield None
        return
    try:
        from dask import distributed
    except ImportError as error:
        raise ImportError("--cluster needs the extra dask: python -m pip install 'lowsparse[dask]'") from error
    try:
        client = distributed.Client(address, timeout=ANSWER, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        fail(f"no Dask scheduler answers at {address}: start one (dask scheduler), or leave --cluster out ({error})")
    with _without_logs():
        try:
            yield client
        except (distributed.CancelledError, distributed.comm.CommClosedError):
            fail(f"the Dask scheduler at {address} answers no more: start it, and give the same command again")
        finally:
            client.close()  # type: ignore[no-untyped-call]


@contextmanager
def _without_logs() -> Iterator[None]:
    """Dask logs tracebacks of what was under way when a command is stopped; the command itself says what is wrong."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)


@dataclass(eq=False)
class LargeRecords:
    """Records in Parquet files, on their way from disk to disk."""

    file: Path
    names: tuple[str, str, str]
    store: Path
    memory: int
    client: Any = None

    def __post_init__(self) -> None:
        self.paths = parquet_files(self.file)
        columns = common_schema(self.paths).names
        if all(name.isdecimal() for name in self.names):
            if any(int(name) >= len(columns) for name in self.names):
                fail(f"{self.paths[0]} has {len(columns)} columns, counted from 0: {', '.join(columns)}")
            self.names = (columns[int(self.names[0])], columns[int(self.names[1])], columns[int(self.names[2])])

    def read(self, told: Callable[[str, int, int], object]) -> LargeTable:
        """Put the records on disk, unless they are there."""
        row, col, value = self.names
        stored = StoredMatrix.build(self.file, self.store, row=row, col=col, value=value, memory=self.memory, told=told)
        labels = [np.load(self.store / f"{side}-labels.npy", mmap_mode="r") for side in ("rows", "columns")]
        records = sum(opened(path).metadata.num_rows for path in self.paths)
        M = placed(stored, "dask" if self.client is not None else "outofcore", client=self.client)
        return LargeTable(M, labels[0], labels[1], records, Layout(names=self.names))

    def write(
        self, out: Path, listed: Path, table: LargeTable, model: Imputation, fit: LowRank, clean: bool
    ) -> StreamedRecords:
        """The completed records, and those that were wrong, in their order."""
        stream = StreamedRecords(self.paths, self.names, (table.rows, table.columns))
        known = table.M.row_counts > 0, table.M.column_counts > 0
        sure = _Sureness(model)
        with self.wrong(model.result) as wrong, _Listing(listed, table, fit, sure) as listing:
            write_batches(out, stream.completed(fit, known, wrong, clean, listing.add), Layout())
        return stream

    @contextmanager
    def wrong(self, result: Any) -> Iterator[NDArray[np.int64]]:
        """Places column · m + row of the outliers, ascending, in a scratch file."""
        m, size = result.M.shape[0], result.S.nnz
        if not size:
            yield np.zeros(0, np.int64)
            return
        with tempfile.NamedTemporaryFile(dir=self.store, prefix=".wrong-") as file:
            places = np.memmap(file, np.int64, "w+", shape=(size,))
            done = 0
            for i, j, _ in result.S.parts():
                places[done : done + i.size] = j * m + i
                done += i.size
            yield places

    def shown(self, table: LargeTable, model: Imputation, fit: LowRank, panes: Mapping[str, str]) -> report.TableView:
        """The report's pictures and lists: of all columns, or of as many as they have use for."""
        n = table.M.shape[1]
        result: Any = model.result
        step = max(1, -(-table.M.nnz // SHOWN))
        which = np.arange(0, n, step)
        given, rest = table.M.take_columns(which), result.M.take_columns(which)
        with self.wrong(result) as wrong:
            keys = which[given.columns_of_entries()] * given.shape[0] + given.rows
            flagged = np.flatnonzero(among(wrong, keys))
        part = replace(result, M=rest, L=LowRank(result.L.U, result.L.V[:, which]), flagged=flagged)
        return report.TableView.of(
            part,
            given=given,
            fit=LowRank(fit.U, fit.V[:, which]),
            row_labels=table.rows,
            column_labels=table.columns[which],
            panes=panes,
            sure=report.sureness(part),
        )


class _Sureness:
    """How many standard deviations gross errors are from what they should have been."""

    def __init__(self, model: Imputation) -> None:
        self.model, self.of = model, report.Sureness(model.result)

    def __call__(self, i: NDArray[Any], j: NDArray[Any], values: NDArray[Any]) -> NDArray[np.float64]:
        prepared = self.model.preparation
        rest = values / prepared.scale[j] - prepared.level[j] - prepared.offset[i]
        return np.minimum(self.of(i, j, rest), report.SUREST)


class _Listing:
    """The file of the gross errors, written as they are met."""

    def __init__(self, path: Path, table: LargeTable, fit: LowRank, sure: _Sureness) -> None:
        self.path, self.fit, self.sure, self.dtype = path, fit, sure, table.M.dtype
        self.labels = [arrow_labels(np.asarray(labels)) for labels in (table.rows, table.columns)]

    def __enter__(self) -> _Listing:
        nothing = self._listed(np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0, self.dtype))
        self.writer = library("parquet").ParquetWriter(os.fspath(self.path), nothing.schema)
        return self

    def add(self, i: NDArray[Any], j: NDArray[Any], values: NDArray[Any]) -> None:
        """Some more."""
        self.writer.write_table(self._listed(i, j, values))

    def _listed(self, i: NDArray[Any], j: NDArray[Any], values: NDArray[Any]) -> Any:
        rows, columns = (words.take(library().array(k)) for words, k in zip(self.labels, (i, j), strict=True))
        expected, deviations = np.asarray(self.fit.at(i, j)), self.sure(i, j, values)
        listed = {"row": rows, "column": columns, "value": values, "expected": expected, "deviations": deviations}
        return library().table(listed)

    def __exit__(self, *_: object) -> None:
        self.writer.close()
