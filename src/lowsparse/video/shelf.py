"""Frames that wait until they can be separated: in memory, and if they are many and large in a temporary file."""

from __future__ import annotations

import math
import tempfile
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import IO, overload

import numpy as np

from ..entries.frames import Frame
from ..entries.pictures import Grey, Picture
from .registration import Aligned, Shift

MOST = 5_000_000  # bytes of pictures in memory
NOTHING = Picture(np.empty((0, 0), np.uint8))


@dataclass(frozen=True)
class _Stored:
    """A frame whose picture is in the file."""

    frame: Frame  # without its picture
    shift: Shift
    reference: Picture | None
    offset: int  # in the file
    shapes: list[tuple[int, ...]]  # of luma and chroma


class Shelf:
    """Aligned frames in order.

    The file has no name and vanishes with the process. Where it cannot be written, all frames stay in memory.

    >>> shelf = Shelf(most=0)
    >>> shelf.add(Aligned.of(Frame(Picture(np.full((2, 3), 7, np.uint8)), 0, 0, 0.0), None))
    >>> len(shelf), shelf[0].picture.luma.tolist(), shelf.take().frame.number, len(shelf)
    (1, [[7, 7, 7], [7, 7, 7]], 0, 0)
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._waiting: deque[Aligned | _Stored] = deque()
        self._file: IO[bytes] | None = None
        self._in_memory = self._end = 0  # bytes of pictures in memory, and of the file
        self._free: list[int] = []  # offsets in the file of pictures that were removed: all are of one size

    def __len__(self) -> int:
        return len(self._waiting)

    def __getitem__(self, k: int) -> Aligned:
        return self._loaded(self._waiting[k])

    def __iter__(self) -> Iterator[Aligned]:
        return map(self._loaded, list(self._waiting))

    def pictures(self, every: int = 1) -> Sequence[Picture]:
        """The pictures of one in so many frames, each loaded when it is asked for."""
        return _Pictures(self, range(0, len(self), every))

    def add(self, one: Aligned) -> None:
        """Add a frame at the end."""
        planes = _planes(one.frame.picture)
        size = sum(plane.nbytes for plane in planes)
        if self._in_memory + size > self.most:
            with suppress(OSError):  # no room, or no folder
                self._waiting.append(self._store(one, planes))
                return
        self._in_memory += size
        self._waiting.append(one)

    def take(self) -> Aligned:
        """Take the first frame away."""
        one = self._waiting.popleft()
        loaded = self._loaded(one)
        self._release(one)
        return loaded

    def drop_every_second(self) -> None:
        """Drop the second frame, the fourth, and so on."""
        for one in islice(self._waiting, 1, None, 2):
            self._release(one)
        self._waiting = deque(islice(self._waiting, 0, None, 2))

    def _release(self, one: Aligned | _Stored) -> None:
        if isinstance(one, Aligned):
            self._in_memory -= sum(plane.nbytes for plane in _planes(one.frame.picture))
        else:
            self._free.append(one.offset)

    def _store(self, one: Aligned, planes: list[Grey]) -> _Stored:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
            weakref.finalize(self, self._file.close)
        offset = self._free.pop() if self._free else self._end
        self._file.seek(offset)
        for plane in planes:
            plane.tofile(self._file)
        self._end = max(self._end, self._file.tell())
        return _Stored(
            replace(one.frame, picture=NOTHING), one.shift, one.reference, offset, [plane.shape for plane in planes]
        )

    def _loaded(self, one: Aligned | _Stored) -> Aligned:
        if isinstance(one, Aligned):
            return one
        assert self._file is not None
        self._file.seek(one.offset)
        planes = [np.fromfile(self._file, np.uint8, math.prod(shape)).reshape(shape) for shape in one.shapes]
        frame = replace(one.frame, picture=Picture(*planes))
        return Aligned.at(frame, one.shift, one.reference)


@dataclass(frozen=True)
class _Pictures(Sequence[Picture]):
    """The aligned pictures of some of the frames on a shelf."""

    shelf: Shelf
    which: range

    def __len__(self) -> int:
        return len(self.which)

    @overload
    def __getitem__(self, k: int) -> Picture: ...

    @overload
    def __getitem__(self, k: slice) -> Sequence[Picture]: ...

    def __getitem__(self, k: int | slice) -> Picture | Sequence[Picture]:
        if isinstance(k, slice):
            return _Pictures(self.shelf, self.which[k])
        return self.shelf[self.which[k]].picture


def _planes(picture: Picture) -> list[Grey]:
    return [picture.luma] if picture.chroma is None else [picture.luma, picture.chroma]
