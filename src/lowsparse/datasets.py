"""Synthetic problems and videos with a known solution."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .entries.observed import ObservedMatrix
from .entries.pictures import levels
from .linalg.lowrank import LowRank

__all__ = ["PAPER_CASES", "SyntheticProblem", "SyntheticVideo", "moving_blocks", "paper_case", "synthetic"]

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
    """Observed entries M = L + S + noise on Ω, with L and S known.

    Examples
    --------
    >>> problem = synthetic(60, 50, rank=2, density=0.5, outliers=0.1, random_state=1)
    >>> problem.M.shape, problem.L.rank, problem.S.size == problem.M.nnz
    ((60, 50), 2, True)
    """

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
    dtype: DTypeLike = np.float64,
    random_state: int | np.random.Generator | None = None,
) -> SyntheticProblem:
    """A robust completion problem as in the paper: L = U V with standard normal factors, S standard normal.

    Every entry is observed with probability `density`; every observed one is corrupted with probability `outliers` by
    a normal number of standard deviation `outlier_size`, and all by normal noise of standard deviation `noise`.

    Parameters
    ----------
    m, n, rank
        Shape and rank of L.
    density
        Share of the entries that are observed, above 0 and at most 1.
    outliers
        Share of the observed entries that are wrong, from 0 to below 1.
    outlier_size, noise
        Standard deviations of what is added to wrong entries, and to all.
    dtype
        Of the values.
    random_state
        A seed or a generator.

    Returns
    -------
    SyntheticProblem
        `M`, what is observed; `L`, the truth; `S`, the outliers of the observed entries.

    Raises
    ------
    ValueError
        If `density` or `outliers` is out of its range.

    Examples
    --------
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

    Parameters
    ----------
    case
        From 1 to 8.
    shrink
        Divides both sides.
    random_state
        A seed or a generator.

    Returns
    -------
    SyntheticProblem
        As from `synthetic`.

    Raises
    ------
    ValueError
        If there is no such case.

    Examples
    --------
    >>> paper_case(1, shrink=50, random_state=0).M.shape
    (100, 100)
    """
    if case not in PAPER_CASES:
        raise ValueError(f"the paper has cases 1 to 8, not {case!r}")
    m, n, rank, density, outliers = PAPER_CASES[case]
    return synthetic(m // shrink, n // shrink, rank=rank, density=density, outliers=outliers, random_state=random_state)


@dataclass(frozen=True)
class SyntheticVideo:
    """Grey frames of a scene in which blocks move in front of a background that is known.

    Examples
    --------
    >>> clip = moving_blocks(20, 40, 48, random_state=2)
    >>> clip.frames.shape, clip.background.dtype.name, clip.moving.dtype.name
    ((20, 40, 48), 'uint8', 'bool')
    """

    frames: NDArray[np.uint8]  # (T, H, W)
    background: NDArray[np.uint8]  # (T, H, W): of rank 2 but for the rounding
    moving: NDArray[np.bool_]  # (T, H, W): where a block is


def moving_blocks(
    frames: int = 120,
    height: int = 48,
    width: int = 64,
    *,
    blocks: int = 3,
    noise: float = 2.0,
    random_state: int | np.random.Generator | None = None,
) -> SyntheticVideo:
    """A synthetic surveillance video: blocks cross a room whose light changes slowly.

    The background is a fixed picture plus a fixed pattern of light times a brightness that varies in time, of rank 2.
    Each block has a texture of its own, walks from one side to the other and back, and covers 2 to 4 % of the picture.
    Every pixel has normal noise with a standard deviation of `noise` grey levels.

    Parameters
    ----------
    frames, height, width
        Size of the video; the sides are at least 8 pixels.
    blocks
        How many walk.
    noise
        Standard deviation, in grey levels.
    random_state
        A seed or a generator.

    Returns
    -------
    SyntheticVideo
        The `frames`, their `background`, and where something is `moving`.

    Raises
    ------
    ValueError
        If there is no such video.

    Examples
    --------
    >>> clip = moving_blocks(20, 24, 32, random_state=1)
    >>> clip.frames.shape, clip.frames.dtype.name, bool(0.02 < clip.moving.mean() < 0.12)
    ((20, 24, 32), 'uint8', True)
    """
    if frames < 1 or min(height, width) < 8 or blocks < 0 or noise < 0:
        raise ValueError(
            f"cannot make a video of {frames} frames of {height} x {width} pixels, {blocks} blocks and noise {noise}"
        )
    rng = np.random.default_rng(random_state)
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    tiles = (np.floor(5.999 * x) + np.floor(3.999 * y)) % 2
    room = 90 + 50 * (1 - y) + 22 * tiles + 14 * np.sin(9 * x + 4 * y)
    lamp = 34 * np.exp(-6 * ((x - 0.7) ** 2 + (y - 0.25) ** 2))
    time = np.linspace(0, 1, frames)
    light = 0.5 + 0.5 * np.sin(2 * np.pi * (1.3 * time + rng.random()))
    background = room + light[:, None, None] * lamp
    scene, moving = background.copy(), np.zeros(background.shape, bool)
    for _ in range(blocks):
        tall, wide = (
            max(2, round(size * rng.uniform(*share))) for size, share in ((height, (0.2, 0.28)), (width, (0.1, 0.14)))
        )
        texture = rng.uniform(10, 245) + rng.uniform(-25, 25, (tall, wide))
        top = rng.integers(height - tall + 1)
        phase, crossings = rng.random(), rng.uniform(1.5, 4)
        position = np.abs((phase + crossings * time) % 2 - 1)  # to and fro
        for t, left in enumerate(np.rint(position * (width - wide)).astype(int)):
            scene[t, top : top + tall, left : left + wide] = texture
            moving[t, top : top + tall, left : left + wide] = True
    scene += noise * rng.standard_normal(scene.shape)
    return SyntheticVideo(levels(scene), levels(background), moving)
