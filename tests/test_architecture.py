"""The floors of the package: a module imports from its own floor and those below, and nothing imports in a circle."""

import ast
from pathlib import Path

import lowsparse

ROOT = Path(lowsparse.__file__).parent
FLOORS = (
    ("support",),
    ("linalg",),
    ("sweeps",),
    ("entries",),
    ("robust",),
    ("places",),
    ("checkpoint", "datasets", "diagnosis", "loop", "notebook", "result", "solve", "solvers", "validation"),
    ("estimators", "imputation", "series", "streaming", "tables", "video"),
    ("cli", "plots", "report", "reproduce"),
)
ABOVE_ALL = ("", "__main__")  # the package itself, which offers everything
BELOW_ALL = ("_version", "_core")
LINES = 60  # of a function, its docstring left out


def modules():
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(name):
    """The modules of the package that a module imports, anywhere in it; what only type checkers read is marked."""
    path = MODULES[name]
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    package = [part for part in package if part]

    def visit(node, for_types):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ImportFrom):
                if child.level:
                    base = package[: len(package) - child.level + 1] + (child.module or "").split(".")
                elif (child.module or "").split(".")[0] == "lowsparse":
                    base = child.module.split(".")[1:]
                else:
                    continue
                base = ".".join(part for part in base if part)
                for alias in child.names:
                    inner = f"{base}.{alias.name}".lstrip(".")
                    yield (inner if inner in MODULES or inner in BELOW_ALL else base), for_types
            elif isinstance(child, ast.Import):
                for alias in child.names:
                    if alias.name.split(".")[0] == "lowsparse":
                        yield alias.name.partition(".")[2], for_types
            yield from visit(
                child, for_types or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test))
            )

    return set(visit(ast.parse(path.read_text(encoding="utf-8")), False))


def floor(name):
    room = name.split(".")[0]
    if room in ABOVE_ALL:
        return len(FLOORS)
    return -1 if room in BELOW_ALL else next(k for k, rooms in enumerate(FLOORS) if room in rooms)


def test_no_import_goes_upwards():
    up = [
        f"{name or 'lowsparse'} imports {other or 'lowsparse'}"
        for name in MODULES
        for other, _ in imports(name)
        if floor(other) > floor(name)
    ]
    assert not up


def test_no_module_imports_itself_in_a_circle():
    graph = {name: {other for other, for_types in imports(name) if not for_types} - {name} for name in MODULES}
    done, path = set(), []

    def visit(name):
        if name in path:
            raise AssertionError(" -> ".join([*path[path.index(name) :], name]))
        if name not in done:
            path.append(name)
            for other in sorted(graph.get(name, ())):
                visit(other)
            path.pop()
            done.add(name)

    for name in graph:
        visit(name)


def test_the_root_holds_few_modules():
    assert len(list(ROOT.glob("*.py"))) <= 12


def test_functions_fit_on_a_screen():
    long = []
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                lines = node.end_lineno - body[0].lineno + 1 if body else 0
                if lines > LINES:
                    long.append(f"{name}.{node.name}: {lines}")
    assert not long
