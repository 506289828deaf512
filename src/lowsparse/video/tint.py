"""The tint of a frame: a camera that sets its white balance anew multiplies red and blue, but not green.

With (r, g, b) the colour of a pixel by its background, and (r', g', b') the one that is seen,

    log(r'/g') = log(r/g) + a_1 + noise,   log(b'/g') = log(b/g) + a_2 + noise,   unless something is in front,

whatever the brightness is. The two a come from a robust regression on some pixels that are neither dark nor
saturated, and about as bright as expected: most things in front are not. They are believed if they explain more of
these pixels, and in no part of the picture less, as a coloured lamp changes the colours of a part of it; and if the
pixels that they explain show the slopes of the background.

Where a level is saturated, nobody knows what it would be with another tint: b has the tint of a frame of which little
is, what is saturated in others says nothing of b, and a pixel that is as bright as its background is not in front.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..entries.pictures import NEUTRAL, REC601, TO_CHROMA, Grey, Picture, levels
from ..linalg.scale import robust_scale
from ..robust.regression import EFFICIENT
from ..sweeps import Float
from .foreground import max_of_block
from .sampling import Single
from .tone import LEVELS, WIDTHS, has_slopes, slopes_at, tiles_at, worse_somewhere

NO_TINT = np.zeros(2)  # logarithms of the factors of red and of blue
DARK, SATURATED = 12.0, 240.0  # levels of red, green and blue beyond which a pixel says little
ALIKE = 0.2  # share by which the luma of a pixel may differ from what is expected,
NEARLY = 0.1  # and what saturated colours may make of it
FEW, MOST = 256, 0.6  # pixels that are too few, and the largest a that is believed
LESS = 0.85  # factor by which the loss must fall with a tint,
CHANGED = 1.5  # and levels of chroma by which it must change pixels, in the mean: less is no harm
LEAST = 2.0  # levels of red and blue: least noise
EXPLAINED = 0.5  # loss up to which a pixel is explained
TRIED = 64  # frames, at most, whose tint may be that of b
LOST = 0.002  # share of levels, times the logarithm of their factor, beyond which too much is lost


@dataclass(frozen=True)
class TintProbe:
    """Pixels by which the tint of a frame is found."""

    pixels: NDArray[np.int32]  # their positions in the picture,
    of_chroma: NDArray[np.int32]  # and in its chroma
    b: Float  # r x 3 x n: of luma and chroma
    slopes: Float  # r x 2 x n, of luma
    tiles: NDArray[np.intp]  # parts of the picture that they are in

    @classmethod
    def at(cls, pixels: NDArray[np.int32], luma: Single, chroma: Single) -> Self:
        """At these positions of b, luma (r x H x W) and chroma (r x 2 x h x w)."""
        shape, width = (luma.shape[1], luma.shape[2]), chroma.shape[-1]
        rows, columns = np.divmod(pixels, shape[1])
        halved = chroma.shape[2:] != shape
        of_chroma = ((rows // 2) * width + columns // 2 if halved else pixels).astype(np.int32)
        planes = luma.reshape(len(luma), 1, -1)[..., pixels], chroma.reshape(*chroma.shape[:2], -1)[..., of_chroma]
        b = np.concatenate(planes, axis=1).astype(np.float64)
        slopes = np.stack([slopes_at(one, pixels) for one in luma])
        return cls(pixels, of_chroma, b, slopes, tiles_at(rows, columns, shape))

    def fit(self, picture: Picture, v: Float) -> Float:
        """The a of a picture with these coefficients."""
        assert picture.chroma is not None
        luma, chroma = picture.luma.ravel()[self.pixels], picture.chroma.reshape(2, -1)[:, self.of_chroma]
        seen = np.concatenate([luma[None].astype(np.float64), chroma - float(NEUTRAL)])
        slopes = np.tensordot(v, self.slopes, 1), slopes_at(picture.luma, self.pixels)
        return fit_tint(np.tensordot(v, self.b, 1), seen, slopes, self.tiles)


def fit_tint(expected: Float, seen: Float, slopes: tuple[Float, Float], tiles: NDArray[np.intp]) -> Float:
    """The a of a frame; zeros if no tint can be believed.

    `expected` and `seen` are the luma and the chroma (3 x n, 0 is grey) of some pixels, `slopes` (2 x n each) the
    differences of luma to the pixels below and to the right, expected and seen, `tiles` the parts of the picture.
    """
    colours, seen_colours = _channels(expected), _channels(seen)
    both = np.concatenate([colours, seen_colours])
    usable = (both.min(axis=0) >= DARK) & (both.max(axis=0) <= SATURATED)
    alike = np.abs(seen[0] - expected[0])[usable] <= ALIKE * expected[0, usable]
    if np.count_nonzero(alike) < FEW:
        return NO_TINT
    level = seen[0, usable]
    far = level * np.diff([np.log(one[:2, usable] / one[2, usable]) for one in (colours, seen_colours)], axis=0)[0]
    begin = np.median(far[:, alike] / level[alike], axis=1)
    if 0.5 * np.abs(begin).max() * level[alike].mean() < CHANGED / 2:
        return NO_TINT
    a = _regress(begin, far[:, alike], level[alike])
    if 0.5 * np.abs(a).max() * level[alike].mean() < CHANGED or np.abs(a).max() > MOST:
        return NO_TINT
    tiles = tiles[usable]
    c = EFFICIENT * _scale_in_tiles(far[:, alike] / level[alike], level[alike], tiles[alike])
    old, new = _loss(far / c), _loss((far - np.multiply.outer(a, level)) / c)
    if new[alike].mean() > LESS * old[alike].mean() or worse_somewhere(new - old, tiles):
        return NO_TINT
    own = slopes[0][:, usable], slopes[1][:, usable]
    return a if has_slopes(own, (new <= EXPLAINED) & (new < old)) else NO_TINT


def _regress(a: Float, far: Float, level: Float) -> Float:
    """The a with the least robust Σ (far - a level)², from this one on."""
    for width in WIDTHS:
        left = far - np.multiply.outer(a, level)
        c = width * EFFICIENT * max(robust_scale(left.ravel()), LEAST)
        w = 1 / (1 + ((left / c) ** 2).mean(axis=0)) ** 2
        a = np.asarray(far @ (w * level) / (w @ level**2))
    return a


def _scale_in_tiles(ratios: Float, level: Float, tiles: NDArray[np.intp]) -> float:
    """The usual noise of red and blue where each tile has a tint of its own: parts may have different lights."""
    parts = [tiles == k for k in np.unique(tiles)]
    left = ((ratios[:, part] - np.median(ratios[:, part], axis=1)[:, None]) * level[part] for part in parts)
    return max(float(np.median([robust_scale(one.ravel()) for one in left])), LEAST)


def _loss(left: Float) -> Float:
    """The mean of q / (1 + q), q = left², of red and blue."""
    return np.asarray((left**2 / (1 + left**2)).mean(axis=0))


def share_saturated(seen: Float) -> Float:
    """The shares of pixels (luma and chroma, 3 x n, 0 is grey) whose red and blue are saturated, or may be."""
    return np.asarray((_channels(seen)[:2] > SATURATED).mean(axis=1)) if seen.size else np.zeros(2)


def least_saturated(tints: Float, shares: Float) -> Float:
    """The tint of a frame by which the others are known best; zeros, the most usual one, if that is as good.

    What is saturated in a frame (`shares` of red and blue, T x 2) does not say how it looks where there is less of it.

    >>> tints, shares = np.array([[0.0, 0], [0, 0], [-0.2, 0.1]]), np.array([[0.3, 0], [0.3, 0], [0, 0]])
    >>> least_saturated(tints, shares).tolist()
    [-0.2, 0.1]
    """
    some = np.unique(np.linspace(0, len(tints) - 1, TRIED).astype(int))
    lost = np.array([(shares[t] * np.maximum(tints[t] - tints, 0)).sum() for t in some]) / len(tints)
    usual = lost[np.abs(tints[some]).sum(axis=1).argmin()]
    return tints[some[lost.argmin()]] if usual > LOST else NO_TINT


def unknown(seen: Float, a: Float, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Which samples are too bright to know how they are without a tint, if others of the same pixel are not.

    `seen` (luma and chroma, 3 x n, 0 is grey) and the tints `a` (2 x n) are of n = samples x pixels, as `shape` says.
    Where those that are known are darker, they show something in front of what is too bright.
    """
    hidden = np.any((_channels(seen)[:2] > SATURATED) & (a > 0), axis=0).reshape(shape)
    luma = untinted_luma(seen, a).reshape(shape)
    some = np.flatnonzero(hidden.any(axis=0) & ~hidden.all(axis=0))
    one, other = (np.nanmedian(np.where(hidden[:, some] == which, luma[:, some], np.nan), axis=0) for which in (0, 1))
    found = np.zeros(shape, bool)
    found[:, some] = hidden[:, some] & (one >= (1 - ALIKE) * other)
    return found


