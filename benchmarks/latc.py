"""LATC: low-rank autoregressive tensor completion, written from its papers.

X. Chen, M. Lei, N. Saunier, L. Sun, "Low-Rank Autoregressive Tensor Completion for Spatiotemporal Traffic Data
Imputation" (2021): with X the tensor series x moment of day x day of the matrix Z (series x moments), minimise

    Σ_k α_k ‖X_(k)‖_{r,*} + λ/2 Σ_m Σ_t (z_mt - Σ_i a_mi z_m,t-h_i)²,   z = y where read,

the truncated nuclear norms of the three unfoldings (all but the first r singular values), by ADMM with a penalty ρ
that grows by a twentieth, λ = c ρ; the coefficients a follow by least squares after every few steps. The system for
z of a series is banded. Data are centred and scaled by the caller.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve_banded, cholesky_banded

Float = NDArray[np.float64]

LAGS = (1, 2, 3, 4, 5, 6)
INNER = 3  # ADMM steps between updates of the coefficients
GROWTH, LARGEST = 1.05, 1e5  # of ρ


def latc(
    Y: Float,
    day: int,
    *,
    truncation: int = 30,
    c: float = 0.02,
    rho: float = 1e-3,
    tol: float = 1e-4,
    max_iter: int = 150,
) -> Float:
    """The completed moments x series Y; NaN is missing."""
    moments, n = Y.shape
    T = -(-moments // day) * day
    given = np.full((n, T), np.nan)
    given[:, :moments] = Y.T
    read = ~np.isnan(given)
    S = np.where(read, given, 0.0)
    Z, dual, X = S.copy(), np.zeros((n, T)), S.copy()
    a = np.zeros((n, len(LAGS)))
    for _ in range(max_iter):
        rho = min(GROWTH * rho, LARGEST)
        factors = [_factor(row, T, c) for row in a]
        before = X
        for _ in range(INNER):
            X = _shrink(Z - dual / rho, (n, day, T // day), rho, truncation)
            rest = X + dual / rho
            W = np.stack([cho_solve_banded((factor, True), row) for factor, row in zip(factors, rest, strict=True)])
            Z = np.where(read, S, W)
            dual = dual + rho * (X - Z)
        a = np.stack([_coefficients(row) for row in Z])
        if np.linalg.norm(X - before) <= tol * np.linalg.norm(S):
            break
    return np.asarray(np.where(np.isnan(Y), X[:, :moments].T, Y))


def _shrink(Z: Float, shape: tuple[int, int, int], rho: float, truncation: int) -> Float:
    """The mean over the three unfoldings of the truncated shrinkage of singular values."""
    n, day, days = shape
    tensor = Z.reshape(n, days, day).transpose(0, 2, 1)
    total = np.zeros(shape)
    for k in range(3):
        unfolded = np.moveaxis(tensor, k, 0).reshape(shape[k], -1)
        made = _truncated(unfolded, 1 / (3 * rho), truncation)
        rest = [shape[i] for i in range(3) if i != k]
        total += np.moveaxis(made.reshape(shape[k], *rest), 0, k) / 3
    return np.asarray(total.transpose(0, 2, 1).reshape(n, days * day))


def _truncated(M: Float, tau: float, truncation: int) -> Float:
    if M.shape[0] > M.shape[1]:
        return _truncated(M.T, tau, truncation).T
    squares, U = np.linalg.eigh(M @ M.T)
    s, U = np.sqrt(np.maximum(squares[::-1], 0.0)), U[:, ::-1]
    kept = s > tau
    share = np.where(np.arange(len(s)) < truncation, 1.0, 1 - tau / np.maximum(s, tau))[kept]
    return np.asarray((U[:, kept] * share) @ (U[:, kept].T @ M))


def _factor(a: Float, T: int, c: float) -> Float:
    """The Cholesky factor of c BᵀB + I, for the rows z_t - Σ a_i z_{t-h_i} of B."""
    values, offsets, last = np.concatenate([[1.0], -a]), (0, *LAGS), max(LAGS)
    bands = np.zeros((last + 1, T))
    for i, near in enumerate(offsets):
        for k in range(i, len(offsets)):
            far = offsets[k]
            bands[far - near, last - far : T - far] += c * values[i] * values[k]
    bands[0] += 1.0
    return np.asarray(cholesky_banded(bands, lower=True))


def _coefficients(z: Float) -> Float:
    last = max(LAGS)
    Q = np.column_stack([z[last - lag : len(z) - lag] for lag in LAGS])
    return np.asarray(np.linalg.lstsq(Q, z[last:], rcond=None)[0])
