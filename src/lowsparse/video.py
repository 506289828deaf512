"""Video in: grey frames from arrays, video files and folders of pictures; and their pixels as an observed matrix."""

from __future__ import annotations

import importlib
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .observed import ObservedMatrix

__all__ = ["TooLargeError", "Video", "read_video", "sample_pixels"]

MAX_BYTES = 1 << 30  # of grey frames in memory
REC601 = np.array([0.299, 0.587, 0.114])  # red, green, blue to grey
PICTURES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}

Grey = NDArray[np.uint8]


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
        A `.npy` or `.npz` file with an array (T, H, W), or (T, H, W, 3) in colour; in an `.npz` the array `frames`, or
        the only one. Whole numbers are grey levels up to 255; floating-point numbers may also go from 0 to 1. A folder
        of pictures of one size, in the order of the numbers in their names. Or any file that PyAV opens (the extra
        `video`).
    every
        Keep the first of so many frames.
    shrink
        Replace blocks of so many pixels in both directions by their mean.
    max_frames
        Stop after so many kept frames.
    max_bytes, thin
        A video that needs more memory is an error; or, with ``thin=True``, every second of the frames kept so far is
        dropped, as often as needed. `Video.every` says so. One frame more than that is in memory at a time, except of
        an `.npz` file, which can only be read as a whole.

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
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"there is no video {path}")
    if path.is_dir():
        frames = _of_folder(path)
    elif path.suffix == ".npy":
        frames = _of_array(_mapped(path), path)
    elif path.suffix == ".npz":
        frames = _of_array(_from_archive(path, max_bytes), path)
    else:
        frames = _of_file(path)
    shelf = _Shelf(path, every, shrink, max_frames, max_bytes, thin)
    for frame in frames:
        if shelf.full:
            break
        shelf.take(frame)
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

    def __init__(self, path: Path, every: int, shrink: int, max_frames: int | None, max_bytes: int, thin: bool) -> None:
        self.path, self.every, self.shrink, self.thin = path, every, shrink, thin
        self.max_frames, self.max_bytes = max_frames, max_bytes
        self.kept: list[Grey] = []
        self.seen = self.skipped = 0

    @property
    def full(self) -> bool:
        return self.max_frames is not None and len(self.kept) >= self.max_frames

    def take(self, frame: Grey | None) -> None:
        """Keep a frame if it is its turn; None is a damaged one."""
        if frame is None:
            self.skipped += 1
            return
        turn = self.seen % self.every == 0
        self.seen += 1
        if not turn:
            return
        small = self._shrunken(frame)
        if self.kept and small.shape != self.kept[0].shape:
            sizes = " and ".join("{} x {}".format(*one.shape) for one in (self.kept[0], small))
            raise ValueError(f"{self.path} has frames of different sizes: {sizes}")
        if small.nbytes * (len(self.kept) + 1) > self.max_bytes:
            if not self.thin or not self.kept:
                frame_of = "" if self.kept else ": a single frame of {} x {} pixels".format(*small.shape)
                raise TooLargeError(
                    f"{self.path}{frame_of} needs more than {self.max_bytes / 1e6:.0f} MB",
                    "take fewer frames (every=, max_frames=), smaller ones (shrink=), or allow more (max_bytes=)",
                )
            self.kept = self.kept[::2]
            self.every *= 2
            if (self.seen - 1) % self.every:
                return
        self.kept.append(small)

    def _shrunken(self, frame: Grey) -> Grey:
        if self.shrink == 1:
            return np.array(frame)
        H, W = (size // self.shrink for size in frame.shape)
        if not (H and W):
            size = "{} x {}".format(*frame.shape)
            raise ValueError(f"{self.path} is too small: shrinking by {self.shrink} leaves nothing of {size} pixels")
        blocks = frame[: H * self.shrink, : W * self.shrink].reshape(H, self.shrink, W, self.shrink)
        return np.asarray(np.rint(blocks.mean(axis=(1, 3))), dtype=np.uint8)

    def video(self) -> Video:
        if not self.kept:
            what = f"all {self.skipped} frames are damaged" if self.skipped else "there is no frame"
            raise ValueError(f"{self.path} cannot be read as a video: {what}")
        return Video(np.stack(self.kept), self.skipped, self.every)


# ---------------------------------------------------------------------- arrays


def _mapped(path: Path) -> NDArray[Any]:
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (ValueError, EOFError, OSError) as error:  # whose words are about pickles, or name no file
        raise ValueError(f"{path} is not an array file with numbers, or it is damaged") from error


def _from_archive(path: Path, max_bytes: int) -> NDArray[Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.infolist()}
        name = "frames" if "frames" in sizes else next(iter(sizes), "")
        if name != "frames" and len(sizes) != 1:
            raise ValueError(f"{path} has no array 'frames'; it has {sorted(sizes)}")
        if sizes[name] > 8 * max_bytes:  # as large as kept frames may be in double precision
            raise ValueError(f"{path} unpacks to {sizes[name] / 1e6:.0f} MB: store it as .npy, which is read in parts")
        with np.load(path, allow_pickle=False) as arrays:
            return _member(arrays, name, path)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path} is not an .npz file: {error}") from error


