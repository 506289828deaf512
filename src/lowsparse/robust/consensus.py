"""Coefficients of single lines that explain the most entries, by random subsets.

A robust regression ends in a local minimum of Σ log(1 + (e/c)²), and even the global one may be wrong: where errors
form a run, a compromise between them and the right entries has the smaller sum if factors are smooth. But fewer entries
are explained by it. Here, as in RANSAC, subsets of r entries are fitted exactly, and what explains most entries is
improved by least squares on these. Where the entries that are left have coefficients of their own that explain about
as many, as in a column half of which is in other units, nobody can tell which are right: such lines are ambiguous.
"""

import numpy as np
from numpy.typing import NDArray

from ..entries.observed import ObservedMatrix
from ..entries.statistics import column_sums
from ..sweeps import Float, min_support
from .regression import WILD

POOR = 0.9  # share of its entries that a line explains, relative to the usual one, below which it is looked at
DRAWS = (20, 300)  # least and largest number of subsets; about 10 of them are right if half of the entries are
MAX_WORK, INVERSE = 3e7, 20  # draws times (entries times rank, and the second number times rank³), over all lines
STEPS = 5  # of least squares on the explained entries
MANY_LINES = 2000  # rows and columns of a matrix, above which single ones are not looked at
RIVAL = 0.8  # entries that other coefficients must explain to be a rival, as a share of those that the first explain

Lines = tuple[tuple[int, ...], tuple[int, ...]]  # rows, and columns


def explains(M: ObservedMatrix, B: Float, C: Float, bound: float) -> NDArray[np.bool_]:
    """Of each entry of M, whether its residual is at most `bound`, given coefficients C (n x r) on B."""
    return np.asarray(np.abs(M.open_sweep().residual(B, C)) <= bound)


def explain_more(M: ObservedMatrix, B: Float, C: Float, bound: float) -> tuple[Float, NDArray[np.intp]]:
    """Coefficients (n x r) of the columns of M on B, those of poorly explained ones replaced by what explains more.

    An entry is explained if its residual is at most `bound`. Returns them, and how many more they explain by column.

    >>> B = np.linalg.qr(np.vander(np.linspace(-1, 1, 40), 2))[0]
    >>> X = np.outer(B[:, 0], np.ones(5))
    >>> X[:15, 0] += 1.0
    >>> C = np.tile([1.0, 0.0], (5, 1))
    >>> C[0] = 0.5, 2.0
    >>> found, gained = explain_more(ObservedMatrix.from_dense(X), B, C, 1e-6)
    >>> gained.tolist(), found[0].round(6).tolist()
    ([25, 0, 0, 0, 0], [1.0, 0.0])
    """
    r, counts = B.shape[1], M.column_counts
    explained = explains(M, B, C, bound)
    share = column_sums(M, explained)[0] / np.maximum(counts, 1)
    some = counts > 2 * min_support(r)
    usual = float(np.median(share[some])) if some.any() else 0.0
    poor = np.flatnonzero(some & (share < POOR * usual))
    rng = np.random.default_rng(0x636F6E)
    longest = WILD * float(np.median(np.linalg.norm(C, axis=1)))
    C, gained = C.copy(), np.zeros(len(C), np.intp)
    for j in _affordable(poor, counts, r, rng):
        F, x = _column(M, B, j)
        found = _consensus(F, x, bound, rng)
        new, old = (np.abs(F @ c - x) <= bound for c in (found, C[j]))
        more, fewer = (int(np.count_nonzero(only)) for only in (new & ~old, old & ~new))
        if more - fewer > max(r, np.sqrt(more + fewer)) and np.linalg.norm(found) <= longest:
            C[j], gained[j] = found, more - fewer
    return C, gained


def lines_with_two_fits(M: ObservedMatrix, U: Float, V: Float, bound: float, unexplained: NDArray[np.intp]) -> Lines:
    """The rows and columns of M of which other coefficients explain about as many entries, most of them others.

    Which of the two are right, such a line does not tell. `unexplained` are the entries that L = U Vᵀ does not explain.

    >>> U = np.linalg.qr(np.vander(np.linspace(-1, 1, 40), 2))[0]
    >>> V = np.tile([1.0, 0.0], (5, 1))
    >>> X = U @ V.T
    >>> X[::2, 3] *= 10.0  # half of this column is in other units
    >>> M = ObservedMatrix.from_dense(X)
    >>> lines_with_two_fits(M, U, V, 1e-6, np.flatnonzero(X.T.ravel() != (U @ V.T).T.ravel()))
    ((), (3,))
    """
    r, found = U.shape[1], []
    for by_row, lines, counts in ((True, M.rows, M.row_counts), (False, M.columns_of_entries(), M.column_counts)):
        rest = np.bincount(lines[unexplained], minlength=counts.size)
        many = np.flatnonzero((rest + r >= RIVAL * (counts - rest)) & (rest > min_support(r)))
        found.append(_with_rivals(*((M.T, V, U) if by_row else (M, U, V)), many, bound) if many.size else ())
    rows, columns = found
    return rows, columns


def _with_rivals(M: ObservedMatrix, B: Float, C: Float, some: NDArray[np.intp], bound: float) -> tuple[int, ...]:
    """Of some columns of M, those of which other coefficients on B explain about as many entries as C."""
    rng, found = np.random.default_rng(0x726976), []
    for j in _affordable(some, M.column_counts, B.shape[1], rng):
        F, x = _column(M, B, j)
        explained = np.abs(F @ C[j] - x) <= bound
        c = _consensus(F[~explained], x[~explained], bound, rng)
        if np.count_nonzero(np.abs(F @ c - x) <= bound) >= RIVAL * np.count_nonzero(explained):
            found.append(j)
    return tuple(sorted(found))


def _affordable(columns: NDArray[np.intp], counts: NDArray[np.integer], r: int, rng: np.random.Generator) -> list[int]:
    """As many of these columns, in random order, as can be looked at."""
    if not columns.size:
        return []
    work = _n_draws(r) * (float(np.mean(counts[columns])) * r + INVERSE * r**3)
    return [int(j) for j in rng.permutation(columns)[: int(MAX_WORK / work)]]


def _n_draws(r: int) -> int:
    return int(np.clip(10 * 2.0**r, *DRAWS))


def _column(M: ObservedMatrix, B: Float, j: int) -> tuple[Float, Float]:
    """The rows of B at the entries of a column, and these entries."""
    at = slice(M.indptr[j], M.indptr[j + 1])
    return B[M.rows[at]], M.values[at].astype(np.float64)


def _consensus(F: Float, x: Float, bound: float, rng: np.random.Generator) -> Float:
    """The coefficients of x on F that explain the most entries, of subsets as many as there are coefficients."""
    r = F.shape[1]
    subsets: NDArray[np.intp] = np.argpartition(rng.random((_n_draws(r), x.size)), r, axis=1)[:, :r]
    fits = np.einsum("dij,dj->di", np.linalg.pinv(F[subsets]), x[subsets])
    best = fits[np.argmax(np.count_nonzero(np.abs(fits @ F.T - x) <= bound, axis=1))]
    for _ in range(STEPS):
        inside = np.abs(F @ best - x) <= bound
        if np.count_nonzero(inside) <= r:
            break
        best = np.linalg.lstsq(F[inside], x[inside], rcond=None)[0]
    return np.asarray(best, dtype=np.float64)
