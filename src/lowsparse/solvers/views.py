"""The data in the forms that passes of the default method run on. What is not needed is not made.

"some": a block of rows and columns, with entries kept aside; "part": rows and columns of it, that grow; "whole":
everything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..lines import Lines
from ..observed import ObservedMatrix
from ..robust.growth import take_block
from ..sketch import Sample, Sketch, draw
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
        self.at = b"", b""  # the part that the lines of "part" are of
        self.generous = 1.0

    def enlarge(self, generous: float) -> None:
        """From now on the block is so much larger than it need be."""
        if generous != self.generous:
            self.generous, self.at = generous, (b"", b"")
            for name in ("sketch", "block", "block_by_row"):
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

    def columns(self, data: str) -> Lines:
        """The columns of "some" or "whole"."""
        whole = data == "whole"
        return self._lines("columns", data, lambda: self.problem.M if whole else self.sketch.M, learning=not whole)

    def rows(self, data: str) -> Lines:
        """The rows of "some" or "whole"."""
        return self._lines("rows", data, lambda: self.columns(data).M.T, learning=data != "whole")

    def strip(self) -> Lines:
        """The rows of the whole matrix, as far as they lie in the columns of the block."""
        return self._lines("strip", "some", lambda: self.sketch.strip.T, learning=False)

    def sample(self, data: str) -> Sample:
        """Some entries of "some" or "whole", or all: enough to tell a scale by."""
        if data not in self.samples:
            self.samples[data] = Sample(self.columns(data).M, self.problem.sweep.name)
        return self.samples[data]

    def part(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> tuple[Lines, Lines]:
        """The columns and the rows of a part of the block."""
        at = rows.tobytes(), columns.tobytes()
        if at != self.at:
            assert self.block is not None  # it was asked for before
            M = take_block(self.block, rows, columns)
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
