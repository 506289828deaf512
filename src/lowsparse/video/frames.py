"""Video in: frames one at a time, in grey or in colour, from whatever holds them."""

from __future__ import annotations

import glob
import importlib
import os
import re
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .pictures import Grey, Picture, Region

__all__ = ["PICTURES", "Frame", "Frames", "NoVideoError", "as_file", "open_av", "read_picture"]

PICTURES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
RATE = Fraction(25)  # frames a second of what does not say
STANDARD_INPUT = "pipe:0"  # as FFmpeg calls it
PATIENCE = 30.0  # seconds to wait for a source on the network


class NoVideoError(ValueError):
    """What was given cannot be read as a video."""


@dataclass(frozen=True)
class Frame:
    """A picture of a video and its place in it."""

    picture: Picture
    number: int  # counted from 0 in the source, damaged ones too
    label: int  # as a picture file, or `frame_id` of an archive, is numbered; else the number
    time: float  # seconds


class Raw(NamedTuple):
    """A frame that has not been converted yet."""

    label: int
    time: float | None
    picture: Callable[[], Picture]


class Reader(Protocol):
    """A source of frames; None is a damaged one."""

    length: int | None  # frames, if known
    rate: Fraction

    def __iter__(self) -> Iterator[Raw | None]: ...


class Frames:
    """The frames of a source in their order; one is in memory at a time.

    Parameters
    ----------
    source
        A file or an address that PyAV opens (the extra `video`), "-" for the standard input; a folder of pictures, or a
        pattern such as ``shots/*.png``, in the order of the numbers in the names; or a `.npy` or `.npz` file with
        an array (T, H, W), or (T, H, W, 3) in colour: in an `.npz` the array `frames`, or the only one. Whole numbers
        are grey levels up to 255; floating-point numbers may also go from 0 to 1.
    colour
        False: grey. True: colour, where there is any.
    region
        (x, y, width, height) in pixels: the rest is not looked at.
    start, stop, every
        Frames are counted from 0: the first, the one before which to end, and one of so many.
    shrink
        Replace blocks of so many pixels in both directions by their mean.
    replay
        A source that can be read only once (a pipe, a camera) is kept in a temporary file, as it is encoded, so that
        the frames can be gone through again. Use the object as a context, which removes the file.

    Going through the frames again reads them again. A damaged one is skipped, and counted in `skipped`. A frame that
    differs in size from the first is scaled in a video, and an error among pictures.

    Examples
    --------
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
        replay: bool = False,
    ) -> None:
        for name, value, least in (("start", start, 0), ("stop", stop, 1), ("every", every, 1), ("shrink", shrink, 1)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ValueError(f"{name} must be a whole number of {least} or more, not {value!r}")
        if stop is not None and stop <= start:
            raise ValueError(f"stop must be more than start: between {start} and {stop} there is no frame")
        self.name = os.fspath(source)
        self.region = None if region is None else _checked_region(region)
        self.start, self.stop, self.every, self.shrink = start, stop, every, shrink
        self.skipped = 0  # damaged frames, since the last start
        whole = region is None or not (region[0] % 2 or region[1] % 2)  # else halved chroma does not fit the region
        self._reader = _reader(self.name, colour, whole, replay)

    def __enter__(self) -> Frames:
        return self

    def __exit__(self, *_: object) -> None:
        if isinstance(self._reader, _File):
            self._reader.forget()

    @property
    def length(self) -> int | None:
        """How many frames there will be, if the source says so."""
        known = self._reader.length
        end = self.stop if known is None else known if self.stop is None else min(known, self.stop)
        return None if end is None else max(0, -(-(end - self.start) // self.every))

    @property
    def rate(self) -> Fraction:
        """Frames a second."""
        return self._reader.rate / self.every

    def __iter__(self) -> Iterator[Frame]:
        self.skipped = 0
        shape = None
        for number, raw in enumerate(self._reader):
            if self.stop is not None and number >= self.stop:
                return
            if number < self.start or (number - self.start) % self.every:
                continue
            if raw is None:
                self.skipped += 1
                continue
            whole = raw.picture()
            shape = shape or whole.shape
            if whole.shape != shape:
                sizes = " and ".join("{} x {}".format(*one) for one in (shape, whole.shape))
                raise NoVideoError(f"{self.name} has frames of different sizes: {sizes}")
            time = float(number / self._reader.rate) if raw.time is None else raw.time
            yield Frame(self._part(whole), number, raw.label, time)

    def _part(self, picture: Picture) -> Picture:
        if self.region is not None:
            x, y, width, height = self.region
            H, W = picture.shape
            if x + width > W or y + height > H:
                raise ValueError(f"the region {self.region} is not inside {self.name}, which has {W} x {H} pixels")
            picture = picture.cut(self.region)
        if self.shrink > 1:
            if min(picture.shape) < self.shrink:
                size = "{} x {}".format(*picture.shape)
                raise ValueError(
                    f"{self.name} is too small: shrinking by {self.shrink} leaves nothing of {size} pixels"
                )
            picture = picture.shrunken(self.shrink)
        return picture


def read_picture(path: str | os.PathLike[str], *, colour: bool = True) -> Picture:
    """One picture from a file."""
    raw = next(iter(_File(os.fspath(path), colour)), None)
    if raw is None:
        raise NoVideoError(f"{path} is damaged")
    return raw.picture()


def open_av() -> Any:
    """PyAV, or an error that names the extra."""
    try:
        return importlib.import_module("av")
    except ImportError as error:
        raise ImportError("video files and pictures need PyAV: python -m pip install 'lowsparse[video]'") from error


def _checked_region(region: Region) -> Region:
    good = len(region) == 4 and all(isinstance(value, int | np.integer) for value in region)
    if not good or min(region[:2]) < 0 or min(region[2:]) < 1:
        raise ValueError(f"a region is x, y, width, height in pixels, not {region!r}")
    x, y, width, height = map(int, region)
    return x, y, width, height


def _reader(source: str, colour: bool, whole: bool, replay: bool) -> Reader:
    path = Path(source)
    if source == "-" or _is_address(source):
        return _File(STANDARD_INPUT if source == "-" else source, colour, whole, keep=replay)
    if not path.exists():
        pictures = _in_order(Path(name) for name in glob.glob(source)) if glob.has_magic(source) else []
        if not pictures:
            pattern = ", nor a file that fits this pattern" if glob.has_magic(source) else ""
            raise FileNotFoundError(f"there is no video {path}{pattern}: check the path")
        return _Pictures(pictures, colour)
    if path.is_file() and not path.stat().st_size:
        raise NoVideoError(f"{path} cannot be read as a video: it is empty")
    if path.is_dir():
        pictures = _in_order(one for one in path.iterdir() if one.suffix.lower() in PICTURES)
        if not pictures:
            raise NoVideoError(f"{path} has no pictures in it ({', '.join(sorted(PICTURES))})")
        return _Pictures(pictures, colour)
    if path.suffix.lower() in (".npy", ".npz"):
        return _Array(path, colour)
    return _File(source, colour, whole, keep=replay and not stat.S_ISREG(path.stat().st_mode))


# ---------------------------------------------------------------------- arrays


class _Array:
    """An array file, read frame by frame."""

    rate = RATE

    def __init__(self, path: Path, colour: bool) -> None:
        self.path, self.colour = path, colour
        self.member, self.labels = _member(path) if path.suffix.lower() == ".npz" else ("", None)
        with self._opened() as (_, shape, fortran, dtype):
            self.shape, self.fortran, self.dtype = shape, fortran, dtype
        T = self._check()
        self.length: int | None = T
        if self.labels is not None and self.labels.shape != (T,):
            self.labels = None
        self.scale = self._scale()

    def _check(self) -> int:
        shape, dtype = self.shape, self.dtype
        if len(shape) not in (3, 4) or (len(shape) == 4 and shape[3] != 3) or dtype.kind not in "uif":
            raise NoVideoError(
                f"{self.path} holds {shape} numbers of {dtype}: frames are (T, H, W), or (T, H, W, 3) in colour"
            )
        if 0 in shape:
            raise NoVideoError(f"{self.path} holds no frame")
        return int(shape[0])

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, tuple[int, ...], bool, np.dtype[Any]]]:
        """The file behind the header of the array, and what that says."""
        try:
            if self.member:
                with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as file:
                    yield file, *_header(file)
            else:
                with open(self.path, "rb") as file:
                    yield file, *_header(file)
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            if isinstance(error, NoVideoError):
                raise
            raise NoVideoError(f"{self.path} is not an array file with numbers, or it is damaged") from error

    def _arrays(self) -> Iterator[NDArray[Any] | None]:
        with self._opened() as (file, shape, fortran, dtype):
            if fortran:  # frames are not in one piece
                yield from np.frombuffer(file.read(), dtype).reshape(shape, order="F")
                return
            size = int(np.prod(shape[1:])) * dtype.itemsize
            for _ in range(shape[0]):
                try:
                    content = file.read(size)
                except (zipfile.BadZipFile, zlib.error, EOFError):
                    content = b""
                if len(content) < size:  # cut off
                    yield None
                    return
                yield np.frombuffer(content, dtype).reshape(shape[1:])

    def _scale(self) -> float:
        """255 for numbers from 0 to 1, else 1."""
        if self.dtype == np.uint8:
            return 1.0
        ranges = [(float(one.min()), float(one.max())) for one in self._arrays() if one is not None]
        low, high = (float(np.min([low for low, _ in ranges])), float(np.max([high for _, high in ranges])))
        if not 0 <= low <= high <= 255:  # also NaN
            raise NoVideoError(
                f"{self.path} holds numbers from {low:g} to {high:g}: pixels go from 0 to 255, or from 0 to 1"
            )
        return 255.0 if self.dtype.kind == "f" and high <= 1 else 1.0

    def __iter__(self) -> Iterator[Raw | None]:
        for t, frame in enumerate(self._arrays()):
            label = t if self.labels is None else int(self.labels[t])
            yield None if frame is None else Raw(label, None, partial(self._picture, frame))

    def _picture(self, frame: NDArray[Any]) -> Picture:
        levels: Grey = frame if frame.dtype == np.uint8 else np.rint(self.scale * frame).astype(np.uint8)
        return Picture.of_rgb(levels, colour=self.colour) if levels.ndim == 3 else Picture(levels)


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)


def _member(path: Path) -> tuple[str, NDArray[Any] | None]:
    """The file in the archive that holds the frames, and their labels if it has them."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            if "frames" not in names and len(names) != 1:
                raise NoVideoError(f"{path} has no array 'frames'; it has {sorted(names)}")
            labels = None
            if "frame_id" in names:
                with archive.open("frame_id.npy") as file:
                    labels = np.lib.format.read_array(file, allow_pickle=False)
        return ("frames" if "frames" in names else names[0]) + ".npy", labels
    except zipfile.BadZipFile as error:
        raise NoVideoError(f"{path} is not an .npz file: {error}") from error


