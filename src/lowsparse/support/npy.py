"""Headers of `.npy` files, and what the arrays of an `.npz` file take before they are read."""

import math
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any
from zipfile import ZipFile

import numpy as np

from .sizes import check_fits

MAGIC = b"\x93NUMPY"  # how an .npy file begins


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, Fortran order and type of an array; the file is left at its first number."""
    first = np.lib.format.read_magic(file) == (1, 0)
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    try:
        shape, fortran, dtype = read(file)
    except TokenError as error:  # which NumPy lets through
        raise ValueError(f"the header of an array cannot be parsed ({error})") from error
    if min(shape, default=0) < 0:
        raise ValueError(f"an array has the shape {shape}")
    return shape, fortran, dtype


def check_archive(path: Path, *, in_memory: bool = True) -> None:
    """Raise an error if an array is said to be larger than its file, or all of them are too large for the memory."""
    with path.open("rb") as raw, ZipFile(raw) as archive:
        members = archive.infolist()
        if in_memory:
            check_fits(path, "its content", sum(member.file_size for member in members))
        for member in members:
            with archive.open(member) as file:
                if file.read(len(MAGIC)) != MAGIC:  # no array, whatever its name is
                    continue
                file.seek(0)
                shape, _, dtype = read_header(file)
            if math.prod(shape) * dtype.itemsize > member.file_size:
                raise ValueError(f"{member.filename} should hold {shape} of {dtype}, and has {member.file_size} bytes")
