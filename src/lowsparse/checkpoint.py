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

__all__ = ["load", "save"]

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


def save(path: str | os.PathLike[str], problem: Problem, solver: Solver, state: State, trace: Trace) -> None:
    """Write the state beside `path`, then rename: a file of that name is always whole."""
    arrays: dict[str, Any] = {f"trace.{name}": trace[name] for name in trace}
    plain: dict[str, Any] = {}
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if isinstance(value, np.ndarray):
            if field.name not in state.scratch:
                arrays[f"state.{field.name}"] = value
        else:
            plain[field.name] = value
    header = {"format": FORMAT, "identity": _identity(problem, solver), "state": plain}
    target = Path(path)
    beside = target.with_name(target.name + ".part")
    try:
        with open(beside, "wb") as file:
            np.savez(file, header=np.array(json.dumps(header)), **arrays)
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)


def load(path: str | os.PathLike[str], problem: Problem, solver: Solver, fresh: AnyState) -> tuple[AnyState, Trace]:
    """The saved state and trace; `fresh`, a state of the same problem, lends its scratch memory."""
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            arrays = {name: file[name] for name in file.files if name != "header"}
    except FileNotFoundError:
        raise
    except (BadZipFile, ValueError, KeyError, EOFError, OSError) as error:
        raise ValueError(f"{os.fspath(path)} is not a checkpoint of lowsparse, or is damaged: {error}") from error
    if header.get("format") != FORMAT:
        raise ValueError(f"{os.fspath(path)} has format {header.get('format')}, this version reads {FORMAT}")
    # through JSON, as the saved one has been
    expected = json.loads(json.dumps(_identity(problem, solver)))
    for name, value in expected.items():
        if header["identity"].get(name) != value:
            raise ValueError(
                f"{os.fspath(path)} was saved with other {name}: {header['identity'].get(name)!r}, now {value!r}; "
                "resume with what it was started with, or solve anew"
            )
    saved = {name.removeprefix("state."): a for name, a in arrays.items() if name.startswith("state.")}
    saved |= {name: tuple(v) if isinstance(v, list) else v for name, v in header["state"].items()}
    saved |= {name: getattr(fresh, name) for name in fresh.scratch}
    trace = Trace({name.removeprefix("trace."): a for name, a in arrays.items() if name.startswith("trace.")})
    return type(fresh)(**saved), trace
