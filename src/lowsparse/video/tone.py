"""The tone of a frame: a camera that sets its exposure anew changes dark, middle and bright levels differently.

With p the level of a pixel in the usual light, and x the one that is seen,

    x = p + Σ a_k h_k(p) + noise,  unless something is in front,

where h_k are hat functions of the level, and a_k is how far the curve of tones is from the diagonal at its knots. The
a_k come from a robust regression on the pixels that determine the brightness, which begins at the medians of those of
like levels. A curve is believed if it explains more of these pixels, if it rises, and if the pixels that it
explains show the slopes of the background: a thing in front has others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..entries.pictures import NEUTRAL, Grey, Picture, levels
from ..linalg.scale import robust_scale
from ..robust.regression import EFFICIENT
from ..sweeps import Float
from .sampling import Single

KNOTS = np.array([0.0, 10, 25, 51, 102, 153, 204, 255])  # grey levels; in the dark, curves bend
NO_TONE = np.zeros(KNOTS.size)
LESS = 0.85  # factor by which the loss must fall with a curve,
FAR_LESS = 0.6  # or, while b is unknown, by so much: the light of a part of the picture has a curve in part
CHANGED = 1.5  # and grey levels by which it must change pixels, in the mean: less is no harm
LEAST = 1.0  # grey levels: least noise
GROUPS = 16  # of pixels of like levels, from whose medians the regression begins
WIDTHS = 4.0, 4.0, 2.0, 2.0, 1.0, 1.0  # of the losses of the regressions, beside that of the last one
SMOOTH = 0.001  # weight of changes of the slope, for each pixel: they decide where no pixel has such levels
_STEPS = np.diff(KNOTS)
BEND = np.diff(np.diff(np.eye(KNOTS.size), axis=0) * (_STEPS.mean() / _STEPS)[:, None], axis=0)  # of slopes
ROUGH = SMOOTH * BEND.T @ BEND + 1e-6 * np.eye(KNOTS.size)
ACROSS, FEW = 3, 30  # parts of a picture across and down; one with less than this part of the pixels does not count
WORSE = 0.15  # by which the mean loss, from 0 to 1, may grow in a part of the picture
SLOPE = 0.15  # least slope of a curve
SEEN = 0.5  # least factor of the slopes of the background in the frame, in the mean over the pixels that are explained
LEVELS = np.arange(256.0)


@dataclass(frozen=True)
class ToneProbe:
    """Pixels by which the curve of tones of a frame is found."""

    pixels: NDArray[np.int32]  # their positions in the picture
    b: Float  # r x n
    slopes: Float  # r x 2 x n, of b
    tiles: NDArray[np.intp]  # parts of the picture that they are in

    @classmethod
    def at(cls, pixels: NDArray[np.int32], planes: Single) -> Self:
        """At these positions of b (r x H x W)."""
        b = planes.reshape(len(planes), -1)[:, pixels].astype(np.float64)
        rows, columns = np.divmod(pixels, planes.shape[2])
        shape = planes.shape[1], planes.shape[2]
        return cls(pixels, b, np.stack([slopes_at(one, pixels) for one in planes]), tiles_at(rows, columns, shape))

    def fit(self, luma: Grey, v: Float, even: Float, c: float) -> tuple[Float, float]:
        """The a_k of a frame with this luma and v, and the share of the pixels that are explained, within c levels.

        The curve is that of the levels with the coefficients `even`.
        """
        expected, at, seen = v @ self.b, even @ self.b, luma.ravel()[self.pixels].astype(np.float64)
        slopes = np.tensordot(v, self.slopes, 1), slopes_at(luma, self.pixels)
        a = fit_tone(expected, at, seen, slopes, self.tiles)
        return a, float(np.mean(np.abs(seen - _values(a, at.clip(0, 255))) <= c))


def slopes_at(luma: Grey | Single, pixels: NDArray[np.int32]) -> Float:
    """The differences (2 x n) to the pixels below and to the right.

    >>> slopes_at(np.array([[1, 2], [5, 9]], np.uint8), np.array([0, 1], np.int32)).tolist()
    [[4.0, 7.0], [1.0, 0.0]]
    """
    (H, W), (rows, columns) = luma.shape, np.divmod(pixels, luma.shape[1])
    here = luma[rows, columns].astype(np.float64)
    below, right = luma[np.minimum(rows + 1, H - 1), columns], luma[rows, np.minimum(columns + 1, W - 1)]
    return np.stack([below - here, right - here])


def fit_tone(
    expected: Float,
    at: Float,
    seen: Float,
    slopes: tuple[Float, Float],
    tiles: NDArray[np.intp],
    less: float = LESS,
) -> Float:
    """The a_k of a frame; zeros if brightness suffices, or if no curve can be believed.

    `expected` are the levels of some pixels by the brightness alone, `at` those in the usual light, of which the curve
    is, and `seen` those in the frame; `slopes` (2 x n each) are the differences to the pixels below and to the right,
    expected and seen, and `tiles` the numbers of the parts of the picture: the light of a part has a curve that is
    wrong elsewhere.
    """
    if at.size < GROUPS * GROUPS:
        return NO_TONE
    expected, at = expected.clip(0, 255), at.clip(0, 255)
    a = _begin(at, seen - at)
    if np.abs(_values(a, at) - expected).mean() < CHANGED / 2:
        return NO_TONE
    a, c = _regress(a, at, seen - at)
    toned_levels = _values(a, at)
    if np.abs(toned_levels - expected).mean() < CHANGED or (np.diff(KNOTS + a) < SLOPE * _STEPS).any():
        return NO_TONE
    before, after = (((seen - one) / c) ** 2 for one in (expected, toned_levels))
    old, new = (one / (1 + one) for one in (before, after))
    if new.mean() > less * old.mean() or worse_somewhere(new - old, tiles):
        return NO_TONE
    return a if has_slopes(slopes, (after <= 1) & (after < before)) else NO_TONE


def has_slopes(slopes: tuple[Float, Float], where: NDArray[np.bool_]) -> bool:
    """Whether pixels show the slopes that are expected (2 x n each): something in front has others."""
    one, other = (part[:, where] for part in slopes)
    return bool((one * other).sum() > SEEN * (one**2).sum())


def worse_somewhere(growth: Float, tiles: NDArray[np.intp]) -> bool:
    """Whether the loss grows, by so much in the mean, in a tile with enough pixels."""
    many = np.bincount(tiles)
    return bool(((np.bincount(tiles, growth) > WORSE * many) & (many >= tiles.size / FEW)).any())


def tiles_at(rows: NDArray[Any], columns: NDArray[Any], shape: tuple[int, int]) -> NDArray[np.intp]:
    """The number of the part of the picture that each pixel is in.

    >>> tiles_at(np.array([0, 5, 11]), np.array([0, 9, 14]), (12, 15)).tolist()
    [0, 4, 8]
    """
    return np.asarray(ACROSS * (ACROSS * rows // shape[0]) + ACROSS * columns // shape[1], np.intp)


def _values(a: Float, at: Float) -> Float:
    """The levels that these levels become."""
    return np.asarray((at + np.interp(at, KNOTS, a)).clip(0, 255))


def _begin(expected: Float, far: Float) -> Float:
    """The a_k that the medians of pixels of like levels give."""
    size = expected.size // GROUPS
    order = np.argsort(expected, kind="stable")[: size * GROUPS].reshape(GROUPS, size)
    hats, middle = _hats(expected[order[:, size // 2]]), np.median(far[order], axis=1)
    return np.asarray(np.linalg.solve(hats.T @ hats + GROUPS * ROUGH, hats.T @ middle))


def _regress(a: Float, expected: Float, far: Float) -> tuple[Float, float]:
    """The a_k with the least robust Σ (far - Σ a_k h_k)², and slopes that are alike; and how wide the loss is."""
    hats = _hats(expected)
    for width in WIDTHS:
        left = far - hats @ a
        c = width * EFFICIENT * max(robust_scale(left), LEAST)
        weighted = hats / ((1 + (left / c) ** 2) ** 2)[:, None]
        a = np.asarray(np.linalg.solve(weighted.T @ hats + expected.size * ROUGH, weighted.T @ far), np.float64)
    return a, c


def _hats(at: Float) -> Float:
    """h_k at these levels (n x knots)."""
    return np.stack([np.interp(at, KNOTS, one) for one in np.eye(KNOTS.size)], axis=1)


def curve(a: Float) -> Grey:
    """The level that each level from 0 to 255 becomes.

    >>> curve(NO_TONE).tolist() == list(range(256)), curve(NO_TONE + 9)[[0, 100, 250]].tolist()
    (True, [9, 109, 255])
    """
    return levels(_values(a, LEVELS))


def inverse(a: Float) -> Grey:
    """The level that becomes each level from 0 to 255.

    >>> inverse(NO_TONE + 9)[[0, 9, 109]].tolist()
    [0, 0, 100]
    """
    return levels(np.interp(LEVELS, KNOTS + a, KNOTS))


def toned(picture: Picture, table: Grey) -> Picture:
    """A picture, with other levels by this table; its colours fade or grow by the same factor.

    >>> toned(Picture(np.full((2, 2), 100, np.uint8)), curve(NO_TONE + 9)).luma.tolist()
    [[109, 109], [109, 109]]
    """
    luma = table[picture.luma]
    if picture.chroma is None:
        return Picture(luma)
    factor = ((table + np.float32(1)) / (LEVELS.astype(np.float32) + 1)).astype(np.float32)
    each = factor[picture.luma[::2, ::2] if picture.halved else picture.luma]
    return Picture(luma, levels((picture.chroma - np.float32(NEUTRAL)) * each + NEUTRAL))


def retoned(values: Grey, tables: Grey, t: NDArray[np.int64]) -> Grey:
    """Values of blocks of 2 x 2 pixels (values x n, see `sampling.Layout`) of frames t, by the table of each (T x 256).

    Colours change by the factor of the first pixel.
    """
    found = values.copy()
    for k in range(4):
        found[k] = tables[t, values[k]]
    if len(values) > 4:
        factor = (found[0] + np.float32(1)) / (values[0] + np.float32(1))
        found[4:] = levels((values[4:] - np.float32(NEUTRAL)) * factor + NEUTRAL)
    return found
