"""Ctrl-C and SIGTERM from the first import to the last: one line and the exit code of `lowsparse --help`."""

import os
import signal
import subprocess
import sys
import time

import pytest

from conftest import PATH, python
from test_cli_frame import framed_run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

SIGNALS = [signal.SIGINT, signal.SIGTERM]
SCRIPT = "import sys\nfrom lowsparse.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"  # as pip's
SIGNAL_AT_IMPORT = """
import os, sys
class Send:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["AT"]:
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))
sys.meta_path.insert(0, Send())
"""


@pytest.fixture
def start(tmp_path):
    """Start `lowsparse --version`, as pip's script or as a module, with the default handlers of signals."""
    (tmp_path / "lowsparse").write_text(SCRIPT)

    def started(as_module=False, **environment):
        words = ["-m", "lowsparse"] if as_module else [str(tmp_path / "lowsparse")]
        return subprocess.Popen(
            [sys.executable, *words, "--version"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), PATH]), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: [signal.signal(number, signal.SIG_DFL) for number in SIGNALS],
        )

    return started


@pytest.mark.parametrize(
    ("number", "module", "as_module"),
    [
        (signal.SIGINT, "datetime", False),  # imported by NumPy in C
        (signal.SIGTERM, "lowsparse.datasets", True),
        (signal.SIGINT, "typer", True),
        (signal.SIGTERM, "lowsparse.cli.app", False),
    ],
)
def test_a_signal_in_an_import_is_one_line(number, module, as_module, start, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SIGNAL_AT_IMPORT)
    child = start(as_module, AT=module, SIGNAL=str(int(number)))
    assert child.communicate(timeout=60) == ("", "lowsparse: stopped\n")
    assert child.returncode == 128 + number


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_at_any_moment_is_one_line(number, start):
    for moment in range(5, 1000, 20):
        child = start()
        time.sleep(moment / 1000)
        child.send_signal(number)
        _, errors = child.communicate(timeout=60)
        if child.returncode == 128 + number:
            assert errors == "lowsparse: stopped\n", moment
        else:  # Python itself was starting or ending
            assert child.returncode in (-number, 0, 1), (moment, errors)
            assert "numpy" not in errors, (moment, errors)


def test_a_library_that_changes_the_exception_does_not_hide_the_signal(tmp_path):
    body = """
try:
    signal.raise_signal(signal.SIGTERM)
except KeyboardInterrupt:
    raise AttributeError("partially initialized module")
"""
    done = framed_run(body, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (143, "lowsparse work: stopped\n")


def test_a_program_that_imports_the_package_keeps_its_handlers():
    code = """
import signal, sys
sys.argv = ["lowsparse"]  # as in the children of a command
before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
import lowsparse
assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
"""
    python(code)
