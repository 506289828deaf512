"""A path of decreasing shrinkage: how the default method chooses a rank where noisy data have no exact one.

    min over L of  Σ_Ω c²/2 log(1 + ((L - M)_ij / c)²)  +  λ/p Σ_k σ_k(L)^p ,   0 < p ≤ 1 .

With p = 1 the second term is λ times the nuclear norm, which shrinks all singular values alike. With p < 1 large ones
are shrunk less, and small ones vanish. On real tables p = 2/3 predicts held-out entries about as well as the best p.

Both terms are majorised by quadratics that touch them at L = U diag(σ) Vᵀ: the loss by Σ w e² / 2 with the weights
w = 1 / (1 + (e/c)²), and the sum of σ^p / p, for all matrices U Cᵀ, by ½ Σ_k σ_k^(p-2) ‖c_k‖², plus constants, as it is
concave in CᵀC. So every column of M is regressed on U diag(σ_k^(1-p/2)) with the ridge λ, the singular value
decomposition of L is updated, and the rows follow likewise. With fixed weights and λ no half-step increases the
objective. Two changes keep large rows, which would end as outliers, as shrinkage makes their residuals large and their
weights small: λ is multiplied by the mean weight of the line, and c is at least three times the shrinkage of the
entries of any line, as a root mean square.

The problem is not convex, so the result depends on the path:

- λ decreases step by step. In each step a few components are added, the leading singular vectors of the clipped
  residuals; those that the data do not support shrink to zero in the passes that follow.
- c is 2.385 times a scale between those of fitted and of held-out entries (1.4826 times the median of |e|). By the
  first alone, too close a fit would call good entries outliers; by the second, outliers would have too much weight.
- The λ with the smallest mean absolute error of the held-out entries is taken. They may be outliers, but the errors of
  two fits differ by no more than the fits do. If no λ is better than L = 0 by more than chance, L is zero.

The path uses the same block and held-out entries as the other attempts. If it is taken, the last passes run over all
entries, with its λ and c.
"""

import math
from dataclasses import dataclass, field, fields

import numpy as np

from ...linalg.arrays import host, matmul_small, to_device_of
from ...linalg.grassmann import basis, relative_change
from ...linalg.scale import robust_scale
from ...robust.regression import EFFICIENT, SMALLEST
from ...sweeps import Float, Robust, Sweep
from ..base import nothing
from ..factors import trace_row
from ..start import left_singular_vectors
from .views import Views

FIRST = 0.6  # threshold of the first step, relative to the largest singular value
STEP = 0.7  # factor from one step to the next
LEAP, FALLING = 0.4, 0.7  # the same if the rank has not changed but c has fallen by more than the second factor
PASSES = 3  # in each step
NEW = 3  # components added in each step, and one more for each four present
FITTED_POWER = 1 / 3  # of the scale of fitted entries in c; that of held-out entries has the rest
ENTRY = 1.5  # largest initial size of a new component, in thresholds
LARGEST_RANK = 50
PATIENCE = 2  # steps without a better prediction at the end of the path
HOPELESS = 1.005  # an error of more than this times the best ends the path at once
TOLERANT = 3.0  # least c, relative to the largest shrinkage of the entries of a line
NEGLIGIBLE = 0.1  # in thresholds: smaller components are dropped
MAX_LAST = 5  # passes over all entries
SETTLED = 0.1  # these passes end when they change L by less than this share of the error due to noise
MIN_HELD_OUT = 15  # held-out entries by which a path can be chosen
CHANCE = (-3.0, 2.0)  # standard errors by which a path must predict better than a climb; the second if that is sound
TYPICAL = 1.1  # largest median error of a path relative to that of a climb


@dataclass(kw_only=True)
class PathStep:
    """L = U diag(sizes) Vᵀ after a step of the path, and with what it was found."""

    U: Float = field(default_factory=nothing)  # orthonormal, a row for each row of the data
    sizes: Float = field(default_factory=lambda: np.zeros(0))  # singular values, descending
    V: Float = field(default_factory=nothing)  # orthonormal, a row for each column
    threshold: float = FIRST  # relative to `first_size`
    c: float = 0.0
    noise: float = 0.0  # robust scale of the residuals of held-out entries


