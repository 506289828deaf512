"""Boxes around what is in front, and tracks: the same number for the same object from frame to frame.

A blob is a connected region of the mask. From frame to frame blobs are assigned to the objects that are known, so that

    Σ (overlap of the boxes + 1 - distance of the centres / limit) √(ratio of the areas) (less for what is new)

is largest, where an object is expected at its last place plus its velocity times the time since then, and the limit is
twice the side of a square of its size. Pieces of an object are joined, and one that is hidden in part is expected to go
on as before. Objects that meet share a box, which has the number of one of them, and are expected to go on as before.
What is not seen for a second keeps its number; what is seen in fewer than three frames is left out.
"""

from __future__ import annotations

import csv
import io
import json
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ..sweeps import Float
from .film import picture_name
from .foreground import TINY, Mask, label_regions

PATIENCE = 1.0  # seconds for which an object may be out of sight
REACH = 2.0  # sides of a square of the size of an object: how far it may be from where it is expected
STEADINESS = 0.7  # of the velocity of an object: the part that is kept from frame to frame
HIDDEN = 0.85  # times the area of an object: if a box is smaller, a part of the object is hidden,
SHRINKING = 0.98  # and its sides are expected to be shorter by this factor in the next frame
MOSTLY = 0.5  # share of a piece that is within the box of an object, or of an object that is within a box of several
KNOWN = 10  # frames after which an object is as sure of its box as those that are known for longer
LEAST = 3  # frames in which an object is seen

Boxes = NDArray[np.int64]  # n x 4: x, y, width, height, in pixels


@dataclass(frozen=True)
class Tracks:
    """Boxes of objects, one in a row, in the order of the frames; objects are numbered from 1."""

    frame: NDArray[np.int64]  # its number in the source, from 0
    time: Float  # seconds
    track: NDArray[np.int64]  # number of the object
    box: Boxes
    area: NDArray[np.int64]  # pixels
    edges: list[NDArray[np.int64]]  # where it begins, ends, begins ..., if pixels are counted down the columns, from 0

    def __len__(self) -> int:
        return len(self.frame)

    def to_csv(self) -> bytes:
        """A table: frame, time, track, x, y, width, height, area."""
        file = io.StringIO(newline="")
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["frame", "time", "track", "x", "y", "width", "height", "area"])
        for frame, time, track, box, area in zip(*self._columns(), strict=True):
            table.writerow([frame, f"{time:.3f}", track, *box, area])
        return file.getvalue().encode()

    def to_coco(self, numbers: Iterable[int], labels: Iterable[int], times: Float, shape: tuple[int, int]) -> bytes:
        """Boxes and masks as JSON in the format of COCO, with `track_id`.

        Of all frames numbers, labels and times are given; their files have the names of the pictures of
        `PictureFolder`. A mask is a list of the numbers of pixels, down the columns, that are not in it, in it, not in
        it, and so on (uncompressed RLE).
        """
        height, width = shape
        images = [
            {"id": number, "file_name": picture_name(label), "width": width, "height": height, "time": round(time, 3)}
            for number, label, time in zip(numbers, labels, times.tolist(), strict=True)
        ]
        annotations = [
            {
                "id": k,
                "image_id": frame,
                "category_id": 1,
                "track_id": track,
                "bbox": box,
                "area": area,
                "segmentation": {"size": [height, width], "counts": _run_lengths(edges, height * width)},
                "iscrowd": 0,
            }
            for k, (frame, _, track, box, area, edges) in enumerate(zip(*self._columns(), self.edges, strict=True), 1)
        ]
        categories = [{"id": 1, "name": "foreground"}]
        return json.dumps({"images": images, "annotations": annotations, "categories": categories}).encode()

    def _columns(self) -> tuple[list[int], list[float], list[int], list[list[int]], list[int]]:
        return self.frame.tolist(), self.time.tolist(), self.track.tolist(), self.box.tolist(), self.area.tolist()


