"""A solve on disk: the state of an iteration as one npz file (no pickle), resumed to the same bits.

Numbers per entry of a matrix in pieces are written and read a piece at a time. Arrays on a GPU are copied to the host,
and the header lists them: not all arrays of a solve on a GPU are there.
"""

import dataclasses
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from numbers import Number
from pathlib import Path
from typing import IO, Any, TypeVar
from zipfile import ZIP_STORED, ZipFile

import numpy as np

from .entries.protocol import NumbersInPieces
from .linalg.arrays import host, on_device, to_device_of
from .result import Status, Trace
from .solvers.base import Problem, Solver, State
from .support.files import replacing
from .support.npy import check_archive, read_header

FORMAT = 2
PLAIN = (str, int, float, tuple, list, dict, np.generic, type(None))  # fields of a state that JSON holds
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
    """Raise if `save` would fail; an existing file stays."""
    target = Path(path)
    with tempfile.TemporaryFile(dir=target.parent):
        pass
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder: a checkpoint is a file")


def _fields(state: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of a state, and of states in it, such as "path.U"; without scratch memory."""
    for field in dataclasses.fields(state):
        value, name = getattr(state, field.name), prefix + field.name
        if dataclasses.is_dataclass(value):
            yield from _fields(value, f"{name}.")
        elif field.name not in getattr(state, "scratch", ()):
            yield name, value


def _replace(state: Any, values: dict[str, Any], prefix: str = "") -> Any:
    """The state with these values of fields, by the names of `_fields`."""
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(state):
        value, name = getattr(state, field.name), prefix + field.name
        nested = dataclasses.is_dataclass(value)
        fields[field.name] = _replace(value, values, f"{name}.") if nested else values.get(name, value)
    return type(state)(**fields)


def save(path: str | os.PathLike[str], problem: Problem, solver: Solver, state: State, trace: Trace) -> None:
    """Write the state and the trace to `path`; an earlier file is replaced when the new one is complete."""
    fields = dict(_fields(state))
    plain = {name: value for name, value in fields.items() if isinstance(value, PLAIN)}
    header = {"format": FORMAT, "identity": _identity(problem, solver), "state": plain}
    if on_device(problem.M.values):
        header["on_gpu"] = [name for name, value in fields.items() if on_device(value)]
    arrays = {"header": np.array(_to_json(header)), **{f"trace.{name}": trace[name] for name in trace}}
    arrays |= {f"state.{name}": value for name, value in fields.items() if name not in plain}
    with replacing(Path(path)) as temporary, ZipFile(temporary, "w") as archive:
        for name, numbers in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                _write(member, numbers)


def _write(member: IO[bytes], numbers: Any) -> None:
    """An array as an `.npy` file."""
    if not isinstance(numbers, NumbersInPieces):
        np.lib.format.write_array(member, host(numbers), allow_pickle=False)
        return
    parts = numbers.parts()
    first = next(parts)
    header = {"descr": first.dtype.str, "fortran_order": False, "shape": numbers.shape}
    np.lib.format.write_array_header_1_0(member, header)
    for part in chain([first], parts):
        member.write(part.data)


def _read(file: Any, key: str, fresh: State) -> Any:
    """An array of an archive; numbers in pieces are put where those of the fresh state are."""
    like = getattr(fresh, key.removeprefix("state."), None)
    if not isinstance(like, NumbersInPieces):
        return file[key]
    with file.zip.open(f"{key}.npy") as member:
        shape, _, dtype = read_header(member)
        if shape != like.shape:
            raise ValueError(f"{key} holds {shape} numbers, not {like.shape}")
        return like.replaced(lambda size: np.frombuffer(member.read(size * dtype.itemsize), dtype))


def load(path: str | os.PathLike[str], problem: Problem, solver: Solver, fresh: AnyState) -> tuple[AnyState, Trace]:
    """The saved state and trace; `fresh`, a state of the same problem, lends its scratch memory."""
    name = os.fspath(path)
    expected = json.loads(_to_json(_identity(problem, solver)))
    with _explain_damage(name), open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
        check_archive(Path(path), in_memory=False)
        if any(member.compress_type != ZIP_STORED for member in file.zip.infolist()):
            raise ValueError("it is compressed")  # and could be anything
        header = json.loads(str(file["header"]))
        version, plain, on_gpu = header["format"], header["state"], header.get("on_gpu")
        found = {key: header["identity"][key] for key in expected}
        if version != FORMAT:
            raise _OtherSolveError(f"{name} has format {version}, this version reads {FORMAT}")
        for key, value in expected.items():
            if found[key] != value:
                raise _OtherSolveError(
                    f"{name} was saved with other {key}: {found[key]!r}, now {value!r}; resume with what it was "
                    "started with, or solve anew"
                )
        if (on_gpu is not None) != on_device(problem.M.values):
            where, backend = ("the processor", "native") if on_gpu is None else ("a GPU", "cuda")
            advice = f"resume with backend={backend!r}, or solve anew"
            raise _OtherSolveError(f"{name} was saved by a solve on {where}: {advice}")
        arrays = {key: _read(file, key, fresh) for key in file.files if key != "header"}
        values = {key.removeprefix("state."): array for key, array in arrays.items() if key.startswith("state.")}
        values |= {key: to_device_of(values[key], problem.M.values) for key in on_gpu or ()}
        values |= {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}
        columns = {key.removeprefix("trace."): array for key, array in arrays.items() if key.startswith("trace.")}
        _check_fields(values, dict(_fields(fresh)))
        _check_trace(columns, values)
    return _replace(fresh, values), Trace(columns)


def _check_fields(values: dict[str, Any], fresh: dict[str, Any]) -> None:
    """The fields must be those of a fresh state, and of the same types."""
    if values.keys() != fresh.keys():
        raise ValueError(f"{sorted(values.keys() ^ fresh.keys())} do not fit")
    for name, like in fresh.items():
        value = values[name]
        if isinstance(like, np.ndarray) and isinstance(value, np.ndarray):
            fits = (value.ndim, value.dtype) == (like.ndim, like.dtype)
        elif isinstance(like, Number):
            fits = isinstance(value, Number)
        else:
            fits = not isinstance(like, str | dict) or isinstance(value, type(like))
        if not fits:
            raise ValueError(f"{name} has the wrong type")


def _check_trace(columns: dict[str, Any], state: dict[str, Any]) -> None:
    """The trace must have a number for each column and iteration."""
    names = {"iteration", "seconds", *state["row"]} if state["iteration"] else set()
    if columns.keys() != names or any(a.dtype != float or a.shape != (state["iteration"],) for a in columns.values()):
        raise ValueError("its trace does not fit")
    if state["failure"]:
        Status(state["failure"])


class _OtherSolveError(ValueError):
    """The file is intact, but from another solve."""


@contextmanager
def _explain_damage(name: str) -> Iterator[None]:
    """Any other error while the file is read means that it is no checkpoint, or damaged."""
    try:
        yield
    except (FileNotFoundError, MemoryError, _OtherSolveError):
        raise
    except Exception as error:  # zipfile and NumPy raise anything on a damaged file
        raise ValueError(f"{name} is not a checkpoint of lowsparse, or is damaged: {error}") from error
