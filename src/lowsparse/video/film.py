"""Video files and pictures out: complete or not at all, encoded in a thread."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..entries.clips.media import ffmpeg_path, import_av
from ..entries.pictures import Picture
from ..support.files import explain_refusal, replacing, write
from .sound import Sound

CODECS = ("libx264", "libopenh264", "mpeg4")  # in the order of preference
# Frames that refer to later ones (B-frames) make these films no smaller, and to wait for them takes memory; so do
# motions by parts of a pixel (subme), for which a frame is kept four times.
OPTIONS = {
    "libx264": {"preset": "superfast", "crf": "21", "tune": "zerolatency", "x264-params": "subme=0"},
    "mpeg4": {"qscale": "3"},
}
# If little changes, these are as fast, and the film has a third of the size.
STATIC_OPTIONS = OPTIONS | {"libx264": {"preset": "veryfast", "crf": "21", "bf": "3"}}
LOSSLESS = "ffv1"
CONTAINERS = {".mp4": ("mp4", {"movflags": "faststart"}), ".mkv": ("matroska", {})}
FULL_RANGE = 2  # FFmpeg's name of luma from 0 to 255
QUEUE = 2  # pictures that wait for the encoder
TICKS = 60_000  # in a second: the unit of times in a film; MPEG-4 has no more than 65,535


def codec() -> str:
    """The encoder of MP4 files: H.264, or what this build of PyAV has."""
    av = import_av()
    for name in CODECS:
        with suppress(ValueError):  # an unknown codec
            return str(av.codec.Codec(name, "w").name)
    raise RuntimeError(f"this build of PyAV has none of the encoders {', '.join(CODECS)}: reinstall PyAV")


class Writer(ABC):
    """Pictures on their way to a path, encoded in a thread.

    What is written appears, or replaces what was there, when the context is left; after an error, or Ctrl-C, it does
    not.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._thread = ThreadPoolExecutor(1, f"encode {self.path.name}")
        self._waiting: deque[Future[None]] = deque()
        self._count = 0  # encoded pictures
        self._complete = False
        self._file = ExitStack()  # moves what was written to its path, or removes it

    def __enter__(self) -> Self:
        self.temporary = self._file.enter_context(replacing(self.path))
        self._file.callback(self._stop)
        return self

    def write(self, picture: Picture, time: float | None = None, label: int | None = None) -> None:
        """Add a picture, to be shown at a time in seconds, None: at the rate; waits while the encoder is behind.

        The label is the number of the picture among pictures in a folder, None: counted from 0.
        """
        self._waiting.append(self._thread.submit(self._encode_next, picture, time, label))
        if len(self._waiting) > QUEUE:
            self._waiting.popleft().result()

    def finish(self) -> None:
        """Wait for the encoder; all is complete then, but still has its temporary name."""
        while self._waiting:
            self._waiting.popleft().result()
        if not self._count:
            raise ValueError(f"{self.path} would have no picture in it")
        self._thread.submit(self._close).result()
        self._complete = True

    def __exit__(self, *raised: Any) -> None:
        if raised[0] is not None:
            self._file.__exit__(*raised)
            return
        with self._file:
            self.finish()

    def _stop(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    # -- in the thread

    def _encode_next(self, picture: Picture, time: float | None, label: int | None) -> None:
        with explain_refusal(self.path):
            self._encode(picture, time, label)
        self._count += 1

    @abstractmethod
    def _encode(self, picture: Picture, time: float | None, label: int | None) -> None:
        """Write a picture."""

    @abstractmethod
    def _close(self) -> None:
        """Write what is left."""


class Film(Writer):
    """A video file: an MP4, H.264 if there is an encoder for it, else MPEG-4; or a Matroska file without loss, FFV1.

    H.264 with halved colours needs even sides, so a picture with an odd side is encoded with whole ones (4:4:4).
    `static` says that little changes from one picture to the next; `pixel_aspect` is the width of a pixel by its
    height, which only an MP4 can say; `sound` is copied.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        rate: Fraction | int = 25,
        static: bool = False,
        pixel_aspect: Fraction | int = 1,
        sound: Sound | None = None,
    ) -> None:
        super().__init__(path)
        self.pixel_aspect, self.sound = Fraction(pixel_aspect), sound
        self.rate = Fraction(rate).limit_denominator(65535)
        self.lossless = self.path.suffix == ".mkv"
        self.codec = LOSSLESS if self.lossless else codec()
        self.options = (STATIC_OPTIONS if static else OPTIONS).get(self.codec, {})
        self._container: Any = None
        self._stream: Any = None
        self._converter = (
            import_av().video.reformatter.VideoReformatter()
        )  # one for all pictures: each has to be set up
        self._last = -1  # when the latest picture is shown, in ticks

    def _stop(self) -> None:
        super()._stop()
        if self._container is not None:
            with suppress(OSError):
                self._container.close()
        if self.sound is not None:
            self.sound.close()

    def _encode(self, picture: Picture, time: float | None, label: int | None) -> None:
        if self._stream is None:
            self._open(picture)
        kept = {"dst_color_range": FULL_RANGE} if self.lossless else {}
        frame = self._converter.reformat(as_frame(picture), format=self._stream.pix_fmt, **kept)
        ticks = round((self._count / self.rate if time is None else Fraction(time)) * TICKS)
        self._last = max(ticks, self._last + 1)
        frame.pts, frame.time_base = self._last, Fraction(1, TICKS)
        self._container.mux(self._stream.encode(frame))
        if self.sound is not None:
            self.sound.copy_until(self._last / TICKS)

    def _open(self, picture: Picture) -> None:
        name, options = CONTAINERS[self.path.suffix]
        odd = any(side % 2 for side in picture.shape)
        if odd and self.codec == "libopenh264":  # which has neither odd sides nor 4:4:4
            self.codec = "mpeg4"
        self._container = import_av().open(ffmpeg_path(str(self.temporary)), "w", format=name, options=options)
        self._stream = self._container.add_stream(self.codec, rate=self.rate)
        self._stream.height, self._stream.width = picture.shape
        kind = "yuv444p" if odd and self.codec == "libx264" else "yuv420p"
        if self.lossless:
            kind = "gray" if picture.chroma is None else "yuv420p" if picture.halved and not odd else "yuv444p"
        self._stream.pix_fmt = kind
        self._stream.options = self.options
        context = self._stream.codec_context
        context.time_base, context.sample_aspect_ratio = Fraction(1, TICKS), self.pixel_aspect
        context.thread_count = 1  # else the file depends on the number of threads
        if self.lossless:
            context.color_range = FULL_RANGE
        if self.sound is not None:
            self.sound.attach(self._container)

    def _close(self) -> None:
        if self._container is not None:
            with explain_refusal(self.path):
                self._container.mux(self._stream.encode())
                if self.sound is not None:
                    self.sound.copy_until(self._last / TICKS + 1 / float(self.rate))
                self._container.close()
                self._container = None


class PictureFolder(Writer):
    """A folder of PNG files, without loss, named by the labels of their frames: 000012.png.

    An earlier folder is replaced as a whole; one that holds anything else is refused.
    """

    def __enter__(self) -> Self:
        if reason := reason_to_keep(self.path):
            raise FileExistsError(reason)
        super().__enter__()
        self.temporary.mkdir()
        return self

    def __exit__(self, *raised: Any) -> None:
        if raised[0] is None:
            self._file.callback(self._put_aside)  # called before the new folder is moved
        super().__exit__(*raised)

    def _put_aside(self) -> None:
        if self._complete and self.path.is_dir():
            os.replace(self.path, self.temporary.with_name("earlier"))

    def _encode(self, picture: Picture, time: float | None, label: int | None) -> None:
        path = self.temporary / picture_name(self._count if label is None else label)
        if path.exists():
            raise ValueError(f"{self.path}: two frames have the number {label}: choose .mkv, or rename the pictures")
        path.write_bytes(encode_png(picture))

    def _close(self) -> None:
        pass


def picture_name(label: int) -> str:
    """The name of a picture in such a folder."""
    return f"{label:06d}.png"


def reason_to_keep(folder: Path) -> str | None:
    """Why a folder of pictures must not be written to this path; None if there is nothing, or such a folder."""
    if not os.path.lexists(folder):
        return None
    if not folder.is_dir():
        return f"{folder} is not a folder: remove it, or choose another folder"
    other = next((path.name for path in folder.iterdir() if not re.fullmatch(r"-?\d+\.png", path.name)), None)
    return None if other is None else f"{folder} holds {other}, which is not ours: choose another folder"


def as_frame(picture: Picture) -> Any:
    """A frame of PyAV."""
    create = import_av().VideoFrame.from_ndarray
    if picture.chroma is None:
        return create(np.ascontiguousarray(picture.luma), format="gray")
    if picture.halved and not any(side % 2 for side in picture.shape):
        flat = np.concatenate([plane.ravel() for plane in (picture.luma, *picture.chroma)])
        return create(flat.reshape(-1, picture.shape[1]), format="yuvj420p")
    return create(np.stack([picture.luma, *picture.upsample(picture.chroma)]), format="yuvj444p")


def write_picture(path: str | os.PathLike[str], picture: Picture) -> None:
    """Write a picture as a PNG file."""
    write(Path(path), encode_png(picture))


def encode_png(picture: Picture) -> bytes:
    """A PNG file."""
    av = import_av()
    grey = picture.chroma is None
    array, kind = (np.ascontiguousarray(picture.luma), "gray") if grey else (picture.rgb(), "rgb24")
    encoder = av.CodecContext.create("png", "w")
    encoder.height, encoder.width = picture.shape
    encoder.pix_fmt, encoder.time_base = kind, Fraction(1, 25)
    packets = [*encoder.encode(av.VideoFrame.from_ndarray(array, format=kind)), *encoder.encode(None)]
    return b"".join(bytes(packet) for packet in packets)
