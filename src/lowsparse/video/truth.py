"""The truth about a video, masks of what is in front or a clean background, and the scores against it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from . import metrics
from .foreground import Separated
from .frames import PICTURES, NoVideoError, label_of, read_picture
from .pictures import Grey, Picture, Region

__all__ = ["Scores", "Truth", "read_truth"]

MANY = 16  # grey levels: a picture with more is no mask
UNKNOWN = (85, 170)  # labels of changedetection.net: outside of the region of interest, and not to be decided
BINS = 4096  # of distances, of which the best threshold is one
FARTHEST = 32.0  # distance that is told from larger ones


@dataclass(frozen=True)
class Truth:
    """Masks by the labels of their frames, or a clean background."""

    masks: dict[int, Grey] = field(default_factory=dict)
    background: Picture | None = None


def read_truth(path: str | os.PathLike[str], *, region: Region | None = None, shrink: int = 1) -> Truth:
    """Masks or a clean background, from a folder of pictures, a picture, or an `.npz` file.

    Pictures with up to 16 grey levels are masks: above 127 in front, 85 and 170 unknown (as in changedetection.net);
    the last number in the name says which frame it is. Else there must be one picture, the clean background. An `.npz`
    file has masks in `gt`, and in `gt_frame_id` the numbers of their frames. `region` and `shrink` are those of the
    frames.
    """
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"there is no {place} with the truth")
    if place.suffix.lower() == ".npz":
        return Truth(_cut(_archive(place), region, shrink))
    paths = sorted(one for one in place.iterdir() if one.suffix.lower() in PICTURES) if place.is_dir() else [place]
    if not paths:
        raise NoVideoError(f"{place} has no pictures in it ({', '.join(sorted(PICTURES))})")
    first = read_picture(paths[0])
    if len(np.unique(first.luma)) > MANY:
        if len(paths) > 1:
            raise NoVideoError(f"{place} has {len(paths)} pictures that are no masks: one clean background is needed")
        return Truth(background=_part(first, region, shrink))
    masks = {label_of(one, k): read_picture(one, colour=False).luma for k, one in enumerate(paths)}
    return Truth(_cut(masks, region, shrink))


def _archive(path: Path) -> dict[int, Grey]:
    with np.load(path, allow_pickle=False) as arrays:
        if not {"gt", "gt_frame_id"} <= set(arrays.files):
            raise NoVideoError(f"{path} has no arrays 'gt' and 'gt_frame_id'; it has {sorted(arrays.files)}")
        pairs = zip(arrays["gt_frame_id"], arrays["gt"], strict=True)
        return {int(label): np.asarray(mask, dtype=np.uint8) for label, mask in pairs}


def _cut(masks: dict[int, Grey], region: Region | None, shrink: int) -> dict[int, Grey]:
    return {label: _part(Picture(mask), region, shrink).luma for label, mask in masks.items()}


def _part(picture: Picture, region: Region | None, shrink: int) -> Picture:
    if region is not None and picture.halved:
        picture = Picture.of_rgb(picture.rgb())
    if region is not None:
        picture = picture.cut(region)
    return picture.shrunken(shrink) if shrink > 1 else picture


class Scores:
    """How well frames are separated, as they come.

    >>> from lowsparse.video.frames import Frame
    >>> grey = Picture(np.zeros((2, 2), np.uint8))
    >>> found = np.array([[True, True], [False, False]])
    >>> scores = Scores(Truth({7: np.array([[255, 0], [0, 0]], np.uint8)}), clean=0)
    >>> scores.add(Separated(Frame(grey, 0, 7, 0.0), np.ones(1), grey, found, 1.0), np.array([[3.0, 2], [0, 0]]))
    >>> {name: round(value, 3) for name, value in scores.summary().items()}
    {'masks': 1.0, 'precision': 0.5, 'recall': 1.0, 'f1': 0.667, 'best_f1': 1.0, 'best_threshold': 2.008}
    """

    def __init__(self, truth: Truth, clean: int = 1) -> None:
        self.truth, self.clean = truth, clean
        self.masks = 0
        self._both = self._found = self._true = 0
        self._near = np.zeros((2, BINS), np.int64)  # distances: of what is behind, of what is in front

    def wants(self, label: int) -> bool:
        """Whether there is a mask for the frame with this label."""
        return label in self.truth.masks

    def check(self, shape: tuple[int, int]) -> None:
        """Raise if the clean background is not of this size."""
        clean = self.truth.background
        if clean is not None and clean.shape != shape:
            sizes = [f"{W} x {H}" for H, W in (clean.shape, shape)]
            raise ValueError(f"the clean background has {sizes[0]} pixels, the frames have {sizes[1]}")

    def add(self, one: Separated, distance: NDArray[np.float32]) -> None:
        """A frame with a mask, and how far its pixels are from the background."""
        mask = self.truth.masks[one.frame.label]
        if mask.shape != one.mask.shape:
            sizes = [f"{W} x {H}" for H, W in (mask.shape, one.mask.shape)]
            raise ValueError(f"the true mask of frame {one.frame.label} has {sizes[0]} pixels, the frame {sizes[1]}")
        known = ~np.isin(mask, UNKNOWN)
        found, true = one.mask[known], (mask > 127)[known]
        self.masks += 1
        self._both += int(np.count_nonzero(found & true))
        self._found += int(np.count_nonzero(found))
        self._true += int(np.count_nonzero(true))
        far = ndimage.median_filter(distance, 2 * self.clean + 1, mode="nearest")[known]
        bins = np.minimum(far * (BINS / FARTHEST), BINS - 1).astype(np.intp)
        for k in range(2):
            self._near[k] += np.bincount(bins[true == bool(k)], minlength=BINS)

    def summary(self, still: Picture | None = None) -> dict[str, float]:
        """The scores by name: of the masks, and of the background if it is known."""
        scores: dict[str, float] = {}
        if self.truth.masks and not self.masks:
            scores = {"masks": 0.0}  # they are of other frames
        elif self.truth.masks:
            missed = self._found + self._true
            best = 2 * self._above(1) / np.maximum(self._above(0) + self._above(1) + self._true, 1)
            k = int(np.argmax(best))
            scores = {
                "masks": float(self.masks),
                "precision": self._both / self._found if self._found else 1.0,
                "recall": self._both / self._true if self._true else 1.0,
                "f1": 2 * self._both / missed if missed else 1.0,
                "best_f1": float(best[k]) if self._true else 1.0,
                "best_threshold": k * FARTHEST / BINS,
            }
        if self.truth.background is not None and still is not None:
            pair = [still, self.truth.background]
            coloured = all(picture.chroma is not None for picture in pair)
            scores |= metrics.scene_metrics(*(picture.rgb() if coloured else picture.luma for picture in pair))
        return scores

    def _above(self, k: int) -> NDArray[np.int64]:
        """Pixels at a distance of at least each bin."""
        return np.cumsum(self._near[k][::-1])[::-1]
