"""What the README and two pages of docs/ show is so; test_docs.py sees to the other pages."""

import re
from pathlib import Path

import pytest

import lowsparse as ls
from code_in_pages import code_blocks, printed_by

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SOLVE = ROOT / "docs" / "solve.md"


BLOCKS = [block.code for block in code_blocks(ROOT / "README.md")]


@pytest.mark.parametrize("code", BLOCKS, ids=lambda code: code.splitlines()[-1][:40])
def test_python_runs(code):
    assert printed_by(code, "README.md").strip()


def test_the_first_block_recovers():
    first, second = printed_by(BLOCKS[0]).splitlines()
    assert "converged" in first
    assert float(second) < 1e-8


def test_the_imputer_recovers():
    assert float(printed_by(BLOCKS[1])) < 1e-6


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="a source distribution has no docs")
def test_the_block_of_triples_fills_in():
    assert float(printed_by(code_blocks(SOLVE)[0].code)) == 6.0


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="a source distribution has no docs")
def test_the_estimators_do_as_their_page_says():
    page = ROOT / "docs" / "which-estimator.md"
    filled, new_rows, bad_rows, streamed, _ = (
        printed_by(block.code, page.name).split()[0] for block in code_blocks(page)
    )
    assert float(filled) < 1e-3
    assert float(new_rows) < 1e-6
    assert bad_rows == "RowOutliers(20"
    assert float(streamed) < 1e-2


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="a source distribution has no docs")
@pytest.mark.parametrize(("page", "printed"), [("method", "CONVERGED True"), ("backend", "packed CONVERGED True")])
def test_what_is_added_works(page, printed):
    path = ROOT / "docs" / f"add-a-{page}.md"
    code = "\n".join(block.code for block in code_blocks(path))
    assert printed_by(code, path.name) == f"{printed}\n"


def test_the_two_commands_are_there():
    assert 'python -m pip install ".[all]" && lowsparse demo\n' in README
    assert 'python -m pip install ".[test]" && python -m pytest\n' in README


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="a source distribution has no pictures")
def test_pictures_exist():
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    assert pictures
    for picture in pictures:
        assert (ROOT / picture).stat().st_size < 150_000


def test_the_readme_is_read_in_a_minute():
    assert len(README.splitlines()) < 140
    assert f"{len(ls.solvers.names())} of them by name" in README


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="a source distribution has no docs")
def test_every_method_and_status_is_explained():
    page = SOLVE.read_text(encoding="utf-8")
    for name in ls.solvers.names():
        assert f'`"{name}"`' in page
    for status in ls.Status:
        assert status.name in page


def test_one_version():
    assert f"version: {ls.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## [{ls.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="a source distribution has no docs")
def test_how_often_converged_is_wrong_is_said_alike():
    measured = re.search(
        r"(\d+) of\s+(\d+) that say converged are\s+wrong", (ROOT / "docs" / "converged.md").read_text("utf-8")
    )
    wrong, answers = measured.groups()
    assert f"Of {answers} answers that said so" in README
    assert f"{wrong} were wrong" in README
    assert f"{wrong} of {answers} answers" in (ROOT / "paper.md").read_text("utf-8")
