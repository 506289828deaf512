"""Temporary storage of a matrix on disk: a number for each entry in an unnamed file.

S is zero at most entries. If at least half of the numbers of a piece are zero, one bit for each number and the nonzero
ones are written instead.
"""

import tempfile
import weakref
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...sweeps import native

SAMPLE = 10_000  # numbers that decide whether squeezing is tried


class Scratch:
    """One number for each entry, piece by piece."""

    def __init__(self, folder: Path, parts: Sequence[slice], dtype: DTypeLike) -> None:
        self.parts, self.dtype = parts, np.dtype(dtype)
        self.nonzeros: dict[int, int] = {}  # in each piece that is stored squeezed
        self._file = tempfile.TemporaryFile(dir=folder, prefix=".held-", buffering=0)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._longest = max(part.stop - part.start for part in parts)
        self._bits = np.empty(-(-self._longest // 64), np.uint64)
        self._found = np.empty(self._longest // 2, self.dtype)

    @cached_property
    def _buffer(self) -> NDArray[Any]:
        return np.empty(self._longest, self.dtype)

    def buffer(self, piece: int) -> NDArray[Any]:
        """Memory for the numbers of a piece, the same that `read` uses."""
        part = self.parts[piece]
        return self._buffer[: part.stop - part.start]

    def write(self, piece: int, numbers: NDArray[Any]) -> None:
        """Store the numbers of a piece."""
        numbers = np.ascontiguousarray(numbers)
        few = np.count_nonzero(numbers[:SAMPLE]) <= min(SAMPLE, numbers.size) // 2
        bits, found = self._squeezed(numbers.size)
        nonzeros = squeeze(numbers, bits, found) if few else numbers.size
        offset = self._offset(piece)
        if nonzeros <= numbers.size // 2:
            self.nonzeros[piece] = nonzeros
            self._put(offset, bits)
            self._put(offset + bits.nbytes, found[:nonzeros])
        else:
            self.nonzeros.pop(piece, None)
            self._put(offset, numbers)

    def read(self, piece: int) -> NDArray[Any]:
        """The numbers of a piece, valid until the next is read."""
        numbers = self.buffer(piece)
        offset = self._offset(piece)
        if piece not in self.nonzeros:
            self._get(offset, numbers)
            return numbers
        bits, found = self._squeezed(numbers.size)
        found = found[: self.nonzeros[piece]]
        self._get(offset, bits)
        self._get(offset + bits.nbytes, found)
        expand(bits, found, numbers)
        return numbers

    def _squeezed(self, size: int) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """Memory for a bit for each of `size` numbers, and for the nonzero ones."""
        return self._bits[: -(-size // 64)], self._found[: size // 2]

    def _offset(self, piece: int) -> int:
        return int(self.parts[piece].start * self.dtype.itemsize)

    def _put(self, offset: int, numbers: NDArray[Any]) -> None:
        self._file.seek(offset)
        left = numbers.view(np.uint8).data
        while left:
            left = left[self._file.write(left) :]

    def _get(self, offset: int, numbers: NDArray[Any]) -> None:
        self._file.seek(offset)
        left = numbers.view(np.uint8).data
        while left:
            got = self._file.readinto(left)
            if not got:
                raise OSError("a scratch file ends too soon")
            left = left[got:]


def squeeze(numbers: NDArray[Any], bits: NDArray[np.uint64], found: NDArray[Any]) -> int:
    """Write a bit for each number, and the nonzero ones if `found` is long enough; returns how many there are."""
    if native.reason_unavailable() is None:
        return native.squeeze(numbers, bits, found)
    nonzero = numbers.view(f"u{numbers.itemsize}") != 0  # a zero with a sign counts
    bits[-1:] = 0
    packed = np.packbits(nonzero, bitorder="little")
    bits.view(np.uint8)[: packed.size] = packed
    n_nonzero = int(np.count_nonzero(nonzero))
    if n_nonzero <= found.size:
        found[:n_nonzero] = numbers[nonzero]
    return n_nonzero


def expand(bits: NDArray[np.uint64], found: NDArray[Any], numbers: NDArray[Any]) -> None:
    """The inverse of `squeeze`."""
    if native.reason_unavailable() is None:
        return native.expand(bits, found, numbers)
    numbers[:] = 0
    numbers[np.unpackbits(bits.view(np.uint8), count=numbers.size, bitorder="little").view(bool)] = found
