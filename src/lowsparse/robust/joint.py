"""Both factors at once: Gauss-Newton steps for a robust loss, and what the entries that are right determine.

For L = A Bᵀ a change (dA, dB) changes the entries by J(dA, dB) = P_Ω(dA Bᵀ + A dBᵀ). With weights w of the entries and
a prior precision p of the parameters,

    H = Jᵀ diag(w) J + diag(p)

is solved by conjugate gradients, preconditioned by its r x r blocks on the diagonal. Alternating regressions are a
Gauss-Seidel iteration for the same system: where two parts of the data share few entries they creep, these do not.

The same system says what is determined. Draw (dA, dB) from a wide prior, and change it so that it no longer disturbs
the entries that are right, but for noise: what is left of dL = dA Bᵀ + A dBᵀ is a draw of what L could be besides (the
posterior, to first order). An entry of L is determined where such draws are small beside L. The prior is m + n times as
wide as the factors themselves: a single direction that all rows and columns of a block share, such as its scale
against that of another block, would else pass for determined, as it is one among m + n. Directions for which conjugate
gradients have not had enough iterations are left as they were: not determined.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..sweeps import Float, Sweep

__all__ = ["Determination", "JointSystem", "balanced_factors", "coupling", "determination", "joint_step"]

PROBES = 8  # draws
SMALLER = 0.25  # of the usual size of an entry of L in its row and column: a deviation up to this is determined;
NOISE = 2.0  # or up to so many deviations of the noise
SMALLEST = 1e-6  # noise that is reckoned with, against the size of the entries
RESOLVED = 1e-3  # by which conjugate gradients reduce the gradient of a step;
TOLD_APART = 1e-4  # that of a draw,
ITERATIONS = 200  # in how many iterations at most
PRODUCTS = 8  # with AAᵀ, for the second singular value


class JointSystem:
    """H = Jᵀ diag(w) J + diag(p) at L = A Bᵀ, for data in memory."""

    def __init__(
        self, M: ObservedMatrix, sweep: Sweep, A: Float, B: Float, w: Float, prior_a: Float, prior_b: Float
    ) -> None:
        self.sweep, self.A, self.B, self.w = sweep, A, B, w
        columns = M.columns_of_entries()
        by_row, by_column = _grams(M.rows, B[columns], w, len(A)), _grams(columns, A[M.rows], w, len(B))
        self.prior_a, self.prior_b = prior_a + _least(by_row), prior_b + _least(by_column)
        one = np.eye(A.shape[1])
        self.inverse_a = np.linalg.inv(by_row + self.prior_a[:, :, None] * one)
        self.inverse_b = np.linalg.inv(by_column + self.prior_b[:, :, None] * one)

    def change(self, dA: Float, dB: Float) -> Float:
        """J(dA, dB), one value per entry."""
        return self.sweep.entries(np.hstack([dA, self.A]), np.hstack([self.B, dB]))

    def back(self, y: Float) -> tuple[Float, Float]:
        """Jᵀ y for one value y per entry."""
        return self.sweep.product(y, self.B), self.sweep.product_transposed(y, self.A)

    def solve(self, ga: Float, gb: Float, tol: float, iterations: int) -> tuple[Float, Float, int]:
        """H⁻¹ (ga, gb), until the preconditioned residual has come down to `tol`, and the iterations that took."""
        xa, xb, ra, rb = np.zeros_like(ga), np.zeros_like(gb), ga, gb
        za, zb = self._preconditioned(ra, rb)
        pa, pb = za, zb
        size = first = float(np.vdot(ra, za) + np.vdot(rb, zb))
        taken = 0
        while taken < iterations and size > tol**2 * first:
            taken += 1
            ha, hb = self.back(self.w * self.change(pa, pb))
            ha, hb = ha + self.prior_a * pa, hb + self.prior_b * pb
            alpha = size / float(np.vdot(pa, ha) + np.vdot(pb, hb))
            xa, xb, ra, rb = xa + alpha * pa, xb + alpha * pb, ra - alpha * ha, rb - alpha * hb
            za, zb = self._preconditioned(ra, rb)
            size, before = float(np.vdot(ra, za) + np.vdot(rb, zb)), size
            pa, pb = za + size / before * pa, zb + size / before * pb
        return xa, xb, taken

    def _preconditioned(self, ra: Float, rb: Float) -> tuple[Float, Float]:
        return (self.inverse_a @ ra[:, :, None])[:, :, 0], (self.inverse_b @ rb[:, :, None])[:, :, 0]


def _grams(line: NDArray[np.int32], given: Float, w: Float, lines: int) -> Float:
    """Of each line: Σ w given givenᵀ over its entries (lines x r x r)."""
    r = given.shape[1]
    grams = np.empty((lines, r, r))
    for a in range(r):
        weighted = w * given[:, a]
        for b in range(a + 1):
            grams[:, a, b] = grams[:, b, a] = np.bincount(line, weights=weighted * given[:, b], minlength=lines)
    return grams


def _least(grams: Float) -> Float:
    """What is added to the diagonal of each so that none is singular."""
    size = np.trace(grams, axis1=1, axis2=2) / max(grams.shape[1], 1)
    return np.asarray((1e-10 * np.maximum(size, size.mean()) + np.finfo(float).tiny)[:, None], dtype=np.float64)


def balanced_factors(U: Float, V: Float) -> tuple[Float, Float, Float]:
    """A, B and the singular values s of L = U Vᵀ = A Bᵀ, with AᵀA = BᵀB = diag(s).

    >>> A, B, s = balanced_factors(np.array([[2.0], [0.0]]), np.array([[0.0], [8.0]]))
    >>> np.abs(A).ravel().round(9).tolist(), s.round(9).tolist()
    ([4.0, 0.0], [16.0])
    """
    left, R = np.linalg.qr(U)
    right, T = np.linalg.qr(V)
    P, s, Qt = np.linalg.svd(R @ T.T)
    root = np.sqrt(s)
    return (left @ P) * root, (right @ Qt.T) * root, s


def joint_step(
    M: ObservedMatrix, sweep: Sweep, U: Float, V: Float, c: float, noise: float, damping: float, iterations: int
) -> tuple[Float, Float, float]:
    """One Gauss-Newton step from U Vᵀ for Σ c²/2 log(1 + (e/c)²), damped until the sum decreases; and the next damping.

    The prior is that of noise of this size: components that it explains are held back. If no damping helps, the step is
    zero.

    >>> truth = np.outer([1.0, 2.0, 3.0], [1.0, -1.0, 2.0])
    >>> M = ObservedMatrix.from_dense(truth)
    >>> U, V = np.array([[1.0], [1.8], [3.1]]), np.array([[1.1], [-1.0], [1.9]])
    >>> for _ in range(6):
    ...     U, V, _ = joint_step(M, M.open_sweep("numpy"), U, V, 1.0, 0.0, 1e-6, 20)
    >>> bool(np.allclose(U @ V.T, truth))
    True
    """
    m, n = M.shape
    A, B, s = balanced_factors(U, V)
    e = sweep.residual(A, B)
    w = 1 / (1 + (e / c) ** 2)
    least = np.maximum(s, 1e-6 * s[0])
    # a component is held back by half at most: it may be one that is still to come
    held = np.minimum(noise**2 / least, 0.5 * M.density * least / max(m, n)) if s[0] > 0 else s
    prior_a, prior_b = m * held, n * held
    ga, gb = sweep.product(e * w, B) + prior_a * A, sweep.product_transposed(e * w, A) + prior_b * B

    def value(A: Float, B: Float, e: Float) -> float:
        fit = c * c * float(np.sum(np.log1p((e / c) ** 2)))
        return fit + float(np.sum(prior_a * A * A)) + float(np.sum(prior_b * B * B))

    before = value(A, B, e)
    mean_a, mean_b = _mean_gram(M, w, B, len(A)), _mean_gram(M.T, w, A, len(B))
    for _ in range(6):
        system = JointSystem(M, sweep, A, B, w, prior_a + damping * mean_a, prior_b + damping * mean_b)
        da, db, _ = system.solve(-ga, -gb, RESOLVED, iterations)
        if value(A + da, B + db, sweep.residual(A + da, B + db)) <= before:
            return A + da, B + db, max(damping / 5, 1e-10)
        damping = max(10 * damping, 1e-3)
    return A, B, damping


def _mean_gram(M: ObservedMatrix, w: Float, given: Float, lines: int) -> float:
    """The mean diagonal entry of the Gram matrices of the lines."""
    return float(np.mean(w)) * M.nnz / lines * float(np.mean(given**2))


@dataclass(frozen=True)
class Determination:
    """Draws of what L could be besides: dL_k = dA_k Bᵀ + A dB_kᵀ."""

    A: Float
    B: Float
    dA: Float  # draws x m x r
    dB: Float  # draws x n x r
    noise: float

    def deviation(self, i: NDArray[np.intp], j: NDArray[np.intp]) -> Float:
        """The standard deviation of the entries (i, j) of L, as far as the draws tell."""
        total = np.zeros(i.shape)
        for da, db in zip(self.dA, self.dB, strict=True):
            total += (np.sum(da[i] * self.B[j], axis=-1) + np.sum(self.A[i] * db[j], axis=-1)) ** 2
        return np.sqrt(total / len(self.dA))

    def usual_size(self, i: NDArray[np.intp], j: NDArray[np.intp]) -> Float:
        """The size that the entries (i, j) have, given that of others in their rows and columns."""
        by_component = np.sum(self.A**2, axis=0)  # which is that of B
        squares = self.B[j] ** 2 @ (by_component / len(self.A)) + self.A[i] ** 2 @ (by_component / len(self.B))
        return np.asarray(np.sqrt(squares), dtype=np.float64)

    def determined(self, i: NDArray[np.intp], j: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether the data have narrowed the entry down."""
        limit = np.maximum(SMALLER * self.usual_size(i, j), NOISE * self.noise)
        return np.asarray(self.deviation(i, j) <= limit)


