"""Progress on stderr, with rate and time left: a bar on a terminal, otherwise a line every ten seconds."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..loop import Progress
from ..support.format import duration
from .output import Output

TERMINAL_INTERVAL, LINE_INTERVAL = 0.1, 10.0  # seconds between two updates
BAR_WIDTH = 16
LONG = 5.0  # seconds from which the end of a stage is reported


@dataclass
class Meter:
    """How much of a stage of the work is done, and how long the rest may take."""

    total: float | None = None
    unit: str = ""
    interval: float = LINE_INTERVAL  # between two calls of `show`
    show: Callable[[Meter], None] = lambda meter: None
    clock: Callable[[], float] = time.perf_counter
    done: float = 0
    note: str = ""

    def __post_init__(self) -> None:
        self._began = self._shown = self.clock()

    def advance(self, note: str = "") -> None:
        """Count one more as done."""
        self.reach(self.done + 1, note)

    def reach(self, done: float, note: str = "") -> None:
        """Set how much is done."""
        self.done, self.note = done, note
        now = self.clock()
        if now - self._shown >= self.interval:
            self._shown = now
            self.show(self)

    def watch(self, progress: Progress) -> None:
        """A callback for `solve`."""
        change = progress.row.get("change")
        self.reach(progress.iteration, "" if change is None else f"change {change:.1e}")

    @property
    def seconds(self) -> float:
        """Since the stage began."""
        return self.clock() - self._began

    def line(self) -> str:
        """What is done, the rate, the time left and the note."""
        seconds = self.seconds
        rate = self.done / seconds if seconds > 0 else 0.0
        unit = f" {self.unit}" if self.unit else ""
        parts = [f"{self.done:,.0f}{'' if self.total is None else f' of {self.total:,.0f}'}{unit}"]
        if rate > 0:
            parts.append(f"{rate:,.0f}{unit}/s" if rate >= 100 else f"{rate:.2g}{unit}/s")
            if self.total is not None:
                parts.append(f"{duration(max(self.total - self.done, 0) / rate)} left")
        return ", ".join([*parts, self.note] if self.note else parts)


@contextmanager
def show_progress(output: Output, stage: str, *, total: float | None = None, unit: str = "") -> Iterator[Meter]:
    """Show the progress of a block: a live bar, lines, or nothing with --quiet."""
    if output.quiet:
        yield Meter(total=total, unit=unit)
        return
    if _is_terminal(sys.stderr):
        with _bar(stage) as show:
            meter = Meter(total=total, unit=unit, interval=TERMINAL_INTERVAL, show=show)
            yield meter
    else:
        meter = Meter(total=total, unit=unit, show=lambda meter: _print(f"{stage}: {meter.line()}"))
        yield meter
    if meter.seconds >= LONG:
        count = f"{meter.done:,.0f} {unit} in " if unit else ""
        _print(f"{stage}: {count}{duration(meter.seconds)}")


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _is_terminal(stream: object) -> bool:
    """Whether lines on it can be redrawn."""
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty()) and os.environ.get("TERM", "") not in ("dumb", "unknown")


@contextmanager
def _bar(stage: str) -> Iterator[Callable[[Meter], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars
    from rich.table import Column

    fold, ellipsis = Column(no_wrap=True, overflow="fold"), Column(no_wrap=True, overflow="ellipsis")
    columns = (
        TextColumn("{task.description}", markup=False, table_column=fold),
        BarColumn(BAR_WIDTH),
        TextColumn("{task.fields[line]}", markup=False, table_column=ellipsis),
    )
    # Other output appears above the bar; stdout is not redirected if it is not the terminal.
    with Bars(*columns, console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty()) as bars:
        task = bars.add_task(stage, total=None, line="")
        yield lambda meter: bars.update(task, total=meter.total, completed=meter.done, line=meter.line())
