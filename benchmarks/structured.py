"""Made-up problems whose holes and errors have structure, as those of real tables do, and what of them can be found.

L has singular values in geometric progression and a root mean square of 1. Each problem has one kind of hole, of error
and of factors of L; sizes, rank, condition, noise and the share of wrong entries are drawn. Constants of the default
method were chosen on `TUNED` kinds, with other seeds. Wrong answers to problems of all kinds were looked at when the
tests of an answer were designed, those that ask for one rank more, for attempts that agree, and for components that
only some lines have.

What can be found: only rows and columns count in which half of the entries are right, and five more than the rank. Of
L an entry is determined there if the entries that are right fix it to within a tenth of the root mean square, given
noise of the size it has (or of 10⁻⁴ where it has none). This is the posterior of L around the truth to first order,
under a normal prior on the factors: the normal equations of the factors are solved densely.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

import lowsparse as ls

__all__ = ["ERRORS", "FACTORS", "HOLES", "TUNED_ERRORS", "TUNED_HOLES", "StructuredProblem", "draw_problem"]

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]
Rng = np.random.Generator

SMALLEST_NOISE = 1e-4  # that determination is judged by, against the root mean square of L
DETERMINED = 0.1  # standard deviation up to which an entry of L is determined
PROBES = 6  # samples of the posterior
MARGIN = 5  # entries of a line beyond the rank that are right, at least
FEWEST = 8  # lines that have a component

# ---------------------------------------------------------------------- holes: True is observed


def _all(m: int, n: int, rank: int, rng: Rng) -> Bool:
    return np.ones((m, n), bool)


def _random(m: int, n: int, rank: int, rng: Rng) -> Bool:
    least = min(3.0 * rank * (m + n) / (m * n), 0.9)
    return np.asarray(rng.random((m, n)) < rng.uniform(least, 1.0))


def _power_law(m: int, n: int, rank: int, rng: Rng) -> Bool:
    """Some rows and columns have many entries, most have few."""
    a, b = (rng.permutation(np.arange(1, k + 1) ** -rng.uniform(0.2, 0.8)) for k in (m, n))
    p = np.outer(a, b)
    wanted = rng.uniform(0.2, 0.6)
    low, high = 0.0, 1e6
    for _ in range(60):  # so that this share is observed
        scale = (low + high) / 2
        low, high = (scale, high) if np.minimum(scale * p, 1).mean() < wanted else (low, scale)
    return np.asarray(rng.random((m, n)) < scale * p)


def _corner(m: int, n: int, rank: int, rng: Rng) -> Bool:
    """One corner was never measured."""
    seen = np.ones((m, n), bool)
    seen[: int(rng.uniform(0.4, 0.8) * m), : int(rng.uniform(0.4, 0.8) * n)] = False
    return np.asarray(seen & (rng.random((m, n)) < rng.choice([1.0, 0.8])))


def _late(m: int, n: int, rank: int, rng: Rng) -> Bool:
    """Columns begin at different times; a few of them early."""
    first = rng.beta(1.0, rng.uniform(0.8, 2.0), n) * 0.95 * m
    first[rng.permutation(n)[: max(rank + 2, n // 10)]] = 0
    return np.asarray(np.arange(m)[:, None] >= first)


def _gaps(m: int, n: int, rank: int, rng: Rng) -> Bool:
    """In each column a few long gaps."""
    seen = np.ones((m, n), bool)
    for j in range(n):
        for _ in range(rng.integers(1, 4)):
            length = int(rng.uniform(0.05, 0.3) * m)
            first = int(rng.integers(m))
            seen[first : first + length, j] = False
    return seen


def _chain(m: int, n: int, rank: int, rng: Rng) -> Bool:
    """Blocks along the diagonal, each sharing rows and columns with the next."""
    k = int(rng.integers(2, 5))
    seen = np.zeros((m, n), bool)
    overlap = rng.uniform(0.2, 0.5)
    for b in range(k):
        rows, columns = (slice(int(b * s), math.ceil((b + 1 + overlap) * s)) for s in (m / k, n / k))
        seen[rows, columns] = True
    return seen


def _staircase(m: int, n: int, rank: int, rng: Rng) -> Bool:
    """Below a diagonal, as in tables of claims by year and age."""
    least = 2 * rank + 2
    last = np.maximum(np.linspace(1.0, rng.uniform(0.05, 0.3), n) * m, min(least, m))
    seen = np.arange(m)[:, None] < last
    seen[:, : min(least, n)] = True
    return seen


def _band(m: int, n: int, rank: int, rng: Rng) -> Bool:
    """Around the diagonal: what is near in one way is measured in the other."""
    i, j = np.arange(m)[:, None] / m, np.arange(n) / n
    return np.asarray(np.abs(i - j) < max(rng.uniform(0.2, 0.5), 4 * rank / min(m, n)))


def _cross(m: int, n: int, rank: int, rng: Rng) -> Bool:
    """A few rows and a few columns in full, and little else."""
    seen = rng.random((m, n)) < rng.uniform(0.0, 0.1)
    rows = rng.permutation(m)[: 2 * rank + int(rng.uniform(0.05, 0.3) * m)]
    columns = rng.permutation(n)[: 2 * rank + int(rng.uniform(0.05, 0.3) * n)]
    seen[rows], seen[:, columns] = True, True
    return seen


def _hinge(m: int, n: int, rank: int, rng: Rng) -> Bool:
    """Two blocks that share a few columns only."""
    cut, middle = int(rng.uniform(0.3, 0.7) * m), int(rng.uniform(0.3, 0.7) * n)
    shared = max(2 * rank + 3, int(rng.uniform(0.05, 0.2) * n))
    seen = np.zeros((m, n), bool)
    seen[:cut, : middle + shared // 2] = True
    seen[cut:, max(0, middle - shared + shared // 2) :] = True
    return seen


def _rounds(m: int, n: int, rank: int, rng: Rng) -> Bool:
    """Every row is visited every few columns only, each with its own rhythm."""
    period, phase = rng.integers(1, 6, m), rng.integers(0, 6, m)
    return np.asarray((np.arange(n) + phase[:, None]) % period[:, None] == 0)


HOLES: dict[str, Callable[[int, int, int, Rng], Bool]] = {
    "none": _all,
    "random": _random,
    "power law": _power_law,
    "corner": _corner,
    "late": _late,
    "gaps": _gaps,
    "chain": _chain,
    "staircase": _staircase,
    "band": _band,
    "cross": _cross,
    "hinge": _hinge,
    "rounds": _rounds,
}
TUNED_HOLES = ("none", "random", "power law", "corner", "late", "gaps", "chain")

# ---------------------------------------------------------------------- errors: they change X in place


def _scattered_places(X: Float, share: float, rng: Rng) -> Bool:
    return rng.random(X.shape) < share


def _no_errors(X: Float, share: float, rng: Rng) -> None:
    return


def _scattered(X: Float, share: float, rng: Rng) -> None:
    at = _scattered_places(X, share, rng)
    X[at] += rng.uniform(1, 6) * rng.standard_normal(int(at.sum()))


def _one_sided(X: Float, share: float, rng: Rng) -> None:
    at = _scattered_places(X, share, rng)
    X[at] += rng.uniform(1, 8) * (1 + rng.random(int(at.sum())))


def _huge(X: Float, share: float, rng: Rng) -> None:
    at = _scattered_places(X, share, rng)
    X[at] = 10 ** rng.uniform(2, 5) * rng.standard_normal(int(at.sum()))


def _small(X: Float, share: float, rng: Rng) -> None:
    at = _scattered_places(X, share, rng)
    X[at] += rng.uniform(0.3, 1.0) * rng.standard_normal(int(at.sum()))


def _rows(X: Float, share: float, rng: Rng) -> None:
    which = rng.permutation(len(X))[: round(share * len(X))]
    X[which] = rng.uniform(1, 4) * rng.standard_normal((len(which), X.shape[1]))


def _columns(X: Float, share: float, rng: Rng) -> None:
    _rows(X.T, share, rng)


def _patch(X: Float, share: float, rng: Rng) -> None:
    """A rectangle has one value."""
    m, n = X.shape
    tall = rng.uniform(share, 1.0) ** 0.5 * math.sqrt(share) / share**0.25 if share < 1 else 1.0
    tall = float(np.clip(tall, share, 1.0))
    height, width = max(1, int(tall * m)), max(1, int(share / tall * n))
    i, j = rng.integers(m - height + 1), rng.integers(n - width + 1)
    X[i : i + height, j : j + width] = rng.choice([-1, 1]) * rng.uniform(1, 6)


def _segments(X: Float, share: float, rng: Rng) -> list[tuple[slice, int]]:
    """Runs down the columns, a tenth of a column long, which have this share of the entries."""
    m, n = X.shape
    length = max(2, round(0.1 * m))
    starts = rng.permutation((m // length) * n)[: round(share * m * n / length)]
    return [(slice(int(k // n) * length, (int(k // n) + 1) * length), int(k % n)) for k in starts]


def _runs(X: Float, share: float, rng: Rng) -> None:
    """A run in time is off by one number."""
    size = rng.uniform(1, 6)
    for at, j in _segments(X, share, rng):
        X[at, j] += size * rng.standard_normal()


def _stuck(X: Float, share: float, rng: Rng) -> None:
    """The reading before is repeated for a while."""
    for at, j in _segments(X, share, rng):
        X[at, j] = X[at.start, j]


def _units(X: Float, share: float, rng: Rng) -> None:
    """Runs in another unit."""
    factor = rng.choice([10.0, 0.1, 2.54, 1 / 1.8])
    for at, j in _segments(X, share, rng):
        X[at, j] *= factor


def _turned(X: Float, share: float, rng: Rng) -> None:
    """Signs are turned round."""
    at = _scattered_places(X, share, rng)
    X[at] *= -1


def _swapped(X: Float, share: float, rng: Rng) -> None:
    """Runs of two columns are exchanged."""
    found = _segments(X, share, rng)
    for at, j in found[::2]:
        k = int(rng.integers(X.shape[1]))
        X[at, j], X[at, k] = X[at, k].copy(), X[at, j].copy()


def _clipped(X: Float, share: float, rng: Rng) -> None:
    """An instrument ends at some value."""
    np.minimum(X, np.quantile(X, 1 - share), out=X)


def _drift(X: Float, share: float, rng: Rng) -> None:
    """From some time on a column drifts away."""
    m, n = X.shape
    for j in rng.permutation(n)[: round(min(2 * share, 0.6) * n)]:
        first = int(rng.uniform(0.2, 0.8) * m)
        X[first:, j] += rng.choice([-1, 1]) * rng.uniform(1, 5) * (1 + np.arange(m - first) / m)


def _other_matrix(X: Float, share: float, rng: Rng) -> None:
    """In some rows and columns another matrix of rank 1 is added: an error with the structure of what is sought."""
    m, n = X.shape
    rows, columns = (rng.permutation(k)[: math.ceil(math.sqrt(share) * k)] for k in (m, n))
    X[np.ix_(rows, columns)] += rng.uniform(1, 4) * np.outer(
        rng.standard_normal(rows.size), rng.standard_normal(columns.size)
    )


def _copies(X: Float, share: float, rng: Rng) -> None:
    """Rows hold the entries of one and the same other row."""
    which = rng.permutation(len(X))[: 1 + round(share * len(X))]
    X[which[1:]] = rng.standard_normal(X.shape[1])


ERRORS: dict[str, Callable[[Float, float, Rng], None]] = {
    "none": _no_errors,
    "scattered": _scattered,
    "one-sided": _one_sided,
    "huge": _huge,
    "small": _small,
    "rows": _rows,
    "columns": _columns,
    "patch": _patch,
    "runs": _runs,
    "stuck": _stuck,
    "units": _units,
    "turned": _turned,
    "swapped": _swapped,
    "clipped": _clipped,
    "drift": _drift,
    "other matrix": _other_matrix,
    "copies": _copies,
}
TUNED_ERRORS = ("none", "scattered", "one-sided", "huge", "small", "rows", "columns", "patch", "runs", "stuck")

# ---------------------------------------------------------------------- factors of L: of its rows, and of its columns

Factors = tuple[Float, Float]


def _normal(m: int, n: int, rank: int, rng: Rng) -> Factors:
    return rng.standard_normal((m, rank)), rng.standard_normal((n, rank))


def _some_lines(m: int, n: int, rank: int, rng: Rng) -> Factors:
    """Only some of the rows, or of the columns, have one of the components: an odd but coherent group."""
    U, V = _normal(m, n, rank, rng)
    F = U if rng.random() < 0.5 else V
    if rank > 1:
        size = max(FEWEST, math.ceil(rng.uniform(0.03, 0.3) * len(F)))
        F[rng.permutation(len(F))[size:], int(rng.integers(rank))] = 0
    return U, V


def _unequal(m: int, n: int, rank: int, rng: Rng) -> Factors:
    """Some rows and columns are far larger than others."""
    U, V = _normal(m, n, rank, rng)
    return U * np.exp(0.8 * rng.standard_normal((m, 1))), V * np.exp(0.8 * rng.standard_normal((n, 1)))


def _grouped(m: int, n: int, rank: int, rng: Rng) -> Factors:
    """Rows are those of a few types, with small differences."""
    U, V = _normal(m, n, rank, rng)
    return U[rng.integers(0, max(rank + 1, 5), m)] + 0.1 * rng.standard_normal((m, rank)), V


FACTORS: dict[str, Callable[[int, int, int, Rng], Factors]] = {
    "normal": _normal,
    "some lines": _some_lines,
    "unequal": _unequal,
    "grouped": _grouped,
}

# ---------------------------------------------------------------------- a problem


@dataclass(frozen=True)
class StructuredProblem:
    """What is given, and the truth."""

    M: ls.ObservedMatrix
    L: ls.LowRank
    rank: int
    noise: float  # standard deviation
    right: Bool  # of the entries of M: within four standard deviations of L
    determined: Bool  # m x n: of the entries of L, by the entries of M that are right
    expected: float  # root mean square error there of a fit to the entries that are right
    about: str

    @property
    def tolerance(self) -> float:
        """An entry is explained if it is as close to L as this."""
        return 4 * self.noise + 1e-5

    def explained(self, L: ls.LowRank) -> float:
        """The share of the observed entries that L explains."""
        e = np.asarray(L.at(self.M.rows, self.M.columns_of_entries())) - self.M.values
        return float(np.mean(np.abs(e) <= self.tolerance))

    @property
    def findable(self) -> bool:
        """Whether the truth explains more than half of the entries, and these determine most of what was observed."""
        i, j = self.M.rows, self.M.columns_of_entries()
        return float(self.right.mean()) > 0.5 and float(self.determined[i, j][self.right].mean()) > 0.8


def draw_problem(
    seed: list[int], hole: str, error: str, *, factors: str = "normal", largest: int = 700
) -> StructuredProblem:
    """A problem of these kinds; the seed says all else."""
    rng = np.random.default_rng(seed)
    m, n = (int(math.exp(rng.uniform(math.log(30), math.log(largest)))) for _ in range(2))
    rank = int(min(rng.choice([1, 2, 3, 5, 7, 10]), min(m, n) // 10))
    rank = max(rank, 1)
    condition = float(rng.choice([1.0, 3.0, 10.0, 100.0])) if rank > 1 else 1.0
    noise = float(rng.choice([0.0, 0.0, 0.001, 0.01, 0.1]))
    share = float(rng.uniform(0.05, 0.3))
    sigma = condition ** -np.linspace(0, 1, rank) if rank > 1 else np.ones(1)
    sigma *= math.sqrt(m * n) / np.linalg.norm(sigma)
    U, V = (np.linalg.qr(F)[0] for F in FACTORS[factors](m, n, rank, rng))
    L = ls.LowRank(U * sigma, V.T)
    seen = HOLES[hole](m, n, rank, rng)
    X = L.to_dense() + noise * rng.standard_normal((m, n))
    ERRORS[error](X, share, rng)
    M = ls.ObservedMatrix.from_dense(np.where(seen, X, np.nan))
    e = np.asarray(L.at(M.rows, M.columns_of_entries())) - M.values
    right = np.abs(e) <= 4 * noise + 1e-9
    about = f"{m} x {n}, rank {rank}, condition {condition:g}, noise {noise:g}, share {share:.2f}"
    core = _core(M, right, rank)
    deviation = posterior_deviation(M, L, right & core[M.rows, M.columns_of_entries()], max(noise, SMALLEST_NOISE))
    determined = core & (deviation <= DETERMINED)
    expected = float(np.sqrt(np.mean(deviation[determined] ** 2))) if noise and determined.any() else 0.0
    about += f", {hole}, {error}, {factors}"
    return StructuredProblem(M, L, rank, noise, right, determined, expected, about)


def _core(M: ls.ObservedMatrix, right: Bool, rank: int) -> Bool:
    """The rows and columns that have enough entries in each other that are right, and not more that are wrong."""
    good = np.zeros(M.shape, bool)
    good[M.rows[right], M.columns_of_entries()[right]] = True
    seen = np.zeros(M.shape, bool)
    seen[M.rows, M.columns_of_entries()] = True
    rows, columns = np.ones(M.shape[0], bool), np.ones(M.shape[1], bool)
    while True:
        before = rows.sum() + columns.sum()
        for axis, lines, across in ((1, rows, columns), (0, columns, rows)):
            inside = np.expand_dims(across, 1 - axis)
            some, total = (good & inside).sum(axis), (seen & inside).sum(axis)
            lines &= (some >= rank + MARGIN) & (2 * some >= total)
        if rows.sum() + columns.sum() == before:
            return np.outer(rows, columns)


def posterior_deviation(M: ls.ObservedMatrix, L: ls.LowRank, right: Bool, noise: float) -> Float:
    """The standard deviation of every entry of L, sampled, given the entries that are right with this noise.

    With L = A Bᵀ, balanced, and a prior N(0, their mean square) on the changes dA and dB, the posterior of (dA, dB) is
    normal, with H = JᵀJ / noise² + the prior as its inverse covariance; dL = dA Bᵀ + A dBᵀ. dB is eliminated first.
    """
    m, n = M.shape
    Q, R = np.linalg.qr(L.U)
    left, sizes, right_vectors = np.linalg.svd(R @ L.V, full_matrices=False)
    A, B = (Q @ left) * np.sqrt(sizes), right_vectors.T * np.sqrt(sizes)
    if m > n:
        return posterior_deviation(M.T, L.T, _transposed(M, right), noise).T
    r = len(sizes)
    prior_a, prior_b = r / np.sum(A**2, axis=0).sum() * m, r / np.sum(B**2, axis=0).sum() * n
    prior_a, prior_b = max(prior_a, 1e-12), max(prior_b, 1e-12)
    keep = np.flatnonzero(right)
    rows, columns = M.rows[keep], M.columns_of_entries()[keep]
    starts = np.searchsorted(columns, np.arange(n + 1))
    coupled = np.zeros((m, r, n, r))
    roots = np.empty((n, r, r))
    own_blocks = np.zeros((m, r, m, r))
    by_row = np.zeros((m, r, r))
    np.add.at(by_row, rows, B[columns][:, :, None] * B[columns][:, None, :])
    own_blocks[np.arange(m), :, np.arange(m), :] = by_row / noise**2 + prior_a * np.eye(r)
    for j, (a, b) in enumerate(pairwise(starts)):
        own = A[rows[a:b]]
        factor = np.linalg.cholesky(own.T @ own / noise**2 + prior_b * np.eye(r))
        roots[j] = np.linalg.inv(factor)
        T = own @ roots[j].T / noise**2
        coupled[rows[a:b], :, j, :] = B[j][None, :, None] * T[:, None, :]
    G = coupled.reshape(m * r, n * r)
    S = own_blocks.reshape(m * r, m * r) - G @ G.T
    whole = cho_factor(S, lower=True, overwrite_a=True, check_finite=False)
    rng = np.random.default_rng(5)
    total = np.zeros((m, n))
    for _ in range(PROBES):
        z = rng.standard_normal(rows.size) / noise
        ga = np.zeros((m, r))
        np.add.at(ga, rows, z[:, None] * B[columns])
        gb = np.zeros((n, r))
        np.add.at(gb, columns, z[:, None] * A[rows])
        ga += math.sqrt(prior_a) * rng.standard_normal(ga.shape)
        gb += math.sqrt(prior_b) * rng.standard_normal(gb.shape)
        half = np.einsum("jkl,jl->jk", roots, gb)
        da = cho_solve(whole, ga.ravel() - G @ half.ravel(), check_finite=False)
        db = np.einsum("jlk,jl->jk", roots, half - (G.T @ da).reshape(n, r))
        da = da.reshape(m, r)
        total += (da @ B.T + A @ db.T) ** 2
    return np.sqrt(total / PROBES)


def _transposed(M: ls.ObservedMatrix, flags: Bool) -> Bool:
    """One flag per entry of M, in the order of M.T."""
    order = np.lexsort((M.columns_of_entries(), M.rows))
    return flags[order]
