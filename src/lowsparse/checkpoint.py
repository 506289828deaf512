"""A solve on disk: the state of an iteration as one npz file (no pickle), resumed to the same bits."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import numpy as np

from .result import Trace
from .solvers.base import Problem, Solver, State

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
    beside = _beside(Path(path))
    with open(beside, "wb"):
        pass
    beside.unlink()


def _beside(target: Path) -> Path:
    return target.with_name(target.name + ".part")


def save(path: str | os.PathLike[str], problem: Problem, solver: Solver, state: State, trace: Trace) -> None:
    """Write the state beside `path`, then rename: a file of that name is always whole."""
    arrays: dict[str, Any] = {f"trace.{name}": trace[name] for name in trace}
    plain: dict[str, Any] = {}
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if field.name in state.scratch:
            continue
        if isinstance(value, np.ndarray):
            arrays[f"state.{field.name}"] = value
        else:
            plain[field.name] = value
    header = {"format": FORMAT, "identity": _identity(problem, solver), "state": plain}
    target = Path(path)
    beside = _beside(target)
    try:
        with open(beside, "wb") as file:
            np.savez(file, header=np.array(_to_json(header)), **arrays)
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)


def load(path: str | os.PathLike[str], problem: Problem, solver: Solver, fresh: AnyState) -> tuple[AnyState, Trace]:
    """The saved state and trace; `fresh`, a state of the same problem, lends its scratch memory."""
    name = os.fspath(path)
    expected = json.loads(_to_json(_identity(problem, solver)))  # as the saved one has been
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            arrays = {key: file[key] for key in file.files if key != "header"}
        version, identity = header["format"], header["identity"]
        found = {key: identity[key] for key in expected}
        values = {key.removeprefix("state."): array for key, array in arrays.items() if key.startswith("state.")}
        values |= {key: tuple(value) if isinstance(value, list) else value for key, value in header["state"].items()}
        values |= {key: getattr(fresh, key) for key in fresh.scratch}
        trace = Trace({key.removeprefix("trace."): a for key, a in arrays.items() if key.startswith("trace.")})
    except FileNotFoundError:
        raise
    except (BadZipFile, ValueError, TypeError, KeyError, AttributeError, EOFError, OSError) as error:
        raise ValueError(f"{name} is not a checkpoint of lowsparse, or is damaged: {error}") from error
    if version != FORMAT:
        raise ValueError(f"{name} has format {version}, this version reads {FORMAT}")
    for key, value in expected.items():
        if found[key] != value:
            raise ValueError(
                f"{name} was saved with other {key}: {found[key]!r}, now {value!r}; resume with what it was started "
                "with, or solve anew"
            )
    fields = {field.name for field in dataclasses.fields(fresh)}
    if values.keys() != fields:
        raise ValueError(
            f"{name} is not a checkpoint of lowsparse, or is damaged: {sorted(values.keys() ^ fields)} do not fit"
        )
    return type(fresh)(**values), trace
