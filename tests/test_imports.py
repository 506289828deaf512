"""Optional libraries are imported when what needs them is asked for, and one that is not there is named then."""

import ast
import re
from pathlib import Path

import numpy as np

import lowsparse as ls
from conftest import python

OPTIONAL = (
    "av",
    "cupy",
    "dask",
    "distributed",
    "matplotlib",
    "pandas",
    "polars",
    "pyarrow",
    "sklearn",
    "torch",
    "typer",
    "xarray",
    "zarr",
)


def test_nothing_is_imported_before_it_is_asked_for(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((2, 2)))
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    code = f"""
import sys
import lowsparse as ls
from lowsparse.entries.containers import rewrap, unwrap

def check(what):
    there = [name for name in {OPTIONAL} if name in sys.modules]
    assert not there, (what, there)

check("the package")
assert "plots" in dir(ls)
ls.plots.phase
check("the plots")
X = unwrap([[1.0, 2.0], [2.0, 4.0]])
rewrap(X, X), ls.ObservedMatrix.from_any(X)
check("containers")
sys.modules["sklearn"] = None
result = ls.solve(X, 1)
assert result.converged
assert "RobustPCA" in dir(ls)
del sys.modules["sklearn"]
check("a solve")
result._repr_html_()
check("a card")
import lowsparse.series.mixing, lowsparse.video.tracks
check("series and video")
assert "scipy.optimize" not in sys.modules  # which takes 16 MB
sys.modules["sklearn"] = sys.modules["pyarrow"] = None
from lowsparse.tables import read_table
assert read_table({str(tmp_path / "x.npy")!r}).M.nnz == 4
for ask in (lambda: ls.RobustPCA, lambda: read_table({str(tmp_path / "t.csv")!r})):
    try:
        ask()
    except ImportError as error:
        print(error)
"""
    estimators, tables = python(code).stdout.splitlines()
    assert estimators == "the estimators need scikit-learn: python -m pip install 'lowsparse[sklearn]'"
    assert tables == "labelled tables need pyarrow: python -m pip install 'lowsparse[tables]'"


def test_the_stub_of_the_compiled_core_is_true(native):
    from lowsparse import _core

    stub = ast.parse((Path(ls.__file__).parent / "_core.pyi").read_text(encoding="utf-8"))
    for scope, there in ((stub, _core), *((node, getattr(_core, node.name)) for node in classes(stub))):
        declared = {node.name: node for node in scope.body if isinstance(node, ast.FunctionDef)}
        members = {name for name, member in vars(there).items() if hasattr(member, "__nb_signature__")}
        assert members - {"__init__"} == set(declared) - {"__init__"}
        for name, node in declared.items():
            (signature,) = re.findall(r"\((.*)\)", getattr(there, name).__nb_signature__[0][0])
            names = re.findall(r"(?:^|, )(\w+)(?=[:,]|$)", re.sub(r"\[[^\]]*\]", "", signature))
            assert [argument.arg for argument in node.args.args] == names, name


def classes(module):
    return [node for node in module.body if isinstance(node, ast.ClassDef)]
