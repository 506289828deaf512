"""The arguments of `lowsparse complete`, checked before any work."""

import os
import re
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ..entries.files.source import ARRAYS, EXCEL, TEXT, Source, ending_inside, ending_of
from ..support.sizes import bytes_of
from .failure import USAGE, fail, require

ADDRESS = re.compile(r"((tcp|tls|ucx|wss?)://)?[^\s/]+:\d+")  # of a Dask scheduler
PIPE = Path("-")  # stdin as FILE, stdout as OUT


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