def _member(arrays: Any, name: str, path: Path) -> NDArray[Any]:
    try:
        return np.asarray(arrays[name])
    except (ValueError, EOFError, OSError, zlib.error) as error:  # whose words are about pickles, or name no file
        raise ValueError(f"{path}: the array {name!r} does not hold numbers, or is damaged") from error


def _of_array(array: NDArray[Any], path: Path) -> Iterator[Grey]:
    if array.ndim not in (3, 4) or (array.ndim == 4 and array.shape[3] != 3) or array.dtype.kind not in "uif":
        raise ValueError(
            f"{path} holds {array.shape} numbers of {array.dtype}: frames are (T, H, W), or (T, H, W, 3) in colour"
        )
    if not array.size:
        raise ValueError(f"{path} holds no frame")
    low, high = float(array.min()), float(array.max())
    if not 0 <= low <= high <= 255:  # also NaN
        raise ValueError(f"{path} holds numbers from {low:g} to {high:g}: pixels go from 0 to 255, or from 0 to 1")
    scale = 255.0 if array.dtype.kind == "f" and high <= 1 else 1.0
    for frame in array:
        yield _grey(frame, scale)


def _grey(frame: NDArray[Any], scale: float = 1.0) -> Grey:
    """Grey levels from 0 to 255, of grey levels or of red, green and blue."""
    grey = frame @ REC601 if frame.ndim == 3 else frame
    return grey if grey.dtype == np.uint8 else np.rint(scale * grey).astype(np.uint8)


# ---------------------------------------------------------------------- files that PyAV opens


def _av() -> Any:
    try:
        return importlib.import_module("av")
    except ImportError as error:
        raise ImportError("video files and pictures need PyAV: python -m pip install 'lowsparse[video]'") from error


def _of_file(path: Path) -> Iterator[Grey | None]:
    """The frames of a file, None for a damaged one."""
    av = _av()
    try:
        container = av.open(str(path))
    except (av.error.FFmpegError, OSError) as error:
        raise ValueError(f"{path} cannot be read as a video: {error.strerror or error}") from error
    with container:
        if not container.streams.video:
            raise ValueError(f"{path} has no pictures in it")
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        packets = container.demux(stream)
        size = None
        while True:
            try:
                packet = next(packets, None)
            except av.error.FFmpegError:  # cut off
                yield None
                return
            if packet is None:
                return
            try:
                frames = packet.decode()
            except av.error.FFmpegError:
                yield None
                continue
            for frame in frames:
                size = size or (frame.width, frame.height)
                yield None if frame.is_corrupt else _decoded(frame, size)


def _decoded(frame: Any, size: tuple[int, int]) -> Grey:
    """A frame of PyAV in grey; colours as in an array, and of a video its own brightness."""
    if frame.format.is_rgb or frame.format.has_palette:
        return _grey(frame.reformat(*size, format="rgb24").to_ndarray())
    return np.asarray(frame.reformat(*size, format="gray").to_ndarray(), dtype=np.uint8)


def _of_folder(folder: Path) -> Iterator[Grey | None]:
    """The pictures of a folder, None for a damaged one."""
    pictures = [path for path in folder.iterdir() if path.suffix.lower() in PICTURES]
    if not pictures:
        raise ValueError(f"{folder} has no pictures in it ({', '.join(sorted(PICTURES))})")
    _av()
    for path in sorted(pictures, key=_by_number):
        try:
            yield next(_of_file(path), None)
        except ValueError:
            yield None


def _by_number(path: Path) -> list[tuple[int, int | str]]:
    """A key by which frame2 comes before frame10."""
    parts = re.split(r"(\d+)", path.name)
    return [(1, int(part)) if k % 2 else (0, part) for k, part in enumerate(parts)]
