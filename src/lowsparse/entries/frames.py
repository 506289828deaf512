"""Frames of a video, one at a time, in grey or in colour: from video files, cameras, folders of pictures and arrays."""

from __future__ import annotations

import glob
import math
import os
import re
import shutil
import stat
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..support.addresses import hide_passwords, shown_address
from ..support.checks import check_count, check_positive
from ..support.files import TemporaryFolder
from ..support.npy import check_archive, read_header
from ..support.optional import import_optional
from ..support.sizes import check_fits
from .pictures import Grey, Picture, Region

PICTURES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
RATE = Fraction(25)  # frames per second of a source that has no rate
STANDARD_INPUT = "pipe:0"  # FFmpeg's name
PER_PIXEL = 16  # bytes that decoding and converting a frame takes
MICROSECOND = Fraction(1, 1_000_000)  # FFmpeg's unit of the duration of a file
TIMEOUT = 30.0  # seconds to wait for a source on the network


class NoVideoError(ValueError):
    """The source cannot be read as a video."""


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


class LazyFrame(NamedTuple):
    """A decoded frame, converted to a `Picture` only if it is used."""

    label: int
    time: float | None
    picture: Callable[[], Picture]


class Reader(ABC):
    """A source of frames."""

    length: int | None = None  # number of frames, if known
    rate = RATE
    pixel_aspect = Fraction(1)  # width of a pixel by its height

    @abstractmethod
    def __iter__(self) -> Iterator[LazyFrame | None]:
        """The frames in order; None is a damaged one."""

    def find_length(self) -> None:  # noqa: B027  # most readers know it
        """Read what tells the length, if that is possible."""

    def close(self) -> None:  # noqa: B027  # most readers have none
        """Remove temporary files."""


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


def import_av() -> Any:
    """PyAV, or an error that names the extra."""
    return import_optional("av", "video", "video files and pictures")


def _checked_region(region: Region) -> Region:
    good = len(region) == 4 and all(isinstance(value, int | np.integer) for value in region)
    if not good or min(region[:2]) < 0 or min(region[2:]) < 1:
        raise ValueError(f"a region is x, y, width, height in pixels, not {region!r}")
    x, y, width, height = map(int, region)
    return x, y, width, height


def _open(source: str, colour: bool, *, halved_chroma: bool, replay: bool) -> Reader:
    path = Path(source)
    if source == "-" or _is_address(source):
        address = STANDARD_INPUT if source == "-" else source
        return _MediaReader(address, colour, halved_chroma=halved_chroma, replay=replay)
    if not path.exists():
        is_pattern = glob.has_magic(source)
        if is_pattern and (pictures := [Path(found) for found in glob.glob(source)]):
            return _PictureReader(pictures, colour)
        pattern = ", nor a file that fits this pattern" if is_pattern else ""
        raise FileNotFoundError(f"there is no video {path}{pattern}: check the path")
    if path.is_dir():
        if pictures := [file for file in path.iterdir() if file.suffix.lower() in PICTURES]:
            return _PictureReader(pictures, colour)
        raise NoVideoError(f"{path} has no pictures in it ({', '.join(sorted(PICTURES))})")
    if path.is_file() and not path.stat().st_size:
        raise NoVideoError(f"{path} cannot be read as a video: it is empty")
    if path.suffix.lower() in (".npy", ".npz"):
        return _ArrayReader(path, colour)
    once = not stat.S_ISREG(path.stat().st_mode)
    return _MediaReader(source, colour, halved_chroma=halved_chroma, replay=replay and once)


# ---------------------------------------------------------------------- arrays


