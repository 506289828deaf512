"""A result: the data, the low-rank part and the outliers, and singular values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..linalg.arrays import Float, host
from ..linalg.lowrank import LowRank
from ..linalg.tiling import Edges, block_edges, block_of_lines, block_sums
from ..result import Result
from .style import LEVELS, PALE, SIGNS, STYLES, matplotlib, new_figure, new_or_given, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def spectrum(of: Result | LowRank, *, ax: Axes | None = None) -> Axes:
    """Plot the singular values of a low-rank matrix on a logarithmic scale.

    For a result on noisy data a line shows the largest singular value of the noise alone, to first order:
    σ (√m + √n) / √p for a share p of the entries. Components near it or below cannot be distinguished from noise.

    Parameters
    ----------
    of
        A result, or the matrix.
    ax
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        What was drawn on.

    Examples
    --------
    >>> import lowsparse as ls
    >>> ax = spectrum(ls.LowRank([[3.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 2.0]]))
    >>> ax.lines[0].get_ydata().round(12).tolist(), ax.get_ylabel()
    ([3.0, 2.0], 'singular value')
    """
    L = of.L if isinstance(of, Result) else of
    sigma = L.singular_values()
    shown = np.flatnonzero(sigma > 0)
    ax = new_or_given(ax, (5.4, 3.6))
    colour = STYLES["amanpgc"][1]
    ax.plot(shown + 1, sigma[shown], "o-", color=colour, linewidth=1.2, markersize=6, label="of L")
    level = _noise_level(of) if isinstance(of, Result) else 0.0
    if level > 0:
        ax.axhline(level, color=STYLES["manpgc"][1], linestyle=(0, (5, 2)), linewidth=1.4, label="noise alone gives")
        ax.legend(frameon=False, fontsize=9)
    if shown.size:
        ax.set_yscale("log")
    ax.set(xlim=(0.5, max(L.rank, 2) + 0.5), xlabel="component", ylabel="singular value")
    ax.xaxis.set_major_locator(matplotlib("ticker").MaxNLocator(integer=True, nbins=10))
    plain_axes(ax)
    return ax


def _noise_level(result: Result) -> float:
    m, n = result.M.shape
    level = result.noise * (np.sqrt(m) + np.sqrt(n)) / np.sqrt(result.M.density)
    # without noise the estimate is of rounding errors
    return float(level) if level > 1e-6 * result.L.norm() else 0.0


def matrix(result: Result, *, rows: int = 160, columns: int = 160) -> Figure:
    """Three panels: the data M, with missing entries white, the low-rank part L, and the outliers S.

    A larger matrix is drawn as blocks: for M and S the mean over the observed entries of a block, for L the mean over
    all of it, which is (Σ u_i)ᵀ (Σ v_j) over its size. No m x n array is formed.

    Parameters
    ----------
    result
        From `lowsparse.solve`.
    rows, columns
        Maximum number of blocks.

    Returns
    -------
    Figure
        With three panels and their colour bars.

    Examples
    --------
    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(400, 300, rank=2, density=0.3, outliers=0.1, random_state=1)
    >>> figure = matrix(ls.solve(problem.M, rank=2), rows=40)
    >>> [ax.get_title("left") for ax in figure.axes[:3]], figure.axes[1].images[0].get_array().shape
    (['M, observed', 'L, rank 2', 'S, outliers'], (40, 160))
    """
    m, n = result.L.shape
    row_edges, column_edges = block_edges(m, rows), block_edges(n, columns)
    M, S = _block_means(result, row_edges, column_edges)
    L = block_sums(result.L, row_edges, column_edges) / np.outer(np.diff(row_edges), np.diff(column_edges))
    observed, outliers = M[np.isfinite(M)], np.abs(S[np.isfinite(S)])
    low, high = np.percentile(np.concatenate([L.ravel(), observed]), [2, 98])  # outliers must not dominate the colours
    most = float(np.percentile(outliers[outliers > 0], 95)) if outliers.any() else 1.0
    figure = new_figure((10.4, 4.1))
    panels = figure.subplots(1, 3)
    titles = "M, observed", f"L, rank {result.L.rank}", "S, outliers"
    scales = (LEVELS, low, high), (LEVELS, low, high), (SIGNS, -most, most)
    for ax, title, values, (colours, least, largest) in zip(panels, titles, (M, L, S), scales, strict=True):
        colour_map = matplotlib("pyplot").get_cmap(colours).with_extremes(bad="white")
        size = -0.5, n - 0.5, m - 0.5, -0.5
        shape = "equal" if 0.5 <= m / n <= 2 else "auto"
        image = ax.imshow(
            values, cmap=colour_map, vmin=least, vmax=largest, extent=size, aspect=shape, interpolation="nearest"
        )
        ax.set_title(title, fontsize=11, loc="left")
        ax.tick_params(labelsize=9, color=PALE)
        ax.spines[:].set_color("#cccccc")
        bar = figure.colorbar(image, ax=ax, location="bottom", fraction=0.05, aspect=30, extend="both")
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=9, color=PALE)
    return figure


def _block_means(result: Result, row_edges: Edges, column_edges: Edges) -> tuple[Float, Float]:
    """Block means of M and S over the observed entries; NaN where there are none."""
    M, shape = result.M.to_host(), (row_edges.size - 1, column_edges.size - 1)
    S = np.zeros(M.nnz)
    S[host(result.flagged)] = host(result.S.data)
    block = shape[1] * block_of_lines(row_edges)[M.rows] + block_of_lines(column_edges)[M.columns_of_entries()]
    sums = (np.bincount(block, weights, math.prod(shape)).reshape(shape) for weights in (np.ones(M.nnz), M.values, S))
    count, given, wrong = sums
    count[count == 0] = np.nan
    return given / count, wrong / count
