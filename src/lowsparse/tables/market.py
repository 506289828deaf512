"""Matrix Market files, read by the book: a file that is cut off or damaged is an error, whatever is in it."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from .labels import Array

__all__ = ["read_market"]

FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern")
MIRRORED = {"general": 0.0, "symmetric": 1.0, "hermitian": 1.0, "skew-symmetric": -1.0}  # the sign of the other half


def read_market(path: Path) -> Any:
    """The matrix of a file: a `scipy.sparse.coo_array`, or an array if the file holds all entries.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "t.mtx")
    ...     _ = path.write_text("%%MatrixMarket matrix coordinate real general\\n2 3 1\\n2 1 0.5\\n")
    ...     read_market(path).toarray().tolist()
    [[0.0, 0.0, 0.0], [0.5, 0.0, 0.0]]
    """
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as lines:
        words = lines.readline().decode("latin-1").lower().split()
        if len(words) != 5 or words[0] != "%%matrixmarket" or words[1] != "matrix":
            raise ValueError("its first line is not that of a Matrix Market file")
        held, field, symmetry = words[2:]
        if held not in ("coordinate", "array") or symmetry not in MIRRORED:
            raise ValueError(f"{held} {symmetry} matrices are not known")
        if field not in FIELDS or (held == "array" and field == "pattern"):
            raise ValueError(f"its numbers are {field}, and must be real or integer")
        size, head = _sizes(lines, 3 if held == "coordinate" else 2)
    if symmetry != "general" and size[0] != size[1]:
        raise ValueError(f"it is {symmetry}, but {size[0]} x {size[1]}")
    if held == "array":
        return _array(path, head, size, MIRRORED[symmetry])
    return _entries(path, head, size, MIRRORED[symmetry], pattern=field == "pattern")


def _sizes(lines: Iterable[bytes], count: int) -> tuple[list[int], int]:
    """How large the matrix is, and the number of lines of the file up to the one that says so."""
    for number, line in enumerate(lines, start=2):
        if line.strip() and not line.startswith(b"%"):
            words = line.split()
            if len(words) == count and all(word.isdigit() for word in words):
                return [int(word) for word in words], number
            break
    raise ValueError("it has no line that says how large the matrix is")


def _numbers(path: Path, head: int, lines: int, width: int) -> Array:
    """So many lines of so many numbers, and no more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of no lines
        found = np.loadtxt(path, comments="%", ndmin=2, skiprows=head, encoding="latin-1")
    if not found.size and not lines:
        return found.reshape(0, width)
    if found.shape != (lines, width):
        raise ValueError(f"it has {found.shape[0]} lines of {found.shape[1]} numbers; {lines} of {width} are expected")
    return found


def _entries(path: Path, head: int, size: list[int], mirrored: float, *, pattern: bool) -> Any:
    m, n, count = size
    found = _numbers(path, head, count, 2 if pattern else 3)
    i, j = found[:, 0] - 1, found[:, 1] - 1
    if ((i < 0) | (i >= m) | (i % 1 != 0) | (j < 0) | (j >= n) | (j % 1 != 0)).any():
        raise ValueError(f"an entry lies outside of the matrix, which is {m} x {n}")
    i, j = i.astype(np.int64), j.astype(np.int64)
    values = np.ones(count) if pattern else found[:, 2]
    other = np.flatnonzero(i != j) if mirrored else np.arange(0)
    places = np.concatenate([i, j[other]]), np.concatenate([j, i[other]])
    return sp.coo_array((np.concatenate([values, mirrored * values[other]]), places), shape=(m, n))


def _array(path: Path, head: int, size: list[int], mirrored: float) -> Array:
    """Column by column; of a mirrored matrix what lies below the diagonal, and the diagonal unless it is 0."""
    m, n = size
    if not mirrored:
        return _numbers(path, head, m * n, 1).reshape(n, m).T
    above = 1 if mirrored < 0 else 0
    values = _numbers(path, head, (n - above) * (n - above + 1) // 2, 1)[:, 0]
    j, i = np.triu_indices(n, above)
    X = np.zeros((m, n))
    X[j, i] = mirrored * values
    X[i, j] = values
    return X
