"""A subspace followed column by column, from columns with holes and gross errors: the tracker of GRASTA.

A column v, known on the rows Ω, is first regressed on the subspace U (m x r, orthonormal) by ADMM,

    min ‖s‖₁  subject to  U_Ω w + s = v,

which gives its coefficients w and the multipliers y in [-1, 1]: minus the sign of what does not fit. Then U moves. The
gradient of the Lagrangian with respect to U is Γ wᵀ, Γ = y - U U_Ωᵀ y (y padded with zeros). It has rank one, so a step
by the angle t along the geodesic of the Grassmann manifold costs O(mr):

    U⁺ = U + ((cos t - 1) U ŵ - sin t Γ̂) ŵᵀ,   ŵ = w/‖w‖, Γ̂ = Γ/‖Γ‖.

The angle is t = C 2^-ℓ ‖Γ‖‖w‖ / (1 + μ), at most π/3. μ grows by a sigmoid of -⟨Γ̂ŵᵀ, the one before⟩: where successive
gradients disagree steps become shorter, where they agree, longer. Beyond μ_max the level ℓ is one higher, at μ_min one
lower. C makes the first step as long as it can be. All of this is free of the unit of the data.

J. He, L. Balzano, A. Szlam: Incremental gradient on the Grassmannian for online foreground and background separation in
subsampled video. CVPR 2012. J. He, L. Balzano, J. C. S. Lui: Online robust subspace tracking from partial information.
arXiv:1109.3827.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..linalg.grassmann import Float, qf
from ..sweeps import native
from ..sweeps.reference import cholesky, cholesky_solve

__all__ = ["Rules", "Tracker", "least_absolute"]

_track: Any = getattr(getattr(native, "_core", None), "track", None)  # compiled, if it is there

SIGMOID = 0.1  # ω: the sigmoid of x is tanh(x / 2ω)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How a `Tracker` regresses a column, and how it chooses the length of a step."""

    rho: float = 2.0  # ρ: growth of the penalty τ from one ADMM iteration to the next; the smaller, the more exact
    turns_min: int = 25  # ADMM iterations of a column below level 4; 2, 4, 8 times as many from levels 4, 7, 10 on,
    turns_max: int = 40  # and these from level 14 on, but never more
    tolerance: float = 1e-12  # ADMM ends when ‖U_Ω w + s - v‖ is at most this times ‖v‖
    mu_min: float = 1.0
    mu_max: float = 30.0  # the larger, the longer it stays on a level
    levels: int = 30  # the highest: no step is shorter than 2^-levels of the first ones
    step: float | None = None  # a constant angle for all steps, to follow what keeps moving; None: by μ and ℓ

    def __post_init__(self) -> None:
        """Raise if a number is out of its range."""
        least, most, levels = (
            count if isinstance(count, int | np.integer) else math.nan
            for count in (self.turns_min, self.turns_max, self.levels)
        )
        for name, right, what in (
            ("rho", 1 < self.rho < np.inf, "more than 1"),
            ("turns_min", least >= 1, "a whole number of 1 or more"),
            ("turns_max", most >= least, "a whole number, turns_min or more"),
            ("tolerance", 0 <= self.tolerance < 1, "in [0, 1)"),
            ("mu_min", 0 < self.mu_min < np.inf, "positive"),
            ("mu_max", self.mu_min + 2 <= self.mu_max < np.inf, "mu_min + 2 or more"),
            ("levels", 0 <= levels <= 1000, "a whole number from 0 to 1000"),
            ("step", self.step is None or 0 < self.step <= math.pi / 2, "an angle in (0, π/2], or None"),
        ):
            if not right:
                raise ValueError(f"{name} must be {what}, not {getattr(self, name)!r}")

    def turns(self, level: int) -> int:
        """ADMM iterations of a column on this level.

        >>> [Rules(turns_min=5, turns_max=60).turns(level) for level in (0, 4, 7, 10, 14)]
        [5, 10, 20, 40, 60]
        """
        times = 1 if level < 4 else 2 if level < 7 else 4 if level < 10 else 8
        return self.turns_max if level >= 14 else min(times * self.turns_min, self.turns_max)


