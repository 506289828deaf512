"""`lowsparse complete`: fill the missing values of a table, and list its gross errors."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .. import report
from ..entries.files.columns import NoNumbersError
from ..entries.files.labels import short_repr
from ..entries.files.read import ARRAYS, TEXT, ending_of
from ..imputation.model import Imputation
from ..linalg.lowrank import LowRank
from ..linalg.scale import LARGEST
from ..robust.regression import EFFICIENT
from ..support.format import duration, format_number, percent, pluralize
from ..support.sizes import bytes_of
from ..tables import Completed, Table, read_table, write_table
from ..tables.stream import LargeTable
from ..tables.write import write_columns
from .failure import USAGE, advise, fail, require
from .folder import output_folder
from .large import RECORD_PANES, LargeRecords, check_address, open_records
from .output import Force, Json, Output, Quiet, repeat_command
from .progress import Meter, show_progress
from .text import columns as aligned
from .text import paragraph, width

__all__ = ["complete"]

MAX_PAIRS = 100_000_000  # records written by --all
MAX_CELLS = 1 << 29  # of a completed matrix that was sparse in its file
FEW = 3  # rows and columns with fewer values are hardly determined
HELPS = 0.9  # low rank is of little use if its error is more than this share of that of levels and offsets alone
LIMIT = 0.35  # share of wrong entries near to what no method recovers
UNCHANGED_PANES = {
    "As given": "missing values are blank, errors marked",
    "What was done": "kept, flagged, filled",
    "As expected": "errors and missing values replaced",
}

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A table: .csv or .tsv (also .gz), .parquet, .arrow, .feather, .npy, .npz, .mtx or .mat; "
        "or a folder of .parquet files with records.",
        show_default=False,
    ),
]
Row = Annotated[
    str | None,
    typer.Option(help="Column of the row labels, by name or position from 0. [default: the first of a wide table]"),
]
Col = Annotated[str | None, typer.Option(help="Records: column of the column labels.")]
Value = Annotated[
    str | None, typer.Option(help="Records: column of the values. .npz and .mat: which of several matrices.")
]
Label = Annotated[
    list[str] | None, typer.Option(help="Wide table: another column of text or dates, copied unchanged; repeatable.")
]
Rank = Annotated[str, typer.Option(help="Maximum rank of the fit, or auto: chosen by held-out entries.")]
Out = Annotated[
    Path | None, typer.Option(help="Completed table, in the format of its suffix. [default: FILE-completed]")
]
Clean = Annotated[bool, typer.Option("--clean", help="Also replace gross errors by their expected values.")]
All = Annotated[bool, typer.Option("--all", help="Records: write all pairs of labels, not only those in the file.")]
Memory = Annotated[
    str | None,
    typer.Option(help="Records in .parquet, larger than memory: solve from disk within this much, such as 1GB."),
]
Cluster = Annotated[
    str | None, typer.Option(help="Records in .parquet: solve on the Dask cluster with this scheduler, tcp://...")
]
Store = Annotated[
    Path | None,
    typer.Option(help="Records from disk: folder for the matrix, kept and reused. [default: a temporary one]"),
]
Seed = Annotated[int, typer.Option(help="Random seed for the choice of held-out entries.")]


def complete(
    file: File,
    row: Row = None,
    col: Col = None,
    value: Value = None,
    label: Label = None,
    rank: Rank = "auto",
    out: Out = None,
    clean: Clean = False,
    every: All = False,
    memory: Memory = None,
    cluster: Cluster = None,
    store: Store = None,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fill the missing values of a table, and find its gross errors.

    A wide table has a line for each row; missing values are empty cells, NA or NaN. Records are lines of a row label,
    a column label and a value; those without a value get one. Columns may have different units.

    \b
      lowsparse complete air.csv
      lowsparse complete air.csv --clean --out clean.parquet
      lowsparse complete stars.parquet --row user --col film --value stars
      lowsparse complete ratings/ --row user --col film --value stars --memory 1GB --store /scratch/ratings

    Given values are kept; only --clean replaces gross errors. Filled values are not rounded. Rows and columns without
    any value stay empty. Further columns of records are kept, but not with --all.

    Next to OUT are written OUT-outliers, a table of the gross errors (row, column, value, expected value, and their
    distance in standard deviations), and OUT-report.html. Either all three are written or none.

    A folder of .parquet files, --memory or --cluster mean records larger than memory: they are stored on disk as a
    matrix, solved from there or by the workers of the cluster, which must see --store, and read again to be completed.
    OUT is .parquet then, and gross errors are listed in the order of the records.
    """
    names = (row, col, value)
    job = Job(file, names, tuple(label or ()), rank, out, clean, every, memory, cluster, store, seed)
    job.check()
    _run(job, Output(quiet=quiet, json=json), force)


