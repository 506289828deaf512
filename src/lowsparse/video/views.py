"""What is shown of a frame that has been separated: its mask, a cut-out, an overlay, its background."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..entries.pictures import NEUTRAL, Grey, Picture
from .foreground import Mask, Separated, max_of_block

GREY = 128  # luma behind a cut-out: dark and light clothes differ from it
TINT = 120, 90, 225  # luma and chroma of what is in front in an overlay: red


def mask(one: Separated) -> Picture:
    """What is in front in white, the rest in black."""
    return Picture(one.mask.view(np.uint8) * np.uint8(255))


def cutout(one: Separated) -> Picture:
    """What is in front, on grey.

    >>> from lowsparse.entries.frames import Frame
    >>> frame = Frame(Picture(np.array([[10, 200]], np.uint8)), 0, 0, 0.0)
    >>> cutout(Separated(frame, np.ones(1), frame.picture, np.array([[True, False]]), 1.0)).luma.tolist()
    [[10, 128]]
    """
    picture = one.frame.picture
    luma = _chosen(one.mask, picture.luma, GREY)
    return Picture(luma, None if picture.chroma is None else _chosen(_of_chroma(one), picture.chroma, NEUTRAL))


def overlay(one: Separated) -> Picture:
    """The frame, with what is in front half covered in red."""
    picture = one.frame.picture
    luma, *chroma = (np.uint8(level) for level in TINT)
    planes = picture.chroma
    if planes is None:
        planes = np.full((2, *picture.shape), NEUTRAL, np.uint8)
    tint = np.stack([np.full(planes.shape[1:], level) for level in chroma])
    return Picture(
        np.where(one.mask, _mean(picture.luma, luma), picture.luma),
        np.where(_of_chroma(one), _mean(planes, tint), planes),
    )


def _of_chroma(one: Separated) -> Mask:
    """The mask in the resolution of the chroma."""
    return max_of_block(one.mask) if one.frame.picture.halved else one.mask


def _chosen(mask: Mask, planes: Grey, level: int) -> Grey:
    """mask ? planes : level; with integers this takes a third of the time of `where`."""
    found = planes ^ np.uint8(level)
    found &= -mask.view(np.uint8)
    found ^= np.uint8(level)
    return found


def _mean(one: Grey, other: Grey | np.uint8) -> Grey:
    return (one >> 1) + (other >> 1)


VIEWS: dict[str, Callable[[Separated], Picture]] = {
    "mask": mask,
    "cutout": cutout,
    "overlay": overlay,
    "background": lambda one: one.background,
}
FILMS = ("mask", "cutout")  # that are written if nothing else is asked for
FORMATS = {"mp4": ".mp4", "mkv": ".mkv", "png": ""}  # and how the name of the file, or of the folder of pictures, ends


def parse_film(film: str) -> tuple[str, str]:
    """The view that a film shows, and the name of its file; of pictures, that of their folder.

    >>> parse_film("mask"), parse_film("mask.mkv"), parse_film("cutout.png")
    (('mask', 'mask.mp4'), ('mask', 'mask.mkv'), ('cutout', 'cutout'))
    """
    view, _, kind = film.partition(".")
    if view not in VIEWS or (kind or "mp4") not in FORMATS:
        raise ValueError(
            f"there is no film {film!r}: choose from {', '.join(VIEWS)}, each as it is (MP4), or without loss as .mkv "
            "(FFV1) or .png (a folder of pictures)"
        )
    return view, view + FORMATS[kind or "mp4"]
