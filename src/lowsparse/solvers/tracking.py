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

import math
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..entries.observed import ObservedMatrix
from ..linalg.arrays import Float
from ..linalg.grassmann import qf
from ..sweeps import native
from ..sweeps.reference import cholesky, cholesky_solve
from .parameters import parameter

_track: Any = getattr(getattr(native, "_core", None), "track", None)  # compiled, if it is there

SIGMOID = 0.1  # ω: the sigmoid of x is tanh(x / 2ω)


@dataclass(kw_only=True)
class Rules:
    """How a `SubspaceTracker` regresses a column and chooses the length of a step: parameters of `GRASTA`."""

    rho: float = parameter(2.0, "growth of the ADMM penalty per iteration (the demonstration's)", above=1)
    min_inner: int = parameter(
        25, "ADMM iterations of a column below level 4; 2, 4, 8 times as many from levels 4, 7, 10 on", at_least=1
    )
    max_inner: int = parameter(
        40, "most ADMM iterations of a column, used from level 14 on (the demonstration: 20 and 20)", at_least=1
    )
    tolerance: float = parameter(1e-12, "of the ADMM, relative to the column", at_least=0, below=1)
    mu_min: float = parameter(1.0, "the level falls where μ reaches this", above=0)
    mu_max: float = parameter(
        30.0, "the level rises beyond this (the demonstration: 15); doubled when steps became short too soon", above=0
    )
    levels: int = parameter(30, "steps become 2^-levels as long as the first (theirs: 20)", at_least=1, at_most=1000)

    def inner(self, level: int) -> int:
        """The number of ADMM iterations of a column on this level."""
        times = 1 if level < 4 else 2 if level < 7 else 4 if level < 10 else 8
        return self.max_inner if level >= 14 else min(times * self.min_inner, self.max_inner)


@dataclass(kw_only=True)
class Steps:
    """The memory of a `SubspaceTracker`: what the length of its next step depends on."""

    gamma: Float  # the direction of the last step outside U, of length 1,
    w: Float  # and inside
    mu: float
    level: int = 0
    scale: float = 0.0  # C; 0 before the first step


class Absolute(NamedTuple):
    """A least-absolute-deviations fit: B w = v except for few rows."""

    w: Float
    y: Float  # multipliers: minus the sign of v - B w where that is not zero
    iterations: int  # of ADMM; 0 if the least-squares fit they begin with is exact


def least_absolute(B: Float, v: Float, *, rho: float, max_iter: int, tolerance: float) -> Absolute:
    """Minimise ‖v - B w‖₁ by ADMM on s = v - B w, s and y starting from zero.

    With σ = 1/τ, from ‖v‖/1.25 and shrunk by `rho` each time: w = (BᵀB)⁻¹ Bᵀ(v - s - σy), q = v - B w - σy,
    s = soft(q, σ), y⁺ = y + (B w + s - v)/σ = -clip(q/σ, ±1). As s = q + σy⁺, the next right-hand side is
    B w + σy - (σ + σ⁺)y⁺, and s need not be held. Directions that B does not determine get w = 0.
    """
    size = math.sqrt(float(v @ v))
    w, y, d = np.zeros(B.shape[1]), np.zeros(len(v)), v
    if not size > 0.0:
        return Absolute(w, y, 0)
    P = cholesky_solve(cholesky((B.T @ B)[None]), np.eye(len(w))) @ B.T
    sigma, iteration = size / 1.25, 0
    while iteration < max_iter and sigma > 1e-16 * size:
        w = w + P @ d
        held = sigma * y
        new = -np.clip((v - B @ w - held) / sigma, -1.0, 1.0)
        h = sigma * float(np.linalg.norm(new - y))
        following = sigma / rho
        d = held - (sigma + following) * new
        y, sigma, iteration = new, following, iteration + 1
        if h <= tolerance * size:
            return Absolute(w, y, 0 if iteration == 1 else iteration)
    return Absolute(w, y, iteration)


