"""The data in the forms that passes of the default method run on. What is not needed is not made.

"some": a block of rows and columns, with entries kept aside; "untied": the same without numbers that are suspiciously
often repeated; "part": rows and columns of one of these, that grow; "whole": everything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..robust.growth import take_block
from ..robust.regression import Lines
from ..robust.sketch import Sample, Sketch, draw
from ..robust.ties import Ties
from ..sweeps import open_sweep
from .base import Problem

__all__ = ["Views"]

IN_MEMORY = 2_000_000  # entries, at most, of what is grown or solved jointly


class Views:
    """Lines to regress, by what they are of."""

    def __init__(self, problem: Problem, rank: int, at_least: int) -> None:
        self.problem, self.rank, self.at_least, self.unit = problem, rank, at_least, problem.unit
        self.lines: dict[tuple[str, str], Lines] = {}
        self.samples: dict[str, Sample] = {}
        self.at = b"", b"", False  # the part that the lines of "part" are of
        self.generous = 1.0

    def enlarge(self, generous: float) -> None:
        """From now on the block is so much larger than it need be."""
        if generous != self.generous:
            self.generous, self.at = generous, (b"", b"", False)
            for name in ("sketch", "block", "block_by_row", "ties", "untied", "untied_by_row", "telling"):
                self.__dict__.pop(name, None)
            self.lines = {key: lines for key, lines in self.lines.items() if key[1] == "whole"}
            self.samples.pop("some", None)

    @property
    def everything(self) -> bool:
        """Whether the block has all rows and columns."""
        return (self.sketch.rows.size, self.sketch.columns.size) == self.problem.M.shape

    @cached_property
    def sketch(self) -> Sketch:
        """What passes over "some" see, and what is kept aside."""
        rng = np.random.default_rng(0x6C6164)
        return draw(self.problem.M, self.rank, rng, at_least=self.at_least, generous=self.generous)

    @cached_property
    def block(self) -> ObservedMatrix | None:
        """The matrix of the sketch, if the processor has it or can have it."""
        M: Any = self.sketch.M
        if M.nnz > IN_MEMORY:
            return None
        return M if isinstance(M, ObservedMatrix) else M.to_host()

    @cached_property
    def block_by_row(self) -> ObservedMatrix:
        """Its transpose."""
        assert self.block is not None  # it was asked for before
        return self.block.T

    @cached_property
    def ties(self) -> Ties | None:
        """Numbers of the block that are suspiciously often repeated, if there are some."""
        ties = None if self.block is None else Ties(self.block, self.block_by_row)
        return ties if ties is not None and ties.suspicious else None

    @cached_property
    def untied(self) -> ObservedMatrix | None:
        """The block without them."""
        return None if self.ties is None else self.ties.left_out()

    @cached_property
    def untied_by_row(self) -> ObservedMatrix:
        """Its transpose."""
        assert self.untied is not None  # it was asked for before
        return self.untied.T

    @cached_property
    def telling(self) -> NDArray[np.intp]:
        """Which of the entries kept aside attempts are compared by: all but such numbers."""
        s = self.sketch
        if self.ties is None:
            return np.arange(s.held_values.size)
        return np.flatnonzero(~self.ties.among(s.held_rows, s.held_columns, s.held_values))

    def block_and_turned(self, untied: bool) -> tuple[ObservedMatrix, ObservedMatrix]:
        """What L grows in, and its transpose."""
        if untied and self.untied is not None:
            return self.untied, self.untied_by_row
        assert self.block is not None  # it was asked for before
        return self.block, self.block_by_row

    def columns(self, data: str) -> Lines:
        """The columns of "some", "untied" or "whole"."""
        return self._lines("columns", data, lambda: self._matrix(data), learning=data != "whole")

    def rows(self, data: str) -> Lines:
        """The rows of "some", "untied" or "whole"."""
        return self._lines("rows", data, lambda: self.columns(data).M.T, learning=data != "whole")

    def _matrix(self, data: str) -> ObservedMatrix:
        if data == "whole":
            return self.problem.M
        return self.block_and_turned(True)[0] if data == "untied" else self.sketch.M

    @property
    def judged_by(self) -> Lines:
        """The columns by which attempts are compared where too few entries are kept aside."""
        return self.columns("some" if self.ties is None else "untied")

    def strip(self) -> Lines:
        """The rows of the whole matrix, as far as they lie in the columns of the block."""
        if self.sketch.strip is self.problem.M:
            return self.rows("whole")
        return self._lines("strip", "some", lambda: self.sketch.strip.T, learning=False)

    def sample(self, data: str) -> Sample:
        """Some entries of "some" or "whole", or all: enough to tell a scale by."""
        if data not in self.samples:
            self.samples[data] = Sample(self.columns(data).M, self.problem.sweep.name)
        return self.samples[data]

    def part(self, rows: NDArray[np.intp], columns: NDArray[np.intp], untied: bool) -> tuple[Lines, Lines]:
        """The columns and the rows of a part of the block."""
        at = rows.tobytes(), columns.tobytes(), untied
        if at != self.at:
            M = take_block(self.block_and_turned(untied)[0], rows, columns)
            for which, A in (("columns", M), ("rows", M.T)):
                sweep = open_sweep(A, self.problem.sweep.name)
                self.lines[which, "part"] = Lines(A, sweep, self.unit, learning=True)
            self.at = at
        return self.lines["columns", "part"], self.lines["rows", "part"]

    def _lines(self, which: str, data: str, matrix: Callable[[], ObservedMatrix], learning: bool) -> Lines:
        if (which, data) not in self.lines:
            M = matrix()
            sweep = self.problem.sweep if M is self.problem.M else open_sweep(M, self.problem.sweep.name)
            self.lines[which, data] = Lines(M, sweep, self.unit, learning=learning)
        return self.lines[which, data]