def determination(
    M: ObservedMatrix, U: Float, V: Float, right: NDArray[np.bool_], noise: float, backend: str = "auto"
) -> Determination:
    """What the entries of M that are `right` determine of L = U Vᵀ, given noise of this standard deviation.

    >>> X = np.outer([1.0, 2.0, 3.0, 1.0], [1.0, -1.0, 2.0, 1.0])
    >>> X[:2, 2:] = X[2:, :2] = np.nan  # two blocks that share nothing
    >>> M = ObservedMatrix.from_dense(X)
    >>> L = np.array([[1.0], [2.0], [3.0], [1.0]]), np.array([[1.0], [-1.0], [2.0], [1.0]])
    >>> found = determination(M, *L, np.ones(8, bool), 0.0, "numpy")
    >>> found.determined(np.array([0, 0]), np.array([1, 3])).tolist()
    [True, False]
    """
    m, n = M.shape
    present = np.linalg.norm(V, axis=0) > 0 if len(V) else np.zeros(0, bool)
    A, B, s = balanced_factors(U[:, present], V[:, present])
    kept = s > 1e-9 * s[0] if s.size else np.zeros(0, bool)
    A, B, s = A[:, kept], B[:, kept], s[kept]
    sweep = M.open_sweep(backend)
    w = right.astype(np.float64)
    size = math.sqrt(float(np.sum(s**2)) / (m * n))
    sigma = max(noise, SMALLEST * size)
    prior_a, prior_b = (m + n) * s / m, (m + n) * s / n  # variances
    system = JointSystem(M, sweep, A, B, w, sigma**2 / prior_a, sigma**2 / prior_b)
    rng = np.random.default_rng(0x646574)
    dA, dB = np.empty((PROBES, *A.shape)), np.empty((PROBES, *B.shape))
    for k in range(PROBES if s.size else 0):
        da, db = (np.sqrt(v) * rng.standard_normal(F.shape) for F, v in ((A, prior_a), (B, prior_b)))
        y = w * (sigma * rng.standard_normal(M.nnz) - system.change(da, db))
        xa, xb, _ = system.solve(*system.back(y), TOLD_APART, ITERATIONS)
        dA[k], dB[k] = da + xa, db + xb
    return Determination(A, B, dA, dB, noise)


