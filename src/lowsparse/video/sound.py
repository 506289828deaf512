"""The sound of a video file, copied into a film as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ..entries.clips.media import ffmpeg_path, import_av, open_container
from ..entries.clips.reader import NoVideoError


class Sound:
    """The first sound of a video file, from the time of a picture on; it is not decoded.

    Parameters
    ----------
    path
        A video file.
    begin
        The time of the first picture of the film, in seconds after the first one of the video.
    """

    def __init__(self, path: str | os.PathLike[str], begin: float = 0.0) -> None:
        av = import_av()
        if not os.path.isfile(path):
            raise NoVideoError(f"the sound of {path} cannot be kept, as it is no video file: leave audio out")
        try:
            self._container = open_container(ffmpeg_path(os.fspath(path)))
        except (av.error.FFmpegError, OSError) as error:
            raise NoVideoError(f"the sound of {path} cannot be read: {error.strerror or error}") from None
        if not self._container.streams.audio:
            self._container.close()
            raise NoVideoError(f"{path} has no sound in it: leave audio out")
        self.name, self._begin = path, begin
        self._source = self._container.streams.audio[0]
        self._target: Any = None
        self._packets = self._demux()
        self._next: Any = None  # the packet that is copied next

    def attach(self, film: Any) -> None:
        """Copy to this container of PyAV."""
        codec = self._source.codec_context.name
        if codec not in film.supported_codecs:
            raise ValueError(
                f"the sound of {self.name} ({codec}) does not fit into this kind of film: choose another, such as "
                "mask.mkv, convert the sound to AAC, or leave audio out"
            )
        self._target = film.add_stream_from_template(self._source)
        self._film, self._next = film, next(self._packets, None)

    def copy_until(self, time: float) -> None:
        """Copy what is heard before this time of the film, in seconds."""
        while self._next is not None and self._next.pts * self._next.time_base < time:
            self._next.stream = self._target
            self._film.mux(self._next)
            self._next = next(self._packets, None)

    def close(self) -> None:
        """Close the file."""
        self._container.close()

    def _demux(self) -> Iterator[Any]:
        """The packets, with times of the film; those before its beginning are left out."""
        av = import_av()
        video = self._container.streams.video[:1]
        first = video[0].start_time * video[0].time_base if video and video[0].start_time is not None else 0
        base = self._source.time_base
        shift = round((first + self._begin) / base)
        packets = self._container.demux(self._source)
        while True:
            try:
                packet = next(packets, None)
            except av.error.FFmpegError:  # truncated
                return
            if packet is None:
                return
            if packet.pts is not None and packet.pts >= shift:
                packet.pts -= shift
                packet.dts = packet.pts if packet.dts is None else packet.dts - shift
                yield packet
