"""Pictures of a solve; they need matplotlib (the extra `plot`)."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["convergence", "convergence_figure"]

# Okabe and Ito's colours, apart for every kind of colour vision; the two families differ in their dashes as well.
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


def _matplotlib(module: str) -> Any:
    """A module of matplotlib, imported when a picture is asked for."""
    try:
        return importlib.import_module(f"matplotlib.{module}")
    except ImportError as error:
        raise ImportError("pictures need matplotlib: python -m pip install 'lowsparse[plot]'") from error


def convergence(
    traces: Mapping[str, Mapping[str, ArrayLike]],
    *,
    x: str = "seconds",
    y: str = "error",
    ax: Axes | None = None,
) -> Axes:
    """Draw one column of each trace against another, with a logarithmic scale for `y`.

    Parameters
    ----------
    traces
        By name. A `Trace` will do, and so will any dictionary of equally long columns. The names of methods, such as
        "amanpgc", are written out and have colours of their own.
    x, y
        The columns: "seconds" or "iteration"; "objective", "change", "gamma", or what your dictionaries hold.
    ax
        Where to draw; a new figure by default.

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
    if ax is None:
        ax = _matplotlib("pyplot").subplots(figsize=(5.4, 3.8), layout="constrained")[1]
    assert ax is not None
    others = iter(OTHERS * len(traces))
    for name, trace in traces.items():
        for column in (x, y):
            if column not in trace:
                raise ValueError(f"the trace {name!r} has no column {column!r}; it has {list(trace)}")
        label, colour, dashes = STYLES.get(name) or (name, next(others), "-")
        across, up = np.asarray(trace[x], dtype=float), np.asarray(trace[y], dtype=float)
        (line,) = ax.plot(across, up, color=colour, linestyle=dashes, linewidth=1.9, label=label)
        # where it ended
        ax.plot(across[-1:], up[-1:], "o", color=line.get_color(), markersize=5, clip_on=False, zorder=4)
    ax.set_yscale("log")
    ax.set_xlim(left=0)
    ax.xaxis.set_major_locator(_matplotlib("ticker").MaxNLocator(nbins=6))
    ax.set_xlabel(AXIS_NAMES.get(x, x))
    ax.set_ylabel(AXIS_NAMES.get(y, y))
    ax.grid(which="major", color="#e4e4e4", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.tick_params(which="both", color="#888888", labelsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color("#888888")
    return ax


def convergence_figure(traces: Mapping[str, Mapping[str, ArrayLike]], *, title: str, y: str = "error") -> Figure:
    """Two panels side by side: `y` against seconds and against iterations, with one legend.

    >>> trace = {"seconds": [0.1, 0.2], "iteration": [1, 2], "error": [1e-1, 1e-3]}
    >>> figure = convergence_figure({"amanpgc": trace}, title="two iterations")
    >>> [ax.get_xlabel() for ax in figure.axes]
    ['seconds', 'iterations']
    """
    spacing = _matplotlib("layout_engine").ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.06)
    figure: Figure = _matplotlib("figure").Figure(figsize=(9.6, 4.2), dpi=140, layout=spacing)
    by_time, by_iteration = figure.subplots(1, 2, sharey=True)
    convergence(traces, x="seconds", y=y, ax=by_time)
    convergence(traces, x="iteration", y=y, ax=by_iteration)
    by_iteration.set_ylabel("")
    handles, labels = by_time.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9.5)
    figure.suptitle(title, x=0.014, ha="left", fontsize=12)
    return figure
