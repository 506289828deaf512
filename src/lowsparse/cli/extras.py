"""The optional dependencies (extras) of the package, and which of them are installed."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

__all__ = ["advice_for", "extra_of", "extras", "installed"]

PACKAGE = "lowsparse"
ALL = "all"  # names the extras for users; the others are for developers
MODULES = {"scikit-learn": "sklearn", "pillow": "PIL"}  # where the import name differs
NAME = re.compile(r"[A-Za-z0-9._-]+")
PROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"  # if run from the source tree


def extras() -> dict[str, list[str]]:
    """The packages of each extra for users, in the order of the package metadata."""
    declared = _declared()
    wanted = [name for requirement in declared.get(ALL, []) for name in _own_extras(requirement)]
    return {
        extra: [_package(requirement) for requirement in declared[extra] if _package(requirement) != PACKAGE]
        for extra in declared
        if extra in wanted
    }


def extra_of(module: str) -> str | None:
    """The extra that installs a module."""
    top = module.partition(".")[0]
    return next((extra for extra, names in extras().items() if top in (MODULES.get(n, n) for n in names)), None)


def installed(package: str) -> str | None:
    """The version of an installed package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def advice_for(error: ImportError) -> str:
    """A message that names the missing package and how to install it, unless the error already does."""
    message = " ".join(str(error).split())
    if error.name is None or "pip install" in message:
        return message or "a package is missing"
    top = error.name.partition(".")[0]
    if not isinstance(error, ModuleNotFoundError):
        return f"{top} is installed, but cannot be imported ({message}): reinstall it"
    extra = extra_of(top)
    what = f"'{PACKAGE}[{extra}]'" if extra else top
    return f"this needs {top}, which is not installed: python -m pip install {what}"


def _declared() -> dict[str, list[str]]:
    """The requirements of every extra."""
    try:
        described = importlib.metadata.metadata(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        project = tomllib.loads(PROJECT.read_text(encoding="utf-8")) if PROJECT.is_file() else {}
        return dict(project.get("project", {}).get("optional-dependencies", {}))
    requirements = described.get_all("Requires-Dist") or []
    found: dict[str, list[str]] = {extra: [] for extra in described.get_all("Provides-Extra") or []}
    for requirement in requirements:
        if named := re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", requirement):
            found.setdefault(named[1], []).append(requirement.partition(";")[0].strip())
    return found


def _package(requirement: str) -> str:
    found = NAME.match(requirement)
    return found[0] if found else requirement


def _own_extras(requirement: str) -> list[str]:
    """The extras in a requirement on this package: plot and cli in "lowsparse[plot,cli]"."""
    found = re.match(rf"{PACKAGE}\[([^]]*)\]", requirement)
    return [name.strip() for name in found[1].split(",")] if found else []
