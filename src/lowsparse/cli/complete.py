"""`lowsparse complete`: fill the missing values of a table, and list its gross errors."""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..entries.files.columns import NoNumbersError
from ..entries.files.labels import short_repr
from ..entries.files.numbers import is_number
from ..entries.files.source import ARRAYS, EXCEL, TEXT, Source, ending_inside, ending_of
from ..entries.files.times import TimesError
from ..imputation.bands import Bands
from ..imputation.model import MAX_REPLACED, Imputation
from ..linalg.lowrank import LowRank
from ..linalg.scale import LARGEST
from ..report.page import Run
from ..report.table import PANES, TableView, list_outliers, table_report
from ..support.format import duration, percent, pluralize
from ..support.sizes import bytes_of
from ..tables import Completed, Table, read_table, write_table
from ..tables.stream import LargeTable
from ..tables.timeline import Timeline
from ..tables.write import write_columns
from .failure import USAGE, advise, fail, require
from .folder import output_folder
from .large import RECORD_PANES, TOO_LARGE, LargeRecords, connect
from .output import Force, Json, Output, Quiet, repeat_command
from .progress import Meter, show_progress
from .series import SeriesCompletion
from .text import columns as aligned
from .text import paragraph, width
from .verdict import Verdict, judge, remarks

ADDRESS = re.compile(r"((tcp|tls|ucx|wss?)://)?[^\s/]+:\d+")  # of a Dask scheduler
MAX_PAIRS = 100_000_000  # records written by --all
MAX_CELLS = 1 << 29  # of a completed matrix that was sparse in its file
PIPE = Path("-")  # stdin as FILE, stdout as OUT
WRITTEN = ("completed", "outliers", "report", "lower", "upper")  # the last two with --interval
UNCHANGED_PANES = {
    "As given": "missing values are blank, errors marked",
    "What was done": "kept, flagged, filled",
    "As expected": "errors and missing values replaced",
}

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A table: .csv, .tsv or .txt (also .gz), .xlsx, .parquet, .arrow, .feather, .npy, .npz, .mtx or .mat; "
        "a .zip with one of these in it; - for stdin; or a folder of .parquet files with records.",
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
    list[str] | None,
    typer.Option(help="Wide table: a column that is no data, copied unchanged, as all text and dates are; repeatable."),
]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Text: whether the first line names the columns. [default: guessed]"),
]
Missing = Annotated[
    list[str] | None,
    typer.Option(help="What else means missing, separated by commas: '-,?,999'. Empty, NA, -, ? and the like do."),
]
Rank = Annotated[str, typer.Option(help="Maximum rank of the fit, or auto: chosen by held-out entries.")]
Out = Annotated[
    Path | None,
    typer.Option(help="Completed table, in the format of its suffix; - for stdout. [default: FILE-completed]"),
]
Clean = Annotated[bool, typer.Option("--clean", help="Also replace gross errors by their expected values.")]
MaxReplaced = Annotated[
    float, typer.Option(min=0.0, max=1.0, help="Share of the values that --clean may replace; it fails if it is more.")
]
All = Annotated[bool, typer.Option("--all", help="Records: write all pairs of labels, not only those in the file.")]
NoTime = Annotated[
    bool, typer.Option("--no-time", help="Wide table: take rows whose labels are times as rows in no order.")
]
IntervalLevel = Annotated[
    float | None,
    typer.Option("--interval", help="Wide table: also write OUT-lower and OUT-upper, bands that hold this share: 0.9."),
]
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
Seed = Annotated[int, typer.Option(min=0, help="Random seed for the choice of held-out entries.")]


