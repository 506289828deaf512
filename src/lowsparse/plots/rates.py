"""Phase diagrams: where a method succeeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from .style import LEVELS, new_or_given

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    ax = new_or_given(ax, (5.6, 4.2))
    image = ax.imshow(rates, cmap=LEVELS, vmin=0, vmax=1, origin="lower", aspect="auto")
    ax.set_xticks(range(x.size), [f"{value:g}" for value in x])
    ax.set_yticks(range(y.size), [f"{value:g}" for value in y])
    ax.set(xlabel=x_name, ylabel=y_name)
    ax.tick_params(labelsize=9)
    ax.spines[:].set_visible(False)
    if bar:
        ax.figure.colorbar(image, ax=ax, label="success rate").outline.set_visible(False)
    return ax