@dataclass(kw_only=True)
class PathState(PathStep):
    """L on `view` of the data (see `Views`), the position on the path, and the best step so far."""

    view: str = ""  # "block", then "whole" if it is taken; "" before the path
    running: bool = False  # whether the next pass belongs to the path
    finished: str = ""  # why the passes over all entries have ended
    first_size: float = 1.0  # the largest singular value at the start
    passes: int = 0  # in this step
    steps: int = 0
    change: float = math.inf  # relative change of L by the last pass
    last_rank: int = 0  # at the end of the last step
    last_c: float = 0.0
    steps_since_best: int = 0
    closeness: float = 1.0  # c for the residuals of fitted entries, relative to c
    best: PathStep = field(default_factory=PathStep)
    best_error: float = math.inf  # of held-out entries

    @property
    def left(self) -> Float:
        """U diag(sizes)."""
        return self.U * to_device_of(self.sizes, self.U)

    @property
    def right(self) -> Float:
        """V diag(sizes)."""
        return self.V * to_device_of(self.sizes, self.V)

    def keep(self, k: int) -> None:
        """Keep the k largest components."""
        self.U, self.sizes, self.V = self.U[:, :k], self.sizes[:k], self.V[:, :k]


class ShrinkagePath:
    """Advances a `PathState`: passes, steps, and the extension from the block to all entries."""

    def __init__(self, views: Views, *, p: float = 2 / 3) -> None:
        self.problem, self.views, self.p = views.problem, views, p

    def begin(self) -> PathState:
        """L = 0, and the components of the first step."""
        M = self.views.columns("block").M
        U, V = (to_device_of(np.zeros((lines, 0)), M.values) for lines in M.shape)
        state = PathState(view="block", running=True, U=U, V=V)
        self._set_loss_scale(state)
        self._add_components(state)
        return state

    def advance(self, state: PathState) -> dict[str, float]:
        """Run one pass, and end the step or the path when that is due; return the row of the trace."""
        view = state.view
        self.run_pass(state)
        error = self._set_loss_scale(state)
        if view == "whole":
            self._drop_vanished(state)
            state.finished = self._reason_to_end(state)
        elif state.passes >= PASSES or (state.passes > 1 and error > HOPELESS * state.best_error):
            self._drop_vanished(state)
            self._end_step(state, error)
        entries = self.views.columns(view).M.nnz
        return trace_row(state.noise, state.change, gamma=state.c, rank=state.sizes.size, entries=entries)

    def _end_step(self, state: PathState, error: float) -> None:
        """Keep the step if it is the best so far; then lower the threshold, or end the path."""
        if error < (1 - 1e-4) * state.best_error:
            state.best = PathStep(**{part.name: getattr(state, part.name) for part in fields(PathStep)})
            state.best_error, state.steps_since_best = error, 0
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
        self._add_components(state)

    def _reason_to_end(self, state: PathState) -> str:
        """Return why the passes over all entries end; empty if they go on."""
        m, n = self.problem.M.shape
        k, noise = state.sizes.size, state.noise
        if not k:
            return "nothing predicts held-out entries better than zero does: L = 0"
        settled = SETTLED * noise / self.problem.scale * math.sqrt(k * (m + n) / self.problem.M.nnz)
        if state.passes >= MAX_LAST or state.change <= settled:
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
        columns, rows = self.views.columns(state.view), self.views.rows(state.view)
        tau = self._tau(state)
        start = state.V * to_device_of(state.sizes / tau, state.V)
        state.U, state.sizes, state.V = _regress(columns.sweep, state.U, tau, start, options)
        tau = self._tau(state)
        start = state.left / to_device_of(tau, state.U)
        state.V, state.sizes, state.U = _regress(rows.sweep, state.V, tau, start, options)
        state.change = relative_change(*previous, state.left, state.V)

    def _set_loss_scale(self, state: PathState) -> float:
        """Set c, and on the block also the noise by held-out entries; return the mean absolute error of these."""
        scale = robust_scale(self.views.sample(state.view).residual(state.left, state.V)) / state.closeness
        error = math.nan
        if state.view == "block":
            held = self.held_residual(state)
            error, state.noise = float(np.mean(np.abs(held))), robust_scale(held)
            scale = min(scale, state.noise) ** FITTED_POWER * state.noise ** (1 - FITTED_POWER)
        state.c = max(EFFICIENT * scale, TOLERANT * self._largest_shrinkage(state), SMALLEST * self.problem.unit)
        return error

    def _largest_shrinkage(self, state: PathState) -> float:
        """The root mean square shrinkage of the entries of a line, for the line where it is largest.

        A singular value is shrunk by λ σ^(p-1), but by half at most.
        """
        if not state.sizes.size:
            return 0.0
        share = np.minimum(self.ridge(state) / self._density(state) / self._tau(state) ** 2, 1.0) * state.sizes
        by_row, by_column = (
            float(np.linalg.norm(A * to_device_of(share, A), axis=1).max()) for A in (state.U, state.V)
        )
        return max(by_row / math.sqrt(len(state.V)), by_column / math.sqrt(len(state.U)))

    def _density(self, state: PathState) -> float:
        return self.views.columns(state.view).M.density

    def ridge(self, state: PathState) -> float:
        """λ at which components smaller than the threshold vanish, for sizes relative to `first_size`.

        If every entry is observed, a component of size d without λ has the size σ = d / (1 + λ σ^(p-2)), which has a
        solution if λ is at most (1-p)^(1-p) / (2-p)^(2-p) d^(2-p). If only a share of the entries is, λ is multiplied
        by it.
        """
        q = 1 - self.p
        return float(self._density(state) * q**q / (1 + q) ** (1 + q) * state.threshold ** (1 + q))

    def _tau(self, state: PathState) -> Float:
        """σ^(1-p/2), for sizes relative to `first_size`, bounded away from zero."""
        return np.asarray(np.maximum(state.sizes / state.first_size, 1e-9) ** (1 - self.p / 2), dtype=np.float64)

    def _add_components(self, state: PathState) -> None:
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
            state.first_size = float(sizes[0]) / self._density(state)
        # 1 / density if the observed entries have their share of the energy; with few entries that may be too much
        factors = np.minimum(1 / self._density(state), ENTRY * state.threshold * state.first_size / sizes)
        W = sweep.product_transposed(left_over, U)
        W = np.hstack([state.right, W * to_device_of(factors, W)])
        Q, R = basis(np.hstack([state.U, to_device_of(U, state.U)]))
        state.U, state.sizes, state.V = _svd_of_product(Q, matmul_small(W, R.T))

    def _drop_vanished(self, state: PathState) -> None:
        """Drop the components that have vanished."""
        state.keep(int(np.count_nonzero(state.sizes > NEGLIGIBLE * state.threshold * state.first_size)))

    def _return_to_best(self, state: PathState) -> None:
        """Return to the best step, or to L = 0 if it predicts no better by more than chance."""
        vars(state).update(vars(state.best))
        gain = np.abs(self.views.sketch.held.values) - np.abs(self.held_residual(state))
        if not float(np.mean(gain)) > float(np.std(gain)) / math.sqrt(gain.size):
            state.keep(0)
            self._set_loss_scale(state)
        fitted = robust_scale(self.views.sample("block").residual(state.left, state.V))
        state.closeness = min(EFFICIENT * fitted / state.c, 1.0) or 1.0
        state.running = False

    # -- the whole matrix

    def extend(self, state: PathState) -> None:
        """Extend L from the block to all rows and columns."""
        problem, sketch = self.problem, self.views.sketch
        m, n = problem.M.shape
        options = Robust(c=state.c, first_c=max(6 * problem.unit, state.c), n_reweight=5, ridge=self.ridge(state))
        state.view, state.running, state.passes = "whole", True, 0
        if not state.sizes.size:
            state.U, state.V = (to_device_of(np.zeros((lines, 0)), problem.M.values) for lines in (m, n))
            return
        if len(sketch.rows) < m:
            strip = self.views.strip().sweep
            state.V, state.sizes, state.U = _regress(strip, state.V, self._tau(state), None, options)
            state.first_size *= math.sqrt(m / len(sketch.rows))
        if len(sketch.columns) < n:
            state.U, state.sizes, state.V = _regress(problem.sweep, state.U, self._tau(state), None, options)
            state.first_size *= math.sqrt(n / len(sketch.columns))
        state.U, state.V = (to_device_of(A, problem.M.values) for A in (state.U, state.V))


def predicts_better(path: Float, climb: Float, sound: bool) -> bool:
    """Whether these residuals of held-out entries favour a path over a climb.

    A `sound` climb is kept unless the path is better by more than chance, in relative errors too: where many entries
    are predicted closely, L has a rank. Otherwise the path is taken unless it is far worse. As the mean error alone
    would favour fits of errors with structure, the median must be about as small.

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


def _regress(sweep: Sweep, F: Float, tau: Float, start: Float | None, options: Robust) -> tuple[Float, Float, Float]:
    """Regress the columns of a sweep on F diag(τ), F orthonormal; the singular value decomposition of the fit."""
    C = sweep.regress(F * to_device_of(tau, F), start, options).V
    return _svd_of_product(to_device_of(F, C), C * to_device_of(tau, C))


def _svd_of_product(U: Float, W: Float) -> tuple[Float, Float, Float]:
    """The singular value decomposition of U Wᵀ, for orthonormal U: left vectors, singular values, right vectors."""
    Q, R = basis(W)
    P, sizes, Nt = np.linalg.svd(host(R))
    return matmul_small(U, Nt.T), sizes, matmul_small(Q, P)
