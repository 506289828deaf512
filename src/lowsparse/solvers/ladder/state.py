"""The state of the default method: the L of the current attempt, and what earlier attempts have found."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ...entries.protocol import PartialMatrix
from ...linalg.arrays import matmul_small
from ...linalg.grassmann import basis
from ...linalg.scale import closest_scale, robust_scale
from ...robust.consensus import Lines
from ...robust.regression import EFFICIENT, SMALLEST, LineRegression
from ...sweeps import Float
from ..base import Problem, State, nothing
from .shrinking import PathState
from .views import Views

SLOW = 2  # the attempt that climbs slowly; those with larger numbers grow from a block


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What an attempt has found: L = U Vᵀ on the block, and how far it can be trusted."""

    U: Float = field(default_factory=nothing)
    V: Float = field(default_factory=nothing)
    noise: float = np.inf
    max_c: float = np.inf
    mostly_wrong: bool = False
    undetermined: float = 0.0
    unexplained: float = 0.0  # share of the lines that it does not explain,
    outliers: float = 0.0  # and of the entries
    rank_too_high: bool = False  # perhaps: an exact fit with a component for few rows or columns
    plausible: bool = False  # it predicts held-out entries, and ignores nothing
    residuals: Float = field(default_factory=lambda: np.zeros(0))  # of the entries by which attempts are compared


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a search has found: L = U Vᵀ of all data, and fields of its state that say how far it can be trusted."""

    U: Float = field(default_factory=nothing)
    V: Float = field(default_factory=nothing)
    noise: float = np.inf
    finished: str = ""
    advice: str = ""
    supported: bool = False
    undetermined: float = 0.0
    held_out: float = np.inf
    next_noise: float = 0.0
    repeated: float = 0.0
    ambiguous: Lines = ((), ())


@dataclass(kw_only=True)
class LadderState(State):
    """L = U Vᵀ on `view` of the data (see `Views`), and what earlier attempts have found."""

    scratch: ClassVar[tuple[str, ...]] = ("views",)

    views: Views
    view: str = "block"
    untied: bool = False  # suspicious ties are left out;
    repeated: float = 0.0  # they are this share of the entries
    U: Float = field(default_factory=nothing)  # a row for each row of the data
    V: Float = field(default_factory=nothing)  # a row for each column
    c: float = 0.0  # scale of the Cauchy loss
    max_c: float = np.inf  # bound on c, where a large part was explained this well
    noise: float = np.inf  # robust scale of the residuals:
    mostly_wrong: bool = False  # of the closest fifth, as more than half of the entries may be wrong;
    wrong_tried: bool = False  # this attempt has tried that
    asked: int = 0  # the rank that was asked for; 0 if it is to be chosen
    target: int = 0  # rank to climb to
    attempt: int = 0
    made: tuple[int, ...] = ()  # attempts so far, this one included
    block_factor: float = 1.0  # size of the block relative to the size that is needed
    passes: int = 0  # at this rank
    refits: int = 0  # times that poorly explained lines were regressed from scratch
    improved: float = np.inf  # lines that the last refit has improved
    additions: int = 0  # of components that only some lines have, in this attempt
    shrinks: bool = False  # whether passes shrink coefficients by the noise
    relaxation: float = 0.0  # ω - 1: by how much the next steps exceed the regressions
    change: float = np.inf  # relative change of L by the last pass
    typical_change: float = np.inf  # the same without the few rows that change most
    decay: float = 0.0  # typical_change relative to the one before
    recent: tuple[float, ...] = ()  # the noise after the last passes
    # growth from a part of the data
    part_rows: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    part_columns: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    part_noise: float = np.inf  # the least noise of a part with enough entries
    rounds: int = 0  # of growth
    caution: int = 2  # see `grow_part`
    # joint steps in both factors
    joint_steps: int = 0  # still to be made
    joint_runs: int = 0  # series of them in this attempt
    damping: float = 0.0
    undetermined: float = 0.0  # share of L that is not determined, rows and columns with few entries not counted
    # attempts that have ended
    scores: tuple[float, ...] = ()
    grown: int = 0  # number of those that grew L
    best: Attempt = field(default_factory=Attempt)
    rival: Attempt = field(default_factory=Attempt)  # the close fit that explains most entries beyond its parameters
    agreed: bool = False  # another attempt found the same as the best;
    closely: int = 0  # so many are closer to it than noise lets any fit be to the truth
    held_out: float = np.inf  # robust scale of the residuals of held-out entries at the end
    next_noise: float = 0.0  # the noise with one rank more, if that is far less
    # choice of the rank
    choosing: bool = False
    held_logs: Float = field(default_factory=nothing)  # log |e| of held-out entries, a row for each rank so far
    clear_cut: bool = False  # one component less predicts far worse
    path: PathState = field(default_factory=PathState)  # of decreasing shrinkage
    # further searches (see `second`)
    supported: bool = False  # what no other attempt agrees with has enough entries that speak for it
    search: int = 0  # 1 is the second, 2 the third;
    first: Answer = field(default_factory=Answer)  # the answer of the searches before
    ambiguous: Lines = ((), ())  # rows and columns that can be fitted in two ways

    @property
    def problem(self) -> Problem:
        """The problem that is solved."""
        return self.views.problem

    @property
    def unit(self) -> float:
        """The median magnitude of the entries."""
        return self.views.unit

    @property
    def rank(self) -> int:
        """The rank of the current L."""
        return int(self.U.shape[1])

    @property
    def lines(self) -> tuple[LineRegression, LineRegression]:
        """The columns and the rows that passes run over."""
        if self.view == "part":
            return self.views.part(self.part_rows, self.part_columns, self.untied)
        return self.views.columns(self._view), self.views.rows(self._view)

    @property
    def _view(self) -> str:
        """The view, by its name among `views`."""
        return {"block": "untied", "whole": "untied whole"}[self.view] if self.untied else self.view

    @property
    def matrix(self) -> PartialMatrix:
        """The matrix that passes run over; its transpose, which takes time, is not made for this."""
        return self.lines[0].M if self.view == "part" else self.views.columns(self._view).M

    def held_residual(self) -> Float:
        """L - x at the held-out entries of the block."""
        return self.views.sketch.held_residual(self.U, self.V)

    def update_views(self) -> None:
        """Use the block of this state: one that was resumed has views of the first block."""
        if self.views.block_factor != self.block_factor:
            self.views = self.views.with_block_factor(self.block_factor)

    def is_exact(self) -> bool:
        """Whether half of the entries, or the closest fifth, are fitted to rounding, or to what `tol` asks for."""
        return self.noise <= max(0.2 * self.problem.tol, 1e-12) * self.unit

    def scale(self, e: Float) -> float:
        """The robust scale of these residuals."""
        return closest_scale(e) if self.mostly_wrong else robust_scale(e)

    def loss_scale(self, e: Float) -> float:
        """The c for these residuals."""
        return max(EFFICIENT * robust_scale(e), SMALLEST * self.unit)

    def restart_count(self) -> None:
        """Count passes, and follow the noise, from here."""
        self.passes, self.recent, self.relaxation = 0, (), 0.0


def parameter_count(M: PartialMatrix, rank: int) -> int:
    """The number of free parameters of a matrix of this shape and rank."""
    return rank * (sum(M.shape) - rank)


def orthonormalise(A: Float, B: Float) -> tuple[Float, Float]:
    """Q and C with Q Cᵀ = A Bᵀ and an orthonormal Q."""
    Q, R = basis(A)
    return Q, matmul_small(B, R.T)


def log_error(e: Float, unit: float) -> Float:
    """log |e|, in units, bounded from below where fits are exact."""
    return np.asarray(np.log(np.abs(e) / unit + 1e-7), dtype=np.float64)
