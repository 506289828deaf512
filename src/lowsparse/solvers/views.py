"""The data in the forms that passes of the default method run on. What is not needed is not made.

"some": a block of rows and columns; "all": all of them; both with entries kept aside. "part": some rows and columns of
one of these, that grow. "whole": everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..lines import Lines
from ..observed import ObservedMatrix
from ..robust.growth import take_block
from ..sketch import Sketch, draw
from ..sweeps import open_sweep
from .base import Problem

__all__ = ["Views"]

IN_MEMORY = 2_000_000  # entries, at most, of what is grown or solved jointly


class Views:
    """Lines to regress, by what they are of."""

    def __init__(self, problem: Problem, at_least: int) -> None:
        self.problem, self.at_least, self.unit = problem, at_least, problem.unit
        self.sketches: dict[str, Sketch] = {}
        self.lines: dict[tuple[str, str], Lines] = {}
        self.turned: dict[str, ObservedMatrix] = {}
        self.at: tuple[str, bytes, bytes] = ("", b"", b"")  # the part that the lines of "part" are of

    def sketch(self, data: str) -> Sketch:
        """What passes over `data` see, and what is kept aside."""
        if data not in self.sketches:
            rng = np.random.default_rng(0x6C6164)
            self.sketches[data] = draw(
                self.problem.M, self.problem.rank, rng, everything=data == "all", at_least=self.at_least
            )
        return self.sketches[data]

    def columns(self, data: str) -> Lines:
        """The columns of `data`."""
        if data == "whole":
            return self._lines("columns", data, lambda: self.problem.M, learning=False)
        return self._lines("columns", data, lambda: self.sketch(data).M, learning=True)

    def rows(self, data: str) -> Lines:
        """The rows of `data`."""
        return self._lines("rows", data, lambda: self.columns(data).M.T, learning=data != "whole")

    def strip(self, data: str) -> Lines:
        """The rows of the whole matrix, as far as they lie in the columns of the block."""
        return self._lines("strip", data, lambda: self.sketch(data).strip.T, learning=False)

    def in_memory(self, data: str) -> ObservedMatrix | None:
        """The matrix of a sketch, if the processor has it or can have it."""
        M: Any = self.sketch(data).M
        if M.nnz > IN_MEMORY:
            return None
        return M if isinstance(M, ObservedMatrix) else M.to_host()

    def both_ways(self, data: str) -> tuple[ObservedMatrix, ObservedMatrix]:
        """A sketch in memory, and its transpose."""
        M = self.in_memory(data)
        assert M is not None  # it was asked for before
        if data not in self.turned:
            self.turned[data] = M.T
        return M, self.turned[data]

    def part(self, source: str, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> tuple[Lines, Lines]:
        """The columns and the rows of a part of a sketch."""
        at = source, rows.tobytes(), columns.tobytes()
        if at != self.at:
            M = take_block(self.both_ways(source)[0], rows, columns)
            backend = self.problem.sweep.name
            for which, A in (("columns", M), ("rows", M.T)):
                self.lines[which, "part"] = Lines(A, open_sweep(A, backend), self.unit, learning=True)
            self.at = at
        return self.lines["columns", "part"], self.lines["rows", "part"]

    def _lines(self, which: str, data: str, matrix: Callable[[], ObservedMatrix], learning: bool) -> Lines:
        if (which, data) not in self.lines:
            M = matrix()
            sweep = self.problem.sweep if M is self.problem.M else open_sweep(M, self.problem.sweep.name)
            self.lines[which, data] = Lines(M, sweep, self.unit, learning=learning)
        return self.lines[which, data]
