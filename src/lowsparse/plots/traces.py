"""How solves converge: columns of their traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from .style import AXIS_NAMES, OTHERS, STYLES, matplotlib, new_figure, new_or_given, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    ax = new_or_given(ax, (5.4, 3.8))
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
    ax.xaxis.set_major_locator(matplotlib("ticker").MaxNLocator(nbins=6))
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