@dataclass(frozen=True)
class Job:
    """The arguments of the command."""

    file: Path
    names: tuple[str | None, str | None, str | None]  # columns of row labels, column labels and values
    labels: tuple[str, ...]
    rank: str
    out: Path | None
    clean: bool
    every: bool
    memory: str | None
    cluster: str | None
    store: Path | None
    seed: int

    @cached_property
    def large(self) -> bool:
        """Whether the records are larger than memory."""
        return self.memory is not None or self.cluster is not None or self.file.is_dir()

    @cached_property
    def ending(self) -> str:
        return ".parquet" if self.large else ending_of(self.file)

    @cached_property
    def target(self) -> Path:
        """The path of the completed table."""
        if self.out is not None:
            return self.out
        if self.file.is_dir():
            return self.file.resolve().with_name(f"{self.file.resolve().name}-completed.parquet")
        return self.file.with_name(f"{_stem(self.file)}-completed{_full_suffix(self.file)}")

    def check(self) -> None:
        """Fail if the arguments are invalid, before any work."""
        limit = self.rank
        valid = limit == "auto" or (limit.isdecimal() and int(limit) >= 1)
        require(valid, f"--rank must be auto or a whole number of 1 or more, not {limit}")
        require(self.seed >= 0, f"--seed must be 0 or more, not {self.seed}")
        self.max_bytes()
        only_large = "--store is for records from disk: give --memory or --cluster, or a folder"
        require(self.large or self.store is None, only_large)
        self._check_columns()
        if self.large:
            self._check_large()
        for name in _file_names(self.target):
            path = self.target.with_name(name)
            if path.exists() and self.file.exists() and os.path.samefile(path, self.file):
                fail(f"{path} is the table itself: choose another --out")

    def max_bytes(self) -> int:
        try:
            return bytes_of(self.memory)
        except ValueError as error:
            fail(f"--{error}", USAGE)

    def _check_columns(self) -> None:
        given = [name is not None for name in self.names]
        alone = [False, False, True] if self.ending in ARRAYS else [True, False, False]
        wide = not any(given) or given == alone
        require(wide or all(given), "records need --row, --col and --value, all three; a wide table needs none of them")
        require(not (wide and self.every), "--all is for records: give --row, --col and --value, or leave it out")
        labelled = self.ending not in ARRAYS and not given[2]
        require(not self.labels or labelled, "--label is for wide tables in files with named columns")

    def _check_large(self) -> None:
        """Fail unless these are records in Parquet files, to be written as Parquet."""
        file, store = self.file, self.store
        if not file.exists():
            fail(f"there is no file or folder {file}: check the path")
        parquet = file.is_dir() or file.suffix.lower() in (".parquet", ".pq")
        require(parquet, f"{file}: --memory and --cluster are for records in .parquet, a file or a folder of them")
        if self.names[2] is None:
            what = f"{file} is a folder" if file.is_dir() else "--memory and --cluster"
            fail(f"{what}: this is for records in .parquet files, which need --row, --col and --value")
        require(not self.every, "--all is for tables in memory: leave it out, and append the wanted pairs to the file")
        parquet = self.out is None or self.out.suffix.lower() == ".parquet"
        require(parquet, f"records from disk are written as .parquet, not {self.out}")
        require(self.cluster is None or store is not None, "--cluster needs --store, a folder that all workers see")
        if self.cluster is not None:
            check_address(self.cluster)
        if store is not None and store.exists() and not store.is_dir():
            fail(f"{store} is not a folder: choose another --store")

    def open(self, scratch: Path) -> AbstractContextManager[MemoryTable | LargeRecords]:
        """The source of the table; a temporary store is made in `scratch`."""
        if not self.large:
            return nullcontext(MemoryTable(self))
        row, col, value = map(str, self.names)
        return open_records(
            self.file,
            (row, col, value),
            store=self.store,
            scratch=scratch,
            memory=self.max_bytes(),
            cluster=self.cluster,
        )