# ---------------------------------------------------------------------- what PyAV opens


class _File:
    """A file or an address that PyAV opens."""

    def __init__(self, source: str, colour: bool, whole: bool = True, *, keep: bool = False) -> None:
        self.source, self.colour, self.whole, self.keep = source, colour, whole, keep
        self.kept: tempfile.TemporaryDirectory[str] | None = None
        self.length: int | None = None
        self.rate = RATE
        if not keep and not _is_address(source):  # else it might be read only once
            with self._open(source):
                pass

    @property
    def _called(self) -> str:
        return "what came on standard input" if self.source == STANDARD_INPUT else self.source

    @contextmanager
    def _open(self, source: str) -> Iterator[tuple[Any, Any]]:
        """The container and its video stream."""
        av = open_av()
        remote = _is_address(source)
        try:
            container = av.open(source, timeout=PATIENCE) if remote else av.open(as_file(source))
        except (av.error.FFmpegError, OSError) as error:
            raise NoVideoError(f"{self._called} cannot be read as a video: {error.strerror or error}") from error
        with container:
            if not container.streams.video:
                raise NoVideoError(f"{self._called} has no pictures in it")
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            self.rate = Fraction(stream.average_rate or stream.guessed_rate or RATE)
            if stream.frames or stream.duration:
                self.length = stream.frames or round(stream.duration * stream.time_base * self.rate)
            yield container, stream

    def __iter__(self) -> Iterator[Raw | None]:
        if self.kept is not None:
            yield from self._frames(os.path.join(self.kept.name, "kept.nut"), None)
        elif self.keep:
            self.kept = tempfile.TemporaryDirectory(prefix="lowsparse-")
            yield from self._frames(self.source, os.path.join(self.kept.name, "kept.nut"))
        else:
            yield from self._frames(self.source, None)

    def forget(self) -> None:
        """Remove what was kept."""
        if self.kept is not None:
            self.kept.cleanup()
            self.kept = None

    def _frames(self, source: str, copy: str | None) -> Iterator[Raw | None]:
        """Decoded frames; the packets they come from are copied to a file, if there is to be one."""
        av = open_av()
        with self._open(source) as (container, stream):
            packets = container.demux(stream)
            size = None
            number = 0
            with _copy(av, copy, stream) as keep:
                while True:
                    try:
                        packet = next(packets, None)
                    except av.error.FFmpegError:  # cut off
                        yield None
                        return
                    if packet is None:
                        return
                    try:
                        decoded = packet.decode()
                    except av.error.FFmpegError:
                        decoded = [None]
                    keep(packet)
                    for frame in decoded:
                        if frame is None or frame.is_corrupt:
                            yield None
                        else:
                            size = size or (frame.width, frame.height)
                            yield Raw(number, frame.time, partial(self._picture, frame, size))
                        number += 1

    def _picture(self, frame: Any, size: tuple[int, int]) -> Picture:
        """Colours as in an array, and of a video its own brightness."""
        if frame.format.is_rgb or frame.format.has_palette:
            return Picture.of_rgb(frame.reformat(*size, format="rgb24").to_ndarray(), colour=self.colour)
        if not self.colour or len(frame.format.components) < 3:
            return Picture(np.asarray(frame.reformat(*size, format="gray").to_ndarray(), dtype=np.uint8))
        if not self.whole:
            planes = frame.reformat(*size, format="yuvj444p").to_ndarray()
            return Picture(planes[0], planes[1:])
        planes = frame.reformat(*size, format="yuvj420p")
        luma, *chroma = (_plane(plane) for plane in planes.planes)
        return Picture(luma, np.stack(chroma))


