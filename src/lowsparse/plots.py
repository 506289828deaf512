"""Figures of a solve; they need matplotlib (the extra `plot`)."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .linalg.lowrank import LowRank
from .linalg.tiling import Edges, block_edges, block_of_lines, block_sums
from .result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["convergence", "convergence_figure", "frames", "matrix", "phase", "spectrum"]

Floats = NDArray[np.float64]

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


def _matplotlib(module: str) -> Any:
    """A module of matplotlib, imported when needed."""
    try:
        return importlib.import_module(f"matplotlib.{module}")
    except ImportError as error:
        raise ImportError("figures need matplotlib: python -m pip install 'lowsparse[plot]'") from error


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
        across, up = np.asarray(trace[x], dtype=float), np.asarray(trace[y], dtype=float)
        (line,) = ax.plot(across, up, color=colour, linestyle=dashes, linewidth=1.9, label=label)
        # the last point
        ax.plot(across[-1:], up[-1:], "o", color=line.get_color(), markersize=5, clip_on=False, zorder=4)
    ax.set_yscale("log")
    ax.set_xlim(left=0)
    ax.xaxis.set_major_locator(_matplotlib("ticker").MaxNLocator(nbins=6))
    ax.set_xlabel(AXIS_NAMES.get(x, x))
    ax.set_ylabel(AXIS_NAMES.get(y, y))
    plain_axes(ax)
    return ax


def convergence_figure(traces: Mapping[str, Mapping[str, ArrayLike]], *, title: str, y: str = "error") -> Figure:
    """Two panels: `y` against seconds and against iterations, with one legend.

    >>> trace = {"seconds": [0.1, 0.2], "iteration": [1, 2], "error": [1e-1, 1e-3]}
    >>> figure = convergence_figure({"amanpgc": trace}, title="two iterations")
    >>> [ax.get_xlabel() for ax in figure.axes]
    ['seconds', 'iterations']
    """
    spacing = _matplotlib("layout_engine").ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.06)
    figure: Figure = _figure((9.6, 4.2), dpi=140, layout=spacing)
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
    ax.set_xlim(0.5, max(L.rank, 2) + 0.5)
    ax.xaxis.set_major_locator(_matplotlib("ticker").MaxNLocator(integer=True, nbins=10))
    ax.set_xlabel("component")
    ax.set_ylabel("singular value")
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

    Examples
    --------
    >>> import lowsparse as ls
    >>> problem = ls.datasets.synthetic(400, 300, rank=2, density=0.3, outliers=0.1, random_state=1)
    >>> figure = matrix(ls.solve(problem.M, rank=2), rows=40)
    >>> [ax.get_title("left") for ax in figure.axes[:3]], figure.axes[1].images[0].get_array().shape
    (['M, observed', 'L, rank 2', 'S, outliers'], (40, 160))
    """
    m, n = result.L.shape
    across, down = block_edges(n, columns), block_edges(m, rows)
    M, S = _means(result, down, across)
    L = block_sums(result.L, down, across) / np.outer(np.diff(down), np.diff(across))
    seen, gross = M[np.isfinite(M)], np.abs(S[np.isfinite(S)])
    low, high = np.percentile(np.concatenate([L.ravel(), seen]), [2, 98])  # outliers must not dominate the colours
    most = float(np.percentile(gross[gross > 0], 95)) if gross.any() else 1.0
    figure: Figure = _figure((10.4, 4.1))
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

    Examples
    --------
    >>> import lowsparse as ls
    >>> clip = ls.datasets.moving_blocks(30, 48, 64, random_state=1)
    >>> figure = frames(clip.frames, clip.background, clip.moving, at=[3, 20])
    >>> len(figure.axes), figure.axes[3].get_ylabel()
    (6, 'frame 20')
    """
    seen, behind = np.asarray(original), np.asarray(background)
    if seen.ndim not in (3, 4):
        raise ValueError(f"the original must be (T, H, W) or (T, H, W, 3), it is {seen.shape}")
    if behind.shape not in (seen.shape, seen.shape[1:]):
        raise ValueError(f"the background must be {seen.shape} or {seen.shape[1:]}, it is {behind.shape}")
    if mask is not None and np.shape(mask) != seen.shape[:3]:
        raise ValueError(f"the mask must be {seen.shape[:3]}, it is {np.shape(mask)}")
    behind = np.broadcast_to(behind, seen.shape)
    moments = np.linspace(0, len(seen) - 1, 5)[1:-1].astype(int) if at is None else np.asarray(at, dtype=int)
    height = 3.2 * seen.shape[1] / seen.shape[2]
    figure: Figure = _figure((10.2, len(moments) * height + 0.5))
    for line, t in zip(figure.subplots(len(moments), 3, squeeze=False), moments, strict=True):
        front = _in_front(seen[t], behind[t], None if mask is None else np.asarray(mask)[t])
        for ax, picture in zip(line, (seen[t], behind[t], front), strict=True):
            ax.imshow(np.clip(picture, 0, 255).astype(np.uint8), cmap="gray", vmin=0, vmax=255)
            ax.set_xticks([])
            ax.set_yticks([])
            ax.spines[:].set_visible(False)
        line[0].set_ylabel(f"frame {t}", fontsize=10, color=INK)
    for ax, text in zip(figure.axes, words, strict=False):
        ax.set_title(text, fontsize=11.5, loc="left", color=INK)
    return figure


def _in_front(seen: NDArray[Any], behind: NDArray[Any], mask: NDArray[Any] | None) -> NDArray[Any]:
    if mask is None:
        return np.asarray(255 - np.abs(seen.astype(np.float64) - behind))
    coloured = seen if seen.ndim == 3 else np.repeat(seen[..., None], 3, axis=2)
    return np.where(mask.astype(bool)[..., None], coloured, NOTHING)


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

    Examples
    --------
    >>> ax = phase([[1.0, 1.0], [0.0, 0.5]], [0.1, 0.3], [2, 5], x_name="share observed", y_name="rank")
    >>> [label.get_text() for label in ax.get_xticklabels()], ax.images[0].get_array().tolist()
    (['0.1', '0.3'], [[1.0, 1.0], [0.0, 0.5]])
    """
    shown, across, up = np.asarray(rates, dtype=float), np.asarray(x), np.asarray(y)
    if shown.shape != (up.size, across.size):
        raise ValueError(f"rates must be {up.size} x {across.size}, as y and x are long, not {shown.shape}")
    ax = _axes(ax, (5.6, 4.2))
    image = ax.imshow(shown, cmap=LEVELS, vmin=0, vmax=1, origin="lower", aspect="auto")
    ax.set_xticks(range(across.size), [f"{value:g}" for value in across])
    ax.set_yticks(range(up.size), [f"{value:g}" for value in up])
    ax.set_xlabel(x_name)
    ax.set_ylabel(y_name)
    ax.tick_params(labelsize=9)
    ax.spines[:].set_visible(False)
    if bar:
        scale = ax.figure.colorbar(image, ax=ax, label="success rate")
        scale.outline.set_visible(False)
    return ax


