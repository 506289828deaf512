"""A video as one array of grey frames, and its pixels as a partly observed matrix."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..entries.clips.reader import NoVideoError
from ..entries.compressed import offsets
from ..entries.frames import Frames
from ..entries.observed import ObservedMatrix
from ..entries.pictures import Grey
from ..support.checks import check_count
from .sampling import check_fraction

MAX_BYTES = 1 << 30  # of grey frames in memory


class TooLargeError(ValueError):
    """More than fits the memory limit; `what` is the message without the advice."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(f"{what}: {advice}")
        self.what = what


@dataclass(frozen=True)
class Video:
    """Grey frames in order.

    >>> Video(np.zeros((3, 4, 5), np.uint8))
    Video(3 frames of 4 x 5 pixels)
    """

    frames: Grey  # (T, H, W)
    skipped: int = 0  # damaged frames
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
    """Read a video as grey frames of integers from 0 to 255.

    Parameters
    ----------
    source, shrink
        The video, and the side of the blocks of pixels that are replaced by their mean: see `Frames`.
    every
        Keep the first of so many frames.
    max_frames
        Stop after so many kept frames.
    max_bytes, thin
        A video that needs more memory is an error; with ``thin=True``, every second of the frames kept so far is
        dropped instead, as often as needed, and `Video.every` grows. One more frame is in memory at a time.

    Returns
    -------
    Video
        `frames` (T, H, W), how many were damaged (`skipped`), and of how many one was kept (`every`).

    Raises
    ------
    TooLargeError
        If it needs more than `max_bytes`, and `thin` is not set.
    NoVideoError
        If no frame can be read.

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
    for name, value in (("every", every), ("max_frames", max_frames), ("max_bytes", max_bytes)):
        if value is not None:
            check_count(name, value)
    frames = Frames(source, colour=False, shrink=shrink)
    kept: list[Grey] = []
    for k, frame in enumerate(frames):
        if len(kept) == max_frames:
            break
        grey = frame.picture.luma
        while k % every == 0 and grey.nbytes * (len(kept) + 1) > max_bytes:
            if not thin or not kept:
                single = "" if kept else ": a single frame of {} x {} pixels".format(*grey.shape)
                raise TooLargeError(
                    f"{frames.name}{single} needs more than {max_bytes / 1e6:.0f} MB",
                    "take fewer frames (every=, max_frames=), smaller ones (shrink=), or allow more (max_bytes=)",
                )
            kept, every = kept[::2], 2 * every
        if k % every == 0:
            kept.append(grey)
    if not kept:
        reason = f"all {frames.skipped} frames are damaged" if frames.skipped else "there is no frame"
        raise NoVideoError(f"{frames.name} cannot be read as a video: {reason}")
    return Video(np.stack(kept), frames.skipped, every)


def sample_pixels(frames: ArrayLike, share: float, random_state: int | np.random.Generator = 0) -> ObservedMatrix:
    """The matrix with a column for each frame and a row for each pixel, of which a random share is observed.

    Grey levels 0 to 255 become numbers from 0 to 1, in single precision. Each pixel of each frame is observed with
    probability `share`, independently.

    Parameters
    ----------
    frames
        (T, H, W) of uint8.
    share
        Of the pixels, above 0 and at most 1.
    random_state
        A seed or a generator.

    Returns
    -------
    ObservedMatrix
        Pixels x frames.

    Raises
    ------
    ValueError
        If `frames` or `share` is something else.

    Examples
    --------
    >>> M = sample_pixels(np.full((10, 8, 6), 255, np.uint8), 0.5, random_state=1)
    >>> M.shape, M.dtype.name, float(M.values.max()), bool(0.4 < M.density < 0.6)
    ((48, 10), 'float32', 1.0, True)
    """
    pixels = np.asarray(frames)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or not pixels.size:
        raise ValueError(f"frames must be a (T, H, W) array of uint8, not {pixels.shape} of {pixels.dtype}")
    check_fraction("share", share)
    rng = np.random.default_rng(random_state)
    pixels = pixels.reshape(len(pixels), -1)
    rows = [np.flatnonzero(rng.random(frame.size) < share).astype(np.int32) for frame in pixels]
    values = [frame[seen] / np.float32(255) for frame, seen in zip(pixels, rows, strict=True)]
    indptr = offsets(np.array([seen.size for seen in rows]))
    return ObservedMatrix(indptr, np.concatenate(rows), np.concatenate(values), (pixels.shape[1], len(pixels)))
