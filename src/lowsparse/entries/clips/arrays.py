"""Frames in an array file, `.npy` or `.npz`."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ...support.npy import check_archive, read_header
from ...support.sizes import check_fits
from ..pictures import Grey, Picture
from .reader import LazyFrame, NoVideoError, Reader


class ArrayReader(Reader):
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
