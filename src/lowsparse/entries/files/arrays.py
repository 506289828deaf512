"""Files of arrays: NumPy, Matrix Market and MATLAB."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from ...support.npy import check_archive
from ...support.sizes import TooLargeError
from .labels import Array, first_line
from .market import read_market
from .matlab import NewerVersionError, read_matlab


def load_arrays(path: Path, ending: str, *, vectors: bool) -> dict[str, Any]:
    """The arrays of a file by name; `vectors` makes the 1 x n matrices of MATLAB 1-D."""
    try:
        if ending == ".mat":
            return read_matlab(path, vectors=vectors)
        if ending == ".mtx":
            return {"values": read_market(path)}
        return _load_npz(path) if ending == ".npz" else _load_npy(path)
    except NewerVersionError as error:
        raise ValueError(f"{path} is a MATLAB file of version 7.3: save it with the option -v7") from error
    except (MemoryError, PermissionError, TooLargeError):
        raise
    except Exception as error:  # the readers raise anything on a damaged file
        raise ValueError(f"{path} is no {ending} file with numbers, or it is damaged ({first_line(error)})") from error


def _load_npy(path: Path) -> dict[str, Any]:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return {name: array[name] for name in array.dtype.names} if array.dtype.names else {"values": array}


def _load_npz(path: Path) -> dict[str, Any]:
    check_archive(path)
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        if {"format", "shape", "data"} <= set(archive.files):
            return {"values": sp.load_npz(path)}
        loaded = {name: archive[name] for name in archive.files}
        return {name: array for name, array in loaded.items() if isinstance(array, np.ndarray)}  # others are bytes


def dump_arrays(ending: str, arrays: dict[str, Array]) -> bytes:
    """The content of a file of these arrays; only `.npz` and `.mat` can hold several."""
    file: Any = io.BytesIO()
    if ending == ".npz":
        named: Any = {name: _without_objects(array) for name, array in arrays.items()}
        np.savez(file, **named)
    elif ending == ".mat":
        scipy.io.savemat(file, arrays)
    else:
        (matrix,) = arrays.values()
        if ending == ".npy":
            np.save(file, matrix)
        else:
            seen = ~np.isnan(matrix)
            written = matrix if seen.all() else sp.coo_array((matrix[seen], np.nonzero(seen)), shape=matrix.shape)
            scipy.io.mmwrite(file, written, symmetry="general")
    return bytes(file.getvalue())


def _without_objects(array: Array) -> Array:
    """Text as NumPy strings, which can be read without pickles."""
    if array.dtype != object:
        return array
    plain = np.array(array.tolist())
    return plain if plain.dtype != object else array.astype(str)
