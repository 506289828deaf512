"""`lowsparse complete`: a table with holes and gross errors in, a completed one out, with a list of what was wrong."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .. import report
from ..imputation.model import Imputation
from ..linalg.lowrank import LowRank
from ..linalg.scale import LARGEST
from ..robust.regression import EFFICIENT
from ..support.format import counted, duration, number, percent
from ..support.sizes import bytes_of
from ..tables import Completed, Table, read_table, write_table
from ..tables.columns import NoNumbersError
from ..tables.labels import shown
from ..tables.read import ARRAYS, TEXT, ending_of
from ..tables.stream import LargeTable
from ..tables.write import write_columns
from .again import command_again
from .failure import USAGE, advise, fail, require
from .folder import output_folder
from .large import LargeRecords, check_address, connected, kept_store
from .output import Force, Json, Quiet, Voice
from .progress import Step, step
from .text import columns as aligned
from .text import paragraph, width

__all__ = ["complete"]

MOST_PAIRS = 100_000_000  # records that --all writes
MOST_CELLS = 1 << 29  # of a matrix that was sparse in its file and is dense when it is complete
FEW = 3  # values in a line that little is known of
HELPS = 0.9  # of the error that levels and offsets leave: more, and low rank is hardly worth it
LIMIT = 0.35  # of the entries wrong: more is near to what no method recovers
READING = "Errors are in units of each column's spread."
AS_THEY_ARE = {
    "As given": "holes are blank, errors marked",
    "What was done": "kept, flagged, filled",
    "As it should be": "errors and holes replaced",
}
OF_RECORDS = {
    "As given": "pairs without a value are blank",
    "What is known": "given, wrong, to be predicted",
    "Every pair": "as the fit has it",
}


def complete(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A table: .csv or .tsv (also .gz), .parquet, .arrow, .feather, .npy, .npz, .mtx or .mat; "
            "or a folder of .parquet files with records.",
            show_default=False,
        ),
    ],
    row: Annotated[
        str | None,
        typer.Option(help="Column of the row labels, by name or place from 0. [default: of a wide table, the first]"),
    ] = None,
    col: Annotated[str | None, typer.Option(help="Records: column of the column labels.")] = None,
    value: Annotated[
        str | None, typer.Option(help="Records: column of the values. .npz and .mat: which of several matrices.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="Wide table: a further column of text or dates, kept as it is; may be repeated."),
    ] = None,
    rank: Annotated[
        str, typer.Option(help="Largest rank of the fit, or auto: entries that are kept aside decide.")
    ] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="The completed table; the ending says the format. [default: FILE-completed]")
    ] = None,
    clean: Annotated[
        bool, typer.Option("--clean", help="Replace gross errors, too, by what they should have been.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Records: write all pairs of labels, not only those in the file.")
    ] = False,
    memory: Annotated[
        str | None,
        typer.Option(help="Records in .parquet, larger than memory: solve from disk within this much, such as 1GB."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Records in .parquet: solve on the Dask cluster whose scheduler is there, tcp://..."),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            help="Records from disk: folder for the matrix, kept and used again. [default: beside OUT, and removed]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the choice of entries that are kept aside.")] = 0,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fill the holes of a table, and find its gross errors.

    A wide table has a line for each row and a column for each column; its holes are empty cells, NA or NaN. Records
    are lines of a row label, a column label and a value; those without a value get one. Columns may have units of
    their own.

    \b
      lowsparse complete air.csv
      lowsparse complete air.csv --clean --out clean.parquet
      lowsparse complete stars.parquet --row user --col film --value stars
      lowsparse complete ratings/ --row user --col film --value stars --memory 1GB --store /scratch/ratings

    What was given comes back as it was; only --clean replaces gross errors. What is filled is not rounded, so whole
    numbers become decimal ones. Rows and columns without any value stay empty: nothing is known of them. Further
    columns of records come back as they were, but not with --all.

    Beside OUT stand OUT-outliers, a table of the gross errors (row, column, value, what was expected, and how many
    standard deviations lie between), and OUT-report.html, to look at. All three are there in the end, or none.

    A folder of .parquet files, or --memory or --cluster, means records larger than memory: they are put on disk as a
    matrix once, solved from there or by the workers of the cluster, which must see --store, and read again as they are
    completed. OUT is .parquet then; gross errors are listed in the order of the records.
    """
    voice = Voice(quiet=quiet, json=json)
    largest = _rank(rank)
    require(seed >= 0, f"--seed must be 0 or more, not {seed}")
    large = memory is not None or cluster is not None or file.is_dir()
    most = _bytes(memory)
    require(large or store is None, "--store is for records from disk: give --memory or --cluster, or a folder")
    ending = ".parquet" if large else ending_of(file)
    _check_columns(ending, row, col, value, every)
    if large:
        _check_large(file, out, value, every, cluster, store)
    require(not label or (ending not in ARRAYS and value is None), "--label is for wide tables in files of columns")
    if out is None and file.is_dir():
        out = file.resolve().with_name(f"{file.resolve().name}-completed.parquet")
    out = out or _stem(file).with_name(f"{_stem(file).name}-completed{_ending(file)}")
    names = _names(out)
    for name in names:
        if out.with_name(name).exists() and file.exists() and os.path.samefile(out.with_name(name), file):
            fail(f"{out.with_name(name)} is the table itself: choose another --out")
    seconds: dict[str, float] = {}
    small = "leave out rows or columns, or store numbers of 4 bytes in .parquet or .npy"
    with advise(memory=small), output_folder(out.parent, names, force=force) as folder, ExitStack() as during:
        if large:
            client, at = during.enter_context(connected(cluster)), during.enter_context(kept_store(store, folder))
            records = LargeRecords(file, (str(row), str(col), str(value)), at, most, client)
            with _timed(seconds, voice, "reading") as reading:
                there = records.read(lambda what, done, of: _heard(reading, what, done, of))
                _check_largest(there, file)
                table: Table | LargeTable = there
                voice.say(f"{file}: {_told(table)}")
        else:
            with _timed(seconds, voice, "reading"):
                table = _read(file, ending, row, col, value, label)
                _check_size(table, file, every)
                _check_range(table, file)
                voice.say(f"{file}: {_told(table)}")
        with _timed(seconds, voice, "solving", unit="iterations") as solving:
            model = Imputation.fit(table.M, largest, random_state=seed, callback=solving.watch)
            fit = model.lowrank()
        with _timed(seconds, voice, "writing"):
            if isinstance(table, Table):
                done = Completed(table, fit, replaced=model.result.flagged if clean else ())
                write_table(folder / names[0], done, table, pairs="all" if every else None)
                _write_outliers(folder / names[1], done, model)
                empty = done.left_empty(every=every)
            else:
                empty = records.write(folder / names[0], folder / names[1], table, model, fit, clean).left_empty
        facts = _facts(table, model, empty, every=every, clean=clean)
        with _timed(seconds, voice, "reporting"):
            shown = (
                records.shown(table, model, fit, OF_RECORDS)
                if isinstance(table, LargeTable)
                else _shown(table, fit, model, facts)
            )
            _report(folder / names[2], file, table, model, facts, seconds, shown)
        paths = (str(out.with_name(name)) for name in names)
        facts |= {"seconds": seconds} | dict(zip(("completed", "outliers", "report"), paths, strict=True))
        summary = _summary(facts, table)
    voice.result(facts, text=summary, brief=str(out))


