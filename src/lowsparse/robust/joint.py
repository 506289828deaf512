"""Both factors at once: Gauss-Newton steps for a robust loss, and which entries of L the inliers determine.

For L = A Bᵀ a step (dA, dB) changes the entries by J(dA, dB) = P_Ω(dA Bᵀ + A dBᵀ). With weights w of the entries and
a prior precision p of the parameters, systems with

    H = Jᵀ diag(w) J + diag(p)

are solved by conjugate gradients, preconditioned by the r x r blocks on the diagonal. Alternating regressions are a
Gauss-Seidel iteration for the same system; they converge slowly where two parts of the data share few entries.

The same system gives draws from the posterior of L, to first order: draw (dA, dB) from a wide prior, and project it so
that it disturbs the inliers by no more than noise. An entry of L is determined where the draws of dA Bᵀ + A dBᵀ are
small relative to L. The variance of the prior is m + n times that of the factors, so that a single direction that all
rows and columns of a block share, such as its scale, does not pass for determined. Directions that conjugate gradients
have not resolved stay undetermined.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..sweeps import Float, Sweep

N_DRAWS = 8  # from the posterior
# Largest deviation of a determined entry, relative to the usual size in its row and column, or to the noise.
DETERMINED, NOISE = 0.25, 2.0
LEAST_NOISE = 1e-6  # relative to the root mean square of L
STEP_TOL = 1e-3  # of conjugate gradients, for a Gauss-Newton step
DRAW_TOL, DRAW_MAX_ITER = 1e-4, 200  # of conjugate gradients, for a draw
N_PRODUCTS = 8  # with AAᵀ, for the second singular value


class JointSystem:
    """H = Jᵀ diag(w) J + diag(p) at L = A Bᵀ, for data in memory."""

    def __init__(
        self, M: ObservedMatrix, sweep: Sweep, A: Float, B: Float, w: Float, prior_a: Float, prior_b: Float
    ) -> None:
        self.sweep, self.A, self.B, self.w = sweep, A, B, w
        columns = M.columns_of_entries()
        by_row, by_column = line_grams(M.rows, B[columns], w, len(A)), line_grams(columns, A[M.rows], w, len(B))
        self.prior_a, self.prior_b = prior_a + _jitter(by_row), prior_b + _jitter(by_column)
        identity = np.eye(A.shape[1])
        self.inverse_a = _by_column(np.linalg.inv(by_row + self.prior_a[:, :, None] * identity))
        self.inverse_b = _by_column(np.linalg.inv(by_column + self.prior_b[:, :, None] * identity))

    def jacobian(self, dA: Float, dB: Float) -> Float:
        """J(dA, dB), one value per entry."""
        return self.sweep.entries(np.hstack([dA, self.A]), np.hstack([self.B, dB]))

    def adjoint(self, y: Float) -> tuple[Float, Float]:
        """Jᵀ y for one value y per entry."""
        return self.sweep.product(y, self.B), self.sweep.product_transposed(y, self.A)

    def solve(self, ga: Float, gb: Float, tol: float, max_iter: int) -> tuple[Float, Float]:
        """H⁻¹ (ga, gb), until the norm of the preconditioned residual has fallen by the factor `tol`."""
        xa, xb, ra, rb = np.zeros_like(ga), np.zeros_like(gb), ga, gb
        za, zb = self._precondition(ra, rb)
        pa, pb = za, zb
        size = first = float(np.vdot(ra, za) + np.vdot(rb, zb))
        for _ in range(max_iter):
            if not size > tol**2 * first:
                break
            ha, hb = self.adjoint(self.w * self.jacobian(pa, pb))
            ha, hb = ha + self.prior_a * pa, hb + self.prior_b * pb
            alpha = size / float(np.vdot(pa, ha) + np.vdot(pb, hb))
            xa, xb, ra, rb = xa + alpha * pa, xb + alpha * pb, ra - alpha * ha, rb - alpha * hb
            za, zb = self._precondition(ra, rb)
            size, previous = float(np.vdot(ra, za) + np.vdot(rb, zb)), size
            pa, pb = za + size / previous * pa, zb + size / previous * pb
        return xa, xb

    def _precondition(self, ra: Float, rb: Float) -> tuple[Float, Float]:
        return _times(self.inverse_a, ra), _times(self.inverse_b, rb)


def _by_column(matrices: NDArray[np.floating[Any]]) -> Float:
    """Matrices (n x r x r) as r x n x r: the first columns of all of them, the second ones, and so on."""
    return np.ascontiguousarray(np.moveaxis(matrices, 2, 0), dtype=np.float64)


def _times(matrices: Float, X: Float) -> Float:
    """The product of each matrix, as `_by_column` gives them, with its row of X (n x r): faster than n small ones."""
    product = np.zeros_like(X)
    for column, x in zip(matrices, X.T, strict=True):
        product += column * x[:, None]
    return product


def line_grams(line: NDArray[np.integer[Any]], X: Float, w: Float, n_lines: int) -> Float:
    """Σ w x xᵀ over the entries of each line, for rows x of X (n_lines x r x r)."""
    r = X.shape[1]
    grams = np.empty((n_lines, r, r))
    for a in range(r):
        weighted = w * X[:, a]
        for b in range(a + 1):
            grams[:, a, b] = grams[:, b, a] = np.bincount(line, weights=weighted * X[:, b], minlength=n_lines)
    return grams


def _jitter(grams: Float) -> Float:
    """What is added to the diagonal of each Gram matrix so that none is singular."""
    size = np.trace(grams, axis1=1, axis2=2) / max(grams.shape[1], 1)
    return np.asarray((1e-10 * np.maximum(size, size.mean()) + np.finfo(float).tiny)[:, None], dtype=np.float64)


def balanced_factors(U: Float, V: Float) -> tuple[Float, Float, Float]:
    """A, B and the singular values s of L = U Vᵀ = A Bᵀ, with AᵀA = BᵀB = diag(s)."""
    left, R = np.linalg.qr(U)
    right, T = np.linalg.qr(V)
    P, s, Qt = np.linalg.svd(R @ T.T)
    root = np.sqrt(s)
    return (left @ P) * root, (right @ Qt.T) * root, s


def joint_step(
    M: ObservedMatrix, sweep: Sweep, U: Float, V: Float, c: float, noise: float, damping: float, max_iter: int
) -> tuple[Float, Float, float]:
    """One Gauss-Newton step from U Vᵀ for Σ c²/2 log(1 + (e/c)²): the new factors, and the next damping.

    Components that noise of this scale explains are shrunk by a prior. The step is damped until the sum decreases; it
    is zero if no damping helps.
    """
    m, n = M.shape
    A, B, s = balanced_factors(U, V)
    e = sweep.residual(A, B)
    w = 1 / (1 + (e / c) ** 2)
    least = np.maximum(s, 1e-6 * s[0])
    # a component is shrunk by half at most: it may still have to grow
    shrinkage = np.minimum(noise**2 / least, 0.5 * M.density * least / max(m, n)) if s[0] > 0 else s
    prior_a, prior_b = m * shrinkage, n * shrinkage
    ga, gb = sweep.product(e * w, B) + prior_a * A, sweep.product_transposed(e * w, A) + prior_b * B

    def objective(A: Float, B: Float, e: Float) -> float:
        fit = c * c * float(np.sum(np.log1p((e / c) ** 2)))
        return fit + float(np.sum(prior_a * A * A)) + float(np.sum(prior_b * B * B))

    current = objective(A, B, e)
    mean_a, mean_b = _mean_gram(M, w, B, len(A)), _mean_gram(M, w, A, len(B))
    for _ in range(6):
        system = JointSystem(M, sweep, A, B, w, prior_a + damping * mean_a, prior_b + damping * mean_b)
        da, db = system.solve(-ga, -gb, STEP_TOL, max_iter)
        if objective(A + da, B + db, sweep.residual(A + da, B + db)) <= current:
            return A + da, B + db, max(damping / 5, 1e-10)
        damping = max(10 * damping, 1e-3)
    return A, B, damping


def _mean_gram(M: ObservedMatrix, w: Float, X: Float, n_lines: int) -> float:
    """The mean diagonal entry of the Gram matrices of the lines."""
    return float(np.mean(w)) * M.nnz / n_lines * float(np.mean(X**2))


@dataclass(frozen=True)
class Determination:
    """Draws from the posterior of L - A Bᵀ: dL_k = dA_k Bᵀ + A dB_kᵀ."""

    A: Float
    B: Float
    dA: Float  # draws x m x r
    dB: Float  # draws x n x r
    noise: float

    def deviation(self, i: NDArray[np.intp], j: NDArray[np.intp]) -> Float:
        """The standard deviation of the entries (i, j) of L, estimated by the draws."""
        total = np.zeros(i.shape)
        for da, db in zip(self.dA, self.dB, strict=True):
            total += (np.sum(da[i] * self.B[j], axis=-1) + np.sum(self.A[i] * db[j], axis=-1)) ** 2
        return np.sqrt(total / len(self.dA))

    def usual_size(self, i: NDArray[np.intp], j: NDArray[np.intp]) -> Float:
        """The size expected of the entries (i, j), given the others in their rows and columns."""
        by_component = np.sum(self.A**2, axis=0)  # which is that of B
        squares = self.B[j] ** 2 @ (by_component / len(self.A)) + self.A[i] ** 2 @ (by_component / len(self.B))
        return np.asarray(np.sqrt(squares), dtype=np.float64)

    def determined(self, i: NDArray[np.intp], j: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether the data determine the entries (i, j)."""
        limit = np.maximum(DETERMINED * self.usual_size(i, j), NOISE * self.noise)
        return np.asarray(self.deviation(i, j) <= limit)


