"""Numbers of a matrix in pieces that are kept for later in a file without a name; it goes when they do.

S is zero at most entries. Where more than half of the numbers of a piece are, a bit for each and the others are
written: so much less goes to the disk and comes back.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...sweeps import native

__all__ = ["Scratch", "TemporaryFolder"]

SAMPLE = 10_000  # numbers that are looked at first


class Scratch:
    """One number for each entry, piece by piece.

    >>> scratch = Scratch(Path(tempfile.gettempdir()), [slice(0, 3), slice(3, 5)], np.float64)
    >>> scratch.write(1, np.array([0.0, 7.0]))
    >>> scratch.read(1).tolist()
    [0.0, 7.0]
    """

    def __init__(self, folder: Path, parts: Sequence[slice], dtype: Any) -> None:
        self.parts, self.dtype = parts, np.dtype(dtype)
        self.nonzeros: dict[int, int] = {}  # of each piece that is stored so, how many numbers are not zero
        self._file = tempfile.TemporaryFile(dir=folder, prefix=".held-", buffering=0)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._longest = max(part.stop - part.start for part in parts)
        self._bits = np.empty(-(-self._longest // 64), np.uint64)
        self._found = np.empty(self._longest // 2, self.dtype)

    @cached_property
    def _room(self) -> NDArray[Any]:
        return np.empty(self._longest, self.dtype)

    def room(self, piece: int) -> NDArray[Any]:
        """Where the numbers of a piece may be put; what was read last is there no more."""
        part = self.parts[piece]
        return self._room[: part.stop - part.start]

    def write(self, piece: int, numbers: NDArray[Any]) -> None:
        """Keep the numbers of a piece."""
        numbers = np.ascontiguousarray(numbers)
        few = np.count_nonzero(numbers[:SAMPLE]) <= min(SAMPLE, numbers.size) // 2
        bits, found = self._squeezed(numbers.size)
        nonzeros = squeeze(numbers, bits, found) if few else numbers.size
        if nonzeros <= numbers.size // 2:
            self.nonzeros[piece] = nonzeros
            self._put(self._place(piece), bits)
            self._put(self._place(piece) + bits.nbytes, found[:nonzeros])
        else:
            self.nonzeros.pop(piece, None)
            self._put(self._place(piece), numbers)

    def read(self, piece: int) -> NDArray[Any]:
        """The numbers of a piece, which are there until the next is read."""
        numbers = self.room(piece)
        if piece not in self.nonzeros:
            self._get(self._place(piece), numbers)
            return numbers
        bits, found = self._squeezed(numbers.size)
        found = found[: self.nonzeros[piece]]
        self._get(self._place(piece), bits)
        self._get(self._place(piece) + bits.nbytes, found)
        expand(bits, found, numbers)
        return numbers

    def _squeezed(self, size: int) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """Memory for a bit for each of so many numbers, and for those that are not zero."""
        return self._bits[: -(-size // 64)], self._found[: size // 2]

    def _place(self, piece: int) -> int:
        return int(self.parts[piece].start * self.dtype.itemsize)

    def _put(self, place: int, numbers: NDArray[Any]) -> None:
        self._file.seek(place)
        left = numbers.view(np.uint8).data
        while left:
            left = left[self._file.write(left) :]

    def _get(self, place: int, numbers: NDArray[Any]) -> None:
        self._file.seek(place)
        left = numbers.view(np.uint8).data
        while left:
            got = self._file.readinto(left)
            if not got:
                raise OSError("a scratch file ends too soon")
            left = left[got:]


def squeeze(numbers: NDArray[Any], bits: NDArray[np.uint64], found: NDArray[Any]) -> int:
    """A bit for each number, and those that are not zero, if there is room; how many there are.

    >>> bits, found = np.zeros(1, np.uint64), np.zeros(2)
    >>> squeeze(np.array([0.0, 5.0, 0.0, 6.0]), bits, found), int(bits[0]), found.tolist()
    (2, 10, [5.0, 6.0])
    """
    if native.reason_unavailable() is None:
        return native.squeeze(numbers, bits, found)
    held = numbers.view(f"u{numbers.itemsize}") != 0  # a zero with a sign is kept
    bits[-1:] = 0
    packed = np.packbits(held, bitorder="little")
    bits.view(np.uint8)[: packed.size] = packed
    many = int(np.count_nonzero(held))
    if many <= found.size:
        found[:many] = numbers[held]
    return many


def expand(bits: NDArray[np.uint64], found: NDArray[Any], numbers: NDArray[Any]) -> None:
    """The numbers again.

    >>> numbers = np.empty(4)
    >>> expand(np.array([10], np.uint64), np.array([5.0, 6.0]), numbers)
    >>> numbers.tolist()
    [0.0, 5.0, 0.0, 6.0]
    """
    if native.reason_unavailable() is None:
        return native.expand(bits, found, numbers)
    numbers[:] = 0
    numbers[np.unpackbits(bits.view(np.uint8), count=numbers.size, bitorder="little").view(bool)] = found


class TemporaryFolder:
    """A new folder, which is removed with the last matrix that holds it; one within another holds that.

    >>> folder = TemporaryFolder("lowsparse-")
    >>> path = folder.path
    >>> inner = TemporaryFolder(".values-", path, within=folder)
    >>> del folder
    >>> path.exists()
    True
    >>> del inner
    >>> path.exists()
    False
    """

    def __init__(self, prefix: str, folder: Path | None = None, *, within: TemporaryFolder | None = None) -> None:
        self.path, self.within = Path(tempfile.mkdtemp(prefix=prefix, dir=folder)), within
        self.remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