# ---------------------------------------------------------------------- what is asked for


def _rank(text: str) -> int | str:
    if text == "auto":
        return text
    require(text.isdecimal() and int(text) >= 1, f"--rank must be auto or a whole number of 1 or more, not {text}")
    return int(text)


def _bytes(memory: str | None) -> int:
    try:
        return bytes_of(memory)
    except ValueError as error:
        fail(f"--{error}", USAGE)


def _check_columns(ending: str, row: str | None, col: str | None, value: str | None, every: bool) -> None:
    given = [name is not None for name in (row, col, value)]
    alone = [False, False, True] if ending in ARRAYS else [True, False, False]
    wide = not any(given) or given == alone
    require(wide or all(given), "records need --row, --col and --value, all three; a wide table needs none of them")
    require(not (wide and every), "--all is for records: give --row, --col and --value, or leave it out")


def _check_large(
    file: Path, out: Path | None, value: str | None, every: bool, cluster: str | None, store: Path | None
) -> None:
    """Leave unless these are records in Parquet files, to be written as such."""
    if not file.exists():
        fail(f"there is no file or folder {file}: check the path")
    parquet = file.is_dir() or file.suffix.lower() in (".parquet", ".pq")
    require(parquet, f"{file}: --memory and --cluster are for records in .parquet, a file or a folder of them")
    if value is None:
        what = f"{file} is a folder" if file.is_dir() else "--memory and --cluster"
        fail(f"{what}: that is for records in .parquet files, which need --row, --col and --value")
    require(
        not every, "--all is for tables in memory: leave it out, and append the pairs that you want without a value"
    )
    require(out is None or out.suffix.lower() == ".parquet", f"records from disk are written as .parquet, not {out}")
    require(cluster is None or store is not None, "--cluster needs --store, a folder that all workers see")
    if cluster is not None:
        check_address(cluster)
    if store is not None and store.exists() and not store.is_dir():
        fail(f"{store} is not a folder: choose another --store")


def _stem(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(_ending(path)))