def _run(job: Job, output: Output, force: bool) -> None:
    out, names = job.target, _file_names(job.target)
    seconds: dict[str, float] = {}

    @contextmanager
    def stage(name: str, unit: str = "") -> Iterator[Meter]:
        with show_progress(output, name, unit=unit) as meter:
            yield meter
        seconds[name] = meter.seconds

    smaller = "leave out rows or columns, or store numbers of 4 bytes in .parquet or .npy"
    with advise(memory=smaller), output_folder(out.parent, names, force=force) as folder, job.open(folder) as source:
        with stage("reading") as meter:
            table = source.read(meter)
            output.print(f"{job.file}: {_describe(table)}")
        with stage("solving", "iterations") as meter:
            rank = job.rank if job.rank == "auto" else int(job.rank)
            model = Imputation.fit(table.M, rank, random_state=job.seed, callback=meter.watch)
            fit = model.lowrank()
        with stage("writing"):
            empty = source.write(folder / names[0], folder / names[1], model, fit, job.clean)
        facts = _facts(job, table, model, empty)
        with stage("reporting"):
            view = source.view(model, fit, job.clean)
            _write_report(folder / names[2], job, table, model, facts, seconds, view)
    paths = (str(out.with_name(name)) for name in names)
    facts |= {"seconds": seconds} | dict(zip(("completed", "outliers", "report"), paths, strict=True))
    output.result(facts, text=_summary(facts, table), brief=str(out))


def _full_suffix(path: Path) -> str:
    """The suffix as it is written, with .gz: .csv, .csv.gz"""
    return path.name[-len(ending_of(path)) - (3 if path.suffix.lower() == ".gz" else 0) :]


def _stem(path: Path) -> str:
    return path.name.removesuffix(_full_suffix(path))


def _file_names(out: Path) -> tuple[str, str, str]:
    """Names of the table, the outliers and the report.

    >>> _file_names(Path("air.csv.gz"))
    ('air.csv.gz', 'air-outliers.csv', 'air-report.html')
    """
    ending = ending_of(out)
    outliers = ending if ending in TEXT | {".parquet"} else ".csv"
    return out.name, f"{_stem(out)}-outliers{outliers}", f"{_stem(out)}-report.html"


# ---------------------------------------------------------------------- a table in memory


