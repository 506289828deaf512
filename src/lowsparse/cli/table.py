"""`lowsparse complete` for a table whose rows have no order: read and written in memory, completed by low rank."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..entries.files.columns import NoNumbersError
from ..entries.files.labels import short_repr
from ..entries.files.source import ARRAYS
from ..imputation.bands import Bands
from ..imputation.model import Imputation
from ..linalg.lowrank import LowRank
from ..linalg.scale import LARGEST, OUTLIER
from ..report.page import Run
from ..report.rows import BadRow, Cell, guesses
from ..report.table import PANES, TableView, list_outliers, table_report
from ..support.format import pluralize
from ..tables import Completed, Table, read_table, write_table
from ..tables.stream import LargeTable
from ..tables.write import write_columns
from .failure import fail
from .job import Job
from .large import RECORD_PANES, TOO_LARGE, LargeRecords
from .progress import Meter
from .verdict import Verdict, judge, remarks

MAX_PAIRS = 100_000_000  # records written by --all
MAX_CELLS = 1 << 29  # of a completed matrix that was sparse in its file
LISTED = 5  # rows or columns named in a note
CELLS = 3  # cells of each row
UNCHANGED_PANES = {
    "As given": "missing values are blank, errors marked",
    "What was done": "kept, flagged, filled",
    "As expected": "errors and missing values replaced",
}


class MemoryTable:
    """A table that is read, completed and written in memory; `LargeRecords` does the same from disk."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def read(self, meter: Meter) -> Table:
        """Read the table, and check that it can be completed."""
        job, names = self.job, self.job.names
        in_columns = job.ending not in ARRAYS
        by_position = in_columns and all(name is None or name.isdecimal() for name in names)
        row, col, value = (int(name) if by_position and name is not None else name for name in names)
        kept = None if value is not None and in_columns else job.labels
        try:
            self.table = read_table(
                job.source, row=row, col=col, value=value, keep=kept, header=job.header, missing=job.missing
            )
        except NoNumbersError as error:
            fail("; ".join([error.line, *_advice(error, wide=value is None)]))
        self._check_size()
        self._check_range()
        return self.table

    def _check_size(self) -> None:
        m, n = self.table.M.shape
        if self.job.every and m * n > MAX_PAIRS:
            fail(
                f"--all would write {m * n:,} records, more than the limit of {MAX_PAIRS:,}: leave it out, and append "
                f"the wanted pairs to {self.job.name}, without a value"
            )
        if self.table.positions is None and m * n > MAX_CELLS:
            fail(
                f"{self.job.name} would be {m:,} x {n:,} = {m * n:,} numbers when completed, more than the limit of "
                f"{MAX_CELLS:,}: give it as records, and append the wanted pairs without a value"
            )

    def _check_range(self) -> None:
        """Fail if powers of a number overflow, as it is or relative to the median: it is a code for a missing value."""
        table = self.table
        sizes = np.abs(table.M.values)
        k = int(sizes.argmax())
        largest = float(sizes[k])
        if largest > LARGEST or (largest and largest > LARGEST * float(np.median(sizes[sizes > 0]))):
            i, j = table.M.rows[k], table.M.columns_of_entries()[k]
            where = f"row {short_repr(table.rows[i])}, column {short_repr(table.columns[j])}"
            fail(f"{self.job.name}: {table.M.values[k]:.3g} in {where} {TOO_LARGE}, or give --missing")

    def write(self, out: Path, outliers: Path, model: Imputation, fit: LowRank, clean: bool) -> int:
        """Write the completed table and the outliers, the largest first; return the number of cells left empty."""
        table, result = self.table, model.result
        completed = Completed(table, fit, replaced=result.flagged if clean else ())
        write_table(out, completed, table, pairs="all" if self.job.every else None)
        listed = list_outliers(result, table.M, fit)
        listed |= {"row": table.rows[listed["row"]], "column": table.columns[listed["column"]]}
        write_columns(outliers, listed, table.layout)
        return completed.left_empty(every=self.job.every)

    def write_bands(self, paths: dict[str, Path], model: Imputation, fit: LowRank, bands: Bands, level: float) -> None:
        """Write the limits of the bands about what was filled or replaced; other cells are as they were."""
        table = self.table
        values = Completed(table, fit, replaced=model.result.flagged if self.job.clean else ()).rows(slice(None))
        width = np.where(values == table.M.to_dense(), 0.0, bands.half_widths(table.M.row_counts, level))
        write_table(paths["lower"], values - width, table)
        write_table(paths["upper"], values + width, table)

    def view(self, model: Imputation, fit: LowRank, clean: bool) -> TableView:
        """The table for the report."""
        table, wide = self.table, self.table.positions is None
        changed = clean and model.result.flagged.size > 0
        return TableView(
            model.result,
            given=table.M,
            fit=fit,
            row_labels=table.rows,
            column_labels=table.columns,
            by_column=wide,
            panes=RECORD_PANES if not wide else PANES if changed else UNCHANGED_PANES,
        )


def _advice(error: NoNumbersError, *, wide: bool) -> Iterator[str]:
    """Options for a column that should hold numbers."""
    if error.cell is not None:
        yield f"if it stands for a missing value, give --missing {shlex.quote(error.cell)}"
    if wide:
        yield f"if the column holds labels, give --label {shlex.quote(error.column)}"


