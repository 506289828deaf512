"""The sweep in plain NumPy: the oracle every other backend is tested against, and what runs without a compiler."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..linalg.scale import CONSISTENT_LOW, LOW
from . import (
    Ascent,
    BlockFits,
    Blocks,
    Columns,
    Draws,
    Float,
    Gradient,
    Magnitudes,
    Multiplier,
    Previous,
    Proximal,
    Regression,
    Robust,
    Rule,
    SweepResult,
    min_support,
)
from .losses import Loss

DETERMINED = 1e-10  # smallest / largest singular value of a square system, at least, that determines a solution
PIVOT_TOLERANCE = 1e-13  # a pivot below this share of its diagonal entry is rounding: that direction is dropped
# of `fit_blocks`; the same numbers as in cpp/climb.hpp
PASSES = (4, 40)  # at each rank, least and most
FALLING = 0.5  # noise / that one pass earlier: more passes are made at a rank while it is below this;
SETTLED = 0.98  # noise / that three passes earlier, the same at the last rank and where the noise is below
NEARLY = 0.02  # units: the fit may be on the way to an exact one
PACE = (0.8, 0.3)  # c / its previous value, at least: a scale that collapses fits a part and loses the rest;
CLOSE, MOST = 0.05, 0.7  # the second if the share MOST of the residuals is below CLOSE c
NARROW, SMALLEST = 1.9, 1e-8  # c / the noise; the smallest c in units
EXACT = 1e-9  # units: with less noise a block needs no higher rank
SHRINK = 0.01  # for lines that do not determine their coefficients
PRODUCTS = 10  # power iterations for a leading singular vector


def reason_unavailable() -> str | None:
    """NumPy is always there."""
    return None


@dataclass(frozen=True)
class ColumnRange:
    """Consecutive columns with their entries."""

    columns: slice
    entries: slice
    rows: NDArray[np.int32]
    owner: NDArray[np.int64]  # of each entry: its column, counted from the first of the range
    indicator: sparse.csr_array  # columns x entries, ones: indicator @ a sums a over each column


def column_ranges(M: Columns, max_entries: int) -> Iterator[ColumnRange]:
    """Split the columns so that the temporaries of a range stay small."""
    n = M.shape[1]
    first = 0
    while first < n:
        limit = M.indptr[first] + max_entries
        last = max(first + 1, int(np.searchsorted(M.indptr, limit, side="right")) - 1)
        entries = slice(int(M.indptr[first]), int(M.indptr[last]))
        indptr = M.indptr[first : last + 1] - M.indptr[first]
        k = entries.stop - entries.start
        indicator = sparse.csr_array((np.ones(k), np.arange(k), indptr), shape=(last - first, k))
        owner = np.repeat(np.arange(last - first), np.diff(indptr))
        yield ColumnRange(slice(first, last), entries, M.rows[entries], owner, indicator)
        first = last


def cholesky(A: Float) -> tuple[Float, Float]:
    """Factor a stack of r x r matrices as L Lᵀ; directions without a pivot are dropped (their 1/L_kk is 0)."""
    L = np.zeros_like(A)
    inverse = np.zeros(A.shape[:2])
    for k in range(A.shape[1]):
        pivot = A[:, k, k] - np.sum(L[:, k, :k] ** 2, axis=1)
        kept = pivot > PIVOT_TOLERANCE * A[:, k, k]
        inverse[kept, k] = 1 / np.sqrt(pivot[kept])
        below = A[:, k + 1 :, k] - np.einsum("cji,ci->cj", L[:, k + 1 :, :k], L[:, k, :k])
        L[:, k + 1 :, k] = below * inverse[:, k, None]
    return L, inverse


def cholesky_solve(factor: tuple[Float, Float], b: Float) -> Float:
    """Solve L Lᵀ v = b for a stack of right-hand sides."""
    L, inverse = factor
    v = b.copy()
    r = b.shape[1]
    for k in range(r):
        v[:, k] = (v[:, k] - np.sum(L[:, k, :k] * v[:, :k], axis=1)) * inverse[:, k]
    for k in reversed(range(r)):
        v[:, k] = (v[:, k] - np.sum(L[:, k + 1 :, k] * v[:, k + 1 :], axis=1)) * inverse[:, k]
    return v


class ColumnSweep:
    """One pass over the columns of M, in blocks (see `lowsparse.sweeps.Sweep`)."""

    name = host = "numpy"

    def __init__(self, M: Columns) -> None:
        self.M = M

    def sweep(
        self, U: Float, S: NDArray[Any], S_out: NDArray[Any] | None, options: Proximal, previous: Previous | None = None
    ) -> SweepResult:
        """Solve, shrink, solve again and sum up the gradient: the mathematics of Algorithms 1 and 2."""
        rule, gamma, t_S, l2 = options.rule, options.gamma, options.t_S, options.lambda2
        if S_out is None and rule != Rule.FIT:
            raise ValueError("S_out is needed by every rule but FIT")
        M = self.M
        m, n = M.shape
        r = U.shape[1]
        V = np.zeros((n, r))
        G = np.zeros((m if rule != Rule.FIT else 0, r))
        smooth_in = smooth_out = l1 = dS2 = 0.0

        def smooth(e: Float, y: Float, v: Float) -> float:
            return float(0.5 * np.sum((e - y) ** 2) + 0.5 * l2 * (np.sum(v**2) - np.sum(e**2)))

        for part in column_ranges(M, 2_000_000 // r):
            x = M.values[part.entries].astype(np.float64)
            s = S[part.entries].astype(np.float64)
            y = x - s
            B = U[part.rows]
            bounds = part.indicator.indptr
            gram = np.stack([B[a:b].T @ B[a:b] for a, b in pairwise(bounds)])
            factor = cholesky((1 - l2) * gram + l2 * np.eye(r))

            # V(U, S): [(1 - λ²) U_jᵀU_j + λ² I] v_j = U_jᵀ (x - S)_j
            v = cholesky_solve(factor, part.indicator @ (B * y[:, None]))
            e = np.einsum("kr,kr->k", B, v[part.owner])
            smooth_in += smooth(e, y, v)
            if S_out is not None and rule != Rule.FIT:
                # S+ = soft(S - t_S ∇_S f, γ t_S) with ∇_S f = e - x + S
                at = s - t_S * (e - y)
                S_out[part.entries] = at - np.clip(at, -gamma * t_S, gamma * t_S)
                s_new = S_out[part.entries].astype(np.float64)
                dS2 += float(np.sum((s_new - s) ** 2))
                l1 += float(np.sum(np.abs(s_new)))
                if rule == Rule.AMANPG:
                    y = x - s_new
                    v = cholesky_solve(factor, part.indicator @ (B * y[:, None]))
                    e = np.einsum("kr,kr->k", B, v[part.owner])
                    smooth_out += smooth(e, y, v)
                R = (1 - l2) * (e - y) - l2 * y
                G += sparse.csc_array((R, part.rows, bounds), shape=(m, len(v))) @ v
            V[part.columns] = v
        VVt = V.T @ V
        if rule != Rule.FIT:
            G += l2 * (U @ VVt)
        dV = 0.0 if previous is None else float(np.linalg.norm(V.T - previous.rotation @ previous.V))
        return SweepResult(V.T, G, G.T @ G, VVt, smooth_in, smooth_out, l1, float(np.sqrt(dS2)), dV)

    def regress(self, U: Float, V: Float | None, options: Robust) -> Regression:
        """Regress each column robustly on U."""
        n, r = self.M.shape[1], U.shape[1]
        start = self.residual(U, np.zeros((n, r)) if V is None else V)
        fitted, inside = np.zeros((n, r)), np.zeros(n, np.int64)
        first_c = options.c if options.first_c is None or options.n_reweight == 1 else options.first_c
        for part in column_ranges(self.M, 2_000_000 // r):
            x = self.M.values[part.entries].astype(np.float64)
            B = U[part.rows]
            e = start[part.entries]
            for c in np.geomspace(first_c, options.c, options.n_reweight):
                inside[part.columns] = part.indicator @ (np.abs(e) <= options.bound)
                w = Loss(options.kind, c, options.p).weight(e)
                weighted = B * w[:, None]
                gram = np.stack([B[a:b].T @ weighted[a:b] for a, b in pairwise(part.indicator.indptr)])
                weight = part.indicator @ w
                lack = np.clip(2 - weight / r, 0, 1)
                ridge = options.ridge * weight / np.maximum(np.diff(part.indicator.indptr), 1)
                ridge += (1e-10 + options.shrink * lack**3) * r / len(U)
                gram += ridge[:, None, None] * np.eye(r)
                v = cholesky_solve(cholesky(gram), part.indicator @ (weighted * x[:, None]))
                v[(np.sum(v**2, axis=1) > options.largest**2) & (weight < min_support(r))] = 0.0
                e = np.einsum("kr,kr->k", B, v[part.owner]) - x
            fitted[part.columns] = v
        return Regression(fitted, inside, Magnitudes.of(start, options.unit))

    def residual(self, U: Float, V: Float) -> Float:
        """P_Ω(U Vᵀ) - x."""
        return self.entries(U, V) - self.M.values

    def entries(self, U: Float, V: Float) -> Float:
        """P_Ω(U Vᵀ)."""
        e = np.empty(self.M.values.size)
        for part in column_ranges(self.M, 2_000_000 // U.shape[1]):
            e[part.entries] = np.einsum("kr,kr->k", U[part.rows], V[part.columns][part.owner])
        return e

    def product(self, y: Float, V: Float) -> Float:
        """Sp(y) V through scipy.sparse."""
        return np.asarray(_csc(self.M, y) @ V, dtype=np.float64)

    def product_transposed(self, y: Float, U: Float) -> Float:
        """Sp(y)ᵀ U through scipy.sparse."""
        return np.asarray(_csc(self.M, y).T @ U, dtype=np.float64)

    def gradient(self, U: Float, V: Float, loss: Loss) -> Gradient:
        """Σ ρ(e), and the two products with ψ(e)."""
        e = self.residual(U, V)
        y = loss.slope(e)
        return Gradient(float(np.sum(loss.value(e))), self.product(y, V), self.product_transposed(y, U))

    def curvature(self, U: Float, V: Float, B: Float, loss: Loss) -> float:
        """Σ w(e) d²."""
        return float(np.sum(loss.weight(self.residual(U, V)) * self.entries(U, B) ** 2))

    def ascend(self, U: Float, C: Float, current: Multiplier, out: Multiplier, beta: float, next_beta: float) -> Ascent:
        """The steps in V, Z and Λ, and the product for the step in U that follows."""
        V = C + self.product_transposed(current.w, U)
        e = self.residual(U, V)
        out.values[:] = np.clip(current.values + beta * e, -1.0, 1.0)
        gap = (out.values - current.values) / beta
        out.w[:] = -gap - out.values / next_beta
        return Ascent(V, self.product(out.w, V), float(np.sum(np.abs(e))), float(np.linalg.norm(gap)))

    def grams(self, U: Float) -> Float:
        """Column by column."""
        indptr, rows = self.M.indptr, self.M.rows
        return np.stack([U[rows[a:b]].T @ U[rows[a:b]] for a, b in pairwise(indptr)])

    def fit_subsets(self, U: Float, V: Float, draws: Draws) -> Float:
        """Draw by draw."""
        M, r, counts = self.M, U.shape[1], np.diff(self.M.indptr)
        best, least = np.array(V, dtype=np.float64), np.full(M.shape[1], np.inf)
        wanted = np.where(counts > r, float(draws.max_draws), 0.0)
        owner = np.repeat(np.arange(M.shape[1]), counts)

        def sums(y: NDArray[Any]) -> Float:
            return np.bincount(owner, weights=y, minlength=M.shape[1]).astype(np.float64, copy=False)

        for d in range(draws.max_draws):
            active = np.flatnonzero(d < wanted)
            if not active.size:
                break
            drawn = M.indptr[:-1][active, None] + _draw(draws.seeds[active], d, r, counts[active])
            fits = best.copy()
            fits[active], determined = _solve_square(U[M.rows[drawn]], M.values[drawn].astype(np.float64))
            e = self.residual(U, fits)
            loss = sums(np.log1p((e / draws.c) ** 2))
            better = np.zeros(M.shape[1], bool)
            better[active] = determined & (loss < least)[active]
            best[better], least[better] = fits[better], loss[better]
            share = sums(np.abs(e) <= draws.bound)[better] / counts[better]
            wanted[better] = np.minimum(draws.clean_draws / share**r, draws.max_draws)
        return best

    def fit_blocks(self, blocks: Blocks) -> BlockFits:
        """Block by block."""
        rank, n = blocks.start_vectors.shape
        U, V = np.zeros((self.M.shape[0], rank)), np.zeros((n, rank))
        noise, ranks = [], []
        for row_range, column_range in zip(pairwise(blocks.row_starts), pairwise(blocks.column_starts), strict=True):
            rows, columns = slice(*row_range), slice(*column_range)
            u, v, scale = _fit_block(_take_block(self.M, rows, columns), blocks.start_vectors[:, columns], blocks.unit)
            U[rows, : u.shape[1]], V[columns, : v.shape[1]] = u, v
            noise.append(scale)
            ranks.append(u.shape[1])
        return BlockFits(U, V, np.array(noise), np.array(ranks))

    def kth_largest(self, y: Float, k: NDArray[np.int64]) -> Float:
        """Column by column."""
        found = np.full(self.M.shape[1], np.inf)
        for j, (a, b) in enumerate(pairwise(self.M.indptr)):
            if k[j] > b - a:
                found[j] = 0.0
            elif k[j] > 0:
                found[j] = np.partition(np.abs(y[a:b]), b - a - k[j])[b - a - k[j]]
        return found

    def gram_product(self, Q: Float) -> Float:
        """Return A Aᵀ Q through scipy.sparse."""
        A = _csc(self.M)
        return np.asarray(A @ (A.T @ Q), dtype=np.float64)


def _solve_square(A: Float, b: Float) -> tuple[Float, NDArray[np.bool_]]:
    """x with A x = b for a stack of square matrices, and whether each of them determines it."""
    sizes = np.linalg.svd(A, compute_uv=False)
    determined = sizes[:, -1] > DETERMINED * sizes[:, 0]
    x = np.zeros_like(b)
    x[determined] = np.linalg.solve(A[determined], b[determined][:, :, None])[:, :, 0]
    return x, determined


def _draw(seeds: NDArray[np.uint64], d: int, r: int, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The d-th draw, for each seed, of r different integers below its count (splitmix64): seeds x r."""
    drawn = np.empty((seeds.size, r), np.int64)
    for k in range(r):
        z = seeds.astype(np.uint64) + np.uint64((d * r + k + 1) * 0x9E3779B97F4A7C15 % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = (z ^ (z >> np.uint64(31))) >> np.uint64(32)
        drawn[:, k] = (z * counts.astype(np.uint64)) >> np.uint64(32)
        while (taken := np.any(drawn[:, :k] == drawn[:, k, None], axis=1)).any():
            drawn[taken, k] = (drawn[taken, k] + 1) % counts[taken]
    return drawn


class CompressedColumns(NamedTuple):
    """Entries sorted by column (see `Columns`)."""

    indptr: NDArray[np.int64]
    rows: NDArray[np.int32]
    values: NDArray[np.floating[Any]]
    shape: tuple[int, int]


def _csc(M: Columns, values: Float | None = None) -> sparse.csc_array:
    """M as a sparse array, perhaps with other values."""
    return sparse.csc_array((M.values if values is None else values, M.rows, M.indptr), shape=M.shape)


def _take_block(M: Columns, rows: slice, columns: slice) -> CompressedColumns:
    """Rows and columns without entries elsewhere."""
    indptr = M.indptr[columns.start : columns.stop + 1]
    entries = slice(int(indptr[0]), int(indptr[-1]))
    shape = (int(rows.stop - rows.start), int(columns.stop - columns.start))
    own_rows = (M.rows[entries] - rows.start).astype(np.int32)
    return CompressedColumns(indptr - indptr[0], own_rows, M.values[entries].astype(np.float64), shape)


def _fit_block(A: CompressedColumns, start_vectors: Float, unit: float) -> tuple[Float, Float, float]:
    """U and V of a block, and the scale of its residuals."""
    m, n = A.shape
    T = _csc(A).T.tocsc()
    by_column, by_row = (
        ColumnSweep(A),
        ColumnSweep(CompressedColumns(T.indptr.astype(np.int64), T.indices, T.data, (n, m))),
    )
    rank, smallest, c = len(start_vectors), SMALLEST * unit, unit
    U, V, e, noise = np.zeros((m, 0)), np.zeros((n, 0)), -A.values, np.inf
    clip = c
    for k in range(1, rank + 1):
        new = _leading_vector(_csc(A, np.clip(-e, -clip, clip)), start_vectors[k - 1])
        U, R = np.linalg.qr(np.column_stack([U, new]))
        V = np.column_stack([V, np.zeros(n)]) @ R.T
        history: list[float] = []
        for n_passes in range(PASSES[1]):
            options = Robust(c=c, n_reweight=2 if n_passes < 3 else 1, shrink=SHRINK)
            Q, R = np.linalg.qr(by_column.regress(U, V, options).V)
            U, R = np.linalg.qr(by_row.regress(Q, U @ R.T, options).V)
            V = Q @ R.T
            e = by_column.residual(U, V)
            low, most = (np.partition(np.abs(e), int(q * e.size))[int(q * e.size)] for q in (LOW, MOST))
            noise = CONSISTENT_LOW * float(low)
            c = max(NARROW * noise, PACE[int(most < CLOSE * c)] * c, smallest)
            history.append(noise)
            if len(history) >= PASSES[0]:
                wait = k == rank or noise < NEARLY * unit
                limit = SETTLED * history[-4] if wait else FALLING * history[-2]
                if not (noise < limit and c > smallest):
                    break
        if noise <= EXACT * unit:
            break
        clip = max(noise, smallest)
        c = NARROW * clip
    return U, V, noise


def _leading_vector(A: sparse.csc_array, start: Float) -> Float:
    """The leading left singular vector of A, not normalized."""
    x = A @ start
    for _ in range(PRODUCTS):
        x = A @ (A.T @ (x / (np.linalg.norm(x) + np.finfo(float).tiny)))
    return np.asarray(x, dtype=np.float64)
