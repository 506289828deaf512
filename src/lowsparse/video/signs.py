"""Signs that a background is wrong, in pictures that were separated by it.

A thing that is in front has an outline, which the background has not (see `ghosts`), and a texture of its own (see
`light`). Where the background is wrong, because things have come or left, because the light is another, or because the
camera has moved, regions seem to be in front that have the outlines or the texture of the background; and if it is
smeared, its edges seem to be in front more often than the rest of it. Where it has a texture that is seen in what is in
front, that is a shadow, or a patch of light (see `shadows`).

Leaves and water, which are never calm, mostly are large, or scattered. A single place that is never calm is a screen, a
fan, a curtain, or somebody who stays there, moves a little, and is background in part; a small one is only if it is in
front more often than the rest. A lamp is none: what it adds is smooth.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ..entries.pictures import Grey
from ..sweeps import Float
from .foreground import FINE, Mask, Value, label_regions, max_of_block
from .ghosts import outline_ratio
from .light import split_changes
from .sampling import Single
from .shadows import BINS, count_factors, seen_surface, usual_factor

OUTLINED = 0.8  # ratio of the steps at the border of a region, above which it has no outline of its own
VAGUE = 0.16  # share of what is in front that has none, above which the background is doubtful
EDGES = 0.2  # share of the pixels that are the edges of a picture
SMEARED = 1.7  # how much more often than others they are in front if the background is smeared,
MORE = 0.03  # and in which share of the pictures more
MOST_EDGES, THAN_OTHERS = 0.5, 2.2  # share of them that is never calm, and times that of others, if the picture wavers
# Share of the texture behind what is in front that is seen, darker or brighter, if it is light.
SHADED, LIT = 0.025, 0.1
LEAST = 0.01  # share of what is in front that is light, then
OF_ONE_FACTOR = 0.5, 0.05  # times these shares suffice for shadows that have nearly one factor
NOISIER, LEVELS = 3.0, 3.0  # times the usual noise, and grey levels of it: a pixel with more is never calm
GAP = 5  # side of the square of pixels within which such pixels are of one place
PLACE, SOLID = (0.015, 0.2), 0.5  # share of the picture that a single place has, and share of such pixels in it;
OUTLINE, ALONE = 9, 0.6  # side of the square if they are the outline of a place, and share of them that it has,
# or if it is hollow: part of the picture that the square may be as well, its width, share of the place that is inside,
# share of these pixels there, and of the border that has some near it,
WIDE, WALL, HOLLOW, AROUND = 6, 4, (0.15, 0.1), 0.8
BEHIND = 0.25  # which is in front in a smaller share of the pictures: otherwise it is somebody who is seen
SMALL = 0.03  # one that is smaller counts only if it is in front
ROUGH = 2.2  # times as rough as the rest is what differs there from the background: light is smoother
OFTENER = 2.0  # times as often as the rest
# Share of all that moves, and of the picture, that are specks too small for a mask, if they matter.
SPECKS = 0.3, 0.0003


@dataclass(frozen=True)
class Signs:
    """Sums over pictures of the shares of the pixels, or of some of them, that are in front."""

    pictures: int = 0
    front: float = 0.0  # of all pixels
    vague: float = 0.0  # of all pixels, in regions without an outline or a texture of their own
    edges: float = 0.0  # of the edges of the background
    others: float = 0.0  # of the other pixels
    textured: float = 0.0  # of all pixels, where the background has a texture,
    darker: float = 0.0  # and of these, where it is seen, darker than it is
    brighter: float = 0.0  # or brighter
    place: float = 0.0  # of all pixels, that are of a single place that is never calm,
    in_place: float = 0.0  # and of all pixels, that are in front there
    specks: float = 0.0  # of all pixels, that differ in regions too small for the mask
    factors: Float = field(
        default_factory=lambda: np.zeros(BINS), compare=False
    )  # of `darker`, by the factor of the light

    @classmethod
    def of(cls, mask: Mask, frame: Grey, background: Grey) -> Self:
        """The signs in one picture, from its mask, its luma and that of its background.

        >>> floor = np.full((60, 80), 90, np.uint8)
        >>> frame, background, mask = floor.copy(), floor.copy(), np.zeros(floor.shape, bool)
        >>> frame[10:30, 10:20] = background[30:50, 50:60] = 200
        >>> mask[10:30, 10:20] = mask[30:50, 50:60] = True
        >>> Signs.of(mask, frame, background).share_vague
        0.5
        """
        frame, background, mask = _smaller(frame), _smaller(background), coarser(mask)
        one, other = (ndimage.uniform_filter(luma, 3) for luma in (frame, background))  # less noise
        is_edge = _strongest_edges(other)
        vague = outline_ratio(mask, frame, background) > OUTLINED
        vague |= split_changes(mask, one, other)[0]
        edges, others = (float(mask[part].mean()) if part.any() else 0.0 for part in (is_edge, ~is_edge))
        textured, darker, brighter, factor = seen_surface(mask, frame, background)
        return cls(
            pictures=1,
            front=float(mask.mean()),
            vague=float(vague.mean()),
            edges=edges,
            others=others,
            textured=float(textured.mean()),
            darker=float(darker.mean()),
            brighter=float(brighter.mean()),
            factors=count_factors(factor[darker]) / mask.size,
        )

    def __add__(self, other: Signs) -> Signs:
        return Signs(*(mine + yours for mine, yours in zip(astuple(self), astuple(other), strict=True)))

    @property
    def share_vague(self) -> float:
        """Share of what is in front that has no outline or texture of its own."""
        return self.vague / self.front if self.front else 0.0

    @property
    def is_vague(self) -> bool:
        """Whether that is so much that the background is doubtful."""
        return self.share_vague > VAGUE

    @property
    def is_smeared(self) -> bool:
        """Whether the edges of the background are in front much more often than the rest of it."""
        return self.edges > max(SMEARED * self.others, self.others + MORE * self.pictures)

    @property
    def has_shadows(self) -> bool:
        """Whether so much of what is in front is the background, darker, that shadows are cast."""
        return self.darker > max(SHADED * self.textured, LEAST * self.front)

    @property
    def shadow_factor(self) -> float | None:
        """The factor of the light that most shadows have, if there are any and it is known."""
        seen, least = OF_ONE_FACTOR
        are_cast = self.darker > max(seen * SHADED * self.textured, least * LEAST * self.front)
        return usual_factor(self.factors) if are_cast else None

    @property
    def has_patches(self) -> bool:
        """Whether so much of what is in front is the background, brighter, that light falls on parts of it."""
        return self.brighter > max(LIT * self.textured, LEAST * self.front)

    @property
    def has_specks(self) -> bool:
        """Whether much of what moves is too small for a mask."""
        return self.specks > max(SPECKS[0] * (self.specks + self.front), SPECKS[1] * self.pictures)

    @property
    def share_of_place(self) -> float:
        """Share of the picture that is a single place that is never calm."""
        return self.place / self.pictures if self.pictures else 0.0

    @property
    def has_restless_place(self) -> bool:
        """Whether there is one, and it is not small, or in front much more often than the rest of the picture."""
        is_in_front = self.in_place * (self.pictures - self.place) > OFTENER * (self.front - self.in_place) * self.place
        return is_in_front or self.share_of_place > SMALL


def _smaller(numbers: NDArray[Value]) -> NDArray[Value]:
    """Every second line and column of a large picture, as often as `Signs.of` makes it smaller."""
    while numbers.size > FINE:
        numbers = numbers[::2, ::2]
    return numbers


def coarser(mask: Mask) -> Mask:
    """A mask of blocks of a large picture, as large as `_smaller` makes it."""
    while mask.size > FINE:
        mask = max_of_block(mask)
    return mask


def restless(noise: Single, level: float) -> Mask:
    """The pixels that are never calm, by their noise and the usual one.

    >>> restless(np.array([1.0, 4.0, 7.0], np.float32), 2.0).tolist()
    [False, False, True]
    """
    return np.asarray(noise > max(NOISIER * level, LEVELS))


def restless_place(noise: Single, level: float) -> Mask | None:
    """The place where most pixels are never calm, and a border of two pixels, if there is a single one.

    Of a large picture, every second line and column counts, as often as `Signs.of` makes it smaller.

    >>> noise = np.ones((60, 80), np.float32)
    >>> noise[20:30, 30:50] = 9
    >>> place = restless_place(noise, 1.0)
    >>> int(place.sum()), restless_place(noise[:30, 30:50], 1.0) is None
    (336, True)
    """
    never_calm = restless(_smaller(noise), level)
    place = _largest(_closed(never_calm, GAP))
    return None if place is None or never_calm[place].mean() < SOLID else _with_border(place)


def outlined_place(noise: Single, level: float, flickers: Mask) -> Mask | None:
    """The place that pixels surround that are never calm or flicker, and a border, if there is one.

    It has most of such pixels, or none of them inside. Somebody who is there all the time and sways by a pixel has such
    an outline. Sizes are as of `restless_place`.

    >>> flickers = np.zeros((60, 80), bool)
    >>> flickers[10:40, 30:50] = True
    >>> flickers[11:39, 31:49] = False
    >>> noise = np.ones((60, 80), np.float32)
    >>> int(outlined_place(noise, 1.0, flickers).sum()), outlined_place(noise, 1.0, ~flickers) is None
    (816, True)
    """
    edges = restless(_smaller(noise), level) | _smaller(flickers)
    place = _largest(ndimage.binary_fill_holes(_closed(edges, OUTLINE)))
    if place is None or edges[place].sum() < ALONE * edges.sum():
        gaps = OUTLINE, max(OUTLINE, min(edges.shape) // WIDE | 1)
        hollow = (_largest_hollow(ndimage.binary_fill_holes(_closed(edges, gap)), edges) for gap in gaps)
        place = next((one for one in hollow if one is not None), None)
    return None if place is None else _with_border(place)


def edges_waver(noise: Single, level: float, flickers: Mask, background: Grey) -> bool:
    """Whether most edges of the background are never calm or flicker, and much more often than the rest of it.

    >>> background = np.tile(np.repeat(np.array([60, 60, 60, 180, 180], np.uint8), 4), (40, 3))
    >>> noise = np.where(_strongest_edges(ndimage.uniform_filter(background, 3)), 9, 1).astype(np.float32)
    >>> still = np.zeros(noise.shape, bool)
    >>> edges_waver(noise, 1.0, still, background), edges_waver(noise.T.copy(), 1.0, still.T, background.T * 0)
    (True, False)
    """
    wavers = restless(_smaller(noise), level) | _smaller(flickers)
    is_edge = _strongest_edges(ndimage.uniform_filter(_smaller(background), 3))
    if is_edge.all() or not is_edge.any():
        return False
    return bool(wavers[is_edge].mean() > max(MOST_EDGES, THAN_OTHERS * wavers[~is_edge].mean()))


def _strongest_edges(luma: Grey) -> Mask:
    """The pixels of a picture with the strongest gradients."""
    strength = sum(np.abs(ndimage.sobel(luma.astype(np.int32), axis)) for axis in (0, 1))
    return np.asarray(strength > np.quantile(strength, 1 - EDGES))


def share_in(place: Mask, mask: Mask) -> float:
    """Share of the picture that is in front in a place."""
    return float(np.mean(coarser(mask) & place))


def share_of_specks(mask: Mask, frame: Grey, background: Grey, bound: Grey) -> float:
    """Share of the pixels that differ by more than a bound, in squares of 2 x 2 or more, and are not in the mask.

    Of a large picture, every second line and column counts.

    >>> frame = np.zeros((60, 80), np.uint8)
    >>> frame[10:13, 10:13] = frame[30:50, 30:50] = 90
    >>> 60 * 80 * share_of_specks(frame > 0, frame, 0 * frame, 0 * frame + 40)
    0.0
    >>> mask = ndimage.binary_opening(frame, np.ones((9, 9), bool))
    >>> round(60 * 80 * share_of_specks(mask, frame, 0 * frame, 0 * frame + 40))
    9
    """
    step = 1 if mask.size <= FINE else 2
    x, b, c, known = (one[::step, ::step] for one in (frame, background, bound, mask))
    beyond = np.maximum(x, b) - np.minimum(x, b) > c
    square = beyond[:-1, :-1] & beyond[1:, :-1] & beyond[:-1, 1:] & beyond[1:, 1:]
    beyond[:] = False
    for rows, columns in itertools.product((slice(-1), slice(1, None)), repeat=2):
        beyond[rows, columns] |= square
    return float(np.mean(beyond & ~known))


def unsure_outline(mask: Mask, frame: Grey, background: Grey, place: Mask) -> float:
    """The usual `outline_ratio` in a place, of what is in front without its gaps.

    >>> floor = np.full((60, 80), 90, np.uint8)
    >>> frame, thing = floor.copy(), floor.copy()
    >>> thing[10:50, 20:60] = 150
    >>> frame[10:50, 38:42] = 150  # by chance, as the thing is
    >>> mask = frame != thing
    >>> unsure_outline(mask, frame, thing, mask) > 2, unsure_outline(mask, thing, frame, mask) < 0.5
    (True, True)
    """
    mask, frame, background = coarser(mask), _smaller(frame), _smaller(background)
    whole = ndimage.binary_fill_holes(_closed(mask, max(OUTLINE, min(mask.shape) // WIDE | 1)))
    return float(np.median(outline_ratio(whole, frame, background)[coarser(place)]))


def _closed(mask: Mask, gap: int) -> Mask:
    """A mask without gaps narrower than this, an odd number."""
    wide = ndimage.maximum_filter(np.pad(mask, gap), gap)  # separable, unlike SciPy's binary closing
    return np.asarray(ndimage.minimum_filter(wide, gap)[gap:-gap, gap:-gap])


def _largest(mask: Mask) -> Mask | None:
    """The largest region of a mask, if it can be a place."""
    labels, areas = label_regions(mask, corners=False)
    areas[0] = 0
    return labels == areas.argmax() if PLACE[0] < areas.max() / mask.size < PLACE[1] else None


def _largest_hollow(regions: Mask, edges: Mask) -> Mask | None:
    """The largest region that can be a place, with such pixels along most of its border, and almost none inside."""
    square = np.ones((3, 3), bool)
    labels, areas = label_regions(regions, corners=False)

    def sizes(which: Mask) -> NDArray[np.int64]:
        return np.bincount(labels[which], minlength=areas.size)

    inside, border = ndimage.binary_erosion(regions, square, WALL), regions & ~ndimage.binary_erosion(regions, square)
    is_open = sizes(inside & edges) < HOLLOW[1] * sizes(inside)
    is_open &= sizes(inside) > HOLLOW[0] * areas
    is_open &= sizes(border & ndimage.binary_dilation(edges, square, 2)) > AROUND * sizes(border)
    areas[~is_open | (areas <= PLACE[0] * regions.size) | (areas >= PLACE[1] * regions.size)] = 0
    areas[0] = 0
    return labels == areas.argmax() if areas.any() else None


def _with_border(place: Mask) -> Mask:
    return np.asarray(ndimage.binary_dilation(place, np.ones((3, 3), bool), 2))


def roughness(frame: Grey, background: Grey) -> Single:
    """How far the difference of a picture from its background is from its mean in a small square around each pixel."""
    difference = _smaller(frame).astype(np.float32) - _smaller(background)
    return np.asarray(np.abs(difference - ndimage.uniform_filter(difference, GAP)))


def is_light(place: Mask, rough: Sequence[Single]) -> bool:
    """Whether it is the light that is never calm in a place, by the `roughness` of some pictures.

    >>> place = np.zeros((4, 4), bool)
    >>> place[:2] = True
    >>> is_light(place, [np.ones((4, 4), np.float32)]), is_light(place, [1 + 3 * place.astype(np.float32)])
    (True, False)
    """
    usual = np.median(rough, axis=0)
    return bool(usual[place].mean() < ROUGH * usual[~place].mean())
