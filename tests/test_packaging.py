"""What a release stands on: workflows with few permissions, recipes and papers that agree with the package."""

import re
import tomllib
from pathlib import Path

import pytest

import lowsparse as ls

ROOT = Path(__file__).parents[1]
if not (ROOT / ".github").is_dir():
    pytest.skip("a source distribution has no workflows", allow_module_level=True)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_pin_actions_by_hash_and_may_only_read(path):
    text = path.read_text("utf-8")
    for action in re.findall(r"uses: (.*)$", text, flags=re.MULTILINE):
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", action), action
    assert "\npermissions:\n  contents: read\n" in text
    written = set(re.findall(r"^ +([\w-]+): write", text, flags=re.MULTILINE))
    assert written <= {"id-token", "pages"}
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")
    assert "secrets." not in text


def test_the_conda_recipe_asks_for_what_the_package_asks_for():
    recipe = (ROOT / "packaging" / "conda" / "meta.yaml").read_text("utf-8")
    assert f'version = "{ls.__version__}"' in recipe
    asked = {line.replace(" ", "") for line in re.findall(r"^    - (.*)$", recipe, flags=re.MULTILINE)}
    assert set(PROJECT["project"]["dependencies"]) <= asked
    assert set(PROJECT["build-system"]["requires"]) <= asked


def test_the_paper_has_the_parts_that_are_asked_for_and_its_references():
    paper, references = ((ROOT / name).read_text("utf-8") for name in ("paper.md", "paper.bib"))
    for part in ("Summary", "Statement of need", "State of the field", "Design", "References"):
        assert f"\n# {part}\n" in paper
    cited = set(re.findall(r"@(\w+)", paper.partition("\n---\n")[2]))
    assert cited == set(re.findall(r"^@\w+\{(\w+),", references, flags=re.MULTILINE))
    assert 250 < len(paper.split()) < 1750