class _ArrayReader(Reader):
    """A `.npy` or `.npz` file, read frame by frame."""

    def __init__(self, path: Path, colour: bool) -> None:
        self.path, self.colour = path, colour
        self.member, self.labels, size = "", None, path.stat().st_size
        if path.suffix.lower() == ".npz":
            self.member, self.labels, size = _archive_member(path)
        with self._opened() as (_, shape, fortran, dtype):
            pass
        if len(shape) not in (3, 4) or (len(shape) == 4 and shape[3] != 3) or dtype.kind not in "uif":
            raise NoVideoError(
                f"{path} holds {shape} numbers of {dtype}: frames are (T, H, W), or (T, H, W, 3) in colour"
            )
        if 0 in shape:
            raise NoVideoError(f"{path} holds no frame")
        self.length, self.frame_size = int(shape[0]), math.prod(shape[1:]) * dtype.itemsize
        if self.frame_size > size:
            raise NoVideoError(f"{path} is damaged: it holds no complete frame")
        check_fits(path, "a frame", size if fortran else self.frame_size)  # in Fortran order all are read at once
        if self.labels is not None and self.labels.shape != (self.length,):
            self.labels = None
        self.scale = self._scale(dtype)

    @contextmanager
    def _opened(self) -> Iterator[tuple[IO[bytes], tuple[int, ...], bool, np.dtype[Any]]]:
        """The file at the end of the array's header; shape, Fortran order and type of the array."""
        try:
            with ExitStack() as opened:
                file: IO[bytes] = opened.enter_context(open(self.path, "rb"))
                if self.member:
                    file = opened.enter_context(opened.enter_context(zipfile.ZipFile(file)).open(self.member))
                yield file, *read_header(file)
        except (NoVideoError, MemoryError, PermissionError):
            raise
        except Exception as error:  # zipfile and zlib raise anything on a damaged file
            raise NoVideoError(f"{self.path} is not an array file with numbers, or it is damaged") from error

    def _arrays(self) -> Iterator[NDArray[Any] | None]:
        with self._opened() as (file, shape, fortran, dtype):
            if fortran:  # a frame is not contiguous
                yield from np.frombuffer(file.read(), dtype).reshape(shape, order="F")
                return
            for _ in range(shape[0]):
                try:
                    content = file.read(self.frame_size)
                except (zipfile.BadZipFile, zlib.error, EOFError, OSError):
                    content = b""
                if len(content) < self.frame_size:  # truncated
                    yield None
                    return
                yield np.frombuffer(content, dtype).reshape(shape[1:])

    def _scale(self, dtype: np.dtype[Any]) -> float:
        """255 if the numbers go from 0 to 1, else 1."""
        if dtype == np.uint8:
            return 1.0
        ranges = [(float(frame.min()), float(frame.max())) for frame in self._arrays() if frame is not None]
        if not ranges:
            raise NoVideoError(f"{self.path} is damaged: it holds no complete frame")
        low, high = float(np.min([low for low, _ in ranges])), float(np.max([high for _, high in ranges]))
        if not 0 <= low <= high <= 255:  # also NaN
            raise NoVideoError(
                f"{self.path} holds numbers from {low:g} to {high:g}: pixels go from 0 to 255, or from 0 to 1"
            )
        return 255.0 if dtype.kind == "f" and high <= 1 else 1.0

    def __iter__(self) -> Iterator[LazyFrame | None]:
        for t, frame in enumerate(self._arrays()):
            label = t if self.labels is None else int(self.labels[t])
            yield None if frame is None else LazyFrame(label, None, partial(self._picture, frame))

    def _picture(self, frame: NDArray[Any]) -> Picture:
        grey: Grey = frame if frame.dtype == np.uint8 else np.rint(self.scale * frame).astype(np.uint8)
        return Picture.of_rgb(grey, colour=self.colour) if grey.ndim == 3 else Picture(grey)


def _archive_member(path: Path) -> tuple[str, NDArray[Any] | None, int]:
    """The file in the archive that holds the frames, the labels of the frames if there are any, and its size."""
    try:
        check_archive(path, in_memory=False)
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            if "frames" not in names and len(names) != 1:
                raise NoVideoError(f"{path} has no array 'frames'; it has {sorted(names)}")
            labels = None
            if "frame_id" in names:
                with archive.open("frame_id.npy") as file:
                    labels = np.lib.format.read_array(file, allow_pickle=False)
            member = ("frames" if "frames" in names else names[0]) + ".npy"
            return member, labels, archive.getinfo(member).file_size
    except (NoVideoError, MemoryError, PermissionError):
        raise
    except Exception as error:  # zipfile and zlib raise anything on a damaged file
        raise NoVideoError(f"{path} is not an .npz file, or it is damaged ({error})") from error


# ---------------------------------------------------------------------- files and addresses that PyAV opens


