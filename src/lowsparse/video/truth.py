"""The ground truth of a video, masks or a clean background, and the scores of a separation against it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ..entries.clips.picture_files import PICTURES, frame_label
from ..entries.clips.reader import NoVideoError
from ..entries.frames import Frames
from ..entries.pictures import Grey, Picture, Region
from ..support.addresses import hide_passwords
from . import metrics
from .foreground import Separated

MASK_LEVELS = 16  # a picture with more grey levels is no mask
UNKNOWN = (85, 170)  # labels of changedetection.net: outside of the region of interest, and undecided
BINS = 4096  # of the histogram of distances; the best threshold is the edge of one
MAX_DISTANCE = 32.0  # its end


@dataclass(frozen=True)
class Truth:
    """Masks by the labels of their frames, or a clean background."""

    masks: dict[int, Grey] = field(default_factory=dict)
    background: Picture | None = None


def read_truth(path: str | os.PathLike[str], *, region: Region | None = None, shrink: int = 1) -> Truth:
    """Masks or a clean background, from a folder of pictures, a picture, or an `.npz` file.

    Pictures with up to 16 grey levels are masks: above 127 is foreground, 85 and 170 are unknown (as in
    changedetection.net); the last number in the name is that of the frame. Otherwise there must be one picture, the
    clean background. An `.npz` file has masks in `gt`, and the numbers of their frames in `gt_frame_id`. `region` and
    `shrink` are those of the frames.
    """
    source = Path(path)
    if not source.exists():
        raise FileNotFoundError(f"there is no {hide_passwords(str(source))} with the truth")
    if source.suffix.lower() == ".npz":
        return Truth(_read_archive(source, region, shrink))
    first = next(iter(Frames(source)), None)
    if first is None:
        raise NoVideoError(f"{source} is damaged")
    if len(np.unique(first.picture.luma)) <= MASK_LEVELS:
        pictures = Frames(source, colour=False, region=region, shrink=shrink)
        single = source.suffix.lower() in PICTURES
        masks = {frame_label(source, 0) if single else one.label: one.picture.luma for one in pictures}
        if pictures.skipped:
            raise NoVideoError(f"{source} has damaged masks in it: {pictures.skipped}")
        return Truth(masks)
    pictures = Frames(source, region=region, shrink=shrink)
    if source.is_dir() and pictures.length != 1:
        raise NoVideoError(f"{source} has {pictures.length} pictures that are no masks: one clean background is needed")
    return Truth(background=next(iter(pictures)).picture)


def _read_archive(path: Path, region: Region | None, shrink: int) -> dict[int, Grey]:
    with np.load(path, allow_pickle=False) as arrays:
        if not {"gt", "gt_frame_id"} <= set(arrays.files):
            raise NoVideoError(f"{path} has no arrays 'gt' and 'gt_frame_id'; it has {sorted(arrays.files)}")
        labels, masks = arrays["gt_frame_id"], arrays["gt"].astype(np.uint8)
    x, y, width, height = region or (0, 0, *masks.shape[:0:-1])
    parts = [Picture(mask).crop((x, y, width, height)).shrunken(shrink).luma for mask in masks]
    return dict(zip(labels.tolist(), parts, strict=True))


class Scores:
    """Scores of separated frames, added one at a time."""

    def __init__(self, truth: Truth, radius: int = 1) -> None:
        self.truth, self.radius = truth, radius
        self.masks = 0  # that were compared
        self._both = self._found = self._true = 0  # pixels in both masks, in that found, in the true one
        self._histograms = np.zeros((2, BINS), np.int64)  # distances of true background and of true foreground

    def check(self, shape: tuple[int, int]) -> None:
        """Raise if the clean background is not of this size."""
        clean = self.truth.background
        if clean is not None and clean.shape != shape:
            sizes = [f"{W} x {H}" for H, W in (clean.shape, shape)]
            raise ValueError(f"the clean background has {sizes[0]} pixels, the frames have {sizes[1]}")

    def add(self, one: Separated, distance: NDArray[np.float32]) -> None:
        """A frame that has a true mask, and the distances of its pixels from the background."""
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
        far = ndimage.median_filter(distance, 2 * self.radius + 1, mode="nearest")[known]
        bins = np.minimum(far * (BINS / MAX_DISTANCE), BINS - 1).astype(np.intp)
        for k in range(2):
            self._histograms[k] += np.bincount(bins[true == bool(k)], minlength=BINS)

    def summary(self, still: Picture | None = None) -> dict[str, float]:
        """The scores by name: of the masks, and of the background if it is known."""
        scores: dict[str, float] = {}
        if self.truth.masks and not self.masks:
            scores = {"masks": 0.0}  # they belong to other frames
        elif self.truth.masks:
            total = self._found + self._true
            false, true = np.cumsum(self._histograms[:, ::-1], axis=1)[:, ::-1]  # at a distance of at least each bin
            best = 2 * true / np.maximum(false + true + self._true, 1)
            k = int(np.argmax(best))
            scores = {
                "masks": float(self.masks),
                "precision": self._both / self._found if self._found else 1.0,
                "recall": self._both / self._true if self._true else 1.0,
                "f1": 2 * self._both / total if total else 1.0,
                "best_f1": float(best[k]) if self._true else 1.0,
                "best_threshold": k * MAX_DISTANCE / BINS,
            }
        if self.truth.background is not None and still is not None:
            pair = [still, self.truth.background]
            coloured = all(picture.chroma is not None for picture in pair)
            scores |= metrics.scene_metrics(*(picture.rgb() if coloured else picture.luma for picture in pair))
        return scores
