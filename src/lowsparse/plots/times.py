"""Series in time with what was filled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..linalg.arrays import Float
from .style import INK, STYLES, new_figure, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
