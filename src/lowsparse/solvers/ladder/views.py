"""The data in the forms that passes of the default method run over, each created when it is first needed.

"block": some rows and columns, of which some entries are held out; "untied": the same without values that are
suspiciously often repeated; "part": a growing part of one of these; "whole": all entries.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...entries.observed import ObservedMatrix
from ...entries.protocol import PartialMatrix
from ...robust.growth import take_block
from ...robust.regression import LineRegression
from ...robust.sketch import Sample, Sketch, draw
from ...robust.ties import Ties
from ..base import Problem

__all__ = ["Views"]

IN_MEMORY = 2_000_000  # largest number of entries of a block that is grown in or solved jointly


class Views:
    """The columns and rows to regress, by the name of the view.

    The block is `block_factor` times as large as is needed for `rank`; of one with fewer than `min_entries` entries
    none is held out.
    """

    def __init__(self, problem: Problem, rank: int, *, min_entries: int, block_factor: float = 1.0) -> None:
        self.problem, self.rank, self.unit = problem, rank, problem.unit
        self.min_entries, self.block_factor = min_entries, block_factor
        self._lines: dict[tuple[str, str], LineRegression] = {}
        self._samples: dict[str, Sample] = {}
        self._part = b"", b"", False  # identifies the part that the lines of "part" belong to

    def with_block_factor(self, block_factor: float) -> Views:
        """The views with a block of another size."""
        views = Views(self.problem, self.rank, min_entries=self.min_entries, block_factor=block_factor)
        views._lines = {key: lines for key, lines in self._lines.items() if key[1] == "whole"}
        return views

    @property
    def everything(self) -> bool:
        """Whether the block has all rows and columns."""
        return (self.sketch.rows.size, self.sketch.columns.size) == self.problem.M.shape

    @cached_property
    def sketch(self) -> Sketch:
        """The block and its held-out entries."""
        rng = np.random.default_rng(0x6C6164)
        return draw(self.problem.M, self.rank, rng, at_least=self.min_entries, generous=self.block_factor)

    @cached_property
    def block(self) -> ObservedMatrix | None:
        """The matrix of the block, in the processor's memory; None if it is too large for that."""
        M = self.sketch.M
        return None if M.nnz > IN_MEMORY else M.to_host()

    @cached_property
    def block_transpose(self) -> ObservedMatrix:
        """The transpose of `block`."""
        assert self.block is not None  # callers have checked
        return self.block.T

    @cached_property
    def ties(self) -> Ties | None:
        """Values of the block that are suspiciously often repeated, if there are some."""
        ties = None if self.block is None else Ties(self.block, self.block_transpose)
        return ties if ties is not None and ties.suspicious else None

    @cached_property
    def untied(self) -> ObservedMatrix | None:
        """The block without them."""
        return None if self.ties is None else self.ties.left_out()

    @cached_property
    def untied_transpose(self) -> ObservedMatrix:
        """The transpose of `untied`."""
        assert self.untied is not None  # callers have checked
        return self.untied.T

    @cached_property
    def comparable(self) -> NDArray[np.intp]:
        """The held-out entries by which attempts are compared: all but suspicious values."""
        s = self.sketch
        if self.ties is None:
            return np.arange(s.held_values.size)
        return np.flatnonzero(~self.ties.among(*s.held))

    def block_and_transpose(self, untied: bool) -> tuple[ObservedMatrix, ObservedMatrix]:
        """The matrix that L grows in, and its transpose."""
        if untied and self.untied is not None:
            return self.untied, self.untied_transpose
        assert self.block is not None  # callers have checked
        return self.block, self.block_transpose

    def columns(self, data: str) -> LineRegression:
        """The columns of "block", "untied" or "whole"."""
        return self._opened("columns", data, lambda: self._matrix(data), learning=data != "whole")

    def rows(self, data: str) -> LineRegression:
        """The rows of "block", "untied" or "whole"."""
        return self._opened("rows", data, lambda: self.columns(data).M.T, learning=data != "whole")

    def _matrix(self, data: str) -> PartialMatrix:
        if data == "whole":
            return self.problem.M
        return self.block_and_transpose(True)[0] if data == "untied" else self.sketch.M

    @property
    def judging_columns(self) -> LineRegression:
        """The columns by which attempts are compared where too few entries are held out."""
        return self.columns("block" if self.ties is None else "untied")

    def strip(self) -> LineRegression:
        """All rows of the matrix, within the columns of the block."""
        if self.sketch.strip is self.problem.M:
            return self.rows("whole")
        return self._opened("strip", "block", lambda: self.sketch.strip.T, learning=False)

    def sample(self, data: str) -> Sample:
        """Enough entries of "block" or "whole" to estimate a scale."""
        if data not in self._samples:
            self._samples[data] = Sample(self.columns(data).M, self.problem.sweep.host)
        return self._samples[data]

    def part(
        self, rows: NDArray[np.intp], columns: NDArray[np.intp], untied: bool
    ) -> tuple[LineRegression, LineRegression]:
        """The columns and the rows of a part of the block."""
        part = rows.tobytes(), columns.tobytes(), untied
        if part != self._part:
            M = take_block(self.block_and_transpose(untied)[0], rows, columns)
            for which, A in (("columns", M), ("rows", M.T)):
                sweep = A.open_sweep(self.problem.sweep.host)
                self._lines[which, "part"] = LineRegression(A, sweep, self.unit, learning=True)
            self._part = part
        return self._lines["columns", "part"], self._lines["rows", "part"]

    def _opened(self, which: str, data: str, matrix: Callable[[], PartialMatrix], learning: bool) -> LineRegression:
        if (which, data) not in self._lines:
            M = matrix()
            sweep = self.problem.sweep if M is self.problem.M else M.open_sweep(self.problem.sweep.host)
            self._lines[which, data] = LineRegression(M, sweep, self.unit, learning=learning)
        return self._lines[which, data]
