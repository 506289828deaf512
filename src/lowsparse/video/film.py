"""Video files and pictures out: complete or not at all, encoded in a thread."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ..entries.frames import ffmpeg_path, import_av
from ..entries.pictures import NEUTRAL, Grey, Picture
from ..support.files import explain_refusal, replacing, write

CODECS = ("libx264", "libopenh264", "mpeg4")  # in the order of preference
OPTIONS = {"libx264": {"preset": "superfast", "crf": "21"}, "mpeg4": {"qscale": "3"}}
STATIC_OPTIONS = {"libx264": {"preset": "veryfast"}}  # as fast, and a third of the size, if little changes
QUEUE = 8  # pictures that wait for the encoder
TICKS = 60_000  # in a second: the unit of times in a film; MPEG-4 has no more than 65,535


def codec() -> str:
    """The encoder: H.264, or what this build of PyAV has."""
    av = import_av()
    for name in CODECS:
        with suppress(ValueError):  # an unknown codec
            return str(av.codec.Codec(name, "w").name)
    raise RuntimeError(f"this build of PyAV has none of the encoders {', '.join(CODECS)}: reinstall PyAV")


class Film:
    """A video file to be written: an MP4, H.264 if there is an encoder for it, else MPEG-4.

    The file appears, or replaces an earlier one, when the context is left; after an error, or Ctrl-C, it does not.
    Odd sides get a line of black. `static` says that little changes from one picture to the next.
    """

    def __init__(self, path: str | os.PathLike[str], *, rate: Fraction | int = 25, static: bool = False) -> None:
        self.path = Path(path)
        self.rate = Fraction(rate).limit_denominator(65535)
        self.codec = codec()
        self.options = OPTIONS.get(self.codec, {}) | (STATIC_OPTIONS.get(self.codec, {}) if static else {})
        self._thread = ThreadPoolExecutor(1, f"encode {self.path.name}")
        self._waiting: deque[Future[None]] = deque()
        self._container: Any = None
        self._stream: Any = None
        self._count = 0  # encoded pictures
        self._last = -1  # when the latest one is shown, in ticks
        self._file = ExitStack()  # moves the file to its path, or removes it

    def __enter__(self) -> Film:
        self.temporary = self._file.enter_context(replacing(self.path))
        self._file.callback(self._stop)
        return self

    def write(self, picture: Picture, time: float | None = None) -> None:
        """Add a picture, to be shown at a time in seconds, None: at the rate; waits while the encoder is behind."""
        self._waiting.append(self._thread.submit(self._encode, picture, time))
        if len(self._waiting) > QUEUE:
            self._waiting.popleft().result()

    def finish(self) -> None:
        """Wait for the encoder; the file is complete then, but still has its temporary name."""
        while self._waiting:
            self._waiting.popleft().result()
        if self._stream is None:
            raise ValueError(f"{self.path} would have no picture in it")
        self._thread.submit(self._close).result()

    def __exit__(self, *raised: Any) -> None:
        if raised[0] is not None:
            self._file.__exit__(*raised)
            return
        with self._file:
            self.finish()

    def _stop(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        if self._container is not None:
            with suppress(OSError):
                self._container.close()

    # -- in the thread

    def _encode(self, picture: Picture, time: float | None) -> None:
        with explain_refusal(self.path):
            if self._stream is None:
                self._open(picture)
            frame = as_frame(picture).reformat(format="yuv420p")
            ticks = round((self._count / self.rate if time is None else Fraction(time)) * TICKS)
            self._last = max(ticks, self._last + 1)
            frame.pts, frame.time_base = self._last, Fraction(1, TICKS)
            self._container.mux(self._stream.encode(frame))
            self._count += 1

    def _open(self, picture: Picture) -> None:
        H, W = picture.shape
        path, options = ffmpeg_path(str(self.temporary)), {"movflags": "faststart"}
        self._container = import_av().open(path, "w", format="mp4", options=options)
        self._stream = self._container.add_stream(self.codec, rate=self.rate)
        self._stream.width, self._stream.height, self._stream.pix_fmt = W + W % 2, H + H % 2, "yuv420p"
        self._stream.options = self.options
        self._stream.codec_context.time_base = Fraction(1, TICKS)
        self._stream.codec_context.thread_count = 1  # else the file depends on the number of threads

    def _close(self) -> None:
        if self._container is not None:
            with explain_refusal(self.path):
                self._container.mux(self._stream.encode())
                self._container.close()
                self._container = None


def as_frame(picture: Picture) -> Any:
    """A frame of PyAV, with even sides."""
    create = import_av().VideoFrame.from_ndarray
    luma = _even(picture.luma, 0)
    if picture.chroma is None:
        return create(luma, format="gray")
    if picture.halved:
        flat = np.concatenate([plane.ravel() for plane in (luma, *picture.chroma)])
        return create(flat.reshape(-1, luma.shape[1]), format="yuvj420p")
    return create(np.stack([luma, *(_even(plane, NEUTRAL) for plane in picture.chroma)]), format="yuvj444p")


def _even(plane: Grey, fill: int) -> Grey:
    H, W = plane.shape
    return np.ascontiguousarray(np.pad(plane, [(0, H % 2), (0, W % 2)], constant_values=fill))


def write_picture(path: str | os.PathLike[str], picture: Picture) -> None:
    """Write a picture as a PNG file."""
    av = import_av()
    grey = picture.chroma is None
    array, kind = (np.ascontiguousarray(picture.luma), "gray") if grey else (picture.rgb(), "rgb24")
    encoder = av.CodecContext.create("png", "w")
    encoder.height, encoder.width = picture.shape
    encoder.pix_fmt, encoder.time_base = kind, Fraction(1, 25)
    packets = [*encoder.encode(av.VideoFrame.from_ndarray(array, format=kind)), *encoder.encode(None)]
    write(Path(path), b"".join(bytes(packet) for packet in packets))