def as_file(path: str) -> str:
    """A path as FFmpeg takes it for one, whatever is in the name: what is before a colon could be a protocol."""
    return f"file:{path}"


def _is_address(source: str) -> bool:
    return "://" in source or source.startswith("pipe:")


def _plane(plane: Any) -> Grey:
    """A copy of a plane without the padding of its lines."""
    lines = np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)
    return lines[:, : plane.width].copy()


@contextmanager
def _copy(av: Any, path: str | None, stream: Any) -> Iterator[Callable[[Any], None]]:
    if path is None:
        yield lambda packet: None
        return
    with av.open(path, "w", format="nut") as container:
        out = container.add_stream_from_template(stream)

        def keep(packet: Any) -> None:
            if packet.dts is not None or packet.pts is not None:  # the last one is empty
                packet.stream = out
                container.mux(packet)

        yield keep


# ---------------------------------------------------------------------- pictures


class _Pictures:
    """Picture files, each a frame."""

    rate = RATE

    def __init__(self, paths: list[Path], colour: bool) -> None:
        open_av()
        self.paths, self.colour = paths, colour
        self.length: int | None = len(paths)

    def __iter__(self) -> Iterator[Raw | None]:
        for t, path in enumerate(self.paths):
            try:
                raw = next(iter(_File(str(path), self.colour)), None)
            except NoVideoError:
                raw = None
            yield None if raw is None else Raw(label_of(path, t), None, raw.picture)


def label_of(path: Path, otherwise: int) -> int:
    """The last number in the name of a file.

    >>> label_of(Path("cam2-in000123.png"), 0), label_of(Path("shot.png"), 7)
    (123, 7)
    """
    numbers = re.findall(r"\d+", path.stem)
    return int(numbers[-1]) if numbers else otherwise


def _in_order(paths: Iterator[Path]) -> list[Path]:
    return sorted(paths, key=_by_number)


def _by_number(path: Path) -> list[tuple[int, int | str]]:
    """A key by which frame2 comes before frame10."""
    parts = re.split(r"(\d+)", path.name)
    return [(1, int(part)) if k % 2 else (0, part) for k, part in enumerate(parts)]
