"""Video in as a whole: grey frames in one array; and their pixels as an observed matrix."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..entries.observed import ObservedMatrix
from .frames import Frames, NoVideoError
from .pictures import Grey

__all__ = ["Grey", "TooLargeError", "Video", "read_video", "sample_pixels"]

MAX_BYTES = 1 << 30  # of grey frames in memory


class TooLargeError(ValueError):
    """More than may be in memory; `what` says it without advice."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(f"{what}: {advice}")
        self.what = what


@dataclass(frozen=True)
class Video:
    """Grey frames in their order, and what became of the others.

    >>> Video(np.zeros((3, 4, 5), np.uint8))
    Video(3 frames of 4 x 5 pixels)
    """

    frames: Grey  # (T, H, W)
    skipped: int = 0  # frames that were damaged
    every: int = 1  # one of so many frames was kept

    def __repr__(self) -> str:
        T, H, W = self.frames.shape
        kept = f", one of {self.every} kept" if self.every > 1 else ""
        damaged = f", {self.skipped} damaged ones skipped" if self.skipped else ""
        return f"Video({T} frames of {H} x {W} pixels{kept}{damaged})"


def read_video(
    source: str | os.PathLike[str],
    *,
    every: int = 1,
    shrink: int = 1,
    max_frames: int | None = None,
    max_bytes: int = MAX_BYTES,
    thin: bool = False,
) -> Video:
    """Read a video as grey frames of whole numbers from 0 to 255.

    Parameters
    ----------
    source
        A `.npy` or `.npz` file, a folder of pictures or a pattern, or anything PyAV opens: see `Frames`.
    every
        Keep the first of so many frames.
    shrink
        Replace blocks of so many pixels in both directions by their mean.
    max_frames
        Stop after so many kept frames.
    max_bytes, thin
        A video that needs more memory is an error; or, with ``thin=True``, every second of the frames kept so far is
        dropped, as often as needed. `Video.every` says so. One frame more than that is in memory at a time.

    Frames that the decoder finds damaged are skipped and counted.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "clip.npy")
    >>> np.save(path, np.arange(6 * 4 * 4, dtype=np.uint8).reshape(6, 4, 4))
    >>> video = read_video(path, every=2, shrink=2)
    >>> video, video.frames[1].tolist()
    (Video(3 frames of 2 x 2 pixels, one of 2 kept), [[34, 36], [42, 44]])
    >>> folder.cleanup()
    """
    for name, value in (("every", every), ("shrink", shrink), ("max_frames", max_frames), ("max_bytes", max_bytes)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(f"{name} must be a whole number of 1 or more, not {value!r}")
    frames = Frames(source, colour=False, shrink=shrink)
    shelf = _Shelf(frames.name, every, max_frames, max_bytes, thin)
    for frame in frames:
        if shelf.full:
            break
        shelf.take(frame.picture.luma)
    shelf.skipped = frames.skipped
    return shelf.video()


def sample_pixels(frames: ArrayLike, share: float, random_state: int | np.random.Generator = 0) -> ObservedMatrix:
    """The matrix with a column for each frame and a row for each pixel, of which a random share is observed.

    Grey levels 0 to 255 become numbers from 0 to 1, in single precision. Each pixel of each frame is observed with
    probability `share`, independently.

    >>> M = sample_pixels(np.full((10, 8, 6), 255, np.uint8), 0.5, random_state=1)
    >>> M.shape, M.dtype.name, float(M.values.max()), bool(0.4 < M.density < 0.6)
    ((48, 10), 'float32', 1.0, True)
    """
    pixels = np.asarray(frames)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or not pixels.size:
        raise ValueError(f"frames must be a (T, H, W) array of uint8, not {pixels.shape} of {pixels.dtype}")
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0 and at most 1 (0.5 is 50 %), not {share}")
    rng = np.random.default_rng(random_state)
    pixels = pixels.reshape(len(pixels), -1)
    rows = [np.flatnonzero(rng.random(frame.size) < share).astype(np.int32) for frame in pixels]
    values = [frame[seen] / np.float32(255) for frame, seen in zip(pixels, rows, strict=True)]
    indptr = np.concatenate([[0], np.cumsum([seen.size for seen in rows])])
    return ObservedMatrix(indptr, np.concatenate(rows), np.concatenate(values), (pixels.shape[1], len(pixels)))


class _Shelf:
    """Frames as they come in, within the limits."""

    def __init__(self, name: str, every: int, max_frames: int | None, max_bytes: int, thin: bool) -> None:
        self.name, self.every, self.thin = name, every, thin
        self.max_frames, self.max_bytes = max_frames, max_bytes
        self.kept: list[Grey] = []
        self.seen = self.skipped = 0

    @property
    def full(self) -> bool:
        return self.max_frames is not None and len(self.kept) >= self.max_frames

    def take(self, frame: Grey) -> None:
        """Keep a frame if it is its turn."""
        turn = self.seen % self.every == 0
        self.seen += 1
        if not turn:
            return
        if frame.nbytes * (len(self.kept) + 1) > self.max_bytes:
            if not self.thin or not self.kept:
                frame_of = "" if self.kept else ": a single frame of {} x {} pixels".format(*frame.shape)
                raise TooLargeError(
                    f"{self.name}{frame_of} needs more than {self.max_bytes / 1e6:.0f} MB",
                    "take fewer frames (every=, max_frames=), smaller ones (shrink=), or allow more (max_bytes=)",
                )
            self.kept = self.kept[::2]
            self.every *= 2
            if (self.seen - 1) % self.every:
                return
        self.kept.append(frame)

    def video(self) -> Video:
        if not self.kept:
            what = f"all {self.skipped} frames are damaged" if self.skipped else "there is no frame"
            raise NoVideoError(f"{self.name} cannot be read as a video: {what}")
        return Video(np.stack(self.kept), self.skipped, self.every)
