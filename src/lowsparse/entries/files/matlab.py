"""MATLAB files up to version 7.

`scipy.io.loadmat` is not safe on damaged files of version 5 to 7: it kills the process where the type of an element, or
a size, is wrong. Here every element is a part of the one around it, and NumPy reads nothing outside of it.
"""

import io
import math
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from ...support.sizes import check_fits, read_limit
from .labels import Array

HEADER = 128  # bytes of text, version and byte order
MATRIX, COMPRESSED = 14, 15  # types of elements
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
TEXT = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
CELL, CHARACTERS, SPARSE, NUMERIC = 1, 4, 5, range(6, 16)  # classes of arrays
COMPLEX, LOGICAL = 0x800, 0x200  # flags of arrays


class NewerVersionError(ValueError):
    """A file of version 7.3 or later, which is not read here."""


def read_matlab(path: Path, *, vectors: bool) -> dict[str, Any]:
    """The arrays of a file by name; `vectors` makes 1 x n matrices 1-D. What holds no numbers and no text is empty."""
    with path.open("rb") as file:
        start = file.read(HEADER)
        if 0 in start[:4]:  # version 4, which SciPy reads in Python
            whole: Any = io.BytesIO(start + file.read())  # SciPy makes room for what a file promises, not for this
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of SciPy 1.18: sparse matrices become arrays
                found = scipy.io.loadmat(whole, squeeze_me=vectors)
            return {name: array for name, array in found.items() if not name.startswith("__")}
        order = {b"IM": "<", b"MI": ">"}.get(start[126:])
        if order is None:
            raise ValueError("its first 128 bytes are not those of a MATLAB file")
        if start[124 if order == ">" else 125] != 1:
            raise NewerVersionError("it is of version 7.3, which is HDF5")
        content = memoryview(file.read())
    arrays = dict(_named(element, order) for element in _matrices(path, content, order))
    return {name: np.squeeze(array) if vectors and not sp.issparse(array) else array for name, array in arrays.items()}


def _matrices(path: Path, content: memoryview, order: str) -> Iterator[memoryview]:
    """The content of each matrix of a file, unpacked one at a time."""
    unpacked = 0  # bytes
    for kind, element in _elements(content, order, padded=False):
        if kind == COMPRESSED:
            element = _unpacked(element, read_limit() - unpacked)
            unpacked += len(element)
            check_fits(path, "its content", unpacked)
            ((kind, element),) = _elements(element, order)
        if kind != MATRIX:
            raise ValueError(f"it holds an element of type {kind}, which is no matrix")
        yield element


def _unpacked(packed: memoryview, limit: int) -> memoryview:
    """The bytes of a compressed element, up to one more than the limit."""
    stream = zlib.decompressobj()
    content = stream.decompress(packed, limit + 1)
    if not stream.eof and len(content) <= limit:
        raise ValueError("a compressed matrix is cut off")
    return memoryview(content)


def _elements(content: memoryview, order: str, *, padded: bool = True) -> Iterator[tuple[int, memoryview]]:
    """The type and the content of each element."""
    position = 0
    while position < len(content):
        kind, size = (int(word) for word in np.frombuffer(content[position : position + 8], f"{order}u4"))
        start = position + 8
        if kind >> 16:  # up to 4 bytes stand in the tag
            kind, size, start = kind & 0xFFFF, kind >> 16, position + 4
            if size > 4:
                raise ValueError(f"an element of {size} bytes is marked as one of 4 bytes at most")
        if start + size > len(content):
            raise ValueError(f"an element of {size} bytes is cut off")
        yield kind, content[start : start + size]
        end = start + size
        position = end + -end % 8 if padded or kind != COMPRESSED else end


def _named(element: memoryview, order: str) -> tuple[str, Any]:
    """The name and the array of a matrix."""
    parts = list(_elements(element, order))
    if len(parts) < 3:
        raise ValueError("a matrix has no type, size or name")
    flags = int(_numbers(parts[0], order)[0])
    shape = tuple(int(size) for size in _numbers(parts[1], order))
    if len(shape) < 2 or min(shape) < 0:
        raise ValueError(f"a matrix has the size {shape}")
    name, kind, data = bytes(parts[2][1]).decode("latin-1"), flags & 0xFF, parts[3:]
    if kind in NUMERIC:
        real, *imaginary = (_numbers(part, order).reshape(shape, order="F") for part in data)
        return name, real + 1j * imaginary[0] if flags & COMPLEX else real
    if kind == SPARSE:
        values = (2, data[2][1]) if flags & LOGICAL else data[2]  # which are bytes, whatever their type says
        rows, starts, numbers, *imaginary = (_numbers(part, order) for part in (*data[:2], values, *data[3:]))
        numbers, nnz = numbers + 1j * imaginary[0] if flags & COMPLEX else numbers, int(starts[-1])
        return name, sp.csc_array((numbers[:nnz], rows[:nnz], starts), shape=(shape[0], shape[1]))
    if kind == CHARACTERS:
        return name, _strings(data[0], shape, order)
    if kind == CELL and math.prod(shape) == len(data):
        return name, _cells(data, shape, order)
    return name, np.empty(0, object)


def _numbers(part: tuple[int, memoryview], order: str) -> Array:
    kind, content = part
    if kind not in NUMBERS:
        raise ValueError(f"it has numbers of the type {kind}, which is unknown")
    return np.frombuffer(content, order + NUMBERS[kind])


def _strings(part: tuple[int, memoryview], shape: tuple[int, ...], order: str) -> Array:
    """Text: a string for each row of characters."""
    kind, content = part
    if kind not in TEXT:
        raise ValueError(f"it has text of the type {kind}, which is unknown")
    endian = {"<": "-le", ">": "-be"}[order] if TEXT[kind] in ("utf-16", "utf-32") else ""
    text = bytes(content).decode(TEXT[kind] + endian, errors="replace")
    if shape[0] == 1 or len(shape) != 2:
        return np.array([text])
    if len(text) != math.prod(shape):
        raise ValueError(f"it has text of {len(text)} characters, which should be {shape[0]} x {shape[1]}")
    return np.array([text[row :: shape[0]] for row in range(shape[0])])


def _cells(data: list[tuple[int, memoryview]], shape: tuple[int, ...], order: str) -> Array:
    """Numbers and text in cells, others as None."""
    cells = np.empty(len(data), object)
    for k, (kind, content) in enumerate(data):
        found = np.empty(0) if kind != MATRIX or not len(content) else _named(content, order)[1]
        cells[k] = found.item() if found.size == 1 and not sp.issparse(found) else None
    return cells.reshape(shape, order="F")