class TableCompletion:
    """The completion of a table whose rows have no order: by low rank, levels and offsets."""

    unit = "iterations"

    def __init__(self, job: Job, source: MemoryTable | LargeRecords, table: Table | LargeTable) -> None:
        self.job, self.source, self.table = job, source, table

    def solve(self, meter: Meter) -> None:
        """Fit the model."""
        job = self.job
        if self.table.M.shape[0] < 2:
            fail(f"{job.name} has one row: what is missing there cannot be learnt from others; give 2 rows or more")
        rank = job.rank if job.rank == "auto" else int(job.rank)
        self.model = Imputation.fit(self.table.M, rank, random_state=job.seed, callback=meter.watch)
        self.fit = self.model.lowrank()
        self.flagged = int(self.model.result.flagged.size)
        self.bad_rows = _bad_rows(self.table, self.model, self.fit)

    def write(self, paths: dict[str, Path]) -> int:
        """Write the tables; return the number of cells left empty."""
        job, model, fit = self.job, self.model, self.fit
        empty = self.source.write(paths["completed"], paths["outliers"], model, fit, job.clean)
        if job.interval is not None and isinstance(self.source, MemoryTable):
            bands = Bands.fit(model, job.rank if job.rank == "auto" else int(job.rank), random_state=job.seed)
            self.source.write_bands(paths, model, fit, bands, job.interval)
        return empty

    def facts(self) -> dict[str, Any]:
        """Figures that only a table without times has."""
        rows = [row.label for row in self.bad_rows]
        return {"rank": self.model.rank, "converged": self.model.result.converged, "bad_rows": rows}

    def judge(self, facts: dict[str, Any]) -> Verdict:
        """How far to trust the result."""
        return judge(self.table, self.model, facts)

    def summary(self) -> list[list[str]]:
        """Lines of the summary."""
        bad = [["bad rows", f"{len(self.bad_rows):,} of {self.table.M.shape[0]:,}"]] if self.bad_rows else []
        return [*bad, ["rank", str(self.model.rank)]]

    def notes(self) -> list[str]:
        """What the user should know of the model."""
        found = [_note(self.bad_rows)] if self.bad_rows else []
        stuck = np.flatnonzero(np.isfinite(self.model.stuck))
        if stuck.size and isinstance(self.table, Table):
            named = ", ".join(f"{self.table.columns[j]} at {self.model.stuck[j]:.6g}" for j in stuck[:LISTED])
            more = f" and {stuck.size - LISTED} more columns" if stuck.size > LISTED else ""
            found.append(f"Stuck, as no other number of the column is repeated so often, and flagged: {named}{more}.")
        return found

    def headline(self) -> tuple[str, str]:
        """A number of the report, and its meaning."""
        rank = self.model.rank
        return f"{rank}", "is the rank of the fit" if rank else "is the rank: levels and offsets suffice"

    def about(self, verdict: Verdict) -> dict[str, Any]:
        """What the report says about the solve."""
        result = self.model.result
        settings = {"method": result.method, "backend": result.backend, "rank": self.model.rank}
        return {
            "settings": settings | {"iterations": result.n_iter},
            "trace": result.trace,
            "remarks": remarks(self.table, self.model, verdict),
        }

    def report(self, path: Path, run: Run) -> None:
        """Write the report."""
        view = self.source.view(self.model, self.fit, self.job.clean)
        columns, all_columns = view.heat.shape[1], self.table.M.shape[1]
        if columns < all_columns:
            note = f"The pictures and lists show {columns:,} of {all_columns:,} columns."
            run = replace(run, notes=[*run.notes, note])
        reading = "Errors are in units of each column's spread."
        table_report(path, run, view, reading=reading, bad_rows=self.bad_rows)


def _bad_rows(table: Table | LargeTable, model: Imputation, fit: LowRank) -> list[BadRow]:
    """The rows of a wide table that are off the low-rank fit of the others; none if that predicts nothing."""
    if not isinstance(table, Table) or table.positions is not None or not (model.rank and model.is_reliable):
        return []
    found = []
    by_row, unit, cases = table.M.T, model.prediction.tolerance / OUTLIER, model.row_outliers()
    for i in cases.indices:
        part = slice(by_row.indptr[i], by_row.indptr[i + 1])
        columns, values = by_row.rows[part], by_row.values[part]
        expected = fit.at(np.full(columns.size, i), columns)
        z = (values - expected) / unit[columns]
        worst = np.argsort(-np.abs(z), kind="stable")[:CELLS]
        found.append(
            BadRow(
                label=str(table.rows[i]),
                filled=table.M.shape[1] - columns.size,
                observed=columns.size,
                outliers=round(float(cases.cell_share[i]) * columns.size),
                many=bool(cases.cell_share[i] > cases.cell_cutoff[i]),
                distance=float(cases.orthogonal_distance[i]),
                usual=float(cases.orthogonal_cutoff[i]),
                cells=[
                    Cell(str(table.columns[columns[k]]), *map(float, (values[k], expected[k], z[k]))) for k in worst
                ],
            )
        )
    return found


def _note(found: list[BadRow]) -> str:
    """Which rows are wrong, why, and what becomes of their missing values."""
    listed = "; ".join(map(str, found[:LISTED])) + (f"; and {len(found) - LISTED} more" if len(found) > LISTED else "")
    filled = sum(row.filled for row in found)
    verb = "does" if len(found) == 1 else "do"
    text = f"{pluralize(len(found), 'row')} {verb} not fit the others as a whole: {listed} (in standard deviations)."
    return text + (f" {guesses(filled)}" if filled else "")
