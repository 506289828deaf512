"""What the README and two pages of docs/ show is so; test_docs.py sees to the other pages."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import lowsparse as ls

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(path):
    """The Python of a page, block by block."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


BLOCKS = blocks("README.md")


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[-1][:40])
def test_python_runs(block):
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(block, "README.md", "exec"), {})
    assert printed.getvalue().strip()


def test_the_first_block_recovers():
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(BLOCKS[0], {})
    first, second = printed.getvalue().splitlines()
    assert "converged" in first
    assert float(second) < 1e-8


def test_the_imputer_recovers():
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(BLOCKS[1], {})
    assert float(printed.getvalue()) < 1e-6


def test_the_block_of_triples_fills_in():
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(BLOCKS[2], {})
    assert float(printed.getvalue()) == 6.0


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="a source distribution has no docs")
def test_the_estimators_do_as_their_page_says():
    close = []
    for block in blocks("docs/which-estimator.md"):
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(block, "which-estimator.md", "exec"), {})
        close.append(printed.getvalue().split()[0])
    filled, new_rows, streamed, _ = close
    assert float(filled) < 1e-3
    assert float(new_rows) < 1e-6
    assert float(streamed) < 1e-2


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="a source distribution has no docs")
def test_the_method_that_is_added_works():
    code = "\n".join(blocks("docs/add-a-method.md"))
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(code, "add-a-method.md", "exec"), {"__name__": "added"})
    assert printed.getvalue() == "CONVERGED True\n"


def test_the_two_commands_are_there():
    assert 'python -m pip install ".[all]" && lowsparse demo\n' in README
    assert 'python -m pip install ".[test]" && python -m pytest\n' in README


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="a source distribution has no pictures")
def test_pictures_exist():
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    assert pictures
    for picture in pictures:
        assert (ROOT / picture).stat().st_size < 150_000


def test_every_method_is_in_the_table():
    for name in ls.solvers.names():
        assert f'`"{name}"`' in README


def test_every_status_is_explained():
    for status in ls.Status:
        assert status.name in README


def test_one_version():
    assert f"version: {ls.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## [{ls.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