# ---------------------------------------------------------------------- parts


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    new: Axes = ax or _matplotlib("pyplot").subplots(figsize=size, layout="constrained")[1]
    return new


def _figure(size: tuple[float, float], *, dpi: int = 120, layout: Any = "constrained") -> Any:
    """A figure that need not be closed; loading the backend of pyplot lets notebooks show it."""
    _matplotlib("pyplot").draw_if_interactive()
    return _matplotlib("figure").Figure(figsize=size, dpi=dpi, layout=layout)


def plain_axes(ax: Axes) -> None:
    """A faint grid, and no frame at the top and right."""
    ax.grid(which="major", color=FAINT, linewidth=0.7)
    ax.set_axisbelow(True)
    ax.tick_params(which="both", color=PALE, labelsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(PALE)


def _means(result: Result, down: Edges, across: Edges) -> tuple[Floats, Floats]:
    """Block means of M and S over the observed entries; NaN where there are none."""
    M = result.M.to_host()
    count, given, wrong = (np.zeros((down.size - 1, across.size - 1)) for _ in range(3))
    block_of = block_of_lines(down)
    for k, (start, stop) in enumerate(itertools.pairwise(across)):
        seen = slice(M.indptr[start], M.indptr[stop])
        gross = slice(result.S.indptr[start], result.S.indptr[stop])
        count[:, k] = np.bincount(block_of[M.rows[seen]], minlength=len(count))
        given[:, k] = np.bincount(block_of[M.rows[seen]], M.values[seen], minlength=len(count))
        wrong[:, k] = np.bincount(block_of[result.S.indices[gross]], result.S.data[gross], minlength=len(count))
    count[count == 0] = np.nan
    return given / count, wrong / count
