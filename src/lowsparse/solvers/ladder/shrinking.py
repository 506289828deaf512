"""A path of decreasing shrinkage: how the default method finds a rank where the data have noise and no exact one.

    min over L of  Σ_Ω c²/2 log(1 + ((L - M)_ij / c)²)  +  λ/p Σ_k σ_k(L)^p ,   0 < p ≤ 1 .

With p = 1 the second term is λ times the nuclear norm, the smallest ½ (‖A‖² + ‖B‖²) with A Bᵀ = L, which shrinks all
singular values alike. With p < 1 large ones are shrunk less, and small ones go. Of real tables p = 2/3 predicts what
was held out about as well as the best p for each of them.

Given L = U diag(σ) Vᵀ, both terms lie below quadratics that touch them there: the loss below Σ w e² / 2 with weights
w = 1 / (1 + (e/c)²), and the sum of σ^p / p, for all matrices U Cᵀ, below ½ Σ_k σ_k^(p-2) ‖c_k‖², plus constants, as it
is concave in CᵀC. So with B = U diag(σ_k^(1-p/2)) every column of M is regressed on B with the ridge λ, the singular
value decomposition of L is renewed, and the rows follow likewise. With fixed weights and λ no half-step increases the
objective.

There is a difficulty. What shrinkage takes off a large row makes its residuals large, its weights small, and the ridge
still stronger against them; in the end the row is taken for an outlier, and lost. L = 0 may even be the best point: for
small c it costs little to call everything an outlier. So λ is multiplied by the mean weight of the line, and c is at
least three times what shrinkage takes off the entries of any line, as a root mean square.

The problem is not convex, so the result depends on the path:

- λ comes down step by step. In each step a few components are added, the leading singular vectors of the residuals,
  clipped; those that the data do not bear out shrink to nothing in the passes that follow.
- c is 2.385 times a scale between those of entries that are fitted and of held-out entries (1.4826 times the median
  of |e|): by the first alone a fit that is too close would call good entries outliers, by the second outliers would
  count for too much.
- λ is the one with the smallest mean absolute error of the held-out entries. They may be outliers, but the errors of
  two fits differ by no more than the fits do. If none is better than L = 0 by more than chance, L is zero.

The path runs over the block that the other attempts run over, and is judged by the same held-out entries. If it is
taken, the last passes run over all entries, with its λ and its c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ...linalg.arrays import host, matmul_small, to_device_of
from ...linalg.grassmann import basis, relative_change
from ...linalg.scale import robust_scale
from ...robust.regression import EFFICIENT, SMALLEST
from ...sweeps import Float, Robust
from ..base import nothing
from ..factors import trace_row
from ..start import left_singular_vectors
from .views import Views

__all__ = ["FEWEST", "Path", "PathState", "predicts_better"]

FIRST = 0.6  # threshold of the first step, as a share of the largest singular value;
STEP = 0.7  # factor from one step to the next,
LEAP = 0.4  # and where the last step left the rank as it was but
FALLING = 0.7  # lowered the errors to less than this: what is left is bias
PASSES = 3  # in each step
NEW = 3  # components added in each step, and one more for each four that are there
BETWEEN = 1 / 3  # power of the scale of fitted entries in c; that of held-out entries has the rest
ENTRY = 1.5  # thresholds: the largest initial size of a new component
LARGEST_RANK = 50
PATIENCE = 2  # steps without a better prediction at the end of the path;
HOPELESS = 1.005  # an error of more than this times the best ends it at once
TOLERANT = 3.0  # c over the largest amount that shrinkage takes off
NEGLIGIBLE = 0.1  # of the threshold: smaller components are on their way out, and dropped
LAST = 5  # most passes over all entries
SETTLED = 0.1  # of the error that the noise makes: these passes end when they change L less
FEWEST = 15  # held-out entries by which a path can be chosen
CHANCE = (-3.0, 2.0)  # standard errors by which a path must predict better than a climb; the second if it is sound
TYPICAL = 1.1  # largest median error of a path over that of a climb


@dataclass(kw_only=True)
class PathState:
    """L = U diag(sizes) Vᵀ on `data` (see `Views`), the position on the path, and its best step."""

    data: str = ""  # "block", then "whole" if it is taken; "" before the path
    running: bool = False  # the next pass belongs to the path
    finished: str = ""  # why the passes over all entries have ended
    U: Float = field(default_factory=nothing)  # orthonormal, a row for each row of the data
    sizes: Float = field(default_factory=lambda: np.zeros(0))  # descending
    V: Float = field(default_factory=nothing)  # orthonormal, a row for each column
    unit: float = 1.0  # of sizes and of the threshold: the largest singular value at the start
    threshold: float = FIRST
    c: float = 0.0
    passes: int = 0  # in this step
    steps: int = 0
    change: float = math.inf  # of L by the last pass, relatively
    last_rank: int = 0  # at the end of the last step
    last_c: float = 0.0
    steps_since_best: int = 0
    noise: float = 0.0  # scale of the residuals of held-out entries
    closeness: float = 1.0  # 2.385 times the scale of the residuals of fitted entries, over c
    # the best step
    best_error: float = math.inf  # of held-out entries
    best_threshold: float = FIRST
    best_c: float = 0.0
    best_noise: float = 0.0
    best_U: Float = field(default_factory=nothing)
    best_sizes: Float = field(default_factory=lambda: np.zeros(0))
    best_V: Float = field(default_factory=nothing)

    @property
    def left(self) -> Float:
        """U diag(sizes)."""
        found: Float = self.U * to_device_of(self.sizes, self.U)
        return found


class Path:
    """Advances a `PathState`: passes, steps, and the extension from the block to all entries."""

    def __init__(self, views: Views, *, p: float = 2 / 3) -> None:
        self.problem, self.views, self.p = views.problem, views, p

    def begin(self) -> PathState:
        """L = 0, and the components of the first step."""
        M = self.views.columns("block").M
        U, V = (to_device_of(np.zeros((lines, 0)), M.values) for lines in M.shape)
        state = PathState(data="block", running=True, U=U, V=V)
        self._set_width(state)
        self._grow(state)
        return state

    def advance(self, state: PathState) -> dict[str, float]:
        """Run one pass, and end the step or the path if that is due; return the row of the trace."""
        data = state.data
        self.run_pass(state)
        error = self._set_width(state)
        if data == "whole":
            self._drop(state)
            state.finished = self._reason_to_end(state)
        elif state.passes >= PASSES or (state.passes > 1 and error > HOPELESS * state.best_error):
            self._drop(state)
            self._end_step(state, error)
        entries = self.views.columns(data).M.nnz
        return trace_row(state.noise, state.change, gamma=state.c, rank=state.sizes.size, entries=entries)

    def _end_step(self, state: PathState, error: float) -> None:
        """Remember the best step so far; then lower the threshold, or end the path."""
        if error < (1 - 1e-4) * state.best_error:
            state.best_error, state.best_threshold, state.steps_since_best = error, state.threshold, 0
            state.best_c, state.best_noise = state.c, state.noise
            state.best_U, state.best_sizes, state.best_V = state.U, state.sizes, state.V
        else:
            state.steps_since_best += 1
        worse = state.steps_since_best >= PATIENCE or not error <= HOPELESS * state.best_error
        if worse or state.threshold <= SMALLEST or state.c <= SMALLEST * self.problem.unit:
            self._return_to_best(state)
            return
        k = state.sizes.size
        biased = k == state.last_rank and state.c < FALLING * state.last_c
        state.threshold = max(state.threshold * (LEAP if biased else STEP), SMALLEST)
        state.last_rank, state.last_c, state.steps, state.passes = k, state.c, state.steps + 1, 0
        self._grow(state)

    def _reason_to_end(self, state: PathState) -> str:
        """Return why the passes over all entries end; empty if they go on."""
        m, n = self.problem.M.shape
        k, noise = state.sizes.size, state.noise
        if not k:
            return "nothing predicts entries kept aside better than zero does: L = 0"
        settled = SETTLED * noise / self.problem.scale * math.sqrt(k * (m + n) / self.problem.M.nnz)
        if state.passes >= LAST or state.change <= settled:
            return f"L changes by {state.change:.1e} relatively; the noise of the inliers is {noise:.2g}"
        return ""

    def held_residual(self, state: PathState) -> Float:
        """L - x at the held-out entries."""
        return self.views.sketch.held_residual(state.left, state.V)

    # -- a step

    def run_pass(self, state: PathState) -> None:
        """Regress the columns, then the rows."""
        state.passes += 1
        if not state.sizes.size:
            state.change = 0.0
            return
        previous = state.left, state.V
        options = Robust(c=state.c, ridge=self.ridge(state))
        tau = to_device_of(self._tau(state), state.U)
        start = state.V * (to_device_of(state.sizes, state.V) / tau)
        C = self.views.columns(state.data).sweep.regress(state.U * tau, start, options).V
        state.U, state.sizes, state.V = svd_of_product(state.U, C * tau)
        tau = to_device_of(self._tau(state), state.V)
        D = self.views.rows(state.data).sweep.regress(state.V * tau, state.left / tau, options).V
        state.V, state.sizes, state.U = svd_of_product(state.V, D * tau)
        state.change = relative_change(*previous, state.left, state.V)

    def _set_width(self, state: PathState) -> float:
        """Set c, and on the block also the noise by held-out entries; return the mean absolute error of these."""
        scale = robust_scale(self.views.sample(state.data).residual(state.left, state.V)) / state.closeness
        error = math.nan
        if state.data == "block":
            held = self.held_residual(state)
            error, state.noise = float(np.mean(np.abs(held))), robust_scale(held)
            scale = min(scale, state.noise) ** BETWEEN * state.noise ** (1 - BETWEEN)
        state.c = max(EFFICIENT * scale, TOLERANT * self._largest_shrinkage(state), SMALLEST * self.problem.unit)
        return error

    def _largest_shrinkage(self, state: PathState) -> float:
        """The root mean square of what shrinkage takes off the entries of a line, for the line where that is largest.

        Of a size d it takes λ σ^(p-1), but not more than half.
        """
        if not state.sizes.size:
            return 0.0
        share = np.minimum(self.ridge(state) / self._density(state) / self._tau(state) ** 2, 1.0) * state.sizes
        by_row, by_column = (
            float(np.linalg.norm(A * to_device_of(share, A), axis=1).max()) for A in (state.U, state.V)
        )
        return max(by_row / math.sqrt(len(state.V)), by_column / math.sqrt(len(state.U)))

    def _density(self, state: PathState) -> float:
        M = self.views.columns(state.data).M
        return M.nnz / (M.shape[0] * M.shape[1])

    def ridge(self, state: PathState) -> float:
        """λ, in units: a component vanishes if without λ its size d were less than the threshold.

        Its size is σ = d / (1 + λ σ^(p-2)) if every entry is observed. That has a solution if λ is at most
        (1-p)^(1-p) / (2-p)^(2-p) d^(2-p). Of normal equations over a share of the entries, λ is that share.
        """
        q = 1 - self.p
        return float(self._density(state) * q**q / (1 + q) ** (1 + q) * state.threshold ** (1 + q))

    def _tau(self, state: PathState) -> Float:
        """σ^(1-p/2), in units, bounded away from zero."""
        return np.asarray(np.maximum(state.sizes / state.unit, 1e-9) ** (1 - self.p / 2), dtype=np.float64)

    def _grow(self, state: PathState) -> None:
        """Add the leading singular vectors of the residuals, clipped at their scale."""
        columns = self.views.columns("block")
        M, sweep, k = columns.M, columns.sweep, state.sizes.size
        allowed = min(self.problem.rank, LARGEST_RANK, max(1, M.nnz // sum(M.shape)))
        more = min(NEW + k // 4, allowed - k)
        if more < 1:
            return
        clip = state.c / EFFICIENT
        values = -sweep.residual(state.left, state.V) if k else M.values
        left_over = np.clip(values, -clip, clip).astype(M.dtype)
        rng = np.random.default_rng([self.problem.seed, 2, state.steps])
        clipped = M.with_values(left_over).open_sweep(sweep.host)
        U, sizes = left_singular_vectors(clipped, M.shape[0], more, rng, max_passes=4)
        more = int(np.count_nonzero(sizes > 0))  # they descend
        if not more:
            return
        U, sizes = U[:, :more], sizes[:more]
        if not state.steps:
            state.unit = float(sizes[0]) / self._density(state)
        # as if the entries had their share of the energy; with few entries that may be too much
        shares = np.minimum(1 / self._density(state), ENTRY * state.threshold * state.unit / sizes)
        W = sweep.product_transposed(left_over, U)
        W = np.hstack([state.V * to_device_of(state.sizes, state.V), W * to_device_of(shares, W)])
        Q, R = basis(np.hstack([state.U, to_device_of(U, state.U)]))
        state.U, state.sizes, state.V = svd_of_product(Q, matmul_small(W, R.T))

    def _drop(self, state: PathState) -> None:
        """Drop the components that have vanished."""
        kept = int(np.count_nonzero(state.sizes > NEGLIGIBLE * state.threshold * state.unit))  # they descend
        state.U, state.sizes, state.V = state.U[:, :kept], state.sizes[:kept], state.V[:, :kept]

    def _return_to_best(self, state: PathState) -> None:
        """Return to the best step, or to L = 0 if it predicts no better by more than chance."""
        state.U, state.sizes, state.V = state.best_U, state.best_sizes, state.best_V
        state.threshold, state.c, state.noise = state.best_threshold, state.best_c, state.best_noise
        gain = np.abs(self.views.sketch.held_values) - np.abs(self.held_residual(state))
        if not float(np.mean(gain)) > float(np.std(gain)) / math.sqrt(gain.size):
            state.U, state.sizes, state.V = state.U[:, :0], state.sizes[:0], state.V[:, :0]
            self._set_width(state)
        fitted = robust_scale(self.views.sample("block").residual(state.left, state.V))
        state.closeness = min(EFFICIENT * fitted / state.c, 1.0) or 1.0
        state.running = False

    # -- the whole matrix

    def extend(self, state: PathState) -> None:
        """Extend L from the block to all rows and columns."""
        problem, sketch = self.problem, self.views.sketch
        m, n = problem.M.shape
        options = Robust(c=state.c, first_c=max(6 * problem.unit, state.c), turns=5, ridge=self.ridge(state))
        state.data, state.running, state.passes = "whole", True, 0
        if not state.sizes.size:
            state.U, state.V = (to_device_of(np.zeros((lines, 0)), problem.M.values) for lines in (m, n))
            return
        if len(sketch.rows) < m:
            tau = to_device_of(self._tau(state), state.V)
            D = self.views.strip().sweep.regress(state.V * tau, None, options).V
            state.V, state.sizes, state.U = svd_of_product(to_device_of(state.V, D), D * to_device_of(tau, D))
            state.unit *= math.sqrt(m / len(sketch.rows))
        if len(sketch.columns) < n:
            tau = to_device_of(self._tau(state), state.U)
            C = problem.sweep.regress(state.U * tau, None, options).V
            state.U, state.sizes, state.V = svd_of_product(to_device_of(state.U, C), C * to_device_of(tau, C))
            state.unit *= math.sqrt(n / len(sketch.columns))
        state.U, state.V = (to_device_of(A, problem.M.values) for A in (state.U, state.V))


def predicts_better(path: Float, climb: Float, sound: bool) -> bool:
    """Whether these residuals of held-out entries speak for a path rather than for a climb.

    A climb that is `sound` is kept unless the path is better by more than chance, and relatively too: where many
    entries are predicted closely L has a rank. Otherwise the path is taken unless it is far worse. By the mean error
    alone errors with structure would be predicted, at the cost of all other entries: the median must be about as small.

    >>> e = np.random.default_rng(3).standard_normal(1000)
    >>> predicts_better(0.9 * e, e, True), predicts_better(1.05 * e, e, True), predicts_better(1.2 * e, e, False)
    (True, False, False)
    """
    own, other = np.abs(path), np.abs(climb)
    chance = float(np.std(other - own)) / math.sqrt(own.size)
    better = float(np.mean(other - own)) >= CHANCE[sound] * chance
    if sound:
        close = 1e-6 * float(np.median(other)) + np.finfo(float).tiny
        better = better and float(np.mean(np.log((own + close) / (other + close)))) <= 0
    return better and float(np.median(own)) <= TYPICAL * float(np.median(other))


def svd_of_product(U: Float, W: Float) -> tuple[Float, Float, Float]:
    """The singular value decomposition of U Wᵀ, for orthonormal U: left vectors, singular values, right vectors."""
    Q, R = basis(W)
    P, sizes, Nt = np.linalg.svd(host(R))
    return matmul_small(U, Nt.T), sizes, matmul_small(Q, P)
