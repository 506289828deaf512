"""Rows and cells of a table that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ..linalg.tiling import block_edges
from .style import INK, PALE, RESIDUALS, STYLES, matplotlib, new_or_given, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..robust.rows import RowOutliers


def outlier_map(
    rows: RowOutliers, *, labels: Sequence[object] | None = None, named: int = 10, ax: Axes | None = None
) -> Axes:
    """Plot the distances of samples from a subspace against those within it, each in units of its cut-off.

    Samples above the horizontal line are off the subspace; right of the vertical line they are far out within it.

    Parameters
    ----------
    rows
        ``RobustPCA.row_outliers_``, or what ``row_distances`` gives for new samples.
    labels
        Names of all samples; by default their numbers, from 0.
    named
        How many of the outliers are named, those furthest out.
    ax
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        What was drawn on.

    Raises
    ------
    ValueError
        If there are more or fewer labels than samples.

    Examples
    --------
    >>> import lowsparse as ls
    >>> rng = np.random.default_rng(1)
    >>> X = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 30)) + 0.1 * rng.standard_normal((60, 30))
    >>> X[:9] += rng.standard_normal(30)
    >>> ax = outlier_map(ls.RobustPCA(2).fit(X).row_outliers_, named=3)
    >>> [len(points.get_offsets()) for points in ax.collections], len(ax.texts)
    ([49, 2, 9], 3)
    """
    if labels is not None and len(labels) != rows.off.size:
        raise ValueError(f"labels has {len(labels)} names, but there are {rows.off.size} samples")
    ax = new_or_given(ax, (5.4, 4.2))
    x, y = rows.score_distance / rows.score_cutoff, rows.orthogonal_distance / rows.orthogonal_cutoff
    kinds = (~(rows.off | rows.far), PALE, "usual"), (rows.far & ~rows.off, STYLES["amanpgc"][1], "far out within")
    for which, colour, label in (*kinds, (rows.off, STYLES["manpgc"][1], "off the subspace")):
        if which.any():
            ax.scatter(
                x[which], y[which], s=18, color=colour, label=f"{label}: {np.count_nonzero(which)}", linewidths=0
            )
    ax.axhline(1.0, color=INK, linestyle=(0, (5, 2)), linewidth=1.0)
    ax.axvline(1.0, color=INK, linestyle=(0, (5, 2)), linewidth=1.0)
    worst = np.argsort(-rows.outlyingness, kind="stable")[:named]
    for i in worst[rows.outlyingness[worst] > 1]:
        text = str(i if labels is None else labels[i])
        ax.annotate(text, (x[i], y[i]), (3, 3), textcoords="offset points", fontsize=8, color=INK)
    ax.set(xlabel="distance within the subspace / cut-off", ylabel="distance from it / cut-off")
    ax.set_xlim(left=0)
    ax.set_ylim(bottom=0)
    plain_axes(ax)
    ax.legend(frameon=False, fontsize=9)
    return ax


def cell_map(
    residuals: ArrayLike,
    *,
    row_labels: Sequence[object] | None = None,
    column_labels: Sequence[object] | None = None,
    rows: int = 160,
    columns: int = 160,
    ax: Axes | None = None,
) -> Axes:
    """Plot the cells of a table by their residuals: red is too high, blue too low, pale as expected, white missing.

    A larger table is drawn as blocks, each with the mean of the residuals in it.

    Parameters
    ----------
    residuals
        In units of the noise, NaN where a cell is missing: ``RobustPCA.standardized_residuals(X)``.
    row_labels, column_labels
        Names of all rows and columns, shown where each has a line of its own and there are at most 40.
    rows, columns
        Maximum number of blocks.
    ax
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        What was drawn on.

    Raises
    ------
    ValueError
        If `residuals` is not a table, or the labels are more or fewer than its rows or columns.

    Examples
    --------
    >>> ax = cell_map([[0.0, 12.0], [float("nan"), -7.0]], column_labels=["a", "b"])
    >>> ax.images[0].get_array().filled(99).tolist(), [label.get_text() for label in ax.get_xticklabels()]
    ([[0.0, 12.0], [99.0, -7.0]], ['a', 'b'])
    """
    values = np.asarray(residuals, dtype=np.float64)
    if values.ndim != 2:
        raise ValueError(f"residuals must be a table, rows x columns; it is {values.shape}")
    m, n = values.shape
    edges = block_edges(m, rows), block_edges(n, columns)
    seen = np.isfinite(values)
    sums = (
        np.add.reduceat(np.add.reduceat(x, edges[0][:-1], axis=0), edges[1][:-1], axis=1)
        for x in (np.where(seen, values, 0.0), seen.astype(np.float64))
    )
    total, count = sums
    means = np.ma.masked_array(total / np.maximum(count, 1), count == 0)
    ax = new_or_given(ax, (6.4, 5.0))
    low, high = RESIDUALS[0][0], RESIDUALS[-1][0]
    steps = [((at - low) / (high - low), colour) for at, colour in RESIDUALS]
    colours = matplotlib("colors").LinearSegmentedColormap.from_list("residuals", steps).with_extremes(bad="white")
    image = ax.imshow(means, cmap=colours, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    for axis, labels, size, blocks in (
        (ax.yaxis, row_labels, m, means.shape[0]),
        (ax.xaxis, column_labels, n, means.shape[1]),
    ):
        if labels is not None and len(labels) != size:
            raise ValueError(f"there are {len(labels)} labels for {size} rows or columns")
        if labels is not None and blocks == size <= 40:
            axis.set_ticks(range(size), [str(label) for label in labels])
    ax.tick_params(labelsize=8, color=PALE)
    ax.figure.colorbar(image, ax=ax, label="residual / noise", extend="both").outline.set_visible(False)
    return ax
