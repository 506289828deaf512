"""The thread team of the compiled core under ThreadSanitizer; the core under the others is for .ci/sanitize."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "cpp" / "team.cpp"
COMPILER = shutil.which(os.environ.get("CXX", "g++"))
# Addresses that are not random: where the kernel spreads them widely, older versions of the sanitizer do not start.
FIXED_ADDRESSES = [shutil.which("setarch"), platform.machine(), "-R"] if shutil.which("setarch") else []


def compile_with(sanitizer, program):
    options = ["-std=c++17", "-O1", "-g1", "-Wall", "-Wextra", "-Werror", f"-fsanitize={sanitizer}", "-pthread"]
    done = subprocess.run([COMPILER, *options, str(SOURCE), "-o", str(program)], capture_output=True, text=True)
    if "cannot find" in done.stderr:
        pytest.skip(f"there is no library for -fsanitize={sanitizer}")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(platform.system() != "Linux" or COMPILER is None, reason="needs Linux and a C++ compiler")
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_the_thread_team_is_clean(sanitizer, tmp_path):
    compile_with(sanitizer, tmp_path / "team")
    done = subprocess.run([*FIXED_ADDRESSES, str(tmp_path / "team")], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
