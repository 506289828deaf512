"""Heat maps of what was in front in a video: where, over the background, and where and when."""

import numpy as np
from numpy.typing import NDArray

from ..linalg.tiling import block_edges
from ..support.html import Markup, element
from .film import inline, pillow, png
from .page import card

ROWS, COLUMNS = 72, 128  # cells across the picture, at most
MOMENTS = 480  # at most; with more frames each stands for two, four, ...
COLOURS = np.array([[0, 0, 4], [87, 16, 110], [188, 55, 84], [249, 142, 9], [252, 255, 164]], np.float64)
STRONG = 99  # percentile of the cells in which anything was in front: the share that has the brightest colour
FAINT = 0.35  # of the brightness of the background under the heat


class Activity:
    """Adds up masks, frame by frame, in bounded memory."""

    def __init__(self) -> None:
        self._where: NDArray[np.float64] | None = None  # sums of the shares of each cell
        self._when: list[NDArray[np.float64]] = []  # the same of each column of cells, in each moment
        self._frames, self._per_moment = 0, 1

    def add(self, mask: NDArray[np.bool_]) -> None:
        """The next frame."""
        rows, columns = (block_edges(*pair) for pair in zip(mask.shape, (ROWS, COLUMNS), strict=True))
        ones = mask.view(np.uint8)
        if np.diff(rows).max() < 256:  # a byte is enough, and eight bytes are added at a time
            whole = mask.shape[1] // 8 * 8
            wide = np.ascontiguousarray(ones[:, :whole]).view(np.uint64)
            counts = np.hstack(
                [
                    np.add.reduceat(wide, rows[:-1], axis=0).view(np.uint8),
                    np.add.reduceat(ones[:, whole:], rows[:-1], axis=0, dtype=np.uint8),
                ]
            )
        else:
            counts = np.add.reduceat(ones, rows[:-1], axis=0, dtype=np.uint32)
        counts = np.add.reduceat(counts, columns[:-1], axis=1, dtype=np.uint32)
        shares = counts / np.outer(np.diff(rows), np.diff(columns))
        self._where = shares if self._where is None else self._where + shares
        if self._frames % self._per_moment == 0:
            if len(self._when) == MOMENTS:
                self._when = [one + other for one, other in zip(self._when[::2], self._when[1::2], strict=True)]
                self._per_moment *= 2
            self._when.append(np.zeros(len(columns) - 1))
        self._when[-1] += counts.sum(axis=0) / (mask.shape[0] * np.diff(columns))
        self._frames += 1

    @property
    def where(self) -> NDArray[np.float64]:
        """The share of the time for which each cell was in front."""
        return np.zeros((1, 1)) if self._where is None else self._where / self._frames

    @property
    def when(self) -> NDArray[np.float64]:
        """The share of each column of the picture that was in front (moments x columns)."""
        sizes = np.full(len(self._when), float(self._per_moment))
        sizes[-1:] = (self._frames - 1) % self._per_moment + 1
        return np.asarray(np.stack(self._when) / sizes[:, None])


def activity_card(activity: Activity, background: NDArray[np.uint8]) -> Markup:
    """A section of the report; the background is grey (H, W) or RGB (H, W, 3)."""
    height, width = background.shape[:2]
    where, when = activity.where, activity.when
    peak = np.unravel_index(int(where.argmax()), where.shape)
    busiest = f"the busiest place is in front {100 * where[peak]:.1f} % of the time"
    pictures = pillow()
    heat = np.asarray(pictures.fromarray(_coloured(where)).resize((width, height), pictures.Resampling.BILINEAR))
    still = background if background.ndim == 3 else np.repeat(background[..., None], 3, axis=2)
    over = np.clip(FAINT * still.mean(axis=2, keepdims=True) + heat, 0, 255).astype(np.uint8)
    captions = (
        ("Where", f"{busiest}; the brighter, the longer.", over),
        ("When", "time runs to the right; the left edge of the picture is at the top.", _coloured(when.T)),
    )
    return card(
        "Activity",
        *(
            element(
                "figure",
                element(
                    "img", src=inline(png(pixels)), alt=f"Heat map of activity: {name.lower()}", class_=f"heat-{k}"
                ),
                element("figcaption", element("span", element("strong", name), f": {text}", class_="quiet")),
            )
            for k, (name, text, pixels) in enumerate(captions)
        ),
    )


def _coloured(shares: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Colours of shares, by their square roots, so that rare ones are seen."""
    some = shares[shares > 0]
    strong = float(np.percentile(some, STRONG)) if some.size else 1.0
    position = np.sqrt(np.minimum(shares / strong, 1)) * (len(COLOURS) - 1)
    channels = [np.interp(position, np.arange(len(COLOURS)), channel) for channel in COLOURS.T]
    return np.asarray(np.rint(np.stack(channels, axis=-1)), np.uint8)
