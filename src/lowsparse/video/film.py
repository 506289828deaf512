"""Video out: pictures into a file that is there as a whole or not at all, encoded in a thread of its own."""

from __future__ import annotations

import os
import queue
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..support.files import refused, write
from .frames import as_file, open_av
from .pictures import Picture

__all__ = ["Film", "codec", "write_picture"]

CODECS = ("libx264", "libopenh264", "mpeg4")  # in the order of preference
OPTIONS = {"libx264": {"preset": "superfast", "crf": "21"}, "mpeg4": {"qscale": "3"}}
CALM = {"libx264": {"preset": "veryfast"}}  # it looks ahead: as fast, and a third of the size, if little changes
WAITING = 8  # pictures to be encoded


def codec() -> str:
    """The encoder that is used: H.264, or what this build of PyAV has."""
    av = open_av()
    for name in CODECS:
        try:
            return str(av.codec.Codec(name, "w").name)
        except ValueError:  # an unknown codec
            continue
    raise RuntimeError(f"this build of PyAV has none of the encoders {', '.join(CODECS)}: reinstall PyAV")


class Film:
    """A video file to be written: an MP4, H.264 if there is an encoder for it, else MPEG-4.

    The file appears when the context is left, in the place of an earlier one; after an error, or Ctrl-C, nothing
    appears. Sides are made even, by a line of black. If it is `calm`, little changes from one picture to the next.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Film(Path(folder, "film.mp4"), rate=10) as film:
    ...         for t in range(5):
    ...             film.write(Picture(np.full((32, 48), 40 * t, np.uint8)))
    ...     sorted(os.listdir(folder))
    ['film.mp4']
    """

    def __init__(self, path: str | os.PathLike[str], *, rate: Fraction | int = 25, calm: bool = False) -> None:
        self.path = Path(path)
        self.beside = self.path.with_name(f".{self.path.name}.part-{os.getpid()}")
        self.rate = Fraction(rate).limit_denominator(65535)
        self.av, self.codec = open_av(), codec()
        self.options = OPTIONS.get(self.codec, {}) | (CALM.get(self.codec, {}) if calm else {})
        self._pictures: queue.Queue[Picture | None] = queue.Queue(WAITING)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"encode {self.path.name}", daemon=True)
        self._given_up = self._over = False

    def __enter__(self) -> Film:
        self._thread.start()
        return self

    def write(self, picture: Picture) -> None:
        """The next picture; waits while the encoder is behind."""
        if self._failure is not None:
            raise self._failure
        self._pictures.put(picture)

    def finish(self) -> None:
        """Wait for the encoder; the file is complete then, but not yet in its place."""
        if self._thread.is_alive():
            self._pictures.put(None)
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def publish(self) -> None:
        """Put the complete file in its place."""
        self.finish()
        try:
            os.replace(self.beside, self.path)
        except OSError as error:
            raise refused(self.path, error) from error

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.publish()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Leave nothing behind of what was not published."""
        self._given_up = True
        while self._thread.is_alive():
            try:
                self._pictures.put(None, timeout=0.05)
            except queue.Full:
                continue
            self._thread.join(0.05)
        self.beside.unlink(missing_ok=True)

    # -- in the thread

    def _run(self) -> None:
        try:
            self._encode()
        except OSError as error:  # FFmpeg's own errors too
            self._failure = refused(self.path, error)
        except BaseException as error:
            self._failure = error
        while self._next() is not None:  # after a failure; whoever writes must not wait for ever
            pass

    def _next(self) -> Picture | None:
        """The next picture, None at the end."""
        picture = None if self._over else self._pictures.get()
        self._over = picture is None
        return picture

    def _encode(self) -> None:
        stream = None
        with self.av.open(as_file(str(self.beside)), "w", format="mp4", options={"movflags": "faststart"}) as container:
            k = 0
            while (picture := self._next()) is not None and not self._given_up:
                if stream is None:
                    H, W = picture.shape
                    stream = container.add_stream(self.codec, rate=self.rate)
                    stream.width, stream.height, stream.pix_fmt = W + W % 2, H + H % 2, "yuv420p"
                    stream.options = self.options
                    stream.codec_context.thread_count = 1  # else the file depends on the number of threads
                frame = as_frame(self.av, picture).reformat(format="yuv420p")
                frame.pts, frame.time_base = k, 1 / self.rate
                container.mux(stream.encode(frame))
                k += 1
            if stream is None:
                raise ValueError(f"{self.path} would have no picture in it")
            container.mux(stream.encode())


def as_frame(av: Any, picture: Picture) -> Any:
    """A frame of PyAV, with even sides."""
    W = picture.shape[1]
    if picture.chroma is None:
        return av.VideoFrame.from_ndarray(_even(picture.luma, 0), format="gray")
    if picture.halved:
        planes = [_even(picture.luma, 0), *picture.chroma]
        flat = np.concatenate([plane.ravel() for plane in planes])
        return av.VideoFrame.from_ndarray(flat.reshape(-1, W + W % 2), format="yuvj420p")
    planes = [_even(picture.luma, 0), *(_even(plane, 128) for plane in picture.chroma)]
    return av.VideoFrame.from_ndarray(np.stack(planes), format="yuvj444p")


def _even(plane: NDArray[np.uint8], fill: int) -> NDArray[np.uint8]:
    H, W = plane.shape
    if not (H % 2 or W % 2):
        return np.ascontiguousarray(plane)
    return np.pad(plane, [(0, H % 2), (0, W % 2)], constant_values=fill)


def write_picture(path: str | os.PathLike[str], picture: Picture) -> None:
    """A picture as a PNG file, in the place of an earlier one.

    >>> import tempfile
    >>> from lowsparse.video.frames import read_picture
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_picture(Path(folder, "one.png"), Picture(np.arange(6, dtype=np.uint8).reshape(2, 3)))
    ...     read_picture(Path(folder, "one.png")).luma.tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    av = open_av()
    grey = picture.chroma is None
    array, kind = (np.ascontiguousarray(picture.luma), "gray") if grey else (picture.rgb(), "rgb24")
    encoder = av.CodecContext.create("png", "w")
    encoder.height, encoder.width = picture.shape
    encoder.pix_fmt, encoder.time_base = kind, Fraction(1, 25)
    packets = [*encoder.encode(av.VideoFrame.from_ndarray(array, format=kind)), *encoder.encode(None)]
    write(Path(path), b"".join(bytes(packet) for packet in packets))
