"""Figures of a solve; they need matplotlib (the extra `plot`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .linalg.arrays import Float, host
from .linalg.lowrank import LowRank
from .linalg.tiling import Edges, block_edges, block_of_lines, block_sums
from .result import Result
from .support.optional import import_optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .robust.rows import RowOutliers

__all__ = [
    "cell_map",
    "convergence",
    "convergence_figure",
    "frames",
    "matrix",
    "outlier_map",
    "phase",
    "series",
    "spectrum",
]

# The colours of Okabe and Ito, for all kinds of colour vision; the two families also differ in their dashes.
STYLES = {
    "ladder": ("Ladder", "#000000", "-"),
    "amanpgc": ("AManPGC", "#0072B2", "-"),
    "manpgc": ("ManPGC", "#D55E00", "-"),
    "rmc": ("RMC", "#009E73", "-"),
    "lmafit": ("LMaFit", "#CC79A7", "-"),
    "subgm": ("SubGM", "#999999", "-"),
    "amanpg": ("AManPG (fixed γ sets its floor)", "#56B4E9", (0, (5, 1.6))),
    "manpg": ("ManPG (fixed γ sets its floor)", "#E69F00", (0, (5, 1.6))),
}
OTHERS = ("#009E73", "#CC79A7", "#999999", "#F0E442")
AXIS_NAMES = {"seconds": "seconds", "iteration": "iterations", "error": "relative error", "change": "relative change"}
NOTHING = (188, 211, 238)  # behind a cut-out: a light blue, against which black and white stand out
FAINT, PALE, INK = "#e4e4e4", "#888888", "#222222"
# For all kinds of colour vision: levels from dark to light, signs diverging from white; missing entries are white.
LEVELS, SIGNS = "cividis", "PuOr_r"
# Of residuals in units of the noise: blue is too low, red too high, and what is usual, up to 3, is pale.
RESIDUALS = ((-10.0, "#2166ac"), (-3.0, "#f3ecc9"), (3.0, "#f3ecc9"), (10.0, "#b2182b"))


def _matplotlib(module: str) -> Any:
    """A module of matplotlib, imported when needed."""
    return import_optional(f"matplotlib.{module}", "plot", "figures")


def convergence(
    traces: Mapping[str, Mapping[str, ArrayLike]], *, x: str = "seconds", y: str = "error", ax: Axes | None = None
) -> Axes:
    """Plot one column of each trace against another, with a logarithmic y axis.

    Parameters
    ----------
    traces
        By name: a `Trace`, or any dictionary of columns of equal length. Methods, such as "amanpgc", have labels and
        colours of their own.
    x, y
        The columns: "seconds" or "iteration"; "objective", "change", "gamma", or any other of the traces.
    ax
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        What was drawn on.

    Raises
    ------
    ValueError
        If there is no trace, or one without these columns.

    Examples
    --------
    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(60, 50, rank=2, density=0.8, outliers=0.05, random_state=1)
    >>> errors = []
    >>> def watch(progress):
    ...     errors.append(progress.lowrank().error(problem.L, relative=True))
    >>> r = ls.solve(problem.M, rank=2, callback=watch)
    >>> ax = convergence({r.method: {**r.trace, "error": errors}}, x="iteration")
    >>> ax.get_xlabel(), ax.get_yscale(), len(ax.lines[0].get_ydata()) == r.n_iter
    ('iterations', 'log', True)
    """
    if not traces:
        raise ValueError("there is no trace to draw")
    ax = _axes(ax, (5.4, 3.8))
    others = iter(OTHERS * len(traces))
    for name, trace in traces.items():
        for column in (x, y):
            if column not in trace:
                raise ValueError(f"the trace {name!r} has no column {column!r}; it has {list(trace)}")
        label, colour, dashes = STYLES.get(name) or (name, next(others), "-")
        xs, ys = np.asarray(trace[x], dtype=float), np.asarray(trace[y], dtype=float)
        ax.plot(xs, ys, color=colour, linestyle=dashes, linewidth=1.9, label=label)
        ax.plot(xs[-1:], ys[-1:], "o", color=colour, markersize=5, clip_on=False, zorder=4)
    ax.set(yscale="log", xlabel=AXIS_NAMES.get(x, x), ylabel=AXIS_NAMES.get(y, y))
    ax.set_xlim(left=0)
    ax.xaxis.set_major_locator(_matplotlib("ticker").MaxNLocator(nbins=6))
    plain_axes(ax)
    return ax


def convergence_figure(traces: Mapping[str, Mapping[str, ArrayLike]], *, title: str, y: str = "error") -> Figure:
    """Two panels: `y` against seconds and against iterations, with one legend.

    Parameters
    ----------
    traces, y
        As in `convergence`.
    title
        Above both panels.

    Returns
    -------
    Figure
        With two axes.

    Examples
    --------
    >>> trace = {"seconds": [0.1, 0.2], "iteration": [1, 2], "error": [1e-1, 1e-3]}
    >>> figure = convergence_figure({"amanpgc": trace}, title="two iterations")
    >>> [ax.get_xlabel() for ax in figure.axes]
    ['seconds', 'iterations']
    """
    figure = new_figure((9.6, 4.2), dpi=140, padding=(0.1, 0.06))
    by_time, by_iteration = figure.subplots(1, 2, sharey=True)
    convergence(traces, x="seconds", y=y, ax=by_time)
    convergence(traces, x="iteration", y=y, ax=by_iteration)
    by_iteration.set_ylabel("")
    handles, labels = by_time.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9.5)
    figure.suptitle(title, x=0.014, ha="left", fontsize=12)
    return figure


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
    ax = _axes(ax, (5.4, 3.6))
    colour = STYLES["amanpgc"][1]
    ax.plot(shown + 1, sigma[shown], "o-", color=colour, linewidth=1.2, markersize=6, label="of L")
    level = _noise_level(of) if isinstance(of, Result) else 0.0
    if level > 0:
        ax.axhline(level, color=STYLES["manpgc"][1], linestyle=(0, (5, 2)), linewidth=1.4, label="noise alone gives")
        ax.legend(frameon=False, fontsize=9)
    if shown.size:
        ax.set_yscale("log")
    ax.set(xlim=(0.5, max(L.rank, 2) + 0.5), xlabel="component", ylabel="singular value")
    ax.xaxis.set_major_locator(_matplotlib("ticker").MaxNLocator(integer=True, nbins=10))
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
        colour_map = _matplotlib("pyplot").get_cmap(colours).with_extremes(bad="white")
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
    ax = _axes(ax, (5.4, 4.2))
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
    ax = _axes(ax, (6.4, 5.0))
    low, high = RESIDUALS[0][0], RESIDUALS[-1][0]
    steps = [((at - low) / (high - low), colour) for at, colour in RESIDUALS]
    colours = _matplotlib("colors").LinearSegmentedColormap.from_list("residuals", steps).with_extremes(bad="white")
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


def frames(
    original: ArrayLike,
    background: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    at: Sequence[int] | None = None,
    words: Sequence[str] = ("original", "background", "foreground"),
) -> Figure:
    """Frames of a video, one per row: the original, the background and the foreground side by side.

    Parameters
    ----------
    original
        Grey (T, H, W) or coloured (T, H, W, 3) frames from 0 to 255.
    background
        As many frames, or one picture for all.
    mask
        The foreground, (T, H, W): the original is shown there, light blue elsewhere. Without a mask the foreground is
        the distance between original and background, darker for larger distances.
    at
        Indices of the frames; by default three, evenly spaced.
    words
        Titles of the three columns.

    Returns
    -------
    Figure
        Three pictures for each of the frames.

    Raises
    ------
    ValueError
        If the shapes do not fit.

    Examples
    --------
    >>> import lowsparse as ls
    >>> clip = ls.datasets.moving_blocks(30, 48, 64, random_state=1)
    >>> figure = frames(clip.frames, clip.background, clip.moving, at=[3, 20])
    >>> len(figure.axes), figure.axes[3].get_ylabel()
    (6, 'frame 20')
    """
    original, background = np.asarray(original), np.asarray(background)
    if original.ndim not in (3, 4):
        raise ValueError(f"the original must be (T, H, W) or (T, H, W, 3), it is {original.shape}")
    if background.shape not in (original.shape, original.shape[1:]):
        raise ValueError(f"the background must be {original.shape} or {original.shape[1:]}, it is {background.shape}")
    if mask is not None and np.shape(mask) != original.shape[:3]:
        raise ValueError(f"the mask must be {original.shape[:3]}, it is {np.shape(mask)}")
    background = np.broadcast_to(background, original.shape)
    times = np.linspace(0, len(original) - 1, 5)[1:-1].astype(int) if at is None else np.asarray(at, dtype=int)
    height = 3.2 * original.shape[1] / original.shape[2]
    figure = new_figure((10.2, len(times) * height + 0.5))
    for row, t in zip(figure.subplots(len(times), 3, squeeze=False), times, strict=True):
        foreground = _foreground(original[t], background[t], None if mask is None else np.asarray(mask)[t])
        for ax, picture in zip(row, (original[t], background[t], foreground), strict=True):
            ax.imshow(np.clip(picture, 0, 255).astype(np.uint8), cmap="gray", vmin=0, vmax=255)
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
        row[0].set_ylabel(f"frame {t}", fontsize=10, color=INK)
    for ax, text in zip(figure.axes, words, strict=False):
        ax.set_title(text, fontsize=11.5, loc="left", color=INK)
    return figure


def _foreground(original: NDArray[Any], background: NDArray[Any], mask: NDArray[Any] | None) -> NDArray[Any]:
    if mask is None:
        return np.asarray(255 - np.abs(original.astype(np.float64) - background))
    coloured = original if original.ndim == 3 else np.repeat(original[..., None], 3, axis=2)
    return np.where(mask.astype(bool)[..., None], coloured, NOTHING)


def series(
    given: ArrayLike,
    filled: ArrayLike,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    *,
    at: Sequence[int] | None = None,
    moments: slice = slice(None),
    times: ArrayLike | None = None,
    names: Sequence[str] | None = None,
) -> Figure:
    """Series in time, one below the other: readings, filled stretches, their bands, and readings that were replaced.

    Parameters
    ----------
    given
        Moments x series, NaN where nothing was read.
    filled
        The same, filled, as by `RobustSeriesImputer`.
    lower, upper
        Limits of the bands about filled values, if there are any.
    at
        The series; by default the first four that have something filled or replaced.
    moments
        The part in time.
    times, names
        Labels of the moments and of the series; by default their numbers.

    Returns
    -------
    Figure
        One panel for each series.

    Raises
    ------
    ValueError
        If the shapes do not fit, or only one limit of the bands is given.

    Examples
    --------
    >>> given = np.array([[1.0, 5.0], [np.nan, 5.0], [3.0, 99.0], [4.0, 5.0]])
    >>> filled = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0], [4.0, 5.0]])
    >>> figure = series(given, filled, filled - 0.5, filled + 0.5, names=["a", "b"])
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['a', 'b']
    """
    X, F = np.asarray(given, dtype=float), np.asarray(filled, dtype=float)
    limits = [None if limit is None else np.asarray(limit, dtype=float) for limit in (lower, upper)]
    for name, other in (("filled", F), ("lower", limits[0]), ("upper", limits[1])):
        if other is not None and other.shape != X.shape:
            raise ValueError(f"{name} must be moments x series as the readings, {X.shape}, it is {other.shape}")
    if X.ndim != 2 or (lower is None) != (upper is None):
        raise ValueError("give moments x series, and both limits of the bands or none")
    changed = (F != X) & np.isfinite(F)
    chosen = np.flatnonzero(changed.any(axis=0))[:4] if at is None else np.asarray(at, dtype=int)
    chosen = chosen if chosen.size else np.arange(min(4, X.shape[1]))
    x = np.arange(len(X))[moments] if times is None else np.asarray(times)[moments]
    figure = new_figure((10.2, 1.9 * len(chosen) + 0.5))
    axes = figure.subplots(len(chosen), 1, squeeze=False, sharex=True)[:, 0]
    for ax, j in zip(axes, chosen, strict=True):
        band = None if limits[0] is None or limits[1] is None else (limits[0][moments, j], limits[1][moments, j])
        _one_series(ax, x, X[moments, j], F[moments, j], band)
        ax.set_ylabel(str(j) if names is None else str(names[j]))
    drawn = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(drawn.values(), drawn.keys(), loc="outside upper left", ncols=4, frameon=False, fontsize=9)
    return figure


def _one_series(ax: Axes, x: NDArray[Any], read: Float, filled: Float, band: tuple[Float, Float] | None) -> None:
    """Readings as a line, filled stretches with their band, replaced readings as crosses."""
    missing = np.isnan(read)
    replaced = ~missing & (filled != read) & np.isfinite(filled)
    changed = missing | replaced
    beside = changed | np.roll(changed, 1) | np.roll(changed, -1)  # the readings at the ends of a stretch
    if band is not None:
        low, high = (np.where(beside, limit, np.nan) for limit in band)
        ax.fill_between(x, low, high, color=STYLES["amanpg"][1], alpha=0.35, linewidth=0, label="band")
    ax.plot(x, np.where(replaced, np.nan, read), color=INK, linewidth=1.0, label="read")
    ax.plot(x, np.where(beside, filled, np.nan), color=STYLES["amanpgc"][1], linewidth=1.4, label="filled")
    if replaced.any():
        good = np.concatenate([read[~changed], filled[np.isfinite(filled)]])
        low, high = good.min(), good.max()
        room = 0.15 * (high - low) or 1.0
        shown = np.clip(read[replaced], low - room, high + room)  # an error may be larger than all else by far
        ax.plot(x[replaced], shown, "x", color=STYLES["manpgc"][1], markersize=5, label="replaced")
    plain_axes(ax)


def phase(
    rates: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    *,
    x_name: str = "",
    y_name: str = "",
    bar: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Plot a phase diagram: the share of problems solved, over two measures of difficulty.

    Parameters
    ----------
    rates
        From 0 to 1, with a row for each of `y` (from below) and a column for each of `x`.
    x, y
        Values along the axes, equally spaced.
    x_name, y_name
        Labels of the axes.
    bar
        Whether to draw a colour bar.
    ax
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    Axes
        What was drawn on.

    Raises
    ------
    ValueError
        If `rates` does not have the lengths of `y` and `x`.

    Examples
    --------
    >>> ax = phase([[1.0, 1.0], [0.0, 0.5]], [0.1, 0.3], [2, 5], x_name="share observed", y_name="rank")
    >>> [label.get_text() for label in ax.get_xticklabels()], ax.images[0].get_array().tolist()
    (['0.1', '0.3'], [[1.0, 1.0], [0.0, 0.5]])
    """
    rates, x, y = np.asarray(rates, dtype=float), np.asarray(x), np.asarray(y)
    if rates.shape != (y.size, x.size):
        raise ValueError(f"rates must be {y.size} x {x.size}, the lengths of y and x, not {rates.shape}")
    ax = _axes(ax, (5.6, 4.2))
    image = ax.imshow(rates, cmap=LEVELS, vmin=0, vmax=1, origin="lower", aspect="auto")
    ax.set_xticks(range(x.size), [f"{value:g}" for value in x])
    ax.set_yticks(range(y.size), [f"{value:g}" for value in y])
    ax.set(xlabel=x_name, ylabel=y_name)
    ax.tick_params(labelsize=9)
    ax.spines[:].set_visible(False)
    if bar:
        ax.figure.colorbar(image, ax=ax, label="success rate").outline.set_visible(False)
    return ax


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    new: Axes = ax or _matplotlib("pyplot").subplots(figsize=size, layout="constrained")[1]
    return new


def new_figure(
    size: tuple[float, float], *, dpi: int = 120, padding: tuple[float | None, float | None] = (None, None)
) -> Figure:
    """A figure that need not be closed; loading the backend of pyplot lets notebooks show it."""
    _matplotlib("pyplot").draw_if_interactive()
    spacing = _matplotlib("layout_engine").ConstrainedLayoutEngine(w_pad=padding[0], h_pad=padding[1])
    figure: Figure = _matplotlib("figure").Figure(figsize=size, dpi=dpi, layout=spacing)
    return figure


def plain_axes(ax: Axes) -> None:
    """A faint grid, and no frame at the top and right."""
    ax.grid(which="major", color=FAINT, linewidth=0.7)
    ax.set_axisbelow(True)
    ax.tick_params(which="both", color=PALE, labelsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(PALE)


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