def complete(
    file: File,
    row: Row = None,
    col: Col = None,
    value: Value = None,
    label: Label = None,
    header: Header = None,
    missing: Missing = None,
    rank: Rank = "auto",
    out: Out = None,
    clean: Clean = False,
    max_replaced: MaxReplaced = MAX_REPLACED,
    every: All = False,
    no_time: NoTime = False,
    interval: IntervalLevel = None,
    memory: Memory = None,
    cluster: Cluster = None,
    store: Store = None,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fill the missing values of a table, and find its gross errors.

    A wide table has a line for each row; missing values are empty cells, NA, -, ? and the like. Records are lines of a
    row label, a column label and a value; those without a value get one. Columns may have different units.

    \b
      lowsparse complete air.csv
      lowsparse complete demand.csv --interval 0.9
      lowsparse complete air.csv --clean --out clean.parquet --missing -9999
      lowsparse complete - < air.csv > completed.csv
      lowsparse complete stars.parquet --row user --col film --value stars
      lowsparse complete ratings/ --row user --col film --value stars --memory 1GB --store scratch/ratings

    Given values are kept; only --clean replaces gross errors. Filled values are not rounded. Rows and columns without
    any value stay empty. Further columns of records are kept, but not with --all.

    If the labels of the rows are times, the columns are taken as series: gaps are filled from both their ends, from the
    other series and from the shape of the day, and gross errors are listed in runs. --no-time switches this off.

    Next to OUT are written OUT-outliers, a table of the gross errors (row, column, value, expected value, and their
    distance in standard deviations; of series: series, begin, end, kind, observed, expected, and how sure it is), and
    OUT-report.html. Either all are written or none. On stdout there is the table alone. The last line says how far to
    trust it: good, doubtful or do not use, and why.

    A folder of .parquet files, --memory or --cluster mean records larger than memory: they are stored on disk as a
    matrix, solved from there or by the workers of the cluster, which must see --store, and read again to be completed.
    OUT is .parquet then, and gross errors are listed in the order of the records.
    """
    names = (row, col, value)
    markers = tuple(marker for given in missing or () for marker in given.split(","))
    options = (tuple(label or ()), header, markers, rank, out, clean, max_replaced, every, no_time, interval)
    job = Job(file, names, *options, memory, cluster, store, seed)
    require(not (job.to_stdout and json), "--json prints to stdout, where the table goes: give --out FILE")
    job.check()
    if job.to_stdout:
        _run_to_stdout(job, Output(quiet=quiet))
    else:
        _run(job, Output(quiet=quiet, json=json), job.target, force=force)


@dataclass(frozen=True)
class Job:
    """The arguments of the command."""

    file: Path
    names: tuple[str | None, str | None, str | None]  # columns of row labels, column labels and values
    labels: tuple[str, ...]
    header: bool | None
    missing: tuple[str, ...]  # what else stands for a missing value
    rank: str
    out: Path | None
    clean: bool
    max_replaced: float
    every: bool
    no_time: bool
    interval: float | None  # level of the bands to write
    memory: str | None
    cluster: str | None
    store: Path | None
    seed: int

    @property
    def to_stdout(self) -> bool:
        """Whether the table is written to stdout."""
        return self.out == PIPE or (self.out is None and self.file == PIPE)

    @property
    def name(self) -> str:
        """The name of the table, for messages."""
        return "stdin" if self.file == PIPE else str(self.file)

    @cached_property
    def source(self) -> Source:
        """The table to be read; stdin is read now."""
        if self.file != PIPE:
            return Source.open(self.file)
        return replace(Source.open(sys.stdin.buffer), path=Path(self.name))

    @cached_property
    def large(self) -> bool:
        """Whether the records are larger than memory."""
        return self.memory is not None or self.cluster is not None or self.file.is_dir()

    @cached_property
    def ending(self) -> str:
        """The format of the completed table."""
        if self.file == PIPE:
            return ".csv"  # or other columns
        return ".parquet" if self.large else ending_inside(self.file)

    @cached_property
    def target(self) -> Path:
        """The path of the completed table."""
        if self.out is not None and self.out != PIPE:
            return self.out
        if self.file.is_dir():
            return self.file.resolve().with_name(f"{self.file.resolve().name}-completed.parquet")
        if self.file == PIPE or self.file.suffix.lower() == ".zip":
            return self.file.with_name(f"{self.file.stem}-completed{self.ending}")
        stem, suffix = _split_name(self.file)
        return self.file.with_name(f"{stem}-completed{suffix}")

    def check(self) -> None:
        """Fail if the arguments are invalid, before any work."""
        valid = self.rank == "auto" or (self.rank.isdecimal() and int(self.rank) >= 1)
        require(valid, f"--rank must be auto or a whole number of 1 or more, not {self.rank}")
        self.max_bytes()
        usable = self.large or self.store is None
        require(usable, "--store is for records from disk: give --memory or --cluster, or a folder")
        self._check_columns()
        if self.interval is not None:
            require(0 < self.interval < 1, f"--interval must be between 0 and 1, such as 0.9, not {self.interval:g}")
            require(not self.to_stdout, "--interval writes further tables: give --out FILE")
            wide = self.names[1] is None and not self.large
            require(wide, "--interval is for wide tables: leave it out")
        if self.large:
            self._check_large()
        if self.to_stdout:
            return
        for name in self.file_names(self.target):
            path = self.target.with_name(name)
            if path.exists() and self.file.exists() and os.path.samefile(path, self.file):
                fail(f"{path} is the table itself: choose another --out")

    def file_names(self, out: Path) -> tuple[str, ...]:
        """Names of the table, the outliers, the report and the limits of the bands."""
        return _file_names(out)[: None if self.interval is not None else 3]

    def max_bytes(self) -> int:
        """The bound on memory, in bytes."""
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
        in_text = self.header is None or self.ending in TEXT | EXCEL
        require(in_text, "--header and --no-header are for tables in text and .xlsx, whose first line may be data")

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
        require(not self.missing, "--missing is for tables in memory: leave these values empty in the files")
        require(not self.every, "--all is for tables in memory: leave it out, and append the wanted pairs to the file")
        parquet = self.out is None or self.out.suffix.lower() == ".parquet"
        require(parquet, f"records from disk are written as .parquet, not {self.out}")
        if self.cluster is not None:
            require(store is not None, "--cluster needs --store, a folder that all workers see")
            address = f"must be the address of a scheduler: tcp://HOST:8786, not {self.cluster or 'empty'}"
            require(ADDRESS.fullmatch(self.cluster) is not None, f"--cluster {address}")
        if store is not None and store.exists() and not store.is_dir():
            fail(f"{store} is not a folder: choose another --store")

    @contextmanager
    def open(self, scratch: Path) -> Iterator[MemoryTable | LargeRecords]:
        """The source of the table; without --store, large records are stored in a temporary folder in `scratch`."""
        if not self.large:
            yield MemoryTable(self)
            return
        row, col, value = map(str, self.names)
        with (
            connect(self.cluster) as client,
            tempfile.TemporaryDirectory(dir=scratch, prefix=".lowsparse-store-", ignore_cleanup_errors=True) as folder,
        ):
            yield LargeRecords(self.file, (row, col, value), self.store or Path(folder), self.max_bytes(), client)


def _run(job: Job, output: Output, out: Path, *, force: bool) -> None:
    names = job.file_names(out)
    seconds: dict[str, float] = {}

    @contextmanager
    def stage(name: str, unit: str = "") -> Iterator[Meter]:
        with show_progress(output, name, unit=unit) as meter:
            yield meter
        seconds[name] = meter.seconds

    smaller = "leave out rows or columns, or store numbers of 4 bytes in .parquet or .npy"
    with advise(memory=smaller), output_folder(out.parent, names, force=force) as folder, job.open(folder) as source:
        paths = {key: folder / name for key, name in zip(WRITTEN, names, strict=False)}
        with stage("reading") as meter:
            table = source.read(meter)
            times = _times(job, table)
            output.print(f"{job.name}: {_describe(table)}")
        work: TableCompletion | SeriesCompletion = TableCompletion(job, source, table)
        if times is not None and isinstance(table, Table):
            work = SeriesCompletion(table, times, clean=job.clean, interval=job.interval, seed=job.seed)
        with stage("solving", work.unit) as meter:
            work.solve(meter)
            _check_replaced(job, work.flagged / table.M.nnz)
        with stage("writing"):
            empty = work.write(paths)
        facts = _facts(job, table, work, empty, seconds)
        notes = [*work.notes(), *_notes(facts, job, table)]
        if not job.to_stdout:
            with stage("reporting"):
                work.report(paths["report"], _report(job, table, work, facts, notes))
    if not job.to_stdout:
        facts |= {key: str(out.with_name(name)) for key, name in zip(WRITTEN, names, strict=False)}
    output.result(facts, text=_summary(facts, work.summary(), notes), brief="" if job.to_stdout else str(out))


def _times(job: Job, table: Table | LargeTable) -> Timeline | None:
    """The times of the rows of a wide table, if they have any and are to be used."""
    if job.no_time or not isinstance(table, Table) or table.positions is not None or table.layout.index is None:
        return None
    try:
        times = Timeline.of(table.rows)
    except TimesError as error:
        fail(f"{job.name}: {error}; or give --no-time, and it is completed without regard to time")
    require(times is None or job.rank == "auto", "--rank is not for series in time: leave it out, or give --no-time")
    return times


def _check_replaced(job: Job, share: float) -> None:
    """Fail if --clean would replace too many values."""
    if job.clean and share > job.max_replaced:
        fail(
            f"--clean would replace {percent(share)} of the values, more than {percent(job.max_replaced)}: "
            "the model does not fit them; leave --clean out, or give --max-replaced"
        )


def _run_to_stdout(job: Job, output: Output) -> None:
    """Write the completed table to stdout, and everything else to stderr."""
    stdout = sys.stdout
    with tempfile.TemporaryDirectory(prefix="lowsparse-") as folder:
        with redirect_stdout(sys.stderr):
            out = Path(folder, f"table{'.parquet' if job.large else job.source.ending}")
            _run(job, output, out, force=False)
        stdout.buffer.write(out.read_bytes())


def _split_name(path: Path) -> tuple[str, str]:
    """The stem and the suffix with .gz: ("air", ".csv.gz")."""
    length = len(ending_of(path)) + (3 if path.suffix.lower() == ".gz" else 0)
    return path.name[:-length], path.name[-length:]


def _file_names(out: Path) -> tuple[str, ...]:
    """Names of the table, the outliers, the report, and the limits of the bands.

    >>> _file_names(Path("air.csv.gz"))
    ('air.csv.gz', 'air-outliers.csv', 'air-report.html', 'air-lower.csv.gz', 'air-upper.csv.gz')
    """
    (stem, suffix), ending = _split_name(out), ending_of(out)
    outliers = ending if ending in TEXT | EXCEL | {".parquet"} else ".csv"
    limits = f"{stem}-lower{suffix}", f"{stem}-upper{suffix}"
    return out.name, f"{stem}-outliers{outliers}", f"{stem}-report.html", *limits


# ---------------------------------------------------------------------- a table in memory


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


# ---------------------------------------------------------------------- results


class TableCompletion:
    """The completion of a table whose rows have no order: by low rank, levels and offsets."""

    unit = "iterations"

    def __init__(self, job: Job, source: MemoryTable | LargeRecords, table: Table | LargeTable) -> None:
        self.job, self.source, self.table = job, source, table

    def solve(self, meter: Meter) -> None:
        """Fit the model."""
        job = self.job
        rank = job.rank if job.rank == "auto" else int(job.rank)
        self.model = Imputation.fit(self.table.M, rank, random_state=job.seed, callback=meter.watch)
        self.fit = self.model.lowrank()
        self.flagged = int(self.model.result.flagged.size)

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
        return {"rank": self.model.rank, "converged": self.model.result.converged}

    def judge(self, facts: dict[str, Any]) -> Verdict:
        """How far to trust the result."""
        return judge(self.table, self.model, facts)

    def summary(self) -> list[list[str]]:
        """Lines of the summary."""
        return [["rank", str(self.model.rank)]]

    def notes(self) -> list[str]:
        """What the user should know of the model."""
        return []

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
        table_report(path, run, view, reading="Errors are in units of each column's spread.")


def _facts(
    job: Job,
    table: Table | LargeTable,
    work: TableCompletion | SeriesCompletion,
    empty: int,
    seconds: dict[str, float],
) -> dict[str, Any]:
    cells = math.prod(table.M.shape) if job.every or table.n_records is None else table.n_records
    facts: dict[str, Any] = {
        "shape": table.M.shape,
        "held": table.layout.held,
        "observed": table.M.nnz,
        "filled": cells - table.M.nnz - empty,
        "left_empty": empty,
        "empty_rows": int(table.M.empty_rows.size),
        "empty_columns": int(table.M.empty_columns.size),
        "flagged": work.flagged,
        "replaced": work.flagged if job.clean else 0,
        **work.facts(),
        "seconds": seconds,
    }
    verdict = work.judge(facts)
    return facts | {"verdict": verdict.level, "why": verdict.why}


def _report(
    job: Job,
    table: Table | LargeTable,
    work: TableCompletion | SeriesCompletion,
    facts: dict[str, Any],
    notes: list[str],
) -> Run:
    """What every report says."""
    share = percent(facts["flagged"] / facts["observed"])
    treatment = "replaced by their expected values" if facts["replaced"] else "left unchanged"
    return Run(
        title=Path(job.name).name,
        lead=f"{_describe(table)}. Missing values are filled; outliers are {treatment}.",
        facts=[
            (f"{facts['filled']:,}", "missing values were filled"),
            (f"{facts['flagged']:,}", f"outliers, {share} of the given values"),
            work.headline(),
            (duration(sum(facts["seconds"].values())), "for reading, solving and writing"),
        ],
        command=repeat_command(),
        timings=facts["seconds"],
        notes=notes,
        **work.about(Verdict(facts["verdict"], facts["why"])),
    )


def _describe(table: Table | LargeTable) -> str:
    m, n = table.M.shape
    records = "" if table.n_records is None else f" in {pluralize(table.n_records, 'record')}"
    return f"{pluralize(m, 'row')} x {pluralize(n, 'column')}, {pluralize(table.M.nnz, 'value')}{records}"


def _notes(facts: dict[str, Any], job: Job, table: Table | LargeTable) -> list[str]:
    """How the table was read, and what the user should know before relying on the result."""
    notes = _reading_notes(job, table) if isinstance(table, Table) else []
    if facts["left_empty"]:
        lines = {"row": facts["empty_rows"], "column": facts["empty_columns"]}
        where = " and ".join(pluralize(count, name) for name, count in lines.items() if count)
        cells = pluralize(facts["left_empty"], "cell" if table.n_records is None else "record")
        notes.append(f"No value at all in {where}: {cells} left empty.")
    if not table.missing and table.n_records is None:
        notes.append("No value is missing. If these are records, give --row, --col and --value.")
    return notes


def _reading_notes(job: Job, table: Table) -> list[str]:
    """What was guessed about the file, and how to say otherwise."""
    layout, notes = table.layout, []
    if not layout.encoding.startswith("utf"):
        notes.append(f"Not in UTF-8: read as {layout.encoding}, and written so.")
    if job.header is None and not layout.header:
        notes.append("The first line holds numbers, and is taken as data; give --header if it names the columns.")
    elif job.header is None and layout.head and table.positions is None and _are_numbers(table.columns):
        notes.append("The numbers in the first line are taken as names of columns; give --no-header if they are data.")
    if table.positions is None and (kept := [name for _, name, _ in table.kept if name.strip()]):
        shown = ", ".join(kept[:5]) + (f" and {len(kept) - 5} more" if len(kept) > 5 else "")
        notes.append(f"Copied unchanged, as text or dates or by --label: {shown}.")
    return notes


def _are_numbers(labels: Any) -> bool:
    return all(is_number(str(label)) for label in labels)


def _summary(facts: dict[str, Any], more: list[list[str]], notes: list[str]) -> str:
    times = ", ".join(f"{name} {duration(time)}" for name, time in facts["seconds"].items())
    rows = [
        ["filled", f"{facts['filled']:,}"],
        ["flagged", f"{facts['flagged']:,} ({percent(facts['flagged'] / facts['observed'])} of the given values)"],
        *more,
        ["time", times],
    ]
    written = [[name, facts[name]] for name in WRITTEN if name in facts]
    paths = [aligned(written, left=(0, 1)), ""] if written else []  # not wrapped, so that they can be copied
    verdict = f"verdict: {facts['verdict']} ({facts['why']})"  # one line
    shown = [paragraph(note, width()) for note in notes]
    return "\n".join([*shown, aligned(rows, left=(0, 1), fit=width()), "", *paths, verdict])
