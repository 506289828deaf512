"""What can be installed besides: the extras of the package, which packages they bring, and which of them are there."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

__all__ = ["advice_for", "extra_of", "extras", "installed"]

HERE = "lowsparse"
EVERYTHING = "all"  # the extra that brings all that users may want; the others are for developers
MODULES = {"scikit-learn": "sklearn", "pillow": "PIL"}  # where the name to import is another
NAME = re.compile(r"[A-Za-z0-9._-]+")
PROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"  # where lowsparse runs from its sources


def extras() -> dict[str, list[str]]:
    """The packages that each extra for users names, in the order of the package's metadata.

    >>> "typer" in extras()["cli"]
    True
    """
    declared = _declared()
    wanted = [name for requirement in declared.get(EVERYTHING, []) for name in _own_extras(requirement)]
    return {
        extra: [_package(requirement) for requirement in declared[extra] if _package(requirement) != HERE]
        for extra in declared
        if extra in wanted
    }


def extra_of(module: str) -> str | None:
    """The extra that brings a module.

    >>> extra_of("av"), extra_of("nonsense")
    ('video', None)
    """
    top = module.partition(".")[0]
    return next((extra for extra, names in extras().items() if top in (MODULES.get(n, n) for n in names)), None)


def installed(package: str) -> str | None:
    """The version of an installed package; None if it is not there.

    >>> installed("numpy") is not None, installed("no-such-package")
    (True, None)
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def advice_for(error: ImportError) -> str:
    """What is missing, and how to get it. Errors that say so themselves are left as they are.

    >>> advice_for(ModuleNotFoundError("No module named 'av'", name="av"))
    "this needs av, which is not installed: python -m pip install 'lowsparse[video]'"
    """
    said = " ".join(str(error).split())
    if error.name is None or "pip install" in said:
        return said or "a package is missing"
    top = error.name.partition(".")[0]
    if not isinstance(error, ModuleNotFoundError):
        return f"{top} is installed, but cannot be used ({said}): reinstall it"
    extra = extra_of(top)
    what = f"'{HERE}[{extra}]'" if extra else top
    return f"this needs {top}, which is not installed: python -m pip install {what}"


def _declared() -> dict[str, list[str]]:
    """The requirements of every extra."""
    try:
        described = importlib.metadata.metadata(HERE)
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
    """
    >>> _own_extras("lowsparse[plot,cli]"), _own_extras("rich>=13")
    (['plot', 'cli'], [])
    """
    found = re.match(rf"{HERE}\[([^]]*)\]", requirement)
    return [name.strip() for name in found[1].split(",")] if found else []