class Absolute(NamedTuple):
    """A least-absolute-deviations fit: B w = v but for few rows."""

    w: Float
    y: Float  # multipliers: minus the sign of v - B w where that is not zero
    turns: int  # ADMM iterations; 0 if the least-squares fit they begin with is exact


def least_absolute(B: Float, v: Float, *, rho: float, turns: int, tolerance: float) -> Absolute:
    """Minimise ‖v - B w‖₁ by ADMM on s = v - B w, s and y starting from zero.

    With σ = 1/τ, from ‖v‖/1.25 and shrunk by `rho` each time: w = (BᵀB)⁻¹ Bᵀ(v - s - σy), q = v - B w - σy,
    s = soft(q, σ), y⁺ = y + (B w + s - v)/σ = -clip(q/σ, ±1). As s = q + σy⁺, the next right-hand side is
    B w + σy - (σ + σ⁺)y⁺, and s need not be held. Directions that B does not determine get w = 0.

    >>> least_absolute(np.ones((3, 1)), np.array([1.0, 1.0, 7.0]), rho=1.2, turns=200, tolerance=1e-12).w.round(9)
    array([1.])
    """
    size = math.sqrt(float(v @ v))
    w, y, d = np.zeros(B.shape[1]), np.zeros(len(v)), v
    if not size > 0.0:
        return Absolute(w, y, 0)
    P = cholesky_solve(cholesky((B.T @ B)[None]), np.eye(len(w))) @ B.T
    sigma, turn = size / 1.25, 0
    while turn < turns and sigma > 1e-16 * size:
        w = w + P @ d
        held = sigma * y
        new = -np.clip((v - B @ w - held) / sigma, -1.0, 1.0)
        h = sigma * float(np.linalg.norm(new - y))
        following = sigma / rho
        d = held - (sigma + following) * new
        y, sigma, turn = new, following, turn + 1
        if h <= tolerance * size:
            return Absolute(w, y, 0 if turn == 1 else turn)
    return Absolute(w, y, turn)