def coupling(M: ObservedMatrix, right: NDArray[np.bool_], backend: str = "auto") -> float:
    """How loosely the entries that are `right` hold rows and columns together: from 0 to 1, where they fall apart.

    The second singular value of the matrix of their places, each divided by the root of the counts of its row and
    column; the first is 1. Of places at random, d to a line, it is about 2/√d. Some products tell whether it is large.

    >>> X = np.ones((40, 40))
    >>> M = ObservedMatrix.from_dense(X)
    >>> coupling(M, np.ones(1600, bool), "numpy") < 0.1
    True
    >>> i, j = M.rows < 20, M.columns_of_entries() < 20
    >>> round(coupling(M, i == j, "numpy"), 3)
    1.0
    """
    m, n = M.shape
    columns = M.columns_of_entries()
    in_row = np.bincount(M.rows, weights=right, minlength=m)
    in_column = np.bincount(columns, weights=right, minlength=n)
    scaled = right / np.sqrt(np.maximum(in_row[M.rows] * in_column[columns], 1.0))
    sweep = M.with_values(scaled.astype(M.dtype)).open_sweep(backend)
    first = np.sqrt(in_row / in_row.sum())
    Q = np.random.default_rng(0x636F75).standard_normal((m, 4)) * (in_row > 0)[:, None]
    for _ in range(PRODUCTS):
        Q -= np.outer(first, first @ Q)
        Q = sweep.gram_product(np.linalg.qr(Q)[0])
    Q -= np.outer(first, first @ Q)
    return math.sqrt(float(np.linalg.norm(Q, 2)))
