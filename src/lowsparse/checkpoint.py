"""A solve on disk: the state of an iteration as one npz file (no pickle), resumed to the same bits.

Numbers per entry of a matrix in pieces are written, and read, a piece at a time. Arrays on a GPU are copied, and the
file says which these are: a small block is learnt by the processor, so not all arrays of a solve are there.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeVar
from zipfile import BadZipFile, ZipFile

import numpy as np

from .linalg.arrays import host, on_device, to_device_of
from .places.pieces.coefficients import Coefficients
from .places.pieces.formulas import Entries
from .result import Trace
from .solvers.base import Problem, Solver, State
from .support.files import replacing

__all__ = ["check_writable", "load", "save"]

FORMAT = 1
AnyState = TypeVar("AnyState", bound=State)


def _identity(problem: Problem, solver: Solver) -> dict[str, Any]:
    """What must be the same for a resumed solve to go on where the saved one stopped."""
    return {
        "method": solver.name,
        "parameters": solver.get_params(),
        "rank": problem.rank,
        "tol": problem.tol,
        "data": problem.M.fingerprint(),
    }


def _to_json(header: dict[str, Any]) -> str:
    return json.dumps(header, default=lambda scalar: scalar.item())  # parameters may be NumPy's numbers


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise now if `save` would fail later; what is at `path` stays."""
    target = Path(path)
    with tempfile.TemporaryFile(dir=target.parent):
        pass
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder: a checkpoint is a file")


def _named(state: Any, within: str = "") -> Iterator[tuple[str, Any]]:
    """What a state is made of, those of states within it too, such as "path.U"; what is made anew is left out."""
    for field in dataclasses.fields(state):
        value, name = getattr(state, field.name), within + field.name
        if dataclasses.is_dataclass(value):
            yield from _named(value, f"{name}.")
        elif field.name not in getattr(state, "scratch", ()):
            yield name, value


def _like(fresh: Any, values: dict[str, Any], within: str = "") -> Any:
    """A state with these values, by the names of `_named`, and what is not among them of the fresh one."""
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(fresh):
        value, name = getattr(fresh, field.name), within + field.name
        inside = dataclasses.is_dataclass(value)
        fields[field.name] = _like(value, values, f"{name}.") if inside else values.get(name, value)
    return type(fresh)(**fields)


def save(path: str | os.PathLike[str], problem: Problem, solver: Solver, state: State, trace: Trace) -> None:
    """Write the state beside `path`, then rename: a file of that name is always whole."""
    arrays: dict[str, Any] = {f"trace.{name}": trace[name] for name in trace}
    plain: dict[str, Any] = {}
    on_gpu: list[str] = []
    for name, value in _named(state):
        if isinstance(value, np.ndarray | Entries | Coefficients) or on_device(value):
            arrays[f"state.{name}"] = value
            on_gpu += [name] if on_device(value) else []
        else:
            plain[name] = value
    header = {"format": FORMAT, "identity": _identity(problem, solver), "state": plain}
    if on_device(problem.M.values):
        header["on_gpu"] = on_gpu
    with replacing(Path(path)) as part, ZipFile(part, "w") as archive:
        for name, numbers in {"header": np.array(_to_json(header)), **arrays}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                _write(member, numbers)


def _write(member: IO[bytes], numbers: Any) -> None:
    """An array as an `.npy` file."""
    if not isinstance(numbers, Entries):
        np.lib.format.write_array(member, host(numbers), allow_pickle=False)
        return
    parts = numbers.parts()
    first = next(parts)
    header = {"descr": first.dtype.str, "fortran_order": False, "shape": numbers.shape}
    np.lib.format.write_array_header_1_0(member, header)
    for part in chain([first], parts):
        member.write(part.data)


def _read(file: Any, key: str, fresh: State) -> Any:
    """An array of an archive; where the state has numbers in pieces, they are put where those are."""
    like = getattr(fresh, key.removeprefix("state."), None)
    if not isinstance(like, Entries):
        return file[key]
    with file.zip.open(f"{key}.npy") as member:
        np.lib.format.read_magic(member)
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        if shape != like.shape:
            raise ValueError(f"{key} holds {shape} numbers, not {like.shape}")
        sizes = np.diff(like.home.piece_starts()).tolist()
        return like.home.keep(np.frombuffer(member.read(size * dtype.itemsize), dtype) for size in sizes)


def load(path: str | os.PathLike[str], problem: Problem, solver: Solver, fresh: AnyState) -> tuple[AnyState, Trace]:
    """The saved state and trace; `fresh`, a state of the same problem, lends its scratch memory."""
    name = os.fspath(path)
    expected = json.loads(_to_json(_identity(problem, solver)))  # as the saved one has been
    with _intact(name), open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
        header = json.loads(str(file["header"]))
        version, plain = header["format"], header["state"]
        found = {key: header["identity"][key] for key in expected}
        if version != FORMAT:
            raise _OtherError(f"{name} has format {version}, this version reads {FORMAT}")
        for key, value in expected.items():
            if found[key] != value:
                raise _OtherError(
                    f"{name} was saved with other {key}: {found[key]!r}, now {value!r}; resume with what it was "
                    "started with, or solve anew"
                )
        on_gpu = header.get("on_gpu")
        if (on_gpu is not None) != on_device(problem.M.values):
            where, how = ("the processor", "'native'") if on_gpu is None else ("a GPU", "'cuda'")
            raise _OtherError(f"{name} was saved by a solve on {where}: resume with backend={how}, or solve anew")
        arrays = {key: _read(file, key, fresh) for key in file.files if key != "header"}
        values = {key.removeprefix("state."): array for key, array in arrays.items() if key.startswith("state.")}
        values |= {key: to_device_of(values[key], problem.M.values) for key in on_gpu or ()}
        values |= {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}
        names = {name for name, _ in _named(fresh)}
        if values.keys() != names:
            raise ValueError(f"{sorted(values.keys() ^ names)} do not fit")
        trace = Trace({key.removeprefix("trace."): a for key, a in arrays.items() if key.startswith("trace.")})
    return _like(fresh, values), trace


class _OtherError(ValueError):
    """The file is whole, but of another solve."""


@contextmanager
def _intact(name: str) -> Iterator[None]:
    """Whatever goes wrong while a file is read, it is not what it should be."""
    try:
        yield
    except (FileNotFoundError, _OtherError):
        raise
    except (BadZipFile, ValueError, TypeError, KeyError, AttributeError, EOFError, OSError) as error:
        raise ValueError(f"{name} is not a checkpoint of lowsparse, or is damaged: {error}") from error