@dataclass
class _Object:
    number: int
    size: Float  # width, height
    centre: Float
    velocity: Float  # pixels a second
    seen: float  # when, in seconds
    frames: int = 1  # in which it was seen

    def expected(self, time: float) -> Float:
        """The box (x, y, width, height) in which it is expected."""
        centre = self.centre + (time - self.seen) * self.velocity
        return np.concatenate([centre - self.size / 2, self.size])

    def follow(self, box: Float, time: float) -> None:
        """Take this box as its next one, unless it is so small that something hides a part of the object."""
        if box[2:].prod() < HIDDEN * self.size.prod():
            self.size = SHRINKING * self.size
            self.go_on(box, time)
            return
        centre = box[:2] + box[2:] / 2
        step = (centre - self.centre) / max(time - self.seen, 1e-9)
        keep = STEADINESS if self.frames > 1 else 0.0
        self.velocity = keep * self.velocity + (1 - keep) * step
        self.size, self.centre, self.seen, self.frames = box[2:], centre, time, self.frames + 1

    def go_on(self, box: Float, time: float) -> None:
        """Go on as before, as far as this box allows, which shows a part of it, or others, too."""
        centre = self.expected(time)[:2] + self.size / 2
        ends = box[:2] + self.size / 2, box[:2] + box[2:] - self.size / 2  # it is inside the box, or the box inside it
        self.centre, self.seen = np.clip(centre, np.minimum(*ends), np.maximum(*ends)), time


class Tracker:
    """Takes the masks of a video one by one, and numbers what is in front.

    >>> tracker = Tracker()
    >>> for t in range(8):
    ...     mask = np.zeros((60, 80), bool)
    ...     mask[20:30, 5 * t : 5 * t + 10] = mask[40:50, 60 - 5 * t : 70 - 5 * t] = True
    ...     numbers, boxes = tracker.add(mask if t != 4 else np.zeros_like(mask), t, t / 10)
    >>> numbers.tolist(), boxes.tolist()
    ([1, 2], [[35, 20, 10, 10], [25, 40, 10, 10]])
    """

    def __init__(self) -> None:
        self._objects: list[_Object] = []
        self._count = 0  # of objects
        self._rows = array("q")  # frame, track, x, y, width, height, area
        self._times = array("d")
        self._edges: list[NDArray[np.int64]] = []

    def add(self, mask: Mask, number: int, time: float) -> tuple[NDArray[np.int64], Boxes]:
        """The numbers and the boxes of the objects in the mask of this frame."""
        labels, numbers, boxes, areas = find_blobs(mask)
        self._objects = [one for one in self._objects if time - one.seen <= PATIENCE]
        expected = np.array([one.expected(time) for one in self._objects]).reshape(-1, 4)
        boxes, areas, owners, pieces = self._assign(boxes, areas, expected)
        self._move(boxes, owners, expected, time)
        tracks = np.array([self._objects[k].number for k in owners], np.int64)
        for track, box, area, parts in zip(tracks.tolist(), boxes.tolist(), areas.tolist(), pieces, strict=True):
            self._rows.extend((number, track, *box, area))
            self._times.append(time)
            self._edges.append(_edges(labels, numbers[parts], box))
        return tracks, boxes

    def _assign(
        self, boxes: Boxes, areas: NDArray[np.int64], expected: Float
    ) -> tuple[Boxes, NDArray[np.int64], NDArray[np.int64], list[list[int]]]:
        """Boxes and areas, for each the object it belongs to, -1 if it is new, and the boxes that were joined to it.

        Pieces of an object are joined.
        """
        from scipy.optimize import linear_sum_assignment  # not before it is needed: it takes 16 MB

        owners = np.full(len(boxes), -1)
        known = np.array([min(one.frames, KNOWN) / KNOWN for one in self._objects]).reshape(-1, 1)
        scores = known * _scores(expected, boxes)
        rows, columns = linear_sum_assignment(scores, maximize=True)
        found = scores[rows, columns] > 0
        owners[columns[found]] = rows[found]
        inside = _common(expected, boxes) / boxes[:, 2:].prod(axis=1)
        kept, pieces = np.ones(len(boxes), bool), [[j] for j in range(len(boxes))]
        for j in np.flatnonzero((owners < 0) & (inside.max(axis=0, initial=0.0) > MOSTLY)):
            for main in np.flatnonzero(owners == inside[:, j].argmax()):
                start = np.minimum(boxes[main, :2], boxes[j, :2])
                end = np.maximum(boxes[main, :2] + boxes[main, 2:], boxes[j, :2] + boxes[j, 2:])
                boxes[main] = *start, *(end - start)
                areas[main] += areas[j]
                pieces[main] += pieces[j]
                kept[j] = False
        return boxes[kept], areas[kept], owners[kept], [pieces[j] for j in np.flatnonzero(kept)]

    def _move(self, boxes: Boxes, owners: NDArray[np.int64], expected: Float, time: float) -> None:
        """Move the objects to their boxes, and begin new ones; those that share a box go on as before."""
        inside = _common(expected, boxes) / np.maximum(expected[:, 2:].prod(axis=1, keepdims=True), 1e-9)
        for j, box in enumerate(boxes.astype(np.float64)):
            shared = [k for k in np.flatnonzero(inside[:, j] > MOSTLY) if k == owners[j] or k not in owners]
            if owners[j] < 0:
                self._count += 1
                owners[j] = len(self._objects)
                self._objects.append(_Object(self._count, box[2:], box[:2] + box[2:] / 2, np.zeros(2), time))
            elif len(shared) < 2:
                self._objects[owners[j]].follow(box, time)
            else:
                for k in {int(owners[j]), *map(int, shared)}:
                    self._objects[k].go_on(box, time)

    def tracks(self) -> Tracks:
        """All objects that were seen in three frames or more, numbered in the order in which they came."""
        rows = np.array(self._rows, np.int64).reshape(-1, 7)
        seen = np.bincount(rows[:, 1], minlength=1) >= LEAST
        seen[0] = False
        kept = seen[rows[:, 1]]
        number = np.cumsum(seen, dtype=np.int64)
        rows, times = rows[kept], np.array(self._times)[kept]
        edges = [self._edges[k] for k in np.flatnonzero(kept)]
        return Tracks(rows[:, 0], times, number[rows[:, 1]], rows[:, 2:6], rows[:, 6], edges)


