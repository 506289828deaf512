"""Frames of a video, one at a time, in grey or in colour: from video files, cameras, folders of pictures and arrays."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path

import numpy as np

from ..support.addresses import shown_address
from ..support.checks import check_count, check_positive
from .clips.arrays import ArrayReader
from .clips.media import STANDARD_INPUT, MediaReader, is_address
from .clips.picture_files import PICTURES, PictureReader
from .clips.reader import NoVideoError, Reader
from .pictures import Picture, Region


@dataclass(frozen=True)
class Frame:
    """A picture of a video and its position in it.

    Examples
    --------
    >>> Frame(Picture(np.zeros((40, 48), np.uint8)), number=3, label=3, time=0.12).picture.shape
    (40, 48)
    """

    picture: Picture
    number: int  # in the source, from 0; damaged frames count too
    label: int  # number in the name of a picture file, or `frame_id` in an archive; else `number`
    time: float  # seconds


class Frames:
    """The frames of a source in order; one is in memory at a time.

    Parameters
    ----------
    source
        A file or an address that PyAV opens (the extra `video`), "-" for the standard input; a folder of pictures, or a
        pattern such as ``shots/*.png``, in the order of the numbers in the names; or a `.npy` or `.npz` file with
        an array (T, H, W), or (T, H, W, 3) in colour: in an `.npz` the array `frames`, or the only one. Integers
        are grey levels up to 255; floating-point numbers may also go from 0 to 1.
    colour
        False: grey. True: colour, where there is any.
    region
        (x, y, width, height) in pixels: crop the frames.
    start, stop, every
        First frame, end (exclusive) and step, counted from 0.
    shrink
        Replace blocks of ``shrink`` x ``shrink`` pixels by their mean.
    fps
        Frames per second, for pictures and arrays, or instead of the times that a video has; None: those, or 25.
    replay
        Keep a source that can be read only once (a pipe, a camera) in a temporary file, as it is encoded, so that
        it can be iterated again. Use the object as a context manager, which removes the file.

    Notes
    -----
    Each iteration reads the source again. Damaged frames are skipped, and counted in `skipped`. A frame that differs
    in size from the first is scaled in a video file, and an error among pictures. Interlaced frames are deinterlaced,
    10 bits become 8, transparency is left out, and a phone's pictures come upright.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "clip.npy")
    >>> np.save(path, np.arange(6 * 4 * 4, dtype=np.uint8).reshape(6, 4, 4))
    >>> frames = Frames(path, region=(0, 0, 4, 2), every=2)
    >>> frames.length, [(frame.number, frame.picture.luma[0].tolist()) for frame in frames][1]
    (3, (2, [32, 33, 34, 35]))
    >>> folder.cleanup()
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        *,
        colour: bool = True,
        region: Region | None = None,
        start: int = 0,
        stop: int | None = None,
        every: int = 1,
        shrink: int = 1,
        fps: float | None = None,
        replay: bool = False,
    ) -> None:
        self.name = shown_address(os.fspath(source))  # for messages
        self.region = None if region is None else _checked_region(region)
        self.start, self.stop = check_count("start", start, 0), None if stop is None else check_count("stop", stop)
        self.every, self.shrink = check_count("every", every), check_count("shrink", shrink)
        self.fps = None if fps is None else Fraction(check_positive("fps", fps)).limit_denominator(65535)
        if stop is not None and stop <= start:
            raise ValueError(f"stop must be more than start: between {start} and {stop} there is no frame")
        self.skipped = 0  # damaged frames in the latest iteration
        even = region is None or not (region[0] % 2 or region[1] % 2)  # an odd offset needs chroma in full resolution
        self._reader = _open(os.fspath(source), colour, halved_chroma=even, replay=replay)

    def __enter__(self) -> Frames:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    @property
    def length(self) -> int | None:
        """Number of frames, if the source gives it."""
        ends = [end for end in (self._reader.length, self.stop) if end is not None]
        return len(range(self.start, min(ends), self.every)) if ends else None

    def find_length(self) -> int | None:
        """The number of frames; a file that does not give it is read through, a pipe copied.

        Returns
        -------
        int or None
            None for an address that does not say.
        """
        self._reader.find_length()
        return self.length

    @property
    def rate(self) -> Fraction:
        """Frames per second."""
        return (self.fps or self._reader.rate) / self.every

    @property
    def pixel_aspect(self) -> Fraction:
        """Width of a pixel by its height; known when frames have been read."""
        return self._reader.pixel_aspect

    def __iter__(self) -> Iterator[Frame]:
        self.skipped = 0
        shape = None
        for number, lazy in islice(enumerate(self._reader), self.start, self.stop, self.every):
            if lazy is None:
                self.skipped += 1
                continue
            picture = lazy.picture()
            shape = shape or picture.shape
            if picture.shape != shape:
                sizes = " and ".join("{} x {}".format(*one) for one in (shape, picture.shape))
                raise NoVideoError(f"{self.name} has frames of different sizes: {sizes}")
            given = lazy.time if self.fps is None else None
            time = float(number / (self.fps or self._reader.rate)) if given is None else given
            yield Frame(self._crop_and_shrink(picture), number, lazy.label, time)

    def _crop_and_shrink(self, picture: Picture) -> Picture:
        if self.region is not None:
            x, y, width, height = self.region
            H, W = picture.shape
            if x + width > W or y + height > H:
                raise ValueError(f"the region {self.region} is not inside {self.name}, which has {W} x {H} pixels")
            picture = picture.crop(self.region)
        if min(picture.shape) < self.shrink:
            size = "{} x {}".format(*picture.shape)
            raise ValueError(f"{self.name} is too small: shrinking by {self.shrink} leaves nothing of {size} pixels")
        return picture.shrunken(self.shrink) if self.shrink > 1 else picture


def _checked_region(region: Region) -> Region:
    good = len(region) == 4 and all(isinstance(value, int | np.integer) for value in region)
    if not good or min(region[:2]) < 0 or min(region[2:]) < 1:
        raise ValueError(f"a region is x, y, width, height in pixels, not {region!r}")
    x, y, width, height = map(int, region)
    return x, y, width, height


def _open(source: str, colour: bool, *, halved_chroma: bool, replay: bool) -> Reader:
    path = Path(source)
    if source == "-" or is_address(source):
        address = STANDARD_INPUT if source == "-" else source
        return MediaReader(address, colour, halved_chroma=halved_chroma, replay=replay)
    if not path.exists():
        is_pattern = glob.has_magic(source)
        if is_pattern and (pictures := [Path(found) for found in glob.glob(source)]):
            return PictureReader(pictures, colour)
        pattern = ", nor a file that fits this pattern" if is_pattern else ""
        raise FileNotFoundError(f"there is no video {path}{pattern}: check the path")
    if path.is_dir():
        if pictures := [file for file in path.iterdir() if file.suffix.lower() in PICTURES]:
            return PictureReader(pictures, colour)
        raise NoVideoError(f"{path} has no pictures in it ({', '.join(sorted(PICTURES))})")
    if path.is_file() and not path.stat().st_size:
        raise NoVideoError(f"{path} cannot be read as a video: it is empty")
    if path.suffix.lower() in (".npy", ".npz"):
        return ArrayReader(path, colour)
    once = not stat.S_ISREG(path.stat().st_mode)
    return MediaReader(source, colour, halved_chroma=halved_chroma, replay=replay and once)
