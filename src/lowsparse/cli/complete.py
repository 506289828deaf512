"""`lowsparse complete`: fill the missing values of a table, and list its gross errors."""

import math
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from ..entries.files.numbers import is_number
from ..entries.files.times import TimesError
from ..imputation.model import MAX_REPLACED
from ..report.page import Run
from ..support.format import duration, percent, pluralize
from ..tables import Table
from ..tables.stream import LargeTable
from ..tables.timeline import Timeline
from .failure import advise, fail, require
from .folder import output_folder
from .job import Job
from .large import LargeRecords, connect
from .output import Force, Json, Output, Quiet, repeat_command
from .progress import Meter, show_progress
from .series import SeriesCompletion
from .table import MemoryTable, TableCompletion
from .text import columns as aligned
from .text import paragraph, width
from .verdict import Verdict

WRITTEN = ("completed", "outliers", "report", "lower", "upper")  # the last two with --interval


def complete(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A table: .csv, .tsv or .txt (also .gz), .xlsx, .parquet, .arrow, .feather, .npy, .npz, .mtx or .mat; "
            "a .zip with one of these in it; - for stdin; or a folder of .parquet files with records.",
            show_default=False,
        ),
    ],
    row: Annotated[
        str | None,
        typer.Option(help="Column of the row labels, by name or position from 0. [default: the first of a wide table]"),
    ] = None,
    col: Annotated[str | None, typer.Option(help="Records: column of the column labels.")] = None,
    value: Annotated[
        str | None, typer.Option(help="Records: column of the values. .npz and .mat: which of several matrices.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            help="Wide table: a column that is no data, copied unchanged, as all text and dates are; repeatable."
        ),
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option("--header/--no-header", help="Text: whether the first line names the columns. [default: guessed]"),
    ] = None,
    missing: Annotated[
        list[str] | None,
        typer.Option(help="What else means missing, separated by commas: '-,?,999'. Empty, NA, -, ? and the like do."),
    ] = None,
    rank: Annotated[str, typer.Option(help="Maximum rank of the fit, or auto: chosen by held-out entries.")] = "auto",
    out: Annotated[
        Path | None,
        typer.Option(help="Completed table, in the format of its suffix; - for stdout. [default: FILE-completed]"),
    ] = None,
    clean: Annotated[bool, typer.Option("--clean", help="Also replace gross errors by their expected values.")] = False,
    max_replaced: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Share of the values that --clean may replace; it fails if it is more."),
    ] = MAX_REPLACED,
    every: Annotated[
        bool, typer.Option("--all", help="Records: write all pairs of labels, not only those in the file.")
    ] = False,
    no_time: Annotated[
        bool, typer.Option("--no-time", help="Wide table: take rows whose labels are times as rows in no order.")
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            "--interval", help="Wide table: also write OUT-lower and OUT-upper, bands that hold this share: 0.9."
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="Records in .parquet, larger than memory: solve from disk within this much, such as 1GB."),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Records in .parquet: solve on the Dask cluster with this scheduler, tcp://...")
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(help="Records from disk: folder for the matrix, kept and reused. [default: a temporary one]"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for the choice of held-out entries.")] = 0,
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


@contextmanager
def _open(job: Job, scratch: Path) -> Iterator[MemoryTable | LargeRecords]:
    """The source of the table; without --store, large records are stored in a temporary folder in `scratch`."""
    if not job.large:
        yield MemoryTable(job)
        return
    row, col, value = map(str, job.names)
    with (
        connect(job.cluster) as client,
        tempfile.TemporaryDirectory(dir=scratch, prefix=".lowsparse-store-", ignore_cleanup_errors=True) as folder,
    ):
        yield LargeRecords(job.file, (row, col, value), job.store or Path(folder), job.max_bytes(), client)


def _run(job: Job, output: Output, out: Path, *, force: bool) -> None:
    names = job.file_names(out)
    seconds: dict[str, float] = {}

    @contextmanager
    def stage(name: str, unit: str = "") -> Iterator[Meter]:
        with show_progress(output, name, unit=unit) as meter:
            yield meter
        seconds[name] = meter.seconds

    smaller = "leave out rows or columns, or store numbers of 4 bytes in .parquet or .npy"
    with advise(memory=smaller), output_folder(out.parent, names, force=force) as folder, _open(job, folder) as source:
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


# ---------------------------------------------------------------------- results


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