class Tracker:
    """A subspace, and what is remembered of the steps it has made.

    `U` is m x r; it is made orthonormal. Columns come one at a time (`update`) or many at once (`run`). `save` gives
    all of it as arrays and numbers, and `load` takes them.

    >>> rng = np.random.default_rng(2)
    >>> truth, tracker = qf(rng.standard_normal((30, 2))), Tracker(rng.standard_normal((30, 2)), Rules(mu_max=15.0))
    >>> for _ in range(600):
    ...     rows = rng.permutation(30)[:20]  # the others are not known
    ...     v = truth[rows] @ rng.standard_normal(2)
    ...     v[:2] += 10.0  # wrong
    ...     w = tracker.update(rows, v)
    >>> bool(np.linalg.norm(truth - tracker.U @ (tracker.U.T @ truth)) < 1e-3)
    True
    """

    def __init__(self, U: ArrayLike, rules: Rules | None = None, *, compiled: bool = True) -> None:
        """Begin at U; with `compiled` false in plain NumPy, which else runs only where there is no compiled core."""
        self.U: Float = qf(np.asarray(U, dtype=np.float64))
        self.rules = Rules() if rules is None else rules
        self.compiled = compiled and _track is not None
        m, r = self.U.shape
        # of the last step: its direction outside U, of length 1, and inside
        self.gamma, self.w = np.zeros(m), np.zeros(r)
        self.mu: float = self.rules.mu_min
        self.level = 0
        self.scale = 0.0  # C; 0 before the first step

    # ------------------------------------------------------------------ columns

    def update(self, rows: ArrayLike, values: ArrayLike) -> Float:
        """Take one column in: its values in these rows, each named once. Gives back its coefficients on U as it was.

        A column with fewer than r entries, or one that U explains already, changes nothing.
        """
        rows, values = np.asarray(rows), np.asarray(values)
        w: Float = self.run(np.array([0, len(rows)]), rows, values)[0]
        return w

    def run(self, indptr: ArrayLike, rows: ArrayLike, values: ArrayLike, order: ArrayLike | None = None) -> Float:
        """Take columns in, in this order (None: as they come); the coefficients of each on U as it was, a row each.

        Column j has the entries indptr[j] to indptr[j + 1] of `rows` and `values`.
        """
        return self._pass(self.rules, indptr, rows, values, order, learn=True)

    def fit(
        self, indptr: ArrayLike, rows: ArrayLike, values: ArrayLike, *, rho: float = 1.05, turns: int = 800
    ) -> Float:
        """The coefficients of columns on U, a row each; U stays as it is.

        The closer ρ is to 1, the closer they are to the best in the ℓ1 sense, and the more iterations it takes.
        """
        careful = replace(self.rules, rho=rho, turns_min=turns, turns_max=turns)
        return self._pass(careful, indptr, rows, values, None, learn=False)

    def _pass(
        self,
        rules: Rules,
        indptr: ArrayLike,
        rows: ArrayLike,
        values: ArrayLike,
        order: ArrayLike | None,
        *,
        learn: bool,
    ) -> Float:
        indptr, rows, values = np.ascontiguousarray(indptr), np.ascontiguousarray(rows), np.ascontiguousarray(values)
        if indptr.dtype.kind not in "iu" or (rows.size and rows.dtype.kind not in "iu"):
            raise TypeError("rows and indptr must be whole numbers")
        if values.size and values.dtype.kind not in "fiu":
            raise TypeError(f"values must be real numbers, not {values.dtype}")
        if rows.size and not 0 <= rows.min() <= rows.max() < len(self.U):
            raise ValueError(f"rows must be from 0 to {len(self.U) - 1}, as U has {len(self.U)} rows")
        indptr, rows = indptr.astype(np.int64, copy=False), rows.astype(np.int32, copy=False)
        if values.dtype != np.float32:
            values = values.astype(np.float64, copy=False)
        n = len(indptr) - 1
        order = np.arange(n, dtype=np.int64) if order is None else np.ascontiguousarray(order, dtype=np.int64)
        _check(self.U.shape[0], indptr, rows, values, order)
        if self.compiled:
            return self._compiled_pass(rules, indptr, rows, values, order, learn)
        W = np.zeros((len(order), self.U.shape[1]))
        for k, j in enumerate(order):
            part = slice(indptr[j], indptr[j + 1])
            W[k] = self._column(rules, rows[part], values[part].astype(np.float64), learn)
        return W

    # ------------------------------------------------------------------ one step

    def _column(self, rules: Rules, rows: NDArray[np.int32], v: Float, learn: bool) -> Float:
        U, r = self.U, self.U.shape[1]
        B = U[rows]
        turns = rules.turns(self.level)
        found = least_absolute(B, v, rho=rules.rho, turns=turns, tolerance=rules.tolerance)
        if not learn or not found.turns or len(v) < r:
            return found.w
        gamma = -U @ (B.T @ found.y)
        gamma[rows] += found.y
        outside, inside = float(np.linalg.norm(gamma)), float(np.linalg.norm(found.w))
        if not (outside > 1e-12 and inside > 0.0):  # nothing is left but rounding
            return found.w
        gamma, w, slope = gamma / outside, found.w / inside, outside * inside
        if not self.scale > 0.0:
            self.scale = 0.5 * math.pi * (1 + rules.mu_min) / slope
        t = self._angle(rules, slope, float(self.gamma @ gamma) * float(self.w @ w))
        self.gamma, self.w = gamma, w
        cosine = -2 * math.sin(t / 2) ** 2  # less 1
        self.U = U + np.outer(cosine * (U @ w) - math.sin(t) * gamma, w)
        return found.w

    def _angle(self, rules: Rules, slope: float, agreement: float) -> float:
        """How far to go, and the next μ and level."""
        self.mu = max(self.mu + math.tanh(-agreement / (2 * SIGMOID)), rules.mu_min)
        if rules.step is not None:
            return rules.step
        t = min(math.ldexp(self.scale, -self.level) * slope / (1 + self.mu), math.pi / 3)
        if self.mu <= rules.mu_min:
            self.level -= self.level > 1
            self.mu = rules.mu_min + 2
        elif self.mu > rules.mu_max:
            if self.level < rules.levels:
                self.level += 1
                self.mu = (rules.mu_max - 1) / 2
            else:
                self.mu = rules.mu_max
        return t

    def _compiled_pass(
        self,
        rules: Rules,
        indptr: NDArray[np.int64],
        rows: NDArray[np.int32],
        values: NDArray[Any],
        order: NDArray[np.int64],
        learn: bool,
    ) -> Float:
        # in copies: an interruption leaves all as it was
        U, gamma, w = self.U.copy(), self.gamma.copy(), self.w.copy()
        W: Float
        W, mu, level, scale = _track(
            indptr,
            rows,
            values,
            order,
            U,
            gamma,
            w,
            self.mu,
            self.level,
            self.scale,
            rules.rho,
            rules.turns_min,
            rules.turns_max,
            rules.tolerance,
            rules.mu_min,
            rules.mu_max,
            rules.levels,
            rules.step or 0.0,
            learn,
            native.instruction_set(),
        )
        if learn:
            self.U, self.gamma, self.w = U, gamma, w
            self.mu, self.level, self.scale = mu, level, scale
        return W

    # ------------------------------------------------------------------ to and from a file

    def save(self) -> dict[str, Any]:
        """Everything the next step depends on, as arrays and numbers.

        >>> sorted(Tracker(np.eye(3, 1)).save())[:4]
        ['U', 'gamma', 'level', 'levels']
        """
        own = {name: getattr(self, name) for name in ("U", "gamma", "w", "mu", "level", "scale")}
        return {**own, **{name: value for name, value in asdict(self.rules).items() if value is not None}}

    @classmethod
    def load(cls, saved: Mapping[str, Any], *, compiled: bool = True) -> Self:
        """The tracker that was saved; 0-dimensional arrays will do for numbers, so an npz file will."""
        numbers = {name: np.asarray(value).item() for name, value in saved.items() if name not in ("U", "gamma", "w")}
        memory = {name: numbers.pop(name) for name in ("mu", "level", "scale")}
        tracker = cls(np.asarray(saved["U"]), Rules(**numbers), compiled=compiled)
        arrays = {name: np.array(saved[name], dtype=np.float64) for name in ("U", "gamma", "w")}
        for name, value in {**memory, **arrays}.items():
            setattr(tracker, name, value)
        return tracker


def _check(
    m: int, indptr: NDArray[np.int64], rows: NDArray[np.int32], values: NDArray[Any], order: NDArray[np.int64]
) -> None:
    """Raise unless every entry can be found where it is said to be."""
    if indptr.ndim != 1 or not indptr.size or rows.ndim != 1 or rows.shape != values.shape:
        raise ValueError("rows and values must be vectors of the same length, and indptr one of the columns' bounds")
    if indptr[0] < 0 or (indptr[1:] < indptr[:-1]).any() or indptr[-1] > rows.size:
        raise ValueError(f"indptr must ascend from 0 to at most the number of entries, {rows.size}")
    columns = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    named = rows[indptr[0] : indptr[-1]].astype(np.int64) + m * columns
    if not (np.diff(named) > 0).all() and np.unique(named).size < named.size:
        raise ValueError("a column names a row twice")
    if order.ndim != 1 or (order.size and not 0 <= order.min() <= order.max() < indptr.size - 1):
        raise ValueError(f"order must name columns, from 0 to {indptr.size - 2}")
    if not np.isfinite(values).all():
        raise ValueError("values must be finite: leave out what is not known")
