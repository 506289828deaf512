"""Where a command writes to: claimed before the work, written beside, and in place as a whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ..support.files import FULL
from .failure import fail
from .signals import uninterrupted

__all__ = ["obstacle", "output_file", "output_folder"]

EXISTS = "{} exists: give --force to overwrite it, or another --out"


def obstacle(out: Path) -> str | None:
    """Why nothing could be written to this folder, which need not be there yet; None if it can.

    >>> obstacle(Path(".")) is None
    True
    """
    there = _nearest(out.absolute())
    if not there.is_dir():
        return f"{there} is not a folder: choose another --out"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"cannot write to {there}: choose another --out"
    return None


def _nearest(path: Path) -> Path:
    """Itself or what is above it, whichever is there."""
    return next(place for place in (path, *path.parents) if os.path.lexists(place))


@contextmanager
def output_folder(out: Path, names: Sequence[str] | None = None, *, force: bool) -> Iterator[Path]:
    """A new folder to write to, whose files are in `out` once the block has ended well, and gone if it has not.

    Whether that will be possible is found out before: `names` are what will be written (None: not known yet). Without
    `force` none of it may be there, and if it is not known `out` must be empty. What else is in `out` stays.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as home:
    ...     out = Path(home, "out")
    ...     with output_folder(out, ["a.txt"], force=False) as folder:
    ...         _ = (folder / "a.txt").write_text("whole")
    ...         before = out.exists()
    ...     before, (out / "a.txt").read_text()
    (False, 'whole')
    """
    if why := obstacle(out):
        fail(why)
    if names is None and not force and out.exists() and next(out.iterdir(), None) is not None:
        fail(f"{out} is not empty: give --force to overwrite what has the same name, or another --out")
    for name in names or ():
        _check_place(out / name, force)
    target = out.resolve()
    beside = _beside(target)
    with _parents(target), _nothing_written():
        try:
            _make(beside)
            yield beside
            _move(beside, target, out, force)
        finally:
            with uninterrupted():
                shutil.rmtree(beside, ignore_errors=True)


def _move(beside: Path, target: Path, out: Path, force: bool) -> None:
    """Everything to its place; nothing at all if some of it has none."""
    found = sorted(beside.rglob("*"))
    for path in found:
        place = out / path.relative_to(beside)
        if not path.is_dir():
            _check_place(place, force)
        elif os.path.lexists(place) and not place.is_dir():
            fail(f"{place} is not a folder: choose another --out")
    with uninterrupted():
        if not target.exists():
            os.replace(beside, target)
            return
        for path in found:
            place = target / path.relative_to(beside)
            if path.is_dir():
                place.mkdir(exist_ok=True)
            else:
                os.replace(path, place)


@contextmanager
def output_file(out: Path, *, force: bool) -> Iterator[Path]:
    """A path beside `out` with the same ending to write to, which becomes `out` once the block has ended well.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as home:
    ...     out = Path(home, "out.csv")
    ...     with output_file(out, force=False) as path:
    ...         _ = path.write_text("whole")
    ...     path.suffix, path.exists(), out.read_text()
    ('.csv', False, 'whole')
    """
    if why := obstacle(out.parent):
        fail(why)
    _check_place(out, force)
    target = out.resolve()  # a link stays one
    beside = _beside(target)
    with _parents(target), _nothing_written():
        try:
            yield beside
            _check_place(out, force)  # it may have come meanwhile
            with uninterrupted():
                os.replace(beside, target)
        finally:
            with uninterrupted():
                beside.unlink(missing_ok=True)


@contextmanager
def _parents(target: Path) -> Iterator[None]:
    """Make the folders above; those that were not there are taken away again if the block fails."""
    made = [folder for folder in target.parents if not folder.exists()]
    try:
        _make(target.parent)
        yield
    except BaseException:
        with uninterrupted(), suppress(OSError):
            for folder in made:
                folder.rmdir()
        raise


def _make(folder: Path) -> None:
    """Make a folder, and those above; leave if the system refuses, but for a disk that is full, which is well told."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in FULL:
            raise
        fail(f"cannot write to {_nearest(folder)} ({error.strerror or error}): choose another --out")


@contextmanager
def _nothing_written() -> Iterator[None]:
    """Say so on Ctrl-C, unless more is known."""
    try:
        yield
    except KeyboardInterrupt as error:
        if not getattr(error, "__notes__", []):
            error.add_note("nothing was written")
        raise


def _check_place(place: Path, force: bool) -> None:
    """Leave if a file cannot go there: something stands there that must not be replaced."""
    if place.exists() and not place.is_file():
        fail(f"{place} is {'a folder' if place.is_dir() else 'no ordinary file'}: choose another --out")
    if os.path.lexists(place) and not force:
        fail(EXISTS.format(place))


def _beside(target: Path) -> Path:
    """A hidden name on the same disk, where a rename is done at once: in a folder that is there, else next to it."""
    home = target if target.is_dir() else target.parent
    return home / f".{target.stem}.part-{secrets.token_hex(4)}{target.suffix}"
