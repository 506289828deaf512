"""How far a command is: a bar with rate and time left on a terminal, elsewhere a line now and then; on stderr."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ..solve import Progress
from ..support.format import duration
from .output import Voice

__all__ = ["Step", "step"]

OFTEN, SELDOM = 0.1, 10.0  # seconds between two looks: on a terminal, elsewhere
BAR = 16
LONG = 5.0  # seconds from which on the end of a step is worth a line

Item = TypeVar("Item")


class Step:
    """A part of a command's work: how much of it is done, and how long the rest may take.

    >>> now = iter([0.0, 1.0, 2.0, 4.0])
    >>> part = Step("reading", total=400, unit="frames", clock=lambda: next(now))
    >>> part.advance(100)
    >>> part.line()
    '100 of 400 frames, 50 frames/s, 6 s left'
    """

    def __init__(
        self,
        what: str,
        *,
        total: float | None = None,
        unit: str = "",
        every: float = SELDOM,
        show: Callable[[Step], None] = lambda step: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done: float = 0
        self.note = ""
        self._every, self._show, self._clock = every, show, clock
        self._began = self._shown = clock()

    def advance(self, amount: float = 1, note: str = "") -> None:
        """So much more is done."""
        self.reach(self.done + amount, note)

    def reach(self, done: float, note: str = "") -> None:
        """So much is done in all."""
        self.done, self.note = done, note
        now = self._clock()
        if now - self._shown >= self._every:
            self._shown = now
            self._show(self)

    def over(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items, counted when each is done with."""
        for item in items:
            yield item
            self.advance()

    def watch(self, progress: Progress) -> None:
        """The callback of a `solve`."""
        change = progress.row.get("change")
        self.reach(progress.iteration, "" if change is None else f"change {change:.1e}")

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self._clock() - self._began

    def line(self) -> str:
        """How far it is, in words."""
        seconds = self.seconds
        rate = self.done / seconds if seconds > 0 else 0.0
        unit = f" {self.unit}" if self.unit else ""
        words = [f"{self.done:,.0f}{'' if self.total is None else f' of {self.total:,.0f}'}{unit}"]
        if rate > 0:
            words.append(f"{rate:,.0f}{unit}/s" if rate >= 100 else f"{rate:.2g}{unit}/s")
            if self.total is not None:
                words.append(f"{duration(max(self.total - self.done, 0) / rate)} left")
        return ", ".join([*words, self.note] if self.note else words)


@contextmanager
def step(voice: Voice, what: str, *, total: float | None = None, unit: str = "") -> Iterator[Step]:
    """Show a part of the work while the block runs: a live bar, lines, or nothing if the voice is quiet.

    >>> with step(Voice(quiet=True), "reading", total=3, unit="frames") as reading:
    ...     for frame in reading.over("abc"):
    ...         pass
    >>> reading.done
    3
    """
    if voice.quiet:
        yield Step(what, total=total, unit=unit)
        return
    if _draws(sys.stderr):
        with _bar(what, total) as show:
            part = Step(what, total=total, unit=unit, every=OFTEN, show=show)
            yield part
    else:
        part = Step(what, total=total, unit=unit, show=lambda now: _tell(f"{what}: {now.line()}"))
        yield part
    if part.seconds >= LONG:
        count = f"{part.done:,.0f} {unit} in " if unit else ""
        _tell(f"{what}: {count}{duration(part.seconds)}")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _draws(stream: object) -> bool:
    """Whether a line on it can be drawn anew."""
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty()) and os.environ.get("TERM", "") not in ("dumb", "unknown")


@contextmanager
def _bar(what: str, total: float | None) -> Iterator[Callable[[Step], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars
    from rich.table import Column

    uncut, cut = (Column(no_wrap=True, overflow=how) for how in ("fold", "ellipsis"))
    shown = (
        TextColumn("{task.description}", markup=False, table_column=uncut),
        BarColumn(BAR),
        TextColumn("{task.fields[line]}", markup=False, table_column=cut),
    )
    console = Console(stderr=True)
    # What is printed meanwhile appears above the bar; stdout is left alone where it goes elsewhere.
    with Bars(*shown, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as bars:
        task = bars.add_task(what, total=total, line="")

        def show(part: Step) -> None:
            bars.update(task, completed=part.done, line=part.line())

        yield show