class MemoryTable:
    """A table that is read, completed and written in memory; `LargeRecords` does the same from disk."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def read(self, meter: Meter) -> Table:
        """Read the table, and check that it can be completed."""
        job = self.job
        names: list[Any] = list(job.names)
        by_column = job.ending not in ARRAYS
        if by_column and all(name is None or name.isdecimal() for name in names):
            names = [None if name is None else int(name) for name in names]
        row, col, value = names
        kept = None if value is not None and by_column else job.labels
        try:
            self.table = read_table(job.file, row=row, col=col, value=value, keep=kept)
        except NoNumbersError as error:
            advice = f"; if the column holds labels or dates, give --label {shlex.quote(error.column)}"
            fail(error.line + (advice if value is None else ""))
        self._check_size()
        self._check_range()
        return self.table

    def _check_size(self) -> None:
        m, n = self.table.M.shape
        if self.job.every and m * n > MAX_PAIRS:
            fail(
                f"--all would write {m * n:,} records, more than the limit of {MAX_PAIRS:,}: leave it out, and append "
                f"the wanted pairs to {self.job.file}, without a value"
            )
        if self.table.positions is None and m * n > MAX_CELLS:
            fail(
                f"{self.job.file} would be {m:,} x {n:,} = {m * n:,} numbers when completed, more than the limit of "
                f"{MAX_CELLS:,}: give it as records, and append the wanted pairs without a value"
            )

    def _check_range(self) -> None:
        """A number whose powers overflow, as it is or relative to the median, stands for something else."""
        table = self.table
        sizes = np.abs(table.M.values)
        k = int(sizes.argmax())
        largest = float(sizes[k])
        if largest > LARGEST or (largest and largest > LARGEST * float(np.median(sizes[sizes > 0]))):
            i, j = table.M.rows[k], table.M.columns_of_entries()[k]
            where = f"row {short_repr(table.rows[i])}, column {short_repr(table.columns[j])}"
            advice = "is too large to compute with: leave it empty if it is missing"
            fail(f"{self.job.file}: {table.M.values[k]:.3g} in {where} {advice}")

    def write(self, out: Path, outliers: Path, model: Imputation, fit: LowRank, clean: bool) -> int:
        """Write the completed table and the outliers, the largest first; return the number of cells left empty."""
        table, result = self.table, model.result
        completed = Completed(table, fit, replaced=result.flagged if clean else ())
        write_table(out, completed, table, pairs="all" if self.job.every else None)
        deviations = report.deviations(result)
        order = np.argsort(-deviations, kind="stable")
        at = result.flagged[order]
        i, j = table.M.rows[at], table.M.columns_of_entries()[at]
        listed = {
            "row": table.rows[i],
            "column": table.columns[j],
            "value": table.M.values[at],
            "expected": completed.fit.at(i, j),
            "deviations": np.minimum(deviations[order], report.MAX_DEVIATIONS),
        }
        write_columns(outliers, listed, table.layout)
        return completed.left_empty(every=self.job.every)

    def view(self, model: Imputation, fit: LowRank, clean: bool) -> report.TableView:
        """The table for the report."""
        table, wide = self.table, self.table.positions is None
        changed = clean and model.result.flagged.size > 0
        return report.TableView.of(
            model.result,
            given=table.M,
            fit=fit,
            row_labels=table.rows,
            column_labels=table.columns,
            by_column=wide,
            panes=RECORD_PANES if not wide else report.PANES if changed else UNCHANGED_PANES,
        )


# ---------------------------------------------------------------------- results


def _facts(job: Job, table: Table | LargeTable, model: Imputation, empty: int) -> dict[str, Any]:
    m, n = table.M.shape
    cells = m * n if job.every or table.n_records is None else table.n_records
    flagged = int(model.result.flagged.size)
    return {
        "shape": (m, n),
        "held": table.layout.held,
        "observed": table.M.nnz,
        "filled": cells - table.M.nnz - empty,
        "left_empty": empty,
        "empty_rows": int(table.M.empty_rows.size),
        "empty_columns": int(table.M.empty_columns.size),
        "flagged": flagged,
        "replaced": flagged if job.clean else 0,
        "rank": model.rank,
        "converged": model.result.converged,
    }


def _write_report(
    path: Path,
    job: Job,
    table: Table | LargeTable,
    model: Imputation,
    facts: dict[str, Any],
    seconds: dict[str, float],
    view: report.TableView,
) -> None:
    result = model.result
    share = percent(facts["flagged"] / facts["observed"])
    treatment = "replaced by their expected values" if facts["replaced"] else "left unchanged"
    columns, all_columns = view.heat.shape[1], table.M.shape[1]
    cut = [f"The pictures and lists show {columns:,} of {all_columns:,} columns."] if columns < all_columns else []
    run = report.Run(
        title=job.file.name,
        lead=f"{_describe(table)}. Missing values are filled; outliers are {treatment}.",
        facts=[
            (f"{facts['filled']:,}", "missing values were filled"),
            (f"{facts['flagged']:,}", f"outliers, {share} of the given values"),
            (f"{facts['rank']}", "is the rank of the fit" if model.rank else "is the rank: levels and offsets suffice"),
            (duration(sum(seconds.values())), "for reading, solving and writing"),
        ],
        command=repeat_command(),
        settings={"method": result.method, "backend": result.backend, "rank": model.rank, "iterations": result.n_iter},
        timings=dict(seconds),
        trace=result.trace,
        remarks=_remarks(table, model),
        notes=[*_notes(facts, table), *cut],
    )
    report.table_report(path, run, view, reading="Errors are in units of each column's spread.")


def _describe(table: Table | LargeTable) -> str:
    m, n = table.M.shape
    records = "" if table.n_records is None else f" in {pluralize(table.n_records, 'record')}"
    return f"{pluralize(m, 'row')} x {pluralize(n, 'column')}, {pluralize(table.M.nnz, 'value')}{records}"


def _remarks(table: Table | LargeTable, model: Imputation) -> list[report.Remark]:
    """How well the given values determine the filled ones."""
    M, result = table.M, model.result
    converged = "converged" if result.converged else "did not converge"
    remarks = [report.Remark(f"The method {converged}: {result.message}.", result.converged)]
    without, error = model.width / EFFICIENT, result.noise if result.held_out is None else result.held_out
    if without > 0:
        kind = "given" if result.held_out is None else "held-out"
        helps = error < HELPS * without
        text = f"The typical error on {kind} values is {format_number(error)}, with levels and offsets alone "
        text += format_number(without)
        text += "" if helps else ", so low rank hardly helps, and filled values are little more than levels and offsets"
        remarks.append(report.Remark(f"{text}.", helps))
    for name, counts in (("row", M.row_counts), ("column", M.column_counts)):
        few = int(np.count_nonzero((counts > 0) & (counts < FEW)))
        text = f"The median number of values in a {name} is {format_number(float(np.median(counts)))}"
        text += f"; {few:,} {name}s have fewer than {FEW}, and filled values there are guesses" if few else ""
        remarks.append(report.Remark(f"{text}.", False if few else None))
    share = result.flagged.size / M.nnz
    text = f"{percent(share)} of the values are outliers" + (", near the limit of any method" if share > LIMIT else "")
    return [*remarks, report.Remark(f"{text}.", False if share > LIMIT else None)]


def _notes(facts: dict[str, Any], table: Table | LargeTable) -> list[str]:
    """What the user should know before relying on the result."""
    notes = []
    if facts["left_empty"]:
        lines = {"row": facts["empty_rows"], "column": facts["empty_columns"]}
        where = " and ".join(pluralize(count, name) for name, count in lines.items() if count)
        cells = pluralize(facts["left_empty"], "cell" if table.n_records is None else "record")
        notes.append(f"No value at all in {where}: {cells} left empty.")
    if not table.missing and table.n_records is None:
        notes.append("No value is missing. If these are records, give --row, --col and --value.")
    if not facts["converged"]:
        notes.append("The method did not converge: do not rely on the filled values.")
    return notes


def _summary(facts: dict[str, Any], table: Table | LargeTable) -> str:
    times = ", ".join(f"{name} {duration(time)}" for name, time in facts["seconds"].items())
    rows = [
        ["filled", f"{facts['filled']:,}"],
        ["flagged", f"{facts['flagged']:,} ({percent(facts['flagged'] / facts['observed'])} of the given values)"],
        ["rank", str(facts["rank"])],
        ["time", times],
    ]
    written = [[name, facts[name]] for name in ("completed", "outliers", "report")]
    notes = [paragraph(note, width()) for note in _notes(facts, table)]
    # paths are not wrapped, so that they can be copied
    return "\n".join([*notes, aligned(rows, left=(0, 1), fit=width()), "", aligned(written, left=(0, 1))])
