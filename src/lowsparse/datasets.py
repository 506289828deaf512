"""Data whose truth is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .lowrank import LowRank
from .observed import ObservedMatrix

__all__ = ["PAPER_CASES", "SyntheticProblem", "paper_case", "synthetic"]

# m, n, rank, share observed, share of the observed that is corrupted (Section VI, cases 1 to 8)
PAPER_CASES = {
    1: (5000, 5000, 5, 0.1, 0.1),
    2: (1000, 30000, 5, 0.1, 0.1),
    3: (10000, 10000, 5, 0.1, 0.1),
    4: (2000, 2000, 10, 0.2, 0.1),
    5: (5000, 5000, 10, 0.1, 0.1),
    6: (5000, 5000, 5, 0.2, 0.1),
    7: (5000, 5000, 5, 0.1, 0.2),
    8: (10000, 10000, 5, 0.2, 0.1),
}


@dataclass(frozen=True)
class SyntheticProblem:
    """Observed entries M = L + S + noise on Ω, with L and S known."""

    M: ObservedMatrix
    L: LowRank
    S: NDArray[np.float64]  # on Ω, in the order of M.values


def synthetic(
    m: int,
    n: int,
    *,
    rank: int,
    density: float,
    outliers: float,
    outlier_size: float = 1.0,
    noise: float = 0.0,
    dtype: Any = np.float64,
    random_state: int | np.random.Generator | None = None,
) -> SyntheticProblem:
    """A robust completion problem as in the paper: L = U V with standard normal factors, S standard normal.

    Every entry is observed with probability `density`; every observed one is corrupted with probability `outliers` by
    a normal number of standard deviation `outlier_size`, and all by normal noise of standard deviation `noise`.

    >>> problem = synthetic(40, 30, rank=2, density=0.5, outliers=0.1, random_state=3)
    >>> bool(np.allclose(problem.M.values - problem.S, problem.L.at(problem.M.rows, problem.M.columns_of_entries())))
    True
    """
    if not 0 < density <= 1:
        raise ValueError(f"density must be in (0, 1], not {density}")
    if not 0 <= outliers < 1:
        raise ValueError(f"outliers must be in [0, 1), not {outliers}")
    rng = np.random.default_rng(random_state)
    L = LowRank(rng.standard_normal((m, rank)), rng.standard_normal((rank, n)))
    # Bernoulli sampling, column by column: the gaps between observed entries are geometric.
    position = np.full(1, -1, np.int64)
    parts = []
    while position[-1] < m * n:
        gaps = rng.geometric(density, size=int(1.05 * density * m * n) + 100)
        position = position[-1] + np.cumsum(gaps)
        parts.append(position[position < m * n])
    position = np.concatenate(parts)
    if not position.size:
        position = rng.integers(m * n, size=1)
    cols, rows = np.divmod(position, m)
    indptr = np.searchsorted(position, np.arange(n + 1) * m)
    S = np.where(rng.random(position.size) < outliers, outlier_size * rng.standard_normal(position.size), 0.0)
    values = L.at(rows, cols) + S
    if noise:
        values += noise * rng.standard_normal(position.size)
    return SyntheticProblem(ObservedMatrix(indptr, rows.astype(np.int32), values.astype(dtype), (m, n)), L, S)


def paper_case(case: int, *, shrink: int = 1, random_state: int | None = None) -> SyntheticProblem:
    """One of the paper's eight synthetic cases; `shrink` divides both sides (a small version of the same kind).

    >>> paper_case(1, shrink=50, random_state=0).M.shape
    (100, 100)
    """
    if case not in PAPER_CASES:
        raise ValueError(f"the paper has cases 1 to 8, not {case!r}")
    m, n, rank, density, outliers = PAPER_CASES[case]
    return synthetic(m // shrink, n // shrink, rank=rank, density=density, outliers=outliers, random_state=random_state)