class SubspaceTracker:
    """A subspace, and the memory of the steps it has made.

    `U` is m x r; it is made orthonormal. `angle` is that of all steps, to follow what keeps moving; 0: by μ and ℓ.
    `steps` is the memory of an earlier tracker, which is copied. With `compiled=False`, or without the compiled core,
    it runs in plain NumPy. Columns that have fewer than r entries, or that U explains already, leave U as it is.
    """

    def __init__(
        self,
        U: ArrayLike,
        rules: Rules | None = None,
        *,
        angle: float = 0.0,
        steps: Steps | None = None,
        compiled: bool = True,
    ) -> None:
        self.U: Float = qf(np.asarray(U, dtype=np.float64))
        self.rules = Rules() if rules is None else rules
        self.angle = angle
        self.compiled = compiled and _track is not None
        m, r = self.U.shape
        self.steps = replace(steps) if steps else Steps(gamma=np.zeros(m), w=np.zeros(r), mu=self.rules.mu_min)

    def run(self, M: ObservedMatrix, order: NDArray[np.int64] | None = None) -> Float:
        """Learn from the columns of M, in this order; return the coefficients of each on U as it was, a row each."""
        return self._pass(self.rules, M, order, learn=True)

    def fit(self, M: ObservedMatrix, *, rho: float = 1.05, max_iter: int = 800) -> Float:
        """Return the coefficients of the columns of M on U, a row each; U stays as it is.

        The closer ρ is to 1, the closer they are to the best in the ℓ1 sense, and the more iterations it takes.
        """
        rules = replace(self.rules, rho=rho, min_inner=max_iter, max_inner=max_iter)
        return self._pass(rules, M, None, learn=False)

    def _pass(self, rules: Rules, M: ObservedMatrix, order: NDArray[np.int64] | None, *, learn: bool) -> Float:
        order = np.arange(M.shape[1], dtype=np.int64) if order is None else order
        if self.compiled:
            return self._compiled_pass(rules, M, order, learn)
        W = np.zeros((len(order), self.U.shape[1]))
        for k, j in enumerate(order):
            part = slice(M.indptr[j], M.indptr[j + 1])
            W[k] = self._column(rules, M.rows[part], M.values[part].astype(np.float64), learn)
        return W

    def _column(self, rules: Rules, rows: NDArray[np.int32], v: Float, learn: bool) -> Float:
        U, steps = self.U, self.steps
        B = U[rows]
        found = least_absolute(B, v, rho=rules.rho, max_iter=rules.inner(steps.level), tolerance=rules.tolerance)
        if not learn or not found.iterations or len(v) < U.shape[1]:
            return found.w
        gamma = -U @ (B.T @ found.y)
        gamma[rows] += found.y
        outside, inside = float(np.linalg.norm(gamma)), float(np.linalg.norm(found.w))
        if not (outside > 1e-12 and inside > 0.0):  # nothing is left but rounding
            return found.w
        gamma, w, slope = gamma / outside, found.w / inside, outside * inside
        if not steps.scale > 0.0:
            steps.scale = 0.5 * math.pi * (1 + rules.mu_min) / slope
        t = self._angle(rules, slope, float(steps.gamma @ gamma) * float(steps.w @ w))
        steps.gamma, steps.w = gamma, w
        cosine = -2 * math.sin(t / 2) ** 2  # less 1
        self.U = U + np.outer(cosine * (U @ w) - math.sin(t) * gamma, w)
        return found.w

    def _angle(self, rules: Rules, slope: float, agreement: float) -> float:
        """Return the angle of this step; set the next μ and level."""
        steps = self.steps
        steps.mu = max(steps.mu + math.tanh(-agreement / (2 * SIGMOID)), rules.mu_min)
        if self.angle:
            return self.angle
        t = min(math.ldexp(steps.scale, -steps.level) * slope / (1 + steps.mu), math.pi / 3)
        if steps.mu <= rules.mu_min:
            steps.level -= steps.level > 1
            steps.mu = rules.mu_min + 2
        elif steps.mu > rules.mu_max:
            if steps.level < rules.levels:
                steps.level += 1
                steps.mu = (rules.mu_max - 1) / 2
            else:
                steps.mu = rules.mu_max
        return t

    def _compiled_pass(self, rules: Rules, M: ObservedMatrix, order: NDArray[np.int64], learn: bool) -> Float:
        # on copies, which astuple makes too: an interruption leaves all as it was
        U, (gamma, w, *numbers) = self.U.copy(), astuple(self.steps)
        W: Float
        W, mu, level, scale = _track(
            *(M.indptr, M.rows, M.values, order, U, gamma, w, *numbers),
            *(getattr(rules, field.name) for field in fields(Rules)),  # in the order of the compiled function
            *(self.angle, learn, native.instruction_set()),
        )
        if learn:
            self.U, self.steps = U, Steps(gamma=gamma, w=w, mu=mu, level=level, scale=scale)
        return W
