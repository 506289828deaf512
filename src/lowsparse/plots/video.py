"""Frames of a video beside their background and foreground."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .style import INK, NOTHING, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