class _MediaReader(Reader):
    """A file or an address that PyAV opens; with `replay` what can be read only once is copied.

    The bytes of a pipe are copied before anything is decoded, so that it is read like the file it came from; of an
    address, the packets are copied while it is read for the first time.
    """

    def __init__(self, source: str, colour: bool, *, halved_chroma: bool = True, replay: bool = False) -> None:
        self.source, self.colour, self.halved_chroma, self.replay = source, colour, halved_chroma, replay
        self.is_pipe = source == STANDARD_INPUT or not (_is_address(source) or os.path.isfile(source))
        self.copy: TemporaryFolder | None = None
        self._converter = import_av().video.reformatter.VideoReformatter()  # one for all frames: each has to be set up
        if not replay and not self.is_pipe and not _is_address(source):  # opening others uses up what is read only once
            with self._opened(source):
                pass

    @contextmanager
    def _opened(self, source: str) -> Iterator[tuple[Any, Any]]:
        """The container and its video stream."""
        av = import_av()
        try:
            given, timeout = (source, TIMEOUT) if _is_address(source) else (ffmpeg_path(source), None)
            container = open_container(given, timeout=timeout)
        except (av.error.FFmpegError, OSError) as error:
            # without its cause, the text of which may hold a password
            raise NoVideoError(
                f"{self.name} cannot be read as a video: {error.strerror or hide_passwords(str(error))}"
            ) from None
        with container:
            if not container.streams.video:
                raise NoVideoError(f"{self.name} has no pictures in it")
            stream = container.streams.video[0]
            if stream.codec_context is None:
                raise NoVideoError(f"{self.name} is encoded in a way that FFmpeg does not know")
            stream.thread_type = "AUTO"
            width, height = stream.codec_context.width, stream.codec_context.height
            check_fits(self.name, f"a frame of {width} x {height} pixels", PER_PIXEL * width * height)
            self.rate = Fraction(stream.average_rate or stream.guessed_rate or RATE)
            seconds = stream.duration * stream.time_base if stream.duration else (container.duration or 0) * MICROSECOND
            self.length = stream.frames or round(seconds * self.rate) or self.length
            yield container, stream

    @property
    def name(self) -> str:
        """Of the source, for messages."""
        return "the standard input" if self.source == STANDARD_INPUT else shown_address(self.source)

    def __iter__(self) -> Iterator[LazyFrame | None]:
        if not self.replay:
            return self._frames(self.source)
        if self.is_pipe:
            return self._frames(self._copied_pipe())
        first = self.copy is None
        self.copy = self.copy or TemporaryFolder("lowsparse-")
        copy = os.path.join(self.copy.path, "copy.nut")
        return self._frames(self.source, copy) if first else self._frames(copy)

    def find_length(self) -> None:
        """Copy a pipe, and count the packets of a file that does not give its length."""
        if self.length is not None or (not self.replay if self.is_pipe else _is_address(self.source)):
            return
        path = self._copied_pipe() if self.is_pipe else self.source
        with self._opened(path) as (container, stream):
            if self.length is None:
                with suppress(import_av().error.FFmpegError):  # truncated
                    self.length = 0
                    for packet in container.demux(stream):
                        self.length += packet.size > 0

    def _copied_pipe(self) -> str:
        """The path of a file with the bytes of the pipe."""
        first = self.copy is None
        self.copy = self.copy or TemporaryFolder("lowsparse-")
        path = os.path.join(self.copy.path, "copy")
        if first:
            given = 0 if self.source == STANDARD_INPUT else self.source
            with open(given, "rb", closefd=given != 0) as pipe, open(path, "wb") as file:
                shutil.copyfileobj(pipe, file)
        return path

    def close(self) -> None:
        if self.copy is not None:
            self.copy.remove()
            self.copy = None

    def _frames(self, source: str, copy: str | None = None) -> Iterator[LazyFrame | None]:
        """Decoded frames; with `copy`, their packets are written to that file."""
        with self._opened(source) as (container, stream), _packet_writer(copy, stream) as write:
            decoded = self._decoded(container, stream, write)
            size = origin = None
            for number, frame in enumerate(_deinterlaced(decoded, stream)):
                if frame is None:
                    yield None
                    continue
                size = size or (frame.width, frame.height)
                if origin is None:
                    origin = frame.time  # a transport stream begins somewhere
                    aspect = Fraction(stream.sample_aspect_ratio or 1)
                    self.pixel_aspect = 1 / aspect if round(frame.rotation / 90) % 2 else aspect
                time = None if frame.time is None else frame.time - origin
                yield LazyFrame(number, time, partial(self._upright, frame, size))

    def _decoded(self, container: Any, stream: Any, write: Callable[[Any], None]) -> Iterator[Any]:
        """Frames of PyAV; None is a damaged one. Packets are written."""
        av = import_av()
        packets, begun = container.demux(stream), False
        while True:
            try:
                packet = next(packets, None)
            except av.error.FFmpegError:  # truncated
                if not begun and self.is_pipe and not self.replay and "mp4" in container.format.name:
                    raise NoVideoError(
                        f"{self.name} is an MP4 whose index is at its end, so it cannot be followed as it comes: give "
                        "the file itself, leave the stream out, or write it with the index first (-movflags +faststart)"
                    ) from None
                yield None
                return
            if packet is None:
                return
            begun = True
            try:
                found = packet.decode()
            except av.error.FFmpegError:
                found = [None]
            write(packet)
            yield from (None if frame is None or frame.is_corrupt else frame for frame in found)

    def _upright(self, frame: Any, size: tuple[int, int]) -> Picture:
        """A frame as it is to be shown: a phone that was held upright stores it lying, and by how much to rotate it."""
        picture, quarters = self._picture(frame, size), round(frame.rotation / 90) % 4
        return picture.rotated(quarters) if quarters else picture

    def _picture(self, frame: Any, size: tuple[int, int]) -> Picture:
        """RGB is converted as that of an array; a video in YUV keeps its own luma."""
        if frame.format.is_rgb or frame.format.has_palette:
            return Picture.of_rgb(self._converted(frame, size, "rgb24").to_ndarray(), colour=self.colour)
        if not self.colour or len(frame.format.components) < 3:
            return Picture(np.asarray(self._converted(frame, size, "gray").to_ndarray(), dtype=np.uint8))
        if not self.halved_chroma:
            planes = self._converted(frame, size, "yuvj444p").to_ndarray()
            return Picture(planes[0], planes[1:])
        luma, *chroma = map(_plane, self._converted(frame, size, "yuvj420p").planes)
        return Picture(luma.copy(), np.stack(chroma))

    def _converted(self, frame: Any, size: tuple[int, int], kind: str) -> Any:
        return self._converter.reformat(frame, *size, format=kind)