def _times(factor: Any, level: NDArray[Any]) -> NDArray[Any]:
    """Levels times a factor; those near 255 go there."""
    beyond = np.maximum((level - SATURATED) / (255 - SATURATED), 0)
    found = factor * level
    return np.asarray((found + beyond * np.maximum(255 - factor * 255, 0)).clip(0, 255), found.dtype)


def _channels(picture: Float) -> Float:
    """Red, blue and green (3 x n) of luma and chroma (3 x n, 0 is grey)."""
    blue, red = (picture[0] + plane / scale for plane, scale in zip(picture[1:], TO_CHROMA, strict=True))
    return np.stack([red, blue, (picture[0] - REC601[0] * red - REC601[2] * blue) / REC601[1]])


def untinted_luma(seen: Float, a: Float) -> Float:
    """The luma (n) of pixels (luma and chroma, 3 x n, 0 is grey) without a tint."""
    red, blue, _ = _channels(seen)
    return np.asarray(seen[0] + REC601[0] * red * (np.exp(-a[0]) - 1) + REC601[2] * blue * (np.exp(-a[1]) - 1))


def tinted(picture: Picture, a: Float) -> Picture:
    """A picture with this tint; a tint of -a undoes it where nothing is saturated.

    >>> grey = Picture.of_rgb(np.full((2, 2, 3), 100, np.uint8))
    >>> far = tinted(grey, np.log([1.2, 0.8])).rgb()[0, 0] - np.array([120, 100, 80])
    >>> bool(np.abs(far).max() <= 1)
    True
    """
    rgb = picture.rgb()
    for k, factor in ((0, np.exp(a[0])), (2, np.exp(a[1]))):
        rgb[..., k] = levels(_times(factor, LEVELS))[rgb[..., k]]
    return Picture.of_rgb(rgb, halved=picture.halved)


