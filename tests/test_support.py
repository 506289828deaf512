"""What every floor uses: checks of arguments, optional imports, atomic writing."""

import errno
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from lowsparse.support import files
from lowsparse.support.checks import check_choice, check_count, check_positive, check_share
from lowsparse.support.optional import import_optional


def test_numbers_of_any_library_are_numbers():
    assert check_count("k", np.int32(3)) == check_count("k", 3) == 3
    assert check_count("k", 0, minimum=0) == 0
    assert check_positive("x", np.float32(0.5)) == check_positive("x", 0.5) == 0.5
    assert check_share("p", np.float64(0.5)) == 0.5


@pytest.mark.parametrize(
    ("check", "value", "wanted"),
    [
        *((check_count, value, "whole number of 1 or more") for value in (0, -1, 2.0, True, np.True_, "3", None)),
        *((check_positive, value, "positive number") for value in (0, -1.0, np.inf, np.nan, True, "3", None)),
        *((check_share, value, "between 0 and 1") for value in (0, 1, -0.5, np.nan, True, "0.5", None)),
    ],
)
def test_an_argument_that_is_wrong_is_named(check, value, wanted):
    with pytest.raises(ValueError, match="size must be") as caught:
        check("size", value)
    assert wanted in str(caught.value)
    assert str(caught.value).endswith(f"not {value!r}")


def test_bounds_and_other_values_are_named():
    with pytest.raises(ValueError, match="from 1 to 4, or 'auto', not 5"):
        check_count("rank", 5, maximum=4, also="'auto'")
    with pytest.raises(ValueError, match=r"one of 'a', None, not 1"):
        check_choice("side", 1, ("a", None))
    assert check_choice("side", None, ("a", None)) is None


def test_an_optional_import_names_its_extra():
    with pytest.raises(ImportError, match=r"pictures need Pillow: .*lowsparse\[cli\]"):
        import_optional("PIL.not_there", "cli", "pictures")


def test_a_library_that_is_broken_is_named(tmp_path, monkeypatch):
    (tmp_path / "broken_library.py").write_text("raise ImportError('libx.so is missing')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"broken \(libx\.so is missing\)"):
        import_optional("broken_library", "cli", "pictures")


def test_a_file_or_folder_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a"
    files.write(path, b"first")
    with suppress(RuntimeError), files.replacing(path) as temporary:
        temporary.write_bytes(b"second")
        raise RuntimeError
    assert path.read_bytes() == b"first"
    with files.replacing(tmp_path / "folder") as temporary:
        temporary.mkdir()
        (temporary / "b").write_bytes(b"")
    with suppress(RuntimeError), files.replacing(tmp_path / "other") as temporary:
        temporary.mkdir()
        raise RuntimeError
    assert sorted(found.name for found in tmp_path.rglob("*")) == ["a", "b", "folder"]


def test_a_full_disk_is_explained():
    error = files.refused(Path("a.csv"), OSError(errno.ENOSPC, "No space left on device"))
    assert (
        str(error) == "cannot write a.csv: No space left on device: free some space, then give the same command again"
    )
