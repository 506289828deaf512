"""The Grassmann manifold of r-dimensional subspaces of R^m, each held as an orthonormal basis U (m x r)."""

import math

import numpy as np
from scipy.linalg.lapack import dgesv, dpotrf, dtrtri

from .arrays import Float, add_scaled_then_multiply, host, inner, matmul_small, on_device
from .arrays import gram as gram_of


def qf(A: Float) -> Float:
    """The Q factor of the thin QR factorisation A = QR whose R has a positive diagonal.

    The sign matters: without it U jumps between iterations and differences of U mean nothing.
    """
    # R is the Cholesky factor of AᵀA, and Q = A R⁻¹ is as orthonormal as cond(A)² allows: enough close to the
    # manifold, where A is almost orthonormal. Repeating it where that was not enough is faster than Householder's QR.
    Q: Float = A
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(3):
            R, inverse = _factored(gram_of(Q))
            if not inverse.size:
                break
            Q = matmul_small(Q, inverse)
            if np.linalg.norm(R) * np.linalg.norm(inverse) <= 2 * len(R):  # r for what was orthonormal
                return Q
    Q, R = np.linalg.qr(A)
    Q = Q * np.where(np.diag(R) < 0, -1.0, 1.0)
    return Q.copy() if on_device(Q) else np.ascontiguousarray(Q)


def basis(A: Float) -> tuple[Float, Float]:
    """A = QR, where Q is orthonormal to rounding times the square of the condition of A: a good basis of its range."""
    R, inverse = _factored(gram_of(A))
    pivots = R.diagonal().tolist()
    if inverse.size and min(pivots) > 1e-5 * max(pivots):
        return matmul_small(A, inverse).astype(np.float64, copy=False), R
    return _householder(A)


def _factored(gram: Float) -> tuple[Float, Float]:
    """The upper triangular R with RᵀR = gram, and R⁻¹, which is empty if there is no such R.

    LAPACK is called directly: NumPy's checks take longer than such a small matrix.
    """
    R, failed = dpotrf(gram)
    return R, dtrtri(R)[0] if not failed else np.empty((0, 0))


def qr(A: Float) -> tuple[Float, Float]:
    """A = QR to rounding; R is an array of NumPy, wherever A is."""
    if not on_device(A):
        return _householder(A)
    Q, R = basis(A)  # good to the square of the condition of A, and that of Q is about 1
    if np.linalg.cond(R) < 2:
        return Q, R
    Q, T = basis(Q)
    return Q, T @ R


def _householder(A: Float) -> tuple[Float, Float]:
    Q, R = np.linalg.qr(A)
    return Q.astype(np.float64, copy=False), np.asarray(host(R), dtype=np.float64)


def leverages(A: Float) -> Float:
    """The leverages of the rows of A: the diagonal of the projection onto its range; in [0, 1], their sum is the rank.

    >>> leverages(np.array([[2.0, 0.0], [0.0, 0.0], [0.0, 0.0]])).tolist()
    [1.0, 0.0, 0.0]
    """
    A = host(A)
    R, inverse = _factored(A.T @ A)
    if inverse.size and np.linalg.norm(R) * np.linalg.norm(inverse) < 1e3:
        Q = A @ inverse
    else:
        left, sizes, _ = np.linalg.svd(A, full_matrices=False)
        Q = left[:, sizes > 1e-12 * sizes.max(initial=0.0)]
    return np.asarray(np.sum(Q**2, axis=1), dtype=np.float64)


def retract(
    U: Float, D: Float, HtH: Float, *, step: float = 1.0, exact: bool = False, moved: Float | None = None
) -> tuple[Float, Float]:
    """Move from U along the tangent vector H = step D, given HᵀH: qf(U + H) = (U + H) R⁻¹, and R⁻¹.

    As UᵀU = I and UᵀH = 0, RᵀR = I + HᵀH. Rounding errors of UᵀU = I add up from step to step: `exact`, or after a long
    step, the new basis is qf(U + H) itself; else it is (U + H) R⁻¹, or `moved` if that is known already. (The paper
    writes Retr_U(U + H) with the same formula, which would be qf(2U + H), half the step.)
    """
    RtR = np.eye(len(HtH)) + HtH
    if not np.isfinite(RtR).all():
        return qf(U + step * D), np.full_like(RtR, np.nan)
    inverse = np.ascontiguousarray(_factored(RtR)[1])
    if exact or RtR.max() > 2:
        return qf(U + step * D), inverse
    return add_scaled_then_multiply(U, D, step, inverse) if moved is None else moved, inverse


def relative_change(U: Float, V: Float, U_new: Float, V_new: Float) -> float:
    """‖U_new V_newᵀ - U Vᵀ‖ / ‖U Vᵀ‖, accurate also where it is small.

    The difference is A V_newᵀ + U Bᵀ, where A = U_new - U T and B = V_new Tᵀ - V are small then, and UᵀA = ridge T.

    >>> one = np.ones((3, 1))
    >>> round(relative_change(one, one, one, 1.5 * one), 12)
    0.5
    """
    gram = gram_of(U)
    size = float(np.vdot(gram, gram_of(V)))
    if not size > 0:
        return np.inf if V_new.any() else 0.0
    ridge = 1e-12 * float(gram.trace())
    *_, T, failed = dgesv(gram + ridge * np.eye(len(gram)), inner(U, U_new))
    if failed:
        return math.inf
    VT = matmul_small(V_new, T.T)
    A, B = U_new - matmul_small(U, T), VT - V
    square = np.vdot(gram_of(A), gram_of(V_new)) + np.vdot(gram, gram_of(B)) + 2 * ridge * float((B * VT).sum())
    return math.sqrt(max(float(square), 0.0) / size)