def _ending(path: Path) -> str:
    """All of it, as it is written: .csv, .csv.gz"""
    return path.name[-len(ending_of(path)) - (3 if path.suffix.lower() == ".gz" else 0) :]


def _names(out: Path) -> tuple[str, str, str]:
    """Of the files: the table, the outliers, the report.

    >>> _names(Path("air.csv.gz"))
    ('air.csv.gz', 'air-outliers.csv', 'air-report.html')
    """
    ending, stem = ending_of(out), _stem(out).name
    listed = ending if ending in TEXT | {".parquet"} else ".csv"
    return out.name, f"{stem}-outliers{listed}", f"{stem}-report.html"


# ---------------------------------------------------------------------- what is done


@contextmanager
def _timed(seconds: dict[str, float], voice: Voice, what: str, unit: str = "") -> Iterator[Any]:
    with step(voice, what, unit=unit) as part:
        yield part
    seconds[what] = part.seconds


def _read(
    file: Path, ending: str, row: str | None, col: str | None, value: str | None, label: list[str] | None
) -> Table:
    """Columns of a file of columns may be given by their places."""
    wanted: list[Any] = [row, col, value]
    if ending not in ARRAYS and all(name is None or name.isdecimal() for name in wanted):
        wanted = [None if name is None else int(name) for name in wanted]
    try:
        return read_table(
            file,
            row=wanted[0],
            col=wanted[1],
            value=wanted[2],
            beside=None if wanted[2] is not None and ending not in ARRAYS else label or (),
        )
    except NoNumbersError as error:
        labels = f"; if the column holds labels or dates, give --label {shlex.quote(error.column)}"
        fail(error.line + (labels if value is None else ""))


def _check_size(table: Table, file: Path, every: bool) -> None:
    m, n = table.M.shape
    if every and m * n > MOST_PAIRS:
        fail(
            f"--all would write {m * n:,} records, and {MOST_PAIRS:,} is the most: leave it out, and append the pairs "
            f"that you want to {file}, without a value"
        )
    if table.places is None and m * n > MOST_CELLS:
        fail(
            f"{file} would be {m:,} x {n:,} = {m * n:,} numbers when it is complete, and {MOST_CELLS:,} is the most: "
            "give it as records, with those that you want to know as records without a value"
        )


def _check_largest(table: LargeTable, file: Path) -> None:
    """A number whose powers overflow stands for something else."""
    largest = float(np.abs(table.M.values).max())
    if largest > LARGEST:
        fail(f"{file}: {largest:.3g} is among the values, too large to compute with: leave it empty if it is missing")


def _heard(step: Step, what: str, done: int, of: int) -> None:
    """How far the matrix on disk is."""
    step.total = of
    step.reach(done, what)


def _check_range(table: Table, file: Path) -> None:
    """A number whose powers overflow, as it is or in units of the usual size, stands for something else."""
    sizes = np.abs(table.M.values)
    k = int(sizes.argmax())
    largest = float(sizes[k])
    if largest > LARGEST or (largest and largest > LARGEST * float(np.median(sizes[sizes > 0]))):
        i, j = table.M.rows[k], table.M.columns_of_entries()[k]
        where = f"row {shown(table.rows[i])}, column {shown(table.columns[j])}"
        advice = "is too large to compute with: leave it empty if it is missing"
        fail(f"{file}: {table.M.values[k]:.3g} in {where} {advice}")


def _write_outliers(path: Path, done: Completed, model: Imputation) -> None:
    """The surest first."""
    table = done.table
    sure = report.sureness(model.result)
    order = np.argsort(-sure, kind="stable")
    at = model.result.flagged[order]
    i, j = table.M.rows[at], table.M.columns_of_entries()[at]
    listed = {
        "row": table.rows[i],
        "column": table.columns[j],
        "value": table.M.values[at],
        "expected": done.fit.at(i, j),
        "deviations": np.minimum(sure[order], report.SUREST),
    }
    write_columns(path, listed, table.layout)


def _facts(table: Table | LargeTable, model: Imputation, empty: int, *, every: bool, clean: bool) -> dict[str, Any]:
    m, n = table.M.shape
    cells = m * n if every or table.n_records is None else table.n_records
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
        "replaced": flagged if clean else 0,
        "rank": model.rank,
        "converged": model.result.converged,
    }


def _shown(table: Table, fit: LowRank, model: Imputation, facts: dict[str, Any]) -> report.TableView:
    return report.TableView.of(
        model.result,
        given=table.M,
        fit=fit,
        row_labels=table.rows,
        column_labels=table.columns,
        by_column=table.places is None,
        panes=OF_RECORDS if table.places is not None else report.PANES if facts["replaced"] else AS_THEY_ARE,
        sure=report.sureness(model.result),
    )


