"""Frames of a file, a pipe, a camera or an address that PyAV opens."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from ...support.addresses import hide_passwords, shown_address
from ...support.files import TemporaryFolder
from ...support.optional import import_optional
from ...support.sizes import check_fits
from ..pictures import Grey, Picture
from .reader import RATE, LazyFrame, NoVideoError, Reader

STANDARD_INPUT = "pipe:0"  # FFmpeg's name
PER_PIXEL = 16  # bytes that decoding and converting a frame takes
MICROSECOND = Fraction(1, 1_000_000)  # FFmpeg's unit of the duration of a file
TIMEOUT = 30.0  # seconds to wait for a source on the network


def import_av() -> Any:
    """PyAV, or an error that names the extra."""
    return import_optional("av", "video", "video files and pictures")


class MediaReader(Reader):
    """A file or an address that PyAV opens; with `replay` what can be read only once is copied.

    The bytes of a pipe are copied before anything is decoded, so that it is read like the file it came from; of an
    address, the packets are copied while it is read for the first time.
    """

    def __init__(self, source: str, colour: bool, *, halved_chroma: bool = True, replay: bool = False) -> None:
        self.source, self.colour, self.halved_chroma, self.replay = source, colour, halved_chroma, replay
        self.is_pipe = source == STANDARD_INPUT or not (is_address(source) or os.path.isfile(source))
        self.copy: TemporaryFolder | None = None
        self._converter = import_av().video.reformatter.VideoReformatter()  # one for all frames: each has to be set up
        if not replay and not self.is_pipe and not is_address(source):  # opening others uses up what is read only once
            with self._opened(source):
                pass

    @contextmanager
    def _opened(self, source: str) -> Iterator[tuple[Any, Any]]:
        """The container and its video stream."""
        av = import_av()
        try:
            given, timeout = (source, TIMEOUT) if is_address(source) else (ffmpeg_path(source), None)
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
        if self.length is not None or (not self.replay if self.is_pipe else is_address(self.source)):
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
        """Remove the copy."""
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


def is_address(source: str) -> bool:
    """Whether a source is an address, and not the path of a file."""
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
