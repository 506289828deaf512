"""Coefficients of single lines that explain the most entries, by random subsets.

A robust regression ends in a local minimum of Σ log(1 + (e/c)²), and even the global one may be wrong: where errors
form a run, a compromise between them and the right entries has the smaller sum if factors are smooth. But fewer entries
are explained by it. Here, as in RANSAC, subsets of r entries are fitted exactly, and what explains most entries is
improved by least squares on these.
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


def explain_more(M: ObservedMatrix, B: Float, C: Float, bound: float) -> tuple[Float, int]:
    """Coefficients (n x r) of the columns of M on B, those of poorly explained ones replaced by what explains more.

    An entry is explained if its residual is at most `bound`. Returns them, and how many more entries they explain.

    >>> B = np.linalg.qr(np.vander(np.linspace(-1, 1, 40), 2))[0]
    >>> X = np.outer(B[:, 0], np.ones(5))
    >>> X[:15, 0] += 1.0
    >>> C = np.tile([1.0, 0.0], (5, 1))
    >>> C[0] = 0.5, 2.0
    >>> found, gained = explain_more(ObservedMatrix.from_dense(X), B, C, 1e-6)
    >>> gained, found[0].round(6).tolist()
    (25, [1.0, 0.0])
    """
    r, counts = B.shape[1], M.column_counts
    explained = np.abs(M.open_sweep().residual(B, C)) <= bound
    share = column_sums(M, explained)[0] / np.maximum(counts, 1)
    some = counts > 2 * min_support(r)
    usual = float(np.median(share[some])) if some.any() else 0.0
    poor = np.flatnonzero(some & (share < POOR * usual))
    n_draws = int(np.clip(10 * 2.0**r, *DRAWS))
    affordable = int(MAX_WORK / (n_draws * (float(np.mean(counts[poor])) * r + INVERSE * r**3))) if poor.size else 0
    rng = np.random.default_rng(0x636F6E)
    longest = WILD * float(np.median(np.linalg.norm(C, axis=1)))
    C, gained = C.copy(), 0
    for j in rng.permutation(poor)[:affordable]:
        F, x = _column(M, B, j)
        found = _consensus(F, x, bound, n_draws, rng)
        new, old = (np.abs(F @ c - x) <= bound for c in (found, C[j]))
        more, fewer = (int(np.count_nonzero(only)) for only in (new & ~old, old & ~new))
        if more - fewer > max(r, np.sqrt(more + fewer)) and np.linalg.norm(found) <= longest:
            C[j], gained = found, gained + more - fewer
    return C, gained


def _column(M: ObservedMatrix, B: Float, j: int) -> tuple[Float, Float]:
    """The rows of B at the entries of a column, and these entries."""
    at = slice(M.indptr[j], M.indptr[j + 1])
    return B[M.rows[at]], M.values[at].astype(np.float64)


def _consensus(F: Float, x: Float, bound: float, n_draws: int, rng: np.random.Generator) -> Float:
    """The coefficients of x on F that explain the most entries, of subsets as many as there are coefficients."""
    r = F.shape[1]
    subsets: NDArray[np.intp] = np.argpartition(rng.random((n_draws, x.size)), r, axis=1)[:, :r]
    fits = np.einsum("dij,dj->di", np.linalg.pinv(F[subsets]), x[subsets])
    best = fits[np.argmax(np.count_nonzero(np.abs(fits @ F.T - x) <= bound, axis=1))]
    for _ in range(STEPS):
        inside = np.abs(F @ best - x) <= bound
        if np.count_nonzero(inside) <= r:
            break
        best = np.linalg.lstsq(F[inside], x[inside], rcond=None)[0]
    return np.asarray(best, dtype=np.float64)
