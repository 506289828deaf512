"""Pages of the site that are made when it is built: the reference, a page for each method, the papers of the root.

MkDocs calls the functions `on_...`; the class is for its plugin that reads docstrings.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import griffe
from method_pages import method_pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import lowsparse
from lowsparse.entries.protocol import MatrixSummary, PartialMatrix, Resident

ROOT = Path(__file__).parents[1]
PAPERS = {  # of the repository's root: where they stand on the site
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}

# Pages of the reference: the module whose public names they show, the names' prefix, and the title.
REFERENCE = {
    "solve": ("lowsparse", "lowsparse", "Solving"),
    "estimators": ("lowsparse.estimators", "lowsparse", "Estimators"),
    "solvers": ("lowsparse.solvers", "lowsparse.solvers", "Solvers"),
    "plots": ("lowsparse.plots", "lowsparse.plots", "Plots"),
    "datasets": ("lowsparse.datasets", "lowsparse.datasets", "Data sets"),
    "tables": ("lowsparse.tables", "lowsparse.tables", "Tables"),
    "video": ("lowsparse.video", "lowsparse.video", "Video"),
}
SHARED = re.compile(r"^(\w+(?:, \w+)+)( : .*)?\n((?:    .+\n)+)", re.MULTILINE)  # a text for several parameters
SECTION = re.compile(r"^\w+\n---", re.MULTILINE)
EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$|```).*)*", re.MULTILINE)  # to the next empty line


def on_config(config: MkDocsConfig) -> None:
    """Add the methods to the navigation."""
    (section,) = (entry["Methods"] for entry in config.nav or () if "Methods" in entry)
    section += [{name: f"method/{name}.md"} for name in lowsparse.solvers.names()]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    pages: dict[str, str | bytes] = {f"reference/{name}.md": reference_page(*of) for name, of in REFERENCE.items()}
    pages |= method_pages()
    pages |= {target: paper_page(name) for name, target in PAPERS.items()}
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, **others: Any) -> str:
    """Links to the papers of the root lead to their pages."""
    for name, target in PAPERS.items():
        markdown = markdown.replace(f"](../{name})", f"]({target})")
    return markdown


def paper_page(name: str) -> str:
    """A paper of the root, with links as seen from docs/."""
    text = (ROOT / name).read_text("utf-8").replace("](docs/", "](")
    return re.sub(r"\]\((?=[A-Z_]+\.md\))", "](../", text)


def reference_page(module_name: str, prefix: str, title: str) -> str:
    """Every public name of a module, each from its docstring."""
    module = importlib.import_module(module_name)
    parts = [f"# {title}", (module.__doc__ or "").partition("\n")[0]]
    for name in public_names(module):
        heading = f"{prefix}.{name}"
        parts.append(f"::: {defined_as(module, name)}\n    options:\n      heading: {heading}\n      toc_label: {name}")
    return "\n\n".join(parts) + "\n"


def public_names(module: ModuleType) -> list[str]:
    """The names that a module exports, functions first; not modules, the version, and what has a page of its own."""
    elsewhere = ["__version__"]
    if module.__name__ == "lowsparse":
        elsewhere += importlib.import_module("lowsparse.estimators").__all__
    names = [name for name in module.__all__ if name not in elsewhere]
    names = [name for name in names if not isinstance(getattr(module, name), ModuleType)]
    return sorted(names, key=lambda name: (name != "solve", inspect.isclass(getattr(module, name))))


def defined_as(module: ModuleType, name: str) -> str:
    """Where a public name is defined: its module and name there; for constants, where it is exported."""
    value: Any = getattr(module, name)
    return f"{getattr(value, '__module__', module.__name__)}.{getattr(value, '__qualname__', name)}"


class Docstrings(griffe.Extension):
    """Docstrings as the plugin understands them.

    A method that says in a line how it does what it overrides, or what a contract asks for, gets the sections of that.
    Examples without a heading become blocks of code, as Markdown takes `>>>` for quotes, or get a heading after others.
    Parameters that share a text get it each, as else all of them are shown with the type and default of the first.
    """

    def on_instance(self, *, obj: griffe.Object, **others: Any) -> None:
        """Change the docstring of an object that was read."""
        if obj.docstring:
            text = SHARED.sub(each_with_its_text, obj.docstring.value + sections_elsewhere(obj))
            if "\n---" not in text:
                text = EXAMPLE.sub(r"```pycon\n\g<0>\n```", text)
            elif "\nExamples\n---" not in text:
                text = text.replace("\n\n>>> ", "\n\nExamples\n--------\n>>> ", 1)
            obj.docstring.value = text


def sections_elsewhere(obj: griffe.Object) -> str:
    """The sections that a method without any takes over, after an empty line."""
    cls = getattr(sys.modules.get(obj.module.path), obj.parent.name if obj.parent else "", None)
    if not obj.is_function or not inspect.isclass(cls) or not obj.docstring or "\n---" in obj.docstring.value:
        return ""
    contracts = (PartialMatrix, Resident) if MatrixSummary in cls.__mro__ else ()
    for base in (*cls.__mro__[1:], *contracts):
        said = inspect.getdoc(vars(base).get(obj.name)) or ""
        if base.__module__.startswith("lowsparse") and (sections := SECTION.search(said)):
            return f"\n\n{said[sections.start() :]}"
    return ""


def each_with_its_text(shared: re.Match[str]) -> str:
    """The entries of parameters that share one."""
    names, kind, text = shared.groups(default="")
    return "".join(f"{name}{kind}\n{text}" for name in names.split(", "))