def _deinterlaced(frames: Iterator[Any], stream: Any) -> Iterator[Any]:
    """Frames of PyAV; once the odd and even lines of one are of different moments, through FFmpeg's filter `yadif`.

    That gives a frame for each frame, at the same time, and leaves those that are not interlaced as they are. None, a
    damaged frame, is passed on.
    """
    av, graph = import_av(), None
    for frame in frames:
        if frame is None or (graph is None and not frame.interlaced_frame):
            yield frame
            continue
        if graph is None:
            graph = av.filter.Graph()
            graph.link_nodes(
                graph.add_buffer(template=stream), graph.add("yadif", "deint=interlaced"), graph.add("buffersink")
            ).configure()
        graph.push(frame)
        yield from _pulled(graph)
    if graph is not None:
        graph.push(None)
        yield from _pulled(graph)


def _pulled(graph: Any) -> Iterator[Any]:
    """What the filter has ready: it sees the next frame before it gives one."""
    av = import_av()
    with suppress(av.error.BlockingIOError, av.error.EOFError):
        while True:
            yield graph.pull()


def open_container(path: str, **options: Any) -> Any:
    """A file or a stream to read; PyAV before 19 has to be asked to replace what is not UTF-8 in its metadata."""
    av = import_av()
    if int(av.__version__.partition(".")[0]) < 19:
        options["metadata_errors"] = "replace"
    return av.open(path, **options)


def ffmpeg_path(path: str) -> str:
    """A path that FFmpeg does not take for an address, even if it contains a colon."""
    return f"file:{path}"


def _is_address(source: str) -> bool:
    return "://" in source or source.startswith("pipe:")


def _plane(plane: Any) -> Grey:
    """A plane without the padding of its lines."""
    lines = np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)
    return lines[:, : plane.width]


@contextmanager
def _packet_writer(path: str | None, stream: Any) -> Iterator[Callable[[Any], None]]:
    """A function that writes packets of a stream to a file; it does nothing if there is no path."""
    if path is None:
        yield lambda packet: None
        return
    with import_av().open(path, "w", format="nut") as container:
        out = container.add_stream_from_template(stream)

        def write(packet: Any) -> None:
            if packet.dts is not None or packet.pts is not None:  # the last one is empty
                packet.stream = out
                container.mux(packet)

        yield write


# ---------------------------------------------------------------------- picture files


class _PictureReader(Reader):
    """Picture files, each a frame."""

    def __init__(self, paths: list[Path], colour: bool) -> None:
        import_av()  # raises here, not at the first frame
        self.paths, self.colour, self.length = sorted(paths, key=_natural_order), colour, len(paths)

    def __iter__(self) -> Iterator[LazyFrame | None]:
        for t, path in enumerate(self.paths):
            try:
                lazy = next(iter(_MediaReader(str(path), self.colour)), None)
            except NoVideoError:
                lazy = None
            yield None if lazy is None else LazyFrame(frame_label(path, t), None, lazy.picture)


def frame_label(path: Path, default: int) -> int:
    """The last number in the name of a file.

    >>> frame_label(Path("cam2-in000123.png"), 0), frame_label(Path("shot.png"), 7)
    (123, 7)
    """
    numbers = re.findall(r"\d+", path.stem)
    return int(numbers[-1]) if numbers else default


def _natural_order(path: Path) -> list[str | int]:
    """The sort key by which frame2 comes before frame10: the name, split into text and numbers."""
    return [int(part) if k % 2 else part for k, part in enumerate(re.split(r"(\d+)", path.name))]
