"""The data in the forms that the default method fits, each created when it is first needed.

"block": some rows and columns, with some entries held out; "untied": the block without suspicious ties; "part": a
growing part of one of these; "whole": all entries; "untied whole": all but suspicious ties.
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
from ...sweeps import min_support
from ..base import Problem

IN_MEMORY = 2_000_000  # largest number of entries of a block on which L is grown or both factors are solved for


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
        self._blocks: dict[bool, tuple[ObservedMatrix, ObservedMatrix]] = {}
        self._part = b"", b"", False  # identifies the part that the lines of "part" belong to

    def with_block_factor(self, block_factor: float) -> Views:
        """The views with a block of another size."""
        views = Views(self.problem, self.rank, min_entries=self.min_entries, block_factor=block_factor)
        views._lines = {key: lines for key, lines in self._lines.items() if key[1] == "whole"}
        return views

    @cached_property
    def sketch(self) -> Sketch:
        """The block and its held-out entries."""
        rng = np.random.default_rng(0x6C6164)
        return draw(self.problem.M, self.rank, rng, min_entries=self.min_entries, block_factor=self.block_factor)

    @property
    def n_held_out(self) -> int:
        """The number of held-out entries."""
        return self.sketch.held.values.size

    @property
    def is_block_whole(self) -> bool:
        """Whether the block has all rows and columns."""
        return (self.sketch.rows.size, self.sketch.columns.size) == self.problem.M.shape

    @property
    def is_block_small(self) -> bool:
        """Whether the block is small enough for `block_and_transpose`."""
        return self.sketch.M.nnz <= IN_MEMORY

    @cached_property
    def ties(self) -> Ties | None:
        """Values of the block that are suspiciously often repeated, if there are some."""
        ties = Ties(*self.block_and_transpose(untied=False)) if self.is_block_small else None
        return ties if ties is not None and ties.suspicious else None

    @cached_property
    def comparable(self) -> NDArray[np.intp]:
        """The held-out entries by which attempts are compared: all but suspicious ties."""
        held = self.sketch.held
        return np.arange(held.values.size) if self.ties is None else np.flatnonzero(~self.ties.contain(*held))

    def block_and_transpose(self, untied: bool) -> tuple[ObservedMatrix, ObservedMatrix]:
        """The block and its transpose in the memory of the processor, without suspicious ties if `untied`."""
        ties = self.ties if untied else None
        if (ties is not None) not in self._blocks:
            M = self.sketch.M.to_host() if ties is None else ties.matrix_without()
            self._blocks[ties is not None] = M, M.T
        return self._blocks[ties is not None]

    @cached_property
    def untied_whole(self) -> ObservedMatrix | None:
        """All entries but suspicious ties, which lines with few others keep, in memory.

        None if there are no such ties, or too many entries to look for them in all of the matrix.
        """
        return None if self.ties_of_whole is None else self.ties_of_whole.matrix_without(2 * min_support(self.rank))

    @cached_property
    def ties_of_whole(self) -> Ties | None:
        """Which values of all entries are repeated, as far as `untied_whole` needs it."""
        M = self.problem.M
        if self.ties is None or M.nnz > IN_MEMORY:
            return None
        whole = M.to_host()
        return Ties(whole, whole.T)

    def columns(self, view: str) -> LineRegression:
        """The columns of a view."""
        return self._lines_of("columns", view, lambda: self._matrix(view), learning="whole" not in view)

    def rows(self, view: str) -> LineRegression:
        """The rows of a view."""
        return self._lines_of("rows", view, lambda: self.columns(view).M.T, learning="whole" not in view)

    def _matrix(self, view: str) -> PartialMatrix:
        if "whole" in view:
            untied = self.untied_whole if view == "untied whole" else None
            return self.problem.M if untied is None else untied
        return self.block_and_transpose(untied=True)[0] if view == "untied" else self.sketch.M

    @property
    def compared_columns(self) -> LineRegression:
        """The columns by which attempts are compared where too few entries are held out."""
        return self.columns("block" if self.ties is None else "untied")

    def strip(self) -> LineRegression:
        """All rows of the matrix, within the columns of the block."""
        if self.sketch.strip is self.problem.M:
            return self.rows("whole")
        return self._lines_of("strip", "block", lambda: self.sketch.strip.T, learning=False)

    def part(
        self, rows: NDArray[np.intp], columns: NDArray[np.intp], untied: bool
    ) -> tuple[LineRegression, LineRegression]:
        """The columns and the rows of a part of the block."""
        part = rows.tobytes(), columns.tobytes(), untied
        if part != self._part:
            M = take_block(self.block_and_transpose(untied)[0], rows, columns)
            self._lines["columns", "part"] = self.regression(M, learning=True)
            self._lines["rows", "part"] = self.regression(M.T, learning=True)
            self._part = part
        return self._lines["columns", "part"], self._lines["rows", "part"]

    def sample(self, view: str) -> Sample:
        """Enough entries of "block" or "whole" to estimate a scale."""
        if view not in self._samples:
            self._samples[view] = Sample(self.columns(view).M, self.problem.sweep.host)
        return self._samples[view]

    def regression(self, M: PartialMatrix, *, learning: bool) -> LineRegression:
        """The columns of a matrix in the units of the data."""
        sweep = self.problem.sweep if M is self.problem.M else M.open_sweep(self.problem.sweep.host)
        return LineRegression(M, sweep, self.unit, learning=learning)

    def _lines_of(self, side: str, view: str, matrix: Callable[[], PartialMatrix], *, learning: bool) -> LineRegression:
        if (side, view) not in self._lines:
            self._lines[side, view] = self.regression(matrix(), learning=learning)
        return self._lines[side, view]