def find_blobs(mask: Mask) -> tuple[NDArray[np.intp], NDArray[np.intp], Boxes, NDArray[np.int64]]:
    """The labels of the regions of a mask, and of those that are no specks their numbers, boxes and areas."""
    labels, areas = label_regions(mask, corners=True)
    found = ndimage.find_objects(labels)
    boxes = [(x.start, y.start, x.stop - x.start, y.stop - y.start) for y, x in found]
    large = np.flatnonzero(areas[1:] >= mask.size / TINY)
    return labels, large + 1, np.array(boxes, np.int64).reshape(-1, 4)[large], areas[1:][large].astype(np.int64)


def _edges(labels: NDArray[np.intp], numbers: NDArray[np.intp], box: list[int]) -> NDArray[np.int64]:
    """Where regions begin, end, begin ..., if pixels are counted down the columns; they are inside this box.

    >>> _edges(np.array([[0, 2], [1, 2], [1, 0]]), np.array([1, 2]), [0, 0, 2, 3]).tolist()
    [1, 5]
    """
    x, y, width, height = box
    inside = np.zeros((width, height + 2), np.int8)  # a column in each line
    inside[:, 1:-1] = np.isin(labels[y : y + height, x : x + width], numbers).T
    columns, rows = np.nonzero(np.diff(inside, axis=1))
    edges = (columns + x) * labels.shape[0] + rows + y
    joined = np.flatnonzero(edges[1:-1:2] == edges[2::2])  # an end at the bottom, and a begin at the top beside it
    return np.delete(edges, [2 * joined + 1, 2 * joined + 2]).astype(np.int64)


def _run_lengths(edges: NDArray[np.int64], pixels: int) -> list[int]:
    """The numbers of pixels between edges, from the first pixel to the last."""
    return np.diff(edges, prepend=0, append=pixels).tolist()  # type: ignore[no-any-return]


def _common(some: Float, others: Boxes) -> Float:
    """The area that each of some boxes has in common with each of others."""
    start = np.maximum(some[:, None, :2], others[None, :, :2])
    end = np.minimum(some[:, None, :2] + some[:, None, 2:], others[None, :, :2] + others[None, :, 2:])
    return np.asarray(np.maximum(end - start, 0).prod(axis=2), np.float64)


def _scores(expected: Float, boxes: Boxes) -> Float:
    """How well each box fits each object, by where it is expected; 0 if it cannot be this object."""
    areas, area = boxes[:, 2:].prod(axis=1)[None], expected[:, 2:].prod(axis=1)[:, None]
    common = _common(expected, boxes)
    centres, centre = (one[:, :2] + one[:, 2:] / 2 for one in (boxes, expected))
    distance = np.linalg.norm(centre[:, None] - centres[None], axis=2)
    nearness = np.maximum(1 - distance / (REACH * np.sqrt(area)), 0)
    alike = np.sqrt(np.minimum(areas, area) / np.maximum(areas, area))
    return np.asarray((common / (areas + area - common) + nearness) * alike)
