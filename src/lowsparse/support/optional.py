"""Optional dependencies: imported when they are needed, with an error that says how to install them."""

from importlib import import_module
from typing import Any

PROJECTS = {"av": "PyAV", "PIL": "Pillow", "sklearn": "scikit-learn"}  # whose modules have other names


def import_optional(module: str, extra: str, purpose: str) -> Any:
    """Import `module`, or raise an ImportError that names the extra of this package that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        broken = "" if isinstance(error, ModuleNotFoundError) else f", which is installed but broken ({error})"
        command = f"python -m pip install 'lowsparse[{extra}]'"
        raise ImportError(f"{purpose} need {PROJECTS.get(name, name)}{broken}: {command}", name=name) from error


def import_pyarrow(part: str = "") -> Any:
    """Import pyarrow, or a part of it such as "csv"."""
    return import_optional(f"pyarrow.{part}" if part else "pyarrow", "tables", "labelled tables")
