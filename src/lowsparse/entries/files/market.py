"""Matrix Market files.

`scipy.io.mmread` is not safe on damaged files: 1.12 as well as 1.17 makes room for whatever size the header gives, and
ends the process with a segmentation fault on lines that were changed, also where the header has been checked.
"""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...support.files import open_unpacked
from .labels import Array

FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern")
SIGNS = {"general": 0.0, "symmetric": 1.0, "hermitian": 1.0, "skew-symmetric": -1.0}  # of the other triangle


def read_market(path: Path) -> Any:
    """The matrix of a file: a `scipy.sparse.coo_array`, or a dense array if the file holds one."""
    with open_unpacked(path) as lines:
        words = lines.readline().decode("latin-1").lower().split()
        if len(words) != 5 or words[0] != "%%matrixmarket" or words[1] != "matrix":
            raise ValueError("its first line is not that of a Matrix Market file")
        layout, field, symmetry = words[2:]
        if layout not in ("coordinate", "array") or symmetry not in SIGNS:
            raise ValueError(f"{layout} {symmetry} matrices are not supported")
        if field not in FIELDS or (layout == "array" and field == "pattern"):
            raise ValueError(f"its numbers are {field}, and must be real or integer")
        size, head = _sizes(lines, 3 if layout == "coordinate" else 2)
    if symmetry != "general" and size[0] != size[1]:
        raise ValueError(f"it is {symmetry}, but {size[0]} x {size[1]}")
    if layout == "array":
        return _array(path, head, size, SIGNS[symmetry])
    return _entries(path, head, size, SIGNS[symmetry], pattern=field == "pattern")


def _sizes(lines: Iterable[bytes], count: int) -> tuple[list[int], int]:
    """The numbers of the line of sizes, and how many lines of the file end there."""
    for number, line in enumerate(lines, start=2):
        if line.strip() and not line.startswith(b"%"):
            words = line.split()
            if len(words) == count and all(word.isdigit() for word in words):
                return [int(word) for word in words], number
            break
    raise ValueError("it has no line that says how large the matrix is")


def _numbers(path: Path, head: int, lines: int, width: int) -> Array:
    """The numbers after the head; there must be as many lines, and as many numbers in each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about a file without lines
        found = np.loadtxt(path, comments="%", ndmin=2, skiprows=head, encoding="latin-1")
    if not found.size and not lines:
        return found.reshape(0, width)
    if found.shape != (lines, width):
        raise ValueError(f"it has {found.shape[0]} lines of {found.shape[1]} numbers; {lines} of {width} are expected")
    return found


def _entries(path: Path, head: int, size: list[int], sign: float, *, pattern: bool) -> Any:
    m, n, count = size
    found = _numbers(path, head, count, 2 if pattern else 3)
    i, j = found[:, 0] - 1, found[:, 1] - 1
    if ((i < 0) | (i >= m) | (i % 1 != 0) | (j < 0) | (j >= n) | (j % 1 != 0)).any():
        raise ValueError(f"an entry lies outside of the matrix, which is {m} x {n}")
    i, j = i.astype(np.int64), j.astype(np.int64)
    values = np.ones(count) if pattern else found[:, 2]
    other = np.flatnonzero(i != j) if sign else np.arange(0)
    index = np.concatenate([i, j[other]]), np.concatenate([j, i[other]])
    return sp.coo_array((np.concatenate([values, sign * values[other]]), index), shape=(m, n))


def _array(path: Path, head: int, size: list[int], sign: float) -> Array:
    """Column by column; of a symmetric matrix the lower triangle, without the diagonal if it is skew."""
    m, n = size
    if not sign:
        return _numbers(path, head, m * n, 1).reshape(n, m).T
    above = 1 if sign < 0 else 0
    values = _numbers(path, head, (n - above) * (n - above + 1) // 2, 1)[:, 0]
    j, i = np.triu_indices(n, above)
    X = np.zeros((m, n))
    X[j, i] = sign * values
    X[i, j] = values
    return X