def _report(
    path: Path,
    file: Path,
    table: Table | LargeTable,
    model: Imputation,
    facts: dict[str, Any],
    seconds: dict[str, float],
    shown: report.TableView,
) -> None:
    result = model.result
    share = percent(facts["flagged"] / facts["observed"])
    done = "replaced by what they should be" if facts["replaced"] else "left as they are"
    run = report.Run(
        title=file.name,
        lead=f"{_told(table)}. The holes are filled; entries that do not fit the others are {done}.",
        facts=[
            (f"{facts['filled']:,}", "holes were filled"),
            (f"{facts['flagged']:,}", f"entries do not fit, {share} of all that were given"),
            (f"{facts['rank']}", "is the rank of the fit" if model.rank else "is the rank: levels and offsets say all"),
            (duration(sum(seconds.values())), "for reading, solving and writing"),
        ],
        command=command_again(),
        settings={
            "method": result.method,
            "backend": result.backend,
            "rank": model.rank,
            "iterations": result.n_iter,
        },
        timings=dict(seconds),
        trace=result.trace,
        remarks=_trust(table, model),
        notes=[*_notes(facts, table), *_cut(table, shown)],
    )
    report.table_report(path, run, shown, reading=READING)


# ---------------------------------------------------------------------- what is said


def _cut(table: Table | LargeTable, shown: report.TableView) -> list[str]:
    """That the report shows some of the columns, if it does."""
    here, all_of_them = shown.heat.shape[1], table.M.shape[1]
    return [f"The pictures and lists show {here:,} of {all_of_them:,} columns."] if here < all_of_them else []


def _told(table: Table | LargeTable) -> str:
    m, n = table.M.shape
    records = "" if table.n_records is None else f" in {counted(table.n_records, 'record')}"
    return f"{counted(m, 'row')} x {counted(n, 'column')}, {counted(table.M.nnz, 'value')}{records}"


def _trust(table: Table | LargeTable, model: Imputation) -> list[report.Remark]:
    """How well the entries determine what was filled, for somebody who does not know the method."""
    M, result = table.M, model.result
    met = f"The method {'met' if result.converged else 'has not met'} its own test: {result.message}."
    said = [report.Remark(met, result.converged)]
    before, after = model.width / EFFICIENT, result.noise if result.held_out is None else result.held_out
    if before > 0:
        kind = "Entries that were kept aside" if result.held_out is not None else "The entries"
        helps = after < HELPS * before
        end = "" if helps else ", so low rank hardly helps, and holes are filled by little more than these"
        known = f"{kind} are known to within {number(after)}; levels and offsets alone leave {number(before)}{end}."
        said.append(report.Remark(known, helps))
    for name, counts in (("row", M.row_counts), ("column", M.column_counts)):
        few = int(np.count_nonzero((counts > 0) & (counts < FEW)))
        usual = f"A {name} has {number(float(np.median(counts)))} values as a rule"
        thin = f"; {few:,} {name}s have fewer than {FEW}, and what is filled there is a guess" if few else ""
        said.append(report.Remark(f"{usual}{thin}.", False if few else None))
    share = result.flagged.size / M.nnz
    near = ": near to the limit of what can be told" if share > LIMIT else ""
    said.append(report.Remark(f"{percent(share)} of the values do not fit{near}.", False if near else None))
    return said


def _notes(facts: dict[str, Any], table: Table | LargeTable) -> list[str]:
    """What the user should know before relying on it."""
    notes = []
    lines = {"row": facts["empty_rows"], "column": facts["empty_columns"]}
    if facts["left_empty"]:
        told = " and ".join(counted(count, name) for name, count in lines.items() if count)
        cells = counted(facts["left_empty"], "cell" if table.n_records is None else "record")
        notes.append(f"No value at all in {told}: {cells} left empty.")
    if not table.missing and table.n_records is None:
        notes.append("There was no hole. If these are records, say so: --row, --col and --value.")
    if not facts["converged"]:
        notes.append("The method has not met its own test: do not rely on what was filled.")
    return notes


def _summary(facts: dict[str, Any], table: Table | LargeTable) -> str:
    spent = ", ".join(f"{name} {duration(time)}" for name, time in facts["seconds"].items())
    rows = [
        ["filled", f"{facts['filled']:,}"],
        ["flagged", f"{facts['flagged']:,} ({percent(facts['flagged'] / facts['observed'])} of what was given)"],
        ["rank", str(facts["rank"])],
        ["time", spent],
    ]
    written = [[name, facts[name]] for name in ("completed", "outliers", "report")]
    notes = [paragraph(note, width()) for note in _notes(facts, table)]
    # paths stay whole, to be copied
    return "\n".join([*notes, aligned(rows, left=(0, 1), fit=width()), "", aligned(written, left=(0, 1))])
