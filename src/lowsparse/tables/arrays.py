"""Files that hold arrays: NumPy, Matrix Market and MATLAB."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from .labels import Array, brief
from .market import read_market

__all__ = ["dump", "load"]

# what readers stumble over
DAMAGED = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    OverflowError,
    EOFError,
    OSError,
    zipfile.BadZipFile,
    zlib.error,
)


def load(path: Path, ending: str, records: bool) -> dict[str, Any]:
    """The arrays of a file by name; of `records`, vectors."""
    try:
        return _LOAD[ending](path, records)
    except NotImplementedError as error:  # SciPy reads no HDF5
        raise ValueError(f"{path} is a MATLAB file of version 7.3: save it with the option -v7") from error
    except DAMAGED as error:
        raise ValueError(f"{path} is no {ending} file with numbers, or it is damaged ({brief(error)})") from error


def _load_npy(path: Path, records: bool) -> dict[str, Any]:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return {name: array[name] for name in array.dtype.names} if array.dtype.names else {"values": array}


def _load_npz(path: Path, records: bool) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as archive:
        if {"format", "shape", "data"} <= set(archive.files):
            return {"values": sp.load_npz(path)}
        return {name: archive[name] for name in archive.files}


def _load_mat(path: Path, records: bool) -> dict[str, Any]:
    held = scipy.io.loadmat(path, squeeze_me=records)  # a vector is 1 x n in MATLAB
    return {name: array for name, array in held.items() if not name.startswith("__")}


_LOAD: dict[str, Callable[[Path, bool], dict[str, Any]]] = {
    ".npy": _load_npy,
    ".npz": _load_npz,
    ".mtx": lambda path, records: {"values": read_market(path)},
    ".mat": _load_mat,
}


def dump(ending: str, held: dict[str, Array]) -> bytes:
    """The bytes of a file of these arrays; only `.npz` and `.mat` hold several."""
    file = io.BytesIO()
    if ending == ".npz":
        arrays: Any = {name: _without_objects(array) for name, array in held.items()}
        np.savez(file, **arrays)
    elif ending == ".mat":
        target: Any = file
        scipy.io.savemat(target, held)
    else:
        (matrix,) = held.values()
        if ending == ".npy":
            np.save(file, matrix)
        else:
            seen = ~np.isnan(matrix)
            written = matrix if seen.all() else sp.coo_array((matrix[seen], np.nonzero(seen)), shape=matrix.shape)
            scipy.io.mmwrite(file, written, symmetry="general")
    return file.getvalue()


def _without_objects(array: Array) -> Array:
    """Text as NumPy's own, which is read back without pickles."""
    if array.dtype != object:
        return array
    plain = np.array(array.tolist())
    return plain if plain.dtype != object else array.astype(str)
