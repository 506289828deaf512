"""Starting points: where U⁰ comes from."""

import numpy as np

from ..linalg.arrays import Float, host, inner, matmul_small, to_device_of
from ..linalg.grassmann import qf
from ..linalg.lowrank import LowRank
from ..support.checks import check_count
from ..sweeps import Sweep

OVERSAMPLING = 3  # columns of the random block beyond the rank


def generator(random_state: int | np.random.Generator | None) -> np.random.Generator:
    """The random generator of a solve.

    A seed is mixed with a constant first, so that data made with ``np.random.default_rng(0)`` and a solve with
    ``random_state=0`` never share their numbers: a random start would otherwise *be* the true factor.
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is None:
        return np.random.default_rng()
    seed = check_count("random_state", random_state, 0, also="a numpy Generator or None")
    return np.random.default_rng([0x6C6F7773, seed])


def left_singular_vectors(
    sweep: Sweep, m: int, rank: int, rng: np.random.Generator, *, tol: float = 1e-2, max_passes: int = 12
) -> tuple[Float, Float]:
    """The leading left singular vectors (m x rank) and singular values of the zero-filled observed matrix A.

    Block subspace iteration on A Aᵀ from a random block with a few more columns. Every pass over the data is one
    product Y = A Aᵀ Q, from which the Rayleigh-Ritz pairs and their residuals come for free. It ends when the residual
    ‖A Aᵀ X - X Θ‖ is at most `tol` ‖Θ‖; a start need not be more accurate than the data.
    """
    Q = qf(rng.standard_normal((m, min(rank + OVERSAMPLING, m))))
    for _ in range(max_passes):
        Y = sweep.gram_product(Q)
        Q = to_device_of(Q, Y)
        theta, W = np.linalg.eigh(inner(Q, Y))
        theta, W = theta[::-1][:rank], W[:, ::-1][:, :rank]
        residual = float(np.linalg.norm(matmul_small(Y, W) - matmul_small(Q, W) * to_device_of(theta, Q)))
        if residual <= tol * np.linalg.norm(theta):
            break
        Q = qf(Y)
    # the Ritz vectors after one more application of A Aᵀ, which is known already
    return qf(matmul_small(Y, W)), np.sqrt(np.maximum(theta, 0.0))


def starting_subspace(start: object, sweep: Sweep, m: int, rank: int, rng: np.random.Generator) -> Float:
    """U⁰ for `start` of `solve`: "svd", "random", a matrix with `rank` columns, a `LowRank` or a `Result`."""
    if isinstance(start, str):
        if start == "svd":
            return left_singular_vectors(sweep, m, rank, rng)[0]
        if start == "random":
            return qf(rng.standard_normal((m, rank)))
        raise ValueError(f"unknown start {start!r}: choose 'svd' or 'random', or give a matrix, a LowRank or a Result")
    lowrank = getattr(start, "L", start)
    given = host(lowrank.U if isinstance(lowrank, LowRank) else start)
    if given.dtype.kind not in "fiu":
        raise TypeError(f"the start must be a matrix of real numbers, a LowRank or a Result, not {start!r}")
    U = np.array(given[:, None] if given.ndim == 1 else given, dtype=np.float64)
    if U.shape != (m, rank):
        raise ValueError(f"the start has shape {U.shape}, but U is {m} x {rank} (rows of M x rank)")
    if not np.isfinite(U).all() or np.linalg.matrix_rank(U) < rank:
        raise ValueError(f"the start must be finite and of full column rank {rank}")
    return qf(U)