def untinted(picture: Picture, a: Float, known: Picture) -> Picture:
    """A picture without this tint; where it is too bright to know how it is then, as another one that is known."""
    rgb = picture.rgb()
    bright: NDArray[np.bool_] = np.any((rgb[..., ::2] > SATURATED) & (a > 0), axis=2)
    found = tinted(picture, -a)
    return found.replaced(known, max_of_block(bright)) if bright.any() else found


def too_bright(picture: Picture, background: Picture, a: Float) -> NDArray[np.bool_]:
    """Blocks of 2 x 2 pixels of a picture with this tint that nobody can tell from its background.

    They are about as bright, and red or blue is saturated in one of the two, or in the background without the tint.
    """
    seen, behind = picture.rgb()[..., ::2], background.rgb()[..., ::2]
    most = np.maximum(seen, behind * np.maximum(np.exp(-a), 1))
    saturated: NDArray[np.bool_] = np.any(most > SATURATED, axis=2)
    return max_of_block(saturated & (np.abs(picture.luma - background.luma.astype(float)) <= NEARLY * background.luma))


def retinted(values: Grey, a: Float) -> Grey:
    """Values of blocks of 2 x 2 pixels (values x n, see `sampling.Layout`), each with a tint (2 x n) of its own."""
    luma, chroma = values[:4].astype(np.float32), values[4:].reshape(2, len(values) // 2 - 2, -1) - np.float32(NEUTRAL)
    blue, red = (luma + plane / np.float32(scale) for plane, scale in zip(chroma, TO_CHROMA, strict=True))
    factors: NDArray[Any] = np.exp(a).astype(np.float32)
    new_red, new_blue = _times(factors[0], red), _times(factors[1], blue)
    new_luma = luma + np.float32(REC601[0]) * (new_red - red) + np.float32(REC601[2]) * (new_blue - blue)
    of_chroma = [
        np.float32(scale) * (one - new_luma) for one, scale in zip((new_blue, new_red), TO_CHROMA, strict=True)
    ]
    if chroma.shape[1] == 1:  # one for the four pixels
        of_chroma = [one.mean(axis=0, keepdims=True) for one in of_chroma]
    return levels(np.concatenate([new_luma, *(one + NEUTRAL for one in of_chroma)]))
