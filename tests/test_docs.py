"""What the pages of docs/ show is so: their Python runs, their commands exist, their links lead somewhere."""

import importlib
import inspect
import re
import shlex
from pathlib import Path

import pytest
import typer

from code_in_pages import code_blocks, printed_by
from lowsparse.cli.app import app
from lowsparse.cli.failure import EXIT_CODES
from lowsparse.entries.protocol import MatrixSummary, PartialMatrix, Resident

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
if not DOCS.is_dir():
    pytest.skip("a source distribution has no docs", allow_module_level=True)

PAPERS = [ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CODE_OF_CONDUCT", "CONTRIBUTING", "SECURITY")]
PAGES = [*PAPERS, *sorted(DOCS.glob("*.md"))]
HEAVY = ("gallery.md",)  # seconds for each picture
ELSEWHERE = ("add-a-backend.md", "add-a-method.md", "which-estimator.md")  # test_readme.py runs them
SHARED = ("coming-from.md",)  # their first block makes the data of the others
MODULES = ("", ".estimators", ".solvers", ".plots", ".datasets", ".tables", ".video")
COMMANDS = typer.main.get_command(app).commands


def runnable(page):
    """The blocks of a page as they run, each by itself or after the first."""
    first, *others = blocks = code_blocks(page)
    return (
        [first, *(block._replace(code=first.code + block.code) for block in others)] if page.name in SHARED else blocks
    )


PYTHON = [
    pytest.param(page, code, after, id=f"{page.name}:{line}", marks=[pytest.mark.slow] if page.name in HEAVY else [])
    for page in PAGES[1:]
    if page.name not in ELSEWHERE and code_blocks(page)
    for line, code, after in runnable(page)
]
SHELL = [
    pytest.param(line, id=f"{page.name}:{number + 1 + k}")
    for page in PAGES
    for number, code, _ in code_blocks(page, "sh")
    for k, line in enumerate(code.splitlines())
]


@pytest.mark.parametrize(("page", "code", "after"), PYTHON)
def test_python_runs_and_draws_its_picture(page, code, after, tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    try:
        assert printed_by(code, page.name).strip()
    finally:
        pyplot.close("all")
    for name in re.findall(r'savefig\("([^"]+)"\)', code):
        assert (tmp_path / name).stat().st_size > 5000
        assert f"](images/{name})" in after
        assert (DOCS / "images" / name).exists()


def public(kind):
    """The public names of this kind, each once."""
    modules = [importlib.import_module(f"lowsparse{name}") for name in MODULES]
    named = [getattr(module, name) for module in modules for name in module.__all__]
    return list(dict.fromkeys(filter(kind, named)))


def sections_asked(function):
    """What the docstring of a function must have, by its signature and its code."""
    signature = inspect.signature(function)
    asked = {"Parameters"} if set(signature.parameters) - {"self", "cls"} else set()
    asked |= {"Returns"} if signature.return_annotation not in (None, "None") else set()
    return asked | ({"Raises"} if re.search(r"^ +raise \w", inspect.getsource(function), flags=re.MULTILINE) else set())


def check_docstring(function, said, asked):
    headings = set(re.findall(r"^(\w+)\n-+$", said.replace("\nYields\n", "\nReturns\n"), flags=re.MULTILINE))
    assert asked <= headings, (function, asked - headings)
    unnamed = [name for name in inspect.signature(function).parameters if not re.search(rf"\b{name}\b", said)]
    assert set(unnamed) <= {"self", "cls"}, (function, unnamed)


@pytest.mark.parametrize("function", public(inspect.isfunction), ids=lambda function: function.__qualname__)
def test_every_public_function_says_what_it_takes_gives_and_refuses(function):
    check_docstring(function, inspect.getdoc(function), sections_asked(function) | {"Examples"})


@pytest.mark.parametrize("cls", public(inspect.isclass), ids=lambda cls: cls.__qualname__)
def test_every_public_class_and_its_methods_say_what_they_take_give_and_refuse(cls):
    """What a method overrides, or a contract that the class meets, may say it for the method."""
    if not issubclass(cls, Exception):
        assert ">>> " in inspect.getdoc(cls), cls
    contracts = (PartialMatrix, Resident) if MatrixSummary in cls.__mro__ else ()
    for name in filter(re.compile(r"[^_]").match, dir(cls)):
        stated = [vars(base)[name] for base in (*cls.__mro__, *contracts) if name in vars(base)]
        if not next(base for base in cls.__mro__ if name in vars(base)).__module__.startswith("lowsparse"):
            continue  # what scikit-learn has done is documented there
        method = getattr(stated[0], "fget", getattr(stated[0], "__func__", stated[0]))
        if not inspect.isfunction(method):
            continue
        asked = sections_asked(method) & {"Raises"} if isinstance(stated[0], property) else sections_asked(method)
        check_docstring(method, "\n\n".join(inspect.getdoc(one) or "" for one in stated), asked)


@pytest.mark.parametrize("line", SHELL)
def test_commands_and_options_exist(line):
    for words in simple_commands(line):
        if words[:2] == ["python", "-m"]:
            assert words[2] in ("pip", "pytest") or (ROOT / words[2].replace(".", "/")).with_suffix(".py").exists()
            continue
        assert words[0] == "lowsparse"
        if words[1].startswith("--"):
            continue
        known = {option for each in COMMANDS[words[1]].params for option in each.opts} | {"--help"}
        assert {word for word in words[2:] if word.startswith("--")} <= known


def simple_commands(line):
    """The words of the commands of a line."""
    words, found = shlex.split(line, comments=True), [[]]
    for word in words:
        if word in ("&&", "|"):
            found.append([])
        elif word == ">":
            break
        else:
            found[-1].append(word)
    return [each for each in found if each]


def test_a_command_that_does_not_exist_is_noticed():
    with pytest.raises(AssertionError):
        test_commands_and_options_exist("lowsparse doctor --jsonn > out  # a comment")
    with pytest.raises(KeyError):
        test_commands_and_options_exist("lowsparse doktor")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_page_with_options_that_exist(name):
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# lowsparse {name}\n")
    assert f"]({name}.md)" in (DOCS / "index.md").read_text(encoding="utf-8")
    assert f"](docs/{name}.md)" in PAGES[0].read_text(encoding="utf-8")
    assert "xit code" in page
    known = {option for each in COMMANDS[name].params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
    inline = re.findall(r"`[^`]*`", re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL))
    assert set(re.findall(r"--[a-z][a-z-]*", " ".join(inline))) <= known


def test_the_exit_codes_are_on_the_first_page():
    page = (DOCS / "index.md").read_text(encoding="utf-8")
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, flags=re.MULTILINE)} == set(EXIT_CODES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not re.match(r"https?://", target):
            assert (page.parent / target.partition("#")[0]).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_are_whole(page):
    """Lines between bars are a table only if the second is a rule; an empty line would cut off those that follow."""
    for table in re.findall(r"^\|.*(?:\n\|.*)*", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
        assert re.match(r"\|.*\n\|[ :|-]+\|(?:\n|$)", table), table


def test_pictures_are_small_and_used():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for picture in (DOCS / "images").iterdir():
        assert picture.stat().st_size < 150_000
        assert f"images/{picture.name})" in text
