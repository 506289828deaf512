"""The optional dependencies (extras) of the package, and which of them are installed."""

import importlib.metadata
import json
import re
import shlex
import tomllib
from pathlib import Path

PACKAGE = "lowsparse"
ALL = "all"  # names the extras for users; the others are for developers
MODULES = {"scikit-learn": "sklearn", "pillow": "PIL"}  # where the import name differs
NAME = r"[A-Za-z0-9._-]+"
PROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"  # if run from the source tree


def extras() -> dict[str, list[str]]:
    """The packages of each extra for users, in the order of the package metadata."""
    declared = _declared()
    for_users = re.findall(NAME, " ".join(declared.get(ALL, [])))  # plot and cli of "lowsparse[plot,cli]"
    packages = {extra: re.findall(rf"^{NAME}", "\n".join(declared[extra]), re.MULTILINE) for extra in declared}
    return {extra: [name for name in packages[extra] if name != PACKAGE] for extra in declared if extra in for_users}


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


def origin() -> str:
    """What pip is given to install this package again: its name only if it came from a package index."""
    try:
        recorded = importlib.metadata.distribution(PACKAGE).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return shlex.quote(str(PROJECT.parent)) if PROJECT.is_file() else "FOLDER, where its source is"
    if recorded is None:
        return PACKAGE
    source = json.loads(recorded)
    kind = source.get("vcs_info", {}).get("vcs")
    return shlex.quote(f"{kind}+{source['url']}" if kind else source["url"].removeprefix("file://"))


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