def determination(
    M: ObservedMatrix, U: Float, V: Float, inlier: NDArray[np.bool_], noise: float, backend: str = "auto"
) -> Determination:
    """What the inliers of M determine of L = U Vᵀ, given noise of this standard deviation."""
    m, n = M.shape
    present = np.linalg.norm(V, axis=0) > 0 if len(V) else np.zeros(0, bool)
    A, B, s = balanced_factors(U[:, present], V[:, present])
    kept = s > 1e-9 * s[0] if s.size else np.zeros(0, bool)
    A, B, s = A[:, kept], B[:, kept], s[kept]
    sweep = M.open_sweep(backend)
    w = inlier.astype(np.float64)
    size = math.sqrt(float(np.sum(s**2)) / (m * n))
    sigma = max(noise, LEAST_NOISE * size)
    prior_a, prior_b = (m + n) * s / m, (m + n) * s / n  # variances
    system = JointSystem(M, sweep, A, B, w, sigma**2 / prior_a, sigma**2 / prior_b)
    rng = np.random.default_rng(0x646574)
    dA, dB = np.empty((N_DRAWS, *A.shape)), np.empty((N_DRAWS, *B.shape))
    for k in range(N_DRAWS if s.size else 0):
        da, db = (np.sqrt(v) * rng.standard_normal(F.shape) for F, v in ((A, prior_a), (B, prior_b)))
        y = w * (sigma * rng.standard_normal(M.nnz) - system.jacobian(da, db))
        xa, xb = system.solve(*system.adjoint(y), DRAW_TOL, DRAW_MAX_ITER)
        dA[k], dB[k] = da + xa, db + xb
    return Determination(A, B, dA, dB, noise)


def coupling(M: ObservedMatrix, inlier: NDArray[np.bool_], backend: str = "auto") -> float:
    """How loosely inliers connect rows and columns: from 0 to 1, where the bipartite graph is not connected.

    It is the second singular value of the graph's adjacency matrix, normalised by the roots of the degrees so that the
    first is 1. For random positions, d per line, it is about 2/√d. A few products with the matrix tell if it is large.
    """
    m, n = M.shape
    columns = M.columns_of_entries()
    in_row = np.bincount(M.rows, weights=inlier, minlength=m)
    in_column = np.bincount(columns, weights=inlier, minlength=n)
    scaled = inlier / np.sqrt(np.maximum(in_row[M.rows] * in_column[columns], 1.0))
    sweep = M.with_values(scaled.astype(M.dtype)).open_sweep(backend)
    first = np.sqrt(in_row / in_row.sum())
    Q = np.random.default_rng(0x636F75).standard_normal((m, 4)) * (in_row > 0)[:, None]
    for _ in range(N_PRODUCTS):
        Q -= np.outer(first, first @ Q)
        Q = sweep.gram_product(np.linalg.qr(Q)[0])
    Q -= np.outer(first, first @ Q)
    return math.sqrt(float(np.linalg.norm(Q, 2)))
