"""The package as a stranger gets it: what it is built from, by which compilers, and what becomes of it without one."""

import os
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
SOLVE = """
import sys, warnings
import lowsparse as ls
problem = ls.datasets.synthetic(60, 50, rank=2, density=0.7, outliers=0.1, random_state=1)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    r = ls.solve(problem.M, 2)
print(ls.__file__, r.backend, r.converged, r.L.error(problem.L, relative=True) < 1e-6)
print([(w.category.__name__, str(w.message)) for w in caught])
"""
pytestmark = pytest.mark.slow
COMPILERS = ("g++", "clang++", "x86_64-w64-mingw32-g++-posix", "aarch64-linux-gnu-g++")  # the last two for elsewhere
V3 = ("-mavx2", "-mfma", "-mbmi", "-mbmi2")
KERNELS = {
    "baseline": ("kernels.cpp", "pixels.cpp"),
    "plain": ("kernels.cpp", "pixels.cpp", "-DLOWSPARSE_PLAIN"),  # as a compiler without vectors sees them
    "v3": ("kernels.cpp", "pixels.cpp", *V3),
    "v4": ("wide.cpp", *V3, "-mavx512f", "-mavx512dq", "-mavx512vl"),
}


def run(*command, **environment):
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "CMAKE_ARGS")} | environment
    done = subprocess.run([str(c) for c in command], env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The files git would hand out, and no build results."""
    target = tmp_path_factory.mktemp("copy")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (REPOSITORY / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, target / name)
    return target


def fresh_python(folder):
    run(sys.executable, "-m", "venv", folder)
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


@pytest.mark.skipif(os.name == "nt", reason="needs /bin/false")
def test_with_a_broken_compiler_it_installs_and_runs_on_numpy(copy, tmp_path):
    python = fresh_python(tmp_path / "env")
    run(python, "-m", "pip", "install", "--quiet", copy, CXX="/bin/false", CC="/bin/false")
    said = run(python, "-W", "error::UserWarning", "-c", SOLVE)
    assert str(tmp_path) in said
    assert "numpy True True" in said
    assert "RuntimeWarning" in said
    assert "running on NumPy, which is much slower: lowsparse was installed without its compiled core" in said
    assert run(python, "-c", "import lowsparse.places.decide as d; print(d.available()['native'])").startswith(
        "lowsparse was installed without its compiled core"
    )


def test_the_source_distribution_holds_all_a_build_needs_and_nothing_else(copy, tmp_path):
    python = fresh_python(tmp_path / "env")
    run(python, "-m", "pip", "install", "--quiet", "build")
    run(python, "-m", "build", "--sdist", "--outdir", tmp_path / "dist", copy)
    (archive,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.split("/", 1)[1] for name in tar.getnames() if "/" in name}
    wanted = {"pyproject.toml", "CMakeLists.txt", "LICENSE", "README.md"}
    for folder in ("src", "cpp", "tests", "benchmarks"):
        wanted |= {path.relative_to(copy).as_posix() for path in (copy / folder).rglob("*") if path.is_file()}
    assert {"cpp/bindings.cpp", "src/lowsparse/data/vtest.mp4", "benchmarks/paper.py"} <= wanted <= names
    built = [name for name in names if name.endswith((".so", ".pyd", ".pyc")) or name.startswith("build/")]
    assert not built


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the options are those of x86-64")
@pytest.mark.parametrize(
    ("compiler", "isa"),
    [(compiler, isa) for compiler in COMPILERS for isa in KERNELS if "aarch64" not in compiler or isa[0] in "bp"],
)
def test_the_kernels_compile_without_a_warning(compiler, isa):
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    strict = ["-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", f"-DLOWSPARSE_ISA={isa}"]
    run(compiler, *strict, *(REPOSITORY / "cpp" / word if word.endswith(".cpp") else word for word in KERNELS[isa]))
